//! Triggers: runs started by the end of a job or of another workflow.
//!
//! `listens` is a workflow with one step and one trigger. A test ends jobs or runs, and compares the runs
//! that were started (`Scenario::runs_of`) and the ends that started nothing, with their reasons
//! (`Scenario::refusals`).
//!
//! # Invariants
//! - A run is created in the same commit as the end that triggers it.
//! - Each end counts once for each trigger; a trigger with several sources waits for all within its window.
//! - Workflows that trigger each other stop after a bounded number of runs.

use model::record::EventKind;
use model::run::{TriggerRefusalReason, TriggerState};
use model::workflow::{Parameter, ParameterType, TriggerSpec};
use model::{JobId, Refusal, RunId, RunStatus, WorkflowId, WorkflowSpec};
use serde_json::{Value, json};

use super::{env, job};
use crate::scenario::Scenario;

fn triggers(text: Value) -> Vec<TriggerSpec> {
    serde_json::from_value(text).unwrap()
}

/// A workflow with one step and one trigger.
fn listens(name: &str, to: Value) -> WorkflowSpec {
    let mut spec = WorkflowSpec::new(name, vec![job("go", &[])]);
    spec.triggers = triggers(to);
    spec
}

/// The same, with the parameter `n` passed to its step.
fn listens_with(name: &str, to: Value) -> WorkflowSpec {
    let mut spec = listens(name, to);
    "${{ params.n }}".clone_into(env(&mut spec.steps[0], "N"));
    spec.parameters.insert("n".into(), Parameter::new(ParameterType::String, Some(json!("none"))));
    spec
}

impl Scenario {
    /// Returns the runs of a workflow, in order of creation.
    fn runs_of(&self, name: &str) -> Vec<RunId> {
        let own = self.rows.runs.iter().filter(|(_, (head, _))| head.definition.workflow.name == name);
        own.map(|(&id, _)| id).collect()
    }

    fn trigger_state(&self, workflow: WorkflowId, trigger: usize) -> &TriggerState {
        &self.rows.workflows[&workflow].1.triggers[trigger]
    }

    fn named(&mut self, name: &str) -> JobId {
        self.job().spec(|spec| name.clone_into(&mut spec.name)).submit()
    }

    /// Returns `x[0] late (after 2h: …)` for each end that started nothing.
    fn refusals(&self) -> Vec<String> {
        let told = self.rows.events.iter().filter_map(|event| match &event.kind {
            EventKind::NotTriggered { name, trigger, refusal, .. } => {
                let detail = refusal.detail.as_deref().map(|detail| format!(" ({detail})"));
                let (ended, reason) = (&refusal.ended, refusal.reason);
                Some(format!("{name}[{trigger}] {ended}: {reason}{}", detail.unwrap_or_default()))
            }
            _ => None,
        });
        told.collect()
    }
}

/// C1. The run is created in the commit that ends the job, and each refers to the other.
#[test]
fn the_end_of_a_job_starts_a_run() {
    let mut t = Scenario::with_room();
    let given = json!({"n": "${{ trigger.kind }} ${{ trigger.name }} ${{ trigger.status }} ${{ trigger.output.rows }}"});
    let load = t.apply(&listens_with("load", json!([{"job": "import", "parameters": given}])));
    let other = t.named("export");
    t.succeed(other);
    let import = t.named("import");
    t.give(import, &json!({"rows": 7}));
    let [run] = t.runs_of("load")[..] else { panic!("one run is expected") };
    let (head, state) = &t.rows.runs[&run];
    assert_eq!((state.status, &*head.actor), (RunStatus::Running, "job import"));
    let trigger = head.trigger.as_deref().unwrap();
    assert_eq!((trigger.number, trigger.ended[0].job_id), (0, Some(import)));
    assert_eq!(t.state(import).started[..], [run]);
    let known = t.trigger_state(load, 0);
    assert_eq!((known.runs, known.last_run, known.refused), (1, Some(run), 0));
    assert_eq!(t.env_of(t.job_of(run, "go"), "N"), "job import succeeded 7");
    t.check_rebuilt();
}

/// C1. By default only successes trigger; all labels must match.
#[test]
fn trigger_fires_for_matching_ends_only() {
    let mut t = Scenario::with_room();
    t.apply(&listens("well", json!([{"job": "import"}])));
    t.apply(&listens("badly", json!([{"job": "import", "on": "failure"}])));
    t.apply(&listens("any", json!([{"job": "import", "on": "any"}])));
    t.apply(&listens("eu", json!([{"job": "import", "on": "any", "labels": {"region": "eu"}}])));
    let count = |t: &Scenario| ["well", "badly", "any", "eu"].map(|name| t.runs_of(name).len());
    let good = t.named("import");
    t.succeed(good);
    assert_eq!(count(&t), [1, 0, 1, 0]);
    let bad = t.named("import");
    t.fail(bad, 1);
    assert_eq!(count(&t), [1, 1, 2, 0]);
    let eu = t.job().in_seconds(60).spec(|spec| {
        "import".clone_into(&mut spec.name);
        spec.labels.insert("region".into(), "eu".into());
    });
    let eu = eu.submit();
    t.cancel(eu).unwrap();
    assert_eq!(count(&t), [1, 1, 3, 1]);
    // Jobs of steps trigger only through their runs.
    t.apply(&listens("steps", json!([{"job": "well.go", "on": "any"}])));
    let run = t.runs_of("well")[0];
    t.succeed_step(run, "go");
    assert!(t.runs_of("steps").is_empty() && t.refusals().is_empty());
}

/// C1. The end of a called run is the end of a step, not a trigger.
#[test]
fn the_end_of_a_workflow_starts_another() {
    let mut t = Scenario::with_room();
    let mut extract = WorkflowSpec::new("extract", vec![job("one", &[])]);
    extract.outputs.insert("rows".into(), json!("${{ steps.one.output.rows }}"));
    let given = json!({"n": "${{ trigger.output.rows }} of ${{ trigger.id }}"});
    t.apply(&listens_with("load", json!([{"workflow": "extract", "parameters": given}])));
    t.apply(&listens("report", json!([{"workflow": "load"}])));
    let first = t.run(&extract);
    t.give(t.job_of(first, "one"), &json!({"rows": 3}));
    let [load] = t.runs_of("load")[..] else { panic!("one run is expected") };
    assert_eq!(t.run_state(first).started[..], [load]);
    assert_eq!(t.env_of(t.job_of(load, "go"), "N"), format!("3 of {first}"));
    t.succeed_step(load, "go");
    let [report] = t.runs_of("report")[..] else { panic!("one run is expected") };
    let trigger = t.rows.runs[&report].0.trigger.as_deref().unwrap();
    assert_eq!(trigger.chain.join(" "), "extract load");
    t.check_rebuilt();
    let second = t.run(&extract);
    t.fail_step(second, "one");
    assert_eq!(t.runs_of("load").len(), 1);
}

/// C1. The newest end of each source counts, once, and all must lie within the window.
#[test]
fn several_ends_are_joined_within_a_window() {
    let mut t = Scenario::with_room();
    let to = json!([{
        "all": [{"job": "a"}, {"job": "b", "on": "any"}], "window": "1h",
        "parameters": {"n": "${{ trigger.all[0].output }} ${{ trigger.all[1].status }} ${{ trigger.name }}"},
    }]);
    let both = t.apply(&listens_with("both", to));
    let end = |t: &mut Scenario, name: &str, output: u32| {
        let job = t.named(name);
        t.give(job, &json!(output));
        job
    };
    end(&mut t, "a", 1);
    let newest = end(&mut t, "a", 2);
    assert_eq!(t.trigger_state(both, 0).waiting_events.len(), 1);
    t.check_rebuilt();
    t.restart();
    t.rejoin_all();
    let last = end(&mut t, "b", 3);
    let [run] = t.runs_of("both")[..] else { panic!("one run is expected") };
    assert_eq!(t.env_of(t.job_of(run, "go"), "N"), "2 succeeded b");
    let ended = &t.rows.runs[&run].0.trigger.as_deref().unwrap().ended;
    assert_eq!([ended[0].job_id, ended[1].job_id], [Some(newest), Some(last)]);
    assert_eq!((t.state(last).started[..].to_vec(), t.state(newest).started.len()), (vec![run], 0));
    // Each end counts once: the next run waits for both again.
    end(&mut t, "b", 4);
    assert_eq!(t.runs_of("both").len(), 1);
    t.pass(3601);
    end(&mut t, "a", 5);
    assert_eq!(t.runs_of("both").len(), 1);
    insta::assert_snapshot!(t.refusals().join("\n"), @"both[0] job b: outside_window (job a ended more than 1h later)");
    end(&mut t, "b", 6);
    assert_eq!(t.runs_of("both").len(), 2);
    t.check_rebuilt();
}

/// C1. The reason why no run was started is stored with the workflow and emitted as an event.
#[test]
fn end_that_starts_nothing_has_a_reason() {
    let mut t = Scenario::with_room();
    let paused = t.apply(&listens("paused", json!([{"job": "a", "paused": true}])));
    t.apply(&listens("soon", json!([{"job": "a", "within": "1m"}])));
    let given = json!({"n": "${{ trigger.output.missing }}"});
    t.apply(&listens_with("wants", json!([{"job": "a", "parameters": given}])));
    let job = t.named("a");
    t.pass(90);
    t.give(job, &json!({}));
    insta::assert_snapshot!(t.refusals().join("\n"), @"
    paused[0] job a: paused
    soon[0] job a: late (ended after 1m30s: expected at most 1m)
    wants[0] job a: bad_parameters (parameters.n: `trigger.output.missing`: there is no field `missing`)
    ");
    let state = t.trigger_state(paused, 0);
    assert_eq!((state.runs, state.refused), (0, 1));
    assert_eq!(state.last_refusal.as_ref().unwrap().reason, TriggerRefusalReason::Paused);
    assert!(t.state(job).started.is_empty());
    t.check_rebuilt();
}

/// C1. Workflows that trigger each other stop after a bounded number of runs; the reason contains the chain.
#[test]
fn circular_triggers_are_bounded() {
    let mut t = Scenario::with_room();
    let skipped = |name: &str, after: &str| {
        let mut spec = listens(name, json!([{"workflow": after}]));
        spec.steps[0].when = Some("false".into());
        spec
    };
    t.apply(&skipped("ping", "pong"));
    let pong = skipped("pong", "ping");
    t.run(&pong);
    assert_eq!(t.runs_of("ping").len() + t.runs_of("pong").len(), 33);
    let [refusal] = &t.refusals()[..] else { panic!("one end is the last") };
    assert!(
        refusal.starts_with("ping[0] workflow pong: chain_too_long (") && refusal.ends_with("ping → pong)"),
        "{refusal}"
    );
    t.check_rebuilt();
}

/// C1. A trigger with the same sources keeps its ends; a deleted workflow triggers nothing.
#[test]
fn changed_workflow_keeps_its_recorded_ends() {
    let mut t = Scenario::with_room();
    let all = json!({"all": [{"job": "a"}, {"job": "b"}]});
    let id = t.apply(&listens("both", json!([all])));
    let a = t.named("a");
    t.succeed(a);
    t.apply(&listens("both", json!([{"job": "c"}, all])));
    assert_eq!(
        (t.trigger_state(id, 0).waiting_events.len(), t.trigger_state(id, 1).waiting_events.len()),
        (0, 1)
    );
    let b = t.named("b");
    t.succeed(b);
    assert_eq!(t.runs_of("both").len(), 1);
    let deleted: Result<_, Refusal> =
        t.ask_for(engine::WorkflowRequest::Delete { workflow: id, expected_version: None });
    deleted.unwrap();
    let c = t.named("c");
    t.succeed(c);
    assert_eq!(t.runs_of("both").len(), 1);
    t.check_rebuilt();
}
