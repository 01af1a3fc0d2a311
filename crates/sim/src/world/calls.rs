//! Store calls and their answers, with everything that can happen to a call: delay, loss, failure, fencing.
//!
//! [`World::call_store`] sends a call of a server; [`World::execute_store_call`] runs it in the modelled
//! [`store`](super::store) some time later; the answer returns as a [`Verdict`] to the server that is still
//! in the same life. Calls are independent, except for commits of one server, which arrive in order.
//!
//! A server that abandons a call does not stop it. So an answer may be [`Verdict::Unknown`] for a call that
//! was executed, that will be executed later, or that never will be.

use std::collections::BTreeMap;

use leader::{Call, CallId};
use model::changelog::{ChangelogPage, ChangelogPosition, ReloadedRows};
use model::record::{Lease, LiveRow};
use model::{Duration, JobStatus, ShardId, Timestamp};

use super::members::id_of;
use super::plan::FaultKind;
use super::server::ServerMessage;
use super::{World, WorldEvent};
use crate::history::What;

/// Maximum time that a server waits for an unreachable store, in milliseconds. The connection may be refused
/// immediately, or stay silent until the timeout of the statement.
const UNREACHABLE_TIMEOUT_MAX_MILLIS: u64 = 35_000;
/// The same for a read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// A pending call.
#[derive(Debug, Clone)]
pub(super) struct StoreCall {
    pub(super) caller: Caller,
    pub(super) call: Call,
    /// Timeout of the server.
    timeout: Option<Duration>,
    /// When the engine decided the batch, if the call is a commit.
    decided_at: Timestamp,
    /// The previous commit, if it is unanswered: this one may be executed only after it succeeded.
    behind: Option<CallId>,
    /// Rows that the first half of a preload has read and not delivered.
    pub(super) read_early: Option<Vec<LiveRow>>,
}

/// The recipient of the answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    pub(super) server: usize,
    life: u32,
    id: CallId,
}

impl Caller {
    /// Returns a number that is unique among the commits of all lives of this server.
    fn number(self, id: CallId) -> u64 {
        u64::from(self.life) << 40 | id.0
    }
}

/// The rows from which an engine is built.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub(super) rows: Vec<LiveRow>,
    /// Engine time of the newest commit.
    pub(super) now: Timestamp,
    /// Whether commits after that time may be lost.
    pub(super) tail_lost: bool,
}

/// The answer of the store, or the result of a timeout.
#[derive(Debug, Clone)]
pub(super) enum Verdict {
    Acquired {
        leases: Option<Vec<Lease>>,
        /// Latest end of a lease of the former owner, on the clock of the store.
        former: Option<i64>,
    },
    LostTails(Vec<ShardId>),
    Loaded(Box<Loaded>),
    /// The first part of the rows of a preload.
    Rows(Vec<LiveRow>),
    ChangelogEnd(ChangelogPosition),
    ChangelogSince(Option<ChangelogPage>),
    LiveRows(ReloadedRows),
    Jobs(BTreeMap<JobStatus, u64>),
    Clock(Option<Timestamp>),
    Committed {
        /// Whether the commit used the reserve of a full volume.
        space_low: bool,
    },
    Done,
    Fenced,
    /// The volume has no space: certainly not executed.
    Full,
    /// Certainly not executed.
    Unavailable,
    /// Executed or not.
    Unknown,
}

impl World {
    /// Sends a call. Its answer or its timeout arrives under its id.
    pub(super) fn call_store(
        &mut self,
        server: usize,
        id: CallId,
        call: Call,
        timeout: Option<Duration>,
        behind: Option<CallId>,
        decided_at: Timestamp,
    ) {
        let caller = Caller { server, life: self.servers[server].life, id };
        if self.net.from_store.contains_key(&server) {
            let patience = self.unreachable_timeout(&call, timeout);
            return self.answer_in(patience, caller, Verdict::Unknown);
        }
        let most = self.slowest_call().as_millis();
        let mut at = self.now + self.store_dice.millis(1, most.max(1));
        if matches!(call, Call::Commit(..)) {
            let newest = &mut self.servers[server].commit_arrives;
            at = if behind.is_some() { at.max(*newest) } else { at };
            *newest = at;
        }
        let call = StoreCall { caller, call, timeout, decided_at, behind, read_early: None };
        self.put(at, WorldEvent::Store(Box::new(call)));
        // A server abandons a slow call, whether the store executes it later or not.
        if let Some(timeout) = timeout.filter(|timeout| self.now + *timeout < at) {
            self.answer_in(timeout, caller, Verdict::Unknown);
        }
    }

    /// Returns how long a call waits for a store that is cut off.
    fn unreachable_timeout(&mut self, call: &Call, timeout: Option<Duration>) -> Duration {
        let drawn = match self.store_dice.chance(0.3) {
            true => self.store_dice.millis(1, 1_000),
            false => self.store_dice.millis(1_000, UNREACHABLE_TIMEOUT_MAX_MILLIS),
        };
        let most = match call {
            // A read has a shorter timeout than a change.
            Call::LostTails(_)
            | Call::Load(_)
            | Call::Clock
            | Call::ChangelogEnd
            | Call::ChangelogSince(_)
            | Call::Preload
            | Call::LiveRows(_)
            | Call::CountJobs => Some(READ_TIMEOUT),
            _ => None,
        };
        [timeout, most].into_iter().flatten().fold(drawn, Duration::min)
    }

    pub(super) fn answer_in(&mut self, delay: Duration, caller: Caller, verdict: Verdict) {
        let Caller { server, life, id } = caller;
        let message = ServerMessage::Store { id, verdict };
        self.put_in(delay, WorldEvent::Server { server, life: Some(life), message });
    }

    /// Executes a call in the store.
    pub(super) fn execute_store_call(&mut self, call: StoreCall) {
        let caller = call.caller;
        let (mut fails, mut unknown) = (0.0, 0.0);
        for (_, fault) in &self.store_faults {
            match fault {
                FaultKind::CommitsFail { share } => fails = *share,
                FaultKind::CommitsUnknown { share } => unknown = *share,
                _ => {}
            }
        }
        if self.store_dice.chance(fails) {
            return self.answer_in(Duration::from_millis(1), caller, Verdict::Unavailable);
        }
        if matches!(call.call, Call::Preload) && call.read_early.is_none() {
            return self.preload_begins(call);
        }
        let hidden = self.store_dice.chance(unknown);
        self.stats.unknown_commits += u64::from(hidden && matches!(call.call, Call::Commit(..)));
        let done = !hidden || self.store_dice.chance(0.5);
        let patience = self.unreachable_timeout(&call.call, call.timeout);
        let verdict = if done { self.carry_out_call(call) } else { Verdict::Unknown };
        if self.net.from_store.contains_key(&caller.server) {
            self.answer_in(patience, caller, Verdict::Unknown);
        } else {
            let verdict = if hidden { Verdict::Unknown } else { verdict };
            self.answer_in(Duration::from_millis(1), caller, verdict);
        }
    }

    fn carry_out_call(&mut self, call: StoreCall) -> Verdict {
        let StoreCall { caller, call, decided_at, behind, read_early, .. } = call;
        if self.has_no_space_for(&call) {
            return Verdict::Full;
        }
        let server = caller.server;
        let ttl = self.plan.setup.shard_lease;
        match call {
            Call::Acquire => {
                let former = self.store.lease_end();
                let leases = self.store.acquire(server, id_of(server, caller.life), ttl, self.now);
                if let Some(leases) = &leases {
                    self.record_owned(server, leases);
                }
                Verdict::Acquired { leases, former }
            }
            Call::Renew(leases) => match self.store.renew(&leases, ttl, self.now) {
                Ok(()) => {
                    self.record_owned(server, &leases);
                    Verdict::Done
                }
                Err(_fenced) => Verdict::Fenced,
            },
            Call::Release(leases) => {
                self.store.release(&leases);
                Verdict::Done
            }
            Call::LostTails(_) => {
                let shards = if self.store.tail_lost() { self.plan.shards } else { 0 };
                Verdict::LostTails((0..shards).map(ShardId).collect())
            }
            Call::Preload => self.preload_ends(read_early.unwrap_or_default()),
            Call::ChangelogEnd => Verdict::ChangelogEnd(self.store.changelog_end()),
            Call::ChangelogSince(place) => Verdict::ChangelogSince(self.store.changelog_since(place)),
            Call::LiveRows(keys) => {
                Verdict::LiveRows(ReloadedRows { rows: self.store.live_rows(&keys), unreadable: 0 })
            }
            Call::CountJobs => Verdict::Jobs(self.store.count_jobs()),
            Call::Load(_) => Verdict::Loaded(Box::new(self.loaded_rows())),
            // A database that servers share has its own clock.
            Call::Clock => Verdict::Clock((self.servers.len() > 1).then(|| self.store.clock(self.now))),
            Call::Probe if self.store.is_full() => Verdict::Full,
            Call::Probe => Verdict::Done,
            Call::Reconciled(leases) => match self.store.tail_reconciled(&leases) {
                Ok(()) => Verdict::Done,
                Err(_fenced) => Verdict::Fenced,
            },
            Call::Commit(..)
                if behind
                    .is_some_and(|before| !self.store.may_commit_behind(server, caller.number(before))) =>
            {
                Verdict::Unavailable
            }
            Call::Commit(leases, _) if self.store.holds(&leases) && !self.store.use_reserve() => {
                Verdict::Full
            }
            Call::Commit(leases, batch) => match self.store.commit(server, &leases, &batch, decided_at) {
                Ok(commit) => {
                    self.store.done(server, caller.number(caller.id));
                    self.stats.commits += 1;
                    self.record(What::Commit(Box::new(commit)));
                    Verdict::Committed { space_low: self.store.is_full() }
                }
                Err(_fenced) => {
                    self.stats.fenced_commits += 1;
                    Verdict::Fenced
                }
            },
        }
    }

    /// Whether the volume is full and the store has no reserve, so that it cannot execute a call that writes. Some small
    /// changes still fit.
    fn has_no_space_for(&mut self, call: &Call) -> bool {
        if !self.store.is_full() || self.plan.has_reserve() {
            return false;
        }
        match call {
            Call::Commit(..) => true,
            Call::Acquire | Call::Renew(_) | Call::Release(_) | Call::Reconciled(_) => {
                self.store_dice.chance(0.2)
            }
            _ => false,
        }
    }

    pub(super) fn loaded_rows(&self) -> Loaded {
        let store = &self.store;
        Loaded { rows: store.load(), now: store.now(), tail_lost: store.tail_lost() }
    }

    fn record_owned(&mut self, server: usize, leases: &[Lease]) {
        let epoch = leases.first().map_or_else(Default::default, |lease| lease.epoch);
        let until = self.now + self.plan.setup.shard_lease;
        self.record(What::Owned { server: u32::try_from(server).unwrap_or(u32::MAX), epoch, until });
    }
}
