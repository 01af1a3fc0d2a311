//! From what the clock on the wall shows to instants.
//!
//! A zone is a row of [`Segment`]s, stretches of time with one offset from UTC. Local times are
//! looked for in one segment after the other, so that what a change of the clocks skips or repeats
//! is seen where it happens: a gap or an overlap lies between two segments and nowhere else.
//!
//! Instants are whole seconds of UTC here.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use model::timing::{Fold, Gap};

use crate::civil::DAY_SECONDS;

/// The first second that is looked at.
pub(crate) const FIRST_SECOND: i64 = -377_705_000_000;
/// The last second that is looked at: in the year 9999.
pub(crate) const LAST_SECOND: i64 = 253_402_100_000;

/// A stretch of time with one offset from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Its first second.
    pub(crate) start: i64,
    /// The first second after it.
    pub(crate) end: i64,
    /// What the wall shows more than UTC.
    pub(crate) offset: i64,
}

fn timestamp(second: i64) -> Timestamp {
    Timestamp::from_second(second.clamp(FIRST_SECOND, LAST_SECOND)).unwrap_or_default()
}

/// What the wall shows more than UTC at an instant.
pub(crate) fn offset_at(zone: &TimeZone, second: i64) -> i64 {
    zone.to_offset(timestamp(second)).seconds().into()
}

impl Segment {
    /// The segment in which an instant lies.
    pub(crate) fn at(zone: &TimeZone, second: i64) -> Self {
        let second = second.clamp(FIRST_SECOND, LAST_SECOND);
        // `preceding` is strict, and this second may be the first of its segment.
        let start = zone.preceding(timestamp(second + 1)).next();
        let end = zone.following(timestamp(second)).next();
        Self {
            start: start.map_or(FIRST_SECOND, |t| t.timestamp().as_second()),
            end: end.map_or(i64::MAX, |t| t.timestamp().as_second()),
            offset: offset_at(zone, second),
        }
    }

    /// The segment after it.
    pub(crate) fn following(&self, zone: &TimeZone) -> Option<Self> {
        (self.end < LAST_SECOND).then(|| Self::at(zone, self.end))
    }

    /// The offset of the segment before it.
    pub(crate) fn offset_before(&self, zone: &TimeZone) -> i64 {
        if self.start <= FIRST_SECOND { self.offset } else { offset_at(zone, self.start - 1) }
    }
}

/// What becomes of local times that a change of the clocks skips or repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) gap: Gap,
    pub(crate) overlap: Fold,
}

impl Changes {
    /// As crontab treats a fixed time.
    pub(crate) const FIXED: Self = Self { gap: Gap::Shift, overlap: Fold::First };
    /// As crontab treats what repeats through the day.
    pub(crate) const REPEATING: Self = Self { gap: Gap::Skip, overlap: Fold::Both };
}

/// An instant, and the local time that it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) at: i64,
    /// What the rule says; the wall shows something later if it is `shifted`.
    pub(crate) local: i64,
    /// Whether it stands at the end of the gap in which its local time lies.
    pub(crate) shifted: bool,
}

/// The first instant at or after `from` whose local time `next_local` names.
///
/// `next_local` gives the first local second at or after its argument.
pub(crate) fn next_instant(
    zone: &TimeZone,
    changes: Changes,
    mut from: i64,
    next_local: impl Fn(i64) -> Option<i64>,
) -> Option<Hit> {
    let mut segment = Segment::at(zone, from);
    loop {
        // A change of the clocks is at most a day, so further from it its other side has no say.
        let near_start = from - segment.start <= DAY_SECONDS;
        let before = if near_start { segment.offset_before(zone) } else { segment.offset };
        let (local_before, local_start) = (segment.start + before, segment.start + segment.offset);
        if changes.gap == Gap::Shift && from <= segment.start {
            let skipped = next_local(local_before).filter(|local| *local < local_start);
            if let Some(local) = skipped {
                return Some(Hit { at: segment.start, local, shifted: true });
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
            return (at <= LAST_SECOND).then_some(Hit { at, local, shifted: false });
        }
        let next = segment.following(zone)?;
        let shows_again = next.start + next.offset < local_from;
        match local {
            None if !shows_again => return None,
            // Nothing for days: the segments before that need not be looked at.
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
    fn segments_meet_each_other_and_know_their_offsets() {
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
    fn a_time_that_only_comes_again_is_found_though_the_rule_has_ended() {
        let berlin = Zones::bundled().get("Europe/Berlin").unwrap();
        let half_past_two = second("2026-10-25T02:30:00Z");
        let once = |from: i64| (from <= half_past_two).then_some(half_past_two);
        let both = Changes { gap: Gap::Skip, overlap: Fold::Both };
        let first = next_instant(&berlin, both, second("2026-01-01T00:00:00Z"), once).unwrap();
        assert_eq!(first.at, second("2026-10-25T00:30:00Z"));
        let again = next_instant(&berlin, both, first.at + 1, once).unwrap();
        assert_eq!(again.at, second("2026-10-25T01:30:00Z"));
        assert_eq!(next_instant(&berlin, both, again.at + 1, once), None);
        assert_eq!(next_instant(&berlin, Changes::FIXED, first.at + 1, once), None);
    }
}
