//! Encoding of elements that running tasks added to steps, in batches.

use std::borrow::Cow;

use model::Timestamp;
use model::run::{Adder, BatchKey, ElementBatch};
use serde::{Deserialize, Serialize};

use super::{Context, DecodeError, open, seal};

/// Batch without its key, which has its own columns.
#[derive(Serialize, Deserialize)]
struct BatchRow<'a> {
    by: (u32, Option<u32>),
    #[serde(borrow)]
    name: Cow<'a, str>,
    count: u32,
    added_at: i64,
    #[serde(borrow)]
    elements: Cow<'a, str>,
}

fn context(BatchKey { run, step, first }: BatchKey) -> Context {
    Context::of(run.to_bits()).with_number(step.into()).with_number(first.into())
}

/// Seals a batch without its key.
pub(crate) fn seal_elements(batch: &ElementBatch) -> Vec<u8> {
    let row = BatchRow {
        by: (batch.by.step, batch.by.item),
        name: Cow::Borrowed(&batch.name),
        count: batch.count,
        added_at: batch.added_at.as_micros(),
        elements: Cow::Borrowed(&batch.elements),
    };
    seal(context(batch.key), &row)
}

/// Opens what [`seal_elements`] sealed.
pub(crate) fn open_elements(key: BatchKey, sealed: &[u8]) -> Result<ElementBatch, DecodeError> {
    let row: BatchRow<'_> = open(context(key), "batch", sealed)?;
    let (step, item) = row.by;
    Ok(ElementBatch {
        key,
        by: Adder { step, item },
        name: row.name.into(),
        count: row.count,
        elements: row.elements.into(),
        added_at: Timestamp::from_micros(row.added_at),
    })
}
