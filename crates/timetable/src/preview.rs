//! What a timing comes to, for people: its next instants with the reasons for each.

use jiff::tz::{AmbiguousOffset, TimeZone};
use model::Timestamp;

use crate::civil::{join, split};
use crate::wall::{Segment, offset_at};
use crate::{Next, Timetable};

/// An instant that a timing comes to, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firing {
    /// When.
    pub at: Timestamp,
    /// The same as the wall shows it, with its offset: `2026-03-29T03:00:00+02:00`.
    pub local: String,
    /// Which of the timing's rules name it, by their places.
    pub rules: Vec<usize>,
    /// What is special about it.
    pub marks: Vec<Mark>,
    /// Whether the clocks change on this local day.
    pub clock_change: bool,
}

/// What is special about an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// The clocks leap over its local time, so it stands at the end of the gap.
    GapShifted,
    /// The clocks show its local time twice, and this is the first time.
    OverlapFirst,
    /// The clocks show its local time twice, and this is the second time.
    OverlapSecond,
    /// Its day was no working day, so it stands on another.
    Rolled,
}

impl Mark {
    /// As it is written in JSON.
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
    /// The first instants strictly after `after` that no filter holds, at most `count`.
    ///
    /// Fewer where the timing ends, or where a search reached its bound.
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
            self.hits(at.as_micros() - 1).filter(|(_, hit)| hit.at == at.as_micros()).collect();
        let mut marks = Vec::new();
        // One rule that stands there by itself makes the mark of another meaningless.
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

/// Whether the wall shows this day of an instant on both sides of a change.
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
