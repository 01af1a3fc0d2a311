//! A message as plain text, for e-mail and for services without markup.

use super::content::{Content, Entry, Link};

/// Returns all of a message except its title, with an empty line between the alerts.
pub(super) fn text(content: &Content) -> String {
    let mut parts = vec![summary(content)];
    parts.extend(content.entries.iter().map(|item| entry(content, item)));
    parts.extend(content.left_out.clone());
    if !content.links.is_empty() {
        parts.push(links(content, &content.links));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// Returns the notice of a test, the facts and the description.
pub(super) fn summary(content: &Content) -> String {
    let mut lines: Vec<_> = content.notice.map(str::to_owned).into_iter().collect();
    lines.extend(content.facts.iter().map(|fact| content.fact(fact, str::to_owned)));
    lines.extend(content.description.clone());
    lines.join("\n")
}

fn entry(content: &Content, entry: &Entry) -> String {
    let mut lines: Vec<_> = entry.heading.iter().map(|heading| heading.to_text()).collect();
    lines.push(entry.times.clone());
    lines.extend(entry.error.as_deref().map(|error| labelled(content, content.words.error, error)));
    lines.extend(entry.log.as_deref().map(|log| labelled(content, content.words.log, log)));
    if !entry.links.is_empty() {
        lines.push(links(content, &entry.links));
    }
    lines.join("\n")
}

fn labelled(content: &Content, label: &str, text: &str) -> String {
    let indented: String = text.lines().map(|line| format!("\n    {line}")).collect();
    format!("{label}{}{indented}", content.words.colon.trim_end())
}

fn links(content: &Content, links: &[Link]) -> String {
    let lines: Vec<_> =
        links.iter().map(|link| format!("{}{}{}", link.text, content.words.colon, link.url)).collect();
    lines.join("\n")
}
