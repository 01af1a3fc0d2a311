//! Tests of the simulator as a whole: seeds, named scenarios, deliberate bugs, and the command.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod command;
mod mutations;
mod scenarios;
mod seeds;
mod slices;

use model::Duration;
use sim::run::{self, Played};
use sim::world::plan::Plan;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Plays a world that must have no violation.
#[track_caller]
fn plays_well(plan: &Plan) -> Played {
    let played = run::play(plan);
    assert!(played.wrong().is_none(), "seed {}: {}", plan.seed, played.show());
    played
}
