//! Runs the command line as a user would.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use crate::{Server, belfry};

/// Timeout of a command.
const PATIENCE: Duration = Duration::from_secs(120);

/// Result of a command.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The command line, for messages.
    pub command: String,
    /// Exit code; 128 plus the signal number if a signal ended the command, as in shells.
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

    /// Returns the standard output.
    ///
    /// # Panics
    /// If the exit code is not 0.
    pub fn success(self) -> String {
        self.exits(0).stdout
    }

    /// Checks the exit code.
    ///
    /// # Panics
    /// If the exit code differs from `code`.
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

/// Sets an environment that contains only the server's address and token.
fn as_user<'a>(command: &'a mut Command, server: &Server, folder: &Path) -> &'a mut Command {
    let binaries = belfry().parent().expect("the binary is in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .current_dir(folder)
        .env_remove("BELFRY_NAMESPACE")
        .env_remove("BELFRY_CONTEXT")
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_STATE_HOME")
        .env("HOME", server.data().parent().expect("the data folder is in the site's folder"))
        .env("PATH", format!("{}:{path}", binaries.display()))
        .env("BELFRY_URL", server.url())
        .env("BELFRY_TOKEN", server.token().expect("a started server has created its token"))
}

async fn finish(command: &mut Command, shown: String) -> Ran {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, output).await;
    let output = output.unwrap_or_else(|_| panic!("timed out after {PATIENCE:?}: {shown}"));
    Ran::new(shown, output.expect("cannot start the command"))
}
