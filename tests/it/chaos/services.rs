//! Services during a fault injection test.
//!
//! A user changes, restarts and scales them, and cancels replicas, while faults happen. The jobs of the replicas are
//! recorded and judged like all others: for example, two executions of one never overlap. This file checks through the API
//! that each service reaches its newest revision and its desired replicas once the faults have ended.

use std::time::Duration;

use client::{Error, ServiceRef};
use harness::{poll_pause, within};
use model::service::RolloutStatus;
use model::spec::{Delivery, HealthCheck, HealthChecks, PriorityClass};
use model::{JobSpec, ServiceSpec};
use sim::dice::Dice;

use super::load::{ErrorOutcome, Load, outcome_of, small};

/// Names of the services: one with a health check, and one without.
const NAMES: [&str; 2] = ["checked", "plain"];
/// Maximum number of replicas of a service.
const REPLICAS_MAX: u64 = 3;
/// Number of ended jobs after which a service is changed again.
const ENDED_A_CHANGE: u64 = 40;

/// Returns a service that some jobs require.
pub(super) fn some_name(dice: &mut Dice) -> &'static str {
    NAMES[dice.below(NAMES.len())]
}

fn named(name: &str) -> ServiceRef {
    ServiceRef { name: name.to_owned(), namespace: None }
}

impl Load {
    /// Creates the services.
    pub(super) async fn apply_services(&self) {
        for name in NAMES {
            let spec = self.service(name, 0);
            let made = self.until_certain(|| self.client().put_service(&spec, None)).await;
            made.expect("a valid service is accepted");
        }
    }

    /// Changes services until stopped.
    pub(super) async fn change_services(self, mut dice: Dice) {
        for version in 1_u32.. {
            let enough = self.recorder.ended() + ENDED_A_CHANGE;
            while !self.is_over() && self.recorder.ended() < enough {
                poll_pause().await;
            }
            if self.is_over() {
                return;
            }
            let name = some_name(&mut dice);
            let service = named(name);
            let replicas = u32::try_from(dice.between(1, REPLICAS_MAX)).unwrap_or(1);
            match dice.below(4) {
                0 => {
                    let spec = self.service(name, version);
                    let made = self.until_certain(|| self.client().put_service(&spec, None)).await;
                    made.expect("a valid service is accepted");
                }
                1 => {
                    let scale = || self.client().scale_service(&service, replicas, None);
                    self.until_certain(scale).await.expect("a service can be scaled");
                }
                2 => {
                    let restart = || self.client().restart_service(&service);
                    self.until_certain(restart).await.expect("a service can be restarted");
                }
                _ => {
                    let list = || self.client().replicas(&service);
                    let replicas = self.until_certain(list).await.unwrap_or_default();
                    if let Some(replica) = replicas.first() {
                        // It may have ended meanwhile.
                        let cancel = || self.client().cancel_job(replica.job, Some("chaos"));
                        self.until_certain(cancel).await.ok();
                    }
                }
            }
        }
    }

    /// Waits until all services are as desired. Returns descriptions of those that are not in time.
    pub(super) async fn settle_services(&self, patience: Duration) -> Vec<String> {
        let mut wrong = Vec::new();
        for name in NAMES {
            let service = named(name);
            let is_settled = async || {
                self.client().service(&service).await.is_ok_and(|service| {
                    let counts = &service.counts;
                    service.rollout.status == RolloutStatus::Completed
                        && counts.updated_available == service.replicas
                        && counts.live + counts.stopping == service.replicas
                })
            };
            if !within(patience, is_settled).await {
                let (state, replicas) =
                    (self.client().service(&service).await, self.client().replicas(&service).await);
                wrong.push(format!("service {name} is not as desired: {state:#?}\n{replicas:#?}"));
            }
        }
        wrong
    }

    /// Deletes the services, so that the jobs of all replicas end.
    pub(super) async fn delete_services(&self) {
        for name in NAMES {
            let service = named(name);
            // A repeated request may find that the first one was carried out.
            self.until_certain(|| self.client().delete_service(&service, None)).await.ok();
        }
    }

    /// Repeats a request until it succeeds or is refused.
    async fn until_certain<T, F: Future<Output = Result<T, Error>>>(
        &self,
        call: impl Fn() -> F,
    ) -> Result<T, Error> {
        loop {
            match call().await {
                Err(error) if !matches!(outcome_of(&error), ErrorOutcome::Refused) => self.next_server(),
                certain => return certain,
            }
            poll_pause().await;
        }
    }

    fn service(&self, name: &str, version: u32) -> ServiceSpec {
        let work = "trap 'tell end; exit 0' TERM; while :; do pause 0.1; tell beat; done";
        let mut job = small(self.witness.job_that(&format!(": version {version}\n{work}")));
        job.retry = Default::default();
        if name == NAMES[0] {
            let command = vec!["true".into()];
            let interval = "1s".parse().unwrap();
            let readiness = Some(HealthCheck { command, interval, ..HealthCheck::new() });
            job.health = Some(Box::new(HealthChecks { readiness, ..HealthChecks::default() }));
        } else {
            job.delivery = Delivery::ExactlyOnce;
        }
        let spec =
            serde_json::json!({ "name": name, "job": JobSpec::command(["true"]), "min_healthy": "0s" });
        let mut spec: ServiceSpec = serde_json::from_value(spec).expect("a spec with defaults");
        *spec.job = job;
        // The history of a feed does not record preemptions.
        spec.priority_class = PriorityClass::Normal;
        spec.restart_backoff.initial = "50ms".parse().unwrap();
        spec.restart_backoff.max = "1s".parse().unwrap();
        spec.replicas = (version == 0).then_some(2);
        spec
    }
}
