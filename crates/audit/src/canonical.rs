//! Canonical JSON: sorted keys, no white space.
//!
//! A subset of RFC 8785. Entries have no fractions, whose text could differ, and `serde_json` escapes text in one way.

use serde::Serialize;
use serde_json::Value;

/// Returns the canonical JSON of a value.
pub fn canonical(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).expect("entries have only keys of text");
    let mut text = String::new();
    write(&value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            // The map of `serde_json` may keep the order of insertion, if another crate asks for that.
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            text.push('{');
            for (i, (key, value)) in fields.into_iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_and_text_is_kept() {
        let value = json!({"b": [{"z": 1, "a": "\"钟\n"}], "a": null, "é": true, "A": {}});
        insta::assert_snapshot!(canonical(&value), @r#"{"A":{},"a":null,"b":[{"a":"\"钟\n","z":1}],"é":true}"#);
        let again: Value = serde_json::from_str(&canonical(&value)).unwrap();
        assert_eq!((canonical(&again), again), (canonical(&value), value));
    }
}
