//! Conversion of rows of workflows and runs to API types.
//!
//! A step without a row is pending: it gets its row when it leaves that status. Approvals have templates in the spec of
//! a run and resolved texts in its rows; responses show the resolved texts.
//!
//! Stored parameters and outputs are JSON texts, which are parsed here; an invalid text is returned as a string.

use std::collections::BTreeMap;

use model::WorkflowSpec;
use model::api::{
    RecentRun, RunAttempt, RunStep, RunStepState, StepCounts, StepKind, TriggerStatus, WaitingApproval,
    Workflow, WorkflowRun,
};
use model::run::{
    ApprovalRequest, RunState, StepRecord, StepState, StepStatus, TriggerState, WorkflowState, stored_files,
};
use model::workflow::template::has_reference;
use model::workflow::{Action, StepSpec};
use serde_json::Value;
use store::query::{RunRow, WorkflowRow};

/// Returns a workflow without its spec.
pub(super) fn workflow(row: &WorkflowRow) -> Workflow {
    let (spec, state) = (&row.head.spec, &row.state);
    Workflow {
        id: row.id,
        name: spec.name.clone(),
        namespace: spec.namespace.clone(),
        owner: spec.owner.clone(),
        labels: spec.labels.clone(),
        description: spec.description.clone(),
        generation: state.generation,
        version: state.version,
        created_at: state.created_at,
        updated_at: state.updated_at,
        steps: u32::try_from(spec.all_steps().count()).unwrap_or(u32::MAX),
        parameters: spec.parameters.clone(),
        runs: state.runs,
        triggers: Vec::new(),
        recent: None,
        spec: None,
        warnings: Vec::new(),
    }
}

/// Returns the states of the triggers of a workflow.
pub(super) fn triggers(state: &WorkflowState) -> Vec<TriggerStatus> {
    let shown = |state: &TriggerState| TriggerStatus {
        runs: state.runs,
        last_run: state.last_run,
        refused: state.refused,
        last_refusal: state.last_refusal.as_deref().cloned(),
        waiting_events: state.waiting_events.iter().map(|kept| kept.ended.clone()).collect(),
    };
    state.triggers.iter().map(shown).collect()
}

/// Returns a run for a list of workflows.
pub(super) fn recent(row: &RunRow) -> RecentRun {
    let state = &row.state;
    RecentRun {
        id: row.id,
        number: row.head.number,
        status: state.status,
        created_at: state.created_at,
        started_at: state.started_at,
        finished_at: state.finished_at,
    }
}

/// Returns a run without its spec.
pub(super) fn run(row: RunRow) -> WorkflowRun {
    let RunRow { id, head, state } = row;
    let spec = &head.definition.workflow;
    let attempt = attempt(spec, &state);
    WorkflowRun {
        id,
        workflow_id: head.workflow,
        workflow: spec.name.clone(),
        namespace: spec.namespace.clone(),
        generation: head.generation,
        number: head.number,
        status: state.status,
        section: state.section,
        version: state.version,
        created_at: state.created_at,
        started_at: state.started_at,
        finished_at: state.finished_at,
        updated_at: state.updated_at,
        parameters: serde_json::Map::clone(&head.parameters),
        actor: head.actor.to_string(),
        note: head.note.as_deref().map(str::to_owned),
        caller: head.caller,
        retry_of: head.retry_of,
        priority: head.priority,
        origin: head.origin.as_deref().cloned(),
        trigger: head.trigger.as_deref().cloned(),
        started_runs: state.started.to_vec(),
        pause: state.pause.map(|pause| *pause),
        stopping: state.stopping,
        attempt,
        steps: counts(&state.counts),
        approvals: None,
        output: state.output.as_deref().map(json),
        last_transition: None,
        history: state.history,
        spec: None,
    }
}

/// Returns a run for a list; its row has only the newest transition of its history.
pub(super) fn listed(row: RunRow) -> WorkflowRun {
    let mut run = run(row);
    run.last_transition = std::mem::take(&mut run.history).pop();
    run
}

fn attempt(spec: &WorkflowSpec, state: &RunState) -> Option<RunAttempt> {
    let max = spec.retry.max_retries + 1;
    let (next_at, started_at) =
        (state.next_attempt_at(), state.retry.as_ref().and_then(|retry| retry.started_at));
    (max > 1).then(|| RunAttempt { number: state.failures() + 1, max, next_at, started_at })
}

fn counts(counts: &[u32; 8]) -> StepCounts {
    let of = |status: StepStatus| counts[usize::from(status.code())];
    StepCounts {
        pending: of(StepStatus::Pending),
        running: of(StepStatus::Running),
        waiting: of(StepStatus::Waiting),
        succeeded: of(StepStatus::Succeeded),
        failed: of(StepStatus::Failed),
        upstream_failed: of(StepStatus::UpstreamFailed),
        skipped: of(StepStatus::Skipped),
        cancelled: of(StepStatus::Cancelled),
    }
}

/// Parses stored JSON; returns a string if it is invalid.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Returns the steps of a run that wait for approval. `records` are the rows of its steps.
pub(super) fn approvals(row: &RunRow, records: &[StepRecord]) -> Vec<WaitingApproval> {
    let all: Vec<_> = row.head.definition.workflow.all_steps().collect();
    let waiting = |record: &StepRecord| {
        let (_, spec) = all.get(record.key.step as usize)?;
        let Action::Approval(approval) = &spec.action else { return None };
        let waits = record.key.item.is_none() && record.state.status == StepStatus::Waiting;
        waits.then(|| {
            let ApprovalRequest { message, approvers } =
                record.state.asks.as_deref().cloned().unwrap_or_else(|| ApprovalRequest {
                    message: approval.message.clone(),
                    approvers: approval.approvers.clone(),
                });
            let since = record.state.started_at.unwrap_or(row.state.updated_at);
            WaitingApproval { step: spec.name.clone(), since, approvers, message }
        })
    };
    records.iter().filter_map(waiting).collect()
}

/// Returns whether the message or the approvers of an approval contain references, so that they differ in each run.
pub(super) fn has_templated_approvals(spec: &WorkflowSpec) -> bool {
    spec.all_steps().any(|(_, step)| match &step.action {
        Action::Approval(approval) => {
            let texts = approval.message.iter().chain(&approval.approvers);
            texts.into_iter().any(|text| has_reference(text))
        }
        _ => false,
    })
}

/// Returns a spec in which the approvals that have started have their resolved texts. `records` are the rows of the
/// run's steps.
pub(super) fn with_resolved_approvals(mut spec: WorkflowSpec, records: &[StepRecord]) -> WorkflowSpec {
    let asked: BTreeMap<u32, &ApprovalRequest> =
        records.iter().filter_map(|record| Some((record.key.step, record.state.asks.as_deref()?))).collect();
    let sections = [&mut spec.steps, &mut spec.on_failure, &mut spec.finally];
    for (number, step) in (0..).zip(sections.into_iter().flatten()) {
        if let (Action::Approval(approval), Some(asks)) = (&mut step.action, asked.get(&number)) {
            (approval.message, approval.approvers) = (asks.message.clone(), asks.approvers.clone());
        }
    }
    spec
}

/// Returns all steps of a run, including pending ones. `records` are its rows, ordered by step number.
pub(super) fn steps(row: &RunRow, records: Vec<StepRecord>) -> Vec<RunStep> {
    let mut records = records.into_iter().filter(|record| record.key.item.is_none()).peekable();
    let all = row.head.definition.workflow.all_steps();
    let step = |(number, (section, spec)): (u32, (_, &StepSpec))| {
        let record = records.next_if(|record| record.key.step == number);
        RunStep {
            name: spec.name.clone(),
            number,
            section,
            kind: kind(&spec.action),
            needs: spec.needs.clone(),
            join: spec.join,
            for_each: spec.for_each.is_some(),
            state: record.map_or_else(pending, |record| step_state(record.state)),
        }
    };
    (0..).zip(all).map(step).collect()
}

/// Returns the kind of a step.
pub(super) const fn kind(action: &Action) -> StepKind {
    match action {
        Action::Job(_) => StepKind::Job,
        Action::Workflow(_) => StepKind::Workflow,
        Action::Approval(_) => StepKind::Approval,
        Action::Wait(_) => StepKind::Wait,
    }
}

const fn pending() -> RunStepState {
    RunStepState {
        status: StepStatus::Pending,
        cause: None,
        job_id: None,
        called_run_id: None,
        started_at: None,
        finished_at: None,
        wake_at: None,
        total: None,
        element_counts: None,
        output: None,
        message: None,
        decision: None,
        late_workers: None,
        files: None,
        approval: None,
    }
}

/// Returns the state of a step, or of an element, that has a row.
pub(super) fn step_state(state: StepState) -> RunStepState {
    RunStepState {
        status: state.status,
        cause: Some(state.cause),
        job_id: state.job,
        called_run_id: state.called,
        started_at: state.started_at,
        finished_at: state.finished_at,
        wake_at: state.wake_at,
        total: state.total,
        element_counts: state.element_counts,
        output: state.output.as_deref().map(json),
        message: state.message.map(String::from),
        decision: state.decision.map(|said| *said),
        late_workers: state.late_workers.map(|late| *late),
        files: state.files.as_deref().and_then(stored_files).map(Value::Object),
        approval: state.asks.map(|asks| *asks),
    }
}
