//! From owned shards to a started engine.
//!
//! ```text
//! lost commits? ── none ──> engine of the standby, brought up to date ──┐
//!      │                           │ no standby engine                  ├──> the store's clock ──> start
//!      └── some ───────────────────┴──> load of all live rows ──────────┘
//! ```
//!
//! Called by `acquire` after the shards were acquired. The leadership lease is renewed meanwhile, because each of
//! these calls may take long.
//!
//! # Invariants
//! - The engine starts with all live rows of its shards, except quarantined ones, or not at all.
//! - Engine time starts at or after the newest commit.
//! - After lost commits, the engine of a standby is never used.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use engine::{Engine, Now};
use model::record::{Lease, LiveRow};
use model::{ShardId, Timestamp};

use crate::event::{Action, Answer, Call, CallId, Failure, FailureKind, Loaded, Notice, Retired};
use crate::lead::Leading;
use crate::leader::{Leader, Phase};
use crate::standby::TakeoverResult;

/// An engine that is being built.
#[derive(Debug)]
pub(crate) struct Loading {
    /// The pending call; `None` while the standby takes over, which has its own calls.
    pub(crate) call: Option<CallId>,
    leases: Arc<[Lease]>,
    started_at: Timestamp,
    /// When the load of all rows was requested.
    asked_at: Timestamp,
    lost: Vec<ShardId>,
    /// The engine so far.
    pub(crate) engine: Option<Box<Engine>>,
    /// Whether the engine comes from the standby.
    followed: bool,
    /// Number of rows that the engine refused.
    refused: u64,
    /// Engine time of the newest commit; `None` until all rows are loaded.
    committed: Option<Timestamp>,
}

impl Loading {
    pub(crate) fn waits_for_standby(&self) -> bool {
        self.call.is_none()
    }

    pub(crate) fn followed_engine(&self) -> Option<&Engine> {
        self.engine.as_deref().filter(|_| self.followed)
    }
}

impl<R> Leader<R> {
    /// Starts to build an engine for the owned shards.
    pub(crate) fn load(&mut self, now: Now, leases: Arc<[Lease]>) {
        let call = self.common.call(Call::LostTails(Arc::clone(&leases)), None);
        self.phase = Phase::Loading(Box::new(Loading {
            call: Some(call),
            leases,
            started_at: now.steady,
            asked_at: now.steady,
            lost: Vec::new(),
            engine: None,
            followed: false,
            refused: 0,
            committed: None,
        }));
    }

    pub(crate) fn continue_loading(&mut self, now: Now, answer: Result<Answer, Failure>) {
        let Phase::Loading(loading) = &mut self.phase else { return };
        match answer {
            Ok(Answer::LostTails(lost)) => {
                loading.lost = lost;
                // A standby may have followed commits that are lost now, so its engine is not used.
                match loading.lost.is_empty() {
                    true => {
                        loading.call = None;
                        let leases = Arc::clone(&loading.leases);
                        let taken = self.standby.take_over(&mut self.common, now, &leases);
                        self.standby_took_over(now, taken);
                    }
                    false => self.load_rows(now),
                }
            }
            Ok(Answer::Loaded(loaded)) => self.loaded(now, loaded),
            Ok(Answer::Clock(of_store)) => self.start(now, of_store),
            // The store's clock is only a second opinion: the loaded engine starts without it.
            Err(_) if loading.committed.is_some() => self.start(now, None),
            Err(failure) => self.acquire_failed(now, failure),
            Ok(_) => {}
        }
    }

    pub(crate) fn standby_answered(&mut self, now: Now, call: CallId, answer: Result<Answer, Failure>) {
        let leases = self.common.leases.clone().unwrap_or_default();
        let taken = self.standby.answered(&mut self.common, now, call, answer, &leases);
        self.standby_took_over(now, taken);
    }

    fn standby_took_over(&mut self, now: Now, taken: Option<TakeoverResult>) {
        let Phase::Loading(loading) = &mut self.phase else { return };
        match taken {
            None => {}
            Some(TakeoverResult::Engine(engine, committed)) => {
                (loading.engine, loading.committed, loading.followed) = (Some(engine), Some(committed), true);
                self.ask_for_time();
            }
            Some(TakeoverResult::Nothing) => self.load_rows(now),
        }
    }

    fn load_rows(&mut self, now: Now) {
        let Phase::Loading(loading) = &mut self.phase else { return };
        self.standby.retire(&mut self.common);
        let config = self.common.engine_config();
        // The rows determine engine time; the start sets the wall clock.
        let clocks = Now { wall: Timestamp::default(), ..now };
        let shards = self.common.config.shards;
        loading.engine = Some(Box::new(Engine::new(config, &loading.leases, shards, clocks)));
        loading.asked_at = now.steady;
        loading.call = Some(self.common.call(Call::Load(Arc::clone(&loading.leases)), None));
    }

    /// Restores rows of the store into the engine.
    pub(crate) fn restore(&mut self, now: Now, call: CallId, rows: Vec<LiveRow>) {
        let Phase::Loading(loading) = &mut self.phase else { return };
        let Some(engine) = loading.engine.as_mut().filter(|_| loading.call == Some(call)) else { return };
        let restored = catch_unwind(AssertUnwindSafe(|| {
            rows.into_iter().filter_map(|row| engine.restore(row).err()).collect::<Vec<_>>()
        }));
        let Ok(poison) = restored else {
            self.common.act(Action::Abandon(call));
            self.common.notice(Notice::EngineFailedOnRows);
            return self.acquire_failed(now, failed_on_rows());
        };
        loading.refused += poison.len() as u64;
        for poison in poison {
            self.common.notice(Notice::RowQuarantined(poison.to_string()));
        }
    }

    fn loaded(&mut self, now: Now, Loaded { now: committed, rows, quarantined }: Loaded) {
        let Phase::Loading(loading) = &mut self.phase else { return };
        loading.committed = Some(committed);
        let (quarantined, took) = (quarantined + loading.refused, now.steady.since(loading.asked_at));
        self.common.notice(Notice::Loaded { rows, quarantined, took });
        self.ask_for_time();
    }

    /// Reads the store's clock after the rows, because the load may have taken long.
    fn ask_for_time(&mut self) {
        let timeout = self.common.lease.renewal_timeout();
        let call = self.common.call(Call::Clock, Some(timeout));
        if let Phase::Loading(loading) = &mut self.phase {
            loading.call = Some(call);
        }
    }

    fn start(&mut self, now: Now, of_store: Option<Timestamp>) {
        let Phase::Loading(loading) =
            std::mem::replace(&mut self.phase, Phase::Standby { ask_at: now.steady })
        else {
            return;
        };
        let Loading { leases, started_at, lost, engine, followed, committed, .. } = *loading;
        let (Some(mut engine), Some(committed)) = (engine, committed) else { return };
        let common = &mut self.common;
        if !lost.is_empty() {
            common.notice(Notice::TailLost { shards: lost.len() });
            engine.assume_lost_commits(&lost);
        }
        let (clocks, doubt) = trusted_clocks(now, of_store, common.confirmed, committed);
        if let Some(doubt) = doubt {
            common.notice(doubt);
        }
        engine.resume_from(committed);
        engine.set_former_owner_lease(common.former_owner_until.since(now.steady));
        // Before the start, which would otherwise start new work on a full store.
        engine.hold_new_work(common.full);
        if catch_unwind(AssertUnwindSafe(|| engine.start(clocks))).is_err() {
            common.act(Action::Retire(Retired::Engine(engine)));
            common.notice(Notice::EngineFailedOnRows);
            return self.acquire_failed(now, failed_on_rows());
        }
        common.notice(Notice::Leads { followed, took: now.steady.since(started_at) });
        if committed.since(now.wall) > CLOCK_LAG_MIN {
            common.notice(Notice::ClockBehind(committed.since(now.wall)));
        }
        let leading = Leading::new(common, engine, leases, now);
        self.phase = Phase::Leading(Box::new(leading));
    }
}

/// Minimum lag of the wall clock behind the rows that is logged. Engine time waits for the wall clock.
const CLOCK_LAG_MIN: model::Duration = model::Duration::from_secs(1);

fn failed_on_rows() -> Failure {
    Failure { kind: FailureKind::Other, message: "the engine panicked while it restored a row".into() }
}

/// Returns the clocks with which the engine starts. A wall clock far ahead of the newest commit means an outage, or
/// is wrong. A second clock decides: the store's clock if it has one. Otherwise the time that this process's last
/// engine `confirmed`, plus the steady time since then.
fn trusted_clocks(
    clocks: Now,
    store: Option<Timestamp>,
    confirmed: Option<Now>,
    committed: Timestamp,
) -> (Now, Option<Notice>) {
    let of_process = || {
        let Now { wall, steady } = confirmed?;
        Some(("the last confirmed time of this process", wall + clocks.steady.since(steady)))
    };
    let second = store.map(|store| ("the database's clock", store)).or_else(of_process);
    match second {
        // Not before the newest commit: a time behind engine time could not be confirmed later.
        Some((source, second)) if clocks.wall > second.max(committed) + engine::LEAP_MAX => {
            let doubt = Notice::ClockDistrusted { ahead: clocks.wall.since(second), second: source };
            (Now { wall: second.max(committed), ..clocks }, Some(doubt))
        }
        _ => (clocks, None),
    }
}
