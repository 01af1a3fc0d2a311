//! Changes by users: rules, channels, and acts on alerts. Silences are in `silences`, and monitors in `monitors`.

use model::alert::{AlertCondition, AlertRuleSpec, ChannelSpec};
use model::api::AlertStatus;
use model::{Timestamp, limits};

use crate::rows::{ChannelRecord, Name, OpenKey, RowId, RuleRecord};
use crate::state::Alerts;
use crate::timer::Timer;

/// Why a change was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The object does not exist.
    #[error("{what} `{name}` does not exist")]
    NotFound {
        /// Kind of the object: `alert`, `alert rule`, `channel`, `silence` or `monitor`.
        what: &'static str,
        /// Name or number of the object.
        name: String,
    },
    /// The alert is already resolved.
    #[error("alert {alert} is already resolved")]
    Resolved {
        /// Number of the alert.
        alert: u64,
    },
    /// The condition of the alert is still met, so it would open again at once.
    #[error("cannot resolve alert {alert}: its condition is still met")]
    Lasting {
        /// Number of the alert.
        alert: u64,
    },
    /// Rules notify the channel.
    #[error("channel `{channel}` is in use by {}", rules.join(", "))]
    ChannelInUse {
        /// Name of the channel.
        channel: String,
        /// Names of the rules, each in backticks.
        rules: Vec<String>,
    },
    /// The object was changed meanwhile.
    #[error("{what} `{name}` was changed meanwhile: expected version {expected} but got {found}")]
    Outdated {
        /// Kind of the object.
        what: &'static str,
        /// Name of the object.
        name: String,
        /// Version that the caller has seen; 0 if it did not exist.
        expected: u64,
        /// Current version; 0 if it does not exist.
        found: u64,
    },
    /// The namespace has too many objects of this kind.
    #[error("namespace `{namespace}` has {max} {what}, which is the limit")]
    Limit {
        /// The namespace.
        namespace: String,
        /// Kind of the objects in the plural.
        what: &'static str,
        /// Most objects of this kind in a namespace.
        max: usize,
    },
}

impl Alerts {
    /// Creates or replaces a rule. Returns whether it changed. Open alerts of another condition are resolved.
    ///
    /// The caller has checked the spec, and passes the live jobs again ([`watch_live`](Self::watch_live)).
    ///
    /// # Errors
    /// [`Refusal::Limit`].
    pub fn put_rule(&mut self, now: Timestamp, actor: &str, spec: AlertRuleSpec) -> Result<bool, Refusal> {
        let name = Name::new(&spec.namespace, &spec.name);
        let known = self.rules.get(&name);
        if known.is_some_and(|known| known.spec == spec) {
            return Ok(false);
        }
        if known.is_none() {
            check_limit(&name.namespace, "alert rules", limits::ALERT_RULES_MAX, self.rules.keys())?;
        }
        let is_same =
            known.is_some_and(|known| known.spec.when == spec.when && known.spec.matches == spec.matches);
        let version = known.map_or(1, |known| known.version + 1);
        if needs_live(&spec) || known.is_some_and(|known| needs_live(&known.spec)) {
            self.rule_changes += 1;
        }
        if !is_same || spec.disabled {
            self.end_rule(now, &name);
        }
        let record = RuleRecord { spec, version, updated_at: now, updated_by: actor.to_owned() };
        self.rules.insert(name.clone(), record);
        self.changed.insert(RowId::Rule(name.clone()));
        self.reindex();
        self.arm(now, Timer::NoSuccess(name.clone()));
        self.arm(now, Timer::Group(name.clone()));
        // Monitors may be down already.
        self.follow_monitors_of(now, &name);
        // The channels may be new.
        for alert in self.open_of(&name) {
            self.arm(now, Timer::Repeat(alert));
            self.arm(now, Timer::Escalate(alert));
        }
        Ok(true)
    }

    /// Checks that a rule has the version that the caller has seen.
    ///
    /// # Errors
    /// [`Refusal::Outdated`].
    pub fn check_rule_version(
        &self,
        namespace: &str,
        rule: &str,
        expected: Option<u64>,
    ) -> Result<(), Refusal> {
        let found = self.rules.get(&Name::new(namespace, rule)).map_or(0, |rule| rule.version);
        check_version("alert rule", rule, expected, found)
    }

    /// Checks that a channel has the version that the caller has seen.
    ///
    /// # Errors
    /// [`Refusal::Outdated`].
    pub fn check_channel_version(
        &self,
        namespace: &str,
        channel: &str,
        expected: Option<u64>,
    ) -> Result<(), Refusal> {
        let found = self.channels.get(&Name::new(namespace, channel)).map_or(0, |channel| channel.version);
        check_version("channel", channel, expected, found)
    }

    /// Deletes a rule, and resolves its open alerts.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub fn delete_rule(&mut self, now: Timestamp, namespace: &str, rule: &str) -> Result<(), Refusal> {
        let name = Name::new(namespace, rule);
        if !self.rules.contains_key(&name) {
            return Err(not_found("alert rule", rule));
        }
        self.end_rule(now, &name);
        self.rules.remove(&name);
        self.grouped.remove(&name);
        self.changed.insert(RowId::Rule(name));
        self.reindex();
        Ok(())
    }

    /// Returns the open alerts of a rule.
    pub(crate) fn open_of(&self, rule: &Name) -> Vec<u64> {
        let first = (rule.clone(), String::new());
        self.open.range(first..).take_while(|((of, _), _)| of == rule).map(|(_, number)| *number).collect()
    }

    /// Resolves all alerts of a rule, notifies its channels of that, and forgets what it counted.
    fn end_rule(&mut self, now: Timestamp, rule: &Name) {
        let keys = |map: &mut dyn Iterator<Item = &OpenKey>| -> Vec<OpenKey> {
            map.filter(|(of, _)| of == rule).cloned().collect()
        };
        for key in keys(&mut self.streaks.keys()) {
            self.remove_streak(&key);
        }
        for key in keys(&mut self.open.keys()) {
            self.resolve(now, &key, "rule_changed");
        }
        // What was never notified needs no end.
        for alert in self.unsent.get(rule).cloned().unwrap_or_default() {
            if self.alerts.get(&alert).is_none_or(|record| record.alert.notified_at.is_none()) {
                self.unwant_notification(rule, alert);
            }
        }
        // Nothing tells them later, also if a silence would hold it back.
        self.notify_group(now, rule, true);
        for alert in self.unsent.get(rule).cloned().unwrap_or_default() {
            self.unwant_notification(rule, alert);
        }
        self.watched.forget(rule);
    }

    /// Creates or replaces a channel; `spec` has hidden secrets, `sealed` the encrypted target. Notifications that wait for
    /// it are attempted at once.
    ///
    /// # Errors
    /// [`Refusal::Limit`].
    pub fn put_channel(
        &mut self,
        now: Timestamp,
        actor: &str,
        spec: ChannelSpec,
        sealed: String,
    ) -> Result<(), Refusal> {
        let name = Name::new(&spec.namespace, &spec.name);
        let known = self.channels.get(&name);
        if known.is_none() {
            check_limit(&name.namespace, "channels", limits::CHANNELS_MAX, self.channels.keys())?;
        }
        let version = known.map_or(1, |known| known.version + 1);
        let delivered_at = known.and_then(|known| known.delivered_at);
        let updated_by = actor.to_owned();
        let record =
            ChannelRecord { spec, sealed, version, updated_at: now, updated_by, delivered_at, error: None };
        self.channels.insert(name.clone(), record);
        self.changed.insert(RowId::Channel(name.clone()));
        for number in self.lines.get(&name).map(|line| line.waiting.clone()).unwrap_or_default() {
            if let Some(notification) = self.notifications.get_mut(&number) {
                notification.next_attempt_at = Some(now);
                self.changed.insert(RowId::Notification(number));
            }
        }
        self.arm(now, Timer::Delivery(name));
        Ok(())
    }

    /// Deletes a channel; notifications that wait for it fail.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], or [`Refusal::ChannelInUse`].
    pub fn delete_channel(&mut self, now: Timestamp, namespace: &str, channel: &str) -> Result<(), Refusal> {
        let name = Name::new(namespace, channel);
        if !self.channels.contains_key(&name) {
            return Err(not_found("channel", channel));
        }
        let rules = self.rules_of_channel(&name);
        if !rules.is_empty() {
            let rules = rules.into_iter().map(|rule| format!("`{rule}`")).collect();
            return Err(Refusal::ChannelInUse { channel: channel.to_owned(), rules });
        }
        self.fail_waiting(now, &name, "the channel was deleted");
        self.channels.remove(&name);
        self.changed.insert(RowId::Channel(name));
        Ok(())
    }

    /// Returns the names of the rules that notify a channel.
    pub(crate) fn rules_of_channel(&self, channel: &Name) -> Vec<String> {
        let rules = self.rules.iter().filter(|(name, rule)| {
            name.namespace == channel.namespace && rule.spec.channels().any(|name| *name == channel.name)
        });
        rules.map(|(name, _)| name.name.clone()).collect()
    }

    /// Acknowledges an open alert: its notifications are not repeated.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], or [`Refusal::Resolved`].
    pub fn acknowledge(&mut self, number: u64, actor: &str, comment: Option<String>) -> Result<(), Refusal> {
        let Some(record) = self.alerts.get_mut(&number) else {
            return Err(not_found("alert", &number.to_string()));
        };
        if record.alert.status == AlertStatus::Resolved {
            return Err(Refusal::Resolved { alert: number });
        }
        record.alert.status = AlertStatus::Acknowledged;
        record.alert.actor = Some(actor.to_owned());
        record.alert.comment = comment;
        let rule = Name::new(&record.alert.namespace, &record.alert.rule);
        self.changed.insert(RowId::Alert(number));
        self.unwant_notification(&rule, number);
        Ok(())
    }

    /// Resolves an alert by hand. It opens again at the next occurrence.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], [`Refusal::Resolved`], or [`Refusal::Lasting`].
    pub fn resolve_by_user(
        &mut self,
        now: Timestamp,
        number: u64,
        actor: &str,
        comment: Option<String>,
    ) -> Result<(), Refusal> {
        let Some(alert) = self.alerts.get(&number).map(|record| &record.alert) else {
            return Err(not_found("alert", &number.to_string()));
        };
        if alert.status == AlertStatus::Resolved {
            return Err(Refusal::Resolved { alert: number });
        }
        let key = (Name::new(&alert.namespace, &alert.rule), alert.subject.name.clone());
        if self.rule(&key.0).is_some_and(|rule| self.is_observed(&rule.when, &key)) {
            return Err(Refusal::Lasting { alert: number });
        }
        let Some(alert) = self.alerts.get_mut(&number).map(|record| &mut record.alert) else {
            return Err(not_found("alert", &number.to_string()));
        };
        alert.actor = Some(actor.to_owned());
        alert.comment = comment;
        self.remove_streak(&key);
        self.resolve(now, &key, "resolved_by_user");
        Ok(())
    }

    /// Whether the core sees that the condition of an open alert is still met.
    fn is_observed(&self, condition: &AlertCondition, key: &OpenKey) -> bool {
        match condition {
            AlertCondition::JobLate { .. } | AlertCondition::JobSlow { .. } => {
                self.watched.holds.get(key).is_some_and(|jobs| !jobs.is_empty())
            }
            AlertCondition::NoSuccess { .. }
            | AlertCondition::SchedulePaused {}
            | AlertCondition::WorkerLost {}
            | AlertCondition::ServiceDegraded { .. }
            | AlertCondition::MonitorDown {}
            | AlertCondition::QueueDelay { .. } => !key.1.is_empty(),
            _ => false,
        }
    }
}

/// Whether the rule needs the live jobs or the paused schedules.
const fn needs_live(rule: &AlertRuleSpec) -> bool {
    matches!(
        rule.when,
        AlertCondition::JobLate { .. } | AlertCondition::JobSlow { .. } | AlertCondition::SchedulePaused {}
    )
}

pub(crate) fn check_version(
    what: &'static str,
    name: &str,
    expected: Option<u64>,
    found: u64,
) -> Result<(), Refusal> {
    match expected.filter(|expected| *expected != found) {
        None => Ok(()),
        Some(expected) => Err(Refusal::Outdated { what, name: name.to_owned(), expected, found }),
    }
}

pub(crate) fn check_limit<'n>(
    namespace: &str,
    what: &'static str,
    max: usize,
    names: impl Iterator<Item = &'n Name>,
) -> Result<(), Refusal> {
    if names.filter(|name| name.namespace == namespace).count() < max {
        return Ok(());
    }
    Err(Refusal::Limit { namespace: namespace.to_owned(), what, max })
}

pub(crate) fn not_found(what: &'static str, name: &str) -> Refusal {
    Refusal::NotFound { what, name: name.to_owned() }
}
