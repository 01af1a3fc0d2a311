//! Worker: agent, supervisor, fuse and the process runtime.
//!
//! A worker consists of three kinds of processes of one program:
//!
//! ```text
//!  server ⇄ AGENT ⇄ SUPERVISOR ─┬─ task, task, …      (each in its own session)
//!     gRPC    unix socket       └─ FUSE                (freezes or kills tasks when the supervisor cannot)
//! ```
//!
//! - [`run_agent`] connects to a server. It forwards assignments to the supervisor, and reports and logs to the
//!   server. It has no durable state, so it can be killed, restarted and upgraded at any time.
//! - [`run_supervisor`] owns the worker folder and is the parent process of every task. It writes each start to its
//!   journal *before* it starts the task. It keeps running while the agent restarts.
//! - [`run_fuse`] is one small process for all tasks of a supervisor. It freezes the tasks when the lease expires and
//!   the supervisor cannot do so. It kills them when the supervisor has exited.
//!
//! # Invariants
//! - An execution is started at most once: its start is durable in the journal before `exec`.
//! - An outcome is durable before it is reported, and is kept until the server has acknowledged it.
//! - Without a valid lease no task is started, and a task that may be retried on another worker does not run here.
//!
//! # Requests of tasks
//! Each task has a socket in its folder and sends HTTP requests over it to the agent. The supervisor listens on the
//! socket and passes each open connection to the agent. It listens because it outlives agents: a task that calls
//! while no agent is connected waits instead of failing. A task whose agent is killed during a request repeats the
//! request.
//!
//! The agent serves the requests because it has the connection to the server. It can be upgraded at any time, and a
//! slow or defective agent does not affect the rest of the worker. The supervisor reads the checkpoint file of a
//! task, because only the supervisor knows the folder and observes the end of the task.
//!
//! # Ports and health checks
//! The supervisor allocates the ports of a task before its launch, and passes their numbers in the environment. The
//! agent runs the health checks, because they wait for the network and for commands, and the supervisor must never
//! wait. It sends the health of each execution to the server when it changes. The checks continue while no server can
//! be reached, as long as the worker has a lease.
//!
//! If a startup or liveness check fails too often, the agent requests the supervisor to end the execution. The end is
//! reported with the error `unhealthy`. Whether the job runs again is a decision of the server.
//!
//! # Secrets
//! The agent requests the values of the secrets of a job before each start, as the worker that holds the execution. It passes
//! them to the supervisor with the start. The supervisor keeps them in memory while the task runs: it sets variables, writes
//! files into a directory in memory (`supervisor::secret_files`), and hides the values in the log and in reports (`mask`). No
//! value is in the journal. A lost supervisor loses them with its tasks.
//!
//! # Limitations
//! - A worker without an agent runs no health checks. A new agent continues with the last status, and counts failures
//!   from zero.
//! - The command of a health check is not in the control group of its task: its memory and CPU time do not count
//!   towards the limits of the job.
//! - A free port is not held open between its allocation and the first `listen` of the task, so another program of the
//!   machine can take it.
//! - Log bytes in the memory of a supervisor (at most 64 KiB per execution) are lost if it is killed; the outcome is
//!   then `INTERRUPTED`.
//! - A process can leave its session, clear its environment and be orphaned. Only a control group then identifies its
//!   task; every execution has one if the worker may create control groups. Otherwise the start time of the process
//!   decides: the process is killed with the last execution that was running at that time. It is not killed if the
//!   supervisor has children that it did not start, as the first process of a container may have.
//! - A store that lost the end of an execution may assign it again. The worker starts it again if its end was
//!   acknowledged more than two minutes ago and 10 000 other executions have ended since then.

mod agent;
mod clock;
mod config;
mod disk;
mod fuse;
mod layout;
mod link;
mod mask;
mod process;
mod supervisor;
#[cfg(feature = "testing")]
pub mod testing;

pub use self::supervisor::journal::JournalError;
pub use self::supervisor::{SupervisorError, run_supervisor};
pub use agent::{AgentError, run_agent};
pub use config::{AgentConfig, ArgumentError, PortRange, PortRangeError, SupervisorConfig};
pub use fuse::{FuseError, run_fuse};
pub use process::user::UserError;
