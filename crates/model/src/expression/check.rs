//! Static check of the names and types of an expression.
//!
//! [`check`] computes the type of each node. [`Names`] returns the types of the names that an expression can refer to.
//! A value of an unknown type ([`Type::Any`]) is allowed everywhere; its type is checked during the evaluation.
//!
//! The validation of workflows and triggers uses this check, so that users see errors at submission.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::{ExpressionError, Function, Kind, Macro, Node, Operator};

/// Static type of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// Unknown: JSON that is supplied at run time.
    Any,
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// Integer or double.
    Number,
    /// String.
    Text,
    /// List with elements of this type.
    List(Box<Type>),
    /// Map with unknown fields.
    Map,
    /// Map with exactly these fields.
    Fields(BTreeMap<String, Type>),
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any value",
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::Text => "a string",
            Self::List(_) => "a list",
            Self::Map | Self::Fields(_) => "a map",
        })
    }
}

impl Type {
    /// Returns whether a value of this type can be a value of the other type.
    pub fn is_compatible_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::List(a), Self::List(b)) => a.is_compatible_with(b),
            (Self::Map | Self::Fields(_), Self::Map | Self::Fields(_)) => true,
            _ => self == other,
        }
    }

    fn or(self, other: Self) -> Self {
        if self == other { self } else { Self::Any }
    }

    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Bool,
            Value::Number(_) => Self::Number,
            Value::String(_) => Self::Text,
            Value::Array(_) => Self::List(Box::new(Self::Any)),
            Value::Object(_) => Self::Map,
        }
    }
}

/// Names that an expression can refer to.
pub trait Names {
    /// Returns the type of a path: a name and the fields that are selected from it.
    ///
    /// # Errors
    /// Returns one sentence if the name is unknown, or not allowed at the location of the expression.
    fn type_of(&self, path: &[String]) -> Result<Type, String>;
}

struct Check<'a> {
    names: &'a dyn Names,
    /// Variables of the enclosing macros, innermost last.
    variables: Vec<(&'a str, Type)>,
}

pub(super) fn check(root: &Node, names: &dyn Names) -> Result<Type, ExpressionError> {
    Check { names, variables: Vec::new() }.node(root)
}

fn error<T>(node: &Node, message: impl Into<String>) -> Result<T, ExpressionError> {
    Err(ExpressionError { column: node.at, message: message.into() })
}

impl<'a> Check<'a> {
    fn node(&mut self, node: &'a Node) -> Result<Type, ExpressionError> {
        match &node.kind {
            Kind::Literal(value) => Ok(Type::of(value)),
            Kind::List(nodes) => {
                let mut element = None;
                for node in nodes {
                    let found = self.node(node)?;
                    element = Some(element.map_or(found.clone(), |known: Type| known.or(found)));
                }
                Ok(Type::List(Box::new(element.unwrap_or(Type::Any))))
            }
            Kind::Map(entries) => {
                for (key, value) in entries {
                    self.expect(key, &Type::Text)?;
                    self.node(value)?;
                }
                Ok(Type::Map)
            }
            Kind::Path(path) => self.path(node, path),
            Kind::Field(inner, field) => {
                let inner = self.node(inner)?;
                field_of(node, &inner, field)
            }
            Kind::Index(inner, index) => self.index(inner, index),
            Kind::Not(inner) => self.expect(inner, &Type::Bool),
            Kind::Negate(inner) => self.expect(inner, &Type::Number),
            Kind::Binary(operator, left, right) => self.binary(node, *operator, left, right),
            Kind::Choice(condition, then, other) => {
                self.expect(condition, &Type::Bool)?;
                Ok(self.node(then)?.or(self.node(other)?))
            }
            Kind::Has(inner) => self.has(inner),
            Kind::Call(function, arguments) => self.call(*function, arguments),
            Kind::Each(each, list, variable, body) => self.each(*each, list, variable, body),
        }
    }

    fn expect(&mut self, node: &'a Node, expected: &Type) -> Result<Type, ExpressionError> {
        let found = self.node(node)?;
        if found.is_compatible_with(expected) {
            return Ok(expected.clone());
        }
        error(node, format!("expected {expected} but got {found}"))
    }

    fn path(&mut self, node: &Node, path: &[String]) -> Result<Type, ExpressionError> {
        let Some((root, fields)) = path.split_first() else { return Ok(Type::Any) };
        let variable = self.variables.iter().rev().find(|(name, _)| name == root);
        let Some((_, known)) = variable else {
            return self.names.type_of(path).or_else(|message| error(node, message));
        };
        fields.iter().try_fold(known.clone(), |inner, field| field_of(node, &inner, field))
    }

    /// The argument of `has` may be an undeclared field.
    fn has(&mut self, inner: &'a Node) -> Result<Type, ExpressionError> {
        match &inner.kind {
            Kind::Field(target, _) => self.node(target)?,
            Kind::Path(path) if path.len() > 1 => self.path(inner, &path[..path.len() - 1])?,
            _ => self.node(inner)?,
        };
        Ok(Type::Bool)
    }

    fn index(&mut self, inner: &'a Node, index: &'a Node) -> Result<Type, ExpressionError> {
        match self.node(inner)? {
            Type::List(element) => {
                self.expect(index, &Type::Number)?;
                Ok(*element)
            }
            Type::Map | Type::Fields(_) => {
                self.expect(index, &Type::Text)?;
                Ok(Type::Any)
            }
            Type::Any => {
                self.node(index)?;
                Ok(Type::Any)
            }
            other => error(index, format!("cannot index {other}: expected a list or a map")),
        }
    }

    fn binary(
        &mut self,
        node: &Node,
        operator: Operator,
        left: &'a Node,
        right: &'a Node,
    ) -> Result<Type, ExpressionError> {
        use Operator::{
            Add, And, Divide, Equal, Greater, GreaterOrEqual, In, Less, LessOrEqual, Multiply, Or, Remainder,
            Subtract, Unequal,
        };
        match operator {
            Or | And => {
                self.expect(left, &Type::Bool)?;
                self.expect(right, &Type::Bool)
            }
            Subtract | Multiply | Divide | Remainder => {
                self.expect(left, &Type::Number)?;
                self.expect(right, &Type::Number)
            }
            Equal | Unequal => {
                let (a, b) = (self.node(left)?, self.node(right)?);
                if a.is_compatible_with(&b) || a == Type::Null || b == Type::Null {
                    return Ok(Type::Bool);
                }
                error(node, format!("cannot compare {a} with {b}: they are never equal"))
            }
            Less | LessOrEqual | Greater | GreaterOrEqual => {
                let (a, b) = (self.node(left)?, self.node(right)?);
                let ordered = |t: &Type| matches!(t, Type::Any | Type::Number | Type::Text);
                if ordered(&a) && ordered(&b) && a.is_compatible_with(&b) {
                    return Ok(Type::Bool);
                }
                error(node, format!("cannot compare {a} with {b}: expected two numbers or two strings"))
            }
            Add => {
                let (a, b) = (self.node(left)?, self.node(right)?);
                let adds = |t: &Type| matches!(t, Type::Any | Type::Number | Type::Text | Type::List(_));
                if !adds(&a) || !adds(&b) || !a.is_compatible_with(&b) {
                    return error(
                        node,
                        format!("cannot add {a} and {b}: expected two numbers, strings or lists"),
                    );
                }
                Ok(if a == Type::Any { b } else { a.or(b) })
            }
            In => {
                let (a, b) = (self.node(left)?, self.node(right)?);
                match b {
                    Type::Any | Type::Map | Type::Fields(_) => Ok(Type::Bool),
                    Type::List(element) if a.is_compatible_with(&element) => Ok(Type::Bool),
                    Type::List(element) => {
                        error(node, format!("`in` compares {a} with {element}: they are never equal"))
                    }
                    other => error(right, format!("expected a list or a map but got {other}")),
                }
            }
        }
    }

    fn call(&mut self, function: Function, arguments: &'a [Node]) -> Result<Type, ExpressionError> {
        let texts = Type::List(Box::new(Type::Text));
        let (expected, gives): (&[Type], Type) = match function {
            Function::Size => {
                let (Some(node), found) = (arguments.first(), self.node(&arguments[0])?) else {
                    return Ok(Type::Number);
                };
                let sized = !matches!(found, Type::Null | Type::Bool | Type::Number);
                if sized {
                    return Ok(Type::Number);
                }
                return error(node, format!("expected a string, a list or a map but got {found}"));
            }
            Function::Text => (&[Type::Any], Type::Text),
            Function::Int | Function::Double => (&[Type::Any], Type::Number),
            Function::Range => (&[Type::Number], Type::List(Box::new(Type::Number))),
            Function::Contains | Function::StartsWith | Function::EndsWith => {
                (&[Type::Text, Type::Text], Type::Bool)
            }
            Function::Lower | Function::Upper | Function::Trim => (&[Type::Text], Type::Text),
            Function::Split => (&[Type::Text, Type::Text], texts),
            Function::Join => (&[Type::List(Box::new(Type::Any)), Type::Text], Type::Text),
        };
        for (argument, expected) in arguments.iter().zip(expected) {
            self.expect(argument, expected)?;
        }
        Ok(gives)
    }

    fn each(
        &mut self,
        each: Macro,
        list: &'a Node,
        variable: &'a str,
        body: &'a Node,
    ) -> Result<Type, ExpressionError> {
        let element = match self.node(list)? {
            Type::List(element) => *element,
            Type::Any => Type::Any,
            other => return error(list, format!("expected a list but got {other}")),
        };
        self.variables.push((variable, element.clone()));
        let gives = match each {
            Macro::Map => self.node(body).map(|body| Type::List(Box::new(body))),
            Macro::Filter => self.expect(body, &Type::Bool).map(|_| Type::List(Box::new(element))),
            Macro::All | Macro::Exists => self.expect(body, &Type::Bool),
        };
        self.variables.pop();
        gives
    }
}

/// Returns the type of a field.
pub(super) fn field_type(inner: &Type, field: &str) -> Result<Type, String> {
    match inner {
        Type::Any | Type::Map => Ok(Type::Any),
        Type::Fields(fields) => fields.get(field).cloned().ok_or_else(|| {
            let known: Vec<_> = fields.keys().take(20).map(|name| format!("`{name}`")).collect();
            match known.is_empty() {
                true => format!("there is no `{field}`: no names are defined here"),
                false => format!("there is no `{field}`: expected one of {}", known.join(", ")),
            }
        }),
        other => Err(format!("{other} has no field `{field}`")),
    }
}

fn field_of(node: &Node, inner: &Type, field: &str) -> Result<Type, ExpressionError> {
    field_type(inner, field).or_else(|message| error(node, message))
}

impl Type {
    /// Returns the type of the value that the path `fields` selects from a value of this type.
    ///
    /// # Errors
    /// Returns one sentence about the first missing field.
    pub fn select(&self, fields: &[String]) -> Result<Self, String> {
        fields.iter().try_fold(self.clone(), |inner, field| field_type(&inner, field))
    }
}
