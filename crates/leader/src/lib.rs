//! The rules of leadership, as values: what a server may do as the leader, and until when.
//!
//! One server at a time is the leader. It owns the shards, decides, and renews the leases of workers. Two
//! leaders at a time would run one job twice, so every right of a leader ends at a known moment:
//!
//! - A **commit** is checked by the store: it is refused once another server owns the shard.
//! - Everything that **no commit carries** is checked here: worker leases, answers from memory, stops, and
//!   "ready". The leader may release them only while its own [lease](LeadershipLease) is valid for certain.
//!
//! Like the engine, this crate reads no clock and does no I/O: times are arguments, so the server and the
//! simulator run the same rules. Times are of the machine's boot-time clock (`CLOCK_BOOTTIME`), which also
//! counts while the machine sleeps.

mod lease;

pub use lease::LeadershipLease;
