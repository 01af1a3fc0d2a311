//! Connections that read, each used by one query at a time.
//!
//! There are few of them, so a flood of queries waits in line instead of taking the machine from the
//! writer; the wait and the query itself both have an end. A query reads one state of the store from
//! its first row to its last, whatever is committed meanwhile.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use model::Duration;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::error::{Failure, Phase, Trust};
use super::file;
use crate::StoreError;

/// How many steps of SQLite's machine go between two looks at the clock; well under a millisecond.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;

/// A bounded pool of read-only connections.
#[derive(Debug, Clone)]
pub(super) struct Readers {
    trust: Trust,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    limit: Duration,
}

impl Readers {
    pub(super) fn new(trust: Trust, size: usize, limit: Duration) -> Self {
        let permits = Arc::new(Semaphore::new(size.max(1)));
        Self { trust, idle: Arc::default(), permits, limit }
    }

    /// Runs `query` in a read transaction on a thread where it may block.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.trust.check()?;
        let waiting = Arc::clone(&self.permits).acquire_owned();
        let permit = tokio::time::timeout(self.limit.to_std(), waiting)
            .await
            .map_err(|_| StoreError::Unavailable { source: "too many queries at once".into() })?
            .map_err(|error| StoreError::Unavailable { source: error.into() })?;
        let readers = self.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            readers.run(query)
        });
        work.await.map_err(|error| StoreError::Unavailable { source: error.into() })?
    }

    fn run<T>(&self, query: impl FnOnce(&Connection) -> Result<T, Failure>) -> Result<T, StoreError> {
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
        let result = in_transaction(&connection, query);
        // A connection that cannot end its transaction is closed instead of being used again.
        if connection.is_autocommit() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
        result.map_err(judge)
    }
}

/// Runs `query` on one state of the store.
pub(super) fn in_transaction<T>(
    connection: &Connection,
    query: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    connection.prepare_cached("BEGIN DEFERRED")?.execute([])?;
    let result = query(connection);
    // Nothing was changed, so this only lets go of the snapshot.
    let _ = connection.prepare_cached("ROLLBACK").and_then(|mut end| end.execute([]));
    result
}
