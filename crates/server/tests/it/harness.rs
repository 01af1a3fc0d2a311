//! A server in a temporary folder, and waiting for conditions.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use engine::input::{Key, NewJob};
use engine::output::Submitted;
use engine::{Input, Reply};
use model::record::JobHead;
use model::{JobId, JobSpec, JobStatus};
use serde_json::Value;
use server::node::{Node, Readiness, RequestError};
use server::testing::{FakeOptions, FakeWorker};
use server::{Running, ServerConfig};
use store::Reads as _;
use store::StoreError;
use store::faulty::FaultyStore;
use store::query::JobRow;
use store::sqlite::{Options, SqliteStore};
use tempfile::TempDir;

/// Longest wait of a test for a condition.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) type Faulty = FaultyStore<SqliteStore>;

/// A running server.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) store: Arc<Faulty>,
    pub(crate) dir: Arc<TempDir>,
}

/// Fails the test unless `future` completes before the deadline.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited for {DEADLINE:?}: {what}"),
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), change).await
    }

    /// Starts a server over the data in the folder.
    pub(crate) async fn start_in(dir: Arc<TempDir>, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig::new(dir.path().join("data"));
        config.listen.set_port(0);
        config.shards = 4;
        config.shutdown_grace = model::Duration::from_millis(300);
        change(&mut config);
        let store = Arc::new(FaultyStore::new(open(&config).await));
        let running = server::start_with(config, Arc::clone(&store) as Arc<dyn store::Store>).await.unwrap();
        let server = Self { running, store, dir };
        server.ready().await;
        server
    }

    pub(crate) fn node(&self) -> &Node {
        &self.running.node
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.running.addr)
    }

    pub(crate) fn worker_token(&self) -> String {
        std::fs::read_to_string(&self.running.worker_token_path).unwrap().trim().to_owned()
    }

    pub(crate) fn fake(&self) -> FakeOptions {
        FakeOptions::new(self.url(), self.worker_token())
    }

    /// Starts a worker and waits for its first session.
    pub(crate) async fn worker(&self, options: FakeOptions) -> FakeWorker {
        let worker = FakeWorker::start(options);
        soon("the worker's first session", worker.sessions(1)).await;
        worker
    }

    pub(crate) async fn ready(&self) {
        self.readiness(Readiness::Ready).await;
    }

    pub(crate) async fn readiness(&self, wanted: Readiness) {
        soon(&format!("readiness {wanted:?}"), self.node().wait_ready(|now| *now == wanted)).await;
    }

    /// Waits until `met` returns a value; calls it again after every commit.
    pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        mut met: impl FnMut() -> F,
    ) -> T {
        let mut events = self.node().events();
        soon(what, async {
            loop {
                if let Some(found) = met().await {
                    return found;
                }
                let _lagged = events.recv().await;
            }
        })
        .await
    }

    pub(crate) async fn until_status(&self, job: JobId, status: JobStatus) -> JobRow {
        let store = &self.store;
        self.until(&format!("{job} to be {status}"), || async move {
            store.job(job).await.unwrap().filter(|row| row.state.status == status)
        })
        .await
    }

    /// Shuts the server down, and returns its folder for another start.
    pub(crate) async fn shutdown(self) -> Arc<TempDir> {
        soon("the shutdown", self.running.shutdown()).await.unwrap();
        self.dir
    }

    pub(crate) async fn count(&self, status: JobStatus) -> u64 {
        self.store.counts(None).await.unwrap().get(&status).copied().unwrap_or(0)
    }
}

/// Opens the store after the previous server has released it.
async fn open(config: &ServerConfig) -> SqliteStore {
    std::fs::create_dir_all(&config.data_dir).unwrap();
    let options = Options { shards: config.shards, ..Options::default() };
    soon("the store to be given back", async {
        loop {
            match SqliteStore::open(config.store_path(), options.clone()) {
                Ok(store) => return store,
                Err(StoreError::InUse { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
}

pub(crate) fn job() -> JobSpec {
    JobSpec::command(["true"])
}

pub(crate) fn new_job(spec: JobSpec, key: Option<u128>) -> NewJob {
    let body = serde_json::to_string(&spec).unwrap().into();
    NewJob {
        head: Arc::new(JobHead {
            spec: Arc::new(spec),
            body,
            retry_of: None,
            origin: None,
            step: None,
            replica: None,
        }),
        key: key.map(|key| Key { key, body: 1 }),
        actor: "test".into(),
        ended: Vec::new(),
    }
}

/// Submits one job and waits for the reply.
pub(crate) async fn submit(node: &Node, spec: JobSpec, key: Option<u128>) -> Result<Submitted, RequestError> {
    let jobs = vec![new_job(spec, key)];
    match node.request(move |ticket| Input::Submit { ticket, jobs }).await? {
        Reply::Submitted(made) => Ok(made[0]),
        other => panic!("{other:?}"),
    }
}

/// Submits `count` jobs in one request.
pub(crate) async fn submit_many(node: &Node, spec: &JobSpec, count: usize) -> Vec<JobId> {
    try_submit_many(node, spec, count).await.unwrap()
}

pub(crate) async fn try_submit_many(
    node: &Node,
    spec: &JobSpec,
    count: usize,
) -> Result<Vec<JobId>, RequestError> {
    let jobs = (0..count).map(|_| new_job(spec.clone(), None)).collect();
    match node.request(move |ticket| Input::Submit { ticket, jobs }).await? {
        Reply::Submitted(made) => Ok(made.into_iter().map(|made| made.job).collect()),
        other => panic!("{other:?}"),
    }
}

/// Sends a request of the first admin to the REST API; returns status and body.
pub(crate) async fn call(server: &Server, method: reqwest::Method, path: &str, body: &Value) -> (u16, Value) {
    let token = std::fs::read_to_string(&server.running.admin_token_path).unwrap();
    let url = format!("{}/api/v1/{path}", server.url());
    let request =
        || reqwest::Client::new().request(method.clone(), &url).bearer_auth(token.trim()).json(body);
    // The leader loads the alerts shortly after it is ready.
    soon(path, async {
        loop {
            let answer = request().send().await.unwrap();
            let status = answer.status().as_u16();
            if status != 503 {
                return (status, answer.json().await.unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

pub(crate) async fn put(server: &Server, path: &str, body: Value) {
    let (status, answer) = call(server, reqwest::Method::PUT, path, &body).await;
    assert_eq!(status, 200, "{answer}");
}

pub(crate) async fn get(server: &Server, path: &str) -> Value {
    call(server, reqwest::Method::GET, path, &Value::Null).await.1
}
