//! Checkpoints that a running task saves for the next execution of its job.
//!
//! Only the current execution may save: a replaced execution would overwrite the progress of its replacement.
//! Saving the same data again returns the same checkpoint, so the task, its agent and the final report may
//! each send it. The data is written to the store and not kept in memory.

use std::sync::Arc;

use model::checkpoint::{Checkpoint, CheckpointRecord};
use model::{JobId, Refusal};

use crate::context::Context;
use crate::jobs::Jobs;
use crate::output::Reply;

impl Jobs {
    /// Saves a checkpoint of a job.
    ///
    /// # Errors
    /// The job is not live, or has another checkpoint than the expected one.
    pub(crate) fn save_checkpoint(
        &mut self,
        cx: &mut Context,
        id: JobId,
        content_type: Box<str>,
        data: Arc<[u8]>,
        hash: u128,
        expected_version: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let saved_at = cx.now;
        let job = self.all.get_mut(&id).ok_or(Refusal::JobNotLive { job: id })?;
        let last = job.state.checkpoint.as_deref();
        if let Some(last) = last.filter(|last| last.hash == hash) {
            return Ok(Reply::CheckpointSaved { version: last.version });
        }
        let found = last.map_or(0, |last| last.version);
        if let Some(expected) = expected_version.filter(|&expected| expected != found) {
            return Err(Refusal::VersionMismatch { expected, found });
        }
        let version = found + 1;
        job.state.checkpoint = Some(Box::new(Checkpoint {
            version,
            size_bytes: data.len() as u64,
            content_type: content_type.clone(),
            saved_at,
            execution: job.state.executions,
            hash,
        }));
        let record = CheckpointRecord { job: id, version, content_type, saved_at, data };
        self.checkpoints.insert(id, Box::new(record));
        self.touch(cx, id);
        Ok(Reply::CheckpointSaved { version })
    }
}
