//! Repairs of a store while no server runs on it.

use engine::Rewind;
use model::record::{Batch, Change, Lease, LiveRow};
use model::{Duration, ShardId, Timestamp};
use store::{Store, StoreError};
use tokio::sync::mpsc;

/// Whose the shards are meanwhile.
const OWNER: &str = "belfry store reset-clock";
/// How long they are, should the repair break off.
const TTL: Duration = Duration::from_secs(60);
/// Rows that one commit changes.
const ROWS: usize = 2_000;
/// Chunks of rows on their way from the store.
const CHUNKS: usize = 8;

/// What a reset came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReset {
    /// The engine time that the store had.
    pub from: Timestamp,
    /// The one that it has now.
    pub to: Timestamp,
    /// How many live rows were changed.
    pub rows: usize,
}

/// Why engine time was not reset.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum ResetError {
    #[error("a server runs on the store: {held} of its shards are owned")]
    Running { held: usize },
    #[error("this machine's clock differs from the database's by {by}")]
    ClocksDiffer { by: Duration },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ResetError {
    /// What the operator can do next.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Running { .. } => {
                "stop all servers of the store; after a crash, wait until the leases are over"
            }
            Self::ClocksDiffer { .. } => "set both clocks right first",
            Self::Store(error) => error.help(),
        }
    }
}

/// Sets the engine time of a store back to `now`; where it is not ahead of that, nothing is changed. May be repeated after a failure.
///
/// # Errors
/// [`ResetError`]; what was changed by then is consistent.
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
        // How far each is to be moved is known when all were read; one that changes is told by where it goes.
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
        let batch = Batch { now, changes, events: Vec::new() };
        store.renew(leases, TTL).await?;
        store.commit(leases, batch.into()).await?;
        changes = rest;
    }
    // Last: whoever runs this again after a failure finds engine time where it was.
    store.reset_clock(now).await?;
    Ok(ClockReset { from, to: now, rows })
}
