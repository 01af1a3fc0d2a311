//! Microsoft Teams: an Adaptive Card 1.4 for the webhook of a workflow.
//!
//! `TextBlock` renders Markdown, therefore all texts are runs of `RichTextBlock`, which does not. A run does not keep
//! line breaks, therefore each line of a log is its own block. Published limit: 28 KB a message.

use serde_json::{Value, json};

use model::alert::Severity;

use crate::message::Message;

use super::Request;
use super::content::{Content, Entry, Link, fit};

const BODY_BYTES_MAX: usize = 24_000;

pub(super) fn render(url: &str, message: &Message) -> Request {
    fit(
        message,
        |content| Request::json(url, &envelope(&card(content, message))),
        |request| request.body.len() <= BODY_BYTES_MAX,
    )
}

fn envelope(card: &Value) -> Value {
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": card,
        }],
    })
}

fn card(content: &Content, message: &Message) -> Value {
    let style = match message.severity {
        _ if message.is_resolved() => "good",
        Severity::Critical => "attention",
        Severity::Warning => "warning",
        Severity::Info => "accent",
    };
    let title = text(&json!([{
        "type": "TextRun", "text": content.title.to_text(), "weight": "Bolder", "size": "Medium",
    }]));
    let mut body = vec![json!({"type": "Container", "style": style, "bleed": true, "items": [title]})];
    body.extend(content.notice.map(plain));
    body.extend(content.facts.iter().map(|fact| plain(&content.fact(fact, str::to_owned))));
    body.extend(content.description.iter().flat_map(|description| description.lines()).map(plain));
    body.extend(content.entries.iter().map(entry));
    body.extend(content.left_out.as_deref().map(plain));
    body.extend(actions(&content.links));
    json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": body,
    })
}

fn entry(entry: &Entry) -> Value {
    let run = |text: &str, weight| json!({"type": "TextRun", "text": text, "weight": weight});
    let mut items: Vec<_> =
        entry.heading.iter().map(|heading| text(&json!([run(&heading.to_text(), "Bolder")]))).collect();
    items.push(text(&json!([{"type": "TextRun", "text": entry.times, "isSubtle": true}])));
    items.extend(entry.error.as_deref().map(code));
    items.extend(entry.log.as_deref().map(code));
    items.extend(actions(&entry.links));
    json!({"type": "Container", "separator": true, "items": items})
}

fn text(inlines: &Value) -> Value {
    json!({"type": "RichTextBlock", "inlines": inlines})
}

fn plain(line: &str) -> Value {
    text(&json!([{"type": "TextRun", "text": line}]))
}

fn code(lines: &str) -> Value {
    let line = |line: &str| {
        // Spaces at the start of a line would be dropped.
        let indent = line.len() - line.trim_start_matches(' ').len();
        let text = format!("{}{}", "\u{a0}".repeat(indent), &line[indent..]);
        json!({
            "type": "RichTextBlock",
            "spacing": "None",
            "inlines": [{"type": "TextRun", "text": text, "fontType": "Monospace", "size": "Small"}],
        })
    };
    let items: Vec<_> = lines.lines().filter(|line| !line.is_empty()).map(line).collect();
    json!({"type": "Container", "style": "emphasis", "items": items})
}

fn actions(links: &[Link]) -> Option<Value> {
    let actions: Vec<_> = links
        .iter()
        .map(|link| json!({"type": "Action.OpenUrl", "title": link.text, "url": link.url}))
        .collect();
    (!actions.is_empty()).then(|| json!({"type": "ActionSet", "actions": actions}))
}
