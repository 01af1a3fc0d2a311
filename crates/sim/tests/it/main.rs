//! The simulator as a whole: seeds, named scenarios, deliberate bugs, and the command.
#![allow(clippy::unwrap_used, reason = "the vocabulary of tests fails as tests do")]

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

/// Plays a world in which nothing may be wrong.
#[track_caller]
fn plays_well(plan: &Plan) -> Played {
    let played = run::play(plan);
    assert!(played.wrong().is_none(), "seed {}: {}", plan.seed, played.show());
    played
}
