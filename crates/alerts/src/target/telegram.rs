//! Telegram: `sendMessage` of the Bot API with HTML.
//!
//! Published limit: 4,096 characters, counted after the markup; here the markup counts too. A domain or an `@name` in
//! running text becomes a link, therefore names and errors are in `code` and `pre`.

use serde_json::json;

use crate::message::Message;

use super::Request;
use super::content::{Content, Entry, Link, fit};
use crate::clean;

const API: &str = "https://api.telegram.org";
const TEXT_MAX: usize = 4_096;

pub(super) fn render(url: Option<&str>, token: &str, chat: &str, message: &Message) -> Request {
    let text = fit(message, text, |text| clean::utf16_len(text) <= TEXT_MAX);
    let body = json!({
        "chat_id": chat,
        "text": text,
        "parse_mode": "HTML",
        "link_preview_options": {"is_disabled": true},
    });
    let api = url.unwrap_or(API).trim_end_matches('/');
    Request::json(format!("{api}/bot{token}/sendMessage"), &body)
}

fn text(content: &Content) -> String {
    let facts: Vec<_> = content.facts.iter().map(|fact| content.fact(fact, code)).collect();
    let mut first = vec![content.title.render(bold, code)];
    first.extend(content.notice.map(str::to_owned));
    first.push(facts.join(" · "));
    first.extend(content.description.as_deref().map(|text| clean::html(&clean::inert(text))));
    let mut parts = vec![first.join("\n")];
    parts.extend(content.entries.iter().map(entry));
    parts.extend(content.left_out.clone());
    parts.extend(links(&content.links));
    parts.join("\n\n")
}

fn entry(entry: &Entry) -> String {
    let mut lines: Vec<_> = entry.heading.iter().map(|heading| heading.render(clean::html, code)).collect();
    lines.push(entry.times.clone());
    lines.extend(entry.error.as_deref().map(block));
    lines.extend(entry.log.as_deref().map(block));
    lines.extend(links(&entry.links));
    lines.join("\n")
}

fn links(links: &[Link]) -> Option<String> {
    let shown: Vec<_> = links
        .iter()
        .map(|link| format!("<a href=\"{}\">{}</a>", clean::html(&link.url), link.text))
        .collect();
    (!shown.is_empty()).then(|| shown.join(" · "))
}

/// `code` cannot be inside `b`, therefore the parts around a name are bold on their own.
fn bold(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("<b>{}</b>", clean::html(text)) }
}

fn code(name: &str) -> String {
    format!("<code>{}</code>", clean::html(name))
}

fn block(text: &str) -> String {
    format!("<pre>{}</pre>", clean::html(text))
}
