//! A worker and its agent: sessions, heartbeats, and messages between server and supervisor.
//!
//! A worker is a machine with three parts that start and fail independently: the agent, the supervisor, and
//! the tasks under their fuse. The disk with the journal outlives all of them.
//!
//! - [`Worker`]: the machine, with a clock that runs at a slightly wrong rate and can be suspended.
//! - [`Agent`]: the model of the product's agent; its contract is that a lease counts from the sending of its
//!   heartbeat, and that the stops of a new session precede its first lease.
//! - `send_down`, `send_up`, `travel`, `lose`: the network in both directions. A lost ordered message breaks
//!   its connection.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::input::Held;
use engine::output::Assignment;
use engine::{Join, Report, Session};
use model::id::IdSource;
use model::worker::{Capabilities, Capacity};
use model::{Bytes, Duration, ExecutionId, Fence, Millicores, ShardId, Timestamp, WorkerId};

use supervisor::Holding;

use super::plan::Mutation;
use super::server::ServerMessage;
use super::sessions::Stop;
use super::supervisor::{Disk, Supervisor, SupervisorMessage};
use super::{World, WorldEvent};
use crate::dice::Dice;
use crate::history::What;

/// Timeout of a welcome, after which an agent connects to another server.
const WELCOME_MAX: Duration = Duration::from_secs(3);

/// A message to an agent.
#[derive(Debug, Clone)]
pub(super) enum AgentMessage {
    // From the agent itself.
    Connect,
    Beat { connection: u64 },
    NoWelcome { connection: u64 },
    // From a server, with the connection of the message in `Down`.
    Down { connection: u64, message: Box<Self> },
    Welcome { session: Session, heartbeat_interval: Duration, stops: Vec<Stop> },
    Assign(Arc<Assignment>),
    Stop(Stop),
    Ack { execution: ExecutionId, fence: Fence, last: bool },
    Grant { seq: u64, lease: Duration },
    Closed,
}

/// The agent of a worker.
#[derive(Debug, Default)]
pub(super) struct Agent {
    pub(super) up: bool,
    pub(super) paused: bool,
    pub(super) life: u32,
    inbox: Vec<AgentMessage>,
    server: usize,
    /// Number of its connection; 0 if it has none.
    pub(super) connection: u64,
    /// Session id of the server; `None` before the welcome.
    session: Option<Session>,
    heartbeat_interval: Duration,
    seq: u64,
    /// When heartbeats were sent, on the clock of the machine.
    sent: BTreeMap<u64, i64>,
    /// End of the newest granted lease.
    granted_until: i64,
    /// Number of the last message about the health of executions.
    pub(super) health_seq: u64,
}

/// A machine that runs tasks.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) id: WorkerId,
    pub(super) capacity: Capacity,
    /// Rate error of its clock in parts per million; positive if the clock is fast.
    rate: i64,
    origin: Timestamp,
    pub(super) up: bool,
    /// Whether it is suspended.
    pub(super) paused: bool,
    /// Microseconds that it was suspended before the current suspension, on its clock.
    pub(super) asleep: i64,
    /// Start of the current suspension, on its clock.
    pub(super) fell_asleep: i64,
    pub(super) disk: Disk,
    pub(super) agent: Agent,
    pub(super) supervisor: Supervisor,
}

impl Worker {
    pub(super) fn new(dice: &mut Dice, now: Timestamp, slots: u32) -> Self {
        let capacity = Capacity {
            cpu: Millicores(1_000 + u32::try_from(dice.below(4)).unwrap_or(0) * 1_000),
            memory: Bytes(u64::from(slots) << 30),
            custom: BTreeMap::new(),
            slots,
        };
        let capacity = if slots > 16 { Capacity { cpu: Millicores(64_000), ..capacity } } else { capacity };
        let rate = i64::try_from(dice.between(0, 20_000)).unwrap_or(0) - 10_000;
        Self {
            id: new_id(dice, now),
            capacity,
            rate,
            origin: now,
            up: false,
            paused: false,
            asleep: 0,
            fell_asleep: 0,
            disk: Disk::default(),
            agent: Agent::default(),
            supervisor: Supervisor::down(0),
        }
    }

    /// Returns the time on its clock, which also advances while the machine is suspended, and is slightly wrong.
    pub(super) fn boot(&self, now: Timestamp) -> i64 {
        let passed = now.as_micros() - self.origin.as_micros();
        passed + passed / 1_000_000 * self.rate + passed % 1_000_000 * self.rate / 1_000_000
    }

    /// Returns the time at which its clock shows `boot`.
    pub(super) fn at(&self, boot: i64) -> Timestamp {
        let passed = i128::from(boot) * 1_000_000 / i128::from(1_000_000 + self.rate);
        let passed = i64::try_from(passed).unwrap_or(i64::MAX / 2);
        Timestamp::from_micros(self.origin.as_micros().saturating_add(passed))
    }

    pub(super) fn renew(&mut self, dice: &mut Dice, now: Timestamp) {
        self.id = new_id(dice, now);
        self.disk = Disk::default();
    }
}

fn new_id(dice: &mut Dice, now: Timestamp) -> WorkerId {
    WorkerId::from_bits(IdSource::default().next(now, ShardId(0), dice.number()))
}

/// Returns a duration in microseconds.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 1_000).saturating_mul(1_000)
}

impl World {
    pub(super) fn start_agent(&mut self, worker: usize) {
        let server = self.worker_dice.below(self.servers.len());
        let delay = self.worker_dice.millis(1, 300);
        let agent = &mut self.workers[worker].agent;
        *agent = Agent { up: true, life: agent.life + 1, server, ..Agent::default() };
        self.tell_agent(worker, delay, AgentMessage::Connect);
        self.tell_supervisor(worker, SupervisorMessage::AgentConnected);
    }

    pub(super) fn crash_agent(&mut self, worker: usize) {
        self.close(worker);
        let agent = &mut self.workers[worker].agent;
        *agent = Agent { life: agent.life + 1, ..Agent::default() };
    }

    pub(super) fn resume_agent(&mut self, worker: usize) {
        self.workers[worker].agent.paused = false;
        for message in std::mem::take(&mut self.workers[worker].agent.inbox) {
            self.tell_agent(worker, Duration::ZERO, message);
        }
        // Reports that the supervisor sent meanwhile have waited in the socket.
        self.tell_supervisor(worker, SupervisorMessage::RepeatReports);
        self.send_health(worker, None);
    }

    fn tell_agent(&mut self, worker: usize, delay: Duration, message: AgentMessage) {
        let life = self.workers[worker].agent.life;
        self.put_in(delay, WorldEvent::Agent { worker, life, message });
    }

    /// Sends a message from a server to an agent.
    pub(super) fn send_down(&mut self, server: usize, worker: usize, connection: u64, message: AgentMessage) {
        let unordered = matches!(message, AgentMessage::Grant { .. });
        if self.net.is_cut(worker, server) {
            return self.lose(worker, connection, !unordered);
        }
        let life = self.workers[worker].agent.life;
        let message = AgentMessage::Down { connection, message: Box::new(message) };
        let happening = WorldEvent::Agent { worker, life, message };
        self.travel(worker, connection, !unordered, false, happening);
    }

    /// Sends a message from an agent to its server.
    pub(super) fn send_up(&mut self, worker: usize, message: ServerMessage) {
        let agent = &self.workers[worker].agent;
        let (server, connection) = (agent.server, agent.connection);
        if connection == 0 {
            return;
        }
        let ordered = !matches!(message, ServerMessage::Heartbeat { .. });
        if self.net.is_cut(worker, server) || self.net.mute.contains_key(&worker) {
            return self.lose(worker, connection, ordered);
        }
        let happening = WorldEvent::Server { server, life: None, message };
        self.travel(worker, connection, ordered, true, happening);
    }

    fn travel(&mut self, worker: usize, connection: u64, ordered: bool, upward: bool, what: WorldEvent) {
        let (loss, duplicate) = (self.net.loss, self.net.duplicate);
        let is_stream = matches!(&what, WorldEvent::Server { message: ServerMessage::Health { .. }, .. });
        if self.net.dice.chance(loss) {
            return self.lose(worker, connection, ordered);
        }
        let at = match ordered {
            true => self.net.arrival(self.now, connection, upward, is_stream),
            false => self.now + self.net.delay(),
        };
        if self.net.dice.chance(duplicate) {
            let late = self.net.dice.millis(0, 10_000);
            self.put(at + late, what.clone());
        }
        self.put(at, what);
    }

    /// Loses a message. A lost ordered message breaks its connection, which the agent notices after some time.
    fn lose(&mut self, worker: usize, connection: u64, ordered: bool) {
        if ordered {
            let life = self.workers[worker].agent.life;
            let delay = self.net.dice.millis(0, 15_000);
            let message = AgentMessage::Down { connection, message: Box::new(AgentMessage::Closed) };
            self.put_in(delay, WorldEvent::Agent { worker, life, message });
        }
    }

    pub(super) fn handle_agent_message(&mut self, worker: usize, life: u32, message: AgentMessage) {
        let this = &mut self.workers[worker];
        if life != this.agent.life || !this.agent.up {
            return;
        }
        if this.agent.paused || this.paused {
            return this.agent.inbox.push(message);
        }
        match message {
            AgentMessage::Connect => self.connect(worker),
            AgentMessage::Beat { connection } if connection == this.agent.connection => {
                self.send_beat(worker)
            }
            AgentMessage::NoWelcome { connection }
                if connection == this.agent.connection && this.agent.session.is_none() =>
            {
                self.reconnect(worker);
            }
            AgentMessage::Down { connection, message } if connection == this.agent.connection => {
                self.server_says(worker, *message);
            }
            _ => {}
        }
    }

    /// Opens a session, and reports the executions that the supervisor holds.
    fn connect(&mut self, worker: usize) {
        let connection = self.number();
        let this = &mut self.workers[worker];
        if this.agent.connection != 0 {
            return;
        }
        if !this.supervisor.up || this.supervisor.paused {
            return self.tell_agent(worker, Duration::from_millis(300), AgentMessage::Connect);
        }
        this.agent.connection = connection;
        this.agent.session = None;
        this.agent.sent.clear();
        let held = this.supervisor.core.holdings().map(|held| {
            let Holding { execution, fence, job, is_active } = held;
            Held { execution, fence, running: is_active, job }
        });
        let held = held.collect();
        let join = Join {
            worker: this.id,
            session: Session(0),
            name: format!("worker-{worker}"),
            version: "sim".into(),
            labels: BTreeMap::new(),
            address: None,
            capacity: this.capacity.clone(),
            capabilities: Capabilities::of_processes(),
            held,
        };
        self.send_up(worker, ServerMessage::Hello { worker, connection, join: Box::new(join) });
        self.tell_agent(worker, WELCOME_MAX, AgentMessage::NoWelcome { connection });
    }

    /// Closes the connection, and tries the next server.
    fn reconnect(&mut self, worker: usize) {
        self.close(worker);
        let servers = self.servers.len();
        let agent = &mut self.workers[worker].agent;
        agent.server = (agent.server + 1) % servers;
        let delay = self.worker_dice.millis(50, 800);
        self.tell_agent(worker, delay, AgentMessage::Connect);
    }

    fn close(&mut self, worker: usize) {
        let connection = self.workers[worker].agent.connection;
        self.send_up(worker, ServerMessage::Close { connection });
        let agent = &mut self.workers[worker].agent;
        (agent.connection, agent.session) = (0, None);
    }

    fn send_beat(&mut self, worker: usize) {
        let now = self.now;
        let this = &mut self.workers[worker];
        let boot = this.boot(now);
        let Some(session) = this.agent.session else { return };
        if this.agent.granted_until < boot {
            // The server does not answer; another one may.
            return self.reconnect(worker);
        }
        this.agent.seq += 1;
        let (seq, connection, wait) = (this.agent.seq, this.agent.connection, this.agent.heartbeat_interval);
        this.agent.sent.insert(seq, boot);
        if this.agent.sent.len() > 16 {
            this.agent.sent.pop_first();
        }
        self.send_up(worker, ServerMessage::Heartbeat { worker, connection, session, seq });
        self.tell_agent(worker, wait, AgentMessage::Beat { connection });
    }

    fn server_says(&mut self, worker: usize, message: AgentMessage) {
        let careless = self.plan.has(Mutation::WorkerThawsBeforeItsStops);
        match message {
            AgentMessage::Welcome { session, heartbeat_interval, stops } => {
                let now = self.now;
                let lease = self.plan.setup.lease;
                let this = &mut self.workers[worker];
                if this.agent.session.replace(session).is_some() {
                    return;
                }
                this.agent.heartbeat_interval = heartbeat_interval;
                // The first heartbeats of a session get a full lease.
                this.agent.granted_until = this.boot(now) + micros(lease);
                if !careless {
                    stops
                        .into_iter()
                        .for_each(|stop| self.tell_supervisor(worker, SupervisorMessage::Stop(stop)));
                }
                self.tell_supervisor(worker, SupervisorMessage::RepeatReports);
                self.send_health(worker, None);
                self.send_beat(worker);
            }
            AgentMessage::Assign(assignment) => {
                let id = self.workers[worker].id;
                let (execution, fence) = (assignment.execution, assignment.fence);
                self.record(What::Heard { worker: id, execution, fence });
                self.tell_supervisor(worker, SupervisorMessage::Start(assignment));
            }
            AgentMessage::Stop(stop) => self.tell_supervisor(worker, SupervisorMessage::Stop(stop)),
            AgentMessage::Ack { execution, fence, last } => {
                self.tell_supervisor(worker, SupervisorMessage::Ack { execution, fence, last });
            }
            AgentMessage::Grant { lease, .. } if lease == Duration::ZERO => self.reconnect(worker),
            AgentMessage::Grant { seq, lease } => self.granted(worker, seq, lease),
            AgentMessage::Closed => self.reconnect(worker),
            _ => {}
        }
    }

    /// Handles the answer to a heartbeat: the lease counts from its sending.
    fn granted(&mut self, worker: usize, seq: u64, lease: Duration) {
        let now = self.now;
        let from_answer = self.plan.has(Mutation::WorkerCountsItsLeaseFromTheAnswer);
        let this = &mut self.workers[worker];
        let Some(&sent) = this.agent.sent.get(&seq) else { return };
        let from = if from_answer { this.boot(now) } else { sent };
        let until = from + micros(lease);
        this.agent.granted_until = this.agent.granted_until.max(until);
        let until = u64::try_from(until / 1_000).unwrap_or(0);
        self.tell_supervisor(worker, SupervisorMessage::Lease { until });
    }

    /// Sends a report of the supervisor.
    pub(super) fn send_report(
        &mut self,
        worker: usize,
        execution: ExecutionId,
        fence: Fence,
        report: Report,
    ) {
        let connection = self.workers[worker].agent.connection;
        let report = Box::new(report);
        self.send_up(worker, ServerMessage::Report { connection, execution, fence, report });
    }

    /// Returns the session of an agent that passes reports on.
    pub(super) fn session_of_agent(&self, worker: usize) -> Option<Session> {
        let agent = &self.workers[worker].agent;
        agent.session.filter(|_| self.is_in_session(worker))
    }

    /// Whether the agent passes reports of the supervisor on.
    pub(super) fn is_in_session(&self, worker: usize) -> bool {
        let agent = &self.workers[worker].agent;
        agent.up && !agent.paused && agent.session.is_some()
    }
}
