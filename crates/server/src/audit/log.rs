//! The queue of entries, and their way to the store.
//!
//! One task of a server appends the entries that wait, several in one transaction. It appends under the condition that
//! the last row is the one that it knows; otherwise another server was faster, and it computes the hashes again.
//!
//! A response waits at most [`WAIT_MAX`] for its entry, which then stays in the queue. A full queue drops new entries and
//! counts them; the count becomes an entry.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use audit::{Entry, Hash, Link, Outcome, Sealed, seal};
use model::access::{Resource, Verb};
use model::error_chain::Chain;
use store::audit::{AuditLink, AuditRow};
use store::{Store, StoreError};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use super::repeats::Repeats;
use crate::clock::{Clock, SystemClock};

/// Longest wait of a response for its entry.
pub const WAIT_MAX: Duration = Duration::from_secs(2);
/// Most entries that wait to be written.
const QUEUE_MAX: usize = 10_000;
/// Most entries of one transaction.
const BATCH_MAX: usize = 200;
/// Attempts to append while other servers append.
const ATTEMPTS: usize = 20;
/// Delay after a failed write, and interval of looking for repeats.
const INTERVAL: Duration = Duration::from_secs(1);
/// Actor of entries that the server makes itself.
const SYSTEM: &str = "system";

/// The audit log, shared by all parts of a server.
pub struct AuditLog {
    store: Arc<dyn Store>,
    /// Name of this server.
    server: String,
    queue: Mutex<Queue>,
    repeats: Mutex<Repeats>,
    /// One write at a time.
    writing: tokio::sync::Mutex<Writing>,
    /// Number of entries that left the queue since the start.
    written: watch::Sender<u64>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Entry>,
    /// Number of entries that left the queue since the start.
    written: u64,
    /// Number of entries that did not fit since the last one that did.
    lost: u64,
}

#[derive(Default)]
struct Writing {
    /// Last row of the chain; `None` if it must be read again.
    last: Option<Link>,
    /// First row and number of the rows of a write whose outcome is unknown. They are the first ones of the queue.
    unsure: Option<(Link, usize)>,
    /// Whether the last write failed, and when to try again.
    retry_at: Option<Instant>,
}

impl AuditLog {
    /// Creates the log of the server with this name.
    pub fn new(store: Arc<dyn Store>, server: &str) -> Arc<Self> {
        Arc::new(Self {
            store,
            server: server.to_owned(),
            queue: Mutex::default(),
            repeats: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            written: watch::Sender::new(0),
        })
    }

    /// Returns the name of this server, for entries.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Adds the entry of a successful change, and waits until it is written, at most [`WAIT_MAX`].
    pub async fn changed(self: &Arc<Self>, entry: Entry) {
        let Some(place) = self.push(entry) else { return };
        let mut written = self.written.subscribe();
        // The client may disconnect, which drops this future.
        self.write_soon();
        let waiting = written.wait_for(|written| *written > place);
        if tokio::time::timeout(WAIT_MAX, waiting).await.is_err() {
            tracing::warn!("response sent before its entry of the audit log was written");
        }
    }

    /// Adds an entry, which is written soon.
    pub fn add(self: &Arc<Self>, entry: Entry) {
        if self.push(entry).is_some() {
            self.write_soon();
        }
    }

    /// Adds the entry of a request that did not succeed. Repeated requests are counted.
    pub fn not_succeeded(self: &Arc<Self>, entry: Entry) {
        let first = self.lock_repeats().count(entry, Instant::now());
        if let Some(first) = first {
            self.add(first);
        }
    }

    /// Writes entries of repeats, and entries that could not be written before, until the future is dropped.
    pub async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            for entry in self.lock_repeats().over(Instant::now(), false) {
                self.push(entry);
            }
            self.write_logged().await;
        }
    }

    /// Writes all entries, at a shutdown.
    pub async fn close(&self) {
        self.finish_repeats();
        self.writing.lock().await.retry_at = None;
        self.write_logged().await;
        let left = self.lock_queue().waiting.len();
        if left > 0 {
            tracing::error!(
                entries = left,
                "entries of the audit log are lost: the store did not accept them"
            );
        }
    }

    /// Makes entries of all repeats so far.
    pub(super) fn finish_repeats(&self) {
        for entry in self.lock_repeats().over(Instant::now(), true) {
            self.push(entry);
        }
    }

    /// Adds an entry to the queue. Returns its place, or `None` if the queue is full.
    fn push(&self, entry: Entry) -> Option<u64> {
        let mut queue = self.lock_queue();
        if queue.waiting.len() >= QUEUE_MAX {
            if queue.lost == 0 {
                tracing::error!("entries of the audit log are lost: the queue is full");
            }
            queue.lost += 1;
            return None;
        }
        if queue.lost > 0 {
            let lost = std::mem::take(&mut queue.lost);
            queue.waiting.push_back(self.loss(lost));
        }
        queue.waiting.push_back(entry);
        Some(queue.written + queue.waiting.len() as u64 - 1)
    }

    /// Returns the entry of an action of the server itself.
    pub fn system_entry(&self, action: &str) -> Entry {
        Entry {
            at: SystemClock.now(),
            server: self.server.clone(),
            actor: SYSTEM.to_owned(),
            actor_kind: SYSTEM.to_owned(),
            token_id: None,
            address: None,
            user_agent: None,
            request_id: None,
            action: action.to_owned(),
            verb: Verb::Create,
            resource: Resource::Access,
            namespace: None,
            object: None,
            outcome: Outcome::Allowed,
            code: None,
            affected: None,
            repeats: None,
            changes: Vec::new(),
            changes_truncated: false,
        }
    }

    /// Returns the entry that tells how many entries did not fit into the queue.
    fn loss(&self, lost: u64) -> Entry {
        let (verb, resource, outcome) = (Verb::Delete, Resource::Audit, Outcome::Unknown);
        let entry = self.system_entry("lose_audit_entries");
        Entry { verb, resource, outcome, affected: Some(lost), ..entry }
    }

    /// Returns the number of entries that wait to be written.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lock_queue().waiting.len()
    }

    fn write_soon(self: &Arc<Self>) {
        let log = Arc::clone(self);
        // A request may be dropped with its runtime; then `close` has written, or nothing can.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { log.write_logged().await });
        }
    }

    async fn write_logged(&self) {
        let mut writing = self.writing.lock().await;
        if writing.retry_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let was_failing = writing.retry_at.take().is_some();
        if let Err(error) = self.write(&mut writing).await {
            if !was_failing {
                tracing::warn!(error = %Chain(&error), "cannot write the audit log; retrying");
            }
            writing.retry_at = Some(Instant::now() + INTERVAL);
        }
    }

    /// Writes all entries of the queue.
    async fn write(&self, writing: &mut Writing) -> Result<(), StoreError> {
        loop {
            if let Some((first, count)) = writing.unsure {
                if self.exists(first).await? {
                    self.pop(count);
                }
                writing.unsure = None;
            }
            let batch: Vec<Entry> = self.lock_queue().waiting.iter().take(BATCH_MAX).cloned().collect();
            if batch.is_empty() {
                return Ok(());
            }
            self.append(writing, &batch).await?;
            self.pop(batch.len());
        }
    }

    fn pop(&self, count: usize) {
        let mut queue = self.lock_queue();
        queue.waiting.drain(..count);
        queue.written += count as u64;
        self.written.send_replace(queue.written);
    }

    /// Returns whether a row with this position and hash exists.
    async fn exists(&self, link: Link) -> Result<bool, StoreError> {
        let found = self.store.audit_after(link.sequence - 1, 1).await?;
        Ok(found.first().is_some_and(|row| row.link == stored(link)))
    }

    async fn append(&self, writing: &mut Writing, batch: &[Entry]) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            let last = match writing.last.take() {
                Some(last) => last,
                None => known(self.store.audit_chain().await?.last),
            };
            let rows = rows(last, batch);
            let [Some(first), Some(newest)] =
                [rows.first(), rows.last()].map(|row| row.map(|row| known(row.link)))
            else {
                return Ok(());
            };
            // Until the store has answered. A failure may be one of the answer only.
            writing.unsure = Some((first, rows.len()));
            if self.store.append_audit(&stored(last), &rows).await? {
                *writing = Writing { last: Some(newest), ..Writing::default() };
                return Ok(());
            }
            writing.unsure = None;
            let pause = Duration::from_millis(rand::random_range(1..=20));
            tokio::time::sleep(pause).await;
        }
        Err(StoreError::Unavailable { source: "other servers append to the audit log all the time".into() })
    }

    fn lock_queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_repeats(&self) -> MutexGuard<'_, Repeats> {
        self.repeats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLog").finish_non_exhaustive()
    }
}

/// Returns the rows of entries, after the last row of the chain.
fn rows(mut last: Link, entries: &[Entry]) -> Vec<AuditRow> {
    let sealed = entries.iter().map(|entry| {
        let Sealed { link, body } = seal(last, entry);
        last = link;
        AuditRow {
            link: stored(link),
            at: entry.at,
            namespace: entry.namespace.clone(),
            actor: entry.actor.clone(),
            action: entry.action.clone(),
            verb: entry.verb.as_str().to_owned(),
            resource: entry.resource.as_str().to_owned(),
            object: entry.object.clone(),
            outcome: entry.outcome.as_str().to_owned(),
            body,
        }
    });
    sealed.collect()
}

fn stored(Link { sequence, hash }: Link) -> AuditLink {
    AuditLink { sequence, hash: hash.0 }
}

fn known(AuditLink { sequence, hash }: AuditLink) -> Link {
    Link { sequence, hash: Hash(hash) }
}
