//! Producers: the steps that may store an artifact before a step reads it.
//!
//! A step reads artifacts of the steps that have ended when it starts: its direct and indirect dependencies,
//! and all steps of earlier sections.
//!
//! # Cost
//! One bit for each pair of steps (12 MB for 10,000 steps), only if a step reads an artifact that another may
//! store. Building it takes one pass over the edges, each of which merges two rows of bits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::workflow::template::{Template, has_reference};
use model::workflow::{Action, Definition, Section};

use super::plan::{StepAction, StepPlan, index};

const BITS: usize = u64::BITS as usize;

/// Steps of a definition that may store artifacts, and the dependencies between all steps.
#[derive(Debug, Default)]
pub(super) struct Producers {
    /// Steps that store an artifact with a fixed name.
    named: BTreeMap<Box<str>, Vec<u32>>,
    /// Steps that may store artifacts with other names: calls, and jobs whose artifact names have references.
    others: Vec<(u32, Arc<Outputs>)>,
    /// One row of bits for each step: its direct and indirect dependencies.
    needed: Vec<u64>,
    sections: Vec<Section>,
}

/// Artifacts that a call, or a job whose artifact names have references, may store.
#[derive(Debug, Default)]
struct Outputs {
    /// Names in the definition of a called workflow.
    names: BTreeSet<Box<str>>,
    /// Names with references.
    templates: Vec<Template>,
}

impl Outputs {
    fn add(&mut self, artifact: &str) {
        if self.names.insert(artifact.into()) {
            self.templates.extend(template(artifact));
        }
    }

    /// Returns the artifacts that the steps of a called workflow, and of the workflows that it calls, may
    /// store.
    fn of_called(definition: &Definition, name: &str) -> Self {
        let mut outputs = Self::default();
        let Some(Definition { workflow, calls }) = definition.called(name) else { return outputs };
        let steps = calls.values().chain([&workflow]).flat_map(|spec| spec.all_steps());
        for (_, step) in steps {
            let Action::Job(job) = &step.action else { continue };
            job.outputs.iter().for_each(|output| outputs.add(&output.artifact));
        }
        outputs
    }

    fn may_have(&self, artifact: &str) -> bool {
        self.names.contains(artifact) || self.templates.iter().any(|template| template.can_render(artifact))
    }
}

/// Returns the name of an artifact as a template, if it has references.
pub(super) fn template(artifact: &str) -> Option<Template> {
    has_reference(artifact).then(|| Template::parse(artifact).ok()).flatten()
}

impl Producers {
    pub(super) fn of(nodes: &[StepPlan], definition: &Definition) -> Self {
        let reads = |node: &StepPlan| match &node.act {
            StepAction::Job(job) => job.reads_newest,
            StepAction::Call(_) => true,
            _ => false,
        };
        if !nodes.iter().any(reads) {
            return Self::default();
        }
        let (mut named, mut others) = (BTreeMap::<Box<str>, Vec<u32>>::new(), Vec::new());
        let mut called = BTreeMap::<&str, Arc<Outputs>>::new();
        for (step, node) in (0..).zip(nodes) {
            match &node.act {
                StepAction::Call(call) => {
                    let outputs = called
                        .entry(&call.name)
                        .or_insert_with(|| Arc::new(Outputs::of_called(definition, &call.name)));
                    others.push((step, Arc::clone(outputs)));
                }
                StepAction::Job(job) => {
                    let mut templated = Outputs::default();
                    for output in &job.template.spec().outputs {
                        match template(&output.artifact) {
                            Some(template) => templated.templates.push(template),
                            None => named.entry(output.artifact.as_str().into()).or_default().push(step),
                        }
                    }
                    if !templated.templates.is_empty() {
                        others.push((step, Arc::new(templated)));
                    }
                }
                _ => {}
            }
        }
        if named.is_empty() && others.is_empty() {
            return Self::default();
        }
        let sections = nodes.iter().map(|node| node.section).collect();
        Self { named, others, needed: needed(nodes), sections }
    }

    /// Returns the steps before `step` that may have stored an artifact of this name; a step may occur twice.
    pub(super) fn before(&self, step: u32, artifact: &str) -> impl Iterator<Item = u32> {
        let others = self.others.iter().map(|(producer, _)| *producer);
        self.storing(step, artifact).chain(others.filter(move |&producer| self.is_before(producer, step)))
    }

    /// Returns the steps before `step` whose definition stores an artifact of this name.
    pub(super) fn storing(&self, step: u32, artifact: &str) -> impl Iterator<Item = u32> {
        let named = self.named.get(artifact).into_iter().flatten().copied();
        named.filter(move |&producer| self.is_before(producer, step))
    }

    /// Returns the steps before `step` of which only their execution shows whether they store an artifact of
    /// this name.
    pub(super) fn may_store(&self, step: u32, artifact: &str) -> impl Iterator<Item = u32> {
        let others = self.others.iter();
        let may =
            others.filter(move |(other, outputs)| self.is_before(*other, step) && outputs.may_have(artifact));
        may.map(|(producer, _)| *producer)
    }

    /// Returns the names, or templates of names, of all artifacts that the steps of a called workflow may
    /// store.
    pub(super) fn names_of_call(&self, step: u32) -> impl Iterator<Item = &str> {
        let of_step = self.others.iter().filter(move |(producer, _)| *producer == step);
        of_step.flat_map(|(_, outputs)| &outputs.names).map(|name| &**name)
    }

    fn is_before(&self, producer: u32, step: u32) -> bool {
        let (producer, step) = (index(producer), index(step));
        let row = step * self.sections.len().div_ceil(BITS);
        self.sections[producer] < self.sections[step]
            || self.needed[row + producer / BITS] & (1 << (producer % BITS)) != 0
    }
}

/// Returns one row of bits for each step: its direct and indirect dependencies.
fn needed(nodes: &[StepPlan]) -> Vec<u64> {
    let words = nodes.len().div_ceil(BITS);
    let mut rows = vec![0; nodes.len() * words];
    for step in in_order(nodes) {
        for &need in &nodes[step].needs {
            let need = index(need);
            join(&mut rows, words, step, need);
            // A mapped step ends after the steps that add elements to it.
            for &adder in &nodes[need].adders {
                join(&mut rows, words, step, index(adder));
            }
        }
    }
    rows
}

/// Adds a step and all of its dependencies to the row of another step.
fn join(rows: &mut [u64], words: usize, to: usize, from: usize) {
    rows[to * words + from / BITS] |= 1 << (from % BITS);
    for word in 0..words {
        rows[to * words + word] |= rows[from * words + word];
    }
}

/// Returns the indexes of all steps in topological order.
fn in_order(nodes: &[StepPlan]) -> Vec<usize> {
    let mut order = Vec::with_capacity(nodes.len());
    let mut seen = vec![false; nodes.len()];
    for start in 0..nodes.len() {
        // Each step is visited twice: before and after its dependencies.
        let mut open = vec![(start, false)];
        while let Some((step, is_done)) = open.pop() {
            if is_done {
                order.push(step);
            } else if !std::mem::replace(&mut seen[step], true) {
                open.push((step, true));
                let waits_for = nodes[step].needs.iter().chain(&nodes[step].adders);
                open.extend(waits_for.map(|&other| (index(other), false)));
            }
        }
    }
    order
}
