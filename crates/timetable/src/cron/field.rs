//! Fields of a cron expression: their values, and the names of values in expressions and messages.

use model::timing::Dialect;

/// Field of a cron expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Second,
    Minute,
    Hour,
    DayOfMonth,
    Month,
    DayOfWeek,
    Year,
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// First year that `*` matches.
const FIRST_YEAR: u16 = 1970;

impl Field {
    /// All fields, in the order of an expression with seven fields.
    pub(crate) const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::DayOfMonth, Self::Month, Self::DayOfWeek, Self::Year];

    /// Returns the minimum and the maximum number that an expression may contain.
    pub(super) const fn range(self, dialect: Dialect) -> (u16, u16) {
        match self {
            Self::Second | Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => match dialect {
                Dialect::Vixie => (0, 7),
                Dialect::Quartz => (1, 7),
            },
            Self::Year => (FIRST_YEAR, crate::civil::YEAR_MAX as u16),
        }
    }

    /// Returns the first and the last value that `*` matches, in the numbering of crontab: Sunday is 0.
    pub(crate) const fn values(self) -> (u16, u16) {
        match self {
            Self::DayOfWeek => (0, 6),
            _ => self.range(Dialect::Vixie),
        }
    }

    /// Returns the number of values of the field: the length of its cycle.
    pub(super) const fn cycle(self) -> u16 {
        let (first, last) = self.values();
        last - first + 1
    }

    /// Converts a number of an expression to the numbering of crontab.
    pub(super) const fn crontab_value(self, written: u16, dialect: Dialect) -> u16 {
        match (self, dialect) {
            (Self::DayOfWeek, Dialect::Quartz) => written - 1,
            _ => written,
        }
    }

    /// Returns the value of a three-letter name in any case, in the numbering of crontab.
    pub(super) fn named(self, name: &str) -> Option<u16> {
        let (names, first): (&[&str], u16) = match self {
            Self::Month => (&MONTHS, 1),
            Self::DayOfWeek => (&WEEKDAYS, 0),
            _ => return None,
        };
        let index = names.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Some(first + index as u16)
    }

    /// Returns the description of a valid value, for messages.
    pub(super) const fn value(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (Self::Second, _) => "a second from 0 to 59",
            (Self::Minute, _) => "a minute from 0 to 59",
            (Self::Hour, _) => "an hour from 0 to 23",
            (Self::DayOfMonth, _) => "a day of the month from 1 to 31",
            (Self::Month, _) => "a month from 1 to 12 or JAN to DEC",
            (Self::DayOfWeek, Dialect::Vixie) => {
                "a day of the week from 0 to 7 (0 and 7 are Sunday) or SUN to SAT"
            }
            (Self::DayOfWeek, Dialect::Quartz) => "a day of the week from 1 (Sunday) to 7 or SUN to SAT",
            (Self::Year, _) => "a year from 1970 to 9999",
        }
    }

    /// Returns an example of a valid field, for messages.
    pub(super) const fn example(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (Self::Second, _) => "*/10",
            (Self::Minute, _) => "0-59/15",
            (Self::Hour, _) => "9-17",
            (Self::DayOfMonth, _) => "1,15",
            (Self::Month, _) => "1-6",
            (Self::DayOfWeek, Dialect::Vixie) => "1-5",
            (Self::DayOfWeek, Dialect::Quartz) => "MON-FRI",
            (Self::Year, _) => "2026-2030",
        }
    }
}
