//! Validation of services.

use super::workflow::{NOT_REPLACED, texts_with_references};
use super::{Check, Invalid};
use crate::limits;
use crate::service::{QueryMetric, Scaling, ScalingMetric, ServiceSpec, UpdatePolicy};
use crate::spec::{Delivery, JobSpec, PriorityClass, RequiredService, RetryPolicy, Run};
use crate::time::{Duration, Timestamp};

/// Checks a service spec beyond its types, including its job; paths of the job start with `job.`.
///
/// # Errors
/// Returns [`Invalid`] with all problems, in the order of the fields.
pub fn service(spec: &ServiceSpec, now: Timestamp) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.own_name(&spec.name);
    check.name("namespace", &spec.namespace);
    check.owner(spec.owner.as_deref());
    check.labels("labels", &spec.labels);
    check.note("description", spec.description.as_deref());
    if let Some(replicas) = spec.replicas {
        replica_count(&mut check, "replicas", replicas);
        check.ensure(!spec.per_worker, "replicas", || {
            "cannot be combined with `per_worker`: the service has one replica on each matching worker".into()
        });
    }
    if let Some(scaling_spec) = &spec.scaling {
        scaling(&mut check, scaling_spec);
        check.ensure(spec.replicas.is_none(), "replicas", || {
            "cannot be combined with `scaling`, which sets the number of replicas".into()
        });
        check.ensure(!spec.per_worker, "scaling", || {
            "cannot be combined with `per_worker`: the service has one replica on each matching worker".into()
        });
    }
    check.ensure(!spec.per_worker || spec.job.spread.is_none(), "job.spread", || {
        "cannot be combined with `per_worker`: the service has one replica on each matching worker".into()
    });
    check.ensure(!spec.per_worker || spec.update.canaries == 0, "update.canaries", || {
        "cannot be combined with `per_worker`: no worker has room for a second replica".into()
    });
    check.ensure(spec.priority_class != PriorityClass::Preemptible, "priority_class", || {
        "must be `normal` or `high`: replicas are never preempted".into()
    });
    job_of(&mut check, spec, &spec.job, now);
    check.backoff("restart_backoff", &spec.restart_backoff);
    check.at_most("min_healthy", spec.min_healthy, limits::MIN_HEALTHY_MAX);
    update(&mut check, &spec.update);
    check.finish()
}

/// Checks a number of replicas in a request.
///
/// # Errors
/// Returns [`Invalid`] with the path `replicas`.
pub fn replicas(replicas: u32) -> Result<(), Invalid> {
    let mut check = Check::default();
    replica_count(&mut check, "replicas", replicas);
    check.finish()
}

fn replica_count(check: &mut Check, at: &str, count: u32) {
    let max = limits::REPLICAS_MAX;
    check.ensure(count <= max, at, || format!("`{count}` is out of range: expected 0 to {max}"));
}

/// Checks everything except cron expressions and time zones, which need the data of time zones.
fn scaling(check: &mut Check, scaling: &Scaling) {
    replica_count(check, "scaling.min", scaling.min);
    replica_count(check, "scaling.max", scaling.max);
    check.ensure(scaling.max >= scaling.min.max(1), "scaling.max", || {
        format!("`{}` is out of range: expected at least {}", scaling.max, scaling.min.max(1))
    });
    let too_many = |count, max| format!("has {count} entries: expected at most {max}");
    let (count, max) = (scaling.schedules.len(), limits::SCALING_SCHEDULES_MAX);
    check.ensure(count <= max, "scaling.schedules", || too_many(count, max));
    for (i, schedule) in scaling.schedules.iter().enumerate() {
        check.ensure(schedule.min <= scaling.max, &format!("scaling.schedules[{i}].min"), || {
            format!("`{}` is out of range: expected at most `max` ({})", schedule.min, scaling.max)
        });
    }
    let (count, max) = (scaling.metrics.len(), limits::SCALING_METRICS_MAX);
    check.ensure(count <= max, "scaling.metrics", || too_many(count, max));
    check.ensure(!scaling.metrics.is_empty() || !scaling.schedules.is_empty(), "scaling", || {
        "has neither `metrics` nor `schedules`: set `replicas` instead".into()
    });
    for (i, metric) in scaling.metrics.iter().enumerate() {
        let at = format!("scaling.metrics[{i}]");
        match metric {
            ScalingMetric::Queue(queue) => {
                check.name(&format!("{at}.queue.name"), &queue.name);
                positive(check, &format!("{at}.queue.jobs_per_replica"), queue.jobs_per_replica > 0);
            }
            ScalingMetric::Query(query) => query_metric(check, &format!("{at}.query"), query),
            ScalingMetric::Cpu(cpu) => {
                positive(check, &format!("{at}.cpu.per_replica"), cpu.per_replica.0 > 0)
            }
            ScalingMetric::Memory(memory) => {
                positive(check, &format!("{at}.memory.per_replica"), memory.per_replica.0 > 0);
            }
        }
    }
    let can_leave_zero =
        scaling.metrics.iter().any(|metric| !metric.needs_replicas()) || !scaling.schedules.is_empty();
    check.ensure(scaling.min > 0 || can_leave_zero || scaling.metrics.is_empty(), "scaling.min", || {
        "must be greater than 0: without replicas, `cpu` and `memory` have no value".into()
    });
    check.at_most("scaling.up_window", scaling.up_window, limits::SCALING_WINDOW_MAX);
    check.at_most("scaling.down_window", scaling.down_window, limits::SCALING_WINDOW_MAX);
}

fn query_metric(check: &mut Check, at: &str, metric: &QueryMetric) {
    let is_http = ["http://", "https://"].iter().any(|scheme| metric.url.starts_with(scheme));
    check.ensure(is_http && metric.url.len() <= limits::METRIC_URL_LEN_MAX, &format!("{at}.url"), || {
        format!(
            "must be a URL with `http` or `https` of at most {} bytes, such as `http://prometheus:9090`",
            limits::METRIC_URL_LEN_MAX
        )
    });
    let length = metric.query.len();
    check.ensure((1..=limits::METRIC_QUERY_LEN_MAX).contains(&length), &format!("{at}.query"), || {
        format!("has {length} bytes: expected 1 to {}", limits::METRIC_QUERY_LEN_MAX)
    });
    positive(check, &format!("{at}.per_replica"), metric.per_replica.is_finite() && metric.per_replica > 0.0);
}

fn positive(check: &mut Check, at: &str, is_positive: bool) {
    check.ensure(is_positive, at, || "must be greater than 0".into());
}

fn update(check: &mut Check, update: &UpdatePolicy) {
    replica_count(check, "update.max_surge", update.max_surge);
    replica_count(check, "update.max_unavailable", update.max_unavailable);
    check.ensure(update.max_surge > 0 || update.max_unavailable > 0, "update.max_surge", || {
        "must not be 0 together with `max_unavailable`: no replica could ever be replaced".into()
    });
    replica_count(check, "update.canaries", update.canaries);
    check.ensure(!update.auto_promote || update.canaries > 0, "update.auto_promote", || {
        "cannot be set without `canaries`".into()
    });
    let (min, max) = (Duration::from_secs(1), limits::PROGRESS_DEADLINE_MAX);
    let deadline = update.progress_deadline;
    check.ensure((min..=max).contains(&deadline), "update.progress_deadline", || {
        format!("`{deadline}` is out of range: expected {min} to {max}")
    });
}

/// Checks the job, and that it sets no field that the service controls.
fn job_of(check: &mut Check, spec: &ServiceSpec, job: &JobSpec, now: Timestamp) {
    if let Err(invalid) = super::job(job, now) {
        check.problems.extend(invalid.problems.into_iter().map(|mut problem| {
            problem.path = format!("job.{}", problem.path);
            problem
        }));
    }
    // A script may contain the syntax of a reference for another purpose; a shell rejects this syntax outside quotes.
    check.ensure(!matches!(job.run, Run::Http(_)), "job.run", || {
        "is a request, which ends with its response: expected `process` or `container`".into()
    });
    let is_script = |path: &String| path == "job.run.process.script";
    let references =
        serde_json::to_value(job).map(|job| texts_with_references(&job, "job")).unwrap_or_default();
    for path in references.into_iter().filter(|path| !is_script(path)) {
        check.fail(path, NOT_REPLACED);
    }
    check.ensure(job.namespace == spec.namespace, "job.namespace", || {
        format!("must be the namespace of the service (`{}`) or omitted", spec.namespace)
    });
    let waits_for_itself =
        |required: &RequiredService| required.service == spec.name && required.min_available > 0;
    if let Some(i) = job.requires.iter().position(waits_for_itself) {
        check.fail(
            format!("job.requires[{i}].service"),
            "a service cannot wait for itself: set `min_available: 0` to look up its endpoints only",
        );
    }
    let default = RetryPolicy::default();
    for (is_set, field, instead) in [
        (job.run_at.is_some(), "run_at", "a service starts immediately"),
        (job.start_deadline.is_some(), "start_deadline", "use `update.progress_deadline`"),
        (job.finish_by.is_some(), "finish_by", "a service does not end"),
        (!job.after.is_empty(), "after", "a service starts immediately"),
        (!job.outputs.is_empty(), "outputs", "a service does not end, so it has no outputs"),
        (job.timeout.is_some(), "timeout", "a service has no timeout; use `health.liveness`"),
        (
            job.retry != default,
            "retry",
            "a service restarts its replicas without limit; use `restart_backoff`",
        ),
        (
            job.delivery == Delivery::AtMostOnce,
            "delivery",
            "a service starts its replicas again after their worker is lost",
        ),
        (job.concurrency.is_some(), "concurrency", "use `replicas`"),
        (job.idempotency_key.is_some(), "idempotency_key", "the name of the service is unique"),
        (
            job.priority_class != PriorityClass::default(),
            "priority_class",
            "use the `priority_class` of the service",
        ),
    ] {
        check.ensure(!is_set, &format!("job.{field}"), || {
            format!("cannot be set in the job of a service: {instead}")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{Bytes, Millicores};
    use crate::service::{CpuMetric, MemoryMetric, ScalingSchedule};
    use crate::spec::{CheckedPort, HealthCheck, HealthChecks, HttpRun, Port, TcpCheck};

    fn web() -> ServiceSpec {
        let mut job = JobSpec::command(["server"]);
        job.ports = vec![Port { name: "http".into(), port: None }];
        ServiceSpec {
            name: "web".into(),
            namespace: "default".into(),
            owner: None,
            labels: Default::default(),
            description: None,
            replicas: Some(3),
            per_worker: false,
            scaling: None,
            priority_class: PriorityClass::High,
            job: Box::new(job),
            restart_backoff: Default::default(),
            min_healthy: Duration::ZERO,
            update: UpdatePolicy::default(),
        }
    }

    fn problems(change: impl FnOnce(&mut ServiceSpec)) -> String {
        let mut spec = web();
        change(&mut spec);
        service(&spec, Timestamp::default()).err().map_or_else(String::new, |invalid| invalid.to_string())
    }

    #[test]
    fn a_service_with_a_port_and_replicas_is_valid() {
        assert_eq!(problems(|_| {}), "");
    }

    #[test]
    fn an_update_must_be_able_to_replace_a_replica() {
        insta::assert_snapshot!(problems(|spec| spec.update.max_surge = 0),
            @"update.max_surge: must not be 0 together with `max_unavailable`: no replica could ever be replaced");
        assert_eq!(
            problems(|spec| {
                spec.update.max_surge = 0;
                spec.update.max_unavailable = 1;
            }),
            ""
        );
    }

    #[test]
    fn fields_that_end_a_job_are_refused() {
        insta::assert_snapshot!(
            problems(|spec| {
                spec.job.timeout = Some(Duration::from_secs(5));
                spec.job.retry.max_retries = 3;
                spec.job.delivery = Delivery::AtMostOnce;
                spec.replicas = Some(2_000);
            }),
            @"replicas: `2000` is out of range: expected 0 to 1000; job.timeout: cannot be set in the job of a service: a service has no timeout; use `health.liveness`; job.retry: cannot be set in the job of a service: a service restarts its replicas without limit; use `restart_backoff`; job.delivery: cannot be set in the job of a service: a service starts its replicas again after their worker is lost"
        );
    }

    #[test]
    fn a_service_waits_for_others_but_not_for_itself() {
        let require = |name: &str, min_available| {
            let required = RequiredService { service: name.into(), min_available };
            problems(|spec| spec.job.requires = vec![required])
        };
        assert_eq!([require("db", 1), require("web", 0)], ["", ""]);
        assert!(require("web", 1).contains("job.requires[0].service: a service cannot wait for itself"));
    }

    #[test]
    fn a_request_is_no_service() {
        let run = HttpRun { url: "http://x".into(), ..HttpRun::default() };
        let found = problems(|spec| {
            spec.job.ports.clear();
            spec.job.run = Run::Http(Box::new(run.clone()));
        });
        assert_eq!(
            found,
            "job.run: is a request, which ends with its response: expected `process` or `container`"
        );
    }

    #[test]
    fn a_check_names_a_port_of_the_job_and_has_one_kind() {
        let with = |port: &str| {
            let tcp = Some(TcpCheck { port: CheckedPort::Name(port.into()) });
            HealthCheck { tcp, ..HealthCheck::new() }
        };
        let checks = HealthChecks { readiness: Some(with("http")), ..HealthChecks::default() };
        assert_eq!(problems(|spec| spec.job.health = Some(Box::new(checks))), "");
        let checks = HealthChecks {
            startup: Some(HealthCheck { success_threshold: 2, ..HealthCheck::new() }),
            liveness: Some(with("admin")),
            ..HealthChecks::default()
        };
        insta::assert_snapshot!(problems(|spec| spec.job.health = Some(Box::new(checks))),
            @"job.health.startup: expected exactly one of `http`, `tcp`, `grpc` and `command`; job.health.startup.success_threshold: must be 1: only `readiness` can need several successes; job.health.liveness.tcp.port: the job has no port `admin`: expected the name of one of `ports`, or a number");
    }

    #[test]
    fn a_service_that_only_its_own_use_scales_keeps_a_replica() {
        let scaled = |min, schedules, metric: ScalingMetric| {
            problems(|spec| {
                let (up_window, down_window) = (Duration::ZERO, Duration::ZERO);
                let metrics = vec![metric];
                spec.replicas = None;
                spec.scaling =
                    Some(Box::new(Scaling { min, max: 5, schedules, metrics, up_window, down_window }));
            })
        };
        let cpu = |millis| ScalingMetric::Cpu(CpuMetric { per_replica: Millicores(millis) });
        let expected =
            "scaling.min: must be greater than 0: without replicas, `cpu` and `memory` have no value";
        assert_eq!(scaled(0, Vec::new(), cpu(500)), expected);
        assert_eq!(scaled(1, Vec::new(), cpu(500)), "");
        let daily = ScalingSchedule { cron: "0 8 * * *".into(), zone: "UTC".into(), min: 1 };
        assert_eq!(scaled(0, vec![daily], cpu(500)), "");
        let expected = "scaling.metrics[0].cpu.per_replica: must be greater than 0";
        assert_eq!(scaled(1, Vec::new(), cpu(0)), expected);
        let memory = ScalingMetric::Memory(MemoryMetric { per_replica: Bytes(0) });
        assert_eq!(
            scaled(1, Vec::new(), memory),
            "scaling.metrics[0].memory.per_replica: must be greater than 0"
        );
    }

    #[test]
    fn a_service_with_one_replica_per_worker_has_no_number_of_replicas_and_no_canaries() {
        let found = problems(|spec| {
            spec.per_worker = true;
            spec.update.canaries = 1;
        });
        assert!(found.contains("replicas: cannot be combined with `per_worker`"), "{found}");
        assert!(found.contains("update.canaries: cannot be combined with `per_worker`"), "{found}");
        let valid = |spec: &mut ServiceSpec| (spec.per_worker, spec.replicas) = (true, None);
        assert_eq!(problems(valid), "");
    }
}
