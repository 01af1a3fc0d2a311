//! The file `state`: vote, purged log id, and a hint at the committed log id.
//!
//! The file has two slots, each in a page of its own and with a sequence number and a checksum. One slot is *durable*: it
//! has been synced. Every write goes to the other slot, so a torn write leaves the durable one. A write that is synced
//! makes its slot the durable one; the hint is written without a sync. After a sync the old slot gets the same values, so
//! that later damage of one slot loses no vote.
//!
//! ```text
//!  offset  bytes
//!       0      8  "BLFRSTAT"
//!       8      2  format: 1
//!      10      2  zero
//!      12      4  CRC-32 of everything below
//!      16     16  cluster
//!      32      8  sequence number
//!      40     17  vote
//!      57     25  purged
//!      82     25  committed
//! ```

use std::sync::Arc;

use super::error::{Failure, OpenError};
use crate::codec::{
    OPTIONAL_LOG_ID_BYTES, OPTIONAL_VOTE_BYTES, Take, put_optional_log_id, put_optional_vote,
};
use crate::disk::{Disk, DiskFile};
use crate::types::{LogId, Vote};

const NAME: &str = "state";
/// Name until the first slot is durable.
const NEW_NAME: &str = "state.new";
const MAGIC: &[u8; 8] = b"BLFRSTAT";
const FORMAT: u16 = 1;
/// Bytes before the part that the checksum covers.
const UNCHECKED: usize = 16;
const SLOT_BYTES: usize = UNCHECKED + 16 + 8 + OPTIONAL_VOTE_BYTES + 2 * OPTIONAL_LOG_ID_BYTES;
/// A torn write of a page must not reach the other slot.
const SLOT_DISTANCE: u64 = 4096;

/// The values of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Values {
    pub(super) vote: Option<Vote>,
    /// All entries up to this one are removed, or may be.
    pub(super) purged: Option<LogId>,
    /// All entries up to this one are committed; there may be more.
    pub(super) committed: Option<LogId>,
}

#[derive(Debug)]
struct Slot {
    cluster: u128,
    sequence: u64,
    values: Values,
}

enum Parsed {
    Valid(Slot),
    Invalid,
    TooNew(u16),
}

impl Slot {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend([0; 6]);
        bytes.extend(self.cluster.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        put_optional_vote(self.values.vote.as_ref(), &mut bytes);
        put_optional_log_id(self.values.purged.as_ref(), &mut bytes);
        put_optional_log_id(self.values.committed.as_ref(), &mut bytes);
        let checksum = crc32fast::hash(&bytes[UNCHECKED..]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Parsed {
        let mut take = Take(bytes);
        if take.bytes().as_ref() != Some(MAGIC) {
            return Parsed::Invalid;
        }
        match take.u16() {
            Some(FORMAT) => {}
            Some(newer) if newer > FORMAT => return Parsed::TooNew(newer),
            _ => return Parsed::Invalid,
        }
        Self::parse_values(take, &bytes[UNCHECKED.min(bytes.len())..]).map_or(Parsed::Invalid, Parsed::Valid)
    }

    fn parse_values(mut take: Take<'_>, checked: &[u8]) -> Option<Self> {
        if take.u16()? != 0 || take.u32()? != crc32fast::hash(checked) {
            return None;
        }
        let (cluster, sequence) = (take.u128()?, take.u64()?);
        let values = Values {
            vote: take.optional_vote()?,
            purged: take.optional_log_id()?,
            committed: take.optional_log_id()?,
        };
        Some(Self { cluster, sequence, values })
    }
}

/// The open file.
#[derive(Debug)]
pub(super) struct StateFile {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    cluster: u128,
    sequence: u64,
    /// Slot that is never overwritten before the other one is durable.
    durable: u64,
    values: Values,
}

impl StateFile {
    /// Opens the file. Returns `None` if there is none.
    pub(super) fn open(disk: &Arc<dyn Disk>, cluster: u128) -> Result<Option<Self>, OpenError> {
        let path = disk.path_of(NAME);
        if !disk.names().map_err(Failure::of("read", path.clone()))?.iter().any(|name| name == NAME) {
            return Ok(None);
        }
        let file = disk.open(NAME).map_err(Failure::of("open", path.clone()))?;
        let mut newest: Option<(u64, Slot)> = None;
        for at in [0, 1] {
            let mut bytes = [0; SLOT_BYTES];
            let read = file.read_at(&mut bytes, at * SLOT_DISTANCE);
            let length = read.map_err(Failure::of("read", path.clone()))?;
            match Slot::parse(&bytes[..length]) {
                Parsed::Valid(slot)
                    if newest.as_ref().is_none_or(|(_, other)| other.sequence < slot.sequence) =>
                {
                    newest = Some((at, slot));
                }
                Parsed::Valid(_) | Parsed::Invalid => {}
                Parsed::TooNew(found) => return Err(OpenError::TooNew { path, found, known: FORMAT }),
            }
        }
        let Some((durable, Slot { cluster: found, sequence, values })) = newest else {
            let problem = "neither copy of the vote is valid".to_owned();
            return Err(OpenError::Damaged { path, offset: 0, problem });
        };
        if found != cluster {
            return Err(OpenError::OtherCluster { path, expected: cluster, found });
        }
        // The process may have ended between a write and its sync. The next write goes to the other slot, so this one
        // must be durable by then.
        file.sync().map_err(Failure::of("sync", path))?;
        Ok(Some(Self { disk: Arc::clone(disk), file, cluster, sequence, durable, values }))
    }

    /// Creates the file without any values.
    pub(super) fn create(disk: &Arc<dyn Disk>, cluster: u128) -> Result<Self, Failure> {
        let path = disk.path_of(NEW_NAME);
        let file = disk.create(NEW_NAME).map_err(Failure::of("create", path.clone()))?;
        let slot = Slot { cluster, sequence: 1, values: Values::default() };
        file.write_at(&slot.encode(), 0).map_err(Failure::of("write", path.clone()))?;
        file.sync().map_err(Failure::of("sync", path.clone()))?;
        disk.rename(NEW_NAME, NAME).map_err(Failure::of("rename", path.clone()))?;
        disk.sync_folder().map_err(Failure::of("sync the folder of", path))?;
        Ok(Self { disk: Arc::clone(disk), file, cluster, sequence: 1, durable: 0, values: slot.values })
    }

    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    /// Changes values; they are durable when this returns.
    pub(super) fn save(&mut self, change: impl FnOnce(&mut Values)) -> Result<(), Failure> {
        change(&mut self.values);
        self.write()?;
        self.file.sync().map_err(Failure::of("sync", self.disk.path_of(NAME)))?;
        self.durable = 1 - self.durable;
        self.write()
    }

    /// Notes a committed log id. It may be lost in a power cut.
    pub(super) fn save_hint(&mut self, committed: Option<LogId>) -> Result<(), Failure> {
        self.values.committed = committed;
        self.write()
    }

    fn write(&mut self) -> Result<(), Failure> {
        self.sequence += 1;
        let slot = Slot { cluster: self.cluster, sequence: self.sequence, values: self.values.clone() };
        let offset = (1 - self.durable) * SLOT_DISTANCE;
        self.file.write_at(&slot.encode(), offset).map_err(Failure::of("write", self.disk.path_of(NAME)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::log_id;
    use crate::disk::sim::{Luck, SimDisk};
    use crate::types::NodeId;

    fn open(disk: &Arc<SimDisk>) -> Result<Option<StateFile>, OpenError> {
        StateFile::open(&(Arc::clone(disk) as Arc<dyn Disk>), 5)
    }

    fn create(disk: &Arc<SimDisk>) -> Result<StateFile, Failure> {
        StateFile::create(&(Arc::clone(disk) as Arc<dyn Disk>), 5)
    }

    fn vote(term: u64) -> Option<Vote> {
        Some(Vote::new(term, NodeId(1)))
    }

    /// Hints in between are written without a sync, into either slot.
    #[test]
    fn a_power_cut_at_any_operation_keeps_the_last_synced_vote() {
        for seed in 0..20 {
            for stop in 0..40 {
                let (disk, mut luck) = (SimDisk::new(), Luck::new(seed));
                let mut state = create(&disk).unwrap();
                disk.stop_after(stop);
                let (mut synced, mut tried) = (0, 0);
                for term in 1..20 {
                    let hint = Some(log_id(1, NodeId(1), term));
                    if state.save_hint(hint).and_then(|()| state.save_hint(hint)).is_err() {
                        break;
                    }
                    tried = term;
                    if state.save(|values| values.vote = vote(term)).is_err() {
                        break;
                    }
                    synced = term;
                }
                disk.cut_power(&mut luck);
                let found = open(&disk).unwrap().unwrap().values().vote.map_or(0, |vote| vote.leader_id.term);
                assert!(
                    (synced..=tried).contains(&found),
                    "seed {seed}, stop {stop}: {synced}..={tried}: {found}"
                );
            }
        }
    }

    #[test]
    fn damage_of_one_slot_loses_no_vote_and_of_both_is_reported() {
        let disk = SimDisk::new();
        create(&disk).unwrap().save(|values| values.vote = vote(7)).unwrap();
        for slot in [0, 4096] {
            let copy = disk.copy();
            copy.damage("state", |bytes| bytes[slot + 60] ^= 1);
            assert_eq!(open(&copy).unwrap().unwrap().values().vote, vote(7));
            copy.damage("state", |bytes| bytes[4096 - slot + 40] ^= 1);
            let error = open(&copy).unwrap_err().to_string();
            assert_eq!(
                error,
                "the log is damaged: `log/state` at offset 0: neither copy of the vote is valid"
            );
        }
    }

    #[test]
    fn a_file_of_another_cluster_or_version_is_refused() {
        let disk = SimDisk::new();
        assert!(open(&disk).unwrap().is_none());
        create(&disk).unwrap();
        let other = StateFile::open(&(Arc::clone(&disk) as Arc<dyn Disk>), 6);
        assert!(matches!(other, Err(OpenError::OtherCluster { expected: 6, found: 5, .. })));
        disk.damage("state", |bytes| bytes[8] = 2);
        assert!(matches!(open(&disk), Err(OpenError::TooNew { found: 2, known: 1, .. })));
    }
}
