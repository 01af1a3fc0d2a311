//! The REST client of Belfry, for Rust programs and for the command line.
//!
//! A [`Client`] knows a server's address and a token, and has a method for each route, typed by
//! [`model::api`]. It stands between `model` and the binary, and knows nothing of the server's
//! insides.
//!
//! - [`Client`]: requests, tried again where that is safe ([`Patience`] says how long).
//! - [`logs`] and [`events`]: streams that resume where they broke off.
//! - [`watch`]: the changes of a job, or of a run, until it ends.
//! - [`Task`]: what a running task asks of its own socket.
//! - [`Error`]: why a request came to nothing, and what to do about it.
//!
//! # Always true
//! - A submission carries an idempotency key, so that trying again cannot make a second job.
//! - A request that may have been carried out is repeated only if a second time changes nothing.
//! - The token is in no address, no error and no `Debug` output.
//! - Every wait for an answer has an end; streams end with what they stream.
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

pub mod artifacts;
pub mod calendars;
pub mod error;
pub mod events;
mod http;
pub mod jobs;
pub mod logs;
pub mod page;
mod retry;
pub mod runs;
pub mod schedules;
pub mod server;
mod servers;
mod sse;
pub mod task;
pub mod watch;
pub mod workers;
pub mod workflows;

pub use artifacts::{ArtifactBody, ArtifactFilter};
pub use error::Error;
pub use events::{EventFilter, FeedItem};
pub use http::{Client, RetryNotice};
pub use jobs::{ExecutionFilter, JobFilter};
pub use logs::{Begin, LogItem, LogPage, LogQuery, LogSource, LogStream};
pub use page::{Items, Page};
pub use retry::Patience;
pub use runs::RunFilter;
pub use schedules::{LedgerFilter, ScheduleFilter, ScheduleRef};
pub use server::{Me, ServerVersion};
pub use task::{AddedElements, SavedCheckpoint, Task};
pub use watch::RunView;
pub use workflows::{WorkflowFilter, WorkflowRef};

/// Makes ring the TLS provider of this process; without one, [`Client::new`] panics.
///
/// A second call changes nothing.
pub fn install_crypto() {
    // The only error is that a provider was installed before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
