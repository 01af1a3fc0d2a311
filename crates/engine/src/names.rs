//! Hashes of names: they identify named objects, and decide the shard of each.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use model::ShardId;

/// Hash of a name: decides its shard, and identifies it where the name itself is not stored.
pub(crate) fn name_hash(namespace: &str, name: &str) -> u128 {
    let half = |seed: u64| {
        let mut hasher = FixedState::with_seed(seed).build_hasher();
        hasher.write(namespace.as_bytes());
        hasher.write_u8(0xff);
        hasher.write(name.as_bytes());
        hasher.finish()
    };
    (u128::from(half(0x5eed_0001)) << 64) | u128::from(half(0x5eed_0002))
}

/// Returns the shard of a named object from the hash of its namespace and name.
pub(crate) fn shard_of(hash: u128, shards: u16) -> ShardId {
    ShardId(u16::try_from(hash % u128::from(shards.max(1))).unwrap_or_default())
}
