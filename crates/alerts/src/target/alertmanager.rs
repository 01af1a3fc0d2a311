//! Alertmanager of Prometheus: one alert of the API v2 for each alert of the message.
//!
//! The labels identify an alert, therefore they have nothing that changes. Alertmanager resolves an alert without an end
//! after five minutes, because Prometheus sends it again and again. Belfry does not, therefore an open alert ends later
//! than its next repetition, which is at most 7 days away.

use std::collections::BTreeMap;

use model::Duration;
use model::alert::SecretText;
use serde_json::{Map, Value, json};

use crate::message::{Item, Message};
use crate::texts;

use super::Request;
use super::content::{Content, Entry, Extent, alert_page};
use super::webhook::add_headers;
use crate::clean;

/// Time after which Alertmanager resolves an open alert.
const OPEN_TIME_MAX: Duration = Duration::from_hours(8 * 24);
/// The same for the alert of a test, which nothing resolves.
const TEST_TIME_MAX: Duration = Duration::from_secs(5 * 60);

pub(super) fn render(url: &str, headers: &BTreeMap<String, SecretText>, message: &Message) -> Request {
    let content = Content::new(message, Extent::FULL);
    let alerts: Vec<_> = message
        .items
        .iter()
        .zip(&content.entries)
        .map(|(item, entry)| alert(message, &content, item, entry))
        .collect();
    let url = format!("{}/api/v2/alerts", url.trim_end_matches('/'));
    let mut request = Request::json(url, &Value::Array(alerts));
    add_headers(&mut request.headers, headers);
    request
}

fn alert(message: &Message, content: &Content, item: &Item, entry: &Entry) -> Value {
    let ends_at = match item.resolved {
        true => item.resolved_at.unwrap_or(message.at),
        false if message.is_test => message.at + TEST_TIME_MAX,
        false => message.at + OPEN_TIME_MAX,
    };
    let mut alert = json!({
        "labels": labels(message, item),
        "annotations": annotations(message, content, item, entry),
        "startsAt": item.opened_at,
        // Alertmanager refuses an end before the start.
        "endsAt": ends_at.max(item.opened_at),
    });
    if let Some(url) = alert_page(message, item) {
        alert["generatorURL"] = Value::String(url);
    }
    alert
}

fn labels(message: &Message, item: &Item) -> Map<String, Value> {
    present([
        ("alertname", Some(texts::short_name(&message.rule))),
        ("namespace", Some(texts::short_name(&message.namespace))),
        ("severity", Some(message.severity.to_string())),
        ("condition", Some(clean::line(&message.condition, 100))),
        ("subject_kind", Some(item.kind.to_string())),
        ("subject", Some(clean::line(&item.subject, 200))),
        // Keeps the alert of a test apart from a real one.
        ("test", message.is_test.then(|| "true".to_owned())),
    ])
}

fn annotations(message: &Message, content: &Content, item: &Item, entry: &Entry) -> Map<String, Value> {
    let summary = texts::describe(&message.condition, item.kind, &item.subject, item.count, message.language);
    let description: Vec<_> = [&content.description, &entry.error].into_iter().flatten().cloned().collect();
    present([
        ("summary", Some(summary)),
        ("description", Some(description.join("\n"))),
        ("runbook_url", message.runbook.as_deref().and_then(clean::url)),
        ("left_out", content.left_out.clone()),
    ])
}

/// Returns the pairs that have a value: an empty label is the same as none.
fn present<const N: usize>(pairs: [(&str, Option<String>); N]) -> Map<String, Value> {
    let value = |(key, value): (&str, Option<String>)| {
        value.filter(|value| !value.is_empty()).map(|value| (key.to_owned(), Value::String(value)))
    };
    pairs.into_iter().filter_map(value).collect()
}
