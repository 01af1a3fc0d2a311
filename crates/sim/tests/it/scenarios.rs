//! The named scenarios of the reliability page, as far as a simulated cluster can show them. No world may
//! have a violation. In addition, each test asserts that its scenario took place.
//!
//! A test is named after its scenario (`s1` to `s21`). It constructs a plan with chosen faults, plays it with
//! [`WORLDS`] seeds, and counts what the scenario needs in the histories, such as changes of the owner at a
//! given time. Without that count, a change elsewhere could leave a test without its fault.
//!
//! # Cost
//! Most tests take seconds. Scenarios with 50,000 schedules or an hour of virtual time are smaller in debug
//! builds.

use std::collections::{BTreeMap, BTreeSet};

use sim::check::Invariant;
use sim::history::{Ask, History, Row, TaskStep, What};
use sim::run::Played;
use sim::world::plan::{Fault, FaultKind, Plan};

use crate::{plays_well, seconds};
use model::firing::FiringCause;
use model::{Cause, Duration, JobStatus, RunStatus, Timestamp};

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

/// Returns the event indexes at which another server acquired the shards.
fn moves(history: &History) -> Vec<usize> {
    let mut last = None;
    let events = history.events.iter().enumerate();
    let moved = events.filter(|(_, event)| match event.what {
        What::Owned { server, .. } => last.replace(server).is_some_and(|before| before != server),
        _ => false,
    });
    moved.map(|(index, _)| index).collect()
}

/// Plays a scenario in several worlds, and calls `look` with each result.
#[track_caller]
fn in_each<T>(world: impl Fn(u64) -> Plan, look: impl Fn(&Played) -> T) -> Vec<T> {
    (0..WORLDS).map(|seed| look(&plays_well(&world(seed)))).collect()
}

/// Plays a scenario in several worlds, and asserts that it took place in at least one of them.
#[track_caller]
fn takes_place(world: impl Fn(u64) -> Plan, count: impl Fn(&History) -> usize) {
    let total: usize = in_each(world, |played| count(&played.history)).iter().sum();
    assert!(total > 0, "the scenario never took place");
}

fn every(period: u64, from: u64, length: u64, kind: impl Fn(u64) -> FaultKind) -> Vec<Fault> {
    (0..)
        .map(|n| Fault::new(from + n * period, length, kind(n)))
        .take_while(|fault| fault.at < seconds(110))
        .collect()
}

/// Server 1 starts late, so that server 0 acquires the shards first.
fn late() -> Fault {
    Fault::new(0, 3, FaultKind::CrashServer { server: 1 })
}

/// Faults of the owner of the shards, at these seconds; each lasts until the other server takes over.
fn owners_fall(at: &[u64], length: u64, kind: impl Fn(usize) -> FaultKind) -> Vec<Fault> {
    let falls = at.iter().enumerate().map(|(n, &at)| Fault::new(at, length, kind(n % 2)));
    falls.chain([late()]).collect()
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

/// S2. A machine, server, supervisor or agent crashes after a dispatch: I7, I8.
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

/// S3. A worker finishes while it is cut off for longer than its lease; its result arrives stale: I9, I10, I30.
#[test]
fn s3_a_result_after_a_partition_is_stale() {
    let world = |seed| Plan {
        faults: (0..2)
            .flat_map(|server| every(20, 8, 12, move |_| FaultKind::CutWorker { worker: 0, server }))
            .collect(),
        ..Plan::quiet(seed)
    };
    takes_place(world, |history| causes(history, Cause::WorkerLost));
}

/// S3, on workers without free capacity for the executions of the lost worker. The lost worker returns first, and its
/// executions continue or have ended: I7, I8, I9.
#[test]
fn s3_a_lost_worker_that_returns_first_keeps_its_executions() {
    let world = |seed| Plan {
        workers: 2,
        faults: (0..2)
            .flat_map(|server| (0..2).map(move |worker| (server, worker)))
            .flat_map(|(server, worker)| every(20, 8, 12, move |_| FaultKind::CutWorker { worker, server }))
            .collect(),
        ..Plan::quiet(seed)
    };
    takes_place(world, |history| causes(history, Cause::WorkerReturned));
}

/// S4. The owner pauses for three leases, and resumes with unreleased effects: I6, I10, I27.
///
/// In every world a former owner releases effects of a commit that succeeded while it was paused. Its lease has ended
/// when it resumes, so it decides nothing more. The store is slow, so that a commit is nearly always pending.
#[test]
fn s4_a_resumed_former_owner_changes_nothing() {
    let slow = Fault::new(1, 118, FaultKind::SlowStore { most: Duration::from_millis(500) });
    let pauses = owners_fall(&[10, 50, 90], 18, |server| FaultKind::PauseServer { server });
    let faults: Vec<_> = pauses.into_iter().chain([slow]).collect();
    let world = |seed| Plan { jobs: 300, faults: faults.clone(), ..Plan::quiet(seed) };
    for (moves, stats) in in_each(world, |played| (moves(&played.history).len(), played.stats)) {
        assert!(moves >= 3 && stats.late_effects > 0, "{moves} moves, {stats:?}");
    }
}

/// Number of schedules that fire together in S5; the reliability page has 50,000. A release build plays them all. A
/// debug build needs a minute for such a world, and half a second for 1,000.
const DUE: u32 = if cfg!(debug_assertions) { 2_000 } else { 50_000 };
/// More firings than an engine decides in one commit, which is 10,000.
const DUE_IN_TWO_COMMITS: u32 = if cfg!(debug_assertions) { 10_100 } else { 50_000 };

/// Returns the number of firings at this scheduled time by deciding server. Asserts that each was decided once, and
/// not early.
#[track_caller]
fn decided_by(history: &History, instant: Timestamp) -> BTreeMap<u32, usize> {
    let mut fired = BTreeSet::new();
    let mut decided = BTreeMap::new();
    for event in &history.events {
        let What::Commit(commit) = &event.what else { continue };
        for row in &commit.rows {
            let Row::Ledger(line) = row else { continue };
            assert_eq!((line.first, line.last, line.count), (instant, instant, 1));
            assert!(
                line.decided_at >= instant && event.at >= instant,
                "decided early, at {}",
                line.decided_at
            );
            assert!(line.work.is_some(), "decided as {}", line.outcome);
            assert!(fired.insert(line.schedule), "{} was decided twice", line.schedule);
            *decided.entry(commit.server).or_default() += 1;
        }
    }
    decided
}

/// Changes the owner `millis` milliseconds after a minute in which `due` schedules fire. Returns which servers
/// decided them.
///
/// The world begins half a minute before: its seed is the number of milliseconds by which it begins later.
#[track_caller]
fn changes_at_the_minute(later: u64, due: u32, millis: i64, kind: FaultKind) -> BTreeMap<u32, usize> {
    let instant: Timestamp = "2026-03-02T08:01:00Z".parse().unwrap();
    let at = Duration::from_millis((30_000 - later).strict_add_signed(millis));
    let change = Fault { at, length: seconds(8), kind };
    let slow = Fault::new(25, 10, FaultKind::SlowStore { most: Duration::from_millis(40) });
    let played = plays_well(&Plan {
        due_together: due,
        faults: vec![late(), slow, change.clone()],
        rough: seconds(45),
        task_max: Duration::from_millis(100),
        slots: 250,
        look_every: 512,
        rebuild_every: seconds(3_600),
        ..without_asks(30_000 + later)
    });
    let moved = moves(&played.history);
    let [moved] = moved[..] else { panic!("{change}: {} moves", moved.len()) };
    let lapse = played.history.events[moved].at.since(instant);
    assert!(lapse < seconds(7), "{change}: another server acquired the shards after {lapse}");
    let decided = decided_by(&played.history, instant);
    assert_eq!(decided.values().sum::<usize>(), due as usize, "{change}");
    decided
}

/// S5. The owner changes just before, at, and just after a minute in which thousands of schedules fire: I14, I16.
#[test]
fn s5_the_owner_changes_in_a_minute_with_thousands_of_firings() {
    let crash = || FaultKind::CrashServer { server: 0 };
    let changes = [
        (-1, crash(), false),
        (0, crash(), false),
        // A drained leader continues until all servers have seen that it is drained.
        (0, FaultKind::DrainLeader, true),
        // A pending commit then succeeds, and the old owner gets its answer too late or never.
        (2, crash(), true),
        (2, FaultKind::PauseServer { server: 0 }, true),
        (60, crash(), true),
    ];
    for (later, (millis, kind, old_one_decides)) in (0..).zip(changes) {
        let decided = changes_at_the_minute(later, DUE, millis, kind);
        assert_eq!(decided.contains_key(&0), old_one_decides, "{millis} ms: {decided:?}");
    }
}

/// S5. A leader hands over just before, at, or just after the minute: it decides the firings, or its successor does.
#[test]
fn s5_a_leader_hands_over_around_a_minute_with_thousands_of_firings() {
    for (later, millis) in (20..).zip([-1_600, -1_400, -1_200, -1_000]) {
        changes_at_the_minute(later, DUE, millis, FaultKind::DrainLeader);
    }
}

/// S5. The owner changes while the first of its two commits is pending. That commit succeeds; the other one is never
/// sent.
#[test]
fn s5_the_owner_changes_between_two_commits_of_simultaneous_firings() {
    let decided = changes_at_the_minute(7, DUE_IN_TWO_COMMITS, 2, FaultKind::CrashServer { server: 0 });
    assert_eq!(decided.len(), 2, "{decided:?}");
}

/// A quiet world without client requests.
fn without_asks(seed: u64) -> Plan {
    let plan = Plan { jobs: 0, other_asks: 0, schedules: 0, saves: 0, ..Plan::quiet(seed) };
    Plan { workflows: 0, runs: 0, run_asks: 0, ..plan }
}

/// S6. Ten minutes without any server, with every policy for missed runs: I18.
#[test]
fn s6_after_an_outage_missed_runs_are_caught_up_by_policy() {
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

/// S7. The wall clock is set back two hours across firings: I14, I16.
#[test]
fn s7_a_clock_set_back_causes_no_duplicate_or_early_firing() {
    let world = |seed| Plan {
        schedules: 3,
        faults: (0..2)
            .map(|server| Fault::new(60, 40, FaultKind::StepClock { server, millis: -7_200_000 }))
            .collect(),
        ..Plan::quiet(seed)
    };
    takes_place(world, |history| rows(history).filter(|row| matches!(row, Row::Ledger(_))).count());
}

/// S9. The outcome of commits is unknown, repeatedly: I2, I6.
#[test]
fn s9_commits_with_unknown_outcome_lose_and_duplicate_nothing() {
    let world = |seed| Plan {
        rough: seconds(400),
        jobs: 400,
        faults: vec![Fault::new(2, 390, FaultKind::CommitsUnknown { share: 0.3 })],
        ..Plan::quiet(seed)
    };
    let unknown: u64 = in_each(world, |played| played.stats.unknown_commits).iter().sum();
    assert!(unknown >= 1_000, "{unknown} commits");
}

/// Returns the length of each lost tail.
fn tails(history: &History) -> Vec<Duration> {
    let tail = |(at, what): (Timestamp, &What)| match what {
        What::TailLost { since: Some(since), .. } => Some(at.since(*since)),
        _ => None,
    };
    history.events.iter().filter_map(|event| tail((event.at, &event.what))).collect()
}

/// Returns the number of reported executions that no commit contains and whose tasks were running.
fn strays(history: &History) -> usize {
    let known: BTreeSet<_> = rows(history)
        .filter_map(|row| match row {
            Row::Execution(row) => Some(row.execution),
            _ => None,
        })
        .collect();
    let mut running = BTreeSet::new();
    let mut strays = BTreeSet::new();
    for event in &history.events {
        match &event.what {
            What::Task { execution, step: TaskStep::Started { .. } } => drop(running.insert(*execution)),
            What::Task { execution, step: TaskStep::Ended { .. } | TaskStep::Killed } => {
                running.remove(execution);
            }
            What::Stray { execution, .. } if running.contains(execution) && !known.contains(execution) => {
                strays.insert(*execution);
            }
            _ => {}
        }
    }
    strays.len()
}

/// S10. A standby takes over without the commits of the last one to five seconds: I7, I8. Executions that are unknown
/// to it are reported and stopped.
#[test]
fn s10_executions_of_a_lost_tail_are_reported_and_do_not_overlap() {
    let lose = |n: u64| {
        let time = Duration::from_millis(1_900 + 480 * n);
        Fault::new(15 + 15 * n, 1, FaultKind::LoseLast { time })
    };
    let world = |seed| Plan {
        jobs: 450,
        task_max: seconds(20),
        keeps_all: false,
        faults: (0..7).map(lose).collect(),
        ..Plan::quiet(seed)
    };
    for (tails, strays) in in_each(world, |played| (tails(&played.history), strays(&played.history))) {
        assert!(
            tails.len() == 7 && tails.iter().all(|tail| (seconds(1)..seconds(5)).contains(tail)),
            "{tails:?}"
        );
        assert!(strays > 0, "no lost execution was running in {tails:?}");
    }
}

/// S11. Two servers act as owners of the shards: I27.
#[test]
fn s11_only_the_newer_of_two_owners_commits() {
    let world = |seed| Plan {
        faults: every(30, 10, 20, |n| FaultKind::CutServerFromStore { server: (n % 2) as usize }),
        task_max: seconds(30),
        ..Plan::quiet(seed)
    };
    takes_place(world, |history| owners(history) - 1);
}

/// S12. The leader is drained every three seconds: I1, I14, I28.
#[test]
fn s12_moving_shards_lose_nothing() {
    let world =
        |seed| Plan { schedules: 2, faults: every(3, 3, 2, |_| FaultKind::DrainLeader), ..Plan::quiet(seed) };
    for moves in in_each(world, |played| moves(&played.history).len()) {
        assert!(moves > 30, "{moves} moves");
    }
}

/// S12. Servers are stopped gracefully and started again, one after the other: I1, I14, I28.
#[test]
fn s12_graceful_stops_lose_nothing() {
    let world = |seed| Plan {
        schedules: 2,
        faults: every(5, 5, 4, |n| FaultKind::StopServer { server: (n % 2) as usize }),
        ..Plan::quiet(seed)
    };
    for moves in in_each(world, |played| moves(&played.history).len()) {
        assert!(moves > 15, "{moves} moves");
    }
}

/// S12, for an hour.
#[test]
fn s12_an_hour_of_moving_shards_loses_nothing() {
    let faults = (1..1_199).map(|n| Fault::new(3 * n, 2, FaultKind::DrainLeader)).collect();
    let played =
        plays_well(&Plan { rough: seconds(3_600), jobs: 1_200, schedules: 2, faults, ..Plan::quiet(1) });
    let moves = moves(&played.history).len();
    assert!(moves > 1_000, "{moves} moves");
}

/// S15. Cancellations race with the ends of their jobs: I5, I9, I13.
#[test]
fn s15_a_race_of_cancellation_and_end_has_one_winner() {
    let world = |seed| Plan { jobs: 150, other_asks: 300, task_max: seconds(1), ..Plan::quiet(seed) };
    takes_place(world, |history| {
        let refused = |what: &What| matches!(what, What::Asked { ask: Ask::Cancel { .. }, .. });
        let raced = history.events.iter().filter(|event| refused(&event.what)).count();
        raced.min(causes(history, Cause::CancelRequested))
    });
}

/// S16. A limit is lowered while it is full: I20.
#[test]
fn s16_a_lowered_limit_kills_nothing_and_admits_nothing_more() {
    let world = |seed| Plan { jobs: 150, other_asks: 200, ..Plan::quiet(seed) };
    takes_place(world, |history| rows(history).filter(|row| matches!(row, Row::Queue { .. })).count() / 3);
}

fn runs_ended(history: &History, status: RunStatus) -> usize {
    rows(history).filter(|row| matches!(row, Row::Run(row) if row.status == status)).count()
}

/// S18. Runs of workflows while workers are lost, servers crash, and clients cancel, mark, decide and send events:
/// I19, I26, I28.
#[test]
fn s18_the_result_of_a_run_follows_from_its_steps_under_faults() {
    let world = |seed| Plan {
        workflows: 4,
        runs: 40,
        run_asks: 40,
        schedules: 2,
        faults: every(7, 4, 5, |n| match n % 4 {
            0 => FaultKind::CrashMachine { worker: (n % 3) as usize },
            1 => FaultKind::CrashServer { server: (n % 2) as usize },
            2 => FaultKind::MuteWorker { worker: (n % 3) as usize },
            _ => FaultKind::DrainLeader,
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

/// Returns for every key how often another server acquired the shards between its first and last request.
fn failovers_by_key(history: &History) -> Vec<usize> {
    let moves = moves(history);
    let mut asked: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, event) in history.events.iter().enumerate() {
        if let What::Asked { ask: Ask::Submit { key: Some(key), .. }, .. } = &event.what {
            asked.entry(key).or_default().push(index);
        }
    }
    let between = |asked: Vec<usize>| {
        let (first, last) = (asked.first().copied()?, asked.last().copied()?);
        Some(moves.iter().filter(|moved| (first..last).contains(moved)).count())
    };
    asked.into_values().filter_map(between).collect()
}

/// S21. Clients repeat requests under the same key through three failovers: I2.
#[test]
fn s21_a_key_creates_one_job_across_three_failovers() {
    let fall = owners_fall(&[30, 45, 60], 10, |server| match server {
        0 => FaultKind::CrashServer { server },
        _ => FaultKind::PauseServer { server },
    });
    // Some of them repeat requests from before the failovers.
    let again = Fault::new(90, 1, FaultKind::Burst { jobs: 300 });
    let world = |seed| Plan {
        jobs: 400,
        faults: fall.iter().cloned().chain([again.clone()]).collect(),
        ..Plan::quiet(seed)
    };
    for failovers in in_each(world, |played| failovers_by_key(&played.history)) {
        assert!(failovers.contains(&3), "{failovers:?}");
    }
}

/// I11 and I26 without faults: every requested job ends.
#[test]
fn without_faults_every_job_that_is_not_cancelled_succeeds() {
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
