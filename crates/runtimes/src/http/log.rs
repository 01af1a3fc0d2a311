//! The log of an execution: its requests and responses.
//!
//! Requests and responses are the output of the execution, and the messages of Belfry its errors. The values of
//! headers are often secret, and are never logged.

use std::fmt;
use std::io::Write;

use super::request::{Request, shown_url};
use super::response::Response;

/// Most bytes of a body that are logged.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Writes the log. A log that cannot be written does not fail the execution.
pub(super) struct Log<'a> {
    output: &'a mut dyn Write,
    errors: &'a mut dyn Write,
    /// Last body, as it was logged.
    last_body: String,
}

impl<'a> Log<'a> {
    pub(super) fn new(output: &'a mut dyn Write, errors: &'a mut dyn Write) -> Self {
        Self { output, errors, last_body: String::new() }
    }

    pub(super) fn request(&mut self, request: &Request) {
        self.write(&format!("> {} {}\n", request.method, shown_url(&request.url)));
    }

    pub(super) fn response(&mut self, response: &Response) {
        let status = response.shown_status();
        let (bytes, millis) = (grouped(response.body.len()), grouped(response.elapsed.as_millis()));
        self.write(&format!("< {status}, {bytes} bytes in {millis} ms\n"));
    }

    /// Logs the body of a response. A poll often has the same body many times; it is logged once.
    pub(super) fn body(&mut self, response: &Response) {
        let body = shown_body(&response.body);
        if !body.is_empty() && body == self.last_body {
            self.write("(the same body)\n");
            return;
        }
        self.write(&body);
        self.last_body = body;
    }

    /// Logs a message of Belfry.
    pub(super) fn message(&mut self, message: impl fmt::Display) {
        let _ = writeln!(self.errors, "belfry: {message}");
        let _ = self.errors.flush();
    }

    fn write(&mut self, text: &str) {
        let _ = self.output.write_all(text.as_bytes());
        let _ = self.output.flush();
    }
}

/// Returns the first part of a body, with a line end.
fn shown_body(body: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(body) else {
        return format!("({} bytes that are not UTF-8)\n", grouped(body.len()));
    };
    let shown = &text[..text.floor_char_boundary(BODY_BYTES_MAX)];
    let line_end = if shown.is_empty() || shown.ends_with('\n') { "" } else { "\n" };
    let rest = match text.len() - shown.len() {
        0 => String::new(),
        rest => format!("({} more bytes are left out)\n", grouped(rest)),
    };
    format!("{shown}{line_end}{rest}")
}

/// Returns a number with its digits in groups: `1,234`.
fn grouped(number: impl fmt::Display) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_logged_as_text_up_to_a_limit() {
        assert_eq!(shown_body(b""), "");
        assert_eq!(shown_body(b"a"), "a\n");
        assert_eq!(shown_body(b"a\n"), "a\n");
        assert_eq!(shown_body(&[0xff; 1234]), "(1,234 bytes that are not UTF-8)\n");
        // The limit is inside of a character.
        let long = format!("a{}", "é".repeat(BODY_BYTES_MAX / 2));
        let shown = shown_body(long.as_bytes());
        assert!(shown.ends_with("é\n(2 more bytes are left out)\n"), "{}", &shown[shown.len() - 64..]);
    }

    #[test]
    fn digits_are_in_groups_of_three() {
        assert_eq!([0, 12, 123, 1_234, 1_234_567].map(grouped), ["0", "12", "123", "1,234", "1,234,567"]);
    }
}
