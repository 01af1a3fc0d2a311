//! Errors with their causes, on one line, for logs.
//!
//! The `Display` of an error leaves its cause to `source()`. A log needs both: "the store is not available" alone does
//! not say what to repair.

use std::error::Error;
use std::fmt;

/// Displays an error and all its causes: `cannot write the file: no space left on device`.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn Error + 'static));

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
