//! Logs of executions, on their way from the pipes of the task to the server.
//!
//! A log is one stream of frames with offsets from 0. Its **head** is the first half of the retained bytes and is
//! sent in order while the task runs. Once the head is full, the **tail** begins: a ring of segment files that holds
//! the newest half. When the task has ended, the tail is appended to the head, with a notice between them that states
//! the number of omitted bytes. So a client that follows a log never sees a gap being filled later.
//!
//! A **rotated** log has no tail. All of it is sent while the task runs, and the oldest bytes are removed: here, when
//! more than the maximum size is unsent or not retained by the servers, and on the server.
//!
//! Unacknowledged bytes stay in memory up to [`MEMORY_MAX`], and move to a file beyond that; most logs never touch
//! the disk. A single server retains the bytes that it acknowledges. In a cluster, no byte counts as retained before
//! the whole log is in storage that all servers can read. A server that has fewer bytes than its predecessor gets the
//! rest again. If the disk is full, log bytes are dropped (counted, with a notice), and the task is never delayed.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use model::spec::{LogKeep, LogPolicy};
use model::{Bytes, ExecutionId, Fence};
use proto::logframe::{self, Stream};

use crate::clock::unix_micros;
use crate::link::{LOG_PART_COST, LOG_PART_MAX};

/// Maximum number of bytes of one log in memory.
const MEMORY_MAX: usize = 64 << 10;

/// Prefixes of the names of files with parts of a log.
const HEAD: &str = "head-";
const ROTATED: &str = "rotated-";

/// Limits on the retained bytes of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Maximum size of the log in framed bytes. Head and tail have half of it each.
    max: u64,
    /// Size at which a segment file is full, in bytes.
    segment: u64,
    /// Whether the log is rotated.
    pub(crate) is_rotated: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self::of(LogPolicy::default())
    }
}

impl Bounds {
    pub(crate) fn of(policy: LogPolicy) -> Self {
        // A small log is not removed in one piece.
        let segment = (policy.max_size.0 / 16).clamp(1 << 16, 1 << 20);
        Self { max: policy.max_size.0, segment, is_rotated: policy.is_rotated() }
    }

    pub(crate) fn max_bytes(&self) -> u64 {
        self.max
    }

    fn half(&self) -> u64 {
        self.max / 2
    }

    /// Returns the name of the file of a part that begins at `start`, from which [`recover`] restores these bounds.
    fn file_name(&self, start: u64) -> String {
        if self.is_rotated {
            format!("{ROTATED}{}-{start:020}", self.max)
        } else {
            format!("{HEAD}{start:020}")
        }
    }

    /// Parses [`Self::file_name`].
    fn parse_file_name(name: &str) -> Option<(Self, u64)> {
        if let Some(start) = name.strip_prefix(HEAD) {
            return Some((Self::default(), start.parse().ok()?));
        }
        let (max, start) = name.strip_prefix(ROTATED)?.split_once('-')?;
        let policy = LogPolicy { max_size: Bytes(max.parse().ok()?), keep: Some(LogKeep::Newest) };
        Some((Self::of(policy), start.parse().ok()?))
    }
}

/// Contiguous bytes of the stream, in memory or in a file.
#[derive(Debug)]
struct Part {
    /// Offset of its first byte.
    start: u64,
    len: u64,
    place: Storage,
}

#[derive(Debug)]
enum Storage {
    Memory(Vec<u8>),
    File { file: File, path: PathBuf },
}

/// The log of one execution.
#[derive(Debug)]
pub(crate) struct ExecutionLog {
    pub(crate) fence: Fence,
    pub(crate) bounds: Bounds,
    dir: PathBuf,
    /// Parts to send, in order. While the task runs, this is only the head.
    parts: VecDeque<Part>,
    /// Ring of segments after a full head; they get their offsets when the task has ended.
    tail: VecDeque<Part>,
    segments: u64,
    /// Framed bytes that the task has produced, including lost bytes.
    produced: u64,
    /// Framed bytes that were omitted between head and tail.
    omitted: u64,
    /// Framed bytes of the head that were lost to a full disk since the last successful write.
    gap: u64,
    ended: bool,
    sent: u64,
    acked: u64,
    /// Below this offset no server will need the log again.
    retained: u64,
    end_sent: bool,
    /// End offset and cost of each part that is sent and not acknowledged.
    unacknowledged: VecDeque<(u64, u64)>,
}

/// Frames of a log to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) offset: u64,
    pub(crate) frames: Vec<u8>,
    pub(crate) end: bool,
}

impl ExecutionLog {
    /// Returns an empty log, whose files will be below `logs`.
    pub(crate) fn new(logs: &Path, execution: ExecutionId, fence: Fence, bounds: Bounds) -> Self {
        Self {
            fence,
            bounds,
            dir: logs.join(format!("{execution}.{fence}")),
            parts: VecDeque::from([Part { start: 0, len: 0, place: Storage::Memory(Vec::new()) }]),
            tail: VecDeque::new(),
            segments: 0,
            produced: 0,
            omitted: 0,
            gap: 0,
            ended: false,
            sent: 0,
            acked: 0,
            retained: 0,
            end_sent: false,
            unacknowledged: VecDeque::new(),
        }
    }

    /// Appends output of the task.
    pub(crate) fn append(&mut self, stream: Stream, data: &[u8]) {
        let mut frames = Vec::with_capacity(data.len() + logframe::HEADER);
        logframe::write(&mut frames, stream, unix_micros(), data);
        self.produced += frames.len() as u64;
        if self.bounds.is_rotated {
            self.rotate();
            self.append_head(&frames);
        } else if self.tail.is_empty() && self.end() + frames.len() as u64 <= self.bounds.half() {
            self.append_head(&frames);
        } else {
            self.append_tail(&frames);
        }
    }

    /// Appends a notice of Belfry itself.
    pub(crate) fn note(&mut self, text: &str) {
        self.append(Stream::Notice, format!("… {text} …\n").as_bytes());
    }

    fn append_head(&mut self, frames: &[u8]) {
        let mut bytes = Vec::new();
        if self.gap > 0 {
            notice(
                &mut bytes,
                &format!("{} omitted here: the worker's disk was full", format_bytes(self.gap)),
            );
        }
        bytes.extend_from_slice(frames);
        let end = self.end();
        let Some(head) = self.parts.back_mut() else { return };
        match head.push(&bytes, &self.dir, &self.bounds) {
            Ok(()) => self.gap = 0,
            Err(error) => {
                tracing::debug!(dir = %self.dir.display(), %error, "log bytes lost");
                self.gap += frames.len() as u64;
            }
        }
        debug_assert!(self.end() >= end);
    }

    /// Begins a new segment if the newest one is full, and removes the oldest ones of a log that is too large.
    fn rotate(&mut self) {
        let newest = self.parts.back();
        if newest.is_some_and(|part| part.is_file() && part.len >= self.bounds.segment) {
            let empty = Part { start: self.end(), len: 0, place: Storage::Memory(Vec::new()) };
            self.parts.push_back(empty);
        }
        while self.parts.len() > 1 && self.end() - self.first() > self.bounds.max {
            self.parts.pop_front().into_iter().for_each(Part::remove);
            self.sent = self.sent.max(self.first());
        }
    }

    /// Offset of the first byte that is stored here.
    pub(crate) fn first(&self) -> u64 {
        self.parts.front().map_or(self.acked, |part| part.start)
    }

    fn append_tail(&mut self, frames: &[u8]) {
        let full = self.tail.back().is_none_or(|segment| segment.len >= self.bounds.segment);
        let result = if full { self.open_segment() } else { Ok(()) };
        let written = result.and_then(|()| match self.tail.back_mut() {
            Some(segment) => segment.push(frames, &self.dir, &self.bounds),
            None => Ok(()),
        });
        if let Err(error) = written {
            tracing::debug!(dir = %self.dir.display(), %error, "log bytes lost");
            self.omitted += frames.len() as u64;
        }
    }

    fn open_segment(&mut self) -> io::Result<()> {
        if self.tail.len() as u64 * self.bounds.segment >= self.bounds.half()
            && let Some(oldest) = self.tail.pop_front()
        {
            self.omitted += oldest.len;
            oldest.remove();
        }
        let segment = Part::file(&self.dir, &format!("tail-{:08}", self.segments), 0)?;
        self.segments += 1;
        self.tail.push_back(segment);
        Ok(())
    }

    /// Ends the log; nothing may be appended after this.
    pub(crate) fn finish(&mut self) {
        self.ended = true;
        let left_out = self.omitted + self.gap;
        if left_out > 0 {
            let half = self.bounds.half();
            self.put_notice(&format!(
                "{} omitted here: a log keeps only its first and last {}",
                format_bytes(left_out),
                format_bytes(half)
            ));
        }
        while let Some(mut segment) = self.tail.pop_front() {
            segment.start = self.end();
            self.parts.push_back(segment);
        }
    }

    fn put_notice(&mut self, text: &str) {
        let mut bytes = Vec::new();
        notice(&mut bytes, text);
        self.parts.push_back(Part {
            start: self.end(),
            len: bytes.len() as u64,
            place: Storage::Memory(bytes),
        });
    }

    /// Offset after the last byte that can be sent now.
    fn end(&self) -> u64 {
        self.parts.back().map_or(self.acked, |part| part.start + part.len)
    }

    /// Framed bytes that the task has produced, including lost bytes.
    pub(crate) fn produced(&self) -> u64 {
        self.produced
    }

    /// Returns whether the log has ended and is retained completely, or is empty.
    pub(crate) fn is_complete(&self) -> bool {
        self.ended && self.retained >= self.end() && (self.end_sent || self.end() == 0)
    }

    /// Returns the next chunk to send, if there is one.
    pub(crate) fn next_chunk(&mut self) -> Option<Chunk> {
        let (offset, end) = (self.sent, self.end());
        if offset == end {
            // An end without bytes is sent only after all earlier bytes are acknowledged. So the next acknowledgement
            // can only be that of the end.
            let due = self.ended && !self.end_sent && end > 0 && self.acked == end;
            self.end_sent |= due;
            return due.then(|| Chunk { offset, frames: Vec::new(), end: true });
        }
        let frames = self.read(offset);
        if frames.is_empty() {
            return None;
        }
        self.sent += frames.len() as u64;
        self.unacknowledged.push_back((self.sent, frames.len() as u64 + LOG_PART_COST));
        let last = self.ended && self.sent == end;
        self.end_sent |= last;
        Some(Chunk { offset, frames, end: last })
    }

    /// Returns whether [`Self::next_chunk`] would return a chunk.
    pub(crate) fn has_chunk(&self) -> bool {
        self.sent < self.end() || (self.ended && !self.end_sent && self.end() > 0 && self.acked == self.end())
    }

    fn read(&mut self, offset: u64) -> Vec<u8> {
        let Some(part) = self.parts.iter().find(|p| offset >= p.start && offset < p.start + p.len) else {
            return Vec::new();
        };
        let mut bytes = part.read(offset, LOG_PART_MAX).unwrap_or_default();
        let whole = logframe::whole_prefix(&bytes).unwrap_or(0);
        if whole == 0 {
            // The file content is not what was written, so the rest is unreadable. End the log here with a notice.
            tracing::error!(dir = %self.dir.display(), offset, "cannot read a spooled log: the rest is lost");
            self.truncate_at(offset);
            return Vec::new();
        }
        bytes.truncate(whole);
        bytes
    }

    fn truncate_at(&mut self, offset: u64) {
        self.parts.retain(|part| part.start < offset);
        if let Some(last) = self.parts.back_mut() {
            last.len = last.len.min(offset - last.start);
        }
        self.put_notice("the worker could not read the rest of this log");
    }

    /// Restarts sending after the connection was reopened: all unacknowledged bytes are sent again.
    pub(crate) fn rewind(&mut self) {
        self.sent = if self.bounds.is_rotated { self.acked.max(self.first()) } else { self.acked };
        self.end_sent = false;
        self.unacknowledged.clear();
    }

    /// Returns whether a server with the bytes below `offset` needs bytes that are no longer stored here.
    pub(crate) fn is_lost_below(&self, offset: u64) -> bool {
        !self.bounds.is_rotated && offset < self.acked && offset < self.first()
    }

    /// Records that the server has all bytes below `offset`, and that every other server would have those below
    /// `kept`. Returns the freed bytes of the window.
    pub(crate) fn acknowledge(&mut self, offset: u64, kept: u64) -> u64 {
        if offset < self.acked {
            // Another server than the one that acknowledged the bytes: send it the rest again.
            let freed = self.cost();
            self.acked = offset;
            self.rewind();
            return freed;
        }
        self.acked = offset.min(self.sent);
        self.retained = self.retained.max(kept.min(self.acked));
        let mut freed = 0;
        while let Some((_, cost)) = self.unacknowledged.pop_front_if(|(end, _)| *end <= self.acked) {
            freed += cost;
        }
        self.trim();
        freed
    }

    /// Cost in the window of all unacknowledged parts.
    pub(crate) fn cost(&self) -> u64 {
        self.unacknowledged.iter().map(|(_, cost)| cost).sum()
    }

    /// Removes the bytes that no server will need again.
    fn trim(&mut self) {
        let kept = self.retained;
        while self.parts.len() > 1 && self.parts[0].start + self.parts[0].len <= kept {
            self.parts.pop_front().into_iter().for_each(Part::remove);
        }
        let Some(first) = self.parts.front_mut() else { return };
        let done = kept.saturating_sub(first.start).min(first.len);
        match &mut first.place {
            Storage::Memory(bytes) if done > 0 => {
                bytes.drain(..usize::try_from(done).unwrap_or(usize::MAX));
                *first = Part {
                    start: first.start + done,
                    len: first.len - done,
                    place: Storage::Memory(std::mem::take(bytes)),
                };
            }
            // A spilled head that is fully retained by the servers returns to memory.
            Storage::File { .. } if done == first.len && !self.ended => {
                let empty = Part { start: kept, len: 0, place: Storage::Memory(Vec::new()) };
                std::mem::replace(first, empty).remove();
            }
            _ => {}
        }
    }

    /// Removes the files of the log.
    pub(crate) fn remove(self) {
        if self.parts.iter().chain(&self.tail).any(Part::is_file) {
            fs::remove_dir_all(&self.dir).ok();
        } else if self.segments > 0 {
            fs::remove_dir(&self.dir).ok();
        }
    }
}

impl Part {
    fn is_file(&self) -> bool {
        matches!(self.place, Storage::File { .. })
    }

    fn file(dir: &Path, name: &str, start: u64) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let path = dir.join(name);
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        Ok(Self { start, len: 0, place: Storage::File { file, path } })
    }

    /// Appends whole frames; moves memory to a file when it exceeds [`MEMORY_MAX`].
    fn push(&mut self, bytes: &[u8], dir: &Path, bounds: &Bounds) -> io::Result<()> {
        match &mut self.place {
            Storage::Memory(memory) if memory.len() + bytes.len() <= MEMORY_MAX => {
                memory.extend_from_slice(bytes)
            }
            Storage::Memory(memory) => {
                let mut spilled = Self::file(dir, &bounds.file_name(self.start), self.start)?;
                spilled.push(memory, dir, bounds)?;
                spilled.push(bytes, dir, bounds)?;
                *self = spilled;
                return Ok(());
            }
            Storage::File { file, .. } => {
                if let Err(error) = file.write_all(bytes) {
                    // A partial frame must not stay in the file.
                    file.set_len(self.len)?;
                    return Err(error);
                }
            }
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn read(&self, offset: u64, max: usize) -> io::Result<Vec<u8>> {
        let within = offset - self.start;
        let len = usize::try_from(self.len - within).unwrap_or(usize::MAX).min(max);
        match &self.place {
            Storage::Memory(bytes) => {
                let from = usize::try_from(within).unwrap_or(usize::MAX);
                Ok(bytes[from..from + len].to_vec())
            }
            Storage::File { file, .. } => {
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, within)?;
                Ok(bytes)
            }
        }
    }

    fn remove(self) {
        if let Storage::File { path, .. } = self.place {
            fs::remove_file(path).ok();
        }
    }
}

fn notice(out: &mut Vec<u8>, text: &str) {
    logframe::write(out, Stream::Notice, unix_micros(), format!("… {text} …\n").as_bytes());
}

/// Formats a number of bytes for people.
fn format_bytes(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// Recovers the logs that an earlier supervisor left on disk; each ends with the last whole frame on disk.
pub(crate) fn recover(logs: &Path) -> io::Result<Vec<(ExecutionId, ExecutionLog)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(logs)?.flatten() {
        let name = entry.file_name();
        let parsed = name.to_str().and_then(|name| {
            let (id, fence) = name.split_once('.')?;
            Some((id.parse::<ExecutionId>().ok()?, Fence(fence.parse().ok()?)))
        });
        let Some((execution, fence)) = parsed else { continue };
        match recover_one(logs, execution, fence) {
            Ok(log) => found.push((execution, log)),
            Err(error) => {
                tracing::warn!(execution_id = %execution, %error, "cannot recover a spooled log: it is lost")
            }
        }
    }
    Ok(found)
}

fn recover_one(logs: &Path, execution: ExecutionId, fence: Fence) -> io::Result<ExecutionLog> {
    let mut log = ExecutionLog::new(logs, execution, fence, Bounds::default());
    let mut names: Vec<_> = fs::read_dir(&log.dir)?.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    for name in names.iter().filter_map(|name| name.to_str()) {
        let known = Bounds::parse_file_name(name);
        let start = known.map(|(_, start)| start);
        let mut part = Part::file(&log.dir, name, start.unwrap_or(0))?;
        part.len = whole_len(&log.dir.join(name))?;
        let Some((bounds, start)) = known else {
            log.tail.push_back(part);
            continue;
        };
        log.bounds = bounds;
        if log.end() == start && log.parts.iter().all(Part::is_file) {
            log.parts.push_back(part);
        } else {
            // Bytes before this part were acknowledged or removed; otherwise they would still be in a file.
            (log.acked, log.sent, log.retained) = (start, start, start);
            log.parts.drain(..).for_each(Part::remove);
            log.parts.push_back(part);
        }
    }
    log.produced = log.end() + log.tail.iter().map(|part| part.len).sum::<u64>();
    log.put_notice("output may be missing here: the worker's supervisor was restarted");
    log.finish();
    Ok(log)
}

/// Returns the length of the whole frames in a spool file.
fn whole_len(path: &Path) -> io::Result<u64> {
    // At most half of the maximum size of the log, and only after a crash.
    let bytes = fs::read(path)?;
    Ok(logframe::whole_prefix(&bytes).unwrap_or_else(|corrupt| corrupt.at) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestDir {
        dir: tempfile::TempDir,
    }

    fn log(place: &TestDir, half: u64, segment: u64) -> ExecutionLog {
        ExecutionLog::new(place.dir.path(), ExecutionId::from_bits(1), Fence(1), bounds(half, segment))
    }

    fn bounds(half: u64, segment: u64) -> Bounds {
        Bounds { max: 2 * half, segment, is_rotated: false }
    }

    fn place() -> TestDir {
        TestDir { dir: tempfile::tempdir().unwrap() }
    }

    /// Sends and acknowledges all bytes; returns the stream and text of each frame.
    fn drain(log: &mut ExecutionLog) -> Vec<(Stream, String)> {
        let mut frames = Vec::new();
        while let Some(chunk) = log.next_chunk() {
            let mut at = 0;
            while let Some((frame, next)) = logframe::read(&chunk.frames, at).unwrap() {
                frames.push((frame.stream, String::from_utf8_lossy(frame.data).into_owned()));
                at = next;
            }
            assert_eq!(at, chunk.frames.len(), "only whole frames are sent");
            let end = chunk.offset + chunk.frames.len() as u64;
            log.acknowledge(end, end);
        }
        frames
    }

    fn files(place: &TestDir) -> usize {
        let Ok(dirs) = fs::read_dir(place.dir.path()) else { return 0 };
        dirs.flatten().map(|d| fs::read_dir(d.path()).map_or(0, Iterator::count)).sum()
    }

    #[test]
    fn a_small_log_stays_in_memory_and_ends_with_its_last_bytes() {
        let place = place();
        let mut log = log(&place, 1 << 20, 1 << 10);
        log.append(Stream::Stdout, b"hello\n");
        log.finish();
        let chunk = log.next_chunk().unwrap();
        assert!(chunk.end && chunk.offset == 0);
        assert!(!log.is_complete());
        let end = chunk.frames.len() as u64;
        log.acknowledge(end, end);
        assert!(log.is_complete() && files(&place) == 0);
    }

    #[test]
    fn a_log_without_bytes_is_complete_at_its_end_and_never_sent() {
        let mut log = log(&place(), 1 << 20, 1 << 10);
        log.finish();
        assert!(log.next_chunk().is_none() && log.is_complete());
    }

    #[test]
    fn an_end_after_all_bytes_were_sent_is_sent_and_acknowledged_separately() {
        let mut log = log(&place(), 1 << 20, 1 << 10);
        log.append(Stream::Stdout, b"hello\n");
        let data = log.next_chunk().unwrap();
        log.finish();
        assert!(log.next_chunk().is_none(), "the bytes are not acknowledged yet");
        log.acknowledge(data.frames.len() as u64, data.frames.len() as u64);
        assert!(!log.is_complete());
        let end = log.next_chunk().unwrap();
        assert!(end.end && end.frames.is_empty());
        log.acknowledge(end.offset, end.offset);
        assert!(log.is_complete());
    }

    #[test]
    fn an_unacknowledged_log_moves_to_a_file_and_is_resent_from_it() {
        let place = place();
        let mut log = log(&place, 1 << 30, 1 << 20);
        for n in 0..1_000 {
            log.append(Stream::Stdout, format!("{n:0200}").as_bytes());
        }
        assert_eq!(files(&place), 1);
        while log.next_chunk().is_some() {}
        log.rewind();
        log.finish();
        let frames = drain(&mut log);
        assert_eq!(frames.len(), 1_000);
        assert!(frames.iter().enumerate().all(|(n, (_, text))| *text == format!("{n:0200}")));
        assert!(log.is_complete());
        log.remove();
        assert_eq!(files(&place), 0);
    }

    #[test]
    fn an_acknowledged_spool_file_is_removed_while_the_task_runs() {
        let place = place();
        let mut log = log(&place, 1 << 30, 1 << 20);
        log.append(Stream::Stdout, &[b'x'; 200_000]);
        assert_eq!(files(&place), 1);
        drain(&mut log);
        assert_eq!(files(&place), 0);
        log.append(Stream::Stderr, b"more");
        assert_eq!(drain(&mut log), [(Stream::Stderr, "more".to_owned())]);
    }

    #[test]
    fn a_long_log_keeps_head_and_tail_and_reports_the_omitted_bytes() {
        let place = place();
        let mut log = log(&place, 10_000, 1_000);
        for n in 0..10_000 {
            log.append(Stream::Stdout, format!("{n:0100}").as_bytes());
        }
        assert!(files(&place) <= 11);
        log.finish();
        let frames = drain(&mut log);
        let gap = frames.iter().position(|(stream, _)| *stream == Stream::Notice).unwrap();
        let numbers = |range: &[(Stream, String)]| -> Vec<usize> {
            range.iter().map(|(_, text)| text.trim_start_matches('0').parse().unwrap_or(0)).collect()
        };
        let (head, tail) = (numbers(&frames[..gap]), numbers(&frames[gap + 1..]));
        assert_eq!(head, (0..head.len()).collect::<Vec<_>>());
        assert_eq!(tail, (10_000 - tail.len()..10_000).collect::<Vec<_>>());
        assert!(head.len() > 80 && tail.len() > 80, "{} and {}", head.len(), tail.len());
        assert!(frames[gap].1.contains("omitted here"), "{}", frames[gap].1);
        assert_eq!(log.produced(), 10_000 * 113);
        assert!(log.is_complete());
    }

    #[test]
    fn the_tail_is_not_sent_before_the_end() {
        let place = place();
        let mut log = log(&place, 1_000, 500);
        for _ in 0..100 {
            log.append(Stream::Stdout, &[b'x'; 100]);
        }
        assert!(drain(&mut log).len() < 10);
        log.finish();
        assert!(!drain(&mut log).is_empty());
    }

    #[test]
    fn a_full_disk_drops_log_bytes_with_a_notice() {
        let place = place();
        let mut log = log(&place, 1 << 30, 1 << 20);
        // A file at the path of the log's folder stands in for a full disk.
        fs::write(&log.dir, "").unwrap();
        log.append(Stream::Stdout, &[b'x'; 100_000]);
        log.append(Stream::Stdout, b"small");
        let frames = drain(&mut log);
        assert_eq!(frames[0].0, Stream::Notice);
        assert!(frames[0].1.contains("97 KiB omitted here"), "{}", frames[0].1);
        assert_eq!(frames[1].1, "small");
    }

    #[test]
    fn a_spooled_log_is_recovered_after_a_crash_with_a_notice() {
        let place = place();
        let mut log = log(&place, 1 << 30, 1 << 20);
        log.append(Stream::Stdout, &[b'x'; 100_000]);
        let path = fs::read_dir(&log.dir).unwrap().next().unwrap().unwrap().path();
        drop(log);
        // The crash left a partial last frame.
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(file.metadata().unwrap().len() - 10).unwrap();
        let (id, mut log) = recover(place.dir.path()).unwrap().pop().unwrap();
        assert_eq!((id, log.fence), (ExecutionId::from_bits(1), Fence(1)));
        let frames = drain(&mut log);
        assert_eq!(frames[0].1.len(), logframe::MAX_FRAME);
        assert_eq!(frames[1].0, Stream::Notice);
        assert!(log.is_complete());
    }

    fn rotated(place: &TestDir, max: u64) -> ExecutionLog {
        let policy = LogPolicy { max_size: Bytes(max), keep: Some(LogKeep::Newest) };
        ExecutionLog::new(place.dir.path(), ExecutionId::from_bits(1), Fence(1), Bounds::of(policy))
    }

    fn number(text: &str) -> u64 {
        text.trim_start_matches('0').parse().unwrap_or(0)
    }

    /// A replica of a service runs for months; what it writes arrives at once, however much it has written.
    #[test]
    fn a_rotated_log_is_sent_completely_while_the_task_runs() {
        let place = place();
        let mut log = rotated(&place, 1 << 20);
        for n in 0..50_000 {
            log.append(Stream::Stdout, format!("{n:0100}").as_bytes());
            if n % 100 == 99 {
                let texts: Vec<u64> = drain(&mut log).iter().map(|(_, text)| number(text)).collect();
                assert_eq!(texts, (n - 99..=n).collect::<Vec<_>>());
            }
        }
        assert_eq!(files(&place), 0);
        assert_eq!(log.next_chunk(), None);
        log.finish();
        let end = log.next_chunk().unwrap();
        assert!(end.end && end.frames.is_empty());
        assert_eq!(end.offset, 50_000 * 113);
    }

    /// In a cluster no server keeps the log of a running task for the others.
    #[test]
    fn a_rotated_log_keeps_its_newest_bytes_for_the_next_server() {
        let place = place();
        let mut log = rotated(&place, 1 << 20);
        for n in 0..50_000 {
            log.append(Stream::Stdout, format!("{n:0100}").as_bytes());
            while let Some(chunk) = log.next_chunk() {
                log.acknowledge(chunk.offset + chunk.frames.len() as u64, 0);
            }
        }
        let end = 50_000 * 113;
        let kept = end - log.first();
        assert!((900_000..=1_100_000).contains(&kept), "{kept} bytes are kept");
        assert!(files(&place) <= 18);
        // The next server has nothing.
        assert!(!log.is_lost_below(0));
        log.acknowledge(0, 0);
        let first = log.next_chunk().unwrap();
        assert_eq!(first.offset, log.first());
        log.rewind();
        let texts: Vec<u64> = drain(&mut log).iter().map(|(_, text)| number(text)).collect();
        assert_eq!(texts, (log_line(first.offset)..50_000).collect::<Vec<_>>());
        log.remove();
        assert_eq!(files(&place), 0);
    }

    fn log_line(offset: u64) -> u64 {
        offset / 113
    }

    /// A long outage: what was never sent is removed too.
    #[test]
    fn a_rotated_log_without_a_server_skips_its_oldest_bytes() {
        let place = place();
        let mut log = rotated(&place, 1 << 20);
        log.append(Stream::Stdout, format!("{:0100}", 0).as_bytes());
        assert_eq!(log.next_chunk().unwrap().offset, 0);
        for n in 1..50_000 {
            log.append(Stream::Stdout, format!("{n:0100}").as_bytes());
        }
        let next = log.next_chunk().unwrap();
        assert_eq!(next.offset, log.first());
        assert!(next.offset > 4_000_000);
        // The server has the first chunk only.
        log.rewind();
        log.acknowledge(113, 113);
        let next = log.next_chunk().unwrap();
        assert_eq!(next.offset, log.first());
        let texts: Vec<u64> = drain(&mut log).iter().map(|(_, text)| number(text)).collect();
        assert_eq!(texts.last(), Some(&49_999));
        log.finish();
        assert!(drain(&mut log).is_empty() && log.is_complete());
    }

    #[test]
    fn a_rotated_log_is_recovered_after_a_crash() {
        let place = place();
        let mut log = rotated(&place, 1 << 20);
        for n in 0..50_000 {
            log.append(Stream::Stdout, format!("{n:0100}").as_bytes());
        }
        let (first, bounds) = (log.first(), log.bounds);
        drop(log);
        let (_, mut log) = recover(place.dir.path()).unwrap().pop().unwrap();
        assert_eq!((log.first(), log.bounds), (first, bounds));
        let frames = drain(&mut log);
        let texts: Vec<u64> = frames.iter().map(|(_, text)| number(text)).collect();
        let last = texts.len() as u64 - 1;
        assert_eq!(texts[..texts.len() - 1], (log_line(first)..log_line(first) + last).collect::<Vec<_>>());
        assert!(frames.last().unwrap().1.contains("restarted"));
        assert!(log.is_complete());
    }

    /// D6. The next server has no bytes of the log.
    #[test]
    fn a_log_is_resent_to_a_server_with_fewer_bytes() {
        let place = place();
        let mut log = log(&place, 1_000, 500);
        log.append(Stream::Stdout, b"one\n");
        let first = log.next_chunk().unwrap();
        let end = first.frames.len() as u64;
        log.acknowledge(end, 0);
        log.append(Stream::Stdout, b"two\n");
        log.rewind();
        let second = log.next_chunk().unwrap();
        assert_eq!(second.offset, end, "what was acknowledged is not sent again by itself");
        assert!(!log.is_lost_below(0));
        log.acknowledge(0, 0);
        log.finish();
        let again: Vec<_> = drain(&mut log).into_iter().map(|(_, text)| text).collect();
        assert_eq!(again, ["one\n", "two\n"]);
        assert!(log.is_complete());
    }

    /// D6. Bytes stay here until the whole log is in storage that all servers can read.
    #[test]
    fn acknowledged_bytes_stay_until_they_are_retained() {
        let place = place();
        let mut log = log(&place, 1_000, 500);
        log.append(Stream::Stdout, b"one\n");
        log.finish();
        let chunk = log.next_chunk().unwrap();
        let end = chunk.frames.len() as u64;
        log.acknowledge(end, 0);
        assert!(chunk.end && !log.is_complete());
        log.acknowledge(end, end);
        assert!(log.is_complete());
        assert!(log.is_lost_below(0), "a server that asks for it now asks in vain");
    }
}
