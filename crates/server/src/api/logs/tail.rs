//! The last lines of a log.
//!
//! A frame has any number of lines, or a part of a line. Frames are read forward, and entries that can no longer be
//! among the last lines are dropped at once. So memory is bounded by the response and one more entry.

use std::collections::VecDeque;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::api::LogEntry;

/// Collects the last lines.
pub(super) struct LastLines {
    wanted: usize,
    lines: usize,
    /// Number of lines before the kept entries.
    dropped: u64,
    entries: VecDeque<LogEntry>,
}

impl LastLines {
    pub(super) fn new(wanted: usize) -> Self {
        Self { wanted, lines: 0, dropped: 0, entries: VecDeque::new() }
    }

    pub(super) fn push(&mut self, entry: LogEntry) {
        self.lines += line_ends(&entry.text);
        self.entries.push_back(entry);
        // One more than requested: the text after the last line end is also a line.
        while let Some(first) = self.entries.front() {
            let without = self.lines - line_ends(&first.text);
            if without <= self.wanted {
                break;
            }
            self.dropped += (self.lines - without) as u64;
            self.lines = without;
            self.entries.pop_front();
        }
    }

    /// Returns the entries, and the number of their first line, from 1.
    pub(super) fn finish(mut self) -> (Vec<LogEntry>, u64) {
        let open_line = self.entries.back().is_some_and(|entry| !entry.text.ends_with('\n'));
        let mut surplus = (self.lines + usize::from(open_line)).saturating_sub(self.wanted);
        while let Some(first) = self.entries.front_mut().filter(|_| surplus > 0) {
            let here = line_ends(&first.text);
            if here < surplus || here == 0 {
                surplus -= here;
                self.dropped += here as u64;
                self.entries.pop_front();
                continue;
            }
            cut(first, surplus);
            self.dropped += surplus as u64;
            surplus = 0;
        }
        self.entries.retain(|entry| !entry.text.is_empty());
        (self.entries.into(), self.dropped + 1)
    }
}

/// Removes the first `count` lines of an entry with at least that many line ends, from its text and its bytes.
pub(super) fn cut(entry: &mut LogEntry, count: usize) {
    if count > 0 {
        cut_lines(&mut entry.text, count);
        entry.bytes = entry.bytes.take().map(|bytes| without_lines(&bytes, count));
    }
}

/// Removes the first lines of base64-encoded bytes.
fn without_lines(encoded: &str, lines: usize) -> String {
    let bytes = BASE64.decode(encoded).unwrap_or_default();
    let mut ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    BASE64.encode(&bytes[ends.nth(lines - 1).unwrap_or(0)..])
}

/// Removes the first `count` lines of a text with at least that many line ends.
fn cut_lines(text: &mut String, count: usize) {
    let Some(last) = count.checked_sub(1) else { return };
    let cut = text.match_indices('\n').nth(last).map_or(0, |(at, _)| at + 1);
    text.drain(..cut);
}

/// Returns the number of line ends in a text.
pub(super) fn line_ends(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use model::Timestamp;

    use super::*;

    fn last(texts: &[&str], wanted: usize) -> String {
        numbered(texts, wanted).0
    }

    /// Returns the last lines, and the number of the first of them.
    fn numbered(texts: &[&str], wanted: usize) -> (String, u64) {
        let mut last = LastLines::new(wanted);
        for text in texts {
            last.push(LogEntry {
                next_offset: 0,
                at: Timestamp::default(),
                stream: "stdout".into(),
                text: (*text).into(),
                bytes: None,
            });
        }
        let (entries, first) = last.finish();
        (entries.into_iter().map(|entry| entry.text).collect(), first)
    }

    #[test]
    fn the_last_lines_are_found_in_frames_of_any_size() {
        for texts in [&["a\nb\nc\nd\n"][..], &["a\n", "b\n", "c\n", "d\n"], &["a", "\nb", "\nc\n", "d", "\n"]]
        {
            assert_eq!(last(texts, 1), "d\n", "{texts:?}");
            assert_eq!(last(texts, 2), "c\nd\n", "{texts:?}");
            assert_eq!(last(texts, 4), "a\nb\nc\nd\n", "{texts:?}");
            assert_eq!(last(texts, 9), "a\nb\nc\nd\n", "{texts:?}");
        }
    }

    #[test]
    fn the_last_lines_keep_their_bytes() {
        let mut last = LastLines::new(1);
        let bytes = Some(BASE64.encode(b"a\xff\nb\xff\n"));
        let text = "a\u{fffd}\nb\u{fffd}\n".into();
        last.push(LogEntry {
            next_offset: 0,
            at: Timestamp::default(),
            stream: "stdout".into(),
            text,
            bytes,
        });
        let entry = last.finish().0.pop().unwrap();
        assert_eq!((entry.text.as_str(), entry.bytes), ("b\u{fffd}\n", Some(BASE64.encode(b"b\xff\n"))));
    }

    #[test]
    fn the_first_line_has_its_number_in_the_log() {
        for texts in [&["a\nb\nc\nd\n"][..], &["a\n", "b\n", "c\n", "d\n"], &["a", "\nb", "\nc\n", "d", "\n"]]
        {
            assert_eq!([1, 2, 4, 9].map(|wanted| numbered(texts, wanted).1), [4, 3, 1, 1], "{texts:?}");
        }
        assert_eq!(numbered(&["a\nb\nc"], 1), ("c".into(), 3));
    }

    #[test]
    fn a_last_line_without_an_end_is_a_line() {
        assert_eq!(last(&["a\nb\nc"], 1), "c");
        assert_eq!(last(&["a\n", "b\n", "c"], 2), "b\nc");
        assert_eq!(last(&["a"], 1), "a");
        assert_eq!(last(&[], 1), "");
    }
}
