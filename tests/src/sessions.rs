//! Ends database sessions of servers at random times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use store::suite::cluster::Cluster;

/// Prefers a session that is about to commit; otherwise picks any session.
const END_ONE: &str = "SELECT (query = 'COMMIT')::TEXT FROM (
    SELECT pid, query FROM pg_stat_activity WHERE application_name = 'belfry'
    AND datname = current_database() AND pid <> pg_backend_pid()
    ORDER BY (state = 'active' AND query = 'COMMIT') DESC, random() LIMIT 1
) AS one WHERE pg_terminate_backend(pid)";
/// Poll interval while no session is to be ended.
const LOOK: Duration = Duration::from_millis(5);

/// Ends sessions one after the other (`pg_terminate_backend`) while it is switched on.
#[derive(Debug)]
pub struct SessionKiller {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Orders {
    rages: AtomicBool,
    is_over: AtomicBool,
    ended: AtomicU32,
    in_commit: AtomicU32,
}

impl SessionKiller {
    /// Creates a killer for the sessions with a database; it is switched off.
    pub fn new(cluster: Arc<Cluster>, database: &str) -> Self {
        let orders = Arc::new(Orders::default());
        let (told, database) = (Arc::clone(&orders), database.to_owned());
        let thread = std::thread::spawn(move || {
            while !told.is_over.load(Ordering::Relaxed) {
                if !told.rages.load(Ordering::Relaxed) {
                    std::thread::sleep(LOOK);
                    continue;
                }
                // An unavailable database has no sessions.
                for ended in cluster.try_execute(&database, END_ONE).unwrap_or_default() {
                    told.ended.fetch_add(1, Ordering::Relaxed);
                    if ended.as_deref() == Some("true") {
                        told.in_commit.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        Self { orders, thread: Some(thread) }
    }

    /// Switches the killer on or off.
    pub fn set_active(&self, rages: bool) {
        self.orders.rages.store(rages, Ordering::Relaxed);
    }

    /// Returns the number of ended sessions, and how many of them were committing.
    pub fn ended(&self) -> (u32, u32) {
        (self.orders.ended.load(Ordering::Relaxed), self.orders.in_commit.load(Ordering::Relaxed))
    }
}

impl Drop for SessionKiller {
    fn drop(&mut self) {
        self.orders.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}
