//! Cost of single decisions of the engine, without store or network: `make bench-micro`.
//!
//! Unlike the figures in the book, these are for developers of the engine: run them before and after a
//! change. Each figure states its number of items, so that the cost per item can be compared; preparation is
//! not measured.

use std::collections::BTreeMap;
use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use engine::input::ExecutionEnd;
use engine::{
    Config, Effect, Engine, Expected, Input, Join, NewJob, NewSchedule, Output, Report, ScheduleRequest,
    Session, Ticket,
};
use model::firing::ScheduleHead;
use model::id::{Epoch, IdSource};
use model::record::{Change, JobHead, Lease, LiveRow, Outcome, Usage};
use model::spec::Placement;
use model::timing::{Cron, Rule, Timing};
use model::worker::{Capabilities, Capacity, Health};
use model::{Bytes, Duration, JobSpec, Millicores, ScheduleSpec, ShardId, Timestamp, WorkerId};

/// Number of jobs in one request or report.
const JOBS: usize = 1_000;
const SESSION: Session = Session(1);

fn main() {
    divan::main();
}

/// Monday, 08:00 UTC.
fn begin() -> Timestamp {
    "2026-03-02T08:00:00Z".parse().expect("it is a time")
}

fn leases() -> Vec<Lease> {
    (0..16).map(|shard| Lease { shard: ShardId(shard), epoch: Epoch(1) }).collect()
}

/// Creates an engine with this many workers, each with sufficient capacity.
fn engine(workers: usize) -> (Engine, Vec<WorkerId>) {
    let now = begin();
    let mut engine = Engine::new(Config { seed: 1, ..Config::default() }, &leases(), 16, now);
    engine.start(now);
    let mut ids = IdSource::default();
    let workers: Vec<_> =
        (0..workers).map(|n| WorkerId::from_bits(ids.next(now, ShardId(0), n as u64))).collect();
    for &worker in &workers {
        engine.handle(now, Input::Join(Box::new(join(worker))));
    }
    let _joined = engine.flush(now);
    (engine, workers)
}

fn join(worker: WorkerId) -> Join {
    Join {
        worker,
        session: SESSION,
        name: "bench".into(),
        version: "1".into(),
        address: None,
        labels: BTreeMap::new(),
        capacity: Capacity {
            cpu: Millicores(u32::MAX),
            memory: Bytes(1 << 50),
            custom: BTreeMap::new(),
            slots: 1_000_000,
        },
        capabilities: Capabilities::of_processes(),
        held: Vec::new(),
    }
}

/// Creates the head of a job from a changed spec.
fn head(change: impl FnOnce(&mut JobSpec)) -> Arc<JobHead> {
    let mut spec = JobSpec::command(["true"]);
    spec.resources.cpu = Some(Millicores(1));
    spec.resources.memory = Some(Bytes(1 << 20));
    change(&mut spec);
    let body = spec.compact_json().into();
    Arc::new(JobHead { spec: Arc::new(spec), body, retry_of: None, origin: None, step: None, replica: None })
}

fn submission(jobs: usize, head: &Arc<JobHead>) -> Input {
    let new = || NewJob { head: Arc::clone(head), key: None, actor: "bench".into(), ended: Vec::new() };
    Input::Submit { ticket: Ticket(1), jobs: (0..jobs).map(|_| new()).collect() }
}

/// Flushes until the engine is idle.
fn settle(engine: &mut Engine, now: Timestamp) -> Vec<Output> {
    let mut outputs = Vec::new();
    loop {
        outputs.push(engine.flush(now));
        if engine.is_idle() {
            return outputs;
        }
    }
}

/// Returns reports that end all assigned executions.
fn ends(outputs: Vec<Output>) -> Vec<Input> {
    let assigned = outputs.into_iter().flat_map(|output| output.effects).filter_map(|effect| match effect {
        Effect::Assign { worker, session, assignment } => Some((worker, session, assignment)),
        _ => None,
    });
    let end = |(worker, session, assignment): (WorkerId, Session, engine::output::Assignment)| {
        let outcome = Outcome { exit_code: Some(0), ..Outcome::default() };
        let report = Report::Finished { how: ExecutionEnd::Succeeded, outcome, usage: Usage::default() };
        Input::Report { worker, session, execution: assignment.execution, fence: assignment.fence, report }
    };
    assigned.map(end).collect()
}

/// Jobs that wait because there is no worker.
#[divan::bench]
fn submit(bencher: Bencher) {
    let head = head(|_| {});
    bencher
        .counter(ItemsCount::new(JOBS))
        .with_inputs(|| (engine(0).0, submission(JOBS, &head)))
        .bench_local_values(|(mut engine, submission)| {
            engine.handle(begin(), submission);
            black_box(settle(&mut engine, begin()));
            engine
        });
}

/// Jobs that are submitted and placed on one of this many workers.
#[divan::bench(args = [1, 10, 100, 1_000])]
fn submit_and_place(bencher: Bencher, workers: usize) {
    let head = head(|spec| spec.placement = Placement::Spread);
    bencher
        .counter(ItemsCount::new(JOBS))
        .with_inputs(|| (engine(workers).0, submission(JOBS, &head)))
        .bench_local_values(|(mut engine, submission)| {
            engine.handle(begin(), submission);
            black_box(settle(&mut engine, begin()));
            engine
        });
}

/// Running jobs that succeed.
#[divan::bench]
fn finish(bencher: Bencher) {
    let head = head(|_| {});
    bencher
        .counter(ItemsCount::new(JOBS))
        .with_inputs(|| {
            let (mut engine, _) = engine(1);
            engine.handle(begin(), submission(JOBS, &head));
            let ends = ends(settle(&mut engine, begin()));
            assert_eq!(ends.len(), JOBS);
            (engine, ends)
        })
        .bench_local_values(|(mut engine, ends)| {
            ends.into_iter().for_each(|end| engine.handle(begin(), end));
            black_box(settle(&mut engine, begin()));
            engine
        });
}

/// One job that is submitted and placed while this many others wait for an eligible worker.
#[divan::bench(args = [1_000, 100_000])]
fn place_past_waiting(bencher: Bencher, waiting: usize) {
    let stuck = head(|spec| {
        spec.resources.custom.insert("gpu".into(), 1);
    });
    let head = head(|_| {});
    let (mut engine, _) = engine(1);
    engine.handle(begin(), submission(waiting, &stuck));
    let _waiting = settle(&mut engine, begin());
    bencher.bench_local(|| {
        engine.handle(begin(), submission(1, &head));
        let ends = ends(settle(&mut engine, begin()));
        ends.into_iter().for_each(|end| engine.handle(begin(), end));
        settle(&mut engine, begin())
    });
}

/// Jobs with `run_at` that become ready at the same time.
#[divan::bench]
fn become_due(bencher: Bencher) {
    let due = begin() + Duration::from_hours(1);
    let head = head(|spec| spec.run_at = Some(due));
    bencher
        .counter(ItemsCount::new(JOBS))
        .with_inputs(|| {
            let (mut engine, _) = engine(0);
            engine.handle(begin(), submission(JOBS, &head));
            let _put_off = settle(&mut engine, begin());
            engine
        })
        .bench_local_values(|mut engine| {
            black_box(settle(&mut engine, due));
            engine
        });
}

/// Schedules that fire at the same time; each creates a job.
#[divan::bench]
fn fire(bencher: Bencher) {
    let schedules: Vec<_> = (0..JOBS).map(schedule).collect();
    bencher
        .counter(ItemsCount::new(JOBS))
        .with_inputs(|| {
            let (mut engine, _) = engine(0);
            let request = Box::new(ScheduleRequest::Apply { schedules: schedules.clone() });
            engine.handle(begin(), Input::Schedule { ticket: Ticket(1), request, actor: "bench".into() });
            let _applied = settle(&mut engine, begin());
            engine
        })
        .bench_local_values(|mut engine| {
            black_box(settle(&mut engine, begin() + Duration::from_secs(300)));
            engine
        });
}

fn schedule(number: usize) -> NewSchedule {
    let timing = Timing { rules: vec![Rule::Cron(Cron::new("*/5 * * * *"))], ..Timing::default() };
    let spec = ScheduleSpec::new(format!("s{number}"), timing, JobSpec::command(["true"]));
    let body = serde_json::to_string(&spec).expect("a spec can be written").into();
    NewSchedule { head: Arc::new(ScheduleHead { spec: Arc::new(spec), body }), expected: Expected::Any }
}

/// One heartbeat of each of this many workers.
#[divan::bench(args = [1, 1_000])]
fn beat(bencher: Bencher, count: usize) {
    let (mut engine, workers) = engine(count);
    let mut seq = 0;
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        seq += 1;
        for &worker in &workers {
            let beat = Input::Heartbeat { worker, session: SESSION, seq, health: Health::default() };
            engine.handle(begin(), beat);
        }
        engine.take_grants()
    });
}

/// An engine that is restored from the rows of waiting jobs.
#[divan::bench(args = [1_000, 100_000], sample_count = 20)]
fn restore(bencher: Bencher, jobs: usize) {
    let (mut engine, _) = engine(0);
    let head = head(|_| {});
    engine.handle(begin(), submission(jobs, &head));
    let changes = settle(&mut engine, begin()).into_iter().flat_map(|output| output.batch.changes);
    let rows: Vec<_> = changes
        .filter_map(|change| match change {
            Change::Job { id, state, .. } => Some((id, state)),
            _ => None,
        })
        .collect();
    assert_eq!(rows.len(), jobs);
    bencher
        .counter(ItemsCount::new(jobs))
        .with_inputs(|| {
            let row = |(id, state): &(_, _)| LiveRow::Job {
                id: *id,
                head: (*head).clone(),
                state: Box::clone(state),
            };
            rows.iter().map(row).collect::<Vec<_>>()
        })
        .bench_local_values(|rows| {
            let mut engine = Engine::new(Config { seed: 1, ..Config::default() }, &leases(), 16, begin());
            for row in rows {
                engine.restore(row).expect("the rows are those of an engine");
            }
            engine.start(begin());
            engine
        });
}
