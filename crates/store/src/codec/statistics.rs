//! Encoding of statistics: what one commit counted, and the chunks of series.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use model::statistics::{
    CommitStatistics, Histogram, JobSource, Level, Point, Resolution, SourceTally, Subject, SubjectKind,
    Tally,
};
use model::{Bytes, Cause, Duration, Millicores, ScheduleId, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};

use super::{Context, DecodeError, cause, open, seal};

/// Largest decoded chunk in bytes: many times more than the intervals of a chunk can have.
const CHUNK_BYTES_MAX: u64 = 16 << 20;

/// Key of a chunk: the intervals of a series that are stored together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkKey {
    pub(crate) resolution: Resolution,
    /// Code of the kind of the subject.
    pub(crate) kind: u8,
    /// Start of the chunk.
    pub(crate) chunk: Timestamp,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl ChunkKey {
    pub(crate) fn of(resolution: Resolution, subject: &Subject, at: Timestamp) -> Self {
        let (namespace, name) = subject_columns(subject);
        Self { resolution, kind: subject.kind().code(), chunk: resolution.chunk_of(at), namespace, name }
    }

    pub(crate) fn interval_of(&self, at: Timestamp) -> u16 {
        let passed = at.since(self.chunk).as_millis() / self.resolution.interval().as_millis();
        u16::try_from(passed).unwrap_or(u16::MAX)
    }

    pub(crate) fn start_of(&self, interval: u16) -> Timestamp {
        let length = self.resolution.interval().as_millis();
        self.chunk + Duration::from_millis(length * u64::from(interval))
    }
}

#[derive(Serialize, Deserialize)]
struct HistogramRow {
    buckets: Vec<(u8, u64)>,
    sum_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct TallyRow {
    submitted: u64,
    started: u64,
    succeeded: u64,
    failed: Vec<(u8, u64)>,
    cancelled: u64,
    expired: u64,
    retried: Vec<(u8, u64)>,
    start_delay: HistogramRow,
    run_time: HistogramRow,
}

#[derive(Serialize, Deserialize)]
struct LevelRow {
    waiting: u64,
    running: u64,
    oldest_waiting_ms: u64,
    slots: u64,
    allocated_cpu: u32,
    cpu: u32,
    allocated_memory: u64,
    memory: u64,
}

#[derive(Serialize, Deserialize)]
struct PointRow {
    interval: u16,
    tally: TallyRow,
    level: Option<LevelRow>,
}

#[derive(Serialize, Deserialize)]
struct SourceRow<'a> {
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    queue: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    schedule: Option<[u8; 16]>,
}

#[derive(Serialize, Deserialize)]
struct PendingRow<'a> {
    #[serde(borrow)]
    tallies: Vec<(SourceRow<'a>, Option<[u8; 16]>, TallyRow)>,
    /// Kind, namespace and name of each subject.
    #[serde(borrow)]
    levels: Vec<(u8, Cow<'a, str>, Cow<'a, str>, LevelRow)>,
}

#[derive(Serialize, Deserialize)]
struct ChunkRow<'a> {
    compressed: bool,
    #[serde(borrow)]
    points: Cow<'a, [u8]>,
}

impl<'a> From<&'a JobSource> for SourceRow<'a> {
    fn from(source: &'a JobSource) -> Self {
        Self {
            namespace: Cow::Borrowed(&source.namespace),
            queue: Cow::Borrowed(&source.queue),
            name: Cow::Borrowed(&source.name),
            schedule: source.schedule.map(|id| id.to_bits().to_be_bytes()),
        }
    }
}

impl From<&Histogram> for HistogramRow {
    fn from(histogram: &Histogram) -> Self {
        let (buckets, sum_ms) = histogram.parts();
        Self { buckets: buckets.to_vec(), sum_ms }
    }
}

impl From<HistogramRow> for Histogram {
    fn from(row: HistogramRow) -> Self {
        Self::from_parts(row.buckets, row.sum_ms)
    }
}

fn cause_rows(counts: &BTreeMap<Cause, u64>) -> Vec<(u8, u64)> {
    counts.iter().map(|(cause, count)| (cause.code(), *count)).collect()
}

fn causes(rows: Vec<(u8, u64)>) -> Result<BTreeMap<Cause, u64>, DecodeError> {
    rows.into_iter().map(|(code, count)| Ok((cause("points", code)?, count))).collect()
}

impl From<&Tally> for TallyRow {
    fn from(tally: &Tally) -> Self {
        Self {
            submitted: tally.submitted,
            started: tally.started,
            succeeded: tally.succeeded,
            failed: cause_rows(&tally.failed),
            cancelled: tally.cancelled,
            expired: tally.expired,
            retried: cause_rows(&tally.retried),
            start_delay: (&tally.start_delay).into(),
            run_time: (&tally.run_time).into(),
        }
    }
}

impl TryFrom<TallyRow> for Tally {
    type Error = DecodeError;

    fn try_from(row: TallyRow) -> Result<Self, DecodeError> {
        Ok(Self {
            submitted: row.submitted,
            started: row.started,
            succeeded: row.succeeded,
            failed: causes(row.failed)?,
            cancelled: row.cancelled,
            expired: row.expired,
            retried: causes(row.retried)?,
            start_delay: row.start_delay.into(),
            run_time: row.run_time.into(),
        })
    }
}

impl From<&Level> for LevelRow {
    fn from(level: &Level) -> Self {
        Self {
            waiting: level.waiting,
            running: level.running,
            oldest_waiting_ms: level.oldest_waiting.as_millis(),
            slots: level.slots,
            allocated_cpu: level.allocated_cpu.0,
            cpu: level.cpu.0,
            allocated_memory: level.allocated_memory.0,
            memory: level.memory.0,
        }
    }
}

impl From<LevelRow> for Level {
    fn from(row: LevelRow) -> Self {
        Self {
            waiting: row.waiting,
            running: row.running,
            oldest_waiting: Duration::from_millis(row.oldest_waiting_ms),
            slots: row.slots,
            allocated_cpu: Millicores(row.allocated_cpu),
            cpu: Millicores(row.cpu),
            allocated_memory: Bytes(row.allocated_memory),
            memory: Bytes(row.memory),
        }
    }
}

/// Returns the namespace and the name of a subject, as in the columns of its chunks.
pub(crate) fn subject_columns(subject: &Subject) -> (Arc<str>, Arc<str>) {
    let none = || Arc::from("");
    match subject {
        Subject::All => (none(), none()),
        Subject::Namespace(namespace) => (Arc::clone(namespace), none()),
        Subject::Queue(queue) => (none(), Arc::clone(queue)),
        Subject::Job { namespace, name } => (Arc::clone(namespace), Arc::clone(name)),
        Subject::Schedule(id) => (none(), id.to_string().into()),
        Subject::Worker(id) => (none(), id.to_string().into()),
    }
}

/// Returns the subject of a chunk from its columns.
pub(crate) fn subject_from(kind: u8, namespace: &str, name: &str) -> Result<Subject, DecodeError> {
    let known = SubjectKind::ALL.iter().find(|known| known.code() == kind);
    let known =
        known.ok_or(DecodeError::Value { column: "kind", what: "kind of series", found: kind.into() })?;
    let bad_id = |error: model::id::ParseIdError| DecodeError::decode("name", error);
    Ok(match known {
        SubjectKind::All => Subject::All,
        SubjectKind::Namespace => Subject::Namespace(namespace.into()),
        SubjectKind::Queue => Subject::Queue(name.into()),
        SubjectKind::Job => Subject::Job { namespace: namespace.into(), name: name.into() },
        SubjectKind::Schedule => Subject::Schedule(name.parse().map_err(bad_id)?),
        SubjectKind::Worker => Subject::Worker(name.parse().map_err(bad_id)?),
    })
}

/// Seals what a commit counted, with its time.
pub(crate) fn seal_counted(at: Timestamp, statistics: &CommitStatistics) -> Vec<u8> {
    let tallies = statistics.tallies.iter().map(|part| {
        let worker = part.worker.map(|id| id.to_bits().to_be_bytes());
        (SourceRow::from(&*part.source), worker, TallyRow::from(&part.tally))
    });
    let levels = statistics.levels.iter().map(|(subject, level)| {
        let (namespace, name) = subject_columns(subject);
        (
            subject.kind().code(),
            Cow::from(namespace.to_string()),
            Cow::from(name.to_string()),
            LevelRow::from(level),
        )
    });
    seal(context_of(at), &PendingRow { tallies: tallies.collect(), levels: levels.collect() })
}

fn context_of(at: Timestamp) -> Context {
    Context::of_text("statistics").with_number(at.as_micros().cast_unsigned())
}

/// Opens what [`seal_counted`] sealed.
pub(crate) fn open_counted(at: Timestamp, sealed: &[u8]) -> Result<CommitStatistics, DecodeError> {
    let row: PendingRow<'_> = open(context_of(at), "payload", sealed)?;
    let id = |bytes: [u8; 16]| u128::from_be_bytes(bytes);
    let tallies = row.tallies.into_iter().map(|(source, worker, tally)| {
        let source = JobSource {
            namespace: source.namespace.into(),
            queue: source.queue.into(),
            name: source.name.into(),
            schedule: source.schedule.map(|bytes| ScheduleId::from_bits(id(bytes))),
        };
        let worker = worker.map(|bytes| WorkerId::from_bits(id(bytes)));
        Ok(SourceTally { source: Arc::new(source), worker, tally: tally.try_into()? })
    });
    let levels = row
        .levels
        .into_iter()
        .map(|(kind, namespace, name, level)| Ok((subject_from(kind, &namespace, &name)?, level.into())));
    Ok(CommitStatistics {
        tallies: tallies.collect::<Result<_, DecodeError>>()?,
        levels: levels.collect::<Result<_, DecodeError>>()?,
    })
}

fn context_of_chunk(key: &ChunkKey) -> Context {
    Context::of_text(&key.namespace)
        .with(&[0, key.resolution.code(), key.kind])
        .with_number(key.chunk.as_micros().cast_unsigned())
        .with(key.name.as_bytes())
}

/// Seals the intervals of a chunk, by their number.
///
/// Only the longest intervals are compressed: they are kept for a year, the others are small in total.
pub(crate) fn seal_points(key: &ChunkKey, points: &BTreeMap<u16, Point>) -> Vec<u8> {
    let rows: Vec<_> = points
        .iter()
        .map(|(&interval, point)| PointRow {
            interval,
            tally: (&point.tally).into(),
            level: point.level.as_ref().map(LevelRow::from),
        })
        .collect();
    let plain = postcard::to_stdvec(&rows).expect("the row structs are plain data");
    let compressed = (key.resolution == Resolution::Hour).then(|| compress(&plain));
    let row = ChunkRow { compressed: compressed.is_some(), points: compressed.unwrap_or(plain).into() };
    seal(context_of_chunk(key), &row)
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("a buffer accepts all bytes")
}

/// Opens what [`seal_points`] sealed.
pub(crate) fn open_points(key: &ChunkKey, sealed: &[u8]) -> Result<BTreeMap<u16, Point>, DecodeError> {
    let failed = |error: &dyn std::fmt::Display| DecodeError::decode("points", error);
    let row: ChunkRow<'_> = open(context_of_chunk(key), "points", sealed)?;
    let plain = if row.compressed {
        let mut plain = Vec::new();
        let mut decoder = ZlibDecoder::new(&*row.points).take(CHUNK_BYTES_MAX);
        decoder.read_to_end(&mut plain).map_err(|error| failed(&error))?;
        plain.into()
    } else {
        row.points
    };
    let rows: Vec<PointRow> = postcard::from_bytes(&plain).map_err(|error| failed(&error))?;
    rows.into_iter()
        .map(|row| {
            Ok((row.interval, Point { tally: row.tally.try_into()?, level: row.level.map(Into::into) }))
        })
        .collect()
}
