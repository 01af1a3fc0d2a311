//! Services with fake workers: cost of many replicas, time until lost ones are replaced, and delay of other work during
//! a large update.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use client::ServiceFilter;
use futures::TryStreamExt as _;
use harness::{Server, until};
use model::api::{ApplyServices, Service};
use model::service::RolloutStatus;
use model::{Bytes, JobSpec, Millicores, ServiceSpec};
use serde_json::json;
use server::testing::{FakeOptions, FakeWorker, Plan};

use crate::environment;
use crate::latency::{Starts, delays, submit};
use crate::load::Load;
use crate::report::{Figure, Goal, percentile};
use crate::schedules::busy_while;

/// Number of services of the fleet, and of replicas of each.
const SERVICES: u32 = 1_000;
const REPLICAS: u32 = 10;
/// Number of replicas of the service that is updated, and of those that an update replaces at a time.
const UPDATED: u32 = 1_000;
const SURGE: u32 = 100;
/// Jobs per second beside the update.
const OTHER_WORK: u64 = 500;
/// Lease of a worker by default, and the time in which its replicas must have started elsewhere.
const LEASE_AND_SECOND: f64 = 7.0;
const PATIENCE: Duration = Duration::from_secs(300);

fn service(number: u32, replicas: u32, version: &str, min_healthy: &str) -> anyhow::Result<ServiceSpec> {
    let mut job = JobSpec::command(["/usr/local/bin/web", "--version", version]);
    job.resources.cpu = Some(Millicores(1));
    job.resources.memory = Some(Bytes(1 << 20));
    Ok(serde_json::from_value(json!({
        "name": format!("web-{number:04}"),
        "replicas": replicas,
        "job": job,
        "min_healthy": min_healthy,
        "update": { "max_surge": SURGE },
    }))?)
}

async fn apply(load: &Load, services: Vec<ServiceSpec>) -> anyhow::Result<()> {
    load.post("services/apply", serde_json::to_string(&ApplyServices { services })?).await
}

async fn services(server: &Server) -> anyhow::Result<Vec<Service>> {
    Ok(server.client().services(ServiceFilter::default()).try_collect().await?)
}

/// Waits until this number of replicas is available; fails if it takes too long.
async fn until_available(server: &Server, replicas: u32) {
    until("all replicas are available", PATIENCE, async || {
        let available: u32 =
            services(server).await.ok()?.iter().map(|service| service.counts.available).sum();
        (available == replicas).then_some(())
    })
    .await;
}

async fn worker(
    server: &Server,
    plan: impl Fn(&server::testing::Task) -> Plan + Send + Sync + 'static,
) -> anyhow::Result<FakeWorker> {
    let token = std::fs::read_to_string(server.data().join("worker-token"))?;
    let options = FakeOptions { slots: 100_000, ..FakeOptions::new(server.url(), token.trim()) };
    let worker = FakeWorker::start(options.plan(plan));
    worker.sessions(1).await;
    Ok(worker)
}

/// Measures 1,000 services with ten replicas each: memory, start, CPU share, and the loss of one of two workers.
pub(crate) async fn fleet() -> anyhow::Result<Vec<Figure>> {
    const WATCHED: Duration = Duration::from_secs(20);
    let folder = environment::folder()?;
    let mut server = environment::server(folder.path()).await?;
    let (lost, other) = (worker(&server, |_| Plan::Run).await?, worker(&server, |_| Plan::Run).await?);
    let (load, half) = (Load::of(&server)?, SERVICES / 2);
    let apply_range = async |range: Range<u32>| {
        let services =
            range.map(|number| service(number, REPLICAS, "1", "0s")).collect::<anyhow::Result<_>>()?;
        apply(&load, services).await
    };
    let memory = |server: &Server| server.pid().memory().context("the server is running");
    let empty = memory(&server)?;
    let all = SERVICES * REPLICAS;
    let begun = Instant::now();
    apply_range(0..half).await?;
    until_available(&server, all / 2).await;
    // Memory is measured on the second half, because the first half also fills caches of a fixed size.
    let filled = memory(&server)?;
    apply_range(half..SERVICES).await?;
    until_available(&server, all).await;
    let applied = begun.elapsed().as_secs_f64();
    let each = memory(&server)?.saturating_sub(filled) as f64 / f64::from(all / 2);

    server.shut_down().await;
    let begun = Instant::now();
    server.restart().await;
    let start = begun.elapsed().as_secs_f64();
    until_available(&server, all).await;
    let loaded = memory(&server)?.saturating_sub(empty) as f64 / f64::from(all);
    let busy = busy_while(server.pid(), WATCHED).await?;

    // Fake workers find a restarted server again, so the two have started nothing since.
    let (before, moved) = (other.starts(), lost.starts());
    anyhow::ensure!(moved > 0, "the first worker has no replicas");
    let begun = Instant::now();
    lost.kill();
    let first = until("a lost replica has started again", PATIENCE, async || {
        (other.starts() > before).then(|| begun.elapsed())
    })
    .await;
    let last = until("every lost replica has started again", PATIENCE, async || {
        (other.starts() >= before + moved).then(|| begun.elapsed())
    })
    .await;
    let figure = |what: String, value, unit, goal| Figure::new(what, value, unit, goal);
    let lost = format!("a worker with {moved} replicas is killed: until the");
    Ok(vec![
        figure(
            format!("{SERVICES} services with {all} replicas, until all are available"),
            applied,
            "s",
            Goal::None,
        ),
        figure("memory of a replica".into(), each, "bytes", Goal::AtMost(2_048.0)),
        figure("the same after a restart".into(), loaded, "bytes", Goal::AtMost(2_048.0)),
        figure("cold start with them".into(), start, "s", Goal::None),
        figure("a core, while nothing happens".into(), busy * 100.0, "%", Goal::AtMost(2.0)),
        figure(
            format!("{lost} first has started again"),
            first.as_secs_f64(),
            "s",
            Goal::AtMost(LEASE_AND_SECOND),
        ),
        figure(
            format!("{lost} last has started again"),
            last.as_secs_f64(),
            "s",
            Goal::AtMost(LEASE_AND_SECOND),
        ),
    ])
}

/// Measures the delay of other jobs while a service with 1,000 replicas is updated, and without an update.
pub(crate) async fn update(time: Duration) -> anyhow::Result<Vec<Figure>> {
    let folder = environment::folder()?;
    let server = environment::server(folder.path()).await?;
    let starts = Starts::default();
    let noted = starts.clone();
    let _worker = worker(&server, move |task| {
        let is_replica = noted.note(task).is_some_and(|name| name.starts_with("web-"));
        if is_replica { Plan::Run } else { Plan::Succeed }
    })
    .await?;
    let load = Load::of(&server)?;
    apply(&load, vec![service(0, UPDATED, "0", "1s")?]).await?;
    until_available(&server, UPDATED).await;

    let mut spec = JobSpec::command(["true"]);
    spec.resources.cpu = Some(Millicores(1));
    spec.resources.memory = Some(Bytes(1 << 20));
    let jobs = time.as_secs() * OTHER_WORK;
    let other = async |numbers: Range<u64>| {
        let sent = submit(&server, spec.clone(), OTHER_WORK, numbers).await?;
        let started = async || starts.has(sent.keys()).then_some(());
        until("every job has started", PATIENCE, started).await;
        delays(&sent, &starts.take())
    };
    let quiet = other(0..jobs).await?;
    let mut updates = Vec::new();
    let updating = async {
        for version in 1.. {
            let begun = Instant::now();
            apply(&load, vec![service(0, UPDATED, &version.to_string(), "1s")?]).await?;
            until("the update is completed", PATIENCE, async || {
                let services = services(&server).await.ok()?;
                let rollout = &services.first()?.rollout;
                (rollout.revision > version && rollout.status == RolloutStatus::Completed).then_some(())
            })
            .await;
            updates.push(begun.elapsed().as_secs_f64());
        }
        anyhow::Ok(())
    };
    let updated = tokio::select! {
        delays = other(jobs..2 * jobs) => delays?,
        result = updating => return result.map(|()| Vec::new()),
    };
    let mut figures = Vec::new();
    for (delays, when) in [(&quiet, "without an update"), (&updated, "during updates")] {
        for (share, name) in [(0.50, "p50"), (0.99, "p99")] {
            let what = format!("{OTHER_WORK} other jobs/s, to their start, {when}, {name}");
            figures.push(Figure::new(what, percentile(delays, share), "ms", Goal::None));
        }
    }
    let ratio = percentile(&updated, 0.99) / percentile(&quiet, 0.99);
    figures.push(Figure::new("p99 during updates, as a multiple", ratio, "", Goal::AtMost(1.1)));
    let what = format!("update of {UPDATED} replicas, {SURGE} at a time, each healthy for a second");
    if !updates.is_empty() {
        figures.push(Figure::of_turns(what, updates, "s", Goal::None));
    }
    Ok(figures)
}
