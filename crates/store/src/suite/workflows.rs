//! Rules for workflows, runs, steps, and the elements that tasks add to steps.
//!
//! `Run` is a run with all its rows, as the rules write it; `changes` returns the changes that create it.
//! Reads and retention are covered in `runs`.
//!
//! # Invariants
//! - A run and its steps are live until the run ends; a load then returns none of them.
//! - A load sends a run, then the elements that tasks added to it, then its steps.
//! - A row that does not exist cannot be changed, and an ended run does not change.

use std::sync::Arc;

use model::record::{Change, LiveRow, RunKeyRecord};
use model::run::{
    BatchKey, ElementBatch, RunHead, RunState, RunStatus, StepKey, StepRecord, WorkflowHead, WorkflowState,
};
use model::{RunId, ShardId, WorkflowId};

use super::sample::workflow_head_of;
use super::{Fixture, HOUR, SHARDS, Subject, load};
use crate::StoreError;

/// Run as the rules write it.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) head: Arc<RunHead>,
    pub(super) state: RunState,
    /// Elements that tasks added, ordered by step and first element.
    pub(super) batches: Vec<ElementBatch>,
    /// Steps ordered by number, then elements ordered by index.
    pub(super) steps: Vec<StepRecord>,
}

impl Run {
    pub(super) fn change(&self, new: bool) -> Change {
        let head = new.then(|| Arc::clone(&self.head));
        Change::Run { id: self.id, head, state: Box::new(self.state.clone()) }
    }

    /// Returns the changes for a new run with all its rows; the order within a batch has no meaning.
    pub(super) fn changes(&self) -> Vec<Change> {
        let steps = self.steps.iter().map(|step| Change::Step(Box::new(step.clone())));
        let batches = self.batches.iter().rev().map(|batch| Change::ElementBatch(Box::new(batch.clone())));
        steps.chain(batches).chain([self.change(true)]).collect()
    }

    pub(super) fn rows(&self) -> Vec<LiveRow> {
        let run =
            LiveRow::Run { id: self.id, head: Arc::clone(&self.head), state: Box::new(self.state.clone()) };
        let batches = self.batches.iter().map(|batch| LiveRow::ElementBatch(Box::new(batch.clone())));
        let steps = self.steps.iter().map(|step| LiveRow::Step(Box::new(step.clone())));
        [run].into_iter().chain(batches).chain(steps).collect()
    }
}

impl<S: Subject> Fixture<S> {
    pub(super) fn workflow(&mut self) -> (WorkflowId, Arc<WorkflowHead>, WorkflowState) {
        let shard = self.sampler.pick(&SHARDS);
        let head = Arc::new(workflow_head_of(self.sampler.workflow_spec()));
        (self.sampler.workflow_id(shard), head, self.sampler.workflow_state())
    }

    pub(super) fn run(&mut self, status: RunStatus) -> Run {
        let shard = self.sampler.pick(&SHARDS);
        let id = self.sampler.run_id(shard);
        let mut steps = Vec::new();
        let items = (0..3).flat_map(|step| [Some(0), Some(7)].map(|item| (step, item)));
        for (step, item) in (0..3).map(|step| (step, None)).chain(items) {
            let state = self.sampler.step_state();
            steps.push(StepRecord { key: StepKey { run: id, step, item }, state });
        }
        let mut batches = Vec::new();
        if self.sampler.coin() {
            for (step, first) in [(1, 0), (1, 7), (1, 1_000), (2, 0), (9_999, 99_999)] {
                batches.push(self.sampler.element_batch(BatchKey { run: id, step, first }));
            }
        }
        let head = Arc::new(self.sampler.run_head());
        Run { id, head, state: self.sampler.run_state(status), batches, steps }
    }

    pub(super) async fn live(&self) -> Vec<LiveRow> {
        self.load().await.1
    }
}

fn row(id: WorkflowId, head: &WorkflowHead, state: &WorkflowState) -> LiveRow {
    LiveRow::Workflow { id, head: head.clone(), state: state.clone() }
}

pub(super) const LIVE: [RunStatus; 5] =
    [RunStatus::Waiting, RunStatus::Running, RunStatus::Paused, RunStatus::Stopping, RunStatus::Retrying];
pub(super) const ENDED: [RunStatus; 3] = [RunStatus::Succeeded, RunStatus::Failed, RunStatus::Cancelled];

/// C1, D5. Also after changes of its state and of its spec.
pub async fn every_field_of_a_workflow_survives<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(61).await;
    for _ in 0..30 {
        let (id, head, state) = scene.workflow();
        let new = Change::Workflow { id, new: true, head: Some(Arc::clone(&head)), state: state.clone() };
        scene.commit(vec![new]).await;
        let found = scene.live().await;
        assert!(found.contains(&row(id, &head, &state)), "{found:?}");
        let counted = WorkflowState { runs: state.runs + 1, ..state.clone() };
        scene.commit(vec![Change::Workflow { id, new: false, head: None, state: counted.clone() }]).await;
        assert!(scene.live().await.contains(&row(id, &head, &counted)));
        let mut spec = scene.sampler.workflow_spec();
        spec.name.clone_from(&head.spec.name);
        let next = Arc::new(workflow_head_of(spec));
        let state = WorkflowState { generation: state.generation + 1, ..state };
        let changed =
            Change::Workflow { id, new: false, head: Some(Arc::clone(&next)), state: state.clone() };
        scene.commit(vec![changed]).await;
        assert!(scene.live().await.contains(&row(id, &next, &state)));
        scene.commit(vec![Change::RemoveWorkflow(id)]).await;
        assert_eq!(scene.live().await, []);
    }
}

/// C1, D5. Also after updates, and after a reopen.
pub async fn every_field_of_a_run_and_its_steps_survives<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(62).await;
    let mut runs = Vec::new();
    for _ in 0..20 {
        let status = scene.sampler.pick(&LIVE);
        let mut run = scene.run(status);
        scene.commit(run.changes()).await;
        if scene.sampler.coin() {
            let status = scene.sampler.pick(&LIVE);
            run.state = scene.sampler.run_state(status);
            run.steps[3].state = scene.sampler.step_state();
            let step = Change::Step(Box::new(run.steps[3].clone()));
            scene.commit(vec![step, run.change(false)]).await;
        }
        runs.push(run);
    }
    let expected: Vec<_> = runs.iter().flat_map(Run::rows).collect();
    assert_eq!(scene.live().await, expected);
    let scene = scene.reopen().await;
    assert_eq!(scene.live().await, expected);
}

/// C1. Ended in the batch that creates it, or later; nothing changes it afterwards.
pub async fn a_run_leaves_the_live_rows_with_its_steps_when_it_ends<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(63).await;
    for status in ENDED {
        let at_once = scene.run(status);
        scene.commit(at_once.changes()).await;
        let mut run = scene.run(RunStatus::Running);
        scene.commit(run.changes()).await;
        assert_eq!(scene.live().await, run.rows());
        run.state = scene.sampler.run_state(status);
        scene.commit(vec![run.change(false)]).await;
        assert_eq!(scene.live().await, []);
    }
    let mut run = scene.run(RunStatus::Succeeded);
    scene.commit(run.changes()).await;
    run.state = scene.sampler.run_state(RunStatus::Running);
    let result = scene.try_commit(vec![run.change(false)]).await;
    assert!(matches!(result, Err(StoreError::Fatal { .. })), "{result:?}");
}

/// D5, G5. Only rows of the leased shards; a row comes after the rows that it depends on.
pub async fn a_load_sends_a_run_then_added_elements_then_steps<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(64).await;
    let wanted = ShardId(2);
    let mut expected = Vec::new();
    for _ in 0..30 {
        let (id, head, state) = scene.workflow();
        let run = scene.run(RunStatus::Running);
        let mut changes = run.changes();
        changes.push(Change::Workflow { id, new: true, head: Some(Arc::clone(&head)), state: state.clone() });
        scene.commit(changes).await;
        if id.shard() == wanted {
            expected.push(row(id, &head, &state));
        }
        if run.id.shard() == wanted {
            expected.extend(run.rows());
        }
    }
    // Workflows come before runs.
    let (workflows, mut rest): (Vec<_>, Vec<_>) =
        expected.into_iter().partition(|row| matches!(row, LiveRow::Workflow { .. }));
    let mut expected = workflows;
    expected.append(&mut rest);
    let leases: Vec<_> = scene.leases.iter().copied().filter(|lease| lease.shard == wanted).collect();
    let (loaded, rows) = load(scene.store(), &leases).await.unwrap();
    assert!(expected.len() > 20, "shard {wanted} has too few rows to say much");
    assert_eq!((loaded.rows, loaded.quarantined), (expected.len() as u64, 0));
    assert_eq!(rows, expected);
}

/// C1. A safeguard: the engine also checks it.
pub async fn workflow_names_are_unique_and_free_once_removed<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(65).await;
    let new = |id, head: &Arc<WorkflowHead>, state: &WorkflowState| {
        let (head, state) = (Some(Arc::clone(head)), state.clone());
        Change::Workflow { id, new: true, head, state }
    };
    let (first, head, state) = scene.workflow();
    scene.commit(vec![new(first, &head, &state)]).await;
    let second = scene.workflow().0;
    scene.commit(vec![Change::RemoveWorkflow(first), new(second, &head, &state)]).await;
    assert_eq!(scene.live().await, [row(second, &head, &state)]);
    let third = scene.workflow().0;
    let result = scene.try_commit(vec![new(third, &head, &state)]).await;
    assert!(matches!(result, Err(StoreError::Fatal { .. })), "{result:?}");
}

/// D5. An engine that changes a missing row no longer has the record of it.
pub async fn a_missing_run_or_workflow_cannot_be_changed<S: Subject>() {
    for of_run in [true, false] {
        let mut scene = Fixture::<S>::seeded(66).await;
        let (id, _, state) = scene.workflow();
        let run = scene.run(RunStatus::Running);
        let change = match of_run {
            true => run.change(false),
            false => Change::Workflow { id, new: false, head: None, state },
        };
        let result = scene.try_commit(vec![change]).await;
        assert!(matches!(result, Err(StoreError::Fatal { .. })), "{result:?}");
    }
}

/// G5.
pub async fn a_run_of_a_shard_without_a_lease_is_refused<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(67).await;
    let run = scene.run(RunStatus::Running);
    let shard = run.id.shard();
    let leases: Vec<_> = scene.leases.iter().copied().filter(|lease| lease.shard != shard).collect();
    for change in [run.change(true), Change::Step(Box::new(run.steps[0].clone()))] {
        let batch = scene.batch(vec![change], Vec::new());
        let result = scene.store().commit(&leases, batch).await;
        assert!(matches!(result, Err(StoreError::Fenced { shard: found }) if found == shard), "{result:?}");
    }
    assert_eq!(scene.live().await, []);
}

/// I2. A key is stored until it expires, whatever happens to its run, and never serves two runs.
pub async fn keys_of_runs_outlive_them_and_are_deleted_by_shard<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(68).await;
    let run = scene.run(RunStatus::Succeeded);
    let expires_at = scene.sampler.now() + HOUR;
    let key = RunKeyRecord { key: 1 << 90, body: 7, run: run.id, expires_at };
    let mut changes = run.changes();
    changes.push(Change::RunKey(key));
    scene.commit(changes).await;
    assert_eq!(scene.live().await, [LiveRow::RunKey(key)]);
    let elsewhere = SHARDS.into_iter().find(|shard| *shard != run.id.shard()).unwrap();
    for (shard, expired_before) in [(elsewhere, expires_at + HOUR), (run.id.shard(), expires_at)] {
        scene.commit(vec![Change::PurgeKeys { shard, expired_before }]).await;
        assert_eq!(scene.live().await, [LiveRow::RunKey(key)]);
    }
    let again = RunKeyRecord { expires_at: expires_at + HOUR, ..key };
    scene.commit(vec![Change::RunKey(again)]).await;
    assert_eq!(scene.live().await, [LiveRow::RunKey(again)]);
    let expired_before = expires_at + HOUR + HOUR;
    scene.commit(vec![Change::PurgeKeys { shard: run.id.shard(), expired_before }]).await;
    assert_eq!(scene.live().await, []);
    scene.commit(vec![Change::RunKey(key)]).await;
    let stolen = RunKeyRecord { run: scene.sampler.run_id(run.id.shard()), ..key };
    let result = scene.try_commit(vec![Change::RunKey(stolen)]).await;
    assert!(matches!(result, Err(StoreError::Fatal { .. })), "{result:?}");
}
