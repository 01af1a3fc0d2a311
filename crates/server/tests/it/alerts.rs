//! Alerts of a whole server: from a failed job to a message at a service, also across restarts and failures of the store.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use model::{JobSpec, JobStatus};
use serde_json::{Value, json};
use server::ServerConfig;
use server::networks::Networks;
use server::testing::Plan;
use store::faulty::{Fault, Operation};
use store::{Alerts as _, StoreError};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::harness::{DEADLINE, Server, call, get, job, put, soon, submit};

/// HTTP service that records the bodies of requests, with their `webhook-id`.
#[derive(Clone)]
struct Service {
    url: String,
    status: Arc<AtomicU16>,
    received: Arc<Mutex<Vec<(String, Value)>>>,
    changed: Arc<Notify>,
}

impl Service {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service = Self {
            url: format!("http://{}/hook", listener.local_addr().unwrap()),
            status: Arc::new(AtomicU16::new(200)),
            received: Arc::default(),
            changed: Arc::default(),
        };
        let app = Router::new().route("/hook", post(receive)).with_state(service.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        service
    }

    fn answer(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// Waits for a number of requests, and returns type, subject and ID of each.
    async fn messages(&self, count: usize) -> Vec<String> {
        let received = async {
            loop {
                let changed = self.changed.notified();
                let all = self.received.lock().unwrap().clone();
                if all.len() >= count {
                    return all;
                }
                changed.await;
            }
        };
        let all = soon(&format!("{count} messages"), received).await;
        let shown = |(id, body): &(String, Value)| {
            let (kind, data) = (body["type"].as_str().unwrap(), &body["data"]);
            format!(
                "{id} {} {}",
                kind.trim_start_matches("belfry.alert."),
                data["items"][0]["subject"].as_str().unwrap()
            )
        };
        all.iter().map(shown).collect()
    }
}

async fn receive(State(service): State<Service>, headers: HeaderMap, body: String) -> StatusCode {
    let id = headers["webhook-id"].to_str().unwrap().to_owned();
    service.received.lock().unwrap().push((id, serde_json::from_str(&body).unwrap()));
    service.changed.notify_waiters();
    StatusCode::from_u16(service.status.load(Ordering::Relaxed)).unwrap()
}

fn reachable(config: &mut ServerConfig) {
    config.private_networks = Networks::loopback();
}

/// Creates a channel to the service, and a rule about failed jobs.
async fn set_up(server: &Server, service: &Service) {
    let to = json!({"webhook": {"url": service.url, "secret": "a-long-random-secret"}});
    put(server, "channels/hook", json!({"name": "hook", "to": to})).await;
    let rule = json!({"name": "failed", "when": {"job_failed": {}}, "notify": ["hook"]});
    put(server, "alert-rules/failed", rule).await;
}

fn named(name: &str) -> JobSpec {
    JobSpec { name: name.to_owned(), ..job() }
}

/// Runs a job to its end with a worker that fails jobs unless their name is `ok`.
async fn run(server: &Server, name: &str, to: JobStatus) {
    let plan = move |_: &_| if to == JobStatus::Succeeded { Plan::Succeed } else { Plan::Exit(3) };
    let worker = server.worker(server.fake().plan(plan)).await;
    let made = submit(server.node(), named(name), None).await.unwrap();
    server.until_status(made.job, to).await;
    drop(worker);
}

/// H3.
#[tokio::test]
async fn a_failed_job_is_notified_and_its_recovery_after_a_restart_too() {
    let service = Service::start().await;
    let server = Server::start_with(reachable).await;
    set_up(&server, &service).await;
    run(&server, "payroll", JobStatus::Failed).await;
    assert_eq!(service.messages(1).await, ["belfry-2 firing payroll"]);
    let alerts = get(&server, "alerts").await;
    assert_eq!(
        (&alerts["open"], &alerts["items"][0]["summary"]),
        (&json!(1), &json!("Job `payroll` failed"))
    );
    let dir = server.shutdown().await;
    let server = Server::start_in(dir, reachable).await;
    assert_eq!(get(&server, "alerts").await["open"], 1);
    run(&server, "payroll", JobStatus::Succeeded).await;
    let resolved = async {
        while get(&server, "alerts").await["open"] != 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    soon("the resolution", resolved).await;
    assert_eq!(get(&server, "alerts?status=resolved").await["items"][0]["resolved_by"], "recovered");
    // Its message waits for the interval of messages of the rule, and nothing was sent twice.
    assert_eq!(service.messages(1).await.len(), 1);
    server.shutdown().await;
}

/// H3, D7. What happened while the service did not accept messages is delivered later, with the same idempotency key.
#[tokio::test]
async fn a_notification_that_was_not_accepted_is_delivered_by_the_next_server() {
    let service = Service::start().await;
    service.answer(503);
    let server = Server::start_with(reachable).await;
    set_up(&server, &service).await;
    run(&server, "payroll", JobStatus::Failed).await;
    assert_eq!(service.messages(1).await, ["belfry-2 firing payroll"]);
    let dir = server.shutdown().await;
    service.answer(200);
    let server = Server::start_in(dir, reachable).await;
    let messages = service.messages(2).await;
    assert_eq!(messages, ["belfry-2 firing payroll", "belfry-2 firing payroll"]);
    let delivered = async {
        while get(&server, "notifications").await["items"][0]["status"] != "delivered" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    soon("the delivery to be recorded", delivered).await;
    assert_eq!(get(&server, "channels/hook").await["error"], Value::Null);
    server.shutdown().await;
}

/// H3, D7. The store fails when the alert is written; the alert is neither lost nor doubled.
#[tokio::test]
async fn an_alert_survives_failures_of_the_store() {
    for fault in [Fault::Before, Fault::After] {
        let service = Service::start().await;
        let server = Server::start_with(reachable).await;
        set_up(&server, &service).await;
        let shown = format!("{fault:?}");
        server.store.inject_next(Operation::ChangeAlerts, fault);
        run(&server, "payroll", JobStatus::Failed).await;
        assert_eq!(service.messages(1).await, ["belfry-2 firing payroll"], "{shown}");
        assert_eq!(get(&server, "alerts").await["items"][0]["count"], 1, "{shown}");
        server.shutdown().await;
    }
}

/// D6. Another server wrote: the rows are loaded again, and nothing is lost.
#[tokio::test]
async fn a_writer_that_was_overtaken_loads_the_rows_again() {
    let service = Service::start().await;
    let server = Server::start_with(reachable).await;
    set_up(&server, &service).await;
    let version = server.store.alerts().await.unwrap().version;
    let bumped = server.store.change_alerts(version, version + 1, &[]).await;
    assert!(matches!(bumped, Ok(true) | Err(StoreError::Unavailable { .. })), "{bumped:?}");
    run(&server, "payroll", JobStatus::Failed).await;
    assert_eq!(service.messages(1).await, ["belfry-2 firing payroll"]);
    server.shutdown().await;
}

/// A user chooses the URL, so it must not reach what only the server can reach.
#[tokio::test]
async fn a_private_address_is_not_reached_by_default() {
    let service = Service::start().await;
    let server = Server::start().await;
    set_up(&server, &service).await;
    let (_, test) = call(&server, reqwest::Method::POST, "channels/hook/test", &Value::Null).await;
    assert_eq!(test["delivered"], false);
    let error = test["error"].as_str().unwrap();
    assert!(
        error.contains("does not have a public address") && error.contains("server.private_networks"),
        "{error}"
    );
    assert_eq!(service.received.lock().unwrap().len(), 0);
    server.shutdown().await;
}

/// Secrets never leave the server, and are not in its files.
#[tokio::test]
async fn secrets_of_channels_are_hidden_and_encrypted() {
    let service = Service::start().await;
    let server = Server::start_with(reachable).await;
    set_up(&server, &service).await;
    let shown = get(&server, "channels").await.to_string() + &get(&server, "audit").await.to_string();
    assert!(shown.contains("******") && !shown.contains("a-long-random-secret"), "{shown}");
    let rows = server.store.alerts().await.unwrap().rows;
    assert!(rows.iter().all(|row| !row.body.contains("a-long-random-secret")), "{rows:?}");
    // A kept secret still signs.
    let to = json!({"webhook": {"url": service.url, "secret": "******"}});
    put(&server, "channels/hook", json!({"name": "hook", "description": "x", "to": to})).await;
    let (_, test) = call(&server, reqwest::Method::POST, "channels/hook/test", &Value::Null).await;
    assert_eq!(test["delivered"], true);
    let to = json!({"webhook": {"url": "http://127.0.0.1:9/other", "secret": "******"}});
    let body = json!({"name": "hook", "to": to});
    let (status, refused) = call(&server, reqwest::Method::PUT, "channels/hook", &body).await;
    assert_eq!((status, &refused["errors"][0]["path"]), (422, &json!("to.webhook.secret")));
    server.shutdown().await;
}

/// Accepts one e-mail, and returns what it contains.
async fn receive_mail(listener: TcpListener) -> String {
    let (stream, _) = listener.accept().await.unwrap();
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    write.write_all(b"220 mail ESMTP\r\n").await.unwrap();
    let (mut mail, mut in_data) = (String::new(), false);
    while let Some(line) = lines.next_line().await.unwrap() {
        if in_data && line != "." {
            mail.push_str(&line);
            mail.push('\n');
            continue;
        }
        in_data = line == "DATA";
        let answer: &[u8] = match line.split([' ', ':']).next().unwrap_or_default() {
            "EHLO" => b"250-mail\r\n250 8BITMIME\r\n",
            "DATA" => b"354 go on\r\n",
            "QUIT" => b"221 bye\r\n",
            _ => b"250 ok\r\n",
        };
        write.write_all(answer).await.unwrap();
        if line == "." || line == "QUIT" {
            break;
        }
    }
    mail
}

#[tokio::test]
async fn an_e_mail_reaches_an_smtp_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server_address = format!("smtp://{}", listener.local_addr().unwrap());
    let server = Server::start_with(reachable).await;
    let to = json!({"email": {"to": ["ops@example.com"], "from": "Belfry <belfry@example.com>", "server": server_address}});
    put(&server, "channels/mail", json!({"name": "mail", "to": to})).await;
    let mail = tokio::spawn(tokio::time::timeout(DEADLINE, receive_mail(listener)));
    let (_, test) = call(&server, reqwest::Method::POST, "channels/mail/test", &Value::Null).await;
    assert_eq!(test, json!({"delivered": true}));
    let mail = mail.await.unwrap().unwrap();
    assert!(mail.contains("To: ops@example.com") && mail.contains("multipart/alternative"), "{mail}");
    server.shutdown().await;
}

/// H3, D6. A job that the server does not run reports a failure, and its recovery after a restart.
#[tokio::test]
async fn a_monitor_that_goes_down_and_recovers_is_notified() {
    let service = Service::start().await;
    let server = Server::start_with(reachable).await;
    set_up(&server, &service).await;
    put(&server, "monitors/backup", json!({"name": "backup", "timing": {"every": "1d"}})).await;
    let rule = json!({"name": "down", "when": {"monitor_down": {}}, "notify": ["hook"]});
    put(&server, "alert-rules/down", rule).await;
    let url = get(&server, "monitors/backup").await["ping_url"].as_str().unwrap().to_owned();
    let fail = reqwest::get(format!("{}{url}/fail", server.url())).await.unwrap();
    assert_eq!((fail.status().as_u16(), fail.text().await.unwrap().as_str()), (200, "OK\n"));
    let sent = service.messages(1).await;
    assert!(sent[0].ends_with("firing backup"), "{sent:?}");
    let dir = server.shutdown().await;
    let server = Server::start_in(dir, reachable).await;
    let alerts = get(&server, "alerts").await;
    assert_eq!(alerts["items"][0]["summary"], "Monitor `backup` is down");
    let success = reqwest::get(format!("{}{url}", server.url())).await.unwrap();
    assert_eq!(success.status().as_u16(), 200);
    assert_eq!(get(&server, "monitors/backup").await["status"], "up");
    assert_eq!(get(&server, "alerts").await["open"], 0);
    server.shutdown().await;
}
