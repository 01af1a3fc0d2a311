//! Named crash points at which a test kills the process.
//!
//! A crash point lies between two steps of a guarantee, which a kill at a random time hardly ever hits. Examples: a
//! commit is durable but no client has its answer; a start is in the journal but the task does not run. Server and
//! worker call [`reach`] at each point.
//!
//! A test names a file in `BELFRY_TEST_CRASH` and writes an [`order`] into it at any time. The process that reaches the
//! point for the nth time removes the file and dies as by `kill -9`. The next process finds no file, so one order kills
//! one process once.
//!
//! # Cost
//! None in release builds: [`is_enabled`] is `false`, and [`reach`] is empty. A debug build without the variable checks a
//! static; with the variable, it reads a file of a few bytes at each point.

#[cfg(debug_assertions)]
mod enabled;

/// Environment variable with the path of the order file.
pub const VARIABLE: &str = "BELFRY_TEST_CRASH";

macro_rules! points {
    ($($(#[doc = $doc:literal])* $point:ident = $name:literal,)*) => {
        /// Crash point: a place in the code at which a test can kill the process.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Point { $($(#[doc = $doc])* $point,)* }

        impl Point {
            /// All crash points.
            pub const ALL: &[Self] = &[$(Self::$point,)*];

            /// Returns the name: step, then moment. It is stable, because orders contain it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$point => $name,)* }
            }
        }
    };
}

points! {
    /// The engine has created jobs; they are not committed.
    AcceptBeforeCommit = "accept before commit",
    /// Jobs are committed; no client has an answer.
    AcceptAfterCommit = "accept after commit",
    /// The answers to the clients are being sent.
    AcceptAfterEffects = "accept after effects",
    /// A schedule has fired; its run, cursor and ledger entry are not committed.
    FireBeforeCommit = "fire before commit",
    /// The firing is committed; none of its effects is released.
    FireAfterCommit = "fire after commit",
    /// The effects of the firing are being released.
    FireAfterEffects = "fire after effects",
    /// Executions were placed; they are not committed.
    DispatchBeforeCommit = "dispatch before commit",
    /// Executions are committed; no worker has received them.
    DispatchAfterCommit = "dispatch after commit",
    /// Executions are being sent to workers.
    DispatchAfterEffects = "dispatch after effects",
    /// A worker has started executions; the start is not committed.
    StartBeforeCommit = "start before commit",
    /// The start is committed; the worker's report is not acknowledged.
    StartAfterCommit = "start after commit",
    /// The acknowledgement of the start is being sent.
    StartAfterEffects = "start after effects",
    /// A result was accepted; it is not committed.
    FinishBeforeCommit = "finish before commit",
    /// The result is committed; the worker still holds it.
    FinishAfterCommit = "finish after commit",
    /// The acknowledgement of the result, after which the worker deletes it, is being sent.
    FinishAfterEffects = "finish after effects",
    /// A step of a run has ended and its downstream steps have started; neither is committed.
    StepBeforeCommit = "step before commit",
    /// The end of the step and its downstream steps are committed.
    StepAfterCommit = "step after commit",
    /// The downstream steps are being sent to workers.
    StepAfterEffects = "step after effects",
    /// The agent has an assignment; its supervisor has not received it.
    AgentHasAssignment = "agent has assignment",
    /// The agent has reports; the server has not received them.
    AgentHasReports = "agent has reports",
    /// The supervisor has decided; the decision is not in its journal.
    JournalBeforeWrite = "journal before write",
    /// The supervisor is about to write a start to its journal.
    StartBeforeJournal = "start before journal",
    /// The start is in the journal; the task does not run.
    StartAfterJournal = "start after journal",
    /// The task runs; its start is only in the journal.
    StartAfterExec = "start after exec",
    /// The task and all its processes have ended; the outcome is in no journal.
    FinishBeforeJournal = "finish before journal",
    /// The outcome is in the journal; it is not reported.
    FinishAfterJournal = "finish after journal",
    /// The server has acknowledged the outcome; the journal still holds it.
    FinishAfterAck = "finish after ack",
}

/// Returns the content of the order file: the process dies when it reaches `point` for the `nth` time, counted from 1.
///
/// `serial` distinguishes orders: a process restarts its count with each new one.
pub fn order(point: Point, nth: u32, serial: u32) -> String {
    format!("{serial}:{nth}:{}", point.name())
}

/// Returns whether an order file is configured. For callers that need extra work to find out which point they reach.
#[cfg(debug_assertions)]
pub fn is_enabled() -> bool {
    enabled::file().is_some()
}

/// Returns `false`: a release build has no crash points.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn is_enabled() -> bool {
    false
}

/// Marks a crash point. Does not return if the current order names this point.
#[inline(always)]
pub fn reach(point: Point) {
    #[cfg(debug_assertions)]
    if let Some(file) = enabled::file() {
        enabled::reach(file, point);
    }
    #[cfg(not(debug_assertions))]
    let _ = point;
}
