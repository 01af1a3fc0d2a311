//! `belfry-node-sim`: the real server and the real agent over a simulated network.
//!
//! ```text
//!  clients ──> servers ──> one store (SQLite)      one thread, one clock, one seed
//!                 ▲
//!              agents ──> the supervisor's core and journal, modelled tasks
//! ```
//!
//! In `belfry-sim` everything around the cores is simulated. Here that code is the product's: REST API, gRPC streams,
//! node, driver and store of the servers; sessions, heartbeats and reconnects of the agents. The network between them
//! is simulated by turmoil, and the clock is the paused clock of the runtime. The history is recorded in the same
//! format, and verified by the same checker.
//!
//! - [`scene`]: runs a cluster from its seed to its result. [`nemesis`]: injects faults.
//! - [`cluster`], [`servers`], [`machines`], [`clients`]: participants.
//! - [`mutations`]: deliberate bugs, each of which must be found.
//! - [`recorder`]: history and clock. [`system`]: random numbers and time of the operating system.
//!
//! # Invariants
//! - A seed gives the same result in every process, and each process runs only one seed: libraries draw random
//!   numbers per process, so a second world in the same process would get other numbers.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command speaks")]

mod clients;
mod cluster;
mod machines;
mod mutations;
mod nemesis;
mod recorder;
mod scene;
mod servers;
mod system;

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use mutation::Mutation;
use sim::results::BugResultOptions;

/// Runs real servers and agents over a simulated network, and checks the recorded history.
#[derive(Parser)]
#[command(name = "belfry-node-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Run seeds one after another until one fails.
    Run(RunArgs),
    /// Run seeds with each deliberate bug of agent and store until it is found.
    Mutations(MutationsArgs),
    /// Run one seed and show its result. Set `RUST_LOG` to show logs.
    Play(PlayArgs),
}

#[derive(Args)]
struct RunArgs {
    /// Number of seeds.
    #[arg(long, default_value_t = 50)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Run each seed that is divisible by this number twice, and compare the results; 0 disables it.
    #[arg(long, default_value_t = 10)]
    again: u64,
}

#[derive(Args)]
struct MutationsArgs {
    /// Maximum number of seeds per bug.
    #[arg(long, default_value_t = 80)]
    within: u64,
    /// Results of an earlier run; the seed that found a bug then is run first.
    #[arg(long, value_name = "FILE")]
    kept: Option<PathBuf>,
    #[command(flatten)]
    keep: BugResultOptions,
}

#[derive(Args)]
struct PlayArgs {
    /// The seed.
    seed: u64,
    /// File to which the history is written.
    #[arg(long)]
    history: Option<PathBuf>,
    /// Deliberate bug to activate.
    #[arg(long)]
    mutation: Option<Mutation>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Action::Run(args) => run(args),
        Action::Play(args) => play(args),
        Action::Mutations(args) => mutations::run(args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn play(args: &PlayArgs) -> Result<bool> {
    if let Some(mutation) = args.mutation {
        anyhow::ensure!(
            mutation::enable_in_process(mutation),
            "a release build has no deliberate bugs: run without `--release`"
        );
    }
    system::begin(args.seed);
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .with_timer(recorder::Elapsed)
        .init();
    let played = scene::play(args.seed)?;
    if let Some(path) = &args.history {
        let file = File::create(path).with_context(|| format!("cannot write `{}`", path.display()))?;
        played.history.write(BufWriter::new(file))?;
    }
    println!("seed {}: {}", args.seed, played.summary());
    for violation in &played.report.violations {
        println!("{}", violation.show(&played.history));
    }
    for complaint in &played.problems {
        println!("{complaint}");
    }
    Ok(played.is_ok())
}

/// A seed that is being run by its own process.
struct SeedProcess {
    seed: u64,
    child: Child,
    /// Output of the first run; `None` in the first run.
    before: Option<Vec<u8>>,
}

impl SeedProcess {
    fn start(seed: u64, before: Option<Vec<u8>>) -> Result<Self> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        let child = command.arg("play").arg(seed.to_string()).stdout(Stdio::piped()).spawn()?;
        Ok(Self { seed, child, before })
    }
}

fn run(args: &RunArgs) -> Result<bool> {
    let players = std::thread::available_parallelism().map_or(1, usize::from);
    let mut seeds = args.first..args.first + args.seeds;
    let mut playing = VecDeque::new();
    let (mut played, mut twice) = (0, 0);
    loop {
        while playing.len() < players
            && let Some(seed) = seeds.next()
        {
            playing.push_back(SeedProcess::start(seed, None)?);
        }
        let Some(SeedProcess { seed, child, before }) = playing.pop_front() else { break };
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        if before.as_ref().is_some_and(|before| *before != output.stdout) {
            let before = String::from_utf8_lossy(before.as_deref().unwrap_or_default());
            println!("I29: seed {seed} gave different results in two runs:\n{before}{said}");
            return Ok(false);
        }
        if !output.status.success() {
            println!("{said}\nreplay: belfry-node-sim play {seed} --history story.jsonl");
            return Ok(false);
        }
        if before.is_some() {
            twice += 1;
            continue;
        }
        print!("{said}");
        played += 1;
        if args.again > 0 && seed % args.again == 0 {
            playing.push_back(SeedProcess::start(seed, Some(output.stdout))?);
        }
    }
    println!("{played} seeds, {twice} of them twice: no violation found");
    Ok(true)
}
