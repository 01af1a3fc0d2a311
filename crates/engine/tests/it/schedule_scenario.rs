//! Helpers for schedules: requests of users, and the ledger as text.

use std::sync::Arc;

use engine::output::Applied;
use engine::{Expected, Input, NewBackfill, NewSchedule, Reply, ScheduleRequest};
use model::api::ApplyChange;
use model::firing::{FiringOutcome, LedgerRecord, ScheduleHead, ScheduleState, Work};
use model::schedule::{Missed, MissedPolicy, Overlap, OverlapPolicy};
use model::timing::{Cron, Rule, Timing};
use model::{BackfillId, Duration, JobId, JobSpec, JobStatus, Refusal, ScheduleId, ScheduleSpec, Timestamp};

use crate::scenario::Scenario;

pub(crate) struct ScheduleBuilder<'a> {
    scenario: &'a mut Scenario,
    pub(crate) spec: ScheduleSpec,
    expected: Expected,
}

impl ScheduleBuilder<'_> {
    pub(crate) fn spec(mut self, change: impl FnOnce(&mut ScheduleSpec)) -> Self {
        change(&mut self.spec);
        self
    }

    pub(crate) fn cron(self, expression: &str) -> Self {
        let rule = Rule::Cron(Cron::new(expression));
        self.spec(|s| s.timing.rules.push(rule))
    }

    pub(crate) fn rule(self, rule: Rule) -> Self {
        self.spec(|s| s.timing.rules.push(rule))
    }

    pub(crate) fn overlap(self, policy: OverlapPolicy) -> Self {
        self.spec(|s| s.overlap = Overlap { policy, ..s.overlap })
    }

    pub(crate) fn limit(self, limit: u32) -> Self {
        self.spec(|s| s.overlap.limit = limit)
    }

    pub(crate) fn missed(self, policy: MissedPolicy) -> Self {
        self.spec(|s| s.missed = Missed { policy, ..s.missed })
    }

    pub(crate) fn expect(mut self, expected: Expected) -> Self {
        self.expected = expected;
        self
    }

    pub(crate) fn try_apply(self) -> Result<Applied, Refusal> {
        let body = serde_json::to_string(&self.spec).unwrap().into();
        let head = Arc::new(ScheduleHead { spec: Arc::new(self.spec), body });
        let schedules = vec![NewSchedule { head, expected: self.expected }];
        match self.scenario.request(ScheduleRequest::Apply { schedules })? {
            Reply::Applied(applied) => Ok(applied[0]),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn apply(self) -> ScheduleId {
        self.try_apply().unwrap().schedule
    }

    pub(crate) fn change(self) -> ApplyChange {
        self.try_apply().unwrap().change
    }
}

impl Scenario {
    pub(crate) fn schedule(&mut self, name: &str) -> ScheduleBuilder<'_> {
        let spec = ScheduleSpec::new(name, Timing::default(), JobSpec::command(["true"]));
        ScheduleBuilder { scenario: self, spec, expected: Expected::Any }
    }

    pub(crate) fn request(&mut self, request: ScheduleRequest) -> Result<Reply, Refusal> {
        let request = Box::new(request);
        self.ask(|ticket| Input::Schedule { ticket, request, actor: "alice".into() })
    }

    pub(crate) fn pause(&mut self, schedule: ScheduleId) {
        let note = Some("month end".into());
        self.request(ScheduleRequest::Pause { schedule, note, expected_version: None }).unwrap();
    }

    pub(crate) fn resume(&mut self, schedule: ScheduleId) {
        self.request(ScheduleRequest::Resume { schedule, expected_version: None }).unwrap();
    }

    pub(crate) fn delete(&mut self, schedule: ScheduleId) {
        self.request(ScheduleRequest::Delete { schedule, expected_version: None }).unwrap();
    }

    pub(crate) fn trigger(&mut self, schedule: ScheduleId) -> (FiringOutcome, Option<JobId>) {
        self.trigger_with(schedule, None)
    }

    pub(crate) fn trigger_with(
        &mut self,
        schedule: ScheduleId,
        overlap: Option<OverlapPolicy>,
    ) -> (FiringOutcome, Option<JobId>) {
        let request = ScheduleRequest::Trigger { schedule, overlap, reason: Some("test".into()), key: None };
        match self.request(request) {
            Ok(Reply::Triggered { outcome, work, .. }) => (outcome, work.and_then(Work::job)),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn backfill(&mut self, schedule: ScheduleId, times: &[&str], concurrency: u32) -> BackfillId {
        self.try_backfill(schedule, times, concurrency).unwrap()
    }

    pub(crate) fn try_backfill(
        &mut self,
        schedule: ScheduleId,
        times: &[&str],
        concurrency: u32,
    ) -> Result<BackfillId, Refusal> {
        let at = |text: &&str| (text.parse::<Timestamp>().unwrap(), None);
        let instants: Vec<_> = times.iter().map(at).collect();
        let backfill = NewBackfill {
            schedule,
            from: instants[0].0,
            until: instants[instants.len() - 1].0,
            scheduled_times: instants.into(),
            concurrency,
            priority: 10,
            overlap: OverlapPolicy::BufferAll,
            note: None,
        };
        match self.request(ScheduleRequest::Backfill(Box::new(backfill)))? {
            Reply::Backfill { backfill } => Ok(backfill),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn schedule_state(&self, schedule: ScheduleId) -> &ScheduleState {
        &self.rows.schedules[&schedule].1
    }

    /// Returns all jobs of a schedule, in order of creation.
    pub(crate) fn runs(&self, schedule: ScheduleId) -> Vec<JobId> {
        let own =
            self.rows.jobs.iter().filter(|(_, (head, _))| {
                head.origin.as_ref().is_some_and(|origin| origin.schedule == schedule)
            });
        own.map(|(&id, _)| id).collect()
    }

    pub(crate) fn open_runs(&self, schedule: ScheduleId) -> Vec<JobId> {
        let runs = self.runs(schedule).into_iter();
        runs.filter(|run| !self.status(*run).is_final()).collect()
    }

    pub(crate) fn run_status(&self, schedule: ScheduleId) -> Vec<JobStatus> {
        self.runs(schedule).into_iter().map(|run| self.status(run)).collect()
    }

    pub(crate) fn records(&self, schedule: ScheduleId) -> Vec<&LedgerRecord> {
        let mut records: Vec<_> = self.rows.ledger.values().filter(|r| r.schedule == schedule).collect();
        records.sort_by_key(|record| (record.first, record.cause));
        records
    }

    /// Returns the ledger, one line per record: `08:01:00 fired (timer)`, `08:02:00..08:04:00 x3 coalesced
    /// (catch_up)`.
    pub(crate) fn ledger(&self, schedule: ScheduleId) -> String {
        let clock = |at: Timestamp| at.to_string()[11..19].to_owned();
        let line = |r: &&LedgerRecord| {
            let more = if r.exact { "" } else { "+" };
            let when = match r.count {
                1 => clock(r.first),
                count => format!("{}..{} x{count}{more}", clock(r.first), clock(r.last)),
            };
            format!("{when} {} ({})", r.outcome, r.cause)
        };
        self.records(schedule).iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Lets every waiting run succeed, on a worker of its own.
    pub(crate) fn succeed_all(&mut self, schedule: ScheduleId) {
        for run in self.open_runs(schedule) {
            self.succeed(run);
        }
    }
}

pub(crate) fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}
