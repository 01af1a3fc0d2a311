//! Rules of time of a schedule, as a user writes them.
//!
//! A [`Timing`] is the union of its rules, without the times that its filters exclude, in one time zone. This module
//! only defines the form of the rules. The `timetable` crate computes the scheduled times, and checks cron
//! expressions and time zones.

use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::{Duration, Timestamp};

/// Default time zone of a timing.
pub const UTC: &str = "UTC";

fn utc() -> String {
    UTC.to_owned()
}

/// Scheduled times: the union of all rules, without the times that filters exclude, in one time zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// Rules of the scheduled times, at most 64. A time that several rules name counts once [default: no rules; the
    /// schedule fires only when it is triggered].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// Filters that a time must match, at most 64; the schedule fires only at times that match all of them [default: no
    /// filter].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Filter>,
    /// Filters that exclude times, at most 64; the schedule does not fire at a time that matches one of them [default:
    /// no filter].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<Filter>,
    /// Moves a time on a non-working day to a working day, at the same time of day [default: times are not moved].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roll: Option<Roll>,
    /// Time zone of the wall-clock times in rules and filters, as an IANA name such as `Asia/Shanghai`
    /// [default: `UTC`].
    #[serde(default = "utc")]
    pub zone: String,
    /// Treatment of wall-clock times that a change to or from daylight saving time skips or repeats.
    #[serde(default, skip_serializing_if = "Dst::is_default")]
    pub dst: Dst,
    /// Earliest scheduled time, in UTC [default: unlimited].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    /// Latest scheduled time, in UTC [default: unlimited].
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

/// One rule that names scheduled times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rule {
    /// Cron expression, for example `"0 2 * * *"`, or an object with `expression` and `dialect`.
    Cron(Cron),
    /// Fixed rate: a period such as `15m`, or an object with `period` and `phase`. Times lie on a fixed grid,
    /// independent of the duration of runs.
    Every(Every),
    /// Fixed delay after the end of the last run. The first firing comes this long after the schedule was created. At
    /// most one such rule.
    After(Duration),
    /// A single time: in UTC (`2026-12-01T09:00:00Z`), or a local time in the time zone of the schedule
    /// (`2026-12-01T09:00`).
    At(String),
    /// Calendar rule, for example every month or every second Friday.
    Calendar(CalendarRule),
}

/// A cron expression and its dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    /// Cron expression. 5 fields: minute, hour, day of month, month, day of week. 6 fields start with seconds; 7
    /// fields also end with the year. A name such as `@daily` is also allowed.
    pub expression: String,
    /// Dialect of the expression.
    pub dialect: Dialect,
}

/// Dialect of a cron expression. The dialects differ in the meaning of two restricted day fields, and in the number
/// of Sunday.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// crontab(5). If both day fields are restricted and neither starts with `*`, a day matches if one of them
    /// matches. Sunday is 0 or 7. The extensions of Belfry are allowed: seconds, years, `L`, `W`, `#`, `?`, `H` and
    /// `~`.
    #[default]
    Vixie,
    /// Quartz. 6 or 7 fields, seconds first. A day must match both day fields, one of which is `?`. Sunday is 1.
    Quartz,
}

impl Cron {
    /// Returns a cron expression in the default dialect.
    pub fn new(expression: impl Into<String>) -> Self {
        Self { expression: expression.into(), dialect: Dialect::default() }
    }
}

/// A fixed rate: times at `epoch + n × period + phase`, with the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Every {
    /// Time between two firings; at least 1s.
    pub period: Duration,
    /// Offset of the times from multiples of the period since the Unix epoch.
    pub phase: Duration,
}

/// Calendar rule: days in every n-th day, week, month or year, and times of day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CalendarRule {
    /// Interval in units: 2 with the unit `weeks` is every second week [default: 1].
    #[serde(default = "one")]
    pub every: u32,
    /// Unit of the interval: days, weeks, months or years.
    pub unit: CalendarUnit,
    /// Months of the year, 1 to 12, for the unit `years` [default: the month of `from`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub months: Vec<i8>,
    /// Days of the month for the units `months` and `years`: 1 to 31, or -1 to -31 from the end of the month; -1 is
    /// the last day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<i8>,
    /// Days of the week. With the units `months` and `years`, `nth` selects which of these days in the month.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weekdays: Vec<Weekday>,
    /// Occurrences of the weekdays in the month, for the units `months` and `years`: 1 to 5, or -1 to -5 from the end
    /// of the month [default: all occurrences].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nth: Vec<i8>,
    /// Times of day, as `HH:MM` or `HH:MM:SS` [default: midnight].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<String>,
    /// First day of the rule. Intervals are counted from the unit that contains this day; weeks start on Monday
    /// [default: no first day, and intervals are counted from 2000-01-01 (weeks: 2000-01-03)].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Date>,
}

const fn one() -> u32 {
    1
}

/// Unit of the interval of a calendar rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum CalendarUnit {
    Days,
    Weeks,
    Months,
    Years,
}

/// Day of the week; in files also in its short form, for example `mon`.
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

/// A filter of scheduled times by day, time of day, calendar or cron expression.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Filter {
    /// Name of a calendar; a time matches if its day is in the calendar.
    Calendar(String),
    /// Days of the week.
    Weekdays(Vec<Weekday>),
    /// Time window of each day.
    Window(Window),
    /// Single days and ranges of days.
    Dates(Vec<DateRange>),
    /// Cron expression; a time matches if its minute matches, or its second if the expression has a field for
    /// seconds.
    Cron(Cron),
}

/// A time window of the day, from `from` (inclusive) to `until` (exclusive). It ends on the next day if `until` is
/// not later than `from`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Start of the window (inclusive), as `HH:MM` or `HH:MM:SS`.
    pub from: String,
    /// End of the window (exclusive), as `HH:MM` or `HH:MM:SS`.
    pub until: String,
    /// Days of the week on which the window starts [default: all days].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weekdays: Vec<Weekday>,
}

/// A day (`2026-10-01`), or a range of days with both ends included (`2026-10-01..2026-10-07`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DateRange {
    /// First day of the range.
    pub first: Date,
    /// Last day of the range (inclusive); not before the first.
    pub last: Date,
}

/// Moves times on non-working days to working days.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Roll {
    /// Direction: to the next or to the previous working day.
    pub to: RollTo,
    /// Name of the calendar of working days.
    pub calendar: String,
}

/// Direction in which a time on a non-working day is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RollTo {
    /// To the next working day.
    Next,
    /// To the previous working day.
    Previous,
}

/// Treatment of wall-clock times that a change to or from daylight saving time skips or repeats.
///
/// The defaults are those of crontab. A fixed time (`30 2 * * *`) that is skipped fires at the end of the gap; a
/// repeated one fires the first time only. A repeating time (`*/15 * * * *`) follows the wall clock: it does not fire
/// in the gap, and fires both times in the overlap.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(deny_unknown_fields, default)]
pub struct Dst {
    /// Treatment of a time that is skipped when clocks go forward [default: a fixed time fires at the end of the gap, a
    /// repeating time does not fire].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// Treatment of a time that is repeated when clocks go back [default: a fixed time fires the first time only, a
    /// repeating time fires both times].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Fold>,
}

impl Dst {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Treatment of a time that is skipped when clocks go forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gap {
    /// The schedule does not fire at the skipped time.
    Skip,
    /// The schedule fires at the end of the gap. Several skipped times are merged into one firing.
    Shift,
}

/// Treatment of a time that is repeated when clocks go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fold {
    /// The schedule fires the first time only.
    First,
    /// The schedule fires both times.
    Both,
}

mod text {
    //! Parsing and schemas of rules that are either a text or an object.

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
        /// Cron expression. 5 fields: minute, hour, day of month, month, day of week. 6 fields start with seconds; 7
        /// fields also end with the year. A name such as `@daily` is also allowed.
        expression: String,
        /// Dialect of the expression [default: `vixie`].
        #[serde(default)]
        dialect: Dialect,
    }

    #[derive(Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    struct EveryObject {
        /// Time between two firings; at least 1s.
        period: Duration,
        /// Offset of the times from multiples of the period since the Unix epoch [default: `0s`].
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
            text_or(
                "A cron expression, as a text or as an object with its dialect.",
                "0 2 * * *",
                CronObject::schema(),
            )
        }
    }

    impl ToSchema for Cron {
        fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            schemas.push((Dialect::name().into_owned(), Dialect::schema()));
        }
    }

    impl PartialSchema for Every {
        fn schema() -> RefOr<Schema> {
            text_or(
                "A fixed rate, as a period or as an object with period and phase.",
                "15m",
                EveryObject::schema(),
            )
        }
    }

    impl ToSchema for Every {}

    /// Text that is not a day or a range of days.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    #[error(
        "`{text}` is not a day or range of days: expected `2026-10-01`, or `2026-10-01..2026-10-07` in ascending order"
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
                .description(Some("A day, or a range of days with both ends included."))
                .into()
        }
    }

    impl ToSchema for DateRange {}
}

pub use text::ParseDateRangeError;
