//! The settings of an engine.

use model::Duration;

/// Settings of an engine; must be the same on all servers of a cluster.
#[derive(Debug, Clone)]
pub struct Config {
    /// Seed of all random choices: ids, jitter, shards.
    pub seed: u64,
    /// Interval between two heartbeats of a worker [default: 2s].
    pub heartbeat_interval: Duration,
    /// Duration for which a worker may continue after sending a heartbeat [default: 6s].
    pub lease: Duration,
    /// Fixed part of the extra wait before a worker is lost: the time that the fuse needs [default: 250ms].
    /// The engine waits for `lease`, 1 % of it for clock drift, and this margin.
    pub lease_margin: Duration,
    /// Whether the statistics have samples of queues and workers [default: true].
    pub samples_levels: bool,
    /// Duration for which a job that must not start again waits for its result after the lease of its worker has ended
    /// [default: 60s]. Then it fails with cause `outcome_unknown`, or `worker_lost` after its last loss.
    pub result_wait: Duration,
    /// Retention of ended jobs without a retention in their spec [default: 30 days].
    pub retention: Duration,
    /// Retention of idempotency keys.
    pub key_retention: Duration,
    /// Time zone database for the timing of schedules.
    pub zones: timetable::Zones,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            heartbeat_interval: Duration::from_secs(2),
            lease: Duration::from_secs(6),
            lease_margin: Duration::from_millis(250),
            samples_levels: true,
            result_wait: Duration::from_secs(60),
            retention: Duration::from_hours(24 * 30),
            key_retention: model::limits::IDEMPOTENCY_KEY_RETENTION,
            zones: timetable::Zones::bundled(),
        }
    }
}
