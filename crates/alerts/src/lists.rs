//! What the API shows.

use std::collections::BTreeSet;

use model::Timestamp;
use model::alert::Severity;
use model::api::{self, Alert, AlertRule, AlertStatus, Channel, NotificationStatus};

use crate::glob;
use crate::rows::Name;
use crate::state::Alerts;

/// Selects alerts; all conditions must match.
#[derive(Debug, Clone, Default)]
pub struct AlertFilter {
    /// Statuses; empty for all.
    pub statuses: BTreeSet<AlertStatus>,
    /// Severities; empty for all.
    pub severities: BTreeSet<Severity>,
    /// Pattern of the name of the rule.
    pub rule: Option<String>,
    /// Pattern of the name of the object.
    pub subject: Option<String>,
}

/// Selects notifications; all conditions must match.
#[derive(Debug, Clone, Default)]
pub struct NotificationFilter {
    /// Status.
    pub status: Option<NotificationStatus>,
    /// Name of the channel.
    pub channel: Option<String>,
    /// Name of the rule.
    pub rule: Option<String>,
    /// Number of an alert.
    pub alert: Option<u64>,
}

impl Alerts {
    /// Returns at most `limit` alerts: open ones first, each newest first.
    pub fn alerts(
        &self,
        now: Timestamp,
        may_read: impl Fn(&str) -> bool,
        filter: &AlertFilter,
        limit: usize,
    ) -> api::Alerts {
        let fits = |pattern: &Option<String>, name: &str| {
            pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, name))
        };
        let matching = |alert: &&Alert| {
            (filter.statuses.is_empty() || filter.statuses.contains(&alert.status))
                && (filter.severities.is_empty() || filter.severities.contains(&alert.severity))
                && fits(&filter.rule, &alert.rule)
                && fits(&filter.subject, &alert.subject.name)
                && may_read(&alert.namespace)
        };
        let all = self.alerts.values().rev().map(|record| &record.alert).filter(matching);
        let (open, resolved): (Vec<_>, Vec<_>) = all.partition(|alert| alert.status != AlertStatus::Resolved);
        let more = open.len() + resolved.len() > limit;
        let number = open.len() as u64;
        let shown = open.into_iter().chain(resolved).take(limit);
        api::Alerts { items: shown.map(|alert| self.shown(alert, now)).collect(), open: number, more }
    }

    /// Returns an alert by its number.
    pub fn alert(&self, now: Timestamp, number: u64) -> Option<Alert> {
        self.alerts.get(&number).map(|record| self.shown(&record.alert, now))
    }

    fn shown(&self, alert: &Alert, now: Timestamp) -> Alert {
        let is_open = alert.status != AlertStatus::Resolved;
        Alert { silenced: is_open && self.is_silenced(alert, now), ..alert.clone() }
    }

    /// Returns the number of open alerts of each severity, for metrics.
    pub fn open_counts(&self) -> std::collections::BTreeMap<Severity, u64> {
        let mut counts = std::collections::BTreeMap::new();
        for record in self.open.values().filter_map(|number| self.alerts.get(number)) {
            *counts.entry(record.alert.severity).or_default() += 1;
        }
        counts
    }

    /// Returns the rules of the namespaces that the caller may read, ordered by namespace and name.
    pub fn rules(&self, may_read: impl Fn(&str) -> bool) -> Vec<AlertRule> {
        self.rules
            .keys()
            .filter(|name| may_read(&name.namespace))
            .filter_map(|name| self.shown_rule(name))
            .collect()
    }

    /// Returns a rule by its name.
    pub fn rule_named(&self, namespace: &str, name: &str) -> Option<AlertRule> {
        self.shown_rule(&Name::new(namespace, name))
    }

    fn shown_rule(&self, name: &Name) -> Option<AlertRule> {
        let rule = self.rules.get(name)?;
        let is_missing =
            |channel: &&String| !self.channels.contains_key(&Name::new(&name.namespace, channel));
        Some(AlertRule {
            spec: rule.spec.clone(),
            version: rule.version,
            updated_at: rule.updated_at,
            updated_by: rule.updated_by.clone(),
            open_alerts: self.open_count(name) as u64,
            missing_channels: rule.spec.channels().filter(is_missing).cloned().collect(),
        })
    }

    /// Returns the channels of the namespaces that the caller may read, ordered by namespace and name.
    pub fn channels(&self, may_read: impl Fn(&str) -> bool) -> Vec<Channel> {
        let names = self.channels.keys().filter(|name| may_read(&name.namespace));
        names.filter_map(|name| self.shown_channel(name)).collect()
    }

    /// Returns a channel by its name.
    pub fn channel_named(&self, namespace: &str, name: &str) -> Option<Channel> {
        self.shown_channel(&Name::new(namespace, name))
    }

    /// Returns namespace, name and encrypted target of each channel.
    pub fn sealed_targets(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let each = self.channels.iter();
        each.map(|(name, channel)| (name.namespace.as_str(), name.name.as_str(), channel.sealed.as_str()))
    }

    /// Returns the encrypted target of a channel.
    pub fn sealed_target(&self, namespace: &str, name: &str) -> Option<&str> {
        self.channels.get(&Name::new(namespace, name)).map(|channel| channel.sealed.as_str())
    }

    fn shown_channel(&self, name: &Name) -> Option<Channel> {
        let channel = self.channels.get(name)?;
        Some(Channel {
            spec: channel.spec.clone(),
            version: channel.version,
            updated_at: channel.updated_at,
            updated_by: channel.updated_by.clone(),
            rules: self.rules_of_channel(name),
            waiting: self.lines.get(name).map_or(0, |line| line.waiting.len() as u64),
            delivered_at: channel.delivered_at,
            error: channel.error.clone(),
        })
    }

    /// Returns at most `limit` notifications, newest first.
    pub fn notifications(
        &self,
        may_read: impl Fn(&str) -> bool,
        filter: &NotificationFilter,
        limit: usize,
    ) -> api::Notifications {
        let matching = self.notifications.iter().rev().filter(|(_, it)| {
            filter.status.is_none_or(|status| it.status == status)
                && filter.channel.as_ref().is_none_or(|channel| *channel == it.channel)
                && filter.rule.as_ref().is_none_or(|rule| *rule == it.rule)
                && filter.alert.is_none_or(|alert| it.items.iter().any(|item| item.alert == alert))
                && may_read(&it.namespace)
        });
        let mut items: Vec<_> = matching
            .take(limit.saturating_add(1))
            .map(|(&id, it)| api::Notification {
                id,
                namespace: it.namespace.clone(),
                rule: it.rule.clone(),
                channel: it.channel.clone(),
                alerts: it.items.iter().map(|item| item.alert).collect(),
                total: it.total,
                status: it.status,
                attempts: it.attempts,
                created_at: it.created_at,
                next_attempt_at: it.next_attempt_at,
                finished_at: it.finished_at,
                error: it.error.clone(),
            })
            .collect();
        let more = items.len() > limit;
        items.truncate(limit);
        api::Notifications { items, more }
    }
}
