//! Paths in a worker folder.
//!
//! The path of a socket has at most 107 bytes on Linux. If the path of the worker folder is too long for its sockets,
//! they are accessed through a symbolic link with a short path.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Checkpoint file, in the folder of the execution.
pub(crate) const CHECKPOINT_FILE: &str = ".belfry-checkpoint";
/// File with the reason why a checkpoint file was refused, in the folder of the execution.
pub(crate) const REFUSED_FILE: &str = ".belfry-checkpoint.refused";
/// Socket of a task, in the folder of the execution.
pub(crate) const SOCKET_FILE: &str = ".belfry.sock";

const EXECUTIONS: &str = "exec";
/// Maximum length of the path of a socket, in bytes.
const SOCKET_PATH_MAX: usize = 107;
/// Length of the longest socket path after the worker folder: `/exec/exe_<26>/.belfry.sock`.
const SOCKET_BEHIND: usize =
    "/".len() + EXECUTIONS.len() + "/exe_".len() + 26 + "/".len() + SOCKET_FILE.len();
/// Folder of the links; it is world-accessible, and only the owner of a file can remove it there.
const LINKS: &str = "/tmp";

/// Paths in one worker folder.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// The worker folder.
    pub(crate) dir: PathBuf,
    /// A path to the same folder that is short enough for sockets, if there is one.
    short: PathBuf,
}

impl Layout {
    /// Creates the short link if the folder needs one. If that fails, logs a warning; sockets whose paths are too
    /// long then cannot be created.
    pub(crate) fn new(dir: &Path) -> Self {
        let short = short(dir, Path::new(LINKS)).unwrap_or_else(|error| {
            tracing::warn!(
                dir = %dir.display(), %error,
                "the path of the worker folder is too long for sockets, and no short link can be created"
            );
            dir.to_owned()
        });
        Self { dir: dir.to_owned(), short }
    }

    /// Removes the short link to the folder, if there is one; it is recreated when it is needed again.
    pub(crate) fn remove_link(&self) {
        if fs::read_link(&self.short).is_ok_and(|target| target == self.dir) {
            fs::remove_file(&self.short).ok();
        }
    }

    /// Returns the short link to the folder with its target, if there is one.
    pub(crate) fn link(&self) -> Option<(PathBuf, PathBuf)> {
        (self.short != self.dir).then(|| (self.short.clone(), self.dir.clone()))
    }

    /// Lock file of the supervisor; only one runs per folder.
    pub(crate) fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// Lock file of the agent; only one runs per folder.
    pub(crate) fn agent_lock(&self) -> PathBuf {
        self.dir.join("agent.lock")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// Socket on which the supervisor listens for its agent.
    pub(crate) fn socket(&self) -> PathBuf {
        self.short.join("supervisor.sock")
    }

    /// Socket over which the agent receives the connections of tasks from the supervisor.
    pub(crate) fn calls(&self) -> PathBuf {
        self.short.join("calls.sock")
    }

    /// Socket of a task; `folder` is the folder of its execution.
    pub(crate) fn task_socket(&self, folder: &Path) -> PathBuf {
        let folder =
            folder.strip_prefix(&self.dir).map_or_else(|_| folder.to_owned(), |inner| self.short.join(inner));
        folder.join(SOCKET_FILE)
    }

    /// Log of the supervisor itself.
    pub(crate) fn supervisor_log(&self) -> PathBuf {
        self.dir.join("supervisor.log")
    }

    /// Folders of executions; each belongs to the task user.
    pub(crate) fn executions(&self) -> PathBuf {
        self.dir.join(EXECUTIONS)
    }

    /// Log files of executions that exceed the memory limit.
    pub(crate) fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// Downloaded artifacts, named by hash.
    pub(crate) fn cache(&self) -> PathBuf {
        self.dir.join("cache")
    }

    /// Folders that the agent fills with inputs before executions start.
    pub(crate) fn stage(&self) -> PathBuf {
        self.dir.join("stage")
    }
}

/// Returns a path to the folder that is short enough for sockets: its own path, or a link in `links`.
fn short(dir: &Path, links: &Path) -> io::Result<PathBuf> {
    let dir = std::path::absolute(dir)?;
    if dir.as_os_str().len() + SOCKET_BEHIND <= SOCKET_PATH_MAX {
        return Ok(dir);
    }
    let digest = Sha256::digest(dir.as_os_str().as_bytes());
    let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let link = links.join(format!("belfry-{name}"));
    match symlink(&dir, &link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map(|()| link),
    }
    // Through a link of another user, our tasks would call a process of that user.
    let is_ours = fs::symlink_metadata(&link)?.uid() == rustix::process::geteuid().as_raw();
    match fs::read_link(&link) {
        Ok(target) if is_ours && target == dir => Ok(link),
        _ => Err(io::Error::other(format!("`{}` is not a link of this worker: remove it", link.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXECUTION: &str = "exe_01k2q4w6e8r0t2y4u6a8s0d2f4";

    fn long(base: &Path) -> PathBuf {
        let dir = base.join("folder".repeat(20));
        fs::create_dir(&dir).unwrap();
        dir
    }

    #[test]
    fn a_folder_with_a_short_path_needs_no_link() {
        let links = tempfile::tempdir().unwrap();
        let most = "d".repeat(SOCKET_PATH_MAX - SOCKET_BEHIND - 1);
        let dir = Path::new("/").join(most);
        assert_eq!(short(&dir, links.path()).unwrap(), dir);
        let layout = Layout { short: dir.clone(), dir };
        let socket = layout.task_socket(&layout.executions().join(EXECUTION));
        assert_eq!(socket.as_os_str().len(), SOCKET_PATH_MAX);
    }

    #[test]
    fn sockets_of_a_folder_with_a_long_path_are_reached_by_a_link() {
        let base = tempfile::tempdir().unwrap();
        let dir = long(base.path());
        let link = short(&dir, base.path()).unwrap();
        assert_eq!(short(&dir, base.path()).unwrap(), link, "a second call returns the same link");
        let layout = Layout { short: link, dir };
        let folder = layout.executions().join(EXECUTION);
        fs::create_dir_all(&folder).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(layout.task_socket(&folder)).unwrap();
        assert!(folder.join(SOCKET_FILE).exists());
    }

    #[test]
    fn a_foreign_link_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let dir = long(base.path());
        let link = short(&dir, base.path()).unwrap();
        fs::remove_file(&link).unwrap();
        symlink(base.path(), &link).unwrap();
        assert!(short(&dir, base.path()).unwrap_err().to_string().contains("remove it"));
    }
}
