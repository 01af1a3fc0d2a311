//! Every deliberate bug of the list is found, and the same worlds have no violation without it.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread::{available_parallelism, scope};

use sim::mutations::{CASES, Case};
use sim::world::plan::Bug;

use crate::plays_well;

/// Runs a check of all bugs in parallel, on all processors.
fn each(look: impl Fn(&Case) + Sync) {
    let left = Mutex::new(CASES.iter());
    let next = || left.lock().unwrap().next();
    let work = || {
        while let Some(case) = next() {
            look(case)
        }
    };
    scope(|scope| (0..available_parallelism().map_or(1, usize::from)).for_each(|_| drop(scope.spawn(work))));
}

#[test]
fn every_deliberate_bug_is_found() {
    let missed = Mutex::new(Vec::new());
    each(|case| {
        if case.look().is_none() {
            missed.lock().unwrap().push(format!("{}, not within {} worlds", case.bug, case.within));
        }
    });
    assert_eq!(missed.into_inner().unwrap(), Vec::<String>::new());
}

#[test]
fn the_same_worlds_without_a_bug_have_no_violation() {
    let worlds: BTreeSet<_> = CASES.iter().map(|case| case.world as usize).collect();
    assert!(worlds.len() > 5);
    let seen = Mutex::new(BTreeSet::new());
    each(|case| {
        if seen.lock().unwrap().insert(case.world as usize) {
            (0..2).for_each(|seed| drop(plays_well(&(case.world)(seed))));
        }
    });
}

#[test]
fn every_deliberate_bug_has_one_case() {
    let looked_for: Vec<_> = CASES.iter().map(|case| case.bug).collect();
    assert!(looked_for.len() >= 30);
    for bug in Bug::all() {
        assert_eq!(looked_for.iter().filter(|other| **other == bug).count(), 1, "{bug}");
    }
}
