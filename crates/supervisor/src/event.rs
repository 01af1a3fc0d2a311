//! Events from the shell to the core, and actions from the core to the shell.
//!
//! [`Event`] is what a shell passes to [`Supervisor::handle`](crate::Supervisor::handle): messages of the
//! agent, ends of processes, and results of actions. [`Action`] is what it then carries out, in order. An
//! action that needs an answer names the event that answers it.
//!
//! [`Payloads`] keeps processes, files and messages out of the core: a shell chooses these types, and the
//! core only moves their values. The simulators use small ones.

use std::fmt::Debug;

use model::{ExecutionId, Fence, JobId, StopReason};

use crate::journal::Batch;
use crate::{BootMillis, ClockReading};

/// Data that a shell attaches to executions. The core carries these values and never reads them.
pub trait Payloads {
    /// Data for starting an execution.
    type StartRequest: Debug;
    /// Data for storing the outputs of an execution.
    type Assignment: Debug + Clone;
    /// End of an execution, with its usage and output.
    type End: Debug + Clone;
    /// Stored outputs, or the reason why they could not be stored.
    type Stored: Debug;

    /// Returns the end of an execution that was running when its supervisor or its machine stopped.
    fn interrupted() -> Self::End;

    /// Changes `end` to that of an execution that was stopped while its outputs were being stored.
    fn stop_while_storing(end: &mut Self::End);

    /// Adds the result of storing the outputs to `end`.
    fn add_outputs(end: &mut Self::End, stored: Self::Stored);
}

/// An execution that the server has assigned to this worker.
#[derive(Debug)]
pub struct Assigned<P: Payloads> {
    /// Id of the execution.
    pub execution: ExecutionId,
    /// Fence of the execution.
    pub fence: Fence,
    /// Id of the job, if it is known.
    pub job: Option<JobId>,
    /// Properties of the job that the core needs.
    pub policy: ExecutionPolicy,
    /// Data for the start, or the reason why it is impossible.
    pub order: Result<P::StartRequest, StartFailure>,
    /// Whether the disk of the worker folder has no space for further executions.
    pub disk_full: bool,
}

/// Properties of a job that the core needs.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExecutionPolicy {
    /// Whether the execution continues without a lease, because the server never starts it elsewhere.
    pub at_most_once: bool,
    /// Maximum running time in milliseconds; `None` is unlimited.
    pub timeout: Option<u64>,
    /// Grace period between SIGTERM and SIGKILL, in milliseconds.
    pub grace: u64,
}

/// Why an execution could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartFailure {
    /// Stable error code.
    pub code: String,
    /// One-line explanation for users.
    pub detail: String,
}

/// An event that the shell reports to the core.
#[derive(Debug)]
pub enum Event<P: Payloads> {
    /// An agent has connected.
    AgentConnected {
        /// Maximum number of active executions.
        slots: usize,
    },
    /// The server assigned an execution.
    Assigned(Box<Assigned<P>>),
    /// The server has requested an execution to stop.
    StopRequested {
        /// Id of the execution.
        execution: ExecutionId,
        /// Fence of the execution, according to the server.
        fence: Fence,
        /// Grace period in milliseconds.
        grace: u64,
        /// Whether no report about the execution is to be sent.
        discard: bool,
        /// Reason, for the task.
        reason: StopReason,
    },
    /// The server has recorded the end of an execution.
    EndAcknowledged {
        /// Id of the execution.
        execution: ExecutionId,
        /// Fence of the acknowledged report.
        fence: Fence,
    },
    /// The worker's lease was renewed.
    LeaseRenewed {
        /// End of the lease.
        until: BootMillis,
    },
    /// A startup or liveness check of a running execution has failed too often: the execution must end.
    ///
    /// Ignored if the execution was frozen since then, or is already ending.
    CheckFailed {
        /// Id of the execution.
        execution: ExecutionId,
        /// Fence of the execution, according to the agent.
        fence: Fence,
        /// Start of the first of the consecutive failed checks.
        since: BootMillis,
    },
    /// The agent has stored the outputs of an execution, or cannot store them.
    OutputsStored {
        /// Id of the execution.
        execution: ExecutionId,
        /// Result of the storing.
        stored: P::Stored,
    },
    /// The batch of the last [`Action::WriteJournal`] is durable.
    JournalWritten,
    /// Answer to [`Action::ObserveLaunch`].
    LaunchObserved {
        /// Id of the execution.
        execution: ExecutionId,
        /// Time at which a thread began the launch; `None` while it waits for a thread.
        began: Option<ClockReading>,
    },
    /// A launch was not begun because the lease had expired.
    LaunchHeldBack {
        /// Id of the execution.
        execution: ExecutionId,
    },
    /// A launch was not begun because of an [`Action::KillLaunches`].
    LaunchCancelled {
        /// Id of the execution.
        execution: ExecutionId,
    },
    /// A launch failed; no instruction of the program was executed.
    LaunchFailed {
        /// Id of the execution.
        execution: ExecutionId,
        /// Reason; for [`LaunchFailure::DiskFull`] the worker refuses the execution.
        failure: LaunchFailure,
    },
    /// The program of an execution was loaded.
    Launched {
        /// Id of the execution.
        execution: ExecutionId,
        /// Time at which the launch began.
        at: ClockReading,
        /// Exit of the main process, if it has exited already.
        exit: Option<EarlyExit>,
    },
    /// The main process of an execution has exited; other processes of it may be alive.
    Exited {
        /// Id of the execution.
        execution: ExecutionId,
    },
    /// All processes of an execution have exited.
    AllProcessesExited {
        /// Id of the execution.
        execution: ExecutionId,
        /// End of the execution, according to its [`EndReason`](crate::EndReason); or why nothing of the job was run, as only
        /// a shim can find out after its start.
        end: Result<P::End, StartFailure>,
        /// The assignment, if outputs are to be stored now.
        outputs: Option<P::Assignment>,
    },
    /// The fuse has frozen all executions that need a lease.
    FuseFroze {
        /// Time of the freeze.
        since: ClockReading,
    },
    /// The fuse has exited, or was replaced. It may have frozen executions before.
    FuseLost,
    /// The time of [`Supervisor::next_alarm`](crate::Supervisor::next_alarm) was reached.
    AlarmFired,
    /// The supervisor was requested to shut down.
    ShutDown,
}

/// Why a launch failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchFailure {
    /// The job or the worker has caused the failure: the attempt has failed.
    Failed(StartFailure),
    /// The disk of the worker folder is full: the execution is refused, because another worker may have space.
    DiskFull,
}

/// How a main process ended before the core was notified of its launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyExit {
    /// Killed by SIGKILL.
    Killed,
    /// Exited in any other way.
    ByItself,
}

/// An action that the shell must carry out.
#[derive(Debug)]
pub enum Action<P: Payloads> {
    /// Append a batch to the journal, then send [`Event::JournalWritten`].
    WriteJournal(Batch<P>),
    /// Send the end of the lease to the launching threads and to the fuse. The fuse must get it before any thaw.
    PublishLease(BootMillis),
    /// Send [`Event::LaunchObserved`] for this execution.
    ObserveLaunch(ExecutionId),
    /// Forbid the threads to begin these launches, and then kill all processes that were created for them.
    KillLaunches(Vec<ExecutionId>),
    /// Release the resources of a prepared launch that waits for a lease.
    DropLaunch(ExecutionId),
    /// Tell the task the reason, and send SIGTERM to the process group of its execution.
    Terminate(ExecutionId, StopReason),
    /// Kill all processes of these executions.
    Kill(Vec<ExecutionId>),
    /// Freeze all processes of these executions.
    Freeze(Vec<ExecutionId>),
    /// Thaw all processes of these executions.
    Thaw(Vec<ExecutionId>),
    /// Remove the folder of an execution with outputs: its end is durable.
    RemoveFolder(ExecutionId),
    /// Drop the log of an execution that the server has discarded.
    DropLog(ExecutionId),
}
