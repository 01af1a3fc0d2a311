//! Feishu and Lark: a card of a custom bot. The signature is in the body.
//!
//! All texts are `plain_text`, which has no markup and no mentions; links are buttons. Published limit: 20 KB.

use model::Timestamp;
use model::alert::{SecretText, Severity};
use serde_json::{Value, json};

use crate::message::Message;

use super::content::{Content, Entry, Link, fit};
use super::{Request, plain, sign};

const BODY_BYTES_MAX: usize = 20_000;

pub(super) fn render(url: &str, secret: Option<&SecretText>, message: &Message, now: Timestamp) -> Request {
    let render = |content: &Content| {
        let mut body = json!({"msg_type": "interactive", "card": card(content, message)});
        if let Some(secret) = secret {
            let seconds = now.as_millis().div_euclid(1_000);
            body["timestamp"] = Value::String(seconds.to_string());
            body["sign"] = Value::String(sign::feishu(secret.expose(), seconds));
        }
        Request::json(url, &body)
    };
    fit(message, render, |request| request.body.len() <= BODY_BYTES_MAX)
}

fn card(content: &Content, message: &Message) -> Value {
    let template = match message.severity {
        _ if message.is_resolved() => "green",
        Severity::Critical => "red",
        Severity::Warning => "orange",
        Severity::Info => "blue",
    };
    let mut elements = vec![div(&plain::summary(content))];
    elements.extend(content.entries.iter().flat_map(entry));
    elements.extend(content.left_out.as_deref().map(div));
    elements.extend(buttons(&content.links));
    json!({
        "config": {"wide_screen_mode": true},
        "header": {"template": template, "title": text(&content.title.to_text())},
        "elements": elements,
    })
}

fn entry(entry: &Entry) -> Vec<Value> {
    let heading: String = entry.heading.iter().map(|heading| format!("{}\n", heading.to_text())).collect();
    let mut elements = vec![json!({"tag": "hr"}), div(&format!("{heading}{}", entry.times))];
    elements.extend(entry.error.as_deref().map(div));
    elements.extend(entry.log.as_deref().map(note));
    elements.extend(buttons(&entry.links));
    elements
}

fn text(content: &str) -> Value {
    json!({"tag": "plain_text", "content": content})
}

fn div(content: &str) -> Value {
    json!({"tag": "div", "text": text(content)})
}

/// Log lines in small grey letters: a code block exists only in Markdown, which cannot be escaped reliably.
fn note(content: &str) -> Value {
    json!({"tag": "note", "elements": [text(content)]})
}

fn buttons(links: &[Link]) -> Option<Value> {
    let actions: Vec<_> = links
        .iter()
        .map(|link| json!({"tag": "button", "text": text(link.text), "type": "default", "url": link.url}))
        .collect();
    (!actions.is_empty()).then(|| json!({"tag": "action", "actions": actions}))
}
