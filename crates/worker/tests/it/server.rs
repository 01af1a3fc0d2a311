//! A fake server for one worker: records messages, and answers as the test requires.
//!
//! [`FakeServer`] implements the gRPC service of the real server. [`State`] has both what it received
//! (reports, heartbeats, logs, artifacts, checkpoints) and how it answers: leases, acknowledgements, stops in
//! the greeting, refusals, and requests that stay unanswered. A test changes it at any time.
//!
//! [`FakeServer::wait_for`] waits until a condition on the state holds, with a deadline; it is woken by each
//! change. It keeps no jobs: a test decides what is assigned.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use proto::logframe::{self, Stream as LogStream};
use proto::v1::server_message::Body as Say;
use proto::v1::worker_message::Body as Said;
use proto::v1::worker_server::{Worker, WorkerServer};
use proto::v1::*;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// Maximum time to wait for any one condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Recorded messages, and settings for the answers.
pub(crate) struct State {
    pub(crate) hellos: Vec<Hello>,
    pub(crate) reports: Vec<Report>,
    /// Health of executions, in the order of its arrival, and the executions whose health came before a report.
    pub(crate) health: Vec<ExecutionHealth>,
    pub(crate) health_before_start: Vec<String>,
    pub(crate) beats: Vec<Heartbeat>,
    pub(crate) tokens: Vec<String>,
    /// Executions whose end was acknowledged; added after the acknowledgement was sent.
    pub(crate) acknowledged: Vec<String>,
    /// Framed logs by execution, and whether they are complete.
    pub(crate) logs: HashMap<String, (Vec<u8>, bool)>,
    /// Offsets of the received log chunks, in their order.
    pub(crate) log_offsets: Vec<u64>,
    pub(crate) artifacts: HashMap<String, (String, Vec<u8>)>,
    pub(crate) stored: HashMap<String, Vec<u8>>,
    /// Saved checkpoints, and the last one.
    pub(crate) saved: Vec<SaveCheckpointRequest>,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) added: Vec<AddElementsRequest>,
    /// Requests for endpoints, and the response to the next ones.
    pub(crate) asked_endpoints: Vec<GetEndpointsRequest>,
    pub(crate) endpoints: GetEndpointsResponse,
    /// Error for the next request of a task.
    pub(crate) refusal: Option<Status>,
    /// Whether requests of tasks stay unanswered, and the number of such requests.
    pub(crate) stalled: bool,
    pub(crate) stalls: u32,
    /// Whether ends are acknowledged.
    pub(crate) acknowledge: bool,
    /// Lease in the answers to heartbeats; `None` sends no answer.
    pub(crate) lease_ms: Option<u64>,
    /// Lease in the `Welcome` message.
    pub(crate) welcome_lease_ms: u64,
    /// Whether logs are acknowledged, and the number of bytes to accept before the connection is closed once; it is 0
    /// after that.
    pub(crate) log_acks: bool,
    pub(crate) log_bytes_max: usize,
    /// Stops in the `Welcome` message.
    pub(crate) stops: Vec<Stop>,
    /// Whether new sessions are refused.
    pub(crate) closed: bool,
    /// Client addresses of the last session and the last heartbeat connection.
    pub(crate) session_lane: Option<SocketAddr>,
    pub(crate) beat_lane: Option<SocketAddr>,
    session: Option<mpsc::Sender<Result<ServerMessage, Status>>>,
    sessions: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            hellos: Vec::new(),
            reports: Vec::new(),
            health: Vec::new(),
            health_before_start: Vec::new(),
            beats: Vec::new(),
            tokens: Vec::new(),
            acknowledged: Vec::new(),
            logs: HashMap::new(),
            log_offsets: Vec::new(),
            artifacts: HashMap::new(),
            stored: HashMap::new(),
            saved: Vec::new(),
            checkpoint: None,
            added: Vec::new(),
            asked_endpoints: Vec::new(),
            endpoints: GetEndpointsResponse::default(),
            refusal: None,
            stalled: false,
            stalls: 0,
            acknowledge: true,
            lease_ms: Some(60_000),
            welcome_lease_ms: 60_000,
            log_acks: true,
            log_bytes_max: usize::MAX,
            stops: Vec::new(),
            closed: false,
            session_lane: None,
            beat_lane: None,
            session: None,
            sessions: 0,
        }
    }
}

impl State {
    pub(crate) fn of(&self, execution: &str) -> impl Iterator<Item = &report::Body> {
        self.reports.iter().filter(move |r| r.execution_id == execution).filter_map(|r| r.body.as_ref())
    }

    pub(crate) fn health_of(&self, execution: &str) -> impl Iterator<Item = &ExecutionHealth> {
        self.health.iter().filter(move |health| health.execution_id == execution)
    }

    pub(crate) fn finished(&self, execution: &str) -> Option<Finished> {
        self.of(execution).find_map(|body| match body {
            report::Body::Finished(finished) => Some(finished.clone()),
            _ => None,
        })
    }

    /// Returns whether the worker has closed its session.
    pub(crate) fn has_no_session(&self) -> bool {
        self.session.as_ref().is_none_or(mpsc::Sender::is_closed)
    }

    pub(crate) fn started(&self, execution: &str) -> Option<Started> {
        self.of(execution).find_map(|body| match body {
            report::Body::Started(started) => Some(*started),
            _ => None,
        })
    }

    /// Returns the text of one stream of a log; `None` before the log is complete.
    pub(crate) fn log(&self, execution: &str, stream: LogStream) -> Option<String> {
        let (bytes, true) = self.logs.get(execution)? else { return None };
        let (mut at, mut text) = (0, Vec::new());
        while let Some((frame, next)) = logframe::read(bytes, at).unwrap() {
            if frame.stream == stream {
                text.extend_from_slice(frame.data);
            }
            at = next;
        }
        assert_eq!(at, bytes.len(), "the log ends with a whole frame");
        Some(String::from_utf8_lossy(&text).into_owned())
    }
}

#[derive(Clone)]
pub(crate) struct FakeServer {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<()>,
    pub(crate) address: SocketAddr,
}

impl FakeServer {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            state: Arc::default(),
            changed: watch::Sender::new(()),
            address: listener.local_addr().unwrap(),
        };
        let service = WorkerServer::new(server.clone());
        tokio::spawn(
            Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))),
        );
        server
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.send_replace(());
        result
    }

    /// Waits until `look` returns a value.
    #[track_caller]
    pub(crate) fn wait_for<T>(
        &self,
        what: &str,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> impl Future<Output = T> {
        let caller = std::panic::Location::caller();
        let mut changes = self.changed.subscribe();
        async move {
            let found = async {
                loop {
                    if let Some(found) = look(&mut self.state()) {
                        return found;
                    }
                    // Also polls without a change, because some conditions concern the machine.
                    tokio::time::timeout(Duration::from_millis(20), changes.changed()).await.ok();
                }
            };
            match tokio::time::timeout(PATIENCE, found).await {
                Ok(found) => found,
                Err(_) => {
                    let reports = self.state().reports.iter().rev().take(5).cloned().collect::<Vec<_>>();
                    panic!("{caller}: timed out waiting for {what}; the last reports: {reports:#?}")
                }
            }
        }
    }

    pub(crate) async fn finished(&self, execution: &str) -> Finished {
        self.wait_for(&format!("the end of {execution}"), |state| state.finished(execution)).await
    }

    pub(crate) async fn started(&self, execution: &str) -> i32 {
        self.wait_for(&format!("the start of {execution}"), |state| state.started(execution)).await.pid as i32
    }

    pub(crate) async fn session(&self) {
        self.wait_for("a session", |state| state.session.as_ref().filter(|s| !s.is_closed()).map(drop)).await;
    }

    pub(crate) async fn send_message(&self, body: Say) {
        self.session().await;
        let session = self.state().session.clone().unwrap();
        session.send(Ok(ServerMessage { body: Some(body) })).await.unwrap();
    }

    pub(crate) async fn assign(&self, assignments: Vec<Assignment>) {
        self.send_message(Say::Assignments(AssignmentBatch { assignments })).await;
    }

    pub(crate) async fn stop(&self, stop: Stop) {
        self.send_message(Say::Stops(StopBatch { stops: vec![stop] })).await;
    }

    /// Closes the session.
    pub(crate) fn close_session(&self) {
        self.change(|state| state.session = None);
    }

    /// Answers a request of a task, unless it is to be refused or left unanswered.
    async fn answer_task<T>(&self, grant: impl FnOnce(&mut State) -> T) -> Result<Response<T>, Status> {
        let answer = self.change(|state| {
            if state.stalled {
                state.stalls += 1;
                return None;
            }
            Some(match state.refusal.take() {
                Some(refusal) => Err(refusal),
                None => Ok(Response::new(grant(state))),
            })
        });
        match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }

    fn record(&self, message: WorkerMessage) -> Option<Say> {
        self.change(|state| match message.body? {
            Said::Hello(hello) => {
                state.hellos.push(hello);
                None
            }
            Said::Health(batch) => {
                for health in batch.executions {
                    if state.of(&health.execution_id).next().is_none() {
                        state.health_before_start.push(health.execution_id.clone());
                    }
                    state.health.push(health);
                }
                None
            }
            Said::Reports(batch) => {
                let acks = batch.reports.iter().filter(|_| state.acknowledge).map(|report| ReportAck {
                    execution_id: report.execution_id.clone(),
                    fence: report.fence,
                    r#final: !matches!(report.body, Some(report::Body::Started(_))),
                });
                let acks = acks.collect();
                state.reports.extend(batch.reports);
                Some(Say::Acks(ReportAckBatch { acks }))
            }
        })
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Worker for FakeServer {
    type SessionStream = Answers<ServerMessage>;
    type HeartbeatStream = Answers<LeaseGrant>;
    type LogsStream = Answers<LogAck>;
    type GetArtifactStream = Answers<ArtifactChunk>;

    async fn session(
        &self,
        request: Request<Streaming<WorkerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if self.state().closed {
            return Err(Status::unavailable("closed for the test"));
        }
        let lane = request.remote_addr();
        let mut inbox = request.into_inner();
        let (outbox, answers) = mpsc::channel(64);
        let hello = inbox.next().await.ok_or_else(|| Status::cancelled("no hello"))??;
        let number = self.change(|state| {
            state.session_lane = lane;
            state.sessions += 1;
            state.sessions
        });
        let (stops, lease_ms) = {
            let mut state = self.state();
            (std::mem::take(&mut state.stops), state.welcome_lease_ms)
        };
        let welcome = Welcome {
            session: number,
            heartbeat_interval_ms: 50,
            lease_ms,
            stops,
            servers: Vec::new(),
            accepts_health: true,
        };
        outbox.send(Ok(ServerMessage { body: Some(Say::Welcome(welcome)) })).await.ok();
        self.record(hello);
        self.change(|state| state.session = Some(outbox));
        let server = self.clone();
        tokio::spawn(async move {
            while let Some(Ok(message)) = inbox.next().await {
                let Some(answer) = server.record(message) else { continue };
                let Some(session) = server.state().session.clone() else { return };
                let acks = match &answer {
                    Say::Acks(batch) => batch
                        .acks
                        .iter()
                        .filter(|ack| ack.r#final)
                        .map(|ack| ack.execution_id.clone())
                        .collect(),
                    _ => Vec::new(),
                };
                session.send(Ok(ServerMessage { body: Some(answer) })).await.ok();
                server.change(|state| state.acknowledged.extend(acks));
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn heartbeat(
        &self,
        request: Request<Streaming<Heartbeat>>,
    ) -> Result<Response<Self::HeartbeatStream>, Status> {
        let token = request.metadata().get("authorization").and_then(|t| t.to_str().ok()).unwrap_or_default();
        self.state().tokens.push(token.to_owned());
        let lane = request.remote_addr();
        self.change(|state| state.beat_lane = lane);
        let mut beats = request.into_inner();
        let server = self.clone();
        let (outbox, answers) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Some(Ok(beat)) = beats.next().await {
                let seq = beat.seq;
                let lease_ms = server.change(|state| {
                    let known = beat.session == state.sessions;
                    state.beats.push(beat);
                    if known { state.lease_ms } else { Some(0) }
                });
                if let Some(lease_ms) = lease_ms {
                    outbox.send(Ok(LeaseGrant { seq, lease_ms })).await.ok();
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn logs(
        &self,
        request: Request<Streaming<LogChunk>>,
    ) -> Result<Response<Self::LogsStream>, Status> {
        let mut chunks = request.into_inner();
        let server = self.clone();
        let (outbox, answers) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Some(Ok(chunk)) = chunks.next().await {
                let ack = server.change(|state| {
                    let received = state.logs.values().map(|(log, _)| log.len()).sum::<usize>();
                    if received >= state.log_bytes_max {
                        state.log_bytes_max = 0;
                        return ControlFlow::Break(());
                    }
                    state.log_offsets.push(chunk.offset);
                    let (log, end) = state.logs.entry(chunk.execution_id.clone()).or_default();
                    let offset = usize::try_from(chunk.offset).unwrap();
                    assert!(offset <= log.len(), "a gap in the log");
                    log.truncate(offset);
                    log.extend_from_slice(&chunk.frames);
                    *end |= chunk.end;
                    let offset = log.len() as u64;
                    let ack = LogAck {
                        execution_id: chunk.execution_id,
                        offset,
                        gone: false,
                        replicated_offset: offset,
                    };
                    ControlFlow::Continue(state.log_acks.then_some(ack))
                });
                match ack {
                    ControlFlow::Continue(Some(ack)) => drop(outbox.send(Ok(ack)).await),
                    ControlFlow::Continue(None) => {}
                    ControlFlow::Break(()) => return,
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn get_artifact(
        &self,
        request: Request<GetArtifactRequest>,
    ) -> Result<Response<Self::GetArtifactStream>, Status> {
        let reference = request.into_inner().reference;
        let (sha256, data) = self
            .state()
            .artifacts
            .get(&reference)
            .cloned()
            .ok_or_else(|| Status::not_found("no such artifact"))?;
        let size_bytes = data.len() as u64;
        let mut chunks: Vec<_> = data
            .chunks(1000)
            .map(|part| Ok(ArtifactChunk { data: Bytes::copy_from_slice(part), ..ArtifactChunk::default() }))
            .collect();
        if let Some(Ok(first)) = chunks.first_mut() {
            first.sha256 = sha256;
            first.size_bytes = size_bytes;
        }
        Ok(Response::new(Box::pin(tokio_stream::iter(chunks))))
    }

    async fn put_artifact(
        &self,
        request: Request<Streaming<PutArtifactRequest>>,
    ) -> Result<Response<PutArtifactResponse>, Status> {
        if self.state().closed {
            return Err(Status::unavailable("closed for the test"));
        }
        let mut parts = request.into_inner();
        let (mut name, mut bytes) = (String::new(), Vec::new());
        while let Some(part) = parts.next().await.transpose()? {
            if name.is_empty() {
                name = part.name;
            }
            bytes.extend_from_slice(&part.data);
        }
        let (sha256, size_bytes) = (crate::artifacts::hex(&bytes), bytes.len() as u64);
        let response = PutArtifactResponse { name: name.clone(), sha256, size_bytes };
        self.change(|state| state.stored.insert(name, bytes));
        Ok(Response::new(response))
    }
    async fn save_checkpoint(
        &self,
        request: Request<SaveCheckpointRequest>,
    ) -> Result<Response<SaveCheckpointResponse>, Status> {
        let request = request.into_inner();
        self.answer_task(|state| {
            let version = state.checkpoint.as_ref().map_or(0, |last| last.version) + 1;
            let (data, content_type) = (request.data.clone(), request.content_type.clone());
            state.checkpoint = Some(Checkpoint { version, data, content_type });
            state.saved.push(request);
            SaveCheckpointResponse { version }
        })
        .await
    }

    async fn add_elements(
        &self,
        request: Request<AddElementsRequest>,
    ) -> Result<Response<AddElementsResponse>, Status> {
        let request = request.into_inner();
        self.answer_task(|state| {
            let size = |added: &AddElementsRequest| added.elements.len() as u32;
            let earlier = state.added.iter().take_while(|added| added.batch != request.batch);
            let first = earlier.map(size).sum();
            let total: u32 = state.added.iter().map(size).sum();
            let added = first == total;
            let count = size(&request);
            state.added.extend(added.then_some(request));
            AddElementsResponse { first, count, total: first + count, added, step: "page".into() }
        })
        .await
    }

    async fn get_endpoints(
        &self,
        request: Request<GetEndpointsRequest>,
    ) -> Result<Response<GetEndpointsResponse>, Status> {
        let request = request.into_inner();
        self.answer_task(|state| {
            state.asked_endpoints.push(request);
            state.endpoints.clone()
        })
        .await
    }

    async fn get_secrets(
        &self,
        _: Request<GetSecretsRequest>,
    ) -> Result<Response<GetSecretsResponse>, Status> {
        Err(Status::unimplemented("this server has no secrets"))
    }

    async fn get_checkpoint(&self, _: Request<GetCheckpointRequest>) -> Result<Response<Checkpoint>, Status> {
        let last = self.state().checkpoint.clone();
        last.map(Response::new).ok_or_else(|| Status::not_found("there is none"))
    }
}
