//! Warnings about valid schedules.
//!
//! A schedule that never fires is accepted. Files contain one-time schedules long after their time and must still be
//! applicable, and `0 0 31 2 *` is a common way to write "only by hand". The response to the request contains a warning
//! instead.
//!
//! # Cost
//! A timing is compiled only for new and changed schedules, and in a large batch only if the engine found no next
//! firing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::api::Warning;
use model::firing::ScheduleHead;
use timetable::CalendarMap;

use crate::api::problem::ApiError;
use crate::api::{Api, rows};
use crate::clock::{Clock, SystemClock};
use crate::preview::{TimingContext, seed, warnings};

/// Returns the calendars of the namespaces of these schedules.
pub(super) async fn calendars(
    api: &Api,
    heads: &[Arc<ScheduleHead>],
) -> Result<BTreeMap<String, CalendarMap>, ApiError> {
    let mut calendars = BTreeMap::new();
    for namespace in heads.iter().map(|head| &head.spec.namespace).collect::<BTreeSet<_>>() {
        calendars.insert(namespace.clone(), rows::calendars(api, namespace).await?);
    }
    Ok(calendars)
}

/// Returns the warnings for each of these schedules, in order.
pub(super) async fn of(api: &Api, heads: Vec<Arc<ScheduleHead>>) -> Result<Vec<Vec<Warning>>, ApiError> {
    if heads.is_empty() {
        return Ok(Vec::new());
    }
    let missing = missing_workflows(api, &heads).await?;
    let calendars = calendars(api, &heads).await?;
    let zones = api.config.engine.zones.clone();
    let compute = move || {
        let none = CalendarMap::default();
        let of = |head: &Arc<ScheduleHead>| {
            let spec = &head.spec;
            let calendars = calendars.get(&spec.namespace).unwrap_or(&none);
            let reading = TimingContext { zones: &zones, calendars, seed: seed(&spec.namespace, &spec.name) };
            warnings(&spec.timing, &reading, SystemClock.now())
        };
        heads.iter().map(of).collect::<Vec<_>>()
    };
    let mut found = tokio::task::spawn_blocking(compute).await.map_err(|error| ApiError::internal(&error))?;
    for (warnings, missing) in found.iter_mut().zip(missing) {
        warnings.extend(missing);
    }
    Ok(found)
}

/// Returns a warning for each schedule whose workflow does not exist. That is no reason for a refusal: files are
/// applied in any order, and the workflow may be created before the next firing.
async fn missing_workflows(api: &Api, heads: &[Arc<ScheduleHead>]) -> Result<Vec<Option<Warning>>, ApiError> {
    let mut found = Vec::with_capacity(heads.len());
    for head in heads {
        let missing = match head.spec.workflow() {
            Some(call) => {
                let known = api.node.store().workflow_named(&head.spec.namespace, &call.name).await?;
                known.is_none().then(|| Warning::no_workflow(&call.name))
            }
            None => None,
        };
        found.push(missing);
    }
    Ok(found)
}
