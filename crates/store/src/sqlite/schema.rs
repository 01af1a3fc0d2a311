//! The tables, and the migrations of a file from an older version.
//!
//! Live rows and history are in separate tables. Live tables are rewritten all the time and have almost no secondary
//! indexes except those that enforce uniqueness. History is written once, with the indexes that lists need. Every index
//! costs about as much as its row, so each has a reason here.
//!
//! Large, constant columns are separated from small, changing ones if a row is rewritten during its whole life: a
//! firing rewrites a row of some 150 bytes, not the spec.
//!
//! IDs are 16 bytes, big-endian, so that their order is chronological. Tables are clustered by their keys
//! (`WITHOUT ROWID`): an ID is found in one B-tree, and lists scan it backwards.

use rusqlite::Connection;

use super::error::Failure;
use crate::StoreError;

/// SQLite application ID that marks a file as a Belfry store ("Blfy").
pub(super) const APPLICATION_ID: i32 = 0x426c_6679;

/// Migrations, each from one version to the next; the first one makes an empty file version 1.
///
/// A released migration is never changed, because files exist that went through it.
const MIGRATIONS: &[&str] = &[
    VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5, VERSION_6, VERSION_7, VERSION_8, VERSION_9,
    VERSION_10, VERSION_11, VERSION_12, VERSION_13, VERSION_14, VERSION_15,
];

/// Schema version that this program writes.
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

const VERSION_1: &str = "
-- One row with the values of the whole store.
CREATE TABLE meta (
    id          INTEGER PRIMARY KEY CHECK (id = 0),
    shards      INTEGER NOT NULL,
    now         INTEGER NOT NULL,   -- engine time of the newest commit
    next_event  INTEGER NOT NULL,   -- survives the trimming of all events
    checked_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE shards (
    shard       INTEGER PRIMARY KEY,
    owner       TEXT,               -- nobody while absent
    epoch       INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE jobs (
    id          BLOB PRIMARY KEY,
    status      INTEGER NOT NULL,
    worker      BLOB,
    expires_at  INTEGER,
    namespace   TEXT NOT NULL,
    owner       TEXT,
    queue       TEXT NOT NULL,
    name        TEXT NOT NULL,
    state       BLOB NOT NULL,
    history     BLOB NOT NULL,
    head        BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs_ended (
    id          BLOB PRIMARY KEY,
    status      INTEGER NOT NULL,
    worker      BLOB,
    expires_at  INTEGER,
    namespace   TEXT NOT NULL,
    owner       TEXT,
    queue       TEXT NOT NULL,
    name        TEXT NOT NULL,
    state       BLOB NOT NULL,
    history     BLOB NOT NULL,
    head        BLOB NOT NULL
) STRICT, WITHOUT ROWID;
-- Four lists that may be rare among millions of jobs. Most jobs succeed, so a list of those is dense anyway.
CREATE INDEX jobs_ended_namespace ON jobs_ended (namespace, id);
CREATE INDEX jobs_ended_name ON jobs_ended (name, id);
CREATE INDEX jobs_ended_owner ON jobs_ended (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX jobs_ended_queue ON jobs_ended (queue, id) WHERE queue <> 'default';
CREATE INDEX jobs_ended_status ON jobs_ended (status, id, namespace) WHERE status <> 4;
-- For retention. Cheap, because it grows only at its end.
CREATE INDEX jobs_ended_expiry ON jobs_ended (expires_at) WHERE expires_at IS NOT NULL;

-- Labels of live and ended jobs; only jobs with labels have rows.
CREATE TABLE labels (
    key         TEXT NOT NULL,
    value       TEXT NOT NULL,
    job         BLOB NOT NULL,
    PRIMARY KEY (key, value, job)
) STRICT, WITHOUT ROWID;

CREATE TABLE executions (
    id          BLOB PRIMARY KEY,
    job         BLOB NOT NULL,
    number      INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    worker      BLOB NOT NULL,
    status      INTEGER NOT NULL,
    namespace   TEXT NOT NULL,
    job_name    TEXT NOT NULL,
    rest        BLOB NOT NULL
) STRICT, WITHOUT ROWID;
-- The insert of a second execution checks that fences increase with the numbers: a separate index would
-- cost a sixth of everything that a job costs here.
CREATE UNIQUE INDEX executions_number ON executions (job, number);

CREATE TABLE executions_ended (
    id          BLOB PRIMARY KEY,
    job         BLOB NOT NULL,
    number      INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    worker      BLOB NOT NULL,
    status      INTEGER NOT NULL,
    namespace   TEXT NOT NULL,
    job_name    TEXT NOT NULL,
    rest        BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX executions_ended_number ON executions_ended (job, number);
CREATE INDEX executions_ended_worker ON executions_ended (worker, id);

-- Clustered by expiry, so that expired keys are a range. The unique key is a safeguard.
CREATE TABLE keys (
    shard       INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    key         BLOB NOT NULL,
    body        BLOB NOT NULL,
    job         BLOB NOT NULL,
    PRIMARY KEY (shard, expires_at, key)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX keys_key ON keys (key);

CREATE TABLE job_counts (
    namespace   TEXT NOT NULL,
    status      INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    PRIMARY KEY (namespace, status)
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    id          BLOB PRIMARY KEY,
    record      BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE queues (
    name        TEXT PRIMARY KEY,
    record      BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- A row for up to some hundred events of one batch; `first` is the position of its first event.
CREATE TABLE events (
    first       INTEGER PRIMARY KEY,
    count       INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    payload     BLOB NOT NULL
) STRICT;

CREATE TABLE tokens (
    id          TEXT PRIMARY KEY,
    kind        INTEGER NOT NULL,
    name        TEXT NOT NULL,
    hash        BLOB NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE artifacts (
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    sha256      TEXT NOT NULL,
    size_bytes  INTEGER NOT NULL,
    created_by  TEXT NOT NULL,
    PRIMARY KEY (namespace, name, created_at)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX artifacts_version ON artifacts (namespace, name, sha256);
CREATE INDEX artifacts_newest ON artifacts (created_at);

-- Rows that could not be decoded, with all their columns.
CREATE TABLE quarantine (
    place       INTEGER PRIMARY KEY,
    origin      TEXT NOT NULL,
    key         TEXT NOT NULL,
    reason      TEXT NOT NULL,
    at          INTEGER NOT NULL,
    columns     BLOB NOT NULL
) STRICT;
";

const VERSION_2: &str = "
-- After the blobs, so that files of version 1 need not be rewritten.
ALTER TABLE jobs ADD COLUMN schedule BLOB;
ALTER TABLE jobs ADD COLUMN backfill BLOB;
ALTER TABLE jobs_ended ADD COLUMN schedule BLOB;
ALTER TABLE jobs_ended ADD COLUMN backfill BLOB;
-- The jobs of one schedule are few among all jobs. Other jobs are in none of these indexes.
CREATE INDEX jobs_schedule ON jobs (schedule, id) WHERE schedule IS NOT NULL;
CREATE INDEX jobs_backfill ON jobs (backfill, id) WHERE backfill IS NOT NULL;
CREATE INDEX jobs_ended_schedule ON jobs_ended (schedule, id) WHERE schedule IS NOT NULL;
CREATE INDEX jobs_ended_backfill ON jobs_ended (backfill, id) WHERE backfill IS NOT NULL;

-- The columns that a firing changes. The unique key is a safeguard; a firing changes neither it nor the
-- namespace and the owner.
CREATE TABLE schedules (
    id          BLOB PRIMARY KEY,
    status      INTEGER NOT NULL,
    next_at     INTEGER,
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    owner       TEXT,
    state       BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX schedules_name ON schedules (namespace, name);
CREATE INDEX schedules_namespace ON schedules (namespace, id);
CREATE INDEX schedules_owner ON schedules (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX schedules_status ON schedules (status, id, namespace) WHERE status <> 0;
-- Upcoming schedules among millions: the only index that a firing changes.
CREATE INDEX schedules_next ON schedules (next_at, id) WHERE next_at IS NOT NULL;

CREATE TABLE schedule_heads (
    id          BLOB PRIMARY KEY,
    head        BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Only schedules with labels have rows.
CREATE TABLE schedule_labels (
    key         TEXT NOT NULL,
    value       TEXT NOT NULL,
    schedule    BLOB NOT NULL,
    PRIMARY KEY (key, value, schedule)
) STRICT, WITHOUT ROWID;

-- Clustered by scheduled time: new entries come at the end, the oldest are deleted at the start. The unique
-- key is the safeguard of `one entry for each scheduled time`; `backfill` is empty if there is none.
CREATE TABLE ledger (
    first       INTEGER NOT NULL,
    schedule    BLOB NOT NULL,
    generation  INTEGER NOT NULL,
    cause       INTEGER NOT NULL,
    backfill    BLOB NOT NULL,
    last        INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    outcome     INTEGER NOT NULL,
    job         BLOB,
    decided_at  INTEGER NOT NULL,
    namespace   TEXT,               -- of the schedule, as long as somebody knew it
    rest        BLOB NOT NULL,
    PRIMARY KEY (first, schedule, generation, cause, backfill)
) STRICT, WITHOUT ROWID;
CREATE INDEX ledger_schedule ON ledger (schedule, first, generation, cause, backfill);
CREATE INDEX ledger_backfill ON ledger (backfill, first, schedule, generation, cause) WHERE backfill <> x'';
-- Entries of several scheduled times: one may start before a requested range and extend into it.
CREATE INDEX ledger_rows ON ledger (last) WHERE count > 1;

CREATE TABLE backfills (
    id          BLOB PRIMARY KEY,
    schedule    BLOB NOT NULL,
    status      INTEGER NOT NULL,
    finished_at INTEGER,
    namespace   TEXT,
    state       BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX backfills_schedule ON backfills (schedule, id);
CREATE INDEX backfills_running ON backfills (id) WHERE status = 0;

CREATE TABLE backfill_heads (
    id          BLOB PRIMARY KEY,
    head        BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE calendars (
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    record      BLOB NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- Keys with which servers sign.
CREATE TABLE secrets (
    name        TEXT PRIMARY KEY,
    secret      BLOB NOT NULL
) STRICT, WITHOUT ROWID;
";

const VERSION_3: &str = "
-- The jobs of one run are few among all jobs. Other jobs are in none of these indexes.
ALTER TABLE jobs ADD COLUMN run BLOB;
ALTER TABLE jobs_ended ADD COLUMN run BLOB;
CREATE INDEX jobs_run ON jobs (run, id) WHERE run IS NOT NULL;
CREATE INDEX jobs_ended_run ON jobs_ended (run, id) WHERE run IS NOT NULL;

-- The columns that the start of a run changes. The unique key is a safeguard.
CREATE TABLE workflows (
    id          BLOB PRIMARY KEY,
    generation  INTEGER NOT NULL,
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    owner       TEXT,
    state       BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX workflows_name ON workflows (namespace, name);
CREATE INDEX workflows_namespace ON workflows (namespace, id);
CREATE INDEX workflows_owner ON workflows (owner, id) WHERE owner IS NOT NULL;

-- Every generation of a workflow, until the workflow is deleted.
CREATE TABLE workflow_heads (
    id          BLOB NOT NULL,
    generation  INTEGER NOT NULL,
    head        BLOB NOT NULL,
    PRIMARY KEY (id, generation)
) STRICT, WITHOUT ROWID;

-- Only workflows with labels have rows.
CREATE TABLE workflow_labels (
    key         TEXT NOT NULL,
    value       TEXT NOT NULL,
    workflow    BLOB NOT NULL,
    PRIMARY KEY (key, value, workflow)
) STRICT, WITHOUT ROWID;

-- The columns that the end of a step changes: status and state of a live run.
CREATE TABLE runs (
    id          BLOB PRIMARY KEY,
    status      INTEGER NOT NULL,
    workflow    BLOB,
    caller      BLOB,
    schedule    BLOB,
    backfill    BLOB,
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    expires_at  INTEGER,
    state       BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_live ON runs (id) WHERE status < 4;
-- Most runs succeed, so a list of those is dense anyway.
CREATE INDEX runs_status ON runs (status, id, namespace) WHERE status > 4;
CREATE INDEX runs_workflow ON runs (workflow, id) WHERE workflow IS NOT NULL;
CREATE INDEX runs_caller ON runs (caller, id) WHERE caller IS NOT NULL;
CREATE INDEX runs_schedule ON runs (schedule, id) WHERE schedule IS NOT NULL;
CREATE INDEX runs_schedule_live ON runs (schedule, id) WHERE schedule IS NOT NULL AND status < 4;
CREATE INDEX runs_backfill ON runs (backfill, id) WHERE backfill IS NOT NULL;
CREATE INDEX runs_namespace ON runs (namespace, id);
CREATE INDEX runs_name ON runs (name, id);
CREATE INDEX runs_expiry ON runs (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE run_heads (
    id          BLOB PRIMARY KEY,
    definition  BLOB NOT NULL,
    head        BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- To find out whether any run uses a definition.
CREATE INDEX run_heads_definition ON run_heads (definition);

-- Definitions of runs, each once, under its hash.
CREATE TABLE run_definitions (
    hash        BLOB PRIMARY KEY,
    body        BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Steps of live and ended runs. The steps of a run are adjacent, before their elements: `list` is -1 for a
-- step, and the number of the step for its elements; `number` is that of the step or the element.
CREATE TABLE steps (
    run         BLOB NOT NULL,
    list        INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    status      INTEGER NOT NULL,
    state       BLOB NOT NULL,
    PRIMARY KEY (run, list, number)
) STRICT, WITHOUT ROWID;

-- Deleted runs that still have steps: a run may have too many steps for one transaction.
CREATE TABLE runs_deleted (
    run         BLOB PRIMARY KEY,
    definition  BLOB
) STRICT, WITHOUT ROWID;

-- Like `keys`, for runs.
CREATE TABLE run_keys (
    shard       INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    key         BLOB NOT NULL,
    body        BLOB NOT NULL,
    run         BLOB NOT NULL,
    PRIMARY KEY (shard, expires_at, key)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX run_keys_key ON run_keys (key);
";

/// Checkpoints of jobs.
const VERSION_4: &str = "
-- The last checkpoint of each job that saved one, live or ended. It is written independently of the job's row,
-- and is deleted with the job.
CREATE TABLE checkpoints (
    job          BLOB PRIMARY KEY,
    version      INTEGER NOT NULL,
    content_type TEXT NOT NULL,
    saved_at     INTEGER NOT NULL,
    data         BLOB NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Elements that tasks add to the lists of steps.
const VERSION_5: &str = "
-- Elements that running tasks added to a step, a row for each batch; `first` is the index of its first
-- element in the step. For live and ended runs; never rewritten.
CREATE TABLE element_batches (
    run         BLOB NOT NULL,
    step        INTEGER NOT NULL,
    first       INTEGER NOT NULL,
    batch       BLOB NOT NULL,
    PRIMARY KEY (run, step, first)
) STRICT, WITHOUT ROWID;
";

/// Retried runs, and steps with declared outputs. No table changes. An older program supports neither the status -1
/// of the former nor the field of the latter, so it must not open a file with them.
const VERSION_6: &str = "
-- Live runs: 0 to 3 as before, and -1 for a run that waits for its retry.
";

/// Files that were restored from a backup.
const VERSION_7: &str = "
-- Whether the last commits may be lost, until an owner has reconciled them.
ALTER TABLE shards ADD COLUMN tail_lost INTEGER NOT NULL DEFAULT 0;
";

/// Artifact versions that runs need.
const VERSION_8: &str = "
-- A row for each version that a step of a run stored, until the run is deleted: retention deletes no version
-- of a stored run.
CREATE TABLE artifact_pins (
    run         BLOB NOT NULL,
    name        TEXT NOT NULL,
    sha256      TEXT NOT NULL,
    PRIMARY KEY (run, name, sha256)
) STRICT, WITHOUT ROWID;
CREATE INDEX artifact_pins_version ON artifact_pins (sha256, name);
";

/// Statistics.
const VERSION_9: &str = "
-- What each commit counted, until a fold adds it to the series.
CREATE TABLE statistics_pending (
    id          BLOB PRIMARY KEY,
    at          INTEGER NOT NULL,
    payload     BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Series of statistics: a row for each chunk of consecutive intervals. `chunk` is the time of its start.
CREATE TABLE statistics (
    resolution  INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    chunk       INTEGER NOT NULL,
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    points      BLOB NOT NULL,
    PRIMARY KEY (resolution, kind, chunk, namespace, name)
) STRICT, WITHOUT ROWID;
";

/// Failures by their signature.
const VERSION_10: &str = "
-- A row for each group. A fold rewrites the record, a user sets the mark.
CREATE TABLE failure_groups (
    namespace   TEXT NOT NULL,
    id          INTEGER NOT NULL,
    last_at     INTEGER NOT NULL,   -- time of the newest failure
    record      BLOB NOT NULL,
    mark        BLOB,
    PRIMARY KEY (namespace, id)
) STRICT, WITHOUT ROWID;
-- For retention, and for the newest groups of all namespaces.
CREATE INDEX failure_groups_newest ON failure_groups (last_at);
";

/// Access control.
const VERSION_11: &str = "
-- Accounts, roles, bindings and tokens, as JSON. `version` is that of the change which wrote the row.
CREATE TABLE access (
    kind        TEXT NOT NULL,
    key         TEXT NOT NULL,
    version     INTEGER NOT NULL,
    body        TEXT NOT NULL,
    checksum    INTEGER,            -- NULL for tokens of older versions
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
-- For servers that look for changes.
CREATE INDEX access_version ON access (version);
ALTER TABLE meta ADD COLUMN access_version INTEGER NOT NULL DEFAULT 1;

INSERT INTO access SELECT 'token', id, 1,
    json_object(
        'id', id, 'bearer', json_object(CASE kind WHEN 0 THEN 'admin' ELSE 'worker' END, name),
        'hash', lower(hex(hash)), 'created_by', 'system',
        'created_at', strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch')), NULL
FROM tokens;
DROP TABLE tokens;
";

/// The audit log.
const VERSION_12: &str = "
-- Entries in a chain of hashes; the other columns repeat parts of the body, for filters. Rows are appended at the end,
-- and retention deletes them from the start.
CREATE TABLE audit (
    sequence    INTEGER PRIMARY KEY,
    at          INTEGER NOT NULL,
    namespace   TEXT,
    actor       TEXT NOT NULL,
    action      TEXT NOT NULL,
    verb        TEXT NOT NULL,
    resource    TEXT NOT NULL,
    object      TEXT,
    outcome     TEXT NOT NULL,
    body        TEXT NOT NULL,
    hash        BLOB NOT NULL
) STRICT;
-- An index has the sequence numbers of its rows in order.
CREATE INDEX audit_namespace ON audit (namespace) WHERE namespace IS NOT NULL;
CREATE INDEX audit_actor ON audit (actor);
CREATE INDEX audit_object ON audit (object) WHERE object IS NOT NULL;
-- For the rows near a time.
CREATE INDEX audit_at ON audit (at);

-- The last entry, and the last one that retention deleted; no row before the first entry.
CREATE TABLE audit_chain (
    id            INTEGER PRIMARY KEY CHECK (id = 0),
    last_sequence INTEGER NOT NULL,
    last_hash     BLOB NOT NULL,
    cut_sequence  INTEGER NOT NULL,
    cut_hash      BLOB NOT NULL
) STRICT;
";

/// Alerts.
const VERSION_13: &str = "
-- Rules, channels, alerts, notifications and the position in the feed, as JSON.
CREATE TABLE alerts (
    kind        TEXT NOT NULL,
    key         TEXT NOT NULL,
    body        TEXT NOT NULL,
    checksum    INTEGER NOT NULL,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
ALTER TABLE meta ADD COLUMN alert_version INTEGER NOT NULL DEFAULT 1;
";

/// Settings of namespaces, priority classes, and preempted executions. An older program reads neither the field of a spec
/// nor the last part of the `rest` of an execution, which is the job that preempts it.
const VERSION_14: &str = "
-- Namespaces that have settings, as JSON.
CREATE TABLE namespaces (
    name        TEXT PRIMARY KEY,
    record      BLOB NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Services, and the health of executions. An older program reads neither the service in the head of a job nor
/// the last part of the `rest` of an execution, which is its health.
const VERSION_15: &str = "
-- The jobs of one service are few among all jobs. Other jobs are in none of these indexes.
ALTER TABLE jobs ADD COLUMN service BLOB;
ALTER TABLE jobs_ended ADD COLUMN service BLOB;
CREATE INDEX jobs_service ON jobs (service, id) WHERE service IS NOT NULL;
CREATE INDEX jobs_ended_service ON jobs_ended (service, id) WHERE service IS NOT NULL;

-- The columns that a change of a replica rewrites. The unique key is a safeguard.
CREATE TABLE services (
    id          BLOB PRIMARY KEY,
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    owner       TEXT,
    state       BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX services_name ON services (namespace, name);
CREATE INDEX services_namespace ON services (namespace, id);
CREATE INDEX services_owner ON services (owner, id) WHERE owner IS NOT NULL;

-- Specs with their newest revisions.
CREATE TABLE service_heads (
    id          BLOB PRIMARY KEY,
    head        BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Only services with labels have rows.
CREATE TABLE service_labels (
    key         TEXT NOT NULL,
    value       TEXT NOT NULL,
    service     BLOB NOT NULL,
    PRIMARY KEY (key, value, service)
) STRICT, WITHOUT ROWID;
";

/// Returns the schema version of the file; 0 for a new one.
///
/// # Errors
/// [`StoreError::TooNew`], and [`Failure::Broken`] for a file that is not a Belfry store.
pub(super) fn version(connection: &Connection) -> Result<u32, Failure> {
    let found: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let application: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let tables: u32 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION_ID && (tables > 0 || found > 0) {
        return Err(Failure::Broken("it is a database of another program".into()));
    }
    if found > VERSION {
        return Err(Failure::Store(StoreError::TooNew { found, known: VERSION }));
    }
    if found > 0 && tables == 0 {
        return Err(Failure::Broken(format!("it has schema version {found} but no tables")));
    }
    Ok(found)
}

/// Migrates the file to [`VERSION`], each step in its own transaction.
pub(super) fn migrate(connection: &Connection, from: u32, shards: u16) -> Result<(), Failure> {
    migrate_by(connection, from, shards, MIGRATIONS)
}

fn migrate_by(connection: &Connection, from: u32, shards: u16, steps: &[&str]) -> Result<(), Failure> {
    for (version, step) in (1u32..).zip(steps).skip(from as usize) {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let result = migrate_step(connection, version, step, shards);
        let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
        connection.execute_batch(end)?;
        result?;
    }
    Ok(())
}

fn migrate_step(connection: &Connection, version: u32, step: &str, shards: u16) -> Result<(), Failure> {
    connection.execute_batch(step)?;
    if version == 1 {
        connection.execute_batch(&format!("PRAGMA application_id = {APPLICATION_ID}"))?;
        connection.execute("INSERT INTO meta VALUES (0, ?1, 0, 1, 0)", [shards])?;
        for shard in 0..shards {
            connection.execute("INSERT INTO shards VALUES (?1, NULL, 0, 0)", [shard])?;
        }
    }
    connection.execute_batch(&format!("PRAGMA user_version = {version}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_migration_leaves_the_previous_version() {
        let connection = Connection::open_in_memory().unwrap();
        let steps = [VERSION_1, "CREATE TABLE added (x INTEGER); CREATE TABLE meta (x INTEGER);"];
        assert!(migrate_by(&connection, 0, 4, &steps).is_err());
        assert_eq!(version(&connection).unwrap(), 1);
        let added: u32 = connection
            .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'added'", [], |row| row.get(0))
            .unwrap();
        assert_eq!(added, 0);
    }

    #[test]
    fn only_missing_migrations_run() {
        let connection = Connection::open_in_memory().unwrap();
        migrate_by(&connection, 0, 4, &[VERSION_1]).unwrap();
        migrate_by(&connection, 1, 4, &[VERSION_1, "ALTER TABLE meta ADD COLUMN x INTEGER"]).unwrap();
        let (version, shards): (u32, u16) = connection
            .query_row(
                "SELECT (SELECT * FROM pragma_user_version), shards FROM meta WHERE x IS NULL",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .unwrap();
        assert_eq!((version, shards), (2, 4));
    }
}
