//! The newest records in memory.
//!
//! Replication reads an entry right after it was appended, and the state machine right after it was committed, so nearly
//! every read is served here. Records that are not in their file yet are never evicted.

use std::collections::VecDeque;
use std::ops::Range;

use super::record::Record;

/// Maximum number of records; bounds the memory for blank entries and small groups.
const RECORDS_MAX: usize = 8192;

/// Consecutive records, the newest of the log.
#[derive(Debug)]
pub(super) struct Cache {
    records: VecDeque<Record>,
    bytes: usize,
    bytes_max: usize,
    /// Records below this index are in their file.
    written: u64,
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { records: VecDeque::new(), bytes: 0, bytes_max, written: 0 }
    }

    /// Adds a record that follows the newest one.
    pub(super) fn push(&mut self, record: Record) {
        debug_assert!(self.records.back().is_none_or(|newest| newest.id.index + 1 == record.id.index));
        self.bytes += record.encoded_len();
        self.records.push_back(record);
    }

    /// Notes that all records below `index` are in their file, and evicts the oldest ones over the limit.
    pub(super) fn note_written(&mut self, index: u64) {
        self.written = index;
        while (self.bytes > self.bytes_max || self.records.len() > RECORDS_MAX)
            && let Some(oldest) = self.records.pop_front_if(|oldest| oldest.id.index < index)
        {
            self.bytes -= oldest.encoded_len();
        }
    }

    /// Removes the records from `index` on.
    pub(super) fn truncate(&mut self, index: u64) {
        while let Some(removed) = self.records.pop_back_if(|newest| newest.id.index >= index) {
            self.bytes -= removed.encoded_len();
        }
        self.written = self.written.min(index);
    }

    /// Removes the records up to `index`.
    pub(super) fn purge(&mut self, index: u64) {
        while let Some(removed) = self.records.pop_front_if(|oldest| oldest.id.index <= index) {
            self.bytes -= removed.encoded_len();
        }
    }

    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.bytes = 0;
    }

    /// Returns the index of the oldest record, or `None` if there is no record.
    pub(super) fn first(&self) -> Option<u64> {
        self.records.front().map(|oldest| oldest.id.index)
    }

    pub(super) fn get(&self, index: u64) -> Option<&Record> {
        let at = usize::try_from(index.checked_sub(self.first()?)?).ok()?;
        self.records.get(at)
    }

    /// Returns the records of the range that are here: a suffix of the range, if the range ends within the log.
    pub(super) fn range(&self, range: Range<u64>) -> impl Iterator<Item = &Record> {
        let start = range.start.max(self.first().unwrap_or(range.end));
        (start..range.end).map_while(|index| self.get(index))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::codec::log_id;
    use crate::log::record::Kind;
    use crate::types::NodeId;

    fn cache(indexes: Range<u64>) -> Cache {
        let mut cache = Cache::new(5 * 64);
        for index in indexes {
            let payload: Arc<[u8]> = Arc::from([7; 16]);
            cache.push(Record { id: log_id(1, NodeId(1), index), kind: Kind::Group, payload });
        }
        cache
    }

    fn indexes(cache: &Cache, range: Range<u64>) -> Vec<u64> {
        cache.range(range).map(|record| record.id.index).collect()
    }

    #[test]
    fn only_written_records_are_evicted() {
        let mut cache = cache(10..20);
        assert_eq!(cache.first(), Some(10));
        cache.note_written(13);
        assert_eq!(cache.first(), Some(13), "seven are over the limit, but may not be evicted");
        cache.note_written(20);
        assert_eq!(indexes(&cache, 0..30), [15, 16, 17, 18, 19]);
        assert_eq!(cache.bytes, 5 * 64);
    }

    #[test]
    fn both_ends_are_removed() {
        let mut cache = cache(10..20);
        cache.truncate(18);
        cache.purge(11);
        assert_eq!(indexes(&cache, 0..14), [12, 13]);
        assert_eq!(indexes(&cache, 16..30), [16, 17]);
        assert_eq!(cache.bytes, 6 * 64);
        cache.truncate(0);
        assert_eq!((cache.first(), cache.bytes), (None, 0));
        assert_eq!(indexes(&cache, 0..30), [0; 0]);
    }
}
