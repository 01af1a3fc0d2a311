//! Evaluation of the rules: events of the feed, time, and samples of queues and workers.

use std::collections::BTreeSet;

use model::alert::{AlertCondition, SubjectKind};
use model::api::AlertSubject;
use model::firing::FiringOutcome;
use model::record::{Event, EventKind, ScheduleEvent};
use model::worker::WorkerStatus;
use model::{Cause, JobId, JobStatus, RunStatus, Timestamp};

use crate::facts::{Facts, JobFacts, Sample};
use crate::limits::{OPEN_MAX, REFRESH_INTERVAL, STREAKS_MAX};
use crate::live::Phase;
use crate::occurrence::{Occurrence, is_about_events};
use crate::rows::{AlertRecord, Name, OpenKey, RowId, Streak};
use crate::state::{Alerts, decrement};
use crate::timer::Timer;
use crate::watch::{job_subject, selects};

impl Alerts {
    /// Returns the jobs whose rows [`observe`](Self::observe) needs for these events. Empty without rules for jobs.
    pub fn needs<'e>(&self, events: impl Iterator<Item = &'e Event>) -> Vec<JobId> {
        let mut failed: BTreeSet<&str> = BTreeSet::new();
        let mut jobs = Vec::new();
        for event in events {
            let Some(namespace) = event.namespace.as_deref() else { continue };
            match &event.kind {
                EventKind::Job { job, to, .. }
                    if to.is_final() && self.index.watches(SubjectKind::Job, namespace) =>
                {
                    match to {
                        JobStatus::Failed | JobStatus::Expired => {
                            failed.insert(namespace);
                            jobs.push(*job);
                        }
                        JobStatus::Succeeded
                            if failed.contains(namespace) || self.wants_successes(namespace) =>
                        {
                            jobs.push(*job);
                        }
                        _ => {}
                    }
                }
                EventKind::Overdue { job, .. } if !self.index.with("job_overdue", namespace).is_empty() => {
                    failed.insert(namespace);
                    jobs.push(*job);
                }
                _ => {}
            }
        }
        jobs
    }

    fn wants_successes(&self, namespace: &str) -> bool {
        self.active_jobs.get(namespace).is_some_and(|count| *count > 0)
            || !self.index.with("no_success", namespace).is_empty()
    }

    /// Evaluates consecutive events, each with its position in the feed. Events up to the last position are ignored.
    pub fn observe<'e>(
        &mut self,
        now: Timestamp,
        events: impl Iterator<Item = (u64, &'e Event)>,
        facts: &Facts,
    ) {
        for (position, event) in events {
            if self.position.event.is_some_and(|last| position <= last) {
                continue;
            }
            self.position.event = Some(position);
            self.changed.insert(RowId::Position);
            if !self.rules.is_empty() {
                self.on_event(now, event, facts);
            }
        }
    }

    fn on_event(&mut self, now: Timestamp, event: &Event, facts: &Facts) {
        let Some(namespace) = event.namespace.as_deref() else { return };
        let at = event.at;
        match &event.kind {
            EventKind::Job { job, from, to, cause, schedule, .. } => {
                self.on_phase(now, namespace, *job, (*to, *cause), at);
                if let Some(schedule) = schedule.filter(|_| from.is_none()) {
                    self.on_fired(now, &schedule.to_string());
                }
                match (to, facts.get(job)) {
                    (JobStatus::Failed | JobStatus::Expired, Some(facts)) => {
                        self.on_job_failed(now, namespace, *job, facts, at);
                    }
                    (JobStatus::Succeeded, Some(facts)) => self.on_job_succeeded(now, namespace, facts, at),
                    _ => {}
                }
            }
            EventKind::Started { job, .. } => self.watch(now, *job, namespace, Phase::Running, at),
            EventKind::Overdue { job, .. } => {
                let Some(facts) = facts.get(job) else { return };
                for rule in self.job_rules(namespace, facts, "job_overdue") {
                    let what = Occurrence { job: Some(*job), failures: 1, ..Occurrence::default() };
                    self.occur(now, &rule, job_subject(facts), at, what);
                }
            }
            EventKind::Run { run, workflow, from, to, schedule, .. } => {
                if let Some(schedule) = schedule.filter(|_| from.is_none()) {
                    self.on_fired(now, &schedule.to_string());
                }
                let subject =
                    AlertSubject { kind: SubjectKind::Workflow, name: workflow.to_string(), id: None };
                match to {
                    RunStatus::Failed => {
                        for rule in self.index.rules(SubjectKind::Workflow, namespace, workflow) {
                            let what = Occurrence { run: Some(*run), ..Occurrence::default() };
                            self.on_failure(now, &rule, subject.clone(), at, what);
                        }
                    }
                    RunStatus::Succeeded => self.on_success(now, namespace, &subject, at),
                    _ => {}
                }
            }
            EventKind::Skipped { schedule, name, outcome, .. } if is_unexpected(*outcome) => {
                let id = Some(schedule.to_string());
                self.on_schedule(now, namespace, "firing_skipped", name, id, at);
            }
            EventKind::Schedule { schedule, name, what } => match what {
                ScheduleEvent::Paused => {
                    self.on_schedule(now, namespace, "schedule_paused", name, Some(schedule.to_string()), at);
                }
                ScheduleEvent::Resumed => {
                    self.resolve_conditions(now, namespace, SubjectKind::Schedule, name, &["schedule_paused"])
                }
                ScheduleEvent::Deleted | ScheduleEvent::Completed => {
                    let conditions = ["schedule_paused", "firing_skipped"];
                    self.resolve_conditions(now, namespace, SubjectKind::Schedule, name, &conditions);
                }
                _ => {}
            },
            other => self.on_service(now, namespace, other, at),
        }
    }

    fn on_phase(
        &mut self,
        now: Timestamp,
        namespace: &str,
        job: JobId,
        to: (JobStatus, Cause),
        at: Timestamp,
    ) {
        match to {
            (JobStatus::Waiting, _) => self.watch(now, job, namespace, Phase::Waiting, at),
            // It had started before, and no event says so again.
            (JobStatus::Running, Cause::WorkerReturned) => {
                self.watch(now, job, namespace, Phase::Running, at)
            }
            // Assigned, but not started yet.
            (JobStatus::Running, _) => {}
            _ => self.unwatch(now, job),
        }
    }

    /// Returns the rules with a condition that select a job.
    fn job_rules(&self, namespace: &str, facts: &JobFacts, condition: &str) -> Vec<Name> {
        let mut rules = self.index.rules(SubjectKind::Job, namespace, &facts.name);
        rules.retain(|rule| {
            self.rule(rule).is_some_and(|spec| spec.when.name() == condition && selects(&spec.matches, facts))
        });
        rules
    }

    fn on_job_failed(
        &mut self,
        now: Timestamp,
        namespace: &str,
        job: JobId,
        facts: &JobFacts,
        at: Timestamp,
    ) {
        for condition in ["job_failed", "failure_rate"] {
            for rule in self.job_rules(namespace, facts, condition) {
                let what =
                    Occurrence { job: Some(job), detail: facts.error.clone(), ..Occurrence::default() };
                self.on_failure(now, &rule, job_subject(facts), at, what);
            }
        }
    }

    fn on_job_succeeded(&mut self, now: Timestamp, namespace: &str, facts: &JobFacts, at: Timestamp) {
        self.on_success(now, namespace, &job_subject(facts), at);
        for rule in self.job_rules(namespace, facts, "no_success") {
            let key = (rule.clone(), facts.name.clone());
            // The timer is armed already, unless it has opened the alert.
            let is_armed = self.streaks.contains_key(&key) && !self.open.contains_key(&key);
            self.change_streak(&key, at, |streak| streak.since = Some(at));
            self.resolve(now, &key, "recovered");
            if !is_armed {
                self.arm_no_success(&rule);
            }
        }
    }

    /// Counts a failure for a rule, and opens its alert if there are enough.
    fn on_failure(
        &mut self,
        now: Timestamp,
        rule: &Name,
        subject: AlertSubject,
        at: Timestamp,
        what: Occurrence,
    ) {
        let Some(condition) = self.rule(rule).map(|spec| spec.when.clone()) else { return };
        let key = (rule.clone(), subject.name.clone());
        let failures = match condition {
            AlertCondition::JobFailed { in_a_row: 1 } | AlertCondition::RunFailed { in_a_row: 1 } => 1,
            AlertCondition::JobFailed { in_a_row } | AlertCondition::RunFailed { in_a_row } => {
                let failures =
                    self.change_streak(&key, at, |streak| streak.failures += 1).map_or(0, |it| it.failures);
                // The count of an open alert may have been dropped.
                if failures < in_a_row && !self.open.contains_key(&key) {
                    return;
                }
                failures
            }
            AlertCondition::FailureRate { failures: limit, within } => {
                let streak = self.change_streak(&key, at, |streak| {
                    streak.times.push(at);
                    streak.times.retain(|time| *time + within > at);
                    let beyond = streak.times.len().saturating_sub(limit as usize);
                    streak.times.drain(..beyond);
                });
                let (failures, oldest) =
                    streak.map_or((0, None), |streak| (streak.times.len(), streak.times.first().copied()));
                let leaves = oldest.unwrap_or(at) + within;
                self.arm(leaves, Timer::Rate(rule.clone(), subject.name.clone()));
                if failures < limit as usize {
                    return;
                }
                limit
            }
            _ => return,
        };
        self.occur(now, rule, subject, at, Occurrence { failures: failures.into(), ..what });
    }

    /// Ends streaks of failures of an object, and resolves alerts about them.
    fn on_success(&mut self, now: Timestamp, namespace: &str, subject: &AlertSubject, at: Timestamp) {
        let place = (namespace.to_owned(), subject.kind, subject.name.clone());
        let rules: Vec<_> = self.active.get(&place).into_iter().flatten().cloned().collect();
        for rule in rules {
            let Some(condition) = self.rule(&rule).map(|spec| spec.when.clone()) else { continue };
            let ends = matches!(
                condition,
                AlertCondition::JobFailed { .. }
                    | AlertCondition::RunFailed { .. }
                    | AlertCondition::JobOverdue {}
            );
            if ends {
                let key = (rule, subject.name.clone());
                self.remove_streak(&key);
                // A success of an earlier time than the failure says nothing about it.
                let last_at =
                    self.open.get(&key).and_then(|number| self.alerts.get(number)).map(|it| it.alert.last_at);
                if last_at.is_some_and(|last_at| last_at <= at) {
                    self.resolve(now, &key, "recovered");
                }
            }
        }
    }

    fn on_schedule(
        &mut self,
        now: Timestamp,
        namespace: &str,
        condition: &str,
        name: &str,
        id: Option<String>,
        at: Timestamp,
    ) {
        for rule in self.index.rules(SubjectKind::Schedule, namespace, name) {
            if self.rule(&rule).is_some_and(|spec| spec.when.name() == condition) {
                let subject =
                    AlertSubject { kind: SubjectKind::Schedule, name: name.to_owned(), id: id.clone() };
                self.occur(now, &rule, subject, at, Occurrence { failures: 1, ..Occurrence::default() });
            }
        }
    }

    /// Resolves alerts of these conditions about an object.
    pub(crate) fn resolve_conditions(
        &mut self,
        now: Timestamp,
        namespace: &str,
        kind: SubjectKind,
        name: &str,
        conditions: &[&str],
    ) {
        let place = (namespace.to_owned(), kind, name.to_owned());
        let rules: Vec<_> = self.active.get(&place).into_iter().flatten().cloned().collect();
        for rule in rules {
            if self.rule(&rule).is_some_and(|spec| conditions.contains(&spec.when.name())) {
                self.resolve(now, &(rule, name.to_owned()), "recovered");
            }
        }
    }

    /// A schedule created a job or a run, so it skips no more.
    fn on_fired(&mut self, now: Timestamp, schedule: &str) {
        let skipping: Vec<_> = self.skipping.get(schedule).into_iter().flatten().cloned().collect();
        skipping.iter().for_each(|key| self.resolve(now, key, "recovered"));
    }

    /// Returns the namespaces with rules about paused schedules.
    pub fn namespaces_of_paused(&self) -> Vec<String> {
        self.index.namespaces_with("schedule_paused")
    }

    /// Passes all paused schedules of these namespaces, each with its namespace, name and ID: after a load, and after a change
    /// of rules.
    pub fn paused(&mut self, now: Timestamp, schedules: &[(String, String, String)]) {
        let paused: BTreeSet<_> = schedules.iter().map(|(namespace, name, _)| (namespace, name)).collect();
        let is_paused_alert = |number: &u64| {
            self.alerts.get(number).is_some_and(|record| record.alert.condition == "schedule_paused")
        };
        let over: Vec<_> = self
            .open
            .iter()
            .filter(|((rule, name), number)| {
                !name.is_empty()
                    && is_paused_alert(number)
                    && self.rules.contains_key(rule)
                    && !paused.contains(&(&rule.namespace, name))
            })
            .map(|(key, _)| key.clone())
            .collect();
        over.iter().for_each(|key| self.resolve(now, key, "recovered"));
        let mut beyond: BTreeSet<Name> = BTreeSet::new();
        for (namespace, name, id) in schedules {
            for rule in self.index.rules(SubjectKind::Schedule, namespace, name) {
                let is_of_rule =
                    self.rule(&rule).is_some_and(|spec| spec.when == AlertCondition::SchedulePaused {});
                if is_of_rule && !self.open.contains_key(&(rule.clone(), name.clone())) {
                    let subject = AlertSubject {
                        kind: SubjectKind::Schedule,
                        name: name.clone(),
                        id: Some(id.clone()),
                    };
                    self.open_lasting(now, &rule, subject, &mut beyond);
                }
            }
        }
        self.resolve_further(now, &[SubjectKind::Schedule], &beyond);
    }

    /// Opens the alert of a rule about a state that lasts, or notes in `beyond` that the alert about all further objects
    /// stands for it.
    fn open_lasting(
        &mut self,
        now: Timestamp,
        rule: &Name,
        subject: AlertSubject,
        beyond: &mut BTreeSet<Name>,
    ) {
        let further = self.open.get(&(rule.clone(), String::new())).copied();
        if let Some(number) = further.filter(|_| self.open_count(rule) >= OPEN_MAX) {
            beyond.insert(rule.clone());
            // It must not become stale while the state lasts.
            if let Some(record) = self.alerts.get_mut(&number)
                && record.alert.last_at + REFRESH_INTERVAL <= now
            {
                record.alert.last_at = now;
                self.changed.insert(RowId::Alert(number));
            }
            return;
        }
        let opened = self.occur(now, rule, subject, now, Occurrence { failures: 1, ..Occurrence::default() });
        if opened.is_some_and(|key| key.1.is_empty()) {
            beyond.insert(rule.clone());
        }
    }

    /// Resolves alerts about further objects of these kinds, except those of the rules in `beyond`.
    fn resolve_further(&mut self, now: Timestamp, kinds: &[SubjectKind], beyond: &BTreeSet<Name>) {
        let lasts = |rule: &Name| {
            self.rule(rule).is_some_and(|spec| {
                kinds.contains(&spec.when.subject())
                    && !matches!(
                        spec.when,
                        AlertCondition::FiringSkipped {} | AlertCondition::RolloutFailed {}
                    )
            })
        };
        let further = self.open.keys().filter(|(rule, name)| name.is_empty() && !beyond.contains(rule));
        let further: Vec<_> = further.filter(|(rule, _)| lasts(rule)).cloned().collect();
        further.iter().for_each(|key| self.resolve(now, key, "recovered"));
    }

    /// Changes the streak of a rule for an object.
    fn change_streak(
        &mut self,
        key: &OpenKey,
        at: Timestamp,
        change: impl FnOnce(&mut Streak),
    ) -> Option<&Streak> {
        if !self.streaks.contains_key(key) {
            if self.streak_counts.get(&key.0).is_some_and(|count| *count >= STREAKS_MAX) {
                self.drop_oldest_streak(&key.0);
            }
            self.streaks.insert(key.clone(), Streak::default());
            *self.streak_counts.entry(key.0.clone()).or_default() += 1;
            self.mark_active(key);
        }
        let streak = self.streaks.get_mut(key)?;
        change(streak);
        streak.at = streak.at.max(at);
        self.changed.insert(RowId::Streak(key.0.clone(), key.1.clone()));
        Some(streak)
    }

    fn drop_oldest_streak(&mut self, rule: &Name) {
        let first = (rule.clone(), String::new());
        let of_rule = self.streaks.range(first..).take_while(|((of, _), _)| of == rule);
        // The count of an open alert ends it, so it is the last to be dropped.
        let oldest = of_rule.min_by_key(|(key, streak)| (self.open.contains_key(*key), streak.at));
        let oldest = oldest.map(|(key, _)| key.clone());
        if let Some(oldest) = oldest {
            self.remove_streak(&oldest);
        }
    }

    pub(crate) fn remove_streak(&mut self, key: &OpenKey) {
        if self.streaks.remove(key).is_some() {
            decrement(&mut self.streak_counts, &key.0);
            self.disarm(&Timer::Rate(key.0.clone(), key.1.clone()));
            self.changed.insert(RowId::Streak(key.0.clone(), key.1.clone()));
            self.unmark_active(key);
        }
    }

    /// Fires the timers that are due. `facts` has the rows that [`needs_at`](Self::needs_at) requested; the call ends at the
    /// first timer that needs another row.
    pub fn advance(&mut self, now: Timestamp, facts: &Facts) {
        let requested = std::mem::take(&mut self.watched.requested);
        while let Some((_, timer)) = self.timers.first().filter(|(at, _)| *at <= now) {
            if matches!(timer, Timer::Watch(job) if !requested.contains(job)) {
                return;
            }
            let Some(timer) = self.pop_due(now) else { return };
            self.on_timer(now, timer, facts);
        }
    }

    fn on_timer(&mut self, now: Timestamp, timer: Timer, facts: &Facts) {
        match timer {
            Timer::Watch(job) => self.on_watch(now, job, facts),
            Timer::Unheld => self.resolve_unheld(now),
            Timer::Group(rule) => self.on_group(now, &rule),
            Timer::Repeat(alert) => self.on_repeat(now, alert),
            Timer::Escalate(alert) => self.on_escalate(now, alert),
            Timer::Stale(alert) => self.on_stale(now, alert),
            Timer::NoSuccess(rule) => self.on_no_success(now, &rule),
            Timer::Rate(rule, subject) => self.on_rate(now, &(rule, subject)),
            Timer::Silence(silence) => self.on_silence(now, silence),
            Timer::Monitor(monitor) => self.on_monitor(now, &monitor),
            // The caller asks for due deliveries after each call.
            Timer::Delivery(_) => {}
            Timer::Purge => self.purge(now),
        }
    }

    fn on_stale(&mut self, now: Timestamp, number: u64) {
        let Some(alert) = self.alerts.get(&number).map(|record| &record.alert) else { return };
        let rule = Name::new(&alert.namespace, &alert.rule);
        let is_event = self.rule(&rule).is_none_or(|spec| is_about_events(&spec.when, &alert.subject.name));
        let (key, stale_at) =
            ((rule, alert.subject.name.clone()), alert.last_at + crate::limits::STALE_AFTER);
        if self.open.get(&key) != Some(&number) || !is_event {
            return;
        }
        if stale_at > now {
            self.arm(stale_at, Timer::Stale(number));
        } else {
            self.resolve(now, &key, "stale");
        }
    }

    /// Opens the alert of a rule that waits for a success, when it is time.
    fn on_no_success(&mut self, now: Timestamp, rule: &Name) {
        let Some(spec) = self.rule(rule).filter(|spec| !spec.disabled) else { return };
        let (AlertCondition::NoSuccess { within }, Some(name)) = (&spec.when, &spec.matches.name) else {
            return;
        };
        let (within, key) = (*within, (rule.clone(), name.clone()));
        let since = self.streaks.get(&key).and_then(|streak| streak.since);
        let since = match since {
            Some(since) => since,
            None => {
                self.change_streak(&key, now, |streak| streak.since = Some(now));
                now
            }
        };
        if since + within > now {
            return self.arm(since + within, Timer::NoSuccess(rule.clone()));
        }
        if !self.open.contains_key(&key) {
            let subject = AlertSubject { kind: SubjectKind::Job, name: key.1, id: None };
            self.occur(now, rule, subject, now, Occurrence { failures: 1, ..Occurrence::default() });
        }
    }

    pub(crate) fn arm_no_success(&mut self, rule: &Name) {
        let Some(spec) = self.rule(rule) else { return };
        let (AlertCondition::NoSuccess { within }, Some(name)) = (&spec.when, &spec.matches.name) else {
            return;
        };
        let since = self.streaks.get(&(rule.clone(), name.clone())).and_then(|streak| streak.since);
        let at = since.map_or(Timestamp::default(), |since| since + *within);
        self.arm(at, Timer::NoSuccess(rule.clone()));
    }

    /// Resolves the alert about a rate when its period has fewer failures.
    fn on_rate(&mut self, now: Timestamp, key: &OpenKey) {
        let Some(AlertCondition::FailureRate { failures, within }) =
            self.rule(&key.0).map(|it| it.when.clone())
        else {
            return;
        };
        let Some(times) = self.streaks.get(key).map(|streak| streak.times.clone()) else { return };
        let left: Vec<_> = times.iter().copied().filter(|time| *time + within > now).collect();
        match left.first() {
            None => self.remove_streak(key),
            Some(oldest) => self.arm(*oldest + within, Timer::Rate(key.0.clone(), key.1.clone())),
        }
        if left.len() < failures as usize {
            self.resolve(now, key, "recovered");
        }
    }

    /// Whether [`sample`](Self::sample) has anything to do.
    pub fn wants_samples(&self) -> bool {
        let kinds = [SubjectKind::Queue, SubjectKind::Worker, SubjectKind::Service];
        kinds.iter().any(|kind| self.index.watches(*kind, ""))
            || !self.namespaces_of_degraded().is_empty()
            || self.active.keys().any(|(_, kind, _)| kinds.contains(kind))
    }

    /// Evaluates the rules about queues, workers and degraded services. The caller samples them every ten seconds.
    pub fn sample(&mut self, now: Timestamp, sample: &Sample) {
        let mut met = BTreeSet::new();
        for (queue, oldest) in &sample.queues {
            for rule in self.index.rules(SubjectKind::Queue, "", queue) {
                let longer_than = match self.rule(&rule).map(|spec| &spec.when) {
                    Some(AlertCondition::QueueDelay { longer_than }) => *longer_than,
                    _ => continue,
                };
                if now.since(*oldest) > longer_than {
                    met.insert((rule, SubjectKind::Queue, queue.clone(), None));
                }
            }
        }
        let mut met_keys: BTreeSet<OpenKey> = met
            .iter()
            .map(|(rule, _, name, _): &(Name, _, String, _)| (rule.clone(), name.clone()))
            .collect();
        for (id, name, status) in sample.workers.iter().filter(|(.., status)| *status != WorkerStatus::Ready)
        {
            for rule in self.index.rules(SubjectKind::Worker, "", name) {
                met_keys.insert((rule.clone(), name.clone()));
                // After a takeover, a worker has some time to connect: until then, its alert stays as it is.
                if *status == WorkerStatus::Lost {
                    met.insert((rule, SubjectKind::Worker, name.clone(), Some(id.clone())));
                }
            }
        }
        let (degraded, stay) = self.degraded_now(now);
        met_keys.extend(stay);
        let is_sampled = |record: &AlertRecord| {
            matches!(record.alert.subject.kind, SubjectKind::Worker | SubjectKind::Queue)
                || record.alert.condition == "service_degraded"
        };
        let over: Vec<_> = self
            .open
            .iter()
            .filter(|(key, number)| {
                self.alerts.get(number).is_some_and(is_sampled)
                    && !key.1.is_empty()
                    && self.rules.contains_key(&key.0)
                    && !met_keys.contains(*key)
            })
            .map(|(key, _)| key.clone())
            .collect();
        over.iter().for_each(|key| self.resolve(now, key, "recovered"));
        let mut beyond: BTreeSet<Name> = BTreeSet::new();
        let met = met.into_iter().map(|(rule, kind, name, id)| (rule, AlertSubject { kind, name, id }));
        for (rule, subject) in met.chain(degraded) {
            if !self.open.contains_key(&(rule.clone(), subject.name.clone())) {
                self.open_lasting(now, &rule, subject, &mut beyond);
            }
        }
        let kinds = [SubjectKind::Worker, SubjectKind::Queue, SubjectKind::Service];
        self.resolve_further(now, &kinds, &beyond);
    }
}

/// Whether a skipped time is worth an alert: not if a user asked for it, by a pause or by new rules.
const fn is_unexpected(outcome: FiringOutcome) -> bool {
    matches!(
        outcome,
        FiringOutcome::SkippedOverlap
            | FiringOutcome::SkippedDeadline
            | FiringOutcome::SkippedPolicy
            | FiringOutcome::SkippedLimit
            | FiringOutcome::NotStarted
    )
}
