//! Load of all live rows, for an engine that takes over their shards.
//!
//! One thread reads the rows and two threads decode them, because parsing the specs takes longer than reading. All rows
//! come from one snapshot. Rows that cannot be decoded are quarantined, together with rows that depend on them.
//! Calendars, schedules and backfills come in this order, before jobs: the engine receives a row after the rows that it
//! depends on.

mod jobs;
mod schedules;
mod services;
mod workflows;

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, sync_channel};

use model::record::{Lease, LiveRow, NamespaceRecord, QueueRecord, WorkerRecord};
use model::{ShardId, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, params};
use tokio::sync::mpsc::Sender;

use super::error::Failure;
use super::quarantine::DamagedRow;
use super::rows::Decoded;
use crate::Loaded;
use crate::codec::Context;
use crate::rows::{self, Fields, KEY_COLUMNS, Table};

/// Maximum number of rows in a chunk.
const CHUNK: usize = 1_024;
const DECODERS: usize = 2;

/// Result of a load, and the rows to quarantine.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) loaded: Loaded,
    pub(super) damaged: Vec<DamagedRow>,
}

/// Error for a receiver of rows that was dropped.
fn receiver_gone<T>(_: T) -> Failure {
    Failure::Store(crate::StoreError::Unavailable { source: "the receiver of the rows was dropped".into() })
}

/// Sends every live row of the leased shards. Runs inside a read transaction.
pub(super) fn load(
    connection: &Connection,
    leases: &[Lease],
    rows: &Sender<Vec<LiveRow>>,
) -> Result<Outcome, Failure> {
    load_shards(connection, Shards::leased(connection, leases)?, rows)
}

/// Sends every live row of all shards. Runs inside a read transaction.
pub(super) fn preload(connection: &Connection, rows: &Sender<Vec<LiveRow>>) -> Result<Outcome, Failure> {
    load_shards(connection, Shards(vec![true; usize::from(u16::MAX) + 1]), rows)
}

fn load_shards(
    connection: &Connection,
    shards: Shards,
    rows: &Sender<Vec<LiveRow>>,
) -> Result<Outcome, Failure> {
    let mut loading = Loading { connection, shards, rows, sent: 0, damaged: Vec::new() };
    loading.registry()?;
    loading.calendars()?;
    let lost_schedules = loading.schedules()?;
    loading.backfills(&lost_schedules)?;
    loading.workflows()?;
    loading.runs()?;
    loading.services()?;
    loading.run_keys()?;
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

/// Set of the shards to load.
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

    fn owns(&self, shard: ShardId) -> bool {
        self.0[usize::from(shard.0)]
    }
}

fn id_key(bits: u128) -> Vec<Value> {
    vec![Value::Blob(bits.to_be_bytes().to_vec())]
}

struct Loading<'a> {
    connection: &'a Connection,
    shards: Shards,
    rows: &'a Sender<Vec<LiveRow>>,
    sent: u64,
    damaged: Vec<DamagedRow>,
}

impl Loading<'_> {
    fn send(&mut self, sorted: Decoded<LiveRow>) -> Result<(), Failure> {
        self.damaged.extend(sorted.damaged);
        self.sent += sorted.good.len() as u64;
        if !sorted.good.is_empty() {
            self.rows.blocking_send(sorted.good).map_err(receiver_gone)?;
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
            self.send(Decoded { good: chunk, damaged: Vec::new() })?;
        }
    }

    /// Sends workers, queues and namespaces.
    fn registry(&mut self) -> Result<(), Failure> {
        let workers = workers(self.connection)?;
        let queues = queues(self.connection)?;
        let namespaces = namespaces(self.connection)?;
        self.damaged.extend(workers.damaged.into_iter().chain(queues.damaged).chain(namespaces.damaged));
        self.send_all(workers.good.into_iter().map(LiveRow::Worker).collect())?;
        self.send_all(queues.good.into_iter().map(LiveRow::Queue).collect())?;
        self.send_all(namespaces.good.into_iter().map(LiveRow::Namespace).collect())
    }

    fn run_keys(&mut self) -> Result<(), Failure> {
        let sql = "SELECT t.key, t.body, t.run, t.expires_at FROM run_keys t ORDER BY t.key";
        let mut statement = self.connection.prepare(sql)?;
        let mut found = statement.query([])?;
        let mut chunk = Decoded::default();
        while let Some(row) = found.next()? {
            match rows::run_key(row) {
                Ok(key) if !self.shards.owns(key.run.shard()) => continue,
                decoded => chunk.push(Table::RunKeys, row, decoded.map(LiveRow::RunKey))?,
            }
            if chunk.good.len() >= CHUNK {
                self.send(std::mem::take(&mut chunk))?;
            }
        }
        self.send(chunk)
    }

    fn keys(&mut self) -> Result<(), Failure> {
        let mut statement = self.connection.prepare(&format!("SELECT {KEY_COLUMNS} FROM keys t"))?;
        let mut found = statement.query([])?;
        let mut chunk = Decoded::default();
        while let Some(row) = found.next()? {
            match rows::key(row) {
                Ok(key) if !self.shards.owns(key.job.shard()) => continue,
                decoded => chunk.push(Table::Keys, row, decoded.map(LiveRow::Key))?,
            }
            if chunk.good.len() >= CHUNK {
                self.send(std::mem::take(&mut chunk))?;
            }
        }
        self.send(chunk)
    }

    /// Adds the result of the decoder threads, and returns the IDs of the rows that could not be decoded.
    fn take<Id: Eq + Hash>(&mut self, decoded: DecodedPart<Id>) -> HashSet<Id> {
        let (ids, damaged): (Vec<_>, Vec<_>) = decoded.bad.into_iter().unzip();
        self.sent += decoded.sent;
        self.damaged.extend(damaged);
        ids.into_iter().flatten().collect()
    }
}

/// Row that cannot be decoded or continued, with its ID if that is known.
type Bad<Id> = (Option<Id>, DamagedRow);

/// Result of the decoder threads: the number of sent rows, and the rows that could not be decoded.
struct DecodedPart<Id> {
    sent: u64,
    bad: Vec<Bad<Id>>,
}

/// Reads on this thread, and decodes and sends on others: parsing takes longer than reading.
fn decode_in_background<Raw: Send, Id: Send>(
    rows: &Sender<Vec<LiveRow>>,
    read: impl FnOnce(&mut dyn FnMut(Vec<Raw>) -> Result<(), Failure>) -> Result<Vec<Bad<Id>>, Failure>,
    decode: impl Fn(Raw) -> Result<LiveRow, Bad<Id>> + Sync,
) -> Result<DecodedPart<Id>, Failure> {
    let (chunks, raw) = sync_channel::<Vec<Raw>>(DECODERS * 2);
    let raw = Mutex::new(raw);
    let (unread, decoded) = std::thread::scope(|scope| {
        let decoders: Vec<_> =
            (0..DECODERS).map(|_| scope.spawn(|| decode_chunks(&raw, rows, &decode))).collect();
        let unread = read(&mut |chunk| chunks.send(chunk).map_err(receiver_gone));
        drop(chunks);
        let decoded: Vec<_> = decoders.into_iter().map(|decoder| decoder.join()).collect();
        (unread, decoded)
    });
    let mut all = DecodedPart { sent: 0, bad: Vec::new() };
    for result in decoded {
        let part = result.map_err(|_| Failure::Broken("decoder thread panicked".into()))??;
        all.sent += part.sent;
        all.bad.extend(part.bad);
    }
    // After the errors of the decoders: if a decoder stops early, sending to it fails as a consequence.
    all.bad.extend(unread?);
    Ok(all)
}

fn decode_chunks<Raw, Id>(
    raw: &Mutex<Receiver<Vec<Raw>>>,
    rows: &Sender<Vec<LiveRow>>,
    decode: impl Fn(Raw) -> Result<LiveRow, Bad<Id>>,
) -> Result<DecodedPart<Id>, Failure> {
    let mut decoded = DecodedPart { sent: 0, bad: Vec::new() };
    loop {
        let next = raw.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(chunk) = next else { return Ok(decoded) };
        let mut good = Vec::with_capacity(chunk.len());
        for row in chunk {
            match decode(row) {
                Ok(row) => good.push(row),
                Err(bad) => decoded.bad.push(bad),
            }
        }
        decoded.sent += good.len() as u64;
        if !good.is_empty() {
            rows.blocking_send(good).map_err(receiver_gone)?;
        }
    }
}

/// Returns all workers, ordered by name.
pub(super) fn workers(connection: &Connection) -> Result<Decoded<WorkerRecord>, Failure> {
    let mut statement = connection.prepare_cached("SELECT id, record FROM workers")?;
    let mut found = statement.query([])?;
    let mut sorted = Decoded::default();
    while let Some(row) = found.next()? {
        let record = row.bits(0, "id").and_then(|bits| rows::record(Context::of(bits), row));
        sorted.push(Table::Workers, row, record)?;
    }
    sorted.good.sort_by(|a: &WorkerRecord, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
    Ok(sorted)
}

/// Returns all queues, ordered by name.
pub(super) fn queues(connection: &Connection) -> Result<Decoded<QueueRecord>, Failure> {
    let mut statement = connection.prepare_cached("SELECT name, record FROM queues ORDER BY name")?;
    let mut found = statement.query([])?;
    let mut sorted = Decoded::default();
    while let Some(row) = found.next()? {
        let name: String = row.get(0)?;
        sorted.push(Table::Queues, row, rows::record(Context::of_text(&name), row))?;
    }
    Ok(sorted)
}

/// Returns all namespaces that have settings, ordered by name.
pub(super) fn namespaces(connection: &Connection) -> Result<Decoded<NamespaceRecord>, Failure> {
    let mut statement = connection.prepare_cached("SELECT name, record FROM namespaces ORDER BY name")?;
    let mut found = statement.query([])?;
    let mut sorted = Decoded::default();
    while let Some(row) = found.next()? {
        let name: String = row.get(0)?;
        sorted.push(Table::Namespaces, row, rows::record(Context::of_text(&name), row))?;
    }
    Ok(sorted)
}
