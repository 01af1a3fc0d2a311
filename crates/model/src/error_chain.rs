//! Errors with their causes, on one line, for logs.
//!
//! The `Display` of an error leaves its cause to `source()`. A log needs both: "the store is not available" alone does
//! not say what to repair. A log in JSON has one text for each field.

use std::error::Error;
use std::fmt;

/// Displays an error and all its causes: `cannot write the file: no space left on device`.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot write the file")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn an_error_is_followed_by_its_causes() {
        let error = Outer(std::io::Error::other("no space left on device"));
        assert_eq!(Chain(&error).to_string(), "cannot write the file: no space left on device");
    }
}
