//! Property: random DAGs with random outcomes and restarts follow a simple model of the rules.
//!
//! `Drawn` is a random step that depends on steps before it. The property ends the live jobs of one run in a
//! random order, with restarts, until the run ends. `expected` is the model: it goes through the steps once,
//! in order of definition, and predicts a status wherever the order of ends cannot matter. `check_order`
//! checks that each step has one job per element, and none before its dependencies ended.
//!
//! `liveness` adds requests of users, calls and waits, and checks no outcomes.

use std::collections::BTreeMap;

use model::workflow::{ElementSource, FailurePolicy, JoinRule, StepSpec, UpstreamCounts, Verdict};
use model::{JobStatus, RunId, RunStatus, StepStatus, WorkflowSpec};
use proptest::prelude::*;

use super::{each, job};
use crate::scenario::Scenario;

/// A generated step: its dependencies among the steps before it, its join rule, and the value of its
/// condition. Also the outcome of its job, the number of its elements if it has any, and whether its failure
/// counts.
#[derive(Debug, Clone)]
struct Drawn {
    needs: Vec<prop::sample::Index>,
    join: JoinRule,
    holds: bool,
    succeeds: bool,
    elements: Option<u32>,
    continues: bool,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    (
        prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        prop::sample::select(JoinRule::ALL.to_vec()),
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.7),
        prop::option::weighted(0.3, 0u32..4),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(needs, join, holds, succeeds, elements, continues)| Drawn {
            needs,
            join,
            holds,
            succeeds,
            elements,
            continues,
        })
}

fn needs_of(place: usize, drawn: &Drawn) -> Vec<usize> {
    let mut needs: Vec<_> =
        if place == 0 { Vec::new() } else { drawn.needs.iter().map(|index| index.index(place)).collect() };
    needs.sort_unstable();
    needs.dedup();
    needs
}

fn workflow(steps: &[Drawn], limit: Option<u32>) -> WorkflowSpec {
    let step = |(place, drawn): (usize, &Drawn)| {
        let needs: Vec<String> = needs_of(place, drawn).iter().map(|need| format!("s{need}")).collect();
        let names: Vec<&str> = needs.iter().map(String::as_str).collect();
        let name = format!("s{place}");
        let step = match drawn.elements {
            None => job(&name, &names),
            Some(0) => each(&name, &names, ElementSource::Items(Vec::new())),
            Some(count) => each(&name, &names, ElementSource::Shards(count)),
        };
        let join = if names.is_empty() { JoinRule::AllSuccess } else { drawn.join };
        let when = (!drawn.holds).then(|| "1 > 2".to_owned());
        StepSpec { join, when, continue_on_failure: drawn.continues, ..step }
    };
    let steps = steps.iter().enumerate().map(step).collect();
    WorkflowSpec { max_parallel_steps: limit, ..WorkflowSpec::new("drawn", steps) }
}

/// The model: each step once, in order of definition, by its join rule and the outcomes of its dependencies.
/// It has no notion of time: it predicts no outcome that depends on which dependency ended first, nor the
/// outcomes of dependents.
fn expected(steps: &[Drawn], spec: &WorkflowSpec) -> Vec<Option<StepStatus>> {
    let mut ends: Vec<Option<StepStatus>> = Vec::new();
    for (place, drawn) in steps.iter().enumerate() {
        let needs = needs_of(place, drawn);
        let mut counts =
            UpstreamCounts { needs: u32::try_from(needs.len()).unwrap(), ..UpstreamCounts::default() };
        let mut known = true;
        for need in needs {
            match ends[need] {
                None => known = false,
                Some(StepStatus::Succeeded) => counts.succeeded += 1,
                Some(StepStatus::Skipped) => counts.skipped += 1,
                Some(StepStatus::UpstreamFailed) => counts.upstream_failed += 1,
                Some(_) if steps[need].continues => counts.succeeded += 1,
                Some(_) => counts.failed += 1,
            }
        }
        let join = spec.steps[place].join;
        let conflicting = counts.skipped > 0 && counts.failed + counts.upstream_failed > 0;
        // The order of a failure and a skip decides the outcome of an `all_success` step.
        let depends_on_order = join == JoinRule::AllSuccess && conflicting;
        ends.push(if !known || depends_on_order {
            None
        } else {
            Some(match join.verdict(counts) {
                Verdict::Skip => StepStatus::Skipped,
                Verdict::UpstreamFailed => StepStatus::UpstreamFailed,
                _ if !drawn.holds => StepStatus::Skipped,
                _ if drawn.succeeds || drawn.elements == Some(0) => StepStatus::Succeeded,
                _ => StepStatus::Failed,
            })
        });
    }
    ends
}

/// Returns the live jobs of a run, each with the index of its step.
fn live_jobs(t: &Scenario, run: RunId) -> Vec<(model::JobId, usize)> {
    let own = t.rows.jobs.iter().filter_map(|(&id, (head, state))| {
        let origin = head.step.as_ref().filter(|origin| origin.run == run)?;
        (!state.status.is_final()).then_some((id, origin.step as usize))
    });
    own.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// C1, C2, C4, D5, I19, I28. Whatever the DAG, the outcomes, the order of ends and the points of restart:
    /// every step ends by the rules, with one job per step or element. No step starts before its dependencies
    /// ended, unless its join rule allows that. The run's outcome follows from all steps.
    #[test]
    fn every_dag_ends_by_its_join_rules(
        steps in prop::collection::vec(drawn(), 1..9),
        limit in prop::option::of(1u32..3),
        fast in prop::bool::weighted(0.2),
        order in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 80),
    ) {
        let mut t = Scenario::with_room();
        let mut spec = workflow(&steps, limit);
        if fast {
            spec.failure = FailurePolicy::FailFast;
        }
        let run = t.run(&spec);
        let mut moves = order.into_iter().cycle();
        let mut rounds = 0;
        while t.status_of_run(run) != RunStatus::Succeeded && t.status_of_run(run) != RunStatus::Failed {
            rounds += 1;
            prop_assert!(rounds < 200, "the run never ends: {}", t.steps(run));
            let live = live_jobs(&t, run);
            prop_assert!(live.len() <= limit.map_or(usize::MAX, |limit| limit as usize), "the limit is kept");
            prop_assert!(!live.is_empty(), "nothing is running: {}", t.steps(run));
            let (index, what) = moves.next().unwrap();
            let (job, place) = live[index.index(live.len())];
            match what {
                0 => {
                    t.restart();
                    t.rejoin_all();
                }
                1 => t.check_rebuilt(),
                _ if t.state(job).cancel_requested_at.is_some() => {
                    t.end_with(job, crate::scenario::finished(engine::input::ExecutionEnd::Stopped, None));
                }
                _ if steps[place].succeeds => t.succeed(job),
                _ => t.fail(job, 1),
            }
        }
        let found: Vec<StepStatus> = (0..steps.len()).map(|place| t.step(run, &format!("s{place}"))).collect();
        prop_assert!(found.iter().all(|status| status.is_final()), "{}", t.steps(run));
        let bad = |place: usize, status: StepStatus| {
            let failed = matches!(status, StepStatus::Failed | StepStatus::UpstreamFailed | StepStatus::Cancelled);
            failed && !steps[place].continues
        };
        let fails = found.iter().enumerate().any(|(place, &status)| bad(place, status));
        prop_assert_eq!(t.status_of_run(run) == RunStatus::Failed, fails, "{}", t.steps(run));
        if !fast {
            for (place, expected) in expected(&steps, &spec).into_iter().enumerate() {
                if let Some(expected) = expected {
                    prop_assert_eq!(found[place], expected, "s{}: {}", place, t.steps(run));
                }
            }
        }
        check_order(&t, run, &steps, &spec)?;
    }
}

/// I19. One job per step and element, and none before the dependencies of its step ended.
fn check_order(t: &Scenario, run: RunId, steps: &[Drawn], spec: &WorkflowSpec) -> Result<(), TestCaseError> {
    let mut seen = BTreeMap::new();
    for (head, state) in t.rows.jobs.values() {
        let Some(origin) = head.step.as_ref().filter(|origin| origin.run == run) else { continue };
        prop_assert!(seen.insert(origin.key(), state.status).is_none(), "two jobs for {:?}", origin.key());
        let place = origin.step as usize;
        let waits_for_all = !matches!(
            spec.steps[place].join,
            JoinRule::OneFailed | JoinRule::OneSuccess | JoinRule::OneDone | JoinRule::Always
        );
        let began = state.history[0].at;
        for need in needs_of(place, &steps[place]).into_iter().filter(|_| waits_for_all) {
            let ended = t.row(run, &format!("s{need}")).and_then(|row| row.finished_at);
            prop_assert!(
                ended.is_some_and(|ended| ended <= began),
                "s{} began before s{} ended",
                place,
                need
            );
        }
        prop_assert_ne!(state.status, JobStatus::Running);
    }
    for place in 0..steps.len() {
        let never_began =
            matches!(t.step(run, &format!("s{place}")), StepStatus::Skipped | StepStatus::UpstreamFailed);
        let jobs = seen.keys().filter(|key| key.step as usize == place).count();
        prop_assert!(!never_began || jobs == 0, "s{} has jobs, but never started", place);
    }
    Ok(())
}
