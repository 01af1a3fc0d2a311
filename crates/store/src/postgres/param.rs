//! Statement parameters with their types; most are whole columns of a batch.
//!
//! PostgreSQL's text cannot contain a NUL character, but Belfry's text may. NUL is stored as `\u{1}0`, and `\u{1}` as
//! `\u{1}1`, which keeps the order of texts.

use std::borrow::Cow;

use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::lists::Value;

/// Value and its type. One box for a whole column, not for each row.
pub(super) type Param = (Box<dyn ToSql + Sync + Send>, Type);

/// Converts text into the format of the database.
pub(super) fn escape(text: &str) -> String {
    if text.contains(['\0', '\u{1}']) {
        text.replace('\u{1}', "\u{1}1").replace('\0', "\u{1}0")
    } else {
        text.to_owned()
    }
}

/// Converts text from the format of the database.
pub(super) fn unescape(text: &str) -> Cow<'_, str> {
    if text.contains('\u{1}') {
        Cow::Owned(text.replace("\u{1}0", "\0").replace("\u{1}1", "\u{1}"))
    } else {
        Cow::Borrowed(text)
    }
}

pub(super) fn id(bits: u128) -> Param {
    (Box::new(Uuid::from_u128(bits)), Type::UUID)
}

/// Number, or time in microseconds.
pub(super) fn big(number: i64) -> Param {
    (Box::new(number), Type::INT8)
}

pub(super) fn optional_big(number: Option<i64>) -> Param {
    (Box::new(number), Type::INT8)
}

pub(super) fn int(number: i32) -> Param {
    (Box::new(number), Type::INT4)
}

pub(super) fn flag(flag: bool) -> Param {
    (Box::new(flag), Type::BOOL)
}

pub(super) fn text(text: &str) -> Param {
    (Box::new(escape(text)), Type::TEXT)
}

pub(super) fn optional_text(text: Option<&str>) -> Param {
    (Box::new(text.map(escape)), Type::TEXT)
}

pub(super) fn bytes(bytes: Vec<u8>) -> Param {
    (Box::new(bytes), Type::BYTEA)
}

pub(super) fn optional_bytes(bytes: Option<Vec<u8>>) -> Param {
    (Box::new(bytes), Type::BYTEA)
}

pub(super) fn ids(ids: Vec<Uuid>) -> Param {
    (Box::new(ids), Type::UUID_ARRAY)
}

pub(super) fn optional_ids(ids: Vec<Option<Uuid>>) -> Param {
    (Box::new(ids), Type::UUID_ARRAY)
}

pub(super) fn bigs(numbers: Vec<i64>) -> Param {
    (Box::new(numbers), Type::INT8_ARRAY)
}

pub(super) fn optional_bigs(numbers: Vec<Option<i64>>) -> Param {
    (Box::new(numbers), Type::INT8_ARRAY)
}

pub(super) fn ints(numbers: Vec<i32>) -> Param {
    (Box::new(numbers), Type::INT4_ARRAY)
}

/// Column of texts, which the caller has escaped.
pub(super) fn texts(texts: Vec<String>) -> Param {
    (Box::new(texts), Type::TEXT_ARRAY)
}

/// Column of texts or NULLs; the caller has escaped the texts.
pub(super) fn optional_texts(texts: Vec<Option<String>>) -> Param {
    (Box::new(texts), Type::TEXT_ARRAY)
}

pub(super) fn blobs(blobs: Vec<Vec<u8>>) -> Param {
    (Box::new(blobs), Type::BYTEA_ARRAY)
}

/// Column of bytes or NULLs.
pub(super) fn optional_blobs(blobs: Vec<Option<Vec<u8>>>) -> Param {
    (Box::new(blobs), Type::BYTEA_ARRAY)
}

/// Value in the condition of a list.
pub(super) fn value(value: &Value) -> Param {
    match value {
        Value::Id(bits) | Value::BackfillKey(bits) => id(*bits),
        Value::Integer(number) => big(*number),
        Value::Text(of) => text(of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_is_restored_and_keeps_its_order() {
        let texts = ["", "\0", "\0a", "\u{1}", "\u{1}0", "\u{1}\0", "\u{2}", "a\0", "a\u{1}1b", "ab"];
        for text in texts {
            let kept = escape(text);
            assert!(!kept.contains('\0'), "{text:?}");
            assert_eq!(unescape(&kept), text, "{kept:?}");
        }
        assert!(texts.is_sorted_by_key(|text| escape(text)) == texts.is_sorted());
    }
}
