//! What a spec asks for, checked before the first request is sent.

use model::expression::Expression;
use model::spec::{HttpPoll, HttpRun, StatusRange};
use reqwest::header::LOCATION;
use serde_json::{Map, Value};

use super::request::{Request, parse_url};
use super::response::Response;
use super::variables::{Template, Variables};
use crate::End;

const SUCCESS_STATUS: &str = "2xx";
const DONE_IF: &str = "status != 202";

/// A spec with the values of its variables.
pub(super) struct Plan {
    pub(super) request: Request,
    pub(super) poll: Option<Poll>,
    success_status: Vec<StatusRange>,
    /// `success_status` as text.
    expected_status: String,
    success_if: Option<Condition>,
    outputs: Vec<(String, Expression)>,
}

/// How to wait for the result of accepted work.
pub(super) struct Poll {
    pub(super) interval: model::Duration,
    pub(super) done_if: Condition,
    url: Option<Template>,
}

/// A condition on a response.
pub(super) struct Condition {
    field: &'static str,
    expression: Expression,
}

impl Plan {
    /// # Errors
    /// The spec is invalid, or uses an unknown variable. Nothing was sent.
    pub(super) fn new(http: &HttpRun, variables: Variables<'_>) -> Result<Self, End> {
        let ranges = http.success_status.iter().map(String::as_str);
        let ranges: Vec<&str> = if ranges.len() == 0 { vec![SUCCESS_STATUS] } else { ranges.collect() };
        let outputs = http.outputs.iter().map(|(name, text)| {
            let expression = parse(&format!("run.http.outputs.{name}"), text)?;
            Ok((name.clone(), expression))
        });
        Ok(Self {
            request: Request::new(http, variables)?,
            poll: http.poll.as_ref().map(|poll| Poll::new(poll, variables)).transpose()?,
            success_status: ranges.iter().filter_map(|range| StatusRange::parse(range)).collect(),
            expected_status: ranges.join(", "),
            success_if: http
                .success_if
                .as_deref()
                .map(|text| Condition::new("run.http.success_if", text))
                .transpose()?,
            outputs: outputs.collect::<Result<_, End>>()?,
        })
    }

    /// Returns whether `success_status` has the status of a response.
    pub(super) fn expects_status(&self, response: &Response) -> bool {
        self.success_status.iter().any(|range| range.contains(response.status.as_u16()))
    }

    /// Checks the last response.
    pub(super) fn judge(&self, response: &Response) -> Result<(), End> {
        if !self.expects_status(response) {
            let (status, expected) = (response.shown_status(), &self.expected_status);
            let problem = format!("the response has status {status}: expected {expected}");
            return Err(End::failed("unexpected_status", problem));
        }
        match &self.success_if {
            Some(condition) if !condition.holds(response)? => {
                let text = condition.expression.text();
                let problem =
                    format!("the response does not satisfy `{}`: `{text}` is false", condition.field);
                Err(End::failed("unexpected_response", problem))
            }
            _ => Ok(()),
        }
    }

    /// Returns the outputs as a JSON object; `None` if the spec has none.
    pub(super) fn outputs(&self, response: &Response) -> Result<Option<String>, End> {
        let mut values = Map::new();
        for (name, expression) in &self.outputs {
            let value = expression.evaluate(response).map_err(|error| {
                let text = expression.text();
                let problem = format!("cannot evaluate `run.http.outputs.{name}`: `{text}`: {error}");
                End::failed("output_invalid", problem)
            })?;
            values.insert(name.clone(), value);
        }
        Ok((!values.is_empty()).then(|| Value::Object(values).to_string()))
    }
}

impl Poll {
    fn new(poll: &HttpPoll, variables: Variables<'_>) -> Result<Self, End> {
        let url = poll.url.as_deref().map(|url| Template::parse("run.http.poll.url", url, variables));
        let done_if = poll.done_if.as_deref().unwrap_or(DONE_IF);
        Ok(Self {
            interval: poll.interval.unwrap_or(HttpPoll::INTERVAL),
            done_if: Condition::new("run.http.poll.done_if", done_if)?,
            url: url.transpose().map_err(|error| End::start_failed("unknown_variable", error.to_string()))?,
        })
    }

    /// Returns the request that polls the result of the work that `accepted` accepts.
    pub(super) fn request(&self, first: &Request, accepted: &Response) -> Result<Request, End> {
        let (code, source, url) = match (&self.url, accepted.header(&LOCATION)) {
            (Some(template), _) => ("poll_url_invalid", "`run.http.poll.url`", template.render(accepted)),
            (None, Some(location)) => ("no_location", "header `Location` of the response", Ok(location)),
            (None, None) => {
                let problem = "the response has no header `Location` to poll: set `run.http.poll.url`";
                return Err(End::failed("no_location", problem));
            }
        };
        url.and_then(|url| parse_url(&url, Some(&accepted.url)))
            .map(|url| first.poll(url))
            .map_err(|problem| End::failed(code, format!("invalid {source}: {problem}")))
    }
}

impl Condition {
    fn new(field: &'static str, text: &str) -> Result<Self, End> {
        Ok(Self { field, expression: parse(field, text)? })
    }

    /// Evaluates the condition.
    ///
    /// # Errors
    /// It cannot be evaluated over this response, or is no boolean.
    pub(super) fn holds(&self, response: &Response) -> Result<bool, End> {
        let reason = match self.expression.evaluate(response) {
            Ok(Value::Bool(holds)) => return Ok(holds),
            Ok(_) => "expected a boolean".to_owned(),
            Err(error) => error.to_string(),
        };
        let (text, status) = (self.expression.text(), response.shown_status());
        let problem =
            format!("cannot evaluate `{}` over the response {status}: `{text}`: {reason}", self.field);
        Err(End::failed("unexpected_response", problem))
    }
}

fn parse(field: &str, text: &str) -> Result<Expression, End> {
    Expression::parse(text)
        .map_err(|error| End::start_failed("invalid_request", format!("invalid `{field}`: {error}")))
}
