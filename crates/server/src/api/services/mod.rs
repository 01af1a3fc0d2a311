//! Services: long-running jobs that are kept at a number of replicas.
//!
//! - `apply`: creates and changes services, and deletes them. `change`: scale, restart, roll back, and control a rollout.
//! - `read`: lists, details, revisions and replicas. `endpoints`: ports of healthy replicas, also as targets for
//!   Prometheus.
//! - `convert`: conversion of rows to API types.

mod apply;
mod change;
mod convert;
mod endpoints;
mod read;

use super::routes::Routes;

pub(super) fn routes(routes: &mut Routes) {
    read::routes(routes);
    endpoints::routes(routes);
    apply::routes(routes);
    change::routes(routes);
}
