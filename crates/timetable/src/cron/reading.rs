//! Fields of a cron expression for descriptions, independent of the seed.
//!
//! The items are parsed by the parser that also computes the scheduled times, so a description cannot contradict them.
//! For `H` and `~`, the result contains the range of their values.

use model::timing::{Cron, Dialect};

use super::days::Years;
use super::field::Field;
use super::item::{Context, Item};
use super::{CronError, Expression, WORDS, layout, parse, split};

/// Expression, by field.
#[derive(Debug)]
pub(crate) enum Text {
    /// Fixed rate: `@every 15m`.
    Every(model::Duration),
    /// Fields in the order of [`Field::ALL`]. A missing field for seconds is 0; a missing field for years is empty.
    Fields(Box<[FieldText; 7]>),
}

/// Items of a field, by kind.
#[derive(Debug, Default)]
pub(crate) struct FieldText {
    /// Values, as bits; Sunday is 0.
    pub(crate) values: u64,
    pub(crate) years: Vec<Years>,
    pub(crate) hashed: Vec<Hashed>,
    /// Special days, such as `L`, `15W` and `5#3`.
    pub(crate) special: Vec<Item>,
    /// Whether the field starts with `*` or `?`.
    pub(crate) open: bool,
}

/// Item whose value the seed determines: a value from `first` to `last`, or the start of the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hashed {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) step: Option<u16>,
}

/// Parses an expression.
///
/// # Errors
/// Returns the first error of the expression, as [`parse`] does.
pub(crate) fn parse_for_description(cron: &Cron) -> Result<Text, CronError> {
    if let Expression::Every(period) = parse(cron, 0)? {
        return Ok(Text::Every(period));
    }
    let word = cron.expression.trim();
    let (text, dialect) = match WORDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
        Some((_, fields)) => (*fields, Dialect::Vixie),
        None => (cron.expression.as_str(), cron.dialect),
    };
    let words = split(text, u8::is_ascii_whitespace);
    let layout = layout(text, &words, dialect)?;
    let mut fields: [FieldText; 7] = Default::default();
    if layout[0] != Field::Second {
        fields[0].values = 1;
    }
    for (field, (at, word)) in layout.iter().zip(&words) {
        let pieces: Vec<&str> = word.split(',').collect();
        let into = &mut fields[*field as usize];
        into.open = word.starts_with(['*', '?']);
        let mut begin = *at;
        for (index, piece) in pieces.iter().enumerate() {
            let alone = pieces.len() == 1;
            let context = Context { text, begin, piece, alone, field: *field, dialect, seed: 0, index };
            let (item, is_hashed) = context.item()?;
            match item {
                _ if is_hashed => into.hashed.push(hashed(piece, *field, dialect)),
                Item::Values(bits) if *field == Field::DayOfWeek => into.values |= (bits | bits >> 7) & 0x7f,
                Item::Values(bits) => into.values |= bits,
                Item::Years { first, last, step } => into.years.push(Years { first, last, step }),
                special => into.special.push(special),
            }
            begin += piece.len() + 1;
        }
    }
    Ok(Text::Fields(Box::new(fields)))
}

/// Returns the range of a valid item whose value the seed determines: `H`, `H(0-29)/10`, `5~20`, `~`.
fn hashed(piece: &str, field: Field, dialect: Dialect) -> Hashed {
    let (first, mut last) = field.values();
    let value = |text: &str| match text.parse() {
        Ok(number) => Some(field.crontab_value(number, dialect)),
        Err(_) => field.named(text),
    };
    let (choice, step) = piece.split_once('/').unwrap_or((piece, ""));
    let (from, until) = match choice.split_once('~') {
        Some(ends) => ends,
        None => {
            if field == Field::DayOfMonth {
                last = 28;
            }
            choice.get(1..).unwrap_or("").trim_matches(['(', ')']).split_once('-').unwrap_or(("", ""))
        }
    };
    let first = value(from).unwrap_or(first);
    Hashed { first, last: value(until).unwrap_or(last).max(first), step: step.parse().ok() }
}
