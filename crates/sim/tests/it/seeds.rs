//! Random worlds of consecutive seeds.

use sim::run;
use sim::world::Stats;
use sim::world::plan::{Plan, Profile};

use crate::plays_well;

fn play_all(seeds: std::ops::Range<u64>) -> Stats {
    let mut total = Stats::default();
    for seed in seeds {
        let plan = Plan::draw(seed, Profile::Short);
        let played = plays_well(&plan);
        if seed % 10 == 0 {
            assert_eq!(run::compare_replay(&plan, &played), None, "I29");
        }
        total += played.stats;
    }
    total
}

/// A10, D5. I1–I18, I20–I24, I26–I30 in 250 worlds.
#[test]
fn the_first_250_worlds_have_no_violation() {
    let total = play_all(0..250);
    assert!(total.jobs > 10_000 && total.tasks > 10_000 && total.faults > 1_000, "{total:?}");
}

/// A10, D5. The same in 250 more worlds.
#[test]
fn the_next_250_worlds_have_no_violation() {
    play_all(250..500);
}

/// Seeds that showed a bug once.
#[test]
fn seeds_that_once_failed_have_no_violation() {
    // 43 and 592: a late hello released executions that had started since (I8). 117060: two manual runs at one
    // scheduled time, while engine time stood still (I14). 107748 and 149044: a harness bug, which compared an engine
    // that was already fenced.
    for seed in [43, 592, 107_748, 117_060, 149_044] {
        plays_well(&Plan { commits_ahead: 1, with_filters: false, ..Plan::draw(seed, Profile::Short) });
    }
    // 1045: the drain of a lost worker changed the plan of a service (I26). 3997: jobs without room beside a replica
    // reserved the only worker again and again (I24).
    for seed in [1_045, 3_997] {
        plays_well(&Plan::draw(seed, Profile::Short));
    }
}
