//! Opening a log: what a crash may have left, and what only damage can have caused.
//!
//! A crash leaves a torn tail in the last segment, segments that a purge was about to remove, a tail of segments that a
//! truncation was about to remove, and files without their final name. All of these are put in order. Everything else
//! means that durable bytes have changed or are gone: the log is not opened, because this server may have acknowledged
//! what is missing.

use std::sync::Arc;

use super::Start;
use super::error::{Failure, OpenError};
use super::segment::{Segment, Tail, first_of, name_of};
use super::state::StateFile;
use crate::disk::Disk;
use crate::types::{LogId, NodeId, Vote};

/// Where the next record is written in the last segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) offset: u64,
    /// Checksum of the record before.
    pub(super) checksum: u32,
}

/// A log in order. All of it is durable.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) state: StateFile,
    pub(super) segments: Vec<Arc<Segment>>,
    /// End of the last segment; `None` if there is no segment.
    pub(super) end: Option<End>,
    /// Newest entry, or the newest purged one.
    pub(super) last: Option<LogId>,
}

/// Opens or creates a log.
pub(super) fn recover(
    disk: &Arc<dyn Disk>,
    cluster: u128,
    node: NodeId,
    start: Start,
    segment_bytes: u64,
) -> Result<Recovered, OpenError> {
    let folder = disk.path_of("");
    let state = StateFile::open(disk, cluster)?;
    let mut firsts = firsts(&**disk)?;
    let mut state = match state {
        Some(state) => state,
        // The file `state` is created before everything else.
        None if start == Start::Existing || !firsts.is_empty() => return Err(OpenError::Missing { folder }),
        None => StateFile::create(disk, cluster)?,
    };
    step_down(&mut state, node)?;
    // A name that the end of the process left without a sync would be lost in a power cut, with all that is written to
    // the file from now on.
    disk.sync_folder().map_err(Failure::of("sync", folder.clone()))?;

    let purged = state.values().purged;
    let needed = purged.map_or(0, |id| id.index + 1);
    // A purge removes segments from the front, in any order as far as a power cut is concerned.
    let obsolete = firsts.windows(2).rposition(|pair| pair[1] <= needed).map_or(0, |at| at + 1);
    for first in firsts.drain(..obsolete) {
        remove(&**disk, first)?;
    }
    let mut segments = open_segments(&**disk, &firsts, cluster, purged)?;
    let (mut end, mut last) = match segments.last() {
        Some(segment) => recover_tail(segment, segment_bytes)?,
        None => (None, None),
    };
    if purged.is_some_and(|purged| !continues(segments.iter(), last, purged)) {
        // The end of the log was purged, or entries that were never committed are in its place.
        for segment in segments.drain(..).rev() {
            remove(&**disk, segment.first())?;
            disk.sync_folder().map_err(Failure::of("sync", folder.clone()))?;
        }
        (end, last) = (None, purged);
    }
    if let Some(committed) =
        state.values().committed.filter(|committed| last.is_none_or(|last| last < *committed))
    {
        let found = last.map_or_else(|| "it is empty".to_owned(), |last| format!("its last entry is {last}"));
        let problem = format!("entry {committed} was committed, but {found}");
        return Err(OpenError::Lost { folder, problem });
    }
    Ok(Recovered { state, segments: segments.into_iter().map(Arc::new).collect(), end, last })
}

/// Returns whether the entries after a purged one are of its history: the log has the purged entry, or one that follows it.
///
/// Otherwise a snapshot has replaced entries that were never committed, possibly of a leader with a higher term.
pub(super) fn continues<'a>(
    segments: impl DoubleEndedIterator<Item = &'a Segment>,
    last: Option<LogId>,
    purged: LogId,
) -> bool {
    if last < Some(purged) || last.is_none_or(|last| last.index < purged.index) {
        return false;
    }
    let Some(segment) = segments.rev().find(|segment| segment.first() <= purged.index + 1) else {
        return true;
    };
    if segment.first() == purged.index + 1 {
        return segment.preamble.previous.is_none_or(|previous| previous == purged);
    }
    // A purged record is not needed any more: its damage is no reason to lose those that follow.
    segment.header(purged.index).map_or(true, |(id, _, _)| id == purged)
}

/// Returns the first indexes of all segments, in order.
fn firsts(disk: &dyn Disk) -> Result<Vec<u64>, OpenError> {
    let names = disk.names().map_err(Failure::of("read", disk.path_of("")))?;
    let mut firsts: Vec<u64> = names.iter().filter_map(|name| first_of(name)).collect();
    firsts.sort_unstable();
    Ok(firsts)
}

fn remove(disk: &dyn Disk, first: u64) -> Result<(), OpenError> {
    let name = name_of(first);
    Ok(disk.remove(&name).map_err(Failure::of("remove", disk.path_of(&name)))?)
}

/// Makes the server's own vote uncommitted, so that it never leads in a term of an earlier process.
///
/// openraft would continue as the leader of the stored term. The state machine voids the leases of the shards when an
/// entry of another leadership comes; a leadership that survived a restart would keep leases that no process holds.
fn step_down(state: &mut StateFile, node: NodeId) -> Result<(), Failure> {
    match state.values().vote {
        Some(vote) if vote.committed && vote.leader_id.node_id == node => {
            let vote = Vote::new(vote.leader_id.term, node);
            state.save(|values| values.vote = Some(vote))
        }
        _ => Ok(()),
    }
}

/// Opens the segments, and verifies that none is missing between them or before the first one.
fn open_segments(
    disk: &dyn Disk,
    firsts: &[u64],
    cluster: u128,
    purged: Option<LogId>,
) -> Result<Vec<Segment>, OpenError> {
    let mut segments: Vec<Segment> = Vec::with_capacity(firsts.len());
    for first in firsts {
        let segment = Segment::open(disk, *first, cluster)?;
        let preamble = &segment.preamble;
        let missing = match segments.last() {
            Some(before) => (preamble.previous_segment != Some(before.first())).then_some(before.first()),
            None => {
                let follows = preamble.previous.map(|id| id.index) <= purged.map(|id| id.index);
                (!follows).then(|| purged.map_or(0, |id| id.index + 1))
            }
        };
        if let Some(from) = missing {
            let problem = format!("entries from {from} to {} are in no file", first.saturating_sub(1));
            return Err(OpenError::Lost { folder: disk.path_of(""), problem });
        }
        segments.push(segment);
    }
    Ok(segments)
}

/// Finds the end of the last segment, and removes a torn tail.
fn recover_tail(segment: &Segment, segment_bytes: u64) -> Result<(Option<End>, Option<LogId>), OpenError> {
    let scan = segment.scan()?;
    let entries = scan.offsets.len() as u64;
    match segment.tail(scan.end)? {
        Tail::Clean => {}
        Tail::Torn => {
            let (path, offset) = (segment.path.display(), scan.end);
            tracing::info!(%path, offset, "removing an incomplete entry at the end of the log");
            segment.file.cut(scan.end).map_err(Failure::of("cut off", segment.path.clone()))?;
        }
        Tail::Damaged => {
            let problem = format!("entry {} is not valid, but later ones are", segment.first() + entries);
            return Err(OpenError::Damaged { path: segment.path.clone(), offset: scan.end, problem });
        }
    }
    if let Err(error) = segment.file.allocate(segment_bytes) {
        // The first writes allocate what is missing, or report it.
        tracing::warn!(path = %segment.path.display(), %error, "cannot allocate space for the log");
    }
    // The process may have ended between a write and its sync.
    segment.file.sync().map_err(Failure::of("sync", segment.path.clone()))?;
    let (last, end) = (scan.last, End { offset: scan.end, checksum: scan.checksum });
    segment.set_offsets(scan.offsets);
    Ok((Some(end), last.or(segment.preamble.previous)))
}
