//! Services with real processes: no request fails during an update, a drain, and restarts of server and agent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{Client, LogQuery, LogSource, Page, ServiceRef, WorkerFilter};
use futures::TryStreamExt as _;
use harness::{Site, until};
use model::api::{Endpoint, LogEntry, Replica, Service};
use model::service::RolloutStatus;
use model::{JobStatus, ServiceSpec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const SOON: Duration = Duration::from_secs(60);
/// Interval at which the load generator reads the endpoints.
const REFRESH: Duration = Duration::from_millis(100);

/// A web server that keeps responding for two seconds after SIGTERM, so that clients can learn of its end.
const SERVER: &str = r#"
import http.server, os, signal, threading, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = os.environ["BELFRY_SERVICE_REVISION"].encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["BELFRY_PORT_HTTP"])), Handler)
def leave(*_):
    threading.Thread(target=lambda: (time.sleep(2), os._exit(0))).start()
signal.signal(signal.SIGTERM, leave)
server.serve_forever()
"#;

fn web(version: u32) -> ServiceSpec {
    let spec = serde_json::json!({
        "name": "web",
        "replicas": 2,
        "min_healthy": "0s",
        "job": {
            "run": {"process": {"script": SERVER, "interpreter": ["python3"], "env": {"VERSION": version.to_string()}}},
            "ports": [{"name": "http"}],
            "health": {
                "readiness": {"http": {"port": "http"}, "interval": "1s"},
                "liveness": {"tcp": {"port": "http"}, "interval": "1s"},
            },
        },
    });
    serde_json::from_value(spec).unwrap()
}

fn web_ref() -> ServiceRef {
    ServiceRef { name: "web".to_owned(), namespace: None }
}

async fn until_service(client: &Client, what: &str, holds: impl Fn(&Service) -> bool) -> Service {
    until(&format!("the service {what}"), SOON, async || {
        let service = client.service(&web_ref()).await.ok()?;
        holds(&service).then_some(service)
    })
    .await
}

async fn until_rolled_out(client: &Client, revision: u64) -> Service {
    until_service(client, &format!("completes revision {revision}"), |service| {
        let rollout = &service.rollout;
        rollout.revision == revision
            && rollout.status == RolloutStatus::Completed
            && service.counts.stopping == 0
    })
    .await
}

async fn replicas(client: &Client) -> Vec<Replica> {
    client.replicas(&web_ref()).await.unwrap()
}

/// Sends requests to the endpoints of the service in turn, until it is stopped.
struct Load {
    requests: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
    is_over: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Load {
    fn start(client: Client) -> Self {
        let (requests, failures) = (Arc::<AtomicU64>::default(), Arc::<Mutex<Vec<String>>>::default());
        let is_over = Arc::<AtomicBool>::default();
        let task = {
            let (requests, failures, is_over) = (requests.clone(), failures.clone(), is_over.clone());
            tokio::spawn(async move {
                let endpoints = Arc::new(Mutex::new(client.endpoints(&web_ref()).await.unwrap()));
                let refreshed = Arc::clone(&endpoints);
                let refresh = tokio::spawn(async move {
                    loop {
                        // While no server answers, the last list is used.
                        if let Ok(found) = client.endpoints(&web_ref()).await {
                            *refreshed.lock().unwrap() = found;
                        }
                        tokio::time::sleep(REFRESH).await;
                    }
                });
                for number in 0_usize.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let known = endpoints.lock().unwrap().clone();
                    let endpoint = known.get(number % known.len().max(1));
                    let failure = match endpoint {
                        Some(endpoint) => {
                            get(endpoint).await.err().map(|error| format!("{endpoint:?}: {error}"))
                        }
                        None => Some("the service has no endpoint".to_owned()),
                    };
                    failures.lock().unwrap().extend(failure);
                    requests.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                refresh.abort();
            })
        };
        Self { requests, failures, is_over, task }
    }

    /// Waits until further requests were answered.
    async fn until_answered(&self, count: u64) {
        let from = self.requests.load(Ordering::Relaxed);
        let is_enough = || (self.requests.load(Ordering::Relaxed) >= from + count).then_some(());
        until("further requests were answered", SOON, async || is_enough()).await;
    }

    async fn stop(self) -> (u64, Vec<String>) {
        self.is_over.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        (self.requests.load(Ordering::Relaxed), std::mem::take(&mut *self.failures.lock().unwrap()))
    }
}

/// Sends one request; returns the body.
async fn get(endpoint: &Endpoint) -> std::io::Result<String> {
    let address = endpoint.address.as_deref().unwrap_or("127.0.0.1");
    let request = async {
        let mut stream = TcpStream::connect((address, endpoint.port)).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        match answer.strip_prefix("HTTP/1.0 200") {
            Some(rest) => Ok(rest.rsplit("\r\n").next().unwrap_or_default().to_owned()),
            None => Err(std::io::Error::other(format!("unexpected answer {answer:?}"))),
        }
    };
    tokio::time::timeout(Duration::from_secs(10), request).await.map_err(std::io::Error::other)?
}

/// F3, H1.
#[tokio::test]
async fn no_request_fails_during_an_update_a_drain_and_restarts() {
    let mut site = Site::start().await;
    site.add_worker().await;
    let client = site.client();
    client.put_service(&web(1), None).await.unwrap();
    until_rolled_out(&client, 1).await;
    let workers: std::collections::BTreeSet<_> =
        replicas(&client).await.iter().map(|replica| replica.worker).collect();
    assert_eq!(workers.len(), 2, "the replicas are on different workers");
    let load = Load::start(client.clone());
    load.until_answered(50).await;

    client.put_service(&web(2), None).await.unwrap();
    until_rolled_out(&client, 2).await;
    load.until_answered(50).await;

    let all = client.workers_page(&WorkerFilter::default(), &Page::default()).await.unwrap().items;
    let drained = all.iter().find(|worker| worker.name == "worker-1").unwrap().id;
    client.drain(drained).await.unwrap();
    until("the drained worker has no replica", SOON, async || {
        let found = replicas(&client).await;
        found.iter().all(|replica| replica.worker.is_some_and(|worker| worker != drained)).then_some(())
    })
    .await;
    load.until_answered(50).await;

    site.server.kill().await;
    load.until_answered(50).await;
    site.server.restart().await;
    site.until_ready("worker-2").await;
    site.workers[1].kill_agent().await;
    load.until_answered(50).await;
    site.workers[1].start_agent();
    site.until_ready("worker-2").await;
    load.until_answered(50).await;

    let before = replicas(&client).await;
    assert!(before.iter().all(|replica| replica.restarts == 0 && replica.revision == 2), "{before:?}");
    let (requests, failures) = load.stop().await;
    assert!(failures.is_empty(), "{} of {requests} requests failed: {failures:#?}", failures.len());
}

/// F3. The liveness check restarts a replica that no longer answers.
#[tokio::test]
async fn a_replica_that_is_killed_is_restarted_and_others_stay() {
    let site = Site::start().await;
    let client = site.client();
    client.put_service(&web(1), None).await.unwrap();
    until_rolled_out(&client, 1).await;
    let before = replicas(&client).await;
    let victim = site.workers[0].tasks()[0];
    victim.kill();
    until_service(&client, "loses a replica", |service| service.counts.available == 1).await;
    until_service(&client, "is available again", |service| service.counts.available == 2).await;
    let after = replicas(&client).await;
    let restarts: u32 = after.iter().map(|replica| replica.restarts).sum();
    assert_eq!(restarts, 1, "{after:?}");
    let jobs = |all: &[Replica]| all.iter().map(|replica| replica.job).collect::<Vec<_>>();
    assert_eq!(jobs(&after), jobs(&before), "a restart is another execution of the same job");
}

/// F3. A replica writes more than its log may have. What it writes can be read at once, and the oldest output is removed.
#[tokio::test]
async fn the_log_of_a_replica_shows_its_newest_output() {
    let mut site = Site::start().await;
    let client = site.client();
    let mut spec = web(1);
    spec.replicas = Some(1);
    let job = serde_json::json!({
        "name": "web",
        "run": {"process": {"script": "seq 600000; echo ready; while :; do sleep 1; echo tick; done"}},
        "log": {"max_size": "1MiB"},
    });
    *spec.job = serde_json::from_value(job).unwrap();
    client.put_service(&spec, None).await.unwrap();
    until_rolled_out(&client, 1).await;
    let source = LogSource::Job(replicas(&client).await[0].job, None);
    let last = async |text: &str| {
        let query = LogQuery { tail: Some(2), ..LogQuery::default() };
        until(&format!("the log ends with {text}"), SOON, async || {
            let page = client.logs(source, &query).await.ok()?;
            page.items.iter().any(|entry| entry.text.contains(text)).then_some(())
        })
        .await;
    };
    last("ready").await;
    last("tick").await;
    site.server.kill().await;
    site.server.restart().await;
    last("tick").await;
    let entries: Vec<LogEntry> = client.all_logs(source, LogQuery::default()).try_collect().await.unwrap();
    assert!(entries[0].text.contains("omitted here"), "{:?}", entries[0]);
    let text: String = entries[1..].iter().map(|entry| entry.text.as_str()).collect();
    assert!((400_000..=1_100_000).contains(&text.len()), "{} bytes", text.len());
    assert!(text.contains("\n599999\n600000\nready\n") && !text.contains("\n1000\n"));
}

/// F3. A task keeps a file with the endpoints of a service that it requires, and runs a command after each change; another job may not
/// read them.
#[tokio::test]
async fn a_task_follows_the_endpoints_of_a_service() {
    let mut site = Site::start().await;
    let client = site.client();
    client.put_service(&web(1), None).await.unwrap();
    until_rolled_out(&client, 1).await;
    let program = harness::belfry().display();
    let script = format!(
        "{program} task endpoints web --file upstreams && wc -l < upstreams
         exec {program} task endpoints web --port http --file upstreams --watch -- \\
           sh -c 'echo changed to $(wc -l < upstreams)'"
    );
    let submit = async |requires: serde_json::Value| {
        let job = serde_json::json!({"run": {"process": {"script": script}}, "requires": requires});
        client.submit(&serde_json::from_value(job).unwrap()).await.unwrap().id
    };
    let job = submit(serde_json::json!([{"service": "web", "min_available": 2}])).await;
    let until_told = async |text: &str| {
        until(&format!("the task tells {text}"), SOON, async || {
            let page = client.logs(LogSource::Job(job, None), &LogQuery::default()).await.ok()?;
            let all: String = page.items.iter().map(|entry| entry.text.as_str()).collect();
            all.contains(text).then_some(all)
        })
        .await
    };
    assert_eq!(until_told("2\n").await, "2\n");
    client.scale_service(&web_ref(), 3, None).await.unwrap();
    until_told("changed to 3\n").await;
    site.server.kill().await;
    site.server.restart().await;
    client.scale_service(&web_ref(), 1, None).await.unwrap();
    let told = until_told("changed to 1\n").await;
    assert!(told.starts_with("2\nchanged to 3\n"), "{told}");

    let stranger = submit(serde_json::json!([])).await;
    let failed = until("the other job fails", SOON, async || {
        let job = client.job(stranger).await.ok()?;
        job.status.is_final().then_some(job)
    })
    .await;
    assert_eq!(failed.status, JobStatus::Failed);
    let page = client.logs(LogSource::Job(stranger, None), &LogQuery::default()).await.unwrap();
    let told: String = page.items.iter().map(|entry| entry.text.as_str()).collect();
    assert!(told.contains("does not require service `web`"), "{told}");
}
