//! The traits of openraft, by which it reads and changes the log.

#![expect(clippy::result_large_err, reason = "openraft's traits demand its large error")]

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, EntryPayload, LogState, OptionalSend, RaftLogReader, StorageError, StorageIOError};

use super::error::{ReadError, Stopped};
use super::record::{Kind, Record};
use super::thread::io_result;
use super::{Log, LogReader, READ_BYTES};
use crate::codec::{decode_membership, encode_membership};
use crate::types::{LogId, NodeId, Payload, Types, Vote};

impl Record {
    fn from_entry<C: Types>(entry: C::Entry) -> Self {
        let (kind, payload) = match entry.payload {
            EntryPayload::Blank => (Kind::Blank, Arc::from([])),
            EntryPayload::Normal(payload) => (Kind::Group, payload.into_written()),
            EntryPayload::Membership(membership) => {
                (Kind::Membership, Arc::from(encode_membership(&membership)))
            }
        };
        Self { id: entry.log_id, kind, payload }
    }

    fn into_entry<C: Types>(self) -> Result<C::Entry, ReadError> {
        let payload = match self.kind {
            Kind::Blank => EntryPayload::Blank,
            Kind::Group => EntryPayload::Normal(Payload::from(self.payload)),
            Kind::Membership => {
                let invalid = |source| ReadError::Membership { index: self.id.index, source };
                EntryPayload::Membership(decode_membership(&self.payload).map_err(invalid)?)
            }
        };
        Ok(openraft::Entry { log_id: self.id, payload })
    }
}

/// Converts the bounds of a range to indexes.
fn indexes(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(index) => *index,
        Bound::Excluded(index) => index.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(index) => index.saturating_add(1),
        Bound::Excluded(index) => *index,
        Bound::Unbounded => u64::MAX,
    };
    start..end.max(start)
}

fn entries<C: Types>(records: Result<Vec<Record>, ReadError>) -> Result<Vec<C::Entry>, StorageError<NodeId>> {
    let entries = records.and_then(|records| records.into_iter().map(Record::into_entry::<C>).collect());
    entries.map_err(|error| StorageIOError::read_logs(AnyError::new(&error)).into())
}

impl<C: Types> RaftLogReader<C> for LogReader {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<C::Entry>, StorageError<NodeId>> {
        entries::<C>(self.read(indexes(&range), usize::MAX).await)
    }

    /// An `AppendEntries` request with these entries must arrive within its timeout.
    ///
    /// Returns nothing if the first entry was purged. That happens to a replication task that openraft has replaced but
    /// not awaited. Later entries without the first one would make its follower stop.
    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, StorageError<NodeId>> {
        let read = self.read(start..end, READ_BYTES).await;
        let begins = |records: &Vec<Record>| records.first().is_some_and(|first| first.id.index == start);
        entries::<C>(read.map(|records| if begins(&records) { records } else { Vec::new() }))
    }
}

impl<C: Types> RaftLogReader<C> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<C::Entry>, StorageError<NodeId>> {
        RaftLogReader::<C>::try_get_log_entries(&mut self.reader(), range).await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, StorageError<NodeId>> {
        RaftLogReader::<C>::limited_get_log_entries(&mut self.reader(), start, end).await
    }
}

impl<C: Types> RaftLogStorage<C> for Log {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState<C>, StorageError<NodeId>> {
        let view = self.shared.view();
        Ok(LogState { last_purged_log_id: view.purged, last_log_id: view.last })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        self.reader()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError<NodeId>> {
        let saved = self.store_vote(*vote).await;
        saved.map_err(|error| StorageIOError::write_vote(AnyError::new(&error)).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError<NodeId>> {
        Ok(self.shared.view().vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError<NodeId>> {
        self.store_committed(committed);
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError<NodeId>> {
        Ok(self.shared.view().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> Result<(), StorageError<NodeId>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let records = entries.into_iter().map(Record::from_entry::<C>).collect();
        let done = Box::new(move |result| callback.log_io_completed(io_result(result)));
        let appended: io::Result<()> = self.append_records(records, done);
        appended.map_err(|error| StorageIOError::write_logs(AnyError::new(&error)).into())
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError<NodeId>> {
        self.truncate_from(log_id.index).await.map_err(write_error)
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError<NodeId>> {
        self.purge_upto(log_id).await.map_err(write_error)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn write_error(error: Stopped) -> StorageError<NodeId> {
    StorageIOError::write_logs(AnyError::new(&error)).into()
}

impl Log {
    /// Returns a reader of the log.
    pub fn reader(&self) -> LogReader {
        LogReader { shared: Arc::clone(&self.shared) }
    }
}
