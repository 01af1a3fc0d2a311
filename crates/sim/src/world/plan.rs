//! What is going to happen to a world, drawn from its seed: how large it is, what is asked of it,
//! and which faults it meets. Everything else follows from the plan and from draws of the same seed.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use model::Duration;

use crate::dice::Dice;
use crate::history::Setup;

/// A concern of its own for each kind of draw; see [`Dice`].
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
}

/// A deliberate bug in the model around the cores, to see that it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
#[expect(missing_docs, reason = "each name says what is done wrong")]
pub enum Mutation {
    WorkerCountsItsLeaseFromTheAnswer,
    WorkerThawsBeforeItsStops,
    WorkerHandsOnNoCheckpoint,
    FuseDoesNotFire,
    StaleReportAsCurrent,
    StaleSaveAsCurrent,
    LoadForgetsExecutions,
    LoadForgetsJobs,
    LoadForgetsQueues,
    LoadForgetsWorkers,
    LoadForgetsSteps,
    LoadForgetsElements,
    LoadForgetsTriggers,
    LoadForgetsTriesOfRuns,
    LoadForgetsRunsBetweenTries,
    StoreForgetsNewJobs,
    StoreForgetsKeys,
    StoreForgetsCancels,
    StoreForgetsTheLedger,
    StoreForgetsEndsOfSteps,
    StoreForgetsElements,
    StoreForgetsCheckpoints,
    StoreForgetsCursors,
    StoreTearsBatches,
    StoreIgnoresEpochs,
    StoreReusesEpochs,
    StoreGoesOnBehindAFailure,
    StoreReadsThePast,
    LostTailIsTrusted,
    RandomOrderOfEffects,
}

/// A deliberate bug, to see that it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// In the model around the cores.
    Around(Mutation),
    /// In a core itself. Release builds have none of these.
    Within(mutation::Mutation),
}

impl Bug {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let within = mutation::Mutation::ALL
            .iter()
            .copied()
            .filter(|mutation| matches!(mutation.part(), "engine" | "leader" | "supervisor"));
        let around = Mutation::value_variants().iter().copied().map(Self::Around);
        around.chain(within.map(Self::Within))
    }

    /// Whether this build has it.
    pub fn is_built_in(self) -> bool {
        matches!(self, Self::Around(_)) || mutation::ARE_BUILT_IN
    }
}

/// As the command names it.
impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Around(mutation) => {
                f.write_str(mutation.to_possible_value().as_ref().map_or("", PossibleValue::get_name))
            }
            Self::Within(mutation) => mutation.fmt(f),
        }
    }
}

/// A name that no bug of these worlds has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownBug(String);

impl fmt::Display for UnknownBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no deliberate bug `{}` here: `belfry-sim mutations` names them", self.0)
    }
}

impl std::error::Error for UnknownBug {}

impl FromStr for Bug {
    type Err = UnknownBug;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::all().find(|bug| bug.to_string() == name).ok_or_else(|| UnknownBug(name.to_owned()))
    }
}

/// How large worlds are, and how rough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Profile {
    /// Two minutes of faults: hundreds of worlds a minute.
    #[default]
    Short,
    /// An hour of faults and many jobs.
    Long,
    /// No faults: is everything quick and quiet?
    Calm,
    /// The steady load of 1,000,000 jobs a day, without faults: how fast is it?
    Load,
    /// As short, and the store may lose its newest commits, which nobody is then held to.
    LostTail,
}

/// A fault and when it happens.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// From the begin of the world.
    pub at: Duration,
    /// Until it is mended.
    pub length: Duration,
    /// What.
    pub kind: FaultKind,
}

/// What can go wrong.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum FaultKind {
    CrashServer {
        server: usize,
    },
    PauseServer {
        server: usize,
    },
    /// An operator drains the leader, and takes that back when the fault is over.
    DrainLeader,
    /// Stops a server in order, and starts it again when the fault is over.
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
    /// Only what a worker sends is lost.
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
    /// As much of the tail as was committed in so long a time.
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
    /// Each fuse that is started dies at once.
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
    /// From `at` seconds on, for `length` seconds.
    pub fn new(at: u64, length: u64, kind: FaultKind) -> Self {
        Self { at: Duration::from_secs(at), length: Duration::from_secs(length), kind }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {} for {}", self.kind, self.at, self.length)
    }
}

/// Everything that makes a world.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Decides all that is not written here.
    pub seed: u64,
    /// How many servers.
    pub servers: usize,
    /// How many workers.
    pub workers: usize,
    /// How many shards.
    pub shards: u16,
    /// Commits of a server that may be on their way to the store.
    pub commits_ahead: usize,
    /// Inputs that a batch has at least if it is sent behind one that is on its way.
    pub ahead_inputs: usize,
    /// How long work comes and faults happen.
    pub rough: Duration,
    /// How long everything may take to end afterwards.
    pub calm: Duration,
    /// Jobs that clients submit.
    pub jobs: u32,
    /// Other things that clients ask for.
    pub other_asks: u32,
    /// Schedules.
    pub schedules: u32,
    /// Whether some of them have instants that a filter holds.
    pub with_filters: bool,
    /// Schedules beside them that are all due at one instant and never again: in the first whole minute.
    pub due_together: u32,
    /// Workflows.
    pub workflows: u32,
    /// Runs of them that clients start; schedules start more.
    pub runs: u32,
    /// What clients ask of runs.
    pub run_asks: u32,
    /// Checkpoints that running tasks save.
    pub saves: u32,
    /// Whether some of the jobs share a concurrency key.
    pub with_keys: bool,
    /// The longest that a task runs.
    pub task_max: Duration,
    /// Faults, by when they begin.
    pub faults: Vec<Fault>,
    /// A deliberate bug.
    pub bug: Option<Bug>,
    /// How many batches pass between two looks at an engine's invariants, each of which goes over all live jobs.
    pub look_every: u64,
    /// How often an engine is rebuilt beside the running one.
    pub rebuild_every: Duration,
    /// Whether only faults that lose nothing durable may happen.
    pub keeps_all: bool,
    /// How large machines are: executions at a time.
    pub slots: u32,
    /// How long a batch of a worker's journal takes at most, if that is longer than usual.
    pub journal_max: Duration,
    /// The bounds that the history is judged by.
    pub setup: Setup,
}

impl Plan {
    /// The world of a seed.
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
            with_keys: true,
            task_max: seconds(dice.between(1, 30)),
            faults: Vec::new(),
            bug: None,
            look_every: 32,
            rebuild_every: seconds(20),
            keeps_all: true,
            slots: u32::try_from(dice.between(2, 8)).unwrap_or(2),
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
            }
            Profile::Calm => mean = Duration::ZERO,
            Profile::Load => {
                (plan.servers, plan.workers, plan.shards, plan.slots) = (1, 4, 4, 64);
                (plan.rough, plan.jobs, plan.other_asks, plan.schedules) = (seconds(7_200), 83_333, 0, 0);
                (plan.task_max, plan.rebuild_every) = (seconds(4), seconds(36_000));
                plan.look_every = 512;
                // More than a key lets through would only pile up.
                plan.with_keys = false;
                mean = Duration::ZERO;
            }
            Profile::LostTail => plan.keeps_all = false,
        }
        if mean > Duration::ZERO {
            plan.draw_faults(&mut dice, mean);
            plan.draw_stops();
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
        }
        plan
    }

    /// A world of a size that suits most scenarios, without faults: two servers, three workers.
    pub fn quiet(seed: u64) -> Self {
        let seconds = Duration::from_secs;
        let plan = Self::draw(seed, Profile::Calm);
        Self { servers: 2, workers: 3, rough: seconds(120), task_max: seconds(10), jobs: 40, ..plan }
    }

    /// The same with a bug.
    #[must_use]
    pub fn with(mut self, bug: Bug) -> Self {
        self.bug = Some(bug);
        self
    }

    /// The bug around the engine that the world has.
    pub(crate) fn mutation(&self) -> Option<Mutation> {
        match self.bug? {
            Bug::Around(mutation) => Some(mutation),
            Bug::Within(_) => None,
        }
    }

    /// Whether the world has this bug around the engine.
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation() == Some(mutation)
    }

    /// By dice of their own, which leave all else of a seed as it is.
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

    /// By dice of its own, which leaves all else of a seed as it is.
    fn draw_commits_ahead(&mut self) {
        let mut dice = Dice::new(self.seed, concern::AHEAD);
        if dice.chance(0.5) {
            self.commits_ahead = 2 + dice.below(3);
            self.ahead_inputs = usize::try_from(dice.between(1, 4)).unwrap_or(1);
        }
    }

    fn draw_faults(&mut self, dice: &mut Dice, mean: Duration) {
        // Each world has its own favourites, so that rare combinations get their turn.
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
                // Some are the greatest leap that is believed.
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

/// How many kinds [`Plan::draw_fault`] knows.
const KINDS: usize = 21;
