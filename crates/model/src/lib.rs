//! Data types of Belfry: jobs, schedules, workflows, workers and queues.
//!
//! All other crates use these types. This crate does no I/O, reads no clock and draws no random numbers; a test checks
//! this.
//!
//! - [`id`]: typed IDs that sort by time and contain their shard.
//! - [`time`] and [`quantity`]: timestamps, durations, bytes and millicores, with their text forms.
//! - [`spec`]: specs of jobs; [`validate`] reports all errors of a spec at once.
//! - [`status`] and [`lifecycle`]: statuses of jobs and executions, and the table of legal transitions.
//! - [`schedule`], [`timing`], [`calendar`]: schedules, their rules and their days; [`firing`]: the outcome of each
//!   scheduled time.
//! - [`workflow`]: DAGs of steps, with [`expression`]s and templates; [`run`]: states of runs and steps.
//! - [`service`]: long-running jobs that are kept at a number of replicas, with their revisions and rollouts.
//! - [`secret`]: secrets of jobs; a spec refers to them by [`spec::SecretReference`].
//! - [`checkpoint`]: data that an execution saves for the next execution of its job.
//! - [`worker`], [`queue`]: workers, and settings of queues.
//! - [`record`]: rows that the engine changes and the store keeps.
//! - [`api`]: requests and responses of the REST API, and its error codes; [`refusal`]: reasons why the engine refuses a
//!   request; [`why`]: waiting reasons of jobs and steps.
//! - [`access`]: verbs and resources of access control.
//! - [`limits`]: limits of all input; [`error_chain`]: errors with their causes, for logs.

pub mod access;
pub mod alert;
pub mod api;
pub mod audit;
pub mod calendar;
pub mod changelog;
pub mod checkpoint;
pub mod error_chain;
pub mod expression;
pub mod failures;
pub mod firing;
pub mod former_lease;
pub mod id;
pub mod lifecycle;
pub mod limits;
pub mod namespace;
pub mod quantity;
pub mod queue;
pub mod record;
pub mod refusal;
pub mod run;
pub mod schedule;
pub mod secret;
pub mod service;
pub mod spec;
pub mod statistics;
pub mod status;
mod stop_reason;
pub mod time;
pub mod timing;
pub mod validate;
pub mod why;
pub mod worker;
pub mod workflow;

pub use id::{
    BackfillId, ExecutionId, Fence, JobId, RunId, ScheduleId, ServerId, ServiceId, ShardId, WorkerId,
    WorkflowId,
};
pub use lifecycle::Cause;
pub use quantity::{Bytes, Millicores};
pub use refusal::Refusal;
pub use run::{RunStatus, StepStatus};
pub use schedule::ScheduleSpec;
pub use service::ServiceSpec;
pub use spec::JobSpec;
pub use status::{ExecutionStatus, JobStatus};
pub use stop_reason::StopReason;
pub use time::{Duration, Timestamp};
pub use workflow::WorkflowSpec;
