//! Mutation tests: deliberate bugs in the code of the product.
//!
//! A simulator, a checker or a test suite that finds no bug proves something only if it would find one. So the code
//! that a guarantee depends on contains calls of [`is_on`], one line each. If the [`Mutation`] of the call is on, the
//! code has a bug there, and the tests of the guarantee must report a violation.
//!
//! `belfry-sim mutations` tests the mutations of the cores (engine, leader, supervisor, fuse), which it simulates.
//! `belfry-node-sim mutations` tests those of agent and store; it simulates server, agent and store.
//!
//! # Invariants
//! - No environment variable, option or request switches a mutation on: only a call of [`enable_in_thread`] or [`enable_in_process`] does.
//! - A release build has no mutations: [`is_on`] is always `false`.
//!
//! # Cost
//! None in a release build. In a debug build, [`is_on`] reads one thread-local and one global value.

#[cfg(debug_assertions)]
mod switch;
#[cfg(not(debug_assertions))]
#[path = "none.rs"]
mod switch;

use std::fmt;
use std::str::FromStr;

pub use switch::{ThreadGuard, enable_in_process, enable_in_thread, is_on};

/// Whether this build contains mutations that can be switched on: `true` in a debug build only.
pub const ARE_BUILT_IN: bool = cfg!(debug_assertions);

macro_rules! mutations {
    ($($(#[doc = $doc:literal])* $mutation:ident = $name:literal,)*) => {
        /// Deliberate bug. Each variant describes the wrong behavior.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutation { $($(#[doc = $doc])* $mutation,)* }

        impl Mutation {
            /// All mutations.
            pub const ALL: &[Self] = &[$(Self::$mutation,)*];

            /// Returns the name on the command line: component and wrong behavior, for example `engine-forgets-keys`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$mutation => $name,)* }
            }

            /// Returns the component that contains the mutation, for example `engine`.
            pub fn part(self) -> &'static str {
                self.name().split('-').next().unwrap_or_default()
            }
        }
    };
}

mutations! {
    /// Does not store the idempotency key of a submission.
    EngineForgetsKeys = "engine-forgets-keys",
    /// Retries a job without its retry delay.
    EngineSkipsBackoffs = "engine-skips-backoffs",
    /// Allows one retry more than the retry policy.
    EngineRetriesOnceMore = "engine-retries-once-more",
    /// Starts an `at_most_once` job again after its worker is lost.
    EngineRepeatsAtMostOnce = "engine-repeats-at-most-once",
    /// Does not stop a job that was cancelled while its worker was disconnected.
    EngineSendsNoStop = "engine-sends-no-stop",
    /// Declares a worker lost after half of its lease.
    EngineExpiresLeasesEarly = "engine-expires-leases-early",
    /// Declares workers lost at a takeover, without time to reconnect to the new leader.
    EngineExpiresLeasesAtTakeover = "engine-expires-leases-at-takeover",
    /// Does not retry the jobs of a worker whose lease has expired.
    EngineKeepsJobsOfLostWorkers = "engine-keeps-jobs-of-lost-workers",
    /// Resumes a frozen execution when its lost worker reconnects, even if a limit is then exceeded.
    EngineResumesBeyondLimits = "engine-resumes-beyond-limits",
    /// Does not stop executions that a worker holds but that are no longer current.
    EngineIgnoresStrayExecutions = "engine-ignores-stray-executions",
    /// Starts jobs without reconciliation after the store lost commits.
    EngineSkipsReconciliation = "engine-skips-reconciliation",
    /// Does not send an assignment again that the worker did not receive.
    EngineSendsAssignmentsOnce = "engine-sends-assignments-once",
    /// Does not increase the fence of a job.
    EngineKeepsTheFence = "engine-keeps-the-fence",
    /// Allows one running job more than the limit of a queue.
    EngineOverfillsQueues = "engine-overfills-queues",
    /// Allows one running job more than the limit of a concurrency key.
    EngineOverfillsKeys = "engine-overfills-keys",
    /// Does not count starts towards the rate limit of a queue.
    EngineForgetsRates = "engine-forgets-rates",
    /// Places one execution more on a worker than it has slots.
    EngineOverfillsWorkers = "engine-overfills-workers",
    /// Allows one more running job than the quota of a namespace.
    EngineExceedsQuotas = "engine-exceeds-quotas",
    /// Preempts jobs of the same and of higher priority classes too.
    EnginePreemptsEqualClasses = "engine-preempts-equal-classes",
    /// Lets a preempted job preempt others.
    EngineChainsPreemptions = "engine-chains-preemptions",
    /// Counts a preemption as a lost execution.
    EngineCountsPreemptionsAsLosses = "engine-counts-preemptions-as-losses",
    /// Accepts reports of health from earlier sessions of a worker.
    EngineAcceptsStaleHealth = "engine-accepts-stale-health",
    /// Stops one available replica more than the update policy of its service allows.
    EngineStopsTooManyReplicas = "engine-stops-too-many-replicas",
    /// Counts a replica as available as soon as it has started.
    EngineIgnoresHealthChecks = "engine-ignores-health-checks",
    /// Does not replace a replica whose job has ended.
    EngineForgetsEndedReplicas = "engine-forgets-ended-replicas",
    /// Replaces replicas of older revisions although the rollout is paused.
    EngineContinuesPausedRollouts = "engine-continues-paused-rollouts",
    /// Gives a new replica the number of a live one.
    EngineReusesReplicaNumbers = "engine-reuses-replica-numbers",
    /// Does not change services with one replica on each worker when workers change.
    EngineIgnoresNewWorkers = "engine-ignores-new-workers",
    /// Automatic scaling decides, and the number of replicas stays.
    EngineIgnoresScaling = "engine-ignores-scaling",
    /// Starts a job although a service that it requires is not available.
    EngineIgnoresRequiredServices = "engine-ignores-required-services",
    /// Binds a second replica to a worker that has one.
    EngineBindsReplicasTwice = "engine-binds-replicas-twice",
    /// Ends a replica that exits with success.
    EngineEndsExitedReplicas = "engine-ends-exited-replicas",
    /// Ignores start deadlines.
    EngineMissesDeadlines = "engine-misses-deadlines",
    /// Ignores completion deadlines.
    EngineMissesFinishDeadlines = "engine-misses-finish-deadlines",
    /// Starts a job again, however often it was lost with its worker.
    EngineReplacesLostForever = "engine-replaces-lost-forever",
    /// Starts a job again that its completion deadline stopped.
    EngineRetriesOverdueJobs = "engine-retries-overdue-jobs",
    /// Fires a schedule that has reached its limit of concurrent runs.
    EngineIgnoresOverlap = "engine-ignores-overlap",
    /// Drops the first missed firing that must be caught up after an outage.
    EngineDropsTheFirstMissedFiring = "engine-drops-the-first-missed-firing",
    /// Ignores an outage: advances the cursor of a schedule to the current time.
    EngineIgnoresOutages = "engine-ignores-outages",
    /// Accepts every jump of the wall clock.
    EngineAcceptsClockJumps = "engine-accepts-clock-jumps",
    /// Catches up a missed firing at once, even if runs or other firings come first.
    EngineCatchesUpAtOnce = "engine-catches-up-at-once",
    /// Skips a firing because of a run of a backfill or of a catch-up.
    EngineSkipsForBackfills = "engine-skips-for-backfills",
    /// Fires at a scheduled time that a filter excludes.
    EngineIgnoresFilters = "engine-ignores-filters",
    /// Starts a step before its join rule has decided.
    EngineStartsStepsEarly = "engine-starts-steps-early",
    /// Does not notify one of the downstream steps when a step ends.
    EngineNotifiesOneStepLess = "engine-notifies-one-step-less",
    /// Starts a job before its upstream jobs have ended.
    EngineIgnoresUpstreamJobs = "engine-ignores-upstream-jobs",
    /// Takes an upstream job that it does not have for one that ended as required.
    EngineAcceptsUnknownUpstreamJobs = "engine-accepts-unknown-upstream-jobs",
    /// Starts a job after its upstream jobs have ended, whatever their status.
    EngineIgnoresUpstreamConditions = "engine-ignores-upstream-conditions",
    /// Does not start the jobs that waited for the end of a job.
    EngineForgetsDownstreamJobs = "engine-forgets-downstream-jobs",
    /// A standby does not read changed jobs again.
    EngineFollowerMissesChangedJobs = "engine-follower-misses-changed-jobs",
    /// A leader renews worker leases and answers from memory after its own lease has expired.
    LeaderIgnoresItsOwnLease = "leader-ignores-its-own-lease",
    /// Sends replies and assignments before their commit.
    LeaderReleasesBeforeCommits = "leader-releases-before-commits",
    /// Sends replies before their commit, but no other effects.
    LeaderRepliesBeforeCommits = "leader-replies-before-commits",
    /// Sends replies that need no commit before the in-flight commits have ended.
    LeaderRepliesBeforeEarlierCommits = "leader-replies-before-earlier-commits",
    /// Releases the effects of all in-flight commits with the first of them.
    LeaderReleasesAllInFlightCommits = "leader-releases-all-in-flight-commits",
    /// Keeps the engine running after a failed commit.
    LeaderContinuesAfterFailedCommits = "leader-continues-after-failed-commits",
    /// Tells clients that a request was not processed, although the outcome of its commit is unknown.
    LeaderReportsUnknownAsRefused = "leader-reports-unknown-as-refused",
    /// A standby takes over without reading the last changes.
    LeaderTakesOverWithoutReading = "leader-takes-over-without-reading",
    /// Does not wait for the worker leases that a former leader may still renew after a step of the store's clock.
    LeaderIgnoresTheFormerOwner = "leader-ignores-the-former-owner",
    /// Drops the batches for which a full store had no space, and continues.
    LeaderForgetsRefusedBatches = "leader-forgets-refused-batches",
    /// Launches a task before its start is in the journal.
    SupervisorStartsBeforeItsJournal = "supervisor-starts-before-its-journal",
    /// Freezes no task when the lease expires.
    SupervisorIgnoresLeaseExpiry = "supervisor-ignores-lease-expiry",
    /// Does not thaw a task that the fuse froze during its launch.
    SupervisorLeavesLaunchesFrozen = "supervisor-leaves-launches-frozen",
    /// Ends no task at its timeout.
    SupervisorIgnoresTimeouts = "supervisor-ignores-timeouts",
    /// Counts frozen time towards timeouts.
    SupervisorCountsFrozenTime = "supervisor-counts-frozen-time",
    /// Forgets the end of an execution after the first report, without an acknowledgement.
    SupervisorReportsOnce = "supervisor-reports-once",
    /// A restarted supervisor ignores the executions that its journal contains as started.
    SupervisorForgetsStartedExecutions = "supervisor-forgets-started-executions",
    /// Starts an execution again whose end was acknowledged.
    SupervisorRestartsAcknowledgedExecutions = "supervisor-restarts-acknowledged-executions",
    /// Omits the running executions from a compacted journal.
    SupervisorCompactsRunningExecutionsAway = "supervisor-compacts-running-executions-away",
    /// Freezes no task when the lease expires.
    FuseDoesNotFire = "fuse-does-not-fire",
    /// Does not report to the supervisor that it has frozen tasks.
    FuseDoesNotReport = "fuse-does-not-report",
    /// Counts a worker lease from the receipt of the grant instead of the sending of the heartbeat.
    AgentCountsLeasesFromAnswers = "agent-counts-leases-from-answers",
    /// Sends no executions in the `Hello` of a new session.
    AgentHidesHeldExecutions = "agent-hides-held-executions",
    /// Does not repeat unacknowledged reports.
    AgentReportsOnce = "agent-reports-once",
    /// Does not pass stops to the supervisor.
    AgentForgetsStops = "agent-forgets-stops",
    /// Does not write the idempotency keys of submissions.
    StoreForgetsKeys = "store-forgets-keys-of-submissions",
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Error: a name that no mutation has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMutation(String);

impl fmt::Display for UnknownMutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "mutation `{}` does not exist: `belfry-sim mutations` and `belfry-node-sim mutations` list all mutations",
            self.0
        )
    }
}

impl std::error::Error for UnknownMutation {}

impl FromStr for Mutation {
    type Err = UnknownMutation;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().copied().find(|mutation| mutation.name() == name);
        found.ok_or_else(|| UnknownMutation(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutation_names_are_unique_and_parse() {
        for &mutation in Mutation::ALL {
            assert_eq!(mutation.name().parse(), Ok(mutation));
        }
        assert_eq!("engine-is-right".parse::<Mutation>(), Err(UnknownMutation("engine-is-right".into())));
    }

    #[cfg(debug_assertions)]
    #[test]
    fn a_mutation_is_on_in_its_thread_until_its_guard_is_dropped() {
        let on = || is_on(Mutation::EngineForgetsKeys);
        assert!(!on());
        let guard = enable_in_thread(Mutation::EngineForgetsKeys);
        assert!(on() && !is_on(Mutation::EngineSkipsBackoffs));
        assert!(!std::thread::spawn(on).join().unwrap());
        drop(guard);
        assert!(!on());
    }
}
