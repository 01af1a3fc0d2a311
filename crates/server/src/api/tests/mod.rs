//! Tests of the whole API: a router over a real node, engine and embedded store.
//!
//! [`World`] is a server without a socket; [`ManualWorker`] is a worker without processes, driven by the
//! test.
//!
//! - [`World::send`], `get`, `post` and `json` send a request and return an [`Answer`]; [`World::stream`]
//!   opens an event stream.
//! - [`ManualWorker::start`] returns the next [`Task`], which the test reports as finished, and whose log it
//!   writes.
//! - [`World::until`] waits for a status of a job: for an event, never for a fixed time.
//!
//! The modules follow the handlers. `access`, `audit`, `contract`, `refusals` and `tenants` check rules that hold for all routes.

mod access;
mod accounts;
mod alerts;
mod artifacts;
mod audit;
mod bulk;
mod contract;
mod events;
mod failures;
mod jobs;
mod lists;
mod logins;
mod logs;
mod monitors;
mod namespaces;
mod oidc;
mod refusals;
mod schedule_lists;
mod schedules;
mod schedules_of_workflows;
mod secrets;
mod servers;
mod services;
mod statistics;
mod tenants;
mod upstream;
mod workers;
mod workflows;

use std::sync::Arc;
use std::time::Duration;

use ::access::{Bearer, Change};
use axum::Router;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use axum::http::request::Builder;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use bytes::Bytes;
use engine::input::ExecutionEnd;
use engine::{Input, Join, Report, Session};
use futures::StreamExt;
use futures::stream::BoxStream;
use model::access::AccountKind;
use model::record::{Outcome, Usage};
use model::worker::{Capabilities, Capacity};
use model::{ExecutionId, Fence, Millicores, WorkerId};
use serde_json::{Value, json};
use store::Store;
use store::faulty::FaultyStore;
use store::sqlite::{Options, SqliteStore};
use tokio::sync::mpsc;
use tower::ServiceExt;

use crate::auth::{AccessControl, Identity, IdentityKind, Keys, token};
use crate::clock::{Clock as _, SystemClock};
use crate::members::Members;
use crate::metrics::Metrics;
use crate::node::{DriverHandle, Node, NodeConfig, Readiness, ToWorker};
use crate::objects::{LogWrite, Objects};
use crate::{ServerConfig, Services};

/// Longest wait of a test for a condition.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for a future; panics with `what` after the deadline.
async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(value) => value,
        Err(_) => panic!("waited {}s for {what}", PATIENCE.as_secs()),
    }
}

/// Creates a token, and returns its text.
async fn new_token(control: &AccessControl, bearer: Bearer, kind: IdentityKind) -> String {
    let text = token::generate(kind);
    let parsed = token::parse(&text).unwrap();
    let (id, hash) = (parsed.id.to_owned(), parsed.hash().into());
    let expires_at = Some(SystemClock.now() + model::Duration::from_hours(24));
    let change = Change::CreateToken { id, hash, bearer, description: None, scope: None, expires_at };
    control.change(&Identity::admin("test"), &change).await.unwrap();
    text
}

/// A server without a socket.
struct World {
    router: Router,
    services: Services,
    admin: String,
    worker: String,
    driver: DriverHandle,
    store: Arc<FaultyStore<SqliteStore>>,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = ServerConfig::new(folder.path());
        config.engine.lease = model::Duration::from_secs(600);
        config.artifact_bytes_max = 1 << 20;
        change(&mut config);
        let options = Options { shards: 4, ballast_bytes: 0, ..Options::default() };
        let faulty = Arc::new(FaultyStore::new(SqliteStore::open(config.store_path(), options).unwrap()));
        let store: Arc<dyn Store> = Arc::clone(&faulty) as _;
        let objects = Objects::open(&config, Arc::clone(&store), None).unwrap();
        let access = Arc::new(AccessControl::load(Arc::clone(&store)).await.unwrap());
        let admin = new_token(&access, Bearer::Admin("ann".into()), IdentityKind::Admin).await;
        let worker = new_token(&access, Bearer::Worker("wanda".into()), IdentityKind::Worker).await;
        let metrics = Metrics::new();
        let keys = Keys::load(store.as_ref()).await.unwrap();
        let addr = config.listen;
        let members = Members::new(Arc::clone(&store), &config, config.url_at(addr));
        let (node, driver) = Node::new(store, NodeConfig::new(&config, members.clone(), metrics.clone()));
        let audit = crate::audit::AuditLog::new(Arc::clone(&faulty) as _, &config.name);
        let sealer = crate::seal::Sealer::with_key([7; 32]);
        let networks = crate::networks::Networks::loopback();
        let alerts = crate::alerts::AlertService::new(Arc::clone(&faulty) as _, sealer, networks, None);
        let config = Arc::new(config);
        let requests = Arc::new(crate::between_servers::Requests::new(
            members.clone(),
            keys.forwards,
            crate::server_clients::HttpsEnd::of(&config),
        ));
        let services = Services {
            node,
            objects,
            raft_member: None,
            members,
            access,
            alerts,
            audit,
            keys,
            usage: Arc::default(),
            metrics,
            config,
            addr,
            forwards_to_leader: true,
            requests,
            tls: None,
            secret_keys: Arc::default(),
        };
        let driver = driver.spawn().unwrap();
        let ready = soon("the node", services.node.wait_ready(|r| *r == Readiness::Ready)).await;
        assert_eq!(ready, Readiness::Ready);
        // Without the loop that follows the feed.
        services.alerts.load(0).await.unwrap();
        tokio::spawn(Arc::clone(&services.alerts).record_pings());
        let router = super::router(services.clone());
        Self { router, services, admin, worker, driver, store: faulty, _folder: folder }
    }

    /// Creates an admin token, and returns its text.
    async fn admin_token(&self, name: &str) -> String {
        new_token(&self.services.access, Bearer::Admin(name.into()), IdentityKind::Admin).await
    }

    /// Creates an account with roles, each in a namespace, and returns a token.
    async fn account(&self, name: &str, roles: &[(&str, &str)]) -> String {
        let control = &self.services.access;
        let account = name.to_owned();
        let create = Change::CreateAccount {
            name: account.clone(),
            kind: AccountKind::User,
            title: None,
            submit_rate: ::access::SubmitRate::Default,
        };
        control.change(&Identity::admin("test"), &create).await.unwrap();
        for (role, namespace) in roles {
            let (role, namespace) = ((*role).to_owned(), (*namespace).to_owned());
            let bind = Change::Bind { role, subject: account.as_str().into(), namespace };
            control.change(&Identity::admin("test"), &bind).await.unwrap();
        }
        new_token(control, Bearer::Account(account), IdentityKind::User).await
    }

    /// Stops the node; later requests are refused.
    async fn stop(&self) {
        self.services.node.stop();
        soon("the end of the node", self.driver.join()).await.unwrap();
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = soon("an answer", self.router.clone().oneshot(request)).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = soon("a body", axum::body::to_bytes(body, usize::MAX)).await.unwrap();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    fn request(&self, method: Method, path: &str) -> Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "localhost:7070")
            .header(AUTHORIZATION, format!("Bearer {}", self.admin))
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path).body(Body::empty()).unwrap()).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path).body(Body::empty()).unwrap()).await
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.json(Method::POST, path, body, &[]).await
    }

    async fn post_nothing(&self, path: &str) -> Answer {
        self.send(self.request(Method::POST, path).body(Body::empty()).unwrap()).await
    }

    async fn json(&self, method: Method, path: &str, body: Value, headers: &[(&str, &str)]) -> Answer {
        let request = self.request(method, path).header(CONTENT_TYPE, "application/json");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    /// Sends a request with another token.
    async fn send_as(&self, token: &str, method: Method, path: &str, body: Value) -> Answer {
        let request = Request::builder().method(method).uri(path).header(HOST, "localhost:7070");
        let request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        // The only route that takes no JSON.
        let kind = if path.contains("/calendars/import") { "text/calendar" } else { "application/json" };
        let request = request.header(CONTENT_TYPE, kind);
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    /// Sends a `GET` with another token.
    async fn get_as(&self, token: &str, path: &str) -> Answer {
        self.send_as(token, Method::GET, path, json!({})).await
    }

    /// Submits a job and returns its id.
    async fn submit(&self, change: Value) -> String {
        let answer = self.post("/api/v1/jobs", job(change)).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// Opens an event stream.
    async fn stream(&self, path: &str, last_event_id: Option<&str>) -> Events {
        let mut request = self.request(Method::GET, path).header("accept", "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = soon("a stream", self.router.clone().oneshot(request)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
        Events { body: response.into_body().into_data_stream().boxed(), buffer: String::new() }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.services.node.stop();
    }
}

/// Returns a job that runs `true`, with changes.
fn job(change: Value) -> Value {
    let mut job = json!({"run": {"process": {"command": ["true"]}}});
    job.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    job
}

/// A response of the server.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Returns status and code of a refusal.
    fn code(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text());
        format!("{} {}", self.status.as_u16(), self.json()["code"].as_str().unwrap())
    }

    /// Returns the values of one field of a list's items.
    fn column(&self, field: &str) -> Vec<String> {
        let items = self.json()["items"].as_array().unwrap().clone();
        items.iter().map(|item| item[field].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// Server-sent events, as a client receives them.
struct Events {
    body: BoxStream<'static, Result<Bytes, axum::Error>>,
    buffer: String,
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq)]
struct SseEvent {
    name: String,
    id: String,
    data: Value,
}

impl Events {
    /// Returns the next event with data; `None` at the end of the stream.
    async fn next(&mut self) -> Option<SseEvent> {
        soon("an event", async {
            loop {
                while let Some((block, rest)) = self.buffer.split_once("\n\n") {
                    let event = parse(block);
                    self.buffer = rest.to_owned();
                    if event.is_some() {
                        return event;
                    }
                }
                let part = self.body.next().await?.unwrap();
                self.buffer.push_str(str::from_utf8(&part).unwrap());
            }
        })
        .await
    }
}

fn parse(block: &str) -> Option<SseEvent> {
    let field = |name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.trim_start().to_owned())
    };
    let data = serde_json::from_str(&field("data")?).unwrap();
    Some(SseEvent { name: field("event").unwrap_or_default(), id: field("id").unwrap_or_default(), data })
}

/// A worker without processes, controlled by the test.
struct ManualWorker {
    id: WorkerId,
    session: Session,
    node: Node,
    services: Services,
    messages: mpsc::Receiver<ToWorker>,
    assigned: std::collections::VecDeque<Task>,
}

/// An execution assigned to the worker.
#[derive(Debug, Clone)]
struct Task {
    execution: ExecutionId,
    fence: Fence,
}

impl ManualWorker {
    async fn join(world: &World, number: u128) -> Self {
        let capabilities = Capabilities { runtimes: vec!["process".into()], ..Capabilities::default() };
        Self::join_as(world, number, capabilities, None).await
    }

    /// Joins a worker that runs health checks.
    async fn join_with_checks(world: &World, number: u128, address: Option<&str>) -> Self {
        Self::join_as(world, number, Capabilities::of_processes(), address).await
    }

    async fn join_as(world: &World, number: u128, capabilities: Capabilities, address: Option<&str>) -> Self {
        let node = world.services.node.clone();
        let (id, session) = (WorkerId::from_bits(number << 80), node.new_session());
        let (outbox, messages) = mpsc::channel(64);
        let join = Join {
            worker: id,
            session,
            name: format!("w{number}"),
            version: "0.1.0".into(),
            address: address.map(str::to_owned),
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            capacity: Capacity {
                cpu: Millicores(64_000),
                memory: model::Bytes(64 << 30),
                custom: Default::default(),
                slots: 100,
            },
            capabilities,
            held: Vec::new(),
        };
        node.join(join, outbox).await.unwrap();
        let mut hands = Self {
            id,
            session,
            node,
            services: world.services.clone(),
            messages,
            assigned: Default::default(),
        };
        soon("a welcome", hands.hear()).await;
        hands
    }

    async fn hear(&mut self) {
        let message = self.messages.recv().await.expect("the session ended");
        if let ToWorker::Assignments(batch) = message {
            self.assigned.extend(
                batch
                    .into_iter()
                    .map(|assignment| Task { execution: assignment.execution, fence: assignment.fence }),
            );
        }
    }

    /// Returns the next execution, which has started.
    async fn start(&mut self) -> Task {
        let task = soon("an assignment", async {
            loop {
                match self.assigned.pop_front() {
                    Some(task) => return task,
                    None => self.hear().await,
                }
            }
        })
        .await;
        self.report(&task, Report::Started).await;
        task
    }

    async fn report(&self, task: &Task, report: Report) {
        let (worker, session) = (self.id, self.session);
        let input = Input::Report { worker, session, execution: task.execution, fence: task.fence, report };
        self.node.report(vec![input]).await.unwrap();
    }

    async fn finish(&self, task: &Task, exit_code: i32) {
        let how = if exit_code == 0 { ExecutionEnd::Succeeded } else { ExecutionEnd::Failed };
        let error = (exit_code != 0).then(|| "exit_code".into());
        let outcome = Outcome { exit_code: Some(exit_code), error, ..Outcome::default() };
        self.report(task, Report::Finished { how, outcome, usage: Usage::default() }).await;
    }

    /// Appends to the log of an execution; returns the new end offset.
    async fn log(
        &self,
        task: &Task,
        offset: u64,
        parts: &[(proto::logframe::Stream, &[u8])],
        end: bool,
    ) -> u64 {
        let mut frames = Vec::new();
        for (stream, data) in parts {
            proto::logframe::write(&mut frames, *stream, 1_700_000_000_000_000, data);
        }
        let logs = &self.services.objects.logs;
        logs.append(task.execution, LogWrite::new(offset, frames.into(), end)).await.unwrap().offset
    }
}

impl World {
    /// Waits until a job has this status.
    async fn until(&self, job: &str, status: &str) -> Value {
        let id = job.parse::<model::JobId>().unwrap();
        let mut events = self.services.node.events();
        soon(&format!("{job} to be {status}"), async {
            loop {
                let row = self.services.node.store().job(id).await.unwrap();
                if row.is_some_and(|row| row.state.status.as_str() == status) {
                    return;
                }
                // A receiver that lags has missed events: the row is read again.
                let _event = events.recv().await;
            }
        })
        .await;
        self.get(&format!("/api/v1/jobs/{job}")).await.json()
    }
}
