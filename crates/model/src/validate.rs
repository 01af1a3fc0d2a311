//! Validation of specs: all errors at once.
//!
//! Parsing checks the types; this module checks everything else. Each [`Problem`] has the path of its field
//! (`run.process.env.FOO`), the found value and the expected value. The API checks each spec before the engine stores
//! it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::ScheduleId;
use crate::limits;
use crate::namespace::{NamespaceSettings, Quota};
use crate::queue::QueueSettings;
use crate::spec::{
    Backoff, Constraint, FinishBy, Hook, JobSpec, Operator, ProcessRun, RequiredService, Run, Sandbox,
    SandboxLevel, Sidecar, SidecarCheck, Volume,
};
use crate::time::{Duration, Timestamp};

mod alert;
mod health;
mod runtimes;
mod schedule;
mod secret;
mod service;
mod workflow;

pub use alert::{alert_rule, channel, monitor, ping, silence};
pub use schedule::{calendar, name, note, own_name, schedule};
pub use secret::secret;
pub use service::{replicas, service};
pub use workflow::{definition, workflow, workflow_warnings};

/// Error of one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FieldProblem)]
pub struct Problem {
    /// Path of the field, for example `retry.backoff.factor`.
    pub path: String,
    /// Found value and expected value, without the path.
    pub message: String,
}

/// All errors of an object; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problems.iter().map(|p| format!("{}: {}", p.path, p.message)).collect::<Vec<_>>().join("; "))]
pub struct Invalid {
    /// Errors in the order of the fields.
    pub problems: Vec<Problem>,
}

/// Words that are reserved in URLs of the API, where an object may have its name.
const ROUTE_WORDS: [&str; 5] = ["apply", "import", "preview", "targets", "upcoming"];

#[derive(Default)]
struct Check {
    problems: Vec<Problem>,
}

impl Check {
    fn fail(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem { path: path.into(), message: message.into() });
    }

    fn ensure(&mut self, ok: bool, path: &str, message: impl FnOnce() -> String) {
        if !ok {
            self.fail(path, message());
        }
    }

    fn finish(self) -> Result<(), Invalid> {
        if self.problems.is_empty() { Ok(()) } else { Err(Invalid { problems: self.problems }) }
    }

    fn name(&mut self, path: &str, name: &str) {
        let ok = !name.is_empty()
            && name.len() <= limits::NAME_LEN_MAX
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        self.ensure(ok, path, || {
            format!(
                "`{}` is not a valid name: expected 1 to {} letters, digits, `-`, `_` or `.`, starting with a letter or digit",
                shown(name),
                limits::NAME_LEN_MAX
            )
        });
    }

    /// Checks the name of an object that the API addresses by name or by ID.
    fn own_name(&mut self, name: &str) {
        self.name("name", name);
        self.ensure(!ROUTE_WORDS.contains(&name), "name", || {
            format!("`{name}` is reserved by the API: choose another name")
        });
        self.ensure(name.parse::<ScheduleId>().is_err(), "name", || {
            format!("`{name}` must not have the form of an ID: choose another name")
        });
    }

    fn note(&mut self, path: &str, note: Option<&str>) {
        let length = note.map_or(0, str::len);
        self.ensure(length <= limits::NOTE_LEN_MAX, path, || too_long(length, limits::NOTE_LEN_MAX));
    }

    fn owner(&mut self, owner: Option<&str>) {
        let Some(owner) = owner else { return };
        self.ensure(!owner.is_empty() && owner.len() <= limits::OWNER_LEN_MAX, "owner", || {
            format!("has {} bytes: expected 1 to {}", owner.len(), limits::OWNER_LEN_MAX)
        });
        self.ensure(!owner.chars().any(char::is_control), "owner", || {
            "must not contain control characters".into()
        });
    }

    fn labels(&mut self, path: &str, labels: &BTreeMap<String, String>) {
        self.ensure(labels.len() <= limits::LABELS_MAX, path, || too_many(labels.len(), limits::LABELS_MAX));
        for (key, value) in labels {
            let at = format!("{path}.{}", shown(key));
            self.label_key(&at, key);
            let length = value.chars().count();
            self.ensure(length <= limits::LABEL_LEN_MAX, &at, || {
                format!("has {length} characters: expected at most {}", limits::LABEL_LEN_MAX)
            });
            self.ensure(!value.chars().any(char::is_control), &at, || {
                "must not contain control characters".into()
            });
        }
    }

    /// Checks the key of a label: the syntax of Kubernetes, and letters of other scripts, but not their combining marks.
    fn label_key(&mut self, path: &str, key: &str) {
        let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
        let is_name = name.chars().count() <= limits::LABEL_LEN_MAX
            && name.starts_with(char::is_alphanumeric)
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
        self.ensure(is_name && prefix.is_none_or(is_dns_name), path, || {
            format!(
                "`{}` is not a label key: expected 1 to {} letters, digits, `-`, `_` or `.`, starting with a letter or \
                 digit, with an optional DNS name and `/` before them",
                shown(key),
                limits::LABEL_LEN_MAX
            )
        });
    }

    fn key(&mut self, path: &str, key: &str) {
        self.ensure(!key.is_empty(), path, || "must not be empty".into());
        self.ensure(key.len() <= limits::KEY_LEN_MAX, path, || too_long(key.len(), limits::KEY_LEN_MAX));
        self.ensure(!key.chars().any(char::is_control), path, || {
            "must not contain control characters".into()
        });
    }

    fn at_most(&mut self, path: &str, value: Duration, max: Duration) {
        self.ensure(value <= max, path, || format!("`{value}` is too long: expected at most {max}"));
    }

    fn no_nul(&mut self, path: &str, text: &str) {
        self.ensure(!text.contains('\0'), path, || "must not contain NUL bytes".into());
    }

    /// Checks a path that must stay inside the working directory of the execution.
    fn inner_path(&mut self, at: &str, path: &str) {
        let inside = !path.is_empty()
            && !path.starts_with('/')
            && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        self.ensure(inside, at, || {
            format!(
                "`{}` is outside the working directory of the execution: expected a relative path without `.` and `..`",
                shown(path)
            )
        });
        self.ensure(path.len() <= limits::PATH_LEN_MAX, at, || too_long(path.len(), limits::PATH_LEN_MAX));
        self.no_nul(at, path);
    }

    fn process(&mut self, at: &str, process: &ProcessRun) {
        match (&process.script, process.command.first()) {
            (None, None) => self.fail(at, "expected `command` or `script`"),
            (Some(_), Some(_)) => {
                self.fail(at, "has both `command` and `script`: expected exactly one of them")
            }
            (None, Some(program)) => {
                self.ensure(!program.is_empty(), &format!("{at}.command[0]"), || {
                    "must not be empty: expected a program".into()
                });
            }
            (Some(script), None) => {
                self.ensure(!script.trim().is_empty(), &format!("{at}.script"), || {
                    "must not be empty".into()
                });
                self.no_nul(&format!("{at}.script"), script);
            }
        }
        self.ensure(
            process.script.is_some() || process.interpreter.is_empty(),
            &format!("{at}.interpreter"),
            || "cannot be set without `script`".into(),
        );
        for (list, name) in [(&process.command, "command"), (&process.interpreter, "interpreter")] {
            let at = format!("{at}.{name}");
            self.arguments(&at, list);
        }
        self.sidecars(&format!("{at}.sidecars"), &process.sidecars);
        for (hooks, name) in [(&process.pre_start, "pre_start"), (&process.post_stop, "post_stop")] {
            let at = format!("{at}.{name}");
            self.ensure(hooks.len() <= limits::HOOKS_MAX, &at, || too_many(hooks.len(), limits::HOOKS_MAX));
            for (i, hook) in hooks.iter().enumerate() {
                self.hook(&format!("{at}[{i}]"), hook);
            }
        }
        self.env(&format!("{at}.env"), &process.env);
        if let Some(dir) = &process.working_directory {
            let at = format!("{at}.working_directory");
            self.ensure(!dir.is_empty() && dir.len() <= limits::PATH_LEN_MAX, &at, || {
                format!("has {} bytes: expected a path of 1 to {}", dir.len(), limits::PATH_LEN_MAX)
            });
            self.no_nul(&at, dir);
        }
    }

    fn arguments(&mut self, at: &str, list: &[String]) {
        self.ensure(list.len() <= limits::COMMAND_ARGS_MAX, at, || {
            too_many(list.len(), limits::COMMAND_ARGS_MAX)
        });
        for (i, arg) in list.iter().enumerate() {
            self.no_nul(&format!("{at}[{i}]"), arg);
        }
    }

    /// Checks everything except the names of ports.
    fn sidecars(&mut self, at: &str, sidecars: &[Sidecar]) {
        self.ensure(sidecars.len() <= limits::SIDECARS_MAX, at, || {
            too_many(sidecars.len(), limits::SIDECARS_MAX)
        });
        let mut names = BTreeSet::new();
        for (i, sidecar) in sidecars.iter().enumerate() {
            let at = format!("{at}[{i}]");
            self.name(&format!("{at}.name"), &sidecar.name);
            self.ensure(names.insert(sidecar.name.as_str()), &format!("{at}.name"), || {
                format!("another sidecar has the name `{}`", shown(&sidecar.name))
            });
            self.program(&format!("{at}.command"), &sidecar.command);
            if let Some(SidecarCheck::Command(command)) = &sidecar.ready {
                self.program(&format!("{at}.ready.command"), command);
            }
            for (time, name) in [(sidecar.ready_timeout, "ready_timeout"), (sidecar.grace, "grace")] {
                self.at_most(&format!("{at}.{name}"), time, limits::GRACE_MAX);
            }
        }
    }

    /// Checks the program and the arguments of a command.
    fn program(&mut self, at: &str, command: &[String]) {
        let has_program = command.first().is_some_and(|program| !program.is_empty());
        self.ensure(has_program, at, || "must not be empty: expected a program".into());
        self.arguments(at, command);
    }

    fn hook(&mut self, at: &str, hook: &Hook) {
        self.program(&format!("{at}.command"), &hook.command);
        if let Some(timeout) = hook.timeout {
            self.ensure(timeout > Duration::ZERO, &format!("{at}.timeout"), || {
                "must be greater than 0".into()
            });
        }
    }

    fn env(&mut self, at: &str, env: &BTreeMap<String, String>) {
        self.ensure(env.len() <= limits::ENV_VARS_MAX, at, || too_many(env.len(), limits::ENV_VARS_MAX));
        for (name, value) in env {
            let at = format!("{at}.{}", shown(name));
            self.env_name(&at, name);
            self.ensure(name.len() + value.len() <= limits::ENV_VAR_BYTES_MAX, &at, || {
                too_long(name.len() + value.len(), limits::ENV_VAR_BYTES_MAX)
            });
            self.no_nul(&at, value);
        }
    }

    fn env_name(&mut self, at: &str, name: &str) {
        let well_formed = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        self.ensure(well_formed, at, || {
            "is not a valid environment variable name: expected [A-Za-z_][A-Za-z0-9_]*".into()
        });
        self.ensure(!name.starts_with("BELFRY_") && !name.starts_with("LD_"), at, || {
            "is reserved: Belfry sets `BELFRY_*`, and `LD_*` controls the dynamic linker".into()
        });
    }

    fn backoff(&mut self, at: &str, backoff: &Backoff) {
        let count = backoff.delays.len();
        self.ensure(count <= limits::DELAYS_MAX, &format!("{at}.delays"), || {
            too_many(count, limits::DELAYS_MAX)
        });
        for (i, &delay) in backoff.delays.iter().enumerate().take(limits::DELAYS_MAX) {
            self.at_most(&format!("{at}.delays[{i}]"), delay, limits::BACKOFF_MAX);
        }
        let default = Backoff::default();
        let is_default =
            (backoff.initial, backoff.factor, backoff.max) == (default.initial, default.factor, default.max);
        self.ensure(backoff.delays.is_empty() || is_default, &format!("{at}.delays"), || {
            "cannot be combined with `initial`, `factor` or `max`: omit them, or omit `delays`".into()
        });
        self.at_most(&format!("{at}.initial"), backoff.initial, limits::BACKOFF_MAX);
        self.at_most(&format!("{at}.max"), backoff.max, limits::BACKOFF_MAX);
        self.ensure(backoff.initial <= backoff.max, &format!("{at}.initial"), || {
            format!("`{}` must not be longer than `max` (`{}`)", backoff.initial, backoff.max)
        });
        self.ensure((1.0..=100.0).contains(&backoff.factor), &format!("{at}.factor"), || {
            format!("`{}` is out of range: expected 1 to 100", backoff.factor)
        });
        self.ensure((0.0..=1.0).contains(&backoff.jitter), &format!("{at}.jitter"), || {
            format!("`{}` is out of range: expected 0 to 1", backoff.jitter)
        });
    }

    fn constraint(&mut self, at: &str, constraint: &Constraint) {
        self.label_key(&format!("{at}.label"), &constraint.label);
        let needs_values = matches!(constraint.operator, Operator::In | Operator::NotIn);
        self.ensure(constraint.values.is_empty() != needs_values, &format!("{at}.values"), || {
            if needs_values {
                "must contain at least one value".into()
            } else {
                "must be empty for this operator".into()
            }
        });
        self.ensure(constraint.values.len() <= limits::LABELS_MAX, &format!("{at}.values"), || {
            too_many(constraint.values.len(), limits::LABELS_MAX)
        });
    }
}

/// Whether a text is a DNS name, such as `app.kubernetes.io`.
fn is_dns_name(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    text.len() <= limits::LABEL_PREFIX_LEN_MAX && text.split('.').all(is_part)
}

fn too_many(found: usize, max: usize) -> String {
    format!("has {found} entries: expected at most {max}")
}

fn too_long(found: usize, max: usize) -> String {
    format!("has {found} bytes: expected at most {max}")
}

/// Returns text of a user for a message: at most 64 characters, without control characters.
fn shown(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Checks a job spec beyond its types.
///
/// # Errors
/// Returns [`Invalid`] with all problems, in the order of the fields.
pub fn job(spec: &JobSpec, now: Timestamp) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.name("name", &spec.name);
    check.name("namespace", &spec.namespace);
    check.owner(spec.owner.as_deref());
    check.labels("labels", &spec.labels);
    check.name("queue", &spec.queue);
    check.ensure(spec.priority <= limits::PRIORITY_MAX, "priority", || {
        format!("`{}` is out of range: expected 0 to {}", spec.priority, limits::PRIORITY_MAX)
    });
    if let Some(run_at) = spec.run_at {
        check.ensure(run_at <= now + limits::AHEAD_MAX, "run_at", || {
            format!("`{run_at}` is too far in the future: expected at most {} from now", limits::AHEAD_MAX)
        });
    }
    if let Some(deadline) = spec.start_deadline {
        check.ensure(deadline > Duration::ZERO, "start_deadline", || "must be greater than 0".into());
        check.at_most("start_deadline", deadline, limits::AHEAD_MAX);
    }
    finish_by(&mut check, spec, now);
    upstream(&mut check, spec);
    required_services(&mut check, spec);
    match &spec.run {
        Run::Process(process) => {
            check.process("run.process", process);
            runtimes::sandbox(&mut check, spec, &process.sandbox);
        }
        Run::Container(container) => runtimes::container(&mut check, spec, container),
        Run::Http(http) => runtimes::http(&mut check, spec, http),
    }
    files(&mut check, spec);
    health::ports_and_checks(&mut check, spec);
    volumes(&mut check, spec);
    secret::references(&mut check, spec);
    resources(&mut check, spec);
    check.ensure(spec.constraints.len() <= limits::CONSTRAINTS_MAX, "constraints", || {
        too_many(spec.constraints.len(), limits::CONSTRAINTS_MAX)
    });
    for (i, constraint) in spec.constraints.iter().enumerate() {
        check.constraint(&format!("constraints[{i}]"), constraint);
    }
    if let Some(spread) = &spec.spread {
        if let Some(label) = &spread.over {
            check.label_key("spread.over", label);
        }
        let (max, limit) = (limits::SPREAD_MAX, spread.max_per_worker.unwrap_or(1));
        check.ensure((1..=max).contains(&limit), "spread.max_per_worker", || {
            format!("`{limit}` is out of range: expected 1 to {max}")
        });
    }
    retry(&mut check, spec);
    if let Some(timeout) = spec.timeout {
        check.ensure(timeout > Duration::ZERO, "timeout", || "must be greater than 0".into());
        check.at_most("timeout", timeout, limits::TIMEOUT_MAX);
    }
    check.at_most("grace", spec.grace, limits::GRACE_MAX);
    if let Some(log) = &spec.log {
        let (min, max) = (limits::LOG_SIZE_MIN, limits::LOG_SIZE_MAX);
        check.ensure((min..=max).contains(&log.max_size), "log.max_size", || {
            format!("`{}` is out of range: expected {min} to {max}", log.max_size)
        });
    }
    if let Some(concurrency) = &spec.concurrency {
        check.key("concurrency.key", &concurrency.key);
        check.ensure((1..=limits::CONCURRENCY_MAX).contains(&concurrency.limit), "concurrency.limit", || {
            format!("`{}` is out of range: expected 1 to {}", concurrency.limit, limits::CONCURRENCY_MAX)
        });
    }
    if let Some(key) = &spec.idempotency_key {
        check.key("idempotency_key", key);
    }
    if let Some(retention) = spec.retention {
        check.at_most("retention", retention, limits::RETENTION_MAX);
    }
    check.finish()
}

fn finish_by(check: &mut Check, spec: &JobSpec, now: Timestamp) {
    let Some(FinishBy { at, after, .. }) = spec.finish_by else { return };
    check.ensure(at.is_some() != after.is_some(), "finish_by", || {
        "expected exactly one of `at` and `after`".into()
    });
    if let Some(at) = at {
        if let Some(run_at) = spec.run_at {
            check.ensure(at > run_at, "finish_by.at", || {
                format!("`{at}` is too early: expected a time after `run_at` (`{run_at}`)")
            });
        }
        check.ensure(at <= now + limits::AHEAD_MAX, "finish_by.at", || {
            format!("`{at}` is too far in the future: expected at most {} from now", limits::AHEAD_MAX)
        });
    }
    if let Some(after) = after {
        check.ensure(after > Duration::ZERO, "finish_by.after", || "must be greater than 0".into());
        check.at_most("finish_by.after", after, limits::AHEAD_MAX);
    }
}

fn upstream(check: &mut Check, spec: &JobSpec) {
    let count = spec.after.len();
    check.ensure(count <= limits::UPSTREAM_JOBS_MAX, "after", || too_many(count, limits::UPSTREAM_JOBS_MAX));
    let mut known = BTreeSet::new();
    for (i, upstream) in spec.after.iter().enumerate() {
        check.ensure(known.insert(upstream.job), &format!("after[{i}].job"), || {
            format!("repeats `{}`: expected each job once", upstream.job)
        });
    }
}

fn volumes(check: &mut Check, spec: &JobSpec) {
    let (count, max) = (spec.volumes.len(), limits::VOLUMES_MAX);
    check.ensure(count <= max, "volumes", || too_many(count, max));
    let mut known = BTreeSet::new();
    for (i, Volume { name }) in spec.volumes.iter().enumerate() {
        let at = format!("volumes[{i}].name");
        check.ensure(Volume::is_name(name), &at, || {
            format!(
                "`{}` is not a name of a volume: expected 1 to {} lower-case letters, digits or `-`, starting with a letter",
                shown(name),
                limits::NAME_LEN_MAX
            )
        });
        check.ensure(known.insert(name), &at, || {
            format!("repeats `{}`: expected each volume once", shown(name))
        });
    }
}

fn required_services(check: &mut Check, spec: &JobSpec) {
    let (count, max) = (spec.requires.len(), limits::REQUIRED_SERVICES_MAX);
    check.ensure(count <= max, "requires", || too_many(count, max));
    let mut known = BTreeSet::new();
    for (i, RequiredService { service, min_available }) in spec.requires.iter().enumerate() {
        let at = format!("requires[{i}]");
        check.name(&format!("{at}.service"), service);
        check.ensure(known.insert(service), &format!("{at}.service"), || {
            format!("repeats `{}`: expected each service once", shown(service))
        });
        let max = limits::REPLICAS_MAX;
        check.ensure(*min_available <= max, &format!("{at}.min_available"), || {
            format!("`{min_available}` is out of range: expected 0 to {max}")
        });
    }
}

fn files(check: &mut Check, spec: &JobSpec) {
    for (name, count) in [("inputs", spec.inputs.len()), ("outputs", spec.outputs.len())] {
        check.ensure(count <= limits::FILES_MAX, name, || too_many(count, limits::FILES_MAX));
    }
    for (i, input) in spec.inputs.iter().enumerate() {
        let at = format!("inputs[{i}].artifact");
        let (name, version) = input.artifact.split_once('@').unwrap_or((&input.artifact, ""));
        check.name(&at, name);
        let digest = version.strip_prefix("sha256:");
        let pinned = digest
            .is_some_and(|d| d.len() == 64 && d.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
        check.ensure(version.is_empty() && !input.artifact.contains('@') || pinned, &at, || {
            format!(
                "`{}` is not an artifact reference: expected `NAME` or `NAME@sha256:` and 64 hex digits",
                shown(&input.artifact)
            )
        });
        check.inner_path(&format!("inputs[{i}].path"), &input.path);
    }
    for (i, output) in spec.outputs.iter().enumerate() {
        check.name(&format!("outputs[{i}].artifact"), &output.artifact);
        check.inner_path(&format!("outputs[{i}].path"), &output.path);
    }
}

fn resources(check: &mut Check, spec: &JobSpec) {
    let resources = &spec.resources;
    check.ensure(resources.custom.len() <= limits::CUSTOM_RESOURCES_MAX, "resources.custom", || {
        too_many(resources.custom.len(), limits::CUSTOM_RESOURCES_MAX)
    });
    for name in resources.custom.keys() {
        check.name(&format!("resources.custom.{}", shown(name)), name);
    }
    let limits = &resources.limits;
    for (path, memory) in [("resources.memory", resources.memory), ("resources.limits.memory", limits.memory)]
    {
        if let Some(memory) = memory.filter(|&memory| memory > limits::MEMORY_MAX) {
            check.fail(path, format!("`{memory}` is too large: expected at most {}", limits::MEMORY_MAX));
        }
    }
    for (path, cpu) in [("resources.cpu", resources.cpu), ("resources.limits.cpu", limits.cpu)] {
        if let Some(cpu) = cpu.filter(|&cpu| cpu > limits::CPU_MAX) {
            check.fail(path, format!("`{cpu}` is too large: expected at most {}", limits::CPU_MAX));
        }
    }
    check.ensure(
        limits.memory.is_none_or(|l| l >= resources.memory.unwrap_or(l)),
        "resources.limits.memory",
        || "must not be less than `resources.memory`".into(),
    );
    check.ensure(limits.memory.is_none_or(|l| l.0 >= 1 << 20), "resources.limits.memory", || {
        "must be at least 1MiB: no process can start with less memory".into()
    });
    check.ensure(limits.cpu.is_none_or(|l| l.0 >= 10), "resources.limits.cpu", || {
        "must be at least 10m".into()
    });
    check.ensure(limits.pids.is_none_or(|l| l >= 1), "resources.limits.pids", || "must be at least 1".into());
}

fn retry(check: &mut Check, spec: &JobSpec) {
    let policy = &spec.retry;
    for (path, retries) in [
        ("retry.max_retries", policy.max_retries),
        ("retry.max_start_retries", policy.max_start_retries),
        ("retry.max_lost", policy.max_lost),
    ] {
        check.ensure(retries <= limits::RETRIES_MAX, path, || {
            format!("`{retries}` is too large: expected at most {}", limits::RETRIES_MAX)
        });
    }
    check.backoff("retry.backoff", &policy.backoff);
    for (path, codes) in [
        ("retry.retry_exit_codes", &policy.retry_exit_codes),
        ("retry.final_exit_codes", &policy.final_exit_codes),
    ] {
        check.ensure(codes.len() <= limits::EXIT_CODES_MAX, path, || {
            too_many(codes.len(), limits::EXIT_CODES_MAX)
        });
    }
    if let Some(code) = policy.retry_exit_codes.iter().find(|c| policy.final_exit_codes.contains(c)) {
        check.fail(
            "retry.final_exit_codes",
            format!("`{code}` is also in `retry_exit_codes`: expected each code in one list"),
        );
    }
}

/// Returns why the sandbox of a job excludes one of its fields; `None` if it excludes none. [`job`] checks the same. A
/// namespace may give a job its minimum sandbox after that check.
pub fn sandbox_conflict(spec: &JobSpec) -> Option<String> {
    runtimes::conflict(spec)
}

/// Checks the settings of a queue.
///
/// # Errors
/// Returns [`Invalid`] with all problems.
pub fn queue(name: &str, settings: &QueueSettings) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.name("name", name);
    if let Some(concurrency) = settings.concurrency {
        check.ensure((1..=limits::CONCURRENCY_MAX).contains(&concurrency), "concurrency", || {
            format!(
                "`{concurrency}` is out of range: expected 1 to {}; to stop a queue, pause it",
                limits::CONCURRENCY_MAX
            )
        });
    }
    if let Some(rate) = settings.rate_per_second {
        check.ensure(rate > 0.0 && rate <= 1e6, "rate_per_second", || {
            format!(
                "`{rate}` is out of range: expected more than 0, at most 1000000; to stop a queue, pause it"
            )
        });
    }
    if let Some(burst) = settings.burst.filter(|burst| !(1..=1_000_000).contains(burst)) {
        check.fail("burst", format!("`{burst}` is out of range: expected 1 to 1000000"));
    }
    check.ensure((1..=1_000).contains(&settings.weight), "weight", || {
        format!("`{}` is out of range: expected 1 to 1000", settings.weight)
    });
    for (namespace, weight) in &settings.namespace_weights {
        let at = format!("namespace_weights.{}", shown(namespace));
        check.name(&at, namespace);
        check.ensure((1..=1_000).contains(weight), &at, || {
            format!("`{weight}` is out of range: expected 1 to 1000")
        });
    }
    check.finish()
}

/// Checks the settings of a namespace.
///
/// # Errors
/// All problems, each with the path of its field.
pub fn namespace(name: &str, settings: &NamespaceSettings) -> Result<(), Invalid> {
    let mut check = Check::default();
    check.name("name", name);
    let Quota { cpu, memory, custom, running, jobs } = &settings.quota;
    check
        .ensure(cpu.is_none_or(|cpu| cpu.0 > 0), "quota.cpu", || "`0` is out of range: expected more".into());
    check.ensure(memory.is_none_or(|memory| memory.0 > 0), "quota.memory", || {
        "`0` is out of range: expected more".into()
    });
    check.ensure(custom.len() <= limits::CUSTOM_RESOURCES_MAX, "quota.custom", || {
        format!("has {} resources: expected at most {}", custom.len(), limits::CUSTOM_RESOURCES_MAX)
    });
    for resource in custom.keys() {
        check.name(&format!("quota.custom.{}", shown(resource)), resource);
    }
    if let Some(running) = running.filter(|running| !(1..=limits::CONCURRENCY_MAX).contains(running)) {
        check.fail(
            "quota.running",
            format!("`{running}` is out of range: expected 1 to {}", limits::CONCURRENCY_MAX),
        );
    }
    if let Some(jobs) = jobs.filter(|jobs| !(1..=limits::NAMESPACE_JOBS_MAX).contains(jobs)) {
        check.fail(
            "quota.jobs",
            format!("`{jobs}` is out of range: expected 1 to {}", limits::NAMESPACE_JOBS_MAX),
        );
    }
    let Sandbox { level, network } = settings.sandbox;
    check.ensure(level != SandboxLevel::None || network.is_none(), "sandbox.network", || {
        "needs a sandbox: set `level` to `basic` or `strict`".into()
    });
    let note = settings.note.as_ref().map_or(0, String::len);
    check.ensure(note <= limits::NOTE_LEN_MAX, "note", || {
        format!("has {note} bytes: expected at most {}", limits::NOTE_LEN_MAX)
    });
    check.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Bytes;
    use crate::spec::{Concurrency, InputFile, OutputFile};

    fn problems(change: impl FnOnce(&mut JobSpec)) -> String {
        let mut spec = JobSpec::command(["true"]);
        change(&mut spec);
        match job(&spec, Timestamp::from_millis(0)) {
            Ok(()) => "fine".into(),
            Err(invalid) => invalid.problems.iter().map(|p| format!("{}: {}\n", p.path, p.message)).collect(),
        }
    }

    fn process(spec: &mut JobSpec) -> &mut ProcessRun {
        spec.run.as_process_mut().unwrap()
    }

    #[test]
    fn a_plain_command_is_valid() {
        assert_eq!(problems(|_| {}), "fine");
    }

    #[test]
    fn a_sidecar_has_a_name_a_program_and_a_check_of_a_known_port() {
        use crate::spec::CheckedPort;
        let sidecar = |name: &str, ready: Option<SidecarCheck>| Sidecar {
            name: name.into(),
            command: vec!["postgres".into()],
            ready,
            ready_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(10),
        };
        let tcp = |port| Some(SidecarCheck::Tcp(crate::spec::TcpCheck { port }));
        insta::assert_snapshot!(problems(|spec| {
            process(spec).sidecars = vec![
                sidecar("db", tcp(CheckedPort::Name("db".into()))),
                sidecar("db", tcp(CheckedPort::Number(0))),
                sidecar("cache", Some(SidecarCheck::Command(Vec::new()))),
                Sidecar { command: Vec::new(), ..sidecar("mail", None) },
            ];
        }), @r"
        run.process.sidecars[1].name: another sidecar has the name `db`
        run.process.sidecars[2].ready.command: must not be empty: expected a program
        run.process.sidecars[3].command: must not be empty: expected a program
        run.process.sidecars[0].ready.tcp.port: the job has no port `db`: expected the name of one of `ports`, or a number
        run.process.sidecars[1].ready.tcp.port: must be from 1 to 65535
        ");
        let fine = problems(|spec| {
            spec.ports = vec![crate::spec::Port { name: "db".into(), port: None }];
            process(spec).sidecars = vec![sidecar("db", tcp(CheckedPort::Name("db".into())))];
        });
        assert_eq!(fine, "fine");
    }

    #[test]
    fn a_hook_has_a_program_and_a_positive_timeout() {
        let hook = |command: &[&str], timeout: Option<u64>| Hook {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            timeout: timeout.map(Duration::from_secs),
        };
        insta::assert_snapshot!(problems(|spec| {
            process(spec).pre_start = vec![hook(&["migrate", "--all"], Some(60)), hook(&[], None)];
            process(spec).post_stop = vec![hook(&["clean"], Some(0)), hook(&["a\0"], None)];
        }), @r"
        run.process.pre_start[1].command: must not be empty: expected a program
        run.process.post_stop[0].timeout: must be greater than 0
        run.process.post_stop[1].command[0]: must not contain NUL bytes
        ");
        let many = problems(|spec| process(spec).pre_start = vec![hook(&["x"], None); 17]);
        insta::assert_snapshot!(many, @"run.process.pre_start: has 17 entries: expected at most 16");
    }

    #[test]
    fn volumes_have_names_that_are_environment_variables_too() {
        let volume = |name: &str| Volume { name: name.into() };
        insta::assert_snapshot!(problems(|spec| spec.volumes = ["data", "data", "my data", "Data"].map(volume).into()), @r"
        volumes[1].name: repeats `data`: expected each volume once
        volumes[2].name: `my data` is not a name of a volume: expected 1 to 63 lower-case letters, digits or `-`, starting with a letter
        volumes[3].name: `Data` is not a name of a volume: expected 1 to 63 lower-case letters, digits or `-`, starting with a letter
        ");
        assert_eq!(problems(|spec| spec.volumes = ["data", "my-data2"].map(volume).into()), "fine");
        assert_eq!(volume("my-data2").variable(), "BELFRY_VOLUME_MY_DATA2");
    }

    #[test]
    fn required_services_are_named_once_with_a_possible_number() {
        let required =
            |service: &str, min_available| RequiredService { service: service.into(), min_available };
        let wrong = vec![required("db", 1), required("db", 0), required("no name", 1_001)];
        insta::assert_snapshot!(problems(|spec| spec.requires = wrong), @r"
        requires[1].service: repeats `db`: expected each service once
        requires[2].service: `no name` is not a valid name: expected 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or digit
        requires[2].min_available: `1001` is out of range: expected 0 to 1000
        ");
        assert_eq!(problems(|spec| spec.requires = vec![required("db", 1), required("web", 2)]), "fine");
    }

    /// A job with such resources would wait forever.
    #[test]
    fn resources_above_the_limits_are_rejected() {
        insta::assert_snapshot!(problems(|spec| {
            spec.resources.memory = Some(Bytes(u64::MAX));
            spec.resources.cpu = Some(crate::Millicores(u32::MAX));
        }), @"
        resources.memory: `18446744073709551615B` is too large: expected at most 1024TiB
        resources.cpu: `4294967295m` is too large: expected at most 1000000
        ");
        assert_eq!(problems(|spec| spec.resources.memory = Some(limits::MEMORY_MAX)), "fine");
    }

    #[test]
    fn all_mistakes_are_reported_at_once_with_their_paths() {
        insta::assert_snapshot!(problems(|spec| {
            spec.name = "pay roll".into();
            spec.namespace = String::new();
            spec.priority = 101;
            spec.run_at = Some(Timestamp::MAX);
            process(spec).script = Some("echo".into());
            process(spec).env.insert("1X".into(), String::new());
            process(spec).env.insert("LD_PRELOAD".into(), "x.so".into());
            spec.inputs.push(InputFile { artifact: "tool@v1".into(), path: "../tool".into(), executable: true });
            spec.outputs.push(OutputFile { artifact: "out".into(), path: "/etc/passwd".into(), optional: false });
            spec.resources.memory = Some(Bytes(2 << 20));
            spec.resources.limits.memory = Some(Bytes(1 << 20));
            spec.constraints.push(Constraint { label: "zone".into(), operator: Operator::In, values: vec![] });
            spec.retry.max_retries = 5_000;
            spec.retry.backoff.factor = 0.5;
            spec.retry.retry_exit_codes = vec![3];
            spec.retry.final_exit_codes = vec![3];
            spec.timeout = Some(Duration::ZERO);
            spec.concurrency = Some(Concurrency { key: String::new(), limit: 0 });
        }), @"
        name: `pay roll` is not a valid name: expected 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or digit
        namespace: `` is not a valid name: expected 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter or digit
        priority: `101` is out of range: expected 0 to 100
        run_at: `9999-12-30T22:00:00.999999999Z` is too far in the future: expected at most 3660d from now
        run.process: has both `command` and `script`: expected exactly one of them
        run.process.env.1X: is not a valid environment variable name: expected [A-Za-z_][A-Za-z0-9_]*
        run.process.env.LD_PRELOAD: is reserved: Belfry sets `BELFRY_*`, and `LD_*` controls the dynamic linker
        inputs[0].artifact: `tool@v1` is not an artifact reference: expected `NAME` or `NAME@sha256:` and 64 hex digits
        inputs[0].path: `../tool` is outside the working directory of the execution: expected a relative path without `.` and `..`
        outputs[0].path: `/etc/passwd` is outside the working directory of the execution: expected a relative path without `.` and `..`
        resources.limits.memory: must not be less than `resources.memory`
        constraints[0].values: must contain at least one value
        retry.max_retries: `5000` is too large: expected at most 1000
        retry.backoff.factor: `0.5` is out of range: expected 1 to 100
        retry.final_exit_codes: `3` is also in `retry_exit_codes`: expected each code in one list
        timeout: must be greater than 0
        concurrency.key: must not be empty
        concurrency.limit: `0` is out of range: expected 1 to 1000000
        ");
    }

    /// A5.
    #[test]
    fn a_label_has_the_syntax_of_kubernetes_or_letters_of_other_scripts() {
        let with =
            |key: &str, value: &str| problems(|spec| drop(spec.labels.insert(key.into(), value.into())));
        for key in ["team", "城市", "app.kubernetes.io/name", "x/部门_1.a-b", &"é".repeat(63)] {
            assert_eq!(with(key, &"值".repeat(63)), "fine", "{key}");
        }
        for key in ["", "-a", "a b", "/a", "a/", "A/b", "a..b/c", "-a/b", "a/b/c", "a=b", &"a".repeat(64)] {
            assert!(with(key, "").contains("is not a label key"), "{key}");
        }
        assert!(with("a", &"值".repeat(64)).contains("has 64 characters: expected at most 63"));
        assert!(with("a", "\n").contains("control characters"));
    }

    #[test]
    fn a_process_needs_exactly_one_of_command_and_script() {
        insta::assert_snapshot!(problems(|spec| process(spec).command.clear()), @"run.process: expected `command` or `script`");
        assert_eq!(
            problems(|spec| {
                process(spec).command.clear();
                process(spec).script = Some("echo hi".into());
                process(spec).interpreter = vec!["/bin/bash".into()];
            }),
            "fine"
        );
    }

    #[test]
    fn a_sandbox_excludes_what_would_be_outside() {
        use crate::spec::{Sandbox, SandboxLevel, SandboxNetwork};
        let with = |level, network, change: &dyn Fn(&mut JobSpec)| {
            problems(|spec| {
                process(spec).sandbox = Sandbox { level, network };
                change(spec);
            })
        };
        let ports = |spec: &mut JobSpec| {
            spec.ports = vec![crate::spec::Port { name: "http".into(), port: None }];
        };
        let (basic, strict) = (SandboxLevel::Basic, SandboxLevel::Strict);
        assert_eq!(with(basic, None, &ports), "fine");
        assert_eq!(with(strict, Some(SandboxNetwork::Host), &ports), "fine");
        assert!(with(strict, None, &ports).starts_with("ports: cannot be combined with the network `none`"));
        let command = |spec: &mut JobSpec| {
            let check = serde_json::json!({"liveness": {"command": ["true"]}});
            spec.health = serde_json::from_value(check).unwrap();
        };
        assert!(with(basic, None, &command).starts_with("health.liveness: has a `command`"));
        let no_level = with(SandboxLevel::None, Some(SandboxNetwork::None), &|_| {});
        assert!(no_level.starts_with("run.process.sandbox.network: needs a sandbox"), "{no_level}");
    }

    #[test]
    fn paths_must_stay_in_the_working_directory() {
        for path in ["", "/a", "a/../b", "..", "a//b", "./a", "a/", "a\0b"] {
            let found = problems(|spec| {
                spec.outputs.push(OutputFile { artifact: "a".into(), path: path.into(), optional: false });
            });
            assert!(found.starts_with("outputs[0].path: "), "{path}: {found}");
        }
    }

    #[test]
    fn text_from_users_is_cut_and_cleaned_in_messages() {
        let found = problems(|spec| spec.name = format!("\u{1b}[31m{}", "x".repeat(500)));
        assert!(!found.contains('\u{1b}') && found.len() < 300, "{found}");
    }

    #[test]
    fn quotas_must_be_above_zero() {
        let quota = Quota {
            cpu: Some(crate::Millicores(0)),
            running: Some(0),
            jobs: Some(0),
            custom: [("g p u".to_owned(), 1)].into(),
            ..Quota::default()
        };
        let settings = NamespaceSettings { quota, ..NamespaceSettings::default() };
        let paths: Vec<_> =
            namespace("n", &settings).unwrap_err().problems.into_iter().map(|problem| problem.path).collect();
        assert_eq!(paths, ["quota.cpu", "quota.custom.g p u", "quota.running", "quota.jobs"]);
        assert!(namespace("n", &NamespaceSettings::default()).is_ok());
    }

    #[test]
    fn queue_limits_must_be_above_zero() {
        let settings =
            QueueSettings { concurrency: Some(0), rate_per_second: Some(0.0), ..Default::default() };
        insta::assert_snapshot!(queue("q", &settings).unwrap_err(), @"concurrency: `0` is out of range: expected 1 to 1000000; to stop a queue, pause it; rate_per_second: `0` is out of range: expected more than 0, at most 1000000; to stop a queue, pause it");
    }
}
