//! The thread that removes folders, which may be large, so that nobody waits for it.

use std::path::PathBuf;
use std::sync::mpsc;
use std::{fs, io, thread};

/// Removes folders in the background.
#[derive(Debug)]
pub(super) struct Janitor {
    work: mpsc::Sender<PathBuf>,
}

impl Janitor {
    pub(super) fn start() -> io::Result<Self> {
        let (work, inbox) = mpsc::channel::<PathBuf>();
        thread::Builder::new()
            .name("janitor".into())
            .spawn(move || inbox.into_iter().for_each(|dir| remove(&dir)))?;
        Ok(Self { work })
    }

    /// Removes `dir` with all that is in it, some time soon. A restart does what was not done yet.
    pub(super) fn remove(&self, dir: PathBuf) {
        // The thread ends only with the process.
        self.work.send(dir).ok();
    }
}

fn remove(dir: &std::path::Path) {
    // Most are empty, and looking into one costs more than removing it.
    if fs::remove_dir(dir).is_ok() {
        return;
    }
    // Follows no symbolic link, whatever the task has put there.
    if let Err(error) = fs::remove_dir_all(dir)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(dir = %dir.display(), %error, "cannot remove a directory");
    }
}
