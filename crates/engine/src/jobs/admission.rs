//! Requests of operators about a worker: cordon, uncordon, drain, remove.

use std::sync::Arc;

use model::record::{Change, WorkerRecord};
use model::spec::Delivery;
use model::worker::{Admission, WorkerStatus};
use model::{JobId, Refusal, WorkerId};

use crate::context::Context;
use crate::input::Ticket;
use crate::jobs::Jobs;
use crate::output::Reply;

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

    /// Returns whether a job is being evicted: stopped so that it can run elsewhere.
    pub(crate) fn is_evicted(&self, id: JobId) -> bool {
        self.all.get(&id).is_some_and(|job| {
            let worker = job.live.as_ref().and_then(|live| self.workers.get(&live.record.worker));
            job.profile.delivery != Delivery::AtMostOnce
                && worker.is_some_and(|worker| worker.record.admission == Admission::Draining)
        })
    }

    pub(crate) fn remove_worker(&mut self, cx: &mut Context, ticket: Ticket, id: WorkerId) {
        let reply = match self.workers.get(&id) {
            None => Err(Refusal::WorkerNotFound { worker: id }),
            Some(worker) if worker.record.status != WorkerStatus::Lost => {
                Err(Refusal::WorkerConnected { worker: id })
            }
            Some(_) => {
                self.end_unknown(cx, id);
                self.workers.remove(&id);
                cx.write(Change::RemoveWorker(id));
                Ok(Reply::Worker)
            }
        };
        cx.reply(ticket, reply);
    }
}
