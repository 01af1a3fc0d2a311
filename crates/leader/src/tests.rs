//! Property and scenario tests of the leader, in a world whose store, clients and servers act at random.
//!
//! `World` plays everything around a [`Leader`]. Its `Store` has the actual owner and the durable jobs,
//! independent of what the leader assumes. A `Step` lets time pass, submits a job, answers a pending call, or
//! lets another server take over. The scenarios at the end use the same world with chosen steps.
//!
//! # Invariants
//! `World::carry_out` checks after each step:
//! - No reply precedes the commit of its job, and each request is answered once.
//! - No effect reaches a worker without a valid lease, and two servers never lead at the same time.
//!
//! The properties add liveness: after any sequence of steps, leadership returns, and a stop ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use engine::input::NewJob;
use engine::{Input, Join, Now, Session, Ticket};
use model::changelog::{ChangelogPage, ChangelogPosition, ReloadedRows};
use model::id::Epoch;
use model::record::{JobHead, Lease};
use model::worker::{Capabilities, Capacity, WorkerStatus};
use model::{Duration, JobSpec, ShardId, Timestamp, WorkerId};
use proptest::prelude::*;

use crate::*;

const LEASE: Duration = Duration::from_millis(2_500);
const SHARDS: u16 = 2;
const PLACE: ChangelogPosition = ChangelogPosition { commit: 7, epoch: Epoch(1) };

fn config() -> Config {
    Config {
        engine: engine::Config { seed: 7, ..engine::Config::default() },
        shards: SHARDS,
        lease: LEASE,
        commits_ahead: 3,
        is_exclusive: false,
        has_reserve: false,
        batch_inputs: Config::BATCH_INPUTS,
        ahead_inputs: 1,
        follows: true,
        reread_keys: 2,
    }
}

/// One random step of a test.
#[derive(Debug, Clone)]
enum Step {
    /// Time passes in milliseconds, without a turn in between.
    Wait(u64),
    /// A client submits a job.
    Submit,
    /// The oldest or the newest pending call is answered.
    Answer {
        newest: bool,
        with: With,
    },
    /// Another server takes over, if the lease has ended.
    TakenOver,
    Standing(Standing),
}

/// Result of a call.
#[derive(Debug, Clone, Copy)]
enum With {
    Success,
    Failure(FailureKind),
    /// The call is executed, but its answer is an unknown outcome.
    DoneUnknown,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let failures = prop_oneof![
        Just(FailureKind::Unavailable),
        Just(FailureKind::OutcomeUnknown),
        Just(FailureKind::Full),
        Just(FailureKind::Other),
    ];
    let with = prop_oneof![
        6 => Just(With::Success),
        1 => failures.prop_map(With::Failure),
        1 => Just(With::DoneUnknown),
    ];
    let standing = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(may_acquire, takeover_is_near, yields, hands_over)| Standing {
            may_acquire,
            takeover_is_near,
            yields,
            hands_over,
        },
    );
    let step = prop_oneof![
        4 => (1..400_u64).prop_map(Step::Wait),
        1 => (1_000..12_000_u64).prop_map(Step::Wait),
        4 => Just(Step::Submit),
        12 => (any::<bool>(), with).prop_map(|(newest, with)| Step::Answer { newest, with }),
        1 => Just(Step::TakenOver),
        1 => standing.prop_map(Step::Standing),
    ];
    prop::collection::vec(step, 1..120)
}

/// The actual state of the store, independent of what the leader assumes.
#[derive(Debug, Default)]
struct Store {
    epoch: u64,
    /// End of the leader's ownership in the store; zero while it does not own the shards.
    owned_until: Timestamp,
    /// End of another server's ownership.
    taken_until: Timestamp,
    /// Tickets of the durable jobs.
    durable: BTreeSet<u64>,
}

/// A leader with a store, clients, workers and other servers.
struct World {
    leader: Leader<u64>,
    now: Timestamp,
    store: Store,
    /// Pending calls, oldest first.
    calls: VecDeque<(CallId, Call)>,
    /// Number of tickets submitted so far, from 1.
    submitted: u64,
    /// The reply to each ticket.
    told: BTreeMap<u64, Result<(), Unanswered>>,
    /// The calls of all commits so far, in order.
    asked_commits: Vec<CallId>,
    published: Vec<u64>,
    shown: Option<Readiness>,
    lanes_closed: bool,
}

impl World {
    fn new() -> Self {
        Self {
            leader: Leader::new(config()),
            now: Timestamp::from_micros(1_800_000_000_000_000),
            store: Store::default(),
            calls: VecDeque::new(),
            submitted: 0,
            told: BTreeMap::new(),
            asked_commits: Vec::new(),
            published: Vec::new(),
            shown: None,
            lanes_closed: false,
        }
    }

    fn clocks(&self) -> Now {
        Now { wall: self.now, steady: self.now }
    }

    fn turn(&mut self) {
        self.leader.turn(self.clocks(), true);
        self.carry_out();
    }

    fn handle(&mut self, event: Event<u64>) {
        self.leader.handle(self.clocks(), event);
        self.carry_out();
        self.turn();
    }

    fn carry_out(&mut self) {
        for action in self.leader.take_actions() {
            match action {
                Action::Call { id, call, .. } => {
                    if matches!(call, Call::Commit(..)) {
                        self.asked_commits.push(id);
                    }
                    self.calls.push_back((id, call));
                }
                Action::Abandon(id) => self.calls.retain(|(known, _)| *known != id),
                Action::Reply { to, reply } => {
                    let told = reply.map(|_| ());
                    if told.is_ok() {
                        assert!(
                            self.store.durable.contains(&to),
                            "request {to} was acknowledged before its job is durable"
                        );
                    }
                    assert_eq!(self.told.insert(to, told), None, "request {to} was answered twice");
                }
                Action::ToWorker(effect) => {
                    assert!(self.leader.leads(self.now), "{effect:?} without a valid lease");
                }
                Action::Publish { batch, .. } => self.published.push(batch.now.as_micros().unsigned_abs()),
                Action::Show(readiness) => self.shown = Some(readiness),
                Action::CloseLanes => self.lanes_closed = true,
                _ => {}
            }
        }
        if self.leader.leads(self.now) {
            assert!(self.now >= self.store.taken_until, "two servers lead");
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Wait(millis) => {
                let until = self.now + Duration::from_millis(millis);
                // The shell sleeps until the next turn.
                while self.now < until {
                    let wake = self.leader.wake_at(self.clocks()).max(self.now + Duration::from_millis(1));
                    self.now = wake.min(until);
                    self.turn();
                }
            }
            Step::Submit => self.submit(),
            Step::Answer { newest, with } => self.answer(newest, with),
            Step::TakenOver if self.now >= self.store.owned_until => {
                self.store.epoch += 1;
                self.store.taken_until = self.now + LEASE;
            }
            Step::TakenOver => {}
            Step::Standing(standing) => self.handle(Event::Standing(standing)),
        }
    }

    fn submit(&mut self) {
        self.submitted += 1;
        let spec = JobSpec::command(["true"]);
        let head = JobHead {
            body: "{}".into(),
            spec: Arc::new(spec),
            retry_of: None,
            origin: None,
            step: None,
            replica: None,
        };
        let jobs = vec![NewJob { head: Arc::new(head), key: None, actor: "test".into(), ended: Vec::new() }];
        let ticket = Ticket(self.submitted);
        let reply = self.submitted;
        self.handle(Event::Request { ticket, input: Input::Submit { ticket, jobs }, reply });
    }

    /// Opens a worker session that sends no heartbeat.
    fn join(&mut self) {
        let join = Join {
            worker: WorkerId::from_bits(1),
            session: Session(1),
            name: "w".into(),
            version: "1".into(),
            address: None,
            labels: BTreeMap::new(),
            capacity: Capacity { slots: 1, ..Capacity::default() },
            capabilities: Capabilities::default(),
            held: Vec::new(),
        };
        self.handle(Event::Worker(Input::Join(Box::new(join))));
    }

    fn connected(&self) -> usize {
        let workers = self.leader.view().map(|view| view.workers).unwrap_or_default();
        workers.iter().filter(|worker| worker.status == WorkerStatus::Ready).count()
    }

    /// Answers a call. Commits are executed in order; other calls are independent.
    fn answer(&mut self, newest: bool, with: With) {
        let Some(mut at) =
            (if newest { self.calls.len().checked_sub(1) } else { self.calls.front().map(|_| 0) })
        else {
            return;
        };
        if matches!(self.calls[at].1, Call::Commit(..)) {
            at = self.calls.iter().position(|(_, call)| matches!(call, Call::Commit(..))).unwrap();
        }
        let Some((id, call)) = self.calls.remove(at) else { return };
        let failed = |kind| Err(Failure { kind, message: format!("{kind:?}") });
        let answer = match with {
            With::Failure(kind) => failed(kind),
            With::DoneUnknown => match self.carry_out_call(call) {
                Ok(_) => failed(FailureKind::OutcomeUnknown),
                failure => failure,
            },
            With::Success => self.carry_out_call(call),
        };
        self.handle(Event::Answered(id, answer));
    }

    fn carry_out_call(&mut self, call: Call) -> Result<Answer, Failure> {
        let fenced = || Err(Failure { kind: FailureKind::Fenced, message: "fenced".into() });
        let holds = |store: &Store, leases: &[Lease]| leases[0].epoch == Epoch(store.epoch);
        match call {
            Call::Acquire => {
                let is_free = self.now >= self.store.owned_until && self.now >= self.store.taken_until;
                let mut leases = Vec::new();
                if is_free {
                    self.store.epoch += 1;
                    self.store.owned_until = self.now + LEASE;
                    let epoch = Epoch(self.store.epoch);
                    leases = (0..SHARDS).map(|shard| Lease { shard: ShardId(shard), epoch }).collect();
                }
                Ok(Answer::Acquired { leases, former_owner: Duration::ZERO })
            }
            Call::Renew(leases) | Call::Reconciled(leases) if !holds(&self.store, &leases) => fenced(),
            Call::Renew(_) => {
                self.store.owned_until = self.now + LEASE;
                Ok(Answer::Done)
            }
            Call::Release(leases) => {
                if holds(&self.store, &leases) {
                    self.store.owned_until = self.now;
                }
                Ok(Answer::Done)
            }
            Call::LostTails(_) => Ok(Answer::LostTails(Vec::new())),
            Call::ChangelogEnd => Ok(Answer::ChangelogEnd(PLACE)),
            Call::ChangelogSince(end) => {
                let since = ChangelogPage { touched: Vec::new(), end, whole: true, now: self.now };
                Ok(Answer::ChangelogSince(Some(since)))
            }
            Call::LiveRows(_) => Ok(Answer::LiveRows(ReloadedRows { rows: Vec::new(), unreadable: 0 })),
            Call::CountJobs => Ok(Answer::Jobs(BTreeMap::new())),
            Call::Load(_) | Call::Preload => {
                Ok(Answer::Loaded(Loaded { now: self.now, ..Loaded::default() }))
            }
            Call::Clock => Ok(Answer::Clock(Some(self.now))),
            Call::Commit(leases, _) if !holds(&self.store, &leases) => fenced(),
            Call::Commit(..) => {
                // A batch contains at most the jobs submitted so far.
                self.store.durable.extend(1..=self.submitted);
                Ok(Answer::Committed(Committed::default()))
            }
            Call::Probe | Call::Reconciled(_) => Ok(Answer::Done),
        }
    }

    /// From here on, every call succeeds.
    fn calm(&mut self, lasts: u64) {
        for _ in 0..lasts / 50 {
            while !self.calls.is_empty() {
                self.answer(false, With::Success);
            }
            self.step(Step::Wait(50));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// [`World::carry_out`] asserts the safety properties; this test adds liveness.
    #[test]
    fn guarantees_hold_and_leadership_returns_after_any_sequence_of_events(steps in steps()) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.step(step));
        world.handle(Event::Standing(Standing::default()));
        world.calm(60_000);
        prop_assert_eq!(&world.shown, &Some(Readiness::Ready));
        prop_assert!(world.leader.leads(world.now));
        let answered: Vec<_> = world.told.keys().copied().collect();
        prop_assert_eq!(answered, (1..=world.submitted).collect::<Vec<_>>());
    }

    #[test]
    fn a_server_stops_after_any_sequence_of_events(steps in steps(), answers: bool) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.step(step));
        world.handle(Event::Stop);
        // The shell abandons calls that are never answered.
        for _ in 0..120 {
            if world.leader.ended().is_some() {
                break;
            }
            while let Some((id, _)) = world.calls.front() {
                let id = *id;
                if answers {
                    world.answer(false, With::Success);
                } else {
                    world.calls.pop_front();
                    let failure = Failure { kind: FailureKind::Unavailable, message: "silent".into() };
                    world.handle(Event::Answered(id, Err(failure)));
                }
            }
            world.step(Step::Wait(500));
        }
        prop_assert!(matches!(world.leader.ended(), Some(Ok(()))));
        let answered: Vec<_> = world.told.keys().copied().collect();
        prop_assert_eq!(answered, (1..=world.submitted).collect::<Vec<_>>());
    }
}

/// Returns a world in which the server leads.
fn leading() -> World {
    leading_with(config())
}

fn leading_with(config: Config) -> World {
    let mut world = World { leader: Leader::new(config), ..World::new() };
    world.turn();
    world.calm(1_000);
    assert!(world.leader.leads(world.now));
    world
}

#[test]
fn a_lease_that_is_not_renewed_suspends_leadership_and_a_late_renewal_resumes_it() {
    let mut world = leading();
    world.step(Step::Wait(3_000));
    assert_eq!(world.shown, Some(Readiness::Suspended));
    assert!(!world.leader.leads(world.now));
    world.calm(200);
    assert_eq!(world.shown, Some(Readiness::Ready), "no other server had taken over");
}

#[test]
fn a_request_that_comes_during_a_suspension_is_refused() {
    let mut world = leading();
    world.step(Step::Wait(3_000));
    world.submit();
    assert_eq!(world.told[&1], Err(Unanswered::Loading));
}

#[test]
fn a_full_batch_does_not_delay_refused_requests() {
    let mut world = leading_with(Config { batch_inputs: 1, commits_ahead: 1, ..config() });
    world.submit();
    world.submit();
    assert_eq!(world.leader.room(), 0);
    world.step(Step::Wait(3_000));
    assert_eq!(world.shown, Some(Readiness::Suspended));
    assert_ne!(world.leader.room(), 0);
}

/// D2. Otherwise a dead worker would count as alive for as long as its leader's commit takes.
#[test]
fn a_slow_commit_extends_no_worker_lease() {
    let lease = Duration::from_secs(10);
    let mut world = leading_with(Config {
        engine: engine::Config { lease, ..config().engine },
        is_exclusive: true,
        ..config()
    });
    world.join();
    world.calm(1_000);
    assert_eq!(world.connected(), 1);
    world.submit();
    world.step(Step::Wait(60_000));
    world.calm(1_000);
    assert_eq!(world.connected(), 0, "the worker was silent for six times its lease");
}

#[test]
fn a_standby_reports_that_it_is_one_after_a_failure_too() {
    let mut world = World::new();
    world.store.taken_until = world.now + Duration::from_secs(60);
    world.turn();
    world.calm(1_000);
    let standing_by = world.shown.clone();
    world.step(Step::Wait(500));
    world.step(Step::Answer { newest: true, with: With::Failure(FailureKind::Unavailable) });
    assert_ne!(world.shown, standing_by);
    world.calm(1_000);
    assert_eq!(world.shown, standing_by);
}

#[test]
fn a_stop_is_shown_immediately_and_closes_the_lanes_in_every_phase() {
    let (acquiring, leads) = (World::new(), leading());
    for mut world in [acquiring, leads] {
        world.turn();
        world.handle(Event::Stop);
        assert_eq!(world.shown, Some(Readiness::Stopping));
        assert!(world.lanes_closed);
        world.calm(5_000);
        assert!(matches!(world.leader.ended(), Some(Ok(()))));
        assert_eq!(world.shown, Some(Readiness::Stopping));
    }
}

#[test]
fn sent_requests_are_answered_as_unknown_and_unsent_ones_as_refused() {
    let mut world = leading();
    world.submit();
    world.step(Step::Answer { newest: true, with: With::Failure(FailureKind::OutcomeUnknown) });
    assert_eq!(world.told[&1], Err(Unanswered::OutcomeUnknown));
    world.calm(5_000);
    world.submit();
    world.step(Step::Answer { newest: true, with: With::Failure(FailureKind::Unavailable) });
    assert_eq!(world.told[&2], Err(Unanswered::Loading));
}

#[test]
fn a_standby_that_yields_after_an_unknown_commit_still_stops() {
    let mut world = leading();
    world.submit();
    world.handle(Event::Standing(Standing { yields: true, ..Standing::default() }));
    world.step(Step::Answer { newest: true, with: With::Failure(FailureKind::OutcomeUnknown) });
    world.calm(2_000);
    world.handle(Event::Stop);
    world.calm(2_000);
    assert!(matches!(world.leader.ended(), Some(Ok(()))));
}

/// I4. Otherwise the store could execute a batch without the one before it: the store puts it behind the newest batch that
/// has not failed.
#[test]
fn no_batch_is_sent_behind_a_failed_one() {
    let mut world = leading();
    world.submit();
    world.submit();
    let [.., _, second] = world.asked_commits[..] else { panic!("two commits are in flight") };
    let sent = world.asked_commits.len();
    let failure = Failure { kind: FailureKind::OutcomeUnknown, message: "lost".into() };
    world.handle(Event::Answered(second, Err(failure)));
    world.submit();
    world.step(Step::Wait(100));
    assert_eq!(world.asked_commits.len(), sent, "the first one is not answered yet");
}
