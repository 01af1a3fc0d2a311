//! Executions whose ports and health checks the agent needs, and the results of the checks.
//!
//! The supervisor only passes the data on: it sends each such execution to the agent ([`Watched`]), and its exit
//! ([`Unwatched`]). It keeps the last status of the checks for the next agent, and ends an execution that the agent
//! reports as unhealthy. See [`crate::link`] for the order of the messages.
//!
//! # Invariants
//! - An execution is sent after the report of its start, so that the server knows it before its health arrives.
//! - The queue of a connection contains ids only. A message is made from the current state when there is room for it.

use model::{ExecutionId, Fence};
use supervisor::{EndReason, Event};

use super::Supervisor;
use super::launcher;
use super::task::Task;
use crate::link::{Answer, Checked, Unhealthy, Unwatched, Watched};

impl Supervisor {
    /// Queues an execution with ports or health checks: it has started, or its main process has exited.
    pub(super) fn queue_watch(&mut self, id: ExecutionId) {
        if self.tasks.get(&id).is_some_and(|task| task.order.is_watched())
            && let Some(watches) = self.agent.as_mut().and_then(|agent| agent.watches.as_mut())
        {
            watches.push_back(id);
        }
    }

    /// Queues all running executions for a new agent.
    pub(super) fn queue_all_watches(&mut self) {
        let running = |(_, task): &(&ExecutionId, &Task)| task.is_alive() && task.order.is_watched();
        let ids = self.tasks.iter().filter(running).map(|(id, _)| *id).collect();
        if let Some(agent) = &mut self.agent {
            agent.watches = Some(ids);
        }
    }

    /// Sends the queued executions, once all reports are sent.
    pub(super) fn send_watches(&mut self) -> bool {
        let mut told = false;
        while !self.core.has_reports()
            && let Some(id) = self.next_watch()
        {
            let answer = match self.tasks.get(&id).filter(|task| task.is_alive()) {
                Some(task) => Answer::Watched(watched(id, task)),
                None => Answer::Unwatched(Unwatched { execution_id: id.to_string() }),
            };
            self.send_to_agent(answer);
            told = true;
        }
        told
    }

    fn next_watch(&mut self) -> Option<ExecutionId> {
        let agent = self.agent.as_mut().filter(|agent| agent.synced && agent.has_room())?;
        agent.watches.as_mut()?.pop_front()
    }

    /// Keeps the status of an execution for the next agent.
    pub(super) fn checked(&mut self, checked: Checked) {
        let Ok(execution) = checked.execution_id.parse::<ExecutionId>() else { return };
        if let Some(task) = self.tasks.get_mut(&execution)
            && task.order.assignment.fence == checked.fence
        {
            task.health = checked.health;
        }
    }

    /// Ends an execution whose startup or liveness check has failed too often.
    pub(super) fn unhealthy(&mut self, unhealthy: Unhealthy) {
        let Unhealthy { execution_id, fence, detail, since_boot_millis: since } = unhealthy;
        let Ok(execution) = execution_id.parse::<ExecutionId>() else { return };
        // The fuse may have frozen the task while this process was stopped: such a failure does not count.
        self.receive_from_fuse();
        self.handle_event(Event::CheckFailed { execution, fence: Fence(fence), since });
        // The core ignores the event if the execution is already ending for another reason.
        if self.core.end_reason(execution) == Some(EndReason::Unhealthy)
            && let Some(task) = self.tasks.get_mut(&execution)
        {
            task.check_failure.get_or_insert(detail);
        }
    }
}

fn watched(id: ExecutionId, task: &Task) -> Watched {
    let spec = &task.order.spec;
    let checks = spec.health.as_deref();
    let has_commands = checks.is_some_and(|checks| checks.iter().any(|(_, check)| !check.command.is_empty()));
    let environment = if has_commands {
        launcher::environment(id, &task.order, &task.folder, (&task.ports, &task.volumes))
    } else {
        Vec::new()
    };
    Watched {
        execution_id: id.to_string(),
        fence: task.order.assignment.fence,
        // Serializing a parsed spec cannot fail.
        checks: serde_json::to_vec(&checks.cloned().unwrap_or_default()).unwrap_or_default().into(),
        ports: task.ports.iter().map(|(name, port)| (name.clone(), u32::from(*port))).collect(),
        pid: task.pid,
        started_boot_millis: task.started,
        needs_lease: !task.order.is_exempt(),
        working_directory: launcher::working_directory(&task.order, &task.folder).display().to_string(),
        environment,
        health: task.health.clone(),
        secrets: task.order.secrets.clone(),
    }
}
