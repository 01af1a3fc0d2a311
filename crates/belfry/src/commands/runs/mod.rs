//! `belfry run`: lists, shows, explains, follows and controls workflow runs.
//!
//! - `follow`: follows a run, and waits for runs.
//! - `actions`: cancel, pause, resume, retry, mark, approve, reject, send an event.
//!
//! `workflow start` and `submit` with several jobs call [`after_start`] for the run that they have started.
//!
//! The stored run does not contain the progress of the elements of a running step; only the leader knows it.
//! `get` and `steps` request it with one additional request (`run why`), if such a step exists. `get --step`
//! builds the list of running elements from the jobs and called runs of the run.
//!
//! # Invariants
//! - Without `--follow` and another output format, a start writes only the run id to standard output, so that scripts
//!   can capture it.
//! - `why` without a step explains at most [`EXPLAINED_MAX`] steps, and reports the number of the other steps.

mod actions;
mod follow;

use std::collections::BTreeMap;
use std::future::ready;

use client::{Client, JobFilter, RunFilter, WorkerFilter};
use futures::TryStreamExt as _;
use model::api::{Job, RunStep, WorkflowRun};
use model::run::ElementCounts;
use model::why::{OpenEnum, StepReason};
use model::{JobStatus, RunId, RunStatus, StepStatus};

pub(super) use self::follow::for_runs;
use super::{Context, for_each_item, note_truncated, read_items};
use crate::args::workflow::{
    ElementsArgs, RunCommand, RunGetArgs, RunListArgs, StepArgs, StepsArgs, WaitingArgs,
};
use crate::failure::Failure;
use crate::output::running_elements::RunningElement;
use crate::output::runs::RunPage;
use crate::output::text::{count, escape};
use crate::output::{Format, step_why};

/// Maximum number of steps that `run why` explains without a step name.
const EXPLAINED_MAX: usize = 10;
/// Maximum number of steps that the server explains in one request.
const EXPLAINED_MOST: usize = 1_000;

pub(super) async fn run(context: &Context, command: RunCommand) -> Result<(), Failure> {
    match command {
        RunCommand::List(args) => list(context, args).await,
        RunCommand::Get(args) => get(context, args).await,
        RunCommand::Steps(args) => steps(context, args).await,
        RunCommand::Elements(args) => elements(context, args).await,
        RunCommand::Why(args) => why(context, args).await,
        RunCommand::Watch(args) => {
            let (client, _) = context.connect()?;
            let id = context.id(&client, args.id)?;
            follow::show(context, &client, id).await.map(drop)
        }
        RunCommand::Wait(args) => {
            let (client, _) = context.connect()?;
            let ids = context.ids(&client, args.ids)?;
            for_runs(context, &client, &ids, args.wait_timeout).await
        }
        RunCommand::Cancel(args) => actions::cancel(context, args).await,
        RunCommand::Pause(args) => actions::pause(context, args).await,
        RunCommand::Resume(args) => actions::resume(context, args.ids).await,
        RunCommand::Retry(args) => actions::retry(context, args).await,
        RunCommand::Mark(args) => actions::mark(context, args).await,
        RunCommand::Approve(args) => actions::decide(context, args, actions::Decision::Approve).await,
        RunCommand::Reject(args) => actions::decide(context, args, actions::Decision::Reject).await,
        RunCommand::Event(args) => actions::event(context, args).await,
    }
}

/// Writes the id of a run that was just started, then waits for the run or follows it if `how` requests that.
pub(super) async fn after_start(
    context: &Context,
    client: &Client,
    run: &WorkflowRun,
    how: &WaitingArgs,
) -> Result<(), Failure> {
    context.created(client, run.id);
    if how.follow {
        context.out.note(format!("started {}", run.id));
        return follow::follow_until_ended(context, client, run.id, how.wait_timeout).await;
    }
    let people = matches!(context.out.look.format, Format::Table | Format::Name);
    match (people, how.wait) {
        // Only the id, also in tables: scripts use `run=$(belfry workflow start …)`.
        (true, _) => context.out.data(format!("{}\n", run.id))?,
        (false, false) => context.out.row(run)?,
        (false, true) => {}
    }
    if !how.wait {
        return Ok(());
    }
    for_runs(context, client, &[run.id], how.wait_timeout).await
}

async fn list(context: &Context, args: RunListArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let filter = RunFilter {
        status: args.status,
        namespace: namespace.filter(),
        workflow: args.workflow,
        text: args.text,
        caller: context.optional_id(&client, args.caller)?,
        schedule: args.schedule,
        backfill: context.optional_id(&client, args.backfill)?,
        created_after: args.after,
        created_before: args.before,
    };
    let (found, more) = read_items(client.runs(filter), &args.many).await?;
    context.out.list(&found, "runs")?;
    note_truncated(context.out, more, &args.many);
    Ok(())
}

async fn get(context: &Context, args: RunGetArgs) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let ids = context.ids(&client, args.ids)?;
    if let Some(step) = &args.step {
        let [id] = ids.as_slice() else {
            return Err(Failure::usage("`--step` requires exactly one run"));
        };
        return context.out.list(&running_elements(&client, *id, step).await?, "running elements");
    }
    if let [id] = ids.as_slice() {
        let run = client.run(*id).await?;
        let people = matches!(context.out.look.format, Format::Table | Format::Wide);
        let steps = if people { steps_of(&client, *id).await? } else { Vec::new() };
        return context.out.one(&RunPage { run, steps });
    }
    let (runs, result) = for_each_item(context.out, ids, async |id| Ok(client.run(id).await?)).await;
    context.out.list(&runs, "runs").and(result)
}

/// Returns the running elements of a step, by index. Costs a scan of all jobs and called runs of the run that
/// have not ended, and of all workers.
async fn running_elements(client: &Client, id: RunId, step: &str) -> Result<Vec<RunningElement>, Failure> {
    let steps = client.run_steps(id).await?.steps;
    let number =
        steps.iter().find(|known| known.name == step).map(|known| known.number).ok_or_else(|| {
            Failure::usage(format!("run {id} has no step `{}`", escape(step)))
                .help(format!("run `belfry run steps {id}` to list all steps"))
        })?;
    let live = JobStatus::ALL.iter().copied().filter(|status| !status.is_final()).collect();
    let jobs = client.jobs(JobFilter { run: Some(id), status: live, ..JobFilter::default() });
    let live = RunStatus::ALL.iter().copied().filter(|status| !status.is_final()).collect();
    let runs = client.runs(RunFilter { caller: Some(id), status: live, ..RunFilter::default() });
    let of_step = |job: &Job| job.step.as_ref().is_some_and(|origin| origin.step == number);
    let jobs: Vec<Job> = jobs.try_filter(|job| ready(of_step(job))).try_collect().await?;
    let names = client.workers(WorkerFilter::default()).map_ok(|worker| (worker.id, worker.name));
    let names = if jobs.is_empty() { BTreeMap::new() } else { names.try_collect().await? };
    let mut live: Vec<_> = jobs.into_iter().map(|job| RunningElement::of_job(job, &names)).collect();
    let called = |run: &WorkflowRun| run.caller.is_some_and(|caller| caller.step == number);
    let runs: Vec<_> = runs.try_filter(|run| ready(called(run))).try_collect().await?;
    live.extend(runs.iter().map(RunningElement::of_run));
    live.sort_by_key(|element| element.index);
    Ok(live)
}

/// Returns the steps of a run, with the progress of the elements of running steps. That costs one more
/// request if such a step exists.
async fn steps_of(client: &Client, id: RunId) -> Result<Vec<RunStep>, Failure> {
    let mut steps = client.run_steps(id).await?.steps;
    let goes_on = |step: &RunStep| {
        step.for_each && step.state.status == StepStatus::Running && step.state.element_counts.is_none()
    };
    if !steps.iter().any(goes_on) {
        return Ok(steps);
    }
    // The request fails if the run has ended meanwhile; then the progress is not needed.
    let told = client.run_why(id, EXPLAINED_MOST).await.map(|why| why.steps).unwrap_or_default();
    let element_counts = |step: &RunStep| {
        let why = told.iter().find(|why| why.step == step.name)?;
        why.reasons.iter().find_map(|reason| match *reason {
            OpenEnum::Known(StepReason::Elements { succeeded, failed, .. }) => {
                Some(ElementCounts { succeeded, failed })
            }
            _ => None,
        })
    };
    for step in steps.iter_mut().filter(|step| goes_on(step)) {
        step.state.element_counts = element_counts(step);
    }
    Ok(steps)
}

async fn steps(context: &Context, args: StepsArgs) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let mut steps = steps_of(&client, context.id(&client, args.id)?).await?;
    steps.retain(|step| args.status.is_empty() || args.status.contains(&step.state.status));
    context.out.list(&steps, "steps")
}

async fn elements(context: &Context, args: ElementsArgs) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let run = context.id(&client, args.id)?;
    let (found, more) = read_items(client.run_elements(run, &args.step, &args.status), &args.many).await?;
    context.out.list(&found, "ended elements")?;
    note_truncated(context.out, more, &args.many);
    Ok(())
}

async fn why(context: &Context, args: StepArgs) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let run = context.id(&client, args.id)?;
    let (all, more) = match args.step {
        Some(step) => (vec![client.step_why(run, &step).await?], 0),
        None => {
            let told = client.run_why(run, EXPLAINED_MAX).await?;
            if let Some(next) = &told.next_attempt {
                let next = step_why::next_attempt(&context.out.look, next);
                context.out.note(format!("{run} failed and waits for {next}"));
            }
            (told.steps, told.more)
        }
    };
    if all.is_empty() {
        context.out.note(format!("all steps have ended: run `belfry run get {run}` for the results"));
        return Ok(());
    }
    context.out.data(step_why::format_steps(&context.out.look, &all)?)?;
    if more > 0 {
        let help = format!("run `belfry run steps {run}` to list all steps");
        context.out.note(format!("… and {}: {help}", count(more as u64, "more step")));
    }
    Ok(())
}
