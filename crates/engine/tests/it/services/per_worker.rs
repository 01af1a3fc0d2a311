//! Services with one replica on each matching worker.

use model::WorkerId;
use model::spec::{Constraint, Operator};

use super::*;

fn agent() -> ServiceSpec {
    ServiceSpec { name: "agent".into(), replicas: None, per_worker: true, ..web(0) }
}

/// Workers of the replicas that are not being stopped, in order; each has one replica at most.
fn workers_of(t: &Scenario, id: ServiceId) -> Vec<WorkerId> {
    let workers: Vec<_> = replicas(t, id).into_iter().map(|(job, ..)| t.execution(job).worker).collect();
    let distinct: BTreeSet<_> = workers.iter().copied().collect();
    assert_eq!(distinct.len(), workers.len(), "two replicas are on one worker");
    distinct.into_iter().collect()
}

#[test]
fn each_worker_gets_one_replica_and_so_does_one_that_joins_later() {
    let mut t = Scenario::new();
    // Room for many on the first, which is the least loaded.
    let mut workers = vec![t.worker().cpu(64_000).join(), t.worker().cpu(1_000).join()];
    let id = apply(&mut t, &agent());
    settle(&mut t);
    assert_eq!(workers_of(&t, id), workers);
    assert_eq!((state(&t, id).replicas, state(&t, id).rollout.status), (2, RolloutStatus::Completed));
    workers.push(t.worker().join());
    settle(&mut t);
    assert_eq!(workers_of(&t, id), workers);
    assert_eq!(state(&t, id).counts.available, 3);
    t.check_rebuilt();
}

#[test]
fn only_workers_that_satisfy_the_constraints_get_a_replica() {
    let mut t = Scenario::new();
    t.worker().label("zone", "a").join();
    let worker = t.worker().label("zone", "b").join();
    let mut spec = agent();
    let values = vec!["b".to_owned()];
    spec.job.constraints = vec![Constraint { label: "zone".into(), operator: Operator::In, values }];
    let id = apply(&mut t, &spec);
    settle(&mut t);
    assert_eq!(workers_of(&t, id), [worker]);
}

/// Otherwise the other workers would have replicas that wait for ever, and the rollout would fail.
#[test]
fn only_workers_with_the_volumes_get_a_replica() {
    let mut t = Scenario::new();
    t.worker().join();
    let worker = t.worker().volumes(&["data"]).join();
    let mut spec = agent();
    spec.job.volumes = vec![model::spec::Volume { name: "data".into() }];
    let id = apply(&mut t, &spec);
    settle(&mut t);
    assert_eq!(workers_of(&t, id), [worker]);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::Completed);
}

#[test]
fn a_drained_worker_loses_its_replica_and_gets_it_back() {
    let mut t = Scenario::new();
    let workers = [t.worker().join(), t.worker().join()];
    let id = apply(&mut t, &agent());
    settle(&mut t);
    t.admit(workers[0], Admission::Draining);
    settle(&mut t);
    assert_eq!(workers_of(&t, id), workers[1..]);
    assert_eq!((state(&t, id).replicas, state(&t, id).counts.available), (1, 1));
    t.admit(workers[0], Admission::Open);
    settle(&mut t);
    assert_eq!(workers_of(&t, id), workers);
}

#[test]
fn a_cordoned_worker_keeps_its_replica_and_gets_no_new_one() {
    let mut t = Scenario::new();
    let workers = [t.worker().join(), t.worker().join()];
    let id = apply(&mut t, &agent());
    settle(&mut t);
    t.admit(workers[0], Admission::Cordoned);
    settle(&mut t);
    assert_eq!(workers_of(&t, id), workers);
    let other = t.worker().join();
    t.admit(other, Admission::Cordoned);
    let other_agent = ServiceSpec { name: "other".into(), ..agent() };
    let second = apply(&mut t, &other_agent);
    settle(&mut t);
    assert_eq!(workers_of(&t, second), [workers[1]]);
}

#[test]
fn the_replica_of_a_lost_worker_moves_nowhere() {
    let mut t = Scenario::new();
    let workers = [t.worker().join(), t.worker().join()];
    let id = apply(&mut t, &agent());
    settle(&mut t);
    t.lose(workers[0]);
    settle(&mut t);
    assert_eq!(workers_of(&t, id), workers[1..]);
    assert_eq!(state(&t, id).replicas, 1);
    t.rejoin(workers[0]);
    settle(&mut t);
    assert_eq!(workers_of(&t, id), workers);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::Completed);
}

/// The successor of a replica has the same ports and files, so the replica stops first.
#[test]
fn an_update_replaces_one_replica_after_the_other() {
    let mut t = Scenario::new();
    let workers = [t.worker().join(), t.worker().join(), t.worker().join()];
    let spec = checked(agent());
    let id = apply(&mut t, &spec);
    settle(&mut t);
    let healthy = |t: &mut Scenario| {
        for (job, ..) in replicas(t, id) {
            report_health(t, job, HealthStatus::Healthy);
        }
    };
    healthy(&mut t);
    apply(&mut t, &changed(spec, "v2"));
    for round in 1..=3 {
        settle(&mut t);
        let updated = revisions(&t, id).into_iter().filter(|revision| *revision == 2).count();
        assert_eq!(updated, round);
        assert_eq!(state(&t, id).counts.available, 2, "one is replaced at a time");
        healthy(&mut t);
    }
    settle(&mut t);
    assert_eq!(workers_of(&t, id), workers);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::Completed);
}

#[test]
fn a_takeover_keeps_the_replicas_on_their_workers() {
    let mut t = Scenario::new();
    let workers = [t.worker().join(), t.worker().join()];
    let id = apply(&mut t, &agent());
    settle(&mut t);
    let before = replicas(&t, id);
    t.restart();
    t.rejoin_all();
    settle(&mut t);
    assert_eq!(replicas(&t, id), before);
    t.admit(workers[1], Admission::Draining);
    settle(&mut t);
    assert_eq!(workers_of(&t, id), workers[..1]);
}

#[test]
fn a_service_changes_to_one_replica_per_worker_and_back() {
    let mut t = Scenario::new();
    let workers = [t.worker().join(), t.worker().join(), t.worker().join()];
    let id = apply(&mut t, &web(2));
    settle(&mut t);
    apply(&mut t, &ServiceSpec { replicas: None, per_worker: true, ..web(0) });
    settle(&mut t);
    assert_eq!(workers_of(&t, id), workers);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::Completed);
    let refused = ask(&mut t, ServiceRequest::Scale { service: id, replicas: 5, expected_version: None });
    assert!(matches!(refused, Err(Refusal::ServicePerWorker { .. })), "{refused:?}");
    apply(&mut t, &web(2));
    settle(&mut t);
    assert_eq!(replicas(&t, id).len(), 2);
    // They are bound to no worker.
    t.lose(workers[0]);
    t.lose(workers[1]);
    settle(&mut t);
    assert_eq!(replicas(&t, id).len(), 2);
    assert!(replicas(&t, id).into_iter().all(|(job, ..)| t.execution(job).worker == workers[2]));
}

#[test]
fn without_workers_a_deleted_service_ends() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let id = apply(&mut t, &agent());
    settle(&mut t);
    ask(&mut t, ServiceRequest::Delete { service: id, expected_version: None }).unwrap();
    settle(&mut t);
    assert!(!t.rows.services.contains_key(&id));
    assert_eq!(t.players[&worker].assigned.len(), 0);
}
