//! Evaluation of syntax trees over JSON values.
//!
//! [`evaluate`] visits each node of the tree. A [`Scope`] returns the values of names. Errors are one sentence without
//! a position, because they depend on the values.
//!
//! # Invariants
//! - An evaluation ends: visited nodes and copied values cost fuel, at most [`FUEL`] units.
//! - The result depends only on the tree and the values.

use serde_json::{Map, Number, Value};

use super::{FUEL, Function, Kind, Macro, Node, Operator};

/// Reason why an expression cannot be evaluated, as one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EvaluationError(pub Box<str>);

/// Source of the values of names.
pub trait Scope {
    /// Returns the value of the longest known prefix of `path`, and the number of its parts. The other parts are
    /// fields of the value.
    ///
    /// # Errors
    /// Returns the reason why there is no value, or no value yet.
    fn value(&self, path: &[String]) -> Result<(Value, usize), EvaluationError>;
}

type Found = Result<Value, EvaluationError>;

fn fail<T>(message: impl Into<Box<str>>) -> Result<T, EvaluationError> {
    Err(EvaluationError(message.into()))
}

struct Evaluation<'a> {
    scope: &'a dyn Scope,
    variables: Vec<(&'a str, Value)>,
    fuel: u64,
}

pub(super) fn evaluate(root: &Node, scope: &dyn Scope) -> Found {
    Evaluation { scope, variables: Vec::new(), fuel: FUEL }.node(root)
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

impl<'a> Evaluation<'a> {
    fn burn(&mut self, units: usize) -> Result<(), EvaluationError> {
        match self.fuel.checked_sub(u64::try_from(units).unwrap_or(u64::MAX)) {
            Some(left) => {
                self.fuel = left;
                Ok(())
            }
            None => fail(format!("the evaluation exceeds the cost limit of {FUEL} units")),
        }
    }

    fn node(&mut self, node: &'a Node) -> Found {
        self.burn(1)?;
        match &node.kind {
            Kind::Literal(value) => Ok(value.clone()),
            Kind::List(nodes) => {
                nodes.iter().map(|node| self.node(node)).collect::<Result<_, _>>().map(Value::Array)
            }
            Kind::Map(entries) => {
                let mut map = Map::new();
                for (key, value) in entries {
                    let key = self.text(key)?;
                    map.insert(key, self.node(value)?);
                }
                Ok(Value::Object(map))
            }
            Kind::Path(path) => self.path(path),
            Kind::Field(inner, field) => {
                let inner = self.node(inner)?;
                select(inner, field)
            }
            Kind::Index(inner, index) => self.index(inner, index),
            Kind::Not(inner) => Ok(Value::Bool(!self.bool(inner)?)),
            Kind::Negate(inner) => {
                let number = self.number(inner)?;
                arithmetic(Operator::Subtract, &Number::from(0), &number)
            }
            Kind::Binary(operator, left, right) => self.binary(*operator, left, right),
            Kind::Choice(condition, then, other) => {
                if self.bool(condition)? {
                    self.node(then)
                } else {
                    self.node(other)
                }
            }
            Kind::Has(inner) => self.has(inner),
            Kind::Call(function, arguments) => self.call(*function, arguments),
            Kind::Each(each, list, variable, body) => self.each(*each, list, variable, body),
        }
    }

    fn bool(&mut self, node: &'a Node) -> Result<bool, EvaluationError> {
        match self.node(node)? {
            Value::Bool(value) => Ok(value),
            other => fail(format!("expected a boolean but got {}", kind_of(&other))),
        }
    }

    fn number(&mut self, node: &'a Node) -> Result<Number, EvaluationError> {
        match self.node(node)? {
            Value::Number(number) => Ok(number),
            other => fail(format!("expected a number but got {}", kind_of(&other))),
        }
    }

    fn text(&mut self, node: &'a Node) -> Result<String, EvaluationError> {
        match self.node(node)? {
            Value::String(text) => Ok(text),
            other => fail(format!("expected a string but got {}", kind_of(&other))),
        }
    }

    fn list(&mut self, node: &'a Node) -> Result<Vec<Value>, EvaluationError> {
        match self.node(node)? {
            Value::Array(list) => Ok(list),
            other => fail(format!("expected a list but got {}", kind_of(&other))),
        }
    }

    fn path(&mut self, path: &[String]) -> Found {
        let variable = self.variables.iter().rev().find(|(name, _)| path.first().is_some_and(|p| p == name));
        let (value, used) = match variable {
            Some((_, value)) => (value.clone(), 1),
            None => self.scope.value(path)?,
        };
        self.burn(weight(&value))?;
        path.iter().skip(used).try_fold(value, |value, field| select(value, field))
    }

    fn has(&mut self, inner: &'a Node) -> Found {
        let (target, field) = match &inner.kind {
            Kind::Field(target, field) => (self.node(target)?, field),
            Kind::Path(path) => match path.split_last() {
                Some((field, rest)) if !rest.is_empty() => match self.path(rest) {
                    Ok(target) => (target, field),
                    // Some names exist only as a complete path.
                    Err(_) => return Ok(Value::Bool(self.path(path).is_ok())),
                },
                _ => return Ok(Value::Bool(false)),
            },
            _ => return Ok(Value::Bool(false)),
        };
        Ok(Value::Bool(target.as_object().is_some_and(|map| map.contains_key(field))))
    }

    fn index(&mut self, inner: &'a Node, index: &'a Node) -> Found {
        match (self.node(inner)?, self.node(index)?) {
            (Value::Array(mut list), Value::Number(at)) => {
                let place = at.as_u64().and_then(|at| usize::try_from(at).ok()).filter(|at| *at < list.len());
                match place {
                    Some(place) => Ok(list.swap_remove(place)),
                    None => fail(format!("index {at} is out of range: the list has {} elements", list.len())),
                }
            }
            (map @ Value::Object(_), Value::String(field)) => select(map, &field),
            (inner, index) => fail(format!("cannot index {} with {}", kind_of(&inner), kind_of(&index))),
        }
    }

    fn binary(&mut self, operator: Operator, left: &'a Node, right: &'a Node) -> Found {
        match operator {
            Operator::Or => return Ok(Value::Bool(self.bool(left)? || self.bool(right)?)),
            Operator::And => return Ok(Value::Bool(self.bool(left)? && self.bool(right)?)),
            _ => {}
        }
        let (a, b) = (self.node(left)?, self.node(right)?);
        match operator {
            Operator::Equal => Ok(Value::Bool(equals(&a, &b))),
            Operator::Unequal => Ok(Value::Bool(!equals(&a, &b))),
            Operator::In => match &b {
                Value::Array(list) => {
                    self.burn(list.len())?;
                    Ok(Value::Bool(list.iter().any(|value| equals(value, &a))))
                }
                Value::Object(map) => Ok(Value::Bool(a.as_str().is_some_and(|key| map.contains_key(key)))),
                other => fail(format!("expected a list or a map but got {}", kind_of(other))),
            },
            Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
                compare(operator, &a, &b)
            }
            Operator::Add => self.add(a, b),
            _ => match (&a, &b) {
                (Value::Number(a), Value::Number(b)) => arithmetic(operator, a, b),
                _ => fail(format!("cannot calculate with {} and {}", kind_of(&a), kind_of(&b))),
            },
        }
    }

    fn add(&mut self, a: Value, b: Value) -> Found {
        match (a, b) {
            (Value::Number(a), Value::Number(b)) => arithmetic(Operator::Add, &a, &b),
            (Value::String(mut a), Value::String(b)) => {
                self.burn(a.len() + b.len())?;
                a.push_str(&b);
                Ok(Value::String(a))
            }
            (Value::Array(mut a), Value::Array(b)) => {
                a.extend(b);
                let value = Value::Array(a);
                self.burn(weight(&value))?;
                Ok(value)
            }
            (a, b) => fail(format!("cannot add {} and {}", kind_of(&a), kind_of(&b))),
        }
    }

    fn call(&mut self, function: Function, arguments: &'a [Node]) -> Found {
        let [first, rest @ ..] = arguments else { return Ok(Value::Null) };
        match function {
            Function::Size => match self.node(first)? {
                Value::String(text) => Ok(Value::from(text.chars().count())),
                Value::Array(list) => Ok(Value::from(list.len())),
                Value::Object(map) => Ok(Value::from(map.len())),
                other => fail(format!("expected a string, a list or a map but got {}", kind_of(&other))),
            },
            Function::Text => self.node(first).map(|value| Value::String(shown(&value))),
            Function::Int => to_int(&self.node(first)?),
            Function::Double => to_double(&self.node(first)?),
            Function::Range => {
                let count = self.number(first)?.as_u64().unwrap_or(0);
                self.burn(usize::try_from(count.saturating_mul(8)).unwrap_or(usize::MAX))?;
                Ok((0..count).map(Value::from).collect())
            }
            Function::Contains | Function::StartsWith | Function::EndsWith => {
                let (text, part) = (self.text(first)?, self.text(&rest[0])?);
                self.burn(text.len())?;
                Ok(Value::Bool(match function {
                    Function::Contains => text.contains(&part),
                    Function::StartsWith => text.starts_with(&part),
                    _ => text.ends_with(&part),
                }))
            }
            Function::Lower => self.text(first).map(|text| Value::String(text.to_ascii_lowercase())),
            Function::Upper => self.text(first).map(|text| Value::String(text.to_ascii_uppercase())),
            Function::Trim => self.text(first).map(|text| Value::String(text.trim().to_owned())),
            Function::Split => {
                let (text, by) = (self.text(first)?, self.text(&rest[0])?);
                self.burn(text.len().saturating_mul(4))?;
                Ok(text.split(by.as_str()).map(Value::from).collect())
            }
            Function::Join => {
                let (list, by) = (self.list(first)?, self.text(&rest[0])?);
                let parts: Vec<_> = list.iter().map(shown).collect();
                self.burn(parts.iter().map(|part| part.len() + by.len()).sum())?;
                Ok(Value::String(parts.join(&by)))
            }
        }
    }

    fn each(&mut self, each: Macro, list: &'a Node, variable: &'a str, body: &'a Node) -> Found {
        let mut gives = Vec::new();
        for element in self.list(list)? {
            self.variables.push((variable, element));
            let found = if each == Macro::Map { self.node(body) } else { self.bool(body).map(Value::Bool) };
            let Some((_, element)) = self.variables.pop() else { break };
            match (each, found?) {
                (Macro::All, Value::Bool(false)) => return Ok(Value::Bool(false)),
                (Macro::Exists, Value::Bool(true)) => return Ok(Value::Bool(true)),
                (Macro::Filter, Value::Bool(true)) => gives.push(element),
                (Macro::Map, value) => {
                    self.burn(weight(&value))?;
                    gives.push(value);
                }
                _ => {}
            }
        }
        Ok(match each {
            Macro::All => Value::Bool(true),
            Macro::Exists => Value::Bool(false),
            Macro::Filter | Macro::Map => Value::Array(gives),
        })
    }
}

/// Returns the approximate cost of a copy of a value.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() / 8 + 1,
        Value::Array(list) => list.iter().map(weight).sum::<usize>() + 1,
        Value::Object(map) => map.values().map(|value| weight(value) + 1).sum::<usize>() + 1,
        _ => 1,
    }
}

fn select(value: Value, field: &str) -> Found {
    match value {
        Value::Object(mut map) => match map.remove(field) {
            Some(value) => Ok(value),
            None => fail(format!("there is no field `{field}`")),
        },
        other => fail(format!("{} has no field `{field}`", kind_of(&other))),
    }
}

/// JSON equality, except that `1` equals `1.0`.
fn equals(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn compare(operator: Operator, a: &Value, b: &Value) -> Found {
    let order = match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b)),
        },
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    };
    let Some(order) = order else {
        return fail(format!("cannot compare {} with {}", kind_of(a), kind_of(b)));
    };
    Ok(Value::Bool(match operator {
        Operator::Less => order.is_lt(),
        Operator::LessOrEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        _ => order.is_ge(),
    }))
}

fn arithmetic(operator: Operator, a: &Number, b: &Number) -> Found {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        if b == 0 && matches!(operator, Operator::Divide | Operator::Remainder) {
            return fail("division by zero");
        }
        let result = match operator {
            Operator::Add => a.checked_add(b),
            Operator::Subtract => a.checked_sub(b),
            Operator::Multiply => a.checked_mul(b),
            Operator::Divide => a.checked_div(b),
            _ => a.checked_rem(b),
        };
        return match result {
            Some(number) => Ok(Value::from(number)),
            None => fail("the number is out of range"),
        };
    }
    let (Some(a), Some(b)) = (a.as_f64(), b.as_f64()) else { return fail("the number is out of range") };
    let result = match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide => a / b,
        _ => a % b,
    };
    double(result)
}

fn double(number: f64) -> Found {
    Number::from_f64(number)
        .map_or_else(|| fail("the number is out of range"), |number| Ok(Value::Number(number)))
}

fn to_int(value: &Value) -> Found {
    let found = match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            let whole = number.as_f64()?.trunc();
            #[expect(clippy::cast_possible_truncation, reason = "its range is checked")]
            (whole.abs() < 9e18).then_some(whole as i64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    found.map_or_else(
        || fail(format!("cannot convert {} to an integer", kind_of(value))),
        |number| Ok(Value::from(number)),
    )
}

fn to_double(value: &Value) -> Found {
    let found = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    found.map_or_else(|| fail(format!("cannot convert {} to a number", kind_of(value))), double)
}

/// Returns a value as text: a string without quotes, `null` as the empty string, any other value as compact JSON.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
