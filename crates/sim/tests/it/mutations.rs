//! Deliberate bugs, each of which must be found: a simulator that finds none proves nothing.
//!
//! Most are found in any rough world. Some need a coincidence that is rare in a world drawn blindly;
//! theirs are drawn so that it is not.

use sim::check::Invariant;
use sim::run;
use sim::world::plan::{FaultKind, Mutation, Plan, Profile};

use crate::{fault, quiet, seconds};

/// The mutation breaks one of these within so many worlds.
#[track_caller]
fn is_found(mutation: Mutation, within: u64, shows: &[Invariant], world: impl Fn(u64) -> Plan) {
    for seed in 0..within {
        let plan = world(seed).with(mutation);
        let mut played = run::play(&plan);
        if mutation == Mutation::RandomOrderOfEffects && played.wrong().is_none() {
            let differs = run::differs_again(&plan, &played);
            played.report.counts.extend(differs.map(|violation| (violation.invariant, 1)));
        }
        if shows.iter().any(|invariant| played.report.breaks(*invariant)) {
            return;
        }
    }
    panic!("{mutation:?} was not found within {within} worlds by any of {shows:?}");
}

fn rough(seed: u64) -> Plan {
    Plan::draw(seed, Profile::Short)
}

/// The owner does not reach the store for longer than all leases, and has so little to do that it need
/// not notice; two workers know one server alone.
fn owners_cut_from_the_store(seed: u64) -> Plan {
    let cut = |n: u64| fault(30 + 45 * n, 30, FaultKind::CutServerFromStore { server: (n % 2) as usize });
    let alone = |n: usize| fault(3, 117, FaultKind::CutWorker { worker: n, server: (1 + n) % 2 });
    let plan = Plan { servers: 2, workers: 4, jobs: 12, other_asks: 0, schedules: 0, ..quiet(seed) };
    let task_max = seconds(90);
    Plan { faults: vec![alone(0), alone(1), cut(0), cut(1)], task_max, ..plan }
}

/// Machines crash while nothing that they say is heard.
fn crashes_in_silence(seed: u64) -> Plan {
    let mute = |n: u64| fault(8 + 9 * n, 2, FaultKind::MuteWorker { worker: (n % 2) as usize });
    let machine = |n: u64| fault(9 + 9 * n, 1, FaultKind::CrashMachine { worker: (n % 2) as usize });
    let plan = Plan { servers: 1, workers: 2, jobs: 300, task_max: seconds(2), ..quiet(seed) };
    Plan { faults: (0..12).flat_map(|n| [mute(n), machine(n)]).collect(), ..plan }
}

/// Supervisors stand still for longer than their leases, while the rest of the machine goes on.
fn paused_supervisors(seed: u64) -> Plan {
    let agent = |n: u64| fault(10 + 20 * n, 14, FaultKind::CrashAgent { worker: (n % 3) as usize });
    let pause = |n: u64| fault(10 + 20 * n, 15, FaultKind::PauseSupervisor { worker: (n % 3) as usize });
    let plan = Plan { task_max: seconds(30), jobs: 80, ..quiet(seed) };
    Plan { faults: (0..5).flat_map(|n| [agent(n), pause(n)]).collect(), ..plan }
}

/// Workers are cut off for longer than their leases, again and again.
fn cut_workers(seed: u64) -> Plan {
    let cut =
        |n: u64, server| fault(8 + 12 * n, 9, FaultKind::CutWorker { worker: (n % 3) as usize, server });
    let plan = Plan { task_max: seconds(30), jobs: 80, ..quiet(seed) };
    Plan { faults: (0..9).flat_map(|n| [cut(n, 0), cut(n, 1)]).collect(), ..plan }
}

/// The same, and tasks save how far they are.
fn cut_workers_that_save(seed: u64) -> Plan {
    Plan { saves: 2_000, ..cut_workers(seed) }
}

/// Answers take longer than the margin of a lease, and then there are none.
fn slow_answers(seed: u64) -> Plan {
    let delay = seconds(4);
    let slow = FaultKind::RoughNet { loss: 0.0, duplicate: 0.0, reorder: false, delay };
    let mut plan = cut_workers(seed);
    plan.faults.push(fault(1, 118, slow));
    plan
}

macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident: $mutation:ident, $within:literal, [$($shows:ident),+], $world:ident;)*) => {
        $($(#[$doc])* #[test] fn $name() {
            is_found(Mutation::$mutation, $within, &[$(Invariant::$shows),+], $world);
        })*
    };
}

mutations! {
    a_worker_that_forgets_what_it_started: WorkerForgetsWhatItStarted, 40, [I7, I8, I10], crashes_in_silence;
    a_worker_that_starts_before_its_journal: WorkerStartsBeforeItsJournal, 40, [I7, I10], crashes_in_silence;
    a_worker_that_drops_its_reports: WorkerDropsReportsUnacknowledged, 100, [I7, I26, I30], rough;
    a_worker_that_counts_its_lease_from_the_answer:
        WorkerCountsItsLeaseFromTheAnswer, 20, [I8], slow_answers;
    a_worker_that_thaws_before_its_stops: WorkerThawsBeforeItsStops, 20, [I8], cut_workers;
    a_worker_that_ignores_timeouts: WorkerIgnoresTimeouts, 100, [I13], long_tasks;
    a_fuse_that_does_not_fire: FuseDoesNotFire, 20, [I8], paused_supervisors;
    a_lease_whose_end_is_ignored: LeaseEndIsIgnored, 10, [I8], cut_workers;
    effects_before_their_commit: EffectsBeforeTheCommit, 10, [I6], rough;
    replies_before_their_commit: RepliesBeforeTheCommit, 10, [I6], rough;
    grants_without_an_own_lease: GrantsWithoutOwnLease, 100, [I8], owners_cut_from_the_store;
    a_stale_report_that_is_taken_as_current: StaleReportAsCurrent, 20, [I9], cut_workers;
    an_unknown_outcome_that_is_told_as_a_refusal: UnknownTakenForRefused, 100, [I2, I3], rough;
    a_save_of_a_stale_execution_that_is_taken_as_current: StaleSaveAsCurrent, 20, [I10], cut_workers_that_save;
    a_store_that_forgets_checkpoints: StoreForgetsCheckpoints, 20, [I1], cut_workers_that_save;
    a_worker_that_hands_on_no_checkpoint: WorkerHandsOnNoCheckpoint, 20, [I1], cut_workers_that_save;
    a_load_that_forgets_executions: LoadForgetsExecutions, 10, [I4, I8, I28], rough;
    a_load_that_forgets_jobs: LoadForgetsJobs, 40, [I26, I28], rough;
    a_load_that_forgets_queues: LoadForgetsQueues, 40, [I20, I21, I28], rough;
    a_load_that_forgets_workers: LoadForgetsWorkers, 10, [I8, I28], rough;
    a_store_that_forgets_new_jobs: StoreForgetsNewJobs, 10, [I1], rough;
    a_store_that_forgets_keys: StoreForgetsKeys, 100, [I2], rough;
    a_store_that_forgets_cancellations: StoreForgetsCancels, 40, [I1, I26], rough;
    a_store_that_forgets_lines_of_the_ledger: StoreForgetsTheLedger, 40, [I14], rough;
    a_load_that_forgets_steps: LoadForgetsSteps, 10, [I19], runs_through_crashes;
    a_store_that_forgets_ends_of_steps: StoreForgetsEndsOfSteps, 10, [I19], runs_through_crashes;
    a_load_that_forgets_elements: LoadForgetsElements, 20, [I19, I28], runs_through_crashes;
    a_load_that_forgets_triggers: LoadForgetsTriggers, 20, [I19], runs_through_crashes;
    a_store_that_forgets_elements: StoreForgetsElements, 20, [I1], runs_through_crashes;
    a_store_that_forgets_cursors: StoreForgetsCursors, 40, [I14], rough;
    a_store_that_tears_batches: StoreTearsBatches, 10, [I1, I4, I14], rough;
    a_store_that_ignores_epochs: StoreIgnoresEpochs, 100, [I2, I4, I10, I27], rough;
    a_store_that_gives_an_epoch_twice: StoreReusesEpochs, 40, [I27], rough;
    a_store_that_reads_the_past: StoreReadsThePast, 10, [I1], rough;
    a_lost_tail_that_is_trusted: LostTailIsTrusted, 100, [I8], lost_tails;
    an_order_of_effects_that_is_random: RandomOrderOfEffects, 10, [I29], rough;
}

/// Servers crash while runs of workflows go on.
fn runs_through_crashes(seed: u64) -> Plan {
    let crash = |n: u64| fault(10 + 15 * n, 3, FaultKind::CrashServer { server: (n % 2) as usize });
    let faults = (0..7).map(crash).collect();
    Plan { workflows: 4, runs: 30, run_asks: 0, jobs: 5, faults, ..quiet(seed) }
}

/// The store forgets commits again and again, while tasks run that the next owner does not know of.
fn lost_tails(seed: u64) -> Plan {
    let lose = |n: u64| fault(10 + 12 * n, 1, FaultKind::LoseTail { commits: 12 });
    let faults = (0..9).map(lose).collect();
    Plan { jobs: 200, task_max: seconds(20), keeps_all: false, faults, ..quiet(seed) }
}

/// Tasks that run far longer than their timeouts.
fn long_tasks(seed: u64) -> Plan {
    Plan { task_max: seconds(600), calm: seconds(600), jobs: 10, ..quiet(seed) }
}
