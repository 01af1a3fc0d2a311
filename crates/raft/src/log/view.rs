//! What the log thread and the readers share.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cache::Cache;
use super::error::{ReadError, Stopped};
use super::record::Record;
use super::segment::Segment;
use super::space::SpaceGauge;
use super::state::Values;
use crate::types::{LogId, Vote};

/// The log as openraft sees it.
#[derive(Debug)]
pub(super) struct View {
    pub(super) cache: Cache,
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) purged: Option<LogId>,
    /// Newest entry, also one that is not durable yet; or the newest purged one.
    pub(super) last: Option<LogId>,
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
    /// Counts removals, for readers that meet a removed record.
    removals: u64,
    /// Set by the first error of a write.
    pub(super) stopped: Option<Stopped>,
}

impl View {
    /// Returns the part of a range that the log has.
    fn existing(&self, range: Range<u64>) -> Range<u64> {
        let first = self.purged.map_or(0, |id| id.index + 1);
        // The log may begin with any entry if it was empty.
        let oldest = self.segments.first().map(|segment| segment.first()).or(self.cache.first());
        let end = self.last.map_or(0, |id| id.index + 1);
        range.start.max(first).max(oldest.unwrap_or(end))..range.end.min(end)
    }
}

/// Shared by the log thread, the log and its readers.
#[derive(Debug)]
pub(super) struct Shared {
    view: Mutex<View>,
    pub(super) segment_bytes: u64,
    pub(super) space: SpaceGauge,
}

impl Shared {
    pub(super) fn new(
        cache_bytes: usize,
        segment_bytes: u64,
        segments: Vec<Arc<Segment>>,
        last: Option<LogId>,
        values: Values,
    ) -> Self {
        let (cache, stopped) = (Cache::new(cache_bytes), None);
        let Values { vote, purged, committed } = values;
        let view = View { cache, segments, purged, last, vote, committed, removals: 0, stopped };
        Self { view: Mutex::new(view), segment_bytes, space: SpaceGauge::new() }
    }

    pub(super) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note_written(&self, last: Option<LogId>) {
        self.view().cache.note_written(last.map_or(0, |id| id.index + 1));
    }

    pub(super) fn set_segments(&self, segments: &[Arc<Segment>]) {
        self.view().segments = segments.to_vec();
    }

    pub(super) fn set_vote(&self, vote: Vote) {
        self.view().vote = Some(vote);
    }

    pub(super) fn truncate(&self, from: u64, last: Option<LogId>, segments: &[Arc<Segment>]) {
        let mut view = self.view();
        view.cache.truncate(from);
        view.last = last;
        view.segments = segments.to_vec();
        view.removals += 1;
    }

    pub(super) fn purge(&self, upto: LogId, last: Option<LogId>, segments: &[Arc<Segment>]) {
        let mut view = self.view();
        if last == Some(upto) {
            view.cache.clear();
        } else {
            view.cache.purge(upto.index);
        }
        view.purged = Some(upto);
        view.last = last;
        view.segments = segments.to_vec();
        view.removals += 1;
    }

    /// Returns the records of a range that are in memory, if these are all that the log has of it.
    pub(super) fn read_cached(&self, range: Range<u64>, bytes_max: usize) -> Option<Vec<Record>> {
        let view = self.view();
        let range = view.existing(range);
        if range.is_empty() {
            return Some(Vec::new());
        }
        view.cache.get(range.start)?;
        let mut bytes = 0;
        let within = |record: &&Record| {
            let is_within = bytes < bytes_max;
            bytes += record.encoded_len();
            is_within
        };
        Some(view.cache.range(range).take_while(within).cloned().collect())
    }

    /// Reads the records of a range from the files and from memory. Blocks.
    pub(super) fn read(&self, range: &Range<u64>, bytes_max: usize) -> Result<Vec<Record>, ReadError> {
        let mut records: Vec<Record> = Vec::new();
        loop {
            let bytes: usize = records.iter().map(Record::encoded_len).sum();
            let next = records.last().map_or(range.start, |newest| newest.id.index + 1);
            if bytes >= bytes_max || next >= range.end {
                return Ok(records);
            }
            if let Some(cached) = self.read_cached(next..range.end, bytes_max - bytes) {
                records.extend(cached);
                return Ok(records);
            }
            let (segments, wanted, removals) = {
                let view = self.view();
                let wanted = view.existing(next..range.end);
                let cached = view.cache.first().unwrap_or(wanted.end);
                (view.segments.clone(), wanted.start..wanted.end.min(cached), view.removals)
            };
            let read = read_segments(&segments, wanted, bytes_max, &mut records);
            if self.view().removals == removals {
                read?;
            } else {
                // What was read may be removed. Removals are rare, so this ends.
                records.clear();
            }
        }
    }
}

fn read_segments(
    segments: &[Arc<Segment>],
    wanted: Range<u64>,
    bytes_max: usize,
    records: &mut Vec<Record>,
) -> Result<(), ReadError> {
    let nexts = segments.iter().skip(1).map(|segment| segment.first()).chain([u64::MAX]);
    for (segment, next) in segments.iter().zip(nexts) {
        let (start, end) = (wanted.start.max(segment.first()), wanted.end.min(next));
        if start < end {
            segment.read(start..end, bytes_max, records)?;
        }
    }
    Ok(())
}
