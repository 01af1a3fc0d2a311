//! Rows of a store whose engine time ran ahead of the clock, as they are after its time is reset.
//!
//! A wall clock that leapt ahead and was believed has moved engine time, and what was decided then stands at times that
//! are still to come. Resetting is done while no server runs: [`Rewind::row`] says for each live row what it is
//! afterwards.
//!
//! - What waits since the leap (a retry, a step's timer) waits for as long as it had left.
//! - What began since the leap began now: its timeout counts from here.
//! - A schedule continues from the present under a new generation. Its future firings are decided again at their time,
//!   also those that ran early. Ledger entries of the old generation stay.
//! - A job with `run_at` still waits for that time. Ended jobs, runs and steps stay as they are.
//!
//! A row that was changed is not changed again, so a reset that broke off can be repeated.

use std::ops::BitOr;
use std::sync::Arc;

use model::firing::{BufferedFiring, DetailCode, FiringOutcome, LedgerRecord, ScheduleState, ScheduleStatus};
use model::record::{Change, ExecutionRecord, JobState, LiveRow};
use model::run::{RunState, StepRecord};
use model::{JobStatus, ScheduleId, Timestamp};

/// From which engine time to which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewind {
    /// The engine time that the store keeps.
    pub from: Timestamp,
    /// The time that it is.
    pub to: Timestamp,
}

impl Rewind {
    /// What becomes of a live row, its own change first; nothing if it stays as it is.
    pub fn row(&self, row: LiveRow) -> Vec<Change> {
        let changed = match row {
            LiveRow::Job { id, mut state, .. } => {
                self.job(&mut state).then_some(Change::Job { id, new: false, head: None, state })
            }
            LiveRow::Schedule { id, head, mut state } => {
                let Some(lost) = self.schedule(&mut state) else { return Vec::new() };
                // A generation is written with its spec.
                let own = Change::Schedule { id, new: false, head: Some(Arc::new(head)), state };
                let lost = lost.into_iter().map(|firing| Change::Ledger(Box::new(self.lost(id, &firing))));
                return std::iter::once(own).chain(lost).collect();
            }
            LiveRow::Run { id, mut state, .. } => {
                self.run(&mut state).then_some(Change::Run { id, head: None, state })
            }
            LiveRow::Execution(mut record) => {
                self.execution(&mut record).then_some(Change::Execution { new: false, record })
            }
            LiveRow::Step(mut record) => self.step(&mut record).then_some(Change::Step(record)),
            LiveRow::Workflow { id, mut state, .. } => self
                .clamp(&mut state.updated_at)
                .then_some(Change::Workflow { id, new: false, head: None, state }),
            _ => None,
        };
        changed.into_iter().collect()
    }

    /// A time that has passed is not in the future. Says whether it was.
    fn clamp(&self, at: &mut Timestamp) -> bool {
        let ahead = *at > self.to;
        *at = self.to.min(*at);
        ahead
    }

    /// The same of several times that may not have come yet. Says whether one of them was.
    fn clamp_all<const N: usize>(&self, times: [&mut Option<Timestamp>; N]) -> bool {
        // All of them, not only up to the first that was.
        times.into_iter().flatten().map(|at| self.clamp(at)).fold(false, BitOr::bitor)
    }

    /// What waited until then waits for as long as it had left.
    fn wait(&self, until: &mut Timestamp) {
        *until = self.to + until.since(self.from);
    }

    fn job(&self, state: &mut JobState) -> bool {
        if !self.clamp(&mut state.updated_at) {
            return false;
        }
        state.version += 1;
        match state.status {
            JobStatus::Retrying => self.wait(&mut state.due_at),
            // It waits for its `run_at`.
            JobStatus::Ready => {}
            _ => {
                self.clamp(&mut state.due_at);
            }
        }
        let passed = [&mut state.queued_at, &mut state.started_at, &mut state.cancel_requested_at];
        self.clamp_all(passed);
        true
    }

    fn execution(&self, record: &mut ExecutionRecord) -> bool {
        // From its start the timeout of the job counts.
        let started_ahead = self.clamp_all([&mut record.started_at]);
        self.clamp(&mut record.assigned_at) || started_ahead
    }

    fn run(&self, state: &mut RunState) -> bool {
        if !self.clamp(&mut state.updated_at) {
            return false;
        }
        state.version += 1;
        // From it the timeout of the run counts.
        self.clamp_all([&mut state.started_at]);
        if let Some(retry) = state.retry.as_mut() {
            self.clamp_all([&mut retry.began_at]);
            retry.next_at.iter_mut().for_each(|next_at| self.wait(next_at));
        }
        true
    }

    fn step(&self, record: &mut StepRecord) -> bool {
        let state = &mut record.state;
        let began_ahead = self.clamp_all([&mut state.started_at]);
        if began_ahead && let Some(wake_at) = state.wake_at.as_mut() {
            self.wait(wake_at);
        }
        self.clamp_all([&mut state.finished_at]) || began_ahead
    }

    /// Returns the firings that waited for their turn and are decided anew.
    fn schedule(&self, state: &mut ScheduleState) -> Option<Vec<BufferedFiring>> {
        let ahead = self.clamp(&mut state.cursor);
        let changed_ahead = self.clamp(&mut state.updated_at);
        if !(changed_ahead || ahead) {
            return None;
        }
        state.generation += 1;
        // Its last time has not passed yet; one that fired as often as it may is completed again.
        if changed_ahead && state.status == ScheduleStatus::Completed {
            state.status = ScheduleStatus::Active;
        }
        state.previous = state.previous.filter(|at| *at <= self.to);
        self.clamp(&mut state.created_at);
        for gap in &mut state.owed {
            gap.until = self.to.min(gap.until);
        }
        state.owed.retain(|gap| gap.after < gap.until);
        let buffer = std::mem::take(&mut state.buffer);
        let (lost, kept): (Vec<_>, Vec<_>) =
            buffer.into_iter().partition(|firing| firing.scheduled_for > self.to);
        state.buffer = kept.into();
        if let Some(from) = state.delay_from.as_mut() {
            self.clamp(from);
        }
        if let Some(pause) = state.pause.as_mut() {
            self.clamp(&mut pause.at);
        }
        state.last_manual = state.last_manual.filter(|at| *at <= self.to);
        state.open_record = None;
        // Found again from the rules when the schedule is taken in.
        state.next_at = None;
        Some(lost)
    }

    /// The last word on a firing that waited.
    fn lost(&self, schedule: ScheduleId, firing: &BufferedFiring) -> LedgerRecord {
        LedgerRecord {
            schedule,
            generation: firing.generation,
            first: firing.scheduled_for,
            last: firing.scheduled_for,
            count: 1,
            exact: true,
            outcome: FiringOutcome::SkippedReplaced,
            cause: firing.cause,
            backfill: None,
            work: None,
            decided_at: self.to,
            detail: Some(DetailCode::ClockReset.sentence().into()),
            tzdb: Arc::clone(timetable::Zones::bundled().version()),
        }
    }
}
