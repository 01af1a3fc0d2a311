//! Placement of jobs, and the reasons why a job waits.
//!
//! The first tests cover which workers are eligible (capacity, labels, capabilities) and which of them is
//! chosen (`spread`, `pack`, jobs that are kept apart, another worker for a retry). The rest compares the explanation of a job with its
//! state: a waiting job has at least one reason, and each reason names the limit, queue or worker that blocks
//! the job.
//!
//! # Invariants
//! - The executions on a worker never need more than its capacity.

use std::collections::BTreeSet;

use model::spec::{JobSpread, Placement, PriorityClass, SandboxLevel, Volume};
use model::why::{FailedFilter, Reason};
use model::{Bytes, JobSpec, JobStatus};

use crate::scenario::{Scenario, known};

/// E1, I22.
#[test]
fn worker_is_never_overcommitted() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).custom("gpu", 1).join();
    let big: Vec<_> = (0..3).map(|_| t.job().cpu(400).submit()).collect();
    assert_eq!(t.running(), 2);
    let small = t.job().cpu(200).submit();
    assert_eq!(t.status(small), JobStatus::Running, "the small job does not wait behind the large one");
    t.succeed(big[0]);
    assert_eq!(t.status(big[2]), JobStatus::Running);
    let gpus = [0; 2].map(|_| {
        let gpu = |s: &mut JobSpec| {
            s.resources.cpu = Some(model::Millicores(0));
            s.resources.custom.insert("gpu".into(), 1);
        };
        t.job().spec(gpu).submit()
    });
    assert_eq!(gpus.map(|job| t.status(job)), [JobStatus::Running, JobStatus::Waiting]);
}

#[test]
fn constraints_choose_workers_by_their_labels() {
    let mut t = Scenario::new();
    t.worker().label("zone", "a").join();
    let b = t.worker().label("zone", "b").join();
    let job = t.job().only_on("zone", "b").submit();
    assert_eq!(t.state(job).worker, Some(b));
    let nowhere = t.job().only_on("zone", "c").submit();
    assert_eq!(t.status(nowhere), JobStatus::Waiting);
    t.worker().label("zone", "c").join();
    assert_eq!(t.status(nowhere), JobStatus::Running);
}

/// A job that needs a volume runs only where the volume is, and says so while it waits.
#[test]
fn a_job_runs_on_a_worker_with_its_volumes() {
    let mut t = Scenario::new();
    t.worker().join();
    let needs = |names: &'static [&str]| {
        move |spec: &mut JobSpec| {
            spec.volumes = names.iter().map(|name| Volume { name: (*name).into() }).collect();
        }
    };
    let job = t.job().spec(needs(&["data"])).submit();
    let reasons = t.why(job);
    let [Reason::NoEligibleWorker { workers, .. }] = &reasons[..] else { panic!("{reasons:?}") };
    let missing = FailedFilter::Volume { volume: "data".into() };
    assert_eq!(known(workers[0].failed_filters.clone()), [missing]);
    let with_data = t.worker().volumes(&["cache", "data"]).join();
    assert_eq!(t.state(job).worker, Some(with_data));
    let both = t.job().spec(needs(&["data", "logs"])).submit();
    assert_eq!(t.status(both), JobStatus::Waiting);
}

/// F2. A job with a sandbox runs only where the kernel has its level.
#[test]
fn a_job_runs_on_a_worker_with_its_sandbox() {
    let mut t = Scenario::new();
    t.worker().sandbox_levels(&[SandboxLevel::Basic]).join();
    let in_sandbox = |level: SandboxLevel| {
        move |spec: &mut JobSpec| spec.run.as_process_mut().unwrap().sandbox.level = level
    };
    let basic = t.job().spec(in_sandbox(SandboxLevel::Basic)).submit();
    assert_eq!(t.status(basic), JobStatus::Running);
    let strict = t.job().spec(in_sandbox(SandboxLevel::Strict)).submit();
    let reasons = t.why(strict);
    let [Reason::NoEligibleWorker { workers, .. }] = &reasons[..] else { panic!("{reasons:?}") };
    let missing = FailedFilter::Sandbox { level: SandboxLevel::Strict };
    assert_eq!(known(workers[0].failed_filters.clone()), [missing]);
    let able = t.worker().sandbox_levels(&[SandboxLevel::Basic, SandboxLevel::Strict]).join();
    assert_eq!(t.state(strict).worker, Some(able));
}

#[test]
fn spread_takes_the_emptiest_worker_and_pack_the_fullest() {
    let mut t = Scenario::new();
    let [a, b] = [0; 2].map(|_| t.worker().cpu(1_000).join());
    let first = t.job().cpu(100).submit();
    let first_worker = t.state(first).worker.unwrap();
    let other = if first_worker == a { b } else { a };
    let packed = t.job().cpu(100).placement(Placement::Pack).submit();
    assert_eq!(t.state(packed).worker, Some(first_worker));
    let spread = t.job().cpu(100).placement(Placement::Spread).submit();
    assert_eq!(t.state(spread).worker, Some(other));
}

/// Four jobs over two zones, of which one has three workers.
#[test]
fn jobs_that_spread_over_a_label_run_in_all_of_its_values_equally() {
    let mut t = Scenario::new();
    let near = [0; 3].map(|_| t.worker().label("zone", "a").join());
    let far = t.worker().label("zone", "b").join();
    let spread = JobSpread { over: Some("zone".into()), max_per_worker: None };
    let of = |name: &str, spread: &JobSpread| {
        let (name, spread) = (name.to_owned(), Box::new(spread.clone()));
        move |spec: &mut JobSpec| (spec.name, spec.spread) = (name, Some(spread))
    };
    let jobs = [0; 4].map(|_| t.job().spec(of("import", &spread)).submit());
    let in_far = jobs.iter().filter(|job| t.state(**job).worker == Some(far)).count();
    assert_eq!(in_far, 2, "two in each zone");
    let in_near: BTreeSet<_> = jobs.iter().filter_map(|job| t.state(*job).worker).collect();
    assert_eq!(in_near.len(), 3, "two different workers of the other zone");
    let other = t.job().spec(of("export", &spread)).submit();
    assert!(near.contains(&t.state(other).worker.unwrap()), "jobs with another name do not count");
}

#[test]
fn no_more_jobs_with_a_name_run_on_a_worker_than_their_spread_allows() {
    let mut t = Scenario::new();
    t.worker().join();
    let one = |spec: &mut JobSpec| {
        spec.name = "crawler".into();
        spec.spread = Some(Box::new(JobSpread { over: None, max_per_worker: Some(1) }));
    };
    let [first, second] = [0; 2].map(|_| t.job().spec(one).submit());
    assert_eq!([first, second].map(|job| t.status(job)), [JobStatus::Running, JobStatus::Waiting]);
    let reasons = t.why(second);
    let [Reason::NoEligibleWorker { workers, .. }] = &reasons[..] else { panic!("{reasons:?}") };
    let expected = FailedFilter::Spread { running: 1, max_per_worker: 1 };
    assert_eq!(known(workers[0].failed_filters.clone()), [expected]);
    let other = t.job().submit();
    assert_eq!(t.status(other), JobStatus::Running, "other jobs are not affected");
    t.restart();
    t.rejoin_all();
    assert_eq!(t.status(second), JobStatus::Waiting, "a new leader counts the running jobs");
    t.succeed(first);
    assert_eq!(t.status(second), JobStatus::Running);
}

/// The lower class is not stopped in vain: its end would not lift the limit.
#[test]
fn no_job_is_preempted_for_a_job_that_its_spread_excludes() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let one = |spec: &mut JobSpec| {
        spec.name = "crawler".into();
        spec.spread = Some(Box::new(JobSpread { over: None, max_per_worker: Some(1) }));
    };
    t.job().cpu(100).class(PriorityClass::High).spec(one).submit();
    let preemptible = t.job().cpu(900).class(PriorityClass::Preemptible).submit();
    t.job().cpu(100).class(PriorityClass::High).spec(one).submit();
    t.pass(60);
    assert!(!t.is_being_stopped(preemptible));
}

#[test]
fn a_retry_prefers_another_worker_and_uses_the_same_if_necessary() {
    let mut t = Scenario::new();
    let only = t.worker().join();
    let job = t.job().retries(2).submit();
    t.fail(job, 1);
    t.pass(2);
    assert_eq!(t.state(job).worker, Some(only));
    let other = t.worker().join();
    t.fail(job, 1);
    t.pass(3);
    assert_eq!(t.state(job).worker, Some(other));
}

#[test]
fn worker_that_cannot_enforce_a_limit_is_not_eligible() {
    let mut t = Scenario::new();
    t.worker().without_limits().join();
    let limit = |s: &mut JobSpec| s.resources.limits.memory = Some(Bytes(1 << 30));
    let strict = t.job().spec(limit).submit();
    let lenient = t
        .job()
        .spec(limit)
        .spec(|s| s.resources.limits.enforcement = model::spec::Enforcement::BestEffort)
        .submit();
    assert_eq!((t.status(strict), t.status(lenient)), (JobStatus::Waiting, JobStatus::Running));
}

/// `belfry why` lists all reasons, for every worker.
#[test]
fn every_waiting_job_has_waiting_reasons() {
    let mut t = Scenario::new();
    let job =
        t.job().cpu(2_000).only_on("zone", "b").spec(|s| s.resources.memory = Some(Bytes(2 << 30))).submit();
    insta::assert_json_snapshot!(t.why(job), @r#"
    [
      {
        "reason": "no_workers"
      }
    ]
    "#);
    t.worker().cpu(1_000).memory_mib(1024).label("zone", "a").slots(0).join();
    insta::assert_json_snapshot!(t.why(job), { "[].workers[].worker" => "[worker]" }, @r#"
    [
      {
        "reason": "no_eligible_worker",
        "workers": [
          {
            "worker": "[worker]",
            "name": "w1",
            "failed_filters": [
              {
                "filter": "constraint",
                "label": "zone",
                "value": "a"
              },
              {
                "filter": "cpu",
                "needed": "2",
                "free": "1",
                "capacity": "1"
              },
              {
                "filter": "memory",
                "needed": "2GiB",
                "free": "1GiB",
                "capacity": "1GiB"
              },
              {
                "filter": "slots",
                "slots": 0
              }
            ]
          }
        ],
        "more": 0
      }
    ]
    "#);
}

#[test]
fn why_explains_jobs_that_do_not_wait() {
    let mut t = Scenario::new();
    let ready = t.job().in_seconds(60).submit();
    insta::assert_json_snapshot!(t.why(ready), @r#"
    [
      {
        "reason": "not_due",
        "until": "2026-11-21T08:01:00Z"
      }
    ]
    "#);
    t.worker().join();
    let running = t.job().submit();
    t.start(running);
    t.cancel(running).unwrap();
    insta::assert_json_snapshot!(t.why(running), { "[].worker" => "[worker]" }, @r#"
    [
      {
        "reason": "stopping",
        "since": "2026-11-21T08:00:00Z"
      },
      {
        "reason": "running",
        "worker": "[worker]",
        "since": "2026-11-21T08:00:00Z"
      }
    ]
    "#);
}

#[test]
fn why_names_the_limit_that_blocks_a_job() {
    let mut t = Scenario::new();
    t.worker().join();
    let settings = model::queue::QueueSettings {
        concurrency: Some(1),
        rate_per_second: Some(0.1),
        burst: Some(1),
        ..Default::default()
    };
    t.queue("default", settings);
    t.job().concurrency("k", 1).submit();
    let job = t.job().concurrency("k", 1).submit();
    insta::assert_json_snapshot!(t.why(job), { "[].worker" => "[worker]" }, @r#"
    [
      {
        "reason": "queue_concurrency",
        "queue": "default",
        "running": 1,
        "limit": 1
      },
      {
        "reason": "queue_rate",
        "queue": "default",
        "until": "2026-11-21T08:00:10Z"
      },
      {
        "reason": "concurrency_key",
        "key": "k",
        "running": 1,
        "limit": 1
      }
    ]
    "#);
}
