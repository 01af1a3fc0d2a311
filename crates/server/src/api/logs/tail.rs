//! The last lines of a log.
//!
//! Frames are read forward and hold any number of lines, or a piece of one; what cannot be among the
//! last lines any more is dropped on the way, so memory is what the answer needs and one entry more.

use std::collections::VecDeque;

use model::api::LogEntry;

/// The last lines of what is pushed, and not much more.
pub(super) struct LastLines {
    wanted: usize,
    lines: usize,
    entries: VecDeque<LogEntry>,
}

impl LastLines {
    pub(super) fn new(wanted: usize) -> Self {
        Self { wanted, lines: 0, entries: VecDeque::new() }
    }

    pub(super) fn push(&mut self, entry: LogEntry) {
        self.lines += line_ends(&entry.text);
        self.entries.push_back(entry);
        // One more than wanted: what is behind the last line end is a line too.
        while let Some(first) = self.entries.front() {
            let without = self.lines - line_ends(&first.text);
            if without <= self.wanted {
                break;
            }
            self.lines = without;
            self.entries.pop_front();
        }
    }

    pub(super) fn finish(mut self) -> Vec<LogEntry> {
        let open_line = self.entries.back().is_some_and(|entry| !entry.text.ends_with('\n'));
        let mut surplus = (self.lines + usize::from(open_line)).saturating_sub(self.wanted);
        while let Some(first) = self.entries.front_mut().filter(|_| surplus > 0) {
            let here = line_ends(&first.text);
            if here < surplus || here == 0 {
                surplus -= here;
                self.entries.pop_front();
                continue;
            }
            let cut = first.text.match_indices('\n').nth(surplus - 1).map_or(0, |(at, _)| at + 1);
            first.text.drain(..cut);
            surplus = 0;
        }
        self.entries.retain(|entry| !entry.text.is_empty());
        self.entries.into()
    }
}

fn line_ends(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use model::Timestamp;

    use super::*;

    fn last(texts: &[&str], wanted: usize) -> String {
        let mut last = LastLines::new(wanted);
        for text in texts {
            last.push(LogEntry {
                next_offset: 0,
                at: Timestamp::default(),
                stream: "stdout".into(),
                text: (*text).into(),
            });
        }
        last.finish().into_iter().map(|entry| entry.text).collect()
    }

    #[test]
    fn the_last_lines_are_found_however_they_are_cut() {
        for texts in [&["a\nb\nc\nd\n"][..], &["a\n", "b\n", "c\n", "d\n"], &["a", "\nb", "\nc\n", "d", "\n"]]
        {
            assert_eq!(last(texts, 1), "d\n", "{texts:?}");
            assert_eq!(last(texts, 2), "c\nd\n", "{texts:?}");
            assert_eq!(last(texts, 4), "a\nb\nc\nd\n", "{texts:?}");
            assert_eq!(last(texts, 9), "a\nb\nc\nd\n", "{texts:?}");
        }
    }

    #[test]
    fn a_last_line_without_an_end_is_a_line() {
        assert_eq!(last(&["a\nb\nc"], 1), "c");
        assert_eq!(last(&["a\n", "b\n", "c"], 2), "b\nc");
        assert_eq!(last(&["a"], 1), "a");
        assert_eq!(last(&[], 1), "");
    }
}
