//! Variables in the texts of a request: `${NAME}`.
//!
//! - `${BELFRY_JOB_ID}` is the value of the variable. The variables `BELFRY_*` of the execution are available, and those
//!   with secrets of the job.
//! - `${response.EXPRESSION}` is the value of an expression over the first response, in a template only.
//! - `$${` is the text `${`, and `${{` is text too: other template languages use it.
//! - Any other `${` is an error, so that a misspelled name does not become a part of a request.

use std::fmt;

use model::expression::{self, Expression, Scope};
use serde_json::Value;

/// Source of the variables of the execution that a request may have.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Prefix of the variables of each execution.
pub(super) const PREFIX: &str = "BELFRY_";
/// Prefix of an expression over the first response.
const RESPONSE_PREFIX: &str = "response.";
/// Most characters of a wrong reference that an error shows.
const SHOWN_MAX: usize = 64;

/// Wrong reference in a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid `{field}`: {problem}")]
pub(super) struct UnknownVariable {
    field: String,
    problem: String,
}

/// Text with expressions over the first response.
#[derive(Debug)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Text(String),
    Response(Expression),
}

/// Replaces the variables in the text of a field.
///
/// # Errors
/// Returns the first wrong reference.
pub(super) fn substitute(
    field: &str,
    text: &str,
    variables: Variables<'_>,
) -> Result<String, UnknownVariable> {
    let mut result = String::with_capacity(text.len());
    parse(text, variables, &mut |piece| match piece {
        Piece::Text(text) => {
            result.push_str(&text);
            Ok(())
        }
        Piece::Response(expression) => Err(format!(
            "`${{{RESPONSE_PREFIX}{}}}` is available in `poll.url` only: {}",
            shown(expression.text()),
            Help
        )),
    })
    .map_err(|problem| UnknownVariable { field: field.to_owned(), problem })?;
    Ok(result)
}

impl Template {
    /// Parses the text of a field, and replaces the variables in it.
    ///
    /// # Errors
    /// Returns the first wrong reference, or the first invalid expression.
    pub(super) fn parse(field: &str, text: &str, variables: Variables<'_>) -> Result<Self, UnknownVariable> {
        let mut pieces = Vec::new();
        parse(text, variables, &mut |piece| {
            pieces.push(piece);
            Ok(())
        })
        .map_err(|problem| UnknownVariable { field: field.to_owned(), problem })?;
        Ok(Self { pieces })
    }

    /// Returns the text with the values of the expressions.
    ///
    /// # Errors
    /// Returns why an expression has no value that can be a part of a text.
    pub(super) fn render(&self, response: &dyn Scope) -> Result<String, String> {
        let rendered = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => Ok(text.clone()),
            Piece::Response(expression) => {
                let problem = |problem: &dyn fmt::Display| {
                    format!("`${{{RESPONSE_PREFIX}{}}}`: {problem}", expression.text())
                };
                match expression.evaluate(response) {
                    Err(error) => Err(problem(&error)),
                    Ok(Value::Null | Value::Array(_) | Value::Object(_)) => {
                        Err(problem(&"expected a string, a number or a boolean"))
                    }
                    Ok(value) => Ok(expression::shown(&value)),
                }
            }
        });
        rendered.collect()
    }
}

fn parse(
    text: &str,
    variables: Variables<'_>,
    add: &mut dyn FnMut(Piece) -> Result<(), String>,
) -> Result<(), String> {
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, reference) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            add(Piece::Text(format!("{before}${{")))?;
            rest = &reference[2..];
            continue;
        }
        add(Piece::Text(before.to_owned()))?;
        if let Some(after) = reference.strip_prefix("${{") {
            add(Piece::Text("${{".to_owned()))?;
            rest = after;
            continue;
        }
        let Some((name, after)) = reference[2..].split_once('}') else {
            return Err(format!("`{}` has no `}}`: {Help}", shown(reference)));
        };
        add(lookup(name, variables)?)?;
        rest = after;
    }
    add(Piece::Text(rest.to_owned()))
}

fn lookup(name: &str, variables: Variables<'_>) -> Result<Piece, String> {
    if let Some(text) = name.strip_prefix(RESPONSE_PREFIX) {
        return Expression::parse(text)
            .map(Piece::Response)
            .map_err(|error| format!("`${{{}}}`: {error}", shown(name)));
    }
    let is_of_belfry = name.starts_with(PREFIX)
        && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    variables(name).map(Piece::Text).ok_or_else(|| match is_of_belfry {
        true => format!("the execution has no variable `{}`: {Help}", shown(name)),
        false => format!("`${{{}}}` is not a variable of the execution: {Help}", shown(name)),
    })
}

/// What to write instead of a wrong reference.
struct Help;

impl fmt::Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("use a variable such as `${BELFRY_JOB_ID}`, or write `$${` for the text `${`")
    }
}

fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(name: &str) -> Option<String> {
        match name {
            "BELFRY_JOB_ID" => Some("job_1".into()),
            "BELFRY_ATTEMPT" => Some("2".into()),
            "API_TOKEN" => Some("s3cret".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_replaced_and_escapes_are_text() {
        for (text, expected) in [
            ("", ""),
            ("plain $5 $ {}", "plain $5 $ {}"),
            ("${BELFRY_JOB_ID}", "job_1"),
            ("a-${BELFRY_JOB_ID}-${BELFRY_ATTEMPT}é", "a-job_1-2é"),
            ("Bearer ${API_TOKEN}", "Bearer s3cret"),
            ("$${BELFRY_JOB_ID}", "${BELFRY_JOB_ID}"),
            ("$$${BELFRY_JOB_ID}", "$${BELFRY_JOB_ID}"),
            ("${{ inputs.x }} ${BELFRY_ATTEMPT}", "${{ inputs.x }} 2"),
            ("$${${BELFRY_ATTEMPT}", "${2"),
        ] {
            assert_eq!(substitute("url", text, &variables).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn any_other_reference_is_an_error() {
        let wrong = [
            "${HOME}",
            "${BELFRY_TYPO}",
            "${belfry_job_id}",
            "${BELFRY_JOB-ID}",
            "${}",
            "${BELFRY_JOB_ID",
            "${response.body.id}",
        ];
        let errors: Vec<_> =
            wrong.iter().map(|text| substitute("url", text, &variables).unwrap_err().to_string()).collect();
        insta::assert_snapshot!(errors.join("\n"), @"
        invalid `url`: `${HOME}` is not a variable of the execution: use a variable such as `${BELFRY_JOB_ID}`, or write `$${` for the text `${`
        invalid `url`: the execution has no variable `BELFRY_TYPO`: use a variable such as `${BELFRY_JOB_ID}`, or write `$${` for the text `${`
        invalid `url`: `${belfry_job_id}` is not a variable of the execution: use a variable such as `${BELFRY_JOB_ID}`, or write `$${` for the text `${`
        invalid `url`: `${BELFRY_JOB-ID}` is not a variable of the execution: use a variable such as `${BELFRY_JOB_ID}`, or write `$${` for the text `${`
        invalid `url`: `${}` is not a variable of the execution: use a variable such as `${BELFRY_JOB_ID}`, or write `$${` for the text `${`
        invalid `url`: `${BELFRY_JOB_ID` has no `}`: use a variable such as `${BELFRY_JOB_ID}`, or write `$${` for the text `${`
        invalid `url`: `${response.body.id}` is available in `poll.url` only: use a variable such as `${BELFRY_JOB_ID}`, or write `$${` for the text `${`
        ");
    }
}
