//! Start-up of a supervisor, and recovery of the state of an earlier one.
//!
//! Executions that were started and never ended according to the journal are dead or dying: the fuse has killed them,
//! or the machine has stopped. If the machine was not rebooted, their processes are searched for all the same, and no
//! task is started before they have exited. Then they are reported as interrupted.
//!
//! A copy of a worker folder contains the same journal and identity, and may be started beside the original. So only
//! processes of executions that were started in this folder are searched for. The names of control groups contain the
//! id of the folder.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use model::id::IdSource;
use model::{ShardId, Timestamp, WorkerId};
use nix::sys::signal::{SigSet, Signal as NixSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::convert::{self, StartLocation};
use super::exits::EarlyExits;
use super::folder_remover::FolderRemover;
use super::folders::Folders;
use super::fuse_link::FuseLink;
use super::journal::{Held, Journal, State};
use super::launcher::Launcher;
use super::logs;
use super::poller::{Poller, token};
use super::ports::Ports;
use super::secret_files::SecretFolder;
use super::task_socket::Calls;
use super::usage::Meter;
use super::writer::Writer;
use super::{JOURNAL_COMPACT, Supervisor, SupervisorError, failed};
use crate::clock::{boot_id, entropy, now, unix_millis};
use crate::config::SupervisorConfig;
use crate::fuse::guards::Guards;
use crate::layout::Layout;
use crate::process::cgroup::Cgroups;
use crate::process::tree::{self, Root};
use crate::process::user;

/// Maximum time to wait for remaining processes of an earlier supervisor to exit.
const LEFTOVERS_MAX: Duration = Duration::from_secs(10);

/// Creates a supervisor that is ready to run.
pub(super) fn start(config: SupervisorConfig) -> Result<Supervisor, SupervisorError> {
    let signals = block_signals().map_err(failed("block signals"))?;
    // Fails only for a process group leader, such as a supervisor that was started by hand in the foreground.
    rustix::process::setsid().ok();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(failed("become the subreaper of its tasks"))?;
    // Before any child is started.
    let orphans_are_ours = orphans_are_ours(tree::children(false).unwrap_or_default().len());
    let files = raise_file_limit();
    let config = with_resolved_paths(with_absolute_dir(config)?).map_err(failed("use its volumes"))?;
    let layout = Layout::new(&config.dir);
    let user = user::select_task_user(config.task_user.as_deref(), config.allow_root_tasks)?;
    make_folders(&layout, user.is_some()).map_err(failed("create its folders"))?;
    if let Some(user) = &user {
        user.check_access(&layout.executions())?;
    }
    lock(&layout)?;

    let (journal, state) = Journal::open(&layout.journal(), new_worker)?;
    let boot_id = boot_id().map_err(failed("read the machine's boot id"))?;
    let folder_id = folder_id(&layout.dir).map_err(failed("read the identity of its folder"))?;
    let mut cgroups = match config.control_groups {
        true => Cgroups::detect(&format!("belfry-{}-{folder_id}", state.worker)),
        false => Cgroups::default(),
    };
    kill_leftover_processes(&state, &boot_id, &folder_id, &cgroups);
    if !cgroups.has_plain_groups() {
        tracing::warn!(
            "no control groups: a process that leaves its session and clears its environment can outlive its job"
        );
    }
    cgroups.remove_left_behind();

    let poller = Poller::new().map_err(failed("create its poller"))?;
    let listener = listen(&layout).map_err(failed("listen for its agent"))?;
    let writer = Writer::start(journal).map_err(failed("start its journal"))?;
    let guards = Guards::new().map_err(failed("create the table of its fuse"))?;
    let fuse = guards.file().and_then(|table| FuseLink::start(&config.program, table, &cgroups.bases()));
    let fuse = fuse.map_err(failed("start its fuse"))?;
    let program = std::path::absolute(&config.program).map_err(failed("resolve the path of its program"))?;
    let launcher =
        Launcher::start(user.clone(), files, &program).map_err(failed("start its launcher threads"))?;
    let meter = Meter::start().map_err(failed("start its measuring thread"))?;
    let watched = [
        poller.watch(&signals, token::SIGNALS),
        poller.watch(&listener, token::LISTENER),
        poller.watch(writer.wake(), token::JOURNAL),
        poller.watch(fuse.socket(), token::FUSE),
        poller.watch(launcher.wake(), token::LAUNCHER),
        poller.watch(meter.wake(), token::USAGE),
    ];
    watched.into_iter().collect::<io::Result<()>>().map_err(failed("watch its files"))?;

    let folder_remover = FolderRemover::start().map_err(failed("start its cleanup thread"))?;
    let secret_folder = SecretFolder::new(&format!("{}-{folder_id}", state.worker), &layout);
    let calls = Calls::new(&layout).map_err(failed("prepare the sockets of its tasks"))?;
    let owner = user.as_ref().map(|user| (user.uid, user.gid));
    let worker = state.worker;
    let limits = supervisor::Limits { orphan_limit: config.orphan_limit.as_millis() };
    let mut supervisor = Supervisor {
        core: supervisor::Supervisor::new(limits, convert::state(state), now()),
        worker,
        start_location: StartLocation { boot_id, folder_id },
        user,
        cgroups,
        folders: Folders::new(layout.clone(), owner, folder_remover),
        launcher,
        ports: Ports::new(config.port_range, entropy().unwrap_or_default()),
        secret_folder,
        poller,
        core_alarm: None,
        signals,
        listener,
        agent: None,
        fuse: Some(fuse),
        dying_fuses: HashSet::new(),
        guards,
        writer,
        is_compacting: false,
        compact_at: JOURNAL_COMPACT,
        launching: HashMap::new(),
        held_back: HashMap::new(),
        tasks: HashMap::new(),
        pids: HashMap::new(),
        early_exits: EarlyExits::default(),
        owns_orphans: orphans_are_ours,
        orphans: HashMap::new(),
        pipes: HashMap::new(),
        next_token: token::FIRST_PIPE,
        calls,
        is_checkpoint_check_set: false,
        meter,
        is_measurement_set: false,
        has_sent_usage: false,
        logs: HashMap::new(),
        unsent: VecDeque::new(),
        unsent_set: HashSet::new(),
        log_window_used: 0,
        read_buffer: vec![0; 64 << 10],
        ending: false,
        deadline_passed: false,
        idle_since: None,
        layout,
        config,
    };
    supervisor.take_over();
    tracing::info!(worker_id = %supervisor.worker, dir = %supervisor.config.dir.display(), "supervisor started");
    Ok(supervisor)
}

/// Blocks signals in this thread and all that it starts, and delivers them through a file.
fn block_signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    [NixSignal::SIGCHLD, NixSignal::SIGTERM, NixSignal::SIGINT, NixSignal::SIGHUP]
        .into_iter()
        .for_each(|s| set.add(s));
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Raises the limit of open files to the maximum, because each task needs several. Returns the previous limit, which
/// tasks get again.
fn raise_file_limit() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    // On failure, fewer tasks can run at a time.
    setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before }).ok();
    before
}

fn with_absolute_dir(mut config: SupervisorConfig) -> Result<SupervisorConfig, SupervisorError> {
    fs::create_dir_all(&config.dir).map_err(failed("create its folder"))?;
    config.dir = config.dir.canonicalize().map_err(failed("resolve the path of its folder"))?;
    Ok(config)
}

/// Resolves the links in the paths of volumes and of files that sandboxes hide, once: later, a task could replace a directory
/// in a volume by a link. A volume that does not exist yet keeps its path.
fn with_resolved_paths(mut config: SupervisorConfig) -> io::Result<SupervisorConfig> {
    for path in config.volumes.values_mut().chain(&mut config.hidden_paths) {
        *path = path.canonicalize().unwrap_or_else(|_| path.clone());
    }
    let overlaps = |path: &PathBuf| path.starts_with(&config.dir) || config.dir.starts_with(path);
    match config.volumes.iter().find(|(_, path)| overlaps(path)) {
        None => Ok(config),
        Some((name, path)) => Err(io::Error::other(format!(
            "the volume `{name}` (`{}`) and the worker's directory `{}` contain one another, so tasks could change its files: use another directory for one of them",
            path.display(),
            config.dir.display()
        ))),
    }
}

/// Creates the folders with access only for the own user; the task user may pass through to its own folders.
fn make_folders(layout: &Layout, other_user: bool) -> io::Result<()> {
    let passable = if other_user { 0o711 } else { 0o700 };
    let folders = [
        (layout.dir.clone(), passable),
        (layout.executions(), passable),
        (layout.logs(), 0o700),
        (layout.cache(), 0o700),
        (layout.stage(), 0o700),
    ];
    for (dir, mode) in folders {
        fs::create_dir_all(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Locks the folder until the process exits.
fn lock(layout: &Layout) -> Result<(), SupervisorError> {
    let file = File::options().create(true).truncate(false).write(true).open(layout.lock());
    let mut file = file.map_err(failed("open its lock"))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| SupervisorError::Locked(layout.dir.clone()))?;
    // Tells users the process id of the supervisor; on a full disk the file stays empty.
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).ok();
    // The open file holds the lock, and is closed when the process exits.
    std::mem::forget(file);
    Ok(())
}

fn new_worker() -> WorkerId {
    let now = Timestamp::from_millis(unix_millis());
    // Without entropy the id depends only on the time in milliseconds, which suffices for a few workers.
    WorkerId::from_bits(IdSource::default().next(now, ShardId(0), entropy().unwrap_or_default()))
}

fn listen(layout: &Layout) -> io::Result<UnixListener> {
    let path = layout.socket();
    // The lock is held, so no other supervisor listens there.
    fs::remove_file(&path).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns whether every orphan comes from a task. The first process of a container also gets orphans of other
/// processes in it. A supervisor that replaced a shell by `exec` has `children` of that shell, and also gets their
/// orphans.
fn orphans_are_ours(children: usize) -> bool {
    std::process::id() != 1 && children == 0
}

/// Returns the device and inode of a folder, which distinguish it from its copies while the machine runs.
pub(super) fn folder_id(dir: &Path) -> io::Result<String> {
    let found = fs::metadata(dir)?;
    Ok(format!("{:x}-{:x}", found.dev(), found.ino()))
}

/// Kills remaining processes of executions that an earlier supervisor started from this folder since the last boot.
fn kill_leftover_processes(state: &State, boot: &str, folder: &str, cgroups: &Cgroups) {
    let is_ours = |held: &Held| match held {
        Held::Started { boot_id, folder_id, .. } => {
            boot_id == boot && (folder_id == folder || folder_id.is_empty())
        }
        Held::OutputsPending { .. } | Held::Ended { .. } => false,
    };
    let started = state.held.iter().filter(|(_, held)| is_ours(held));
    let roots: Vec<_> = started.map(|(id, _)| Root { is_foreign: true, ..Root::of(*id) }).collect();
    let deadline = Instant::now() + LEFTOVERS_MAX;
    loop {
        let mut alive = cgroups.kill_left_behind();
        if !roots.is_empty() {
            tree::kill(&roots);
            alive += tree::members(&roots).iter().map(Vec::len).sum::<usize>();
        }
        if alive == 0 {
            return;
        }
        if Instant::now() > deadline {
            tracing::error!(
                processes = alive,
                "processes of an earlier supervisor do not exit; starting anyway"
            );
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

impl Supervisor {
    /// Takes over the folders and logs of an earlier supervisor.
    fn take_over(&mut self) {
        // Folders of executions whose outputs are not stored yet are needed, the others are not.
        self.folders.remove_others(|id| self.core.is_active(id));
        match logs::recover(&self.layout.logs()) {
            Ok(found) => found.into_iter().for_each(|(id, log)| self.adopt_log(id, log)),
            Err(error) => tracing::warn!(%error, "cannot list spooled logs; they are not sent"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_contains_the_folder_of_the_worker_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let with = |volume: &Path| {
            let mut config = SupervisorConfig::new(base.join("worker"));
            config.volumes.insert("data".into(), volume.into());
            with_resolved_paths(config)
        };
        fs::create_dir(base.join("data")).unwrap();
        std::os::unix::fs::symlink(base.join("data"), base.join("link")).unwrap();
        let resolved = with(&base.join("link")).unwrap();
        assert_eq!(resolved.volumes["data"], base.join("data"));
        for refused in [base.clone(), base.join("worker"), base.join("worker/exec"), "/".into()] {
            let error = with(&refused).unwrap_err().to_string();
            assert!(error.starts_with("the volume `data`"), "{error}");
        }
    }
}
