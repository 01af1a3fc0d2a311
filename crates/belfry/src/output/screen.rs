//! A text on a terminal that is redrawn in place, for `belfry job list --watch` and `belfry top`.
//!
//! The text is drawn over the one before: the cursor moves up, and each line is overwritten. So the earlier output of the
//! terminal stays, and the last text remains when the command ends.
//!
//! # Invariants
//! - A text is at most one line shorter than the terminal, so that drawing it does not scroll.
//! - Line wrapping is off only while a text is drawn: a long line is cut, so each line takes one row.

use std::io::IsTerminal as _;

use super::{Format, Output};
use crate::failure::Failure;

/// Terminal on standard output on which a text is redrawn.
#[derive(Debug)]
pub(crate) struct Screen {
    out: Output,
    /// Number of lines of the text on the terminal.
    drawn: usize,
}

impl Screen {
    /// Returns the screen. `None` if standard output is not a terminal that can move its cursor, or if the format is for
    /// programs.
    pub(crate) fn new(out: Output) -> Option<Self> {
        let is_table = matches!(out.look.format, Format::Table | Format::Wide);
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        (is_table && !is_dumb && std::io::stdout().is_terminal()).then_some(Self { out, drawn: 0 })
    }

    /// Returns the number of lines that a text may have.
    pub(crate) fn lines_max(&self) -> usize {
        let rows =
            rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_row));
        // A terminal without a size, such as one of a test, has the usual one.
        if rows == 0 { 23 } else { rows.saturating_sub(1).max(1) }
    }

    /// Replaces the text. Lines that do not fit are left out, and the last line says so.
    pub(crate) fn draw(&mut self, text: &str) -> Result<(), Failure> {
        let (frame, drawn) = frame(text, self.lines_max(), self.drawn);
        self.drawn = drawn;
        self.out.data(frame)
    }
}

/// Returns the output that replaces a text of `before` lines, and the number of lines of the new text.
fn frame(text: &str, lines_max: usize, before: usize) -> (String, usize) {
    const NO_WRAP: &str = "\x1b[?7l";
    const WRAP: &str = "\x1b[?7h";
    const END_OF_LINE: &str = "\x1b[K\n";
    const END_OF_SCREEN: &str = "\x1b[J";
    let lines: Vec<&str> = text.lines().collect();
    let shown = if lines.len() > lines_max { lines_max.saturating_sub(1) } else { lines.len() };
    let up = if before > 0 { format!("\x1b[{before}A\r") } else { String::new() };
    let mut frame = up + NO_WRAP;
    lines[..shown].iter().for_each(|line| frame.extend([*line, END_OF_LINE]));
    let mut drawn = shown;
    if shown < lines.len() {
        frame.push_str(&format!("… and {} more lines{END_OF_LINE}", lines.len() - shown));
        drawn += 1;
    }
    (frame + END_OF_SCREEN + WRAP, drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of a terminal after frames, one for each text.
    fn terminal(rows: usize, texts: &[&str]) -> Vec<String> {
        let (mut screen, mut cursor, mut drawn) = (vec!["$ before".to_owned()], 1, 0);
        for text in texts {
            let (frame, now) = frame(text, rows - 1, drawn);
            drawn = now;
            let frame =
                frame.strip_prefix('\x1b').map_or(frame.as_str(), |rest| match rest.split_once("A\r") {
                    Some((count, rest)) => {
                        cursor -= count.trim_start_matches('[').parse::<usize>().unwrap();
                        rest
                    }
                    None => frame.as_str(),
                });
            let body = frame.strip_prefix("\x1b[?7l").unwrap().strip_suffix("\x1b[J\x1b[?7h").unwrap();
            for line in body.split_terminator("\x1b[K\n") {
                screen.truncate(screen.len().max(cursor));
                if cursor == screen.len() {
                    screen.push(String::new());
                }
                line.clone_into(&mut screen[cursor]);
                cursor += 1;
            }
            // The end of the screen is cleared.
            screen.truncate(cursor);
        }
        screen
    }

    #[test]
    fn a_text_replaces_the_one_before_and_nothing_else() {
        assert_eq!(terminal(24, &["a\nb\nc\n", "d\n"]), ["$ before", "d"]);
        assert_eq!(terminal(24, &["a\n", "b\nc\n", "e\nf\n"]), ["$ before", "e", "f"]);
    }

    #[test]
    fn a_text_that_is_longer_than_the_terminal_is_cut() {
        assert_eq!(terminal(4, &["1\n2\n3\n4\n5\n"]), ["$ before", "1", "2", "… and 3 more lines"]);
        assert_eq!(terminal(4, &["1\n2\n3\n"]), ["$ before", "1", "2", "3"]);
    }
}
