//! The sessions of servers with their database, ended at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use store::suite::cluster::Cluster;

/// Whoever is about to commit comes first, else it is any of them.
const END_ONE: &str = "SELECT (query = 'COMMIT')::TEXT FROM (
    SELECT pid, query FROM pg_stat_activity WHERE application_name = 'belfry'
    AND datname = current_database() AND pid <> pg_backend_pid()
    ORDER BY (state = 'active' AND query = 'COMMIT') DESC, random() LIMIT 1
) AS one WHERE pg_terminate_backend(pid)";
/// Between two looks while nobody is to be ended.
const LOOK: Duration = Duration::from_millis(5);

/// Ends sessions (`pg_terminate_backend`), one after the other, for as long as it is told to.
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
    /// One for the sessions with a database; it is still.
    pub fn new(cluster: Arc<Cluster>, database: &str) -> Self {
        let orders = Arc::new(Orders::default());
        let (told, database) = (Arc::clone(&orders), database.to_owned());
        let thread = std::thread::spawn(move || {
            while !told.is_over.load(Ordering::Relaxed) {
                if !told.rages.load(Ordering::Relaxed) {
                    std::thread::sleep(LOOK);
                    continue;
                }
                // A database that is away has no sessions either.
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

    /// Begins, or ceases.
    pub fn rage(&self, rages: bool) {
        self.orders.rages.store(rages, Ordering::Relaxed);
    }

    /// How many sessions were ended, and how many of them over a commit.
    pub fn ended(&self) -> (u32, u32) {
        (self.orders.ended.load(Ordering::Relaxed), self.orders.in_commit.load(Ordering::Relaxed))
    }
}

impl Drop for SessionKiller {
    fn drop(&mut self) {
        self.orders.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // One that panicked has ended, too.
            let _ = thread.join();
        }
    }
}
