//! Tables and detailed views of workflow runs, their steps and the elements of steps.
//!
//! - [`WorkflowRun`]: `run list`. [`RunPage`]: `run get`: the fields of the run, at most [`STEPS_MAX`] steps
//!   (failed and running steps first), and with `-o wide` its history.
//! - [`RunStep`]: `run steps`, and the rows of `run watch`. [`RunElement`]: `run elements`.
//! - [`EventDelivery`]: `run event`.
//! - [`title`], [`elements_progress`] and [`message`] are also used by `commands::runs::follow`; [`format_end`] and
//!   [`started_runs`] by the views of workflows and jobs.
//!
//! # Invariants
//! - JSON and YAML of a [`RunPage`] are the run alone, as in the API.
//! - A run without a stored workflow has neither a number nor a generation; their cells are `-`.
//! - A message adds to the status, and does not repeat it.

use std::fmt::Write as _;

use model::api::{EventDelivery, RunAttempt, RunElement, RunStep, RunStepState, StepCounts, WorkflowRun};
use model::run::{Caller, Ended, LateWorkers, RunHistoryEntry, StepCause};
use model::{JobStatus, RunId, RunStatus, StepStatus, Timestamp};
use serde::Serialize;

use super::OutputOptions;
use super::objects::{exact_or_none, run_time};
use super::table::{self, Cell, Column, Detail, Row, Tone, column, wide};
use super::text::{escape, short};
use super::time::{exact, relative_or_exact};
use super::workflows::{STEPS_MAX, VALUE_CHARS_MAX, joined, kind, left_out, step_title, variant_name};

pub(super) fn run_status(status: RunStatus) -> Cell {
    let tone = match status {
        RunStatus::Waiting | RunStatus::Paused | RunStatus::Retrying => Tone::Waiting,
        RunStatus::Running | RunStatus::Stopping => Tone::Busy,
        RunStatus::Succeeded => Tone::Good,
        RunStatus::Failed => Tone::Bad,
        RunStatus::Cancelled => Tone::Dim,
    };
    Cell::new(status.as_str(), tone)
}

fn step_status(status: StepStatus) -> Cell {
    let tone = match status {
        StepStatus::Pending | StepStatus::Skipped | StepStatus::Cancelled => Tone::Dim,
        StepStatus::Running => Tone::Busy,
        StepStatus::Waiting => Tone::Waiting,
        StepStatus::Succeeded => Tone::Good,
        StepStatus::Failed | StepStatus::UpstreamFailed => Tone::Bad,
    };
    Cell::new(status.as_str(), tone)
}

/// Formats the progress of a run: `ended/total`, and the number of failed steps.
fn progress(steps: &StepCounts) -> Cell {
    let StepCounts { pending, running, waiting, succeeded, failed, upstream_failed, skipped, cancelled } =
        *steps;
    let ended = succeeded + failed + upstream_failed + skipped + cancelled;
    let text = format!("{ended}/{}", ended + pending + running + waiting);
    match failed + upstream_failed {
        0 => text.into(),
        bad => Cell::new(format!("{text}, {bad} failed"), Tone::Bad),
    }
}

impl Row for WorkflowRun {
    const COLUMNS: &'static [Column] = &[
        column("ID", 30),
        column("WORKFLOW", 16).cut(12),
        column("NUMBER", 6).optional(4),
        column("STATUS", 9),
        column("STEPS", 14).optional(1),
        column("DURATION", 8).optional(3),
        column("CREATED", 10).optional(2),
        wide("NAMESPACE", 12),
        wide("GENERATION", 10),
        wide("CREATED BY", 12),
        wide("RETRY OF", 30),
        wide("CALLER", 30),
        wide("NOTE", 20),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.id.to_string().into(),
            self.workflow.as_str().into(),
            has_workflow(self).then(|| self.number.to_string()).into(),
            run_status(self.status),
            progress(&self.steps),
            run_time(look, self.started_at, self.finished_at),
            relative_or_exact(look, self.created_at).into(),
            self.namespace.as_str().into(),
            has_workflow(self).then(|| self.generation.to_string()).into(),
            self.actor.as_str().into(),
            self.retry_of.map(|id| id.to_string()).into(),
            self.caller.map(|caller| caller.run.to_string()).into(),
            self.note.as_deref().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

/// Whether the run belongs to a stored workflow. Only such a run has a number and a generation.
fn has_workflow(run: &WorkflowRun) -> bool {
    run.workflow_id.is_some()
}

/// Formats the title of a run: `nightly #3`, or only the name for a run without a stored workflow.
pub(crate) fn title(run: &WorkflowRun) -> String {
    match run.number {
        0 => escape(&run.workflow),
        number => format!("{} #{number}", escape(&run.workflow)),
    }
}

/// Run with its steps, for the detailed view. JSON and YAML contain the run alone.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct RunPage {
    pub(crate) run: WorkflowRun,
    #[serde(skip)]
    pub(crate) steps: Vec<RunStep>,
}

impl Row for RunPage {
    const COLUMNS: &'static [Column] = WorkflowRun::COLUMNS;

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        self.run.cells(look)
    }

    fn name(&self) -> String {
        self.run.name()
    }
}

impl Detail for RunPage {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let run = &self.run;
        let mut lines = vec![
            ("Run", run.id.to_string().into()),
            ("Workflow", format!("{} (generation {})", title(run), run.generation).into()),
            ("Namespace", run.namespace.as_str().into()),
            ("Status", run_status(run.status)),
            ("Steps", progress(&run.steps)),
            ("Created", format!("{} by {}", exact(look, run.created_at), run.actor).into()),
            ("Started", exact_or_none(look, run.started_at)),
            ("Finished", exact_or_none(look, run.finished_at)),
            ("Duration", run_time(look, run.started_at, run.finished_at)),
        ];
        if !has_workflow(run) {
            lines[1].1 = run.workflow.as_str().into();
        }
        lines.extend(
            run.attempt.map(|attempt| ("Attempt", format_attempt(look, run.status, &attempt).into())),
        );
        for (name, value) in &run.parameters {
            lines.push(("Parameter", format!("{name}={}", short(&plain(value), VALUE_CHARS_MAX)).into()));
        }
        lines.extend(run.note.as_deref().map(|note| ("Note", note.into())));
        lines.extend(run.priority.map(|priority| ("Priority", priority.to_string().into())));
        lines.extend(run.pause.as_ref().map(|pause| {
            let note = pause.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
            ("Paused", format!("{} by {}{note}", exact(look, pause.at), pause.by).into())
        }));
        lines.extend(run.stopping.map(|cause| ("Stopping", cause.sentence().into())));
        lines.extend(run.origin.as_ref().map(|origin| {
            let at = exact(look, origin.scheduled_for);
            ("Schedule", format!("{} for {at} ({})", origin.name, origin.cause).into())
        }));
        lines.extend(run.caller.map(|caller| ("Called by", called_by(caller).into())));
        for ended in run.trigger.iter().flat_map(|trigger| &trigger.ended) {
            lines.push(("Triggered by", format_end(look, ended).into()));
        }
        lines.extend(run.retry_of.map(|id| ("Retry of", id.to_string().into())));
        lines.extend(started_runs(&run.started_runs));
        lines.extend(run.output.as_ref().map(|output| ("Output", output.to_string().into())));
        lines
    }

    fn appendix(&self, look: &OutputOptions) -> String {
        let shown = select_steps(&self.steps);
        let mut text = String::new();
        if !shown.is_empty() {
            let _ = write!(text, "\n{}", table::rows(look, &shown));
        }
        let help = format!("run `belfry run steps {}` to list all steps", self.run.id);
        left_out(&mut text, self.steps.len() - shown.len(), &help);
        if look.wide() && !self.run.history.is_empty() {
            let _ = write!(text, "\n{}", table::rows(look, &self.run.history));
        }
        text
    }
}

/// Formats the attempt of a run: `2 of 3, starts at …`.
fn format_attempt(look: &OutputOptions, status: RunStatus, attempt: &RunAttempt) -> String {
    let RunAttempt { number, max, next_at, started_at } = attempt;
    match (next_at, started_at) {
        (Some(_), _) if status == RunStatus::Paused => {
            format!("{number} of {max}, starts when the run is resumed")
        }
        (Some(at), _) => format!("{number} of {max}, starts at {}", exact(look, *at)),
        (None, Some(at)) => format!("{number} of {max}, started at {}", exact(look, *at)),
        (None, None) => format!("{number} of {max}"),
    }
}

/// Formats the end of a job or run: `workflow extract (run_…) succeeded at …`.
pub(super) fn format_end(look: &OutputOptions, ended: &Ended) -> String {
    let id = ended.job_id.map(|id| id.to_string()).or(ended.run_id.map(|id| id.to_string()));
    let id = id.unwrap_or_default();
    format!("{ended} ({id}) {} at {}", past_tense(ended.status), exact(look, ended.at))
}

const fn past_tense(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Succeeded => "succeeded",
        JobStatus::Cancelled => "was cancelled",
        JobStatus::Expired => "expired",
        _ => "failed",
    }
}

/// Formats the runs that the end of a job or run triggered; `None` without any.
pub(super) fn started_runs(runs: &[RunId]) -> Option<(&'static str, Cell)> {
    let named: Vec<_> = runs.iter().map(RunId::to_string).collect();
    (!named.is_empty()).then(|| ("Triggered runs", joined(&named)))
}

fn called_by(caller: Caller) -> String {
    let element =
        caller.element.map(|index| format!(", element {}", u64::from(index) + 1)).unwrap_or_default();
    format!("{} (step {}{element})", caller.run, u64::from(caller.step) + 1)
}

/// Formats a value: a string without quotes, any other value as JSON.
pub(super) fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Selects at most [`STEPS_MAX`] steps and keeps their order. Failed steps have precedence, then running and waiting
/// steps.
fn select_steps(steps: &[RunStep]) -> Vec<RunStep> {
    let weight = |step: &RunStep| match step.state.status {
        StepStatus::Failed => 0,
        StepStatus::Running | StepStatus::Waiting => 1,
        StepStatus::UpstreamFailed | StepStatus::Cancelled => 2,
        StepStatus::Pending | StepStatus::Succeeded | StepStatus::Skipped => 3,
    };
    let mut shown: Vec<_> = steps.iter().collect();
    shown.sort_by_key(|step| weight(step));
    shown.truncate(STEPS_MAX);
    shown.sort_by_key(|step| step.number);
    shown.into_iter().cloned().collect()
}

impl Row for RunHistoryEntry {
    const COLUMNS: &'static [Column] = &[
        column("TIME", 27),
        column("STATUS", 9),
        column("CAUSE", 16).optional(1),
        column("MESSAGE", 40).cut(30),
    ];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        let sentence = self.cause.sentence();
        let told =
            self.detail.as_ref().map_or_else(|| sentence.into(), |more| format!("{sentence} ({more})"));
        vec![self.at.to_string().into(), run_status(self.to), self.cause.as_str().into(), told.into()]
    }

    fn name(&self) -> String {
        self.to.to_string()
    }
}

impl Row for RunStep {
    const COLUMNS: &'static [Column] = &[
        column("STEP", 24),
        column("STATUS", 15),
        column("ELEMENTS", 12).optional(2),
        column("DURATION", 8).optional(3),
        column("JOB/RUN", 30),
        column("MESSAGE", 40).cut(18).optional(1),
        wide("KIND", 8),
        wide("UPSTREAM", 20),
        wide("JOIN RULE", 12),
        wide("STARTED", 27),
        wide("FINISHED", 27),
        wide("OUTPUT", 30),
        wide("FILES", 30),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let state = &self.state;
        vec![
            step_title(&self.name, self.section).into(),
            step_status(state.status),
            elements(state),
            run_time(look, state.started_at, state.finished_at),
            job_or_run(state),
            message(look, state).into(),
            kind(self.kind).into(),
            joined(&self.needs),
            variant_name(&self.join).into(),
            exactly_wide(state.started_at),
            exactly_wide(state.finished_at),
            output(state),
            state.files.as_ref().map(|files| short(&files.to_string(), VALUE_CHARS_MAX)).into(),
        ]
    }

    fn name(&self) -> String {
        escape(&self.name)
    }
}

fn exactly_wide(at: Option<Timestamp>) -> Cell {
    at.map(|at| at.to_string()).into()
}

fn output(state: &RunStepState) -> Cell {
    state.output.as_ref().map(|output| short(&output.to_string(), VALUE_CHARS_MAX)).into()
}

/// Formats the job or the called run of a step or an element.
fn job_or_run(state: &RunStepState) -> Cell {
    let job = state.job_id.map(|id| id.to_string());
    job.or_else(|| state.called_run_id.map(|id| id.to_string())).into()
}

/// Formats the progress of the elements of a step: `37/100, 2 failed`; `None` for a step without elements.
pub(crate) fn elements_progress(state: &RunStepState) -> Option<String> {
    let total = state.total?;
    let Some(counts) = state.element_counts else { return Some(format!("of {total}")) };
    let ended = format!("{}/{total}", counts.succeeded + counts.failed);
    Some(if counts.failed > 0 { format!("{ended}, {} failed", counts.failed) } else { ended })
}

fn elements(state: &RunStepState) -> Cell {
    let bad = state.element_counts.is_some_and(|counts| counts.failed > 0);
    elements_progress(state).map(|text| Cell::new(text, if bad { Tone::Bad } else { Tone::Plain })).into()
}

/// Formats the message of a step or an element: what its status does not tell, such as the user who approved it, the
/// error, or the time until which it waits. `None` if there is nothing to add.
pub(crate) fn message(look: &OutputOptions, state: &RunStepState) -> Option<String> {
    let usual = [
        StepCause::UpstreamEnded,
        StepCause::JobSucceeded,
        StepCause::RunSucceeded,
        StepCause::ElementsSucceeded,
        StepCause::TimeReached,
        StepCause::EventReceived,
    ];
    let cause = state.cause.filter(|cause| !usual.contains(cause));
    if let Some(decision) = &state.decision {
        let note = decision.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        let what = match state.cause {
            Some(StepCause::Approved) => "approved",
            Some(StepCause::Rejected) => "rejected",
            Some(StepCause::Marked) => "marked",
            _ => "event sent",
        };
        return Some(format!("{what} by {}{note}", decision.by));
    }
    if state.status == StepStatus::Waiting {
        return state.wake_at.map(|at| format!("waits until {}", exact(look, at)));
    }
    let told = state.message.clone().or_else(|| cause.map(|cause| cause.sentence().to_owned()));
    let late = state.late_workers.as_ref().map(late_workers);
    told.into_iter().chain(late).reduce(|told, late| format!("{told}; {late}"))
}

/// Formats the workers that became ready after the step had started: `late workers: w5, w6`.
fn late_workers(late: &LateWorkers) -> String {
    let names = short(&late.names.join(", "), VALUE_CHARS_MAX);
    match late.count as usize - late.names.len().min(late.count as usize) {
        0 => format!("late workers: {names}"),
        more => format!("late workers: {names} and {more} more"),
    }
}

/// Maximum number of characters of an element in a table.
const ELEMENT_CHARS_MAX: usize = 40;

impl Row for RunElement {
    const COLUMNS: &'static [Column] = &[
        column("INDEX", 6),
        column("ELEMENT", 20).cut(10),
        column("STATUS", 9),
        column("DURATION", 8).optional(2),
        column("ATTEMPTS", 8).optional(3),
        column("JOB/RUN", 30),
        column("MESSAGE", 40).cut(16).optional(1),
        wide("WORKER", 30),
        wide("STARTED", 27),
        wide("FINISHED", 27),
        wide("OUTPUT", 30),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let state = &self.state;
        vec![
            self.index.to_string().into(),
            self.value.as_deref().map(|value| short(&escape(value), ELEMENT_CHARS_MAX)).into(),
            step_status(state.status),
            run_time(look, state.started_at, state.finished_at),
            self.executions.map(|count| count.to_string()).into(),
            job_or_run(state),
            message(look, state).into(),
            self.worker_id.map(|worker| worker.to_string()).into(),
            exactly_wide(state.started_at),
            exactly_wide(state.finished_at),
            output(state),
        ]
    }

    fn name(&self) -> String {
        self.index.to_string()
    }
}

impl Row for EventDelivery {
    const COLUMNS: &'static [Column] = &[column("STEPS", 6)];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        vec![self.steps.to_string().into()]
    }

    fn name(&self) -> String {
        self.steps.to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::output::{Format, list, one};

    const RUN: &str = "run_01k9zq3m6c0000000000000000";
    const JOB: &str = "job_01k9zq3m6c0000000000000000";

    fn look(format: Format) -> OutputOptions {
        OutputOptions { format, color: false, now: "2026-11-21T08:10:00Z".parse().unwrap(), width: None }
    }

    fn with(mut value: Value, changes: &Value) -> Value {
        for (key, change) in changes.as_object().unwrap() {
            value[key] = change.clone();
        }
        value
    }

    fn run(changes: &Value) -> WorkflowRun {
        let run = json!({
            "id": RUN, "workflow_id": "wfl_01k9zq3m6c0000000000000000", "workflow": "nightly", "namespace": "pay",
            "generation": 3, "number": 41, "status": "running", "section": "steps", "version": 9,
            "created_at": "2026-11-21T08:00:00Z", "started_at": "2026-11-21T08:00:01Z",
            "updated_at": "2026-11-21T08:05:00Z", "parameters": {"day": "2026-11-21", "regions": ["eu", "cn"]},
            "actor": "ann", "steps": {"pending": 2, "running": 1, "waiting": 1, "succeeded": 3, "failed": 1},
        });
        serde_json::from_value(with(run, changes)).unwrap()
    }

    fn step(number: u32, name: &str, changes: &Value) -> RunStep {
        let step = json!({
            "name": name, "number": number, "section": "steps", "kind": "job", "join": "all_success",
            "for_each": false, "status": "pending",
        });
        serde_json::from_value(with(step, changes)).unwrap()
    }

    fn steps() -> Vec<RunStep> {
        let (began, ended) = ("2026-11-21T08:00:01Z", "2026-11-21T08:03:00Z");
        let decision = |note: &str| json!({"at": ended, "by": "ann", "note": note});
        vec![
            step(
                0,
                "extract",
                &json!({"status": "succeeded", "cause": "job_succeeded", "job_id": JOB,
                "started_at": began, "finished_at": ended, "output": {"file": "a.csv"}}),
            ),
            step(
                1,
                "load",
                &json!({"status": "running", "cause": "upstream_ended", "started_at": ended, "for_each": true,
                "total": 100, "element_counts": {"succeeded": 36, "failed": 1}, "needs": ["extract"]}),
            ),
            step(
                2,
                "gate",
                &json!({"status": "waiting", "cause": "upstream_ended", "kind": "approval",
                "started_at": ended, "wake_at": "2026-11-21T09:00:00Z"}),
            ),
            step(
                3,
                "signed",
                &json!({"status": "succeeded", "cause": "approved", "kind": "approval",
                "started_at": began, "finished_at": ended, "decision": decision("tested")}),
            ),
            step(
                4,
                "check",
                &json!({"status": "failed", "cause": "job_failed", "job_id": JOB, "started_at": began,
                "finished_at": ended, "message": "exited with 3\u{1b}"}),
            ),
            step(
                5,
                "publish",
                &json!({"status": "upstream_failed", "cause": "join_rule", "finished_at": ended}),
            ),
            step(
                6,
                "by-hand",
                &json!({"status": "skipped", "cause": "marked", "decision": decision("not today")}),
            ),
            step(
                7,
                "nested",
                &json!({"status": "succeeded", "cause": "run_succeeded", "kind": "workflow",
                "called_run_id": RUN, "started_at": began, "finished_at": ended}),
            ),
            step(8, "clean", &json!({"section": "finally"})),
        ]
    }

    #[test]
    fn runs_as_tables() {
        let ended = json!({"status": "failed", "finished_at": "2026-11-21T08:05:00Z", "note": "by hand",
            "retry_of": RUN});
        let called = json!({"workflow_id": null, "number": 0, "generation": 0, "status": "succeeded",
            "caller": {"run": RUN, "step": 7}, "steps": {"succeeded": 2}});
        let runs = [run(&json!({})), run(&ended), run(&called)];
        insta::assert_snapshot!("runs_table", list(&look(Format::Table), &runs).unwrap());
        insta::assert_snapshot!("runs_wide", list(&look(Format::Wide), &runs).unwrap());
    }

    #[test]
    fn steps_as_tables() {
        insta::assert_snapshot!("steps_table", list(&look(Format::Table), &steps()).unwrap());
        insta::assert_snapshot!("steps_wide", list(&look(Format::Wide), &steps()[..2]).unwrap());
        let elements: Vec<RunElement> = serde_json::from_value(json!([
            {"index": 0, "status": "succeeded", "cause": "job_succeeded", "job_id": JOB, "output": {"rows": 7}},
            {"index": 4, "status": "failed", "cause": "job_failed", "job_id": JOB, "message": "signal 9"},
        ]))
        .unwrap();
        insta::assert_snapshot!("elements_table", list(&look(Format::Table), &elements).unwrap());
    }

    #[test]
    fn the_page_of_a_run_has_its_steps_and_programs_get_the_run() {
        let whole = run(&json!({
            "status": "paused", "note": "again", "priority": 90, "retry_of": RUN, "output": {"rows": 7},
            "pause": {"at": "2026-11-21T08:04:00Z", "by": "ann", "note": "wait"},
            "history": [
                {"at": "2026-11-21T08:00:00Z", "to": "running", "cause": "started", "detail": "ann"},
                {"at": "2026-11-21T08:04:00Z", "from": "running", "to": "paused", "cause": "pause_requested", "detail": "ann"},
            ],
        }));
        let page = RunPage { run: whole.clone(), steps: steps() };
        insta::assert_snapshot!("run_page", one(&look(Format::Table), &page).unwrap());
        insta::assert_snapshot!("run_page_wide", one(&look(Format::Wide), &page).unwrap());
        let json = one(&look(Format::Json), &page).unwrap();
        assert_eq!(serde_json::from_str::<WorkflowRun>(&json).unwrap(), whole);
    }

    /// C2. The page of a run shows the number of its attempt, and the start time of the next one.
    #[test]
    fn run_page_shows_the_attempt() {
        let told = |changes: &Value| {
            let page = RunPage { run: run(changes), steps: Vec::new() };
            let text = one(&look(Format::Table), &page).unwrap();
            text.lines()
                .filter(|line| line.starts_with("Status") || line.starts_with("Attempt"))
                .collect::<Vec<_>>()
                .join("\n")
        };
        let at = "2026-11-21T08:15:00Z";
        let waits = json!({"status": "retrying", "attempt": {"number": 2, "max": 3, "next_at": at}});
        insta::assert_snapshot!(told(&waits), @"
        Status:     retrying
        Attempt:    2 of 3, starts at 2026-11-21T08:15:00Z (in 5m)
        ");
        let paused = json!({"status": "paused", "attempt": {"number": 2, "max": 3, "next_at": at}});
        insta::assert_snapshot!(told(&paused), @"
        Status:     paused
        Attempt:    2 of 3, starts when the run is resumed
        ");
        let goes_on = json!({"attempt": {"number": 2, "max": 3, "started_at": at}});
        insta::assert_snapshot!(told(&goes_on), @"
        Status:     running
        Attempt:    2 of 3, started at 2026-11-21T08:15:00Z (in 5m)
        ");
        insta::assert_snapshot!(told(&json!({"attempt": {"number": 1, "max": 3}})), @"
        Status:     running
        Attempt:    1 of 3
        ");
    }

    /// The page shows at most [`STEPS_MAX`] steps, and failed steps are among them.
    #[test]
    fn failed_steps_are_shown_among_many() {
        let count = u32::try_from(STEPS_MAX).unwrap();
        let mut steps: Vec<_> =
            (0..2 * count).map(|i| step(i, &format!("s{i}"), &json!({"status": "succeeded"}))).collect();
        steps.push(step(2 * count, "last", &json!({"status": "failed"})));
        let page = RunPage { run: run(&json!({})), steps };
        let text = one(&look(Format::Table), &page).unwrap();
        assert!(text.contains("\nlast ") && text.contains("\ns0 ") && !text.contains("\ns100 "), "{text}");
        assert!(
            text.ends_with(&format!("… and 61 more steps: run `belfry run steps {RUN}` to list all steps\n")),
            "{text}"
        );
    }
}
