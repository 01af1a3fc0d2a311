//! Comparison of two engines over the same rows.
//!
//! An engine rebuilt from the committed rows must have the same state as the engine that committed them
//! (I28). State that a rebuilt engine cannot know is left out: sessions, leases, rate limits, fair shares,
//! and timers on the steady clock. [`Engine::check_invariants`] checks the timers on the wall clock.

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};

use model::firing::{BackfillHead, BackfillState, ScheduleState, Work};
use model::queue::QueueSettings;
use model::record::{ExecutionRecord, JobState, WorkerRecord};
use model::worker::WorkerStatus;
use model::{JobId, Timestamp};

use crate::engine::{Engine, IdempotencyEntry};
use crate::job::Job;
use crate::output::QueueView;
use crate::profile::Profile;
use crate::schedule::{Backfill, Schedule};
use crate::worker::{Used, Worker};

/// A difference between two engines, as text; a side that lacks the object is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// ID or name of the object.
    pub subject: String,
    /// State in this engine.
    pub here: String,
    /// State in the other engine.
    pub there: String,
}

impl Engine {
    /// Returns the first difference from another engine over the same rows. Called after a flush of both
    /// engines.
    ///
    /// # Cost
    /// Compares every live row: for the simulator and tests only.
    pub fn difference(&self, other: &Self) -> Option<Difference> {
        first(self.jobs.iter().map(|(id, job)| (id, of_job(job))), |id| other.jobs.get(id).map(of_job))
            .or_else(|| first(&self.executions, |id| other.executions.get(id)))
            .or_else(|| {
                let here = self.keys.iter().map(|(key, known)| (key, of_key(known)));
                first(here, |key| other.keys.get(key).map(of_key))
            })
            .or_else(|| {
                let here = self.workers.iter().map(|(id, worker)| (id, of_worker(worker)));
                first(here, |id| other.workers.get(id).map(of_worker))
            })
            .or_else(|| self.queue_difference(other))
            .or_else(|| self.schedule_difference(other))
            .or_else(|| self.workflow_difference(other))
            .or_else(|| self.count_difference(other))
    }

    fn queue_difference(&self, other: &Self) -> Option<Difference> {
        let (here, there) = (self.queues.view(), other.queues.view());
        first(here.iter().map(|view| (view.name.as_str(), of_queue(view))), |name| {
            there.iter().find(|view| view.name == name).map(of_queue)
        })
    }

    fn schedule_difference(&self, other: &Self) -> Option<Difference> {
        let here = self.schedules.iter().map(|(id, schedule)| (id, of_schedule(schedule)));
        first(here, |id| other.schedules.get(id).map(of_schedule)).or_else(|| {
            let here = self.schedules.backfills.iter().map(|(id, backfill)| (id, of_backfill(backfill)));
            first(here, |id| other.schedules.backfills.get(id).map(of_backfill))
        })
    }

    /// Compares the numbers of objects. Everything here is also there; this finds objects that exist only
    /// there.
    fn count_difference(&self, other: &Self) -> Option<Difference> {
        let counts = |engine: &Self| {
            [
                engine.jobs.len(),
                engine.executions.len(),
                engine.keys.len(),
                engine.workers.len(),
                engine.schedules.iter().count(),
                engine.schedules.backfills.len(),
                engine.queues.view().len(),
            ]
        };
        let subject = "numbers of jobs, executions, keys, workers, schedules, backfills, queues";
        let (here, there) = (counts(self), counts(other));
        (here != there).then(|| Difference {
            subject: subject.into(),
            here: format!("{here:?}"),
            there: format!("{there:?}"),
        })
    }
}

/// Returns the first object that differs.
pub(crate) fn first<K: Copy + Display, V: PartialEq + Debug>(
    here: impl IntoIterator<Item = (K, V)>,
    there: impl Fn(K) -> Option<V>,
) -> Option<Difference> {
    here.into_iter().find_map(|(key, here)| {
        let there = there(key);
        (there.as_ref() != Some(&here)).then(|| Difference {
            subject: key.to_string(),
            here: format!("{here:?}"),
            there: there.map_or_else(String::new, |there| format!("{there:?}")),
        })
    })
}

/// State of a job, without the number of its shape, which differs between engines.
#[derive(Debug)]
struct JobSnapshot<'a> {
    state: &'a JobState,
    deadline: Option<Timestamp>,
    profile: &'a Profile,
    live: Option<&'a ExecutionRecord>,
}

impl PartialEq for JobSnapshot<'_> {
    fn eq(&self, other: &Self) -> bool {
        let Profile { namespace, queue, priority, shape, shape_id: _, retry, grace, delivery, retention } =
            self.profile;
        let profile = (namespace, queue, priority, shape, retry, (grace, delivery, retention));
        let Profile { namespace, queue, priority, shape, shape_id: _, retry, grace, delivery, retention } =
            other.profile;
        self.state == other.state
            && self.deadline == other.deadline
            && profile == (namespace, queue, priority, shape, retry, (grace, delivery, retention))
            && self.live == other.live
    }
}

fn of_job(job: &Job) -> JobSnapshot<'_> {
    let live = job.live.as_ref().map(|live| &live.record);
    JobSnapshot { state: &job.state, deadline: job.deadline, profile: &job.profile, live }
}

fn of_key(known: &IdempotencyEntry) -> (u128, JobId, Timestamp) {
    (known.body, known.job, known.expires_at)
}

/// A worker that has not reconnected is expected in a rebuilt engine, and ready in a running one.
fn of_worker(worker: &Worker) -> (WorkerRecord, &BTreeSet<JobId>, &Used) {
    let status = match worker.record.status {
        WorkerStatus::Expected => WorkerStatus::Ready,
        known => known,
    };
    (WorkerRecord { status, ..(*worker.record).clone() }, &worker.jobs, &worker.used)
}

/// A rebuilt engine decides again which waiting jobs are parked at a key, so the oldest job may differ.
fn of_queue(view: &QueueView) -> (u64, u64, u64, &QueueSettings) {
    (view.version, view.waiting, view.running, &view.settings)
}

fn of_schedule(schedule: &Schedule) -> (&str, &ScheduleState, Vec<Work>) {
    (&schedule.name, &schedule.state, sorted(&schedule.runs))
}

fn of_backfill(backfill: &Backfill) -> (&BackfillHead, BackfillState, Vec<Work>) {
    (&backfill.head, backfill.state, sorted(&backfill.runs))
}

fn sorted(runs: &[Work]) -> Vec<Work> {
    let mut runs = runs.to_vec();
    runs.sort_unstable();
    runs
}
