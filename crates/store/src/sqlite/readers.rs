//! Pool of reading connections, each used by one query at a time.
//!
//! The pool is small, so that a burst of queries waits in a queue instead of slowing down the writer. The wait and the
//! query have time limits. A query reads one snapshot, whatever is committed meanwhile, and is answered after that
//! snapshot is durable.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use model::Duration;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::error::{Failure, FatalState, Phase};
use super::file;
use super::syncer::Durable;
use crate::StoreError;

/// Number of SQLite virtual machine steps between two checks of the time limit; well under a millisecond.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;

/// Bounded pool of read-only connections.
#[derive(Debug, Clone)]
pub(super) struct Readers {
    trust: FatalState,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    limit: Duration,
    durable: Durable,
}

impl Readers {
    pub(super) fn new(trust: FatalState, durable: Durable, size: usize, limit: Duration) -> Self {
        let permits = Arc::new(Semaphore::new(size.max(1)));
        Self { trust, idle: Arc::default(), permits, limit, durable }
    }

    #[cfg(test)]
    pub(super) fn idle_connections(&self) -> usize {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Runs `query` in a read transaction on a thread that may block.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.trust.check()?;
        let waiting = Arc::clone(&self.permits).acquire_owned();
        let permit = tokio::time::timeout(self.limit.to_std(), waiting)
            .await
            .map_err(|_| StoreError::Unavailable { source: "too many concurrent queries".into() })?
            .map_err(|error| StoreError::Unavailable { source: error.into() })?;
        let readers = self.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            readers.run(query)
        });
        let (answer, seen) =
            work.await.map_err(|error| StoreError::Unavailable { source: error.into() })??;
        tokio::time::timeout(self.limit.to_std(), self.durable.reached(seen)).await.map_err(|_| {
            StoreError::Unavailable { source: "the fsync of the store takes too long".into() }
        })?;
        self.trust.check().and(Ok(answer))
    }

    /// Returns the answer, and the newest transaction that it may contain.
    fn run<T>(&self, query: impl FnOnce(&Connection) -> Result<T, Failure>) -> Result<(T, u64), StoreError> {
        let judge = |failure| self.trust.judge(failure, Phase::Query { limit: self.limit });
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => file::open_reader(&self.trust.path).map_err(judge)?,
        };
        let deadline = Instant::now() + self.limit.to_std();
        connection
            .progress_handler(STEPS_BETWEEN_LOOKS, Some(move || Instant::now() >= deadline))
            .map_err(|error| judge(error.into()))?;
        let result = in_transaction(&connection, &self.durable, query);
        // A connection that cannot end its transaction is closed and not used again.
        if connection.is_autocommit() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
        result.map_err(judge)
    }
}

/// Runs `query` on one snapshot; also returns the newest transaction that the snapshot may contain.
pub(super) fn in_transaction<T>(
    connection: &Connection,
    durable: &Durable,
    query: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Result<(T, u64), Failure> {
    connection.prepare_cached("BEGIN DEFERRED")?.execute([])?;
    // A transaction takes its snapshot when it reads its first row.
    let begun = connection.prepare_cached("SELECT 1 FROM meta")?.query_row([], |_| Ok(durable.visible()));
    let result = begun.map_err(Failure::from).and_then(|seen| Ok((query(connection)?, seen)));
    // Nothing was changed, so this only releases the snapshot.
    let _ = connection.prepare_cached("ROLLBACK").and_then(|mut end| end.execute([]));
    result
}
