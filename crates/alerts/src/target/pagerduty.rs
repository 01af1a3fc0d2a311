//! PagerDuty: one event of the Events API v2 for the rule.
//!
//! A request has one event, therefore all alerts of a rule are one incident: it opens with the first alert and is
//! resolved by a message whose alerts are all resolved. Published limits: 1,024 characters a summary, 255 a key, 512 KB.

use serde_json::{Value, json};

use crate::message::{Item, Message};
use crate::texts;

use super::content::{Content, Entry, Extent, alert_page};
use super::{Request, incident_key};
use crate::clean;

const API: &str = "https://events.pagerduty.com/v2/enqueue";
const SUMMARY_MAX: usize = 1_024;

pub(super) fn render(url: Option<&str>, routing_key: &str, message: &Message) -> Request {
    let content = Content::new(message, Extent::FULL);
    let links: Vec<_> =
        content.links.iter().map(|link| json!({"href": link.url, "text": link.text})).collect();
    let mut body = json!({
        "routing_key": routing_key,
        "event_action": if message.ends_incident() { "resolve" } else { "trigger" },
        "dedup_key": incident_key(message),
        "client": "Belfry",
        "links": links,
        "payload": payload(&content, message),
    });
    if let Some(url) = message.dashboard.as_deref().and_then(clean::url) {
        body["client_url"] = Value::String(url);
    }
    Request::json(url.unwrap_or(API), &body)
}

fn payload(content: &Content, message: &Message) -> Value {
    let namespace = texts::short_name(&message.namespace);
    let alerts: Vec<_> =
        message.items.iter().zip(&content.entries).map(|(item, entry)| alert(message, item, entry)).collect();
    json!({
        "summary": content.title.render_within(SUMMARY_MAX, str::to_owned, str::to_owned),
        "source": format!("belfry/{namespace}"),
        "severity": message.severity,
        "timestamp": message.at,
        "group": namespace,
        "class": clean::line(&message.condition, 100),
        "custom_details": {
            "namespace": namespace,
            "rule": texts::short_name(&message.rule),
            "description": content.description,
            "alerts": alerts,
            "total": message.total,
            "left_out": content.left_out,
        },
    })
}

fn alert(message: &Message, item: &Item, entry: &Entry) -> Value {
    json!({
        "subject": clean::line(&item.subject, 200),
        "kind": item.kind,
        "summary": clean::line(&item.summary, 500),
        "resolved": item.resolved,
        "count": item.count,
        "opened_at": item.opened_at,
        "last_at": item.last_at,
        "error": entry.error,
        "log": entry.log,
        "url": alert_page(message, item),
    })
}
