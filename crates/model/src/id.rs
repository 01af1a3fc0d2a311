//! Typed IDs that sort by creation time and contain their shard.
//!
//! An ID has 128 bits: 48 bits of Unix milliseconds, a 64-bit counter within the millisecond, and 16 bits of shard.
//! Its text is a prefix and 26 characters of Crockford's base 32 in lower case (`job_01k9zq3m6c0000000000000000`). So
//! the text and the number have the same order: creation time.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const TEXT_LEN: usize = 26;

/// Shard: a partition of jobs, schedules, workflows and runs, owned by one server at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardId(pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Epoch of a shard; increases with every change of ownership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Fencing token of an execution; increases with every execution of a job. A message with an older token is ignored.
///
/// The bits from 24 upwards are the epoch of the shard. After a restore from a backup the epoch is raised, so that
/// the shard never issues the same token twice.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(transparent)]
pub struct Fence(pub u64);

impl Fence {
    /// Returns the fencing token of the next execution, issued under `epoch`.
    pub fn next(self, epoch: Epoch) -> Self {
        Self((self.0 + 1).max((epoch.0 << 24) + 1))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Text that is not an ID of the expected type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}: expected `{prefix}_` and 26 characters of 0-9 and a-z without i, l, o, u")]
pub struct ParseIdError {
    /// Found text, cut to 64 characters.
    pub text: String,
    /// Expected type with its article, for example "a job id".
    pub what: &'static str,
    /// Expected prefix, without the underscore.
    pub prefix: &'static str,
}

/// Generator of strictly increasing IDs, for the owner of a shard.
///
/// The caller supplies the time and the randomness. Two generators with different seeds collide with a probability of
/// 2⁻⁴⁰ for each pair of IDs of the same shard and millisecond.
#[derive(Debug, Clone, Default)]
pub struct IdSource {
    millis: u64,
    counter: u64,
}

impl IdSource {
    /// Returns the bits of the next ID. `entropy` is used only at the start of a new millisecond.
    pub fn next(&mut self, now: Timestamp, shard: ShardId, entropy: u64) -> u128 {
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        if millis > self.millis {
            self.millis = millis;
            // The lowest bits start at zero, so that the counter has room within the millisecond.
            self.counter = entropy & 0x00ff_ffff_ffff_0000;
        } else {
            self.counter += 1;
        }
        (u128::from(self.millis & 0xffff_ffff_ffff) << 80)
            | (u128::from(self.counter) << 16)
            | u128::from(shard.0)
    }
}

fn encode(bits: u128, prefix: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [0u8; TEXT_LEN];
    for (i, slot) in text.iter_mut().enumerate() {
        let index = (bits >> (5 * (TEXT_LEN - 1 - i))) & 31;
        *slot = ALPHABET[usize::try_from(index).unwrap_or_default()];
    }
    let text = str::from_utf8(&text).unwrap_or_default();
    write!(f, "{prefix}_{text}")
}

fn decode(text: &str, prefix: &str) -> Option<u128> {
    let digits = text.strip_prefix(prefix)?.strip_prefix('_')?.as_bytes();
    // 26 digits have 130 bits: the first digit uses only three of its five.
    if digits.len() != TEXT_LEN || digits[0] > b'7' {
        return None;
    }
    digits.iter().try_fold(0u128, |bits, digit| {
        let value = ALPHABET.iter().position(|c| c == digit)?;
        Some((bits << 5) | value as u128)
    })
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal;)*) => {$(
        $(#[$doc])*
        // Big-endian bytes instead of a `u128`: the order is the same, and an `Option` takes 17 bytes instead of 32.
        // Millions of them are in memory.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Prefix of the text form, before the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// Creates an ID from the bits of [`IdSource::next`] or of a store.
            pub const fn from_bits(bits: u128) -> Self {
                Self(bits.to_be_bytes())
            }

            /// Returns the bits of the ID; they have the same order as the text.
            pub const fn to_bits(self) -> u128 {
                u128::from_be_bytes(self.0)
            }

            /// Returns the shard of the object.
            pub const fn shard(self) -> ShardId {
                ShardId((self.to_bits() & 0xffff) as u16)
            }

            /// Returns the creation time of the ID, with millisecond precision.
            pub fn created_at(self) -> Timestamp {
                Timestamp::from_millis(i64::try_from(self.to_bits() >> 80).unwrap_or(i64::MAX))
            }
        }

        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                state.write_u128(self.to_bits());
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                encode(self.to_bits(), $prefix, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                encode(self.to_bits(), $prefix, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                decode(text, $prefix).map(Self::from_bits).ok_or_else(|| ParseIdError {
                    text: text.chars().take(64).collect(),
                    what: $what,
                    prefix: $prefix,
                })
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                if s.is_human_readable() { s.collect_str(self) } else { self.to_bits().serialize(s) }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                if d.is_human_readable() {
                    let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                    text.parse().map_err(serde::de::Error::custom)
                } else {
                    u128::deserialize(d).map(Self::from_bits)
                }
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .pattern(Some(concat!("^", $prefix, "_[0-7][0-9a-hjkmnp-tv-z]{25}$")))
                    .examples([concat!($prefix, "_01k9zq3m6c0000000000000000")])
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {}
    )*};
}

ids! {
    /// ID of a job.
    JobId, "job", "a job id";
    /// ID of an execution: one attempt of a job on one worker.
    ExecutionId, "exe", "an execution id";
    /// ID of a worker. The worker creates it together with its journal.
    WorkerId, "wkr", "a worker id";
    /// ID of a schedule. Its shard is derived from the namespace and the name of the schedule.
    ScheduleId, "sch", "a schedule id";
    /// ID of a backfill: runs of a schedule for a past range.
    BackfillId, "bkf", "a backfill id";
    /// ID of a workflow. Its shard is derived from the namespace and the name of the workflow.
    WorkflowId, "wfl", "a workflow id";
    /// ID of a workflow run. The run and all its jobs are in the shard of their workflow.
    RunId, "run", "a run id";
    /// ID of a service. Its shard is derived from the namespace and the name of the service, and so is that of its jobs.
    ServiceId, "svc", "a service id";
    /// ID of a server process; every start of the process gets a new one.
    ServerId, "srv", "a server id";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn an_id_round_trips_through_text_and_contains_shard_and_time() {
        let bits = IdSource::default().next(at(1_764_000_000_123), ShardId(7), u64::MAX);
        let id = JobId::from_bits(bits);
        assert_eq!(id.to_string().parse::<JobId>(), Ok(id));
        assert_eq!(id.shard(), ShardId(7));
        assert_eq!(id.created_at(), at(1_764_000_000_123));
    }

    #[test]
    fn ids_increase_even_if_the_clock_stops_or_goes_back() {
        let mut source = IdSource::default();
        let ids: Vec<_> = [5, 5, 4, 6, 6, 1]
            .into_iter()
            .map(|millis| JobId::from_bits(source.next(at(millis), ShardId(3), 0xdead_beef_dead_beef)))
            .collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert!(ids.is_sorted_by_key(ToString::to_string));
    }

    #[test]
    fn an_invalid_id_is_rejected_with_the_expected_form() {
        for text in ["", "job_", "exe_01k9zq3m6c0000000000000000", "job_81k9zq3m6c0000000000000000", "job_1"]
        {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
        insta::assert_snapshot!("job_x".parse::<JobId>().unwrap_err(),
            @"`job_x` is not a job id: expected `job_` and 26 characters of 0-9 and a-z without i, l, o, u");
    }

    #[test]
    fn a_fence_grows_by_one_and_jumps_with_the_epoch() {
        let first = Fence::default().next(Epoch(1));
        assert_eq!(first, Fence((1 << 24) + 1));
        assert_eq!(first.next(Epoch(1)), Fence((1 << 24) + 2));
        assert_eq!(first.next(Epoch(2)), Fence((2 << 24) + 1));
    }
}
