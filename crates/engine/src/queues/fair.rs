//! Weighted fair shares: the next turn goes to the key with the smallest service so far, in proportion to its
//! weight.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng, 1996): each service advances the clock of the served key by
//! `1 / weight`; the key with the earliest next start has the next turn. A key that was absent starts at the
//! present, so idle time gives no credit.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Clock advance of one service at weight 1. Divisible by every weight up to 16, and large enough for the
/// others.
const SERVICE: u64 = 720_720;

/// Clocks of the recently served keys.
#[derive(Debug)]
pub(crate) struct FairShares<K = Arc<str>> {
    /// End of the last service of each key.
    ends: BTreeMap<K, u64>,
    /// Start of the last service of any key: the present.
    virtual_time: u64,
}

impl<K> Default for FairShares<K> {
    fn default() -> Self {
        Self { ends: BTreeMap::new(), virtual_time: 0 }
    }
}

impl<K: Ord + Clone> FairShares<K> {
    /// Returns when the next service of `name` would start.
    pub(crate) fn start<Q: Ord + ?Sized>(&self, name: &Q) -> u64
    where
        K: Borrow<Q>,
    {
        self.ends.get(name).copied().unwrap_or(0).max(self.virtual_time)
    }

    /// Adds `name` to the waiting keys, one service behind the present. A newcomer that started at the
    /// present would precede every key that was served once, and a steady flow of newcomers would starve
    /// them.
    pub(crate) fn enter(&mut self, name: &K) {
        let at = self.virtual_time + SERVICE;
        match self.ends.get_mut(name) {
            Some(end) => *end = at.max(*end),
            None => self.store_clock(name, at),
        }
    }

    /// Records one service of `name`.
    pub(crate) fn charge(&mut self, name: &K, weight: u32) {
        let start = self.start(name);
        self.virtual_time = start;
        let end = start + SERVICE / u64::from(weight.max(1));
        match self.ends.get_mut(name) {
            Some(slot) => *slot = end,
            None => self.store_clock(name, end),
        }
    }

    /// Stores a clock. Drops clocks that are in the past once there are many.
    fn store_clock(&mut self, name: &K, end: u64) {
        if self.ends.len() >= 1_024 && self.ends.len().is_power_of_two() {
            let present = self.virtual_time;
            self.ends.retain(|_, end| *end > present);
        }
        self.ends.insert(name.clone(), end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(fair: &mut FairShares, names: &[(Arc<str>, u32)], times: usize) -> Vec<usize> {
        let mut served = vec![0; names.len()];
        for _ in 0..times {
            let next = (0..names.len()).min_by_key(|&i| fair.start(&*names[i].0)).unwrap();
            fair.charge(&names[next].0, names[next].1);
            served[next] += 1;
        }
        served
    }

    /// I24. Shares are proportional to weights.
    #[test]
    fn shares_are_in_proportion_to_weights() {
        let names: Vec<(Arc<str>, u32)> = vec![("a".into(), 1), ("b".into(), 3), ("c".into(), 6)];
        assert_eq!(serve(&mut FairShares::default(), &names, 1_000), [100, 300, 600]);
    }

    #[test]
    fn absent_key_gains_no_credit() {
        let names: Vec<(Arc<str>, u32)> = vec![("a".into(), 1), ("b".into(), 1)];
        let mut fair = FairShares::default();
        serve(&mut fair, &names[..1], 1_000);
        assert_eq!(serve(&mut fair, &names, 100), [50, 50]);
    }
}
