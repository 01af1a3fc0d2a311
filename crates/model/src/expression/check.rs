//! Names and types, checked before anything is evaluated.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::{ExpressionError, Function, Kind, Macro, Node, Operator};

/// What is known about a value before it is there.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// Nothing: JSON that somebody will hand over.
    Any,
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// An integer or a double.
    Number,
    /// A text.
    Text,
    /// A list.
    List(Box<Type>),
    /// A map whose fields nobody declared.
    Map,
    /// A map with these fields and no others.
    Fields(BTreeMap<String, Type>),
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "anything",
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::List(_) => "a list",
            Self::Map | Self::Fields(_) => "a map",
        })
    }
}

impl Type {
    /// Whether a value of this type may be one of the other.
    pub fn may_be(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::List(a), Self::List(b)) => a.may_be(b),
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

/// What an expression may speak of.
pub trait Names {
    /// The type of a name.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence: it is unknown, or may not be spoken of here. `path` holds
    /// the name and the fields that are selected from it.
    fn type_of(&self, path: &[String]) -> Result<Type, String>;
}

struct Check<'a> {
    names: &'a dyn Names,
    /// The variables of the macros around, innermost last.
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
        if found.may_be(expected) {
            return Ok(expected.clone());
        }
        error(node, format!("found {found}, expected {expected}"))
    }

    fn path(&mut self, node: &Node, path: &[String]) -> Result<Type, ExpressionError> {
        let Some((root, fields)) = path.split_first() else { return Ok(Type::Any) };
        let variable = self.variables.iter().rev().find(|(name, _)| name == root);
        let Some((_, known)) = variable else {
            return self.names.type_of(path).or_else(|message| error(node, message));
        };
        fields.iter().try_fold(known.clone(), |inner, field| field_of(node, &inner, field))
    }

    /// Asking for a field that nobody declared is the point of `has`.
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
            other => error(index, format!("{other} has no elements")),
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
                if a.may_be(&b) || a == Type::Null || b == Type::Null {
                    return Ok(Type::Bool);
                }
                error(node, format!("{a} never equals {b}"))
            }
            Less | LessOrEqual | Greater | GreaterOrEqual => {
                let (a, b) = (self.node(left)?, self.node(right)?);
                let ordered = |t: &Type| matches!(t, Type::Any | Type::Number | Type::Text);
                if ordered(&a) && ordered(&b) && a.may_be(&b) {
                    return Ok(Type::Bool);
                }
                error(node, format!("{a} cannot be compared with {b}: expected two numbers or two texts"))
            }
            Add => {
                let (a, b) = (self.node(left)?, self.node(right)?);
                let adds = |t: &Type| matches!(t, Type::Any | Type::Number | Type::Text | Type::List(_));
                if !adds(&a) || !adds(&b) || !a.may_be(&b) {
                    return error(
                        node,
                        format!("{a} and {b} cannot be added: expected two numbers, texts or lists"),
                    );
                }
                Ok(if a == Type::Any { b } else { a.or(b) })
            }
            In => {
                let (a, b) = (self.node(left)?, self.node(right)?);
                match b {
                    Type::Any | Type::Map | Type::Fields(_) => Ok(Type::Bool),
                    Type::List(element) if a.may_be(&element) => Ok(Type::Bool),
                    Type::List(element) => error(node, format!("{a} is never in a list of {element}")),
                    other => error(right, format!("found {other}, expected a list or a map")),
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
                return error(node, format!("{found} has no size"));
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
            other => return error(list, format!("found {other}, expected a list")),
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

/// The type of a field of a value.
pub(super) fn field_type(inner: &Type, field: &str) -> Result<Type, String> {
    match inner {
        Type::Any | Type::Map => Ok(Type::Any),
        Type::Fields(fields) => fields.get(field).cloned().ok_or_else(|| {
            let known: Vec<_> = fields.keys().take(20).map(|name| format!("`{name}`")).collect();
            match known.is_empty() {
                true => format!("there is no `{field}`: there are none"),
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
    /// The type of what the fields of a path select from a value of this type.
    ///
    /// # Errors
    /// A sentence about the first field that is not there.
    pub fn select(&self, fields: &[String]) -> Result<Self, String> {
        fields.iter().try_fold(self.clone(), |inner, field| field_type(&inner, field))
    }
}
