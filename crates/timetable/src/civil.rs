//! Days and local times as plain numbers.
//!
//! A *local second* is the number of seconds between 1970-01-01 00:00:00 and a local date and time. A [`Day`] is the
//! number of days since 1970-01-01. Neither has a time zone. The calendar is the proleptic Gregorian calendar. Each
//! function costs a few nanoseconds.

use jiff::civil::Date;

/// Day, as the number of days since 1970-01-01.
pub(crate) type Day = i32;

/// Seconds of a day without a clock change.
pub(crate) const DAY_SECONDS: i64 = 86_400;

/// Last year in which rules have scheduled times.
pub(crate) const YEAR_MAX: i32 = 9_999;

/// Returns the year, the month and the day of the month, both from 1.
///
/// The algorithm is `civil_from_days` of H. Hinnant, "chrono-Compatible Low-Level Date Algorithms".
pub(crate) fn year_month_day(day: Day) -> (i32, u32, u32) {
    let shifted = i64::from(day) + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year as i32, month as u32, day_of_month as u32)
}

/// Returns the day of a year, month and day of the month; the inverse of [`year_month_day`].
pub(crate) fn day_number(year: i32, month: u32, day_of_month: u32) -> Day {
    let (year, month) = (i64::from(year) - i64::from(month <= 2), i64::from(month));
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day_of_month) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era - 719_468) as Day
}

/// Returns the number of days of a month.
pub(crate) fn month_len(year: i32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Returns the day of the week, from 0 (Sunday) to 6 (Saturday).
pub(crate) fn weekday(day: Day) -> u32 {
    (day + 4).rem_euclid(7).unsigned_abs()
}

/// Splits a local second into its day and the seconds since midnight.
pub(crate) fn split(local: i64) -> (Day, u32) {
    (local.div_euclid(DAY_SECONDS) as Day, local.rem_euclid(DAY_SECONDS) as u32)
}

/// Returns the local second of a day and seconds since midnight; the inverse of [`split`].
pub(crate) fn join(day: Day, time: u32) -> i64 {
    i64::from(day) * DAY_SECONDS + i64::from(time)
}

/// Converts a date of `jiff`; the inverse of [`date_of`].
pub(crate) fn day_of(date: Date) -> Day {
    day_number(i32::from(date.year()), date.month().unsigned_abs().into(), date.day().unsigned_abs().into())
}

/// Converts to a date of `jiff`. A day outside the range of `jiff` becomes the nearest date in the range.
pub(crate) fn date_of(day: Day) -> Date {
    let (year, month, day_of_month) = year_month_day(day);
    let nearest = if day < 0 { Date::MIN } else { Date::MAX };
    i16::try_from(year)
        .ok()
        .and_then(|year| Date::new(year, month as i8, day_of_month as i8).ok())
        .unwrap_or(nearest)
}

/// Parses `HH:MM` or `HH:MM:SS`. Returns seconds since midnight, or `None` for any other text.
pub(crate) fn time_of_day(text: &str) -> Option<u32> {
    let mut seconds = 0;
    let parts: Vec<&str> = text.split(':').collect();
    if !(2..=3).contains(&parts.len()) {
        return None;
    }
    for (part, (unit, limit)) in parts.iter().zip([(3_600, 24), (60, 60), (1, 60)]) {
        let two_digits = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
        let value: u32 = part.parse().ok().filter(|value| two_digits && *value < limit)?;
        seconds += value * unit;
    }
    Some(seconds)
}

/// Formats seconds since midnight in the form that [`time_of_day`] parses.
pub(crate) fn show_time(time: u32) -> String {
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    if second == 0 { format!("{hour:02}:{minute:02}") } else { format!("{hour:02}:{minute:02}:{second:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_agree_with_jiff_for_all_its_years() {
        let epoch = jiff::civil::date(1970, 1, 1);
        for day in (-4_371_000..2_932_000).step_by(613) {
            let date = epoch.checked_add(jiff::Span::new().days(day)).unwrap();
            assert_eq!(day_of(date), day, "{date}");
            assert_eq!(date_of(day), date);
            assert_eq!(
                weekday(day),
                u32::from(date.weekday().to_sunday_zero_offset().unsigned_abs()),
                "{date}"
            );
            let (year, month, _) = year_month_day(day);
            assert_eq!(month_len(year, month), u32::from(date.days_in_month().unsigned_abs()), "{date}");
        }
    }

    #[test]
    fn times_of_day_are_two_digits_each() {
        assert_eq!(time_of_day("09:30"), Some(34_200));
        assert_eq!(time_of_day("23:59:59"), Some(86_399));
        for wrong in ["", "9:30", "24:00", "12:60", "12", "12:00:60", "12:00:00:00", "+1:00", "１２:００"]
        {
            assert_eq!(time_of_day(wrong), None, "{wrong}");
        }
        assert_eq!(show_time(34_200), "09:30");
        assert_eq!(show_time(86_399), "23:59:59");
    }
}
