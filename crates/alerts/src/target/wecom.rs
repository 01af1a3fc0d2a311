//! WeCom: a Markdown message of a group bot.
//!
//! Published limit: 4,096 bytes of UTF-8. Its Markdown has inline code, but no code blocks: each line of an error or a
//! log is inline code in a quote.

use serde_json::json;

use crate::message::Message;

use super::Request;
use super::content::{Content, Entry, fit};
use super::markdown::{harmless, links};

const CONTENT_BYTES_MAX: usize = 4_000;

pub(super) fn render(url: &str, message: &Message) -> Request {
    let content = fit(message, text, |text| text.len() <= CONTENT_BYTES_MAX);
    Request::json(url, &json!({"msgtype": "markdown", "markdown": {"content": content}}))
}

fn text(content: &Content) -> String {
    let mut first = vec![format!("### {}", harmless(&content.title.to_text()))];
    first.extend(content.notice.map(str::to_owned));
    first.extend(content.facts.iter().map(|fact| content.fact(fact, harmless)));
    first.extend(
        content.description.iter().flat_map(|text| text.lines()).map(|line| format!("> {}", harmless(line))),
    );
    let mut parts = vec![first.join("\n")];
    parts.extend(content.entries.iter().map(entry));
    parts.extend(content.left_out.clone());
    parts.extend(links(&content.links));
    parts.join("\n\n")
}

fn entry(entry: &Entry) -> String {
    let mut lines: Vec<_> = entry.heading.iter().map(|heading| heading.render(harmless, name)).collect();
    lines.push(entry.times.clone());
    lines.extend(entry.error.as_deref().map(code));
    lines.extend(entry.log.as_deref().map(code));
    lines.extend(links(&entry.links));
    lines.join("\n")
}

fn name(name: &str) -> String {
    format!("`{}`", harmless(name))
}

fn code(text: &str) -> String {
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| format!("> `{}`", harmless(line)))
        .collect();
    lines.join("\n")
}
