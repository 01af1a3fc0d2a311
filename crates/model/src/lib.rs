//! What is said: the words of Belfry as types.
//!
//! Every other crate speaks of jobs, executions, workers and queues in these types. Nothing here
//! does I/O, reads a clock or draws a random number, and a test holds it to that.
//!
//! - [`id`]: typed ids that sort by time and carry their shard.
//! - [`time`] and [`quantity`]: instants, durations, bytes, millicores, with their text forms.
//! - [`spec`]: what a user asks for; [`validate`] says everything that is wrong with it at once.
//! - [`status`] and [`lifecycle`]: the states of jobs and executions and the one table of legal
//!   transitions between them.
//! - [`schedule`], [`timing`], [`calendar`]: what recurs, when, and on which days; [`firing`]: what
//!   became of each of its instants.
//! - [`workflow`]: DAGs of steps, with their [`expression`]s and templates; [`run`]: how far their runs are.
//! - [`checkpoint`]: what an execution saves for the next one of its job.
//! - [`worker`], [`queue`]: where work runs and where it waits.
//! - [`record`]: rows as the engine changes them and stores keep them.
//! - [`api`]: what the REST API answers, with its error codes; [`refusal`]: why the engine refuses a request;
//!   [`why`]: why a job or a step is waiting.
//! - [`limits`]: every bound that input is held to.

pub mod api;
pub mod calendar;
pub mod changelog;
pub mod checkpoint;
pub mod expression;
pub mod firing;
pub mod id;
pub mod lifecycle;
pub mod limits;
pub mod quantity;
pub mod queue;
pub mod record;
pub mod refusal;
pub mod run;
pub mod schedule;
pub mod spec;
pub mod status;
pub mod time;
pub mod timing;
pub mod validate;
pub mod why;
pub mod worker;
pub mod workflow;

pub use id::{
    BackfillId, ExecutionId, Fence, JobId, RunId, ScheduleId, ServerId, ShardId, WorkerId, WorkflowId,
};
pub use lifecycle::Cause;
pub use quantity::{Bytes, Millicores};
pub use refusal::Refusal;
pub use run::{RunStatus, StepStatus};
pub use schedule::ScheduleSpec;
pub use spec::JobSpec;
pub use status::{ExecutionStatus, JobStatus};
pub use time::{Duration, Timestamp};
pub use workflow::WorkflowSpec;
