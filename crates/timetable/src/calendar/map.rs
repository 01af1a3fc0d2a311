//! Compiled calendars of one namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::calendar::CalendarSpec;
use model::validate::Problem;

use super::compile::{problem, references};
use super::{Calendars, DaySet};

/// Compiled calendars of one namespace, by name. Lookups also find the built-in calendars.
#[derive(Debug, Default, Clone)]
pub struct CalendarMap {
    days: BTreeMap<String, Arc<DaySet>>,
}

impl Calendars for CalendarMap {
    fn days(&self, name: &str) -> Option<Arc<DaySet>> {
        self.days.days(name)
    }

    fn names(&self) -> Vec<String> {
        self.days.names()
    }
}

impl CalendarMap {
    /// Compiles calendars in the order of their references; the order of `specs` does not matter.
    ///
    /// Omits invalid calendars and those that refer to them, and returns their problems by name. A compiled calendar
    /// keeps the earlier version of a calendar that it refers to. So compile all calendars again after a change.
    pub fn compile<'a>(
        specs: impl IntoIterator<Item = &'a CalendarSpec>,
    ) -> (Self, BTreeMap<String, Vec<Problem>>) {
        let mut waiting: BTreeMap<&str, &CalendarSpec> =
            specs.into_iter().map(|spec| (spec.name.as_str(), spec)).collect();
        let order = topological_order(&waiting);
        let (mut map, mut wrong) = (Self::default(), BTreeMap::new());
        for spec in order.iter().filter_map(|name| waiting.remove(name)) {
            match broken_reference(spec, &wrong).map_or_else(|| DaySet::compile(spec, &map), Err) {
                Ok(days) => map.insert(days),
                Err(problems) => {
                    wrong.insert(spec.name.clone(), problems);
                }
            }
        }
        for (name, spec) in &waiting {
            wrong.insert((*name).to_owned(), cycle_problem(spec, &waiting));
        }
        (map, wrong)
    }

    /// Adds a calendar, or replaces the one with its name. Calendars that refer to it keep the earlier version.
    pub fn insert(&mut self, days: DaySet) {
        self.days.insert(days.name().to_owned(), Arc::new(days));
    }

    /// Removes a calendar. Calendars that refer to it keep it.
    pub fn remove(&mut self, name: &str) -> Option<Arc<DaySet>> {
        self.days.remove(name)
    }

    /// Returns the calendars with their names, sorted by name, without the built-in ones.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<DaySet>)> {
        self.days.iter().map(|(name, days)| (name.as_str(), days))
    }
}

/// Returns the names in an order in which each follows those that it refers to. Omits cycles, and calendars that refer
/// to a cycle.
fn topological_order<'a>(specs: &BTreeMap<&'a str, &'a CalendarSpec>) -> Vec<&'a str> {
    let mut needed_by: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut needs: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, spec) in specs {
        let named: BTreeSet<&str> =
            references(spec).map(|(_, _, other)| other).filter(|other| specs.contains_key(other)).collect();
        needs.insert(name, named.len());
        for other in named {
            needed_by.entry(other).or_default().push(name);
        }
    }
    let mut order: Vec<&str> = specs.keys().copied().filter(|name| needs[name] == 0).collect();
    let mut next = 0;
    while let Some(name) = order.get(next) {
        next += 1;
        for dependent in needed_by.get(name).into_iter().flatten() {
            if let Some(open) = needs.get_mut(dependent) {
                *open -= 1;
                if *open == 0 {
                    order.push(dependent);
                }
            }
        }
    }
    order
}

fn broken_reference(spec: &CalendarSpec, wrong: &BTreeMap<String, Vec<Problem>>) -> Option<Vec<Problem>> {
    let problems: Vec<Problem> = references(spec)
        .filter(|(_, _, name)| wrong.contains_key(*name))
        .map(|(index, word, name)| {
            problem(
                format!("steps[{index}].{word}.calendar"),
                format!("calendar `{name}` is invalid: correct it first"),
            )
        })
        .collect();
    (!problems.is_empty()).then_some(problems)
}

/// Returns the problem of a calendar in `circle`: follows the references until a name repeats.
fn cycle_problem(spec: &CalendarSpec, circle: &BTreeMap<&str, &CalendarSpec>) -> Vec<Problem> {
    let first = |spec: &CalendarSpec| {
        references(spec)
            .find(|(_, _, name)| circle.contains_key(name))
            .map(|(index, word, name)| (format!("steps[{index}].{word}.calendar"), name.to_owned()))
    };
    let mut way = vec![spec.name.clone()];
    let mut at = String::from("steps");
    let mut here = spec;
    while let Some((path, name)) = first(here) {
        if way.len() == 1 {
            at = path;
        }
        let again = way.contains(&name);
        way.push(name.clone());
        match circle.get(name.as_str()) {
            Some(next) if !again => here = next,
            _ => break,
        }
    }
    vec![problem(at, format!("the references between calendars have a cycle: {}", way.join(" → ")))]
}
