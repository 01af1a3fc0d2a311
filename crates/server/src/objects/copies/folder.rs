//! The objects of this server as files.
//!
//! All functions block; callers run them on blocking threads. A file is complete and synced before it gets the name of its
//! object.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use object_store::path::Path as Key;

use crate::private_files::make_private_dir;

/// Folder of files that are being received.
const INCOMING: &str = "incoming";

/// The folder of objects.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    root: PathBuf,
}

/// A file that is being received; removed when it is dropped.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) path: PathBuf,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // It has another name now, or the next start removes it.
        let _removed = std::fs::remove_file(&self.path);
    }
}

impl Folder {
    /// Opens the folder, and removes what was received incompletely.
    pub(super) fn open(root: PathBuf) -> io::Result<Self> {
        let incoming = root.join(INCOMING);
        if incoming.exists() {
            std::fs::remove_dir_all(&incoming)?;
        }
        make_private_dir(&incoming)?;
        Ok(Self { root })
    }

    pub(super) fn path(&self, key: &Key) -> PathBuf {
        key.parts().fold(self.root.clone(), |path, part| path.join(part.as_ref()))
    }

    /// Returns a new file name for an object that is being received.
    pub(super) fn incoming(&self) -> Incoming {
        Incoming { path: self.root.join(INCOMING).join(format!("{:032x}", rand::random::<u128>())) }
    }

    /// Returns the size of an object in bytes; `None` if it is not here.
    pub(super) fn size(&self, key: &Key) -> io::Result<Option<u64>> {
        Ok(present(std::fs::metadata(self.path(key)))?.map(|meta| meta.len()))
    }

    /// Returns when an object was stored here, or stored again.
    pub(super) fn stored_at(&self, key: &Key) -> io::Result<Option<SystemTime>> {
        present(std::fs::metadata(self.path(key)))?.map(|meta| meta.modified()).transpose()
    }

    /// Notes that an object is stored again. Returns whether it is here.
    pub(super) fn touch(&self, key: &Key) -> io::Result<bool> {
        let Some(file) = present(File::options().append(true).open(self.path(key)))? else {
            return Ok(false);
        };
        file.set_modified(SystemTime::now())?;
        Ok(true)
    }

    /// Makes a file of this server an object. The file keeps its own name too.
    pub(super) fn add(&self, key: &Key, file: &Path) -> io::Result<()> {
        if self.touch(key)? {
            return Ok(());
        }
        File::open(file)?.sync_all()?;
        let path = self.path(key);
        make_private_dir(parent(&path))?;
        match std::fs::hard_link(file, &path) {
            Ok(()) => sync(parent(&path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            // The folder of objects may be another volume.
            Err(_) => {
                let copy = self.incoming();
                std::fs::copy(file, &copy.path)?;
                self.finish(key, &copy)
            }
        }
    }

    /// Makes a received file an object.
    pub(super) fn finish(&self, key: &Key, incoming: &Incoming) -> io::Result<()> {
        File::open(&incoming.path)?.sync_all()?;
        let path = self.path(key);
        make_private_dir(parent(&path))?;
        std::fs::rename(&incoming.path, &path)?;
        sync(parent(&path))
    }

    /// Removes an object; succeeds if it is not here.
    pub(super) fn remove(&self, key: &Key) -> io::Result<()> {
        present(std::fs::remove_file(self.path(key))).map(|_| ())
    }

    /// Returns the folders of objects, such as `logs/1f` and `artifacts/default`.
    pub(super) fn folders(&self) -> io::Result<BTreeSet<String>> {
        let mut folders = BTreeSet::new();
        for kind in super::KINDS {
            for name in names_in(&self.root.join(kind))? {
                folders.insert(format!("{kind}/{name}"));
            }
        }
        Ok(folders)
    }

    /// Returns the names of the objects of a folder.
    pub(super) fn names(&self, folder: &str) -> io::Result<BTreeSet<String>> {
        let mut path = self.root.clone();
        path.extend(folder.split('/'));
        names_in(&path)
    }
}

fn names_in(folder: &Path) -> io::Result<BTreeSet<String>> {
    let Some(entries) = present(std::fs::read_dir(folder))? else { return Ok(BTreeSet::new()) };
    let name = |entry: io::Result<std::fs::DirEntry>| match entry {
        Ok(entry) => entry.file_name().into_string().ok().filter(|name| !is_partial(name)).map(Ok),
        Err(error) => Some(Err(error)),
    };
    entries.filter_map(name).collect()
}

/// Whether the object store is still writing the file.
fn is_partial(name: &str) -> bool {
    name.contains('#')
}

fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
