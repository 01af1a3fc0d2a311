//! Discord: one embed in the colour of the severity.
//!
//! Published limits: 256 characters a title, 4,096 a description, 6,000 all together. Mentions are off for the whole
//! message.

use serde_json::json;

use crate::message::Message;

use super::content::{Content, Entry, Link, fit};
use super::{Request, colour};
use crate::clean;

const TITLE_MAX: usize = 256;
const DESCRIPTION_MAX: usize = 4_096;

pub(super) fn render(url: &str, message: &Message) -> Request {
    let (title, description) = fit(
        message,
        |content| (content.title.render_within(TITLE_MAX, str::to_owned, escape), description(content)),
        |(_, description)| clean::utf16_len(description) <= DESCRIPTION_MAX,
    );
    let body = json!({
        "embeds": [{
            "title": title,
            "description": description,
            "color": colour(message),
            "timestamp": message.at,
        }],
        "allowed_mentions": {"parse": []},
    });
    Request::json(url, &body)
}

fn description(content: &Content) -> String {
    let facts: Vec<_> = content.facts.iter().map(|fact| content.fact(fact, code)).collect();
    let mut first: Vec<_> = content.notice.map(str::to_owned).into_iter().collect();
    first.push(facts.join(" · "));
    first.extend(content.description.as_deref().map(escape));
    let mut parts = vec![first.join("\n")];
    parts.extend(content.entries.iter().map(entry));
    parts.extend(content.left_out.clone());
    parts.extend(links(&content.links));
    parts.join("\n\n")
}

fn entry(entry: &Entry) -> String {
    let mut lines: Vec<_> = entry.heading.iter().map(|heading| heading.render(str::to_owned, code)).collect();
    lines.push(entry.times.clone());
    lines.extend(entry.error.as_deref().map(block));
    lines.extend(entry.log.as_deref().map(block));
    lines.extend(links(&entry.links));
    lines.join("\n")
}

fn links(links: &[Link]) -> Option<String> {
    let shown: Vec<_> = links.iter().map(|link| format!("[{}]({})", link.text, link.url)).collect();
    (!shown.is_empty()).then(|| shown.join(" · "))
}

fn code(name: &str) -> String {
    format!("`{}`", clean::without_backticks(name))
}

fn block(text: &str) -> String {
    format!("```\n{}\n```", clean::unfenced(text))
}

/// Escapes Markdown, mentions, and URLs that would become links.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(
            c,
            '\\' | '`' | '*' | '_' | '~' | '|' | '#' | '[' | ']' | '(' | ')' | '<' | '>' | '@' | ':' | '-'
        ) {
            escaped.push('\\');
        }
        escaped.push(c);
        // A mention is found before the escapes are.
        if c == '@' {
            escaped.push(clean::ZERO_WIDTH_SPACE);
        }
    }
    escaped
}
