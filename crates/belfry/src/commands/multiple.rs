//! `belfry submit` with `--shards`, `--over` or `--on-all-workers`: starts one run of a workflow with one
//! mapped step. The workflow is stored with the run only.

use client::Client;
use model::api::StartDefinition;
use model::workflow::{ForEach, StepSpec};
use model::{JobSpec, WorkflowSpec};

use super::{Context, runs};
use crate::args::job::SubmitArgs;
use crate::args::workflow::WaitingArgs;
use crate::failure::Failure;
use crate::output::document;

/// Name of the only step.
const STEP: &str = "task";

/// Starts the run, and waits for it or follows it if `args` request that.
pub(super) async fn submit(
    context: &Context,
    client: &Client,
    args: &SubmitArgs,
    specs: Vec<JobSpec>,
    each: ForEach,
) -> Result<(), Failure> {
    let (key, how) = definition(specs, each)?;
    if args.dry_run {
        let checked = client.start_definition_dry_run(&how).await?;
        return context.out.data(document(&context.out.look, "workflow", &checked)?);
    }
    let run = client.start_definition(&how, key.as_deref()).await?;
    let SubmitArgs { wait, follow, wait_timeout, .. } = *args;
    runs::after_start(context, client, &run, &WaitingArgs { wait, follow, wait_timeout }).await
}

/// Builds the definition, and returns the idempotency key of the start. Fields that belong to the workflow (key,
/// namespace, owner, labels, retention) are taken from the job.
fn definition(specs: Vec<JobSpec>, each: ForEach) -> Result<(Option<String>, StartDefinition), Failure> {
    let [mut job] = <[JobSpec; 1]>::try_from(specs).map_err(|specs| {
        Failure::usage(format!(
            "`--shards`, `--over` and `--on-all-workers` require a file with one job, but the file has {}",
            specs.len()
        ))
    })?;
    if job.run_at.is_some() {
        return Err(Failure::usage(
            "a scheduled time cannot be combined with `--shards`, `--over` or `--on-all-workers`",
        )
        .help("omit `--at`, `--in` and the field `run_at`, or let a schedule start a workflow"));
    }
    if !job.after.is_empty() {
        return Err(Failure::usage(
            "upstream jobs cannot be combined with `--shards`, `--over` or `--on-all-workers`",
        )
        .help("omit `--after` and the field `after`, or make the steps of a workflow depend on each other"));
    }
    let key = job.idempotency_key.take();
    let mut definition = WorkflowSpec::new(&job.name, Vec::new());
    definition.namespace.clone_from(&job.namespace);
    (definition.owner, definition.labels) = (job.owner.clone(), job.labels.clone());
    definition.retention = job.retention;
    definition.steps = vec![StepSpec { for_each: Some(each), ..StepSpec::job(STEP, job) }];
    let how = StartDefinition { definition, parameters: Default::default(), priority: None, note: None };
    Ok((key, how))
}

#[cfg(test)]
mod tests {
    use model::workflow::ElementSource;

    use super::*;

    /// C3.
    #[test]
    fn many_jobs_are_one_run_of_one_step() {
        let job = JobSpec { idempotency_key: Some("once".into()), ..JobSpec::command(["intake"]) };
        let job = JobSpec { name: "intake".into(), owner: Some("ann".into()), ..job };
        let each = || ForEach::new(ElementSource::Shards(4));
        let (key, how) = definition(vec![job.clone()], each()).unwrap();
        assert_eq!((key.as_deref(), how.definition.name.as_str()), (Some("once"), "intake"));
        assert_eq!(how.definition.owner.as_deref(), Some("ann"));
        let now = "2026-11-21T08:00:00Z".parse().unwrap();
        model::validate::workflow(&how.definition, now).unwrap();
        assert!(definition(vec![job.clone(), job.clone()], each()).is_err());
        assert!(definition(vec![JobSpec { run_at: Some(now), ..job }], each()).is_err());
    }
}
