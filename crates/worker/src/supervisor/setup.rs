//! How a supervisor starts, and what it does about what an earlier one left behind.
//!
//! Executions that the journal says were started and never ended are dead or dying: the fuse killed
//! them, or the machine went down. If it is still the same boot their processes are looked for all the
//! same, and nothing new starts before they are gone. Then they are reported as interrupted.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

use model::id::IdSource;
use model::{ShardId, Timestamp, WorkerId};
use nix::sys::signal::{SigSet, Signal as NixSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::door::Calls;
use super::execution::{Execution, Phase, interrupted, report_of};
use super::folders::Folders;
use super::fuse_link::FuseLink;
use super::janitor::Janitor;
use super::journal::{Body, Held, Journal, State};
use super::launcher::Launcher;
use super::logs::{self, Bounds};
use super::poller::{Poller, token};
use super::writer::Writer;
use super::{Batch, Effect, JOURNAL_COMPACT, Supervisor, SupervisorError, failed};
use crate::clock::{boot_id, entropy, unix_millis};
use crate::config::SupervisorConfig;
use crate::fuse::guards::Guards;
use crate::layout::Layout;
use crate::process::cgroup::Cgroups;
use crate::process::tree::{self, Root};
use crate::process::user;

/// How long survivors of an earlier supervisor may take to die.
const SURVIVORS_MAX: Duration = Duration::from_secs(10);

/// Makes a supervisor that is ready to run.
pub(super) fn start(config: SupervisorConfig) -> Result<Supervisor, SupervisorError> {
    let signals = block_signals().map_err(failed("take over signals"))?;
    // Fails only for a group leader: one that was started by hand, in the foreground.
    rustix::process::setsid().ok();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(failed("adopt orphans"))?;
    let files = raise_file_limit();
    let config = with_absolute_dir(config)?;
    let layout = Layout::new(&config.dir);
    let user = user::choose(config.task_user.as_deref(), config.allow_root_tasks)?;
    make_folders(&layout, user.is_some()).map_err(failed("make its folders"))?;
    if let Some(user) = &user {
        user.check_reach(&layout.executions())?;
    }
    lock(&layout)?;

    let (journal, state) = Journal::open(&layout.journal(), new_worker)?;
    let boot_id = boot_id().map_err(failed("read the machine's boot id"))?;
    let mut cgroups = Cgroups::detect(&format!("belfry-{}", state.worker));
    end_survivors(&state, &boot_id, &cgroups);
    cgroups.remove_left_behind();

    let poller = Poller::new().map_err(failed("create its poller"))?;
    let listener = listen(&layout).map_err(failed("listen for its agent"))?;
    let writer = Writer::start(journal).map_err(failed("start its journal"))?;
    let guards = Guards::new().map_err(failed("make the table of its fuse"))?;
    let fuse = guards.file().and_then(|table| FuseLink::start(&config.program, table));
    let fuse = fuse.map_err(failed("start its fuse"))?;
    let launcher = Launcher::start(user.clone(), files).map_err(failed("start its launchers"))?;
    let watched = [
        poller.watch(&signals, token::SIGNALS),
        poller.watch(&listener, token::LISTENER),
        poller.watch(writer.wake(), token::JOURNAL),
        poller.watch(fuse.socket(), token::FUSE),
        poller.watch(launcher.wake(), token::LAUNCHER),
    ];
    watched.into_iter().collect::<io::Result<()>>().map_err(failed("watch its files"))?;

    let janitor = Janitor::start().map_err(failed("start its janitor"))?;
    let calls = Calls::new(&layout).map_err(failed("prepare for the calls of its tasks"))?;
    let owner = user.as_ref().map(|user| (user.uid, user.gid));
    let mut supervisor = Supervisor {
        worker: state.worker,
        boot_id,
        user,
        cgroups,
        folders: Folders::new(layout.clone(), owner, janitor),
        launcher,
        poller,
        signals,
        listener,
        agent: None,
        fuse: Some(fuse),
        guards,
        writer,
        batch: Batch::default(),
        effects: Vec::new(),
        compact_at: JOURNAL_COMPACT,
        executions: HashMap::new(),
        forgotten: VecDeque::new(),
        forgotten_set: HashSet::new(),
        waiting: VecDeque::new(),
        ready: VecDeque::new(),
        pids: HashMap::new(),
        early_exits: HashMap::new(),
        strays: HashMap::new(),
        pipes: HashMap::new(),
        next_token: token::FIRST_PIPE,
        calls,
        follows_checkpoints: false,
        dirty: VecDeque::new(),
        to_store: VecDeque::new(),
        stray_reports: Vec::new(),
        logs: HashMap::new(),
        bounds: Bounds::default(),
        unsent: VecDeque::new(),
        unsent_set: HashSet::new(),
        log_window_used: 0,
        read_buffer: vec![0; 64 << 10],
        lease_until: 0,
        ending: false,
        deadline_passed: false,
        idle_since: None,
        layout,
        config,
    };
    supervisor.take_over(state);
    tracing::info!(worker_id = %supervisor.worker, dir = %supervisor.config.dir.display(), "supervisor started");
    Ok(supervisor)
}

/// Has signals come through a file, in this thread and all that it starts.
fn block_signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    [NixSignal::SIGCHLD, NixSignal::SIGTERM, NixSignal::SIGINT, NixSignal::SIGHUP]
        .into_iter()
        .for_each(|s| set.add(s));
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Lets us have as many files open as the system allows: each task takes some. Returns the limit that was
/// meant for programs, which tasks get again.
fn raise_file_limit() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    // At worst fewer tasks run at a time.
    setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before }).ok();
    before
}

fn with_absolute_dir(mut config: SupervisorConfig) -> Result<SupervisorConfig, SupervisorError> {
    fs::create_dir_all(&config.dir).map_err(failed("make its folder"))?;
    config.dir = config.dir.canonicalize().map_err(failed("find its folder"))?;
    Ok(config)
}

/// The folders are nobody else's, except that the task user must pass through to its own.
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

/// Takes the folder for us until the process ends, however it does.
fn lock(layout: &Layout) -> Result<(), SupervisorError> {
    let file = File::options().create(true).truncate(false).write(true).open(layout.lock());
    let mut file = file.map_err(failed("open its lock"))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| SupervisorError::Locked(layout.dir.clone()))?;
    // For people who look for the process.
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(failed("write its lock"))?;
    // Held by the open file, which is closed with the process.
    std::mem::forget(file);
    Ok(())
}

fn new_worker() -> WorkerId {
    let now = Timestamp::from_millis(unix_millis());
    // Without entropy the time alone has to do: it is to the millisecond, and workers are few.
    WorkerId::from_bits(IdSource::default().next(now, ShardId(0), entropy().unwrap_or_default()))
}

fn listen(layout: &Layout) -> io::Result<UnixListener> {
    let path = layout.socket();
    // We hold the lock, so nobody listens there any more.
    fs::remove_file(&path).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Kills what still runs of executions that an earlier supervisor of this boot started.
fn end_survivors(state: &State, boot: &str, cgroups: &Cgroups) {
    let started = state
        .held
        .iter()
        .filter(|(_, held)| matches!(held, Held::Started { boot_id, .. } if boot_id == boot));
    let roots: Vec<_> = started
        .map(|(id, _)| Root { execution: *id, pid: None, procs: cgroups.left_behind(&id.to_string()) })
        .collect();
    if roots.is_empty() {
        return;
    }
    let deadline = Instant::now() + SURVIVORS_MAX;
    loop {
        tree::kill(&roots);
        let alive: usize = tree::members(&roots).iter().map(Vec::len).sum();
        if alive == 0 {
            return;
        }
        if Instant::now() > deadline {
            tracing::error!(processes = alive, "processes of an earlier supervisor do not die");
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

impl Supervisor {
    /// Goes on with what the journal says.
    fn take_over(&mut self, state: State) {
        self.forgotten_set = state.forgotten.iter().copied().collect();
        self.forgotten = state.forgotten;
        for (id, held) in state.held {
            let (fence, phase) = match held {
                Held::Started { fence, .. } => {
                    let report =
                        report_of(id, fence, interrupted("the worker's supervisor or machine went down"));
                    self.record(Body::Outcome(report.clone()), Effect::Ended(id));
                    (fence, Phase::Ended { report: Box::new(report), durable: false })
                }
                Held::Ran { assignment, finished } => {
                    self.to_store.push_back(id);
                    let fence = model::Fence(assignment.fence);
                    (fence, Phase::Storing { assignment: Box::new(assignment), finished: Box::new(finished) })
                }
                Held::Ended { report } => {
                    let fence = model::Fence(report.fence);
                    (fence, Phase::Ended { report: Box::new(report), durable: true })
                }
            };
            self.executions.insert(id, Execution::new(fence, phase));
        }
        // Needed while an execution's outputs are stored, and not after.
        self.folders.remove_others(|id| self.executions.get(&id).is_some_and(Execution::is_active));
        match logs::recover(&self.layout.logs()) {
            Ok(found) => found.into_iter().for_each(|(id, log)| self.adopt_log(id, log)),
            Err(error) => tracing::warn!(%error, "cannot look for spooled logs"),
        }
    }
}
