//! `belfry workflow`: applies, lists, shows, starts, plans and deletes workflows.
//!
//! - `parameters`: parses the parameters of a run from options and a file.

pub(super) mod parameters;

use client::{WorkflowFilter, WorkflowRef};
use model::WorkflowId;
use model::api::{StartRun, Workflow};

use super::{Context, Namespace, apply, for_each_item, note_truncated, read_items, runs};
use crate::args::spec::Pair;
use crate::args::workflow::{PlanArgs, StartArgs, WorkflowCommand, WorkflowGetArgs, WorkflowListArgs};
use crate::failure::Failure;
use crate::output::text::escape;
use crate::output::{Output, document, workflows};

pub(super) async fn run(context: &Context, command: WorkflowCommand) -> Result<(), Failure> {
    match command {
        WorkflowCommand::Apply(args) => apply::run_kind(context, args, "workflow").await,
        WorkflowCommand::List(args) => list(context, args).await,
        WorkflowCommand::Get(args) => get(context, args).await,
        WorkflowCommand::Start(args) => start(context, *args).await,
        WorkflowCommand::Plan(args) => plan(context, &args).await,
        WorkflowCommand::Delete(args) => {
            let (client, namespace) = context.connect()?;
            let all = named(&namespace, args.workflows)?;
            for_each_item(context.out, all, async |workflow| {
                client.delete_workflow(&workflow, None).await?;
                context.out.note(format!("deleted workflow {}", workflow.name));
                Ok(())
            })
            .await
            .1
        }
    }
}

/// Writes the warnings about workflows that were accepted.
pub(super) fn warn<'a>(
    out: Output,
    workflows: impl IntoIterator<Item = (&'a String, &'a Vec<model::api::Warning>)>,
) {
    for (name, warnings) in workflows {
        for warning in warnings {
            out.warn(format!("workflow `{}`: {}", escape(name), escape(&warning.message)));
        }
    }
}

fn named(namespace: &Namespace, names: Vec<String>) -> Result<Vec<WorkflowRef>, Failure> {
    names.into_iter().map(|name| one(namespace, name)).collect()
}

fn one(namespace: &Namespace, name: String) -> Result<WorkflowRef, Failure> {
    let namespace = match name.parse::<WorkflowId>() {
        Ok(_) => None,
        Err(_) => Some(namespace.one()?.to_owned()),
    };
    Ok(WorkflowRef { name, namespace })
}

async fn list(context: &Context, args: WorkflowListArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let filter = WorkflowFilter {
        owner: args.owner,
        namespace: namespace.filter(),
        text: args.text,
        labels: args.labels.into_iter().map(|Pair(key, value)| (key, value)).collect(),
        runs: Some(1),
    };
    let (found, more) = read_items(client.workflows(filter), &args.many).await?;
    context.out.list(&found, "workflows")?;
    note_truncated(context.out, more, &args.many);
    Ok(())
}

async fn get(context: &Context, args: WorkflowGetArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let all = named(&namespace, args.workflows)?;
    let generation = args.generation;
    if let [one] = all.as_slice() {
        let workflow = client.workflow(one, generation).await?;
        return if args.definition { definition(context, &workflow) } else { context.out.one(&workflow) };
    }
    let (found, result) =
        for_each_item(context.out, all, async |one| Ok(client.workflow(&one, generation).await?)).await;
    if !args.definition {
        return context.out.list(&found, "workflows").and(result);
    }
    for (i, workflow) in found.iter().enumerate() {
        if i > 0 {
            context.out.data("---\n")?;
        }
        definition(context, workflow)?;
    }
    result
}

fn definition(context: &Context, workflow: &Workflow) -> Result<(), Failure> {
    let text = document(&context.out.look, "workflow", &workflow.spec.as_deref())?;
    context.out.data(text)
}

async fn start(context: &Context, args: StartArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let workflow = one(&namespace, args.workflow)?;
    let how = StartRun {
        parameters: parameters::read(&client, &workflow, &args.parameters).await?,
        priority: args.priority,
        note: args.note,
    };
    let run = match &args.idempotency_key {
        Some(key) => client.start_run_once(&workflow, &how, key).await?,
        None => client.start_run(&workflow, &how).await?,
    };
    runs::after_start(context, &client, &run, &args.waiting).await
}

async fn plan(context: &Context, args: &PlanArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let workflow = one(&namespace, args.workflow.clone())?;
    let parameters = parameters::read(&client, &workflow, &args.parameters).await?;
    let plan = client.plan_run(&workflow, &StartRun { parameters, ..StartRun::default() }).await?;
    context.out.data(workflows::plan(&context.out.look, &plan)?)
}
