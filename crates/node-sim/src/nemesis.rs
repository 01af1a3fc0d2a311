//! Fault injection: which faults occur, and when. All are drawn before a world begins, and are repaired before it
//! ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sim::dice::Dice;
use sim::history::What;
use store::faulty::{Fault as StoreFault, Operation};
use turmoil::Sim;

use crate::cast::{CLIENT, Cast};
use crate::machines::Machine;
use crate::recorder::Recorder;
use crate::servers::{CALL_MILLIS, REACHED};

/// Maximum latency of messages without a fault.
pub(crate) const QUICK: Duration = Duration::from_millis(20);

/// Time after which a call to an unresponsive store fails, in milliseconds.
const SILENCE_MILLIS: u64 = 35_000;

/// An injected fault.
#[derive(Debug, Clone)]
enum Kind {
    /// No message passes between the two hosts: messages are lost, and connections break.
    Cut(String, String),
    /// The same in one direction only.
    OneWay(String, String),
    /// Messages between the two hosts are held, and delivered together at the end.
    Hold(String, String),
    /// Messages between the two hosts take this number of milliseconds.
    Slow(String, String, u64),
    /// A machine is cut off from all servers.
    Island(usize),
    /// A host loses power until the end of the fault.
    PowerCut(String),
    /// The agent of a machine is killed, and a new one is started.
    NewAgent(usize),
    /// The next commit of a server fails.
    Commit(usize, StoreFault),
    /// A server cannot reach the store: its calls fail after this number of milliseconds.
    Away(usize, u64),
    /// Calls to the store take up to this number of milliseconds in each direction.
    SlowStore(usize, u64),
}

impl Kind {
    fn concerns(&self, host: &str) -> bool {
        matches!(self, Self::Slow(a, b, _) | Self::Hold(a, b) if a == host || b == host)
    }

    fn word(&self) -> String {
        match self {
            Self::Cut(a, b) => format!("cut {a} {b}"),
            Self::OneWay(a, b) => format!("one way {a} {b}"),
            Self::Hold(a, b) => format!("hold {a} {b}"),
            Self::Slow(a, b, millis) => format!("slow {a} {b} {millis}"),
            Self::Island(machine) => format!("island w{machine}"),
            Self::PowerCut(host) => format!("power cut {host}"),
            Self::NewAgent(machine) => format!("new agent w{machine}"),
            Self::Commit(server, fault) => format!("commit s{server} {fault:?}"),
            Self::Away(server, 0) => format!("store refuses s{server}"),
            Self::Away(server, _) => format!("store silent to s{server}"),
            Self::SlowStore(server, millis) => format!("slow store s{server} {millis}"),
        }
    }
}

/// Faults that are still to be injected and repaired, the last one first.
pub(crate) struct Nemesis {
    deeds: Vec<(Duration, Deed)>,
    pub(crate) faults: usize,
}

#[derive(Debug, Clone)]
enum Deed {
    Begin(Kind),
    Mend(Kind),
}

impl Nemesis {
    /// Draws random faults for the rough phase of a world.
    pub(crate) fn draw(cast: &Cast, rough: Duration, dice: &mut Dice) -> Self {
        let faults = dice.below(18);
        let mut deeds = Vec::new();
        if cast.ways.len() > 1 {
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
            if let (Kind::Slow(..) | Kind::Hold(..), true) = (&kind, ends < rough && dice.chance(0.9)) {
                let machine = cast.machines.iter().position(|machine| kind.concerns(&machine.name()));
                let island = Kind::Island(machine.unwrap_or(0));
                let lasts = Duration::from_millis(dice.between(6_000, 12_000));
                deeds.push((ends, Deed::Begin(island.clone())));
                deeds.push(((ends + lasts).min(rough), Deed::Mend(island)));
            }
            deeds.push((begins, Deed::Begin(kind.clone())));
            deeds.push((ends, Deed::Mend(kind)));
        }
        if cast.machines.len() > 1 && dice.chance(0.6) {
            deeds.extend(late_answers(cast, rough, dice));
        }
        // At the same time, repairs come before injections, so that a new fault is not repaired at once.
        deeds.sort_by_key(|(at, deed)| (std::cmp::Reverse(*at), matches!(deed, Deed::Mend(_))));
        Self { deeds, faults }
    }

    /// Injects and repairs the faults whose time has come.
    pub(crate) fn act(&mut self, sim: &mut Sim<'_>, cast: &Cast, recorder: &Recorder) {
        while let Some((_, deed)) = self.deeds.pop_if(|(at, _)| *at <= sim.elapsed()) {
            let (kind, begins) = match &deed {
                Deed::Begin(kind) => (kind, true),
                Deed::Mend(kind) => (kind, false),
            };
            recorder.note(What::Fault { fault: kind.word(), begins });
            tracing::info!(fault = kind.word(), begins, "nemesis");
            if begins { begin(kind, sim, cast) } else { mend(kind, sim, cast) }
        }
    }
}

/// Restores the network after overlapping faults, and delivers held messages.
pub(crate) fn calm(sim: &Sim<'_>, cast: &Cast) {
    let others = cast.machines.iter().map(Machine::name).chain([CLIENT.to_owned()]);
    for other in others {
        for server in (0..cast.ways.len()).map(crate::servers::name) {
            sim.release(server.as_str(), other.as_str());
            sim.set_link_latency(server.as_str(), other.as_str(), QUICK);
        }
    }
}

fn kind(cast: &Cast, dice: &mut Dice) -> Kind {
    let server = dice.below(cast.ways.len());
    let machine = dice.below(cast.machines.len());
    let one = crate::servers::name(server);
    let other = match dice.below(5) {
        0 => CLIENT.to_owned(),
        _ => crate::machines::name(machine),
    };
    let pair = if dice.chance(0.5) { (one.clone(), other) } else { (other, one.clone()) };
    match dice.below(17) {
        0 | 1 => Kind::Cut(pair.0, pair.1),
        2 | 3 => Kind::OneWay(pair.0, pair.1),
        4 | 5 => Kind::Hold(pair.0, pair.1),
        6 | 7 => Kind::Slow(pair.0, pair.1, dice.between(50, 1_500)),
        8 | 9 => Kind::PowerCut(one),
        10 => Kind::PowerCut(crate::machines::name(machine)),
        11 => Kind::NewAgent(machine),
        12 | 13 => Kind::Island(machine),
        14 => Kind::Commit(server, [StoreFault::Before, StoreFault::After][dice.below(2)].clone()),
        15 => Kind::Away(server, [0, SILENCE_MILLIS][dice.below(2)]),
        _ => Kind::SlowStore(server, dice.between(20, 800)),
    }
}

/// Only one server can reach the store, and some workers can reach only that server. This lasts longer than the
/// leases of a server and of a worker together. In most cases the leader is cut off: another server takes over, and
/// retries the executions that it considers lost.
fn partition(cast: &Cast, rough: Duration, dice: &mut Dice) -> Vec<(Duration, Deed)> {
    let survivor = dice.below(cast.ways.len());
    let machine = crate::machines::name(dice.below(cast.machines.len()));
    let patience = if dice.chance(0.25) { 0 } else { SILENCE_MILLIS };
    let cut_off = (0..cast.ways.len()).filter(|server| *server != survivor);
    let kinds = cut_off.flat_map(|server| {
        [Kind::Away(server, patience), Kind::Cut(crate::servers::name(server), machine.clone())]
    });
    let begins = rough.mul_f64(dice.fraction(0.1, 0.4));
    let ends = (begins + Duration::from_millis(dice.between(12_000, 40_000))).min(rough);
    kinds.flat_map(|kind| [(begins, Deed::Begin(kind.clone())), (ends, Deed::Mend(kind))]).collect()
}

/// Messages are slow, but not slow enough for the worker to leave the server. Then its heartbeats are lost while the
/// last answers are still in transit. A worker that counts its lease from the answers relies on the lease after the
/// server has assigned its jobs to another worker.
fn late_answers(cast: &Cast, rough: Duration, dice: &mut Dice) -> Vec<(Duration, Deed)> {
    let machine = dice.below(cast.machines.len());
    let begins = rough.mul_f64(dice.fraction(0.1, 0.7));
    let cut = begins + Duration::from_millis(dice.between(5_000, 9_000));
    let ends = (cut + Duration::from_millis(dice.between(8_000, 12_000))).min(rough);
    let mut deeds = Vec::new();
    for server in 0..cast.ways.len() {
        let slow =
            Kind::Slow(crate::servers::name(server), crate::machines::name(machine), dice.between(700, 950));
        let lost = Kind::OneWay(crate::machines::name(machine), crate::servers::name(server));
        deeds.extend([(begins, Deed::Begin(slow.clone())), (ends, Deed::Mend(slow))]);
        deeds.extend([(cut, Deed::Begin(lost.clone())), (ends, Deed::Mend(lost))]);
    }
    deeds.retain(|(at, deed)| *at < rough || matches!(deed, Deed::Mend(_)));
    deeds
}

fn begin(kind: &Kind, sim: &mut Sim<'_>, cast: &Cast) {
    match kind {
        Kind::Cut(a, b) => sim.partition(a.as_str(), b.as_str()),
        Kind::OneWay(a, b) => sim.partition_oneway(a.as_str(), b.as_str()),
        Kind::Hold(a, b) => sim.hold(a.as_str(), b.as_str()),
        Kind::Slow(a, b, millis) => {
            sim.set_link_latency(a.as_str(), b.as_str(), Duration::from_millis(*millis));
        }
        Kind::Island(machine) => {
            let machine = cast.machines[*machine].name();
            (0..cast.ways.len())
                .for_each(|server| sim.partition(machine.as_str(), crate::servers::name(server)));
        }
        Kind::PowerCut(host) => {
            if sim.is_host_running(host.as_str()) {
                sim.crash(host.as_str());
            }
        }
        Kind::NewAgent(machine) => cast.machines[*machine].restart.notify_one(),
        Kind::Commit(server, fault) => {
            cast.ways[*server].store.inject_next(Operation::Commit, fault.clone());
        }
        Kind::Away(server, millis) => cast.ways[*server].away.store(*millis, Ordering::Relaxed),
        Kind::SlowStore(server, millis) => cast.ways[*server].slow.store(*millis, Ordering::Relaxed),
    }
}

fn mend(kind: &Kind, sim: &mut Sim<'_>, cast: &Cast) {
    match kind {
        Kind::Cut(a, b) => sim.repair(a.as_str(), b.as_str()),
        Kind::OneWay(a, b) => sim.repair_oneway(a.as_str(), b.as_str()),
        Kind::Hold(a, b) => sim.release(a.as_str(), b.as_str()),
        Kind::Slow(a, b, _) => sim.set_link_latency(a.as_str(), b.as_str(), QUICK),
        Kind::Island(machine) => {
            let machine = cast.machines[*machine].name();
            (0..cast.ways.len())
                .for_each(|server| sim.repair(machine.as_str(), crate::servers::name(server)));
        }
        Kind::PowerCut(host) => {
            if !sim.is_host_running(host.as_str()) {
                sim.bounce(host.as_str());
            }
        }
        Kind::SlowStore(server, _) => cast.ways[*server].slow.store(CALL_MILLIS, Ordering::Relaxed),
        Kind::Away(server, _) => cast.ways[*server].away.store(REACHED, Ordering::Relaxed),
        Kind::NewAgent(_) | Kind::Commit(..) => {}
    }
}
