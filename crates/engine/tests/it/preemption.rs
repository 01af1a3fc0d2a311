//! Priority classes, preemption, and reservations for jobs that wait long.
//!
//! The worker of each scenario is full with jobs of a lower class, so that the next job finds no free capacity.

use engine::{Input, Report};
use model::queue::QueueSettings;
use model::spec::{Delivery, PriorityClass};
use model::why::Reason;
use model::worker::Admission;
use model::{Duration, ExecutionStatus, JobId, JobStatus};

use crate::scenario::Scenario;

use PriorityClass::{High, Normal, Preemptible};

/// A worker of 1,000 millicores that runs two jobs of this class, of 500 millicores each.
fn full_worker(t: &mut Scenario, class: PriorityClass) -> [JobId; 2] {
    t.worker().cpu(1_000).join();
    [0; 2].map(|_| {
        let job = t.job().cpu(500).class(class).submit();
        t.start(job);
        job
    })
}

fn victims(t: &Scenario, jobs: &[JobId]) -> Vec<JobId> {
    jobs.iter()
        .copied()
        .filter(|&job| t.status(job) == JobStatus::Running && t.is_being_stopped(job))
        .collect()
}

/// E3.
#[test]
fn jobs_of_a_higher_class_start_before_jobs_of_all_queues() {
    let mut t = Scenario::new();
    t.queue("heavy", QueueSettings { weight: 1_000, ..QueueSettings::default() });
    let low = t.job().queue("heavy").priority(100).class(Preemptible).submit();
    let normal = t.job().queue("heavy").priority(100).submit();
    let high = t.job().queue("light").priority(0).class(High).submit();
    t.worker().slots(1).join();
    assert_eq!(
        [high, normal, low].map(|job| t.status(job)),
        [JobStatus::Running, JobStatus::Waiting, JobStatus::Waiting]
    );
    t.succeed(high);
    assert_eq!(t.status(normal), JobStatus::Running);
    t.succeed(normal);
    assert_eq!(t.status(low), JobStatus::Running);
}

/// E3. The victim is stopped with its grace period, costs no retry and runs again.
#[test]
fn a_preempted_job_returns_to_its_queue_and_runs_again() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Normal);
    t.pass(5);
    let high = t.job().cpu(500).class(High).submit();
    let [victim] = victims(&t, &low)[..] else { panic!("one job is preempted") };
    assert_eq!(t.status(high), JobStatus::Waiting, "the job waits for the end of the victim");
    let record = t.execution(victim).clone();
    assert_eq!(record.preempted_by, Some(high));
    assert_eq!(t.players[&record.worker].graces[&record.id], Duration::from_secs(10));
    t.stop(victim);
    assert_eq!(t.status(high), JobStatus::Running);
    let state = t.state(victim);
    assert_eq!((state.status, state.losses, state.run_failures), (JobStatus::Waiting, 0, 0));
    assert_eq!(state.history.last().unwrap().detail.as_deref(), Some(&*format!("preempted by {high}")));
    assert_eq!(t.rows.executions[&record.id].status, ExecutionStatus::Cancelled);
    t.succeed(high);
    assert_eq!(t.status(victim), JobStatus::Running);
    t.succeed(victim);
    assert_eq!(
        t.history(victim),
        "waiting (submitted) → running (placed) → waiting (preempted) → running (placed) → succeeded (succeeded)"
    );
}

/// The stop can reach the worker before the assignment.
#[test]
fn a_victim_that_never_started_frees_its_worker_at_once() {
    let mut t = Scenario::new();
    t.worker().cpu(500).join();
    let low = t.job().cpu(500).class(Preemptible).submit();
    let high = t.job().cpu(500).class(High).submit();
    let (worker, assignment) = t.take(low);
    let refused = Report::Refused { reason: "stopped".into() };
    t.report(worker, assignment.execution, assignment.fence, refused);
    assert_eq!([high, low].map(|job| t.status(job)), [JobStatus::Running, JobStatus::Waiting]);
    assert!(t.history(low).ends_with("waiting (preempted)"));
}

#[test]
fn jobs_of_the_same_and_of_higher_classes_are_not_preempted() {
    for (running, waiting) in [(Normal, Normal), (High, High), (High, Normal), (Preemptible, Preemptible)] {
        let mut t = Scenario::new();
        let running = full_worker(&mut t, running);
        t.job().cpu(500).class(waiting).submit();
        assert_eq!(victims(&t, &running), [], "{waiting} preempts");
    }
}

#[test]
fn the_lowest_class_and_the_least_lost_work_are_preempted_first() {
    let mut t = Scenario::new();
    t.worker().cpu(1_500).join();
    let preemptible = t.job().cpu(500).class(Preemptible).submit();
    t.start(preemptible);
    t.pass(60);
    let jobs = [0; 2].map(|_| {
        let job = t.job().cpu(500).submit();
        t.start(job);
        t.pass(10);
        job
    });
    let all = [preemptible, jobs[0], jobs[1]];
    t.job().cpu(500).class(High).submit();
    assert_eq!(victims(&t, &all), [preemptible], "a lower class precedes less lost work");
    t.job().cpu(500).class(High).submit();
    assert_eq!(victims(&t, &all), [preemptible, jobs[1]], "the younger job loses less");
}

#[test]
fn a_checkpoint_makes_a_job_cheaper_to_preempt() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let old = t.job().cpu(500).submit();
    let execution = t.start(old);
    t.pass(600);
    let young = t.job().cpu(500).submit();
    t.start(young);
    t.pass(60);
    let fence = t.execution(old).fence;
    t.save((execution, fence), "state", None).unwrap();
    t.job().cpu(500).class(High).submit();
    assert_eq!(victims(&t, &[old, young]), [old]);
}

#[test]
fn at_most_once_jobs_are_not_preempted() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let once = t.job().cpu(1_000).class(Preemptible).delivery(Delivery::AtMostOnce).submit();
    t.start(once);
    t.job().cpu(500).class(High).submit();
    assert_eq!(victims(&t, &[once]), []);
}

#[test]
fn no_job_is_preempted_for_a_job_that_would_not_fit() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    t.job().cpu(2_000).class(High).submit();
    t.job().cpu(500).class(High).only_on("zone", "b").submit();
    t.job().cpu(500).class(High).spec(|s| s.resources.custom = [("gpu".into(), 1)].into()).submit();
    assert_eq!(victims(&t, &low), []);
}

#[test]
fn only_as_many_jobs_are_preempted_as_needed() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let small = t.job().cpu(100).class(Preemptible).submit();
    t.start(small);
    t.pass(1);
    let large = t.job().cpu(800).class(Preemptible).submit();
    t.start(large);
    t.pass(1);
    t.job().cpu(900).class(High).submit();
    assert_eq!(victims(&t, &[small, large]), [large], "the small job can stay");
}

#[test]
fn the_freed_capacity_is_kept_for_the_job() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    let high = t.job().cpu(1_000).class(High).submit();
    assert_eq!(victims(&t, &low), low);
    let normal = t.job().cpu(500).submit();
    t.stop(low[0]);
    assert_eq!(t.status(normal), JobStatus::Waiting, "the free half is reserved");
    assert!(matches!(&t.why(high)[0], Reason::Preempting { victims, .. } if *victims == [low[1]]));
    t.stop(low[1]);
    assert_eq!(t.status(high), JobStatus::Running);
    t.succeed(high);
    assert_eq!(t.status(normal), JobStatus::Running);
}

#[test]
fn a_job_with_a_reservation_starts_elsewhere_if_that_is_sooner() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    let high = t.job().cpu(500).class(High).submit();
    let victim = victims(&t, &low)[0];
    let other = t.worker().cpu(500).join();
    assert_eq!(t.state(high).worker, Some(other));
    t.stop(victim);
    assert_eq!(t.status(victim), JobStatus::Running, "the reservation was released");
}

#[test]
fn a_cancelled_job_releases_the_capacity_that_it_preempted() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    let high = t.job().cpu(500).class(High).submit();
    let victim = victims(&t, &low)[0];
    t.cancel(high).unwrap();
    t.stop(victim);
    assert_eq!(t.status(victim), JobStatus::Running);
}

/// "Never a chain of preemptions".
#[test]
fn a_preempted_job_preempts_no_other() {
    let mut t = Scenario::new();
    let zone = |t: &mut Scenario, zone: &str| t.worker().cpu(500).label("zone", zone).join();
    zone(&mut t, "a");
    let normal = t.job().cpu(500).submit();
    t.start(normal);
    zone(&mut t, "b");
    let preemptible = t.job().cpu(500).class(Preemptible).submit();
    t.start(preemptible);
    let high = t.job().cpu(500).class(High).only_on("zone", "a").submit();
    t.stop(normal);
    assert_eq!(t.status(high), JobStatus::Running);
    assert_eq!(victims(&t, &[preemptible]), [], "the preempted job waits");
    t.job().cpu(500).submit();
    assert_eq!(victims(&t, &[preemptible]), [preemptible], "another job preempts");
}

#[test]
fn a_job_whose_class_is_lowered_gives_up_its_reservation() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Normal);
    let high = t.job().cpu(500).class(High).submit();
    let victim = victims(&t, &low)[0];
    let head = t.job().cpu(500).head();
    let actor = "alice".into();
    t.ask(|ticket| Input::Update { ticket, job: high, head, expected_version: None, actor }).unwrap();
    t.restart();
    t.rejoin_all();
    t.stop(victim);
    assert_eq!([high, victim].map(|job| t.status(job)), [JobStatus::Waiting, JobStatus::Running]);
}

#[test]
fn queue_limits_bound_preemptions() {
    let mut t = Scenario::new();
    t.queue("high", QueueSettings { concurrency: Some(1), ..QueueSettings::default() });
    let low = full_worker(&mut t, Preemptible);
    for _ in 0..2 {
        t.job().cpu(500).queue("high").class(High).submit();
    }
    assert_eq!(victims(&t, &low).len(), 1, "the queue allows one job only");
}

#[test]
fn concurrency_keys_bound_preemptions() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    for _ in 0..2 {
        t.job().cpu(500).class(High).concurrency("k", 1).submit();
    }
    assert_eq!(victims(&t, &low).len(), 1, "the key allows one job only");
}

#[test]
fn a_paused_queue_releases_the_capacity_that_its_job_preempted() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    let high = t.job().cpu(500).queue("high").class(High).submit();
    let victim = victims(&t, &low)[0];
    t.queue("high", QueueSettings { paused: true, ..QueueSettings::default() });
    t.stop(victim);
    assert_eq!([high, victim].map(|job| t.status(job)), [JobStatus::Waiting, JobStatus::Running]);
}

/// D5. The stop, its cause and the reservation survive a restart.
#[test]
fn a_preemption_continues_after_a_restart() {
    for rejoins_first in [false, true] {
        let mut t = Scenario::new();
        let low = full_worker(&mut t, Preemptible);
        let high = t.job().cpu(500).class(High).submit();
        let victim = victims(&t, &low)[0];
        for player in t.players.values_mut() {
            player.stopped.clear();
        }
        t.restart();
        if rejoins_first {
            t.rejoin_all();
        }
        let normal = t.job().cpu(500).submit();
        if !rejoins_first {
            t.rejoin_all();
        }
        assert!(t.is_being_stopped(victim), "the stop is sent again");
        t.stop(victim);
        assert_eq!([high, normal].map(|job| t.status(job)), [JobStatus::Running, JobStatus::Waiting]);
        assert!(t.history(victim).ends_with("waiting (preempted)"));
    }
}

#[test]
fn a_lost_worker_ends_a_preemption_on_it() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    let high = t.job().cpu(500).class(High).submit();
    let victim = victims(&t, &low)[0];
    let worker = t.execution(victim).worker;
    let other = t.worker().cpu(500).join();
    assert_eq!(t.state(high).worker, Some(other));
    t.lose(worker);
    assert_eq!(t.state(victim).losses, 1, "the loss is the cause, not the preemption");
}

#[test]
fn a_drained_worker_is_left_alone() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    let worker = t.execution(low[0]).worker;
    t.admit(worker, Admission::Cordoned);
    t.job().cpu(500).class(High).submit();
    assert_eq!(victims(&t, &low), []);
    t.admit(worker, Admission::Open);
    assert_eq!(victims(&t, &low).len(), 1);
}

#[test]
fn an_unhealthy_worker_loses_its_reservation() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    let worker = t.execution(low[0]).worker;
    let other = t.worker().cpu(600).join();
    let filler = t.job().cpu(500).class(Preemptible).submit();
    t.start(filler);
    let high = t.job().cpu(500).class(High).submit();
    let reserved = |t: &mut Scenario| match &t.why(high)[0] {
        Reason::Preempting { worker, .. } => *worker,
        other => panic!("{other:?}"),
    };
    let first = reserved(&mut t);
    let next = if first == worker { other } else { worker };
    t.report_health(first, Some("disk full"));
    assert_eq!(reserved(&mut t), next);
}

#[test]
fn a_thousand_jobs_preempt_in_one_flush() {
    let mut t = Scenario::new();
    for _ in 0..10 {
        t.worker().cpu(10_000).slots(100).join();
    }
    let low: Vec<_> = (0..1_000).map(|_| t.job().class(Preemptible).submit()).collect();
    let started = low.iter().filter(|&&job| t.status(job) == JobStatus::Running).count();
    assert_eq!(started, 1_000);
    t.engine.hold_new_work(true);
    for _ in 0..1_100 {
        t.job().class(High).submit();
    }
    t.engine.hold_new_work(false);
    t.flush();
    let stopped: usize = t.players.values().map(|player| player.stopped.len()).sum();
    assert_eq!(stopped, 1_000);
}

fn small(t: &mut Scenario, timeout: Option<u64>) -> JobId {
    t.job().cpu(100).spec(|s| s.timeout = timeout.map(Duration::from_secs)).submit()
}

/// A worker of 1,000 millicores with eight small jobs, which end one after the other and are replaced.
fn busy_worker(t: &mut Scenario, timeout: Option<u64>) -> Vec<JobId> {
    t.worker().cpu(1_000).join();
    (0..10)
        .map(|_| {
            let job = small(t, timeout);
            t.start(job);
            job
        })
        .collect()
}

/// E1. "No starvation".
#[test]
fn a_large_job_starts_although_small_jobs_keep_coming() {
    let mut t = Scenario::new();
    let mut running = busy_worker(&mut t, None);
    let large = t.job().cpu(900).submit();
    let mut ended = 0;
    while t.status(large) == JobStatus::Waiting {
        t.pass(5);
        let next = small(&mut t, None);
        let first = running.remove(0);
        if t.status(first) == JobStatus::Running {
            t.succeed(first);
            ended += 1;
        }
        if t.status(next) == JobStatus::Running {
            t.start(next);
        }
        running.push(next);
        assert!(ended < 25, "the large job starves");
    }
}

#[test]
fn a_reservation_is_made_only_after_a_while() {
    let mut t = Scenario::new();
    let running = busy_worker(&mut t, None);
    let large = t.job().cpu(900).submit();
    t.pass(20);
    t.succeed(running[0]);
    let next = small(&mut t, None);
    assert_eq!(t.status(next), JobStatus::Running, "there is no reservation yet");
    t.pass(10);
    let last = small(&mut t, None);
    t.succeed(running[1]);
    assert_eq!(t.status(last), JobStatus::Waiting);
    assert!(matches!(t.why(large)[0], Reason::CapacityReserved { until: None, .. }));
}

/// EASY backfill.
#[test]
fn jobs_that_end_in_time_use_the_reserved_capacity() {
    let mut t = Scenario::new();
    let running = busy_worker(&mut t, Some(600));
    let large = t.job().cpu(900).submit();
    t.pass(30);
    t.succeed(running[0]);
    // The small jobs end after 610 seconds at the latest, which is 580 seconds from now.
    let [short, long, unknown] = [Some(100), Some(600), None].map(|timeout| small(&mut t, timeout));
    assert_eq!(
        [short, long, unknown].map(|job| t.status(job)),
        [JobStatus::Running, JobStatus::Waiting, JobStatus::Waiting]
    );
    assert!(matches!(t.why(large)[0], Reason::CapacityReserved { until: Some(until), .. } if until > t.now));
    for job in &running[1..] {
        t.succeed(*job);
    }
    t.succeed(short);
    assert_eq!(t.status(large), JobStatus::Running);
}

#[test]
fn a_higher_class_may_use_the_reserved_capacity() {
    let mut t = Scenario::new();
    let running = busy_worker(&mut t, None);
    t.job().cpu(900).submit();
    t.pass(30);
    t.succeed(running[0]);
    let high = t.job().cpu(100).class(High).submit();
    assert_eq!(t.status(high), JobStatus::Running);
}

/// B8. A reservation for a schedule precedes one for a job that waited long.
#[test]
fn a_schedule_takes_the_reservation_of_a_job_that_waits_long() {
    let mut t = Scenario::new();
    let running = busy_worker(&mut t, None);
    let large = t.job().cpu(1_000).submit();
    t.pass(31);
    t.succeed(running[0]);
    assert!(matches!(t.why(large)[0], Reason::CapacityReserved { .. }));
    let schedule = t
        .schedule("payroll")
        .cron("0 * * * *")
        .spec(|s| {
            s.reserve_ahead = Some(Duration::from_secs(600));
            s.job_mut().unwrap().resources.cpu = Some(model::Millicores(1_000));
        })
        .apply();
    t.pass(55 * 60);
    running[1..].iter().for_each(|&job| t.succeed(job));
    assert_eq!(t.status(large), JobStatus::Waiting, "the whole worker is reserved for the schedule");
    t.pass(5 * 60);
    assert_eq!(t.run_status(schedule), [JobStatus::Running]);
}

/// E3. Each job starts as soon as its own victim has stopped.
#[test]
fn two_preemptions_on_one_worker_do_not_wait_for_each_other() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    let high = [0; 2].map(|_| t.job().cpu(500).class(High).submit());
    assert_eq!(victims(&t, &low).len(), 2);
    t.stop(low[0]);
    assert_eq!(high.iter().filter(|&&job| t.status(job) == JobStatus::Running).count(), 1);
}

#[test]
fn a_job_preempts_elsewhere_after_its_worker_is_lost() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    let high = t.job().cpu(500).class(High).submit();
    let worker = t.execution(low[0]).worker;
    t.worker().cpu(400).join();
    let filler = t.job().cpu(400).class(Preemptible).submit();
    t.start(filler);
    let next = t.worker().cpu(500).slots(1).join();
    assert_eq!(t.state(high).worker, Some(next));
    let other = t.job().cpu(400).class(High).submit();
    let reserved = |t: &mut Scenario| match t.why(other)[0] {
        Reason::Preempting { worker, .. } => worker,
        ref other => panic!("{other:?}"),
    };
    let first = reserved(&mut t);
    t.lose(first);
    assert_ne!(reserved(&mut t), first);
    let _ = worker;
}

/// D5. After a takeover, no second set of victims is stopped while workers reconnect.
#[test]
fn no_job_is_preempted_before_all_workers_have_reconnected() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    let idle = t.worker().cpu(500).join();
    let busy = t.execution(low[0]).worker;
    t.restart();
    let high = t.job().cpu(500).class(High).submit();
    t.rejoin(busy);
    assert_eq!(victims(&t, &low), [], "another worker may be idle");
    t.rejoin(idle);
    assert_eq!(t.state(high).worker, Some(idle));
}

#[test]
fn preemption_starts_when_the_missing_workers_are_lost() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    t.worker().cpu(500).join();
    let busy = t.execution(low[0]).worker;
    t.restart();
    t.job().cpu(500).class(High).submit();
    t.rejoin(busy);
    t.pass(20);
    assert_eq!(victims(&t, &low).len(), 1);
}

/// The end of a job that is no victim makes a preemption possible.
#[test]
fn freed_capacity_can_make_victims_sufficient() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let normal = [0; 2].map(|_| {
        let job = t.job().cpu(300).submit();
        t.start(job);
        job
    });
    let low = t.job().cpu(400).class(Preemptible).submit();
    t.start(low);
    t.job().cpu(600).submit();
    assert_eq!(victims(&t, &[low]), []);
    t.succeed(normal[0]);
    assert_eq!(victims(&t, &[low]), [low]);
}

/// A job that starts later becomes a victim.
#[test]
fn a_job_that_has_just_started_can_be_preempted() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let normal = t.job().cpu(600).delivery(Delivery::AtMostOnce).submit();
    t.start(normal);
    let high = t.job().cpu(500).class(High).submit();
    let low = t.job().cpu(400).class(Preemptible).submit();
    t.start(low);
    assert_eq!(victims(&t, &[low]), []);
    t.succeed(normal);
    assert_eq!(t.status(high), JobStatus::Running);
}

/// The slot of a queue that frees up goes to the blocked job of the higher class.
#[test]
fn a_blocked_job_keeps_its_place_in_a_limited_queue() {
    let mut t = Scenario::new();
    t.queue("q", QueueSettings { concurrency: Some(2), ..QueueSettings::default() });
    t.worker().cpu(1_000).join();
    let small = [0; 2].map(|_| {
        let job = t.job().cpu(100).queue("q").submit();
        t.start(job);
        job
    });
    let high = t.job().cpu(1_000).queue("q").class(High).submit();
    let next = t.job().cpu(100).queue("q").submit();
    t.succeed(small[0]);
    assert_eq!(t.status(next), JobStatus::Waiting, "the slot is for the job of the higher class");
    assert_eq!(victims(&t, &small[1..]), [small[1]]);
    t.stop(small[1]);
    assert_eq!(t.status(high), JobStatus::Running);
}

/// A job that shares a concurrency key with a job that preempts does not take its place.
#[test]
fn a_concurrency_key_is_kept_for_the_job_that_preempts() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    let high = t.job().cpu(1_000).class(High).concurrency("k", 1).submit();
    t.worker().cpu(100).join();
    let small = t.job().cpu(100).class(High).concurrency("k", 1).submit();
    assert_eq!(t.status(small), JobStatus::Waiting);
    low.iter().for_each(|&job| t.stop(job));
    assert_eq!(t.status(high), JobStatus::Running);
    t.succeed(high);
    assert_eq!(t.status(small), JobStatus::Running);
}

#[test]
fn a_worker_without_timeouts_is_not_reserved_for_ever() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let daemon = t.job().cpu(500).submit();
    t.start(daemon);
    let small = t.job().cpu(500).submit();
    t.start(small);
    let large = t.job().cpu(900).submit();
    t.pass(31);
    t.succeed(small);
    let next = t.job().cpu(500).submit();
    assert_eq!(t.status(next), JobStatus::Waiting, "the worker is reserved");
    assert!(matches!(t.why(large)[0], Reason::CapacityReserved { .. }));
    t.pass(320);
    let last = t.job().cpu(500).submit();
    assert_eq!([next, last].map(|job| t.status(job)), [JobStatus::Running, JobStatus::Waiting]);
}

/// Strict priority holds: a large job that is not next reserves no worker.
#[test]
fn only_the_next_job_reserves_a_worker() {
    let mut t = Scenario::new();
    let running = busy_worker(&mut t, None);
    let first = t.job().cpu(500).priority(90).submit();
    t.job().cpu(900).priority(10).submit();
    t.pass(31);
    t.succeed(running[0]);
    t.pass(1);
    assert!(matches!(t.why(first)[0], Reason::CapacityReserved { .. }), "{:?}", t.why(first));
    let reserved = t.engine.view().workers.iter().map(|worker| worker.reservations.len()).sum::<usize>();
    assert_eq!(reserved, 1);
}

/// A worker that was lost and returns does not stop a job that nothing preempts any more.
#[test]
fn a_preemption_ends_when_the_job_started_elsewhere() {
    let mut t = Scenario::new();
    let low = full_worker(&mut t, Preemptible);
    let worker = t.execution(low[0]).worker;
    let high = t.job().cpu(500).class(High).submit();
    let victim = victims(&t, &low)[0];
    t.lose(worker);
    t.worker().cpu(500).join();
    assert_eq!(t.status(high), JobStatus::Running);
    for player in t.players.values_mut() {
        player.stopped.clear();
    }
    t.rejoin(worker);
    assert_eq!((t.status(victim), t.is_being_stopped(victim)), (JobStatus::Running, false));
}
