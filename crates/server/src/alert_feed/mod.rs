//! Evaluation of alerts on the leader: follows the feed of events, calls the core when it is time, and delivers.
//!
//! The leader loads all rows, evaluates the events after the stored position, and then each batch of new events. The core
//! also gets the time, samples of queues and workers, and what the events do not tell: rows of jobs, the live jobs, the
//! paused schedules and the degraded services.
//!
//! - `excerpt`: the last lines of logs, for messages.
//!
//! # Invariants
//! - A slow or failing channel delays neither evaluation nor other channels.
//! - No two deliveries of a notification run at the same time.

mod excerpt;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alerts::message::Message;
use alerts::target::{Refused, Retry};
use alerts::{Attempt, Due, Facts, JobFacts, LiveJob, Phase, Sample};
use model::error_chain::Chain;
use model::firing::ScheduleStatus;
use model::record::Event;
use model::worker::WorkerStatus;
use model::{ExecutionStatus, JobId, JobStatus};
use store::query::{ExecutionFilter, JobFilter, JobRow, Page, ScheduleFilter, ServiceFilter};
use store::{EventSeq, StoreError};
use tokio::sync::broadcast::error::RecvError;

use crate::alerts::{AlertError, AlertService};
use crate::node::Readiness;
use crate::services::Services;

/// Delay before the rows are loaded again after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Interval of sampling queues and workers.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Most events that are read from the store at a time.
const CHUNK: usize = 500;
/// Most rows of jobs that are read at a time.
const JOBS_CHUNK: usize = 500;
/// Most live jobs of a phase in a namespace that are watched after a load.
const LIVE_MAX: usize = 200_000;
/// Longest time of reading logs for a notification.
const EXCERPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait between two calls of the core.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Evaluates alerts while this server leads, until the future is dropped.
pub(crate) async fn run(services: Services) {
    let service = Arc::clone(&services.alerts);
    let mut load = 0;
    loop {
        services.node.wait_ready(|readiness| matches!(readiness, Readiness::Ready | Readiness::Full)).await;
        load += 1;
        let leading = Leading { services: services.clone(), service: Arc::clone(&service), load };
        let ended = tokio::select! {
            ended = leading.follow() => ended,
            () = services.node.leadership_ended() => Ok(()),
        };
        service.unload().await;
        // Only the leader has open alerts.
        services.metrics.set_alerts(|_| 0);
        match ended {
            Ok(()) => {}
            Err(AlertError::Superseded) => {
                tracing::info!("another server changed alerts; loading them again")
            }
            Err(error) => tracing::warn!(error = %Chain(&error), "cannot evaluate alerts; retrying"),
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// One load of the rows, and what follows.
#[derive(Clone)]
struct Leading {
    services: Services,
    service: Arc<AlertService>,
    load: u64,
}

impl Leading {
    async fn follow(self) -> Result<(), AlertError> {
        let mut live = self.services.node.events();
        self.service.load(self.load).await?;
        self.catch_up().await?;
        let mut rules = self.rules_version().await?;
        self.watch_live().await?;
        self.pass_paused().await?;
        self.pass_degraded().await?;
        let mut sampled = tokio::time::interval(SAMPLE_INTERVAL);
        loop {
            let wait = self.turn().await?;
            tokio::select! {
                batch = live.recv() => match batch {
                    Ok(batch) => {
                        let reached = self.position().await?;
                        match batch.first.0 <= reached + 1 {
                            true => self.observe(batch.iter().map(|(at, event)| (at.0, event)).collect()).await?,
                            false => self.catch_up().await?,
                        }
                    }
                    Err(RecvError::Lagged(_)) => self.catch_up().await?,
                    Err(RecvError::Closed) => return Ok(()),
                },
                () = self.service.changed.notified() => {
                    let newest = self.rules_version().await?;
                    if newest != rules {
                        rules = newest;
                        self.watch_live().await?;
                        self.pass_paused().await?;
                        self.pass_degraded().await?;
                    }
                }
                _ = sampled.tick() => self.sample().await?,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Passes the time to the core, and begins what is to be delivered. Returns the time until the next call.
    async fn turn(&self) -> Result<Duration, AlertError> {
        let (now, needed) = self.with(|alerts, now| (now, alerts.needs_at(now))).await?;
        let facts = self.facts(needed).await?;
        // The time of `needs_at`: a later timer needs other rows.
        self.with(|alerts, _| alerts.advance(now, &facts)).await?;
        // Everything is written: what is due may be sent.
        for due in self.with(|alerts, now| alerts.due(now)).await? {
            match InFlight::begin(&self.service, due.notification) {
                Some(in_flight) => drop(tokio::spawn(self.clone().deliver(due, in_flight))),
                // A delivery that began under an earlier load has not ended.
                None => self.with(|alerts, now| alerts.not_begun(now, due.notification)).await?,
            }
        }
        let wait = |alerts: &alerts::Alerts, now| match alerts.wakeup() {
            // Rounded up, because a shorter wait ends before the timer is due.
            Some(at) => (at.since(now).to_std() + Duration::from_millis(1)).min(WAIT_MAX),
            None => WAIT_MAX,
        };
        self.service.read(wait).await
    }

    async fn with<T>(
        &self,
        act: impl FnOnce(&mut alerts::Alerts, model::Timestamp) -> T,
    ) -> Result<T, AlertError> {
        self.service.with(Some(self.load), act).await
    }

    async fn position(&self) -> Result<u64, AlertError> {
        self.service.read(|alerts, _| alerts.position().unwrap_or(0)).await
    }

    /// Returns a number that changes with the rules.
    async fn rules_version(&self) -> Result<u64, AlertError> {
        self.service.read(|alerts, _| alerts.rules_version()).await
    }

    /// Evaluates the events that the store has after the stored position.
    async fn catch_up(&self) -> Result<(), AlertError> {
        let store = self.services.node.store();
        loop {
            let position = self.service.read(|alerts, _| alerts.position()).await?;
            let Some(position) = position else {
                // The first start: earlier events are not evaluated.
                let newest = store.events(EventSeq(u64::MAX), 1).await?.newest.0;
                return self.with(|alerts, _| alerts.begin_at(newest)).await;
            };
            let page = store.events(EventSeq(position), CHUNK).await?;
            if position + 1 < page.oldest.0 || position > page.newest.0 {
                tracing::warn!(
                    position,
                    oldest = page.oldest.0,
                    newest = page.newest.0,
                    "alerts missed events that are no longer stored"
                );
                let next =
                    if position > page.newest.0 { page.newest.0 } else { page.oldest.0.saturating_sub(1) };
                self.with(|alerts, _| alerts.begin_at(next)).await?;
                continue;
            }
            if page.events.is_empty() {
                return Ok(());
            }
            self.observe(page.events.iter().map(|(at, event)| (at.0, event)).collect()).await?;
        }
    }

    async fn observe(&self, events: Vec<(u64, &Event)>) -> Result<(), AlertError> {
        let needed =
            self.service.read(|alerts, _| alerts.needs(events.iter().map(|(_, event)| *event))).await?;
        let facts = self.facts(needed).await?;
        self.with(|alerts, now| alerts.observe(now, events.into_iter(), &facts)).await
    }

    async fn facts(&self, jobs: Vec<JobId>) -> Result<Facts, StoreError> {
        let mut facts = Facts::new();
        for ids in jobs.chunks(JOBS_CHUNK) {
            let filter = JobFilter { ids: ids.to_vec(), ..JobFilter::default() };
            let page = Page { after: None, limit: ids.len() };
            let rows = self.services.node.store().jobs(&filter, page).await?.items;
            facts.extend(rows.iter().filter_map(|row| Some((row.id, facts_of(row)?))));
        }
        Ok(facts)
    }

    /// Passes the live jobs of the watched namespaces to the core.
    async fn watch_live(&self) -> Result<(), AlertError> {
        let (mut live, mut is_complete) = (Vec::new(), true);
        for namespace in self.service.read(|alerts, _| alerts.watched_namespaces(Phase::Waiting)).await? {
            is_complete &= self.add_waiting(&namespace, &mut live).await?;
            is_complete &= self.add_executing(&namespace, Phase::Waiting, &mut live).await?;
        }
        for namespace in self.service.read(|alerts, _| alerts.watched_namespaces(Phase::Running)).await? {
            is_complete &= self.add_executing(&namespace, Phase::Running, &mut live).await?;
        }
        if !is_complete {
            tracing::warn!(
                jobs = live.len(),
                "too many live jobs: alerts watch only some of them until they change"
            );
        }
        self.with(|alerts, now| alerts.watch_live(now, live, is_complete)).await
    }

    /// Adds jobs in queues. Returns whether these were all.
    async fn add_waiting(&self, namespace: &str, live: &mut Vec<LiveJob>) -> Result<bool, StoreError> {
        let statuses = vec![JobStatus::Waiting];
        let filter = JobFilter { namespace: Some(namespace.to_owned()), statuses, ..JobFilter::default() };
        let mut page = Page { after: None, limit: JOBS_CHUNK };
        for _ in 0..LIVE_MAX / JOBS_CHUNK {
            let found = self.services.node.store().jobs(&filter, page).await?;
            page.after = found.items.last().map(|job| job.id);
            live.extend(found.items.iter().map(|job| LiveJob {
                id: job.id,
                namespace: namespace.to_owned(),
                phase: Phase::Waiting,
                // A job that returned to its queue keeps its first due time, but has waited only since its last change.
                since: if job.state.executions == 0 { job.state.due_at } else { job.state.updated_at },
            }));
            if !found.more || page.after.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds jobs with an execution that is assigned ([`Phase::Waiting`]) or running. Returns whether these were all.
    async fn add_executing(
        &self,
        namespace: &str,
        phase: Phase,
        live: &mut Vec<LiveJob>,
    ) -> Result<bool, StoreError> {
        let status = match phase {
            Phase::Waiting => ExecutionStatus::Assigned,
            Phase::Running => ExecutionStatus::Running,
        };
        let filter = ExecutionFilter {
            namespace: Some(namespace.to_owned()),
            statuses: vec![status],
            ..ExecutionFilter::default()
        };
        let mut page = Page { after: None, limit: JOBS_CHUNK };
        for _ in 0..LIVE_MAX / JOBS_CHUNK {
            let found = self.services.node.store().executions(&filter, page).await?;
            page.after = found.items.last().map(|row| row.record.id);
            live.extend(found.items.iter().map(|row| LiveJob {
                id: row.record.job,
                namespace: namespace.to_owned(),
                phase,
                since: row.record.started_at.unwrap_or(row.record.assigned_at),
            }));
            if !found.more || page.after.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Passes the paused schedules of the namespaces with such rules to the core.
    async fn pass_paused(&self) -> Result<(), AlertError> {
        let mut paused = Vec::new();
        for namespace in self.service.read(|alerts, _| alerts.namespaces_of_paused()).await? {
            let filter = ScheduleFilter {
                namespace: Some(namespace.clone()),
                status: Some(ScheduleStatus::Paused),
                ..ScheduleFilter::default()
            };
            let mut page = Page { after: None, limit: JOBS_CHUNK };
            loop {
                let found = self.services.node.store().schedules(&filter, page).await?;
                page.after = found.items.last().map(|row| row.id);
                paused.extend(found.items.iter().map(|row| {
                    (namespace.clone(), model::spec::name_in(&row.body).to_owned(), row.id.to_string())
                }));
                if !found.more || page.after.is_none() {
                    break;
                }
            }
        }
        self.with(|alerts, now| alerts.paused(now, &paused)).await
    }

    /// Passes the degraded services of the namespaces with such rules to the core.
    async fn pass_degraded(&self) -> Result<(), AlertError> {
        let mut degraded = Vec::new();
        for namespace in self.service.read(|alerts, _| alerts.namespaces_of_degraded()).await? {
            let filter = ServiceFilter { namespace: Some(namespace.clone()), ..ServiceFilter::default() };
            let mut page = Page { after: None, limit: JOBS_CHUNK };
            loop {
                let found = self.services.node.store().services(&filter, page).await?;
                page.after = found.items.last().map(|row| row.id);
                let lacking = found
                    .items
                    .iter()
                    .filter(|row| row.state.counts.available < row.state.replicas && !row.state.deleting);
                degraded.extend(lacking.map(|row| (namespace.clone(), row.head.spec.name.clone(), row.id)));
                if !found.more || page.after.is_none() {
                    break;
                }
            }
        }
        self.with(|alerts, now| alerts.degraded(now, degraded)).await
    }

    async fn sample(&self) -> Result<(), AlertError> {
        let counts = self.service.read(|alerts, _| alerts.open_counts()).await?;
        self.services.metrics.set_alerts(|severity| counts.get(&severity).copied().unwrap_or(0));
        if !self.service.read(|alerts, _| alerts.wants_samples()).await? {
            return Ok(());
        }
        let view = self.services.node.view();
        let queues = view.queues.iter().filter_map(|queue| Some((queue.name.clone(), queue.oldest?)));
        let statuses: BTreeMap<_, _> = view.workers.iter().map(|worker| (worker.id, worker.status)).collect();
        let status = |id| statuses.get(&id).copied().unwrap_or(WorkerStatus::Expected);
        let workers = self.services.node.store().workers().await?;
        let sample = Sample {
            queues: queues.collect(),
            workers: workers.iter().map(|it| (it.id.to_string(), it.name.clone(), status(it.id))).collect(),
        };
        self.with(|alerts, now| alerts.sample(now, &sample)).await
    }

    /// Delivers one notification, and records the result.
    async fn deliver(self, due: Due, _in_flight: InFlight) {
        let Due { notification, sealed, channel, message } = due;
        let namespace = message.namespace.clone();
        let attempt = tokio::spawn(self.clone().attempt(sealed, channel.clone(), message));
        // A panic must not keep the channel busy.
        let result = attempt.await.unwrap_or_else(|error| Err(later(format!("the server failed: {error}"))));
        self.services.metrics.notification(result.is_ok());
        if let Err(refused) = &result {
            let error = &refused.reason;
            tracing::warn!(notification, namespace, channel, error, "notification not delivered");
        }
        let attempt = result.map_or_else(Attempt::Refused, |()| Attempt::Delivered);
        // Also in a state that was loaded meanwhile: the notification still waits there. Without a state, it is sent again.
        let recorded =
            self.service.with(None, |alerts, now| alerts.delivered(now, notification, attempt)).await;
        if let Err(error) = recorded {
            tracing::warn!(notification, error = %Chain(&error), "cannot record a delivery; it may be repeated");
        }
    }

    async fn attempt(self, sealed: String, channel: String, mut message: Message) -> Result<(), Refused> {
        let target = self.service.open(&message.namespace, &channel, &sealed).map_err(later)?;
        // The log is a bonus: a slow disk must not hold the message back.
        let completed = tokio::time::timeout(EXCERPT_TIMEOUT, self.complete(&mut message)).await;
        if completed.is_err() {
            tracing::debug!(notification = message.id, "reading the logs for a notification took too long");
        }
        self.service.send(&target, &message).await
    }

    /// Adds the last lines of logs, and the address of the dashboard.
    async fn complete(&self, message: &mut Message) {
        message.dashboard.clone_from(&self.service.public_url);
        for item in message.items.iter_mut().filter(|item| !item.resolved).take(3) {
            let Some(job) = item.job else { continue };
            let filter = ExecutionFilter { job: Some(job), ..ExecutionFilter::default() };
            let found = self.services.node.store().executions(&filter, Page { after: None, limit: 1 }).await;
            let Some(newest) = found.ok().and_then(|page| page.items.into_iter().next()) else { continue };
            item.log = excerpt::of(&self.services.objects.logs, newest.record.id).await;
        }
    }
}

/// A delivery that has begun; it ends when this is dropped, which wakes the loop.
struct InFlight {
    service: Arc<AlertService>,
    notification: u64,
}

impl InFlight {
    /// Returns `None` if the notification is already in flight.
    fn begin(service: &Arc<AlertService>, notification: u64) -> Option<Self> {
        let is_new = lock(&service.in_flight).insert(notification);
        is_new.then(|| Self { service: Arc::clone(service), notification })
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        lock(&self.service.in_flight).remove(&self.notification);
        self.service.changed.notify_one();
    }
}

fn lock(in_flight: &Mutex<BTreeSet<u64>>) -> MutexGuard<'_, BTreeSet<u64>> {
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
}

fn later(reason: String) -> Refused {
    Refused { reason, retry: Retry::Later }
}

fn facts_of(row: &JobRow) -> Option<JobFacts> {
    let spec: model::spec::Summary = serde_json::from_str(&row.body).ok()?;
    let error = row.state.outcome.as_deref().and_then(|outcome| {
        let message = outcome.message.as_deref().or(outcome.error.as_deref())?;
        Some(message.chars().take(500).collect())
    });
    Some(JobFacts { name: spec.name, owner: spec.owner, queue: spec.queue, labels: spec.labels, error })
}
