//! Slow tasks of a node: it purges the log, lets its machine hurry while it leads, completes interrupted changes of the members,
//! and reports failures.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use openraft::error::Fatal;
use openraft::{ChangeMembers, RaftMetrics, ServerState};
use rustix::fs::statvfs;

use super::Shared;
use crate::log::{Failure, OnFailure};
use crate::machine::{Machine, MachineCopy, MachineError};

/// Maximum wait for openraft to note a snapshot.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(10);

/// A copy that no member has made progress with for this time is given up.
const COPY_PATIENCE: Duration = Duration::from_mins(10);
/// The log takes at most this part of the volume while it keeps what follows a copy.
const VOLUME_PART: u64 = 4;

/// Bytes of the log that stay when it is purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Bytes that always stay, so that a node that was away for a short time needs no snapshot.
    pub bytes: u64,
    /// Bytes that stay for the slowest member.
    pub bytes_max: u64,
    /// Bytes that stay while a member gets a snapshot; it needs next what follows it [default: a quarter of the volume].
    pub bytes_after_copy: Option<u64>,
}

impl Default for Keep {
    /// 256 MiB, and 2 GiB for the slowest member.
    fn default() -> Self {
        Self { bytes: 256 * 1024 * 1024, bytes_max: 2 * 1024 * 1024 * 1024, bytes_after_copy: None }
    }
}

impl Keep {
    /// Returns the bytes that stay while the log keeps what follows a copy.
    fn bytes_after_copy(&self, volume: u64) -> u64 {
        self.bytes_after_copy.unwrap_or_else(|| self.bytes_max.max(volume / VOLUME_PART))
    }
}

/// Returns the size of the volume of a folder in bytes; 0 if it is unknown.
fn volume_bytes(folder: &Path) -> u64 {
    statvfs(folder).map_or(0, |volume| volume.f_blocks.saturating_mul(volume.f_frsize))
}

/// Purges the log from time to time, and gives up copies of the machine that no member needs.
pub(crate) async fn purge_regularly<M: Machine>(shared: Arc<Shared<M>>, keep: Keep) {
    let mut slowest_before = None;
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(shared.timing.purge_interval) => {}
        }
        shared.snapshots.forget_interrupted().await;
        let slowest = shared.slowest();
        // A snapshot that openraft notes must not be newer than a copy that is made or sent.
        if shared.copies.is_making() {
            continue;
        }
        if let Some(copy) = shared.copies.kept() {
            if slowest > slowest_before {
                copy.touch();
            }
            slowest_before = slowest;
            if shared.needs(&copy, keep) {
                continue;
            }
            drop(copy);
            shared.copies.outdate();
        }
        let Some(upto) = shared.purgeable(keep, slowest) else { continue };
        if let Err(error) = shared.purge(upto).await {
            // Reported by the task that watches the machine, if it is an error of it.
            tracing::warn!(%error, "cannot purge the log");
        }
    }
}

impl<M: Machine> Shared<M> {
    /// Returns the last entry that all members have; `None` if this node does not lead, or is alone.
    fn slowest(&self) -> Option<u64> {
        let metrics = self.metrics.borrow();
        let others = metrics.replication.iter().flatten().filter(|(node, _)| **node != self.id);
        others.map(|(_, matched)| matched.map_or(0, |id| id.index)).min()
    }

    /// Returns whether the log must keep what follows a copy.
    fn needs(&self, copy: &Arc<MachineCopy>, keep: Keep) -> bool {
        // One is that of the caller, and one is kept.
        let is_sent = Arc::strong_count(copy) > 2;
        let lags = self
            .slowest()
            .is_some_and(|slowest| self.log.purgeable(keep.bytes).is_some_and(|upto| slowest < upto));
        if !self.is_leader() || !(is_sent || lags) || copy.used_at().elapsed() >= COPY_PATIENCE {
            return false;
        }
        let position = copy.state.applied.map_or(0, |id| id.index);
        let limit = keep.bytes_after_copy(volume_bytes(&self.folder));
        let is_too_much = self.log.purgeable(limit).is_some_and(|upto| upto > position);
        if is_too_much {
            tracing::warn!(
                "the log has outgrown the copy that another server gets, so it will get a newer one: the cluster stores \
                 changes faster than it sends copies. Raise `server.copy_rate`"
            );
        }
        !is_too_much
    }

    /// Returns the last entry that need not stay.
    fn purgeable(&self, keep: Keep, slowest: Option<u64>) -> Option<u64> {
        let upto = self.log.purgeable(keep.bytes)?;
        let needed = upto.min(slowest.unwrap_or(u64::MAX));
        let forced = self.log.purgeable(keep.bytes_max).unwrap_or(0);
        Some(needed.max(forced)).filter(|upto| *upto > 0)
    }

    /// Makes the machine durable, and removes the entries up to `upto` that it contains from the log.
    pub(crate) async fn purge(&self, upto: u64) -> Result<(), MachineError> {
        let durable = self.machine.sync().await?.applied;
        let Some(durable) = durable else { return Ok(()) };
        let stopped = |_: Fatal<_>| MachineError::new("this server has stopped");
        // openraft purges only what it knows to be in a snapshot.
        self.raft.trigger().snapshot().await.map_err(stopped)?;
        let mut metrics = self.metrics.clone();
        let upto = upto.min(durable.index);
        let is_noted = |metrics: &RaftMetrics<_, _>| metrics.snapshot.is_some_and(|id| id.index >= upto);
        let noted = async { metrics.wait_for(is_noted).await.is_ok() };
        if !tokio::time::timeout(SNAPSHOT_PATIENCE, noted).await.unwrap_or(false) {
            return Err(MachineError::new("no snapshot was noted in time"));
        }
        self.raft.trigger().purge_log(upto).await.map_err(stopped)
    }
}

/// Lets the machine of a leader, and of a candidate, apply entries without collecting them: callers wait for its answers.
pub(crate) async fn hurry_while_leading<M: Machine>(shared: Arc<Shared<M>>) {
    let mut servers = shared.servers.clone();
    loop {
        let state = servers.borrow_and_update().state;
        let leads = matches!(state, ServerState::Leader | ServerState::Candidate);
        let _hurry = leads.then(|| shared.progress.hurry());
        tokio::select! {
            () = shared.stop.cancelled() => return,
            changed = servers.changed() => if changed.is_err() { return },
        }
    }
}

/// Completes a change of the members that an earlier leader has begun.
pub(crate) async fn complete_changes<M: Machine>(shared: Arc<Shared<M>>) {
    let mut servers = shared.servers.clone();
    loop {
        let interrupted = {
            let servers = servers.borrow_and_update();
            let configs = servers.membership_config.membership().get_joint_config();
            let leads = servers.state == ServerState::Leader;
            configs.last().filter(|_| leads && configs.len() > 1 && !shared.is_changing()).cloned()
        };
        if let Some(voters) = interrupted {
            tracing::info!(?voters, "completing a change of the members");
            let change = shared.raft.change_membership(ChangeMembers::ReplaceAllVoters(voters), true);
            let changed = shared.stop.run_until_cancelled(change).await;
            if let Some(Err(error)) = changed {
                tracing::warn!(%error, "cannot complete a change of the members");
            }
        }
        tokio::select! {
            () = shared.stop.cancelled() => return,
            changed = servers.changed() => if changed.is_err() { return },
            // Another change may have been under way.
            () = tokio::time::sleep(shared.timing.lease) => {}
        }
    }
}

/// Reports the failure that stops the machine or the core, and stops the node.
pub(crate) async fn watch<M: Machine>(shared: Arc<Shared<M>>, on_failure: OnFailure) {
    let (mut machine, mut metrics) = (shared.progress.stopped(), shared.metrics.clone());
    let failed = tokio::select! {
        () = shared.stop.cancelled() => return,
        error = machine.wait_for(Option::is_some) => {
            let error = error.ok().and_then(|error| error.clone());
            Some(error.map_or_else(|| io::Error::other("it has ended"), io::Error::other))
        }
        ended = metrics.wait_for(|metrics| metrics.running_state.is_err()) => match ended {
            Ok(metrics) => match &metrics.running_state {
                Err(Fatal::Stopped) | Ok(()) => None,
                Err(error) => Some(io::Error::other(error.to_string())),
            },
            Err(_) => Some(io::Error::other("the Raft core has ended")),
        },
    };
    if let Some(source) = failed {
        let failure = Failure { action: "continue with the state in", path: shared.folder.clone(), source };
        on_failure.report(&failure);
    }
    shared.stop.cancel();
    // An error is a panic of the core, which was reported.
    let _ = shared.raft.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * 1024 * 1024;

    #[test]
    fn a_copy_may_hold_the_log_of_a_quarter_of_the_volume() {
        let keep = Keep::default();
        assert_eq!(keep.bytes_after_copy(400 * GIB), 100 * GIB);
        assert_eq!(keep.bytes_after_copy(GIB), 2 * GIB, "what the slowest member may hold always stays");
        assert_eq!(Keep { bytes_after_copy: Some(7), ..keep }.bytes_after_copy(400 * GIB), 7);
    }

    #[test]
    fn the_size_of_a_volume_is_known() {
        let folder = tempfile::tempdir().unwrap();
        assert!(volume_bytes(folder.path()) > 0);
        assert_eq!(volume_bytes(&folder.path().join("missing")), 0);
    }
}
