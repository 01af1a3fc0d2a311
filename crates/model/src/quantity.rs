//! Quantities of memory and CPU, with their text forms.
//!
//! In JSON a quantity is a string with a unit or a number: bytes for memory, cores for CPU. Binary encodings use the
//! plain number of bytes or millicores.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Quantity of memory or disk space, in bytes. Text forms: `256MiB`, `2GB`, `1024`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// Quantity of CPU, in millicores (thousandths of a core). Text forms: `500m`, `0.5`, `2`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millicores(pub u32);

/// Text that is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}")]
pub struct ParseQuantityError {
    text: String,
    what: &'static str,
}

const BYTE_UNITS: [(&str, u64); 12] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("B", 1),
];

impl FromStr for Bytes {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        let error = || ParseQuantityError {
            text: text.chars().take(64).collect(),
            what: "a quantity of bytes: expected a whole number with B, KiB, MiB, GiB, TiB, kB, MB, GB or TB",
        };
        let (digits, unit) = BYTE_UNITS
            .iter()
            .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))
            .unwrap_or((text, 1));
        let count: u64 = digits.trim().parse().map_err(|_| error())?;
        count.checked_mul(unit).map(Self).ok_or_else(error)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= size && self.0.is_multiple_of(size) {
                return write!(f, "{}{unit}", self.0 / size);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl FromStr for Millicores {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        let error = || ParseQuantityError {
            text: text.chars().take(64).collect(),
            what: "a quantity of CPU: expected cores such as `2` or `0.5`, or millicores such as `500m`",
        };
        if let Some(millis) = text.strip_suffix('m') {
            return millis.trim().parse().map(Self).map_err(|_| error());
        }
        let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
        if fraction.len() > 3 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
            return Err(error());
        }
        let whole: u32 = whole.parse().map_err(|_| error())?;
        let millis: u32 = format!("{fraction:0<3}").parse().map_err(|_| error())?;
        whole.checked_mul(1_000).and_then(|w| w.checked_add(millis)).map(Self).ok_or_else(error)
    }
}

impl fmt::Display for Millicores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1_000) { write!(f, "{}", self.0 / 1_000) } else { write!(f, "{}m", self.0) }
    }
}

macro_rules! quantity {
    ($name:ident, $int:ty, $scale:literal, $example:literal, $description:literal) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                if s.is_human_readable() { s.collect_str(self) } else { self.0.serialize(s) }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($description)
                    }

                    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<$name, E> {
                        <$int>::try_from(value)
                            .ok()
                            .and_then(|v| v.checked_mul($scale))
                            .map($name)
                            .ok_or_else(|| E::custom("the quantity is too large"))
                    }

                    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<$name, E> {
                        let value = u64::try_from(value)
                            .map_err(|_| E::custom("the quantity must not be negative"))?;
                        self.visit_u64(value)
                    }

                    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<$name, E> {
                        value.to_string().parse().map_err(E::custom)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                if d.is_human_readable() {
                    d.deserialize_any(Visitor)
                } else {
                    <$int>::deserialize(d).map(Self)
                }
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
                ObjectBuilder::new()
                    .schema_type(SchemaType::from_iter([Type::String, Type::Number]))
                    .examples([$example])
                    .description(Some($description))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {}
    };
}

quantity!(Bytes, u64, 1, "256MiB", "a quantity of bytes: `256MiB`, `2GB`, or a number of bytes");
quantity!(Millicores, u32, 1_000, "500m", "a quantity of CPU: `500m`, `0.5`, or a number of cores");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_with_and_without_units() {
        for (text, bytes) in
            [("0", 0), ("17", 17), ("256MiB", 256 << 20), ("2GB", 2_000_000_000), ("1 KiB", 1024)]
        {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5GiB", "99999999TiB", "10 apples"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        assert_eq!(Bytes(256 << 20).to_string(), "256MiB");
        assert_eq!(Bytes(1025).to_string(), "1025B");
    }

    #[test]
    fn cpu_is_parsed_as_cores_or_millicores() {
        for (text, millis) in [("2", 2_000), ("0.5", 500), ("500m", 500), ("1.125", 1_125)] {
            assert_eq!(text.parse(), Ok(Millicores(millis)), "{text}");
        }
        for text in ["", "m", ".", "-1", "1.2345", "5000000", "two"] {
            assert!(text.parse::<Millicores>().is_err(), "{text}");
        }
        assert_eq!(serde_json::from_str::<Millicores>("2").unwrap(), Millicores(2_000));
        assert_eq!(serde_json::from_str::<Millicores>("0.5").unwrap(), Millicores(500));
        assert_eq!(serde_json::from_str::<Bytes>("1024").unwrap(), Bytes(1024));
    }
}
