//! Monitors: jobs that Belfry does not run, and their pings.
//!
//! See the [crate's page](crate) for the rules. A ping changes one row, the state of its monitor. The expected time is
//! computed when the state changes, so that lists and timers do not evaluate cron expressions.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use model::alert::{AlertCondition, MonitorSpec, MonitorTiming, SubjectKind};
use model::api::{AlertSubject, Monitor, MonitorStatus, NewPing, Ping, PingKind};
use model::{Timestamp, limits};
use timetable::{Next, Timetable, Zones};

use crate::clean;
use crate::limits::LOAD_GRACE;
use crate::occurrence::Occurrence;
use crate::requests::{Refusal, check_limit, check_version, not_found};
use crate::rows::{Down, DownCause, MonitorRecord, MonitorState, Name, PingToken, RowId};
use crate::state::Alerts;
use crate::texts;
use crate::timer::Timer;

/// Condition of the alerts about monitors.
const CONDITION: &str = "monitor_down";
/// Time zones of the binary.
static ZONES: LazyLock<Zones> = LazyLock::new(Zones::bundled);

/// Whether a ping reported a failure just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    Now,
    No,
}

impl Alerts {
    /// Creates or replaces a monitor. `token` is that of the ping URL of a new one. Returns whether the spec changed.
    ///
    /// The caller has checked the spec, also its cron expression.
    ///
    /// # Errors
    /// [`Refusal::Limit`].
    pub fn put_monitor(
        &mut self,
        now: Timestamp,
        actor: &str,
        spec: MonitorSpec,
        token: PingToken,
    ) -> Result<bool, Refusal> {
        let name = Name::new(&spec.namespace, &spec.name);
        let known = self.monitors.get(&name);
        if known.is_some_and(|known| known.spec == spec) {
            return Ok(false);
        }
        if known.is_none() {
            check_limit(&name.namespace, "monitors", limits::MONITORS_MAX, self.monitors.keys())?;
        }
        let expects_anew = known.is_none_or(|known| expects_differently(&known.spec, &spec));
        let token = known.map_or(token, |known| known.token.clone());
        let version = known.map_or(1, |known| known.version + 1);
        let state = self.monitor_states.entry(name.clone()).or_insert_with(|| MonitorState::new(now));
        if expects_anew {
            state.since = now;
            state.started_at = None;
            // A failure that the job reported does not depend on the timing.
            let is_failed = |down: &Down| matches!(down.cause, DownCause::Failed { .. });
            if spec.paused || !state.down.as_ref().is_some_and(is_failed) {
                state.down = None;
            }
            self.changed.insert(RowId::MonitorState(name.clone()));
        }
        self.monitor_tokens.insert(token.hash.clone(), name.clone());
        let record = MonitorRecord { spec, token, version, updated_at: now, updated_by: actor.to_owned() };
        self.monitors.insert(name.clone(), record);
        self.changed.insert(RowId::Monitor(name.clone()));
        self.follow_monitor(now, &name, Failure::No);
        Ok(true)
    }

    /// Checks that a monitor has the version that the caller has seen.
    ///
    /// # Errors
    /// [`Refusal::Outdated`].
    pub fn check_monitor_version(
        &self,
        namespace: &str,
        monitor: &str,
        expected: Option<u64>,
    ) -> Result<(), Refusal> {
        let found = self.monitors.get(&Name::new(namespace, monitor)).map_or(0, |monitor| monitor.version);
        check_version("monitor", monitor, expected, found)
    }

    /// Deletes a monitor, and resolves its open alerts.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub fn delete_monitor(&mut self, now: Timestamp, namespace: &str, monitor: &str) -> Result<(), Refusal> {
        let name = Name::new(namespace, monitor);
        let Some(record) = self.monitors.remove(&name) else { return Err(not_found("monitor", monitor)) };
        self.monitor_tokens.remove(&record.token.hash);
        self.monitor_states.remove(&name);
        self.expected_pings.remove(&name);
        self.disarm(&Timer::Monitor(name.clone()));
        self.resolve_conditions(now, namespace, SubjectKind::Monitor, monitor, &[CONDITION]);
        self.changed.extend([RowId::Monitor(name.clone()), RowId::MonitorState(name)]);
        Ok(())
    }

    /// Returns namespace and name of the monitor whose ping URL has the token with this hash.
    pub fn monitor_of_token(&self, hash: &str) -> Option<(&str, &str)> {
        self.monitor_tokens.get(hash).map(|name| (name.namespace.as_str(), name.name.as_str()))
    }

    /// Records a ping of a monitor, which a paused one only lists.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub fn ping(
        &mut self,
        now: Timestamp,
        namespace: &str,
        monitor: &str,
        ping: &NewPing,
    ) -> Result<(), Refusal> {
        let name = Name::new(namespace, monitor);
        let Some(record) = self.monitors.get(&name) else { return Err(not_found("monitor", monitor)) };
        let is_paused = record.spec.paused;
        let state = self.monitor_states.entry(name.clone()).or_insert_with(|| MonitorState::new(now));
        let (kind, exit_code) = (ping.reports(), ping.exit_code);
        let message = ping.message.as_deref().map(clean::block).filter(|message| !message.is_empty());
        let message = message.map(|message| clean::cut_start(&message, limits::PING_MESSAGE_LEN_MAX));
        let run_time = state.started_at.filter(|_| kind != PingKind::Start).map(|start| now.since(start));
        match kind {
            PingKind::Start => state.started_at = state.started_at.or(Some(now)),
            PingKind::Success => {
                (state.succeeded_at, state.started_at, state.down) = (Some(now), None, None);
            }
            PingKind::Fail => {
                state.started_at = None;
                let since = state.down.as_ref().map_or(now, |down| down.since);
                let cause = DownCause::Failed { exit_code, message: message.clone() };
                state.down = (!is_paused).then_some(Down { since, cause });
            }
        }
        if state.pings.len() >= limits::PINGS_MAX {
            state.pings.pop_front();
        }
        state.pings.push_back(Ping { at: now, kind, exit_code, run_time, message });
        self.changed.insert(RowId::MonitorState(name.clone()));
        self.follow_monitor(now, &name, if kind == PingKind::Fail { Failure::Now } else { Failure::No });
        Ok(())
    }

    /// Restores what is not stored.
    pub(crate) fn rebuild_monitors(&mut self, now: Timestamp) {
        self.loaded_at = now;
        for (name, record) in &self.monitors {
            self.monitor_tokens.insert(record.token.hash.clone(), name.clone());
            let state = self.monitor_states.entry(name.clone()).or_insert_with(|| MonitorState::new(now));
            if let Some(at) = expected_at(&record.spec, state) {
                self.expected_pings.insert(name.clone(), at);
            }
        }
    }

    /// Takes a monitor down if its time has passed.
    pub(crate) fn on_monitor(&mut self, now: Timestamp, name: &Name) {
        if let Some((at, down)) = self.next_down(name)
            && at <= now
            && let Some(state) = self.monitor_states.get_mut(name)
        {
            (state.down, state.started_at) = (Some(down), None);
            self.changed.insert(RowId::MonitorState(name.clone()));
        }
        self.follow_monitor(now, name, Failure::No);
    }

    /// Opens alerts of a new or changed rule about monitors that are already down.
    pub(crate) fn follow_monitors_of(&mut self, now: Timestamp, rule: &Name) {
        if self.rule(rule).is_none_or(|spec| spec.when != AlertCondition::MonitorDown {}) {
            return;
        }
        let first = Name::new(&rule.namespace, "");
        let of_namespace =
            self.monitors.range(first..).take_while(|(name, _)| name.namespace == rule.namespace);
        let names: Vec<_> = of_namespace.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.follow_monitor(now, name, Failure::No));
    }

    /// Updates the expected time, the timer and the alerts of a monitor after a change of it.
    fn follow_monitor(&mut self, now: Timestamp, name: &Name, failure: Failure) {
        let (Some(record), Some(state)) = (self.monitors.get(name), self.monitor_states.get(name)) else {
            return;
        };
        let down = state.down.clone().filter(|_| !record.spec.paused);
        match expected_at(&record.spec, state) {
            Some(at) => self.expected_pings.insert(name.clone(), at),
            None => self.expected_pings.remove(name),
        };
        match self.next_down(name) {
            Some((at, _)) => self.arm(at, Timer::Monitor(name.clone())),
            None => self.disarm(&Timer::Monitor(name.clone())),
        }
        let Some(down) = down else {
            let Name { namespace, name } = name;
            return self.resolve_conditions(now, namespace, SubjectKind::Monitor, name, &[CONDITION]);
        };
        let rules = self.monitor_rules(name);
        self.resolve_unselected(now, name, &rules);
        for rule in rules {
            let is_open = self.open.contains_key(&(rule.clone(), name.name.clone()));
            if is_open && failure == Failure::No {
                continue;
            }
            let at = if failure == Failure::Now { now } else { down.since };
            let subject = AlertSubject { kind: SubjectKind::Monitor, name: name.name.clone(), id: None };
            let what = Occurrence { detail: Some(down.cause.reason()), failures: 1, ..Occurrence::default() };
            self.occur(now, &rule, subject, at, what);
        }
    }

    /// Returns the rules that select a monitor.
    fn monitor_rules(&self, name: &Name) -> BTreeSet<Name> {
        let Some(monitor) = self.monitors.get(name).map(|record| &record.spec) else {
            return BTreeSet::new();
        };
        let watching = self.index.rules(SubjectKind::Monitor, &name.namespace, &name.name).into_iter();
        let selects = |rule: &Name| {
            self.rule(rule).is_some_and(|spec| {
                let (owner, labels) = (&spec.matches.owner, &spec.matches.labels);
                (owner.is_none() || *owner == monitor.owner)
                    && labels.iter().all(|(key, value)| monitor.labels.get(key) == Some(value))
            })
        };
        watching.filter(selects).collect()
    }

    /// Resolves alerts about a monitor of rules that select it no longer: its labels or its owner changed.
    fn resolve_unselected(&mut self, now: Timestamp, name: &Name, rules: &BTreeSet<Name>) {
        let place = (name.namespace.clone(), SubjectKind::Monitor, name.name.clone());
        let active = self.active.get(&place).into_iter().flatten();
        let unselected: Vec<_> = active.filter(|rule| !rules.contains(*rule)).cloned().collect();
        for rule in unselected {
            self.resolve(now, &(rule, name.name.clone()), "rule_changed");
        }
    }

    /// Returns when a monitor is down without a further ping, and why then.
    fn next_down(&self, name: &Name) -> Option<(Timestamp, Down)> {
        let (record, state) = (self.monitors.get(name)?, self.monitor_states.get(name)?);
        let spec = &record.spec;
        if spec.paused || state.down.is_some() {
            return None;
        }
        let (since, cause) = match (state.started_at, self.expected_pings.get(name)) {
            (Some(started_at), _) => {
                let within = spec.longest_run();
                (started_at + within, DownCause::Unfinished { started_at, within })
            }
            (None, Some(&expected_at)) => (expected_at + spec.grace, DownCause::Missing { expected_at }),
            (None, None) => return None,
        };
        Some((since.max(self.loaded_at + LOAD_GRACE), Down { since, cause }))
    }

    /// Returns the monitors of the namespaces that the caller may read, ordered by namespace and name, with their newest
    /// ping.
    pub fn monitors(&self, now: Timestamp, may_read: impl Fn(&str) -> bool) -> Vec<Monitor> {
        let names = self.monitors.keys().filter(|name| may_read(&name.namespace));
        names.filter_map(|name| self.shown_monitor(now, name, 1)).collect()
    }

    /// Returns a monitor by its name, with its pings.
    pub fn monitor_named(&self, now: Timestamp, namespace: &str, name: &str) -> Option<Monitor> {
        self.shown_monitor(now, &Name::new(namespace, name), limits::PINGS_MAX)
    }

    /// Returns the encrypted token of the ping URL of a monitor.
    pub fn sealed_token(&self, namespace: &str, name: &str) -> Option<&str> {
        self.monitors.get(&Name::new(namespace, name)).map(|record| record.token.sealed.as_str())
    }

    fn shown_monitor(&self, now: Timestamp, name: &Name, pings: usize) -> Option<Monitor> {
        let (record, state) = (self.monitors.get(name)?, self.monitor_states.get(name)?);
        let expected_at = self.expected_pings.get(name).copied();
        let place = (name.namespace.clone(), SubjectKind::Monitor, name.name.clone());
        let down = state.down.as_ref();
        Some(Monitor {
            spec: record.spec.clone(),
            version: record.version,
            updated_at: record.updated_at,
            updated_by: record.updated_by.clone(),
            ping_url: None,
            status: status_of(now, &record.spec, state, expected_at),
            reason: down.map(|down| down.cause.reason()),
            down_since: down.map(|down| down.since),
            started_at: state.started_at,
            succeeded_at: state.succeeded_at,
            expected_at,
            down_at: self.next_down(name).map(|(at, _)| at),
            pings: state.pings.iter().rev().take(pings).cloned().collect(),
            open_alerts: self.active.get(&place).map_or(0, |rules| rules.len() as u64),
        })
    }
}

fn status_of(
    now: Timestamp,
    spec: &MonitorSpec,
    state: &MonitorState,
    expected_at: Option<Timestamp>,
) -> MonitorStatus {
    if spec.paused {
        MonitorStatus::Paused
    } else if state.down.is_some() {
        MonitorStatus::Down
    } else if state.succeeded_at.is_none() {
        MonitorStatus::New
    } else if state.started_at.is_none() && expected_at.is_some_and(|at| at < now) {
        MonitorStatus::Late
    } else {
        MonitorStatus::Up
    }
}

impl DownCause {
    /// Describes the cause in English.
    fn reason(&self) -> String {
        match self {
            Self::Failed { exit_code, message } => {
                let what = match exit_code {
                    Some(code) => format!("the job ended with exit code {code}"),
                    None => "the job reported a failure".to_owned(),
                };
                message.as_ref().map_or(what.clone(), |message| format!("{what}: {message}"))
            }
            Self::Missing { expected_at } => {
                format!("no ping arrived: expected one at {}", texts::time(*expected_at))
            }
            Self::Unfinished { started_at, within } => {
                format!("the job started at {} and did not end within {within}", texts::time(*started_at))
            }
        }
    }
}

/// Whether a monitor with another spec expects pings at other times.
fn expects_differently(one: &MonitorSpec, other: &MonitorSpec) -> bool {
    one.timing != other.timing
        || one.grace != other.grace
        || one.longest_run() != other.longest_run()
        || one.paused != other.paused
}

/// Returns when a monitor expects the next success. `None` if it is paused or no ping has reported a success yet.
fn expected_at(spec: &MonitorSpec, state: &MonitorState) -> Option<Timestamp> {
    let last = state.succeeded_at.filter(|_| !spec.paused)?.max(state.since);
    match &spec.timing {
        MonitorTiming::Every(period) => Some(last + *period),
        MonitorTiming::Cron(cron) => {
            let times = Timetable::of_cron(&cron.expression, &cron.zone, &ZONES).ok()?;
            match times.next(last) {
                Next::At(at) => Some(at),
                Next::Never | Next::NotUntil(_) => None,
            }
        }
    }
}
