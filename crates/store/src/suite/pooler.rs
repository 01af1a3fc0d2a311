//! PgBouncer in front of a cluster, in transaction mode.
//!
//! It has fewer sessions with the server than clients, so that each transaction uses another session. From 1.21 on it
//! supports prepared statements; before that the URL contains `prepared_statements=false`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cluster::{Account, Cluster, USER, free_port, new_folder};

/// Maximum start time.
const START_MAX: Duration = Duration::from_secs(20);
/// Name of the settings file.
const SETTINGS: &str = "pgbouncer.ini";
/// Number of sessions with the server.
const LENT: usize = 3;
/// Ends the program in `$1` when our end of the pipe closes, however this process ends.
const GUARD: &str = r#""$1" "$2" & read -r _; kill "$!"; wait"#;

/// Running PgBouncer; it ends when this value is dropped.
#[derive(Debug)]
pub struct Pooler {
    port: u16,
    knows_statements: bool,
    program: PathBuf,
    folder: PathBuf,
    guard: Mutex<Child>,
}

impl Pooler {
    /// Starts a pooler in front of a cluster.
    ///
    /// # Errors
    /// The reason why it is not available, if it is not installed.
    ///
    /// # Panics
    /// If it does not start; the message contains its log.
    pub fn start(cluster: &Cluster) -> Result<Self, String> {
        let program = program().ok_or("PgBouncer is not installed (the package `pgbouncer`)")?;
        let version = version(&program);
        let knows_statements = version >= (1, 21);
        let (folder, port) = (new_folder(), free_port());
        let prepared = if knows_statements { "max_prepared_statements = 200" } else { "" };
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {users}\npidfile = {pid}\npool_mode = transaction\n\
             default_pool_size = {LENT}\nmax_client_conn = 200\n{prepared}\n",
            server = cluster.port(),
            users = folder.join("users").display(),
            pid = folder.join("pid").display(),
        );
        let made = fs::create_dir_all(&folder)
            .and_then(|()| Account::for_server().own(&folder))
            .and_then(|()| fs::write(folder.join(SETTINGS), text))
            .and_then(|()| fs::write(folder.join("users"), format!("\"{USER}\" \"\"\n")));
        made.unwrap_or_else(|error| panic!("`{}`: {error}", folder.display()));
        let guard = Mutex::new(spawn(&program, &folder));
        let pooler = Self { port, knows_statements, program, folder, guard };
        pooler.until_it_listens();
        Ok(pooler)
    }

    /// Kills the pooler (SIGKILL), and waits until it has ended; [`start_again`](Self::start_again) starts it again.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&self) {
        let text = fs::read_to_string(self.folder.join("pid")).unwrap_or_default();
        let pid = text.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.unwrap_or_else(|| panic!("PgBouncer says no number of its process, but `{text}`"));
        // A process that has already ended is no error.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        self.end_guard();
        // Another process may get the same PID soon.
        let _ = fs::remove_file(self.folder.join("pid"));
    }

    /// Starts the pooler at the same address, after it was killed.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn start_again(&self) {
        *self.guard() = spawn(&self.program, &self.folder);
        self.until_it_listens();
    }

    fn until_it_listens(&self) {
        let deadline = Instant::now() + START_MAX;
        let is_there = || {
            self.folder.join("pid").exists() && std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        };
        while !is_there() {
            let told = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "PgBouncer does not listen; it wrote:\n{told}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn guard(&self) -> MutexGuard<'_, Child> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_guard(&self) {
        let mut guard = self.guard();
        drop(guard.stdin.take());
        // Reaps the process, so that no zombie is left.
        let _ = guard.wait();
    }

    /// Returns the URL of a database through the pooler.
    pub fn url(&self, database: &str) -> String {
        let how = if self.knows_statements { "" } else { "?prepared_statements=false" };
        format!("postgres://{USER}@127.0.0.1:{}/{database}{how}", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.end_guard();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Starts the program, with a guard that ends it when this process ends.
fn spawn(program: &Path, folder: &Path) -> Child {
    let log = File::options().create(true).append(true).open(folder.join("log"));
    let logs = log.and_then(|log| Ok((log.try_clone()?, log)));
    let (out, err) = logs.unwrap_or_else(|error| panic!("`{}`: {error}", folder.display()));
    let mut command = Command::new("sh");
    command.args(["-c", GUARD, "guard"]).arg(program).arg(folder.join(SETTINGS));
    command.stdin(Stdio::piped()).stdout(out).stderr(err).current_dir("/");
    Account::for_server().apply(&mut command);
    command.spawn().expect("there is a shell")
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into()])
        .map(|folder| folder.join("pgbouncer"))
        .find(|file| file.exists())
}

fn version(program: &PathBuf) -> (u32, u32) {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let number = text.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
