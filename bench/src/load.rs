//! A client that costs little: the load and the server share the machine.
//!
//! Bodies are written once and sent again and again, each under a key of its own; of an answer only
//! the status is looked at.

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
        Self::new(&server.url(), server.token().context("a server that started has a token")?)
    }

    /// One request, under a key that makes repeating it safe; fails unless it was accepted.
    pub(crate) async fn submit(&self, body: String, key: u64) -> anyhow::Result<()> {
        self.send(body, Some(key)).await
    }

    /// The same without a key: what peers do that know none.
    pub(crate) async fn submit_once(&self, body: String) -> anyhow::Result<()> {
        self.send(body, None).await
    }

    async fn send(&self, body: String, key: Option<u64>) -> anyhow::Result<()> {
        self.answer(body, key).await.map(drop)
    }

    /// What a submission is answered; fails unless it was accepted.
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
        anyhow::ensure!(status == 201, "a submission was answered {status}: {text}");
        Ok(text)
    }

    /// One request to another path; fails unless it went well.
    pub(crate) async fn post(&self, path: &str, body: String) -> anyhow::Result<()> {
        let request = self.http.post(format!("{}/{path}", self.url)).bearer_auth(&self.token);
        let answer = request.header("content-type", "application/json").body(body).send().await?;
        let status = answer.status();
        anyhow::ensure!(status.is_success(), "{path} was answered {status}: {}", answer.text().await?);
        Ok(())
    }

    /// What another path answers.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.text(path).await?)?)
    }

    /// The same as it came.
    pub(crate) async fn text(&self, path: &str) -> anyhow::Result<String> {
        self.read(format!("{}/{path}", self.url)).await
    }

    /// The server's metrics.
    pub(crate) async fn metrics(&self) -> anyhow::Result<String> {
        self.read(self.url.replace("/api/v1", "/metrics")).await
    }

    async fn read(&self, url: String) -> anyhow::Result<String> {
        let request = self.http.get(&url).bearer_auth(&self.token);
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        anyhow::ensure!(status.is_success(), "{url} was answered {status}: {text}");
        Ok(text)
    }

    /// How many jobs the store has.
    pub(crate) async fn count_jobs(&self) -> anyhow::Result<usize> {
        let request = self.http.get(format!("{}/jobs?limit=1&count=true", self.url));
        let answer = request.bearer_auth(&self.token).send().await?;
        let count = answer.headers().get("x-total-count").context("a count was asked for")?;
        Ok(count.to_str()?.parse()?)
    }

    /// Requests of `body` over `connections` at once for this long; how many were accepted a second.
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

/// A job of about 300 bytes, as people submit them.
pub(crate) fn usual_job() -> JobSpec {
    let mut spec = JobSpec::command(["/usr/local/bin/report", "--region", "north", "--day", "2026-11-21"]);
    spec.name = "daily-report".into();
    spec.labels.insert("team".into(), "payments".into());
    spec.labels.insert("tier".into(), "gold".into());
    spec.timeout = Some(model::Duration::from_secs(600));
    spec
}

/// The body of a request with `count` of these jobs.
pub(crate) fn batch(spec: &JobSpec, count: usize) -> String {
    let jobs = vec![spec.clone(); count];
    serde_json::to_string(&SubmitJobs { jobs }).expect("a spec is plain JSON")
}
