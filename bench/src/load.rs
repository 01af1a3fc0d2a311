//! A cheap client, because load and server share the machine.
//!
//! Bodies are serialized once and sent repeatedly, each with a new key. Only the status of an answer is read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use harness::Server;
use model::JobSpec;
use model::api::SubmitJobs;

/// Sends submissions to one server.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Load {
    pub(crate) fn new(url: &str, token: String) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().http1_only().tcp_nodelay(true).no_proxy().build()?;
        Ok(Self { http, url: format!("{url}/api/v1"), token })
    }

    pub(crate) fn of(server: &Server) -> anyhow::Result<Self> {
        Self::new(&server.url(), server.token().context("a started server has created its token")?)
    }

    /// Sends one request with an idempotency key; fails unless it is accepted.
    pub(crate) async fn submit(&self, body: String, key: u64) -> anyhow::Result<()> {
        self.send(body, Some(key)).await
    }

    /// Sends one request without a key, as schedulers without idempotency keys do.
    pub(crate) async fn submit_once(&self, body: String) -> anyhow::Result<()> {
        self.send(body, None).await
    }

    async fn send(&self, body: String, key: Option<u64>) -> anyhow::Result<()> {
        self.answer(body, key).await.map(drop)
    }

    /// Returns the answer to a submission; fails unless it is accepted.
    pub(crate) async fn answer(&self, body: String, key: Option<u64>) -> anyhow::Result<String> {
        let url = format!("{}/jobs", self.url);
        let mut request =
            self.http.post(&url).bearer_auth(&self.token).header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", format!("\"bench-{key}\""));
        }
        let answer = request.body(body).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        anyhow::ensure!(status == 201, "submission failed with {status}: {text}");
        Ok(text)
    }

    /// Sends one request to another path; fails unless it succeeds.
    pub(crate) async fn post(&self, path: &str, body: String) -> anyhow::Result<()> {
        let request = self.http.post(format!("{}/{path}", self.url)).bearer_auth(&self.token);
        let answer = request.header("content-type", "application/json").body(body).send().await?;
        let status = answer.status();
        anyhow::ensure!(status.is_success(), "{path} failed with {status}: {}", answer.text().await?);
        Ok(())
    }

    /// Returns the answer of another path as JSON.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.text(path).await?)?)
    }

    /// Returns the answer of another path as text.
    pub(crate) async fn text(&self, path: &str) -> anyhow::Result<String> {
        self.read(format!("{}/{path}", self.url)).await
    }

    /// Returns the server's metrics.
    pub(crate) async fn metrics(&self) -> anyhow::Result<String> {
        self.read(self.url.replace("/api/v1", "/metrics")).await
    }

    async fn read(&self, url: String) -> anyhow::Result<String> {
        let request = self.http.get(&url).bearer_auth(&self.token);
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        anyhow::ensure!(status.is_success(), "{url} failed with {status}: {text}");
        Ok(text)
    }

    /// Returns the number of jobs in the store.
    pub(crate) async fn count_jobs(&self) -> anyhow::Result<usize> {
        let request = self.http.get(format!("{}/jobs?limit=1&count=true", self.url));
        let answer = request.bearer_auth(&self.token).send().await?;
        let count = answer.headers().get("x-total-count").context("the answer contains the count")?;
        Ok(count.to_str()?.parse()?)
    }

    /// Sends `body` repeatedly over this number of connections. Returns the number of accepted requests per second.
    pub(crate) async fn rate(&self, body: &str, connections: usize, time: Duration) -> anyhow::Result<f64> {
        static KEY: AtomicU64 = AtomicU64::new(0);
        let begun = Instant::now();
        let mut tasks = Vec::new();
        for _ in 0..connections {
            let (load, body) = (self.clone(), body.to_owned());
            tasks.push(tokio::spawn(async move {
                let mut accepted = 0_u64;
                while begun.elapsed() < time {
                    load.submit(body.clone(), KEY.fetch_add(1, Ordering::Relaxed)).await?;
                    accepted += 1;
                }
                anyhow::Ok(accepted)
            }));
        }
        let mut accepted = 0;
        for task in tasks {
            accepted += task.await??;
        }
        Ok(accepted as f64 / begun.elapsed().as_secs_f64())
    }
}

/// A typical job of about 300 bytes.
pub(crate) fn usual_job() -> JobSpec {
    let mut spec = JobSpec::command(["/usr/local/bin/report", "--region", "north", "--day", "2026-11-21"]);
    spec.name = "daily-report".into();
    spec.labels.insert("team".into(), "payments".into());
    spec.labels.insert("tier".into(), "gold".into());
    spec.timeout = Some(model::Duration::from_secs(600));
    spec
}

/// Returns the body of a request with `count` of these jobs.
pub(crate) fn batch(spec: &JobSpec, count: usize) -> String {
    let jobs = vec![spec.clone(); count];
    serde_json::to_string(&SubmitJobs { jobs }).expect("a spec serializes to JSON")
}
