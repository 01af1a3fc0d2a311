//! Random schedules, and the records that belong to them.
//!
//! A schedule, its state, ledger entries, backfills, calendars and events are sampled separately; a rule
//! passes the id of the schedule to which a record belongs. Names are unique, because a second schedule with
//! the same name would be refused.
//!
//! Some combinations never occur, because the engine never writes them: an entry with a job has one scheduled
//! time, and an entry that is still being extended belongs to the schedule of its state.

use std::sync::Arc;

use model::calendar::{CalendarRecord, CalendarSpec, CalendarStep, Days};
use model::firing::{
    BackfillHead, BackfillState, BackfillStatus, BufferedFiring, FiringCause, FiringOutcome, Gap,
    LedgerRecord, Origin, Pause, RunStatistics, ScheduleHead, ScheduleState, ScheduleStatus, Work,
};
use model::record::{EventKind, ScheduleEvent};
use model::schedule::{Jitter, OverlapPolicy, Spread};
use model::timing::{Cron, Every, Rule, Timing, Weekday};
use model::{BackfillId, Duration, JobId, RunId, ScheduleId, ScheduleSpec, ShardId};

use super::Sampler;

const CAUSES: &[FiringCause] = &[
    FiringCause::Timer,
    FiringCause::CatchUp,
    FiringCause::Manual,
    FiringCause::Backfill,
    FiringCause::Retry,
];

const STATUSES: &[ScheduleStatus] =
    &[ScheduleStatus::Active, ScheduleStatus::Paused, ScheduleStatus::Completed];

impl Sampler {
    /// Returns an ID newer than all earlier ones.
    pub fn schedule_id(&mut self, shard: ShardId) -> ScheduleId {
        ScheduleId::from_bits(self.bits(shard))
    }

    /// Returns an ID newer than all earlier ones.
    pub fn backfill_id(&mut self, shard: ShardId) -> BackfillId {
        BackfillId::from_bits(self.bits(shard))
    }

    /// Returns the origin of a job: one of a few schedules and backfills.
    pub fn origin(&mut self) -> Origin {
        Origin {
            schedule: ScheduleId::from_bits(u128::from(self.below(3) + 1) << 80),
            name: self.text().into(),
            generation: self.number(),
            scheduled_for: self.any_time(),
            interval_start: self.maybe(Self::any_time),
            interval_end: self.any_time(),
            cause: self.pick(CAUSES),
            backfill: self.maybe(|s| BackfillId::from_bits(u128::from(s.below(3) + 1) << 80)),
            start_by: self.maybe(Self::any_time),
        }
    }

    /// Returns a spec with values in many fields, and a unique name.
    pub fn schedule_spec(&mut self) -> ScheduleSpec {
        let rules = match self.below(3) {
            0 => vec![],
            1 => vec![Rule::Cron(Cron::new("0 2 * * *"))],
            _ => vec![Rule::Every(Every { period: Duration::from_secs(90), phase: Duration::ZERO })],
        };
        let timing = Timing { rules, start: self.maybe(Self::now), ..Timing::default() };
        let kind = self.pick(&["Nightly", "hourly", "report"]);
        let name = format!("{kind}-{}", self.now().as_micros());
        let mut spec = ScheduleSpec::new(name, timing, self.spec());
        spec.namespace = self.pick(&["default", "team-a", "team-b"]).to_owned();
        spec.owner = self.maybe(Self::text);
        spec.description = self.maybe(Self::text);
        spec.max_firings = self.maybe(|s| s.below(1 << 50));
        spec.jitter = self.maybe(|_| Jitter { max: Duration::from_secs(30), spread: Spread::Random });
        for _ in 0..self.below(3) {
            let (key, value) = (self.pick(&["team", "tier", "钟"]), self.text());
            spec.labels.insert(key.to_owned(), value);
        }
        spec
    }

    /// Returns a random status.
    pub fn schedule_status(&mut self) -> ScheduleStatus {
        self.pick(STATUSES)
    }

    /// Returns a state of this schedule.
    pub fn schedule_state(&mut self, id: ScheduleId, status: ScheduleStatus) -> ScheduleState {
        let buffer = (0..self.below(4)).map(|_| BufferedFiring {
            scheduled_for: self.any_time(),
            cause: self.pick(CAUSES),
            generation: self.number(),
            detail: self.maybe(|s| s.text().into()),
            key: self.maybe(|s| (u128::from(s.below(9)), 1)),
        });
        let buffer = buffer.collect();
        let durations = (0..self.below(5)).map(|_| self.pick(&[0, 1_500, u32::MAX])).collect();
        ScheduleState {
            generation: self.below(1 << 60),
            version: self.number(),
            created_at: self.any_time(),
            updated_at: self.any_time(),
            status,
            pause: self.maybe(|s| {
                let (at, by, note) = (s.any_time(), s.text().into(), s.maybe(|s| s.text().into()));
                Box::new(Pause { at, by, note })
            }),
            cursor: self.any_time(),
            previous: self.maybe(Self::any_time),
            delay_from: self.maybe(Self::any_time),
            next_at: self.maybe(Self::now),
            fired: self.number(),
            skipped: self.number(),
            last: self.maybe(|s| {
                (s.any_time(), {
                    let job = s.job_id(id.shard());
                    s.work(job)
                })
            }),
            last_manual: self.maybe(Self::any_time),
            buffer,
            owed: (0..self.below(3))
                .map(|_| Gap { after: self.any_time(), until: self.any_time() })
                .collect(),
            open_record: self.maybe(|s| Box::new(s.line(id, None))),
            statistics: self.maybe(|s| {
                let (succeeded, failed) = (s.number(), s.number());
                Box::new(RunStatistics { succeeded, failed, streak: s.pick(&[i32::MIN, -1, 7]), durations })
            }),
        }
    }

    /// Returns an outcome without a job.
    pub fn skipped(&mut self) -> FiringOutcome {
        self.pick(&[
            FiringOutcome::Coalesced,
            FiringOutcome::SkippedOverlap,
            FiringOutcome::SkippedCalendar,
            FiringOutcome::SkippedWindow,
            FiringOutcome::SkippedPause,
            FiringOutcome::SkippedDeadline,
            FiringOutcome::SkippedPolicy,
            FiringOutcome::SkippedReplaced,
            FiringOutcome::SkippedLimit,
            FiringOutcome::NotStarted,
        ])
    }

    /// Returns a job, or a run with the same bits.
    fn work(&mut self, job: JobId) -> Work {
        if self.coin() { job.into() } else { RunId::from_bits(job.to_bits()).into() }
    }

    /// Returns a ledger entry: one scheduled time with a job, or several without one.
    pub fn line(&mut self, schedule: ScheduleId, job: Option<JobId>) -> LedgerRecord {
        let first = self.now();
        let count = if job.is_some() { 1 } else { 1 + self.below(4) };
        let reach = if count > 1 { Duration::from_secs(60 * count) } else { Duration::ZERO };
        let outcome = match job {
            Some(_) => self.pick(&[FiringOutcome::Fired, FiringOutcome::FiredLate]),
            None => self.skipped(),
        };
        LedgerRecord {
            schedule,
            generation: self.below(1 << 60),
            first,
            last: first + reach,
            count,
            exact: self.coin(),
            outcome,
            cause: self.pick(CAUSES),
            backfill: self.maybe(|s| BackfillId::from_bits(u128::from(s.below(3) + 1) << 80)),
            work: job.map(|job| self.work(job)),
            decided_at: first + reach + Duration::from_millis(self.below(1_000)),
            detail: self.maybe(|s| s.text().into()),
            tzdb: "2026b".into(),
        }
    }

    /// Returns a request for a backfill of this schedule.
    pub fn backfill_head(&mut self, schedule: ScheduleId) -> BackfillHead {
        let instants = (0..self.below(5)).map(|_| (self.any_time(), self.maybe(Self::any_time)));
        let scheduled_times = instants.collect();
        BackfillHead {
            id: self.backfill_id(schedule.shard()),
            schedule,
            scheduled_times,
            from: self.any_time(),
            until: self.any_time(),
            concurrency: self.pick(&[1, u32::MAX]),
            body: self.text().into(),
            generation: self.number(),
            overlap: self.pick(&[OverlapPolicy::BufferAll, OverlapPolicy::AllowAll, OverlapPolicy::Skip]),
            actor: self.text().into(),
            note: self.maybe(|s| s.text().into()),
            created_at: self.any_time(),
        }
    }

    /// Returns the progress of a backfill.
    pub fn backfill_state(&mut self, status: BackfillStatus) -> BackfillState {
        BackfillState {
            status,
            started: self.pick(&[0, 7, u32::MAX]),
            succeeded: self.pick(&[0, 7, u32::MAX]),
            failed: self.pick(&[0, 7, u32::MAX]),
            finished_at: (status != BackfillStatus::Running).then(|| self.now()),
        }
    }

    /// Returns a calendar of this name.
    pub fn calendar(&mut self, namespace: &str, name: &str) -> CalendarRecord {
        let days = match self.below(3) {
            0 => Days::All {},
            1 => Days::Weekdays(vec![Weekday::Friday]),
            _ => Days::Yearly(vec!["02-29".into(), self.text()]),
        };
        let step = if self.coin() { CalendarStep::Include(days) } else { CalendarStep::Exclude(days) };
        let spec = CalendarSpec {
            known_until: None,
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            owner: self.maybe(Self::text),
            labels: std::collections::BTreeMap::from([(self.text(), self.text())]),
            description: self.maybe(Self::text),
            steps: vec![step],
        };
        CalendarRecord { spec, version: self.below(1 << 53), created_at: self.now(), updated_at: self.now() }
    }

    /// Returns a random event of a schedule.
    pub(super) fn schedule_event(&mut self) -> EventKind {
        let schedule = self.schedule_id(ShardId(3));
        match self.below(4) {
            0 => EventKind::Schedule { schedule, name: self.text().into(), what: ScheduleEvent::Paused },
            1 => EventKind::Skipped {
                schedule,
                name: self.text().into(),
                scheduled_for: self.now(),
                outcome: self.skipped(),
            },
            2 => EventKind::Backfill {
                backfill: self.backfill_id(ShardId(3)),
                schedule,
                status: BackfillStatus::Cancelled,
            },
            _ => EventKind::Calendar { calendar: self.text().into() },
        }
    }
}

/// Returns a head with its body.
///
/// # Panics
/// Never: specs are plain data.
pub fn schedule_head_of(spec: ScheduleSpec) -> ScheduleHead {
    let body = serde_json::to_string(&spec).expect("specs are plain data").into();
    ScheduleHead { spec: Arc::new(spec), body }
}
