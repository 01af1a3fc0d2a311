//! Arguments of `alert`.
//!
//! An alert, a silence and a notification are named by their numbers; rules and channels by their names, which are unique
//! in a namespace. The command is in the module `alerts` of [`crate::commands`].

use clap::{Args, Subcommand};
use model::alert::Severity;
use model::api::{AlertStatus, NotificationStatus};
use model::{Duration, Timestamp};

use super::examples;
use super::schedule::ApplyArgs;

/// `belfry alert …`
#[derive(Debug, Subcommand)]
pub(crate) enum AlertCommand {
    /// List alerts: open ones first, newest first
    #[command(visible_alias = "ls")]
    List(AlertListArgs),
    /// Show the details of an alert
    #[command(before_help = examples! { "belfry alert get 42" })]
    Get {
        /// Number of the alert
        #[arg(value_name = "ALERT")]
        id: u64,
    },
    /// Acknowledge alerts: their notifications are not repeated
    #[command(visible_alias = "acknowledge", before_help = examples! {
        "belfry alert ack 42 --comment 'The disk is being replaced'"
    })]
    Ack(AlertActArgs),
    /// Resolve alerts by hand
    #[command(before_help = examples! { "belfry alert resolve 42 --comment 'The job was removed'" })]
    Resolve(AlertActArgs),
    /// Manage alert rules: conditions, and channels to notify
    #[command(subcommand, visible_alias = "rules", before_help = examples! {
        "belfry alert rule apply -f alerts.yaml"
        "belfry alert rule list"
    })]
    Rule(RuleCommand),
    /// Manage channels: services that receive notifications
    #[command(subcommand, visible_alias = "channels", before_help = examples! {
        "belfry alert channel apply -f channels.yaml"
        "belfry alert channel test on-call"
    })]
    Channel(ChannelCommand),
    /// Manage silences: hold notifications back for a time
    #[command(subcommand, visible_alias = "silences", before_help = examples! {
        "belfry alert silence create --subject 'payroll-*' --for 4h --reason 'Database migration'"
        "belfry alert silence list"
    })]
    Silence(SilenceCommand),
    /// List notifications, newest first
    #[command(visible_alias = "notification")]
    Notifications(NotificationListArgs),
}

/// `belfry alert list`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry alert list                           what is open"
    "belfry alert list --severity critical"
    "belfry alert list --status all --subject 'payroll-*'"
})]
pub(crate) struct AlertListArgs {
    /// Only alerts in these statuses, separated by commas: firing, acknowledged, resolved, or all
    /// [default: firing,acknowledged]
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = alert_status)]
    pub(crate) status: Vec<StatusChoice>,
    /// Only alerts with these severities, separated by commas: info, warning, critical
    #[arg(long, value_name = "SEVERITY", value_delimiter = ',')]
    pub(crate) severity: Vec<Severity>,
    /// Only alerts of this rule; `*` stands for any characters
    #[arg(long, value_name = "NAME")]
    pub(crate) rule: Option<String>,
    /// Only alerts about this job, workflow, schedule, worker or queue; `*` stands for any characters
    #[arg(long, value_name = "NAME")]
    pub(crate) subject: Option<String>,
    /// Maximum number of alerts, from 1 to 1000 [default: 50]
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u32>,
}

/// One status of alerts, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusChoice {
    All,
    One(AlertStatus),
}

fn alert_status(text: &str) -> Result<StatusChoice, model::status::UnknownWord> {
    if text == "all" { Ok(StatusChoice::All) } else { text.parse().map(StatusChoice::One) }
}

/// Alerts, and a comment.
#[derive(Debug, Args)]
pub(crate) struct AlertActArgs {
    /// Numbers of the alerts
    #[arg(value_name = "ALERT", required = true)]
    pub(crate) ids: Vec<u64>,
    /// Comment for others
    #[arg(long, value_name = "TEXT")]
    pub(crate) comment: Option<String>,
}

/// `belfry alert rule …`
#[derive(Debug, Subcommand)]
pub(crate) enum RuleCommand {
    /// Create or update alert rules from files
    Apply(ApplyArgs),
    /// List alert rules
    #[command(visible_alias = "ls")]
    List,
    /// Show the details of an alert rule
    Get {
        /// Name of the rule
        #[arg(value_name = "RULE")]
        name: String,
    },
    /// Delete alert rules; their open alerts are resolved
    #[command(visible_alias = "rm")]
    Delete {
        /// Names of the rules
        #[arg(value_name = "RULE", required = true)]
        names: Vec<String>,
    },
}

/// `belfry alert channel …`
#[derive(Debug, Subcommand)]
pub(crate) enum ChannelCommand {
    /// Create or update channels from files
    #[command(
        after_help = "A secret of the form `env:NAME` is read from an environment variable, and `file:PATH` from a file."
    )]
    Apply(ApplyArgs),
    /// List channels
    #[command(visible_alias = "ls")]
    List,
    /// Show the details of a channel; secrets are hidden
    Get {
        /// Name of the channel
        #[arg(value_name = "CHANNEL")]
        name: String,
    },
    /// Send a test notification; exit with code 1 if it is not accepted
    Test {
        /// Name of the channel
        #[arg(value_name = "CHANNEL")]
        name: String,
    },
    /// Delete channels; refused while a rule notifies them
    #[command(visible_alias = "rm")]
    Delete {
        /// Names of the channels
        #[arg(value_name = "CHANNEL", required = true)]
        names: Vec<String>,
    },
}

/// `belfry alert silence …`
#[derive(Debug, Subcommand)]
pub(crate) enum SilenceCommand {
    /// List current and future silences
    #[command(visible_alias = "ls")]
    List,
    /// Hold notifications back for a time
    #[command(visible_alias = "add", before_help = examples! {
        "belfry alert silence create --subject 'payroll-*' --for 4h --reason 'Database migration'"
        "belfry alert silence create --rule worker-lost --for 30m --reason 'Kernel update'"
        "belfry alert silence create --cron '0 22 * * *' --zone Europe/Berlin --for 9h --severity-max warning --reason 'Night'"
    })]
    Create(SilenceArgs),
    /// End silences
    #[command(visible_alias = "rm", before_help = examples! { "belfry alert silence end 7" })]
    End {
        /// Numbers of the silences
        #[arg(value_name = "SILENCE", required = true)]
        ids: Vec<u64>,
    },
}

/// `belfry alert silence create`
#[derive(Debug, Args)]
pub(crate) struct SilenceArgs {
    /// Only alerts of this rule; `*` stands for any characters [default: any rule]
    #[arg(long, value_name = "NAME")]
    pub(crate) rule: Option<String>,
    /// Only alerts about this job, workflow, schedule, worker or queue; `*` stands for any characters
    /// [default: any object]
    #[arg(long, value_name = "NAME")]
    pub(crate) subject: Option<String>,
    /// Highest severity of the alerts: info, warning or critical; more severe alerts are notified [default: any severity]
    #[arg(long, value_name = "SEVERITY")]
    pub(crate) severity_max: Option<Severity>,
    /// Length of the silence, from 1m to 366d; with `--cron`, length of each period, from 1m to 31d
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) duration: Duration,
    /// Cron expression with the start times of a recurring silence, for quiet hours or a maintenance window
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) cron: Option<String>,
    /// Time zone of the cron expression [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    pub(crate) zone: Option<String>,
    /// End of the recurring silence [default: 366d after its start]
    #[arg(long, value_name = "TIME", requires = "cron")]
    pub(crate) until: Option<Timestamp>,
    /// Start of the silence [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) starts_at: Option<Timestamp>,
    /// Reason of the silence
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}

/// `belfry alert notifications`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry alert notifications --status failed"
    "belfry alert notifications --channel on-call"
})]
pub(crate) struct NotificationListArgs {
    /// Only notifications in this status: waiting, delivered, failed
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<NotificationStatus>,
    /// Only notifications to this channel
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Option<String>,
    /// Only notifications of this rule
    #[arg(long, value_name = "NAME")]
    pub(crate) rule: Option<String>,
    /// Maximum number of notifications, from 1 to 1000 [default: 50]
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u32>,
}
