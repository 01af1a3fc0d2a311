//! Parser of one item of a cron field: the text between two commas.
//!
//! [`Context::item`] parses an item to values, years or a special day. `super::parse` combines the items of an
//! expression; `super::reading` uses the same parser for descriptions.
//!
//! # Invariants
//! - Values are in the numbering of crontab, also for Quartz: Sunday is 0, or 7 as the end of a range.
//! - `H` and `~` depend only on the seed, the field and the index of the item, so all servers choose the same values.

use model::timing::Dialect;

use super::error::CronError;
use super::field::Field;

/// Meaning of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    /// Values, as bits. For days of the week, 0 and 7 are Sunday.
    Values(u64),
    /// Years, which do not fit into 64 bits.
    Years { first: u16, last: u16, step: u16 },
    /// Day this many days before the last day of the month: `L`, `L-3`.
    FromEnd(u16),
    /// Workday (Monday to Friday) nearest to a day: `15W`.
    WorkdayNear(u16),
    /// Workday nearest to the day this many days before the last day of the month: `LW`.
    WorkdayNearEnd(u16),
    /// The `nth` occurrence of a weekday in the month: `5#3`.
    NthWeekday { weekday: u16, nth: u16 },
    /// The last occurrence of a weekday in the month: `5L`.
    LastWeekday(u16),
}

/// Item, with all values that its parsing depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    /// Complete expression.
    pub(super) text: &'a str,
    /// Byte position of the item in the expression.
    pub(super) begin: usize,
    /// Text of the item.
    pub(super) piece: &'a str,
    /// Whether the field has only this item.
    pub(super) alone: bool,
    pub(super) field: Field,
    pub(super) dialect: Dialect,
    /// Determines the values of `H` and `~`.
    pub(super) seed: u64,
    /// Index of the item in its field, from 0.
    pub(super) index: usize,
}

/// Parsed number or name.
#[derive(Clone, Copy)]
struct Value {
    /// Value in the numbering of crontab.
    kept: u16,
    /// Whether the expression contains a name instead of a number.
    is_name: bool,
    /// Byte position in the item.
    at: usize,
}

impl<'a> Context<'a> {
    /// Parses the item. Also returns whether the seed determines its values.
    pub(super) fn item(&self) -> Result<(Item, bool), CronError> {
        let (first, last) = self.field.values();
        let piece = self.piece;
        match piece.as_bytes().first() {
            Some(b'*') => {
                let (step, end) = self.step(1)?;
                self.end(end, Item::span(self.field, first, last, step.unwrap_or(1))).map(plain)
            }
            Some(b'?') => self.any().map(plain),
            Some(b'H' | b'h') if self.field != Field::Year => self.hash().map(hashed),
            Some(b'~') if self.field != Field::Year => self.random(None, 0).map(hashed),
            Some(b'L' | b'l') => self.last().map(plain),
            _ => {
                let (value, end) = self.value(0)?;
                if piece.as_bytes().get(end) == Some(&b'~') && self.field != Field::Year {
                    return self.random(Some(value), end).map(hashed);
                }
                self.item_from_value(value, end).map(plain)
            }
        }
    }

    /// Parses `?`: all days, so that only the other day field decides.
    fn any(&self) -> Result<Item, CronError> {
        if !matches!(self.field, Field::DayOfMonth | Field::DayOfWeek) {
            return Err(self.wrong(0, self.field.value(self.dialect)));
        }
        if !self.alone {
            return Err(self.wrong(0, "`?` alone in its field"));
        }
        let (first, last) = self.field.values();
        self.end(1, Item::span(self.field, first, last, 1))
    }

    /// Parses `L`, `L-3`, `LW` and `L-3W` as days of the month. In Quartz, `L` as a day of the week is Saturday.
    fn last(&self) -> Result<Item, CronError> {
        match (self.field, self.dialect) {
            (Field::DayOfMonth, _) => {}
            (Field::DayOfWeek, Dialect::Quartz) => return self.end(1, Item::Values(1 << 6)),
            (Field::DayOfWeek, Dialect::Vixie) => {
                return Err(self.error(0, "a day of the week before `L`", "5L"));
            }
            _ => return Err(self.wrong(0, self.field.value(self.dialect))),
        }
        let (mut days_before, mut end) = (0, 1);
        if self.byte(1) == Some(b'-') {
            let (number, after) = self.number(2).unwrap_or((u16::MAX, 2));
            if number > 30 {
                return Err(self.error(2, "a number of days before the last, from 0 to 30", "L-3"));
            }
            (days_before, end) = (number, after);
        }
        if matches!(self.byte(end), Some(b'W' | b'w')) {
            return self.end(end + 1, Item::WorkdayNearEnd(days_before));
        }
        self.end(end, Item::FromEnd(days_before))
    }

    /// Parses `H`, `H/15`, `H(0-29)` and `H(0-29)/10`: the seed determines the value, or the first value of the steps.
    fn hash(&self) -> Result<Item, CronError> {
        let (mut first, mut last) = self.field.values();
        if self.field == Field::DayOfMonth {
            // Day 28 exists in every month; Jenkins has the same limit.
            last = 28;
        }
        let mut end = 1;
        if self.byte(1) == Some(b'(') {
            let (from, after) = self.value(2)?;
            if self.byte(after) != Some(b'-') {
                return Err(self.error(after, "`-` between the first and the last value", "H(0-29)"));
            }
            let (until, after) = self.value(after + 1)?;
            self.ascending(from, until)?;
            if self.byte(after) != Some(b')') {
                return Err(self.error(after, "`)`", "H(0-29)"));
            }
            (first, last, end) = (from.kept, until.kept, after + 1);
        }
        self.hashed_span(first, last, end)
    }

    /// Parses `~`, `5~20`, `5~` and `~20`, which work like `H` between two values.
    fn random(&self, from: Option<Value>, tilde: usize) -> Result<Item, CronError> {
        let (first, last) = self.field.values();
        let mut end = tilde + 1;
        let mut until = None;
        if !matches!(self.byte(end), None | Some(b'/')) {
            let (value, after) = self.value(end)?;
            (until, end) = (Some(value), after);
        }
        if let (Some(from), Some(until)) = (from, until) {
            self.ascending(from, until)?;
        }
        self.hashed_span(from.map_or(first, |v| v.kept), until.map_or(last, |v| v.kept), end)
    }

    fn hashed_span(&self, first: u16, last: u16, end: usize) -> Result<Item, CronError> {
        let (step, end) = self.step(end)?;
        let last = last.max(first);
        let count = last - first + 1;
        let place = self.field as u64 * 64 + self.index as u64;
        let hash = mix(self.seed ^ mix(place));
        let offset = (hash % u64::from(step.unwrap_or(count).min(count))) as u16;
        let item = match step {
            None => Item::Values(1 << (first + offset)),
            Some(step) => Item::span(self.field, first + offset, last, step),
        };
        self.end(end, item)
    }

    /// Parses the rest of an item that starts with a value: a single value, a range, steps, `15W`, `5#3` or `5L`.
    fn item_from_value(&self, value: Value, mut end: usize) -> Result<Item, CronError> {
        let (_, last) = self.field.range(self.dialect);
        let last = self.field.crontab_value(last, self.dialect);
        let special = self.byte(end).map(|b| b.to_ascii_uppercase());
        match (self.field, special) {
            (Field::DayOfMonth, Some(b'W')) => return self.end(end + 1, Item::WorkdayNear(value.kept)),
            (Field::DayOfWeek, Some(b'L')) => return self.end(end + 1, Item::LastWeekday(value.kept % 7)),
            (Field::DayOfWeek, Some(b'#')) => {
                let (nth, after) = self.number(end + 1).unwrap_or((0, end + 1));
                if !(1..=5).contains(&nth) {
                    return Err(self.error(end + 1, "the occurrence in the month, from 1 to 5", "5#3"));
                }
                return self.end(after, Item::NthWeekday { weekday: value.kept % 7, nth });
            }
            _ => {}
        }
        let mut until = None;
        if special == Some(b'-') {
            let (value, after) = self.value(end + 1)?;
            (until, end) = (Some(value), after);
        }
        let (step, end) = self.step(end)?;
        let item = match (until, step) {
            (None, None) => Item::span(self.field, value.kept, value.kept, 1),
            (None, Some(step)) => Item::span(self.field, value.kept, last, step),
            (Some(until), step) => {
                let until = self.range_end(value, until)?;
                Item::span(self.field, value.kept, until, step.unwrap_or(1))
            }
        };
        self.end(end, item)
    }

    /// Returns the end of a range. If the range wraps around the end of the field, the end is in the next cycle.
    fn range_end(&self, first: Value, last: Value) -> Result<u16, CronError> {
        if first.kept <= last.kept {
            return Ok(last.kept);
        }
        // `FRI-SUN` is unambiguous, because Sunday is 7 as well as 0.
        if self.field == Field::DayOfWeek && last.is_name && last.kept == 0 {
            return Ok(7);
        }
        if self.dialect == Dialect::Quartz && self.field != Field::Year {
            return Ok(last.kept + self.field.cycle());
        }
        self.ascending(first, last).map(|()| last.kept)
    }

    fn ascending(&self, first: Value, last: Value) -> Result<(), CronError> {
        if first.kept <= last.kept {
            return Ok(());
        }
        let example = match self.field {
            Field::Hour => "22-23,0-4",
            Field::DayOfWeek => "6,0,1",
            Field::Month => "11-12,1-2",
            Field::DayOfMonth => "28-31,1-3",
            Field::Second | Field::Minute => "50-59,0-10",
            Field::Year => "2026-2030",
        };
        Err(self.error(last.at, "an end that is not less than the start of the range", example))
    }

    /// Parses a step such as `/15`, if the item has one at `at`. Also returns the position after it.
    fn step(&self, at: usize) -> Result<(Option<u16>, usize), CronError> {
        if self.byte(at) != Some(b'/') {
            return Ok((None, at));
        }
        let max = self.field.cycle();
        let (step, end) = self.number(at + 1).unwrap_or((0, at + 1));
        if !(1..=max).contains(&step) {
            let example = match self.field {
                Field::Minute if step > max => format!("every: {step}m"),
                Field::Second if step > max => format!("every: {step}s"),
                Field::Hour if step > max => format!("every: {step}h"),
                _ => "*/2".into(),
            };
            return Err(self.error(at + 1, format!("a step from 1 to {max}"), example));
        }
        Ok((Some(step), end))
    }

    /// Parses a number or a name. Also returns the position after it.
    fn value(&self, at: usize) -> Result<(Value, usize), CronError> {
        let (min, max) = self.field.range(self.dialect);
        if let Some((number, end)) = self.number(at) {
            if (min..=max).contains(&number) {
                let kept = self.field.crontab_value(number, self.dialect);
                return Ok((Value { kept, is_name: false, at }, end));
            }
        } else if let Some(name) = self.piece.get(at..at + 3)
            && let Some(kept) = self.field.named(name)
        {
            return Ok((Value { kept, is_name: true, at }, at + 3));
        }
        Err(self.wrong(at, self.field.value(self.dialect)))
    }

    /// Parses a number; a number that is too large becomes the maximum. Also returns the position after it.
    fn number(&self, at: usize) -> Option<(u16, usize)> {
        let rest = self.piece.get(at..)?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        (digits > 0).then(|| (rest[..digits].parse().unwrap_or(u16::MAX), at + digits))
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.piece.as_bytes().get(at).copied()
    }

    /// Returns the item if the text ends at `at`.
    fn end(&self, at: usize, item: Item) -> Result<Item, CronError> {
        if at >= self.piece.len() {
            return Ok(item);
        }
        Err(self.error(at, "the end of the item, or `,` and another item", self.field.example(self.dialect)))
    }

    fn wrong(&self, at: usize, expected: &'static str) -> CronError {
        self.error(at, expected, self.field.example(self.dialect))
    }

    fn error(
        &self,
        at: usize,
        expected: impl Into<std::borrow::Cow<'static, str>>,
        example: impl Into<String>,
    ) -> CronError {
        let rest = self.piece.get(at..).unwrap_or_default();
        // The message shows a complete number or word, or the first character of other text.
        let word = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let mut found = &rest[..word.max(first)];
        if rest.is_empty() && self.begin + at < self.text.len() {
            found = if self.text.as_bytes().get(self.begin + at) == Some(&b',') { "," } else { " " };
        }
        CronError::new(self.text, self.begin + at, found, expected, example)
    }
}

impl Item {
    /// Returns the values from the first to the last, which may be in the next cycle.
    fn span(field: Field, first: u16, last: u16, step: u16) -> Self {
        if field == Field::Year {
            return Self::Years { first, last, step };
        }
        let (lowest, highest) = field.values();
        let wraps = last > highest.max(if field == Field::DayOfWeek { 7 } else { 0 });
        let mut bits = 0;
        for value in (first..=last).step_by(step.into()) {
            let value = if wraps { lowest + (value - lowest) % field.cycle() } else { value };
            bits |= 1_u64 << value;
        }
        Self::Values(bits)
    }
}

fn plain(item: Item) -> (Item, bool) {
    (item, false)
}

fn hashed(item: Item) -> (Item, bool) {
    (item, true)
}

/// Hashes a number with the finalizer of SplitMix64 (G. Steele et al., 2014).
const fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
