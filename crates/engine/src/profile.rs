//! Scheduling properties of a job spec, shared by all jobs with the same properties.
//!
//! A million waiting jobs usually have a few profiles, so each job keeps a pointer instead of its parsed
//! spec. A [`Shape`] is the part that decides which workers are eligible: a worker is eligible for all jobs
//! of a shape or for none. The priority class belongs to it, because a reservation excludes only jobs of the same and of
//! lower classes.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::{IndexMap, IndexSet};
use model::spec::{
    Constraint, Delivery, Enforcement, JobSpec, Placement, PriorityClass, RetryPolicy, SandboxLevel,
};
use model::{Bytes, Duration, Millicores};

use crate::names::name_hash;

/// Requirements of a job on its worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Shape {
    pub(crate) class: PriorityClass,
    pub(crate) runtime: &'static str,
    pub(crate) cpu: Millicores,
    pub(crate) memory: Bytes,
    pub(crate) custom: BTreeMap<String, u64>,
    /// Limits that the worker must be able to enforce.
    pub(crate) memory_limit: bool,
    pub(crate) cpu_limit: bool,
    pub(crate) pids_limit: bool,
    /// Whether the job has ports or health checks, which the worker must support.
    pub(crate) health_checks: bool,
    /// Level of the sandbox that the worker must support.
    pub(crate) sandbox: SandboxLevel,
    /// Names of the volumes that the worker must have.
    pub(crate) volumes: Vec<String>,
    pub(crate) constraints: Vec<Constraint>,
    pub(crate) placement: Placement,
    pub(crate) spread: Option<Box<Group>>,
    /// Services that must be available. They do not depend on the worker: see [`crate::jobs`].
    pub(crate) requires: Vec<RequiredService>,
}

/// A service that must have enough available replicas before a job starts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequiredService {
    /// Hash of its namespace and name.
    pub(crate) key: u128,
    pub(crate) service: Box<str>,
    pub(crate) min_available: u32,
}

impl RequiredService {
    fn all_of(spec: &JobSpec) -> Vec<Self> {
        let of = |required: &model::spec::RequiredService| Self {
            key: name_hash(&spec.namespace, &required.service),
            service: required.service.as_str().into(),
            min_available: required.min_available,
        };
        spec.requires.iter().map(of).collect()
    }
}

/// Running jobs that are distributed over workers, as a job of the group sees it ([`model::spec::JobSpread`]).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Group {
    /// Hash of the namespace and the name of the jobs.
    pub(crate) key: u128,
    /// Label whose values are compared first.
    pub(crate) over: Option<String>,
    /// Maximum number of jobs of the group on one worker.
    pub(crate) max_per_worker: Option<u32>,
}

impl Group {
    fn of(spec: &JobSpec) -> Option<Box<Self>> {
        let spread = spec.spread.as_deref()?.clone();
        let key = name_hash(&spec.namespace, &spec.name);
        Some(Box::new(Self { key, over: spread.over, max_per_worker: spread.max_per_worker }))
    }
}

/// Scheduling properties of a spec.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Profile {
    pub(crate) namespace: Arc<str>,
    pub(crate) queue: Arc<str>,
    pub(crate) priority: u8,
    pub(crate) shape: Arc<Shape>,
    /// ID of the shape; equal shapes have equal ids.
    pub(crate) shape_id: u64,
    pub(crate) retry: RetryPolicy,
    pub(crate) grace: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) delivery: Delivery,
    pub(crate) retention: Option<Duration>,
}

impl Profile {
    /// Returns the longest time that an execution may take: its timeout and its grace period. `None` without a timeout.
    pub(crate) fn run_time_max(&self) -> Option<Duration> {
        self.timeout.map(|timeout| timeout + self.grace)
    }
}

// Validation ensures that its floats are numbers.
impl Eq for Profile {}

impl Hash for Profile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.namespace, &self.queue, self.priority, self.shape_id).hash(state);
        (self.grace, self.timeout, self.delivery, self.retention).hash(state);
        (self.retry.max_retries, self.retry.max_start_retries, self.retry.max_lost).hash(state);
        let backoff = &self.retry.backoff;
        (backoff.initial, backoff.max, backoff.factor.to_bits(), backoff.jitter.to_bits()).hash(state);
        backoff.delays.hash(state);
        (&self.retry.retry_exit_codes, &self.retry.final_exit_codes).hash(state);
    }
}

/// Prefix of the custom resource that stands for a fixed port. No resource of a user has it, because their names have no
/// colon. Every worker has one of each ([`port_of`]).
const PORT: &str = "port:";

/// Returns the custom resources of a job, with one for each fixed port: two jobs with the same port exclude each other
/// like two jobs that need the same licence.
fn with_fixed_ports(spec: &JobSpec) -> BTreeMap<String, u64> {
    let ports = spec.ports.iter().filter_map(|port| port.port);
    let ports = ports.map(|port| (format!("{PORT}{port}"), 1));
    spec.resources.custom.clone().into_iter().chain(ports).collect()
}

/// Returns the port that a custom resource stands for, if it stands for one.
pub(crate) fn port_of(resource: &str) -> Option<u16> {
    resource.strip_prefix(PORT)?.parse().ok()
}

/// Profiles and shapes in use, each once.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    profiles: IndexSet<Arc<Profile>, FixedState>,
    shapes: IndexMap<Arc<Shape>, u64, FixedState>,
    next_shape: u64,
    /// Number of profiles at which unused ones are dropped.
    sweep_at: usize,
}

impl Profiles {
    /// Returns the profile of a spec.
    pub(crate) fn of(&mut self, spec: &JobSpec) -> Arc<Profile> {
        let (shape, shape_id) = self.shape(spec);
        let profile = Profile {
            namespace: spec.namespace.as_str().into(),
            queue: spec.queue.as_str().into(),
            priority: spec.priority,
            shape,
            shape_id,
            retry: spec.retry.clone(),
            grace: spec.grace,
            timeout: spec.timeout,
            delivery: spec.delivery,
            retention: spec.retention,
        };
        if let Some(known) = self.profiles.get(&profile) {
            return Arc::clone(known);
        }
        self.sweep();
        let profile = Arc::new(profile);
        self.profiles.insert(Arc::clone(&profile));
        profile
    }

    fn shape(&mut self, spec: &JobSpec) -> (Arc<Shape>, u64) {
        let resources = &spec.resources;
        let required = resources.limits.enforcement == Enforcement::Required;
        let shape = Shape {
            class: spec.priority_class,
            runtime: spec.run.runtime(),
            cpu: resources.cpu_request(),
            memory: resources.memory_request(),
            custom: with_fixed_ports(spec),
            memory_limit: required && resources.limits.memory.is_some(),
            cpu_limit: required && resources.limits.cpu.is_some(),
            pids_limit: required && resources.limits.pids.is_some(),
            health_checks: !spec.ports.is_empty() || spec.health.is_some(),
            sandbox: spec.run.as_process().map_or(SandboxLevel::None, |process| process.sandbox.level),
            volumes: spec.volumes.iter().map(|volume| volume.name.clone()).collect(),
            constraints: spec.constraints.clone(),
            placement: spec.placement,
            spread: Group::of(spec),
            requires: RequiredService::all_of(spec),
        };
        if let Some((known, &id)) = self.shapes.get_key_value(&shape) {
            return (Arc::clone(known), id);
        }
        let shape = Arc::new(shape);
        // Ids are never reused: a dropped shape may still be listed as blocked.
        self.next_shape += 1;
        self.shapes.insert(Arc::clone(&shape), self.next_shape);
        (shape, self.next_shape)
    }

    /// Drops unused profiles and shapes, once about half of them may be unused.
    fn sweep(&mut self) {
        if self.profiles.len() < self.sweep_at.max(1_000) {
            return;
        }
        self.profiles.retain(|profile| Arc::strong_count(profile) > 1);
        self.shapes.retain(|shape, _| Arc::strong_count(shape) > 1);
        self.sweep_at = self.profiles.len() * 2;
    }
}
