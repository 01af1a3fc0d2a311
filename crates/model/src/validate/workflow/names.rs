//! Names that the expressions of a workflow can refer to, with their types.
//!
//! [`WorkflowNames`] has the parameters and steps of a workflow. [`StepNames`] has the names at one location: an
//! expression in a step can refer only to steps that have ended when the step starts. The type of a step output is
//! known only if the step declares its outputs; otherwise each field is allowed.
//!
//! The names also record which outputs are used, for a warning about unused ones.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use super::graph::Graph;
use super::path_of;
use crate::expression::{Names, Type};
use crate::workflow::template::has_reference;
use crate::workflow::{Action, ElementSource, Section, StepSpec, Wait, WorkflowSpec};

/// All names of a workflow.
pub(super) struct WorkflowNames<'a> {
    graph: &'a Graph<'a>,
    steps: Vec<&'a StepSpec>,
    parameters: Type,
    /// Computed only if an expression refers to a step.
    ancestors: OnceCell<Vec<Box<[u64]>>>,
    /// Step outputs that expressions refer to: index of the step and field of its output; `None` means the whole
    /// output.
    used: RefCell<BTreeSet<(usize, Option<String>)>>,
}

/// Location of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpressionLocation {
    /// In a step, before its elements are known.
    Step(usize),
    /// In a step, evaluated for each element of a mapped step.
    Element(usize),
    /// In the outputs of the workflow.
    Outputs,
}

/// Names that an expression can refer to at its location.
pub(super) struct StepNames<'a> {
    names: &'a WorkflowNames<'a>,
    around: ExpressionLocation,
}

impl<'a> WorkflowNames<'a> {
    pub(super) fn new(spec: &'a WorkflowSpec, graph: &'a Graph<'a>) -> Self {
        let parameters = spec.parameters.iter().map(|(name, p)| (name.clone(), p.kind.as_type())).collect();
        Self {
            graph,
            steps: spec.all_steps().map(|(_, step)| step).collect(),
            parameters: Type::Fields(parameters),
            ancestors: OnceCell::new(),
            used: RefCell::default(),
        }
    }

    /// Returns declared outputs of steps that no expression checked so far refers to: index of the step, section and
    /// name.
    pub(super) fn unused_outputs(&self) -> Vec<(usize, Section, &'a str)> {
        let used = self.used.borrow();
        let is_used = |place, name: &str| {
            used.contains(&(place, None)) || used.contains(&(place, Some(name.to_owned())))
        };
        let promised = self.steps.iter().enumerate().flat_map(|(place, step)| {
            let step: &'a StepSpec = step;
            step.outputs.keys().map(move |name| (place, self.graph.section(place), name.as_str()))
        });
        promised.filter(|(place, _, name)| !is_used(*place, name)).collect()
    }

    pub(super) fn of(&'a self, around: ExpressionLocation) -> StepNames<'a> {
        StepNames { names: self, around }
    }

    pub(super) fn comes_before(&self, earlier: usize, place: usize) -> bool {
        let (section, own) = (self.graph.section(earlier), self.graph.section(place));
        if section != own {
            return section < own;
        }
        let ancestors = self.ancestors.get_or_init(|| self.graph.ancestors());
        ancestors[place][earlier / 64] & (1 << (earlier % 64)) != 0
    }

    fn type_of_step(&self, place: usize) -> Type {
        let step = self.steps[place];
        let mut fields = BTreeMap::from([
            ("status".to_owned(), Type::Text),
            ("message".to_owned(), Type::Text),
            ("output".to_owned(), output_of(step)),
        ]);
        if let Some(files) = files_of(step) {
            fields.insert("files".to_owned(), files);
        }
        if step.for_each.is_some() {
            for name in ["total", "succeeded", "failed"] {
                fields.insert(name.to_owned(), Type::Number);
            }
        }
        Type::Fields(fields)
    }
}

/// Returns the type of `files`: the stored versions of each output of the step.
fn files_of(step: &StepSpec) -> Option<Type> {
    let job = match &step.action {
        Action::Job(job) if !job.outputs.is_empty() => job,
        Action::Workflow(_) => return Some(Type::Map),
        _ => return None,
    };
    let version = match &step.for_each {
        Some(_) => Type::List(Box::new(Type::Any)),
        None => Type::Text,
    };
    let mut fields = BTreeMap::new();
    for output in &job.outputs {
        let name = [&output.artifact, &output.path].into_iter().find(|text| !has_reference(text));
        let Some(name) = name else { return Some(Type::Map) };
        fields.insert(name.clone(), version.clone());
    }
    Some(Type::Fields(fields))
}

fn output_of(step: &StepSpec) -> Type {
    let promised = (!step.outputs.is_empty()).then(|| {
        Type::Fields(step.outputs.iter().map(|(name, kind)| (name.clone(), kind.as_type())).collect())
    });
    match (&step.for_each, &step.action) {
        (Some(_), _) => Type::List(Box::new(promised.unwrap_or(Type::Any))),
        (None, Action::Job(_) | Action::Workflow(_) | Action::Wait(Wait::Event(_))) if promised.is_some() => {
            promised.unwrap_or(Type::Any)
        }
        (None, Action::Workflow(_)) => Type::Map,
        (None, Action::Approval(_)) => {
            Type::Fields(BTreeMap::from([("by".to_owned(), Type::Text), ("note".to_owned(), Type::Text)]))
        }
        (None, Action::Wait(Wait::For(_) | Wait::Until(_))) => Type::Null,
        (None, Action::Job(_) | Action::Wait(Wait::Event(_))) => Type::Any,
    }
}

impl StepNames<'_> {
    fn run(&self) -> Type {
        let mut fields: BTreeMap<_, _> =
            ["id", "workflow", "actor", "started_at", "scheduled_for", "interval_start", "interval_end"]
                .into_iter()
                .map(|name| (name.to_owned(), Type::Text))
                .collect();
        fields.insert("number".into(), Type::Number);
        let late = match self.around {
            ExpressionLocation::Step(place) | ExpressionLocation::Element(place) => {
                self.names.graph.section(place) != Section::Steps
            }
            ExpressionLocation::Outputs => false,
        };
        if late {
            fields.insert("status".into(), Type::Text);
        }
        Type::Fields(fields)
    }

    fn step(&self, path: &[String]) -> Result<Type, String> {
        let Some(name) = path.get(1) else {
            return Err("cannot use `steps` as a whole: expected a step, such as `steps.load.output`".into());
        };
        let Some(place) = self.names.graph.place(name) else {
            return Err(format!("there is no step `{}`", super::super::shown(name)));
        };
        let before = match self.around {
            ExpressionLocation::Step(own) | ExpressionLocation::Element(own) => {
                own != place && self.names.comes_before(place, own)
            }
            ExpressionLocation::Outputs => self.names.graph.section(place) == Section::Steps,
        };
        if !before {
            return Err(match self.around {
                ExpressionLocation::Outputs => {
                    format!(
                        "step `{name}` is not in `steps`: the outputs are evaluated before this step runs"
                    )
                }
                _ => format!(
                    "step `{name}` does not run before this step: add it, or a step that depends on it, to `needs`"
                ),
            });
        }
        if path.len() == 2 {
            let message = "cannot be used as a whole: expected one of its fields, such as `output`";
            return Err(format!("`steps.{name}` {message}"));
        }
        if path[2] == "output" {
            self.names.used.borrow_mut().insert((place, path.get(3).cloned()));
        }
        self.names.type_of_step(place).select(&path[2..])
    }

    /// Returns the type of `item`, or `None` outside of a mapped step.
    fn item(&self) -> Option<Type> {
        let ExpressionLocation::Element(place) = self.around else { return None };
        Some(match self.names.steps[place].for_each.as_ref()?.over {
            ElementSource::Shards(_) => Type::Number,
            ElementSource::Workers(_) => Type::Text,
            ElementSource::Items(_) | ElementSource::List(_) | ElementSource::AddedBy(_) => Type::Any,
        })
    }
}

impl Names for StepNames<'_> {
    fn type_of(&self, path: &[String]) -> Result<Type, String> {
        let (name, fields) = path.split_first().ok_or("must not be empty")?;
        match (name.as_str(), self.item()) {
            ("params", _) => self
                .names
                .parameters
                .select(fields)
                .map_err(|message| format!("unknown parameter: {message}")),
            ("run", _) => self.run().select(fields),
            ("steps", _) => self.step(path),
            ("item", Some(item)) => item.select(fields),
            ("index" | "total", Some(_)) => Type::Number.select(fields),
            (_, None) => Err(format!(
                "there is no `{}`: expected `params`, `steps` or `run`",
                super::super::shown(name)
            )),
            (_, Some(_)) => Err(format!(
                "there is no `{}`: expected `params`, `steps`, `run`, `item`, `index` or `total`",
                super::super::shown(name)
            )),
        }
    }
}

/// Returns the waits for events without a timeout: path of the missing timeout, and name of the event.
pub(super) fn endless_waits(spec: &WorkflowSpec) -> Vec<(String, &str)> {
    let endless = |(place, (section, step)): (usize, (Section, &'_ StepSpec))| match &step.action {
        Action::Wait(Wait::Event(_)) if step.timeout.is_none() => Some((place, section)),
        _ => None,
    };
    let event = |place: usize| match spec.all_steps().nth(place).map(|(_, step)| &step.action) {
        Some(Action::Wait(Wait::Event(event))) => event.name.as_str(),
        _ => "",
    };
    let places = spec.all_steps().enumerate().filter_map(endless);
    places
        .map(|(place, section)| (format!("{}.timeout", path_of(spec, place, section)), event(place)))
        .collect()
}
