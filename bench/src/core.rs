//! Benchmark of the engine alone, or with its store only: no HTTP, no gRPC, no processes.
//!
//! A simulated worker in the same loop starts and ends every job immediately. This measures the maximum rate of the
//! engine and the cost of the store, and creates a long history quickly.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::input::ExecutionEnd;
use engine::{Config, Effect, Engine, Input, Join, NewJob, Report, Session, Ticket};
use harness::Pid;
use model::id::{Epoch, IdSource};
use model::record::{EventKind, JobHead, Lease, Outcome, Usage};
use model::worker::{Capabilities, Capacity, Health};
use model::{Bytes, JobSpec, Millicores, ShardId, Timestamp, WorkerId};
use store::sqlite::{Options, SqliteStore};
use store::{Commits as _, Leases as _};

use crate::costs::Costs;
use crate::report::{Figure, Goal};

/// Number of jobs that are submitted, and then ended, in one commit each.
const BATCH: usize = 1_000;
const SHARDS: u16 = 16;

/// An engine, its store if any, and a simulated worker.
pub(crate) struct Core {
    engine: Engine,
    store: Option<(SqliteStore, Vec<Lease>)>,
    now: Timestamp,
    worker: WorkerId,
    beats: u64,
    /// Status changes so far.
    pub(crate) transitions: u64,
}

const SESSION: Session = Session(1);

impl Core {
    /// Creates an engine without a store, whose clock shows `now`.
    pub(crate) fn alone(now: Timestamp) -> Self {
        let leases: Vec<_> =
            (0..SHARDS).map(|shard| Lease { shard: ShardId(shard), epoch: Epoch(1) }).collect();
        Self::new(&leases, None, now)
    }

    /// Creates an engine over a new store in this file.
    pub(crate) async fn over(file: &Path, now: Timestamp) -> anyhow::Result<Self> {
        let store = SqliteStore::open(file, Options { shards: SHARDS, ..Options::default() })?;
        let shards: Vec<_> = (0..SHARDS).map(ShardId).collect();
        let leases = store.acquire(&shards, "bench", model::Duration::from_secs(3_600)).await?;
        Ok(Self::new(&leases.clone(), Some((store, leases)), now))
    }

    fn new(leases: &[Lease], store: Option<(SqliteStore, Vec<Lease>)>, now: Timestamp) -> Self {
        let mut engine = Engine::new(Config { seed: 1, ..Config::default() }, leases, SHARDS, now);
        engine.start(now);
        let worker = WorkerId::from_bits(IdSource::default().next(now, ShardId(0), 1));
        engine.handle(now, Input::Join(Box::new(join(worker))));
        Self { engine, store, now, worker, beats: 0, transitions: 0 }
    }

    /// Passes this number of jobs through their whole lifecycle, batch by batch; engine time advances by `pace` per
    /// batch.
    pub(crate) async fn pass(
        &mut self,
        head: &Arc<JobHead>,
        jobs: usize,
        pace: model::Duration,
    ) -> anyhow::Result<()> {
        let actor: Arc<str> = "bench".into();
        for _ in 0..jobs.div_ceil(BATCH) {
            self.now = self.now + pace;
            self.beats += 1;
            let beat = Input::Heartbeat {
                worker: self.worker,
                session: SESSION,
                seq: self.beats,
                health: Health::default(),
            };
            self.engine.handle(self.now, beat);
            let new =
                || NewJob { head: Arc::clone(head), key: None, actor: Arc::clone(&actor), ended: Vec::new() };
            let jobs = (0..BATCH).map(|_| new()).collect();
            self.engine.handle(self.now, Input::Submit { ticket: Ticket(self.beats), jobs });
            let assigned = self.flush().await?;
            anyhow::ensure!(assigned.len() == BATCH, "only {} of {BATCH} jobs were placed", assigned.len());
            for effect in assigned {
                let Effect::Assign { worker, session, assignment } = effect else { continue };
                for report in [Report::Started, ended()] {
                    let (execution, fence) = (assignment.execution, assignment.fence);
                    self.engine.handle(self.now, Input::Report { worker, session, execution, fence, report });
                }
            }
            self.flush().await?;
        }
        Ok(())
    }

    /// Commits the decisions, and returns the assignments.
    async fn flush(&mut self) -> anyhow::Result<Vec<Effect>> {
        let mut assigned = Vec::new();
        loop {
            let output = self.engine.flush(self.now);
            let changed = |event: &&model::record::Event| matches!(event.kind, EventKind::Job { .. });
            self.transitions += output.batch.events.iter().filter(changed).count() as u64;
            if let Some((store, leases)) = &self.store {
                store.commit(leases, Arc::new(output.batch)).await?;
            }
            assigned
                .extend(output.effects.into_iter().filter(|effect| matches!(effect, Effect::Assign { .. })));
            if self.engine.is_idle() {
                return Ok(assigned);
            }
        }
    }

    /// Releases the shards, so that the store can be opened again.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        if let Some((store, leases)) = self.store {
            store.release(&leases).await?;
        }
        Ok(())
    }
}

fn join(worker: WorkerId) -> Join {
    Join {
        worker,
        session: SESSION,
        name: "bench".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        address: None,
        labels: BTreeMap::new(),
        capacity: Capacity {
            cpu: Millicores(u32::MAX),
            memory: Bytes(1 << 50),
            custom: BTreeMap::new(),
            slots: 100_000,
        },
        capabilities: Capabilities::of_processes(),
        held: Vec::new(),
    }
}

fn ended() -> Report {
    Report::Finished {
        how: ExecutionEnd::Succeeded,
        outcome: Outcome { exit_code: Some(0), ..Outcome::default() },
        usage: Usage::default(),
    }
}

/// Returns the engine's form of a job with this spec.
pub(crate) fn head(mut spec: JobSpec) -> Arc<JobHead> {
    spec.resources.cpu = Some(Millicores(1));
    spec.resources.memory = Some(Bytes(1 << 20));
    let body = spec.compact_json().into();
    Arc::new(JobHead { spec: Arc::new(spec), body, retry_of: None, origin: None, step: None, replica: None })
}

/// Measures transitions per second on one core, without a store.
pub(crate) async fn run(time: Duration) -> anyhow::Result<Vec<Figure>> {
    let this = Pid(std::process::id().cast_signed());
    let now = crate::history::now();
    let mut core = Core::alone(now);
    let head = head(JobSpec::command(["true"]));
    // One-time allocations are excluded from the measurement.
    core.pass(&head, 10 * BATCH, model::Duration::from_millis(1)).await?;
    let (before, transitions, begun) = (Costs::of(this)?, core.transitions, std::time::Instant::now());
    let mut jobs = 0;
    while begun.elapsed() < time {
        core.pass(&head, BATCH, model::Duration::from_millis(1)).await?;
        jobs += BATCH;
    }
    let spent: Duration = Costs::of(this)?.since(&before).into_iter().map(|(_, time)| time).sum();
    let (transitions, spent) = ((core.transitions - transitions) as f64, spent.as_secs_f64());
    Ok(vec![
        Figure::new(
            "transitions on one core, without a store",
            transitions / spent,
            "/s",
            Goal::AtLeast(1_000_000.0),
        ),
        Figure::new("transitions of a job", transitions / jobs as f64, "", Goal::None),
        Figure::new("time of a job", spent * 1e6 / jobs as f64, "µs", Goal::None),
    ])
}
