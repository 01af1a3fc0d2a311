//! A temporary PostgreSQL server, for tests and for experiments.
//!
//! ```text
//!  $TMPDIR/belfry-postgres-…/   a folder for each cluster
//!      data/                    data directory from `initdb`
//!      log                      log of the server
//!      lease                    locked (shared) by every user of the cluster
//!      port                     written when the server accepts connections
//! ```
//!
//! [`Cluster::shared`] is one server for all test processes of a user, with a separate [`Database`] for each test; it
//! trades durability for speed. [`Cluster::start`] starts a separate server.
//!
//! # Invariants
//! - The server listens only on the loopback interface, and never runs as root.
//! - Nothing outlives its users, however they end. A *reaper* (a small shell script) waits for the lock on `lease`,
//!   which the system releases when the last process that holds it ends. It then stops the server and removes the
//!   folder. A shared cluster is kept for a few more seconds, because tests run one after the other.
//!
//! # Cost
//! Two to three seconds for a cluster, 50 ms for a database.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use tokio_postgres::NoTls;

/// Maximum start time of a server.
const START_MAX: Duration = Duration::from_secs(60);
/// Superuser that `initdb` creates.
pub(super) const USER: &str = "belfry";

/// Timeout of the statements that test helpers run; only a statement that waits in vain reaches it.
const LIMIT: &str = "options=-c%20statement_timeout%3D30s";

/// Waits for the last user of the cluster in `$1`, and `$2` more seconds, then removes the cluster.
const REAPER: &str = r#"
exec 9<"$1/lease" || exit 0
while :; do
    flock -x 9
    [ "$2" = 0 ] && break
    flock -u 9
    sleep "$2"
    flock -xn 9 && break
done
if read -r pid <"$1/data/postmaster.pid"; then
    kill -QUIT "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
fi
rm -rf "$1"
"#;

/// Settings of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Whether commits are synced to disk. `false` is faster.
    pub durable: bool,
    /// Further settings of the server, such as `("max_connections", "50")`.
    pub server: Vec<(String, String)>,
    /// Empty folder for the WAL (`pg_wal`); `None` for the data directory.
    pub log_folder: Option<PathBuf>,
}

/// Running server. It ends with the last process that uses it.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    port: u16,
    _lease: File,
}

impl Cluster {
    /// Returns the cluster that all tests share; the first test starts it.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start; the message contains the next step.
    pub fn shared() -> &'static Arc<Self> {
        static SHARED: OnceLock<Arc<Cluster>> = OnceLock::new();
        SHARED.get_or_init(|| {
            let user = rustix::process::geteuid().as_raw();
            let folder = std::env::temp_dir().join(format!("belfry-postgres-shared-{user}"));
            let turn = lock(&folder.with_extension("lock"), FlockOperation::LockExclusive)
                .unwrap_or_else(|error| panic!("`{}`: {error}", folder.display()));
            let cluster = Self::join(&folder).unwrap_or_else(|| {
                let server = vec![("max_connections".into(), "300".into())];
                // Remove leftovers of an unclean end.
                let _ = fs::remove_dir_all(&folder);
                Self::start_in(folder, &Settings { server, ..Settings::default() }, 5)
            });
            drop(turn);
            Arc::new(cluster)
        })
    }

    /// Starts a separate cluster.
    ///
    /// # Panics
    /// As [`shared`](Self::shared).
    pub fn start(settings: &Settings) -> Self {
        Self::start_in(new_folder(), settings, 0)
    }

    /// Starts a separate cluster in this folder, which is created, on any disk.
    ///
    /// # Panics
    /// As [`shared`](Self::shared).
    pub fn start_at(folder: &Path, settings: &Settings) -> Self {
        Self::start_in(folder.to_owned(), settings, 0)
    }

    /// Starts a standby that follows `primary`, on its own port.
    ///
    /// # Panics
    /// As [`shared`](Self::shared).
    pub(crate) fn standby_of(primary: &Self, settings: &Settings) -> Self {
        let standby = Self::empty_in(new_folder(), 0);
        standby.follow(primary, settings);
        standby
    }

    /// Makes this cluster a standby of `primary`, with a copy of its data; the old data is removed. The cluster must
    /// not run.
    pub(crate) fn follow(&self, primary: &Self, settings: &Settings) {
        let (data, user) = (self.data(), Account::for_server());
        let made = fs::remove_dir_all(&data).and_then(|()| {
            fs::create_dir(&data)?;
            fs::set_permissions(&data, fs::Permissions::from_mode(0o700))?;
            user.own(&data)
        });
        made.unwrap_or_else(|error| panic!("`{}`: {error}", data.display()));
        let mut copy = Command::new(programs().join("pg_basebackup"));
        copy.arg("-D").arg(&data).args(["-h", "127.0.0.1", "-U", USER, "-p", &primary.port.to_string()]);
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream", "--no-sync"]);
        user.run(&mut copy);
        self.start_server(settings);
    }

    /// Returns the same data on another port; only one of the two may run.
    pub(crate) fn on_another_port(&self) -> Self {
        let lease = self._lease.try_clone().expect("a descriptor is free");
        Self { folder: self.folder.clone(), port: free_port(), _lease: lease }
    }

    /// Kills all processes of the server (SIGKILL), and waits until they have ended. [`start_server`](Self::start_server) starts the
    /// server again.
    pub fn kill(&self) {
        let Some(server) = self.pid() else { return };
        let processes: Vec<_> = children(server).into_iter().chain([server]).collect();
        // First the process that would notice the death of the others.
        for &process in processes.iter().rev() {
            let pid = rustix::process::Pid::from_raw(process).expect("a process has a number");
            // A process that has already ended is no error.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let is_there = |pid: &i32| {
            let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            state.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        let deadline = Instant::now() + START_MAX;
        while processes.iter().any(is_there) {
            assert!(Instant::now() < deadline, "a killed server is there after {START_MAX:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Another process may get the same PID soon.
        let _ = fs::remove_file(self.data().join("postmaster.pid"));
    }

    /// Returns the cluster in the folder, if there is a working one.
    fn join(folder: &Path) -> Option<Self> {
        let path = folder.join("lease");
        // Waits for a running reaper; afterwards the file is missing, or is another file.
        let lease = path.exists().then(|| lock(&path, FlockOperation::LockShared).ok())??;
        let same = fs::metadata(&path).ok()?.ino() == lease.metadata().ok()?.ino();
        let port = fs::read_to_string(folder.join("port")).ok()?.parse().ok()?;
        let answers = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        (same && answers).then(|| Self { folder: folder.to_owned(), port, _lease: lease })
    }

    fn start_in(folder: PathBuf, settings: &Settings, grace_secs: u32) -> Self {
        let cluster = Self::empty_in(folder, grace_secs);
        let mut init = Command::new(programs().join("initdb"));
        init.arg("-D").arg(cluster.data()).args([
            "--username",
            USER,
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ]);
        let user = Account::for_server();
        if let Some(folder) = &settings.log_folder {
            user.own(folder).unwrap_or_else(|error| panic!("`{}`: {error}", folder.display()));
            init.arg("--waldir").arg(folder);
        }
        user.run(&mut init);
        cluster.start_server(settings);
        fs::write(cluster.folder.join("port"), cluster.port.to_string())
            .unwrap_or_else(|error| panic!("`{}`: {error}", cluster.folder.display()));
        cluster
    }

    /// Creates a folder with a reaper, and without data.
    fn empty_in(folder: PathBuf, grace_secs: u32) -> Self {
        let user = Account::for_server();
        let made = fs::create_dir_all(folder.join("data")).and_then(|()| {
            user.own(&folder)?;
            user.own(&folder.join("data"))
        });
        made.unwrap_or_else(|error| panic!("`{}`: {error}", folder.display()));
        let lease = lock(&folder.join("lease"), FlockOperation::LockShared)
            .unwrap_or_else(|error| panic!("`{}`: {error}", folder.display()));
        reap(&folder, grace_secs);
        Self { port: free_port(), folder, _lease: lease }
    }

    /// Starts the server on the cluster's data, and waits until it accepts connections.
    ///
    /// # Panics
    /// If it does not start; the message contains the end of its log.
    pub fn start_server(&self, settings: &Settings) {
        let switch = if settings.durable { "on" } else { "off" };
        let log = self.folder.join("log");
        let open = || File::options().create(true).append(true).open(&log);
        let (out, err) = open()
            .and_then(|out| Ok((out, open()?)))
            .unwrap_or_else(|error| panic!("`{}`: {error}", log.display()));
        let mut command = Command::new(programs().join("postgres"));
        command.arg("-D").arg(self.data()).args(["-h", "127.0.0.1", "-k", ""]);
        command.arg("-p").arg(self.port.to_string());
        for name in ["fsync", "synchronous_commit", "full_page_writes"] {
            command.arg("-c").arg(format!("{name}={switch}"));
        }
        for (name, value) in &settings.server {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0).current_dir("/");
        Account::for_server().apply(&mut command);
        let server = command.spawn().unwrap_or_else(|error| panic!("`postgres` does not start: {error}"));
        // A thread reaps the exit status, whenever the server ends.
        std::thread::spawn(move || server.wait_with_output());
        let deadline = Instant::now() + START_MAX;
        while self.try_execute("postgres", "SELECT 1").is_err() {
            if Instant::now() >= deadline {
                let log = fs::read_to_string(&log).unwrap_or_default();
                panic!("`postgres` takes no connections after {START_MAX:?}; it wrote:\n{log}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the server accepts connections, and starts it if it has ended.
    ///
    /// # Panics
    /// As [`start_server`](Self::start_server).
    pub fn start_if_stopped(&self, settings: &Settings) {
        let deadline = Instant::now() + START_MAX;
        while self.try_execute("postgres", "SELECT 1").is_err() {
            let runs = self.pid().is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists());
            if !runs || Instant::now() >= deadline {
                return self.start_server(settings);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops the server cleanly, and waits until it has ended. [`start_server`](Self::start_server) starts it again.
    ///
    /// # Panics
    /// If it does not end.
    pub fn shut_down(&self) {
        let data = self.data();
        let stop = ["stop", "-m", "fast", "-w", "-t", "60", "-D"];
        Account::for_server().run(Command::new(programs().join("pg_ctl")).args(stop).arg(data));
    }

    /// Returns the data directory.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Returns the port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the PID of the server's main process, if it runs.
    pub fn pid(&self) -> Option<i32> {
        let text = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        text.lines().next()?.parse().ok()
    }

    /// Returns the URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// Creates an empty database.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn database(self: &Arc<Self>) -> Database {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("belfry_{}_{n}", std::process::id());
        self.execute("postgres", &format!("CREATE DATABASE {name}"));
        Database { cluster: Arc::clone(self), name }
    }

    /// Creates an empty database with its tables and indexes in this folder.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn database_in(self: &Arc<Self>, folder: &Path) -> Database {
        let made = fs::create_dir_all(folder).and_then(|()| Account::for_server().own(folder));
        made.unwrap_or_else(|error| panic!("`{}`: {error}", folder.display()));
        let name = "belfry_apart".to_owned();
        self.execute("postgres", &format!("CREATE TABLESPACE {name} LOCATION '{}'", folder.display()));
        self.execute("postgres", &format!("CREATE DATABASE {name} TABLESPACE {name}"));
        Database { cluster: Arc::clone(self), name }
    }

    /// Runs statements as the superuser.
    ///
    /// # Panics
    /// If the server refuses them.
    pub fn execute(&self, database: &str, sql: &str) {
        self.try_execute(database, sql).unwrap_or_else(|error| panic!("`{sql}`: {error}"));
    }

    /// Runs statements as the superuser; returns the first column of the last result.
    ///
    /// # Errors
    /// The message of the server, or of the connection.
    pub fn try_execute(&self, database: &str, sql: &str) -> Result<Vec<Option<String>>, String> {
        let (url, sql) = (format!("{}?{LIMIT}", self.url(database)), sql.to_owned());
        // On a separate thread: the caller may be inside or outside of a runtime.
        let work = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| error.to_string())?.block_on(async {
                let told = |error: tokio_postgres::Error| match error.as_db_error() {
                    Some(error) => error.to_string(),
                    None => error.to_string(),
                };
                let (client, connection) = tokio_postgres::connect(&url, NoTls).await.map_err(told)?;
                let connection = tokio::spawn(connection);
                let messages = client.simple_query(&sql).await.map_err(told)?;
                drop(client);
                let _ = connection.await;
                let rows = messages.iter().filter_map(|message| match message {
                    tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).map(str::to_owned)),
                    _ => None,
                });
                Ok(rows.collect())
            })
        });
        work.join().unwrap_or_else(|_| Err("the thread that asked panicked".into()))
    }
}

/// Separate database in a cluster. The database is deleted when this value is dropped.
#[derive(Debug)]
pub struct Database {
    cluster: Arc<Cluster>,
    name: String,
}

impl Database {
    /// Returns the URL of the database.
    pub fn url(&self) -> String {
        self.cluster.url(&self.name)
    }

    /// Returns the name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the cluster of the database.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Returns the database as SQL statements, which first remove the existing objects.
    ///
    /// # Panics
    /// If `pg_dump` fails.
    #[cfg(test)]
    pub(crate) fn dump(&self) -> String {
        let mut command = Command::new(programs().join("pg_dump"));
        let dumped =
            command.args(["--clean", "--if-exists", "--inserts", "--dbname"]).arg(self.url()).output();
        let dumped = dumped.expect("`pg_dump` is beside the server");
        assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
        let dump = String::from_utf8(dumped.stdout).expect("statements are text");
        // Without the commands for `psql`.
        dump.lines().filter(|line| !line.starts_with('\\')).map(|line| format!("{line}\n")).collect()
    }

    /// Runs statements in the database as the superuser; returns the first column of the last result.
    ///
    /// # Panics
    /// If the server refuses them.
    pub fn execute(&self, sql: &str) -> Vec<Option<String>> {
        self.cluster.try_execute(&self.name, sql).unwrap_or_else(|error| panic!("`{sql}`: {error}"))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // If this fails, the cluster has ended or will end soon.
        let _ = self
            .cluster
            .try_execute("postgres", &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

/// Opens a file and waits for its lock.
fn lock(path: &Path, operation: FlockOperation) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
    flock(&file, operation)?;
    Ok(file)
}

fn reap(folder: &Path, grace_secs: u32) {
    let mut command = Command::new("sh");
    command.args(["-c", REAPER, "reaper"]).arg(folder).arg(grace_secs.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut reaper = command.current_dir("/").spawn().expect("there is a shell");
    std::thread::spawn(move || reaper.wait());
}

pub(super) fn new_folder() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("belfry-postgres-{}-{n}", std::process::id()))
}

/// Returns the child processes of a process.
fn children(parent: i32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = state.rsplit_once(") ").map(|(_, rest)| rest.split(' ').nth(1).map(str::to_owned));
        rest.flatten().is_some_and(|found| found == parent.to_string())
    };
    numbers.filter(is_child).collect()
}

pub(super) fn free_port() -> u16 {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback interface has free ports");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// Returns the folder with `initdb` and `postgres`.
fn programs() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut packaged: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    packaged.sort();
    packaged
        .into_iter()
        .rev()
        .chain(std::env::split_paths(&path))
        .find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
        .expect("this needs a PostgreSQL server: install the package `postgresql`, or put `initdb` and `postgres` on PATH")
}

/// Account of the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Account(Option<(u32, u32)>);

impl Account {
    /// Returns the current account, unless it is root: PostgreSQL refuses to run as root.
    pub(super) fn for_server() -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self(None);
        }
        let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let ids = |name: &str| {
            let line = accounts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            let mut fields = line.split(':').skip(1);
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        };
        let found = ids("postgres").or_else(|| ids("nobody"));
        Self(Some(
            found.expect("PostgreSQL does not run as root: there must be an account `postgres` or `nobody`"),
        ))
    }

    pub(super) fn own(self, path: &Path) -> io::Result<()> {
        match self.0 {
            Some((user, group)) => chown(path, Some(user), Some(group)),
            None => Ok(()),
        }
    }

    pub(super) fn apply(self, command: &mut Command) {
        if let Some((user, group)) = self.0 {
            command.uid(user).gid(group);
        }
    }

    fn run(self, command: &mut Command) {
        self.apply(command);
        let output = command.current_dir("/").output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {told}");
    }
}
