//! Checks for tests and the simulator: invariants, and the comparison of two engines over the same rows.
//!
//! An engine rebuilt from the committed rows must have the same state as the engine that committed them
//! (I28). State that a rebuilt engine cannot know is left out: sessions, leases, rate limits, fair shares,
//! and timers on the steady clock. [`Engine::check_invariants`] checks the timers on the wall clock.
//!
//! Each room checks and compares its own state, in a `check` module.

use std::fmt::{Debug, Display};

use crate::engine::Engine;

/// A difference between two engines, as text; a side that lacks the object is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// ID or name of the object.
    pub subject: String,
    /// State in this engine.
    pub here: String,
    /// State in the other engine.
    pub there: String,
}

impl Engine {
    /// Checks all invariants of the [crate's page](crate). Called after a flush.
    ///
    /// # Errors
    /// The first violation.
    ///
    /// # Cost
    /// Visits every live job.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.jobs.check_jobs(&self.cx)?;
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
            .or_else(|| self.schedules.schedule_difference(&other.schedules))
            .or_else(|| self.workflows.workflow_difference(&other.workflows))
    }
}

/// Returns the first object that differs.
pub(crate) fn first<K: Copy + Display, V: PartialEq + Debug>(
    here: impl IntoIterator<Item = (K, V)>,
    there: impl Fn(K) -> Option<V>,
) -> Option<Difference> {
    here.into_iter().find_map(|(key, here)| {
        let there = there(key);
        (there.as_ref() != Some(&here)).then(|| Difference {
            subject: key.to_string(),
            here: format!("{here:?}"),
            there: there.map_or_else(String::new, |there| format!("{there:?}")),
        })
    })
}

/// Compares numbers of objects. Everything here was found there; this finds objects that exist only there.
pub(crate) fn count_difference<const N: usize>(
    subject: &str,
    here: [usize; N],
    there: [usize; N],
) -> Option<Difference> {
    (here != there).then(|| Difference {
        subject: format!("numbers of {subject}"),
        here: format!("{here:?}"),
        there: format!("{there:?}"),
    })
}
