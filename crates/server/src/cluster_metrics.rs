//! Metrics of a Raft cluster, and of the copies of logs and artifacts.
//!
//! They are read at each scrape. A server without the Raft store has no metrics of a cluster. What only the leader knows about
//! the members has values on the leader only, so the sum over all servers is correct.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use raft::node::{Role, Status};

use crate::services::Services;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MemberLabel {
    member: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    status: &'static str,
}

/// Metrics of the cluster that this server belongs to.
#[derive(Debug, Default)]
pub(crate) struct ClusterMetrics {
    term: Gauge,
    log_entries: Gauge,
    unapplied: Gauge,
    members: Family<StateLabel, Gauge>,
    missing: Family<MemberLabel, Gauge>,
    copy_missing: Family<MemberLabel, Gauge>,
    objects_incomplete: Gauge,
}

impl ClusterMetrics {
    /// Registers what this server has.
    pub(crate) fn register(&self, services: &Services, registry: &mut Registry) {
        if services.objects.copies.is_some() {
            registry.register(
                "objects_incomplete",
                "Whether this server cannot get logs or artifacts that it lacks from another one (1) or not (0)",
                self.objects_incomplete.clone(),
            );
        }
        if services.raft_member.is_none() {
            return;
        }
        registry.register("raft_term", "Term of the newest vote of this server", self.term.clone());
        registry.register(
            "raft_log_entries",
            "Number of the newest entry in the log of this server",
            self.log_entries.clone(),
        );
        registry.register(
            "raft_unapplied_entries",
            "Entries of the log that this server has not applied to its store yet",
            self.unapplied.clone(),
        );
        registry.register(
            "raft_members",
            "Members of the cluster on the leader, by whether their server answers",
            self.members.clone(),
        );
        registry.register(
            "raft_missing_entries",
            "Entries that a member does not have yet, on the leader",
            self.missing.clone(),
        );
        registry.register(
            "raft_copy_missing_bytes",
            "Bytes of a copy of the store that a member does not have yet, on the leader while it sends one",
            self.copy_missing.clone(),
        );
    }

    /// Sets the values of now.
    pub(crate) fn set(&self, services: &Services) {
        let copies = services.objects.copies.as_ref();
        self.objects_incomplete.set(copies.is_some_and(|copies| copies.trouble().is_some()).into());
        if let Some(member) = &services.raft_member {
            self.set_status(&member.store().status());
        }
    }

    fn set_status(&self, status: &Status) {
        let index = |position: Option<raft::types::LogId>| position.map_or(0, |position| position.index);
        let (last, applied) = (index(status.last), index(status.applied));
        self.term.set(clamp(status.term));
        self.log_entries.set(clamp(last));
        self.unapplied.set(clamp(last.saturating_sub(applied)));
        // Members that were removed have no series any more.
        self.missing.clear();
        self.copy_missing.clear();
        let known = if status.role == Role::Leader { status.members.as_slice() } else { &[] };
        for (state, is_running) in [("running", true), ("down", false)] {
            let members = known.iter().filter(|member| member.is_reachable() == is_running).count();
            self.members.get_or_create(&StateLabel { status: state }).set(clamp(members as u64));
        }
        for member in known {
            let label = MemberLabel { member: member.peer.name.clone() };
            // Two members may have the same name while one replaces the other.
            self.missing.get_or_create(&label).inc_by(clamp(member.missing_entries(status)));
            let missing = member.copying.map_or(0, |copy| copy.total.saturating_sub(copy.sent));
            self.copy_missing.get_or_create(&label).inc_by(clamp(missing));
        }
    }
}

fn clamp(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
