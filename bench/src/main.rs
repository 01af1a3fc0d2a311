//! Benchmarks: the figures of the docs, which can be measured on any machine.
//!
//! ```text
//! cargo run --release -p belfry-bench -- noop
//! cargo run --release -p belfry-bench -- all
//! ```
//!
//! Each benchmark is a module that returns [`Figure`](report::Figure)s, round by round. A table of their medians is
//! printed to stdout. `--results FOLDER` writes a [file](kept) for each benchmark, from which `make bench-page`
//! generates the book's page. Data is stored on the disk of the repository's `target` folder, or in
//! `BELFRY_BENCH_DIR`: a temporary folder may be in memory, where fsync costs nothing.

mod core;
mod costs;
mod environment;
mod growth;
mod history;
mod latency;
mod leader_changes;
mod limits;
mod load;
mod logs;
mod memory;
mod noop;
#[cfg(test)]
mod page;
mod reads;
mod rebuild;
mod report;
mod results;
mod schedules;
mod services;
mod spawn;
mod stamps;
mod submit;
mod workflows;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::environment::Store;
use crate::report::Figure;
use crate::results::BenchmarkResult;

/// Benchmark Belfry on this machine.
#[derive(Debug, Parser)]
#[command(name = "belfry-bench")]
struct Arguments {
    /// Benchmark to run.
    #[arg(value_enum, default_value_t = Name::All)]
    name: Name,
    /// Duration of each measurement of a rate.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    seconds: u64,
    /// Only this rate of `latency`.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<u64>,
    /// Number of waiting jobs for `memory`, `failover-million` and `handover-million`.
    #[arg(long, default_value_t = 1_000_000, value_name = "COUNT")]
    jobs: usize,
    /// Number of schedules for `schedules-idle`.
    #[arg(long, default_value_t = 1_000_000, value_name = "COUNT")]
    schedules: usize,
    /// Number of ended jobs for `reads`, and maximum for `growth`.
    #[arg(long, default_value_t = 10_000_000, value_name = "COUNT")]
    history: usize,
    /// Number of rounds [default: 5, or 1 for benchmarks that take minutes].
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// Folder for the figures, as NAME.json.
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// All benchmarks, one after the other.
    All,
    /// Durable submissions per second, in batches of 100.
    SubmitBatch,
    /// Durable submissions per second, one by one over 64 connections.
    SubmitSingle,
    /// Jobs per second through the whole path, with a fake worker.
    Noop,
    /// Lower bound for the cost of each part of such a job.
    Limits,
    /// `noop` on PostgreSQL, with one server and with three.
    NoopPostgres,
    /// The leader of two servers on PostgreSQL is killed: time until a job is accepted, and until one is started.
    Failover,
    /// The leader of two servers on PostgreSQL is drained: longest time without a start.
    Handover,
    /// `failover` with a million waiting jobs.
    FailoverMillion,
    /// `handover` with a million waiting jobs.
    HandoverMillion,
    /// `noop` on the Raft store, with one server and with three.
    NoopRaft,
    /// `failover` on the Raft store, with three servers.
    FailoverRaft,
    /// `handover` on the Raft store, with three servers.
    HandoverRaft,
    /// A server on the Raft store is replaced while the others work, with a tenth of `--history` ended jobs.
    RebuildRaft,
    /// `/bin/true` through a real worker, compared with this machine's bare spawn rate.
    Spawn,
    /// Time from submission to the start of the task, at 10 to 5,000 submissions per second.
    Latency,
    /// Memory per waiting job, and cold start with many of them.
    Memory,
    /// A million idle schedules: memory, cold start, and CPU share.
    SchedulesIdle,
    /// Fifty thousand schedules that fire in the same second.
    SchedulesBurst,
    /// Fifty thousand schedules that fire within a minute: delay of their starts.
    SchedulesMinute,
    /// Steps per second through diamonds, with a fake worker.
    WorkflowSteps,
    /// Time from the end of a step to the start of the next one.
    WorkflowLatency,
    /// A list of 100,000 elements: first start, time until all are durable, memory.
    WorkflowMap,
    /// Validation of a definition with 10,000 steps.
    WorkflowCheck,
    /// A thousand services with ten thousand replicas: memory, CPU share, and the loss of a worker.
    Services,
    /// Delay of other jobs while a service with a thousand replicas is updated.
    ServiceUpdate,
    /// The engine alone.
    Engine,
    /// Dashboard requests over a long history, while jobs run.
    Reads,
    /// Cost of a job by length of the history, and by number of workers.
    Growth,
    /// Log output of tasks, until it can be read.
    Logs,
}

impl Name {
    const MEASURED: [Self; 29] = [
        Self::SubmitBatch,
        Self::SubmitSingle,
        Self::Noop,
        Self::Limits,
        Self::NoopPostgres,
        Self::Failover,
        Self::Handover,
        Self::FailoverMillion,
        Self::HandoverMillion,
        Self::NoopRaft,
        Self::FailoverRaft,
        Self::HandoverRaft,
        Self::RebuildRaft,
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
        Self::Services,
        Self::ServiceUpdate,
        Self::Engine,
        Self::Logs,
        Self::Reads,
        Self::Growth,
    ];

    /// Returns the default number of rounds.
    fn rounds(self) -> usize {
        match self {
            Self::Memory
            | Self::SchedulesIdle
            | Self::Services
            | Self::Reads
            | Self::Growth
            | Self::FailoverMillion
            | Self::HandoverMillion
            | Self::RebuildRaft => 1,
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
        Name::Failover => leader_changes::failover(time, Store::Postgres, 0).await,
        Name::Handover => leader_changes::handover(time, Store::Postgres, 0).await,
        Name::FailoverMillion => leader_changes::failover(time, Store::Postgres, arguments.jobs).await,
        Name::HandoverMillion => leader_changes::handover(time, Store::Postgres, arguments.jobs).await,
        Name::NoopRaft => noop::on_raft(time).await,
        Name::FailoverRaft => leader_changes::failover(time, Store::Raft, 0).await,
        Name::HandoverRaft => leader_changes::handover(time, Store::Raft, 0).await,
        Name::RebuildRaft => rebuild::run(time, arguments.history / 10).await,
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
        Name::Services => services::fleet().await,
        Name::ServiceUpdate => services::update(time).await,
        Name::Engine => core::run(time).await,
        Name::Logs => logs::run().await,
        Name::Reads => reads::run(arguments.history).await,
        Name::Growth => growth::run(arguments.history).await,
        Name::All => unreachable!("`all` is expanded before"),
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
            BenchmarkResult::new(title, again, rows)?.write(folder)?;
        }
    }
    Ok(())
}
