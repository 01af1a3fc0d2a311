//! Content lines of iCalendar text: unfolded lines with a name, parameters and a value (RFC 5545, 3.1).

/// Unfolded content line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Property {
    /// Number of its first line, from 1.
    pub(super) line: usize,
    /// Name, in upper case.
    pub(super) name: String,
    /// Names in upper case, and values without quotes.
    parameters: Vec<(String, String)>,
    pub(super) value: String,
}

impl Property {
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns an unescaped text value (RFC 5545, 3.3.11), without control characters, cut to 80 characters.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut chars = self.value.chars().take(200);
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some('n' | 'N') => text.push(' '),
                    Some(escaped) => text.push(escaped),
                    None => {}
                },
                c if c.is_control() => {}
                c => text.push(c),
            }
        }
        text.chars().take(80).collect()
    }
}

/// Returns the content lines of a text, in order. Omits lines without a colon.
///
/// Lines end with CRLF or LF. A line that starts with a space or a tab continues the previous line.
pub(super) fn properties(text: &str) -> impl Iterator<Item = Property> {
    let mut lines = text.lines().enumerate().peekable();
    std::iter::from_fn(move || {
        loop {
            let (number, first) = lines.next()?;
            let mut unfolded = first.to_owned();
            while let Some((_, more)) = lines.next_if(|(_, line)| line.starts_with([' ', '\t'])) {
                unfolded.push_str(&more[1..]);
            }
            if let Some(property) = property(number + 1, &unfolded) {
                return Some(property);
            }
        }
    })
}

fn property(line: usize, text: &str) -> Option<Property> {
    let (head, value) = split_outside_quotes(text, ':')?;
    let (name, mut rest) = match split_outside_quotes(head, ';') {
        Some((name, rest)) => (name, Some(rest)),
        None => (head, None),
    };
    let mut parameters = Vec::new();
    while let Some(text) = rest {
        let (one, more) = match split_outside_quotes(text, ';') {
            Some((one, more)) => (one, Some(more)),
            None => (text, None),
        };
        let (name, value) = one.split_once('=').unwrap_or((one, ""));
        parameters.push((name.trim().to_ascii_uppercase(), value.trim().trim_matches('"').to_owned()));
        rest = more;
    }
    let name = name.trim().trim_start_matches('\u{feff}').to_ascii_uppercase();
    Some(Property { line, name, parameters, value: value.trim().to_owned() })
}

fn split_outside_quotes(text: &str, at: char) -> Option<(&str, &str)> {
    let mut quoted = false;
    let (index, _) = text.char_indices().find(|(_, c)| {
        quoted ^= *c == '"';
        *c == at && !quoted
    })?;
    Some((&text[..index], &text[index + at.len_utf8()..]))
}
