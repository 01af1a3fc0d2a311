//! The tables, and the migrations of a database from an older version.
//!
//! The tables have the same names as in SQLite, with PostgreSQL's types and the indexes that its planner needs. Times
//! are in microseconds, as everywhere in the store. Syntax that only PostgreSQL supports is a placeholder in braces,
//! and is left out for other databases (CockroachDB, YugabyteDB):
//!
//! - `{text}`: text ordered by its bytes, so that an index never depends on the system's locale;
//! - `{hot}`: free space in each page, so that an update that changes no index stays in its page (a HOT update).
//!
//! Servers migrate one after the other: the row of `schema_version` is locked until all steps are done. A step and its
//! version number become visible together.

use super::connection::{Lane, Mode, Query};
use super::error::{Failure, GUARD};
use super::param;
use crate::StoreError;

/// Migrations, each from one version to the next. A released migration is never changed.
const MIGRATIONS: &[&str] = &[
    VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5, VERSION_6, VERSION_7, VERSION_8, VERSION_9,
    VERSION_10, VERSION_11, VERSION_12, VERSION_13, VERSION_14, VERSION_15, VERSION_16,
];

/// Schema version that this program writes.
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Live tables have free space and few indexes; history tables have the indexes of the lists.
const VERSION_1: &str = "
CREATE TABLE meta (
    id          INTEGER PRIMARY KEY CHECK (id = 0),
    shards      INTEGER NOT NULL,
    next_event  BIGINT NOT NULL,
    checked_at  BIGINT NOT NULL
) {hot};

-- A shard, its owner, and the engine time of the newest commit that changed it. `system` and `timeline` are
-- those of the database at the last acquire: other values mean that commits may be lost.
CREATE TABLE shards (
    shard       INTEGER PRIMARY KEY,
    owner       {text},
    epoch       BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    now         BIGINT NOT NULL,
    system      {text},
    timeline    {text},
    tail_lost   BOOLEAN NOT NULL
) {hot};

CREATE TABLE jobs (
    id          UUID PRIMARY KEY,
    status      INTEGER NOT NULL,
    worker      UUID,
    expires_at  BIGINT,
    namespace   {text} NOT NULL,
    owner       {text},
    queue       {text} NOT NULL,
    name        {text} NOT NULL,
    state       BYTEA NOT NULL,
    history     BYTEA NOT NULL,
    head        BYTEA NOT NULL,
    schedule    UUID,
    backfill    UUID,
    shard       INTEGER NOT NULL
) {hot};
CREATE INDEX jobs_schedule ON jobs (schedule, id) WHERE schedule IS NOT NULL;
CREATE INDEX jobs_backfill ON jobs (backfill, id) WHERE backfill IS NOT NULL;

CREATE TABLE jobs_ended (
    id          UUID PRIMARY KEY,
    status      INTEGER NOT NULL,
    worker      UUID,
    expires_at  BIGINT,
    namespace   {text} NOT NULL,
    owner       {text},
    queue       {text} NOT NULL,
    name        {text} NOT NULL,
    state       BYTEA NOT NULL,
    history     BYTEA NOT NULL,
    head        BYTEA NOT NULL,
    schedule    UUID,
    backfill    UUID
);
CREATE INDEX jobs_ended_namespace ON jobs_ended (namespace, id);
CREATE INDEX jobs_ended_name ON jobs_ended (name, id);
CREATE INDEX jobs_ended_owner ON jobs_ended (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX jobs_ended_queue ON jobs_ended (queue, id) WHERE queue <> 'default';
CREATE INDEX jobs_ended_status ON jobs_ended (status, id, namespace) WHERE status <> 4;
CREATE INDEX jobs_ended_expiry ON jobs_ended (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX jobs_ended_schedule ON jobs_ended (schedule, id) WHERE schedule IS NOT NULL;
CREATE INDEX jobs_ended_backfill ON jobs_ended (backfill, id) WHERE backfill IS NOT NULL;

CREATE TABLE labels (
    key         {text} NOT NULL,
    value       {text} NOT NULL,
    job         UUID NOT NULL,
    PRIMARY KEY (key, value, job)
);
CREATE INDEX labels_job ON labels (job);

CREATE TABLE executions (
    id          UUID PRIMARY KEY,
    job         UUID NOT NULL,
    number      BIGINT NOT NULL,
    fence       BIGINT NOT NULL,
    worker      UUID NOT NULL,
    status      INTEGER NOT NULL,
    namespace   {text} NOT NULL,
    job_name    {text} NOT NULL,
    rest        BYTEA NOT NULL,
    shard       INTEGER NOT NULL
) {hot};
CREATE UNIQUE INDEX executions_number ON executions (job, number);

CREATE TABLE executions_ended (
    id          UUID PRIMARY KEY,
    job         UUID NOT NULL,
    number      BIGINT NOT NULL,
    fence       BIGINT NOT NULL,
    worker      UUID NOT NULL,
    status      INTEGER NOT NULL,
    namespace   {text} NOT NULL,
    job_name    {text} NOT NULL,
    rest        BYTEA NOT NULL
);
CREATE UNIQUE INDEX executions_ended_number ON executions_ended (job, number);
CREATE INDEX executions_ended_worker ON executions_ended (worker, id);

CREATE TABLE keys (
    key         UUID PRIMARY KEY,
    body        UUID NOT NULL,
    job         UUID NOT NULL,
    expires_at  BIGINT NOT NULL,
    shard       INTEGER NOT NULL
);
CREATE INDEX keys_expiry ON keys (shard, expires_at);

-- Number of jobs in each status, in parts that are added up: a commit changes only the part of a shard that
-- it has locked anyway, so that servers do not wait for each other. Part -1 belongs to retention.
CREATE TABLE job_counts (
    part        INTEGER NOT NULL,
    namespace   {text} NOT NULL,
    status      INTEGER NOT NULL,
    count       BIGINT NOT NULL,
    PRIMARY KEY (part, namespace, status)
) {hot};

CREATE TABLE workers (
    id          UUID PRIMARY KEY,
    record      BYTEA NOT NULL
) {hot};

CREATE TABLE queues (
    name        {text} PRIMARY KEY,
    record      BYTEA NOT NULL
);

-- A row for up to some hundred events of one batch; `first` is the position of its first event.
CREATE TABLE events (
    first       BIGINT PRIMARY KEY,
    count       BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    payload     BYTEA NOT NULL
);

CREATE TABLE tokens (
    id          {text} PRIMARY KEY,
    kind        INTEGER NOT NULL,
    name        {text} NOT NULL,
    hash        BYTEA NOT NULL,
    created_at  BIGINT NOT NULL
);

CREATE TABLE artifacts (
    namespace   {text} NOT NULL,
    name        {text} NOT NULL,
    created_at  BIGINT NOT NULL,
    sha256      {text} NOT NULL,
    size_bytes  BIGINT NOT NULL,
    created_by  {text} NOT NULL,
    PRIMARY KEY (namespace, name, created_at)
);
CREATE UNIQUE INDEX artifacts_version ON artifacts (namespace, name, sha256);
CREATE INDEX artifacts_newest ON artifacts (created_at);

-- The unique key is a safeguard. A firing changes only `state` and `next_at`.
CREATE TABLE schedules (
    id          UUID PRIMARY KEY,
    status      INTEGER NOT NULL,
    next_at     BIGINT,
    namespace   {text} NOT NULL,
    name        {text} NOT NULL,
    owner       {text},
    state       BYTEA NOT NULL,
    shard       INTEGER NOT NULL
) {hot};
CREATE UNIQUE INDEX schedules_name ON schedules (namespace, name);
CREATE INDEX schedules_namespace ON schedules (namespace, id);
CREATE INDEX schedules_owner ON schedules (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX schedules_status ON schedules (status, id, namespace) WHERE status <> 0;
CREATE INDEX schedules_next ON schedules (next_at, id) WHERE next_at IS NOT NULL;

CREATE TABLE schedule_heads (
    id          UUID PRIMARY KEY,
    head        BYTEA NOT NULL
);

CREATE TABLE schedule_labels (
    key         {text} NOT NULL,
    value       {text} NOT NULL,
    schedule    UUID NOT NULL,
    PRIMARY KEY (key, value, schedule)
);
CREATE INDEX schedule_labels_schedule ON schedule_labels (schedule);

-- The unique key is the safeguard of `one entry for each scheduled time`; `backfill` is zero if there is none.
CREATE TABLE ledger (
    first       BIGINT NOT NULL,
    schedule    UUID NOT NULL,
    generation  BIGINT NOT NULL,
    cause       INTEGER NOT NULL,
    backfill    UUID NOT NULL,
    last        BIGINT NOT NULL,
    count       BIGINT NOT NULL,
    outcome     INTEGER NOT NULL,
    job         UUID,
    decided_at  BIGINT NOT NULL,
    namespace   {text},
    rest        BYTEA NOT NULL,
    PRIMARY KEY (first, schedule, generation, cause, backfill)
);
CREATE INDEX ledger_schedule ON ledger (schedule, first, generation, cause, backfill);
CREATE INDEX ledger_backfill ON ledger (backfill, first, schedule, generation, cause)
    WHERE backfill <> '00000000-0000-0000-0000-000000000000';
CREATE INDEX ledger_rows ON ledger (last) WHERE count > 1;

CREATE TABLE backfills (
    id          UUID PRIMARY KEY,
    schedule    UUID NOT NULL,
    status      INTEGER NOT NULL,
    finished_at BIGINT,
    namespace   {text},
    state       BYTEA NOT NULL,
    shard       INTEGER NOT NULL
) {hot};
CREATE INDEX backfills_schedule ON backfills (schedule, id);
CREATE INDEX backfills_running ON backfills (id) WHERE status = 0;

CREATE TABLE backfill_heads (
    id          UUID PRIMARY KEY,
    head        BYTEA NOT NULL
);

CREATE TABLE calendars (
    namespace   {text} NOT NULL,
    name        {text} NOT NULL,
    record      BYTEA NOT NULL,
    PRIMARY KEY (namespace, name)
);

-- Servers that are registered until `expires_at`, and keys with which they sign.
CREATE TABLE servers (
    id          UUID PRIMARY KEY,
    name        {text} NOT NULL,
    url         {text},
    version     {text} NOT NULL,
    started_at  BIGINT NOT NULL,
    draining    BOOLEAN NOT NULL,
    expires_at  BIGINT NOT NULL
) {hot};

CREATE TABLE secrets (
    name        {text} PRIMARY KEY,
    secret      BYTEA NOT NULL
);

-- Rows that could not be decoded, with all their columns as JSON.
CREATE TABLE quarantine (
    at          BIGINT NOT NULL,
    origin      {text} NOT NULL,
    key         {text} NOT NULL,
    reason      {text} NOT NULL,
    columns     TEXT NOT NULL,
    PRIMARY KEY (at, origin, key)
);
";

const VERSION_2: &str = "
-- Source and progress of a copy; the progress is the last copied key of a table. No row if the database is
-- not a copy. No server may use the database until `finished_at` is set.
CREATE TABLE copies (
    id          INTEGER PRIMARY KEY CHECK (id = 0),
    source      {text} NOT NULL,
    identity    BYTEA NOT NULL,
    at_table    {text} NOT NULL,
    after       BYTEA NOT NULL,
    copied      BIGINT NOT NULL,
    started_at  BIGINT NOT NULL,
    finished_at BIGINT
);
";

/// Workflows, as in the embedded store. A definition is written once for all its runs.
const VERSION_3: &str = "
ALTER TABLE jobs ADD COLUMN run UUID;
ALTER TABLE jobs_ended ADD COLUMN run UUID;
CREATE INDEX jobs_run ON jobs (run, id) WHERE run IS NOT NULL;
CREATE INDEX jobs_ended_run ON jobs_ended (run, id) WHERE run IS NOT NULL;

CREATE TABLE workflows (
    id          UUID PRIMARY KEY,
    generation  BIGINT NOT NULL,
    namespace   {text} NOT NULL,
    name        {text} NOT NULL,
    owner       {text},
    state       BYTEA NOT NULL,
    shard       INTEGER NOT NULL
) {hot};
CREATE UNIQUE INDEX workflows_name ON workflows (namespace, name);
CREATE INDEX workflows_namespace ON workflows (namespace, id);
CREATE INDEX workflows_owner ON workflows (owner, id) WHERE owner IS NOT NULL;

CREATE TABLE workflow_heads (
    id          UUID NOT NULL,
    generation  BIGINT NOT NULL,
    head        BYTEA NOT NULL,
    PRIMARY KEY (id, generation)
);

CREATE TABLE workflow_labels (
    key         {text} NOT NULL,
    value       {text} NOT NULL,
    workflow    UUID NOT NULL,
    PRIMARY KEY (key, value, workflow)
);
CREATE INDEX workflow_labels_workflow ON workflow_labels (workflow);

CREATE TABLE runs (
    id          UUID PRIMARY KEY,
    status      INTEGER NOT NULL,
    workflow    UUID,
    caller      UUID,
    schedule    UUID,
    backfill    UUID,
    namespace   {text} NOT NULL,
    name        {text} NOT NULL,
    expires_at  BIGINT,
    state       BYTEA NOT NULL,
    shard       INTEGER NOT NULL
) {hot};
CREATE INDEX runs_live ON runs (id) WHERE status < 4;
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
    id          UUID PRIMARY KEY,
    definition  UUID NOT NULL,
    head        BYTEA NOT NULL
);

CREATE INDEX run_heads_definition ON run_heads (definition);

CREATE TABLE run_definitions (
    hash        UUID PRIMARY KEY,
    body        BYTEA NOT NULL
);

-- `list` is -1 for a step, and the number of the step for its elements.
CREATE TABLE steps (
    run         UUID NOT NULL,
    list        BIGINT NOT NULL,
    number      BIGINT NOT NULL,
    status      INTEGER NOT NULL,
    state       BYTEA NOT NULL,
    shard       INTEGER NOT NULL,
    PRIMARY KEY (run, list, number)
) {hot};

CREATE TABLE runs_deleted (
    run         UUID PRIMARY KEY,
    definition  UUID
);

CREATE TABLE run_keys (
    key         UUID PRIMARY KEY,
    body        UUID NOT NULL,
    run         UUID NOT NULL,
    expires_at  BIGINT NOT NULL,
    shard       INTEGER NOT NULL
);
CREATE INDEX run_keys_expiry ON run_keys (shard, expires_at);
";

/// Checkpoints of jobs, as in the embedded store.
const VERSION_4: &str = "
CREATE TABLE checkpoints (
    job          UUID PRIMARY KEY,
    version      BIGINT NOT NULL,
    content_type {text} NOT NULL,
    saved_at     BIGINT NOT NULL,
    data         BYTEA NOT NULL
) {hot};
";

/// Elements that tasks add to the lists of steps, as in the embedded store.
const VERSION_5: &str = "
CREATE TABLE element_batches (
    run         UUID NOT NULL,
    step        BIGINT NOT NULL,
    first       BIGINT NOT NULL,
    batch       BYTEA NOT NULL,
    PRIMARY KEY (run, step, first)
);
";

/// Fingerprints of servers; NULL for a server of an older release. The embedded store has its one server in memory.
const VERSION_6: &str = "
ALTER TABLE servers ADD COLUMN fingerprint BYTEA;
";

/// Retried runs, and steps with declared outputs, as in the embedded store.
const VERSION_7: &str = "
-- Live runs: 0 to 3 as before, and -1 for a run that waits for its retry.
";

/// The changelog, which a standby follows. Only several servers need it, so the embedded store has none.
const VERSION_8: &str = "
-- Number of commits in the changelog.
ALTER TABLE meta ADD COLUMN commits BIGINT NOT NULL DEFAULT 0;

-- The engine time of the newest commit by an owner that writes the changelog. A shard with a later `now` has,
-- or had, an owner of an older release.
ALTER TABLE shards ADD COLUMN logged BIGINT NOT NULL DEFAULT 0;

-- A row for each commit, in the order in which commits became visible: the positions of the feed before and
-- after it, and the rows that it changed. A missing number means that a change is not in the changelog.
CREATE TABLE changelog (
    number      BIGINT PRIMARY KEY,
    epoch       BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    first_event BIGINT NOT NULL,
    next_event  BIGINT NOT NULL,
    touched     BYTEA NOT NULL
);
INSERT INTO changelog (number, epoch, at, first_event, next_event, touched)
    SELECT 0, 0, 0, next_event, next_event, ''::BYTEA FROM meta;

-- Delay of a standby behind the leader, in milliseconds; NULL for a server that does not follow.
ALTER TABLE servers ADD COLUMN lag BIGINT;
";

/// Artifact versions that runs need, as in the embedded store.
const VERSION_9: &str = "
CREATE TABLE artifact_pins (
    run         UUID NOT NULL,
    name        {text} NOT NULL,
    sha256      {text} NOT NULL,
    PRIMARY KEY (run, name, sha256)
);
CREATE INDEX artifact_pins_version ON artifact_pins (sha256, name, run);
";

/// Statistics, as in the embedded store.
const VERSION_10: &str = "
CREATE TABLE statistics_pending (
    id          UUID PRIMARY KEY,
    at          BIGINT NOT NULL,
    payload     BYTEA NOT NULL
);
CREATE TABLE statistics (
    resolution  SMALLINT NOT NULL,
    kind        SMALLINT NOT NULL,
    chunk       BIGINT NOT NULL,
    namespace   {text} NOT NULL,
    name        {text} NOT NULL,
    points      BYTEA NOT NULL,
    PRIMARY KEY (resolution, kind, chunk, namespace, name)
);
-- Number of folds: each one depends on the one before.
ALTER TABLE meta ADD COLUMN folds BIGINT NOT NULL DEFAULT 0;
";

/// Failures by their signature, as in the embedded store.
const VERSION_11: &str = "
CREATE TABLE failure_groups (
    namespace   {text} NOT NULL,
    id          BIGINT NOT NULL,
    last_at     BIGINT NOT NULL,
    record      BYTEA NOT NULL,
    mark        BYTEA,
    PRIMARY KEY (namespace, id)
);
CREATE INDEX failure_groups_newest ON failure_groups (last_at);
";

/// Access control, as in the embedded store.
const VERSION_12: &str = "
CREATE TABLE access (
    kind        {text} NOT NULL,
    key         {text} NOT NULL,
    version     BIGINT NOT NULL,
    body        TEXT NOT NULL,
    checksum    BIGINT,
    PRIMARY KEY (kind, key)
);
CREATE INDEX access_version ON access (version);
ALTER TABLE meta ADD COLUMN access_version BIGINT NOT NULL DEFAULT 1;

INSERT INTO access SELECT 'token', id, 1,
    json_build_object(
        'id', id, 'bearer', json_build_object(CASE kind WHEN 0 THEN 'admin' ELSE 'worker' END, name),
        'hash', encode(hash, 'hex'), 'created_by', 'system',
        'created_at', to_char(to_timestamp(created_at / 1000000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'))::text, NULL
FROM tokens;
DROP TABLE tokens;
";

/// The audit log, as in the embedded store.
const VERSION_13: &str = "
CREATE TABLE audit (
    sequence    BIGINT PRIMARY KEY,
    at          BIGINT NOT NULL,
    namespace   {text},
    actor       {text} NOT NULL,
    action      {text} NOT NULL,
    verb        {text} NOT NULL,
    resource    {text} NOT NULL,
    object      {text},
    outcome     {text} NOT NULL,
    body        TEXT NOT NULL,
    hash        BYTEA NOT NULL
);
CREATE INDEX audit_namespace ON audit (namespace, sequence) WHERE namespace IS NOT NULL;
CREATE INDEX audit_actor ON audit (actor, sequence);
CREATE INDEX audit_object ON audit (object, sequence) WHERE object IS NOT NULL;
CREATE INDEX audit_at ON audit (at, sequence);

CREATE TABLE audit_chain (
    id            INTEGER PRIMARY KEY CHECK (id = 0),
    last_sequence BIGINT NOT NULL,
    last_hash     BYTEA NOT NULL,
    cut_sequence  BIGINT NOT NULL,
    cut_hash      BYTEA NOT NULL
) {hot};
";

/// Alerts, as in the embedded store.
const VERSION_14: &str = "
CREATE TABLE alerts (
    kind        {text} NOT NULL,
    key         {text} NOT NULL,
    body        TEXT NOT NULL,
    checksum    BIGINT NOT NULL,
    PRIMARY KEY (kind, key)
);
ALTER TABLE meta ADD COLUMN alert_version BIGINT NOT NULL DEFAULT 1;
";

/// Settings of namespaces, priority classes, and preempted executions, as in the embedded store.
const VERSION_15: &str = "
CREATE TABLE namespaces (
    name        {text} PRIMARY KEY,
    record      BYTEA NOT NULL
);
";

/// Services, and the health of executions, as in the embedded store.
const VERSION_16: &str = "
ALTER TABLE jobs ADD COLUMN service UUID;
ALTER TABLE jobs_ended ADD COLUMN service UUID;
CREATE INDEX jobs_service ON jobs (service, id) WHERE service IS NOT NULL;
CREATE INDEX jobs_ended_service ON jobs_ended (service, id) WHERE service IS NOT NULL;

CREATE TABLE services (
    id          UUID PRIMARY KEY,
    namespace   {text} NOT NULL,
    name        {text} NOT NULL,
    owner       {text},
    state       BYTEA NOT NULL,
    shard       INTEGER NOT NULL
) {hot};
CREATE UNIQUE INDEX services_name ON services (namespace, name);
CREATE INDEX services_namespace ON services (namespace, id);
CREATE INDEX services_owner ON services (owner, id) WHERE owner IS NOT NULL;

CREATE TABLE service_heads (
    id          UUID PRIMARY KEY,
    head        BYTEA NOT NULL
);

CREATE TABLE service_labels (
    key         {text} NOT NULL,
    value       {text} NOT NULL,
    service     UUID NOT NULL,
    PRIMARY KEY (key, value, service)
);
CREATE INDEX service_labels_service ON service_labels (service);
";

/// Maximum number of attempts to create the first tables, if another server does so at the same time.
const ATTEMPTS_MAX: u32 = 5;

/// Returns the statements of a migration, in the dialect of this database.
fn statements(step: &str, postgres: bool) -> Vec<String> {
    let (text, hot) = if postgres { ("TEXT COLLATE \"C\"", "WITH (fillfactor = 50)") } else { ("TEXT", "") };
    // A comment may contain a semicolon.
    let lines = step.lines().filter(|line| !line.trim_start().starts_with("--"));
    let step = lines.collect::<Vec<_>>().join("\n").replace("{text}", text).replace("{hot}", hot);
    step.split(';').map(|sql| sql.trim().to_owned()).filter(|sql| !sql.is_empty()).collect()
}

/// Migrates the database to [`VERSION`]; returns its number of shards.
///
/// # Errors
/// [`StoreError::TooNew`], and [`Failure::Broken`] for a database that is not a Belfry store.
pub(super) async fn migrate(lane: &Lane, mode: Mode, postgres: bool, shards: u16) -> Result<u16, Failure> {
    create_version_row(lane, mode).await?;
    loop {
        let found = version(lane, mode).await?;
        if found > VERSION {
            return Err(Failure::Store(StoreError::TooNew { found, known: VERSION }));
        }
        let Some(step) = MIGRATIONS.get(found as usize) else { break };
        let mut queries = vec![Query::new(LOCK_VERSION, vec![param::int(found as i32)])];
        queries.extend(statements(step, postgres).into_iter().map(|sql| Query::new(sql, Vec::new())));
        if found == 0 {
            let last = param::int(i32::from(shards) - 1);
            queries.push(Query::new(
                "INSERT INTO meta VALUES (0, $1, 1, 0)".to_owned(),
                vec![param::int(shards.into())],
            ));
            queries.push(Query::new(
                "INSERT INTO shards
                 SELECT n, NULL, 0, 0, 0, NULL, NULL, FALSE FROM generate_series(0, $1) AS n"
                    .to_owned(),
                vec![last],
            ));
        }
        queries.push(Query::new("UPDATE schema_version SET version = version + 1", Vec::new()));
        match lane.run(mode, &queries).await {
            Ok(_) => tracing::info!(version = found + 1, "database schema created"),
            // Another server did this step while this one waited for the lock.
            Err(stopped) if stopped.failure.state() == Some(GUARD) => {}
            Err(stopped) => return Err(foreign(stopped.failure)),
        }
    }
    let rows = lane.run(mode, &[Query::new("SELECT shards FROM meta", Vec::new())]).await?;
    let found: i32 = rows[0].first().map_or(0, |row| row.get(0));
    u16::try_from(found).map_err(|_| Failure::Broken(format!("it has {found} shards")))
}

/// Returns the schema version of a database without changing it; `None` if it has no Belfry tables.
pub(super) async fn found(lane: &Lane, mode: Mode) -> Result<Option<u32>, Failure> {
    let look = "SELECT to_regclass('schema_version') IS NOT NULL";
    let rows = lane.run(mode, &[Query::new(look.to_owned(), Vec::new())]).await?;
    match rows[0].first().is_some_and(|row| row.get(0)) {
        true => version(lane, mode).await.map(|found| (found > 0).then_some(found)),
        false => Ok(None),
    }
}

/// Locks the row until the transaction ends; raises an error if the version is not `$1` any more.
const LOCK_VERSION: &str = "SELECT 1 / (CASE WHEN version = $1 THEN 1 ELSE 0 END) FROM
    (SELECT version FROM schema_version WHERE id = 0 FOR UPDATE) AS locked";

async fn version(lane: &Lane, mode: Mode) -> Result<u32, Failure> {
    let rows = lane.run(mode, &[Query::new("SELECT version FROM schema_version", Vec::new())]).await?;
    let found: i32 = rows[0].first().map_or(0, |row| row.get(0));
    u32::try_from(found).map_err(|_| Failure::Broken(format!("it has the schema version {found}")))
}

/// Creates the row that is locked during the migrations.
async fn create_version_row(lane: &Lane, mode: Mode) -> Result<(), Failure> {
    let make = [
        Query::new(
            "CREATE TABLE IF NOT EXISTS schema_version
             (id INTEGER PRIMARY KEY CHECK (id = 0), version INTEGER NOT NULL)"
                .to_owned(),
            Vec::new(),
        ),
        Query::new(
            "INSERT INTO schema_version VALUES (0, 0) ON CONFLICT (id) DO NOTHING".to_owned(),
            Vec::new(),
        ),
    ];
    let mut tries = 0;
    loop {
        tries += 1;
        match lane.run(mode, &make).await {
            Ok(_) => return Ok(()),
            // Two servers that create a table at the same time conflict in the system catalog.
            Err(stopped) if tries < ATTEMPTS_MAX && is_creation_conflict(&stopped.failure) => {}
            Err(stopped) => return Err(stopped.failure),
        }
    }
}

fn is_creation_conflict(failure: &Failure) -> bool {
    failure.is_contention()
        || failure.state().is_some_and(|state| matches!(state.code(), "23505" | "42710" | "42P07"))
}

/// Converts the error for a table that exists although this store did not create it.
fn foreign(failure: Failure) -> Failure {
    match failure.state().map(|state| state.code().to_owned()).as_deref() {
        Some("42P07") => {
            Failure::Broken("the database has tables of another program; give Belfry a separate one".into())
        }
        _ => failure,
    }
}
