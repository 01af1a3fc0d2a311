//! Fault injection: which faults occur, and when. All are drawn before a world begins, and are repaired
//! before it ends.
//!
//! - [`Nemesis::draw`]: up to 17 independent faults of any kind, between any two hosts, and two scenarios
//!   that random faults rarely produce: [`partition`] (the leader loses the store and some workers) and
//!   [`late_answers`] (heartbeats are lost while their answers are in transit).
//! - [`Nemesis::act`], `begin`, `repair_fault`: the faults on the simulated network, hosts and store
//!   connections.
//! - [`repair_all`]: the end of the rough phase, also for faults that overlapped.
//!
//! Each fault is recorded in the history under its label.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sim::dice::Dice;
use sim::history::What;
use store::faulty::{Fault as StoreFault, Operation};
use turmoil::Sim;

use crate::cluster::{CLIENT, Cluster};
use crate::machines::Machine;
use crate::recorder::Recorder;
use crate::servers::{CALL_MILLIS, REACHABLE};

/// Maximum latency of messages without a fault.
pub(crate) const QUICK: Duration = Duration::from_millis(20);

/// Time after which a call to an unresponsive store fails, in milliseconds.
const SILENCE_MILLIS: u64 = 35_000;

/// An injected fault.
#[derive(Debug, Clone)]
enum FaultKind {
    /// No message passes between the two hosts: messages are lost, and connections break.
    Cut(String, String),
    /// The same in one direction only.
    OneWay(String, String),
    /// Messages between the two hosts are held, and delivered together at the end.
    Hold(String, String),
    /// Messages between the two hosts take this number of milliseconds.
    Slow(String, String, u64),
    /// A machine is cut off from all servers.
    Isolated(usize),
    /// A host loses power until the end of the fault.
    PowerCut(String),
    /// The agent of a machine is killed, and a new one is started.
    NewAgent(usize),
    /// The next commit of a server fails.
    Commit(usize, StoreFault),
    /// A server cannot reach the store: its calls fail after this number of milliseconds.
    StoreUnreachable(usize, u64),
    /// Calls to the store take up to this number of milliseconds in each direction.
    SlowStore(usize, u64),
}

impl FaultKind {
    fn concerns(&self, host: &str) -> bool {
        matches!(self, Self::Slow(a, b, _) | Self::Hold(a, b) if a == host || b == host)
    }

    fn label(&self) -> String {
        match self {
            Self::Cut(a, b) => format!("cut {a} {b}"),
            Self::OneWay(a, b) => format!("one way {a} {b}"),
            Self::Hold(a, b) => format!("hold {a} {b}"),
            Self::Slow(a, b, millis) => format!("slow {a} {b} {millis}"),
            Self::Isolated(machine) => format!("island w{machine}"),
            Self::PowerCut(host) => format!("power cut {host}"),
            Self::NewAgent(machine) => format!("new agent w{machine}"),
            Self::Commit(server, fault) => format!("commit s{server} {fault:?}"),
            Self::StoreUnreachable(server, 0) => format!("store refuses s{server}"),
            Self::StoreUnreachable(server, _) => format!("store silent to s{server}"),
            Self::SlowStore(server, millis) => format!("slow store s{server} {millis}"),
        }
    }
}

/// Faults that are still to be injected and repaired, the last one first.
pub(crate) struct Nemesis {
    changes: Vec<(Duration, FaultChange)>,
    pub(crate) faults: usize,
}

#[derive(Debug, Clone)]
enum FaultChange {
    Begin(FaultKind),
    Repair(FaultKind),
}

impl Nemesis {
    /// Draws random faults for the rough phase of a world.
    pub(crate) fn draw(cast: &Cluster, rough: Duration, dice: &mut Dice) -> Self {
        let faults = dice.below(18);
        let mut deeds = Vec::new();
        if cast.store_connections.len() > 1 {
            deeds.extend(partition(cast, rough, dice));
        }
        for _ in 0..faults {
            let kind = kind(cast, dice);
            let begins = rough.mul_f64(dice.fraction(0.05, 0.95));
            // Shorter and longer than leases, and than the time until a silent connection is closed.
            let lasts = Duration::from_millis(match dice.below(3) {
                0 => dice.between(20, 1_000),
                1 => dice.between(1_000, 6_000),
                _ => dice.between(6_000, 25_000),
            });
            let ends = (begins + lasts).min(rough);
            // Late answers followed by none may cause a defective worker to trust its lease for too long.
            if let (FaultKind::Slow(..) | FaultKind::Hold(..), true) =
                (&kind, ends < rough && dice.chance(0.9))
            {
                let machine = cast.machines.iter().position(|machine| kind.concerns(&machine.name()));
                let island = FaultKind::Isolated(machine.unwrap_or(0));
                let lasts = Duration::from_millis(dice.between(6_000, 12_000));
                deeds.push((ends, FaultChange::Begin(island.clone())));
                deeds.push(((ends + lasts).min(rough), FaultChange::Repair(island)));
            }
            deeds.push((begins, FaultChange::Begin(kind.clone())));
            deeds.push((ends, FaultChange::Repair(kind)));
        }
        if cast.machines.len() > 1 && dice.chance(0.6) {
            deeds.extend(late_answers(cast, rough, dice));
        }
        // At the same time, repairs come before injections, so that a new fault is not repaired at once.
        deeds.sort_by_key(|(at, deed)| (std::cmp::Reverse(*at), matches!(deed, FaultChange::Repair(_))));
        Self { changes: deeds, faults }
    }

    /// Injects and repairs the faults whose time has come.
    pub(crate) fn act(&mut self, sim: &mut Sim<'_>, cast: &Cluster, recorder: &Recorder) {
        while let Some((_, deed)) = self.changes.pop_if(|(at, _)| *at <= sim.elapsed()) {
            let (kind, begins) = match &deed {
                FaultChange::Begin(kind) => (kind, true),
                FaultChange::Repair(kind) => (kind, false),
            };
            recorder.note(What::Fault { fault: kind.label(), begins });
            tracing::info!(fault = kind.label(), begins, "nemesis");
            if let (true, FaultKind::PowerCut(host)) = (begins, kind) {
                // The result of a task that has just ended may be lost with its supervisor.
                let machine = cast.machines.iter().find(|machine| machine.name() == *host);
                machine.into_iter().for_each(|machine| recorder.note(What::Crashed { worker: machine.id }));
            }
            if begins { begin(kind, sim, cast) } else { repair_fault(kind, sim, cast) }
        }
    }
}

/// Restores the network after overlapping faults, and delivers held messages.
pub(crate) fn repair_all(sim: &Sim<'_>, cast: &Cluster) {
    let others = cast.machines.iter().map(Machine::name).chain([CLIENT.to_owned()]);
    for other in others {
        for server in (0..cast.store_connections.len()).map(crate::servers::name) {
            sim.release(server.as_str(), other.as_str());
            sim.set_link_latency(server.as_str(), other.as_str(), QUICK);
        }
    }
}

fn kind(cast: &Cluster, dice: &mut Dice) -> FaultKind {
    let server = dice.below(cast.store_connections.len());
    let machine = dice.below(cast.machines.len());
    let one = crate::servers::name(server);
    let other = match dice.below(5) {
        0 => CLIENT.to_owned(),
        _ => crate::machines::name(machine),
    };
    let pair = if dice.chance(0.5) { (one.clone(), other) } else { (other, one.clone()) };
    match dice.below(17) {
        0 | 1 => FaultKind::Cut(pair.0, pair.1),
        2 | 3 => FaultKind::OneWay(pair.0, pair.1),
        4 | 5 => FaultKind::Hold(pair.0, pair.1),
        6 | 7 => FaultKind::Slow(pair.0, pair.1, dice.between(50, 1_500)),
        8 | 9 => FaultKind::PowerCut(one),
        10 => FaultKind::PowerCut(crate::machines::name(machine)),
        11 => FaultKind::NewAgent(machine),
        12 | 13 => FaultKind::Isolated(machine),
        14 => FaultKind::Commit(server, [StoreFault::Before, StoreFault::After][dice.below(2)].clone()),
        15 => FaultKind::StoreUnreachable(server, [0, SILENCE_MILLIS][dice.below(2)]),
        _ => FaultKind::SlowStore(server, dice.between(20, 800)),
    }
}

/// Only one server can reach the store, and some workers can reach only that server. This lasts longer than the
/// leases of a server and of a worker together. In most cases the leader is cut off: another server takes over, and
/// retries the executions that it considers lost.
fn partition(cast: &Cluster, rough: Duration, dice: &mut Dice) -> Vec<(Duration, FaultChange)> {
    let survivor = dice.below(cast.store_connections.len());
    let machine = crate::machines::name(dice.below(cast.machines.len()));
    let patience = if dice.chance(0.25) { 0 } else { SILENCE_MILLIS };
    let cut_off = (0..cast.store_connections.len()).filter(|server| *server != survivor);
    let kinds = cut_off.flat_map(|server| {
        [
            FaultKind::StoreUnreachable(server, patience),
            FaultKind::Cut(crate::servers::name(server), machine.clone()),
        ]
    });
    let begins = rough.mul_f64(dice.fraction(0.1, 0.4));
    let ends = (begins + Duration::from_millis(dice.between(12_000, 40_000))).min(rough);
    kinds
        .flat_map(|kind| [(begins, FaultChange::Begin(kind.clone())), (ends, FaultChange::Repair(kind))])
        .collect()
}

/// Messages are slow, but not slow enough for the worker to leave the server. Then its heartbeats are lost while the
/// last answers are still in transit. A worker that counts its lease from the answers relies on the lease after the
/// server has assigned its jobs to another worker.
fn late_answers(cast: &Cluster, rough: Duration, dice: &mut Dice) -> Vec<(Duration, FaultChange)> {
    let machine = dice.below(cast.machines.len());
    let begins = rough.mul_f64(dice.fraction(0.1, 0.7));
    let cut = begins + Duration::from_millis(dice.between(5_000, 9_000));
    let ends = (cut + Duration::from_millis(dice.between(8_000, 12_000))).min(rough);
    let mut deeds = Vec::new();
    for server in 0..cast.store_connections.len() {
        let slow = FaultKind::Slow(
            crate::servers::name(server),
            crate::machines::name(machine),
            dice.between(700, 950),
        );
        let lost = FaultKind::OneWay(crate::machines::name(machine), crate::servers::name(server));
        deeds.extend([(begins, FaultChange::Begin(slow.clone())), (ends, FaultChange::Repair(slow))]);
        deeds.extend([(cut, FaultChange::Begin(lost.clone())), (ends, FaultChange::Repair(lost))]);
    }
    deeds.retain(|(at, deed)| *at < rough || matches!(deed, FaultChange::Repair(_)));
    deeds
}

fn begin(kind: &FaultKind, sim: &mut Sim<'_>, cast: &Cluster) {
    match kind {
        FaultKind::Cut(a, b) => sim.partition(a.as_str(), b.as_str()),
        FaultKind::OneWay(a, b) => sim.partition_oneway(a.as_str(), b.as_str()),
        FaultKind::Hold(a, b) => sim.hold(a.as_str(), b.as_str()),
        FaultKind::Slow(a, b, millis) => {
            sim.set_link_latency(a.as_str(), b.as_str(), Duration::from_millis(*millis));
        }
        FaultKind::Isolated(machine) => {
            let machine = cast.machines[*machine].name();
            (0..cast.store_connections.len())
                .for_each(|server| sim.partition(machine.as_str(), crate::servers::name(server)));
        }
        FaultKind::PowerCut(host) => {
            if sim.is_host_running(host.as_str()) {
                sim.crash(host.as_str());
            }
        }
        FaultKind::NewAgent(machine) => cast.machines[*machine].restart.notify_one(),
        FaultKind::Commit(server, fault) => {
            cast.store_connections[*server].store.inject_next(Operation::Commit, fault.clone());
        }
        FaultKind::StoreUnreachable(server, millis) => {
            cast.store_connections[*server].away.store(*millis, Ordering::Relaxed)
        }
        FaultKind::SlowStore(server, millis) => {
            cast.store_connections[*server].slow.store(*millis, Ordering::Relaxed)
        }
    }
}

fn repair_fault(kind: &FaultKind, sim: &mut Sim<'_>, cast: &Cluster) {
    match kind {
        FaultKind::Cut(a, b) => sim.repair(a.as_str(), b.as_str()),
        FaultKind::OneWay(a, b) => sim.repair_oneway(a.as_str(), b.as_str()),
        FaultKind::Hold(a, b) => sim.release(a.as_str(), b.as_str()),
        FaultKind::Slow(a, b, _) => sim.set_link_latency(a.as_str(), b.as_str(), QUICK),
        FaultKind::Isolated(machine) => {
            let machine = cast.machines[*machine].name();
            (0..cast.store_connections.len())
                .for_each(|server| sim.repair(machine.as_str(), crate::servers::name(server)));
        }
        FaultKind::PowerCut(host) => {
            if !sim.is_host_running(host.as_str()) {
                sim.bounce(host.as_str());
            }
        }
        FaultKind::SlowStore(server, _) => {
            cast.store_connections[*server].slow.store(CALL_MILLIS, Ordering::Relaxed)
        }
        FaultKind::StoreUnreachable(server, _) => {
            cast.store_connections[*server].away.store(REACHABLE, Ordering::Relaxed)
        }
        FaultKind::NewAgent(_) | FaultKind::Commit(..) => {}
    }
}
