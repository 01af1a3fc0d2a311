//! Folding of statistics: what commits counted becomes series in three resolutions.
//!
//! ```text
//! commit ─> statistics_pending (a row for each commit) ── fold ─> statistics (a row for each chunk of a series)
//! ```
//!
//! A fold deletes pending rows and adds their counts to the chunks in the same transaction, so each count is in
//! exactly one place at any time. Queries add what is still pending.
//!
//! # Cost
//! A commit writes one row, whatever the number of its jobs. A fold of any number of pending rows writes one row for
//! each subject and resolution: three for each namespace, queue, name, schedule and worker that is active.

use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;

use model::Timestamp;
use model::statistics::{CommitStatistics, Point, Resolution, Subject, SubjectKind};

use crate::codec::{ChunkKey, DecodeError, open_points, seal_points, subject_columns, subject_from};

/// Most pending rows of one fold.
pub(crate) const PENDING_MAX: usize = 2_000;
/// About how many rows a fold writes.
pub(crate) const FOLD_ROWS: usize = 400;
/// Most chunks of each kind and resolution that one transaction of the retention deletes.
pub(crate) const TRIM_MAX: usize = 200;

/// Counts that a fold adds to chunks.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    chunks: BTreeMap<ChunkKey, BTreeMap<u16, Point>>,
}

impl Fold {
    /// Adds what a commit counted.
    pub(crate) fn add(&mut self, at: Timestamp, statistics: &CommitStatistics) {
        for part in &statistics.tallies {
            for subject in Subject::of(&part.source, part.worker) {
                self.change(&subject, at, |point| point.tally.add(&part.tally));
            }
        }
        for (subject, level) in &statistics.levels {
            self.change(subject, at, |point| point.add_level(Some(*level)));
        }
    }

    fn change(&mut self, subject: &Subject, at: Timestamp, change: impl Fn(&mut Point)) {
        for &resolution in Resolution::ALL {
            let key = ChunkKey::of(resolution, subject, at);
            let interval = key.interval_of(at);
            change(self.chunks.entry(key).or_default().entry(interval).or_default());
        }
    }

    pub(crate) fn keys(&self) -> btree_map::Keys<'_, ChunkKey, BTreeMap<u16, Point>> {
        self.chunks.keys()
    }

    /// Adds the stored intervals of a chunk.
    pub(crate) fn add_stored(&mut self, key: &ChunkKey, sealed: &[u8]) -> Result<(), DecodeError> {
        let stored = open_points(key, sealed)?;
        if let Some(points) = self.chunks.get_mut(key) {
            for (interval, point) in stored {
                points.entry(interval).or_default().add(&point);
            }
        }
        Ok(())
    }

    /// Returns the new content of each chunk.
    pub(crate) fn into_rows(self) -> impl Iterator<Item = (ChunkKey, Vec<u8>)> {
        self.chunks.into_iter().map(|(key, points)| {
            let sealed = seal_points(&key, &points);
            (key, sealed)
        })
    }
}

/// Answer to a query: the intervals of one subject by their start, or for [`Subjects::Each`] the sum of all
/// intervals, under the start of the range.
pub type Series = BTreeMap<Subject, BTreeMap<Timestamp, Point>>;

/// Query for series.
#[derive(Debug, Clone, PartialEq)]
pub struct StatisticsQuery {
    /// Length of the intervals.
    pub resolution: Resolution,
    /// Start of the first interval; rounded down to the start of an interval.
    pub from: Timestamp,
    /// The intervals that start before this time.
    pub until: Timestamp,
    /// Requested series.
    pub subjects: Subjects,
}

/// Subjects of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Subjects {
    /// One subject.
    One(Subject),
    /// All subjects of a kind, each with the sum of all intervals: many names over a long range would take gigabytes.
    Each {
        /// Kind of the subjects.
        kind: SubjectKind,
        /// Only subjects of this namespace; other kinds than namespaces and jobs have none.
        namespace: Option<Arc<str>>,
    },
}

impl StatisticsQuery {
    /// Returns the code of the kind of the subjects.
    pub(crate) fn kind(&self) -> u8 {
        match &self.subjects {
            Subjects::One(subject) => subject.kind().code(),
            Subjects::Each { kind, .. } => kind.code(),
        }
    }

    /// Returns the namespace and the name of the subjects; `None` for any.
    pub(crate) fn columns(&self) -> (Option<Arc<str>>, Option<Arc<str>>) {
        match &self.subjects {
            Subjects::One(subject) => {
                let (namespace, name) = subject_columns(subject);
                (Some(namespace), Some(name))
            }
            Subjects::Each { namespace, .. } => (namespace.clone(), None),
        }
    }

    /// Returns the starts of the chunks that contain the intervals.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Timestamp> {
        let (length, until) = (self.resolution.chunk(), self.until);
        std::iter::successors(Some(self.resolution.chunk_of(self.from)), move |chunk| Some(*chunk + length))
            .take_while(move |chunk| *chunk < until)
    }

    fn includes(&self, at: Timestamp) -> bool {
        self.resolution.start_of(self.from) <= at && at < self.until
    }

    /// Returns under which time an interval is in the answer.
    fn place_of(&self, at: Timestamp) -> Timestamp {
        match self.subjects {
            Subjects::One(_) => at,
            Subjects::Each { .. } => self.resolution.start_of(self.from),
        }
    }

    fn includes_subject(&self, subject: &Subject) -> bool {
        match &self.subjects {
            Subjects::One(one) => one == subject,
            Subjects::Each { kind, namespace } => {
                let of = |namespace: &Arc<str>| subject_columns(subject).0 == *namespace;
                subject.kind() == *kind && namespace.as_ref().is_none_or(of)
            }
        }
    }

    /// Adds a stored chunk to the answer.
    pub(crate) fn add_chunk(
        &self,
        series: &mut Series,
        key: &ChunkKey,
        sealed: &[u8],
    ) -> Result<(), DecodeError> {
        let points = open_points(key, sealed)?;
        let subject = subject_from(key.kind, &key.namespace, &key.name)?;
        let points = points.into_iter().map(|(interval, point)| (key.start_of(interval), point));
        for (at, point) in points.filter(|(at, _)| self.includes(*at)) {
            series.entry(subject.clone()).or_default().entry(self.place_of(at)).or_default().add(&point);
        }
        Ok(())
    }

    /// Adds what a commit counted and no fold has added to a chunk.
    pub(crate) fn add_pending(&self, series: &mut Series, at: Timestamp, statistics: &CommitStatistics) {
        let start = self.resolution.start_of(at);
        if !self.includes(start) {
            return;
        }
        let mut point = |subject: Subject, change: &dyn Fn(&mut Point)| {
            if self.includes_subject(&subject) {
                change(series.entry(subject).or_default().entry(self.place_of(start)).or_default());
            }
        };
        for part in &statistics.tallies {
            for subject in Subject::of(&part.source, part.worker) {
                point(subject, &|point| point.tally.add(&part.tally));
            }
        }
        for (subject, level) in &statistics.levels {
            point(subject.clone(), &|point| point.add_level(Some(*level)));
        }
    }
}
