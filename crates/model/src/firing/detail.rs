//! What the fire ledger says about an instant besides its outcome.
//!
//! The ledger keeps a sentence, because rows outlive programs and people read them. The sentences that
//! the engine writes stand here and nowhere else, each with a code, so that [`Detail::of`] finds the code
//! of a kept sentence again and a page can word it in another language.
//!
//! # Always true
//! - A sentence has at most one value in it, at its `{}`.
//! - A released sentence is never changed: rows that have it exist. A new wording is a new line.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{FiringCause, FiringOutcome};

macro_rules! sentences {
    ($($(#[$doc:meta])* $code:ident = $sentence:literal,)+) => {
        /// Why an instant has its outcome.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum DetailCode { $($(#[$doc])* $code,)+ }

        impl DetailCode {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$code,)+];

            /// Its sentence, with `{}` where its value belongs.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$code => $sentence,)+ }
            }
        }
    };
}

sentences! {
    /// The policy for missed instants makes up for none.
    Missed = "missed",
    /// The policy makes up for the last ones only.
    MissedBeforeLast = "missed before the last ones",
    /// The policy makes up for the newest ones up to a limit, which is the value.
    MissedBeyondLimit = "only the last {} missed firings are made up for",
    /// The policy makes up for one, the last.
    LastStands = "the last missed firing stands for it",
    /// It was missed too long ago to be made up for.
    OlderThanCatchUp = "older than the catch-up window",
    /// It was missed for longer than its starting deadline.
    LaterThanDeadline = "later than the starting deadline",
    /// Too many outages were to be made up for.
    LaterOutages = "later outages left more to be made up for",
    /// It was decided after its starting deadline, which is the value.
    MoreThanLate = "more than {} late",
    /// It waited for its turn past its starting deadline.
    WaitedPastDeadline = "it waited past its starting deadline",
    /// Its job was created, and could not start before its starting deadline.
    CouldNotStart = "its job could not start before its starting deadline",
    /// One run was not over.
    RunNotOver = "1 run is not over",
    /// Several runs were not over; the value is how many.
    RunsNotOver = "{} runs are not over",
    /// A firing waited already, and stands for it.
    WaitingStands = "the one that waits stands for it",
    /// A later firing stands for it.
    LaterStands = "a later firing stands for it",
    /// As many firings waited as may; the value is how many.
    BufferFull = "{} firings wait already",
    /// The rules of its schedule were replaced.
    RulesReplaced = "the rules were replaced before its turn",
    /// Engine time was ahead of the clock, and was reset: its instant is decided anew.
    ClockReset = "the clock was reset before its turn",
    /// Its schedule was deleted.
    ScheduleDeleted = "the schedule was deleted before its turn",
    /// Its schedule completed.
    ScheduleCompleted = "the schedule completed before its turn",
    /// Its schedule was paused; the value is by whom, and their note.
    Paused = "paused by {}",
    /// Its run was created, and did not get its turn before its starting deadline.
    TurnDidNotCome = "its turn did not come before its starting deadline",
    /// Its workflow is not there; the value is its name.
    NoWorkflow = "there is no workflow `{}`",
    /// Its workflow does not take the parameters, or cannot be run; the value is why.
    WorkflowRefused = "its workflow cannot be started: {}",
    /// Runs of its workflow wait for their turn, as many as may; the value is how many.
    WorkflowFull = "{} runs of its workflow wait already",
    /// A filter holds it; the value is which.
    Held = "{}",
    /// Somebody asked for it; the value is who, and their reason.
    Asked = "{}",
}

impl DetailCode {
    /// The sentence with its value.
    pub fn with(self, value: impl std::fmt::Display) -> String {
        self.sentence().replacen("{}", &value.to_string(), 1)
    }

    /// The value in a sentence of this code; empty where it has none, `None` if it is another's.
    fn value(self, text: &str) -> Option<&str> {
        match self.sentence().split_once("{}") {
            Some((before, after)) => text.strip_prefix(before)?.strip_suffix(after),
            None => (text == self.sentence()).then_some(""),
        }
    }
}

/// A detail of the ledger, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detail<'a> {
    /// What it says.
    pub code: DetailCode,
    /// The value in it, if it has one.
    pub value: Option<&'a str>,
    /// Who asked for the firing, and why, where that stands before it.
    pub asked_by: Option<&'a str>,
}

impl<'a> Detail<'a> {
    /// What a line with this outcome and cause says; `None` if it is no sentence of this program.
    pub fn of(outcome: FiringOutcome, cause: FiringCause, text: &'a str) -> Option<Self> {
        let said = |code, value: &'a str| Self {
            code,
            value: Some(value).filter(|value| !value.is_empty()),
            asked_by: None,
        };
        if matches!(outcome, FiringOutcome::SkippedCalendar | FiringOutcome::SkippedWindow) {
            return Some(said(DetailCode::Held, text));
        }
        let find = |text: &'a str| {
            let known = DetailCode::ALL.iter().filter(|code| code.sentence() != "{}");
            known.copied().find_map(|code| Some(said(code, code.value(text)?)))
        };
        let asked = matches!(cause, FiringCause::Manual | FiringCause::Backfill);
        if !asked {
            return find(text);
        }
        // Their own words may have anything in them, also what looks like an end.
        let found = text
            .rsplit_once("; ")
            .and_then(|(who, what)| find(what).map(|found| Self { asked_by: Some(who), ..found }));
        Some(found.or_else(|| find(text)).unwrap_or_else(|| said(DetailCode::Asked, text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Detail<'_>> {
        Detail::of(FiringOutcome::SkippedPolicy, FiringCause::Timer, text)
    }

    /// Codes are told apart, whatever the value is.
    #[test]
    fn every_sentence_is_found_again_with_its_value() {
        for &code in DetailCode::ALL.iter().filter(|code| code.sentence() != "{}") {
            let value = code.sentence().contains("{}").then_some("12");
            let text = code.with("12");
            assert_eq!(of(&text), Some(Detail { code, value, asked_by: None }), "{text}");
        }
        assert_eq!(of("a sentence of a later version"), None);
    }

    #[test]
    fn who_asked_is_told_apart_from_what_became_of_it() {
        let manual = |text| Detail::of(FiringOutcome::SkippedOverlap, FiringCause::Manual, text).unwrap();
        let full = manual("ann: because; really; 3 runs are not over");
        assert_eq!((full.code, full.value), (DetailCode::RunsNotOver, Some("3")));
        assert_eq!(full.asked_by, Some("ann: because; really"));
        let alone = manual("ann: because; really");
        assert_eq!((alone.code, alone.value), (DetailCode::Asked, Some("ann: because; really")));
    }

    #[test]
    fn what_a_filter_is_called_is_its_value() {
        let held = Detail::of(FiringOutcome::SkippedCalendar, FiringCause::Timer, "only[0]: calendar x");
        assert_eq!(
            held.map(|held| (held.code, held.value)),
            Some((DetailCode::Held, Some("only[0]: calendar x")))
        );
    }
}
