//! Control groups: limits on memory, CPU and processes, on cgroup v1, v2 or both.
//!
//! The available controllers are detected by a test: for each controller a group below our own is created and a limit
//! is written. An execution with limits gets a group under the controllers that it needs. Its main process joins the
//! group before `exec`.
//!
//! Every other execution gets a *plain* group without limits, in the cheapest usable hierarchy. A task cannot leave
//! its group, so all its processes are found, even if they change their session, parent or environment. Plain groups
//! are reused: creating and removing one costs about 50 µs. Joining an existing group costs nothing measurable if the
//! child is cloned into it (v2) or writes to a v1 hierarchy. Both were measured on Linux 6.18.
//!
//! Groups are numbered. The fuse reads the number of a group from the table of guarded executions. A group of an
//! earlier supervisor may contain processes that cannot be killed, so its number is not used again.
//!
//! A v2 group that contains processes cannot delegate controllers. All processes of our own group are therefore moved
//! into a leaf below it first; under systemd this requires `Delegate=yes`.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use model::spec::{Enforcement, Limits};
use rustix::process::Signal;

use super::{clone, tree};

/// Period of the CPU limit, in microseconds.
const CPU_PERIOD: u64 = 100_000;
/// Maximum number of plain groups in the pool; each has up to two open files.
const SPARE_MAX: usize = 256;
/// If no process can join a plain group, one in 2^`SKIP_EXPONENT_MAX` executions tries.
const SKIP_EXPONENT_MAX: u32 = 6;
/// v1 hierarchies for plain groups, the cheapest first.
const PLAIN_V1: [&str; 4] = ["freezer", "name=systemd", "pids", "memory"];
/// File that lists the processes of a group; a process joins by writing to it.
const PROCS: &str = "cgroup.procs";
/// Name of the leaf below our own v2 group into which its processes are moved.
const HOST_LEAF: &str = "belfry-host";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// How a child joins its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Join {
    /// It is cloned into the group.
    ByClone,
    /// It writes to `cgroup.procs` before `exec`.
    #[default]
    ByWriting,
}

/// A usable controller, and the folder in which groups are created.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Controller {
    version: Version,
    base: PathBuf,
}

/// Usable controllers of this machine, and the pool of plain groups.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    memory: Option<Controller>,
    cpu: Option<Controller>,
    pids: Option<Controller>,
    /// Hierarchy of the plain groups; `None` if no plain group can be created.
    plain: Option<Controller>,
    /// How children join v2 groups.
    join: Join,
    /// Pool of plain groups without processes.
    pool: Vec<Group>,
    /// Number of the most recently created group.
    last: u32,
    /// Number of consecutive processes that failed to join a plain group.
    join_failures: u32,
    /// Number of executions that get no plain group because of those failures.
    skips_left: u32,
    /// Folders of groups that could not be removed yet, because a process in them had not exited.
    stale: Vec<PathBuf>,
}

/// The control group of one execution.
#[derive(Debug)]
pub(crate) struct Group {
    /// Number, used as its name under every controller.
    pub(crate) number: u32,
    /// One folder for v2; one for each controller on v1.
    dirs: Vec<PathBuf>,
    procs: Vec<File>,
    memory: Option<(Version, PathBuf)>,
    /// Folder of the v2 group, for cloning a process into it, and the index of the same group in `procs`.
    folder: Option<(File, usize)>,
    is_plain: bool,
    /// Whether the whole group was killed at once; such a group is not reused. Some kernels detect forks during the
    /// kill by a counter, and later also kill new processes in the group (seen on Linux 6.18).
    was_killed: Cell<bool>,
}

/// Why a limit cannot be enforced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimitError {
    #[error("this worker cannot enforce a limit on {0}")]
    Unavailable(&'static str),
    #[error("cannot set up the control group `{}`", path.display())]
    Group { path: PathBuf, source: io::Error },
}

impl LimitError {
    /// Returns whether a group with this number already exists.
    fn is_taken(&self) -> bool {
        matches!(self, Self::Group { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }
}

impl Cgroups {
    /// Detects the usable controllers; groups are created below one called `name`.
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
        let (memory, cpu, pids) = (find("memory"), find("cpu"), find("pids"));
        let v2 = |join| {
            Some((Controller { version: Version::V2, base: v2_folder(&mounts, &own)?.join(name) }, join))
        };
        let v1 = PLAIN_V1.iter().filter_map(|hierarchy| {
            let dir = v1_folder(&mounts, &own, hierarchy)?;
            Some((Controller { version: Version::V1, base: dir.join(name) }, Join::ByWriting))
        });
        // The cheapest first: moving a process into a v2 group costs about 50 µs.
        let ways = v2(Join::ByClone).into_iter().chain(v1).chain(v2(Join::ByWriting));
        let (plain, join) = ways
            .into_iter()
            .find(|(found, join)| found.probe_plain(*join).is_ok())
            .map_or((None, Join::ByWriting), |(found, join)| (Some(found), join));
        let mut found = Self::default();
        (found.memory, found.cpu, found.pids) = (memory, cpu, pids);
        (found.plain, found.join) = (plain, join);
        found.last = found.highest();
        found
    }

    /// Returns the highest number of an existing group under any controller; 0 if there is none.
    fn highest(&self) -> u32 {
        let groups = self.bases().into_iter().filter_map(|base| fs::read_dir(base).ok()).flatten().flatten();
        groups.filter_map(|group| group.file_name().to_str()?.parse().ok()).max().unwrap_or(0)
    }

    /// Returns whether executions without limits get a group.
    pub(crate) fn has_plain_groups(&self) -> bool {
        self.plain.is_some()
    }

    /// Records that a process could not join a plain group and runs without it.
    ///
    /// The fuse keeps the number of the group while the process runs, so the group is not reused. The next execution
    /// gets a group again. After several consecutive failures, only some executions try, because each failed attempt
    /// has a cost.
    pub(crate) fn record_join_failure(&mut self, group: Group) {
        self.join_failures = self.join_failures.saturating_add(1);
        self.skips_left = (1 << (self.join_failures - 1).min(SKIP_EXPONENT_MAX)) - 1;
        self.stale.extend(group.dirs);
        self.sweep();
    }

    /// Records that a process has joined its group.
    pub(crate) fn record_join(&mut self) {
        (self.join_failures, self.skips_left) = (0, 0);
    }

    /// Folders in which groups are created, without duplicates.
    pub(crate) fn bases(&self) -> Vec<PathBuf> {
        let mut bases: Vec<_> = self.controllers().map(|controller| controller.base.clone()).collect();
        bases.sort();
        bases.dedup();
        bases
    }

    fn controllers(&self) -> impl Iterator<Item = &Controller> {
        [&self.memory, &self.cpu, &self.pids, &self.plain].into_iter().flatten()
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

    /// Creates a group that enforces `limits`. Returns a plain group if there is nothing to enforce, or `None` if no
    /// group can be created.
    ///
    /// # Errors
    /// [`LimitError`] if a required limit cannot be enforced.
    pub(crate) fn create(&mut self, limits: &Limits) -> Result<Option<Group>, LimitError> {
        Ok(match self.limited(limits)? {
            None => self.take_plain(),
            limited => limited,
        })
    }

    fn next(&mut self) -> u32 {
        // 0 means "no group".
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.last
    }

    /// Returns a plain group. If none can be created, logs a warning and returns `None`; the execution then runs
    /// without one.
    fn take_plain(&mut self) -> Option<Group> {
        let plain = self.plain.clone()?;
        if self.skips_left > 0 {
            self.skips_left -= 1;
            return None;
        }
        if let Some(spare) = self.pool.pop() {
            return Some(spare);
        }
        loop {
            let number = self.next();
            match Group::plain(&plain, number, self.join) {
                Ok(group) => return Some(group),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    tracing::warn!(folder = %plain.base.display(), %error, "cannot create a control group");
                    return None;
                }
            }
        }
    }

    fn limited(&mut self, limits: &Limits) -> Result<Option<Group>, LimitError> {
        if limits.cpu.is_none() && limits.memory.is_none() && limits.pids.is_none() {
            return Ok(None);
        }
        loop {
            let number = self.next();
            match self.limited_as(number, limits) {
                Err(error) if error.is_taken() => {}
                made => return made,
            }
        }
    }

    /// Creates the group with this number; `None` if none of the limits can be enforced and none is required.
    fn limited_as(&self, number: u32, limits: &Limits) -> Result<Option<Group>, LimitError> {
        let cpu = limits.cpu.map(|c| (u64::from(c.0) * CPU_PERIOD / 1_000).max(1_000));
        let asked = [
            ("memory", &self.memory, limits.memory.map(|b| b.0)),
            ("cpu", &self.cpu, cpu),
            ("pids", &self.pids, limits.pids.map(u64::from)),
        ];
        let mut group = Group::numbered(number);
        for (what, controller, value) in asked {
            let Some(value) = value else { continue };
            let result = match controller {
                Some(controller) => group.add(controller, what, value, self.join),
                None => Err(LimitError::Unavailable(what)),
            };
            if let Err(error) = result
                && (error.is_taken() || limits.enforcement == Enforcement::Required)
            {
                group.dirs.iter().for_each(|dir| drop(fs::remove_dir(dir)));
                return Err(error);
            }
        }
        Ok((!group.dirs.is_empty()).then_some(group))
    }

    /// Takes back the group of an ended execution; reuses it if it is plain and empty, and was not killed.
    pub(crate) fn take_back(&mut self, group: Group) {
        let is_as_new = group.is_plain && !group.was_killed.get() && group.is_empty();
        if is_as_new && self.pool.len() < SPARE_MAX && self.plain.is_some() {
            self.pool.push(group);
            return;
        }
        self.stale.extend(group.dirs);
        self.sweep();
    }

    /// Removes the folders that could not be removed earlier.
    fn sweep(&mut self) {
        self.stale.retain(|dir| fs::remove_dir(dir).is_err_and(|e| e.kind() != io::ErrorKind::NotFound));
    }

    /// Kills all processes in groups of an earlier supervisor; returns the number of processes found.
    pub(crate) fn kill_left_behind(&self) -> usize {
        let left =
            self.bases().into_iter().flat_map(|base| fs::read_dir(base).into_iter().flatten().flatten());
        left.map(|entry| {
            let dir = entry.path();
            let Ok(text) = fs::read_to_string(dir.join(PROCS)) else { return 0 };
            let pids = tree::pids(&text);
            if !pids.is_empty() {
                fs::write(dir.join("cgroup.kill"), "1").ok();
                pids.iter().for_each(|pid| tree::signal_process(*pid, Signal::KILL));
            }
            pids.len()
        })
        .sum()
    }

    /// Removes all groups of an earlier supervisor. Their processes must be dead.
    pub(crate) fn remove_left_behind(&mut self) {
        for base in self.bases() {
            let Ok(entries) = fs::read_dir(base) else { continue };
            self.stale.extend(entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()));
        }
        self.sweep();
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        let spare = std::mem::take(&mut self.pool);
        self.stale.extend(spare.into_iter().flat_map(|group| group.dirs));
        self.sweep();
        for base in self.bases() {
            // Fails if the folder is not empty; the next supervisor of this worker removes it.
            fs::remove_dir(base).ok();
        }
    }
}

impl Controller {
    /// Checks that a group can be created and limited.
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

    /// Checks that a group without limits can be created and, as far as possible, joined.
    fn probe_plain(&self, join: Join) -> io::Result<()> {
        fs::create_dir_all(&self.base)?;
        let dir = self.base.join("probe");
        fs::create_dir_all(&dir)?;
        let opened = File::options().write(true).open(dir.join(PROCS));
        let folder = (join == Join::ByClone).then(|| File::open(&dir)).transpose()?;
        // If a child cannot be cloned into the group, or is killed there, every task would fail in the same way.
        let lives = folder.is_none_or(|folder| clone::can_clone_into(folder.as_fd()));
        fs::remove_dir(&dir)?;
        if lives { opened.map(drop) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    fn limit(&self, dir: &Path, what: &str, value: u64) -> io::Result<()> {
        let write = |file: &str, text: String| fs::write(dir.join(file), text);
        match (self.version, what) {
            (Version::V1, "memory") => {
                write("memory.limit_in_bytes", value.to_string())?;
                // Memory and swap together, if swap accounting is enabled.
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

/// Returns the `cgroup.procs` of the group with this number, in the first of `bases` that has one.
pub(crate) fn procs_below(bases: &[PathBuf], number: u32) -> Option<PathBuf> {
    let name = number.to_string();
    bases.iter().map(|base| base.join(&name).join(PROCS)).find(|procs| procs.exists())
}

impl Group {
    /// A group without folders.
    fn numbered(number: u32) -> Self {
        Self {
            number,
            dirs: Vec::new(),
            procs: Vec::new(),
            memory: None,
            folder: None,
            is_plain: false,
            was_killed: Cell::new(false),
        }
    }

    /// Creates a group without limits.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if a group with this number exists.
    fn plain(controller: &Controller, number: u32, join: Join) -> io::Result<Self> {
        let dir = controller.base.join(number.to_string());
        fs::create_dir(&dir)?;
        let open = || {
            let procs = File::options().read(true).write(true).open(dir.join(PROCS))?;
            let folder = (join == Join::ByClone).then(|| File::open(&dir)).transpose()?;
            io::Result::Ok((procs, folder))
        };
        let (procs, folder) = open().inspect_err(|_| drop(fs::remove_dir(&dir)))?;
        let folder = folder.map(|folder| (folder, 0));
        Ok(Self { dirs: vec![dir], procs: vec![procs], folder, is_plain: true, ..Self::numbered(number) })
    }

    /// Returns whether the group contains no process.
    pub(crate) fn is_empty(&self) -> bool {
        self.procs.iter().all(|procs| matches!(procs.read_at(&mut [0], 0), Ok(0)))
    }

    /// Returns whether the group has no limits, so that an execution can run without it.
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Returns the folder of the v2 group, for cloning a process into it, and its index in [`Self::procs`].
    pub(crate) fn folder(&self) -> Option<(BorrowedFd<'_>, usize)> {
        self.folder.as_ref().map(|(folder, index)| (folder.as_fd(), *index))
    }

    fn add(
        &mut self,
        controller: &Controller,
        what: &'static str,
        value: u64,
        join: Join,
    ) -> Result<(), LimitError> {
        let dir = controller.base.join(self.number.to_string());
        let is_new = !self.dirs.contains(&dir);
        if is_new {
            fs::create_dir(&dir).map_err(|source| LimitError::Group { path: dir.clone(), source })?;
        }
        let set_up = || -> io::Result<Option<File>> {
            controller.limit(&dir, what, value)?;
            is_new.then(|| File::options().read(true).write(true).open(dir.join(PROCS))).transpose()
        };
        match set_up() {
            Ok(procs) => {
                if let Some(procs) = procs {
                    if controller.version == Version::V2 && join == Join::ByClone {
                        let folder = File::open(&dir).ok();
                        self.folder = folder.map(|folder| (folder, self.procs.len()));
                    }
                    self.procs.push(procs);
                    self.dirs.push(dir.clone());
                }
                if what == "memory" {
                    self.memory = Some((controller.version, dir));
                }
                Ok(())
            }
            Err(source) => {
                if is_new {
                    fs::remove_dir(&dir).ok();
                }
                Err(LimitError::Group { path: dir, source })
            }
        }
    }

    /// Files to which a process writes `0` in order to join.
    pub(crate) fn procs(&self) -> Vec<BorrowedFd<'_>> {
        self.procs.iter().map(AsFd::as_fd).collect()
    }

    /// Path of the file that lists the processes of the group.
    pub(crate) fn procs_path(&self) -> Option<PathBuf> {
        self.dirs.first().map(|dir| dir.join(PROCS))
    }

    /// Kills all processes of the group at once, if the kernel supports it (v2).
    pub(crate) fn kill(&self) {
        self.was_killed.set(true);
        for dir in &self.dirs {
            fs::write(dir.join("cgroup.kill"), "1").ok();
        }
    }

    /// Number of processes that were killed because of the memory limit.
    pub(crate) fn oom_kills(&self) -> u64 {
        let Some((version, dir)) = &self.memory else { return 0 };
        let file = if *version == Version::V1 { "memory.oom_control" } else { "memory.events" };
        fs::read_to_string(dir.join(file)).map_or(0, |text| {
            text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
        })
    }

    /// Returns the files from which another thread can measure the group.
    pub(crate) fn paths(&self) -> GroupPaths {
        GroupPaths { dirs: self.dirs.clone(), memory: self.memory.clone() }
    }

    /// Peak memory usage, in bytes; `None` if the group has no memory limit.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        let (version, dir) = self.memory.as_ref()?;
        let file = if *version == Version::V1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
    }
}

/// Folders of a control group, to measure it without holding it.
#[derive(Debug, Clone)]
pub(crate) struct GroupPaths {
    dirs: Vec<PathBuf>,
    memory: Option<(Version, PathBuf)>,
}

impl GroupPaths {
    /// Returns the file that lists the processes of the group.
    pub(crate) fn procs(&self) -> Option<PathBuf> {
        self.dirs.first().map(|dir| dir.join(PROCS))
    }

    /// Returns the CPU time of the group since its creation, in microseconds; `None` if it is not counted.
    pub(crate) fn cpu_micros(&self) -> Option<u64> {
        let nanos =
            |dir: &PathBuf| fs::read_to_string(dir.join("cpuacct.usage")).ok()?.trim().parse::<u64>().ok();
        let micros = |dir: &PathBuf| field_of(&dir.join("cpu.stat"), "usage_usec");
        self.dirs.iter().find_map(|dir| micros(dir).or_else(|| nanos(dir).map(|nanos| nanos / 1_000)))
    }

    /// Returns the memory of the group without inactive file pages, in bytes; `None` if the group has no memory limit.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        let (version, dir) = self.memory.as_ref()?;
        let (current, inactive) = match version {
            Version::V1 => ("memory.usage_in_bytes", "total_inactive_file"),
            Version::V2 => ("memory.current", "inactive_file"),
        };
        let current = fs::read_to_string(dir.join(current)).ok()?.trim().parse::<u64>().ok()?;
        Some(current.saturating_sub(field_of(&dir.join("memory.stat"), inactive).unwrap_or(0)))
    }
}

/// Returns the number after `name` and a space, at the start of a line of the file.
fn field_of(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Returns our own folder in the v1 hierarchy with `controller`.
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

/// Returns our own folder in the v2 hierarchy, or its parent if an earlier supervisor moved this process into a leaf.
///
/// An agent is moved together with its supervisor, so the next supervisor starts in the leaf. It must find the groups
/// of the earlier one, and a leaf below the leaf could not delegate controllers.
fn v2_folder(mounts: &str, own: &str) -> Option<PathBuf> {
    let mut path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    while let Some(parent) = path.strip_suffix(HOST_LEAF).and_then(|parent| parent.strip_suffix('/')) {
        path = parent;
    }
    let (root, point) = mount(mounts, |kind, _| kind == "cgroup2")?;
    Some(below(&point, &root, path))
}

/// Returns the root and mount point of the first mount whose type and super-block options `wanted` accepts.
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

/// Converts `path` within a hierarchy, whose `root` is mounted at `point`, to a file path.
fn below(point: &Path, root: &str, path: &str) -> PathBuf {
    let inner = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
    point.join(inner.trim_start_matches('/'))
}

/// Delegates `controller` from our own v2 group, and first moves its processes to a leaf if necessary.
fn delegate(dir: &Path, controller: &str) -> io::Result<()> {
    let offered = fs::read_to_string(dir.join("cgroup.controllers"))?;
    if !offered.split_ascii_whitespace().any(|c| c == controller) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let hand_down = || fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
    if hand_down().is_ok() {
        return Ok(());
    }
    let leaf = dir.join(HOST_LEAF);
    fs::create_dir_all(&leaf)?;
    for pid in fs::read_to_string(dir.join("cgroup.procs"))?.split_ascii_whitespace() {
        // A process that has ended does not matter; a process of another user makes the next step fail.
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
    fn the_host_leaf_is_not_used_as_the_own_group() {
        let folder = |own: &str| v2_folder(MOUNTS, own).unwrap();
        let unified = Path::new("/sys/fs/cgroup/unified");
        assert_eq!(folder("0::/worker.service/belfry-host\n"), unified.join("worker.service"));
        assert_eq!(folder("0::/worker.service/belfry-host/belfry-host\n"), unified.join("worker.service"));
        assert_eq!(folder("0::/belfry-host\n"), unified.join(""));
        assert_eq!(folder("0::/my-belfry-host\n"), unified.join("my-belfry-host"));
    }

    #[test]
    fn an_unenforceable_limit_is_refused_unless_best_effort_is_set() {
        let mut nothing = Cgroups::default();
        let mut limits = Limits { pids: Some(3), ..Limits::default() };
        let error = nothing.create(&limits).unwrap_err();
        assert_eq!(error.to_string(), "this worker cannot enforce a limit on pids");
        limits.enforcement = Enforcement::BestEffort;
        assert!(nothing.create(&limits).unwrap().is_none());
    }

    #[test]
    fn no_execution_gets_a_group_that_exists_already() {
        let name = format!("belfry-test-left-{}", std::process::id());
        let earlier = Cgroups::detect(&name);
        let Some(base) = earlier.plain.as_ref().map(|plain| plain.base.clone()) else {
            eprintln!("skipped: cannot create control groups");
            return;
        };
        let left = base.join("7");
        fs::create_dir(&left).unwrap();
        let mut cgroups = Cgroups::detect(&name);
        let none = Limits::default();
        assert_eq!(cgroups.create(&none).unwrap().unwrap().number, 8, "behind the highest that exists");
        let next = base.join("9");
        fs::create_dir(&next).unwrap();
        assert_eq!(cgroups.create(&none).unwrap().unwrap().number, 10);
        let limits = Limits { pids: Some(3), enforcement: Enforcement::Required, ..Limits::default() };
        if let Some(Controller { base, .. }) = cgroups.pids.clone() {
            let next = base.join("11");
            fs::create_dir(&next).unwrap();
            assert_eq!(cgroups.create(&limits).unwrap().unwrap().number, 12);
            fs::remove_dir(base.join("12")).unwrap();
            fs::remove_dir(next).unwrap();
        }
        for dir in [left, next, base.join("8"), base.join("10")] {
            fs::remove_dir(dir).unwrap();
        }
    }

    #[test]
    fn a_join_failure_does_not_affect_the_next_execution() {
        let mut cgroups = Cgroups::detect(&format!("belfry-test-join-{}", std::process::id()));
        if !cgroups.has_plain_groups() {
            eprintln!("skipped: cannot create control groups");
            return;
        }
        let none = Limits::default();
        let first = cgroups.create(&none).unwrap().unwrap();
        let (number, dir) = (first.number, first.dirs[0].clone());
        cgroups.record_join_failure(first);
        assert!(!dir.exists() && cgroups.pool.is_empty(), "the fuse has its number");
        let next = cgroups.create(&none).unwrap().unwrap();
        assert!(next.number > number);
        // If no process ever joins, few executions try.
        let mut joins = 0;
        for _ in 0..1_000 {
            let Some(group) = cgroups.create(&none).unwrap() else { continue };
            cgroups.record_join_failure(group);
            joins += 1;
        }
        assert!((15..40).contains(&joins), "{joins} of 1000 tried");
        cgroups.record_join();
        let other = cgroups.create(&none).unwrap().unwrap();
        cgroups.take_back(next);
        cgroups.take_back(other);
    }

    #[test]
    fn empty_plain_groups_are_reused() {
        let name = format!("belfry-test-{}", std::process::id());
        let mut cgroups = Cgroups::detect(&name);
        if !cgroups.has_plain_groups() {
            eprintln!("skipped: cannot create control groups");
            return;
        }
        let none = Limits::default();
        let first = cgroups.create(&none).unwrap().unwrap();
        let second = cgroups.create(&none).unwrap().unwrap();
        assert_ne!(first.number, second.number);
        let (number, procs) = (first.number, first.procs_path().unwrap());
        assert_eq!(procs_below(&cgroups.bases(), number), Some(procs));
        cgroups.take_back(first);
        let again = cgroups.create(&none).unwrap().unwrap();
        assert_eq!(again.number, number);
        again.kill();
        cgroups.take_back(again);
        assert!(cgroups.pool.is_empty(), "a process that is cloned into it may be killed");
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        fs::write(second.procs_path().unwrap(), child.id().to_string()).unwrap();
        assert!(!second.is_empty());
        let dir = second.dirs[0].clone();
        cgroups.take_back(second);
        assert!(dir.exists() && cgroups.pool.is_empty(), "the group is kept until empty, and not reused");
        while cgroups.kill_left_behind() > 0 {
            child.try_wait().unwrap();
        }
        child.wait().unwrap();
        drop(cgroups);
        assert!(!dir.parent().unwrap().exists());
    }
}
