//! Connections, and transactions that are sent in one message.
//!
//! A transaction is a list of statements that is complete before the first is sent. All of them, from `BEGIN` to
//! `COMMIT`, are sent and answered together, in one round trip. A statement whose condition fails (an invalid lease, a
//! missing row) raises an error, so that the server turns the following `COMMIT` into a rollback.
//!
//! A session has no state except prepared statements: limits are set for each transaction. So any connection will do,
//! also one that a pooler lends for a single transaction.
//!
//! # Invariants
//! - A connection returns to its lane only after every statement of a transaction was answered. If the caller's future
//!   is dropped earlier, the connection is closed and the server rolls back.
//! - A lane has a limited number of connections; a caller waits for one no longer than the limit.

use std::borrow::Cow;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use model::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Connection, Row, Statement};

use super::address::Address;
use super::error::{Failure, describe};
use super::param::Param;
use crate::StoreError;

/// Maximum time that a transaction may be idle between statements. All its statements are already sent, so this happens
/// only if the client has crashed or lost its connection; until then the transaction holds its locks.
const IDLE_MAX_MILLIS: u64 = 5_000;
/// Time that a client waits for an answer beyond the server's limit.
const ANSWER_GRACE: std::time::Duration = std::time::Duration::from_secs(5);

/// The statement timeout must not end a commit's wait for a standby: the server would report that as a success. Not in
/// one message with `COMMIT`, which must also be executed after an error.
const NO_LIMIT: &str = "SET LOCAL statement_timeout = 0";

/// Statement with its parameters.
///
/// A constant text is prepared once in each session; a text that was built for a filter is planned for its parameters.
pub(super) struct Query {
    sql: Cow<'static, str>,
    params: Vec<Param>,
}

impl Query {
    pub(super) fn new(sql: impl Into<Cow<'static, str>>, params: Vec<Param>) -> Self {
        Self { sql: sql.into(), params }
    }
}

/// Mode of a transaction, with its statement timeout.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mode {
    /// Reads one snapshot of the database.
    Read { limit: Duration },
    /// Changes rows.
    Write { limit: Duration },
}

impl Mode {
    pub(super) fn limit(self) -> Duration {
        match self {
            Self::Read { limit } | Self::Write { limit } => limit,
        }
    }

    fn begin(self) -> String {
        let mode = match self {
            Self::Read { .. } => "ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Self::Write { .. } => "ISOLATION LEVEL READ COMMITTED",
        };
        format!(
            "BEGIN {mode}; SET LOCAL statement_timeout = {}; \
             SET LOCAL idle_in_transaction_session_timeout = {IDLE_MAX_MILLIS}",
            self.limit().as_millis().max(1),
        )
    }
}

/// Session with the database server.
pub(super) struct Session {
    client: Client,
    /// Whether a warning was received, for example that the standby did not confirm a commit.
    warned: Arc<AtomicBool>,
    /// Prepared statements by text; `None` if a pooler does not support them.
    statements: Option<HashMap<&'static str, Statement>>,
}

/// Failure of a transaction, with the index of the failed statement.
#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) at: Option<usize>,
    pub(super) failure: Failure,
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self { at: None, failure }
    }
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        stopped.failure
    }
}

type Answer = Result<Vec<Row>, tokio_postgres::Error>;

impl Session {
    /// Runs a transaction; returns the rows of each statement.
    async fn run(&mut self, mode: Mode, queries: &[Query]) -> Result<Vec<Vec<Row>>, Stopped> {
        // Statements are prepared outside of the transaction and its limits, and also wait for locks.
        let prepared = match timeout(mode.limit().to_std(), self.prepare(queries)).await {
            Ok(prepared) => prepared?,
            Err(_) => return Err(unprepared(mode).into()),
        };
        self.warned.store(false, Ordering::Relaxed);
        let begin = mode.begin();
        let client = &self.client;
        let mut sent: Vec<Pin<Box<dyn Future<Output = Answer> + Send + '_>>> = Vec::new();
        sent.push(Box::pin(async { client.batch_execute(&begin).await.map(|()| Vec::new()) }));
        for (query, statement) in queries.iter().zip(&prepared) {
            sent.push(Box::pin(async move {
                match statement {
                    Some(statement) => {
                        let values = query.params.iter().map(|(value, _)| &**value as &(dyn ToSql + Sync));
                        client.query(statement, &values.collect::<Vec<_>>()).await
                    }
                    None => {
                        let values = query.params.iter();
                        let values = values.map(|(value, of)| (&**value as &(dyn ToSql + Sync), of.clone()));
                        client.query_typed(&query.sql, &values.collect::<Vec<_>>()).await
                    }
                }
            }));
        }
        for end in [NO_LIMIT, "COMMIT"] {
            sent.push(Box::pin(async { client.batch_execute(end).await.map(|()| Vec::new()) }));
        }
        let wait = mode.limit().to_std() + ANSWER_GRACE;
        let answers = match timeout(wait, in_order(sent)).await {
            Ok(answers) => answers,
            Err(_) => return Err(silent(mode).into()),
        };
        self.judge(mode, answers)
    }

    /// Combines the answers: the rows if everything was executed, or the failure.
    fn judge(&self, mode: Mode, answers: Vec<Answer>) -> Result<Vec<Vec<Row>>, Stopped> {
        let commit = answers.len() - 1;
        let mut rows = Vec::with_capacity(answers.len());
        for (at, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(found) => rows.push(found),
                Err(error) => {
                    let sure = error.as_db_error().is_some() && (at < commit || is_rollback(error.code()));
                    let failure = match mode {
                        Mode::Write { .. } if !sure => Failure::Unknown(describe(&error)),
                        _ => Failure::before_commit(error),
                    };
                    return Err(Stopped { at: at.checked_sub(1), failure });
                }
            }
        }
        if matches!(mode, Mode::Write { .. }) && self.warned.load(Ordering::Relaxed) {
            let reason = "the server committed with a warning: its standby may not have the commit";
            return Err(Failure::Unknown(reason.into()).into());
        }
        // Remove the answers to `BEGIN`, and to the two statements at the end.
        rows.truncate(commit - 1);
        rows.remove(0);
        Ok(rows)
    }

    /// Returns the prepared statements of these queries; a new one takes a round trip once.
    async fn prepare(&mut self, queries: &[Query]) -> Result<Vec<Option<Statement>>, Failure> {
        let mut prepared = Vec::with_capacity(queries.len());
        for query in queries {
            let (Some(statements), Cow::Borrowed(sql)) = (&mut self.statements, &query.sql) else {
                prepared.push(None);
                continue;
            };
            if !statements.contains_key(sql) {
                let types: Vec<_> = query.params.iter().map(|(_, of)| of.clone()).collect();
                let statement = self.client.prepare_typed(sql, &types);
                statements.insert(sql, statement.await.map_err(Failure::before_commit)?);
            }
            prepared.push(statements.get(sql).cloned());
        }
        Ok(prepared)
    }
}

/// Failure of a timeout during the preparation: nothing was executed.
fn unprepared(mode: Mode) -> Failure {
    match mode {
        Mode::Read { limit } => Failure::Store(StoreError::TooSlow { limit }),
        Mode::Write { limit } => Failure::Unreachable(format!("the database did not answer within {limit}")),
    }
}

fn silent(mode: Mode) -> Failure {
    match mode {
        Mode::Read { limit } => Failure::Store(StoreError::TooSlow { limit }),
        Mode::Write { limit } => Failure::Unknown(format!("the database did not answer within {limit}")),
    }
}

/// Returns whether this answer to `COMMIT` proves that the transaction was rolled back.
fn is_rollback(state: Option<&SqlState>) -> bool {
    state.is_some_and(|state| {
        let code = state.code();
        code.starts_with("23") || (code.starts_with("40") && code != "40003")
    })
}

/// Polls all futures in this order, so that they are sent in it; waits for all.
async fn in_order(mut pending: Vec<Pin<Box<dyn Future<Output = Answer> + Send + '_>>>) -> Vec<Answer> {
    let mut answers: Vec<Option<Answer>> = pending.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        // The answers come in the same order, but each future must be polled once to be sent.
        for (future, answer) in pending.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(found) = future.as_mut().poll(context)
            {
                *answer = Some(found);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// Bounded pool of sessions for one purpose.
#[derive(Clone)]
pub(super) struct Lane {
    address: Arc<Address>,
    /// Runtime that drives the sessions; `None` for the runtime of the caller that opens one.
    runtime: Option<Handle>,
    idle: Arc<Mutex<Vec<Session>>>,
    permits: Arc<Semaphore>,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Lane {
    pub(super) fn new(address: Arc<Address>, size: usize) -> Self {
        let permits = Arc::new(Semaphore::new(size.max(1)));
        Self { address, runtime: None, idle: Arc::default(), permits }
    }

    /// Returns a lane for callers on several runtimes: the current runtime drives its sessions, so that a blocked
    /// runtime of one caller does not block the others.
    pub(super) fn shared(self) -> Self {
        Self { runtime: Some(Handle::current()), ..self }
    }

    /// Runs a transaction in one of the lane's sessions; opens a new session if none is idle.
    pub(super) async fn run(&self, mode: Mode, queries: &[Query]) -> Result<Vec<Vec<Row>>, Stopped> {
        let busy = || Failure::Unreachable("too many concurrent calls".into());
        let wait = timeout(mode.limit().to_std(), self.permits.acquire());
        let _permit = wait.await.map_err(|_| busy())?.map_err(|_| busy())?;
        let mut session = match self.idle_session() {
            Some(session) => session,
            None => self.open().await?,
        };
        let result = session.run(mode, queries).await;
        let whole = result.as_ref().map_or_else(|stopped| stopped.failure.keeps_session_usable(), |_| true);
        if whole && !session.client.is_closed() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        }
        result
    }

    fn idle_session(&self) -> Option<Session> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| idle.pop()).find(|session| !session.client.is_closed())
    }

    async fn open(&self) -> Result<Session, Failure> {
        let warned = Arc::new(AtomicBool::new(false));
        let client = match &self.runtime {
            None => self.address.connect(&warned).await?,
            Some(runtime) => {
                let (address, warned) = (Arc::clone(&self.address), Arc::clone(&warned));
                let connecting = runtime.spawn(async move { address.connect(&warned).await });
                connecting.await.map_err(|error| Failure::Unreachable(error.to_string()))??
            }
        };
        let statements = self.address.prepares.then(HashMap::new);
        Ok(Session { client, warned, statements })
    }
}

/// Drives a connection until it ends, and watches for warnings.
pub(super) async fn drive<S, T>(mut connection: Connection<S, T>, warned: Arc<AtomicBool>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    loop {
        match std::future::poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notice(notice))) => {
                if notice.parsed_severity() == Some(Severity::Warning) {
                    warned.store(true, Ordering::Relaxed);
                    tracing::warn!(error = notice.message(), "database warning");
                }
            }
            Some(Ok(_)) => {}
            // The error also reaches the callers that wait for an answer.
            Some(Err(_)) | None => return,
        }
    }
}
