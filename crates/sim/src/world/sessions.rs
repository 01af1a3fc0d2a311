//! Sessions between a server and its workers, and the messages in them.

use std::hash::BuildHasher;
use std::sync::Arc;

use engine::input::HealthReport;
use engine::{Effect, Input, Join, Reply, Report, Session};
use model::{Duration, ExecutionId, Fence, Refusal, StopReason, WorkerId};

use super::World;
use super::agent::AgentMessage;
use super::plan::Mutation;
use crate::history::Answer;

/// The worker at the other end of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    worker: usize,
    id: WorkerId,
    connection: u64,
    /// Number of the last message about the health of executions.
    health_seq: u64,
}

impl World {
    /// Sends effects. Stops that belong to a welcome are sent as a part of it.
    pub(super) fn send_effects(&mut self, server: usize, mut effects: Vec<Effect>) {
        if self.plan.has(Mutation::RandomOrderOfEffects) {
            // Deliberate bug: an order that differs in each process and play.
            let order = std::collections::hash_map::RandomState::new();
            effects.sort_by_cached_key(|effect| order.hash_one(format!("{effect:?}")));
        }
        let mut welcome: Option<(Session, AgentMessage)> = None;
        for effect in effects {
            match effect {
                Effect::Reply { .. } => {}
                Effect::Welcome { session, heartbeat_interval, .. } => {
                    self.send_welcome(server, welcome.take());
                    let message = AgentMessage::Welcome { session, heartbeat_interval, stops: Vec::new() };
                    welcome = Some((session, message));
                }
                Effect::Stop { session, execution, fence, grace, discard, reason, .. } => {
                    let stop = Stop { execution, fence, grace, discard, reason };
                    match &mut welcome {
                        Some((to, AgentMessage::Welcome { stops, .. })) if *to == session && discard => {
                            stops.push(stop);
                        }
                        _ => self.send(server, session, AgentMessage::Stop(stop)),
                    }
                }
                Effect::Grant { session, seq, lease, .. } => {
                    self.send(server, session, AgentMessage::Grant { seq, lease });
                }
                Effect::Assign { session, assignment, .. } => {
                    self.send_welcome(server, welcome.take());
                    self.send(server, session, AgentMessage::Assign(Arc::new(assignment)));
                }
                Effect::Ack { session, execution, fence, last, .. } => {
                    self.send(server, session, AgentMessage::Ack { execution, fence, last });
                }
            }
        }
        self.send_welcome(server, welcome);
    }

    fn send_welcome(&mut self, server: usize, welcome: Option<(Session, AgentMessage)>) {
        if let Some((session, message)) = welcome {
            self.send(server, session, message);
        }
    }

    fn send(&mut self, server: usize, session: Session, message: AgentMessage) {
        if let Some(link) = self.servers[server].sessions.get(&session).copied() {
            self.send_down(server, link.worker, link.connection, message);
        }
    }

    pub(super) fn close_connection(&mut self, server: usize, worker: usize, connection: u64) {
        self.send_down(server, worker, connection, AgentMessage::Closed);
    }

    /// Ends a session without an input to the engine.
    pub(super) fn drop_session(&mut self, server: usize, session: Session) {
        let this = &mut self.servers[server];
        let Some(link) = this.sessions.remove(&session) else { return };
        this.connections.remove(&link.connection);
        self.close_connection(server, link.worker, link.connection);
    }

    pub(super) fn close_sessions(&mut self, server: usize) {
        let this = &mut self.servers[server];
        this.connections.clear();
        for link in std::mem::take(&mut this.sessions).into_values() {
            self.close_connection(server, link.worker, link.connection);
        }
    }

    pub(super) fn reply(&mut self, request: u64, attempt: u32, reply: Result<Reply, Refusal>) {
        let answer = match reply {
            Ok(Reply::Submitted(jobs)) => {
                jobs.first().map_or(Answer::Done, |job| Answer::Submitted { job: job.job })
            }
            Ok(Reply::Applied(applied)) => {
                applied.first().map_or(Answer::Done, |one| Answer::Applied { schedule: one.schedule })
            }
            Ok(Reply::AppliedServices(applied)) => {
                applied.first().map_or(Answer::Done, |one| Answer::ServiceApplied { service: one.service })
            }
            Ok(Reply::RunStarted { run, .. }) => Answer::Started { run },
            Ok(Reply::CheckpointSaved { version }) => Answer::Saved { version },
            Ok(Reply::ElementsAdded(added)) => Answer::Added { first: added.first, count: added.count },
            Ok(_) => Answer::Done,
            Err(refusal) => Answer::Refused { code: refusal.code().as_str().to_owned() },
        };
        self.answer(request, attempt, answer);
    }

    // Incoming messages.

    pub(super) fn session_of(&self, server: usize, connection: u64) -> Option<(Session, WorkerId)> {
        let this = &self.servers[server];
        let session = *this.connections.get(&connection)?;
        Some((session, this.sessions.get(&session)?.id))
    }

    pub(super) fn open_session(&mut self, server: usize, worker: usize, connection: u64, mut join: Join) {
        let session = Session(self.number());
        join.session = session;
        let link = Link { worker, id: join.worker, connection, health_seq: 0 };
        let this = &mut self.servers[server];
        if this.connections.contains_key(&connection) {
            return;
        }
        this.sessions.insert(session, link);
        this.connections.insert(connection, session);
        self.input(server, Input::Join(Box::new(join)));
    }

    pub(super) fn close_session(&mut self, server: usize, connection: u64) {
        let Some((session, worker)) = self.session_of(server, connection) else { return };
        let this = &mut self.servers[server];
        this.sessions.remove(&session);
        this.connections.remove(&connection);
        self.input(server, Input::Disconnect { worker, session });
    }

    pub(super) fn report(
        &mut self,
        server: usize,
        connection: u64,
        execution: ExecutionId,
        fence: Fence,
        report: Report,
    ) {
        let Some((session, worker)) = self.session_of(server, connection) else { return };
        let told = self.maybe_misattributed(server, execution);
        let (worker, session, execution, fence) = told.unwrap_or((worker, session, execution, fence));
        self.input(server, Input::Report { worker, session, execution, fence, report });
    }

    /// Passes the health of executions on. A duplicate is dropped, as by a stream; one of an earlier session reaches the
    /// engine, which must drop it.
    pub(super) fn health(&mut self, server: usize, message: HealthMessage) {
        let HealthMessage { worker, session, seq, reports } = message;
        if let Some(link) = self.servers[server].sessions.get_mut(&session) {
            if seq <= link.health_seq {
                return;
            }
            link.health_seq = seq;
        }
        self.input(server, Input::Health { worker, session, reports });
    }

    /// Deliberate bug: takes any report for a report of the live execution of its job.
    fn maybe_misattributed(
        &mut self,
        server: usize,
        execution: ExecutionId,
    ) -> Option<(WorkerId, Session, ExecutionId, Fence)> {
        if !self.plan.has(Mutation::StaleReportAsCurrent) {
            return None;
        }
        let (worker, newest, fence) = self.store.newest_like(execution)?;
        let mut sessions = self.servers[server].sessions.iter();
        let (session, _) = sessions.find(|(_, link)| link.id == worker)?;
        Some((worker, *session, newest, fence))
    }
}

/// The health of executions of a worker.
#[derive(Debug, Clone)]
pub(super) struct HealthMessage {
    pub(super) worker: WorkerId,
    pub(super) session: Session,
    /// Number of the message; grows in a session.
    pub(super) seq: u64,
    pub(super) reports: Vec<HealthReport>,
}

/// A stop message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stop {
    pub(super) execution: ExecutionId,
    pub(super) fence: Fence,
    pub(super) grace: Duration,
    pub(super) discard: bool,
    pub(super) reason: StopReason,
}
