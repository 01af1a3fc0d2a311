//! Configuration of an agent and of a supervisor.
//!
//! The agent starts the supervisor, and the supervisor starts the fuse, by running `program` with these arguments:
//!
//! ```text
//! PROGRAM supervisor --dir DIR [--program PROGRAM] [--task-user NAME] [--allow-root-tasks]
//!                    [--no-control-groups] [--port-range FIRST-LAST] [--volume NAME DIR]…
//!                    [--container-engine ADDRESS] [--orphan-limit-ms N] [--idle-exit-ms N]
//! PROGRAM fuse                       (its control socket is its standard input)
//! ```
//!
//! [`SupervisorConfig::to_args`] writes the arguments after the subcommand, and [`SupervisorConfig::from_args`]
//! parses them. So the command line parser does not need to know them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use model::worker::Capacity;
use model::{Bytes, Duration, Millicores};

/// Configuration of an agent.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// Worker folder. One folder is one worker with all its tasks; an emptied folder becomes a new worker.
    pub dir: PathBuf,
    /// Server addresses, as `http://host:port` or `https://host:port`. One server is used at a time. If it cannot be
    /// reached, the others are tried in turn, without end.
    pub servers: Vec<String>,
    /// Token that authenticates the worker to the servers.
    pub token: String,
    /// Certificate authority (PEM) for `https` servers [default: the authorities of the system].
    pub tls_ca_pem: Option<Vec<u8>>,
    /// Display name of the worker [default: the host name].
    pub name: String,
    /// Labels that worker constraints are matched against.
    pub labels: BTreeMap<String, String>,
    /// Resources and slots that the worker offers [default: all cores and memory, 16 slots per core].
    pub capacity: Capacity,
    /// Program to start as the supervisor [default: the current executable].
    pub program: PathBuf,
    /// See [`SupervisorConfig::task_user`].
    pub task_user: Option<String>,
    /// See [`SupervisorConfig::allow_root_tasks`].
    pub allow_root_tasks: bool,
    /// See [`SupervisorConfig::orphan_limit`].
    pub orphan_limit: Duration,
    /// See [`SupervisorConfig::idle_exit`].
    pub idle_exit: Duration,
    /// See [`SupervisorConfig::control_groups`].
    pub control_groups: bool,
    /// See [`SupervisorConfig::port_range`].
    pub port_range: PortRange,
    /// See [`SupervisorConfig::volumes`].
    pub volumes: BTreeMap<String, PathBuf>,
    /// See [`SupervisorConfig::container_engine`].
    pub container_engine: Option<String>,
    /// See [`SupervisorConfig::sandbox_paths`].
    pub sandbox_paths: Vec<PathBuf>,
    /// See [`SupervisorConfig::hidden_paths`].
    pub hidden_paths: Vec<PathBuf>,
    /// Host name or IP address under which tasks of the worker can be reached [default: the local IP address of the
    /// connection to the server].
    pub address: Option<String>,
    /// Maximum size of the cache of downloaded artifacts, in bytes [default: 4 GiB]. Copies in folders of executions
    /// do not count.
    pub cache_bytes_max: u64,
    /// Maximum time to wait for another agent of the folder to exit, for example during an upgrade [default: 5s].
    pub lock_timeout: Duration,
    /// Time without a response of the supervisor after which the session is closed [default: 10s].
    pub supervisor_timeout: Duration,
}

impl AgentConfig {
    /// Creates the configuration of an agent with one server and all defaults.
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
            port_range: supervisor.port_range,
            volumes: supervisor.volumes,
            container_engine: supervisor.container_engine,
            sandbox_paths: supervisor.sandbox_paths,
            hidden_paths: supervisor.hidden_paths,
            address: None,
            cache_bytes_max: 4 << 30,
            lock_timeout: Duration::from_secs(5),
            supervisor_timeout: Duration::from_secs(10),
        }
    }

    /// Returns the configuration of the supervisor that this agent starts.
    pub fn supervisor(&self) -> SupervisorConfig {
        SupervisorConfig {
            dir: self.dir.clone(),
            program: self.program.clone(),
            task_user: self.task_user.clone(),
            allow_root_tasks: self.allow_root_tasks,
            orphan_limit: self.orphan_limit,
            idle_exit: self.idle_exit,
            control_groups: self.control_groups,
            port_range: self.port_range,
            volumes: self.volumes.clone(),
            container_engine: self.container_engine.clone(),
            sandbox_paths: self.sandbox_paths.clone(),
            hidden_paths: self.hidden_paths.clone(),
        }
    }
}

/// Configuration of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupervisorConfig {
    /// Worker folder.
    pub dir: PathBuf,
    /// Program to start as the fuse [default: the current executable].
    pub program: PathBuf,
    /// User that tasks run as, if the supervisor runs as root [default: `nobody`].
    pub task_user: Option<String>,
    /// Whether tasks of a supervisor that runs as root may run as root, if `task_user` is not set or is root.
    pub allow_root_tasks: bool,
    /// Maximum time that executions stay frozen without a lease before they are killed [default: 1h].
    pub orphan_limit: Duration,
    /// Time without an agent, tasks and unsent data after which the supervisor exits [default: 1m].
    pub idle_exit: Duration,
    /// Whether executions run in control groups, if the worker may create them [default: true].
    pub control_groups: bool,
    /// Ports for executions whose job names a port without a number [default: `20000-31999`].
    pub port_range: PortRange,
    /// Volumes: directories that tasks can use, as absolute paths by name [default: none].
    pub volumes: BTreeMap<String, PathBuf>,
    /// Socket of the container engine, as `unix:///PATH`, or `none` [default: the first one that is found].
    pub container_engine: Option<String>,
    /// Further files and directories that sandboxes of the level `strict` show, read-only, as absolute paths [default: none].
    pub sandbox_paths: Vec<PathBuf>,
    /// Further files and directories of Belfry that no sandbox shows: tokens, and the data of a server [default: none].
    pub hidden_paths: Vec<PathBuf>,
}

/// A range of ports, written as `FIRST-LAST`. It contains at least one port, and not the port 0.
///
/// ```
/// # use worker::PortRange;
/// let range: PortRange = "20000-31999".parse().unwrap();
/// assert_eq!(range, PortRange::default());
/// assert!("31999-20000".parse::<PortRange>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// Why a text is not a range of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid port range `{0}`: expected `FIRST-LAST` with ports from 1 to 65535, for example `20000-31999`"
)]
pub struct PortRangeError(String);

impl PortRange {
    /// Creates the range from `first` to `last`; `None` if it is empty or contains the port 0.
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first >= 1 && first <= last { Some(Self { first, last }) } else { None }
    }

    /// First port of the range.
    pub fn first(self) -> u16 {
        self.first
    }

    /// Last port of the range.
    pub fn last(self) -> u16 {
        self.last
    }
}

impl Default for PortRange {
    fn default() -> Self {
        Self { first: 20_000, last: 31_999 }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let range = text
            .split_once('-')
            .and_then(|(first, last)| Self::new(first.trim().parse().ok()?, last.trim().parse().ok()?));
        range.ok_or_else(|| PortRangeError(text.to_owned()))
    }
}

/// Why the arguments of a supervisor are invalid.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum ArgumentError {
    #[error("unknown argument `{0}`")]
    Unknown(String),
    #[error("argument `{0}` needs a value")]
    NoValue(&'static str),
    #[error("argument `{name}`: expected a number of milliseconds but got `{value}`")]
    NotMillis { name: &'static str, value: String },
    #[error("argument `--port-range`")]
    PortRange(#[from] PortRangeError),
    #[error("argument `--dir` is missing")]
    NoDir,
}

impl SupervisorConfig {
    /// Creates the configuration of a supervisor with all defaults.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            program: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("belfry")),
            task_user: None,
            allow_root_tasks: false,
            orphan_limit: Duration::from_hours(1),
            idle_exit: Duration::from_secs(60),
            control_groups: true,
            port_range: PortRange::default(),
            volumes: BTreeMap::new(),
            container_engine: None,
            sandbox_paths: Vec::new(),
            hidden_paths: Vec::new(),
        }
    }

    /// Returns the arguments after `PROGRAM supervisor`; [`Self::from_args`] parses them.
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
        args.extend(["--port-range".into(), self.port_range.to_string().into()]);
        for (name, path) in &self.volumes {
            args.extend(["--volume".into(), name.into(), path.into()]);
        }
        if let Some(engine) = &self.container_engine {
            args.extend(["--container-engine".into(), engine.into()]);
        }
        for (name, paths) in [("--sandbox-path", &self.sandbox_paths), ("--hidden-path", &self.hidden_paths)]
        {
            args.extend(paths.iter().flat_map(|path| [name.into(), path.into()]));
        }
        for (name, value) in [("--orphan-limit-ms", self.orphan_limit), ("--idle-exit-ms", self.idle_exit)] {
            args.extend([name.into(), value.as_millis().to_string().into()]);
        }
        args
    }

    /// Parses the arguments that [`Self::to_args`] has written.
    ///
    /// # Errors
    /// [`ArgumentError`] for an unknown, missing or invalid argument.
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
                Some("--port-range") => {
                    config.port_range = value("--port-range")?.to_string_lossy().parse()?;
                }
                Some("--volume") => {
                    let name = value("--volume")?.to_string_lossy().into_owned();
                    config.volumes.insert(name, value("--volume")?.into());
                }
                Some("--container-engine") => {
                    config.container_engine =
                        Some(value("--container-engine")?.to_string_lossy().into_owned());
                }
                Some("--hidden-path") => config.hidden_paths.push(value("--hidden-path")?.into()),
                Some("--sandbox-path") => config.sandbox_paths.push(value("--sandbox-path")?.into()),
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

/// Returns all cores and the whole memory of the machine, with 16 slots per core.
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

/// Returns a value of `/proc/meminfo` in bytes; 0 if it is missing.
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
        config.port_range = PortRange::new(7, 9).unwrap();
        config.volumes.insert("data".into(), "/srv/a=b".into());
        config.hidden_paths = vec!["/etc/belfry/token".into()];
        config.sandbox_paths = vec!["/srv/models".into(), "/srv/tools".into()];
        config.orphan_limit = Duration::from_secs(7);
        assert_eq!(SupervisorConfig::from_args(config.to_args()).unwrap(), config);
    }

    #[test]
    fn invalid_arguments_are_named() {
        let error = |args: &[&str]| {
            SupervisorConfig::from_args(args.iter().map(OsString::from)).unwrap_err().to_string()
        };
        assert_eq!(error(&[]), "argument `--dir` is missing");
        assert_eq!(error(&["--what"]), "unknown argument `--what`");
        assert_eq!(error(&["--dir"]), "argument `--dir` needs a value");
        assert!(error(&["--dir", "d", "--idle-exit-ms", "soon"]).contains("`soon`"));
    }

    #[test]
    fn a_port_range_is_not_empty() {
        for bad in ["", "1", "0-9", "9-8", "1-65536", "a-b", "1-2-3"] {
            let error = bad.parse::<PortRange>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("invalid port range `{bad}`")), "{error}");
        }
        assert_eq!("8080-8080".parse(), Ok(PortRange::new(8080, 8080).unwrap()));
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:       24684744 kB\nMemAvailable:   100 kB\n";
        assert_eq!(meminfo(text, "MemAvailable"), 102_400);
        assert_eq!(meminfo(text, "Swap"), 0);
    }
}
