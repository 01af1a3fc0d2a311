//! Thread that removes folders in the background, because the removal of a large one takes long.

use std::path::PathBuf;
use std::sync::mpsc;
use std::{fs, io, thread};

/// Removes folders in the background.
#[derive(Debug)]
pub(super) struct FolderRemover {
    work: mpsc::Sender<PathBuf>,
}

impl FolderRemover {
    pub(super) fn start() -> io::Result<Self> {
        let (work, inbox) = mpsc::channel::<PathBuf>();
        thread::Builder::new()
            .name("folder-remover".into())
            .spawn(move || inbox.into_iter().for_each(|dir| remove(&dir)))?;
        Ok(Self { work })
    }

    /// Removes `dir` with its content in the background. After a restart, the next supervisor removes what is left.
    pub(super) fn remove(&self, dir: PathBuf) {
        // The thread runs until the process exits, so the channel is open.
        self.work.send(dir).ok();
    }
}

fn remove(dir: &std::path::Path) {
    // Most folders are empty, and listing one costs more than removing it.
    if fs::remove_dir(dir).is_ok() {
        return;
    }
    // Follows no symbolic link that a task has placed there.
    if let Err(error) = fs::remove_dir_all(dir)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(dir = %dir.display(), %error, "cannot remove a directory");
    }
}
