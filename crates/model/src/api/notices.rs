//! Warnings about schedules and workflows, and reasons in the ledger.
//!
//! Each has a stable code with parameters for programs, and an English sentence for people. A client in another
//! language translates the code, and shows the sentence if it does not know the code.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::firing::{Detail, DetailCode, FiringCause, FiringOutcome};
use crate::schedule::Contradiction;
use crate::time::Timestamp;

/// Warning about a schedule or workflow that is valid but probably not what its author intended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Warning {
    /// Stable code of the warning.
    pub code: WarningCode,
    /// Parameters of the warning by name. The description of each code lists its parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
    /// Warning as an English sentence.
    pub message: String,
}

/// Code of a warning, with its parameters in parentheses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WarningCode {
    /// The schedule never fires: no time matches its rules.
    NeverFires,
    /// A rule of the schedule never fires (`rule`: its index, from 0).
    RuleNeverFires,
    /// The schedule never fires: its end has passed (`end`).
    EndPassed,
    /// The schedule never fires: all its times have passed.
    TimePassed,
    /// The schedule never fires: its filters exclude every firing (`filter`: the one that excludes the first, if
    /// known).
    AlwaysExcluded,
    /// The schedule does not fire before a time (`until`); later times were not searched.
    NoFiringBefore,
    /// Some firings are after the last day for which a calendar has data (`calendar`, `until`).
    CalendarEnds,
    /// Firings cannot be predicted, because the schedule has a fixed delay.
    FixedDelay,
    /// The schedule has reached its limit of firings.
    MaxFiringsReached,
    /// The schedule is paused.
    Paused,
    /// A parameter of the workflow is not used (`parameter`).
    UnusedParameter,
    /// A step waits for an event without a timeout (`path`).
    WaitsForever,
    /// The workflow that the schedule or trigger refers to does not exist (`workflow`: its name).
    NoWorkflow,
    /// A workflow triggers itself, directly or through other workflows (`path`).
    StartsItself,
    /// A policy of the schedule contradicts its guarantee (`guarantee`, `field`).
    ContradictsGuarantee,
}

impl Warning {
    /// Returns a warning that a policy of the schedule contradicts its guarantee.
    pub fn contradicts_guarantee(found: &Contradiction) -> Self {
        let Contradiction { guarantee, field, effect } = found;
        Self::of(
            WarningCode::ContradictsGuarantee,
            [("guarantee", guarantee), ("field", field)],
            format!("`{field}` contradicts the guarantee `{guarantee}`: it {effect}"),
        )
    }

    /// Returns a warning that no time matches the rules of the schedule.
    pub fn never_fires() -> Self {
        Self::of(WarningCode::NeverFires, [], "the schedule never fires: no time matches its rules")
    }

    /// Returns a warning that the rule with index `rule`, from 0, never fires.
    pub fn rule_never_fires(rule: usize) -> Self {
        let message = format!("rules[{rule}] never fires: no time matches it");
        Self::of(WarningCode::RuleNeverFires, [("rule", &rule)], message)
    }

    /// Returns a warning that the end of the schedule has passed.
    pub fn end_passed(end: Timestamp) -> Self {
        let message = format!("the schedule never fires: its end ({end}) has passed");
        Self::of(WarningCode::EndPassed, [("end", &end)], message)
    }

    /// Returns a warning that all times of the schedule have passed.
    pub fn time_passed() -> Self {
        Self::of(WarningCode::TimePassed, [], "the schedule never fires: its time has passed")
    }

    /// Returns a warning that the filters exclude every firing; `first` is the filter that excludes the first one.
    pub fn always_excluded(first: Option<&str>) -> Self {
        let message = "the schedule never fires: its filters exclude every firing";
        match first {
            None => Self::of(WarningCode::AlwaysExcluded, [], message),
            Some(filter) => {
                let message = format!("{message}; the first is excluded by `{filter}`");
                Self::of(WarningCode::AlwaysExcluded, [("filter", &filter)], message)
            }
        }
    }

    /// Returns a warning of the check of a workflow, found at `path` of its spec.
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

    /// Returns a warning that the search found no firing before `until`.
    pub fn no_firing_before(until: Timestamp) -> Self {
        let message = format!("the schedule does not fire before {until}; later times were not searched");
        Self::of(WarningCode::NoFiringBefore, [("until", &until)], message)
    }

    /// Returns a warning that some firings are after the last day for which a calendar has data.
    pub fn calendar_ends(calendar: &str, until: jiff::civil::Date) -> Self {
        let message =
            format!("calendar `{calendar}` has data until {until}: later holidays are not published yet");
        Self::of(
            WarningCode::CalendarEnds,
            [("calendar", &calendar as &dyn fmt::Display), ("until", &until)],
            message,
        )
    }

    /// Returns a warning that the firings of a fixed delay cannot be predicted.
    pub fn fixed_delay() -> Self {
        let message =
            "cannot predict the firings of a fixed delay: the delay starts when the previous run ends";
        Self::of(WarningCode::FixedDelay, [], message)
    }

    /// Returns a warning that the schedule has reached its limit of firings.
    pub fn max_firings_reached() -> Self {
        Self::of(
            WarningCode::MaxFiringsReached,
            [],
            "the schedule has reached its limit of firings (`max_firings`)",
        )
    }

    /// Returns a warning that the schedule is paused.
    pub fn paused() -> Self {
        let message = "the schedule is paused: its firings are skipped until you resume it";
        Self::of(WarningCode::Paused, [], message)
    }

    /// Returns a warning that the workflow of the schedule does not exist.
    pub fn no_workflow(name: &str) -> Self {
        let message = format!("workflow `{name}` does not exist: firings start no run until you create it");
        Self::of(WarningCode::NoWorkflow, [("workflow", &name)], message)
    }

    /// Returns a warning that the workflow of the trigger at `path` does not exist.
    pub fn nobody_to_listen_to(path: &str, name: &str) -> Self {
        let message = format!(
            "{path}: workflow `{name}` does not exist yet: this trigger starts no run until you create it"
        );
        Self::of(WarningCode::NoWorkflow, [("workflow", &name)], message)
    }

    /// Returns a warning that workflows trigger each other in a cycle; `chain` lists their names.
    pub fn starts_itself(path: &str, chain: &[String]) -> Self {
        let (told, most) = (chain.join("`, which starts `"), crate::limits::TRIGGER_CHAIN_MAX);
        let message = format!("{path} closes a trigger cycle: `{told}`; the chain stops after {most} runs");
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

/// Detail of a ledger entry in a machine-readable form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerReason {
    /// Stable code of the detail.
    pub code: DetailCode,
    /// Value in the detail: a number, a delay, a filter or a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// User who requested the firing, with their reason. Present only if the firing had another outcome than
    /// requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
}

impl LedgerReason {
    /// Parses the detail of a ledger entry. Returns `None` if the detail has no known form.
    pub fn of(outcome: FiringOutcome, cause: FiringCause, detail: &str) -> Option<Self> {
        let Detail { code, value, requested_by } = Detail::of(outcome, cause, detail)?;
        Some(Self { code, value: value.map(str::to_owned), requested_by: requested_by.map(str::to_owned) })
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
