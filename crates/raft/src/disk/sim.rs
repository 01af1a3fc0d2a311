//! A disk in memory that loses what was not synced.
//!
//! Every change is kept in the order of the calls until it is synced. [`SimDisk::cut_power`] then decides for each change,
//! and for each sector of a write, whether it survives. [`SimDisk::stop_after`] lets all operations after the nth one
//! fail, so a test can cut the power at every point; [`SimDisk::hold_syncs`] stops a sync until the test continues.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

use super::{Disk, DiskFile};

/// How long a test waits for a sync.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that a power cut keeps or loses together.
const SECTOR: usize = 512;

/// Numbers that look random, from a seed (xorshift64*).
#[derive(Debug, Clone)]
pub(crate) struct Luck(u64);

impl Luck {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

impl Change {
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[*offset..end].copy_from_slice(bytes);
            }
            Self::Length(length) => file.resize(*length, 0),
        }
    }

    /// Applies what survives of the change.
    fn tear(&self, file: &mut Vec<u8>, luck: &mut Luck) {
        match self {
            Self::Write { offset, bytes } => {
                let mut start = 0;
                while start < bytes.len() {
                    let end = ((offset + start) / SECTOR * SECTOR + SECTOR - offset).min(bytes.len());
                    if luck.coin() {
                        let bytes = bytes[start..end].to_vec();
                        Self::Write { offset: offset + start, bytes }.apply(file);
                    }
                    start = end;
                }
            }
            Self::Length(_) if luck.coin() => self.apply(file),
            Self::Length(_) => {}
        }
    }
}

/// Contents of a file: as a process sees them, as they are durable, and the changes in between.
#[derive(Debug, Clone, Default)]
struct Contents {
    seen: Vec<u8>,
    durable: Vec<u8>,
    changes: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Naming {
    Link { name: String, file: usize },
    Rename { from: String, to: String },
    Remove { name: String },
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Link { name, file } => drop(names.insert(name.clone(), *file)),
            Self::Remove { name } => drop(names.remove(name)),
            Self::Rename { from, to } => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }
}

#[derive(Debug, Default)]
struct State {
    files: Vec<Contents>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    namings: Vec<Naming>,
    /// Changes so far, syncs included.
    operations: usize,
    stops_after: Option<usize>,
    syncs: usize,
    fails_next_sync: bool,
    holds_syncs: bool,
    /// Syncs that wait until the test continues.
    held: usize,
    available: Option<u64>,
}

impl State {
    /// Counts a change.
    fn change(&mut self) -> io::Result<()> {
        if self.stops_after.is_some_and(|last| self.operations >= last) {
            return Err(io::Error::other("the power is off"));
        }
        self.operations += 1;
        Ok(())
    }
}

/// See the [module page](self).
#[derive(Debug)]
pub(crate) struct SimDisk {
    state: Mutex<State>,
    changed: Condvar,
    me: Weak<Self>,
}

impl SimDisk {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new_cyclic(|me| Self { state: Mutex::default(), changed: Condvar::new(), me: me.clone() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn syncs(&self) -> usize {
        self.state().syncs
    }

    /// Lets every change after the `count`th from now fail.
    pub(crate) fn stop_after(&self, count: usize) {
        let mut state = self.state();
        state.stops_after = Some(state.operations + count);
    }

    /// Lets the changes succeed again.
    pub(crate) fn switch_on(&self) {
        self.state().stops_after = None;
    }

    pub(crate) fn fail_next_sync(&self) {
        self.state().fails_next_sync = true;
    }

    pub(crate) fn set_available(&self, bytes: u64) {
        self.state().available = Some(bytes);
    }

    /// Stops every sync of a file until [`SimDisk::continue_syncs`].
    pub(crate) fn hold_syncs(&self) {
        self.state().holds_syncs = true;
    }

    pub(crate) fn continue_syncs(&self) {
        self.state().holds_syncs = false;
        self.changed.notify_all();
    }

    /// Waits until a sync is stopped.
    #[track_caller]
    pub(crate) fn wait_for_held_sync(&self) {
        let (guard, waited) =
            self.changed.wait_timeout_while(self.state(), PATIENCE, |state| state.held == 0).unwrap();
        drop(guard);
        assert!(!waited.timed_out(), "no file was synced within {PATIENCE:?}");
    }

    /// Waits until the disk has exactly these files of the kind.
    #[track_caller]
    pub(crate) fn wait_for_names(&self, suffix: &str, expected: &[&str]) {
        let names = |state: &State| -> Vec<String> {
            state.names.keys().filter(|name| name.ends_with(suffix)).cloned().collect()
        };
        let differ = |state: &mut State| names(state) != expected;
        let (state, waited) = self.changed.wait_timeout_while(self.state(), PATIENCE, differ).unwrap();
        assert!(!waited.timed_out(), "expected {expected:?} but got {:?}", names(&state));
    }

    /// Cuts the power, and switches it on again.
    pub(crate) fn cut_power(&self, luck: &mut Luck) {
        let mut state = self.state();
        for file in &mut state.files {
            let changes = std::mem::take(&mut file.changes);
            for change in changes {
                change.tear(&mut file.durable, luck);
            }
            file.seen.clone_from(&file.durable);
        }
        let (namings, mut names) = (std::mem::take(&mut state.namings), state.durable_names.clone());
        for naming in namings.iter().filter(|_| luck.coin()) {
            naming.apply(&mut names);
        }
        state.names.clone_from(&names);
        state.durable_names = names;
        state.stops_after = None;
    }

    /// Returns the contents of a file.
    pub(crate) fn contents(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        state.files[state.names[name]].seen.clone()
    }

    /// Damages a file: changes its durable contents.
    pub(crate) fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let file = state.names[name];
        let file = &mut state.files[file];
        change(&mut file.seen);
        file.durable.clone_from(&file.seen);
        file.changes.clear();
    }

    /// Removes a file, as an operator would.
    pub(crate) fn lose(&self, name: &str) {
        let mut state = self.state();
        state.names.remove(name);
        state.durable_names.remove(name);
    }

    /// Returns a disk with the same contents, all of them durable.
    pub(crate) fn copy(&self) -> Arc<Self> {
        let copy = Self::new();
        let state = self.state();
        for (name, file) in &state.names {
            let seen = state.files[*file].seen.clone();
            let mut copied = copy.state();
            let id = copied.files.len();
            copied.files.push(Contents { durable: seen.clone(), seen, changes: Vec::new() });
            copied.names.insert(name.clone(), id);
            copied.durable_names.insert(name.clone(), id);
        }
        copy
    }

    fn name(&self, naming: Naming) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        naming.apply(&mut state.names);
        state.namings.push(naming);
        self.changed.notify_all();
        Ok(())
    }

    fn file(&self, file: usize) -> Arc<dyn DiskFile> {
        Arc::new(SimFile { disk: self.me.upgrade().unwrap(), file })
    }
}

impl Disk for SimDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.state().names.get(name).copied();
        file.map(|file| self.file(file)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = {
            let mut state = self.state();
            state.files.push(Contents::default());
            state.files.len() - 1
        };
        self.name(Naming::Link { name: name.to_owned(), file })?;
        Ok(self.file(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.name(Naming::Rename { from: from.to_owned(), to: to.to_owned() })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.name(Naming::Remove { name: name.to_owned() })
    }

    fn sync_folder(&self) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        state.namings.clear();
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn available_bytes(&self) -> io::Result<u64> {
        Ok(self.state().available.unwrap_or(u64::MAX))
    }

    fn path_of(&self, name: &str) -> PathBuf {
        PathBuf::from("log").join(name)
    }
}

#[derive(Debug)]
struct SimFile {
    disk: Arc<SimDisk>,
    file: usize,
}

impl SimFile {
    fn change(&self, change: Change) -> io::Result<()> {
        let mut state = self.disk.state();
        state.change()?;
        let file = &mut state.files[self.file];
        change.apply(&mut file.seen);
        file.changes.push(change);
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[self.file].seen.len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state();
        let file = &state.files[self.file].seen;
        let rest = file.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let read = rest.len().min(bytes.len());
        bytes[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(Change::Write { offset: usize::try_from(offset).unwrap(), bytes: bytes.to_vec() })
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.change(Change::Length(usize::try_from(length).unwrap()))
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let now = self.length()?;
        if now >= length {
            return Ok(());
        }
        if self.disk.state().available.is_some_and(|bytes| bytes < length - now) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.cut(length)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        if state.holds_syncs {
            state.held += 1;
            self.disk.changed.notify_all();
            state = self.disk.changed.wait_while(state, |state| state.holds_syncs).unwrap();
            state.held -= 1;
        }
        state.change()?;
        if std::mem::take(&mut state.fails_next_sync) {
            return Err(io::Error::other("the disk reports an error"));
        }
        state.syncs += 1;
        let file = &mut state.files[self.file];
        file.changes.clear();
        file.durable.clone_from(&file.seen);
        Ok(())
    }
}
