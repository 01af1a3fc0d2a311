//! Arguments of `tls`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use model::Duration;

use super::examples;

/// `belfry tls …`
#[derive(Debug, Subcommand)]
pub(crate) enum TlsCommand {
    /// Create a certificate for the host names of a server, and a certificate authority for it
    Create(TlsCreateArgs),
}

/// `belfry tls create`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry tls create belfry.example.com 10.0.0.1"
    "belfry tls create b.example.com --name b              for another server, with the same authority"
    "belfry tls create belfry.example.com --renew          before the certificate expires"
})]
#[command(
    after_help = "The first call creates an authority: `ca.pem` and `ca-key.pem`. Later calls in the same directory use it. \
    Give `ca.pem` to clients (`--ca-file`) and workers (`worker.ca_file`). Keep `ca-key.pem` secret: its owner can create \
    certificates that your clients trust."
)]
pub(crate) struct TlsCreateArgs {
    /// Host name or IP address that clients use in the URL of the server
    #[arg(value_name = "HOST", required = true)]
    pub(crate) hosts: Vec<String>,
    /// Directory of the files
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Name of the files of the certificate: NAME.pem and NAME-key.pem
    #[arg(long, value_name = "NAME", default_value = "server")]
    pub(crate) name: String,
    /// Validity of the certificate, at most 825d
    #[arg(long, value_name = "DURATION", default_value = "365d")]
    pub(crate) valid_for: Duration,
    /// Replace an existing certificate
    #[arg(long)]
    pub(crate) renew: bool,
}
