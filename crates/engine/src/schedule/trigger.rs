//! Somebody fires a schedule by hand.

use std::sync::Arc;

use model::firing::{FiringCause, FiringOutcome};
use model::record::{Change, KeyRecord};
use model::schedule::OverlapPolicy;
use model::{Duration, JobId, ScheduleId, Timestamp};

use super::fire::Firing;
use crate::engine::{Engine, KnownKey};
use crate::input::Key;
use crate::output::{Refusal, Reply};

impl Engine {
    /// Fires now, also while paused or completed. The run counts for the overlap limits like any.
    pub(super) fn trigger(
        &mut self,
        id: ScheduleId,
        overlap: Option<OverlapPolicy>,
        reason: Option<&str>,
        key: Option<Key>,
        actor: &Arc<str>,
    ) -> Result<Reply, Refusal> {
        if self.schedules.get(id).is_none() {
            return Err(Refusal::NoSchedule { schedule: id });
        }
        if let Some(reply) = self.triggered_before(id, key)? {
            return Ok(reply);
        }
        // What is due by itself comes first.
        self.settle_now(id);
        let now = self.now;
        let Some(schedule) = self.schedules.get_mut(id) else {
            return Err(Refusal::NoSchedule { schedule: id });
        };
        let after = |last: Timestamp| Timestamp::from_micros(last.as_micros().saturating_add(1));
        let at = schedule.state.last_manual.map_or(now, |last| now.max(after(last)));
        schedule.state.last_manual = Some(at);
        let generation = schedule.state.generation;
        self.touch_schedule(id);
        let detail = match reason {
            Some(reason) => format!("{actor}: {reason}"),
            None => actor.to_string(),
        };
        let cause = FiringCause::Manual;
        let key = key.map(|key| (key.key, key.body));
        let firing = Firing { at, due: at, cause, generation, detail: Some(detail.into()), key };
        let decided = self.fire_or_wait(id, firing, overlap);
        self.arm_schedule(id);
        Ok(Reply::Triggered { outcome: decided.outcome, job: decided.job, scheduled_for: at })
    }

    /// What an earlier trigger under the same key came to, whether its job is there or waits.
    fn triggered_before(&self, id: ScheduleId, key: Option<Key>) -> Result<Option<Reply>, Refusal> {
        let Some(key) = key else { return Ok(None) };
        if let Some(known) = self.keys.get(&key.key) {
            if known.body != key.body {
                return Err(Refusal::KeyReused { index: 0, job: known.job });
            }
            let origin = self.jobs.get(&known.job).and_then(|job| job.origin.as_ref());
            let scheduled_for = origin.map_or(known.job.created_at(), |origin| origin.scheduled_for);
            let (outcome, job) = (FiringOutcome::Fired, Some(known.job));
            return Ok(Some(Reply::Triggered { outcome, job, scheduled_for }));
        }
        let waiting = self.schedules.get(id).and_then(|schedule| {
            schedule.state.buffer.iter().find(|waiting| waiting.key == Some((key.key, key.body)))
        });
        Ok(waiting.map(|waiting| {
            let outcome = FiringOutcome::Buffered;
            Reply::Triggered { outcome, job: None, scheduled_for: waiting.scheduled_for }
        }))
    }

    /// A trigger that is repeated under its key finds the job.
    pub(super) fn remember_trigger(&mut self, firing: &Firing, job: JobId) {
        let Some((key, body)) = firing.key else { return };
        let expires_at = self.now + self.config.key_retention.max(Duration::from_hours(24));
        self.keys.insert(key, KnownKey { body, job, expires_at });
        self.pending.others.push(Change::Key(KeyRecord { key, body, job, expires_at }));
    }
}
