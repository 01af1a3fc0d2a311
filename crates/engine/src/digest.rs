//! What an engine knows that its rows know as well, to compare two engines by.
//!
//! An engine that was rebuilt from the committed rows must know the same as the running one that
//! committed them (I28). Left out is what a rebuilt engine cannot know and need not: sessions, leases,
//! rates, fair shares, and timers on the steady clock. That timers on the wall are armed is what
//! [`Engine::check_invariants`] checks.

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};

use model::firing::{BackfillHead, BackfillState, ScheduleState, Work};
use model::queue::QueueSettings;
use model::record::{ExecutionRecord, JobState, WorkerRecord};
use model::worker::WorkerStatus;
use model::{JobId, Timestamp};

use crate::engine::{Engine, KnownKey};
use crate::job::Job;
use crate::output::QueueView;
use crate::profile::Profile;
use crate::schedule::{Backfill, Schedule};
use crate::worker::{Used, Worker};

/// One thing that two engines know differently, as each of them shows it; empty where one has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What it is about.
    pub subject: String,
    /// What the engine says that was asked.
    pub here: String,
    /// What the other says.
    pub there: String,
}

impl Engine {
    /// The first thing that another engine over the same rows knows differently. Call it after a flush of
    /// both.
    ///
    /// # Cost
    /// Compares every live row: for the simulator and for tests.
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

    /// Everything here is there as well; is anything there that is not here?
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
        let subject = "how many jobs, executions, keys, workers, schedules, backfills, queues";
        let (here, there) = (counts(self), counts(other));
        (here != there).then(|| Difference {
            subject: subject.into(),
            here: format!("{here:?}"),
            there: format!("{there:?}"),
        })
    }
}

/// The first that another knows differently.
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

/// What is said of a job: all but the number of its shape, which is each engine's own affair.
#[derive(Debug)]
struct Known<'a> {
    state: &'a JobState,
    deadline: Option<Timestamp>,
    profile: &'a Profile,
    live: Option<&'a ExecutionRecord>,
}

impl PartialEq for Known<'_> {
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

fn of_job(job: &Job) -> Known<'_> {
    let live = job.live.as_ref().map(|live| &live.record);
    Known { state: &job.state, deadline: job.deadline, profile: &job.profile, live }
}

fn of_key(known: &KnownKey) -> (u128, JobId, Timestamp) {
    (known.body, known.job, known.expires_at)
}

/// A worker that is not here yet is expected by a rebuilt engine, and ready to a running one.
fn of_worker(worker: &Worker) -> (WorkerRecord, &BTreeSet<JobId>, &Used) {
    let status = match worker.record.status {
        WorkerStatus::Expected => WorkerStatus::Ready,
        known => known,
    };
    (WorkerRecord { status, ..(*worker.record).clone() }, &worker.jobs, &worker.used)
}

/// Who of those that wait in it wait for a key is found out anew, so the oldest may differ.
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
