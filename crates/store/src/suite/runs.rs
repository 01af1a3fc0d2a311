//! Rules for reads of workflows and runs, and for their retention.
//!
//! Filters are compared with `matches`, a direct implementation of their documentation, on random workflows
//! and runs. What a commit writes is covered in `workflows`.
//!
//! # Invariants
//! - Every generation of a workflow can be read until the workflow is removed.
//! - Runs with the same definition share it: in the store, and in a page of a list.
//! - A run is deleted with its steps and elements, however many there are, and never while it is live.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::record::{Change, LiveRow};
use model::run::{RunStatus, StepCause, StepKey, StepRecord, StepState, StepStatus, WorkflowState};
use model::{RunId, Timestamp, WorkflowId};

use super::sample::workflow_head_of;
use super::workflows::{ENDED, LIVE, Run};
use super::{Fixture, Subject};
use crate::query::{Page, RunFilter, RunRow, WorkflowFilter, WorkflowRow};

const WORKFLOWS: Page<WorkflowId> = Page { after: None, limit: 1_000 };
const RUNS: Page<RunId> = Page { after: None, limit: 1_000 };

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

impl<S: Subject> Fixture<S> {
    /// Commits random workflows; returns them newest first.
    async fn some_workflows(&mut self, count: usize) -> Vec<WorkflowRow> {
        let mut workflows = Vec::new();
        for _ in 0..count {
            let (id, head, state) = self.workflow();
            let row = WorkflowRow { id, head: (*head).clone(), state: state.clone() };
            self.commit(vec![Change::Workflow { id, new: true, head: Some(head), state }]).await;
            workflows.insert(0, row);
        }
        workflows
    }

    /// Commits random live and ended runs; returns them newest first.
    async fn some_runs(&mut self, count: usize) -> Vec<Run> {
        let mut runs = Vec::new();
        for _ in 0..count {
            let status = self.sampler.pick(&LIVE);
            let mut run = self.run(status);
            self.commit(run.changes()).await;
            if self.sampler.coin() {
                let status = self.sampler.pick(&ENDED);
                run.state = self.sampler.run_state(status);
                self.commit(vec![run.change(false)]).await;
            }
            runs.insert(0, run);
        }
        runs
    }

    async fn runs_found(&self, filter: &RunFilter, limit: usize) -> Vec<RunRow> {
        let (mut found, mut page) = (Vec::new(), Page { after: None, limit });
        loop {
            let listed = self.store().runs(filter, page).await.unwrap();
            assert!(listed.items.len() == limit || !listed.more);
            found.extend(listed.items);
            page.after = found.last().map(|run: &RunRow| run.id);
            if !listed.more {
                return found;
            }
        }
    }
}

/// C1. By ID and by name, including old generations.
pub async fn every_generation_of_a_workflow_is_kept_until_it_is_removed<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(71).await;
    scene.some_workflows(5).await;
    let (id, first, mut state) = scene.workflow();
    let (namespace, name) = (first.spec.namespace.clone(), first.spec.name.clone());
    assert_eq!(scene.store().workflow(id).await.unwrap(), None);
    let mut heads = vec![Arc::clone(&first)];
    let new = Change::Workflow { id, new: true, head: Some(first), state: state.clone() };
    scene.commit(vec![new]).await;
    for _ in 0..3 {
        let mut spec = scene.sampler.workflow_spec();
        (spec.namespace, spec.name) = (namespace.clone(), name.clone());
        let head = Arc::new(workflow_head_of(spec));
        state = WorkflowState { generation: state.generation + 1, ..state };
        heads.push(Arc::clone(&head));
        let next = Change::Workflow { id, new: false, head: Some(head), state: state.clone() };
        scene.commit(vec![next]).await;
        let counted = WorkflowState { runs: state.runs + 1, ..state.clone() };
        scene.commit(vec![Change::Workflow { id, new: false, head: None, state: counted.clone() }]).await;
        state = counted;
    }
    let scene = &mut scene.reopen().await;
    let row = WorkflowRow { id, head: (**heads.last().unwrap()).clone(), state: state.clone() };
    assert_eq!(scene.store().workflow(id).await.unwrap().as_ref(), Some(&row));
    assert_eq!(scene.store().workflow_named(&namespace, &name).await.unwrap(), Some(row));
    assert_eq!(scene.store().workflow_named("nobody", &name).await.unwrap(), None);
    for (generation, head) in (state.generation - 3..).zip(&heads) {
        let found = scene.store().workflow_version(id, generation).await.unwrap();
        assert_eq!(found.as_ref(), Some(&**head), "{generation}");
    }
    for generation in [0, state.generation + 1, u64::MAX] {
        assert_eq!(scene.store().workflow_version(id, generation).await.unwrap(), None);
    }
    scene.commit(vec![Change::RemoveWorkflow(id)]).await;
    assert_eq!(scene.store().workflow(id).await.unwrap(), None);
    assert_eq!(scene.store().workflow_named(&namespace, &name).await.unwrap(), None);
    assert_eq!(scene.store().workflow_version(id, state.generation).await.unwrap(), None);
}

/// C1. Also by labels that were changed, and for workflows that were removed.
pub async fn every_filter_of_workflows_finds_the_matching_workflows<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(72).await;
    let mut rows = scene.some_workflows(80).await;
    for row in &mut rows[..20] {
        let mut spec = scene.sampler.workflow_spec();
        spec.name.clone_from(&row.head.spec.name);
        row.head = workflow_head_of(spec);
        row.state.generation += 1;
        let (head, state) = (Some(Arc::new(row.head.clone())), row.state.clone());
        scene.commit(vec![Change::Workflow { id: row.id, new: false, head, state }]).await;
    }
    for row in rows.drain(10..15) {
        scene.commit(vec![Change::RemoveWorkflow(row.id)]).await;
    }
    let label = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let mut two_labels = label("team", "a");
    two_labels.extend(label("tier", "a"));
    let of = WorkflowFilter::default;
    let part = rows[3].head.spec.name[2..].to_ascii_uppercase();
    let mut found = 0;
    for filter in [
        of(),
        WorkflowFilter { namespace: text("team-a"), ..of() },
        WorkflowFilter { namespace: text("nobody"), ..of() },
        WorkflowFilter { owner: text("钟楼"), ..of() },
        WorkflowFilter { owner: text("a"), namespace: text("default"), ..of() },
        WorkflowFilter { labels: label("team", "钟楼"), ..of() },
        WorkflowFilter { labels: label("tier", "\0zero"), namespace: text("team-b"), ..of() },
        WorkflowFilter { labels: two_labels, ..of() },
        WorkflowFilter { text: Some(part), ..of() },
        WorkflowFilter { text: text("%"), ..of() },
    ] {
        let is =
            |wanted: &Option<String>, found: Option<&String>| wanted.is_none() || wanted.as_ref() == found;
        let matches = |row: &&WorkflowRow| {
            let spec = &row.head.spec;
            is(&filter.namespace, Some(&spec.namespace))
                && is(&filter.owner, spec.owner.as_ref())
                && filter.labels.iter().all(|(key, value)| spec.labels.get(key) == Some(value))
                && filter.text.as_ref().is_none_or(|text| spec.name.contains(&text.to_ascii_lowercase()))
        };
        let expected: Vec<_> = rows.iter().filter(matches).cloned().collect();
        found += expected.len();
        let listed = scene.store().workflows(&filter, WORKFLOWS).await.unwrap();
        assert_eq!((&listed.items, listed.more), (&expected, false), "{filter:?}");
        let (mut paged, mut page) = (Vec::new(), Page { after: None, limit: 7 });
        loop {
            let listed = scene.store().workflows(&filter, page).await.unwrap();
            paged.extend(listed.items);
            page.after = paged.last().map(|row: &WorkflowRow| row.id);
            if !listed.more {
                break;
            }
        }
        assert_eq!(paged, expected, "{filter:?}");
    }
    assert!(found > 100, "the filters find too little to say much: {found}");
}

/// C1, D5. Also after a reopen.
pub async fn live_and_ended_runs_are_read_with_their_history<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(73).await;
    let runs = scene.some_runs(30).await;
    let unknown = scene.run(RunStatus::Running).id;
    let scene = scene.reopen().await;
    for run in runs {
        let row = RunRow { id: run.id, head: run.head, state: run.state };
        assert_eq!(scene.store().run(run.id).await.unwrap(), Some(row));
    }
    assert_eq!(scene.store().run(unknown).await.unwrap(), None);
}

/// C1. Reference implementation of the filter.
fn matches(filter: &RunFilter, run: &Run) -> bool {
    let head = &run.head;
    // A run that a run of a firing called does not count as a run of the schedule.
    let origin = head.origin.as_ref().filter(|_| head.caller.is_none());
    let spec = &head.definition.workflow;
    (filter.statuses.is_empty() || filter.statuses.contains(&run.state.status))
        && filter.namespace.as_ref().is_none_or(|wanted| *wanted == spec.namespace)
        && filter.name.as_ref().is_none_or(|wanted| *wanted == spec.name)
        && filter.text.as_ref().is_none_or(|text| spec.name.contains(&text.to_ascii_lowercase()))
        && filter.created_after.is_none_or(|at| run.id.created_at() >= at)
        && filter.created_before.is_none_or(|at| run.id.created_at() < at)
        && filter.workflow.is_none_or(|wanted| head.workflow == Some(wanted))
        && filter.caller.is_none_or(|wanted| head.caller.is_some_and(|caller| caller.run == wanted))
        && filter.schedule.is_none_or(|wanted| origin.is_some_and(|origin| origin.schedule == wanted))
        && filter.backfill.is_none_or(|wanted| origin.is_some_and(|origin| origin.backfill == Some(wanted)))
}

/// C1. Newest first, without histories, in pages without gaps.
pub async fn every_filter_of_runs_finds_the_matching_runs<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(74).await;
    let runs = scene.some_runs(150).await;
    let of = RunFilter::default;
    let workflow = runs.iter().find_map(|run| run.head.workflow);
    let caller = runs.iter().find_map(|run| run.head.caller).map(|caller| caller.run);
    let middle = Some(runs[70].id.created_at());
    let origin = runs.iter().filter(|run| run.head.caller.is_none());
    let origin = origin.filter_map(|run| run.head.origin.as_ref()).find(|o| o.backfill.is_some());
    let (schedule, backfill) = (origin.map(|o| o.schedule), origin.and_then(|o| o.backfill));
    let mut filters = vec![
        of(),
        RunFilter { namespace: text("team-a"), ..of() },
        RunFilter { namespace: text("nobody"), ..of() },
        RunFilter { name: text("two"), ..of() },
        RunFilter { name: text("one"), namespace: text("default"), ..of() },
        RunFilter { workflow, ..of() },
        RunFilter { workflow, namespace: text("default"), ..of() },
        RunFilter { caller, ..of() },
        RunFilter { schedule, ..of() },
        RunFilter { backfill, schedule, ..of() },
        RunFilter { text: text("TW"), ..of() },
        RunFilter { text: text("o"), created_after: middle, ..of() },
        RunFilter { created_before: middle, ..of() },
    ];
    let base = filters.clone();
    for statuses in [
        vec![RunStatus::Running],
        vec![RunStatus::Waiting, RunStatus::Running, RunStatus::Paused, RunStatus::Stopping],
        vec![RunStatus::Failed],
        vec![RunStatus::Failed, RunStatus::Cancelled, RunStatus::Failed],
        vec![RunStatus::Waiting, RunStatus::Failed, RunStatus::Stopping],
        vec![RunStatus::Succeeded, RunStatus::Paused],
    ] {
        filters.extend(base.iter().map(|filter| RunFilter { statuses: statuses.clone(), ..filter.clone() }));
    }
    let mut found = 0;
    for filter in filters {
        let row = |run: &Run| {
            let mut state = run.state.clone();
            state.history = state.history.pop().into_iter().collect();
            RunRow { id: run.id, head: Arc::clone(&run.head), state }
        };
        let expected: Vec<_> = runs.iter().filter(|run| matches(&filter, run)).map(row).collect();
        found += expected.len();
        assert_eq!(scene.runs_found(&filter, 1_000).await, expected, "{filter:?}");
        assert_eq!(scene.runs_found(&filter, 7).await, expected, "{filter:?}");
    }
    assert!(found > 500, "the filters find too little to say much: {found}");
}

/// C1. Parsing a large definition takes longer than everything else.
pub async fn runs_of_one_definition_share_it_in_a_page<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(75).await;
    scene.some_runs(80).await;
    let listed = scene.store().runs(&RunFilter::default(), RUNS).await.unwrap().items;
    let mut by_body: BTreeMap<&str, &RunRow> = BTreeMap::new();
    for run in &listed {
        let first = by_body.entry(&run.head.body).or_insert(run);
        assert!(Arc::ptr_eq(&first.head.definition, &run.head.definition));
        assert!(Arc::ptr_eq(&first.head.body, &run.head.body));
    }
    assert!(by_body.len() + 10 < listed.len(), "too few share their definition to say much");
}

/// C1, C4.
pub async fn steps_are_listed_without_elements_and_elements_in_pages<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(76).await;
    let mut runs = scene.some_runs(3).await;
    for run in &mut runs {
        let items = [1, 2, 8, 300, 99_999].map(|item| {
            let key = StepKey { run: run.id, step: 1, item: Some(item) };
            StepRecord { key, state: scene.sampler.step_state() }
        });
        scene.commit(items.iter().map(|item| Change::Step(Box::new(item.clone()))).collect()).await;
        run.steps.extend(items);
        run.steps.sort_by_key(|record| record.key);
    }
    for run in &runs {
        let is_step = |record: &StepRecord| record.key.item.is_none();
        let steps: Vec<_> = run.steps.iter().filter(|record| is_step(record)).cloned().collect();
        assert_eq!(scene.store().run_steps(run.id).await.unwrap(), steps);
        for step in 0..4 {
            let of_step = |record: &&StepRecord| !is_step(record) && record.key.step == step;
            let items: Vec<_> = run.steps.iter().filter(of_step).cloned().collect();
            assert_eq!(scene.store().run_elements(run.id, step, None, 100).await.unwrap(), items);
            let mut found: Vec<StepRecord> = Vec::new();
            loop {
                let after = found.last().and_then(|record| record.key.item);
                let page = scene.store().run_elements(run.id, step, after, 2).await.unwrap();
                assert!(page.len() <= 2);
                if page.is_empty() {
                    break;
                }
                found.extend(page);
            }
            assert_eq!(found, items);
        }
    }
    let unknown = scene.run(RunStatus::Running).id;
    assert_eq!(scene.store().run_steps(unknown).await.unwrap(), []);
}

/// C1, G3. A live run is never listed, whatever its row contains.
pub async fn expired_runs_are_listed_longest_expired_first<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(77).await;
    let at = Timestamp::from_millis;
    let mut of = Vec::new();
    for (status, expires_at) in [
        (RunStatus::Succeeded, Some(at(30))),
        (RunStatus::Failed, Some(at(10))),
        (RunStatus::Cancelled, Some(at(31))),
        (RunStatus::Succeeded, None),
        (RunStatus::Running, Some(at(5))),
        (RunStatus::Failed, Some(at(20))),
    ] {
        let mut run = scene.run(status);
        run.state.expires_at = expires_at;
        scene.commit(run.changes()).await;
        of.push(run.id);
    }
    let store = scene.store();
    assert_eq!(store.expired_runs(at(30), 10).await.unwrap(), [of[1], of[5], of[0]]);
    assert_eq!(store.expired_runs(at(30), 2).await.unwrap(), [of[1], of[5]]);
    assert_eq!(store.expired_runs(at(9), 10).await.unwrap(), []);
}

/// C1, G3. Whatever the number of steps; a live run cannot be deleted.
pub async fn a_run_is_deleted_with_all_its_steps<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(78).await;
    let others = scene.some_runs(20).await;
    let live = scene.run(RunStatus::Running);
    let mut large = scene.run(RunStatus::Failed);
    large.steps.extend((100..12_100).map(|item| StepRecord {
        key: StepKey { run: large.id, step: 1, item: Some(item) },
        state: StepState::new(StepStatus::Succeeded, StepCause::JobSucceeded),
    }));
    let small = scene.run(RunStatus::Succeeded);
    for run in [&live, &large, &small] {
        scene.commit(run.changes()).await;
    }
    let deleted = [large.id, live.id, small.id];
    scene.store().delete_runs(&deleted).await.unwrap();
    // A second call changes nothing.
    scene.store().delete_runs(&deleted).await.unwrap();
    let scene = scene.reopen().await;
    for gone in [&large, &small] {
        assert_eq!(scene.store().run(gone.id).await.unwrap(), None);
        assert_eq!(scene.store().run_steps(gone.id).await.unwrap(), []);
        assert_eq!(scene.store().run_elements(gone.id, 1, None, 10).await.unwrap(), []);
    }
    let kept: Vec<_> = [&live].into_iter().chain(&others).collect();
    let listed = scene.store().runs(&RunFilter::default(), RUNS).await.unwrap().items;
    assert_eq!(
        listed.iter().map(|run| run.id).collect::<Vec<_>>(),
        kept.iter().map(|r| r.id).collect::<Vec<_>>()
    );
    for run in kept {
        let steps: Vec<_> = run.steps.iter().filter(|step| step.key.item.is_none()).cloned().collect();
        assert_eq!(scene.store().run_steps(run.id).await.unwrap(), steps);
        assert_eq!(scene.store().run_elements(run.id, 1, None, 10).await.unwrap().len(), 2);
    }
}

/// C1, G3. And a run that comes after its deletion adds it again.
pub async fn a_definition_is_kept_while_a_run_uses_it<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(79).await;
    let first = scene.run(RunStatus::Succeeded);
    let [second, third] = [RunStatus::Failed, RunStatus::Running].map(|status| {
        let mut run = scene.run(status);
        run.head = Arc::clone(&first.head);
        run
    });
    for run in [&first, &second] {
        scene.commit(run.changes()).await;
    }
    scene.store().delete_runs(&[first.id]).await.unwrap();
    let found = scene.store().run(second.id).await.unwrap().unwrap();
    assert_eq!(found.head, second.head);
    scene.store().delete_runs(&[second.id]).await.unwrap();
    scene.commit(third.changes()).await;
    assert_eq!(scene.store().run(third.id).await.unwrap().unwrap().head, third.head);
    let live: Vec<LiveRow> = scene.live().await;
    assert_eq!(live, third.rows());
}
