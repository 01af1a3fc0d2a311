//! The last lines of a log, for messages.

use model::ExecutionId;
use proto::logframe;

use crate::objects::Logs;

/// Longest log that is read.
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Bytes that are read at a time.
const CHUNK: usize = 256 * 1024;
/// Most lines of an excerpt.
const LINES_MAX: usize = 10;
/// Most bytes of an excerpt.
const BYTES_MAX: usize = 2_000;

/// Returns the last lines of a log; `None` if it is empty, long, or cannot be read now.
pub(super) async fn of(logs: &Logs, execution: ExecutionId) -> Option<String> {
    let size = logs.size(execution).await.ok()?;
    if size.end == 0 || size.end - size.first > LOG_BYTES_MAX {
        return None;
    }
    let (mut last, mut offset) = (Vec::new(), 0);
    loop {
        let part = logs.read(execution, offset, CHUNK).await.ok()?;
        if part.frames.is_empty() {
            break;
        }
        let mut at = 0;
        while let Ok(Some((frame, next))) = logframe::read(&part.frames, at) {
            last.extend_from_slice(frame.data);
            at = next;
        }
        let surplus = last.len().saturating_sub(2 * BYTES_MAX);
        last.drain(..surplus);
        offset = part.next;
    }
    let text = lines(&String::from_utf8_lossy(&last));
    (!text.is_empty()).then_some(text)
}

/// Returns the last lines of a text, without control characters.
fn lines(text: &str) -> String {
    let clean: String = text.chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect();
    let all: Vec<&str> = clean.trim_end().lines().collect();
    let mut text = all[all.len().saturating_sub(LINES_MAX)..].join("\n");
    if text.len() > BYTES_MAX {
        let from = (text.len() - BYTES_MAX..).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        text.drain(..from);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_has_the_last_lines_within_its_limits() {
        let text: String = (0..50).map(|n| format!("line {n}\n")).collect();
        assert_eq!(lines(&text).lines().count(), LINES_MAX);
        assert!(lines(&text).ends_with("line 49"));
        assert_eq!(lines("\u{1b}[31mred\r\n\n"), "[31mred");
        assert!(lines(&"钟".repeat(10_000)).len() <= BYTES_MAX);
        assert_eq!(lines(""), "");
    }
}
