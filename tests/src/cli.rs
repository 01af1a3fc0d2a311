//! The command line, as a user runs it.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use crate::{Server, belfry};

/// A command line that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// What came of a command.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The command, for messages.
    pub command: String,
    /// Its exit code; 128 and the signal where one ended it, as shells say it.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Ran {
    fn new(command: String, output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt as _;
        let status = output.status;
        Self {
            command,
            code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Its standard output.
    ///
    /// # Panics
    /// If it ended with another code than 0.
    pub fn success(self) -> String {
        self.exits(0).stdout
    }

    /// # Panics
    /// If it ended with another code.
    pub fn exits(self, code: i32) -> Self {
        let Self { command, code: found, stdout, stderr } = &self;
        assert_eq!(*found, code, "exit code of: {command}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
        self
    }
}

/// Runs `belfry ARGS…` in `folder` as a user of `server`.
pub(crate) async fn run(server: &Server, folder: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(belfry());
    command.args(args);
    finish(as_user(&mut command, server, folder), format!("belfry {}", args.join(" "))).await
}

/// Runs a bash script in `folder` as a user of `server`, with `belfry` on the path.
pub(crate) async fn run_script(server: &Server, folder: &Path, script: &str) -> Ran {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]);
    finish(as_user(&mut command, server, folder), script.to_owned()).await
}

/// An environment in which nothing but the server's address and token leads anywhere.
fn as_user<'a>(command: &'a mut Command, server: &Server, folder: &Path) -> &'a mut Command {
    let binaries = belfry().parent().expect("the binary lies in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .current_dir(folder)
        .env_remove("BELFRY_NAMESPACE")
        .env("HOME", server.data().parent().expect("data lies in the site's folder"))
        .env("PATH", format!("{}:{path}", binaries.display()))
        .env("BELFRY_URL", server.url())
        .env("BELFRY_TOKEN", server.token().expect("a server that started has made its token"))
}

async fn finish(command: &mut Command, shown: String) -> Ran {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, output).await;
    let output = output.unwrap_or_else(|_| panic!("no end within {PATIENCE:?}: {shown}"));
    Ran::new(shown, output.expect("the command can be started"))
}
