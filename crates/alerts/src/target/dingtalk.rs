//! DingTalk: a Markdown message of a custom bot. The signature is in the query of the URL.
//!
//! Published limit: 20 KB. Only the field `at` mentions people, and the message has none.

use model::Timestamp;
use model::alert::SecretText;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use crate::message::Message;

use super::content::{Content, Entry, fit};
use super::markdown::{block, harmless, links};
use super::{Request, sign};

const BODY_BYTES_MAX: usize = 20_000;

pub(super) fn render(url: &str, secret: Option<&SecretText>, message: &Message, now: Timestamp) -> Request {
    let url = match secret {
        Some(secret) => signed(url, secret.expose(), now.as_millis()),
        None => url.to_owned(),
    };
    let render = |content: &Content| {
        let body = json!({
            "msgtype": "markdown",
            "markdown": {"title": harmless(&content.title.to_text()), "text": text(content)},
            "at": {"atMobiles": [], "atUserIds": [], "isAtAll": false},
        });
        Request::json(url.as_str(), &body)
    };
    fit(message, render, |request| request.body.len() <= BODY_BYTES_MAX)
}

fn signed(url: &str, secret: &str, millis: i64) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    let signature = sign::dingtalk(secret, millis);
    let sign = utf8_percent_encode(&signature, NON_ALPHANUMERIC);
    format!("{url}{separator}timestamp={millis}&sign={sign}")
}

/// Returns paragraphs: a single line break is not shown.
fn text(content: &Content) -> String {
    let mut parts = vec![format!("### {}", harmless(&content.title.to_text()))];
    parts.extend(content.notice.map(str::to_owned));
    parts.extend(content.facts.iter().map(|fact| content.fact(fact, harmless)));
    parts.extend(
        content.description.iter().flat_map(|text| text.lines()).map(|line| format!("> {}", harmless(line))),
    );
    parts.extend(content.entries.iter().map(entry));
    parts.extend(content.left_out.clone());
    parts.extend(links(&content.links));
    parts.join("\n\n")
}

fn entry(entry: &Entry) -> String {
    let mut lines: Vec<_> =
        entry.heading.iter().map(|heading| format!("#### {}", heading.render(harmless, harmless))).collect();
    lines.push(entry.times.clone());
    lines.extend(entry.error.as_deref().map(block));
    lines.extend(entry.log.as_deref().map(block));
    lines.extend(links(&entry.links));
    lines.join("\n\n")
}
