//! The stores of a fault injection test, and their faults.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::SmallDisk;
use harness::cluster::{self, Cluster, Database};
use harness::pair::{Pair, Replication};
use harness::pooler::Pooler;

/// Size of the disk for the tables of a test.
const DATA_DISK: &str = "256m";
/// Size of the disk for the write-ahead log.
const LOG_DISK: &str = "160m";
/// Maximum time until a database that switches its log file repeatedly notices a full disk.
const FELT: Duration = Duration::from_secs(30);

/// Kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreKind {
    /// A file, used by one server; all other kinds have three servers.
    InFile,
    /// A PostgreSQL database.
    InPostgres,
    /// A PostgreSQL database with slow commits, so that commits can be interrupted.
    InSlowPostgres,
    /// A primary with a standby.
    WithStandby(Replication),
    /// The Raft store.
    InRaft,
}

/// The store of a running test.
pub(super) enum Rows {
    File(PathBuf),
    Database(Database),
    Pair(Arc<Pair>),
    /// Through PgBouncer.
    Pooled(Database, Arc<Pooler>),
    Crowded(Arc<SmallDiskDatabase>),
    /// The folders of the servers' Raft stores.
    Raft(Vec<PathBuf>),
}

impl Rows {
    pub(super) fn prepare(kept: StoreKind) -> Self {
        match kept {
            StoreKind::InFile => Self::File(PathBuf::new()),
            StoreKind::InPostgres => Self::Database(Cluster::shared().database()),
            StoreKind::InSlowPostgres => {
                let server = settings(&[("commit_delay", "20000"), ("commit_siblings", "0")]);
                let settings = cluster::Settings { durable: true, server, ..Default::default() };
                Self::Database(Arc::new(Cluster::start(&settings)).database())
            }
            StoreKind::InRaft => Self::Raft(Vec::new()),
            StoreKind::WithStandby(replication) => Self::Pair(Arc::new(Pair::start(replication))),
        }
    }

    /// Returns the store URL for the servers.
    pub(super) fn url(&self) -> String {
        match self {
            Self::File(_) | Self::Raft(_) => String::new(),
            Self::Database(database) => database.url(),
            Self::Pair(pair) => pair.url(),
            Self::Pooled(database, pooler) => pooler.url(database.name()),
            Self::Crowded(crowded) => crowded.database.url(),
        }
    }

    /// Returns the database whose sessions can be ended, if any.
    pub(super) fn database(&self) -> Option<&Database> {
        match self {
            Self::Database(database) | Self::Pooled(database, _) => Some(database),
            Self::File(_) | Self::Pair(_) | Self::Crowded(_) | Self::Raft(_) => None,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::File(_) => "SQLite",
            Self::Database(_) => "PostgreSQL",
            Self::Pair(_) => "PostgreSQL with a standby",
            Self::Pooled(..) => "PostgreSQL behind PgBouncer",
            Self::Crowded(_) => "PostgreSQL on small disks",
            Self::Raft(_) => "Raft",
        }
    }
}

fn settings(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Which disk of a database is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatabaseDisk {
    /// The disk of the tables: statements fail.
    Data,
    /// The disk of the write-ahead log: the whole database stops.
    Log,
}

/// A database with its tables and its log on separate small disks.
pub(super) struct SmallDiskDatabase {
    pub(super) database: Database,
    settings: cluster::Settings,
    data: SmallDisk,
    log: SmallDisk,
}

impl SmallDiskDatabase {
    /// Starts the database.
    ///
    /// # Errors
    /// Returns the reason if the process may not mount the disks.
    pub(super) fn start() -> Result<Self, String> {
        let (data, log) = (SmallDisk::mount(DATA_DISK)?, SmallDisk::mount(LOG_DISK)?);
        let log_folder = log.path().join("log");
        fs::create_dir(&log_folder).expect("creating a folder on an empty disk succeeds");
        let settings = cluster::Settings {
            durable: true,
            server: settings(&[("max_wal_size", "64MB"), ("min_wal_size", "32MB")]),
            log_folder: Some(log_folder),
        };
        let cluster = Arc::new(Cluster::start(&settings));
        let database = cluster.database_in(&data.path().join("data"));
        Ok(Self { database, settings, data, log })
    }

    /// Fills the disk to the last byte. For the log, returns once the database has noticed it.
    ///
    /// # Panics
    /// If the database does not notice it.
    pub(super) fn fill(&self, room: DatabaseDisk) {
        match room {
            DatabaseDisk::Data => self.data.fill(),
            DatabaseDisk::Log => {
                self.log.fill();
                let begun = Instant::now();
                // The existing log files are used up first.
                while self.database.cluster().try_execute("postgres", "SELECT pg_switch_wal()").is_ok() {
                    assert!(begun.elapsed() < FELT, "the log still accepts writes after {FELT:?}");
                }
            }
        }
    }

    /// Frees the space, and restarts the database if it stopped because of the full disk.
    pub(super) fn clear(&self, room: DatabaseDisk) {
        match room {
            DatabaseDisk::Data => self.data.clear(),
            DatabaseDisk::Log => self.log.clear(),
        }
        self.database.cluster().start_if_stopped(&self.settings);
    }
}
