//! Pending calls of the store that the leader requested, as futures.
//!
//! Commits are polled in the order of the leader's requests, because the store executes them in the order of their
//! first poll. All other calls are independent.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use leader::{Answer, CallId, Failure, FailureKind};
use model::Duration;
use model::error_chain::Chain;
use model::record::{Batch, LiveRow};
use store::{Committed, StoreError};
use tokio::sync::mpsc;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Result of a call.
pub(super) enum Outcome {
    /// A commit, with its batch if a test has armed crash points; see `crashes`.
    Committed(CallId, Result<Committed, StoreError>, Option<Arc<Batch>>),
    /// Any other call.
    Answered(CallId, Result<Answer, Failure>),
    /// Some rows of a load that is still running.
    Rows(CallId, Vec<LiveRow>),
}

struct PendingCommit {
    id: CallId,
    batch: Option<Arc<Batch>>,
    future: BoxFuture<Result<Committed, StoreError>>,
    completed: Option<Result<Committed, StoreError>>,
}

struct PendingCall {
    id: CallId,
    future: BoxFuture<Result<Answer, Failure>>,
    /// Source of the rows of a load; all rows come before the answer.
    rows: Option<mpsc::Receiver<Vec<LiveRow>>>,
    completed: Option<Result<Answer, Failure>>,
}

/// All calls that have no answer yet.
#[derive(Default)]
pub(super) struct Calls {
    commits: VecDeque<PendingCommit>,
    calls: Vec<PendingCall>,
}

impl Calls {
    pub(super) fn commit(
        &mut self,
        id: CallId,
        batch: Option<Arc<Batch>>,
        future: impl Future<Output = Result<Committed, StoreError>> + Send + 'static,
    ) {
        self.commits.push_back(PendingCommit { id, batch, future: Box::pin(future), completed: None });
    }

    /// Adds a call, which fails as unavailable after `timeout`: a call that hangs must not prevent this server from
    /// repeating it over a connection that works.
    pub(super) fn ask(
        &mut self,
        id: CallId,
        timeout: Option<Duration>,
        rows: Option<mpsc::Receiver<Vec<LiveRow>>>,
        future: impl Future<Output = Result<Answer, StoreError>> + Send + 'static,
    ) {
        let future = async move {
            let Some(timeout) = timeout else { return future.await.map_err(|error| failure(&error)) };
            match tokio::time::timeout(timeout.to_std(), future).await {
                Ok(answer) => answer.map_err(|error| failure(&error)),
                Err(_elapsed) => Err(failure(&timed_out(timeout))),
            }
        };
        self.calls.push(PendingCall { id, future: Box::pin(future), rows, completed: None });
    }

    pub(super) fn abandon(&mut self, id: CallId) {
        self.commits.retain(|commit| commit.id != id);
        self.calls.retain(|other| other.id != id);
    }

    /// Waits for the next outcome; ignores rows if `takes_rows` is false. Cancel-safe.
    pub(super) async fn next(&mut self, takes_rows: bool) -> Outcome {
        poll_fn(|context| self.poll(context, takes_rows)).await
    }

    fn poll(&mut self, context: &mut Context<'_>, takes_rows: bool) -> Poll<Outcome> {
        for commit in self.commits.iter_mut().filter(|commit| commit.completed.is_none()) {
            if let Poll::Ready(result) = commit.future.as_mut().poll(context) {
                commit.completed = Some(result);
            }
        }
        if let Some(result) = self.commits.front_mut().and_then(|oldest| oldest.completed.take())
            && let Some(PendingCommit { id, batch, .. }) = self.commits.pop_front()
        {
            return Poll::Ready(Outcome::Committed(id, result, batch));
        }
        // Rows may be ready during a whole load: a renewal must not wait behind them.
        let rowless = |other: &PendingCall| other.rows.is_none();
        let loads = |other: &PendingCall| takes_rows && other.rows.is_some();
        let outcome = self.poll_others(context, rowless).or_else(|| self.poll_others(context, loads));
        let Some((i, outcome)) = outcome else { return Poll::Pending };
        if matches!(outcome, Outcome::Answered(..)) {
            self.calls.swap_remove(i);
        }
        Poll::Ready(outcome)
    }
}

impl Calls {
    fn poll_others(
        &mut self,
        context: &mut Context<'_>,
        which: impl Fn(&PendingCall) -> bool,
    ) -> Option<(usize, Outcome)> {
        let others = self.calls.iter_mut().enumerate().filter(|(_, other)| which(other));
        others.into_iter().find_map(|(i, other)| match other.poll(context) {
            Poll::Ready(outcome) => Some((i, outcome)),
            Poll::Pending => None,
        })
    }
}

impl PendingCall {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        if self.completed.is_none()
            && let Poll::Ready(answer) = self.future.as_mut().poll(context)
        {
            self.completed = Some(answer);
        }
        if let Some(rows) = &mut self.rows {
            match rows.poll_recv(context) {
                Poll::Ready(Some(rows)) => return Poll::Ready(Outcome::Rows(self.id, rows)),
                Poll::Ready(None) => self.rows = None,
                Poll::Pending => return Poll::Pending,
            }
        }
        match self.completed.take() {
            Some(answer) => Poll::Ready(Outcome::Answered(self.id, answer)),
            None => Poll::Pending,
        }
    }
}

/// Classifies an error of the store for the leader.
pub(super) fn failure(error: &StoreError) -> Failure {
    let kind = match error {
        StoreError::Fenced { .. } => FailureKind::Fenced,
        StoreError::Full => FailureKind::Full,
        StoreError::Unavailable { .. } => FailureKind::Unavailable,
        StoreError::OutcomeUnknown { .. } => FailureKind::OutcomeUnknown,
        StoreError::TooNew { .. } => FailureKind::TooNew,
        StoreError::Fatal { .. } => FailureKind::Fatal,
        _ => FailureKind::Other,
    };
    let message = match error {
        StoreError::Fatal { reason } => reason.clone(),
        error => Chain(error).to_string(),
    };
    Failure { kind, message }
}

fn timed_out(timeout: Duration) -> StoreError {
    StoreError::Unavailable { source: format!("no answer within {timeout}").into() }
}
