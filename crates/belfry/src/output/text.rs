//! Formatting of untrusted text, byte counts and plurals.

use std::fmt::Write as _;

use model::why::OpenEnum;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Escapes control characters and Unicode characters that change the direction of text. Without this, the name of a job
/// could move the cursor, color the line or hide a part of it.
pub(crate) fn escape(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => cleaned.push_str("\\n"),
            '\r' => cleaned.push_str("\\r"),
            '\t' => cleaned.push_str("\\t"),
            c if c.is_control() && u32::from(c) < 0x100 => {
                let _ = write!(cleaned, "\\x{:02x}", u32::from(c));
            }
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                let _ = write!(cleaned, "\\u{{{:x}}}", u32::from(c));
            }
            c => cleaned.push(c),
        }
    }
    cleaned
}

/// Cuts a text to a width on a terminal; a cut text ends in `…`. A Chinese character takes two columns.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 0);
    for c in text.chars() {
        used += c.width().unwrap_or_default();
        if used >= width {
            break;
        }
        kept.push(c);
    }
    kept + "…"
}

/// Cuts a text to at most `max` characters; a cut text ends in `…`.
pub(crate) fn short(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// Formats a value of an open enum with `words`. A value of a newer server is shown as JSON.
pub(crate) fn format_open_enum<T>(value: &OpenEnum<T>, words: impl FnOnce(&T) -> String) -> String {
    match value {
        OpenEnum::Known(known) => words(known),
        OpenEnum::Unknown(raw) => escape(&raw.to_string()),
    }
}

/// Formats a number of bytes with a binary unit: `1.4 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "it is shown with one decimal")]
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1023.95 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// Formats a count with a regular noun: `1 job`, `2 jobs`.
pub(crate) fn count(n: u64, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_direction_characters_become_visible_and_other_text_stays() {
        assert_eq!(escape("钟楼 ok\u{1b}[2J\nx\u{202e}y\u{9b}"), "钟楼 ok\\x1b[2J\\nx\\u{202e}y\\x9b");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(short("钟楼钟楼", 3), "钟楼…");
        assert_eq!(short("abc", 3), "abc");
    }

    #[test]
    fn text_is_cut_to_its_width_on_a_terminal() {
        assert_eq!(
            ["钟楼钟楼", "a钟楼钟", "abcdefg"].map(|text| cut(text, 6)),
            ["钟楼…", "a钟楼…", "abcde…"]
        );
        assert_eq!(["钟楼钟", "abcdef", ""].map(|text| cut(text, 6)), ["钟楼钟", "abcdef", ""]);
    }

    #[test]
    fn bytes_are_shown_in_the_unit_that_fits() {
        let shown = [0, 1023, 1024, 1_500_000, 1 << 30, u64::MAX].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.4 MiB", "1.0 GiB", "16384.0 PiB"]);
    }
}
