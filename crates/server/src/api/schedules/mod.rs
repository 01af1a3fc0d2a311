//! Schedules: apply, list, show, pause, resume, trigger, delete.
//!
//! - `apply`: from request bodies to schedules for the engine; all errors are reported at once.
//! - `change`: changes of existing schedules.
//! - `read`: lists and details; `health`: late and stuck runs.
//! - `preview`: future firings; `ledger`: outcomes of past scheduled times.
//! - `warnings`: warnings about valid schedules.
//! - `backfills`: backfills of past ranges.

mod apply;
mod backfills;
mod change;
mod health;
mod ledger;
mod preview;
mod read;
mod warnings;

use super::routes::Routes;

pub(super) fn routes(routes: &mut Routes) {
    read::routes(routes);
    apply::routes(routes);
    change::routes(routes);
    preview::routes(routes);
    ledger::routes(routes);
    backfills::routes(routes);
}
