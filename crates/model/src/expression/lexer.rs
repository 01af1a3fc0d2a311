//! Splits an expression into tokens.

use super::ExpressionError;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Name(String),
    Int(i64),
    Double(f64),
    Text(String),
    /// Operator or bracket.
    Sign(&'static str),
    End,
}

impl Token {
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Name(name) => format!("`{name}`"),
            Self::Int(number) => format!("`{number}`"),
            Self::Double(number) => format!("`{number}`"),
            Self::Text(_) => "a string".into(),
            Self::Sign(sign) => format!("`{sign}`"),
            Self::End => "the end".into(),
        }
    }
}

/// Longer signs come before their prefixes.
const SIGNS: [&str; 24] = [
    "||", "&&", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}",
];

/// Returns the tokens of a text, each with its byte position; the last one is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ExpressionError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (token, len) = token(&text[at..], first)
            .map_err(|message| ExpressionError { column: super::column_of(text, at), message })?;
        tokens.push((at, token));
        at += len;
    }
    tokens.push((text.len(), Token::End));
    Ok(tokens)
}

/// Returns the token at the start of a text, and its length in bytes.
fn token(rest: &str, first: char) -> Result<(Token, usize), String> {
    if first.is_ascii_alphabetic() || first == '_' {
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        return Ok((Token::Name(rest[..len].to_owned()), len));
    }
    if first.is_ascii_digit() {
        return number(rest);
    }
    if matches!(first, '"' | '\'') {
        return text_literal(rest, first);
    }
    match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
        Some(sign) => Ok((Token::Sign(sign), sign.len())),
        None if first == '=' => Err("`=` is not an operator: did you mean `==`?".into()),
        None => Err(format!("unexpected character `{}`", first.escape_default())),
    }
}

fn number(rest: &str) -> Result<(Token, usize), String> {
    let digits = |from: usize| {
        rest[from..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |found| from + found)
    };
    let mut end = digits(0);
    let mut is_int = true;
    if rest[end..].starts_with('.') && rest[end + 1..].starts_with(|c: char| c.is_ascii_digit()) {
        is_int = false;
        end = digits(end + 1);
    }
    if rest[end..].starts_with(['e', 'E']) {
        let sign = usize::from(rest[end + 1..].starts_with(['+', '-']));
        if rest[end + 1 + sign..].starts_with(|c: char| c.is_ascii_digit()) {
            is_int = false;
            end = digits(end + 1 + sign);
        }
    }
    let text = &rest[..end];
    let token = if is_int {
        text.parse().map(Token::Int).map_err(|_| format!("`{text}` is too large"))?
    } else {
        let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
        if !number.is_finite() {
            return Err(format!("`{text}` is too large"));
        }
        Token::Double(number)
    };
    Ok((token, end))
}

fn text_literal(rest: &str, quote: char) -> Result<(Token, usize), String> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Ok((Token::Text(text), at + 1)),
            '\\' => text.push(match chars.next().map(|(_, c)| c) {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(c @ ('\\' | '"' | '\'')) => c,
                _ => {
                    return Err(
                        "the string has an unknown escape sequence: expected \\n, \\t, \\r, \\\\ or a quote"
                            .into(),
                    );
                }
            }),
            c => text.push(c),
        }
    }
    Err("the string is not closed: expected a quote".into())
}
