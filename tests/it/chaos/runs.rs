//! Workflow runs during a fault injection test.
//!
//! Their jobs are recorded and judged like all others: the checker expects one for each step and element. This file
//! checks the results of the runs through the API. Each run succeeded, whatever was lost meanwhile, and its last step
//! got the outputs of the elements before it.

use std::sync::PoisonError;

use client::JobFilter;
use futures::TryStreamExt as _;
use harness::poll_pause;
use model::api::StartDefinition;
use model::spec::Run;
use model::workflow::{ElementSource, ForEach, StepSpec};
use model::{JobSpec, RunId, RunStatus, WorkflowSpec};

use super::load::{ErrorOutcome, Load, StartedRun, outcome_of, small};

/// Number of ended jobs after which another run is started.
const ENDED_A_RUN: u64 = 25;
/// Number of jobs of a run: the list, its three elements, the reducing step, and the cleanup step.
const JOBS: usize = 6;

impl Load {
    /// Starts runs until stopped.
    pub(super) async fn run_workflows(self) {
        let mut number = 0_u32;
        while !self.is_over() {
            number += 1;
            let asked = self.recorder.now();
            let id = self.start(&format!("chaos-run-{number}")).await;
            // The answer may be read long after the commit.
            let during = asked..self.recorder.now();
            self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(StartedRun { id, during });
            let enough = self.recorder.ended() + ENDED_A_RUN;
            while !self.is_over() && self.recorder.ended() < enough {
                poll_pause().await;
            }
        }
    }

    /// Repeats the request until its answer is certain.
    async fn start(&self, key: &str) -> RunId {
        let how = StartDefinition {
            definition: self.definition(),
            parameters: Default::default(),
            priority: None,
            note: None,
        };
        loop {
            match self.client().start_definition(&how, Some(key)).await {
                Ok(run) => return run.id,
                Err(error) => {
                    assert!(
                        !matches!(outcome_of(&error), ErrorOutcome::Refused),
                        "a valid definition was refused: {error}"
                    );
                }
            }
            self.next_server();
            poll_pause().await;
        }
    }

    fn definition(&self) -> WorkflowSpec {
        let job = |work: &str| small(self.witness.job_that(work));
        // On a full disk the output cannot be written: then the attempt fails, instead of a success without an
        // output.
        let list = r#"echo '{"items": ["a", "b", "c"]}' > "$BELFRY_OUTPUT" || { tell fail; exit 1; }"#;
        let list = StepSpec::job("list", job(list));
        let each = job(
            r#"tell beat; pause 0.2; echo "{\"n\": $BELFRY_INDEX}" > "$BELFRY_OUTPUT" || { tell fail; exit 1; }"#,
        );
        let mut each = StepSpec::job("each", each).needs(["list"]);
        each.for_each = Some(ForEach::new(ElementSource::List("steps.list.output.items".into())));
        let mut total = job(r#"[ "$ALL" = '[{"n":0},{"n":1},{"n":2}]' ] || { tell fail; exit 7; }"#);
        total.retry.final_exit_codes = vec![7];
        with(&mut total, "ALL", "${{ steps.each.output }}");
        let total = StepSpec::job("total", total).needs(["each"]);
        let mut spec = WorkflowSpec::new("chaos", vec![list, each, total]);
        spec.finally = vec![StepSpec::job("tidy", job("tell beat"))];
        spec
    }

    /// Returns descriptions of runs with unexpected results.
    pub(super) async fn wrong_runs(&self) -> Vec<String> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut wrong = Vec::new();
        for StartedRun { id, during } in runs {
            let run = match self.client().run(id).await {
                Err(error) if error.status() == Some(404) && self.recorder.may_be_lost(&during) => continue,
                found => found.expect("a started run exists"),
            };
            if run.status != RunStatus::Succeeded {
                let steps = self.client().run_steps(id).await.map(|steps| steps.steps);
                wrong.push(format!("{id} ended as {}: {steps:#?}", run.status));
            }
            let filter = JobFilter { run: Some(id), ..JobFilter::default() };
            let jobs: Vec<_> = self.client().jobs(filter).try_collect().await.expect("jobs can be listed");
            if jobs.len() != JOBS {
                wrong.push(format!("{id}: expected {JOBS} jobs, but got {}", jobs.len()));
            }
        }
        wrong
    }

    /// Returns the number of started runs.
    pub(super) fn count_runs(&self) -> usize {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

fn with(spec: &mut JobSpec, name: &str, value: &str) {
    if let Run::Process(process) = &mut spec.run {
        process.env.insert(name.into(), value.into());
    }
}
