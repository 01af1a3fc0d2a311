//! `belfry-sim`: play seeds, replay one, judge a history.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command speaks")]

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use sim::history::History;
use sim::results::{Run, Tally};
use sim::run::{self, Played, Wrong};
use sim::world::Stats;
use sim::world::plan::{Mutation, Plan, Profile};

/// Plays whole clusters from seeds, and judges what happened in them.
#[derive(Parser)]
#[command(name = "belfry-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Plays one seed after another until one fails.
    Run(RunArgs),
    /// Plays one seed, and shows what it came to.
    Replay(ReplayArgs),
    /// Judges a history: JSON lines of a simulated or a real cluster.
    Check {
        /// The file.
        file: PathBuf,
    },
}

#[derive(Args)]
struct WorldArgs {
    /// How large and how rough the worlds are.
    #[arg(long, value_enum, default_value_t)]
    profile: Profile,
    /// A deliberate bug, to see it found.
    #[arg(long, value_enum)]
    mutation: Option<Mutation>,
}

impl WorldArgs {
    fn plan(&self, seed: u64) -> Plan {
        let plan = Plan::draw(seed, self.profile);
        match self.mutation {
            Some(mutation) => plan.with(mutation),
            None => plan,
        }
    }

    /// The arguments again, for a command to copy.
    fn text(&self) -> String {
        use clap::ValueEnum;
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map(|value| value.get_name().to_owned()).unwrap_or_default()
        };
        let profile = format!("--profile {}", name(self.profile.to_possible_value()));
        match self.mutation {
            Some(mutation) => format!("{profile} --mutation {}", name(mutation.to_possible_value())),
            None => profile,
        }
    }
}

#[derive(Args)]
struct RunArgs {
    /// How many seeds.
    #[arg(long, default_value_t = 1_000, conflicts_with = "minutes")]
    seeds: u64,
    /// For how long instead.
    #[arg(long)]
    minutes: Option<f64>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Every so many worlds are played twice and compared (I29); 0 for none.
    #[arg(long, default_value_t = 16)]
    twice_every: u64,
    /// Judge nothing: measures what the simulator costs without its checker.
    #[arg(long)]
    unjudged: bool,
    /// The commit that is tested, for the report of a failure.
    #[arg(long, env = "BELFRY_COMMIT", default_value = "unknown")]
    commit: String,
    /// Write what it came to into this file, for the page of results.
    #[arg(long, conflicts_with = "unjudged")]
    results: Option<PathBuf>,
    /// The day, for that file.
    #[arg(long, env = "BELFRY_DATE", default_value = "unknown")]
    date: String,
    #[command(flatten)]
    world: WorldArgs,
}

#[derive(Args)]
struct ReplayArgs {
    /// The seed.
    seed: u64,
    /// Leave out faults that are not needed to show what is wrong.
    #[arg(long)]
    shrink: bool,
    /// Write the history into this file.
    #[arg(long)]
    history: Option<PathBuf>,
    #[command(flatten)]
    world: WorldArgs,
}

impl RunArgs {
    /// How the page of results names such a run of so many worlds.
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
    }
}

fn run(args: &RunArgs) -> Result<ExitCode> {
    let begin = Instant::now();
    let until = args.minutes.map(|minutes| begin + Duration::from_secs_f64(minutes.max(0.0) * 60.0));
    let (mut total, mut worlds, mut told) = (Stats::default(), 0, begin);
    let mut tally = Tally::default();
    for seed in args.seed.. {
        if until.map_or(worlds >= args.seeds, |until| Instant::now() >= until) {
            break;
        }
        let plan = args.world.plan(seed);
        let mut played = if args.unjudged { run::play_unjudged(&plan) } else { run::play(&plan) };
        if args.twice_every > 0 && seed % args.twice_every == 0 && played.wrong().is_none() {
            played.report.violations.extend(run::differs_again(&plan, &played));
        }
        if let Some(wrong) = played.wrong() {
            return Ok(failed(args, &plan, &played, &wrong));
        }
        if args.results.is_some() {
            tally.add(&played.history, &played.report);
        }
        worlds += 1;
        total += played.stats;
        if told.elapsed() >= Duration::from_secs(10) {
            told = Instant::now();
            eprintln!("{worlds} worlds, {}", figures(&total, begin.elapsed()));
        }
    }
    let verdict = if args.unjudged { "not judged" } else { "without a violation" };
    println!("{worlds} worlds {verdict}: {}", figures(&total, begin.elapsed()));
    if let Some(path) = &args.results {
        let results = tally.results(args.named(worlds), begin.elapsed(), total.inputs);
        let text = serde_json::to_string_pretty(&results)?;
        std::fs::write(path, text + "\n")
            .with_context(|| format!("cannot write the results to `{}`", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn figures(stats: &Stats, real: Duration) -> String {
    let seconds = real.as_secs_f64().max(1e-9);
    let Stats { inputs, commits, jobs, tasks, faults, virtual_millis } = *stats;
    format!(
        "{jobs} jobs, {tasks} tasks, {commits} commits, {faults} faults; {:.1} h of virtual time in {seconds:.1} s \
         ({:.0} times real time), {:.0} engine inputs/s",
        virtual_millis as f64 / 3.6e6,
        virtual_millis as f64 / 1e3 / seconds,
        inputs as f64 / seconds,
    )
}

fn failed(args: &RunArgs, plan: &Plan, played: &Played, wrong: &Wrong) -> ExitCode {
    eprintln!("seed {} fails at commit {}\n{}", plan.seed, args.commit, played.show());
    eprintln!("shrinking {} faults …", plan.faults.len());
    let (small, shown) = run::shrink(plan, wrong);
    show_small(&small, &shown);
    eprintln!("replay: belfry-sim replay {} --shrink {}", plan.seed, args.world.text());
    ExitCode::FAILURE
}

fn show_small(plan: &Plan, shown: &Played) {
    eprintln!("{} faults are enough:", plan.faults.len());
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
            "{} schedules were not judged: the oracle does not know their rules",
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
        println!("{invariant}: {count} in all");
    }
    Ok(ExitCode::FAILURE)
}
