//! Manual triggers: a user fires a schedule.

use model::firing::{FiringCause, FiringOutcome, Work};
use model::record::{Change, KeyRecord, RunKeyRecord};
use model::schedule::OverlapPolicy;
use model::{Duration, Refusal, ScheduleId, Timestamp};

use super::Schedules;
use super::firing::Firing;
use crate::context::Context;
use crate::input::Key;
use crate::jobs::Jobs;
use crate::output::Reply;
use crate::workflows::Workflows;

/// A request to fire a schedule now.
pub(super) struct Trigger {
    /// Overlap policy instead of that of the schedule.
    pub(super) overlap: Option<OverlapPolicy>,
    /// User who asks for it, and the reason.
    pub(super) detail: Box<str>,
    pub(super) key: Option<Key>,
}

impl Schedules {
    /// Fires a schedule now, also while it is paused or completed. The run counts towards the overlap limit
    /// like any other.
    pub(super) fn trigger(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        id: ScheduleId,
        Trigger { overlap, detail, key }: Trigger,
    ) -> Result<Reply, Refusal> {
        if self.get(id).is_none() {
            return Err(Refusal::ScheduleNotFound { schedule: id });
        }
        if let Some(reply) = self.triggered_before(workflows, jobs, id, key)? {
            return Ok(reply);
        }
        // Firings of the timer that are due come first.
        self.decide_due_before_request(cx, workflows, jobs, id);
        let now = cx.now;
        let Some(schedule) = self.get_mut(id) else {
            return Err(Refusal::ScheduleNotFound { schedule: id });
        };
        let after = |last: Timestamp| Timestamp::from_micros(last.as_micros().saturating_add(1));
        let at = schedule.state.last_manual.map_or(now, |last| now.max(after(last)));
        schedule.state.last_manual = Some(at);
        let generation = schedule.state.generation;
        self.touch_schedule(id);
        let cause = FiringCause::Manual;
        let key = key.map(|key| (key.key, key.body));
        let firing = Firing { at, due: at, cause, generation, detail: Some(detail), key, waited: false };
        let decided = self.fire_or_wait(cx, workflows, jobs, id, firing, overlap);
        self.arm_schedule(cx, workflows, jobs, id);
        Ok(Reply::Triggered { outcome: decided.outcome, work: decided.work, scheduled_for: at })
    }

    /// Returns the reply of an earlier trigger with the same key: its job or run, or its buffered firing.
    fn triggered_before(
        &self,
        workflows: &Workflows,
        jobs: &Jobs,
        id: ScheduleId,
        key: Option<Key>,
    ) -> Result<Option<Reply>, Refusal> {
        let Some(key) = key else { return Ok(None) };
        if let Some(known) = jobs.key(key.key) {
            if known.body != key.body {
                return Err(Refusal::IdempotencyKeyReused { index: 0, job: known.job });
            }
            let origin = jobs.get(known.job).and_then(|job| job.origin.as_ref());
            let scheduled_for = origin.map_or(known.job.created_at(), |origin| origin.scheduled_for);
            let (outcome, work) = (FiringOutcome::Fired, Some(Work::Job(known.job)));
            return Ok(Some(Reply::Triggered { outcome, work, scheduled_for }));
        }
        if let Some(known) = workflows.key(key.key) {
            if known.body != key.body {
                return Err(Refusal::RunIdempotencyKeyReused { run: known.run });
            }
            let origin = workflows.origin_of(known.run);
            let scheduled_for = origin.map_or(known.run.created_at(), |origin| origin.scheduled_for);
            let (outcome, work) = (FiringOutcome::Fired, Some(Work::Run(known.run)));
            return Ok(Some(Reply::Triggered { outcome, work, scheduled_for }));
        }
        let waiting = self.get(id).and_then(|schedule| {
            schedule.state.buffer.iter().find(|waiting| waiting.key == Some((key.key, key.body)))
        });
        Ok(waiting.map(|waiting| {
            let outcome = FiringOutcome::Buffered;
            Reply::Triggered { outcome, work: None, scheduled_for: waiting.scheduled_for }
        }))
    }

    /// Stores the idempotency key of a trigger, so that a repeated request finds the job or run.
    pub(super) fn store_trigger_key(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        firing: &Firing,
        work: Work,
    ) {
        let Some((key, body)) = firing.key else { return };
        let expires_at = cx.now + cx.config.key_retention.max(Duration::from_hours(24));
        match work {
            Work::Job(job) => {
                let record = KeyRecord { key, body, job, expires_at };
                jobs.insert_key(record);
                cx.write(Change::Key(record));
            }
            Work::Run(run) => {
                let record = RunKeyRecord { key, body, run, expires_at };
                workflows.insert_key(record);
                cx.write(Change::RunKey(record));
            }
        }
    }
}
