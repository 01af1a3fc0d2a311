//! Silences: once, or recurring for quiet hours and maintenance windows.
//!
//! A recurring silence is active in *periods*: from each time of its cron expression, for its duration. Only the current
//! or next period is kept, in memory; the timer at its end computes the following one. So a check of a silence compares
//! two times.

use std::sync::LazyLock;

use model::api::{Alert, NewSilence, Silence};
use model::{Timestamp, limits};
use timetable::{Next, Timetable, Zones};

use crate::live::Period;
use crate::requests::{Refusal, not_found};
use crate::rows::{RowId, silence_matches};
use crate::state::Alerts;
use crate::timer::Timer;

/// Time zones of the binary.
static ZONES: LazyLock<Zones> = LazyLock::new(Zones::bundled);

impl Alerts {
    /// Creates a silence, and returns it. The caller has checked it, also its cron expression.
    ///
    /// # Errors
    /// [`Refusal::Limit`].
    pub fn silence(&mut self, now: Timestamp, actor: &str, new: NewSilence) -> Result<Silence, Refusal> {
        let NewSilence {
            namespace,
            rule,
            subject,
            severity_max,
            starts_at,
            duration,
            recurrence,
            ends_at,
            reason,
        } = new;
        let namespaces = self.silences.values().filter(|it| it.namespace == namespace).count();
        if namespaces >= limits::SILENCES_MAX {
            return Err(Refusal::Limit { namespace, what: "silences", max: limits::SILENCES_MAX });
        }
        let starts_at = starts_at.unwrap_or(now);
        let ends_at = match recurrence {
            None => starts_at + duration,
            Some(_) => ends_at.unwrap_or(starts_at + limits::SILENCE_MAX),
        };
        let id = self.next_number();
        let silence = Silence {
            id,
            namespace,
            rule,
            subject,
            severity_max,
            starts_at,
            ends_at,
            duration: recurrence.is_some().then_some(duration),
            recurrence,
            active: false,
            reason,
            created_by: actor.to_owned(),
            created_at: now,
        };
        self.silences.insert(id, silence.clone());
        self.changed.insert(row_of(&silence));
        let end = self.find_period(now, &silence);
        self.arm(end, Timer::Silence(id));
        Ok(self.shown_silence(now, &silence))
    }

    /// Ends a silence, and returns it.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub fn end_silence(&mut self, now: Timestamp, number: u64) -> Result<Silence, Refusal> {
        let Some(silence) = self.silences.remove(&number) else {
            return Err(not_found("silence", &number.to_string()));
        };
        self.silence_periods.remove(&number);
        self.disarm(&Timer::Silence(number));
        self.changed.insert(row_of(&silence));
        self.wake_unsent(now, &silence.namespace);
        Ok(silence)
    }

    /// Notifies of alerts that a silence held back, when it or a period of it ends.
    pub(crate) fn on_silence(&mut self, now: Timestamp, number: u64) {
        let Some(silence) = self.silences.get(&number).cloned() else { return };
        if silence.ends_at > now {
            let end = self.find_period(now, &silence);
            self.arm(end, Timer::Silence(number));
            if silence.recurrence.is_some() {
                self.wake_unsent(now, &silence.namespace);
            }
            return;
        }
        self.silences.remove(&number);
        self.silence_periods.remove(&number);
        self.changed.insert(row_of(&silence));
        self.wake_unsent(now, &silence.namespace);
    }

    /// Lets the rules of a namespace look again at the alerts that were not notified.
    fn wake_unsent(&mut self, now: Timestamp, namespace: &str) {
        let rules: Vec<_> = self.unsent.keys().filter(|rule| rule.namespace == namespace).cloned().collect();
        rules.into_iter().for_each(|rule| self.arm(now, Timer::Group(rule)));
    }

    /// Whether a silence holds notifications of the alert back.
    pub(crate) fn is_silenced(&self, alert: &Alert, now: Timestamp) -> bool {
        self.silences.values().any(|silence| {
            self.is_active(silence, now)
                && silence.severity_max.is_none_or(|max| alert.severity <= max)
                && silence_matches(silence, &alert.namespace, &alert.rule, &alert.subject.name)
        })
    }

    fn is_active(&self, silence: &Silence, now: Timestamp) -> bool {
        let is_within = |period: &Period| period.start <= now && now < period.end;
        silence.starts_at <= now
            && now < silence.ends_at
            && (silence.recurrence.is_none() || self.silence_periods.get(&silence.id).is_some_and(is_within))
    }

    /// Returns current and future silences, ordered by their end.
    pub fn silences(&self, now: Timestamp, may_read: impl Fn(&str) -> bool) -> Vec<Silence> {
        let current = self.silences.values().filter(|it| it.ends_at > now && may_read(&it.namespace));
        let mut silences: Vec<_> = current.map(|silence| self.shown_silence(now, silence)).collect();
        silences.sort_by_key(|silence| silence.ends_at);
        silences
    }

    /// Returns a silence by its number.
    pub fn silence_numbered(&self, number: u64) -> Option<&Silence> {
        self.silences.get(&number)
    }

    fn shown_silence(&self, now: Timestamp, silence: &Silence) -> Silence {
        Silence { active: self.is_active(silence, now), ..silence.clone() }
    }

    /// Restores the periods of recurring silences.
    pub(crate) fn rebuild_silences(&mut self, now: Timestamp) {
        for silence in self.silences.values().cloned().collect::<Vec<_>>() {
            self.find_period(now, &silence);
        }
    }

    /// Finds the current or next period of a recurring silence. Returns when the silence must be looked at again.
    fn find_period(&mut self, now: Timestamp, silence: &Silence) -> Timestamp {
        let Some(period) = period(now, silence) else {
            self.silence_periods.remove(&silence.id);
            return silence.ends_at;
        };
        self.silence_periods.insert(silence.id, period);
        period.end.min(silence.ends_at)
    }
}

/// Returns the current or next period of a recurring silence; `None` if it has none any more.
fn period(now: Timestamp, silence: &Silence) -> Option<Period> {
    let (cron, duration) = (silence.recurrence.as_ref()?, silence.duration?);
    let times = Timetable::of_cron(&cron.expression, &cron.zone, &ZONES).ok()?;
    let from = now.max(silence.starts_at);
    let start = times.last(from - duration, from).or_else(|| match times.next(from) {
        Next::At(at) => Some(at),
        Next::Never | Next::NotUntil(_) => None,
    })?;
    Some(Period { start, end: start + duration })
}

/// Returns the row of a silence. An older server would hold all notifications back until the end of a recurring one, so its
/// row has another kind, which that server ignores.
fn row_of(silence: &Silence) -> RowId {
    match silence.recurrence.is_some() || silence.severity_max.is_some() {
        true => RowId::RecurringSilence(silence.id),
        false => RowId::Silence(silence.id),
    }
}
