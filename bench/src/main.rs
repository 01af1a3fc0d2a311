//! Benchmarks: the figures that the docs give, measured by anyone on any machine.
//!
//! ```text
//! cargo run --release -p belfry-bench -- noop
//! cargo run --release -p belfry-bench -- all
//! ```
//!
//! Each benchmark is a module that gives [`Figure`](report::Figure)s, round by round. A table of their
//! medians goes to stdout, and with `--results FOLDER` everything to a [file](kept) for each, of which
//! `make bench-page` makes the book's page. Data lies on the disk of the repository's `target`
//! folder, or of `BELFRY_BENCH_DIR`: a temporary folder may be in memory, where a sync costs nothing.

mod core;
mod costs;
mod growth;
mod history;
mod kept;
mod latency;
mod limits;
mod load;
mod logs;
mod memory;
mod moves;
mod noop;
#[cfg(test)]
mod page;
mod place;
mod reads;
mod report;
mod schedules;
mod spawn;
mod stamps;
mod submit;
mod workflows;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::kept::Kept;
use crate::report::Figure;

/// Measures Belfry on this machine.
#[derive(Debug, Parser)]
#[command(name = "belfry-bench")]
struct Arguments {
    /// What to measure.
    #[arg(value_enum, default_value_t = Name::All)]
    name: Name,
    /// How long each rate is measured.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    seconds: u64,
    /// Of the rates of `latency` this one alone.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<u64>,
    /// How many jobs wait for `memory`, `failover-million` and `handover-million`.
    #[arg(long, default_value_t = 1_000_000, value_name = "COUNT")]
    jobs: usize,
    /// How many schedules there are for `schedules-idle`.
    #[arg(long, default_value_t = 1_000_000, value_name = "COUNT")]
    schedules: usize,
    /// How many ended jobs there are for `reads`, and at most for `growth`.
    #[arg(long, default_value_t = 10_000_000, value_name = "COUNT")]
    history: usize,
    /// How often each is measured [default: 5, and 1 for those that take minutes].
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// Keeps the figures as NAME.json in this folder.
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// All of them, one after the other.
    All,
    /// Durable submissions a second, in batches of 100.
    SubmitBatch,
    /// Durable submissions a second, one by one over 64 connections.
    SubmitSingle,
    /// Jobs a second through the whole path, with a worker that does nothing.
    Noop,
    /// What the work of each part of such a job takes alone.
    Limits,
    /// `noop` on PostgreSQL, with one server and with three.
    NoopPostgres,
    /// The leader of two servers is killed: until work is accepted, and started, again.
    Failover,
    /// The leader of two servers is drained: how long nothing starts.
    Handover,
    /// `failover` beside a million jobs that wait.
    FailoverMillion,
    /// `handover` beside a million jobs that wait.
    HandoverMillion,
    /// `/bin/true` through a real worker, against this machine's bare spawn rate.
    Spawn,
    /// From submission to the start of the task, at 10 to 5,000 submissions a second.
    Latency,
    /// Memory for a waiting job, and the cold start with many of them.
    Memory,
    /// A million schedules of which none is due: memory, cold start, and what they cost.
    SchedulesIdle,
    /// Fifty thousand schedules due in the same second.
    SchedulesBurst,
    /// Fifty thousand schedules due within a minute: how late they start.
    SchedulesMinute,
    /// Steps a second through diamonds, with a worker that does nothing.
    WorkflowSteps,
    /// From the end of a step to the start of the next one.
    WorkflowLatency,
    /// A list of 100,000 elements: its first start, until all are durable, memory.
    WorkflowMap,
    /// The check of a definition of 10,000 steps.
    WorkflowCheck,
    /// The engine with nothing around it.
    Engine,
    /// What a dashboard asks over a long history, while jobs go through.
    Reads,
    /// The cost of a job by how many there were before it, and by how many workers there are.
    Growth,
    /// What tasks write, until it can be read.
    Logs,
}

impl Name {
    const MEASURED: [Self; 23] = [
        Self::SubmitBatch,
        Self::SubmitSingle,
        Self::Noop,
        Self::Limits,
        Self::NoopPostgres,
        Self::Failover,
        Self::Handover,
        Self::FailoverMillion,
        Self::HandoverMillion,
        Self::Spawn,
        Self::Latency,
        Self::Memory,
        Self::SchedulesIdle,
        Self::SchedulesBurst,
        Self::SchedulesMinute,
        Self::WorkflowSteps,
        Self::WorkflowLatency,
        Self::WorkflowMap,
        Self::WorkflowCheck,
        Self::Engine,
        Self::Logs,
        Self::Reads,
        Self::Growth,
    ];

    /// How often it is measured where nobody says.
    fn rounds(self) -> usize {
        match self {
            Self::Memory
            | Self::SchedulesIdle
            | Self::Reads
            | Self::Growth
            | Self::FailoverMillion
            | Self::HandoverMillion => 1,
            _ => 5,
        }
    }
}

async fn measure(name: Name, arguments: &Arguments) -> anyhow::Result<Vec<Figure>> {
    let time = std::time::Duration::from_secs(arguments.seconds);
    match name {
        Name::SubmitBatch => submit::batches(time).await,
        Name::SubmitSingle => submit::singles(time).await,
        Name::Noop => noop::run(time).await,
        Name::Limits => limits::run(time).await,
        Name::NoopPostgres => noop::on_postgres(time).await,
        Name::Failover => moves::failover(time, 0).await,
        Name::Handover => moves::handover(time, 0).await,
        Name::FailoverMillion => moves::failover(time, arguments.jobs).await,
        Name::HandoverMillion => moves::handover(time, arguments.jobs).await,
        Name::Spawn => spawn::run(time).await,
        Name::Latency => latency::run(time, arguments.rate).await,
        Name::Memory => memory::run(arguments.jobs).await,
        Name::SchedulesIdle => schedules::idle(arguments.schedules).await,
        Name::SchedulesBurst => schedules::burst().await,
        Name::SchedulesMinute => schedules::minute().await,
        Name::WorkflowSteps => workflows::steps(time).await,
        Name::WorkflowLatency => workflows::latency().await,
        Name::WorkflowMap => workflows::map().await,
        Name::WorkflowCheck => workflows::check(),
        Name::Engine => core::run(time).await,
        Name::Logs => logs::run().await,
        Name::Reads => reads::run(arguments.history).await,
        Name::Growth => growth::run(arguments.history).await,
        Name::All => unreachable!("not measured by itself"),
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(&arguments))
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    client::install_crypto();
    let names = if arguments.name == Name::All { Name::MEASURED.to_vec() } else { vec![arguments.name] };
    for name in names {
        let rounds = arguments.rounds.unwrap_or(name.rounds());
        let mut rows = Vec::new();
        for _ in 0..rounds {
            report::add(&mut rows, measure(name, arguments).await?);
        }
        let title = name.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        report::print(&title, &rows);
        if let Some(folder) = &arguments.results {
            let again = format!("make bench BENCH={title} ROUNDS={rounds}");
            Kept::new(title, again, rows)?.write(folder)?;
        }
    }
    Ok(())
}
