//! From a seed to a verdict: plays a world, judges its history, and shrinks a failing plan to few faults.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::check::{self, Invariant, Judge, Report, Violation};
use crate::history::{Event, History};
use crate::world::plan::{Bug, Fault, Plan};
use crate::world::{Stats, World};

/// Maximum number of worlds that [`shrink`] plays.
const SHRINK_MAX: u32 = 200;

/// Result of a world.
#[derive(Debug)]
pub struct Played {
    /// What the recorders saw; empty for worlds that were judged in slices or not kept.
    pub history: History,
    /// Statistics of the world.
    pub stats: Stats,
    /// Report of the checker.
    pub report: Report,
    /// Panic message of a core, if one panicked.
    pub panic: Option<String>,
}

impl Played {
    /// Returns what is wrong with the world; `None` if nothing is.
    pub fn wrong(&self) -> Option<Wrong> {
        if let Some(panic) = &self.panic {
            return Some(Wrong::Panicked(panic.clone()));
        }
        self.report.violations.first().map(|violation| Wrong::Broken(violation.invariant))
    }

    /// Returns the verdict as text for people.
    pub fn show(&self) -> String {
        let mut text = String::new();
        if let Some(panic) = &self.panic {
            text.push_str(&format!("the engine panicked: {panic}\n"));
        }
        for violation in &self.report.violations {
            text.push_str(&violation.show(&self.history));
        }
        for (invariant, count) in &self.report.counts {
            text.push_str(&format!("{invariant}: {count} in total\n"));
        }
        text
    }
}

/// A failure of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// An invariant does not hold.
    Broken(Invariant),
    /// A core panicked.
    Panicked(String),
}

impl Wrong {
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Broken(a), Self::Broken(b)) => a == b,
            (Self::Panicked(_), Self::Panicked(_)) => true,
            _ => false,
        }
    }
}

/// Plays a world and judges it.
pub fn play(plan: &Plan) -> Played {
    let mut played = play_unjudged(plan);
    if played.panic.is_none() {
        played.report = check::check(&played.history);
    }
    played
}

/// Plays a world and judges it while it runs, without keeping its history, which may exceed memory. After a failure
/// the world is played again and judged as a whole.
pub fn play_in_slices(plan: &Plan) -> Played {
    if !plan.keeps_all {
        return play(plan);
    }
    let mut judge = Judge::new(plan.setup.clone());
    let sliced = caught(plan, || {
        let mut left = Vec::new();
        let stats = World::new(plan.clone()).run_in_slices(|events| {
            left.append(events);
            if left.len() >= judge.carried() {
                judge.take(&mut left);
            }
        });
        (History::default(), stats, judge.finish(&mut left))
    });
    if sliced.wrong().is_some() { play(plan) } else { sliced }
}

/// Plays a world without judging it.
fn play_unjudged(plan: &Plan) -> Played {
    caught(plan, || {
        let (history, stats) = World::new(plan.clone()).run();
        (history, stats, Report::default())
    })
}

/// Plays a world without judging it or keeping its history: measures the cost of judging.
pub fn play_discarding(plan: &Plan) -> Played {
    caught(plan, || {
        let stats = World::new(plan.clone()).run_in_slices(Vec::<Event>::clear);
        (History::default(), stats, Report::default())
    })
}

/// Plays a world with the plan's bug, and catches a panic of a core.
fn caught(plan: &Plan, play: impl FnOnce() -> (History, Stats, Report)) -> Played {
    let _bug = match plan.bug {
        Some(Bug::InCore(mutation)) => mutation::enable_in_thread(mutation),
        _ => None,
    };
    match catch_unwind(AssertUnwindSafe(play)) {
        Ok((history, stats, report)) => Played { history, stats, report, panic: None },
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let (history, stats, report) = (History::default(), Stats::default(), Report::default());
            Played { history, stats, report, panic: Some(text.unwrap_or_else(|| "no panic message".into())) }
        }
    }
}

/// Plays a world a second time. Returns a violation if its history differs (I29).
pub fn compare_replay(plan: &Plan, first: &Played) -> Option<Violation> {
    let again = play(plan);
    let (before, after) = (first.history.fingerprint(), again.history.fingerprint());
    if before == after {
        return None;
    }
    let pairs = first.history.events.iter().zip(&again.history.events);
    let at = pairs.into_iter().position(|(a, b)| a != b);
    Some(Violation {
        invariant: Invariant::I29,
        subject: format!("seed {}", plan.seed),
        message: format!("two plays have the fingerprints {before:016x} and {after:016x}"),
        excerpt: at.into_iter().collect(),
    })
}

/// Removes faults from a plan as long as the failure stays the same. Returns the smallest plan found, and its result.
///
/// Removes halves first, then single faults, until no fault can be removed or `SHRINK_MAX` worlds were played.
pub fn shrink(plan: &Plan, wrong: &Wrong) -> (Plan, Played) {
    let mut best = plan.clone();
    let mut shown = play(&best);
    let mut left = SHRINK_MAX;
    let mut size = best.faults.len().div_ceil(2);
    while size > 0 && left > 0 {
        let mut from = 0;
        let mut smaller = false;
        while from < best.faults.len() && left > 0 {
            let until = (from + size).min(best.faults.len());
            let faults: Vec<Fault> =
                best.faults[..from].iter().chain(&best.faults[until..]).cloned().collect();
            let candidate = Plan { faults, ..best.clone() };
            let played = play(&candidate);
            left -= 1;
            if played.wrong().is_some_and(|found| found.is_like(wrong)) {
                (best, shown, smaller) = (candidate, played, true);
            } else {
                from = until;
            }
        }
        if !smaller || size > 1 {
            size /= 2;
        }
    }
    (best, shown)
}
