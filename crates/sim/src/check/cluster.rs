//! Checks of the cluster as a whole: nothing is stuck, one owner, memory equals rows.

use model::Duration;

use super::facts::Facts;
use super::{Findings, Invariant};
use crate::history::What;

/// Maximum time in addition to its lease for which a shard may have no owner.
const GAP_SLACK: Duration = Duration::from_secs(2);

pub(super) fn check(facts: &Facts<'_>, findings: &mut Findings) {
    stuck(facts, findings);
    if facts.exact() {
        ownerless(facts, findings);
    }
}

/// I28, and I26 as cores check it themselves, from this event on.
pub(super) fn rebuilds(facts: &Facts<'_>, from: usize, findings: &mut Findings) {
    for (index, event) in facts.history.events.iter().enumerate().skip(from) {
        match &event.what {
            What::Rebuilt { server, difference: Some(difference) } => {
                findings.add(Invariant::I28, format!("server {server}"), difference, [index]);
            }
            What::Inconsistent { server, what } => {
                findings.add(Invariant::I26, format!("server {server}"), what, [index]);
            }
            _ => {}
        }
    }
}

/// I26: after the faults, everything ends.
fn stuck(facts: &Facts<'_>, findings: &mut Findings) {
    if facts.calm.is_none() || facts.end.is_none() {
        return;
    }
    for (id, job) in &facts.jobs {
        if let Some((at, row)) = job.rows.last().filter(|(_, row)| !row.status.is_final()) {
            findings.add(Invariant::I26, id, format!("still {} at the end", row.status), [*at]);
        }
    }
}

/// I27: after the faults, no shard is without an owner for long.
fn ownerless(facts: &Facts<'_>, findings: &mut Findings) {
    let (Some((calm, since)), Some((end, _))) = (facts.calm, facts.end) else { return };
    let most = facts.history.setup.shard_lease + GAP_SLACK;
    let mut covered = (calm, since);
    for (index, _, _, until) in &facts.owned {
        let at = facts.at(*index);
        if at > since && at.since(covered.1) > most {
            let message = format!("no server owned the shards for {}", at.since(covered.1));
            findings.add(Invariant::I27, "every shard", message, [covered.0, *index]);
        }
        if *until > covered.1 {
            covered = (*index, *until);
        }
    }
    let gap = facts.at(end).since(covered.1);
    if gap > most {
        let message = format!("no server owned the shards for {gap}");
        findings.add(Invariant::I27, "every shard", message, [covered.0, end]);
    }
}
