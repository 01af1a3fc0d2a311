//! Where the rows of a storm are kept, and what may become of that.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::SmallDisk;
use harness::cluster::{self, Cluster, Database};
use harness::pair::{Pair, Replication};
use harness::pooler::Pooler;

/// Room for the tables of a storm, and for its log of changes.
const DATA_DISK: &str = "256m";
const LOG_DISK: &str = "160m";
/// Within this a log that goes on to its next file again and again finds that it has no room.
const FELT: Duration = Duration::from_secs(30);

/// Where the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// In a file, by one server; in what follows there are three.
    InFile,
    /// In PostgreSQL.
    InPostgres,
    /// In one whose commits take long enough to be broken off.
    InSlowPostgres,
    /// In a primary and its standby.
    WithStandby(Replication),
}

/// The same, while a storm lasts.
pub(super) enum Rows {
    File(PathBuf),
    Database(Database),
    Pair(Arc<Pair>),
    /// Through PgBouncer.
    Pooled(Database, Arc<Pooler>),
    Crowded(Arc<Crowded>),
}

impl Rows {
    pub(super) fn prepare(kept: Kept) -> Self {
        match kept {
            Kept::InFile => Self::File(PathBuf::new()),
            Kept::InPostgres => Self::Database(Cluster::shared().database()),
            Kept::InSlowPostgres => {
                let server = settings(&[("commit_delay", "20000"), ("commit_siblings", "0")]);
                let settings = cluster::Settings { durable: true, server, ..Default::default() };
                Self::Database(Arc::new(Cluster::start(&settings)).database())
            }
            Kept::WithStandby(replication) => Self::Pair(Arc::new(Pair::start(replication))),
        }
    }

    /// Where servers find them.
    pub(super) fn url(&self) -> String {
        match self {
            Self::File(_) => String::new(),
            Self::Database(database) => database.url(),
            Self::Pair(pair) => pair.url(),
            Self::Pooled(database, pooler) => pooler.url(database.name()),
            Self::Crowded(crowded) => crowded.database.url(),
        }
    }

    /// The database whose sessions can be ended.
    pub(super) fn database(&self) -> Option<&Database> {
        match self {
            Self::Database(database) | Self::Pooled(database, _) => Some(database),
            Self::File(_) | Self::Pair(_) | Self::Crowded(_) => None,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::File(_) => "SQLite",
            Self::Database(_) => "PostgreSQL",
            Self::Pair(_) => "PostgreSQL with a standby",
            Self::Pooled(..) => "PostgreSQL behind PgBouncer",
            Self::Crowded(_) => "PostgreSQL on small disks",
        }
    }
}

fn settings(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Which disk of a database is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// That of its tables: statements fail.
    Data,
    /// That of its log of changes: the whole server ends.
    Log,
}

/// A database whose tables and whose log are each on a small disk.
pub(super) struct Crowded {
    pub(super) database: Database,
    settings: cluster::Settings,
    data: SmallDisk,
    log: SmallDisk,
}

impl Crowded {
    /// # Errors
    /// Why there is none, where the right to mount the disks is missing.
    pub(super) fn start() -> Result<Self, String> {
        let (data, log) = (SmallDisk::mount(DATA_DISK)?, SmallDisk::mount(LOG_DISK)?);
        let log_folder = log.path().join("log");
        fs::create_dir(&log_folder).expect("a folder can be made on an empty disk");
        let settings = cluster::Settings {
            durable: true,
            server: settings(&[("max_wal_size", "64MB"), ("min_wal_size", "32MB")]),
            log_folder: Some(log_folder),
        };
        let cluster = Arc::new(Cluster::start(&settings));
        let database = cluster.database_in(&data.path().join("data"));
        Ok(Self { database, settings, data, log })
    }

    /// Leaves not a byte on that disk. For the log, returns once the database has found out.
    ///
    /// # Panics
    /// If it never does.
    pub(super) fn fill(&self, room: Room) {
        match room {
            Room::Data => self.data.fill(),
            Room::Log => {
                self.log.fill();
                let begun = Instant::now();
                // The files that are there already are used up first.
                while self.database.cluster().try_execute("postgres", "SELECT pg_switch_wal()").is_ok() {
                    assert!(begun.elapsed() < FELT, "the log goes on after {FELT:?} without room for it");
                }
            }
        }
    }

    /// Gives the space back, and starts the database if it ended for want of it.
    pub(super) fn clear(&self, room: Room) {
        match room {
            Room::Data => self.data.clear(),
            Room::Log => self.log.clear(),
        }
        self.database.cluster().see_to_it(&self.settings);
    }
}
