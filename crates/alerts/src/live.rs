//! What changes between events: live jobs that may be late or slow, degraded services, and periods of silences.

use std::collections::{BTreeMap, BTreeSet};

use model::{JobId, ServiceId, Timestamp};

use crate::rows::{Name, OpenKey};

/// Phase of a job that a rule limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// In a queue, or assigned and not started.
    Waiting,
    /// Started.
    Running,
}

impl Phase {
    /// Returns the name of the condition that limits it.
    pub(crate) const fn condition(self) -> &'static str {
        match self {
            Self::Waiting => "job_late",
            Self::Running => "job_slow",
        }
    }
}

/// Degraded services, by namespace and name.
pub(crate) type DegradedServices = BTreeMap<(String, String), Degraded>;

/// A service with fewer available replicas than desired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Degraded {
    pub(crate) id: ServiceId,
    pub(crate) since: Timestamp,
}

/// Live jobs of the watched namespaces.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) jobs: BTreeMap<JobId, Live>,
    /// Jobs whose rows were requested for the next call.
    pub(crate) requested: BTreeSet<JobId>,
    /// Jobs of open alerts that are still late or slow.
    pub(crate) holds: BTreeMap<OpenKey, BTreeSet<JobId>>,
}

impl Watched {
    /// Forgets which jobs hold alerts of a rule open.
    pub(crate) fn forget(&mut self, rule: &Name) {
        self.holds.retain(|(of, _), _| of != rule);
        for live in self.jobs.values_mut() {
            live.alerts.retain(|(of, _)| of != rule);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) namespace: String,
    pub(crate) phase: Phase,
    pub(crate) since: Timestamp,
    /// Alerts that this job holds open.
    pub(crate) alerts: Vec<OpenKey>,
}

/// A live job, from the rows of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveJob {
    /// ID of the job.
    pub id: JobId,
    /// Namespace of the job.
    pub namespace: String,
    /// Current phase.
    pub phase: Phase,
    /// Beginning of the phase.
    pub since: Timestamp,
}

/// Time in which a recurring silence is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period {
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
}
