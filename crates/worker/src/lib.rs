//! Where work runs: the agent, the supervisor, the fuse and the process runtime.
//!
//! A worker is three kinds of processes, all of one program:
//!
//! ```text
//!  server ⇄ AGENT ⇄ SUPERVISOR ─┬─ task, task, …      (each in a session of its own)
//!     gRPC    unix socket       └─ FUSE                (freezes or kills what its owner cannot)
//! ```
//!
//! - [`run_agent`] talks to a server: it passes assignments on, and reports and logs back. It keeps
//!   nothing, so it may be killed, restarted and upgraded at any time.
//! - [`run_supervisor`] owns the worker's folder, is the parent of every task, and writes down what
//!   it starts *before* it starts it. It lives through restarts of the agent.
//! - [`run_fuse`] is one small process for all tasks of a supervisor. It freezes them when the lease
//!   runs out and the supervisor cannot, and kills them when the supervisor is gone.
//!
//! # Always true
//! - An execution is started at most once: its start is durable in the journal before `exec`.
//! - An outcome is durable before it is reported, and is kept until the server acknowledged it.
//! - Without a valid lease nothing starts, and what may run elsewhere meanwhile does not run here.
//!
//! # What tasks ask for
//! Each task has a socket in its folder, over which it speaks HTTP to the agent. The supervisor listens there
//! and hands the open connections on. The supervisor, because it outlives agents: a task that calls while
//! none is there waits instead of failing, and one whose agent is killed under its request asks once more. The agent
//! serves, because it has the connection to the server, may be upgraded at any time, and can be slow or
//! wrong without anything else of the worker being so. What a task saves to its checkpoint file is read by the supervisor,
//! which alone knows the folder and sees the end of the task.
//!
//! # What is not promised
//! - Log bytes that a supervisor still held in memory (at most 64 KiB an execution) are lost if it
//!   is killed; the outcome then is `INTERRUPTED` anyhow.
//! - A process that leaves its session, cleans its environment and is orphaned is recognised as its
//!   task's only by a control group, which every execution has wherever the worker may create one. Where it may not,
//!   the time of its start decides: it dies with the last execution that ran then. It lives on where the supervisor has
//!   children that it did not start, as the first process of a container may.
//! - An execution that was acknowledged more than two minutes ago, and 10 000 ends ago, is started again if a store that
//!   lost its end assigns it again.

mod agent;
mod clock;
mod config;
mod disk;
mod fuse;
mod layout;
mod link;
mod process;
mod supervisor;
#[cfg(feature = "testing")]
pub mod testing;

pub use self::supervisor::journal::JournalError;
pub use self::supervisor::{SupervisorError, run_supervisor};
pub use agent::{AgentError, run_agent};
pub use config::{AgentConfig, ArgumentError, SupervisorConfig};
pub use fuse::{FuseError, run_fuse};
pub use process::user::UserError;
