//! `belfry-sim`: plays seeds, replays one of them, or judges a recorded history.
//!
//! - `run`: consecutive seeds on all processors, until one fails; its plan is then shrunk. `make sim` calls
//!   it.
//! - `replay`: one seed, with its violations and optionally its history.
//! - `check`: a history in a file, from a simulated or a real cluster.
//! - `mutations`: every deliberate bug must be found. `make sim-mutations` calls it.
//!
//! # Cost
//! One world a thread. A history is judged in slices, so memory does not grow with the length of a world,
//! except for results and for every 16th world, which is played twice and compared.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "output of a command")]

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use sim::history::History;
use sim::mutations::CASES;
use sim::results::{BugResultOptions, Run, Tally, write};
use sim::run::{self, Played};
use sim::world::Stats;
use sim::world::plan::{Bug, Plan, Profile};

/// A history is millions of small allocations: with libc's allocator they take a fifth of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulate whole clusters from seeds, and judge their histories.
#[derive(Parser)]
#[command(name = "belfry-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play consecutive seeds until one fails.
    Run(RunArgs),
    /// Play one seed, and show its verdict.
    Replay(ReplayArgs),
    /// Judge a history of a simulated or a real cluster (JSON lines).
    Check {
        /// File that contains the history.
        file: PathBuf,
    },
    /// Play worlds with each deliberate bug until it is found.
    Mutations(MutationsArgs),
}

#[derive(Args)]
struct MutationsArgs {
    /// Bugs to look for [default: all]
    #[arg(value_name = "BUG", value_parser = bug)]
    only: Vec<Bug>,
    #[command(flatten)]
    keep: BugResultOptions,
}

#[derive(Args)]
struct WorldArgs {
    /// Size of the worlds, and intensity of their faults.
    #[arg(long, value_enum, default_value_t)]
    profile: Profile,
    /// Deliberate bug to inject.
    #[arg(long, value_parser = bug)]
    mutation: Option<Bug>,
}

/// Parses the name of a deliberate bug, and checks that this build contains it.
fn bug(name: &str) -> Result<Bug> {
    let bug: Bug = name.parse()?;
    anyhow::ensure!(
        bug.is_built_in(),
        "a release build does not contain this bug: build without `--release`"
    );
    Ok(bug)
}

impl WorldArgs {
    fn plan(&self, seed: u64) -> Plan {
        let plan = Plan::draw(seed, self.profile);
        match self.mutation {
            Some(bug) => plan.with(bug),
            None => plan,
        }
    }

    /// Returns the arguments as text, for a command to copy.
    fn text(&self) -> String {
        use clap::ValueEnum;
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map(|value| value.get_name().to_owned()).unwrap_or_default()
        };
        let profile = format!("--profile {}", name(self.profile.to_possible_value()));
        match self.mutation {
            Some(bug) => format!("{profile} --mutation {bug}"),
            None => profile,
        }
    }
}

#[derive(Args)]
struct RunArgs {
    /// Number of seeds to play.
    #[arg(long, default_value_t = 1_000, conflicts_with = "minutes")]
    seeds: u64,
    /// Minutes to play, instead of a number of seeds.
    #[arg(long)]
    minutes: Option<f64>,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Play every N-th world twice and compare the histories (I29); 0 disables this. Their histories are kept whole.
    #[arg(long, default_value_t = 16)]
    twice_every: u64,
    /// Number of seeds to play in parallel [default: number of processors].
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// Do not judge: measures the cost of the simulator without its checker.
    #[arg(long)]
    unjudged: bool,
    /// Commit under test, for the failure report.
    #[arg(long, env = "BELFRY_COMMIT", default_value = "unknown")]
    commit: String,
    /// File for the results, for the results page.
    #[arg(long, conflicts_with = "unjudged")]
    results: Option<PathBuf>,
    /// Date of the run, for that file.
    #[arg(long, env = "BELFRY_DATE", default_value = "unknown")]
    date: String,
    #[command(flatten)]
    world: WorldArgs,
}

#[derive(Args)]
struct ReplayArgs {
    /// Seed to play.
    seed: u64,
    /// Remove faults that are not needed to reproduce the failure.
    #[arg(long)]
    shrink: bool,
    /// File for the history.
    #[arg(long)]
    history: Option<PathBuf>,
    #[command(flatten)]
    world: WorldArgs,
}

impl RunArgs {
    /// Returns the run's entry on the results page, for this number of worlds.
    fn named(&self, worlds: u64) -> Run {
        let Self { seed, commit, date, world, .. } = self;
        Run {
            name: "simulator".into(),
            commit: commit.clone(),
            date: date.clone(),
            setting: format!("virtual time, modelled store, network and workers ({})", world.text()),
            seed: *seed,
            replay: format!("make sim SEED={seed} SEEDS={worlds}"),
        }
    }
}

fn main() -> Result<ExitCode> {
    match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Replay(args) => replay(&args),
        Command::Check { file } => check(&file),
        Command::Mutations(args) => mutations(&args),
    }
}

fn run(args: &RunArgs) -> Result<ExitCode> {
    let begin = Instant::now();
    let threads = args.threads.map_or_else(available_parallelism, Ok)?;
    let series = Series {
        args,
        begin,
        until: args.minutes.map(|minutes| begin + Duration::from_secs_f64(minutes.max(0.0) * 60.0)),
        next: AtomicU64::new(args.seed),
        totals: Mutex::new(Totals::new(begin)),
    };
    thread::scope(|scope| (0..threads.get()).for_each(|_| drop(scope.spawn(|| series.work()))));
    let totals = series.totals.into_inner().expect("no thread panics while it holds the lock");
    if let Some((plan, played)) = totals.failed {
        return Ok(failed(args, &plan, &played));
    }
    let verdict = if args.unjudged { "not judged" } else { "without violations" };
    println!("{} worlds {verdict}: {}", totals.worlds, figures(&totals.stats, begin.elapsed()));
    if let Some(path) = &args.results {
        let results = totals.tally.results(args.named(totals.worlds), begin.elapsed(), totals.stats.inputs);
        write(path, &results)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A series of seeds; each thread takes the next seed.
struct Series<'a> {
    args: &'a RunArgs,
    begin: Instant,
    until: Option<Instant>,
    next: AtomicU64,
    totals: Mutex<Totals>,
}

/// Totals over all threads.
struct Totals {
    stats: Stats,
    worlds: u64,
    tally: Tally,
    told: Instant,
    /// The failing world with the lowest seed: worlds of lower seeds started before it, and are waited for.
    failed: Option<(Plan, Played)>,
}

impl Totals {
    fn new(told: Instant) -> Self {
        Self { stats: Stats::default(), worlds: 0, tally: Tally::default(), told, failed: None }
    }
}

impl Series<'_> {
    fn work(&self) {
        while let Some(seed) = self.next_seed() {
            let plan = self.args.world.plan(seed);
            let played = self.play(&plan);
            let mut totals = self.totals.lock().expect("no thread panics while it holds the lock");
            if played.wrong().is_some() {
                if totals.failed.as_ref().is_none_or(|(known, _)| known.seed > seed) {
                    totals.failed = Some((plan, played));
                }
                return;
            }
            if self.args.results.is_some() {
                totals.tally.add(&played.history, &played.report);
            }
            totals.worlds += 1;
            totals.stats += played.stats;
            if totals.told.elapsed() >= Duration::from_secs(10) {
                totals.told = Instant::now();
                eprintln!("{} worlds, {}", totals.worlds, figures(&totals.stats, self.begin.elapsed()));
            }
        }
    }

    fn next_seed(&self) -> Option<u64> {
        let seed = self.next.fetch_add(1, Ordering::Relaxed);
        let is_over = match self.until {
            Some(until) => Instant::now() >= until,
            None => seed - self.args.seed >= self.args.seeds,
        };
        let failed =
            || self.totals.lock().expect("no thread panics while it holds the lock").failed.is_some();
        (!is_over && !failed()).then_some(seed)
    }

    fn play(&self, plan: &Plan) -> Played {
        let RunArgs { unjudged, results, twice_every, .. } = self.args;
        if *unjudged {
            return run::play_discarding(plan);
        }
        let twice = *twice_every > 0 && plan.seed.is_multiple_of(*twice_every);
        if !twice && results.is_none() {
            return run::play_in_slices(plan);
        }
        let mut played = run::play(plan);
        if twice && played.wrong().is_none() {
            played.report.violations.extend(run::compare_replay(plan, &played));
        }
        played
    }
}

fn figures(stats: &Stats, real: Duration) -> String {
    let seconds = real.as_secs_f64().max(1e-9);
    let Stats { inputs, commits, jobs, tasks, faults, virtual_millis, .. } = *stats;
    format!(
        "{jobs} jobs, {tasks} tasks, {commits} commits, {faults} faults; {:.1} h of virtual time in {seconds:.1} s \
         ({:.0} times real time), {:.0} engine inputs/s",
        virtual_millis as f64 / 3.6e6,
        virtual_millis as f64 / 1e3 / seconds,
        inputs as f64 / seconds,
    )
}

fn failed(args: &RunArgs, plan: &Plan, played: &Played) -> ExitCode {
    eprintln!("seed {} fails at commit {}\n{}", plan.seed, args.commit, played.show());
    eprintln!("shrinking {} faults …", plan.faults.len());
    if let Some(wrong) = played.wrong() {
        let (small, shown) = run::shrink(plan, &wrong);
        show_small(&small, &shown);
    }
    eprintln!("replay: belfry-sim replay {} --shrink {}", plan.seed, args.world.text());
    ExitCode::FAILURE
}

fn show_small(plan: &Plan, shown: &Played) {
    match plan.faults.len() {
        1 => eprintln!("1 fault is enough:"),
        faults => eprintln!("{faults} faults are enough:"),
    }
    plan.faults.iter().for_each(|fault| eprintln!("  {fault}"));
    eprintln!("{}", shown.show());
}

fn replay(args: &ReplayArgs) -> Result<ExitCode> {
    let begin = Instant::now();
    let plan = args.world.plan(args.seed);
    let mut played = run::play(&plan);
    let wrong = played.wrong();
    if let (Some(wrong), true) = (&wrong, args.shrink) {
        let (small, shown) = run::shrink(&plan, wrong);
        show_small(&small, &shown);
        played = shown;
    } else {
        eprint!("{}", played.show());
    }
    if let Some(path) = &args.history {
        let what = || format!("cannot write the history to `{}`", path.display());
        let mut file = BufWriter::new(File::create(path).with_context(what)?);
        played.history.write(&mut file).with_context(what)?;
        file.flush().with_context(what)?;
    }
    let fingerprint = played.history.fingerprint();
    println!("seed {} {fingerprint:016x} {}", args.seed, figures(&played.stats, begin.elapsed()));
    Ok(if wrong.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn mutations(args: &MutationsArgs) -> Result<ExitCode> {
    anyhow::ensure!(
        mutation::ARE_BUILT_IN,
        "a release build contains no bugs in the cores: build without `--release`, as `make sim-mutations` does"
    );
    let (mut all, mut missed) = (Vec::new(), 0);
    println!("{:<40} {:>6}   broken", "bug", "worlds");
    for case in CASES.iter().filter(|case| args.only.is_empty() || args.only.contains(&case.bug)) {
        let Some(found) = case.look() else {
            eprintln!("{}: not found within {} worlds", case.bug, case.within);
            missed += 1;
            continue;
        };
        println!("{found}");
        all.push(found);
    }
    if missed > 0 {
        return Ok(ExitCode::FAILURE);
    }
    args.keep.keep(all)?;
    Ok(ExitCode::SUCCESS)
}

fn check(file: &PathBuf) -> Result<ExitCode> {
    let opened = File::open(file).with_context(|| format!("cannot open the history `{}`", file.display()))?;
    let history = History::read(BufReader::new(opened))
        .with_context(|| format!("cannot read the history `{}`", file.display()))?;
    let report = sim::check::check(&history);
    for violation in &report.violations {
        print!("{}", violation.show(&history));
    }
    if report.schedules_not_judged > 0 {
        println!(
            "{} schedules were not judged: the oracle does not support their rules",
            report.schedules_not_judged
        );
    }
    for not in report.not_judged {
        println!("{} was not judged: {}", not.invariant, not.what);
    }
    if report.counts.is_empty() {
        println!("{} events, no violation", history.events.len());
        return Ok(ExitCode::SUCCESS);
    }
    for (invariant, count) in &report.counts {
        println!("{invariant}: {count} in total");
    }
    Ok(ExitCode::FAILURE)
}
