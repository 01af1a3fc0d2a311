//! Benchmark of a million schedules. To run it:
//! `cargo test --release -p belfry-store -- --ignored --nocapture a_million`.

use std::fs;
use std::time::Instant;

use model::firing::{FiringCause, FiringOutcome, LedgerRecord, Origin, ScheduleState, ScheduleStatus};
use model::record::{Batch, Change, JobHead, JobState, Lease, LiveRow};
use model::timing::{Cron, Rule, Timing};
use model::{JobSpec, JobStatus, ScheduleId, ScheduleSpec, ShardId};

use super::*;
use crate::query::{Page, ScheduleFilter};
use crate::suite::sample::{Sampler, head_of, schedule_head_of};

const COUNT: usize = 1_000_000;
const BATCH: usize = 5_000;

fn spec(n: usize) -> ScheduleSpec {
    let timing =
        Timing { rules: vec![Rule::Cron(Cron::new(format!("{} 2 * * *", n % 60)))], ..Timing::default() };
    let mut spec = ScheduleSpec::new(format!("report-{n}"), timing, JobSpec::command(["/usr/bin/report"]));
    spec.namespace = format!("team-{}", n % 10);
    spec
}

fn state(n: usize, at: Timestamp) -> ScheduleState {
    ScheduleState {
        generation: 1,
        version: 1,
        created_at: at,
        updated_at: at,
        status: ScheduleStatus::Active,
        pause: None,
        cursor: at,
        previous: None,
        delay_from: None,
        next_at: Some(at + Duration::from_secs(n as u64 * 7_919 % 86_400)),
        fired: 0,
        skipped: 0,
        last: None,
        last_manual: None,
        buffer: Default::default(),
        owed: Default::default(),
        open_record: None,
        statistics: None,
    }
}

/// A million schedules, some of which have fired.
struct Million {
    subject: OnDisk,
    leases: Vec<Lease>,
    sampler: Sampler,
    ids: Vec<ScheduleId>,
}

impl Million {
    async fn new() -> Self {
        let subject = OnDisk::new();
        let shards: Vec<_> = (0..16).map(ShardId).collect();
        let leases = subject.store().acquire(&shards, "a", Duration::from_hours(1)).await.unwrap();
        let mut million = Self { subject, leases, sampler: Sampler::new(1), ids: Vec::new() };
        let at = million.sampler.now();
        for first in (0..COUNT).step_by(BATCH) {
            let changes = (first..first + BATCH).map(|n| million.schedule(n, at)).collect();
            million.commit(changes).await;
        }
        million
    }

    fn schedule(&mut self, n: usize, at: Timestamp) -> Change {
        let id = self.sampler.schedule_id(ShardId(u16::try_from(n % 16).unwrap()));
        self.ids.push(id);
        let head = Some(Arc::new(schedule_head_of(spec(n))));
        Change::Schedule { id, new: true, head, state: Box::new(state(n, at)) }
    }

    async fn commit(&mut self, changes: Vec<Change>) {
        let batch = Batch { now: self.sampler.now(), changes, ..Batch::default() };
        self.subject.store().commit(&self.leases, Arc::new(batch)).await.unwrap();
    }

    /// Returns the three changes of a firing.
    fn firing(&mut self, n: usize, at: Timestamp, head: &JobHead) -> [Change; 3] {
        let schedule = self.ids[n];
        let job = self.sampler.job_id(schedule.shard());
        let origin = Origin {
            schedule,
            name: format!("report-{n}").into(),
            generation: 1,
            scheduled_for: at,
            interval_start: None,
            interval_end: at,
            cause: FiringCause::Timer,
            backfill: None,
            start_by: None,
        };
        let line = LedgerRecord {
            schedule,
            generation: 1,
            first: at,
            last: at,
            count: 1,
            exact: true,
            outcome: FiringOutcome::Fired,
            cause: FiringCause::Timer,
            backfill: None,
            work: Some(job.into()),
            decided_at: at,
            detail: None,
            tzdb: "2026b".into(),
        };
        let fired = ScheduleState {
            next_at: Some(at + Duration::from_hours(24)),
            last: Some((at, job.into())),
            fired: 1,
            ..state(n, at)
        };
        let head = Arc::new(JobHead { origin: Some(origin.into()), ..head.clone() });
        let waiting = Box::new(JobState { outcome: None, ..self.sampler.state(JobStatus::Waiting) });
        [
            Change::Job { id: job, new: true, head: Some(head), state: waiting },
            Change::Ledger(Box::new(line)),
            Change::Schedule { id: schedule, new: false, head: None, state: Box::new(fired) },
        ]
    }

    fn bytes(&self) -> u64 {
        fs::metadata(self.subject.path()).unwrap().len()
    }

    async fn timed<T>(what: &str, work: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let answer = work.await;
        println!("{what}: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
        answer
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; for measuring"]
async fn a_million_schedules_load_fire_and_are_listed() {
    let start = Instant::now();
    let mut million = Million::new().await;
    println!("written: {:.0} schedules/s", COUNT as f64 / start.elapsed().as_secs_f64());
    million.subject.close();
    println!("file: {} bytes a schedule", million.bytes() / COUNT as u64);
    million.subject.open();
    let shards: Vec<_> = (0..16).map(ShardId).collect();
    million.leases = million.subject.store().acquire(&shards, "a", Duration::from_hours(1)).await.unwrap();

    let (sender, mut receiver) = tokio::sync::mpsc::channel::<Vec<LiveRow>>(4);
    let start = Instant::now();
    let taken = tokio::spawn(async move {
        let mut rows = 0;
        while let Some(chunk) = receiver.recv().await {
            rows += chunk.len();
        }
        rows
    });
    let loaded = million.subject.store().load(&million.leases, sender).await.unwrap();
    assert_eq!((loaded.rows, loaded.quarantined), (COUNT as u64, 0));
    assert_eq!(taken.await.unwrap(), COUNT);
    let seconds = start.elapsed().as_secs_f64();
    println!("loaded: {seconds:.2} s, {:.0} rows/s", COUNT as f64 / seconds);

    let head = head_of(JobSpec::command(["/usr/bin/report"]));
    // Adjacent schedules share pages; distant ones are the worst case.
    for (batch, stride) in [(100usize, 1), (1_000, 1), (100, 7_919), (1_000, 7_919), (5_000, 7_919)] {
        let at = million.sampler.now();
        let batches: Vec<Vec<Change>> = (0..40_000 / batch)
            .map(|first| {
                let firing = |n| million.firing((first * batch + n) * stride % COUNT, at, &head);
                (0..batch).flat_map(firing).collect()
            })
            .collect();
        let start = Instant::now();
        for changes in batches {
            million.commit(changes).await;
        }
        let micros = start.elapsed().as_secs_f64() * 1e6 / 40_000.0;
        println!("fired, {batch} a batch, every {stride}th: {micros:.1} µs, {:.0}/s", 1e6 / micros);
    }

    let (store, page) = (million.subject.store(), Page { after: None, limit: 100 });
    let text = ScheduleFilter { text: Some("no such name".into()), ..ScheduleFilter::default() };
    let counts = Million::timed("counts", store.schedule_counts(None)).await.unwrap();
    assert_eq!(counts[&ScheduleStatus::Active], COUNT as u64);
    let all = ScheduleFilter::default();
    let upcoming = store.upcoming(&all, None, 100);
    assert_eq!(Million::timed("100 upcoming", upcoming).await.unwrap().len(), 100);
    let found = Million::timed("a name that is nowhere", store.schedules(&text, page)).await.unwrap();
    assert_eq!(found.items, []);
}
