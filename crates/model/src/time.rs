//! Points in time and durations.
//!
//! The engine calculates in microseconds and never reads a clock. The text form of a point in time is RFC 3339 in
//! UTC, that of a duration is `1h30m`. Time zones are handled by the callers, with `jiff`.
//!
//! # Invariants
//! Arithmetic saturates: no sum or difference overflows or panics.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Point in time in UTC, with microsecond precision.
///
/// JSON contains it as RFC 3339 with `Z`; binary encodings contain Unix microseconds. `Option<Timestamp>` has the
/// same size, which matters because a live job has five of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(
    // Unix microseconds with the sign bit inverted, so that the unsigned values sort by time; 0 is not used.
    NonZeroU64,
);

const SIGN: u64 = 1 << 63;

impl Timestamp {
    /// Maximum value; later than every time that a user can enter.
    pub const MAX: Self = Self::from_micros(i64::MAX);

    /// Creates a timestamp from Unix microseconds. `i64::MIN` becomes `i64::MIN + 1`.
    pub const fn from_micros(micros: i64) -> Self {
        match NonZeroU64::new(micros.cast_unsigned() ^ SIGN) {
            Some(turned) => Self(turned),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// Creates a timestamp from Unix milliseconds; saturates.
    pub const fn from_millis(millis: i64) -> Self {
        Self::from_micros(millis.saturating_mul(1_000))
    }

    /// Returns Unix microseconds.
    pub const fn as_micros(self) -> i64 {
        (self.0.get() ^ SIGN).cast_signed()
    }

    /// Returns Unix milliseconds, rounded down.
    pub const fn as_millis(self) -> i64 {
        self.as_micros().div_euclid(1_000)
    }

    /// Rounds down to a multiple of a length, counted from 1970.
    pub fn floor(self, length: Duration) -> Self {
        let length = i64::try_from(length.as_millis()).unwrap_or(i64::MAX).saturating_mul(1_000).max(1);
        Self::from_micros(self.as_micros() - self.as_micros().rem_euclid(length))
    }

    /// Returns the duration from `earlier` to this time, in whole milliseconds; zero if `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration(u64::try_from(self.as_micros().saturating_sub(earlier.as_micros()) / 1_000).unwrap_or(0))
    }
}

/// Returns the Unix epoch, 1970-01-01T00:00:00Z.
impl Default for Timestamp {
    fn default() -> Self {
        Self::from_micros(0)
    }
}

fn micros_of(duration: Duration) -> i64 {
    i64::try_from(duration.0.saturating_mul(1_000)).unwrap_or(i64::MAX)
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self::from_micros(self.as_micros().saturating_add(micros_of(duration)))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self::from_micros(self.as_micros().saturating_sub(micros_of(duration)))
    }
}

impl From<jiff::Timestamp> for Timestamp {
    fn from(t: jiff::Timestamp) -> Self {
        Self::from_micros(t.as_microsecond())
    }
}

impl From<Timestamp> for jiff::Timestamp {
    fn from(t: Timestamp) -> Self {
        Self::from_microsecond(t.as_micros()).unwrap_or(Self::MAX)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        jiff::Timestamp::from(*self).fmt(f)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        text.parse::<jiff::Timestamp>().map(Self::from)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() { s.collect_str(self) } else { self.as_micros().serialize(s) }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if d.is_human_readable() {
            let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
            text.parse().map_err(|error| {
                serde::de::Error::custom(format!(
                    "`{text}` is not a time ({error}): expected RFC 3339, such as 2026-11-21T08:00:00Z"
                ))
            })
        } else {
            i64::deserialize(d).map(Self::from_micros)
        }
    }
}

impl utoipa::PartialSchema for Timestamp {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .format(Some(utoipa::openapi::SchemaFormat::KnownFormat(utoipa::openapi::KnownFormat::DateTime)))
            .examples(["2026-11-21T08:00:00Z"])
            .into()
    }
}

impl utoipa::ToSchema for Timestamp {}

/// Duration with millisecond precision, never negative.
///
/// Its text form is like `90s`, `1h30m` or `250ms`. A number without a unit is an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Duration {
    /// Duration of zero.
    pub const ZERO: Self = Self(0);

    /// Creates a duration from milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Creates a duration from seconds; saturates.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    /// Creates a duration from hours; saturates.
    pub const fn from_hours(hours: u64) -> Self {
        Self::from_secs(hours.saturating_mul(3_600))
    }

    /// Returns the duration in milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns this duration minus `other`, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Converts to the duration of `std` and tokio.
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

impl std::ops::Add for Duration {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl From<std::time::Duration> for Duration {
    fn from(d: std::time::Duration) -> Self {
        Self(u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, millis) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
            if rest >= millis {
                write!(f, "{}{unit}", rest / millis)?;
                rest %= millis;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a duration: expected a number with a unit, such as `500ms`, `90s`, `1h30m` or `2d`")]
pub struct ParseDurationError {
    text: String,
}

impl FromStr for Duration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, ParseDurationError> {
        let error = || ParseDurationError { text: text.chars().take(64).collect() };
        // The spans of jiff allow days only with a calendar. Here a day is always 24 hours.
        let (days, rest) = match text.split_once('d') {
            Some((days, rest)) => (days.trim().parse::<u64>().map_err(|_| error())?, rest.trim()),
            None => (0, text.trim()),
        };
        let rest = if rest.is_empty() && text.contains('d') {
            0
        } else {
            let parsed = rest.parse::<jiff::SignedDuration>().map_err(|_| error())?;
            u64::try_from(parsed.as_millis()).map_err(|_| error())?
        };
        Ok(Self(days.checked_mul(86_400_000).and_then(|d| d.checked_add(rest)).ok_or_else(error)?))
    }
}

impl Serialize for Duration {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() { s.collect_str(self) } else { self.0.serialize(s) }
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if d.is_human_readable() {
            let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
            text.parse().map_err(serde::de::Error::custom)
        } else {
            u64::deserialize(d).map(Self)
        }
    }
}

impl utoipa::PartialSchema for Duration {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .examples(["90s"])
            .min_length(Some(2))
            .pattern(Some("^([0-9]{1,9}d)?([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?([0-9]{1,9}ms)?$"))
            .description(Some("Duration with units, for example `500ms`, `90s`, `1h30m` or `2d`"))
            .into()
    }
}

impl utoipa::ToSchema for Duration {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_shown_in_the_same_form() {
        for text in ["0s", "250ms", "90s", "1h30m", "2d", "1d1h1m1s1ms"] {
            let parsed: Duration = text.parse().unwrap();
            let shown = parsed.to_string();
            assert_eq!(shown.parse::<Duration>().unwrap(), parsed, "{text} was shown as {shown}");
        }
        assert_eq!("90s".parse::<Duration>().unwrap().to_string(), "1m30s");
        assert_eq!("2 days".parse::<Duration>().ok(), None);
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in ["", "90", "-5s", "d", "1y", "x", "1e9h", "99999999999999999999s"] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
    }

    #[test]
    fn timestamps_are_rfc_3339_in_utc() {
        let t: Timestamp = "2026-11-21T09:00:00.25+01:00".parse().unwrap();
        assert_eq!(t.to_string(), "2026-11-21T08:00:00.25Z");
        assert_eq!(serde_json::to_string(&t).unwrap(), r#""2026-11-21T08:00:00.25Z""#);
    }

    #[test]
    fn timestamps_sort_by_time_and_an_option_has_the_same_size() {
        let micros = [i64::MIN + 1, -1, 0, 1, 1_795_000_000_000_000, i64::MAX];
        assert!(micros.map(Timestamp::from_micros).is_sorted());
        assert_eq!(micros.map(|micros| Timestamp::from_micros(micros).as_micros()), micros);
        assert_eq!(Timestamp::from_micros(i64::MIN), Timestamp::from_micros(i64::MIN + 1));
        assert_eq!(Timestamp::default().as_micros(), 0);
        assert_eq!(size_of::<Option<Timestamp>>(), 8);
    }

    #[test]
    fn timestamp_arithmetic_saturates() {
        assert_eq!(Timestamp::from_millis(5).since(Timestamp::from_millis(9)), Duration::ZERO);
        assert_eq!(Timestamp::MAX + Duration::from_secs(1), Timestamp::MAX);
    }
}
