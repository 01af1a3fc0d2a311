//! A worker without processes, for tests and benchmarks.
//!
//! A [`FakeWorker`] speaks gRPC as a real worker does: it opens a session, sends heartbeats, keeps a journal of its
//! assignments, repeats reports until they are acknowledged, and reconnects when its session ends. Only the work is
//! missing: a [`Plan`] determines the result of an execution.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use model::id::IdSource;
use model::{ExecutionId, JobId, ShardId, WorkerId};
use proto::v1::worker_client::WorkerClient;
use proto::v1::{self, WorkerMessage, report, server_message, worker_message};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use crate::clock::{Clock as _, SystemClock};

/// Delay before a worker opens another session.
const RECONNECT: Duration = Duration::from_millis(20);

/// An execution that was assigned to a fake worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Id of the execution.
    pub execution: String,
    /// Id of the job.
    pub job: String,
    /// Fence of the execution.
    pub fence: u64,
    /// Number of the attempt, from 1.
    pub number: u32,
    /// Spec of the job, as JSON.
    pub spec: Bytes,
    /// Schedule that created the job.
    pub origin: Option<v1::Origin>,
    /// Step of a run that created the job.
    pub step: Option<Box<v1::StepOrigin>>,
}

impl Task {
    /// Returns the id of the execution.
    ///
    /// # Panics
    /// If the server sent an invalid id.
    pub fn execution_id(&self) -> ExecutionId {
        self.execution.parse().expect("the server sends ids")
    }

    /// Returns the id of the job.
    ///
    /// # Panics
    /// If the server sent an invalid id.
    pub fn job_id(&self) -> JobId {
        self.job.parse().expect("the server sends ids")
    }
}

/// Result of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Starts, and succeeds at once.
    Succeed,
    /// Starts, and exits with this code at once.
    Exit(i32),
    /// Starts, and runs until the test ends it or the server stops it.
    Run,
    /// Refused with this reason, without a start.
    Refuse(String),
    /// Fails to start, with this code.
    StartFail(String),
}

/// Settings of a fake worker.
#[derive(Clone)]
pub struct FakeOptions {
    /// URL of the server, such as `http://127.0.0.1:7070`.
    pub url: String,
    /// Token of a worker.
    pub token: String,
    /// Most concurrent executions.
    pub slots: u32,
    /// Certificate authority (PEM) of an `https` server.
    pub ca_pem: Option<String>,
    /// Determines the result of each execution.
    pub plan: Arc<dyn Fn(&Task) -> Plan + Send + Sync>,
}

impl FakeOptions {
    /// Returns settings with 10,000 slots, on which every execution succeeds at once.
    pub fn new(url: impl Into<String>, token: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: token.into(),
            slots: 10_000,
            ca_pem: None,
            plan: Arc::new(|_| Plan::Succeed),
        }
    }

    /// Replaces the plan.
    #[must_use]
    pub fn plan(mut self, plan: impl Fn(&Task) -> Plan + Send + Sync + 'static) -> Self {
        self.plan = Arc::new(plan);
        self
    }
}

/// A worker without processes. It stops when it is dropped.
pub struct FakeWorker {
    id: WorkerId,
    shared: Arc<Shared>,
    running: tokio::sync::Mutex<mpsc::UnboundedReceiver<Task>>,
    stop: CancellationToken,
}

struct Shared {
    id: String,
    options: FakeOptions,
    journal: Mutex<Journal>,
    starts: AtomicU64,
    /// Number of the newest session.
    session: AtomicU64,
    sessions: watch::Sender<u64>,
    grants: watch::Sender<u64>,
    /// Incremented to end the current session.
    cut: watch::Sender<u64>,
    beating: watch::Sender<bool>,
    /// Tasks whose plan is [`Plan::Run`].
    running: mpsc::UnboundedSender<Task>,
    reports: mpsc::UnboundedSender<v1::Report>,
}

#[derive(Default)]
struct Journal {
    entries: HashMap<String, Entry>,
    /// Executions that were assigned again after their start.
    given_twice: Vec<String>,
}

struct Entry {
    fence: u64,
    /// Final report, after the execution ended.
    ended: Option<v1::Report>,
}

impl Shared {
    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeWorker {
    /// Starts a worker with a new id. It connects by itself, and reconnects after each session.
    pub fn start(options: FakeOptions) -> Self {
        let bits = IdSource::default().next(SystemClock.now(), ShardId(0), rand::random());
        let id = WorkerId::from_bits(bits);
        let (running_tx, running) = mpsc::unbounded_channel();
        let (reports, reports_rx) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            id: id.to_string(),
            options,
            journal: Mutex::default(),
            starts: AtomicU64::new(0),
            session: AtomicU64::new(0),
            sessions: watch::Sender::new(0),
            grants: watch::Sender::new(0),
            cut: watch::Sender::new(0),
            beating: watch::Sender::new(true),
            running: running_tx,
            reports,
        });
        let stop = CancellationToken::new();
        let life = live(Arc::clone(&shared), reports_rx);
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = life => {}
                () = stopped.cancelled() => {}
            }
        });
        Self { id, shared, running: tokio::sync::Mutex::new(running), stop }
    }

    /// Returns the worker's id.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Returns the number of its newest session.
    pub fn session(&self) -> u64 {
        self.shared.session.load(Ordering::Relaxed)
    }

    /// Returns the number of executions that it has started.
    pub fn starts(&self) -> u64 {
        self.shared.starts.load(Ordering::Relaxed)
    }

    /// Returns executions that were assigned to it again after their start. A correct worker does not start them again,
    /// and a correct server rarely assigns them again.
    pub fn given_twice(&self) -> Vec<String> {
        self.shared.journal().given_twice.clone()
    }

    /// Waits until it has opened `count` sessions in total.
    pub async fn sessions(&self, count: u64) {
        let mut sessions = self.shared.sessions.subscribe();
        // The sender lives in `self`.
        let _opened = sessions.wait_for(|opened| *opened >= count).await;
    }

    /// Waits until its lease was granted `count` more times.
    pub async fn grants(&self, count: u64) {
        let mut grants = self.shared.grants.subscribe();
        let wanted = *grants.borrow() + count;
        // The sender lives in `self`.
        let _granted = grants.wait_for(|granted| *granted >= wanted).await;
    }

    /// Returns the next execution with [`Plan::Run`].
    ///
    /// # Panics
    /// If the worker was stopped.
    pub async fn next_running(&self) -> Task {
        self.running.lock().await.recv().await.expect("the worker holds the sending half")
    }

    /// Ends a running execution with an exit code.
    pub fn exit(&self, task: &Task, code: i32) {
        self.end(finished(&task.execution, task.fence, v1::finished::How::Exited, Some(code)));
    }

    /// Ends a running execution with the given report.
    pub fn end(&self, report: v1::Report) {
        if let Some(entry) = self.shared.journal().entries.get_mut(&report.execution_id) {
            entry.ended = Some(report.clone());
        }
        // The receiving half ends with the worker.
        let _stopped = self.shared.reports.send(report);
    }

    /// Ends the current session; the worker opens another one after a short delay.
    pub fn reconnect(&self) {
        self.shared.cut.send_modify(|count| *count += 1);
    }

    /// Stops or resumes sending heartbeats; the rest continues.
    pub fn set_beating(&self, beating: bool) {
        self.shared.beating.send_replace(beating);
    }

    /// Stops the worker like a power failure: it sends no further message.
    pub fn kill(&self) {
        self.stop.cancel();
    }
}

impl Drop for FakeWorker {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Connects to the gRPC service of workers, for tests that send their own messages.
///
/// # Errors
/// If the connection fails.
pub async fn client(url: &str) -> Result<WorkerClient<Channel>, tonic::transport::Error> {
    client_trusting(url, None).await
}

async fn client_trusting(
    url: &str,
    ca_pem: Option<&str>,
) -> Result<WorkerClient<Channel>, tonic::transport::Error> {
    let mut endpoint = Endpoint::from_shared(url.to_owned())?
        .initial_connection_window_size(4 << 20)
        .initial_stream_window_size(2 << 20)
        .tcp_nodelay(true);
    if let Some(pem) = ca_pem {
        endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)))?;
    }
    let channel = endpoint.connect().await?;
    Ok(WorkerClient::new(channel).max_decoding_message_size(8 << 20).max_encoding_message_size(64 << 20))
}

/// Returns a request that carries a token.
///
/// # Panics
/// If the token is not valid in a header.
pub fn with_token<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    let value = format!("Bearer {token}").parse().expect("tokens are plain text");
    request.metadata_mut().insert("authorization", value);
    request
}

/// Returns the report of an ended execution.
pub fn finished(execution: &str, fence: u64, how: v1::finished::How, exit_code: Option<i32>) -> v1::Report {
    let body = v1::Finished { how: how.into(), exit_code, run_ms: 1, ..v1::Finished::default() };
    v1::Report { execution_id: execution.to_owned(), fence, body: Some(report::Body::Finished(body)) }
}

fn started(execution: &str, fence: u64) -> v1::Report {
    let body = Some(report::Body::Started(v1::Started { at_unix_ms: 0, pid: 1 }));
    v1::Report { execution_id: execution.to_owned(), fence, body }
}

async fn live(shared: Arc<Shared>, mut reports: mpsc::UnboundedReceiver<v1::Report>) {
    loop {
        match session(&shared, &mut reports).await {
            Ok(()) => {}
            Err(status) => tracing::debug!(error = %status, "a fake worker's session ended"),
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

/// Runs one session, from its hello to its end.
async fn session(
    shared: &Arc<Shared>,
    reports: &mut mpsc::UnboundedReceiver<v1::Report>,
) -> Result<(), Status> {
    let options = &shared.options;
    let connected = client_trusting(&options.url, options.ca_pem.as_deref()).await;
    let mut client = connected.map_err(|error| Status::unavailable(error.to_string()))?;
    let (to_server, outgoing) = mpsc::channel(64);
    let mut cut = shared.cut.subscribe();
    send(&to_server, worker_message::Body::Hello(hello(shared))).await?;
    let request = with_token(ReceiverStream::new(outgoing), &options.token);
    let mut incoming = client.session(request).await?.into_inner();
    let welcome = match incoming.message().await?.and_then(|message| message.body) {
        Some(server_message::Body::Welcome(welcome)) => welcome,
        other => return Err(Status::internal(format!("expected a welcome but got {other:?}"))),
    };
    welcome.stops.iter().for_each(|stop| forget_or_stop(shared, stop, &mut Vec::new()));
    shared.session.store(welcome.session, Ordering::Relaxed);
    shared.sessions.send_modify(|count| *count += 1);
    let unacknowledged = shared.journal().entries.values().filter_map(|entry| entry.ended.clone()).collect();
    send_reports(&to_server, unacknowledged).await?;
    let beats = beat(shared, client.clone(), &welcome);
    let mut beats = std::pin::pin!(beats);
    loop {
        tokio::select! {
            message = incoming.message() => match message?.and_then(|message| message.body) {
                Some(body) => send_reports(&to_server, answer(shared, body)).await?,
                None => return Ok(()),
            },
            Some(report) = reports.recv() => send_reports(&to_server, vec![report]).await?,
            status = &mut beats => return Err(status),
            _ = cut.changed() => return Ok(()),
        }
    }
}

fn hello(shared: &Shared) -> v1::Hello {
    let journal = shared.journal();
    let held = journal.entries.iter().map(|(execution, entry)| v1::JournaledExecution {
        execution_id: execution.clone(),
        fence: entry.fence,
        running: entry.ended.is_none(),
        job_id: String::new(),
    });
    v1::Hello {
        worker_id: shared.id.clone(),
        name: "fake".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        capacity: Some(v1::Capacity {
            cpu_millis: u32::MAX,
            memory_bytes: 1 << 50,
            custom: HashMap::new(),
            slots: shared.options.slots,
        }),
        capabilities: Some(v1::Capabilities {
            runtimes: vec!["process".into()],
            runtime_versions: HashMap::new(),
            memory_limit: true,
            cpu_limit: true,
            pids_limit: true,
            separate_user: true,
            health_checks: true,
            volumes: Vec::new(),
            sandbox_levels: vec!["basic".into(), "strict".into()],
        }),
        executions: held.collect(),
        ..v1::Hello::default()
    }
}

/// Returns the worker's reports in response to a message.
fn answer(shared: &Shared, body: server_message::Body) -> Vec<v1::Report> {
    let mut reports = Vec::new();
    match body {
        server_message::Body::Assignments(batch) => {
            reports.reserve(batch.assignments.len() * 2);
            for assignment in batch.assignments {
                assign(shared, assignment, &mut reports);
            }
        }
        server_message::Body::Stops(batch) => {
            batch.stops.iter().for_each(|stop| forget_or_stop(shared, stop, &mut reports));
        }
        server_message::Body::Acks(batch) => {
            let mut journal = shared.journal();
            for ack in batch.acks.iter().filter(|ack| ack.r#final) {
                journal.entries.remove(&ack.execution_id);
            }
        }
        server_message::Body::Welcome(_) => {}
    }
    reports
}

fn assign(shared: &Shared, assignment: v1::Assignment, reports: &mut Vec<v1::Report>) {
    let v1::Assignment { execution_id: execution, job_id: job, fence, number, spec, origin, step, .. } =
        assignment;
    let task = Task { execution, job, fence, number, spec, origin, step };
    let mut journal = shared.journal();
    if let Some(entry) = journal.entries.get(&task.execution) {
        reports.extend(entry.ended.clone());
        journal.given_twice.push(task.execution);
        return;
    }
    let plan = (shared.options.plan)(&task);
    let (execution, fence) = (&task.execution, task.fence);
    let ended = match &plan {
        Plan::Succeed => Some(finished(execution, fence, v1::finished::How::Exited, Some(0))),
        Plan::Exit(code) => Some(finished(execution, fence, v1::finished::How::Exited, Some(*code))),
        Plan::Run => None,
        Plan::Refuse(reason) => {
            let body = report::Body::Refused(v1::Refused { reason: reason.clone(), detail: String::new() });
            Some(v1::Report { execution_id: execution.clone(), fence, body: Some(body) })
        }
        Plan::StartFail(code) => {
            let body =
                report::Body::StartFailed(v1::StartFailed { code: code.clone(), detail: String::new() });
            Some(v1::Report { execution_id: execution.clone(), fence, body: Some(body) })
        }
    };
    if matches!(plan, Plan::Succeed | Plan::Exit(_) | Plan::Run) {
        shared.starts.fetch_add(1, Ordering::Relaxed);
        reports.push(started(execution, fence));
    }
    reports.extend(ended.clone());
    journal.entries.insert(task.execution.clone(), Entry { fence, ended });
    if plan == Plan::Run {
        // The test may not read it.
        let _ignored = shared.running.send(task);
    }
}

/// Stops a running execution; a discarded one is removed without a report.
fn forget_or_stop(shared: &Shared, stop: &v1::Stop, reports: &mut Vec<v1::Report>) {
    let mut journal = shared.journal();
    if stop.discard {
        journal.entries.remove(&stop.execution_id);
        return;
    }
    let Some(entry) = journal.entries.get_mut(&stop.execution_id) else {
        let body = report::Body::Refused(v1::Refused { reason: "unknown".into(), detail: String::new() });
        reports.push(v1::Report {
            execution_id: stop.execution_id.clone(),
            fence: stop.fence,
            body: Some(body),
        });
        return;
    };
    let ended = entry
        .ended
        .get_or_insert_with(|| finished(&stop.execution_id, stop.fence, v1::finished::How::Stopped, None));
    reports.push(ended.clone());
}

async fn send_reports(
    to_server: &mpsc::Sender<WorkerMessage>,
    reports: Vec<v1::Report>,
) -> Result<(), Status> {
    if reports.is_empty() {
        return Ok(());
    }
    send(to_server, worker_message::Body::Reports(v1::ReportBatch { reports })).await
}

async fn send(to_server: &mpsc::Sender<WorkerMessage>, body: worker_message::Body) -> Result<(), Status> {
    let message = WorkerMessage { body: Some(body) };
    to_server.send(message).await.map_err(|_| Status::unavailable("the session ended"))
}

/// Sends heartbeats during the session; returns the reason for its end.
async fn beat(shared: &Shared, mut client: WorkerClient<Channel>, welcome: &v1::Welcome) -> Status {
    let (beats, outgoing) = mpsc::channel(4);
    let granted = client.heartbeat(with_token(ReceiverStream::new(outgoing), &shared.options.token)).await;
    let mut grants = match granted {
        Ok(grants) => grants.into_inner(),
        Err(status) => return status,
    };
    let mut interval = tokio::time::interval(Duration::from_millis(welcome.heartbeat_interval_ms.max(1)));
    let mut seq = 0;
    loop {
        tokio::select! {
            _ = interval.tick() => {
                if *shared.beating.borrow() {
                    seq += 1;
                    // A server that does not read gets fewer heartbeats.
                    let _full = beats.try_send(heartbeat(shared, welcome.session, seq));
                }
            }
            grant = grants.message() => match grant {
                Ok(Some(grant)) if grant.lease_ms > 0 => shared.grants.send_modify(|count| *count += 1),
                Ok(Some(_)) => return Status::unavailable("the server does not know the session"),
                Ok(None) => return Status::unavailable("the heartbeat stream ended"),
                Err(status) => return status,
            },
        }
    }
}

fn heartbeat(shared: &Shared, session: u64, seq: u64) -> v1::Heartbeat {
    let health = Some(v1::Health {
        memory_available_bytes: 1 << 40,
        disk_available_bytes: 1 << 40,
        ..v1::Health::default()
    });
    v1::Heartbeat { worker_id: shared.id.clone(), session, seq, health, usage: None }
}
