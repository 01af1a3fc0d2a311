//! Errors of cron expressions, with their position.

use std::borrow::Cow;

use super::BYTES_MAX;

/// First error of a cron expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at column {column}: found {found}, expected {expected}, for example `{example}`")]
pub(crate) struct CronError {
    column: usize,
    found: String,
    expected: Cow<'static, str>,
    example: String,
}

impl CronError {
    /// Returns an error at a byte position of the text. `found` is the text at that position; empty at the end.
    pub(super) fn new(
        text: &str,
        byte: usize,
        found: &str,
        expected: impl Into<Cow<'static, str>>,
        example: impl Into<String>,
    ) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let found = if found.is_empty() { "the end".to_owned() } else { format!("`{}`", shown(found)) };
        Self { column: before.chars().count() + 1, found, expected: expected.into(), example: example.into() }
    }

    pub(super) fn too_long(bytes: usize) -> Self {
        Self {
            column: BYTES_MAX + 1,
            found: format!("an expression of {bytes} bytes"),
            expected: format!("at most {BYTES_MAX}").into(),
            example: "0 2 * * *".into(),
        }
    }
}

/// Returns text of a user for a message: at most 32 characters, without control characters.
fn shown(text: &str) -> String {
    text.chars().take(32).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
