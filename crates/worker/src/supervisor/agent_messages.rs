//! Processes the requests of the agent, and sends reports, outputs to store and logs to it.
//!
//! `receive_from_agent` passes each request on, mostly as an event of the core. `flush_agent` sends what is new, in
//! this order: reports, outputs to store, watched executions, logs. It stops while the socket is full; the loop calls
//! it again when the socket is writable.
//!
//! # Invariants
//! - One agent is connected. A new one replaces it and gets all executions and unacknowledged reports again.
//! - No report is sent before the agent has requested the executions that the worker holds.
//! - A message stays below the maximum frame size, and unacknowledged log bytes within [`LOG_WINDOW`].

use std::collections::HashMap;

use bytes::Bytes;
use model::spec::Run;
use model::{ExecutionId, Fence, StopReason};
use prost::Message as _;
use proto::v1;
use supervisor::{Event, Report};

use super::agent_link::AgentLink;
use super::convert::{self, WorkerPayloads};
use super::poller::token;
use super::{Supervisor, logs};
use crate::link::{
    Answer, Holdings, LOG_PART_COST, LOG_WINDOW, LogPart, Owner, Pong, Reports, Request, Store, Stored,
    SupervisorGreeting, VERSION, WATCH_VERSION,
};

/// Maximum number of reports in one message, and approximate maximum of its bytes. An agent accepts no frame larger
/// than [`FRAME_MAX`](crate::link::FRAME_MAX), and each report may contain an output and a checkpoint.
const REPORTS_A_MESSAGE: usize = 512;
const MESSAGE_BYTES: usize = 4 << 20;

/// Fill level of a message with reports.
#[derive(Debug, Default)]
struct MessageFill {
    reports: usize,
    bytes: usize,
}

impl MessageFill {
    fn has_space(&self) -> bool {
        self.reports < REPORTS_A_MESSAGE && self.bytes < MESSAGE_BYTES
    }

    fn take(&mut self, report: &v1::Report) {
        self.reports += 1;
        self.bytes += report.encoded_len();
    }
}

impl Supervisor {
    // Receiving.

    /// Accepts new connections; a new agent replaces the previous one.
    pub(super) fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            match AgentLink::accept(socket) {
                Ok(agent) => {
                    self.drop_agent();
                    match self.poller.watch(agent.socket(), token::AGENT) {
                        Ok(()) => self.agent = Some(agent),
                        Err(error) => tracing::error!(%error, "cannot watch the connection of the agent"),
                    }
                }
                Err(error) => tracing::warn!(%error, "cannot accept the connection of an agent"),
            }
        }
    }

    fn drop_agent(&mut self) {
        if let Some(agent) = self.agent.take() {
            self.poller.unwatch(agent.socket());
            self.rewind_logs();
        }
    }

    pub(super) fn receive_from_agent(&mut self) {
        let requests = match self.agent.as_mut().map(AgentLink::receive) {
            Some(Ok(requests)) => requests,
            Some(Err(error)) => {
                tracing::debug!(%error, "the agent has disconnected");
                return self.drop_agent();
            }
            None => return,
        };
        for request in requests {
            self.take(request);
        }
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::Greeting(greeting) => {
                self.handle_event(Event::AgentConnected { slots: greeting.slots as usize });
                self.greet();
                if greeting.version >= WATCH_VERSION {
                    self.queue_all_watches();
                }
            }
            Request::Sync(sync) => self.send_holdings(sync.generation),
            Request::Starts(starts) => self.take_starts(starts.starts),
            Request::Stops(stops) => self.take_stops(stops.stops),
            Request::Acks(acks) => self.take_acks(&acks.acks),
            Request::Lease(lease) => self.handle_event(Event::LeaseRenewed { until: lease.boot_millis }),
            Request::LogsFrom(from) => {
                self.rewind_logs();
                if let Some(agent) = &mut self.agent {
                    agent.logs = Some(from.generation);
                }
            }
            Request::LogAcks(acks) => acks.acks.iter().for_each(|ack| self.take_log_ack(ack)),
            Request::Stored(stored) => self.stored(stored),
            Request::Saved(saved) => self.saved(&saved),
            Request::Unhealthy(unhealthy) => self.unhealthy(unhealthy),
            Request::Checked(checked) => self.checked(checked),
            Request::Ping(ping) => {
                let trouble = self.trouble().unwrap_or_default();
                self.send_to_agent(Answer::Pong(Pong { number: ping.number, trouble }));
            }
            Request::Put(put) => {
                self.saved_through_socket(&put);
                self.send_to_agent(Answer::Pong(Pong { number: put.number, ..Pong::default() }));
            }
        }
    }

    fn take_stops(&mut self, stops: Vec<v1::Stop>) {
        for stop in stops {
            let v1::Stop { execution_id, fence, grace_ms, discard, reason } = stop;
            match execution_id.parse::<ExecutionId>() {
                Ok(execution) => self.handle_event(Event::StopRequested {
                    execution,
                    fence: Fence(fence),
                    grace: grace_ms,
                    discard,
                    reason: reason.parse().unwrap_or(StopReason::Cancelled),
                }),
                Err(error) => tracing::error!(%error, "stop request ignored: malformed execution id"),
            }
        }
    }

    fn take_acks(&mut self, acks: &[v1::ReportAck]) {
        for ack in acks.iter().filter(|ack| ack.r#final) {
            if let Ok(execution) = ack.execution_id.parse() {
                self.handle_event(Event::EndAcknowledged { execution, fence: Fence(ack.fence) });
            }
        }
    }

    fn stored(&mut self, stored: Stored) {
        if let Ok(execution) = stored.execution_id.parse() {
            self.handle_event(Event::OutputsStored { execution, stored });
        }
    }

    fn take_log_ack(&mut self, ack: &v1::LogAck) {
        let Ok(id) = ack.execution_id.parse::<ExecutionId>() else { return };
        if ack.gone {
            // Later output of the task, if it is still running, is dropped as well.
            return self.drop_log(id);
        }
        let Some(log) = self.logs.get_mut(&id) else { return };
        if log.is_lost_below(ack.offset) {
            tracing::warn!(
                execution_id = %id, offset = ack.offset,
                "log dropped: bytes that the server needs are lost"
            );
            return self.drop_log(id);
        }
        self.log_window_used =
            self.log_window_used.saturating_sub(log.acknowledge(ack.offset, ack.replicated_offset));
        if log.is_complete() {
            self.drop_log(id);
        } else {
            self.log_changed(id);
        }
    }

    fn rewind_logs(&mut self) {
        self.log_window_used = 0;
        self.logs.values_mut().for_each(logs::ExecutionLog::rewind);
        let ids: Vec<_> = self.logs.keys().copied().collect();
        ids.into_iter().for_each(|id| self.log_changed(id));
    }

    // Sending.

    pub(super) fn send_to_agent(&mut self, answer: Answer) {
        if let Some(agent) = &mut self.agent {
            agent.send_to_agent(answer);
        }
    }

    fn greet(&mut self) {
        let greeting = SupervisorGreeting {
            version: VERSION,
            worker_id: self.worker.to_string(),
            boot_id: self.start_location.boot_id.clone(),
            capabilities: Some(v1::Capabilities {
                runtimes: vec![Run::PROCESS.into()],
                runtime_versions: HashMap::new(),
                memory_limit: self.cgroups.limits_memory(),
                cpu_limit: self.cgroups.limits_cpu(),
                pids_limit: self.cgroups.limits_pids(),
                separate_user: self.user.is_some(),
                health_checks: true,
                volumes: self.config.volumes.keys().cloned().collect(),
                sandbox_levels: Vec::new(),
            }),
            owner: self.user.as_ref().map(|user| Owner { uid: user.uid, gid: user.gid }),
            shims: [Run::PROCESS, Run::CONTAINER, Run::HTTP].map(Into::into).into(),
            container_engine: self.config.container_engine.clone(),
        };
        self.send_to_agent(Answer::Greeting(greeting));
        self.repeat_saves();
    }

    /// Answers with all held executions, and with the unacknowledged reports as far as they fit. The other reports
    /// follow.
    fn send_holdings(&mut self, generation: u64) {
        let held = self.core.holdings().map(convert::held).collect();
        self.core.report_all();
        let reports = self.next_reports();
        let holdings = Holdings { generation, held, reports, running: self.count_running() };
        self.send_to_agent(Answer::Holdings(holdings));
        if let Some(agent) = &mut self.agent {
            agent.synced = true;
        }
    }

    /// Returns the next reports, as far as they fit into one message.
    fn next_reports(&mut self) -> Vec<v1::Report> {
        let (mut fill, mut reports) = (MessageFill::default(), Vec::new());
        while fill.has_space()
            && let Some((execution, fence, report)) = self.core.next_report()
        {
            let report = self.message(execution, fence, report);
            fill.take(&report);
            reports.push(report);
        }
        reports
    }

    fn message(&self, execution: ExecutionId, fence: Fence, report: Report<WorkerPayloads>) -> v1::Report {
        convert::message(execution, fence, report, || {
            let task = self.tasks.get(&execution);
            // The process has ended if only the outputs are still to be stored.
            task.map_or_else(v1::Started::default, |task| v1::Started {
                at_unix_ms: task.started_unix_millis,
                pid: u32::try_from(task.pid).unwrap_or(0),
            })
        })
    }

    fn count_running(&self) -> u32 {
        u32::try_from(self.core.active()).unwrap_or(u32::MAX)
    }

    /// Sends new state to the agent, as far as it accepts it.
    pub(super) fn flush_agent(&mut self) {
        loop {
            let told =
                self.send_reports() | self.send_store_requests() | self.send_watches() | self.send_logs();
            let Some(agent) = &mut self.agent else { return };
            let left = match agent.flush() {
                Ok(left) => left,
                Err(error) => {
                    tracing::debug!(%error, "the agent has disconnected");
                    return self.drop_agent();
                }
            };
            if left != agent.blocked {
                agent.blocked = left;
                if let Err(error) = self.poller.watch_writing(agent.socket(), token::AGENT, left) {
                    tracing::error!(%error, "cannot watch the connection of the agent");
                    return self.drop_agent();
                }
            }
            if left || !told {
                return;
            }
        }
    }

    fn has_room(&self) -> bool {
        self.agent.as_ref().is_some_and(AgentLink::has_room)
    }

    fn send_reports(&mut self) -> bool {
        let synced = self.agent.as_ref().is_some_and(|agent| agent.synced && agent.has_room());
        if !synced || !self.core.has_reports() {
            return false;
        }
        let reports = self.next_reports();
        if reports.is_empty() {
            return false;
        }
        let running = self.count_running();
        self.send_to_agent(Answer::Reports(Reports { reports, running }));
        true
    }

    fn send_store_requests(&mut self) -> bool {
        let mut told = false;
        while self.has_room()
            && let Some((_, assignment)) = self.core.next_to_store()
        {
            self.send_to_agent(Answer::Store(Store { assignment: Some(assignment) }));
            told = true;
        }
        told
    }

    /// Sends a part of each log in turn, until the window is full.
    fn send_logs(&mut self) -> bool {
        let Some(generation) = self.agent.as_ref().and_then(|agent| agent.logs) else { return false };
        let mut told = false;
        while self.has_room()
            && self.log_window_used < LOG_WINDOW
            && let Some(id) = self.unsent.pop_front()
        {
            self.unsent_set.remove(&id);
            let Some(log) = self.logs.get_mut(&id) else { continue };
            let Some(chunk) = log.next_chunk() else { continue };
            if !chunk.frames.is_empty() {
                self.log_window_used += chunk.frames.len() as u64 + LOG_PART_COST;
            }
            let chunk = v1::LogChunk {
                worker_id: self.worker.to_string(),
                execution_id: id.to_string(),
                fence: log.fence.0,
                offset: chunk.offset,
                frames: Bytes::from(chunk.frames),
                end: chunk.end,
                max_bytes: log.bounds.max_bytes(),
                rotated: log.bounds.is_rotated,
                first_offset: log.first(),
            };
            self.send_to_agent(Answer::LogPart(LogPart { generation, chunk: Some(chunk) }));
            self.log_changed(id);
            told = true;
        }
        told
    }
}
