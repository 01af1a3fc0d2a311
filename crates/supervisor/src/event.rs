//! What the shell tells the core, and what the core tells the shell to do.

use std::fmt::Debug;

use model::{ExecutionId, Fence, JobId};

use crate::journal::Batch;
use crate::{BootMillis, Moment};

/// What a shell attaches to executions. The core carries these values and never looks into them.
pub trait Payloads {
    /// Everything that is needed to start an execution.
    type Order: Debug;
    /// Everything that is needed to store the output files of an execution.
    type Assignment: Debug + Clone;
    /// How an execution ended, with its usage and output.
    type End: Debug + Clone;
    /// Which output files were stored, or why they were not.
    type Stored: Debug;

    /// Returns the end of an execution that was running when its supervisor or its machine went down.
    fn interrupted() -> Self::End;

    /// Changes `end` into that of an execution that was stopped while its output files were stored.
    fn stop_while_storing(end: &mut Self::End);

    /// Adds to `end` what came of storing the output files.
    fn add_outputs(end: &mut Self::End, stored: Self::Stored);
}

/// An execution that the server assigns to this worker.
#[derive(Debug)]
pub struct Assigned<P: Payloads> {
    /// Its id.
    pub execution: ExecutionId,
    /// Its fence.
    pub fence: Fence,
    /// Its job.
    pub job: Option<JobId>,
    /// What the core needs to know of the job.
    pub terms: Terms,
    /// What is needed to start it, or why it cannot be started.
    pub order: Result<P::Order, StartFailure>,
    /// Whether the disk of the worker's folder has no space for new work.
    pub disk_full: bool,
}

/// What the core needs to know of the job of an execution.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms {
    /// Whether the execution continues without a lease: the server starts it nowhere else.
    pub at_most_once: bool,
    /// How long it may run, in milliseconds.
    pub timeout: Option<u64>,
    /// How long it may take to end after it was asked to, in milliseconds.
    pub grace: u64,
}

/// Why an execution could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartFailure {
    /// A stable word.
    pub code: String,
    /// One line for people.
    pub detail: String,
}

/// What happens around the core.
#[derive(Debug)]
pub enum Event<P: Payloads> {
    /// An agent has connected. It says how many slots the worker has.
    AgentConnected {
        /// The most executions that may be active.
        slots: usize,
    },
    /// The server assigned an execution.
    Assigned(Box<Assigned<P>>),
    /// The server wants an execution to end.
    StopRequested {
        /// Which one.
        execution: ExecutionId,
        /// The fence that the server knows.
        fence: Fence,
        /// How long it may take to end, in milliseconds.
        grace: u64,
        /// Whether the server wants no report of it.
        discard: bool,
    },
    /// The server has recorded the end of an execution.
    EndAcknowledged {
        /// Which one.
        execution: ExecutionId,
        /// The fence of the report.
        fence: Fence,
    },
    /// The worker's lease lasts until then.
    LeaseRenewed {
        /// The end of the lease.
        until: BootMillis,
    },
    /// The agent has stored the output files of an execution, or cannot.
    OutputsStored {
        /// Which one.
        execution: ExecutionId,
        /// What came of it.
        stored: P::Stored,
    },
    /// The batch of the last [`Action::WriteJournal`] is durable.
    JournalWritten,
    /// The answer to [`Action::ObserveLaunch`].
    LaunchObserved {
        /// Which execution.
        execution: ExecutionId,
        /// When a thread began to start it; `None` while it waits for one.
        began: Option<Moment>,
    },
    /// A launch was not begun because the lease had ended.
    LaunchHeldBack {
        /// Of which execution.
        execution: ExecutionId,
    },
    /// A launch was not begun because of an [`Action::KillLaunch`].
    LaunchCancelled {
        /// Of which execution.
        execution: ExecutionId,
    },
    /// A launch failed; nothing of the program ran.
    LaunchFailed {
        /// Of which execution.
        execution: ExecutionId,
        /// Why; the worker refuses the execution where it is [`Refusal`](crate::Report::Refused).
        failure: LaunchFailure,
    },
    /// A program was loaded.
    Launched {
        /// Of which execution.
        execution: ExecutionId,
        /// When its launch began.
        at: Moment,
        /// How its main process ended, if it has already.
        exit: Option<EarlyExit>,
    },
    /// The main process of an execution has ended; others of it may be alive.
    Exited {
        /// Which execution.
        execution: ExecutionId,
    },
    /// No process of an execution is alive.
    Gone {
        /// Which execution.
        execution: ExecutionId,
        /// How it ended, given its [`Verdict`](crate::Verdict).
        end: P::End,
        /// The assignment, if output files are to be stored now.
        outputs: Option<P::Assignment>,
    },
    /// The fuse has frozen all executions that need a lease.
    FuseFroze {
        /// When.
        since: Moment,
    },
    /// The fuse has ended, or was replaced. It may have frozen executions before.
    FuseLost,
    /// The time of [`Supervisor::next_alarm`](crate::Supervisor::next_alarm) has come.
    AlarmDue,
    /// The process was told to end.
    ShutDown,
}

/// Why a launch failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchFailure {
    /// The job is to blame, or the worker is: the attempt failed.
    Failed(StartFailure),
    /// The disk of the worker's folder is full: another worker may have space.
    DiskFull,
}

/// How a main process ended before the core heard that it was launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyExit {
    /// A SIGKILL ended it.
    Killed,
    /// It ended by itself.
    ByItself,
}

/// What the shell has to do.
#[derive(Debug)]
pub enum Action<P: Payloads> {
    /// Append a batch to the journal, then send [`Event::JournalWritten`].
    WriteJournal(Batch<P>),
    /// Tell the launching threads and the fuse until when the lease lasts. The fuse hears it before any thaw.
    TellLease(BootMillis),
    /// Send [`Event::LaunchObserved`].
    ObserveLaunch(ExecutionId),
    /// Keep the threads from beginning these launches, and then kill every process that was made for them.
    KillLaunches(Vec<ExecutionId>),
    /// Release what was prepared for a launch that was held back.
    DropLaunch(ExecutionId),
    /// Send SIGTERM to the process group of an execution.
    Terminate(ExecutionId),
    /// Kill all processes of these executions.
    Kill(Vec<ExecutionId>),
    /// Stop all processes of these executions.
    Freeze(Vec<ExecutionId>),
    /// Let all processes of these executions continue.
    Thaw(Vec<ExecutionId>),
    /// Remove the folder of an execution whose output files were to be stored: its end is durable.
    RemoveFolder(ExecutionId),
    /// Drop the log of an execution that the server wants nothing of.
    DropLog(ExecutionId),
}
