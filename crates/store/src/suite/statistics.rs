//! Rules for statistics.
//!
//! A count is in exactly one place: pending with its commit, or in the series. So each rule asks before and after a
//! fold, and must get the same answer. The rules know nothing of rows and chunks: they compare what they counted with
//! what the store returns, for every kind of subject and in every resolution.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::record::Batch;
use model::statistics::{
    CommitStatistics, JobSource, Level, Point, Resolution, SourceTally, Subject as Of, SubjectKind, Tally,
};
use model::{Cause, Duration, Timestamp, WorkerId};

use super::{Fixture, HOUR, Subject};
use crate::StoreError;
use crate::statistics::{Series, StatisticsQuery, Subjects};

const DAY: Duration = Duration::from_hours(24);

fn source(namespace: &str, queue: &str, name: &str) -> Arc<JobSource> {
    Arc::new(JobSource {
        namespace: namespace.into(),
        queue: queue.into(),
        name: name.into(),
        schedule: None,
    })
}

fn submitted(source: &Arc<JobSource>, submitted: u64) -> CommitStatistics {
    let tally = Tally { submitted, ..Tally::default() };
    let tallies = vec![SourceTally { source: Arc::clone(source), worker: None, tally }];
    CommitStatistics { tallies, ..CommitStatistics::default() }
}

impl<S: Subject> Fixture<S> {
    async fn count(&self, now: Timestamp, statistics: CommitStatistics) -> Result<(), StoreError> {
        let batch = Batch { now, statistics, ..Batch::default() };
        self.store().commit(&self.leases, Arc::new(batch)).await.map(drop)
    }

    async fn series(&self, resolution: Resolution, subjects: Subjects, now: Timestamp) -> Series {
        let (from, until) = (now - DAY, now + HOUR);
        let query = StatisticsQuery { resolution, from, until, subjects };
        self.store().statistics(&query).await.unwrap()
    }

    /// Returns what all intervals of each subject add up to.
    async fn totals(&self, resolution: Resolution, kind: SubjectKind, now: Timestamp) -> BTreeMap<Of, Tally> {
        let subjects = Subjects::Each { kind, namespace: None };
        let total = |points: BTreeMap<Timestamp, Point>| {
            let mut total = Tally::default();
            points.values().for_each(|point| total.add(&point.tally));
            total
        };
        let series = self.series(resolution, subjects, now).await;
        series.into_iter().map(|(subject, points)| (subject, total(points))).collect()
    }

    async fn fold_all(&self) -> u64 {
        let mut folded = 0;
        loop {
            match self.store().fold_statistics().await.unwrap() {
                0 => return folded,
                more => folded += more,
            }
        }
    }
}

/// H6, D7. In every resolution and for every kind of subject, whether a count is still pending or folded, and after a
/// restart at any time.
pub async fn counts_are_complete_before_and_after_a_fold<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let start = scene.sampler.now();
    let sources = [source("a", "q", "one"), source("a", "q", "two"), source("b", "r", "one")];
    let (mut now, mut expected, mut pending) = (start, 0, 0);
    for round in 0..4u64 {
        for (number, source) in (1..).zip(&sources) {
            scene.count(now, submitted(source, number + round)).await.unwrap();
            (expected, pending) = (expected + number + round, pending + 1);
            now = now + Duration::from_secs(7);
        }
        for resolution in Resolution::ALL {
            for kind in [SubjectKind::All, SubjectKind::Namespace, SubjectKind::Queue, SubjectKind::Job] {
                let totals = scene.totals(*resolution, kind, now).await;
                let sum: u64 = totals.values().map(|tally| tally.submitted).sum();
                assert_eq!(sum, expected, "{resolution:?} by {kind:?} in round {round}");
            }
        }
        if round == 1 {
            scene = scene.reopen().await;
        }
        if round % 2 == 1 {
            assert_eq!(scene.fold_all().await, pending);
            pending = 0;
        }
    }
    assert_eq!(scene.fold_all().await, 0);
    let one = Of::Job { namespace: "a".into(), name: "one".into() };
    let series = scene.series(Resolution::Minute, Subjects::One(one.clone()), now).await;
    assert_eq!(series.keys().collect::<Vec<_>>(), [&one]);
    assert!(series[&one].keys().all(|at| Resolution::Minute.start_of(*at) == *at));
}

/// H6. A leader and its successor may fold at the same time.
pub async fn folds_at_the_same_time_count_once<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let now = scene.sampler.now();
    let source = source("a", "q", "one");
    for round in 1..6 {
        for _ in 0..5 {
            scene.count(now, submitted(&source, 1)).await.unwrap();
        }
        let fold = || scene.store().fold_statistics();
        let (first, second, third) = tokio::join!(fold(), fold(), fold());
        assert!(first.is_ok() && second.is_ok() && third.is_ok(), "{first:?} {second:?} {third:?}");
        scene.fold_all().await;
        let totals = scene.totals(Resolution::Seconds, SubjectKind::All, now).await;
        assert_eq!(totals[&Of::All].submitted, 5 * round);
    }
}

/// H6. Commits of one interval add up; of levels, the highest sample stays.
pub async fn every_field_of_statistics_survives<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let now = scene.sampler.now();
    let worker = WorkerId::from_bits(7);
    let mut expected = BTreeMap::<Of, Point>::new();
    for round in 0..20 {
        let statistics = scene.sampler.statistics(worker);
        for part in &statistics.tallies {
            for subject in Of::of(&part.source, part.worker) {
                expected.entry(subject).or_default().tally.add(&part.tally);
            }
        }
        for (subject, level) in &statistics.levels {
            expected.entry(subject.clone()).or_default().add_level(Some(*level));
        }
        scene.count(now, statistics).await.unwrap();
        if round % 5 == 0 {
            scene.fold_all().await;
        }
    }
    scene = scene.reopen().await;
    scene.fold_all().await;
    for &resolution in Resolution::ALL {
        let mut found = BTreeMap::new();
        for &kind in SubjectKind::ALL {
            found.extend(scene.series(resolution, Subjects::Each { kind, namespace: None }, now).await);
        }
        // The sums of all intervals are under the start of the range.
        let at = resolution.start_of(now - DAY);
        let expected: Series =
            expected.iter().map(|(of, point)| (of.clone(), [(at, point.clone())].into())).collect();
        assert_eq!(found, expected, "{resolution:?}");
    }
}

/// H6, D7. Counts belong to their commit.
pub async fn a_refused_commit_counts_nothing<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let now = scene.sampler.now();
    let source = source("a", "q", "one");
    scene.count(now, submitted(&source, 1)).await.unwrap();
    scene.store().release(&scene.leases).await.unwrap();
    scene.subject.advance(HOUR);
    scene.store().acquire(&super::SHARDS, "other", HOUR).await.unwrap();
    let refused = scene.count(now, submitted(&source, 10)).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    scene.fold_all().await;
    assert_eq!(scene.totals(Resolution::Hour, SubjectKind::All, now).await[&Of::All].submitted, 1);
}

/// H6. By subject, namespace and time.
pub async fn a_query_returns_the_requested_subjects_and_intervals<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let now = Resolution::Hour.start_of(scene.sampler.now());
    let minute = Duration::from_secs(60);
    for (number, source) in
        (0..).zip([source("a", "q", "one"), source("b", "q", "one"), source("b", "q", "")])
    {
        for minutes in 0..4 {
            let at = now + Duration::from_secs(60 * minutes);
            scene.count(at, submitted(&source, 10 * number + minutes + 1)).await.unwrap();
        }
    }
    for folded in [false, true] {
        if folded {
            scene.fold_all().await;
        }
        let ask = async |subjects, from, until| {
            let query = StatisticsQuery { resolution: Resolution::Minute, from, until, subjects };
            scene.store().statistics(&query).await.unwrap()
        };
        let each =
            |namespace: &str| Subjects::Each { kind: SubjectKind::Job, namespace: Some(namespace.into()) };
        let found = ask(each("b"), now, now + HOUR).await;
        let names: Vec<_> = found.keys().cloned().collect();
        let job = |name: &str| Of::Job { namespace: "b".into(), name: name.into() };
        assert_eq!(names, [job(""), job("one")], "folded: {folded}");
        // From within an interval to the start of another one.
        let within = now + minute + Duration::from_secs(59);
        let found = ask(Subjects::One(job("one")), within, now + minute + minute + minute).await;
        let counts: Vec<_> =
            found[&job("one")].iter().map(|(at, point)| (*at, point.tally.submitted)).collect();
        assert_eq!(counts, [(now + minute, 12), (now + minute + minute, 13)], "folded: {folded}");
        assert_eq!(ask(Subjects::One(Of::All), now + HOUR, now + HOUR + HOUR).await, Series::new());
    }
}

/// H6. An hour of short intervals, two days of minutes, a year of hours.
pub async fn old_intervals_are_deleted_by_their_resolution<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let now = scene.sampler.now();
    let source = source("a", "q", "one");
    let mut statistics = submitted(&source, 1);
    statistics.levels.push((Of::Queue("q".into()), Level { waiting: 3, ..Level::default() }));
    statistics.tallies[0].tally.count_end(model::JobStatus::Failed, Cause::RunFailed);
    scene.count(now, statistics).await.unwrap();
    scene.fold_all().await;
    let kept = |later: Duration| async move { now + later };
    for (later, expected) in [
        (Duration::from_secs(3_600), [1, 1, 1]),
        (Duration::from_secs(3 * 3_600), [0, 1, 1]),
        (Duration::from_hours(47), [0, 1, 1]),
        (Duration::from_hours(53), [0, 0, 1]),
        (Duration::from_hours(24 * 365), [0, 0, 1]),
        (Duration::from_hours(24 * 400), [0, 0, 0]),
    ] {
        while scene.store().trim_statistics(kept(later).await).await.unwrap() > 0 {}
        let mut found = [0; 3];
        for (count, &resolution) in found.iter_mut().zip(Resolution::ALL) {
            let totals = scene.totals(resolution, SubjectKind::Job, now).await;
            *count = totals.values().map(|tally| tally.submitted).sum();
        }
        assert_eq!(found, expected, "{later} later");
    }
}
