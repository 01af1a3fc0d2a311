//! Join rules: whether a step starts, by the statuses of its upstream steps.
//!
//! Names and meanings are those of the trigger rules of Airflow. An upstream step ends as `succeeded`, `failed`,
//! `skipped` or `upstream_failed`; the last means that it never started because of an earlier failure. A rule is
//! evaluated whenever an upstream step ends, and may decide before the others have ended.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Join rule of a step: statuses of the upstream steps with which the step starts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum JoinRule {
    /// All upstream steps succeeded.
    #[default]
    AllSuccess,
    /// All upstream steps failed, or did not start because of an earlier failure.
    AllFailed,
    /// All upstream steps ended, with any status.
    AllDone,
    /// All upstream steps ended, and at least one succeeded.
    AllDoneMinOneSuccess,
    /// All upstream steps were skipped.
    AllSkipped,
    /// At least one upstream step failed, or did not start because of an earlier failure; the step does not wait for
    /// the others.
    OneFailed,
    /// At least one upstream step succeeded; the step does not wait for the others.
    OneSuccess,
    /// At least one upstream step succeeded or failed; the step does not wait for the others.
    OneDone,
    /// All upstream steps succeeded or were skipped.
    NoneFailed,
    /// All upstream steps succeeded or were skipped, and at least one succeeded.
    NoneFailedMinOneSuccess,
    /// All upstream steps ended, and none was skipped.
    NoneSkipped,
    /// The step starts at once, without waiting for upstream steps.
    Always,
}

impl JoinRule {
    /// All join rules.
    pub const ALL: [Self; 12] = [
        Self::AllSuccess,
        Self::AllFailed,
        Self::AllDone,
        Self::AllDoneMinOneSuccess,
        Self::AllSkipped,
        Self::OneFailed,
        Self::OneSuccess,
        Self::OneDone,
        Self::NoneFailed,
        Self::NoneFailedMinOneSuccess,
        Self::NoneSkipped,
        Self::Always,
    ];
}

/// Numbers of upstream steps of a step, by status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct UpstreamCounts {
    pub needs: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub upstream_failed: u32,
    pub skipped: u32,
}

/// Decision of a join rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Undecided: the decision depends on upstream steps that have not ended.
    Wait,
    /// The step starts.
    Start,
    /// The step is skipped.
    Skip,
    /// The step never starts, because of an earlier failure.
    UpstreamFailed,
}

impl JoinRule {
    /// Returns the decision of the rule for these numbers.
    ///
    /// A decision other than [`Verdict::Wait`] is final for most rules, with any status of the remaining upstream
    /// steps. For rules with several possible reasons, the first decision counts.
    pub fn verdict(self, counts: UpstreamCounts) -> Verdict {
        use Verdict::{Skip, Start, UpstreamFailed, Wait};
        let UpstreamCounts { needs, succeeded, failed, upstream_failed, skipped } = counts;
        let bad = failed + upstream_failed;
        let all_done = succeeded + bad + skipped >= needs;
        if needs == 0 {
            return Start;
        }
        match self {
            Self::Always => Start,
            Self::AllSuccess if bad > 0 => UpstreamFailed,
            Self::AllSuccess if skipped > 0 => Skip,
            Self::AllFailed if succeeded + skipped > 0 => Skip,
            Self::AllSkipped if succeeded + bad > 0 => Skip,
            Self::OneFailed if bad > 0 => Start,
            Self::OneSuccess if succeeded > 0 => Start,
            Self::OneDone if succeeded + failed > 0 => Start,
            Self::NoneFailed | Self::NoneFailedMinOneSuccess if bad > 0 => UpstreamFailed,
            Self::NoneSkipped if skipped > 0 => Skip,
            _ if !all_done => Wait,
            Self::OneFailed | Self::OneDone => Skip,
            Self::AllDoneMinOneSuccess | Self::OneSuccess | Self::NoneFailedMinOneSuccess
                if succeeded == 0 =>
            {
                if bad > 0 {
                    UpstreamFailed
                } else {
                    Skip
                }
            }
            _ => Start,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(ends: &str, needs: usize) -> UpstreamCounts {
        let count = |c: char| u32::try_from(ends.matches(c).count()).unwrap();
        UpstreamCounts {
            needs: u32::try_from(needs).unwrap(),
            succeeded: count('s'),
            failed: count('f'),
            upstream_failed: count('u'),
            skipped: count('k'),
        }
    }

    /// C2. One line for each rule, one column for each pair of statuses of two upstream steps: s succeeded, f failed,
    /// u upstream_failed, k skipped, - not ended.
    #[test]
    fn each_join_rule_decides_as_in_airflow() {
        let cases =
            ["--", "s-", "f-", "u-", "k-", "ss", "sf", "su", "sk", "ff", "fu", "fk", "uu", "uk", "kk"];
        let mut table = format!("{:28}{}\n", "", cases.join("  "));
        for rule in JoinRule::ALL {
            let name = serde_json::to_value(rule).unwrap();
            table.push_str(&format!("{:28}", name.as_str().unwrap()));
            for case in cases {
                let word = match rule.verdict(counts(case, 2)) {
                    Verdict::Wait => ".",
                    Verdict::Start => "go",
                    Verdict::Skip => "sk",
                    Verdict::UpstreamFailed => "uf",
                };
                table.push_str(&format!("{word:4}"));
            }
            table = table.trim_end().to_owned() + "\n";
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn a_step_without_dependencies_starts_with_every_rule() {
        assert!(JoinRule::ALL.iter().all(|rule| rule.verdict(UpstreamCounts::default()) == Verdict::Start));
    }

    #[test]
    fn every_rule_decides_when_all_upstream_steps_have_ended() {
        for rule in JoinRule::ALL {
            for ends in ["s", "f", "u", "k", "sfuk", "kk", "ssk", "uf"] {
                assert_ne!(rule.verdict(counts(ends, ends.len())), Verdict::Wait, "{rule:?} {ends}");
            }
        }
    }
}
