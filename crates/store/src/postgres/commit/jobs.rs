//! Writes jobs, their labels, and the number of jobs in each status.
//!
//! A batch is divided by what it changes: the state alone, which is the usual case, or the head too; of a
//! live job, or of one that ends. A job that ends moves from `jobs` to `jobs_ended` in one statement. Each
//! statement counts the rows that it wrote and fails if one is missing.
//!
//! Counts are differences: a statement subtracts the previous status in the database, which only the database
//! knows, and [`Counters`] adds the new status of jobs that come with a head. Each server adds to its own
//! part of the counts, so servers do not wait for each other's rows.

use std::sync::Arc;

use model::record::{Change, JobHead, JobState};
use model::{JobId, ShardId};
use uuid::Uuid;

use super::{Steps, count, signed, uuid};
use crate::batch::Counters;
use crate::codec::{StateColumns, seal_checkpoint, seal_head, seal_history, seal_state};
use crate::postgres::error::Failure;
use crate::postgres::param::{
    bigs, blobs, escape, ids, int, ints, optional_bigs, optional_ids, optional_texts, texts,
};

/// Columns of a job's state.
#[derive(Default)]
struct States {
    ids: Vec<Uuid>,
    statuses: Vec<i32>,
    workers: Vec<Option<Uuid>>,
    expiries: Vec<Option<i64>>,
    states: Vec<Vec<u8>>,
    histories: Vec<Vec<u8>>,
}

impl States {
    fn push(&mut self, id: JobId, state: &JobState) {
        let columns = StateColumns::of(state);
        self.ids.push(uuid(id.to_bits()));
        self.statuses.push(columns.status.into());
        self.workers.push(columns.worker.map(Uuid::from_bytes));
        self.expiries.push(columns.expires_at);
        self.states.push(seal_state(id, &columns, state));
        self.histories.push(seal_history(id, &state.history));
    }

    fn params(self) -> Vec<crate::postgres::param::Param> {
        let rows = self.ids.len();
        vec![
            ids(self.ids),
            ints(self.statuses),
            optional_ids(self.workers),
            optional_bigs(self.expiries),
            blobs(self.states),
            blobs(self.histories),
            count(rows),
        ]
    }
}

/// Columns of a job's head.
#[derive(Default)]
struct Heads {
    namespaces: Vec<String>,
    owners: Vec<Option<String>>,
    queues: Vec<String>,
    names: Vec<String>,
    heads: Vec<Vec<u8>>,
    schedules: Vec<Option<Uuid>>,
    backfills: Vec<Option<Uuid>>,
    runs: Vec<Option<Uuid>>,
    services: Vec<Option<Uuid>>,
    shards: Vec<i32>,
}

impl Heads {
    fn push(&mut self, id: JobId, head: &JobHead) {
        let ShardId(shard) = id.shard();
        self.namespaces.push(escape(&head.spec.namespace));
        self.owners.push(head.spec.owner.as_deref().map(escape));
        self.queues.push(escape(&head.spec.queue));
        self.names.push(escape(&head.spec.name));
        self.heads.push(seal_head(id, head));
        let origin = head.origin.as_deref();
        self.schedules.push(origin.map(|origin| uuid(origin.schedule.to_bits())));
        self.backfills.push(origin.and_then(|origin| origin.backfill).map(|id| uuid(id.to_bits())));
        self.runs.push(head.step.as_deref().map(|step| uuid(step.run.to_bits())));
        self.services.push(head.replica.as_deref().map(|replica| uuid(replica.service.to_bits())));
        self.shards.push(shard.into());
    }

    fn params(self) -> [crate::postgres::param::Param; 10] {
        [
            texts(self.namespaces),
            optional_texts(self.owners),
            texts(self.queues),
            texts(self.names),
            blobs(self.heads),
            optional_ids(self.schedules),
            optional_ids(self.backfills),
            optional_ids(self.runs),
            optional_ids(self.services),
            ints(self.shards),
        ]
    }
}

/// Columns of complete jobs, for one of the tables.
#[derive(Default)]
struct FullRows {
    states: States,
    heads: Heads,
}

impl FullRows {
    fn push(&mut self, id: JobId, head: &JobHead, state: &JobState) {
        self.states.push(id, state);
        self.heads.push(id, head);
    }

    fn is_empty(&self) -> bool {
        self.states.ids.is_empty()
    }

    fn params(self) -> Vec<crate::postgres::param::Param> {
        let mut params = self.states.params();
        params.extend(self.heads.params());
        params
    }
}

/// `$1` to `$17`: the columns of [`FullRows`], with the number of rows at `$7`.
macro_rules! full_rows {
    () => {
        "unnest($1, $2, $3, $4, $5, $6, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
         AS u (id, status, worker, expires_at, state, history,
               namespace, owner, queue, name, head, schedule, backfill, run, service, shard)"
    };
}

/// Subtracts the rows of `changed` and `gone` from the counts of part `$18` or `$8`, and adds the new ones.
macro_rules! counted {
    ($part:literal, $deltas:literal) => {
        concat!(
            "counted AS (
                INSERT INTO job_counts (part, namespace, status, count)
                SELECT ",
            $part,
            ", d.namespace, d.status, sum(d.by_) FROM (",
            $deltas,
            ") AS d (namespace, status, by_)
                GROUP BY d.namespace, d.status HAVING sum(d.by_) <> 0 ORDER BY d.namespace, d.status
                ON CONFLICT (part, namespace, status)
                DO UPDATE SET count = job_counts.count + excluded.count
                RETURNING 1
            )"
        )
    };
}

const NOT_LIVE: &str = "a changed job is not live";
const ALREADY_EXISTS: &str = "a new job already exists";

impl Steps {
    /// Writes the changes of jobs in a batch, and adds to `counters` what the database cannot count itself.
    pub(super) fn jobs(&mut self, changes: &[Change], counters: &mut Counters) -> Result<(), Failure> {
        let (mut new, mut new_ended) = (FullRows::default(), FullRows::default());
        let (mut updated, mut updated_ended) = (FullRows::default(), FullRows::default());
        let (mut changed, mut ended) = (States::default(), States::default());
        let mut labels = Labels::default();
        for change in changes {
            let Change::Job { id, new: is_new, head, state } = change else { continue };
            let (id, is_final) = (*id, state.status.is_final());
            if let Some(head) = head {
                counters.add(&escape(&head.spec.namespace), state.status.code(), 1);
                labels.push(id, head, *is_new);
            }
            match (is_new, head, is_final) {
                (true, None, _) => {
                    return Err(Failure::Broken(format!("the new job {id} has no head")));
                }
                (true, Some(head), false) => new.push(id, head, state),
                (true, Some(head), true) => new_ended.push(id, head, state),
                (false, Some(head), false) => updated.push(id, head, state),
                (false, Some(head), true) => updated_ended.push(id, head, state),
                (false, None, false) => changed.push(id, state),
                (false, None, true) => ended.push(id, state),
            }
        }
        self.changed_jobs(changed, ended);
        self.updated_jobs(updated, updated_ended);
        self.new_jobs(new, new_ended);
        self.labels(labels);
        Ok(())
    }

    /// Writes jobs of which only the state changed.
    fn changed_jobs(&mut self, changed: States, ended: States) {
        let part = self.part;
        let with_part = |states: States| {
            let mut params = states.params();
            params.push(int(part));
            params
        };
        if !changed.ids.is_empty() {
            // Joined to itself: an update returns the new values, and the counts need the old ones.
            self.add_guarded(
                NOT_LIVE,
                concat!(
                    "WITH changed AS (
                        UPDATE jobs j SET status = u.status, worker = u.worker,
                            expires_at = u.expires_at, state = u.state, history = u.history
                        FROM unnest($1, $2, $3, $4, $5, $6)
                            AS u (id, status, worker, expires_at, state, history), jobs o
                        WHERE j.id = u.id AND o.id = u.id
                        RETURNING j.namespace, o.status AS was, j.status
                    ), ",
                    counted!(
                        "$8",
                        "SELECT namespace, was, -1 FROM changed
                         UNION ALL SELECT namespace, status, 1 FROM changed"
                    ),
                    "SELECT 1 / (CASE WHEN count(*) = $7 THEN 1 ELSE 0 END) FROM changed"
                ),
                with_part(changed),
            );
        }
        if !ended.ids.is_empty() {
            self.add_guarded(
                NOT_LIVE,
                concat!(
                    "WITH gone AS (
                        DELETE FROM jobs j
                        USING unnest($1, $2, $3, $4, $5, $6)
                            AS u (id, status, worker, expires_at, state, history)
                        WHERE j.id = u.id
                        RETURNING j.id, u.status, u.worker, u.expires_at, j.namespace, j.owner, j.queue,
                            j.name, u.state, u.history, j.head, j.schedule, j.backfill, j.run, j.service,
                            j.status AS was
                    ), put AS (
                        INSERT INTO jobs_ended
                        SELECT id, status, worker, expires_at, namespace, owner, queue, name, state,
                            history, head, schedule, backfill, run, service
                        FROM gone
                        RETURNING 1
                    ), ",
                    counted!(
                        "$8",
                        "SELECT namespace, was, -1 FROM gone UNION ALL SELECT namespace, status, 1 FROM gone"
                    ),
                    "SELECT 1 / (CASE WHEN count(*) = $7 THEN 1 ELSE 0 END) FROM put"
                ),
                with_part(ended),
            );
        }
    }

    /// Writes jobs of which everything changed; their new status is counted elsewhere.
    fn updated_jobs(&mut self, updated: FullRows, ended: FullRows) {
        let part = self.part;
        let with_part = |rows: FullRows| {
            let mut params = rows.params();
            params.push(int(part));
            params
        };
        if !updated.is_empty() {
            self.add_guarded(
                NOT_LIVE,
                concat!(
                    "WITH changed AS (
                        UPDATE jobs j SET status = u.status, worker = u.worker,
                            expires_at = u.expires_at, namespace = u.namespace, owner = u.owner,
                            queue = u.queue, name = u.name, state = u.state, history = u.history,
                            head = u.head, schedule = u.schedule, backfill = u.backfill, run = u.run,
                            service = u.service, shard = u.shard
                        FROM ",
                    full_rows!(),
                    ", jobs o WHERE j.id = u.id AND o.id = u.id
                        RETURNING o.namespace, o.status AS was
                    ), ",
                    counted!("$18", "SELECT namespace, was, -1 FROM changed"),
                    "SELECT 1 / (CASE WHEN count(*) = $7 THEN 1 ELSE 0 END) FROM changed"
                ),
                with_part(updated),
            );
        }
        if !ended.is_empty() {
            self.add_guarded(
                NOT_LIVE,
                concat!(
                    "WITH gone AS (
                        DELETE FROM jobs j USING ",
                    full_rows!(),
                    " WHERE j.id = u.id
                        RETURNING u.id, u.status, u.worker, u.expires_at, u.namespace, u.owner, u.queue,
                            u.name, u.state, u.history, u.head, u.schedule, u.backfill, u.run, u.service,
                            u.shard, j.namespace AS was_in, j.status AS was
                    ), put AS (
                        INSERT INTO jobs_ended
                        SELECT id, status, worker, expires_at, namespace, owner, queue, name, state,
                            history, head, schedule, backfill, run, service
                        FROM gone
                        RETURNING 1
                    ), ",
                    counted!("$18", "SELECT was_in, was, -1 FROM gone"),
                    "SELECT 1 / (CASE WHEN count(*) = $7 THEN 1 ELSE 0 END) FROM put"
                ),
                with_part(ended),
            );
        }
    }

    fn new_jobs(&mut self, live: FullRows, ended: FullRows) {
        if !live.is_empty() {
            self.add_guarded(
                ALREADY_EXISTS,
                concat!(
                    "WITH put AS (
                        INSERT INTO jobs (id, status, worker, expires_at, namespace, owner, queue, name,
                            state, history, head, schedule, backfill, run, service, shard)
                        SELECT u.id, u.status, u.worker, u.expires_at, u.namespace, u.owner, u.queue,
                            u.name, u.state, u.history, u.head, u.schedule, u.backfill, u.run, u.service,
                            u.shard
                        FROM ",
                    full_rows!(),
                    " RETURNING 1
                    )
                    SELECT 1 / (CASE WHEN count(*) = $7 THEN 1 ELSE 0 END) FROM put"
                ),
                live.params(),
            );
        }
        if !ended.is_empty() {
            // The history does not have the shard of a row; this works for any number of shards.
            self.add_guarded(
                ALREADY_EXISTS,
                concat!(
                    "WITH put AS (
                        INSERT INTO jobs_ended (id, status, worker, expires_at, namespace, owner, queue,
                            name, state, history, head, schedule, backfill, run, service)
                        SELECT u.id, u.status, u.worker, u.expires_at, u.namespace, u.owner, u.queue,
                            u.name, u.state, u.history, u.head, u.schedule, u.backfill, u.run, u.service
                        FROM ",
                    full_rows!(),
                    " RETURNING 1
                    )
                    SELECT 1 / (CASE WHEN count(*) = $7 THEN 1 ELSE 0 END) FROM put"
                ),
                ended.params(),
            );
        }
    }

    fn labels(&mut self, labels: Labels) {
        if !labels.replaced.is_empty() {
            self.add("DELETE FROM labels WHERE job = ANY($1)", vec![ids(labels.replaced)]);
        }
        if !labels.jobs.is_empty() {
            self.add(
                "INSERT INTO labels SELECT * FROM unnest($1, $2, $3) ON CONFLICT DO NOTHING",
                vec![texts(labels.keys), texts(labels.values), ids(labels.jobs)],
            );
        }
    }

    /// Writes the last checkpoints of jobs. A batch has at most one for each job.
    pub(super) fn checkpoints(&mut self, changes: &[Change]) -> Result<(), Failure> {
        let (mut jobs, mut versions, mut types) = (Vec::new(), Vec::new(), Vec::new());
        let (mut times, mut data) = (Vec::new(), Vec::new());
        for change in changes {
            let Change::Checkpoint(record) = change else { continue };
            jobs.push(uuid(record.job.to_bits()));
            versions.push(signed(record.version)?);
            types.push(escape(&record.content_type));
            times.push(record.saved_at.as_micros());
            data.push(seal_checkpoint(record));
        }
        if !jobs.is_empty() {
            self.add(
                "INSERT INTO checkpoints SELECT * FROM unnest($1, $2, $3, $4, $5)
                 ON CONFLICT (job) DO UPDATE SET version = excluded.version,
                    content_type = excluded.content_type, saved_at = excluded.saved_at,
                    data = excluded.data",
                vec![ids(jobs), bigs(versions), texts(types), bigs(times), blobs(data)],
            );
        }
        Ok(())
    }

    /// Adds `counters` to the stored counts of jobs.
    pub(super) fn counts(&mut self, counters: &Counters) {
        let (mut namespaces, mut statuses, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for (namespace, status, by) in counters.changes() {
            namespaces.push(namespace.to_owned());
            statuses.push(i32::from(status));
            counts.push(by);
        }
        if !namespaces.is_empty() {
            self.add(
                "INSERT INTO job_counts (part, namespace, status, count)
                 SELECT $1, u.namespace, u.status, u.count
                 FROM unnest($2, $3, $4) AS u (namespace, status, count)
                 ON CONFLICT (part, namespace, status)
                 DO UPDATE SET count = job_counts.count + excluded.count",
                vec![int(self.part), texts(namespaces), ints(statuses), bigs(counts)],
            );
        }
    }
}

/// Labels of new and completely rewritten jobs.
#[derive(Default)]
struct Labels {
    replaced: Vec<Uuid>,
    keys: Vec<String>,
    values: Vec<String>,
    jobs: Vec<Uuid>,
}

impl Labels {
    fn push(&mut self, id: JobId, head: &Arc<JobHead>, is_new: bool) {
        let id = uuid(id.to_bits());
        if !is_new {
            self.replaced.push(id);
        }
        for (key, value) in &head.spec.labels {
            self.keys.push(escape(key));
            self.values.push(escape(value));
            self.jobs.push(id);
        }
    }
}
