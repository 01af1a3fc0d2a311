//! What the rules need to know beyond the events: rows of jobs, the queues and the workers.

use std::collections::BTreeMap;

use model::worker::WorkerStatus;
use model::{JobId, Timestamp};

/// Row of a job, as far as rules select by it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobFacts {
    /// Name of the job.
    pub name: String,
    /// Owner of the job.
    pub owner: Option<String>,
    /// Queue of the job.
    pub queue: String,
    /// Labels of the job.
    pub labels: BTreeMap<String, String>,
    /// Error message of the last execution.
    pub error: Option<String>,
}

/// Rows of the jobs that were needed; a job that was deleted meanwhile is missing.
pub type Facts = BTreeMap<JobId, JobFacts>;

/// The queues and workers at a time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sample {
    /// Each queue with waiting jobs, with the time at which the oldest of them entered it.
    pub queues: Vec<(String, Timestamp)>,
    /// Each worker: ID, name and status.
    pub workers: Vec<(String, String, WorkerStatus)>,
}
