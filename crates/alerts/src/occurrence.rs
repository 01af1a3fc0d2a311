//! How an alert opens, occurs again and is resolved.

use model::alert::{AlertCondition, Language};
use model::api::{Alert, AlertStatus, AlertSubject};
use model::{JobId, RunId, Timestamp};

use crate::limits::{NAMED_MAX, OPEN_MAX, RESOLVED_MAX, STALE_AFTER};
use crate::rows::{AlertRecord, Name, OpenKey, RowId};
use crate::state::Alerts;
use crate::texts;
use crate::timer::Timer;

/// What happened once to the object of a rule.
#[derive(Debug, Clone, Default)]
pub(crate) struct Occurrence {
    pub(crate) job: Option<JobId>,
    pub(crate) run: Option<RunId>,
    /// Error message of the job.
    pub(crate) detail: Option<String>,
    /// Number of failures that led to it; 1 if the condition counts none.
    pub(crate) failures: u64,
}

/// Whether the condition is about something that happens, and not about a state that lasts.
pub(crate) fn is_event(condition: &AlertCondition) -> bool {
    matches!(
        condition,
        AlertCondition::JobFailed { .. }
            | AlertCondition::FailureRate { .. }
            | AlertCondition::JobOverdue {}
            | AlertCondition::RunFailed { .. }
            | AlertCondition::RolloutFailed {}
    )
}

/// Whether an alert is about things that happen. The alert of all further objects counts as such, because it cannot tell
/// for each of them whether the state lasts.
pub(crate) fn is_about_events(condition: &AlertCondition, subject: &str) -> bool {
    is_event(condition) || subject.is_empty()
}

impl Alerts {
    /// Opens the alert of a rule for an object, or counts a further occurrence of it. Returns the key of the alert, which may
    /// stand for all further objects.
    pub(crate) fn occur(
        &mut self,
        now: Timestamp,
        rule: &Name,
        mut subject: AlertSubject,
        at: Timestamp,
        what: Occurrence,
    ) -> Option<OpenKey> {
        let spec = self.rule(rule).filter(|spec| !spec.disabled)?;
        let (condition, repeat_every) = (spec.when.clone(), spec.repeat_every);
        let mut key = (rule.clone(), subject.name.clone());
        if !self.open.contains_key(&key) && self.open_count(rule) >= OPEN_MAX {
            subject = AlertSubject { name: String::new(), id: None, ..subject };
            key.1.clear();
        }
        let number = match self.open.get(&key) {
            Some(&number) => number,
            None => self.open_alert(now, rule, subject, at)?,
        };
        let record = self.alerts.get_mut(&number)?;
        let is_new = record.alert.count == 0;
        let alert = &mut record.alert;
        if let Some(job) = what.job {
            if alert.jobs.contains(&job)
                && matches!(condition, AlertCondition::JobLate { .. } | AlertCondition::JobSlow { .. })
            {
                return Some(key);
            }
            push_bounded(&mut alert.jobs, job);
        }
        if let Some(run) = what.run {
            push_bounded(&mut alert.runs, run);
        }
        alert.count += if is_new { what.failures.max(1) } else { 1 };
        alert.last_at = alert.last_at.max(at);
        if what.detail.is_some() {
            alert.detail = what.detail;
        }
        alert.summary = texts::describe(
            &alert.condition,
            alert.subject.kind,
            &alert.subject.name,
            alert.count,
            Language::English,
        );
        let is_due = alert.notified_at.is_none_or(|last| last + repeat_every <= now);
        let is_firing = alert.status == AlertStatus::Firing;
        self.changed.insert(RowId::Alert(number));
        let is_event = is_about_events(&condition, &key.1);
        if is_firing && is_due && (is_new || is_event) {
            self.want_notification(now, rule, number);
        }
        if is_new {
            let timer = if is_event { Timer::Stale(number) } else { Timer::Repeat(number) };
            self.arm(now + if is_event { STALE_AFTER } else { repeat_every }, timer);
        }
        Some(key)
    }

    fn open_alert(
        &mut self,
        now: Timestamp,
        rule: &Name,
        subject: AlertSubject,
        at: Timestamp,
    ) -> Option<u64> {
        let (condition, severity) = self.rule(rule).map(|spec| (spec.when.name(), spec.severity))?;
        let number = self.next_number();
        let alert = Alert {
            id: number,
            namespace: rule.namespace.clone(),
            rule: rule.name.clone(),
            condition: condition.to_owned(),
            subject,
            severity,
            status: AlertStatus::Firing,
            count: 0,
            summary: String::new(),
            detail: None,
            opened_at: at,
            last_at: at,
            resolved_at: None,
            resolved_by: None,
            actor: None,
            comment: None,
            silenced: false,
            notified_at: None,
            escalated_at: None,
            jobs: Vec::new(),
            runs: Vec::new(),
        };
        self.add_open(&alert);
        self.alerts.insert(number, AlertRecord::new(alert));
        if self.alerts.len() > 2 * RESOLVED_MAX {
            self.purge_soon(now);
        }
        Some(number)
    }

    /// Returns the number of open alerts of a rule.
    pub(crate) fn open_count(&self, rule: &Name) -> usize {
        self.open_counts.get(rule).copied().unwrap_or(0)
    }

    /// Resolves the open alert of a rule for an object, if there is one.
    pub(crate) fn resolve(&mut self, now: Timestamp, key: &OpenKey, reason: &str) {
        let Some(number) = self.remove_open(key) else { return };
        let notify = self.rule(&key.0).is_some_and(|rule| rule.notify_resolved);
        let Some(record) = self.alerts.get_mut(&number) else { return };
        record.alert.status = AlertStatus::Resolved;
        record.alert.resolved_at = Some(now);
        record.alert.resolved_by = Some(reason.to_owned());
        // An alert that was never notified is still to be: else a short failure would be unknown.
        let was_notified = record.alert.notified_at.is_some();
        let is_silenced = self.alerts.get(&number).is_some_and(|record| self.is_silenced(&record.alert, now));
        self.changed.insert(RowId::Alert(number));
        match (was_notified, notify && reason != "stale") {
            (true, true) => self.want_notification(now, &key.0, number),
            (true, false) => self.unwant_notification(&key.0, number),
            // The silence asked for quiet, and no channel heard of the beginning.
            (false, _) if is_silenced => self.unwant_notification(&key.0, number),
            (false, _) => {}
        }
    }
}

fn push_bounded<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if list.contains(&item) {
        return;
    }
    if list.len() >= NAMED_MAX {
        list.remove(0);
    }
    list.push(item);
}
