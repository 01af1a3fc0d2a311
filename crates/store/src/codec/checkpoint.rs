//! Encoding of checkpoints: the content of the last one, and its metadata in the job's state.

use std::borrow::Cow;

use model::checkpoint::{Checkpoint, CheckpointRecord};
use model::{JobId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Context, DecodeError, open_bytes, seal_bytes};
use crate::codec::FORMAT;

/// Metadata of a checkpoint; follows the state of a job that saved one.
#[derive(Serialize, Deserialize)]
pub(super) struct CheckpointMetadataRow<'a> {
    version: u64,
    size_bytes: u64,
    #[serde(borrow)]
    content_type: Cow<'a, str>,
    saved_at: i64,
    execution: u32,
    hash: [u8; 16],
}

impl<'a> From<&'a Checkpoint> for CheckpointMetadataRow<'a> {
    fn from(known: &'a Checkpoint) -> Self {
        Self {
            version: known.version,
            size_bytes: known.size_bytes,
            content_type: Cow::Borrowed(&known.content_type),
            saved_at: known.saved_at.as_micros(),
            execution: known.execution,
            hash: known.hash.to_be_bytes(),
        }
    }
}

impl From<CheckpointMetadataRow<'_>> for Checkpoint {
    fn from(row: CheckpointMetadataRow<'_>) -> Self {
        Self {
            version: row.version,
            size_bytes: row.size_bytes,
            content_type: row.content_type.into(),
            saved_at: Timestamp::from_micros(row.saved_at),
            execution: row.execution,
            hash: u128::from_be_bytes(row.hash),
        }
    }
}

/// Columns of a checkpoint without its content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CheckpointColumns<'a> {
    pub(crate) job: JobId,
    pub(crate) version: u64,
    pub(crate) content_type: &'a str,
    pub(crate) saved_at: Timestamp,
}

impl<'a> CheckpointColumns<'a> {
    pub(crate) fn of(record: &'a CheckpointRecord) -> Self {
        let CheckpointRecord { job, version, content_type, saved_at, .. } = record;
        Self { job: *job, version: *version, content_type, saved_at: *saved_at }
    }

    fn context(self) -> Context {
        Context::of(self.job.to_bits())
            .with_number(self.version)
            .with_number(self.saved_at.as_micros().cast_unsigned())
            .with(self.content_type.as_bytes())
    }
}

/// Seals the content of a checkpoint.
pub(crate) fn seal_checkpoint(record: &CheckpointRecord) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(record.data.len() + 8);
    bytes.push(FORMAT);
    bytes.extend_from_slice(&record.data);
    seal_bytes(CheckpointColumns::of(record).context(), bytes)
}

/// Opens what [`seal_checkpoint`] sealed.
pub(crate) fn open_checkpoint(
    columns: CheckpointColumns<'_>,
    sealed: &[u8],
) -> Result<CheckpointRecord, DecodeError> {
    let data = open_bytes(columns.context(), "data", sealed)?.into();
    let CheckpointColumns { job, version, content_type, saved_at } = columns;
    Ok(CheckpointRecord { job, version, content_type: content_type.into(), saved_at, data })
}
