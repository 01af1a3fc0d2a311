//! Errors of a store.

use model::{Duration, ShardId};

/// Error of a store operation.
///
/// The caller reacts differently to each variant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another server owns the shard. Nothing was changed; the caller drops its engine.
    #[error("shard {shard} was taken over by another server")]
    Fenced {
        /// Shard with the newer epoch.
        shard: ShardId,
    },
    /// The volume is full. Nothing was changed, and reads still work; the caller refuses new work until space is free.
    #[error("no space left on the store's volume")]
    Full,
    /// The commit may or may not have happened. The caller drops its engine and loads the rows again.
    #[error("the outcome of the commit is unknown")]
    OutcomeUnknown {
        /// Error that left the outcome open.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Temporary failure. Nothing was changed; the same call may succeed later.
    #[error("the store is not available")]
    Unavailable {
        /// Cause of the failure.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The disk or the data can no longer be trusted. The process must exit, and must not retry on the same file.
    #[error("the store cannot be trusted: {reason}")]
    Fatal {
        /// What happened, and to which file.
        reason: String,
    },
    /// The file belongs to a member of a Raft cluster, and changes only by the log of the cluster.
    #[error("`{}` belongs to a member of a Raft cluster", path.display())]
    Replica {
        /// The file.
        path: std::path::PathBuf,
    },
    /// A newer version of Belfry wrote the data.
    #[error(
        "a newer version of Belfry wrote the store: expected schema version {known} or older but got {found}"
    )]
    TooNew {
        /// Schema version of the store.
        found: u32,
        /// Newest schema version that this program supports.
        known: u32,
    },
    /// Another store has the file open, in this process or in another one.
    #[error("the store at `{}` is in use by another server", path.display())]
    InUse {
        /// Path of the file.
        path: std::path::PathBuf,
    },
    /// Acknowledged commits are missing from the store. Nothing was changed.
    #[error("the store at `{}` has lost commits: {reason}", path.display())]
    LostCommits {
        /// Path of the file.
        path: std::path::PathBuf,
        /// Evidence of the loss.
        reason: String,
    },
    /// The database is missing or empty, although a store existed. Nothing was changed.
    #[error("the store at `{}` is missing or empty, but it existed: `{}` is there", path.display(), trace.display())]
    Missing {
        /// Path of the database.
        path: std::path::PathBuf,
        /// Path of the file that proves that a store existed.
        trace: std::path::PathBuf,
    },
    /// The store is an incomplete copy of another store.
    #[error("the store is an unfinished copy of `{origin}`")]
    Unfinished {
        /// Location of the original store.
        origin: String,
    },
    /// A query exceeded its time limit.
    #[error("the query took longer than {limit}")]
    TooSlow {
        /// Time limit.
        limit: Duration,
    },
}

impl StoreError {
    /// Returns the next step for the operator or user.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Fenced { .. } => "nothing to do: the new owner continues the work",
            Self::Full => "free space on the volume of the store; the server then resumes work on its own",
            Self::OutcomeUnknown { .. } => {
                "repeat the request with the same idempotency key: nothing is done twice"
            }
            Self::Unavailable { .. } => {
                "retry in a moment; if it repeats, check that the database or the disk responds"
            }
            Self::Fatal { .. } => {
                "check the disk or the database, then restart; restore a backup if the data is damaged"
            }
            Self::Replica { .. } => {
                "make a copy with `belfry store backup`, and use the copy: the members must stay equal"
            }
            Self::TooNew { .. } => {
                "run the newer version of Belfry, or restore a backup from before its upgrade"
            }
            Self::InUse { .. } => "stop the other server, or start this one with another data directory",
            Self::LostCommits { .. } => {
                "run `belfry store check`; then restore a backup or keep the current data; in both cases, \
                 run `belfry store restored` before you start the server"
            }
            Self::Missing { .. } => {
                "restore a backup and run `belfry store restored`; to begin with an empty store, use another \
                 data directory, or move all files out of this one"
            }
            Self::Unfinished { .. } => {
                "run `belfry store copy` again until it completes, or use another database"
            }
            Self::TooSlow { .. } => "narrow the filter: name a namespace, a status or a time range",
        }
    }
}
