//! Simulated clients: they submit, cancel and read jobs over HTTP, and repeat requests until the answer is
//! certain.
//!
//! [`scene`](crate::scene) starts one [`Client`] as a host of the simulated network. It sends each job from a
//! task of its own, with random properties ([`spec`]), to the servers in turn, and records what it asked and
//! what it was answered.
//!
//! # Invariants
//! - An answer that leaves the outcome open is recorded as unknown, never as a refusal.
//! - Only a request with an idempotency key is repeated, and a cancel.
//! - The client is done once every request has a certain answer or cannot be repeated.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use model::JobId;
use model::spec::{Concurrency, Delivery, JobSpec};
use serde_json::Value;
use sim::dice::Dice;
use sim::history::{Answer, Ask, What};
use turmoil::net::TcpStream;

use crate::recorder::Recorder;
use crate::servers;

/// Timeout of a request.
const ANSWER_MAX: Duration = Duration::from_secs(4);

/// A client with all its requests.
pub(crate) struct Client {
    pub(crate) recorder: Recorder,
    pub(crate) token: String,
    pub(crate) servers: usize,
    pub(crate) jobs: usize,
    /// Period over which the jobs are submitted.
    pub(crate) spread: Duration,
    pub(crate) dice: Mutex<Dice>,
    turn: AtomicUsize,
    /// Number of requests without a certain answer, including those not sent yet.
    open: AtomicUsize,
    pub(crate) done: Arc<AtomicBool>,
}

/// Response of an HTTP request.
struct HttpResponse {
    status: u16,
    body: Value,
}

impl Client {
    pub(crate) fn new(
        recorder: Recorder,
        token: String,
        servers: usize,
        jobs: usize,
        spread: Duration,
        dice: Dice,
    ) -> Self {
        Self {
            recorder,
            token,
            servers,
            jobs,
            spread,
            dice: Mutex::new(dice),
            turn: AtomicUsize::new(0),
            open: AtomicUsize::new(jobs),
            done: Arc::default(),
        }
    }

    /// Sends all requests; returns when each has its answer.
    pub(crate) async fn run_host(self: Rc<Self>) -> turmoil::Result {
        for number in 0..self.jobs {
            let pause = self.spread / u32::try_from(self.jobs).unwrap_or(u32::MAX);
            let pause = pause.mul_f64(self.dice(|dice| dice.fraction(0.0, 2.0)));
            tokio::time::sleep(pause).await;
            let this = Rc::clone(&self);
            tokio::task::spawn_local(async move {
                this.submit(number).await;
                this.open.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while self.open.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.done.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn dice<T>(&self, draw: impl FnOnce(&mut Dice) -> T) -> T {
        draw(&mut self.dice.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn submit(&self, number: usize) {
        let spec = self.dice(|dice| spec(number, dice));
        let Ok(body) = serde_json::to_vec(&spec) else { return };
        let (tag, key) = (spec.name.clone(), spec.idempotency_key.clone());
        let made = |said: &HttpResponse| {
            let job = said.body["id"].as_str()?.parse::<JobId>().ok()?;
            Some(Answer::Submitted { job })
        };
        let ask = Ask::Submit { tag, key: key.clone() };
        let told = self.ask(&ask, (Method::POST, "/api/v1/jobs"), &body, key.is_some(), made).await;
        let Some(Answer::Submitted { job }) = told else { return };
        if self.dice(|dice| dice.chance(0.3)) {
            self.read(job).await;
        }
        if self.dice(|dice| dice.chance(0.1)) {
            let path = format!("/api/v1/jobs/{job}/cancel");
            self.ask(&Ask::Cancel { job }, (Method::POST, &path), b"{}", true, |_| Some(Answer::Done)).await;
        }
    }

    /// Sends a request and, if `again`, repeats it until the answer is certain.
    async fn ask(
        &self,
        ask: &Ask,
        (method, path): (Method, &str),
        body: &[u8],
        again: bool,
        answer: impl Fn(&HttpResponse) -> Option<Answer>,
    ) -> Option<Answer> {
        let request = self.recorder.request();
        loop {
            self.recorder.note(What::Asked { request, ask: ask.clone() });
            let said = self.call(method.clone(), path, body.to_vec()).await;
            let (told, certain) = match said {
                None => (Answer::Unknown, false),
                Some(said) if said.status < 300 => (answer(&said).unwrap_or(Answer::Unknown), true),
                Some(said) => {
                    let code = said.body["code"].as_str().unwrap_or("http_error").to_owned();
                    match (said.status, code.as_str()) {
                        (_, "outcome_unknown" | "http_error") => (Answer::Unknown, false),
                        (status, _) => (Answer::Refused { code }, !matches!(status, 429 | 503 | 507)),
                    }
                }
            };
            self.recorder.note(What::Answered { request, answer: told.clone() });
            if certain || !again {
                return Some(told);
            }
            self.turn.fetch_add(1, Ordering::Relaxed);
            let pause = self.dice(|dice| dice.between(50, 600));
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Reads a job that was accepted, which must be visible at once. Only a certain answer is recorded.
    async fn read(&self, job: JobId) {
        let said = self.call(Method::GET, &format!("/api/v1/jobs/{job}"), Vec::new()).await;
        let found = match said.map(|said| said.status) {
            Some(200) => true,
            Some(404) => false,
            _ => return,
        };
        self.recorder.note(What::Read { job, found });
    }

    async fn call(&self, method: Method, path: &str, body: Vec<u8>) -> Option<HttpResponse> {
        let server = self.turn.load(Ordering::Relaxed) % self.servers;
        let call = self.call_at(server, method, path, body);
        tokio::time::timeout(ANSWER_MAX, call).await.ok()?
    }

    async fn call_at(
        &self,
        server: usize,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Option<HttpResponse> {
        let stream = TcpStream::connect((servers::name(server), servers::PORT)).await.ok()?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::task::spawn_local(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .ok()?;
        let response = sender.send_request(request).await.ok()?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.ok()?.to_bytes();
        Some(HttpResponse { status, body: serde_json::from_slice(&bytes).unwrap_or_default() })
    }
}

/// Returns a random job of any delivery level. Some have a start time, some share a concurrency key, and some have no
/// idempotency key, so they are sent only once.
fn spec(number: usize, dice: &mut Dice) -> JobSpec {
    let mut spec = JobSpec::command(["work"]);
    spec.name = format!("j{number}");
    spec.idempotency_key = (!dice.chance(0.1)).then(|| format!("key-{number}"));
    spec.delivery = *dice.pick(&[
        Delivery::AtLeastOnce,
        Delivery::AtMostOnce,
        Delivery::ExactlyOnce,
        Delivery::ExactlyOnce,
    ]);
    spec.grace = dice.millis(0, 2_000);
    spec.retry.max_retries = u32::try_from(dice.below(4)).unwrap_or(0);
    if dice.chance(0.15) {
        spec.concurrency = Some(Concurrency { key: format!("key-{}", dice.below(3)), limit: 2 });
    } else if dice.chance(0.1) {
        spec.run_at = Some(crate::recorder::now() + dice.millis(500, 5_000));
    }
    spec
}
