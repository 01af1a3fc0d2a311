//! Encoding of statistics: what one commit counted, and the chunks of series.
//!
//! - [`seal_counted`]: one row for each commit, with its failures, read once by a fold.
//! - [`seal_points`]: the intervals of a chunk, by column. Hours are compressed, because they are kept for a year.
//! - [`subject_columns`]: a subject as the columns of its chunks' keys.
//!
//! A test holds the size of a year to its bound.

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

use super::failures::FailuresRow;
use super::{Context, DecodeError, cause, open, open_with, seal, seal_with};

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

/// The intervals of a chunk, a column for each field: equal values stand together, so they compress well.
#[derive(Default, Serialize, Deserialize)]
struct Columns {
    intervals: Vec<u16>,
    submitted: Vec<u64>,
    started: Vec<u64>,
    succeeded: Vec<u64>,
    failed: Vec<Vec<(u8, u64)>>,
    cancelled: Vec<u64>,
    expired: Vec<u64>,
    retried: Vec<Vec<(u8, u64)>>,
    start_delays: HistogramColumns,
    run_times: HistogramColumns,
    levels: Vec<Option<LevelRow>>,
}

#[derive(Default, Serialize, Deserialize)]
struct HistogramColumns {
    sums_ms: Vec<u64>,
    /// Number of buckets of each histogram.
    lengths: Vec<u8>,
    buckets: Vec<u8>,
    counts: Vec<u64>,
}

impl HistogramColumns {
    fn push(&mut self, histogram: &Histogram) {
        let (buckets, sum_ms) = histogram.parts();
        self.sums_ms.push(sum_ms);
        self.lengths.push(u8::try_from(buckets.len()).unwrap_or(u8::MAX));
        self.buckets.extend(buckets.iter().map(|(bucket, _)| bucket));
        self.counts.extend(buckets.iter().map(|(_, count)| count));
    }

    /// Returns the histograms in order; `None` if a column is too short.
    fn histograms(self) -> Option<Vec<Histogram>> {
        let mut parts = self.buckets.into_iter().zip(self.counts);
        let histogram = |(sum_ms, length): (u64, u8)| {
            let buckets: Vec<_> = parts.by_ref().take(usize::from(length)).collect();
            (buckets.len() == usize::from(length)).then(|| Histogram::from_parts(buckets, sum_ms))
        };
        self.sums_ms.into_iter().zip(self.lengths).map(histogram).collect()
    }
}

impl Columns {
    fn of(points: &BTreeMap<u16, Point>) -> Self {
        let mut columns = Self::default();
        for (&interval, Point { tally, level }) in points {
            columns.intervals.push(interval);
            columns.submitted.push(tally.submitted);
            columns.started.push(tally.started);
            columns.succeeded.push(tally.succeeded);
            columns.failed.push(cause_rows(&tally.failed));
            columns.cancelled.push(tally.cancelled);
            columns.expired.push(tally.expired);
            columns.retried.push(cause_rows(&tally.retried));
            columns.start_delays.push(&tally.start_delay);
            columns.run_times.push(&tally.run_time);
            columns.levels.push(level.as_ref().map(LevelRow::from));
        }
        columns
    }

    fn points(self) -> Result<BTreeMap<u16, Point>, DecodeError> {
        let short = || DecodeError::decode("points", "a column is too short");
        let (mut submitted, mut started) = (self.submitted.into_iter(), self.started.into_iter());
        let (mut succeeded, mut failed) = (self.succeeded.into_iter(), self.failed.into_iter());
        let (mut cancelled, mut expired) = (self.cancelled.into_iter(), self.expired.into_iter());
        let (mut retried, mut levels) = (self.retried.into_iter(), self.levels.into_iter());
        let mut start_delays = self.start_delays.histograms().ok_or_else(short)?.into_iter();
        let mut run_times = self.run_times.histograms().ok_or_else(short)?.into_iter();
        let point = |interval| {
            let tally = Tally {
                submitted: submitted.next().ok_or_else(short)?,
                started: started.next().ok_or_else(short)?,
                succeeded: succeeded.next().ok_or_else(short)?,
                failed: causes(failed.next().ok_or_else(short)?)?,
                cancelled: cancelled.next().ok_or_else(short)?,
                expired: expired.next().ok_or_else(short)?,
                retried: causes(retried.next().ok_or_else(short)?)?,
                start_delay: start_delays.next().ok_or_else(short)?,
                run_time: run_times.next().ok_or_else(short)?,
            };
            let level = levels.next().ok_or_else(short)?.map(Into::into);
            Ok((interval, Point { tally, level }))
        };
        self.intervals.into_iter().map(point).collect()
    }
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
    let row = PendingRow { tallies: tallies.collect(), levels: levels.collect() };
    let failures: Vec<FailuresRow> = statistics.failures.iter().map(Into::into).collect();
    seal_with(context_of(at), &row, Some(&failures).filter(|failures| !failures.is_empty()))
}

fn context_of(at: Timestamp) -> Context {
    Context::of_text("statistics").with_number(at.as_micros().cast_unsigned())
}

/// Opens what [`seal_counted`] sealed.
pub(crate) fn open_counted(at: Timestamp, sealed: &[u8]) -> Result<CommitStatistics, DecodeError> {
    let (row, failures): (PendingRow<'_>, Option<Vec<FailuresRow>>) =
        open_with(context_of(at), "payload", sealed)?;
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
        failures: failures.unwrap_or_default().into_iter().map(Into::into).collect(),
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
    let plain = postcard::to_stdvec(&Columns::of(points)).expect("the row structs are plain data");
    let compressed = (key.resolution == Resolution::Hour).then(|| compress(&plain));
    let row = ChunkRow { compressed: compressed.is_some(), points: compressed.unwrap_or(plain).into() };
    seal(context_of_chunk(key), &row)
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
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
    let columns: Columns = postcard::from_bytes(&plain).map_err(|error| failed(&error))?;
    columns.points()
}

#[cfg(test)]
mod tests {
    use model::JobStatus;

    use super::*;
    use crate::suite::sample::Sampler;

    /// H6. A year of hours of jobs that run four times an hour, with times that vary as in reality. A schedule takes
    /// the same again.
    #[test]
    fn a_year_of_a_thousand_names_takes_less_than_100_megabytes() {
        let mut sampler = Sampler::new(1);
        let subject = Subject::Job { namespace: "default".into(), name: "nightly-report".into() };
        let chunk = Resolution::Hour.chunk_of(Timestamp::from_millis(1_800_000_000_000));
        let key = ChunkKey::of(Resolution::Hour, &subject, chunk);
        let intervals = Resolution::Hour.chunk().as_millis() / Resolution::Hour.interval().as_millis();
        let mut points = BTreeMap::new();
        for interval in 0..u16::try_from(intervals).unwrap() {
            let mut tally = Tally { submitted: 4, started: 4, ..Tally::default() };
            for _ in 0..4 {
                let is_failure = sampler.below(50) == 0;
                tally.count_end(
                    if is_failure { JobStatus::Failed } else { JobStatus::Succeeded },
                    if is_failure { Cause::RunFailed } else { Cause::Succeeded },
                );
                tally.start_delay.observe(Duration::from_millis(2 + sampler.below(8)));
                tally.run_time.observe(Duration::from_millis(40_000 + sampler.below(20_000)));
            }
            points.insert(interval, Point { tally, level: None });
        }
        let sealed = seal_points(&key, &points);
        assert_eq!(open_points(&key, &sealed).unwrap(), points);
        let chunks_of_a_year = 53;
        let year = sealed.len() * chunks_of_a_year * 1_000;
        println!("a chunk has {} bytes, a year {} MB", sealed.len(), year / 1_000_000);
        assert!(year < 100_000_000, "{year}");
    }

    #[test]
    fn a_chunk_belongs_to_its_key() {
        let subject = Subject::Queue("q".into());
        let at = Timestamp::from_millis(1_800_000_000_000);
        let key = ChunkKey::of(Resolution::Minute, &subject, at);
        let point = Point { tally: Tally { submitted: 1, ..Tally::default() }, level: None };
        let sealed = seal_points(&key, &[(3, point)].into());
        for other in [
            ChunkKey { name: "r".into(), ..key.clone() },
            ChunkKey { resolution: Resolution::Seconds, ..key.clone() },
            ChunkKey { kind: SubjectKind::Job.code(), ..key.clone() },
            ChunkKey { chunk: key.chunk + Duration::from_secs(1), ..key.clone() },
        ] {
            assert!(open_points(&other, &sealed).is_err(), "{other:?}");
        }
    }
}
