//! Services without enough available replicas, and failed rollouts.
//!
//! The events tell when a service becomes degraded and when no longer; [`Alerts::sample`] compares how long that lasts
//! with the rules. After a load, the time counts from the load.

use std::collections::BTreeSet;

use model::alert::{AlertCondition, SubjectKind};
use model::api::AlertSubject;
use model::record::{EventKind, ServiceEvent};
use model::service::RolloutStatus;
use model::{ServiceId, Timestamp};

use crate::live::Degraded;
use crate::occurrence::Occurrence;
use crate::rows::{Name, OpenKey};
use crate::state::Alerts;

impl Alerts {
    /// Returns the namespaces with rules about degraded services.
    pub fn namespaces_of_degraded(&self) -> Vec<String> {
        self.index.namespaces_with("service_degraded")
    }

    /// Passes all services of these namespaces that are degraded, each with its namespace, name and ID: after a load, and
    /// after a change of rules.
    pub fn degraded(&mut self, now: Timestamp, services: Vec<(String, String, ServiceId)>) {
        let known = std::mem::take(&mut self.degraded);
        let since = |key: &(String, String)| known.get(key).map_or(now, |known| known.since);
        let all = services.into_iter().map(|(namespace, name, id)| ((namespace, name), id));
        self.degraded = all.map(|(key, id)| (key.clone(), Degraded { id, since: since(&key) })).collect();
    }

    /// Evaluates an event of a service. Other events are ignored.
    pub(crate) fn on_service(&mut self, now: Timestamp, namespace: &str, event: &EventKind, at: Timestamp) {
        match event {
            EventKind::Availability { service, name, available, replicas } => {
                let key = (namespace.to_owned(), name.to_string());
                if available < replicas {
                    self.degraded.entry(key).or_insert(Degraded { id: *service, since: at });
                } else {
                    self.degraded.remove(&key);
                }
            }
            EventKind::Service { name, what: ServiceEvent::Deleting | ServiceEvent::Deleted, .. } => {
                self.degraded.remove(&(namespace.to_owned(), name.to_string()));
                self.resolve_rollout(now, namespace, name);
            }
            EventKind::Rollout { service, name, status: RolloutStatus::Failed, .. } => {
                for rule in self.index.rules(SubjectKind::Service, namespace, name) {
                    if self.rule(&rule).is_some_and(|spec| spec.when == AlertCondition::RolloutFailed {}) {
                        let subject = subject(name, *service);
                        let what = Occurrence { failures: 1, ..Occurrence::default() };
                        self.occur(now, &rule, subject, at, what);
                    }
                }
            }
            EventKind::Rollout { name, status: RolloutStatus::Completed, .. } => {
                self.resolve_rollout(now, namespace, name);
            }
            _ => {}
        }
    }

    fn resolve_rollout(&mut self, now: Timestamp, namespace: &str, name: &str) {
        self.resolve_conditions(now, namespace, SubjectKind::Service, name, &["rollout_failed"]);
    }

    /// Returns what the rules say of degraded services: alerts that are to be open, and alerts that stay open if they are.
    pub(crate) fn degraded_now(&self, now: Timestamp) -> (Vec<(Name, AlertSubject)>, BTreeSet<OpenKey>) {
        let (mut met, mut stay) = (Vec::new(), BTreeSet::new());
        for ((namespace, name), Degraded { id, since }) in &self.degraded {
            for rule in self.index.rules(SubjectKind::Service, namespace, name) {
                let Some(AlertCondition::ServiceDegraded { longer_than }) =
                    self.rule(&rule).map(|spec| &spec.when)
                else {
                    continue;
                };
                stay.insert((rule.clone(), name.clone()));
                if now.since(*since) > *longer_than {
                    met.push((rule, subject(name, *id)));
                }
            }
        }
        (met, stay)
    }
}

fn subject(name: &str, id: ServiceId) -> AlertSubject {
    AlertSubject { kind: SubjectKind::Service, name: name.to_owned(), id: Some(id.to_string()) }
}
