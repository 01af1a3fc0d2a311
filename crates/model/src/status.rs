//! The states of jobs and executions.

/// An enum of states with a word and a number for each.
macro_rules! statuses {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $code:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
            utoipa::ToSchema,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every one, in the order of a life.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word in the API, the CLI and the docs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The number that stores keep; never changes its meaning.
            pub const fn code(self) -> u8 {
                match self { $(Self::$variant => $code,)* }
            }

            /// From the number that a store kept.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::status::UnknownStatus;

            fn from_str(text: &str) -> Result<Self, $crate::status::UnknownStatus> {
                Self::ALL.iter().copied().find(|s| s.as_str() == text).ok_or_else(|| {
                    let known = Self::ALL.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", ");
                    $crate::status::UnknownStatus::new(text, $what, known)
                })
            }
        }
    };
}

/// A word that names no status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no status of {what}: expected one of {known}")]
pub struct UnknownStatus {
    text: String,
    what: &'static str,
    known: String,
}

impl UnknownStatus {
    pub(crate) fn new(text: &str, what: &'static str, known: String) -> Self {
        Self { text: text.chars().take(64).collect(), what, known }
    }
}

pub(crate) use statuses;

statuses! {
    /// Where a job stands. [`crate::lifecycle`] has the transitions.
    JobStatus, "a job" {
        /// Accepted; waiting for its time.
        Ready = 0, "ready";
        /// In its queue.
        Waiting = 1, "waiting";
        /// Has an execution on a worker.
        Running = 2, "running";
        /// Failed, and waiting for its backoff before it enters its queue again.
        Retrying = 3, "retrying";
        /// Ended well.
        Succeeded = 4, "succeeded";
        /// Ended badly, with no retries left.
        Failed = 5, "failed";
        /// Ended because somebody asked for it.
        Cancelled = 6, "cancelled";
        /// Ended because its starting deadline passed.
        Expired = 7, "expired";
    }
}

impl JobStatus {
    /// Whether it never changes again.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::Expired)
    }
}

statuses! {
    /// Where an execution stands; it only moves forward.
    ExecutionStatus, "an execution" {
        /// Given to a worker, which has not said yet that it started.
        Assigned = 0, "assigned";
        /// The worker said that it started.
        Running = 1, "running";
        /// It ended well.
        Succeeded = 2, "succeeded";
        /// It ended badly, or could not be started.
        Failed = 3, "failed";
        /// It was stopped because the job was cancelled.
        Cancelled = 4, "cancelled";
        /// Its worker was lost, or it was interrupted under it.
        Lost = 5, "lost";
        /// The worker declined it before anything started.
        Refused = 6, "refused";
        /// Its worker was lost before it reported: the result is accepted if the worker comes back before another
        /// execution of the job is started.
        Unknown = 7, "unknown";
    }
}

impl ExecutionStatus {
    /// Whether it never changes again.
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Assigned | Self::Running | Self::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_survives_its_word_and_its_code() {
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
        insta::assert_snapshot!("done".parse::<JobStatus>().unwrap_err(),
            @"`done` is no status of a job: expected one of ready, waiting, running, retrying, succeeded, failed, cancelled, expired");
    }
}
