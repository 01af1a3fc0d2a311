//! Writes schedules, their ledger and their backfills.
//!
//! A ledger entry takes its namespace from its schedule. So entries are written while the schedule exists:
//! before its removal, and after its creation. The name of a removed schedule is free for a new one.
//!
//! Rows are collected in arrays, one statement for each type of change; a statement that wrote fewer rows
//! than it was given fails. The last safeguard of "one scheduled time, one job" is in `lines`: an entry with
//! a job never gets another one.

use std::collections::HashSet;

use model::firing::{LedgerRecord, ScheduleHead, ScheduleState};
use model::record::Change;
use model::{BackfillId, ScheduleId};
use uuid::Uuid;

use super::{Steps, count, signed, uuid};
use crate::codec::{
    BackfillColumns, LedgerColumns, ScheduleColumns, seal_backfill, seal_backfill_head, seal_ledger,
    seal_schedule, seal_schedule_head,
};
use crate::postgres::error::Failure;
use crate::postgres::param::{
    Param, bigs, blobs, escape, ids, ints, optional_bigs, optional_ids, optional_texts, texts,
};

const NOT_FOUND: &str = "a changed schedule does not exist";
const ALREADY_EXISTS: &str = "a new schedule, or one with its name, already exists";

/// Columns of a schedule's state.
#[derive(Default)]
struct States {
    ids: Vec<Uuid>,
    statuses: Vec<i32>,
    nexts: Vec<Option<i64>>,
    states: Vec<Vec<u8>>,
}

impl States {
    fn push(&mut self, id: ScheduleId, state: &ScheduleState) {
        let columns = ScheduleColumns::of(state);
        self.ids.push(uuid(id.to_bits()));
        self.statuses.push(columns.status.into());
        self.nexts.push(columns.next_at);
        self.states.push(seal_schedule(id, &columns, state));
    }

    /// `$1` to `$4`, the number of rows at `$5`.
    fn params(self) -> Vec<Param> {
        let rows = self.ids.len();
        vec![ids(self.ids), ints(self.statuses), optional_bigs(self.nexts), blobs(self.states), count(rows)]
    }
}

/// Columns of complete schedules.
#[derive(Default)]
struct FullRows {
    states: States,
    namespaces: Vec<String>,
    names: Vec<String>,
    owners: Vec<Option<String>>,
    heads: Vec<Vec<u8>>,
    shards: Vec<i32>,
}

impl FullRows {
    fn push(&mut self, id: ScheduleId, head: &ScheduleHead, state: &ScheduleState) {
        self.states.push(id, state);
        self.namespaces.push(escape(&head.spec.namespace));
        self.names.push(escape(&head.spec.name));
        self.owners.push(head.spec.owner.as_deref().map(escape));
        self.heads.push(seal_schedule_head(id, head));
        self.shards.push(id.shard().0.into());
    }

    /// `$1` to `$9`, the number of rows at `$5`; and the heads with their ids.
    fn params(self) -> (Vec<Param>, Vec<Param>) {
        let heads = vec![ids(self.states.ids.clone()), blobs(self.heads)];
        let mut params = self.states.params();
        params.extend([
            texts(self.namespaces),
            texts(self.names),
            optional_texts(self.owners),
            ints(self.shards),
        ]);
        (params, heads)
    }
}

impl Steps {
    /// Writes the changes of schedules in a batch.
    pub(super) fn schedules(&mut self, changes: &[Change]) -> Result<(), Failure> {
        let removed: HashSet<ScheduleId> = changes
            .iter()
            .filter_map(|change| match change {
                Change::RemoveSchedule(id) => Some(*id),
                _ => None,
            })
            .collect();
        let lines = |of_removed: bool| {
            changes.iter().filter_map(move |change| match change {
                Change::Ledger(record) => Some((&**record, of_removed)),
                _ => None,
            })
        };
        let of_removed = lines(true).filter(|(record, _)| removed.contains(&record.schedule));
        self.lines(of_removed.map(|(record, _)| record))?;
        self.remove_schedules(&removed);
        self.put_schedules(changes)?;
        let of_others = lines(false).filter(|(record, _)| !removed.contains(&record.schedule));
        self.lines(of_others.map(|(record, _)| record))?;
        self.backfills(changes);
        Ok(())
    }

    fn remove_schedules(&mut self, removed: &HashSet<ScheduleId>) {
        if removed.is_empty() {
            return;
        }
        let all = || vec![ids(removed.iter().map(|id| uuid(id.to_bits())).collect())];
        self.add("DELETE FROM schedule_labels WHERE schedule = ANY($1)", all());
        self.add("DELETE FROM schedule_heads WHERE id = ANY($1)", all());
        self.add("DELETE FROM schedules WHERE id = ANY($1)", all());
    }

    fn put_schedules(&mut self, changes: &[Change]) -> Result<(), Failure> {
        let (mut new, mut updated, mut changed) =
            (FullRows::default(), FullRows::default(), States::default());
        let (mut keys, mut values, mut labelled) = (Vec::new(), Vec::new(), Vec::new());
        for change in changes {
            let Change::Schedule { id, new: is_new, head, state } = change else { continue };
            match (is_new, head) {
                (true, Some(head)) => new.push(*id, head, state),
                (true, None) => {
                    return Err(Failure::Broken(format!("the new schedule {id} has no head")));
                }
                (false, Some(head)) => updated.push(*id, head, state),
                (false, None) => changed.push(*id, state),
            }
            for (key, value) in head.iter().flat_map(|head| &head.spec.labels) {
                keys.push(escape(key));
                values.push(escape(value));
                labelled.push(uuid(id.to_bits()));
            }
        }
        self.new_schedules(new);
        if !changed.ids.is_empty() {
            self.add_guarded(
                NOT_FOUND,
                "WITH changed AS (
                    UPDATE schedules s SET status = u.status, next_at = u.next_at, state = u.state
                    FROM unnest($1, $2, $3, $4) AS u (id, status, next_at, state)
                    WHERE s.id = u.id RETURNING 1
                )
                SELECT 1 / (CASE WHEN count(*) = $5 THEN 1 ELSE 0 END) FROM changed",
                changed.params(),
            );
        }
        self.updated_schedules(updated);
        if !keys.is_empty() {
            self.add(
                "INSERT INTO schedule_labels SELECT * FROM unnest($1, $2, $3) ON CONFLICT DO NOTHING",
                vec![texts(keys), texts(values), ids(labelled)],
            );
        }
        Ok(())
    }

    fn new_schedules(&mut self, new: FullRows) {
        if new.heads.is_empty() {
            return;
        }
        let (params, heads) = new.params();
        self.add_guarded(
            ALREADY_EXISTS,
            "WITH put AS (
                INSERT INTO schedules (id, status, next_at, state, namespace, name, owner, shard)
                SELECT * FROM unnest($1, $2, $3, $4, $6, $7, $8, $9) RETURNING 1
            )
            SELECT 1 / (CASE WHEN count(*) = $5 THEN 1 ELSE 0 END) FROM put",
            params,
        );
        self.add_guarded(ALREADY_EXISTS, "INSERT INTO schedule_heads SELECT * FROM unnest($1, $2)", heads);
    }

    fn updated_schedules(&mut self, updated: FullRows) {
        if updated.heads.is_empty() {
            return;
        }
        let replaced = updated.states.ids.clone();
        let (params, heads) = updated.params();
        self.add_guarded(
            NOT_FOUND,
            "WITH changed AS (
                UPDATE schedules s SET status = u.status, next_at = u.next_at, state = u.state,
                    namespace = u.namespace, name = u.name, owner = u.owner, shard = u.shard
                FROM unnest($1, $2, $3, $4, $6, $7, $8, $9)
                    AS u (id, status, next_at, state, namespace, name, owner, shard)
                WHERE s.id = u.id RETURNING 1
            )
            SELECT 1 / (CASE WHEN count(*) = $5 THEN 1 ELSE 0 END) FROM changed",
            params,
        );
        self.add(
            "UPDATE schedule_heads h SET head = u.head FROM unnest($1, $2) AS u (id, head) WHERE h.id = u.id",
            heads,
        );
        self.add("DELETE FROM schedule_labels WHERE schedule = ANY($1)", vec![ids(replaced)]);
    }

    /// Writes ledger entries. An entry with a job never gets another job, which is the last safeguard of "one scheduled
    /// time, one job": an engine that attempts it no longer has the record of what has fired.
    fn lines<'a>(&mut self, records: impl Iterator<Item = &'a LedgerRecord>) -> Result<(), Failure> {
        let mut lines = Lines::default();
        for record in records {
            lines.push(record)?;
        }
        if lines.firsts.is_empty() {
            return Ok(());
        }
        self.add_guarded(
            "a scheduled time already has a job and cannot get another one, or none",
            "WITH put AS (
                INSERT INTO ledger (first, schedule, generation, cause, backfill, last, count, outcome,
                    job, decided_at, namespace, rest)
                SELECT u.first, u.schedule, u.generation, u.cause, u.backfill, u.last, u.count, u.outcome,
                    u.job, u.decided_at,
                    coalesce((SELECT s.namespace FROM schedules s WHERE s.id = u.schedule),
                             (SELECT l.namespace FROM ledger l WHERE l.schedule = u.schedule
                              ORDER BY l.first DESC LIMIT 1)),
                    u.rest
                FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
                    AS u (first, schedule, generation, cause, backfill, last, count, outcome, job,
                          decided_at, rest)
                ON CONFLICT (first, schedule, generation, cause, backfill) DO UPDATE SET
                    last = excluded.last, count = excluded.count, outcome = excluded.outcome,
                    job = excluded.job, decided_at = excluded.decided_at, rest = excluded.rest
                WHERE ledger.job IS NULL OR ledger.job = excluded.job
                RETURNING 1
            )
            SELECT 1 / (CASE WHEN count(*) = $12 THEN 1 ELSE 0 END) FROM put",
            lines.params(),
        );
        Ok(())
    }

    fn backfills(&mut self, changes: &[Change]) {
        let mut new = Backfills::default();
        let mut changed = Backfills::default();
        let (mut schedules, mut shards, mut heads) = (Vec::new(), Vec::new(), Vec::new());
        for change in changes {
            let Change::Backfill { id, head, state } = change else { continue };
            let Some(head) = head else {
                changed.push(*id, state);
                continue;
            };
            new.push(*id, state);
            schedules.push(uuid(head.schedule.to_bits()));
            shards.push(i32::from(id.shard().0));
            heads.push(seal_backfill_head(head));
        }
        if !schedules.is_empty() {
            let heads = vec![ids(new.ids.clone()), blobs(heads)];
            let mut params = new.params();
            params.extend([ids(schedules), ints(shards)]);
            self.add_guarded(
                "a new backfill already exists",
                "WITH put AS (
                    INSERT INTO backfills (id, schedule, status, finished_at, namespace, state, shard)
                    SELECT u.id, u.schedule, u.status, u.finished_at, s.namespace, u.state, u.shard
                    FROM unnest($1, $2, $3, $4, $6, $7)
                        AS u (id, status, finished_at, state, schedule, shard)
                    LEFT JOIN schedules s ON s.id = u.schedule
                    RETURNING 1
                )
                SELECT 1 / (CASE WHEN count(*) = $5 THEN 1 ELSE 0 END) FROM put",
                params,
            );
            let put = "INSERT INTO backfill_heads SELECT * FROM unnest($1, $2)";
            self.add_guarded("a new backfill already exists", put, heads);
        }
        if !changed.ids.is_empty() {
            self.add_guarded(
                "a changed backfill does not exist",
                "WITH changed AS (
                    UPDATE backfills b SET status = u.status, finished_at = u.finished_at, state = u.state
                    FROM unnest($1, $2, $3, $4) AS u (id, status, finished_at, state)
                    WHERE b.id = u.id RETURNING 1
                )
                SELECT 1 / (CASE WHEN count(*) = $5 THEN 1 ELSE 0 END) FROM changed",
                changed.params(),
            );
        }
    }
}

/// Columns of ledger entries.
#[derive(Default)]
struct Lines {
    firsts: Vec<i64>,
    schedules: Vec<Uuid>,
    generations: Vec<i64>,
    causes: Vec<i32>,
    backfills: Vec<Uuid>,
    lasts: Vec<i64>,
    counts: Vec<i64>,
    outcomes: Vec<i32>,
    jobs: Vec<Option<Uuid>>,
    decided: Vec<i64>,
    rests: Vec<Vec<u8>>,
}

impl Lines {
    fn push(&mut self, record: &LedgerRecord) -> Result<(), Failure> {
        let columns = LedgerColumns::of(record);
        self.firsts.push(columns.first);
        self.schedules.push(uuid(columns.schedule.to_bits()));
        self.generations.push(signed(columns.generation)?);
        self.causes.push(columns.cause.into());
        self.backfills.push(uuid(columns.backfill.map_or(0, BackfillId::to_bits)));
        self.lasts.push(columns.last);
        self.counts.push(signed(columns.count)?);
        self.outcomes.push(columns.outcome.into());
        self.jobs.push(columns.work.map(uuid));
        self.decided.push(columns.decided_at);
        self.rests.push(seal_ledger(record));
        Ok(())
    }

    fn params(self) -> Vec<Param> {
        let rows = self.firsts.len();
        vec![
            bigs(self.firsts),
            ids(self.schedules),
            bigs(self.generations),
            ints(self.causes),
            ids(self.backfills),
            bigs(self.lasts),
            bigs(self.counts),
            ints(self.outcomes),
            optional_ids(self.jobs),
            bigs(self.decided),
            blobs(self.rests),
            count(rows),
        ]
    }
}

/// Columns of a backfill's state.
#[derive(Default)]
struct Backfills {
    ids: Vec<Uuid>,
    statuses: Vec<i32>,
    finished: Vec<Option<i64>>,
    states: Vec<Vec<u8>>,
}

impl Backfills {
    fn push(&mut self, id: BackfillId, state: &model::firing::BackfillState) {
        let columns = BackfillColumns::of(state);
        self.ids.push(uuid(id.to_bits()));
        self.statuses.push(columns.status.into());
        self.finished.push(columns.finished_at);
        self.states.push(seal_backfill(id, state));
    }

    fn params(self) -> Vec<Param> {
        let rows = self.ids.len();
        vec![
            ids(self.ids),
            ints(self.statuses),
            optional_bigs(self.finished),
            blobs(self.states),
            count(rows),
        ]
    }
}
