//! Restore: an engine is rebuilt from live rows at the start of a server and after a takeover.
//!
//! The driver calls [`Engine::restore`] for each row and then [`Engine::start`] once. A row that contradicts
//! the others is returned as [`Poison`], and the driver quarantines it.
//!
//! # Invariants
//! - A restored engine equals the engine that committed the rows ([`Engine::difference`] is `None`).
//! - Every worker has a full lease to reconnect before it is declared lost.
//!
//! # Cost
//! O(log n) per row, and one visit of each running job, each run and each schedule with pending work at the
//! start.

use model::record::LiveRow;
use model::{Duration, ShardId, Timestamp};

use crate::clock::Now;
use crate::engine::Engine;
use crate::jobs::OrphanedExecution;
use crate::poison::Poison;

impl Engine {
    /// Restores one live row. Order: jobs before their executions; runs, then batches of elements, then
    /// steps, then elements of steps.
    ///
    /// # Errors
    /// [`Poison`] for a row that contradicts the others; the engine does not change.
    pub fn restore(&mut self, row: LiveRow) -> Result<(), Poison> {
        match row {
            LiveRow::Job { id, head, state } => self.jobs.restore_job(&mut self.cx, id, head, *state),
            LiveRow::Execution(record) => self.jobs.restore_execution(*record),
            LiveRow::Key(key) => {
                self.jobs.insert_key(key);
                Ok(())
            }
            LiveRow::Worker(record) => {
                self.jobs.restore_worker(record);
                Ok(())
            }
            LiveRow::Queue(record) => {
                self.jobs.restore_queue(&self.cx, &record);
                Ok(())
            }
            LiveRow::Namespace(record) => {
                self.jobs.restore_namespace(&record);
                Ok(())
            }
            LiveRow::Calendar(record) => {
                self.schedules.restore_calendar(record);
                Ok(())
            }
            LiveRow::Schedule { id, head, state } => {
                self.schedules.restore_schedule(&mut self.cx, id, &head, *state);
                Ok(())
            }
            LiveRow::Backfill { head, state } => {
                let backfill = head.id;
                self.schedules
                    .restore_backfill(&mut self.cx, head, state)
                    .map_err(|reason| Poison::Backfill { backfill, reason })
            }
            LiveRow::Workflow { id, head, state } => {
                self.workflows.restore_workflow(&mut self.cx, id, &head, state);
                Ok(())
            }
            LiveRow::Service { id, head, state } => {
                self.services.restore_service(&mut self.cx, id, head, *state);
                Ok(())
            }
            LiveRow::Run { id, head, state } => self
                .workflows
                .restore_run(&mut self.cx, id, head, *state)
                .map_err(|reason| Poison::Run { run: id, reason }),
            LiveRow::RunKey(key) => {
                self.workflows.insert_key(key);
                Ok(())
            }
            LiveRow::ElementBatch(batch) => {
                let (run, step) = (batch.key.run, batch.key.step);
                self.workflows.restore_batch(&batch).map_err(|reason| Poison::Step { run, step, reason })
            }
            LiveRow::Step(record) => {
                let (run, step) = (record.key.run, record.key.step);
                self.workflows.restore_step(*record).map_err(|reason| Poison::Step { run, step, reason })
            }
        }
    }

    /// Sets engine time to that of the newest commit, so that it never runs backwards. Called before
    /// [`start`](Self::start).
    pub fn resume_from(&mut self, committed: Timestamp) {
        self.cx.now = self.cx.now.max(committed);
    }

    /// Declares that the last commits of these shards may be lost. Called after all rows are restored and
    /// before [`start`](Self::start).
    pub fn assume_lost_commits(&mut self, shards: &[ShardId]) {
        self.jobs.assume_lost_commits(shards);
    }

    /// Returns whether jobs are held back because of [`assume_lost_commits`](Self::assume_lost_commits).
    pub fn is_reconciling(&self) -> bool {
        self.jobs.is_reconciling()
    }

    /// Returns the executions that workers turned out to hold since the last call, and that the store has
    /// lost or lists as ended. A stop was sent for the running ones.
    pub fn take_orphaned_executions(&mut self) -> Vec<OrphanedExecution> {
        self.jobs.take_orphaned_executions()
    }

    /// Sets for how long another owner of the shards may still renew worker leases. Workers that do not
    /// connect to this server are lost only after such a lease has ended. Called immediately before
    /// [`start`](Self::start).
    pub fn set_former_owner_lease(&mut self, former_owner: Duration) {
        self.jobs.set_former_owner_lease(former_owner);
    }

    /// Starts the engine from the restored rows: continues running jobs, finds missed firings, and ends work
    /// that nothing else would end. Every worker gets a full lease to reconnect. Called once, after the last
    /// row.
    pub fn start(&mut self, now: impl Into<Now>) {
        let now = now.into();
        if self.cx.now > Timestamp::default() {
            self.cx.resumed_from = Some((self.cx.now, now.steady));
        }
        self.cx.clock_filter.begin(now, self.cx.now);
        self.cx.now = self.cx.now.max(now.wall);
        self.cx.steady = self.cx.steady.max(now.steady);
        self.started = true;
        self.jobs.start_reconciliation(&mut self.cx);
        self.jobs.restart_rates(&self.cx);
        self.schedules.find_runs(&self.workflows, &self.jobs);
        self.workflows.find_work(&self.jobs);
        self.services.find_replicas(&self.jobs);
        self.services.resume(self.cx.now);
        self.jobs.resume_executions(&mut self.cx);
        self.deliver_signals();
        self.schedules.start_schedules(&mut self.cx, &mut self.workflows, &mut self.jobs);
        self.deliver_signals();
        self.workflows.start_runs(&mut self.cx, &mut self.jobs);
        self.deliver_signals();
        self.arm_key_purge();
        self.jobs.arm_sample(&mut self.cx);
        self.jobs.capacity_changed();
    }
}
