//! Random workflows, runs and steps.
//!
//! A workflow, the head and state of a run, the states of its steps, and added elements are sampled
//! separately; the rules combine them. Workflow names are unique. Heads of runs share a few definitions,
//! workflows and callers, so that lists by these find several runs.
//!
//! Fields that few records have, such as late workers or a continued call, are set as well, so that both
//! encodings of a row are used.

use std::sync::Arc;

use model::firing::Pause;
use model::run::{
    Adder, ApprovalRequest, BatchKey, Caller, ElementBatch, ElementCounts, ElementOrigin, Ended, EndedCall,
    LateWorkers, PendingEnd, RunCause, RunHead, RunHistoryEntry, RunRetry, RunState, RunStatus, RunTrigger,
    StepCause, StepDecision, StepKey, StepOrigin, StepRecord, StepState, StepStatus, TriggerRefusal,
    TriggerRefusalReason, TriggerState, WorkflowHead, WorkflowState,
};
use model::workflow::{Action, Call, Definition, Section, StepSpec};
use model::{JobSpec, RunId, ShardId, WorkflowId, WorkflowSpec};
use serde_json::{Map, json};

use super::Sampler;

/// Returns a head with its body.
///
/// # Panics
/// Never: specs are plain data.
pub fn workflow_head_of(spec: WorkflowSpec) -> WorkflowHead {
    let body = serde_json::to_string(&spec).expect("specs are plain data").into();
    WorkflowHead { spec: Arc::new(spec), body }
}

impl Sampler {
    /// Returns an ID newer than all earlier ones.
    pub fn workflow_id(&mut self, shard: ShardId) -> WorkflowId {
        WorkflowId::from_bits(self.bits(shard))
    }

    /// Returns an ID newer than all earlier ones.
    pub fn run_id(&mut self, shard: ShardId) -> RunId {
        RunId::from_bits(self.bits(shard))
    }

    /// Returns one of a few runs, which other records refer to.
    fn some_run(&mut self) -> RunId {
        RunId::from_bits(u128::from(self.below(3) + 1) << 80)
    }

    /// Returns the run and step that created a job; one of a few runs.
    pub fn step_origin(&mut self) -> StepOrigin {
        StepOrigin {
            run: self.some_run(),
            workflow: self.text().into(),
            name: self.text().into(),
            step: self.pick(&[0, 9_999]),
            element: self.maybe(|s| ElementOrigin {
                index: s.pick(&[0, 7]),
                total: s.pick(&[8, 100_000]),
                value: s.text().into(),
            }),
        }
    }

    /// Returns a spec with values in many fields, and a unique name.
    pub fn workflow_spec(&mut self) -> WorkflowSpec {
        let name = format!("w{:x}", self.bits(ShardId(0)) >> 16);
        let call =
            Call { name: "other".into(), parameters: [("text".to_owned(), json!(self.text()))].into() };
        let steps = vec![
            StepSpec::job("a", JobSpec::command([self.text()])),
            StepSpec::new("b", Action::Workflow(call)).needs(["a"]),
        ];
        let mut spec = WorkflowSpec::new(name, steps);
        spec.description = self.maybe(Self::text);
        spec.owner = self.maybe(Self::text);
        spec.namespace = self.pick(&["default", "team-a", "team-b"]).to_owned();
        for _ in 0..self.below(3) {
            let (key, value) = (self.pick(&["team", "tier", "钟"]), self.text());
            spec.labels.insert(key.to_owned(), value);
        }
        spec.max_parallel_runs = self.maybe(|s| s.pick(&[1, 7]));
        spec.retry.max_retries = self.pick(&[0, 3]);
        spec
    }

    /// Returns a random state of a workflow.
    pub fn workflow_state(&mut self) -> WorkflowState {
        WorkflowState {
            generation: self.below(1 << 40) + 1,
            version: self.below(1 << 40),
            created_at: self.any_time(),
            updated_at: self.any_time(),
            runs: self.below(1 << 40),
            triggers: self.maybe(|s| vec![TriggerState::default(), s.trigger_state()]).unwrap_or_default(),
        }
    }

    fn ended(&mut self) -> Ended {
        let work = if self.coin() { self.job_id(ShardId(1)).into() } else { self.run_id(ShardId(1)).into() };
        let (name, status, at) = (self.text().into(), self.final_status(), self.any_time());
        Ended::new(work, name, status, at)
    }

    fn trigger_state(&mut self) -> TriggerState {
        let chain = |s: &mut Self| (0..s.below(3)).map(|_| s.text().into()).collect();
        TriggerState {
            runs: self.number(),
            last_run: self.maybe(|s| s.run_id(ShardId(1))),
            refused: self.number(),
            last_refusal: self.maybe(|s| {
                let (at, ended, reason) = (s.any_time(), s.ended(), s.pick(TriggerRefusalReason::ALL));
                Box::new(TriggerRefusal { at, ended, reason, detail: s.maybe(|s| s.text().into()) })
            }),
            waiting_events: [0, 1, 2][..self.pick(&[0, 1, 3])]
                .iter()
                .map(|&source| PendingEnd {
                    source,
                    ended: self.ended(),
                    created_at: self.any_time(),
                    scheduled_for: self.maybe(Self::any_time),
                    interval_start: self.maybe(Self::any_time),
                    output: self.maybe(|s| s.text().into()),
                    chain: chain(self),
                })
                .collect(),
        }
    }

    fn run_trigger(&mut self) -> RunTrigger {
        let ended = (0..=self.below(2)).map(|_| self.ended()).collect();
        RunTrigger { number: self.pick(&[0, 31]), ended, chain: vec![self.text().into(), self.text().into()] }
    }

    /// Returns a head of a run; some share a definition, and few workflows and callers have many runs.
    pub fn run_head(&mut self) -> RunHead {
        let name = self.pick(&["one", "two"]);
        let mut spec = WorkflowSpec::new(name, vec![StepSpec::job("a", JobSpec::command(["true"]))]);
        spec.namespace = self.pick(&["default", "team-a"]).to_owned();
        spec.description = self.maybe(|_| "shared".to_owned());
        let mut definition = Definition::of(spec);
        if self.coin() {
            definition.calls.insert("other".into(), Arc::new(self.workflow_spec()));
        }
        let mut parameters = Map::new();
        parameters.insert("text".into(), json!(self.text()));
        RunHead {
            workflow: self.maybe(|s| WorkflowId::from_bits(u128::from(s.below(3) + 1) << 80)),
            generation: self.below(1 << 40),
            number: self.below(1 << 40),
            body: definition.to_json().into(),
            definition: Arc::new(definition),
            parameters: Arc::new(parameters),
            actor: self.text().into(),
            note: self.maybe(|s| s.text().into()),
            caller: self.maybe(|s| Caller {
                run: s.some_run(),
                step: 3,
                element: s.maybe(|s| s.pick(&[0, 99_999])),
            }),
            retry_of: self.maybe(|s| s.run_id(ShardId(1))),
            priority: self.maybe(|s| s.pick(&[0, 100])),
            origin: self.maybe(|s| Arc::new(s.origin())),
            trigger: self.maybe(|s| Arc::new(s.run_trigger())),
        }
    }

    /// Returns a random state of a run.
    pub fn run_state(&mut self, status: RunStatus) -> RunState {
        RunState {
            status,
            section: self.pick(&[Section::Steps, Section::OnFailure, Section::Finally]),
            version: self.number(),
            created_at: self.any_time(),
            started_at: self.maybe(Self::any_time),
            finished_at: self.maybe(Self::any_time),
            updated_at: self.any_time(),
            pause: self.maybe(|s| {
                Box::new(Pause { at: s.any_time(), by: s.text().into(), note: s.maybe(|s| s.text().into()) })
            }),
            stopping: self.maybe(|s| s.pick(RunCause::ALL)),
            retry: self.maybe(|s| {
                let (next_at, started_at) = (s.maybe(Self::any_time), s.maybe(Self::any_time));
                Box::new(RunRetry { failures: s.pick(&[1, 1_000]), next_at, started_at })
            }),
            skip_finally: self.coin(),
            counts: [1, 0, 0, 5, 0, 0, 0, 7],
            output: self.maybe(|s| s.text().into()),
            history: (0..self.below(4))
                .map(|_| RunHistoryEntry {
                    at: self.any_time(),
                    from: self.maybe(|s| s.pick(RunStatus::ALL)),
                    to: self.pick(RunStatus::ALL),
                    cause: self.pick(RunCause::ALL),
                    detail: self.maybe(|s| s.text().into()),
                })
                .collect(),
            expires_at: self.maybe(Self::any_time),
            started: (0..self.below(3)).map(|_| self.run_id(ShardId(1))).collect(),
        }
    }

    /// Returns a random state of a step.
    pub fn step_state(&mut self) -> StepState {
        StepState {
            status: self.pick(StepStatus::ALL),
            cause: self.pick(StepCause::ALL),
            job: self.maybe(|s| s.job_id(ShardId(1))),
            called: self.maybe(|s| s.run_id(ShardId(1))),
            started_at: self.maybe(Self::any_time),
            finished_at: self.maybe(Self::any_time),
            wake_at: self.maybe(Self::any_time),
            total: self.maybe(|s| s.pick(&[0, 100_000])),
            element_counts: self
                .maybe(|s| ElementCounts { succeeded: s.pick(&[0, 99_999]), failed: s.pick(&[0, 7]) }),
            items: self.maybe(|s| s.text().into()),
            output: self.maybe(|s| s.text().into()),
            message: self.maybe(|s| s.text().into()),
            decision: self.maybe(|s| {
                Box::new(StepDecision {
                    at: s.any_time(),
                    by: s.text().into(),
                    note: s.maybe(|s| s.text().into()),
                })
            }),
            ending: self.maybe(|s| (s.pick(StepStatus::ALL), s.pick(StepCause::ALL))),
            late_workers: self.maybe(|s| Box::new(LateWorkers { count: 7, names: vec![s.text(), s.text()] })),
            files: self.maybe(|s| s.text().into()),
            asks: self
                .maybe(|s| Box::new(ApprovalRequest { message: Some(s.text()), approvers: vec![s.text()] })),
            continues: None,
        }
    }

    /// Returns a state of a step whose call continues an ended run.
    pub fn continuing_step_state(&mut self) -> StepState {
        let run = self.run_id(ShardId(1));
        let record = |s: &mut Self| {
            let key = StepKey { run, step: 1, item: s.maybe(|_| 7) };
            StepRecord { key, state: s.step_state() }
        };
        let records = (0..3).map(|_| record(self)).collect();
        let batches = vec![self.element_batch(BatchKey { run, step: 2, first: 0 })];
        let parameters = Map::from_iter([("day".to_owned(), json!(self.text()))]);
        let repeats_at_most_once = self.pick(&[false, true]);
        let call = EndedCall { run, parameters, records, batches, repeats_at_most_once };
        StepState { continues: Some(Arc::new(call)), ..self.step_state() }
    }

    /// Returns elements that a task added in one batch, with this key.
    pub fn element_batch(&mut self, key: BatchKey) -> ElementBatch {
        let count = self.pick(&[1, 3, 1_000]);
        let elements: Vec<_> = (0..count).map(|_| self.text()).collect();
        ElementBatch {
            key,
            by: Adder { step: self.pick(&[0, 9_999]), item: self.maybe(|s| s.pick(&[0, 99_999])) },
            name: self.text().into(),
            count,
            elements: json!(elements).to_string().into(),
            added_at: self.any_time(),
        }
    }

    /// Returns the key of a step of a run, or of one element of it.
    pub fn step_key(&mut self, run: RunId, step: u32) -> StepKey {
        StepKey { run, step, item: self.maybe(|s| s.pick(&[0, 99_999])) }
    }
}
