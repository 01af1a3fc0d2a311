//! The way from a server to the store and back, and all that can become of a call on it.

use std::sync::Arc;

use model::record::{Batch, Lease, LiveRow};
use model::{Duration, Timestamp};

use super::plan::{FaultKind, Mutation};
use super::server::ServerMessage;
use super::{Happening, World};
use crate::history::What;

/// How long a server waits at most for a store that does not answer: it may refuse at once, or say nothing for as long
/// as a statement and its answer may take.
const PATIENCE_MAX_MILLIS: u64 = 35_000;

/// What a server wants of the store.
#[derive(Debug, Clone)]
pub(super) enum Wish {
    Acquire,
    Renew(Arc<[Lease]>),
    Release(Arc<[Lease]>),
    Load,
    TailReconciled(Arc<[Lease]>),
    /// `behind` is the call of the commit before, if that one is still on its way: only with it may this one be done.
    Commit {
        leases: Arc<[Lease]>,
        batch: Box<Batch>,
        decided_at: Timestamp,
        behind: Option<u64>,
    },
}

/// A call on its way.
#[derive(Debug, Clone)]
pub(super) struct Call {
    caller: Caller,
    wish: Wish,
}

/// Whom its answer goes to.
#[derive(Debug, Clone, Copy)]
struct Caller {
    server: usize,
    life: u32,
    number: u64,
}

/// What an engine is built from.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub(super) rows: Vec<LiveRow>,
    /// Engine time of the newest commit.
    pub(super) now: Timestamp,
    /// Whether the commits after that may be gone.
    pub(super) tail_lost: bool,
}

/// What the store answers, or what a server makes of its silence.
#[derive(Debug, Clone)]
pub(super) enum Verdict {
    Acquired(Option<Vec<Lease>>),
    Renewed,
    Released,
    Loaded(Box<Loaded>),
    TailReconciled,
    Committed,
    Fenced,
    /// Not done, for certain.
    Unavailable,
    /// Done or not.
    Unknown,
}

impl World {
    /// Sends a call off; its answer, or the end of patience, comes back under the number.
    pub(super) fn call_store(&mut self, server: usize, wish: Wish) -> u64 {
        let number = self.number();
        let life = self.servers[server].life;
        let caller = Caller { server, life, number };
        if self.net.from_store.contains_key(&server) {
            let patience = self.patience(server, &wish);
            self.give_up(caller, patience);
        } else {
            let slow = self.store_faults.iter().filter_map(|(_, fault)| match fault {
                FaultKind::SlowStore { most } => Some(most.as_millis()),
                _ => None,
            });
            let most = slow.max().unwrap_or(3);
            let mut at = self.now + self.store_dice.millis(1, most.max(1));
            if let Wish::Commit { behind, .. } = &wish {
                let newest = &mut self.servers[server].commit_arrives;
                at = if behind.is_some() { at.max(*newest) } else { at };
                *newest = at;
            }
            self.put(at, Happening::Store(Box::new(Call { caller, wish })));
        }
        number
    }

    /// How long a call waits for a store that is cut off. One for the lease is worth nothing after a while.
    fn patience(&mut self, server: usize, wish: &Wish) -> Duration {
        let drawn = match self.store_dice.chance(0.3) {
            true => self.store_dice.millis(1, 1_000),
            false => self.store_dice.millis(1_000, PATIENCE_MAX_MILLIS),
        };
        let ttl = self.plan.setup.shard_lease;
        match wish {
            Wish::Renew(_) => {
                let limit = self.servers[server].lease.map_or(ttl, |lease| lease.renewal_timeout());
                drawn.min(limit)
            }
            Wish::Acquire | Wish::Release(_) => drawn.min(ttl),
            // A read is given up sooner than a change.
            Wish::Load => drawn.min(Duration::from_secs(10)),
            _ => drawn,
        }
    }

    fn give_up(&mut self, caller: Caller, patience: Duration) {
        self.answer_in(patience, caller, Verdict::Unknown);
    }

    fn answer_in(&mut self, delay: Duration, caller: Caller, verdict: Verdict) {
        let Caller { server, life, number } = caller;
        let message = ServerMessage::Store { number, verdict };
        self.put_in(delay, Happening::Server { server, life: Some(life), message });
    }

    /// The store takes a call.
    pub(super) fn store_hears(&mut self, call: Call) {
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
        let hidden = self.store_dice.chance(unknown);
        self.stats.unknown_commits += u64::from(hidden && matches!(call.wish, Wish::Commit { .. }));
        let done = !hidden || self.store_dice.chance(0.5);
        let patience = self.patience(caller.server, &call.wish);
        let verdict = if done { self.carry_out(caller, call.wish) } else { Verdict::Unknown };
        if self.net.from_store.contains_key(&caller.server) {
            self.give_up(caller, patience);
        } else {
            let verdict = if hidden { Verdict::Unknown } else { verdict };
            self.answer_in(Duration::from_millis(1), caller, verdict);
        }
    }

    fn carry_out(&mut self, caller: Caller, wish: Wish) -> Verdict {
        let Caller { server, number, .. } = caller;
        let ttl = self.plan.setup.shard_lease;
        match wish {
            Wish::Acquire => {
                let taken = self.store.acquire(server, ttl, self.now);
                if let Some(leases) = &taken {
                    self.record_owned(server, leases);
                }
                Verdict::Acquired(taken)
            }
            Wish::Renew(leases) => match self.store.renew(&leases, ttl, self.now) {
                Ok(()) => {
                    self.record_owned(server, &leases);
                    Verdict::Renewed
                }
                Err(_fenced) => Verdict::Fenced,
            },
            Wish::Release(leases) => {
                self.store.release(&leases, self.now);
                Verdict::Released
            }
            Wish::Load => Verdict::Loaded(Box::new(self.loaded_rows())),
            Wish::TailReconciled(leases) => match self.store.tail_reconciled(&leases) {
                Ok(()) => Verdict::TailReconciled,
                Err(_fenced) => Verdict::Fenced,
            },
            Wish::Commit { behind: Some(before), .. } if !self.store.may_go_on(server, before) => {
                Verdict::Unavailable
            }
            Wish::Commit { leases, batch, decided_at, .. } => {
                match self.store.commit(server, &leases, *batch, decided_at) {
                    Ok(commit) => {
                        self.store.done(server, number);
                        self.stats.commits += 1;
                        self.record(What::Commit(Box::new(commit)));
                        Verdict::Committed
                    }
                    Err(_fenced) => {
                        self.stats.fenced_commits += 1;
                        Verdict::Fenced
                    }
                }
            }
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

    /// Whether a lost answer is told to clients as a refusal.
    pub(super) fn takes_unknown_for_refused(&self) -> bool {
        self.plan.has(Mutation::UnknownTakenForRefused)
    }
}
