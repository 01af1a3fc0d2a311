//! Webhook: a CloudEvent in structured JSON (CloudEvents 1.0), signed as Standard Webhooks define it.
//!
//! The event has everything of the message, without cuts: the receiver is a program.

use std::collections::BTreeMap;

use model::alert::{Language, SecretText, Severity, SubjectKind};
use model::{Duration, JobId, RunId, Timestamp};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::message::{Item, Message};
use crate::texts;

use super::{Request, sign};

#[derive(Serialize)]
struct Event<'a> {
    specversion: &'static str,
    id: String,
    source: String,
    r#type: &'static str,
    time: Timestamp,
    datacontenttype: &'static str,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    id: u64,
    namespace: &'a str,
    rule: &'a str,
    condition: &'a str,
    description: Option<&'a str>,
    runbook: Option<&'a str>,
    severity: Severity,
    language: Language,
    title: String,
    at: Timestamp,
    is_resolved: bool,
    is_test: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    escalated_after: Option<Duration>,
    dashboard: Option<&'a str>,
    total: u64,
    firing: u64,
    open: u64,
    items: Vec<ItemData<'a>>,
}

#[derive(Serialize)]
struct ItemData<'a> {
    alert: u64,
    kind: SubjectKind,
    subject: &'a str,
    resolved: bool,
    count: u64,
    opened_at: Timestamp,
    last_at: Timestamp,
    resolved_at: Option<Timestamp>,
    summary: &'a str,
    detail: Option<&'a str>,
    log: Option<&'a str>,
    job: Option<JobId>,
    run: Option<RunId>,
}

pub(super) fn render(
    url: &str,
    secret: Option<&SecretText>,
    headers: &BTreeMap<String, SecretText>,
    message: &Message,
    now: Timestamp,
) -> Request {
    let body = serde_json::to_vec(&event(message)).expect("a struct of texts, numbers and times is JSON");
    let id = format!("belfry-{}", message.id);
    let seconds = now.as_millis().div_euclid(1_000);
    let mut all = vec![
        ("content-type".to_owned(), "application/cloudevents+json".to_owned()),
        ("webhook-id".to_owned(), id.clone()),
        ("webhook-timestamp".to_owned(), seconds.to_string()),
    ];
    if let Some(secret) = secret {
        let signature = sign::webhook(secret.expose(), &id, seconds, &body);
        all.push(("webhook-signature".to_owned(), signature));
    }
    add_headers(&mut all, headers);
    Request { url: url.to_owned(), headers: all, body }
}

/// Adds the headers of a channel. They cannot replace ours, which the receiver relies on.
pub(super) fn add_headers(all: &mut Vec<(String, String)>, headers: &BTreeMap<String, SecretText>) {
    for (name, value) in headers {
        if !all.iter().any(|(taken, _)| taken.eq_ignore_ascii_case(name)) {
            all.push((name.clone(), value.expose().to_owned()));
        }
    }
}

fn event(message: &Message) -> Event<'_> {
    Event {
        specversion: "1.0",
        id: message.id.to_string(),
        source: format!("/belfry/{}", namespace(&message.namespace)),
        r#type: match message {
            Message { is_test: true, .. } => "belfry.alert.test",
            message if message.is_resolved() => "belfry.alert.resolved",
            _ => "belfry.alert.firing",
        },
        time: message.at,
        datacontenttype: "application/json",
        data: Data {
            id: message.id,
            namespace: &message.namespace,
            rule: &message.rule,
            condition: &message.condition,
            description: message.description.as_deref(),
            runbook: message.runbook.as_deref(),
            severity: message.severity,
            language: message.language,
            title: texts::title(message).to_text(),
            at: message.at,
            is_resolved: message.is_resolved(),
            is_test: message.is_test,
            escalated_after: message.escalated_after,
            dashboard: message.dashboard.as_deref(),
            total: message.total,
            firing: message.firing,
            open: message.open,
            items: message.items.iter().map(item).collect(),
        },
    }
}

/// Encodes a namespace as a segment of a URI; a valid name stays as it is.
fn namespace(name: &str) -> String {
    const SEGMENT: &percent_encoding::AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(name, SEGMENT).to_string()
}

fn item(item: &Item) -> ItemData<'_> {
    ItemData {
        alert: item.alert,
        kind: item.kind,
        subject: &item.subject,
        resolved: item.resolved,
        count: item.count,
        opened_at: item.opened_at,
        last_at: item.last_at,
        resolved_at: item.resolved_at,
        summary: &item.summary,
        detail: item.detail.as_deref(),
        log: item.log.as_deref(),
        job: item.job,
        run: item.run,
    }
}
