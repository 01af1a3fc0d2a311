//! Property: a run ends once nothing holds it, whatever was requested, in any order and with restarts.
//!
//! `Kind` is a random step: jobs, lists, added elements, calls, approvals, waits and events. `Move` is a
//! random request, end of a job, step of time or restart; it selects among the live runs and jobs by index,
//! and refusals are ignored. `let_it_end` then resumes, approves and sends events until no run is live, or
//! fails after 600 seconds.
//!
//! Two runs of the same workflow are played, so that they also wait for each other's turn. A failed one is
//! retried. `properties` checks outcomes; this module checks only that every run ends, and ends completely.

use engine::WorkflowRequest;
use engine::input::ExecutionEnd;
use model::run::{RetryFrom, carried};
use model::workflow::{
    Action, Approval, Call, Definition, ElementSource, EventWait, FailurePolicy, ForEach, JoinRule,
    OnTimeout, StepSpec, Wait,
};
use model::{Duration, JobId, JobStatus, RunId, RunStatus, StepStatus, WorkflowSpec};
use proptest::prelude::*;
use serde_json::json;

use super::{act, each, job};
use crate::scenario::{Scenario, finished};

/// What a generated step does.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Job,
    Each(u32, Option<u32>),
    Added,
    Call,
    CallEach,
    Approval(Option<u64>),
    Nap(u64),
    Event(Option<u64>),
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => Just(Kind::Job),
        2 => (1u32..5, prop::option::of(1u32..3)).prop_map(|(count, limit)| Kind::Each(count, limit)),
        3 => Just(Kind::Added),
        2 => Just(Kind::Call),
        1 => Just(Kind::CallEach),
        2 => prop::option::of(1u64..20).prop_map(Kind::Approval),
        1 => (1u64..20).prop_map(Kind::Nap),
        2 => prop::option::of(1u64..20).prop_map(Kind::Event),
    ]
}

fn step(place: usize, kind: Kind, needs: &[usize], join: JoinRule) -> StepSpec {
    let needs: Vec<String> = needs.iter().map(|need| format!("s{need}")).collect();
    let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
    let name = format!("s{place}");
    let call = || Action::Workflow(Call { name: "inner".into(), parameters: Default::default() });
    let timeout = |seconds: Option<u64>| seconds.map(Duration::from_secs);
    let on_timeout = OnTimeout::Skip;
    let step = match kind {
        Kind::Job => job(&name, &needs),
        Kind::Each(count, limit) => {
            let mut step = each(&name, &needs, ElementSource::Shards(count));
            if let Some(each) = step.for_each.as_mut() {
                (each.max_parallel, each.max_failed, each.min_succeeded) =
                    (limit, 1, limit.filter(|limit| *limit <= count));
            }
            step
        }
        // The adding steps are generated together with the dependencies.
        Kind::Added => each(&name, &needs, ElementSource::AddedBy(Vec::new())),
        Kind::Call => act(&name, &needs, call()),
        Kind::CallEach => {
            StepSpec { for_each: Some(ForEach::new(ElementSource::Shards(2))), ..act(&name, &needs, call()) }
        }
        Kind::Approval(seconds) => {
            let approval = Approval { on_timeout, ..Approval::default() };
            StepSpec { timeout: timeout(seconds), ..act(&name, &needs, Action::Approval(approval)) }
        }
        Kind::Nap(seconds) => act(&name, &needs, Action::Wait(Wait::For(Duration::from_secs(seconds)))),
        Kind::Event(seconds) => {
            let event = Wait::Event(EventWait { name: "e".into(), on_timeout });
            StepSpec { timeout: timeout(seconds), ..act(&name, &needs, Action::Wait(event)) }
        }
    };
    StepSpec { join: if needs.is_empty() { JoinRule::AllSuccess } else { join }, ..step }
}

/// The called workflow; it waits for a user, too.
fn inner() -> WorkflowSpec {
    let mut spec = WorkflowSpec::new(
        "inner",
        vec![job("x", &[]), step(1, Kind::Approval(Some(9)), &[], JoinRule::AllSuccess)],
    );
    spec.finally = vec![job("tidy", &[])];
    spec
}

/// Makes the dependencies that run jobs the adding steps of a step with added elements.
fn take_adders(step: &mut StepSpec, steps: &[StepSpec]) {
    let Some(ForEach { over: ElementSource::AddedBy(adders), .. }) = &mut step.for_each else { return };
    let runs_jobs =
        |name: &String| steps.iter().any(|step| step.name == *name && matches!(step.action, Action::Job(_)));
    (*adders, step.needs) = step.needs.drain(..).partition(runs_jobs);
    if adders.is_empty() {
        step.for_each = None;
    }
    if step.needs.is_empty() {
        step.join = JoinRule::AllSuccess;
    }
}

#[derive(Debug, Clone)]
enum Move {
    Add(prop::sample::Index, u8, u8),
    End(prop::sample::Index, bool),
    Cancel(prop::sample::Index, bool),
    Pause(prop::sample::Index),
    Resume(prop::sample::Index),
    Mark(prop::sample::Index, prop::sample::Index, StepStatus),
    Decide(prop::sample::Index, prop::sample::Index, bool),
    Event(prop::sample::Index),
    CancelJob(prop::sample::Index),
    Pass(u64),
    Restart,
    Check,
}

fn moves() -> impl Strategy<Value = Move> {
    let one = any::<prop::sample::Index>;
    let marks = prop::sample::select(vec![StepStatus::Succeeded, StepStatus::Failed, StepStatus::Skipped]);
    prop_oneof![
        8 => (one(), 0u8..3, 1u8..4).prop_map(|(i, batch, count)| Move::Add(i, batch, count)),
        12 => (one(), prop::bool::weighted(0.8)).prop_map(|(i, well)| Move::End(i, well)),
        1 => (one(), prop::bool::ANY).prop_map(|(i, skip)| Move::Cancel(i, skip)),
        1 => one().prop_map(Move::Pause),
        2 => one().prop_map(Move::Resume),
        2 => (one(), one(), marks).prop_map(|(i, step, status)| Move::Mark(i, step, status)),
        3 => (one(), one(), prop::bool::weighted(0.8)).prop_map(|(i, step, yes)| Move::Decide(i, step, yes)),
        2 => one().prop_map(Move::Event),
        1 => one().prop_map(Move::CancelJob),
        3 => (1u64..8).prop_map(Move::Pass),
        2 => Just(Move::Restart),
        2 => Just(Move::Check),
    ]
}

struct World {
    t: Scenario,
}

impl World {
    fn live_runs(&self) -> Vec<RunId> {
        let live = self.t.rows.runs.iter().filter(|(_, (_, state))| !state.status.is_final());
        live.map(|(&id, _)| id).collect()
    }

    fn live_jobs(&self) -> Vec<JobId> {
        let live = self.t.rows.jobs.iter().filter(|(_, (_, state))| !state.status.is_final());
        live.map(|(&id, _)| id).collect()
    }

    fn steps_of(&self, run: RunId) -> Vec<String> {
        let definition: &Definition = &self.t.rows.runs[&run].0.definition;
        definition.workflow.all_steps().map(|(_, step)| step.name.clone()).collect()
    }

    fn end(&mut self, job: JobId, well: bool) {
        if self.t.state(job).cancel_requested_at.is_some() && !well {
            self.t.end_with(job, finished(ExecutionEnd::Stopped, None));
        } else if well {
            self.t.give(job, &json!({"n": 1}));
        } else {
            self.t.fail(job, 1);
        }
    }

    /// Adds elements on behalf of the task of a running job to every possible step.
    fn add(&mut self, job: JobId, batch: u8, count: u8) {
        if self.t.status(job) != JobStatus::Running {
            return;
        }
        let Some(origin) = self.t.rows.jobs[&job].0.step.clone() else { return };
        let elements: Vec<_> = (0..count).map(|n| json!({"n": n, "of": batch})).collect();
        for step in self.steps_of(origin.run) {
            let _ = self.t.add(job, Some(&step), &format!("b{batch}"), &elements);
        }
    }

    fn play(&mut self, wanted: &Move) {
        let pick = |index: &prop::sample::Index, runs: &[RunId]| {
            (!runs.is_empty()).then(|| runs[index.index(runs.len())])
        };
        let runs = self.live_runs();
        let jobs = self.live_jobs();
        // A refused request changes nothing; the checks after each flush verify that.
        let request = match wanted {
            Move::End(i, well) => {
                if !jobs.is_empty() {
                    self.end(jobs[i.index(jobs.len())], *well);
                }
                return;
            }
            Move::Add(i, batch, count) => {
                if !jobs.is_empty() {
                    self.add(jobs[i.index(jobs.len())], *batch, *count);
                }
                return;
            }
            Move::CancelJob(i) => {
                if !jobs.is_empty() {
                    let _ = self.t.cancel(jobs[i.index(jobs.len())]);
                }
                return;
            }
            Move::Pass(seconds) => return self.t.pass(*seconds),
            Move::Restart => {
                self.t.restart();
                return self.t.rejoin_all();
            }
            Move::Check => return self.t.check_rebuilt(),
            Move::Cancel(i, skip_finally) => pick(i, &runs).map(|run| WorkflowRequest::Cancel {
                run,
                reason: None,
                skip_finally: *skip_finally,
            }),
            Move::Pause(i) => pick(i, &runs).map(|run| WorkflowRequest::Pause { run, note: None }),
            Move::Resume(i) => pick(i, &runs).map(|run| WorkflowRequest::Resume { run }),
            Move::Mark(i, step, status) => pick(i, &runs).map(|run| {
                let steps = self.steps_of(run);
                let step = steps[step.index(steps.len())].as_str().into();
                WorkflowRequest::Mark { run, step, status: *status, note: None }
            }),
            Move::Decide(i, step, approve) => pick(i, &runs).map(|run| {
                let steps = self.steps_of(run);
                let step = steps[step.index(steps.len())].as_str().into();
                WorkflowRequest::Decide { run, step, approve: *approve, note: None }
            }),
            Move::Event(i) => pick(i, &runs).map(|run| WorkflowRequest::Event {
                run,
                event: "e".into(),
                payload: "{}".into(),
            }),
        };
        if let Some(request) = request {
            let _ = self.t.ask_for(request);
        }
    }

    /// Releases everything that holds a run.
    fn let_it_end(&mut self) {
        for _ in 0..600 {
            if self.live_runs().is_empty() {
                return;
            }
            for run in self.live_runs() {
                let _ = self.t.ask_for(WorkflowRequest::Resume { run });
                let _ =
                    self.t.ask_for(WorkflowRequest::Event { run, event: "e".into(), payload: "1".into() });
                for step in self.steps_of(run) {
                    let step = step.as_str().into();
                    let _ = self.t.ask_for(WorkflowRequest::Decide { run, step, approve: true, note: None });
                }
            }
            for job in self.live_jobs() {
                let still_live = !self.t.status(job).is_final();
                if still_live {
                    let stopping = self.t.state(job).cancel_requested_at.is_some();
                    self.end(job, !stopping);
                }
            }
            self.t.pass(1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// C2, C4, D5, I5, I19, I26, I28. Jobs, lists, calls, approvals, waits and events; ends, cancels, pauses,
    /// marks, decisions and restarts in any order. Every transition is legal, and a rebuilt engine is equal.
    /// Once nothing holds it, every run ends with all of its steps, and so does a retry of it.
    #[test]
    fn every_run_ends_once_nothing_holds_it(
        kinds in prop::collection::vec(
            (kind(), prop::collection::vec(any::<prop::sample::Index>(), 0..3), prop::sample::select(JoinRule::ALL.to_vec())),
            1..7,
        ),
        fast: bool,
        retries in (0u32..3, 0u32..2),
        timeout in prop::option::of(5u64..40),
        limit in prop::option::of(1u32..3),
        turns in prop::option::of(Just(1u32)),
        played in prop::collection::vec(moves(), 0..40),
    ) {
        let mut steps = Vec::new();
        for (place, (kind, needs, join)) in kinds.iter().enumerate() {
            let mut needs: Vec<_> =
                if place == 0 { Vec::new() } else { needs.iter().map(|need| need.index(place)).collect() };
            needs.sort_unstable();
            needs.dedup();
            let mut step = step(place, *kind, &needs, *join);
            take_adders(&mut step, &steps);
            steps.push(step);
        }
        let mut spec = WorkflowSpec::new("outer", steps);
        spec.failure = if fast { FailurePolicy::FailFast } else { FailurePolicy::KeepGoing };
        spec.timeout = timeout.map(Duration::from_secs);
        let mut inner = inner();
        (spec.retry.max_retries, inner.retry.max_retries) = retries;
        (spec.max_parallel_steps, spec.max_parallel_runs) = (limit, turns);
        spec.on_failure = vec![job("alert", &[])];
        spec.finally = vec![job("clean", &[])];
        let mut world = World { t: Scenario::with_room() };
        let workflow = world.t.apply(&spec);
        for _ in 0..2 {
            let new = world.t.new_run(workflow, &[&inner], &json!({}));
            world.t.start_with(new);
        }
        for wanted in &played {
            world.play(wanted);
        }
        world.let_it_end();
        prop_assert_eq!(world.live_runs(), vec![], "runs that never end");
        prop_assert_eq!(world.live_jobs(), vec![]);
        let rows = &world.t.rows;
        for (&run, (head, state)) in &rows.runs {
            let never_began = state.started_at.is_none();
            let ended = rows.steps.iter().filter(|(key, _)| key.run == run && key.item.is_none());
            let ended = ended.filter(|(_, step)| step.status.is_final()).count();
            prop_assert!(never_began || ended == head.definition.workflow.all_steps().count());
        }
        // Retries every run that failed.
        let failed = rows.runs.iter().find(|(_, (head, state))| {
            head.workflow.is_some() && state.status == RunStatus::Failed && state.started_at.is_some()
        });
        if let Some((&run, (head, _))) = failed {
            let mut new = world.t.new_run(workflow, &[&inner], &json!({}));
            let before = carried(&head.definition, &world.t.step_records(run), RetryFrom::Failed);
            new.carried = world.t.takeover(run, before);
            let again = world.t.start_with(new);
            world.t.check_rebuilt();
            world.let_it_end();
            prop_assert!(world.t.status_of_run(again).is_final());
        }
    }
}
