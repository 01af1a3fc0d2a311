//! Which failures make a standby drop its rows, and which do not. Each test sets the answers of the store.
//!
//! `Scene` drives one [`Leader`] on virtual time and answers each of its calls: rows, changelog pages, job
//! counts. A test sets these answers, or holds back the answers to some calls, and then compares the notices
//! of the leader and the times of its calls. `takes_over_followed` frees the shards and returns whether the
//! takeover used the followed rows.
//!
//! In every test, `Scene::run` checks that the leader sleeps while it waits. Random orders of answers are in
//! `crate::tests`.

use std::collections::{BTreeMap, VecDeque};

use model::changelog::{ChangelogPage, ChangelogPosition, LiveChange, LiveKey, ReloadedRows};
use model::id::Epoch;
use model::record::{HistoryEntry, JobHead, JobState, Lease, LiveRow};
use model::{Cause, Duration, Fence, JobId, JobSpec, JobStatus, ShardId, Timestamp};

use super::NotFollowed;
use crate::{
    Action, Answer, Call, CallId, Config, Event, Failure, FailureKind, Leader, Loaded, Notice, Standing,
};

const PLACE: ChangelogPosition = ChangelogPosition { commit: 7, epoch: Epoch(1) };

/// A standby, and a store that answers each call immediately unless the test holds the answer back.
struct Scene {
    leader: Leader<()>,
    now: Timestamp,
    /// Whether no other server owns the shards.
    is_free: bool,
    /// The answer to an acquire request, if it is a failure.
    acquire_fails: Option<Failure>,
    /// The next answers of the changelog; after them, it reports no changes.
    changelog: VecDeque<Result<Option<ChangelogPage>, Failure>>,
    rows: Vec<LiveRow>,
    damaged: u64,
    reread: ReloadedRows,
    counts: BTreeMap<JobStatus, u64>,
    /// Selects the calls that get no answer.
    holds_back: fn(&Call) -> bool,
    /// The calls so far, with their times.
    calls: Vec<(Timestamp, Call)>,
    notices: Vec<Notice>,
}

fn quiet() -> ChangelogPage {
    ChangelogPage { touched: Vec::new(), end: PLACE, whole: true, now: Timestamp::default() }
}

fn changed(job: u128) -> ChangelogPage {
    ChangelogPage { touched: vec![LiveChange::Rows(LiveKey::Job(JobId::from_bits(job)))], ..quiet() }
}

fn away() -> Failure {
    Failure { kind: FailureKind::Unavailable, message: "injected failure".into() }
}

impl Scene {
    fn new() -> Self {
        let leader = Leader::new(Config {
            engine: engine::Config { seed: 7, ..engine::Config::default() },
            shards: 1,
            lease: Duration::from_millis(2_500),
            commits_ahead: 1,
            is_exclusive: false,
            has_reserve: false,
            batch_inputs: Config::BATCH_INPUTS,
            ahead_inputs: 1,
            follows: true,
            reread_keys: 1,
        });
        Self {
            leader,
            now: Timestamp::from_micros(1_800_000_000_000_000),
            is_free: false,
            acquire_fails: None,
            changelog: VecDeque::new(),
            rows: Vec::new(),
            damaged: 0,
            reread: ReloadedRows { rows: Vec::new(), unreadable: 0 },
            counts: BTreeMap::new(),
            holds_back: |_| false,
            calls: Vec::new(),
            notices: Vec::new(),
        }
    }

    fn clocks(&self) -> engine::Now {
        engine::Now { wall: self.now, steady: self.now }
    }

    /// Lets time pass; the store answers immediately.
    fn run(&mut self, lasts: Duration) {
        let until = self.now + lasts;
        while self.now < until {
            self.leader.turn(self.clocks(), true);
            self.carry_out();
            let wake = self.leader.wake_at(self.clocks());
            assert!(wake > self.now || self.leader.engine().is_some(), "the leader is idle, not asleep");
            self.now = wake.max(self.now + Duration::from_millis(1)).min(until);
        }
    }

    fn carry_out(&mut self) {
        loop {
            let actions = self.leader.take_actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    Action::Call { id, call, .. } => self.answer(id, call),
                    Action::Notice(notice) => self.notices.push(notice),
                    _ => {}
                }
            }
            self.leader.turn(self.clocks(), true);
        }
    }

    fn answer(&mut self, id: CallId, call: Call) {
        self.calls.push((self.now, call.clone()));
        if (self.holds_back)(&call) {
            return;
        }
        let answer = match call {
            Call::Acquire => {
                let lease = Lease { shard: ShardId(0), epoch: Epoch(2) };
                let leases = if self.is_free { vec![lease] } else { Vec::new() };
                let answer = Answer::Acquired { leases, former_owner: Duration::ZERO };
                self.acquire_fails.clone().map_or(Ok(answer), Err)
            }
            Call::LostTails(_) => Ok(Answer::LostTails(Vec::new())),
            Call::ChangelogEnd => Ok(Answer::ChangelogEnd(PLACE)),
            Call::ChangelogSince(_) => {
                self.changelog.pop_front().unwrap_or_else(|| Ok(Some(quiet()))).map(Answer::ChangelogSince)
            }
            Call::Preload => {
                self.leader.handle(self.clocks(), Event::Rows(id, self.rows.clone()));
                let rows = self.rows.len() as u64 + self.damaged;
                Ok(Answer::Loaded(Loaded { rows, quarantined: self.damaged, ..Loaded::default() }))
            }
            Call::LiveRows(_) => Ok(Answer::LiveRows(self.reread.clone())),
            Call::CountJobs => Ok(Answer::Jobs(self.counts.clone())),
            Call::Load(_) => Ok(Answer::Loaded(Loaded::default())),
            Call::Clock => Ok(Answer::Clock(Some(self.now))),
            _ => Ok(Answer::Done),
        };
        self.leader.handle(self.clocks(), Event::Answered(id, answer));
    }

    /// Frees the shards, and returns whether this server takes over with the rows that it followed.
    fn takes_over_followed(&mut self) -> bool {
        self.is_free = true;
        self.run(Duration::from_secs(5));
        let leads = |notice: &Notice| match notice {
            Notice::Leads { followed, .. } => Some(*followed),
            _ => None,
        };
        self.notices.iter().find_map(leads).expect("this server leads")
    }

    fn times(&self, which: impl Fn(&Call) -> bool) -> Vec<Timestamp> {
        self.calls.iter().filter(|(_, call)| which(call)).map(|(at, _)| *at).collect()
    }

    fn not_followed(&self) -> Vec<(&NotFollowed, Duration)> {
        let not_followed = self.notices.iter().filter_map(|notice| match notice {
            Notice::NotFollowed { why, again_in } => Some((why, *again_in)),
            _ => None,
        });
        not_followed.collect()
    }
}

fn job(id: u128) -> LiveRow {
    let spec = JobSpec::command(["true"]);
    let body = spec.compact_json().into();
    let head = JobHead {
        spec: std::sync::Arc::new(spec),
        body,
        retry_of: None,
        origin: None,
        step: None,
        replica: None,
    };
    let at = Timestamp::default();
    let waits = HistoryEntry {
        at,
        from: None,
        to: JobStatus::Waiting,
        cause: Cause::Submitted,
        execution: None,
        detail: None,
    };
    let state = JobState {
        upstream: Default::default(),
        status: JobStatus::Waiting,
        version: 1,
        updated_at: at,
        due_at: at,
        queued_at: Some(at),
        started_at: None,
        finished_at: None,
        executions: 0,
        run_failures: 0,
        start_failures: 0,
        fence: Fence::default(),
        execution: None,
        worker: None,
        losses: 0,
        overdue: false,
        cancel_requested_at: None,
        outcome: None,
        history: vec![waits],
        expires_at: None,
        started: Default::default(),
        checkpoint: None,
    };
    LiveRow::Job { id: JobId::from_bits(id), head, state: Box::new(state) }
}

/// A job whose rows contradict each other.
fn torn(id: u128) -> LiveRow {
    let LiveRow::Job { id, head, mut state } = job(id) else { unreachable!() };
    state.history.clear();
    LiveRow::Job { id, head, state }
}

const A_WHILE: Duration = Duration::from_secs(10);

#[test]
fn a_standby_after_its_initial_load_takes_over_without_a_load() {
    let mut scene = Scene::new();
    (scene.rows, scene.counts) = (vec![job(1)], [(JobStatus::Waiting, 1), (JobStatus::Succeeded, 9)].into());
    scene.run(A_WHILE);
    assert!(scene.takes_over_followed());
    assert_eq!(scene.times(|call| matches!(call, Call::Load(_))), []);
}

#[test]
fn a_standby_before_the_end_of_its_initial_load_loads_all_rows() {
    let mut scene = Scene::new();
    assert!(!scene.takes_over_followed());
    assert_eq!(scene.times(|call| matches!(call, Call::Load(_))).len(), 1);
}

#[test]
fn changes_since_the_last_poll_are_read_before_a_takeover() {
    let mut scene = Scene::new();
    (scene.rows, scene.counts) = (vec![job(1)], [(JobStatus::Waiting, 1)].into());
    scene.run(A_WHILE);
    // The followed job no longer exists, and two are new; one key is read again at a time.
    let both = ChangelogPage { touched: [changed(2).touched, changed(3).touched].concat(), ..quiet() };
    scene.changelog = [Ok(Some(ChangelogPage { whole: false, ..changed(1) })), Ok(Some(both))].into();
    assert!(!scene.takes_over_followed(), "the store counts one job, this server none");
    assert_eq!(scene.times(|call| matches!(call, Call::LiveRows(_))).len(), 3);
}

#[test]
fn a_short_outage_of_the_store_costs_nothing() {
    let mut scene = Scene::new();
    scene.run(A_WHILE);
    scene.changelog = [Err(away()), Err(away())].into();
    scene.run(A_WHILE);
    assert_eq!(scene.not_followed(), []);
    scene.changelog = [Err(away()), Err(away())].into();
    assert!(scene.takes_over_followed());
}

#[test]
fn a_store_outage_during_a_takeover_leads_to_a_full_load() {
    let mut scene = Scene::new();
    scene.run(A_WHILE);
    scene.changelog = std::iter::repeat_n(Err(away()), 40).collect();
    assert!(!scene.takes_over_followed());
}

#[test]
fn a_store_outage_is_logged_once_for_each_reason() {
    let mut scene = Scene::new();
    let not_taken = |scene: &Scene| {
        scene.notices.iter().filter(|notice| matches!(notice, Notice::AcquireFailed(_))).count()
    };
    for (reason, said) in [("refused", 1), ("starting", 2), ("refused", 3)] {
        scene.acquire_fails = Some(Failure { message: reason.into(), ..away() });
        scene.run(Duration::from_secs(60));
        assert_eq!(not_taken(&scene), said);
    }
    scene.acquire_fails = None;
    scene.run(A_WHILE);
    scene.acquire_fails = Some(Failure { message: "refused".into(), ..away() });
    scene.run(A_WHILE);
    assert_eq!(not_taken(&scene), 4, "the store was available in between");
}

#[test]
fn an_engine_with_a_different_job_count_is_not_used() {
    let mut scene = Scene::new();
    scene.rows = vec![job(1)];
    scene.run(A_WHILE);
    assert!(!scene.takes_over_followed());
    let miscounted = |notice: &Notice| {
        matches!(notice, Notice::StandbyDiscarded(NotFollowed::Miscounted { here, there })
            if here.len() == 1 && there.is_empty())
    };
    assert!(scene.notices.iter().any(miscounted), "{:?}", scene.notices);
}

#[test]
fn unreadable_rows_are_not_ignored() {
    let mut scene = Scene::new();
    scene.damaged = 2;
    scene.run(A_WHILE);
    assert_eq!(scene.not_followed()[0].0, &NotFollowed::Damaged(2));

    let mut scene = Scene::new();
    scene.rows = vec![job(1)];
    scene.reread.unreadable = 1;
    scene.run(A_WHILE);
    scene.changelog = [Ok(Some(changed(1)))].into();
    scene.run(A_WHILE);
    assert_eq!(scene.not_followed()[0].0, &NotFollowed::Damaged(1));
}

#[test]
fn permanently_inconsistent_rows_are_not_followed() {
    let mut scene = Scene::new();
    (scene.rows, scene.reread.rows) = (vec![torn(1)], vec![torn(1)]);
    scene.run(A_WHILE);
    assert_eq!(scene.not_followed()[0].0, &NotFollowed::Inconsistent(1));
}

#[test]
fn a_leader_without_a_changelog_is_not_followed_and_its_rows_are_not_read() {
    let mut scene = Scene::new();
    scene.changelog = std::iter::repeat_n(Ok(None), 5).collect();
    scene.run(Duration::from_secs(100));
    let out_of_reach = |seconds| (&NotFollowed::OutOfReach, Duration::from_secs(seconds));
    let expected: Vec<_> = [10, 20, 40, 80].map(out_of_reach).into();
    assert_eq!(scene.not_followed()[..4], expected);
    assert_eq!(scene.times(|call| matches!(call, Call::Preload)), []);
}

#[test]
fn a_standby_follows_again_soon_after_a_failure() {
    let mut scene = Scene::new();
    scene.changelog = [Ok(None), Ok(None)].into();
    scene.run(Duration::from_secs(60));
    scene.changelog = [Ok(None)].into();
    scene.run(Duration::from_secs(60));
    let pauses: Vec<_> = scene.not_followed().iter().map(|(_, pause)| pause.as_millis() / 1_000).collect();
    assert_eq!(pauses, [10, 20, 10]);
    assert!(scene.takes_over_followed());
}

/// The leader may have to read the rows itself, and goes first.
#[test]
fn the_initial_load_starts_later_with_many_jobs() {
    let mut scene = Scene::new();
    scene.counts = [(JobStatus::Waiting, 200_000), (JobStatus::Succeeded, 9_000_000)].into();
    let start = scene.now;
    scene.run(A_WHILE);
    let read = scene.times(|call| matches!(call, Call::ChangelogEnd));
    assert_eq!(read, [start + Duration::from_secs(2 + 3)]);
}

#[test]
fn a_standby_polls_often_before_a_handover() {
    let mut scene = Scene::new();
    scene.run(A_WHILE);
    let polls = |scene: &Scene| scene.times(|call| matches!(call, Call::ChangelogSince(_))).len();
    let before = polls(&scene);
    scene.run(Duration::from_secs(1));
    assert_eq!(polls(&scene) - before, 4);
    let soon = Standing { takeover_is_near: true, ..Standing::default() };
    scene.leader.handle(scene.clocks(), Event::Standing(soon));
    let before = polls(&scene);
    scene.run(Duration::from_secs(1));
    assert!(polls(&scene) - before >= 190, "{}", polls(&scene) - before);
    // The frequent polls end when no release follows.
    scene.run(Duration::from_secs(20));
    let before = polls(&scene);
    scene.run(Duration::from_secs(1));
    assert_eq!(polls(&scene) - before, 4);
}

/// [`Scene::run`] contains the assertion.
#[test]
fn a_standby_sleeps_while_it_waits_for_the_store() {
    for holds_back in [
        |call: &Call| matches!(call, Call::CountJobs),
        |call: &Call| matches!(call, Call::ChangelogEnd),
        |call: &Call| matches!(call, Call::ChangelogSince(_)),
        |call: &Call| matches!(call, Call::Preload),
        |call: &Call| matches!(call, Call::LiveRows(_)),
    ] {
        let mut scene = Scene::new();
        scene.changelog = [Ok(Some(quiet())), Ok(Some(changed(1)))].into();
        scene.holds_back = holds_back;
        scene.run(A_WHILE);
        assert!(scene.calls.iter().any(|(_, call)| holds_back(call)));
        // The same during a takeover.
        scene = Scene::new();
        scene.run(A_WHILE);
        scene.changelog = [Ok(Some(changed(1)))].into();
        (scene.holds_back, scene.is_free) = (holds_back, true);
        scene.run(Duration::from_secs(2));
    }
}

#[test]
fn the_initial_load_pauses_for_as_long_as_a_portion_took() {
    let mut scene = Scene::new();
    scene.run(Duration::from_secs(1));
    // Rows arrive while the test holds the answer back.
    let call = loop {
        scene.now = scene.now + Duration::from_millis(100);
        scene.leader.turn(scene.clocks(), true);
        let mut preload = None;
        for action in scene.leader.take_actions() {
            match action {
                Action::Call { id, call: Call::Preload, .. } => preload = Some(id),
                Action::Call { id, call, .. } => scene.answer(id, call),
                _ => {}
            }
        }
        if let Some(preload) = preload {
            break preload;
        }
    };
    let now = scene.now + Duration::from_millis(50);
    scene.leader.handle(engine::Now { wall: now, steady: now }, Event::Rows(call, vec![job(1)]));
    assert_eq!(scene.leader.rows_from(), now + Duration::from_millis(50));
}
