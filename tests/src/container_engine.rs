//! A Docker engine of a test, with one image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{Paused, Pid, until};

/// Time in which the engine must answer.
const START_MAX: Duration = Duration::from_secs(60);
/// Time in which the engine must end; it is killed after that.
const END_MAX: Duration = Duration::from_secs(20);
/// Programs in the image.
const APPLETS: [&str; 10] = ["sh", "sleep", "cat", "id", "dd", "mkdir", "env", "touch", "true", "echo"];

/// A running engine; dropping it ends the engine with its containers.
#[derive(Debug)]
pub struct ContainerEngine {
    process: Child,
    dir: TempDir,
}

impl ContainerEngine {
    /// Name of the image, which has `busybox`.
    pub const IMAGE: &str = "belfry-test:1";

    /// Starts an engine; `None`, with a note, if this machine cannot run one. Two engines at a time disturb each other's
    /// networks.
    pub async fn start() -> Option<Self> {
        let programs = ["dockerd", "docker", "busybox"];
        let missing = programs.into_iter().find(|name| !has_program(name));
        if let Some(reason) = missing.map(|name| format!("`{name}` is missing")).or_else(not_root) {
            note(&reason);
            return None;
        }
        let dir = TempDir::with_prefix("belfry-engine-").expect("cannot create a temporary folder");
        let log =
            fs::File::create(dir.path().join("engine.log")).expect("cannot create the log of the engine");
        let mut command = Command::new("dockerd");
        for (option, name) in [("--data-root", "data"), ("--exec-root", "exec"), ("--pidfile", "pid")] {
            command.arg(option).arg(dir.path().join(name));
        }
        command.arg("--host").arg(format!("unix://{}", dir.path().join("engine.sock").display()));
        command.stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        let process = command.spawn().expect("cannot start dockerd");
        let mut engine = Self { process, dir };
        let mut has_ended = false;
        until("the container engine answers or has ended", START_MAX, async || {
            has_ended = engine.process.try_wait().ok().flatten().is_some();
            (has_ended || engine.docker(&["version"]).is_some()).then_some(())
        })
        .await;
        if has_ended {
            let log = fs::read_to_string(engine.dir.path().join("engine.log")).unwrap_or_default();
            note(&format!("dockerd does not run here: {}", log.lines().last().unwrap_or_default()));
            return None;
        }
        engine.import_image();
        Some(engine)
    }

    fn import_image(&self) {
        let root = self.dir.path().join("image");
        fs::create_dir_all(root.join("bin")).expect("cannot create the image");
        fs::create_dir_all(root.join("etc")).expect("cannot create the image");
        fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\napp:x:1000:1000::/:/bin/sh\n")
            .expect("cannot create the image");
        let busybox =
            Program::new("sh").args(["-c", "command -v busybox"]).output().expect("cannot run sh").stdout;
        let busybox = String::from_utf8(busybox).expect("a path is text");
        fs::copy(busybox.trim(), root.join("bin/busybox")).expect("cannot copy busybox");
        for applet in APPLETS {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(applet))
                .expect("cannot create the image");
        }
        let tar = self.dir.path().join("image.tar");
        let packed = Program::new("tar").arg("-C").arg(&root).arg("-cf").arg(&tar).arg(".").status();
        assert!(packed.expect("cannot run tar").success(), "cannot pack the image");
        let tar = tar.display().to_string();
        assert!(self.docker(&["import", &tar, Self::IMAGE]).is_some(), "cannot import the image");
    }

    /// Address of the engine, for the setting `worker.container_engine`.
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Pauses the engine, until the result resumes it.
    pub fn pause(&self) -> Option<Paused> {
        Pid(i32::try_from(self.process.id()?).ok()?).pause_held()
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("engine.sock")
    }

    /// Returns the names of all containers, also of those that have ended.
    pub fn containers(&self) -> Vec<String> {
        let names = self.docker(&["ps", "--all", "--format", "{{.Names}}"]).expect("the engine answers");
        names.lines().map(str::to_owned).collect()
    }

    /// Runs `docker ARGS…`; returns its output if it succeeds.
    pub fn docker(&self, args: &[&str]) -> Option<String> {
        let output = Program::new("docker")
            .arg("--host")
            .arg(self.address())
            .args(args)
            .output()
            .expect("cannot run docker");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for ContainerEngine {
    fn drop(&mut self) {
        for container in self.docker(&["ps", "--all", "--quiet"]).unwrap_or_default().lines() {
            self.docker(&["rm", "--force", container]);
        }
        // The engine unmounts its file systems when it is asked to end.
        if let Some(pid) = self.process.id().and_then(|pid| i32::try_from(pid).ok()) {
            Pid(pid).terminate();
            let began = Instant::now();
            while matches!(self.process.try_wait(), Ok(None)) && began.elapsed() < END_MAX {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

fn has_program(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| Path::new(&dir).join(name).exists()))
}

fn not_root() -> Option<String> {
    (!rustix::process::geteuid().is_root()).then(|| "the tests do not run as root".to_owned())
}

#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn note(reason: &str) {
    eprintln!("note: skipping a container test: {reason}");
}
