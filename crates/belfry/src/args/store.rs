//! Commands about the store itself, while no server runs on it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples;

/// `belfry store …`
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Copy the store of a stopped server into a PostgreSQL database, to go on there
    Copy(CopyArgs),
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
