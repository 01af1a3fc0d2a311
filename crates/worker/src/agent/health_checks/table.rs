//! Newest health of all watched executions, until it is sent to the server.
//!
//! The health checks write into the table, and the session reads the changes from it. The table keeps the newest
//! health of each execution only. So a slow server delays no check and costs no memory, and a new session can send
//! everything again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use proto::v1::ExecutionHealth;
use tokio::sync::Notify;

/// Health of all watched executions.
#[derive(Debug, Default)]
pub(in crate::agent) struct HealthTable {
    rows: Mutex<Rows>,
    has_changed: Notify,
}

#[derive(Debug, Default)]
struct Rows {
    by_execution: BTreeMap<String, ExecutionHealth>,
    /// Executions whose health the server does not have.
    unsent: BTreeSet<String>,
}

impl HealthTable {
    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an execution.
    pub(super) fn insert(&self, health: ExecutionHealth) {
        let mut rows = self.lock();
        rows.unsent.insert(health.execution_id.clone());
        rows.by_execution.insert(health.execution_id.clone(), health);
        drop(rows);
        self.has_changed.notify_one();
    }

    /// Changes the health of an execution. Has no effect after the execution was removed, so that an aborted check
    /// cannot add it again.
    pub(super) fn update(&self, health: ExecutionHealth) {
        let mut rows = self.lock();
        let Some(row) = rows.by_execution.get_mut(&health.execution_id) else { return };
        if row.fence == health.fence && *row != health {
            *row = health.clone();
            rows.unsent.insert(health.execution_id);
            drop(rows);
            self.has_changed.notify_one();
        }
    }

    /// Removes an execution that has ended.
    pub(super) fn remove(&self, execution_id: &str) {
        let mut rows = self.lock();
        rows.by_execution.remove(execution_id);
        rows.unsent.remove(execution_id);
    }

    /// Marks all executions as unsent; called at the start of a session.
    pub(in crate::agent) fn mark_all_unsent(&self) {
        let mut rows = self.lock();
        rows.unsent = rows.by_execution.keys().cloned().collect();
    }

    /// Removes up to `count_max` unsent executions from the list, and returns their health.
    pub(in crate::agent) fn take_unsent(&self, count_max: usize) -> Vec<ExecutionHealth> {
        let mut rows = self.lock();
        let mut taken = Vec::new();
        while taken.len() < count_max
            && let Some(execution_id) = rows.unsent.pop_first()
        {
            taken.extend(rows.by_execution.get(&execution_id).cloned());
        }
        taken
    }

    /// Waits until there is an unsent execution.
    pub(in crate::agent) async fn wait_for_unsent(&self) {
        while self.lock().unsent.is_empty() {
            self.has_changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(execution_id: &str, detail: &str) -> ExecutionHealth {
        ExecutionHealth {
            execution_id: execution_id.into(),
            detail: detail.into(),
            ..ExecutionHealth::default()
        }
    }

    #[test]
    fn only_the_newest_health_of_an_execution_is_sent() {
        let table = HealthTable::default();
        table.insert(health("a", "1"));
        table.insert(health("b", "3"));
        table.update(health("a", "2"));
        assert_eq!(table.take_unsent(1), [health("a", "2")]);
        assert_eq!(table.take_unsent(9), [health("b", "3")]);
        table.update(health("a", "2"));
        assert_eq!(table.take_unsent(9), []);
        table.mark_all_unsent();
        table.remove("a");
        table.update(health("a", "4"));
        assert_eq!(table.take_unsent(9), [health("b", "3")]);
    }

    #[tokio::test]
    async fn a_change_ends_the_wait() {
        let table = HealthTable::default();
        tokio::join!(table.wait_for_unsent(), async { table.insert(health("a", "")) });
    }
}
