//! Following a run, and waiting for runs.
//!
//! - [`show`]: writes a row to standard output for each change of a step status, until the run has ended
//!   (`run watch`).
//! - [`follow_until_ended`]: the same, with a timeout and a failure if the run did not succeed, for the option
//!   `--follow` of `workflow start`, `run retry`, and `submit` with several jobs.
//! - [`for_runs`]: waits for several runs without rows (`run wait`, `--wait`, `schedule trigger --wait`). At most
//!   [`WATCHED_MAX`] runs are watched concurrently.
//!
//! On a terminal, a progress line shows how many steps have ended. The progress of the elements of a mapped
//! step is not part of the stored run, so the leader is polled for it every second, but only while the
//! progress line is shown.
//!
//! # Invariants
//! - The exit code is 0 only if all runs succeeded, otherwise 1; 124 after a timeout.
//! - A row is written once per change: the follower remembers the last status of each step.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration as StdDuration;

use client::{Client, RunView};
use futures::{StreamExt as _, TryStreamExt as _};
use model::api::{RunStep, StepKind, WorkflowRun};
use model::run::ElementCounts;
use model::why::{OpenEnum, StepReason};
use model::{Duration, RunId, RunStatus, StepStatus};

use super::super::Context;
use super::super::wait::{WATCHED_MAX, within};
use crate::failure::{Exit, Failure};
use crate::output::Format;
use crate::output::progress::Progress;
use crate::output::runs::{elements_progress, title};
use crate::output::text::escape;

/// Hint after a wait has timed out.
const RUN_CONTINUES_HINT: &str = "the run continues: run `belfry run why RUN` for its waiting reasons, or `belfry run cancel RUN` to cancel it";
/// Interval of polls for the progress of elements.
const ELEMENTS_POLL_INTERVAL: StdDuration = StdDuration::from_secs(1);
/// Maximum number of steps in the progress line, in the report of a failed run, and in a poll for elements.
const STEPS_MAX: usize = 4;

/// Follows a run until it has ended; fails if it did not succeed.
pub(super) async fn follow_until_ended(
    context: &Context,
    client: &Client,
    run: RunId,
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    context.if_interrupted(continues(&[run]));
    let view = within(timeout, RUN_CONTINUES_HINT, show(context, client, run)).await?;
    context.out.note(ended(&view.run, &view.steps.steps));
    outcome([&view.run])
}

/// Note for a user who interrupts the wait for runs.
fn continues(ids: &[RunId]) -> String {
    match ids {
        [id] => format!(
            "the run continues: run `belfry run get {id}` to see it, or `belfry run cancel {id}` to cancel it"
        ),
        ids => format!(
            "the {} runs continue: run `belfry run get RUN` to see one, or `belfry run cancel RUN` to cancel it",
            ids.len()
        ),
    }
}

/// Writes a row for each change of a step until the run has ended, and returns the last state.
pub(super) async fn show(context: &Context, client: &Client, run: RunId) -> Result<RunView, Failure> {
    let mut views = client.watch_run_steps(run);
    let mut follower = Follower::new(context);
    let mut ticks = tokio::time::interval(ELEMENTS_POLL_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = None;
    loop {
        tokio::select! {
            view = views.try_next() => match view? {
                Some(view) => {
                    follower.show(&view)?;
                    last = Some(view);
                }
                None => break,
            },
            _ = ticks.tick(), if follower.progress.is_redrawn() => {
                if let Some(view) = &mut last {
                    poll_elements(client, view).await;
                    follower.progress.set_message(progress_line(view));
                }
            }
        }
    }
    follower.progress.clear();
    last.ok_or_else(|| Failure::message(Exit::Failed, format!("run {run} does not exist")))
}

/// Waits until all runs have ended; fails if one of them did not succeed.
pub(in crate::commands) async fn for_runs(
    context: &Context,
    client: &Client,
    ids: &[RunId],
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    context.if_interrupted(continues(ids));
    let progress = RefCell::new(Progress::new(context.out));
    let told = RefCell::new(BTreeMap::new());
    let last = |id: RunId| {
        let (progress, told) = (&progress, &told);
        let mut watch = client.watch_run(id);
        async move {
            let mut last = None;
            while let Some(run) = watch.try_next().await? {
                let text = sentence(&run);
                // The final status is reported after the wait.
                if !run.status.is_final() && told.borrow().get(&id) != Some(&run.status) {
                    told.borrow_mut().insert(id, run.status);
                    progress.borrow().set_message(text);
                } else if progress.borrow().is_redrawn() {
                    progress.borrow().set_message(text);
                }
                last = Some(run);
            }
            last.ok_or_else(|| Failure::message(Exit::Failed, format!("run {id} does not exist")))
        }
    };
    let all = futures::stream::iter(ids.iter().copied().map(last)).buffered(WATCHED_MAX);
    let runs = within(timeout, RUN_CONTINUES_HINT, all.try_collect::<Vec<_>>()).await;
    progress.borrow().clear();
    let runs = runs?;
    match (context.out.look.format, runs.as_slice()) {
        (Format::Table, all) => {
            for run in all {
                let steps = match run.status {
                    RunStatus::Failed => client.run_steps(run.id).await?.steps,
                    _ => Vec::new(),
                };
                context.out.note(ended(run, &steps));
            }
        }
        (_, [one]) => context.out.row(one)?,
        (_, all) => context.out.list(all, "runs")?,
    }
    outcome(&runs)
}

fn outcome<'a>(runs: impl IntoIterator<Item = &'a WorkflowRun>) -> Result<(), Failure> {
    let bad = runs.into_iter().any(|run| run.status != RunStatus::Succeeded);
    if bad { Err(Failure::silent(Exit::Failed)) } else { Ok(()) }
}

/// Writes changes of steps and the progress line.
struct Follower<'a> {
    context: &'a Context,
    progress: Progress,
    seen: BTreeMap<u32, StepStatus>,
    first: bool,
}

impl<'a> Follower<'a> {
    fn new(context: &'a Context) -> Self {
        Self { context, progress: Progress::new(context.out), seen: BTreeMap::new(), first: true }
    }

    fn show(&mut self, view: &RunView) -> Result<(), Failure> {
        for step in &view.steps.steps {
            let before = self.seen.insert(step.number, step.state.status).unwrap_or(StepStatus::Pending);
            if before == step.state.status {
                continue;
            }
            let first = std::mem::take(&mut self.first);
            self.progress.suspend(|| self.context.out.item(step, first))?;
            if let Some(hint) = hint(view.run.id, step) {
                self.progress.suspend(|| self.context.out.note(hint));
            }
        }
        if self.progress.is_redrawn() {
            self.progress.set_message(progress_line(view));
        }
        Ok(())
    }
}

/// Returns a hint for a step that waits for approval.
fn hint(run: RunId, step: &RunStep) -> Option<String> {
    let waits = step.kind == StepKind::Approval && step.state.status == StepStatus::Waiting;
    let name = escape(&step.name);
    waits.then(|| {
        format!(
            "step {name} waits for approval: run `belfry run approve {run} {name}` or `belfry run reject {run} {name}`"
        )
    })
}

/// Updates the progress of the elements of running steps. Errors are ignored: the old values stay.
async fn poll_elements(client: &Client, view: &mut RunView) {
    let live = view.steps.steps.iter_mut();
    let live = live.filter(|step| step.for_each && step.state.status == StepStatus::Running).take(STEPS_MAX);
    for step in live {
        let Ok(why) = client.step_why(view.run.id, &step.name).await else { continue };
        for reason in why.reasons {
            if let OpenEnum::Known(StepReason::Elements { total, succeeded, failed, .. }) = reason {
                step.state.total = Some(total);
                step.state.element_counts = Some(ElementCounts { succeeded, failed });
            }
        }
    }
}

/// Formats the progress line: `nightly #3 is running: 5 of 12 steps ended; load (37/100), gate`.
fn progress_line(view: &RunView) -> String {
    let live: Vec<_> = view.steps.steps.iter().filter(|step| step.state.status.is_live()).collect();
    let mut told: Vec<_> = live
        .iter()
        .take(STEPS_MAX)
        .map(|step| match elements_progress(&step.state) {
            Some(done) => format!("{} ({done})", escape(&step.name)),
            None => escape(&step.name),
        })
        .collect();
    if live.len() > STEPS_MAX {
        told.push(format!("{} more", live.len() - STEPS_MAX));
    }
    let text = sentence(&view.run);
    if told.is_empty() { text } else { format!("{text}; {}", told.join(", ")) }
}

fn sentence(run: &WorkflowRun) -> String {
    let steps = &run.steps;
    let open = steps.pending + steps.running + steps.waiting;
    let ended = steps.succeeded + steps.failed + steps.upstream_failed + steps.skipped + steps.cancelled;
    let status = match run.status {
        RunStatus::Waiting => "is waiting to start".to_owned(),
        RunStatus::Stopping => "is being stopped".to_owned(),
        RunStatus::Retrying => match &run.attempt {
            Some(attempt) => format!("failed and waits for attempt {} of {}", attempt.number, attempt.max),
            None => "failed and waits for its next attempt".to_owned(),
        },
        live if !live.is_final() => format!("is {live}"),
        ended => ended.to_string(),
    };
    format!("{} {status}: {ended} of {} steps ended", title(run), ended + open)
}

/// Formats the final status of a run, with the steps that made it fail.
fn ended(run: &WorkflowRun, steps: &[RunStep]) -> String {
    let mut text = format!("{} ({}) {}", run.id, title(run), run.status);
    let counts = |name: &str| {
        let spec = run
            .spec
            .as_ref()
            .and_then(|spec| spec.all_steps().map(|(_, step)| step).find(|step| step.name == name));
        spec.is_none_or(|step| !step.continue_on_failure)
    };
    let failed = steps.iter().filter(|step| step.state.status == StepStatus::Failed && counts(&step.name));
    let failed: Vec<_> = failed.collect();
    for step in failed.iter().take(STEPS_MAX) {
        let said = step.state.message.as_deref().or(step.state.cause.map(|cause| cause.sentence()));
        let log = step.state.job_id.map(|job| format!(" (`belfry logs {job}`)"));
        let said = escape(said.unwrap_or("failed"));
        text.push_str(&format!("\n  {}: {said}{}", escape(&step.name), log.unwrap_or_default()));
    }
    if failed.len() > STEPS_MAX {
        text.push_str(&format!(
            "\n  … and {} more: run `belfry run steps {} --status failed` to list all failed steps",
            failed.len() - STEPS_MAX,
            run.id
        ));
    }
    text
}
