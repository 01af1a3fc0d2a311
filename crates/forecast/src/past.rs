//! Past run times and failure rates.

use model::Duration;

/// Past run times and failure rate of the runs of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct RunHistory {
    /// Run times.
    pub run_times: RunTimes,
    /// Fraction of the runs that failed after all retries, from 0 to 1.
    pub failed: f64,
}

impl RunHistory {
    /// Returns a past in which every run succeeds with this run time.
    pub fn steady(run_time: Duration) -> Self {
        Self { run_times: RunTimes::fixed(run_time), failed: 0.0 }
    }

    /// Returns the probability that one attempt fails, for a job with this number of retries.
    ///
    /// The past counts runs, not attempts: a run fails if all of its attempts fail.
    pub(crate) fn attempt_failure_probability(&self, retries: u32) -> f64 {
        self.failed.clamp(0.0, 1.0).powf(1.0 / (f64::from(retries.min(100)) + 1.0))
    }
}

/// A distribution of run times, as a piecewise linear function from fractions to times.
#[derive(Debug, Clone, PartialEq)]
pub struct RunTimes {
    /// Fractions from 0 to 1 with milliseconds, both ascending; at least one.
    knots: Vec<(f64, f64)>,
}

impl RunTimes {
    /// Returns a constant run time.
    pub fn fixed(run_time: Duration) -> Self {
        Self { knots: vec![(0.5, millis(run_time))] }
    }

    /// Returns the distribution of samples; `None` if there are no samples.
    pub fn of_samples(samples: &[Duration]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let last = f64::from(u32::try_from(sorted.len()).ok()?.checked_sub(1)?).max(1.0);
        let knots = (0_u32..).zip(sorted).map(|(rank, time)| (f64::from(rank) / last, millis(time)));
        Some(Self { knots: knots.collect() })
    }

    /// Returns the distribution of percentiles (percent, run time); `None` if there are no percentiles. Below the first
    /// and above the last percentile, the run time is constant.
    pub fn of_percentiles(percentiles: &[(u32, Duration)]) -> Option<Self> {
        let mut knots: Vec<_> = percentiles
            .iter()
            .map(|&(percent, time)| (f64::from(percent.min(100)) / 100.0, millis(time)))
            .collect();
        knots.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut longest = 0.0;
        for knot in &mut knots {
            longest = knot.1.max(longest);
            knot.1 = longest;
        }
        (!knots.is_empty()).then_some(Self { knots })
    }

    /// Returns the run time in milliseconds that this fraction of the runs does not exceed.
    pub(crate) fn at(&self, part: f64) -> f64 {
        let after = self.knots.partition_point(|&(known, _)| known <= part);
        match (after.checked_sub(1).and_then(|i| self.knots.get(i)), self.knots.get(after)) {
            (Some(&(low, from)), Some(&(high, to))) if high > low => {
                from + (to - from) * (part - low) / (high - low)
            }
            (Some(&(_, only)), _) | (None, Some(&(_, only))) => only,
            (None, None) => 0.0,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "no run takes longer than 2^53 ms")]
fn millis(duration: Duration) -> f64 {
    duration.as_millis() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn run_times_are_interpolated_linearly() {
        let times = RunTimes::of_percentiles(&[(90, secs(20)), (50, secs(10))]).unwrap();
        let at: Vec<_> = [0.0, 0.5, 0.7, 0.9, 1.0].map(|part| times.at(part).round()).into();
        assert_eq!(at, [10_000.0, 10_000.0, 15_000.0, 20_000.0, 20_000.0]);
        let samples = RunTimes::of_samples(&[secs(3), secs(1), secs(2)]).unwrap();
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(|part| samples.at(part)), [1_000.0, 1_500.0, 2_000.0, 3_000.0]);
        assert_eq!(RunTimes::fixed(secs(5)).at(0.1), 5_000.0);
        assert_eq!((RunTimes::of_samples(&[]), RunTimes::of_percentiles(&[])), (None, None));
    }

    #[test]
    fn an_attempt_fails_more_often_than_its_run() {
        let past = RunHistory { failed: 0.01, ..RunHistory::steady(secs(1)) };
        assert_eq!(past.attempt_failure_probability(0), 0.01);
        assert!((past.attempt_failure_probability(1) - 0.1).abs() < 1e-9, "two tries that fail once in ten");
        assert_eq!(RunHistory::steady(secs(1)).attempt_failure_probability(3), 0.0);
    }
}
