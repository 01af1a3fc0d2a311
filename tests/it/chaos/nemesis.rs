//! Faults of a site, drawn from a seed: kind, time and length, overlapping each other.
//!
//! # Invariants
//! - Supervisor and fuse guard the tasks of a worker: at most one of them is impaired at a time, unless the whole
//!   machine is. This is the fault model of Belfry.
//! - A task that a fault stopped resumes only if no other process can have frozen it meanwhile; otherwise it is
//!   killed. Only its supervisor may resume a task that it froze.
//! - At the end of a fault, everything that it broke is repaired.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use crashpoint::Point;
use harness::network::Cut;
use harness::proxy::{Conditions, Proxy};
use harness::{MovedClock, NextPid, Paused, Pid, Recorder, Role, SessionKiller, Site, SmallDisk};
use model::{Timestamp, WorkerId};
use sim::dice::Dice;

/// Time after its fault until a guard counts as repaired.
const GUARD_RECOVERY: Duration = Duration::from_secs(4);
/// Maximum time after a fault for which a supervisor may still freeze its tasks.
const HELD_FOR: Duration = Duration::from_secs(10);

/// A process that can be killed or stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victim {
    Server,
    Agent,
    Supervisor,
    Fuse,
    Task,
}

/// Faults of the connection between a worker and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Road {
    Cut,
    UpCut,
    DownCut,
    Slow,
    Broken,
    Flapping,
    /// New connections are refused, and existing ones closed.
    Refused,
    /// The connection to one of several servers is cut; the others are reachable.
    CutToOne,
}

/// A fault; the numbers are those of workers, or of servers for server faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Kill(Victim, usize),
    Pause(Victim, usize),
    /// Stops all processes of a machine.
    Halt(usize),
    Road(Road, usize),
    /// Drops packets of the worker that has a separate network.
    Packets(Cut, usize),
    /// The wall clock of the server leaps ahead permanently.
    Leap(i64),
    /// The wall clock of the server is set back, and corrected at the end.
    Back(i64),
    /// The server's disk is full.
    FullDisk,
    /// A worker's disk is full.
    FullWorkerDisk(usize),
    /// The wall clocks of all workers are wrong by this offset, and corrected at the end.
    WorkerClocks(i64),
    /// A fault of the connection between a server, by its number, and the store.
    StoreRoad(Road, usize),
    /// Sessions with the store end one after the other, whatever they are executing.
    Sessions,
    /// New processes get this number of pids again that were assigned last.
    ReusedPids(u32),
}

impl Fault {
    /// Returns the kind of the fault, for the statistics.
    fn kind(self) -> String {
        match self {
            Self::Kill(victim, _) => format!("kill {victim:?}"),
            Self::Pause(victim, _) => format!("pause {victim:?}"),
            Self::Halt(_) => "halt machine".into(),
            Self::Road(road, _) => format!("road {road:?}"),
            Self::Packets(cut, _) => format!("packets {cut:?}"),
            Self::Leap(_) => "clock ahead".into(),
            Self::Back(_) => "clock back".into(),
            Self::FullDisk => "full disk".into(),
            Self::FullWorkerDisk(_) => "full disk of a worker".into(),
            Self::WorkerClocks(_) => "clocks of workers".into(),
            Self::StoreRoad(road, _) => format!("road to the store {road:?}"),
            Self::Sessions => "sessions with the store".into(),
            Self::ReusedPids(_) => "reused pids".into(),
        }
    }

    /// Returns the worker whose guards the fault impairs.
    fn guard(self) -> Option<usize> {
        match self {
            Self::Kill(Victim::Supervisor | Victim::Fuse, worker)
            | Self::Pause(Victim::Supervisor | Victim::Fuse, worker)
            | Self::Halt(worker) => Some(worker),
            _ => None,
        }
    }

    fn is_of_a_task(self) -> bool {
        matches!(self, Self::Kill(Victim::Task, _) | Self::Pause(Victim::Task, _))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A fault at its time in the plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    /// Time after the start of the storm.
    pub(super) at: Duration,
    pub(super) lasts: Duration,
    pub(super) fault: Fault,
    /// Selects one of several victims, if the fault does not.
    pub(super) choice: usize,
}

/// The faults that are possible on a site.
#[derive(Debug, Clone, Copy)]
pub(super) struct Abilities {
    pub(super) servers: usize,
    pub(super) workers: usize,
    /// The worker that has a separate network.
    pub(super) branch: Option<usize>,
    pub(super) disk: bool,
    /// The worker whose folder is on a small disk.
    pub(super) worker_disk: Option<usize>,
    /// Number of servers that reach their store through a proxy.
    pub(super) store_roads: usize,
    /// Whether sessions with the store can be ended.
    pub(super) sessions: bool,
    /// Whether pids can be reused.
    pub(super) pids: bool,
}

/// Returns the faults of a seed, in order.
pub(super) fn plan(seed: u64, time: Duration, able: Abilities) -> Vec<Planned> {
    let mut dice = Dice::new(seed, 1);
    let (mut at, mut planned) = (Duration::ZERO, Vec::new());
    loop {
        at += dice.millis(100, 1_800).to_std();
        if at >= time {
            return planned;
        }
        let fault = draw(&mut dice, able);
        let lasts = match fault {
            Fault::Pause(Victim::Task, _) => dice.millis(100, 900),
            Fault::Road(Road::Broken, _) => model::Duration::ZERO,
            Fault::Kill(..) => dice.millis(0, 3_000),
            Fault::FullDisk | Fault::FullWorkerDisk(_) | Fault::Back(_) => dice.millis(500, 3_000),
            // If the storm is long enough, also longer than the leases of a server and a worker together.
            Fault::StoreRoad(..) => {
                let millis = *dice.pick(&[1_000, 4_000, 9_000, 20_000, 45_000, 90_000]);
                let longest = u64::try_from(time.as_millis() / 3).unwrap_or(u64::MAX);
                model::Duration::from_millis(millis.min(longest))
            }
            // Shorter and longer than a lease of six seconds.
            _ => *dice.pick(&[300, 1_000, 4_000, 5_400, 6_600, 9_000].map(model::Duration::from_millis)),
        };
        let choice = dice.below(1_000);
        planned.push(Planned { at, lasts: lasts.to_std(), fault, choice });
        // A worker that also loses this server moves to another one, where the executions of its neighbours may be
        // restarted.
        if let (Fault::StoreRoad(_, server), true) = (fault, able.servers > 1 && dice.chance(0.5)) {
            let fault = Fault::Road(Road::CutToOne, dice.below(able.workers));
            planned.push(Planned { at, lasts: lasts.to_std(), fault, choice: server });
        }
    }
}

fn draw(dice: &mut Dice, able: Abilities) -> Fault {
    use Road::{Broken, CutToOne, DownCut, Flapping, Refused, Slow, UpCut};
    use Victim::{Agent, Fuse, Server, Supervisor, Task};
    let worker = dice.below(able.workers);
    let server = dice.below(able.servers);
    let number = |victim| if victim == Server { server } else { worker };
    loop {
        return match dice.below(26) {
            0..8 => {
                let victim = *dice.pick(&[Server, Agent, Supervisor, Fuse, Task]);
                Fault::Kill(victim, number(victim))
            }
            8..12 => {
                let victim = *dice.pick(&[Server, Agent, Supervisor, Fuse, Task]);
                Fault::Pause(victim, number(victim))
            }
            12 => Fault::Halt(worker),
            13..16 => {
                let to_one = if able.servers > 1 { CutToOne } else { Road::Cut };
                Fault::Road(*dice.pick(&[Road::Cut, UpCut, DownCut, Slow, Broken, Flapping, to_one]), worker)
            }
            16 => match able.branch {
                Some(branch) => {
                    Fault::Packets(*dice.pick(&[Cut::Cable, Cut::FromThere, Cut::ToThere]), branch)
                }
                None => continue,
            },
            17 => Fault::Leap(*dice.pick(&[3, 8, 30, 90, 300])),
            18 => Fault::Back(*dice.pick(&[1, 30, 3_600, 86_400])),
            19 if able.disk => Fault::FullDisk,
            20 => match able.worker_disk {
                Some(worker) => Fault::FullWorkerDisk(worker),
                None => continue,
            },
            21 => Fault::WorkerClocks(*dice.pick(&[-86_400, -60, 60, 3_600, 86_400])),
            22..24 if able.store_roads > 0 => Fault::StoreRoad(
                *dice.pick(&[Road::Cut, UpCut, DownCut, Refused, Slow, Broken]),
                server % able.store_roads,
            ),
            24..26 if able.sessions => Fault::Sessions,
            _ => continue,
        };
    }
}

/// Returns the faults of a seed that concern only the processes and disks of workers: many short ones, so that they
/// hit the launch, the end and the journal record of tasks.
pub(super) fn plan_against_workers(seed: u64, time: Duration, able: Abilities) -> Vec<Planned> {
    let mut dice = Dice::new(seed, 3);
    let (mut at, mut planned) = (Duration::ZERO, Vec::new());
    loop {
        at += dice.millis(20, 600).to_std();
        if at >= time {
            return planned;
        }
        let fault = draw_against_workers(&mut dice, able);
        let lasts = match fault {
            Fault::ReusedPids(_) => model::Duration::ZERO,
            Fault::FullWorkerDisk(_) => dice.millis(500, 8_000),
            Fault::Kill(..) => dice.millis(0, 1_000),
            // Shorter than a launch, and shorter and longer than a lease of six seconds.
            _ => *dice.pick(&[10, 50, 200, 1_000, 4_000, 6_600, 9_000].map(model::Duration::from_millis)),
        };
        planned.push(Planned { at, lasts: lasts.to_std(), fault, choice: dice.below(1_000) });
    }
}

fn draw_against_workers(dice: &mut Dice, able: Abilities) -> Fault {
    use Victim::{Agent, Fuse, Supervisor, Task};
    let worker = dice.below(able.workers);
    loop {
        return match dice.below(20) {
            0..4 => Fault::Kill(*dice.pick(&[Agent, Supervisor, Fuse, Task]), worker),
            4..13 => Fault::Pause(*dice.pick(&[Agent, Supervisor, Supervisor, Fuse]), worker),
            13..15 => match able.worker_disk {
                Some(worker) => Fault::FullWorkerDisk(worker),
                None => continue,
            },
            _ if able.pids => Fault::ReusedPids(*dice.pick(&[20, 200, 2_000])),
            _ => continue,
        };
    }
}

/// The tools that break a site from outside of its processes.
pub(super) struct Tools {
    /// The wall clock of the servers.
    pub(super) clock: MovedClock,
    /// The wall clock of the workers.
    pub(super) worker_clock: MovedClock,
    /// The disk of the server's data.
    pub(super) disk: Option<SmallDisk>,
    /// The disk of a worker's folder.
    pub(super) worker_disk: Option<SmallDisk>,
    /// Proxies between each server and the store.
    pub(super) store_roads: Vec<Proxy>,
    /// Ends sessions with the store.
    pub(super) sessions: Option<SessionKiller>,
    /// Lets pids be reused.
    pub(super) pids: Option<NextPid>,
}

/// A fault in progress, with everything that its end must repair.
struct ActiveFault {
    until: Instant,
    begun: Instant,
    since: Timestamp,
    fault: Fault,
    paused: Vec<Paused>,
    /// Paused tasks of a machine.
    tasks: Vec<Paused>,
}

/// Injects faults and ends them.
pub(super) struct Nemesis {
    recorder: Recorder,
    pub(super) tools: Tools,
    workers: Vec<WorkerId>,
    /// Offset of the server clock in seconds.
    ahead: i64,
    active: Vec<ActiveFault>,
    /// When the guards of each worker count as repaired.
    guards: Vec<Instant>,
    /// Time of the last fault that was not limited to a task.
    last_fault_at: Instant,
    /// Number of faults of each kind.
    pub(super) counts: BTreeMap<String, u32>,
}

impl Nemesis {
    /// Returns the ids of the workers, in the order of the site.
    pub(super) fn workers(&self) -> &[WorkerId] {
        &self.workers
    }

    pub(super) fn new(recorder: Recorder, tools: Tools, workers: Vec<WorkerId>) -> Self {
        let (now, guards) = (Instant::now(), vec![Instant::now(); workers.len()]);
        Self {
            recorder,
            tools,
            workers,
            ahead: 0,
            active: Vec::new(),
            guards,
            last_fault_at: now,
            counts: BTreeMap::new(),
        }
    }

    /// Returns when the next fault ends.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.active.iter().map(|raging| raging.until).min()
    }

    /// Begins a fault, unless its victim is missing or it would violate an invariant of this module.
    pub(super) async fn begin(&mut self, site: &mut Site, planned: Planned) {
        let Planned { fault, lasts, choice, .. } = planned;
        let now = Instant::now();
        let Some(guarded) = self.take_guard(fault, now + lasts) else { return };
        let since = self.recorder.now();
        let mut raging = ActiveFault {
            until: now + lasts,
            begun: now,
            since,
            fault,
            paused: Vec::new(),
            tasks: Vec::new(),
        };
        if !self.inject(site, choice, &mut raging).await {
            return guarded.into_iter().for_each(|worker| self.guards[worker] = now);
        }
        // The stopped processes are halted from here on, and not before.
        raging.since = self.recorder.now();
        if !fault.is_of_a_task() {
            self.last_fault_at = now;
        }
        *self.counts.entry(fault.kind()).or_default() += 1;
        self.recorder.fault(fault, true);
        self.active.push(raging);
    }

    /// Returns `None` if the guards of the fault's worker are impaired; otherwise the worker whose guards the fault
    /// impairs, if any.
    fn take_guard(&mut self, fault: Fault, until: Instant) -> Option<Option<usize>> {
        let Some(worker) = fault.guard() else { return Some(None) };
        if self.guards[worker] > Instant::now() {
            return None;
        }
        self.guards[worker] = until + GUARD_RECOVERY;
        Some(Some(worker))
    }

    /// Injects the fault; returns whether its victim existed.
    async fn inject(&mut self, site: &mut Site, choice: usize, raging: &mut ActiveFault) -> bool {
        match raging.fault {
            Fault::Kill(Victim::Server, server) => match site.servers_mut().nth(server) {
                Some(server) => server.kill().await,
                None => return false,
            },
            Fault::Kill(Victim::Agent, worker) => site.workers[worker].kill_agent().await,
            Fault::Kill(victim, worker) => match find(site, victim, worker, choice) {
                Some(pid) => pid.kill(),
                None => return false,
            },
            Fault::Pause(victim, worker) => {
                // A process that is already stopped was stopped by another fault, which will resume it.
                let found = find(site, victim, worker, choice).filter(|pid| !pid.is_paused());
                let Some(paused) = found.and_then(Pid::pause_held) else { return false };
                raging.paused.push(paused);
            }
            Fault::Halt(worker) => halt(site, worker, raging),
            Fault::Road(road, worker) => {
                let proxies = &site.workers[worker].road().proxies;
                match proxies.get(choice % proxies.len().max(1)) {
                    Some(one) if road == Road::CutToOne => strike_road(one, road),
                    _ => proxies.iter().for_each(|proxy| strike_road(proxy, road)),
                }
            }
            Fault::StoreRoad(road, server) => strike_road(&self.tools.store_roads[server], road),
            Fault::Sessions => match &self.tools.sessions {
                Some(killer) => killer.set_active(true),
                None => return false,
            },
            Fault::Packets(cut, worker) => match &site.workers[worker].road().branch {
                Some(branch) => branch.cut(cut),
                None => return false,
            },
            Fault::Leap(seconds) => {
                self.ahead += seconds;
                self.tools.clock.set(self.ahead);
            }
            Fault::Back(seconds) => self.tools.clock.set(self.ahead - seconds),
            Fault::WorkerClocks(seconds) => self.tools.worker_clock.set(seconds),
            Fault::ReusedPids(count) => match &self.tools.pids {
                Some(next) => next.go_back(count).expect("pids can be reused"),
                None => return false,
            },
            Fault::FullDisk => match &self.tools.disk {
                Some(disk) => disk.fill(),
                None => return false,
            },
            Fault::FullWorkerDisk(_) => match &self.tools.worker_disk {
                Some(disk) => disk.fill(),
                None => return false,
            },
        }
        true
    }

    /// Records that a process crashed at its ordered point.
    pub(super) fn note_death(&mut self, point: Point) {
        self.last_fault_at = Instant::now();
        *self.counts.entry(format!("death {}", point.name())).or_default() += 1;
        self.recorder.fault(point.name(), true);
        self.recorder.fault(point.name(), false);
    }

    /// Ends every fault that is due, and restarts missing processes, as an init system does.
    pub(super) fn repair_due(&mut self, site: &mut Site) {
        let now = Instant::now();
        let (over, raging) =
            std::mem::take(&mut self.active).into_iter().partition(|r: &ActiveFault| r.until <= now);
        self.active = raging;
        for raging in over {
            self.end(site, raging);
        }
        self.flap(site, now);
        for (number, server) in site.servers_mut().enumerate() {
            if !self.active.iter().any(|r| r.fault == Fault::Kill(Victim::Server, number)) {
                server.ensure_running();
            }
        }
        for (number, worker) in site.workers.iter_mut().enumerate() {
            if !self.active.iter().any(|r| r.fault == Fault::Kill(Victim::Agent, number)) {
                worker.ensure_agent();
            }
        }
    }

    fn end(&mut self, site: &mut Site, raging: ActiveFault) {
        let alone = self.last_fault_at + HELD_FOR < raging.begun
            && self.active.iter().all(|r| r.fault.is_of_a_task());
        match raging.fault {
            Fault::Pause(Victim::Task, _) if !alone => raging.paused.iter().for_each(Paused::kill),
            Fault::Pause(..) => raging.paused.iter().for_each(Paused::resume),
            Fault::Halt(worker) => {
                // Before any process resumes: a task may end immediately, and was halted until now.
                let span = raging.since..self.recorder.now();
                // The guards resume last. A fuse freezes expired tasks within a millisecond, and resuming the tasks
                // after that would undo it, which a real machine never does.
                raging.tasks.iter().chain(&raging.paused).for_each(Paused::resume);
                let tasks = raging.tasks.iter().map(|task| task.pid().0).collect();
                self.recorder.halted(self.workers[worker], tasks, span);
            }
            Fault::Road(_, worker) => {
                let roads = |r: &ActiveFault| matches!(r.fault, Fault::Road(_, other) if other == worker);
                if !self.active.iter().any(roads) {
                    site.workers[worker].road().proxies.iter().for_each(|p| p.set(Conditions::default()));
                }
            }
            Fault::StoreRoad(_, server) => {
                let roads =
                    |r: &ActiveFault| matches!(r.fault, Fault::StoreRoad(_, other) if other == server);
                if !self.active.iter().any(roads) {
                    self.tools.store_roads[server].set(Conditions::default());
                }
            }
            Fault::Packets(cut, worker) => {
                if let Some(branch) = &site.workers[worker].road().branch {
                    branch.mend(cut);
                }
            }
            Fault::Sessions => {
                let rages = self.active.iter().any(|raging| raging.fault == Fault::Sessions);
                self.tools.sessions.iter().for_each(|killer| killer.set_active(rages));
            }
            Fault::Back(_) => self.tools.clock.set(self.ahead),
            Fault::WorkerClocks(_) => self.tools.worker_clock.set(0),
            Fault::FullDisk => self.tools.disk.iter().for_each(SmallDisk::clear),
            Fault::FullWorkerDisk(_) => self.tools.worker_disk.iter().for_each(SmallDisk::clear),
            Fault::Kill(..) | Fault::Leap(_) | Fault::ReusedPids(_) => {}
        }
        if !raging.fault.is_of_a_task() {
            self.last_fault_at = Instant::now();
        }
        self.recorder.fault(raging.fault, false);
    }

    /// Switches flapping connections on and off.
    fn flap(&self, site: &Site, now: Instant) {
        for raging in &self.active {
            let Fault::Road(Road::Flapping, worker) = raging.fault else { continue };
            let there = ((now - raging.begun).as_millis() / 300).is_multiple_of(2);
            let weather = if there { Conditions::default() } else { Conditions::CUT };
            site.workers[worker].road().proxies.iter().for_each(|proxy| proxy.set(weather));
        }
    }

    /// Whether a connection must be switched although no fault begins or ends.
    pub(super) fn is_flapping(&self) -> bool {
        self.active.iter().any(|raging| matches!(raging.fault, Fault::Road(Road::Flapping, _)))
    }

    /// Ends all faults immediately.
    pub(super) fn end_all(&mut self, site: &mut Site) {
        let now = Instant::now();
        self.active.iter_mut().for_each(|raging| raging.until = now);
        self.repair_due(site);
    }
}

/// Returns the process of a victim; `number` is that of a server or worker.
fn find(site: &Site, victim: Victim, number: usize, choice: usize) -> Option<Pid> {
    match victim {
        Victim::Server => site.servers().nth(number)?.find(),
        Victim::Agent => site.workers[number].find(Role::Agent),
        Victim::Supervisor => site.workers[number].find(Role::Supervisor),
        Victim::Fuse => site.workers[number].find(Role::Fuse),
        Victim::Task => {
            let tasks = site.workers[number].tasks();
            (!tasks.is_empty()).then(|| tasks[choice % tasks.len()])
        }
    }
}

/// Stops every process of a machine, starting with those that would react to the others' silence.
fn halt(site: &Site, worker: usize, raging: &mut ActiveFault) {
    let machine = &site.workers[worker];
    let roles = [Role::Supervisor, Role::Fuse, Role::Agent];
    let guards = roles.into_iter().filter_map(|role| machine.find(role)).filter(|pid| !pid.is_paused());
    raging.paused = guards.filter_map(Pid::pause_held).collect();
    // A task that is already stopped was frozen; its supervisor will resume it.
    let tasks = machine.tasks().into_iter().filter(|pid| !pid.is_paused());
    raging.tasks = tasks.filter_map(Pid::pause_held).collect();
}

fn strike_road(proxy: &Proxy, road: Road) {
    match road {
        Road::Broken => proxy.break_all(),
        road => proxy.set(weather(road)),
    }
}

fn weather(road: Road) -> Conditions {
    match road {
        Road::Refused => Conditions::REFUSED,
        Road::UpCut => Conditions { up_cut: true, ..Conditions::default() },
        Road::DownCut => Conditions { down_cut: true, ..Conditions::default() },
        Road::Slow => Conditions { delay: Duration::from_millis(700), ..Conditions::default() },
        Road::Cut | Road::CutToOne | Road::Flapping | Road::Broken => Conditions::CUT,
    }
}
