//! Log messages and metrics for the notices of the leader.

use leader::{NotFollowed, Notice};

use crate::metrics::Metrics;

/// Logs and counts a notice.
pub(super) fn log_notice(notice: Notice, metrics: &Metrics) {
    match notice {
        Notice::BecameStandby { shards } => {
            tracing::info!(shards, "standby: another server owns the shards")
        }
        Notice::AcquireFailed(failure) => {
            tracing::warn!(error = failure.message, "cannot acquire the shards; retrying");
        }
        Notice::EngineRebuilds => metrics.engine_reloaded(),
        Notice::Loaded { rows, quarantined, took } => {
            metrics.count_quarantined(quarantined);
            tracing::info!(rows, quarantined, millis = took.as_millis(), "shards loaded");
        }
        Notice::RowQuarantined(poison) => {
            tracing::error!(error = poison, "live row quarantined: it contradicts other rows");
        }
        Notice::EngineFailedOnRows => metrics.engine_panicked(),
        Notice::TailLost { shards } => {
            metrics.tail_lost();
            tracing::warn!(
                shards,
                "the store may have lost its last commits: it was restored, or its database failed over; \
                 holding jobs that must not run twice until all workers have reported"
            );
        }
        Notice::ClockDistrusted { ahead, second } => tracing::warn!(
            %ahead,
            reference = second,
            "the wall clock is ahead of the reference clock, which is used instead: correct the wall clock"
        ),
        Notice::ClockBehind(behind) => {
            tracing::warn!(%behind, "the wall clock is behind the newest commit: engine time waits for it");
        }
        Notice::Follows { rows, took } => {
            let millis = took.as_millis();
            tracing::info!(rows, millis, "initial load finished: this standby is ready to take over");
        }
        Notice::NotFollowed { why, again_in } => {
            count_failure(&why, metrics);
            tracing::info!(
                reason = %why,
                seconds = again_in.as_millis() / 1_000,
                "this standby stopped following the live rows; repeating the initial load"
            );
        }
        Notice::StandbyDiscarded(why) => {
            count_failure(&why, metrics);
            tracing::warn!(reason = %why, "takeover without the rows of this standby; loading all live rows");
        }
        Notice::Leads { followed, took } => {
            metrics.took_over(followed);
            tracing::info!(followed, millis = took.as_millis(), "leadership acquired");
        }
        Notice::RenewalFails(failure) => {
            tracing::warn!(error = failure.message, "cannot renew the leadership lease; retrying");
        }
        Notice::RenewalRecovered => tracing::info!("leadership lease renewed again"),
        Notice::ShardsLost(failure) => tracing::warn!(error = failure.message, "leadership lost"),
        Notice::Suspended => {
            metrics.leadership_suspended();
            tracing::warn!("leadership suspended: the store did not confirm the lease in time");
        }
        Notice::Resumed { after } => {
            let millis = after.as_millis();
            tracing::info!(millis, "leadership resumed: no other server had taken over");
        }
        Notice::SuspensionTimedOut => {
            tracing::warn!("leadership lost: the store did not confirm the lease before the suspension ended")
        }
        Notice::CommitFailed(failure) => {
            tracing::warn!(error = failure.message, "commit failed; reloading the engine")
        }
        Notice::SpaceLow => tracing::warn!("the store's volume is full: new work is refused"),
        Notice::SpaceRecovered => tracing::info!("the store has free space again: new work is accepted"),
        Notice::Reconciled => {
            tracing::info!("reconciliation finished: all workers have reported; releasing held jobs")
        }
        Notice::ReconcileFails(failure) => tracing::warn!(
            error = failure.message,
            "cannot record the end of the reconciliation in the store; retrying"
        ),
        Notice::HandoverStarted => tracing::info!("handing over leadership to another server"),
        Notice::ReleaseFails(failure) => {
            tracing::warn!(error = failure.message, "cannot release the shards; their leases will expire")
        }
        Notice::EngineFailed(suspect) => {
            metrics.engine_panicked();
            tracing::error!(?suspect, "the engine failed; reloading it");
        }
        Notice::InputDropped(suspect) => {
            metrics.count_quarantined(1);
            tracing::error!(?suspect, "input quarantined: handling it failed before");
        }
        Notice::Fatal { reason } => {
            tracing::error!(reason, "the store cannot be trusted any more; exiting");
        }
    }
}

fn count_failure(why: &NotFollowed, metrics: &Metrics) {
    if *why == NotFollowed::Panicked {
        metrics.engine_panicked();
    }
}
