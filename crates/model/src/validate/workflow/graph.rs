//! Dependencies between the steps of a workflow.
//!
//! [`Graph`] resolves the names of upstream steps and of steps that add elements. It reports unknown steps, duplicates
//! and cycles, and computes a topological order. Other checks use the sets of steps that have ended when a step starts.
//!
//! # Cost
//! O(n + d) for n steps and d dependencies. The sets of earlier steps take n² bits, and are computed only if an
//! expression refers to a step. At most [`CYCLES_NAMED`] cycles are reported.

use std::collections::BTreeMap;

use super::super::{Check, shown};
use super::path_of;
use crate::limits;
use crate::workflow::{Action, Section, StepSpec, WorkflowSpec};

/// Maximum number of reported cycles.
const CYCLES_NAMED: usize = 10;
/// Maximum number of named steps in one cycle.
const CYCLE_STEPS_NAMED: usize = 20;

/// Steps of a workflow by index, and the dependencies between them.
pub(super) struct Graph<'a> {
    /// First index of each name.
    places: BTreeMap<&'a str, usize>,
    names: Vec<&'a str>,
    sections: Vec<Section>,
    /// Whether each step runs jobs.
    has_tasks: Vec<bool>,
    /// Dependencies of each step, by index; valid ones only.
    needs: Vec<Vec<usize>>,
    /// Steps whose tasks add elements to a step. They may start in any order, but the step ends last.
    adders: BTreeMap<usize, Vec<usize>>,
    /// Topological order of the steps by end; steps on a cycle are left out.
    order: Vec<usize>,
}

impl<'a> Graph<'a> {
    pub(super) fn of(check: &mut Check, spec: &'a WorkflowSpec) -> Self {
        let mut graph = Self {
            places: BTreeMap::new(),
            names: spec.all_steps().map(|(_, step)| step.name.as_str()).collect(),
            sections: spec.all_steps().map(|(section, _)| section).collect(),
            has_tasks: spec.all_steps().map(|(_, step)| matches!(step.action, Action::Job(_))).collect(),
            needs: Vec::new(),
            adders: BTreeMap::new(),
            order: Vec::new(),
        };
        for (place, (section, step)) in spec.all_steps().enumerate() {
            if let Some(first) = graph.places.get(step.name.as_str()) {
                let at = format!("{}.name", path_of(spec, place, section));
                let other = path_of(spec, *first, graph.sections[*first]);
                check.fail(at, format!("`{}` is already the name of {other}", shown(&step.name)));
            } else {
                graph.places.insert(&step.name, place);
            }
        }
        let edges: usize = spec.all_steps().map(|(_, step)| step.needs.len() + step.adders().len()).sum();
        if edges > limits::EDGES_MAX {
            check.fail("steps", format!("has {edges} dependencies: expected at most {}", limits::EDGES_MAX));
            graph.needs = vec![Vec::new(); graph.names.len()];
        } else {
            let mut needed_by = vec![usize::MAX; graph.names.len()];
            for (place, (section, step)) in spec.all_steps().enumerate() {
                let needs = graph.needs_of(check, spec, (place, section, step), &mut needed_by);
                graph.needs.push(needs);
            }
            for (place, (section, step)) in spec.all_steps().enumerate() {
                let adders = graph.adders_of(check, spec, (place, section, step));
                if !adders.is_empty() {
                    graph.adders.insert(place, adders);
                }
            }
        }
        graph.sort();
        graph.name_cycles(check, spec);
        graph
    }

    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    pub(super) fn section(&self, place: usize) -> Section {
        self.sections[place]
    }

    /// `needed_by` contains, for each step, the last step that was seen to depend on it.
    fn needs_of(
        &self,
        check: &mut Check,
        spec: &WorkflowSpec,
        (place, section, step): (usize, Section, &StepSpec),
        needed_by: &mut [usize],
    ) -> Vec<usize> {
        let mut needs = Vec::with_capacity(step.needs.len());
        for (i, need) in step.needs.iter().enumerate() {
            let at = || format!("{}.needs[{i}]", path_of(spec, place, section));
            match self.places.get(need.as_str()) {
                None => check.fail(at(), self.no_step(need)),
                Some(&other) if self.sections[other] != section => check.fail(
                    at(),
                    format!(
                        "`{}` is in `{}`: a step can depend only on steps of its own section",
                        shown(need),
                        self.sections[other].as_str()
                    ),
                ),
                Some(&other) if other == place => {
                    check.fail(at(), format!("`{}` depends on itself", shown(need)));
                }
                Some(&other) if needed_by[other] == place => {
                    check.fail(at(), format!("`{}` is listed twice", shown(need)));
                }
                Some(&other) => {
                    needed_by[other] = place;
                    needs.push(other);
                }
            }
        }
        needs
    }

    fn adders_of(
        &self,
        check: &mut Check,
        spec: &WorkflowSpec,
        (place, section, step): (usize, Section, &StepSpec),
    ) -> Vec<usize> {
        let mut adders = Vec::with_capacity(step.adders().len());
        for (i, adder) in step.adders().iter().enumerate() {
            let at = || format!("{}.for_each.over.added_by[{i}]", path_of(spec, place, section));
            let Some(&other) = self.places.get(adder.as_str()) else {
                check.fail(at(), self.no_step(adder));
                continue;
            };
            let has_tasks = self.has_tasks[other];
            if self.sections[other] != section {
                let other = self.sections[other].as_str();
                check.fail(
                    at(),
                    format!("`{}` is in `{other}`: expected a step of the same section", shown(adder)),
                );
            } else if other == place {
                let message = "is the step itself: its own tasks can always add elements";
                check.fail(at(), format!("`{}` {message}", shown(adder)));
            } else if !has_tasks {
                check.fail(
                    at(),
                    format!(
                        "`{}` has no tasks that can add elements: expected a step with a job",
                        shown(adder)
                    ),
                );
            } else if adders.contains(&other) {
                check.fail(at(), format!("`{}` is listed twice", shown(adder)));
            } else {
                adders.push(other);
            }
        }
        adders
    }

    pub(super) fn no_step(&self, name: &str) -> String {
        let nearest = self.nearest(name);
        let hint = nearest.map(|name| format!(": did you mean `{name}`?")).unwrap_or_default();
        format!("there is no step `{}`{hint}", shown(name))
    }

    /// Returns the steps that must end before this one ends.
    fn ends_after(&self, place: usize) -> impl Iterator<Item = usize> {
        let adders = self.adders.get(&place).into_iter().flatten();
        self.needs[place].iter().chain(adders).copied()
    }

    /// Returns a name with an edit distance of at most 2.
    fn nearest(&self, name: &str) -> Option<&str> {
        let close = |other: &&&str| distance(name, other) <= 2;
        if name.len() > limits::NAME_LEN_MAX {
            None
        } else {
            self.names.iter().take(1_000).find(close).copied()
        }
    }

    fn dependents(&self) -> Vec<Vec<usize>> {
        let mut dependents = vec![Vec::new(); self.needs.len()];
        for place in 0..self.needs.len() {
            for earlier in self.ends_after(place) {
                dependents[earlier].push(place);
            }
        }
        dependents
    }

    fn sort(&mut self) {
        let dependents = self.dependents();
        let mut open: Vec<_> = (0..self.needs.len()).map(|place| self.ends_after(place).count()).collect();
        let mut order: Vec<_> = (0..open.len()).filter(|&place| open[place] == 0).collect();
        let mut next = 0;
        while let Some(&place) = order.get(next) {
            next += 1;
            for &dependent in &dependents[place] {
                open[dependent] -= 1;
                if open[dependent] == 0 {
                    order.push(dependent);
                }
            }
        }
        self.order = order;
    }

    /// A step that is not in the order is on a cycle or depends on one: its dependencies lead into the cycle.
    fn name_cycles(&self, check: &mut Check, spec: &WorkflowSpec) {
        let mut left = vec![true; self.needs.len()];
        for &place in &self.order {
            left[place] = false;
        }
        let mut named = 0;
        for start in 0..left.len() {
            if !left[start] {
                continue;
            }
            let mut walk: Vec<usize> = Vec::new();
            let mut seen_at = BTreeMap::new();
            let mut place = start;
            let cycle = loop {
                if let Some(&from) = seen_at.get(&place) {
                    break &walk[from..];
                }
                seen_at.insert(place, walk.len());
                walk.push(place);
                match self.ends_after(place).find(|&earlier| left[earlier]) {
                    Some(earlier) => place = earlier,
                    None => break &[],
                }
            };
            if !cycle.is_empty() {
                named += 1;
                if named <= CYCLES_NAMED {
                    let first = cycle[0];
                    let at = format!("{}.needs", path_of(spec, first, self.sections[first]));
                    check.fail(at, format!("is part of a dependency cycle: {}", self.cycle_text(cycle)));
                }
            }
            for place in walk {
                left[place] = false;
            }
        }
    }

    fn cycle_text(&self, cycle: &[usize]) -> String {
        let next = cycle.iter().skip(1).chain(cycle.first());
        let mut text: String = cycle
            .iter()
            .zip(next)
            .take(CYCLE_STEPS_NAMED)
            .map(|(&place, next)| {
                let needs = self.needs[place].contains(next);
                let link = if needs { "depends on" } else { "receives elements from" };
                format!("`{}` {link} ", shown(self.names[place]))
            })
            .collect();
        if cycle.len() > CYCLE_STEPS_NAMED {
            text += &format!("{} more steps depend on ", cycle.len() - CYCLE_STEPS_NAMED);
        }
        text + &format!("`{}`", shown(self.names[cycle[0]]))
    }

    /// Returns, for each step, the bit set of the steps that have ended when the step starts.
    pub(super) fn ancestors(&self) -> Vec<Box<[u64]>> {
        let words = self.needs.len().div_ceil(64);
        let none = || vec![0u64; words].into_boxed_slice();
        let mut ancestors = vec![none(); self.needs.len()];
        // Steps that add elements to a step may still run when the step starts, but have ended when it ends.
        let mut ended_with: BTreeMap<usize, Box<[u64]>> = BTreeMap::new();
        for &place in &self.order {
            let mut own = none();
            for &need in &self.needs[place] {
                include(&mut own, need, &ancestors[need]);
                if let Some(more) = ended_with.get(&need) {
                    include(&mut own, need, more);
                }
            }
            if let Some(adders) = self.adders.get(&place) {
                let mut more = none();
                for &adder in adders {
                    include(&mut more, adder, &ancestors[adder]);
                    if let Some(earlier) = ended_with.get(&adder) {
                        include(&mut more, adder, earlier);
                    }
                }
                ended_with.insert(place, more);
            }
            ancestors[place] = own;
        }
        ancestors
    }
}

/// Adds a step and its ancestors to a set.
fn include(set: &mut [u64], place: usize, before: &[u64]) {
    set[place / 64] |= 1 << (place % 64);
    for (word, earlier) in set.iter_mut().zip(before) {
        *word |= earlier;
    }
}

/// Returns the edit distance of two words: the number of letters to insert, delete or replace.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, c) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, d) in b.iter().enumerate() {
            let changed = corner + usize::from(c != *d);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
