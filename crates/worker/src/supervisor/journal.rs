//! The journal: one append-only file with everything that a supervisor must remember across restarts.
//!
//! ```text
//! file:    "BELFRYJ1", then records
//! record:  len u32, crc32 of the body u32 (both little endian), body: one `Entry` in protobuf
//! ```
//!
//! Each batch of records begins with a [`Synced`] record, which states how much of the file was durable at that time.
//! A bad record after the durable part was being written when the machine stopped. Good records may follow it,
//! because a disk need not write in order. No action was based on any of them, so all are dropped. A bad record in
//! the durable part is damage, and the journal is refused: without this record an execution could be started twice.
//! In a file of an older release no record states what was durable. Such a journal is refused if good records follow
//! a bad one.
//!
//! A journal that is opened is rewritten with the live state only, if the live state is less than half of it. The
//! live state consists of [`Held`] executions and the newest [`ACKNOWLEDGED_MAX`] acknowledged ids. This module does not
//! decide when to sync; [`super::writer`] does.
//!
//! The file keeps [`RESERVE`] bytes allocated after its end. Ends of running tasks are recorded there when the disk
//! is full. A separate file, deleted when the disk is full, would not work: running tasks write to the same disk and
//! would take its space first.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use model::{ExecutionId, Fence, WorkerId};
use prost::Message;
use proto::v1;
use rustix::fs::{FallocateFlags, fallocate};
use supervisor::ACKNOWLEDGED_MAX;

const MAGIC: &[u8; 8] = b"BELFRYJ1";
const HEADER: usize = 8;
/// Maximum size of a record in bytes; an assignment with its spec and outputs is smaller.
const RECORD_MAX: usize = 4 << 20;
/// A file smaller than this, in bytes, is not rewritten on opening.
const COMPACT_MIN: u64 = 1 << 20;
/// Bytes that the journal keeps allocated after its end, if the file system supports it.
pub(crate) const RESERVE: u64 = 4 << 20;
/// The reserve is refilled once less than this is left, in bytes.
const RESERVE_MIN: u64 = RESERVE / 2;

/// One record of the journal.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Entry {
    #[prost(oneof = "Body", tags = "1, 2, 3, 4, 5, 6")]
    pub(crate) body: Option<Body>,
}

/// Content of a record.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Body {
    /// The folder and the worker were created.
    #[prost(message, tag = "1")]
    Created(Created),
    /// The execution is about to be started.
    #[prost(message, tag = "2")]
    Started(Started),
    /// The execution succeeded; its outputs are not stored yet.
    #[prost(message, tag = "3")]
    OutputsPending(Ran),
    /// The execution has ended or was refused; this report is repeated until it is acknowledged.
    #[prost(message, tag = "4")]
    Outcome(v1::Report),
    /// The end of the execution was acknowledged.
    #[prost(message, tag = "5")]
    Forgotten(Acknowledged),
    /// Start of a batch of records.
    #[prost(message, tag = "6")]
    Synced(Synced),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Created {
    #[prost(string, tag = "1")]
    pub(crate) worker_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Started {
    #[prost(string, tag = "1")]
    pub(crate) execution_id: String,
    #[prost(uint64, tag = "2")]
    pub(crate) fence: u64,
    #[prost(string, tag = "3")]
    pub(crate) boot_id: String,
    /// Identity of the worker folder, see [`super::setup::folder_id`]; a copy of the folder has another one. Empty in
    /// records of an older release.
    #[prost(string, tag = "4")]
    pub(crate) folder_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Ran {
    #[prost(message, optional, tag = "1")]
    pub(crate) assignment: Option<v1::Assignment>,
    #[prost(message, optional, tag = "2")]
    pub(crate) finished: Option<v1::Finished>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Acknowledged {
    #[prost(string, tag = "1")]
    pub(crate) execution_id: String,
}

/// States how much of the file was durable when a batch of records was begun.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Synced {
    #[prost(uint64, tag = "1")]
    pub(crate) len: u64,
}

impl From<Body> for Entry {
    fn from(body: Body) -> Self {
        Self { body: Some(body) }
    }
}

/// State of an execution whose end is not acknowledged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Held {
    Started { fence: Fence, boot_id: String, folder_id: String },
    OutputsPending { assignment: v1::Assignment, finished: v1::Finished },
    Ended { report: v1::Report },
}

/// State that was read from a journal on opening.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State {
    pub(crate) worker: WorkerId,
    pub(crate) held: HashMap<ExecutionId, Held>,
    /// Executions whose end was acknowledged, oldest first.
    pub(crate) forgotten: VecDeque<ExecutionId>,
}

/// Why a journal is unusable.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum JournalError {
    #[error("cannot {action} the journal `{}`", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("`{}` is not a journal of this version of Belfry", .0.display())]
    Foreign(PathBuf),
    #[error(
        "the journal `{}` is damaged at byte {at}: {why}; starting from it could run an execution twice",
        path.display()
    )]
    Damaged { path: PathBuf, at: usize, why: &'static str },
}

/// An open journal; all writes are appended.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    /// Length of the part that consists of whole records, in bytes.
    len: u64,
    /// Length of the durable part, in bytes.
    synced: u64,
    /// Whether a partial record may follow after `len`.
    has_garbage: bool,
    /// Length up to which disk space is allocated, in bytes.
    reserved: u64,
}

impl Journal {
    /// Opens the journal at `path`, or creates one for the worker id that `new_worker` returns.
    ///
    /// The returned state is durable, also in a new journal.
    pub(crate) fn open(
        path: &Path,
        new_worker: impl FnOnce() -> WorkerId,
    ) -> Result<(Self, State), JournalError> {
        let failed = |action| move |source| JournalError::Io { action, path: path.to_owned(), source };
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed("read")(error)),
        };
        // An empty file or a partial header: the first write did not complete, so no server knows this worker.
        if bytes.len() < MAGIC.len() && MAGIC.starts_with(&bytes) {
            let state = State { worker: new_worker(), held: HashMap::new(), forgotten: VecDeque::new() };
            let journal = rewrite(path, &state, File::sync_all).map_err(|e| failed("create")(e.into()))?;
            return Ok((journal, state));
        }
        let (state, whole) = replay(path, &bytes)?;
        let live: usize = entries(&state).map(|e| HEADER + e.encoded_len()).sum();
        if bytes.len() as u64 > COMPACT_MIN && live * 2 < bytes.len() {
            match rewrite(path, &state, File::sync_all) {
                Ok(journal) => return Ok((journal, state)),
                // A full disk does not keep a worker from starting: the old file contains the same state.
                Err(RewriteError::NotReplaced(error)) => {
                    tracing::warn!(path = %path.display(), %error, "cannot compact the journal");
                }
                Err(RewriteError::NotDurable(error)) => return Err(failed("compact")(error)),
            }
        }
        let file = OpenOptions::new().append(true).open(path).map_err(failed("open"))?;
        // `set_len` also frees the blocks that are allocated after the end, and another process may take them.
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(failed("repair"))?;
        }
        file.sync_all().map_err(failed("repair"))?;
        Ok((Self::from_durable_file(file, path, whole as u64), state))
    }

    /// Wraps an open file that is durable up to its end at `len`.
    fn from_durable_file(file: File, path: &Path, len: u64) -> Self {
        let path = path.to_owned();
        let mut journal = Self { file, path, len, synced: len, has_garbage: false, reserved: len };
        journal.keep_reserve();
        journal
    }

    /// Refills the reserve when little of it is left.
    fn keep_reserve(&mut self) {
        if self.reserved < self.len + RESERVE_MIN
            // On a full disk, or a file system without preallocation, the next batch retries.
            && fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.len, RESERVE).is_ok()
        {
            self.reserved = self.len + RESERVE;
        }
    }

    /// Appends `entries`; they are durable only after [`Self::sync`].
    ///
    /// # Errors
    /// Any error of the disk. The file is then unchanged, so the same append may be retried.
    pub(crate) fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        let bytes = batch(self.synced, entries);
        // A partial record in the middle would be damage.
        if std::mem::take(&mut self.has_garbage) {
            self.file.set_len(self.len).inspect_err(|_| self.has_garbage = true)?;
            self.reserved = self.len;
        }
        if let Err(error) = self.file.write_all(&bytes) {
            self.has_garbage = self.file.set_len(self.len).is_err();
            self.reserved = self.len;
            return Err(error);
        }
        self.len += bytes.len() as u64;
        self.keep_reserve();
        Ok(())
    }

    /// Makes all appended records durable.
    ///
    /// # Errors
    /// After an error the kernel may have dropped written data: the process must exit and must not retry.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.synced = self.len;
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the file in bytes, without the reserve.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Replaces the file by one that contains only `state`.
    ///
    /// # Errors
    /// [`RewriteError`]. The process must exit on [`RewriteError::NotDurable`], because the open file has no name any
    /// more.
    pub(crate) fn compact(&mut self, state: &State) -> Result<(), RewriteError> {
        *self = rewrite(&self.path, state, File::sync_all)?;
        // The old file occupied its reserve until now.
        self.keep_reserve();
        Ok(())
    }
}

/// Encodes a batch of records for a journal that is durable up to `synced`.
pub(crate) fn batch(synced: u64, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&Body::Synced(Synced { len: synced }).into(), &mut bytes);
    entries.iter().for_each(|entry| encode(entry, &mut bytes));
    bytes
}

/// Encodes a journal that contains only `state`.
fn encode_state(state: &State) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    entries(state).for_each(|entry| encode(&entry, &mut bytes));
    bytes
}

/// Encodes the journal of a new worker.
#[cfg(feature = "testing")]
pub(crate) fn encode_new(worker: WorkerId) -> Vec<u8> {
    encode_state(&State { worker, held: HashMap::new(), forgotten: VecDeque::new() })
}

fn encode(entry: &Entry, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    entry.encode_raw(out);
    let body = &out[start + HEADER..];
    let header = [(body.len() as u32).to_le_bytes(), crc32fast::hash(body).to_le_bytes()].concat();
    out[start..start + HEADER].copy_from_slice(&header);
}

/// Returns the records that represent `state`.
fn entries(state: &State) -> impl Iterator<Item = Entry> {
    let created = Body::Created(Created { worker_id: state.worker.to_string() });
    let forgotten =
        state.forgotten.iter().map(|id| Body::Forgotten(Acknowledged { execution_id: id.to_string() }));
    let held = state.held.iter().map(|(id, held)| match held.clone() {
        Held::Started { fence, boot_id, folder_id } => {
            Body::Started(Started { execution_id: id.to_string(), fence: fence.0, boot_id, folder_id })
        }
        Held::OutputsPending { assignment, finished } => {
            Body::OutputsPending(Ran { assignment: Some(assignment), finished: Some(finished) })
        }
        Held::Ended { report } => Body::Outcome(report),
    });
    std::iter::once(created).chain(forgotten).chain(held).map(Entry::from)
}

/// Why a journal was not rewritten.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RewriteError {
    /// The old file is unchanged.
    #[error("the old file is unchanged")]
    NotReplaced(#[source] io::Error),
    /// The new file has replaced the old one, but a crash of the machine may undo that.
    #[error("the new file is in place, but may not be durable")]
    NotDurable(#[source] io::Error),
}

impl From<RewriteError> for io::Error {
    fn from(error: RewriteError) -> Self {
        match error {
            RewriteError::NotReplaced(error) | RewriteError::NotDurable(error) => error,
        }
    }
}

/// Durably replaces the file by a new one, by way of a temporary file. `sync` makes a folder durable.
fn rewrite(
    path: &Path,
    state: &State,
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> Result<Journal, RewriteError> {
    let bytes = encode_state(state);
    // All files are opened before the rename and stay open. A later failure would leave only the handle of the old
    // file, which has no name any more.
    let temporary = path.with_extension("new");
    let prepare = || {
        let absent = |e: io::Error| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) };
        fs::remove_file(&temporary).or_else(absent)?;
        let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        let folder = path.parent().map(File::open).transpose()?;
        fs::rename(&temporary, path)?;
        io::Result::Ok((file, folder))
    };
    let (file, folder) = prepare().map_err(|error| {
        // A partial file would occupy the last bytes of a full disk.
        fs::remove_file(&temporary).ok();
        RewriteError::NotReplaced(error)
    })?;
    folder.map_or(Ok(()), |folder| sync(&folder)).map_err(RewriteError::NotDurable)?;
    Ok(Journal::from_durable_file(file, path, bytes.len() as u64))
}

/// Parses the bytes of a journal; returns its state, and the length of its whole records.
pub(crate) fn replay(path: &Path, bytes: &[u8]) -> Result<(State, usize), JournalError> {
    if !bytes.starts_with(MAGIC) {
        return Err(JournalError::Foreign(path.to_owned()));
    }
    let damaged = |at, why| JournalError::Damaged { path: path.to_owned(), at, why };
    let mut worker = None;
    let mut state =
        State { worker: WorkerId::from_bits(0), held: HashMap::new(), forgotten: VecDeque::new() };
    let (mut at, mut synced) = (MAGIC.len(), None);
    while at < bytes.len() {
        let Some((body, next)) = record(&bytes[at..]) else {
            if is_torn(bytes, at, synced) {
                break;
            }
            return Err(damaged(at, "a record in the middle has a wrong checksum"));
        };
        let entry = Entry::decode(body).map_err(|_| damaged(at, "a record is invalid"))?;
        synced = synced.max(synced_by(&entry));
        apply(&mut state, &mut worker, entry).ok_or_else(|| damaged(at, "a record has no execution"))?;
        at += next;
    }
    state.worker = worker.ok_or_else(|| damaged(MAGIC.len(), "the worker is missing"))?;
    Ok((state, at))
}

/// Returns the body of the record at the start of `bytes`, and the offset of the next record; `None` for a bad
/// record.
fn record(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let len = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
    let crc = u32::from_le_bytes(*bytes.get(4..)?.first_chunk::<4>()?);
    let body = bytes.get(HEADER..HEADER + len)?;
    // An empty body is never written; zeros must not be read as records.
    (len > 0 && len <= RECORD_MAX && crc32fast::hash(body) == crc).then_some((body, HEADER + len))
}

/// Returns whether a bad record at `at` was never durable. This holds if the known durable part ends before it. If
/// the durable length is unknown, it holds if no good record follows. `synced` is the durable length according to the
/// records before it.
fn is_torn(bytes: &[u8], at: usize, synced: Option<u64>) -> bool {
    let behind = (at + 1..bytes.len()).filter_map(|at| record(&bytes[at..]));
    let behind: Vec<_> = behind.filter_map(|(body, _)| Entry::decode(body).ok()).collect();
    match behind.iter().filter_map(synced_by).max().max(synced) {
        Some(synced) => synced <= at as u64,
        None => behind.is_empty(),
    }
}

fn synced_by(entry: &Entry) -> Option<u64> {
    match &entry.body {
        Some(Body::Synced(synced)) => Some(synced.len),
        _ => None,
    }
}

fn apply(state: &mut State, worker: &mut Option<WorkerId>, entry: Entry) -> Option<()> {
    let id = |text: &str| text.parse::<ExecutionId>().ok();
    match entry.body {
        Some(Body::Created(created)) => *worker = Some(created.worker_id.parse().ok()?),
        Some(Body::Started(s)) => {
            let held = Held::Started { fence: Fence(s.fence), boot_id: s.boot_id, folder_id: s.folder_id };
            state.held.insert(id(&s.execution_id)?, held);
        }
        Some(Body::OutputsPending(ran)) => {
            let (assignment, finished) = (ran.assignment?, ran.finished?);
            state.held.insert(id(&assignment.execution_id)?, Held::OutputsPending { assignment, finished });
        }
        Some(Body::Outcome(report)) => {
            state.held.insert(id(&report.execution_id)?, Held::Ended { report });
        }
        Some(Body::Forgotten(f)) => {
            let id = id(&f.execution_id)?;
            state.held.remove(&id);
            state.forgotten.push_back(id);
            if state.forgotten.len() > ACKNOWLEDGED_MAX {
                state.forgotten.pop_front();
            }
        }
        Some(Body::Synced(_)) => {}
        // Written by a newer version; ignored.
        None => {}
    }
    Some(())
}

/// Reads the state of the journal at `path` without changing it.
#[cfg(test)]
pub(crate) fn inspect(path: &Path) -> Result<State, JournalError> {
    let bytes = fs::read(path).map_err(|source| JournalError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    replay(path, &bytes).map(|(state, _)| state)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn execution(n: u128) -> ExecutionId {
        ExecutionId::from_bits(n << 80)
    }

    fn started(n: u128) -> Entry {
        let (boot_id, folder_id) = ("b".into(), "f".into());
        Body::Started(Started { execution_id: execution(n).to_string(), fence: 7, boot_id, folder_id }).into()
    }

    fn outcome(n: u128) -> Entry {
        let body = v1::report::Body::Refused(v1::Refused { reason: "stopped".into(), detail: String::new() });
        Body::Outcome(v1::Report { execution_id: execution(n).to_string(), fence: 7, body: Some(body) })
            .into()
    }

    fn forgotten(n: u128) -> Entry {
        Body::Forgotten(Acknowledged { execution_id: execution(n).to_string() }).into()
    }

    fn worker() -> WorkerId {
        WorkerId::from_bits(42 << 80)
    }

    struct TestDir {
        _dir: tempfile::TempDir,
        path: PathBuf,
    }

    fn place() -> TestDir {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        TestDir { _dir: dir, path }
    }

    fn open(place: &TestDir) -> (Journal, State) {
        Journal::open(&place.path, worker).unwrap()
    }

    #[test]
    fn appended_records_and_the_worker_id_survive_reopening() {
        let place = place();
        let (mut journal, state) = open(&place);
        assert_eq!(state.worker, worker());
        journal.append(&[started(1), started(2), outcome(2), started(3), outcome(3), forgotten(3)]).unwrap();
        journal.sync().unwrap();
        let (_, state) = Journal::open(&place.path, || panic!("the worker exists")).unwrap();
        assert_eq!(state.worker, worker());
        assert_eq!(state.held.len(), 2);
        assert!(matches!(state.held[&execution(1)], Held::Started { fence: Fence(7), .. }));
        assert!(matches!(state.held[&execution(2)], Held::Ended { .. }));
        assert_eq!(state.forgotten, [execution(3)]);
    }

    /// Bytes allocated on disk for the file.
    fn allocated(place: &TestDir) -> u64 {
        fs::metadata(&place.path).unwrap().blocks() * 512
    }

    #[test]
    fn the_reserve_stays_allocated_after_the_end_of_the_file() {
        let place = place();
        let (mut journal, mut state) = open(&place);
        if journal.reserved == journal.len {
            return eprintln!("skipped: this file system allocates nothing in advance");
        }
        let assert_reserved = |journal: &Journal| {
            let (held, least) = (allocated(&place), journal.len() + RESERVE_MIN);
            assert!(held >= least, "{held} bytes are allocated, expected {least}");
        };
        assert_reserved(&journal);
        let many: Vec<_> = (10..1_000).map(started).collect();
        while journal.len() < 2 * RESERVE {
            journal.append(&many).unwrap();
            assert_reserved(&journal);
        }
        drop(journal);
        let (mut journal, _) = Journal::open(&place.path, worker).unwrap();
        assert_reserved(&journal);
        state.held.clear();
        journal.compact(&state).unwrap();
        assert_reserved(&journal);
    }

    #[test]
    fn a_failed_compaction_on_opening_keeps_the_journal_usable() {
        let place = place();
        let (mut journal, _) = open(&place);
        let many: Vec<_> = (10..5_000).flat_map(|n| [started(n), forgotten(n)]).collect();
        while journal.len() < 2 * COMPACT_MIN {
            journal.append(&many).unwrap();
        }
        journal.append(&[started(1)]).unwrap();
        drop(journal);
        // A folder at the path of the new file stands in for a full disk.
        fs::create_dir_all(place.path.with_extension("new").join("full")).unwrap();
        let (mut journal, state) = open(&place);
        assert_eq!(state.held.len(), 1);
        journal.append(&[outcome(1)]).unwrap();
        assert!(matches!(inspect(&place.path).unwrap().held[&execution(1)], Held::Ended { .. }));
    }

    #[test]
    fn a_torn_tail_is_dropped_and_writing_continues() {
        let place = place();
        let (mut journal, _) = open(&place);
        journal.append(&[started(1)]).unwrap();
        let whole = journal.len() as usize;
        journal.append(&[started(2)]).unwrap();
        let bytes = fs::read(&place.path).unwrap();
        for cut in whole..bytes.len() {
            fs::write(&place.path, &bytes[..cut]).unwrap();
            let (mut journal, state) = open(&place);
            assert_eq!(state.held.len(), 1, "cut at {cut}");
            journal.append(&[started(3)]).unwrap();
            assert_eq!(inspect(&place.path).unwrap().held.len(), 2, "cut at {cut}");
        }
    }

    #[test]
    fn a_tail_of_zeros_is_dropped() {
        let place = place();
        let (mut journal, _) = open(&place);
        journal.append(&[started(1)]).unwrap();
        let mut bytes = fs::read(&place.path).unwrap();
        bytes.extend([0; 4096]);
        fs::write(&place.path, &bytes).unwrap();
        assert_eq!(open(&place).1.held.len(), 1);
    }

    #[test]
    fn a_journal_with_a_damaged_durable_record_is_refused() {
        let place = place();
        let (mut journal, _) = open(&place);
        let middle = journal.len() as usize;
        journal.append(&[started(1), started(2)]).unwrap();
        journal.sync().unwrap();
        journal.append(&[started(3)]).unwrap();
        let good = fs::read(&place.path).unwrap();
        for offset in [0, 4, HEADER + 3] {
            let mut bad = good.clone();
            bad[middle + offset] ^= 0x40;
            fs::write(&place.path, &bad).unwrap();
            let error = Journal::open(&place.path, worker).unwrap_err();
            assert!(matches!(error, JournalError::Damaged { at, .. } if at == middle), "{error}");
        }
    }

    /// A disk need not write the blocks of a batch in order.
    #[test]
    fn a_hole_in_the_part_that_is_not_durable_is_dropped_with_later_records() {
        let place = place();
        let (mut journal, _) = open(&place);
        journal.append(&[started(1)]).unwrap();
        journal.sync().unwrap();
        let durable = journal.len() as usize;
        journal.append(&[forgotten(9)]).unwrap();
        journal.append(&(10..200).map(started).collect::<Vec<_>>()).unwrap();
        let mut bytes = fs::read(&place.path).unwrap();
        let hole = durable + 512..durable + 1024;
        bytes[hole].fill(0);
        fs::write(&place.path, &bytes).unwrap();
        let (mut journal, state) = open(&place);
        assert!(state.held.contains_key(&execution(1)) && !state.held.contains_key(&execution(199)));
        journal.append(&[started(300)]).unwrap();
        assert!(inspect(&place.path).unwrap().held.contains_key(&execution(300)));
    }

    #[test]
    fn a_gap_before_valid_records_is_damage_without_synced_records() {
        let place = place();
        let state = State { worker: worker(), held: HashMap::new(), forgotten: VecDeque::new() };
        let mut bytes = MAGIC.to_vec();
        entries(&state).chain([started(1), started(2)]).for_each(|entry| encode(&entry, &mut bytes));
        let bad = bytes.len() - HEADER - started(2).encoded_len() - 3;
        bytes[bad] ^= 0x40;
        fs::write(&place.path, &bytes).unwrap();
        assert!(matches!(Journal::open(&place.path, worker), Err(JournalError::Damaged { .. })));
    }

    #[test]
    fn a_failed_sync_after_the_rename_makes_the_open_journal_unusable() {
        let place = place();
        let (mut journal, state) = open(&place);
        journal.append(&[started(1)]).unwrap();
        let broken = rewrite(&place.path, &state, |_| Err(io::ErrorKind::Other.into()));
        assert!(matches!(broken, Err(RewriteError::NotDurable(_))), "{broken:?}");
        // Further appends go to a file that has no name.
        journal.append(&[started(2)]).unwrap();
        assert!(inspect(&place.path).unwrap().held.is_empty());
    }

    /// A partial file would occupy the last bytes of a full disk.
    #[test]
    fn a_new_file_is_removed_if_the_rename_fails() {
        let place = place();
        let (_journal, state) = open(&place);
        fs::remove_file(&place.path).unwrap();
        fs::create_dir(&place.path).unwrap();
        let failed = rewrite(&place.path, &state, File::sync_all);
        assert!(matches!(failed, Err(RewriteError::NotReplaced(_))), "{failed:?}");
        assert!(!place.path.with_extension("new").exists());
    }

    #[test]
    fn a_compacted_open_journal_continues_in_the_new_file() {
        let place = place();
        let (mut journal, mut state) = open(&place);
        fs::write(place.path.with_extension("new"), "left by an earlier attempt").unwrap();
        let (boot_id, folder_id) = ("b".into(), "f".into());
        state.held.insert(execution(1), Held::Started { fence: Fence(7), boot_id, folder_id });
        journal.compact(&state).unwrap();
        journal.append(&[started(2)]).unwrap();
        journal.sync().unwrap();
        assert_eq!(inspect(&place.path).unwrap().held.len(), 2);
        assert!(!place.path.with_extension("new").exists());
    }

    #[test]
    fn a_file_that_is_not_a_journal_is_not_changed() {
        let place = place();
        fs::write(&place.path, "something else entirely").unwrap();
        assert!(matches!(Journal::open(&place.path, worker), Err(JournalError::Foreign(_))));
        assert_eq!(fs::read_to_string(&place.path).unwrap(), "something else entirely");
    }

    #[test]
    fn compaction_keeps_the_live_state() {
        let place = place();
        let (mut journal, _) = open(&place);
        for n in 10..12_000 {
            journal.append(&[started(n), outcome(n), forgotten(n)]).unwrap();
        }
        journal.append(&[started(1), outcome(2)]).unwrap();
        let before = inspect(&place.path).unwrap();
        let large = journal.len();
        let (mut journal, state) = open(&place);
        assert!(journal.len() < large / 2, "{} of {large} bytes are left", journal.len());
        assert_eq!(state, before);
        assert_eq!(state.forgotten.len(), 11_990);
        journal.append(&[started(3)]).unwrap();
        assert_eq!(inspect(&place.path).unwrap().held.len(), 3);
    }
}
