//! Validation of schedules and calendars.
//!
//! This module checks limits, names, and the relations between the parts of a spec. It does not check cron expressions,
//! time zones and references to calendars: the engine does, with the `timetable` crate. The API calls it for each
//! request that creates or changes a schedule or a calendar.

use super::workflow::{NOT_REPLACED, texts_with_references};
use super::{Check, Invalid, too_many};
use crate::calendar::{CalendarSpec, CalendarStep, Days};
use crate::expression::{Names, Type};
use crate::limits;
use crate::schedule::{Action, MissedPolicy, OverlapPolicy, ScheduleSpec};
use crate::spec::JobSpec;
use crate::time::{Duration, Timestamp};
use crate::timing::{Filter, Rule, Timing};
use crate::workflow::Call;

/// Prefix of the names of built-in calendars.
const BUILT_IN: &str = "belfry.";

/// Checks a schedule spec beyond its types, including its job; paths of the job start with `job.`.
///
/// # Errors
/// Returns [`Invalid`] with all problems, in the order of the fields.
pub fn schedule(spec: &ScheduleSpec, now: Timestamp) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.own_name(&spec.name);
    check.name("namespace", &spec.namespace);
    check.owner(spec.owner.as_deref());
    check.labels("labels", &spec.labels);
    check.note("description", spec.description.as_deref());
    timing(&mut check, &spec.timing);
    if let Some(jitter) = spec.jitter {
        check.at_most("jitter.max", jitter.max, limits::JITTER_MAX);
    }
    check.ensure(spec.max_firings != Some(0), "max_firings", || {
        "must be at least 1; to stop a schedule, pause it".into()
    });
    policies(&mut check, spec);
    match &spec.action {
        Action::Job(job) => job_of(&mut check, spec, job, now),
        Action::Workflow(call) => workflow_of(&mut check, spec, call),
    }
    check.finish()
}

/// Checks a calendar spec beyond its types.
///
/// # Errors
/// Returns [`Invalid`] with all problems, in the order of the fields.
pub fn calendar(spec: &CalendarSpec) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.own_name(&spec.name);
    check.ensure(!spec.name.starts_with(BUILT_IN), "name", || {
        format!(
            "`{}` is reserved for built-in calendars: choose a name that does not start with `{BUILT_IN}`",
            spec.name
        )
    });
    check.name("namespace", &spec.namespace);
    check.owner(spec.owner.as_deref());
    check.labels("labels", &spec.labels);
    check.note("description", spec.description.as_deref());
    for (i, step) in spec.steps.iter().enumerate() {
        let (word, days) = match step {
            CalendarStep::Include(days) => ("include", days),
            CalendarStep::Exclude(days) => ("exclude", days),
        };
        let at = format!("steps[{i}].{word}");
        let empty = match days {
            Days::Weekdays(days) => days.is_empty(),
            Days::Dates(days) => days.is_empty(),
            Days::Yearly(days) => days.is_empty(),
            Days::Calendar(_) | Days::All {} => false,
        };
        check.ensure(!empty, &at, || "must contain at least one day".into());
        if let Days::Calendar(name) = days {
            check.name(&format!("{at}.calendar"), name);
        }
    }
    check.finish()
}

/// Checks a name of a schedule or a calendar from a URL.
///
/// # Errors
/// Returns [`Invalid`] with the path `name`.
pub fn name(name: &str) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.name("name", name);
    check.finish()
}

/// Checks a name for a schedule, a calendar or a workflow: also excludes IDs and the words that URLs of the API reserve.
///
/// # Errors
/// Returns [`Invalid`] with the path `name`.
pub fn own_name(name: &str) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.own_name(name);
    check.finish()
}

/// Checks the length of a description, note or reason.
///
/// # Errors
/// Returns [`Invalid`] with the path `path`.
pub fn note(path: &str, note: Option<&str>) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.note(path, note);
    check.finish()
}

fn timing(check: &mut Check, timing: &Timing) {
    for (path, found, max) in [
        ("timing.rules", timing.rules.len(), limits::RULES_MAX),
        ("timing.only", timing.only.len(), limits::FILTERS_MAX),
        ("timing.exclude", timing.exclude.len(), limits::FILTERS_MAX),
    ] {
        check.ensure(found <= max, path, || too_many(found, max));
    }
    if timing.rules.is_empty() {
        for (path, filters) in [("timing.only", &timing.only), ("timing.exclude", &timing.exclude)] {
            check.ensure(filters.is_empty(), path, || "cannot be set without rules".into());
        }
    }
    let delays = timing.rules.iter().filter(|rule| matches!(rule, Rule::After(_))).count();
    check.ensure(delays <= 1, "timing.rules", || {
        format!("has {delays} fixed delays (`after`): expected at most 1")
    });
    for (path, filters) in [("timing.only", &timing.only), ("timing.exclude", &timing.exclude)] {
        for (i, filter) in filters.iter().enumerate() {
            let empty = match filter {
                Filter::Weekdays(days) => days.is_empty(),
                Filter::Dates(days) => days.is_empty(),
                _ => false,
            };
            check.ensure(!empty, &format!("{path}[{i}]"), || "must contain at least one day".into());
        }
    }
}

fn policies(check: &mut Check, spec: &ScheduleSpec) {
    let in_range = |value: u32, max: u32| (1..=max).contains(&value);
    let range = |value: u32, max: u32| format!("`{value}` is out of range: expected 1 to {max}");
    let (overlap, missed) = (&spec.overlap, &spec.missed);
    check.ensure(in_range(overlap.limit, limits::OVERLAP_MAX), "overlap.limit", || {
        format!("{}; for no limit, use the policy `allow_all`", range(overlap.limit, limits::OVERLAP_MAX))
    });
    let buffers = overlap.policy == OverlapPolicy::BufferAll;
    check.ensure(!buffers || in_range(overlap.buffer, limits::BUFFER_MAX), "overlap.buffer", || {
        range(overlap.buffer, limits::BUFFER_MAX)
    });
    let last = missed.policy == MissedPolicy::FireLast;
    check.ensure(!last || in_range(missed.last, limits::MISSED_LAST_MAX), "missed.last", || {
        range(missed.last, limits::MISSED_LAST_MAX)
    });
    check.ensure(in_range(missed.limit, limits::MISSED_LIMIT_MAX), "missed.limit", || {
        range(missed.limit, limits::MISSED_LIMIT_MAX)
    });
    check.ensure(missed.threshold >= Duration::from_secs(1), "missed.threshold", || {
        format!("`{}` is too short: expected at least 1s", missed.threshold)
    });
    check.at_most("missed.threshold", missed.threshold, limits::CATCH_UP_WINDOW_MAX);
    check.at_most("missed.catch_up_window", missed.catch_up_window, limits::CATCH_UP_WINDOW_MAX);
    check.ensure(missed.catch_up_per_minute != Some(0), "missed.catch_up_per_minute", || {
        "must be at least 1; to catch up no missed run, use the policy `skip`".into()
    });
    if let Some(deadline) = spec.start_deadline {
        check.ensure(deadline > Duration::ZERO, "start_deadline", || "must be greater than 0".into());
        check.at_most("start_deadline", deadline, limits::AHEAD_MAX);
    }
    check
        .ensure(spec.pause_after_failures != Some(0), "pause_after_failures", || "must be at least 1".into());
    if let Some(ahead) = spec.reserve_ahead {
        check.ensure(ahead > Duration::ZERO, "reserve_ahead", || "must be greater than 0".into());
        check.at_most("reserve_ahead", ahead, limits::RESERVE_AHEAD_MAX);
    }
    check.at_most("expect.start_within", spec.expect.start_within, limits::AHEAD_MAX);
    if let Some(run_within) = spec.expect.run_within {
        check.ensure(run_within > Duration::ZERO, "expect.run_within", || "must be greater than 0".into());
        check.at_most("expect.run_within", run_within, limits::TIMEOUT_MAX);
    }
}

/// Checks the job, and that it sets no field that the schedule controls.
fn job_of(check: &mut Check, spec: &ScheduleSpec, job: &JobSpec, now: Timestamp) {
    if let Err(invalid) = super::job(job, now) {
        check.problems.extend(invalid.problems.into_iter().map(|mut problem| {
            problem.path = format!("job.{}", problem.path);
            problem
        }));
    }
    // A script may contain the syntax of a reference for another purpose; a shell rejects this syntax outside quotes.
    let is_script = |path: &String| path == "job.run.process.script";
    let references =
        serde_json::to_value(job).map(|job| texts_with_references(&job, "job")).unwrap_or_default();
    for path in references.into_iter().filter(|path| !is_script(path)) {
        check.fail(path, NOT_REPLACED);
    }
    check.ensure(job.namespace == spec.namespace, "job.namespace", || {
        format!("must be the namespace of the schedule (`{}`) or omitted", spec.namespace)
    });
    check.ensure(job.run_at.is_none(), "job.run_at", || {
        "cannot be set in the job of a schedule: use `timing`".into()
    });
    check.ensure(job.start_deadline.is_none(), "job.start_deadline", || {
        "cannot be set in the job of a schedule: use the `start_deadline` of the schedule".into()
    });
    check.ensure(job.finish_by.is_none_or(|by| by.at.is_none()), "job.finish_by.at", || {
        "cannot be set in the job of a schedule: use `after`, which counts from each scheduled time".into()
    });
    let (after, jitter) = (job.finish_by.and_then(|by| by.after), spec.jitter.map(|jitter| jitter.max));
    if let (Some(after), Some(jitter)) = (after, jitter) {
        check.ensure(after > jitter, "job.finish_by.after", || {
            format!("`{after}` is too short: expected more than `jitter.max` (`{jitter}`)")
        });
    }
    check.ensure(job.after.is_empty(), "job.after", || {
        "cannot be set in the job of a schedule: use a workflow for jobs that follow each other".into()
    });
    check.ensure(job.idempotency_key.is_none(), "job.idempotency_key", || {
        "cannot be set in the job of a schedule: a scheduled time never fires twice".into()
    });
}

/// Checks the call of a workflow as far as possible without the workflow. Whether the workflow exists and accepts the
/// parameters is checked when the schedule fires.
fn workflow_of(check: &mut Check, spec: &ScheduleSpec, call: &Call) {
    check.name("workflow.name", &call.name);
    let count = call.parameters.len();
    check.ensure(count <= limits::PARAMETERS_MAX, "workflow.parameters", || {
        too_many(count, limits::PARAMETERS_MAX)
    });
    for (name, value) in &call.parameters {
        let at = format!("workflow.parameters.{}", super::shown(name));
        super::workflow::templates_in(check, &at, value, &FiringNames);
    }
    check.ensure(spec.reserve_ahead.is_none(), "reserve_ahead", || {
        "cannot be used with a workflow: omit it".into()
    });
}

/// Names that the parameters of a scheduled workflow can refer to.
struct FiringNames;

impl Names for FiringNames {
    fn type_of(&self, path: &[String]) -> Result<Type, String> {
        let fields = ["schedule", "cause", "scheduled_for", "interval_start", "interval_end"];
        let fields = fields.into_iter().map(|name| (name.to_owned(), Type::Text)).collect();
        match path.split_first() {
            Some((first, rest)) if first == "firing" => Type::Fields(fields).select(rest),
            Some((first, _)) => Err(format!("there is no `{}`: expected `firing`", super::shown(first))),
            None => Err("must not be empty".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ScheduleId;
    use crate::schedule::Jitter;
    use crate::timing::Weekday;

    fn shown(found: Result<(), Invalid>) -> String {
        match found {
            Ok(()) => "fine".into(),
            Err(invalid) => invalid.problems.iter().map(|p| format!("{}: {}\n", p.path, p.message)).collect(),
        }
    }

    fn problems(change: impl FnOnce(&mut ScheduleSpec)) -> String {
        let mut spec = ScheduleSpec::new("nightly", Timing::default(), JobSpec::command(["true"]));
        change(&mut spec);
        shown(schedule(&spec, Timestamp::default()))
    }

    fn calendar_problems(text: &str) -> String {
        shown(calendar(&serde_json::from_str(text).unwrap()))
    }

    #[test]
    fn a_schedule_without_rules_is_valid() {
        assert_eq!(problems(|_| {}), "fine");
    }

    #[test]
    fn all_mistakes_of_a_schedule_are_reported_at_once_with_their_paths() {
        insta::assert_snapshot!(problems(|spec| {
            spec.name = "preview".into();
            spec.description = Some("x".repeat(2_000));
            spec.timing.exclude.push(Filter::Weekdays(Vec::new()));
            spec.timing.rules = vec![Rule::After(Duration::from_secs(1)); 65];
            spec.jitter = Some(Jitter { max: Duration::from_hours(25), spread: Default::default() });
            spec.max_firings = Some(0);
            spec.overlap.policy = OverlapPolicy::BufferAll;
            spec.overlap.limit = 0;
            spec.overlap.buffer = 5_000;
            spec.missed.policy = MissedPolicy::FireLast;
            spec.missed.last = 0;
            spec.missed.threshold = Duration::ZERO;
            spec.missed.catch_up_per_minute = Some(0);
            spec.start_deadline = Some(Duration::ZERO);
            spec.pause_after_failures = Some(0);
            spec.reserve_ahead = Some(Duration::from_hours(48));
            spec.expect.run_within = Some(Duration::ZERO);
            let job = spec.job_mut().unwrap();
            job.priority = 101;
            job.namespace = "other".into();
            job.run_at = Some(Timestamp::default());
            job.start_deadline = Some(Duration::from_secs(1));
            job.idempotency_key = Some("k".into());
        }));
    }

    /// C1. A schedule starts one thing, and its parameters can refer only to the firing.
    #[test]
    fn a_schedule_of_a_workflow_is_checked_like_one_of_a_job() {
        let spec = |text: &str| serde_json::from_str::<ScheduleSpec>(text).map_err(|error| error.to_string());
        let both =
            r#"{"name": "x", "job": {"run": {"process": {"command": ["true"]}}}, "workflow": {"name": "w"}}"#;
        for text in [r#"{"name": "x"}"#, both] {
            let told = spec(text).unwrap_err();
            assert!(told.starts_with("schedule `x`: expected exactly one of `job` and `workflow`"), "{told}");
        }
        let right = r#"{"name": "x", "workflow": {"name": "w", "parameters": {"day": "${{ firing.scheduled_for }}"}}}"#;
        let read = spec(right).unwrap();
        assert_eq!(
            serde_json::from_str::<ScheduleSpec>(&serde_json::to_string(&read).unwrap()).unwrap(),
            read
        );
        assert_eq!(shown(schedule(&read, Timestamp::default())), "fine");
        let wrong = r#"{"name": "x", "reserve_ahead": "1m",
            "workflow": {"name": "a b", "parameters": {"day": "${{ firing.day }}", "n": ["${{ params.n }}"]}}}"#;
        insta::assert_snapshot!(shown(schedule(&spec(wrong).unwrap(), Timestamp::default())));
    }

    /// C1, C2. References are not replaced in the job of a schedule, so a reference would stay text.
    #[test]
    fn a_reference_in_the_job_of_a_schedule_is_refused() {
        let found = problems(|spec| {
            let job = spec.job_mut().unwrap();
            let process = job.run.as_process_mut().unwrap();
            process.command.push("--day=${{ firing.scheduled_for }}".into());
            process.env.insert("DAY".into(), "${{ firing.scheduled_for }}".into());
        });
        insta::assert_snapshot!(found, @"
        job.run.process.command[1]: has a reference, but references are not replaced in this field: use the value itself
        job.run.process.env.DAY: has a reference, but references are not replaced in this field: use the value itself
        ");
        let script = problems(|spec| {
            let job = spec.job_mut().unwrap();
            let process = job.run.as_process_mut().unwrap();
            process.command.clear();
            process.script = Some("echo 'on: ${{ github.ref }}' > build.yaml".into());
        });
        assert_eq!(script, "fine");
    }

    #[test]
    fn a_filter_without_a_rule_is_rejected() {
        let found = problems(|spec| spec.timing.only.push(Filter::Weekdays(vec![Weekday::Monday])));
        insta::assert_snapshot!(found, @"timing.only: cannot be set without rules");
    }

    #[test]
    fn a_name_cannot_be_taken_for_an_id_or_a_route() {
        for name in ["apply", "preview", "upcoming", "import", &ScheduleId::from_bits(1).to_string()] {
            assert!(problems(|spec| spec.name = name.to_owned()).starts_with("name: "), "{name}");
        }
    }

    #[test]
    fn all_mistakes_of_a_calendar_are_reported_at_once() {
        assert_eq!(calendar_problems(r#"{"name": "work", "steps": [{"include": {"all": {}}}]}"#), "fine");
        insta::assert_snapshot!(calendar_problems(
            r#"{"name": "belfry.x", "namespace": "a b", "steps": [{"include": {"weekdays": []}}, {"exclude": {"calendar": ""}}]}"#
        ));
    }
}
