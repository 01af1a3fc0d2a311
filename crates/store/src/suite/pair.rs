//! A PostgreSQL primary and its standby, which swap roles repeatedly.
//!
//! Only the steps of a failover are done here: the primary is killed, the standby is promoted, and the killed server
//! returns as a standby of the other. A promoted standby commits alone until it has a standby itself; with
//! [`Replication::Synchronous`] commits then wait for that standby.
//!
//! # Invariants
//! - At most one of the two accepts writes.
//! - After [`Pair::restore_standby`] of a synchronous pair, the standby has every commit that was ever acknowledged.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::cluster::{Cluster, Settings};

/// Maximum time for a standby to catch up with its primary.
const CATCH_UP_MAX: Duration = Duration::from_secs(60);
/// Name of the database.
const DATABASE: &str = "belfry";

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// The standby has the commit.
    Synchronous,
    /// Nothing: a failover loses the commits that the standby does not have.
    Asynchronous,
}

/// Two clusters, of which one follows the other.
#[derive(Debug)]
pub struct Pair {
    clusters: [Cluster; 2],
    primary: AtomicUsize,
    replication: Replication,
    settings: Settings,
}

impl Pair {
    /// Starts both, with an empty database.
    ///
    /// # Panics
    /// As [`Cluster::shared`].
    pub fn start(replication: Replication) -> Self {
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let settings = Settings {
            // Only processes are killed here, never a machine: the system keeps the written data.
            durable: false,
            server: vec![
                set("synchronous_commit", "on"),
                set("full_page_writes", "on"),
                set("max_connections", "100"),
                set("wal_keep_size", "512MB"),
                set("wal_retrieve_retry_interval", "100ms"),
            ],
            ..Settings::default()
        };
        let first = Cluster::start(&settings);
        first.execute("postgres", &format!("CREATE DATABASE {DATABASE}"));
        let second = Cluster::standby_of(&first, &settings);
        let pair = Self { clusters: [first, second], primary: AtomicUsize::new(0), replication, settings };
        pair.wait_for_the_standby();
        pair
    }

    /// Returns the URL of the database, with both hosts.
    pub fn url(&self) -> String {
        let [first, second] = &self.clusters;
        let url = first.url(DATABASE);
        let host = format!("127.0.0.1:{}", first.port());
        url.replace(&host, &format!("{host},127.0.0.1:{}", second.port()))
    }

    /// Returns the server that accepts writes, if it runs.
    pub fn primary(&self) -> &Cluster {
        &self.clusters[self.primary.load(Ordering::Relaxed)]
    }

    /// Returns the other server.
    pub fn standby(&self) -> &Cluster {
        &self.clusters[1 - self.primary.load(Ordering::Relaxed)]
    }

    /// Runs statements in the database, on the primary.
    ///
    /// # Panics
    /// If the server refuses them.
    pub fn execute(&self, sql: &str) -> Vec<Option<String>> {
        let answer = self.primary().try_execute(DATABASE, sql);
        answer.unwrap_or_else(|error| panic!("`{sql}`: {error}"))
    }

    /// Kills the primary and promotes the standby. Returns when the standby accepts writes.
    ///
    /// # Panics
    /// If it does not.
    pub fn fail_over(&self) {
        self.primary().kill();
        let promoted = self.standby().try_execute("postgres", "SELECT pg_promote()");
        assert_eq!(promoted, Ok(vec![Some("t".to_owned())]), "a standby can be promoted");
        self.primary.fetch_xor(1, Ordering::Relaxed);
    }

    /// Makes the killed server a standby of the other, and waits until it has caught up.
    ///
    /// # Panics
    /// If it never does.
    pub fn restore_standby(&self) {
        self.standby().kill();
        self.standby().follow(self.primary(), &self.settings);
        self.wait_for_the_standby();
    }

    /// Disconnects the standby, which keeps its current state.
    pub fn disconnect_standby(&self) {
        let standby = self.standby();
        standby.execute("postgres", "ALTER SYSTEM SET primary_conninfo = ''");
        standby.execute("postgres", "SELECT pg_reload_conf()");
        let receivers = "SELECT pid::TEXT FROM pg_stat_wal_receiver";
        self.until("the standby hears nothing", || {
            standby.try_execute("postgres", receivers).is_ok_and(|rows| rows.is_empty())
        });
    }

    /// Starts the killed server on an unknown port, so that its data can be read. Returns its URL; [`restore_standby`](Self::restore_standby)
    /// ends this.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_killed(&self) -> String {
        let recalled = self.standby().on_another_port();
        recalled.start_server(&self.settings);
        recalled.url(DATABASE)
    }

    fn wait_for_the_standby(&self) {
        let primary = self.primary();
        if self.replication == Replication::Synchronous {
            primary.execute("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
            primary.execute("postgres", "SELECT pg_reload_conf()");
        }
        let wanted = match self.replication {
            Replication::Synchronous => "sync",
            Replication::Asynchronous => "async",
        };
        let state = format!(
            "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '{wanted}'"
        );
        let ask = |sql: &str| primary.try_execute("postgres", sql).unwrap_or_default();
        self.until("the standby follows", || ask(&state).len() == 1);
        // Sessions apply the setting one by one; so wait until the standby has replayed the earlier commits.
        let place = ask("SELECT pg_current_wal_flush_lsn()::TEXT").pop().flatten().unwrap_or_default();
        let there = format!("SELECT pid::TEXT FROM pg_stat_replication WHERE flush_lsn >= '{place}'");
        self.until("the standby has all of it", || ask(&there).len() == 1);
    }

    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + CATCH_UP_MAX;
        while !holds() {
            assert!(Instant::now() < deadline, "waited {CATCH_UP_MAX:?} in vain until {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
