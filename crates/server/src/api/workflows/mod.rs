//! Workflows and their runs.
//!
//! - `apply`: from bodies to what the engine takes; all that is wrong is named at once. `read`: lists and details.
//! - `pin`: a workflow with all that it calls, as a run is pinned to it. `start`: runs begin, or begin again (`again`:
//!   what a retry takes over); `inline`: of a definition that comes with the request; `plan` says what one would do; `cost`: how many
//!   jobs a run counts as for the job rate.
//! - `runs`: lists of runs, their steps and elements. `change`: what is asked of a run that goes on.
//! - `convert`: rows as what the API shows.

mod again;
mod apply;
mod change;
mod convert;
mod cost;
mod inline;
mod pin;
mod plan;
mod read;
mod runs;
mod start;
mod warn;

use super::routes::Routes;

pub(super) use cost::jobs_of_call;

pub(super) fn routes(routes: &mut Routes) {
    read::routes(routes);
    apply::routes(routes);
    start::routes(routes);
    inline::routes(routes);
    plan::routes(routes);
    runs::routes(routes);
    change::routes(routes);
}
