//! Folds the statistics of commits into series, on the leader.
//!
//! A commit leaves its counts pending in the store; queries add them up with the series. Folding keeps that sum short.
//!
//! # Cost
//! Nothing while no job changes: the store is asked only after a commit that counted anything.

use std::time::Duration;

use model::error_chain::Chain;
use store::StoreError;

use crate::clock::{Clock as _, SystemClock};
use crate::services::Services;

/// Interval between two folds.
const FOLD_INTERVAL: Duration = Duration::from_secs(10);
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
        let has_counted = services.node.take_counted();
        if (has_counted || is_new_leader) && !logged(fold(&services).await, "fold statistics") {
            services.node.set_counted();
        }
        is_new_leader = false;
        if trimmed.is_none_or(|at| at.elapsed() >= TRIM_INTERVAL) {
            logged(trim(&services).await, "delete old statistics");
            trimmed = Some(tokio::time::Instant::now());
        }
    }
}

async fn fold(services: &Services) -> Result<(), StoreError> {
    while services.node.store().fold_statistics().await? > 0 {
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn trim(services: &Services) -> Result<(), StoreError> {
    // As for all retention: neither clock alone deletes anything early.
    let now = services.node.view().purge_before.min(SystemClock.now());
    while services.node.store().trim_statistics(now).await? > 0 {
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Returns whether it succeeded; logs an error.
fn logged(outcome: Result<(), StoreError>, what: &str) -> bool {
    match outcome {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "cannot {what}; retrying later");
            false
        }
    }
}
