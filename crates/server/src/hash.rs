//! Hashes by which what was asked once is known again.

use sha2::{Digest as _, Sha256};

/// The first half of a SHA-256; no part runs into the next.
pub(crate) fn short_hash(parts: &[&[u8]]) -> u128 {
    let mut hash = Sha256::new();
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            hash.update([0]);
        }
        hash.update(part);
    }
    let whole: [u8; 32] = hash.finalize().into();
    whole.first_chunk().map(|half| u128::from_be_bytes(*half)).unwrap_or_default()
}
