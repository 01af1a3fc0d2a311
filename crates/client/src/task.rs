//! What a running task asks for, through the socket that it finds in `BELFRY_SOCKET`.
//!
//! No token and no address is needed: the socket is the task's own, and its worker speaks for it. All that
//! is asked here may be asked again without being done twice, so it is, for as long as an agent that was
//! restarted or a server that changed takes to be back.
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
use model::api::Problem;
use reqwest::header::{CONTENT_TYPE, ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH};
use reqwest::{RequestBuilder, Response, Url};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use crate::error::Error;

/// Where a task finds the path of its socket.
pub const SOCKET_VARIABLE: &str = "BELFRY_SOCKET";
/// How long what may pass is tried again.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// How long one try may take; the agent answers before.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// The running task that this program is.
#[derive(Debug, Clone)]
pub struct Task {
    http: reqwest::Client,
    socket: PathBuf,
}

/// A checkpoint that was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedCheckpoint {
    /// Counts the checkpoints of the job, from 1.
    pub version: u64,
    /// What the bytes are.
    pub content_type: String,
    /// The bytes.
    pub data: Bytes,
}

/// What a task added to a step of its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedElements {
    /// The step that goes over them.
    pub step: String,
    /// The number of the first of them in the step's list; the others follow.
    pub first: u32,
    /// How many the batch has.
    pub count: u32,
    /// How many elements the step has by now.
    pub total: u32,
    /// Whether they were added now; false if the batch was there already, as it was then.
    pub added: bool,
}

/// What a save answers.
#[derive(Deserialize)]
struct Saved {
    version: u64,
}

impl Task {
    /// The task of this process.
    ///
    /// # Errors
    /// [`Error::NoTask`] where this is none.
    pub fn from_env() -> Result<Self, Error> {
        let socket =
            std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()).ok_or(Error::NoTask)?;
        Self::at(Path::new(&socket))
    }

    /// The task whose socket this is.
    ///
    /// # Errors
    /// If no HTTP client can be made.
    pub fn at(socket: &Path) -> Result<Self, Error> {
        let http = reqwest::Client::builder().unix_socket(socket).no_proxy().timeout(ANSWER_MAX).build();
        let failed = |source| Error::Unreachable { url: socket.display().to_string(), source };
        Ok(Self { http: http.map_err(failed)?, socket: socket.to_owned() })
    }

    /// The last checkpoint of the job, if it has one.
    ///
    /// # Errors
    /// As every request.
    pub async fn checkpoint(&self) -> Result<Option<SavedCheckpoint>, Error> {
        let asked = self.ask(|| self.http.get("http://task/checkpoint")).await;
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

    /// Saves what the next execution of the job is to go on from; at most 64 KiB. Returns its version.
    ///
    /// With `expected`, only on top of that version; 0 means that there is none yet.
    ///
    /// # Errors
    /// As every request; `version_mismatch` if another was saved meanwhile, `not_current` if another
    /// execution goes on with the job by now.
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
        let response = self.ask(make).await?;
        let saved = response.json::<Saved>().await.map_err(|source| self.interrupted(source))?;
        Ok(saved.version)
    }

    /// Adds elements to a step of the run: to the only one that goes over what this task adds, unless one is
    /// named. At most 1,000 of 1 KiB each; more go in several batches.
    ///
    /// A batch is known by its name, within the step, or the element of one, whose task this is: the same name again,
    /// also by the next execution, adds nothing, whatever it brings. So name it by what led to it.
    ///
    /// # Errors
    /// As every request; `elements_not_accepted` if no such step goes over what this task adds, `step_ended` if it goes
    /// over nothing any more, `not_current` if another execution goes on with the job by now.
    pub async fn add_elements(
        &self,
        step: Option<&str>,
        batch: &str,
        elements: &[Value],
    ) -> Result<AddedElements, Error> {
        let query = step.map(|step| ("step", step)).into_iter().chain([("batch", batch)]);
        let url = Url::parse_with_params("http://task/elements", query)
            .map_err(|error| self.protocol(&format!("invalid request URL: {error}")))?;
        let response = self.ask(|| self.http.post(url.clone()).json(elements)).await?;
        response.json().await.map_err(|source| self.interrupted(source))
    }

    /// Asks until there is an answer, or what may pass has lasted too long.
    async fn ask(&self, make: impl Fn() -> RequestBuilder) -> Result<Response, Error> {
        let end = Instant::now() + PATIENCE;
        loop {
            let error = match make().send().await {
                Ok(response) if response.status().is_success() => return Ok(response),
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
            if Instant::now() + PAUSE > end {
                return Err(error);
            }
            tokio::time::sleep(PAUSE).await;
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
