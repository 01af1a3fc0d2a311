//! E-mail: subject, plain text and HTML.
//!
//! The HTML sets no background and takes the colours of the text from the reader's program, so that it is readable in
//! dark mode too. Styles are in attributes, because several programs drop style sheets.

use crate::message::Message;

use super::content::{Content, Entry, Extent, Link};
use super::{Email, colour, plain};
use crate::clean;

const SUBJECT_MAX: usize = 200;
/// Style of code.
const PRE_STYLE: &str =
    "margin:4px 0;padding:8px;border:1px solid #999999;border-radius:4px;font-size:12px;white-space:pre-wrap";

pub(super) fn render(to: &[String], from: &str, message: &Message) -> Email {
    let content = Content::new(message, Extent::FULL);
    let title = content.title.to_text();
    Email {
        to: to.to_vec(),
        from: from.to_owned(),
        subject: content.title.render_within(SUBJECT_MAX, str::to_owned, str::to_owned),
        text: format!("{title}\n\n{}\n", plain::text(&content)),
        html: html(&content, message),
    }
}

fn html(content: &Content, message: &Message) -> String {
    let mut body = vec![format!(
        "<h2 style=\"margin:0 0 12px;padding-left:10px;border-left:4px solid #{:06x};font-size:18px\">{}</h2>",
        colour(message),
        clean::html(&content.title.to_text()),
    )];
    body.extend(content.notice.map(paragraph));
    body.extend(content.facts.iter().map(|fact| paragraph(&content.fact(fact, str::to_owned))));
    body.extend(content.description.as_deref().map(paragraph));
    body.extend(content.entries.iter().map(|item| entry(content, item)));
    body.extend(content.left_out.as_deref().map(paragraph));
    body.extend(links(&content.links));
    format!(
        "<!DOCTYPE html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"supported-color-schemes\" content=\"light dark\">\n</head>\n\
         <body style=\"font-family:system-ui,sans-serif;font-size:14px;line-height:1.5\">\n{}\n</body>\n</html>\n",
        message.language,
        body.join("\n"),
    )
}

fn entry(content: &Content, entry: &Entry) -> String {
    let strong = |name: &str| format!("<strong>{}</strong>", clean::html(name));
    let mut lines: Vec<_> = entry
        .heading
        .iter()
        .map(|heading| {
            format!(
                "<h3 style=\"margin:16px 0 4px;font-size:15px\">{}</h3>",
                heading.render(clean::html, strong)
            )
        })
        .collect();
    lines.push(paragraph(&entry.times));
    lines.extend(entry.error.as_deref().map(|error| code(content, content.words.error, error)));
    lines.extend(entry.log.as_deref().map(|log| code(content, content.words.log, log)));
    lines.extend(links(&entry.links));
    lines.join("\n")
}

fn paragraph(text: &str) -> String {
    format!("<p style=\"margin:4px 0\">{}</p>", clean::html(text).replace('\n', "<br>"))
}

fn code(content: &Content, label: &str, text: &str) -> String {
    format!(
        "{}\n<pre style=\"{PRE_STYLE}\">{}</pre>",
        paragraph(&format!("{label}{}", content.words.colon.trim_end())),
        clean::html(text),
    )
}

fn links(links: &[Link]) -> Option<String> {
    let shown: Vec<_> = links
        .iter()
        .map(|link| format!("<a href=\"{}\">{}</a>", clean::html(&link.url), link.text))
        .collect();
    (!shown.is_empty()).then(|| format!("<p style=\"margin:4px 0\">{}</p>", shown.join(" · ")))
}
