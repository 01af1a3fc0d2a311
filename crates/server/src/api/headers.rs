//! Headers of requests and responses: versions, idempotency keys, request ids.
//!
//! - [`Precondition`]: `If-Match` and `If-None-Match`, for changes of a known version.
//! - [`IdempotencyKey`]: the key that makes it safe to repeat a request.
//! - [`LastEventId`]: the position at which a stream resumes.
//! - [`request_id`]: the client's id if it is safe in a log, otherwise a new one.

use std::fmt::Display;

use axum::extract::FromRequestParts;
use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::problem::{ApiError, Code};

/// Id of the request, in requests and responses.
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Key that makes it safe to repeat a request.
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Returns the strong `ETag` of a version.
pub(super) fn etag(version: u64) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).expect("digits in quotes are a header value")
}

/// Returns whether `If-None-Match` names this tag, weakly compared: the client already has the response.
pub(super) fn is_known(asked: &HeaderValue, tag: &HeaderValue) -> bool {
    let (Ok(asked), Ok(tag)) = (asked.to_str(), tag.to_str()) else { return false };
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    asked.trim() == "*" || asked.split(',').any(|known| opaque(known) == opaque(tag))
}

/// Condition of the client for a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Precondition {
    /// No condition.
    None,
    /// `If-Match: *`: the object must exist.
    Exists,
    /// `If-Match`: the object must have one of these versions.
    Versions(Vec<u64>),
    /// `If-None-Match: *`: the object must not exist.
    Absent,
}

impl Precondition {
    /// Returns the expected version of `object`, which has version `current` (0 if it does not exist); `None` without a
    /// condition.
    ///
    /// # Errors
    /// `version_mismatch` if `current` does not meet the condition.
    pub(super) fn expected(&self, object: impl Display, current: u64) -> Result<Option<u64>, ApiError> {
        let wanted = match self {
            Self::None => return Ok(None),
            Self::Exists if current > 0 => return Ok(Some(current)),
            Self::Exists => "any version".to_owned(),
            Self::Absent if current == 0 => return Ok(Some(0)),
            Self::Absent => "that it does not exist".to_owned(),
            Self::Versions(versions) if versions.contains(&current) => return Ok(Some(current)),
            Self::Versions(versions) => {
                let versions: Vec<_> = versions.iter().map(u64::to_string).collect();
                format!("version {}", versions.join(" or "))
            }
        };
        let found =
            if current == 0 { "it does not exist".to_owned() } else { format!("it has version {current}") };
        Err(ApiError::new(Code::VersionMismatch, format!("{object}: expected {wanted}, but {found}")))
    }

    /// Checks the condition like [`expected`](Self::expected), but reads the version only if there is a condition.
    ///
    /// # Errors
    /// Errors of the read, and `version_mismatch`.
    pub(super) async fn expected_of(
        &self,
        object: impl Display,
        version: impl Future<Output = Result<Option<u64>, ApiError>>,
    ) -> Result<Option<u64>, ApiError> {
        match self {
            Self::None => Ok(None),
            wanted => wanted.expected(object, version.await?.unwrap_or(0)),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Precondition {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        precondition(&parts.headers)
    }
}

fn precondition(headers: &HeaderMap) -> Result<Precondition, ApiError> {
    let invalid = |name: &str| {
        ApiError::new(
            Code::InvalidHeader,
            format!("`{name}` is malformed: expected `*` or an ETag such as `\"3\"`"),
        )
    };
    match (headers.get(IF_MATCH), headers.get(IF_NONE_MATCH)) {
        (None, None) => Ok(Precondition::None),
        (None, Some(value)) if value.as_bytes() == b"*" => Ok(Precondition::Absent),
        (Some(value), None) if value.as_bytes() == b"*" => Ok(Precondition::Exists),
        (Some(value), None) => {
            let tags = value.to_str().map_err(|_| invalid("If-Match"))?.split(',').map(str::trim);
            // A well-formed tag that is weak or not a version matches nothing.
            let versions = tags.map(|tag| {
                let opaque = tag.strip_prefix("W/").unwrap_or(tag);
                let inner = opaque.strip_prefix('"')?.strip_suffix('"')?;
                Some(if opaque == tag { inner.parse::<u64>().ok() } else { None })
            });
            let versions = versions.collect::<Option<Vec<_>>>().ok_or_else(|| invalid("If-Match"))?;
            Ok(Precondition::Versions(versions.into_iter().flatten().collect()))
        }
        (None, Some(_)) => Err(invalid("If-None-Match")),
        (Some(_), Some(_)) => {
            let detail = "cannot combine `If-Match` and `If-None-Match`: expected one of them";
            Err(ApiError::new(Code::InvalidHeader, detail))
        }
    }
}

/// `Idempotency-Key`, if it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdempotencyKey(pub(super) Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Some(value) = parts.headers.get(IDEMPOTENCY_KEY) else { return Ok(Self(None)) };
        let key = value.to_str().ok().and_then(structured_string).ok_or_else(|| {
            let limit = model::limits::KEY_LEN_MAX;
            ApiError::new(
                Code::InvalidHeader,
                format!("`Idempotency-Key` is malformed: expected 1 to {limit} printable characters, in quotes or bare"),
            )
        })?;
        Ok(Self(Some(key)))
    }
}

/// Parses a string of RFC 9651 (in quotes, with `\` escapes), or an unquoted string, which most clients send.
fn structured_string(value: &str) -> Option<String> {
    let value = value.trim();
    let text = match value.strip_prefix('"') {
        None => value.to_owned(),
        Some(rest) => {
            let mut text = String::with_capacity(rest.len());
            let mut chars = rest.strip_suffix('"')?.chars();
            while let Some(c) = chars.next() {
                match c {
                    '\\' => text.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
                    '"' => return None,
                    c => text.push(c),
                }
            }
            text
        }
    };
    (1..=model::limits::KEY_LEN_MAX).contains(&text.len()).then_some(text)
}

/// Returns the id of a request: the client's id if it is safe in a log, otherwise a new one.
pub(super) fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(X_REQUEST_ID).and_then(|value| value.to_str().ok());
    let fits = |id: &&str| {
        (1..=128).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    given.filter(fits).map_or_else(|| format!("req_{:016x}", rand::random::<u64>()), str::to_owned)
}

/// Position at which a stream resumes: `Last-Event-ID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastEventId(pub(super) Option<u64>);

impl<S: Send + Sync> FromRequestParts<S> for LastEventId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Some(value) = parts.headers.get("last-event-id").filter(|value| !value.is_empty()) else {
            return Ok(Self(None));
        };
        // Ids of all streams are numbers.
        let id = value.to_str().ok().and_then(|id| id.trim().parse().ok());
        let detail = "`Last-Event-ID` is malformed: expected the `id` of an event, a number";
        id.map(|id| Self(Some(id))).ok_or_else(|| ApiError::new(Code::InvalidHeader, detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn a_failed_precondition_names_the_current_version() {
        let check = |value, current| {
            let found = precondition(&with(IF_MATCH, value)).and_then(|p| p.expected("job `a`", current));
            found.map_err(|error| error.into_problem(None).detail)
        };
        assert_eq!(check("\"3\"", 3), Ok(Some(3)));
        assert_eq!(check("\"2\", \"3\"", 3), Ok(Some(3)));
        assert_eq!(check("*", 3), Ok(Some(3)));
        insta::assert_snapshot!(check("\"2\"", 3).unwrap_err(), @"job `a`: expected version 2, but it has version 3");
        insta::assert_snapshot!(check("*", 0).unwrap_err(), @"job `a`: expected any version, but it does not exist");
        insta::assert_snapshot!(check("3", 3).unwrap_err(), @r#"`If-Match` is malformed: expected `*` or an ETag such as `"3"`"#);
        let absent = precondition(&with(IF_NONE_MATCH, "*")).unwrap();
        assert_eq!(absent.expected("job `a`", 0), Ok(Some(0)));
        let refused = absent.expected("job `a`", 4).unwrap_err().into_problem(None);
        insta::assert_snapshot!(refused.detail, @"job `a`: expected that it does not exist, but it has version 4");
    }

    #[test]
    fn a_weak_or_foreign_tag_matches_nothing() {
        for value in ["W/\"3\"", "\"abc\""] {
            assert!(precondition(&with(IF_MATCH, value)).unwrap().expected("job `a`", 3).is_err(), "{value}");
        }
    }

    #[test]
    fn an_idempotency_key_is_a_structured_string_or_bare() {
        assert_eq!(structured_string("order-7").as_deref(), Some("order-7"));
        assert_eq!(structured_string(r#""a \"b\" \\""#).as_deref(), Some(r#"a "b" \"#));
        for broken in ["", "\"\"", "\"a", "\"a\\n\"", "\"a\"b\""] {
            assert_eq!(structured_string(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_request_id_from_outside_cannot_forge_log_lines() {
        assert_eq!(request_id(&with(X_REQUEST_ID, "abc-1")), "abc-1");
        assert!(request_id(&with(X_REQUEST_ID, "a b\" level=error")).starts_with("req_"));
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }
}
