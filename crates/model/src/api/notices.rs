//! What somebody should know, as a code with values for programs and as a sentence for people.
//!
//! A page in another language words the code, and falls back on the sentence where it does not know it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::firing::{Detail, DetailCode, FiringCause, FiringOutcome};
use crate::time::Timestamp;

/// Something about a schedule that somebody should know before they rely on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Warning {
    /// What it is about.
    pub code: WarningCode,
    /// The values in it, by name: those that the code tells.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
    /// The same in English.
    pub message: String,
}

/// What a warning is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WarningCode {
    /// No instant satisfies its rules.
    NeverFires,
    /// One of its rules adds nothing; `rule` is its place.
    RuleNeverFires,
    /// Its end has passed; `end` is when.
    EndPassed,
    /// All of its times have passed.
    TimePassed,
    /// Its filters hold every instant; `filter` is the one that holds the first, where that is known.
    AlwaysHeld,
    /// It does not fire until `until`, and further was not searched.
    NotUntil,
    /// Some firings lie behind the last year that a calendar is known for; `calendar`, `until`.
    CalendarEnds,
    /// The firings of a fixed delay are not known ahead.
    FixedDelay,
    /// It has fired as often as it may.
    Spent,
    /// It is paused.
    Paused,
    /// A parameter of a workflow is used by nothing; `parameter`.
    UnusedParameter,
    /// A step waits for an event, maybe forever; `path`.
    WaitsForever,
    /// There is no such workflow as it is to start, or as it listens to; `workflow` is its name.
    NoWorkflow,
    /// A workflow starts itself again, directly or through others; `path`.
    StartsItself,
}

impl Warning {
    /// No instant satisfies its rules.
    pub fn never_fires() -> Self {
        Self::of(WarningCode::NeverFires, [], "it never fires: no instant satisfies its rules")
    }

    /// Rule number `rule`, from 0, adds nothing.
    pub fn rule_never_fires(rule: usize) -> Self {
        let message = format!("rules[{rule}] never fires: no instant satisfies it");
        Self::of(WarningCode::RuleNeverFires, [("rule", &rule)], message)
    }

    /// Its end has passed.
    pub fn end_passed(end: Timestamp) -> Self {
        let message = format!("it never fires: its end ({end}) has passed");
        Self::of(WarningCode::EndPassed, [("end", &end)], message)
    }

    /// All of its times have passed.
    pub fn time_passed() -> Self {
        Self::of(WarningCode::TimePassed, [], "it never fires: its time has passed")
    }

    /// Its filters hold every instant; `first` names the one that holds the first.
    pub fn always_held(first: Option<&str>) -> Self {
        let message = "it never fires: its filters hold every instant of its rules";
        match first {
            None => Self::of(WarningCode::AlwaysHeld, [], message),
            Some(filter) => {
                let message = format!("{message}, the first by {filter}");
                Self::of(WarningCode::AlwaysHeld, [("filter", &filter)], message)
            }
        }
    }

    /// What is likely not what the author of a workflow meant, at this path of its spec.
    pub fn of_workflow(path: &str, message: &str) -> Self {
        let whole = format!("{} {message}", path.strip_suffix(".timeout").unwrap_or(path));
        if path.starts_with("triggers[") {
            return Self::of(WarningCode::StartsItself, [("path", &path)], whole);
        }
        match path.strip_prefix("parameters.") {
            Some(name) => Self::of(WarningCode::UnusedParameter, [("parameter", &name)], whole),
            None => Self::of(WarningCode::WaitsForever, [("path", &path)], whole),
        }
    }

    /// Nothing was found until then.
    pub fn not_until(until: Timestamp) -> Self {
        let message = format!("it does not fire until {until}; further was not searched");
        Self::of(WarningCode::NotUntil, [("until", &until)], message)
    }

    /// Some firings lie behind the last day that a calendar is known for.
    pub fn calendar_ends(calendar: &str, until: jiff::civil::Date) -> Self {
        let message =
            format!("calendar `{calendar}` is known until {until}: later holidays are not published yet");
        Self::of(
            WarningCode::CalendarEnds,
            [("calendar", &calendar as &dyn fmt::Display), ("until", &until)],
            message,
        )
    }

    /// The firings of a fixed delay are not known ahead.
    pub fn fixed_delay() -> Self {
        let message = "the firings of a fixed delay are not known ahead: each is counted from the end of the run before";
        Self::of(WarningCode::FixedDelay, [], message)
    }

    /// It has fired as often as it may.
    pub fn spent() -> Self {
        Self::of(WarningCode::Spent, [], "it has fired as often as `max_firings` lets it")
    }

    /// It is paused.
    pub fn paused() -> Self {
        let message = "it is paused: its firings are skipped until it is resumed";
        Self::of(WarningCode::Paused, [], message)
    }

    /// There is no such workflow as it is to start.
    pub fn no_workflow(name: &str) -> Self {
        let message = format!("there is no workflow `{name}`: until there is, its firings start nothing");
        Self::of(WarningCode::NoWorkflow, [("workflow", &name)], message)
    }

    /// There is no such workflow as a trigger listens to.
    pub fn nobody_to_listen_to(path: &str, name: &str) -> Self {
        let message =
            format!("{path}: there is no workflow `{name}` yet: until there is, nothing of it ends");
        Self::of(WarningCode::NoWorkflow, [("workflow", &name)], message)
    }

    /// Workflows start each other in a circle; `chain` is that of their names.
    pub fn starts_itself(path: &str, chain: &[String]) -> Self {
        let (told, most) = (chain.join("`, which starts `"), crate::limits::TRIGGER_CHAIN_MAX);
        let message = format!("{path} is a circle: `{told}`; it ends after {most} runs in a row");
        let chain = chain.join(" → ");
        Self::of(
            WarningCode::StartsItself,
            [("path", &path as &dyn fmt::Display), ("chain", &chain)],
            message,
        )
    }

    fn of<const N: usize>(
        code: WarningCode,
        params: [(&str, &dyn fmt::Display); N],
        message: impl Into<String>,
    ) -> Self {
        let params = params.map(|(name, value)| (name.to_owned(), value.to_string()));
        Self { code, params: params.into(), message: message.into() }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What the detail of a line of the fire ledger says, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerReason {
    /// What it says.
    pub code: DetailCode,
    /// The value in it: how many, how late, which filter, or who.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Who asked for the firing, and what they said about it, where something else became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<String>,
}

impl LedgerReason {
    /// From the detail of a line; `None` if it has none of the known forms.
    pub fn of(outcome: FiringOutcome, cause: FiringCause, detail: &str) -> Option<Self> {
        let Detail { code, value, asked_by } = Detail::of(outcome, cause, detail)?;
        Some(Self { code, value: value.map(str::to_owned), asked_by: asked_by.map(str::to_owned) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_has_its_values_apart_from_its_sentence() {
        let until = jiff::civil::date(2026, 12, 31);
        let shown = serde_json::to_value(Warning::calendar_ends("belfry.cn-holidays", until)).unwrap();
        assert_eq!(shown["code"], "calendar_ends");
        assert_eq!(
            shown["params"],
            serde_json::json!({"calendar": "belfry.cn-holidays", "until": "2026-12-31"})
        );
        assert!(serde_json::to_value(Warning::paused()).unwrap().get("params").is_none());
    }
}
