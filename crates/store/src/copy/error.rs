//! Why a copy ended early.

use std::path::PathBuf;

use super::Verified;
use crate::StoreError;
use crate::sqlite::RowsError;

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
    #[error("there is no store in the source")]
    EmptySource,
    #[error("the source is itself an unfinished copy of `{origin}`")]
    UnfinishedSource { origin: String },
    #[error("the server `{name}` works on the source")]
    ServedSource { name: String },
    #[error("a server worked on the source while it was copied")]
    Changed,
    #[error("`{}` exists", path.display())]
    Exists { path: PathBuf },
    #[error("cannot write `{}`", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
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
            Self::EmptySource => "name the database that the servers ran on",
            Self::UnfinishedSource { .. } => "finish that copy, or copy from its own source",
            Self::ServedSource { .. } | Self::Changed => {
                "stop all servers of the source, then run the same command again: its rows must not change"
            }
            Self::Exists { .. } => {
                "name a data directory without a store: nothing is ever merged or written over"
            }
            Self::Write { .. } => "make sure that the directory is writable and has space",
            Self::Differs { .. } => "somebody else wrote into the target: copy into a new, empty database",
        }
    }
}

impl CopyError {
    pub(crate) fn from_source(error: RowsError) -> Self {
        match error {
            RowsError::Row(error) => error,
            RowsError::Store(error) => Self::Source(error),
        }
    }

    pub(crate) fn from_target(error: RowsError) -> Self {
        match error {
            RowsError::Row(error) => error,
            RowsError::Store(error) => Self::Target(error),
        }
    }

    /// The same of a database that is the source.
    pub(crate) fn of_source(self) -> Self {
        match self {
            Self::Target(error) => Self::Source(error),
            Self::Served { name } => Self::ServedSource { name },
            Self::Overtaken => Self::Changed,
            other => other,
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
