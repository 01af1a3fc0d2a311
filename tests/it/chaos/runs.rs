//! Runs of workflows amid a storm.
//!
//! Their jobs are told of and judged as all others: the checker wants one for each step and element. What a run
//! came to is looked at here, through the API: each ended well, whatever was lost meanwhile, and
//! its last step saw what the elements before it gave.

use std::sync::PoisonError;

use client::JobFilter;
use futures::TryStreamExt as _;
use harness::glance;
use model::api::StartDefinition;
use model::spec::Run;
use model::workflow::{ForEach, Over, StepSpec};
use model::{JobSpec, RunId, RunStatus, WorkflowSpec};

use super::load::{Known, Load, known, small};

/// A run is started for so many jobs that end.
const ENDED_A_RUN: u64 = 25;
/// The jobs of one run: a list, its three elements, what takes these together, and what cleans up.
const JOBS: usize = 6;

impl Load {
    /// Starts runs until told to stop.
    pub(super) async fn run_workflows(self) {
        let mut number = 0_u32;
        while !self.is_over() {
            number += 1;
            let id = self.start(&format!("chaos-run-{number}")).await;
            let now = self.recorder.now();
            self.runs.lock().unwrap_or_else(PoisonError::into_inner).push((id, now));
            let enough = self.recorder.ended() + ENDED_A_RUN;
            while !self.is_over() && self.recorder.ended() < enough {
                glance().await;
            }
        }
    }

    /// Asks until the answer is certain.
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
                        !matches!(known(&error), Known::Refused),
                        "a good definition is refused: {error}"
                    );
                }
            }
            self.next_server();
            glance().await;
        }
    }

    fn definition(&self) -> WorkflowSpec {
        let job = |work: &str| small(self.witness.job_that(work));
        // On a full disk nothing is written: that is another try, and no success without an output.
        let list = r#"echo '{"items": ["a", "b", "c"]}' > "$BELFRY_OUTPUT" || { tell fail; exit 1; }"#;
        let list = StepSpec::job("list", job(list));
        let each = job(
            r#"tell beat; sleep 0.2; echo "{\"n\": $BELFRY_INDEX}" > "$BELFRY_OUTPUT" || { tell fail; exit 1; }"#,
        );
        let mut each = StepSpec::job("each", each).needs(["list"]);
        each.for_each = Some(ForEach::new(Over::List("steps.list.output.items".into())));
        let mut total = job(r#"[ "$ALL" = '[{"n":0},{"n":1},{"n":2}]' ] || { tell fail; exit 7; }"#);
        total.retry.final_exit_codes = vec![7];
        with(&mut total, "ALL", "${{ steps.each.output }}");
        let total = StepSpec::job("total", total).needs(["each"]);
        let mut spec = WorkflowSpec::new("chaos", vec![list, each, total]);
        spec.finally = vec![StepSpec::job("tidy", job("tell beat"))];
        spec
    }

    /// What runs came to that they should not have.
    pub(super) async fn wrong_runs(&self) -> Vec<String> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut wrong = Vec::new();
        for (id, started) in runs {
            let run = match self.client().run(id).await {
                Err(error) if error.status() == Some(404) && self.recorder.may_be_lost(started) => continue,
                found => found.expect("a run that was started is there"),
            };
            if run.status != RunStatus::Succeeded {
                let steps = self.client().run_steps(id).await.map(|steps| steps.steps);
                wrong.push(format!("{id} is {} in the end: {steps:#?}", run.status));
            }
            let filter = JobFilter { run: Some(id), ..JobFilter::default() };
            let jobs: Vec<_> = self.client().jobs(filter).try_collect().await.expect("its jobs are listed");
            if jobs.len() != JOBS {
                wrong.push(format!("{id} has {} jobs: expected {JOBS}", jobs.len()));
            }
        }
        wrong
    }

    /// How many runs were started.
    pub(super) fn count_runs(&self) -> usize {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

fn with(spec: &mut JobSpec, name: &str, value: &str) {
    if let Run::Process(process) = &mut spec.run {
        process.env.insert(name.into(), value.into());
    }
}
