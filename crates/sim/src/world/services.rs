//! Services that clients apply, and requests about them.
//!
//! The specs are drawn at random: numbers of replicas, one on each worker, or as many as a queue needs, limits of rollouts, canaries, health checks, fixed ports, and
//! the [behavior](Behavior) of the tasks. Together the services use at most half of the slots, so that other jobs still
//! run, and each replica finds a place once the faults have ended.
//!
//! `schedule_services` plans the requests of a world. After the faults, `repair_services` replaces most broken templates,
//! and `settle_services` resumes and promotes rollouts until all services are as desired, or the time for that is over.
//! Then the clients delete all services, so that the world can end.
//!
//! Requests go through [`client`](super::client) like those about jobs. Everything here is drawn from `service_dice`.

use std::sync::Arc;

use engine::Expected;
use engine::input::{NewService, ServiceRequest};
use model::service::{QueueMetric, RolloutStatus, Scaling, ScalingMetric, ServiceState, UpdatePolicy};
use model::spec::{CheckedPort, DEFAULT, Delivery, HealthCheck, HealthChecks, Port, PriorityClass, TcpCheck};
use model::worker::Admission;
use model::{Duration, JobSpec, Millicores, ServiceId, ServiceSpec};

use super::client::{ClientMessage, Op};
use super::{World, WorldEvent};
use crate::dice::Dice;
use crate::history::{Ask, What};

/// Label that names the behavior of the tasks of a job.
const BEHAVIOR: &str = "behavior";
/// Label that makes a template differ from all others.
const TEMPLATE: &str = "template";
/// Interval at which clients look at the services after the faults.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Minimum time after the faults until the services are judged.
const JUDGED_AFTER: Duration = Duration::from_secs(60);
/// Time after the faults in which all services must become as desired. A replica that was lost often waits five minutes
/// before its restart.
const SETTLED_WITHIN: Duration = Duration::from_secs(900);

/// How the tasks of a replica behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behavior {
    /// They run until they are stopped.
    Steady,
    /// They exit after some time, until the faults have ended.
    Flaky,
    /// They exit at once.
    Quits,
    /// They run, but never become healthy.
    NeverHealthy,
}

impl Behavior {
    fn as_str(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Flaky => "flaky",
            Self::Quits => "quits",
            Self::NeverHealthy => "never-healthy",
        }
    }

    /// Returns the behavior of the tasks of a job; `None` if the job is no replica.
    pub(super) fn of(spec: &JobSpec) -> Option<Self> {
        let name = spec.labels.get(BEHAVIOR)?;
        let all = [Self::Steady, Self::Flaky, Self::Quits, Self::NeverHealthy];
        all.into_iter().find(|behavior| behavior.as_str() == name)
    }

    /// Whether no replica ever becomes available.
    fn is_broken(self) -> bool {
        matches!(self, Self::Quits | Self::NeverHealthy)
    }
}

/// Properties of a service that do not change, and the spec that was applied last.
#[derive(Debug, Clone)]
pub(super) struct ServiceShape {
    replicas_max: u32,
    /// Whether it has one replica on each worker.
    per_worker: bool,
    /// Whether the waiting jobs of a queue determine its replicas.
    is_scaled: bool,
    /// Maximum number of replicas beyond the desired number.
    surge_max: u32,
    has_checks: bool,
    fixed_port: Option<u16>,
    min_healthy: Duration,
    spec: Option<ServiceSpec>,
}

/// Returns the name of the service with an index.
pub(super) fn service_name(index: usize) -> String {
    format!("v{index}")
}

impl ServiceShape {
    /// Draws a service that uses at most `slots` slots.
    fn draw(dice: &mut Dice, index: usize, slots: u32, workers: u32) -> Self {
        let has_fixed_port = workers > 1 && dice.chance(0.2);
        // A fixed port is free on one worker more than there are replicas.
        let surge_max = if has_fixed_port { 1 } else { 2 }.min(slots - 1);
        let surge_max = u32::try_from(dice.between(0, surge_max.into())).unwrap_or(0);
        let most = (slots - surge_max).min(4);
        let replicas_max = if has_fixed_port { most.min(workers - 1) } else { most };
        let per_worker = workers <= slots && dice.chance(0.25);
        let is_scaled = !per_worker && dice.chance(0.25);
        Self {
            per_worker,
            is_scaled,
            replicas_max,
            surge_max,
            has_checks: dice.chance(0.5),
            fixed_port: has_fixed_port.then(|| 7_000 + u16::try_from(index).unwrap_or(0)),
            min_healthy: if dice.chance(0.3) { Duration::ZERO } else { dice.millis(1_000, 5_000) },
            spec: None,
        }
    }

    fn new_spec(&self, dice: &mut Dice, index: usize) -> ServiceSpec {
        let mut spec = ServiceSpec {
            name: service_name(index),
            namespace: (*dice.pick(&["default", "tenant"])).to_owned(),
            owner: None,
            labels: Default::default(),
            description: None,
            replicas: self.maybe_replicas(dice, 1.0),
            per_worker: self.per_worker,
            scaling: self.is_scaled.then(|| Box::new(self.some_scaling(dice))),
            priority_class: *dice.pick(&[PriorityClass::High, PriorityClass::Normal]),
            job: Box::new(JobSpec::command(["serve"])),
            restart_backoff: Default::default(),
            min_healthy: self.min_healthy,
            update: self.some_limits(dice),
        };
        spec.restart_backoff.initial = dice.millis(100, 2_000);
        spec.restart_backoff.max = Duration::from_secs(5);
        *spec.job = self.some_job(dice, &spec, 0.15);
        spec
    }

    fn some_replicas(&self, dice: &mut Dice) -> u32 {
        u32::try_from(dice.between(1, self.replicas_max.into())).unwrap_or(1)
    }

    /// Draws a number of replicas with this probability, if users determine it.
    fn maybe_replicas(&self, dice: &mut Dice, chance: f64) -> Option<u32> {
        (!self.per_worker && !self.is_scaled && dice.chance(chance)).then(|| self.some_replicas(dice))
    }

    fn some_scaling(&self, dice: &mut Dice) -> Scaling {
        let max = self.some_replicas(dice);
        let queue = QueueMetric { name: DEFAULT.to_owned(), jobs_per_replica: *dice.pick(&[1, 2, 10]) };
        Scaling {
            min: u32::try_from(dice.between(0, max.into())).unwrap_or(0),
            max,
            schedules: Vec::new(),
            metrics: vec![ScalingMetric::Queue(queue)],
            up_window: *dice.pick(&[Duration::ZERO, Duration::from_secs(10)]),
            down_window: *dice.pick(&[Duration::ZERO, Duration::from_secs(40)]),
        }
    }

    fn some_limits(&self, dice: &mut Dice) -> UpdatePolicy {
        let number = |dice: &mut Dice, most: u32| u32::try_from(dice.between(0, most.into())).unwrap_or(0);
        let max_surge = number(dice, self.surge_max);
        let least = u32::from(max_surge == 0);
        let canaries = if !self.per_worker && dice.chance(0.5) { number(dice, self.surge_max) } else { 0 };
        UpdatePolicy {
            max_surge,
            max_unavailable: number(dice, 2).max(least),
            canaries,
            auto_promote: canaries > 0 && dice.chance(0.3),
            progress_deadline: Duration::from_secs(dice.between(15, 90)),
            auto_rollback: dice.chance(0.6),
        }
    }

    /// Draws a template, broken with this probability.
    fn some_job(&self, dice: &mut Dice, spec: &ServiceSpec, broken: f64) -> JobSpec {
        let mut job = JobSpec::command(["serve"]);
        job.name.clone_from(&spec.name);
        job.namespace.clone_from(&spec.namespace);
        job.delivery = *dice.pick(&[Delivery::AtLeastOnce, Delivery::ExactlyOnce]);
        job.resources.cpu = Some(Millicores(100));
        job.grace = *dice.pick(&[Duration::ZERO, Duration::from_secs(2), Duration::from_secs(10)]);
        if self.has_checks || self.fixed_port.is_some() {
            job.ports = vec![Port { name: "http".into(), port: self.fixed_port }];
        }
        if self.has_checks {
            let tcp = Some(TcpCheck { port: CheckedPort::Name("http".into()) });
            let readiness = Some(HealthCheck { tcp, ..HealthCheck::new() });
            job.health = Some(Box::new(HealthChecks { readiness, ..HealthChecks::default() }));
        }
        let behavior = if dice.chance(broken) { self.some_broken(dice) } else { None };
        let behavior = behavior.unwrap_or_else(|| *dice.pick(&[Behavior::Steady, Behavior::Flaky]));
        job.labels.insert(BEHAVIOR.to_owned(), behavior.as_str().to_owned());
        job.labels.insert(TEMPLATE.to_owned(), dice.number().to_string());
        job
    }

    /// Draws a broken behavior. A task that exits at once is available for a moment if nothing delays that.
    fn some_broken(&self, dice: &mut Dice) -> Option<Behavior> {
        let quits = (self.min_healthy > Duration::ZERO).then_some(Behavior::Quits);
        let unhealthy = self.has_checks.then_some(Behavior::NeverHealthy);
        if dice.chance(0.5) { quits.or(unhealthy) } else { unhealthy.or(quits) }
    }

    /// Changes the template, the limits, or both.
    fn change(&self, dice: &mut Dice, spec: &mut ServiceSpec) {
        let what = dice.below(4);
        if what != 0 {
            *spec.job = self.some_job(dice, spec, 0.3);
        }
        if what <= 1 {
            spec.update = self.some_limits(dice);
        }
        spec.replicas = self.maybe_replicas(dice, 0.5);
        if self.is_scaled && dice.chance(0.5) {
            spec.scaling = Some(Box::new(self.some_scaling(dice)));
        }
    }
}

impl World {
    pub(super) fn schedule_services(&mut self) {
        let slots: u32 = self.workers.iter().map(|worker| worker.capacity.slots).sum();
        let share = (slots / 2).max(1) / self.plan.services.max(1);
        let (share, count) = if share == 0 { (1, slots / 2) } else { (share, self.plan.services) };
        let workers = u32::try_from(self.workers.len()).unwrap_or(1);
        let rough = self.plan.rough.as_millis();
        for index in 0..count as usize {
            let dice = &mut self.clients.service_dice;
            let shape = ServiceShape::draw(dice, index, share, workers);
            let at = self.begin + dice.millis(0, rough / 3);
            self.clients.services.push(shape);
            self.put(at, WorldEvent::Client(ClientMessage::ApplyService(index)));
        }
        for _ in 0..if count == 0 { 0 } else { self.plan.service_asks } {
            let at = self.begin + self.clients.service_dice.millis(rough / 10, rough);
            self.put(at, WorldEvent::Client(ClientMessage::AskService));
        }
    }

    /// Creates a service, or changes its spec.
    pub(super) fn apply_service(&mut self, index: usize) {
        let shape = self.clients.services[index].clone();
        let dice = &mut self.clients.service_dice;
        let spec = match &shape.spec {
            None => shape.new_spec(dice, index),
            Some(known) => {
                let mut spec = known.clone();
                shape.change(dice, &mut spec);
                spec
            }
        };
        self.request_spec(index, spec);
    }

    fn request_spec(&mut self, index: usize, spec: ServiceSpec) {
        let name = spec.name.clone();
        let body = serde_json::to_string(&spec).expect("a spec serializes to JSON").into();
        self.clients.services[index].spec = Some(spec.clone());
        let services = vec![NewService { spec: Arc::new(spec), body, expected: Expected::Any }];
        let op = Op::Service(ServiceRequest::Apply { services });
        self.begin_request(Ask::ApplyService { name }, Arc::new(op), true);
    }

    fn request(&mut self, service: ServiceId, what: &str, request: ServiceRequest) {
        // A second restart is a different one, and so is a second rollback.
        let repeatable = !matches!(request, ServiceRequest::Restart { .. } | ServiceRequest::Rollback { .. });
        let ask = Ask::Service { service, what: what.to_owned() };
        self.begin_request(ask, Arc::new(Op::Service(request)), repeatable);
    }

    /// Changes a service or its rollout, cancels a replica, or drains a worker.
    pub(super) fn ask_of_service(&mut self) {
        let all = self.store.services();
        let dice = &mut self.clients.service_dice;
        if all.is_empty() {
            let index = dice.below(self.clients.services.len());
            return self.apply_service(index);
        }
        let (service, head, _) = dice.pick(&all).clone();
        let index = index_of(&head.spec);
        match dice.below(15) {
            0..=3 => self.apply_service(index),
            4 | 5 => {
                let most = self.clients.services[index].replicas_max;
                let replicas = u32::try_from(dice.between(0, most.into())).unwrap_or(0);
                let request = ServiceRequest::Scale { service, replicas, expected_version: None };
                self.request(service, "scale", request);
            }
            6 => self.request(service, "restart", ServiceRequest::Restart { service }),
            7 => {
                let known = dice.pick(&head.revisions).number;
                let revision = dice.chance(0.5).then_some(known);
                self.request(service, "rollback", ServiceRequest::Rollback { service, revision });
            }
            8 => self.request(service, "pause", ServiceRequest::PauseRollout { service }),
            9 => self.request(service, "resume", ServiceRequest::ResumeRollout { service }),
            10 => self.request(service, "promote", ServiceRequest::PromoteRollout { service }),
            11 if dice.chance(0.4) => {
                let request = ServiceRequest::Delete { service, expected_version: None };
                self.request(service, "delete", request);
            }
            11 | 12 => {
                let replicas = self.store.replicas();
                if !replicas.is_empty() {
                    let job = *self.clients.service_dice.pick(&replicas);
                    self.begin_request(Ask::Cancel { job }, Arc::new(Op::Cancel(job)), true);
                }
            }
            _ => {
                let (_, workers) = self.store.known();
                if !workers.is_empty() {
                    let dice = &mut self.clients.service_dice;
                    let worker = *dice.pick(&workers);
                    let all = [Admission::Open, Admission::Draining, Admission::Draining];
                    let admission = *dice.pick(&all);
                    self.admit(worker, admission);
                }
            }
        }
    }

    /// Replaces most broken templates after the faults. The other rollouts fail.
    pub(super) fn repair_services(&mut self) {
        if self.plan.services == 0 {
            return;
        }
        for (_, head, state) in self.store.services() {
            let is_broken = Behavior::of(&head.spec.job).is_some_and(Behavior::is_broken);
            let index = index_of(&head.spec);
            let dice = &mut self.clients.service_dice;
            // A task that exits at once seems to run as long as its worker is cut off, so its rollout may have completed.
            let is_completed = state.rollout.status == RolloutStatus::Completed;
            if is_broken && (is_completed || dice.chance(0.6)) {
                let mut spec = (*head.spec).clone();
                *spec.job = self.clients.services[index].some_job(dice, &spec, 0.0);
                spec.replicas = None;
                self.request_spec(index, spec);
            }
        }
        self.put_in(LOOK_EVERY, WorldEvent::Client(ClientMessage::SettleServices));
    }

    /// Resumes and promotes rollouts until all services are as desired, or the time for that is over.
    pub(super) fn settle_services(&mut self) {
        let Some(calm) = self.calm_since else { return };
        let passed = self.now.since(calm);
        let all = self.store.services();
        let is_settled = all.iter().all(|(_, _, state)| is_settled(state));
        if passed >= SETTLED_WITHIN || (is_settled && passed >= JUDGED_AFTER) {
            self.record(What::ServicesDue);
            return self.delete_services();
        }
        for (service, _, state) in all {
            if state.rollout.paused {
                self.request(service, "resume", ServiceRequest::ResumeRollout { service });
            } else if state.rollout.status == RolloutStatus::AwaitingPromotion {
                self.request(service, "promote", ServiceRequest::PromoteRollout { service });
            }
        }
        self.put_in(LOOK_EVERY, WorldEvent::Client(ClientMessage::SettleServices));
    }

    /// Deletes all services, until none is left.
    pub(super) fn delete_services(&mut self) {
        let all = self.store.services();
        if all.is_empty() {
            return;
        }
        for (service, ..) in all {
            let request = ServiceRequest::Delete { service, expected_version: None };
            self.request(service, "delete", request);
        }
        self.put_in(Duration::from_secs(30), WorldEvent::Client(ClientMessage::DeleteServices));
    }
}

/// Whether a service needs no more requests and no more time.
fn is_settled(state: &ServiceState) -> bool {
    let counts = &state.counts;
    match state.rollout.status {
        RolloutStatus::Completed => counts.available == state.replicas && counts.live == state.replicas,
        RolloutStatus::Failed => !state.rollout.paused,
        RolloutStatus::Progressing | RolloutStatus::AwaitingPromotion => false,
    }
}

/// Returns the index of a service in the list of the clients.
fn index_of(spec: &ServiceSpec) -> usize {
    spec.name.trim_start_matches('v').parse().unwrap_or(0)
}
