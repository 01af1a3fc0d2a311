//! API for running tasks, through the Unix socket in `BELFRY_SOCKET`.
//!
//! A task needs no URL and no token: the socket identifies the task, and the worker forwards its requests to the
//! server. All requests are idempotent. They are retried for up to 60 s, which covers a restart of the agent and a
//! takeover of the server.
//!
//! ```no_run
//! # async fn example() -> Result<(), client::Error> {
//! let task = client::Task::from_env()?;
//! let last = task.checkpoint().await?;
//! let mut page: u32 = last.and_then(|last| std::str::from_utf8(&last.data).ok()?.parse().ok()).unwrap_or(0);
//! while page < 100 {
//!     page += 1;
//!     task.save_checkpoint(page.to_string(), "text/plain", None).await?;
//! }
//! # Ok(()) }
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use model::api::{Endpoint, List, Problem};
use reqwest::header::{CONTENT_TYPE, ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH};
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use crate::error::Error;

/// Environment variable with the path of the task socket.
pub const SOCKET_VARIABLE: &str = "BELFRY_SOCKET";
/// Time for which temporary errors are retried.
const RETRY_FOR: Duration = Duration::from_secs(60);
/// Delay between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// Minimum time between two requests that wait for a change of endpoints.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Maximum time to wait for a change of endpoints, in seconds.
const ENDPOINTS_WAIT_MAX: u64 = 30;
/// Timeout of one attempt; longer than that of the agent.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Task that this process runs.
#[derive(Debug, Clone)]
pub struct Task {
    http: reqwest::Client,
    socket: PathBuf,
}

/// Saved checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedCheckpoint {
    /// Version, counted from 1 within the job.
    pub version: u64,
    /// Content type of the data.
    pub content_type: String,
    /// Data, at most 64 KiB.
    pub data: Bytes,
}

/// Result of adding elements to a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedElements {
    /// Step that runs for each element.
    pub step: String,
    /// Index of the first element of the batch in the step; the others follow.
    pub first: u32,
    /// Number of elements of the batch.
    pub count: u32,
    /// Number of elements of the step.
    pub total: u32,
    /// Whether the batch was added; `false` if a batch with this name already existed. It is then unchanged.
    pub added: bool,
}

/// Endpoints of a service at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceEndpoints {
    /// Changes with each change of the endpoints.
    pub version: String,
    /// Ports of the healthy replicas; empty if the service does not exist.
    pub endpoints: Vec<Endpoint>,
}

/// Response to a save.
#[derive(Deserialize)]
struct Saved {
    version: u64,
}

impl Task {
    /// Returns the task of this process.
    ///
    /// # Errors
    /// [`Error::NoTask`] if this process is not a task.
    pub fn from_env() -> Result<Self, Error> {
        let socket =
            std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()).ok_or(Error::NoTask)?;
        Self::at(Path::new(&socket))
    }

    /// Returns the task with this socket.
    ///
    /// # Errors
    /// If the HTTP client cannot be created.
    pub fn at(socket: &Path) -> Result<Self, Error> {
        let http =
            reqwest::Client::builder().unix_socket(socket).no_proxy().timeout(RESPONSE_TIMEOUT).build();
        let failed = |source| Error::Unreachable { url: socket.display().to_string(), source };
        Ok(Self { http: http.map_err(failed)?, socket: socket.to_owned() })
    }

    /// Returns the last checkpoint of the job, or `None` if there is none.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn checkpoint(&self) -> Result<Option<SavedCheckpoint>, Error> {
        let asked = self.send(|| self.http.get("http://task/checkpoint")).await;
        let response = match asked {
            Err(error) if error.code() == Some("checkpoint_not_found") => return Ok(None),
            asked => asked?,
        };
        let header = |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        let version = header(ETAG).and_then(|tag| tag.trim_matches('"').parse().ok());
        let version = version.ok_or_else(|| self.protocol("the checkpoint has no version"))?;
        let content_type = header(CONTENT_TYPE).unwrap_or(model::checkpoint::BYTES).to_owned();
        let data = response.bytes().await.map_err(|source| self.interrupted(source))?;
        Ok(Some(SavedCheckpoint { version, content_type, data }))
    }

    /// Saves a checkpoint of at most 64 KiB, from which the next execution of the job resumes. Returns its version.
    ///
    /// With `expected`, the request fails unless the last checkpoint has this version; `Some(0)` requires that there is
    /// none.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), and `version_mismatch` if another checkpoint was saved meanwhile,
    /// `not_current` if another execution of the job has started.
    pub async fn save_checkpoint(
        &self,
        data: impl Into<Bytes>,
        content_type: &str,
        expected: Option<u64>,
    ) -> Result<u64, Error> {
        let data = data.into();
        let make = || {
            let request = self.http.put("http://task/checkpoint").header(CONTENT_TYPE, content_type);
            let request = match expected {
                Some(0) => request.header(IF_NONE_MATCH, "*"),
                Some(version) => request.header(IF_MATCH, format!("\"{version}\"")),
                None => request,
            };
            request.body(data.clone())
        };
        let response = self.send(make).await?;
        let saved = response.json::<Saved>().await.map_err(|source| self.interrupted(source))?;
        Ok(saved.version)
    }

    /// Adds elements to a step of the run that is mapped over the results of this task. With several such steps, `step`
    /// selects one.
    ///
    /// A batch has at most 1,000 elements of at most 1 KiB each; add more in several batches.
    ///
    /// The request is idempotent by the name of the batch, within the step (or the element) of this task: a repeated
    /// name adds nothing, also in the next execution and with other elements. Derive the name from the source of the
    /// elements, such as a page number.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), and `elements_not_accepted` if no step accepts elements from this task,
    /// `step_ended` if the step accepts no more elements, `not_current` if another execution of the job has started.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), client::Error> {
    /// let task = client::Task::from_env()?;
    /// let links = [serde_json::json!("https://a.example"), serde_json::json!("https://b.example")];
    /// let added = task.add_elements(None, "page-7", &links).await?;
    /// println!("{} elements in total", added.total);
    /// # Ok(()) }
    /// ```
    pub async fn add_elements(
        &self,
        step: Option<&str>,
        batch: &str,
        elements: &[Value],
    ) -> Result<AddedElements, Error> {
        let query = step.map(|step| ("step", step)).into_iter().chain([("batch", batch)]);
        let url = Url::parse_with_params("http://task/elements", query)
            .map_err(|error| self.protocol(&format!("invalid request URL: {error}")))?;
        let response = self.send(|| self.http.post(url.clone()).json(elements)).await?;
        response.json().await.map_err(|source| self.interrupted(source))
    }

    /// Returns the endpoints of a service that the job requires, in the namespace of the job.
    ///
    /// With the version `known`, waits for a change, at most `wait` and 30 s, and returns `None` if there is none.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), and `service_not_required` if the spec of the job does not name the service
    /// in `requires`, `not_current` if another execution of the job has started.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), client::Error> {
    /// let task = client::Task::from_env()?;
    /// let mut known = None;
    /// loop {
    ///     let wait = std::time::Duration::from_secs(30);
    ///     if let Some(now) = task.endpoints("db", known.as_deref(), wait).await? {
    ///         println!("{} endpoints", now.endpoints.len());
    ///         known = Some(now.version);
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn endpoints(
        &self,
        service: &str,
        known: Option<&str>,
        wait: Duration,
    ) -> Result<Option<ServiceEndpoints>, Error> {
        let invalid = || self.protocol("the name of the service is not valid in a URL");
        let mut url = Url::parse("http://task/services").map_err(|_| invalid())?;
        url.path_segments_mut().map_err(|()| invalid())?.extend([service, "endpoints"]);
        let seconds = if known.is_some() { wait.as_millis().div_ceil(1_000) } else { 0 };
        let seconds = seconds.min(u128::from(ENDPOINTS_WAIT_MAX));
        let asked = Instant::now();
        url.query_pairs_mut().append_pair("wait", &seconds.to_string());
        let make = || {
            let request = self.http.get(url.clone());
            match known {
                Some(version) => request.header(IF_NONE_MATCH, format!("\"{version}\"")),
                None => request,
            }
        };
        let response = self.send(make).await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            // The worker does not wait if too many requests wait already.
            tokio::time::sleep_until(asked + wait.min(RETRY_PAUSE)).await;
            return Ok(None);
        }
        let tag = response.headers().get(ETAG).and_then(|value| value.to_str().ok());
        let version = tag.map(|tag| tag.trim_matches('"').to_owned());
        let version = version.ok_or_else(|| self.protocol("the endpoints have no version"))?;
        let list: List<Endpoint> = response.json().await.map_err(|source| self.interrupted(source))?;
        Ok(Some(ServiceEndpoints { version, endpoints: list.items }))
    }

    /// Sends a request, and retries temporary errors for [`RETRY_FOR`].
    async fn send(&self, make: impl Fn() -> RequestBuilder) -> Result<Response, Error> {
        let end = Instant::now() + RETRY_FOR;
        loop {
            let error = match make().send().await {
                Ok(response)
                    if response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED =>
                {
                    return Ok(response);
                }
                Ok(response) => {
                    let may_pass = matches!(response.status().as_u16(), 429 | 503);
                    let error = self.refusal(response).await;
                    if !may_pass {
                        return Err(error);
                    }
                    error
                }
                Err(source) if source.is_connect() => {
                    Error::Unreachable { url: self.socket.display().to_string(), source }
                }
                Err(source) => self.interrupted(source),
            };
            if Instant::now() + RETRY_DELAY > end {
                return Err(error);
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    async fn refusal(&self, response: Response) -> Error {
        let status = response.status();
        match response.json::<Problem>().await {
            Ok(problem) => Error::Problem(Box::new(problem)),
            Err(_) => self.protocol(&format!("status {status} without a reason")),
        }
    }

    fn interrupted(&self, source: reqwest::Error) -> Error {
        Error::Interrupted { url: self.socket.display().to_string(), source: source.without_url() }
    }

    fn protocol(&self, detail: &str) -> Error {
        Error::Protocol { url: self.socket.display().to_string(), detail: detail.to_owned() }
    }
}
