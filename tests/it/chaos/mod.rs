//! Fault injection tests with real processes: hundreds of jobs and a dozen schedules run under faults, and a checker
//! judges the result. A test is called a storm.
//!
//! - [`database`]: faults of the database of several servers.
//! - [`leaders`]: the leader of several servers is killed repeatedly.
//! - [`load`]: clients that submit, cancel, schedule, pause, trigger and backfill, and repeat requests with unknown
//!   outcome.
//! - [`nemesis`]: the faults of a seed: processes, connections, packets, clocks and disks, overlapping each other.
//! - [`points`]: crashes at the named points between two steps.
//! - [`resumed`]: the time until work resumes.
//! - [`rows`]: the stores, and their faults.
//! - [`runs`]: workflow runs, and their expected results.
//! - [`services`]: services that are changed, and reach their desired replicas.
//! - [`scene`]: servers with a file, PostgreSQL or Raft, their workers, and the tools that break them.
//! - This file: the storm itself, its end, and its verdict.
//!
//! Every storm becomes a history in the format of `belfry-sim check`, and the same checker judges it. After a failure
//! the history is kept on disk; the message contains its path, the seed, and the command that repeats the storm.
//!
//! `CHAOS_RESULTS` is a folder for the results, which the book's results page shows. `CHAOS_SECONDS` sets the length
//! of the random storms, `CHAOS_SEED` their seed, and `CHAOS_KEEP` keeps histories without violations (`make chaos`
//! sets all of them).

mod database;
mod leaders;
mod load;
mod nemesis;
mod points;
mod resumed;
mod rows;
mod runs;
mod scene;
mod services;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{JobFilter, Page, WorkerFilter};
use futures::TryStreamExt as _;
use harness::process::run_with_own_pids;
use harness::story::Story;
use harness::{Recorder, Site, until, within};
use model::firing::BackfillStatus;
use model::{JobStatus, ScheduleId, WorkerId};
use sim::dice::Dice;
use sim::history::{Answer, Event, History, TaskStep, What};
use sim::results::{Run, Tally};

use load::Load;
use nemesis::{Abilities, Fault, Nemesis, Planned, Victim, plan, plan_against_workers};
use rows::{Rows, StoreKind};
use scene::{Scene, if_allowed};

/// Maximum number of live jobs during a storm.
const IN_FLIGHT: u64 = 400;
/// Number of ended jobs after which the faults begin.
const ENDED_BEFORE_FAULTS: u64 = 20;
/// Maximum time until a healthy site makes progress.
const RECOVERY: Duration = Duration::from_secs(60);
/// Maximum time without progress after the faults, until everything has ended. A long chain of waiting runs may take
/// longer in total, but it makes progress.
const CALM: Duration = Duration::from_secs(240);
/// Number of accepted jobs that are read again at the end.
const READ_AGAIN: usize = 300;

struct Storm {
    name: String,
    seed: u64,
    scene: Scene,
    nemesis: Nemesis,
    load: Load,
    clients: Vec<tokio::task::JoinHandle<()>>,
    feed: tokio::task::JoinHandle<()>,
    schedules: Vec<ScheduleId>,
    begun: Instant,
}

impl Storm {
    /// Starts a site with everything that can be broken, under load.
    async fn start_storm(name: &str, seed: u64, kept: StoreKind) -> Self {
        Self::over(name, seed, Rows::prepare(kept)).await
    }

    /// Starts a site over this store.
    async fn over(name: &str, seed: u64, rows: Rows) -> Self {
        let (scene, tools) = Scene::set(rows).await;
        let site = &scene.site;
        let recorder = Recorder::default();
        let feed = tokio::spawn(recorder.clone().follow(site.clients(Duration::from_secs(300)).remove(0)));
        let workers = worker_ids(site).await;
        let load = Load {
            clients: site.clients(Duration::ZERO),
            turn: Arc::default(),
            recorder: recorder.clone(),
            witness: site.witness(),
            in_flight: IN_FLIGHT,
            stop: Arc::new(AtomicBool::new(false)),
            names: Arc::default(),
            runs: Arc::default(),
        };
        load.prepare().await;
        let schedules = load.apply_schedules().await;
        load.apply_services().await;
        let mut clients = load.submitters(seed);
        clients.push(tokio::spawn(load.clone().change_services(Dice::new(seed, 98))));
        clients.push(tokio::spawn(load.clone().run_workflows()));
        clients.push(tokio::spawn(load.clone().operate(schedules.clone(), Dice::new(seed, 99))));
        let storm = Self {
            name: name.into(),
            seed,
            scene,
            nemesis: Nemesis::new(recorder, tools, workers),
            load,
            clients,
            feed,
            schedules,
            begun: Instant::now(),
        };
        let recorder = &storm.load.recorder;
        let warm = async || (recorder.ended() >= ENDED_BEFORE_FAULTS && recorder.live() > 0).then_some(());
        until("enough jobs have ended", RECOVERY, warm).await;
        storm
    }

    /// Injects the faults of a plan at their times.
    async fn set_active(&mut self, plan: &[Planned]) {
        let begun = Instant::now();
        for planned in plan {
            self.tend_until(begun + planned.at).await;
            self.nemesis.begin(&mut self.scene.site, *planned).await;
        }
        while let Some(end) = self.nemesis.next_end() {
            self.tend_until(end).await;
        }
    }

    async fn tend_until(&mut self, time: Instant) {
        loop {
            self.nemesis.repair_due(&mut self.scene.site);
            let next = self.nemesis.next_end().map_or(time, |end| end.min(time));
            let now = Instant::now();
            if now >= time {
                return;
            }
            let step = if self.nemesis.is_flapping() { Duration::from_millis(50) } else { RECOVERY };
            within((next - now).min(step), async || false).await;
        }
    }

    /// Waits until the tasks make progress, or for `time` at most: with all processes killed there is no progress.
    async fn until_progress_or(&self, time: Duration) {
        let before = self.load.recorder.ended();
        within(time, async || self.load.recorder.ended() > before + 5).await;
    }

    async fn until_progress(&self) {
        let before = self.load.recorder.ended();
        let got_on = within(RECOVERY, async || self.load.recorder.ended() > before + 10).await;
        assert!(got_on, "no job ended for {RECOVERY:?} after faults:\n{}", state(&self.scene.site).await);
    }

    /// Ends the faults and the load, waits until everything has ended, and judges the history.
    async fn judge(mut self) {
        self.nemesis.end_all(&mut self.scene.site);
        self.scene.site.until_one_is_ready().await;
        self.until_progress().await;
        self.load.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.await.expect("every request was answered eventually");
        }
        for &schedule in &self.schedules {
            self.load.pause(schedule).await;
        }
        self.load.recorder.note(What::Calm);
        let calm = Instant::now();
        let wrong_services = self.load.settle_services(CALM).await;
        let settled = calm.elapsed();
        self.load.delete_services().await;
        let ended = self.until_all_ended().await;
        let calm = calm.elapsed();
        self.read_again().await;
        let wrong_runs = self.load.wrong_runs().await;
        let unfinished = if ended { String::new() } else { state(&self.scene.site).await };
        self.feed.abort();
        if let Err(error) = (&mut self.feed).await {
            assert!(error.is_cancelled(), "{error}");
        }
        for server in self.scene.site.servers_mut() {
            server.shut_down().await;
        }
        let ended = self.scene.open_store().await;
        let story = Story::tell(&self.load.recorder, &self.load.witness, &*ended.store).await;
        let different = ended.close().await;
        let path = write(&story.history, &self.name, self.seed);
        let (history, report) = read_and_check(&path);
        let mut wrong: Vec<String> = report.violations.iter().map(|v| v.show(&history)).collect();
        wrong.extend(story.discrepancies);
        wrong.extend(different);
        wrong.extend(wrong_runs);
        wrong.extend(wrong_services);
        wrong.extend(idle_workers(self.nemesis.workers(), &history));
        if !unfinished.is_empty() {
            wrong.push(format!("unfinished work without progress for {CALM:?}:\n{unfinished}"));
        }
        let (name, seed) = (&self.name, self.seed);
        assert!(
            wrong.is_empty(),
            "{} violations; the first:\n{}\nhistory: {path}\njudge it again: belfry-sim check {path}\n\
             the same faults again: make chaos SEED={seed} SECONDS={seconds}",
            wrong.len(),
            wrong.iter().take(12).map(String::as_str).collect::<Vec<_>>().join("\n"),
            path = path.display(),
            seconds = from_env("CHAOS_SECONDS", SMOKE),
        );
        println!("{}", summary(name, seed, self.begun.elapsed(), calm, &history, &self.nemesis));
        println!("{} workflow runs with the expected results", self.load.count_runs());
        println!("all services as desired {:.1} s after the faults", settled.as_secs_f64());
        if let Some(folder) = std::env::var_os("CHAOS_RESULTS") {
            self.keep_results(&PathBuf::from(folder), &history, &report);
        }
        if std::env::var_os("CHAOS_KEEP").is_some() {
            println!("history: {}", path.display());
        } else {
            std::fs::remove_file(path).expect("cannot remove the history");
        }
    }

    /// Writes the results of the storm for the book's results page.
    fn keep_results(&self, folder: &Path, history: &History, report: &sim::check::Report) {
        let (name, seed) = (&self.name, self.seed);
        let text = |variable| std::env::var(variable).unwrap_or_else(|_| "unknown".into());
        let run = Run {
            name: format!("storm: {name}"),
            commit: text("BELFRY_COMMIT"),
            date: text("BELFRY_DATE"),
            setting: self.scene.setting(),
            seed,
            replay: format!("make chaos SEED={seed} SECONDS={}", from_env("CHAOS_SECONDS", SMOKE)),
        };
        let mut tally = Tally::default();
        tally.add(history, report);
        let results = tally.results(run, self.begun.elapsed(), 0);
        let path = folder.join(format!("storm-{name}-{seed}.json"));
        let file = File::create(&path).expect("cannot create the results file");
        serde_json::to_writer_pretty(file, &results).expect("cannot write the results");
        println!("results: {}", path.display());
    }

    async fn until_all_ended(&self) -> bool {
        let client = self.scene.site.client();
        let live: Vec<_> = JobStatus::ALL.iter().copied().filter(|s| !s.is_final()).collect();
        let filter = JobFilter { status: live, ..JobFilter::default() };
        let over = async || {
            let Ok(jobs) = client.jobs_page(&filter, &Page { limit: Some(1), cursor: None }).await else {
                return false;
            };
            let backfills: Result<Vec<_>, _> = client.backfills(None, None).try_collect().await;
            let running =
                |all: Vec<model::api::Backfill>| all.iter().any(|b| b.status == BackfillStatus::Running);
            jobs.items.is_empty() && self.load.recorder.live() == 0 && !backfills.map_or(true, running)
        };
        let ended = || self.load.recorder.ended();
        loop {
            let before = ended();
            let moved = within(CALM, async || over().await || ended() > before).await;
            if !moved || over().await {
                return moved;
            }
        }
    }

    /// I1, through the API: accepted jobs exist.
    async fn read_again(&self) {
        let accepted = accepted(&self.load.recorder.events());
        let step = accepted.len().div_ceil(READ_AGAIN).max(1);
        for &job in accepted.iter().step_by(step) {
            self.load.read(job).await;
        }
    }
}

/// Returns the ids of the workers, in the order of the site.
async fn worker_ids(site: &Site) -> Vec<WorkerId> {
    let known: Vec<_> = site.client().workers(WorkerFilter::default()).try_collect().await.unwrap();
    let id = |name: &str| known.iter().find(|worker| worker.name == name).unwrap().id;
    site.workers.iter().map(|worker| id(worker.name())).collect()
}

/// Returns workers that started no task, so that faults of theirs had no effect.
fn idle_workers(workers: &[WorkerId], history: &History) -> Vec<String> {
    let started = |event: &Event| match event.what {
        What::Task { step: TaskStep::Started { worker, .. }, .. } => Some(worker),
        _ => None,
    };
    let busy: BTreeSet<_> = history.events.iter().filter_map(started).collect();
    let idle = workers.iter().filter(|worker| !busy.contains(worker));
    idle.map(|worker| format!("{worker} started no task in the whole storm")).collect()
}

fn accepted(events: &[Event]) -> Vec<model::JobId> {
    let job = |event: &Event| match &event.what {
        What::Answered { answer: Answer::Submitted { job }, .. } => Some(*job),
        _ => None,
    };
    events.iter().filter_map(job).collect()
}

/// Returns the server's state for the message of a failure.
async fn state(site: &Site) -> String {
    let Some(client) = site.server.impatient_client() else {
        return "the server has no token".into();
    };
    let workers = client.workers_page(&WorkerFilter::default(), &Page::default()).await;
    let live = JobStatus::ALL.iter().copied().filter(|s| !s.is_final()).collect();
    let filter = JobFilter { status: live, ..JobFilter::default() };
    let jobs = client.jobs_page(&filter, &Page { limit: Some(1_000), cursor: None }).await;
    let jobs = jobs.map(|page| page.items).unwrap_or_default();
    let mut counts: std::collections::BTreeMap<&str, u32> = Default::default();
    jobs.iter().for_each(|job| *counts.entry(job.status.as_str()).or_default() += 1);
    let mut text = format!("live {counts:?}\nworkers {workers:#?}");
    for status in [JobStatus::Waiting, JobStatus::Running, JobStatus::Retrying] {
        if let Some(job) = jobs.iter().rfind(|job| job.status == status) {
            text += &format!("\n{:#?}\n{:#?}", job, client.why(job.id).await);
        }
    }
    text
}

/// Writes a history to a folder that outlives the test.
fn write(history: &History, name: &str, seed: u64) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{name}-{seed}.jsonl"));
    let mut file = BufWriter::new(File::create(&path).unwrap());
    history.write(&mut file).unwrap();
    file.flush().unwrap();
    path
}

/// Judges the written file, as `belfry-sim check` does.
fn read_and_check(path: &PathBuf) -> (History, sim::check::Report) {
    let history = History::read(BufReader::new(File::open(path).unwrap())).unwrap();
    let report = sim::check::check(&history);
    (history, report)
}

fn summary(
    name: &str,
    seed: u64,
    took: Duration,
    calm: Duration,
    history: &History,
    nemesis: &Nemesis,
) -> String {
    use sim::history::{Row, TaskStep};
    let count = |is: &dyn Fn(&What) -> bool| history.events.iter().filter(|event| is(&event.what)).count();
    let rows = |is: &dyn Fn(&Row) -> bool| -> usize {
        let commits = history.events.iter().filter_map(|event| match &event.what {
            What::Commit(commit) => Some(commit),
            _ => None,
        });
        commits.flat_map(|commit| &commit.rows).filter(|row| is(row)).count()
    };
    let faults: u32 = nemesis.counts.values().sum();
    let unknown = count(&|w| matches!(w, What::Answered { answer: Answer::Unknown, .. }));
    format!(
        "{name}, seed {seed}: {} jobs accepted ({unknown} unknown answers), {} of schedules, {} lines of the ledger, \
         {} starts of tasks, {faults} faults {:?}; {:.0} s, calm after {:.0} s; lost 0, doubled 0, stuck 0",
        accepted(&history.events).len(),
        rows(&|row| matches!(row, Row::Job(row) if row.new && row.origin.is_some())),
        rows(&|row| matches!(row, Row::Ledger(_))),
        count(&|w| matches!(w, What::Task { step: TaskStep::Started { .. }, .. })),
        nemesis.counts,
        took.as_secs_f64(),
        calm.as_secs_f64(),
    )
}

/// Returns all permutations of the four processes.
fn orders() -> Vec<[Victim; 4]> {
    let all = [Victim::Server, Victim::Agent, Victim::Supervisor, Victim::Task];
    let mut found = Vec::new();
    for a in all {
        for b in all.into_iter().filter(|b| *b != a) {
            for c in all.into_iter().filter(|c| ![a, b].contains(c)) {
                let d = all.into_iter().find(|d| ![a, b, c].contains(d)).expect("one is left");
                found.push([a, b, c, d]);
            }
        }
    }
    found
}

/// D5, D7, A10. `kill -9` of server, agent, supervisor and task, one after the other, in every order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_in_every_order_lose_and_duplicate_no_job() {
    let mut storm = Storm::start_storm("orders", 0, StoreKind::InFile).await;
    let orders = orders();
    assert_eq!(orders.len(), 24);
    for (round, order) in orders.into_iter().enumerate() {
        for victim in order {
            let number = if victim == Victim::Server { 0 } else { round % storm.scene.able.workers };
            let fault = Fault::Kill(victim, number);
            // Processes that only the test restarts stay down until all four are killed.
            let held = matches!(victim, Victim::Server | Victim::Agent);
            let lasts = if held { RECOVERY } else { Duration::ZERO };
            let planned = Planned { at: Duration::ZERO, lasts, fault, choice: round };
            storm.nemesis.begin(&mut storm.scene.site, planned).await;
            storm.until_progress_or(Duration::from_millis(150)).await;
        }
        storm.nemesis.end_all(&mut storm.scene.site);
        storm.until_progress().await;
    }
    for victim in [Victim::Server, Victim::Agent, Victim::Supervisor] {
        assert_eq!(storm.nemesis.counts[&format!("kill {victim:?}")], 24, "{victim:?}");
    }
    storm.judge().await;
}

/// Default length of each random storm in seconds, for `make test`.
const SMOKE: u64 = 15;

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
}

/// Returns `CHAOS_SEED`, or a new seed.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    from_env("CHAOS_SEED", u64::from(now.subsec_micros()))
}

type PlanOf = fn(u64, Duration, Abilities) -> Vec<Planned>;

async fn storm(name: &str, kept: StoreKind, plan: PlanOf) {
    let seed = seed();
    let seconds = from_env("CHAOS_SECONDS", SMOKE);
    println!("CHAOS_SEED={seed} CHAOS_SECONDS={seconds}");
    let mut storm = Storm::start_storm(name, seed, kept).await;
    let planned = plan(seed, Duration::from_secs(seconds), storm.scene.able);
    storm.set_active(&planned).await;
    storm.judge().await;
}

/// F1, F3, F4, F5, F7, F10, F13 of the fault model, overlapping each other, drawn from a seed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_faults_violates_no_guarantee() {
    storm("storm", StoreKind::InFile, plan).await;
}

/// The processes of workers are stopped and killed while they launch tasks, the disk of one is full at times, and pids
/// are reused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_against_workers_violates_no_guarantee() {
    let name = "chaos::a_storm_against_workers_violates_no_guarantee";
    if if_allowed(run_with_own_pids(name)) == Some(true) {
        return;
    }
    storm("workers", StoreKind::InFile, plan_against_workers).await;
}

/// The same with three servers that share a database: each may be killed, paused, or cut off from workers or from the
/// database, and another one continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_over_three_servers_violates_no_guarantee() {
    storm("servers", StoreKind::InPostgres, plan).await;
}

/// The same with a Raft cluster of three servers: each may be killed, paused, or cut off from the others, and a
/// majority continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_over_a_raft_cluster_violates_no_guarantee() {
    storm("raft", StoreKind::InRaft, plan).await;
}

/// If two storms with the same seed differ, a failure cannot be repeated.
#[test]
fn a_seed_always_plans_the_same_faults() {
    let able = Abilities {
        servers: 3,
        workers: 2,
        branch: None,
        disk: true,
        worker_disk: Some(0),
        store_roads: 3,
        sessions: true,
        pids: true,
    };
    let shown = |seed| format!("{:?}", plan(seed, Duration::from_secs(120), able));
    assert_eq!(shown(7), shown(7));
    assert_ne!(shown(7), shown(8));
    let planned = plan(7, Duration::from_secs(600), able);
    for server in 0..able.servers {
        let kill = Fault::Kill(Victim::Server, server);
        assert!(planned.iter().any(|planned| planned.fault == kill), "server {server} is never killed");
    }
    let overlap = planned.windows(2).filter(|pair| pair[0].at + pair[0].lasts > pair[1].at).count();
    assert!(overlap * 4 > planned.len(), "only {overlap} of {} faults overlap the next", planned.len());
}
