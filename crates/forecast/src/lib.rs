//! Forecasts: simulates schedules, workers and limits over a future time range on virtual time.
//!
//! ```text
//! Plan ──> forecast ─┬─> engine: the real one, on a clock of its own
//!                    ├─> tasks:  each occupies its worker for a random run time
//!                    └─> watch:  sums up the decisions of the engine ──> Answer ──> picture
//! ```
//!
//! A [`Plan`] is the complete input: schedules, calendars, workflows, services, queues, workers, past run times and
//! failure rates, a range and a seed. [`forecast`] passes it to an [`Engine`](engine::Engine), the same one that servers run, and
//! simulates the workers: an assigned execution starts immediately, and its run time and result follow the past. The
//! [`Answer`] is the result; [`picture`] draws it.
//!
//! # Invariants
//! - A pure function: it reads no clock and no file, and the same plan gives the same answer.
//! - Random run times depend only on the seed, the schedule, the scheduled time and the attempt number. So two plans are
//!   compared under identical conditions, and any difference between their answers comes from the plans.
//! - All scheduling decisions are the engine's: whether a schedule fires, which job is next, on which worker, and why a job
//!   waits.
//!
//! # Limits
//! The range starts with empty queues, and workers that run replicas of services only. There are no other jobs without a
//! schedule. Replicas are healthy as soon as they run, and never exit. Workers do not fail, join or leave. A worker starts and stops executions immediately. Approvals and events arrive immediately. The output of tasks
//! is unknown: a step that refers to such output fails, and [`Answer::notes`] reports it.
//!
//! # Cost
//! About five engine inputs for each run. Memory grows with the live jobs and runs, the schedules, the workers and the
//! buckets.

mod answer;
mod luck;
mod past;
mod picture;
mod plan;
mod setup;
mod usage;
mod waits;
mod watch;
mod whatif;
mod world;

pub use answer::{
    Answer, Bucket, Cause, Group, Note, ScheduleForecast, Summary, WaitingReason, Window, WorkerUse, WorstRun,
};
pub use past::{RunHistory, RunTimes};
pub use picture::picture;
pub use plan::{History, Options, Plan, PlanError, QualifiedName, Schedule, Service, Worker};
pub use usage::Shares;
pub use whatif::{WhatIf, WhatIfError};
pub use world::{Progress, forecast};
