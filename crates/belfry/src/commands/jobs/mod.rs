//! `belfry job` and `belfry why`: lists, shows, changes, cancels and retries jobs.
//!
//! `job logs` and `job wait` are in `logs` and `wait`, which also serve other commands. Subcommands with several jobs
//! process all of them, also after a failure ([`for_each_item`]).
//!
//! An update is a JSON merge patch: `--patch`, overridden by the options of the job spec ([`update_patch`]).
//! A null in `--patch` reaches the server, which then resets the field. With `--if-version`, the server
//! rejects the update if the job has changed.

mod bulk;

use std::collections::BTreeMap;

use client::{Client, ExecutionFilter, JobFilter};
use futures::TryStreamExt as _;
use model::{JobId, WorkerId};
use serde_json::{Value, json};

use super::{
    Context, for_each_item, logs, note_truncated, read_items, services, submit, wait, watch, workers,
};
use crate::args::job::{CancelArgs, ExecutionsArgs, JobCommand, JobFilterArgs, ListArgs, UpdateArgs};
use crate::args::reference::Reference;
use crate::args::spec::{Pair, Patch};
use crate::failure::Failure;
use crate::output::objects::ExecutionOfJob;
use crate::output::text::escape;

pub(super) async fn run(context: &Context, command: JobCommand) -> Result<(), Failure> {
    match command {
        JobCommand::List(args) => list(context, args).await,
        JobCommand::Get(args) => get(context, args.ids).await,
        JobCommand::Logs(args) => logs::run(context, args).await,
        JobCommand::Why(args) => why(context, args.id).await,
        JobCommand::Watch(args) => watch_job(context, args.id).await,
        JobCommand::Wait(args) => {
            let (client, _) = context.connect()?;
            let ids = context.ids(&client, args.ids)?;
            wait::for_jobs(context, &client, &ids, args.wait_timeout).await
        }
        JobCommand::Events(args) => {
            let (client, _) = context.connect()?;
            let id = context.id(&client, args.id)?;
            context.out.list(&client.job_events(id).await?, "events")
        }
        JobCommand::Executions(args) => executions(context, args).await,
        JobCommand::Update(args) => update(context, *args).await,
        JobCommand::Cancel(args) if args.ids.is_empty() => bulk::cancel(context, args).await,
        JobCommand::Cancel(args) => cancel(context, args).await,
        JobCommand::Retry(args) if args.ids.is_empty() => bulk::retry(context, args.selection).await,
        JobCommand::Retry(args) => {
            let (client, _) = context.connect()?;
            let ids = context.ids(&client, args.ids)?;
            let (done, result) =
                for_each_item(context.out, ids, async |id| Ok(client.retry_job(id).await?)).await;
            if let Some(job) = done.last() {
                context.created(&client, job.id);
            }
            submit::show(context, &done).and(result)
        }
    }
}

async fn list(context: &Context, args: ListArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let filter = filter(context, &client, namespace.filter(), args.filter).await?;
    if args.watch {
        return watch::jobs(context, &client, filter, &args.many).await;
    }
    let (jobs, more) = read_items(client.jobs(filter), &args.many).await?;
    context.out.list(&jobs, "jobs")?;
    note_truncated(context.out, more, &args.many);
    Ok(())
}

pub(super) async fn filter(
    context: &Context,
    client: &Client,
    namespace: Option<String>,
    args: JobFilterArgs,
) -> Result<JobFilter, Failure> {
    let labels: Vec<_> = args.labels.into_iter().map(|Pair(key, value)| (key, value)).collect();
    let unique: BTreeMap<_, _> = labels.iter().cloned().collect();
    if let Some((key, _)) = labels.iter().find(|(key, value)| unique.get(key) != Some(value)) {
        return Err(Failure::usage(format!("`--label` has two values for `{}`", escape(key)))
            .help("no job has both; select each value alone"));
    }
    let service = match args.service {
        Some(name) => Some(services::id(client, namespace.as_deref(), name).await?),
        None => None,
    };
    Ok(JobFilter {
        status: args.status,
        owner: args.owner,
        namespace,
        queue: args.queue,
        name: args.name,
        text: args.text,
        labels,
        worker_id: worker(client, args.worker.as_deref()).await?,
        schedule: args.schedule,
        backfill: context.optional_id(client, args.backfill)?,
        run: context.optional_id(client, args.run)?,
        workflow: args.workflow,
        service,
        created_after: args.after,
        created_before: args.before,
    })
}

async fn worker(client: &Client, named: Option<&str>) -> Result<Option<WorkerId>, Failure> {
    match named {
        Some(named) => workers::find(client, named).await.map(Some),
        None => Ok(None),
    }
}

async fn get(context: &Context, ids: Vec<Reference<JobId>>) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let ids = context.ids(&client, ids)?;
    if let [id] = ids.as_slice() {
        return context.out.one(&client.job(*id).await?);
    }
    let (jobs, result) = for_each_item(context.out, ids, async |id| Ok(client.job(id).await?)).await;
    context.out.list(&jobs, "jobs").and(result)
}

pub(super) async fn why(context: &Context, id: Reference<JobId>) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let told = client.why(context.id(&client, id)?).await?;
    context.out.why(&told)
}

async fn watch_job(context: &Context, id: Reference<JobId>) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let mut changes = client.watch(context.id(&client, id)?);
    let mut first = true;
    while let Some(job) = changes.try_next().await? {
        context.out.item(&job, std::mem::take(&mut first))?;
    }
    Ok(())
}

async fn executions(context: &Context, args: ExecutionsArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let job = context.optional_id(&client, args.id)?;
    if let Some(id) = job {
        // For a missing job, report `not found`, not an empty list.
        client.job(id).await?;
    }
    let filter = ExecutionFilter {
        job_id: job,
        worker_id: worker(&client, args.worker.as_deref()).await?,
        // The id of a job already determines its namespace.
        namespace: namespace.filter().filter(|_| job.is_none()),
        status: args.status,
    };
    let (executions, more) = read_items(client.executions(filter), &args.many).await?;
    if job.is_some() {
        let of_job: Vec<_> = executions.into_iter().map(ExecutionOfJob).collect();
        context.out.list(&of_job, "executions")?;
    } else {
        context.out.list(&executions, "executions")?;
    }
    note_truncated(context.out, more, &args.many);
    Ok(())
}

async fn update(context: &Context, args: UpdateArgs) -> Result<(), Failure> {
    let patch = update_patch(&args)?;
    let (client, _) = context.connect()?;
    let id = context.id(&client, args.id)?;
    context.out.one(&client.update_job(id, &patch, args.if_version).await?)
}

fn update_patch(args: &UpdateArgs) -> Result<Value, Failure> {
    let mut patch = match &args.patch {
        Some(text) => serde_json::from_str(text)
            .map_err(|error| Failure::usage(format!("`--patch` is not valid JSON: {error}")))?,
        None => json!({}),
    };
    let mut flags = Patch::default();
    args.due.patch(&mut flags, jiff::Timestamp::now().into())?;
    args.spec.patch(&mut flags)?;
    // Not `json_patch::merge`: it would drop a null, which the server needs to reset a field.
    overlay(&mut patch, flags.into_value());
    if patch == json!({}) {
        return Err(Failure::usage("nothing to change")
            .help("set a field, for example `belfry job update JOB --priority 90`"));
    }
    Ok(patch)
}

/// Merges the patch `above` into `below`; values of `above` have precedence, and nulls are kept.
fn overlay(below: &mut Value, above: Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (name, value) in above {
                overlay(below.entry(name).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above,
    }
}

async fn cancel(context: &Context, args: CancelArgs) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let (ids, reason) = (context.ids(&client, args.ids)?, args.reason.as_deref());
    let (done, result) =
        for_each_item(context.out, ids, async |id| Ok(client.cancel_job(id, reason).await?)).await;
    if !done.is_empty() {
        context.out.list(&done, "jobs")?;
    }
    if args.wait {
        for job in &done {
            settle(&client, job.id).await?;
        }
    }
    result
}

pub(super) async fn settle(client: &Client, id: JobId) -> Result<(), Failure> {
    client.wait(id).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn patch(line: &[&str]) -> Result<Value, String> {
        let line = ["belfry", "job", "update", "job_01k9zq3m6c0000000000000000"].iter().chain(line);
        let cli = Cli::try_parse_from(line).map_err(|e| e.to_string())?;
        let Command::Job(command) = cli.command else { panic!("not a job") };
        let JobCommand::Update(args) = *command else { panic!("not an update") };
        update_patch(&args).map_err(|f| f.render(false))
    }

    /// An ID beside a filter would look as if both had to match.
    #[test]
    fn jobs_are_named_or_selected_but_not_both() {
        let parse = |line: &str| {
            let line = ["belfry", "job"].into_iter().chain(line.split(' '));
            Cli::try_parse_from(line).map(drop).map_err(|error| error.kind())
        };
        let id = "job_01k9zq3m6c0000000000000000";
        for verb in ["cancel", "retry"] {
            for option in [
                "--status failed",
                "--queue q",
                "--name n",
                "--text t",
                "--owner o",
                "--label a=b",
                "--worker w",
                "--schedule sch_01k9zq3m6c0000000000000000",
                "--backfill @last",
                "--run @last",
                "--workflow w",
                "--service s",
                "--after 1h",
                "--before 1h",
                "--all",
                "--dry-run",
            ] {
                let both = format!("{verb} {id} {option}");
                assert_eq!(parse(&both), Err(clap::error::ErrorKind::ArgumentConflict), "{both}");
                assert_eq!(parse(&format!("{verb} {option}")), Ok(()), "{verb} {option}");
            }
            assert_eq!(parse(&format!("{verb} {id} @last")), Ok(()));
            assert!(parse(&format!("{verb} --text=")).is_err());
        }
    }

    #[test]
    fn an_update_changes_only_what_was_named() {
        assert_eq!(
            patch(&["--priority", "90", "--backoff", "5s"]),
            Ok(json!({"priority": 90, "retry": {"backoff": {"initial": "5s", "delays": null}}}))
        );
        assert!(patch(&[]).unwrap_err().contains("nothing to change"));
    }

    #[test]
    fn a_flag_goes_before_a_patch_and_a_null_in_it_is_sent() {
        assert_eq!(
            patch(&["--patch", r#"{"timeout": null, "priority": 1}"#, "--priority", "90"]),
            Ok(json!({"timeout": null, "priority": 90}))
        );
        assert!(patch(&["--patch", "{"]).unwrap_err().contains("not valid JSON"));
    }
}
