//! Folders of executions.
//!
//! Every execution has a folder for its home directory, its temporary files and, by default, its working directory.
//! An execution with staged inputs or with outputs has a folder of its own name. The others get one from a pool: most
//! leave it empty, and creating and removing a folder would cost a short task a fifth of its CPU time (measured on
//! ext4). A folder is reused only if it is completely unchanged.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use model::{ExecutionId, StopReason};
use rustix::process::{getegid, geteuid};

use super::folder_remover::FolderRemover;
use super::task_socket::TaskSocket;
use crate::layout::{CHECKPOINT_FILE, Layout, REFUSED_FILE, SOCKET_FILE};

/// Files of Belfry in an execution's folder.
pub(super) const SCRIPT_FILE: &str = ".belfry-script";
pub(super) const OUTPUT_FILE: &str = ".belfry-output";
pub(super) const STOP_REASON_FILE: &str = ".belfry-stop-reason";
/// Maximum number of folders in the pool; each has an open socket.
const SPARE_MAX: usize = 256;
const MODE: u32 = 0o700;

/// The folder of one execution.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Socket for requests of the task; `None` if it could not be created.
    pub(super) task_socket: Option<TaskSocket>,
    is_pooled: bool,
}

impl Folder {
    /// Writes why the execution is stopped, for its task. Never overwrites a file and follows no link: the folder belongs
    /// to the task.
    pub(super) fn write_stop_reason(&self, reason: StopReason) {
        let file = OpenOptions::new().write(true).create_new(true).open(self.path.join(STOP_REASON_FILE));
        if let Err(error) = file.and_then(|mut file| file.write_all(reason.as_str().as_bytes())) {
            tracing::debug!(dir = %self.path.display(), %error, "cannot write the reason of a stop");
        }
    }
}

#[cfg(test)]
impl Folder {
    /// Returns a folder that exists only as a path.
    pub(super) fn of_test(path: &str) -> Self {
        Self { path: path.into(), task_socket: None, is_pooled: false }
    }
}

/// Creates folders, and keeps a pool of unchanged ones for reuse.
#[derive(Debug)]
pub(super) struct Folders {
    layout: Layout,
    /// Task user and group that own the folders; `None` keeps the supervisor's.
    owner: Option<(u32, u32)>,
    spare: Vec<(PathBuf, Option<TaskSocket>)>,
    /// Number of the next new folder in the pool.
    next: u64,
    folder_remover: FolderRemover,
}

impl Folders {
    pub(super) fn new(layout: Layout, owner: Option<(u32, u32)>, folder_remover: FolderRemover) -> Self {
        Self { layout, owner, spare: Vec::new(), next: 1, folder_remover }
    }

    /// Removes the short link to the worker folder; called at the end.
    pub(super) fn close(&self) {
        self.layout.remove_link();
    }

    /// Returns an empty folder from the pool, or a new one.
    pub(super) fn take_spare(&mut self) -> io::Result<Folder> {
        let (path, door) = match self.spare.pop() {
            Some(spare) => spare,
            None => self.make_spare()?,
        };
        Ok(Folder { path, task_socket: door, is_pooled: true })
    }

    fn make_spare(&mut self) -> io::Result<(PathBuf, Option<TaskSocket>)> {
        loop {
            let path = self.layout.executions().join(self.next.to_string());
            self.next += 1;
            match self.make(&path) {
                // The folder of an earlier supervisor, not removed yet.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => return result.map(|door| (path, door)),
            }
        }
    }

    fn make(&self, path: &Path) -> io::Result<Option<TaskSocket>> {
        DirBuilder::new().mode(MODE).create(path)?;
        self.prepare(path, self.owner)
    }

    /// Creates the socket in a new folder, and then sets the owner of the folder.
    fn prepare(&self, path: &Path, owner: Option<(u32, u32)>) -> io::Result<Option<TaskSocket>> {
        let door = TaskSocket::open(self.layout.task_socket(path), owner).inspect_err(|error| {
            // The task runs without a socket.
            tracing::warn!(
                dir = %path.display(), %error,
                "cannot create the socket of a task; the task runs without it"
            );
        });
        if let Some((uid, gid)) = owner {
            chown(path, Some(uid), Some(gid))?;
        }
        Ok(door.ok())
    }

    /// Creates a folder with the name of the execution, or moves the staged one there. If `is_private`, it belongs to the user
    /// of the worker, so that no task can access it.
    pub(super) fn named(&self, id: ExecutionId, staged: bool, is_private: bool) -> io::Result<Folder> {
        let path = self.path_of(id);
        let owner = self.owner.filter(|_| !is_private);
        if staged {
            let staged = self.layout.stage().join(id.to_string());
            if is_private && self.owner.is_some() {
                let own = (geteuid().as_raw(), getegid().as_raw());
                chown(&staged, Some(own.0), Some(own.1))?;
            }
            fs::rename(staged, &path)?;
        } else {
            DirBuilder::new().mode(MODE).create(&path)?;
        }
        let door = self.prepare(&path, owner)?;
        Ok(Folder { path, task_socket: door, is_pooled: false })
    }

    /// Path of the folder that [`Self::named`] creates.
    pub(super) fn path_of(&self, id: ExecutionId) -> PathBuf {
        self.layout.executions().join(id.to_string())
    }

    /// Takes back a folder whose processes have all ended; reuses or removes it.
    pub(super) fn take_back(&mut self, folder: Folder) {
        if folder.is_pooled && self.spare.len() < SPARE_MAX && self.is_reusable(&folder).unwrap_or(false) {
            self.spare.push((folder.path, folder.task_socket));
        } else {
            self.folder_remover.remove(folder.path);
        }
    }

    /// Removes the folder with the name of the execution, if it exists.
    pub(super) fn remove_named(&self, id: ExecutionId) {
        self.folder_remover.remove(self.path_of(id));
    }

    /// Returns whether a folder can be reused, and removes the files of Belfry in it.
    fn is_reusable(&self, folder: &Folder) -> io::Result<bool> {
        let path = folder.path.as_path();
        let metadata = path.symlink_metadata()?;
        let owner = self.owner.unwrap_or_else(|| (geteuid().as_raw(), metadata.gid()));
        let unchanged = metadata.is_dir()
            && metadata.mode() & 0o7777 == MODE
            && (metadata.uid(), metadata.gid()) == owner
            // Access control lists would apply to the next task.
            && rustix::fs::llistxattr_query(path)? == 0;
        if !unchanged {
            return Ok(false);
        }
        if folder.task_socket.as_ref().is_some_and(|door| !door.is_at(&path.join(SOCKET_FILE))) {
            return Ok(false);
        }
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == SOCKET_FILE && folder.task_socket.is_some() {
                continue;
            }
            if ![SCRIPT_FILE, OUTPUT_FILE, CHECKPOINT_FILE, REFUSED_FILE, STOP_REASON_FILE]
                .iter()
                .any(|ours| name == *ours)
            {
                return Ok(false);
            }
            // Fails for a folder of that name; this folder is then not empty.
            fs::remove_file(entry.path())?;
        }
        Ok(true)
    }

    /// Removes all folders of an earlier supervisor except those that are `needed`.
    pub(super) fn remove_others(&self, needed: impl Fn(ExecutionId) -> bool) {
        let Ok(entries) = fs::read_dir(self.layout.executions()) else { return };
        for entry in entries.flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if !id.is_some_and(&needed) {
                self.folder_remover.remove(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn folders(dir: &tempfile::TempDir) -> Folders {
        let layout = Layout::new(dir.path());
        fs::create_dir_all(layout.executions()).unwrap();
        Folders::new(layout, None, FolderRemover::start().unwrap())
    }

    #[test]
    fn an_empty_folder_is_reused_without_files_of_belfry() {
        let dir = tempfile::tempdir().unwrap();
        let mut folders = folders(&dir);
        let first = folders.take_spare().unwrap();
        let path = first.path.clone();
        fs::write(path.join(SCRIPT_FILE), "x").unwrap();
        fs::write(path.join(OUTPUT_FILE), "x").unwrap();
        fs::write(path.join(CHECKPOINT_FILE), "x").unwrap();
        fs::write(path.join(REFUSED_FILE), "x").unwrap();
        folders.take_back(first);
        let second = folders.take_spare().unwrap();
        assert_eq!(second.path, path);
        let left: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [SOCKET_FILE]);
        assert!(std::os::unix::net::UnixStream::connect(path.join(SOCKET_FILE)).is_ok());
    }

    #[test]
    fn a_changed_folder_is_never_reused() {
        let dir = tempfile::tempdir().unwrap();
        let mut folders = folders(&dir);
        let changes: [fn(&Path); 6] = [
            |path| fs::write(path.join("file"), "x").unwrap(),
            |path| fs::create_dir(path.join(OUTPUT_FILE)).unwrap(),
            |path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap(),
            |path| fs::remove_dir_all(path).unwrap(),
            |path| fs::remove_file(path.join(SOCKET_FILE)).unwrap(),
            |path| {
                fs::rename(path.join(SOCKET_FILE), path.join(OUTPUT_FILE)).unwrap();
                std::mem::forget(UnixListener::bind(path.join(SOCKET_FILE)).unwrap());
            },
        ];
        for change in changes {
            let folder = folders.take_spare().unwrap();
            change(&folder.path);
            folders.take_back(folder);
            assert!(folders.spare.is_empty());
        }
    }

    #[test]
    fn a_folder_of_an_earlier_supervisor_is_not_reused() {
        let dir = tempfile::tempdir().unwrap();
        let mut folders = folders(&dir);
        let left = folders.layout.executions().join("1");
        fs::create_dir(&left).unwrap();
        assert_ne!(folders.take_spare().unwrap().path, left);
    }
}
