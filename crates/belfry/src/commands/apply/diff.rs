//! Unified diff between an object on the server and its definition in a file.

use client::Client;
use model::queue::QueueSettings;
use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use super::documents::Object;
use super::optional;
use crate::failure::Failure;
use crate::output::text::escape;
use crate::output::yaml;

/// Number of context lines around a change.
const CONTEXT_LINES: usize = 3;

/// Returns an object as YAML: the version on the server (empty if it does not exist), and the version in the file.
pub(super) async fn sides(client: &Client, object: &Object) -> Result<(String, String), Failure> {
    match object {
        Object::Schedule(spec) => {
            let namespace = Some(spec.namespace.clone());
            let named = client::ScheduleRef { name: spec.name.clone(), namespace };
            let current = optional(client.schedule(&named).await)?.and_then(|schedule| schedule.spec);
            Ok((text(current.as_deref())?, text(Some(spec.as_ref()))?))
        }
        Object::Workflow(spec) => {
            let namespace = Some(spec.namespace.clone());
            let named = client::WorkflowRef { name: spec.name.clone(), namespace };
            let current = optional(client.workflow(&named, None).await)?.and_then(|workflow| workflow.spec);
            Ok((text(current.as_deref())?, text(Some(spec.as_ref()))?))
        }
        Object::Service(spec) => {
            let namespace = Some(spec.namespace.clone());
            let named = client::ServiceRef { name: spec.name.clone(), namespace };
            let current = optional(client.service(&named).await)?;
            let mut wanted = spec.clone();
            // Without a number, a service keeps its current one.
            let replicas = current.as_ref().map(|service| service.replicas);
            if wanted.has_fixed_replicas() {
                wanted.replicas = wanted.replicas.or(replicas);
            }
            let current = current.and_then(|service| {
                let spec = service.spec?;
                let replicas = spec.has_fixed_replicas().then_some(service.replicas);
                Some(model::ServiceSpec { replicas, ..*spec })
            });
            Ok((text(current.as_ref())?, text(Some(wanted.as_ref()))?))
        }
        Object::Calendar(spec) => {
            let current = optional(client.calendar(&spec.name, Some(&spec.namespace)).await)?;
            let current = current.and_then(|calendar| calendar.spec);
            Ok((text(current.as_deref())?, text(Some(spec))?))
        }
        Object::Channel(spec) => {
            let current = optional(client.channel(&spec.namespace, &spec.name).await)?;
            let mut wanted = spec.clone();
            wanted.to.hide_secrets();
            Ok((text(current.map(|channel| channel.spec).as_ref())?, text(Some(wanted.as_ref()))?))
        }
        Object::AlertRule(spec) => {
            let current = optional(client.alert_rule(&spec.namespace, &spec.name).await)?;
            Ok((text(current.map(|rule| rule.spec).as_ref())?, text(Some(spec.as_ref()))?))
        }
        Object::Monitor(spec) => {
            let current = optional(client.monitor(&spec.namespace, &spec.name).await)?;
            Ok((text(current.map(|monitor| monitor.spec).as_ref())?, text(Some(spec.as_ref()))?))
        }
        Object::Secret(spec) => {
            let current = optional(client.secret(&spec.namespace, &spec.name).await)?;
            let mut wanted = spec.clone();
            wanted.hide_values();
            Ok((text(current.map(|secret| secret.spec).as_ref())?, text(Some(wanted.as_ref()))?))
        }
        Object::Queue { name, settings } => {
            let current = optional(client.queue(name).await)?.filter(|queue| queue.version > 0);
            let current: Option<QueueSettings> = current.map(|queue| queue.settings);
            Ok((text(current.as_ref())?, text(Some(settings))?))
        }
    }
}

fn text<T: Serialize>(value: Option<&T>) -> Result<String, Failure> {
    value.map_or_else(|| Ok(String::new()), yaml)
}

/// Formats a difference between an object on the server and in a file as `diff -u` does; empty without differences.
pub(super) fn unified(title: &str, current: &str, wanted: &str, color: bool) -> String {
    unified_between(&format!("{title} (server)"), &format!("{title} (file)"), current, wanted, color)
}

/// Formats a difference between two texts with their titles as `diff -u` does; empty without differences.
pub(in crate::commands) fn unified_between(
    before: &str,
    after: &str,
    current: &str,
    wanted: &str,
    color: bool,
) -> String {
    if current == wanted {
        return String::new();
    }
    let before = if current.is_empty() { "/dev/null".to_owned() } else { escape(before) };
    let mut out = format!("--- {before}\n+++ {}\n", escape(after));
    let diff = TextDiff::from_lines(current, wanted);
    for hunk in diff.unified_diff().context_radius(CONTEXT_LINES).iter_hunks() {
        out.push_str(&format!("{}\n", hunk.header()));
        for change in hunk.iter_changes() {
            let (sign, paint) = match change.tag() {
                ChangeTag::Delete => ('-', "\x1b[31m"),
                ChangeTag::Insert => ('+', "\x1b[32m"),
                ChangeTag::Equal => (' ', ""),
            };
            let line = escape(change.value().trim_end_matches('\n'));
            match color && !paint.is_empty() {
                true => out.push_str(&format!("{paint}{sign}{line}\x1b[0m\n")),
                false => out.push_str(&format!("{sign}{line}\n")),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_the_lines_around_it() {
        let current = "a: 1\nb: 2\nc: 3\nd: 4\ne: 5\n";
        insta::assert_snapshot!(unified("queue mail", current, "a: 1\nb: 2\nc: 3\nd: 9\ne: 5\n", false), @r"
        --- queue mail (server)
        +++ queue mail (file)
        @@ -1,5 +1,5 @@
         a: 1
         b: 2
         c: 3
        -d: 4
        +d: 9
         e: 5
        ");
        assert_eq!(unified("queue mail", current, current, false), "");
        assert!(unified("queue mail", "", current, false).starts_with("--- /dev/null\n"));
    }
}
