//! Rewind: changes the rows of a store whose engine time ran ahead of the clock.
//!
//! A wall clock that leapt ahead and was accepted has advanced engine time; later decisions have timestamps
//! in the future. `belfry store reset-clock` corrects this while no server runs: [`Rewind::row`] returns the
//! changes of each live row.
//!
//! - Timers started since the leap (a retry, a step's timer) keep their remaining time.
//! - Executions, runs and steps started since the leap count as started now, so their timeouts count from
//!   now.
//! - A schedule continues from the present under a new generation. Its future firings are decided again at
//!   their time, also those that already ran. Ledger entries of the old generation stay.
//! - A job with `run_at` still waits for that time. Ended jobs, runs and steps do not change.
//!
//! A changed row is not changed again, so an interrupted reset can be repeated.

use std::ops::BitOr;
use std::sync::Arc;

use model::firing::{BufferedFiring, DetailCode, FiringOutcome, LedgerRecord, ScheduleState, ScheduleStatus};
use model::record::{Change, ExecutionRecord, JobState, LiveRow};
use model::run::{RunState, StepRecord};
use model::{JobStatus, ScheduleId, Timestamp};

/// The engine times before and after a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewind {
    /// Engine time in the store.
    pub from: Timestamp,
    /// Current time.
    pub to: Timestamp,
}

impl Rewind {
    /// Returns the changes of a live row, starting with the row itself; empty if it does not change.
    pub fn row(&self, row: LiveRow) -> Vec<Change> {
        let changed = match row {
            LiveRow::Job { id, mut state, .. } => {
                self.job(&mut state).then_some(Change::Job { id, new: false, head: None, state })
            }
            LiveRow::Schedule { id, head, mut state } => {
                let Some(lost) = self.schedule(&mut state) else { return Vec::new() };
                // A new generation is written with its spec.
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

    /// Moves a time in the future to now. Returns whether it was in the future.
    fn clamp(&self, at: &mut Timestamp) -> bool {
        let ahead = *at > self.to;
        *at = self.to.min(*at);
        ahead
    }

    /// Does the same for several optional times. Returns whether any was in the future.
    fn clamp_all<const N: usize>(&self, times: [&mut Option<Timestamp>; N]) -> bool {
        // `fold` visits all of them; `any` would stop at the first.
        times.into_iter().flatten().map(|at| self.clamp(at)).fold(false, BitOr::bitor)
    }

    /// Keeps the remaining time of a timer.
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
            // The job waits for its `run_at`.
            JobStatus::Ready => {}
            _ => {
                self.clamp(&mut state.due_at);
            }
        }
        // The deadline may be in the future again. If it is not, it acts again.
        state.overdue = false;
        let passed = [&mut state.queued_at, &mut state.started_at, &mut state.cancel_requested_at];
        self.clamp_all(passed);
        true
    }

    fn execution(&self, record: &mut ExecutionRecord) -> bool {
        // The timeout of the job counts from the start of the execution.
        let started_ahead = self.clamp_all([&mut record.started_at]);
        self.clamp(&mut record.assigned_at) || started_ahead
    }

    fn run(&self, state: &mut RunState) -> bool {
        if !self.clamp(&mut state.updated_at) {
            return false;
        }
        state.version += 1;
        // The timeout of the run counts from its start.
        self.clamp_all([&mut state.started_at]);
        if let Some(retry) = state.retry.as_mut() {
            self.clamp_all([&mut retry.started_at]);
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

    /// Returns the buffered firings in the future, which are decided again; `None` if the row does not
    /// change.
    fn schedule(&self, state: &mut ScheduleState) -> Option<Vec<BufferedFiring>> {
        let ahead = self.clamp(&mut state.cursor);
        let changed_ahead = self.clamp(&mut state.updated_at);
        if !(changed_ahead || ahead) {
            return None;
        }
        state.generation += 1;
        // Its last scheduled time may be in the future again. A schedule that has reached its maximum number
        // of firings is completed again.
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
        // Computed from the rules again when the schedule is restored.
        state.next_at = None;
        Some(lost)
    }

    /// Returns the final ledger record of a buffered firing.
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
