//! All statements that change the store, prepared once for the life of the writer.
//!
//! One prepared statement for each row is faster than every bulk method of SQLite (measured: `json_each`,
//! virtual tables and `carray` are all slower). So there is one statement for each type of change.
//!
//! Statements that must change exactly one row have conditions that only the expected row fulfils; `commit`
//! checks the number of changed rows. Some safeguards are in the SQL alone: a valid idempotency key and a
//! ledger entry with a job are never overwritten.
//!
//! The effect of a statement depends on its parameters and the rows alone, and not on the order in which SQLite finds
//! them: replicas that execute the same statements must stay equal. So a `LIMIT` has an order without ties, and no
//! statement reads a clock or draws a number.

use rusqlite::{Connection, Statement};

macro_rules! statements {
    ($($name:ident: $sql:expr;)*) => {
        /// Prepared statements of one connection.
        pub(super) struct Statements<'c> {
            $(pub(super) $name: Statement<'c>,)*
        }

        impl<'c> Statements<'c> {
            pub(super) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
                Ok(Self { $($name: connection.prepare($sql)?,)* })
            }
        }
    };
}

// `OR FAIL`, in a change that may touch several rows, saves SQLite a statement journal: any error rolls back the whole
// transaction anyway.
statements! {
    begin: "BEGIN IMMEDIATE";
    commit: "COMMIT";
    rollback: "ROLLBACK";

    advance: "UPDATE meta SET now = max(now, ?1), next_event = ?2";
    reset_clock: "UPDATE meta SET now = min(now, ?1)";
    checked: "UPDATE meta SET checked_at = ?1";

    lease_holds: "SELECT 1 FROM shards WHERE shard = ?1 AND epoch = ?2 AND owner IS NOT NULL";
    lease_owned: "SELECT 1 FROM shards WHERE shard = ?1 AND owner IS NOT NULL";
    lease_take: "UPDATE shards SET owner = ?2, epoch = epoch + 1, expires_at = ?4
        WHERE shard = ?1 AND (owner IS NULL OR expires_at <= ?3) RETURNING epoch";
    lease_renew: "UPDATE shards SET expires_at = ?2 WHERE shard = ?1";
    lease_release: "UPDATE shards SET owner = NULL WHERE shard = ?1 AND epoch = ?2";
    tails_lose: "UPDATE shards SET owner = NULL, epoch = max(epoch / ?1 + 1, ?2) * ?1,
        tail_lost = 1";
    tail_forget: "UPDATE shards SET tail_lost = 0 WHERE shard = ?1 AND epoch = ?2 AND owner IS NOT NULL";
    feed_leap: "UPDATE meta SET next_event = ?1";

    job_look: "SELECT status, namespace FROM jobs WHERE id = ?1";
    job_look_ended: "SELECT status, namespace, head FROM jobs_ended WHERE id = ?1";
    job_head: "SELECT head FROM jobs WHERE id = ?1";
    job_names: "SELECT namespace, name FROM jobs WHERE id = ?1";
    job_insert: "INSERT INTO jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
    job_insert_ended:
        "INSERT INTO jobs_ended VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
    job_update: "UPDATE jobs SET status = ?2, worker = ?3, expires_at = ?4, state = ?5, history = ?6
        WHERE id = ?1";
    job_update_all: "UPDATE jobs SET status = ?2, worker = ?3, expires_at = ?4, namespace = ?5,
        owner = ?6, queue = ?7, name = ?8, state = ?9, history = ?10, head = ?11, schedule = ?12,
        backfill = ?13, run = ?14, service = ?15 WHERE id = ?1";
    job_end: "INSERT OR FAIL INTO jobs_ended
        SELECT id, ?2, ?3, ?4, namespace, owner, queue, name, ?5, ?6, head, schedule, backfill, run,
            service
        FROM jobs WHERE id = ?1";
    job_delete: "DELETE FROM jobs WHERE id = ?1";
    job_delete_ended: "DELETE FROM jobs_ended WHERE id = ?1";
    count: "INSERT INTO job_counts VALUES (?1, ?2, ?3)
        ON CONFLICT (namespace, status) DO UPDATE SET count = count + excluded.count";

    checkpoint_put: "INSERT OR REPLACE INTO checkpoints VALUES (?1, ?2, ?3, ?4, ?5)";
    checkpoint_delete: "DELETE FROM checkpoints WHERE job = ?1";

    label_insert: "INSERT OR IGNORE INTO labels VALUES (?1, ?2, ?3)";
    label_delete: "DELETE FROM labels WHERE key = ?1 AND value = ?2 AND job = ?3";

    execution_insert: "INSERT INTO executions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    execution_insert_ended: "INSERT INTO executions_ended VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    // Job, number and fence never change: a row with other values is not the expected one.
    execution_update: "UPDATE executions SET worker = ?5, status = ?6, rest = ?7
        WHERE id = ?1 AND job = ?2 AND number = ?3 AND fence = ?4";
    execution_end: "INSERT OR FAIL INTO executions_ended
        SELECT id, job, number, fence, ?5, ?6, namespace, job_name, ?7 FROM executions
        WHERE id = ?1 AND job = ?2 AND number = ?3 AND fence = ?4";
    // Finds an execution of the same job whose fences and numbers are not in the same order.
    execution_rival: "SELECT 1 FROM executions
            WHERE job = ?1 AND ((number < ?2 AND fence >= ?3) OR (number > ?2 AND fence <= ?3))
        UNION ALL SELECT 1 FROM executions_ended
            WHERE job = ?1 AND ((number < ?2 AND fence >= ?3) OR (number > ?2 AND fence <= ?3))";
    execution_same: "SELECT 1 FROM executions WHERE id = ?1 OR (job = ?2 AND number = ?3)";
    execution_delete: "DELETE FROM executions WHERE id = ?1";
    executions_delete_ended: "DELETE FROM executions_ended WHERE job = ?1";

    // An expired key may be used again before it is deleted; a valid key may not.
    key_insert: "INSERT INTO keys VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (key) DO UPDATE SET
            shard = excluded.shard, expires_at = excluded.expires_at,
            body = excluded.body, job = excluded.job
        WHERE keys.expires_at <= ?6 OR keys.job = excluded.job";
    keys_forget: "DELETE FROM keys WHERE shard = ?1 AND expires_at < ?2";

    schedule_insert: "INSERT INTO schedules VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    schedule_update: "UPDATE schedules SET status = ?2, next_at = ?3, state = ?4 WHERE id = ?1";
    schedule_update_all: "UPDATE schedules SET status = ?2, next_at = ?3, namespace = ?4, name = ?5,
        owner = ?6, state = ?7 WHERE id = ?1";
    schedule_delete: "DELETE FROM schedules WHERE id = ?1";
    schedule_head: "SELECT head FROM schedule_heads WHERE id = ?1";
    schedule_head_insert: "INSERT INTO schedule_heads VALUES (?1, ?2)";
    schedule_head_update: "UPDATE schedule_heads SET head = ?2 WHERE id = ?1";
    schedule_head_delete: "DELETE FROM schedule_heads WHERE id = ?1";
    schedule_label_insert: "INSERT OR IGNORE INTO schedule_labels VALUES (?1, ?2, ?3)";
    schedule_label_delete: "DELETE FROM schedule_labels WHERE key = ?1 AND value = ?2 AND schedule = ?3";

    // Reading the namespace costs almost nothing: its row was changed just before. An entry with a job keeps the job;
    // an entry without one may be written again with one.
    ledger_put: "INSERT INTO ledger VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
            coalesce((SELECT namespace FROM schedules WHERE id = ?2),
                     (SELECT l.namespace FROM ledger l INDEXED BY ledger_schedule
                      WHERE l.schedule = ?2 ORDER BY l.first DESC LIMIT 1)), ?11)
        ON CONFLICT (first, schedule, generation, cause, backfill) DO UPDATE SET
            last = excluded.last, count = excluded.count, outcome = excluded.outcome,
            job = excluded.job, decided_at = excluded.decided_at, rest = excluded.rest
        WHERE ledger.job IS NULL OR ledger.job IS excluded.job";
    ledger_trim: "DELETE FROM ledger
        WHERE first = ?1 AND schedule = ?2 AND generation = ?3 AND cause = ?4 AND backfill = ?5
            AND decided_at < ?6 AND outcome <> ?7";

    backfill_insert: "INSERT INTO backfills
        VALUES (?1, ?2, ?3, ?4, (SELECT namespace FROM schedules WHERE id = ?2), ?5)";
    backfill_update: "UPDATE backfills SET status = ?2, finished_at = ?3, state = ?4 WHERE id = ?1";
    backfill_head_insert: "INSERT INTO backfill_heads VALUES (?1, ?2)";
    backfill_trim: "DELETE FROM backfills WHERE id = ?1 AND status <> 0 AND finished_at < ?2";
    backfill_head_delete: "DELETE FROM backfill_heads WHERE id = ?1";

    workflow_insert: "INSERT INTO workflows VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    workflow_update: "UPDATE workflows SET generation = ?2, state = ?3 WHERE id = ?1";
    workflow_update_all: "UPDATE workflows SET generation = ?2, namespace = ?3, name = ?4, owner = ?5,
        state = ?6 WHERE id = ?1";
    workflow_delete: "DELETE FROM workflows WHERE id = ?1";
    workflow_head_insert: "INSERT INTO workflow_heads VALUES (?1, ?2, ?3)";
    workflow_heads_delete: "DELETE FROM workflow_heads WHERE id = ?1";
    workflow_head: "SELECT h.generation, h.head FROM workflows t
        JOIN workflow_heads h ON h.id = t.id AND h.generation = t.generation WHERE t.id = ?1";
    workflow_label_insert: "INSERT OR IGNORE INTO workflow_labels VALUES (?1, ?2, ?3)";
    workflow_label_delete: "DELETE FROM workflow_labels WHERE key = ?1 AND value = ?2 AND workflow = ?3";
    run_insert: "INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    // A final status never changes.
    run_update: "UPDATE runs SET status = ?2, expires_at = ?3, state = ?4 WHERE id = ?1 AND status < 4";
    run_head_insert: "INSERT INTO run_heads VALUES (?1, ?2, ?3)";
    run_definition_insert: "INSERT OR IGNORE INTO run_definitions VALUES (?1, ?2)";
    // Only ended runs. A run whose head is missing has no definition.
    run_forget: "INSERT OR IGNORE INTO runs_deleted SELECT t.id, h.definition
        FROM runs t LEFT JOIN run_heads h ON h.id = t.id WHERE t.id = ?1 AND t.status >= 4";
    run_delete: "DELETE FROM runs WHERE id = ?1";
    run_head_delete: "DELETE FROM run_heads WHERE id = ?1";
    run_definitions_trim: "DELETE FROM run_definitions
        WHERE hash IN (SELECT definition FROM runs_deleted) AND NOT EXISTS
            (SELECT 1 FROM run_heads h INDEXED BY run_heads_definition
             WHERE h.definition = run_definitions.hash)";
    run_deleted_next: "SELECT run FROM runs_deleted ORDER BY run LIMIT 1";
    run_deleted_forget: "DELETE FROM runs_deleted WHERE run = ?1";
    // Finds the key of the last of the first `limit` rows of a run.
    elements_bound: "SELECT step, first FROM element_batches WHERE run = ?1
        ORDER BY step, first LIMIT 1 OFFSET ?2";
    elements_delete_to: "DELETE FROM element_batches WHERE run = ?1 AND (step, first) <= (?2, ?3)";
    steps_bound: "SELECT list, number FROM steps WHERE run = ?1
        ORDER BY list, number LIMIT 1 OFFSET ?2";
    steps_delete_to: "DELETE FROM steps WHERE run = ?1 AND (list, number) <= (?2, ?3)";
    run_key_insert: "INSERT INTO run_keys VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (key) DO UPDATE SET
            shard = excluded.shard, expires_at = excluded.expires_at,
            body = excluded.body, run = excluded.run
        WHERE run_keys.expires_at <= ?6 OR run_keys.run = excluded.run";
    run_keys_forget: "DELETE FROM run_keys WHERE shard = ?1 AND expires_at < ?2";
    elements_insert: "INSERT INTO element_batches VALUES (?1, ?2, ?3, ?4)";
    step_put: "INSERT INTO steps VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (run, list, number) DO UPDATE SET status = excluded.status, state = excluded.state";

    service_insert: "INSERT INTO services VALUES (?1, ?2, ?3, ?4, ?5)";
    service_update: "UPDATE services SET state = ?2 WHERE id = ?1";
    service_update_all: "UPDATE services SET namespace = ?2, name = ?3, owner = ?4, state = ?5 WHERE id = ?1";
    service_delete: "DELETE FROM services WHERE id = ?1";
    service_head: "SELECT head FROM service_heads WHERE id = ?1";
    service_head_insert: "INSERT INTO service_heads VALUES (?1, ?2)";
    service_head_update: "UPDATE service_heads SET head = ?2 WHERE id = ?1";
    service_head_delete: "DELETE FROM service_heads WHERE id = ?1";
    service_label_insert: "INSERT OR IGNORE INTO service_labels VALUES (?1, ?2, ?3)";
    service_label_delete: "DELETE FROM service_labels WHERE key = ?1 AND value = ?2 AND service = ?3";

    calendar_put: "INSERT OR REPLACE INTO calendars VALUES (?1, ?2, ?3)";
    calendar_delete: "DELETE FROM calendars WHERE namespace = ?1 AND name = ?2";

    worker_put: "INSERT OR REPLACE INTO workers VALUES (?1, ?2)";
    worker_delete: "DELETE FROM workers WHERE id = ?1";
    queue_put: "INSERT OR REPLACE INTO queues VALUES (?1, ?2)";
    queue_delete: "DELETE FROM queues WHERE name = ?1";
    namespace_put: "INSERT OR REPLACE INTO namespaces VALUES (?1, ?2)";
    namespace_delete: "DELETE FROM namespaces WHERE name = ?1";

    event_insert: "INSERT INTO events VALUES (?1, ?2, ?3, ?4)";
    events_oldest: "SELECT first, at FROM events ORDER BY first LIMIT ?1";
    event_delete: "DELETE FROM events WHERE first = ?1";

    statistics_insert: "INSERT INTO statistics_pending VALUES (?1, ?2, ?3)";
    statistics_pending: "SELECT id, at, payload FROM statistics_pending ORDER BY id LIMIT ?1";
    statistics_delete: "DELETE FROM statistics_pending WHERE id = ?1";
    statistics_chunk: "SELECT points FROM statistics
        WHERE resolution = ?1 AND kind = ?2 AND chunk = ?3 AND namespace = ?4 AND name = ?5";
    statistics_put: "INSERT OR REPLACE INTO statistics VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    failure_group: "SELECT namespace, id, record, mark FROM failure_groups WHERE namespace = ?1 AND id = ?2";
    failure_groups_of: "SELECT count(*) FROM failure_groups WHERE namespace = ?1";
    failure_group_put: "INSERT INTO failure_groups (namespace, id, last_at, record) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (namespace, id) DO UPDATE SET last_at = excluded.last_at, record = excluded.record";
    failure_group_mark: "UPDATE failure_groups SET mark = ?3 WHERE namespace = ?1 AND id = ?2";
    failure_groups_trim: "DELETE FROM failure_groups WHERE (namespace, id) IN
        (SELECT namespace, id FROM failure_groups WHERE last_at < ?1 ORDER BY last_at, namespace, id LIMIT ?2)";
    failure_groups_make_room: "DELETE FROM failure_groups WHERE (namespace, id) IN
        (SELECT namespace, id FROM
            (SELECT namespace, id, mark,
                    row_number() OVER
                        (PARTITION BY namespace ORDER BY mark IS NULL, last_at DESC, namespace, id) AS place,
                    row_number() OVER (ORDER BY mark IS NULL, last_at DESC, namespace, id) AS place_in_total
             FROM failure_groups)
         WHERE mark IS NULL AND (place > ?1 OR place_in_total > ?2) ORDER BY namespace, id LIMIT ?3)";
    statistics_trim: "DELETE FROM statistics WHERE (resolution, kind, chunk, namespace, name) IN
        (SELECT resolution, kind, chunk, namespace, name FROM statistics
         WHERE resolution = ?1 AND kind = ?2 AND chunk < ?3 ORDER BY chunk, namespace, name LIMIT ?4)";

    access_advance: "UPDATE meta SET access_version = ?2 WHERE access_version = ?1";
    access_put: "INSERT OR REPLACE INTO access VALUES (?1, ?2, ?3, ?4, ?5)";
    access_delete: "DELETE FROM access WHERE kind = ?1 AND key = ?2 AND body = ?3";
    alerts_advance: "UPDATE meta SET alert_version = ?2 WHERE alert_version = ?1";
    alert_put: "INSERT OR REPLACE INTO alerts VALUES (?1, ?2, ?3, ?4)";
    alert_delete: "DELETE FROM alerts WHERE kind = ?1 AND key = ?2";
    audit_advance: "INSERT INTO audit_chain SELECT 0, ?3, ?4, 0, zeroblob(32)
        WHERE ?1 = 0 OR EXISTS (SELECT 1 FROM audit_chain)
        ON CONFLICT (id) DO UPDATE SET last_sequence = excluded.last_sequence, last_hash = excluded.last_hash
        WHERE audit_chain.last_sequence = ?1 AND audit_chain.last_hash = ?2";
    audit_insert: "INSERT INTO audit VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    // The newest of the oldest rows before the first one that is new enough.
    audit_cut: "WITH oldest AS (SELECT sequence, at FROM audit ORDER BY sequence LIMIT ?2)
        SELECT max(sequence) FROM oldest
        WHERE sequence < coalesce((SELECT min(sequence) FROM oldest WHERE at >= ?1), 9223372036854775807)";
    audit_note_cut: "UPDATE audit_chain
        SET (cut_sequence, cut_hash) = (SELECT sequence, hash FROM audit WHERE sequence = ?1)";
    audit_delete: "DELETE FROM audit WHERE sequence <= ?1";
    artifact_newest: "SELECT created_at FROM artifacts WHERE namespace = ?1 AND name = ?2
        ORDER BY created_at DESC LIMIT 1";
    artifact_put: "INSERT INTO artifacts VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (namespace, name, sha256) DO UPDATE SET created_at = excluded.created_at";
    artifact_delete: "DELETE FROM artifacts
        WHERE namespace = ?1 AND name = ?2 AND sha256 = ?3 AND (?4 IS NULL OR created_at = ?4)";
    // Finds a run that needs the version: any stored run, or only live ones.
    artifact_pinned: "SELECT p.run FROM artifact_pins p JOIN runs r ON r.id = p.run
        WHERE p.sha256 = ?3 AND p.name = ?2 AND r.namespace = ?1 AND (?4 OR r.status < 4)
        ORDER BY p.run LIMIT 1";
    artifact_pin: "INSERT OR IGNORE INTO artifact_pins VALUES (?1, ?2, ?3)";
    pins_bound: "SELECT name, sha256 FROM artifact_pins WHERE run = ?1
        ORDER BY name, sha256 LIMIT 1 OFFSET ?2";
    pins_delete_to: "DELETE FROM artifact_pins WHERE run = ?1 AND (name, sha256) <= (?2, ?3)";

    secret_put: "INSERT INTO secrets VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    secret: "SELECT secret FROM secrets WHERE name = ?1";

    quarantine: "INSERT INTO quarantine (origin, key, reason, at, columns) VALUES (?1, ?2, ?3, ?4, ?5)";
}
