//! Elements that a task adds to a step of its run: `POST /elements?batch=NAME[&step=STEP]`.
//!
//! The body is a JSON list, or one JSON value per line with content type `application/x-ndjson`. All elements are
//! validated here. The server only checks whether the task may add elements to the step, and the limit of elements. A
//! batch is identified by its name, so a repeated request adds nothing twice.

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Request, StatusCode};
use model::api::FieldError;
use model::limits::{ADDED_MAX, BATCH_NAME_BYTES_MAX, ITEM_BYTES_MAX, NAME_LEN_MAX};
use proto::v1::AddElementsRequest;
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::response::{self, Answer, BodyBound, Refusal};
use super::{Caller, Upstream};

/// Limit of a body: the maximum number of elements of maximum size, with separators.
const BODY_BOUND: BodyBound = BodyBound {
    bytes: ADDED_MAX * (ITEM_BYTES_MAX + 64),
    what: "the list",
    hint: "split the list into several batches with different names",
};
/// Maximum number of invalid elements that an error lists.
const ERRORS_MAX: usize = 10;

/// Adds the elements of the body.
pub(super) async fn post(request: Request<Incoming>, caller: &Caller, upstream: &Upstream) -> Answer {
    let BatchTarget { step, batch } = parse_target(request.uri().query().unwrap_or_default())?;
    let layout = BodyFormat::of(request.headers());
    let body = response::body(request.into_body(), BODY_BOUND).await?;
    let elements = elements(&body, layout)?;
    let request = AddElementsRequest {
        execution_id: caller.execution_id.to_string(),
        fence: caller.fence,
        step,
        batch,
        elements,
    };
    let added = upstream.add(request).await.map_err(|status| refused(&status))?;
    let status = if added.added { StatusCode::CREATED } else { StatusCode::OK };
    let answer = json!({
        "step": added.step,
        "first": added.first,
        "count": added.count,
        "total": added.total,
        "added": added.added,
    });
    Ok(response::json_response(status, &answer))
}

/// Step and batch name of added elements.
#[derive(Debug, Default, PartialEq, Eq)]
struct BatchTarget {
    /// Step name; empty if the task adds to one step only.
    step: String,
    batch: String,
}

fn parse_target(query: &str) -> Result<BatchTarget, Refusal> {
    let mut place = BatchTarget::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "step" => place.step = value.into_owned(),
            "batch" => place.batch = value.into_owned(),
            _ => return Err(parameter(&name, "is unknown: expected `batch` or `step`".into())),
        }
    }
    if place.batch.is_empty() {
        return Err(parameter("batch", "is missing: expected a name for the batch".into()));
    }
    for (name, value, most) in
        [("batch", &place.batch, BATCH_NAME_BYTES_MAX), ("step", &place.step, NAME_LEN_MAX)]
    {
        if value.len() > most {
            let found = value.len();
            return Err(parameter(name, format!("has {found} bytes: expected at most {most}")));
        }
        if value.chars().any(char::is_control) {
            return Err(parameter(name, "contains control characters: expected a name without them".into()));
        }
    }
    Ok(place)
}

fn parameter(name: &str, what: String) -> Refusal {
    Refusal::new(
        StatusCode::BAD_REQUEST,
        "invalid_parameter",
        format!("the parameter `{name}` {what}"),
        "use POST /elements?batch=NAME, with &step=STEP if the task adds elements to several steps",
    )
}

/// Format of the values in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyFormat {
    List,
    Lines,
}

impl BodyFormat {
    /// Returns `List`, unless the content type is `application/x-ndjson`.
    fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        match kind.eq_ignore_ascii_case("application/x-ndjson") {
            true => Self::Lines,
            false => Self::List,
        }
    }
}

/// Returns each element of a body as compact JSON.
fn elements(body: &[u8], layout: BodyFormat) -> Result<Vec<bytes::Bytes>, Refusal> {
    let values = match layout {
        BodyFormat::List => serde_json::from_slice::<Vec<Value>>(body)
            .map_err(|error| invalid(format!("the body is not a JSON list: {error}"), Vec::new()))?,
        BodyFormat::Lines => lines(body)?,
    };
    if !(1..=ADDED_MAX).contains(&values.len()) {
        let found = values.len();
        return Err(invalid(format!("the body has {found} elements: expected 1 to {ADDED_MAX}"), Vec::new()));
    }
    let texts: Vec<String> = values.iter().map(Value::to_string).collect();
    let wrong = texts.iter().enumerate().filter(|(_, text)| text.len() > ITEM_BYTES_MAX);
    let wrong =
        wrong.map(|(i, text)| (i, format!("has {} bytes: expected at most {ITEM_BYTES_MAX}", text.len())));
    none_wrong(wrong)?;
    Ok(texts.into_iter().map(bytes::Bytes::from).collect())
}

/// Returns the value of each line that is not empty.
fn lines(body: &[u8]) -> Result<Vec<Value>, Refusal> {
    let lines = body.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let mut values = Vec::new();
    let mut wrong = Vec::new();
    for (i, line) in lines.enumerate() {
        match serde_json::from_slice(line) {
            Ok(value) => values.push(value),
            Err(error) => wrong.push((i, format!("is not valid JSON: {error}"))),
        }
    }
    none_wrong(wrong.into_iter())?;
    Ok(values)
}

/// Returns an error with the first invalid elements, if any.
fn none_wrong(wrong: impl Iterator<Item = (usize, String)>) -> Result<(), Refusal> {
    let error = |(i, detail)| FieldError { pointer: format!("/{i}"), path: format!("[{i}]"), detail };
    let errors: Vec<_> = wrong.take(ERRORS_MAX).map(error).collect();
    match errors.first() {
        Some(first) => {
            let detail = format!("element {} {}", first.path, first.detail);
            Err(invalid(detail, errors))
        }
        None => Ok(()),
    }
}

fn invalid(detail: String, errors: Vec<FieldError>) -> Refusal {
    let hint =
        "send a JSON list, or one JSON value per line as application/x-ndjson; store large data as artifacts";
    let refusal = Refusal::new(StatusCode::BAD_REQUEST, "invalid_elements", detail, hint);
    Refusal { errors, ..refusal }
}

fn refused(status: &Status) -> Refusal {
    let detail = status.message().to_owned();
    match status.code() {
        Code::NotFound => Refusal::new(
            StatusCode::NOT_FOUND,
            "elements_not_accepted",
            detail,
            "list the task's step in `for_each.over.added_by` of the step that processes the elements",
        ),
        Code::Aborted => Refusal::new(
            StatusCode::CONFLICT,
            "step_ended",
            detail,
            "exit: no step processes further elements",
        ),
        Code::InvalidArgument => invalid(detail, Vec::new()),
        _ => response::refused(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(found: Result<Vec<bytes::Bytes>, Refusal>) -> Result<Vec<String>, String> {
        let text = |element: &bytes::Bytes| String::from_utf8_lossy(element).into_owned();
        found.map(|elements| elements.iter().map(text).collect()).map_err(|refusal| refusal.detail)
    }

    /// C4.
    #[test]
    fn a_batch_has_a_name_and_an_optional_step() {
        let of = |query: &str| parse_target(query).map_err(|refusal| refusal.detail);
        let place = |batch: &str, step: &str| Ok(BatchTarget { step: step.into(), batch: batch.into() });
        assert_eq!(of("batch=depth%201/%E9%A1%B5"), place("depth 1/页", ""));
        assert_eq!(of("step=page&batch=a+b"), place("a b", "page"));
        let refused = |what: &str| Err(format!("the parameter {what}"));
        assert_eq!(of(""), refused("`batch` is missing: expected a name for the batch"));
        assert_eq!(of("batch=x&lot=y"), refused("`lot` is unknown: expected `batch` or `step`"));
        assert_eq!(
            of("batch=%0a"),
            refused("`batch` contains control characters: expected a name without them")
        );
        let long = "x".repeat(129);
        assert_eq!(of(&format!("batch={long}")), refused("`batch` has 129 bytes: expected at most 128"));
    }

    /// C4.
    #[test]
    fn elements_are_accepted_as_a_list_or_as_lines() {
        let list = elements(br#"[ {"page": 1}, "two", 3 ]"#, BodyFormat::List);
        let expected: Vec<_> = [r#"{"page":1}"#, r#""two""#, "3"].map(String::from).into();
        assert_eq!(told(list), Ok(expected.clone()));
        assert_eq!(told(elements(b"{\"page\": 1}\n\n\"two\"\r\n3", BodyFormat::Lines)), Ok(expected));
        let layout = |kind| BodyFormat::of(&HeaderMap::from_iter([(CONTENT_TYPE, kind)]));
        assert_eq!(layout("application/X-NDJSON; charset=utf-8".parse().unwrap()), BodyFormat::Lines);
        assert_eq!(layout("application/x-www-form-urlencoded".parse().unwrap()), BodyFormat::List);
    }

    /// C4. Invalid elements are found and named before anything is sent.
    #[test]
    fn every_invalid_element_is_named() {
        let one = |refusal: Refusal| -> Vec<String> {
            refusal.errors.into_iter().map(|error| format!("{} {}", error.path, error.detail)).collect()
        };
        let long = "x".repeat(ITEM_BYTES_MAX);
        let body = json!([1, long, 2, long]).to_string();
        let too_long = |i: u32| format!("[{i}] has 1026 bytes: expected at most 1024");
        assert_eq!(one(elements(body.as_bytes(), BodyFormat::List).unwrap_err()), [too_long(1), too_long(3)]);
        let refusal = elements(b"1\nx\n2\n{", BodyFormat::Lines).unwrap_err();
        let errors = one(refusal);
        assert!(
            errors[0].starts_with("[1] is not valid JSON: ") && errors[1].starts_with("[3] is"),
            "{errors:?}"
        );
        let count = |count: usize| told(elements("1\n".repeat(count).as_bytes(), BodyFormat::Lines));
        assert_eq!(count(0), Err("the body has 0 elements: expected 1 to 1000".into()));
        assert_eq!(count(ADDED_MAX).map(|all| all.len()), Ok(ADDED_MAX));
        assert_eq!(count(ADDED_MAX + 1), Err("the body has 1001 elements: expected 1 to 1000".into()));
        assert!(
            told(elements(b"{}", BodyFormat::List)).unwrap_err().starts_with("the body is not a JSON list: ")
        );
    }

    /// The maximum number of elements of maximum size fits.
    #[test]
    fn the_largest_batch_fits_into_the_body_limit() {
        let largest = vec!["x".repeat(ITEM_BYTES_MAX - 2); ADDED_MAX];
        let body = json!(largest).to_string();
        assert!(body.len() <= BODY_BOUND.bytes);
        assert!(elements(body.as_bytes(), BodyFormat::List).is_ok());
    }
}
