//! The delivery of a message to each kind of channel: rendering of the request, and judgement of the answer. No I/O.
//!
//! ```text
//!  Message ──content──> Content ──one file a kind──> Delivery ──> service
//!                                                                  │
//!                          Ok or Refused <──judge── status, body ──┘
//! ```
//!
//! Names, error messages and log lines come from the jobs of users and are not trusted. `Content` has them as plain text;
//! the file of a kind escapes them where it writes them. Where a service has a form without markup (text runs of Teams,
//! `plain_text` of Feishu), it is used, because nothing can be injected there.
//!
//! # Invariants
//! - A request is below the limits of its service: `content::fit` shows less until it is.
//! - The same message renders to the same request, except for signatures, which depend on `now`.
//!
//! # Files
//! - `content`: what a message shows, and how much of it. `clean`: untrusted text as plain lines, and cutting.
//! - `plain`: a message as plain text. `markdown`: Markdown of services without escapes.
//! - `sign`: signatures. `judge`: answers of services.
//! - `webhook`, `slack`, `teams`, `discord`, `telegram`, `pagerduty`, `opsgenie`, `alertmanager`, `dingtalk`, `feishu`,
//!   `wecom`, `email`: one kind each.

mod alertmanager;
mod content;
mod dingtalk;
mod discord;
mod email;
mod feishu;
mod judge;
mod markdown;
mod opsgenie;
mod pagerduty;
mod plain;
mod sign;
mod slack;
mod teams;
mod telegram;
#[cfg(test)]
mod tests;
mod webhook;
mod wecom;

use std::fmt;

use model::Timestamp;
use model::alert::{Severity, Target};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::clean;
use crate::message::Message;

pub use judge::{Refused, Retry, judge};

/// What to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// Request to a service.
    Http(Request),
    /// E-mail to the SMTP server of the channel.
    Email(Email),
}

/// HTTP request of a delivery. The method is always `POST`.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// URL. It may be a secret.
    pub url: String,
    /// Headers, among them `content-type`. Values may be secrets.
    pub headers: Vec<(String, String)>,
    /// Body in JSON. It may contain a secret.
    pub body: Vec<u8>,
}

/// Shows only the size: the rest may contain secrets.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("body_bytes", &self.body.len()).finish_non_exhaustive()
    }
}

impl Request {
    /// Creates a request with a JSON body.
    fn json(url: impl Into<String>, body: &Value) -> Self {
        Self {
            url: url.into(),
            headers: vec![("content-type".to_owned(), "application/json; charset=utf-8".to_owned())],
            body: body.to_string().into_bytes(),
        }
    }
}

/// E-mail of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Email {
    /// Recipients.
    pub to: Vec<String>,
    /// Sender.
    pub from: String,
    /// Subject: one line without control characters, at most 200 characters.
    pub subject: String,
    /// Body as plain text.
    pub text: String,
    /// Body as an HTML document.
    pub html: String,
}

/// Renders a message for a service. `now` is the time of the signature, if the service requires one.
pub fn render(target: &Target, message: &Message, now: Timestamp) -> Delivery {
    Delivery::Http(match target {
        Target::Webhook { url, secret, headers } => {
            webhook::render(url, secret.as_ref(), headers, message, now)
        }
        Target::Slack { url } => slack::render(url.expose(), message),
        Target::Teams { url } => teams::render(url.expose(), message),
        Target::Discord { url } => discord::render(url.expose(), message),
        Target::Telegram { token, chat, url } => {
            telegram::render(url.as_deref(), token.expose(), chat, message)
        }
        Target::Pagerduty { routing_key, url } => {
            pagerduty::render(url.as_deref(), routing_key.expose(), message)
        }
        Target::Opsgenie { api_key, url } => opsgenie::render(url.as_deref(), api_key.expose(), message),
        Target::Alertmanager { url, headers } => alertmanager::render(url, headers, message),
        Target::Dingtalk { url, secret } => dingtalk::render(url.expose(), secret.as_ref(), message, now),
        Target::Feishu { url, secret } => feishu::render(url.expose(), secret.as_ref(), message, now),
        Target::Wecom { url } => wecom::render(url.expose(), message),
        Target::Email { to, from, .. } => return Delivery::Email(email::render(to, from, message)),
    })
}

/// Returns the most messages of one channel per minute, below the published limit of the service.
pub fn per_minute(target: &Target) -> u32 {
    match target {
        // Published limits per minute: DingTalk 20, WeCom 20, Telegram 20 in a group.
        Target::Dingtalk { .. } | Target::Wecom { .. } | Target::Telegram { .. } => 15,
        // A channel of Discord gets 30 from all its webhooks.
        Target::Discord { .. } => 25,
        // Published limit of Feishu: 100 per minute and 5 per second.
        Target::Feishu { .. }
        | Target::Webhook { .. }
        | Target::Slack { .. }
        | Target::Teams { .. }
        | Target::Pagerduty { .. }
        | Target::Opsgenie { .. }
        | Target::Alertmanager { .. }
        | Target::Email { .. } => 60,
    }
}

/// Returns the colour of a message: of its severity, or green if all its alerts are resolved.
fn colour(message: &Message) -> u32 {
    match message.severity {
        _ if message.is_resolved() => 0x2e_a0_43,
        Severity::Critical => 0xd7_3a_49,
        Severity::Warning => 0xf0_8c_00,
        Severity::Info => 0x1f_6f_eb,
    }
}

/// Returns the key of the incident of a rule at services that have one incident for all alerts of a rule. At most 255
/// characters; a test has a key of its own, so that it cannot resolve a real incident.
fn incident_key(message: &Message) -> String {
    const CHARS_MAX: usize = 255;
    let test = if message.is_test { "/test" } else { "" };
    let key = format!("belfry/{}/{}{test}", message.namespace, message.rule);
    // Valid names are shorter. A cut could make the keys of two rules equal, a hash does not.
    if clean::utf16_len(&key) <= CHARS_MAX {
        key
    } else {
        format!("belfry/{}{test}", hex(&Sha256::digest(&key)))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
