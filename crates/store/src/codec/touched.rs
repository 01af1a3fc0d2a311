//! Encoding of the effects of a commit in a row of the changelog.
//!
//! Each effect is a tag and a fixed number of bytes, with big-endian numbers; no other struct of the store is
//! written as often. No effects are encoded as no bytes, without a checksum, so that the database can write
//! them itself.
//!
//! The epoch of the commit is part of the checksum: an entry of another history is not accepted. A tag never
//! changes its meaning. An unknown tag is an error, so a standby of an older version follows no change that
//! it cannot interpret.

use model::changelog::{LiveChange, LiveKey};
use model::id::Epoch;
use model::record::{KeyRecord, RunKeyRecord};
use model::{BackfillId, JobId, RunId, ScheduleId, ServiceId, ShardId, Timestamp, WorkflowId};

use super::{Context, DecodeError, FORMAT, open_bytes, seal_bytes};

const COLUMN: &str = "touched";
/// Length of a tag and an ID, the most frequent encoding.
const USUAL_LEN: usize = 17;

/// Seals the effects of a commit, with its epoch in the checksum.
pub(crate) fn seal_touched(epoch: Epoch, touched: &[LiveChange]) -> Vec<u8> {
    if touched.is_empty() {
        return Vec::new();
    }
    let mut bytes = Vec::with_capacity(1 + touched.len() * USUAL_LEN + super::CRC_LEN);
    bytes.push(FORMAT);
    touched.iter().for_each(|touched| put(&mut bytes, touched));
    seal_bytes(context(epoch), bytes)
}

/// Opens what [`seal_touched`] sealed.
pub(crate) fn open_touched(epoch: Epoch, sealed: &[u8]) -> Result<Vec<LiveChange>, DecodeError> {
    if sealed.is_empty() {
        return Ok(Vec::new());
    }
    let mut rest = open_bytes(context(epoch), COLUMN, sealed)?;
    let mut touched = Vec::with_capacity(rest.len() / USUAL_LEN);
    while let Some((tag, behind)) = rest.split_first() {
        rest = behind;
        touched.push(take(*tag, &mut rest)?);
    }
    Ok(touched)
}

fn context(epoch: Epoch) -> Context {
    Context::of(epoch.0.into())
}

/// A tag never changes its meaning.
fn put(bytes: &mut Vec<u8>, touched: &LiveChange) {
    match *touched {
        LiveChange::Rows(LiveKey::Workers) => bytes.push(0),
        LiveChange::Rows(LiveKey::Queues) => bytes.push(1),
        LiveChange::Rows(LiveKey::Calendars) => bytes.push(2),
        LiveChange::Rows(LiveKey::Schedule(schedule)) => put_id(bytes, 3, schedule.to_bits()),
        LiveChange::Rows(LiveKey::Backfill(backfill)) => put_id(bytes, 4, backfill.to_bits()),
        LiveChange::Rows(LiveKey::Workflow(workflow)) => put_id(bytes, 5, workflow.to_bits()),
        LiveChange::Rows(LiveKey::Run(run)) => put_id(bytes, 6, run.to_bits()),
        LiveChange::Rows(LiveKey::Job(job)) => put_id(bytes, 7, job.to_bits()),
        LiveChange::Ended(job) => put_id(bytes, 8, job.to_bits()),
        LiveChange::Key(KeyRecord { key, body, job, expires_at }) => {
            put_id(bytes, 9, key);
            put_key(bytes, body, job.to_bits(), expires_at);
        }
        LiveChange::RunKey(RunKeyRecord { key, body, run, expires_at }) => {
            put_id(bytes, 10, key);
            put_key(bytes, body, run.to_bits(), expires_at);
        }
        LiveChange::KeysPurged { shard, expired_before } => {
            bytes.push(11);
            bytes.extend_from_slice(&shard.0.to_be_bytes());
            bytes.extend_from_slice(&expired_before.as_micros().to_be_bytes());
        }
        LiveChange::Rows(LiveKey::Namespaces) => bytes.push(12),
        LiveChange::Rows(LiveKey::Service(service)) => put_id(bytes, 13, service.to_bits()),
    }
}

fn put_id(bytes: &mut Vec<u8>, tag: u8, bits: u128) {
    bytes.push(tag);
    bytes.extend_from_slice(&bits.to_be_bytes());
}

/// Writes the values that follow the key.
fn put_key(bytes: &mut Vec<u8>, body: u128, work: u128, expires_at: Timestamp) {
    bytes.extend_from_slice(&body.to_be_bytes());
    bytes.extend_from_slice(&work.to_be_bytes());
    bytes.extend_from_slice(&expires_at.as_micros().to_be_bytes());
}

fn take(tag: u8, rest: &mut &[u8]) -> Result<LiveChange, DecodeError> {
    Ok(match tag {
        0 => LiveChange::Rows(LiveKey::Workers),
        1 => LiveChange::Rows(LiveKey::Queues),
        2 => LiveChange::Rows(LiveKey::Calendars),
        3 => LiveChange::Rows(LiveKey::Schedule(ScheduleId::from_bits(bits(rest)?))),
        4 => LiveChange::Rows(LiveKey::Backfill(BackfillId::from_bits(bits(rest)?))),
        5 => LiveChange::Rows(LiveKey::Workflow(WorkflowId::from_bits(bits(rest)?))),
        6 => LiveChange::Rows(LiveKey::Run(RunId::from_bits(bits(rest)?))),
        7 => LiveChange::Rows(LiveKey::Job(JobId::from_bits(bits(rest)?))),
        8 => LiveChange::Ended(JobId::from_bits(bits(rest)?)),
        9 => {
            let (key, body, job) = (bits(rest)?, bits(rest)?, JobId::from_bits(bits(rest)?));
            LiveChange::Key(KeyRecord { key, body, job, expires_at: timestamp(rest)? })
        }
        10 => {
            let (key, body, run) = (bits(rest)?, bits(rest)?, RunId::from_bits(bits(rest)?));
            LiveChange::RunKey(RunKeyRecord { key, body, run, expires_at: timestamp(rest)? })
        }
        11 => {
            let shard = ShardId(u16::from_be_bytes(array(rest)?));
            LiveChange::KeysPurged { shard, expired_before: timestamp(rest)? }
        }
        12 => LiveChange::Rows(LiveKey::Namespaces),
        13 => LiveChange::Rows(LiveKey::Service(ServiceId::from_bits(bits(rest)?))),
        unknown => {
            return Err(DecodeError::Value { column: COLUMN, what: "changelog tag", found: unknown.into() });
        }
    })
}

fn bits(rest: &mut &[u8]) -> Result<u128, DecodeError> {
    array(rest).map(u128::from_be_bytes)
}

fn timestamp(rest: &mut &[u8]) -> Result<Timestamp, DecodeError> {
    array(rest).map(|bytes| Timestamp::from_micros(i64::from_be_bytes(bytes)))
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], DecodeError> {
    let (bytes, behind) =
        rest.split_first_chunk().ok_or_else(|| DecodeError::decode(COLUMN, "it ends unexpectedly"))?;
    *rest = behind;
    Ok(*bytes)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn touched() -> impl Strategy<Value = LiveChange> {
        let kinds = (0..14u8, any::<[u128; 3]>(), any::<i64>(), any::<u16>());
        kinds.prop_map(|(tag, [a, b, c], micros, shard)| {
            let expires_at = Timestamp::from_micros(micros);
            match tag {
                0 => LiveChange::Rows(LiveKey::Workers),
                1 => LiveChange::Rows(LiveKey::Queues),
                2 => LiveChange::Rows(LiveKey::Calendars),
                3 => LiveChange::Rows(LiveKey::Schedule(ScheduleId::from_bits(a))),
                4 => LiveChange::Rows(LiveKey::Backfill(BackfillId::from_bits(a))),
                5 => LiveChange::Rows(LiveKey::Workflow(WorkflowId::from_bits(a))),
                6 => LiveChange::Rows(LiveKey::Run(RunId::from_bits(a))),
                7 => LiveChange::Rows(LiveKey::Job(JobId::from_bits(a))),
                8 => LiveChange::Ended(JobId::from_bits(a)),
                9 => LiveChange::Key(KeyRecord { key: a, body: b, job: JobId::from_bits(c), expires_at }),
                10 => {
                    LiveChange::RunKey(RunKeyRecord { key: a, body: b, run: RunId::from_bits(c), expires_at })
                }
                11 => LiveChange::Rows(LiveKey::Namespaces),
                12 => LiveChange::Rows(LiveKey::Service(ServiceId::from_bits(a))),
                _ => LiveChange::KeysPurged { shard: ShardId(shard), expired_before: expires_at },
            }
        })
    }

    proptest! {
        /// D5. Every variant, in the given order.
        #[test]
        fn effects_of_a_commit_are_opened_unchanged(epoch: u64, touched in vec(touched(), 0..20)) {
            let sealed = seal_touched(Epoch(epoch), &touched);
            prop_assert_eq!(open_touched(Epoch(epoch), &sealed).unwrap(), touched);
        }

        /// F9. A flipped bit, a truncated end, another epoch.
        #[test]
        fn damage_is_detected(
            epoch: u64,
            touched in vec(touched(), 1..20),
            place: prop::sample::Index,
            bit in 0..8u8,
        ) {
            let sealed = seal_touched(Epoch(epoch), &touched);
            let place = place.index(sealed.len());
            let mut flipped = sealed.clone();
            flipped[place] ^= 1 << bit;
            prop_assert!(open_touched(Epoch(epoch), &flipped).is_err());
            prop_assert!(open_touched(Epoch(epoch ^ (1 << bit)), &sealed).is_err());
            if place > 0 {
                prop_assert!(open_touched(Epoch(epoch), &sealed[..place]).is_err());
            }
        }

        /// F9. Arbitrary bytes.
        #[test]
        fn arbitrary_bytes_never_panic(
            touched in vec(touched(), 1..5),
            place: prop::sample::Index,
            bytes in vec(any::<u8>(), 0..20),
        ) {
            let mut sealed = vec![FORMAT];
            touched.iter().for_each(|touched| put(&mut sealed, touched));
            sealed.truncate(1 + place.index(sealed.len()));
            sealed.extend(bytes);
            let sealed = seal_bytes(context(Epoch(1)), sealed);
            if let Ok(touched) = open_touched(Epoch(1), &sealed) {
                prop_assert!(touched.is_empty() || seal_touched(Epoch(1), &touched) == sealed);
            }
        }
    }
}
