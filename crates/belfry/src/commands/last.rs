//! The newest job, run and backfill that the user created with this command line (`@last`).
//!
//! There is one file for each server and type: `last/SERVER/job` in the user's state directory, with the ID in a line.
//! `SERVER` is made of the URL, so that `@last` never refers to an object of another server.
//!
//! # Invariants
//! - A file that cannot be written never fails a command: the object was created.
//! - A file is replaced as a whole and only its user can read it.
//! - At most [`SERVERS_MAX`] servers are kept, those that were used last.

use std::fmt::Display;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use client::Client;
use model::{BackfillId, JobId, RunId};
use sha2::{Digest as _, Sha256};

use super::Context;
use crate::args::reference::{LAST, Reference};
use crate::failure::{Exit, Failure};
use crate::settings::Sources;

/// Maximum number of servers whose objects are kept.
const SERVERS_MAX: usize = 100;

/// ID of an object that a user can create and refer to as `@last`.
pub(crate) trait Created: Copy + Display + FromStr {
    /// Type of the object, and name of its file.
    const TYPE: &'static str;
    /// Commands that create such an object.
    const CREATED_BY: &'static str;
}

impl Created for JobId {
    const TYPE: &'static str = "job";
    const CREATED_BY: &'static str = "`belfry submit`, `belfry job retry` or `belfry schedule trigger`";
}

impl Created for RunId {
    const TYPE: &'static str = "run";
    const CREATED_BY: &'static str =
        "`belfry workflow start`, `belfry run retry` or `belfry submit --shards`";
}

impl Created for BackfillId {
    const TYPE: &'static str = "backfill";
    const CREATED_BY: &'static str = "`belfry schedule backfill`";
}

impl Context {
    /// Remembers an object that the command has created, for `@last`.
    pub(super) fn created<T: Created>(&self, client: &Client, id: T) {
        if let Some(folder) = folder(&Sources::environment())
            && let Err(error) = write(&folder, client.url(), id)
        {
            tracing::debug!(%error, "cannot write the state of `@last`");
        }
    }

    /// Returns the ID of an object; `@last` is the newest that the user created on this server.
    pub(super) fn id<T: Created>(&self, client: &Client, reference: Reference<T>) -> Result<T, Failure> {
        match reference {
            Reference::Id(id) => Ok(id),
            Reference::Last => {
                let found = folder(&Sources::environment()).and_then(|folder| read(&folder, client.url()));
                found.ok_or_else(|| none::<T>(client.url()))
            }
        }
    }

    /// Returns the IDs of several objects.
    pub(super) fn ids<T: Created>(
        &self,
        client: &Client,
        references: Vec<Reference<T>>,
    ) -> Result<Vec<T>, Failure> {
        references.into_iter().map(|reference| self.id(client, reference)).collect()
    }

    /// Returns the ID of an optional filter.
    pub(super) fn optional_id<T: Created>(
        &self,
        client: &Client,
        reference: Option<Reference<T>>,
    ) -> Result<Option<T>, Failure> {
        reference.map(|reference| self.id(client, reference)).transpose()
    }
}

fn none<T: Created>(url: &str) -> Failure {
    let message = format!("`{LAST}` refers to no {}: you have not created one on {url}", T::TYPE);
    Failure::message(Exit::NotFound, message).help(format!(
        "use the ID of a {}; `{LAST}` is set by {}",
        T::TYPE,
        T::CREATED_BY
    ))
}

fn folder(sources: &Sources) -> Option<PathBuf> {
    Some(sources.user_state()?.join("last"))
}

/// Returns the folder of a server: readable characters of its URL, and a hash that makes the name unique.
fn server(folder: &Path, url: &str) -> PathBuf {
    let readable = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' };
    let (_, host) = url.split_once("://").unwrap_or(("", url));
    let name: String = host.chars().take(64).map(readable).collect();
    let hash: String = Sha256::digest(url).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    folder.join(format!("{name}-{hash}"))
}

fn write<T: Created>(folder: &Path, url: &str, id: T) -> std::io::Result<()> {
    let server = server(folder, url);
    let is_new = !server.exists();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&server)?;
    let mut file = tempfile::Builder::new().prefix(".").tempfile_in(&server)?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o600))?;
    writeln!(file, "{id}")?;
    file.persist(server.join(T::TYPE))?;
    if is_new {
        remove_oldest(folder, SERVERS_MAX)?;
    }
    Ok(())
}

fn read<T: Created>(folder: &Path, url: &str) -> Option<T> {
    std::fs::read_to_string(server(folder, url).join(T::TYPE)).ok()?.trim().parse().ok()
}

/// Removes the folders of the servers that were used least recently, so that `kept` servers are left.
fn remove_oldest(folder: &Path, kept: usize) -> std::io::Result<()> {
    let entries = std::fs::read_dir(folder)?.filter_map(Result::ok);
    // A file that is replaced changes the modification time of its folder.
    let mut servers: Vec<_> =
        entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    servers.sort();
    let surplus = servers.len().saturating_sub(kept);
    for (_, server) in servers.into_iter().take(surplus) {
        std::fs::remove_dir_all(server)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1:7070";

    fn job(n: u128) -> JobId {
        JobId::from_bits(n)
    }

    #[test]
    fn the_last_object_is_kept_by_server_and_type() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("belfry/last");
        assert_eq!(read::<JobId>(&folder, URL), None);
        write(&folder, URL, job(1)).unwrap();
        write(&folder, URL, job(2)).unwrap();
        write(&folder, URL, RunId::from_bits(3)).unwrap();
        write(&folder, "http://127.0.0.1:7071", job(4)).unwrap();
        assert_eq!(read(&folder, URL), Some(job(2)));
        assert_eq!(read(&folder, URL), Some(RunId::from_bits(3)));
        assert_eq!(read(&folder, "http://127.0.0.1:7071"), Some(job(4)));
        assert_eq!(read::<JobId>(&folder, "https://127.0.0.1:7070"), None);
    }

    #[test]
    fn only_the_user_can_read_the_files() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), URL, job(1)).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let server = server(dir.path(), URL);
        assert_eq!((mode(&server), mode(&server.join("job"))), (0o700, 0o600));
        let names: Vec<_> =
            std::fs::read_dir(&server).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["job"], "no partial file is left");
    }

    #[test]
    fn a_damaged_file_and_an_unwritable_folder_give_no_object() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), URL, job(1)).unwrap();
        std::fs::write(server(dir.path(), URL).join("job"), "job_").unwrap();
        assert_eq!(read::<JobId>(dir.path(), URL), None);
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(write(&file, URL, job(1)).is_err());
        assert_eq!(read::<JobId>(&file, URL), None);
    }

    #[test]
    fn the_servers_that_were_used_last_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for port in 1..=4 {
            let url = format!("http://127.0.0.1:{port}");
            write(dir.path(), &url, job(port)).unwrap();
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(port).unwrap());
            std::fs::File::open(server(dir.path(), &url)).unwrap().set_modified(at).unwrap();
        }
        remove_oldest(dir.path(), 2).unwrap();
        let kept =
            [1, 2, 3, 4].map(|port| read::<JobId>(dir.path(), &format!("http://127.0.0.1:{port}")).is_some());
        assert_eq!(kept, [false, false, true, true]);
    }

    #[test]
    fn a_missing_object_is_an_error_that_names_the_server() {
        insta::assert_snapshot!(none::<RunId>(URL).render(false), @r"
        error: `@last` refers to no run: you have not created one on http://127.0.0.1:7070
        help: use the ID of a run; `@last` is set by `belfry workflow start`, `belfry run retry` or `belfry submit --shards`
        ");
    }
}
