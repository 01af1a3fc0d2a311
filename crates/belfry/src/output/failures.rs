//! Table and detailed view of failure groups.

use model::api::FailureGroup;
use model::failures::FailureState;

use super::OutputOptions;
use super::table::{Cell, Column, Detail, Row, Tone, column, wide};
use super::time::{exact, relative_or_exact};

fn state(group: &FailureGroup) -> Cell {
    let tone = match group.state {
        FailureState::Open => Tone::Bad,
        FailureState::Known => Tone::Waiting,
        FailureState::Muted => Tone::Dim,
        FailureState::Resolved => Tone::Good,
    };
    if group.reopened { Cell::new("reopened", tone) } else { Cell::new(group.state.as_str(), tone) }
}

/// Returns the newest name, and the number of the others.
fn names(group: &FailureGroup) -> String {
    let first = group.names.first().map_or("-", |first| first.name.as_deref().unwrap_or("(other names)"));
    match group.names.len().saturating_sub(1) {
        0 => first.to_owned(),
        more => format!("{first} +{more}"),
    }
}

/// Returns the error code with the exit code: `exit 3`, `timeout`.
fn error(group: &FailureGroup) -> String {
    match (group.error.as_str(), group.exit_code) {
        ("exit_code", Some(code)) => format!("exit {code}"),
        (error, _) => error.to_owned(),
    }
}

impl Row for FailureGroup {
    const COLUMNS: &'static [Column] = &[
        column("GROUP", 16),
        column("STATE", 8),
        column("24H", 6),
        column("TOTAL", 6).optional(2),
        column("LAST SEEN", 10),
        column("JOBS", 20).cut(12),
        column("MESSAGE", 40).cut(16),
        wide("NAMESPACE", 12),
        wide("ERROR", 12),
        wide("FIRST SEEN", 10),
        wide("NOTE", 20),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.id.as_str().into(),
            state(self),
            self.last_24h.to_string().into(),
            self.count.to_string().into(),
            relative_or_exact(look, self.last_seen).into(),
            names(self).into(),
            if self.message.is_empty() { error(self).into() } else { self.message.as_str().into() },
            self.namespace.as_str().into(),
            error(self).into(),
            relative_or_exact(look, self.first_seen).into(),
            self.note.as_deref().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.clone()
    }
}

impl Detail for FailureGroup {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let mut lines = vec![
            ("Failure group", self.id.as_str().into()),
            ("Namespace", self.namespace.as_str().into()),
            ("State", state(self)),
            ("Note", self.note.as_deref().into()),
            ("Error", error(self).into()),
            ("Message", self.message.as_str().into()),
            ("Signature", self.signature.as_str().into()),
            ("Failed jobs", self.count.to_string().into()),
            ("Last 24 hours", self.last_24h.to_string().into()),
            ("First seen", exact(look, self.first_seen).into()),
            ("Last seen", exact(look, self.last_seen).into()),
        ];
        if let (Some(by), Some(at)) = (&self.state_set_by, self.state_set_at) {
            lines.insert(4, ("State set", format!("by {by} at {}", exact(look, at)).into()));
        }
        for name in &self.names {
            let text = name.name.as_deref().unwrap_or("(other names)");
            lines.push(("Job name", format!("{text} ({})", name.count).into()));
        }
        if self.unlisted_names > 0 {
            lines.push(("Other names", self.unlisted_names.to_string().into()));
        }
        lines.extend(self.jobs.iter().map(|job| ("Job", job.to_string().into())));
        lines
    }
}
