//! Runs of workflows, and elements that tasks add to them.
//!
//! `told` builds a history from commits. Most use the run of `run_row`: step `a`, then step `b`, which
//! depends on it. Each helper returns the row of one event, such as `started`, `ends` (a step succeeds) or
//! `job_of` (the job of a step); `triggered` and `report` concern runs that other runs start, `growing` steps
//! with added elements.
//!
//! A test ends with `holds` or with `breaks` and the violated invariant, mostly I19.

use model::run::{
    Ended, PendingEnd, RunCause, RunHistoryEntry, RunTrigger, StepCause, StepOrigin, TriggerRefusal,
    TriggerRefusalReason, TriggerState,
};
use model::workflow::{
    ElementSource, ForEach, RequiredResult, Source, SourceKind, StepSpec, TriggerSources, TriggerSpec,
};
use model::{RunId, RunStatus, StepStatus, WorkflowId, WorkflowSpec};

use super::*;
use crate::history::{Added, RunRow, StepRow, WorkflowRow};

const RUN: RunId = RunId::from_bits(5 << 64);

/// A run of `a`, then `b`, which depends on it.
fn run_row(new: bool, version: u64, to: RunStatus, cause: RunCause) -> Row {
    let step = |name: &str| StepSpec::job(name, JobSpec::command(["true"]));
    let spec = WorkflowSpec::new("w", vec![step("a"), step("b").needs(["a"])]);
    let from = (!new).then_some(RunStatus::Running);
    let entry = RunHistoryEntry { at: second(1), from, to, cause, detail: None };
    Row::Run(Box::new(RunRow {
        run: RUN,
        new,
        spec: new.then(|| Arc::new(spec)),
        origin: None,
        caller: None,
        trigger: None,
        started: Vec::new(),
        status: to,
        version,
        steps: vec![entry],
    }))
}

fn started() -> Row {
    run_row(true, 1, RunStatus::Running, RunCause::Started)
}

fn succeeded() -> Row {
    run_row(false, 2, RunStatus::Succeeded, RunCause::Succeeded)
}

fn step_row(step: u32, status: StepStatus, cause: StepCause) -> Row {
    Row::Step(Box::new(StepRow { run: RUN, step, item: None, status, cause }))
}

fn goes_on(step: u32) -> Row {
    step_row(step, StepStatus::Running, StepCause::UpstreamEnded)
}

fn ends(step: u32) -> Row {
    step_row(step, StepStatus::Succeeded, StepCause::JobSucceeded)
}

/// The only row of a step's job.
fn job_of(step: u32, number: u64, status: JobStatus) -> Row {
    let story = Story::new();
    let name = if step == 0 { "a" } else { "b" };
    let origin = StepOrigin { run: RUN, workflow: "w".into(), name: name.into(), step, element: None };
    let cause = if status.is_final() { Cause::CancelRequested } else { Cause::StepStarted };
    let entry =
        |from, to, cause| HistoryEntry { at: second(1), from, to, cause, execution: None, detail: None };
    let mut steps = vec![entry(None, JobStatus::Waiting, Cause::StepStarted)];
    if status.is_final() {
        steps.push(entry(Some(JobStatus::Waiting), status, cause));
    }
    Row::Job(Box::new(JobRow {
        job: JobId::from_bits(u128::from(number) << 64),
        spec: Some(Arc::new(story.spec)),
        step: Some(Arc::new(origin)),
        version: 1,
        status,
        steps,
        ..story.row
    }))
}

fn told(commits: Vec<Vec<Row>>) -> Story {
    let mut story = Story::new();
    for rows in commits {
        story.commit(rows);
    }
    story
}

const WAITS: JobStatus = JobStatus::Waiting;

/// I19.
#[test]
fn a_step_has_one_job_and_none_if_it_never_began() {
    told(vec![vec![started(), goes_on(0), job_of(0, 11, WAITS)]]).holds();
    let twice = vec![job_of(0, 12, WAITS)];
    told(vec![vec![started(), goes_on(0), job_of(0, 11, WAITS)], twice]).breaks(Invariant::I19);
    let skipped = || step_row(0, StepStatus::Skipped, StepCause::Condition);
    told(vec![vec![started(), skipped()]]).holds();
    told(vec![vec![started(), skipped(), job_of(0, 11, WAITS)]]).breaks(Invariant::I19);
}

/// I19.
#[test]
fn a_step_that_violates_its_join_rule_is_reported() {
    told(vec![vec![started(), ends(0), goes_on(1)]]).holds();
    told(vec![vec![started(), goes_on(0)], vec![ends(0)], vec![goes_on(1)]]).holds();
    told(vec![vec![started(), goes_on(0), goes_on(1)]]).breaks(Invariant::I19);
    let failed = || step_row(0, StepStatus::Failed, StepCause::JobFailed);
    told(vec![vec![started(), failed(), goes_on(1)]]).breaks(Invariant::I19);
    let left_out = || step_row(1, StepStatus::UpstreamFailed, StepCause::JoinRule);
    told(vec![vec![started(), failed(), left_out()]]).holds();
    told(vec![vec![started(), ends(0), left_out()]]).breaks(Invariant::I19);
}

/// The end of the run, with the runs that it started.
fn succeeded_and_started(runs: &[RunId]) -> Vec<Row> {
    let Row::Run(mut row) = succeeded() else { panic!("the row of a run") };
    row.started = runs.to_vec();
    vec![ends(0), ends(1), Row::Run(row)]
}

/// A run that was started by the end of [`RUN`].
fn triggered(id: RunId) -> Row {
    let Row::Run(mut row) = started() else { panic!("the row of a run") };
    let ended = vec![Ended::new(RUN.into(), "w".into(), JobStatus::Succeeded, second(1))];
    row.run = id;
    row.trigger = Some(Arc::new(RunTrigger { number: 0, ended, chain: vec!["w".into()] }));
    Row::Run(row)
}

/// I19.
#[test]
fn an_end_starts_a_run_once_and_in_its_own_commit() {
    let [one, two] = [6, 7].map(|id| RunId::from_bits(id << 64));
    let with = |mut rows: Vec<Row>, more: Vec<Row>| {
        rows.extend(more);
        rows
    };
    let end = || succeeded_and_started(&[one]);
    told(vec![vec![started()], with(end(), vec![triggered(one)])]).holds();
    told(vec![vec![started()], end()]).breaks(Invariant::I19);
    told(vec![vec![started()], end(), vec![triggered(one)]]).breaks(Invariant::I19);
    told(vec![vec![started()], with(end(), vec![triggered(one), triggered(two)])]).breaks(Invariant::I19);
}

/// The row of workflow `report`, with this trigger and its state.
fn report(listens: TriggerSources, paused: bool, did: TriggerState, new: bool) -> Row {
    let step = StepSpec::job("send", JobSpec::command(["true"]));
    let mut spec = WorkflowSpec::new("report", vec![step]);
    spec.triggers.push(TriggerSpec { listens, parameters: Default::default(), paused });
    let (workflow, spec) = (WorkflowId::from_bits(9 << 64), new.then(|| Arc::new(spec)));
    Row::Workflow(Box::new(WorkflowRow { workflow, spec, triggers: vec![did], removed: false }))
}

fn source(kind: SourceKind, name: &str, on: RequiredResult) -> Source {
    Source { kind, name: name.into(), on, labels: Default::default(), within: None }
}

/// Run `one` of `report`, which was started by the end of [`RUN`].
fn reported(one: RunId) -> Row {
    let Row::Run(mut row) = triggered(one) else { panic!("the row of a run") };
    let mut spec = (**row.spec.as_ref().unwrap()).clone();
    spec.name = "report".into();
    row.spec = Some(Arc::new(spec));
    Row::Run(row)
}

/// I19.
#[test]
fn a_missing_triggered_run_is_reported() {
    let one = RunId::from_bits(6 << 64);
    let none = TriggerState::default;
    let ends_with = |on, paused, runs: &[RunId], more: Vec<Row>| {
        let listens = TriggerSources::To(source(SourceKind::Workflow, "w", on));
        let first = report(listens, paused, none(), true);
        let mut end = succeeded_and_started(runs);
        end.extend(more);
        told(vec![vec![first], vec![started()], end])
    };
    ends_with(RequiredResult::Success, false, &[one], vec![reported(one)]).holds();
    ends_with(RequiredResult::Success, false, &[], vec![]).breaks(Invariant::I19);
    ends_with(RequiredResult::Failure, false, &[], vec![]).holds();
    ends_with(RequiredResult::Failure, false, &[one], vec![reported(one)]).breaks(Invariant::I19);
    // If nothing is started, the reason is recorded.
    let ended = Ended::new(RUN.into(), "w".into(), JobStatus::Succeeded, second(1));
    let refused = |reason| {
        let ended = ended.clone();
        let last = TriggerRefusal { at: second(3), ended, reason, detail: None };
        let did = TriggerState { refused: 1, last_refusal: Some(Box::new(last)), ..none() };
        let listens = TriggerSources::To(source(SourceKind::Workflow, "w", RequiredResult::Success));
        report(listens, true, did, false)
    };
    ends_with(RequiredResult::Success, true, &[], vec![refused(TriggerRefusalReason::Paused)]).holds();
    ends_with(RequiredResult::Success, true, &[], vec![refused(TriggerRefusalReason::Late)])
        .breaks(Invariant::I19);
    ends_with(RequiredResult::Success, true, &[], vec![]).breaks(Invariant::I19);
    ends_with(RequiredResult::Success, false, &[], vec![refused(TriggerRefusalReason::TooManyRuns)])
        .breaks(Invariant::I19);
}

/// I19.
#[test]
fn a_join_that_loses_an_end_is_reported() {
    let sources = vec![
        source(SourceKind::Workflow, "w", RequiredResult::Any),
        source(SourceKind::Job, "rates", RequiredResult::Success),
    ];
    let listens = || TriggerSources::All { sources: sources.clone(), window: Duration::from_secs(60) };
    let first = || vec![report(listens(), false, TriggerState::default(), true)];
    let end = |more: Vec<Row>| succeeded_and_started(&[]).into_iter().chain(more).collect::<Vec<_>>();
    let kept = PendingEnd {
        source: 0,
        ended: Ended::new(RUN.into(), "w".into(), JobStatus::Succeeded, second(1)),
        created_at: second(1),
        scheduled_for: None,
        interval_start: None,
        output: None,
        chain: vec!["w".into()],
    };
    let keeps =
        report(listens(), false, TriggerState { waiting_events: vec![kept], ..Default::default() }, false);
    told(vec![first(), vec![started()], end(vec![keeps])]).holds();
    told(vec![first(), vec![started()], end(vec![])]).breaks(Invariant::I19);
}

/// I19.
#[test]
fn the_result_of_a_run_follows_from_all_of_its_steps() {
    told(vec![vec![started()], vec![ends(0), ends(1), succeeded()]]).holds();
    told(vec![vec![started()], vec![ends(0), succeeded()]]).breaks(Invariant::I19);
    let bad = step_row(1, StepStatus::Failed, StepCause::JobFailed);
    told(vec![vec![started()], vec![ends(0), bad, succeeded()]]).breaks(Invariant::I19);
    let failed = run_row(false, 2, RunStatus::Failed, RunCause::StepFailed);
    told(vec![vec![started()], vec![ends(0), ends(1), failed]]).breaks(Invariant::I19);
}

/// I19.
#[test]
fn a_step_that_misses_the_end_of_its_job_is_reported() {
    let cancelled = || step_row(0, StepStatus::Cancelled, StepCause::JobCancelled);
    let over = || job_of(0, 11, JobStatus::Cancelled);
    told(vec![vec![started(), cancelled(), over()]]).holds();
    told(vec![vec![started(), goes_on(0), over()], vec![cancelled()]]).breaks(Invariant::I19);
}

/// I5 and I26.
#[test]
fn a_change_after_the_end_of_a_step_and_an_endless_run_are_reported() {
    let first = || vec![started(), ends(0)];
    told(vec![first(), vec![goes_on(0)]]).breaks(Invariant::I5);
    let mut story = told(vec![first()]);
    story.event(What::Calm).event(What::End { unacknowledged: Vec::new() });
    story.breaks(Invariant::I26);
}

/// A run whose step `b` maps over the elements that tasks of `a` add.
fn growing() -> Row {
    let Row::Run(mut row) = started() else { panic!("the row of a run") };
    let mut spec = (**row.spec.as_ref().unwrap()).clone();
    spec.steps[1].needs.clear();
    spec.steps[1].for_each = Some(ForEach::new(ElementSource::AddedBy(vec!["a".into()])));
    row.spec = Some(Arc::new(spec));
    Row::Run(row)
}

fn batch(name: &str) -> Added {
    Added { run: RUN, step: 1, by: (0, None), batch: name.into() }
}

fn adds(name: &str, first: u32, count: u32) -> Row {
    Row::Elements { added: batch(name), first, count }
}

fn element(item: u32) -> Row {
    let Row::Step(mut row) = ends(1) else { panic!("the row of a step") };
    row.item = Some(item);
    Row::Step(row)
}

/// I19.
#[test]
fn added_elements_form_one_list_with_each_batch_once() {
    let over = || vec![growing(), goes_on(0), goes_on(1)];
    told(vec![over(), vec![adds("x", 0, 2)], vec![adds("y", 2, 1)]]).holds();
    told(vec![over(), vec![adds("x", 0, 2)], vec![adds("y", 3, 1)]]).breaks(Invariant::I19);
    told(vec![over(), vec![adds("x", 0, 2)], vec![adds("x", 2, 2)]]).breaks(Invariant::I19);
}

/// I19.
#[test]
fn a_step_that_skips_added_elements_is_reported() {
    let end = || step_row(1, StepStatus::Succeeded, StepCause::ElementsSucceeded);
    let added = || vec![growing(), goes_on(0), goes_on(1), adds("x", 0, 2)];
    told(vec![added(), vec![element(0)], vec![ends(0)], vec![element(1), end()]]).holds();
    told(vec![added(), vec![element(0)], vec![ends(0), end()]]).breaks(Invariant::I19);
}

/// I1.
#[test]
fn acknowledged_elements_exist() {
    let told_of = |first: u32| {
        let mut story = told(vec![vec![growing(), goes_on(0), goes_on(1)]]);
        story.event(What::Asked { request: 9, ask: Ask::Add(batch("x")) });
        story.commit(vec![adds("x", 0, 2)]);
        story.event(What::Answered { request: 9, answer: Answer::Added { first, count: 2 } });
        story
    };
    told_of(0).holds();
    told_of(1).breaks(Invariant::I1);
}

/// A run of `a`, then `b`, with one retry.
fn started_with_a_retry() -> Row {
    let Row::Run(mut row) = started() else { panic!("the row of a run") };
    let mut spec = (**row.spec.as_ref().unwrap()).clone();
    spec.retry.max_retries = 1;
    row.spec = Some(Arc::new(spec));
    Row::Run(row)
}

/// The row of a run that fails, or that begins a retry.
fn between_tries(version: u64, to: RunStatus, cause: RunCause) -> Row {
    let Row::Run(mut row) = run_row(false, version, to, cause) else { panic!("the row of a run") };
    row.steps[0].from = Some(if to == RunStatus::Running { RunStatus::Retrying } else { RunStatus::Running });
    Row::Run(row)
}

/// Two attempts of a run: `a` fails in the first one, and the second one begins with these rows.
fn tried_again(first: Row, second: Vec<Row>) -> Story {
    let fails = step_row(0, StepStatus::Failed, StepCause::JobFailed);
    let waits = between_tries(2, RunStatus::Retrying, RunCause::StepFailed);
    told(vec![vec![first, goes_on(0), job_of(0, 11, WAITS)], vec![fails, waits], second])
}

/// I5 and I19. A retry resets a step once, in the commit that begins the retry, and only if the policy allows a
/// retry.
#[test]
fn a_retry_of_a_run_resets_a_step_once() {
    let begins = || between_tries(3, RunStatus::Running, RunCause::BackoffEnded);
    let again = || step_row(0, StepStatus::Pending, StepCause::RunRetried);
    tried_again(started_with_a_retry(), vec![begins(), goes_on(0), job_of(0, 12, WAITS)]).holds();
    tried_again(started_with_a_retry(), vec![begins(), again()]).holds();
    tried_again(started_with_a_retry(), vec![again()]).breaks(Invariant::I5);
    tried_again(started(), vec![begins(), again()]).breaks(Invariant::I19);
    let twice = vec![begins(), goes_on(0), job_of(0, 12, WAITS), job_of(0, 13, WAITS)];
    tried_again(started_with_a_retry(), twice).breaks(Invariant::I19);
    let mut story = tried_again(started_with_a_retry(), vec![begins(), again()]);
    story.commit(vec![goes_on(1)]).breaks(Invariant::I19);
}
