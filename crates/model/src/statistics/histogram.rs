//! Distribution of durations in buckets whose width is a quarter of a power of two.
//!
//! A bucket is at most 25 % wide, so a quantile is at most 12.5 % off. Histograms add up without loss, so a quantile
//! over a month comes from the same buckets as one over a minute.

use crate::Duration;

/// Buckets for each power of two.
const PARTS: u64 = 4;
/// Durations of this many milliseconds and more (34 years) share the last bucket.
const LAST: u64 = (1 << 40) - 1;

/// Distribution of durations; at most 12.5 % off.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Histogram {
    /// Number of durations for each bucket that has any, ordered by bucket.
    buckets: Vec<(u8, u64)>,
    /// Sum of all durations in milliseconds.
    sum_ms: u64,
}

impl Histogram {
    /// Adds a duration.
    pub fn observe(&mut self, duration: Duration) {
        let ms = duration.as_millis();
        self.sum_ms = self.sum_ms.saturating_add(ms);
        self.count_in(bucket_of(ms), 1);
    }

    fn count_in(&mut self, bucket: u8, count: u64) {
        match self.buckets.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => self.buckets[at].1 += count,
            Err(at) => self.buckets.insert(at, (bucket, count)),
        }
    }

    /// Adds the durations of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.sum_ms = self.sum_ms.saturating_add(other.sum_ms);
        for &(bucket, count) in &other.buckets {
            self.count_in(bucket, count);
        }
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Returns the mean; `None` without durations.
    pub fn mean(&self) -> Option<Duration> {
        self.sum_ms.checked_div(self.count()).map(Duration::from_millis)
    }

    /// Returns the duration that `part` of all durations do not exceed, from 0 (none) to 1 (all); `None` without
    /// durations.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let count = self.count();
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let rank = ((count as f64 * part.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets.iter().find_map(|&(bucket, count)| {
            seen += count;
            (seen >= rank).then(|| Duration::from_millis(middle_of(bucket)))
        })
    }

    /// Returns the buckets that have durations, with their numbers, and the sum in milliseconds: as stored.
    pub fn parts(&self) -> (&[(u8, u64)], u64) {
        (&self.buckets, self.sum_ms)
    }

    /// Restores a histogram from [`parts`](Self::parts), in any order.
    pub fn from_parts(buckets: impl IntoIterator<Item = (u8, u64)>, sum_ms: u64) -> Self {
        let mut histogram = Self { buckets: Vec::new(), sum_ms };
        buckets.into_iter().for_each(|(bucket, count)| histogram.count_in(bucket, count));
        histogram
    }
}

/// Returns the bucket of a number of milliseconds. Bucket 0 is for less than one millisecond.
fn bucket_of(ms: u64) -> u8 {
    let ms = ms.min(LAST);
    let Some(power) = ms.checked_ilog2() else { return 0 };
    let power = u64::from(power);
    let part = ((ms * PARTS) >> power) - PARTS;
    u8::try_from(1 + PARTS * power + part).unwrap_or(u8::MAX)
}

/// Returns the middle of a bucket in milliseconds.
fn middle_of(bucket: u8) -> u64 {
    let Some(place) = u64::from(bucket).checked_sub(1) else { return 0 };
    let (power, part) = (place / PARTS, place % PARTS);
    let low = ((PARTS + part) << power.min(40)) / PARTS;
    let high = ((PARTS + part + 1) << power.min(40)) / PARTS;
    low + (high - low) / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_of_known_durations() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(0.5), histogram.mean()), (None, None));
        for ms in 1..=1_000 {
            histogram.observe(Duration::from_millis(ms));
        }
        let near = |part, expected: f64| {
            #[expect(clippy::cast_precision_loss)]
            let found = histogram.quantile(part).unwrap().as_millis() as f64;
            assert!((found / expected - 1.0).abs() < 0.125, "{part}: {found}");
        };
        near(0.5, 500.0);
        near(0.95, 950.0);
        near(0.99, 990.0);
        assert_eq!(histogram.mean(), Some(Duration::from_millis(500)));
    }

    #[test]
    fn the_longest_duration_has_a_bucket() {
        let mut histogram = Histogram::default();
        histogram.observe(Duration::from_millis(u64::MAX));
        histogram.observe(Duration::ZERO);
        assert_eq!((histogram.count(), histogram.quantile(0.0)), (2, Some(Duration::ZERO)));
        assert!(histogram.quantile(1.0).unwrap() > Duration::from_secs(30 * 365 * 86_400));
    }

    proptest! {
        #[test]
        fn a_bucket_contains_its_duration(ms in 0..LAST) {
            let middle = middle_of(bucket_of(ms));
            prop_assert!(ms.abs_diff(middle) * 8 <= ms.max(8), "{ms} {middle}");
        }

        #[test]
        fn histograms_add_up(all in prop::collection::vec(0..10_000_000u64, 0..40), split in 0..40usize) {
            let of = |values: &[u64]| {
                let mut histogram = Histogram::default();
                values.iter().for_each(|&ms| histogram.observe(Duration::from_millis(ms)));
                histogram
            };
            let (left, right) = all.split_at(split.min(all.len()));
            let mut sum = of(left);
            sum.add(&of(right));
            prop_assert_eq!(&sum, &of(&all));
            let (buckets, sum_ms) = sum.parts();
            prop_assert_eq!(&Histogram::from_parts(buckets.iter().copied(), sum_ms), &sum);
        }
    }
}
