//! What every transition of the engine may use: time, ids, randomness, timers, and what it decides.

use std::collections::BTreeMap;

use model::id::{Epoch, IdSource};
use model::{Duration, Refusal, ShardId, Timestamp};
use rand_chacha::ChaCha8Rng;

use crate::clock::ClockFilter;
use crate::config::Config;
use crate::input::Ticket;
use crate::output::{Effect, Reply};
use crate::pending::Pending;
use crate::profile::Profiles;
use crate::signal::Signal;
use crate::timer::Timers;

/// How many times faster than real time the purge limit follows the wall clock after a start; see
/// [`Context::purge_before`].
const PURGE_SPEED: u64 = 60;

/// What every transition may use, whichever room it is in.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: Config,
    /// Engine time: the greatest accepted or restored wall time.
    pub(crate) now: Timestamp,
    /// Steady time of the last call.
    pub(crate) steady: Timestamp,
    /// Decides which readings of the wall clock are accepted.
    pub(crate) clock_filter: ClockFilter,
    /// Engine time before the start, and the steady time of the start; `None` without restored rows.
    pub(crate) resumed_from: Option<(Timestamp, Timestamp)>,
    pub(crate) rng: ChaCha8Rng,
    pub(crate) ids: IdSource,
    /// Total number of shards, owned or not.
    pub(crate) shards: u16,
    pub(crate) owned: Vec<ShardId>,
    pub(crate) epochs: BTreeMap<ShardId, Epoch>,
    /// Scheduling properties of specs, shared by jobs, schedules and workflows.
    pub(crate) profiles: Profiles,
    /// Timers at a wall time: jobs become ready, deadlines pass.
    pub(crate) wall_timers: Timers,
    /// Timers after a duration, on the steady clock.
    pub(crate) steady_timers: Timers,
    pub(crate) pending: Pending,
    /// Whether new work is held back; see [`hold_new_work`](crate::Engine::hold_new_work).
    pub(crate) holds_new_work: bool,
    /// Whether the engine has started. Before the start, a gap between two calls is not treated as a delay of
    /// the driver.
    pub(crate) started: bool,
}

impl Context {
    pub(crate) fn raise(&mut self, signal: Signal) {
        self.pending.signals.push_back(signal);
    }

    /// Converts a steady time to a wall time for display.
    pub(crate) fn wall_time_of(&self, steady: Timestamp) -> Timestamp {
        self.now + steady.since(self.steady)
    }

    /// Returns the purge limit: rows that expired before it may be deleted.
    ///
    /// The limit never exceeds the wall clock, so an engine time ahead of the wall clock deletes nothing
    /// early. After a start, which has to accept the wall clock, the limit advances at [`PURGE_SPEED`] times
    /// real time. An outage of a week is caught up in three hours, and a clock that is a year ahead deletes
    /// almost nothing before an operator notices it.
    pub(crate) fn purge_before(&self) -> Timestamp {
        let wall = self.clock_filter.wall(self.now).min(self.now);
        self.resumed_from.map_or(wall, |(from, since)| {
            let passed = self.steady.since(since).as_millis().saturating_mul(PURGE_SPEED);
            wall.min(from + Duration::from_millis(passed))
        })
    }

    pub(crate) fn reply(&mut self, ticket: Ticket, reply: Result<Reply, Refusal>) {
        self.pending.effects.push(Effect::Reply { ticket, reply });
    }
}
