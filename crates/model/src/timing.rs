//! When: the rules of time that a schedule is made of, as a user writes them.
//!
//! A [`Timing`] is the union of its rules, minus what its filters take away, read in one time zone.
//! These are words only; what instants they come to is computed by the `timetable` crate, which also
//! says what is wrong with an expression.

use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::{Duration, Timestamp};

/// The zone of whoever names none.
pub const UTC: &str = "UTC";

fn utc() -> String {
    UTC.to_owned()
}

/// When something is to happen: a union of rules, minus filters, in a time zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// The instants of all of them together, each once. None: on demand only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// An instant counts only if all of these let it through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Filter>,
    /// An instant does not count if one of these holds it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<Filter>,
    /// Moves an instant of a day that is not a working day to one that is, at the same time of day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roll: Option<Roll>,
    /// The IANA time zone that wall-clock times are read in, such as `Asia/Shanghai`.
    #[serde(default = "utc")]
    pub zone: String,
    /// What becomes of wall-clock times that a change of the clocks skips or repeats.
    #[serde(default, skip_serializing_if = "Dst::is_default")]
    pub dst: Dst,
    /// No instant before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    /// No instant after this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            only: Vec::new(),
            exclude: Vec::new(),
            roll: None,
            zone: utc(),
            dst: Dst::default(),
            start: None,
            end: None,
        }
    }
}

/// One rule of a timing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rule {
    /// A cron expression: `"0 2 * * *"`, or `{expression, dialect}`.
    Cron(Cron),
    /// A fixed rate on a grid: `15m`, or `{period, phase}`.
    Every(Every),
    /// A fixed delay from the end of the last run; the first is this long after the schedule was made.
    After(Duration),
    /// One time: an instant (`2026-12-01T09:00:00Z`), or a local time in the zone (`2026-12-01T09:00`).
    At(String),
    /// Calendar intervals: every month, every second Friday.
    Calendar(CalendarRule),
}

/// A cron expression and how it is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    /// 5 fields (minute hour day-of-month month day-of-week), 6 (seconds first) or 7 (year last), or
    /// a word such as `@daily`.
    pub expression: String,
    /// Which cron it is written for.
    pub dialect: Dialect,
}

/// Which cron an expression is written for: they differ in what two day fields mean together.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// crontab(5): a day matches if day-of-month OR day-of-week does, where both are restricted and
    /// neither begins with `*`; Sunday is 0 or 7. Belfry's extensions (seconds, years, `L`, `W`, `#`,
    /// `?`, `H`, `~`) may be used.
    #[default]
    Vixie,
    /// Quartz: seconds first, 6 or 7 fields; day-of-month AND day-of-week, one of them `?`; Sunday is 1.
    Quartz,
}

impl Cron {
    /// In the default dialect.
    pub fn new(expression: impl Into<String>) -> Self {
        Self { expression: expression.into(), dialect: Dialect::default() }
    }
}

/// A fixed rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Every {
    /// From one instant to the next; at least a second.
    pub period: Duration,
    /// Where the grid lies: instants are at `epoch + n * period + phase`, with the Unix epoch.
    pub phase: Duration,
}

/// A rule of the calendar: on these days of every so many days, weeks, months or years.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CalendarRule {
    /// How many units from one to the next.
    #[serde(default = "one")]
    pub every: u32,
    /// What is counted.
    pub unit: CalendarUnit,
    /// For `years`: which months, 1 to 12; the month of `from` where absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub months: Vec<i8>,
    /// For `months` and `years`: which days of the month, 1 to 31, or from its end: -1 is the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<i8>,
    /// Which weekdays; with `months` and `years` those that `nth` names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weekdays: Vec<Weekday>,
    /// For `months` and `years` with `weekdays`: which of them in the month, 1 to 5, or from its end;
    /// all where absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nth: Vec<i8>,
    /// At which times of the day, `HH:MM` or `HH:MM:SS`; midnight where absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<String>,
    /// The first day; units are counted from the one that it lies in. Weeks begin on Monday.
    /// 2000-01-01 (for weeks 2000-01-03) where absent, and then there is no first day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Date>,
}

const fn one() -> u32 {
    1
}

/// What a calendar rule counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum CalendarUnit {
    Days,
    Weeks,
    Months,
    Years,
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Weekday {
    #[serde(alias = "mon")]
    Monday,
    #[serde(alias = "tue")]
    Tuesday,
    #[serde(alias = "wed")]
    Wednesday,
    #[serde(alias = "thu")]
    Thursday,
    #[serde(alias = "fri")]
    Friday,
    #[serde(alias = "sat")]
    Saturday,
    #[serde(alias = "sun")]
    Sunday,
}

/// A set of wall-clock times, to let instants through or to hold them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Filter {
    /// The days of a named calendar.
    Calendar(String),
    /// These days of the week.
    Weekdays(Vec<Weekday>),
    /// A part of every day.
    Window(Window),
    /// These days.
    Dates(Vec<DateRange>),
    /// What a cron expression names: whole minutes, or seconds where it has a field for them.
    Cron(Cron),
}

/// A part of the day, `from` inclusive to `until` exclusive; past midnight if `until` is not later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// `HH:MM` or `HH:MM:SS`.
    pub from: String,
    /// `HH:MM` or `HH:MM:SS`.
    pub until: String,
    /// On these days of the week, by the day on which it begins; on all where absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weekdays: Vec<Weekday>,
}

/// A day, or days from one to another, both included: `2026-10-01`, or `2026-10-01..2026-10-07`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DateRange {
    /// The first.
    pub first: Date,
    /// The last; not before the first.
    pub last: Date,
}

/// How instants leave days that do not count as working days.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Roll {
    /// Where to.
    pub to: RollTo,
    /// The calendar of working days.
    pub calendar: String,
}

/// Where a roll goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RollTo {
    /// The first working day after.
    Next,
    /// The last working day before.
    Previous,
}

/// What becomes of wall-clock times that a change of the clocks skips or repeats.
///
/// Where nothing is chosen, rules do as crontab does: a fixed time (`30 2 * * *`) that is skipped
/// fires at the end of the gap, and one that is repeated fires the first time only; what repeats
/// through the day (`*/15 * * * *`) follows the clock on the wall: nothing in the gap, and both times
/// in the overlap.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(deny_unknown_fields, default)]
pub struct Dst {
    /// For a time that the clocks leap over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// For a time that the clocks show twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Fold>,
}

impl Dst {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// For a time that the clocks leap over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gap {
    /// It does not fire that day.
    Skip,
    /// It fires at the end of the gap; several of them there are one.
    Shift,
}

/// For a time that the clocks show twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fold {
    /// It fires the first time only.
    First,
    /// It fires both times.
    Both,
}

mod text {
    //! Rules that may be written as a plain text or as an object.

    use std::fmt;
    use std::str::FromStr;

    use serde::de::{self, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
    use serde::ser::Serializer;
    use serde::{Deserialize, Serialize};
    use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
    use utoipa::openapi::{RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    use super::{Cron, DateRange, Dialect, Every};
    use crate::time::Duration;

    #[derive(Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    struct CronObject {
        expression: String,
        #[serde(default)]
        dialect: Dialect,
    }

    #[derive(Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    struct EveryObject {
        period: Duration,
        #[serde(default)]
        phase: Duration,
    }

    struct TextOr<T, F> {
        expected: &'static str,
        from_text: F,
        from_map: std::marker::PhantomData<T>,
    }

    impl<'de, T, O, F> Visitor<'de> for TextOr<(T, O), F>
    where
        O: Deserialize<'de> + Into<T>,
        F: FnOnce(&str) -> Result<T, String>,
    {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.expected)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            (self.from_text)(text).map_err(E::custom)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            O::deserialize(MapAccessDeserializer::new(map)).map(Into::into)
        }
    }

    impl From<CronObject> for Cron {
        fn from(o: CronObject) -> Self {
            Self { expression: o.expression, dialect: o.dialect }
        }
    }

    impl From<EveryObject> for Every {
        fn from(o: EveryObject) -> Self {
            Self { period: o.period, phase: o.phase }
        }
    }

    impl<'de> Deserialize<'de> for Cron {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            d.deserialize_any(TextOr::<(Self, CronObject), _> {
                expected: "a cron expression, or an object with `expression` and `dialect`",
                from_text: |text: &str| Ok(Self::new(text)),
                from_map: std::marker::PhantomData,
            })
        }
    }

    impl Serialize for Cron {
        fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            if self.dialect == Dialect::default() {
                return s.serialize_str(&self.expression);
            }
            CronObject { expression: self.expression.clone(), dialect: self.dialect }.serialize(s)
        }
    }

    impl<'de> Deserialize<'de> for Every {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            d.deserialize_any(TextOr::<(Self, EveryObject), _> {
                expected: "a duration such as `15m`, or an object with `period` and `phase`",
                from_text: |text: &str| {
                    let period = text.parse().map_err(|e: crate::time::ParseDurationError| e.to_string())?;
                    Ok(Self { period, phase: Duration::ZERO })
                },
                from_map: std::marker::PhantomData,
            })
        }
    }

    impl Serialize for Every {
        fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            if self.phase == Duration::ZERO {
                return self.period.serialize(s);
            }
            EveryObject { period: self.period, phase: self.phase }.serialize(s)
        }
    }

    fn text_or(description: &str, example: &str, object: RefOr<Schema>) -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String).examples([example]);
        OneOfBuilder::new().item(text).item(object).description(Some(description)).into()
    }

    impl PartialSchema for Cron {
        fn schema() -> RefOr<Schema> {
            text_or("A cron expression", "0 2 * * *", CronObject::schema())
        }
    }

    impl ToSchema for Cron {
        fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            schemas.push((Dialect::name().into_owned(), Dialect::schema()));
        }
    }

    impl PartialSchema for Every {
        fn schema() -> RefOr<Schema> {
            text_or("A fixed rate on a grid", "15m", EveryObject::schema())
        }
    }

    impl ToSchema for Every {}

    /// Why a text is no day or range of days.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    #[error(
        "`{text}` is not a day: expected `2026-10-01`, or `2026-10-01..2026-10-07` with the last not before the first"
    )]
    pub struct ParseDateRangeError {
        text: String,
    }

    impl FromStr for DateRange {
        type Err = ParseDateRangeError;

        fn from_str(text: &str) -> Result<Self, ParseDateRangeError> {
            let error = || ParseDateRangeError { text: text.chars().take(64).collect() };
            let (first, last) = text.split_once("..").unwrap_or((text, text));
            let first = first.trim().parse().map_err(|_| error())?;
            let last = last.trim().parse().map_err(|_| error())?;
            if first <= last { Ok(Self { first, last }) } else { Err(error()) }
        }
    }

    impl fmt::Display for DateRange {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            if self.first == self.last {
                return write!(f, "{}", self.first);
            }
            write!(f, "{}..{}", self.first, self.last)
        }
    }

    impl Serialize for DateRange {
        fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            s.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for DateRange {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
            text.parse().map_err(de::Error::custom)
        }
    }

    impl PartialSchema for DateRange {
        fn schema() -> RefOr<Schema> {
            ObjectBuilder::new()
                .schema_type(Type::String)
                .examples(["2026-10-01..2026-10-07"])
                .description(Some("A day, or days from one to another, both included"))
                .into()
        }
    }

    impl ToSchema for DateRange {}
}

pub use text::ParseDateRangeError;
