//! The plan of a world, drawn from its seed: its size, its load and its faults. Everything else follows from the plan
//! and from further draws of the same seed.
//!
//! Callers: the command, the tests and [`mutations`](crate::mutations). A new kind of draw gets a new `concern`, so
//! that the worlds of existing seeds stay the same.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use model::Duration;

use crate::dice::Dice;
use crate::history::Setup;

/// Streams of draws, one for each concern; see [`Dice`].
pub(crate) mod concern {
    pub(crate) const PLAN: u64 = 1;
    pub(crate) const NET: u64 = 2;
    pub(crate) const STORE: u64 = 3;
    pub(crate) const WORKERS: u64 = 4;
    pub(crate) const CLIENTS: u64 = 5;
    pub(crate) const SERVERS: u64 = 6;
    pub(crate) const TASKS: u64 = 7;
    pub(crate) const RUNS: u64 = 8;
    pub(crate) const SAVES: u64 = 9;
    pub(crate) const AHEAD: u64 = 10;
    pub(crate) const FILTERS: u64 = 11;
    pub(crate) const STANDBYS: u64 = 12;
    pub(crate) const MEMBERS: u64 = 13;
    pub(crate) const STOPS: u64 = 14;
    pub(crate) const VOLUME: u64 = 15;
    pub(crate) const UPSTREAM: u64 = 16;
    pub(crate) const DEADLINES: u64 = 17;
    pub(crate) const CLASSES: u64 = 18;
    pub(crate) const QUOTAS: u64 = 19;
    pub(crate) const SERVICES: u64 = 20;
    pub(crate) const REPLICAS: u64 = 21;
    pub(crate) const JOURNALS: u64 = 22;
}

/// A deliberate bug in the model around the cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
#[expect(missing_docs, reason = "each name states the bug")]
pub enum Mutation {
    WorkerCountsItsLeaseFromTheAnswer,
    WorkerThawsBeforeItsStops,
    WorkerPassesNoCheckpoint,
    StaleReportAsCurrent,
    StaleCheckpointAsCurrent,
    LoadForgetsExecutions,
    LoadForgetsJobs,
    LoadForgetsQueues,
    LoadForgetsWorkers,
    LoadForgetsSteps,
    LoadForgetsElements,
    LoadForgetsTriggers,
    LoadForgetsAttemptsOfRuns,
    LoadForgetsRetryingRuns,
    StoreForgetsNewJobs,
    StoreForgetsKeys,
    StoreForgetsCancels,
    StoreForgetsTheLedger,
    StoreForgetsEndsOfSteps,
    StoreForgetsElements,
    StoreForgetsCheckpoints,
    StoreForgetsCursors,
    StoreCommitsPartsOfBatches,
    StoreIgnoresEpochs,
    StoreReusesEpochs,
    StoreContinuesAfterAFailure,
    StoreReadsOldRows,
    LostCommitsAreIgnored,
    RandomOrderOfEffects,
}

/// A deliberate bug that the checker must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// A bug in the model around the cores.
    InModel(Mutation),
    /// A bug in a core. Release builds do not contain these.
    InCore(mutation::Mutation),
}

impl Bug {
    /// Returns all deliberate bugs.
    pub fn all() -> impl Iterator<Item = Self> {
        let within = mutation::Mutation::ALL
            .iter()
            .copied()
            .filter(|mutation| matches!(mutation.part(), "engine" | "leader" | "supervisor" | "fuse"));
        let around = Mutation::value_variants().iter().copied().map(Self::InModel);
        around.chain(within.map(Self::InCore))
    }

    /// Whether this build contains the bug.
    pub fn is_built_in(self) -> bool {
        matches!(self, Self::InModel(_)) || mutation::ARE_BUILT_IN
    }
}

/// The name of the bug on the command line.
impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InModel(mutation) => {
                f.write_str(mutation.to_possible_value().as_ref().map_or("", PossibleValue::get_name))
            }
            Self::InCore(mutation) => mutation.fmt(f),
        }
    }
}

/// Error: a name of no deliberate bug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownBug(String);

impl fmt::Display for UnknownBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown deliberate bug `{}`: run `belfry-sim mutations` for a list", self.0)
    }
}

impl std::error::Error for UnknownBug {}

impl FromStr for Bug {
    type Err = UnknownBug;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::all().find(|bug| bug.to_string() == name).ok_or_else(|| UnknownBug(name.to_owned()))
    }
}

/// Size of worlds, and intensity of their faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Profile {
    /// Two minutes of faults; hundreds of worlds can be played a minute.
    #[default]
    Short,
    /// An hour of faults and many jobs.
    Long,
    /// No faults: checks speed and quiet operation.
    Calm,
    /// The steady load of 1,000,000 jobs a day, without faults: measures speed.
    Load,
    /// As [`Short`](Self::Short), but the store may lose its newest commits; their loss is no violation.
    LostTail,
}

/// A fault and the time at which it happens.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// Time from the start of the world.
    pub at: Duration,
    /// Duration of the fault.
    pub length: Duration,
    /// Kind of the fault.
    pub kind: FaultKind,
}

/// Kinds of faults.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum FaultKind {
    CrashServer {
        server: usize,
    },
    PauseServer {
        server: usize,
    },
    /// Drains the leader, and resumes it at the end of the fault.
    DrainLeader,
    /// Stops a server gracefully, and starts it again at the end of the fault.
    StopServer {
        server: usize,
    },
    CutServerFromStore {
        server: usize,
    },
    CutWorker {
        worker: usize,
        server: usize,
    },
    /// Loses all messages that a worker sends.
    MuteWorker {
        worker: usize,
    },
    SlowStore {
        most: Duration,
    },
    CommitsFail {
        share: f64,
    },
    CommitsUnknown {
        share: f64,
    },
    LoseTail {
        commits: u32,
    },
    /// Fills the volume of the store: `commits` more commits fit into its reserve, if it has one.
    FillStore {
        commits: u32,
    },
    /// Sets the clock of the store forward or back. Only a store that servers share has a clock of its own.
    StepStoreClock {
        millis: i64,
    },
    /// Loses the commits of the last `time`.
    LoseLast {
        time: Duration,
    },
    StepClock {
        server: usize,
        millis: i64,
    },
    RoughNet {
        loss: f64,
        duplicate: f64,
        reorder: bool,
        delay: Duration,
    },
    CrashAgent {
        worker: usize,
    },
    PauseAgent {
        worker: usize,
    },
    CrashSupervisor {
        worker: usize,
    },
    PauseSupervisor {
        worker: usize,
    },
    /// Lets syncs of a worker's journal fail.
    BreakJournal {
        worker: usize,
    },
    /// Makes every fuse of a worker die immediately after its start.
    BreakFuse {
        worker: usize,
    },
    CrashMachine {
        worker: usize,
    },
    PauseMachine {
        worker: usize,
    },
    WipeWorker {
        worker: usize,
    },
    Burst {
        jobs: u32,
    },
}

impl Fault {
    /// Creates a fault from `at` seconds on, for `length` seconds.
    pub fn new(at: u64, length: u64, kind: FaultKind) -> Self {
        Self { at: Duration::from_secs(at), length: Duration::from_secs(length), kind }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {} for {}", self.kind, self.at, self.length)
    }
}

/// All parameters of a world.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Determines everything that is not a field of the plan.
    pub seed: u64,
    /// Number of servers.
    pub servers: usize,
    /// Number of workers.
    pub workers: usize,
    /// Number of shards.
    pub shards: u16,
    /// Maximum number of pending commits of a server.
    pub commits_ahead: usize,
    /// Minimum number of inputs of a batch that is sent behind a pending one.
    pub ahead_inputs: usize,
    /// Duration of load and faults.
    pub rough: Duration,
    /// Maximum duration after the faults until everything has ended.
    pub calm: Duration,
    /// Number of jobs that clients submit.
    pub jobs: u32,
    /// Number of other client requests.
    pub other_asks: u32,
    /// Number of schedules.
    pub schedules: u32,
    /// Whether some schedules have excluded times.
    pub with_filters: bool,
    /// Number of additional schedules that all fire once, at the same time: in the first whole minute.
    pub due_together: u32,
    /// Number of workflows.
    pub workflows: u32,
    /// Number of runs that clients start; schedules start more.
    pub runs: u32,
    /// Number of client requests about runs.
    pub run_asks: u32,
    /// Number of checkpoints that running tasks save.
    pub saves: u32,
    /// Number of services, as far as the workers have slots for them.
    pub services: u32,
    /// Number of client requests about services.
    pub service_asks: u32,
    /// Whether some jobs share a concurrency key.
    pub with_keys: bool,
    /// Maximum duration of a task.
    pub task_max: Duration,
    /// Faults, ordered by start time.
    pub faults: Vec<Fault>,
    /// Deliberate bug of the world.
    pub bug: Option<Bug>,
    /// Number of batches between two checks of an engine's invariants, each of which visits all live jobs.
    pub look_every: u64,
    /// Interval at which an engine is rebuilt for comparison.
    pub rebuild_every: Duration,
    /// Whether the faults preserve all durable data.
    pub keeps_all: bool,
    /// Capacity of a machine: number of concurrent executions.
    pub slots: u32,
    /// Share of the programs that load slowly, and their maximum loading time in milliseconds.
    pub slow_loads: (f64, u64),
    /// Maximum duration of a journal write of a worker, if longer than usual.
    pub journal_max: Duration,
    /// Bounds for judging the history.
    pub setup: Setup,
}

impl Plan {
    /// Draws the world of a seed.
    pub fn draw(seed: u64, profile: Profile) -> Self {
        let mut dice = Dice::new(seed, concern::PLAN);
        let seconds = |n| Duration::from_secs(n);
        let mut plan = Self {
            seed,
            servers: 1 + dice.below(3),
            workers: 1 + dice.below(4),
            shards: *dice.pick(&[1, 2, 4]),
            commits_ahead: 1,
            ahead_inputs: 1,
            rough: seconds(dice.between(60, 180)),
            calm: seconds(7_200),
            jobs: u32::try_from(dice.between(5, 60)).unwrap_or(5),
            other_asks: u32::try_from(dice.between(0, 20)).unwrap_or(0),
            schedules: u32::try_from(dice.below(4)).unwrap_or(0),
            with_filters: true,
            due_together: 0,
            workflows: 0,
            runs: 0,
            run_asks: 0,
            saves: 0,
            services: 0,
            service_asks: 0,
            with_keys: true,
            task_max: seconds(dice.between(1, 30)),
            faults: Vec::new(),
            bug: None,
            look_every: 32,
            rebuild_every: seconds(20),
            keeps_all: true,
            slots: u32::try_from(dice.between(2, 8)).unwrap_or(2),
            slow_loads: (0.05, 20_000),
            journal_max: Duration::ZERO,
            setup: Setup::default(),
        };
        let mut mean = Duration::from_millis(dice.between(4_000, 60_000));
        match profile {
            Profile::Short => {}
            Profile::Long => {
                plan.rough = seconds(3_600);
                plan.jobs *= 40;
                plan.other_asks *= 20;
                plan.rebuild_every = seconds(300);
                // Hundreds of runs may wait for a workflow that admits one at a time.
                plan.calm = seconds(21_600);
            }
            Profile::Calm => mean = Duration::ZERO,
            Profile::Load => {
                (plan.servers, plan.workers, plan.shards, plan.slots) = (1, 4, 4, 64);
                (plan.rough, plan.jobs, plan.other_asks, plan.schedules) = (seconds(7_200), 83_333, 0, 0);
                (plan.task_max, plan.rebuild_every) = (seconds(4), seconds(36_000));
                plan.look_every = 512;
                // More jobs than a key admits would only accumulate.
                plan.with_keys = false;
                mean = Duration::ZERO;
            }
            Profile::LostTail => plan.keeps_all = false,
        }
        if mean > Duration::ZERO {
            plan.draw_faults(&mut dice, mean);
            plan.draw_stops();
            plan.draw_faults_of_the_store();
            plan.draw_faults_of_journals();
        }
        if profile != Profile::Load && dice.chance(0.6) {
            let times = if profile == Profile::Long { 20 } else { 1 };
            plan.workflows = u32::try_from(dice.between(1, 4)).unwrap_or(1);
            plan.runs = times * u32::try_from(dice.between(1, 15)).unwrap_or(1);
            plan.run_asks = times * u32::try_from(dice.between(0, 15)).unwrap_or(0);
        }
        if profile != Profile::Load {
            plan.saves = u32::try_from(dice.between(0, 4)).unwrap_or(0) * plan.jobs;
            plan.draw_commits_ahead();
            plan.draw_services(profile);
        }
        plan
    }

    /// Returns a world without faults and services whose size suits most scenarios: two servers, three workers.
    pub fn quiet(seed: u64) -> Self {
        let seconds = Duration::from_secs;
        let plan = Self::draw(seed, Profile::Calm);
        let plan = Self { servers: 2, workers: 3, rough: seconds(120), task_max: seconds(10), ..plan };
        Self { jobs: 40, services: 0, service_asks: 0, ..plan }
    }

    /// Adds a deliberate bug to the plan.
    #[must_use]
    pub fn with(mut self, bug: Bug) -> Self {
        self.bug = Some(bug);
        self
    }

    /// Whether the store reserves space to finish running work, as an embedded store does. A store that servers share
    /// is on a volume of its own, and has no reserve.
    pub(crate) fn has_reserve(&self) -> bool {
        self.servers == 1
    }

    /// Returns the bug in the model around the cores, if any.
    pub(crate) fn mutation(&self) -> Option<Mutation> {
        match self.bug? {
            Bug::InModel(mutation) => Some(mutation),
            Bug::InCore(_) => None,
        }
    }

    /// Whether the world has this bug in the model around the cores.
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation() == Some(mutation)
    }

    /// Adds server stops, from a separate stream: the rest of the seed's world stays the same.
    fn draw_stops(&mut self) {
        let mut dice = Dice::new(self.seed, concern::STOPS);
        if self.faults.is_empty() || !dice.chance(0.4) {
            return;
        }
        for _ in 0..dice.between(1, 4) {
            let at = dice.millis(1_000, self.rough.as_millis().max(1_001));
            let most = self.rough.as_millis().saturating_sub(at.as_millis()).max(101);
            let length = Duration::from_millis(dice.between(100, 12_000).min(most));
            self.faults.push(Fault {
                at,
                length,
                kind: FaultKind::StopServer { server: dice.below(self.servers) },
            });
        }
        self.faults.sort_by_key(|fault| fault.at);
    }

    /// Adds full volumes and steps of the store's clock, from a separate stream: the rest of the seed's world stays
    /// the same.
    fn draw_faults_of_the_store(&mut self) {
        let mut dice = Dice::new(self.seed, concern::VOLUME);
        if dice.chance(0.3) {
            for _ in 0..dice.between(1, 4) {
                let kind = FaultKind::FillStore { commits: u32::try_from(dice.between(0, 40)).unwrap_or(0) };
                self.push_fault(&mut dice, self.rough, kind);
            }
        }
        // A lease that was granted while the clock was ahead may last that long after the clock was set back.
        let reserved = (LEASE_MAX + Duration::from_secs(2)).as_millis();
        let ends_by = Duration::from_millis(self.rough.as_millis().saturating_sub(reserved));
        if self.servers > 1 && ends_by > Duration::from_secs(5) && dice.chance(0.5) {
            for _ in 0..dice.between(1, 4) {
                let most = if dice.chance(0.3) { 3_600_000 } else { 20_000 };
                let millis = i64::try_from(dice.between(1, most)).unwrap_or(1);
                let millis = if dice.chance(0.5) { millis } else { -millis };
                self.push_fault(&mut dice, ends_by, FaultKind::StepStoreClock { millis });
            }
        }
        self.faults.sort_by_key(|fault| fault.at);
    }

    /// Adds failing syncs of the workers' journals, from a separate stream: the rest of the seed's world stays the same.
    fn draw_faults_of_journals(&mut self) {
        let mut dice = Dice::new(self.seed, concern::JOURNALS);
        if !dice.chance(0.3) {
            return;
        }
        for _ in 0..dice.between(1, 4) {
            let worker = dice.below(self.workers);
            self.push_fault(&mut dice, self.rough, FaultKind::BreakJournal { worker });
        }
        self.faults.sort_by_key(|fault| fault.at);
    }

    /// Adds a fault at a random time that ends by `ends_by`.
    fn push_fault(&mut self, dice: &mut Dice, ends_by: Duration, kind: FaultKind) {
        let at = dice.millis(1_000, ends_by.as_millis().max(1_001));
        let most = ends_by.as_millis().saturating_sub(at.as_millis()).max(101);
        let long = if dice.chance(0.3) { 60_000 } else { 12_000 };
        let length = Duration::from_millis(dice.between(100, long).min(most));
        self.faults.push(Fault { at, length, kind });
    }

    /// Draws the commit pipeline, from a separate stream: the rest of the seed's world stays the same.
    fn draw_commits_ahead(&mut self) {
        let mut dice = Dice::new(self.seed, concern::AHEAD);
        if dice.chance(0.5) {
            self.commits_ahead = 2 + dice.below(3);
            self.ahead_inputs = usize::try_from(dice.between(1, 4)).unwrap_or(1);
        }
    }

    /// Draws the services, from a separate stream: the faults of the seed's world stay the same.
    fn draw_services(&mut self, profile: Profile) {
        let mut dice = Dice::new(self.seed, concern::SERVICES);
        let (most, times) = if profile == Profile::Long { (6, 20) } else { (3, 1) };
        self.services = u32::try_from(dice.between(0, most)).unwrap_or(0);
        if self.services > 0 {
            self.service_asks = times * u32::try_from(dice.between(0, 20)).unwrap_or(0);
        }
    }

    fn draw_faults(&mut self, dice: &mut Dice, mean: Duration) {
        // Each world has favourite kinds, so that rare combinations occur.
        let kinds: Vec<usize> = (0..KINDS).filter(|_| dice.chance(0.4)).collect();
        let mut at = Duration::ZERO;
        while !kinds.is_empty() {
            at = at + dice.millis(0, mean.as_millis() * 2);
            if at >= self.rough {
                break;
            }
            let kind = self.draw_fault(dice, *dice.clone().pick(&kinds));
            let _ = dice.number();
            let most = self.rough.as_millis() - at.as_millis();
            let long = if dice.chance(0.3) { 60_000 } else { 12_000 };
            let length = Duration::from_millis(dice.between(100, long).min(most));
            self.faults.push(Fault { at, length, kind });
        }
    }

    fn draw_fault(&self, dice: &mut Dice, kind: usize) -> FaultKind {
        let server = dice.below(self.servers);
        let worker = dice.below(self.workers);
        match kind {
            0 => FaultKind::CrashServer { server },
            1 => FaultKind::PauseServer { server },
            2 => FaultKind::DrainLeader,
            3 => FaultKind::CutServerFromStore { server },
            4 => FaultKind::CutWorker { worker, server },
            5 => FaultKind::MuteWorker { worker },
            6 => FaultKind::SlowStore { most: dice.millis(100, 8_000) },
            7 => FaultKind::CommitsFail { share: dice.fraction(0.1, 1.0) },
            8 => FaultKind::CommitsUnknown { share: dice.fraction(0.1, 1.0) },
            9 => {
                let most = if dice.chance(0.2) { 600_000 } else { 20_000 };
                let millis = dice.between(1, most);
                // Some leaps are exactly the maximum that an engine accepts.
                let millis = if millis.is_multiple_of(10) { engine::LEAP_MAX.as_millis() } else { millis };
                let millis = i64::try_from(millis).unwrap_or(1);
                FaultKind::StepClock { server, millis: if dice.chance(0.5) { millis } else { -millis } }
            }
            10 => FaultKind::RoughNet {
                loss: dice.fraction(0.0, 0.2),
                duplicate: dice.fraction(0.0, 0.5),
                reorder: dice.chance(0.5),
                delay: dice.millis(10, 5_000),
            },
            11 => FaultKind::CrashAgent { worker },
            12 => FaultKind::PauseAgent { worker },
            13 => FaultKind::CrashSupervisor { worker },
            14 => FaultKind::PauseSupervisor { worker },
            15 => FaultKind::CrashMachine { worker },
            16 => FaultKind::PauseMachine { worker },
            17 => FaultKind::WipeWorker { worker },
            18 => FaultKind::BreakFuse { worker },
            19 if !self.keeps_all => {
                FaultKind::LoseTail { commits: u32::try_from(dice.between(1, 20)).unwrap_or(1) }
            }
            _ => FaultKind::Burst { jobs: u32::try_from(dice.between(10, 200)).unwrap_or(10) },
        }
    }
}

/// Maximum duration of a leadership lease; a store clock that was set back does not extend a lease beyond it.
pub(super) const LEASE_MAX: Duration = Duration::from_secs(60);
/// Number of kinds that [`Plan::draw_fault`] can draw.
const KINDS: usize = 21;
