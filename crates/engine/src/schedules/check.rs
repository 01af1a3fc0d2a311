//! Invariants of schedules, and the comparison with a rebuilt engine.

use std::collections::BTreeMap;

use model::ScheduleId;
use model::firing::{BackfillHead, BackfillState, ScheduleState, Work};

use super::scheduled_work;
use super::{Backfill, Schedule, Schedules};
use crate::context::Context;
use crate::difference::{Difference, count_difference, first};
use crate::jobs::Jobs;
use crate::timer::Timer;
use crate::workers::{Purpose, WorkerReservation};
use crate::workflows::Workflows;

impl Schedules {
    /// A schedule has exactly its unfinished runs, and its timer is armed for the next decision.
    pub(crate) fn check_schedules(
        &self,
        cx: &Context,
        workflows: &Workflows,
        jobs: &Jobs,
    ) -> Result<(), String> {
        let mut runs: BTreeMap<ScheduleId, Vec<Work>> = BTreeMap::new();
        for (work, origin) in scheduled_work(workflows, jobs) {
            runs.entry(origin.schedule).or_default().push(work);
        }
        let mut kept = 0;
        for (id, schedule) in self.iter() {
            let mut expected = runs.remove(&id).unwrap_or_default();
            expected.sort_unstable();
            let mut known = schedule.runs.clone();
            known.sort_unstable();
            if known != expected {
                return Err(format!("{id} has the runs {known:?}, expected {expected:?}"));
            }
            self.check_schedule_timer(cx, workflows, jobs, id, schedule)?;
            kept += usize::from(schedule.reserved_worker().is_some());
        }
        for (job, reserved) in jobs.reservations() {
            let own = self.get(reserved.0).and_then(|schedule| schedule.reservation.as_deref());
            if own.is_none_or(|own| own.placement() != (Some(job), Some(reserved.1))) {
                return Err(format!("{job} may use a reservation that {} does not have", reserved.0));
            }
        }
        let is_for_schedule = |kept: &&WorkerReservation| matches!(kept.purpose, Purpose::Firing { .. });
        let on_workers: usize =
            jobs.workers().map(|worker| worker.reserved.iter().filter(is_for_schedule).count()).sum();
        if kept != on_workers {
            return Err(format!("{kept} schedules have a reservation, but workers have {on_workers}"));
        }
        Ok(())
    }

    /// Checks that the armed timer is the one that the state requires.
    fn check_schedule_timer(
        &self,
        cx: &Context,
        workflows: &Workflows,
        jobs: &Jobs,
        id: ScheduleId,
        schedule: &Schedule,
    ) -> Result<(), String> {
        let due = schedule.due(self.may_catch_up(workflows, jobs, id, schedule));
        if schedule.armed != due {
            return Err(format!("the timer of {id} is armed for {:?}, expected {due:?}", schedule.armed));
        }
        if schedule.armed.is_some_and(|at| !cx.wall_timers.is_armed(at, Timer::Schedule(id))) {
            return Err(format!("{id} is due at {due:?}, but its timer is not armed"));
        }
        Ok(())
    }

    /// Returns the first schedule or backfill that differs from a rebuilt engine.
    pub(crate) fn schedule_difference(&self, other: &Self) -> Option<Difference> {
        let here = self.iter().map(|(id, schedule)| (id, of_schedule(schedule)));
        first(here, |id| other.get(id).map(of_schedule))
            .or_else(|| {
                let here = self.backfills.iter().map(|(id, backfill)| (id, of_backfill(backfill)));
                first(here, |id| other.backfills.get(id).map(of_backfill))
            })
            .or_else(|| {
                let counts = |schedules: &Schedules| [schedules.all.len(), schedules.backfills.len()];
                count_difference("schedules, backfills", counts(self), counts(other))
            })
    }
}

fn of_schedule(schedule: &Schedule) -> (&str, &ScheduleState, Vec<Work>) {
    (&schedule.name, &schedule.state, sorted(&schedule.runs))
}

fn of_backfill(backfill: &Backfill) -> (&BackfillHead, BackfillState, Vec<Work>) {
    (&backfill.head, backfill.state, sorted(&backfill.runs))
}

fn sorted(runs: &[Work]) -> Vec<Work> {
    let mut runs = runs.to_vec();
    runs.sort_unstable();
    runs
}
