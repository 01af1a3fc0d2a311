//! Sealed records are opened unchanged, and damage is detected.
//!
//! `blobs` seals one record of each type with random content; the properties open them again, flip bits and
//! cut them off. A new type of record belongs there.
//!
//! The last tests compare fixed records with checksums of their bytes. They hold the format of existing
//! files: if one fails, the change needs a new format, and the old one must stay readable. The number in a
//! checksum is never just updated.

use proptest::prelude::*;

use model::firing::{
    BackfillHead, BackfillState, BackfillStatus, BufferedFiring, FiringOutcome, Gap, LedgerRecord, Origin,
    Pause, RunStatistics, ScheduleHead, ScheduleState, ScheduleStatus,
};
use model::record::{Event, EventKind, ExecutionRecord, HistoryEntry, JobHead, JobState, Usage};
use model::run::BatchKey;
use model::schedule::OverlapPolicy;
use model::service::{
    ReplicaCounts, ReplicaOrigin, Revision, RevisionCause, Rollout, RolloutStatus, ServiceHead, ServiceSpec,
    ServiceState,
};
use model::spec::{ExecutionHealth, HealthStatus};
use model::worker::{Admission, WorkerStatus};
use model::{
    BackfillId, Duration, ExecutionId, ExecutionStatus, Fence, JobId, ScheduleId, ServiceId, WorkerId,
};

use super::job::DecodedHead;
use super::*;
use crate::suite::sample::{Sampler, head_of, schedule_head_of};

/// Opens a blob, and returns whether the result is the original record.
type Opens = Box<dyn Fn(&[u8]) -> bool>;

/// Returns sealed blobs of random records, each with a function that checks the opened record.
fn blobs(seed: u64) -> Vec<(Vec<u8>, Opens)> {
    let mut sampler = Sampler::new(seed);
    let id = sampler.job_id(model::ShardId(3));
    let status = sampler.pick(JobStatus::ALL);
    let (state, head) = (sampler.state(status), sampler.head());
    let record = sampler.execution(id, 7, ExecutionStatus::Lost);
    let events: Vec<_> = (0..sampler.below(9)).map(|_| sampler.event()).collect();
    let columns = StateColumns::of(&state);
    let execution = ExecutionColumns::of(&record);
    let schedule = sampler.schedule_id(model::ShardId(3));
    let status = sampler.schedule_status();
    let schedule_state = sampler.schedule_state(schedule, status);
    let schedule_columns = ScheduleColumns::of(&schedule_state);
    let schedule_head = schedule_head_of(sampler.schedule_spec());
    let line = sampler.line(schedule, None);
    let backfill = sampler.backfill_head(schedule);
    let id_of_backfill = backfill.id;
    let backfill_state = sampler.backfill_state(BackfillStatus::Cancelled);
    let run = sampler.run_id(model::ShardId(3));
    let added = sampler.element_batch(BatchKey { run, step: 7, first: 300 });
    let service = sampler.service_id(model::ShardId(3));
    let (service_head, service_state) = (sampler.service_head(), sampler.service_state());
    let bare = JobState { history: Vec::new(), ..state.clone() };
    vec![
        (
            seal_state(id, &columns, &state),
            Box::new(move |bytes| open_state(id, &columns, bytes).is_ok_and(|found| found == bare)),
        ),
        (
            seal_history(id, &state.history),
            Box::new(move |bytes| open_history(id, bytes).is_ok_and(|found| found == state.history)),
        ),
        (
            seal_head(id, &head),
            Box::new(move |bytes| {
                open_head(id, bytes).is_ok_and(|found| {
                    let DecodedHead { body, retry_of, origin, step, replica } = found;
                    (body, retry_of, &origin, &step, &replica)
                        == (&*head.body, head.retry_of, &head.origin, &head.step, &head.replica)
                })
            }),
        ),
        (
            seal_schedule(schedule, &schedule_columns, &schedule_state),
            Box::new(move |bytes| {
                open_schedule(schedule, &schedule_columns, bytes).is_ok_and(|found| found == schedule_state)
            }),
        ),
        (
            seal_schedule_head(schedule, &schedule_head),
            Box::new(move |bytes| {
                open_schedule_head(schedule, bytes).is_ok_and(|found| *found == *schedule_head.body)
            }),
        ),
        (
            seal_ledger(&line),
            Box::new(move |bytes| {
                open_ledger(&LedgerColumns::of(&line), bytes).is_ok_and(|found| found == line)
            }),
        ),
        (
            seal_backfill_head(&backfill),
            Box::new(move |bytes| {
                open_backfill_head(backfill.id, schedule, bytes).is_ok_and(|found| found == backfill)
            }),
        ),
        (
            seal_backfill(id_of_backfill, &backfill_state),
            Box::new(move |bytes| {
                let columns = BackfillColumns::of(&backfill_state);
                open_backfill(id_of_backfill, &columns, bytes).is_ok_and(|found| found == backfill_state)
            }),
        ),
        (
            seal_execution(&record),
            Box::new(move |bytes| open_execution(&execution, bytes).is_ok_and(|found| found == record)),
        ),
        (
            seal_elements(&added),
            Box::new(move |bytes| open_elements(added.key, bytes).is_ok_and(|found| found == added)),
        ),
        (
            seal_service_head(service, &service_head),
            Box::new(move |bytes| open_service_head(service, bytes).is_ok_and(|found| found == service_head)),
        ),
        (
            seal_service(service, &service_state),
            Box::new(move |bytes| open_service(service, bytes).is_ok_and(|found| found == service_state)),
        ),
        (
            seal_events(seed, &events),
            Box::new(move |bytes| open_events(seed, bytes).is_ok_and(|found| found == events)),
        ),
    ]
}

proptest! {
    /// D5. Every field, with any content.
    #[test]
    fn a_sealed_record_is_opened_unchanged(seed: u64) {
        for (sealed, opens_the_same) in blobs(seed) {
            prop_assert!(opens_the_same(&sealed));
        }
    }

    /// F9. A CRC-32 detects every burst of up to 32 bits.
    #[test]
    fn a_flipped_bit_is_always_detected(seed: u64, place: prop::sample::Index, bit in 0..8u8) {
        for (mut sealed, opens_the_same) in blobs(seed) {
            let index = place.index(sealed.len());
            sealed[index] ^= 1 << bit;
            prop_assert!(!opens_the_same(&sealed));
        }
    }

    /// F9.
    #[test]
    fn a_truncated_blob_is_always_detected(seed: u64, place: prop::sample::Index) {
        for (sealed, opens_the_same) in blobs(seed) {
            prop_assert!(!opens_the_same(&sealed[..place.index(sealed.len())]));
        }
    }
}

/// The format of existing files, by checksums of the bytes (without their own checksum, because a CRC over its own
/// value is constant). If this fails, a new format is needed, and the old one must still be readable.
#[test]
fn the_format_matches_existing_files() {
    let crcs = fixed_blobs().map(|sealed| crc32fast::hash(&sealed[..sealed.len() - CRC_LEN]));
    assert_eq!(crcs, [621_282_144, 2_107_557_382, 1_380_997_516, 552_091_350, 4_199_901_471]);
}

fn fixed_blobs() -> [Vec<u8>; 5] {
    let at = Timestamp::from_millis;
    let (id, execution) = (JobId::from_bits(1 << 100), ExecutionId::from_bits(2 << 100));
    let worker = WorkerId::from_bits(3 << 100);
    let outcome = Outcome {
        exit_code: Some(1),
        signal: Some(9),
        error: Some("timeout".into()),
        message: Some("钟".into()),
        output: Some("{}".into()),
        files: None,
    };
    let entry = |from, to, cause| HistoryEntry {
        at: at(5),
        from,
        to,
        cause,
        execution: Some(1),
        detail: Some("me".into()),
    };
    let state = JobState {
        upstream: Default::default(),
        status: JobStatus::Failed,
        version: 300,
        updated_at: at(1),
        due_at: at(2),
        queued_at: Some(at(3)),
        started_at: Some(at(4)),
        finished_at: None,
        executions: 1,
        run_failures: 2,
        start_failures: 3,
        losses: 0,
        overdue: false,
        fence: Fence(1 << 24),
        execution: Some(execution),
        worker: Some(worker),
        cancel_requested_at: Some(at(6)),
        outcome: Some(Box::new(outcome.clone())),
        history: vec![
            entry(None, JobStatus::Waiting, Cause::Submitted),
            entry(Some(JobStatus::Waiting), JobStatus::Expired, Cause::DeadlinePassed),
        ],
        expires_at: Some(at(7)),
        started: Default::default(),
        checkpoint: None,
    };
    let head = JobHead {
        spec: model::JobSpec::command(["true"]).into(),
        body: "a body".into(),
        retry_of: Some(id),
        origin: None,
        step: None,
        replica: None,
    };
    let record = ExecutionRecord {
        id: execution,
        job: id,
        number: 1,
        fence: Fence(1 << 24),
        worker,
        status: ExecutionStatus::Lost,
        assigned_at: at(1),
        started_at: None,
        finished_at: Some(at(2)),
        outcome: Some(outcome),
        usage: Some(Usage {
            run_time: Duration::from_millis(1),
            cpu_time: Duration::from_millis(2),
            peak_memory_bytes: 3,
            log_bytes: 4,
            measured: None,
        }),
        files: None,
        preempted_by: None,
        health: None,
    };
    let kinds = [
        EventKind::Job {
            job: id,
            from: None,
            to: JobStatus::Waiting,
            cause: Cause::Submitted,
            execution: Some(execution),
            worker: None,
            schedule: None,
        },
        EventKind::Started { job: id, execution, worker },
        EventKind::Worker { worker, status: WorkerStatus::Expected, admission: Admission::Draining },
        EventKind::Queue { queue: "q".into() },
    ];
    let events = kinds.map(|kind| Event { at: at(9), namespace: Some("n".into()), kind });
    [
        seal_state(id, &StateColumns::of(&state), &state),
        seal_history(id, &state.history),
        seal_head(id, &head),
        seal_execution(&record),
        seal_events(1, &events),
    ]
}

/// As above, for the records of version 2.
#[test]
fn the_format_of_schedules_matches_existing_files() {
    let crcs = fixed_schedule_blobs().map(|sealed| crc32fast::hash(&sealed[..sealed.len() - CRC_LEN]));
    assert_eq!(crcs, [3_385_796_499, 105_267_378, 3_281_974_175, 4_144_371_529, 3_212_948_699, 141_491_219]);
}

fn fixed_schedule_blobs() -> [Vec<u8>; 6] {
    let at = Timestamp::from_millis;
    let (job, schedule) = (JobId::from_bits(1 << 100), ScheduleId::from_bits(4 << 100));
    let backfill = BackfillId::from_bits(5 << 100);
    let origin = Origin {
        schedule,
        name: "nightly".into(),
        generation: 300,
        scheduled_for: at(5),
        interval_start: Some(at(4)),
        interval_end: at(5),
        cause: FiringCause::Retry,
        backfill: Some(backfill),
        start_by: Some(at(6)),
    };
    let head = JobHead {
        spec: model::JobSpec::command(["true"]).into(),
        body: "a body".into(),
        retry_of: None,
        origin: Some(origin.into()),
        step: None,
        replica: None,
    };
    let line = LedgerRecord {
        schedule,
        generation: 300,
        first: at(5),
        last: at(7),
        count: 3,
        exact: true,
        outcome: FiringOutcome::SkippedLimit,
        cause: FiringCause::Backfill,
        backfill: Some(backfill),
        work: None,
        decided_at: at(8),
        detail: Some("钟".into()),
        tzdb: "2026b".into(),
    };
    let waits = BufferedFiring {
        scheduled_for: at(9),
        cause: FiringCause::Manual,
        generation: 300,
        detail: Some("me".into()),
        key: Some((7, 8)),
    };
    let state = ScheduleState {
        generation: 300,
        version: 301,
        created_at: at(1),
        updated_at: at(2),
        status: ScheduleStatus::Completed,
        pause: Some(Box::new(Pause { at: at(3), by: "me".into(), note: Some("so".into()) })),
        cursor: at(7),
        previous: Some(at(4)),
        delay_from: Some(at(6)),
        next_at: Some(at(9)),
        fired: 302,
        skipped: 303,
        last: Some((at(5), job.into())),
        last_manual: Some(at(8)),
        buffer: [waits].into(),
        owed: [Gap { after: at(1), until: at(9) }].into(),
        open_record: Some(Box::new(line.clone())),
        statistics: Some(Box::new(RunStatistics {
            succeeded: 1,
            failed: 2,
            streak: -2,
            durations: vec![1_500, 7],
        })),
    };
    let asked = BackfillHead {
        id: backfill,
        schedule,
        scheduled_times: [(at(5), Some(at(4))), (at(3), None)].into(),
        from: at(1),
        until: at(5),
        concurrency: 2,
        body: "a body".into(),
        generation: 300,
        overlap: OverlapPolicy::AllowAll,
        actor: "me".into(),
        note: None,
        created_at: at(9),
    };
    let progress = BackfillState {
        status: BackfillStatus::Cancelled,
        started: 300,
        succeeded: 1,
        failed: 2,
        finished_at: Some(at(9)),
    };
    let schedule_head = ScheduleHead {
        spec: model::ScheduleSpec::new("x", Default::default(), model::JobSpec::command(["true"])).into(),
        body: "a body".into(),
    };
    [
        seal_head(job, &head),
        seal_schedule(schedule, &ScheduleColumns::of(&state), &state),
        seal_schedule_head(schedule, &schedule_head),
        seal_ledger(&line),
        seal_backfill_head(&asked),
        seal_backfill(backfill, &progress),
    ]
}

/// As above, for the records of version 15.
#[test]
fn the_format_of_services_matches_existing_files() {
    let crcs = fixed_service_blobs().map(|sealed| crc32fast::hash(&sealed[..sealed.len() - CRC_LEN]));
    assert_eq!(crcs, [2_909_050_680, 1_132_285_302, 2_380_605_484, 2_597_940_713]);
}

fn fixed_service_blobs() -> [Vec<u8>; 4] {
    let at = Timestamp::from_millis;
    let (job, service) = (JobId::from_bits(1 << 100), ServiceId::from_bits(4 << 100));
    let replica = ReplicaOrigin { service, name: "web".into(), revision: 300, replica: 2 };
    let head = JobHead {
        body: "a body".into(),
        replica: Some(replica.into()),
        ..head_of(model::JobSpec::command(["true"]))
    };
    let record = ExecutionRecord {
        outcome: None,
        usage: None,
        files: None,
        preempted_by: None,
        started_at: Some(at(2)),
        finished_at: None,
        assigned_at: at(1),
        id: ExecutionId::from_bits(2 << 100),
        worker: WorkerId::from_bits(3 << 100),
        health: Some(Box::new(ExecutionHealth {
            status: HealthStatus::Unhealthy,
            since: at(5),
            detail: Some("钟".into()),
            ports: [("http".to_owned(), 8_080)].into(),
        })),
        ..Sampler::new(1).execution(job, 1, ExecutionStatus::Running)
    };
    let revision = Revision {
        number: 300,
        body: "a body".into(),
        created_at: at(1),
        cause: RevisionCause::RolledBack,
        rollback_to: Some(298),
        actor: "me".into(),
        completed: true,
    };
    let spec: ServiceSpec =
        serde_json::from_str(r#"{"name":"web","job":{"run":{"process":{"command":["true"]}}}}"#).unwrap();
    let service_head =
        ServiceHead { spec: spec.into(), body: "a body".into(), revisions: vec![revision.into()] };
    let state = ServiceState {
        deleting: false,
        version: 300,
        created_at: at(1),
        updated_at: at(2),
        replicas: 3,
        rollout: Rollout {
            revision: 300,
            status: RolloutStatus::Failed,
            paused: true,
            promoted: false,
            started_at: at(3),
            progressed_at: at(4),
            reached: 1,
            ended_at: Some(at(5)),
            reason: Some("so".into()),
        },
        stable_revision: Some(299),
        counts: ReplicaCounts {
            live: 1,
            running: 2,
            available: 3,
            updated: 4,
            updated_available: 5,
            stopping: 6,
        },
        scaled: None,
        scaling_problem: None,
    };
    [
        seal_head(job, &head),
        seal_execution(&record),
        seal_service_head(service, &service_head),
        seal_service(service, &state),
    ]
}

/// Files, the preempting job, the health and the measurements of an execution are stored one after the other.
#[test]
fn each_optional_part_of_an_execution_may_be_absent() {
    let mut sampler = Sampler::new(1);
    let job = sampler.job_id(model::ShardId(3));
    for parts in 0..16 {
        let mut record = sampler.execution(job, 1, ExecutionStatus::Running);
        record.files = (parts & 1 != 0).then(Default::default);
        record.preempted_by = (parts & 2 != 0).then(|| sampler.job_id(model::ShardId(3)));
        record.health = (parts & 4 != 0).then(|| Box::new(sampler.health()));
        let measured = (parts & 8 != 0).then(|| Box::new(sampler.measured_usage()));
        record.usage = Some(Usage { measured, ..Usage::default() });
        let found = open_execution(&ExecutionColumns::of(&record), &seal_execution(&record));
        assert_eq!(found, Ok(record));
    }
}

/// The codes in columns that queries compare with, as in existing files.
#[test]
fn codes_of_firings_never_change() {
    let codes = FiringOutcome::ALL.map(firing_outcome_code);
    assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert!(FiringOutcome::ALL.iter().all(|o| firing_outcome_from(firing_outcome_code(*o)) == Some(*o)));
    assert_eq!(schedule_status_code(ScheduleStatus::Active), 0);
}
