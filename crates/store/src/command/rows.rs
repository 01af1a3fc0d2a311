//! Changes of single rows, with their sealed columns.
//!
//! [`seal`](super::seal) makes them from the changes of a batch, and SQLite writes them. A log stores them as they are,
//! so the server that applies an entry of a log binds bytes and parses no spec. Columns that queries search for are
//! plain values; the rest of a record is a [`Blob`].

use std::borrow::Cow;
use std::fmt;

use model::changelog::{LiveChange, LiveKey};
use model::record::{KeyRecord, RunKeyRecord};
use model::{BackfillId, JobId, RunId, ScheduleId, ServiceId, ShardId, Timestamp, WorkflowId};
use serde::de::{Error as DecodeError, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of an ID, in the order of the database.
pub(crate) type Key = [u8; 16];

/// Bytes of a sealed column: owned when they were just sealed, borrowed from the entry of a log.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Blob<'a>(pub(crate) Cow<'a, [u8]>);

impl From<Vec<u8>> for Blob<'_> {
    fn from(sealed: Vec<u8>) -> Self {
        Self(Cow::Owned(sealed))
    }
}

impl fmt::Debug for Blob<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({} bytes)", self.0.len())
    }
}

impl Serialize for Blob<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Blob<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl<'de> Visitor<'de> for Bytes {
            type Value = &'de [u8];

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_borrowed_bytes<E: DecodeError>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
                Ok(bytes)
            }
        }
        deserializer.deserialize_bytes(Bytes).map(|bytes| Self(Cow::Borrowed(bytes)))
    }
}

/// Labels: keys with their values.
pub(crate) type Labels<'a> = Vec<(&'a str, &'a str)>;

/// Change of a row and of the rows that belong to it: its head and its labels.
///
/// A log contains the position of a variant in this list, so new variants are added at the end, and fields never
/// change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RowChange<'a> {
    PurgeKeys {
        shard: u16,
        expired_before: i64,
    },
    NewExecution {
        #[serde(borrow)]
        row: ExecutionColumns<'a>,
        /// Namespace and name of the job, if the batch contains them.
        #[serde(borrow)]
        names: Option<(&'a str, &'a str)>,
    },
    #[serde(borrow)]
    Execution(ExecutionColumns<'a>),
    RemoveSchedule(Key),
    NewSchedule {
        id: Key,
        #[serde(borrow)]
        state: ScheduleColumns<'a>,
        #[serde(borrow)]
        head: NamedHead<'a>,
    },
    Schedule {
        id: Key,
        #[serde(borrow)]
        state: ScheduleColumns<'a>,
        #[serde(borrow)]
        head: Option<NamedHead<'a>>,
    },
    #[serde(borrow)]
    Ledger(LedgerRow<'a>),
    NewBackfill {
        id: Key,
        schedule: Key,
        #[serde(borrow)]
        state: BackfillColumns<'a>,
        #[serde(borrow)]
        head: Blob<'a>,
    },
    Backfill {
        id: Key,
        #[serde(borrow)]
        state: BackfillColumns<'a>,
    },
    RemoveWorkflow(Key),
    NewWorkflow {
        id: Key,
        generation: u64,
        #[serde(borrow)]
        state: Blob<'a>,
        #[serde(borrow)]
        head: NamedHead<'a>,
    },
    Workflow {
        id: Key,
        generation: u64,
        #[serde(borrow)]
        state: Blob<'a>,
        #[serde(borrow)]
        head: Option<NamedHead<'a>>,
    },
    NewRun {
        id: Key,
        #[serde(borrow)]
        state: RunColumns<'a>,
        #[serde(borrow)]
        head: RunHeadColumns<'a>,
    },
    Run {
        id: Key,
        #[serde(borrow)]
        state: RunColumns<'a>,
    },
    Step {
        run: Key,
        list: i64,
        number: i64,
        status: u8,
        #[serde(borrow)]
        state: Blob<'a>,
        /// Name and SHA-256 of each version of an artifact that the step needs.
        #[serde(borrow)]
        pins: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    },
    Elements {
        run: Key,
        step: u32,
        first: u32,
        #[serde(borrow)]
        batch: Blob<'a>,
    },
    RunKey(KeyColumns),
    RemoveService(Key),
    NewService {
        id: Key,
        #[serde(borrow)]
        state: Blob<'a>,
        #[serde(borrow)]
        head: NamedHead<'a>,
    },
    Service {
        id: Key,
        #[serde(borrow)]
        state: Blob<'a>,
        #[serde(borrow)]
        head: Option<NamedHead<'a>>,
    },
    NewJob {
        id: Key,
        #[serde(borrow)]
        state: JobColumns<'a>,
        #[serde(borrow)]
        head: JobHeadColumns<'a>,
    },
    Job {
        id: Key,
        #[serde(borrow)]
        state: JobColumns<'a>,
        #[serde(borrow)]
        head: Option<JobHeadColumns<'a>>,
    },
    Checkpoint {
        job: Key,
        version: u64,
        content_type: &'a str,
        saved_at: i64,
        #[serde(borrow)]
        data: Blob<'a>,
    },
    Key(KeyColumns),
    Worker {
        id: Key,
        #[serde(borrow)]
        record: Blob<'a>,
    },
    RemoveWorker(Key),
    Queue {
        name: &'a str,
        #[serde(borrow)]
        record: Blob<'a>,
    },
    RemoveQueue(&'a str),
    Namespace {
        name: &'a str,
        #[serde(borrow)]
        record: Blob<'a>,
    },
    RemoveNamespace(&'a str),
    Calendar {
        namespace: &'a str,
        name: &'a str,
        #[serde(borrow)]
        record: Blob<'a>,
    },
    RemoveCalendar {
        namespace: &'a str,
        name: &'a str,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExecutionColumns<'a> {
    pub(crate) id: Key,
    pub(crate) job: Key,
    pub(crate) number: u32,
    pub(crate) fence: u64,
    pub(crate) worker: Key,
    pub(crate) status: u8,
    /// Whether the status is final.
    pub(crate) ended: bool,
    #[serde(borrow)]
    pub(crate) rest: Blob<'a>,
}

/// Head of a schedule, workflow or service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamedHead<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    #[serde(borrow)]
    pub(crate) owner: Option<&'a str>,
    #[serde(borrow)]
    pub(crate) head: Blob<'a>,
    #[serde(borrow)]
    pub(crate) labels: Labels<'a>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScheduleColumns<'a> {
    pub(crate) status: u8,
    pub(crate) next_at: Option<i64>,
    #[serde(borrow)]
    pub(crate) state: Blob<'a>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LedgerRow<'a> {
    pub(crate) first: i64,
    pub(crate) schedule: Key,
    pub(crate) generation: u64,
    pub(crate) cause: u8,
    pub(crate) backfill: Option<Key>,
    pub(crate) last: i64,
    pub(crate) count: u64,
    pub(crate) outcome: u8,
    pub(crate) work: Option<Key>,
    pub(crate) decided_at: i64,
    #[serde(borrow)]
    pub(crate) rest: Blob<'a>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackfillColumns<'a> {
    pub(crate) status: u8,
    pub(crate) finished_at: Option<i64>,
    #[serde(borrow)]
    pub(crate) state: Blob<'a>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunColumns<'a> {
    pub(crate) status: i16,
    pub(crate) expires_at: Option<i64>,
    #[serde(borrow)]
    pub(crate) state: Blob<'a>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunHeadColumns<'a> {
    pub(crate) workflow: Option<Key>,
    pub(crate) caller: Option<Key>,
    pub(crate) schedule: Option<Key>,
    pub(crate) backfill: Option<Key>,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// Hash of the definition.
    pub(crate) hash: Key,
    #[serde(borrow)]
    pub(crate) definition: Blob<'a>,
    #[serde(borrow)]
    pub(crate) head: Blob<'a>,
}

/// Idempotency key of a job or a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyColumns {
    pub(crate) shard: u16,
    pub(crate) expires_at: i64,
    pub(crate) key: Key,
    pub(crate) body: Key,
    /// ID of the job or run.
    pub(crate) work: Key,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobColumns<'a> {
    pub(crate) status: u8,
    /// Whether the status is final.
    pub(crate) ended: bool,
    pub(crate) worker: Option<Key>,
    pub(crate) expires_at: Option<i64>,
    #[serde(borrow)]
    pub(crate) state: Blob<'a>,
    #[serde(borrow)]
    pub(crate) history: Blob<'a>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobHeadColumns<'a> {
    pub(crate) namespace: &'a str,
    #[serde(borrow)]
    pub(crate) owner: Option<&'a str>,
    pub(crate) queue: &'a str,
    pub(crate) name: &'a str,
    #[serde(borrow)]
    pub(crate) head: Blob<'a>,
    pub(crate) schedule: Option<Key>,
    pub(crate) backfill: Option<Key>,
    pub(crate) run: Option<Key>,
    pub(crate) service: Option<Key>,
    #[serde(borrow)]
    pub(crate) labels: Labels<'a>,
}

impl RowChange<'_> {
    /// Returns the effect of the change on the live rows, as [`LiveChange::of`] does for a change of a batch.
    pub(crate) fn live_change(&self) -> Option<LiveChange> {
        let bits = |key: &Key| u128::from_be_bytes(*key);
        let key = match self {
            Self::NewJob { id, state, .. } | Self::Job { id, state, .. } if state.ended => {
                return Some(LiveChange::Ended(JobId::from_bits(bits(id))));
            }
            Self::NewJob { id, .. } | Self::Job { id, .. } => LiveKey::Job(JobId::from_bits(bits(id))),
            Self::NewExecution { row, .. } | Self::Execution(row) => {
                LiveKey::Job(JobId::from_bits(bits(&row.job)))
            }
            Self::Key(columns) => {
                return Some(LiveChange::Key(KeyRecord {
                    key: bits(&columns.key),
                    body: bits(&columns.body),
                    job: JobId::from_bits(bits(&columns.work)),
                    expires_at: Timestamp::from_micros(columns.expires_at),
                }));
            }
            Self::RunKey(columns) => {
                return Some(LiveChange::RunKey(RunKeyRecord {
                    key: bits(&columns.key),
                    body: bits(&columns.body),
                    run: RunId::from_bits(bits(&columns.work)),
                    expires_at: Timestamp::from_micros(columns.expires_at),
                }));
            }
            Self::PurgeKeys { shard, expired_before } => {
                return Some(LiveChange::KeysPurged {
                    shard: ShardId(*shard),
                    expired_before: Timestamp::from_micros(*expired_before),
                });
            }
            Self::Worker { .. } | Self::RemoveWorker(_) => LiveKey::Workers,
            Self::Queue { .. } | Self::RemoveQueue(_) => LiveKey::Queues,
            Self::Namespace { .. } | Self::RemoveNamespace(_) => LiveKey::Namespaces,
            Self::Calendar { .. } | Self::RemoveCalendar { .. } => LiveKey::Calendars,
            Self::NewSchedule { id, .. } | Self::Schedule { id, .. } | Self::RemoveSchedule(id) => {
                LiveKey::Schedule(ScheduleId::from_bits(bits(id)))
            }
            Self::NewBackfill { id, .. } | Self::Backfill { id, .. } => {
                LiveKey::Backfill(BackfillId::from_bits(bits(id)))
            }
            Self::NewWorkflow { id, .. } | Self::Workflow { id, .. } | Self::RemoveWorkflow(id) => {
                LiveKey::Workflow(WorkflowId::from_bits(bits(id)))
            }
            Self::NewRun { id, .. } | Self::Run { id, .. } => LiveKey::Run(RunId::from_bits(bits(id))),
            Self::NewService { id, .. } | Self::Service { id, .. } | Self::RemoveService(id) => {
                LiveKey::Service(ServiceId::from_bits(bits(id)))
            }
            Self::Step { run, .. } | Self::Elements { run, .. } => LiveKey::Run(RunId::from_bits(bits(run))),
            Self::Checkpoint { .. } | Self::Ledger(_) => return None,
        };
        Some(LiveChange::Rows(key))
    }
}
