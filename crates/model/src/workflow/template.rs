//! Templates: texts with references, for example `--date=${{ params.date }}`.
//!
//! The text between `${{` and `}}` is an [expression](crate::expression). Its value replaces the reference: a string
//! without quotes, `null` as an empty text, any other value as compact JSON. The result is not parsed again: it stays
//! one argument, one variable or one text, so values need no escaping. `$${{` is a literal `${{`.

use serde_json::Value;

use crate::expression::{EvaluationError, Expression, ExpressionError, Scope, shown};

const OPEN: &str = "${{";

/// A parsed text with references.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    Reference(Expression),
}

/// Returns whether a text has a reference, or an escaped one (`$${{`).
pub fn has_reference(text: &str) -> bool {
    text.contains(OPEN)
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    /// Returns the error of the first invalid reference, with its column in the text.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(found) = rest.find(OPEN) {
            let column = |at: usize| text[..text.len() - rest.len() + at].chars().count() + 1;
            if rest[..found].ends_with('$') {
                plain.push_str(&rest[..found - 1]);
                plain.push_str(OPEN);
                rest = &rest[found + OPEN.len()..];
                continue;
            }
            plain.push_str(&rest[..found]);
            let inner = &rest[found + OPEN.len()..];
            let Some(end) = end_of(inner) else {
                let message = "the reference is not closed: expected `}}`".into();
                return Err(ExpressionError { column: column(found), message });
            };
            let begins = column(found + OPEN.len()) - 1;
            let expression = Expression::parse(&inner[..end])
                .map_err(|error| ExpressionError { column: begins + error.column, ..error })?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Reference(expression));
            rest = &inner[end + 2..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self { pieces })
    }

    /// Returns all references of the text.
    pub fn references(&self) -> impl Iterator<Item = &Expression> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Reference(expression) => Some(expression),
            Piece::Text(_) => None,
        })
    }

    /// Returns the reference if the text consists of exactly one reference.
    pub fn only_reference(&self) -> Option<&Expression> {
        match self.pieces.as_slice() {
            [Piece::Reference(expression)] => Some(expression),
            _ => None,
        }
    }

    /// Returns whether the template can render to this text, for some values of its references.
    pub fn can_render(&self, text: &str) -> bool {
        let (mut rest, mut is_open) = (text, false);
        for (i, piece) in self.pieces.iter().enumerate() {
            let Piece::Text(plain) = piece else {
                is_open = true;
                continue;
            };
            let at = match is_open {
                false => rest.starts_with(plain.as_str()).then_some(0),
                true if i + 1 == self.pieces.len() => return rest.ends_with(plain.as_str()),
                true => rest.find(plain.as_str()),
            };
            let Some(at) = at else { return false };
            (rest, is_open) = (&rest[at + plain.len()..], false);
        }
        is_open || rest.is_empty()
    }

    /// Returns the text with all references replaced.
    ///
    /// # Errors
    /// Returns the error of the first reference that cannot be evaluated.
    pub fn render(&self, scope: &dyn Scope) -> Result<String, EvaluationError> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Reference(expression) => text.push_str(&shown(&evaluate(expression, scope)?)),
            }
        }
        Ok(text)
    }

    /// Returns the value of a template: of a text that is exactly one reference, the value with its type; otherwise
    /// the rendered text.
    ///
    /// # Errors
    /// Returns the error of the first reference that cannot be evaluated.
    pub fn value(&self, scope: &dyn Scope) -> Result<Value, EvaluationError> {
        match self.only_reference() {
            Some(expression) => evaluate(expression, scope),
            None => self.render(scope).map(Value::String),
        }
    }
}

/// Returns the value of a reference; an error names the reference.
fn evaluate(expression: &Expression, scope: &dyn Scope) -> Result<Value, EvaluationError> {
    expression.evaluate(scope).map_err(|error| {
        let reference: String = expression.text().trim().chars().take(64).collect();
        EvaluationError(format!("`{reference}`: {error}").into())
    })
}

/// Returns a JSON value in which all texts are rendered as templates.
///
/// # Errors
/// Returns the error of the first reference that is invalid or cannot be evaluated.
pub fn fill(value: &Value, scope: &dyn Scope) -> Result<Value, EvaluationError> {
    match value {
        Value::String(text) if has_reference(text) => {
            let template =
                Template::parse(text).map_err(|error| EvaluationError(error.to_string().into()))?;
            template.value(scope)
        }
        Value::Array(list) => list.iter().map(|value| fill(value, scope)).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| Ok((key.clone(), fill(value, scope)?))).collect(),
        plain => Ok(plain.clone()),
    }
}

/// Returns the position of the `}}` that ends a reference, ignoring text literals and maps in the expression.
fn end_of(inner: &str) -> Option<usize> {
    let mut depth = 0u32;
    let mut quote = None;
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => drop(chars.next()),
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '{') => depth += 1,
            (None, '}') if depth > 0 => depth -= 1,
            (None, '}') if inner[at..].starts_with("}}") => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct World;

    impl Scope for World {
        fn value(&self, path: &[String]) -> Result<(Value, usize), EvaluationError> {
            let world = json!({"n": 3, "name": "a b; rm -rf /", "list": [1, "x"], "none": null});
            let value = path.first().and_then(|name| world.get(name)).cloned();
            value.map(|value| (value, 1)).ok_or_else(|| EvaluationError("there is no such thing".into()))
        }
    }

    fn rendered(text: &str) -> String {
        Template::parse(text).unwrap().render(&World).unwrap()
    }

    #[test]
    fn a_reference_is_replaced_by_its_value_and_nothing_else_is_read() {
        assert_eq!(rendered("n=${{ n }}!"), "n=3!");
        assert_eq!(rendered("${{name}}"), "a b; rm -rf /");
        assert_eq!(rendered("${{ list }} ${{ none }}."), r#"[1,"x"] ."#);
        assert_eq!(rendered("${{ {'a': {'b': n}}.a.b }}${{ '}}' }}"), "3}}");
        assert_eq!(rendered("$${{ n }} costs $5 {}"), "${{ n }} costs $5 {}");
    }

    #[test]
    fn a_text_that_a_template_can_render_to_matches_its_plain_parts_in_order() {
        let can = |template: &str, text: &str| Template::parse(template).unwrap().can_render(text);
        for text in ["a-1-b-2-c", "a--b--c", "a-b-b--b--c"] {
            assert!(can("a-${{ n }}-b-${{ n }}-c", text), "{text}");
        }
        for text in ["a-1-b-2", "1-b-2-c", "a-b-c", "a-1-c-2-b", ""] {
            assert!(!can("a-${{ n }}-b-${{ n }}-c", text), "{text}");
        }
        assert!(can("${{ name }}", "") && can("${{ name }}", "data") && can("data", "data"));
        assert!(!can("data", "data-1") && !can("data-${{ n }}", "date-1") && !can("$${{ n }}", "3"));
    }

    #[test]
    fn a_lone_reference_keeps_the_type_of_its_value() {
        let value = json!({"count": "${{ n }}", "text": "n${{ n }}", "all": ["${{ list }}"]});
        assert_eq!(fill(&value, &World).unwrap(), json!({"count": 3, "text": "n3", "all": [[1, "x"]]}));
    }

    #[test]
    fn an_invalid_reference_is_reported_with_its_column() {
        let told = |text: &str| Template::parse(text).unwrap_err().to_string();
        insta::assert_snapshot!(told("--n=${{ n + }}"), @"expected a value but got the end at column 13");
        insta::assert_snapshot!(told("x ${{ n"), @"the reference is not closed: expected `}}` at column 3");
    }
}
