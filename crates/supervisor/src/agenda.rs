//! Alarms of the core: at most one for the lease, and one for each execution.

use std::collections::{BTreeMap, BTreeSet};

use model::ExecutionId;

use crate::BootMillis;

/// Subject of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// The lease may have expired.
    Lease,
    /// An execution may have reached a time limit.
    Execution(ExecutionId),
}

/// All alarms, ordered by time.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    by_time: BTreeSet<(BootMillis, Alarm)>,
    times: BTreeMap<Alarm, BootMillis>,
}

impl Agenda {
    /// Sets the only time of `alarm`; `None` removes it.
    pub(crate) fn set(&mut self, alarm: Alarm, at: Option<BootMillis>) {
        let before = match at {
            Some(at) => self.times.insert(alarm, at),
            None => self.times.remove(&alarm),
        };
        if let Some(before) = before {
            self.by_time.remove(&(before, alarm));
        }
        if let Some(at) = at {
            self.by_time.insert((at, alarm));
        }
    }

    pub(crate) fn next(&self) -> Option<BootMillis> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Removes and returns an alarm that has expired at `now`.
    pub(crate) fn pop(&mut self, now: BootMillis) -> Option<Alarm> {
        let (_, alarm) = *self.by_time.first().filter(|(at, _)| *at <= now)?;
        self.set(alarm, None);
        Some(alarm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_has_one_time_and_fires_once() {
        let mut agenda = Agenda::default();
        let task = Alarm::Execution(ExecutionId::from_bits(1));
        agenda.set(task, Some(20));
        agenda.set(Alarm::Lease, Some(10));
        agenda.set(task, Some(5));
        assert_eq!(agenda.next(), Some(5));
        assert_eq!(
            (agenda.pop(4), agenda.pop(30), agenda.pop(30), agenda.pop(30)),
            (None, Some(task), Some(Alarm::Lease), None)
        );
        agenda.set(task, Some(7));
        agenda.set(task, None);
        assert_eq!(agenda.next(), None);
    }
}
