//! A new cluster with the rows of another store: of a backup, of an embedded store, or of a cluster that has lost its
//! majority.
//!
//! ```text
//! source                        DIR/raft/restoring/       DIR/raft/
//!   rows        ──copy──────>     state.db
//!   log         ──copy, apply─>   state.db                              only of a member
//!                                 state.db  ──rename──>     state.db    begins the log of the new cluster
//! ```
//!
//! The source is only read, and no server may use it. Nothing of an interrupted call is used: the next one begins again.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::Membership;
use store::StoreError;
use store::replica::{LogBegin, Replica, ReplicaOptions, begin_log};
use store::sqlite::{Backup, BackupError, backup, backup_stopped};

use super::joining::SECRET as JOIN_TOKEN;
use super::machine::{ReplicaMachine, position};
use crate::codec::{self, encode_membership};
use crate::error::OpenError;
use crate::identity::{Identity, IdentityError};
use crate::log::{OnFailure, Options as LogOptions, Start as LogStart};
use crate::machine::MachineError;
use crate::node::replay::replay;
use crate::types::{LogId, NodeId, Peer};

/// Name of the file with the rows of a node, in its folder.
pub(super) const ROWS: &str = "state.db";
/// Name of an embedded store in the data folder of its server.
const EMBEDDED: &str = "belfry.db";
/// Name of the folder of a node in the data folder of its server.
const NODE: &str = "raft";
/// Name of the folder in which a restore works.
pub(super) const WORK: &str = "restoring";

/// Why a cluster was not restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// There is nothing to restore from.
    #[error("there is no store at `{}`", path.display())]
    NoSource {
        /// The path.
        path: PathBuf,
    },
    /// The rows could not be copied.
    #[error("cannot copy the rows of the store `{}`", path.display())]
    Copy {
        /// File of the source.
        path: PathBuf,
        /// Why not.
        #[source]
        source: BackupError,
    },
    /// The source says that it is a member of a cluster, but its identity cannot be read.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The entries of the source cannot be applied.
    #[error("cannot apply the log of the member `{}`", folder.display())]
    Log {
        /// Folder of the member.
        folder: PathBuf,
        /// Why not.
        #[source]
        source: OpenError,
    },
    /// The copy cannot become the start of a log.
    #[error("cannot use the rows of the store `{}`", path.display())]
    Rows {
        /// File of the source.
        path: PathBuf,
        /// Why not.
        #[source]
        source: StoreError,
    },
    /// The file system reported an error.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

impl RestoreError {
    /// Returns whether a server uses the store.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::Copy { source: BackupError::Store(StoreError::InUse { .. }), .. })
    }

    /// Returns what the operator can do next.
    pub fn help(&self) -> &'static str {
        match self {
            Self::NoSource { .. } => {
                "pass a backup, or the data folder of a server that has stopped; copy a database into a file with \
                 `belfry store copy`"
            }
            _ if self.is_in_use() => "stop the server that uses it: two servers would run the same jobs",
            Self::Copy { source, .. } => source.help(),
            Self::Identity(_) | Self::Log { .. } => {
                "use the folder of another member, or a backup: the log cannot be read completely"
            }
            Self::Rows { source, .. } => source.help(),
            Self::Io { .. } => "check the volume and the permissions of the data folder",
        }
    }
}

/// What was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// Number of shards of the store.
    pub shards: u16,
    /// Number of rows, without those of `entries`.
    pub rows: u64,
    /// Size of the rows in bytes.
    pub bytes: u64,
    /// Entries of the member's log that its rows did not contain yet.
    pub entries: u64,
    /// Last entry of a member.
    pub last: Option<LogId>,
}

/// What a path names.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// File of an embedded store, or a backup.
    File(PathBuf),
    /// Folder of a member of a cluster.
    Member(PathBuf),
}

impl Source {
    fn rows(&self) -> PathBuf {
        match self {
            Self::File(file) => file.clone(),
            Self::Member(folder) => folder.join(ROWS),
        }
    }

    fn of(path: &Path) -> Result<Self, RestoreError> {
        if path.is_dir() {
            let (node, file) = (path.join(NODE), path.join(EMBEDDED));
            return match () {
                () if is_member(path) => Ok(Self::Member(path.to_owned())),
                () if is_member(&node) => Ok(Self::Member(node)),
                () if file.is_file() => Ok(Self::File(file)),
                () => Err(RestoreError::NoSource { path: path.to_owned() }),
            };
        }
        match path.parent() {
            // Its last acknowledged entries may be in the log only.
            Some(folder) if path.file_name().is_some_and(|name| name == ROWS) && is_member(folder) => {
                Ok(Self::Member(folder.to_owned()))
            }
            _ if path.is_file() => Ok(Self::File(path.to_owned())),
            _ => Err(RestoreError::NoSource { path: path.to_owned() }),
        }
    }
}

/// Returns whether a folder has the rows and the log of a member of a cluster.
pub fn is_member(folder: &Path) -> bool {
    folder.join(ROWS).is_file() && folder.join("log").is_dir()
}

/// Returns whether the folder of a node has rows.
pub fn has_rows(folder: &Path) -> bool {
    folder.join(ROWS).exists()
}

/// Copies the rows of the store at `source` into the folder of a new node, which is the only member of a new cluster. The node is
/// then opened with [`Start::Bootstrap`](crate::node::Start::Bootstrap), and must call
/// [`mark_restored`](store::Leases::mark_restored) before its first lease: the rows may be older than what workers know.
///
/// `source` is a backup, the data folder of an embedded store, or that of a member, whose log is applied completely.
///
/// # Errors
/// See [`RestoreError`]; the folder has no rows then.
pub async fn restore(source: &Path, folder: &Path, node: NodeId, me: Peer) -> Result<Restored, RestoreError> {
    let source = Source::of(source)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failure("create", folder))?;
    let work = Work::begin(folder.join(WORK))?;
    let Copied { backup, entries, last } = work.copy(&source).await?;
    let membership = encode_membership(&Membership::new(vec![[node].into()], BTreeMap::from([(node, me)])));
    let (rows, target) = (work.rows(), folder.join(ROWS));
    let finishing = move || {
        let at = position(codec::log_id(0, node, 1));
        let begin = LogBegin { at, membership: &membership, secrets: &[JOIN_TOKEN] };
        let unusable = |error| RestoreError::Rows { path: source.rows(), source: error };
        let shards = begin_log(&rows, &begin).map_err(unusable)?;
        fs::rename(&rows, &target).map_err(failure("create", &target))?;
        sync(target.parent().unwrap_or(&target))?;
        Ok(shards)
    };
    let shards = blocking(&work.0, finishing).await?;
    Ok(Restored { shards, rows: backup.rows, bytes: backup.bytes, entries, last })
}

/// Copies all rows of a member that has stopped into the new file `to`, with those that only its log contains. The copy is an
/// embedded store.
///
/// # Errors
/// See [`RestoreError`]; there is no file then.
pub async fn backup_member(folder: &Path, to: &Path) -> Result<Backup, RestoreError> {
    if to.symlink_metadata().is_ok() {
        let source = BackupError::Exists { path: to.to_owned() };
        return Err(RestoreError::Copy { path: folder.join(ROWS), source });
    }
    let mut work = to.as_os_str().to_owned();
    work.push(".working");
    let work = Work::begin(PathBuf::from(work))?;
    work.copy(&Source::Member(folder.to_owned())).await?;
    let (rows, to) = (work.rows(), to.to_owned());
    let copying =
        move || backup(&rows, &to).map_err(|source| RestoreError::Copy { path: rows.clone(), source });
    blocking(&work.0, copying).await
}

/// Runs work that blocks, in a folder.
async fn blocking<T: Send + 'static>(
    folder: &Path,
    work: impl FnOnce() -> Result<T, RestoreError> + Send + 'static,
) -> Result<T, RestoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(failure("work in", folder)(io::Error::other(error))))
}

fn failure(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RestoreError {
    let path = path.to_owned();
    move |source| RestoreError::Io { action, path, source }
}

/// The folder in which a restore works; removed when it is dropped.
struct Work(PathBuf);

/// Rows that were copied.
struct Copied {
    backup: Backup,
    /// Entries of the log that were applied to them.
    entries: u64,
    last: Option<LogId>,
}

impl Work {
    fn begin(path: PathBuf) -> Result<Self, RestoreError> {
        remove(&path).map_err(failure("remove", &path))?;
        DirBuilder::new().mode(0o700).create(&path).map_err(failure("create", &path))?;
        Ok(Self(path))
    }

    fn rows(&self) -> PathBuf {
        self.0.join(ROWS)
    }

    /// Copies the rows of a store that no server uses; of a member with all entries of its log.
    async fn copy(&self, source: &Source) -> Result<Copied, RestoreError> {
        let (from, to) = (source.rows(), self.rows());
        let copying = move || {
            backup_stopped(&from, &to).map_err(|source| RestoreError::Copy { path: from.clone(), source })
        };
        let backup = blocking(&self.0, copying).await?;
        let (entries, last) = match source {
            Source::File(_) => (0, None),
            Source::Member(member) => self.apply_log(member).await?,
        };
        Ok(Copied { backup, entries, last })
    }

    /// Applies the log of a member to the copy of its rows. Returns the number of entries that they lacked, and the last one.
    async fn apply_log(&self, member: &Path) -> Result<(u64, Option<LogId>), RestoreError> {
        let Some(Identity { node, cluster, shards, .. }) = Identity::read(member)? else {
            return Err(RestoreError::NoSource { path: member.to_owned() });
        };
        let (from, to) = (member.to_owned(), self.0.clone());
        blocking(&self.0, move || {
            ["log", "snapshots"].iter().try_for_each(|name| copy_files(&from.join(name), &to.join(name)))
        })
        .await?;
        let of_log = |source| RestoreError::Log { folder: member.to_owned(), source };
        let of_rows = |problem: &str, error: StoreError| {
            of_log(OpenError::Machine(MachineError::caused(format!("{problem}: {error}"), error)))
        };
        let defaults = store::sqlite::Options::default();
        let options = ReplicaOptions {
            shards,
            readers: defaults.readers,
            query_limit: defaults.query_limit,
            ballast_bytes: 0,
            clock: defaults.clock,
        };
        let rows = self.rows();
        let opened = blocking(&self.0, move || Ok(Replica::open(&rows, options))).await?;
        let replica = Arc::new(opened.map_err(|error| of_rows("cannot open the copy", error))?);
        let index = |replica: &Replica| replica.applied().borrow().applied.map_or(0, |applied| applied.index);
        let before = index(&replica);
        // A failure is also the error of the call that met it.
        let on_failure =
            OnFailure::call(|failure| tracing::error!(%failure, "the copy of a log cannot be used"));
        let options = LogOptions { on_failure, ..LogOptions::new(cluster, node, LogStart::Existing) };
        let replayed = replay(&self.0, options, Arc::new(ReplicaMachine::new(Arc::clone(&replica)))).await;
        let after = index(&replica);
        replica.close().await;
        let last = replayed.map_err(of_log)?;
        Ok((after.saturating_sub(before), last))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // The next restore removes what is left.
        let _ = remove(&self.0);
    }
}

fn sync(folder: &Path) -> Result<(), RestoreError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failure("sync", folder))
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Copies the files of a folder, if it exists.
fn copy_files(from: &Path, to: &Path) -> Result<(), RestoreError> {
    let entries = match fs::read_dir(from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failure("read", from)(error)),
    };
    fs::create_dir_all(to).map_err(failure("create", to))?;
    for entry in entries {
        let entry = entry.map_err(failure("read", from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_file() {
            fs::copy(&path, &target).map_err(failure("copy", &path))?;
        }
    }
    Ok(())
}
