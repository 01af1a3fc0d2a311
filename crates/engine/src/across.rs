//! What concerns several layers of the engine: delivery of signals, and requests that read one layer and change
//! another.
//!
//! With `engine`, `restore`, `follower` and `check`, this is the code above all layers; see the
//! [crate's page](crate).

use std::collections::BTreeMap;
use std::sync::Arc;

use model::record::Change;
use model::workflow::{Definition, WorkflowSpec};
use model::{ExecutionId, Fence, Refusal, ScheduleId};

use crate::engine::Engine;
use crate::input::{NewJob, NewRun, ScheduleRequest, ServiceRequest, TaskRequest, Ticket, WorkflowRequest};
use crate::output::Reply;
use crate::signal::{JobEnded, Signal};

impl Engine {
    /// Delivers signals until none is left. A delivery may raise further signals.
    pub(crate) fn deliver_signals(&mut self) {
        while let Some(signal) = self.cx.next_signal() {
            self.deliver(signal);
        }
    }

    fn deliver(&mut self, signal: Signal) {
        let Self { cx, jobs, workflows, schedules, .. } = self;
        match signal {
            Signal::JobEnded(ended) => self.on_job_ended(ended),
            Signal::RunEnded { run, origin, end } => {
                schedules.on_run_ended(cx, workflows, jobs, run.into(), &origin, end)
            }
            Signal::ReplicaChanged(service) => self.services.want_reconcile(service),
            Signal::JobConfirmed(job) => schedules.on_run_confirmed(cx, workflows, jobs, job),
            Signal::WorkerJoined(worker) => {
                self.services.on_workers_changed();
                workflows.notify_broadcasts(cx, jobs, worker);
            }
            Signal::WorkerLost(worker) => {
                self.services.on_workers_changed();
                schedules.move_reservations(cx, jobs, worker);
            }
            Signal::AdmissionChanged => self.services.on_workers_changed(),
            Signal::ReservationUsed(schedule) => schedules.on_reservation_used(cx, jobs, schedule),
        }
    }

    /// The end of a job may free the next firing of its schedule, end the step that it belongs to, and start
    /// runs of workflows that listen to it.
    fn on_job_ended(&mut self, ended: JobEnded) {
        let Self { cx, jobs, workflows, schedules, .. } = self;
        let JobEnded { job: id, end, files } = ended;
        jobs.release_downstream(cx, id, end.status);
        let Some(job) = jobs.get(id) else { return };
        let (origin, step) = (job.origin.clone(), job.step.clone());
        if let Some(replica) = &job.replica {
            self.services.on_replica_ended(id, replica.service);
        }
        if let Some(origin) = origin {
            schedules.on_run_ended(cx, workflows, jobs, id.into(), &origin, end);
        }
        if let Some(step) = step {
            workflows.on_step_job_ended(cx, jobs, id, &step, files);
        }
        workflows.notify_listeners_of_job(cx, jobs, id, end.status);
    }

    /// Creates all jobs, or none if an idempotency key was used for a different request.
    pub(crate) fn submit(&mut self, ticket: Ticket, new: &[NewJob]) {
        if let Err(refusal) = self.check_new_jobs(new) {
            return self.cx.reply(ticket, Err(refusal));
        }
        let Self { cx, jobs, workflows, schedules, .. } = self;
        let mut submitted = Vec::with_capacity(new.len());
        for job in new {
            let created = jobs.submit_one(cx, job);
            if let Some(origin) = job.head.origin.as_ref().filter(|_| created.new) {
                schedules.adopt_run(cx, workflows, jobs, origin.schedule, created.job.into());
            }
            submitted.push(created);
        }
        self.cx.reply(ticket, Ok(Reply::Submitted(submitted)));
    }

    fn check_new_jobs(&self, new: &[NewJob]) -> Result<(), Refusal> {
        self.jobs.check_keys(new)?;
        let is_known = |job: &NewJob| job.key.is_some_and(|key| self.jobs.key(key.key).is_some());
        let mut waiting = BTreeMap::new();
        let mut created: BTreeMap<&str, u64> = BTreeMap::new();
        for (index, job) in new.iter().enumerate().filter(|(_, job)| !is_known(job)) {
            self.jobs.check_upstream_jobs(index, job, &mut waiting)?;
            self.jobs.check_class(&job.head.spec.namespace, job.head.spec.priority_class)?;
            let in_namespace = created.entry(&job.head.spec.namespace).or_default();
            *in_namespace += 1;
            self.jobs.check_job_limit(index, &job.head.spec.namespace, *in_namespace)?;
            if let Some(origin) = &job.head.origin {
                self.check_schedule(origin.schedule)?;
            }
        }
        Ok(())
    }

    /// A run that a user repeats counts towards the overlap limit of its schedule like any other run.
    fn check_schedule(&self, schedule: ScheduleId) -> Result<(), Refusal> {
        let limit = self.schedules.check_run_limit(&self.workflows, &self.jobs, schedule);
        limit.map_err(|(name, runs)| Refusal::ScheduleRunLimit { name, runs })
    }

    /// Starts a run that a user requested.
    fn start_run(&mut self, new: Box<NewRun>, actor: &Arc<str>) -> Result<Reply, Refusal> {
        let schedule = new.origin.as_ref().map(|origin| origin.schedule);
        let known = new.key.is_some_and(|key| self.workflows.key(key.key).is_some());
        if let Some(schedule) = schedule.filter(|_| !known) {
            self.check_schedule(schedule)?;
        }
        let Self { cx, jobs, workflows, schedules, .. } = self;
        let reply = workflows.handle(cx, jobs, WorkflowRequest::Start(new), actor)?;
        if let (Some(schedule), &Reply::RunStarted { run, new: true }) = (schedule, &reply) {
            schedules.adopt_run(cx, workflows, jobs, schedule, run.into());
        }
        Ok(reply)
    }

    /// Checks that the namespaces of workflows allow the priority classes of their jobs.
    fn check_classes(&self, request: &WorkflowRequest) -> Result<(), Refusal> {
        let specs: Vec<&WorkflowSpec> = match request {
            WorkflowRequest::Apply { workflows } => workflows.iter().map(|new| &*new.head.spec).collect(),
            WorkflowRequest::Start(new) => {
                let Definition { workflow, calls } = &*new.definition;
                [workflow].into_iter().chain(calls.values()).map(|spec| &**spec).collect()
            }
            _ => return Ok(()),
        };
        for spec in specs {
            self.jobs.check_class(&spec.namespace, spec.highest_priority_class())?;
        }
        Ok(())
    }

    /// Processes a request about workflows and runs, and sends exactly one reply.
    pub(crate) fn on_workflow_request(&mut self, ticket: Ticket, request: WorkflowRequest, actor: &Arc<str>) {
        if let Err(refusal) = self.check_classes(&request) {
            return self.cx.reply(ticket, Err(refusal));
        }
        let Self { cx, jobs, workflows, .. } = self;
        let reply = match request {
            WorkflowRequest::Start(new) => self.start_run(new, actor),
            WorkflowRequest::Cancel { run, .. } => {
                let cancelled = workflows.handle(cx, jobs, request, actor);
                // A job that has not started ends with this request, and so may its run.
                self.deliver_signals();
                cancelled.and_then(|_| self.workflows.run_reply(run))
            }
            WorkflowRequest::Mark { run, ref step, .. } => {
                let number = workflows.find_step(run, step);
                let marked = workflows.handle(cx, jobs, request, actor);
                self.deliver_signals();
                marked.and(number).and_then(|step| self.workflows.step_reply(run, step))
            }
            request => workflows.handle(cx, jobs, request, actor),
        };
        self.cx.reply(ticket, reply);
    }

    /// Processes a request about services, and sends exactly one reply.
    pub(crate) fn on_service_request(&mut self, ticket: Ticket, request: ServiceRequest, actor: &Arc<str>) {
        let Self { cx, jobs, services, .. } = self;
        let reply = services.handle(cx, jobs, request, actor);
        cx.reply(ticket, reply);
    }

    /// Processes a request about schedules, and sends exactly one reply.
    pub(crate) fn on_schedule_request(&mut self, ticket: Ticket, request: ScheduleRequest, actor: &Arc<str>) {
        let Self { cx, jobs, workflows, schedules, .. } = self;
        let reply = schedules.handle(cx, workflows, jobs, request, actor);
        cx.reply(ticket, reply);
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
        let purged = self.jobs.retain_keys(|key| key.expires_at > now);
        if self.workflows.retain_keys(|key| key.expires_at > now) || purged {
            for shard in self.cx.owned.clone() {
                self.cx.write(Change::PurgeKeys { shard, expired_before: now });
            }
        }
        self.arm_key_purge();
    }
}
