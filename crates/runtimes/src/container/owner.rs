//! The owner of the directory of an execution: the user in the container.
//!
//! Until the container starts, the directory belongs to the user of the worker, and no task can access it. Its content gets its
//! owner first, and the directory itself last.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::path::Path;

use bollard::Docker;
use bollard::query_parameters::DownloadFromContainerOptions;
use futures::StreamExt as _;

/// Maximum size of a file of users, in bytes.
const PASSWD_MAX: usize = 1 << 20;
/// Size of a block of a tar archive, in bytes.
const BLOCK: usize = 512;

/// Returns the number of the user in a container that is not started yet; `None` if it is unknown.
pub(super) async fn number_of(engine: &Docker, container: &str, user: &str) -> Option<u32> {
    let name = user.split(':').next().unwrap_or_default();
    match name {
        "" | "root" => Some(0),
        name if name.bytes().all(|b| b.is_ascii_digit()) => name.parse().ok(),
        name => number_in(&passwd(engine, container).await?, name),
    }
}

/// Returns the file of users of a container.
async fn passwd(engine: &Docker, container: &str) -> Option<String> {
    let options = DownloadFromContainerOptions { path: "/etc/passwd".into() };
    let mut parts = Box::pin(engine.download_from_container(container, Some(options)));
    let mut archive = Vec::new();
    while let Some(part) = parts.next().await {
        archive.extend_from_slice(&part.ok()?);
        if archive.len() > PASSWD_MAX {
            return None;
        }
    }
    only_file(&archive)
}

/// Returns the only file of a tar archive, as text.
fn only_file(archive: &[u8]) -> Option<String> {
    let size = archive.get(124..135)?;
    let size = usize::from_str_radix(str::from_utf8(size).ok()?.trim_matches([' ', '\0']), 8).ok()?;
    let content = archive.get(BLOCK..BLOCK.checked_add(size)?)?;
    Some(String::from_utf8_lossy(content).into_owned())
}

fn number_in(passwd: &str, name: &str) -> Option<u32> {
    let user = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    user.split(':').nth(2)?.parse().ok()
}

/// Gives a directory and its content to a user. A worker that is not root cannot, and lets every user of the container write
/// there.
pub(super) fn give(folder: &Path, uid: u32) -> io::Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && uid == 0 {
        // Root in the container of a rootless engine is the user of the worker.
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            give(&entry.path(), uid)?;
        } else if !metadata.is_symlink() && metadata.nlink() == 1 {
            own(&entry.path(), uid, is_root)?;
        }
    }
    own(folder, uid, is_root)
}

fn own(path: &Path, uid: u32, is_root: bool) -> io::Result<()> {
    if is_root {
        return lchown(path, Some(uid), None);
    }
    let mode = fs::symlink_metadata(path)?.permissions().mode();
    let all = (mode & 0o700) >> 3 | (mode & 0o700) >> 6 | mode;
    fs::set_permissions(path, fs::Permissions::from_mode(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_a_name_has_the_number_of_the_image() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/:/bin/sh\n";
        assert_eq!(number_in(passwd, "app"), Some(1000));
        assert_eq!(number_in(passwd, "nosuch"), None);
        let mut archive = vec![0; BLOCK];
        archive[124..135].copy_from_slice(b"00000000006");
        archive.extend_from_slice(b"a:x:7\n");
        archive.extend_from_slice(&[0; BLOCK]);
        assert_eq!(only_file(&archive).as_deref(), Some("a:x:7\n"));
        assert_eq!(only_file(b"short"), None);
    }

    #[test]
    fn links_out_of_the_directory_are_not_given_away() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, outside) = (dir.path().join("folder"), dir.path().join("outside"));
        fs::create_dir_all(folder.join("inner")).unwrap();
        fs::write(&outside, "").unwrap();
        std::os::unix::fs::symlink(&outside, folder.join("link")).unwrap();
        fs::hard_link(&outside, folder.join("hard")).unwrap();
        fs::write(folder.join("inner/file"), "").unwrap();
        let before = fs::metadata(&outside).unwrap();
        give(&folder, 12_345).unwrap();
        let after = fs::metadata(&outside).unwrap();
        assert_eq!((before.uid(), before.mode()), (after.uid(), after.mode()));
        if rustix::process::geteuid().is_root() {
            assert_eq!(fs::metadata(folder.join("inner/file")).unwrap().uid(), 12_345);
            assert_eq!(fs::metadata(&folder).unwrap().uid(), 12_345);
        }
    }
}
