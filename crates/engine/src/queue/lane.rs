//! The jobs of one queue in their order: priority, namespace, shape, age.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{JobId, Timestamp};

use super::fair::Fair;
use crate::profile::{Profile, Shape};

type Place = (Timestamp, JobId);

/// Jobs that fit, or do not fit, together; oldest first.
#[derive(Debug)]
struct Lane {
    profile: Arc<Profile>,
    jobs: BTreeSet<Place>,
}

/// Lanes of one namespace by the id of their shape.
type Shapes = BTreeMap<u64, Lane>;

/// The jobs of one queue that may be placed.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    levels: BTreeMap<Reverse<u8>, BTreeMap<Arc<str>, Shapes>>,
}

impl Lanes {
    pub(crate) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    pub(crate) fn insert(&mut self, profile: &Arc<Profile>, place: Place) {
        let level = self.levels.entry(Reverse(profile.priority)).or_default();
        let shapes = match level.get_mut(&profile.namespace) {
            Some(shapes) => shapes,
            None => level.entry(Arc::clone(&profile.namespace)).or_default(),
        };
        let lane = shapes
            .entry(profile.shape_id)
            .or_insert_with(|| Lane { profile: Arc::clone(profile), jobs: BTreeSet::new() });
        lane.jobs.insert(place);
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, profile: &Profile, place: Place) -> bool {
        let Some(level) = self.levels.get_mut(&Reverse(profile.priority)) else { return false };
        let Some(shapes) = level.get_mut(&profile.namespace) else { return false };
        let Some(lane) = shapes.get_mut(&profile.shape_id) else { return false };
        let removed = lane.jobs.remove(&place);
        if lane.jobs.is_empty() {
            shapes.remove(&profile.shape_id);
            if shapes.is_empty() {
                level.remove(&profile.namespace);
                if level.is_empty() {
                    self.levels.remove(&Reverse(profile.priority));
                }
            }
        }
        removed
    }

    /// The job that goes next among those whose shape is not `blocked`, with a profile of its shape.
    pub(crate) fn first(
        &self,
        blocked: &BTreeMap<u64, Arc<Shape>>,
        shares: &Fair,
    ) -> Option<(JobId, Arc<Profile>)> {
        self.levels.values().find_map(|level| {
            let heads = level.iter().filter_map(|(namespace, shapes)| {
                let open = shapes.iter().filter(|(shape, _)| !blocked.contains_key(shape));
                let (place, lane) =
                    open.filter_map(|(_, lane)| Some((lane.jobs.first()?, lane))).min_by_key(|l| l.0)?;
                Some((shares.start(namespace), *place, lane))
            });
            let (_, (_, job), lane) = heads.min_by_key(|(share, place, _)| (*share, *place))?;
            Some((job, Arc::clone(&lane.profile)))
        })
    }

    /// When the job that waits longest became due.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        let lanes = self.levels.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values);
        lanes.filter_map(|lane| lane.jobs.first()).map(|(due_at, _)| *due_at).min()
    }

    /// Whether a job stands here.
    pub(crate) fn contains(&self, profile: &Profile, place: Place) -> bool {
        let level = self.levels.get(&Reverse(profile.priority));
        let lane = level.and_then(|l| l.get(&profile.namespace)).and_then(|s| s.get(&profile.shape_id));
        lane.is_some_and(|lane| lane.jobs.contains(&place))
    }
}
