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

use super::routes::Routes;

pub(super) fn routes(routes: &mut Routes) {
    read::routes(routes);
    apply::routes(routes);
    change::routes(routes);
    preview::routes(routes);
    ledger::routes(routes);
    backfills::routes(routes);
}
