//! Hashes: of keys, idempotency keys, request bodies, checkpoints and entity tags.

use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 in lower-case hexadecimal digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the first half of the SHA-256 of the parts. A separator keeps adjacent parts distinct.
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
