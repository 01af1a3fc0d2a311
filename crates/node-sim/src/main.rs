//! `belfry-node-sim`: the real server and the real agent over a simulated network.
//!
//! ```text
//!  clients ──> servers ──> one store (SQLite)      one thread, one clock, one seed
//!                 ▲
//!              agents ──> the supervisor's core and journal, modelled tasks
//! ```
//!
//! Where `belfry-sim` has a model of everything around the cores, here the code around it is the product's:
//! REST API, gRPC lanes, node, driver and store on the servers; sessions, beats and reconnects of the agents.
//! The network between them is turmoil's, the clock is the runtime's, paused. What happens is written down
//! as by any other recorder, and judged by the checker.
//!
//! - [`scene`]: a cluster from its seed to its verdict. [`nemesis`]: what goes wrong in it.
//! - [`servers`], [`machines`], [`clients`]: who takes part.
//! - [`mutations`]: deliberate bugs, each of which must be found.
//! - [`recorder`]: the history, and the one clock. [`system`]: what the operating system says of time and chance.
//!
//! # Always true
//! - A seed plays the same in every process, and in each process there is one: libraries draw numbers for a whole
//!   process, so a second world in it would meet others.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command speaks")]

mod cast;
mod clients;
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
use sim::results::KeepBugs;

/// Plays real servers and agents over a simulated network, and judges what happened.
#[derive(Parser)]
#[command(name = "belfry-node-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Plays one seed after another until one fails.
    Run(RunArgs),
    /// Plays seeds with each deliberate bug of agent and store until it is found.
    Mutations(MutationsArgs),
    /// Plays one seed, and shows what it came to. `RUST_LOG` shows what the parts log.
    Play(PlayArgs),
}

#[derive(Args)]
struct RunArgs {
    /// How many seeds.
    #[arg(long, default_value_t = 50)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Plays one seed in so many twice, and compares.
    #[arg(long, default_value_t = 10)]
    again: u64,
}

#[derive(Args)]
struct MutationsArgs {
    /// In how many seeds each must be found.
    #[arg(long, default_value_t = 80)]
    within: u64,
    /// Results of an earlier run: the seed that found a bug then is played first.
    #[arg(long, value_name = "FILE")]
    kept: Option<PathBuf>,
    #[command(flatten)]
    keep: KeepBugs,
}

#[derive(Args)]
struct PlayArgs {
    /// The seed.
    seed: u64,
    /// Writes the history there.
    #[arg(long)]
    history: Option<PathBuf>,
    /// A deliberate bug, to see it found.
    #[arg(long)]
    mutation: Option<Mutation>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Action::Run(args) => run(args),
        Action::Play(args) => play(args),
        Action::Mutations(args) => mutations::look(args),
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
            mutation::everywhere(mutation),
            "a release build has no deliberate bugs: leave out `--release`"
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
    for complaint in &played.complaints {
        println!("{complaint}");
    }
    Ok(played.is_well())
}

/// A seed that is being played by a process of its own.
struct Player {
    seed: u64,
    child: Child,
    /// What it said the first time, where this is the second.
    before: Option<Vec<u8>>,
}

impl Player {
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
            playing.push_back(Player::start(seed, None)?);
        }
        let Some(Player { seed, child, before }) = playing.pop_front() else { break };
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        if before.as_ref().is_some_and(|before| *before != output.stdout) {
            let before = String::from_utf8_lossy(before.as_deref().unwrap_or_default());
            println!("I29: seed {seed} did not play the same twice:\n{before}{said}");
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
            playing.push_back(Player::start(seed, Some(output.stdout))?);
        }
    }
    println!("{played} seeds, {twice} of them twice: nothing found");
    Ok(true)
}
