//! `belfry apply` and `belfry diff`: apply the definitions in files to the server, or show what would change.
//!
//! - `documents`: parses files into objects and reports all errors together.
//! - `secrets`: secrets of channels and values of secrets, from the environment or from files.
//! - `diff`: formats the changes of an object as a unified diff.
//!
//! Calendars are applied first, then queues, secrets, channels, alert rules, monitors, services, workflows and schedules, because
//! later kinds refer to earlier ones. All workflows are applied in one transaction, because they may call each other; services
//! and schedules are applied in transactions of at most [`SERVICES_AT_ONCE`] and [`SCHEDULES_AT_ONCE`]. Objects that were applied before an error stay applied. Applying the same files again
//! is idempotent.

pub(super) mod diff;
pub(super) mod documents;
mod secrets;

use std::collections::BTreeSet;

use client::Client;
use model::alert::{AlertRuleSpec, ChannelSpec, MonitorSpec};
use model::api::{AppliedSchedules, AppliedServices, AppliedWorkflows, ApplyChange};
use model::calendar::{CalendarSpec, CalendarStep, Days};
use model::queue::QueueSettings;
use model::secret::SecretSpec;
use model::timing::{Filter, Timing};
use model::{ScheduleSpec, ServiceSpec, WorkflowSpec};

use self::documents::{Document, Object, read};
pub(super) use self::secrets::trimmed;
use super::schedules::with_carets;
use super::{Context, schedules, workflows};
use crate::args::schedule::{ApplyArgs, DiffArgs};
use crate::failure::{Exit, Failure};
use crate::output::schedules::AppliedObject;

/// Maximum number of schedules in a request; well below the size limit of a request for schedules of usual size.
const SCHEDULES_AT_ONCE: usize = 2_000;
/// Maximum number of services in a request.
const SERVICES_AT_ONCE: usize = model::limits::BATCH_SERVICES_MAX;

pub(super) async fn run(context: &Context, args: ApplyArgs) -> Result<(), Failure> {
    apply(context, args, None).await
}

/// Applies documents of one kind, which may omit the key `kind`.
pub(super) async fn run_kind(context: &Context, args: ApplyArgs, kind: &'static str) -> Result<(), Failure> {
    apply(context, args, Some(kind)).await
}

async fn apply(context: &Context, args: ApplyArgs, kind: Option<&'static str>) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let documents = read(&args.files, &namespace, kind)?;
    let mut work = Applier { client, dry_run: args.dry_run, new_calendars: BTreeSet::new() };
    let mut done = Vec::new();
    let result = work.all(&documents, &mut done).await;
    if !done.is_empty() {
        context.out.list(&done, "objects")?;
        warn(context, &done);
    }
    if args.dry_run {
        context.out.note("dry run: no changes were made");
    }
    result
}

fn warn(context: &Context, done: &[AppliedObject]) {
    let of = |kind: &'static str| {
        let found = done.iter().filter(move |object| object.kind == kind);
        found.map(|object| (&object.name, &object.warnings))
    };
    workflows::warn(context.out, of("workflow"));
    schedules::warn(context.out, of("schedule"));
}

/// Sorts calendars so that each comes after the calendars of the files that it refers to. Calendars in a cycle keep
/// their order.
fn in_order<'a>(mut waiting: Vec<(&'a Document, &'a CalendarSpec)>) -> Vec<(&'a Document, &'a CalendarSpec)> {
    let mut order = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let names: BTreeSet<&str> = waiting.iter().map(|(_, spec)| spec.name.as_str()).collect();
        let ready = waiting.iter().position(|(_, spec)| {
            spec.steps.iter().filter_map(refers_to).all(|name| name == spec.name || !names.contains(name))
        });
        order.push(waiting.remove(ready.unwrap_or(0)));
    }
    order
}

fn refers_to(step: &CalendarStep) -> Option<&str> {
    match step {
        CalendarStep::Include(Days::Calendar(name)) | CalendarStep::Exclude(Days::Calendar(name)) => {
            Some(name)
        }
        _ => None,
    }
}

struct Applier {
    client: Client,
    dry_run: bool,
    /// Namespaces and names of the calendars that a dry run would create.
    new_calendars: BTreeSet<(String, String)>,
}

impl Applier {
    async fn all(&mut self, documents: &[Document], done: &mut Vec<AppliedObject>) -> Result<(), Failure> {
        let (mut calendars, mut queues, mut secrets) = (Vec::new(), Vec::new(), Vec::new());
        let (mut channels, mut rules, mut monitors) = (Vec::new(), Vec::new(), Vec::new());
        let (mut services, mut workflows, mut schedules) = (Vec::new(), Vec::new(), Vec::new());
        for document in documents {
            match &document.object {
                Object::Calendar(spec) => calendars.push((document, spec)),
                Object::Queue { name, settings } => queues.push((document, name, settings)),
                Object::Channel(spec) => channels.push((document, spec.as_ref())),
                Object::AlertRule(spec) => rules.push((document, spec.as_ref())),
                Object::Monitor(spec) => monitors.push((document, spec.as_ref())),
                Object::Secret(spec) => secrets.push((document, spec.as_ref())),
                Object::Service(spec) => services.push((document, spec.as_ref())),
                Object::Workflow(spec) => workflows.push((document, spec.as_ref())),
                Object::Schedule(spec) => schedules.push((document, spec.as_ref())),
            }
        }
        for (document, spec) in in_order(calendars) {
            let change = self.calendar(spec).await.map_err(|error| with_document(document, error))?;
            let namespace = Some(spec.namespace.clone());
            let (name, warnings) = (spec.name.clone(), Vec::new());
            done.push(AppliedObject { kind: "calendar", name, namespace, change, warnings });
        }
        for (document, name, settings) in queues {
            let change = self.queue(name, settings).await.map_err(|error| with_document(document, error))?;
            let (name, warnings) = (name.clone(), Vec::new());
            done.push(AppliedObject { kind: "queue", name, namespace: None, change, warnings });
        }
        for (document, spec) in secrets {
            let change = self.secret(spec).await.map_err(|error| with_document(document, error))?;
            let (name, namespace) = (spec.name.clone(), Some(spec.namespace.clone()));
            done.push(AppliedObject { kind: "secret", name, namespace, change, warnings: Vec::new() });
        }
        for (document, spec) in channels {
            let change = self.channel(spec).await.map_err(|error| with_document(document, error))?;
            let (name, namespace) = (spec.name.clone(), Some(spec.namespace.clone()));
            done.push(AppliedObject { kind: "channel", name, namespace, change, warnings: Vec::new() });
        }
        for (document, spec) in rules {
            let change = self.alert_rule(spec).await.map_err(|error| with_document(document, error))?;
            let (name, namespace) = (spec.name.clone(), Some(spec.namespace.clone()));
            done.push(AppliedObject { kind: "alert", name, namespace, change, warnings: Vec::new() });
        }
        for (document, spec) in monitors {
            let change = self.monitor(spec).await.map_err(|error| with_document(document, error))?;
            let (name, namespace) = (spec.name.clone(), Some(spec.namespace.clone()));
            done.push(AppliedObject { kind: "monitor", name, namespace, change, warnings: Vec::new() });
        }
        for batch in services.chunks(SERVICES_AT_ONCE) {
            done.extend(self.services(batch).await?);
        }
        if !workflows.is_empty() {
            done.extend(self.workflows(&workflows).await?);
        }
        for batch in schedules.chunks(SCHEDULES_AT_ONCE) {
            done.extend(self.schedules(batch).await?);
        }
        Ok(())
    }

    async fn calendar(&mut self, spec: &CalendarSpec) -> Result<ApplyChange, client::Error> {
        let change = match optional(self.client.calendar(&spec.name, Some(&spec.namespace)).await)? {
            None => ApplyChange::Created,
            Some(calendar) if calendar.spec.as_deref() == Some(spec) => return Ok(ApplyChange::Unchanged),
            Some(_) => ApplyChange::Changed,
        };
        if !self.dry_run {
            self.client.put_calendar(spec, None).await?;
            return Ok(change);
        }
        let names_new =
            spec.steps.iter().filter_map(refers_to).any(|name| self.is_new(&spec.namespace, name));
        if !names_new {
            self.client.put_calendar_dry_run(spec).await?;
        }
        if change == ApplyChange::Created {
            self.new_calendars.insert((spec.namespace.clone(), spec.name.clone()));
        }
        Ok(change)
    }

    fn is_new(&self, namespace: &str, name: &str) -> bool {
        self.new_calendars.contains(&(namespace.to_owned(), name.to_owned()))
    }

    async fn queue(&self, name: &str, settings: &QueueSettings) -> Result<ApplyChange, client::Error> {
        let change = match optional(self.client.queue(name).await)? {
            Some(queue) if queue.version > 0 && queue.settings == *settings => {
                return Ok(ApplyChange::Unchanged);
            }
            Some(queue) if queue.version > 0 => ApplyChange::Changed,
            _ => ApplyChange::Created,
        };
        if !self.dry_run {
            self.client.set_queue(name, settings, None).await?;
        }
        Ok(change)
    }

    /// Applies a channel. Only the server can tell whether its secrets differ; a dry run compares everything else.
    async fn channel(&self, spec: &ChannelSpec) -> Result<ApplyChange, client::Error> {
        let before = optional(self.client.channel(&spec.namespace, &spec.name).await)?;
        if self.dry_run {
            let wanted = self.client.put_channel_dry_run(spec).await?;
            return Ok(match before {
                None => ApplyChange::Created,
                Some(before) if before.spec == wanted => ApplyChange::Unchanged,
                Some(_) => ApplyChange::Changed,
            });
        }
        let after = self.client.put_channel(spec).await?;
        Ok(changed(before.map(|before| before.version), after.version))
    }

    /// Applies a secret. Only the server can tell whether its values differ; a dry run compares everything else.
    async fn secret(&self, spec: &SecretSpec) -> Result<ApplyChange, client::Error> {
        let before = optional(self.client.secret(&spec.namespace, &spec.name).await)?;
        if self.dry_run {
            let wanted = self.client.put_secret_dry_run(spec).await?;
            return Ok(match before {
                None => ApplyChange::Created,
                Some(before) if before.spec == wanted => ApplyChange::Unchanged,
                Some(_) => ApplyChange::Changed,
            });
        }
        let after = self.client.put_secret(spec).await?;
        Ok(changed(before.map(|before| before.version), after.version))
    }

    async fn alert_rule(&self, spec: &AlertRuleSpec) -> Result<ApplyChange, client::Error> {
        let before = optional(self.client.alert_rule(&spec.namespace, &spec.name).await)?;
        if self.dry_run {
            self.client.put_alert_rule_dry_run(spec).await?;
            return Ok(match before {
                None => ApplyChange::Created,
                Some(before) if before.spec == *spec => ApplyChange::Unchanged,
                Some(_) => ApplyChange::Changed,
            });
        }
        let after = self.client.put_alert_rule(spec).await?;
        Ok(changed(before.map(|before| before.version), after.version))
    }

    async fn monitor(&self, spec: &MonitorSpec) -> Result<ApplyChange, client::Error> {
        let before = optional(self.client.monitor(&spec.namespace, &spec.name).await)?;
        if self.dry_run {
            self.client.put_monitor_dry_run(spec).await?;
            return Ok(match before {
                None => ApplyChange::Created,
                Some(before) if before.spec == *spec => ApplyChange::Unchanged,
                Some(_) => ApplyChange::Changed,
            });
        }
        let after = self.client.put_monitor(spec).await?;
        Ok(changed(before.map(|before| before.version), after.version))
    }

    /// Applies all workflows in one request, so that they may call each other.
    async fn workflows(&self, all: &[(&Document, &WorkflowSpec)]) -> Result<Vec<AppliedObject>, Failure> {
        let specs = all.iter().map(|(_, spec)| (*spec).clone()).collect();
        let AppliedWorkflows { workflows } = self
            .client
            .apply_workflows(specs, self.dry_run)
            .await
            .map_err(|error| located(all, "workflows", error))?;
        Ok(workflows.into_iter().map(AppliedObject::from).collect())
    }

    async fn services(&self, batch: &[(&Document, &ServiceSpec)]) -> Result<Vec<AppliedObject>, Failure> {
        let specs = batch.iter().map(|(_, spec)| (*spec).clone()).collect();
        let applied = self.client.apply_services(specs, self.dry_run).await;
        let AppliedServices { services } = applied.map_err(|error| located(batch, "services", error))?;
        Ok(services.into_iter().map(AppliedObject::from).collect())
    }

    async fn schedules(&self, batch: &[(&Document, &ScheduleSpec)]) -> Result<Vec<AppliedObject>, Failure> {
        let mut stripped = vec![false; batch.len()];
        let mut specs: Vec<ScheduleSpec> = batch.iter().map(|(_, spec)| (*spec).clone()).collect();
        if self.dry_run {
            for (spec, stripped) in specs.iter_mut().zip(&mut stripped) {
                *stripped = self.strip_new_calendars(spec);
            }
        }
        let applied = self.client.apply_schedules(&specs, self.dry_run).await;
        let AppliedSchedules { schedules: applied } =
            applied.map_err(|error| with_documents(batch, error))?;
        let objects = applied.into_iter().zip(stripped).map(|(applied, stripped)| {
            let mut object = AppliedObject::from(applied);
            if stripped && object.change == ApplyChange::Unchanged {
                object.change = ApplyChange::Changed;
            }
            object
        });
        Ok(objects.collect())
    }

    /// Removes references to calendars that a dry run would create. The server does not have these calendars yet, and
    /// would reject the schedule before it checks the rest. Returns whether a reference was removed.
    fn strip_new_calendars(&self, spec: &mut ScheduleSpec) -> bool {
        let Timing { only, exclude, roll, .. } = &mut spec.timing;
        let before = (only.len(), exclude.len(), roll.is_some());
        let namespace = &spec.namespace;
        let is_known = |filter: &Filter| match filter {
            Filter::Calendar(name) => !self.is_new(namespace, name),
            _ => true,
        };
        only.retain(is_known);
        exclude.retain(is_known);
        if roll.as_ref().is_some_and(|roll| self.is_new(namespace, &roll.calendar)) {
            *roll = None;
        }
        before != (only.len(), exclude.len(), roll.is_some())
    }
}

/// Compares the versions of an object before and after a request.
fn changed(before: Option<u64>, after: u64) -> ApplyChange {
    match before {
        None => ApplyChange::Created,
        Some(before) if before == after => ApplyChange::Unchanged,
        Some(_) => ApplyChange::Changed,
    }
}

/// Returns `None` for a `404` error.
pub(super) fn optional<T>(result: Result<T, client::Error>) -> Result<Option<T>, client::Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Converts an error about one document: the paths of its fields get the name of the document.
fn with_document(document: &Document, error: client::Error) -> Failure {
    let mut failure = Failure::from(error);
    for field in failure.fields_mut() {
        field.path = document.location(&field.path);
    }
    failure
}

/// Converts an error about several objects: a path such as `services[3].job…` becomes a path in its document.
fn located<T>(all: &[(&Document, &T)], list: &str, error: client::Error) -> Failure {
    let mut failure = Failure::from(error);
    for field in failure.fields_mut() {
        if let Some((document, _, path)) = object_at(all, list, &field.path) {
            field.path = document.location(&path);
        }
    }
    failure
}

/// Converts an error about several schedules: a path such as `schedules[3].timing…` becomes a path in its document.
fn with_documents(batch: &[(&Document, &ScheduleSpec)], error: client::Error) -> Failure {
    let mut failure = Failure::from(error);
    let mut expressions = std::collections::BTreeMap::new();
    for field in failure.fields_mut() {
        let Some((document, spec, path)) = object_at(batch, "schedules", &field.path) else { continue };
        let place = document.location(&path);
        if let Some(expression) = schedules::expression(&spec.timing, &path) {
            expressions.insert(place.clone(), expression);
        }
        field.path = place;
    }
    with_carets(failure, |path| expressions.get(path).cloned())
}

/// Returns the object of a list in a request that a path refers to, and the rest of the path.
fn object_at<'a, T>(
    all: &'a [(&'a Document, &'a T)],
    list: &str,
    path: &str,
) -> Option<(&'a Document, &'a T, String)> {
    let (index, rest) = path.strip_prefix(list)?.strip_prefix('[')?.split_once(']')?;
    let (document, spec) = all.get(index.parse::<usize>().ok()?)?;
    Some((document, spec, rest.trim_start_matches('.').to_owned()))
}

pub(super) async fn diff(context: &Context, args: DiffArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let documents = read(&args.files, &namespace, None)?;
    // A dry run first: invalid definitions are reported instead of a diff.
    let mut work = Applier { client: client.clone(), dry_run: true, new_calendars: BTreeSet::new() };
    let mut would = Vec::new();
    work.all(&documents, &mut would).await?;
    let mut differs = false;
    for document in &documents {
        let (current, wanted) = diff::sides(&client, &document.object).await?;
        let text = diff::unified(&document.object.title(), &current, &wanted, context.out.look.color);
        differs |= !text.is_empty();
        context.out.data(text)?;
    }
    warn(context, &would);
    if differs { Err(Failure::silent(Exit::Failed)) } else { Ok(()) }
}
