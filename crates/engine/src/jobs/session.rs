//! Sessions: a worker connects or disconnects.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::record::WorkerRecord;
use model::worker::{Admission, WorkerStatus};
use model::{Duration, ExecutionId, JobId, StopReason, WorkerId};
use mutation::{Mutation, is_on};

use crate::context::Context;
use crate::input::{Held, Join, Session};
use crate::jobs::Jobs;
use crate::output::Effect;
use crate::signal::Signal;
use crate::workers::Worker;

impl Jobs {
    /// Opens a session; any previous session of the worker ends.
    ///
    /// Executions that the worker holds but nothing needs are stopped; assignments that its journal lacks are
    /// sent again. The worker's journal makes both safe: it starts a fence at most once.
    pub(crate) fn join(&mut self, cx: &mut Context, join: Join) {
        let Join { worker: id, session, ref held, .. } = join;
        let effects = Effect::Welcome {
            worker: id,
            session,
            heartbeat_interval: cx.config.heartbeat_interval,
            lease: cx.config.lease,
        };
        cx.send(effects);
        let held = held.clone();
        self.open_session(cx, join);
        self.grant_lease(cx, id);
        self.reconcile_journal(cx, id, session, &held);
        self.notify_services_on(cx, id);
        self.capacity_changed();
    }

    fn open_session(&mut self, cx: &mut Context, join: Join) {
        let now = cx.now;
        let id = join.worker;
        let known = self.workers.get(&id).map(|worker| &worker.record);
        let record = WorkerRecord {
            id,
            name: join.name,
            version: join.version,
            address: join.address,
            labels: join.labels,
            capacity: join.capacity,
            capabilities: join.capabilities,
            status: WorkerStatus::Ready,
            admission: known.map_or(Admission::Open, |known| known.admission),
            created_at: known.map_or(now, |known| known.created_at),
            updated_at: known.map_or(now, |known| known.updated_at),
            last_heartbeat_at: None,
        };
        let worker = self.workers.get_or_insert_with(id, || Worker::new(Arc::new(record.clone())));
        let fresh = worker.heard_at.is_none() && worker.record.created_at == now;
        worker.session = Some(join.session);
        worker.heard_at = Some(now);
        if fresh || *worker.record != record {
            worker.record = Arc::new(WorkerRecord { updated_at: now, ..record });
            cx.write_worker(&worker.record);
            cx.raise(Signal::WorkerJoined(id));
        }
    }

    /// Reconciles the executions that the worker holds with those that the engine assigned to it.
    fn reconcile_journal(&mut self, cx: &mut Context, id: WorkerId, session: Session, held: &[Held]) {
        let held: BTreeMap<ExecutionId, Held> = held.iter().map(|held| (held.execution, *held)).collect();
        self.settle_unknown(cx, id, &held);
        for (&execution, entry) in &held {
            let wanted = self
                .live_execution(execution)
                .filter(|&(_, fence, worker)| fence == entry.fence && worker == id);
            if let Some((job, ..)) = wanted.filter(|_| entry.running) {
                cx.raise(Signal::JobConfirmed(job));
            }
            if wanted.is_some() || is_on(Mutation::EngineIgnoresStrayExecutions) {
                continue;
            }
            self.record_orphan(*entry, id);
            if entry.running {
                cx.send(Effect::Stop {
                    worker: id,
                    session,
                    execution,
                    fence: entry.fence,
                    grace: Duration::ZERO,
                    discard: true,
                    reason: StopReason::Superseded,
                });
            }
        }
        let jobs: Vec<JobId> =
            self.workers.get(&id).map(|w| w.jobs.iter().copied().collect()).unwrap_or_default();
        let mut missing = Vec::new();
        for job in jobs {
            self.end_needless_preemption(cx, job);
            let live = self.all.get(&job).and_then(|job| Some((job.is_stopping(), job.live.as_ref()?)));
            let Some((stops, live)) = live else { continue };
            let heard = live.record.status != model::ExecutionStatus::Assigned;
            if (stops || self.is_evicted(job)) && !is_on(Mutation::EngineSendsNoStop) {
                self.send_stop(cx, job);
            } else if !held.contains_key(&live.record.id) {
                // The execution was reported as started, but the journal no longer has it: it must not start
                // again. A delayed hello message also lacks executions that started after it was sent. So
                // this is only accepted once a heartbeat proves that the session is alive.
                if heard {
                    missing.push((job, live.record.id));
                    continue;
                }
                if !is_on(Mutation::EngineSendsAssignmentsOnce) {
                    self.send_assignment(cx, job);
                }
                cx.raise(Signal::JobConfirmed(job));
            }
        }
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.unconfirmed = missing;
        }
    }

    /// Ends the executions that the journal does not have, now that a heartbeat has proved the session alive.
    pub(crate) fn end_unconfirmed(&mut self, cx: &mut Context, id: WorkerId) {
        let missing = self.workers.get_mut(&id).map(|worker| std::mem::take(&mut worker.unconfirmed));
        for (job, execution) in missing.unwrap_or_default() {
            if self.live_execution(execution).is_some_and(|(live, ..)| live == job) {
                self.on_execution_unknown_to_worker(cx, job);
                cx.raise(Signal::JobConfirmed(job));
            }
        }
    }

    /// Closes a session. The worker keeps its lease: only the end of the lease makes it lost.
    pub(crate) fn disconnect(&mut self, id: WorkerId, session: Session) {
        if let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.session == Some(session)) {
            worker.session = None;
        }
    }
}
