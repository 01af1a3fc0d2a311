//! Why a store did not do what it was asked.

use model::{Duration, ShardId};

/// Why a store did not do what it was asked.
///
/// The caller acts on the difference: see each variant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Somebody else owns the shard by now. Nothing was changed; drop the engine's memory.
    #[error("shard {shard} was taken over by another server")]
    Fenced {
        /// Which shard.
        shard: ShardId,
    },
    /// No space. Nothing was changed, and reading goes on; refuse new work by name until it heals.
    #[error("no space left on the store's volume")]
    Full,
    /// It cannot be known whether the commit happened. Drop the engine's memory and load again.
    #[error("the outcome of the commit is unknown")]
    OutcomeUnknown {
        /// What was seen of it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nothing was changed; the same call may go through later.
    #[error("the store is not available")]
    Unavailable {
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The disk or the data cannot be trusted any more. The process must exit; it never retries on
    /// the same file.
    #[error("the store cannot be trusted: {reason}")]
    Fatal {
        /// What happened, to which file.
        reason: String,
    },
    /// The data was written by a newer version.
    #[error("the store has schema version {found}, and this program knows none above {known}")]
    TooNew {
        /// In the store.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// Another store has the file open, in this process or another.
    #[error("the store at `{}` is in use by another server", path.display())]
    InUse {
        /// Which file.
        path: std::path::PathBuf,
    },
    /// It is not as it was: commits that were acknowledged are not there any more. Nothing was changed.
    #[error("the store at `{}` has lost commits: {reason}", path.display())]
    LostCommits {
        /// Which file.
        path: std::path::PathBuf,
        /// What was seen of it.
        reason: String,
    },
    /// There was a store, and its database is missing or empty. Nothing was changed.
    #[error("the store at `{}` is missing or empty, but it existed: `{}` is there", path.display(), trace.display())]
    Missing {
        /// Which file.
        path: std::path::PathBuf,
        /// What tells of it.
        trace: std::path::PathBuf,
    },
    /// It is a copy of another store, and not whole yet.
    #[error("the store is an unfinished copy of `{origin}`")]
    Unfinished {
        /// Where that one was.
        origin: String,
    },
    /// A query took longer than it may.
    #[error("the query took longer than {limit}")]
    TooSlow {
        /// How long it may take.
        limit: Duration,
    },
}

impl StoreError {
    /// What the operator or user can do next.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Fenced { .. } => "nothing to do: the new owner goes on with the work",
            Self::Full => "free space on the volume of the store; work goes on by itself then",
            Self::OutcomeUnknown { .. } => {
                "repeat the request with the same idempotency key: nothing is done twice"
            }
            Self::Unavailable { .. } => "try again in a moment",
            Self::Fatal { .. } => "check the disk, then restart; restore a backup if the file is damaged",
            Self::TooNew { .. } => {
                "run the newer version of Belfry, or restore a backup from before its upgrade"
            }
            Self::InUse { .. } => "stop the other server, or give this one a data folder of its own",
            Self::LostCommits { .. } => {
                "look at it with `belfry store check`; then bring a backup back, or keep what is there: either way, run \
                 `belfry store restored` before you start the server"
            }
            Self::Missing { .. } => {
                "bring a backup back and run `belfry store restored`; to begin with an empty store, name another data \
                 directory, or move everything out of this one"
            }
            Self::Unfinished { .. } => {
                "run `belfry store copy` once more until it is through, or name another database"
            }
            Self::TooSlow { .. } => "narrow the filter: name a namespace, a status or a time range",
        }
    }
}
