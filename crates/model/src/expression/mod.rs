//! Conditions and references: a small, pure subset of CEL (the Common Expression Language).
//!
//! Example: `when: steps.load.output.rows > 0 && params.region in ["eu", "cn"]`. An expression is parsed once.
//! [`Expression::check`] checks its names and types, and [`Expression::evaluate`] evaluates it over JSON values. The
//! only loops are over existing lists. There is no clock and no randomness, and the order of evaluation is the order
//! of the text.
//!
//! Supported are literals, lists, `{key: value}`; `?:`, `||`, `&&`, `!`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `+`,
//! `-`, `*`, `/`, `%`; fields and indexes; `has(a.b)`, `size(x)`, `string(x)`, `int(x)`, `double(x)`,
//! `lists.range(n)`; for strings `contains`, `startsWith`, `endsWith`, `lowerAscii`, `upperAscii`, `trim`, `split`;
//! for lists `join`, and the macros `all`, `exists`, `filter`, `map`. There are two differences from CEL. Integers
//! and doubles mix, because JSON does not distinguish them. `&&` and `||` evaluate their left side first.
//!
//! # Invariants
//! - An evaluation ends: every visited node and every piece of the result costs fuel, at most [`FUEL`] units.
//! - An expression has at most [`limits::EXPRESSION_BYTES_MAX`] bytes and [`DEPTH_MAX`] levels.
//! - The evaluation of a checked expression fails only for a missing field of an undeclared value, a division by
//!   zero, a number out of range, or the fuel.

mod check;
mod evaluate;
mod lexer;
mod parser;

use serde_json::Value;

pub use check::{Names, Type};
pub use evaluate::{EvaluationError, Scope, shown};

use crate::limits;

/// Maximum nesting depth of an expression.
pub const DEPTH_MAX: usize = 32;
/// Maximum depth of the syntax tree, in which chained operators nest too.
const TREE_DEPTH_MAX: usize = 128;
/// Maximum cost of one evaluation: visited nodes, and bytes and elements of the results.
pub const FUEL: u64 = 1_000_000;

/// Parsed expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    text: Box<str>,
    root: Node,
}

/// Error in the text of an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} at column {column}")]
pub struct ExpressionError {
    /// Column of the error, in characters from 1.
    pub column: usize,
    /// Found and expected syntax, name or type.
    pub message: String,
}

/// Node of the syntax tree, with its byte position in the text.
#[derive(Debug, Clone, PartialEq)]
struct Node {
    at: usize,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Literal(Value),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    /// A name and the fields that are selected from it: `steps.load.output`.
    Path(Vec<String>),
    Field(Box<Node>, String),
    Index(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Negate(Box<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
    Choice(Box<Node>, Box<Node>, Box<Node>),
    /// Whether a field exists.
    Has(Box<Node>),
    Call(Function, Vec<Node>),
    Each(Macro, Box<Node>, String, Box<Node>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// Function; the value before the dot is its first argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Size,
    Text,
    Int,
    Double,
    Range,
    Contains,
    StartsWith,
    EndsWith,
    Lower,
    Upper,
    Trim,
    Split,
    Join,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Macro {
    All,
    Exists,
    Filter,
    Map,
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// Returns the position of the first syntax error, and the expected syntax.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        if text.len() > limits::EXPRESSION_BYTES_MAX {
            let message =
                format!("has {} bytes: expected at most {}", text.len(), limits::EXPRESSION_BYTES_MAX);
            return Err(ExpressionError { column: 1, message });
        }
        let root = parser::parse(text)?;
        if root.depth() > TREE_DEPTH_MAX {
            let message = "has too many chained operators: use a list and a macro".into();
            return Err(ExpressionError { column: 1, message });
        }
        Ok(Self { root, text: text.into() })
    }

    /// Returns the source text of the expression.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Checks names and types. Returns the type of the result.
    ///
    /// # Errors
    /// Returns the first unknown name, or the first operation with invalid types.
    pub fn check(&self, names: &dyn Names) -> Result<Type, ExpressionError> {
        check::check(&self.root, names).map_err(|error| self.in_characters(error))
    }

    /// Evaluates the expression over the values of `scope`.
    ///
    /// # Errors
    /// Returns one sentence about the part that cannot be evaluated, such as a missing field.
    pub fn evaluate(&self, scope: &dyn Scope) -> Result<Value, EvaluationError> {
        evaluate::evaluate(&self.root, scope)
    }

    /// Returns the names in the expression, each with its selected fields; a name may occur twice.
    pub fn paths(&self) -> Vec<&[String]> {
        let mut found = Vec::new();
        self.root.visit(&mut |node| {
            if let Kind::Path(path) = &node.kind {
                found.push(path.as_slice());
            }
        });
        found
    }

    /// Converts the position of an error from bytes to characters.
    fn in_characters(&self, mut error: ExpressionError) -> ExpressionError {
        error.column = column_of(&self.text, error.column);
        error
    }
}

fn column_of(text: &str, byte: usize) -> usize {
    text.char_indices().take_while(|(at, _)| *at < byte).count() + 1
}

impl Node {
    fn depth(&self) -> usize {
        let mut deepest = 0;
        self.children(&mut |child| deepest = deepest.max(child.depth()));
        deepest + 1
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Self)) {
        see(self);
        self.children(&mut |child| child.visit(see));
    }

    fn children<'a>(&'a self, see: &mut dyn FnMut(&'a Self)) {
        match &self.kind {
            Kind::Literal(_) | Kind::Path(_) => {}
            Kind::List(nodes) | Kind::Call(_, nodes) => nodes.iter().for_each(see),
            Kind::Map(entries) => entries.iter().for_each(|(key, value)| {
                see(key);
                see(value);
            }),
            Kind::Field(node, _) | Kind::Not(node) | Kind::Negate(node) | Kind::Has(node) => see(node),
            Kind::Index(a, b) | Kind::Binary(_, a, b) | Kind::Each(_, a, _, b) => {
                see(a);
                see(b);
            }
            Kind::Choice(a, b, c) => [a, b, c].into_iter().for_each(|node| see(node)),
        }
    }
}

#[cfg(test)]
mod tests;
