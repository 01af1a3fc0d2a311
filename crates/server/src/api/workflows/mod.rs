//! Workflows and their runs.
//!
//! - `apply`: from request bodies to workflows for the engine; all errors are reported at once. `warn`: warnings about
//!   valid workflows. `read`: lists and details.
//! - `pin`: the definition to which a run is pinned: a workflow with all workflows that it calls.
//! - `start`: starts and retries of runs; `retry_takeover`: results that a retry takes over; `inline`: runs of definitions in
//!   the request; `plan`: steps of a run without starting it; `cost`: number of jobs that a run counts as for the job
//!   rate.
//! - `runs`: lists of runs, their steps and elements. `change`: changes of live runs and their steps.
//! - `convert`: conversion of rows to API types.

mod apply;
mod change;
mod convert;
mod cost;
mod inline;
mod pin;
mod plan;
mod read;
mod retry_takeover;
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
