//! Errors of a copy.

use std::path::PathBuf;

use super::Verified;
use crate::StoreError;
use crate::sqlite::RowsError;

/// Error of a copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message says it")]
pub enum CopyError {
    #[error("there is no store at `{}`", path.display())]
    NoSource { path: PathBuf },
    #[error("expected schema version {expected} in the source but got {found}")]
    OldSource { found: u32, expected: u32 },
    #[error("the source cannot be read")]
    Source(#[source] StoreError),
    #[error("the target cannot be used")]
    Target(#[source] StoreError),
    #[error("the server `{name}` uses the target")]
    Served { name: String },
    #[error("the target is not empty: `{table}` has rows")]
    NotEmpty { table: String },
    #[error("the target is a finished copy of `{origin}`")]
    Finished { origin: String },
    #[error(
        "the target holds an unfinished copy of another store, or of this one as it was before: `{origin}`"
    )]
    OtherSource { origin: String },
    #[error("another copy or a server uses the target")]
    Conflict,
    #[error("a row of `{table}` in the source cannot be copied (key `{key}`): {reason}")]
    Row { table: &'static str, key: String, reason: String },
    #[error("there is no store in the source")]
    EmptySource,
    #[error("the source is itself an unfinished copy of `{origin}`")]
    UnfinishedSource { origin: String },
    #[error("the server `{name}` uses the source")]
    ServedSource { name: String },
    #[error("a server used the source during the copy")]
    Changed,
    #[error("cannot copy to `{}`: it already exists", path.display())]
    Exists { path: PathBuf },
    #[error("cannot write `{}`", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("`{table}` differs between source and target")]
    Differs { table: &'static str, tables: Vec<Verified> },
}

impl CopyError {
    /// Returns the next step for the operator.
    pub fn help(&self) -> &'static str {
        match self {
            Self::NoSource { .. } => "pass the data directory of the server, or its `belfry.db`",
            Self::OldSource { .. } => "start the server of this version on it once, stop it, and copy again",
            Self::Source(StoreError::InUse { .. }) => {
                "stop the server that runs on it: its rows must not change"
            }
            Self::Source(error) => error.help(),
            Self::Target(StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. }) => {
                "once the database answers, run the same command again: it continues where it stopped"
            }
            Self::Target(error) => error.help(),
            Self::Served { .. } => "use a separate database for the copy",
            Self::NotEmpty { .. } | Self::OtherSource { .. } => {
                "use an empty database; a copy never merges into existing data"
            }
            Self::Finished { .. } => {
                "there is nothing to do: start the servers with `--store`, or use an empty database"
            }
            Self::Conflict => "wait until the other one has ended, then run the same command again",
            Self::Row { .. } => {
                "start a server on the source once, which quarantines such rows; stop it, and copy again"
            }
            Self::EmptySource => "use the URL of the database that the servers used",
            Self::UnfinishedSource { .. } => "finish that copy, or copy from its original source",
            Self::ServedSource { .. } | Self::Changed => {
                "stop all servers of the source, then run the same command again: its rows must not change"
            }
            Self::Exists { .. } => {
                "use a data directory without a store: a copy never merges or overwrites data"
            }
            Self::Write { .. } => "make sure that the directory is writable and has space",
            Self::Differs { .. } => "another process wrote to the target: copy into a new, empty database",
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

    /// Converts an error of a target into an error of a database that is the source.
    pub(crate) fn of_source(self) -> Self {
        match self {
            Self::Target(error) => Self::Source(error),
            Self::Served { name } => Self::ServedSource { name },
            Self::Conflict => Self::Changed,
            other => other,
        }
    }
}

/// Obstacle to a new copy.
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
