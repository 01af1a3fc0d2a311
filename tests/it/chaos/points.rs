//! Crashes at the named points between steps of the delivery guarantees; see [`crashpoint`].
//!
//! Random kills rarely hit two steps that are microseconds apart. Here a process of a site under load crashes at each
//! point at least once.

use std::time::{Duration, Instant};

use crashpoint::Point;
use harness::within;
use sim::dice::Dice;

use super::rows::StoreKind;
use super::{RECOVERY, Storm, seed, state};

/// Interval at which missing processes are restarted.
const LOOK: Duration = Duration::from_millis(100);

impl Storm {
    /// Lets a process crash when it reaches the point for the `nth` time, and waits for the recovery.
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

    /// Waits until the condition holds, and restarts missing processes: a crashing process may take a moment to end.
    async fn tend_until_true(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !within(LOOK, async || holds(self)).await {
            self.nemesis.repair_due(&mut self.scene.site);
            assert!(
                begun.elapsed() < RECOVERY,
                "timed out after {RECOVERY:?} waiting until {what}:\n{}",
                state(&self.scene.site).await
            );
        }
    }
}

/// C1, D5, D7, A10. Server, agent and supervisor crash before and after each commit and journal write. They also
/// crash around each effect of accepting, firing, dispatching, starting and finishing jobs, and of ending steps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_any_two_steps_violates_no_guarantee() {
    let seed = seed();
    println!("CHAOS_SEED={seed}");
    let mut storm = Storm::start_storm("points", seed, StoreKind::InFile).await;
    let mut dice = Dice::new(seed, 2);
    for &point in Point::ALL {
        storm.die_at(point, 1 + dice.below(4) as u32).await;
    }
    storm.judge().await;
}
