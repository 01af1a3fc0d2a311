//! Tables and detailed views of alerts, alert rules, channels, silences and notifications.

use model::alert::{AlertRuleSpec, Severity};
use model::api::{Alert, AlertRule, AlertStatus, Channel, Notification, NotificationStatus, Silence};

use super::OutputOptions;
use super::table::{Cell, Column, Detail, Row, Tone, column, wide};
use super::time::{exact, relative_or_exact};
use super::yaml;

fn severity(severity: Severity) -> Cell {
    let tone = match severity {
        Severity::Critical => Tone::Bad,
        Severity::Warning => Tone::Waiting,
        Severity::Info => Tone::Dim,
    };
    Cell::new(severity.as_str(), tone)
}

fn status(alert: &Alert) -> Cell {
    match alert.status {
        AlertStatus::Firing if alert.silenced => Cell::new("silenced", Tone::Dim),
        AlertStatus::Firing => Cell::new("firing", Tone::Bad),
        AlertStatus::Acknowledged => Cell::new("acknowledged", Tone::Waiting),
        AlertStatus::Resolved => Cell::new("resolved", Tone::Good),
    }
}

fn optional_time(look: &OutputOptions, time: Option<model::Timestamp>) -> Cell {
    time.map(|time| exact(look, time)).as_deref().into()
}

impl Row for Alert {
    const COLUMNS: &'static [Column] = &[
        column("ALERT", 5),
        column("SEVERITY", 8),
        column("STATUS", 12),
        column("LAST", 10),
        column("COUNT", 5).optional(2),
        column("RULE", 16).cut(10).optional(1),
        column("SUMMARY", 40).cut(20),
        wide("NAMESPACE", 12),
        wide("SINCE", 10),
        wide("DETAIL", 30),
        wide("COMMENT", 20),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.id.to_string().into(),
            severity(self.severity),
            status(self),
            relative_or_exact(look, self.last_at).into(),
            self.count.to_string().into(),
            self.rule.as_str().into(),
            self.summary.as_str().into(),
            self.namespace.as_str().into(),
            relative_or_exact(look, self.opened_at).into(),
            self.detail.as_deref().into(),
            self.comment.as_deref().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Detail for Alert {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let mut lines = vec![
            ("Alert", self.id.to_string().into()),
            ("Namespace", self.namespace.as_str().into()),
            ("Rule", self.rule.as_str().into()),
            ("Condition", self.condition.as_str().into()),
            ("Subject", format!("{} {}", self.subject.kind, self.subject.name).into()),
            ("Severity", severity(self.severity)),
            ("Status", status(self)),
            ("Summary", self.summary.as_str().into()),
            ("Detail", self.detail.as_deref().into()),
            ("Count", self.count.to_string().into()),
            ("Opened", exact(look, self.opened_at).into()),
            ("Last", exact(look, self.last_at).into()),
            ("Notified", optional_time(look, self.notified_at)),
        ];
        if let Some(escalated_at) = self.escalated_at {
            lines.push(("Escalated", exact(look, escalated_at).into()));
        }
        if let Some(resolved_at) = self.resolved_at {
            let by = self.resolved_by.as_deref().unwrap_or_default();
            lines.push(("Resolved", format!("{} ({by})", exact(look, resolved_at)).into()));
        }
        if let Some(actor) = &self.actor {
            lines.push(("By", actor.as_str().into()));
        }
        if let Some(comment) = &self.comment {
            lines.push(("Comment", comment.as_str().into()));
        }
        lines.extend(self.jobs.iter().rev().map(|job| ("Job", job.to_string().into())));
        lines.extend(self.runs.iter().rev().map(|run| ("Run", run.to_string().into())));
        lines
    }
}

/// Returns the condition in one line of JSON, such as `job_failed {"in_a_row":1}`.
fn condition(rule: &AlertRule) -> String {
    let value = serde_json::to_value(&rule.spec.when).unwrap_or_default();
    let fields = value.get(rule.spec.when.name()).and_then(serde_json::Value::as_object);
    let shown: Vec<_> = fields
        .into_iter()
        .flatten()
        .map(|(name, value)| {
            format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        })
        .collect();
    if shown.is_empty() {
        rule.spec.when.name().to_owned()
    } else {
        format!("{} {}", rule.spec.when.name(), shown.join(" "))
    }
}

impl Row for AlertRule {
    const COLUMNS: &'static [Column] = &[
        column("RULE", 20).cut(10),
        column("WHEN", 24).cut(14),
        column("MATCH", 16).cut(10),
        column("SEVERITY", 8),
        column("CHANNELS", 16).cut(10),
        column("OPEN", 5),
        wide("NAMESPACE", 12),
        wide("OWNER", 12),
        wide("CHANGED", 10),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let open = match (self.spec.disabled, self.open_alerts) {
            (true, _) => Cell::new("off", Tone::Dim),
            (false, 0) => "0".into(),
            (false, open) => Cell::new(open.to_string(), Tone::Bad),
        };
        vec![
            self.spec.name.as_str().into(),
            condition(self).into(),
            self.spec.matches.name.as_deref().unwrap_or("*").into(),
            severity(self.spec.severity),
            channels(self),
            open,
            self.spec.namespace.as_str().into(),
            self.spec.owner.as_deref().into(),
            relative_or_exact(look, self.updated_at).into(),
        ]
    }

    fn name(&self) -> String {
        self.spec.name.clone()
    }
}

fn channels(rule: &AlertRule) -> Cell {
    match (rule.spec.notify.as_slice(), rule.missing_channels.as_slice()) {
        ([], _) => "-".into(),
        (names, []) => names.join(", ").into(),
        (names, missing) => {
            Cell::new(format!("{} (missing: {})", names.join(", "), missing.join(", ")), Tone::Bad)
        }
    }
}

impl Detail for AlertRule {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let spec = &self.spec;
        let mut lines = vec![
            ("Alert rule", spec.name.as_str().into()),
            ("Namespace", spec.namespace.as_str().into()),
            ("Owner", spec.owner.as_deref().into()),
            ("Description", spec.description.as_deref().into()),
            ("Condition", condition(self).into()),
            ("Match", yaml(&spec.matches).unwrap_or_default().trim().replace('\n', ", ").into()),
            ("Severity", severity(spec.severity)),
            ("Channels", channels(self)),
            ("Escalation", escalation(spec).as_deref().into()),
            ("Repeat every", spec.repeat_every.to_string().into()),
            ("Runbook", spec.runbook.as_deref().into()),
            ("Open alerts", self.open_alerts.to_string().into()),
            ("Version", self.version.to_string().into()),
            ("Changed", format!("{} by {}", exact(look, self.updated_at), self.updated_by).into()),
        ];
        if spec.disabled {
            lines.insert(2, ("Status", Cell::new("disabled", Tone::Dim)));
        }
        lines
    }
}

/// Returns the escalation in one line, such as `after 15m to boss`.
fn escalation(spec: &AlertRuleSpec) -> Option<String> {
    let escalation = spec.escalate.as_ref()?;
    Some(format!("after {} to {}", escalation.after, escalation.notify.join(", ")))
}

fn health(channel: &Channel) -> Cell {
    match (&channel.error, channel.delivered_at) {
        (Some(_), _) => Cell::new("failing", Tone::Bad),
        (None, Some(_)) => Cell::new("ok", Tone::Good),
        (None, None) => Cell::new("unused", Tone::Dim),
    }
}

impl Row for Channel {
    const COLUMNS: &'static [Column] = &[
        column("CHANNEL", 20).cut(10),
        column("KIND", 12),
        column("STATUS", 8),
        column("WAITING", 7),
        column("DELIVERED", 10),
        column("RULES", 20).cut(10).optional(1),
        wide("NAMESPACE", 12),
        wide("ERROR", 30),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.spec.name.as_str().into(),
            self.spec.to.kind().into(),
            health(self),
            self.waiting.to_string().into(),
            self.delivered_at.map(|at| relative_or_exact(look, at)).as_deref().into(),
            if self.rules.is_empty() { "-".into() } else { self.rules.join(", ").into() },
            self.spec.namespace.as_str().into(),
            self.error.as_deref().into(),
        ]
    }

    fn name(&self) -> String {
        self.spec.name.clone()
    }
}

impl Detail for Channel {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let target = yaml(&self.spec.to).unwrap_or_default();
        let mut lines = vec![
            ("Channel", self.spec.name.as_str().into()),
            ("Namespace", self.spec.namespace.as_str().into()),
            ("Description", self.spec.description.as_deref().into()),
            ("Kind", self.spec.to.kind().into()),
            ("Language", self.spec.language.as_str().into()),
            ("Status", health(self)),
            ("Error", self.error.as_deref().into()),
            ("Delivered", optional_time(look, self.delivered_at)),
            ("Waiting", self.waiting.to_string().into()),
            ("Rules", if self.rules.is_empty() { "-".into() } else { self.rules.join(", ").into() }),
            ("Version", self.version.to_string().into()),
            ("Changed", format!("{} by {}", exact(look, self.updated_at), self.updated_by).into()),
        ];
        lines.extend(target.lines().skip(1).map(|line| ("Target", line.trim_end().to_owned().into())));
        lines
    }
}

/// Returns the periods of a recurring silence in one line, such as `0 22 * * * (Europe/Berlin) for 9h`.
fn recurrence(silence: &Silence) -> Option<String> {
    let (cron, duration) = (silence.recurrence.as_ref()?, silence.duration?);
    Some(format!("{} ({}) for {duration}", cron.expression, cron.zone))
}

impl Row for Silence {
    const COLUMNS: &'static [Column] = &[
        column("SILENCE", 7),
        column("RULE", 16).cut(10),
        column("SUBJECT", 16).cut(10),
        column("FROM", 10),
        column("UNTIL", 10),
        column("REASON", 30).cut(10),
        wide("ACTIVE", 6),
        wide("RECURS", 30),
        wide("SEVERITY", 8),
        wide("NAMESPACE", 12),
        wide("BY", 12),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.id.to_string().into(),
            self.rule.as_deref().unwrap_or("*").into(),
            self.subject.as_deref().unwrap_or("*").into(),
            relative_or_exact(look, self.starts_at).into(),
            relative_or_exact(look, self.ends_at).into(),
            self.reason.as_str().into(),
            if self.active { "yes" } else { "no" }.into(),
            recurrence(self).as_deref().into(),
            self.severity_max.map(|max| format!("<={max}")).as_deref().into(),
            self.namespace.as_str().into(),
            self.created_by.as_str().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Detail for Silence {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        vec![
            ("Silence", self.id.to_string().into()),
            ("Namespace", self.namespace.as_str().into()),
            ("Rule", self.rule.as_deref().unwrap_or("*").into()),
            ("Subject", self.subject.as_deref().unwrap_or("*").into()),
            ("Highest severity", self.severity_max.map(|max| max.to_string()).as_deref().into()),
            ("Active", if self.active { "yes" } else { "no" }.into()),
            ("Recurs", recurrence(self).as_deref().into()),
            ("From", exact(look, self.starts_at).into()),
            ("Until", exact(look, self.ends_at).into()),
            ("Reason", self.reason.as_str().into()),
            ("Created", format!("{} by {}", exact(look, self.created_at), self.created_by).into()),
        ]
    }
}

impl Row for Notification {
    const COLUMNS: &'static [Column] = &[
        column("NOTIFICATION", 12),
        column("STATUS", 9),
        column("CREATED", 10),
        column("CHANNEL", 16).cut(10),
        column("RULE", 16).cut(10),
        column("ALERTS", 6),
        column("ATTEMPTS", 8).optional(1),
        column("ERROR", 30).cut(10),
        wide("NAMESPACE", 12),
        wide("NEXT ATTEMPT", 12),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let tone = match self.status {
            NotificationStatus::Waiting => Tone::Waiting,
            NotificationStatus::Delivered => Tone::Good,
            NotificationStatus::Failed => Tone::Bad,
        };
        vec![
            self.id.to_string().into(),
            Cell::new(self.status.as_str(), tone),
            relative_or_exact(look, self.created_at).into(),
            self.channel.as_str().into(),
            self.rule.as_str().into(),
            self.total.to_string().into(),
            self.attempts.to_string().into(),
            self.error.as_deref().into(),
            self.namespace.as_str().into(),
            self.next_attempt_at.map(|at| relative_or_exact(look, at)).as_deref().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}
