//! Conversion of local times to UTC, with clock changes.
//!
//! A time zone is a sequence of [`Segment`]s: periods with one offset from UTC. Gaps and overlaps of local times exist
//! only between two segments. [`next_utc_second`] searches for a local time segment by segment, so it applies gaps and
//! overlaps exactly where they occur.
//!
//! All times in this module are whole seconds: UTC seconds since the Unix epoch, or local seconds.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use model::timing::{Fold, Gap};

use crate::civil::DAY_SECONDS;

/// First second of all searches, in the year -9999.
pub(crate) const FIRST_SECOND: i64 = -377_705_000_000;
/// Last second of all searches, in the year 9999.
pub(crate) const LAST_SECOND: i64 = 253_402_100_000;

/// Period with one offset from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// First second of the segment.
    pub(crate) start: i64,
    /// First second after the segment.
    pub(crate) end: i64,
    /// Local time minus UTC, in seconds.
    pub(crate) offset: i64,
}

fn timestamp(second: i64) -> Timestamp {
    Timestamp::from_second(second.clamp(FIRST_SECOND, LAST_SECOND)).unwrap_or_default()
}

/// Returns local time minus UTC at a second, in seconds.
pub(crate) fn offset_at(zone: &TimeZone, second: i64) -> i64 {
    zone.to_offset(timestamp(second)).seconds().into()
}

impl Segment {
    /// Returns the segment that contains a second.
    pub(crate) fn at(zone: &TimeZone, second: i64) -> Self {
        let second = second.clamp(FIRST_SECOND, LAST_SECOND);
        // `preceding` excludes its argument, and `second` may be the first second of its segment.
        let start = zone.preceding(timestamp(second + 1)).next();
        let end = zone.following(timestamp(second)).next();
        Self {
            start: start.map_or(FIRST_SECOND, |t| t.timestamp().as_second()),
            end: end.map_or(i64::MAX, |t| t.timestamp().as_second()),
            offset: offset_at(zone, second),
        }
    }

    /// Returns the next segment, or `None` after [`LAST_SECOND`].
    pub(crate) fn following(&self, zone: &TimeZone) -> Option<Self> {
        (self.end < LAST_SECOND).then(|| Self::at(zone, self.end))
    }

    /// Returns the offset of the previous segment; the own offset if there is none.
    pub(crate) fn offset_before(&self, zone: &TimeZone) -> i64 {
        if self.start <= FIRST_SECOND { self.offset } else { offset_at(zone, self.start - 1) }
    }
}

/// Treatment of local times that a clock change skips or repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockChangePolicy {
    pub(crate) gap: Gap,
    pub(crate) overlap: Fold,
}

impl ClockChangePolicy {
    /// Treatment of a fixed time in crontab.
    pub(crate) const FIXED: Self = Self { gap: Gap::Shift, overlap: Fold::First };
    /// Treatment of a repeating time in crontab.
    pub(crate) const REPEATING: Self = Self { gap: Gap::Skip, overlap: Fold::Both };
}

/// Scheduled time in UTC, with its local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalMatch {
    /// UTC second.
    pub(crate) at: i64,
    /// Local second of the rule. If `shifted`, the actual local time is later.
    pub(crate) local: i64,
    /// Whether the time was moved to the end of the gap that skips its local time.
    pub(crate) shifted: bool,
}

/// Returns the first second at or after `from` whose local time is one of a rule.
///
/// `next_local` returns the first local second of the rule at or after its argument.
pub(crate) fn next_utc_second(
    zone: &TimeZone,
    changes: ClockChangePolicy,
    mut from: i64,
    next_local: impl Fn(i64) -> Option<i64>,
) -> Option<LocalMatch> {
    let mut segment = Segment::at(zone, from);
    loop {
        // A clock change is at most one day, so farther away the offset before it is irrelevant.
        let near_start = from - segment.start <= DAY_SECONDS;
        let before = if near_start { segment.offset_before(zone) } else { segment.offset };
        let (local_before, local_start) = (segment.start + before, segment.start + segment.offset);
        if changes.gap == Gap::Shift && from <= segment.start {
            let skipped = next_local(local_before).filter(|local| *local < local_start);
            if let Some(local) = skipped {
                return Some(LocalMatch { at: segment.start, local, shifted: true });
            }
        }
        let mut local_from = from + segment.offset;
        if changes.overlap == Fold::First {
            local_from = local_from.max(local_before);
        }
        let local = next_local(local_from);
        if let Some(local) = local
            && local - segment.offset < segment.end
        {
            let at = local - segment.offset;
            return (at <= LAST_SECOND).then_some(LocalMatch { at, local, shifted: false });
        }
        let next = segment.following(zone)?;
        let shows_again = next.start + next.offset < local_from;
        match local {
            None if !shows_again => return None,
            // The next local time is more than two days away: skips the segments before it.
            Some(local) if !shows_again && local - 2 * DAY_SECONDS > next.start => {
                from = local - 2 * DAY_SECONDS;
                if from > LAST_SECOND {
                    return None;
                }
                segment = if from < next.end { next } else { Segment::at(zone, from) };
            }
            _ => {
                from = next.start;
                segment = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Zones;

    fn second(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_second()
    }

    #[test]
    fn segments_are_contiguous_and_have_their_offsets() {
        let berlin = Zones::bundled().get("Europe/Berlin").unwrap();
        let winter = Segment::at(&berlin, second("2026-03-29T00:59:59Z"));
        let summer = winter.following(&berlin).unwrap();
        assert_eq!((winter.offset, summer.offset), (3_600, 7_200));
        assert_eq!(winter.end, second("2026-03-29T01:00:00Z"));
        assert_eq!((summer.start, summer.end), (winter.end, second("2026-10-25T01:00:00Z")));
        assert_eq!(summer.offset_before(&berlin), winter.offset);
        assert_eq!(Segment::at(&berlin, summer.start), summer);
    }

    #[test]
    fn a_zone_without_changes_is_one_segment() {
        let whole = Segment::at(&TimeZone::UTC, 0);
        assert_eq!((whole.start, whole.end, whole.offset), (FIRST_SECOND, i64::MAX, 0));
        assert_eq!(whole.following(&TimeZone::UTC), None);
    }

    /// B1.
    #[test]
    fn a_repeated_local_time_is_found_after_the_last_match() {
        let berlin = Zones::bundled().get("Europe/Berlin").unwrap();
        let half_past_two = second("2026-10-25T02:30:00Z");
        let once = |from: i64| (from <= half_past_two).then_some(half_past_two);
        let both = ClockChangePolicy { gap: Gap::Skip, overlap: Fold::Both };
        let first = next_utc_second(&berlin, both, second("2026-01-01T00:00:00Z"), once).unwrap();
        assert_eq!(first.at, second("2026-10-25T00:30:00Z"));
        let again = next_utc_second(&berlin, both, first.at + 1, once).unwrap();
        assert_eq!(again.at, second("2026-10-25T01:30:00Z"));
        assert_eq!(next_utc_second(&berlin, both, again.at + 1, once), None);
        assert_eq!(next_utc_second(&berlin, ClockChangePolicy::FIXED, first.at + 1, once), None);
    }
}
