//! Checks for tests and the simulator: invariants, and the comparison of two engines over the same rows.
//!
//! An engine rebuilt from the committed rows must have the same state as the engine that committed them
//! (I28). State that a rebuilt engine cannot know is left out: sessions, leases, rate limits, fair shares,
//! and timers on the steady clock. [`Engine::check_invariants`] checks the timers on the wall clock.
//!
//! Each layer checks and compares its own state, in a `check` module.

use crate::difference::Difference;
use crate::engine::Engine;

impl Engine {
    /// Checks all invariants of the [crate's page](crate). Called after a flush.
    ///
    /// # Errors
    /// The first violation.
    ///
    /// # Cost
    /// Visits every live job.
    pub fn check_invariants(&self) -> Result<(), String> {
        if self.cx.has_signals() {
            return Err("a signal was not delivered".into());
        }
        self.jobs.check_jobs(&self.cx)?;
        self.services.check_services(&self.cx, &self.jobs)?;
        self.schedules.check_schedules(&self.cx, &self.workflows, &self.jobs)?;
        self.workflows.check_workflows(&self.cx, &self.jobs)
    }

    /// Returns the first difference from another engine over the same rows. Called after a flush of both
    /// engines.
    ///
    /// # Cost
    /// Compares every live row: for the simulator and tests only.
    pub fn difference(&self, other: &Self) -> Option<Difference> {
        self.jobs
            .job_difference(&other.jobs)
            .or_else(|| self.services.service_difference(&other.services))
            .or_else(|| self.schedules.schedule_difference(&other.schedules))
            .or_else(|| self.workflows.workflow_difference(&other.workflows))
    }
}
