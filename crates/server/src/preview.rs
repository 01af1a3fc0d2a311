//! Preview of a timing: its next firings, its description in words, and warnings.
//!
//! A pure function of the timing and its context. The API previews schedules and drafts; the command line previews
//! drafts without a server.
//!
//! # Cost
//! A preview compiles the timing and steps through its firings. Warnings compile it once more for each rule.

use jiff::civil::Date;
use model::Timestamp;
use model::api::{Preview, PreviewFiring, TimingDescription, Warning};
use model::timing::{Filter, Rule, Timing};
use model::validate::Problem;
use timetable::{CalendarMap, Calendars as _, Language, Next, Timetable, Zones, describe};

/// Context in which a timing is evaluated.
#[derive(Debug, Clone)]
pub struct TimingContext<'a> {
    /// Time zone database.
    pub zones: &'a Zones,
    /// Calendars of the namespace; includes the built-in ones.
    pub calendars: &'a CalendarMap,
    /// Seed of `H` and `~` in rules: the [`seed`] of the schedule.
    pub seed: u64,
}

/// Returns the seed of `H` and `~` in the rules of a schedule; drafts use an empty name.
pub fn seed(namespace: &str, name: &str) -> u64 {
    engine::timetable_seed(namespace, name)
}

/// Returns the next `n` firings strictly after `after`.
///
/// # Errors
/// All problems of the timing, with paths relative to it.
pub fn preview(
    timing: &Timing,
    reading: &TimingContext<'_>,
    after: Timestamp,
    n: usize,
) -> Result<Preview, Vec<Problem>> {
    let timetable = Timetable::compile(timing, reading.seed, reading.zones, reading.calendars)?;
    let firings: Vec<_> = timetable.preview(after, n).into_iter().map(shown).collect();
    let description = TimingDescription {
        en: describe(timing, Language::English),
        zh_cn: describe(timing, Language::Chinese),
    };
    let mut warnings = idle_warnings(timing, &timetable, reading, after);
    warnings.extend(calendars_that_end(timing, reading, firings.last()));
    if timetable.delay().is_some() {
        warnings.push(Warning::fixed_delay());
    }
    Ok(Preview {
        firings,
        description,
        warnings,
        zone: timing.zone.clone(),
        tzdb: reading.zones.version().to_string(),
    })
}

/// Returns warnings for the author of a timing: the timing, or one of its rules, never fires after `now`.
///
/// Empty for a timing that cannot be compiled; [`preview`] reports its problems.
pub fn warnings(timing: &Timing, reading: &TimingContext<'_>, now: Timestamp) -> Vec<Warning> {
    let timetable = Timetable::compile(timing, reading.seed, reading.zones, reading.calendars);
    timetable.map(|timetable| idle_warnings(timing, &timetable, reading, now)).unwrap_or_default()
}

/// Warns that a timing, or one of its rules, never fires.
fn idle_warnings(
    timing: &Timing,
    timetable: &Timetable,
    reading: &TimingContext<'_>,
    after: Timestamp,
) -> Vec<Warning> {
    match timetable.next(after) {
        Next::At(_) => rules_that_never_fire(timing, reading, after),
        _ => explain_no_firing(timing, timetable, reading, after).into_iter().collect(),
    }
}

/// Warns of rules that add nothing to a timing that fires. Single times in the past are ignored: they often remain in
/// files after their use.
fn rules_that_never_fire(timing: &Timing, reading: &TimingContext<'_>, after: Timestamp) -> Vec<Warning> {
    if timing.rules.len() < 2 {
        return Vec::new();
    }
    let never = |rule: &Rule| {
        let alone = Timing {
            rules: vec![rule.clone()],
            zone: timing.zone.clone(),
            dst: timing.dst,
            ..Timing::default()
        };
        let alone = Timetable::compile(&alone, reading.seed, reading.zones, reading.calendars);
        alone.is_ok_and(|alone| alone.delay().is_none() && alone.next(after) == Next::Never)
    };
    let rules = timing.rules.iter().enumerate().filter(|(_, rule)| !matches!(rule, Rule::At(_)));
    rules.filter(|(_, rule)| never(rule)).map(|(i, _)| Warning::rule_never_fires(i)).collect()
}

fn shown(firing: timetable::Firing) -> PreviewFiring {
    let day = firing.clock_change.then_some("clock_change");
    let adjustments = firing.marks.iter().map(|mark| mark.as_str()).chain(day).map(str::to_owned).collect();
    PreviewFiring { at: firing.at, local: firing.local, rules: firing.rules, adjustments }
}

/// Returns why a timing with rules has no firing.
fn explain_no_firing(
    timing: &Timing,
    timetable: &Timetable,
    reading: &TimingContext<'_>,
    after: Timestamp,
) -> Option<Warning> {
    if timing.rules.is_empty() || timetable.delay().is_some() {
        return None;
    }
    if let Some(end) = timing.end.filter(|&end| end <= after) {
        return Some(Warning::end_passed(end));
    }
    if let Next::NotUntil(until) = timetable.next(after) {
        return Some(Warning::no_firing_before(until));
    }
    let bare = Timing { only: Vec::new(), exclude: Vec::new(), ..timing.clone() };
    let bare = Timetable::compile(&bare, reading.seed, reading.zones, reading.calendars).ok();
    let held = bare.is_some_and(|bare| matches!(bare.next(after), Next::At(_)));
    let first = timetable.step(after).and_then(|step| step.held).map(|held| held.filter);
    Some(match (held, only_past(timing)) {
        (true, _) => Warning::always_excluded(first.as_deref()),
        (false, true) => Warning::time_passed(),
        (false, false) => Warning::never_fires(),
    })
}

fn only_past(timing: &Timing) -> bool {
    timing.rules.iter().all(|rule| matches!(rule, Rule::At(_)))
}

/// Warns of calendars whose published years end before the last of these firings.
fn calendars_that_end(
    timing: &Timing,
    reading: &TimingContext<'_>,
    last: Option<&PreviewFiring>,
) -> Vec<Warning> {
    let Some(day) = last.and_then(|firing| firing.local.get(..10)?.parse::<Date>().ok()) else {
        return Vec::new();
    };
    let mut names: Vec<_> = calendars(timing).collect();
    names.sort_unstable();
    names.dedup();
    let beyond = |name: &str| reading.calendars.days(name)?.known_until().filter(|until| *until < day);
    let warning = |name: &str| Some(Warning::calendar_ends(name, beyond(name)?));
    names.into_iter().filter_map(warning).collect()
}

/// Returns the names of the calendars that a timing uses.
fn calendars(timing: &Timing) -> impl Iterator<Item = &str> {
    let filters = timing.only.iter().chain(&timing.exclude).filter_map(|filter| match filter {
        Filter::Calendar(name) => Some(name.as_str()),
        _ => None,
    });
    filters.chain(timing.roll.as_ref().map(|roll| roll.calendar.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn warnings(timing: Value) -> Vec<String> {
        let timing: Timing = serde_json::from_value(timing).unwrap();
        let (zones, calendars) = (Zones::bundled(), CalendarMap::default());
        let reading = TimingContext { zones: &zones, calendars: &calendars, seed: 1 };
        let now = "2026-11-21T08:00:00Z".parse().unwrap();
        let warnings = preview(&timing, &reading, now, 3).unwrap().warnings;
        warnings.into_iter().map(|warning| warning.message).collect()
    }

    /// B1, B5. The warning names the rule that can never fire.
    #[test]
    fn a_timing_that_never_fires_has_a_warning() {
        assert_eq!(warnings(json!({"rules": [{"cron": "0 2 * * *"}]})), Vec::<String>::new());
        assert_eq!(warnings(json!({})), Vec::<String>::new(), "on demand is intentional");
        let all: Vec<_> = [
            json!({"rules": [{"cron": "0 0 30 2 *"}]}),
            json!({"rules": [{"at": "2020-01-01T00:00:00Z"}]}),
            json!({"rules": [{"cron": "0 2 * * *"}], "end": "2020-01-01T00:00:00Z"}),
            json!({"rules": [{"cron": "0 2 * * mon"}], "only": [{"weekdays": ["tuesday"]}]}),
            json!({"rules": [{"cron": "0 2 1 1 *"}], "exclude": [{"calendar": "belfry.cn-holidays"}]}),
            json!({"rules": [{"after": "10m"}]}),
            json!({"rules": [{"cron": "0 2 * * *"}, {"cron": "0 0 31 2 *"}, {"at": "2020-01-01T00:00:00Z"}]}),
        ]
        .into_iter()
        .flat_map(warnings)
        .collect();
        insta::assert_snapshot!(all.join("\n"));
    }
}
