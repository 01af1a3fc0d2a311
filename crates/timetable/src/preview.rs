//! Preview of a timing: its next firings, with the rules and clock changes that caused them.

use jiff::tz::{AmbiguousOffset, TimeZone};
use model::Timestamp;

use crate::civil::{join, split};
use crate::wall::{Segment, offset_at};
use crate::{Next, Timetable};

/// Scheduled time in a preview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firing {
    /// Scheduled time, in UTC.
    pub at: Timestamp,
    /// Local time with its offset, for example `2026-03-29T03:00:00+02:00`.
    pub local: String,
    /// Indexes of the rules that have this scheduled time, from 0.
    pub rules: Vec<usize>,
    /// Clock changes and moves that affected the time.
    pub marks: Vec<Mark>,
    /// Whether the clock changes on the local day.
    pub clock_change: bool,
}

/// Clock change or move that affected a scheduled time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// A clock change skips the local time; the firing was moved to the end of the gap.
    GapShifted,
    /// A clock change repeats the local time; this is the first occurrence.
    OverlapFirst,
    /// A clock change repeats the local time; this is the second occurrence.
    OverlapSecond,
    /// The firing was moved from a non-working day.
    Rolled,
}

impl Mark {
    /// Returns the name in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GapShifted => "gap_shifted",
            Self::OverlapFirst => "overlap_first",
            Self::OverlapSecond => "overlap_second",
            Self::Rolled => "rolled",
        }
    }
}

impl Timetable {
    /// Returns the next `count` scheduled times strictly after `after` that no filter excludes.
    ///
    /// Returns fewer if the timing ends, or if the search reaches its bound.
    pub fn preview(&self, after: Timestamp, count: usize) -> Vec<Firing> {
        let mut firings = Vec::new();
        let mut after = after;
        while firings.len() < count
            && let Next::At(at) = self.next(after)
        {
            firings.push(self.firing(at));
            after = at;
        }
        firings
    }

    fn firing(&self, at: Timestamp) -> Firing {
        let hits: Vec<_> =
            self.next_of_each_rule(at.as_micros() - 1).filter(|(_, hit)| hit.at == at.as_micros()).collect();
        let mut marks = Vec::new();
        // If one rule has the time without a move, the mark of another rule is irrelevant.
        if hits.iter().all(|(_, hit)| hit.shifted) {
            marks.push(Mark::GapShifted);
        }
        marks.extend(overlap(&self.zone, at));
        if hits.iter().all(|(_, hit)| hit.rolled) {
            marks.push(Mark::Rolled);
        }
        Firing {
            at,
            local: show(&self.zone, at),
            rules: hits.into_iter().map(|(i, _)| i).collect(),
            marks,
            clock_change: changes_that_day(&self.zone, at),
        }
    }
}

fn show(zone: &TimeZone, at: Timestamp) -> String {
    let at = jiff::Timestamp::from(at);
    at.display_with_offset(zone.to_offset(at)).to_string()
}

fn overlap(zone: &TimeZone, at: Timestamp) -> Option<Mark> {
    let at = jiff::Timestamp::from(at);
    match zone.to_ambiguous_timestamp(zone.to_datetime(at)).offset() {
        AmbiguousOffset::Fold { before, .. } if zone.to_offset(at) == before => Some(Mark::OverlapFirst),
        AmbiguousOffset::Fold { .. } => Some(Mark::OverlapSecond),
        _ => None,
    }
}

/// Returns whether the clock changes on the local day of a time.
fn changes_that_day(zone: &TimeZone, at: Timestamp) -> bool {
    let second = at.as_micros().div_euclid(1_000_000);
    let segment = Segment::at(zone, second);
    let (day, _) = split(second + segment.offset);
    let before = segment.offset_before(zone);
    let begins_today = join(day, 0) <= segment.start + before.max(segment.offset) && before != segment.offset;
    let ends_today = segment.end < i64::MAX
        && segment.end + segment.offset.min(offset_at(zone, segment.end)) < join(day + 1, 0)
        && offset_at(zone, segment.end) != segment.offset;
    begins_today || ends_today
}
