//! Extractors for bodies, queries and paths, with refusals that name the invalid field.
//!
//! axum's extractors respond with plain text and stop at the first invalid field; these respond with problem documents
//! that list the paths of all invalid fields. Bodies are limited in size, depth and time.
//!
//! # Cost
//! A valid body is parsed once, directly into its type. Only an invalid body is parsed again, to locate its errors.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use model::api::FieldError;
use model::limits::BODY_BYTES_MAX;
use serde::de::{DeserializeOwned, IntoDeserializer, Visitor};
use serde_json::Value;

use super::problem::{ApiError, Code, excerpt, field_error};
use crate::input_errors::{self, Scalars};

/// Longest time for receiving a body, and longest pause in an upload.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Deepest nesting of arrays and objects.
pub(super) const DEPTH_MAX: usize = 64;

/// Format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// JSON.
    Json,
    /// YAML 1.2, one document, without anchors, aliases, merge keys and tags.
    Yaml,
}

impl Format {
    /// Returns the format in `Content-Type`.
    ///
    /// # Errors
    /// `unsupported_media_type` if it is missing or another one.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        let header = headers.get(CONTENT_TYPE).map_or(Ok(""), |value| value.to_str()).unwrap_or("?");
        let media_type = header.split(';').next().unwrap_or_default().trim();
        match media_type.to_ascii_lowercase().as_str() {
            "application/json" | "application/merge-patch+json" => Ok(Self::Json),
            "application/yaml" | "application/x-yaml" | "text/yaml" => Ok(Self::Yaml),
            "" => {
                Err(ApiError::new(Code::UnsupportedMediaType, "the request has a body but no `Content-Type`"))
            }
            other => {
                let shown: String = other.chars().filter(char::is_ascii_graphic).take(64).collect();
                let detail = format!(
                    "unsupported media type `{shown}`: expected `application/json` or `application/yaml`"
                );
                Err(ApiError::new(Code::UnsupportedMediaType, detail))
            }
        }
    }

    /// Parses a body.
    ///
    /// # Errors
    /// `malformed_body` if it does not have this format, `invalid_spec` if it does not deserialize to `T`.
    pub(super) fn parse<T: DeserializeOwned>(self, body: &[u8]) -> Result<T, ApiError> {
        self.parse_checked(body, |_| Vec::new())
    }

    /// Parses a body like [`parse`](Self::parse). A refusal also lists what `check` finds in the valid fields.
    pub(super) fn parse_checked<T: DeserializeOwned>(
        self,
        body: &[u8],
        check: impl Fn(&T) -> Vec<FieldError>,
    ) -> Result<T, ApiError> {
        match self {
            Self::Json => json(body, check),
            Self::Yaml => yaml(body, check),
        }
    }

    /// Parses a body; `None` if it does not deserialize to `T` directly. A failure costs little.
    pub(super) fn read<T: DeserializeOwned>(self, body: &[u8]) -> Option<T> {
        match self {
            Self::Json => read_json(body),
            Self::Yaml => {
                serde_saphyr::from_str_with_options(str::from_utf8(body).ok()?, yaml_options()).ok()
            }
        }
    }
}

fn is_object(body: &[u8]) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}

fn read_json<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    // All bodies are objects; serde would also accept a list of values for an object.
    (is_object(body) && depth(body) <= DEPTH_MAX).then(|| serde_json::from_slice(body).ok())?
}

fn json<T: DeserializeOwned>(body: &[u8], check: impl Fn(&T) -> Vec<FieldError>) -> Result<T, ApiError> {
    if let Some(value) = read_json(body) {
        return Ok(value);
    }
    if depth(body) > DEPTH_MAX {
        return Err(too_deep());
    }
    let value = serde_json::from_slice::<Value>(body).map_err(|error| malformed(&error))?;
    if !is_object(body) {
        return Err(ApiError::invalid_fields(vec![field_error("", "the body is not an object")]));
    }
    let located = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_slice(body));
    let Err(first) = located else {
        return Err(malformed(&"parsing it again gave another result"));
    };
    let first = (first.path().to_string(), first.inner().to_string());
    explain(value, body.len(), Scalars::Typed, &first, check)
}

fn too_deep() -> ApiError {
    ApiError::new(Code::MalformedBody, format!("the body is nested deeper than {DEPTH_MAX} levels"))
}

fn malformed(error: &dyn Display) -> ApiError {
    ApiError::new(Code::MalformedBody, format!("cannot read the body: {error}"))
}

fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_aliases: 0, max_anchors: 0, max_depth: DEPTH_MAX, max_documents: 1 },
        merge_keys: serde_saphyr::options::MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        strict_booleans: true,
        with_snippet: false,
    }
}

fn yaml<T: DeserializeOwned>(body: &[u8], check: impl Fn(&T) -> Vec<FieldError>) -> Result<T, ApiError> {
    let text = str::from_utf8(body).map_err(|error| malformed(&error))?;
    let mut path = String::new();
    let parsed =
        serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(), |deserializer| {
            serde_path_to_error::deserialize::<_, T>(deserializer).map_err(|error| {
                path = error.path().to_string();
                error.into_inner()
            })
        });
    parsed.or_else(|error| match serde_saphyr::from_str_with_options::<Value>(text, yaml_options()) {
        Ok(value) => explain(value, body.len(), Scalars::Text, &(path, error.to_string()), check),
        Err(unreadable) => Err(malformed(&input_errors::yaml_problem(&unreadable.to_string()))),
    })
}

/// Returns the value if numbers such as `50.0` were the only mismatch. Otherwise returns a refusal that lists every
/// invalid field, and what `check` finds in the others. `first` is the path and the message of the first error.
fn explain<T: DeserializeOwned>(
    value: Value,
    bytes: usize,
    scalars: Scalars,
    first: &(String, String),
    check: impl Fn(&T) -> Vec<FieldError>,
) -> Result<T, ApiError> {
    let (parsed, found) = input_errors::find::<T>(value, bytes, scalars);
    let mut errors: Vec<_> = found.iter().map(|misfit| field_error(&misfit.path, &misfit.detail)).collect();
    if errors.is_empty() {
        // Messages of the JSON and YAML parsers for a number with a fraction.
        let is_fraction =
            ["floating point", "invalid u", "invalid i"].iter().any(|text| first.1.contains(text));
        match parsed {
            Some(parsed) if is_fraction => return Ok(parsed),
            _ => errors.push(field_error(first.0.trim_start_matches('.'), &input_errors::plain(&first.1))),
        }
    } else if let Some(parsed) = parsed {
        let known = |found: &FieldError| errors.iter().any(|error| error.path == found.path);
        let further: Vec<_> = check(&parsed).into_iter().filter(|found| !known(found)).collect();
        errors.extend(further);
    }
    Err(ApiError::invalid_fields(errors))
}

/// Returns the deepest nesting of brackets in a JSON text. May be inexact for invalid JSON.
fn depth(body: &[u8]) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0usize, 0usize, false, false);
    for &byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Reads a whole body of at most `limit` bytes.
///
/// # Errors
/// `body_too_large`, `request_timeout`, or `malformed_body` if the client stopped before the end.
pub(super) async fn read_body(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, ApiError> {
    read_body_counted(headers, body, limit, |_| Ok(())).await
}

/// Reads a body like [`read_body`]. `take` is called with the size of each chunk before it is stored, and can refuse
/// it.
///
/// # Errors
/// Same as [`read_body`], and those of `take`.
pub(super) async fn read_body_counted(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    mut take: impl FnMut(usize) -> Result<(), ApiError>,
) -> Result<Bytes, ApiError> {
    let too_large = || ApiError::new(Code::BodyTooLarge, format!("the body is larger than {limit} bytes"));
    let by_header = || headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse::<usize>().ok();
    // The size of a body that was already received is exact, whatever the header says.
    let announced = body.size_hint().exact().and_then(|n| usize::try_from(n).ok()).or_else(by_header);
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let read = async {
        let mut parts = body.into_data_stream();
        let Some(first) = parts.next().await else { return Ok(Bytes::new()) };
        let first = first.map_err(|error| malformed(&error))?;
        take(first.len())?;
        // Almost every body arrives in one chunk, which is not copied.
        if announced == Some(first.len()) {
            return if first.len() > limit { Err(too_large()) } else { Ok(first) };
        }
        let mut whole = BytesMut::from(first);
        while whole.len() <= limit {
            match parts.next().await {
                Some(part) => {
                    let part = part.map_err(|error| malformed(&error))?;
                    take(part.len())?;
                    whole.extend_from_slice(&part);
                }
                None => return Ok(whole.freeze()),
            }
        }
        Err(too_large())
    };
    let late = |_| {
        let detail = format!("the body did not arrive within {}s", BODY_TIMEOUT.as_secs());
        ApiError::new(Code::RequestTimeout, detail)
    };
    tokio::time::timeout(BODY_TIMEOUT, read).await.map_err(late)?
}

/// A JSON or YAML body, as `T`. An absent body or `null` is `T`'s default.
#[derive(Debug)]
pub(super) struct MaybeBody<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for MaybeBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let body = read_body(&parts.headers, body, BODY_BYTES_MAX).await?;
        if body.is_empty() {
            return Ok(Self(T::default()));
        }
        let format = Format::of(&parts.headers)?;
        if body.trim_ascii() == b"null" {
            return Ok(Self(T::default()));
        }
        format.parse(&body).map(Self)
    }
}

/// A JSON or YAML body that is not parsed yet.
#[derive(Debug)]
pub(super) struct RawBody<const LIMIT: usize> {
    /// Format of the body.
    pub(super) format: Format,
    /// The whole body.
    pub(super) bytes: Bytes,
}

impl<S: Send + Sync, const LIMIT: usize> FromRequest<S> for RawBody<LIMIT> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let format = Format::of(&parts.headers)?;
        let bytes = read_body(&parts.headers, body, LIMIT).await?;
        Ok(Self { format, bytes })
    }
}

/// The only parameter of a path, as `T`.
#[derive(Debug)]
pub(super) struct Path<T>(pub(super) T);

impl<S: Send + Sync, T: FromStr<Err: Display>> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = path_params(parts, state).await?;
        parsed(params.iter().next().unwrap_or_default()).map(Self)
    }
}

/// The two parameters of a path, in order.
#[derive(Debug)]
pub(super) struct Paths<A, B>(pub(super) A, pub(super) B);

impl<S, A, B> FromRequestParts<S> for Paths<A, B>
where
    S: Send + Sync,
    A: FromStr<Err: Display>,
    B: FromStr<Err: Display>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = path_params(parts, state).await?;
        let mut params = params.iter();
        let first = parsed(params.next().unwrap_or_default())?;
        Ok(Self(first, parsed(params.next().unwrap_or_default())?))
    }
}

async fn path_params<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<RawPathParams, ApiError> {
    let broken = |_| ApiError::parameter("path", "is not UTF-8");
    RawPathParams::from_request_parts(parts, state).await.map_err(broken)
}

fn parsed<T: FromStr<Err: Display>>((name, text): (&str, &str)) -> Result<T, ApiError> {
    text.parse().map_err(|error: T::Err| {
        let error = field_error(name, &error.to_string());
        ApiError::new(Code::InvalidParameter, error.detail.clone()).fields([error])
    })
}

/// The parameters of the query, as `T`. Unknown names are refused. A repeated name needs a [`Many`] or a [`Labels`].
#[derive(Debug)]
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        query(&parts.uri).map(Self)
    }
}

/// Separator of the values of a repeated name: a control character that is in no valid value.
const AND: char = '\u{1f}';

fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, ApiError> {
    let broken = |_| ApiError::new(Code::InvalidParameter, "the query is not percent-encoded UTF-8");
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(broken)?.0;
    let mut merged: Vec<(String, Text)> = Vec::with_capacity(pairs.len());
    for (name, value) in pairs {
        match merged.iter_mut().find(|(known, _)| *known == name) {
            Some((_, Text(known))) => {
                known.push(AND);
                known.push_str(&value);
            }
            None => merged.push((name, Text(value))),
        }
    }
    let map = serde::de::value::MapDeserializer::<_, serde::de::value::Error>::new(merged.into_iter());
    serde_path_to_error::deserialize(map).map_err(|error| {
        let message = error.inner().to_string();
        match unknown_name(&message) {
            Some(name) => ApiError::parameter(name, message.as_str()),
            None => ApiError::parameter(&error.path().to_string(), message),
        }
    })
}

/// Returns the name in serde's message about an unknown field.
fn unknown_name(message: &str) -> Option<&str> {
    message.strip_prefix("unknown field `")?.split('`').next()
}

/// The value of a parameter, deserialized as its field requires.
struct Text(String);

impl IntoDeserializer<'_, serde::de::value::Error> for Text {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl Text {
    fn once(&self) -> Result<(), serde::de::value::Error> {
        if self.0.contains(AND) {
            Err(serde::de::Error::custom("is given several times: expected once"))
        } else {
            Ok(())
        }
    }

    fn single<T: FromStr>(&self, what: &str) -> Result<T, serde::de::value::Error> {
        self.once()?;
        let shown = excerpt(&self.0);
        self.0.parse().map_err(|_| serde::de::Error::custom(format!("`{shown}` is not {what}")))
    }
}

impl<'de> serde::Deserializer<'de> for Text {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_string(self.0)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.once()?;
        visitor.visit_string(self.0)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_bool(self.single("`true` or `false`")?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_u64(self.single("a whole number")?)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_u32(self.single("a whole number")?)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_u16(self.single("a whole number up to 65535")?)
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// All values of a parameter, separated by [`AND`].
struct Raw(String);

impl<'de> serde::Deserialize<'de> for Raw {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Taken;

        impl Visitor<'_> for Taken {
            type Value = Raw;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("text")
            }

            fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
                Ok(Raw(text.to_owned()))
            }
        }

        deserializer.deserialize_any(Taken)
    }
}

/// Values of a parameter that may be repeated or separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Many<T>(pub(super) Vec<T>);

impl<T> Default for Many<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: FromStr<Err: Display>> serde::Deserialize<'de> for Many<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Raw(text) = Raw::deserialize(deserializer)?;
        let values = text.split([',', AND]).map(str::trim).filter(|value| !value.is_empty());
        values
            .map(|value| value.parse().map_err(serde::de::Error::custom))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// Reads a parameter that is one word of an enum. An unknown word is answered with the known ones.
pub(super) fn word<'de, D: serde::Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = <String as serde::Deserialize>::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

/// A repeatable parameter `label=KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Labels(pub std::collections::BTreeMap<String, String>);

impl<'de> serde::Deserialize<'de> for Labels {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Raw(text) = Raw::deserialize(deserializer)?;
        let pairs = text.split(AND).map(|pair| {
            let (key, value) = pair.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(|| {
                let shown = excerpt(pair);
                serde::de::Error::custom(format!("`{shown}` is not a label: expected KEY=VALUE"))
            })?;
            Ok((key.to_owned(), value.to_owned()))
        });
        pairs.collect::<Result<_, D::Error>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use model::{JobSpec, JobStatus, Timestamp};

    use super::*;

    fn refusal<T: DeserializeOwned>(format: Format, body: &str) -> String {
        let Err(error) = format.parse::<T>(body.as_bytes()) else { return "taken".to_owned() };
        let problem = error.into_problem(None);
        let fields: String = problem.errors.iter().map(|e| format!("\n{} = {}", e.pointer, e.path)).collect();
        format!("{} {}: {}{fields}", problem.status, problem.code, problem.detail)
    }

    #[test]
    fn an_invalid_body_names_the_field_in_json_and_yaml() {
        let json = |body| refusal::<JobSpec>(Format::Json, body);
        insta::assert_snapshot!(json(r#"{"run": {"process": {"command": ["true"]}}, "timeout": "soon"}"#));
        insta::assert_snapshot!(json(r#"{"run": {"process": {"command": ["true"], "env": {"A": 1}}}}"#));
        insta::assert_snapshot!(json(r#"{"run": {"process": {"command": ["true"]}}, "nmae": "x"}"#));
        insta::assert_snapshot!(json(r#"{"name": "x"}"#));
        insta::assert_snapshot!(json(r#"{"run": {}}"#));
        insta::assert_snapshot!(json(r#"["x"]"#));
        let yaml = |body| refusal::<JobSpec>(Format::Yaml, body);
        insta::assert_snapshot!(yaml("run: {process: {command: ['true']}}\ntimeout: soon\n"));
        insta::assert_snapshot!(yaml("run: {process: {command: ['true']}}\nnmae: x\n"));
    }

    /// A user can correct all fields at once.
    #[test]
    fn every_invalid_field_is_named_without_terms_of_the_library() {
        let wrong = r#"{"run": {"process": {"command": [1, "a", 2], "env": 5}}, "name": "x", "priority": 900,
            "timeout": "5", "retry": {"max_retries": "many"}, "prio": 1}"#;
        insta::assert_snapshot!(all(Format::Json, wrong), @r#"
        prio: unknown field `prio`, expected one of `name`, `namespace`, `owner`, `labels`, `queue`, `priority_class`, `priority`, `run_at`, `start_deadline`, `finish_by`, `after`, `requires`, `run`, `inputs`, `outputs`, `ports`, `health`, `volumes`, `secrets`, `resources`, `constraints`, `placement`, `spread`, `retry`, `timeout`, `grace`, `stop_signal`, `log`, `delivery`, `concurrency`, `idempotency_key`, `retention`
        priority: invalid value: integer `900`, expected a whole number from 0 to 255
        retry.max_retries: invalid type: string "many", expected a whole number from 0 to 4294967295
        run.process.command[0]: invalid type: integer `1`, expected a string
        run.process.command[2]: invalid type: integer `2`, expected a string
        run.process.env: invalid type: integer `5`, expected an object
        timeout: `5` is not a duration: expected a number with a unit, such as `500ms`, `90s`, `1h30m` or `2d`
        "#);
        let yaml = "run: {process: {command: [echo, 1]}}\npriority: high\ntimeout: 5\nprio: 1\n";
        insta::assert_snapshot!(all(Format::Yaml, yaml), @r#"
        prio: unknown field `prio`, expected one of `name`, `namespace`, `owner`, `labels`, `queue`, `priority_class`, `priority`, `run_at`, `start_deadline`, `finish_by`, `after`, `requires`, `run`, `inputs`, `outputs`, `ports`, `health`, `volumes`, `secrets`, `resources`, `constraints`, `placement`, `spread`, `retry`, `timeout`, `grace`, `stop_signal`, `log`, `delivery`, `concurrency`, `idempotency_key`, `retention`
        priority: invalid type: string "high", expected a whole number from 0 to 255
        timeout: `5` is not a duration: expected a number with a unit, such as `500ms`, `90s`, `1h30m` or `2d`
        "#);
    }

    fn all(format: Format, body: &str) -> String {
        let problem = format.parse::<JobSpec>(body.as_bytes()).unwrap_err().into_problem(None);
        problem.errors.iter().map(|e| format!("{}: {}\n", e.path, e.detail)).collect()
    }

    /// JSON has one type of numbers: 50.0 is a whole number.
    #[test]
    fn a_whole_number_may_be_written_with_a_fraction_of_zero() {
        let body =
            r#"{"run": {"process": {"command": ["true"]}}, "priority": 7.0, "retry": {"max_retries": 2.0}}"#;
        let spec: JobSpec = Format::Json.parse(body.as_bytes()).unwrap();
        assert_eq!((spec.priority, spec.retry.max_retries), (7, 2));
        assert_ne!(refusal::<JobSpec>(Format::Json, &body.replace("7.0", "7.5")), "taken");
        let body = "run: {process: {command: ['true']}}\npriority: 7.0\nretry: {max_retries: 2.0}\n";
        let spec: JobSpec = Format::Yaml.parse(body.as_bytes()).unwrap();
        assert_eq!((spec.priority, spec.retry.max_retries), (7, 2));
        assert_ne!(refusal::<JobSpec>(Format::Yaml, &body.replace("7.0", "7.5")), "taken");
    }

    #[test]
    fn unsupported_yaml_features_are_named() {
        for (body, expected) in
            [("a: &x [1]\n", "anchors are not supported"), ("a: 1\na: 2\n", "duplicate key `a`")]
        {
            let shown = refusal::<JobSpec>(Format::Yaml, body);
            assert!(shown.contains(expected) && !shown.contains("Policy"), "{body}: {shown}");
        }
    }

    #[test]
    fn a_body_that_is_no_json_or_yaml_is_malformed() {
        for (format, body) in [
            (Format::Json, ""),
            (Format::Json, "{"),
            (Format::Json, "[1,"),
            (Format::Json, r#"{"run": {"process": {"command": ["true"]}}} x"#),
            (Format::Yaml, "run: [\n"),
        ] {
            let shown = refusal::<JobSpec>(format, body);
            assert!(shown.starts_with("400 malformed_body"), "{body}: {shown}");
        }
        assert!(Format::Json.parse::<JobSpec>(b"{\"name\": \"\xff\"}").is_err());
    }

    #[test]
    fn yaml_and_json_have_equal_results() {
        let yaml: JobSpec = Format::Yaml
            .parse(
                b"name: no\nrun:\n  process:\n    command: [echo, '1']\nlabels: {team: yes}\ntimeout: 90s\n",
            )
            .unwrap();
        let json: JobSpec = Format::Json
            .parse(br#"{"name": "no", "run": {"process": {"command": ["echo", "1"]}}, "labels": {"team": "yes"}, "timeout": "90s"}"#)
            .unwrap();
        assert_eq!(yaml, json);
    }

    /// CVE-2019-11253: aliases make small documents large.
    #[test]
    fn yaml_has_no_anchors_merge_keys_or_second_documents() {
        for body in [
            "a: &x [1]\nrun: *x\n",
            "run: {process: {command: ['true']}}\n<<: {name: x}\n",
            "run: {process: {command: ['true']}}\n---\nrun: {process: {command: ['true']}}\n",
            "name: !!python/object x\nrun: {process: {command: ['true']}}\n",
        ] {
            assert_ne!(refusal::<JobSpec>(Format::Yaml, body), "taken", "{body}");
        }
        let anchors =
            refusal::<JobSpec>(Format::Yaml, "labels: &x {a: b}\nrun: {process: {command: ['true']}}\n");
        assert!(anchors.contains("anchors are not supported"), "{anchors}");
        let merged = refusal::<JobSpec>(Format::Yaml, "run: {process: {command: ['true']}}\n<<: {name: x}\n");
        assert!(merged.contains("merge keys"), "{merged}");
    }

    #[test]
    fn deep_nesting_is_refused_before_it_is_parsed() {
        let deep = "[".repeat(100) + &"]".repeat(100);
        assert!(refusal::<Value>(Format::Json, &deep).contains("nested deeper than 64"));
        assert!(!refusal::<Value>(Format::Yaml, &deep).contains("taken"));
        assert_eq!(depth(br#"{"a": ["[[[[", "\"[["]}"#), 2);
    }

    #[test]
    fn an_unsupported_content_type_is_named() {
        let of = |value: Option<&'static str>| {
            let headers = value.map(|v| (CONTENT_TYPE, axum::http::HeaderValue::from_static(v)));
            Format::of(&HeaderMap::from_iter(headers)).map_err(|t| t.code())
        };
        assert_eq!(of(Some("application/json; charset=utf-8")), Ok(Format::Json));
        assert_eq!(of(Some("Application/YAML")), Ok(Format::Yaml));
        assert_eq!(of(Some("application/x-www-form-urlencoded")), Err(Code::UnsupportedMediaType));
        assert_eq!(of(None), Err(Code::UnsupportedMediaType));
    }

    #[tokio::test]
    async fn a_body_may_be_as_large_as_its_limit_and_no_larger() {
        for announce in [true, false] {
            for (length, fits) in [(100, true), (101, false)] {
                let mut headers = HeaderMap::new();
                if announce {
                    headers.insert(CONTENT_LENGTH, length.into());
                }
                let parts = [vec![b'x'; 50], vec![b'x'; length - 50]].map(Ok::<_, std::io::Error>);
                let body = Body::from_stream(futures::stream::iter(parts));
                let read = read_body(&headers, body, 100).await;
                assert_eq!(
                    read.as_ref().map(Bytes::len).map_err(ApiError::code).ok(),
                    fits.then_some(length)
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_times_out() {
        let body = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let read = read_body(&HeaderMap::new(), body, 100).await;
        assert_eq!(read.unwrap_err().code(), Code::RequestTimeout);
    }

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Sample {
        status: Many<JobStatus>,
        label: Labels,
        limit: Option<u64>,
        count: bool,
        after: Option<Timestamp>,
        name: Option<String>,
    }

    fn sample(text: &str) -> Result<Sample, String> {
        let uri: Uri = format!("/x?{text}").parse().unwrap();
        query(&uri).map_err(|error| error.into_problem(None).detail)
    }

    #[test]
    fn a_query_is_read_into_its_types() {
        let found =
            sample("status=ready,waiting&status=failed&label=a=b&label=c=d%3De&limit=5&count=true").unwrap();
        assert_eq!(found.status.0, [JobStatus::Ready, JobStatus::Waiting, JobStatus::Failed]);
        assert_eq!(
            found.label.0.into_iter().collect::<Vec<_>>(),
            [("a".into(), "b".into()), ("c".into(), "d=e".into())]
        );
        assert_eq!((found.limit, found.count), (Some(5), true));
        assert_eq!(sample(""), Ok(Sample::default()));
    }

    #[test]
    fn an_invalid_query_names_its_parameter() {
        insta::assert_snapshot!(sample("limit=many").unwrap_err(), @"limit: `many` is not a whole number");
        insta::assert_snapshot!(sample("status=done").unwrap_err(), @"status: `done` is not a status of a job: Belfry calls it `succeeded`; expected one of ready, waiting, running, retrying, succeeded, failed, cancelled, expired");
        insta::assert_snapshot!(sample("label=x").unwrap_err(), @"label: `x` is not a label: expected KEY=VALUE");
        insta::assert_snapshot!(sample("limt=5").unwrap_err(), @"limt: unknown field `limt`, expected one of `status`, `label`, `limit`, `count`, `after`, `name`");
        insta::assert_snapshot!(sample("limit=5&limit=6").unwrap_err(), @"limit: is given several times: expected once");
        insta::assert_snapshot!(sample("after=noon").unwrap_err());
        insta::assert_snapshot!(sample("name=a&name=b").unwrap_err(), @"name: is given several times: expected once");
    }
}
