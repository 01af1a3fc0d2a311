//! What an error of PostgreSQL, or of the way to it, means for the caller.
//!
//! The question is always what is in the database now. An error that the server sent before it looked
//! at `COMMIT` means that nothing was changed. A connection that ended, or fell silent, after `COMMIT`
//! was on its way says nothing: the outcome is unknown.

use std::sync::OnceLock;

use model::{Duration, ShardId};
use tokio_postgres::error::SqlState;

use crate::StoreError;
use crate::codec::Damage;

/// What a statement raises on purpose where a promise is broken: a division by zero.
pub(super) const GUARD: &SqlState = &SqlState::DIVISION_BY_ZERO;

/// Why something did not go through.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server said so, and nothing was changed.
    Refused(Box<tokio_postgres::Error>),
    /// The server cannot be reached, or the connection ended before anything was changed.
    Unreachable(String),
    /// `COMMIT` was on its way, and what became of it is not known.
    Unknown(String),
    /// A lease does not hold any more; nothing was changed.
    Fenced(ShardId),
    /// The data, or what was asked for, is not as it must be. Nothing was changed.
    Broken(String),
    /// Already in the caller's words.
    Store(StoreError),
}

impl From<Damage> for Failure {
    fn from(damage: Damage) -> Self {
        Self::Broken(damage.to_string())
    }
}

impl Failure {
    /// What came of a statement before its `COMMIT`, if it has one, was sent.
    pub(super) fn before_commit(error: tokio_postgres::Error) -> Self {
        if error.as_db_error().is_some() {
            Self::Refused(Box::new(error))
        } else {
            Self::Unreachable(describe(&error))
        }
    }

    /// The state of the server's error, if it is one.
    pub(super) fn state(&self) -> Option<&SqlState> {
        match self {
            Self::Refused(error) => error.code(),
            _ => None,
        }
    }

    /// Whether only the transaction failed. After any other error the session is not used again: a
    /// prepared statement may not fit the tables any more, or the server may be about to end it.
    pub(super) fn spares_the_session(&self) -> bool {
        self.is_contention() || self.state().is_some_and(|state| state == GUARD)
    }

    /// Whether the same transaction may go through at once, and nothing of it was done.
    pub(super) fn is_contention(&self) -> bool {
        self.state().is_some_and(|state| {
            *state == SqlState::T_R_SERIALIZATION_FAILURE || *state == SqlState::T_R_DEADLOCK_DETECTED
        })
    }

    /// In the caller's words.
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
            // Read-only, or a standby: the writes are elsewhere now.
            ("25006", _) => StoreError::Unavailable {
                source: format!("{reason}: the database takes no writes; is it a standby?").into(),
            },
            // Damage that the server found in its own files.
            ("XX001" | "XX002", _) => StoreError::Fatal { reason: format!("PostgreSQL: {reason}") },
            // The seat belts: a key used twice, a row without what it must have, a row changed twice.
            (code, Work::Change) if code.starts_with("23") || matches!(code, "21000" | "22012") => {
                StoreError::Fatal { reason: format!("PostgreSQL: {reason}") }
            }
            _ => StoreError::Unavailable { source: reason.into() },
        }
    }
}

/// What was being done when it failed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    /// A query; one that was cancelled took longer than this.
    Query { limit: Duration },
    /// A change.
    Change,
}

/// An error with its causes, in one line. What the server calls the *detail* may have values of rows in
/// it, so only its message is told.
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

/// Remembers that memory and data have come apart, for every caller of the store.
#[derive(Debug, Default)]
pub(super) struct Trust(OnceLock<String>);

impl Trust {
    /// # Errors
    /// [`StoreError::Fatal`] with the first reason, once there was one.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.0.get() {
            None => Ok(()),
            Some(reason) => Err(StoreError::Fatal { reason: reason.clone() }),
        }
    }

    /// Puts a failure into the caller's words, and remembers it if it is the end.
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
