//! Writes executions and idempotency keys.
//!
//! Rows are collected in arrays ([`Executions`]), one for each of four statements: new or changed, live or
//! ended. Each statement counts the rows that it wrote and fails if one is missing.
//!
//! # Invariants
//! - Executions are written before jobs: an execution takes the name and namespace of its job as of before
//!   the batch.
//! - Job, number and fence of an execution never change, and fences grow with the numbers of a job's
//!   executions.
//! - A key that has not expired is never given to a second job.

use std::collections::HashMap;

use model::record::{Change, ExecutionRecord, JobHead};
use model::{JobId, ShardId};
use uuid::Uuid;

use super::{Steps, count, signed, uuid};
use crate::codec::seal_execution;
use crate::postgres::error::Failure;
use crate::postgres::param::{Param, big, bigs, blobs, escape, ids, ints, optional_texts};

/// Columns of executions.
#[derive(Default)]
struct Executions {
    ids: Vec<Uuid>,
    jobs: Vec<Uuid>,
    numbers: Vec<i64>,
    fences: Vec<i64>,
    workers: Vec<Uuid>,
    statuses: Vec<i32>,
    rests: Vec<Vec<u8>>,
    /// Namespace of the job, if the batch contains it.
    namespaces: Vec<Option<String>>,
    names: Vec<Option<String>>,
    shards: Vec<i32>,
}

impl Executions {
    fn push(&mut self, record: &ExecutionRecord, head: Option<&JobHead>) -> Result<(), Failure> {
        let ShardId(shard) = record.job.shard();
        self.ids.push(uuid(record.id.to_bits()));
        self.jobs.push(uuid(record.job.to_bits()));
        self.numbers.push(record.number.into());
        self.fences.push(signed(record.fence.0)?);
        self.workers.push(uuid(record.worker.to_bits()));
        self.statuses.push(record.status.code().into());
        self.rests.push(seal_execution(record));
        self.namespaces.push(head.map(|head| escape(&head.spec.namespace)));
        self.names.push(head.map(|head| escape(&head.spec.name)));
        self.shards.push(shard.into());
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// `$1` to `$8`, the number of rows last.
    fn params(self) -> (Vec<Param>, [Param; 3]) {
        let rows = self.ids.len();
        let own = vec![
            ids(self.ids),
            ids(self.jobs),
            bigs(self.numbers),
            bigs(self.fences),
            ids(self.workers),
            ints(self.statuses),
            blobs(self.rests),
            count(rows),
        ];
        (own, [optional_texts(self.namespaces), optional_texts(self.names), ints(self.shards)])
    }
}

const NO_JOB: &str = "a new execution belongs to a job that is not live, or already exists";
const NOT_LIVE: &str = "a changed execution is not live";
const FENCE: &str = "the fence of a new execution does not increase with its number";

/// Finds an execution of the same job whose fences and numbers are not in the same order.
macro_rules! rival {
    ($table:literal) => {
        concat!(
            "SELECT 1 FROM unnest($1, $2, $3) AS u (job, number, fence), ",
            $table,
            " e WHERE e.job = u.job AND ((e.number < u.number AND e.fence >= u.fence)
                OR (e.number > u.number AND e.fence <= u.fence))"
        )
    };
}

/// Inserts new executions. Their names come from the batch, or from their jobs as of before the batch.
macro_rules! insert {
    ($table:literal, $columns:literal, $more:literal) => {
        concat!(
            "WITH put AS (
                INSERT INTO ",
            $table,
            $columns,
            " SELECT u.id, u.job, u.number, u.fence, u.worker, u.status,
                coalesce(u.namespace, j.namespace), coalesce(u.job_name, j.name), u.rest",
            $more,
            " FROM unnest($1, $2, $3, $4, $5, $6, $7, $9, $10, $11)
                    AS u (id, job, number, fence, worker, status, rest, namespace, job_name, shard)
                LEFT JOIN jobs j ON j.id = u.job
                RETURNING 1
            )
            SELECT 1 / (CASE WHEN count(*) = $8 THEN 1 ELSE 0 END) FROM put"
        )
    };
}

impl Steps {
    /// Writes the changes of executions in a batch. Must run before the jobs are written.
    pub(super) fn executions(
        &mut self,
        changes: &[Change],
        heads: &HashMap<JobId, &JobHead>,
    ) -> Result<(), Failure> {
        let (mut new, mut new_ended) = (Executions::default(), Executions::default());
        let (mut changed, mut ended) = (Executions::default(), Executions::default());
        let (mut jobs, mut numbers, mut fences) = (Vec::new(), Vec::new(), Vec::new());
        for change in changes {
            let Change::Execution { new: is_new, record } = change else { continue };
            let head = if *is_new { heads.get(&record.job).copied() } else { None };
            match (is_new, record.status.is_final()) {
                (true, false) => new.push(record, head)?,
                (true, true) => new_ended.push(record, head)?,
                (false, false) => changed.push(record, None)?,
                (false, true) => ended.push(record, None)?,
            }
            // Execution 1 is the first of its job; a second one with this number fails as a duplicate.
            if *is_new && record.number > 1 {
                jobs.push(uuid(record.job.to_bits()));
                numbers.push(i64::from(record.number));
                fences.push(signed(record.fence.0)?);
            }
        }
        self.changed_executions(changed, ended);
        self.new_executions(new, new_ended);
        if !jobs.is_empty() {
            self.add_guarded(
                FENCE,
                concat!(
                    "SELECT 1 / (CASE WHEN count(*) = 0 THEN 1 ELSE 0 END) FROM (",
                    rival!("executions"),
                    " UNION ALL ",
                    rival!("executions_ended"),
                    ") AS rivals"
                ),
                vec![ids(jobs), bigs(numbers), bigs(fences)],
            );
        }
        Ok(())
    }

    fn new_executions(&mut self, live: Executions, ended: Executions) {
        if !live.is_empty() {
            let (mut params, more) = live.params();
            params.extend(more);
            self.add_guarded(
                NO_JOB,
                insert!(
                    "executions",
                    " (id, job, number, fence, worker, status, namespace, job_name, rest, shard)",
                    ", u.shard"
                ),
                params,
            );
        }
        if !ended.is_empty() {
            let (mut params, more) = ended.params();
            params.extend(more);
            self.add_guarded(
                NO_JOB,
                insert!(
                    "executions_ended",
                    " (id, job, number, fence, worker, status, namespace, job_name, rest)",
                    ""
                ),
                params,
            );
        }
    }

    /// Updates executions. Job, number and fence never change: a row with other values is not the expected one.
    fn changed_executions(&mut self, live: Executions, ended: Executions) {
        if !live.is_empty() {
            self.add_guarded(
                NOT_LIVE,
                "WITH changed AS (
                    UPDATE executions e SET worker = u.worker, status = u.status, rest = u.rest
                    FROM unnest($1, $2, $3, $4, $5, $6, $7)
                        AS u (id, job, number, fence, worker, status, rest)
                    WHERE e.id = u.id AND e.job = u.job AND e.number = u.number AND e.fence = u.fence
                    RETURNING 1
                )
                SELECT 1 / (CASE WHEN count(*) = $8 THEN 1 ELSE 0 END) FROM changed",
                live.params().0,
            );
        }
        if !ended.is_empty() {
            self.add_guarded(
                NOT_LIVE,
                "WITH gone AS (
                    DELETE FROM executions e
                    USING unnest($1, $2, $3, $4, $5, $6, $7)
                        AS u (id, job, number, fence, worker, status, rest)
                    WHERE e.id = u.id AND e.job = u.job AND e.number = u.number AND e.fence = u.fence
                    RETURNING e.id, e.job, e.number, e.fence, u.worker, u.status, e.namespace, e.job_name,
                        u.rest
                ), put AS (
                    INSERT INTO executions_ended
                    SELECT id, job, number, fence, worker, status, namespace, job_name, rest FROM gone
                    RETURNING 1
                )
                SELECT 1 / (CASE WHEN count(*) = $8 THEN 1 ELSE 0 END) FROM put",
                ended.params().0,
            );
        }
    }

    /// Deletes expired keys, before new keys are added.
    pub(super) fn forget_keys(&mut self, changes: &[Change]) {
        let (mut shards, mut befores) = (Vec::new(), Vec::new());
        for change in changes {
            if let Change::PurgeKeys { shard, expired_before } = change {
                shards.push(i32::from(shard.0));
                befores.push(expired_before.as_micros());
            }
        }
        if !shards.is_empty() {
            self.add(
                "DELETE FROM keys k USING unnest($1, $2) AS u (shard, before)
                 WHERE k.shard = u.shard AND k.expires_at < u.before",
                vec![ints(shards.clone()), bigs(befores.clone())],
            );
            self.add(
                "DELETE FROM run_keys k USING unnest($1, $2) AS u (shard, before)
                 WHERE k.shard = u.shard AND k.expires_at < u.before",
                vec![ints(shards), bigs(befores)],
            );
        }
    }

    /// An expired key may be used again before it is deleted; a valid key may not.
    pub(super) fn keys(&mut self, changes: &[Change]) {
        let (mut keys, mut bodies, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
        let (mut expiries, mut shards) = (Vec::new(), Vec::new());
        for change in changes {
            if let Change::Key(key) = change {
                keys.push(uuid(key.key));
                bodies.push(uuid(key.body));
                jobs.push(uuid(key.job.to_bits()));
                expiries.push(key.expires_at.as_micros());
                shards.push(i32::from(key.job.shard().0));
            }
        }
        if keys.is_empty() {
            return;
        }
        let rows = keys.len();
        self.add_guarded(
            "an idempotency key was given to a second job",
            "WITH put AS (
                INSERT INTO keys (key, body, job, expires_at, shard)
                SELECT * FROM unnest($1, $2, $3, $4, $5)
                ON CONFLICT (key) DO UPDATE SET body = excluded.body, job = excluded.job,
                    expires_at = excluded.expires_at, shard = excluded.shard
                WHERE keys.expires_at <= $6 OR keys.job = excluded.job
                RETURNING 1
            )
            SELECT 1 / (CASE WHEN count(*) = $7 THEN 1 ELSE 0 END) FROM put",
            vec![
                ids(keys),
                ids(bodies),
                ids(jobs),
                bigs(expiries),
                ints(shards),
                big(self.now.as_micros()),
                count(rows),
            ],
        );
    }
}
