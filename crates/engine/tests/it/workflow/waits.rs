//! Waiting steps: for a time, an event, or an approval.

use engine::WorkflowRequest;
use model::run::RunStatus;
use model::why::StepReason;
use model::workflow::{Action, Approval, EventWait, OnTimeout, Parameter, ParameterType, StepSpec, Wait};
use model::{Duration, Refusal, RunId, StepStatus, WorkflowSpec};
use serde_json::json;

use super::{act, env, job};
use crate::scenario::Scenario;

fn approval(approvers: &[&str]) -> StepSpec {
    let approvers = approvers.iter().map(|&name| name.to_owned()).collect();
    act("ask", &[], Action::Approval(Approval { approvers, ..Approval::default() }))
}

fn event() -> StepSpec {
    let event = EventWait { name: "paid".into(), on_timeout: OnTimeout::Fail };
    act("paid", &["a"], Action::Wait(Wait::Event(event)))
}

fn decide(run: RunId, approve: bool) -> WorkflowRequest {
    WorkflowRequest::Decide { run, step: "ask".into(), approve, note: Some("looks good".into()) }
}

fn pay(run: RunId, payload: &serde_json::Value) -> WorkflowRequest {
    WorkflowRequest::Event { run, event: "paid".into(), payload: payload.to_string().into() }
}

/// C2. A release waits for a permitted approver, and the next step gets the name of the approver.
#[test]
fn approval_waits_for_a_permitted_approver() {
    let mut t = Scenario::with_room();
    let mut deploy = job("deploy", &["ask"]);
    *env(&mut deploy, "BY") = "${{ steps.ask.output.by }}: ${{ steps.ask.output.note }}".into();
    let run = t.run(&WorkflowSpec::new("release", vec![approval(&["bob"]), deploy]));
    let why = t.why_step(run, "ask");
    assert_eq!(why, [StepReason::Approval { approvers: vec!["bob".into()], message: None, until: None }]);
    let refusal = t.ask_by("alice", decide(run, true)).unwrap_err();
    insta::assert_snapshot!(refusal, @"step `ask` can be approved or rejected only by bob");
    t.restart();
    t.rejoin_all();
    t.ask_by("bob", decide(run, true)).unwrap();
    assert_eq!(t.env_of(t.job_of(run, "deploy"), "BY"), "bob: looks good");
    let again = t.ask_by("bob", decide(run, false)).unwrap_err();
    assert!(matches!(again, Refusal::StepEnded { status: StepStatus::Succeeded, .. }));
}

/// C2. Approvers see what they approve, and a parameter can name them: other users cannot approve then. A
/// parameter without names does not allow every user to approve.
#[test]
fn approval_evaluates_its_references() {
    let mut t = Scenario::with_room();
    let ask = Approval {
        approvers: vec!["${{ params.lead }}".into(), "${{ params.others }}".into()],
        message: Some("release ${{ steps.build.output.image }}?".into()),
        on_timeout: OnTimeout::Fail,
    };
    let mut spec =
        WorkflowSpec::new("w", vec![job("build", &[]), act("ask", &["build"], Action::Approval(ask))]);
    spec.parameters.insert("lead".into(), Parameter::new(ParameterType::String, Some(json!("bob"))));
    spec.parameters
        .insert("others".into(), Parameter::new(ParameterType::Array, Some(json!(["ann", "bob"]))));
    let workflow = t.apply(&spec);
    let start = t.new_run(workflow, &[], &json!({}));
    let run = t.start_with(start);
    t.give(t.job_of(run, "build"), &json!({"image": "app:1.4.2"}));
    let (message, approvers) =
        (Some("release app:1.4.2?".to_owned()), vec!["bob".to_owned(), "ann".to_owned()]);
    let why = t.why_step(run, "ask");
    assert_eq!(why, [StepReason::Approval { approvers, message, until: None }]);
    assert!(matches!(t.ask_by("alice", decide(run, true)), Err(Refusal::NotApprover { .. })));
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    assert!(matches!(t.ask_by("alice", decide(run, true)), Err(Refusal::NotApprover { .. })));
    t.ask_by("ann", decide(run, true)).unwrap();

    let start = t.new_run(workflow, &[], &json!({"lead": ""}));
    let nobody = t.start_with(start);
    t.give(t.job_of(nobody, "build"), &json!({"image": "app:1.4.2"}));
    let row = t.row(nobody, "ask").unwrap();
    insta::assert_snapshot!(row.message.as_deref().unwrap(), @"approval.approvers[0]: expected names of 1 to 128 bytes");
}

/// C2.
#[test]
fn a_rejection_fails_the_step() {
    let mut t = Scenario::with_room();
    let run = t.run(&WorkflowSpec::new("release", vec![approval(&[]), job("deploy", &["ask"])]));
    t.ask_for(decide(run, false)).unwrap();
    insta::assert_snapshot!(t.steps(run), @"ask failed (rejected), deploy upstream_failed (join_rule)");
    assert_eq!(t.row(run, "ask").unwrap().decision.as_ref().unwrap().by.as_ref(), "alice");
}

/// C2. The workflow decides the outcome of an approval that is not given in time.
#[test]
fn approval_timeout_follows_the_workflow() {
    for (on_timeout, expected) in [
        (OnTimeout::Fail, StepStatus::Failed),
        (OnTimeout::Succeed, StepStatus::Succeeded),
        (OnTimeout::Skip, StepStatus::Skipped),
    ] {
        let mut t = Scenario::with_room();
        let approval = Approval { on_timeout, ..Approval::default() };
        let step = StepSpec {
            timeout: Some(Duration::from_secs(60)),
            ..act("ask", &[], Action::Approval(approval))
        };
        let run = t.run(&WorkflowSpec::new("release", vec![step]));
        t.outage(Duration::from_secs(59));
        assert_eq!(t.step(run, "ask"), StepStatus::Waiting);
        t.pass(1);
        assert_eq!(t.step(run, "ask"), expected);
    }
}

/// C2. A wait ends at its time, also if no server was running then.
#[test]
fn wait_ends_at_its_time() {
    let mut t = Scenario::with_room();
    let nap = act("nap", &[], Action::Wait(Wait::For(Duration::from_secs(30))));
    let until = act("until", &[], Action::Wait(Wait::Until("2026-11-21T08:00:20Z".into())));
    let past = act("past", &[], Action::Wait(Wait::Until("2020-01-01T00:00:00Z".into())));
    let run = t.run(&WorkflowSpec::new("w", vec![nap, until, past]));
    assert_eq!(t.step(run, "past"), StepStatus::Succeeded);
    t.pass(21);
    assert_eq!((t.step(run, "until"), t.step(run, "nap")), (StepStatus::Succeeded, StepStatus::Waiting));
    t.outage(Duration::from_secs(60));
    insta::assert_snapshot!(t.steps(run), @"nap succeeded (time_reached), until succeeded (time_reached), past succeeded (time_reached)");
    assert_eq!(t.status_of_run(run), RunStatus::Succeeded);
}

/// C2. A timeout that is shorter than the wait ends it.
#[test]
fn a_wait_that_is_longer_than_its_timeout_fails() {
    let mut t = Scenario::with_room();
    let nap = act("nap", &[], Action::Wait(Wait::For(Duration::from_secs(30))));
    let run = t.run(&WorkflowSpec::new("w", vec![StepSpec { timeout: Some(Duration::from_secs(5)), ..nap }]));
    t.pass(6);
    insta::assert_snapshot!(t.steps(run), @"nap failed (timed_out)");
}

/// C2. An event ends the wait for it, and its payload is the output of the step.
#[test]
fn an_event_ends_the_wait_for_it() {
    let mut t = Scenario::with_room();
    let mut ship = job("ship", &["paid"]);
    *env(&mut ship, "AMOUNT") = "${{ steps.paid.output.amount }}".into();
    let run = t.run(&WorkflowSpec::new("w", vec![job("a", &[]), event(), ship]));
    t.succeed_step(run, "a");
    t.ask_for(pay(run, &json!({"amount": 7}))).unwrap();
    assert_eq!(t.env_of(t.job_of(run, "ship"), "AMOUNT"), "7");
    let late = t.ask_for(pay(run, &json!({}))).unwrap_err();
    assert!(matches!(late, Refusal::EventNotAwaited { .. }));
}

/// C2. An early event is kept; the first one counts.
#[test]
fn an_event_that_comes_early_is_kept() {
    let mut t = Scenario::with_room();
    let run = t.run(&WorkflowSpec::new("w", vec![job("a", &[]), event()]));
    t.ask_for(pay(run, &json!({"amount": 7}))).unwrap();
    assert!(t.ask_for(pay(run, &json!({"amount": 8}))).is_err());
    assert_eq!(t.step(run, "paid"), StepStatus::Pending);
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    t.succeed_step(run, "a");
    insta::assert_snapshot!(t.steps(run), @"a succeeded (job_succeeded), paid succeeded (event_received)");
    assert_eq!(t.row(run, "paid").unwrap().output.as_deref(), Some(r#"{"amount":7}"#));
}

/// C2. An event concerns only the given run, and only the steps that wait for it.
#[test]
fn unexpected_event_is_refused_by_name() {
    let mut t = Scenario::with_room();
    let run = t.run(&WorkflowSpec::new("w", vec![job("a", &[])]));
    let refusal = t.ask_for(pay(run, &json!({}))).unwrap_err();
    assert!(refusal.to_string().ends_with("is waiting for event `paid`, and none will"), "{refusal}");
}
