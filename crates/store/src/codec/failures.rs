//! Encoding of failures: what one commit counted, the groups, and the states that users set.
//!
//! The failures of a commit follow its statistics in the same row (see [`super::statistics`]). A group has two columns:
//! its record, which a fold rewrites, and its mark, which a user sets. So neither has to know the other.

use model::failures::{
    FailedName, FailureCount, FailureGroup, FailureGroupId, FailureMark, FailureState, Signature,
};
use model::{JobId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Context, DecodeError, open, seal};

#[derive(Serialize, Deserialize)]
struct SignatureRow {
    error: Box<str>,
    exit_code: Option<i32>,
    message: Box<str>,
}

/// Failures of one name and signature in a commit.
#[derive(Serialize, Deserialize)]
pub(super) struct FailuresRow {
    namespace: Box<str>,
    name: Box<str>,
    signature: SignatureRow,
    count: u64,
    jobs: Vec<[u8; 16]>,
    message: Box<str>,
}

#[derive(Serialize, Deserialize)]
struct GroupRow {
    signature: SignatureRow,
    message: Box<str>,
    first_seen: i64,
    last_seen: i64,
    count: u64,
    names: Vec<(Box<str>, u64, i64)>,
    unlisted: u64,
    jobs: Vec<[u8; 16]>,
    hours: Vec<(i64, u64)>,
}

#[derive(Serialize, Deserialize)]
struct MarkRow {
    state: u8,
    note: Option<Box<str>>,
    by: Box<str>,
    at: i64,
    count: u64,
}

impl From<&Signature> for SignatureRow {
    fn from(signature: &Signature) -> Self {
        let Signature { error, exit_code, message } = signature;
        Self { error: error.clone(), exit_code: *exit_code, message: message.clone() }
    }
}

impl From<SignatureRow> for Signature {
    fn from(row: SignatureRow) -> Self {
        Self { error: row.error, exit_code: row.exit_code, message: row.message }
    }
}

impl From<&FailureCount> for FailuresRow {
    fn from(failures: &FailureCount) -> Self {
        Self {
            namespace: (&*failures.namespace).into(),
            name: (&*failures.name).into(),
            signature: (&failures.signature).into(),
            count: failures.count,
            jobs: failures.jobs.iter().map(|job| job.to_bits().to_be_bytes()).collect(),
            message: failures.message.clone(),
        }
    }
}

impl From<FailuresRow> for FailureCount {
    fn from(row: FailuresRow) -> Self {
        Self {
            namespace: row.namespace.into(),
            name: row.name.into(),
            signature: row.signature.into(),
            count: row.count,
            jobs: row.jobs.into_iter().map(|bits| JobId::from_bits(u128::from_be_bytes(bits))).collect(),
            message: row.message,
        }
    }
}

fn context_of(column: u8, namespace: &str, id: FailureGroupId) -> Context {
    Context::of_text(namespace).with(&[0, column]).with_number(id.0)
}

/// Seals the record of a group: everything but its mark.
pub(crate) fn seal_group(group: &FailureGroup) -> Vec<u8> {
    let row = GroupRow {
        signature: (&group.signature).into(),
        message: group.message.clone(),
        first_seen: group.first_seen.as_micros(),
        last_seen: group.last_seen.as_micros(),
        count: group.count,
        names: group
            .names
            .iter()
            .map(|name| ((&*name.name).into(), name.count, name.last_seen.as_micros()))
            .collect(),
        unlisted: group.unlisted,
        jobs: group.jobs.iter().map(|job| job.to_bits().to_be_bytes()).collect(),
        hours: group.hours.iter().map(|(hour, count)| (hour.as_micros(), *count)).collect(),
    };
    seal(context_of(0, &group.namespace, group.id()), &row)
}

/// Opens the record and the mark of a group.
pub(crate) fn open_group(
    namespace: &str,
    id: FailureGroupId,
    record: &[u8],
    mark: Option<&[u8]>,
) -> Result<FailureGroup, DecodeError> {
    let row: GroupRow = open(context_of(0, namespace, id), "record", record)?;
    Ok(FailureGroup {
        namespace: namespace.into(),
        signature: row.signature.into(),
        message: row.message,
        first_seen: Timestamp::from_micros(row.first_seen),
        last_seen: Timestamp::from_micros(row.last_seen),
        count: row.count,
        names: row
            .names
            .into_iter()
            .map(|(name, count, at)| FailedName {
                name: name.into(),
                count,
                last_seen: Timestamp::from_micros(at),
            })
            .collect(),
        unlisted: row.unlisted,
        jobs: row.jobs.into_iter().map(|bits| JobId::from_bits(u128::from_be_bytes(bits))).collect(),
        hours: row.hours.into_iter().map(|(hour, count)| (Timestamp::from_micros(hour), count)).collect(),
        mark: mark.map(|sealed| open_mark(namespace, id, sealed)).transpose()?,
    })
}

/// Seals the state that a user set.
pub(crate) fn seal_mark(namespace: &str, id: FailureGroupId, mark: &FailureMark) -> Vec<u8> {
    let FailureMark { state, note, by, at, count } = mark;
    let (note, by) = (note.clone(), by.clone());
    let row = MarkRow { state: state.code(), note, by, at: at.as_micros(), count: *count };
    seal(context_of(1, namespace, id), &row)
}

fn open_mark(namespace: &str, id: FailureGroupId, sealed: &[u8]) -> Result<FailureMark, DecodeError> {
    let row: MarkRow = open(context_of(1, namespace, id), "mark", sealed)?;
    let known = FailureState::ALL.iter().copied().find(|known| known.code() == row.state);
    let wrong =
        DecodeError::Value { column: "mark", what: "state of a failure group", found: row.state.into() };
    Ok(FailureMark {
        state: known.ok_or(wrong)?,
        note: row.note,
        by: row.by,
        at: Timestamp::from_micros(row.at),
        count: row.count,
    })
}
