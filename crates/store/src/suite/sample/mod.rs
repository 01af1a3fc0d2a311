//! Random records; the same seed produces the same records.
//!
//! Every optional field is present in some records and missing in others, and texts contain characters that
//! are difficult for encodings.
//!
//! [`Sampler`] has one function for each type of record; `schedules`, `services` and `workflows` add those of
//! their objects. IDs increase, as the engine's do. A new field of the model must be set here, or the rules cannot
//! notice that a store forgets it.
//!
//! Used by the rules of the suite, and by tests of the encoding, of migrations and of copies.

mod schedules;
mod services;
mod workflows;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::checkpoint::{Checkpoint, CheckpointRecord};
use model::failures::{FailureCount, Signature};
use model::id::IdSource;
use model::namespace::{NamespaceSettings, Quota};
use model::queue::QueueSettings;
use model::record::{
    Event, EventKind, ExecutionRecord, FileVersion, Files, HistoryEntry, JobHead, JobState, KeyRecord,
    MeasuredUsage, NamespaceRecord, Outcome, QueueRecord, Usage, WorkerRecord,
};
use model::spec::{
    Concurrency, Constraint, Delivery, Operator, PriorityClass, Sandbox, SandboxLevel, SandboxNetwork,
    UpstreamCondition, UpstreamJob,
};
use model::statistics::{CommitStatistics, JobSource, Level, SourceTally, Subject, Tally};
use model::worker::{Admission, Capabilities, Capacity, WorkerStatus};
use model::{
    Bytes, Cause, Duration, ExecutionId, ExecutionStatus, Fence, JobId, JobSpec, JobStatus, Millicores,
    ScheduleId, ShardId, Timestamp, WorkerId,
};

pub use schedules::schedule_head_of;
pub use services::service_head_of;
pub use workflows::workflow_head_of;

const TEXTS: &[&str] = &["a", "nightly-report", "钟楼", "line\nbreak", "quote\"'\\", "\u{0}zero", "🔔", ""];

/// Generator of random records.
#[derive(Debug)]
pub struct Sampler {
    state: u64,
    ids: IdSource,
    now: Timestamp,
}

impl Sampler {
    /// Creates a generator; the same seed produces the same records.
    pub fn new(seed: u64) -> Self {
        let now = Timestamp::from_micros(1_795_000_000_000_000);
        Self { state: seed, ids: IdSource::default(), now }
    }

    /// Returns a random number (SplitMix64: S. Vigna, public domain, 2015).
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number less than `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// Returns `true` half of the time.
    pub fn coin(&mut self) -> bool {
        self.number() & 1 == 1
    }

    /// Returns one of the items.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        let index = self.below(items.len() as u64);
        items[usize::try_from(index).unwrap_or(0)]
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.coin() { Some(make(self)) } else { None }
    }

    fn text(&mut self) -> String {
        self.pick(TEXTS).to_owned()
    }

    /// Returns the current time, which advances a little with every call.
    pub fn now(&mut self) -> Timestamp {
        self.now = Timestamp::from_micros(self.now.as_micros() + 1 + (self.below(2_000)).cast_signed());
        self.now
    }

    /// Returns an arbitrary time, including times that no user should pass.
    fn any_time(&mut self) -> Timestamp {
        match self.below(8) {
            0 => Timestamp::from_micros(0),
            1 => Timestamp::MAX,
            2 => Timestamp::from_micros(-1),
            _ => self.now(),
        }
    }

    fn bits(&mut self, shard: ShardId) -> u128 {
        let (now, entropy) = (self.now(), self.number());
        self.ids.next(now, shard, entropy)
    }

    /// Returns an ID newer than all earlier ones.
    pub fn job_id(&mut self, shard: ShardId) -> JobId {
        JobId::from_bits(self.bits(shard))
    }

    /// Returns an ID newer than all earlier ones.
    pub fn execution_id(&mut self, shard: ShardId) -> ExecutionId {
        ExecutionId::from_bits(self.bits(shard))
    }

    /// Returns an ID newer than all earlier ones.
    pub fn worker_id(&mut self) -> WorkerId {
        WorkerId::from_bits(self.bits(ShardId(0)))
    }

    /// Returns a spec with values in many fields.
    pub fn spec(&mut self) -> JobSpec {
        let mut spec = JobSpec::command([self.text(), self.text()]);
        spec.name = self.pick(&["job", "report", "backup"]).to_owned();
        spec.namespace = self.pick(&["default", "team-a", "team-b"]).to_owned();
        spec.queue = self.pick(&["default", "slow"]).to_owned();
        spec.owner = self.maybe(Self::text);
        spec.priority = self.pick(&[0, 50, 100]);
        spec.run_at = self.maybe(Self::now);
        spec.timeout = self.maybe(|s| Duration::from_millis(s.below(1 << 40)));
        spec.retention = self.maybe(|s| Duration::from_millis(s.below(1 << 30)));
        spec.delivery = self.pick(&[Delivery::AtLeastOnce, Delivery::AtMostOnce, Delivery::ExactlyOnce]);
        spec.idempotency_key = self.maybe(Self::text);
        spec.resources.cpu = self.maybe(|s| Millicores(s.pick(&[1, 64_000])));
        spec.resources.memory = self.maybe(|s| Bytes(s.below(1 << 40)));
        spec.concurrency = self.maybe(|s| Concurrency { key: s.text(), limit: 3 });
        spec.retry.backoff.jitter = self.pick(&[0.0, 0.1, 0.25]);
        for _ in 0..self.below(3) {
            let (key, value) = (self.pick(&["team", "tier", "钟"]), self.text());
            spec.labels.insert(key.to_owned(), value);
        }
        if self.coin() {
            let values = vec![self.text()];
            spec.constraints.push(Constraint { label: "zone".into(), operator: Operator::NotIn, values });
        }
        spec
    }

    /// Returns a random spec as a head.
    pub fn head(&mut self) -> Arc<JobHead> {
        let spec = self.spec();
        let retry_of = self.maybe(|s| s.job_id(ShardId(1)));
        let origin = self.maybe(|s| Arc::new(s.origin()));
        let step = self.maybe(|s| Arc::new(s.step_origin()));
        let replica = self.maybe(|s| Arc::new(s.replica_origin()));
        Arc::new(JobHead { retry_of, origin, step, replica, ..head_of(spec) })
    }

    /// Returns a random result of an execution.
    pub fn outcome(&mut self) -> Outcome {
        Outcome {
            exit_code: self.maybe(|s| s.pick(&[0, 1, -1, i32::MIN, i32::MAX])),
            signal: self.maybe(|s| s.pick(&[9, 15])),
            error: self.maybe(|s| s.text().into()),
            message: self.maybe(|s| s.text().into()),
            output: self.maybe(|s| if s.coin() { "x".repeat(70_000).into() } else { s.text().into() }),
            files: None,
        }
    }

    fn history(&mut self) -> Vec<HistoryEntry> {
        (0..self.below(6))
            .map(|_| HistoryEntry {
                at: self.any_time(),
                from: self.maybe(|s| s.pick(JobStatus::ALL)),
                to: self.pick(JobStatus::ALL),
                cause: self.pick(Cause::ALL),
                execution: self.maybe(|s| s.pick(&[1, 2, u32::MAX])),
                detail: self.maybe(|s| s.text().into()),
            })
            .collect()
    }

    /// Returns a state with this status; a final state has an end of retention.
    pub fn state(&mut self, status: JobStatus) -> JobState {
        // Drawn aside, so that the other records of a seed stay the same: tests of damaged files depend on them.
        let (losses, overdue) = (self.pick(&[0, 0, 1, u32::MAX]), self.coin());
        JobState {
            status,
            version: self.number(),
            updated_at: self.any_time(),
            due_at: self.any_time(),
            queued_at: self.maybe(Self::any_time),
            started_at: self.maybe(Self::any_time),
            finished_at: self.maybe(Self::any_time),
            executions: self.pick(&[0, 1, u32::MAX]),
            run_failures: self.pick(&[0, 1, u32::MAX]),
            start_failures: self.pick(&[0, 1, u32::MAX]),
            losses,
            overdue,
            fence: Fence(self.number()),
            execution: self.maybe(|s| s.execution_id(ShardId(0))),
            worker: self.maybe(Self::worker_id),
            cancel_requested_at: self.maybe(Self::any_time),
            outcome: self.maybe(Self::outcome).map(Box::new),
            history: self.history(),
            expires_at: status.is_final().then(|| self.any_time()),
            started: (0..self.pick(&[0, 0, 2])).map(|_| self.run_id(ShardId(1))).collect(),
            checkpoint: self.maybe(Self::checkpoint).map(Box::new),
            upstream: (0..self.pick(&[0, 0, 2])).map(|_| self.upstream_job()).collect(),
        }
    }

    fn upstream_job(&mut self) -> UpstreamJob {
        UpstreamJob { job: self.job_id(ShardId(1)), condition: self.pick(UpstreamCondition::ALL) }
    }

    /// Returns the metadata of a checkpoint.
    pub fn checkpoint(&mut self) -> Checkpoint {
        Checkpoint {
            version: self.number(),
            size_bytes: self.number(),
            content_type: self.text().into(),
            saved_at: self.any_time(),
            execution: self.pick(&[1, 2, u32::MAX]),
            hash: self.pick(&[0, 1, u128::MAX]),
        }
    }

    /// Returns the last checkpoint of a job, as part of its state and as its row.
    pub fn checkpoint_of(&mut self, job: JobId) -> (Checkpoint, CheckpointRecord) {
        let data: Arc<[u8]> =
            if self.coin() { vec![0xff; 65_536].into() } else { self.text().into_bytes().into() };
        let known =
            Checkpoint { version: self.number() >> 1, size_bytes: data.len() as u64, ..self.checkpoint() };
        let Checkpoint { version, content_type, saved_at, .. } = known.clone();
        (known, CheckpointRecord { job, version, content_type, saved_at, data })
    }

    /// Returns a status that is not final.
    pub fn live_status(&mut self) -> JobStatus {
        self.pick(&[JobStatus::Ready, JobStatus::Waiting, JobStatus::Running, JobStatus::Retrying])
    }

    /// Returns a final status.
    pub fn final_status(&mut self) -> JobStatus {
        self.pick(&[JobStatus::Succeeded, JobStatus::Failed, JobStatus::Cancelled, JobStatus::Expired])
    }

    /// Returns an execution of a job, with this status.
    pub fn execution(&mut self, job: JobId, number: u32, status: ExecutionStatus) -> ExecutionRecord {
        ExecutionRecord {
            id: self.execution_id(job.shard()),
            job,
            number,
            fence: Fence((1 << 24) + u64::from(number)),
            worker: self.worker_id(),
            status,
            assigned_at: self.any_time(),
            started_at: self.maybe(Self::any_time),
            finished_at: self.maybe(Self::any_time),
            outcome: self.maybe(Self::outcome),
            usage: self.maybe(|s| Usage {
                run_time: Duration::from_millis(s.number()),
                cpu_time: Duration::from_millis(s.below(100)),
                peak_memory_bytes: s.number(),
                log_bytes: s.below(1 << 20),
                measured: s.maybe(|s| Box::new(s.measured_usage())),
            }),
            files: self.maybe(|s| Box::new(Files { inputs: s.versions(), outputs: s.versions() })),
            preempted_by: self.maybe(|s| s.job_id(job.shard())),
            health: self.maybe(|s| Box::new(s.health())),
        }
    }

    /// Returns random statistics of measurements.
    pub fn measured_usage(&mut self) -> MeasuredUsage {
        MeasuredUsage {
            measurements: 1 + u32::try_from(self.below(1_000)).unwrap_or(0),
            cpu_p95: Millicores(u32::try_from(self.below(64_000)).unwrap_or(0)),
            cpu_max: Millicores(u32::try_from(self.below(64_000)).unwrap_or(0)),
            memory_mean: Bytes(self.number()),
            memory_p95: Bytes(self.number()),
            read_bytes: self.number(),
            written_bytes: self.number(),
        }
    }

    fn versions(&mut self) -> Vec<FileVersion> {
        let version =
            |s: &mut Self| FileVersion { artifact: s.text(), sha256: "0f".repeat(32), path: s.text() };
        (0..self.below(3)).map(|_| version(self)).collect()
    }

    /// Returns a used idempotency key of a job.
    pub fn key(&mut self, job: JobId) -> KeyRecord {
        let mut bits = || (u128::from(self.number()) << 64) | u128::from(self.number());
        KeyRecord { key: bits(), body: bits(), job, expires_at: self.now() + Duration::from_hours(1) }
    }

    /// Returns a random worker.
    pub fn worker(&mut self) -> WorkerRecord {
        WorkerRecord {
            id: self.worker_id(),
            name: self.text(),
            version: self.text(),
            address: self.maybe(Self::text),
            labels: BTreeMap::from([(self.text(), self.text())]),
            capacity: Capacity {
                cpu: Millicores(self.pick(&[1_500, 128_000])),
                memory: Bytes(self.below(1 << 40)),
                custom: BTreeMap::from([(self.text(), self.below(9))]),
                slots: 7,
            },
            capabilities: Capabilities {
                runtimes: vec![self.text()],
                memory_limit: true,
                ..Default::default()
            },
            status: self.pick(&[WorkerStatus::Ready, WorkerStatus::Lost, WorkerStatus::Expected]),
            admission: self.pick(&[Admission::Open, Admission::Cordoned, Admission::Draining]),
            created_at: self.now(),
            updated_at: self.now(),
            last_heartbeat_at: self.maybe(Self::any_time),
        }
    }

    /// Returns a random queue of this name.
    pub fn queue(&mut self, name: &str) -> QueueRecord {
        let settings = QueueSettings {
            concurrency: self.maybe(|s| s.pick(&[1, 1_000_000])),
            rate_per_second: self.maybe(|s| s.pick(&[0.1, 1e9])),
            paused: self.coin(),
            note: self.maybe(Self::text),
            ..QueueSettings::default()
        };
        QueueRecord { name: name.to_owned(), settings, version: self.below(1 << 53), updated_at: self.now() }
    }

    /// Returns a random namespace of this name.
    pub fn namespace_record(&mut self, name: &str) -> NamespaceRecord {
        let quota = Quota {
            cpu: self.maybe(|s| Millicores(s.pick(&[1, 8_000]))),
            running: self.maybe(|s| s.pick(&[1, 1_000_000])),
            custom: [(self.text(), self.below(100))].into(),
            ..Quota::default()
        };
        let settings = NamespaceSettings {
            quota,
            max_priority_class: self.maybe(|s| s.pick(PriorityClass::ALL)),
            sandbox: Sandbox {
                level: self.pick(SandboxLevel::ALL),
                network: self.maybe(|s| s.pick(SandboxNetwork::ALL)),
            },
            note: self.maybe(Self::text),
        };
        NamespaceRecord {
            name: name.to_owned(),
            settings,
            version: self.below(1 << 53),
            updated_at: self.now(),
        }
    }

    /// Returns statistics of a commit, with all fields that the stores keep.
    pub fn statistics(&mut self, worker: WorkerId) -> CommitStatistics {
        let tallies = (0..3).map(|number| {
            let source = JobSource {
                namespace: self.pick(&["a", "b"]).into(),
                queue: self.text().into(),
                name: self.text().into(),
                schedule: self.maybe(|s| ScheduleId::from_bits(s.number().into())),
            };
            let worker = (number > 0).then_some(worker);
            SourceTally { source: Arc::new(source), worker, tally: self.tally() }
        });
        let tallies = tallies.collect();
        let subjects = [Subject::All, Subject::Queue(self.text().into()), Subject::Worker(worker)];
        let levels = subjects.into_iter().map(|of| (of, self.level())).collect();
        let failures = (0..3).map(|_| self.failures()).collect();
        CommitStatistics { tallies, levels, failures }
    }

    /// Returns random failures of one name and signature.
    pub fn failures(&mut self) -> FailureCount {
        let message = self.text();
        FailureCount {
            namespace: self.pick(&["a", "b"]).into(),
            name: self.text().into(),
            signature: Signature {
                error: self.text().into(),
                exit_code: self.maybe(|s| s.pick(&[i32::MIN, 1, 255])),
                message: message.clone().into(),
            },
            count: 1 + self.below(1 << 40),
            jobs: vec![JobId::from_bits(self.number().into()), JobId::from_bits(self.number().into())],
            message: message.into(),
        }
    }

    fn tally(&mut self) -> Tally {
        let small = |s: &mut Self| s.number() % 1_000;
        let mut tally = Tally {
            submitted: small(self),
            started: small(self),
            succeeded: small(self),
            cancelled: small(self),
            expired: small(self),
            ..Tally::default()
        };
        for counts in [&mut tally.failed, &mut tally.retried] {
            let cause = self.pick(Cause::ALL);
            *counts.entry(cause).or_default() += small(self);
        }
        for histogram in [&mut tally.start_delay, &mut tally.run_time] {
            let ms = self.number() % 1_000_000_000;
            histogram.observe(Duration::from_millis(ms));
        }
        tally
    }

    fn level(&mut self) -> Level {
        Level {
            waiting: self.number() % 1_000,
            running: self.number() % 1_000,
            oldest_waiting: Duration::from_millis(self.number() % 1_000_000),
            slots: self.number() % 1_000,
            allocated_cpu: Millicores(self.pick(&[0, 500, 64_000])),
            cpu: Millicores(self.pick(&[0, 64_000])),
            allocated_memory: Bytes(self.number() >> 20),
            memory: Bytes(self.number() >> 20),
        }
    }

    /// Returns a random event.
    pub fn event(&mut self) -> Event {
        let job = self.job_id(ShardId(3));
        let (execution, worker) = (self.execution_id(ShardId(3)), self.worker_id());
        let kind = match self.below(7) {
            4 | 5 => self.schedule_event(),
            6 => self.service_event(),
            0 => EventKind::Started { job, execution, worker },
            1 => EventKind::Queue { queue: self.text().into() },
            2 => EventKind::Worker {
                worker,
                status: self.pick(&[WorkerStatus::Ready, WorkerStatus::Lost, WorkerStatus::Expected]),
                admission: self.pick(&[Admission::Open, Admission::Cordoned, Admission::Draining]),
            },
            _ => EventKind::Job {
                job,
                from: self.maybe(|s| s.pick(JobStatus::ALL)),
                to: self.pick(JobStatus::ALL),
                cause: self.pick(Cause::ALL),
                execution: self.maybe(|_| execution),
                worker: self.maybe(|_| worker),
                schedule: self.maybe(|s| s.schedule_id(ShardId(3))),
            },
        };
        Event { at: self.now(), namespace: self.maybe(|s| s.text().into()), kind }
    }
}

/// Returns a head with its body.
///
/// # Panics
/// Never: specs are plain data.
pub fn head_of(spec: JobSpec) -> JobHead {
    let body = serde_json::to_string(&spec).expect("specs are plain data").into();
    JobHead { spec: Arc::new(spec), body, retry_of: None, origin: None, step: None, replica: None }
}
