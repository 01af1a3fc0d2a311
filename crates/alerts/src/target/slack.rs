//! Slack: a header, and an attachment in the colour of the severity with one section for each alert.
//!
//! Published limits: 3,000 characters a text, 150 a header, 50 blocks. `verbatim` turns off the detection of links and
//! mentions; those that are written in angle brackets are escaped.

use serde_json::{Value, json};

use crate::message::Message;

use super::content::{Content, Entry, Link, fit};
use super::{Request, colour};
use crate::clean;

const TEXT_MAX: usize = 3_000;
const HEADER_MAX: usize = 150;

pub(super) fn render(url: &str, message: &Message) -> Request {
    let (title, sections) = fit(
        message,
        |content| (content.title.render_within(HEADER_MAX, escape, escape), sections(content)),
        |(_, sections)| sections.iter().all(|text| clean::utf16_len(text) <= TEXT_MAX),
    );
    let blocks: Vec<_> = sections.iter().map(|text| section(text)).collect();
    let body = json!({
        "text": title,
        "blocks": [{"type": "header", "text": {"type": "plain_text", "text": title, "emoji": false}}],
        "attachments": [{"color": format!("#{:06x}", colour(message)), "fallback": title, "blocks": blocks}],
        "unfurl_links": false,
        "unfurl_media": false,
    });
    Request::json(url, &body)
}

fn section(text: &str) -> Value {
    json!({"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": true}})
}

/// Returns the texts of the sections: facts, alerts, and the end.
fn sections(content: &Content) -> Vec<String> {
    let facts: Vec<_> = content.facts.iter().map(|fact| content.fact(fact, code)).collect();
    let mut first: Vec<_> = content.notice.map(str::to_owned).into_iter().collect();
    first.push(facts.join(" · "));
    first.extend(content.description.as_deref().map(|text| escape(&clean::without_backticks(text))));
    let mut texts = vec![first.join("\n")];
    texts.extend(content.entries.iter().map(entry));
    let mut last: Vec<_> = content.left_out.clone().into_iter().collect();
    last.extend(links(&content.links));
    if !last.is_empty() {
        texts.push(last.join("\n"));
    }
    texts
}

fn entry(entry: &Entry) -> String {
    let mut lines: Vec<_> = entry.heading.iter().map(|heading| heading.render(escape, code)).collect();
    lines.push(entry.times.clone());
    lines.extend(entry.error.as_deref().map(block));
    lines.extend(entry.log.as_deref().map(block));
    lines.extend(links(&entry.links));
    lines.join("\n")
}

fn links(links: &[Link]) -> Option<String> {
    let shown: Vec<_> = links.iter().map(|link| format!("<{}|{}>", escape(&link.url), link.text)).collect();
    (!shown.is_empty()).then(|| shown.join(" · "))
}

fn code(name: &str) -> String {
    format!("`{}`", escape(&clean::without_backticks(name)))
}

fn block(text: &str) -> String {
    format!("```\n{}\n```", escape(&clean::unfenced(text)))
}

/// Escapes the three control characters of Slack.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
