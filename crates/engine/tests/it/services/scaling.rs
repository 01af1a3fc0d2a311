//! Services that are scaled automatically.

use engine::input::{MetricReading, ServiceRequest};
use model::service::{
    CpuMetric, MemoryMetric, QueryMetric, QueueMetric, Scaling, ScalingCause, ScalingMetric, ScalingSchedule,
};
use model::{Bytes, Duration, JobId, Millicores, Refusal, ServiceId};

use super::*;

/// A service with these limits, and without metrics and schedules.
fn scaled(min: u32, max: u32) -> Scaling {
    let (schedules, metrics) = (Vec::new(), Vec::new());
    Scaling { min, max, schedules, metrics, up_window: Duration::ZERO, down_window: Duration::from_secs(300) }
}

fn web_with(scaling: Scaling) -> ServiceSpec {
    ServiceSpec { replicas: None, scaling: Some(Box::new(scaling)), ..web(1) }
}

fn query() -> QueryMetric {
    QueryMetric { url: "http://prometheus:9090".into(), query: "sum(load)".into(), per_replica: 100.0 }
}

fn queue_metric(jobs_per_replica: u32) -> ScalingMetric {
    ScalingMetric::Queue(QueueMetric { name: "work".into(), jobs_per_replica })
}

fn state(t: &Scenario, id: ServiceId) -> &ServiceState {
    &t.rows.services[&id].1
}

fn desired(t: &Scenario, id: ServiceId) -> u32 {
    state(t, id).replicas
}

/// The server reads the metric every 15 seconds, for `seconds`.
fn read(t: &mut Scenario, id: ServiceId, value: Result<f64, &str>, seconds: u64) {
    for _ in 0..seconds.div_ceil(15) {
        let reading = MetricReading {
            service: id,
            metric: ScalingMetric::Query(query()),
            value: value.map_err(Into::into),
        };
        t.say(Input::Metrics { readings: vec![reading] });
        settle(t);
        t.pass(15);
    }
}

/// Jobs that wait, because their queue is paused.
fn fill_queue(t: &mut Scenario, jobs: usize) -> Vec<JobId> {
    t.queue("work", model::queue::QueueSettings { paused: true, ..Default::default() });
    (0..jobs).map(|_| t.job().queue("work").submit()).collect()
}

#[test]
fn the_minimum_follows_the_schedule_with_the_latest_time() {
    let mut t = Scenario::new();
    t.worker().cpu(10_000).slots(100).join();
    let begin = t.now.as_micros() / 60_000_000 * 60;
    let in_minutes = |minutes: i64, min| {
        let at = begin + minutes * 60;
        let cron = format!("{} {} * * *", at / 60 % 60, at / 3_600 % 24);
        ScalingSchedule { cron, zone: "UTC".into(), min }
    };
    let schedules = vec![in_minutes(2, 10), in_minutes(32, 2)];
    let id = apply(&mut t, &web_with(Scaling { schedules, ..scaled(1, 20) }));
    settle(&mut t);
    assert_eq!(desired(&t, id), 2, "the latest time is that of the day before");
    t.pass(121);
    settle(&mut t);
    assert_eq!((desired(&t, id), replicas(&t, id).len()), (10, 10));
    t.restart();
    t.rejoin_all();
    t.pass(1_700);
    assert_eq!(desired(&t, id), 10);
    t.pass(180);
    settle(&mut t);
    assert_eq!((desired(&t, id), replicas(&t, id).len()), (2, 2), "without metrics, no window applies");
    let change = state(&t, id).scaled.clone().unwrap();
    assert_eq!((change.from, change.to, change.cause), (10, 2, ScalingCause::Minimum));
}

#[test]
fn the_waiting_jobs_of_a_queue_determine_the_replicas_down_to_zero() {
    let mut t = Scenario::new();
    t.worker().cpu(10_000).slots(100).join();
    let spec = web_with(Scaling { metrics: vec![queue_metric(10)], ..scaled(0, 5) });
    let id = apply(&mut t, &spec);
    settle(&mut t);
    assert_eq!(desired(&t, id), 0);
    let jobs = fill_queue(&mut t, 25);
    t.pass(15);
    settle(&mut t);
    assert_eq!((desired(&t, id), replicas(&t, id).len()), (3, 3), "25 jobs, ten for each replica");
    let change = state(&t, id).scaled.clone().unwrap();
    assert_eq!((change.cause, change.value), (ScalingCause::Queue, Some(25.0)));
    let more = fill_queue(&mut t, 100);
    t.pass(15);
    assert_eq!(desired(&t, id), 5, "the maximum");
    assert_eq!(state(&t, id).scaled.as_ref().unwrap().cause, ScalingCause::Maximum);
    for job in jobs.into_iter().chain(more) {
        t.cancel(job).unwrap();
    }
    t.pass(240);
    assert_eq!(desired(&t, id), 5, "the window of five minutes");
    t.pass(90);
    settle(&mut t);
    assert_eq!((desired(&t, id), replicas(&t, id).len()), (0, 0));
}

/// Replicas that wait in the queue which scales them would ask for more and more replicas.
#[test]
fn replicas_that_wait_in_the_queue_do_not_count() {
    let mut t = Scenario::new();
    t.queue("work", model::queue::QueueSettings { paused: true, ..Default::default() });
    let mut spec = web_with(Scaling { metrics: vec![queue_metric(1)], ..scaled(1, 10) });
    spec.job.queue = "work".into();
    let id = apply(&mut t, &spec);
    t.pass(120);
    assert_eq!(desired(&t, id), 1);
    t.job().queue("work").submit();
    t.job().queue("work").submit();
    t.pass(15);
    assert_eq!(desired(&t, id), 2);
}

#[test]
fn a_query_determines_the_replicas_and_small_deviations_change_nothing() {
    let mut t = Scenario::new();
    t.worker().cpu(10_000).slots(100).join();
    let metrics = vec![ScalingMetric::Query(query())];
    let id = apply(&mut t, &web_with(Scaling { metrics, ..scaled(2, 10) }));
    settle(&mut t);
    assert_eq!(desired(&t, id), 2, "no value yet");
    read(&mut t, id, Ok(730.0), 15);
    assert_eq!(desired(&t, id), 8);
    read(&mut t, id, Ok(860.0), 600);
    assert_eq!(desired(&t, id), 8, "within ten percent");
    read(&mut t, id, Ok(100.0), 270);
    assert_eq!(desired(&t, id), 8, "the window");
    read(&mut t, id, Ok(100.0), 90);
    assert_eq!(desired(&t, id), 2, "the minimum");
}

#[test]
fn cpu_and_memory_determine_the_replicas() {
    let mut t = Scenario::new();
    t.worker().cpu(10_000).slots(100).join();
    let cpu = ScalingMetric::Cpu(CpuMetric { per_replica: Millicores(500) });
    let memory = ScalingMetric::Memory(MemoryMetric { per_replica: Bytes(1 << 30) });
    let metrics = vec![cpu.clone(), memory.clone()];
    let id = apply(&mut t, &web_with(Scaling { metrics, ..scaled(1, 10) }));
    settle(&mut t);
    let say = |t: &mut Scenario, metric: &ScalingMetric, value| {
        let reading = MetricReading { service: id, metric: metric.clone(), value: Ok(value) };
        t.say(Input::Metrics { readings: vec![reading] });
        settle(t);
    };
    say(&mut t, &cpu, 2.2);
    assert_eq!(desired(&t, id), 5, "2.2 cores, half a core for each replica");
    assert_eq!(
        state(&t, id).scaled.as_ref().map(|it| (it.cause, it.value)),
        Some((ScalingCause::Cpu, Some(2.2)))
    );
    say(&mut t, &memory, 7.5 * f64::from(1 << 30));
    assert_eq!(desired(&t, id), 8, "the metric that needs most");
    assert_eq!(state(&t, id).scaled.as_ref().unwrap().cause, ScalingCause::Memory);
}

#[test]
fn an_idle_service_is_scaled_to_zero_although_its_replica_uses_memory() {
    let mut t = Scenario::new();
    t.worker().cpu(10_000).slots(100).join();
    let memory = ScalingMetric::Memory(MemoryMetric { per_replica: Bytes(1 << 30) });
    let metrics = vec![ScalingMetric::Query(query()), memory.clone()];
    let id = apply(&mut t, &web_with(Scaling { metrics, ..scaled(0, 10) }));
    let seconds = |t: &mut Scenario, load, used: u64, rounds| {
        for _ in 0..rounds {
            let reading = MetricReading { service: id, metric: memory.clone(), value: Ok(used as f64) };
            t.say(Input::Metrics { readings: vec![reading] });
            read(t, id, Ok(load), 15);
        }
    };
    seconds(&mut t, 50.0, 3 << 30, 2);
    assert_eq!(desired(&t, id), 3);
    seconds(&mut t, 0.0, 1 << 20, 30);
    assert_eq!(desired(&t, id), 0, "the query asks for none");
    seconds(&mut t, 150.0, 0, 2);
    assert_eq!(desired(&t, id), 2);
}

#[test]
fn a_query_without_a_value_reduces_nothing_and_says_why() {
    let mut t = Scenario::new();
    t.worker().cpu(10_000).slots(100).join();
    let metrics = vec![ScalingMetric::Query(query()), queue_metric(1)];
    let id = apply(&mut t, &web_with(Scaling { metrics, ..scaled(1, 10) }));
    read(&mut t, id, Ok(500.0), 30);
    assert_eq!(desired(&t, id), 5);
    read(&mut t, id, Err("Prometheus does not answer"), 1_200);
    assert_eq!(desired(&t, id), 5);
    let problem = "`scaling.metrics[0]`: Prometheus does not answer";
    assert_eq!(state(&t, id).scaling_problem.as_deref(), Some(problem));
    // Another metric may still ask for more.
    fill_queue(&mut t, 7);
    t.pass(15);
    assert_eq!(desired(&t, id), 7);
    t.restart();
    t.rejoin_all();
    t.pass(120);
    assert_eq!(desired(&t, id), 7, "a new leader has no value yet");
    read(&mut t, id, Ok(900.0), 30);
    assert_eq!((desired(&t, id), state(&t, id).scaling_problem.as_deref()), (9, None));
}

#[test]
fn an_automatically_scaled_service_cannot_be_scaled_by_hand() {
    let mut t = Scenario::new();
    t.worker().join();
    let mut spec = web_with(Scaling { metrics: vec![queue_metric(1)], ..scaled(1, 3) });
    let id = apply(&mut t, &spec);
    let scale = |replicas| ServiceRequest::Scale { service: id, replicas, expected_version: None };
    let refused = ask(&mut t, scale(2));
    assert!(matches!(refused, Err(Refusal::ServiceAutoscaled { .. })), "{refused:?}");
    spec.scaling.as_mut().unwrap().min = 2;
    apply(&mut t, &spec);
    settle(&mut t);
    assert_eq!(desired(&t, id), 2, "new limits apply at once");
    spec.scaling = None;
    apply(&mut t, &spec);
    settle(&mut t);
    assert_eq!(desired(&t, id), 2, "without scaling, the number stays");
    ask(&mut t, scale(1)).unwrap();
    assert_eq!(desired(&t, id), 1);
}

/// Otherwise the engine would decide again and again, without a pause, until the replicas have stopped.
#[test]
fn a_service_that_is_being_deleted_is_not_scaled_any_more() {
    let mut t = Scenario::new();
    t.worker().join();
    let id = apply(&mut t, &web_with(Scaling { metrics: vec![queue_metric(1)], ..scaled(1, 3) }));
    settle(&mut t);
    t.pass(7);
    ask(&mut t, ServiceRequest::Delete { service: id, expected_version: None }).unwrap();
    for _ in 0..20 {
        t.pass(1);
        let wakeup = t.engine.wakeup().unwrap();
        assert!(wakeup > t.now, "{wakeup:?} is not after {:?}", t.now);
    }
}

/// Otherwise the workers and the scaling would set the number of replicas in turn.
#[test]
fn a_rollback_to_one_replica_on_each_worker_ends_automatic_scaling() {
    let mut t = Scenario::new();
    for _ in 0..3 {
        t.worker().join();
    }
    let id = apply(&mut t, &ServiceSpec { replicas: None, per_worker: true, ..web(1) });
    settle(&mut t);
    apply(&mut t, &web_with(Scaling { metrics: vec![queue_metric(1)], ..scaled(1, 2) }));
    settle(&mut t);
    ask(&mut t, ServiceRequest::Rollback { service: id, revision: Some(1) }).unwrap();
    for _ in 0..4 {
        t.pass(15);
        settle(&mut t);
        assert_eq!(desired(&t, id), 3);
    }
    assert_eq!(state(&t, id).scaled, None);
}
