//! Jobs that may be late, and executions that may be slow.
//!
//! Only namespaces with such rules are watched. A job gets a timer for the shortest time that could matter to a rule; its
//! row is read only when the timer fires, so short jobs cost three map entries.

use std::collections::BTreeSet;

use model::alert::{AlertCondition, SubjectKind};
use model::api::AlertSubject;
use model::{Duration, JobId, Timestamp};

use crate::facts::{Facts, JobFacts};
use crate::live::{Live, LiveJob, Phase};
use crate::occurrence::Occurrence;
use crate::rows::OpenKey;
use crate::state::Alerts;
use crate::timer::Timer;

/// Most jobs that one call of [`Alerts::advance`] looks at.
pub const WATCHED_PER_CALL: usize = 1_000;

impl Alerts {
    /// Returns the namespaces whose live jobs must be passed to [`watch_live`](Self::watch_live): after a load, and after a
    /// change of rules.
    pub fn watched_namespaces(&self, phase: Phase) -> Vec<String> {
        self.index.namespaces_with(phase.condition())
    }

    /// Begins to watch live jobs. If the list `is_complete`, all other jobs are no longer live: their alerts are resolved. The
    /// jobs must be those at the current position of the feed, or later.
    pub fn watch_live(&mut self, now: Timestamp, jobs: Vec<LiveJob>, is_complete: bool) {
        if is_complete {
            let known: BTreeSet<_> = jobs.iter().map(|job| (job.id, job.phase)).collect();
            let gone = self.watched.jobs.iter().filter(|(id, live)| !known.contains(&(**id, live.phase)));
            let gone: Vec<_> = gone.map(|(id, _)| *id).collect();
            gone.into_iter().for_each(|job| self.unwatch(now, job));
        }
        for job in jobs {
            self.watch(now, job.id, &job.namespace, job.phase, job.since);
        }
        if !is_complete {
            return;
        }
        for (key, number) in &self.open {
            let Some(record) = self.alerts.get(number) else { continue };
            if matches!(record.alert.condition.as_str(), "job_late" | "job_slow") {
                self.watched.holds.entry(key.clone()).or_default();
            }
        }
        // Fires after the timers of all jobs that are already late or slow.
        self.arm(now, Timer::Unheld);
    }

    /// Begins to watch a phase of a job. A job that is already watched in this phase keeps its beginning.
    pub(crate) fn watch(
        &mut self,
        now: Timestamp,
        job: JobId,
        namespace: &str,
        phase: Phase,
        since: Timestamp,
    ) {
        if self.watched.jobs.get(&job).is_some_and(|live| live.phase != phase) {
            self.unwatch(now, job);
        }
        let Some(delay) = self.shortest_delay(namespace, phase, Duration::ZERO) else { return };
        let live = Live { namespace: namespace.to_owned(), phase, since, alerts: Vec::new() };
        let since = self.watched.jobs.entry(job).or_insert(live).since;
        self.arm(since + delay, Timer::Watch(job));
    }

    /// Ends the watch of a job, and resolves alerts that only it held open.
    pub(crate) fn unwatch(&mut self, now: Timestamp, job: JobId) {
        let Some(live) = self.watched.jobs.remove(&job) else { return };
        self.disarm(&Timer::Watch(job));
        for key in live.alerts {
            let Some(holds) = self.watched.holds.get_mut(&key) else { continue };
            holds.remove(&job);
            if holds.is_empty() {
                self.watched.holds.remove(&key);
                self.resolve(now, &key, "recovered");
            }
        }
    }

    /// Resolves alerts of late and slow jobs that no live job holds open.
    pub(crate) fn resolve_unheld(&mut self, now: Timestamp) {
        let unheld: Vec<_> = self
            .watched
            .holds
            .iter()
            .filter(|(_, jobs)| jobs.is_empty())
            .map(|(key, _)| key.clone())
            .collect();
        for key in unheld {
            self.watched.holds.remove(&key);
            self.resolve(now, &key, "recovered");
        }
    }

    /// Returns the jobs whose rows the next [`advance`](Self::advance) needs at this time, at most
    /// [`WATCHED_PER_CALL`].
    pub fn needs_at(&mut self, now: Timestamp) -> Vec<JobId> {
        let due = self.timers.iter().take_while(|(at, _)| *at <= now);
        let job = |timer: &Timer| match timer {
            Timer::Watch(job) => Some(*job),
            _ => None,
        };
        let needed: Vec<_> = due.filter_map(|(_, timer)| job(timer)).take(WATCHED_PER_CALL).collect();
        self.watched.requested = needed.iter().copied().collect();
        needed
    }

    /// Opens alerts of the rules whose time has passed for a job.
    pub(crate) fn on_watch(&mut self, now: Timestamp, job: JobId, facts: &Facts) {
        let Some(live) = self.watched.jobs.get(&job) else { return };
        let (namespace, phase, since) = (live.namespace.clone(), live.phase, live.since);
        let passed = now.since(since);
        if let Some(next) = self.shortest_delay(&namespace, phase, passed) {
            self.arm(since + next, Timer::Watch(job));
        }
        let Some(facts) = facts.get(&job) else { return };
        for rule in self.index.rules(SubjectKind::Job, &namespace, &facts.name) {
            let Some(spec) = self.rule(&rule) else { continue };
            if delay_of(&spec.when, phase).is_none_or(|delay| delay > passed)
                || !selects(&spec.matches, facts)
            {
                continue;
            }
            let subject = job_subject(facts);
            let has = |alerts: &[OpenKey]| alerts.iter().any(|(of, _)| *of == rule);
            if self.watched.jobs.get(&job).is_none_or(|live| has(&live.alerts)) {
                continue;
            }
            let what = Occurrence { job: Some(job), failures: 1, ..Occurrence::default() };
            let Some(key) = self.occur(now, &rule, subject, now, what) else { continue };
            self.watched.holds.entry(key.clone()).or_default().insert(job);
            if let Some(live) = self.watched.jobs.get_mut(&job) {
                live.alerts.push(key);
            }
        }
    }

    /// Returns the shortest delay of a rule that is longer than `passed`.
    fn shortest_delay(&self, namespace: &str, phase: Phase, passed: Duration) -> Option<Duration> {
        self.index.delay_after(phase.condition(), namespace, passed)
    }
}

const fn delay_of(condition: &AlertCondition, phase: Phase) -> Option<Duration> {
    match (condition, phase) {
        (AlertCondition::JobLate { after }, Phase::Waiting)
        | (AlertCondition::JobSlow { after }, Phase::Running) => Some(*after),
        _ => None,
    }
}

pub(crate) fn job_subject(facts: &JobFacts) -> AlertSubject {
    AlertSubject { kind: SubjectKind::Job, name: facts.name.clone(), id: None }
}

/// Whether a rule selects a job by its owner, queue and labels.
pub(crate) fn selects(matches: &model::alert::AlertMatch, facts: &JobFacts) -> bool {
    let is_owner = matches.owner.is_none() || matches.owner == facts.owner;
    let is_queue = matches.queue.as_ref().is_none_or(|queue| *queue == facts.queue);
    let has_labels = matches.labels.iter().all(|(key, value)| facts.labels.get(key) == Some(value));
    is_owner && is_queue && has_labels
}
