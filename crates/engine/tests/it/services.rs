//! Services: replicas, restarts, health, rollouts, drains and losses of workers.
//!
//! - `per_worker`: services with one replica on each matching worker.
//! - `required`: jobs that require services.
//! - `scaling`: services that are scaled automatically.

mod per_worker;
mod required;
mod scaling;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::input::{ExecutionEnd, Expected, HealthReport, NewService, ServiceRequest};
use engine::{Input, Reply};
use model::api::ApplyChange;
use model::service::{RevisionCause, RolloutStatus, ServiceHead, ServiceSpec, ServiceState, UpdatePolicy};
use model::spec::{HealthCheck, HealthChecks, HealthStatus, JobSpread, Port, PriorityClass, Run, TcpCheck};
use model::why::{FailedFilter, Reason};
use model::worker::Admission;
use model::{Duration, JobId, JobSpec, JobStatus, Refusal, ServiceId};

use crate::scenario::{Scenario, finished, known};

fn web(replicas: u32) -> ServiceSpec {
    let mut job = JobSpec::command(["serve"]);
    job.name = "web".into();
    ServiceSpec {
        name: "web".into(),
        namespace: "default".into(),
        owner: None,
        labels: BTreeMap::new(),
        description: None,
        replicas: Some(replicas),
        per_worker: false,
        scaling: None,
        priority_class: PriorityClass::High,
        job: Box::new(job),
        restart_backoff: Default::default(),
        min_healthy: Duration::ZERO,
        update: UpdatePolicy::default(),
    }
}

/// The spec with another command: a new template.
fn changed(mut spec: ServiceSpec, version: &str) -> ServiceSpec {
    let run = JobSpec::command(["serve", version]).run;
    spec.job.run = run;
    spec
}

fn apply(t: &mut Scenario, spec: &ServiceSpec) -> ServiceId {
    match try_apply(t, spec, Expected::Any).unwrap() {
        Reply::AppliedServices(applied) => applied[0].service,
        other => panic!("{other:?}"),
    }
}

fn try_apply(t: &mut Scenario, spec: &ServiceSpec, expected: Expected) -> Result<Reply, Refusal> {
    let body: Arc<str> = serde_json::to_string(spec).unwrap().into();
    let new = NewService { spec: Arc::new(spec.clone()), body, expected };
    ask(t, ServiceRequest::Apply { services: vec![new] })
}

fn ask(t: &mut Scenario, request: ServiceRequest) -> Result<Reply, Refusal> {
    t.ask(|ticket| Input::Service { ticket, request: Box::new(request), actor: "alice".into() })
}

fn row(t: &Scenario, id: ServiceId) -> &(ServiceHead, ServiceState) {
    &t.rows.services[&id]
}

fn state(t: &Scenario, id: ServiceId) -> &ServiceState {
    &row(t, id).1
}

/// Live jobs of a service that are not being stopped, with their revision and number.
fn replicas(t: &Scenario, id: ServiceId) -> Vec<(JobId, u64, u32)> {
    let live = t.rows.jobs.iter().filter(|(_, (_, state))| !state.status.is_final());
    live.filter_map(|(job, (head, state))| {
        let origin = head.replica.as_ref().filter(|origin| origin.service == id)?;
        state.cancel_requested_at.is_none().then_some((*job, origin.revision, origin.replica))
    })
    .collect()
}

fn revisions(t: &Scenario, id: ServiceId) -> Vec<u64> {
    replicas(t, id).into_iter().map(|(_, revision, _)| revision).collect()
}

/// Workers start what they were assigned, and stop what they must stop, until nothing changes.
fn settle(t: &mut Scenario) {
    for _ in 0..200 {
        let assigned: Vec<JobId> =
            t.players.values().flat_map(|player| player.assigned.iter().map(|one| one.job)).collect();
        assigned.iter().for_each(|&job| {
            t.start(job);
        });
        let is_stopping = |(_, (_, state)): &(&JobId, &(model::record::JobHead, model::record::JobState))| {
            state.status == JobStatus::Running && state.cancel_requested_at.is_some()
        };
        let stopping: Vec<JobId> = t.rows.jobs.iter().filter(is_stopping).map(|(id, _)| *id).collect();
        stopping.iter().for_each(|&job| t.stop(job));
        if assigned.is_empty() && stopping.is_empty() {
            return;
        }
    }
    panic!("the service never settles");
}

fn scale(t: &mut Scenario, service: ServiceId, replicas: u32) {
    ask(t, ServiceRequest::Scale { service, replicas, expected_version: None }).unwrap();
}

/// Reports the health of the running execution of a job.
fn report_health(t: &mut Scenario, job: JobId, status: HealthStatus) {
    let record = t.execution(job).clone();
    let session = t.players[&record.worker].session.unwrap();
    let report = HealthReport {
        execution: record.id,
        fence: record.fence,
        status,
        detail: None,
        ports: BTreeMap::from([("http".to_owned(), 20_001)]),
    };
    t.say(Input::Health { worker: record.worker, session, reports: vec![report] });
}

/// The spec with a readiness check.
fn checked(mut spec: ServiceSpec) -> ServiceSpec {
    spec.job.ports = vec![Port { name: "http".into(), port: None }];
    let tcp = Some(TcpCheck { port: model::spec::CheckedPort::Name("http".into()) });
    let readiness = Some(HealthCheck { tcp, ..HealthCheck::new() });
    spec.job.health = Some(Box::new(HealthChecks { readiness, ..HealthChecks::default() }));
    spec
}

/// F3. A service starts its replicas, on different workers, with different numbers.
#[test]
fn a_service_starts_its_replicas_on_different_workers() {
    let mut t = Scenario::new();
    t.worker().cpu(8_000).join();
    t.worker().cpu(4_000).join();
    t.worker().cpu(2_000).join();
    let id = apply(&mut t, &web(3));
    settle(&mut t);
    let numbers: Vec<u32> = replicas(&t, id).into_iter().map(|(.., number)| number).collect();
    assert_eq!(numbers, [0, 1, 2]);
    let workers: BTreeSet<_> = replicas(&t, id).iter().map(|(job, ..)| t.execution(*job).worker).collect();
    assert_eq!(workers.len(), 3, "the largest worker alone has the lowest utilization");
    let state = state(&t, id);
    assert_eq!((state.counts.available, state.rollout.status), (3, RolloutStatus::Completed));
    assert_eq!(state.stable_revision, Some(1));
}

/// F3. A replica that exits is started again, also after a success, and never ends by itself.
#[test]
fn a_replica_that_exits_is_restarted_after_a_backoff() {
    let mut t = Scenario::new();
    t.worker().join();
    let id = apply(&mut t, &web(1));
    settle(&mut t);
    let [(job, ..)] = replicas(&t, id)[..] else { panic!("one replica") };
    t.succeed(job);
    assert_eq!(t.status(job), JobStatus::Retrying);
    assert_eq!(state(&t, id).counts.available, 0);
    t.pass(3);
    settle(&mut t);
    assert_eq!(t.status(job), JobStatus::Running);
    t.fail(job, 1);
    t.pass(5);
    settle(&mut t);
    assert_eq!(
        t.history(job),
        "waiting (replica_started) → running (placed) → retrying (replica_exited) → waiting (backoff_ended) → \
         running (placed) → retrying (run_failed) → waiting (backoff_ended) → running (placed)"
    );
    assert_eq!(replicas(&t, id).len(), 1);
}

/// A stable run forgets earlier failures, so the next restart comes at once.
#[test]
fn a_stable_run_resets_the_restart_delay() {
    let mut t = Scenario::new();
    t.worker().join();
    let id = apply(&mut t, &web(1));
    settle(&mut t);
    let [(job, ..)] = replicas(&t, id)[..] else { panic!("one replica") };
    for _ in 0..8 {
        t.fail(job, 1);
        let due_at = t.state(job).due_at;
        t.pass(due_at.since(t.now).as_millis() / 1_000 + 1);
        settle(&mut t);
    }
    t.pass(601);
    t.fail(job, 1);
    assert_eq!(t.state(job).run_failures, 1);
    assert!(t.state(job).due_at <= t.now + Duration::from_secs(2));
}

/// The cancel of a replica's job restarts the replica: a new job takes its number.
#[test]
fn a_cancelled_replica_is_replaced() {
    let mut t = Scenario::new();
    t.worker().join();
    let id = apply(&mut t, &web(2));
    settle(&mut t);
    let [(job, ..), (other, ..)] = replicas(&t, id)[..] else { panic!("two replicas") };
    t.cancel(job).unwrap();
    settle(&mut t);
    assert_eq!(t.status(job), JobStatus::Cancelled);
    assert!(replicas(&t, id).iter().any(|(kept, ..)| *kept == other));
    assert_eq!(state(&t, id).counts.available, 2);
}

/// F3. An update replaces one replica after the other, and at least the desired number stays available.
#[test]
fn an_update_keeps_all_replicas_available() {
    let mut t = Scenario::new();
    t.worker().join();
    let id = apply(&mut t, &web(3));
    settle(&mut t);
    apply(&mut t, &changed(web(3), "v2"));
    for _ in 0..20 {
        assert!(state(&t, id).counts.available >= 3, "{:?}", state(&t, id).counts);
        assert!(replicas(&t, id).len() <= 4);
        let assigned: Vec<JobId> =
            t.players.values().flat_map(|player| player.assigned.iter().map(|one| one.job)).collect();
        match assigned.first() {
            Some(&job) => drop(t.start(job)),
            None => break,
        }
    }
    settle(&mut t);
    assert_eq!(revisions(&t, id), [2, 2, 2]);
    let state = state(&t, id);
    assert_eq!((state.rollout.status, state.stable_revision), (RolloutStatus::Completed, Some(2)));
}

/// A change of limits or of the number of replicas restarts nothing.
#[test]
fn a_change_outside_the_template_makes_no_revision() {
    let mut t = Scenario::new();
    t.worker().join();
    let id = apply(&mut t, &web(2));
    settle(&mut t);
    let before = replicas(&t, id);
    let mut spec = web(3);
    spec.update.max_surge = 3;
    apply(&mut t, &spec);
    settle(&mut t);
    assert_eq!(row(&t, id).0.revisions.len(), 1);
    assert_eq!(replicas(&t, id)[..2], before);
    assert_eq!(replicas(&t, id).len(), 3);
    let Reply::AppliedServices(applied) = try_apply(&mut t, &spec, Expected::Any).unwrap() else { panic!() };
    assert_eq!(applied[0].change, ApplyChange::Unchanged);
}

/// F3. Health decides when a replica counts: an update waits for the first healthy replacement.
#[test]
fn an_update_waits_until_replacements_are_healthy() {
    let mut t = Scenario::new();
    t.worker().join();
    let mut spec = checked(web(1));
    spec.min_healthy = Duration::from_secs(5);
    let id = apply(&mut t, &spec);
    settle(&mut t);
    let [(first, ..)] = replicas(&t, id)[..] else { panic!("one replica") };
    assert_eq!(state(&t, id).counts.available, 0);
    report_health(&mut t, first, HealthStatus::Starting);
    t.pass(10);
    assert_eq!(state(&t, id).counts.available, 0);
    report_health(&mut t, first, HealthStatus::Healthy);
    t.pass(4);
    assert_eq!(state(&t, id).counts.available, 0);
    t.pass(1);
    assert_eq!(state(&t, id).counts.available, 1);
    apply(&mut t, &changed(spec, "v2"));
    settle(&mut t);
    let [_, (second, ..)] = replicas(&t, id)[..] else { panic!("the old one and its replacement") };
    t.pass(30);
    assert_eq!(replicas(&t, id).len(), 2, "the old replica stays");
    report_health(&mut t, second, HealthStatus::Healthy);
    t.pass(5);
    settle(&mut t);
    assert_eq!(revisions(&t, id), [2]);
    report_health(&mut t, second, HealthStatus::Unhealthy);
    assert_eq!(state(&t, id).counts.available, 0);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::Completed, "a rollout that completed stays so");
}

/// F3. The health survives a takeover, so a new leader neither stops nor starts anything.
#[test]
fn a_takeover_changes_no_replica() {
    let mut t = Scenario::new();
    t.worker().join();
    let id = apply(&mut t, &checked(web(2)));
    settle(&mut t);
    for (job, ..) in replicas(&t, id) {
        report_health(&mut t, job, HealthStatus::Healthy);
    }
    let before = replicas(&t, id);
    assert_eq!(state(&t, id).counts.available, 2);
    for _ in 0..3 {
        t.restart();
        t.rejoin_all();
        assert_eq!(state(&t, id).counts.available, 2);
        assert_eq!(replicas(&t, id), before);
    }
}

/// F3. A new leader continues the timers of a service, although nothing else happens to its replicas.
#[test]
fn the_timers_of_a_service_survive_a_takeover() {
    let mut t = Scenario::new();
    t.worker().join();
    let mut spec = web(1);
    spec.min_healthy = Duration::from_secs(60);
    let id = apply(&mut t, &spec);
    settle(&mut t);
    t.restart();
    t.rejoin_all();
    t.pass(59);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::Progressing);
    t.pass(1);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::Completed);
    // No worker can take the replica of the next revision.
    spec.job.resources.cpu = Some(model::Millicores(1_000_000));
    apply(&mut t, &spec);
    settle(&mut t);
    t.restart();
    t.rejoin_all();
    t.pass(600);
    assert_eq!(row(&t, id).0.revisions[2].cause, RevisionCause::RolledBack);
}

/// F3. A revision that never becomes available returns to the last one that did; its good replicas stay.
#[test]
fn a_failed_rollout_returns_to_the_stable_revision() {
    let mut t = Scenario::new();
    t.worker().join();
    let spec = checked(web(3));
    let id = apply(&mut t, &spec);
    settle(&mut t);
    for (job, ..) in replicas(&t, id) {
        report_health(&mut t, job, HealthStatus::Healthy);
    }
    let good: BTreeSet<JobId> = replicas(&t, id).into_iter().map(|(job, ..)| job).collect();
    apply(&mut t, &changed(spec.clone(), "broken"));
    settle(&mut t);
    assert_eq!(replicas(&t, id).len(), 4);
    t.pass(599);
    assert_eq!(state(&t, id).rollout.revision, 2);
    t.pass(1);
    settle(&mut t);
    let (head, state) = row(&t, id);
    assert_eq!((state.rollout.revision, state.rollout.status), (3, RolloutStatus::Completed));
    assert_eq!(head.revisions[2].cause, RevisionCause::RolledBack);
    assert_eq!(head.revisions[2].rollback_to, Some(1));
    assert_eq!(head.spec.job.run, spec.job.run, "the spec is the one that runs");
    assert!(state.rollout.reason.as_deref().unwrap().contains("revision 2"), "{:?}", state.rollout.reason);
    let kept: BTreeSet<JobId> = replicas(&t, id).into_iter().map(|(job, ..)| job).collect();
    assert_eq!(kept, good, "no good replica was restarted");
}

#[test]
fn a_failed_rollout_without_a_rollback_stays_failed_until_a_user_acts() {
    let mut t = Scenario::new();
    t.worker().join();
    let mut spec = checked(web(2));
    spec.update.auto_rollback = false;
    let id = apply(&mut t, &spec);
    settle(&mut t);
    for (job, ..) in replicas(&t, id) {
        report_health(&mut t, job, HealthStatus::Healthy);
    }
    apply(&mut t, &changed(spec, "broken"));
    settle(&mut t);
    t.pass(600);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::Failed);
    t.pass(3_000);
    assert_eq!(revisions(&t, id), [1, 1, 2], "the good replicas stay");
    ask(&mut t, ServiceRequest::Rollback { service: id, revision: None }).unwrap();
    settle(&mut t);
    assert_eq!(revisions(&t, id), [1, 1]);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::Completed);
    let refusal = ask(&mut t, ServiceRequest::Rollback { service: id, revision: Some(1) }).unwrap_err();
    assert!(matches!(refusal, Refusal::RevisionUnavailable { .. }), "{refusal:?}");
}

/// F3. Canaries run beside the others until they are promoted.
#[test]
fn canaries_wait_for_a_promotion() {
    let mut t = Scenario::new();
    t.worker().join();
    let mut spec = web(3);
    spec.update.canaries = 1;
    let id = apply(&mut t, &spec);
    settle(&mut t);
    assert_eq!(revisions(&t, id), [1, 1, 1], "the first revision has no canaries");
    apply(&mut t, &changed(spec.clone(), "v2"));
    settle(&mut t);
    assert_eq!(revisions(&t, id), [1, 1, 1, 2]);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::AwaitingPromotion);
    t.pass(2_000);
    assert_eq!(revisions(&t, id), [1, 1, 1, 2], "no deadline passes while it waits for a user");
    ask(&mut t, ServiceRequest::PromoteRollout { service: id }).unwrap();
    settle(&mut t);
    assert_eq!(revisions(&t, id), [2, 2, 2]);
    spec.update.auto_promote = true;
    apply(&mut t, &changed(spec, "v3"));
    settle(&mut t);
    assert_eq!(revisions(&t, id), [3, 3, 3]);
}

/// A rollout that waits for a promotion continues, with a deadline, when its canaries are removed from the spec.
#[test]
fn a_rollout_without_canaries_waits_for_no_promotion() {
    let mut t = Scenario::new();
    t.worker().join();
    let mut spec = checked(web(2));
    spec.update.canaries = 1;
    let id = apply(&mut t, &spec);
    settle(&mut t);
    for (job, ..) in replicas(&t, id) {
        report_health(&mut t, job, HealthStatus::Healthy);
    }
    let mut spec = changed(spec, "v2");
    apply(&mut t, &spec);
    settle(&mut t);
    let canary = replicas(&t, id)[2].0;
    report_health(&mut t, canary, HealthStatus::Healthy);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::AwaitingPromotion);
    spec.update.canaries = 0;
    apply(&mut t, &spec);
    settle(&mut t);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::Progressing);
    t.pass(600);
    assert_eq!(
        row(&t, id).0.revisions[2].cause,
        RevisionCause::RolledBack,
        "the second replica is not healthy"
    );
}

/// A rollout that waits for a promotion continues when the spec promotes canaries automatically.
#[test]
fn canaries_that_wait_are_promoted_by_the_spec() {
    let mut t = Scenario::new();
    t.worker().join();
    let mut spec = web(2);
    spec.update.canaries = 1;
    let id = apply(&mut t, &spec);
    settle(&mut t);
    let mut spec = changed(spec, "v2");
    apply(&mut t, &spec);
    settle(&mut t);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::AwaitingPromotion);
    spec.update.auto_promote = true;
    apply(&mut t, &spec);
    settle(&mut t);
    assert_eq!(revisions(&t, id), [2, 2]);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::Completed);
}

#[test]
fn a_paused_rollout_replaces_nothing_until_it_is_resumed() {
    let mut t = Scenario::new();
    t.worker().join();
    let id = apply(&mut t, &web(2));
    settle(&mut t);
    apply(&mut t, &changed(web(2), "v2"));
    ask(&mut t, ServiceRequest::PauseRollout { service: id }).unwrap();
    settle(&mut t);
    t.pass(5_000);
    settle(&mut t);
    assert_eq!(revisions(&t, id), [1, 1, 2], "the replacement stays too");
    ask(&mut t, ServiceRequest::ResumeRollout { service: id }).unwrap();
    settle(&mut t);
    assert_eq!(revisions(&t, id), [2, 2]);
    let refusal = ask(&mut t, ServiceRequest::PauseRollout { service: id }).unwrap_err();
    assert!(matches!(refusal, Refusal::RolloutStatus { .. }), "{refusal:?}");
}

/// F3. A drain starts replacements elsewhere before it stops replicas.
#[test]
fn a_drain_replaces_replicas_before_it_stops_them() {
    let mut t = Scenario::new();
    let first = t.worker().join();
    let id = apply(&mut t, &web(2));
    settle(&mut t);
    t.admit(first, Admission::Draining);
    assert_eq!(replicas(&t, id).len(), 3, "a replacement waits for a worker");
    assert_eq!(state(&t, id).counts.available, 2);
    let second = t.worker().join();
    for _ in 0..10 {
        assert!(state(&t, id).counts.available >= 2);
        settle(&mut t);
    }
    assert!(replicas(&t, id).iter().all(|(job, ..)| t.execution(*job).worker == second));
    assert_eq!(replicas(&t, id).len(), 2);
}

/// F3. A replica whose worker is lost is started elsewhere as soon as the lease has ended.
#[test]
fn a_lost_worker_is_replaced_within_its_lease() {
    let mut t = Scenario::new();
    let first = t.worker().join();
    let id = apply(&mut t, &web(1));
    settle(&mut t);
    t.worker().join();
    t.lose(first);
    settle(&mut t);
    let [(job, ..)] = replicas(&t, id)[..] else { panic!("one replica") };
    assert_ne!(t.execution(job).worker, first);
    assert_eq!(state(&t, id).counts.available, 1);
}

/// A replica that waits after the loss of its worker needs no replacement when the worker is drained.
#[test]
fn a_drain_of_a_lost_worker_replaces_nothing() {
    let mut t = Scenario::new();
    let worker = t.worker().join();
    let id = apply(&mut t, &web(1));
    settle(&mut t);
    let before = replicas(&t, id);
    t.lose(worker);
    assert_eq!(t.status(before[0].0), JobStatus::Waiting);
    t.admit(worker, Admission::Draining);
    assert_eq!(replicas(&t, id), before);
    t.worker().join();
    settle(&mut t);
    assert_eq!(replicas(&t, id), before);
    assert_eq!(state(&t, id).counts.available, 1);
}

/// A job that needs the capacity of a replica does not keep other jobs away from the worker: the replica does not end.
#[test]
fn no_worker_is_reserved_for_a_job_without_room_beside_replicas() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let mut spec = web(1);
    spec.priority_class = PriorityClass::Normal;
    spec.job.resources.cpu = Some(model::Millicores(100));
    let id = apply(&mut t, &spec);
    settle(&mut t);
    let job = t.job().cpu(1_000).class(PriorityClass::High).submit();
    t.pass(60);
    let other = t.job().cpu(100).submit();
    t.start(other);
    t.pass(1);
    t.succeed(other);
    assert!(!t.why(job).iter().any(|reason| matches!(reason, Reason::CapacityReserved { .. })));
    scale(&mut t, id, 2);
    settle(&mut t);
    assert_eq!(t.status(job), JobStatus::Waiting);
    assert_eq!(state(&t, id).counts.available, 2);
}

/// E3. Replicas are never preempted.
#[test]
fn a_job_of_a_higher_class_preempts_no_replica() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let mut spec = web(1);
    spec.priority_class = PriorityClass::Normal;
    spec.job.resources.cpu = Some(model::Millicores(1_000));
    let id = apply(&mut t, &spec);
    settle(&mut t);
    let [(job, ..)] = replicas(&t, id)[..] else { panic!("one replica") };
    t.job().cpu(500).class(PriorityClass::High).submit();
    t.pass(60);
    assert!(!t.is_being_stopped(job));
}

/// Two replicas with a fixed port never run on one worker.
#[test]
fn a_fixed_port_is_used_once_on_each_worker() {
    let mut t = Scenario::new();
    t.worker().join();
    let mut spec = web(2);
    spec.job.ports = vec![Port { name: "http".into(), port: Some(8_080) }];
    let id = apply(&mut t, &spec);
    settle(&mut t);
    let waiting: Vec<_> =
        replicas(&t, id).into_iter().filter(|(job, ..)| t.status(*job) == JobStatus::Waiting).collect();
    let [(job, ..)] = waiting[..] else { panic!("one replica waits: {waiting:?}") };
    let reasons = t.why(job);
    let [Reason::NoEligibleWorker { workers, .. }] = &reasons[..] else { panic!("{reasons:?}") };
    assert_eq!(known(workers[0].failed_filters.clone()), [FailedFilter::PortInUse { port: 8_080 }]);
    t.worker().join();
    settle(&mut t);
    assert_eq!(t.status(job), JobStatus::Running);
}

/// The replicas of the new revision are distributed among themselves: the older ones are stopped.
#[test]
fn an_update_ends_with_one_replica_on_each_worker() {
    let mut t = Scenario::new();
    let workers = [0; 5].map(|_| t.worker().join());
    let mut spec = web(5);
    let id = apply(&mut t, &spec);
    for version in 0..5 {
        let Run::Process(process) = &mut spec.job.run else { panic!("a process") };
        process.command = vec!["serve".into(), version.to_string()];
        apply(&mut t, &spec);
        settle(&mut t);
        let used: BTreeSet<_> =
            replicas(&t, id).into_iter().map(|(job, ..)| t.state(job).worker.unwrap()).collect();
        assert_eq!(used, BTreeSet::from(workers), "after update {version}");
    }
}

/// Three zones with two workers each: the loss of a zone costs one of three replicas.
#[test]
fn replicas_are_distributed_over_the_values_of_a_label() {
    let mut t = Scenario::new();
    let zones = ["a", "a", "b", "b", "c", "c"];
    let workers = zones.map(|zone| (t.worker().label("zone", zone).join(), zone));
    let mut spec = web(3);
    spec.job.spread = Some(Box::new(JobSpread { over: Some("zone".into()), max_per_worker: None }));
    let id = apply(&mut t, &spec);
    settle(&mut t);
    let zone_of = |t: &Scenario, job| {
        let worker = t.state(job).worker.unwrap();
        workers.iter().find(|(id, _)| *id == worker).unwrap().1
    };
    let used: BTreeSet<_> = replicas(&t, id).into_iter().map(|(job, ..)| zone_of(&t, job)).collect();
    assert_eq!(used.len(), 3);
    // An update replaces them zone by zone, and ends with the same distribution.
    let Run::Process(process) = &mut spec.job.run else { panic!("a process") };
    process.command = vec!["serve".into(), "2".into()];
    apply(&mut t, &spec);
    settle(&mut t);
    let used: BTreeSet<_> = replicas(&t, id).into_iter().map(|(job, ..)| zone_of(&t, job)).collect();
    assert_eq!(used.len(), 3, "after an update");
}

/// A worker of an earlier release runs no job with ports or health checks.
#[test]
fn a_worker_without_health_checks_gets_no_checked_job() {
    let mut t = Scenario::new();
    t.worker().without_limits().join();
    let id = apply(&mut t, &checked(web(1)));
    let [(job, ..)] = replicas(&t, id)[..] else { panic!("one replica") };
    assert_eq!(t.status(job), JobStatus::Waiting);
}

#[test]
fn a_deleted_service_stops_its_replicas_and_then_disappears() {
    let mut t = Scenario::new();
    t.worker().join();
    let id = apply(&mut t, &web(2));
    settle(&mut t);
    let jobs: Vec<JobId> = replicas(&t, id).into_iter().map(|(job, ..)| job).collect();
    ask(&mut t, ServiceRequest::Delete { service: id, expected_version: None }).unwrap();
    assert!(state(&t, id).deleting);
    let refusal = try_apply(&mut t, &web(1), Expected::Any).unwrap_err();
    assert!(matches!(refusal, Refusal::ServiceDeleting { .. }), "{refusal:?}");
    t.restart();
    t.rejoin_all();
    settle(&mut t);
    assert!(t.rows.services.is_empty());
    assert!(jobs.iter().all(|&job| t.status(job) == JobStatus::Cancelled));
    apply(&mut t, &web(1));
}

#[test]
fn scaling_down_stops_unavailable_replicas_first_and_then_the_newest() {
    let mut t = Scenario::new();
    t.worker().slots(3).join();
    let id = apply(&mut t, &web(4));
    settle(&mut t);
    let all = replicas(&t, id);
    scale(&mut t, id, 2);
    settle(&mut t);
    assert_eq!(replicas(&t, id), all[..2]);
    let history = t.state(all[2].0).history.last().unwrap().detail.clone();
    assert_eq!(history.as_deref(), Some("cancelled by service web: scaled to 2 replicas"));
    scale(&mut t, id, 0);
    settle(&mut t);
    assert_eq!(replicas(&t, id), []);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::Completed);
}

#[test]
fn a_restart_replaces_all_replicas_with_the_same_template() {
    let mut t = Scenario::new();
    t.worker().join();
    let id = apply(&mut t, &web(2));
    settle(&mut t);
    let before: BTreeSet<JobId> = replicas(&t, id).into_iter().map(|(job, ..)| job).collect();
    ask(&mut t, ServiceRequest::Restart { service: id }).unwrap();
    settle(&mut t);
    assert_eq!(revisions(&t, id), [2, 2]);
    assert!(replicas(&t, id).iter().all(|(job, ..)| !before.contains(job)));
}

/// The newest ten revisions are kept, and always the stable one.
#[test]
fn the_stable_revision_is_kept() {
    let mut t = Scenario::new();
    t.worker().join();
    let spec = checked(web(1));
    let id = apply(&mut t, &spec);
    settle(&mut t);
    let [(job, ..)] = replicas(&t, id)[..] else { panic!("one replica") };
    report_health(&mut t, job, HealthStatus::Healthy);
    for number in 0..15 {
        apply(&mut t, &changed(spec.clone(), &format!("broken {number}")));
        settle(&mut t);
    }
    let numbers: Vec<u64> = row(&t, id).0.revisions.iter().map(|revision| revision.number).collect();
    assert_eq!(numbers.len(), 10);
    assert_eq!((numbers[0], numbers[9]), (1, 16));
    ask(&mut t, ServiceRequest::Rollback { service: id, revision: None }).unwrap();
    settle(&mut t);
    assert_eq!(replicas(&t, id).into_iter().map(|(job, ..)| job).collect::<Vec<_>>(), [job]);
}

/// Health of an execution that is no longer current changes nothing.
#[test]
fn stale_health_is_ignored() {
    let mut t = Scenario::new();
    t.worker().join();
    let id = apply(&mut t, &checked(web(1)));
    settle(&mut t);
    let [(job, ..)] = replicas(&t, id)[..] else { panic!("one replica") };
    let old = t.execution(job).clone();
    t.end_with(job, finished(ExecutionEnd::Failed, Some(1)));
    t.pass(3);
    settle(&mut t);
    let session = t.players[&old.worker].session.unwrap();
    let current = t.execution(job).id;
    for (execution, fence) in [(old.id, old.fence), (current, old.fence)] {
        let report = HealthReport {
            execution,
            fence,
            status: HealthStatus::Healthy,
            detail: None,
            ports: BTreeMap::new(),
        };
        t.say(Input::Health { worker: old.worker, session, reports: vec![report] });
    }
    assert_eq!(state(&t, id).counts.available, 0);
    assert_eq!(t.execution(job).health, None);
}

/// A job that waits while the store has no space creates no replicas; they follow when there is space.
#[test]
fn a_full_store_delays_new_replicas() {
    let mut t = Scenario::new();
    t.worker().join();
    let id = apply(&mut t, &web(1));
    settle(&mut t);
    t.engine.hold_new_work(true);
    scale(&mut t, id, 3);
    assert_eq!(replicas(&t, id).len(), 1);
    t.engine.hold_new_work(false);
    t.flush();
    settle(&mut t);
    assert_eq!(replicas(&t, id).len(), 3);
}

#[test]
fn a_replica_cannot_be_changed_like_a_job() {
    let mut t = Scenario::new();
    let id = apply(&mut t, &web(1));
    let [(job, ..)] = replicas(&t, id)[..] else { panic!("one replica") };
    let head = t.job().head();
    let refusal = t
        .ask(|ticket| Input::Update { ticket, job, head, expected_version: None, actor: "alice".into() })
        .unwrap_err();
    assert!(matches!(refusal, Refusal::JobOfService { .. }), "{refusal:?}");
}

#[test]
fn a_version_that_changed_refuses_a_request() {
    let mut t = Scenario::new();
    let id = apply(&mut t, &web(1));
    scale(&mut t, id, 2);
    let refusal = try_apply(&mut t, &changed(web(1), "v2"), Expected::Version(1)).unwrap_err();
    assert_eq!(refusal, Refusal::VersionMismatch { expected: 1, found: 2 });
    let refusal = try_apply(&mut t, &web(1), Expected::Absent).unwrap_err();
    assert!(matches!(refusal, Refusal::ServiceExists { .. }));
}

/// All replicas of a service with a readiness check are healthy.
fn healthy_service(t: &mut Scenario, spec: &ServiceSpec) -> ServiceId {
    let id = apply(t, spec);
    settle(t);
    for (job, ..) in replicas(t, id) {
        report_health(t, job, HealthStatus::Healthy);
    }
    settle(t);
    id
}

/// A longer `min_healthy` in the same change makes no replica unavailable to the update.
#[test]
fn a_longer_required_time_stops_no_healthy_replica() {
    let mut t = Scenario::new();
    t.worker().join();
    let spec = checked(web(3));
    let id = healthy_service(&mut t, &spec);
    t.pass(5);
    let mut slower = changed(spec, "v2");
    slower.min_healthy = Duration::from_secs(300);
    apply(&mut t, &slower);
    settle(&mut t);
    assert_eq!(revisions(&t, id), [1, 1, 1, 2]);
}

/// A rollback without a number returns to a revision that worked, never to a failed one.
#[test]
fn a_rollback_returns_to_a_revision_that_was_complete() {
    let mut t = Scenario::new();
    t.worker().join();
    let spec = checked(web(1));
    let id = healthy_service(&mut t, &spec);
    let refusal = ask(&mut t, ServiceRequest::Rollback { service: id, revision: None }).unwrap_err();
    assert!(refusal.to_string().contains("no earlier revision was rolled out completely"), "{refusal}");
    apply(&mut t, &changed(spec.clone(), "broken"));
    t.pass(601);
    settle(&mut t);
    assert_eq!(state(&t, id).rollout.revision, 3, "rolled back");
    let refusal = ask(&mut t, ServiceRequest::Rollback { service: id, revision: None }).unwrap_err();
    assert!(matches!(refusal, Refusal::RevisionUnavailable { .. }), "{refusal:?}");
    let version = state(&t, id).version;
    apply(&mut t, &changed(spec.clone(), "v4"));
    settle(&mut t);
    for (job, revision, _) in replicas(&t, id) {
        if revision == 4 {
            report_health(&mut t, job, HealthStatus::Healthy);
        }
    }
    settle(&mut t);
    assert_eq!(state(&t, id).stable_revision, Some(4));
    ask(&mut t, ServiceRequest::Rollback { service: id, revision: None }).unwrap();
    assert_eq!(row(&t, id).0.spec.job.run, spec.job.run);
    assert!(state(&t, id).version > version);
}

/// A client that read the spec before an automatic rollback cannot overwrite it by mistake.
#[test]
fn an_automatic_rollback_is_a_new_version() {
    let mut t = Scenario::new();
    t.worker().join();
    let spec = checked(web(1));
    let id = healthy_service(&mut t, &spec);
    apply(&mut t, &changed(spec, "broken"));
    let version = state(&t, id).version;
    t.pass(601);
    assert_eq!(state(&t, id).rollout.revision, 3);
    assert!(state(&t, id).version > version);
}

/// An outage of the servers does not count towards the progress deadline.
#[test]
fn an_outage_fails_no_rollout() {
    let mut t = Scenario::new();
    t.worker().join();
    let spec = checked(web(1));
    let id = healthy_service(&mut t, &spec);
    apply(&mut t, &changed(spec, "v2"));
    settle(&mut t);
    t.outage(Duration::from_secs(3_600));
    t.rejoin_all();
    settle(&mut t);
    assert_eq!(state(&t, id).rollout.status, RolloutStatus::Progressing);
    assert_eq!(state(&t, id).rollout.revision, 2);
}

/// After a takeover, nothing is stopped before the workers have reconnected: their health may be outdated.
#[test]
fn outdated_health_stops_no_replica() {
    let mut t = Scenario::new();
    t.worker().slots(1).join();
    let second = t.worker().slots(1).join();
    let mut spec = checked(web(1));
    spec.min_healthy = Duration::from_secs(5);
    let id = healthy_service(&mut t, &spec);
    t.pass(6);
    apply(&mut t, &changed(spec, "v2"));
    settle(&mut t);
    let new = replicas(&t, id).into_iter().find(|(_, revision, _)| *revision == 2).unwrap().0;
    report_health(&mut t, new, HealthStatus::Healthy);
    let with_new = t.execution(new).worker;
    t.outage(Duration::from_secs(20));
    let others: Vec<_> = t.players.keys().copied().filter(|worker| *worker != with_new).collect();
    others.into_iter().for_each(|worker| t.rejoin(worker));
    assert_eq!(revisions(&t, id), [1, 2], "the old replica stays until the other worker is heard");
    t.rejoin(with_new);
    settle(&mut t);
    assert_eq!(revisions(&t, id), [2]);
    let _ = second;
}

/// A revision whose replicas become available again and again, and crash, has no progress.
#[test]
fn a_flapping_revision_fails() {
    let mut t = Scenario::new();
    t.worker().join();
    let spec = checked(web(2));
    let id = healthy_service(&mut t, &spec);
    apply(&mut t, &changed(spec, "flapping"));
    settle(&mut t);
    let flaps = replicas(&t, id).into_iter().find(|(_, revision, _)| *revision == 2).unwrap().0;
    for _ in 0..70 {
        if state(&t, id).rollout.revision != 2 {
            break;
        }
        let status = match state(&t, id).counts.updated_available {
            0 => HealthStatus::Healthy,
            _ => HealthStatus::Unhealthy,
        };
        if t.status(flaps) == JobStatus::Running {
            report_health(&mut t, flaps, status);
        }
        t.pass(10);
    }
    assert_eq!(state(&t, id).rollout.revision, 3, "rolled back");
}

/// A pause holds every rollout, also one before the first complete revision.
#[test]
fn the_first_rollout_can_be_paused() {
    let mut t = Scenario::new();
    t.worker().join();
    let spec = checked(web(2));
    let id = apply(&mut t, &spec);
    settle(&mut t);
    let before = replicas(&t, id);
    report_health(&mut t, before[0].0, HealthStatus::Healthy);
    apply(&mut t, &changed(spec, "v2"));
    ask(&mut t, ServiceRequest::PauseRollout { service: id }).unwrap();
    settle(&mut t);
    t.pass(2_000);
    settle(&mut t);
    assert!(revisions(&t, id).contains(&1), "{:?}", revisions(&t, id));
    assert_eq!(state(&t, id).rollout.revision, 2);
}

/// A thousand replicas are created in several commits.
#[test]
fn many_replicas_are_created_in_several_batches() {
    let mut t = Scenario::new();
    let named = |number: u32| {
        let mut spec = web(800);
        spec.name = format!("web-{number}");
        let body: Arc<str> = serde_json::to_string(&spec).unwrap().into();
        NewService { spec: Arc::new(spec), body, expected: Expected::Any }
    };
    let before = t.flushes;
    ask(&mut t, ServiceRequest::Apply { services: (0..3).map(named).collect() }).unwrap();
    assert_eq!(t.rows.jobs.len(), 2_400);
    assert!(t.flushes - before >= 3, "{}", t.flushes - before);
}
