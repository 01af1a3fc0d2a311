//! Servers that share a PostgreSQL database: one leads, the others are standbys and take over.
//!
//! A test starts several servers on one database, with a shared folder for logs and artifacts, and a worker
//! that is configured with one of them. It then kills or drains the leader, while jobs and schedules run.
//!
//! # Invariants
//! - No accepted job is lost, no running task is started a second time, and a schedule fires at each
//!   scheduled time.
//! - Every server accepts every request.
//! - A standby that has followed the rows reads only what changed when it takes over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use client::{
    AlertFilter, Client, JobFilter, LedgerFilter, LogQuery, LogSource, NotificationFilter, ScheduleRef,
    Timeouts, WorkerFilter,
};
use futures::TryStreamExt as _;
use harness::{Server, Site, until};
use model::alert::{ChannelSpec, Language, SecretText, Target};
use model::api::{MonitorStatus, NotificationStatus};
use model::firing::FiringOutcome;
use model::schedule::{MissedPolicy, OverlapPolicy};
use model::spec::Delivery;
use model::timing::{Every, Rule, Timing};
use model::why::{OpenEnum, Reason};
use model::{Cause, JobSpec, JobStatus, ScheduleSpec, Timestamp};
use store::suite::cluster::Cluster;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

const SOON: Duration = Duration::from_secs(60);

/// Settings of servers on one database.
struct Settings {
    url: String,
}

impl Settings {
    fn variables(&self) -> [(&str, &str); 2] {
        [
            ("BELFRY_SERVER__STORE", &self.url),
            // The test database does not fsync.
            ("BELFRY_SERVER__STORE_ALLOW_UNSAFE", "true"),
        ]
    }
}

/// Returns a client of a server without its own token: the tokens of the first server are in the database.
fn client_of(server: &Server, token_of: &Server) -> Client {
    let patience = Timeouts { retry_for: SOON, ..Timeouts::default() };
    Client::with_patience(&server.url(), token_of.token().as_deref(), patience).unwrap()
}

/// D5, D7, G5. The leader is killed repeatedly. No accepted job is lost, a running task is not run twice, and a
/// schedule fires at every scheduled time.
#[tokio::test]
async fn a_standby_continues_the_work_of_a_killed_leader() {
    let database = Cluster::shared().database();
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { url: database.url() };

    let mut site = Site::server_only(&settings.variables()).await;
    let (data, log) = (folder.path().join("second"), folder.path().join("second.log"));
    let mut second = Server::start_standby(&data, &log, &settings.variables()).await;
    site.add_worker_that_knows(&second).await;
    let (one, two) = (site.client(), client_of(&second, &site.server));

    let timing = Timing {
        rules: vec![Rule::Every(Every {
            period: model::Duration::from_secs(1),
            phase: model::Duration::ZERO,
        })],
        ..Timing::default()
    };
    let mut schedule = ScheduleSpec::new("every-second", timing, JobSpec::command(["true"]));
    schedule.overlap.policy = OverlapPolicy::AllowAll;
    schedule.missed.policy = MissedPolicy::FireAll;
    let schedule = one.put_schedule(&schedule, None).await.unwrap().id;
    let mut long = JobSpec::command(["sh", "-c", "echo begun; sleep 20; echo done"]);
    long.delivery = Delivery::ExactlyOnce;
    let long = site.submit(&long).await;
    site.until_status(long, JobStatus::Running).await;

    // A write that one server acknowledged can be read from a standby.
    let accepted = site.submit(&JobSpec::command(["true"])).await;
    assert_eq!(two.job(accepted).await.unwrap().id, accepted);

    let mut submitted = vec![long, accepted];
    for round in 0..2 {
        let (killed, next) = if round % 2 == 0 { (&mut site.server, &two) } else { (&mut second, &one) };
        killed.kill().await;
        submitted.push(next.submit(&JobSpec::command(["true"])).await.unwrap().id);
        killed.spawn();
    }
    for job in submitted {
        until("the job succeeded", SOON, async || {
            let job = two.job(job).await.ok()?;
            (job.status == JobStatus::Succeeded).then_some(())
        })
        .await;
    }
    let long = two.job(long).await.unwrap();
    assert_eq!(long.executions, 1, "its worker moved to the other server with it");
    until("its log is complete, although the server that received its start is gone", SOON, async || {
        let log = two.logs(LogSource::Job(long.id, None), &LogQuery::default()).await.ok()?;
        let text: String = log.items.into_iter().map(|entry| entry.text).collect();
        (log.complete && text == "begun\ndone\n").then_some(())
    })
    .await;
    let steps = two.job_events(long.id).await.unwrap();
    assert!(steps.iter().all(|step| step.cause != Cause::WorkerLost), "{steps:?}");

    two.pause_schedule(&ScheduleRef::from(schedule), None).await.unwrap();
    let lines = two.ledger(ScheduleRef::from(schedule), LedgerFilter::default());
    let mut lines: Vec<_> = lines.try_collect().await.unwrap();
    lines.retain(|line| matches!(line.outcome, FiringOutcome::Fired | FiringOutcome::FiredLate));
    let mut seconds: Vec<_> = lines.iter().map(|line| line.scheduled_for.as_millis() / 1_000).collect();
    seconds.sort_unstable();
    assert!(seconds.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seconds:?}");
    let filter = JobFilter { schedule: Some(schedule), ..JobFilter::default() };
    let runs: Vec<_> = two.jobs(filter).try_collect().await.unwrap();
    assert_eq!(runs.len(), lines.len(), "one run for each second");
}

/// Accepts requests of a webhook, and returns the ID of each notification.
async fn receive(listener: TcpListener, received: Arc<Mutex<Vec<String>>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let received = Arc::clone(&received);
        tokio::spawn(async move {
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(id) = line.strip_prefix("webhook-id: ") {
                    received.lock().unwrap().push(id.to_owned());
                }
                if line.is_empty() {
                    let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
                    let _closed = write.write_all(answer).await;
                    return;
                }
            }
        });
    }
}

/// H3, D6. The leader is killed repeatedly while jobs fail: each failure opens exactly one alert, and the messages of a former
/// leader are delivered by the next one, which decrypts the secrets of their channel.
#[tokio::test]
async fn no_alert_is_lost_or_doubled_when_the_leader_is_killed() {
    let database = Cluster::shared().database();
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { url: database.url() };
    let mut variables = settings.variables().to_vec();
    variables.push(("BELFRY_SERVER__PRIVATE_NETWORKS", "127.0.0.0/8"));
    let mut site = Site::server_only(&variables).await;
    let (data, log) = (folder.path().join("second"), folder.path().join("second.log"));
    let mut second = Server::start_standby(&data, &log, &variables).await;
    site.add_worker_that_knows(&second).await;
    let (one, two) = (site.client(), client_of(&second, &site.server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let received = Arc::default();
    tokio::spawn(receive(listener, Arc::clone(&received)));
    let secret = Some(SecretText::new("a-long-random-secret"));
    let to = Target::Webhook { url, secret, headers: BTreeMap::new() };
    let (name, namespace) = ("hook".to_owned(), "default".to_owned());
    let channel = ChannelSpec { name, namespace, description: None, language: Language::English, to };
    one.put_channel(&channel).await.unwrap();
    let rule = r#"{"name": "failed", "when": {"job_failed": {}}, "notify": ["hook"]}"#;
    one.put_alert_rule(&serde_json::from_str(rule).unwrap()).await.unwrap();

    let mut submitted = Vec::new();
    for round in 0..4 {
        for number in 0..5 {
            let spec = JobSpec { name: format!("job-{round}-{number}"), ..JobSpec::command(["false"]) };
            submitted.push(two.submit(&spec).await.unwrap().id);
        }
        let killed = if round % 2 == 0 { &mut site.server } else { &mut second };
        killed.kill().await;
        killed.spawn();
    }
    for job in &submitted {
        until("the job failed", SOON, async || {
            (two.job(*job).await.ok()?.status == JobStatus::Failed).then_some(())
        })
        .await;
    }
    let filter = AlertFilter { limit: Some(1_000), ..AlertFilter::default() };
    let alerts = until("each failure has opened an alert", SOON, async || {
        let alerts = two.alerts(&filter).await.ok()?.items;
        (alerts.len() >= submitted.len()).then_some(alerts)
    })
    .await;
    let mut jobs: Vec<_> = alerts.iter().flat_map(|alert| alert.jobs.clone()).collect();
    jobs.sort_unstable();
    submitted.sort_unstable();
    assert_eq!(jobs, submitted);
    assert!(alerts.iter().all(|alert| alert.count == 1), "{alerts:?}");
    until("the notifications are delivered", SOON, async || {
        let sent = two.notifications(&NotificationFilter::default()).await.ok()?.items;
        let is_delivered = sent.iter().all(|each| each.status == NotificationStatus::Delivered);
        let received = received.lock().unwrap().clone();
        let has = |id: u64| received.contains(&format!("belfry-{id}"));
        (!sent.is_empty() && is_delivered && sent.iter().all(|each| has(each.id))).then_some(())
    })
    .await;
}

/// Sends a request without a token, as a job does, and returns the status of the response; `None` without a response.
async fn ping(url: &str) -> Option<u16> {
    let rest = url.strip_prefix("http://")?;
    let (host, path) = rest.split_at(rest.find('/')?);
    let mut stream = TcpStream::connect(host).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let line = BufReader::new(stream).lines().next_line().await.ok()??;
    line.split(' ').nth(1)?.parse().ok()
}

/// H3, D6. The leader is killed repeatedly while a job pings any of the servers: no answered ping is lost, and the last one
/// decides the status and the alert.
#[tokio::test]
async fn no_answered_ping_is_lost_when_the_leader_is_killed() {
    let database = Cluster::shared().database();
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { url: database.url() };
    let variables = settings.variables();
    let mut site = Site::server_only(&variables).await;
    let (data, log) = (folder.path().join("second"), folder.path().join("second.log"));
    let mut second = Server::start_standby(&data, &log, &variables).await;
    let (one, two) = (site.client(), client_of(&second, &site.server));
    let spec = r#"{"name": "backup", "timing": {"every": "1d"}}"#;
    let monitor = one.put_monitor(&serde_json::from_str(spec).unwrap()).await.unwrap();
    let rule = r#"{"name": "down", "when": {"monitor_down": {}}}"#;
    one.put_alert_rule(&serde_json::from_str(rule).unwrap()).await.unwrap();
    let path = monitor.ping_url.unwrap();
    // Without `server.public_url`, it is a path.
    assert!(path.starts_with("/ping/"), "{path}");

    for round in 0..4_u8 {
        let asked = if round % 2 == 0 { second.url() } else { site.server.url() };
        for code in [2 * round + 1, 2 * round + 2] {
            until("the ping is answered", SOON, async || {
                (ping(&format!("{asked}{path}/{code}")).await == Some(200)).then_some(())
            })
            .await;
        }
        let killed = if round % 2 == 0 { &mut site.server } else { &mut second };
        killed.kill().await;
        killed.spawn();
    }
    let monitor = two.monitor("default", "backup").await.unwrap();
    let mut codes: Vec<_> = monitor.pings.iter().rev().filter_map(|ping| ping.exit_code).collect();
    // A ping whose answer was lost is repeated.
    codes.dedup();
    assert_eq!(codes, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(monitor.reason.as_deref(), Some("the job ended with exit code 8"));
    let alerts = two.alerts(&AlertFilter::default()).await.unwrap();
    assert_eq!((alerts.open, alerts.items[0].summary.as_str()), (1, "Monitor `backup` is down"));
    assert_eq!(two.monitor("default", "backup").await.unwrap().ping_url, Some(path.clone()));
    until("the success is answered", SOON, async || {
        (ping(&format!("{}{path}", second.url())).await == Some(200)).then_some(())
    })
    .await;
    assert_eq!(two.monitor("default", "backup").await.unwrap().status, MonitorStatus::Up);
    assert_eq!(two.alerts(&AlertFilter::default()).await.unwrap().open, 0);
}

/// D5, D8. A standby accepts every request, and a planned leader change is hardly noticeable.
#[tokio::test]
async fn every_server_accepts_requests_and_the_leader_can_be_drained() {
    let database = Cluster::shared().database();
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { url: database.url() };
    let mut site = Site::server_only(&settings.variables()).await;
    site.add_worker().await;
    let (data, log) = (folder.path().join("second"), folder.path().join("second.log"));
    let second = Server::start_standby(&data, &log, &settings.variables()).await;
    let two = client_of(&second, &site.server);
    let [first_id, second_id] = until("both servers are seen", SOON, async || {
        let servers = two.servers().await.ok()?;
        let ids: Vec<_> = servers.iter().map(|server| server.id).collect();
        ids.try_into().ok()
    })
    .await;

    let job = two.submit(&JobSpec::command(["sh", "-c", "echo heard; exec sleep 600"])).await.unwrap().id;
    site.until_status(job, JobStatus::Running).await;
    until("the other server shows the log", SOON, async || {
        let page = two.logs(LogSource::Job(job, None), &LogQuery::default()).await.ok()?;
        page.items.iter().any(|entry| entry.text.contains("heard")).then_some(())
    })
    .await;
    // A leader publishes what workers hold a few times a second, after the status of the job.
    until("the other server shows the slot in use", SOON, async || {
        let workers: Vec<_> = two.workers(WorkerFilter::default()).try_collect().await.ok()?;
        (workers.first()?.allocated.executions == 1).then_some(())
    })
    .await;

    assert!(two.server(first_id).await.unwrap().leader);
    two.drain_server(first_id).await.unwrap();
    let mut submitted = Vec::new();
    // Each of these is accepted, whichever server leads at that time.
    while !two.server(second_id).await.unwrap().leader {
        submitted.push(site.submit(&JobSpec::command(["true"])).await);
    }
    for job in submitted {
        site.until_status(job, JobStatus::Succeeded).await;
    }
    let first = site.client().server(first_id).await.unwrap();
    assert!(first.draining && !first.leader && first.shards == 0 && first.responder);

    // The worker was configured with the first server only. Its task has continued.
    two.cancel_job(job, None).await.unwrap();
    let job = site.until_status(job, JobStatus::Cancelled).await;
    assert_eq!(job.executions, 1);
    let refused = two.drain_server(second_id).await.unwrap_err();
    assert_eq!(refused.code(), Some("no_other_server"));
    site.client().undrain_server(first_id).await.unwrap();
    two.drain_server(second_id).await.unwrap();
    site.server.until_ready().await;
}

/// G5. A standby reads the rows in advance and follows their changes, so that a takeover reads no unchanged row.
#[tokio::test]
async fn a_standby_takes_over_with_the_rows_that_it_has_followed() {
    let database = Cluster::shared().database();
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { url: database.url() };
    let mut site = Site::server_only(&settings.variables()).await;
    let one = site.client();
    let mut waits = JobSpec::command(["true"]);
    waits.idempotency_key = Some("once".into());
    let waits = one.submit(&waits).await.unwrap().id;
    let (cancelled, updated) = (site.submit(&JobSpec::command(["true"])).await, site.submit(&later()).await);
    let (data, log) = (folder.path().join("second"), folder.path().join("second.log"));
    let second = Server::start_standby(&data, &log, &settings.variables()).await;
    let two = client_of(&second, &site.server);
    let metrics = async |server: &Server| {
        let url = server.url();
        let ask = format!("curl -fsS -H \"Authorization: Bearer $BELFRY_TOKEN\" {url}/metrics");
        site.script(&site.path(""), &ask).await.success()
    };
    until("the other server is ready", SOON, async || {
        metrics(&second).await.contains("belfry_standby_ready 1").then_some(())
    })
    .await;
    let (leads, stands_by) = (metrics(&site.server).await, metrics(&second).await);
    assert!(
        leads.contains("belfry_leader 1") && !leads.contains("belfry_jobs{status=\"waiting\"} 0"),
        "{leads}"
    );
    assert!(stands_by.contains("belfry_leader 0"), "{stands_by}");

    // Rows that the standby has already read are changed.
    one.cancel_job(cancelled, None).await.unwrap();
    one.update_job(updated, &serde_json::json!({ "run_at": null }), None).await.unwrap();
    let new = site.submit(&JobSpec::command(["true"])).await;
    let mut again = JobSpec::command(["true"]);
    again.idempotency_key = Some("followed".into());
    let keyed = one.submit(&again).await.unwrap().id;

    let leader = one.servers().await.unwrap().into_iter().find(|server| server.leader).unwrap();
    two.drain_server(leader.id).await.unwrap();
    until("the other server leads", SOON, async || {
        two.servers()
            .await
            .ok()?
            .into_iter()
            .any(|server| server.leader && server.id != leader.id)
            .then_some(())
    })
    .await;
    // The server is listed as the leader shortly before it has taken over.
    assert_eq!(two.submit(&again).await.unwrap().id, keyed, "the standby also follows keys");
    let seen = metrics(&second).await;
    assert!(seen.contains("belfry_takeovers_total{rows=\"followed\"} 1"), "{seen}");
    assert!(seen.contains("belfry_leader 1"), "{seen}");
    let former = metrics(&site.server).await;
    assert!(
        former.contains("belfry_leader 0") && former.contains("belfry_jobs{status=\"waiting\"} 0"),
        "{former}"
    );
    site.add_worker_that_knows(&second).await;
    for job in [waits, updated, new, keyed] {
        site.until_status(job, JobStatus::Succeeded).await;
    }
    assert_eq!(two.job(cancelled).await.unwrap().status, JobStatus::Cancelled);
}

/// A job that is scheduled far in the future.
fn later() -> JobSpec {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let run_at = Timestamp::from_millis(i64::try_from(now).unwrap()) + model::Duration::from_hours(24 * 365);
    JobSpec { run_at: Some(run_at), ..JobSpec::command(["true"]) }
}

/// G5, D7. The timeline of the database changes, as after a failover that lost commits. Jobs that may run twice
/// continue immediately; others wait for one lease.
#[tokio::test]
async fn a_database_that_may_have_lost_commits_causes_no_duplicates() {
    let database = Cluster::shared().database();
    let settings = Settings { url: database.url() };
    let mut site = Site::server_only(&settings.variables()).await;
    site.add_worker().await;
    let ran = site.submit(&JobSpec::command(["true"])).await;
    site.until_status(ran, JobStatus::Succeeded).await;

    database.execute("UPDATE shards SET timeline = '0badf00d'");
    let mut once = JobSpec::command(["true"]);
    once.delivery = Delivery::ExactlyOnce;
    let once = site.submit(&once).await;
    let again = site.submit(&JobSpec::command(["true"])).await;
    site.until_status(again, JobStatus::Succeeded).await;
    let why = site.client().why(once).await.unwrap();
    assert!(matches!(why.reasons[..], [OpenEnum::Known(Reason::Reconciling { .. })]), "{why:?}");
    site.until_status(once, JobStatus::Succeeded).await;
    until("the store has recorded the reconciliation", SOON, async || {
        database.execute("SELECT shard FROM shards WHERE tail_lost").is_empty().then_some(())
    })
    .await;
}
