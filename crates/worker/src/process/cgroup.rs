//! Limits on memory, CPU and processes, on cgroup v1, v2 and both side by side.
//!
//! What a machine offers is found by trying: for each controller a group below our own is made and
//! a limit is written. An execution that asks for limits gets a group under the controllers it needs,
//! which its main process joins before `exec`; others get none, because making, joining and removing
//! one costs some 0.4 ms, as much as all else about a short task (measured on 6.18, v1).
//!
//! On v2 a group with processes cannot hand controllers down, so all processes of our own group are
//! first moved into a leaf below it; with systemd this needs `Delegate=yes`.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use model::spec::{Enforcement, Limits};

/// Microseconds over which CPU is counted.
const CPU_PERIOD: u64 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A controller that can be used, and the folder below which groups are made.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Controller {
    version: Version,
    base: PathBuf,
}

/// The controllers of this machine that we may use.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    memory: Option<Controller>,
    cpu: Option<Controller>,
    pids: Option<Controller>,
    /// Groups that could not be removed yet, because a process in them was still dying.
    stale: Vec<PathBuf>,
}

/// The group of one execution.
#[derive(Debug)]
pub(crate) struct Group {
    /// One for v2; one for each controller on v1.
    dirs: Vec<PathBuf>,
    procs: Vec<File>,
    memory: Option<(Version, PathBuf)>,
}

/// Why a limit is not kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimitError {
    #[error("this worker cannot enforce a limit on {0}")]
    Unavailable(&'static str),
    #[error("could not set up the control group `{}`", path.display())]
    Group { path: PathBuf, source: io::Error },
}

impl Cgroups {
    /// Finds out what can be used; groups are made below one called `name`.
    pub(crate) fn detect(name: &str) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let find = |controller: &str| {
            v1_folder(&mounts, &own, controller)
                .map(|dir| Controller { version: Version::V1, base: dir.join(name) })
                .or_else(|| {
                    let dir = v2_folder(&mounts, &own)?;
                    delegate(&dir, controller).ok()?;
                    Some(Controller { version: Version::V2, base: dir.join(name) })
                })
                .filter(|found| found.probe(controller).is_ok())
        };
        Self { memory: find("memory"), cpu: find("cpu"), pids: find("pids"), stale: Vec::new() }
    }

    pub(crate) fn limits_memory(&self) -> bool {
        self.memory.is_some()
    }

    pub(crate) fn limits_cpu(&self) -> bool {
        self.cpu.is_some()
    }

    pub(crate) fn limits_pids(&self) -> bool {
        self.pids.is_some()
    }

    /// A group that keeps `limits`, or `None` where there is nothing to keep.
    ///
    /// # Errors
    /// [`LimitError`] where a limit that is required cannot be kept.
    pub(crate) fn create(&self, name: &str, limits: &Limits) -> Result<Option<Group>, LimitError> {
        let cpu = limits.cpu.map(|c| (u64::from(c.0) * CPU_PERIOD / 1_000).max(1_000));
        let asked = [
            ("memory", &self.memory, limits.memory.map(|b| b.0)),
            ("cpu", &self.cpu, cpu),
            ("pids", &self.pids, limits.pids.map(u64::from)),
        ];
        let mut group = Group { dirs: Vec::new(), procs: Vec::new(), memory: None };
        for (what, controller, value) in asked {
            let Some(value) = value else { continue };
            let result = match controller {
                Some(controller) => group.add(controller, what, name, value),
                None => Err(LimitError::Unavailable(what)),
            };
            if let (Err(error), Enforcement::Required) = (result, limits.enforcement) {
                group.dirs.iter().for_each(|dir| drop(fs::remove_dir(dir)));
                return Err(error);
            }
        }
        Ok((!group.dirs.is_empty()).then_some(group))
    }

    /// Removes a group whose processes have ended.
    pub(crate) fn remove(&mut self, group: Group) {
        self.stale.extend(group.dirs);
        self.sweep();
    }

    /// Removes what could not be removed before.
    fn sweep(&mut self) {
        self.stale.retain(|dir| fs::remove_dir(dir).is_err_and(|e| e.kind() != io::ErrorKind::NotFound));
    }

    /// `cgroup.procs` files of a group of this name that an earlier supervisor left.
    pub(crate) fn left_behind(&self, name: &str) -> Option<PathBuf> {
        [&self.memory, &self.cpu, &self.pids]
            .into_iter()
            .flatten()
            .map(|c| c.base.join(name).join("cgroup.procs"))
            .find(|procs| procs.exists())
    }

    /// Removes all groups that an earlier supervisor left. Their processes must be dead.
    pub(crate) fn remove_left_behind(&mut self) {
        for controller in [&self.memory, &self.cpu, &self.pids].into_iter().flatten() {
            let Ok(entries) = fs::read_dir(&controller.base) else { continue };
            self.stale.extend(entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()));
        }
        self.sweep();
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.sweep();
        for controller in [&self.memory, &self.cpu, &self.pids].into_iter().flatten() {
            // Fails where something is left inside; the next supervisor of this worker tidies up.
            fs::remove_dir(&controller.base).ok();
        }
    }
}

impl Controller {
    /// Tries whether a group can be made and limited.
    fn probe(&self, what: &str) -> io::Result<()> {
        fs::create_dir_all(&self.base)?;
        if self.version == Version::V2 {
            fs::write(self.base.join("cgroup.subtree_control"), format!("+{what}"))?;
        }
        let dir = self.base.join("probe");
        fs::create_dir_all(&dir)?;
        let written = self.limit(&dir, what, 1 << 30);
        fs::remove_dir(&dir)?;
        written
    }

    fn limit(&self, dir: &Path, what: &str, value: u64) -> io::Result<()> {
        let write = |file: &str, text: String| fs::write(dir.join(file), text);
        match (self.version, what) {
            (Version::V1, "memory") => {
                write("memory.limit_in_bytes", value.to_string())?;
                // Together with swap, where swap is accounted.
                if dir.join("memory.memsw.limit_in_bytes").exists() {
                    write("memory.memsw.limit_in_bytes", value.to_string())?;
                }
                Ok(())
            }
            (Version::V2, "memory") => {
                write("memory.max", value.to_string())?;
                write("memory.swap.max", "0".into()).or_else(ignore_missing)?;
                write("memory.oom.group", "1".into()).or_else(ignore_missing)
            }
            (Version::V1, "cpu") => {
                write("cpu.cfs_period_us", CPU_PERIOD.to_string())?;
                write("cpu.cfs_quota_us", value.to_string())
            }
            (Version::V2, "cpu") => write("cpu.max", format!("{value} {CPU_PERIOD}")),
            _ => write("pids.max", value.min(4_000_000).to_string()),
        }
    }
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

impl Group {
    fn add(
        &mut self,
        controller: &Controller,
        what: &'static str,
        name: &str,
        value: u64,
    ) -> Result<(), LimitError> {
        let dir = controller.base.join(name);
        let set_up = || -> io::Result<Option<File>> {
            fs::create_dir_all(&dir)?;
            controller.limit(&dir, what, value)?;
            if self.dirs.contains(&dir) {
                return Ok(None);
            }
            File::options().write(true).open(dir.join("cgroup.procs")).map(Some)
        };
        match set_up() {
            Ok(procs) => {
                if let Some(procs) = procs {
                    self.procs.push(procs);
                    self.dirs.push(dir.clone());
                }
                if what == "memory" {
                    self.memory = Some((controller.version, dir));
                }
                Ok(())
            }
            Err(source) => {
                if !self.dirs.contains(&dir) {
                    fs::remove_dir(&dir).ok();
                }
                Err(LimitError::Group { path: dir, source })
            }
        }
    }

    /// Files that a process writes `0` to in order to join.
    pub(crate) fn procs(&self) -> Vec<BorrowedFd<'_>> {
        self.procs.iter().map(AsFd::as_fd).collect()
    }

    /// The file that lists its processes.
    pub(crate) fn procs_path(&self) -> Option<PathBuf> {
        self.dirs.first().map(|dir| dir.join("cgroup.procs"))
    }

    /// Kills all of it at once where the kernel can (v2).
    pub(crate) fn kill(&self) {
        for dir in &self.dirs {
            fs::write(dir.join("cgroup.kill"), "1").ok();
        }
    }

    /// How many of its processes the memory limit killed.
    pub(crate) fn oom_kills(&self) -> u64 {
        let Some((version, dir)) = &self.memory else { return 0 };
        let file = if *version == Version::V1 { "memory.oom_control" } else { "memory.events" };
        fs::read_to_string(dir.join(file)).map_or(0, |text| {
            text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
        })
    }

    /// The most memory that it held, in bytes.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        let (version, dir) = self.memory.as_ref()?;
        let file = if *version == Version::V1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
    }
}

/// Our own folder under the v1 hierarchy that has `controller`.
fn v1_folder(mounts: &str, own: &str, controller: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|c| c == controller).then_some(path)
    })?;
    let (root, point) =
        mount(mounts, |kind, options| kind == "cgroup" && options.split(',').any(|o| o == controller))?;
    Some(below(&point, &root, path))
}

/// Our own folder under the v2 hierarchy.
fn v2_folder(mounts: &str, own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (root, point) = mount(mounts, |kind, _| kind == "cgroup2")?;
    Some(below(&point, &root, path))
}

/// Root and mount point of the first mount that `wanted` accepts by type and super-block options.
fn mount(mounts: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<(String, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (name, options) = (kind.next()?, kind.nth(1)?);
        let mut place = place.split(' ');
        let (root, point) = (place.nth(3)?, place.next()?);
        wanted(name, options).then(|| (root.to_owned(), PathBuf::from(point)))
    })
}

/// `path` of a hierarchy whose `root` is mounted at `point`.
fn below(point: &Path, root: &str, path: &str) -> PathBuf {
    let inner = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
    point.join(inner.trim_start_matches('/'))
}

/// Hands `controller` down from our own v2 group, moving its processes to a leaf if that is asked for.
fn delegate(dir: &Path, controller: &str) -> io::Result<()> {
    let offered = fs::read_to_string(dir.join("cgroup.controllers"))?;
    if !offered.split_ascii_whitespace().any(|c| c == controller) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let hand_down = || fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
    if hand_down().is_ok() {
        return Ok(());
    }
    let leaf = dir.join("belfry-host");
    fs::create_dir_all(&leaf)?;
    for pid in fs::read_to_string(dir.join("cgroup.procs"))?.split_ascii_whitespace() {
        // One that ended meanwhile does not matter; another's process makes the next step fail.
        fs::write(leaf.join("cgroup.procs"), pid).ok();
    }
    hand_down()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 25 0:26 / /sys/fs/cgroup ro,nosuid shared:4 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw shared:5 - cgroup2 cgroup2 rw
32 30 0:28 /docker/x /sys/fs/cgroup/memory rw shared:6 - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:7 - cgroup cgroup rw,cpu,cpuacct
";
    const OWN: &str = "9:memory:/docker/x/inner\n4:cpu,cpuacct:/\n0::/user.slice\n";

    #[test]
    fn our_own_folder_is_found_in_each_hierarchy() {
        let folder = |controller| v1_folder(MOUNTS, OWN, controller);
        assert_eq!(folder("memory"), Some("/sys/fs/cgroup/memory/inner".into()));
        assert_eq!(folder("cpu"), Some("/sys/fs/cgroup/cpu,cpuacct/".into()));
        assert_eq!(folder("pids"), None);
        assert_eq!(v2_folder(MOUNTS, OWN), Some("/sys/fs/cgroup/unified/user.slice".into()));
    }

    #[test]
    fn a_limit_that_cannot_be_kept_refuses_unless_best_effort_is_enough() {
        let nothing = Cgroups::default();
        let mut limits = Limits { pids: Some(3), ..Limits::default() };
        let error = nothing.create("x", &limits).unwrap_err();
        assert_eq!(error.to_string(), "this worker cannot enforce a limit on pids");
        limits.enforcement = Enforcement::BestEffort;
        assert!(nothing.create("x", &limits).unwrap().is_none());
    }
}
