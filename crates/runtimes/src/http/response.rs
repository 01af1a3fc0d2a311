//! Responses: the values of expressions, and delays that a server asks for.

use std::cell::OnceCell;
use std::time::Duration;

use jiff::Timestamp;
use model::expression::{EvaluationError, Scope};
use reqwest::header::{HeaderMap, HeaderName, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use serde_json::Value;

/// A complete response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: StatusCode,
    /// URL of the request, after redirects.
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// Time from the request to the end of the response.
    pub(super) elapsed: Duration,
    /// Value of the body, once an expression has used it.
    pub(super) value: OnceCell<Value>,
}

impl Response {
    /// Returns the status with its name: `404 Not Found`.
    pub(super) fn shown_status(&self) -> String {
        match self.status.canonical_reason() {
            Some(reason) => format!("{} {reason}", self.status.as_u16()),
            None => self.status.as_u16().to_string(),
        }
    }

    /// Returns the values of a header, joined by commas.
    pub(super) fn header(&self, name: &HeaderName) -> Option<String> {
        let values = self.headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        values.map(|value| value.into_owned()).reduce(|all, next| all + ", " + &next)
    }

    /// Returns the delay after which the server asks for the request again. `None` if it does not ask for it.
    pub(super) fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        if !matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            return None;
        }
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
        }
        let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
        Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
    }

    /// Returns the JSON value of the body, or the text if it is no JSON.
    fn body_value(&self) -> &Value {
        self.value.get_or_init(|| {
            serde_json::from_slice(&self.body)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&self.body).into_owned()))
        })
    }

    fn header_values(&self) -> Value {
        let value = |name| Value::String(self.header(name).unwrap_or_default());
        Value::Object(self.headers.keys().map(|name| (name.as_str().to_owned(), value(name))).collect())
    }
}

impl Scope for Response {
    fn value(&self, path: &[String]) -> Result<(Value, usize), EvaluationError> {
        let Some((name, fields)) = path.split_first() else {
            return Err(EvaluationError("a name must not be empty".into()));
        };
        match name.as_str() {
            "status" => Ok((self.status.as_u16().into(), 1)),
            "elapsed_ms" => Ok((u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX).into(), 1)),
            "headers" => Ok((self.header_values(), 1)),
            // A copy of a large body would exceed the cost limit of an expression.
            "body" => {
                let (mut value, mut used) = (self.body_value(), 1);
                for field in fields {
                    match value.get(field) {
                        Some(inner) => (value, used) = (inner, used + 1),
                        None => break,
                    }
                }
                Ok((value.clone(), used))
            }
            other => Err(EvaluationError(format!("there is no `{other}`").into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::expression::Expression;
    use reqwest::header::HeaderValue;

    fn response(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Response {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut all = HeaderMap::new();
        headers.for_each(|(name, value)| {
            all.append(name, value);
        });
        Response {
            status: StatusCode::from_u16(status).unwrap(),
            url: Url::parse("http://example.com/").unwrap(),
            headers: all,
            body: body.as_bytes().to_vec(),
            elapsed: Duration::from_millis(31),
            value: OnceCell::new(),
        }
    }

    fn evaluate(response: &Response, text: &str) -> String {
        match Expression::parse(text).unwrap().evaluate(response) {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn an_expression_sees_status_headers_body_and_time() {
        let json = response(
            201,
            &[("x-a", "1"), ("x-b", "2"), ("x-a", "3")],
            r#"{"data": {"id": 7, "list": [1, 2]}}"#,
        );
        for (text, expected) in [
            ("status", "201"),
            ("elapsed_ms", "31"),
            (r#"headers["x-a"]"#, r#""1, 3""#),
            ("size(headers)", "2"),
            ("body.data.id", "7"),
            ("body.data.list[1]", "2"),
            ("has(body.data.id) && !has(body.error)", "true"),
            ("body.data.name", "there is no field `name`"),
            ("body.data.id.x", "a number has no field `x`"),
        ] {
            assert_eq!(evaluate(&json, text), expected, "{text}");
        }
        let text = response(200, &[], "done: yes");
        assert_eq!(evaluate(&text, r#"body.startsWith("done")"#), "true");
    }

    #[test]
    fn a_small_field_of_a_large_body_has_a_small_cost() {
        let zeros = vec!["0"; 1_500_000].join(",");
        let large = response(200, &[], &format!(r#"{{"id": 7, "zeros": [{zeros}]}}"#));
        assert_eq!(evaluate(&large, "body.id"), "7");
    }

    #[test]
    fn a_server_asks_for_a_delay_in_seconds_or_until_a_date() {
        let now = "2026-10-21T07:28:00Z".parse().unwrap();
        let delay = |status, value| {
            response(status, &[("retry-after", value)], "").retry_after(now).map(|delay| delay.as_secs())
        };
        assert_eq!(delay(503, "120"), Some(120));
        assert_eq!(delay(429, "0"), Some(0));
        assert_eq!(delay(503, "99999999999999999999999"), Some(u64::MAX));
        assert_eq!(delay(503, "Wed, 21 Oct 2026 07:29:00 GMT"), Some(60));
        assert_eq!(delay(503, "Wed, 21 Oct 2026 07:27:00 GMT"), Some(0));
        assert_eq!([delay(503, "soon"), delay(503, "-1"), delay(503, "")], [None; 3]);
        assert_eq!([delay(200, "120"), delay(500, "120")], [None; 2], "only an overloaded server");
    }
}
