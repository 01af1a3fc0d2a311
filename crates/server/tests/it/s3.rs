//! Objects in an S3 bucket.
//!
//! `moto` (from PyPI) emulates S3; it is installed once, into a virtual environment below the target folder.
//! Without Python the tests print a notice and pass.
//!
//! Credentials come from environment variables, which a process with several threads cannot set. So each test
//! starts itself again in a process that has them ([`has_credentials`]).
//!
//! The tests cover artifacts, logs that move to the bucket once they are complete, and a bucket that cannot
//! be reached for a while. The same rules for local folders are tested in `artifacts` and `logs`.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use server::ServerConfig;
use server::config::{ObjectsConfig, S3Config};
use server::objects::{LogLimit, LogSize, LogWrite};

use crate::artifacts::{get, put};
use crate::harness::{Server, soon};
use crate::logs::frames;

const MOTO: &str = "moto[server]==5.2.5";
const BUCKET: &str = "belfry-test";

/// An S3 emulator, stopped on drop.
struct Moto {
    process: Child,
    url: String,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

impl Moto {
    /// Starts the emulator with an empty bucket; prints a notice and returns `None` if it is not available.
    async fn start() -> Option<Self> {
        let program = match install() {
            Ok(program) => program,
            Err(reason) => {
                eprintln!("SKIPPED: cannot start moto, the S3 emulator: {reason}");
                return None;
            }
        };
        let mut process = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap());
        let (url_tx, url) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let mut url_tx = Some(url_tx);
            // Read to the end, because a full pipe would block the process.
            for line in lines.lines().map_while(Result::ok) {
                if let Some((_, url)) = line.split_once("Running on ")
                    && let Some(url_tx) = url_tx.take()
                {
                    url_tx.send(url.trim().to_owned()).unwrap();
                }
            }
        });
        let url = soon("moto to listen", url).await.unwrap();
        let moto = Self { process, url };
        moto.http().put(format!("{}/{BUCKET}", moto.url)).send().await.unwrap().error_for_status().unwrap();
        Some(moto)
    }

    fn http(&self) -> reqwest::Client {
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::new()
    }

    /// Returns whether the bucket has a key with this suffix.
    async fn has(&self, suffix: &str) -> bool {
        let list =
            self.http().get(format!("{}/{BUCKET}", self.url)).send().await.unwrap().text().await.unwrap();
        list.contains(&format!("{suffix}</Key>"))
    }

    fn configure(&self, config: &mut ServerConfig) {
        config.objects = ObjectsConfig::S3(S3Config {
            url: format!("s3://{BUCKET}/some/prefix"),
            endpoint: Some(self.url.clone()),
            region: Some("eu-central-1".into()),
        });
    }
}

/// Returns the path of `moto_server`, and installs it if it is missing. One process installs it, the others wait.
fn install() -> Result<PathBuf, String> {
    let folder = std::env::current_exe().map_err(|e| e.to_string())?;
    let target = folder.ancestors().find(|dir| dir.ends_with("target")).ok_or("no target folder found")?;
    let folder = target.join("moto");
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let lock = std::fs::File::create(folder.join("lock")).map_err(|e| e.to_string())?;
    lock.lock().map_err(|e| e.to_string())?;
    let (venv, done) = (folder.join("venv"), folder.join("installed"));
    let program = venv.join("bin/moto_server");
    if std::fs::read_to_string(&done).is_ok_and(|version| version == MOTO) && program.exists() {
        return Ok(program);
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    run(Command::new(venv.join("bin/pip")).args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        // Python compiles what the server imports, which is little of it.
        "--no-compile",
        MOTO,
    ]))?;
    std::fs::write(done, MOTO).map_err(|e| e.to_string())?;
    Ok(program)
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Returns whether this process has the credentials as environment variables. Otherwise the test runs again in a
/// process that has them, because a process with several threads cannot set them.
fn has_credentials(test: &str) -> bool {
    if std::env::var_os("AWS_ACCESS_KEY_ID").is_some() {
        return true;
    }
    let again = Command::new(std::env::current_exe().unwrap())
        .args([&format!("s3::{test}"), "--exact", "--nocapture"])
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .status()
        .unwrap();
    assert!(again.success(), "{test} failed: see above");
    false
}

async fn start() -> Option<(Moto, Server)> {
    let moto = Moto::start().await?;
    let server = Server::start_with(|config| moto.configure(config)).await;
    Some((moto, server))
}

/// A11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artifacts_live_in_a_bucket() {
    if !has_credentials("artifacts_live_in_a_bucket") {
        return;
    }
    let Some((moto, server)) = start().await else { return };
    let artifacts = &server.running.services.objects.artifacts;
    let large: Vec<u8> = (0..20_000_000u32).map(|i| (i % 251) as u8).collect();
    let (small, large) = (b"small".to_vec(), large);
    let stored = put(artifacts, "small", &small).await.unwrap();
    assert_eq!(get(artifacts, &stored).await, small);
    assert!(moto.has(&format!("some/prefix/artifacts/default/{}", stored.sha256)).await);
    // Uploaded in several parts.
    let stored = put(artifacts, "large", &large).await.unwrap();
    assert!(get(artifacts, &stored).await == large);
}

/// A3. A complete log is moved to the bucket and read from there, in parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_complete_log_moves_to_the_bucket() {
    if !has_credentials("a_complete_log_moves_to_the_bucket") {
        return;
    }
    let Some((moto, server)) = start().await else { return };
    let logs = &server.running.services.objects.logs;
    let id = model::ExecutionId::from_bits(1 << 80);
    let log = frames(&["one\n", "two\n"]);
    logs.append(id, LogWrite::new(0, log.clone(), true)).await.unwrap();
    assert_eq!(logs.read(id, 0, 1000).await.unwrap().frames, log);
    until_uploaded(&moto, &server, id).await;
    let dir = server.shutdown().await;

    // The new server has no local copy.
    let server = Server::start_in(dir, |config| moto.configure(config)).await;
    let logs = &server.running.services.objects.logs;
    assert_eq!(logs.size(id).await.unwrap(), LogSize { first: 0, end: log.len() as u64, complete: true });
    let first = frames(&["one\n"]).len() as u64;
    let part = logs.read(id, first, 1000).await.unwrap();
    assert_eq!((part.frames, part.complete), (frames(&["two\n"]), true));
    logs.delete(id).await.unwrap();
    assert!(!moto.has(&format!("{id}.log")).await);
    assert_eq!(logs.size(id).await.unwrap(), LogSize::default());
}

/// F3. The object of a rotated log begins with its first offset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_log_in_the_bucket_keeps_its_offsets() {
    if !has_credentials("a_rotated_log_in_the_bucket_keeps_its_offsets") {
        return;
    }
    let Some((moto, server)) = start().await else { return };
    let logs = &server.running.services.objects.logs;
    let id = model::ExecutionId::from_bits(7 << 80);
    let limit = LogLimit::Rotated { max_bytes: 1 << 20, first_offset: 5_000 };
    let (one, two) = (frames(&["one\n"]), frames(&["two\n"]));
    let new = LogWrite { limit, ..LogWrite::new(5_000, one.clone(), false) };
    let offset = logs.append(id, new).await.unwrap().offset;
    logs.append(id, LogWrite { limit, ..LogWrite::new(offset, two.clone(), true) }).await.unwrap();
    until_uploaded(&moto, &server, id).await;
    let dir = server.shutdown().await;

    let server = Server::start_in(dir, |config| moto.configure(config)).await;
    let logs = &server.running.services.objects.logs;
    let end = offset + two.len() as u64;
    assert_eq!(logs.size(id).await.unwrap(), LogSize { first: 5_000, end, complete: true });
    assert_eq!(logs.read(id, 5_000, 1000).await.unwrap().frames, [&one[..], &two[..]].concat());
    assert_eq!(logs.read(id, offset, 1000).await.unwrap().frames, two);
    let whole = logs.read(id, 0, 1000).await.unwrap();
    assert!(String::from_utf8_lossy(&whole.frames).contains("omitted here"));
    assert_eq!((whole.next, whole.complete), (end, true));
}

/// A log that could not be uploaded is kept, and uploaded after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_stays_local_until_its_bucket_can_be_reached() {
    if !has_credentials("a_log_stays_local_until_its_bucket_can_be_reached") {
        return;
    }
    let Some(moto) = Moto::start().await else { return };
    let unreachable = |config: &mut ServerConfig| {
        config.objects = ObjectsConfig::S3(S3Config {
            url: format!("s3://{BUCKET}/some/prefix"),
            endpoint: Some("http://127.0.0.1:1".into()),
            region: Some("eu-central-1".into()),
        });
    };
    let server = Server::start_with(unreachable).await;
    let id = model::ExecutionId::from_bits(2 << 80);
    let log = frames(&["one\n"]);
    let logs = &server.running.services.objects.logs;
    logs.append(id, LogWrite::new(0, log.clone(), true)).await.unwrap();
    assert_eq!(logs.read(id, 0, 1000).await.unwrap().frames, log);
    let dir = server.shutdown().await;

    let server = Server::start_in(dir, |config| moto.configure(config)).await;
    until_uploaded(&moto, &server, id).await;
    assert_eq!(server.running.services.objects.logs.read(id, 0, 1000).await.unwrap().frames, log);
}

/// Waits until the log is uploaded and no longer stored locally.
async fn until_uploaded(moto: &Moto, server: &Server, id: model::ExecutionId) {
    let folder = server.running.services.config.live_logs_dir();
    soon("the upload", async {
        while !moto.has(&format!("{id}.log")).await || files_below(&folder) > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

fn files_below(folder: &std::path::Path) -> usize {
    let folders = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    folders.map(|folder| std::fs::read_dir(folder).unwrap().count()).sum()
}
