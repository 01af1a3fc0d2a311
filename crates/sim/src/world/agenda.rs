//! What is going to happen, ordered by time and then by the order in which it was put down.
//!
//! # Cost
//! `put` and `next` are O(log n). Only small keys move about in the heap; what happens stays where it
//! was put until its time has come. A load that is known beforehand stays out of the heap: it is sorted
//! once, and costs nobody else anything.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use model::Timestamp;

use super::Happening;

/// Everything that is to come.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// When, in which order, and the place of what.
    keys: BinaryHeap<Reverse<(Timestamp, u64, u32)>>,
    places: Vec<Option<Happening>>,
    free: Vec<u32>,
    seq: u64,
    /// When the same thing happens again and again, and in which order, the first one last.
    often: Vec<(Timestamp, u64)>,
    what_often: Option<Happening>,
}

impl Agenda {
    pub(super) fn put(&mut self, at: Timestamp, happening: Happening) {
        let place = match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = Some(happening);
                place
            }
            None => {
                self.places.push(Some(happening));
                u32::try_from(self.places.len() - 1).expect("a world has fewer than 2^32 things to come")
            }
        };
        self.seq += 1;
        self.keys.push(Reverse((at, self.seq, place)));
    }

    /// Puts down the same for many times, as `put` does for each of them. Only one such thing is kept.
    pub(super) fn put_often(&mut self, times: impl IntoIterator<Item = Timestamp>, happening: Happening) {
        debug_assert!(self.often.is_empty(), "one load is put down");
        for at in times {
            self.seq += 1;
            self.often.push((at, self.seq));
        }
        self.often.sort_unstable_by_key(|&key| Reverse(key));
        self.what_often = Some(happening);
    }

    /// What comes first, and when.
    pub(super) fn next(&mut self) -> Option<(Timestamp, Happening)> {
        if let Some(&often) = self.often.last()
            && self.keys.peek().is_none_or(|&Reverse((at, seq, _))| often < (at, seq))
        {
            self.often.pop();
            return Some((often.0, self.what_often.clone()?));
        }
        let Reverse((at, _, place)) = self.keys.pop()?;
        self.free.push(place);
        Some((at, self.places[place as usize].take()?))
    }
}
