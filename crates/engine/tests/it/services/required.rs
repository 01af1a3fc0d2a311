//! Jobs that require services.

use model::spec::{HealthStatus, JobSpec, PriorityClass, RequiredService};
use model::why::{Reason, UnavailableService};
use model::{Duration, JobStatus};

use super::{apply, ask, checked, healthy_service, replicas, report_health, scale, settle, web};
use crate::scenario::Scenario;
use engine::input::ServiceRequest;

fn requires(service: &str, min_available: u32) -> impl Fn(&mut JobSpec) {
    let required = RequiredService { service: service.into(), min_available };
    move |spec| spec.requires = vec![required.clone()]
}

#[test]
fn a_job_waits_until_its_service_is_available() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().spec(requires("web", 1)).submit();
    let unavailable = |available| {
        let service = UnavailableService { service: "web".into(), available, min_available: 1 };
        vec![Reason::RequiredServices { services: vec![service] }]
    };
    assert_eq!(t.why(job), unavailable(None), "the service does not exist");

    let service = apply(&mut t, &checked(web(1)));
    settle(&mut t);
    assert_eq!(t.why(job), unavailable(Some(0)), "the service is not healthy");
    let other = t.job().spec(requires("other", 1)).submit();

    let replica = replicas(&t, service)[0].0;
    report_health(&mut t, replica, HealthStatus::Healthy);
    assert_eq!(t.status(job), JobStatus::Running);
    assert_eq!(t.status(other), JobStatus::Waiting);
}

#[test]
fn a_running_job_continues_without_its_service_and_a_retry_waits() {
    let mut t = Scenario::new();
    t.worker().join();
    let service = healthy_service(&mut t, &web(1));
    let job = t.job().spec(requires("web", 1)).retries(1).submit();
    t.start(job);
    scale(&mut t, service, 0);
    settle(&mut t);
    assert_eq!(t.status(job), JobStatus::Running);
    t.fail(job, 1);
    t.pass(10);
    assert_eq!(t.status(job), JobStatus::Waiting);
    scale(&mut t, service, 1);
    settle(&mut t);
    assert_eq!(t.status(job), JobStatus::Running);
}

#[test]
fn a_service_of_another_namespace_does_not_count() {
    let mut t = Scenario::new();
    t.worker().join();
    healthy_service(&mut t, &web(1));
    let here = t.job().spec(requires("web", 1)).submit();
    let elsewhere = t.job().spec(requires("web", 1)).namespace("tenant").submit();
    assert_eq!([here, elsewhere].map(|job| t.status(job)), [JobStatus::Running, JobStatus::Waiting]);
}

/// Such a job only looks up the endpoints of the service.
#[test]
fn a_job_that_requires_no_replica_does_not_wait() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().spec(requires("web", 0)).submit();
    assert_eq!(t.status(job), JobStatus::Running);
}

#[test]
fn as_many_replicas_as_required_must_be_available() {
    let mut t = Scenario::new();
    t.worker().join();
    let service = healthy_service(&mut t, &web(2));
    let job = t.job().spec(requires("web", 3)).submit();
    assert_eq!(t.status(job), JobStatus::Waiting);
    scale(&mut t, service, 3);
    settle(&mut t);
    assert_eq!(t.status(job), JobStatus::Running);
}

/// Otherwise the work of its victims would be lost, and the job would still wait.
#[test]
fn a_job_that_waits_for_a_service_preempts_nothing_and_blocks_nothing() {
    let mut t = Scenario::new();
    t.worker().cpu(200).join();
    let low = t.job().cpu(200).class(PriorityClass::Preemptible).submit();
    t.start(low);
    let waiting = t.job().cpu(200).spec(requires("web", 1)).class(PriorityClass::High).submit();
    t.pass(120);
    assert_eq!(t.status(low), JobStatus::Running);
    assert!(t.execution(low).preempted_by.is_none());
    t.succeed(low);
    let next = t.job().cpu(200).submit();
    assert_eq!([waiting, next].map(|job| t.status(job)), [JobStatus::Waiting, JobStatus::Running]);
}

/// The service becomes unavailable while the victim stops.
#[test]
fn a_job_that_preempts_does_not_start_without_its_service() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let mut spec = web(1);
    spec.job.resources.cpu = Some(model::Millicores(100));
    let service = healthy_service(&mut t, &spec);
    let low = t.job().cpu(900).class(PriorityClass::Preemptible).submit();
    t.start(low);
    let high = t.job().cpu(900).spec(requires("web", 1)).class(PriorityClass::High).submit();
    assert_eq!(t.execution(low).preempted_by, Some(high));
    scale(&mut t, service, 0);
    let replica = t.rows.jobs.iter().find(|(_, (head, _))| head.replica.is_some()).map(|(id, _)| *id);
    t.stop(replica.unwrap());
    t.stop(low);
    assert_ne!(t.status(high), JobStatus::Running);
    assert_eq!(t.status(low), JobStatus::Running, "the capacity is not kept for it meanwhile");
    scale(&mut t, service, 1);
    settle(&mut t);
    assert_eq!(t.execution(low).preempted_by, Some(high));
    t.stop(low);
    assert_eq!(t.status(high), JobStatus::Running);
}

/// The reservation is made all the same, and the run uses it when the service is available.
#[test]
fn a_firing_with_reserved_capacity_waits_for_its_service() {
    let mut t = Scenario::new();
    t.worker().join();
    let schedule = t
        .schedule("payroll")
        .cron("0 * * * *")
        .spec(|spec| {
            spec.reserve_ahead = Some(Duration::from_secs(600));
            requires("web", 1)(spec.job_mut().unwrap());
        })
        .apply();
    t.pass(3_600);
    assert_eq!(t.run_status(schedule), [JobStatus::Waiting]);
    healthy_service(&mut t, &web(1));
    assert_eq!(t.run_status(schedule), [JobStatus::Running]);
}

/// A job that waits for a service is no reason to make the jobs behind it wait.
#[test]
fn a_large_job_gets_a_reservation_behind_jobs_that_wait_for_a_service() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let small: Vec<_> = (0..10).map(|_| t.job().cpu(100).submit()).collect();
    small.iter().for_each(|&job| {
        t.start(job);
    });
    let waiting = t.job().cpu(100).spec(requires("web", 1)).submit();
    let large = t.job().cpu(1_000).submit();
    t.pass(40);
    t.succeed(small[0]);
    let later = t.job().cpu(100).submit();
    assert_eq!([waiting, large, later].map(|job| t.status(job)), [JobStatus::Waiting; 3]);
    small[1..].iter().for_each(|&job| t.succeed(job));
    assert_eq!(t.status(large), JobStatus::Running);
}

#[test]
fn a_deleted_service_is_not_available() {
    let mut t = Scenario::new();
    t.worker().join();
    let service = healthy_service(&mut t, &web(1));
    ask(&mut t, ServiceRequest::Delete { service, expected_version: None }).unwrap();
    let job = t.job().spec(requires("web", 1)).submit();
    assert_eq!(t.status(job), JobStatus::Waiting);
    settle(&mut t);
    assert!(!t.rows.services.contains_key(&service));
    healthy_service(&mut t, &web(1));
    assert_eq!(t.status(job), JobStatus::Running);
}

#[test]
fn a_service_can_require_another_one() {
    let mut t = Scenario::new();
    t.worker().join();
    let mut back = web(1);
    (back.name, back.job.name) = ("back".into(), "back".into());
    let mut front = web(1);
    requires("back", 1)(&mut front.job);
    let front = apply(&mut t, &front);
    settle(&mut t);
    let replica = replicas(&t, front)[0].0;
    assert_eq!(t.status(replica), JobStatus::Waiting);
    healthy_service(&mut t, &back);
    settle(&mut t);
    assert_eq!(t.status(replica), JobStatus::Running);
}

#[test]
fn a_takeover_changes_nothing() {
    let mut t = Scenario::new();
    t.worker().join();
    healthy_service(&mut t, &web(1));
    let waiting = t.job().spec(requires("other", 1)).submit();
    t.restart();
    let job = t.job().spec(requires("web", 1)).submit();
    t.rejoin_all();
    assert_eq!([waiting, job].map(|job| t.status(job)), [JobStatus::Waiting, JobStatus::Running]);
}
