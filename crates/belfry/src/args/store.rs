//! Arguments of `store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples;

/// `belfry store …`
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Copy the store of stopped servers into a PostgreSQL database, or back
    Copy(CopyArgs),
    /// Check an embedded store for damage; the server may run
    Check(CheckArgs),
    /// Back up an embedded store to a file; the server may run
    Backup(BackupArgs),
    /// Mark a store as restored from a backup: the next server waits for all workers
    Restored(RestoredArgs),
    /// Set the engine time of a stopped store back to the clock, after the clock was wrong
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
    after_help = "The command compares every row of the copy with its source. A copy into a database that was \
    interrupted continues when the same command is run again; a copy out of a database starts again. Logs and artifacts \
    are files and not part of the store."
)]
pub(crate) struct CopyArgs {
    /// The source: a server's data directory, its `belfry.db`, sqlite:///PATH, or
    /// postgres://USER@HOST:PORT/DATABASE
    #[arg(long, value_name = "STORE")]
    pub(crate) from: String,
    /// The target, without a store: an empty database (postgres://USER@HOST:PORT/DATABASE), a data directory, or
    /// sqlite:///PATH
    #[arg(long, value_name = "STORE")]
    pub(crate) to: String,
    /// File with the database password; $PGPASSWORD is used too
    /// [env: BELFRY_SERVER__STORE_PASSWORD_FILE]
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
    after_help = "Reads every page and every row, and compares the store with its last known position. Changes nothing. \
    The exit code is 1 if a problem is found. While the server runs, its WAL grows until the check ends: for a large \
    store, check a backup instead."
)]
pub(crate) struct CheckArgs {
    /// The store: a server's data directory, its `belfry.db`, or sqlite:///PATH
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
}

/// `belfry store backup`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry store backup /var/lib/belfry /backup/belfry-2026-11-23.db"
})]
#[command(
    after_help = "The backup is consistent, checked and synced. Logs and artifacts are files beside the store and are not \
    part of it: copy the folder `objects` after the backup. To restore a backup, see `belfry store restored`. For \
    PostgreSQL, use `pg_dump`."
)]
pub(crate) struct BackupArgs {
    /// The store: a server's data directory, its `belfry.db`, or sqlite:///PATH
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    /// New file for the backup
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
    after_help = "Run this after you restored a backup or a copy of the disk, or when a store lost commits, and before \
    you start a server on it. Workers may run tasks that the store does not know. The first server waits until every \
    worker has reported, and stops unknown tasks, before it starts a job that is not at_least_once. If the command \
    was not necessary, it only causes a wait of a few seconds. A promoted PostgreSQL standby, the database of \
    another server and an imported dump are detected without it."
)]
pub(crate) struct RestoredArgs {
    /// The store: a server's data directory, its `belfry.db`, sqlite:///PATH, or postgres://USER@HOST:PORT/DATABASE
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    /// File with the database password; $PGPASSWORD is used too
    /// [env: BELFRY_SERVER__STORE_PASSWORD_FILE]
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
    after_help = "A server whose clock jumped ahead keeps that time after the clock is corrected: schedules and retries \
    wait until the clock has caught up, and `/readyz?verbose` reports it. Correct the clock, stop all servers of the \
    store, run this command, and start the servers. Schedules continue from the present; firings that ran early run \
    again at their scheduled time. Retries keep their remaining delay. Nothing changes if engine time is not ahead."
)]
pub(crate) struct ResetClockArgs {
    /// The store: a server's data directory, its `belfry.db`, sqlite:///PATH, or postgres://USER@HOST:PORT/DATABASE
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    /// File with the database password; $PGPASSWORD is used too
    /// [env: BELFRY_SERVER__STORE_PASSWORD_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}
