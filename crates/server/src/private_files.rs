//! Folders and files that only their owner can read.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Creates a folder that only its owner can read; an existing folder keeps its permissions.
pub(crate) fn make_private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Writes a file atomically that only its owner may read.
pub(crate) fn write_secret(path: &Path, secret: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(secret)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_file_is_private_and_replaced_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin-token");
        write_secret(&path, b"one\n").unwrap();
        write_secret(&path, b"two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
