//! Free space on the disk of a worker folder, and its consequences.
//!
//! | available | consequence |
//! |---|---|
//! | less than 64 MiB, or 1 % | the agent reports the worker as unhealthy: the server places no new executions here |
//! | less than 8 MiB | the supervisor refuses executions that were assigned before the server knew |
//! | nothing | running tasks continue, and their ends are recorded in the reserve of the journal |

use std::path::Path;

/// A worker is unhealthy with less free space than this in bytes, or less than 1/[`ALMOST_FULL_PART`] of the disk.
const ALMOST_FULL: u64 = 64 << 20;
const ALMOST_FULL_PART: u64 = 100;
/// No task is started with less free space than this, in bytes.
const FULL: u64 = 8 << 20;

/// Free and total space of a disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    /// Space that this user can still write.
    pub(crate) available: u64,
    /// Total size of the disk.
    pub(crate) total: u64,
}

impl DiskSpace {
    /// Returns the space on the disk of `dir`; `None` if it cannot be measured.
    pub(crate) fn at(dir: &Path) -> Option<Self> {
        let stat = rustix::fs::statvfs(dir).ok()?;
        Some(Self { available: stat.f_bavail * stat.f_frsize, total: stat.f_blocks * stat.f_frsize })
    }

    /// Returns whether the worker should get no new executions.
    pub(crate) fn is_almost_full(self) -> bool {
        self.available < ALMOST_FULL || self.available < self.total / ALMOST_FULL_PART
    }

    /// Returns whether no task may be started.
    pub(crate) fn is_full(self) -> bool {
        self.available < FULL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(available: u64, total: u64) -> DiskSpace {
        DiskSpace { available, total }
    }

    #[test]
    fn a_disk_is_almost_full_when_little_is_left_of_it() {
        assert!(room(ALMOST_FULL - 1, 1 << 30).is_almost_full());
        assert!(room(1 << 30, 1 << 40).is_almost_full());
        assert!(!room(1 << 30, 1 << 34).is_almost_full());
    }

    #[test]
    fn a_disk_that_is_full_was_almost_full_before() {
        for available in [0, FULL - 1] {
            assert!(room(available, 1 << 30).is_full() && room(available, 1 << 30).is_almost_full());
        }
        assert!(!room(FULL, 1 << 30).is_full());
    }

    #[test]
    fn the_disk_of_this_machine_can_be_measured() {
        let room = DiskSpace::at(Path::new("/")).unwrap();
        assert!(room.available <= room.total && room.total > 0);
        assert_eq!(DiskSpace::at(Path::new("/no/such/folder")), None);
    }
}
