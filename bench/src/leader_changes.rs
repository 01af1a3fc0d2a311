//! Leader changes as seen from outside, with servers on the same machine and a real worker: two servers on PostgreSQL, or three
//! with the Raft store.
//!
//! - `failover`: the leader is killed. Measures the time until a job is accepted, and until one has started.
//! - `handover`: the leader is drained while jobs are always waiting. Measures the longest time without a start,
//!   compared with the longest one in an equal time before. Also measures the delay of schedules that fire meanwhile:
//!   their jobs have a higher priority than all waiting jobs.
//!
//! Both also with many jobs that cannot start: half of them have no eligible worker, and half are scheduled far in
//! the future. The leader changes only after the other server reports that it is ready.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use client::{Client, JobFilter, Timeouts};
use harness::{Connection, Server, Worker, poll_pause, until};
use model::api::{ApplySchedules, Server as Seen};
use model::schedule::OverlapPolicy;
use model::spec::{Constraint, Operator};
use model::timing::{Every, Rule, Timing};
use model::{Bytes, JobSpec, JobStatus, Millicores, ScheduleSpec, ServerId, Timestamp};

use crate::environment::{self, Shared, Store};
use crate::load::{Load, batch, usual_job};
use crate::report::{Figure, Goal, percentile};
use crate::schedules::{firings, lateness};
use crate::stamps::{Stamps, now_micros};

/// First key of these requests, different from the keys of the running jobs.
const FIRST_KEY: u64 = 1 << 40;
/// Maximum time of a leader change.
const SOON: Duration = Duration::from_secs(60);
/// Leader changes for each ten seconds of a benchmark.
const MOVES: u64 = 30;
/// The same with many jobs, which must be loaded again for each change.
const MOVES_WITH_MANY: u64 = 5;
/// Minimum number of waiting jobs at the start of a handover.
const WAITING: usize = 3_000;
/// Number of worker slots.
const SLOTS: &str = "8";
/// Time after a handover that is also measured.
const AFTERWARDS: Duration = Duration::from_millis(500);
/// Number of schedules that each fire once a second, one after the other, so that every handover overlaps a firing.
const SCHEDULES: u64 = 20;
/// Name of their jobs.
const FIRING: &str = "firing";

/// Servers that share a store, and a worker that knows all of them.
struct Site {
    _worker: Worker,
    shared: Shared,
    token: String,
    /// Declared last, so that it is dropped last: everything else is in it.
    folder: tempfile::TempDir,
}

/// Number of jobs that cannot start in one request.
const BATCH: usize = 1_000;
/// Maximum time to load these jobs.
const LONG: Duration = Duration::from_secs(300);

impl Site {
    /// Starts a site with this number of jobs that cannot start.
    async fn make(store: Store, standing: usize) -> anyhow::Result<Self> {
        let folder = environment::folder()?;
        let count = match store {
            Store::Postgres => 2,
            Store::Raft => 3,
        };
        let shared = environment::servers(folder.path(), store, count).await?;
        let [first, others @ ..] = shared.servers.as_slice() else { anyhow::bail!("expected servers") };
        let (dir, log) = (folder.path().join("worker"), folder.path().join("worker.log"));
        let settings = [("BELFRY_LOG", "warn"), ("BELFRY_WORKER__SLOTS", SLOTS)];
        let road = Connection { others: others.iter().map(Server::url).collect(), ..Connection::default() };
        let worker = Worker::start_over(first, "bench", &dir, &log, &settings, road);
        let token = first.token().context("a started server has created its token")?;
        let site = Self { _worker: worker, shared, token, folder };
        let client = site.client(0)?;
        until("the worker is connected, and all servers are listed", SOON, async || {
            let workers = client.workers_page(&Default::default(), &Default::default()).await.ok()?.items;
            let servers = client.servers().await.ok()?;
            (!workers.is_empty() && servers.len() == count).then_some(())
        })
        .await;
        site.fill(standing).await?;
        Ok(site)
    }

    async fn fill(&self, standing: usize) -> anyhow::Result<()> {
        let load = Load::new(&self.shared.servers[0].url(), self.token.clone())?;
        let mut without_worker = usual_job();
        without_worker.constraints.push(Constraint {
            label: "zone".into(),
            operator: Operator::In,
            values: vec!["nowhere".into()],
        });
        let mut far_away = usual_job();
        let now = Timestamp::from_micros(now_micros().cast_signed());
        far_away.run_at = Some(now + model::Duration::from_hours(24 * 365));
        let bodies = [batch(&without_worker, BATCH), batch(&far_away, BATCH)];
        for (number, body) in (0..standing.div_ceil(BATCH)).zip(bodies.iter().cycle()) {
            load.submit(body.clone(), FIRST_KEY + number as u64).await?;
        }
        Ok(())
    }

    /// Creates the schedules.
    async fn schedule(&self) -> anyhow::Result<()> {
        let load = Load::new(&self.shared.servers[0].url(), self.token.clone())?;
        let mut job = small(["true"]);
        job.name = FIRING.into();
        // Higher than the priority of all waiting jobs.
        job.priority = 100;
        let schedule = |number: u64| {
            let phase = model::Duration::from_millis(number * 1_000 / SCHEDULES);
            let every = Every { period: model::Duration::from_secs(1), phase };
            let timing = Timing { rules: vec![Rule::Every(every)], ..Timing::default() };
            let mut spec = ScheduleSpec::new(format!("firing-{number}"), timing, job.clone());
            spec.overlap.policy = OverlapPolicy::AllowAll;
            spec
        };
        let schedules = (0..SCHEDULES).map(schedule).collect();
        load.post("schedules/apply", serde_json::to_string(&ApplySchedules { schedules })?).await
    }

    /// Returns the delays in milliseconds of firings scheduled between the two times. Fails if one is missing.
    async fn late(&self, client: &Client, from: u64, to: u64) -> anyhow::Result<Vec<f64>> {
        let [from, to] = [from, to].map(|micros| Timestamp::from_micros(micros.cast_signed()));
        let due = to.since(from).as_millis() * SCHEDULES / 1_000;
        let filter = JobFilter {
            name: Some(FIRING.into()),
            created_after: Some(from),
            created_before: Some(to + model::Duration::from_secs(5)),
            ..JobFilter::default()
        };
        let found = until("all scheduled jobs have started", SOON, async || {
            let mut found = firings(client, &filter).await.ok()?;
            found.retain(|(at, _)| (from..to).contains(at));
            (found.len() as u64 >= due).then_some(found)
        })
        .await;
        Ok(lateness(&found))
    }

    /// Waits until all standbys are ready to take over immediately.
    async fn until_ready(&self, leader: usize) -> anyhow::Result<()> {
        for server in (0..self.shared.servers.len()).filter(|server| *server != leader) {
            let load = Load::new(&self.shared.servers[server].url(), self.token.clone())?;
            until("another server is ready to take over", LONG, async || {
                let metrics = load.metrics().await.ok()?;
                metrics.lines().any(|line| line == "belfry_standby_ready 1").then_some(())
            })
            .await;
        }
        Ok(())
    }

    /// Returns another server.
    fn other(&self, server: usize) -> usize {
        (server + 1) % self.shared.servers.len()
    }

    /// Returns a client without retry delay.
    fn client(&self, server: usize) -> anyhow::Result<Client> {
        let patience = Timeouts { retry_for: Duration::ZERO, ..Timeouts::default() };
        Ok(Client::with_patience(&self.shared.servers[server].url(), Some(&self.token), patience)?)
    }

    /// Returns the index and the id of the leader.
    async fn leader(&self) -> anyhow::Result<(usize, ServerId)> {
        let urls: Vec<_> = self.shared.servers.iter().map(Server::url).collect();
        let clients: Vec<_> =
            (0..urls.len()).map(|server| self.client(server)).collect::<anyhow::Result<_>>()?;
        Ok(until("a server leads", SOON, async || {
            for client in &clients {
                let Ok(servers) = client.servers().await else { continue };
                let Some(leader) = servers.into_iter().find(|server| server.leader) else { continue };
                let number = urls.iter().position(|url| Some(url.as_str()) == leader.url.as_deref())?;
                return Some((number, leader.id));
            }
            None
        })
        .await)
    }
}

fn small<S: Into<String>>(command: impl IntoIterator<Item = S>) -> JobSpec {
    let mut spec = JobSpec::command(command);
    spec.resources.cpu = Some(Millicores(10));
    spec.resources.memory = Some(Bytes(1 << 20));
    spec
}

/// Returns the number of leader changes in this time.
fn moves(time: Duration, standing: usize) -> u64 {
    let moves = if standing == 0 { MOVES } else { MOVES_WITH_MANY };
    (time.as_secs() * moves / 10).max(1)
}

pub(crate) async fn failover(time: Duration, store: Store, standing: usize) -> anyhow::Result<Vec<Figure>> {
    let mut site = Site::make(store, standing).await?;
    let count = site.shared.servers.len();
    let (mut accepted, mut started) = (Vec::new(), Vec::new());
    for _ in 0..moves(time, standing) {
        let (leader, dead) = site.leader().await?;
        let next = site.client(site.other(leader))?;
        site.until_ready(leader).await?;
        site.shared.servers[leader].kill().await;
        let killed = Instant::now();
        let job = until("a job is accepted", SOON, async || next.submit(&small(["true"])).await.ok()).await;
        accepted.push(killed.elapsed().as_secs_f64());
        until("the job has started", SOON, async || {
            let job = next.job(job.id).await.ok()?;
            (job.status == JobStatus::Succeeded).then_some(())
        })
        .await;
        started.push(killed.elapsed().as_secs_f64());
        site.shared.servers[leader].spawn();
        let url = site.shared.servers[leader].url();
        until("the killed server has restarted, and its old entry has expired", SOON, async || {
            let servers = next.servers().await.ok()?;
            let is_back = |seen: &Seen| seen.url.as_deref() == Some(&url) && seen.id != dead;
            (servers.len() == count && servers.iter().any(is_back)).then_some(())
        })
        .await;
    }
    accepted.sort_by(f64::total_cmp);
    started.sort_by(f64::total_cmp);
    let kills = started.len();
    let (usual, slowest) = match store {
        Store::Postgres => (3.0, 6.0),
        Store::Raft => (1.5, 4.0),
    };
    let figure = |what: String, value, goal| Figure::new(what, value, "s", goal);
    Ok(vec![
        figure(format!("{kills} kills: a job accepted, p50"), percentile(&accepted, 0.5), Goal::None),
        figure("the same, p99".into(), percentile(&accepted, 0.99), Goal::None),
        figure("started and ended, p50".into(), percentile(&started, 0.5), Goal::AtMost(usual)),
        figure("the same, p99".into(), percentile(&started, 0.99), Goal::AtMost(slowest)),
    ])
}

pub(crate) async fn handover(time: Duration, store: Store, standing: usize) -> anyhow::Result<Vec<Figure>> {
    let site = Site::make(store, standing).await?;
    let stamps = Stamps::make(site.folder.path())?;
    let body = batch(&small(stamps.command()), 100);
    let (mut key, mut gaps, mut quiet, mut late) = (0_u64, Vec::new(), Vec::new(), Vec::new());
    site.schedule().await?;
    for _ in 0..moves(time, standing) {
        let (leader, id) = site.leader().await?;
        site.until_ready(leader).await?;
        let load = Load::new(&site.shared.servers[leader].url(), site.token.clone())?;
        while usize::try_from(key)? * 100 < stamps.count()? + WAITING {
            load.submit(body.clone(), key).await?;
            key += 1;
        }
        let before = now_micros();
        let begun = Instant::now();
        let other = site.client(site.other(leader))?;
        other.drain_server(id).await?;
        until("the other server leads", SOON, async || {
            let found = other.servers().await.ok()?;
            found.iter().any(|server| server.leader && server.id != id).then_some(())
        })
        .await;
        let moved = begun.elapsed();
        while begun.elapsed() < moved + AFTERWARDS {
            poll_pause().await;
        }
        let after = now_micros();
        let mut times: Vec<_> = stamps.read()?.into_iter().map(|(_, at)| at).collect();
        times.sort_unstable();
        gaps.push(longest(&times, before, after));
        quiet.push(longest(&times, before.saturating_sub(after - before), before));
        late.extend(site.late(&other, before, after).await?);
        other.undrain_server(id).await?;
    }
    let moves = gaps.len();
    gaps.sort_by(f64::total_cmp);
    quiet.sort_by(f64::total_cmp);
    late.sort_by(f64::total_cmp);
    let figure = |what: String, value, goal| Figure::new(what, value, "ms", goal);
    Ok(vec![
        figure(format!("{moves} hand-overs: nothing started, p50"), percentile(&gaps, 0.5), Goal::None),
        figure("the same, p99".into(), percentile(&gaps, 0.99), Goal::AtMost(300.0)),
        figure("as long before it, p50".into(), percentile(&quiet, 0.5), Goal::None),
        figure(
            format!("{} firings meanwhile: from their time to their start, slowest", late.len()),
            percentile(&late, 1.0),
            Goal::AtMost(1_000.0),
        ),
    ])
}

/// Returns the longest time between consecutive starts, in milliseconds.
fn longest(times: &[u64], from: u64, until: u64) -> f64 {
    let within: Vec<_> = times.iter().filter(|at| (from..until).contains(*at)).collect();
    let apart = within.windows(2).map(|pair| pair[1] - pair[0]);
    apart.max().unwrap_or(0) as f64 / 1_000.0
}
