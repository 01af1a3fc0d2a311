//! What is sealed is opened the same, and damage is noticed.

use proptest::prelude::*;

use model::record::{Event, EventKind, ExecutionRecord, HistoryEntry, JobHead, JobState, Usage};
use model::worker::{Admission, WorkerStatus};
use model::{Duration, ExecutionId, ExecutionStatus, Fence, JobId, WorkerId};

use super::*;
use crate::suite::sample::Sampler;

/// Opens a blob, and says whether it is what was sealed.
type Opens = Box<dyn Fn(&[u8]) -> bool>;

/// Every sealed blob of some random records, and what opening it says.
fn blobs(seed: u64) -> Vec<(Vec<u8>, Opens)> {
    let mut sampler = Sampler::new(seed);
    let id = sampler.job_id(model::ShardId(3));
    let status = sampler.pick(JobStatus::ALL);
    let (state, head) = (sampler.state(status), sampler.head());
    let record = sampler.execution(id, 7, ExecutionStatus::Lost);
    let events: Vec<_> = (0..sampler.below(9)).map(|_| sampler.event()).collect();
    let columns = StateColumns::of(&state);
    let execution = ExecutionColumns::of(&record);
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
                open_head(id, bytes).is_ok_and(|found| found == (&*head.body, head.retry_of))
            }),
        ),
        (
            seal_execution(&record),
            Box::new(move |bytes| open_execution(&execution, bytes).is_ok_and(|found| found == record)),
        ),
        (
            seal_events(seed, &events),
            Box::new(move |bytes| open_events(seed, bytes).is_ok_and(|found| found == events)),
        ),
    ]
}

proptest! {
    /// D5. Every field, whatever is in it.
    #[test]
    fn what_is_sealed_is_opened_the_same(seed: u64) {
        for (sealed, opens_the_same) in blobs(seed) {
            prop_assert!(opens_the_same(&sealed));
        }
    }

    /// F9. A checksum of 32 bits finds every burst of up to 32.
    #[test]
    fn a_flipped_bit_is_always_noticed(seed: u64, place: prop::sample::Index, bit in 0..8u8) {
        for (mut sealed, opens_the_same) in blobs(seed) {
            let index = place.index(sealed.len());
            sealed[index] ^= 1 << bit;
            prop_assert!(!opens_the_same(&sealed));
        }
    }

    /// F9.
    #[test]
    fn a_blob_that_was_cut_short_is_always_noticed(seed: u64, place: prop::sample::Index) {
        for (sealed, opens_the_same) in blobs(seed) {
            prop_assert!(!opens_the_same(&sealed[..place.index(sealed.len())]));
        }
    }
}

/// The bytes on the disks of users, by their checksums (without their own: a checksum over its own
/// text is the same for every text). If this fails, a new format is needed, and
/// the old one must still be read.
#[test]
fn the_format_is_that_of_the_files_that_exist() {
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
        fence: Fence(1 << 24),
        execution: Some(execution),
        worker: Some(worker),
        cancel_requested_at: Some(at(6)),
        outcome: Some(outcome.clone()),
        history: vec![
            entry(None, JobStatus::Waiting, Cause::Submitted),
            entry(Some(JobStatus::Waiting), JobStatus::Expired, Cause::DeadlinePassed),
        ],
        expires_at: Some(at(7)),
    };
    let head =
        JobHead { spec: model::JobSpec::command(["true"]).into(), body: "a body".into(), retry_of: Some(id) };
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
        }),
    };
    let kinds = [
        EventKind::Job {
            job: id,
            from: None,
            to: JobStatus::Waiting,
            cause: Cause::Submitted,
            execution: Some(execution),
            worker: None,
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
