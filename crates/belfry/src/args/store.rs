//! Commands about the store itself, while no server runs on it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples;

/// `belfry store …`
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Copy the store of a stopped server into a PostgreSQL database, to go on there
    Copy(CopyArgs),
    /// Say that a store was brought back to an earlier state, so that nothing is done twice for it
    Restored(RestoredArgs),
}

/// `belfry store copy`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry store copy --from /var/lib/belfry --to postgres://belfry@db.example/belfry"
    "belfry store copy --from sqlite:///backup/belfry.db --to postgres://belfry@127.0.0.1/belfry"
})]
#[command(after_help = "A copy that was interrupted goes on when the same command is run again. Logs and \
    artifacts are files and no part of it.")]
pub(crate) struct CopyArgs {
    /// The store: a server's data directory, its `belfry.db`, or sqlite:///PATH
    #[arg(long, value_name = "STORE")]
    pub(crate) from: String,
    /// The database, empty: postgres://USER@HOST:PORT/DATABASE
    #[arg(long, value_name = "URL")]
    pub(crate) to: String,
    /// A file with the database's password; $PGPASSWORD is read as well
    /// [env: BELFRY_SERVER__STORE_PASSWORD_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

/// `belfry store restored`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry store restored /var/lib/belfry"
    "belfry store restored postgres://belfry@db.example/belfry --password-file db-password"
})]
#[command(
    after_help = "Say this after a backup or a copy of a disk was brought back, and before a server is started on \
    it. Workers may know of more than the store does then: the first server hears all of them, and stops what nobody \
    knows, before it starts anything that is not at_least_once. Saying it without need costs that wait, a few seconds, \
    and nothing else. A promoted standby, a database of another server and a dump that was read are noticed without it."
)]
pub(crate) struct RestoredArgs {
    /// The store: a server's data directory, its `belfry.db`, sqlite:///PATH, or postgres://USER@HOST:PORT/DATABASE
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    /// A file with the database's password; $PGPASSWORD is read as well
    /// [env: BELFRY_SERVER__STORE_PASSWORD_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}
