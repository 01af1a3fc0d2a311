//! Folds the statistics of commits into series, on the leader.
//!
//! A commit leaves its counts pending in the store; queries add them up with the series. Folding keeps that sum short.
//!
//! # Cost
//! While no job changes, only a search for old intervals every ten minutes: a fold follows only a commit that counted
//! anything.

use std::time::Duration;

use model::error_chain::Chain;
use store::StoreError;

use crate::clock::{Clock as _, SystemClock};
use crate::services::Services;

/// Interval between two folds.
const FOLD_INTERVAL: Duration = Duration::from_secs(10);
/// Most folds of a round: commits of the meantime have to wait for the next one.
const FOLDS_MAX: usize = 20;
/// A fold of fewer commits than this has left none over, or only those of the meantime.
const FEW: u64 = 1_000;
/// Interval between two deletions of old intervals.
const TRIM_INTERVAL: Duration = Duration::from_secs(600);

/// Folds and trims until the future is dropped.
pub(crate) async fn run(services: Services) {
    let mut rounds = tokio::time::interval(FOLD_INTERVAL);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut trimmed: Option<tokio::time::Instant> = None;
    // The former leader may have left counts pending.
    let mut is_new_leader = true;
    loop {
        rounds.tick().await;
        if services.node.check_leading().is_err() {
            is_new_leader = true;
            continue;
        }
        if trimmed.is_none_or(|at| at.elapsed() >= TRIM_INTERVAL) {
            logged(trim(&services).await, "delete old statistics");
            trimmed = Some(tokio::time::Instant::now());
        }
        let has_counted = services.node.take_counted();
        if has_counted || is_new_leader {
            let folded = fold(&services).await;
            if !matches!(folded, Ok(true)) {
                services.node.set_counted();
            }
            logged(folded.map(drop), "fold statistics");
        }
        is_new_leader = false;
    }
}

/// Returns whether no commit from before the call is left over.
async fn fold(services: &Services) -> Result<bool, StoreError> {
    for _ in 0..FOLDS_MAX {
        if services.node.store().fold_statistics().await? < FEW {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn trim(services: &Services) -> Result<(), StoreError> {
    // As for all retention: neither clock alone deletes anything early.
    let now = services.node.view().purge_before.min(SystemClock.now());
    while services.node.store().trim_statistics(now).await? > 0 {
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Logs an error.
fn logged(outcome: Result<(), StoreError>, what: &str) {
    if let Err(error) = outcome {
        tracing::warn!(error = %Chain(&error), "cannot {what}; retrying later");
    }
}
