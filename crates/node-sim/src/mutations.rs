//! Deliberate bugs of agent and store, each of which must be found within some worlds.

use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::thread::{available_parallelism, scope};

use anyhow::{Context, Result, ensure};
use mutation::Mutation;
use sim::check::Invariant;
use sim::mutations::Found;
use sim::results::Bugs;

use crate::MutationsArgs;

/// Bugs in code that is simulated elsewhere. Bugs of the cores are found faster in the smaller simulations.
pub(crate) fn all() -> impl Iterator<Item = Mutation> {
    Mutation::ALL
        .iter()
        .copied()
        .filter(|mutation| !matches!(mutation.part(), "engine" | "leader" | "supervisor" | "fuse"))
}

/// Searches for each bug, on all processors; returns whether all were found.
pub(crate) fn run(args: &MutationsArgs) -> Result<bool> {
    ensure!(mutation::ARE_BUILT_IN, "a release build has no deliberate bugs: run without `--release`");
    let kept = args.kept.as_deref().map(Bugs::read).transpose()?.map_or_else(Vec::new, |bugs| bugs.found);
    let left = Mutex::new(all());
    let next = || left.lock().ok()?.next();
    let work = || {
        let looked =
            std::iter::from_fn(next).map(|mutation| Ok((mutation, find(mutation, args.within, &kept)?)));
        looked.collect::<Result<Vec<_>>>()
    };
    let players = available_parallelism().map_or(1, usize::from);
    let looked = scope(|scope| {
        let threads: Vec<_> = (0..players).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a searching thread does not panic"))
            .collect::<Result<Vec<_>>>()
    })?;
    let mut looked: Vec<_> = looked.into_iter().flatten().collect();
    looked.sort_by_key(|(mutation, _)| *mutation);
    println!("{:<40} {:>6}   broken", "bug", "worlds");
    let (mut all, mut missed) = (Vec::new(), 0);
    for (mutation, found) in looked {
        match found {
            Some(found) => {
                println!("{found}");
                all.push(found);
            }
            None => {
                println!("{mutation}: not found within {} worlds", args.within);
                missed += 1;
            }
        }
    }
    if missed > 0 {
        return Ok(false);
    }
    args.keep.keep(all)?;
    Ok(true)
}

/// Runs seeds with a bug, each in its own process, until a violation is found. The seed that found the bug before
/// comes first.
fn find(mutation: Mutation, within: u64, kept: &[Found]) -> Result<Option<Found>> {
    let known = kept.iter().find(|found| found.mutation == mutation.to_string()).map(|found| found.worlds);
    for seed in known.into_iter().chain(1..=within) {
        let (status, said) = play(mutation, seed)?;
        if !status.success() {
            return Ok(Some(Found { mutation: mutation.to_string(), worlds: seed, broken: broken(&said) }));
        }
    }
    Ok(None)
}

/// Runs one seed with a bug; returns the exit status and the output.
fn play(mutation: Mutation, seed: u64) -> Result<(ExitStatus, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["play", &seed.to_string(), "--mutation", mutation.name()]);
    let output = command.output().with_context(|| format!("cannot play seed {seed} with {mutation}"))?;
    Ok((output.status, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Returns the first violated invariant in the output. Without one, a worker has no session or a client has no answer
/// at the end.
fn broken(said: &str) -> String {
    let names: Vec<_> = Invariant::ALL.iter().map(ToString::to_string).collect();
    let first =
        said.lines().filter_map(|line| line.split(' ').next()).find(|word| names.iter().any(|n| n == word));
    first.map_or_else(|| "a session or an answer is missing at the end".to_owned(), str::to_owned)
}
