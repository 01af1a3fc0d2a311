//! The compiled timing, policies and job template of a schedule, shared by all schedules with the same ones.
//!
//! A million schedules usually have some thousand plans and a few job templates, so each keeps two pointers
//! instead of its parsed spec.
//!
//! # Invariants
//! - A plan and a template never change; a new spec or a changed calendar gives the schedule new ones.
//! - Schedules with hashed fields (`H`, `~`) share a plan only if their seeds are equal.
//!
//! # Cost
//! Compiling a timing and hashing its JSON, once for each distinct plan. Unused plans are dropped when the
//! table grows.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::fast::FixedState;
use model::firing::ScheduledRun;
use model::schedule::{Action, Jitter, Missed, Overlap, OverlapPolicy, Spread};
use model::timing::{Filter, Timing};
use model::validate::Problem;
use model::{Duration, JobSpec, ScheduleSpec, Timestamp};
use timetable::{CalendarMap, Timetable};

use super::{just_before, name_hash};
use crate::context::Context;
use crate::interner::Interner;
use crate::profile::{Profile, Profiles};
use crate::schedules::Schedules;

/// Compiled timing and policies of a schedule.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) timetable: Timetable,
    /// Whether it has any rules; without rules it fires on demand only.
    pub(crate) has_rules: bool,
    pub(crate) policies: Policies,
    /// Names of the calendars that the timing refers to.
    pub(crate) calendars: Box<[Box<str>]>,
    /// Timing, kept only if it refers to calendars: it is compiled again when one of them changes.
    timing: Option<Box<Timing>>,
    /// Hash of namespace and timing, to detect plans with the same scheduled times.
    timing_hash: u128,
    /// Whether the timing could not be compiled; the schedule then never fires by itself.
    pub(crate) is_unreadable: bool,
}

/// Policies for firings and runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policies {
    pub(crate) jitter: Option<Jitter>,
    pub(crate) max_firings: Option<u64>,
    pub(crate) overlap: Overlap,
    pub(crate) missed: Missed,
    pub(crate) start_deadline: Option<Duration>,
    pub(crate) pause_after_failures: Option<u32>,
    pub(crate) reserve_ahead: Option<Duration>,
}

impl Policies {
    fn of(spec: &ScheduleSpec) -> Self {
        Self {
            jitter: spec.jitter.filter(|jitter| jitter.max > Duration::ZERO),
            max_firings: spec.max_firings,
            overlap: spec.overlap,
            missed: spec.missed,
            start_deadline: spec.start_deadline,
            pause_after_failures: spec.pause_after_failures,
            reserve_ahead: spec.reserve_ahead,
        }
    }

    pub(crate) fn allows_all(&self) -> bool {
        self.overlap.policy == OverlapPolicy::AllowAll
    }

    /// Maximum number of unfinished runs; at least 1.
    pub(crate) fn run_limit(&self) -> usize {
        usize::try_from(self.overlap.limit.max(1)).unwrap_or(usize::MAX)
    }
}

impl Plan {
    fn new(spec: &ScheduleSpec, timetable: Timetable, timing_hash: u128) -> Self {
        Self {
            timetable,
            has_rules: !spec.timing.rules.is_empty(),
            policies: Policies::of(spec),
            timing: uses_calendars(&spec.timing).then(|| Box::new(spec.timing.clone())),
            calendars: calendars_of(&spec.timing).map(Into::into).collect(),
            timing_hash,
            is_unreadable: false,
        }
    }

    /// Returns the plan of a schedule whose timing could not be compiled.
    pub(crate) fn unreadable(spec: &ScheduleSpec) -> Arc<Self> {
        let plan = Self::new(spec, Timetable::on_demand(), 0);
        Arc::new(Self { has_rules: false, is_unreadable: true, ..plan })
    }

    /// Returns the plan after a change of a calendar; unchanged if the timing can no longer be compiled.
    pub(crate) fn renewed(
        self: &Arc<Self>,
        seed: u64,
        zones: &timetable::Zones,
        calendars: &CalendarMap,
    ) -> Arc<Self> {
        let timetable =
            self.timing.as_ref().and_then(|timing| Timetable::compile(timing, seed, zones, calendars).ok());
        let Some(timetable) = timetable else { return Arc::clone(self) };
        let (calendars, timing) = (self.calendars.clone(), self.timing.clone());
        Arc::new(Self { timetable, calendars, timing, ..**self })
    }

    /// Returns whether [`Plan::renewed`] depends on the seed.
    pub(crate) fn is_seeded(&self) -> bool {
        self.timing.as_ref().is_some_and(|timing| Timetable::is_seeded(timing))
    }

    /// Returns whether another plan has the same timing, regardless of its policies.
    pub(crate) fn has_timing_of(&self, other: &Self) -> bool {
        self.timing_hash == other.timing_hash && !self.is_unreadable && !other.is_unreadable
    }

    /// Returns the jitter of a firing: its delay after the scheduled time. `hash` is that of the schedule's
    /// name. Never beyond the next scheduled time, so that firings are due in the order of their scheduled
    /// times.
    pub(crate) fn delay_of(&self, hash: u128, nominal: Timestamp) -> Duration {
        let Some(jitter) = self.policies.jitter else { return Duration::ZERO };
        let mut hasher = FixedState::with_seed(0x5eed_0003).build_hasher();
        hasher.write_u128(hash);
        let mut most = jitter.max;
        if jitter.spread == Spread::Random {
            hasher.write_i64(nominal.as_micros());
            most = self.timetable.step(nominal).map_or(most, |next| most.min(next.at.since(nominal)));
        }
        Duration::from_millis(hasher.finish() % (most.as_millis() + 1))
    }

    /// Returns the time up to which scheduled times are due at `now`, considering the jitter.
    pub(crate) fn due_until(&self, hash: u128, after: Timestamp, now: Timestamp) -> Timestamp {
        match self.policies.jitter.map(|jitter| jitter.spread) {
            None => now,
            Some(Spread::Stable) => now - self.delay_of(hash, now),
            Some(Spread::Random) => match self.timetable.last(after, now) {
                Some(last) if last + self.delay_of(hash, last) > now => just_before(last),
                _ => now,
            },
        }
    }
}

fn calendars_of(timing: &Timing) -> impl Iterator<Item = &str> {
    let named = timing.only.iter().chain(&timing.exclude).filter_map(|filter| match filter {
        Filter::Calendar(name) => Some(name.as_str()),
        _ => None,
    });
    named.chain(timing.roll.as_ref().map(|roll| roll.calendar.as_str()))
}

fn uses_calendars(timing: &Timing) -> bool {
    calendars_of(timing).next().is_some()
}

/// What a schedule starts: a job, or a run of a workflow.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) namespace: Arc<str>,
    pub(crate) starts: ScheduledWork,
    /// The same as JSON: the spec of the job, or a [`ScheduledRun`].
    pub(crate) body: Arc<str>,
}

#[derive(Debug)]
pub(crate) enum ScheduledWork {
    Job { spec: Arc<JobSpec>, profile: Arc<Profile> },
    Run(ScheduledRun),
}

impl Template {
    pub(crate) fn new(spec: &ScheduleSpec, profiles: &mut Profiles) -> Self {
        match &spec.action {
            Action::Job(job) => Self::of_job((**job).clone(), profiles),
            Action::Workflow(call) => {
                let (namespace, workflow) = (spec.namespace.clone(), call.clone());
                Self::of_run(ScheduledRun { namespace, workflow, priority: None })
            }
        }
    }

    fn of_job(spec: JobSpec, profiles: &mut Profiles) -> Self {
        let body = spec.compact_json().into();
        let profile = profiles.of(&spec);
        let namespace = Arc::clone(&profile.namespace);
        Self { namespace, starts: ScheduledWork::Job { spec: Arc::new(spec), profile }, body }
    }

    fn of_run(run: ScheduledRun) -> Self {
        // The maps have text keys, so serialization cannot fail.
        let body = serde_json::to_string(&run).unwrap_or_default().into();
        Self { namespace: run.namespace.as_str().into(), starts: ScheduledWork::Run(run), body }
    }

    /// Parses a body.
    ///
    /// # Errors
    /// The reason why it is neither a job nor a run.
    pub(crate) fn parse(body: &str, profiles: &mut Profiles) -> Result<Self, String> {
        if let Ok(run) = serde_json::from_str::<ScheduledRun>(body) {
            return Ok(Self::of_run(run));
        }
        let spec = serde_json::from_str(body).map_err(|error| error.to_string())?;
        Ok(Self::of_job(spec, profiles))
    }

    /// Returns the same template with another priority.
    pub(crate) fn with_priority(&self, priority: u8, profiles: &mut Profiles) -> Self {
        match &self.starts {
            ScheduledWork::Job { spec, .. } => {
                Self::of_job(JobSpec { priority, ..(**spec).clone() }, profiles)
            }
            ScheduledWork::Run(run) => Self::of_run(ScheduledRun { priority: Some(priority), ..run.clone() }),
        }
    }
}

pub(crate) type Plans = Interner<Plan>;

pub(crate) type Templates = Interner<Template>;

impl Plans {
    /// Removes the plans that refer to calendars, because a calendar changed.
    pub(crate) fn forget_calendars(&mut self) {
        self.forget(|plan| !plan.calendars.is_empty());
    }

    fn of(
        &mut self,
        spec: &ScheduleSpec,
        seed: u64,
        zones: &timetable::Zones,
        calendars: &CalendarMap,
    ) -> Result<Arc<Plan>, Vec<Problem>> {
        let key = key_of(spec, seed);
        if let Some(known) = self.get(&key) {
            return Ok(known);
        }
        let timetable = Timetable::compile(&spec.timing, seed, zones, calendars).map_err(|problems| {
            let inside = |p: Problem| Problem { path: format!("timing.{}", p.path), message: p.message };
            problems.into_iter().map(inside).collect::<Vec<_>>()
        })?;
        let timing_hash =
            name_hash(&spec.namespace, &serde_json::to_string(&spec.timing).unwrap_or_default());
        Ok(self.insert(key.into(), Plan::new(spec, timetable, timing_hash)))
    }
}

/// Returns the key of a plan: everything that it depends on, as text.
fn key_of(spec: &ScheduleSpec, seed: u64) -> String {
    let policies = (
        &spec.timing,
        spec.jitter,
        spec.max_firings,
        spec.overlap,
        spec.missed,
        (spec.start_deadline, spec.pause_after_failures, spec.reserve_ahead),
        // Calendars with the same name differ between namespaces.
        uses_calendars(&spec.timing).then_some(&spec.namespace),
        Timetable::is_seeded(&spec.timing).then_some(seed),
    );
    serde_json::to_string(&policies).unwrap_or_default()
}

impl Templates {
    pub(crate) fn of(&mut self, spec: &ScheduleSpec, profiles: &mut Profiles) -> Arc<Template> {
        let template = Template::new(spec, profiles);
        let key = Arc::clone(&template.body);
        self.get(&key).unwrap_or_else(|| self.insert(key, template))
    }
}

impl Schedules {
    /// Returns the plan of a spec, compiling it if necessary.
    ///
    /// # Errors
    /// The problems of its timing, with paths relative to the schedule.
    pub(crate) fn plan_of(&mut self, cx: &Context, spec: &ScheduleSpec) -> Result<Arc<Plan>, Vec<Problem>> {
        let seed = super::seed_of(name_hash(&spec.namespace, &spec.name));
        self.calendars.compile_restored();
        let calendars = self.calendars.of(&spec.namespace);
        self.plans.of(spec, seed, &cx.config.zones, calendars)
    }
}
