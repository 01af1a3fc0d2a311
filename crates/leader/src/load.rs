//! From owned shards to a started engine.
//!
//! ```text
//! lost tails? ── none ──> the engine of the standby, brought up to date ──┐
//!      │                            │ there is none                        ├──> the store's clock ──> start
//!      └── some ────────────────────┴──> all live rows ───────────────────┘
//! ```
//!
//! The lease is renewed meanwhile, because each of these calls may take long.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use engine::{Engine, Now};
use model::record::{Lease, LiveRow};
use model::{ShardId, Timestamp};

use crate::event::{Action, Answer, Call, CallId, Failure, FailureKind, Loaded, Notice, Retired};
use crate::lead::Leading;
use crate::leader::{Leader, Phase};
use crate::standby::TakenOver;

/// An engine that is being built.
#[derive(Debug)]
pub(crate) struct Loading {
    /// The call that it waits for; `None` while the standby takes over, which has calls of its own.
    pub(crate) call: Option<CallId>,
    leases: Arc<[Lease]>,
    started_at: Timestamp,
    /// When the first rows were asked for.
    asked_at: Timestamp,
    lost: Vec<ShardId>,
    /// The engine so far.
    pub(crate) engine: Option<Box<Engine>>,
    /// Whether it is the one of the standby that followed.
    followed: bool,
    /// How many rows the engine refused.
    refused: u64,
    /// Engine time of the newest commit, once all rows are there.
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
    /// Builds an engine for the shards that it owns.
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

    pub(crate) fn go_on_loading(&mut self, now: Now, answer: Result<Answer, Failure>) {
        let Phase::Loading(loading) = &mut self.phase else { return };
        match answer {
            Ok(Answer::LostTails(lost)) => {
                loading.lost = lost;
                // What a standby followed of commits that are lost is of no use.
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
            // The store's clock is only a second opinion: without it the loaded engine is as good.
            Err(_) if loading.committed.is_some() => self.start(now, None),
            Err(failure) => self.not_taken(now, failure),
            Ok(_) => {}
        }
    }

    pub(crate) fn standby_answered(&mut self, now: Now, call: CallId, answer: Result<Answer, Failure>) {
        let leases = self.common.leases.clone().unwrap_or_default();
        let taken = self.standby.answered(&mut self.common, now, call, answer, &leases);
        self.standby_took_over(now, taken);
    }

    fn standby_took_over(&mut self, now: Now, taken: Option<TakenOver>) {
        let Phase::Loading(loading) = &mut self.phase else { return };
        match taken {
            None => {}
            Some(TakenOver::Engine(engine, committed)) => {
                (loading.engine, loading.committed, loading.followed) = (Some(engine), Some(committed), true);
                self.ask_for_time();
            }
            Some(TakenOver::Nothing) => self.load_rows(now),
        }
    }

    fn load_rows(&mut self, now: Now) {
        let Phase::Loading(loading) = &mut self.phase else { return };
        self.standby.retire(&mut self.common);
        let config = self.common.engine_config();
        // Rows tell how far engine time is; the start tells what the clock shows.
        let clocks = Now { wall: Timestamp::default(), ..now };
        let shards = self.common.config.shards;
        loading.engine = Some(Box::new(Engine::new(config, &loading.leases, shards, clocks)));
        loading.asked_at = now.steady;
        loading.call = Some(self.common.call(Call::Load(Arc::clone(&loading.leases)), None));
    }

    /// Gives the engine rows of the store.
    pub(crate) fn restore(&mut self, now: Now, call: CallId, rows: Vec<LiveRow>) {
        let Phase::Loading(loading) = &mut self.phase else { return };
        let Some(engine) = loading.engine.as_mut().filter(|_| loading.call == Some(call)) else { return };
        let restored = catch_unwind(AssertUnwindSafe(|| {
            rows.into_iter().filter_map(|row| engine.restore(row).err()).collect::<Vec<_>>()
        }));
        let Ok(poison) = restored else {
            self.common.act(Action::Abandon(call));
            self.common.notice(Notice::EngineFailedOnRows);
            return self.not_taken(now, failed_on_rows());
        };
        loading.refused += poison.len() as u64;
        for poison in poison {
            self.common.notice(Notice::RowSetAside(poison.to_string()));
        }
    }

    fn loaded(&mut self, now: Now, Loaded { now: committed, rows, quarantined }: Loaded) {
        let Phase::Loading(loading) = &mut self.phase else { return };
        loading.committed = Some(committed);
        let (quarantined, took) = (quarantined + loading.refused, now.steady.since(loading.asked_at));
        self.common.notice(Notice::Loaded { rows, quarantined, took });
        self.ask_for_time();
    }

    /// Asked after the rows, which may have taken long.
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
            engine.distrust(&lost);
        }
        let (clocks, doubt) = believable(now, of_store, common.confirmed, committed);
        if let Some(doubt) = doubt {
            common.notice(doubt);
        }
        engine.resume_from(committed);
        engine.succeed(common.former_owner_until.since(now.steady));
        // Before the start, which would begin what waits for its turn.
        engine.hold_new_work(common.full);
        if catch_unwind(AssertUnwindSafe(|| engine.start(clocks))).is_err() {
            common.act(Action::Retire(Retired::Engine(engine)));
            common.notice(Notice::EngineFailedOnRows);
            return self.not_taken(now, failed_on_rows());
        }
        common.notice(Notice::Leads { followed, took: now.steady.since(started_at) });
        if committed.since(now.wall) > BEHIND {
            common.notice(Notice::ClockBehind(committed.since(now.wall)));
        }
        let leading = Leading::new(common, engine, leases, now);
        self.phase = Phase::Leading(Box::new(leading));
    }
}

/// From this difference on, a wall clock that is behind the rows is logged: engine time waits for it.
const BEHIND: model::Duration = model::Duration::from_secs(1);

fn failed_on_rows() -> Failure {
    Failure { kind: FailureKind::Other, message: "the engine failed on a row".into() }
}

/// The clocks that the engine starts with. A wall clock that is ahead of the newest commit tells of an outage, or is
/// wrong: where the store has a clock of its own, that one says which; else the time that the engine before this one
/// `confirmed`, if this process had one, and the steady time since then.
fn believable(
    clocks: Now,
    store: Option<Timestamp>,
    confirmed: Option<Now>,
    committed: Timestamp,
) -> (Now, Option<Notice>) {
    let of_process = || {
        let Now { wall, steady } = confirmed?;
        Some(("that this process confirmed before", wall + clocks.steady.since(steady)))
    };
    let second = store.map(|store| ("of the database's clock", store)).or_else(of_process);
    match second {
        // Not before the newest commit: a time that is behind engine time would confirm nothing later.
        Some((source, second)) if clocks.wall > second.max(committed) + engine::LEAP_MAX => {
            let doubt = Notice::ClockNotBelieved { ahead: clocks.wall.since(second), second: source };
            (Now { wall: second.max(committed), ..clocks }, Some(doubt))
        }
        _ => (clocks, None),
    }
}
