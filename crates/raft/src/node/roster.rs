//! What the servers of the cluster announce about themselves.
//!
//! Announcements are not replicated: two a second from each server would be an fsync each. Every node sends its own to the
//! leader and gets the leader's list, which becomes its own. The bodies are the server's; the node does not read them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::net::message::AnnounceRow;
use crate::types::{LogId, NodeId};

/// What a server has announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The server's node.
    pub node: NodeId,
    /// Time since the server has announced this, to the leader.
    pub age: Duration,
    /// Last entry that the server had applied.
    pub applied: Option<LogId>,
    /// What the server says about itself.
    pub body: Vec<u8>,
}

#[derive(Debug)]
struct Entry {
    announced: Instant,
    row: AnnounceRow,
}

/// The list of announcements that have not expired.
#[derive(Debug, Default)]
pub(crate) struct Roster(Mutex<BTreeMap<NodeId, Entry>>);

impl Roster {
    /// Adds an announcement, or replaces the node's earlier one.
    pub(crate) fn put(&self, row: AnnounceRow) {
        let age = Duration::from_millis(row.age_millis);
        let announced = Instant::now().checked_sub(age).unwrap_or_else(Instant::now);
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.insert(row.node, Entry { announced, row });
    }

    /// Replaces the list.
    pub(crate) fn set(&self, rows: Vec<AnnounceRow>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for row in rows {
            self.put(row);
        }
    }

    /// Returns the announcements whose time to live has not passed.
    pub(crate) fn rows(&self) -> Vec<AnnounceRow> {
        let now = Instant::now();
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let age = |entry: &Entry| now.saturating_duration_since(entry.announced);
        entries.retain(|_, entry| age(entry) < Duration::from_millis(entry.row.ttl_millis));
        let row = |entry: &Entry| AnnounceRow {
            age_millis: u64::try_from(age(entry).as_millis()).unwrap_or(u64::MAX),
            ..entry.row.clone()
        };
        entries.values().map(row).collect()
    }

    pub(crate) fn announcements(&self) -> Vec<Announcement> {
        let announcement = |row: AnnounceRow| Announcement {
            node: row.node,
            age: Duration::from_millis(row.age_millis),
            applied: row.applied.map(LogId::from),
            body: row.body,
        };
        self.rows().into_iter().map(announcement).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_announcement_expires_and_its_age_counts_on() {
        let roster = Roster::default();
        let row = |node, age_millis, ttl_millis| AnnounceRow {
            node: NodeId(node),
            age_millis,
            ttl_millis,
            applied: None,
            body: vec![],
        };
        roster.set(vec![row(1, 100, 1000), row(2, 0, 300)]);
        tokio::time::advance(Duration::from_millis(400)).await;
        let rows = roster.rows();
        assert_eq!(rows, [row(1, 500, 1000)]);
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(roster.rows(), []);
    }
}
