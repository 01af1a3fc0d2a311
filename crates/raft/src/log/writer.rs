//! All changes of the log's files, one after another. Owned by the log thread.
//!
//! After an error the writer must not be used any more: the files may contain anything up to the durable part, and a
//! second `fdatasync` after a failed one reports success for bytes that are lost.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::Arc;

use super::error::{Failure, ReadError};
use super::record::Record;
use super::recovery::{End, Recovered, continues};
use super::segment::{FIRST_RECORD, Preamble, Segment, name_of};
use super::space::Space;
use super::state::StateFile;
use super::view::Shared;
use crate::disk::{Disk, DiskFile};
use crate::types::{LogId, Vote};

/// Name of the segment that is allocated in advance.
const SPARE: &str = "spare";

/// The end of the log.
#[derive(Debug)]
struct Active {
    segment: Arc<Segment>,
    end: End,
    /// Everything before this offset is durable.
    durable: u64,
}

/// See the [module page](self).
#[derive(Debug)]
pub(super) struct Writer {
    disk: Arc<dyn Disk>,
    shared: Arc<Shared>,
    cluster: u128,
    segment_bytes: u64,
    /// Bytes of the volume that the log leaves to others.
    reserve_bytes: u64,
    state: StateFile,
    segments: Vec<Arc<Segment>>,
    /// Purged segments whose files still exist.
    obsolete: Vec<Arc<Segment>>,
    /// The last segment.
    active: Option<Active>,
    /// Newest entry, or the newest purged one.
    last: Option<LogId>,
    spare: Option<Arc<dyn DiskFile>>,
    buffer: Vec<u8>,
    /// Seeds the salts.
    salts: RandomState,
}

impl Writer {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        shared: Arc<Shared>,
        recovered: Recovered,
        cluster: u128,
        segment_bytes: u64,
        reserve_bytes: u64,
    ) -> Self {
        let Recovered { state, segments, end, last } = recovered;
        let active = segments.last().cloned().zip(end);
        let active = active.map(|(segment, end)| Active { segment, end, durable: end.offset });
        let (obsolete, spare, buffer, salts) = (Vec::new(), None, Vec::new(), RandomState::new());
        Self {
            disk,
            shared,
            cluster,
            segment_bytes,
            reserve_bytes,
            state,
            segments,
            obsolete,
            active,
            last,
            spare,
            buffer,
            salts,
        }
    }

    /// Writes records that follow the last entry. They are durable after [`Writer::sync`].
    pub(super) fn append(&mut self, mut records: &[Record]) -> Result<(), Failure> {
        while let Some(first) = records.first() {
            self.make_room(first)?;
            let written = self.write(records)?;
            records = &records[written..];
        }
        self.shared.note_written(self.last);
        Ok(())
    }

    /// Ensures that the active segment has space for a record.
    fn make_room(&mut self, record: &Record) -> Result<(), Failure> {
        let length = record.encoded_len() as u64;
        let has_room = |active: &Active| {
            active.end.offset + length <= self.segment_bytes || active.end.offset == FIRST_RECORD
        };
        if self.active.as_ref().is_some_and(has_room) {
            return Ok(());
        }
        self.sync()?;
        self.begin_segment(record.id.index)
    }

    /// Writes as many records as fit into the active segment; returns their number.
    fn write(&mut self, records: &[Record]) -> Result<usize, Failure> {
        let active = self.active.as_mut().expect("`make_room` has opened a segment");
        let (segment, start) = (&active.segment, active.end.offset);
        self.buffer.clear();
        let mut count = 0;
        for record in records {
            let at = start + self.buffer.len() as u64;
            if count > 0 && at + record.encoded_len() as u64 > self.segment_bytes {
                break;
            }
            let (salt, previous) = (segment.preamble.salt, active.end.checksum);
            active.end.checksum = record.encode(salt, previous, active.durable, &mut self.buffer);
            segment.push_offset(at);
            count += 1;
        }
        segment.file.write_at(&self.buffer, start).map_err(Failure::of("write", segment.path.clone()))?;
        active.end.offset += self.buffer.len() as u64;
        self.last = Some(records[count - 1].id);
        Ok(count)
    }

    /// Makes all written records durable.
    pub(super) fn sync(&mut self) -> Result<(), Failure> {
        if let Some(active) = self.active.as_mut().filter(|active| active.durable < active.end.offset) {
            let segment = &active.segment;
            segment.file.sync().map_err(Failure::of("sync", segment.path.clone()))?;
            active.durable = active.end.offset;
        }
        Ok(())
    }

    /// Begins a segment with the entry `first`. The active one must be durable.
    fn begin_segment(&mut self, first: u64) -> Result<(), Failure> {
        let file = match self.spare.take() {
            Some(file) => file,
            None => self.create_spare()?,
        };
        let preamble = Preamble {
            cluster: self.cluster,
            first,
            previous: self.last,
            previous_segment: self.segments.last().map(|segment| segment.first()),
            salt: self.salt(first),
        };
        let (bytes, checksum) = preamble.encode();
        let spare = self.disk.path_of(SPARE);
        file.write_at(&bytes, 0).map_err(Failure::of("write", spare.clone()))?;
        file.sync().map_err(Failure::of("sync", spare))?;
        let name = name_of(first);
        let path = self.disk.path_of(&name);
        self.disk.rename(SPARE, &name).map_err(Failure::of("rename a file to", path.clone()))?;
        self.sync_folder()?;
        let segment = Arc::new(Segment::new(path, file, preamble, checksum));
        self.segments.push(Arc::clone(&segment));
        self.active =
            Some(Active { segment, end: End { offset: FIRST_RECORD, checksum }, durable: FIRST_RECORD });
        self.shared.set_segments(&self.segments);
        Ok(())
    }

    /// Draws a number that users cannot know.
    fn salt(&self, first: u64) -> u32 {
        let mut hasher = self.salts.build_hasher();
        hasher.write_u64(first);
        let [a, b, c, d, ..] = hasher.finish().to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    fn create_spare(&self) -> Result<Arc<dyn DiskFile>, Failure> {
        let path = self.disk.path_of(SPARE);
        let file = self.disk.create(SPARE).map_err(Failure::of("create", path.clone()))?;
        if let Err(error) = file.allocate(self.segment_bytes) {
            // A part may be allocated, and others need the space more.
            let _ = self.disk.remove(SPARE);
            return Err(Failure::of("allocate space for", path)(error));
        }
        Ok(file)
    }

    fn sync_folder(&self) -> Result<(), Failure> {
        self.disk.sync_folder().map_err(Failure::of("sync", self.disk.path_of("")))
    }

    /// Deletes the file of a purged segment; returns whether there was one.
    ///
    /// One at a time, between requests: to delete a large file takes tens of milliseconds. What remains at the end of the
    /// process is deleted when the log is opened.
    pub(super) fn delete_obsolete(&mut self) -> bool {
        let Some(segment) = self.obsolete.pop() else { return false };
        if let Err(error) = self.remove(&segment) {
            tracing::warn!(%error, source = %error.source, "cannot delete a purged segment of the log");
        }
        true
    }

    /// Allocates the next segment if none is allocated, and measures the space of the volume.
    pub(super) fn prepare(&mut self) {
        let before = self.shared.space.get();
        if self.spare.is_none() {
            match self.create_spare() {
                Ok(file) => self.spare = Some(file),
                // Not the end of the log: the active segment has space, and there may be more of it in a second.
                Err(error) if before != Space::Exhausted => {
                    tracing::warn!(%error, source = %error.source, "cannot allocate the next segment of the log");
                }
                Err(_) => {}
            }
        }
        let available = self.disk.available_bytes().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot measure the free space of the volume of the log");
            0
        });
        let space = Space::judge(available, self.reserve_bytes, self.segment_bytes, self.spare.is_some());
        if space != before {
            tracing::warn!(?space, available_bytes = available, "the space for the log has changed");
        }
        self.shared.space.set(space);
    }

    /// Removes the entries from `from` on. Durable when this returns.
    pub(super) fn truncate(&mut self, from: u64) -> Result<(), Failure> {
        if self.last.is_none_or(|last| last.index < from) {
            return Ok(());
        }
        self.sync()?;
        let kept = self.segments.partition_point(|segment| segment.first() < from);
        // The last segment that is kept begins before `from`, so it has an entry before it.
        let newest = match self.segments[..kept].last() {
            Some(segment) => Some((Arc::clone(segment), self.header(segment, from - 1)?)),
            None => None,
        };
        self.last = newest.as_ref().map_or(self.state.values().purged, |(_, (last, _))| Some(*last));
        // Readers first: they must not take a removed record for a damaged one.
        self.shared.truncate(from, self.last, &self.segments[..kept]);
        self.remove_segments(kept)?;
        if let Some((segment, (_, end))) = newest {
            let length = segment.file.length().map_err(Failure::of("measure", segment.path.clone()))?;
            if end.offset < length {
                // Zeros, so that no removed record can follow a new one.
                segment.file.cut(end.offset).map_err(Failure::of("cut off", segment.path.clone()))?;
                let allocated = segment.file.allocate(self.segment_bytes);
                allocated.map_err(Failure::of("allocate space for", segment.path.clone()))?;
                segment.file.sync().map_err(Failure::of("sync", segment.path.clone()))?;
            }
            segment.truncate(from);
            self.active = Some(Active { segment, end, durable: end.offset });
        }
        Ok(())
    }

    /// Returns the log id of an entry, and where the next one begins.
    fn header(&self, segment: &Segment, index: u64) -> Result<(LogId, End), Failure> {
        match segment.header(index) {
            Ok((id, checksum, offset)) => Ok((id, End { offset, checksum })),
            Err(ReadError::Io(failure)) => Err(failure),
            Err(error) => {
                let source = io::Error::new(io::ErrorKind::InvalidData, error);
                Err(Failure { action: "read", path: segment.path.clone(), source })
            }
        }
    }

    /// Removes all segments but the first `kept`. From the back, and each one durably, so that a power cut leaves no gap.
    fn remove_segments(&mut self, kept: usize) -> Result<(), Failure> {
        for segment in self.segments.split_off(kept).iter().rev() {
            self.active = None;
            self.remove(segment)?;
            self.sync_folder()?;
        }
        Ok(())
    }

    fn remove(&self, segment: &Segment) -> Result<(), Failure> {
        self.disk.remove(&name_of(segment.first())).map_err(Failure::of("remove", segment.path.clone()))
    }

    /// Removes the entries up to `upto`, which is durable when this returns. Some of them may stay in a file, but are not
    /// read any more.
    ///
    /// A log that does not contain `upto` is removed as a whole. That is the case after the installation of a snapshot; the
    /// entries that it replaces and does not contain were never committed, also those with a higher index or term.
    pub(super) fn purge(&mut self, upto: LogId) -> Result<(), Failure> {
        if self.state.values().purged >= Some(upto) {
            return Ok(());
        }
        self.sync()?;
        let continues = continues(self.segments.iter().map(|segment| &**segment), self.last, upto);
        self.state.save(|values| values.purged = Some(upto))?;
        if !continues {
            self.last = Some(upto);
            self.shared.purge(upto, self.last, &[]);
            while self.delete_obsolete() {}
            return self.remove_segments(0);
        }
        let needed = upto.index + 1;
        let obsolete = self.segments.windows(2).rposition(|pair| pair[1].first() <= needed);
        self.obsolete.extend(self.segments.drain(..obsolete.map_or(0, |at| at + 1)));
        self.shared.purge(upto, self.last, &self.segments);
        Ok(())
    }

    /// Stores the vote durably.
    pub(super) fn save_vote(&mut self, vote: Vote) -> Result<(), Failure> {
        self.state.save(|values| values.vote = Some(vote))?;
        self.shared.set_vote(vote);
        Ok(())
    }

    /// Notes a committed log id. Its entry must be durable.
    pub(super) fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), Failure> {
        if self.state.values().committed == committed {
            return Ok(());
        }
        self.state.save_hint(committed)
    }
}
