//! Fake server with scripted responses.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, Response, StatusCode};
use client::{Client, Task, Timeouts};
use serde_json::{Value, json};

/// Request that the server received.
#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl RecordedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the client sends JSON")
    }
}

type Answer = Box<dyn FnOnce() -> Response<Body> + Send>;

#[derive(Default)]
struct State {
    answers: VecDeque<Answer>,
    asked: Vec<RecordedRequest>,
}

/// Server that returns its scripted responses in order, and records the requests.
#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<State>>);

impl Fake {
    pub(crate) fn answers(&self, status: u16, body: Value) -> &Self {
        self.answers_with(move || {
            let kind = if status < 400 { "application/json" } else { "application/problem+json" };
            Response::builder()
                .status(status)
                .header("content-type", kind)
                .body(Body::from(body.to_string()))
                .expect("a test's answer is one")
        })
    }

    pub(crate) fn refuses(&self, status: u16, code: &str, retry_after: Option<u64>) -> &Self {
        let mut problem = json!({
            "type": format!("/docs#{code}"), "title": code, "status": status, "code": code,
            "detail": format!("refused: {code}"),
        });
        if let Some(seconds) = retry_after {
            problem["retry_after"] = seconds.into();
        }
        self.answers(status, problem)
    }

    /// Adds an event stream that is cut off at the end of `text`.
    pub(crate) fn streams(&self, text: &'static str) -> &Self {
        self.answers_with(move || {
            Response::builder()
                .header("content-type", "text/event-stream")
                .body(Body::from(text))
                .expect("a test's answer is one")
        })
    }

    /// Adds a response whose connection is lost within the body.
    pub(crate) fn drops_connection(&self) -> &Self {
        self.answers_with(|| {
            let pieces = futures::stream::iter([Ok(Bytes::from("{")), Err(std::io::Error::other("cut"))]);
            Response::new(Body::from_stream(pieces))
        })
    }

    pub(crate) fn answers_with(&self, answer: impl FnOnce() -> Response<Body> + Send + 'static) -> &Self {
        self.0.lock().unwrap().answers.push_back(Box::new(answer));
        self
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.0.lock().unwrap().asked.clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.requests().into_iter().map(|a| a.line).collect()
    }

    fn answer(&self, asked: RecordedRequest) -> Response<Body> {
        let mut state = self.0.lock().unwrap();
        state.asked.push(asked);
        match state.answers.pop_front() {
            Some(answer) => answer(),
            None => {
                let mut response = Response::new(Body::from("nothing was prepared"));
                *response.status_mut() = StatusCode::IM_A_TEAPOT;
                response
            }
        }
    }

    /// Starts the server, and returns a client of it.
    pub(crate) async fn start(&self) -> Client {
        self.start_with(Timeouts { retry_for: Duration::from_secs(20), ..Timeouts::default() }).await
    }

    pub(crate) async fn start_with(&self, patience: Timeouts) -> Client {
        client::install_crypto();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(axum::serve(listener, self.app()).into_future());
        Client::with_patience(&format!("http://{address}"), Some("bf_admin_1_secret"), patience).unwrap()
    }

    /// Serves on a task socket, and returns the task.
    pub(crate) fn start_task(&self, socket: &Path) -> Task {
        client::install_crypto();
        let listener = tokio::net::UnixListener::bind(socket).expect("a folder of the test's own is empty");
        tokio::spawn(axum::serve(listener, self.app()).into_future());
        Task::at(socket).unwrap()
    }

    fn app(&self) -> Router {
        let fake = self.clone();
        Router::new().fallback(move |request: Request<Body>| async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.expect("requests of tests are small");
            let line = format!("{} {}", head.method, head.uri);
            fake.answer(RecordedRequest { line, headers: head.headers, body })
        })
    }
}

pub(crate) const JOB: &str = "job_01k9zq3m6c0000000000000000";
pub(crate) const EXECUTION: &str = "exe_01k9zq3m6c0000000000000000";
pub(crate) const EXECUTION_2: &str = "exe_01k9zq3m6d0000000000000000";

pub(crate) fn submitted() -> Value {
    json!({"id": JOB, "created": true})
}

/// Job as the API returns it.
pub(crate) fn job(version: u64, status: &str, executions: u32) -> Value {
    let at = "2026-11-21T08:00:00Z";
    json!({
        "id": JOB, "name": "j", "namespace": "default", "queue": "default", "priority": 50,
        "status": status, "version": version, "created_at": at, "due_at": at, "updated_at": at,
        "executions": executions, "run_failures": 0, "start_failures": 0,
    })
}

/// Page of executions with these numbers and ids.
pub(crate) fn executions(all: &[(u32, &str)]) -> Value {
    let execution = |(number, id): &(u32, &str)| {
        json!({
            "id": id, "job_id": JOB, "job_name": "j", "namespace": "default", "number": number, "fence": number,
            "worker_id": "wkr_01k9zq3m6c0000000000000000", "status": "running",
            "assigned_at": "2026-11-21T08:00:00Z",
        })
    };
    json!({"items": all.iter().map(execution).collect::<Vec<_>>()})
}
