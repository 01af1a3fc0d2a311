//! Deliberate bugs in the product's own code.
//!
//! A simulator, a checker or a test suite that finds nothing proves something only if it would find a
//! bug. So at some of the places on which a promise rests stands [`is_on`], one line each: with its
//! [`Mutation`] on, the code does there what a mistake would have made of it, and whoever proves that
//! promise has to find out.
//!
//! Those of the cores (engine, leader, supervisor) are looked for by `belfry-sim mutations`, which plays these; those of
//! agent and store by `belfry-node-sim mutations`, which plays server, agent and store.
//!
//! # Cost
//! Nothing in release builds: [`is_on`] is `false` there, and nothing can switch one on. In a debug build it
//! reads a number of its thread and one of its process. No variable, option or request reaches them: only a program
//! that calls [`here`] or [`everywhere`] has a bug.

#[cfg(debug_assertions)]
mod switch;
#[cfg(not(debug_assertions))]
#[path = "none.rs"]
mod switch;

use std::fmt;
use std::str::FromStr;

pub use switch::{Here, everywhere, here, is_on};

/// Whether this build has deliberate bugs that can be switched on; a release build has none.
pub const ARE_BUILT_IN: bool = cfg!(debug_assertions);

macro_rules! mutations {
    ($($(#[doc = $doc:literal])* $mutation:ident = $name:literal,)*) => {
        /// What can be done wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutation { $($(#[doc = $doc])* $mutation,)* }

        impl Mutation {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$mutation,)*];

            /// Its name: whose it is, then what is done wrong.
            pub fn name(self) -> &'static str {
                match self { $(Self::$mutation => $name,)* }
            }

            /// Whose it is: `engine`, ….
            pub fn part(self) -> &'static str {
                self.name().split('-').next().unwrap_or_default()
            }
        }
    };
}

mutations! {
    /// A key that was used for a submission is not kept.
    EngineForgetsKeys = "engine-forgets-keys",
    /// A job that is retried is due at once.
    EngineSkipsBackoffs = "engine-skips-backoffs",
    /// A failure is retried once more than the policy lets it.
    EngineRetriesOnceMore = "engine-retries-once-more",
    /// What may run once is given to another worker when its own is lost.
    EngineRepeatsAtMostOnce = "engine-repeats-at-most-once",
    /// A job that was cancelled while its worker was away is never told to stop.
    EngineForgetsToStop = "engine-forgets-to-stop",
    /// A worker is judged half way through its lease.
    EngineJudgesWorkersEarly = "engine-judges-workers-early",
    /// A new owner judges workers at once that had no time to come to it.
    EngineJudgesWorkersAtTakeover = "engine-judges-workers-at-takeover",
    /// A worker whose lease is over keeps its jobs.
    EngineWaitsForLostWorkers = "engine-waits-for-lost-workers",
    /// A frozen task goes on when its lost worker comes back, whatever runs by then.
    EngineTakesBackBeyondLimits = "engine-takes-back-beyond-limits",
    /// What a worker holds and nobody wants is left alone.
    EngineLeavesStraysAlone = "engine-leaves-strays-alone",
    /// Nothing is held back after the store forgot commits.
    EngineTrustsAStoreThatForgot = "engine-trusts-a-store-that-forgot",
    /// An assignment that was not heard is not said again.
    EngineSaysAssignmentsOnce = "engine-says-assignments-once",
    /// The fence of a job stays as it was.
    EngineKeepsTheFence = "engine-keeps-the-fence",
    /// A queue lets one job more through than its limit.
    EngineOverfillsQueues = "engine-overfills-queues",
    /// A concurrency key lets one job more through than its limit.
    EngineOverfillsKeys = "engine-overfills-keys",
    /// A start takes nothing from its queue's rate.
    EngineForgetsRates = "engine-forgets-rates",
    /// A machine gets one execution more than it has slots.
    EngineOverfillsMachines = "engine-overfills-machines",
    /// A starting deadline that passes is not noticed.
    EngineMissesDeadlines = "engine-misses-deadlines",
    /// A schedule fires whatever runs of it are not over.
    EngineIgnoresOverlap = "engine-ignores-overlap",
    /// The first instant that is owed after an outage is passed over.
    EngineDropsTheFirstOwed = "engine-drops-the-first-owed",
    /// An outage is not noticed: the cursor goes to the present.
    EngineMovesTheCursorFirst = "engine-moves-the-cursor-first",
    /// Whatever the wall clock shows is believed.
    EngineBelievesEveryLeap = "engine-believes-every-leap",
    /// A firing that is owed is decided at once, whatever is in its way.
    EngineDecidesOwedAtOnce = "engine-decides-owed-at-once",
    /// A firing of the present that meets a run of the past is skipped.
    EngineSkipsForThePast = "engine-skips-for-the-past",
    /// An instant that a filter holds is run.
    EngineIgnoresFilters = "engine-ignores-filters",
    /// A step begins when the first of those before it has succeeded.
    EngineBeginsStepsEarly = "engine-begins-steps-early",
    /// The end of a step is told to one step less than need it.
    EngineTellsOneStepLess = "engine-tells-one-step-less",
    /// A server that stands by reads again what others changed, but for jobs.
    EngineMissesWhatOthersChange = "engine-misses-what-others-change",
    /// A leader renews worker leases and answers from memory after its own lease has ended.
    LeaderIgnoresItsOwnLease = "leader-ignores-its-own-lease",
    /// Answers and assignments go out before the commit that they tell of.
    LeaderReleasesBeforeCommits = "leader-releases-before-commits",
    /// Only answers do.
    LeaderRepliesBeforeCommits = "leader-replies-before-commits",
    /// Answers that need no commit do not wait for those that are in flight.
    LeaderRepliesWithoutACommitAtOnce = "leader-replies-without-a-commit-at-once",
    /// With the first commit, the effects of all that are in flight go out.
    LeaderReleasesAllThatIsInFlight = "leader-releases-all-that-is-in-flight",
    /// A commit that failed changes nothing for the engine.
    LeaderGoesOnAfterFailedCommits = "leader-goes-on-after-failed-commits",
    /// Clients are told that nothing happened, although the outcome of their commit is unknown.
    LeaderTakesUnknownForRefused = "leader-takes-unknown-for-refused",
    /// A standby takes over with what it knew when it looked last.
    LeaderTakesOverWithoutALook = "leader-takes-over-without-a-look",
    /// A task is launched before its start is in the journal.
    SupervisorStartsBeforeItsJournal = "supervisor-starts-before-its-journal",
    /// A task whose launch outlasted the lease is not frozen.
    SupervisorTrustsLaunches = "supervisor-trusts-launches",
    /// The end of the lease freezes nothing.
    SupervisorIgnoresTheEndOfItsLease = "supervisor-ignores-the-end-of-its-lease",
    /// A task that the fuse froze while it was launched is not thawed.
    SupervisorLeavesLaunchesFrozen = "supervisor-leaves-launches-frozen",
    /// No task is ended at its timeout.
    SupervisorIgnoresTimeouts = "supervisor-ignores-timeouts",
    /// Frozen time counts towards timeouts.
    SupervisorCountsFrozenTime = "supervisor-counts-frozen-time",
    /// An end is forgotten once it was reported, acknowledged or not.
    SupervisorReportsOnce = "supervisor-reports-once",
    /// What the journal says to have started is nothing to the next supervisor.
    SupervisorForgetsWhatItStarted = "supervisor-forgets-what-it-started",
    /// An execution whose end was acknowledged is started when it is assigned again.
    SupervisorForgetsWhatItForgot = "supervisor-forgets-what-it-forgot",
    /// A lease of a worker counts from the answer to its beat.
    AgentCountsLeasesFromAnswers = "agent-counts-leases-from-answers",
    /// A new session does not hear what is held.
    AgentHidesWhatItHolds = "agent-hides-what-it-holds",
    /// What was not acknowledged is not reported again.
    AgentReportsOnce = "agent-reports-once",
    /// The supervisor never hears of a stop.
    AgentForgetsStops = "agent-forgets-stops",
    /// Keys of submissions are not written.
    StoreForgetsKeys = "store-forgets-keys-of-submissions",
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no mutation has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMutation(String);

impl fmt::Display for UnknownMutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "there is no deliberate bug `{}`: `belfry-sim mutations` and `belfry-node-sim mutations` name them",
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
    fn no_two_mutations_share_a_name_and_each_is_found_by_its_own() {
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
        let guard = here(Mutation::EngineForgetsKeys);
        assert!(on() && !is_on(Mutation::EngineSkipsBackoffs));
        assert!(!std::thread::spawn(on).join().unwrap());
        drop(guard);
        assert!(!on());
    }
}
