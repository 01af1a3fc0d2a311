//! Parser of cron expressions, from text to days and times of day.
//!
//! ```text
//! text ──split──> fields ──item──> items ──> CronDays + Times
//! ```
//!
//! Belfry has its own parser and matcher ([`CronDays`], [`Times`]). No cron library has all that is required: two
//! dialects, hashed values, the column of each error, and less than half a kilobyte for a schedule. The tests compare
//! the results with the crate `croner`.
//!
//! # Invariants
//! No text causes a panic or takes more than some microseconds: the parser accepts at most 256 bytes, 7 fields, and 64
//! items in a field.

mod days;
mod error;
mod field;
mod item;
mod reading;

pub(crate) use days::CronDays;
pub(crate) use error::CronError;
pub(crate) use field::Field;
pub(crate) use item::Item;
pub(crate) use reading::{FieldText, Hashed, Text, parse_for_description};

use model::timing::{Cron, Dialect};

use crate::days::Days;
use crate::times::{Fields, Times};
use days::Years;
use item::Context;

/// Maximum length of an expression, in bytes.
pub(crate) const BYTES_MAX: usize = 256;
/// Maximum number of comma-separated items in a field.
const ITEMS_MAX: usize = 64;

/// Parsed expression.
#[derive(Debug)]
pub(crate) enum Expression {
    /// Fixed rate: `@every 15m`.
    Every(model::Duration),
    /// Fields, or a name that stands for fields, such as `@daily`.
    Fields(Parsed),
}

/// Parsed fields.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) days: Days,
    pub(crate) times: Times,
    /// Whether the minute or hour field starts with `*`. Clock changes then apply as for a repeating time.
    pub(crate) repeats: bool,
    /// Whether the expression has an `H` or a `~`, so that it depends on the seed.
    pub(crate) seeded: bool,
}

/// Names that stand for fields.
const WORDS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Parses an expression. `seed` determines the values of `H` and `~`.
///
/// # Errors
/// Returns the first error of the expression.
pub(crate) fn parse(cron: &Cron, seed: u64) -> Result<Expression, CronError> {
    let text = cron.expression.as_str();
    if text.len() > BYTES_MAX {
        return Err(CronError::too_long(text.len()));
    }
    let words = split(text, u8::is_ascii_whitespace);
    if let Some((at, word)) = words.first().filter(|(_, word)| word.starts_with('@')) {
        return parse_word(text, *at, word, &words[1..], seed);
    }
    parse_fields(text, &words, cron.dialect, seed).map(Expression::Fields)
}

fn parse_word(
    text: &str,
    at: usize,
    word: &str,
    rest: &[(usize, &str)],
    seed: u64,
) -> Result<Expression, CronError> {
    if word.eq_ignore_ascii_case("@every") {
        let period_at = rest.first().map_or(text.len(), |(at, _)| *at);
        let written = text[period_at..].trim_end();
        return match written.parse::<model::Duration>() {
            Ok(duration) if duration >= crate::rule::PERIOD_MIN => Ok(Expression::Every(duration)),
            _ => {
                Err(CronError::new(text, period_at, written, "a duration of at least a second", "@every 15m"))
            }
        };
    }
    let lowercase = word.to_ascii_lowercase();
    let Some((_, fields)) = WORDS.iter().find(|(name, _)| *name == lowercase) else {
        let expected = "@yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly or @every";
        return Err(CronError::new(text, at, word, expected, "@daily"));
    };
    if let Some((at, extra)) = rest.first() {
        return Err(CronError::new(text, *at, extra, "nothing after the word", word));
    }
    parse_fields(fields, &split(fields, u8::is_ascii_whitespace), Dialect::Vixie, seed)
        .map(Expression::Fields)
}

/// Returns the pieces between separators, each with its byte position. Omits empty pieces.
fn split(text: &str, separates: impl Fn(&u8) -> bool) -> Vec<(usize, &str)> {
    let mut pieces = Vec::new();
    let mut begin = 0;
    for end in text.bytes().enumerate().filter(|(_, b)| separates(b)).map(|(at, _)| at).chain([text.len()]) {
        if begin < end {
            pieces.push((begin, &text[begin..end]));
        }
        begin = end + 1;
    }
    pieces
}

/// Returns the fields of an expression, by the number of its words.
fn layout(text: &str, words: &[(usize, &str)], dialect: Dialect) -> Result<&'static [Field], CronError> {
    if let Some((at, word)) = words.first()
        && let Some((name, zone)) = word.split_once('=')
        && (name.eq_ignore_ascii_case("CRON_TZ") || name.eq_ignore_ascii_case("TZ"))
    {
        let expected = "no time zone: the field `zone` sets the time zone of all rules";
        return Err(CronError::new(text, *at, word, expected, format!("zone: {zone}")));
    }
    let few = match dialect {
        Dialect::Vixie => 5,
        Dialect::Quartz => 6,
    };
    let (expected, example) = match dialect {
        Dialect::Vixie => (
            "5 fields (minute hour day-of-month month day-of-week), 6 (seconds first) or 7 (year last)",
            "0 2 * * *",
        ),
        Dialect::Quartz => {
            ("6 fields (second minute hour day-of-month month day-of-week) or 7 (year last)", "0 0 2 * * ?")
        }
    };
    match words.len() {
        7 => Ok(&Field::ALL),
        6 => Ok(&Field::ALL[..6]),
        5 if few == 5 => Ok(&Field::ALL[1..6]),
        count if count < few => Err(CronError::new(text, text.len(), "", expected, example)),
        _ => Err(CronError::new(text, words[7].0, words[7].1, expected, example)),
    }
}

fn parse_fields(
    text: &str,
    words: &[(usize, &str)],
    dialect: Dialect,
    seed: u64,
) -> Result<Parsed, CronError> {
    let layout = layout(text, words, dialect)?;
    let mut days = CronDays::default();
    let mut times = Fields { hours: 0, minutes: 0, seconds: 0 };
    let (mut repeats, mut seeded) = (false, false);
    if layout[0] != Field::Second {
        times.seconds = 1;
    }
    // A day must match both day fields if one of them starts with `*` or `?`, also as in `*/2`.
    let mut open_days = [false; 2];
    let mut asked = [false; 2];
    for (field, (at, word)) in layout.iter().zip(words) {
        let open = word.starts_with(['*', '?']);
        match field {
            Field::Minute | Field::Hour => repeats |= word.starts_with('*'),
            Field::DayOfMonth => (open_days[0], asked[0]) = (open, word.starts_with('?')),
            Field::DayOfWeek => (open_days[1], asked[1]) = (open, word.starts_with('?')),
            _ => {}
        }
        let pieces: Vec<&str> = word.split(',').collect();
        if pieces.len() > ITEMS_MAX {
            let found = format!("{} items", pieces.len());
            return Err(CronError::new(
                text,
                *at,
                &found,
                format!("at most {ITEMS_MAX} items in a field"),
                field.example(dialect),
            ));
        }
        let mut begin = *at;
        for (index, piece) in pieces.iter().enumerate() {
            let context =
                Context { text, begin, piece, alone: pieces.len() == 1, field: *field, dialect, seed, index };
            let (item, hashed) = context.item()?;
            seeded |= hashed;
            add(*field, item, &mut days, &mut times);
            begin += piece.len() + 1;
        }
    }
    if dialect == Dialect::Quartz && asked[0] == asked[1] {
        let (at, word) = words[5];
        let expected = "`?` as exactly one of day-of-month and day-of-week";
        return Err(CronError::new(
            text,
            at,
            word,
            expected,
            if asked[0] { "0 0 2 * * ?" } else { "0 0 2 ? * MON" },
        ));
    }
    days.both = open_days[0] || open_days[1];
    Ok(Parsed { days: Days::Cron(days).or_never(), times: Times::Fields(times), repeats, seeded })
}

fn add(field: Field, item: Item, days: &mut CronDays, times: &mut Fields) {
    match (field, item) {
        (Field::Second, Item::Values(bits)) => times.seconds |= bits,
        (Field::Minute, Item::Values(bits)) => times.minutes |= bits,
        (Field::Hour, Item::Values(bits)) => times.hours |= bits as u32,
        (Field::Month, Item::Values(bits)) => days.months |= bits as u16,
        (Field::DayOfMonth, Item::Values(bits)) => days.days |= bits as u32,
        (Field::DayOfWeek, Item::Values(bits)) => days.weekdays |= (bits | bits >> 7) as u8 & 0x7f,
        (_, Item::Values(_)) => {}
        (_, Item::Years { first, last, step }) => {
            days.years.get_or_insert_default().push(Years { first, last, step })
        }
        (_, Item::FromEnd(days_before)) => days.days_from_end |= 1 << days_before,
        (_, Item::WorkdayNear(day)) => days.workdays_near |= 1 << day,
        (_, Item::WorkdayNearEnd(days_before)) => days.workdays_near_end |= 1 << days_before,
        (_, Item::NthWeekday { weekday, nth }) => days.nth_weekdays[usize::from(nth) - 1] |= 1 << weekday,
        (_, Item::LastWeekday(weekday)) => days.last_weekdays |= 1 << weekday,
    }
}
