//! Details of an entry of the ledger, beyond its outcome.
//!
//! The ledger stores a sentence, because users read the rows and rows outlive releases. This module defines all
//! sentences of the engine, each with a code. [`Detail::of`] returns the code of a stored sentence, so that the
//! dashboard can translate it.
//!
//! # Invariants
//! - A sentence has at most one value, at its `{}`.
//! - A released sentence never changes, because stored rows contain it. A new wording needs a new code.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{FiringCause, FiringOutcome};

macro_rules! sentences {
    ($($(#[$doc:meta])* $code:ident = $sentence:literal,)+) => {
        /// Code of the reason why a scheduled time has its outcome.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum DetailCode { $($(#[$doc])* $code,)+ }

        impl DetailCode {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$code,)+];

            /// Returns the sentence, with `{}` in place of the value.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$code => $sentence,)+ }
            }
        }
    };
}

sentences! {
    /// Missed, and the policy catches up no firing.
    Missed = "the policy skips missed firings",
    /// Missed, and the policy catches up only the last firings.
    MissedBeforeLast = "only the last missed firings are caught up",
    /// The policy catches up the newest firings up to a limit, which is the value.
    MissedBeyondLimit = "only the last {} missed firings are caught up",
    /// The policy catches up one firing, the last one.
    MergedIntoLast = "merged into the last missed firing",
    /// Missed before the catch-up window.
    OlderThanCatchUp = "older than the catch-up window",
    /// Missed for longer than the start deadline.
    LaterThanDeadline = "later than the start deadline",
    /// Too many outages were waiting for catch-up.
    TooManyOutages = "dropped, because too many later outages are waiting for catch-up",
    /// Processed after the start deadline, which is the value.
    PastStartDeadline = "more than {} late",
    /// The firing waited past its start deadline.
    WaitedPastDeadline = "the firing waited past its start deadline",
    /// The job was created, but could not start before its start deadline.
    CouldNotStart = "the job could not start before its start deadline",
    /// One run had not ended.
    RunNotEnded = "1 run has not ended",
    /// Several runs had not ended; the value is their number.
    RunsNotEnded = "{} runs have not ended",
    /// Merged into a firing that was already waiting.
    MergedIntoWaiting = "merged into the firing that is already waiting",
    /// Merged into a later firing.
    MergedIntoLater = "merged into a later firing",
    /// The limit of waiting firings was reached; the value is their number.
    BufferFull = "{} firings are already waiting",
    /// The rules of the schedule were replaced.
    RulesReplaced = "the rules were replaced before the firing started",
    /// Engine time was ahead of the clock and was reset: the scheduled time is processed again.
    ClockReset = "the clock was reset before the firing started",
    /// The schedule was deleted.
    ScheduleDeleted = "the schedule was deleted before the firing started",
    /// The schedule completed.
    ScheduleCompleted = "the schedule completed before the firing started",
    /// The schedule was paused; the value is the user and their note.
    Paused = "paused by {}",
    /// The run was created, but could not start before its start deadline.
    RunCouldNotStart = "the run could not start before its start deadline",
    /// The workflow does not exist; the value is its name.
    NoWorkflow = "workflow `{}` does not exist",
    /// The workflow does not accept the parameters, or cannot be started; the value is the reason.
    WorkflowRefused = "the workflow cannot be started: {}",
    /// The limit of waiting runs of the workflow was reached; the value is their number.
    WorkflowFull = "{} runs of the workflow are already waiting",
    /// Skipped by a filter; the value is the filter.
    Excluded = "{}",
    /// Requested by a user; the value is the user and their reason.
    Requested = "{}",
}

impl DetailCode {
    /// Returns the sentence with its value.
    pub fn with(self, value: impl std::fmt::Display) -> String {
        self.sentence().replacen("{}", &value.to_string(), 1)
    }

    /// Returns the value in a sentence of this code: empty if the sentence has no value, `None` if the code is another.
    fn value(self, text: &str) -> Option<&str> {
        match self.sentence().split_once("{}") {
            Some((before, after)) => text.strip_prefix(before)?.strip_suffix(after),
            None => (text == self.sentence()).then_some(""),
        }
    }
}

/// A parsed detail of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detail<'a> {
    /// Code of the sentence.
    pub code: DetailCode,
    /// Value in the sentence, if any.
    pub value: Option<&'a str>,
    /// User who requested the firing, and their reason, if these precede the sentence.
    pub requested_by: Option<&'a str>,
}

impl<'a> Detail<'a> {
    /// Parses the detail of an entry with this outcome and cause; `None` if it is not a sentence of this version.
    pub fn of(outcome: FiringOutcome, cause: FiringCause, text: &'a str) -> Option<Self> {
        let said = |code, value: &'a str| Self {
            code,
            value: Some(value).filter(|value| !value.is_empty()),
            requested_by: None,
        };
        if matches!(outcome, FiringOutcome::SkippedCalendar | FiringOutcome::SkippedWindow) {
            return Some(said(DetailCode::Excluded, text));
        }
        let find = |text: &'a str| {
            let known = DetailCode::ALL.iter().filter(|code| code.sentence() != "{}");
            known.copied().find_map(|code| Some(said(code, code.value(text)?)))
        };
        let asked = matches!(cause, FiringCause::Manual | FiringCause::Backfill);
        if !asked {
            return find(text);
        }
        // The user's text may contain anything, including text that looks like a sentence.
        let found = text
            .rsplit_once("; ")
            .and_then(|(who, what)| find(what).map(|found| Self { requested_by: Some(who), ..found }));
        Some(found.or_else(|| find(text)).unwrap_or_else(|| said(DetailCode::Requested, text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Detail<'_>> {
        Detail::of(FiringOutcome::SkippedPolicy, FiringCause::Timer, text)
    }

    /// Each sentence has one code, whatever the value is.
    #[test]
    fn every_sentence_is_found_again_with_its_value() {
        for &code in DetailCode::ALL.iter().filter(|code| code.sentence() != "{}") {
            let value = code.sentence().contains("{}").then_some("12");
            let text = code.with("12");
            assert_eq!(of(&text), Some(Detail { code, value, requested_by: None }), "{text}");
        }
        assert_eq!(of("a sentence of a later version"), None);
    }

    #[test]
    fn a_detail_separates_the_user_from_the_sentence() {
        let manual = |text| Detail::of(FiringOutcome::SkippedOverlap, FiringCause::Manual, text).unwrap();
        let full = manual("ann: because; really; 3 runs have not ended");
        assert_eq!((full.code, full.value), (DetailCode::RunsNotEnded, Some("3")));
        assert_eq!(full.requested_by, Some("ann: because; really"));
        let alone = manual("ann: because; really");
        assert_eq!((alone.code, alone.value), (DetailCode::Requested, Some("ann: because; really")));
    }

    #[test]
    fn the_value_of_an_excluded_time_is_its_filter() {
        let held = Detail::of(FiringOutcome::SkippedCalendar, FiringCause::Timer, "only[0]: calendar x");
        assert_eq!(
            held.map(|held| (held.code, held.value)),
            Some((DetailCode::Excluded, Some("only[0]: calendar x")))
        );
    }
}
