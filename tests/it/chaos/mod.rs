//! A storm of faults over a thousand jobs in flight, and the tasks' own word on what happened.
//!
//! Jobs of all three levels run on two workers while a nemesis kills and pauses. At the end every
//! accepted job must have ended, none may have run beside itself, no `at_most_once` job may have
//! started twice, and each success must have one accepted result. `CHAOS_SECONDS` makes the random
//! storm longer (`make chaos`), `CHAOS_SEED` repeats its choices.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Client, ExecutionFilter, JobFilter, Page};
use futures::TryStreamExt as _;
use harness::witness::Fate;
use harness::{Pid, Role, Site, Witness, glance, until, within};
use model::spec::Delivery;
use model::{Bytes, JobId, JobSpec, JobStatus, Millicores};

/// As many jobs are in flight while the storm lasts.
const IN_FLIGHT: usize = 1_000;
/// Jobs of one request.
const BATCH: usize = 50;
/// Within this a healthy site gets on.
const RECOVERY: Duration = Duration::from_secs(60);

/// What the nemesis can hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Server,
    Agent,
    Supervisor,
    Fuse,
    Task,
}

/// Jobs that the server said it accepted.
type Accepted = Arc<Mutex<Vec<(JobId, Delivery)>>>;

struct Storm {
    site: Site,
    witness: Witness,
    accepted: Accepted,
    submitter: tokio::task::JoinHandle<()>,
    stop: Arc<AtomicBool>,
    kills: BTreeMap<String, u32>,
}

fn spec(witness: &Witness, number: usize) -> JobSpec {
    let mut spec = witness.job(2);
    spec.delivery = [Delivery::AtLeastOnce, Delivery::AtMostOnce, Delivery::ExactlyOnce][number % 3];
    spec.resources.cpu = Some(Millicores(10));
    spec.resources.memory = Some(Bytes(1 << 20));
    spec.retry.max_retries = 50;
    spec.retry.max_start_retries = 50;
    spec.retry.backoff.initial = "50ms".parse().unwrap();
    spec.retry.backoff.max = "1s".parse().unwrap();
    spec
}

/// Keeps [`IN_FLIGHT`] jobs in flight until it is told to stop. Each request is repeated under its
/// key until it is answered, as every client does it.
async fn submit_until(stop: Arc<AtomicBool>, client: Client, witness: Witness, accepted: Accepted) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        if accepted.lock().unwrap().len() >= witness.count("end") + IN_FLIGHT {
            glance().await;
            continue;
        }
        let specs: Vec<_> = (number..number + BATCH).map(|n| spec(&witness, n)).collect();
        number += BATCH;
        // `created` is false where a repeated request finds what its first try made.
        let made = client.submit_all(&specs).await.expect("the server takes jobs again after each kill");
        let made = made.iter().zip(&specs).map(|(m, s)| (m.id, s.delivery));
        accepted.lock().unwrap().extend(made);
    }
}

impl Storm {
    async fn gather() -> Self {
        let mut site = Site::start().await;
        site.add_worker().await;
        let witness = site.witness();
        let accepted = Accepted::default();
        let stop = Arc::new(AtomicBool::new(false));
        let submit = submit_until(stop.clone(), site.client(), witness.clone(), accepted.clone());
        let submitter = tokio::spawn(submit);
        until("a thousand jobs are in flight", RECOVERY, async || {
            (accepted.lock().unwrap().len() >= IN_FLIGHT && witness.count("end") > 0).then_some(())
        })
        .await;
        Self { site, witness, accepted, submitter, stop, kills: BTreeMap::new() }
    }

    fn find(&self, victim: Victim, worker: usize, choice: usize) -> Option<Pid> {
        let worker = &self.site.workers[worker];
        match victim {
            Victim::Server => Some(self.site.server.pid()),
            Victim::Agent => worker.find(Role::Agent),
            Victim::Supervisor => worker.find(Role::Supervisor),
            Victim::Fuse => worker.find(Role::Fuse),
            Victim::Task => {
                let tasks = worker.tasks();
                (!tasks.is_empty()).then(|| tasks[choice % tasks.len()])
            }
        }
    }

    async fn kill(&mut self, victim: Victim, worker: usize, choice: usize) {
        match victim {
            Victim::Server => self.site.server.kill().await,
            Victim::Agent => self.site.workers[worker].kill_agent().await,
            other => match self.find(other, worker, choice) {
                Some(pid) => pid.kill(),
                None => return,
            },
        }
        *self.kills.entry(format!("{victim:?}")).or_default() += 1;
    }

    /// Starts what the nemesis left dead and nobody but an operator (or systemd) would start again.
    async fn start_again(&mut self) {
        if !self.site.server.is_running() {
            self.site.server.start_again().await;
        }
        for worker in &mut self.site.workers {
            if !worker.has_agent() {
                worker.start_agent();
            }
        }
    }

    /// Waits until the tasks get on, or for `time` at most: where all is dead, nothing gets on.
    async fn a_while(&self, time: Duration) {
        let before = self.witness.count("beat");
        within(time, async || self.witness.count("beat") > before + 40).await;
    }

    async fn until_it_gets_on(&self) {
        let before = self.witness.count("end");
        let got_on = within(RECOVERY, async || self.witness.count("end") > before + 20).await;
        assert!(got_on, "no job ended for {RECOVERY:?} after the faults stopped:\n{}", self.state().await);
    }

    /// What the server says holds everything up, for the message of a failure.
    async fn state(&self) -> String {
        let Some(client) = self.site.server.impatient_client() else {
            return "the server has no token".into();
        };
        let workers = client.workers_page(&Page::default()).await;
        let live = JobStatus::ALL.iter().copied().filter(|s| !s.is_final()).collect();
        let filter = JobFilter { status: live, ..JobFilter::default() };
        let jobs = client.jobs_page(&filter, &Page { limit: Some(1_000), cursor: None }).await;
        let jobs = jobs.map(|page| page.items).unwrap_or_default();
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        jobs.iter().for_each(|job| *counts.entry(job.status.as_str()).or_default() += 1);
        let mut text = format!("live {counts:?}\nworkers {workers:#?}");
        for status in [JobStatus::Waiting, JobStatus::Running, JobStatus::Retrying] {
            if let Some(job) = jobs.iter().rfind(|job| job.status == status) {
                text += &format!("\n{:#?}\n{:#?}", job, client.why(job.id).await);
            }
        }
        text
    }

    /// Lets everything end, and holds what the tasks told against what the server says.
    async fn judge(mut self) {
        self.start_again().await;
        self.until_it_gets_on().await;
        self.stop.store(true, Ordering::Relaxed);
        (&mut self.submitter).await.expect("every request was answered in the end");
        let client = self.site.client();
        until("every job has ended", Duration::from_secs(240), async || {
            let live = JobStatus::ALL.iter().copied().filter(|s| !s.is_final()).collect();
            let filter = JobFilter { status: live, ..JobFilter::default() };
            let page = client.jobs_page(&filter, &Page { limit: Some(1), cursor: None }).await.ok()?;
            page.items.is_empty().then_some(())
        })
        .await;
        let accepted = self.accepted.lock().unwrap().clone();
        let fates = fates(&client, &accepted).await;
        let violations = self.witness.violations(&fates);
        assert!(
            violations.is_empty(),
            "{} violations, the first: {:#?}",
            violations.len(),
            &violations[..violations.len().min(20)]
        );
        println!(
            "{} jobs, {} task starts, kills {:?}: no violation",
            fates.len(),
            self.witness.count("start"),
            self.kills
        );
    }
}

/// What became of each job.
///
/// # Panics
/// If the server has a job that nobody submitted: every request was repeated until it was answered.
async fn fates(client: &Client, accepted: &[(JobId, Delivery)]) -> BTreeMap<String, Fate> {
    let mut fates: BTreeMap<String, Fate> = accepted
        .iter()
        .map(|(id, delivery)| {
            (id.to_string(), Fate { delivery: *delivery, job: None, executions: Vec::new() })
        })
        .collect();
    assert_eq!(fates.len(), accepted.len(), "two submissions were given one job");
    let jobs: Vec<_> = client.jobs(JobFilter::default()).try_collect().await.expect("the jobs can be listed");
    for job in jobs {
        let fate =
            fates.get_mut(&job.id.to_string()).unwrap_or_else(|| panic!("nobody submitted {}", job.id));
        fate.job = Some(job);
    }
    let executions: Vec<_> = client
        .executions(ExecutionFilter::default())
        .try_collect()
        .await
        .expect("the executions can be listed");
    for execution in executions {
        let fate = fates.get_mut(&execution.job_id.to_string()).expect("an execution's job is listed");
        fate.executions.push(execution);
    }
    fates
}

/// All orders of the four.
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
async fn kills_in_every_order_lose_no_job_and_double_none() {
    let mut storm = Storm::gather().await;
    let orders = orders();
    assert_eq!(orders.len(), 24);
    for (round, order) in orders.into_iter().enumerate() {
        for victim in order {
            storm.kill(victim, round % 2, round).await;
            storm.a_while(Duration::from_millis(150)).await;
        }
        storm.start_again().await;
        storm.until_it_gets_on().await;
    }
    for victim in ["Server", "Agent", "Supervisor"] {
        assert_eq!(storm.kills[victim], 24, "{victim}");
    }
    storm.judge().await;
}

/// A small generator of choices; the same seed, the same choices.
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits fit") % bound
    }
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
}

/// F1, F3 of the fault model. Kills and pauses of anything, shorter and longer than a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_kills_and_pauses_lose_no_job_and_double_none() {
    let seed = from_env("CHAOS_SEED", std::process::id().into());
    let seconds = from_env("CHAOS_SECONDS", 20);
    println!("CHAOS_SEED={seed} CHAOS_SECONDS={seconds}");
    let mut choices = Choices(seed);
    let mut storm = Storm::gather().await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        let all = [Victim::Server, Victim::Agent, Victim::Supervisor, Victim::Fuse, Victim::Task];
        let (victim, worker, choice) = (all[choices.below(5)], choices.below(2), choices.below(1_000));
        if choices.below(2) == 0 {
            storm.kill(victim, worker, choice).await;
            storm.a_while(Duration::from_millis(50 * choices.below(8) as u64)).await;
        } else if let Some(pid) = storm.find(victim, worker, choice) {
            let pause = [200, 1_000, 5_000, 7_000][choices.below(4)];
            pid.pause();
            within(Duration::from_millis(pause), async || !pid.is_alive()).await;
            pid.resume();
        }
        storm.start_again().await;
    }
    storm.judge().await;
}
