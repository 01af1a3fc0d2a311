//! Random draws of a world. All draws come from one seed, with a separate stream for each concern. The draws of one
//! concern do not affect the others, so a shrunk list of faults meets the same load.

use model::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A seeded source of random draws.
#[derive(Debug, Clone)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// Returns the stream of one concern under one seed.
    pub fn new(seed: u64, concern: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(concern);
        Self(rng)
    }

    /// Draws any `u64`.
    pub fn number(&mut self) -> u64 {
        self.0.random()
    }

    /// Returns `true` with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.0.random::<f64>() < probability
    }

    /// Draws a number from 0 to `end - 1`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { self.0.random_range(0..end) }
    }

    /// Draws a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high.max(low))
    }

    /// Draws a fraction from `low` to `high`.
    pub fn fraction(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.random::<f64>()
    }

    /// Draws a duration from `low` to `high` milliseconds, both included.
    pub fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }

    /// Draws one element.
    ///
    /// # Panics
    /// If `of` is empty.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
