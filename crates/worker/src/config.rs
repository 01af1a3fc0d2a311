//! What an agent and a supervisor are told when they start.
//!
//! The agent starts the supervisor, and the supervisor the fuse, by `program` with these arguments:
//!
//! ```text
//! PROGRAM supervisor --dir DIR [--program PROGRAM] [--task-user NAME] [--allow-root-tasks]
//!                    [--no-control-groups] [--orphan-limit-ms N] [--idle-exit-ms N]
//! PROGRAM fuse                       (its control socket is its standard input)
//! ```
//!
//! [`SupervisorConfig::to_args`] writes what follows the subcommand, [`SupervisorConfig::from_args`]
//! reads it, so the command line knows none of it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use model::worker::Capacity;
use model::{Bytes, Duration, Millicores};

/// What an agent is told.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The worker's folder. All tasks of one folder belong to one worker; a wiped one is a new worker.
    pub dir: PathBuf,
    /// Servers, as `http://host:port` or `https://host:port`. One is used at a time; when it cannot
    /// be reached the next is tried, in turns and for ever.
    pub servers: Vec<String>,
    /// What it shows a server to be let in.
    pub token: String,
    /// Certificate authority (PEM) that `https` servers must be signed by. `None`: the authorities of the system.
    pub tls_ca_pem: Option<Vec<u8>>,
    /// What people call this worker.
    pub name: String,
    /// What constraints are matched against.
    pub labels: BTreeMap<String, String>,
    /// What it has to give.
    pub capacity: Capacity,
    /// The program to start as supervisor; this very one by default.
    pub program: PathBuf,
    /// As in [`SupervisorConfig::task_user`].
    pub task_user: Option<String>,
    /// As in [`SupervisorConfig::allow_root_tasks`].
    pub allow_root_tasks: bool,
    /// As in [`SupervisorConfig::orphan_limit`].
    pub orphan_limit: Duration,
    /// As in [`SupervisorConfig::idle_exit`].
    pub idle_exit: Duration,
    /// As in [`SupervisorConfig::control_groups`].
    pub control_groups: bool,
    /// The most bytes that fetched artifacts may take on disk, beyond those in use.
    pub cache_bytes_max: u64,
    /// How long it waits for another agent of the folder to end, as one does that is being replaced.
    pub lock_patience: Duration,
    /// After how long without an answer of the supervisor the session is given up.
    pub supervisor_patience: Duration,
}

impl AgentConfig {
    /// An agent of `dir` that works for one server, with every default.
    pub fn new(dir: impl Into<PathBuf>, server: impl Into<String>, token: impl Into<String>) -> Self {
        let supervisor = SupervisorConfig::new(dir);
        Self {
            dir: supervisor.dir,
            servers: vec![server.into()],
            token: token.into(),
            tls_ca_pem: None,
            name: host_name(),
            labels: BTreeMap::new(),
            capacity: machine_capacity(),
            program: supervisor.program,
            task_user: None,
            allow_root_tasks: false,
            orphan_limit: supervisor.orphan_limit,
            idle_exit: supervisor.idle_exit,
            control_groups: supervisor.control_groups,
            cache_bytes_max: 4 << 30,
            lock_patience: Duration::from_secs(5),
            supervisor_patience: Duration::from_secs(10),
        }
    }

    /// What its supervisor is told.
    pub fn supervisor(&self) -> SupervisorConfig {
        SupervisorConfig {
            dir: self.dir.clone(),
            program: self.program.clone(),
            task_user: self.task_user.clone(),
            allow_root_tasks: self.allow_root_tasks,
            orphan_limit: self.orphan_limit,
            idle_exit: self.idle_exit,
            control_groups: self.control_groups,
        }
    }
}

/// What a supervisor is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupervisorConfig {
    /// The worker's folder.
    pub dir: PathBuf,
    /// The program to start as fuse; this very one by default.
    pub program: PathBuf,
    /// The user that tasks run as, where the supervisor is root; `nobody` by default.
    pub task_user: Option<String>,
    /// Whether tasks of a root supervisor run as root, for want of a `task_user`.
    pub allow_root_tasks: bool,
    /// How long executions may stay frozen for want of a lease before they are killed.
    pub orphan_limit: Duration,
    /// After how long without an agent and without anything to keep the supervisor ends itself.
    pub idle_exit: Duration,
    /// Whether executions are put into control groups, where these can be made.
    pub control_groups: bool,
}

/// Why a supervisor's arguments were not understood.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum ArgumentError {
    #[error("unknown argument `{0}`")]
    Unknown(String),
    #[error("argument `{0}` needs a value")]
    NoValue(&'static str),
    #[error("argument `{name}`: expected a number of milliseconds, found `{value}`")]
    NotMillis { name: &'static str, value: String },
    #[error("argument `--dir` is missing")]
    NoDir,
}

impl SupervisorConfig {
    /// A supervisor of `dir` with every default.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            program: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("belfry")),
            task_user: None,
            allow_root_tasks: false,
            orphan_limit: Duration::from_hours(1),
            idle_exit: Duration::from_secs(60),
            control_groups: true,
        }
    }

    /// The arguments behind `PROGRAM supervisor` that mean the same to [`Self::from_args`].
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> =
            vec!["--dir".into(), (&self.dir).into(), "--program".into(), (&self.program).into()];
        if let Some(user) = &self.task_user {
            args.extend(["--task-user".into(), user.into()]);
        }
        if self.allow_root_tasks {
            args.push("--allow-root-tasks".into());
        }
        if !self.control_groups {
            args.push("--no-control-groups".into());
        }
        for (name, value) in [("--orphan-limit-ms", self.orphan_limit), ("--idle-exit-ms", self.idle_exit)] {
            args.extend([name.into(), value.as_millis().to_string().into()]);
        }
        args
    }

    /// Reads what [`Self::to_args`] wrote.
    ///
    /// # Errors
    /// [`ArgumentError`] for anything else.
    pub fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Self, ArgumentError> {
        let mut args = args.into_iter();
        let mut config = Self::new("");
        while let Some(arg) = args.next() {
            let mut value = |name| args.next().ok_or(ArgumentError::NoValue(name));
            match arg.to_str() {
                Some("--dir") => config.dir = value("--dir")?.into(),
                Some("--program") => config.program = value("--program")?.into(),
                Some("--task-user") => {
                    config.task_user = Some(value("--task-user")?.to_string_lossy().into_owned());
                }
                Some("--allow-root-tasks") => config.allow_root_tasks = true,
                Some("--no-control-groups") => config.control_groups = false,
                Some("--orphan-limit-ms") => {
                    config.orphan_limit = millis("--orphan-limit-ms", &value("--orphan-limit-ms")?)?;
                }
                Some("--idle-exit-ms") => {
                    config.idle_exit = millis("--idle-exit-ms", &value("--idle-exit-ms")?)?
                }
                _ => return Err(ArgumentError::Unknown(arg.to_string_lossy().into_owned())),
            }
        }
        if config.dir == Path::new("") { Err(ArgumentError::NoDir) } else { Ok(config) }
    }
}

fn millis(name: &'static str, value: &OsStr) -> Result<Duration, ArgumentError> {
    let value = value.to_string_lossy();
    value
        .parse()
        .map(Duration::from_millis)
        .map_err(|_| ArgumentError::NotMillis { name, value: value.into_owned() })
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// All cores and all memory of the machine, and 16 executions a core at a time.
fn machine_capacity() -> Capacity {
    let cores =
        std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
    let memory = std::fs::read_to_string("/proc/meminfo").map_or(0, |text| meminfo(&text, "MemTotal"));
    Capacity {
        cpu: Millicores(cores.saturating_mul(1_000)),
        memory: Bytes(memory),
        custom: BTreeMap::new(),
        slots: cores.saturating_mul(16),
    }
}

/// One line of `/proc/meminfo` in bytes; 0 where it is not there.
pub(crate) fn meminfo(text: &str, key: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_reads_the_arguments_that_an_agent_writes() {
        let mut config = SupervisorConfig::new("/var/lib/x");
        config.task_user = Some("www".into());
        config.allow_root_tasks = true;
        config.control_groups = false;
        config.orphan_limit = Duration::from_secs(7);
        assert_eq!(SupervisorConfig::from_args(config.to_args()).unwrap(), config);
    }

    #[test]
    fn arguments_that_are_wrong_are_named() {
        let error = |args: &[&str]| {
            SupervisorConfig::from_args(args.iter().map(OsString::from)).unwrap_err().to_string()
        };
        assert_eq!(error(&[]), "argument `--dir` is missing");
        assert_eq!(error(&["--what"]), "unknown argument `--what`");
        assert_eq!(error(&["--dir"]), "argument `--dir` needs a value");
        assert!(error(&["--dir", "d", "--idle-exit-ms", "soon"]).contains("`soon`"));
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:       24684744 kB\nMemAvailable:   100 kB\n";
        assert_eq!(meminfo(text, "MemAvailable"), 102_400);
        assert_eq!(meminfo(text, "Swap"), 0);
    }
}
