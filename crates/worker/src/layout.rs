//! Where things lie in a worker's folder.
//!
//! The path of a socket has at most 107 bytes on Linux. So sockets are spoken of by a link with a short
//! name where the folder's own path would be too long for one of them.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// What a task saves to for its next execution, in its folder.
pub(crate) const CHECKPOINT_FILE: &str = ".belfry-checkpoint";
/// Where a task finds why what it saved was not taken.
pub(crate) const REFUSED_FILE: &str = ".belfry-checkpoint.refused";
/// Where the socket of a task lies in its folder.
pub(crate) const SOCKET_FILE: &str = ".belfry.sock";

const EXECUTIONS: &str = "exec";
/// The longest path of a socket, in bytes.
const SOCKET_PATH_MAX: usize = 107;
/// What stands behind the worker's folder in the longest of them: `/exec/exe_<26>/.belfry.sock`.
const SOCKET_BEHIND: usize =
    "/".len() + EXECUTIONS.len() + "/exe_".len() + 26 + "/".len() + SOCKET_FILE.len();
/// Where the links are; everyone may pass through it, and nobody may remove those of others.
const LINKS: &str = "/tmp";

/// Where things are in a worker's folder.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// The worker's folder itself.
    pub(crate) dir: PathBuf,
    /// The same by a path that is short enough for sockets, as far as there is one.
    short: PathBuf,
}

impl Layout {
    /// Makes the link to a folder that needs one. Where that fails the log says so, and sockets whose paths are too
    /// long are not there.
    pub(crate) fn new(dir: &Path) -> Self {
        let short = short(dir, Path::new(LINKS)).unwrap_or_else(|error| {
            tracing::warn!(folder = %dir.display(), %error, "the path is too long for sockets, and no short link to it can be created");
            dir.to_owned()
        });
        Self { dir: dir.to_owned(), short }
    }

    /// Removes the link to the folder, if there is one; whoever needs it next makes it again.
    pub(crate) fn remove_link(&self) {
        if fs::read_link(&self.short).is_ok_and(|target| target == self.dir) {
            fs::remove_file(&self.short).ok();
        }
    }

    /// Held locked by the one supervisor of the folder.
    pub(crate) fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// Held locked by the one agent of the folder.
    pub(crate) fn agent_lock(&self) -> PathBuf {
        self.dir.join("agent.lock")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// Where the supervisor listens for its agent.
    pub(crate) fn socket(&self) -> PathBuf {
        self.short.join("supervisor.sock")
    }

    /// Where the agent takes the connections of tasks from the supervisor.
    pub(crate) fn calls(&self) -> PathBuf {
        self.short.join("calls.sock")
    }

    /// The socket of a task, by the folder of its execution.
    pub(crate) fn task_socket(&self, folder: &Path) -> PathBuf {
        let folder =
            folder.strip_prefix(&self.dir).map_or_else(|_| folder.to_owned(), |inner| self.short.join(inner));
        folder.join(SOCKET_FILE)
    }

    /// What the supervisor says about itself.
    pub(crate) fn supervisor_log(&self) -> PathBuf {
        self.dir.join("supervisor.log")
    }

    /// Folders of executions; each belongs to the user of its task.
    pub(crate) fn executions(&self) -> PathBuf {
        self.dir.join(EXECUTIONS)
    }

    /// Logs that outgrew memory.
    pub(crate) fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// Fetched artifacts by hash.
    pub(crate) fn cache(&self) -> PathBuf {
        self.dir.join("cache")
    }

    /// Folders that the agent fills for executions to come.
    pub(crate) fn stage(&self) -> PathBuf {
        self.dir.join("stage")
    }
}

/// A path to the folder that is short enough for sockets: its own, or a link of ours among `links`.
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
    // Through somebody else's our tasks would call him.
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
    fn a_folder_with_a_short_path_goes_by_it() {
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
        assert_eq!(short(&dir, base.path()).unwrap(), link, "whoever asks next gets the same");
        let layout = Layout { short: link, dir };
        let folder = layout.executions().join(EXECUTION);
        fs::create_dir_all(&folder).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(layout.task_socket(&folder)).unwrap();
        assert!(folder.join(SOCKET_FILE).exists());
    }

    #[test]
    fn what_lies_where_the_link_would_be_is_not_taken_for_it() {
        let base = tempfile::tempdir().unwrap();
        let dir = long(base.path());
        let link = short(&dir, base.path()).unwrap();
        fs::remove_file(&link).unwrap();
        symlink(base.path(), &link).unwrap();
        assert!(short(&dir, base.path()).unwrap_err().to_string().contains("remove it"));
    }
}
