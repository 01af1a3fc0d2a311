//! The session with a server: receives assignments, stops and acknowledgements, and sends reports.
//!
//! A session is opened in these steps: request all holdings of the supervisor, send them in `Hello`, wait for
//! `Welcome`, carry out the stops in it, and repeat every report. Earlier messages of the supervisor belong to an
//! older session and are dropped. Heartbeats begin only after that, so that the first lease reaches the supervisor
//! after those stops; see [`crate::link`].

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use crashpoint::Point;
use model::error_chain::Chain;
use mutation::{Mutation, is_on};
use prost::Message as _;
use proto::v1::server_message::Body as ServerBody;
use proto::v1::worker_message::Body as WorkerBody;
use proto::v1::{self, ServerMessage, WorkerMessage};
use shim::Probed;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::artifacts::{self, Artifacts};
use super::connect::Server;
use super::health_checks::HealthTable;
use super::secrets::Secrets;
use super::server_rotation::{ServerRotation, SessionResult};
use super::session_error::SessionError;
use super::{Shared, heartbeat, runtimes};
use crate::link::{self, Holdings, Request, Start, Starts, SupervisorGreeting};

/// Maximum number of reports in one message, and approximate maximum of its bytes: a server accepts at most 4 MiB.
const REPORTS_A_MESSAGE: usize = 4_096;
const MESSAGE_BYTES: usize = 2 << 20;
/// Maximum number of executions in one message with health.
const HEALTH_A_MESSAGE: usize = 1_000;
/// Capacity of the queue of messages to the server.
const TO_SERVER: usize = 16;

/// A message of the supervisor that concerns the session.
#[derive(Debug)]
pub(super) enum Event {
    Holdings(Holdings),
    Reports(Vec<v1::Report>),
}

impl Event {
    fn into_reports(self) -> Vec<v1::Report> {
        match self {
            Self::Holdings(holdings) => holdings.reports,
            Self::Reports(reports) => reports,
        }
    }
}

/// Whether the servers accept the token, as last logged.
#[derive(Debug, Default)]
struct Token {
    is_refused: bool,
}

/// Whether a session ended because the token was refused.
#[derive(Debug, PartialEq, Eq)]
enum TokenRefusal {
    None,
    /// Refused for the first time since a session was open.
    New,
    /// Refused again; the first refusal was logged.
    Repeated,
}

impl Token {
    fn classify(&mut self, error: &SessionError, was_open: bool) -> TokenRefusal {
        self.is_refused &= !was_open;
        let refuses =
            |status: &Status| matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied);
        match error {
            SessionError::Status(status) if refuses(status) => {
                match std::mem::replace(&mut self.is_refused, true) {
                    true => TokenRefusal::Repeated,
                    false => TokenRefusal::New,
                }
            }
            _ => TokenRefusal::None,
        }
    }
}

/// Keeps a session open with one of the servers, without end.
pub(super) async fn run(shared: Shared, greeting: SupervisorGreeting, mut events: mpsc::Receiver<Event>) {
    let mut turns = ServerRotation::among(shared.servers.count());
    let mut token = Token::default();
    for generation in 1.. {
        // The configuration contains at least one server; it is refused otherwise.
        let Some(server) = shared.servers.at(turns.current()) else { return };
        let opened = tokio::time::Instant::now();
        let patience = turns.answer_timeout(shared.servers.count());
        let mut session = Session {
            shared: &shared,
            server: &server,
            greeting: &greeting,
            generation,
            patience,
            was_open: false,
        };
        let Err(error) = session.serve(&mut events).await;
        shared.session.send_replace(None);
        if matches!(error, SessionError::RuntimesChanged) {
            tracing::info!("the runtimes of the machine have changed; opening a new session");
            continue;
        }
        match token.classify(&error, session.was_open) {
            TokenRefusal::New => tracing::error!(
                server = %server.url,
                error = %Chain(&error),
                "the server refused the token: check `--token-file` (the setting `worker.token_file`); retrying"
            ),
            TokenRefusal::Repeated => {
                tracing::debug!(server = %server.url, "the server still refuses the token");
            }
            TokenRefusal::None if session.was_open => {
                tracing::warn!(server = %server.url, error = %Chain(&error), "session lost; reconnecting");
            }
            TokenRefusal::None => {
                tracing::warn!(server = %server.url, error = %Chain(&error), "cannot open a session; retrying");
            }
        }
        if matches!(error, SessionError::NoSupervisor) {
            return;
        }
        if let Some(leader) = error.leader() {
            shared.servers.learn(&[leader.to_owned()]);
        }
        let ended = SessionResult {
            server: &server.url,
            leader: error.leader(),
            silent: error.is_unresponsive(),
            was_open: session.was_open,
            lasted: opened.elapsed(),
        };
        let now = tokio::time::Instant::now();
        let pause = turns.next(&ended, now, shared.servers.count(), |url| shared.servers.index_of(url));
        if let Some(pause) = pause {
            discarding(&mut events, tokio::time::sleep(pause)).await;
        }
    }
}

/// Waits for `wanted` and discards messages of the supervisor, which will be repeated.
async fn discarding<T>(events: &mut mpsc::Receiver<Event>, wanted: impl Future<Output = T>) -> T {
    tokio::pin!(wanted);
    loop {
        tokio::select! {
            done = &mut wanted => return done,
            Some(_) = events.recv() => {}
        }
    }
}

struct Session<'a> {
    shared: &'a Shared,
    server: &'a Server,
    greeting: &'a SupervisorGreeting,
    generation: u64,
    /// Maximum time to wait for the server in each step of the opening.
    patience: Duration,
    was_open: bool,
}

impl Session<'_> {
    async fn serve(
        &mut self,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<std::convert::Infallible, SessionError> {
        let client = discarding(events, timeout(self.patience, self.server.connect())).await;
        let mut client = client.map_err(|_| self.timeout_error())??;
        let address = discarding(events, self.address()).await;
        let runtimes = discarding(events, runtimes::known(&self.shared.runtimes)).await;
        let holdings = self.holdings(events).await?;
        artifacts::sweep(&self.shared.layout, &holdings.held);
        let (to_server, outbox) = mpsc::channel(TO_SERVER);
        let Holdings { held, reports, .. } = holdings;
        send(&to_server, WorkerBody::Hello(self.hello(held, address, &runtimes))).await?;
        let call = timeout(self.patience, client.session(ReceiverStream::new(outbox)));
        let mut inbox = call.await.map_err(|_| self.timeout_error())??.into_inner();
        let first = timeout(self.patience, inbox.message()).await.map_err(|_| self.timeout_error())??;
        let Some(ServerMessage { body: Some(ServerBody::Welcome(welcome)) }) = first else {
            return Err(SessionError::NoWelcome);
        };
        tracing::info!(server = %self.server.url, session = welcome.session, "session opened");
        self.was_open = true;
        let stops = welcome.stops.clone();
        self.shared.send_request(Request::Stops(v1::StopBatch { stops })).await;
        self.shared.session.send_replace(Some(self.server.clone()));
        self.shared.servers.learn(&welcome.servers);
        // A server of an earlier release ends the session at a message that it does not know.
        let health = welcome.accepts_health.then_some(&*self.shared.health);

        let ended = tokio::select! {
            ended = report(&to_server, reports, events, health) => ended,
            ended = self.listen(&mut inbox, welcome.session) => ended,
            ended = Box::pin(heartbeat::run(self.shared, self.server, &welcome)) => ended,
            ended = runtimes::changed(&self.shared.runtimes, &runtimes) => ended,
        };
        ended
    }

    fn timeout_error(&self) -> SessionError {
        SessionError::Timeout(self.patience)
    }

    /// Requests all holdings of the supervisor, and waits for them.
    async fn holdings(&self, events: &mut mpsc::Receiver<Event>) -> Result<Holdings, SessionError> {
        self.shared.send_request(Request::Sync(link::Sync { generation: self.generation })).await;
        loop {
            match events.recv().await {
                Some(Event::Holdings(holdings)) if holdings.generation == self.generation => {
                    return Ok(holdings);
                }
                Some(_) => {}
                None => return Err(SessionError::NoSupervisor),
            }
        }
    }

    /// Returns the address under which tasks of the worker can be reached; empty if it is unknown.
    async fn address(&self) -> String {
        match &self.shared.config.address {
            Some(address) => address.clone(),
            None => self.shared.machine.local_address(&self.server.url).await,
        }
    }

    fn hello(&self, held: Vec<v1::JournaledExecution>, address: String, runtimes: &Probed) -> v1::Hello {
        let config = &self.shared.config;
        let capacity = &config.capacity;
        v1::Hello {
            worker_id: self.greeting.worker_id.clone(),
            name: config.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id: self.greeting.boot_id.clone(),
            labels: config.labels.clone().into_iter().collect(),
            capacity: Some(v1::Capacity {
                cpu_millis: capacity.cpu.0,
                memory_bytes: capacity.memory.0,
                custom: capacity.custom.clone().into_iter().collect(),
                slots: capacity.slots,
            }),
            capabilities: runtimes::capabilities(self.greeting, runtimes),
            executions: if is_on(Mutation::AgentHidesHeldExecutions) { Vec::new() } else { held },
            address,
        }
    }

    /// Processes the messages of the server.
    async fn listen(
        &self,
        inbox: &mut Streaming<ServerMessage>,
        session: u64,
    ) -> Result<std::convert::Infallible, SessionError> {
        let mut fetches = Downloads::new(self.shared, self.server, session);
        loop {
            let message = inbox.message().await?.ok_or(SessionError::Closed)?;
            match message.body {
                Some(ServerBody::Assignments(batch)) => {
                    crashpoint::reach(Point::AgentHasAssignment);
                    let starts = fetches.begin(batch.assignments);
                    if !starts.is_empty() {
                        self.shared.send_request(Request::Starts(Starts { starts })).await;
                    }
                }
                Some(ServerBody::Stops(batch)) => {
                    fetches.abort(&batch.stops);
                    if !is_on(Mutation::AgentForgetsStops) {
                        self.shared.send_request(Request::Stops(batch)).await;
                    }
                }
                Some(ServerBody::Acks(acks)) => self.shared.send_request(Request::Acks(acks)).await,
                // A second `Welcome` is ignored; `None` is a message type of a newer server.
                Some(ServerBody::Welcome(_)) | None => {}
            }
        }
    }
}

async fn send(to_server: &mpsc::Sender<WorkerMessage>, body: WorkerBody) -> Result<(), SessionError> {
    to_server.send(WorkerMessage { body: Some(body) }).await.map_err(|_| SessionError::Closed)
}

/// Sends reports in batches, first those of the holdings, and then the health of executions, if the server accepts it.
async fn report(
    to_server: &mpsc::Sender<WorkerMessage>,
    held: Vec<v1::Report>,
    events: &mut mpsc::Receiver<Event>,
    health: Option<&HealthTable>,
) -> Result<std::convert::Infallible, SessionError> {
    let mut reports = if is_on(Mutation::AgentReportsOnce) { Vec::new() } else { held };
    let mut batch = Vec::new();
    if let Some(health) = health {
        health.mark_all_unsent();
    }
    let wait_for_health = async || match health {
        Some(health) => health.wait_for_unsent().await,
        None => std::future::pending().await,
    };
    loop {
        send_reports(to_server, std::mem::take(&mut reports)).await?;
        let executions = health.map(|health| health.take_unsent(HEALTH_A_MESSAGE)).unwrap_or_default();
        if executions.is_empty() {
            tokio::select! {
                count = events.recv_many(&mut batch, super::EVENTS) => {
                    if count == 0 {
                        return Err(SessionError::NoSupervisor);
                    }
                }
                () = wait_for_health() => {}
            }
            reports.extend(batch.drain(..).flat_map(Event::into_reports));
        } else {
            // The report of a start was queued before the health of the execution was in the table, and is sent first.
            while let Ok(event) = events.try_recv() {
                reports.extend(event.into_reports());
            }
            send_reports(to_server, std::mem::take(&mut reports)).await?;
            send(to_server, WorkerBody::Health(v1::HealthBatch { executions })).await?;
        }
    }
}

async fn send_reports(
    to_server: &mpsc::Sender<WorkerMessage>,
    mut reports: Vec<v1::Report>,
) -> Result<(), SessionError> {
    while !reports.is_empty() {
        crashpoint::reach(Point::AgentHasReports);
        let rest = reports.split_off(fitting(&reports));
        send(to_server, WorkerBody::Reports(v1::ReportBatch { reports })).await?;
        reports = rest;
    }
    Ok(())
}

/// Returns the number of reports that fit into one message; at least 1 unless `reports` is empty.
fn fitting(reports: &[v1::Report]) -> usize {
    let mut bytes = 0;
    let fits = |report: &&v1::Report| {
        bytes += report.encoded_len();
        bytes <= MESSAGE_BYTES
    };
    reports.iter().take(REPORTS_A_MESSAGE).take_while(fits).count().max(1).min(reports.len())
}

/// Running downloads of inputs, and requests of secrets. They are aborted with the session; the server then assigns the executions again that
/// the supervisor does not hold.
struct Downloads<'a> {
    shared: &'a Shared,
    artifacts: Artifacts,
    secrets: Secrets,
    tasks: JoinSet<()>,
    aborts: HashMap<String, AbortHandle>,
}

impl<'a> Downloads<'a> {
    fn new(shared: &'a Shared, server: &Server, session: u64) -> Self {
        let client = server.connect_lazily();
        let secrets = Secrets::new(client.clone(), &shared.worker_id, session);
        let artifacts = Artifacts::new(shared, client);
        Self { shared, artifacts, secrets, tasks: JoinSet::new(), aborts: HashMap::new() }
    }

    /// Starts the necessary downloads; returns the executions without inputs and secrets.
    fn begin(&mut self, assignments: Vec<v1::Assignment>) -> Vec<Start> {
        while self.tasks.try_join_next().is_some() {}
        self.aborts.retain(|_, task| !task.is_finished());
        let (later, now): (Vec<_>, Vec<_>) =
            assignments.into_iter().partition(|a| self.artifacts.are_needed(a) || Secrets::are_needed(a));
        for assignment in later {
            self.fetch(assignment);
        }
        now.into_iter().map(|assignment| Start { assignment: Some(assignment), ..Start::default() }).collect()
    }

    fn fetch(&mut self, assignment: v1::Assignment) {
        if self.aborts.contains_key(&assignment.execution_id) {
            return;
        }
        let id = assignment.execution_id.clone();
        let (artifacts, secrets, shared) =
            (self.artifacts.clone(), self.secrets.clone(), self.shared.clone());
        let task = self.tasks.spawn(async move {
            let start = match Box::pin(prepare(&artifacts, &secrets, &assignment)).await {
                Ok(start) => Start { assignment: Some(assignment), ..start },
                Err(failure) => {
                    Start { assignment: Some(assignment), failure: Some(failure), ..Start::default() }
                }
            };
            shared.send_request(Request::Starts(Starts { starts: vec![start] })).await;
        });
        self.aborts.insert(id, task);
    }

    /// Aborts the downloads of stopped executions; the supervisor refuses those executions.
    fn abort(&mut self, stops: &[v1::Stop]) {
        for stop in stops {
            if let Some(task) = self.aborts.remove(&stop.execution_id) {
                task.abort();
            }
        }
    }
}

/// Fetches what an execution needs before its start. Secrets come last, so that they are the current ones.
async fn prepare(
    artifacts: &Artifacts,
    secrets: &Secrets,
    assignment: &v1::Assignment,
) -> Result<Start, v1::StartFailed> {
    let staged = artifacts.are_needed(assignment);
    let inputs = if staged { artifacts.stage(assignment).await? } else { Vec::new() };
    let secrets = match Secrets::are_needed(assignment) {
        true => secrets.fetch(assignment).await?,
        false => Vec::new(),
    };
    Ok(Start { staged, inputs, secrets, ..Start::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H2. A refused token is logged once, until a session has been open again.
    #[test]
    fn a_refused_token_is_logged_once() {
        let mut token = Token::default();
        let refused = || SessionError::Status(Status::unauthenticated("no valid token"));
        let told = |token: &mut Token, error, was_open| token.classify(&error, was_open);
        assert_eq!(told(&mut token, SessionError::Closed, false), TokenRefusal::None);
        assert_eq!(told(&mut token, refused(), false), TokenRefusal::New);
        assert_eq!(told(&mut token, refused(), false), TokenRefusal::Repeated);
        assert_eq!(told(&mut token, SessionError::Timeout(Duration::ZERO), false), TokenRefusal::None);
        assert_eq!(told(&mut token, refused(), false), TokenRefusal::Repeated);
        assert_eq!(told(&mut token, SessionError::Closed, true), TokenRefusal::None);
        let wrong_kind = SessionError::Status(Status::permission_denied("its token is for admins"));
        assert_eq!(told(&mut token, wrong_kind, false), TokenRefusal::New);
    }
}
