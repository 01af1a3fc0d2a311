//! Lower bounds for the cost of each part of a no-op job: the same rows, bytes and messages through the same
//! libraries, without a scheduler.
//!
//! Compared with the measurements of [`noop`](crate::noop), they show how much a part could be improved at most. Each
//! function states what its lower bound excludes.

use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use model::api::SubmitJobs;
use prost::Message;
use proto::v1;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use crate::costs::Costs;
use crate::environment;
use crate::load::{Load, batch};
use crate::noop::{self, BATCH, CONNECTIONS};
use crate::report::{Figure, Goal};

/// Number of jobs whose rows are inserted again.
const JOBS: u64 = 200_000;
/// Number of jobs of a commit.
const OF_A_COMMIT: u64 = 500;
/// Number of writes with fsync to the disk alone.
const COMMITS: u64 = 500;
/// Thread name of the bare server, to separate its CPU time from that of its clients.
const BARE_THREAD: &str = "bare-server";

/// Parts with a lower bound, with their names on the page.
pub(crate) const STORE: &str = "rows, put into the same tables by SQLite alone";
pub(crate) const DISK: &str = "disk: the log of these rows, written and synced, of wall time";
pub(crate) const HTTP: &str = "request and answer, by the same library";
pub(crate) const JSON: &str = "body of the request, read as JSON";
pub(crate) const MESSAGES: &str = "messages to and from its worker, written and read";

pub(crate) async fn run(time: Duration) -> anyhow::Result<Vec<Figure>> {
    let micros = |what: &str, value| Figure::new(what, value, "µs", Goal::None);
    let folder = environment::folder()?;
    let jobs = noop::Path::over(&folder, 1).await?.pass(JOBS).await?.jobs;
    let (from, to) = (folder.path().join("data/belfry.db"), folder.path().join("alone.db"));
    let (rows, log) = tokio::task::spawn_blocking(move || sqlite_alone(&from, &to, jobs)).await??;
    let path = folder.path().join("log");
    let disk = tokio::task::spawn_blocking(move || disk_alone(&path, log)).await??;
    let body = batch(&noop::job(), usize::try_from(BATCH)?);
    let http = http_alone(body.clone(), time).await?;
    let json = json_alone(&body, time)?;
    Ok(vec![
        micros(STORE, rows),
        Figure::new("bytes of the log of these rows", log, "bytes", Goal::None),
        micros(DISK, disk),
        micros(HTTP, http),
        micros(JSON, json),
        micros(MESSAGES, messages_alone(time)?),
    ])
}

/// Measures the CPU time of this thread.
fn on_processor<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, Duration)> {
    let now = || -> anyhow::Result<Duration> {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Ok(Duration::new(time.tv_sec.try_into()?, time.tv_nsec.try_into()?))
    };
    let begun = now()?;
    Ok((work()?, now()?.saturating_sub(begun)))
}

/// Returns the time per item in microseconds, for `of` items.
fn micros_each(time: Duration, of: u64) -> f64 {
    time.as_secs_f64() * 1e6 / of as f64
}

/// Reads every row of a store of ended jobs, and inserts it into the same tables of a new file. Uses one thread and
/// prepared statements, in key order, with a commit for every [`OF_A_COMMIT`] jobs. Returns microseconds and log
/// bytes per job.
///
/// Excludes rows that are deleted when a job ends, decisions about what to write, encoding, and syncs.
fn sqlite_alone(from: &Path, to: &Path, jobs: u64) -> anyhow::Result<(f64, f64)> {
    let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .with_context(|| format!("cannot open {}", from.display()))?;
    let mut target = Connection::open(to)?;
    target.set_prepared_statement_cache_capacity(64);
    target.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0;
         PRAGMA cache_size = -65536;",
    )?;
    let mut tables = Vec::new();
    let mut schema = source.prepare(
        "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'
         ORDER BY type DESC, rowid",
    )?;
    let mut found = schema.query([])?;
    while let Some(row) = found.next()? {
        target.execute_batch(row.get_ref(2)?.as_str()?)?;
        if row.get_ref(0)?.as_str()? == "table" {
            tables.push(Table::read(&source, row.get_ref(1)?.as_str()?)?);
        }
    }
    tables.retain(|table| !table.rows.is_empty());
    let commits = jobs.div_ceil(OF_A_COMMIT);
    let ((), time) = on_processor(|| {
        for commit in 0..commits {
            let transaction = target.transaction()?;
            for table in &tables {
                let mut insert = transaction.prepare_cached(&table.insert)?;
                let from = |commit: u64| {
                    usize::try_from(table.rows.len() as u64 * commit / commits).unwrap_or(usize::MAX)
                };
                for row in &table.rows[from(commit)..from(commit + 1)] {
                    insert.execute(rusqlite::params_from_iter(row))?;
                }
            }
            transaction.commit()?;
        }
        Ok(())
    })?;
    let log = to.with_extension("db-wal");
    let bytes = fs::metadata(&log).with_context(|| format!("cannot look at {}", log.display()))?.len();
    Ok((micros_each(time, jobs), bytes as f64 / jobs as f64))
}

/// A table with all of its rows.
struct Table {
    insert: String,
    rows: Vec<Vec<Value>>,
}

impl Table {
    fn read(source: &Connection, name: &str) -> anyhow::Result<Self> {
        let mut all = source.prepare(&format!("SELECT * FROM {name}"))?;
        let columns = all.column_count();
        let row = |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get(column)).collect();
        let rows = all.query_map([], row)?.collect::<Result<_, _>>()?;
        let places = vec!["?"; columns].join(", ");
        Ok(Self { insert: format!("INSERT INTO {name} VALUES ({places})"), rows })
    }
}

/// Returns the wall time per job in microseconds if its bytes are written over old ones and synced, for as many jobs
/// as share a commit. The old bytes are overwritten because a reused log does not grow.
fn disk_alone(path: &Path, bytes: f64) -> anyhow::Result<f64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    let block = vec![7_u8; (bytes * OF_A_COMMIT as f64) as usize];
    let mut file = File::create(path)?;
    for _ in 0..COMMITS {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    file.rewind()?;
    let begun = Instant::now();
    for _ in 0..COMMITS {
        file.write_all(&block)?;
        file.sync_data()?;
    }
    Ok(micros_each(begun.elapsed(), COMMITS * OF_A_COMMIT))
}

/// Returns the CPU time per job of a server that reads requests and returns answers of the same size as Belfry's.
async fn http_alone(body: String, time: Duration) -> anyhow::Result<f64> {
    let answer = Bytes::from(answer_to(body.clone()).await?);
    let threads = Builder::new_multi_thread().thread_name(BARE_THREAD).enable_all().build()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let listener = listener.into_std()?;
    threads.spawn(async move {
        let read = move |_: Bytes| async move { (StatusCode::CREATED, answer) };
        let listener = TcpListener::from_std(listener)?;
        axum::serve(listener, Router::new().route("/api/v1/jobs", post(read))).await
    });
    let spent = spent_on(&format!("http://{address}"), &body, time).await;
    threads.shutdown_background();
    spent
}

/// Returns the CPU time of the bare server per submitted job.
async fn spent_on(url: &str, body: &str, time: Duration) -> anyhow::Result<f64> {
    let load = Load::new(url, String::new())?;
    let this = harness::Pid(std::process::id().cast_signed());
    load.rate(body, usize::try_from(CONNECTIONS)?, Duration::from_millis(500)).await?;
    let (before, begun) = (Costs::of(this)?, Instant::now());
    let rate = load.rate(body, usize::try_from(CONNECTIONS)?, time).await?;
    let jobs = rate * begun.elapsed().as_secs_f64() * BATCH as f64;
    let costs = Costs::of(this)?.since(&before);
    let spent = costs.iter().filter(|(name, _)| name.starts_with(BARE_THREAD)).map(|(_, time)| *time);
    Ok(spent.sum::<Duration>().as_secs_f64() * 1e6 / jobs)
}

/// Returns Belfry's answer to this submission.
async fn answer_to(body: String) -> anyhow::Result<String> {
    let folder = environment::folder()?;
    let server = environment::server(folder.path()).await?;
    Load::of(&server)?.answer(body, None).await
}

/// Returns the CPU time to parse a job of this body into the API type.
fn json_alone(body: &str, time: Duration) -> anyhow::Result<f64> {
    let mut jobs = 0;
    let (_, spent) = on_processor(|| {
        let begun = Instant::now();
        while begun.elapsed() < time {
            jobs += serde_json::from_str::<SubmitJobs>(std::hint::black_box(body))?.jobs.len() as u64;
        }
        Ok(())
    })?;
    Ok(micros_each(spent, jobs))
}

/// Returns the CPU time for the messages of a job: an assignment and two acknowledgements are encoded, the reports of
/// a start and an end are decoded.
fn messages_alone(time: Duration) -> anyhow::Result<f64> {
    let spec = Bytes::from(serde_json::to_vec(&noop::job())?);
    let execution = |number: u64| format!("exec_{number:026}");
    let all = || (0..BATCH).map(|number| (execution(number), number << 16));
    let reports = all().flat_map(|(execution, fence)| {
        let started = v1::report::Body::Started(v1::Started { at_unix_ms: 1_800_000_000_000, pid: 4_321 });
        let started = v1::Report { execution_id: execution.clone(), fence, body: Some(started) };
        let how = v1::finished::How::Exited;
        [started, server::testing::finished(&execution, fence, how, Some(0))]
    });
    let heard = v1::ReportBatch { reports: reports.collect() }.encode_to_vec();
    let mut said = Vec::new();
    let mut jobs = 0;
    let (_, spent) = on_processor(|| {
        let begun = Instant::now();
        while begun.elapsed() < time {
            said.clear();
            let assignment = |(execution, fence): (String, u64)| v1::Assignment {
                job_id: execution.clone(),
                execution_id: execution,
                fence,
                number: 1,
                spec: spec.clone(),
                ..v1::Assignment::default()
            };
            v1::AssignmentBatch { assignments: all().map(assignment).collect() }.encode(&mut said)?;
            let acks = all().flat_map(|(execution_id, fence)| {
                [false, true].map(|last| v1::ReportAck {
                    execution_id: execution_id.clone(),
                    fence,
                    r#final: last,
                })
            });
            v1::ReportAckBatch { acks: acks.collect() }.encode(&mut said)?;
            let read = v1::ReportBatch::decode(std::hint::black_box(heard.as_slice()))?;
            jobs += read.reports.len() as u64 / 2;
        }
        Ok(())
    })?;
    Ok(micros_each(spent, jobs))
}
