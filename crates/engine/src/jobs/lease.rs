//! Leases: heartbeats renew a worker's lease; a worker whose lease has ended is lost.
//!
//! A lease is renewed if two conditions hold. The heartbeat belongs to the worker's current session
//! ([`Jobs::heartbeat`]), and the leadership lease of this server is valid: the crate `leader` sends the
//! grant only then (`renew_worker_leases` in `leader::lead`).
//!
//! The worker counts its lease from the *sending* of a heartbeat. The engine counts from its *receipt* and
//! waits longer, for clock drift and for the fuse. So a worker that is declared lost here has already frozen
//! its tasks.

use std::sync::Arc;

use model::record::WorkerRecord;
use model::worker::{Health, WorkerStatus};
use model::{Duration, JobId, Timestamp, WorkerId};
use mutation::{Mutation, is_on};

use crate::context::Context;
use crate::input::Session;
use crate::jobs::Jobs;
use crate::output::Effect;
use crate::signal::Signal;
use crate::timer::Timer;

impl Jobs {
    /// Answers a heartbeat: grants a lease to the worker's current session, and a lease of zero to any other
    /// session, so that the worker opens a new one.
    pub(crate) fn heartbeat(
        &mut self,
        cx: &mut Context,
        id: WorkerId,
        session: Session,
        seq: u64,
        health: Health,
    ) {
        let lease = cx.config.lease;
        let known = self.workers.get_mut(&id).filter(|worker| worker.session == Some(session));
        let Some(worker) = known else {
            let lease = Duration::ZERO;
            return cx.grant(Effect::Grant { worker: id, session, seq, lease });
        };
        let recovered = worker.health.problem.is_some() && health.problem.is_none();
        let failed = worker.health.problem.is_none() && health.problem.is_some();
        worker.health = health;
        worker.heard_at = Some(cx.now);
        cx.grant(Effect::Grant { worker: id, session, seq, lease });
        self.grant_lease(cx, id);
        self.end_unconfirmed(cx, id);
        if recovered {
            self.capacity_changed();
        }
        if failed && !self.job_reservations.is_empty() {
            // Jobs with a reservation on the worker look for another one.
            self.workers_changed = true;
            self.dispatch_wanted = true;
        }
    }

    /// Grants a full lease from now, and arms the timer of its end.
    pub(crate) fn grant_lease(&mut self, cx: &mut Context, id: WorkerId) {
        let until = cx.steady + self.lease_with_margin(cx);
        if let Some(worker) = self.workers.get_mut(&id) {
            let armed = worker.lease_until > cx.steady;
            worker.extended_by = Duration::ZERO;
            worker.lease_until = worker.lease_until.max(until);
            if !armed {
                cx.steady_timers.arm(worker.lease_until, Timer::Lease(id));
            }
        }
    }

    /// Returns how long after the receipt of a heartbeat the worker has certainly frozen its tasks.
    pub(crate) fn lease_with_margin(&self, cx: &Context) -> Duration {
        if is_on(Mutation::EngineExpiresLeasesEarly) {
            return Duration::from_millis(cx.config.lease.as_millis() / 2);
        }
        let drift = Duration::from_millis(cx.config.lease.as_millis() / 100);
        cx.config.lease + drift + cx.config.lease_margin
    }

    /// Returns how long after the start a worker that has not connected has certainly frozen its tasks.
    pub(crate) fn first_lease(&self, cx: &Context) -> Duration {
        self.former_owner_lease + self.lease_with_margin(cx)
    }

    /// Handles a lease timer: arms it again if the lease was renewed meanwhile, otherwise the worker is lost.
    pub(crate) fn on_lease(&mut self, cx: &mut Context, id: WorkerId) {
        let Some(worker) = self.workers.get(&id) else { return };
        if worker.record.status == WorkerStatus::Lost {
            return;
        }
        if worker.lease_until > cx.steady {
            return cx.steady_timers.arm(worker.lease_until, Timer::Lease(id));
        }
        self.lose_worker(cx, id);
    }

    fn lose_worker(&mut self, cx: &mut Context, id: WorkerId) {
        let now = cx.now;
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.session = None;
        worker.lease_until = cx.steady;
        worker.record = Arc::new(WorkerRecord {
            status: WorkerStatus::Lost,
            updated_at: now,
            last_heartbeat_at: worker.heard_at.or(worker.record.last_heartbeat_at).or(Some(now)),
            ..(*worker.record).clone()
        });
        cx.write_worker(&worker.record);
        self.release_job_reservations_on(id);
        // Preemptions wait for workers that may reconnect after a start.
        self.capacity_changed();
        let Some(worker) = self.workers.get(&id) else { return };
        let jobs: Vec<JobId> = worker.jobs.iter().copied().collect();
        if !is_on(Mutation::EngineKeepsJobsOfLostWorkers) {
            jobs.into_iter().for_each(|job| self.on_lease_ended(cx, job));
        }
        cx.raise(Signal::WorkerLost(id));
    }

    /// Extends all leases after a delay of the engine itself: silence during the delay does not count. The
    /// extension of one silence is bounded, so that a server that is always late does not keep lost workers
    /// alive.
    pub(crate) fn extend_leases(&mut self, cx: &Context, held_up: Duration) {
        let most = cx.config.lease.as_millis().saturating_mul(10);
        for (_, worker) in self.workers.iter_mut().filter(|(_, w)| w.record.status != WorkerStatus::Lost) {
            let left = most.saturating_sub(worker.extended_by.as_millis());
            // One long stall is forgiven completely: heartbeats are queued behind it.
            let granted = if worker.extended_by == Duration::ZERO {
                held_up.as_millis()
            } else {
                held_up.as_millis().min(left)
            };
            worker.extended_by = worker.extended_by + held_up;
            worker.lease_until = worker.lease_until + Duration::from_millis(granted);
        }
    }

    /// Makes a worker available again after a refusal.
    pub(crate) fn on_declined(&mut self, cx: &Context, id: WorkerId) {
        let now = cx.steady;
        if let Some(worker) =
            self.workers.get_mut(&id).filter(|w| w.declined_until.is_some_and(|at| at <= now))
        {
            worker.declined_until = None;
            self.capacity_freed(id);
        }
    }

    /// Places no execution on a worker for a moment after a refusal.
    pub(crate) fn pause_placement(&mut self, cx: &mut Context, id: WorkerId) {
        const PAUSE: Duration = Duration::from_secs(1);
        let until: Timestamp = cx.steady + PAUSE;
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.declined_until = Some(until);
            cx.steady_timers.arm(until, Timer::Declined(id));
        }
    }
}
