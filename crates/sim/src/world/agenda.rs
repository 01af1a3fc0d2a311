//! Future events, ordered by time and then by insertion.
//!
//! # Cost
//! `put` and `next` are O(log n). Only small keys move in the heap; an event stays in its slot until it is due. A
//! load that is known in advance stays out of the heap: it is sorted once, and adds no cost to other events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use model::Timestamp;

use super::WorldEvent;

/// The future events.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// Time, sequence number and slot of each event.
    keys: BinaryHeap<Reverse<(Timestamp, u64, u32)>>,
    slots: Vec<Option<WorldEvent>>,
    free: Vec<u32>,
    seq: u64,
    /// Times and sequence numbers of the recurring event, latest first.
    recurring_times: Vec<(Timestamp, u64)>,
    recurring_event: Option<WorldEvent>,
}

impl Agenda {
    pub(super) fn put(&mut self, at: Timestamp, happening: WorldEvent) {
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place as usize] = Some(happening);
                place
            }
            None => {
                self.slots.push(Some(happening));
                u32::try_from(self.slots.len() - 1).expect("a world has fewer than 2^32 future events")
            }
        };
        self.seq += 1;
        self.keys.push(Reverse((at, self.seq, place)));
    }

    /// Adds one event at many times, as `put` would for each of them. Only one recurring event is supported.
    pub(super) fn put_recurring(
        &mut self,
        times: impl IntoIterator<Item = Timestamp>,
        happening: WorldEvent,
    ) {
        debug_assert!(self.recurring_times.is_empty(), "there is one recurring event");
        for at in times {
            self.seq += 1;
            self.recurring_times.push((at, self.seq));
        }
        self.recurring_times.sort_unstable_by_key(|&key| Reverse(key));
        self.recurring_event = Some(happening);
    }

    /// Removes and returns the next event and its time.
    pub(super) fn next(&mut self) -> Option<(Timestamp, WorldEvent)> {
        if let Some(&often) = self.recurring_times.last()
            && self.keys.peek().is_none_or(|&Reverse((at, seq, _))| often < (at, seq))
        {
            self.recurring_times.pop();
            return Some((often.0, self.recurring_event.clone()?));
        }
        let Reverse((at, _, place)) = self.keys.pop()?;
        self.free.push(place);
        Some((at, self.slots[place as usize].take()?))
    }
}
