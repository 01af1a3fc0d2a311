//! A history that is judged slice by slice has the same result as one that is judged as a whole.

use std::collections::BTreeSet;

use mutation::Mutation as Core;
use sim::check::{Invariant, Judge, Report};
use sim::history::History;
use sim::run;
use sim::world::plan::{Bug, Mutation, Plan, Profile};

use crate::seconds;

/// Judges a history a few hundred events at a time. Returns the report and the maximum number of carried events.
fn in_slices(history: &History) -> (Report, usize) {
    let mut judge = Judge::new(history.setup.clone());
    let mut most = 0;
    for slice in history.events.chunks(300) {
        judge.take(&mut slice.to_vec());
        most = most.max(judge.carried());
    }
    (judge.finish(&mut Vec::new()), most)
}

#[test]
fn slices_report_nothing_for_a_history_without_violations() {
    for seed in 0..60 {
        let played = run::play(&Plan::draw(seed, Profile::Short));
        assert_eq!(played.report.violations, [], "seed {seed}");
        let (report, _) = in_slices(&played.history);
        assert_eq!(report.violations, [], "seed {seed}");
    }
}

#[test]
fn slices_report_every_violation_of_the_whole_history() {
    let mut found = BTreeSet::new();
    let within = [
        Core::EngineRepeatsAtMostOnce,
        Core::LeaderReleasesBeforeCommits,
        Core::LeaderRepliesBeforeCommits,
        Core::LeaderReportsUnknownAsRefused,
        Core::FuseDoesNotFire,
    ];
    let around = [
        Mutation::WorkerThawsBeforeItsStops,
        Mutation::StaleReportAsCurrent,
        Mutation::StaleCheckpointAsCurrent,
        Mutation::WorkerPassesNoCheckpoint,
        Mutation::LoadForgetsExecutions,
        Mutation::LoadForgetsQueues,
        Mutation::StoreForgetsNewJobs,
        Mutation::StoreForgetsKeys,
        Mutation::StoreForgetsCancels,
        Mutation::StoreCommitsPartsOfBatches,
        Mutation::StoreIgnoresEpochs,
        Mutation::StoreReusesEpochs,
        Mutation::StoreReadsOldRows,
    ];
    for bug in within.map(Bug::InCore).into_iter().chain(around.map(Bug::InModel)) {
        for seed in 0..6 {
            let played = run::play(&Plan::draw(seed, Profile::Short).with(bug));
            if played.panic.is_some() || played.report.violations.is_empty() {
                continue;
            }
            let (report, _) = in_slices(&played.history);
            let whole = played.show();
            assert!(!report.violations.is_empty(), "{bug}, seed {seed}: slices find none of {whole}");
            found.extend(played.report.counts.into_keys());
        }
    }
    let expected = [Invariant::I1, Invariant::I2, Invariant::I4, Invariant::I6, Invariant::I7, Invariant::I8];
    assert!(expected.iter().all(|invariant| found.contains(invariant)), "{found:?}");
}

/// The number of carried events depends on the live objects, not on the length of the history.
#[test]
fn a_longer_history_carries_no_more_events() {
    let carried = |times: u64| {
        let (rough, jobs) = (seconds(120 * times), u32::try_from(100 * times).unwrap());
        // Over several worlds: one world may end with more live objects than another.
        let of_world = |seed| {
            let quiet = Plan::quiet(seed);
            let plan = Plan { schedules: 0, workflows: 0, runs: 0, other_asks: 0, with_keys: false, ..quiet };
            in_slices(&run::play(&Plan { rough, jobs, ..plan }).history).1
        };
        (1..=6).map(of_world).sum::<usize>()
    };
    let (short, long) = (carried(1), carried(3));
    assert!(long < short + short / 2, "{short} events at first, then {long}");
}
