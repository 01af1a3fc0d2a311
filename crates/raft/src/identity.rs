//! The files that say which node of which cluster a data folder belongs to.
//!
//! `node.json` is the [`Identity`]. It is written once, when a server creates a cluster or joins one, before anything else
//! of the node. Without the file, a folder belongs to no cluster. A folder must not be copied: two servers with one
//! identity would vote twice.
//!
//! `first-start.json` is the [`FirstStart`]. It is there from before the identity until the server is a voter, so that a
//! server which is killed meanwhile continues as the same node.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::types::NodeId;

/// Names of the files, in the folder of the node.
const FILE: &str = "node.json";
const FIRST_START_FILE: &str = "first-start.json";

/// Identity of a node, for life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The node.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: u128,
    /// Number of shards, the same on all servers of the cluster.
    pub shards: u16,
    /// When the file was written.
    pub created_at: Timestamp,
}

/// The file. Ids are text, because JSON has no integers of 64 bits.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    node: String,
    cluster: String,
    shards: u16,
    created_at: Timestamp,
}

/// Why an identity was not read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The folder has an identity already.
    #[error("`{}` already belongs to node `{}` of cluster `{:032x}`", path.display(), existing.node, existing.cluster)]
    Exists {
        /// The file.
        path: PathBuf,
        /// Its content.
        existing: Identity,
    },
    /// The file cannot be decoded.
    #[error("`{}` is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file system reported an error.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl IdentityError {
    /// Returns what the operator can do next.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Exists { .. } => {
                "start the server without `--bootstrap`: it continues as this node; for another cluster, use another \
                 data folder"
            }
            Self::Damaged { .. } => {
                "remove this server from the cluster, and let it join again with an empty data folder"
            }
            Self::Io { .. } => "check the volume and the permissions of the data folder",
        }
    }
}

impl Identity {
    /// Reads the identity of a folder; `None` if it has none.
    ///
    /// # Errors
    /// [`IdentityError::Damaged`] and [`IdentityError::Io`].
    pub fn read(folder: &Path) -> Result<Option<Self>, IdentityError> {
        let path = folder.join(FILE);
        let Some(text) = read(&path)? else { return Ok(None) };
        Self::parse(&text).map(Some).map_err(|reason| IdentityError::Damaged { path, reason })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let Stored { node, cluster, shards, created_at } =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        let (node, cluster) = (parse_node(&node)?, parse_cluster(&cluster)?);
        if shards == 0 {
            return Err("`shards` must be at least 1".to_owned());
        }
        Ok(Self { node, cluster, shards, created_at })
    }

    /// Writes the identity of a folder, which is created if it is missing. It is durable when this returns.
    ///
    /// # Errors
    /// [`IdentityError::Exists`] if the folder has an identity; see also [`IdentityError`].
    pub fn create(self, folder: &Path) -> Result<(), IdentityError> {
        if let Some(existing) = Self::read(folder)? {
            return Err(IdentityError::Exists { path: folder.join(FILE), existing });
        }
        let stored = Stored {
            node: self.node.to_string(),
            cluster: format!("{:032x}", self.cluster),
            shards: self.shards,
            created_at: self.created_at,
        };
        write(folder, FILE, &stored)
    }
}

/// Writes a file under another name first: a power cut leaves the whole file, or none.
fn write(folder: &Path, name: &str, content: &impl Serialize) -> Result<(), IdentityError> {
    let text = serde_json::to_string_pretty(content).expect("the content is plain data");
    fs::create_dir_all(folder).map_err(failure("create", folder))?;
    let (path, unfinished) = (folder.join(name), folder.join(format!("{name}.new")));
    let written = File::create(&unfinished).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(failure("write", &unfinished))?;
    fs::rename(&unfinished, &path).map_err(failure("rename", &unfinished))?;
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    for folder in [Some(folder), above].into_iter().flatten() {
        sync(folder)?;
    }
    Ok(())
}

fn sync(folder: &Path) -> Result<(), IdentityError> {
    File::open(folder).and_then(|file| file.sync_all()).map_err(failure("sync", folder))
}

/// Reads a file; `None` if it is missing.
fn read(path: &Path) -> Result<Option<String>, IdentityError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failure("read", path)(source)),
    }
}

fn failure(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |source| IdentityError::Io { action, path, source }
}

/// How a server becomes a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstStartKind {
    /// It creates the cluster.
    Bootstrap,
    /// It creates the cluster with the rows of another store.
    Restore,
    /// It joins a cluster.
    Join,
}

/// First start of a server, until it votes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstStart {
    /// How the server becomes a member.
    pub kind: FirstStartKind,
    /// The node, for life.
    pub node: NodeId,
    /// The cluster.
    pub cluster: u128,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredFirstStart {
    kind: FirstStartKind,
    node: String,
    cluster: String,
}

impl FirstStart {
    /// Reads the first start of a folder; `None` if it has not begun, or has ended.
    ///
    /// # Errors
    /// [`IdentityError::Damaged`] and [`IdentityError::Io`].
    pub fn read(folder: &Path) -> Result<Option<Self>, IdentityError> {
        let path = folder.join(FIRST_START_FILE);
        let Some(text) = read(&path)? else { return Ok(None) };
        let parsed = || {
            let StoredFirstStart { kind, node, cluster } =
                serde_json::from_str(&text).map_err(|error| error.to_string())?;
            Ok(Self { kind, node: parse_node(&node)?, cluster: parse_cluster(&cluster)? })
        };
        parsed().map(Some).map_err(|reason| IdentityError::Damaged { path, reason })
    }

    /// Begins the first start of a folder, which is created if it is missing. It is durable when this returns.
    ///
    /// # Errors
    /// [`IdentityError::Exists`] if the folder has an identity; see also [`IdentityError`].
    pub fn begin(self, folder: &Path) -> Result<(), IdentityError> {
        if let Some(existing) = Identity::read(folder)? {
            return Err(IdentityError::Exists { path: folder.join(FILE), existing });
        }
        let cluster = format!("{:032x}", self.cluster);
        write(
            folder,
            FIRST_START_FILE,
            &StoredFirstStart { kind: self.kind, node: self.node.to_string(), cluster },
        )
    }

    /// Ends the first start of a folder, if there is one: the server is a voter.
    ///
    /// # Errors
    /// [`IdentityError::Io`].
    pub fn end(folder: &Path) -> Result<(), IdentityError> {
        let path = folder.join(FIRST_START_FILE);
        match fs::remove_file(&path) {
            Ok(()) => sync(folder),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(failure("remove", &path)(source)),
        }
    }
}

fn parse_node(text: &str) -> Result<NodeId, String> {
    u64::from_str_radix(text, 16).map(NodeId).map_err(|error| format!("`node`: {error}"))
}

fn parse_cluster(text: &str) -> Result<u128, String> {
    u128::from_str_radix(text, 16).map_err(|error| format!("`cluster`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            node: NodeId(0xfedc_ba98_7654_3210),
            cluster: u128::MAX - 5,
            shards: 16,
            created_at: Timestamp::from_micros(1_795_000_000_000_000),
        }
    }

    #[test]
    fn an_identity_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("raft");
        assert_eq!(Identity::read(&folder).unwrap(), None);
        identity().create(&folder).unwrap();
        assert_eq!(Identity::read(&folder).unwrap(), Some(identity()));
    }

    #[test]
    fn a_folder_never_gets_a_second_identity() {
        let folder = tempfile::tempdir().unwrap();
        identity().create(folder.path()).unwrap();
        let other = Identity { node: NodeId(1), ..identity() };
        let refused = other.create(folder.path()).unwrap_err();
        assert!(matches!(refused, IdentityError::Exists { existing, .. } if existing == identity()));
        assert!(refused.help().contains("without `--bootstrap`"));
        assert_eq!(Identity::read(folder.path()).unwrap(), Some(identity()));
    }

    #[test]
    fn a_damaged_identity_is_an_error_and_not_a_new_node() {
        for text in [
            "",
            "{}",
            r#"{"node":"x","cluster":"1","shards":1,"created_at":"2026-11-30T08:00:00Z"}"#,
            r#"{"node":"1","cluster":"1","shards":0,"created_at":"2026-11-30T08:00:00Z"}"#,
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(FILE), text).unwrap();
            let damaged = Identity::read(folder.path()).unwrap_err();
            assert!(matches!(damaged, IdentityError::Damaged { .. }), "{text}: {damaged}");
            assert!(identity().create(folder.path()).is_err(), "{text}");
        }
    }

    #[test]
    fn an_interrupted_first_start_is_continued_until_it_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("raft");
        let first = FirstStart { kind: FirstStartKind::Join, node: NodeId(7), cluster: 9 };
        first.begin(&folder).unwrap();
        assert_eq!(FirstStart::read(&folder).unwrap(), Some(first));
        identity().create(&folder).unwrap();
        assert_eq!(FirstStart::read(&folder).unwrap(), Some(first), "it does not vote yet");
        FirstStart::end(&folder).unwrap();
        FirstStart::end(&folder).unwrap();
        assert_eq!(FirstStart::read(&folder).unwrap(), None);
        assert!(matches!(first.begin(&folder), Err(IdentityError::Exists { .. })));
    }
}
