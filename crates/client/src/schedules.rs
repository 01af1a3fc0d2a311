//! Schedules, their ledgers and their backfills.
//!
//! A schedule creates a job or a run at each scheduled time. The ledger has an entry for each scheduled time: the
//! job or run, or the reason why there is none. A backfill runs the scheduled times of a past range.
//!
//! A [`ScheduleRef`] names a schedule by id, or by name and namespace.

use model::api::{
    AppliedSchedules, Backfill, BackfillPlan, CancelBackfill, Ledger, LedgerEntry, List, PauseSchedule,
    Preview, PreviewSchedule, Schedule, StartBackfill, TriggerSchedule, TriggeredSchedule, Upcoming,
};
use model::firing::{FiringCause, FiringOutcome, ScheduleStatus};
use model::{BackfillId, ScheduleId, ScheduleSpec, Timestamp};
use serde::Serialize;

use crate::error::Error;
use crate::http::{Client, Request};
use crate::jobs::random_key;
use crate::page::{self, Items, Page};

/// Reference to a schedule: by id, or by name and namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRef {
    /// Id or name.
    pub name: String,
    /// Namespace of the name; `None` for `default`. Ignored for an id.
    pub namespace: Option<String>,
}

impl From<ScheduleId> for ScheduleRef {
    fn from(id: ScheduleId) -> Self {
        Self { name: id.to_string(), namespace: None }
    }
}

impl ScheduleRef {
    fn get(&self, verbs: &[&str]) -> Request {
        self.scoped(Request::get(self.path(verbs)))
    }

    fn post(&self, verbs: &[&str]) -> Request {
        self.scoped(Request::post(self.path(verbs)))
    }

    fn path<'a>(&'a self, verbs: &[&'a str]) -> Vec<&'a str> {
        [&["schedules", self.name.as_str()], verbs].concat()
    }

    fn scoped(&self, request: Request) -> Request {
        // An id already determines the namespace.
        let by_name = self.name.parse::<ScheduleId>().is_err();
        request.query_opt("namespace", self.namespace.as_ref().filter(|_| by_name))
    }
}

/// Filter for schedules. By default it selects all schedules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScheduleFilter {
    /// Status.
    pub status: Option<ScheduleStatus>,
    /// Owner.
    pub owner: Option<String>,
    /// Namespace; `None` selects all namespaces.
    pub namespace: Option<String>,
    /// Part of the name.
    pub text: Option<String>,
    /// Labels, of which the schedule must have all.
    pub labels: Vec<(String, String)>,
    /// Time before which the next firing must be.
    pub due_before: Option<Timestamp>,
    /// Whether to return the specs.
    pub specs: bool,
}

impl ScheduleFilter {
    fn request(&self, page: &Page) -> Request {
        let request = Request::get(["schedules"])
            .query_opt("status", self.status.map(ScheduleStatus::as_str))
            .query_opt("owner", self.owner.as_ref())
            .query_opt("namespace", self.namespace.as_ref())
            .query_opt("text", self.text.as_ref())
            .query_opt("due_before", self.due_before)
            .query_opt("specs", self.specs.then_some(true))
            .page(page);
        self.labels.iter().fold(request, |r, (key, value)| r.query("label", format!("{key}={value}")))
    }
}

/// Filter for entries of a ledger. By default it selects all entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerFilter {
    /// Outcomes; an empty list selects all.
    pub outcome: Vec<FiringOutcome>,
    /// Causes; an empty list selects all.
    pub cause: Vec<FiringCause>,
    /// Backfill.
    pub backfill_id: Option<BackfillId>,
    /// Start of the range of scheduled times, inclusive.
    pub from: Option<Timestamp>,
    /// End of the range of scheduled times, exclusive.
    pub until: Option<Timestamp>,
}

impl LedgerFilter {
    fn query(&self, request: Request) -> Request {
        let outcomes: Vec<_> = self.outcome.iter().map(|o| o.as_str()).collect();
        let causes: Vec<_> = self.cause.iter().map(ToString::to_string).collect();
        request
            .query_opt("outcome", (!outcomes.is_empty()).then(|| outcomes.join(",")))
            .query_opt("cause", (!causes.is_empty()).then(|| causes.join(",")))
            .query_opt("backfill_id", self.backfill_id)
            .query_opt("from", self.from)
            .query_opt("until", self.until)
    }
}

#[derive(Serialize)]
struct Batch<'a> {
    schedules: &'a [ScheduleSpec],
}

impl Client {
    /// Creates a schedule, or replaces its spec. An equal spec changes nothing.
    ///
    /// With `version`, the request fails unless the stored schedule has this version; `Some(0)` requires that it does
    /// not exist.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec` and `version_mismatch`.
    pub async fn put_schedule(&self, spec: &ScheduleSpec, version: Option<u64>) -> Result<Schedule, Error> {
        let request = Request::put(["schedules", &spec.name]).query("namespace", &spec.namespace).json(spec);
        self.json(match version {
            Some(0) => request.header("if-none-match", "*").once(),
            version => request.if_match(version),
        })
        .await
    }

    /// Validates a schedule and returns it with all defaults, without storing it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn put_schedule_dry_run(&self, spec: &ScheduleSpec) -> Result<ScheduleSpec, Error> {
        let request = Request::put(["schedules", &spec.name]).query("namespace", &spec.namespace);
        self.json(request.query("dry_run", true).json(spec)).await
    }

    /// Creates a schedule.
    ///
    /// The request is not retried if its outcome is unknown.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec` and `schedule_exists`.
    ///
    /// ```no_run
    /// # async fn example(belfry: client::Client) -> Result<(), client::Error> {
    /// use model::timing::{Cron, Rule, Timing};
    ///
    /// let timing = Timing { rules: vec![Rule::Cron(Cron::new("0 2 * * *"))], ..Timing::default() };
    /// let job = model::JobSpec::command(["make", "report"]);
    /// let schedule = belfry.create_schedule(&model::ScheduleSpec::new("nightly", timing, job)).await?;
    /// println!("next run: {:?}", schedule.next_at);
    /// # Ok(()) }
    /// ```
    pub async fn create_schedule(&self, spec: &ScheduleSpec) -> Result<Schedule, Error> {
        self.json(Request::post(["schedules"]).json(spec)).await
    }

    /// Creates schedules or replaces their specs, in one transaction. Returns the change of each schedule.
    ///
    /// With `dry_run`, nothing is stored.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn apply_schedules(
        &self,
        schedules: &[ScheduleSpec],
        dry_run: bool,
    ) -> Result<AppliedSchedules, Error> {
        let request = Request::post(["schedules", "apply"]).json(&Batch { schedules }).repeatable();
        self.json(request.query_opt("dry_run", dry_run.then_some(true))).await
    }

    /// Returns a schedule with its spec, its statistics and its health.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `schedule_not_found`.
    pub async fn schedule(&self, schedule: &ScheduleRef) -> Result<Schedule, Error> {
        self.json(schedule.get(&[])).await
    }

    /// Returns one page of schedules, newest first. Specs are included only with [`ScheduleFilter::specs`].
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn schedules_page(
        &self,
        filter: &ScheduleFilter,
        page: &Page,
    ) -> Result<List<Schedule>, Error> {
        self.json(filter.request(page)).await
    }

    /// Streams all schedules that match the filter, newest first.
    pub fn schedules(&self, filter: ScheduleFilter) -> Items<Schedule> {
        let (client, filter) = (self.clone(), std::sync::Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.schedules_page(&filter, &page).await }
        })
    }

    /// Deletes a schedule. Its jobs and runs continue; its backfills are cancelled.
    ///
    /// With `version`, the request fails unless the schedule still has this version.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `schedule_not_found` and `version_mismatch`.
    pub async fn delete_schedule(&self, schedule: &ScheduleRef, version: Option<u64>) -> Result<(), Error> {
        self.send_ignoring_body(schedule.scoped(Request::delete(schedule.path(&[]))).if_match(version)).await
    }

    /// Pauses a schedule: its firings are skipped until it is resumed.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `schedule_not_found`.
    pub async fn pause_schedule(
        &self,
        schedule: &ScheduleRef,
        note: Option<&str>,
    ) -> Result<Schedule, Error> {
        let body = PauseSchedule { note: note.map(str::to_owned) };
        self.json(schedule.post(&["pause"]).json(&body).repeatable()).await
    }

    /// Resumes a paused schedule. Skipped firings stay skipped.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `schedule_not_found`.
    pub async fn resume_schedule(&self, schedule: &ScheduleRef) -> Result<Schedule, Error> {
        self.json(schedule.post(&["resume"]).repeatable()).await
    }

    /// Triggers a schedule now, in addition to its scheduled times. Retries of the request trigger it once.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `schedule_not_found` and `schedule_run_limit`.
    pub async fn trigger_schedule(
        &self,
        schedule: &ScheduleRef,
        how: &TriggerSchedule,
    ) -> Result<TriggeredSchedule, Error> {
        let key = format!("\"{}\"", random_key());
        self.json(schedule.post(&["trigger"]).json(how).header("idempotency-key", &key).repeatable()).await
    }

    /// Returns the next `count` firings of a schedule after `from`, or after now.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `schedule_not_found` and `invalid_parameter`.
    pub async fn next_firings(
        &self,
        schedule: &ScheduleRef,
        count: usize,
        from: Option<Timestamp>,
    ) -> Result<Preview, Error> {
        self.json(schedule.get(&["next"]).query("count", count).query_opt("from", from)).await
    }

    /// Returns the next firings of a timing, without storing it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn preview_schedule(&self, draft: &PreviewSchedule) -> Result<Preview, Error> {
        self.json(Request::post(["schedules", "preview"]).json(draft).repeatable()).await
    }

    /// Returns the firings of all schedules until a time, in order of time. The result may end earlier; see
    /// [`Upcoming::until`].
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn upcoming_firings(
        &self,
        namespace: Option<&str>,
        until: Timestamp,
    ) -> Result<Upcoming, Error> {
        let request = Request::get(["schedules", "upcoming"]).query("until", until);
        self.json(request.query_opt("namespace", namespace)).await
    }

    /// Returns one page of the ledger of a schedule, latest scheduled time first.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `schedule_not_found`.
    pub async fn ledger_page(
        &self,
        schedule: &ScheduleRef,
        filter: &LedgerFilter,
        page: &Page,
    ) -> Result<Ledger, Error> {
        self.json(filter.query(schedule.get(&["ledger"])).page(page)).await
    }

    /// Streams all entries of the ledger of a schedule that match the filter, latest scheduled time first.
    pub fn ledger(&self, schedule: ScheduleRef, filter: LedgerFilter) -> Items<LedgerEntry> {
        let (client, asked) = (self.clone(), std::sync::Arc::new((schedule, filter)));
        page::all(move |page| {
            let (client, asked) = (client.clone(), asked.clone());
            async move {
                let Ledger { items, next_cursor, .. } = client.ledger_page(&asked.0, &asked.1, &page).await?;
                Ok(List { items, next_cursor })
            }
        })
    }

    /// Returns the number of scheduled times per outcome, from `from` on.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `schedule_not_found`.
    pub async fn ledger_counts(
        &self,
        schedule: &ScheduleRef,
        from: Option<Timestamp>,
    ) -> Result<std::collections::BTreeMap<FiringOutcome, u64>, Error> {
        let request = schedule.get(&["ledger"]).query("counts", true).query("limit", 1);
        let ledger: Ledger = self.json(request.query_opt("from", from)).await?;
        Ok(ledger.counts.unwrap_or_default())
    }

    /// Starts a backfill of a past range of a schedule.
    ///
    /// The request is not retried if its outcome is unknown.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `schedule_not_found`, `nothing_to_backfill` and
    /// `backfill_limit`.
    pub async fn start_backfill(
        &self,
        schedule: &ScheduleRef,
        range: &StartBackfill,
    ) -> Result<Backfill, Error> {
        self.json(schedule.post(&["backfills"]).json(range)).await
    }

    /// Returns the runs that a backfill would start, and the scheduled times that it would skip, without starting it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `schedule_not_found`.
    pub async fn plan_backfill(
        &self,
        schedule: &ScheduleRef,
        range: &StartBackfill,
    ) -> Result<BackfillPlan, Error> {
        self.json(schedule.post(&["backfills"]).query("dry_run", true).json(range).repeatable()).await
    }

    /// Returns one page of backfills, newest first.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn backfills_page(
        &self,
        schedule: Option<ScheduleId>,
        namespace: Option<&str>,
        page: &Page,
    ) -> Result<List<Backfill>, Error> {
        let request = Request::get(["backfills"]).query_opt("schedule_id", schedule);
        self.json(request.query_opt("namespace", namespace).page(page)).await
    }

    /// Streams all backfills, newest first; with `schedule`, only those of this schedule.
    pub fn backfills(&self, schedule: Option<ScheduleId>, namespace: Option<String>) -> Items<Backfill> {
        let (client, namespace) = (self.clone(), std::sync::Arc::new(namespace));
        page::all(move |page| {
            let (client, namespace) = (client.clone(), namespace.clone());
            async move { client.backfills_page(schedule, namespace.as_deref(), &page).await }
        })
    }

    /// Returns a backfill.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `backfill_not_found`.
    pub async fn backfill(&self, id: BackfillId) -> Result<Backfill, Error> {
        self.json(Request::get(["backfills", &id.to_string()])).await
    }

    /// Cancels a backfill: no further run starts. With `cancel_runs`, its runs that have not ended are cancelled too.
    ///
    /// The request is not retried if its outcome is unknown.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `backfill_not_found` and `backfill_ended`.
    pub async fn cancel_backfill(&self, id: BackfillId, cancel_runs: bool) -> Result<Backfill, Error> {
        let request = Request::post(["backfills", &id.to_string(), "cancel"]);
        self.json(request.json(&CancelBackfill { cancel_runs })).await
    }
}
