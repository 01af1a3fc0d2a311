//! The gate of a container, which lets the program of the job run only when the shim says so.
//!
//! An engine may start a container long after it was asked to: it was busy, and the shim is dead or frozen since. So the first
//! program of a container is the gate (`gate/gate.rs`). The shim opens it when the container is running and visible. Before
//! that, nothing of the job has run, and the gate exits if the shim is dead.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::{OpenOptions as PipeOptions, Receiver};

/// The program, which `build.rs` builds.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gate"));
/// Its directory, in that of the execution.
const FOLDER: &str = ".belfry-gate";
/// The same directory in the container; the program has the path too.
pub(super) const FOLDER_INSIDE: &str = "/.belfry";
/// The program in the container.
pub(super) const PROGRAM_INSIDE: &str = "/.belfry/gate";

/// The shim's side of a gate.
#[derive(Debug)]
pub(super) struct Gate {
    go: File,
    result: Receiver,
}

impl Gate {
    /// Creates the files of a closed gate in the directory of an execution.
    pub(super) fn create(execution: &Path) -> io::Result<Self> {
        let folder = folder(execution);
        DirBuilder::new().mode(0o755).create(&folder)?;
        let mut program =
            OpenOptions::new().write(true).create_new(true).mode(0o755).open(folder.join("gate"))?;
        program.write_all(PROGRAM)?;
        let fifo = |name: &str| {
            let path = folder.join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            // Any user of the container may use it.
            fs::set_permissions(&path, Permissions::from_mode(0o666))?;
            io::Result::Ok(path)
        };
        // It is open for both directions, so that opening does not wait for the gate.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let go = OpenOptions::new().read(true).write(true).custom_flags(flags).open(fifo("go")?)?;
        let result = PipeOptions::new().open_receiver(fifo("result")?)?;
        Ok(Self { go, result })
    }

    /// Lets the program of the job run.
    pub(super) fn open(&mut self) -> io::Result<()> {
        self.go.write_all(b"g")
    }

    /// Waits until the program is executed; returns the error number if that is impossible.
    pub(super) async fn result(&mut self) -> Option<i32> {
        // The end of the pipe: it was closed by the execution of the program.
        self.result.read_u8().await.ok().map(i32::from)
    }
}

/// Returns the directory of the gate of an execution.
pub(super) fn folder(execution: &Path) -> PathBuf {
    execution.join(FOLDER)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn the_gate_is_a_static_program_that_runs_nothing_without_its_shim() {
        let dir = tempfile::tempdir().unwrap();
        let gate = Gate::create(dir.path()).unwrap();
        let program = folder(dir.path()).join("gate");
        // Outside of a container, it does not find its files.
        let ran = Command::new(&program).args(["touch", "ran"]).current_dir(dir.path()).status().unwrap();
        assert_eq!(ran.code(), Some(125));
        assert!(!dir.path().join("ran").exists());
        assert!(PROGRAM.len() < 64 * 1024, "{} bytes", PROGRAM.len());
        drop(gate);
    }
}
