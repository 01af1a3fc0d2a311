//! Runs a simulated cluster from its seed to its result.
//!
//! [`play`] draws the numbers of servers, machines and jobs, builds the hosts, and steps the simulation. In
//! the *rough* phase, jobs are submitted and faults are injected. In the *calm* phase, all faults are
//! repaired and no more jobs are submitted. All jobs must end, all workers must be back in a session, and no
//! report may be left.
//!
//! The history then goes to the checker of the `sim` crate. [`SeedResult`] adds the problems that only this
//! simulation can see.
//!
//! # Cost
//! Up to 200 seconds of virtual time. The store is a real SQLite database, in memory if `/dev/shm` exists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use model::WorkerId;
use model::worker::WorkerStatus;
use server::auth::{AccessControl, first_start};
use sim::check::{self, Report};
use sim::dice::Dice;
use sim::history::{Answer, History, Row, Setup, TaskStep, What};
use store::Store;
use store::sqlite::{Options, SqliteStore};

use crate::clients::Client;
use crate::cluster::{CLIENT, Cluster};
use crate::machines::Machine;
use crate::nemesis::{self, Nemesis, QUICK};
use crate::recorder::{self, Recorder};
use crate::servers::{self, SHARD_LEASE, StoreConnection};

/// Time that each host runs before the next one.
const TICK: Duration = Duration::from_millis(10);
/// Maximum time after the last repair until all jobs have ended.
const CALM_MAX: Duration = Duration::from_secs(150);
/// Additional time after all jobs have ended, so that hanging connections are detected and sessions reopened.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// Result of a seed.
pub(crate) struct SeedResult {
    pub(crate) history: History,
    pub(crate) report: Report,
    /// Problems that the checker does not detect.
    pub(crate) problems: Vec<String>,
    faults: usize,
    lasted: Duration,
}

impl SeedResult {
    pub(crate) fn is_ok(&self) -> bool {
        self.report.violations.is_empty() && self.problems.is_empty()
    }

    /// Returns a one-line summary, which is identical for the same seed.
    pub(crate) fn summary(&self) -> String {
        let count =
            |wanted: fn(&What) -> bool| self.history.events.iter().filter(|e| wanted(&e.what)).count();
        let jobs = count(|what| matches!(what, What::Answered { answer: Answer::Submitted { .. }, .. }));
        let starts = count(|what| matches!(what, What::Task { step: TaskStep::Started { .. }, .. }));
        let halts = count(|what| matches!(what, What::Task { step: TaskStep::Halted, .. }));
        let owners = count(|what| matches!(what, What::Owned { .. }));
        format!(
            "{jobs} jobs, {starts} starts, {halts} halts, {} faults, {owners} leases, {} s, fingerprint {:016x}: {}",
            self.faults,
            self.lasted.as_secs(),
            self.history.fingerprint(),
            if self.is_ok() { "ok" } else { "FAILED" },
        )
    }
}

/// A folder that is removed on drop. Its name contains the process id, because a random name would be the same in
/// every process with the same seed.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = place.join(format!("belfry-node-sim-{}", std::process::id()));
        // The folder of a killed process with the same id.
        let _none = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).with_context(|| format!("cannot create `{}`", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed does no harm.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a seed.
pub(crate) fn play(seed: u64) -> Result<SeedResult> {
    let folder = Folder::make()?;
    recorder::set_elapsed(Duration::ZERO);
    let recorder = Recorder::default();
    let mut dice = Dice::new(seed, 1);
    let store = Arc::new(open(&folder.0, &recorder)?);
    let aside = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (admin, worker) = aside.block_on(tokens(&store, &folder.0))?;
    let servers = 1 + dice.below(3);
    let machines = 1 + dice.below(4);
    let rough = Duration::from_secs(dice.between(20, 50));
    let cast = Cluster {
        store_connections: (0..servers)
            .map(|n| {
                let (store, dice) = (Arc::clone(&store), Dice::new(seed, 10 + n as u64));
                StoreConnection::new(n, store, aside.handle(), recorder.clone(), dice)
            })
            .collect(),
        machines: (0..machines)
            .map(|n| Machine::new(n, recorder.clone(), Dice::new(seed, 20 + n as u64)))
            .collect(),
    };
    let jobs = 20 + dice.below(40);
    let client = Client::new(recorder.clone(), admin, servers, jobs, rough, Dice::new(seed, 30));
    let done = Arc::clone(&client.done);

    let mut sim = turmoil::Builder::new()
        .rng_seed(seed)
        .tick_duration(TICK)
        .simulation_duration(rough + CALM_MAX + CALM_MAX)
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(QUICK)
        .tcp_capacity(1 << 16)
        .enable_tokio_io()
        .build();
    for (number, way) in cast.store_connections.iter().enumerate() {
        let (way, dir) = (way.clone(), folder.0.clone());
        sim.host(servers::name(number), move || {
            let (way, dir) = (way.clone(), dir.clone());
            async move { servers::run_host(number, way, &dir).await }
        });
    }
    let urls: Vec<_> = (0..servers).map(servers::url).collect();
    for machine in &cast.machines {
        let (machine, urls, token, dir) = (machine.clone(), urls.clone(), worker.clone(), folder.0.clone());
        sim.host(crate::machines::name(machine.number), move || {
            let (machine, urls, token, dir) = (machine.clone(), urls.clone(), token.clone(), dir.clone());
            async move { machine.run_host(urls, token, &dir).await }
        });
    }
    sim.client(CLIENT, Rc::new(client).run_host());

    let mut nemesis = Nemesis::draw(&cast, rough, &mut dice);
    let mut calm_since = None;
    let mut over_since = None;
    while over_since.is_none_or(|since| sim.elapsed() < since + IDLE_TIME) {
        recorder::set_elapsed(sim.elapsed());
        nemesis.act(&mut sim, &cast, &recorder);
        if calm_since.is_none() && sim.elapsed() >= rough {
            nemesis::repair_all(&sim, &cast);
            recorder.note(What::Calm);
            calm_since = Some(sim.elapsed());
        }
        sim.step().map_err(|error| anyhow!("the simulation failed: {error}"))?;
        let is_over = calm_since.is_some()
            && done.load(Ordering::Relaxed)
            && recorder.live() == 0
            && cast.machines.iter().all(|machine| machine.disk.unacknowledged().is_empty());
        if is_over && over_since.is_none() {
            over_since = Some(sim.elapsed());
        }
        if calm_since.is_some_and(|since| sim.elapsed() > since + CALM_MAX) {
            break;
        }
    }
    recorder::set_elapsed(sim.elapsed());
    let unacknowledged = cast.machines.iter().flat_map(|machine| machine.disk.unacknowledged()).collect();
    recorder.note(What::End { unacknowledged });
    let lasted = sim.elapsed();
    // Events during the teardown of the simulation are not recorded.
    let events = recorder.finish();
    drop(sim);
    let history = History { setup: Setup { shard_lease: SHARD_LEASE, ..Setup::default() }, events };
    let mut complaints = workers_without_session(&history, &cast);
    if !done.load(Ordering::Relaxed) {
        complaints.push("a client has no certain answer at the end".into());
    }
    Ok(SeedResult {
        report: check::check(&history),
        history,
        problems: complaints,
        faults: nemesis.faults,
        lasted,
    })
}

fn open(dir: &Path, recorder: &Recorder) -> Result<SqliteStore> {
    let recorder = recorder.clone();
    let clock = Arc::new(move || recorder.store_time());
    let options = Options { shards: 4, ballast_bytes: 0, clock, ..Options::default() };
    SqliteStore::open(dir.join("belfry.db"), options).context("cannot open the store")
}

/// Creates the tokens of an admin and of the workers, as the first start does.
async fn tokens(store: &Arc<SqliteStore>, dir: &Path) -> Result<(String, String)> {
    let tokens = AccessControl::load(Arc::clone(store) as Arc<dyn Store>).await?;
    let made = first_start(&tokens, &**store, dir).await?;
    let worker = std::fs::read_to_string(&made.worker_token_file)?;
    let admin = made.admin_token.context("an empty store has no admin")?;
    Ok((admin, worker.trim().to_owned()))
}

/// Returns a problem for each worker without a session at the end.
fn workers_without_session(history: &History, cast: &Cluster) -> Vec<String> {
    let mut last: BTreeMap<WorkerId, WorkerStatus> = BTreeMap::new();
    for event in &history.events {
        let What::Commit(commit) = &event.what else { continue };
        for row in &commit.rows {
            if let Row::Worker { worker, status, .. } = row {
                last.insert(*worker, *status);
            }
        }
    }
    let absent = cast.machines.iter().filter(|machine| last.get(&machine.id) != Some(&WorkerStatus::Ready));
    absent.map(|machine| format!("{} has no session at the end", machine.id)).collect()
}
