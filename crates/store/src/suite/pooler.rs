//! PgBouncer before a cluster, lending its sessions by the transaction.
//!
//! It has fewer sessions with the server than its clients have with it, so that each transaction comes
//! to another one. From 1.21 on it keeps prepared statements for its clients; before that the address
//! says `prepared_statements=false`.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::cluster::{Account, Cluster, USER, free_port, new_folder};

/// How long it may take to come up.
const START_MAX: Duration = Duration::from_secs(20);
/// How many sessions of the server it lends.
const LENT: usize = 3;
/// Ends the program in `$1` with our end of the pipe, whatever ends us.
const GUARD: &str = r#""$1" "$2" & read -r _; kill "$!"; wait"#;

/// A running PgBouncer; it ends with its value.
#[derive(Debug)]
pub struct Pooler {
    port: u16,
    knows_statements: bool,
    folder: PathBuf,
    guard: Child,
}

impl Pooler {
    /// Starts one in front of a cluster.
    ///
    /// # Errors
    /// Why there is none, where it is not installed.
    ///
    /// # Panics
    /// If it does not start; the message has its log.
    pub fn start(cluster: &Cluster) -> Result<Self, String> {
        let program = program().ok_or("PgBouncer is not installed (the package `pgbouncer`)")?;
        let version = version(&program);
        let knows_statements = version >= (1, 21);
        let (folder, port, account) = (new_folder(), free_port(), Account::for_server());
        let (log, settings) = (folder.join("log"), folder.join("pgbouncer.ini"));
        let prepared = if knows_statements { "max_prepared_statements = 200" } else { "" };
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {users}\npool_mode = transaction\n\
             default_pool_size = {LENT}\nmax_client_conn = 200\n{prepared}\n",
            server = cluster.port(),
            users = folder.join("users").display(),
        );
        let made = fs::create_dir_all(&folder)
            .and_then(|()| fs::write(&settings, text))
            .and_then(|()| fs::write(folder.join("users"), format!("\"{USER}\" \"\"\n")))
            .and_then(|()| File::create(&log))
            .and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = made.unwrap_or_else(|error| panic!("`{}`: {error}", folder.display()));
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "guard"]).arg(&program).arg(&settings);
        command.stdin(Stdio::piped()).stdout(out).stderr(err).current_dir("/");
        account.apply(&mut command);
        let guard = command.spawn().expect("there is a shell");
        let pooler = Self { port, knows_statements, folder, guard };
        let deadline = Instant::now() + START_MAX;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let told = fs::read_to_string(&log).unwrap_or_default();
            assert!(Instant::now() < deadline, "PgBouncer does not listen; it wrote:\n{told}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(pooler)
    }

    /// The address of a database through it.
    pub fn url(&self, database: &str) -> String {
        let how = if self.knows_statements { "" } else { "?prepared_statements=false" };
        format!("postgres://{USER}@127.0.0.1:{}/{database}{how}", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // It is waited for only so that nothing is left of it.
        let _ = self.guard.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
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
