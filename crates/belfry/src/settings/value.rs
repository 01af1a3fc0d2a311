//! Kinds of values, and parsing of values from text and TOML.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use model::{Bytes, Duration, Millicores};
use serde::{Serialize, Serializer};

/// Kind of the value of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Path,
    Address,
    Duration,
    Bytes,
    Cpu,
    Count,
    Flag,
    /// List of texts; separated by commas in variables and flags.
    List,
    /// Map of names to texts; `a=b,c=d` in variables and flags.
    Map,
    /// Map of names to counts, in the same format.
    Counts,
    /// Range of ports, as `FIRST-LAST`.
    PortRange,
    OneOf(&'static [&'static str]),
}

/// Value of a setting.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Path(PathBuf),
    Address(SocketAddr),
    Duration(Duration),
    Bytes(Bytes),
    Cpu(Millicores),
    Count(u64),
    Flag(bool),
    List(Vec<String>),
    Map(BTreeMap<String, String>),
    Counts(BTreeMap<String, u64>),
}

impl Kind {
    /// Parses the text of a variable or a flag.
    pub(crate) fn parse(self, text: &str) -> Result<Value, String> {
        let quoted = |expected: &str| format!("`{text}` is not {expected}");
        match self {
            Self::Text => Ok(Value::Text(text.to_owned())),
            Self::Path => Ok(Value::Path(text.into())),
            Self::Address => text
                .parse()
                .map(Value::Address)
                .map_err(|_| quoted("an address: expected HOST:PORT, for example `127.0.0.1:7070`")),
            Self::Duration => {
                text.parse().map(Value::Duration).map_err(|e: model::time::ParseDurationError| e.to_string())
            }
            Self::Bytes => {
                text.parse().map(Value::Bytes).map_err(|e: model::quantity::ParseQuantityError| e.to_string())
            }
            Self::Cpu => {
                text.parse().map(Value::Cpu).map_err(|e: model::quantity::ParseQuantityError| e.to_string())
            }
            Self::Count => {
                text.parse().map(Value::Count).map_err(|_| quoted("a number: expected a whole number from 0"))
            }
            Self::Flag => match text {
                "true" | "1" | "yes" => Ok(Value::Flag(true)),
                "false" | "0" | "no" => Ok(Value::Flag(false)),
                _ => Err(quoted("`true` or `false`")),
            },
            Self::List => Ok(Value::List(parts(text).map(str::to_owned).collect())),
            Self::Map => pairs(text).map(Value::Map),
            Self::Counts => counts(pairs(text)?),
            Self::PortRange => text
                .parse()
                .map(|range: worker::PortRange| Value::Text(range.to_string()))
                .map_err(|_| quoted("a port range: expected FIRST-LAST, for example `20000-31999`")),
            Self::OneOf(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
            Self::OneOf(words) => Err(quoted(&format!("one of {}", words.join(", ")))),
        }
    }

    /// Converts a TOML value. A number or a boolean is accepted for every kind of single value.
    pub(crate) fn convert(self, value: toml::Value) -> Result<Value, String> {
        let (found, text) = match value {
            toml::Value::String(text) => ("text", Some(text)),
            toml::Value::Integer(n) => ("a number", Some(n.to_string())),
            toml::Value::Float(n) => ("a number", Some(n.to_string())),
            toml::Value::Boolean(b) => ("`true` or `false`", Some(b.to_string())),
            toml::Value::Datetime(_) => ("a time", None),
            toml::Value::Array(items) if self == Self::List => return texts(items).map(Value::List),
            toml::Value::Array(_) => ("a list", None),
            toml::Value::Table(table) if self == Self::Map => return text_map(table).map(Value::Map),
            toml::Value::Table(table) if self == Self::Counts => return counts(text_map(table)?),
            toml::Value::Table(_) => ("a table", None),
        };
        match (self, text) {
            (Self::List, Some(_)) => Err(format!("is {found}: expected a list such as [\"a\", \"b\"]")),
            (Self::Map | Self::Counts, Some(_)) => {
                Err(format!("is {found}: expected a table such as {{ a = \"b\" }}"))
            }
            (_, Some(text)) => self.parse(&text),
            (_, None) => Err(format!("is {found}: expected a single value")),
        }
    }
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn pairs(text: &str) -> Result<BTreeMap<String, String>, String> {
    parts(text)
        .map(|part| {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{part}` is not a pair: expected `name=value`"))?;
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect()
}

fn texts(items: Vec<toml::Value>) -> Result<Vec<String>, String> {
    items
        .into_iter()
        .map(|item| match item {
            toml::Value::String(text) => Ok(text),
            other => Err(format!("contains `{other}`: expected text in quotes")),
        })
        .collect()
}

fn text_map(table: toml::Table) -> Result<BTreeMap<String, String>, String> {
    table
        .into_iter()
        .map(|(key, value)| match value {
            toml::Value::String(text) => Ok((key, text)),
            toml::Value::Integer(n) => Ok((key, n.to_string())),
            other => Err(format!("contains `{key} = {other}`: expected text or a number")),
        })
        .collect()
}

fn counts(pairs: BTreeMap<String, String>) -> Result<Value, String> {
    pairs
        .into_iter()
        .map(|(key, text)| {
            let count = text.parse().map_err(|_| format!("`{key}={text}`: expected a whole number"))?;
            Ok((key, count))
        })
        .collect::<Result<_, String>>()
        .map(Value::Counts)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |map: &BTreeMap<String, String>| {
            map.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(",")
        };
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Address(address) => address.fmt(f),
            Self::Duration(duration) => duration.fmt(f),
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Cpu(cpu) => cpu.fmt(f),
            Self::Count(count) => count.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::List(items) => f.write_str(&items.join(",")),
            Self::Map(map) => f.write_str(&joined(map)),
            Self::Counts(map) => {
                f.write_str(&joined(&map.iter().map(|(k, v)| (k.clone(), v.to_string())).collect()))
            }
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::List(items) => items.serialize(serializer),
            Self::Map(map) => map.serialize(serializer),
            Self::Counts(map) => map.serialize(serializer),
            other => serializer.collect_str(other),
        }
    }
}
