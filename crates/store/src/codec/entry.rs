//! Checksums of entries: access control and alerts.
//!
//! Their bodies are JSON, which operators can read in the database, so they are not sealed.

use crc32fast::Hasher;

/// Returns the CRC-32 of an entry, over the length and the bytes of each column.
pub(crate) fn entry_checksum(kind: &str, key: &str, body: &str) -> u32 {
    let mut hasher = Hasher::new();
    for column in [kind, key, body] {
        hasher.update(&(column.len() as u64).to_le_bytes());
        hasher.update(column.as_bytes());
    }
    hasher.finalize()
}
