//! Checkpoints: progress that an execution saves for later executions of the same job.
//!
//! A job has at most one checkpoint, the last one. After a failure or the loss of a worker, the next execution of the
//! job receives the checkpoint and can resume from it. The description is part of the state of the job. The content
//! is a separate row, so that a job without checkpoints needs no space for one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::JobId;
use crate::time::Timestamp;

/// Default content type of a checkpoint.
pub const BYTES: &str = "application/octet-stream";

/// Description of the last checkpoint of a job, without the content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    /// Number of the checkpoint within the job, from 1.
    pub version: u64,
    /// Size of the content, in bytes; at most 64 KiB.
    pub size_bytes: u64,
    /// Content type, as given by the task.
    #[schema(value_type = String)]
    pub content_type: Box<str>,
    /// Time at which the checkpoint was saved.
    pub saved_at: Timestamp,
    /// Number of the execution that saved the checkpoint.
    pub execution: u32,
    /// Hash of the content and the content type; an identical checkpoint is not saved again.
    #[serde(skip)]
    pub hash: u128,
}

/// Checkpoint with its content, as a row of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// Job of the checkpoint.
    pub job: JobId,
    /// Number of the checkpoint, as in the state of the job.
    pub version: u64,
    /// Content type of `data`.
    pub content_type: Box<str>,
    /// Time at which the checkpoint was saved.
    pub saved_at: Timestamp,
    /// Content, at most [`crate::limits::CHECKPOINT_BYTES_MAX`] bytes.
    pub data: Arc<[u8]>,
}
