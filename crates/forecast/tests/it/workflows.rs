//! Schedules that start workflows.

use forecast::{Note, QualifiedName, RunHistory, Schedule};
use model::workflow::{Action, Approval, Call, EventWait, StepSpec, Wait};
use model::{JobSpec, Millicores, ScheduleSpec, WorkflowSpec};

use crate::scenario::{Build as _, cron, hours, minutes, secs};

fn job(name: &str) -> JobSpec {
    let mut job = JobSpec::command(["true"]);
    job.name = name.into();
    job.resources.cpu = Some(Millicores(1_000));
    job
}

fn plan(steps: Vec<StepSpec>) -> forecast::Plan {
    let mut plan = hours(3).worker("w1", 2);
    plan.workflows.push(WorkflowSpec::new("etl", steps));
    let call = Call { name: "etl".into(), parameters: Default::default() };
    plan.schedules.push(Schedule::from(ScheduleSpec::starting(
        "nightly",
        cron("0 1 * * *"),
        model::schedule::Action::Workflow(call),
    )));
    for name in ["extract", "load", "check"] {
        plan.history.jobs.insert(QualifiedName::new("default", name), RunHistory::steady(minutes(10)));
    }
    plan
}

/// `extract` runs first, then `load` and `check` at the same time: three executions in twenty minutes.
#[test]
fn steps_occupy_workers_in_dependency_order() {
    let answer = plan(vec![
        StepSpec::job("extract", job("extract")),
        StepSpec::job("load", job("load")).needs(["extract"]),
        StepSpec::job("check", job("check")).needs(["extract"]),
    ])
    .answer();
    let summary = &answer.summary;
    assert_eq!((summary.firings, summary.started, summary.succeeded, summary.executions), (1, 1, 1, 3));
    assert_eq!((summary.late, answer.notes.as_slice()), (0, &[][..]));
    assert_eq!((summary.used.cpu * 3.0 * 60.0 * 2.0).round(), 30.0, "CPU minutes");
}

/// The forecast assumes that approvals and events arrive immediately, and adds a note.
#[test]
fn approvals_and_events_arrive_immediately() {
    let event = EventWait { name: "stock".into(), on_timeout: Default::default() };
    let answer = plan(vec![
        StepSpec::new(
            "ask",
            Action::Approval(Approval { approvers: vec!["ann".into()], ..Approval::default() }),
        ),
        StepSpec::new("stock", Action::Wait(Wait::Event(event))).needs(["ask"]),
        StepSpec::new("nap", Action::Wait(Wait::For(minutes(30)))).needs(["stock"]),
        StepSpec::job("load", job("load")).needs(["nap"]),
    ])
    .answer();
    assert_eq!((answer.summary.succeeded, answer.summary.executions), (1, 1));
    assert_eq!(answer.notes, [Note::Answered { approvals: 1, events: 1 }]);
    assert_eq!(answer.schedules[0].latest, minutes(30), "its first task starts after the nap");
}

#[test]
fn a_step_that_refers_to_a_task_output_is_noted() {
    let mut load = job("load");
    let model::spec::Run::Process(process) = &mut load.run else { unreachable!("it runs a process") };
    process.command.push("${{ steps.extract.output.table }}".into());
    let answer =
        plan(vec![StepSpec::job("extract", job("extract")), StepSpec::job("load", load).needs(["extract"])])
            .answer();
    assert_eq!(answer.summary.failed, 1);
    assert!(
        matches!(&answer.notes[..], [Note::StepsWithoutInput { steps: 1, such_as }] if *such_as == ["load"]),
        "{:?}",
        answer.notes
    );
}

#[test]
fn a_missing_workflow_is_not_started() {
    let mut plan = plan(vec![StepSpec::job("extract", job("extract"))]);
    plan.workflows.clear();
    let answer = plan.answer();
    assert_eq!((answer.summary.firings, answer.summary.skipped_in_all()), (0, 1));
}

/// A called run belongs to the firing of its caller.
#[test]
fn a_called_workflow_starts_the_run_that_called_it() {
    let mut plan = plan(vec![StepSpec::new(
        "call",
        Action::Workflow(Call { name: "inner".into(), parameters: Default::default() }),
    )]);
    plan.workflows.push(WorkflowSpec::new("inner", vec![StepSpec::job("load", job("load"))]));
    let answer = plan.answer();
    assert_eq!((answer.summary.started, answer.summary.succeeded), (1, 1));
    assert_eq!(answer.schedules[0].latest, secs(0));
}
