//! Repairs of a store while no server uses it.
//!
//! Called by `belfry store reset-clock`. The repair owns all shards while it runs, so that no server can start in the
//! middle.

use engine::Rewind;
use model::record::{Batch, Change, Lease, LiveRow};
use model::{Duration, ShardId, Timestamp};
use store::{Store, StoreError};
use tokio::sync::mpsc;

/// Owner of the shards during the repair.
const OWNER: &str = "belfry store reset-clock";
/// Duration of its leases, in case the repair is interrupted.
const TTL: Duration = Duration::from_secs(60);
/// Most rows that one commit changes.
const ROWS: usize = 2_000;
/// Chunks of rows buffered between the store and the repair.
const CHUNKS: usize = 8;

/// Result of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReset {
    /// Engine time before the reset.
    pub from: Timestamp,
    /// Engine time after the reset.
    pub to: Timestamp,
    /// Number of live rows that were changed.
    pub rows: usize,
}

/// Why engine time was not reset.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum ResetError {
    #[error("a server uses the store: {held} of its shards are owned")]
    Running { held: usize },
    #[error("this machine's clock differs from the database's by {by}")]
    ClocksDiffer { by: Duration },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ResetError {
    /// Returns the next step for the operator.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Running { .. } => {
                "stop all servers of the store; after a crash, wait until their leases have expired"
            }
            Self::ClocksDiffer { .. } => "correct both clocks first",
            Self::Store(error) => error.help(),
        }
    }
}

/// Sets the engine time of a store back to `now`; changes nothing if engine time is not ahead of `now`. Can be repeated
/// after a failure.
///
/// # Errors
/// [`ResetError`]; the changes that were committed before it are consistent.
pub async fn reset_clock(store: &dyn Store, now: Timestamp) -> Result<ClockReset, ResetError> {
    if let Some(theirs) = store.clock().await? {
        let by = theirs.since(now).max(now.since(theirs));
        if by > engine::LEAP_MAX {
            return Err(ResetError::ClocksDiffer { by });
        }
    }
    let all: Vec<ShardId> = (0..store.shards()).map(ShardId).collect();
    let leases = store.acquire(&all, OWNER, TTL).await?;
    let reset = match all.len() - leases.len() {
        0 => rewind(store, &leases, now).await,
        held => Err(ResetError::Running { held }),
    };
    let released = store.release(&leases).await;
    let reset = reset?;
    released?;
    Ok(reset)
}

async fn rewind(store: &dyn Store, leases: &[Lease], now: Timestamp) -> Result<ClockReset, ResetError> {
    let (rows_tx, mut rows) = mpsc::channel::<Vec<LiveRow>>(CHUNKS);
    let keep = async {
        let mut kept = Vec::new();
        // The difference is known only after reading all rows; with the greatest one, the rows that a reset changes are
        // found.
        let probe = Rewind { from: Timestamp::from_micros(i64::MAX), to: now };
        while let Some(chunk) = rows.recv().await {
            kept.extend(chunk.into_iter().filter(|row| !probe.row(row.clone()).is_empty()));
        }
        kept
    };
    let (loaded, kept) = tokio::join!(store.load(leases, rows_tx), keep);
    let from = loaded?.now;
    if from <= now {
        return Ok(ClockReset { from, to: from, rows: 0 });
    }
    let reset = Rewind { from, to: now };
    let rows = kept.len();
    let mut changes: Vec<Change> = kept.into_iter().flat_map(|row| reset.row(row)).collect();
    while !changes.is_empty() {
        let rest = changes.split_off(changes.len().min(ROWS));
        let batch = Batch { now, changes, ..Batch::default() };
        store.renew(leases, TTL).await?;
        store.commit(leases, batch.into()).await?;
        changes = rest;
    }
    // Last: after a failure, a repeated reset finds the old engine time, and changes the remaining rows.
    store.reset_clock(now).await?;
    Ok(ClockReset { from, to: now, rows })
}
