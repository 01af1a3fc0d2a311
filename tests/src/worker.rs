//! A `belfry worker`: an agent, and what it leaves running beside it.

use std::fs::File;
use std::path::{Path, PathBuf};

use tokio::process::{Child, Command};

use crate::network::Branch;
use crate::proxy::Proxy;
use crate::{Pid, Server, belfry, process};

/// What a process of a worker is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Talks to the server.
    Agent,
    /// Is the parent of the tasks.
    Supervisor,
    /// Watches the lease from outside.
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

/// Whether a process says by its arguments that it is of this role.
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
    road: Road,
}

/// How a worker reaches its server. What breaks it is taken off by the test that put it there.
#[derive(Debug, Default)]
pub struct Road {
    /// Through these, one for each server; to the first server itself if there is none.
    pub proxies: Vec<Proxy>,
    /// From within this.
    pub branch: Option<Branch>,
    /// Servers that it knows besides.
    pub others: Vec<String>,
    /// The URL that it uses instead of the server's own.
    pub gateway: Option<String>,
}

impl Worker {
    /// Starts one in `dir`; `settings` are further environment variables.
    pub fn start(server: &Server, name: &str, dir: &Path, log: &Path, settings: &[(&str, &str)]) -> Self {
        Self::start_over(server, name, dir, log, settings, Road::default())
    }

    /// The same for one that reaches its server in a way of its own.
    pub fn start_over(
        server: &Server,
        name: &str,
        dir: &Path,
        log: &Path,
        settings: &[(&str, &str)],
        road: Road,
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

    /// Starts the agent once more; it must not be running.
    pub fn start_agent(&mut self) {
        assert!(self.agent.is_none(), "the agent runs already");
        let log = File::options().create(true).append(true).open(&self.log).expect("the log can be written");
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
            .env("HOME", self.dir.parent().expect("the worker lies in the site's folder"))
            .envs(self.settings.iter().map(|(k, v)| (k, v)))
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone().expect("a descriptor is free"))
            .stderr(log)
            .spawn()
            .expect("the agent can be started");
        self.agent = Some(agent);
    }

    /// How it reaches its server.
    pub fn road(&self) -> &Road {
        &self.road
    }

    /// Starts the agent once more if it is gone.
    pub fn ensure_agent(&mut self) {
        if !self.has_agent() {
            self.agent = None;
            self.start_agent();
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the agent's process is there.
    pub fn has_agent(&mut self) -> bool {
        self.agent.as_mut().is_some_and(|a| matches!(a.try_wait(), Ok(None)))
    }

    /// The process of this role, if it lives.
    pub fn find(&self, role: Role) -> Option<Pid> {
        if role == Role::Agent {
            return self.agent.as_ref().and_then(Child::id).map(|id| Pid(id.cast_signed()));
        }
        let of_this_worker = process::with_argument(&self.dir).into_iter();
        let supervisor = of_this_worker.filter(|p| is(*p, Role::Supervisor)).min();
        match role {
            // Its arguments do not say whose it is; its parent does.
            Role::Fuse => process::descendants(supervisor?).into_iter().find(|p| is(*p, Role::Fuse)),
            _ => supervisor,
        }
    }

    /// The processes of tasks: what descends from the supervisor and is no process of Belfry's own.
    pub fn tasks(&self) -> Vec<Pid> {
        let Some(supervisor) = self.find(Role::Supervisor) else { return Vec::new() };
        process::descendants(supervisor)
            .into_iter()
            .filter(|p| !is(*p, Role::Fuse) && !is(*p, Role::Supervisor))
            .collect()
    }

    /// SIGKILL to the agent alone, and waits until it is gone.
    pub async fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().await.expect("a child can be killed");
        }
    }

    /// SIGTERM to the agent, and waits for its end in good order.
    ///
    /// # Panics
    /// If it does not end with code 0 within 30 seconds.
    pub async fn stop_agent(&mut self) {
        let mut agent = self.agent.take().expect("the agent runs");
        Pid(agent.id().expect("it was not waited for").cast_signed()).terminate();
        let ended = tokio::time::timeout(std::time::Duration::from_secs(30), agent.wait()).await;
        let status =
            ended.expect("the agent ends within 30 s of SIGTERM").expect("a child can be waited for");
        assert!(status.success(), "the agent ended with {status}");
    }

    /// Kills every process of this worker, tasks included.
    fn end(&mut self) {
        if let Some(agent) = &mut self.agent {
            // An agent that is gone already is as good.
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
