//! Arguments of `store`.
//!
//! A store is an argument `STORE` in one of four forms: the data directory of a server, its file `belfry.db`,
//! `sqlite:///PATH`, or `postgres://USER@HOST:PORT/DATABASE`. `commands::store` resolves it. `check` and
//! `backup` accept an embedded store or a member of a Raft cluster: PostgreSQL has its own tools. A password is never an argument,
//! because every user of a machine can read the arguments of every process.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples;

/// `belfry store …`
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Copy the store of stopped servers into a PostgreSQL database, or back
    Copy(CopyArgs),
    /// Check the store of a server for damage, also while it runs
    Check(CheckArgs),
    /// Back up the store of a server to a file, also while it runs
    Backup(BackupArgs),
    /// Mark a store as restored from a backup: its next server first waits for reports from all workers
    Restored(RestoredArgs),
    /// Reset the engine time of a stopped store to the clock, after the clock was wrong
    ResetClock(ResetClockArgs),
}

/// `belfry store copy`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry store copy --from /var/lib/belfry --to postgres://belfry@db.example/belfry"
    "belfry store copy --from sqlite:///backup/belfry.db --to postgres://belfry@127.0.0.1/belfry"
    "belfry store copy --from postgres://belfry@db.example/belfry --to /var/lib/belfry"
})]
#[command(
    after_help = "Stop all servers of both stores first. The command compares every row of the copy with its \
    source. After an interruption, run the same command again: a copy into a database continues, and a copy \
    out of a database starts from the beginning. Logs and artifacts are files outside the store; copy them \
    separately."
)]
pub(crate) struct CopyArgs {
    /// Source: data directory of a server, its `belfry.db`, sqlite:///PATH, or postgres://USER@HOST:PORT/DATABASE
    #[arg(long, value_name = "STORE")]
    pub(crate) from: String,
    /// Target, without an existing store: an empty database (postgres://USER@HOST:PORT/DATABASE), a data
    /// directory, or sqlite:///PATH
    #[arg(long, value_name = "STORE")]
    pub(crate) to: String,
    /// File with the database password [env: BELFRY_SERVER__STORE_PASSWORD_FILE, or PGPASSWORD with the
    /// password itself]
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

/// `belfry store check`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry store check /var/lib/belfry"
    "belfry store check /backup/belfry.db"
})]
#[command(
    after_help = "The command reads every page and every row, and detects lost commits. It changes nothing. \
    The exit code is 1 if it finds a problem. While a server uses the store, the write-ahead log of the \
    store grows until the check ends. For a large store, check a backup instead."
)]
pub(crate) struct CheckArgs {
    /// Data directory of a server, its `belfry.db`, or sqlite:///PATH
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
}

/// `belfry store backup`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry store backup /var/lib/belfry /backup/belfry-2026-11-23.db"
})]
#[command(
    after_help = "The backup is consistent, checked and synced to disk. Logs and artifacts are files outside \
    the store: copy the folder `objects` of the data directory after the backup. After you restored a \
    backup, run `belfry store restored` before you start a server. The backup of a Raft cluster is that of one \
    server; `belfry server --store raft --bootstrap-from FILE` restores it. For PostgreSQL, use `pg_dump`."
)]
pub(crate) struct BackupArgs {
    /// Data directory of a server, its `belfry.db`, or sqlite:///PATH
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    /// File to create for the backup; the file must not exist
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// `belfry store restored`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry store restored /var/lib/belfry"
    "belfry store restored postgres://belfry@db.example/belfry --password-file db-password"
})]
#[command(
    after_help = "Run this command after you restored a backup or a copy of the disk, or after a store lost \
    commits. Run it before you start a server. Workers may run tasks that the store does not know: the next \
    server stops these tasks. It starts no at_most_once or exactly_once job until every worker has reported. \
    An unnecessary run of this command only costs a few seconds. A server detects a promoted PostgreSQL \
    standby, the database of another server and an imported dump without this command."
)]
pub(crate) struct RestoredArgs {
    /// Data directory of a server, its `belfry.db`, sqlite:///PATH, or postgres://USER@HOST:PORT/DATABASE
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    /// File with the database password [env: BELFRY_SERVER__STORE_PASSWORD_FILE, or PGPASSWORD with the
    /// password itself]
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

/// `belfry store reset-clock`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry store reset-clock /var/lib/belfry"
    "belfry store reset-clock postgres://belfry@db.example/belfry --password-file db-password"
})]
#[command(
    after_help = "Engine time never goes back. So if the clock of a server jumped ahead, schedules and \
    retries wait after the correction until the clock has caught up. `/readyz?verbose` reports this problem. \
    To solve it, correct the clock, stop all servers of the store, run this command, and start the servers. \
    Schedules then continue at the current time. Firings that ran early run again at their scheduled times. \
    Retries keep their remaining delay. The command changes nothing if engine time is not ahead."
)]
pub(crate) struct ResetClockArgs {
    /// Data directory of a server, its `belfry.db`, sqlite:///PATH, or postgres://USER@HOST:PORT/DATABASE
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    /// File with the database password [env: BELFRY_SERVER__STORE_PASSWORD_FILE, or PGPASSWORD with the
    /// password itself]
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}
