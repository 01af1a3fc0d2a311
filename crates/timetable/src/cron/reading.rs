//! What each field of an expression names, before the seed decides anything: for descriptions.
//!
//! Items are read by the parser that firings come from, so that a description cannot disagree with it;
//! only of `H` and `~` it is told between which values they choose.

use model::timing::{Cron, Dialect};

use super::days::Years;
use super::field::Field;
use super::item::{Context, Item};
use super::{CronError, Expression, WORDS, layout, parse, split};

/// An expression, field by field.
#[derive(Debug)]
pub(crate) enum Text {
    /// `@every 15m`.
    Every(model::Duration),
    /// In the order of [`Field::ALL`]; the second is 0 and the year is open where they are absent.
    Fields(Box<[FieldText; 7]>),
}

/// The items of a field, by their kinds.
#[derive(Debug, Default)]
pub(crate) struct FieldText {
    /// As bits; Sunday is 0.
    pub(crate) values: u64,
    pub(crate) years: Vec<Years>,
    pub(crate) hashed: Vec<Hashed>,
    /// Neither values nor years nor hashed ones: `L`, `15W`, `5#3` and their like.
    pub(crate) special: Vec<Item>,
    /// Begins with `*` or `?`.
    pub(crate) open: bool,
}

/// A value between two others, or a first value and steps, that the seed decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hashed {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) step: Option<u16>,
}

/// Reads an expression.
///
/// # Errors
/// The first thing that is wrong with it, as [`parse`] says it.
pub(crate) fn read(cron: &Cron) -> Result<Text, CronError> {
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

/// Between which values an item chooses that the parser has accepted: `H`, `H(0-29)/10`, `5~20`, `~`.
fn hashed(piece: &str, field: Field, dialect: Dialect) -> Hashed {
    let (first, mut last) = field.values();
    let value = |text: &str| match text.parse() {
        Ok(number) => Some(field.kept(number, dialect)),
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
