//! Executions that a fuse guards: a table in shared memory of the supervisor and the fuse.
//!
//! The supervisor writes a record before a task is started, adds the process id after that, and clears the record at
//! the end. The fuse reads the table only when it has to act. So a task that starts and ends costs neither a system
//! call nor a wake-up of the fuse. A replacement fuse has the complete table.
//!
//! # Invariants
//! A record is valid while its first word is set. That word is written last and cleared first. So the fuse never
//! reads a record that mixes two executions.
#![expect(unsafe_code, reason = "memory that two processes share has no safe interface")]

use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use model::ExecutionId;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Maximum number of executions in the table; unused records take no memory.
const RECORDS: usize = 1 << 16;
/// Words of a record: state with process id, two words of the execution id, and the control group number.
const RECORD: usize = 4;
/// The first word of the table is the number of records that were ever used.
const WORDS: usize = RECORD * (RECORDS + 1);
const BYTES: usize = WORDS * size_of::<AtomicU64>();
/// Flags in the first word of a record, below the process id: the record is valid; the execution is not frozen when
/// the lease expires; its main process was reaped; another program starts its processes.
const VALID: u64 = 1;
const EXEMPT: u64 = 2;
const REAPED: u64 = 4;
const FOREIGN: u64 = 8;

/// A guarded execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guarded {
    pub(crate) execution: ExecutionId,
    /// Whether the execution is not frozen when the lease expires.
    pub(crate) exempt: bool,
    /// Main process, once it is known; until then the execution is identified by its environment.
    pub(crate) pid: Option<i32>,
    /// Whether the main process was reaped; another process may have the same id then.
    pub(crate) is_reaped: bool,
    /// Whether another program starts processes of the execution, outside of its session and its own control group.
    pub(crate) is_foreign: bool,
    /// Number of the control group; 0 if there is none. Never changes.
    pub(crate) group: u32,
}

impl Guarded {
    fn state(&self) -> u64 {
        let pid = self.pid.unwrap_or(0).cast_unsigned();
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let flags = [(self.exempt, EXEMPT), (self.is_reaped, REAPED), (self.is_foreign, FOREIGN)];
        let flags = flags.into_iter().fold(VALID, |all, (is_set, bit)| all | flag(is_set, bit));
        u64::from(pid) << 32 | flags
    }

    /// Returns the words of a record after its state.
    fn rest(&self) -> [u64; 3] {
        let bits = self.execution.to_bits().to_be_bytes();
        let (words, _) = bits.as_chunks::<8>();
        [u64::from_be_bytes(words[0]), u64::from_be_bytes(words[1]), self.group.into()]
    }

    fn from_words(state: u64, [high, low, group]: [u64; 3]) -> Self {
        let pid = u32::try_from(state >> 32).unwrap_or(0).cast_signed();
        Self {
            execution: ExecutionId::from_bits(u128::from(high) << 64 | u128::from(low)),
            exempt: state & EXEMPT != 0,
            pid: (pid != 0).then_some(pid),
            is_reaped: state & REAPED != 0,
            is_foreign: state & FOREIGN != 0,
            group: u32::try_from(group).unwrap_or(0),
        }
    }
}

/// The table, mapped into this process.
#[derive(Debug)]
struct Table(NonNull<c_void>);

// SAFETY: it is only the address of atomic words.
unsafe impl Send for Table {}

impl Table {
    /// Maps a file of [`BYTES`] bytes that is sealed against shrinking.
    fn map(file: impl AsFd) -> io::Result<Self> {
        // SAFETY: the system chooses the address, so no other memory of ours lies there.
        let start = unsafe {
            mmap(null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)?
        };
        NonNull::new(start).map(Self).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: [`WORDS`] words are mapped while `self` exists, at the start of a page; all processes that share
        // them use atomics.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), WORDS) }
    }

    fn record(&self, place: usize) -> &[AtomicU64] {
        &self.words()[RECORD * (place + 1)..][..RECORD]
    }

    /// Number of records that were ever used.
    fn used(&self) -> usize {
        usize::try_from(self.words()[0].load(Ordering::SeqCst)).map_or(RECORDS, |used| used.min(RECORDS))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and no reference to its words outlives `self`.
        unsafe { munmap(self.0.as_ptr(), BYTES) }.ok();
    }
}

/// The supervisor's side of the table.
#[derive(Debug)]
pub(crate) struct Guards {
    file: OwnedFd,
    table: Table,
    slots: HashMap<ExecutionId, usize>,
    free: Vec<usize>,
}

impl Guards {
    /// Creates an empty table.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    pub(crate) fn new() -> io::Result<Self> {
        let file = memfd_create("belfry-guards", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, BYTES as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let table = Table::map(&file)?;
        Ok(Self { file, table, slots: HashMap::new(), free: Vec::new() })
    }

    /// Returns a handle of the table for a fuse.
    ///
    /// # Errors
    /// If the limit of open files is reached.
    pub(crate) fn file(&self) -> io::Result<OwnedFd> {
        self.file.try_clone()
    }

    /// Guards an execution, or updates its record. Returns `false` if the table is full; an update always succeeds.
    #[must_use]
    pub(crate) fn guard(&mut self, guarded: Guarded) -> bool {
        let place = match self.slots.get(&guarded.execution) {
            Some(place) => *place,
            None => {
                let Some(place) = self.free.pop().or_else(|| self.next()) else { return false };
                for (word, value) in self.table.record(place)[1..].iter().zip(guarded.rest()) {
                    word.store(value, Ordering::SeqCst);
                }
                self.slots.insert(guarded.execution, place);
                place
            }
        };
        self.table.record(place)[0].store(guarded.state(), Ordering::SeqCst);
        true
    }

    /// Takes a record that was never used.
    fn next(&self) -> Option<usize> {
        let place = self.table.used();
        (place < RECORDS).then(|| {
            self.table.words()[0].fetch_add(1, Ordering::SeqCst);
            place
        })
    }

    /// Ends the guarding of an execution.
    pub(crate) fn release(&mut self, execution: ExecutionId) {
        if let Some(place) = self.slots.remove(&execution) {
            self.table.record(place)[0].store(0, Ordering::SeqCst);
            self.free.push(place);
        }
    }
}

/// The fuse's side of the table.
#[derive(Debug)]
pub(super) struct GuardTableReader(Table);

impl GuardTableReader {
    /// Maps the table of a supervisor.
    ///
    /// # Errors
    /// If the file does not have the size of a table.
    pub(super) fn new(file: impl AsFd) -> io::Result<Self> {
        if usize::try_from(fstat(&file)?.st_size) != Ok(BYTES) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Table::map(file).map(Self)
    }

    /// Returns the executions that are guarded now.
    pub(super) fn all(&self) -> impl Iterator<Item = Guarded> {
        (0..self.0.used()).filter_map(|place| self.at(place))
    }

    fn at(&self, place: usize) -> Option<Guarded> {
        let record = self.0.record(place);
        let load = |word: usize| record[word].load(Ordering::SeqCst);
        loop {
            let state = load(0);
            let rest = [load(1), load(2), load(3)];
            // Otherwise the record was written during the read; read it again.
            if load(0) == state {
                return (state & VALID != 0).then(|| Guarded::from_words(state, rest));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bits: u128, pid: Option<i32>) -> Guarded {
        Guarded {
            execution: ExecutionId::from_bits(bits),
            exempt: bits.is_multiple_of(2),
            pid,
            is_reaped: false,
            is_foreign: false,
            group: 9,
        }
    }

    fn all(guards: &Guards) -> Vec<Guarded> {
        GuardTableReader::new(guards.file().unwrap()).unwrap().all().collect()
    }

    #[test]
    fn a_fuse_reads_what_the_supervisor_wrote_last() {
        let mut guards = Guards::new().unwrap();
        assert_eq!(all(&guards), []);
        let large = u128::MAX / 3;
        for bits in large..large + 3 {
            assert!(guards.guard(one(bits, None)));
        }
        assert!(guards.guard(one(large + 1, Some(i32::MAX))));
        guards.release(ExecutionId::from_bits(large));
        assert_eq!(all(&guards), [one(large + 1, Some(i32::MAX)), one(large + 2, None)]);
    }

    #[test]
    fn records_are_reused() {
        let mut guards = Guards::new().unwrap();
        for bits in 1..=1_000 {
            assert!(guards.guard(one(bits, Some(7))) && guards.guard(one(bits + 1_000_000, None)));
            guards.release(ExecutionId::from_bits(bits));
            guards.release(ExecutionId::from_bits(bits + 1_000_000));
            guards.release(ExecutionId::from_bits(bits));
        }
        assert_eq!(all(&guards), []);
        assert_eq!(guards.table.used(), 2);
    }

    #[test]
    fn a_full_table_refuses_executions_until_one_is_released() {
        let mut guards = Guards::new().unwrap();
        let records = u128::try_from(RECORDS).unwrap();
        assert!((0..records).all(|bits| guards.guard(one(bits, None))));
        assert!(!guards.guard(one(records, None)));
        assert!(guards.guard(one(5, Some(5))), "an execution in the table can be updated");
        guards.release(ExecutionId::from_bits(7));
        assert!(guards.guard(one(records, None)));
        assert_eq!(all(&guards).len(), RECORDS);
    }

    /// Records are read consistently while others come and go in the same place.
    #[test]
    fn records_are_read_consistently() {
        let mut guards = Guards::new().unwrap();
        let known = GuardTableReader::new(guards.file().unwrap()).unwrap();
        let same = |n: u64| one(u128::from(n) << 64 | u128::from(n), Some(i32::try_from(n).unwrap()));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 1..=100_000 {
                    assert!(guards.guard(same(n)));
                    guards.release(same(n).execution);
                }
            });
            while !writer.is_finished() {
                for guarded in known.all() {
                    assert_eq!(guarded, same(u64::try_from(guarded.pid.unwrap()).unwrap()));
                }
            }
        });
    }
}
