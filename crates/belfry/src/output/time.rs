//! Formatting of times and durations.

use model::{Duration, Timestamp};

use super::OutputOptions;

/// Formats a time for a table: relative to now, or exact with `-o wide`.
pub(crate) fn relative_or_exact(look: &OutputOptions, at: Timestamp) -> String {
    if look.wide() { at.to_string() } else { relative(look.now, at) }
}

/// Formats a time for a detailed view: exact, then relative to now.
pub(crate) fn exact(look: &OutputOptions, at: Timestamp) -> String {
    format!("{at} ({})", relative(look.now, at))
}

/// Formats a time relative to `now`: `5s ago`, `in 3h`.
pub(crate) fn relative(now: Timestamp, at: Timestamp) -> String {
    if at > now {
        format!("in {}", format_duration(at.since(now)))
    } else {
        format!("{} ago", format_duration(now.since(at)))
    }
}

/// Formats a duration in its largest unit, or in two units if the first is small: `250ms`, `9s`, `3m20s`, `5h`, `12d`.
pub(crate) fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let seconds = millis / 1_000;
    match seconds {
        0 => format!("{millis}ms"),
        1..=9 if millis % 1_000 >= 100 => format!("{seconds}.{}s", millis % 1_000 / 100),
        1..=119 => format!("{seconds}s"),
        120..=599 => pair(seconds, 60, "m", "s"),
        600..=7_199 => format!("{}m", seconds / 60),
        7_200..=35_999 => pair(seconds / 60, 60, "h", "m"),
        36_000..=172_799 => format!("{}h", seconds / 3_600),
        172_800..=863_999 => pair(seconds / 3_600, 24, "d", "h"),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn pair(count: u64, of: u64, large: &str, small: &str) -> String {
    match count % of {
        0 => format!("{}{large}", count / of),
        rest => format!("{}{large}{rest}{small}", count / of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_as_exact_as_its_size_asks_for() {
        let shown: Vec<_> = [
            0,
            999,
            1_000,
            1_250,
            59_400,
            90_000,
            200_000,
            3_600_000,
            9_000_000,
            90_000_000,
            200_000_000,
            9_000_000_000,
        ]
        .map(|millis| format_duration(Duration::from_millis(millis)))
        .into();
        assert_eq!(
            shown,
            ["0ms", "999ms", "1s", "1.2s", "59s", "90s", "3m20s", "60m", "2h30m", "25h", "2d7h", "104d"]
        );
    }

    #[test]
    fn past_and_future_are_told_apart() {
        let now = Timestamp::from_millis(1_000_000);
        assert_eq!(relative(now, Timestamp::from_millis(995_000)), "5s ago");
        assert_eq!(relative(now, Timestamp::from_millis(1_030_000)), "in 30s");
    }
}
