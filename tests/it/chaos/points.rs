//! Deaths at the named points between the steps of every promise; see [`crashpoint`].
//!
//! Kills at random times fall between two steps that are microseconds apart once in thousands. Here a
//! process of a site under load dies at each of them, once or more.

use std::time::{Duration, Instant};

use crashpoint::Point;
use harness::within;
use sim::dice::Dice;

use super::rows::Kept;
use super::{RECOVERY, Storm, from_env, state};

/// Between two looks for processes that are gone and nobody holds down.
const LOOK: Duration = Duration::from_millis(100);

impl Storm {
    /// Has a process die when it reaches the point for the `nth` time, and waits until all is well again.
    async fn die_at(&mut self, point: Point, nth: u32) {
        self.scene.crash.give(point, nth);
        self.tend_until_true(&format!("a process died at `{}`", point.name()), |storm| {
            storm.scene.crash.is_carried_out()
        })
        .await;
        self.nemesis.note_death(point);
        let before = self.load.recorder.ended();
        self.tend_until_true(&format!("jobs ended after a death at `{}`", point.name()), |storm| {
            storm.load.recorder.ended() > before + 10
        })
        .await;
    }

    /// Waits, and starts whoever is gone: one that dies may take a moment for it.
    async fn tend_until_true(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !within(LOOK, async || holds(self)).await {
            self.nemesis.tend(&mut self.scene.site);
            assert!(
                begun.elapsed() < RECOVERY,
                "waited {RECOVERY:?} in vain until {what}:\n{}",
                state(&self.scene.site).await
            );
        }
    }
}

/// C1, D5, D7, A10. Server, agent and supervisor die before and after each commit, each record of the journal
/// and each effect of accepting, firing, dispatching, starting and finishing, and of the end of steps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_between_any_two_steps_breaks_no_promise() {
    let seed = from_env("CHAOS_SEED", std::process::id().into());
    println!("CHAOS_SEED={seed}");
    let mut storm = Storm::gather("points", seed, Kept::InFile).await;
    let mut dice = Dice::new(seed, 2);
    for &point in Point::ALL {
        storm.die_at(point, 1 + dice.below(4) as u32).await;
    }
    storm.judge().await;
}
