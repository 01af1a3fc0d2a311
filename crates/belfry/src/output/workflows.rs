//! Tables and detailed views of workflows, and the plan of a run.
//!
//! - [`Workflow`]: `workflow list`, and `workflow get`: its fields, its triggers, and at most [`STEPS_MAX`] steps.
//! - [`plan`] and [`PlannedStep`]: `workflow plan`: the parameters, then the steps by level. Steps of a level may run
//!   concurrently.
//! - [`step_title`], [`joined`], [`kind`], [`variant_name`], [`left_out`]: helpers that `runs` shares.
//!
//! Values and lists of names are cut to [`VALUE_CHARS_MAX`] characters; JSON and YAML contain them in full.

use std::fmt::Write as _;

use model::api::{AppliedWorkflow, PlannedStep, RunPlan, StepKind, TriggerStatus, Workflow};
use model::workflow::{
    Action, ElementSource, ForEach, Parameter, RequiredResult, Section, Source, StepSpec, TriggerSources,
    TriggerSpec, Wait,
};
use serde::Serialize;

use super::objects::{describe_command, labels};
use super::runs::{format_end, plain, run_status};
use super::schedules::AppliedObject;
use super::table::{self, Cell, Column, Detail, Row, column, wide};
use super::text::{count, escape, short};
use super::time::{exact, relative_or_exact};
use super::{Format, OutputOptions};
use crate::failure::Failure;

/// Maximum number of steps in a detailed view.
pub(super) const STEPS_MAX: usize = 60;
/// Maximum number of characters of a value or of a list of names.
pub(super) const VALUE_CHARS_MAX: usize = 120;

pub(super) fn kind(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Job => "job",
        StepKind::Workflow => "workflow",
        StepKind::Approval => "approval",
        StepKind::Wait => "wait",
    }
}

/// Formats the name of a step, with its section unless that is `steps`: `clean (finally)`.
pub(super) fn step_title(name: &str, section: Section) -> String {
    match section {
        Section::Steps => name.to_owned(),
        other => format!("{name} ({})", other.as_str()),
    }
}

pub(super) fn joined(names: &[String]) -> Cell {
    if names.is_empty() { Cell::none() } else { short(&names.join(", "), VALUE_CHARS_MAX).into() }
}

impl Row for Workflow {
    const COLUMNS: &'static [Column] = &[
        column("NAME", 20),
        column("STEPS", 6).optional(1),
        column("RUNS", 6).optional(2),
        column("LAST STATUS", 11),
        column("LAST RUN", 10),
        column("UPDATED", 10).optional(3),
        wide("ID", 30),
        wide("NAMESPACE", 12),
        wide("OWNER", 12),
        wide("GENERATION", 10),
        wide("PARAMETERS", 20),
        wide("LABELS", 12),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let last = self.recent.as_ref().and_then(|runs| runs.first());
        let parameters: Vec<_> = self.parameters.keys().cloned().collect();
        vec![
            self.name.as_str().into(),
            self.steps.to_string().into(),
            self.runs.to_string().into(),
            last.map(|run| run_status(run.status)).into(),
            last.map(|run| relative_or_exact(look, run.created_at)).into(),
            relative_or_exact(look, self.updated_at).into(),
            self.id.to_string().into(),
            self.namespace.as_str().into(),
            self.owner.as_deref().into(),
            self.generation.to_string().into(),
            joined(&parameters),
            labels(&self.labels),
        ]
    }

    fn name(&self) -> String {
        escape(&self.name)
    }
}

impl Detail for Workflow {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let mut lines = vec![
            ("Workflow", self.name.as_str().into()),
            ("ID", self.id.to_string().into()),
            ("Namespace", self.namespace.as_str().into()),
            ("Owner", self.owner.as_deref().into()),
            ("Labels", labels(&self.labels)),
            ("Description", self.description.as_deref().into()),
        ];
        for (name, parameter) in &self.parameters {
            lines.push(("Parameter", parameter_line(name, parameter).into()));
        }
        if let Some(spec) = &self.spec {
            lines.extend(spec.timeout.map(|timeout| ("Timeout", timeout.to_string().into())));
            lines.extend(spec.max_parallel_steps.map(|most| ("Max parallel steps", most.to_string().into())));
            lines.extend(spec.max_parallel_runs.map(|most| ("Max parallel runs", most.to_string().into())));
            let outputs: Vec<_> = spec.outputs.keys().cloned().collect();
            lines.push(("Outputs", joined(&outputs)));
        }
        let triggers = self.spec.iter().flat_map(|spec| &spec.triggers);
        for (number, trigger) in triggers.enumerate() {
            lines.push(("Trigger", trigger_line(trigger, self.triggers.get(number)).into()));
            let state = self.triggers.get(number);
            lines.extend(
                state
                    .iter()
                    .flat_map(|state| &state.waiting_events)
                    .map(|ended| ("  received", format_end(look, ended).into())),
            );
            lines.extend(state.and_then(|state| state.last_refusal.as_ref()).map(|refusal| {
                let detail = refusal.detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
                let (ended, why) = (format_end(look, &refusal.ended), refusal.reason.sentence());
                ("  not triggered", format!("{ended}: {why}{detail}").into())
            }));
        }
        lines.extend([
            ("Steps", self.steps.to_string().into()),
            ("Runs", self.runs.to_string().into()),
            ("Created", exact(look, self.created_at).into()),
            ("Updated", exact(look, self.updated_at).into()),
            ("Version", format!("{} (generation {})", self.version, self.generation).into()),
        ]);
        lines
    }

    fn appendix(&self, look: &OutputOptions) -> String {
        let Some(spec) = &self.spec else { return String::new() };
        let steps: Vec<_> = spec.all_steps().map(|(section, step)| DefinedStep { section, step }).collect();
        let shown = &steps[..steps.len().min(STEPS_MAX)];
        let mut text = format!("\n{}", table::rows(look, shown));
        left_out(&mut text, steps.len() - shown.len(), "use `-o yaml` to show all");
        text
    }
}

fn parameter_line(name: &str, parameter: &Parameter) -> String {
    let kind = variant_name(&parameter.kind);
    let default = match &parameter.default {
        Some(value) => format!(", default {}", short(&value.to_string(), VALUE_CHARS_MAX)),
        None => ", required".to_owned(),
    };
    let what = parameter.description.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    format!("{name} ({kind}{default}){what}")
}

/// Formats a trigger: `success of workflow extract, failure of job rates (2 runs)`.
fn trigger_line(trigger: &TriggerSpec, state: Option<&TriggerStatus>) -> String {
    let source = |source: &Source| {
        let within = source.within.map(|within| format!(" within {within}")).unwrap_or_default();
        let labels = source.labels.iter().map(|(key, value)| format!(" {key}={value}")).collect::<String>();
        let on = match source.on {
            RequiredResult::Success => "success",
            RequiredResult::Failure => "failure",
            RequiredResult::Any => "any result",
        };
        format!("{on} of {} {}{labels}{within}", source.kind.as_str(), source.name)
    };
    let mut text = trigger.listens.sources().iter().map(source).collect::<Vec<_>>().join(", ");
    if let TriggerSources::All { window, .. } = &trigger.listens {
        let _ = write!(text, ", all within {window}");
    }
    if trigger.paused {
        text.push_str(", paused");
    }
    if let Some(state) = state {
        let _ = write!(text, " ({}", count(state.runs, "run"));
        let _ = if state.refused > 0 {
            write!(text, ", {} not triggered)", state.refused)
        } else {
            write!(text, ")")
        };
    }
    text
}

pub(super) fn left_out(text: &mut String, count_left: usize, help: &str) {
    if count_left > 0 {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "… and {}: {help}", count(count_left as u64, "more step"));
    }
}

/// Step of a workflow definition, as a row.
#[derive(Serialize)]
struct DefinedStep<'a> {
    section: Section,
    #[serde(flatten)]
    step: &'a StepSpec,
}

impl Row for DefinedStep<'_> {
    const COLUMNS: &'static [Column] = &[
        column("STEP", 24),
        column("ACTION", 40).cut(20),
        column("FOR EACH", 16).cut(10).optional(2),
        column("UPSTREAM", 20).cut(12).optional(1),
        wide("JOIN RULE", 12),
        wide("CONDITION", 20),
    ];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        let step = self.step;
        vec![
            step_title(&step.name, self.section).into(),
            describe_action(&step.action).into(),
            step.for_each.as_ref().map(describe_for_each).into(),
            joined(&step.needs),
            variant_name(&step.join).into(),
            step.when.as_deref().into(),
        ]
    }

    fn name(&self) -> String {
        escape(&self.step.name)
    }
}

/// Returns the name of a unit variant in the API, such as `all_success`.
pub(super) fn variant_name(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).ok();
    value.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}

fn describe_action(action: &Action) -> String {
    match action {
        Action::Job(job) => describe_command(&job.run),
        Action::Workflow(call) => format!("calls workflow {}", call.name),
        Action::Approval(approval) if approval.approvers.is_empty() => "waits for approval".into(),
        Action::Approval(approval) => {
            short(&format!("waits for approval by {}", approval.approvers.join(" or ")), VALUE_CHARS_MAX)
        }
        Action::Wait(Wait::For(length)) => format!("waits for {length}"),
        Action::Wait(Wait::Until(at)) => short(&format!("waits until {at}"), VALUE_CHARS_MAX),
        Action::Wait(Wait::Event(event)) => format!("waits for event {}", event.name),
    }
}

fn describe_for_each(each: &ForEach) -> String {
    match &each.over {
        ElementSource::Items(items) => count(items.len() as u64, "element"),
        ElementSource::List(expression) => short(expression, VALUE_CHARS_MAX),
        ElementSource::Shards(shards) => count(u64::from(*shards), "shard"),
        ElementSource::Workers(constraints) if constraints.is_empty() => "all workers".into(),
        ElementSource::Workers(_) => "matching workers".into(),
        ElementSource::AddedBy(steps) => format!("added by {}", short(&steps.join(", "), VALUE_CHARS_MAX)),
    }
}

impl From<AppliedWorkflow> for AppliedObject {
    fn from(applied: AppliedWorkflow) -> Self {
        let AppliedWorkflow { name, namespace, change, warnings, .. } = applied;
        Self { kind: "workflow", name, namespace: Some(namespace), change, warnings }
    }
}

impl Row for PlannedStep {
    const COLUMNS: &'static [Column] = &[
        column("LEVEL", 5),
        column("STEP", 24),
        column("KIND", 8).optional(2),
        column("ELEMENTS", 6).optional(3),
        column("UPSTREAM", 20).cut(12).optional(1),
        column("COMMAND", 40).cut(20),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let command = self.command.as_ref().map(|command| {
            let command = command.join(" ");
            if look.wide() { command } else { short(&command, VALUE_CHARS_MAX) }
        });
        vec![
            self.level.to_string().into(),
            step_title(&self.name, self.section).into(),
            kind(self.kind).into(),
            self.total.map(|total| total.to_string()).into(),
            joined(&self.needs),
            command.into(),
        ]
    }

    fn name(&self) -> String {
        escape(&self.name)
    }
}

/// Formats the plan of a run: the values of the parameters, then the steps in a possible order.
pub(crate) fn plan(look: &OutputOptions, plan: &RunPlan) -> Result<String, Failure> {
    Ok(match look.format {
        Format::Json => super::json(plan)?,
        Format::Yaml => super::yaml(plan)?,
        Format::Name => super::list(look, &plan.steps)?,
        Format::Table | Format::Wide => {
            let mut text = String::new();
            for (name, value) in &plan.parameters {
                let _ = writeln!(text, "{}={}", escape(name), escape(&short(&plain(value), VALUE_CHARS_MAX)));
            }
            if !text.is_empty() {
                text.push('\n');
            }
            text + &table::rows(look, &plan.steps)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::{list, one};

    fn look(format: Format) -> OutputOptions {
        OutputOptions { format, color: false, now: "2026-11-21T08:10:00Z".parse().unwrap(), width: None }
    }

    fn spec() -> serde_json::Value {
        let job = json!({"run": {"process": {"command": ["load", "${{ item }}"]}}});
        json!({
            "name": "nightly",
            "parameters": {
                "day": {"type": "string", "description": "which\u{1b} day"},
                "regions": {"type": "array", "default": ["eu", "cn"]},
            },
            "steps": [
                {"name": "extract", "job": {"run": {"process": {"script": "one\ntwo\n"}}}},
                {"name": "load", "needs": ["extract"], "job": job,
                 "for_each": {"over": {"list": "params.regions"}, "max_parallel": 4}},
                {"name": "shards", "job": job, "for_each": {"over": {"shards": 3}}},
                {"name": "all", "job": job, "for_each": {"over": {"workers": []}}},
                {"name": "gate", "needs": ["load", "shards"], "join": "none_failed", "when": "true",
                 "approval": {"approvers": ["ann", "bob"]}, "timeout": "1h"},
                {"name": "paid", "wait": {"event": {"name": "payment"}}, "timeout": "1h"},
                {"name": "nap", "wait": {"for": "5m"}},
                {"name": "report", "workflow": {"name": "report"}},
            ],
            "finally": [{"name": "clean", "job": job}],
            "outputs": {"rows": "${{ size(steps.load.output) }}"},
            "max_parallel_runs": 1, "timeout": "2h",
        })
    }

    fn workflow(changes: serde_json::Value) -> Workflow {
        let mut workflow = json!({
            "id": "wfl_01k9zq3m6c0000000000000000", "name": "nightly", "namespace": "pay", "owner": "ann",
            "labels": {"team": "pay"}, "description": "the figures", "generation": 3, "version": 5,
            "created_at": "2026-11-20T08:00:00Z", "updated_at": "2026-11-21T08:00:00Z", "steps": 9, "runs": 41,
            "parameters": spec()["parameters"],
        });
        for (key, value) in changes.as_object().unwrap() {
            workflow[key] = value.clone();
        }
        serde_json::from_value(workflow).unwrap()
    }

    #[test]
    fn workflows_as_tables() {
        let recent = json!([{"id": "run_01k9zq3m6c0000000000000000", "number": 41, "status": "failed",
            "created_at": "2026-11-21T08:00:00Z"}]);
        let all = [
            workflow(json!({"recent": recent})),
            workflow(json!({"name": "new", "runs": 0, "parameters": {}})),
        ];
        insta::assert_snapshot!("workflows_table", list(&look(Format::Table), &all).unwrap());
        insta::assert_snapshot!("workflows_wide", list(&look(Format::Wide), &all[..1]).unwrap());
        let whole = workflow(json!({"spec": spec()}));
        insta::assert_snapshot!("workflow_detail", one(&look(Format::Table), &whole).unwrap());
        let json = one(&look(Format::Json), &whole).unwrap();
        assert_eq!(serde_json::from_str::<Workflow>(&json).unwrap(), whole);
    }

    /// C3.
    #[test]
    fn triggers_show_their_runs_and_refusals() {
        let at = "2026-11-21T07:59:30Z";
        let job = json!({"job_id": "job_01k9zq3m6c0000000000000000", "name": "ra\u{1b}tes",
            "status": "succeeded", "at": at});
        let run = json!({"run_id": "run_01k9zq3m6c0000000000000000", "name": "extract",
            "status": "failed", "at": at});
        let refusal = json!({"at": "2026-11-21T08:00:00Z", "ended": run, "reason": "late",
            "detail": "it ended 2 h ago"});
        let mut spec = spec();
        spec["triggers"] = json!([
            {"workflow": "extract", "on": "failure", "within": "1h"},
            {"all": [{"job": "rates", "labels": {"team": "pay"}}, {"workflow": "extract"}], "window": "2h"},
            {"job": "never", "on": "any", "paused": true},
        ]);
        let triggers = json!([
            {"runs": 1, "refused": 2, "last_refusal": refusal},
            {"runs": 40, "refused": 0, "waiting_events": [job]},
        ]);
        let whole = workflow(json!({"spec": spec, "triggers": triggers}));
        let told = one(&look(Format::Table), &whole).unwrap();
        let lines = |line: &&str| line.starts_with("Trigger") || line.starts_with("  ");
        let told: Vec<_> = told.lines().filter(lines).collect();
        insta::assert_snapshot!("workflow_triggers", told.join("\n"));
    }

    #[test]
    fn a_plan_tells_the_values_and_then_the_steps() {
        let told: RunPlan = serde_json::from_value(json!({
            "parameters": {"day": "2026-11-21", "regions": ["eu"]},
            "steps": [
                {"name": "extract", "section": "steps", "kind": "job", "needs": [], "level": 0,
                 "command": ["extract", "--day=2026-11-21"]},
                {"name": "load", "section": "steps", "kind": "job", "needs": ["extract"], "level": 1, "total": 1,
                 "command": ["load", "${{ item }}"]},
                {"name": "clean", "section": "finally", "kind": "approval", "needs": [], "level": 0},
            ],
        }))
        .unwrap();
        insta::assert_snapshot!("plan", plan(&look(Format::Table), &told).unwrap());
        assert_eq!(plan(&look(Format::Name), &told).unwrap(), "extract\nload\nclean\n");
    }
}
