//! Judgement of answers: whether a service accepted a message, and whether a repetition may help.
//!
//! Chat services answer 200 also when they refuse a message; their code is in the body. A status that may change on its
//! own (a busy service, a limit of messages) is worth a repetition; a wrong address or key is not.
//!
//! # Invariants
//! A reason is one line of at most 300 characters and contains no secret of the target, even if the service returned it.

use model::Duration;
use model::alert::{HIDDEN, Target};
use serde_json::Value;

use crate::clean;

/// Most characters of a reason.
const REASON_CHARS_MAX: usize = 300;
/// Longest delay that a service can request.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

/// Refusal of a message by a service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// Reason in one line, at most 300 characters, without secrets.
    pub reason: String,
    /// Whether a repetition may help.
    pub retry: Retry,
}

/// Whether a repetition of a delivery may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Yes, after a delay that the caller chooses.
    Later,
    /// Yes, after the delay that the service requested, at most one hour.
    After(Duration),
    /// No: the same request will be refused again.
    Never,
}

/// Judges the answer of a service. `retry_after` is the value of the header `Retry-After`.
///
/// # Errors
/// Returns why the service did not accept the message.
pub fn judge(
    target: &Target,
    status: u16,
    retry_after: Option<Duration>,
    body: &[u8],
) -> Result<(), Refused> {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let is_success = (200..300).contains(&status);
    let (code, may_retry) = match answer(target, parsed.as_ref()) {
        Answer::Accepted if is_success => return Ok(()),
        Answer::Accepted => (String::new(), is_transient(status)),
        // Not the service itself: a proxy, or a login page. Accepting the answer would lose the message in silence.
        Answer::Unclear if is_success => (" without a result code".to_owned(), true),
        Answer::Unclear => (String::new(), is_transient(status)),
        Answer::Refused { code, is_transient: busy } => {
            (format!(" with {code}"), busy || is_transient(status))
        }
    };
    let retry = match retry_after.or_else(|| requested_delay(target, parsed.as_ref())) {
        _ if !may_retry => Retry::Never,
        Some(delay) if delay > Duration::ZERO => Retry::After(delay.min(RETRY_AFTER_MAX)),
        _ => Retry::Later,
    };
    Err(Refused { reason: reason(target, status, &code, body), retry })
}

/// What the body of an answer says.
enum Answer {
    /// Accepted, if the status is one of success.
    Accepted,
    Refused {
        code: String,
        is_transient: bool,
    },
    /// The result code that the service always returns is absent.
    Unclear,
}

/// Reads the result code of the services that have one.
fn answer(target: &Target, body: Option<&Value>) -> Answer {
    let by_code = |names: &[&str], transient: &[i64]| {
        let found = names.iter().find_map(|name| Some((name, body?.get(name)?.as_i64()?)));
        match found {
            Some((_, 0)) => Answer::Accepted,
            Some((name, code)) => {
                Answer::Refused { code: format!("{name} {code}"), is_transient: transient.contains(&code) }
            }
            None => Answer::Unclear,
        }
    };
    match target {
        // -1: system busy. 130101, 410100, 660026: too many messages.
        Target::Dingtalk { .. } => by_code(&["errcode"], &[-1, 130_101, 410_100, 660_026]),
        // 9499: too many requests. 11232: limit of messages, which is lower at full and half hours. Older answers have
        // `StatusCode` instead of `code`.
        Target::Feishu { .. } => by_code(&["code", "StatusCode"], &[9_499, 11_232]),
        // -1: system busy. 45009: too many messages.
        Target::Wecom { .. } => by_code(&["errcode"], &[-1, 45_009]),
        Target::Telegram { .. } => telegram(body),
        Target::Webhook { .. }
        | Target::Slack { .. }
        | Target::Teams { .. }
        | Target::Discord { .. }
        | Target::Pagerduty { .. }
        | Target::Opsgenie { .. }
        | Target::Alertmanager { .. }
        | Target::Email { .. } => Answer::Accepted,
    }
}

fn telegram(body: Option<&Value>) -> Answer {
    match body.and_then(|body| body.get("ok")?.as_bool()) {
        Some(true) => Answer::Accepted,
        Some(false) => {
            let code = body.and_then(|body| body.get("error_code")?.as_u64()).unwrap_or_default();
            let is_transient = u16::try_from(code).is_ok_and(is_transient);
            Answer::Refused { code: format!("error_code {code}"), is_transient }
        }
        None => Answer::Unclear,
    }
}

/// Returns the delay that the body requests.
fn requested_delay(target: &Target, body: Option<&Value>) -> Option<Duration> {
    let seconds = match target {
        Target::Telegram { .. } => body?.get("parameters")?.get("retry_after")?.as_f64()?,
        Target::Discord { .. } => body?.get("retry_after")?.as_f64()?,
        _ => return None,
    };
    // Bounded before the conversion, which panics for values out of range.
    let bounded = seconds.clamp(0.0, 3_600.0);
    Some(Duration::from(std::time::Duration::from_secs_f64(bounded)))
}

/// Returns whether a status may change without a change of the request.
const fn is_transient(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500..=599)
}

fn reason(target: &Target, status: u16, code: &str, body: &[u8]) -> String {
    let name = status_name(status);
    let space = if name.is_empty() { "" } else { " " };
    let text = without_secrets(target, &String::from_utf8_lossy(body));
    // Removing control characters can make a secret whole again.
    let excerpt = without_secrets(target, &clean::line(&text, usize::MAX));
    let separator = if excerpt.is_empty() { "" } else { ": " };
    clean::cut(
        &format!("the service answered {status}{space}{name}{code}{separator}{excerpt}"),
        REASON_CHARS_MAX,
    )
}

/// Replaces all secrets of a target, and the parts of which a service may speak: the token in a URL, the credentials
/// without their scheme.
fn without_secrets(target: &Target, text: &str) -> String {
    const PART_BYTES_MIN: usize = 8;
    const URL_PART_BYTES_MIN: usize = 16;
    let mut target = target.clone();
    let mut secrets = Vec::new();
    for (_, secret) in target.secrets_mut() {
        let whole = secret.expose();
        let (separators, shortest): (&[char], _) = if whole.contains("://") {
            (&['/', '?', '&', '=', '#'], URL_PART_BYTES_MIN)
        } else {
            (&[' ', ':', '='], PART_BYTES_MIN)
        };
        secrets.extend(whole.split(separators).filter(|part| part.len() >= shortest).map(str::to_owned));
        secrets.push(whole.replace('/', "\\/"));
        secrets.push(whole.to_owned());
    }
    secrets.retain(|secret| !secret.is_empty());
    // The longest first: a part of a secret would leave the rest of the secret.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), HIDDEN))
}

/// Returns the standard name of a status (RFC 9110, RFC 6585); empty for rare ones.
const fn status_name(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        425 => "Too Early",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "",
    }
}
