//! Rules for standbys, for stores that several servers share.
//!
//! `StandbyModel` keeps the rows as a standby does: it preloads them and then reads again what the changelog
//! names. `RandomChanges` commits random changes of all types of rows. In the end, the model must have the
//! rows that a load returns.
//!
//! The other rules cover positions: of another history, of several owners, of an owner before and after a
//! takeover, and old ones that are trimmed. [`changelog_suite!`](crate::changelog_suite) generates the tests.
//! A test checks that it lists every rule in this file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::changelog::{ChangelogPage, ChangelogPosition, LiveChange, LiveKey};
use model::firing::BackfillStatus;
use model::id::Epoch;
use model::record::{Batch, Change, ExecutionRecord, KeyRecord, LiveRow, RunKeyRecord};
use model::run::{BatchKey, RunStatus, WorkflowState};
use model::{BackfillId, Duration, ExecutionStatus, JobStatus, ScheduleId, ShardId, WorkerId, WorkflowId};

use super::schedules::Schedule;
use super::services::Service;
use super::workflows::{ENDED, LIVE, Run};
use super::{Fixture, HOUR, Job, SHARDS, Subject, execution, new_execution};
use crate::changelog::Changelog;
use crate::{Loaded, Store, StoreError};

/// Longer than a row of the changelog is kept.
const LONG: Duration = Duration::from_secs(600);

fn changelog(store: &dyn Store) -> &dyn Changelog {
    store.changelog().expect("several servers share this store")
}

impl<S: Subject> Fixture<S> {
    fn changelog(&self) -> &dyn Changelog {
        changelog(self.store())
    }

    async fn since(&self, place: ChangelogPosition) -> Option<ChangelogPage> {
        self.changelog().since(place).await.unwrap()
    }
}

/// Preloads all rows, and receives them during the preload.
pub(crate) async fn preload(store: &dyn Store) -> Result<(Loaded, Vec<LiveRow>), StoreError> {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let take = async {
        let mut rows = Vec::new();
        while let Some(chunk) = receiver.recv().await {
            rows.extend(chunk);
        }
        rows
    };
    let (loaded, rows) = tokio::join!(changelog(store).preload(sender), take);
    Ok((loaded?, rows))
}

/// Memory of a standby.
struct StandbyModel {
    place: ChangelogPosition,
    rows: BTreeMap<LiveKey, Vec<LiveRow>>,
    keys: BTreeMap<u128, KeyRecord>,
    run_keys: BTreeMap<u128, RunKeyRecord>,
}

impl StandbyModel {
    async fn new(store: &dyn Store) -> Self {
        let place = changelog(store).end().await.unwrap();
        let (rows, keys, run_keys) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut follower = Self { place, rows, keys, run_keys };
        follower.take(preload(store).await.unwrap().1);
        follower
    }

    fn take(&mut self, rows: Vec<LiveRow>) {
        for row in rows {
            match &row {
                LiveRow::Key(key) => drop(self.keys.insert(key.key, *key)),
                LiveRow::RunKey(key) => drop(self.run_keys.insert(key.key, *key)),
                of => {
                    let key = LiveKey::of(of).expect("all but keys are named");
                    self.rows.entry(key).or_default().push(row);
                }
            }
        }
    }

    /// Applies all commits after the standby's position.
    async fn follow(&mut self, store: &dyn Store) {
        loop {
            let ChangelogPage { touched, end, whole, .. } =
                changelog(store).since(self.place).await.unwrap().expect("nothing is missing");
            let mut again = Vec::new();
            for touched in touched {
                match touched {
                    LiveChange::Rows(key) => again.push(key),
                    LiveChange::Ended(job) => drop(self.rows.remove(&LiveKey::Job(job))),
                    LiveChange::Key(key) => drop(self.keys.insert(key.key, key)),
                    LiveChange::RunKey(key) => drop(self.run_keys.insert(key.key, key)),
                    LiveChange::KeysPurged { shard, expired_before } => {
                        self.keys
                            .retain(|_, key| key.job.shard() != shard || key.expires_at >= expired_before);
                        self.run_keys
                            .retain(|_, key| key.run.shard() != shard || key.expires_at >= expired_before);
                    }
                }
            }
            self.rows.retain(|key, _| !again.contains(key));
            self.take(changelog(store).live_rows(&again).await.unwrap().rows);
            self.place = end;
            if whole {
                return;
            }
        }
    }

    fn all(&self) -> Vec<LiveRow> {
        let keys = self.keys.values().copied().map(LiveRow::Key);
        let run_keys = self.run_keys.values().copied().map(LiveRow::RunKey);
        self.rows.values().flatten().cloned().chain(keys).chain(run_keys).collect()
    }
}

/// Compares without regard to order.
fn assert_same(found: &[LiveRow], expected: &[LiveRow]) {
    let in_words = |rows: &[LiveRow]| rows.iter().map(|row| format!("{row:?}")).collect::<Vec<_>>();
    let (mut found, mut expected) = (in_words(found), in_words(expected));
    found.sort_unstable();
    expected.sort_unstable();
    let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
    assert!(differs.is_none(), "{differs:#?}");
    assert_eq!(found.len(), expected.len());
}

/// Random rows that are created, changed and deleted.
struct RandomChanges<S> {
    scene: Fixture<S>,
    jobs: Vec<(Job, Option<ExecutionRecord>)>,
    runs: Vec<Run>,
    schedules: Vec<Schedule>,
    workflows: Vec<(WorkflowId, WorkflowState)>,
    services: Vec<Service>,
    backfills: Vec<BackfillId>,
    workers: Vec<WorkerId>,
    /// Next index for elements; each is used once.
    elements: u32,
}

impl<S: Subject> RandomChanges<S> {
    async fn seeded(seed: u64) -> Self {
        let scene = Fixture::seeded(seed).await;
        let (jobs, runs, schedules) = (Vec::new(), Vec::new(), Vec::new());
        let (workflows, services, backfills) = (Vec::new(), Vec::new(), Vec::new());
        let workers = Vec::new();
        Self { scene, jobs, runs, schedules, workflows, services, backfills, workers, elements: 0 }
    }

    /// Returns the index of an existing row in two of three cases, if there is one.
    fn one_of(scene: &mut Fixture<S>, count: usize) -> Option<usize> {
        let index = |scene: &mut Fixture<S>| usize::try_from(scene.sampler.below(count as u64)).unwrap();
        (count > 0 && scene.sampler.below(3) > 0).then(|| index(scene))
    }

    /// Returns one change, or a few that belong together, for some types of rows.
    fn changes(&mut self) -> Vec<Change> {
        let kinds = [
            Self::job,
            Self::run,
            Self::schedule,
            Self::workflow,
            Self::service,
            Self::backfill,
            Self::registry,
            Self::forget,
        ];
        let mut changes = Vec::new();
        for kind in kinds {
            if self.scene.sampler.below(3) == 0 {
                changes.extend(kind(self));
            }
        }
        changes
    }

    fn job(&mut self) -> Vec<Change> {
        let Some(index) = Self::one_of(&mut self.scene, self.jobs.len()) else {
            let status = self.scene.sampler.live_status();
            let job = self.scene.job(status);
            let mut changes = vec![job.change(true)];
            let running = self.scene.sampler.coin().then(|| {
                let running = self.scene.execution(&job, 1, ExecutionStatus::Running);
                changes.push(new_execution(&running));
                running
            });
            if self.scene.sampler.coin() {
                changes.push(Change::Key(self.scene.sampler.key(job.id)));
            }
            self.jobs.push((job, running));
            return changes;
        };
        let ends = self.scene.sampler.coin();
        let status = if ends { self.scene.sampler.final_status() } else { self.scene.sampler.live_status() };
        let (job, running) = &mut self.jobs[index];
        *job = job.to(status, &mut self.scene.sampler);
        let mut changes = vec![job.change(false)];
        // An execution may end before its job.
        if ends || self.scene.sampler.coin() {
            changes.extend(running.take().map(|running| {
                let lost = self.scene.execution(job, 1, ExecutionStatus::Lost);
                execution(&ExecutionRecord { id: running.id, ..lost })
            }));
        }
        if ends {
            self.jobs.swap_remove(index);
        }
        changes
    }

    fn run(&mut self) -> Vec<Change> {
        let Some(index) = Self::one_of(&mut self.scene, self.runs.len()) else {
            let status = self.scene.sampler.pick(&LIVE);
            let run = self.scene.run(status);
            let mut changes = run.changes();
            let key = u128::from(self.scene.sampler.number()) << 64;
            let expires_at = self.scene.sampler.now() + Duration::from_millis(100);
            changes.push(Change::RunKey(RunKeyRecord { key, body: 7, run: run.id, expires_at }));
            self.runs.push(run);
            return changes;
        };
        let run = &mut self.runs[index];
        match self.scene.sampler.below(4) {
            0 => {
                self.elements += 1;
                let key = BatchKey { run: run.id, step: 5, first: self.elements };
                vec![Change::ElementBatch(Box::new(self.scene.sampler.element_batch(key)))]
            }
            1 => {
                run.steps[3].state = self.scene.sampler.step_state();
                vec![Change::Step(Box::new(run.steps[3].clone()))]
            }
            2 => {
                let status = self.scene.sampler.pick(&LIVE);
                run.state = self.scene.sampler.run_state(status);
                vec![run.change(false)]
            }
            _ => {
                let mut run = self.runs.swap_remove(index);
                let status = self.scene.sampler.pick(&ENDED);
                run.state = self.scene.sampler.run_state(status);
                vec![run.change(false)]
            }
        }
    }

    fn schedule(&mut self) -> Vec<Change> {
        let Some(index) = Self::one_of(&mut self.scene, self.schedules.len()) else {
            let schedule = self.scene.schedule();
            self.schedules.push(schedule.clone());
            return vec![schedule.change(true)];
        };
        if self.scene.sampler.coin() {
            return vec![Change::RemoveSchedule(self.schedules.swap_remove(index).id)];
        }
        let status = self.scene.sampler.schedule_status();
        let schedule = &mut self.schedules[index];
        schedule.state = self.scene.sampler.schedule_state(schedule.id, status);
        vec![schedule.change(false)]
    }

    fn workflow(&mut self) -> Vec<Change> {
        let Some(index) = Self::one_of(&mut self.scene, self.workflows.len()) else {
            let (id, head, state) = self.scene.workflow();
            self.workflows.push((id, state.clone()));
            return vec![Change::Workflow { id, new: true, head: Some(head), state }];
        };
        if self.scene.sampler.coin() {
            return vec![Change::RemoveWorkflow(self.workflows.swap_remove(index).0)];
        }
        let (id, state) = &mut self.workflows[index];
        state.runs += 1;
        vec![Change::Workflow { id: *id, new: false, head: None, state: state.clone() }]
    }

    fn service(&mut self) -> Vec<Change> {
        let Some(index) = Self::one_of(&mut self.scene, self.services.len()) else {
            let service = self.scene.service();
            self.services.push(service.clone());
            return vec![service.change(true)];
        };
        match self.scene.sampler.below(3) {
            0 => vec![Change::RemoveService(self.services.swap_remove(index).id)],
            1 => {
                let service = self.scene.service_with_new_spec(&self.services[index]);
                self.services[index] = service.clone();
                vec![service.change(false)]
            }
            _ => {
                let state = self.scene.sampler.service_state();
                self.services[index].state = state;
                vec![self.services[index].state_change()]
            }
        }
    }

    fn backfill(&mut self) -> Vec<Change> {
        let Some(index) = Self::one_of(&mut self.scene, self.backfills.len()) else {
            let shard = self.scene.sampler.pick(&SHARDS);
            let schedule = self.scene.sampler.schedule_id(shard);
            let head = self.scene.sampler.backfill_head(schedule);
            let (id, state) = (head.id, self.scene.sampler.backfill_state(BackfillStatus::Running));
            self.backfills.push(id);
            return vec![Change::Backfill { id, head: Some(Arc::new(head)), state }];
        };
        let id = self.backfills.swap_remove(index);
        let state = self.scene.sampler.backfill_state(BackfillStatus::Completed);
        vec![Change::Backfill { id, head: None, state }]
    }

    fn registry(&mut self) -> Vec<Change> {
        match self.scene.sampler.below(7) {
            0 => {
                let worker = self.scene.sampler.worker();
                self.workers.push(worker.id);
                vec![Change::Worker(Arc::new(worker))]
            }
            1 => self.workers.pop().map(Change::RemoveWorker).into_iter().collect(),
            2 => vec![Change::Queue(Arc::new(self.scene.sampler.queue("slow")))],
            3 => vec![Change::Namespace(Arc::new(self.scene.sampler.namespace_record("team")))],
            4 => vec![Change::RemoveNamespace("team".into())],
            5 => vec![Change::Calendar(Arc::new(self.scene.sampler.calendar("default", "holidays")))],
            _ => vec![Change::RemoveCalendar { namespace: "default".into(), name: "holidays".into() }],
        }
    }

    /// Deletes keys. Keys of jobs live for an hour, so only some keys of runs expire.
    fn forget(&mut self) -> Vec<Change> {
        let (shard, expired_before) = (self.scene.sampler.pick(&SHARDS), self.scene.sampler.now());
        vec![Change::PurgeKeys { shard, expired_before }]
    }

    /// Returns the epoch of the commits.
    fn epoch(&self) -> Epoch {
        self.scene.leases.iter().map(|lease| lease.epoch).max().unwrap()
    }

    fn batches(&mut self, count: usize) -> Vec<Arc<Batch>> {
        let batch = |_| {
            let changes = self.changes();
            self.scene.batch(changes, Vec::new())
        };
        (0..count).map(batch).collect()
    }

    async fn commit(&self, batches: Vec<Arc<Batch>>) {
        for batch in batches {
            self.scene.store().commit(&self.scene.leases, batch).await.unwrap();
        }
    }

    async fn go_on(&mut self, commits: usize) {
        let batches = self.batches(commits);
        self.commit(batches).await;
    }
}

/// G5, D5. In the end a standby has the rows that a new owner would load, although they changed during its preload.
pub async fn a_standby_has_the_rows_of_a_load<S: Subject>() {
    for seed in 121..125 {
        let mut life = RandomChanges::<S>::seeded(seed).await;
        life.go_on(20).await;
        let batches = life.batches(20);
        let (mut follower, ()) = tokio::join!(StandbyModel::new(life.scene.store()), life.commit(batches));
        for commits in [1, 5, 40] {
            let batches = life.batches(commits);
            tokio::join!(follower.follow(life.scene.store()), life.commit(batches));
            follower.follow(life.scene.store()).await;
            let loaded = life.scene.load().await.1;
            assert!(loaded.len() > 10, "{} rows", loaded.len());
            assert_same(&follower.all(), &loaded);
        }
    }
}

/// G5. As in a load: a row comes after the rows that it depends on.
pub async fn live_rows_come_in_the_order_of_a_load<S: Subject>() {
    let mut life = RandomChanges::<S>::seeded(126).await;
    life.go_on(60).await;
    let mut loaded = life.scene.load().await.1;
    let mut keys: Vec<_> = loaded.iter().filter_map(LiveKey::of).collect();
    keys.reverse();
    loaded.retain(|row| LiveKey::of(row).is_some());
    assert!(keys.len() > 20);
    assert_eq!(life.scene.changelog().live_rows(&keys).await.unwrap().rows, loaded);
}

/// G5. Also for rows that do not exist or are not live.
pub async fn missing_rows_have_no_live_rows<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(127).await;
    let (job, run) = (scene.job(JobStatus::Succeeded), scene.run(RunStatus::Failed));
    let head = scene.sampler.backfill_head(ScheduleId::from_bits(0));
    let (backfill, state) = (head.id, scene.sampler.backfill_state(BackfillStatus::Cancelled));
    let ended = Change::Backfill { id: backfill, head: Some(Arc::new(head)), state };
    scene.commit([vec![job.change(true), ended], run.changes()].concat()).await;
    let (schedule, workflow) = (scene.schedule().id, scene.workflow().0);
    let service = scene.service().id;
    let keys = [
        LiveKey::Workers,
        LiveKey::Queues,
        LiveKey::Calendars,
        LiveKey::Schedule(schedule),
        LiveKey::Backfill(backfill),
        LiveKey::Workflow(workflow),
        LiveKey::Run(run.id),
        LiveKey::Service(service),
        LiveKey::Job(job.id),
    ];
    assert_eq!(scene.changelog().live_rows(&keys).await.unwrap().rows, []);
    assert_eq!(scene.changelog().live_rows(&[]).await.unwrap().rows, []);
}

/// G5. In the same order and format.
pub async fn a_preload_sends_the_rows_of_a_load<S: Subject>() {
    let mut life = RandomChanges::<S>::seeded(128).await;
    life.go_on(60).await;
    let (loaded, rows) = life.scene.load().await;
    assert!(rows.len() > 40);
    let store = life.scene.store();
    assert_eq!(preload(store).await.unwrap(), (loaded, rows.clone()));
    // No server needs to own the shards.
    store.release(&life.scene.leases).await.unwrap();
    assert_eq!(preload(store).await.unwrap(), (loaded, rows));
}

/// G5. Each commit is reported at its position, with all changed rows and its time.
pub async fn the_changelog_names_every_type_of_change<S: Subject>() {
    let mut life = RandomChanges::<S>::seeded(129).await;
    let mut place = life.scene.changelog().end().await.unwrap();
    let mut kinds = BTreeSet::new();
    for _ in 0..80 {
        let changes = life.changes();
        let touched = LiveChange::by(&changes);
        let batch = life.scene.batch(changes, Vec::new());
        let now = batch.now;
        life.scene.store().commit(&life.scene.leases, batch).await.unwrap();
        kinds.extend(touched.iter().map(|touched| match touched {
            LiveChange::Rows(key) => format!("{key:?}").split('(').next().unwrap_or_default().to_owned(),
            LiveChange::Ended(_) => "ended".to_owned(),
            LiveChange::Key(_) => "key".to_owned(),
            LiveChange::RunKey(_) => "key of a run".to_owned(),
            LiveChange::KeysPurged { .. } => "keys forgotten".to_owned(),
        }));
        let commit = place.commit + u64::from(!touched.is_empty());
        let since = life.scene.since(place).await.unwrap();
        let end =
            ChangelogPosition { commit, epoch: if touched.is_empty() { place.epoch } else { life.epoch() } };
        assert_eq!(since, ChangelogPage { touched, end, whole: true, now });
        assert_eq!(life.scene.changelog().end().await.unwrap(), end);
        place = end;
    }
    assert_eq!(kinds.len(), 14, "{kinds:?}");
}

/// G5. A standby may drop it without reading anything.
pub async fn an_ended_job_is_reported_as_ended<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(130).await;
    let place = scene.changelog().end().await.unwrap();
    let job = scene.job(JobStatus::Running);
    let running = scene.execution(&job, 1, ExecutionStatus::Running);
    scene.commit(vec![job.change(true), new_execution(&running)]).await;
    let rows = [job.row(), LiveRow::Execution(Box::new(running.clone()))];
    assert_eq!(scene.changelog().live_rows(&[LiveKey::Job(job.id)]).await.unwrap().rows, rows);
    let ended = job.to(JobStatus::Succeeded, &mut scene.sampler);
    let done = scene.execution(&job, 1, ExecutionStatus::Succeeded);
    let done = ExecutionRecord { id: running.id, ..done };
    scene.commit(vec![ended.change(false), execution(&done)]).await;
    let since = scene.since(place).await.unwrap();
    assert_eq!(since.touched, [LiveChange::Rows(LiveKey::Job(job.id)), LiveChange::Ended(job.id)]);
    assert_eq!(scene.changelog().live_rows(&[LiveKey::Job(job.id)]).await.unwrap().rows, []);
}

/// D8. The same number under another epoch, or one that was not reached: the database has lost commits.
pub async fn a_position_of_another_history_is_refused<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(131).await;
    for _ in 0..3 {
        let job = scene.job(JobStatus::Waiting);
        scene.commit(vec![job.change(true)]).await;
    }
    let end = scene.changelog().end().await.unwrap();
    assert!(scene.since(end).await.is_some());
    for (back, epoch) in [(0, end.epoch.0 + 1), (0, end.epoch.0 - 1), (1, end.epoch.0 + 1)] {
        let place = ChangelogPosition { commit: end.commit - back, epoch: Epoch(epoch) };
        assert_eq!(scene.since(place).await, None, "{place:?}");
    }
    for commit in [end.commit + 1, u64::MAX] {
        assert_eq!(scene.since(ChangelogPosition { commit, ..end }).await, None);
    }
}

/// D3. Old entries are deleted, except those at which a standby may be.
pub async fn old_positions_are_trimmed_except_the_newest<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(132).await;
    let mut places = vec![scene.changelog().end().await.unwrap()];
    for _ in 0..3 {
        let job = scene.job(JobStatus::Waiting);
        scene.commit(vec![job.change(true)]).await;
        places.push(scene.changelog().end().await.unwrap());
    }
    let trim = async |scene: &Fixture<S>| scene.changelog().trim().await.unwrap();
    trim(&scene).await;
    assert_eq!(scene.since(places[1]).await.unwrap().touched.len(), 2, "it is young");
    scene.subject.advance(LONG);
    trim(&scene).await;
    for place in &places[..3] {
        assert_eq!(scene.since(*place).await, None);
    }
    assert_eq!(scene.changelog().end().await.unwrap(), places[3]);
    assert_eq!(scene.since(places[3]).await.unwrap().touched, []);
    // A standby that waited at the newest position can still continue with the first commit after a long pause.
    let job = scene.job(JobStatus::Waiting);
    scene.commit(vec![job.change(true)]).await;
    trim(&scene).await;
    let since = scene.since(places[3]).await.unwrap();
    assert_eq!(since.touched, [LiveChange::Rows(LiveKey::Job(job.id))]);
    scene.subject.advance(LONG);
    trim(&scene).await;
    assert_eq!(scene.since(places[3]).await, None);
    assert!(scene.since(since.end).await.is_some());
}

/// G5. Only engine time advances; a commit with events alone has an entry without rows.
pub async fn a_commit_without_changes_adds_no_changelog_row<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(133).await;
    let job = scene.job(JobStatus::Waiting);
    scene.commit(vec![job.change(true)]).await;
    let place = scene.changelog().end().await.unwrap();
    let schedule = scene.schedule().id;
    let line = scene.sampler.line(schedule, None);
    for changes in [vec![], vec![Change::Ledger(Box::new(line))]] {
        let batch = scene.batch(changes, Vec::new());
        let now = batch.now;
        scene.store().commit(&scene.leases, batch).await.unwrap();
        assert_eq!(scene.changelog().end().await.unwrap(), place);
        let expected = ChangelogPage { touched: vec![], end: place, whole: true, now };
        assert_eq!(scene.since(place).await, Some(expected));
    }
    let events = vec![scene.sampler.event()];
    let batch = scene.batch(Vec::new(), events);
    scene.store().commit(&scene.leases, batch).await.unwrap();
    let since = scene.since(place).await.unwrap();
    assert_eq!((since.touched, since.whole), (vec![], true));
    assert_eq!(since.end.commit, place.commit + 1);
}

/// G5. Whatever the owners of the shards and the order of their commits; a new owner's commits follow those of the old
/// one.
pub async fn commits_of_several_owners_come_in_one_order<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(134).await;
    scene.store().release(&scene.leases).await.unwrap();
    let begin = scene.changelog().end().await.unwrap();
    let mut owners = Vec::new();
    for shards in SHARDS.chunks(2) {
        owners.push(scene.store().acquire(shards, "owner", HOUR).await.unwrap());
    }
    let mut batch_of = |shard: ShardId| {
        let (id, head) = (scene.sampler.job_id(shard), Some(scene.sampler.head()));
        let state = Box::new(scene.sampler.state(JobStatus::Waiting));
        let changes = vec![Change::Job { id, new: true, head, state }];
        let events = vec![scene.sampler.event()];
        (id, Arc::new(Batch { now: scene.sampler.now(), changes, events, ..Batch::default() }))
    };
    let mut rounds = Vec::new();
    for _ in 0..20 {
        rounds.push([batch_of(SHARDS[1]), batch_of(SHARDS[3])]);
    }
    let mut committed = Vec::new();
    for [(a, first), (b, second)] in rounds {
        let store = scene.store();
        let ends = tokio::join!(store.commit(&owners[0], first), store.commit(&owners[1], second));
        committed.push((ends.0.unwrap().first_event, a));
        committed.push((ends.1.unwrap().first_event, b));
    }
    committed.sort_unstable();
    let expected: Vec<_> = committed.iter().map(|(_, id)| LiveChange::Rows(LiveKey::Job(*id))).collect();
    assert_eq!(scene.since(begin).await.unwrap().touched, expected);
}

/// G5. The standby that takes over reads the last changes under its own leases.
pub async fn a_standby_follows_across_a_takeover<S: Subject>() {
    let mut life = RandomChanges::<S>::seeded(135).await;
    life.go_on(10).await;
    let mut follower = StandbyModel::new(life.scene.store()).await;
    life.go_on(5).await;
    life.scene.store().release(&life.scene.leases).await.unwrap();
    life.scene.leases = life.scene.store().acquire(&SHARDS, "standby", HOUR).await.unwrap();
    follower.follow(life.scene.store()).await;
    assert_same(&follower.all(), &life.scene.load().await.1);
    life.go_on(5).await;
    follower.follow(life.scene.store()).await;
    assert_eq!(follower.place.epoch, life.epoch());
    assert_same(&follower.all(), &life.scene.load().await.1);
}

/// Generates a test of every changelog rule for one [`Subject`] whose store has a changelog; see
/// [`store_suite!`](crate::store_suite).
#[macro_export]
macro_rules! changelog_suite {
    ($subject:ty) => {
        $crate::store_suite! { @rules $subject;
            changelog: a_standby_has_the_rows_of_a_load,
            changelog: live_rows_come_in_the_order_of_a_load,
            changelog: missing_rows_have_no_live_rows,
            changelog: a_preload_sends_the_rows_of_a_load,
            changelog: the_changelog_names_every_type_of_change,
            changelog: an_ended_job_is_reported_as_ended,
            changelog: a_position_of_another_history_is_refused,
            changelog: old_positions_are_trimmed_except_the_newest,
            changelog: a_commit_without_changes_adds_no_changelog_row,
            changelog: commits_of_several_owners_come_in_one_order,
            changelog: a_standby_follows_across_a_takeover,
        }
    };
}
