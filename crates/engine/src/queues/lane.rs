//! Order of the jobs of one queue: priority class, priority, namespace, run, shape, age.
//!
//! The jobs of one workflow run are a *flow*, and all jobs outside runs form one more. Flows of a namespace
//! take turns by their fair share, so the last step of a short run does not wait behind 100,000 elements of
//! another run. Within a flow the oldest job is first. A flow that begins to wait comes after the flows that
//! wait for their next turn.
//!
//! # Invariants
//! - The order of a lane has one entry for each of its flows: the flow's clock and its oldest job.
//!
//! # Cost
//! O(log n) to enter and leave. Serving a job of a flow changes the entry of that flow in each lane where it
//! waits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::spec::PriorityClass;
use model::{JobId, RunId, Timestamp};

use super::fair::FairShares;
use crate::profile::Profile;

type QueuePosition = (Timestamp, JobId);

/// The run that a job belongs to; `None` for all jobs outside runs.
pub(crate) type Flow = Option<RunId>;

/// The jobs of one flow in a lane; at least one.
#[derive(Debug)]
struct FlowJobs {
    /// Start of the flow's next service, as used in the order of the lane.
    clock: u64,
    /// Oldest first.
    jobs: BTreeSet<QueuePosition>,
}

/// Jobs of one shape: a worker is eligible for all of them or for none.
#[derive(Debug)]
struct Lane {
    profile: Arc<Profile>,
    flows: BTreeMap<Flow, FlowJobs>,
    /// Order of the flows: clock, oldest job, flow.
    order: BTreeSet<(u64, QueuePosition, Flow)>,
}

impl Lane {
    fn new(profile: &Arc<Profile>) -> Self {
        Self { profile: Arc::clone(profile), flows: BTreeMap::new(), order: BTreeSet::new() }
    }

    fn insert(&mut self, flow: Flow, place: QueuePosition, clock: u64) {
        let waiting = self.flows.entry(flow).or_insert_with(|| FlowJobs { clock, jobs: BTreeSet::new() });
        let before = waiting.jobs.first().copied();
        waiting.jobs.insert(place);
        if before.is_none_or(|before| place < before) {
            if let Some(before) = before {
                self.order.remove(&(waiting.clock, before, flow));
            }
            self.order.insert((waiting.clock, place, flow));
        }
    }

    /// Returns whether the job was in the lane.
    fn remove(&mut self, flow: Flow, place: QueuePosition) -> bool {
        let Some(waiting) = self.flows.get_mut(&flow) else { return false };
        let clock = waiting.clock;
        let removed = waiting.jobs.remove(&place);
        if self.order.remove(&(clock, place, flow)) {
            if let Some(&next) = waiting.jobs.first() {
                self.order.insert((clock, next, flow));
            } else {
                self.flows.remove(&flow);
            }
        }
        removed
    }

    /// Updates the clock of a flow after a service.
    fn set_clock(&mut self, flow: Flow, clock: u64) {
        let Some(waiting) = self.flows.get_mut(&flow) else { return };
        let Some(&oldest) = waiting.jobs.first() else { return };
        self.order.remove(&(waiting.clock, oldest, flow));
        waiting.clock = clock;
        self.order.insert((clock, oldest, flow));
    }
}

/// The jobs of one namespace at one level.
#[derive(Debug, Default)]
struct Tenant {
    /// By shape id.
    lanes: BTreeMap<u64, Lane>,
    /// Fair shares of the flows.
    flows: FairShares<Flow>,
}

impl Tenant {
    /// Records a service of a flow. Without other waiting flows there is nothing to share.
    fn charge(&mut self, flow: Flow) {
        let mut lanes = self.lanes.values();
        if let (Some(lane), None) = (lanes.next(), lanes.next())
            && lane.flows.len() == 1
        {
            return;
        }
        self.flows.charge(&flow, 1);
        let clock = self.flows.start(&flow);
        self.lanes.values_mut().for_each(|lane| lane.set_clock(flow, clock));
    }
}

/// Priority class and priority of jobs; the highest level is first.
type Level = Reverse<(PriorityClass, u8)>;

fn level_of(profile: &Profile) -> Level {
    Reverse((profile.shape.class, profile.priority))
}

/// The jobs of one queue that may be placed, by level and namespace.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    levels: BTreeMap<Level, BTreeMap<Arc<str>, Tenant>>,
}

impl Lanes {
    pub(crate) fn insert(&mut self, profile: &Arc<Profile>, flow: Flow, place: QueuePosition) {
        let level = self.levels.entry(level_of(profile)).or_default();
        let tenant = match level.get_mut(&profile.namespace) {
            Some(tenant) => tenant,
            None => level.entry(Arc::clone(&profile.namespace)).or_default(),
        };
        let is_alone = tenant.lanes.is_empty();
        let lane = tenant.lanes.entry(profile.shape_id).or_insert_with(|| Lane::new(profile));
        if !is_alone && !lane.flows.contains_key(&flow) {
            tenant.flows.enter(&flow);
        }
        lane.insert(flow, place, tenant.flows.start(&flow));
    }

    /// Removes a job that was placed, and counts the service of its flow.
    pub(crate) fn serve(&mut self, profile: &Profile, flow: Flow, place: QueuePosition) {
        let level = self.levels.get_mut(&level_of(profile));
        if let Some(tenant) = level.and_then(|level| level.get_mut(&profile.namespace)) {
            tenant.charge(flow);
        }
        self.remove(profile, flow, place);
    }

    /// Returns whether the job was in a lane.
    pub(crate) fn remove(&mut self, profile: &Profile, flow: Flow, place: QueuePosition) -> bool {
        let Some(level) = self.levels.get_mut(&level_of(profile)) else { return false };
        let Some(tenant) = level.get_mut(&profile.namespace) else { return false };
        let Some(lane) = tenant.lanes.get_mut(&profile.shape_id) else { return false };
        let removed = lane.remove(flow, place);
        if lane.flows.is_empty() {
            tenant.lanes.remove(&profile.shape_id);
            if tenant.lanes.is_empty() {
                level.remove(&profile.namespace);
                if level.is_empty() {
                    self.levels.remove(&level_of(profile));
                }
            }
        }
        removed
    }

    /// Returns the highest priority class of its jobs.
    pub(crate) fn top_class(&self) -> Option<PriorityClass> {
        self.levels.first_key_value().map(|(Reverse((class, _)), _)| *class)
    }

    /// Returns the next job among those with a profile that `chosen` accepts and that `wants` accepts, with a profile of its
    /// shape.
    pub(crate) fn find(
        &self,
        shares: &FairShares,
        chosen: impl Fn(&Profile) -> bool,
        wants: impl Fn(JobId) -> bool,
    ) -> Option<(JobId, Arc<Profile>)> {
        self.levels.values().find_map(|level| {
            let found = level.iter().filter_map(|(namespace, tenant)| {
                let open = tenant.lanes.values().filter(|lane| chosen(&lane.profile));
                let found = open.filter_map(|lane| {
                    let jobs = lane.order.iter().flat_map(|(clock, _, flow)| {
                        lane.flows[flow].jobs.iter().map(move |place| (*clock, *place))
                    });
                    let mut wanted = jobs.filter(|(_, (_, job))| wants(*job));
                    wanted.next().map(|place| (place, lane))
                });
                let ((_, place), lane) = found.min_by_key(|(place, _)| *place)?;
                Some((shares.start(namespace.as_ref()), place, lane))
            });
            let (_, (_, job), lane) = found.min_by_key(|(share, place, _)| (*share, *place))?;
            Some((job, Arc::clone(&lane.profile)))
        })
    }

    /// Returns when the oldest waiting job became ready.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        let lanes = self.levels.values().flat_map(BTreeMap::values).flat_map(|tenant| tenant.lanes.values());
        let heads = lanes.flat_map(|lane| &lane.order);
        heads.map(|(_, (due_at, _), _)| *due_at).min()
    }

    pub(crate) fn contains(&self, profile: &Profile, flow: Flow, place: QueuePosition) -> bool {
        let level = self.levels.get(&level_of(profile));
        let lane = level.and_then(|l| l.get(&profile.namespace)).and_then(|t| t.lanes.get(&profile.shape_id));
        lane.and_then(|lane| lane.flows.get(&flow)).is_some_and(|waiting| waiting.jobs.contains(&place))
    }
}
