//! Arguments of `failure`.
//!
//! A failure group is named by its ID, which is unique within its namespace. Without `--state`, a list has the groups that
//! are open or known. The command is in the module `failures` of [`crate::commands`].

use clap::{Args, Subcommand};
use model::Duration;
use model::api::FailureOrder;
use model::failures::FailureState;

use super::examples;
use super::spec::word;

/// `belfry failure …`
#[derive(Debug, Subcommand)]
pub(crate) enum FailureCommand {
    /// List failure groups: failed jobs with the same error, exit code and message
    #[command(visible_alias = "ls")]
    List(FailureListArgs),
    /// Show the details of a failure group
    #[command(before_help = examples! { "belfry failure get 9c1f0a3be4d27f58" })]
    Get(FailureArgs),
    /// Set the state of a failure group
    Mark(FailureMarkArgs),
}

/// `belfry failure list`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry failure list                         what is not known, muted or resolved"
    "belfry failure list --since 24h --order count"
    "belfry failure list --name import --state all"
})]
#[command(
    after_help = "Failures are one group if error, exit code and message are equal, apart from numbers, dates and IDs \
    in the message. Only the last failure of a job counts, not those that are retried."
)]
pub(crate) struct FailureListArgs {
    /// Only groups with failures of this job name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Only groups in these states, separated by commas: open, known, muted, resolved, or all [default: open,known]
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = failure_state)]
    pub(crate) state: Vec<StateChoice>,
    /// Only groups whose message or job names contain this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Only groups with a failure in the last DURATION
    #[arg(long, value_name = "DURATION")]
    pub(crate) since: Option<Duration>,
    /// Order of the groups: last_seen, first_seen, count [default: last_seen]
    #[arg(long, value_name = "ORDER", value_parser = failure_order)]
    pub(crate) order: Option<FailureOrder>,
    /// Maximum number of groups, from 1 to 1000 [default: 50]
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u32>,
}

/// One state of failure groups, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateChoice {
    All,
    One(FailureState),
}

/// One failure group.
#[derive(Debug, Args)]
pub(crate) struct FailureArgs {
    /// ID of the failure group
    #[arg(value_name = "GROUP")]
    pub(crate) id: String,
}

/// `belfry failure mark`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry failure mark 9c1f0a3be4d27f58 known --note OPS-1234"
    "belfry failure mark 9c1f0a3be4d27f58 resolved"
    "belfry failure mark 9c1f0a3be4d27f58 open"
})]
#[command(
    after_help = "known: a user works on it. muted: overviews do not show it. resolved: the next failure opens it \
    again. open: no state is set."
)]
pub(crate) struct FailureMarkArgs {
    /// ID of the failure group
    #[arg(value_name = "GROUP")]
    pub(crate) id: String,
    /// New state: open, known, muted, resolved
    #[arg(value_name = "STATE")]
    pub(crate) state: FailureState,
    /// Note for others, such as the number of a ticket; '' removes it [default: the note stays]
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

fn failure_state(text: &str) -> Result<StateChoice, model::status::UnknownWord> {
    if text == "all" { Ok(StateChoice::All) } else { text.parse().map(StateChoice::One) }
}

fn failure_order(text: &str) -> Result<FailureOrder, String> {
    word(text, &["last_seen", "first_seen", "count"])
}
