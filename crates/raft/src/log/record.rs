//! The record of an entry in a segment.
//!
//! ```text
//!  offset  bytes
//!       0      4  length of header and payload, without the padding; 0 is the end of the segment
//!       4      4  checksum: CRC-32 of everything else, starting with the salt of the segment
//!       8      4  checksum of the previous record, or of the segment's header
//!      12      1  kind: 1 blank, 2 group of commands, 3 membership
//!      13      3  zero
//!      16     24  log id: term, node, index
//!      40      8  durable: offset in the segment up to which all was synced when this record was written
//!      48         payload, then zeros up to a multiple of 8
//! ```
//!
//! Numbers are little endian. The chain of checksums shows a record that belongs elsewhere, and each record can still be
//! verified alone. The salt is random: otherwise a user could put the bytes of a valid record into a job, and a torn tail
//! before it would look like damage.

use std::sync::Arc;

use crc32fast::Hasher;

use crate::codec::{Take, put_log_id};
use crate::types::LogId;

/// Length of the header of a record.
pub(super) const HEADER_BYTES: usize = 48;
/// Maximum length of a record. The proposer's payloads are far smaller; a greater length is not read.
pub(super) const RECORD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The content of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Blank = 1,
    Group = 2,
    Membership = 3,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Blank, Self::Group, Self::Membership].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// An entry as the log stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: LogId,
    pub(super) kind: Kind,
    pub(super) payload: Arc<[u8]>,
}

impl Record {
    /// Returns the length in the file, with padding.
    pub(super) fn encoded_len(&self) -> usize {
        padded(HEADER_BYTES + self.payload.len())
    }

    /// Appends the record to `bytes`, and returns its checksum.
    pub(super) fn encode(&self, salt: u32, previous: u32, durable: u64, bytes: &mut Vec<u8>) -> u32 {
        let start = bytes.len();
        let length = HEADER_BYTES + self.payload.len();
        let length_field = u32::try_from(length).expect("`append` refuses records over RECORD_BYTES_MAX");
        bytes.extend(length_field.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(previous.to_le_bytes());
        bytes.extend([self.kind as u8, 0, 0, 0]);
        put_log_id(&self.id, bytes);
        bytes.extend(durable.to_le_bytes());
        bytes.extend(&*self.payload);
        let checksum = checksum(salt, &bytes[start..]);
        bytes[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
        bytes.resize(start + padded(length), 0);
        checksum
    }
}

/// Rounds up to a multiple of 8.
pub(super) fn padded(length: usize) -> usize {
    length.next_multiple_of(8)
}

/// Returns the checksum of a record without padding; the checksum in its header is left out.
fn checksum(salt: u32, record: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(salt);
    hasher.update(&record[..4]);
    hasher.update(&record[8..]);
    hasher.finalize()
}

/// Header of a record, with values that are possible. The checksum is not verified yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Length of header and payload.
    pub(super) length: usize,
    pub(super) checksum: u32,
    pub(super) previous: u32,
    pub(super) kind: Kind,
    pub(super) id: LogId,
    pub(super) durable: u64,
}

impl Header {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        let length = usize::try_from(take.u32()?).ok()?;
        let (checksum, previous) = (take.u32()?, take.u32()?);
        let kind = Kind::from_byte(take.u8()?)?;
        let is_possible = (HEADER_BYTES..=RECORD_BYTES_MAX).contains(&length) && take.bytes()? == [0; 3];
        let header = Self { length, checksum, previous, kind, id: take.log_id()?, durable: take.u64()? };
        is_possible.then_some(header)
    }

    /// Returns whether `record`, of this header's length, has the right checksum.
    pub(super) fn verifies(&self, salt: u32, record: &[u8]) -> bool {
        checksum(salt, record) == self.checksum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::log_id;
    use crate::types::NodeId;

    #[test]
    fn a_record_is_read_back_and_a_changed_bit_is_noticed() {
        let payload: Arc<[u8]> = Arc::from(&b"thirteen byte"[..]);
        let record = Record { id: log_id(3, NodeId(5), 7), kind: Kind::Group, payload };
        let mut bytes = Vec::new();
        let checksum = record.encode(11, 12, 64, &mut bytes);
        assert_eq!((bytes.len(), record.encoded_len()), (64, 64));
        let header = Header::parse(&bytes).unwrap();
        let expected =
            Header { length: 61, checksum, previous: 12, kind: Kind::Group, id: record.id, durable: 64 };
        assert_eq!(header, expected);
        assert!(header.verifies(11, &bytes[..61]));
        assert!(!header.verifies(12, &bytes[..61]), "the salt of another segment");
        for bit in 0..61 * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let valid = Header::parse(&changed).is_some_and(|header| {
                changed.get(..header.length).is_some_and(|record| header.verifies(11, record))
            });
            assert!(!valid, "bit {bit}");
        }
    }
}
