//! What is going to happen, ordered by time and then by the order in which it was put down.
//!
//! # Cost
//! `put` and `next` are O(log n). Only small keys move about in the heap; what happens stays where it
//! was put until its time has come.

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

    /// What comes first, and when.
    pub(super) fn next(&mut self) -> Option<(Timestamp, Happening)> {
        let Reverse((at, _, place)) = self.keys.pop()?;
        self.free.push(place);
        Some((at, self.places[place as usize].take()?))
    }
}
