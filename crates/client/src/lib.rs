//! REST client of Belfry, a distributed job scheduler.
//!
//! A [`Client`] holds the URL of a server and a token, and has a method for each operation of the REST API, typed by
//! [`model::api`]. It is cheap to clone. It needs a Tokio runtime.
//!
//! - [`Client`]: requests, with retries where they are safe. [`Timeouts`] sets the timeouts.
//! - [`logs`] and [`events`]: streams that reconnect and resume after a lost connection.
//! - [`watch`]: changes of a job or a run until it has ended.
//! - [`Task`]: checkpoints, added elements and endpoints of services, from inside a running task.
//! - [`Error`]: why a request failed, and a hint what to do.
//!
//! Methods whose names end in `_page` return one page of a list. Their counterparts without the suffix return a stream
//! ([`Items`]) over all pages.
//!
//! # Request errors
//!
//! Methods that send a request return these errors:
//!
//! - [`Error::Problem`]: the server rejected the request. [`Error::code`] is a stable code, such as `job_not_found`
//!   (404), `version_mismatch` (412), `invalid_spec` (422) or `busy` (429).
//! - [`Error::Unreachable`]: no connection was established; the request had no effect.
//! - [`Error::Interrupted`], [`Error::Timeout`]: the connection was lost, or the response did not arrive in time. The
//!   request may have taken effect.
//! - [`Error::Protocol`]: the response is not that of a Belfry server.
//!
//! # Retries
//!
//! A request that had no effect (`429`, `503`, no connection) is retried with exponential backoff until
//! [`Timeouts::retry_for`] ends. If the outcome is unknown, only idempotent requests are retried. Submissions, starts
//! of runs and triggers are idempotent, because they carry an idempotency key.
//!
//! # Invariants
//! - A retried submission never creates a second job.
//! - The token appears in no URL, no error and no `Debug` output.
//! - Every wait for a response has a timeout. Uploads of files and streams have none, but an idle stream reconnects.
//!
//! # Example
//!
//! ```no_run
//! # async fn example() -> Result<(), client::Error> {
//! client::install_crypto();
//! let belfry = client::Client::new("http://127.0.0.1:7070", Some("bf_admin_…"))?;
//! let job = belfry.submit(&model::JobSpec::command(["echo", "hello"])).await?;
//! let ended = belfry.wait(job.id).await?;
//! assert_eq!(ended.status, model::JobStatus::Succeeded);
//! # Ok(()) }
//! ```

pub mod access;
pub mod alerts;
pub mod artifacts;
pub mod audit;
mod bulk;
pub mod calendars;
pub mod error;
pub mod events;
pub mod failures;
mod http;
pub mod jobs;
pub mod logs;
mod monitors;
pub mod namespaces;
mod page;
mod retry;
pub mod runs;
pub mod schedules;
mod secrets;
pub mod server;
mod servers;
pub mod services;
mod sse;
pub mod statistics;
pub mod task;
mod tls;
pub mod watch;
pub mod workers;
pub mod workflows;

pub use access::{AccessQuestion, AccountFilter, BindingFilter, TokenFilter};
pub use alerts::{AlertFilter, NotificationFilter};
pub use artifacts::{ArtifactBody, ArtifactFilter};
pub use audit::AuditFilter;
pub use bulk::ChangeJobs;
pub use error::Error;
pub use events::{EventFilter, FeedItem};
pub use failures::FailureFilter;
pub use http::{Client, RetryNotice, check_authority};
pub use jobs::{ExecutionFilter, JobFilter, UsageQuery};
pub use logs::{Begin, LogItem, LogPage, LogQuery, LogSearchQuery, LogSource, LogStream};
pub use page::{Items, Page};
pub use retry::Timeouts;
pub use runs::RunFilter;
pub use schedules::{LedgerFilter, ScheduleFilter, ScheduleRef};
pub use server::ServerVersion;
pub use services::{ServiceFilter, ServiceRef, TargetFilter};
pub use statistics::TotalsQuery;
pub use task::{AddedElements, SavedCheckpoint, Task};
pub use watch::RunView;
pub use workers::WorkerFilter;
pub use workflows::{WorkflowFilter, WorkflowRef};

/// Installs `ring` as the TLS provider of this process.
///
/// Call this before [`Client::new`], which panics without a TLS provider. If a provider is already installed, the call
/// has no effect.
pub fn install_crypto() {
    // The only error is that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
