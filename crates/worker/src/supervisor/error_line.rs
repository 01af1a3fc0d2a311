//! The line of a task's output that says why it failed.
//!
//! Programs end with very different last lines: Python with the exception, Java with a stack trace, Node.js with its
//! version, Go with an exit status. So a line that names an error wins over later lines, and lines of stack traces never
//! win.
//!
//! # Cost
//! The last [`KEPT`] bytes of each stream are copied as they arrive. The lines are looked at only if the task fails.

use std::collections::VecDeque;

use proto::logframe::Stream;

/// Bytes of each stream among which the line is searched.
const KEPT: usize = 4 << 10;
/// Longest line that is returned, in characters.
const LINE_MAX: usize = 300;
/// Words of lines that name an error, in lower case.
const ERROR_WORDS: &[&str] = &[
    "error",
    "exception",
    "panic",
    "fatal",
    "fail",
    "denied",
    "not found",
    "no such",
    "refused",
    "timed out",
    "timeout",
    "cannot",
    "can't",
    "unable",
    "invalid",
    "错误",
    "失败",
    "异常",
];

/// The last bytes of the output of a task.
#[derive(Debug, Default)]
pub(super) struct LastOutput {
    stdout: VecDeque<u8>,
    stderr: VecDeque<u8>,
}

impl LastOutput {
    /// Adds output of the task.
    pub(super) fn append(&mut self, stream: Stream, data: &[u8]) {
        let kept = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
            Stream::Notice => return,
        };
        let new = &data[data.len().saturating_sub(KEPT)..];
        let excess = (kept.len() + new.len()).saturating_sub(KEPT);
        kept.drain(..excess.min(kept.len()));
        kept.extend(new);
    }

    /// Returns the line that says why the task failed, without control characters.
    ///
    /// Of stderr, this is the last line that names an error, or else the last line. Of stdout, only a line that names an
    /// error counts, and only if stderr is empty.
    pub(super) fn error_line(&self) -> Option<String> {
        let named = |lines: &[String]| lines.iter().rfind(|line| names_error(line)).cloned();
        if self.stderr.iter().all(u8::is_ascii_whitespace) {
            return named(&lines(&self.stdout));
        }
        let stderr = lines(&self.stderr);
        named(&stderr).or_else(|| stderr.last().cloned())
    }
}

/// Returns the lines that may say why a task failed.
fn lines(bytes: &VecDeque<u8>) -> Vec<String> {
    let is_cut = bytes.len() == KEPT;
    let bytes: Vec<u8> = bytes.iter().copied().collect();
    let mut lines: Vec<&[u8]> =
        bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).collect();
    // The beginning of the first line may be missing.
    if is_cut && lines.len() > 1 {
        lines.remove(0);
    }
    let mut shown = Vec::new();
    for line in lines {
        let line = text(line);
        // The rest of the output of a Go program is the stacks of its goroutines.
        if line.starts_with("goroutine ") {
            break;
        }
        // A panic of a Rust program has its message in the next line.
        if let Some(panic) = shown.pop_if(|last: &mut String| is_panic(last)) {
            shown.push(limited(&format!("{panic} {}", line.trim())));
        } else if !is_trace(&line) {
            shown.push(limited(line.trim()));
        }
    }
    shown.retain(|line| !line.is_empty());
    shown
}

/// Returns a line as a terminal shows it: without escape sequences, and of a progress bar only its last text.
fn text(line: &[u8]) -> String {
    // Each line alone: an escape sequence without an end must hide no other line.
    let plain = anstream::adapter::strip_bytes(line).into_vec();
    let text = String::from_utf8_lossy(&plain);
    text.trim_end().rsplit('\r').next().unwrap_or_default().to_owned()
}

fn limited(line: &str) -> String {
    line.chars().filter(|letter| !letter.is_control()).take(LINE_MAX).collect()
}

fn is_panic(line: &str) -> bool {
    line.starts_with("thread '") && line.contains(" panicked at ") && line.ends_with(':')
}

/// Whether a line is part of a stack trace, or is printed after every failure.
fn is_trace(line: &str) -> bool {
    let text = line.trim();
    line.starts_with([' ', '\t'])
        || text.starts_with("Node.js v")
        || text.starts_with("note: run with `RUST_BACKTRACE")
        || text.starts_with("exit status ")
}

fn names_error(line: &str) -> bool {
    let line = line.to_lowercase();
    ERROR_WORDS.iter().any(|word| line.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of(stdout: &str, stderr: &str) -> Option<String> {
        let mut output = LastOutput::default();
        output.append(Stream::Stdout, stdout.as_bytes());
        output.append(Stream::Stderr, stderr.as_bytes());
        output.error_line()
    }

    #[test]
    fn the_line_that_names_the_error_is_found_for_each_language() {
        for (stderr, expected) in [
            (
                "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    x['a']\nKeyError: 'a'\n",
                "KeyError: 'a'",
            ),
            (
                "Exception in thread \"main\" java.lang.IllegalStateException: no rows\n\tat A.main(A.java:3)\n",
                "Exception in thread \"main\" java.lang.IllegalStateException: no rows",
            ),
            (
                "/a.js:1\nthrow new Error('boom')\n^\n\nError: boom\n    at Object.<anonymous> (/a.js:1:7)\n\nNode.js v20.1.0\n",
                "Error: boom",
            ),
            (
                "panic: no rows\n\ngoroutine 1 [running]:\ngithub.com/pkg/errors.Wrap(0x1)\n\t/a.go:4 +0x18\nexit status 2\n",
                "panic: no rows",
            ),
            (
                "thread 'main' panicked at src/main.rs:2:5:\nno rows\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
                "thread 'main' panicked at src/main.rs:2:5: no rows",
            ),
            (
                "cp: cannot stat 'a': No such file or directory\ncleaning up\n",
                "cp: cannot stat 'a': No such file or directory",
            ),
            ("one\ntwo", "two"),
            ("\u{1b}[31mERROR\u{1b}[0m disk full\n", "ERROR disk full"),
            ("10 %\r20 %\rdisk full\r\n", "disk full"),
            ("  10 %\r  20 %\rERROR: disk full\n", "ERROR: disk full"),
            ("see \u{1b}]8;;https://a.example\nfatal: disk full\n", "fatal: disk full"),
        ] {
            assert_eq!(line_of("ignored: error\n", stderr).as_deref(), Some(expected), "{stderr}");
        }
    }

    #[test]
    fn stdout_counts_only_if_stderr_is_empty_and_only_if_it_names_an_error() {
        assert_eq!(line_of("start\nERROR: disk full\nbye\n", "").as_deref(), Some("ERROR: disk full"));
        assert_eq!(line_of("start\nbye\n", ""), None);
        assert_eq!(line_of("", ""), None);
        assert_eq!(line_of("", " \n\n"), None);
    }

    #[test]
    fn only_the_last_bytes_are_kept_and_a_cut_line_is_left_out() {
        let mut output = LastOutput::default();
        for _ in 0..100 {
            output.append(Stream::Stderr, &[b'x'; 1_000]);
        }
        assert_eq!(output.stderr.len(), KEPT);
        output.append(Stream::Stderr, b"\nthe end\n");
        assert_eq!(output.stderr.len(), KEPT);
        assert_eq!(output.error_line().as_deref(), Some("the end"));
        output.append(Stream::Stdout, b"error of another kind\n");
        for end in ["", "\n"] {
            output.append(Stream::Stderr, &[b'y'; 3 * KEPT]);
            output.append(Stream::Stderr, end.as_bytes());
            let line = output.error_line().unwrap();
            assert_eq!((line.len(), line.contains('y')), (LINE_MAX, true), "{end:?}");
        }
        output.append(Stream::Stderr, &[0xff, b'\n', 0xe9, b'!', b'\n']);
        assert!(output.error_line().is_some(), "any bytes");
    }
}
