//! Named points at which a test kills the process.
//!
//! Each stands between two steps of a promise, where kills at random times hardly ever hit: a commit
//! is durable and nobody was answered; a start is in the journal and nothing runs. Server and worker
//! call [`reach`] there, one line each.
//!
//! A test names a file in `BELFRY_TEST_CRASH`, and writes an [`order`] into it whenever it likes. The
//! process that reaches the point as often as the order says removes the file and dies as by `kill -9`. Who is
//! started next over the same file finds none, so one order kills one process once.
//!
//! # Cost
//! Nothing in release builds: [`is_armed`] is `false` there, and [`reach`] is empty. A debug build
//! without the variable looks at a static; with it, it reads a file of a few bytes at each point.

#[cfg(debug_assertions)]
mod armed;

/// The environment variable that names the file.
pub const VARIABLE: &str = "BELFRY_TEST_CRASH";

macro_rules! points {
    ($($(#[doc = $doc:literal])* $point:ident = $name:literal,)*) => {
        /// Where a process can be killed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Point { $($(#[doc = $doc])* $point,)* }

        impl Point {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$point,)*];

            /// Its name: step, then moment.
            pub fn name(self) -> &'static str {
                match self { $(Self::$point => $name,)* }
            }
        }
    };
}

points! {
    /// The engine has made jobs; no store has them.
    AcceptBeforeCommit = "accept before commit",
    /// Jobs are durable; their clients know nothing.
    AcceptAfterCommit = "accept after commit",
    /// Their clients are being answered.
    AcceptAfterEffects = "accept after effects",
    /// A schedule has fired; its run, cursor and ledger are in no store.
    FireBeforeCommit = "fire before commit",
    /// They are durable.
    FireAfterCommit = "fire after commit",
    /// What follows from them is under way.
    FireAfterEffects = "fire after effects",
    /// Executions were placed; no store has them.
    DispatchBeforeCommit = "dispatch before commit",
    /// They are durable; no worker has heard of them.
    DispatchAfterCommit = "dispatch after commit",
    /// They are on their way to workers.
    DispatchAfterEffects = "dispatch after effects",
    /// A worker has started them; no store knows it.
    StartBeforeCommit = "start before commit",
    /// That is durable; the worker's report is not acknowledged.
    StartAfterCommit = "start after commit",
    /// The acknowledgement is on its way.
    StartAfterEffects = "start after effects",
    /// A result was accepted; no store has it.
    FinishBeforeCommit = "finish before commit",
    /// It is durable; the worker still holds it.
    FinishAfterCommit = "finish after commit",
    /// The worker is being told that it may forget it.
    FinishAfterEffects = "finish after effects",
    /// A step of a run has ended, and what follows it has begun; no store has either.
    StepBeforeCommit = "step before commit",
    /// Both are durable.
    StepAfterCommit = "step after commit",
    /// What follows is on its way to workers.
    StepAfterEffects = "step after effects",
    /// The agent has an assignment; its supervisor has not heard of it.
    AgentHasAssignment = "agent has assignment",
    /// The agent has reports; the server has not heard of them.
    AgentHasReports = "agent has reports",
    /// The supervisor has decided something; its journal has none of it.
    JournalBeforeWrite = "journal before write",
    /// The supervisor is about to write down a start.
    StartBeforeJournal = "start before journal",
    /// The start is in the journal; nothing runs.
    StartAfterJournal = "start after journal",
    /// The task runs; nobody but its journal knows.
    StartAfterExec = "start after exec",
    /// The task and all its processes have ended; no journal has the outcome.
    FinishBeforeJournal = "finish before journal",
    /// The outcome is in the journal; nobody was told.
    FinishAfterJournal = "finish after journal",
    /// The server has acknowledged it; the journal still holds it.
    FinishAfterAck = "finish after ack",
}

/// What a test writes into the file: dies when `point` is reached for the `nth` time (from 1).
///
/// `serial` tells orders apart: a process begins to count anew with each.
pub fn order(point: Point, nth: u32, serial: u32) -> String {
    format!("{serial}:{nth}:{}", point.name())
}

/// Whether this process could be killed at any point; for callers to whom knowing which they reach
/// costs something.
#[cfg(debug_assertions)]
pub fn is_armed() -> bool {
    armed::file().is_some()
}

/// Whether this process could be killed at any point: not in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn is_armed() -> bool {
    false
}

/// The process is at this point. Does not return if a test wants it dead here.
#[inline(always)]
pub fn reach(point: Point) {
    #[cfg(debug_assertions)]
    if let Some(file) = armed::file() {
        armed::reach(file, point);
    }
    #[cfg(not(debug_assertions))]
    let _ = point;
}
