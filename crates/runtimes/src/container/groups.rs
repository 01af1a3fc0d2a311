//! The control group of a container, which has the id of the execution in its path.
//!
//! A program can erase its environment, but it cannot leave its control group. So the supervisor and the fuse find the processes
//! of a container by this id in `/proc/PID/cgroup`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::models::SystemInfoCgroupDriverEnum as Driver;
use model::ExecutionId;

/// Folder of the groups below the root of each hierarchy.
const FOLDER: &str = "belfry-containers";
/// Age from which an empty group belongs to no container that the engine is about to start.
const LEFT_BEHIND: Duration = Duration::from_secs(600);

/// Returns the parent of the control groups of a container; `None` if the engine creates no control groups.
pub(super) fn parent(driver: Option<Driver>, execution: ExecutionId) -> Option<String> {
    match driver {
        // A dash in the name of a slice is a level of the hierarchy.
        Some(Driver::SYSTEMD) => Some(format!("belfry-{execution}.slice")),
        Some(Driver::CGROUPFS) => Some(format!("/{FOLDER}/{execution}")),
        _ => None,
    }
}

/// Returns whether a process is in the control group of an execution.
pub(super) fn contains(execution: ExecutionId, pid: i64) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.contains(&execution.to_string())
}

/// Removes the groups of an execution whose container is removed. Systemd removes its slices itself.
pub(super) fn remove(execution: ExecutionId) {
    for folder in folders() {
        remove_empty(&folder.join(execution.to_string()));
    }
}

/// Removes the groups that killed shims have left. A group with a container in it cannot be removed.
pub(super) fn remove_left_behind() {
    let groups = folders().into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    for group in groups {
        let age =
            group.metadata().and_then(|metadata| metadata.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age > LEFT_BEHIND) {
            remove_empty(&group.path());
        }
    }
}

/// Removes a group with the groups in it: Podman leaves the one of its monitor. A group with a process cannot be removed.
fn remove_empty(group: &Path) {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    for inner in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_empty(&inner.path());
    }
    fs::remove_dir(group).ok();
}

/// Returns the folder of the groups in each hierarchy.
fn folders() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_group = |line: &&str| line.split(" - ").nth(1).is_some_and(|rest| rest.starts_with("cgroup"));
    let mount = |line: &str| line.split(' ').nth(4).map(|mount| Path::new(mount).join(FOLDER));
    mounts.lines().filter(is_group).filter_map(mount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_groups_are_removed_with_those_in_them() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, used) = (dir.path().join("empty"), dir.path().join("used"));
        fs::create_dir_all(empty.join("monitor/inner")).unwrap();
        fs::create_dir_all(used.join("monitor")).unwrap();
        // Unlike in a real group, a file keeps its directory.
        fs::write(used.join("monitor/cgroup.procs"), "1").unwrap();
        remove_empty(&empty);
        remove_empty(&used);
        assert!(!empty.exists() && used.join("monitor").exists());
    }

    #[test]
    fn the_group_of_a_container_has_the_id_of_its_execution() {
        let execution = ExecutionId::from_bits(1);
        assert_eq!(parent(Some(Driver::SYSTEMD), execution), Some(format!("belfry-{execution}.slice")));
        assert_eq!(
            parent(Some(Driver::CGROUPFS), execution),
            Some(format!("/belfry-containers/{execution}"))
        );
        assert_eq!(parent(Some(Driver::NONE), execution), None);
        assert!(!contains(execution, std::process::id().into()));
    }
}
