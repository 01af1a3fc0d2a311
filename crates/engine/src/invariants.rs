//! Invariants of the engine, checked after every flush by tests and by the simulator.

use std::collections::{BTreeMap, BTreeSet};

use model::firing::Work;
use model::worker::WorkerStatus;
use model::{JobId, JobStatus, ScheduleId};

use crate::engine::Engine;
use crate::job::Job;
use crate::timer::Timer;
use crate::worker::Used;

impl Engine {
    /// Checks all invariants of the [crate's page](crate). Called after a flush.
    ///
    /// # Errors
    /// The first violation.
    ///
    /// # Cost
    /// Visits every live job.
    pub fn check_invariants(&self) -> Result<(), String> {
        for (&id, job) in &self.jobs {
            self.check_job(id, job)?;
        }
        self.check_workers()?;
        self.check_schedules()?;
        self.check_workflows()?;
        self.check_queues()
    }

    /// A schedule has exactly its unfinished runs, and its timer is armed for the next decision.
    fn check_schedules(&self) -> Result<(), String> {
        let mut runs: BTreeMap<ScheduleId, Vec<Work>> = BTreeMap::new();
        for (work, origin) in self.scheduled_work() {
            runs.entry(origin.schedule).or_default().push(work);
        }
        let mut kept = 0;
        for (id, schedule) in self.schedules.iter() {
            let mut expected = runs.remove(&id).unwrap_or_default();
            expected.sort_unstable();
            let mut known = schedule.runs.clone();
            known.sort_unstable();
            if known != expected {
                return Err(format!("{id} has the runs {known:?}, expected {expected:?}"));
            }
            self.check_schedule_timer(id, schedule)?;
            kept += usize::from(schedule.reserved_worker().is_some());
        }
        let on_workers: usize = self.workers.values().map(|worker| worker.reserved.len()).sum();
        if kept != on_workers {
            return Err(format!("{kept} schedules have a reservation, but workers have {on_workers}"));
        }
        Ok(())
    }

    /// Exactly one thing ends the current state of each live job: a timer, a queue, or an execution.
    fn check_job(&self, id: JobId, job: &Job) -> Result<(), String> {
        let status = job.state.status;
        let timer = usize::from(self.wall_timers.is_armed(job.state.due_at, Timer::JobReady(id)));
        let places = self.queues.places_of(id, job) + usize::from(self.reconciliation.holds(id));
        let unknown = job.live.as_ref().is_some_and(|live| live.is_unknown());
        let live = usize::from(job.live.is_some() && (status == JobStatus::Running || !unknown));
        let expected = match status {
            JobStatus::Ready | JobStatus::Retrying => (1, 0, 0),
            JobStatus::Waiting => (0, 1, 0),
            JobStatus::Running => (0, 0, 1),
            _ => return Err(format!("{id} is {status} and still live after a flush")),
        };
        if (timer, places, live) != expected {
            return Err(format!("{id} is {status} with {timer} timers, {places} places, {live} executions"));
        }
        let Some(live) = &job.live else { return Ok(()) };
        let record = &live.record;
        let worker = self.workers.get(&record.worker).ok_or(format!("the worker of {id} does not exist"))?;
        let is_lost = worker.record.status == WorkerStatus::Lost;
        let has = if status == JobStatus::Running { &worker.jobs } else { &worker.unknown };
        if !has.contains(&id) || is_lost != unknown {
            return Err(format!("{id} was assigned to {}, which does not have it", record.worker));
        }
        if self.executions.get(&record.id) != Some(&id) || record.fence != job.state.fence {
            return Err(format!("the execution of {id} is not its current one"));
        }
        let timers = (
            self.steady_timers.is_armed(live.remind_at, Timer::Remind(record.id)),
            self.steady_timers.is_armed(live.result_wait_until, Timer::ResultWait(record.id)),
        );
        match (status, unknown) {
            (JobStatus::Running, false) if timers != (true, false) => {
                Err(format!("no timer reminds the worker of {id}"))
            }
            (JobStatus::Running, true) if !timers.1 => {
                Err(format!("no timer ends the wait for the result of {id}"))
            }
            _ => Ok(()),
        }
    }

    fn check_workers(&self) -> Result<(), String> {
        let mut held = BTreeSet::new();
        for (id, worker) in self.workers.iter() {
            let mut used = Used::default();
            for job_id in &worker.jobs {
                held.insert(*job_id);
                let job = self.jobs.get(job_id).ok_or(format!("{id} has {job_id}, which is not live"))?;
                used.cpu.0 += job.profile.shape.cpu.0;
                used.memory.0 += job.profile.shape.memory.0;
                for (resource, amount) in &job.profile.shape.custom {
                    *used.custom.entry(resource.clone()).or_default() += amount;
                }
            }
            if used != worker.used {
                return Err(format!("{id} has {:?} reserved, expected {used:?}", worker.used));
            }
            held.extend(&worker.unknown);
        }
        if held.len() != self.executions.len() {
            return Err(format!("{} jobs on workers, but {} executions", held.len(), self.executions.len()));
        }
        Ok(())
    }

    fn check_queues(&self) -> Result<(), String> {
        let mut running: BTreeMap<&str, u32> = BTreeMap::new();
        let mut waiting: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, job) in self.jobs.iter().filter(|(id, _)| !self.reconciliation.holds(**id)) {
            match job.state.status {
                JobStatus::Running => *running.entry(&job.profile.queue).or_default() += 1,
                JobStatus::Waiting => *waiting.entry(&job.profile.queue).or_default() += 1,
                _ => {}
            }
        }
        for view in self.queues.view() {
            let name = view.name.as_str();
            let expected = (waiting.get(name).copied().unwrap_or(0), running.get(name).copied().unwrap_or(0));
            if (view.waiting, self.queues.running_in(name)) != expected {
                return Err(format!(
                    "queue {name} counts {}/{} jobs, expected {expected:?}",
                    view.waiting, view.running
                ));
            }
        }
        Ok(())
    }
}
