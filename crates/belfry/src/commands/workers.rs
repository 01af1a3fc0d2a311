//! `belfry worker list|get|cordon|uncordon|drain|remove`: manages workers.

use client::{Client, WorkerFilter};
use futures::TryStreamExt as _;
use model::WorkerId;
use model::api::Worker;

use super::{Context, confirm, for_each_item};
use crate::args::serve::{WorkerCommand, WorkerRemoveArgs};
use crate::args::spec::Pair;
use crate::failure::{Exit, Failure};
use crate::output::text::escape;

pub(super) async fn run(context: &Context, command: WorkerCommand) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    match command {
        WorkerCommand::List(args) => {
            let filter = WorkerFilter {
                status: args.status,
                admission: args.admission,
                labels: args.labels.into_iter().map(|Pair(key, value)| (key, value)).collect(),
                text: args.text,
            };
            let workers: Vec<_> = client.workers(filter).try_collect().await?;
            context.out.list(&workers, "workers")
        }
        WorkerCommand::Get(args) => {
            let id = find(&client, &args.worker).await?;
            context.out.one(&client.worker(id).await?)
        }
        WorkerCommand::Cordon(args) => {
            admit(context, args.workers, async |name| Ok(client.cordon(find(&client, &name).await?).await?))
                .await
        }
        WorkerCommand::Uncordon(args) => {
            admit(context, args.workers, async |name| {
                Ok(client.uncordon(find(&client, &name).await?).await?)
            })
            .await
        }
        WorkerCommand::Drain(args) => {
            admit(context, args.workers, async |name| Ok(client.drain(find(&client, &name).await?).await?))
                .await
        }
        WorkerCommand::Remove(args) => remove(context, &client, args).await,
    }
}

async fn admit<F: Future<Output = Result<Worker, Failure>>>(
    context: &Context,
    names: Vec<String>,
    action: impl Fn(String) -> F,
) -> Result<(), Failure> {
    let (workers, result) = for_each_item(context.out, names, action).await;
    if !workers.is_empty() {
        context.out.list(&workers, "workers")?;
    }
    result
}

async fn remove(context: &Context, client: &Client, args: WorkerRemoveArgs) -> Result<(), Failure> {
    if !args.yes {
        let names: Vec<_> = args.workers.iter().map(|w| escape(w)).collect();
        confirm(&format!("remove worker {}", names.join(", ")), "no worker was removed")?;
    }
    let (_, result) = for_each_item(context.out, args.workers, async |name| {
        let id = find(client, &name).await?;
        client.remove_worker(id).await?;
        context.out.note(format!("removed worker {id}"));
        Ok(())
    })
    .await;
    result
}

/// Returns the id of the worker with this id or name. Fails if several workers have the name.
pub(super) async fn find(client: &Client, text: &str) -> Result<WorkerId, Failure> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let mut found = Vec::new();
    let mut workers = client.workers(WorkerFilter::default());
    while let Some(worker) = workers.try_next().await? {
        if worker.name == text {
            found.push(worker.id);
        }
    }
    match found.as_slice() {
        [id] => Ok(*id),
        [] => Err(Failure::message(Exit::NotFound, format!("worker `{text}` does not exist"))
            .help("run `belfry worker list` to list all workers")),
        several => {
            let ids: Vec<_> = several.iter().map(ToString::to_string).collect();
            Err(Failure::usage(format!("{} workers have the name `{text}`", several.len()))
                .help(format!("use one of the IDs: {}", ids.join(", "))))
        }
    }
}
