//! Table and detailed view of entries of the audit log.

use model::api::AuditEntry;
use model::audit::{FieldChange, Outcome};

use super::OutputOptions;
use super::table::{Cell, Column, Detail, Row, Tone, column, wide};
use super::time::{exact, relative_or_exact};

fn outcome(entry: &AuditEntry) -> Cell {
    let tone = match entry.entry.outcome {
        Outcome::Allowed => Tone::Good,
        Outcome::Denied => Tone::Bad,
        Outcome::Failed | Outcome::Unknown => Tone::Waiting,
    };
    Cell::new(entry.entry.outcome.as_str(), tone)
}

/// Returns what changed, in a few words: the error code, the number of objects or of changed fields.
fn detail(entry: &AuditEntry) -> String {
    let entry = &entry.entry;
    let changes = match (entry.changes.len(), entry.changes_truncated) {
        (0, false) => None,
        (1, false) => entry.changes.first().map(change),
        (count, truncated) => Some(format!("{count}{} fields changed", if truncated { "+" } else { "" })),
    };
    let affected = entry.affected.map(|count| format!("{count} objects"));
    let repeats = entry.repeats.map(|count| format!("{count} more times"));
    let parts = [entry.code.clone(), affected, repeats, changes];
    let text = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    if text.is_empty() { "-".to_owned() } else { text }
}

fn change(change: &FieldChange) -> String {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    format!("{}: {} → {}", change.path, shown(&change.old), shown(&change.new))
}

impl Row for AuditEntry {
    const COLUMNS: &'static [Column] = &[
        column("ENTRY", 6),
        column("TIME", 10),
        column("ACTOR", 16).cut(10),
        column("ACTION", 16).cut(12),
        column("OBJECT", 16).cut(10),
        column("OUTCOME", 8),
        column("DETAIL", 30).cut(10).optional(1),
        wide("NAMESPACE", 12),
        wide("VERB", 8),
        wide("RESOURCE", 10),
        wide("ADDRESS", 16),
        wide("TOKEN", 12),
        wide("SERVER", 12),
        wide("REQUEST", 20),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let entry = &self.entry;
        vec![
            self.sequence.to_string().into(),
            relative_or_exact(look, entry.at).into(),
            entry.actor.as_str().into(),
            entry.action.as_str().into(),
            entry.object.as_deref().into(),
            outcome(self),
            detail(self).into(),
            entry.namespace.as_deref().into(),
            entry.verb.as_str().into(),
            entry.resource.as_str().into(),
            entry.address.as_deref().into(),
            entry.token_id.as_deref().into(),
            entry.server.as_str().into(),
            entry.request_id.as_deref().into(),
        ]
    }

    fn name(&self) -> String {
        self.sequence.to_string()
    }
}

impl Detail for AuditEntry {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let entry = &self.entry;
        let mut lines = vec![
            ("Entry", self.sequence.to_string().into()),
            ("Time", exact(look, entry.at).into()),
            ("Actor", format!("{} ({})", entry.actor, entry.actor_kind).into()),
            ("Token", entry.token_id.as_deref().into()),
            ("Address", entry.address.as_deref().into()),
            ("User agent", entry.user_agent.as_deref().into()),
            ("Action", entry.action.as_str().into()),
            ("Right", format!("{} {}", entry.verb, entry.resource).into()),
            ("Namespace", entry.namespace.as_deref().into()),
            ("Object", entry.object.as_deref().into()),
            ("Outcome", outcome(self)),
            ("Error", entry.code.as_deref().into()),
            ("Server", entry.server.as_str().into()),
            ("Request", entry.request_id.as_deref().into()),
            ("Hash", self.hash.as_str().into()),
        ];
        if let Some(count) = entry.affected {
            lines.push(("Objects", count.to_string().into()));
        }
        if let Some(count) = entry.repeats {
            lines.push(("Repeats", count.to_string().into()));
        }
        lines.extend(entry.changes.iter().map(|changed| ("Changed", change(changed).into())));
        if entry.changes_truncated {
            lines.push(("Changed", "… more fields".into()));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::{Format, list, one};

    fn look(format: Format) -> OutputOptions {
        OutputOptions { format, color: false, now: "2026-11-28T08:10:00Z".parse().unwrap(), width: None }
    }

    fn entries() -> Vec<AuditEntry> {
        serde_json::from_value(json!([
            {"sequence": 1235, "hash": "a".repeat(64), "at": "2026-11-28T08:09:00Z", "server": "belfry-1",
             "actor": "ann@example.com", "actor_kind": "user", "token_id": "4w1kq0zj8x2m", "address": "10.0.0.7",
             "user_agent": "belfry/0.1.0", "request_id": "req_1f", "action": "put_schedule", "verb": "change",
             "resource": "schedules", "namespace": "finance", "object": "nightly", "outcome": "allowed",
             "changes": [
                {"path": "timing.rules[0].cron", "old": "\"0 2 * * *\"", "new": "\"0 3 * * *\""},
                {"path": "labels.team", "new": "\"pay\""}]},
            {"sequence": 1234, "hash": "b".repeat(64), "at": "2026-11-28T08:00:00Z", "server": "belfry-2",
             "actor": "finance-ci", "actor_kind": "service", "token_id": "8x2m4w1kq0zj", "action": "cancel_jobs",
             "verb": "operate", "resource": "jobs", "namespace": "web", "outcome": "denied", "code": "forbidden",
             "repeats": 99},
            {"sequence": 1233, "hash": "c".repeat(64), "at": "2026-11-28T08:00:00Z", "server": "belfry-2",
             "actor": "admin", "actor_kind": "admin", "action": "retry_jobs", "verb": "operate",
             "resource": "jobs", "outcome": "allowed", "affected": 12},
        ]))
        .unwrap()
    }

    #[test]
    fn entries_as_a_table() {
        let narrow = OutputOptions { width: Some(80), ..look(Format::Table) };
        insta::assert_snapshot!("audit_table", list(&narrow, &entries()).unwrap());
        insta::assert_snapshot!("audit_wide", list(&look(Format::Wide), &entries()).unwrap());
        insta::assert_snapshot!("audit_detail", one(&look(Format::Table), &entries()[0]).unwrap());
        insta::assert_snapshot!(
            "audit_detail_of_a_denial",
            one(&look(Format::Table), &entries()[1]).unwrap()
        );
        assert_eq!(list(&look(Format::Name), &entries()).unwrap(), "1235\n1234\n1233\n");
    }
}
