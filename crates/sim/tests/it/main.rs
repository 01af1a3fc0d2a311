//! The simulator as a whole: seeds, named scenarios, deliberate bugs, and the command.
#![allow(clippy::unwrap_used, reason = "the vocabulary of tests fails as tests do")]

mod command;
mod mutations;
mod scenarios;
mod seeds;
mod slices;

use model::Duration;
use sim::run::{self, Played};
use sim::world::plan::{Fault, FaultKind, Plan, Profile};

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A fault from `at` seconds on, for `length` seconds.
fn fault(at: u64, length: u64, kind: FaultKind) -> Fault {
    Fault { at: seconds(at), length: seconds(length), kind }
}

/// A world of a size that suits most scenarios, without faults: two servers, three workers.
fn quiet(seed: u64) -> Plan {
    let plan = Plan::draw(seed, Profile::Calm);
    Plan { servers: 2, workers: 3, rough: seconds(120), task_max: seconds(10), jobs: 40, ..plan }
}

/// Plays a world in which nothing may be wrong.
#[track_caller]
fn plays_well(plan: &Plan) -> Played {
    let played = run::play(plan);
    assert!(played.wrong().is_none(), "seed {}: {}", plan.seed, played.show());
    played
}
