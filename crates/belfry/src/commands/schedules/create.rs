//! `belfry schedule create`: builds a schedule from options.

use client::WorkflowRef;
use model::schedule::{Action, Jitter};
use model::spec::Run;
use model::workflow::Call;
use model::{JobSpec, ScheduleSpec};
use serde_json::Value;

use super::super::submit::patched;
use super::super::workflows::parameters::of_firing;
use super::super::{Context, Namespace};
use super::{expression, warn, with_carets};
use crate::args::schedule::CreateArgs;
use crate::args::spec::Patch;
use crate::failure::Failure;
use crate::output::document;

pub(super) async fn run(context: &Context, args: CreateArgs) -> Result<(), Failure> {
    if !args.process.is_some() && args.workflow.is_none() {
        return Err(Failure::usage("no command given").help(format!(
            "add a command after `--`, or `--workflow`: `belfry schedule create {} --every 15m -- echo hello`",
            args.schedule
        )));
    }
    let (client, namespace) = context.connect()?;
    let mut spec = spec(&args, &namespace)?;
    if let Action::Workflow(call) = &mut spec.action {
        let workflow = WorkflowRef { name: call.name.clone(), namespace: Some(spec.namespace.clone()) };
        call.parameters = of_firing(&client, &workflow, &args.parameters).await?;
    }
    let pointing = |error: client::Error| with_carets(error.into(), |path| expression(&spec.timing, path));
    if args.dry_run {
        let checked = client.put_schedule_dry_run(&spec).await.map_err(pointing)?;
        let applied = client.apply_schedules(std::slice::from_ref(&spec), true).await?;
        context.out.data(document(&context.out.look, "schedule", &checked)?)?;
        warn(context.out, applied.schedules.iter().map(|applied| (&applied.name, &applied.warnings)));
        return Ok(());
    }
    let created = client.create_schedule(&spec).await.map_err(pointing)?;
    if spec.timing.rules.is_empty() {
        context.out.note(format!(
            "the schedule has no timing: it fires only when you run `belfry schedule trigger {}`",
            spec.name
        ));
    }
    context.out.row(&created)?;
    warn(context.out, [(&created.name, &created.warnings)]);
    Ok(())
}

fn spec(args: &CreateArgs, namespace: &Namespace) -> Result<ScheduleSpec, Failure> {
    let mut patch = Patch::default();
    args.spec.patch(&mut patch)?;
    args.process.patch(&mut patch, Run::PROCESS)?;
    let patch = patch.into_value();
    if args.workflow.is_some() {
        refuse_flags_of_jobs(&patch)?;
    }
    let mut job = patched(&JobSpec::command(Vec::<String>::new()), &patch)?;
    // The start deadline applies to each firing, so it belongs to the schedule, not to the job.
    let start_deadline = job.start_deadline.take();
    let of_namespace = namespace.one()?;
    of_namespace.clone_into(&mut job.namespace);
    let (owner, labels) = (job.owner.clone(), job.labels.clone());
    let action = match &args.workflow {
        Some(name) => Action::Workflow(Call { name: name.clone(), parameters: Default::default() }),
        None => Action::Job(Box::new(job)),
    };
    let mut spec = ScheduleSpec::starting(&args.schedule, args.when.timing(), action);
    of_namespace.clone_into(&mut spec.namespace);
    (spec.owner, spec.labels) = (owner, labels);
    spec.description.clone_from(&args.description);
    spec.start_deadline = start_deadline;
    spec.jitter = args.jitter.map(|max| Jitter { max, spread: Default::default() });
    spec.max_firings = args.max_firings;
    spec.pause_after_failures = args.pause_after_failures;
    spec.guarantee = args.guarantee;
    spec.overlap.policy = args.overlap.unwrap_or_default();
    spec.missed.policy = args.missed.unwrap_or_default();
    spec.fill();
    refuse_replaced_policies(args, &spec)?;
    Ok(spec)
}

/// Rejects a given policy that the guarantee replaces, because it is the default.
fn refuse_replaced_policies(args: &CreateArgs, spec: &ScheduleSpec) -> Result<(), Failure> {
    let delivery = spec.job().map(|job| job.delivery);
    let flag = if args.overlap.is_some_and(|given| given != spec.overlap.policy) {
        "--overlap"
    } else if args.missed.is_some_and(|given| given != spec.missed.policy) {
        "--missed"
    } else if args.spec.delivery.is_some_and(|given| delivery.is_some_and(|delivery| given != delivery)) {
        "--delivery"
    } else {
        return Ok(());
    };
    Err(Failure::usage(format!("`{flag}` contradicts `--guarantee`"))
        .help("omit one of them; `belfry schedule create --help` lists the policies of each guarantee"))
}

/// Rejects job options with `--workflow`, except owner, labels and start deadline: the steps of the workflow define
/// their jobs.
fn refuse_flags_of_jobs(patch: &Value) -> Result<(), Failure> {
    let of_schedules = ["owner", "labels", "start_deadline"];
    let mut of_jobs = patch.as_object().into_iter().flat_map(|patch| patch.keys());
    match of_jobs.find(|key| !of_schedules.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(Failure::usage(format!(
            "`--workflow` cannot be combined with job options, such as the option for `{key}`"
        ))
        .help("the steps of the workflow define their jobs")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::schedule::ScheduleCommand;
    use crate::args::{Cli, Command};

    fn build(line: &[&str]) -> Result<ScheduleSpec, String> {
        let line = ["belfry", "schedule", "create"].iter().chain(line);
        let cli = Cli::try_parse_from(line).map_err(|e| e.to_string())?;
        let Command::Schedule(command) = cli.command else { panic!("not a schedule") };
        let ScheduleCommand::Create(args) = *command else { panic!("not a creation") };
        spec(&args, &Namespace { name: "pay".into(), by_flag: false }).map_err(|f| f.render(false))
    }

    /// B1, B4, B5.
    #[test]
    fn schedule_is_built_from_flags() {
        let spec = build(&[
            "nightly",
            "--cron",
            "0 2 * * *",
            "--every",
            "1d",
            "--at",
            "2026-12-01T09:00",
            "--zone",
            "Asia/Shanghai",
            "--except",
            "belfry.cn-holidays",
            "--overlap",
            "buffer-one",
            "--missed",
            "fire_all",
            "--jitter",
            "5m",
            "--max-firings",
            "9",
            "--pause-after-failures",
            "3",
            "--deadline",
            "1h",
            "--owner",
            "ann",
            "-l",
            "team=pay",
            "--priority",
            "70",
            "--",
            "./report",
            "--all",
        ]);
        insta::assert_snapshot!("every_flag", crate::output::yaml(&spec.unwrap()).unwrap());
    }

    /// B1, C1.
    #[test]
    fn a_schedule_can_start_a_workflow() {
        let spec =
            build(&["nightly", "--every", "1d", "--workflow", "etl", "--owner", "ann", "--deadline", "1h"]);
        let spec = spec.unwrap();
        assert_eq!(spec.workflow().map(|call| call.name.as_str()), Some("etl"));
        assert_eq!((spec.owner.as_deref(), spec.start_deadline.is_some()), (Some("ann"), true));
        for wrong in [
            &["x", "--workflow", "etl", "--", "true"][..],
            &["x", "--workflow", "etl", "--retries", "3"],
            &["x", "-p", "a=1", "--", "true"],
        ] {
            assert!(build(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_word_that_is_no_policy_is_answered_with_those_there_are() {
        let told = build(&["x", "--overlap", "never", "--", "true"]).unwrap_err();
        assert!(told.contains("buffer_one"), "{told}");
    }
}
