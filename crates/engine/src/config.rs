//! The settings of an engine.

use model::Duration;

/// The settings of an engine; the same for every server of a cluster.
#[derive(Debug, Clone)]
pub struct Config {
    /// Seeds everything that is drawn: ids, jitter.
    pub seed: u64,
    /// How often workers beat.
    pub heartbeat_interval: Duration,
    /// How long a worker may go on after the sending of a beat; three intervals by default.
    pub lease: Duration,
    /// How much longer than `lease` the engine waits before it takes a worker for lost: 1 % of the
    /// lease for clock drift, and this for the fuse to act.
    pub lease_margin: Duration,
    /// How long an `at_most_once` job waits for its result once the lease of its worker has ended, before it fails with
    /// cause `outcome_unknown`.
    pub result_wait: Duration,
    /// How long ended jobs are kept where their spec says nothing.
    pub retention: Duration,
    /// How long an idempotency key is remembered.
    pub key_retention: Duration,
    /// The time zones that schedules are read in.
    pub zones: timetable::Zones,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            heartbeat_interval: Duration::from_secs(2),
            lease: Duration::from_secs(6),
            lease_margin: Duration::from_millis(250),
            result_wait: Duration::from_secs(60),
            retention: Duration::from_hours(24 * 30),
            key_retention: model::limits::IDEMPOTENCY_KEPT,
            zones: timetable::Zones::bundled(),
        }
    }
}
