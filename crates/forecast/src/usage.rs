//! Allocation of the workers over time.
//!
//! A [`Series`] adds up allocated resources multiplied by time, for each bucket of a [`Grid`]. `crate::watch` has one
//! series for each worker, and one for all workers together.
//!
//! # Cost
//! Each start and end of an execution updates the buckets since the previous change. Memory: 48 to 144 buckets for each
//! worker.

use model::worker::Capacity;
use model::{Duration, Timestamp};
use serde::Serialize;

/// Allocated fractions of the capacity, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Shares {
    /// Fraction of the CPU.
    pub cpu: f64,
    /// Fraction of the memory.
    pub memory: f64,
    /// Fraction of the slots.
    pub slots: f64,
}

impl Shares {
    /// Returns the highest fraction: that of the scarcest resource.
    pub fn highest(&self) -> f64 {
        self.cpu.max(self.memory).max(self.slots)
    }
}

/// Amounts of the resources of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Amount {
    pub(crate) cpu: u64,
    pub(crate) memory: u64,
    pub(crate) slots: u64,
}

impl Amount {
    pub(crate) fn of(capacity: &Capacity) -> Self {
        Self { cpu: u64::from(capacity.cpu.0), memory: capacity.memory.0, slots: u64::from(capacity.slots) }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.memory = self.memory.saturating_add(other.memory);
        self.slots += other.slots;
    }

    fn sub(&mut self, other: Self) {
        self.cpu = self.cpu.saturating_sub(other.cpu);
        self.memory = self.memory.saturating_sub(other.memory);
        self.slots = self.slots.saturating_sub(other.slots);
    }

    fn max(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
            slots: self.slots.max(other.slots),
        }
    }
}

/// Amounts multiplied by time, in units and microseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Area {
    cpu: u128,
    memory: u128,
    slots: u128,
}

impl Area {
    fn add(&mut self, level: Amount, micros: u64) {
        self.cpu += u128::from(level.cpu) * u128::from(micros);
        self.memory += u128::from(level.memory) * u128::from(micros);
        self.slots += u128::from(level.slots) * u128::from(micros);
    }

    fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            memory: self.memory + other.memory,
            slots: self.slots + other.slots,
        }
    }

    fn shares(self, of: Amount, micros: u64) -> Shares {
        Shares {
            cpu: part(self.cpu, of.cpu, micros),
            memory: part(self.memory, of.memory, micros),
            slots: part(self.slots, of.slots, micros),
        }
    }
}

/// Rounds to a hundredth of a percent; a forecast is not more precise.
#[expect(clippy::cast_precision_loss, reason = "a share that is rounded afterwards")]
fn part(area: u128, of: u64, micros: u64) -> f64 {
    if of == 0 || micros == 0 {
        return 0.0;
    }
    (area as f64 / (of as f64 * micros as f64) * 10_000.0).round() / 10_000.0
}

/// Buckets of a range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    pub(crate) width: Duration,
}

impl Grid {
    /// Returns about 48 to 144 buckets with a round length.
    pub(crate) fn new(from: Timestamp, until: Timestamp) -> Self {
        const BUCKET_LENGTHS: [u64; 15] =
            [1, 5, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400];
        let length = until.since(from).as_millis();
        let nice =
            BUCKET_LENGTHS.iter().map(|secs| secs * 1_000).find(|width| length.div_ceil(*width) <= 144);
        // Longer ranges have buckets of whole days.
        let width = nice.unwrap_or_else(|| length.div_ceil(144 * 86_400_000) * 86_400_000);
        Self { from, until, width: Duration::from_millis(width) }
    }

    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.micros().div_ceil(self.width_micros())).unwrap_or(1).max(1)
    }

    /// Returns the bucket of a time; the first or the last bucket for a time outside the range.
    pub(crate) fn place(&self, at: Timestamp) -> usize {
        let offset = u64::try_from(at.as_micros() - self.from.as_micros()).unwrap_or(0);
        usize::try_from(offset / self.width_micros()).unwrap_or(usize::MAX).min(self.len() - 1)
    }

    pub(crate) fn begin(&self, place: usize) -> Timestamp {
        self.from + Duration::from_millis(self.width.as_millis() * place as u64)
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.until.as_micros() - self.from.as_micros()).unwrap_or(0)
    }

    fn width_micros(&self) -> u64 {
        self.width.as_millis() * 1_000
    }
}

/// Allocation of a capacity over the buckets of a range.
#[derive(Debug)]
pub(crate) struct Series {
    grid: Grid,
    capacity: Amount,
    level: Amount,
    since: Timestamp,
    most: Amount,
    areas: Vec<Area>,
}

impl Series {
    pub(crate) fn new(grid: Grid, capacity: Amount) -> Self {
        let areas = vec![Area::default(); grid.len()];
        Self { grid, capacity, level: Amount::default(), since: grid.from, most: Amount::default(), areas }
    }

    pub(crate) fn take(&mut self, now: Timestamp, amount: Amount) {
        self.advance(now);
        self.level.add(amount);
        self.most = self.most.max(self.level);
    }

    pub(crate) fn release(&mut self, now: Timestamp, amount: Amount) {
        self.advance(now);
        self.level.sub(amount);
    }

    pub(crate) fn advance(&mut self, now: Timestamp) {
        let mut from = self.since;
        while from < now {
            let place = self.grid.place(from);
            let end = if place + 1 < self.areas.len() { self.grid.begin(place + 1).min(now) } else { now };
            let micros = u64::try_from(end.as_micros() - from.as_micros()).unwrap_or(0);
            self.areas[place].add(self.level, micros);
            from = end;
        }
        self.since = self.since.max(now);
    }

    /// Returns the allocation in each bucket, up to the current time.
    pub(crate) fn parts(&self) -> Vec<Shares> {
        let length = |place: usize| {
            let end = self.grid.begin(place + 1).min(self.since);
            u64::try_from(end.as_micros() - self.grid.begin(place).as_micros()).unwrap_or(0)
        };
        let parts = self.areas.iter().enumerate();
        parts.map(|(place, area)| area.shares(self.capacity, length(place))).collect()
    }

    pub(crate) fn average(&self) -> Shares {
        let length = u64::try_from(self.since.as_micros() - self.grid.from.as_micros()).unwrap_or(0);
        let sum = self.areas.iter().copied().fold(Area::default(), Area::plus);
        sum.shares(self.capacity, length)
    }

    pub(crate) fn most(&self) -> Shares {
        let mut area = Area::default();
        area.add(self.most, 1);
        area.shares(self.capacity, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::default() + Duration::from_secs(secs)
    }

    #[test]
    fn an_allocation_is_distributed_over_its_buckets() {
        let grid = Grid { from: at(0), until: at(30), width: Duration::from_secs(10) };
        let mut series = Series::new(grid, Amount { cpu: 100, memory: 100, slots: 2 });
        let task = Amount { cpu: 50, memory: 10, slots: 1 };
        series.take(at(5), task);
        series.release(at(20), task);
        series.advance(at(30));
        let cpu: Vec<_> = series.parts().iter().map(|shares| shares.cpu).collect();
        assert_eq!(cpu, [0.25, 0.5, 0.0]);
        assert_eq!((series.average().slots, series.most().memory), (0.25, 0.1));
    }

    #[test]
    fn buckets_have_round_lengths() {
        let parts = |hours: u64| {
            let grid = Grid::new(at(0), at(0) + Duration::from_hours(hours));
            (grid.width.to_string(), grid.len())
        };
        assert_eq!(parts(1), ("30s".to_owned(), 120));
        assert_eq!(parts(24), ("10m".to_owned(), 144));
        assert_eq!(parts(24 * 7), ("2h".to_owned(), 84));
        assert_eq!(parts(24 * 365), ("3d".to_owned(), 122));
    }
}
