//! Arguments of `audit`.
//!
//! An entry is named by its sequence number. The command is in the module `audit` of [`crate::commands`].

use std::path::PathBuf;

use clap::{Args, Subcommand};
use model::Timestamp;
use model::access::{Resource, Verb};
use model::audit::Outcome;

use super::examples;
use super::job::ListLimit;
use super::spec::past;

/// `belfry audit …`
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List entries of the audit log, newest first
    #[command(visible_alias = "ls", before_help = examples! {
        "belfry audit list --since 24h"
        "belfry audit list --actor ann@example.com --resource schedules"
        "belfry audit list --outcome denied -n finance"
    })]
    List {
        #[command(flatten)]
        filter: AuditFilterArgs,
        #[command(flatten)]
        many: ListLimit,
    },
    /// Show the details of an entry, with the changed fields
    #[command(before_help = examples! { "belfry audit get 1234" })]
    Get {
        /// Sequence number of the entry
        #[arg(value_name = "SEQUENCE")]
        sequence: u64,
    },
    /// Print entries as JSON, one per line, newest first
    #[command(before_help = examples! {
        "belfry audit export --since 30d > audit.jsonl"
        "belfry audit verify --file audit.jsonl"
    })]
    Export {
        #[command(flatten)]
        filter: AuditFilterArgs,
    },
    /// Verify that no entry was changed or removed; exit with code 1 if one was
    Verify(AuditVerifyArgs),
}

/// Conditions for entries; all of them must match.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub(crate) struct AuditFilterArgs {
    /// Filter by caller: an account, or the name of an admin or worker token
    #[arg(long, value_name = "NAME")]
    pub(crate) actor: Option<String>,
    /// Filter by action, for example cancel_job
    #[arg(long, value_name = "ACTION")]
    pub(crate) action: Option<String>,
    /// Filter by the verb that the action needs: operate, create, change, delete, read, work
    #[arg(long, value_name = "VERB")]
    pub(crate) verb: Option<Verb>,
    /// Filter by kind of resource, for example schedules
    #[arg(long, value_name = "RESOURCE")]
    pub(crate) resource: Option<Resource>,
    /// Filter by the name or ID of the object
    #[arg(long, value_name = "OBJECT")]
    pub(crate) object: Option<String>,
    /// Filter by outcome: allowed, denied, failed, unknown
    #[arg(long, value_name = "OUTCOME")]
    pub(crate) outcome: Option<Outcome>,
    /// Only entries since this time: 24h (ago), 08:00 (most recent), yesterday, 2026-11-21T08:00 (local)
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub(crate) since: Option<Timestamp>,
    /// Only entries before this time
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub(crate) until: Option<Timestamp>,
}

/// `belfry audit verify`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry audit verify"
    "belfry audit verify --after 1234:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    "belfry audit verify --file audit.jsonl"
})]
#[command(
    after_help = "The last line names the newest entry with its hash. Keep it elsewhere, and give it to `--after` the \
    next time: this also detects a log that was replaced as a whole."
)]
pub(crate) struct AuditVerifyArgs {
    /// Verify only newer entries, and that they continue this one: sequence number and hash of an earlier verification
    #[arg(long, value_name = "SEQUENCE:HASH", value_parser = link)]
    pub(crate) after: Option<audit::Link>,
    /// Verify exported entries in a file, without a server; - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

fn link(text: &str) -> Result<audit::Link, String> {
    let (sequence, hash) =
        text.split_once(':').ok_or("expected SEQUENCE:HASH, as `belfry audit verify` prints it")?;
    let sequence = sequence.parse().map_err(|_| format!("`{sequence}` is not a sequence number"))?;
    let hash = hash.parse().map_err(|error: audit::InvalidHash| format!("invalid hash: {error}"))?;
    Ok(audit::Link { sequence, hash })
}
