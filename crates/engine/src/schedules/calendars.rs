//! Compiled calendars, and the effect of their changes on schedules.
//!
//! A changed calendar is compiled at once; the schedules that use calendars of its namespace get new plans in
//! the following flushes, a bounded number per flush.
//!
//! # Invariants
//! - Firings that were due before a change are decided by the old days of the calendar.
//! - A change is refused if it breaks this calendar or a calendar that was valid before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::calendar::{CalendarRecord, CalendarSpec, CalendarStep, Days};
use model::record::{Change, EventKind};
use model::validate::Problem;
use model::{Refusal, ScheduleId};
use timetable::CalendarMap;

use super::{Plan, seed_of};
use crate::context::Context;
use crate::jobs::Jobs;
use crate::output::Reply;
use crate::schedules::Schedules;
use crate::workflows::Workflows;

/// The calendars of all namespaces.
#[derive(Debug, Default)]
pub(crate) struct Calendars {
    records: BTreeMap<(Arc<str>, Arc<str>), Arc<CalendarRecord>>,
    compiled: BTreeMap<Arc<str>, CalendarMap>,
    none: CalendarMap,
    /// Whether restored records are not compiled yet.
    stale: bool,
    /// Schedules that still use the plan from before a change of a calendar.
    to_replan: BTreeSet<ScheduleId>,
}

impl Calendars {
    /// Returns the calendars that schedules of a namespace may refer to.
    pub(crate) fn of(&self, namespace: &str) -> &CalendarMap {
        self.compiled.get(namespace).unwrap_or(&self.none)
    }

    fn version(&self, namespace: &Arc<str>, name: &Arc<str>) -> u64 {
        let known = self.records.get(&(Arc::clone(namespace), Arc::clone(name)));
        known.map_or(0, |record| record.version)
    }

    /// Compiles the calendars of a namespace and returns the problems of each invalid one; the valid ones are
    /// compiled all the same.
    fn compile(&mut self, namespace: &Arc<str>) -> BTreeMap<String, Vec<Problem>> {
        let own = self.records.iter().filter(|((of, _), _)| of == namespace);
        let (map, wrong) = CalendarMap::compile(own.map(|(_, record)| &record.spec));
        self.compiled.insert(Arc::clone(namespace), map);
        wrong.into_iter().collect()
    }

    pub(super) fn is_settled(&self) -> bool {
        self.to_replan.is_empty()
    }

    /// Compiles the restored calendars.
    pub(super) fn compile_restored(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let namespaces: BTreeSet<Arc<str>> = self.records.keys().map(|(of, _)| Arc::clone(of)).collect();
        for namespace in namespaces {
            // A schedule that refers to an invalid calendar reports this itself when it is restored.
            self.compile(&namespace);
        }
    }
}

/// Returns whether a calendar's steps refer to another one.
fn names(spec: &CalendarSpec, other: &str) -> bool {
    spec.steps.iter().any(|step| {
        let (CalendarStep::Include(days) | CalendarStep::Exclude(days)) = step;
        matches!(days, Days::Calendar(name) if name == other)
    })
}

impl Schedules {
    pub(super) fn set_calendar(
        &mut self,
        cx: &mut Context,
        spec: CalendarSpec,
        expected: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let namespace: Arc<str> = spec.namespace.as_str().into();
        let name: Arc<str> = spec.name.as_str().into();
        let found = self.calendars.version(&namespace, &name);
        if let Some(expected) = expected.filter(|&expected| expected != found) {
            return Err(Refusal::VersionMismatch { expected, found });
        }
        let key = (Arc::clone(&namespace), Arc::clone(&name));
        let before = self.calendars.records.get(&key).cloned();
        if let Some(same) = before.as_ref().filter(|record| record.spec == spec) {
            return Ok(Reply::Calendar(Arc::clone(same)));
        }
        let record = Arc::new(CalendarRecord {
            spec,
            version: found + 1,
            created_at: before.as_ref().map_or(cx.now, |record| record.created_at),
            updated_at: cx.now,
        });
        let wrong_before = self.calendars.compile(&namespace);
        self.calendars.records.insert(key.clone(), Arc::clone(&record));
        let wrong = self.calendars.compile(&namespace);
        // A calendar that was invalid before, for example after an upgrade, is no reason to refuse this
        // change.
        let new = wrong.into_iter().find(|(of, _)| **of == *name || !wrong_before.contains_key(of));
        if let Some((_, problems)) = new {
            match before {
                Some(before) => self.calendars.records.insert(key, before),
                None => self.calendars.records.remove(&key),
            };
            self.calendars.compile(&namespace);
            return Err(Refusal::InvalidCalendar { problems });
        }
        cx.write(Change::Calendar(Arc::clone(&record)));
        self.emit_calendar_event(cx, &namespace, &name);
        self.plans.forget_calendars();
        let users = self.users_in(&namespace);
        self.calendars.to_replan.extend(users);
        Ok(Reply::Calendar(record))
    }

    pub(super) fn remove_calendar(
        &mut self,
        cx: &mut Context,
        namespace: &Arc<str>,
        name: &Arc<str>,
        expected: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let found = self.calendars.version(namespace, name);
        if found == 0 {
            let (namespace, name) = (Arc::clone(namespace), Arc::clone(name));
            return Err(Refusal::CalendarNotFound { namespace, name });
        }
        if let Some(expected) = expected.filter(|&expected| expected != found) {
            return Err(Refusal::VersionMismatch { expected, found });
        }
        if let Some(user) = self.calendar_user(namespace, name) {
            return Err(Refusal::CalendarInUse { name: Arc::clone(name), user });
        }
        self.calendars.records.remove(&(Arc::clone(namespace), Arc::clone(name)));
        // No other calendar refers to it, so the others compile as before.
        self.calendars.compile(namespace);
        let (of, called) = (Arc::clone(namespace), Arc::clone(name));
        cx.write(Change::RemoveCalendar { namespace: of, name: called });
        self.emit_calendar_event(cx, namespace, name);
        Ok(Reply::CalendarRemoved)
    }

    fn calendar_user(&self, namespace: &Arc<str>, name: &str) -> Option<String> {
        let calendars = self.calendars.records.iter().filter(|((of, _), _)| of == namespace);
        let by_calendar = calendars
            .filter(|(_, record)| names(&record.spec, name))
            .map(|((_, user), _)| format!("calendar `{user}`"));
        let by_schedule = self
            .iter()
            .filter(|(_, s)| s.namespace == *namespace && s.plan.calendars.iter().any(|used| &**used == name))
            .map(|(_, schedule)| format!("schedule `{}`", schedule.name));
        by_calendar.chain(by_schedule).next()
    }

    fn users_in(&self, namespace: &Arc<str>) -> Vec<ScheduleId> {
        let users = self
            .iter()
            .filter(|(_, schedule)| schedule.namespace == *namespace && !schedule.plan.calendars.is_empty());
        users.map(|(id, _)| id).collect()
    }

    /// Gives schedules whose calendars changed their new plans; firings that are due by the old plans are
    /// decided first. Visits at most `left` schedules.
    pub(crate) fn replan_calendar_users(
        &mut self,
        cx: &mut Context,
        workflows: &mut Workflows,
        jobs: &mut Jobs,
        left: &mut usize,
    ) {
        // Schedules that shared a plan share the new one.
        let mut renewed: BTreeMap<_, (Arc<Plan>, Arc<Plan>)> = BTreeMap::new();
        while *left > 0
            && let Some(id) = self.calendars.to_replan.pop_first()
        {
            *left -= 1;
            self.decide_due_before_request(cx, workflows, jobs, id);
            let Some(schedule) = self.get(id) else { continue };
            let old = Arc::clone(&schedule.plan);
            let seed = if old.is_seeded() { seed_of(schedule.hash()) } else { 0 };
            let calendars = self.calendars.of(&schedule.namespace);
            // The old plan is kept in the map, so that its address is not reused meanwhile.
            let (_, new) = renewed
                .entry((Arc::as_ptr(&old), seed))
                .or_insert_with(|| (Arc::clone(&old), old.renewed(seed, &cx.config.zones, calendars)));
            let new = Arc::clone(new);
            if let Some(schedule) = self.get_mut(id) {
                schedule.plan = new;
            }
            self.arm_schedule(cx, workflows, jobs, id);
        }
    }

    fn emit_calendar_event(&mut self, cx: &mut Context, namespace: &Arc<str>, name: &Arc<str>) {
        let kind = EventKind::Calendar { calendar: Arc::clone(name) };
        cx.emit(Some(Arc::clone(namespace)), kind);
    }

    /// Restores a calendar from its row. All calendars come before the first schedule.
    pub(crate) fn restore_calendar(&mut self, record: CalendarRecord) {
        let key = (record.spec.namespace.as_str().into(), record.spec.name.as_str().into());
        self.calendars.records.insert(key, Arc::new(record));
        self.calendars.stale = true;
    }
}
