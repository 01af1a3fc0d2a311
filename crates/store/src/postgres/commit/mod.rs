//! [`Commits`]: writes a batch in one transaction, sent in one message.
//!
//! ```text
//!  BEGIN
//!    check the leases, and lock their rows                      error: fenced
//!    engine time of the changed shards
//!    executions · schedules · workflows · services · jobs · keys · registry   error: an invariant is broken
//!    next positions of the feed, the events, and the changed rows for the changelog
//!  COMMIT
//! ```
//!
//! Rows are sent as arrays, with one statement for each type of change instead of each row. The statements themselves
//! check the invariants: a statement that changed fewer rows than it was given divides by zero, and the server rolls
//! back the transaction.
//!
//! # Several servers at once
//! Servers own different shards, so they lock different rows, until the last statement. It advances the counters of the
//! feed and the changelog, which are in one row, and locks that row until the commit is durable. So positions are
//! assigned in the order in which commits become visible: a reader that has seen a position has seen all earlier ones,
//! and never has to look back.
//!
//! The price is that the ends of commits are serialized (an fsync each, some 0.2–1 ms); the work before them is not.
//! Positions from a sequence, without a lock, would become visible in any order, and a reader could skip an event that
//! commits later. If readers waited for the oldest running transaction instead, one abandoned session could stop the
//! feed.

mod executions;
mod jobs;
mod registry;
mod schedules;
mod services;
mod workflows;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use model::changelog::LiveChange;
use model::id::Epoch;
use model::record::{Batch, Change, Lease, LiveRow};
use model::{ShardId, Timestamp};
use tokio::sync::mpsc::Sender;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::{Lane, Mode, Query, Stopped};
use super::error::{Failure, GUARD};
use super::guard::{Guard, LeaseExtension, clock, first_invalid, micros};
use super::param::{self, big, bigs, blobs};
use super::{PostgresStore, load};
use crate::batch::{Counters, EVENTS_PER_ROW, first_shard_without_lease, heads_for_executions};
use crate::changelog::Changelog;
use crate::codec::{seal_counted, seal_events, seal_touched};
use crate::{Commits, Committed, EventSeq, Loaded, StoreError};

/// Maximum number of attempts of a transaction that conflicts with others.
const ATTEMPTS_MAX: u32 = 5;

#[async_trait]
impl Commits for PostgresStore {
    async fn load(&self, leases: &[Lease], rows: Sender<Vec<LiveRow>>) -> Result<Loaded, StoreError> {
        self.trust.check()?;
        let mode = Mode::Read { limit: load::PAGE_LIMIT };
        let loaded = load::load(&self.queries, mode, &self.guard, leases, &rows).await;
        let outcome = loaded.map_err(|failure| self.judge_change(failure))?;
        self.move_to_quarantine(&outcome.damaged).await?;
        Ok(outcome.loaded)
    }

    async fn commit(&self, leases: &[Lease], batch: Arc<Batch>) -> Result<Committed, StoreError> {
        self.trust.check()?;
        let committed = commit(&self.commits, self.write(), &self.guard, leases, &batch).await;
        committed.map_err(|failure| self.judge_change(failure))
    }

    fn commits_ahead(&self) -> usize {
        1
    }

    fn has_reserve(&self) -> bool {
        false
    }

    fn changelog(&self) -> Option<&dyn Changelog> {
        Some(self)
    }
}

/// Statement, and the meaning of a failure of its guard.
struct Step {
    query: Query,
    broken: &'static str,
}

/// Statements of one batch, in order.
struct Steps {
    steps: Vec<Step>,
    now: Timestamp,
    /// Part of the counts that this commit may change: one of its locked shards.
    part: i32,
}

impl Steps {
    fn add(&mut self, sql: &'static str, params: Vec<param::Param>) {
        self.add_guarded("", sql, params);
    }

    fn add_guarded(&mut self, broken: &'static str, sql: &'static str, params: Vec<param::Param>) {
        self.steps.push(Step { query: Query::new(sql, params), broken });
    }
}

/// Converts an ID into the format of the database.
fn uuid(bits: u128) -> Uuid {
    Uuid::from_u128(bits)
}

/// Converts a number; one that the database cannot store breaks an invariant: no number of Belfry grows that large.
fn signed(number: u64) -> Result<i64, Failure> {
    i64::try_from(number).map_err(|_| Failure::Broken(format!("the number {number} is too large")))
}

/// Returns the number of rows that a statement was given.
fn count(rows: usize) -> param::Param {
    big(rows as i64)
}

/// Commits the batch, if the leases are valid.
async fn commit(
    lane: &Lane,
    mode: Mode,
    guard: &Guard,
    leases: &[Lease],
    batch: &Batch,
) -> Result<Committed, Failure> {
    if let Some(shard) = first_shard_without_lease(leases, batch) {
        return Err(Failure::Fenced(shard));
    }
    let prolongation = guard.lease_extension();
    let steps = steps(guard, prolongation, leases, batch)?;
    let meanings: Vec<_> = steps.iter().map(|step| step.broken).collect();
    let queries: Vec<_> = steps.into_iter().map(|step| step.query).collect();
    let mut tries = 0;
    loop {
        tries += 1;
        match lane.run(mode, &queries).await {
            Ok(answers) => {
                prolongation.into_iter().for_each(|by| guard.prolonged(by));
                return Ok(Committed {
                    first_event: first_event(&answers)?,
                    extended: prolongation.is_some(),
                    space_low: false,
                });
            }
            Err(stopped) if tries < ATTEMPTS_MAX && stopped.failure.is_contention() => {}
            Err(stopped) if stopped.at == Some(0) && stopped.failure.state() == Some(GUARD) => {
                return Err(first_invalid(lane, mode, leases).await);
            }
            Err(stopped) => return Err(meaning(stopped, &meanings)),
        }
    }
}

/// Returns the error of the failed guard, in words.
fn meaning(stopped: Stopped, meanings: &[&'static str]) -> Failure {
    let Stopped { at, failure } = stopped;
    let meaning = at.and_then(|at| meanings.get(at)).filter(|meaning| !meaning.is_empty());
    match (failure.state(), meaning) {
        (Some(state), Some(meaning)) if state == GUARD => Failure::Broken((*meaning).to_owned()),
        (Some(state), Some(meaning)) if state.code().starts_with("23") => {
            let Failure::Refused(error) = &failure else { return failure };
            Failure::Broken(format!("{meaning}: {}", super::error::describe(error)))
        }
        _ => failure,
    }
}

fn first_event(answers: &[Vec<Row>]) -> Result<EventSeq, Failure> {
    let place = answers.last().and_then(|rows| rows.first()).map(|row| row.get::<_, i64>(0));
    let place = place.ok_or_else(|| Failure::Broken("the row `meta` is missing".into()))?;
    Ok(EventSeq(place.cast_unsigned()))
}

fn steps(
    guard: &Guard,
    prolongation: Option<LeaseExtension>,
    leases: &[Lease],
    batch: &Batch,
) -> Result<Vec<Step>, Failure> {
    let part = leases.iter().map(|lease| i32::from(lease.shard.0)).min().unwrap_or(-1);
    let mut steps = Steps { steps: Vec::new(), now: batch.now, part };
    steps.steps.push(Step { query: guard.hold(leases), broken: "" });
    steps.advance(leases, prolongation, batch);
    steps.forget_keys(&batch.changes);
    steps.executions(&batch.changes, &heads_for_executions(&batch.changes))?;
    steps.schedules(&batch.changes)?;
    steps.workflows(&batch.changes)?;
    steps.services(&batch.changes)?;
    let mut counters = Counters::default();
    steps.jobs(&batch.changes, &mut counters)?;
    steps.counts(&counters);
    steps.checkpoints(&batch.changes)?;
    steps.keys(&batch.changes);
    steps.registry(&batch.changes);
    let epoch = leases.iter().map(|lease| lease.epoch).max().unwrap_or_default();
    steps.end(epoch, batch)?;
    Ok(steps.steps)
}

impl Steps {
    /// Advances the engine time of the shards that the batch changes, so that a server with a wrong clock does not
    /// advance other shards; of all leased shards if the batch changes none. Also extends the leases.
    fn advance(&mut self, leases: &[Lease], prolongation: Option<LeaseExtension>, batch: &Batch) {
        let touched: BTreeSet<ShardId> = batch.changes.iter().filter_map(Change::shard).collect();
        let shard = |shard: &ShardId| i32::from(shard.0);
        let shards: Vec<_> = match touched.is_empty() {
            true => leases.iter().map(|lease| shard(&lease.shard)).collect(),
            false => touched.iter().map(shard).collect(),
        };
        let mut params = vec![param::ints(shards), big(batch.now.as_micros())];
        let Some(by) = prolongation else {
            return self
                .add("UPDATE shards SET now = $2, logged = $2 WHERE shard = ANY($1) AND now < $2", params);
        };
        let all = leases.iter().map(|lease| shard(&lease.shard)).collect();
        params.extend([param::ints(all), micros(by.ttl)]);
        self.add(
            concat!(
                "UPDATE shards SET expires_at = ",
                clock!(),
                " + $4,
                    now = CASE WHEN shard = ANY($1) AND now < $2 THEN $2 ELSE now END,
                    logged = CASE WHEN shard = ANY($1) AND now < $2 THEN $2 ELSE logged END
                WHERE shard = ANY($3)"
            ),
            params,
        );
    }

    /// Last statement: from here on, other servers wait. If the commit has neither events nor changes for the
    /// changelog, no server waits.
    fn end(&mut self, epoch: Epoch, batch: &Batch) -> Result<(), Failure> {
        let touched = LiveChange::by(&batch.changes);
        if batch.events.is_empty() && touched.is_empty() && batch.statistics.is_empty() {
            self.add("SELECT next_event FROM meta", Vec::new());
            return Ok(());
        }
        let (mut offsets, mut counts, mut ats, mut payloads) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut offset = 0i64;
        let is_any = !batch.statistics.is_empty();
        let counted = is_any.then(|| seal_counted(batch.now, &batch.statistics));
        for events in batch.events.chunks(EVENTS_PER_ROW) {
            let newest = events.iter().map(|event| event.at).max().unwrap_or(batch.now).as_micros();
            offsets.push(offset);
            counts.push(events.len() as i64);
            ats.push(newest);
            // Their position is not known yet, so the checksum covers their time instead.
            payloads.push(seal_events(newest.cast_unsigned(), events));
            offset += events.len() as i64;
        }
        self.add(
            concat!(
                "WITH place AS (
                UPDATE meta SET next_event = next_event + $1, commits = commits + 1 WHERE id = 0
                RETURNING next_event - $1 AS first, next_event, commits
            ), put AS (
                INSERT INTO events (first, count, at, payload)
                SELECT place.first + e.offset_, e.count_, e.at_, e.payload_
                FROM place, unnest($2, $3, $4, $5) AS e (offset_, count_, at_, payload_)
                RETURNING 1
            ), told AS (
                INSERT INTO changelog (number, epoch, at, first_event, next_event, touched)
                SELECT commits, $6, ",
                clock!(),
                ", first, next_event, $7 FROM place
                RETURNING 1
            ), counted AS (
                INSERT INTO statistics_pending (id, at, payload)
                SELECT gen_random_uuid(), $8, $9 WHERE $9 IS NOT NULL
                RETURNING 1
            )
            SELECT first FROM place"
            ),
            vec![
                big(offset),
                bigs(offsets),
                bigs(counts),
                bigs(ats),
                blobs(payloads),
                big(signed(epoch.0)?),
                param::bytes(seal_touched(epoch, &touched)),
                big(batch.now.as_micros()),
                param::optional_bytes(counted),
            ],
        );
        Ok(())
    }
}
