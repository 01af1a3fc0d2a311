//! The named scenarios of the reliability page, as far as one engine and a model of its surroundings
//! can play them. In each of them nothing may be wrong; what is asserted beside is that the scenario
//! took place.

use sim::check::Invariant;
use sim::history::{Answer, Ask, History, Row, What};
use sim::world::plan::{Fault, FaultKind, Plan};

use crate::{plays_well, seconds};
use model::firing::FiringCause;
use model::{Cause, Duration, JobStatus, RunStatus};

const WORLDS: u64 = 12;

fn rows(history: &History) -> impl Iterator<Item = &Row> {
    history.events.iter().flat_map(|event| match &event.what {
        What::Commit(commit) => commit.rows.as_slice(),
        _ => &[],
    })
}

fn causes(history: &History, cause: Cause) -> usize {
    let steps = rows(history).filter_map(|row| match row {
        Row::Job(row) => Some(row.steps.iter().filter(|step| step.cause == cause).count()),
        _ => None,
    });
    steps.sum()
}

fn owners(history: &History) -> usize {
    let mut epochs: Vec<u64> = history
        .events
        .iter()
        .filter_map(|event| match &event.what {
            What::Owned { epoch, .. } => Some(epoch.0),
            _ => None,
        })
        .collect();
    epochs.dedup();
    epochs.len()
}

/// Plays a scenario in several worlds, and counts in all of them how often something took place.
#[track_caller]
fn takes_place(world: impl Fn(u64) -> Plan, count: impl Fn(&History) -> usize) {
    let total: usize = (0..WORLDS).map(|seed| count(&plays_well(&world(seed)).history)).sum();
    assert!(total > 0, "the scenario never took place");
}

fn every(period: u64, from: u64, length: u64, kind: impl Fn(u64) -> FaultKind) -> Vec<Fault> {
    (0..)
        .map(|n| Fault::new(from + n * period, length, kind(n)))
        .take_while(|fault| fault.at < seconds(110))
        .collect()
}

/// S1. The server dies after a commit and before its effects: I11, I14.
#[test]
fn s1_a_crash_after_the_commit_loses_no_dispatch() {
    let world = |seed| Plan {
        schedules: 2,
        faults: every(11, 5, 2, |n| FaultKind::CrashServer { server: (n % 2) as usize }),
        ..Plan::quiet(seed)
    };
    takes_place(world, |history| owners(history) - 1);
}

/// S2. Whoever was given work dies before anybody hears of it: I7, I8.
#[test]
fn s2_a_crash_after_the_dispatch_starts_nothing_twice() {
    let world = |seed| Plan {
        faults: every(7, 5, 3, |n| match n % 4 {
            0 => FaultKind::CrashMachine { worker: 0 },
            1 => FaultKind::CrashServer { server: 0 },
            2 => FaultKind::CrashSupervisor { worker: 1 },
            _ => FaultKind::CrashAgent { worker: 2 },
        }),
        ..Plan::quiet(seed)
    };
    takes_place(world, |history| {
        causes(history, Cause::Interrupted) + causes(history, Cause::OutcomeUnknown)
    });
}

/// S3. A worker finishes while it is cut off for longer than its lease; its result comes stale: I9,
/// I10, I30.
#[test]
fn s3_a_result_from_behind_a_partition_is_stale() {
    let world = |seed| Plan {
        faults: (0..2)
            .flat_map(|server| every(20, 8, 12, move |_| FaultKind::CutWorker { worker: 0, server }))
            .collect(),
        ..Plan::quiet(seed)
    };
    takes_place(world, |history| causes(history, Cause::WorkerLost));
}

/// S4. The owner stands still for three leases and goes on with effects in its hand: I6, I10, I27.
#[test]
fn s4_an_owner_that_was_paused_changes_nothing_any_more() {
    let world = |seed| Plan {
        faults: every(40, 10, 18, |n| FaultKind::PauseServer { server: (n % 2) as usize }),
        ..Plan::quiet(seed)
    };
    takes_place(world, |history| owners(history) - 1);
}

/// S6. Ten minutes without any server, over all policies for what is missed: I18.
#[test]
fn s6_after_an_outage_each_policy_makes_up_for_what_it_says() {
    let world = |seed| Plan {
        rough: seconds(900),
        schedules: 6,
        faults: (0..2).map(|server| Fault::new(200, 600, FaultKind::CrashServer { server })).collect(),
        ..Plan::quiet(seed)
    };
    takes_place(world, |history| {
        rows(history)
            .filter(|row| matches!(row, Row::Ledger(line) if line.cause == FiringCause::CatchUp))
            .count()
    });
}

/// S7. The wall clock goes back two hours across firings: I14, I16.
#[test]
fn s7_a_clock_that_is_set_back_fires_nothing_twice_and_nothing_early() {
    let world = |seed| Plan {
        schedules: 3,
        faults: (0..2)
            .map(|server| Fault::new(60, 40, FaultKind::StepClock { server, millis: -7_200_000 }))
            .collect(),
        ..Plan::quiet(seed)
    };
    takes_place(world, |history| rows(history).filter(|row| matches!(row, Row::Ledger(_))).count());
}

/// S9. The outcome of commits is unknown, again and again: I2, I6.
#[test]
fn s9_unknown_commits_lose_and_double_nothing() {
    let world = |seed| Plan {
        faults: vec![Fault::new(2, 110, FaultKind::CommitsUnknown { share: 0.3 })],
        ..Plan::quiet(seed)
    };
    takes_place(world, |history| {
        let unknown = |what: &What| matches!(what, What::Answered { answer: Answer::Unknown, .. });
        history.events.iter().filter(|event| unknown(&event.what)).count()
    });
}

/// S11. Two servers believe that they own the shards: I27.
#[test]
fn s11_of_two_owners_only_the_newer_commits() {
    let world = |seed| Plan {
        faults: every(30, 10, 20, |n| FaultKind::CutServerFromStore { server: (n % 2) as usize }),
        task_max: seconds(30),
        ..Plan::quiet(seed)
    };
    takes_place(world, |history| owners(history) - 1);
}

/// S12. The shards move every other second: I1, I14, I28.
#[test]
fn s12_moving_shards_lose_nothing() {
    let world =
        |seed| Plan { schedules: 2, faults: every(2, 3, 1, |_| FaultKind::MoveShards), ..Plan::quiet(seed) };
    takes_place(world, |history| owners(history).saturating_sub(10));
}

/// S15. Cancellations race with the ends of their jobs: I5, I9, I13.
#[test]
fn s15_a_cancellation_and_an_end_agree_on_one_of_them() {
    let world = |seed| Plan { jobs: 150, other_asks: 300, task_max: seconds(1), ..Plan::quiet(seed) };
    takes_place(world, |history| {
        let refused = |what: &What| matches!(what, What::Asked { ask: Ask::Cancel { .. }, .. });
        let raced = history.events.iter().filter(|event| refused(&event.what)).count();
        raced.min(causes(history, Cause::CancelRequested))
    });
}

/// S16. A limit is lowered while it is full: I20.
#[test]
fn s16_a_lowered_limit_kills_nothing_and_lets_nothing_more_through() {
    let world = |seed| Plan { jobs: 150, other_asks: 200, ..Plan::quiet(seed) };
    takes_place(world, |history| rows(history).filter(|row| matches!(row, Row::Queue { .. })).count() / 3);
}

fn runs_ended(history: &History, status: RunStatus) -> usize {
    rows(history).filter(|row| matches!(row, Row::Run(row) if row.status == status)).count()
}

/// S18. Runs of workflows while workers are lost, servers crash, and clients cancel, mark, decide and let events
/// come: I19, I26, I28.
#[test]
fn s18_a_run_is_what_its_steps_come_to_whatever_is_lost() {
    let world = |seed| Plan {
        workflows: 4,
        runs: 40,
        run_asks: 40,
        schedules: 2,
        faults: every(7, 4, 5, |n| match n % 4 {
            0 => FaultKind::CrashMachine { worker: (n % 3) as usize },
            1 => FaultKind::CrashServer { server: (n % 2) as usize },
            2 => FaultKind::MuteWorker { worker: (n % 3) as usize },
            _ => FaultKind::MoveShards,
        }),
        ..Plan::quiet(seed)
    };
    for status in [RunStatus::Succeeded, RunStatus::Failed, RunStatus::Cancelled] {
        takes_place(world, |history| runs_ended(history, status));
    }
}

/// C1, I14, I17. Schedules start runs through crashes.
#[test]
fn a_schedule_starts_its_runs_through_crashes() {
    let world = |seed| Plan {
        workflows: 3,
        schedules: 6,
        faults: every(11, 5, 3, |n| FaultKind::CrashServer { server: (n % 2) as usize }),
        ..Plan::quiet(seed)
    };
    takes_place(world, |history| {
        let fired = |row: &&Row| matches!(row, Row::Run(row) if row.new && row.origin.is_some());
        rows(history).filter(fired).count()
    });
}

/// S21. Clients insist under the same key through failovers: I2.
#[test]
fn s21_a_key_makes_one_job_through_three_failovers() {
    let world = |seed| Plan {
        jobs: 120,
        faults: every(30, 10, 6, |n| match n % 2 {
            0 => FaultKind::CrashServer { server: (n % 2) as usize },
            _ => FaultKind::PauseServer { server: (n % 2) as usize },
        }),
        ..Plan::quiet(seed)
    };
    takes_place(world, |history| owners(history) - 1);
}

/// I11 and I26 in the plainest of worlds: what is asked for is done.
#[test]
fn without_faults_everything_that_is_not_cancelled_ends_well() {
    for seed in 0..WORLDS {
        // Shorter than any timeout.
        let task_max = Duration::from_millis(400);
        let played = plays_well(&Plan { other_asks: 0, task_max, ..Plan::quiet(seed) });
        let bad = rows(&played.history)
            .filter(|row| matches!(row, Row::Job(row) if row.status == JobStatus::Failed));
        assert_eq!(bad.count(), 0);
        assert!(!played.report.breaks(Invariant::I26));
    }
}
