//! Quotas of namespaces: limits on the resources and the number of jobs of a namespace, over all queues.
//!
//! A job whose namespace has used its quota is passed over until another job of the namespace ends. A quota that is
//! lowered stops no job.
//!
//! # Invariants
//! - The usage of a namespace is the sum over its running jobs, and the number of its live jobs.
//! - When a job is placed, the usage stays within the quota.
//!
//! # Cost
//! O(log n) for each job that is created, placed or ended. Without quotas, choosing the next job costs nothing more.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::namespace::{NamespaceSettings, NamespaceUsage};
use model::record::NamespaceRecord;
use model::spec::{PriorityClass, Sandbox};
use model::why::Reason;
use mutation::{Mutation, is_on};

use crate::output::NamespaceView;
use crate::profile::Shape;

/// All namespaces that have settings or live jobs.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    namespaces: BTreeMap<Arc<str>, Namespace>,
    /// Number of namespaces with a limit on running jobs.
    limited: usize,
}

#[derive(Debug, Default)]
struct Namespace {
    settings: NamespaceSettings,
    /// Version of the settings; 0 for a namespace without settings.
    version: u64,
    usage: NamespaceUsage,
}

/// A limit of a quota that a job would exceed.
struct Exceeded<'a> {
    resource: &'a str,
    used: u64,
    needed: u64,
    limit: u64,
}

impl Namespace {
    fn limits_running(&self) -> bool {
        let quota = &self.settings.quota;
        quota.cpu.is_some() || quota.memory.is_some() || quota.running.is_some() || !quota.custom.is_empty()
    }

    /// Returns the limits that one more running job would exceed, while jobs with `reserved` resources run too.
    fn exceeded<'a>(
        &'a self,
        shape: &'a Shape,
        reserved: &'a NamespaceUsage,
    ) -> impl Iterator<Item = Exceeded<'a>> {
        let (quota, usage) = (&self.settings.quota, &self.usage);
        let over = u64::from(is_on(Mutation::EngineExceedsQuotas));
        let limit = move |resource, limit: Option<u64>, used: u64, reserved: u64, needed: u64| {
            let used = used.saturating_add(reserved);
            let limit =
                limit.filter(|&limit| used.saturating_add(needed) > limit.saturating_add(over * needed))?;
            Some(Exceeded { resource, used, needed, limit })
        };
        let amount = |of: &NamespaceUsage, name: &str| of.custom.get(name).copied().unwrap_or(0);
        let cpu = quota.cpu.map(|cpu| cpu.0.into());
        let running = quota.running.map(u64::from);
        let custom = shape.custom.iter().filter_map(move |(name, &needed)| {
            let most = quota.custom.get(name).copied();
            limit(name, most, amount(usage, name), amount(reserved, name), needed)
        });
        limit("cpu", cpu, usage.cpu.0.into(), reserved.cpu.0.into(), shape.cpu.0.into())
            .into_iter()
            .chain(limit(
                "memory",
                quota.memory.map(|b| b.0),
                usage.memory.0,
                reserved.memory.0,
                shape.memory.0,
            ))
            .chain(limit("running", running, usage.running, reserved.running, 1))
            .chain(custom)
    }
}

/// Adds a running job to the usage of its namespace.
pub(crate) fn add(usage: &mut NamespaceUsage, shape: &Shape) {
    usage.cpu.0 = usage.cpu.0.saturating_add(shape.cpu.0);
    usage.memory.0 = usage.memory.0.saturating_add(shape.memory.0);
    usage.running += 1;
    for (name, amount) in &shape.custom {
        *usage.custom.entry(name.clone()).or_default() += amount;
    }
}

/// Removes a running job from the usage of its namespace.
pub(crate) fn subtract(usage: &mut NamespaceUsage, shape: &Shape) {
    usage.cpu.0 = usage.cpu.0.saturating_sub(shape.cpu.0);
    usage.memory.0 = usage.memory.0.saturating_sub(shape.memory.0);
    usage.running = usage.running.saturating_sub(1);
    for (name, amount) in &shape.custom {
        if let Some(used) = usage.custom.get_mut(name) {
            *used = used.saturating_sub(*amount);
        }
    }
    usage.custom.retain(|_, used| *used > 0);
}

impl Quotas {
    /// Returns whether one more running job stays within the quota of its namespace.
    pub(crate) fn allows(&self, namespace: &str, shape: &Shape) -> bool {
        self.allows_beside(namespace, shape, &BTreeMap::new())
    }

    /// Returns whether one more running job stays within the quota, while the jobs with a reservation run too.
    pub(crate) fn allows_beside(
        &self,
        namespace: &str,
        shape: &Shape,
        reserved: &BTreeMap<Arc<str>, NamespaceUsage>,
    ) -> bool {
        if self.limited == 0 {
            return true;
        }
        let none = NamespaceUsage::default();
        let reserved = reserved.get(namespace).unwrap_or(&none);
        self.namespaces.get(namespace).is_none_or(|known| known.exceeded(shape, reserved).next().is_none())
    }

    /// Returns the limits of its namespace that block a waiting job.
    pub(crate) fn reasons(&self, namespace: &str, shape: &Shape) -> Vec<Reason> {
        let Some(known) = self.namespaces.get(namespace) else { return Vec::new() };
        let none = NamespaceUsage::default();
        let exceeded = known.exceeded(shape, &none).map(|of| Reason::NamespaceQuota {
            namespace: namespace.to_owned(),
            resource: of.resource.to_owned(),
            used: of.used,
            needed: of.needed,
            limit: of.limit,
            note: known.settings.note.clone(),
        });
        exceeded.collect()
    }

    /// Returns the limit of live jobs of a namespace, if `more` further jobs exceed it.
    pub(crate) fn job_limit(&self, namespace: &str, more: u64) -> Option<u64> {
        let known = self.namespaces.get(namespace)?;
        known.settings.quota.jobs.filter(|&limit| known.usage.jobs.saturating_add(more) > limit)
    }

    /// Returns the highest priority class of a namespace, if `class` is higher.
    pub(crate) fn class_limit(&self, namespace: &str, class: PriorityClass) -> Option<PriorityClass> {
        self.namespaces.get(namespace)?.settings.max_priority_class.filter(|&highest| class > highest)
    }

    /// Returns the minimum sandbox of a namespace, if it has one.
    pub(crate) fn min_sandbox(&self, namespace: &str) -> Option<Sandbox> {
        let sandbox = self.namespaces.get(namespace)?.settings.sandbox;
        (!sandbox.is_none()).then_some(sandbox)
    }

    pub(crate) fn job_created(&mut self, namespace: &Arc<str>) {
        self.of(namespace).usage.jobs += 1;
    }

    pub(crate) fn job_ended(&mut self, namespace: &str) {
        if let Some(known) = self.namespaces.get_mut(namespace) {
            known.usage.jobs = known.usage.jobs.saturating_sub(1);
        }
        self.drop_if_unused(namespace);
    }

    pub(crate) fn execution_started(&mut self, namespace: &Arc<str>, shape: &Shape) {
        add(&mut self.of(namespace).usage, shape);
    }

    pub(crate) fn execution_ended(&mut self, namespace: &str, shape: &Shape) {
        if let Some(known) = self.namespaces.get_mut(namespace) {
            subtract(&mut known.usage, shape);
        }
    }

    /// Sets the settings of a namespace.
    pub(crate) fn set(&mut self, record: &NamespaceRecord) {
        let known = self.of(&record.name.as_str().into());
        known.settings = record.settings.clone();
        known.version = record.version;
        self.count_limited();
    }

    /// Removes the settings of a namespace; its jobs have no limits then.
    pub(crate) fn remove_settings(&mut self, name: &str) {
        if let Some(known) = self.namespaces.get_mut(name) {
            (known.settings, known.version) = (NamespaceSettings::default(), 0);
        }
        self.drop_if_unused(name);
        self.count_limited();
    }

    /// Removes the settings of all namespaces. Their rows are about to be read again.
    pub(crate) fn clear_settings(&mut self) {
        for known in self.namespaces.values_mut() {
            (known.settings, known.version) = (NamespaceSettings::default(), 0);
        }
        self.namespaces.retain(|_, known| known.usage.jobs > 0);
        self.limited = 0;
    }

    /// Returns the version of the settings of a namespace; 0 if it has none.
    pub(crate) fn version(&self, name: &str) -> u64 {
        self.namespaces.get(name).map_or(0, |known| known.version)
    }

    /// Returns all namespaces that have settings or live jobs.
    pub(crate) fn view(&self) -> Vec<NamespaceView> {
        let shown = self.namespaces.iter();
        shown
            .map(|(name, known)| NamespaceView {
                name: name.as_ref().to_owned(),
                settings: known.settings.clone(),
                version: known.version,
                usage: known.usage.clone(),
            })
            .collect()
    }

    fn of(&mut self, name: &Arc<str>) -> &mut Namespace {
        self.namespaces.entry(Arc::clone(name)).or_default()
    }

    fn drop_if_unused(&mut self, name: &str) {
        if self.namespaces.get(name).is_some_and(|known| known.version == 0 && known.usage.jobs == 0) {
            self.namespaces.remove(name);
        }
    }

    fn count_limited(&mut self) {
        self.limited = self.namespaces.values().filter(|known| known.limits_running()).count();
    }
}
