//! Times of elections, leases and requests, and the configuration of openraft that fits them.
//!
//! The election timer of openraft is off: [`Elector`](crate::node) decides when a node asks for votes, and `Contact`
//! when a node may vote. openraft's own lease is far below theirs, so that it delays no transfer of leadership.

use std::time::Duration;

use openraft::{Config, SnapshotPolicy};

/// Time after the last contact with a leader in which a voter grants no vote. It equals the lease of a shard.
pub const LEASE: Duration = Duration::from_secs(1);

/// openraft's own lease, after which it grants votes: the shortest that it allows.
pub(crate) const CORE_LEASE: Duration = Duration::from_millis(2);

/// Times of a node. All nodes of a cluster need the same `lease`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// See [`LEASE`].
    pub lease: Duration,
    /// Interval of the leader's rounds that confirm its leadership.
    pub pulse: Duration,
    /// Maximum random delay before a node asks for votes, so that two nodes rarely ask at once.
    pub election_jitter: Duration,
    /// Time after which an election without a winner is given up.
    pub election_patience: Duration,
    /// Timeout of a request with entries.
    pub append_timeout: Duration,
    /// Timeout of a vote request.
    pub vote_timeout: Duration,
    /// Timeout of the connection to another node.
    pub connect_timeout: Duration,
    /// First delay before a node that cannot be reached is called again. It doubles up to ten times this.
    pub backoff: Duration,
    /// Maximum wait of a read for a leader.
    pub read_patience: Duration,
    /// Maximum wait for the answer to an operation that was forwarded to the leader.
    pub forward_patience: Duration,
    /// Maximum wait for the target of a transfer to have all entries.
    pub transfer_catch_up: Duration,
    /// Maximum wait for the target of a transfer to lead.
    pub transfer_patience: Duration,
    /// Interval at which old entries are purged.
    pub purge_interval: Duration,
}

impl Timing {
    /// Returns the times of a server.
    pub fn real() -> Self {
        Self {
            lease: LEASE,
            pulse: Duration::from_millis(200),
            election_jitter: Duration::from_millis(250),
            election_patience: Duration::from_millis(300),
            append_timeout: Duration::from_millis(500),
            vote_timeout: Duration::from_millis(150),
            connect_timeout: Duration::from_millis(400),
            backoff: Duration::from_millis(100),
            read_patience: Duration::from_secs(5),
            forward_patience: Duration::from_secs(10),
            transfer_catch_up: Duration::from_millis(100),
            transfer_patience: Duration::from_secs(2),
            purge_interval: Duration::from_secs(10),
        }
    }

    /// Returns short times, for tests in one process.
    pub fn fast() -> Self {
        Self {
            lease: Duration::from_millis(150),
            pulse: Duration::from_millis(30),
            election_jitter: Duration::from_millis(60),
            election_patience: Duration::from_millis(100),
            append_timeout: Duration::from_millis(100),
            vote_timeout: Duration::from_millis(20),
            connect_timeout: Duration::from_millis(50),
            backoff: Duration::from_millis(10),
            read_patience: Duration::from_secs(5),
            forward_patience: Duration::from_secs(2),
            transfer_catch_up: Duration::from_millis(100),
            transfer_patience: Duration::from_millis(500),
            purge_interval: Duration::from_secs(3600),
        }
    }

    /// Returns the lease of a leader after a confirmed round: shorter than the time in which its voters grant no vote, for
    /// the drift between their clocks.
    pub(crate) fn leader_lease(&self) -> Duration {
        self.lease * 19 / 20
    }

    /// Returns the timeout of a round that confirms the leadership.
    pub(crate) fn round_timeout(&self) -> Duration {
        self.lease / 3
    }

    /// Returns the configuration of openraft.
    ///
    /// `Config::validate` would refuse it, because its heartbeats are slower than its election timeout. `Raft::new` does not
    /// call it: heartbeats are our rounds, and elections our own.
    pub(crate) fn config(&self, cluster: u128) -> Config {
        Config {
            cluster_name: format!("{cluster:032x}"),
            heartbeat_interval: millis(self.append_timeout),
            // Its timeout of vote requests, which `runtime` makes longer.
            election_timeout_min: 1,
            election_timeout_max: millis(CORE_LEASE),
            enable_elect: false,
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: u64::MAX,
            max_payload_entries: 1024,
            ..Config::default()
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_keeps_the_order_of_times() {
        for timing in [Timing::real(), Timing::fast()] {
            let config = timing.config(1);
            assert!(!config.enable_elect);
            // openraft draws from this range, and panics if it is empty.
            assert!(config.election_timeout_min < config.election_timeout_max);
            // A leader confirms its lease several times before it ends, although one round may fail.
            assert!(timing.pulse + timing.round_timeout() < timing.leader_lease());
            assert!(timing.leader_lease() < timing.lease);
            // A transfer waits for openraft's lease, and the voters' guard must be the stronger one.
            assert!(CORE_LEASE * 4 < timing.lease);
            assert!(timing.vote_timeout < timing.election_patience);
            assert!(timing.append_timeout < timing.lease);
        }
    }
}
