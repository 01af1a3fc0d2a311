//! Typed, time-ordered ids that carry their shard.
//!
//! An id is 128 bits: 48 bits of Unix milliseconds, 64 bits that grow within a millisecond, and 16
//! bits of shard. Its text is a prefix and 26 characters of Crockford's base 32 in lower case
//! (`job_01k9zq3m6c0000000000000000`), so text and number sort alike: by time of creation.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const TEXT_LEN: usize = 26;

/// A slice of the job space, owned by one server at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardId(pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Which ownership of a shard this is; grows with every acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A number that grows with every execution of a job; a message with an older one changes nothing.
///
/// Its high half is the shard's epoch, so that a shard that was restored from a backup, and whose
/// epoch was raised for that, never gives out a fence twice.
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
    /// The fence of the next execution, given out under `epoch`.
    pub fn next(self, epoch: Epoch) -> Self {
        Self((self.0 + 1).max((epoch.0 << 24) + 1))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Why a text is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}: expected `{prefix}_` and 26 characters of 0-9 and a-z without i, l, o, u")]
pub struct ParseIdError {
    /// The text, cut to a showable length.
    pub text: String,
    /// "a job id", for instance.
    pub what: &'static str,
    /// The prefix that was expected, without its underscore.
    pub prefix: &'static str,
}

/// Makes ids that strictly grow, for whoever owns a shard.
///
/// The caller brings the time and the randomness; two generators with different seeds do not
/// collide but with a chance of 2⁻⁴⁰ for each pair of ids of one shard and one millisecond.
#[derive(Debug, Clone, Default)]
pub struct IdSource {
    millis: u64,
    counter: u64,
}

impl IdSource {
    /// The bits of the next id. `entropy` is used where a new millisecond begins.
    pub fn next(&mut self, now: Timestamp, shard: ShardId, entropy: u64) -> u128 {
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        if millis > self.millis {
            self.millis = millis;
            // The lowest bits start at zero to leave room to count within the millisecond.
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
    // 26 digits are 130 bits: the first may use three of its five.
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
        // Big-endian bytes instead of a `u128`: they sort alike, and an `Option` of them takes 17
        // bytes instead of 32. Millions of them are held in memory.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name([u8; 16]);

        impl $name {
            /// What its text begins with, before the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// From the bits that [`IdSource::next`] made or a store kept.
            pub const fn from_bits(bits: u128) -> Self {
                Self(bits.to_be_bytes())
            }

            /// The id as a number; sorts as its text does.
            pub const fn to_bits(self) -> u128 {
                u128::from_be_bytes(self.0)
            }

            /// The shard that it belongs to.
            pub const fn shard(self) -> ShardId {
                ShardId((self.to_bits() & 0xffff) as u16)
            }

            /// When it was made, to the millisecond.
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
    /// One unit of work that was asked for.
    JobId, "job", "a job id";
    /// One try of a job on one worker.
    ExecutionId, "exe", "an execution id";
    /// A machine that runs executions. Made by the worker, together with its journal.
    WorkerId, "wkr", "a worker id";
    /// A named rule that creates jobs. Its shard is that of its namespace and name.
    ScheduleId, "sch", "a schedule id";
    /// A past range of a schedule that is made up for.
    BackfillId, "bkf", "a backfill id";
    /// A named DAG of steps. Its shard is that of its namespace and name.
    WorkflowId, "wfl", "a workflow id";
    /// One run of a workflow. It stands in the shard of its workflow, and all of its jobs with it.
    RunId, "run", "a run id";
    /// A process that takes requests, decides and stores; another one after each start.
    ServerId, "srv", "a server id";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn an_id_survives_its_text_and_knows_its_shard_and_time() {
        let bits = IdSource::default().next(at(1_764_000_000_123), ShardId(7), u64::MAX);
        let id = JobId::from_bits(bits);
        assert_eq!(id.to_string().parse::<JobId>(), Ok(id));
        assert_eq!(id.shard(), ShardId(7));
        assert_eq!(id.created_at(), at(1_764_000_000_123));
    }

    #[test]
    fn ids_grow_as_numbers_and_as_text_even_if_the_clock_stands_or_falls_back() {
        let mut source = IdSource::default();
        let ids: Vec<_> = [5, 5, 4, 6, 6, 1]
            .into_iter()
            .map(|millis| JobId::from_bits(source.next(at(millis), ShardId(3), 0xdead_beef_dead_beef)))
            .collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert!(ids.is_sorted_by_key(ToString::to_string));
    }

    #[test]
    fn what_is_no_id_is_refused_with_what_was_expected() {
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
