//! Services: their replicas use capacity, and jobs can require them.

use forecast::{Cause, Plan, Service};
use model::service::{QueueMetric, Scaling, ScalingMetric, ServiceSpec};
use model::spec::{JobSpec, Port, RequiredService};
use model::{Duration, Millicores};

use crate::scenario::{Build as _, hours, minutes, schedule};

/// A service whose replicas have a port, and request one CPU core.
fn service(name: &str, replicas: u32) -> Service {
    let mut job = JobSpec::command(["serve"]);
    job.resources.cpu = Some(Millicores(1_000));
    job.ports = vec![Port { name: "http".into(), port: None }];
    let spec = serde_json::json!({"name": name, "job": job, "replicas": replicas});
    Service::from(serde_json::from_value::<ServiceSpec>(spec).unwrap())
}

fn requiring(plan: Plan, name: &str, service: &str) -> Plan {
    let mut spec = schedule(name, "0 2 * * *");
    let required = RequiredService { service: service.into(), min_available: 1 };
    spec.job_mut().unwrap().requires = vec![required];
    plan.with(spec, minutes(10))
}

#[test]
fn replicas_use_capacity_over_the_whole_range() {
    let mut plan = hours(6).worker("w1", 4).with(schedule("a", "0 2 * * *"), minutes(60));
    plan.services.push(service("web", 3));
    let answer = plan.answer();
    // Three of four cores all the time, and the fourth for an hour.
    assert_eq!((answer.workers[0].average.cpu, answer.workers[0].most.cpu), (0.7917, 1.0));
    assert_eq!((answer.summary.late, answer.summary.waiting_at_end, answer.overloads.len()), (0, 0, 0));
    assert_eq!(answer.summary.running_at_end, 0);
    assert_eq!(answer.notes, []);
}

#[test]
fn a_run_waits_for_the_capacity_that_replicas_use() {
    let mut plan = hours(6).worker("w1", 2).with(schedule("a", "0 2 * * *"), minutes(10));
    plan.services.push(service("web", 2));
    let answer = plan.answer();
    assert_eq!((answer.summary.late, answer.summary.waiting_at_end), (1, 1));
    assert_eq!(answer.overloads[0].why[0].cause, Cause::Cpu);
}

#[test]
fn a_replica_without_room_is_an_overload() {
    let mut plan = hours(1).worker("w1", 2);
    plan.services.push(service("web", 3));
    let answer = plan.answer();
    let [window] = answer.overloads.as_slice() else { panic!("{:?}", answer.overloads) };
    assert_eq!((window.longest.name.as_str(), window.goes_on), ("web", true));
}

#[test]
fn a_run_that_requires_a_service_starts_on_time_if_the_service_is_available() {
    let mut plan = requiring(hours(6).worker("w1", 4), "a", "web");
    plan.services.push(service("web", 1));
    assert_eq!((plan.answer().summary.succeeded, plan.answer().summary.late), (1, 0));
}

#[test]
fn a_run_that_requires_a_missing_service_waits_with_its_reason() {
    let answer = requiring(hours(6).worker("w1", 4), "a", "web").answer();
    assert_eq!((answer.summary.started, answer.summary.waiting_at_end), (0, 1));
    assert_eq!(answer.overloads[0].why[0].cause, Cause::Service("web".into()));
    assert_eq!(answer.overloads[0].why[0].cause.to_string(), "service web not available");
}

/// The number of replicas follows the waiting jobs, as on a server.
#[test]
fn a_service_that_a_queue_scales_grows_and_shrinks() {
    let mut plan = hours(3).worker("w1", 8);
    let mut scaled = service("web", 0);
    scaled.spec.replicas = None;
    let queue = QueueMetric { name: "narrow".into(), jobs_per_replica: 1 };
    scaled.spec.scaling = Some(Box::new(Scaling {
        min: 0,
        max: 4,
        schedules: Vec::new(),
        metrics: vec![ScalingMetric::Queue(queue)],
        up_window: Duration::ZERO,
        down_window: Duration::ZERO,
    }));
    plan.services.push(scaled);
    plan.queues
        .insert("narrow".into(), model::queue::QueueSettings { concurrency: Some(1), ..Default::default() });
    for name in ["a", "b", "c"] {
        let mut spec = schedule(name, "0 1 * * *");
        spec.job_mut().unwrap().queue = "narrow".into();
        plan = plan.with(spec, minutes(10));
    }
    let answer = plan.answer();
    // Three jobs, one after the other, and a replica for each one that waits.
    assert_eq!((answer.summary.succeeded, answer.summary.executions), (3, 3));
    let worker = &answer.workers[0];
    assert_eq!(worker.most.cpu, 0.5);
    assert!(worker.average.cpu < 0.2, "{:?}", worker.average);
}
