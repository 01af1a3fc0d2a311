//! Tables and detailed views of monitors.

use model::alert::MonitorTiming;
use model::api::{Monitor, MonitorStatus, Ping, PingKind};

use super::OutputOptions;
use super::table::{Cell, Column, Detail, Row, Tone, column, wide};
use super::time::{exact, relative_or_exact};

fn status(status: MonitorStatus) -> Cell {
    let tone = match status {
        MonitorStatus::New | MonitorStatus::Paused => Tone::Dim,
        MonitorStatus::Up => Tone::Good,
        MonitorStatus::Late => Tone::Waiting,
        MonitorStatus::Down => Tone::Bad,
    };
    Cell::new(status.as_str(), tone)
}

/// Returns the timing in one line, such as `every 1d` or `30 2 * * * (Europe/Berlin)`.
fn timing(timing: &MonitorTiming) -> String {
    match timing {
        MonitorTiming::Every(period) => format!("every {period}"),
        MonitorTiming::Cron(cron) => format!("{} ({})", cron.expression, cron.zone),
    }
}

/// Returns what a ping reported, such as `exit code 3 after 5m`.
fn reported(ping: &Ping) -> String {
    let what = match (ping.kind, ping.exit_code) {
        (PingKind::Fail, Some(code)) => format!("exit code {code}"),
        (kind, _) => kind.as_str().to_owned(),
    };
    let after = ping.run_time.map(|run_time| format!(" after {run_time}")).unwrap_or_default();
    let message = ping.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    format!("{what}{after}{message}")
}

impl Row for Monitor {
    const COLUMNS: &'static [Column] = &[
        column("MONITOR", 20).cut(10),
        column("STATUS", 6),
        column("LAST PING", 10),
        column("EXPECTED", 10),
        column("TIMING", 24).cut(14).optional(1),
        column("GRACE", 6).optional(2),
        column("ALERTS", 6),
        wide("NAMESPACE", 12),
        wide("OWNER", 12),
        wide("REASON", 30),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let alerts = match self.open_alerts {
            0 => "0".into(),
            open => Cell::new(open.to_string(), Tone::Bad),
        };
        let time = |at: Option<model::Timestamp>| at.map(|at| relative_or_exact(look, at));
        vec![
            self.spec.name.as_str().into(),
            status(self.status),
            time(self.pings.first().map(|ping| ping.at)).as_deref().into(),
            time(self.expected_at).as_deref().into(),
            timing(&self.spec.timing).into(),
            self.spec.grace.to_string().into(),
            alerts,
            self.spec.namespace.as_str().into(),
            self.spec.owner.as_deref().into(),
            self.reason.as_deref().into(),
        ]
    }

    fn name(&self) -> String {
        self.spec.name.clone()
    }
}

impl Detail for Monitor {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let spec = &self.spec;
        let time = |at: Option<model::Timestamp>| at.map(|at| exact(look, at));
        let labels: Vec<_> = spec.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut lines = vec![
            ("Monitor", spec.name.as_str().into()),
            ("Namespace", spec.namespace.as_str().into()),
            ("Owner", spec.owner.as_deref().into()),
            ("Labels", if labels.is_empty() { "-".into() } else { labels.join(", ").into() }),
            ("Description", spec.description.as_deref().into()),
            ("Status", status(self.status)),
            ("Reason", self.reason.as_deref().into()),
            ("Down since", time(self.down_since).as_deref().into()),
            ("Timing", timing(&spec.timing).into()),
            ("Grace", spec.grace.to_string().into()),
            ("Longest run", spec.longest_run().to_string().into()),
            ("Started", time(self.started_at).as_deref().into()),
            ("Succeeded", time(self.succeeded_at).as_deref().into()),
            ("Expected", time(self.expected_at).as_deref().into()),
            ("Open alerts", self.open_alerts.to_string().into()),
            ("Version", self.version.to_string().into()),
            ("Changed", format!("{} by {}", exact(look, self.updated_at), self.updated_by).into()),
        ];
        if let Some(url) = &self.ping_url {
            lines.push(("Ping URL", Cell::whole(url)));
        }
        lines.extend(
            self.pings
                .iter()
                .map(|ping| ("Ping", format!("{} {}", exact(look, ping.at), reported(ping)).into())),
        );
        lines
    }
}
