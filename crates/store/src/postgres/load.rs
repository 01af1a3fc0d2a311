//! Load of all live rows, for an engine that takes over their shards, or for a standby.
//!
//! Rows are read in pages, each in a short transaction of its own. A single snapshot would stay open while the engine
//! receives the rows, and would prevent the vacuum of rows that other servers change meanwhile.
//! For an owner, no other server changes these rows: the leases are checked before the first page, which waits for a
//! commit in flight, and after the last. For a standby the rows change between pages; but pages are ordered by key, so
//! a row that exists during the whole load is not missed. Specs are decoded on another thread while the next page is
//! read.
//!
//! An owner quarantines rows that cannot be decoded, together with rows that depend on them: a backfill with its
//! schedule, a run with any of its steps and added elements, a job with its newest execution, an execution with its
//! job.

use std::collections::{HashMap, HashSet};

use model::record::{Lease, LiveRow, NamespaceRecord, QueueRecord, WorkerRecord};
use model::{Duration, ExecutionId, JobId, ScheduleId, Timestamp};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;
use tokio_postgres::Row;

use super::connection::{Lane, Mode, Query, Stopped};
use super::error::{Failure, GUARD};
use super::guard::{Guard, first_invalid};
use super::param::{self, ints};
use super::quarantine::{DamagedRow, Key};
use super::rows::{Decoded, key_of};
use super::views;
use crate::codec::{Context, DecodeError, open_definition};
use crate::query::BackfillRow;
use crate::rows::{self, Fields, ParsedDefinition, RawJob, RawSchedule, Table};
use crate::{Loaded, StoreError};

/// Maximum number of rows in a page.
const PAGE: usize = 2_048;

/// Maximum wait of a page for a slow disk; then the load fails.
pub(super) const PAGE_LIMIT: Duration = Duration::from_secs(60);

/// Definitions by hash, each read once.
type Definitions = HashMap<u128, Result<ParsedDefinition, DecodeError>>;

/// Columns of live rows, in decoding order, and the condition for a live row.
macro_rules! live {
    (schedules, $which:literal) => {
        concat!(
            "SELECT t.id, t.status, t.next_at, t.state, h.head
            FROM schedules t LEFT JOIN schedule_heads h ON h.id = t.id WHERE ",
            $which
        )
    };
    (backfills, $which:literal) => {
        concat!(
            "SELECT t.id, t.schedule, t.status, t.finished_at, t.state, h.head
            FROM backfills t LEFT JOIN backfill_heads h ON h.id = t.id WHERE t.status = 0 AND ",
            $which
        )
    };
    (workflows, $which:literal) => {
        concat!(
            "SELECT t.id, t.generation, t.state, h.head
            FROM workflows t LEFT JOIN workflow_heads h ON h.id = t.id AND h.generation = t.generation
            WHERE ",
            $which
        )
    };
    (services, $which:literal) => {
        concat!(
            "SELECT t.id, t.state, h.head
            FROM services t LEFT JOIN service_heads h ON h.id = t.id WHERE ",
            $which
        )
    };
    (runs, $which:literal) => {
        concat!(
            "SELECT t.id, t.status, t.expires_at, t.state, h.definition, h.head
            FROM runs t LEFT JOIN run_heads h ON h.id = t.id WHERE t.status < 4 AND ",
            $which
        )
    };
    (element_batches, $which:literal) => {
        concat!("SELECT t.run, t.step, t.first, t.batch FROM element_batches t WHERE ", $which)
    };
    (steps, $which:literal) => {
        concat!("SELECT t.run, t.list, t.number, t.status, t.state FROM steps t WHERE ", $which)
    };
    (executions, $which:literal) => {
        concat!(
            "SELECT t.id, t.job, t.number, t.fence, t.worker, t.status, t.namespace, t.job_name, t.rest
            FROM executions t WHERE ",
            $which
        )
    };
    (jobs, $which:literal) => {
        concat!(
            "SELECT t.id, t.status, t.worker, t.expires_at, t.state, t.head, t.history
            FROM jobs t WHERE ",
            $which
        )
    };
}
pub(super) use live;

/// Query for a page of live rows.
macro_rules! page {
    ($table:ident) => {
        live!($table, "t.id > $1 AND t.shard = ANY($2) ORDER BY t.id LIMIT $3")
    };
}

/// Result of a load, and the rows to quarantine.
pub(super) struct Outcome {
    pub(super) loaded: Loaded,
    pub(super) damaged: Vec<DamagedRow>,
}

/// Sends every live row of the leased shards.
pub(super) async fn load(
    lane: &Lane,
    mode: Mode,
    guard: &Guard,
    leases: &[Lease],
    rows: &Sender<Vec<LiveRow>>,
) -> Result<Outcome, Failure> {
    let shards = leases.iter().map(|lease| i32::from(lease.shard.0)).collect();
    let held = Some((guard, leases));
    Loading { lane, mode, held, shards, rows, sent: 0, damaged: Vec::new() }.all().await
}

/// Sends every live row of all shards, while other servers change the rows.
pub(super) async fn preload(
    lane: &Lane,
    mode: Mode,
    shards: u16,
    rows: &Sender<Vec<LiveRow>>,
) -> Result<Outcome, Failure> {
    let shards = (0..shards).map(i32::from).collect();
    Loading { lane, mode, held: None, shards, rows, sent: 0, damaged: Vec::new() }.all().await
}

struct Loading<'a> {
    lane: &'a Lane,
    mode: Mode,
    /// Guard and leases, if an owner loads.
    held: Option<(&'a Guard, &'a [Lease])>,
    shards: Vec<i32>,
    rows: &'a Sender<Vec<LiveRow>>,
    sent: u64,
    damaged: Vec<DamagedRow>,
}

/// Row that cannot be decoded or continued, with its ID if that is known.
type Bad<Id> = (Option<Id>, DamagedRow);

/// Result of a page: the live rows, and the rows that could not be decoded.
type DecodedPart<Id> = (Vec<LiveRow>, Vec<Bad<Id>>);

impl Loading<'_> {
    async fn all(mut self) -> Result<Outcome, Failure> {
        self.engine_time().await?;
        self.registry().await?;
        let lost_schedules = self.schedules().await?;
        self.backfills(&lost_schedules).await?;
        self.workflows().await?;
        self.runs().await?;
        self.services().await?;
        self.run_keys().await?;
        self.keys().await?;
        let (executions, lost) = self.executions().await?;
        let bad_jobs = self.jobs(&lost).await?;
        self.send_executions(executions, &bad_jobs).await?;
        let now = self.engine_time().await?;
        let Self { sent, damaged, .. } = self;
        let quarantined = damaged.len() as u64;
        Ok(Outcome { loaded: Loaded { now, rows: sent + quarantined, quarantined }, damaged })
    }

    /// Returns the engine time of these shards, if the leases of an owner are still valid.
    async fn engine_time(&self) -> Result<Timestamp, Failure> {
        let newest = Query::new(
            "SELECT coalesce(max(now), 0) FROM shards WHERE shard = ANY($1)",
            vec![ints(self.shards.clone())],
        );
        let answered = match self.held {
            Some((guard, leases)) => {
                let queries = [guard.hold(leases), newest];
                match self.lane.run(Mode::Write { limit: self.mode.limit() }, &queries).await {
                    Err(Stopped { at: Some(0), failure }) if failure.state() == Some(GUARD) => {
                        return Err(first_invalid(self.lane, self.mode, leases).await);
                    }
                    answered => answered,
                }
            }
            None => self.lane.run(self.mode, &[newest]).await,
        };
        let newest = answered?.pop().unwrap_or_default();
        Ok(Timestamp::from_micros(newest.first().map_or(0, |row| row.get(0))))
    }

    async fn send(&mut self, live: Vec<LiveRow>) -> Result<(), Failure> {
        self.sent += live.len() as u64;
        if live.is_empty() {
            return Ok(());
        }
        let closed = |_| StoreError::Unavailable { source: "the receiver of the rows was dropped".into() };
        self.rows.send(live).await.map_err(|error| Failure::Store(closed(error)))
    }

    async fn send_sorted(&mut self, sorted: Decoded<LiveRow>) -> Result<(), Failure> {
        self.damaged.extend(sorted.damaged);
        self.send(sorted.good).await
    }

    /// Returns the page of `sql` after `after`.
    async fn page(&self, sql: &'static str, after: u128) -> Result<Vec<Row>, Failure> {
        let params = vec![param::id(after), ints(self.shards.clone()), param::big(PAGE as i64)];
        let mut answers = self.lane.run(self.mode, &[Query::new(sql, params)]).await?;
        Ok(answers.pop().unwrap_or_default())
    }

    async fn registry(&mut self) -> Result<(), Failure> {
        let queries = [
            views::workers_query(),
            views::queues_query(),
            views::calendars_query(None),
            views::namespaces_query(),
        ];
        let answers = self.lane.run(self.mode, &queries).await?;
        let (workers, queues) = (workers(&answers[0])?, queues(&answers[1])?);
        let calendars = views::calendars(&answers[2])?;
        let namespaces = namespaces(&answers[3])?;
        let damaged = workers.damaged.into_iter().chain(queues.damaged).chain(namespaces.damaged);
        self.damaged.extend(damaged.chain(calendars.damaged));
        self.send(workers.good.into_iter().map(LiveRow::Worker).collect()).await?;
        self.send(queues.good.into_iter().map(LiveRow::Queue).collect()).await?;
        self.send(namespaces.good.into_iter().map(LiveRow::Namespace).collect()).await?;
        self.send(calendars.good.into_iter().map(LiveRow::Calendar).collect()).await
    }

    /// Sends the schedules, and returns the IDs of those that could not be decoded.
    async fn schedules(&mut self) -> Result<HashSet<ScheduleId>, Failure> {
        self.decode_pages_in_background(page!(schedules), |page: &[Row]| {
            let decode = |row: &Row| {
                schedule(row).map_err(|damage| (row.bits(0, "id").ok().map(ScheduleId::from_bits), damage))
            };
            decode_page(Table::Schedules, page, decode)
        })
        .await
    }

    /// Sends the running backfills, except those whose schedule is lost.
    async fn backfills(&mut self, lost: &HashSet<ScheduleId>) -> Result<(), Failure> {
        let mut after = 0;
        loop {
            let page = self.page(page!(backfills), after).await?;
            let mut sorted = Decoded::default();
            sorted.take(Table::Backfills, &page, rows::backfill)?;
            let (orphans, good): (Vec<_>, Vec<_>) =
                sorted.good.into_iter().partition(|found| lost.contains(&found.head.schedule));
            for found in orphans {
                let reason = format!("its schedule {} cannot be read", found.head.schedule);
                let key = vec![Key::Id(found.head.id.to_bits())];
                self.damaged.push(DamagedRow { table: Table::Backfills, key, reason });
            }
            let live = good.into_iter().map(live_backfill).collect();
            self.send_sorted(Decoded { good: live, damaged: sorted.damaged }).await?;
            match last_id(&page)? {
                Some(last) => after = last,
                None => return Ok(()),
            }
        }
    }

    async fn workflows(&mut self) -> Result<(), Failure> {
        let mut after = 0;
        loop {
            let page = self.page(page!(workflows), after).await?;
            self.send_sorted(sorted(Table::Workflows, &page, workflow)?).await?;
            match last_id(&page)? {
                Some(last) => after = last,
                None => return Ok(()),
            }
        }
    }

    async fn services(&mut self) -> Result<(), Failure> {
        let mut after = 0;
        loop {
            let page = self.page(page!(services), after).await?;
            self.send_sorted(sorted(Table::Services, &page, service)?).await?;
            match last_id(&page)? {
                Some(last) => after = last,
                None => return Ok(()),
            }
        }
    }

    /// Sends the live runs, each with the elements that tasks added, and its steps.
    ///
    /// A step without its row would look as if it had not started, and would run twice. Missing elements would change
    /// the indexes of later ones. So if any row of a run cannot be decoded, the run is quarantined. Its jobs continue
    /// on their own.
    async fn runs(&mut self) -> Result<(), Failure> {
        let (mut definitions, mut after) = (Definitions::new(), 0);
        loop {
            let page = self.page(page!(runs), after).await?;
            for row in &page {
                self.run(row, &mut definitions).await?;
            }
            match last_id(&page)? {
                Some(last) => after = last,
                None => return Ok(()),
            }
        }
    }

    async fn run(&mut self, row: &Row, definitions: &mut Definitions) -> Result<(), Failure> {
        let definition = match row.bits(4, "definition") {
            Ok(hash) => self.definition(hash, definitions).await?,
            Err(damage) => Err(damage),
        };
        let run = match definition.and_then(|definition| rows::run(row, |_| Ok(definition))) {
            Ok(run) => run,
            Err(damage) => {
                self.damaged.push(DamagedRow::new(Table::Runs, key_of(Table::Runs, row)?, &damage));
                return Ok(());
            }
        };
        let elements = live!(element_batches, "t.run = $1 ORDER BY t.step, t.first");
        let steps = live!(steps, "t.run = $1 ORDER BY t.list, t.number");
        let id = run.id.to_bits();
        let queries = [elements, steps].map(|sql| Query::new(sql, vec![param::id(id)]));
        let answers = self.lane.run(self.mode, &queries).await?;
        let mut sorted = Decoded::default();
        sorted.take(Table::ElementBatches, &answers[0], |row| {
            rows::elements(row).map(|batch| LiveRow::ElementBatch(Box::new(batch)))
        })?;
        sorted.take(Table::Steps, &answers[1], |row| {
            rows::step(row).map(|step| LiveRow::Step(Box::new(step)))
        })?;
        if let Some(first) = sorted.damaged.first() {
            let reason = format!("a row in `{}` cannot be read", first.table.name());
            self.damaged.push(DamagedRow { table: Table::Runs, key: vec![Key::Id(id)], reason });
            sorted.good.clear();
        } else {
            self.send(vec![run.into()]).await?;
        }
        self.send_sorted(sorted).await
    }

    /// Returns the definition of a run. Each is read once, whatever the number of its runs.
    async fn definition(
        &self,
        hash: u128,
        known: &mut Definitions,
    ) -> Result<Result<ParsedDefinition, DecodeError>, Failure> {
        if let Some(known) = known.get(&hash) {
            return Ok(known.clone());
        }
        let sql = "SELECT body FROM run_definitions WHERE hash = $1";
        let answers = self.lane.run(self.mode, &[Query::new(sql, vec![param::id(hash)])]).await?;
        let found = match answers[0].first() {
            Some(row) => row.bytes(0, "body").and_then(|body| open_definition(hash, body)),
            None => Err(DecodeError::decode("definition", "it is missing")),
        };
        known.insert(hash, found.clone());
        Ok(found)
    }

    async fn run_keys(&mut self) -> Result<(), Failure> {
        let sql = "SELECT t.key, t.body, t.run, t.expires_at FROM run_keys t
            WHERE t.key > $1 AND t.shard = ANY($2) ORDER BY t.key LIMIT $3";
        let mut after = 0;
        loop {
            let page = self.page(sql, after).await?;
            let mut sorted = Decoded::default();
            sorted.take(Table::RunKeys, &page, |row| rows::run_key(row).map(LiveRow::RunKey))?;
            self.send_sorted(sorted).await?;
            match last_id(&page)? {
                Some(last) => after = last,
                None => return Ok(()),
            }
        }
    }

    async fn keys(&mut self) -> Result<(), Failure> {
        let sql = "SELECT t.key, t.body, t.job, t.expires_at FROM keys t
            WHERE t.key > $1 AND t.shard = ANY($2) ORDER BY t.key LIMIT $3";
        // Keys are hashes: a key is zero only with probability 2⁻¹²⁸.
        let mut after = 0;
        loop {
            let page = self.page(sql, after).await?;
            let mut sorted = Decoded::default();
            sorted.take(Table::Keys, &page, |row| rows::key(row).map(LiveRow::Key))?;
            self.send_sorted(sorted).await?;
            match last_id(&page)? {
                Some(last) => after = last,
                None => return Ok(()),
            }
        }
    }

    /// Returns the executions that can be decoded, and the IDs of the others.
    ///
    /// The executions are held in memory until the jobs are loaded: there are far fewer executions than jobs.
    async fn executions(&mut self) -> Result<(Vec<LiveRow>, HashSet<ExecutionId>), Failure> {
        let (mut all, mut lost, mut after) = (Vec::new(), HashSet::new(), 0);
        loop {
            let page = self.page(page!(executions), after).await?;
            let sorted = sorted(Table::Executions, &page, execution)?;
            all.extend(sorted.good);
            lost.extend(sorted.damaged.iter().filter_map(|damaged| match damaged.key[..] {
                [Key::Id(bits)] => Some(ExecutionId::from_bits(bits)),
                _ => None,
            }));
            self.damaged.extend(sorted.damaged);
            match last_id(&page)? {
                Some(last) => after = last,
                None => return Ok((all, lost)),
            }
        }
    }

    /// Sends the jobs, and returns the IDs of the jobs that cannot be decoded or continued.
    async fn jobs(&mut self, lost: &HashSet<ExecutionId>) -> Result<HashSet<JobId>, Failure> {
        let lost = lost.clone();
        self.decode_pages_in_background(page!(jobs), move |page: &[Row]| {
            let decode = |row: &Row| {
                let whole = job(row).and_then(|live| match lost_execution(&live, &lost) {
                    Some(execution) => {
                        Err(DecodeError::decode("execution", format!("{execution} cannot be read")))
                    }
                    None => Ok(live),
                });
                whole.map_err(|damage| (row.bits(0, "id").ok().map(JobId::from_bits), damage))
            };
            decode_page(Table::Jobs, page, decode)
        })
        .await
    }

    /// Reads the pages of `sql` while another thread decodes the page before; returns the IDs of rows that could not be
    /// decoded.
    async fn decode_pages_in_background<Id: Eq + std::hash::Hash + Send + 'static>(
        &mut self,
        sql: &'static str,
        decode: impl Fn(&[Row]) -> Result<DecodedPart<Id>, DecodeError> + Clone + Send + 'static,
    ) -> Result<HashSet<Id>, Failure> {
        let (mut bad, mut after) = (HashSet::new(), 0);
        let mut decoding: Option<JoinHandle<Result<DecodedPart<Id>, DecodeError>>> = None;
        loop {
            let page = self.page(sql, after).await?;
            let next = last_id(&page)?;
            let decode = decode.clone();
            let started = tokio::task::spawn_blocking(move || decode(&page));
            if let Some(before) = decoding.replace(started) {
                bad.extend(self.take(before).await?);
            }
            match next {
                Some(last) => after = last,
                None => break,
            }
        }
        if let Some(last) = decoding {
            bad.extend(self.take(last).await?);
        }
        Ok(bad)
    }

    async fn take<Id>(
        &mut self,
        decoding: JoinHandle<Result<DecodedPart<Id>, DecodeError>>,
    ) -> Result<Vec<Id>, Failure> {
        let decoded = decoding.await.map_err(|_| Failure::Broken("decoder thread panicked".into()))?;
        let (live, bad) = decoded?;
        self.send(live).await?;
        let (ids, damaged): (Vec<_>, Vec<_>) = bad.into_iter().unzip();
        self.damaged.extend(damaged);
        Ok(ids.into_iter().flatten().collect())
    }

    async fn send_executions(
        &mut self,
        executions: Vec<LiveRow>,
        bad: &HashSet<JobId>,
    ) -> Result<(), Failure> {
        let mut good = Vec::with_capacity(executions.len().min(PAGE));
        for row in executions {
            match row {
                LiveRow::Execution(record) if bad.contains(&record.job) => {
                    let reason = format!("its job {} cannot be read", record.job);
                    let key = vec![Key::Id(record.id.to_bits())];
                    self.damaged.push(DamagedRow { table: Table::Executions, key, reason });
                }
                row => good.push(row),
            }
            if good.len() == PAGE {
                self.send(std::mem::take(&mut good)).await?;
            }
        }
        self.send(good).await
    }
}

/// Returns the ID after which the next page starts, if there is one.
fn last_id(page: &[Row]) -> Result<Option<u128>, DecodeError> {
    match page.last() {
        Some(row) if page.len() == PAGE => row.bits(0, "id").map(Some),
        _ => Ok(None),
    }
}

fn decode_page<Id>(
    table: Table,
    page: &[Row],
    decode: impl Fn(&Row) -> Result<LiveRow, (Option<Id>, DecodeError)>,
) -> Result<DecodedPart<Id>, DecodeError> {
    let (mut live, mut bad) = (Vec::with_capacity(page.len()), Vec::new());
    for row in page {
        match decode(row) {
            Ok(row) => live.push(row),
            Err((id, damage)) => bad.push((id, DamagedRow::new(table, key_of(table, row)?, &damage))),
        }
    }
    Ok((live, bad))
}

/// Separates rows that can be decoded from rows that cannot.
pub(super) fn sorted<T>(
    table: Table,
    found: &[Row],
    decode: impl FnMut(&Row) -> Result<T, DecodeError>,
) -> Result<Decoded<T>, DecodeError> {
    let mut sorted = Decoded::default();
    sorted.take(table, found, decode)?;
    Ok(sorted)
}

/// Decodes a row of [`live!(schedules)`](live).
pub(super) fn schedule(row: &Row) -> Result<LiveRow, DecodeError> {
    let id = ScheduleId::from_bits(row.bits(0, "id")?);
    RawSchedule::read(row, id)?.decode()
}

/// Decodes a row of [`live!(backfills)`](live).
pub(super) fn backfill(row: &Row) -> Result<LiveRow, DecodeError> {
    rows::backfill(row).map(live_backfill)
}

fn live_backfill(BackfillRow { head, state }: BackfillRow) -> LiveRow {
    LiveRow::Backfill { head, state }
}

/// Decodes a row of [`live!(workflows)`](live).
pub(super) fn workflow(row: &Row) -> Result<LiveRow, DecodeError> {
    rows::workflow(row).map(LiveRow::from)
}

/// Decodes a row of [`live!(services)`](live).
pub(super) fn service(row: &Row) -> Result<LiveRow, DecodeError> {
    rows::service(row).map(LiveRow::from)
}

/// Decodes a row of [`live!(executions)`](live).
pub(super) fn execution(row: &Row) -> Result<LiveRow, DecodeError> {
    rows::execution(row).map(|found| LiveRow::Execution(Box::new(found.record)))
}

/// Decodes a row of [`live!(jobs)`](live).
pub(super) fn job(row: &Row) -> Result<LiveRow, DecodeError> {
    let id = JobId::from_bits(row.bits(0, "id")?);
    RawJob::read(row, id)?.decode()
}

fn lost_execution(row: &LiveRow, lost: &HashSet<ExecutionId>) -> Option<ExecutionId> {
    match row {
        LiveRow::Job { state, .. } => state.execution.filter(|id| lost.contains(id)),
        _ => None,
    }
}

/// Returns all workers, ordered by name.
pub(super) fn workers(found: &[Row]) -> Result<Decoded<WorkerRecord>, DecodeError> {
    let decode = |row: &Row| rows::record(Context::of(row.bits(0, "id")?), row);
    let mut sorted = sorted(Table::Workers, found, decode)?;
    sorted.good.sort_by(|a: &WorkerRecord, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
    Ok(sorted)
}

/// Returns all queues, ordered by name.
pub(super) fn queues(found: &[Row]) -> Result<Decoded<QueueRecord>, DecodeError> {
    let decode = |row: &Row| rows::record(Context::of_text(&row.text(0, "name")?), row);
    let mut sorted = sorted(Table::Queues, found, decode)?;
    sorted.good.sort_by(|a: &QueueRecord, b| a.name.cmp(&b.name));
    Ok(sorted)
}

/// Returns all namespaces that have settings, ordered by name.
pub(super) fn namespaces(found: &[Row]) -> Result<Decoded<NamespaceRecord>, DecodeError> {
    let decode = |row: &Row| rows::record(Context::of_text(&row.text(0, "name")?), row);
    let mut sorted = sorted(Table::Namespaces, found, decode)?;
    sorted.good.sort_by(|a: &NamespaceRecord, b| a.name.cmp(&b.name));
    Ok(sorted)
}
