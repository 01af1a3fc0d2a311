//! What is to come: schedules, workers and limits, run through a coming range on virtual time.
//!
//! ```text
//! Plan ──> forecast ─┬─> engine: the real one, on a clock of its own
//!                    ├─> tasks:  each holds its worker for as long as it is drawn to take
//!                    └─> watch:  what the engine decides, summed up ──> Answer ──> picture
//! ```
//!
//! A [`Plan`] is everything that decides: schedules, calendars, workflows, queues, workers, how long runs
//! took so far and how many failed, a range and a seed. [`forecast`] hands it to an
//! [`Engine`](engine::Engine), the very one that servers run, and plays the workers: what it assigns starts
//! at once, takes as long as the past says, and ends well or badly as often as the past says. The
//! [`Answer`] tells what came of it; [`picture`] draws it.
//!
//! # Always true
//! - A pure function: no clock is read, nothing is opened, and the same plan gives the same answer.
//! - What is drawn for a run hangs on the seed, its schedule, its instant and the number of its try, and on
//!   nothing that happened before: two plans that differ in one thing meet the same luck, so the difference
//!   between their answers is that thing's.
//! - Nothing is decided here that the engine decides: whether an instant fires, who goes next and where,
//!   and why a job waits are its own words.
//!
//! # What is left out
//! The range begins with empty queues and idle workers. Jobs that nobody scheduled do not come. Workers
//! neither fail nor come or go. A worker starts at once what it is given, and stops at once what it is to
//! stop. Approvals and events come at once. What tasks put out is unknown: a step that needs it fails, and
//! [`Answer::notes`] says so.
//!
//! # Cost
//! About five inputs of the engine for each run, and memory for what is live at a time, for each schedule,
//! and for each worker and bucket.

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
    Answer, Bucket, Cause, Group, Holds, Note, ScheduleLine, Summary, Window, WorkerUse, WorstRun,
};
pub use past::{Past, RunTimes};
pub use picture::picture;
pub use plan::{History, Name, Options, Plan, PlanError, Schedule, Worker};
pub use usage::Shares;
pub use whatif::{WhatIf, WhatIfError};
pub use world::{Progress, forecast};
