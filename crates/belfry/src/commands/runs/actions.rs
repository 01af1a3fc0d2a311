//! Actions on runs and steps: cancel, pause, resume, retry, mark, approve, reject, send an event.

use client::Client;
use model::api::{CancelRun, FieldError, MarkStep, RetryRun, StepKind, WorkflowRun};
use model::{RunId, StepStatus};
use serde_json::{Map, Value};

use super::super::{Context, for_each_item};
use super::after_start;
use crate::args::reference::Reference;
use crate::args::spec::read_text;
use crate::args::workflow::{DecideArgs, MarkArgs, RunCancelArgs, RunEventArgs, RunPauseArgs, RunRetryArgs};
use crate::failure::Failure;

pub(super) async fn cancel(context: &Context, args: RunCancelArgs) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let how = CancelRun { reason: args.reason, skip_finally: args.skip_finally };
    let ids = context.ids(&client, args.ids)?;
    let (mut done, result) =
        for_each_item(context.out, ids, async |id| Ok(client.cancel_run(id, &how).await?)).await;
    if args.wait {
        for run in &mut done {
            *run = last(&client, run.id).await?;
        }
    }
    show(context, &done).and(result)
}

async fn last(client: &Client, id: RunId) -> Result<WorkflowRun, Failure> {
    use futures::TryStreamExt as _;
    let mut watch = client.watch_run(id);
    while watch.try_next().await?.is_some() {}
    Ok(client.run(id).await?)
}

pub(super) async fn pause(context: &Context, args: RunPauseArgs) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let (ids, note) = (context.ids(&client, args.ids)?, args.note.as_deref());
    let (done, result) =
        for_each_item(context.out, ids, async |id| Ok(client.pause_run(id, note).await?)).await;
    show(context, &done).and(result)
}

pub(super) async fn resume(context: &Context, ids: Vec<Reference<RunId>>) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let ids = context.ids(&client, ids)?;
    let (done, result) = for_each_item(context.out, ids, async |id| Ok(client.resume_run(id).await?)).await;
    show(context, &done).and(result)
}

fn show(context: &Context, done: &[WorkflowRun]) -> Result<(), Failure> {
    match done {
        [] => Ok(()),
        [one] => context.out.row(one),
        all => context.out.list(all, "runs"),
    }
}

pub(super) async fn retry(context: &Context, args: RunRetryArgs) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let how = RetryRun { from: args.from, note: args.note, repeat: args.repeat };
    let run = client.retry_run(context.id(&client, args.id)?, &how).await?;
    after_start(context, &client, &run, &args.waiting).await
}

pub(super) async fn mark(context: &Context, args: MarkArgs) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let what = MarkStep { status: args.status, note: args.note };
    let run = context.id(&client, args.id)?;
    context.out.row(&client.mark_step(run, &args.step, &what).await?)
}

/// Decision about a step that waits for approval.
#[derive(Debug, Clone, Copy)]
pub(super) enum Decision {
    Approve,
    Reject,
}

pub(super) async fn decide(context: &Context, args: DecideArgs, decision: Decision) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let run = context.id(&client, args.id)?;
    let step = match args.step {
        Some(step) => step,
        None => step_awaiting_approval(&client, run).await?,
    };
    let note = args.note.as_deref();
    context.out.row(&match decision {
        Decision::Approve => client.approve_step(run, &step, note).await?,
        Decision::Reject => client.reject_step(run, &step, note).await?,
    })
}

/// Returns the name of the only step that waits for approval. Fails if there is none, or more than one.
async fn step_awaiting_approval(client: &Client, id: RunId) -> Result<String, Failure> {
    let steps = client.run_steps(id).await?.steps;
    let waits = |step: &model::api::RunStep| {
        step.kind == StepKind::Approval && step.state.status == StepStatus::Waiting
    };
    let mut names = steps.into_iter().filter(waits).map(|step| step.name);
    match (names.next(), names.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(Failure::usage(format!("no step of run {id} waits for approval"))
            .help(format!("run `belfry run steps {id}` to list all steps"))),
        (Some(first), Some(second)) => {
            let all: Vec<_> = [first, second].into_iter().chain(names).collect();
            Err(Failure::usage(format!("several steps of run {id} wait for approval: {}", all.join(", ")))
                .help(format!("specify one step, for example `belfry run approve {id} {}`", all[0])))
        }
    }
}

pub(super) async fn event(context: &Context, args: RunEventArgs) -> Result<(), Failure> {
    let payload = payload(&args)?;
    let (client, _) = context.connect()?;
    let run = context.id(&client, args.id)?;
    let taken = client.send_event(run, &args.event, payload.as_ref()).await?;
    context.out.row(&taken)
}

fn payload(args: &RunEventArgs) -> Result<Option<Map<String, Value>>, Failure> {
    let (text, place) = match (&args.payload, &args.file) {
        (Some(text), _) => (text.clone(), "the payload".to_owned()),
        (None, Some(path)) => (read_text(path)?, path.display().to_string()),
        (None, None) => return Ok(None),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        let wrong = FieldError { pointer: String::new(), path: place, detail: error.to_string() };
        Failure::usage("the payload is not a JSON object").fields(vec![wrong])
    })
}
