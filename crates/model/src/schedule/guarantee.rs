//! Guarantees of schedules: one word that sets the overlap policy, the policy for missed firings and the delivery.
//!
//! A guarantee fills in the policies that have their default: a default that is written out cannot be told from an absent
//! one. A policy with another value is kept; if it contradicts the guarantee, [`ScheduleSpec::contradictions`] says so.
//!
//! | guarantee | overlap | missed firings | delivery of the job |
//! |---|---|---|---|
//! | `at_least_once` | `buffer_all`, 1,000 firings | `fire_all`, 10,000 firings | `at_least_once` |
//! | `exactly_once` | `buffer_all`, 1,000 firings | `fire_all`, 10,000 firings | `exactly_once` |
//! | `at_most_once` | `skip` | `fire_once` | `at_most_once` |
//! | `best_effort` | `skip` | `skip` | `at_least_once` |

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Missed, MissedPolicy, Overlap, OverlapPolicy, ScheduleSpec};
use crate::limits;
use crate::spec::{Delivery, FinishAction};

/// How often the job or run of each scheduled time happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// Each scheduled time gets a run, if necessary later. A run may be executed again if its worker is lost.
    AtLeastOnce,
    /// Each scheduled time gets a run, if necessary later. Executions of a run never overlap.
    ExactlyOnce,
    /// No run is started twice. Scheduled times may be skipped, and a run whose worker is lost fails.
    AtMostOnce,
    /// A scheduled time that cannot get its run at once is skipped.
    BestEffort,
}

crate::status::words! { Guarantee, "a guarantee", {
    AtLeastOnce = "at_least_once";
    ExactlyOnce = "exactly_once";
    AtMostOnce = "at_most_once";
    BestEffort = "best_effort";
} }

impl Guarantee {
    /// Whether each scheduled time must get a run.
    const fn loses_no_firing(self) -> bool {
        matches!(self, Self::AtLeastOnce | Self::ExactlyOnce)
    }

    const fn delivery(self) -> Delivery {
        match self {
            Self::AtLeastOnce | Self::BestEffort => Delivery::AtLeastOnce,
            Self::ExactlyOnce => Delivery::ExactlyOnce,
            Self::AtMostOnce => Delivery::AtMostOnce,
        }
    }
}

/// A policy of a schedule that contradicts its guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contradiction {
    /// Guarantee of the schedule.
    pub guarantee: Guarantee,
    /// Path of the policy in the spec.
    pub field: &'static str,
    /// What the policy does, as the end of a sentence.
    pub effect: &'static str,
}

impl ScheduleSpec {
    /// Sets the policies of the guarantee that have their default. Idempotent.
    pub(super) fn fill_guarantee(&mut self) {
        let Some(guarantee) = self.guarantee else { return };
        let (overlap, missed) = (Overlap::default(), Missed::default());
        let set = |policy: &mut u32, default: u32, to: u32| {
            if *policy == default {
                *policy = to;
            }
        };
        if guarantee.loses_no_firing() {
            if self.overlap.policy == overlap.policy {
                self.overlap.policy = OverlapPolicy::BufferAll;
            }
            if self.overlap.policy == OverlapPolicy::BufferAll {
                set(&mut self.overlap.buffer, overlap.buffer, limits::BUFFER_MAX);
            }
            if self.missed.policy == missed.policy {
                self.missed.policy = MissedPolicy::FireAll;
            }
            if self.missed.policy == MissedPolicy::FireAll {
                set(&mut self.missed.limit, missed.limit, limits::MISSED_LIMIT_MAX);
            }
        }
        if guarantee == Guarantee::BestEffort && self.missed.policy == missed.policy {
            self.missed.policy = MissedPolicy::Skip;
        }
        if let Some(job) = self.job_mut().filter(|job| job.delivery == Delivery::default()) {
            job.delivery = guarantee.delivery();
        }
    }

    /// Returns the policies that contradict the guarantee, in the order of the fields.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let Some(guarantee) = self.guarantee else { return Vec::new() };
        let mut found = Vec::new();
        let mut add = |is_wrong: bool, field, effect| {
            if is_wrong {
                found.push(Contradiction { guarantee, field, effect });
            }
        };
        if guarantee.loses_no_firing() {
            let effect = match self.overlap.policy {
                OverlapPolicy::Skip => Some("skips firings while earlier runs have not ended"),
                OverlapPolicy::BufferOne => Some("merges firings that wait"),
                OverlapPolicy::CancelOther | OverlapPolicy::TerminateOther => {
                    Some("ends the runs of earlier firings")
                }
                OverlapPolicy::BufferAll | OverlapPolicy::AllowAll => None,
            };
            add(effect.is_some(), "overlap.policy", effect.unwrap_or_default());
            let all = self.missed.policy == MissedPolicy::FireAll;
            add(!all, "missed.policy", "does not catch up all missed firings");
            let buffers = self.overlap.policy == OverlapPolicy::BufferAll;
            let is_short = buffers && self.overlap.buffer < limits::BUFFER_MAX;
            add(is_short, "overlap.buffer", "skips firings when more are waiting");
            let is_short = all && self.missed.limit < limits::MISSED_LIMIT_MAX;
            add(is_short, "missed.limit", "skips the oldest firings of a long outage");
            add(self.start_deadline.is_some(), "start_deadline", "skips firings that cannot start in time");
            let pauses = self.pause_after_failures.is_some();
            add(
                pauses,
                "pause_after_failures",
                "skips the firings of the time in which the schedule is paused",
            );
        }
        if guarantee == Guarantee::BestEffort {
            let waits = matches!(self.overlap.policy, OverlapPolicy::BufferOne | OverlapPolicy::BufferAll);
            add(waits, "overlap.policy", "makes firings wait for earlier runs");
            let catches_up = self.missed.policy != MissedPolicy::Skip;
            add(catches_up, "missed.policy", "catches up missed firings");
        }
        let ends =
            self.job().and_then(|job| job.finish_by).is_some_and(|by| by.action != FinishAction::Report);
        let ends = ends && guarantee.loses_no_firing();
        add(ends, "job.finish_by", "ends jobs that have not ended in time, also before their start");
        let effect = match (guarantee, self.job().map(|job| job.delivery)) {
            (Guarantee::AtLeastOnce | Guarantee::ExactlyOnce, Some(Delivery::AtMostOnce)) => {
                Some("does not start a job again after its worker was lost")
            }
            (Guarantee::ExactlyOnce, Some(Delivery::AtLeastOnce)) => Some("allows two executions to overlap"),
            (Guarantee::AtMostOnce, Some(Delivery::AtLeastOnce | Delivery::ExactlyOnce)) => {
                Some("starts a job again after its worker was lost")
            }
            _ => None,
        };
        add(effect.is_some(), "job.delivery", effect.unwrap_or_default());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::JobSpec;
    use crate::timing::Timing;

    fn filled(guarantee: Guarantee, change: impl FnOnce(&mut ScheduleSpec)) -> ScheduleSpec {
        let mut spec = ScheduleSpec::new("nightly", Timing::default(), JobSpec::command(["true"]));
        spec.guarantee = Some(guarantee);
        change(&mut spec);
        spec.fill();
        spec
    }

    #[test]
    fn a_guarantee_sets_all_policies_and_contradicts_none_of_them() {
        let lines: String = Guarantee::ALL
            .iter()
            .map(|&guarantee| {
                let spec = filled(guarantee, |_| {});
                assert_eq!(spec.contradictions(), []);
                let mut again = spec.clone();
                again.fill();
                assert_eq!(again, spec);
                let ScheduleSpec { overlap, missed, .. } = &spec;
                let delivery = spec.job().unwrap().delivery;
                format!(
                    "{guarantee}: {:?} {}, {:?} {}, {delivery:?}\n",
                    overlap.policy, overlap.buffer, missed.policy, missed.limit
                )
            })
            .collect();
        insta::assert_snapshot!(lines, @r"
        at_least_once: BufferAll 1000, FireAll 10000, AtLeastOnce
        exactly_once: BufferAll 1000, FireAll 10000, ExactlyOnce
        at_most_once: Skip 100, FireOnce 1000, AtMostOnce
        best_effort: Skip 100, Skip 1000, AtLeastOnce
        ");
    }

    /// A stored spec has the policies of its guarantee, so a changed guarantee meets those of the old one.
    #[test]
    fn policies_of_another_guarantee_are_reported() {
        let mut spec = filled(Guarantee::AtLeastOnce, |_| {});
        spec.guarantee = Some(Guarantee::BestEffort);
        spec.fill();
        let fields: Vec<_> = spec.contradictions().iter().map(|found| found.field).collect();
        assert_eq!(fields, ["overlap.policy", "missed.policy"]);
    }

    #[test]
    fn policies_that_are_set_are_kept_and_reported() {
        let spec = filled(Guarantee::ExactlyOnce, |spec| {
            spec.overlap.policy = OverlapPolicy::CancelOther;
            spec.missed.policy = MissedPolicy::Skip;
            spec.start_deadline = Some(crate::Duration::from_secs(60));
            spec.pause_after_failures = Some(3);
            spec.job_mut().unwrap().delivery = Delivery::AtMostOnce;
        });
        assert_eq!(spec.overlap.policy, OverlapPolicy::CancelOther);
        let fields: Vec<_> = spec.contradictions().iter().map(|found| found.field).collect();
        let all =
            ["overlap.policy", "missed.policy", "start_deadline", "pause_after_failures", "job.delivery"];
        assert_eq!(fields, all);
        let spec =
            filled(Guarantee::AtMostOnce, |spec| spec.job_mut().unwrap().delivery = Delivery::ExactlyOnce);
        assert_eq!(spec.contradictions().len(), 1);
    }
}
