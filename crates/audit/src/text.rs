//! Texts of clients in entries.

/// Whether a character could change how a terminal or a page shows the text around it.
fn is_misleading(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Returns the beginning of a text, without characters for the control of a terminal or of the direction of text.
pub fn clean(text: &str, chars_max: usize) -> String {
    let mut cleaned: String =
        text.chars().take(chars_max).map(|c| if is_misleading(c) { '\u{fffd}' } else { c }).collect();
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
        assert_eq!(clean("a\u{202e}b\u{2028}", 100), "a\u{fffd}b\u{fffd}");
        assert_eq!(clean("钟楼钟楼", 4), "钟楼钟楼");
        assert_eq!(clean("钟楼钟楼钟", 4), "钟楼钟…");
        assert_eq!(clean("", 4), "");
    }
}
