//! Join rules: when a step goes, by how the steps that it needs ended.
//!
//! The names and their meanings are those of Airflow's trigger rules. A need ends in one of four ways:
//! `succeeded`, `failed`, `upstream_failed` (it never began because something before it failed) or
//! `skipped`. A rule is asked whenever a need ends, and may answer before the others did.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// When a step goes, by how the steps that it needs ended.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum JoinRule {
    /// All succeeded.
    #[default]
    AllSuccess,
    /// All failed, by themselves or because of something before them.
    AllFailed,
    /// All ended, however.
    AllDone,
    /// All ended, and at least one succeeded.
    AllDoneMinOneSuccess,
    /// All were skipped.
    AllSkipped,
    /// At least one failed; does not wait for the others.
    OneFailed,
    /// At least one succeeded; does not wait for the others.
    OneSuccess,
    /// At least one succeeded or failed; does not wait for the others.
    OneDone,
    /// All succeeded or were skipped.
    NoneFailed,
    /// All succeeded or were skipped, and at least one succeeded.
    NoneFailedMinOneSuccess,
    /// None was skipped.
    NoneSkipped,
    /// At once, whatever it needs.
    Always,
}

impl JoinRule {
    /// All of them.
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

/// How the needs of a step ended so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct NeedCounts {
    pub needs: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub upstream_failed: u32,
    pub skipped: u32,
}

/// What a join rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It depends on needs that have not ended.
    Wait,
    /// The step goes.
    Go,
    /// The step is skipped.
    Skip,
    /// The step never begins, because of a failure before it.
    UpstreamFailed,
}

impl JoinRule {
    /// What the rule says about these counts. Once it says something else than [`Verdict::Wait`], it says
    /// the same however the other needs end, except for the rules that go for the first of several
    /// reasons; the first answer counts.
    pub fn verdict(self, counts: NeedCounts) -> Verdict {
        use Verdict::{Go, Skip, UpstreamFailed, Wait};
        let NeedCounts { needs, succeeded, failed, upstream_failed, skipped } = counts;
        let bad = failed + upstream_failed;
        let all_done = succeeded + bad + skipped >= needs;
        if needs == 0 {
            return Go;
        }
        match self {
            Self::Always => Go,
            Self::AllSuccess if bad > 0 => UpstreamFailed,
            Self::AllSuccess if skipped > 0 => Skip,
            Self::AllFailed if succeeded + skipped > 0 => Skip,
            Self::AllSkipped if succeeded + bad > 0 => Skip,
            Self::OneFailed if bad > 0 => Go,
            Self::OneSuccess if succeeded > 0 => Go,
            Self::OneDone if succeeded + failed > 0 => Go,
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
            _ => Go,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(ends: &str, needs: usize) -> NeedCounts {
        let count = |c: char| u32::try_from(ends.matches(c).count()).unwrap();
        NeedCounts {
            needs: u32::try_from(needs).unwrap(),
            succeeded: count('s'),
            failed: count('f'),
            upstream_failed: count('u'),
            skipped: count('k'),
        }
    }

    /// C2. One line a rule, one column for each way in which two needs can stand: s succeeded, f failed,
    /// u upstream_failed, k skipped, - not ended.
    #[test]
    fn each_rule_says_what_airflow_says() {
        let cases =
            ["--", "s-", "f-", "u-", "k-", "ss", "sf", "su", "sk", "ff", "fu", "fk", "uu", "uk", "kk"];
        let mut table = format!("{:28}{}\n", "", cases.join("  "));
        for rule in JoinRule::ALL {
            let name = serde_json::to_value(rule).unwrap();
            table.push_str(&format!("{:28}", name.as_str().unwrap()));
            for case in cases {
                let word = match rule.verdict(counts(case, 2)) {
                    Verdict::Wait => ".",
                    Verdict::Go => "go",
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
    fn a_step_that_needs_nothing_goes_by_every_rule() {
        assert!(JoinRule::ALL.iter().all(|rule| rule.verdict(NeedCounts::default()) == Verdict::Go));
    }

    #[test]
    fn once_all_needs_ended_no_rule_waits() {
        for rule in JoinRule::ALL {
            for ends in ["s", "f", "u", "k", "sfuk", "kk", "ssk", "uf"] {
                assert_ne!(rule.verdict(counts(ends, ends.len())), Verdict::Wait, "{rule:?} {ends}");
            }
        }
    }
}
