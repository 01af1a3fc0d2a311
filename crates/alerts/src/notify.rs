//! From alerts to notifications, and their delivery.
//!
//! Alerts that must be notified wait in `unsent` until their rule may notify again; then each channel of the rule gets one
//! notification of all of them. Notifications wait in a `Line` for each channel, so a slow channel delays no other.

use std::collections::{BTreeMap, BTreeSet};

use model::alert::AlertRuleSpec;
use model::api::{Alert, AlertStatus, NotificationStatus};
use model::{Duration, Timestamp};

use crate::limits::{DELIVERY_TIME_MAX, GROUP_INTERVAL, LISTED_MAX, NOTIFICATIONS_MAX, WAITING_MAX};
use crate::line::InFlight;
use crate::message::{Item, Message};
use crate::occurrence::is_about_events;
use crate::rows::{AlertRecord, Name, NotificationRecord, RowId, retry_delay};
use crate::state::Alerts;
use crate::target::{self, Retry};
use crate::timer::Timer;

/// Notification that is to be delivered now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Number of the notification.
    pub notification: u64,
    /// Target of the channel with its secrets, as the caller encrypted it.
    pub sealed: String,
    /// Name of the channel.
    pub channel: String,
    /// The message.
    pub message: Message,
}

/// Result of an attempt to deliver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// The service accepted the message.
    Delivered,
    /// The service did not accept it.
    Refused(target::Refused),
}

impl Alerts {
    /// Notes that channels must be notified of an alert.
    pub(crate) fn want_notification(&mut self, now: Timestamp, rule: &Name, alert: u64) {
        let has_channels = self.rule(rule).is_some_and(|rule| !rule.notify.is_empty());
        let Some(record) = self.alerts.get_mut(&alert) else { return };
        if !has_channels && record.channels.is_empty() {
            return;
        }
        (record.unsent, record.escalating) = (true, false);
        self.changed.insert(RowId::Alert(alert));
        self.unsent.entry(rule.clone()).or_default().insert(alert);
        if self.alerts.get(&alert).is_some_and(|record| self.is_silenced(&record.alert, now)) {
            // The end of the silence wakes it.
            return;
        }
        let at = self.grouped.get(rule).map_or(now, |last| now.max(*last + GROUP_INTERVAL));
        self.arm(at, Timer::Group(rule.clone()));
    }

    /// Notes that an alert needs no notification any more.
    pub(crate) fn unwant_notification(&mut self, rule: &Name, alert: u64) {
        if let Some(unsent) = self.unsent.get_mut(rule) {
            unsent.remove(&alert);
            if unsent.is_empty() {
                self.unsent.remove(rule);
            }
        }
        if let Some(record) = self.alerts.get_mut(&alert) {
            (record.unsent, record.escalating) = (false, false);
            self.changed.insert(RowId::Alert(alert));
        }
    }

    /// Notifies the channels of a rule of all alerts that wait for it, unless it has just notified them.
    pub(crate) fn on_group(&mut self, now: Timestamp, name: &Name) {
        match self.grouped.get(name).filter(|last| **last + GROUP_INTERVAL > now) {
            Some(last) if self.unsent.contains_key(name) => {
                self.arm(*last + GROUP_INTERVAL, Timer::Group(name.clone()));
            }
            _ => self.notify_group(now, name, false),
        }
    }

    /// Notifies the channels of a rule of all alerts that wait for it, except those that a silence holds back.
    pub(crate) fn notify_group(&mut self, now: Timestamp, name: &Name, ignores_silences: bool) {
        let Some(unsent) = self.unsent.get(name) else { return };
        let unsent: Vec<u64> = unsent.iter().copied().collect();
        // A rule that this server cannot read keeps its alerts for one that can.
        let Some(rule) = self.rules.get(name).map(|rule| rule.spec.clone()) else { return };
        let mut sent = Vec::new();
        for number in unsent {
            let Some(record) = self.alerts.get(&number) else { continue };
            let is_resolved = record.alert.status == AlertStatus::Resolved;
            match !ignores_silences && self.is_silenced(&record.alert, now) {
                // The end of a failure matters only to those who heard of its beginning.
                true if is_resolved && record.alert.notified_at.is_none() => {
                    self.unwant_notification(name, number)
                }
                true => {}
                false if is_resolved && self.newer_is_told(name, &record.alert.subject.name) => {
                    self.unwant_notification(name, number);
                }
                false => sent.push(number),
            }
        }
        if sent.is_empty() {
            return;
        }
        let former = sent.iter().filter_map(|number| self.alerts.get(number)).flat_map(|it| &it.channels);
        let former =
            former.filter(|channel| self.channels.contains_key(&Name::new(&name.namespace, channel)));
        let channels: BTreeSet<String> = rule.channels().chain(former).cloned().collect();
        let mut notified: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        for channel in channels {
            let told: Vec<u64> =
                sent.iter().copied().filter(|number| self.is_for(&rule, &channel, *number)).collect();
            if told.is_empty() {
                continue;
            }
            let record = self.notification_of(now, &rule, &channel, &told);
            self.add_notification(now, &Name::new(&name.namespace, &channel), record);
            for number in told {
                notified.entry(number).or_default().insert(channel.clone());
            }
        }
        for number in sent {
            self.unwant_notification(name, number);
            let Some(channels) = notified.remove(&number) else { continue };
            let Some(record) = self.alerts.get_mut(&number) else { continue };
            record.alert.notified_at = Some(now);
            let first = *record.first_notified_at.get_or_insert(now);
            record.channels =
                record.channels.drain(..).collect::<BTreeSet<_>>().union(&channels).cloned().collect();
            let is_lasting = !is_about_events(&rule.when, &record.alert.subject.name);
            let is_open = record.alert.status != AlertStatus::Resolved;
            let may_escalate = is_open && record.alert.escalated_at.is_none();
            if is_open && is_lasting {
                self.arm(now + rule.repeat_every, Timer::Repeat(number));
            }
            if let Some(escalation) = rule.escalate.as_ref().filter(|_| may_escalate) {
                self.arm(first + escalation.after, Timer::Escalate(number));
            }
            self.grouped.insert(name.clone(), now);
        }
    }

    /// Whether an open alert about the same object was or will be notified, so that it tells the state of the object.
    fn newer_is_told(&self, rule: &Name, subject: &str) -> bool {
        let newer = self.open.get(&(rule.clone(), subject.to_owned()));
        let newer = newer.and_then(|number| self.alerts.get(number));
        newer.is_some_and(|record| record.unsent || record.alert.notified_at.is_some())
    }

    /// Whether a channel is to be notified of an alert: of its end if it heard of its beginning, or if no channel did. A
    /// channel of the escalation is to be notified once the alert is escalated.
    fn is_for(&self, rule: &AlertRuleSpec, channel: &String, alert: u64) -> bool {
        let Some(record) = self.alerts.get(&alert) else { return false };
        if record.alert.status == AlertStatus::Resolved && !record.channels.is_empty() {
            return record.channels.contains(channel);
        }
        let is_escalated = record.alert.escalated_at.is_some() && rule.escalation_to(channel).is_some();
        match record.escalating {
            true => is_escalated && !record.channels.contains(channel),
            false => is_escalated || rule.notify.contains(channel),
        }
    }

    /// Escalates an alert that no user acknowledged in time: further channels are notified.
    pub(crate) fn on_escalate(&mut self, now: Timestamp, number: u64) {
        let Some(record) = self.alerts.get(&number) else { return };
        let alert = &record.alert;
        if alert.status != AlertStatus::Firing || alert.escalated_at.is_some() {
            return;
        }
        let rule = Name::new(&alert.namespace, &alert.rule);
        let Some(after) = self.rule(&rule).and_then(|spec| spec.escalate.as_ref()).map(|it| it.after) else {
            return;
        };
        // A row of an earlier release has no time of the first notification.
        let Some(first) = record.first_notified_at.or(alert.notified_at) else { return };
        if first + after > now {
            return self.arm(first + after, Timer::Escalate(number));
        }
        let was_unsent = record.unsent;
        if let Some(record) = self.alerts.get_mut(&number) {
            record.alert.escalated_at = Some(now);
        }
        self.want_notification(now, &rule, number);
        if let Some(record) = self.alerts.get_mut(&number) {
            record.escalating = !was_unsent;
        }
    }

    /// Returns the notification of alerts to a channel of a rule.
    fn notification_of(
        &self,
        now: Timestamp,
        rule: &AlertRuleSpec,
        channel: &str,
        told: &[u64],
    ) -> NotificationRecord {
        // Open alerts first, so that those that are not listed are rather the resolved ones.
        let alerts =
            told.iter().rev().filter_map(|number| self.alerts.get(number)).map(|record| &record.alert);
        let (resolved, firing): (Vec<_>, Vec<_>) =
            alerts.partition(|alert| alert.status == AlertStatus::Resolved);
        let is_escalated = firing.iter().any(|alert| alert.escalated_at.is_some());
        let escalation = rule.escalation_to(channel).filter(|_| is_escalated);
        // The receiver closes the incident of the rule when the last alert ends that it heard of.
        let is_known = |number: &u64| {
            let heard = |record: &AlertRecord| record.channels.iter().any(|it| it == channel);
            told.binary_search(number).is_ok() || self.alerts.get(number).is_some_and(heard)
        };
        let open = self.open_of(&Name::new(&rule.namespace, &rule.name));
        let open = open.iter().filter(|number| is_known(number)).count();
        NotificationRecord {
            namespace: rule.namespace.clone(),
            rule: rule.name.clone(),
            channel: channel.to_owned(),
            items: firing.iter().chain(&resolved).take(LISTED_MAX).map(|alert| item(alert)).collect(),
            total: told.len() as u64,
            firing: firing.len() as u64,
            open: open as u64,
            escalated_after: escalation.map(|escalation| escalation.after),
            status: NotificationStatus::Waiting,
            attempts: 0,
            created_at: now,
            next_attempt_at: Some(now),
            finished_at: None,
            error: None,
            condition: rule.when.name().to_owned(),
            description: rule.description.clone(),
            runbook: rule.runbook.clone(),
            severity: rule.severity,
        }
    }

    fn add_notification(&mut self, now: Timestamp, channel: &Name, mut record: NotificationRecord) {
        let number = self.next_number();
        if self.channels.contains_key(channel) {
            let line = self.lines.entry(channel.clone()).or_default();
            line.waiting.insert(number);
            if line.waiting.len() > WAITING_MAX {
                self.fail_oldest(now, channel);
            }
            self.arm(now, Timer::Delivery(channel.clone()));
        } else {
            record.error = Some("the channel does not exist".to_owned());
            record.finish(now, NotificationStatus::Failed);
        }
        if self.notifications.len() > 2 * NOTIFICATIONS_MAX {
            self.purge_soon(now);
        }
        self.notifications.insert(number, record);
        self.changed.insert(RowId::Notification(number));
    }

    /// Gives up the oldest waiting notification of a channel, so that newer ones have a place.
    fn fail_oldest(&mut self, now: Timestamp, channel: &Name) {
        let Some(line) = self.lines.get_mut(channel) else { return };
        let in_flight = line.in_flight.map(|it| it.notification);
        let Some(oldest) = line.waiting.iter().copied().find(|number| Some(*number) != in_flight) else {
            return;
        };
        line.waiting.remove(&oldest);
        if let Some(record) = self.notifications.get_mut(&oldest) {
            record.error = Some("too many notifications wait for the channel".to_owned());
            record.finish(now, NotificationStatus::Failed);
            self.changed.insert(RowId::Notification(oldest));
        }
    }

    /// Repeats the notification of a state that lasts.
    pub(crate) fn on_repeat(&mut self, now: Timestamp, number: u64) {
        let Some(alert) = self.alerts.get(&number).map(|record| &record.alert) else { return };
        if alert.status != AlertStatus::Firing {
            return;
        }
        let rule = Name::new(&alert.namespace, &alert.rule);
        let subject = &alert.subject.name;
        let Some(spec) = self.rule(&rule).filter(|spec| !is_about_events(&spec.when, subject)) else {
            return;
        };
        match alert.notified_at.map(|last| last + spec.repeat_every) {
            Some(at) if at > now => self.arm(at, Timer::Repeat(number)),
            _ => self.want_notification(now, &rule, number),
        }
    }

    /// Returns the notifications that are to be delivered now, at most one for each channel, and none of a channel that
    /// has one in flight. The caller calls [`delivered`](Self::delivered) for each.
    ///
    /// All rows must be written before: a notification must not be delivered before its alert is durable.
    pub fn due(&mut self, now: Timestamp) -> Vec<Due> {
        let channels: Vec<Name> = self.lines.keys().cloned().collect();
        channels.into_iter().filter_map(|channel| self.due_of(now, &channel)).collect()
    }

    fn due_of(&mut self, now: Timestamp, name: &Name) -> Option<Due> {
        let channel = self.channels.get(name)?;
        let line = self.lines.get_mut(name).filter(|line| line.in_flight.is_none())?;
        let number = match line.next(&self.notifications, now) {
            Ok(number) => number,
            Err(next) => {
                if let Some(at) = next {
                    self.arm(at, Timer::Delivery(name.clone()));
                }
                return None;
            }
        };
        let record = self.notifications.get(&number)?;
        let minute = Duration::from_secs(60);
        while line.attempts.front().is_some_and(|at| *at + minute <= now) {
            line.attempts.pop_front();
        }
        let limit = target::per_minute(&channel.spec.to) as usize;
        if let Some(oldest) = line.attempts.front().copied().filter(|_| line.attempts.len() >= limit) {
            self.arm(oldest + minute, Timer::Delivery(name.clone()));
            return None;
        }
        line.attempts.push_back(now);
        line.in_flight = Some(InFlight { notification: number, channel: channel.version });
        let message = Message {
            id: number,
            namespace: record.namespace.clone(),
            rule: record.rule.clone(),
            condition: record.condition.clone(),
            description: record.description.clone(),
            runbook: record.runbook.clone(),
            severity: record.severity,
            language: channel.spec.language,
            at: record.created_at,
            items: record.items.clone(),
            total: record.total,
            firing: record.firing,
            open: record.open,
            escalated_after: record.escalated_after,
            is_test: false,
            dashboard: None,
        };
        let sealed = channel.sealed.clone();
        Some(Due { notification: number, sealed, channel: name.name.clone(), message })
    }

    /// Takes a notification back that [`due`](Self::due) returned, because an earlier delivery of it has not ended. It is due
    /// again after a second.
    pub fn not_begun(&mut self, now: Timestamp, notification: u64) {
        let Some(record) = self.notifications.get(&notification) else { return };
        let name = Name::new(&record.namespace, &record.channel);
        let Some(line) = self.lines.get_mut(&name) else { return };
        if line.in_flight.is_some_and(|it| it.notification == notification) {
            line.in_flight = None;
            line.attempts.pop_back();
            self.disarm(&Timer::Delivery(name.clone()));
            self.arm(now + Duration::from_secs(1), Timer::Delivery(name));
        }
    }

    /// Records the result of an attempt that [`due`](Self::due) asked for.
    pub fn delivered(&mut self, now: Timestamp, notification: u64, attempt: Attempt) {
        let Some(record) = self.notifications.get_mut(&notification) else { return };
        if record.status != NotificationStatus::Waiting {
            return;
        }
        let name = Name::new(&record.namespace, &record.channel);
        let in_flight = self.lines.get(&name).and_then(|line| line.in_flight);
        let sent_to = in_flight.filter(|it| it.notification == notification).map(|it| it.channel);
        let version = self.channels.get(&name).map(|channel| channel.version);
        // The channel was replaced during the attempt: what the former service said no longer matters.
        let is_outdated = sent_to.is_some() && sent_to != version;
        record.attempts += 1;
        record.error = None;
        match attempt {
            Attempt::Delivered => record.finish(now, NotificationStatus::Delivered),
            Attempt::Refused(target::Refused { reason, retry }) => {
                record.error = Some(reason);
                let delay = retry_delay(record.attempts);
                let next = match retry {
                    _ if is_outdated => Some(now),
                    Retry::Never => None,
                    Retry::Later => Some(now + delay),
                    Retry::After(wait) => Some(now + wait.max(delay)),
                };
                match next.filter(|next| *next < record.created_at + DELIVERY_TIME_MAX) {
                    Some(next) => record.next_attempt_at = Some(next),
                    None => record.finish(now, NotificationStatus::Failed),
                }
            }
        }
        let (status, error) = (record.status, record.error.clone());
        self.changed.insert(RowId::Notification(notification));
        if let Some(channel) = self.channels.get_mut(&name) {
            if status == NotificationStatus::Delivered {
                channel.delivered_at = Some(now);
            }
            channel.error = error;
            self.changed.insert(RowId::Channel(name.clone()));
        }
        let Some(line) = self.lines.get_mut(&name) else { return };
        if line.in_flight.is_some_and(|it| it.notification == notification) {
            line.in_flight = None;
        }
        if status != NotificationStatus::Waiting {
            line.waiting.remove(&notification);
        }
        self.arm(now, Timer::Delivery(name));
    }

    /// Ends old notifications that wait for a channel that this server cannot read.
    pub(crate) fn fail_undeliverable(&mut self, now: Timestamp) {
        let lines = self.lines.iter().filter(|(channel, _)| !self.channels.contains_key(*channel));
        let waiting: Vec<_> = lines
            .flat_map(|(name, line)| line.waiting.iter().map(|number| (name.clone(), *number)))
            .collect();
        for (channel, number) in waiting {
            let Some(record) = self.notifications.get_mut(&number) else { continue };
            if record.created_at + DELIVERY_TIME_MAX > now {
                continue;
            }
            record.error = Some("the channel cannot be read".to_owned());
            record.finish(now, NotificationStatus::Failed);
            self.changed.insert(RowId::Notification(number));
            if let Some(line) = self.lines.get_mut(&channel) {
                line.waiting.remove(&number);
            }
        }
    }

    /// Ends the notifications that wait for a deleted channel.
    pub(crate) fn fail_waiting(&mut self, now: Timestamp, channel: &Name, reason: &str) {
        let Some(line) = self.lines.remove(channel) else { return };
        for number in line.waiting {
            let Some(record) = self.notifications.get_mut(&number) else { continue };
            record.error = Some(reason.to_owned());
            record.finish(now, NotificationStatus::Failed);
            self.changed.insert(RowId::Notification(number));
        }
    }
}

impl NotificationRecord {
    fn finish(&mut self, now: Timestamp, status: NotificationStatus) {
        self.status = status;
        self.finished_at = Some(now);
        self.next_attempt_at = None;
    }
}

fn item(alert: &Alert) -> Item {
    Item {
        alert: alert.id,
        kind: alert.subject.kind,
        subject: alert.subject.name.clone(),
        resolved: alert.status == AlertStatus::Resolved,
        count: alert.count,
        opened_at: alert.opened_at,
        last_at: alert.last_at,
        resolved_at: alert.resolved_at,
        summary: alert.summary.clone(),
        detail: alert.detail.clone(),
        log: None,
        job: alert.jobs.last().copied(),
        run: alert.runs.last().copied(),
    }
}
