//! Creates an engine from a plan.
//!
//! The plan is converted to the rows that a store would contain, and the engine restores each object from its row. So
//! the engine has the same state as on a server after a restart, and needs no interface for forecasts. Workers then
//! connect with one session each and a lease that never expires.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::{Config, Engine, Input, Join, Session};
use model::calendar::CalendarRecord;
use model::firing::{Pause, RunStatistics, ScheduleHead, ScheduleState, ScheduleStatus};
use model::id::{Epoch, IdSource};
use model::record::{Lease, LiveRow, QueueRecord, WorkerRecord};
use model::run::{WorkflowHead, WorkflowState};
use model::service::{
    ReplicaCounts, Revision, RevisionCause, Rollout, RolloutStatus, ServiceHead, ServiceState,
};
use model::timing::Rule;
use model::worker::WorkerStatus;
use model::{Duration, ScheduleId, ServiceId, ShardId, Timestamp, WorkerId, WorkflowId};

use crate::plan::{Plan, PlanError, Schedule, Service};

const SHARD: ShardId = ShardId(0);
/// Longer than any range, so simulated workers need no heartbeats.
const LEASE: Duration = Duration::from_hours(24 * 366 * 100);

/// An engine with all objects of a plan, and the indexes of these objects in the plan.
pub(crate) struct Setup {
    pub(crate) engine: Engine,
    pub(crate) schedules: BTreeMap<ScheduleId, usize>,
    pub(crate) workers: BTreeMap<WorkerId, usize>,
}

/// Returns the only session of a worker.
pub(crate) fn session(worker: usize) -> Session {
    Session(worker as u64 + 1)
}

/// Returns an engine at the start of the range.
///
/// # Errors
/// [`PlanError`] for an invalid plan.
pub(crate) fn setup(plan: &Plan) -> Result<Setup, PlanError> {
    check(plan)?;
    let config = Config {
        seed: plan.options.seed,
        heartbeat_interval: LEASE,
        lease: LEASE,
        samples_levels: false,
        zones: plan.options.zones.clone(),
        ..Config::default()
    };
    let lease = Lease { shard: SHARD, epoch: Epoch(1) };
    let mut setup = Setup {
        engine: Engine::new(config, &[lease], 1, plan.from),
        schedules: BTreeMap::new(),
        workers: BTreeMap::new(),
    };
    let mut rows = Rows { at: plan.from, ids: IdSource::default() };
    for row in rows.registry(plan) {
        setup.restore(row);
    }
    for service in &plan.services {
        setup.restore(rows.service(service));
    }
    for (place, schedule) in plan.schedules.iter().enumerate() {
        let id = ScheduleId::from_bits(rows.next());
        setup.schedules.insert(id, place);
        setup.restore(rows.schedule(id, schedule));
    }
    for (place, worker) in plan.workers.iter().enumerate() {
        let id = WorkerId::from_bits(rows.next());
        setup.workers.insert(id, place);
        setup.restore(LiveRow::Worker(WorkerRecord {
            id,
            name: worker.name.clone(),
            version: String::new(),
            labels: worker.labels.clone(),
            capacity: worker.capacity.clone(),
            capabilities: worker.capabilities.clone(),
            status: WorkerStatus::Ready,
            admission: worker.admission,
            created_at: plan.from,
            updated_at: plan.from,
            last_heartbeat_at: None,
            address: None,
        }));
    }
    setup.engine.start(plan.from);
    setup.open_sessions(plan);
    Ok(setup)
}

impl Setup {
    fn restore(&mut self, row: LiveRow) {
        // Only jobs, runs and backfills can be inconsistent, and a plan has none.
        let restored = self.engine.restore(row);
        debug_assert!(restored.is_ok(), "{restored:?}");
    }

    fn open_sessions(&mut self, plan: &Plan) {
        for (&worker, &place) in &self.workers {
            let Some(like) = plan.workers.get(place) else { continue };
            let join = Join {
                worker,
                session: session(place),
                name: like.name.clone(),
                version: String::new(),
                labels: like.labels.clone(),
                capacity: like.capacity.clone(),
                capabilities: like.capabilities.clone(),
                held: Vec::new(),
                address: None,
            };
            self.engine.handle(plan.from, Input::Join(Box::new(join)));
        }
    }
}

fn check(plan: &Plan) -> Result<(), PlanError> {
    if plan.until <= plan.from {
        return Err(PlanError::EmptyRange { from: plan.from, until: plan.until });
    }
    let slower = plan.options.slower;
    if !slower.is_finite() || slower <= 0.0 {
        return Err(PlanError::Slower { slower });
    }
    once("schedule", plan.schedules.iter().map(|s| (s.spec.namespace.as_str(), s.spec.name.as_str())))?;
    once("calendar", plan.calendars.iter().map(|c| (c.namespace.as_str(), c.name.as_str())))?;
    once("workflow", plan.workflows.iter().map(|w| (w.namespace.as_str(), w.name.as_str())))?;
    once("service", plan.services.iter().map(|s| (s.spec.namespace.as_str(), s.spec.name.as_str())))
}

fn once<'a>(kind: &'static str, names: impl Iterator<Item = (&'a str, &'a str)>) -> Result<(), PlanError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(PlanError::Twice { kind, name: format!("{}/{}", name.0, name.1) });
        }
    }
    Ok(())
}

/// Creates rows with one creation time.
struct Rows {
    at: Timestamp,
    ids: IdSource,
}

impl Rows {
    fn next(&mut self) -> u128 {
        self.ids.next(self.at, SHARD, 0)
    }

    fn registry(&mut self, plan: &Plan) -> Vec<LiveRow> {
        let at = self.at;
        let calendars = plan.calendars.iter().map(|spec| {
            LiveRow::Calendar(CalendarRecord {
                spec: spec.clone(),
                version: 1,
                created_at: at,
                updated_at: at,
            })
        });
        let queues = plan.queues.iter().map(|(name, settings)| {
            let (name, settings) = (name.clone(), settings.clone());
            LiveRow::Queue(QueueRecord { name, settings, version: 1, updated_at: at })
        });
        let mut rows: Vec<_> = calendars.chain(queues).collect();
        for spec in &plan.workflows {
            let mut spec = spec.clone();
            spec.fill();
            let body = serde_json::to_string(&spec).unwrap_or_default().into();
            rows.push(LiveRow::Workflow {
                id: WorkflowId::from_bits(self.next()),
                head: WorkflowHead { spec: Arc::new(spec), body },
                state: WorkflowState {
                    generation: 1,
                    version: 1,
                    created_at: at,
                    updated_at: at,
                    runs: 0,
                    triggers: Vec::new(),
                },
            });
        }
        rows
    }

    /// Returns a service whose current revision was rolled out completely.
    fn service(&mut self, service: &Service) -> LiveRow {
        let mut spec = service.spec.clone();
        spec.fill();
        // Its replicas have been running before the range, so other work does not wait for them.
        spec.min_healthy = Duration::ZERO;
        let body: Arc<str> = serde_json::to_string(&spec).unwrap_or_default().into();
        let revision = Revision {
            number: 1,
            body: Arc::clone(&body),
            created_at: self.at,
            cause: RevisionCause::Applied,
            rollback_to: None,
            actor: "".into(),
            completed: true,
        };
        let rollout = Rollout {
            revision: 1,
            status: RolloutStatus::Completed,
            paused: false,
            promoted: true,
            started_at: self.at,
            progressed_at: self.at,
            reached: service.replicas,
            ended_at: Some(self.at),
            reason: None,
        };
        let state = ServiceState {
            deleting: false,
            version: 1,
            created_at: self.at,
            updated_at: self.at,
            replicas: service.replicas,
            rollout,
            stable_revision: Some(1),
            counts: ReplicaCounts::default(),
            scaled: None,
            scaling_problem: None,
        };
        LiveRow::Service {
            id: ServiceId::from_bits(self.next()),
            head: ServiceHead { spec: Arc::new(spec), body, revisions: vec![Arc::new(revision)] },
            state: Box::new(state),
        }
    }

    /// Returns the pause of a paused schedule, which started before the range at the latest.
    fn pause(&self, schedule: &Schedule) -> Option<Box<Pause>> {
        let known = schedule.pause.clone().filter(|_| schedule.status == ScheduleStatus::Paused);
        let unknown = || Pause { at: self.at, by: "unknown".into(), note: None };
        let pause = known.or_else(|| (schedule.status == ScheduleStatus::Paused).then(unknown))?;
        Some(Box::new(Pause { at: pause.at.min(self.at), ..pause }))
    }

    fn schedule(&self, id: ScheduleId, schedule: &Schedule) -> LiveRow {
        let mut spec = schedule.spec.clone();
        spec.fill();
        let is_delayed = spec.timing.rules.iter().any(|rule| matches!(rule, Rule::After(_)));
        let body = serde_json::to_string(&spec).unwrap_or_default().into();
        let state = ScheduleState {
            generation: 1,
            version: 1,
            created_at: self.at,
            updated_at: self.at,
            status: schedule.status,
            pause: self.pause(schedule),
            // A scheduled time at the start of the range is part of the range.
            cursor: Timestamp::from_micros(self.at.as_micros() - 1),
            owed: Default::default(),
            previous: None,
            delay_from: is_delayed.then_some(self.at),
            next_at: None,
            fired: schedule.fired,
            skipped: 0,
            last: None,
            last_manual: None,
            buffer: Default::default(),
            open_record: None,
            statistics: Some(Box::new(RunStatistics { streak: schedule.streak, ..RunStatistics::default() })),
        };
        LiveRow::Schedule { id, head: ScheduleHead { spec: Arc::new(spec), body }, state: Box::new(state) }
    }
}
