//! Schedules: apply, list, show, pause, resume, trigger, delete.
//!
//! - `apply`: from bodies to what the engine takes; all that is wrong is named at once.
//! - `change`: what is asked of a schedule that exists.
//! - `read`: lists and details; `health` finds what is late or stuck.
//! - `preview`: what will fire; `ledger`: what became of what was to fire.
//! - `warnings`: what somebody should know about a schedule that is taken all the same.
//! - `backfills`: past ranges that are made up for.

mod apply;
mod backfills;
mod change;
mod health;
mod ledger;
mod preview;
mod read;
mod warnings;

use model::ScheduleId;
use serde::Deserialize;
use store::query::ScheduleRow;

use super::Api;
use super::problem::{Code, Trouble};
use super::routes::Routes;

pub(super) use preview::calendars_of;

pub(super) fn routes(routes: &mut Routes) {
    read::routes(routes);
    apply::routes(routes);
    change::routes(routes);
    preview::routes(routes);
    ledger::routes(routes);
    backfills::routes(routes);
}

/// Where a name is looked for.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct Scope {
    /// The namespace of the name; `default` where absent. Not needed with an id.
    namespace: Option<String>,
}

/// The schedule whose id or name stands in the address.
async fn find(api: &Api, name: &str, scope: &Scope) -> Result<ScheduleRow, Trouble> {
    find_in(api, name, scope.namespace.as_deref()).await
}

async fn find_in(api: &Api, name: &str, namespace: Option<&str>) -> Result<ScheduleRow, Trouble> {
    let store = api.node.store();
    let namespace = namespace.unwrap_or(model::spec::DEFAULT);
    let found = match name.parse::<ScheduleId>() {
        Ok(id) => store.schedule(id).await?,
        Err(_) => store.schedule_named(namespace, name).await?,
    };
    found.ok_or_else(|| {
        let shown: String = name.chars().take(64).collect();
        let shown_namespace: String = namespace.chars().take(64).collect();
        let detail = match name.parse::<ScheduleId>() {
            Ok(id) => format!("there is no schedule {id}"),
            Err(_) => format!("there is no schedule `{shown}` in namespace `{shown_namespace}`"),
        };
        Trouble::new(Code::ScheduleNotFound, detail)
    })
}
