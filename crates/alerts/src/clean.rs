//! Untrusted text as plain text: no control characters, no invisible changes of direction, bounded length.
//!
//! This is not yet safe in markup: each service escapes the result in its own way.

use std::borrow::Cow;

/// Most bytes of a URL in a message. Longer ones are left out: Discord and Telegram refuse them.
const URL_BYTES_MAX: usize = 2_000;
/// Sign of a text that was cut.
const ELLIPSIS: char = '…';
/// Separates characters that would be markup together, without a visible change.
pub(crate) const ZERO_WIDTH_SPACE: char = '\u{200b}';

/// Returns the text in one line: white space and control characters become single spaces. At most `max` UTF-16 units.
pub(crate) fn line(text: &str, max: usize) -> String {
    let visible: String = without_escapes(text).chars().map(|c| if is_unsafe(c) { ' ' } else { c }).collect();
    cut(&visible.split_whitespace().collect::<Vec<_>>().join(" "), max)
}

/// Returns the text with its lines, without control characters and without empty lines at its start and end.
pub(crate) fn block(text: &str) -> String {
    let text = without_escapes(text).replace("\r\n", "\n").replace('\t', "    ");
    let visible: String = text.chars().map(|c| if c != '\n' && is_unsafe(c) { ' ' } else { c }).collect();
    let lines: Vec<_> = visible.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

/// Returns whether a character is a control character, or changes the direction or the lines of the text around it.
fn is_unsafe(c: char) -> bool {
    let invisible =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    c.is_control() || invisible
}

/// Removes the escape sequences of terminals, such as colours.
fn without_escapes(text: &str) -> Cow<'_, str> {
    const ESCAPE: char = '\u{1b}';
    if !text.contains(ESCAPE) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut pieces = text.split(ESCAPE);
    kept.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        kept.push_str(match piece.strip_prefix('[') {
            // Parameters, then one final byte from `@` to `~` (ECMA-48, section 5.4).
            Some(rest) => rest
                .trim_start_matches(|c| matches!(c, ' '..='?'))
                .strip_prefix(|c| matches!(c, '@'..='~'))
                .unwrap_or_default(),
            None => piece,
        });
    }
    Cow::Owned(kept)
}

/// Shortens a text to at most `max` UTF-16 units, with `…` at its end.
pub(crate) fn cut(text: &str, max: usize) -> String {
    if utf16_len(text) <= max {
        return text.to_owned();
    }
    let Some(kept) = max.checked_sub(1) else { return String::new() };
    let mut cut: String = within(text.chars(), kept).collect();
    cut.truncate(cut.trim_end().len());
    cut.push(ELLIPSIS);
    cut
}

/// Shortens a text to at most `max` UTF-16 units, with `…` at its start: the end of a log says most.
pub(crate) fn cut_start(text: &str, max: usize) -> String {
    if utf16_len(text) <= max {
        return text.to_owned();
    }
    let Some(kept) = max.checked_sub(1) else { return String::new() };
    let tail: Vec<_> = within(text.chars().rev(), kept).collect();
    std::iter::once(ELLIPSIS).chain(tail.into_iter().rev()).collect()
}

/// Returns the first characters that have at most `max` UTF-16 units together.
fn within(characters: impl Iterator<Item = char>, max: usize) -> impl Iterator<Item = char> {
    let mut used = 0;
    characters.take_while(move |c| {
        used += c.len_utf16();
        used <= max
    })
}

/// Returns the length of a text in UTF-16 units, which is how most services count characters. Never less than the
/// number of characters.
pub(crate) fn utf16_len(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Returns an HTTP URL in which all characters that could be markup are percent-encoded; `None` for any other text.
pub(crate) fn url(text: &str) -> Option<String> {
    const KEPT: &[u8] = b"-._~:/?#@!$&+,;=%";
    let text = text.trim();
    let lower = text.get(..8).unwrap_or(text).to_ascii_lowercase();
    let rest = ["https://", "http://"]
        .iter()
        .find_map(|scheme| lower.starts_with(scheme).then(|| text.get(scheme.len()..).unwrap_or_default()))?;
    if rest.is_empty() || text.chars().any(is_unsafe) {
        return None;
    }
    let encoded: String = text
        .bytes()
        .map(|b| match b {
            _ if b.is_ascii_alphanumeric() || KEPT.contains(&b) => char::from(b).to_string(),
            _ => format!("%{b:02X}"),
        })
        .collect();
    (encoded.len() <= URL_BYTES_MAX).then_some(encoded)
}

/// Escapes text for HTML and XML, in elements and in quoted attributes.
pub(crate) fn html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// Returns the text with a zero-width space in everything that services turn into a link, a tag or a mention: `](`,
/// `<a`, `://`, `@name`. An e-mail address and a time stay as they are.
pub(crate) fn inert(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    let mut previous = ' ';
    while let Some(c) = characters.next() {
        kept.push(c);
        let next = characters.peek().copied().unwrap_or(' ');
        let is_markup = match c {
            ']' => matches!(next, '(' | '[' | ':'),
            '<' => !next.is_whitespace(),
            ':' => next == '/',
            '@' => !previous.is_alphanumeric() && !next.is_whitespace(),
            _ => false,
        };
        if is_markup {
            kept.push(ZERO_WIDTH_SPACE);
        }
        previous = c;
    }
    kept
}

/// Returns the text without a run of backticks, so that it cannot close the code block around it.
pub(crate) fn unfenced(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '`' && kept.ends_with('`') {
            kept.push(ZERO_WIDTH_SPACE);
        }
        kept.push(c);
    }
    kept
}

/// Returns the text without backticks, so that it cannot close the inline code around it.
pub(crate) fn without_backticks(text: &str) -> String {
    text.replace('`', "'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_control_characters_and_no_changes_of_direction() {
        assert_eq!(line("a\r\nb\t c\u{0}d\u{202e}e", 100), "a b c d e");
        assert_eq!(line("\u{1b}[31mred\u{1b}[0m text", 100), "red text");
    }

    #[test]
    fn a_block_keeps_its_lines() {
        assert_eq!(block("\n\n a\r\n\tb  \n\u{1b}[1;32mc\u{1b}[0m\n"), " a\n    b\nc");
    }

    #[test]
    fn a_cut_is_at_a_character_and_counts_the_ellipsis() {
        assert_eq!(cut("失败失败", 3), "失败…");
        assert_eq!(cut("失败", 2), "失败");
        assert_eq!(cut("🔥🔥", 3), "🔥…");
        assert_eq!(cut("ab", 0), "");
        assert_eq!(cut_start("失败了", 2), "…了");
        assert_eq!(cut_start("ab", 0), "");
    }

    #[test]
    fn only_http_urls_are_links_and_their_markup_is_encoded() {
        assert_eq!(url("https://a.example/x?y=1#z").as_deref(), Some("https://a.example/x?y=1#z"));
        assert_eq!(
            url("https://a.example/)[x](<\"'|`\\ é").as_deref(),
            Some("https://a.example/%29%5Bx%5D%28%3C%22%27%7C%60%5C%20%C3%A9")
        );
        for text in ["javascript:alert(1)", "data:text/html,x", "//a.example", "https://", "https://a\nb", ""]
        {
            assert_eq!(url(text), None, "{text}");
        }
        assert_eq!(url(&format!("https://a.example/{}", "x".repeat(2_000))), None);
    }

    #[test]
    fn inert_text_has_no_link_tag_or_mention() {
        let shown = inert("[a](https://b) <font> <@x> @all ![i](j) [r]: k");
        for markup in ["](", "://", "<f", "<@", "@a", "]:"] {
            assert!(!shown.contains(markup), "{markup} in {shown}");
        }
        let plain = "at 14:03:00 a@b.example wrote x[1] < 3";
        assert_eq!(inert(plain), plain);
    }

    #[test]
    fn a_block_has_no_run_of_backticks() {
        assert!(!unfenced("a````b```").contains("``"));
        assert_eq!(unfenced("a`b`c"), "a`b`c");
    }
}
