//! Texts of clients in entries.

/// Returns the beginning of a text, without control characters: an entry may be printed on a terminal.
pub fn clean(text: &str, chars_max: usize) -> String {
    let mut cleaned: String =
        text.chars().take(chars_max).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(chars_max).is_some() {
        cleaned.pop();
        cleaned.push('…');
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shortened_and_have_no_control_characters() {
        assert_eq!(clean("curl/8\u{1b}[31m", 100), "curl/8\u{fffd}[31m");
        assert_eq!(clean("钟楼钟楼", 4), "钟楼钟楼");
        assert_eq!(clean("钟楼钟楼钟", 4), "钟楼钟…");
        assert_eq!(clean("", 4), "");
    }
}
