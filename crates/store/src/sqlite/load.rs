//! All live rows, for an engine that takes over their shards.
//!
//! One thread reads the rows as they are and two decode them: parsing the specs takes longer than
//! reading. Everything is read from one state of the store. Rows that cannot be read are set aside,
//! and what cannot go on without them: a job goes with its newest execution, an execution with its
//! job.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, sync_channel};

use model::record::{JobHead, KeyRecord, Lease, LiveRow, QueueRecord, WorkerRecord};
use model::{ExecutionId, JobId, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params};
use tokio::sync::mpsc::Sender;

use super::codec::{
    Context, Damage, StateColumns, open_head, open_history, open_state, open_text, parse_spec,
};
use super::error::Failure;
use super::quarantine::{Damaged, Table};
use super::rows::{self, EXECUTION_COLUMNS, JOB_COLUMNS, Sorted};
use crate::Loaded;

/// Rows that travel together.
const CHUNK: usize = 1_024;
const DECODERS: usize = 2;

/// What was found, and what is to be set aside.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) loaded: Loaded,
    pub(super) damaged: Vec<Damaged>,
}

/// The receiver of the rows has gone away.
fn gone<T>(_: T) -> Failure {
    Failure::Store(crate::StoreError::Unavailable { source: "nobody takes the loaded rows".into() })
}

/// Sends every live row of the leased shards. Runs inside a read transaction.
pub(super) fn load(
    connection: &Connection,
    leases: &[Lease],
    rows: &Sender<Vec<LiveRow>>,
) -> Result<Outcome, Failure> {
    let shards = Shards::leased(connection, leases)?;
    let mut loading = Loading { connection, shards, rows, sent: 0, damaged: Vec::new() };
    loading.workers_and_queues()?;
    loading.keys()?;
    let (executions, lost) = loading.executions()?;
    let bad_jobs = loading.jobs(&lost)?;
    loading.send_executions(executions, &bad_jobs)?;
    let now = connection.query_row("SELECT now FROM meta", [], |row| row.get(0))?;
    let Loading { sent, damaged, .. } = loading;
    let quarantined = damaged.len() as u64;
    let loaded = Loaded { now: Timestamp::from_micros(now), rows: sent + quarantined, quarantined };
    Ok(Outcome { loaded, damaged })
}

/// The shards whose rows are wanted.
struct Shards(Vec<bool>);

impl Shards {
    fn leased(connection: &Connection, leases: &[Lease]) -> Result<Self, Failure> {
        let mut holds = connection
            .prepare("SELECT 1 FROM shards WHERE shard = ?1 AND epoch = ?2 AND owner IS NOT NULL")?;
        let mut wanted = vec![false; usize::from(u16::MAX) + 1];
        for lease in leases {
            if !holds.exists(params![lease.shard.0, lease.epoch.0])? {
                return Err(Failure::Fenced(lease.shard));
            }
            wanted[usize::from(lease.shard.0)] = true;
        }
        Ok(Self(wanted))
    }

    fn has(&self, job: JobId) -> bool {
        self.0[usize::from(job.shard().0)]
    }
}

/// A job as it was read, before it is decoded.
struct RawJob {
    id: JobId,
    columns: StateColumns,
    state: Vec<u8>,
    history: Vec<u8>,
    head: Vec<u8>,
}

impl RawJob {
    fn read(row: &Row<'_>, id: JobId) -> Result<Self, Damage> {
        let blob = |index: usize, column: &'static str| {
            row.get::<_, Vec<u8>>(index).map_err(|error| Damage::decode(column, error))
        };
        let columns = rows::state_columns(row)?;
        Ok(Self {
            id,
            columns,
            state: blob(4, "state")?,
            head: blob(5, "head")?,
            history: blob(6, "history")?,
        })
    }

    fn decode(&self) -> Result<LiveRow, Damage> {
        let mut state = open_state(self.id, &self.columns, &self.state)?;
        if state.status.is_final() {
            let found = state.status.code().into();
            return Err(Damage::Value { column: "status", what: "status of a live job", found });
        }
        state.history = open_history(self.id, &self.history)?;
        let (body, retry_of) = open_head(self.id, &self.head)?;
        let spec = parse_spec(body)?.into();
        let head = JobHead { spec, body: body.into(), retry_of };
        Ok(LiveRow::Job { id: self.id, head, state: Box::new(state) })
    }
}

fn id_key(bits: u128) -> Value {
    Value::Blob(bits.to_be_bytes().to_vec())
}

struct Loading<'a> {
    connection: &'a Connection,
    shards: Shards,
    rows: &'a Sender<Vec<LiveRow>>,
    sent: u64,
    damaged: Vec<Damaged>,
}

impl Loading<'_> {
    fn send(&mut self, sorted: Sorted<LiveRow>) -> Result<(), Failure> {
        self.damaged.extend(sorted.damaged);
        self.sent += sorted.good.len() as u64;
        if !sorted.good.is_empty() {
            self.rows.blocking_send(sorted.good).map_err(gone)?;
        }
        Ok(())
    }

    fn send_all(&mut self, rows: Vec<LiveRow>) -> Result<(), Failure> {
        let mut rows = rows.into_iter();
        loop {
            let chunk: Vec<_> = rows.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                return Ok(());
            }
            self.send(Sorted { good: chunk, damaged: Vec::new() })?;
        }
    }

    fn workers_and_queues(&mut self) -> Result<(), Failure> {
        let workers = workers(self.connection)?;
        let queues = queues(self.connection)?;
        self.damaged.extend(workers.damaged.into_iter().chain(queues.damaged));
        self.send_all(workers.good.into_iter().map(LiveRow::Worker).collect())?;
        self.send_all(queues.good.into_iter().map(LiveRow::Queue).collect())
    }

    fn keys(&mut self) -> Result<(), Failure> {
        let mut statement = self.connection.prepare("SELECT key, body, job, expires_at FROM keys")?;
        let mut found = statement.query([])?;
        let mut chunk = Sorted::default();
        while let Some(row) = found.next()? {
            match key(row) {
                Ok(key) if !self.shards.has(key.job) => continue,
                decoded => chunk.push(Table::Keys, row, decoded.map(LiveRow::Key))?,
            }
            if chunk.good.len() >= CHUNK {
                self.send(std::mem::take(&mut chunk))?;
            }
        }
        self.send(chunk)
    }

    /// The executions that can be read, and those that cannot.
    ///
    /// They wait here until the jobs are known: there are far fewer of them than of jobs.
    fn executions(&mut self) -> Result<(Vec<LiveRow>, HashSet<ExecutionId>), Failure> {
        let mut statement =
            self.connection.prepare(&format!("SELECT {EXECUTION_COLUMNS} FROM executions t"))?;
        let mut found = statement.query([])?;
        let (mut good, mut lost) = (Sorted::default(), HashSet::new());
        while let Some(row) = found.next()? {
            let decoded = rows::execution(row).map(|found| found.record);
            match decoded {
                Ok(record) if !self.shards.has(record.job) => {}
                Ok(record) => good.good.push(LiveRow::Execution(Box::new(record))),
                Err(damage) => {
                    lost.extend(rows::id_bits(row, 0, "id").map(ExecutionId::from_bits));
                    good.push(Table::Executions, row, Err(damage))?;
                }
            }
        }
        self.damaged.append(&mut good.damaged);
        Ok((good.good, lost))
    }

    /// Sends the jobs, and answers with those that could not be read or go on.
    fn jobs(&mut self, lost: &HashSet<ExecutionId>) -> Result<HashSet<JobId>, Failure> {
        let (chunks, raw) = sync_channel::<Vec<RawJob>>(DECODERS * 2);
        let raw = Mutex::new(raw);
        let (rows, connection, shards) = (self.rows, self.connection, &self.shards);
        let (unread, decoded) = std::thread::scope(|scope| {
            let decoders: Vec<_> =
                (0..DECODERS).map(|_| scope.spawn(|| decode_jobs(&raw, rows, lost))).collect();
            let unread = read_jobs(connection, shards, |chunk| chunks.send(chunk).map_err(gone));
            drop(chunks);
            let decoded: Vec<_> = decoders.into_iter().map(|decoder| decoder.join()).collect();
            (unread, decoded)
        });
        let mut bad = Vec::new();
        for result in decoded {
            let (sent, found) = result.map_err(|_| Failure::Broken("decoding a job panicked".into()))??;
            self.sent += sent;
            bad.extend(found);
        }
        // After the decoders' own errors: if they stop early, sending to them fails for that.
        bad.extend(unread?);
        let jobs = bad.iter().filter_map(|(id, _)| *id).collect();
        self.damaged.extend(bad.into_iter().map(|(_, damaged)| damaged));
        Ok(jobs)
    }

    fn send_executions(&mut self, executions: Vec<LiveRow>, bad: &HashSet<JobId>) -> Result<(), Failure> {
        let (orphans, good): (Vec<_>, Vec<_>) = executions
            .into_iter()
            .partition(|row| matches!(row, LiveRow::Execution(record) if bad.contains(&record.job)));
        for row in orphans {
            if let LiveRow::Execution(record) = row {
                let reason = format!("its job {} cannot be read", record.job);
                let key = id_key(record.id.to_bits());
                self.damaged.push(Damaged { table: Table::Executions, key, reason });
            }
        }
        self.send_all(good)
    }
}

type BadJob = (Option<JobId>, Damaged);

fn read_jobs(
    connection: &Connection,
    shards: &Shards,
    mut send: impl FnMut(Vec<RawJob>) -> Result<(), Failure>,
) -> Result<Vec<BadJob>, Failure> {
    let mut statement = connection.prepare(&format!("SELECT {JOB_COLUMNS}, t.history FROM jobs t"))?;
    let mut found = statement.query([])?;
    let mut bad = Vec::new();
    let mut chunk = Vec::with_capacity(CHUNK);
    while let Some(row) = found.next()? {
        let id = rows::id_bits(row, 0, "id").map(JobId::from_bits);
        if let Ok(id) = id
            && !shards.has(id)
        {
            continue;
        }
        match id.clone().and_then(|id| RawJob::read(row, id)) {
            Ok(raw) => chunk.push(raw),
            Err(damage) => bad.push((id.ok(), Damaged::new(Table::Jobs, row.get(0)?, &damage))),
        }
        if chunk.len() == CHUNK {
            send(std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK)))?;
        }
    }
    send(chunk)?;
    Ok(bad)
}

fn decode_jobs(
    raw: &Mutex<Receiver<Vec<RawJob>>>,
    rows: &Sender<Vec<LiveRow>>,
    lost: &HashSet<ExecutionId>,
) -> Result<(u64, Vec<BadJob>), Failure> {
    let (mut sent, mut bad) = (0, Vec::new());
    loop {
        let next = raw.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(chunk) = next else { return Ok((sent, bad)) };
        let mut good = Vec::with_capacity(chunk.len());
        for job in chunk {
            let damaged = |reason| {
                (Some(job.id), Damaged { table: Table::Jobs, key: id_key(job.id.to_bits()), reason })
            };
            match job.decode() {
                Err(damage) => bad.push(damaged(damage.to_string())),
                Ok(row) => match lost_execution(&row, lost) {
                    Some(id) => bad.push(damaged(format!("its execution {id} cannot be read"))),
                    None => good.push(row),
                },
            }
        }
        sent += good.len() as u64;
        if !good.is_empty() {
            rows.blocking_send(good).map_err(gone)?;
        }
    }
}

fn lost_execution(row: &LiveRow, lost: &HashSet<ExecutionId>) -> Option<ExecutionId> {
    match row {
        LiveRow::Job { state, .. } => state.execution.filter(|id| lost.contains(id)),
        _ => None,
    }
}

fn key(row: &Row<'_>) -> Result<KeyRecord, Damage> {
    let expires_at = row.get(3).map_err(|error| Damage::decode("expires_at", error))?;
    Ok(KeyRecord {
        key: rows::id_bits(row, 0, "key")?,
        body: rows::id_bits(row, 1, "body")?,
        job: JobId::from_bits(rows::id_bits(row, 2, "job")?),
        expires_at: Timestamp::from_micros(expires_at),
    })
}

fn parse<T: for<'de> serde::Deserialize<'de>>(context: Context, row: &Row<'_>) -> Result<T, Damage> {
    let sealed = row
        .get_ref(1)
        .map_err(|error| Damage::decode("record", error))?
        .as_blob()
        .map_err(rows::misfit("record"))?;
    let json = open_text(context, "record", sealed)?;
    serde_json::from_str(json).map_err(|error| Damage::decode("record", error))
}

/// All workers, by name.
pub(super) fn workers(connection: &Connection) -> Result<Sorted<WorkerRecord>, Failure> {
    let mut statement = connection.prepare_cached("SELECT id, record FROM workers")?;
    let mut found = statement.query([])?;
    let mut sorted = Sorted::default();
    while let Some(row) = found.next()? {
        let record = rows::id_bits(row, 0, "id").and_then(|bits| parse(Context::of(bits), row));
        sorted.push(Table::Workers, row, record)?;
    }
    sorted.good.sort_by(|a: &WorkerRecord, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
    Ok(sorted)
}

/// All queues, by name.
pub(super) fn queues(connection: &Connection) -> Result<Sorted<QueueRecord>, Failure> {
    let mut statement = connection.prepare_cached("SELECT name, record FROM queues ORDER BY name")?;
    let mut found = statement.query([])?;
    let mut sorted = Sorted::default();
    while let Some(row) = found.next()? {
        let name: String = row.get(0)?;
        sorted.push(Table::Queues, row, parse(Context::of_text(&name), row))?;
    }
    Ok(sorted)
}
