//! Health checks of tasks, and their results on the way to the server.
//!
//! A worker checks the tasks of replicas on its own, also while no server is reachable. It sends the health of an
//! execution when it changes, and that of all executions at the start of a session. These messages form a stream: a
//! connection keeps their order, and a lost message breaks it. A copy may arrive after the connection has closed.

use std::collections::BTreeMap;

use engine::input::HealthReport;
use model::spec::HealthStatus;
use model::{Duration, ExecutionId, JobSpec};

use super::server::ServerMessage;
use super::services::Behavior;
use super::sessions::HealthMessage;
use super::{World, WorldEvent};

/// Maximum time between two checks of a task, in milliseconds.
const INTERVAL_MILLIS: u64 = 6_000;

/// What a worker reports of the health of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checks {
    Nothing,
    /// The task has ports, but no health checks, so it is healthy from its start.
    Ports,
    /// The task has a readiness check.
    Readiness,
}

impl Checks {
    pub(super) fn of(spec: &JobSpec) -> Self {
        match (&spec.health, spec.ports.is_empty()) {
            (Some(_), _) => Self::Readiness,
            (None, false) => Self::Ports,
            (None, true) => Self::Nothing,
        }
    }
}

impl World {
    /// Begins to report the health of a task that has started.
    pub(super) fn begin_checks(&mut self, worker: usize, execution: ExecutionId) {
        let Some(task) = self.task(worker, execution) else { return };
        match task.replica {
            None | Some((_, Checks::Nothing)) => {}
            Some((_, Checks::Ports)) => {
                task.health = Some(HealthStatus::Healthy);
                self.send_health(worker, Some(execution));
            }
            Some((_, Checks::Readiness)) => {
                task.health = Some(HealthStatus::Starting);
                self.send_health(worker, Some(execution));
                self.check_later(worker, execution);
            }
        }
    }

    fn check_later(&mut self, worker: usize, execution: ExecutionId) {
        let delay = self.replica_dice.millis(100, INTERVAL_MILLIS);
        let life = self.workers[worker].supervisor.life;
        self.put_in(delay, WorldEvent::Check { worker, life, execution });
    }

    /// Checks a task. A halted task fails its checks. A failed liveness check terminates the task.
    pub(super) fn check_health(&mut self, worker: usize, life: u32, execution: ExecutionId) {
        let this = &self.workers[worker];
        if this.supervisor.life != life {
            return;
        }
        let is_paused = this.paused || this.supervisor.paused;
        let Some(task) = self.task(worker, execution) else { return };
        let (Some((behavior, _)), Some(before), halted) = (task.replica, task.health, task.is_halted())
        else {
            return;
        };
        if !is_paused {
            let health = if halted && before != HealthStatus::Starting {
                HealthStatus::Unhealthy
            } else if halted {
                before
            } else {
                self.draw_health(behavior, before)
            };
            if let Some(task) = self.task(worker, execution).filter(|_| health != before) {
                task.health = Some(health);
                self.send_health(worker, Some(execution));
            }
            if self.calm_since.is_none() && self.replica_dice.chance(0.01) {
                self.terminate(worker, execution);
            }
        }
        self.check_later(worker, execution);
    }

    /// Draws the result of a check. After the faults, healthy tasks stay healthy.
    fn draw_health(&mut self, behavior: Behavior, before: HealthStatus) -> HealthStatus {
        let rough = self.calm_since.is_none();
        let dice = &mut self.replica_dice;
        match before {
            HealthStatus::Starting if behavior == Behavior::NeverHealthy => {
                if dice.chance(0.2) {
                    HealthStatus::Unhealthy
                } else {
                    before
                }
            }
            _ if behavior == Behavior::NeverHealthy => HealthStatus::Unhealthy,
            HealthStatus::Healthy if rough && dice.chance(0.05) => HealthStatus::Unhealthy,
            HealthStatus::Unhealthy if rough && dice.chance(0.5) => HealthStatus::Unhealthy,
            HealthStatus::Starting if dice.chance(0.2) => HealthStatus::Starting,
            _ => HealthStatus::Healthy,
        }
    }

    /// Sends the health of one execution of a worker, or of all, if its agent has a session.
    pub(super) fn send_health(&mut self, worker: usize, only: Option<ExecutionId>) {
        let Some(session) = self.session_of_agent(worker) else { return };
        let this = &mut self.workers[worker];
        let tasks = this.supervisor.tasks.iter().filter(|(_, task)| task.alive && task.loaded);
        let reports: Vec<_> = tasks
            .filter(|(execution, _)| only.is_none_or(|only| only == **execution))
            .filter_map(|(&execution, task)| {
                let (fence, status) = (task.fence, task.health?);
                Some(HealthReport { execution, fence, status, detail: None, ports: BTreeMap::new() })
            })
            .collect();
        if reports.is_empty() {
            return;
        }
        this.agent.health_seq += 1;
        let message = HealthMessage { worker: this.id, session, seq: this.agent.health_seq, reports };
        self.send_up(worker, ServerMessage::Health { message: Box::new(message) });
    }

    /// Draws how long the task of a replica runs, in microseconds, and its exit code.
    pub(super) fn draw_replica(&mut self, behavior: Behavior) -> (i64, i32) {
        let rough = self.calm_since.is_none();
        let dice = &mut self.replica_dice;
        let exit = *dice.pick(&[0, 1]);
        let longest = match behavior {
            Behavior::Quits => Duration::from_millis(500),
            Behavior::Flaky if rough => *dice.pick(&[Duration::from_secs(5), Duration::from_secs(120)]),
            _ => return (FOREVER, exit),
        };
        let length = dice.between(1_000, longest.as_millis() * 1_000);
        (i64::try_from(length).unwrap_or(FOREVER), exit)
    }
}

/// Run time of a task that runs until it is stopped, in microseconds: a year.
const FOREVER: i64 = 365 * 24 * 3_600 * 1_000_000;
