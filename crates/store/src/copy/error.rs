//! Why a copy ended early.

use std::path::PathBuf;

use super::Verified;
use crate::StoreError;

/// Why a copy was refused, or ended before it was finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message says it")]
pub enum CopyError {
    #[error("there is no store at `{}`", path.display())]
    NoSource { path: PathBuf },
    #[error("the source has schema version {found}, expected {expected}")]
    OldSource { found: u32, expected: u32 },
    #[error("the source cannot be read")]
    Source(#[source] StoreError),
    #[error("the target cannot be used")]
    Target(#[source] StoreError),
    #[error("the server `{name}` works on the target")]
    Served { name: String },
    #[error("the target is not empty: `{table}` has rows")]
    NotEmpty { table: String },
    #[error("the target is a finished copy of `{origin}`")]
    Finished { origin: String },
    #[error(
        "the target holds an unfinished copy of another store, or of this one as it was before: `{origin}`"
    )]
    OtherSource { origin: String },
    #[error("somebody else works in the target: another copy, or a server")]
    Overtaken,
    #[error("a row of `{table}` in the source cannot be copied (key `{key}`): {reason}")]
    Row { table: &'static str, key: String, reason: String },
    #[error("`{table}` is not the same in the target as in the source")]
    Differs { table: &'static str, tables: Vec<Verified> },
}

impl CopyError {
    /// What the operator can do next.
    pub fn help(&self) -> &'static str {
        match self {
            Self::NoSource { .. } => "name the data folder of the server that ran, or its `belfry.db`",
            Self::OldSource { .. } => "start the server of this version on it once, stop it, and copy again",
            Self::Source(StoreError::InUse { .. }) => {
                "stop the server that runs on it: its rows must not change"
            }
            Self::Source(error) => error.help(),
            Self::Target(StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. }) => {
                "once the database answers, run the same command again: it goes on where it was"
            }
            Self::Target(error) => error.help(),
            Self::Served { .. } => "name a database of its own for the copy",
            Self::NotEmpty { .. } | Self::OtherSource { .. } => {
                "name an empty database; nothing is ever merged into one that is not"
            }
            Self::Finished { .. } => {
                "there is nothing to do: start the servers with `--store`, or name an empty database"
            }
            Self::Overtaken => "let one of them end, then run the same command again",
            Self::Row { .. } => {
                "start a server on the source once, which sets such rows aside; stop it, and copy again"
            }
            Self::Differs { .. } => "somebody else wrote into the target: copy into a new, empty database",
        }
    }
}

/// What stands in the way of a copy that is to begin.
#[derive(Debug)]
pub(crate) enum Obstacle {
    Server(String),
    Rows(String),
}

impl From<Obstacle> for CopyError {
    fn from(obstacle: Obstacle) -> Self {
        match obstacle {
            Obstacle::Server(name) => Self::Served { name },
            Obstacle::Rows(table) => Self::NotEmpty { table },
        }
    }
}
