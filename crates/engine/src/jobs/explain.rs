//! Waiting reasons of a job.

use model::spec::UpstreamJob;
use model::why::{OpenEnum, Reason, WaitingUpstreamJob, Why, WorkerMismatch};
use model::{ExecutionStatus, JobId, JobStatus, Refusal};

use super::Job;
use crate::clock::CLOCK_DIFFERENCE_MAX;
use crate::context::Context;
use crate::input::Ticket;
use crate::jobs::Jobs;
use crate::jobs::job_reservation::JobReservation;
use crate::output::Reply;
use crate::workers::{Holder, placement};

/// Maximum number of workers that an explanation lists.
const WORKERS_SHOWN: usize = 100;
/// Maximum number of preempted jobs that an explanation lists.
const VICTIMS_SHOWN: usize = 100;

impl Jobs {
    pub(crate) fn explain(&mut self, cx: &mut Context, ticket: Ticket, id: JobId) {
        let why = self.all.get(&id).filter(|job| !job.state.status.is_final()).map(|job| Why {
            job: id,
            status: job.state.status,
            reasons: OpenEnum::list(self.reasons(cx, id, job)),
            start_by: job.start_by().filter(|_| job.state.started_at.is_none()),
            finish_by: job.finish_by(),
            finish_action: job.finish_action(),
        });
        let reply = why.map(|why| Reply::Why(Box::new(why))).ok_or(Refusal::JobNotLive { job: id });
        cx.reply(ticket, reply);
    }

    fn reasons(&self, cx: &Context, id: JobId, job: &Job) -> Vec<Reason> {
        match job.state.status {
            JobStatus::Ready => {
                let due_at = job.state.due_at;
                let not_due = (due_at > cx.now || job.state.upstream.is_empty())
                    .then(|| self.waits_for_time(cx, Reason::NotDue { until: due_at }));
                self.waits_for_upstream(job).into_iter().chain(not_due.into_iter().flatten()).collect()
            }
            JobStatus::Retrying => self.waits_for_time(
                cx,
                Reason::Backoff {
                    until: job.state.due_at,
                    failures: job.state.run_failures + job.state.start_failures,
                    losses: job.state.losses,
                },
            ),
            JobStatus::Running => self.running_reasons(cx, job),
            _ => self.waiting_reasons(cx, id, job),
        }
    }

    fn waits_for_upstream(&self, job: &Job) -> Option<Reason> {
        let jobs: Vec<_> = job
            .state
            .upstream
            .iter()
            .map(|&UpstreamJob { job, condition }| WaitingUpstreamJob {
                job,
                condition,
                status: self.all.get(&job).map(|upstream| upstream.state.status),
            })
            .collect();
        (!jobs.is_empty()).then_some(Reason::UpstreamJobs { jobs })
    }

    /// Adds the clock as a reason: waiting for a time takes longer while engine time stands still.
    fn waits_for_time(&self, cx: &Context, reason: Reason) -> Vec<Reason> {
        let by = cx.clock_filter.view(cx.now).ahead;
        let behind = (by > CLOCK_DIFFERENCE_MAX).then_some(Reason::ClockBehind { by });
        behind.into_iter().chain([reason]).collect()
    }

    fn running_reasons(&self, cx: &Context, job: &Job) -> Vec<Reason> {
        let Some(live) = &job.live else { return Vec::new() };
        let worker = live.record.worker;
        let mut reasons = Vec::new();
        let since = job.state.cancel_requested_at.or(job.finish_by().filter(|_| job.is_stopping()));
        reasons.extend(since.map(|since| Reason::Stopping { since }));
        reasons
            .extend(live.record.preempted_by.filter(|_| since.is_none()).map(|by| Reason::Preempted { by }));
        if live.is_unknown() {
            let until = cx.wall_time_of(live.result_wait_until);
            reasons.push(Reason::OutcomeUnknown { worker, until });
            return reasons;
        }
        if let Some(silent) = self.workers.get(&worker).filter(|w| w.session.is_none()) {
            reasons.push(Reason::WorkerDisconnected { worker, until: cx.wall_time_of(silent.lease_until) });
        }
        let since = live.record.started_at.filter(|_| live.record.status == ExecutionStatus::Running);
        reasons.push(Reason::Running { worker, since });
        reasons
    }

    fn waiting_reasons(&self, cx: &Context, id: JobId, job: &Job) -> Vec<Reason> {
        if self.reconciliation.holds(id) {
            return vec![Reason::Reconciling { until: cx.wall_time_of(self.reconciled_at()) }];
        }
        if cx.holds_new_work {
            return vec![Reason::StorageFull];
        }
        let mut reasons = self.queues.reasons(cx.steady, job.queued(id), |at| cx.wall_time_of(at));
        let shape = &job.profile.shape;
        let services = self.unavailable_services(shape);
        if !services.is_empty() {
            reasons.push(Reason::RequiredServices { services });
        }
        reasons.extend(self.reservations.get(&id).map(|&(_, worker)| Reason::Reserved { worker }));
        let own = match self.reservations.get(&id) {
            Some(&(schedule, _)) => Some(Holder::Schedule(schedule)),
            None => self.job_reservations.contains_key(&id).then_some(Holder::Job(id)),
        };
        reasons.extend(self.job_reservation(id).map(|(reserved, mut victims)| {
            let JobReservation { worker, is_preemption, until, .. } = reserved;
            victims.truncate(VICTIMS_SHOWN);
            match is_preemption {
                true => Reason::Preempting { worker, victims },
                false => Reason::CapacityReserved { worker, until },
            }
        }));
        if self.workers.is_empty() {
            reasons.push(Reason::NoWorkers);
            return reasons;
        }
        if let Some(worker) = placement::best_of(shape, self.workers.values(), job.last_worker(), own) {
            if reasons.is_empty() {
                let waiting = self.queues.waiting_in(&job.profile.queue);
                if waiting > 1 && !self.queues.is_first(job.queued(id)) {
                    reasons.push(Reason::QueuedBehind { waiting });
                }
                reasons.push(Reason::Placeable { worker });
            }
            return reasons;
        }
        let workers = self.workers.values().take(WORKERS_SHOWN).map(|worker| WorkerMismatch {
            worker: worker.record.id,
            name: worker.record.name.clone(),
            failed_filters: OpenEnum::list(placement::ineligibility_reasons(shape, worker, own)),
        });
        let more = self.workers.len().saturating_sub(WORKERS_SHOWN);
        reasons.push(Reason::NoEligibleWorker {
            workers: workers.collect(),
            more: u64::try_from(more).unwrap_or(u64::MAX),
        });
        reasons
    }
}
