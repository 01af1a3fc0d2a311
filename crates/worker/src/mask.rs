//! Masks: hide the values of secrets in what a task writes.
//!
//! A [`Mask`] belongs to one execution and knows the values that the execution got. Log output passes through it before
//! anything else sees it: before it is stored, truncated, searched for the line of an error, or sent. So does the text of
//! failures, and the output of the job. Executions without secrets have no mask.
//!
//! # What is hidden
//! - Each line of a value with at least [`SECRET_MASKED_MIN`] bytes; shorter ones occur in logs by chance.
//! - The whole value in base64 (at each of the three alignments, also the URL-safe alphabet), percent-encoded, in
//!   hexadecimal, and as a JSON string, if it has at most [`ENCODED_MAX`] bytes.
//!
//! This is a net for accidents. A task that wants to print a secret can always do so, for example one letter per line.
//!
//! # How a value is found across two writes
//! The end of the output is held back as long as it can be the beginning of a hidden text, that is for at most
//! [`PIECE_MAX`] − 1 bytes. Longer texts are hidden in pieces. At the end of the output, such a beginning is hidden too, if it
//! has at least [`SECRET_MASKED_MIN`] bytes.
//!
//! # Cost
//! One look-up in a bit set per byte of output, and a binary search where two bytes begin a hidden text. Memory is 8 KiB plus
//! the hidden texts.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use model::alert::HIDDEN;
use model::limits::SECRET_MASKED_MIN;

/// Longest hidden text, in bytes; longer ones are split.
const PIECE_MAX: usize = 256;
/// Largest value whose encoded forms are hidden, in bytes.
const ENCODED_MAX: usize = 4 << 10;
/// Shortest encoded form that is hidden, in bytes.
const ENCODED_MIN: usize = 8;
/// Number of pairs of bytes.
const PAIRS: usize = 1 << 16;

/// Hides the values of the secrets of one execution.
pub(crate) struct Mask {
    /// Hidden texts, sorted. Each has [`SECRET_MASKED_MIN`] to [`PIECE_MAX`] bytes.
    texts: Vec<Box<[u8]>>,
    /// For each pair of bytes, whether it begins a hidden text, as bits.
    begins: Box<[u64]>,
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask({} texts)", self.texts.len())
    }
}

/// End of a stream that may be the beginning of a hidden text.
#[derive(Debug, Default)]
pub(crate) struct HeldBack(Vec<u8>);

impl Mask {
    /// Returns the mask of these values; `None` if nothing has to be hidden.
    pub(crate) fn new<'v>(values: impl IntoIterator<Item = &'v [u8]>) -> Option<Self> {
        let mut texts = BTreeSet::new();
        for value in values {
            add_forms(&mut texts, value);
        }
        if texts.is_empty() {
            return None;
        }
        let mut begins = vec![0_u64; PAIRS / 64].into_boxed_slice();
        for text in &texts {
            let pair = pair(text[0], text[1]);
            begins[pair / 64] |= 1 << (pair % 64);
        }
        Some(Self { texts: texts.into_iter().collect(), begins })
    }

    /// Returns the next part of a stream, after what was held back of it.
    pub(crate) fn next_part(&self, held: &mut HeldBack, data: &[u8]) -> Vec<u8> {
        held.0.extend_from_slice(data);
        let mut part = Vec::with_capacity(held.0.len());
        let at = self.scan(&held.0, false, &mut part);
        held.0.drain(..at);
        part
    }

    /// Returns the end of a stream.
    pub(crate) fn last_part(&self, held: &mut HeldBack) -> Vec<u8> {
        let rest = std::mem::take(&mut held.0);
        // What is held back begins a hidden text.
        if rest.len() >= SECRET_MASKED_MIN {
            return HIDDEN.as_bytes().to_vec();
        }
        rest
    }

    /// Hides the values in a text.
    pub(crate) fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.bytes(text.as_bytes())).into_owned()
    }

    /// Hides the values in a JSON value, which stays valid: strings are hidden in part, and a number as a whole.
    pub(crate) fn json(&self, json: &[u8]) -> Option<Vec<u8>> {
        let Ok(mut value) = serde_json::from_slice(json) else { return Some(self.bytes(json)) };
        if !self.hide_in(&mut value) {
            return None;
        }
        serde_json::to_vec(&value).ok()
    }

    fn hide_in(&self, value: &mut serde_json::Value) -> bool {
        use serde_json::Value;
        match value {
            Value::String(text) => {
                let masked = self.text(text);
                let is_changed = masked != *text;
                *text = masked;
                is_changed
            }
            Value::Number(number) => {
                let text = number.to_string();
                let is_changed = self.text(&text) != text;
                if is_changed {
                    *value = HIDDEN.into();
                }
                is_changed
            }
            Value::Array(items) => {
                let mut is_changed = false;
                for item in items {
                    is_changed |= self.hide_in(item);
                }
                is_changed
            }
            Value::Object(fields) => {
                let mut is_changed = false;
                let old = std::mem::take(fields);
                for (name, mut value) in old {
                    is_changed |= self.hide_in(&mut value);
                    let masked = self.text(&name);
                    is_changed |= masked != name;
                    fields.insert(masked, value);
                }
                is_changed
            }
            Value::Null | Value::Bool(_) => false,
        }
    }

    fn bytes(&self, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(data.len());
        self.scan(data, true, &mut out);
        out
    }

    /// Appends `data` to `out` with hidden values. Returns where it stopped: at its end, or, unless `is_end`, where the rest
    /// may be the beginning of a hidden text.
    fn scan(&self, data: &[u8], is_end: bool, out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
            if rest.len() >= 2 && !self.begins_with(rest[0], rest[1]) {
                out.push(rest[0]);
                at += 1;
            } else if !is_end && rest.len() < PIECE_MAX && self.is_beginning(rest) {
                break;
            } else if let Some(length) = self.longest(rest) {
                out.extend_from_slice(HIDDEN.as_bytes());
                at += length;
            } else {
                out.push(rest[0]);
                at += 1;
            }
        }
        at
    }

    fn begins_with(&self, first: u8, second: u8) -> bool {
        let pair = pair(first, second);
        self.begins[pair / 64] & (1 << (pair % 64)) != 0
    }

    /// Whether a hidden text is longer than `rest` and begins with it.
    fn is_beginning(&self, rest: &[u8]) -> bool {
        let next = self.texts.partition_point(|text| **text <= *rest);
        self.texts.get(next).is_some_and(|text| text.starts_with(rest))
    }

    /// Returns the length of the longest hidden text at the start of `rest`.
    fn longest(&self, rest: &[u8]) -> Option<usize> {
        let mut limit = rest;
        loop {
            let after = self.texts.partition_point(|text| **text <= *limit);
            let candidate = self.texts.get(after.checked_sub(1)?)?;
            if rest.starts_with(candidate) {
                return Some(candidate.len());
            }
            // A shorter text at the start of `rest` ends before the first difference, as it is below the candidate.
            let common = candidate.iter().zip(rest).take_while(|(a, b)| a == b).count();
            limit = &rest[..common];
        }
    }
}

fn pair(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}

/// Adds all hidden forms of a value.
fn add_forms(texts: &mut BTreeSet<Box<[u8]>>, value: &[u8]) {
    for line in value.split(|byte| *byte == b'\n') {
        add(texts, line.trim_ascii(), SECRET_MASKED_MIN);
    }
    let whole = value.trim_ascii_end();
    if whole.len() > ENCODED_MAX {
        return;
    }
    for shift in 0..3 {
        let encoded = base64_within(whole, shift);
        add(texts, encoded.replace('+', "-").replace('/', "_").as_bytes(), ENCODED_MIN);
        add(texts, encoded.as_bytes(), ENCODED_MIN);
    }
    add(texts, hex(whole).as_bytes(), ENCODED_MIN);
    add(texts, percent_encoded(whole).as_bytes(), ENCODED_MIN);
    if let Ok(json) = serde_json::to_string(&String::from_utf8_lossy(whole)) {
        add(texts, json.trim_matches('"').as_bytes(), ENCODED_MIN);
    }
}

/// Adds a text in pieces of nearly the same length.
fn add(texts: &mut BTreeSet<Box<[u8]>>, text: &[u8], min: usize) {
    if text.len() >= min {
        let pieces = text.len().div_ceil(PIECE_MAX);
        texts.extend(
            text.chunks(text.len().div_ceil(pieces))
                .filter(|piece| piece.len() >= SECRET_MASKED_MIN)
                .map(Box::from),
        );
    }
}

/// Returns the letters of base64 that depend only on the value if `shift` bytes are before it and any bytes after it.
fn base64_within(value: &[u8], shift: usize) -> String {
    let mut bytes = vec![0; shift];
    bytes.extend_from_slice(value);
    let encoded = STANDARD_NO_PAD.encode(&bytes);
    let first = (shift * 8).div_ceil(6);
    let last = bytes.len() * 8 / 6;
    encoded.get(first..last).unwrap_or_default().to_owned()
}

fn hex(value: &[u8]) -> String {
    value.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Encodes a value as a part of a URL (RFC 3986).
fn percent_encoded(value: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode =
        |byte: &u8| if is_plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    value.iter().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mask(values: &[&str]) -> Mask {
        Mask::new(values.iter().map(|value| value.as_bytes())).unwrap()
    }

    /// Returns what a log contains after these writes.
    fn logged(mask: &Mask, writes: &[&[u8]]) -> String {
        let mut held = HeldBack::default();
        let mut log: Vec<u8> = writes.iter().flat_map(|write| mask.next_part(&mut held, write)).collect();
        log.extend(mask.last_part(&mut held));
        String::from_utf8_lossy(&log).into_owned()
    }

    #[test]
    fn a_value_is_hidden_wherever_it_is_split() {
        let mask = mask(&["hunter2-hunter3"]);
        let text = b"login hunter2-hunter3 ok, hunter2-hunter3";
        for at in 0..=text.len() {
            let (first, second) = text.split_at(at);
            assert_eq!(logged(&mask, &[first, second]), "login ****** ok, ******", "{at}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(logged(&mask, &bytes), "login ****** ok, ******");
    }

    #[test]
    fn output_is_held_back_only_while_it_can_be_the_beginning_of_a_value() {
        let mask = mask(&["hunter2"]);
        let mut held = HeldBack::default();
        assert_eq!(mask.next_part(&mut held, b"a hun"), b"a ");
        assert_eq!(mask.next_part(&mut held, b"ger\n"), b"hunger\n");
        assert_eq!(mask.next_part(&mut held, b"line\n"), b"line\n");
        assert_eq!(mask.next_part(&mut held, b"hu"), b"");
        assert_eq!(mask.last_part(&mut held), b"hu");
        assert_eq!(mask.next_part(&mut held, b"hunte"), b"");
        assert_eq!(mask.last_part(&mut held), b"******", "a cut value");
    }

    #[test]
    fn each_line_of_a_value_is_hidden_and_short_lines_are_not() {
        let mask = mask(&["-----BEGIN-----\nabcdefgh\r\n  indented\nab\n"]);
        let log = logged(&mask, &[b"1 abcdefgh 2 indented 3 ab 4 -----BEGIN-----"]);
        assert_eq!(log, "1 ****** 2 ****** 3 ab 4 ******");
        assert!(Mask::new([b"abc".as_slice()]).is_none(), "too short");
    }

    #[test]
    fn encoded_forms_of_a_value_are_hidden() {
        let value = "p/ss w\"rd+long";
        let mask = mask(&[value]);
        for prefix in ["", "u", "us", "user:"] {
            let encoded = STANDARD_NO_PAD.encode(format!("{prefix}{value}!!"));
            let log = logged(&mask, &[encoded.as_bytes()]);
            assert!(log.contains(HIDDEN) && log.len() < encoded.len() - 8, "{prefix}: {log}");
        }
        let json = serde_json::to_string(value).unwrap();
        assert_eq!(logged(&mask, &[json.as_bytes()]), "\"******\"");
        assert_eq!(logged(&mask, &[b"?q=p%2Fss%20w%22rd%2Blong&x"]), "?q=******&x");
        assert_eq!(logged(&mask, &[hex(value.as_bytes()).as_bytes()]), "******");
    }

    #[test]
    fn a_long_value_is_hidden_in_pieces_and_the_longest_value_wins() {
        let long: String = (0..1_000).map(|i| char::from(b'a' + (i * i % 23) as u8)).collect();
        let log = logged(&mask(&[&long]), &[b"<", long.as_bytes(), b">"]);
        assert_eq!(log, format!("<{}>", HIDDEN.repeat(4)));
        let mask = mask(&["pass", "password", "passwords!"]);
        assert_eq!(logged(&mask, &[b"pass password passwords passwords!"]), "****** ****** ******s ******");
    }

    #[test]
    fn an_output_stays_json() {
        let mask = mask(&["hunter2", "12345"]);
        let json = |text: &str| mask.json(text.as_bytes()).map(|json| String::from_utf8(json).unwrap());
        assert_eq!(json(r#"{"rows": 7, "price": 1.0}"#), None, "unchanged");
        let masked = json(r#"{"a": "is hunter2", "n": 123456, "list": [{"hunter2": true}]}"#).unwrap();
        assert_eq!(masked, r#"{"a":"is ******","list":[{"******":true}],"n":"******"}"#);
        assert_eq!(json("hunter2 {").unwrap(), "****** {", "not JSON");
    }

    #[test]
    fn the_debug_output_of_a_mask_hides_its_values() {
        assert!(!format!("{:?}", mask(&["hunter2"])).contains("hunter2"));
    }

    proptest! {
        /// However output is split into writes, the log is that of one write.
        #[test]
        fn the_log_does_not_depend_on_the_writes(
            text in "[ab]{0,80}",
            values in prop::collection::vec("[ab]{4,9}", 1..5),
            cuts in prop::collection::vec(0_usize..80, 0..8),
        ) {
            let mask = Mask::new(values.iter().map(|value| value.as_bytes())).unwrap();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let writes: Vec<&[u8]> = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
            let split = logged(&mask, &writes);
            prop_assert_eq!(&split, &logged(&mask, &[text.as_bytes()]));
            for value in &values {
                prop_assert!(!split.contains(value.as_str()), "{} in {}", value, split);
            }
        }
    }
}
