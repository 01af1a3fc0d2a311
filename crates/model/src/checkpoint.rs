//! Checkpoints: what an execution saves for those that come after it.
//!
//! A job has at most one, its last. The next execution of the job, after a failure or the loss of a worker,
//! gets it and may go on from there. What is known of a checkpoint stands with the job's state; its bytes
//! stand apart, so that a job that never saves one carries nothing.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::JobId;
use crate::time::Timestamp;

/// The content type of bytes that nobody described.
pub const BYTES: &str = "application/octet-stream";

/// What is known of a job's last checkpoint, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    /// Counts the checkpoints of the job, from 1.
    pub version: u64,
    /// How many bytes it has.
    pub size_bytes: u64,
    /// What the bytes are, as the task said.
    #[schema(value_type = String)]
    pub content_type: Box<str>,
    /// When it was saved.
    pub saved_at: Timestamp,
    /// The number of the execution that saved it.
    pub execution: u32,
    /// Of bytes and content type: what was saved already is not saved again.
    #[serde(skip)]
    pub hash: u128,
}

/// A checkpoint with its bytes: a row of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// Whose.
    pub job: JobId,
    /// Which; the same as in the job's state.
    pub version: u64,
    /// What the bytes are.
    pub content_type: Box<str>,
    /// When it was saved.
    pub saved_at: Timestamp,
    /// The bytes.
    pub data: Arc<[u8]>,
}
