//! What concerns several rooms of the engine: delivery of signals, and requests that read one room and change
//! another.
//!
//! This is the only module that knows all rooms; see the [crate's page](crate) for their layers.

use std::sync::Arc;

use model::record::Change;
use model::{ExecutionId, Fence, Refusal, ScheduleId};

use crate::engine::Engine;
use crate::input::{NewJob, NewRun, ScheduleRequest, TaskRequest, Ticket, WorkflowRequest};
use crate::output::Reply;
use crate::signal::{JobEnded, Signal};

impl Engine {
    /// Delivers signals until none is left. A delivery may raise further signals.
    pub(crate) fn settle(&mut self) {
        while let Some(signal) = self.cx.pending.signals.pop_front() {
            match signal {
                Signal::JobEnded(ended) => self.on_job_ended(ended),
                Signal::RunEnded { run, origin, end } => self.schedules.on_run_ended(
                    &mut self.cx,
                    &mut self.workflows,
                    &mut self.jobs,
                    run.into(),
                    &origin,
                    end,
                ),
                Signal::JobConfirmed(job) => {
                    self.schedules.on_run_confirmed(&mut self.cx, &self.workflows, &mut self.jobs, job)
                }
                Signal::WorkerJoined(worker) => {
                    self.workflows.notify_broadcasts(&mut self.cx, &self.jobs, worker)
                }
                Signal::WorkerLost(worker) => {
                    self.schedules.move_reservations(&mut self.cx, &mut self.jobs, worker)
                }
                Signal::ReservationUsed(schedule) => {
                    self.schedules.on_reservation_used(&mut self.cx, &mut self.jobs, schedule)
                }
            }
        }
    }

    /// The end of a job may free the next firing of its schedule, end the step that it belongs to, and start
    /// runs of workflows that listen to it.
    fn on_job_ended(&mut self, ended: JobEnded) {
        let JobEnded { job: id, end, files } = ended;
        let Some(job) = self.jobs.get(id) else { return };
        let (origin, step) = (job.origin.clone(), job.step.clone());
        if let Some(origin) = origin {
            self.schedules.on_run_ended(
                &mut self.cx,
                &mut self.workflows,
                &mut self.jobs,
                id.into(),
                &origin,
                end,
            );
        }
        if let Some(step) = step {
            self.workflows.on_step_job_ended(&mut self.cx, &mut self.jobs, id, &step, files);
        }
        self.workflows.notify_listeners_of_job(&mut self.cx, &mut self.jobs, id, end.status);
    }

    /// Creates all jobs, or none if an idempotency key was used for a different request.
    pub(crate) fn submit(&mut self, ticket: Ticket, jobs: &[NewJob]) {
        let checked = self.jobs.check_keys(jobs).and_then(|()| {
            let is_known = |job: &NewJob| job.key.is_some_and(|key| self.jobs.keys.contains_key(&key.key));
            let new = jobs.iter().filter(|job| !is_known(job));
            let mut schedules = new.filter_map(|job| job.head.origin.as_ref()).map(|origin| origin.schedule);
            schedules.try_for_each(|schedule| self.check_schedule(schedule))
        });
        if let Err(refusal) = checked {
            return self.cx.reply(ticket, Err(refusal));
        }
        let mut submitted = Vec::with_capacity(jobs.len());
        for job in jobs {
            let created = self.jobs.submit_one(&mut self.cx, job);
            if let Some(origin) = job.head.origin.as_ref().filter(|_| created.new) {
                self.schedules.adopt_run(
                    &mut self.cx,
                    &self.workflows,
                    &mut self.jobs,
                    origin.schedule,
                    created.job.into(),
                );
            }
            submitted.push(created);
        }
        self.cx.reply(ticket, Ok(Reply::Submitted(submitted)));
    }

    /// A run that a user repeats counts towards the overlap limit of its schedule like any other run.
    fn check_schedule(&self, schedule: ScheduleId) -> Result<(), Refusal> {
        self.schedules
            .check_run_limit(&self.workflows, &self.jobs, schedule)
            .map_err(|(name, runs)| Refusal::ScheduleRunLimit { name, runs })
    }

    /// Starts a run that a user requested.
    fn start_requested_run(&mut self, new: Box<NewRun>, actor: &Arc<str>) -> Result<Reply, Refusal> {
        let schedule = new.origin.as_ref().map(|origin| origin.schedule);
        let known = new.key.is_some_and(|key| self.workflows.keys.contains_key(&key.key));
        if let Some(schedule) = schedule.filter(|_| !known) {
            self.check_schedule(schedule)?;
        }
        let reply = self.workflows.on_request_for_workflows(
            &mut self.cx,
            &mut self.jobs,
            WorkflowRequest::Start(new),
            actor,
        )?;
        if let (Some(schedule), &Reply::RunStarted { run, new: true }) = (schedule, &reply) {
            self.schedules.adopt_run(&mut self.cx, &self.workflows, &mut self.jobs, schedule, run.into());
        }
        Ok(reply)
    }

    /// Processes a request about workflows and runs, and sends exactly one reply.
    pub(crate) fn on_workflow_request(&mut self, ticket: Ticket, request: WorkflowRequest, actor: &Arc<str>) {
        let reply = match request {
            WorkflowRequest::Start(new) => self.start_requested_run(new, actor),
            WorkflowRequest::Cancel { run, .. } => {
                let cancelled =
                    self.workflows.on_request_for_workflows(&mut self.cx, &mut self.jobs, request, actor);
                // A job that has not started ends with this request, and so may its run.
                self.settle();
                cancelled.and_then(|_| self.workflows.run_reply(run))
            }
            WorkflowRequest::Mark { run, ref step, .. } => {
                let number = self.workflows.find_step(run, step);
                let marked =
                    self.workflows.on_request_for_workflows(&mut self.cx, &mut self.jobs, request, actor);
                self.settle();
                marked.and(number).and_then(|step| self.workflows.step_reply(run, step))
            }
            request => self.workflows.on_request_for_workflows(&mut self.cx, &mut self.jobs, request, actor),
        };
        self.cx.reply(ticket, reply);
    }

    /// Processes a request about schedules, and sends exactly one reply.
    pub(crate) fn on_schedule_request(&mut self, ticket: Ticket, request: ScheduleRequest, actor: &Arc<str>) {
        let triggered = match request {
            ScheduleRequest::Trigger { schedule, .. } => Some(schedule),
            _ => None,
        };
        let mut reply = self.schedules.on_request_for_schedules(
            &mut self.cx,
            &mut self.workflows,
            &mut self.jobs,
            request,
            actor,
        );
        if let Some(schedule) = triggered {
            self.settle();
            reply = reply.map(|reply| self.schedules.triggered(schedule, reply));
        }
        self.cx.reply(ticket, reply);
    }

    /// Processes a request of a running task. Replies only if there is a ticket.
    pub(crate) fn on_task_request(
        &mut self,
        ticket: Option<Ticket>,
        execution: ExecutionId,
        fence: Fence,
        request: TaskRequest,
    ) {
        let current = self.jobs.live_execution(execution).filter(|(_, known, _)| *known == fence);
        let reply = match (current, request) {
            (None, _) => Err(Refusal::ExecutionNotCurrent { execution }),
            (Some((job, ..)), TaskRequest::SaveCheckpoint { content_type, data, hash, expected_version }) => {
                self.jobs.save_checkpoint(&mut self.cx, job, content_type, data, hash, expected_version)
            }
            (Some((job, ..)), TaskRequest::AddElements { step, batch, elements }) => {
                self.workflows.add_elements(&self.cx, &self.jobs, job, step.as_deref(), &batch, elements)
            }
        };
        if let Some(ticket) = ticket {
            self.cx.reply(ticket, reply);
        }
    }

    /// Removes expired idempotency keys of jobs and runs.
    pub(crate) fn purge_keys(&mut self) {
        let now = self.cx.purge_before();
        let before = self.jobs.keys.len() + self.workflows.keys.len();
        self.jobs.keys.retain(|_, key| key.expires_at > now);
        self.workflows.keys.retain(|_, key| key.expires_at > now);
        if self.jobs.keys.len() + self.workflows.keys.len() < before {
            let forget = self.cx.owned.iter().map(|&shard| Change::PurgeKeys { shard, expired_before: now });
            self.cx.pending.others.extend(forget);
        }
        self.arm_key_purge();
    }
}
