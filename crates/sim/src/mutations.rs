//! Deliberate bugs, each of which the checker must find: a simulator that finds no bug proves nothing.
//!
//! Most bugs are found in any world with faults. Some need a coincidence that is rare in a random world;
//! their worlds are constructed so that it is frequent. Used by `belfry-sim mutations` and by the tests.
//!
//! [`CASES`] is the table: bug, maximum number of worlds, invariants of which one must be violated, and the
//! world. The functions after it are the worlds. A bug is either in the model around the cores ([`Mutation`])
//! or compiled into a core in builds without `--release` ([`Core`]). A new check needs a bug here that only
//! this check finds.

use std::fmt;

use model::Duration;
use mutation::Mutation as Core;
use serde::{Deserialize, Serialize};

use crate::check::Invariant::{self, *};
use crate::run;
use crate::world::plan::{Bug, Fault, FaultKind, Mutation, Plan, Profile};

/// Where a bug is searched for, and which invariants it violates.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The deliberate bug.
    pub bug: Bug,
    /// Maximum number of worlds until it must be found.
    pub within: u64,
    /// Invariants that it may violate: one of them must be violated.
    pub shows: &'static [Invariant],
    /// Returns the world of a seed.
    pub world: fn(u64) -> Plan,
}

/// A bug that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Name of the bug on the command line.
    pub mutation: String,
    /// Number of worlds that were played.
    pub worlds: u64,
    /// The first violated invariant of [`Case::shows`].
    pub broken: String,
}

/// A line of the table of found bugs.
impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<40} {:>6}   {}", self.mutation, self.worlds, self.broken)
    }
}

impl Case {
    /// Plays worlds until the bug is found; `None` if it is not found within [`Case::within`] worlds.
    pub fn look(&self) -> Option<Found> {
        (0..self.within).find_map(|seed| {
            let plan = (self.world)(seed).with(self.bug);
            let mut played = run::play(&plan);
            if self.bug == Bug::InModel(Mutation::RandomOrderOfEffects) && played.wrong().is_none() {
                let differs = run::compare_replay(&plan, &played);
                played.report.counts.extend(differs.map(|violation| (violation.invariant, 1)));
            }
            let broken = self.shows.iter().find(|invariant| played.report.breaks(**invariant))?;
            Some(Found { mutation: self.bug.to_string(), worlds: seed + 1, broken: broken.to_string() })
        })
    }
}

const fn case(mutation: Mutation, within: u64, shows: &'static [Invariant], world: fn(u64) -> Plan) -> Case {
    Case { bug: Bug::InModel(mutation), within, shows, world }
}

const fn core(mutation: Core, within: u64, shows: &'static [Invariant], world: fn(u64) -> Plan) -> Case {
    Case { bug: Bug::InCore(mutation), within, shows, world }
}

/// All deliberate bugs.
pub const CASES: &[Case] = &[
    case(Mutation::WorkerCountsItsLeaseFromTheAnswer, 20, &[I8], slow_answers),
    case(Mutation::WorkerThawsBeforeItsStops, 20, &[I8], cut_workers),
    core(Core::FuseDoesNotFire, 20, &[I8], paused_supervisors),
    core(Core::FuseDoesNotReport, 100, &[I26], briefly_paused_supervisors),
    core(Core::LeaderReleasesBeforeCommits, 10, &[I6], rough),
    core(Core::LeaderRepliesBeforeCommits, 10, &[I6], rough),
    core(Core::LeaderRepliesBeforeEarlierCommits, 100, &[I6], sent_ahead),
    core(Core::LeaderReleasesAllInFlightCommits, 20, &[I6], sent_ahead),
    core(Core::LeaderContinuesAfterFailedCommits, 40, &[I1, I4, I6, I28], rough),
    core(Core::LeaderTakesOverWithoutReading, 20, &[I28], busy_handovers),
    core(Core::LeaderIgnoresItsOwnLease, 100, &[I8], owners_cut_from_the_store),
    core(Core::LeaderIgnoresTheFormerOwner, 100, &[I8], store_clocks_set_forward),
    core(Core::LeaderForgetsRefusedBatches, 40, &[I1, I4, I6, I28], rough),
    case(Mutation::StaleReportAsCurrent, 20, &[I9], cut_workers),
    core(Core::LeaderReportsUnknownAsRefused, 20, &[I2, I3], unknown_outcomes),
    case(Mutation::StaleCheckpointAsCurrent, 20, &[I10], cut_workers_that_save),
    case(Mutation::StoreForgetsCheckpoints, 20, &[I1], cut_workers_that_save),
    case(Mutation::WorkerPassesNoCheckpoint, 20, &[I1], cut_workers_that_save),
    case(Mutation::LoadForgetsExecutions, 10, &[I4, I8, I28], rough),
    case(Mutation::LoadForgetsJobs, 40, &[I26, I28], rough),
    case(Mutation::LoadForgetsQueues, 40, &[I20, I21, I28], rough),
    case(Mutation::LoadForgetsWorkers, 10, &[I8, I28], rough),
    case(Mutation::StoreForgetsNewJobs, 10, &[I1], rough),
    case(Mutation::StoreForgetsKeys, 100, &[I2], rough),
    case(Mutation::StoreForgetsCancels, 40, &[I1, I26], rough),
    case(Mutation::StoreForgetsTheLedger, 40, &[I14], rough),
    case(Mutation::LoadForgetsSteps, 10, &[I19], runs_through_crashes),
    case(Mutation::StoreForgetsEndsOfSteps, 10, &[I19], runs_through_crashes),
    case(Mutation::LoadForgetsElements, 20, &[I19, I28], runs_through_crashes),
    case(Mutation::LoadForgetsTriggers, 20, &[I19], runs_through_crashes),
    case(Mutation::LoadForgetsAttemptsOfRuns, 40, &[I19], runs_through_crashes),
    case(Mutation::LoadForgetsRetryingRuns, 20, &[I26], runs_through_crashes),
    case(Mutation::StoreForgetsElements, 20, &[I1], runs_through_crashes),
    case(Mutation::StoreForgetsCursors, 40, &[I14], rough),
    case(Mutation::StoreCommitsPartsOfBatches, 10, &[I1, I4, I14], rough),
    case(Mutation::StoreIgnoresEpochs, 40, &[I2, I4, I10, I27], late_commits),
    case(Mutation::StoreReusesEpochs, 40, &[I27], rough),
    case(Mutation::StoreContinuesAfterAFailure, 40, &[I1, I4, I28], sent_ahead),
    case(Mutation::StoreReadsOldRows, 10, &[I1], rough),
    case(Mutation::LostCommitsAreIgnored, 100, &[I8], shards_with_lost_commits),
    case(Mutation::RandomOrderOfEffects, 10, &[I29], rough),
    core(Core::SupervisorForgetsStartedExecutions, 40, &[I7, I8, I10], crashes_in_silence),
    core(Core::SupervisorRestartsAcknowledgedExecutions, 100, &[I7, I8, I10], shards_with_lost_commits),
    core(Core::SupervisorStartsBeforeItsJournal, 40, &[I7, I10], slow_journals),
    core(Core::SupervisorCompactsRunningExecutionsAway, 100, &[I7, I8, I10], crashes_in_silence),
    core(Core::SupervisorReportsOnce, 100, &[I9], rough),
    core(Core::SupervisorIgnoresTimeouts, 100, &[I13], long_tasks),
    core(Core::SupervisorCountsFrozenTime, 100, &[I13], long_tasks_on_cut_workers),
    core(Core::SupervisorIgnoresLeaseExpiry, 20, &[I8], broken_fuses),
    core(Core::SupervisorLeavesLaunchesFrozen, 200, &[I26], cut_workers),
    core(Core::EngineForgetsKeys, 100, &[I2], rough),
    core(Core::EngineSkipsBackoffs, 40, &[I12], rough),
    core(Core::EngineRetriesOnceMore, 40, &[I12], rough),
    core(Core::EngineRepeatsAtMostOnce, 40, &[I7], rough),
    core(Core::EngineSendsNoStop, 40, &[I13], long_tasks_on_cut_workers),
    core(Core::EngineExpiresLeasesEarly, 20, &[I8], cut_workers),
    core(Core::EngineExpiresLeasesAtTakeover, 40, &[I8], rough),
    core(Core::EngineKeepsJobsOfLostWorkers, 20, &[I26], cut_workers),
    core(Core::EngineResumesBeyondLimits, 200, &[I20], cut_workers),
    core(Core::EngineIgnoresStrayExecutions, 40, &[I8], shards_with_lost_commits),
    core(Core::EngineSkipsReconciliation, 100, &[I8], shards_with_lost_commits),
    core(Core::EngineFollowerMissesChangedJobs, 20, &[I26, I28], rough),
    core(Core::EngineSendsAssignmentsOnce, 40, &[I26], rough),
    core(Core::EngineKeepsTheFence, 40, &[I10], rough),
    core(Core::EngineOverfillsQueues, 40, &[I20], rough),
    core(Core::EngineOverfillsKeys, 40, &[I20], rough),
    core(Core::EngineForgetsRates, 40, &[I21], rough),
    core(Core::EngineOverfillsWorkers, 40, &[I22], rough),
    core(Core::EngineExceedsQuotas, 40, &[I20], rough),
    core(Core::EnginePreemptsEqualClasses, 40, &[I23], full_workers),
    core(Core::EngineChainsPreemptions, 100, &[I23], full_workers),
    core(Core::EngineCountsPreemptionsAsLosses, 40, &[I23], full_workers),
    core(Core::EngineAcceptsStaleHealth, 10, &[I10, I24], services_in_short_sessions),
    core(Core::EngineStopsTooManyReplicas, 10, &[I24], busy_services),
    core(Core::EngineIgnoresHealthChecks, 10, &[I24], busy_services),
    core(Core::EngineForgetsEndedReplicas, 10, &[I24, I26], busy_services),
    core(Core::EngineEndsExitedReplicas, 10, &[I24], busy_services),
    core(Core::EngineReusesReplicaNumbers, 10, &[I24], busy_services),
    core(Core::EngineContinuesPausedRollouts, 40, &[I24], busy_services),
    core(Core::EngineIgnoresNewWorkers, 40, &[I24, I28], busy_services),
    core(Core::EngineIgnoresScaling, 40, &[I24], busy_services),
    core(Core::EngineIgnoresRequiredServices, 40, &[I24], busy_services),
    core(Core::EngineBindsReplicasTwice, 40, &[I24, I28], busy_services),
    core(Core::EngineMissesDeadlines, 40, &[I16], rough),
    core(Core::EngineMissesFinishDeadlines, 20, &[I13, I16], rough),
    core(Core::EngineRetriesOverdueJobs, 100, &[I13, I16], long_tasks),
    core(Core::EngineReplacesLostForever, 40, &[I12], cut_workers),
    core(Core::EngineIgnoresUpstreamJobs, 10, &[I16], rough),
    core(Core::EngineAcceptsUnknownUpstreamJobs, 250, &[I16], rough_without_services),
    core(Core::EngineIgnoresUpstreamConditions, 10, &[I16], rough),
    core(Core::EngineForgetsDownstreamJobs, 10, &[I26], rough),
    core(Core::EngineIgnoresOverlap, 40, &[I17], rough),
    core(Core::EngineDropsTheFirstMissedFiring, 40, &[I18], outages),
    core(Core::EngineIgnoresOutages, 40, &[I14], outages),
    core(Core::EngineAcceptsClockJumps, 10, &[I16], leaps),
    core(Core::EngineCatchesUpAtOnce, 40, &[I18], outages),
    core(Core::EngineSkipsForBackfills, 40, &[I18], outages),
    core(Core::EngineIgnoresFilters, 40, &[I15], rough),
    core(Core::EngineStartsStepsEarly, 40, &[I19], runs_through_crashes),
    core(Core::EngineNotifiesOneStepLess, 40, &[I19, I26], runs_through_crashes),
];

fn rough(seed: u64) -> Plan {
    Plan::draw(seed, Profile::Short)
}

/// Random worlds without services.
fn rough_without_services(seed: u64) -> Plan {
    Plan { services: 0, service_asks: 0, ..rough(seed) }
}

/// Bursts of jobs that fill all workers, so that jobs preempt others.
fn full_workers(seed: u64) -> Plan {
    let burst = |n: u64| Fault::new(10 + 12 * n, 1, FaultKind::Burst { jobs: 60 });
    Plan { faults: (0..8).map(burst).collect(), ..Plan::quiet(seed) }
}

/// Services that clients change often, and little else.
fn busy_services(seed: u64) -> Plan {
    let plan = Plan { jobs: 5, schedules: 0, workflows: 0, runs: 0, slots: 8, ..Plan::quiet(seed) };
    Plan { services: 2, service_asks: 40, calm: Duration::from_secs(1_800), ..plan }
}

/// The same while agents open new sessions again and again, on a network that delivers copies of messages late.
fn services_in_short_sessions(seed: u64) -> Plan {
    let delay = Duration::from_millis(10);
    let net = FaultKind::RoughNet { loss: 0.0, duplicate: 1.0, reorder: false, delay };
    let crash = |n: u64| Fault::new(10 + 4 * n, 1, FaultKind::CrashAgent { worker: (n % 3) as usize });
    let faults = (0..27).map(crash).chain([Fault::new(1, 118, net)]).collect();
    Plan { faults, service_asks: 80, ..busy_services(seed) }
}

/// A slow store: some commits fail while later ones are pending.
fn sent_ahead(seed: u64) -> Plan {
    let slow = Fault::new(1, 118, FaultKind::SlowStore { most: Duration::from_millis(400) });
    let fail = |n: u64| Fault::new(15 + 15 * n, 5, FaultKind::CommitsFail { share: 0.2 });
    let burst = |n: u64| Fault::new(15 + 15 * n, 1, FaultKind::Burst { jobs: 60 });
    let faults = (0..7).flat_map(|n| [fail(n), burst(n)]).chain([slow]).collect();
    Plan { commits_ahead: 3, ahead_inputs: 1, faults, ..Plan::quiet(seed) }
}

/// Commits that take longer than the leadership lease: some arrive after another server has taken over.
fn late_commits(seed: u64) -> Plan {
    let slow = |n: u64| Fault::new(10 + 15 * n, 9, FaultKind::SlowStore { most: Duration::from_secs(14) });
    let burst = |n: u64| Fault::new(11 + 15 * n, 1, FaultKind::Burst { jobs: 60 });
    Plan { faults: (0..7).flat_map(|n| [slow(n), burst(n)]).collect(), ..Plan::quiet(seed) }
}

/// Handovers under load, on a slow store that delays the news of the handover.
fn busy_handovers(seed: u64) -> Plan {
    let slow = Fault::new(1, 118, FaultKind::SlowStore { most: Duration::from_millis(400) });
    let burst = |n: u64| Fault::new(12 + 10 * n, 1, FaultKind::Burst { jobs: 60 });
    let moves = |n: u64| Fault::new(11 + 10 * n, 5, FaultKind::DrainLeader);
    let faults = (0..10).flat_map(|n| [burst(n), moves(n)]).chain([slow]).collect();
    Plan { servers: 2, faults, ..Plan::quiet(seed) }
}

/// The store's clock is set forward while its owner cannot reach it: another server acquires the shards at once, and
/// the former owner renews the leases of its workers until its own lease ends. Two workers know only one server.
fn store_clocks_set_forward(seed: u64) -> Plan {
    let step = |n: u64| Fault::new(30 + 45 * n, 20, FaultKind::StepStoreClock { millis: 60_000 });
    let plan = owners_cut_from_the_store(seed);
    let mut faults = [plan.faults.clone(), vec![step(0), step(1)]].concat();
    faults.sort_by_key(|fault| fault.at);
    Plan { faults, ..plan }
}

/// Many commits with unknown outcome under a high request rate.
fn unknown_outcomes(seed: u64) -> Plan {
    let hide = |n: u64| Fault::new(15 + 15 * n, 5, FaultKind::CommitsUnknown { share: 0.3 });
    let burst = |n: u64| Fault::new(16 + 15 * n, 1, FaultKind::Burst { jobs: 60 });
    Plan { faults: (0..7).flat_map(|n| [hide(n), burst(n)]).collect(), ..Plan::quiet(seed) }
}

/// The owner cannot reach the store for longer than all leases, and has so little work that it need not notice. Two
/// workers know only one server.
fn owners_cut_from_the_store(seed: u64) -> Plan {
    let cut =
        |n: u64| Fault::new(30 + 45 * n, 30, FaultKind::CutServerFromStore { server: (n % 2) as usize });
    let alone = |n: usize| Fault::new(3, 117, FaultKind::CutWorker { worker: n, server: (1 + n) % 2 });
    let plan = Plan { servers: 2, workers: 4, jobs: 12, other_asks: 0, schedules: 0, ..Plan::quiet(seed) };
    let task_max = Duration::from_secs(90);
    Plan { faults: vec![alone(0), alone(1), cut(0), cut(1)], task_max, ..plan }
}

/// Machines crash while their messages are lost.
fn crashes_in_silence(seed: u64) -> Plan {
    let mute = |n: u64| Fault::new(8 + 9 * n, 2, FaultKind::MuteWorker { worker: (n % 2) as usize });
    let machine = |n: u64| Fault::new(9 + 9 * n, 1, FaultKind::CrashMachine { worker: (n % 2) as usize });
    let plan =
        Plan { servers: 1, workers: 2, jobs: 300, task_max: Duration::from_secs(2), ..Plan::quiet(seed) };
    Plan { faults: (0..12).flat_map(|n| [mute(n), machine(n)]).collect(), ..plan }
}

/// The same on slow disks, so that starts are pending when the machine crashes.
fn slow_journals(seed: u64) -> Plan {
    Plan { journal_max: Duration::from_secs(2), ..crashes_in_silence(seed) }
}

/// Supervisors pause for longer than their leases, while the rest of the machine runs.
fn paused_supervisors(seed: u64) -> Plan {
    let agent = |n: u64| Fault::new(10 + 20 * n, 14, FaultKind::CrashAgent { worker: (n % 3) as usize });
    let pause = |n: u64| Fault::new(10 + 20 * n, 15, FaultKind::PauseSupervisor { worker: (n % 3) as usize });
    let plan = Plan { task_max: Duration::from_secs(30), jobs: 80, ..Plan::quiet(seed) };
    Plan { faults: (0..5).flat_map(|n| [agent(n), pause(n)]).collect(), ..plan }
}

/// Supervisors are paused while their leases are renewed, a little longer than a lease.
fn briefly_paused_supervisors(seed: u64) -> Plan {
    let pause = |n: u64| Fault::new(10 + 12 * n, 7, FaultKind::PauseSupervisor { worker: (n % 3) as usize });
    let plan = Plan { task_max: Duration::from_secs(30), jobs: 80, ..Plan::quiet(seed) };
    Plan { faults: (0..9).map(pause).collect(), ..plan }
}

/// Workers are cut off for longer than their leases, repeatedly.
fn cut_workers(seed: u64) -> Plan {
    let cut =
        |n: u64, server| Fault::new(8 + 12 * n, 9, FaultKind::CutWorker { worker: (n % 3) as usize, server });
    let plan = Plan { task_max: Duration::from_secs(30), jobs: 80, ..Plan::quiet(seed) };
    Plan { faults: (0..9).flat_map(|n| [cut(n, 0), cut(n, 1)]).collect(), ..plan }
}

/// The same with fuses that fail. Only a fuse can freeze a program that is being loaded, so loading takes less than the
/// margin after a lease.
fn broken_fuses(seed: u64) -> Plan {
    let mut plan = Plan { slow_loads: (0.5, 200), ..cut_workers(seed) };
    plan.faults.extend((0..3).map(|worker| Fault::new(2, 117, FaultKind::BreakFuse { worker })));
    plan
}

/// Workers are cut off while tasks save checkpoints.
fn cut_workers_that_save(seed: u64) -> Plan {
    Plan { saves: 2_000, ..cut_workers(seed) }
}

/// Answers take longer than the margin of a lease, and then stop.
fn slow_answers(seed: u64) -> Plan {
    let delay = Duration::from_secs(4);
    let slow = FaultKind::RoughNet { loss: 0.0, duplicate: 0.0, reorder: false, delay };
    let mut plan = cut_workers(seed);
    plan.faults.push(Fault::new(1, 118, slow));
    plan
}

/// Servers crash during runs of workflows.
fn runs_through_crashes(seed: u64) -> Plan {
    let crash = |n: u64| Fault::new(10 + 15 * n, 3, FaultKind::CrashServer { server: (n % 2) as usize });
    let faults = (0..7).map(crash).collect();
    Plan { workflows: 4, runs: 30, run_asks: 0, jobs: 5, faults, ..Plan::quiet(seed) }
}

/// The store loses commits repeatedly, while tasks run that the next owner does not know.
fn shards_with_lost_commits(seed: u64) -> Plan {
    let lose = |n: u64| Fault::new(10 + 12 * n, 1, FaultKind::LoseTail { commits: 12 });
    let faults = (0..9).map(lose).collect();
    Plan { jobs: 200, task_max: Duration::from_secs(20), keeps_all: false, faults, ..Plan::quiet(seed) }
}

/// The clock of the only server is ten days ahead for a few seconds, repeatedly.
fn leaps(seed: u64) -> Plan {
    let millis = 10 * 24 * 3_600 * 1_000;
    let leap = |n: u64| Fault::new(15 + 25 * n, 4, FaultKind::StepClock { server: 0, millis });
    Plan { servers: 1, schedules: 8, faults: (0..4).map(leap).collect(), ..Plan::quiet(seed) }
}

/// Outages of all servers that are longer than a firing may be late, repeatedly.
fn outages(seed: u64) -> Plan {
    let faults = (0..4).flat_map(|n| {
        let crash = |server| Fault::new(20 + 25 * n, 15, FaultKind::CrashServer { server });
        [crash(0), crash(1)]
    });
    Plan { schedules: 8, jobs: 5, faults: faults.collect(), ..Plan::quiet(seed) }
}

/// Clients cancel long tasks while workers are cut off occasionally.
fn long_tasks_on_cut_workers(seed: u64) -> Plan {
    let cut =
        |n: u64, server| Fault::new(8 + 12 * n, 3, FaultKind::CutWorker { worker: (n % 3) as usize, server });
    let faults = (0..9).flat_map(|n| [cut(n, 0), cut(n, 1)]).collect();
    Plan { other_asks: 60, faults, ..long_tasks(seed) }
}

/// Tasks that run far longer than their timeouts.
fn long_tasks(seed: u64) -> Plan {
    Plan { task_max: Duration::from_secs(600), calm: Duration::from_secs(600), jobs: 10, ..Plan::quiet(seed) }
}
