//! A whole cluster in one thread, on virtual time.
//!
//! ```text
//! clients ──> servers (the real leader and engine) ──> store
//!                │ ▲
//!     network:   ▼ │   delay, loss, duplicates, reordering, partitions
//!             workers (agent, the real supervisor over a disk, fuse, tasks)
//! ```
//!
//! The cores are the ones that ship: engine, leader and supervisor. Everything around them is a model of the
//! contracts between the product's parts, and of their faults. The world is an agenda of events, ordered by time and
//! then by insertion. A seed determines everything else, so every play of a world is the same.
//!
//! - [`plan`]: size, load and faults of a world; deliberate bugs.
//! - [`server`]: the process around the leader and its engine; [`sessions`]: connections between servers and workers;
//!   [`standby`]: what a following standby reads; [`members`]: how servers see each other; [`rebuild`]: an engine
//!   that is rebuilt from the rows for comparison.
//! - [`store`]: rows, leases, epochs; [`calls`]: store calls and their answers.
//! - [`agent`], [`supervisor`] with its [`launcher`], [`fuse`], [`task`], [`health`]: the parts of a worker.
//! - [`client`]: clients that submit jobs and change objects; [`runs`]: clients of workflows; [`services`]: clients of
//!   services. [`nemesis`]: fault injection.

mod agenda;
mod agent;
mod calls;
mod client;
mod fuse;
mod health;
mod launcher;
mod members;
mod nemesis;
pub mod plan;
mod rebuild;
mod runs;
mod server;
mod services;
mod sessions;
mod standby;
mod store;
mod supervisor;
mod task;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::{Duration, ExecutionId, ServerId, Timestamp};

use crate::dice::Dice;
use crate::history::{Event, History, What};
use agenda::Agenda;
use agent::{AgentMessage, Worker};
use calls::StoreCall;
use client::{ClientMessage, Clients};
use members::Members;
use plan::{FaultKind, Plan, concern};
use server::{Server, ServerMessage};
use store::Store;
pub use store::StoreRecorder;
use supervisor::SupervisorMessage;

/// An event on the agenda. An event for one life of a process is void in the next life. Events are moved often, so
/// their large parts are boxed.
#[derive(Debug, Clone)]
enum WorldEvent {
    Server {
        server: usize,
        life: Option<u32>,
        message: ServerMessage,
    },
    Agent {
        worker: usize,
        life: u32,
        message: AgentMessage,
    },
    Supervisor {
        worker: usize,
        life: u32,
        message: SupervisorMessage,
    },
    /// The agent of this life has stored the output files of an execution.
    Stored {
        worker: usize,
        agent: u32,
        execution: ExecutionId,
    },
    Fuse {
        worker: usize,
        life: u32,
        at: ::supervisor::BootMillis,
    },
    TaskEnd {
        worker: usize,
        life: u32,
        execution: ExecutionId,
        run: u32,
    },
    /// A worker checks the health of a task.
    Check {
        worker: usize,
        life: u32,
        execution: ExecutionId,
    },
    Store(Box<StoreCall>),
    /// A server announces itself in the store, and reads the list of servers.
    Look {
        server: usize,
        life: u32,
        number: u64,
        id: ServerId,
        lag: Option<Duration>,
    },
    Client(ClientMessage),
    Fault {
        index: usize,
        begins: bool,
    },
    Rebuild,
    Calm,
}

/// State of the network.
#[derive(Debug)]
struct Net {
    dice: Dice,
    loss: f64,
    duplicate: f64,
    reorder: bool,
    delay_max: Duration,
    /// Partitions between workers and servers, with the number of faults that cause them.
    cut: BTreeMap<(usize, usize), u32>,
    /// Workers whose outgoing messages are lost.
    mute: BTreeMap<usize, u32>,
    /// Servers that cannot reach the store.
    from_store: BTreeMap<usize, u32>,
    /// Arrival time of the newest message, by connection and direction.
    order: BTreeMap<(u64, bool), Timestamp>,
}

/// Statistics of a world.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Inputs that engines handled.
    pub inputs: u64,
    /// Batches that were committed.
    pub commits: u64,
    /// Batches whose outcome the store did not report.
    pub unknown_commits: u64,
    /// Batches that the store refused because another server had taken over.
    pub fenced_commits: u64,
    /// Effects that a server released after another server had taken over: their batch was committed before.
    pub late_effects: u64,
    /// Accepted jobs.
    pub jobs: u64,
    /// Started tasks.
    pub tasks: u64,
    /// Injected faults.
    pub faults: u64,
    /// Virtual time that passed, in milliseconds.
    pub virtual_millis: u64,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.inputs += other.inputs;
        self.commits += other.commits;
        self.unknown_commits += other.unknown_commits;
        self.fenced_commits += other.fenced_commits;
        self.late_effects += other.late_effects;
        self.jobs += other.jobs;
        self.tasks += other.tasks;
        self.faults += other.faults;
        self.virtual_millis += other.virtual_millis;
    }
}

/// A simulated cluster and its clients.
#[derive(Debug)]
pub struct World {
    plan: Plan,
    now: Timestamp,
    begin: Timestamp,
    calm_since: Option<Timestamp>,
    agenda: Agenda,
    net: Net,
    store: Store,
    store_dice: Dice,
    /// Store faults in progress, by the index of the fault.
    store_faults: Vec<(usize, FaultKind)>,
    servers: Vec<Server>,
    server_dice: Dice,
    standby_dice: Dice,
    members: Members,
    member_dice: Dice,
    /// Last number of a session, connection, call or ticket: each number is used once.
    numbers: u64,
    workers: Vec<Worker>,
    worker_dice: Dice,
    task_dice: Dice,
    /// Draws the tasks of replicas, and their health.
    replica_dice: Dice,
    clients: Clients,
    history: History,
    stats: Stats,
}

/// Events in a slice. Few enough that they are still in the L2 cache when they are judged.
const SLICE: usize = 512;
/// Minimum time that a world continues after the faults end, so that schedules keep firing.
const QUIET_MIN: Duration = Duration::from_secs(90);

impl World {
    /// Creates the world of a plan at its start.
    pub fn new(plan: Plan) -> Self {
        let begin: Timestamp = Timestamp::from_millis(1_772_438_400_000); // 2026-03-02T08:00:00Z
        let begin = begin + Duration::from_millis(plan.seed % 86_400_000);
        let seed = plan.seed;
        let history = History { setup: plan.setup.clone(), events: Vec::new() };
        let mut world = Self {
            now: begin,
            begin,
            calm_since: None,
            agenda: Agenda::default(),
            net: Net {
                dice: Dice::new(seed, concern::NET),
                loss: 0.0,
                duplicate: 0.0,
                reorder: false,
                delay_max: Duration::from_millis(3),
                cut: BTreeMap::new(),
                mute: BTreeMap::new(),
                from_store: BTreeMap::new(),
                order: BTreeMap::new(),
            },
            store: Store::new(plan.shards, plan.mutation(), !plan.keeps_all),
            store_dice: Dice::new(seed, concern::STORE),
            store_faults: Vec::new(),
            servers: (0..plan.servers).map(|_| Server::default()).collect(),
            server_dice: Dice::new(seed, concern::SERVERS),
            standby_dice: Dice::new(seed, concern::STANDBYS),
            members: Members::default(),
            member_dice: Dice::new(seed, concern::MEMBERS),
            numbers: 0,
            workers: Vec::new(),
            worker_dice: Dice::new(seed, concern::WORKERS),
            task_dice: Dice::new(seed, concern::TASKS),
            replica_dice: Dice::new(seed, concern::REPLICAS),
            clients: Clients::new(seed, plan.with_keys),
            history,
            stats: Stats::default(),
            plan,
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        for server in 0..self.servers.len() {
            self.start_server(server);
        }
        for _ in 0..self.plan.workers {
            let worker = Worker::new(&mut self.worker_dice, self.now, self.plan.slots);
            self.workers.push(worker);
            self.start_machine(self.workers.len() - 1);
        }
        self.schedule_load();
        for (index, fault) in self.plan.faults.clone().into_iter().enumerate() {
            let at = self.begin + fault.at;
            self.put(at, WorldEvent::Fault { index, begins: true });
            self.put(at + fault.length, WorldEvent::Fault { index, begins: false });
        }
        self.put(self.begin + self.plan.rough, WorldEvent::Calm);
        self.put(self.begin + self.plan.rebuild_every, WorldEvent::Rebuild);
    }

    /// Plays the world to its end, and returns its history.
    pub fn run(mut self) -> (History, Stats) {
        self.play(|_| {});
        (self.history, self.stats)
    }

    /// Plays the world to its end without keeping its history: `receive` takes about 500 events at a time. Events
    /// that it leaves are passed again, with more.
    pub fn run_in_slices(mut self, mut receive: impl FnMut(&mut Vec<Event>)) -> Stats {
        self.play(|events| {
            if events.len() >= SLICE {
                receive(events);
            }
        });
        receive(&mut self.history.events);
        self.stats
    }

    fn play(&mut self, mut happened: impl FnMut(&mut Vec<Event>)) {
        while let Some((at, happening)) = self.agenda.next() {
            debug_assert!(at >= self.now, "time never runs backwards");
            self.now = at;
            self.handle_event(happening);
            happened(&mut self.history.events);
            if self.is_over() {
                break;
            }
        }
        let unacknowledged = self.unacknowledged();
        self.record(What::End { unacknowledged });
        self.stats.virtual_millis = self.now.since(self.begin).as_millis();
    }

    fn handle_event(&mut self, happening: WorldEvent) {
        match happening {
            WorldEvent::Server { server, life, message } => self.handle_server_message(server, life, message),
            WorldEvent::Agent { worker, life, message } => self.handle_agent_message(worker, life, message),
            WorldEvent::Supervisor { worker, life, message } => {
                self.handle_supervisor_message(worker, life, message)
            }
            WorldEvent::Stored { worker, agent, execution } => self.stored(worker, agent, execution),
            WorldEvent::Fuse { worker, life, at } => self.check_fuse(worker, life, at),
            WorldEvent::TaskEnd { worker, life, execution, run } => {
                self.task_ends(worker, life, execution, run);
            }
            WorldEvent::Check { worker, life, execution } => self.check_health(worker, life, execution),
            WorldEvent::Store(call) => self.execute_store_call(*call),
            WorldEvent::Look { server, life, number, id, lag } => {
                self.execute_poll(server, life, number, id, lag);
            }
            WorldEvent::Client(message) => self.handle_client_message(message),
            WorldEvent::Fault { index, begins } => self.fault(index, begins),
            WorldEvent::Rebuild => {
                self.request_rebuild();
                self.put_in(self.plan.rebuild_every, WorldEvent::Rebuild);
            }
            WorldEvent::Calm => self.calm_down(),
        }
    }

    fn is_over(&self) -> bool {
        let Some(since) = self.calm_since else { return false };
        let quiet = self.now.since(since);
        quiet >= self.plan.calm
            || (quiet >= QUIET_MIN
                && self.store.is_quiet()
                && self.clients.are_done()
                && self.unacknowledged().is_empty())
    }

    fn put(&mut self, at: Timestamp, happening: WorldEvent) {
        self.agenda.put(at.max(self.now), happening);
    }

    fn put_in(&mut self, delay: Duration, happening: WorldEvent) {
        self.put(self.now + delay, happening);
    }

    fn record(&mut self, what: What) {
        self.history.events.push(Event { at: self.now, what });
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

impl Net {
    /// Draws the delay of a message.
    fn delay(&mut self) -> Duration {
        let most = self.delay_max.as_millis();
        // Most messages are fast even when some are slow.
        if most > 10 && self.dice.chance(0.7) { self.dice.millis(0, 10) } else { self.dice.millis(0, most) }
    }

    fn is_cut(&self, worker: usize, server: usize) -> bool {
        self.cut.contains_key(&(worker, server))
    }

    /// Returns the arrival time of a message: after earlier messages of the connection, unless messages are
    /// reordered. Messages of a stream never are.
    fn arrival(&mut self, now: Timestamp, connection: u64, upward: bool, is_stream: bool) -> Timestamp {
        let at = now + self.delay();
        if self.reorder && !is_stream {
            return at;
        }
        let last = self.order.entry((connection, upward)).or_default();
        *last = at.max(*last);
        *last
    }
}
