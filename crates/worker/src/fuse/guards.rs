//! Whom a fuse guards: a table in memory that it shares with its supervisor.
//!
//! The supervisor writes a record before a task is started, completes it with the process, and clears it at the
//! end. The fuse reads the table when it has to act and never before: a task that starts and ends wakes nobody, and
//! a fuse that takes the place of another one knows all that it knew.
//!
//! # Cost
//! A write of [`RECORD`] bytes into memory for each change, below a microsecond; places are used again, so the table is as long
//! as there were ever executions at a time.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use model::ExecutionId;
use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::io::{pread, pwrite};

/// The size of a record, in bytes.
const RECORD: usize = 32;
/// Reads of the table until two are alike: it may be written meanwhile.
const READS_MAX: usize = 8;

/// An execution that is guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guarded {
    pub(crate) execution: ExecutionId,
    /// It is not frozen when the lease runs out.
    pub(crate) exempt: bool,
    /// Its main process, once that is known; until then it is recognised by its environment.
    pub(crate) pid: Option<i32>,
}

impl Guarded {
    /// As a record: 1, exempt, 2 zeros, pid, 8 zeros, execution; all little endian.
    fn encode(self) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        record[..2].copy_from_slice(&[1, u8::from(self.exempt)]);
        record[4..8].copy_from_slice(&self.pid.unwrap_or(0).to_le_bytes());
        record[16..].copy_from_slice(&self.execution.to_bits().to_le_bytes());
        record
    }

    /// What stands in a record, if anything.
    fn decode(record: &[u8; RECORD]) -> Option<Self> {
        let pid = i32::from_le_bytes(record[4..8].try_into().ok()?);
        let execution = ExecutionId::from_bits(u128::from_le_bytes(record[16..].try_into().ok()?));
        (record[0] == 1).then_some(Self { execution, exempt: record[1] != 0, pid: (pid != 0).then_some(pid) })
    }
}

/// The supervisor's end of the table.
#[derive(Debug)]
pub(crate) struct Guards {
    table: OwnedFd,
    places: HashMap<ExecutionId, u64>,
    free: Vec<u64>,
}

impl Guards {
    /// An empty table.
    ///
    /// # Errors
    /// If the system gives no memory for it.
    pub(crate) fn new() -> io::Result<Self> {
        let table = memfd_create("belfry-guards", MemfdFlags::CLOEXEC)?;
        Ok(Self { table, places: HashMap::new(), free: Vec::new() })
    }

    /// The table, for a fuse.
    ///
    /// # Errors
    /// If no more files can be open.
    pub(crate) fn table(&self) -> io::Result<OwnedFd> {
        self.table.try_clone()
    }

    /// From now on it is guarded, or differently than before.
    ///
    /// # Errors
    /// If there is no memory for one more record; one that is there can always be changed.
    pub(crate) fn guard(&mut self, guarded: Guarded) -> io::Result<()> {
        let known = self.places.get(&guarded.execution).copied();
        let place = known.or_else(|| self.free.last().copied()).unwrap_or(self.places.len() as u64);
        self.write(place, &guarded.encode())?;
        if known.is_none() {
            self.free.pop();
            self.places.insert(guarded.execution, place);
        }
        Ok(())
    }

    /// It is over.
    pub(crate) fn release(&mut self, execution: ExecutionId) {
        let Some(place) = self.places.remove(&execution) else { return };
        // Cannot fail, as the place was written before; and nobody finds a process of it any more.
        self.write(place, &[0; RECORD]).ok();
        self.free.push(place);
    }

    fn write(&self, place: u64, record: &[u8; RECORD]) -> io::Result<()> {
        match pwrite(&self.table, record, place * RECORD as u64)? {
            RECORD => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

/// Whoever is guarded now.
///
/// # Errors
/// If the table cannot be read.
pub(super) fn read(table: impl AsFd) -> io::Result<Vec<Guarded>> {
    let mut bytes = read_all(&table)?;
    for _ in 1..READS_MAX {
        let again = read_all(&table)?;
        if again == bytes {
            break;
        }
        bytes = again;
    }
    let (records, _) = bytes.as_chunks::<RECORD>();
    Ok(records.iter().filter_map(Guarded::decode).collect())
}

fn read_all(table: &impl AsFd) -> io::Result<Vec<u8>> {
    let len = usize::try_from(fstat(table)?.st_size).unwrap_or(0);
    let mut bytes = vec![0; len];
    let mut there = 0;
    while there < len {
        match pread(table, &mut bytes[there..], there as u64)? {
            0 => break,
            more => there += more,
        }
    }
    bytes.truncate(there);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bits: u128, pid: Option<i32>) -> Guarded {
        Guarded { execution: ExecutionId::from_bits(bits), exempt: bits.is_multiple_of(2), pid }
    }

    #[test]
    fn a_fuse_reads_what_the_supervisor_wrote_last() {
        let mut guards = Guards::new().unwrap();
        let table = guards.table().unwrap();
        assert_eq!(read(&table).unwrap(), []);
        for bits in 1..=3 {
            guards.guard(one(bits, None)).unwrap();
        }
        guards.guard(one(2, Some(i32::MAX))).unwrap();
        guards.release(ExecutionId::from_bits(1));
        assert_eq!(read(&table).unwrap(), [one(2, Some(i32::MAX)), one(3, None)]);
    }

    #[test]
    fn places_are_used_again() {
        let mut guards = Guards::new().unwrap();
        let large = u128::MAX / 3;
        for bits in large..large + 1_000 {
            guards.guard(one(bits, Some(7))).unwrap();
            guards.guard(one(bits + 1_000_000, None)).unwrap();
            guards.release(ExecutionId::from_bits(bits));
            guards.release(ExecutionId::from_bits(bits + 1_000_000));
            guards.release(ExecutionId::from_bits(bits));
        }
        assert_eq!(read(&guards.table).unwrap(), []);
        assert_eq!(fstat(&guards.table).unwrap().st_size, 2 * 32);
    }
}
