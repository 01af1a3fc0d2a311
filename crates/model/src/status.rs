//! Statuses of jobs and executions.
//!
//! Each status has a name for the API and a number for stores. Neither ever changes, because clients and stored rows
//! contain them.
//!
//! - `synonyms`: words of other schedulers, which errors answer with ours.

mod synonyms;

/// Defines an enum of statuses with a name and a number for each.
macro_rules! statuses {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $code:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
            utoipa::ToSchema,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        $crate::status::words! { $name, concat!("a status of ", $what), { $($variant = $text;)* } }

        impl $name {
            /// Returns the number of the status in stores; a number never changes its meaning.
            pub const fn code(self) -> u8 {
                match self { $(Self::$variant => $code,)* }
            }

            /// Returns the status with this number, or `None` if there is none.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

/// The words of an enum: its values in order, their names, and the value with a name.
macro_rules! words {
    ($name:ident, $what:expr, { $($variant:ident = $text:literal;)* }) => {
        impl $name {
            /// All values, in the order in which an object goes through them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the name in the API, the CLI and the docs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::status::UnknownWord;

            fn from_str(text: &str) -> Result<Self, $crate::status::UnknownWord> {
                Self::ALL.iter().copied().find(|s| s.as_str() == text).ok_or_else(|| {
                    let known: Vec<_> = Self::ALL.iter().map(|s| s.as_str()).collect();
                    $crate::status::UnknownWord::new(text, $what, &known)
                })
            }
        }
    };
}

/// Text that is not the name of a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}: {ours}expected one of {known}")]
pub struct UnknownWord {
    text: String,
    what: &'static str,
    /// Our words for it, if it is a word of another scheduler; empty otherwise.
    ours: String,
    known: String,
}

impl UnknownWord {
    pub(crate) fn new(text: &str, what: &'static str, known: &[&'static str]) -> Self {
        let text: String = text.chars().take(64).collect();
        let ours = synonyms::of(&text, what, known).map(|ours| format!("Belfry calls it {ours}; "));
        Self { text, what, ours: ours.unwrap_or_default(), known: known.join(", ") }
    }
}

pub(crate) use {statuses, words};

statuses! {
    /// Status of a job. See [`crate::lifecycle`] for the transitions.
    JobStatus, "a job" {
        /// Accepted; the scheduled time is in the future, or upstream jobs have not ended.
        Ready = 0, "ready";
        /// Waiting in its queue.
        Waiting = 1, "waiting";
        /// Has an execution on a worker.
        Running = 2, "running";
        /// Failed; waiting for the retry delay before it enters its queue again.
        Retrying = 3, "retrying";
        /// Ended successfully.
        Succeeded = 4, "succeeded";
        /// Ended with a failure and no retries left.
        Failed = 5, "failed";
        /// Ended by a cancel request, or because an upstream job did not end as required.
        Cancelled = 6, "cancelled";
        /// Ended because its start deadline passed.
        Expired = 7, "expired";
    }
}

impl JobStatus {
    /// Returns whether the job has ended; a final status never changes.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::Expired)
    }
}

statuses! {
    /// Status of an execution; a final status never changes.
    ExecutionStatus, "an execution" {
        /// Assigned to a worker, which has not reported the start yet.
        Assigned = 0, "assigned";
        /// The worker reported the start.
        Running = 1, "running";
        /// Ended successfully.
        Succeeded = 2, "succeeded";
        /// Failed, or could not be started.
        Failed = 3, "failed";
        /// Stopped because the job was cancelled.
        Cancelled = 4, "cancelled";
        /// The worker was lost, or interrupted the execution.
        Lost = 5, "lost";
        /// The worker declined the execution before it started.
        Refused = 6, "refused";
        /// The worker was lost before it reported a result. The result is accepted if the worker reconnects before
        /// another execution of the job is started.
        Unknown = 7, "unknown";
    }
}

impl ExecutionStatus {
    /// Returns whether the execution has ended; a final status never changes.
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Assigned | Self::Running | Self::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_round_trips_through_its_name_and_code() {
        for &status in JobStatus::ALL {
            assert_eq!(status.as_str().parse(), Ok(status));
            assert_eq!(JobStatus::from_code(status.code()), Some(status));
            assert_eq!(serde_json::to_string(&status).unwrap(), format!("\"{status}\""));
        }
        for &status in ExecutionStatus::ALL {
            assert_eq!(status.as_str().parse(), Ok(status));
            assert_eq!(ExecutionStatus::from_code(status.code()), Some(status));
        }
    }

    #[test]
    fn an_unknown_status_names_the_known_ones() {
        insta::assert_snapshot!("blue".parse::<JobStatus>().unwrap_err(),
            @"`blue` is not a status of a job: expected one of ready, waiting, running, retrying, succeeded, failed, cancelled, expired");
    }
}
