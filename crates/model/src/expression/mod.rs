//! Conditions and references: a small, pure part of CEL (the Common Expression Language).
//!
//! `when: steps.load.output.rows > 0 && params.region in ["eu", "cn"]`. An expression is parsed once,
//! its names and types are checked against what it may speak of ([`Expression::check`]), and it is
//! evaluated over JSON values ([`Expression::evaluate`]). There is no way to loop but over a list that
//! is there, no clock, no randomness, and no order that is not the order of the text.
//!
//! Literals, lists, `{key: value}`; `?:`, `||`, `&&`, `!`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `+`, `-`,
//! `*`, `/`, `%`; fields and indices; `has(a.b)`, `size(x)`, `string(x)`, `int(x)`, `double(x)`,
//! `lists.range(n)`; on texts `contains`, `startsWith`, `endsWith`, `lowerAscii`, `upperAscii`, `trim`,
//! `split`; on lists `join`, and the macros `all`, `exists`, `filter`, `map`. It differs from CEL in two
//! points: integers and doubles mix (JSON does not tell them apart), and `&&` and `||` look at their left
//! side first.
//!
//! # Always true
//! - Evaluating ends: every visited node and every piece of what it builds costs fuel, and there are
//!   [`FUEL`] units of it.
//! - An expression is at most [`limits::EXPRESSION_BYTES_MAX`] long and [`DEPTH_MAX`] deep.
//! - What was checked fails for few reasons: a field that is not in a value whose shape nobody
//!   declared, a division by zero, a number out of range, or the fuel.

mod check;
mod evaluate;
mod lexer;
mod parser;

use serde_json::Value;

pub use check::{Names, Type};
pub use evaluate::{EvaluationError, Scope, shown};

use crate::limits;

/// How deep an expression nests.
pub const DEPTH_MAX: usize = 32;
/// How deep its tree may be, in which a row of operators nests too.
const TREE_DEPTH_MAX: usize = 128;
/// What one evaluation may cost: visited nodes, and bytes and entries that it builds.
pub const FUEL: u64 = 1_000_000;

/// An expression that was parsed.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    text: Box<str>,
    root: Node,
}

/// What is wrong with the text of an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} at column {column}")]
pub struct ExpressionError {
    /// Where, counted in characters from 1.
    pub column: usize,
    /// What was found and what was expected.
    pub message: String,
}

/// A part of an expression, and where it begins in the text.
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
    /// Whether a field is there.
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

/// A function; what it is called on is its first argument.
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
    /// Reads an expression.
    ///
    /// # Errors
    /// Where the text stops making sense, and what was expected there.
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

    /// The text that it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Checks names and types, and says what the expression gives.
    ///
    /// # Errors
    /// The first name that `names` does not have, or operation that its types do not allow.
    pub fn check(&self, names: &dyn Names) -> Result<Type, ExpressionError> {
        check::check(&self.root, names).map_err(|error| self.in_characters(error))
    }

    /// Evaluates it over the values of `scope`.
    ///
    /// # Errors
    /// One sentence about what could not be evaluated, such as a missing field.
    pub fn evaluate(&self, scope: &dyn Scope) -> Result<Value, EvaluationError> {
        evaluate::evaluate(&self.root, scope)
    }

    /// The names that it speaks of, with the fields selected from each; a name may come twice.
    pub fn paths(&self) -> Vec<&[String]> {
        let mut found = Vec::new();
        self.root.visit(&mut |node| {
            if let Kind::Path(path) = &node.kind {
                found.push(path.as_slice());
            }
        });
        found
    }

    /// Errors are found at bytes and told in characters.
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
