//! Counts what jobs do, for the statistics of each commit.
//!
//! A transition counts in [`Statistics`]; the flush returns the counts with the rows that they count. The levels of
//! queues and workers are sampled, every ten seconds while jobs change and every minute otherwise.
//!
//! # Invariants
//! - Jobs of equal namespace, queue, name and schedule share one [`JobSource`].
//! - A day adds a bounded number of new names of jobs, queues and namespaces ([`NEW_NAMES_MAX`]). Further names
//!   share one series ([`OTHER_NAMES`]), so the size of the statistics is bounded whatever clients send.
//! - A minute adds a bounded number of new signatures of failures in each namespace ([`NEW_SIGNATURES_MAX`]). Failures
//!   with further new messages are counted by their error and exit code, and beyond [`OTHER_SIGNATURES_MAX`] together.
//!   Signatures of the last minutes stay known, so a flood of messages does not hide them.
//!
//! # Cost
//! A count is one lookup by source and worker. A sample costs O(queues + workers).

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::{Equivalent, IndexMap, IndexSet};
use model::failures::{FailureCount, FailureGroupId, Signature};
use model::spec::JobSpec;
use model::statistics::{CommitStatistics, JobSource, Level, OTHER_NAMES, SourceTally, Subject, Tally};
use model::{Cause, Duration, JobId, JobStatus, ScheduleId, Timestamp, WorkerId};

use crate::names::name_hash;

/// Names that a day may add. Names of the day before do not count, unless the engine was built again meanwhile.
const NEW_NAMES_MAX: usize = 2_000;
/// Namespaces of queues and of namespaces among the names; no namespace of a job has such a name.
const QUEUES: &str = "\0queue";
const NAMESPACES: &str = "\0namespace";
/// New signatures of failures that a minute may add in each namespace. Tasks that print a new message with each failure
/// must not fill memory and commits.
const NEW_SIGNATURES_MAX: usize = 200;
/// Signatures without a message that a minute may have in each namespace: workers send any error and exit code.
const OTHER_SIGNATURES_MAX: usize = 100;
/// Signatures of a namespace in one of its two generations.
const GENERATION: usize = 5_000;
/// Namespaces whose signatures are known. Beyond that, all are forgotten at the end of a minute.
const SIGNATURE_NAMESPACES_MAX: usize = 1_000;
/// Longest message of a failure that is kept with its count, in characters.
const MESSAGE_MAX: usize = 500;
const DAY: Duration = Duration::from_hours(24);
/// Interval between two samples while jobs change.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between two samples while jobs wait or run and nothing changes.
const IDLE_SAMPLE_INTERVAL: Duration = Duration::from_secs(60);

/// Counts since the last flush, and the sources of all live jobs.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    sources: IndexSet<Arc<JobSource>, FixedState>,
    /// Number of sources at which unused ones are dropped.
    sweep_at: usize,
    names: Names,
    /// What happened since the last flush, by source (its address) and worker.
    tallies: IndexMap<(usize, Option<WorkerId>), SourceTally, FixedState>,
    /// Failed and expired jobs since the last flush.
    failures: IndexMap<FailureKey, FailureCount, FixedState>,
    signatures: Signatures,
    levels: Vec<(Subject, Level)>,
    /// Subjects of the last sample.
    sampled: BTreeSet<Subject>,
    /// Whether anything was counted since the next sample was planned.
    changed: bool,
    /// Steady time of the next sample.
    next_sample: Option<Timestamp>,
}

/// Namespace and name of failed jobs, and the signature of their failures.
type FailureKey = (Arc<str>, Arc<str>, Signature);

/// Names that have their own series, of today and of the day before.
#[derive(Debug, Default)]
struct Names {
    day: u64,
    today: IndexSet<u128, FixedState>,
    yesterday: IndexSet<u128, FixedState>,
    /// Number of names of today that were not used on the day before.
    new: usize,
}

impl Names {
    /// Returns whether a name has its own series.
    fn admits(&mut self, namespace: &str, name: &str, now: Timestamp) -> bool {
        let day = now.since(Timestamp::default()).as_millis() / DAY.as_millis();
        if day > self.day {
            let earlier = std::mem::take(&mut self.today);
            self.yesterday = if day == self.day + 1 { earlier } else { IndexSet::default() };
            (self.day, self.new) = (day, 0);
        }
        let hash = name_hash(namespace, name);
        if self.today.contains(&hash) {
            return true;
        }
        if !self.yesterday.contains(&hash) {
            if self.new >= NEW_NAMES_MAX {
                return false;
            }
            self.new += 1;
        }
        self.today.insert(hash);
        true
    }
}

/// Known signatures of failures, by namespace.
#[derive(Debug, Default)]
struct Signatures {
    minute: Timestamp,
    namespaces: IndexMap<Arc<str>, KnownSignatures, FixedState>,
}

/// Known signatures of a namespace, in two generations: a full one replaces the earlier one.
#[derive(Debug, Default)]
struct KnownSignatures {
    newest: IndexSet<FailureGroupId, FixedState>,
    earlier: IndexSet<FailureGroupId, FixedState>,
    /// Number of signatures that this minute added.
    new: usize,
    /// Signatures without a message of this minute.
    other: IndexSet<FailureGroupId, FixedState>,
}

impl Signatures {
    /// Returns the signature by which a failure is counted.
    fn admit(&mut self, namespace: &Arc<str>, signature: Signature, now: Timestamp) -> Signature {
        let minute = now.floor(Duration::from_secs(60));
        if minute != self.minute {
            self.minute = minute;
            if self.namespaces.len() > SIGNATURE_NAMESPACES_MAX {
                self.namespaces.clear();
            }
            for known in self.namespaces.values_mut() {
                known.new = 0;
                known.other.clear();
            }
        }
        self.namespaces.entry(Arc::clone(namespace)).or_default().admit(signature)
    }
}

impl KnownSignatures {
    fn admit(&mut self, signature: Signature) -> Signature {
        let id = signature.group();
        if self.newest.contains(&id) {
            return signature;
        }
        if !self.earlier.contains(&id) {
            if self.new >= NEW_SIGNATURES_MAX {
                let other = signature.other();
                let has_room = self.other.len() < OTHER_SIGNATURES_MAX;
                let is_known =
                    self.other.contains(&other.group()) || has_room && self.other.insert(other.group());
                return if is_known { other } else { Signature::rest() };
            }
            self.new += 1;
        }
        if self.newest.len() >= GENERATION {
            self.earlier = std::mem::take(&mut self.newest);
        }
        self.newest.insert(id);
        signature
    }
}

/// A source, to look it up without creating it.
#[derive(PartialEq, Eq)]
struct SourceKey<'a> {
    namespace: &'a str,
    queue: &'a str,
    name: &'a str,
    schedule: Option<ScheduleId>,
}

impl Hash for SourceKey<'_> {
    /// As the derived hash of [`JobSource`].
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.namespace, self.queue, self.name).hash(state);
        self.schedule.hash(state);
    }
}

impl Equivalent<Arc<JobSource>> for SourceKey<'_> {
    fn equivalent(&self, source: &Arc<JobSource>) -> bool {
        let JobSource { namespace, queue, name, schedule } = &**source;
        *self == SourceKey { namespace, queue, name, schedule: *schedule }
    }
}

impl Statistics {
    /// Returns the source of the jobs of a spec.
    pub(crate) fn source(
        &mut self,
        spec: &JobSpec,
        schedule: Option<ScheduleId>,
        now: Timestamp,
    ) -> Arc<JobSource> {
        let mut admitted = |kind: &str, name| {
            if self.names.admits(kind, name, now) { name } else { OTHER_NAMES }
        };
        let namespace = admitted(NAMESPACES, &spec.namespace);
        let queue = admitted(QUEUES, &spec.queue);
        let name = admitted(&spec.namespace, &spec.name);
        let key = SourceKey { namespace, queue, name, schedule };
        if let Some(known) = self.sources.get(&key) {
            return Arc::clone(known);
        }
        self.sweep();
        let source = Arc::new(JobSource {
            namespace: namespace.into(),
            queue: queue.into(),
            name: name.into(),
            schedule,
        });
        self.sources.insert(Arc::clone(&source));
        source
    }

    fn sweep(&mut self) {
        if self.sources.len() >= self.sweep_at.max(1_000) {
            self.sources.retain(|source| Arc::strong_count(source) > 1);
            self.sweep_at = self.sources.len() * 2;
        }
    }

    fn tally(&mut self, source: &Arc<JobSource>, worker: Option<WorkerId>) -> &mut Tally {
        self.changed = true;
        let key = (Arc::as_ptr(source).addr(), worker);
        let new = || SourceTally { source: Arc::clone(source), worker, tally: Tally::default() };
        &mut self.tallies.entry(key).or_insert_with(new).tally
    }

    /// Counts a new job.
    pub(crate) fn count_submitted(&mut self, source: &Arc<JobSource>) {
        self.tally(source, None).submitted += 1;
    }

    /// Counts the start of an execution; `delay` only for the first start of the job.
    pub(crate) fn count_started(
        &mut self,
        source: &Arc<JobSource>,
        worker: WorkerId,
        delay: Option<Duration>,
    ) {
        let tally = self.tally(source, Some(worker));
        tally.started += 1;
        delay.into_iter().for_each(|delay| tally.start_delay.observe(delay));
    }

    /// Counts the run time of an ended execution.
    pub(crate) fn count_run(&mut self, source: &Arc<JobSource>, worker: WorkerId, run_time: Duration) {
        self.tally(source, Some(worker)).run_time.observe(run_time);
    }

    /// Counts an execution that ended without success and whose job runs again.
    pub(crate) fn count_retried(&mut self, source: &Arc<JobSource>, worker: Option<WorkerId>, cause: Cause) {
        *self.tally(source, worker).retried.entry(cause).or_default() += 1;
    }

    /// Counts the end of a job.
    pub(crate) fn count_end(
        &mut self,
        source: &Arc<JobSource>,
        worker: Option<WorkerId>,
        status: JobStatus,
        cause: Cause,
    ) {
        self.tally(source, worker).count_end(status, cause);
    }

    /// Counts a job that failed or expired, with its error code, exit code and message. Unlike its counts, a failure
    /// always belongs to the namespace of the job.
    pub(crate) fn count_failure(
        &mut self,
        (job, namespace, source): (JobId, &Arc<str>, &JobSource),
        error: &str,
        exit_code: Option<i32>,
        message: &str,
        now: Timestamp,
    ) {
        let signature = Signature::new(error, exit_code, message);
        let signature = self.signatures.admit(namespace, signature, now);
        let key = (Arc::clone(namespace), Arc::clone(&source.name), signature);
        let counted =
            self.failures.entry(key).or_insert_with_key(|(namespace, name, signature)| FailureCount {
                namespace: Arc::clone(namespace),
                name: Arc::clone(name),
                signature: signature.clone(),
                count: 0,
                jobs: Vec::new(),
                message: Box::default(),
            });
        counted.count(job);
        counted.message = message.chars().take(MESSAGE_MAX).collect();
    }

    /// Adds samples of levels. A subject that is no longer sampled gets a last sample of zero.
    pub(crate) fn sample(&mut self, mut levels: Vec<(Subject, Level)>) {
        let subjects: BTreeSet<Subject> = levels.iter().map(|(subject, _)| subject.clone()).collect();
        let gone =
            std::mem::take(&mut self.sampled).into_iter().filter(|subject| !subjects.contains(subject));
        levels.extend(gone.map(|subject| (subject, Level::default())));
        self.sampled = subjects;
        self.levels = levels;
        self.next_sample = None;
    }

    /// Returns when to sample again, if that is not yet planned: soon after a count, later while jobs wait or run.
    /// All times are steady times.
    pub(crate) fn plan_sample(&mut self, now: Timestamp, is_busy: bool) -> Option<Timestamp> {
        let interval = match (self.changed, is_busy) {
            (true, _) => SAMPLE_INTERVAL,
            (false, true) => IDLE_SAMPLE_INTERVAL,
            (false, false) => return None,
        };
        let at = now + interval;
        if self.next_sample.is_some_and(|planned| planned <= at) {
            return None;
        }
        self.changed = false;
        self.next_sample = Some(at);
        self.next_sample
    }

    /// Returns whether the planned sample is due. A timer may fire for a sample that was moved forward.
    pub(crate) fn is_sample_due(&self, now: Timestamp) -> bool {
        self.next_sample.is_some_and(|at| at <= now)
    }

    /// Cancels the planned sample; it is planned again as after a count.
    pub(crate) fn cancel_sample(&mut self) {
        (self.next_sample, self.changed) = (None, true);
    }

    /// Whether nothing was counted and no sample taken since the last flush.
    pub(crate) fn is_idle(&self) -> bool {
        self.tallies.is_empty() && self.levels.is_empty()
    }

    /// Returns everything counted since the last flush.
    pub(crate) fn take(&mut self) -> CommitStatistics {
        CommitStatistics {
            tallies: self.tallies.drain(..).map(|(_, tally)| tally).collect(),
            levels: std::mem::take(&mut self.levels),
            failures: self.failures.drain(..).map(|(_, failures)| failures).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use model::failures::FailureGroup;

    use super::*;

    fn named(statistics: &mut Statistics, name: &str, now: Timestamp) -> Arc<JobSource> {
        let mut spec = JobSpec::command(["true"]);
        spec.name = name.to_owned();
        statistics.source(&spec, None, now)
    }

    #[test]
    fn jobs_with_equal_properties_share_a_source() {
        let mut statistics = Statistics::default();
        let now = Timestamp::from_millis(1_800_000_000_000);
        let one = named(&mut statistics, "one", now);
        assert!(Arc::ptr_eq(&one, &named(&mut statistics, "one", now)));
        assert!(!Arc::ptr_eq(&one, &named(&mut statistics, "two", now)));
    }

    /// Unique names must not fill the store; names that are used every day keep their series.
    #[test]
    fn a_day_adds_a_bounded_number_of_names() {
        let mut statistics = Statistics::default();
        let mut now = Timestamp::from_millis(1_800_000_000_000);
        named(&mut statistics, "daily", now);
        for day in 0..3 {
            let own = (0..2 * NEW_NAMES_MAX)
                .filter(|i| !named(&mut statistics, &format!("{day}-{i}"), now).name.is_empty())
                .count();
            // The first day also adds `daily`, its queue and its namespace.
            assert_eq!(own, if day == 0 { NEW_NAMES_MAX - 3 } else { NEW_NAMES_MAX });
            assert_eq!(&*named(&mut statistics, "daily", now).name, "daily");
            now = now + DAY;
        }
        assert_eq!(&*named(&mut statistics, "2-0", now).name, "2-0");
        now = now + DAY + DAY;
        assert_eq!(&*named(&mut statistics, "daily", now).name, "daily");
    }

    /// H6. The last sample follows the last count, and an idle server samples nothing.
    #[test]
    fn samples_follow_counts_and_busy_jobs() {
        let mut statistics = Statistics::default();
        let (start, second) = (Timestamp::from_millis(1_000_000), Duration::from_secs(1));
        assert_eq!(statistics.plan_sample(start, false), None);
        assert_eq!(statistics.plan_sample(start, true), Some(start + IDLE_SAMPLE_INTERVAL));
        let source = named(&mut statistics, "one", start);
        statistics.count_submitted(&source);
        // A count moves the sample forward; a further one does not postpone it.
        assert_eq!(statistics.plan_sample(start, true), Some(start + SAMPLE_INTERVAL));
        statistics.count_submitted(&source);
        assert_eq!(statistics.plan_sample(start + second, true), None);
        let due = start + SAMPLE_INTERVAL;
        assert!(!statistics.is_sample_due(start + second) && statistics.is_sample_due(due));
        statistics.sample(Vec::new());
        // The timer of the moved sample changes nothing.
        assert!(!statistics.is_sample_due(start + IDLE_SAMPLE_INTERVAL));
        assert_eq!(statistics.plan_sample(due, false), Some(due + SAMPLE_INTERVAL));
        // A sample that is due while the store is full is taken later.
        statistics.cancel_sample();
        let later = due + SAMPLE_INTERVAL;
        assert_eq!(statistics.plan_sample(later, false), Some(later + SAMPLE_INTERVAL));
        statistics.sample(Vec::new());
        assert_eq!(statistics.plan_sample(later + SAMPLE_INTERVAL, false), None);
    }

    fn fail(
        statistics: &mut Statistics,
        source: &JobSource,
        job: u64,
        exit_code: i32,
        message: &str,
        now: Timestamp,
    ) {
        let job = (JobId::from_bits(job.into()), &Arc::from("default"), source);
        statistics.count_failure(job, "exit_code", Some(exit_code), message, now);
    }

    /// H6. Jobs that fail together are one count for each name and signature, with the newest of them.
    #[test]
    fn a_flush_returns_each_name_and_signature_once_with_its_newest_jobs() {
        let mut statistics = Statistics::default();
        let now = Timestamp::from_millis(1_800_000_000_000);
        let (one, two) = (named(&mut statistics, "one", now), named(&mut statistics, "two", now));
        for i in 0..1_000_u64 {
            fail(&mut statistics, &one, i, 1, &format!("row {i} is bad"), now);
        }
        fail(&mut statistics, &one, 7, 2, "row 1 is bad", now);
        fail(&mut statistics, &two, 8, 1, "row 1 is bad", now);
        let failures = statistics.take().failures;
        let counts: Vec<_> = failures.iter().map(|of| (&*of.name, of.count)).collect();
        assert_eq!(counts, [("one", 1_000), ("one", 1), ("two", 1)]);
        assert_eq!(&*failures[0].message, "row 999 is bad");
        let group = FailureGroup::new(now, &failures[0]);
        let newest: Vec<_> = (990..1_000_u64).rev().map(|i| JobId::from_bits(i.into())).collect();
        assert_eq!(group.jobs, newest);
        assert!(failures[0].jobs.len() < 50, "the size of a row is bounded");
        assert!(statistics.take().is_empty());
    }

    /// Returns a message for each number below 17,576; no digits, which a signature does not have.
    fn message(number: u64) -> String {
        let letter = |n: u64| char::from(b'a' + u8::try_from(n % 26).unwrap());
        format!("cannot read {}{}{}", letter(number), letter(number / 26), letter(number / 676))
    }

    /// E7. A new message with each failure; the next minute, and another namespace, have room again.
    #[test]
    fn a_minute_adds_a_bounded_number_of_signatures_and_loses_no_failure() {
        let mut statistics = Statistics::default();
        let mut now = Timestamp::from_millis(1_800_000_000_000);
        let source = named(&mut statistics, "noisy", now);
        for minute in 0..2 {
            for i in 0..600 {
                fail(&mut statistics, &source, i, 1, &message(minute * 600 + i), now);
            }
            let failures = statistics.take().failures;
            assert_eq!(failures.iter().map(|of| of.count).sum::<u64>(), 600);
            assert_eq!(failures.len(), NEW_SIGNATURES_MAX + 1);
            let other = failures.iter().find(|of| of.signature.message.is_empty());
            assert!(other.is_some_and(|of| of.count == 600 - NEW_SIGNATURES_MAX as u64));
            now = now + Duration::from_secs(60);
        }
        let job = (JobId::from_bits(1), &Arc::from("quiet"), &*source);
        statistics.count_failure(job, "exit_code", Some(1), "disk full", now);
        let failures = statistics.take().failures;
        assert_eq!((&*failures[0].namespace, &*failures[0].signature.message), ("quiet", "disk full"));
    }

    /// H6. A resolved group reopens also while another job prints a new message with each failure.
    #[test]
    fn a_flood_of_messages_does_not_hide_a_failure_of_the_last_minutes() {
        let mut statistics = Statistics::default();
        let mut now = Timestamp::from_millis(1_800_000_000_000);
        let source = named(&mut statistics, "noisy", now);
        fail(&mut statistics, &source, 0, 1, "disk full", now);
        for minute in 0..20 {
            now = now + Duration::from_secs(60);
            for i in 0..300 {
                fail(&mut statistics, &source, i, 1, &message(minute * 300 + i), now);
            }
        }
        statistics.take();
        fail(&mut statistics, &source, 0, 1, "disk full", now);
        assert_eq!(&*statistics.take().failures[0].signature.message, "disk full");
    }

    /// E7. A worker may send any error code and any exit code.
    #[test]
    fn further_errors_of_a_minute_are_counted_together() {
        let mut statistics = Statistics::default();
        let now = Timestamp::from_millis(1_800_000_000_000);
        let source = named(&mut statistics, "noisy", now);
        for i in 0..1_000 {
            fail(&mut statistics, &source, i, i32::try_from(i).unwrap(), &message(i), now);
        }
        let failures = statistics.take().failures;
        assert_eq!(failures.len(), NEW_SIGNATURES_MAX + OTHER_SIGNATURES_MAX + 1);
        let rest = failures.iter().find(|of| of.signature == Signature::rest()).unwrap();
        assert_eq!(rest.count as usize, 1_000 - NEW_SIGNATURES_MAX - OTHER_SIGNATURES_MAX);
    }

    #[test]
    fn a_flush_returns_each_source_and_worker_once() {
        let mut statistics = Statistics::default();
        let now = Timestamp::from_millis(1_800_000_000_000);
        let source = named(&mut statistics, "one", now);
        let worker = WorkerId::from_bits(1);
        for _ in 0..3 {
            statistics.count_submitted(&source);
            statistics.count_started(&source, worker, Some(Duration::from_millis(5)));
            statistics.count_end(&source, Some(worker), JobStatus::Succeeded, Cause::Succeeded);
        }
        let taken = statistics.take();
        let counts: Vec<_> = taken
            .tallies
            .iter()
            .map(|SourceTally { worker, tally, .. }| {
                (worker.is_some(), tally.submitted, tally.started, tally.succeeded)
            })
            .collect();
        assert_eq!(counts, [(false, 3, 0, 0), (true, 0, 3, 3)]);
        assert!(statistics.is_idle());
    }
}
