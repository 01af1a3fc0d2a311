//! Opsgenie: creates an alert for the rule, or closes it when all alerts of the message are resolved.
//!
//! Published limits: 130 characters a message, 15,000 a description, 512 an alias, 50 a tag.

use model::alert::Severity;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::message::Message;
use crate::texts;

use super::content::{Content, fit};
use super::{Request, incident_key, plain};
use crate::clean;

const API: &str = "https://api.opsgenie.com/v2/alerts";
const MESSAGE_MAX: usize = 130;
const DESCRIPTION_MAX: usize = 15_000;
const TAG_MAX: usize = 50;

pub(super) fn render(url: Option<&str>, api_key: &str, message: &Message) -> Request {
    let api = url.unwrap_or(API).trim_end_matches('/');
    let alias = incident_key(message);
    let mut request = if message.ends_incident() {
        let alias = utf8_percent_encode(&alias, NON_ALPHANUMERIC);
        Request::json(format!("{api}/{alias}/close?identifierType=alias"), &close(message))
    } else {
        Request::json(api, &create(message, &alias))
    };
    request.headers.push(("authorization".to_owned(), format!("GenieKey {api_key}")));
    request
}

fn create(message: &Message, alias: &str) -> Value {
    let (title, description) =
        fit(message, parts, |(_, description)| clean::utf16_len(description) <= DESCRIPTION_MAX);
    let namespace = texts::short_name(&message.namespace);
    let rule = texts::short_name(&message.rule);
    json!({
        "message": title,
        "alias": alias,
        "description": description,
        "priority": match message.severity {
            Severity::Critical => "P1",
            Severity::Warning => "P3",
            Severity::Info => "P5",
        },
        "source": "Belfry",
        "tags": ["belfry", clean::cut(&namespace, TAG_MAX), clean::cut(&rule, TAG_MAX)],
        "details": {
            "namespace": namespace,
            "rule": rule,
            "condition": clean::line(&message.condition, 100),
        },
    })
}

fn close(message: &Message) -> Value {
    json!({"source": "Belfry", "note": texts::title(message).to_text()})
}

fn parts(content: &Content) -> (String, String) {
    let title = content.title.render_within(MESSAGE_MAX, str::to_owned, str::to_owned);
    (title, plain::text(content))
}
