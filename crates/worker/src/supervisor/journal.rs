//! What a supervisor must not forget, in one append-only file.
//!
//! ```text
//! file:    "BELFRYJ1", then records
//! record:  len u32, crc32 of the body u32 (both little endian), body: one `Entry` in protobuf
//! ```
//!
//! A record that is cut off at the very end was being written when the machine went down: nobody
//! acted on it, so it is dropped. A bad record with good ones behind it is damage, and the journal is
//! refused: going on without it could start an execution twice.
//!
//! On opening, the file is rewritten with only what still matters ([`Held`], and the newest
//! [`FORGOTTEN_KEPT`] forgotten ids) once more than half of it is history. Nothing here decides
//! when to sync; [`super::writer`] does.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use model::{ExecutionId, Fence, WorkerId};
use prost::Message;
use proto::v1;

const MAGIC: &[u8; 8] = b"BELFRYJ1";
const HEADER: usize = 8;
/// The largest record: an assignment with its spec and outputs, with room to spare.
const RECORD_MAX: usize = 4 << 20;
/// A file smaller than this is not worth rewriting.
const COMPACT_MIN: u64 = 1 << 20;
/// How many acknowledged executions are still refused when they are assigned again.
pub(crate) const FORGOTTEN_KEPT: usize = 10_000;

/// One record.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Entry {
    #[prost(oneof = "Body", tags = "1, 2, 3, 4, 5")]
    pub(crate) body: Option<Body>,
}

/// What a record says.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Body {
    /// The folder was made, and with it the worker.
    #[prost(message, tag = "1")]
    Created(Created),
    /// It is about to be started.
    #[prost(message, tag = "2")]
    Started(Started),
    /// It has run; its outputs are still to be stored.
    #[prost(message, tag = "3")]
    Ran(Ran),
    /// It is over, or was refused; this report is repeated until it is acknowledged.
    #[prost(message, tag = "4")]
    Outcome(v1::Report),
    /// Its end was acknowledged.
    #[prost(message, tag = "5")]
    Forgotten(Forgotten),
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
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Ran {
    #[prost(message, optional, tag = "1")]
    pub(crate) assignment: Option<v1::Assignment>,
    #[prost(message, optional, tag = "2")]
    pub(crate) finished: Option<v1::Finished>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Forgotten {
    #[prost(string, tag = "1")]
    pub(crate) execution_id: String,
}

impl From<Body> for Entry {
    fn from(body: Body) -> Self {
        Self { body: Some(body) }
    }
}

/// What is known of an execution that is not forgotten.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Held {
    Started { fence: Fence, boot_id: String },
    Ran { assignment: v1::Assignment, finished: v1::Finished },
    Ended { report: v1::Report },
}

/// What a journal said when it was opened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State {
    pub(crate) worker: WorkerId,
    pub(crate) held: HashMap<ExecutionId, Held>,
    /// The newest last.
    pub(crate) forgotten: VecDeque<ExecutionId>,
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum JournalError {
    #[error("could not {action} the journal `{}`", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("`{}` is no journal of this version of Belfry", .0.display())]
    Foreign(PathBuf),
    #[error(
        "the journal `{}` is damaged at byte {at}: {why}; starting from it could run an execution twice",
        path.display()
    )]
    Damaged { path: PathBuf, at: usize, why: &'static str },
}

/// An open journal: only its end is ever written.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    /// Up to here the file is whole.
    len: u64,
}

impl Journal {
    /// Opens the journal at `path`; where there is none yet, a worker is made with the id that
    /// `new_worker` gives.
    ///
    /// What it returns is durable, also where it was only just made.
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
        // An empty or torn head: the very first write did not come through, nobody knows the worker.
        if bytes.len() < MAGIC.len() && MAGIC.starts_with(&bytes) {
            let state = State { worker: new_worker(), held: HashMap::new(), forgotten: VecDeque::new() };
            let journal = rewrite(path, &state).map_err(failed("create"))?;
            return Ok((journal, state));
        }
        let (state, whole) = replay(path, &bytes)?;
        let live: usize = entries(&state).map(|e| HEADER + e.encoded_len()).sum();
        if bytes.len() as u64 > COMPACT_MIN && live * 2 < bytes.len() {
            let journal = rewrite(path, &state).map_err(failed("compact"))?;
            return Ok((journal, state));
        }
        let file = OpenOptions::new().append(true).open(path).map_err(failed("open"))?;
        file.set_len(whole as u64).and_then(|()| file.sync_all()).map_err(failed("repair"))?;
        Ok((Self { file, path: path.to_owned(), len: whole as u64 }, state))
    }

    /// Appends `entries`; they are durable only after [`Self::sync`].
    ///
    /// # Errors
    /// Whatever the disk says. The file is then as it was before, so the same may be tried again.
    pub(crate) fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        let mut bytes = Vec::new();
        entries.iter().for_each(|entry| encode(entry, &mut bytes));
        if let Err(error) = self.file.write_all(&bytes) {
            // A half-written record in the middle would be damage.
            self.file.set_len(self.len)?;
            return Err(error);
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// After one the kernel may have dropped what was written: the process must end, not retry.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How large the file has become.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Replaces the file by one that says only `state`.
    pub(crate) fn compact(&mut self, state: &State) -> io::Result<()> {
        *self = rewrite(&self.path, state)?;
        Ok(())
    }
}

fn encode(entry: &Entry, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    entry.encode_raw(out);
    let body = &out[start + HEADER..];
    let header = [(body.len() as u32).to_le_bytes(), crc32fast::hash(body).to_le_bytes()].concat();
    out[start..start + HEADER].copy_from_slice(&header);
}

/// Everything that `state` says, as records.
fn entries(state: &State) -> impl Iterator<Item = Entry> {
    let created = Body::Created(Created { worker_id: state.worker.to_string() });
    let forgotten =
        state.forgotten.iter().map(|id| Body::Forgotten(Forgotten { execution_id: id.to_string() }));
    let held = state.held.iter().map(|(id, held)| match held.clone() {
        Held::Started { fence, boot_id } => {
            Body::Started(Started { execution_id: id.to_string(), fence: fence.0, boot_id })
        }
        Held::Ran { assignment, finished } => {
            Body::Ran(Ran { assignment: Some(assignment), finished: Some(finished) })
        }
        Held::Ended { report } => Body::Outcome(report),
    });
    std::iter::once(created).chain(forgotten).chain(held).map(Entry::from)
}

/// Writes a new file beside the old one and puts it in its place, all durably.
fn rewrite(path: &Path, state: &State) -> io::Result<Journal> {
    let mut bytes = MAGIC.to_vec();
    entries(state).for_each(|entry| encode(&entry, &mut bytes));
    let temporary = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    if let Some(dir) = path.parent() {
        File::open(dir)?.sync_all()?;
    }
    let file = OpenOptions::new().append(true).open(path)?;
    Ok(Journal { file, path: path.to_owned(), len: bytes.len() as u64 })
}

/// What the bytes of a journal say, and how many of them are whole.
fn replay(path: &Path, bytes: &[u8]) -> Result<(State, usize), JournalError> {
    if !bytes.starts_with(MAGIC) {
        return Err(JournalError::Foreign(path.to_owned()));
    }
    let damaged = |at, why| JournalError::Damaged { path: path.to_owned(), at, why };
    let mut worker = None;
    let mut state =
        State { worker: WorkerId::from_bits(0), held: HashMap::new(), forgotten: VecDeque::new() };
    let mut at = MAGIC.len();
    while at < bytes.len() {
        let Some((body, next)) = record(&bytes[at..]) else {
            if is_torn(&bytes[at..]) {
                break;
            }
            return Err(damaged(at, "its checksum is wrong and more follows"));
        };
        let entry = Entry::decode(body).map_err(|_| damaged(at, "it is no record"))?;
        apply(&mut state, &mut worker, entry).ok_or_else(|| damaged(at, "it names no execution"))?;
        at += next;
    }
    state.worker = worker.ok_or_else(|| damaged(MAGIC.len(), "it names no worker"))?;
    Ok((state, at))
}

/// The body of the record at the start of `bytes`, and where the next one starts; `None` for a bad one.
fn record(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let len = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
    let crc = u32::from_le_bytes(*bytes.get(4..)?.first_chunk::<4>()?);
    let body = bytes.get(HEADER..HEADER + len)?;
    // An empty body is never written; a run of zeros must not read as records.
    (len > 0 && len <= RECORD_MAX && crc32fast::hash(body) == crc).then_some((body, HEADER + len))
}

/// Whether a bad record is merely the unfinished end: nothing good can be found behind its start.
fn is_torn(bytes: &[u8]) -> bool {
    (1..bytes.len()).all(|at| record(&bytes[at..]).is_none_or(|(body, _)| Entry::decode(body).is_err()))
}

fn apply(state: &mut State, worker: &mut Option<WorkerId>, entry: Entry) -> Option<()> {
    let id = |text: &str| text.parse::<ExecutionId>().ok();
    match entry.body {
        Some(Body::Created(created)) => *worker = Some(created.worker_id.parse().ok()?),
        Some(Body::Started(s)) => {
            let held = Held::Started { fence: Fence(s.fence), boot_id: s.boot_id };
            state.held.insert(id(&s.execution_id)?, held);
        }
        Some(Body::Ran(ran)) => {
            let (assignment, finished) = (ran.assignment?, ran.finished?);
            state.held.insert(id(&assignment.execution_id)?, Held::Ran { assignment, finished });
        }
        Some(Body::Outcome(report)) => {
            state.held.insert(id(&report.execution_id)?, Held::Ended { report });
        }
        Some(Body::Forgotten(f)) => {
            let id = id(&f.execution_id)?;
            state.held.remove(&id);
            remember_forgotten(&mut state.forgotten, id);
        }
        // Written by a newer version: what it says is not for us.
        None => {}
    }
    Some(())
}

/// Adds to the bounded list of forgotten ids; returns the one that made room.
pub(crate) fn remember_forgotten(
    forgotten: &mut VecDeque<ExecutionId>,
    id: ExecutionId,
) -> Option<ExecutionId> {
    forgotten.push_back(id);
    if forgotten.len() > FORGOTTEN_KEPT { forgotten.pop_front() } else { None }
}

/// Reads what the journal at `path` says, without touching it.
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
    use super::*;

    fn execution(n: u128) -> ExecutionId {
        ExecutionId::from_bits(n << 80)
    }

    fn started(n: u128) -> Entry {
        Body::Started(Started { execution_id: execution(n).to_string(), fence: 7, boot_id: "b".into() })
            .into()
    }

    fn outcome(n: u128) -> Entry {
        let body = v1::report::Body::Refused(v1::Refused { reason: "stopped".into(), detail: String::new() });
        Body::Outcome(v1::Report { execution_id: execution(n).to_string(), fence: 7, body: Some(body) })
            .into()
    }

    fn forgotten(n: u128) -> Entry {
        Body::Forgotten(Forgotten { execution_id: execution(n).to_string() }).into()
    }

    fn worker() -> WorkerId {
        WorkerId::from_bits(42 << 80)
    }

    struct Place {
        _dir: tempfile::TempDir,
        path: PathBuf,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        Place { _dir: dir, path }
    }

    fn open(place: &Place) -> (Journal, State) {
        Journal::open(&place.path, worker).unwrap()
    }

    #[test]
    fn what_was_appended_is_there_after_reopening_and_the_worker_stays_the_same() {
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

    #[test]
    fn a_torn_tail_is_dropped_wherever_it_was_cut_and_writing_goes_on_behind_it() {
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
    fn a_tail_of_zeros_as_a_crash_may_leave_it_is_dropped() {
        let place = place();
        let (mut journal, _) = open(&place);
        journal.append(&[started(1)]).unwrap();
        let mut bytes = fs::read(&place.path).unwrap();
        bytes.extend([0; 4096]);
        fs::write(&place.path, &bytes).unwrap();
        assert_eq!(open(&place).1.held.len(), 1);
    }

    #[test]
    fn a_damaged_record_in_the_middle_refuses_the_journal() {
        let place = place();
        let (mut journal, _) = open(&place);
        let middle = journal.len() as usize;
        journal.append(&[started(1), started(2)]).unwrap();
        let good = fs::read(&place.path).unwrap();
        for offset in [0, 4, HEADER + 3] {
            let mut bad = good.clone();
            bad[middle + offset] ^= 0x40;
            fs::write(&place.path, &bad).unwrap();
            let error = Journal::open(&place.path, worker).unwrap_err();
            assert!(matches!(error, JournalError::Damaged { at, .. } if at == middle), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_no_journal_is_left_alone() {
        let place = place();
        fs::write(&place.path, "something else entirely").unwrap();
        assert!(matches!(Journal::open(&place.path, worker), Err(JournalError::Foreign(_))));
        assert_eq!(fs::read_to_string(&place.path).unwrap(), "something else entirely");
    }

    #[test]
    fn compaction_keeps_what_is_held_and_forgets_only_history() {
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
        assert_eq!(state.forgotten.len(), FORGOTTEN_KEPT);
        journal.append(&[started(3)]).unwrap();
        assert_eq!(inspect(&place.path).unwrap().held.len(), 3);
    }
}
