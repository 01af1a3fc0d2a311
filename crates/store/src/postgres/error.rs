//! Translation of errors of PostgreSQL and of the connection into store errors.
//!
//! The decisive question is what is in the database. An error that the server sent before it processed `COMMIT` means
//! that nothing was changed. If a connection ended, or timed out, after `COMMIT` was sent, the outcome is unknown.

use std::sync::OnceLock;

use model::{Duration, ShardId};
use tokio_postgres::error::SqlState;

use crate::StoreError;
use crate::codec::DecodeError;

/// State that a statement raises on purpose if an invariant is broken: a division by zero.
pub(super) const GUARD: &SqlState = &SqlState::DIVISION_BY_ZERO;

/// Error of a statement or a connection.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server returned an error, and nothing was changed.
    Refused(Box<tokio_postgres::Error>),
    /// The server is unreachable, or the connection ended before anything was changed.
    Unreachable(String),
    /// `COMMIT` was sent, and its outcome is unknown.
    Unknown(String),
    /// A lease is no longer valid; nothing was changed.
    Fenced(ShardId),
    /// The data, or the request, breaks an invariant. Nothing was changed.
    Broken(String),
    /// Error that is already a store error.
    Store(StoreError),
}

impl From<DecodeError> for Failure {
    fn from(damage: DecodeError) -> Self {
        Self::Broken(damage.to_string())
    }
}

impl Failure {
    /// Converts the error of a statement before its `COMMIT`, if it has one, was sent.
    pub(super) fn before_commit(error: tokio_postgres::Error) -> Self {
        if error.as_db_error().is_some() {
            Self::Refused(Box::new(error))
        } else {
            Self::Unreachable(describe(&error))
        }
    }

    /// Returns the SQLSTATE of the server's error, if it is one.
    pub(super) fn state(&self) -> Option<&SqlState> {
        match self {
            Self::Refused(error) => error.code(),
            _ => None,
        }
    }

    /// Returns whether only the transaction failed. After any other error the session is not used again: a prepared
    /// statement may be outdated, or the server may be about to end the session.
    pub(super) fn keeps_session_usable(&self) -> bool {
        self.is_contention() || self.state().is_some_and(|state| state == GUARD)
    }

    /// Returns whether nothing was changed and the same transaction may succeed immediately.
    pub(super) fn is_contention(&self) -> bool {
        self.state().is_some_and(|state| {
            *state == SqlState::T_R_SERIALIZATION_FAILURE || *state == SqlState::T_R_DEADLOCK_DETECTED
        })
    }

    /// Converts the failure into a store error.
    fn into_store_error(self, work: Work) -> StoreError {
        let error = match self {
            Self::Store(error) => return error,
            Self::Fenced(shard) => return StoreError::Fenced { shard },
            Self::Broken(reason) => return StoreError::Fatal { reason: format!("PostgreSQL: {reason}") },
            Self::Unknown(reason) => return StoreError::OutcomeUnknown { source: reason.into() },
            Self::Unreachable(reason) => return StoreError::Unavailable { source: reason.into() },
            Self::Refused(error) => error,
        };
        let Some(state) = error.code() else { return StoreError::Unavailable { source: error } };
        let reason = describe(&error);
        match (state.code(), work) {
            ("53100", _) => StoreError::Full,
            ("57014", Work::Query { limit }) => StoreError::TooSlow { limit },
            // Read-only, or a standby: another server accepts writes now.
            ("25006", _) => StoreError::Unavailable {
                source: format!("{reason}: the database is read-only; it may be a standby").into(),
            },
            // Damage that the server found in its own files.
            ("XX001" | "XX002", _) => StoreError::Fatal { reason: format!("PostgreSQL: {reason}") },
            // Violated constraints: a duplicate key, a missing value, a row changed twice.
            (code, Work::Change) if code.starts_with("23") || matches!(code, "21000" | "22012") => {
                StoreError::Fatal { reason: format!("PostgreSQL: {reason}") }
            }
            _ => StoreError::Unavailable { source: reason.into() },
        }
    }
}

/// Type of the operation that failed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    /// A query; a cancelled one exceeded `limit`.
    Query {
        limit: Duration,
    },
    Change,
}

/// Returns an error with its causes, in one line. The server's *detail* may contain values of rows, so only its message
/// is used.
pub(super) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", error.message(), error.code().code());
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Records for every caller of the store that memory and data differ.
#[derive(Debug, Default)]
pub(super) struct FatalState(OnceLock<String>);

impl FatalState {
    /// # Errors
    /// [`StoreError::Fatal`] with the first reason, if one was recorded.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.0.get() {
            None => Ok(()),
            Some(reason) => Err(StoreError::Fatal { reason: reason.clone() }),
        }
    }

    /// Converts a failure into a store error, and records it if it is fatal.
    pub(super) fn judge(&self, failure: Failure, work: Work) -> StoreError {
        let error = failure.into_store_error(work);
        if let StoreError::Fatal { reason } = &error
            && self.0.set(reason.clone()).is_ok()
        {
            tracing::error!(error = reason, "the store can no longer be trusted");
        }
        error
    }
}
