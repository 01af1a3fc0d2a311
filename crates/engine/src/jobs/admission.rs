//! Requests of operators about a worker: cordon, uncordon, drain, remove.

use std::sync::Arc;

use model::record::{Change, WorkerRecord};
use model::spec::Delivery;
use model::worker::{Admission, WorkerStatus};
use model::{JobId, Refusal, WorkerId};

use crate::context::Context;
use crate::input::Ticket;
use crate::jobs::{Job, Jobs};
use crate::output::Reply;
use crate::signal::Signal;

impl Jobs {
    pub(crate) fn set_admission(
        &mut self,
        cx: &mut Context,
        ticket: Ticket,
        id: WorkerId,
        admission: Admission,
    ) {
        let now = cx.now;
        let Some(worker) = self.workers.get_mut(&id) else {
            return cx.reply(ticket, Err(Refusal::WorkerNotFound { worker: id }));
        };
        if worker.record.admission != admission {
            worker.record = Arc::new(WorkerRecord { admission, updated_at: now, ..(*worker.record).clone() });
            cx.write_worker(&worker.record);
            if admission == Admission::Draining {
                self.evict_all(cx, id);
            }
            self.notify_services_on(cx, id);
            cx.raise(Signal::AdmissionChanged);
            self.capacity_changed();
        }
        cx.reply(ticket, Ok(Reply::Worker));
    }

    /// Stops executions on a worker so that their jobs can run elsewhere. Executions of `at_most_once` jobs
    /// continue until they end.
    fn evict_all(&mut self, cx: &mut Context, id: WorkerId) {
        let jobs: Vec<JobId> =
            self.workers.get(&id).map(|w| w.jobs.iter().copied().collect()).unwrap_or_default();
        for job_id in jobs {
            if self.is_evicted(job_id) {
                self.send_stop(cx, job_id);
            }
        }
    }

    /// Returns whether a job is being evicted: stopped so that it can run again, because its worker is drained or another
    /// job preempts it.
    pub(crate) fn is_evicted(&self, id: JobId) -> bool {
        self.all.get(&id).is_some_and(|job| {
            let Some(live) = &job.live else { return false };
            let worker = self.workers.get(&live.record.worker);
            let is_draining = worker.is_some_and(|worker| worker.record.admission == Admission::Draining);
            // The service of a replica starts a replacement first, and then stops the replica.
            job.profile.delivery != Delivery::AtMostOnce
                && job.replica.is_none()
                && (is_draining || live.record.preempted_by.is_some())
        })
    }

    /// Returns whether the execution of a job is being stopped, for whatever reason.
    pub(crate) fn is_being_stopped(&self, id: JobId) -> bool {
        self.all.get(&id).is_some_and(Job::is_stopping) || self.is_evicted(id)
    }

    pub(crate) fn remove_worker(&mut self, cx: &mut Context, ticket: Ticket, id: WorkerId) {
        let reply = match self.workers.get(&id) {
            None => Err(Refusal::WorkerNotFound { worker: id }),
            Some(worker) if worker.record.status != WorkerStatus::Lost => {
                Err(Refusal::WorkerConnected { worker: id })
            }
            Some(_) => {
                self.end_unknown(cx, id);
                self.release_job_reservations_on(id);
                self.workers.remove(&id);
                self.capacity_changed();
                cx.write(Change::RemoveWorker(id));
                Ok(Reply::Worker)
            }
        };
        cx.reply(ticket, reply);
    }
}
