//! Which replicas of a service are created and which are stopped: a pure function over the replicas.
//!
//! The rules are those of a rolling update, and they hold for every stop that Belfry decides:
//!
//! - A replica is *leaving* if its worker is drained. A leaving replica is replaced like one of an older revision.
//! - At most `desired + max_surge` replicas are live, so replacements may start first.
//! - A healthy replica is stopped only if `desired − max_unavailable` others stay available. A replica that is not healthy
//!   can always be stopped, so a broken revision never blocks its own replacement.
//!
//! # Cost
//! O(n log n) in the replicas of the service.

use model::JobId;

/// A live replica, as the plan needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) job: JobId,
    /// Whether it has the current revision.
    pub(super) is_updated: bool,
    /// Whether its worker is being drained.
    pub(super) is_leaving: bool,
    /// Whether it is healthy.
    pub(super) is_healthy: bool,
    /// Whether it has been healthy for the required time.
    pub(super) is_available: bool,
}

/// How the replicas of older revisions are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// They are replaced by replicas of the current revision.
    Replace,
    /// They stay, beside this number of replicas of the current revision.
    Canaries(u32),
    /// They stay, and so do the replicas of the current revision. Missing replicas get the stable revision.
    Hold,
}

/// Numbers that a plan must satisfy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    /// Desired number of replicas.
    pub(super) desired: u32,
    pub(super) max_surge: u32,
    pub(super) max_unavailable: u32,
    pub(super) mode: Mode,
}

impl Target {
    /// Returns the smallest number of available replicas that Belfry leaves when it stops replicas.
    pub(super) fn min_available(&self) -> u32 {
        self.desired.saturating_sub(self.max_unavailable)
    }
}

/// Replicas to create and to stop.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Plan {
    /// Number of replicas of the current revision to create.
    pub(super) create_updated: u32,
    /// Number of replicas of the stable revision to create.
    pub(super) create_stable: u32,
    /// Replicas to stop.
    pub(super) stop: Vec<JobId>,
}

fn count(instances: &[Instance], is: impl Fn(&Instance) -> bool) -> u32 {
    u32::try_from(instances.iter().filter(|instance| is(instance)).count()).unwrap_or(u32::MAX)
}

/// Returns the number of replicas that are leaving.
pub(super) fn count_leaving(live: &[Instance]) -> u32 {
    count(live, |one| one.is_leaving)
}

/// Returns the next step towards the target. Once nothing changes, a repeated call returns an empty plan.
pub(super) fn plan(target: Target, live: &[Instance]) -> Plan {
    let Target { desired, max_surge, mode, .. } = target;
    let updated = count(live, |one| one.is_updated && !one.is_leaving);
    let older = count(live, |one| !one.is_updated && !one.is_leaving);
    let (want_updated, want_older, extra) = match mode {
        Mode::Replace => (desired, 0, max_surge),
        Mode::Canaries(canaries) => {
            let canaries = canaries.min(desired);
            (canaries, desired, max_surge.max(canaries))
        }
        Mode::Hold => {
            let kept_older = older.min(desired);
            let kept_updated = updated.min(desired.saturating_add(max_surge) - kept_older);
            let missing = desired.saturating_sub(kept_older.saturating_add(kept_updated));
            (kept_updated, kept_older + missing, max_surge)
        }
    };
    let stop = stops(target, live, want_updated, want_older);
    let limit = desired.saturating_add(extra);
    let stopped = u32::try_from(stop.len()).unwrap_or(u32::MAX);
    let room = limit.saturating_sub(count(live, |_| true).saturating_sub(stopped));
    let create_updated = want_updated.saturating_sub(updated).min(room);
    let create_stable = want_older.saturating_sub(older).min(room - create_updated);
    Plan { create_updated, create_stable, stop }
}

/// Returns the replicas to stop: first those that are not healthy, then healthy ones as far as enough stay available.
fn stops(target: Target, live: &[Instance], want_updated: u32, want_older: u32) -> Vec<JobId> {
    let mut unneeded: Vec<Instance> = live.iter().copied().filter(|one| one.is_leaving).collect();
    for (is_updated, wanted) in [(true, want_updated), (false, want_older)] {
        let mut staying: Vec<Instance> =
            live.iter().copied().filter(|one| !one.is_leaving && one.is_updated == is_updated).collect();
        // The available ones stay, and among them the oldest: they have proved themselves.
        staying.sort_by_key(|one| (!one.is_available, !one.is_healthy, one.job));
        unneeded.extend(staying.into_iter().skip(usize::try_from(wanted).unwrap_or(usize::MAX)));
    }
    unneeded.sort_by_key(|one| (one.is_healthy, one.is_available, one.is_updated, one.job));
    let available = count(live, |one| one.is_available);
    let are_enough = available >= target.min_available();
    let mut spare = available.saturating_sub(target.min_available());
    let mut stop = Vec::new();
    for one in unneeded {
        if one.is_available {
            if spare == 0 {
                break;
            }
            spare -= 1;
        } else if one.is_healthy && !are_enough {
            continue;
        }
        stop.push(one.job);
    }
    stop
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn instance(number: u128, is_updated: bool, is_available: bool) -> Instance {
        Instance {
            job: JobId::from_bits(number),
            is_updated,
            is_leaving: false,
            is_healthy: is_available,
            is_available,
        }
    }

    fn target(desired: u32, max_surge: u32, max_unavailable: u32) -> Target {
        Target { desired, max_surge, max_unavailable, mode: Mode::Replace }
    }

    fn jobs(numbers: &[u128]) -> Vec<JobId> {
        numbers.iter().copied().map(JobId::from_bits).collect()
    }

    #[test]
    fn a_new_service_starts_all_replicas() {
        let found = plan(target(3, 1, 0), &[]);
        assert_eq!(found, Plan { create_updated: 3, ..Plan::default() });
    }

    #[test]
    fn an_update_starts_a_replacement_before_it_stops_a_replica() {
        let mut live: Vec<_> = (1..=3).map(|n| instance(n, false, true)).collect();
        assert_eq!(plan(target(3, 1, 0), &live), Plan { create_updated: 1, ..Plan::default() });
        live.push(instance(4, true, false));
        assert_eq!(plan(target(3, 1, 0), &live), Plan::default());
        (live[3].is_healthy, live[3].is_available) = (true, true);
        let found = plan(target(3, 1, 0), &live);
        assert_eq!(found, Plan { create_updated: 1, stop: jobs(&[1]), ..Plan::default() });
    }

    #[test]
    fn without_a_surge_a_replica_is_stopped_first() {
        let live: Vec<_> = (1..=2).map(|n| instance(n, false, true)).collect();
        let found = plan(target(2, 0, 1), &live);
        assert_eq!(found, Plan { create_updated: 1, stop: jobs(&[1]), ..Plan::default() });
    }

    #[test]
    fn replicas_of_a_broken_revision_are_replaced_at_once() {
        let live: Vec<_> = (1..=3).map(|n| instance(n, false, false)).collect();
        let found = plan(target(3, 1, 0), &live);
        assert_eq!(found, Plan { create_updated: 3, stop: jobs(&[1, 2, 3]), ..Plan::default() });
    }

    #[test]
    fn healthy_replicas_stay_while_too_few_are_available() {
        let mut live: Vec<_> = (1..=3).map(|n| instance(n, false, true)).collect();
        live.iter_mut().for_each(|one| one.is_available = false);
        assert_eq!(plan(target(3, 1, 0), &live), Plan { create_updated: 1, ..Plan::default() });
    }

    #[test]
    fn a_leaving_replica_is_stopped_after_its_replacement_is_available() {
        let mut live: Vec<_> = (1..=2).map(|n| instance(n, true, true)).collect();
        live[0].is_leaving = true;
        assert_eq!(plan(target(2, 1, 0), &live), Plan { create_updated: 1, ..Plan::default() });
        live.push(instance(3, true, true));
        assert_eq!(plan(target(2, 1, 0), &live), Plan { stop: jobs(&[1]), ..Plan::default() });
    }

    #[test]
    fn canaries_are_started_beside_the_others() {
        let mut live: Vec<_> = (1..=3).map(|n| instance(n, false, true)).collect();
        let canaries = Target { mode: Mode::Canaries(2), ..target(3, 0, 1) };
        assert_eq!(plan(canaries, &live), Plan { create_updated: 2, ..Plan::default() });
        live.extend([instance(4, true, true), instance(5, true, true)]);
        assert_eq!(plan(canaries, &live), Plan::default());
    }

    #[test]
    fn a_held_rollout_replaces_missing_replicas_with_the_stable_revision() {
        let live = [instance(1, false, true), instance(2, true, true)];
        let held = Target { mode: Mode::Hold, ..target(3, 1, 0) };
        assert_eq!(plan(held, &live), Plan { create_stable: 1, ..Plan::default() });
    }

    fn instances() -> impl Strategy<Value = Vec<Instance>> {
        proptest::collection::vec((any::<bool>(), any::<bool>(), 0..3_u8), 0..12).prop_map(|all| {
            let numbered = all.into_iter().zip(1..);
            let one = |((is_updated, is_leaving, health), number)| Instance {
                job: JobId::from_bits(number),
                is_updated,
                is_leaving,
                is_healthy: health > 0,
                is_available: health > 1,
            };
            numbered.map(one).collect()
        })
    }

    fn targets() -> impl Strategy<Value = Target> {
        let mode = prop_oneof![Just(Mode::Replace), (1..5u32).prop_map(Mode::Canaries), Just(Mode::Hold)];
        (0..6u32, 0..3u32, 0..3u32, mode)
            .prop_filter("a replica can be replaced", |(_, surge, unavailable, _)| surge + unavailable > 0)
            .prop_map(|(desired, max_surge, max_unavailable, mode)| Target {
                desired,
                max_surge,
                max_unavailable,
                mode,
            })
    }

    proptest! {
        /// No plan stops an available replica if too few stay available, and none exceeds the surge.
        #[test]
        fn limits_hold_for_every_plan(target in targets(), live in instances()) {
            let found = plan(target, &live);
            let stays = |one: &&Instance| !found.stop.contains(&one.job);
            let before = live.iter().filter(|one| one.is_available).count();
            let after = live.iter().filter(stays).filter(|one| one.is_available).count();
            prop_assert!(after == before || after >= target.min_available() as usize);
            let created = (found.create_updated + found.create_stable) as usize;
            let extra = match target.mode {
                Mode::Canaries(canaries) => target.max_surge.max(canaries.min(target.desired)),
                _ => target.max_surge,
            };
            let total = live.iter().filter(stays).count() + created;
            prop_assert!(created == 0 || total <= (target.desired + extra) as usize);
        }

        /// Whatever the replicas are: if new replicas become available, the plans end with the desired replicas.
        #[test]
        fn plans_converge(target in targets(), mut live in instances()) {
            let mut number = 100;
            for _ in 0..60 {
                let found = plan(target, &live);
                if found == Plan::default() && live.iter().all(|one| one.is_available) {
                    break;
                }
                live.retain(|one| !found.stop.contains(&one.job));
                live.iter_mut().for_each(|one| (one.is_healthy, one.is_available) = (true, true));
                let new = [(true, found.create_updated), (false, found.create_stable)];
                for (is_updated, created) in new {
                    for _ in 0..created {
                        number += 1;
                        live.push(instance(number, is_updated, false));
                    }
                }
            }
            prop_assert_eq!(plan(target, &live), Plan::default());
            prop_assert!(live.iter().all(|one| !one.is_leaving || target.desired == 0));
            let desired = target.desired as usize;
            let updated = live.iter().filter(|one| one.is_updated).count();
            match target.mode {
                Mode::Replace => prop_assert!(updated == desired && live.len() == desired),
                Mode::Canaries(canaries) => {
                    let canaries = (canaries as usize).min(desired);
                    prop_assert!(updated == canaries && live.len() == desired + canaries);
                }
                Mode::Hold => {
                    let surge = target.max_surge as usize;
                    prop_assert!((desired..=desired + surge).contains(&live.len()));
                }
            }
        }
    }
}
