//! The state of all alerts, and its rows.

use std::collections::{BTreeMap, BTreeSet};

use model::alert::{AlertRuleSpec, SubjectKind};
use model::api::{Alert, AlertStatus, NotificationStatus, Silence};
use model::{Duration, Timestamp};

use crate::index::RuleIndex;
use crate::limits;
use crate::line::Line;
use crate::live::{DegradedServices, Period, Watched};
use crate::rows::{
    AlertRecord, ChannelRecord, MonitorRecord, MonitorState, Name, NotificationRecord, OpenKey, Position,
    Row, RowId, RuleRecord, Streak, Unreadable, name_of_key,
};
use crate::timer::Timer;

/// All rules, channels, alerts, silences, notifications and monitors. See the [crate's page](crate).
#[derive(Debug, Default)]
pub struct Alerts {
    pub(crate) position: Position,
    pub(crate) rules: BTreeMap<Name, RuleRecord>,
    pub(crate) channels: BTreeMap<Name, ChannelRecord>,
    pub(crate) silences: BTreeMap<u64, Silence>,
    /// Current or next periods of recurring silences; not stored.
    pub(crate) silence_periods: BTreeMap<u64, Period>,
    pub(crate) alerts: BTreeMap<u64, AlertRecord>,
    pub(crate) streaks: BTreeMap<OpenKey, Streak>,
    pub(crate) notifications: BTreeMap<u64, NotificationRecord>,
    pub(crate) monitors: BTreeMap<Name, MonitorRecord>,
    pub(crate) monitor_states: BTreeMap<Name, MonitorState>,
    /// Rows that changed since they were last taken.
    pub(crate) changed: BTreeSet<RowId>,
    /// Rules by what they watch.
    pub(crate) index: RuleIndex,
    /// Number of changes of rules since the load.
    pub(crate) rule_changes: u64,
    /// Numbers of open alerts.
    pub(crate) open: BTreeMap<OpenKey, u64>,
    /// Number of open alerts of each rule.
    pub(crate) open_counts: BTreeMap<Name, usize>,
    /// Number of streaks of each rule.
    pub(crate) streak_counts: BTreeMap<Name, usize>,
    /// Open alerts about skipped times, by the ID of the schedule.
    pub(crate) skipping: BTreeMap<String, BTreeSet<OpenKey>>,
    /// Rules that have an open alert or a streak for an object.
    pub(crate) active: BTreeMap<(String, SubjectKind, String), BTreeSet<Name>>,
    /// Number of objects of a namespace, in `active`, whose successes matter.
    pub(crate) active_jobs: BTreeMap<String, usize>,
    /// Alerts that must be notified, by rule.
    pub(crate) unsent: BTreeMap<Name, BTreeSet<u64>>,
    /// Times of the last notification of each rule.
    pub(crate) grouped: BTreeMap<Name, Timestamp>,
    /// Notifications that wait for delivery, by channel.
    pub(crate) lines: BTreeMap<Name, Line>,
    pub(crate) watched: Watched,
    /// Services that lack replicas; not stored.
    pub(crate) degraded: DegradedServices,
    /// Monitors by the hash of the token of their ping URL.
    pub(crate) monitor_tokens: BTreeMap<String, Name>,
    /// Times at which monitors expect the next ping.
    pub(crate) expected_pings: BTreeMap<Name, Timestamp>,
    /// Time of the load.
    pub(crate) loaded_at: Timestamp,
    pub(crate) timers: BTreeSet<(Timestamp, Timer)>,
    /// Armed time of each timer of which there must be one at most.
    armed: BTreeMap<Timer, Timestamp>,
    /// Time of the last purge.
    purged_at: Option<Timestamp>,
}

impl Alerts {
    /// Rebuilds the state from all rows of the store. Rows that cannot be read are left out and returned.
    pub fn load(
        rows: impl IntoIterator<Item = (String, String, String)>,
        now: Timestamp,
    ) -> (Self, Vec<Unreadable>) {
        let (mut state, mut unreadable) = (Self::default(), Vec::new());
        for (kind, key, body) in rows {
            if let Err(reason) = state.read(&kind, &key, &body) {
                unreadable.push(Unreadable { kind, key, reason });
            }
        }
        state.rebuild(now);
        (state, unreadable)
    }

    fn read(&mut self, kind: &str, key: &str, body: &str) -> Result<(), String> {
        fn parse<T: serde::de::DeserializeOwned>(body: &str) -> Result<T, String> {
            serde_json::from_str(body).map_err(|error| error.to_string())
        }
        let number = || key.parse().map_err(|_| "the key is not a number".to_owned());
        let name = || name_of_key(key).ok_or_else(|| "the key is not a name".to_owned());
        match kind {
            "position" => self.position = parse(body)?,
            "rule" => drop(self.rules.insert(name()?.0, parse(body)?)),
            "channel" => drop(self.channels.insert(name()?.0, parse(body)?)),
            "silence" | "recurring_silence" => drop(self.silences.insert(number()?, parse(body)?)),
            "alert" => drop(self.alerts.insert(number()?, parse(body)?)),
            "notification" => drop(self.notifications.insert(number()?, parse(body)?)),
            "monitor" => drop(self.monitors.insert(name()?.0, parse(body)?)),
            "monitor_state" => drop(self.monitor_states.insert(name()?.0, parse(body)?)),
            "streak" => {
                let (rule, subject) = name()?;
                let subject = subject.ok_or("the key has no subject")?.to_owned();
                self.streaks.insert((rule, subject), parse(body)?);
            }
            _ => return Err("the kind is not known".to_owned()),
        }
        Ok(())
    }

    fn rebuild(&mut self, now: Timestamp) {
        let newest = [self.alerts.keys().max(), self.notifications.keys().max(), self.silences.keys().max()];
        let newest = newest.into_iter().flatten().copied().max().unwrap_or(0);
        self.position.number = self.position.number.max(newest);
        self.reindex();
        for (&number, record) in &self.alerts {
            let rule = Name::new(&record.alert.namespace, &record.alert.rule);
            if let Some(at) = record.alert.notified_at {
                // The clock may have been set back. A rule that was created again has notified of nothing yet.
                let is_older =
                    self.rules.get(&rule).is_some_and(|rule| rule.version == 1 && at < rule.updated_at);
                if !is_older {
                    let last = self.grouped.entry(rule.clone()).or_default();
                    *last = at.min(now).max(*last);
                }
            }
            if record.unsent {
                self.unsent.entry(rule.clone()).or_default().insert(number);
            }
        }
        let is_open = |record: &&AlertRecord| record.alert.status != AlertStatus::Resolved;
        let open: Vec<_> = self.alerts.values().filter(is_open).map(|record| record.alert.clone()).collect();
        open.iter().for_each(|alert| self.add_open(alert));
        for key in self.streaks.keys().cloned().collect::<Vec<_>>() {
            *self.streak_counts.entry(key.0.clone()).or_default() += 1;
            self.mark_active(&key);
        }
        for (&number, record) in &mut self.notifications {
            if record.status == NotificationStatus::Waiting {
                record.next_attempt_at =
                    record.next_attempt_at.map(|at| at.min(now + limits::RETRY_DELAY_MAX));
                let channel = Name::new(&record.namespace, &record.channel);
                self.lines.entry(channel).or_default().waiting.insert(number);
            }
        }
        self.rebuild_monitors(now);
        self.rebuild_silences(now);
        self.arm_all(now);
    }

    /// Arms every timer that the rows need; called after a load.
    fn arm_all(&mut self, now: Timestamp) {
        let mut timers = Vec::new();
        timers.extend(self.unsent.keys().map(|rule| (now, Timer::Group(rule.clone()))));
        timers.extend(self.lines.keys().map(|channel| (now, Timer::Delivery(channel.clone()))));
        for number in self.open.values() {
            timers.extend([(now, Timer::Repeat(*number)), (now, Timer::Stale(*number))]);
            timers.push((now, Timer::Escalate(*number)));
        }
        timers.extend(
            self.streaks.keys().map(|(rule, subject)| (now, Timer::Rate(rule.clone(), subject.clone()))),
        );
        timers.extend(self.rules.keys().map(|rule| (now, Timer::NoSuccess(rule.clone()))));
        timers.extend(self.monitors.keys().map(|monitor| (now, Timer::Monitor(monitor.clone()))));
        timers.extend(self.silences.keys().map(|number| (now, Timer::Silence(*number))));
        timers.push((now, Timer::Purge));
        timers.into_iter().for_each(|(at, timer)| self.arm(at, timer));
    }

    /// Returns the rows that changed since the last call; a row is written in place of the row with its kind and key.
    /// The caller writes all of them in one transaction, or drops this state and loads the rows again.
    pub fn take(&mut self) -> Vec<Row> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|id| Row { kind: id.kind(), key: id.key(), body: self.body(&id) }).collect()
    }

    /// Whether rows changed since the last [`take`](Self::take), apart from the position.
    pub fn has_changes(&self) -> bool {
        self.changed.iter().any(|id| *id != RowId::Position)
    }

    fn body(&self, id: &RowId) -> Option<String> {
        fn json<T: serde::Serialize>(record: Option<&T>) -> Option<String> {
            record.map(|record| serde_json::to_string(record).expect("records are plain data"))
        }
        match id {
            RowId::Position => json(Some(&self.position)),
            RowId::Rule(name) => json(self.rules.get(name)),
            RowId::Channel(name) => json(self.channels.get(name)),
            RowId::Silence(number) | RowId::RecurringSilence(number) => json(self.silences.get(number)),
            RowId::Alert(number) => json(self.alerts.get(number)),
            RowId::Streak(rule, subject) => json(self.streaks.get(&(rule.clone(), subject.clone()))),
            RowId::Notification(number) => json(self.notifications.get(number)),
            RowId::Monitor(name) => json(self.monitors.get(name)),
            RowId::MonitorState(name) => json(self.monitor_states.get(name)),
        }
    }

    /// Returns the position of the last evaluated event; `None` before the first call of
    /// [`observe`](Self::observe) or [`begin_at`](Self::begin_at).
    pub fn position(&self) -> Option<u64> {
        self.position.event
    }

    /// Sets the position in the feed: at the first start, or if the events after the last position were deleted.
    pub fn begin_at(&mut self, event: u64) {
        self.position.event = Some(event);
        self.changed.insert(RowId::Position);
    }

    /// Returns when [`advance`](Self::advance) must be called at the latest.
    pub fn wakeup(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Returns a number that grows with every change of a rule about jobs that wait or run, or about paused schedules. The
    /// caller then passes these again ([`watch_live`](Self::watch_live), [`paused`](Self::paused)).
    pub fn rules_version(&self) -> u64 {
        self.rule_changes
    }

    pub(crate) fn reindex(&mut self) {
        self.index = RuleIndex::of(self.rules.values().map(|rule| &rule.spec));
    }

    /// Arms a timer in place of the same timer at another time, except for those that may only become earlier.
    pub(crate) fn arm(&mut self, at: Timestamp, timer: Timer) {
        if let Some(former) = self.armed.get(&timer).copied() {
            let keeps_earlier =
                matches!(timer, Timer::Group(_) | Timer::Delivery(_) | Timer::Purge | Timer::Silence(_));
            if former == at || keeps_earlier && former < at {
                return;
            }
            self.timers.remove(&(former, timer.clone()));
        }
        self.armed.insert(timer.clone(), at);
        self.timers.insert((at, timer));
    }

    /// Disarms a timer.
    pub(crate) fn disarm(&mut self, timer: &Timer) {
        if let Some(at) = self.armed.remove(timer) {
            self.timers.remove(&(at, timer.clone()));
        }
    }

    /// Returns the first timer that is due.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<Timer> {
        let (at, timer) = self.timers.first().filter(|(at, _)| *at <= now)?.clone();
        self.timers.remove(&(at, timer.clone()));
        self.armed.remove(&timer);
        Some(timer)
    }

    /// Purges soon, because there are many records; not more often than once a minute.
    pub(crate) fn purge_soon(&mut self, now: Timestamp) {
        let earliest = self.purged_at.map_or(now, |last| last + Duration::from_secs(60));
        self.arm(now.max(earliest), Timer::Purge);
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.position.number += 1;
        self.changed.insert(RowId::Position);
        self.position.number
    }

    pub(crate) fn rule(&self, name: &Name) -> Option<&AlertRuleSpec> {
        self.rules.get(name).map(|rule| &rule.spec)
    }

    /// Notes that a success of the object matters to the rule.
    pub(crate) fn mark_active(&mut self, (rule, subject): &OpenKey) {
        let Some(kind) = self.kind_of(rule) else { return };
        let rules = self.active.entry((rule.namespace.clone(), kind, subject.clone())).or_default();
        if rules.is_empty() && kind == SubjectKind::Job {
            *self.active_jobs.entry(rule.namespace.clone()).or_default() += 1;
        }
        rules.insert(rule.clone());
    }

    /// Forgets the rule for the object, unless it has an open alert or a streak.
    pub(crate) fn unmark_active(&mut self, key: &OpenKey) {
        if self.open.contains_key(key) || self.streaks.contains_key(key) {
            return;
        }
        let (rule, subject) = key;
        for kind in SubjectKind::ALL {
            let place = (rule.namespace.clone(), *kind, subject.clone());
            let Some(rules) = self.active.get_mut(&place) else { continue };
            if rules.remove(rule) && rules.is_empty() {
                self.active.remove(&place);
                if *kind == SubjectKind::Job
                    && let Some(count) = self.active_jobs.get_mut(&rule.namespace)
                {
                    *count = count.saturating_sub(1);
                }
            }
        }
    }

    fn kind_of(&self, rule: &Name) -> Option<SubjectKind> {
        self.rule(rule).map(|spec| spec.when.subject())
    }

    /// Adds an alert to the open ones.
    pub(crate) fn add_open(&mut self, alert: &Alert) {
        let key = (Name::new(&alert.namespace, &alert.rule), alert.subject.name.clone());
        if self.open.insert(key.clone(), alert.id).is_none() {
            *self.open_counts.entry(key.0.clone()).or_default() += 1;
        }
        if let Some(schedule) = alert.subject.id.clone().filter(|_| alert.condition == "firing_skipped") {
            self.skipping.entry(schedule).or_default().insert(key.clone());
        }
        self.mark_active(&key);
    }

    /// Removes an alert from the open ones, and returns its number.
    pub(crate) fn remove_open(&mut self, key: &OpenKey) -> Option<u64> {
        let number = self.open.remove(key)?;
        self.disarm(&Timer::Stale(number));
        self.disarm(&Timer::Repeat(number));
        self.disarm(&Timer::Escalate(number));
        decrement(&mut self.open_counts, &key.0);
        let schedule = self.alerts.get(&number).and_then(|record| record.alert.subject.id.clone());
        if let Some(schedule) = schedule
            && let Some(keys) = self.skipping.get_mut(&schedule)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.skipping.remove(&schedule);
            }
        }
        self.unmark_active(key);
        Some(number)
    }

    /// Deletes old resolved alerts, finished notifications, and old counts of failures.
    pub(crate) fn purge(&mut self, now: Timestamp) {
        let resolved: Vec<_> = self
            .alerts
            .iter()
            .filter(|(_, record)| record.alert.status == AlertStatus::Resolved && !record.unsent)
            .map(|(&number, record)| (number, record.alert.resolved_at.unwrap_or_default()))
            .collect();
        for number in expired(&resolved, now, limits::RESOLVED_RETENTION, limits::RESOLVED_MAX) {
            self.alerts.remove(&number);
            self.changed.insert(RowId::Alert(number));
        }
        let finished: Vec<_> = self
            .notifications
            .iter()
            .filter_map(|(&number, record)| Some((number, record.finished_at?)))
            .collect();
        for number in expired(&finished, now, limits::NOTIFICATION_RETENTION, limits::NOTIFICATIONS_MAX) {
            self.notifications.remove(&number);
            self.changed.insert(RowId::Notification(number));
        }
        let is_old = |streak: &Streak| streak.failures > 0 && streak.at + limits::STREAK_RETENTION <= now;
        let old: Vec<_> =
            self.streaks.iter().filter(|(_, it)| is_old(it)).map(|(key, _)| key.clone()).collect();
        old.iter().for_each(|key| self.remove_streak(key));
        self.fail_undeliverable(now);
        self.purged_at = Some(now);
        self.arm(now + limits::PURGE_INTERVAL, Timer::Purge);
    }
}

/// Decrements the count of a rule, and removes it at zero.
pub(crate) fn decrement(counts: &mut BTreeMap<Name, usize>, rule: &Name) {
    if let Some(count) = counts.get_mut(rule) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(rule);
        }
    }
}

/// Returns the numbers of records that are older than `retention`, or beyond the newest `max`.
fn expired(records: &[(u64, Timestamp)], now: Timestamp, retention: Duration, max: usize) -> Vec<u64> {
    let beyond = records.len().saturating_sub(max);
    let is_old = |at: Timestamp| at + retention <= now;
    let each = records.iter().enumerate();
    each.filter(|(index, (_, at))| *index < beyond || is_old(*at)).map(|(_, (number, _))| *number).collect()
}
