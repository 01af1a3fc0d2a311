//! Builds a plan from a server, with read requests and the permissions of the caller.
//!
//! [`Source::fill`] reads schedules, calendars, services, queues and workers. [`Source::complete`] then adds the
//! workflows that the schedules start, and the run history of their jobs; it runs again after files have
//! added schedules. The run history of a schedule comes from its track record, that of a job in a workflow
//! from its latest jobs.
//!
//! Costs one request per page of schedules, per calendar, per workflow and per job of a workflow; at most
//! [`REQUESTS_MAX`] requests run at once. Offline, nothing is read.

use std::collections::BTreeSet;

use client::{Client, JobFilter, Page, ScheduleFilter, ServiceFilter, WorkerFilter, WorkflowRef};
use forecast::{Plan, QualifiedName, RunHistory, RunTimes, Schedule, Service, Worker};
use futures::stream::{StreamExt as _, TryStreamExt as _};
use model::api::{Job, ScheduleStatistics};
use model::schedule::Action;
use model::worker::WorkerStatus;
use model::workflow;
use model::{JobStatus, WorkflowSpec};

use super::super::apply::optional;
use crate::failure::Failure;

/// Maximum page size of the API.
const PAGE: usize = model::limits::PAGE_MAX;
/// Number of recent jobs of one name from which the run time is estimated.
const SAMPLE_JOBS_MAX: usize = 100;
/// Maximum number of concurrent requests.
const REQUESTS_MAX: usize = 8;

/// Source of a plan.
#[expect(clippy::large_enum_variant, reason = "there is only one value in each command")]
pub(super) enum Source {
    Server(Client),
    /// No server: files only.
    Offline,
}

impl Source {
    /// Adds schedules, calendars, services, queues and workers to the plan. `namespace` selects schedules only, because the
    /// services of all namespaces use the workers.
    pub(super) async fn fill(
        &mut self,
        plan: &mut Plan,
        namespace: Option<&str>,
        note: impl Fn(&str),
    ) -> Result<(), Failure> {
        let Self::Server(client) = self else { return Ok(()) };
        schedules(client, plan, namespace).await?;
        let calendars = client.calendars(None).await?.into_iter().filter(|calendar| !calendar.built_in);
        let calendars = calendars.map(|calendar| {
            let client = client.clone();
            async move { client.calendar(&calendar.name, calendar.namespace.as_deref()).await }
        });
        let calendars: Vec<_> = futures::stream::iter(calendars).buffered(REQUESTS_MAX).try_collect().await?;
        plan.calendars =
            calendars.into_iter().filter_map(|calendar| calendar.spec.map(|spec| *spec)).collect();
        let filter = ServiceFilter { specs: true, ..ServiceFilter::default() };
        let services: Vec<_> = match client.services(filter).try_collect().await {
            // The caller has no right to read services, or the server is older.
            Err(error) if matches!(error.status(), Some(400 | 403)) => {
                note(&format!("note: without services: {error}"));
                Vec::new()
            }
            found => found?,
        };
        let live = services.into_iter().filter(|service| !service.deleting);
        plan.services = live
            .filter_map(|service| Some(Service { spec: *service.spec?, replicas: service.replicas }))
            .collect();
        plan.services
            .sort_by(|a, b| (&a.spec.namespace, &a.spec.name).cmp(&(&b.spec.namespace, &b.spec.name)));
        let queues: Vec<_> = client.queues().try_collect().await?;
        let set_up = queues.into_iter().filter(|queue| queue.version > 0);
        plan.queues = set_up.map(|queue| (queue.name, queue.settings)).collect();
        let workers: Vec<_> = client.workers(WorkerFilter::default()).try_collect().await?;
        let there = workers.into_iter().filter(|worker| worker.status != WorkerStatus::Lost);
        plan.workers = there
            .map(|worker| Worker {
                name: worker.name,
                labels: worker.labels,
                capacity: worker.capacity,
                capabilities: worker.capabilities,
                admission: worker.admission,
            })
            .collect();
        plan.workers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(())
    }

    /// Adds the workflows that the schedules start, and the run history of the jobs of these workflows.
    pub(super) async fn complete(&mut self, plan: &mut Plan) -> Result<(), Failure> {
        let Self::Server(client) = self else { return Ok(()) };
        workflows(client, plan).await?;
        let names: BTreeSet<QualifiedName> = plan.workflows.iter().flat_map(jobs_of).collect();
        let unknown = names.into_iter().filter(|name| !plan.history.jobs.contains_key(name));
        let pasts = unknown.map(|name| {
            let client = client.clone();
            async move { past_of_jobs(&client, &name).await.map(|past| Some((name, past?))) }
        });
        let pasts: Vec<_> =
            futures::stream::iter(pasts.collect::<Vec<_>>()).buffered(REQUESTS_MAX).try_collect().await?;
        plan.history.jobs.extend(pasts.into_iter().flatten());
        Ok(())
    }
}

async fn schedules(client: &Client, plan: &mut Plan, namespace: Option<&str>) -> Result<(), Failure> {
    let filter =
        ScheduleFilter { namespace: namespace.map(str::to_owned), specs: true, ..ScheduleFilter::default() };
    let mut page = Page { limit: Some(PAGE), cursor: None };
    loop {
        let list = client.schedules_page(&filter, &page).await?;
        for schedule in list.items {
            let Some(spec) = schedule.spec else { continue };
            if let Some(past) = past_of(&schedule.statistics) {
                plan.history.schedules.insert(QualifiedName::new(schedule.namespace, schedule.name), past);
            }
            plan.schedules.push(Schedule {
                spec: *spec,
                status: schedule.status,
                pause: schedule.pause,
                fired: schedule.fired,
                streak: schedule.statistics.streak,
            });
        }
        let Some(cursor) = list.next_cursor else { break };
        page.cursor = Some(cursor);
    }
    // Sorted, so that the order does not depend on the creation times.
    plan.schedules.sort_by(|a, b| (&a.spec.namespace, &a.spec.name).cmp(&(&b.spec.namespace, &b.spec.name)));
    Ok(())
}

/// Returns the run history of a schedule; `None` before its first successful run.
fn past_of(statistics: &ScheduleStatistics) -> Option<RunHistory> {
    let known = [
        (10, statistics.duration_p10),
        (50, statistics.duration_p50),
        (90, statistics.duration_p90),
        (95, statistics.duration_p95),
        (99, statistics.duration_p99),
    ];
    let known: Vec<_> = known.into_iter().filter_map(|(percent, time)| Some((percent, time?))).collect();
    let failed = statistics.success_rate.map_or(0.0, |succeeded| 1.0 - succeeded);
    Some(RunHistory { run_times: RunTimes::of_percentiles(&known)?, failed })
}

/// Adds all workflows that schedules start, and the workflows that these call.
async fn workflows(client: &Client, plan: &mut Plan) -> Result<(), Failure> {
    let name_of = |spec: &WorkflowSpec| (spec.namespace.clone(), spec.name.clone());
    let mut seen: BTreeSet<_> = plan.workflows.iter().map(name_of).collect();
    let started = plan.schedules.iter().filter_map(|schedule| match &schedule.spec.action {
        Action::Workflow(call) => Some((schedule.spec.namespace.clone(), call.name.clone())),
        Action::Job(_) => None,
    });
    let mut wanted: Vec<_> = started.chain(plan.workflows.iter().flat_map(called_by)).collect();
    while let Some((namespace, name)) = wanted.pop() {
        if !seen.insert((namespace.clone(), name.clone())) {
            continue;
        }
        let named = WorkflowRef { name, namespace: Some(namespace) };
        let spec = optional(client.workflow(&named, None).await)?.and_then(|workflow| workflow.spec);
        let Some(spec) = spec else { continue };
        wanted.extend(called_by(&spec));
        plan.workflows.push(*spec);
    }
    Ok(())
}

fn steps(spec: &WorkflowSpec) -> impl Iterator<Item = &workflow::StepSpec> {
    spec.steps.iter().chain(&spec.on_failure).chain(&spec.finally)
}

fn called_by(spec: &WorkflowSpec) -> Vec<(String, String)> {
    let called = steps(spec).filter_map(|step| match &step.action {
        workflow::Action::Workflow(call) => Some((spec.namespace.clone(), call.name.clone())),
        _ => None,
    });
    called.collect()
}

fn jobs_of(spec: &WorkflowSpec) -> Vec<QualifiedName> {
    let jobs = steps(spec).filter_map(|step| match &step.action {
        workflow::Action::Job(job) => Some(QualifiedName::new(job.namespace.as_str(), job.name.as_str())),
        _ => None,
    });
    jobs.collect()
}

async fn past_of_jobs(client: &Client, name: &QualifiedName) -> Result<Option<RunHistory>, client::Error> {
    let filter = JobFilter {
        status: vec![JobStatus::Succeeded, JobStatus::Failed],
        namespace: Some(name.namespace.clone()),
        name: Some(name.name.clone()),
        ..JobFilter::default()
    };
    let page = Page { limit: Some(SAMPLE_JOBS_MAX), cursor: None };
    Ok(past_of_samples(&client.jobs_page(&filter, &page).await?.items))
}

#[expect(clippy::cast_precision_loss, reason = "a share of a hundred")]
fn past_of_samples(jobs: &[Job]) -> Option<RunHistory> {
    let took = |job: &Job| Some(job.finished_at?.since(job.started_at?));
    let good: Vec<_> =
        jobs.iter().filter(|job| job.status == JobStatus::Succeeded).filter_map(took).collect();
    let failed = jobs.iter().filter(|job| job.status == JobStatus::Failed).count();
    let failed = failed as f64 / jobs.len().max(1) as f64;
    Some(RunHistory { run_times: RunTimes::of_samples(&good)?, failed })
}
