//! A `belfry worker` process: an agent with its supervisor, fuse and tasks.
//!
//! The test starts only the agent. The other processes are found by their arguments ([`Role`]) below it, so
//! that a test can kill or pause each of them by its pid. [`Connection`] says how the worker reaches its
//! servers: directly, through proxies, from a separate network, or by another URL.
//!
//! A dropped worker kills all its processes, including tasks; if one role is dead already, the others are
//! found all the same.

use std::fs::File;
use std::path::{Path, PathBuf};

use tokio::process::{Child, Command};

use crate::network::Branch;
use crate::proxy::Proxy;
use crate::{Pid, Server, belfry, process};

/// Role of a process of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The agent, which is connected to the server.
    Agent,
    /// The supervisor, which is the parent of the tasks.
    Supervisor,
    /// The fuse, which watches the lease.
    Fuse,
}

impl Role {
    fn command(self) -> &'static str {
        match self {
            Self::Agent => "worker",
            Self::Supervisor => "supervisor",
            Self::Fuse => "fuse",
        }
    }
}

/// Whether the arguments of a process identify this role.
fn is(pid: Pid, role: Role) -> bool {
    let arguments = pid.arguments();
    arguments.first().is_some_and(|program| Path::new(program).ends_with("belfry"))
        && arguments.get(1).is_some_and(|command| command == role.command())
}

/// A worker and its folder.
#[derive(Debug)]
pub struct Worker {
    dir: PathBuf,
    log: PathBuf,
    name: String,
    url: String,
    token_file: PathBuf,
    settings: Vec<(String, String)>,
    agent: Option<Child>,
    road: Connection,
}

/// How a worker reaches its server. The test that added a part must also clean it up.
#[derive(Debug, Default)]
pub struct Connection {
    /// Proxies, one for each server; if empty, the worker connects to the first server directly.
    pub proxies: Vec<Proxy>,
    /// Network namespace of the worker, if any.
    pub branch: Option<Branch>,
    /// URLs of additional servers.
    pub others: Vec<String>,
    /// URL that replaces the server's own one.
    pub gateway: Option<String>,
}

impl Worker {
    /// Starts a worker in `dir`; `settings` are additional environment variables.
    pub fn start(server: &Server, name: &str, dir: &Path, log: &Path, settings: &[(&str, &str)]) -> Self {
        Self::start_over(server, name, dir, log, settings, Connection::default())
    }

    /// Starts a worker that reaches its server by this [`Connection`].
    pub fn start_over(
        server: &Server,
        name: &str,
        dir: &Path,
        log: &Path,
        settings: &[(&str, &str)],
        road: Connection,
    ) -> Self {
        let mut worker = Self {
            dir: dir.into(),
            log: log.into(),
            name: name.into(),
            url: match road.proxies.as_slice() {
                [] if road.gateway.is_some() => road.gateway.clone().unwrap_or_default(),
                [] => [server.url()].iter().chain(&road.others).cloned().collect::<Vec<_>>().join(","),
                proxies => proxies.iter().map(Proxy::url).collect::<Vec<_>>().join(","),
            },
            road,
            token_file: server.data().join("worker-token"),
            settings: settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            agent: None,
        };
        worker.start_agent();
        worker
    }

    /// Restarts the agent; it must not be running.
    pub fn start_agent(&mut self) {
        assert!(self.agent.is_none(), "the agent is already running");
        let log = File::options().create(true).append(true).open(&self.log).expect("cannot open the log");
        let mut command = match &self.road.branch {
            Some(branch) => branch.command(belfry()),
            None => Command::new(belfry()),
        };
        let agent = command
            .args(["worker", "--server", &self.url, "--name", &self.name])
            .arg("--token-file")
            .arg(&self.token_file)
            .arg("--dir")
            .arg(&self.dir)
            .env("HOME", self.dir.parent().expect("the worker's folder is in the site's folder"))
            .envs(self.settings.iter().map(|(k, v)| (k, v)))
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone().expect("cannot duplicate the log's file descriptor"))
            .stderr(log)
            .spawn()
            .expect("cannot start the agent");
        self.agent = Some(agent);
    }

    /// Returns how the worker reaches its server.
    pub fn road(&self) -> &Connection {
        &self.road
    }

    /// Restarts the agent if it is not running.
    pub fn ensure_agent(&mut self) {
        if !self.has_agent() {
            self.agent = None;
            self.start_agent();
        }
    }

    /// Returns the name of the worker.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the agent process is running.
    pub fn has_agent(&mut self) -> bool {
        self.agent.as_mut().is_some_and(|a| matches!(a.try_wait(), Ok(None)))
    }

    /// Returns the process of this role; `None` if it is not running.
    pub fn find(&self, role: Role) -> Option<Pid> {
        if role == Role::Agent {
            return self.agent.as_ref().and_then(Child::id).map(|id| Pid(id.cast_signed()));
        }
        let of_this_worker = process::with_argument(&self.dir).into_iter();
        let supervisor = of_this_worker.filter(|p| is(*p, Role::Supervisor)).min();
        match role {
            // The arguments of a fuse do not name its worker; its parent does.
            Role::Fuse => process::descendants(supervisor?).into_iter().find(|p| is(*p, Role::Fuse)),
            _ => supervisor,
        }
    }

    /// Returns the task processes: descendants of the supervisor that are not Belfry's own processes.
    pub fn tasks(&self) -> Vec<Pid> {
        let Some(supervisor) = self.find(Role::Supervisor) else { return Vec::new() };
        process::descendants(supervisor)
            .into_iter()
            .filter(|p| !is(*p, Role::Fuse) && !is(*p, Role::Supervisor))
            .collect()
    }

    /// Sends SIGKILL to the agent only, and waits until it has ended.
    pub async fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().await.expect("cannot kill the agent");
        }
    }

    /// Sends SIGTERM to the agent, and waits until it has ended.
    ///
    /// # Panics
    /// If it does not exit with code 0 within 30 seconds.
    pub async fn stop_agent(&mut self) {
        let mut agent = self.agent.take().expect("the agent is running");
        Pid(agent.id().expect("the agent was not waited for").cast_signed()).terminate();
        let ended = tokio::time::timeout(std::time::Duration::from_secs(30), agent.wait()).await;
        let status = ended.expect("timed out 30 s after SIGTERM").expect("cannot wait for the agent");
        assert!(status.success(), "the agent exited with {status}");
    }

    /// Kills all processes of this worker, including tasks.
    fn end(&mut self) {
        if let Some(agent) = &mut self.agent {
            // The agent may have ended already.
            let _ = agent.start_kill();
        }
        let begun = std::time::Instant::now();
        loop {
            let tasks = self.tasks();
            let own = process::with_argument(&self.dir);
            if tasks.is_empty() && own.is_empty() || begun.elapsed().as_secs() > 10 {
                return;
            }
            tasks.into_iter().chain(own).for_each(Pid::kill);
            std::thread::yield_now();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}
