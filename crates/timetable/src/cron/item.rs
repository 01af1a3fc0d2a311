//! One item of a field: what stands between two commas.

use model::timing::Dialect;

use super::error::CronError;
use super::field::Field;

/// What an item names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    /// Values, as bits; 7 as a day of the week is Sunday too.
    Values(u64),
    /// Years, which are too many for bits.
    Years { first: u16, last: u16, step: u16 },
    /// So many days before the last of the month: `L`, `L-3`.
    FromEnd(u16),
    /// The workday nearest to a day: `15W`.
    WorkdayNear(u16),
    /// The workday nearest to so many days before the last: `LW`.
    WorkdayNearEnd(u16),
    /// `5#3`.
    NthWeekday { weekday: u16, nth: u16 },
    /// `5L`.
    LastWeekday(u16),
}

/// An item, and all that its reading depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    /// The whole expression.
    pub(super) text: &'a str,
    /// Where the item begins in it.
    pub(super) begin: usize,
    pub(super) piece: &'a str,
    /// Whether it is the only one of its field.
    pub(super) alone: bool,
    pub(super) field: Field,
    pub(super) dialect: Dialect,
    pub(super) seed: u64,
    /// Which item of its field it is.
    pub(super) index: usize,
}

/// A value as it is kept, and whether it was written as a name.
#[derive(Clone, Copy)]
struct Value {
    kept: u16,
    is_name: bool,
    /// Where it stands in the item.
    at: usize,
}

impl<'a> Context<'a> {
    /// Reads it; also whether it is a hashed one.
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
                self.beginning_with(value, end).map(plain)
            }
        }
    }

    /// `?`: whatever the other day field says.
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

    /// `L`, `L-3`, `LW`, `L-3W` as days of the month; `L` as a day of the week is Saturday in Quartz.
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

    /// `H`, `H/15`, `H(0-29)`, `H(0-29)/10`: a value, or a first value, that the seed decides.
    fn hash(&self) -> Result<Item, CronError> {
        let (mut first, mut last) = self.field.values();
        if self.field == Field::DayOfMonth {
            // A day that every month has, as Jenkins does.
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

    /// `~`, `5~20`, `5~`, `~20`: as `H` between two values.
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

    /// What begins with a value: itself, a range, steps, `15W`, `5#3`, `5L`.
    fn beginning_with(&self, value: Value, mut end: usize) -> Result<Item, CronError> {
        let (_, last) = self.field.range(self.dialect);
        let last = self.field.kept(last, self.dialect);
        let special = self.byte(end).map(|b| b.to_ascii_uppercase());
        match (self.field, special) {
            (Field::DayOfMonth, Some(b'W')) => return self.end(end + 1, Item::WorkdayNear(value.kept)),
            (Field::DayOfWeek, Some(b'L')) => return self.end(end + 1, Item::LastWeekday(value.kept % 7)),
            (Field::DayOfWeek, Some(b'#')) => {
                let (nth, after) = self.number(end + 1).unwrap_or((0, end + 1));
                if !(1..=5).contains(&nth) {
                    return Err(self.error(end + 1, "which one of the month, from 1 to 5", "5#3"));
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

    /// The end of a range, which lies in the next round where a range runs past the end of its field.
    fn range_end(&self, first: Value, last: Value) -> Result<u16, CronError> {
        if first.kept <= last.kept {
            return Ok(last.kept);
        }
        // `FRI-SUN` can mean one thing only; Sunday is 7 as well as 0.
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
        Err(self.error(last.at, "a value that is not before the first of its range", example))
    }

    /// `/15`, if it stands there.
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

    /// A number or a name, as it is kept.
    fn value(&self, at: usize) -> Result<(Value, usize), CronError> {
        let (min, max) = self.field.range(self.dialect);
        if let Some((number, end)) = self.number(at) {
            if (min..=max).contains(&number) {
                let kept = self.field.kept(number, self.dialect);
                return Ok((Value { kept, is_name: false, at }, end));
            }
        } else if let Some(name) = self.piece.get(at..at + 3)
            && let Some(kept) = self.field.named(name)
        {
            return Ok((Value { kept, is_name: true, at }, at + 3));
        }
        Err(self.wrong(at, self.field.value(self.dialect)))
    }

    /// A number, too large ones as the largest.
    fn number(&self, at: usize) -> Option<(u16, usize)> {
        let rest = self.piece.get(at..)?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        (digits > 0).then(|| (rest[..digits].parse().unwrap_or(u16::MAX), at + digits))
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.piece.as_bytes().get(at).copied()
    }

    /// The item, if nothing is left after it.
    fn end(&self, at: usize, item: Item) -> Result<Item, CronError> {
        if at >= self.piece.len() {
            return Ok(item);
        }
        Err(self.error(at, "the end of the item, or `,` and another one", self.field.example(self.dialect)))
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
        // A number or a word is shown whole, anything else by its first character.
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
    /// Values from the first to the last, which may lie in the next round.
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

/// Spreads the bits of a number evenly: the finalizer of SplitMix64 (G. Steele et al., 2014).
const fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
