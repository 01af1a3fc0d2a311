//! The store in a PostgreSQL database: many servers on one store, each with shards of its own.
//!
//! ```text
//! commit               ─>  one session          ─┐
//! acquire, renew, …    ─>  one session           ├─ PostgreSQL 13 or newer, or what speaks like it
//! announce, …          ─>  one session           │
//! check                ─>  one session           │
//! job, jobs, load, …   ─>  a few sessions       ─┘
//! ```
//!
//! - `address`, `tls`: where it is; `connection`: sessions, and transactions sent in one piece.
//! - `schema`, `settings`: the tables, and whether the server can keep our word.
//! - `commit`: a batch; `leases`: who owns which shard; `members`: which servers there are; `load`: live rows for a new owner.
//! - `changelog`, `live_rows`: how a server that stands by keeps up with the owner.
//! - `views`, `upkeep`, `quarantine`: what is asked, what no engine decides, rows that cannot be read.
//! - `target`: a database that becomes a copy of another store.
//! - `param`, `rows`: values on their way there and back; `error`: what an error means.
//!
//! # Always true
//! - A commit is durable on the server before it is answered, as far as the server's settings say so;
//!   these are looked at when the store is opened, and with every check.
//! - A commit under a lease that was taken over changes nothing, also one that was still on its way
//!   when its connection was lost.
//! - After [`StoreError::OutcomeUnknown`] leases must be given back, or run out, and be acquired anew:
//!   the commit may still be under way, and a higher epoch is what settles it.
//! - After a promise of the engine was broken, this store commits nothing any more.
//! - No session has a state that matters: no locks, no `LISTEN`, no temporary tables. A pooler that
//!   lends sessions by the transaction will do (PgBouncer from 1.21; before it, or where its
//!   `max_prepared_statements` is 0, with `prepared_statements=false` in the address).
//!
//! # Cost
//! One round trip for each commit, whatever is in it; `commit` says what several servers wait for.
//! `examples/postgres.rs` measures it beside SQLite.

mod address;
mod changelog;
mod commit;
mod connection;
mod error;
mod leases;
mod live_rows;
mod load;
mod members;
mod param;
mod quarantine;
mod rows;
mod schema;
mod settings;
mod target;
mod tls;
mod upkeep;
mod views;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use async_trait::async_trait;
use model::calendar::CalendarRecord;
use model::checkpoint::CheckpointRecord;
use model::firing::LedgerRecord;
use model::record::{Batch, Lease, LiveRow, QueueRecord, WorkerRecord};
use model::run::{ElementBatch, StepRecord, WorkflowHead};
use model::{
    BackfillId, Duration, ExecutionId, JobId, RunId, ScheduleId, ServerId, ShardId, Timestamp, WorkflowId,
};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use address::Address;
use connection::{Lane, Mode, Query};
use error::{Failure, Trust, Work};
use leases::{Guard, Past, clock};
use quarantine::{Damaged, quarantined, set_aside};
use rows::Sorted;
use settings::{Demands, Server};
pub(crate) use target::{Begun, Position, Target};

use crate::changelog::Changelog;
use crate::cluster::{Cluster, ServerRecord};
use crate::codec::Damage;
use crate::lists::{self, List};
use crate::query::{
    Artifact, ArtifactDeletion, ArtifactFilter, BackfillRow, Counts, DeletionReason, EventPage,
    ExecutionFilter, ExecutionRow, JobFilter, JobRow, LedgerCounts, LedgerFilter, LedgerPlace, Page, Paged,
    Quarantined, RunFilter, RunRow, ScheduleCounts, ScheduleFilter, ScheduleRow, Token, WorkflowFilter,
    WorkflowRow,
};
use crate::rows::{self as shared, Fields};
use crate::{Committed, EventSeq, Loaded, Store, StoreError};

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many shards a new store gets; one that exists keeps its own.
    pub shards: u16,
    /// How many queries run at the same time, each in a session of its own; four sessions more are for
    /// commits, leases, checks, and what servers say of one another.
    pub readers: usize,
    /// How long a query may take, and how long it may wait for its turn.
    pub query_limit: Duration,
    /// How long a statement of a change may take.
    pub change_limit: Duration,
    /// Whether a server is accepted that may lose acknowledged commits.
    pub allow_unsafe: bool,
    /// Whether a server is refused whose commits wait for no standby.
    pub require_sync_standby: bool,
    /// The password, where the address has none.
    pub password: Option<Password>,
}

/// A password that no output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Keeps one.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl Options {
    fn demands(&self) -> Demands {
        Demands { allow_unsafe: self.allow_unsafe, require_sync_standby: self.require_sync_standby }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: 16,
            readers: 4,
            query_limit: Duration::from_secs(5),
            change_limit: Duration::from_secs(30),
            allow_unsafe: false,
            require_sync_standby: false,
            password: None,
        }
    }
}

/// The store in a PostgreSQL database.
///
/// Its methods need a tokio runtime with time and I/O enabled. Batches under the same leases are to be
/// sent one after the other: each is decided on top of the one before, and if that one fails, those
/// behind it must not go through.
#[derive(Debug)]
pub struct PostgresStore {
    commits: Lane,
    leases: Lane,
    /// For what servers say of one another: never behind a renewal or a long query, and never before one.
    members: Lane,
    /// Apart from the leases: anyone may ask for a check, and none may delay a renewal.
    checks: Lane,
    queries: Lane,
    trust: Trust,
    guard: Guard,
    shards: u16,
    options: Options,
    /// No row of the changelog is left below this one, as far as this process has trimmed it.
    trimmed: AtomicI64,
    /// A change found no space, and none was looked for since with success.
    full: AtomicBool,
}

/// Extends a relation of the database by some 8 MB: no update of a row that is there tells whether a volume has
/// space. It is gone with its transaction.
const SPACE: [&str; 2] = [
    "SELECT set_config('temp_tablespaces', '', true)",
    "CREATE TEMPORARY TABLE belfry_space ON COMMIT DROP AS
     SELECT repeat('x', 1900) AS part FROM generate_series(1, 4400)",
];

/// How many pages of a load may wait for a slow disk before it counts as failed.
const LOAD_LIMIT: Duration = Duration::from_secs(60);

impl PostgresStore {
    /// Connects to the database at `url`, and makes its tables where they are missing.
    ///
    /// `url` is `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with parameters as libpq takes them:
    /// `sslmode` (`disable`, `prefer`, `require`, `verify-ca`, `verify-full`), `sslrootcert`,
    /// `connect_timeout`, `application_name` and others; and `prepared_statements=false` for poolers
    /// that do not know of prepared statements. Several servers may do this at the same time.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), store::StoreError> {
    /// use store::postgres::{Options, PostgresStore};
    ///
    /// let url = "postgres://belfry@db.example/belfry?sslmode=verify-full";
    /// let store = PostgresStore::open(url, Options::default()).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the database does not answer, takes no writes, or has unsafe
    /// settings; [`StoreError::TooNew`] if a newer version made its tables; [`StoreError::Fatal`] if the
    /// tables are of another program; [`StoreError::Unfinished`] if it is a copy that is not whole yet.
    /// None of them tells the password.
    pub async fn open(url: &str, options: Options) -> Result<Self, StoreError> {
        let store = Self::open_unchecked(url, options).await?;
        match target::unfinished(&store).await? {
            Some(source) => Err(StoreError::Unfinished { origin: source }),
            None => Ok(store),
        }
    }

    /// The version of the tables in a database, which is not changed; `None` where there are none of ours.
    async fn version_at(url: &str, options: &Options) -> Result<Option<u32>, StoreError> {
        let address = Address::parse(url)?.with_password(options.password.as_ref());
        let (lane, mode) = (Lane::new(Arc::new(address), 1), Mode::Read { limit: options.query_limit });
        let found = schema::found(&lane, mode).await;
        found.map_err(|failure| Trust::default().judge(failure, Work::Change))
    }

    /// Opens it also where it is a copy that is not whole yet.
    async fn open_unchecked(url: &str, options: Options) -> Result<Self, StoreError> {
        let address = Arc::new(Address::parse(url)?.with_password(options.password.as_ref()));
        let leases = Lane::new(Arc::clone(&address), 1);
        let trust = Trust::default();
        let mode = Mode::Write { limit: options.change_limit };
        let opening = async {
            let answers = leases.run(mode, &[settings::query()]).await?;
            let server = Server::of(&answers[0])?;
            server.check(options.demands()).map_err(Failure::Store)?;
            let shards = schema::migrate(&leases, mode, server.is_postgres, options.shards).await?;
            Ok((shards, Past::of(&leases, mode, server.is_postgres).await?))
        };
        let (shards, past) = opening.await.map_err(|failure: Failure| trust.judge(failure, Work::Change))?;
        Ok(Self {
            commits: Lane::new(Arc::clone(&address), 1),
            members: Lane::new(Arc::clone(&address), 1).shared(),
            checks: Lane::new(Arc::clone(&address), 1).shared(),
            queries: Lane::new(address, options.readers).shared(),
            leases,
            trust,
            guard: Guard::new(past),
            trimmed: AtomicI64::new(0),
            full: AtomicBool::new(false),
            shards,
            options,
        })
    }

    fn write(&self) -> Mode {
        Mode::Write { limit: self.options.change_limit }
    }

    fn read(&self) -> Mode {
        Mode::Read { limit: self.options.query_limit }
    }

    fn judge_change(&self, failure: impl Into<Failure>) -> StoreError {
        let error = self.trust.judge(failure.into(), Work::Change);
        if matches!(error, StoreError::Full) {
            self.full.store(true, Ordering::Relaxed);
        }
        error
    }

    /// Whether there is space again, where a change found none.
    async fn look_for_space(&self) -> Result<(), StoreError> {
        if !self.full.load(Ordering::Relaxed) {
            return Ok(());
        }
        let queries = SPACE.map(|sql| Query::new(sql, Vec::new()));
        if let Err(stopped) = self.queries.run(self.write(), &queries).await {
            // No right to make such a table, or none of the kind is known there: then only a change can tell.
            let code = stopped.failure.state().map_or("", SqlState::code);
            if !code.starts_with("42") && !code.starts_with("0A") {
                return Err(self.judge_change(stopped));
            }
        }
        self.full.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn judge_query(&self, failure: impl Into<Failure>) -> StoreError {
        self.trust.judge(failure.into(), Work::Query { limit: self.options.query_limit })
    }

    /// Asks in one state of the database.
    async fn ask<T>(
        &self,
        queries: &[Query],
        read: impl Fn(&[Vec<Row>]) -> Result<T, Damage>,
    ) -> Result<T, StoreError> {
        self.trust.check()?;
        let answers =
            self.queries.run(self.read(), queries).await.map_err(|stopped| self.judge_query(stopped))?;
        read(&answers).map_err(|damage| self.judge_query(damage))
    }

    /// As [`ask`](Self::ask); sets aside what could not be read, and asks again until nothing that can
    /// be set aside was in the way. Answers with how many rows were passed over, too.
    async fn ask_rows<T>(
        &self,
        queries: &[Query],
        read: impl Fn(&[Vec<Row>]) -> Result<Sorted<T>, Damage>,
    ) -> Result<(Vec<T>, usize), StoreError> {
        loop {
            let Sorted { good, damaged } = self.ask(queries, &read).await?;
            let (live, done): (Vec<_>, Vec<_>) = damaged.into_iter().partition(Damaged::is_live);
            if done.is_empty() {
                live.iter().for_each(Damaged::tell);
                return Ok((good, live.len()));
            }
            self.set_aside(&done).await?;
        }
    }

    async fn ask_all<T>(
        &self,
        queries: &[Query],
        read: impl Fn(&[Vec<Row>]) -> Result<Sorted<T>, Damage>,
    ) -> Result<Vec<T>, StoreError> {
        Ok(self.ask_rows(queries, read).await?.0)
    }

    async fn ask_page<T, Place: Ord>(
        &self,
        list: List,
        decode: impl Fn(&Row) -> Result<T, Damage>,
        place: impl Fn(&T) -> Place,
    ) -> Result<Paged<T>, StoreError> {
        let read = |answers: &[Vec<Row>]| views::listed(&list, answers, &decode);
        let found = self.ask_rows(&views::list_queries(&list), read).await?;
        Ok(listed(&list, found, place))
    }

    async fn set_aside(&self, damaged: &[Damaged]) -> Result<(), StoreError> {
        set_aside(&self.queries, self.write(), damaged).await.map_err(|failure| self.judge_change(failure))
    }

    async fn change(&self, queries: &[Query]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.trust.check()?;
        self.queries.run(self.write(), queries).await.map_err(|stopped| self.judge_change(stopped))
    }

    /// As [`change`](Self::change), on the session of the members.
    async fn change_members(&self, queries: &[Query]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.trust.check()?;
        self.members.run(self.write(), queries).await.map_err(|stopped| self.judge_change(stopped))
    }

    /// Whether the server that answered [`settings::query`] can keep our word.
    fn check_server(&self, answer: &[Row]) -> Result<(), StoreError> {
        let server = Server::of(answer).map_err(|failure| self.judge_change(failure))?;
        server.check(self.options.demands())
    }

    async fn check_server_of_leases(&self) -> Result<(), StoreError> {
        let answers = self.leases.run(self.write(), &[settings::query()]).await;
        self.check_server(&answers.map_err(|stopped| self.judge_change(stopped))?[0])
    }

    async fn deleted(&self, queries: &[Query]) -> Result<u64, StoreError> {
        let answers = self.change(queries).await?;
        let count = answers.last().and_then(|rows| rows.first()).map_or(0, |row| row.get::<_, i64>(0));
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

/// The page of a list that the rows make, and how many were passed over.
fn listed<T, Place: Ord>(
    list: &List,
    (good, passed_over): (Vec<T>, usize),
    place: impl Fn(&T) -> Place,
) -> Paged<T> {
    let full = good.len() + passed_over > list.limit;
    let mut page = list.page(good, place);
    page.more |= full;
    page
}

#[async_trait]
impl Store for PostgresStore {
    fn shards(&self) -> u16 {
        self.shards
    }

    async fn acquire(
        &self,
        shards: &[ShardId],
        owner: &str,
        ttl: Duration,
    ) -> Result<Vec<Lease>, StoreError> {
        self.trust.check()?;
        let taken = leases::acquire(&self.leases, self.write(), &self.guard, shards, owner, ttl).await;
        let taken = taken.map_err(|failure| self.judge_change(failure))?;
        // Another server may have become the primary since this was looked at, or somebody has changed its settings.
        if !taken.is_empty()
            && let Err(unfit) = self.check_server_of_leases().await
        {
            self.release(&taken).await?;
            return Err(unfit);
        }
        Ok(taken)
    }

    fn former_owner(&self) -> Duration {
        self.guard.former_owner()
    }

    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<(), StoreError> {
        self.trust.check()?;
        // A renewal that waits for longer than it is worth must not keep the next one from the rows.
        let mode = Mode::Write { limit: self.options.change_limit.min(ttl) };
        let renewed = leases::renew(&self.leases, mode, &self.guard, leases, ttl).await;
        renewed.map_err(|failure| self.judge_change(failure))
    }

    async fn release(&self, leases: &[Lease]) -> Result<(), StoreError> {
        let released = leases::release(&self.leases, self.write(), &self.guard, leases).await;
        released.map_err(|failure| self.judge_change(failure))
    }

    async fn lost_tails(&self, leases: &[Lease]) -> Result<Vec<ShardId>, StoreError> {
        self.ask(&[leases::lost_tails_query(leases)], |answers| Ok(leases::lost_tails(&answers[0]))).await
    }

    async fn tails_reconciled(&self, leases: &[Lease]) -> Result<(), StoreError> {
        self.change(&leases::forget_lost_tails(&self.guard, leases)).await.map(drop)
    }

    async fn reset_clock(&self, now: Timestamp) -> Result<(), StoreError> {
        let reset = leases::reset_clock(self.shards, now);
        self.change_members(&reset).await.map(drop)
    }

    async fn clock(&self) -> Result<Option<Timestamp>, StoreError> {
        let query = Query::new(concat!("SELECT ", clock!()), Vec::new());
        let read = |answers: &[Vec<Row>]| {
            let micros: Option<i64> = answers[0].first().map(|row| row.get(0));
            Ok(micros.map(Timestamp::from_micros))
        };
        self.ask(&[query], read).await
    }

    async fn note_restored(&self) -> Result<(), StoreError> {
        self.change_members(&leases::note_restored(self.shards)).await.map(drop)
    }

    async fn load(
        &self,
        leases: &[Lease],
        rows: tokio::sync::mpsc::Sender<Vec<LiveRow>>,
    ) -> Result<Loaded, StoreError> {
        self.trust.check()?;
        let mode = Mode::Read { limit: LOAD_LIMIT };
        let loaded = load::load(&self.queries, mode, &self.guard, leases, &rows).await;
        let outcome = loaded.map_err(|failure| self.judge_change(failure))?;
        self.set_aside(&outcome.damaged).await?;
        Ok(outcome.loaded)
    }

    async fn commit(&self, leases: &[Lease], batch: Arc<Batch>) -> Result<Committed, StoreError> {
        self.trust.check()?;
        let committed = commit::commit(&self.commits, self.write(), &self.guard, leases, &batch).await;
        committed.map_err(|failure| self.judge_change(failure))
    }

    fn changelog(&self) -> Option<&dyn Changelog> {
        Some(self)
    }

    async fn job(&self, id: JobId) -> Result<Option<JobRow>, StoreError> {
        Ok(self.ask_all(&views::job_queries(id), views::job).await?.into_iter().next())
    }

    async fn checkpoint(&self, job: JobId) -> Result<Option<CheckpointRecord>, StoreError> {
        let read = |answers: &[Vec<Row>]| views::checkpoint(&answers[0]);
        Ok(self.ask_all(&[views::checkpoint_query(job)], read).await?.into_iter().next())
    }

    async fn jobs(&self, filter: &JobFilter, page: Page<JobId>) -> Result<Paged<JobRow>, StoreError> {
        self.ask_page(lists::jobs(filter, page), shared::job, |job| job.id).await
    }

    async fn counts(&self, namespace: Option<&str>) -> Result<Counts, StoreError> {
        self.ask(&[views::counts_query(namespace)], |answers| views::counts(&answers[0])).await
    }

    async fn schedule(&self, id: ScheduleId) -> Result<Option<ScheduleRow>, StoreError> {
        let query = views::schedule_query("t.id = $1", vec![param::id(id.to_bits())]);
        Ok(self.ask_all(&[query], |answers| views::schedule(&answers[0])).await?.pop())
    }

    async fn schedule_named(&self, namespace: &str, name: &str) -> Result<Option<ScheduleRow>, StoreError> {
        let condition = "t.namespace = $1 AND t.name = $2";
        let query = views::schedule_query(condition, vec![param::text(namespace), param::text(name)]);
        Ok(self.ask_all(&[query], |answers| views::schedule(&answers[0])).await?.pop())
    }

    async fn schedules(
        &self,
        filter: &ScheduleFilter,
        page: Page<ScheduleId>,
    ) -> Result<Paged<ScheduleRow>, StoreError> {
        self.ask_page(lists::schedules(filter, page), shared::schedule, |schedule| schedule.id).await
    }

    async fn schedule_counts(&self, namespace: Option<&str>) -> Result<ScheduleCounts, StoreError> {
        self.ask(&views::schedule_counts_queries(namespace), views::schedule_counts).await
    }

    async fn upcoming(
        &self,
        filter: &ScheduleFilter,
        after: Option<(Timestamp, ScheduleId)>,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, StoreError> {
        let list = lists::upcoming(filter, after, limit);
        let read = |answers: &[Vec<Row>]| views::listed(&list, answers, shared::schedule);
        let mut found = self.ask_all(&views::list_queries(&list), read).await?;
        found.truncate(limit);
        Ok(found)
    }

    async fn ledger(
        &self,
        filter: &LedgerFilter,
        page: Page<LedgerPlace>,
    ) -> Result<Paged<(LedgerPlace, LedgerRecord)>, StoreError> {
        self.ask_page(lists::ledger(filter, page), shared::ledger, |(place, _)| *place).await
    }

    async fn ledger_counts(
        &self,
        schedule: ScheduleId,
        since: Option<Timestamp>,
    ) -> Result<LedgerCounts, StoreError> {
        let query = views::ledger_counts_query(schedule, since);
        self.ask(&[query], |answers| views::ledger_counts(&answers[0])).await
    }

    async fn backfill(&self, id: BackfillId) -> Result<Option<BackfillRow>, StoreError> {
        let query = views::backfill_query(id.to_bits());
        Ok(self.ask_all(&[query], |answers| views::backfill(&answers[0])).await?.pop())
    }

    async fn backfills(
        &self,
        schedule: Option<ScheduleId>,
        namespace: Option<&str>,
        page: Page<BackfillId>,
    ) -> Result<Paged<BackfillRow>, StoreError> {
        let list = lists::backfills(schedule, namespace, page);
        self.ask_page(list, shared::backfill, |backfill| backfill.head.id).await
    }

    async fn calendars(&self, namespace: Option<&str>) -> Result<Vec<CalendarRecord>, StoreError> {
        let query = views::calendars_query(namespace);
        self.ask_all(&[query], |answers| views::calendars(&answers[0])).await
    }

    async fn calendar(&self, namespace: &str, name: &str) -> Result<Option<CalendarRecord>, StoreError> {
        let query = views::calendar_query(namespace, name);
        Ok(self.ask_all(&[query], |answers| views::calendars(&answers[0])).await?.pop())
    }

    async fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, StoreError> {
        let query = views::workflow_query("t.id = $1", vec![param::id(id.to_bits())]);
        Ok(self.ask_all(&[query], |answers| views::workflow(&answers[0])).await?.pop())
    }

    async fn workflow_named(&self, namespace: &str, name: &str) -> Result<Option<WorkflowRow>, StoreError> {
        let condition = "t.namespace = $1 AND t.name = $2";
        let query = views::workflow_query(condition, vec![param::text(namespace), param::text(name)]);
        Ok(self.ask_all(&[query], |answers| views::workflow(&answers[0])).await?.pop())
    }

    async fn workflow_version(
        &self,
        id: WorkflowId,
        generation: u64,
    ) -> Result<Option<WorkflowHead>, StoreError> {
        let Ok(generation) = i64::try_from(generation) else { return Ok(None) };
        let query = views::workflow_version_query(id, generation);
        Ok(self.ask_all(&[query], |answers| views::workflow_version(&answers[0])).await?.pop())
    }

    async fn workflows(
        &self,
        filter: &WorkflowFilter,
        page: Page<WorkflowId>,
    ) -> Result<Paged<WorkflowRow>, StoreError> {
        self.ask_page(lists::workflows(filter, page), shared::workflow, |workflow| workflow.id).await
    }

    async fn run(&self, id: RunId) -> Result<Option<RunRow>, StoreError> {
        Ok(self.ask_all(&views::run_queries(id), views::run).await?.pop())
    }

    async fn runs(&self, filter: &RunFilter, page: Page<RunId>) -> Result<Paged<RunRow>, StoreError> {
        let list = lists::runs(filter, page);
        let read = |answers: &[Vec<Row>]| views::runs(&list, answers);
        let found = self.ask_rows(&views::runs_queries(&list), read).await?;
        Ok(listed(&list, found, |run| run.id))
    }

    async fn run_steps(&self, run: RunId) -> Result<Vec<StepRecord>, StoreError> {
        self.ask_all(&[views::run_steps_query(run)], |answers| views::steps(&answers[0])).await
    }

    async fn run_items(
        &self,
        run: RunId,
        step: u32,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError> {
        let query = views::run_items_query(run, step, after, limit);
        self.ask_all(&[query], |answers| views::steps(&answers[0])).await
    }

    async fn element_batches(&self, run: RunId) -> Result<Vec<ElementBatch>, StoreError> {
        let query = views::element_batches_query(run);
        self.ask_all(&[query], |answers| views::element_batches(&answers[0])).await
    }

    async fn executions(
        &self,
        filter: &ExecutionFilter,
        page: Page<ExecutionId>,
    ) -> Result<Paged<ExecutionRow>, StoreError> {
        self.ask_page(lists::executions(filter, page), shared::execution, |row| row.record.id).await
    }

    async fn execution(&self, id: ExecutionId) -> Result<Option<ExecutionRow>, StoreError> {
        Ok(self.ask_all(&views::execution_queries(id), views::execution).await?.into_iter().next())
    }

    async fn events(&self, after: EventSeq, limit: usize) -> Result<EventPage, StoreError> {
        loop {
            let read = |answers: &[Vec<Row>]| views::events(answers, after, limit);
            let (page, damaged) = self.ask(&views::events_queries(after, limit), read).await?;
            if damaged.is_empty() {
                return Ok(page);
            }
            self.set_aside(&damaged).await?;
        }
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.ask_all(&[views::workers_query()], |answers| load::workers(&answers[0])).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>, StoreError> {
        self.ask_all(&[views::queues_query()], |answers| load::queues(&answers[0])).await
    }

    async fn put_token(&self, token: &Token) -> Result<(), StoreError> {
        self.change(&upkeep::put_token(token)).await.map(drop)
    }

    async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        self.ask_all(&[views::tokens_query()], |answers| views::tokens(&answers[0])).await
    }

    async fn put_artifact(&self, artifact: &Artifact) -> Result<(), StoreError> {
        self.trust.check()?;
        let put = self.queries.run(self.write(), &upkeep::put_artifact(artifact)).await;
        // Refused for a version that another server recorded: nothing has come apart by that.
        put.map(drop).map_err(|stopped| self.judge_query(stopped))
    }

    async fn artifacts(&self, filter: &ArtifactFilter, limit: usize) -> Result<Vec<Artifact>, StoreError> {
        let query = views::artifacts_query(filter, limit);
        self.ask(&[query], |answers| answers[0].iter().map(views::artifact).collect()).await
    }

    async fn delete_artifact(
        &self,
        artifact: &Artifact,
        reason: DeletionReason,
    ) -> Result<ArtifactDeletion, StoreError> {
        let answers = self.change(&[upkeep::delete_artifact(artifact, reason)]).await?;
        upkeep::artifact_deletion(&answers[0]).map_err(|damage| self.judge_change(damage))
    }

    async fn superseded_artifacts(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Artifact>, StoreError> {
        let query = views::superseded_artifacts_query(before, limit);
        self.ask(&[query], |answers| answers[0].iter().map(views::artifact).collect()).await
    }

    async fn expired_jobs(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(JobId, Vec<ExecutionId>)>, StoreError> {
        self.ask(&[views::expired_query(now, limit)], |answers| views::expired(&answers[0])).await
    }

    async fn delete_jobs(&self, jobs: &[JobId]) -> Result<(), StoreError> {
        self.change(&upkeep::delete_jobs(jobs)).await.map(drop)
    }

    async fn expired_runs(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let read = |answers: &[Vec<Row>]| {
            answers[0].iter().map(|row| row.bits(0, "id").map(RunId::from_bits)).collect()
        };
        self.ask(&[views::expired_runs_query(now, limit)], read).await
    }

    async fn delete_runs(&self, runs: &[RunId]) -> Result<(), StoreError> {
        self.change(&upkeep::delete_runs(runs)).await?;
        while self.deleted(&upkeep::delete_steps()).await? > 0 {}
        Ok(())
    }

    async fn trim_events(&self, before: Timestamp) -> Result<(), StoreError> {
        self.change(&upkeep::trim_events(before)).await.map(drop)
    }

    async fn trim_ledger(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let lines = self.deleted(&upkeep::trim_lines(before, limit)).await?;
        let room = limit.saturating_sub(usize::try_from(lines).unwrap_or(usize::MAX));
        if room == 0 {
            return Ok(lines);
        }
        Ok(lines + self.deleted(&upkeep::trim_backfills(before, room)).await?)
    }

    async fn quarantined(&self, limit: usize) -> Result<Vec<Quarantined>, StoreError> {
        let list = [quarantine::list(limit)];
        self.ask(&list, |answers| answers[0].iter().map(quarantined).collect()).await
    }

    async fn announce(
        &self,
        server: &ServerRecord,
        lag: Option<Duration>,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        self.change_members(&members::announce(server, lag, ttl)).await.map(drop)
    }

    async fn cluster(&self) -> Result<Cluster, StoreError> {
        self.ask(&members::cluster_queries(), |answers| Ok(members::cluster(answers))).await
    }

    async fn set_draining(&self, server: ServerId, draining: bool) -> Result<bool, StoreError> {
        let answers = self.change(&[members::set_draining(server, draining)]).await?;
        Ok(answers.first().is_some_and(|rows| !rows.is_empty()))
    }

    async fn depart(&self, server: ServerId) -> Result<(), StoreError> {
        self.change_members(&[members::depart(server)]).await.map(drop)
    }

    async fn secret(&self, name: &str, proposed: &[u8; 32]) -> Result<[u8; 32], StoreError> {
        let answers = self.change(&members::secret(name, proposed)).await?;
        let kept = answers.last().and_then(|rows| rows.first()).map(|row| row.get::<_, &[u8]>(0));
        kept.and_then(|kept| kept.try_into().ok()).ok_or_else(|| {
            self.judge_change(Failure::Broken(format!("its secret `{name}` does not have 32 bytes")))
        })
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.trust.check()?;
        let touch = concat!("UPDATE meta SET checked_at = ", clock!(), " WHERE id = 0");
        let queries = [settings::query(), Query::new(touch, Vec::new())];
        let checked = self.checks.run(self.write(), &queries).await;
        self.check_server(&checked.map_err(|stopped| self.judge_change(stopped))?[0])?;
        self.look_for_space().await
    }
}
