//! Rows that cannot be decoded are quarantined, and the rest keeps working.
//!
//! [`Filled`] has ten running and ten ended jobs. A test closes the store, changes the file with SQL, opens
//! it again, and checks which rows a load or a query returns, and which rows are in quarantine.
//!
//! # Invariants
//! - A row takes those with it that cannot continue without it: a job with its execution, a schedule with its
//!   backfill, a run with its steps. Other rows of the shard continue.
//! - A query leaves a damaged live row to the load, which alone can be sure that no engine has it in memory.
//! - A quarantined row keeps all its bytes.

use model::firing::{BackfillStatus, ScheduleStatus};
use model::record::{Batch, Change, ExecutionRecord, JobHead, Lease, LiveRow};
use model::run::{BatchKey, StepKey, StepRecord, WorkflowState};
use model::service::ReplicaOrigin;
use model::{BackfillId, ExecutionStatus, JobId, JobStatus, RunId, RunStatus, ScheduleId, ShardId};
use rusqlite::{Connection, params};

use super::*;
use crate::EventSeq;
use crate::query::{Counts, JobFilter, LedgerFilter, Page};
use crate::suite::sample::{Sampler, head_of, schedule_head_of, workflow_head_of};

const ALL: [ShardId; 16] = {
    let mut all = [ShardId(0); 16];
    let mut n = 0;
    while n < 16 {
        all[n] = ShardId(n as u16);
        n += 1;
    }
    all
};

struct Filled {
    subject: OnDisk,
    leases: Vec<Lease>,
    jobs: Vec<JobId>,
    ended: Vec<JobId>,
    executions: Vec<ExecutionRecord>,
}

impl Filled {
    /// Creates ten running jobs with an execution each, and ten ended jobs.
    async fn new() -> Self {
        let mut sampler = Sampler::new(41);
        let mut filled = Self {
            subject: OnDisk::new(),
            leases: Vec::new(),
            jobs: Vec::new(),
            ended: Vec::new(),
            executions: Vec::new(),
        };
        filled.acquire().await;
        let mut changes = Vec::new();
        for n in 0..20 {
            let id = sampler.job_id(ShardId(n % 16));
            let mut spec = sampler.spec();
            spec.namespace = "default".into();
            let head = Some(Arc::new(JobHead { retry_of: None, ..head_of(spec) }));
            let status = if n < 10 { JobStatus::Running } else { JobStatus::Succeeded };
            let mut state = sampler.state(status);
            if n < 10 {
                let record = sampler.execution(id, 1, ExecutionStatus::Running);
                state.execution = Some(record.id);
                filled.jobs.push(id);
                filled.executions.push(record.clone());
                changes.push(Change::Execution { new: true, record: Box::new(record) });
            } else {
                filled.ended.push(id);
            }
            changes.push(Change::Job { id, new: true, head, state: Box::new(state) });
        }
        changes.push(Change::Worker(Arc::new(sampler.worker())));
        let events = (0..600).map(|_| sampler.event()).collect();
        let batch = Batch { now: sampler.now(), changes, events, ..Batch::default() };
        filled.subject.store().commit(&filled.leases, Arc::new(batch)).await.unwrap();
        filled
    }

    async fn acquire(&mut self) {
        self.leases = self.subject.store().acquire(&ALL, "a", Duration::from_hours(1)).await.unwrap();
    }

    /// Changes the file behind the store's back.
    async fn damage(&mut self, change: impl FnOnce(&Connection) -> rusqlite::Result<usize>) {
        self.subject.close();
        assert_eq!(change(&Connection::open(self.subject.path()).unwrap()).unwrap(), 1);
        self.subject.open();
        self.acquire().await;
    }

    async fn load(&self) -> (crate::Loaded, Vec<JobId>, Vec<ExecutionRecord>) {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(64);
        let loaded = self.subject.store().load(&self.leases, sender).await.unwrap();
        let (mut jobs, mut executions) = (Vec::new(), Vec::new());
        while let Some(chunk) = receiver.recv().await {
            for row in chunk {
                match row {
                    LiveRow::Job { id, .. } => jobs.push(id),
                    LiveRow::Execution(record) => executions.push(*record),
                    _ => {}
                }
            }
        }
        jobs.sort_unstable();
        executions.sort_unstable_by_key(|record| record.id);
        (loaded, jobs, executions)
    }

    async fn assert_quarantined(&self, tables: &[&str]) {
        let found = self.subject.store().quarantined(100).await.unwrap();
        let mut found: Vec<_> = found.iter().map(|row| row.table.as_str()).collect();
        found.sort_unstable();
        assert_eq!(found, tables);
    }

    async fn assert_live_without_first(&self) {
        let (loaded, jobs, executions) = self.load().await;
        assert_eq!((loaded.quarantined, loaded.rows), (2, 21));
        assert_eq!(jobs, self.jobs[1..]);
        assert_eq!(executions, self.executions[1..]);
        self.assert_quarantined(&["executions", "jobs"]).await;
        let (again, jobs, _) = self.load().await;
        assert_eq!((again.quarantined, jobs.len()), (0, 9));
        let counts = self.subject.store().counts(None).await.unwrap();
        assert_eq!(counts, Counts::from([(JobStatus::Running, 9), (JobStatus::Succeeded, 10)]));
    }
}

fn key(bits: u128) -> [u8; 16] {
    bits.to_be_bytes()
}

/// Flips one bit of a blob.
fn flip(connection: &Connection, table: &str, column: &str, id: u128) -> rusqlite::Result<usize> {
    let select = format!("SELECT {column} FROM {table} WHERE id = ?1");
    let mut bytes: Vec<u8> = connection.query_row(&select, [key(id)], |row| row.get(0))?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    let update = format!("UPDATE {table} SET {column} = ?2 WHERE id = ?1");
    connection.execute(&update, params![key(id), bytes])
}

/// F9, F16. A job is quarantined with its execution, and the shard continues.
#[tokio::test]
async fn a_flipped_bit_in_a_live_job_quarantines_it() {
    for column in ["state", "history", "head"] {
        let mut filled = Filled::new().await;
        let id = filled.jobs[0].to_bits();
        filled.damage(|connection| flip(connection, "jobs", column, id)).await;
        filled.assert_live_without_first().await;
    }
}

/// F9. The checksum also covers the indexed columns.
#[tokio::test]
async fn a_changed_column_of_a_live_job_quarantines_it() {
    let mut filled = Filled::new().await;
    let id = filled.jobs[0].to_bits();
    filled.damage(|c| c.execute("UPDATE jobs SET worker = randomblob(16) WHERE id = ?1", [key(id)])).await;
    filled.assert_live_without_first().await;
}

/// F16. An intact spec that cannot be parsed, as from another version.
#[tokio::test]
async fn an_invalid_spec_quarantines_its_job() {
    let mut filled = Filled::new().await;
    let id = filled.jobs[0];
    let body = r#"{"run": {"process": {"command": ["true"]}}, "from_the_future": 1}"#.into();
    let head = head_of(model::JobSpec::command(["true"]));
    let head = crate::codec::seal_head(id, &JobHead { body, ..head });
    filled
        .damage(|c| c.execute("UPDATE jobs SET head = ?2 WHERE id = ?1", params![key(id.to_bits()), head]))
        .await;
    filled.assert_live_without_first().await;
    let reason = &filled.subject.store().quarantined(10).await.unwrap();
    assert!(reason.iter().any(|row| row.reason.contains("from_the_future")), "{reason:?}");
}

/// F9. Its job cannot continue without it.
#[tokio::test]
async fn a_damaged_execution_quarantines_its_job() {
    let mut filled = Filled::new().await;
    let id = filled.executions[0].id.to_bits();
    filled.damage(|connection| flip(connection, "executions", "rest", id)).await;
    filled.assert_live_without_first().await;
}

/// F9. A row under the ID of another row.
#[tokio::test]
async fn a_blob_under_the_wrong_id_is_detected() {
    let mut filled = Filled::new().await;
    let (first, second) = (filled.jobs[0].to_bits(), filled.jobs[1].to_bits());
    let sql = "UPDATE jobs SET head = (SELECT head FROM jobs WHERE id = ?2) WHERE id = ?1";
    filled.damage(|connection| connection.execute(sql, [key(first), key(second)])).await;
    filled.assert_live_without_first().await;
}

/// F9. Lists continue without the row and report it.
#[tokio::test]
async fn a_list_quarantines_a_damaged_row_of_the_history() {
    let mut filled = Filled::new().await;
    let damaged = filled.ended[3];
    filled.damage(|connection| flip(connection, "jobs_ended", "state", damaged.to_bits())).await;
    let store = filled.subject.store();
    let filter = JobFilter { statuses: vec![JobStatus::Succeeded], ..JobFilter::default() };
    let listed = store.jobs(&filter, Page { after: None, limit: 9 }).await.unwrap();
    let expected: Vec<_> = filled.ended.iter().rev().copied().filter(|id| *id != damaged).collect();
    assert_eq!(listed.items.iter().map(|job| job.id).collect::<Vec<_>>(), expected);
    assert!(!listed.more);
    filled.assert_quarantined(&["jobs_ended"]).await;
    assert_eq!(store.counts(None).await.unwrap()[&JobStatus::Succeeded], 9);
    assert_eq!(store.job(damaged).await.unwrap(), None);
}

/// F9.
#[tokio::test]
async fn damaged_events_and_workers_are_quarantined() {
    let mut filled = Filled::new().await;
    filled.damage(|c| c.execute("UPDATE events SET payload = zeroblob(9) WHERE first = 257", [])).await;
    filled.damage(|c| c.execute("UPDATE workers SET record = 'text'", []).or(Ok(1))).await;
    filled.damage(|c| c.execute("UPDATE workers SET record = zeroblob(50)", [])).await;
    let store = filled.subject.store();
    let page = store.events(EventSeq(0), 10_000).await.unwrap();
    let places: Vec<_> = page.events.iter().map(|(seq, _)| seq.0).collect();
    assert_eq!(places, (1..257).chain(513..601).collect::<Vec<_>>());
    assert_eq!(store.workers().await.unwrap(), []);
    filled.assert_quarantined(&["events", "workers"]).await;
}

/// F9. All its columns are kept.
#[tokio::test]
async fn a_quarantined_row_keeps_its_bytes() {
    let mut filled = Filled::new().await;
    let id = filled.jobs[0].to_bits();
    filled.damage(|connection| flip(connection, "jobs", "state", id)).await;
    let raw = Connection::open(filled.subject.path()).unwrap();
    let state: Vec<u8> =
        raw.query_row("SELECT state FROM jobs WHERE id = ?1", [key(id)], |row| row.get(0)).unwrap();
    filled.load().await;
    let columns: Vec<u8> =
        raw.query_row("SELECT columns FROM quarantine WHERE origin = 'jobs'", [], |row| row.get(0)).unwrap();
    assert!(columns.windows(state.len()).any(|window| window == state));
}

/// Creates a schedule that fired, with a running backfill, and a second schedule that stays intact.
async fn with_schedules() -> (Filled, [ScheduleId; 2], BackfillId) {
    let filled = Filled::new().await;
    let mut sampler = Sampler::new(42);
    let ids = [sampler.schedule_id(ShardId(1)), sampler.schedule_id(ShardId(2))];
    let mut changes = Vec::new();
    for id in ids {
        let head = Some(Arc::new(schedule_head_of(sampler.schedule_spec())));
        let state = Box::new(sampler.schedule_state(id, ScheduleStatus::Active));
        changes.push(Change::Schedule { id, new: true, head, state });
        changes.push(Change::Ledger(Box::new(sampler.line(id, None))));
    }
    let (asked, state) = (sampler.backfill_head(ids[0]), sampler.backfill_state(BackfillStatus::Running));
    let backfill = asked.id;
    changes.push(Change::Backfill { id: backfill, head: Some(Arc::new(asked)), state });
    changes.push(Change::Calendar(Arc::new(sampler.calendar("default", "holidays"))));
    let batch = Batch { now: sampler.now(), changes, ..Batch::default() };
    filled.subject.store().commit(&filled.leases, Arc::new(batch)).await.unwrap();
    (filled, ids, backfill)
}

/// F9, F16. A backfill cannot continue without its schedule; the rest of the shard can.
#[tokio::test]
async fn a_damaged_schedule_is_quarantined_with_its_backfill() {
    for (table, column) in [("schedules", "state"), ("schedule_heads", "head")] {
        let (mut filled, ids, backfill) = with_schedules().await;
        filled.damage(|connection| flip(connection, table, column, ids[0].to_bits())).await;
        let (loaded, jobs, _) = filled.load().await;
        assert_eq!((loaded.quarantined, jobs.len()), (2, 10));
        filled.assert_quarantined(&["backfills", "schedules"]).await;
        let store = filled.subject.store();
        assert_eq!(store.schedule(ids[0]).await.unwrap(), None);
        assert_eq!(store.backfill(backfill).await.unwrap(), None);
        assert!(store.schedule(ids[1]).await.unwrap().is_some());
        assert_eq!(store.schedule_counts(None).await.unwrap(), [(ScheduleStatus::Active, 1)].into());
        let raw = Connection::open(filled.subject.path()).unwrap();
        for table in ["schedule_heads", "backfill_heads"] {
            let left: u32 =
                raw.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
            assert_eq!(left, u32::from(table == "schedule_heads"), "{table}");
        }
        assert_eq!(filled.load().await.0.quarantined, 0);
    }
}

/// F9. A firing must not be read from an entry that was changed by hand.
#[tokio::test]
async fn queries_quarantine_damaged_ledger_entries_backfills_and_calendars() {
    let (mut filled, ids, backfill) = with_schedules().await;
    let first = key(ids[0].to_bits());
    filled.damage(|c| c.execute("UPDATE ledger SET outcome = 0 WHERE schedule = ?1", [first])).await;
    filled.damage(|c| flip(c, "backfills", "state", backfill.to_bits())).await;
    filled.damage(|c| c.execute("UPDATE calendars SET name = 'other'", [])).await;
    let store = filled.subject.store();
    let page = Page { after: None, limit: 10 };
    let lines = store.ledger(&LedgerFilter::default(), page).await.unwrap().items;
    assert_eq!(lines.iter().map(|(_, line)| line.schedule).collect::<Vec<_>>(), [ids[1]]);
    assert_eq!(store.calendars(None).await.unwrap(), []);
    assert_eq!(filled.load().await.0.quarantined, 1);
    filled.assert_quarantined(&["backfills", "calendars", "ledger"]).await;
    assert!(filled.subject.store().schedule(ids[0]).await.unwrap().is_some());
}

/// Creates two runs with two steps each, and elements that a task added to one of the steps.
async fn with_runs() -> (Filled, [RunId; 2]) {
    let filled = Filled::new().await;
    let mut sampler = Sampler::new(43);
    let ids = [sampler.run_id(ShardId(1)), sampler.run_id(ShardId(2))];
    let mut changes = Vec::new();
    for id in ids {
        let (head, state) = (sampler.run_head(), sampler.run_state(RunStatus::Running));
        changes.push(Change::Run { id, head: Some(Arc::new(head)), state: Box::new(state) });
        for step in 0..2 {
            let key = StepKey { run: id, step, item: None };
            changes.push(Change::Step(Box::new(StepRecord { key, state: sampler.step_state() })));
        }
        let added = sampler.element_batch(BatchKey { run: id, step: 1, first: 0 });
        changes.push(Change::ElementBatch(Box::new(added)));
    }
    let batch = Batch { now: sampler.now(), changes, ..Batch::default() };
    filled.subject.store().commit(&filled.leases, Arc::new(batch)).await.unwrap();
    (filled, ids)
}

const STEP_OF_ANOTHER_STATUS: &str =
    "UPDATE steps SET status = (status + 1) % 8 WHERE run = ?1 AND number = 1";
const ELEMENTS_AT_ANOTHER_PLACE: &str = "UPDATE element_batches SET first = first + 1 WHERE run = ?1";

/// C1, F9, F16. A step without its row would run twice, so its run is quarantined with it; other runs continue.
#[tokio::test]
async fn a_flipped_bit_in_a_run_quarantines_only_that_run() {
    for (table, set_aside) in [
        ("runs", vec!["runs"]),
        ("run_heads", vec!["runs"]),
        ("steps", vec!["runs", "steps"]),
        ("element_batches", vec!["element_batches", "runs"]),
    ] {
        let (mut filled, ids) = with_runs().await;
        let run = key(ids[0].to_bits());
        match table {
            "runs" => filled.damage(|c| flip(c, "runs", "state", ids[0].to_bits())).await,
            "run_heads" => filled.damage(|c| flip(c, "run_heads", "head", ids[0].to_bits())).await,
            "steps" => filled.damage(|c| c.execute(STEP_OF_ANOTHER_STATUS, [run])).await,
            _ => filled.damage(|c| c.execute(ELEMENTS_AT_ANOTHER_PLACE, [run])).await,
        }
        let (loaded, jobs, _) = filled.load().await;
        assert_eq!((loaded.quarantined, jobs.len()), (set_aside.len() as u64, 10), "{table}");
        filled.assert_quarantined(&set_aside).await;
        // The earlier rows, the other run, its two steps and the elements of one of them.
        let (again, ..) = filled.load().await;
        assert_eq!((again.quarantined, again.rows), (0, 21 + 4), "{table}");
    }
}

/// C1, F9. With its newest spec; earlier generations stay.
#[tokio::test]
async fn a_damaged_workflow_is_quarantined_once() {
    let mut filled = Filled::new().await;
    let mut sampler = Sampler::new(44);
    let id = sampler.workflow_id(ShardId(1));
    let mut state = WorkflowState { generation: 0, ..sampler.workflow_state() };
    for new in [true, false] {
        state.generation += 1;
        let head = Some(Arc::new(workflow_head_of(sampler.workflow_spec())));
        let changes = vec![Change::Workflow { id, new, head, state: state.clone() }];
        let batch = Batch { now: sampler.now(), changes, ..Batch::default() };
        filled.subject.store().commit(&filled.leases, Arc::new(batch)).await.unwrap();
    }
    filled.damage(|c| flip(c, "workflows", "state", id.to_bits())).await;
    assert_eq!(filled.subject.store().workflow(id).await.unwrap(), None);
    filled.assert_quarantined(&["workflows"]).await;
    let store = filled.subject.store();
    assert!(store.workflow_version(id, 1).await.unwrap().is_some());
    assert_eq!(store.workflow_version(id, 2).await.unwrap(), None);
}

/// F9. The jobs of its replicas continue on their own.
#[tokio::test]
async fn a_damaged_service_is_quarantined_with_its_spec() {
    for (table, column) in [("services", "state"), ("service_heads", "head")] {
        let mut filled = Filled::new().await;
        let mut sampler = Sampler::new(46);
        let ids = [sampler.service_id(ShardId(1)), sampler.service_id(ShardId(2))];
        let new = |sampler: &mut Sampler, id| Change::Service {
            id,
            new: true,
            head: Some(Arc::new(sampler.service_head())),
            state: Box::new(sampler.service_state()),
        };
        let mut changes = vec![new(&mut sampler, ids[0]), new(&mut sampler, ids[1])];
        let replica = Some(Arc::new(ReplicaOrigin { service: ids[0], ..sampler.replica_origin() }));
        let (job, running) = (sampler.job_id(ShardId(1)), Box::new(sampler.state(JobStatus::Running)));
        let head = Some(Arc::new(JobHead { replica, ..head_of(sampler.spec()) }));
        changes.push(Change::Job { id: job, new: true, head, state: running });
        let batch = Batch { now: sampler.now(), changes, ..Batch::default() };
        filled.subject.store().commit(&filled.leases, Arc::new(batch)).await.unwrap();
        filled.damage(|connection| flip(connection, table, column, ids[0].to_bits())).await;
        let (loaded, jobs, _) = filled.load().await;
        assert_eq!((loaded.quarantined, jobs.len()), (1, 11));
        filled.assert_quarantined(&["services"]).await;
        let store = filled.subject.store();
        assert_eq!(store.service(ids[0]).await.unwrap(), None);
        assert!(store.service(ids[1]).await.unwrap().is_some());
        assert_eq!(store.replicas(ids[0]).await.unwrap().len(), 1);
        let raw = Connection::open(filled.subject.path()).unwrap();
        let left: u32 = raw.query_row("SELECT count(*) FROM service_heads", [], |row| row.get(0)).unwrap();
        assert_eq!(left, 1);
    }
}

/// C1, F9. If only the row were quarantined, the load could not detect that the run is incomplete.
#[tokio::test]
async fn a_read_leaves_a_damaged_row_of_a_live_run_to_the_load() {
    for (sql, table) in [(STEP_OF_ANOTHER_STATUS, "steps"), (ELEMENTS_AT_ANOTHER_PLACE, "element_batches")] {
        let (mut filled, ids) = with_runs().await;
        filled.damage(|c| c.execute(sql, [key(ids[0].to_bits())])).await;
        let read = async |filled: &Filled| {
            let store = filled.subject.store();
            let steps = store.run_steps(ids[0]).await.unwrap().len();
            (steps, store.element_batches(ids[0]).await.unwrap().len())
        };
        let whole = if table == "steps" { (1, 1) } else { (2, 0) };
        assert_eq!(read(&filled).await, whole);
        filled.assert_quarantined(&[]).await;
        assert_eq!(filled.load().await.0.quarantined, 2);
        let mut set_aside = ["runs", table];
        set_aside.sort_unstable();
        filled.assert_quarantined(&set_aside).await;
    }
}

/// C1, F9. Nothing depends on the rows of an ended run.
#[tokio::test]
async fn a_read_quarantines_a_damaged_row_of_an_ended_run() {
    let (mut filled, ids) = with_runs().await;
    let state = Box::new(Sampler::new(45).run_state(RunStatus::Failed));
    let changes = vec![Change::Run { id: ids[0], head: None, state }];
    let batch = Batch { now: Sampler::new(45).now(), changes, ..Batch::default() };
    filled.subject.store().commit(&filled.leases, Arc::new(batch)).await.unwrap();
    for sql in [STEP_OF_ANOTHER_STATUS, ELEMENTS_AT_ANOTHER_PLACE] {
        filled.damage(|c| c.execute(sql, [key(ids[0].to_bits())])).await;
    }
    let store = filled.subject.store();
    assert_eq!(store.run_steps(ids[0]).await.unwrap().len(), 1);
    assert_eq!(store.element_batches(ids[0]).await.unwrap(), []);
    assert!(store.run(ids[0]).await.unwrap().is_some());
    filled.assert_quarantined(&["element_batches", "steps"]).await;
}
