//! Schedules: apply, find, pause, trigger, look ahead and back; and backfills of them.

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

/// A schedule by its id, or by its name in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRef {
    /// Its id or its name.
    pub name: String,
    /// Where the name is looked for; the server's default where absent.
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
        // An id says its namespace already.
        let by_name = self.name.parse::<ScheduleId>().is_err();
        request.query_opt("namespace", self.namespace.as_ref().filter(|_| by_name))
    }
}

/// Which schedules; the default is all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScheduleFilter {
    /// With this status.
    pub status: Option<ScheduleStatus>,
    /// Of this owner.
    pub owner: Option<String>,
    /// Of this namespace.
    pub namespace: Option<String>,
    /// With this text in the name.
    pub text: Option<String>,
    /// With all of these labels.
    pub labels: Vec<(String, String)>,
    /// Whose next firing is before this time.
    pub due_before: Option<Timestamp>,
    /// Whether each is told with its spec.
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

/// Which lines of a fire ledger; the default is all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerFilter {
    /// With one of these outcomes; any where empty.
    pub outcome: Vec<FiringOutcome>,
    /// From one of these causes; any where empty.
    pub cause: Vec<FiringCause>,
    /// Of this backfill.
    pub backfill_id: Option<BackfillId>,
    /// Whose nominal instant is at or after this time.
    pub from: Option<Timestamp>,
    /// Whose nominal instant is before this time.
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
    /// Creates a schedule or gives it a new spec; nothing changes if it has this one.
    ///
    /// With `version`, only if it is still that one; 0 stands for a schedule that does not exist.
    ///
    /// # Errors
    /// As every request.
    pub async fn put_schedule(&self, spec: &ScheduleSpec, version: Option<u64>) -> Result<Schedule, Error> {
        let request = Request::put(["schedules", &spec.name]).query("namespace", &spec.namespace).json(spec);
        self.json(match version {
            Some(0) => request.header("if-none-match", "*").once(),
            version => request.if_match(version),
        })
        .await
    }

    /// The spec as it would be stored, with every default; nothing is stored.
    ///
    /// # Errors
    /// As every request.
    pub async fn put_schedule_dry_run(&self, spec: &ScheduleSpec) -> Result<ScheduleSpec, Error> {
        let request = Request::put(["schedules", &spec.name]).query("namespace", &spec.namespace);
        self.json(request.query("dry_run", true).json(spec)).await
    }

    /// Creates a schedule; refused if there is one of its name.
    ///
    /// # Errors
    /// As every request.
    pub async fn create_schedule(&self, spec: &ScheduleSpec) -> Result<Schedule, Error> {
        self.json(Request::post(["schedules"]).json(spec)).await
    }

    /// Creates schedules or gives them new specs, all or none; says what was done to each.
    ///
    /// # Errors
    /// As every request.
    pub async fn apply_schedules(
        &self,
        schedules: &[ScheduleSpec],
        dry_run: bool,
    ) -> Result<AppliedSchedules, Error> {
        let request = Request::post(["schedules", "apply"]).json(&Batch { schedules }).repeatable();
        self.json(request.query_opt("dry_run", dry_run.then_some(true))).await
    }

    /// One schedule, with its spec and its health.
    ///
    /// # Errors
    /// As every request.
    pub async fn schedule(&self, schedule: &ScheduleRef) -> Result<Schedule, Error> {
        self.json(schedule.get(&[])).await
    }

    /// One page of schedules, newest first, with their specs only where the filter wants them.
    ///
    /// # Errors
    /// As every request.
    pub async fn schedules_page(
        &self,
        filter: &ScheduleFilter,
        page: &Page,
    ) -> Result<List<Schedule>, Error> {
        self.json(filter.request(page)).await
    }

    /// All schedules that the filter lets through, newest first.
    pub fn schedules(&self, filter: ScheduleFilter) -> Items<Schedule> {
        let (client, filter) = (self.clone(), std::sync::Arc::new(filter));
        page::all(move |page| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.schedules_page(&filter, &page).await }
        })
    }

    /// Forgets a schedule; its runs go on.
    ///
    /// # Errors
    /// As every request.
    pub async fn delete_schedule(&self, schedule: &ScheduleRef, version: Option<u64>) -> Result<(), Error> {
        self.done(schedule.scoped(Request::delete(schedule.path(&[]))).if_match(version)).await
    }

    /// Skips the firings of a schedule until it is resumed.
    ///
    /// # Errors
    /// As every request.
    pub async fn pause_schedule(
        &self,
        schedule: &ScheduleRef,
        note: Option<&str>,
    ) -> Result<Schedule, Error> {
        let body = PauseSchedule { note: note.map(str::to_owned) };
        self.json(schedule.post(&["pause"]).json(&body).repeatable()).await
    }

    /// Lets a paused schedule fire again.
    ///
    /// # Errors
    /// As every request.
    pub async fn resume_schedule(&self, schedule: &ScheduleRef) -> Result<Schedule, Error> {
        self.json(schedule.post(&["resume"]).repeatable()).await
    }

    /// Fires a schedule now. Sent with a random key: however often it has to be tried, it fires once.
    ///
    /// # Errors
    /// As every request.
    pub async fn trigger_schedule(
        &self,
        schedule: &ScheduleRef,
        how: &TriggerSchedule,
    ) -> Result<TriggeredSchedule, Error> {
        let key = format!("\"{}\"", random_key());
        self.json(schedule.post(&["trigger"]).json(how).header("idempotency-key", &key).repeatable()).await
    }

    /// The next firings of a schedule.
    ///
    /// # Errors
    /// As every request.
    pub async fn next_firings(
        &self,
        schedule: &ScheduleRef,
        n: usize,
        from: Option<Timestamp>,
    ) -> Result<Preview, Error> {
        self.json(schedule.get(&["next"]).query("n", n).query_opt("from", from)).await
    }

    /// The next firings of a draft; nothing is stored.
    ///
    /// # Errors
    /// As every request.
    pub async fn preview_schedule(&self, draft: &PreviewSchedule) -> Result<Preview, Error> {
        self.json(Request::post(["schedules", "preview"]).json(draft).repeatable()).await
    }

    /// The firings of all schedules until then.
    ///
    /// # Errors
    /// As every request.
    pub async fn upcoming_firings(
        &self,
        namespace: Option<&str>,
        until: Timestamp,
    ) -> Result<Upcoming, Error> {
        let request = Request::get(["schedules", "upcoming"]).query("until", until);
        self.json(request.query_opt("namespace", namespace)).await
    }

    /// One page of a schedule's fire ledger, the newest instant first.
    ///
    /// # Errors
    /// As every request.
    pub async fn ledger_page(
        &self,
        schedule: &ScheduleRef,
        filter: &LedgerFilter,
        page: &Page,
    ) -> Result<Ledger, Error> {
        self.json(filter.query(schedule.get(&["ledger"])).page(page)).await
    }

    /// All lines of a schedule's fire ledger that the filter lets through.
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

    /// How many instants of a schedule had each outcome, since then.
    ///
    /// # Errors
    /// As every request.
    pub async fn ledger_counts(
        &self,
        schedule: &ScheduleRef,
        from: Option<Timestamp>,
    ) -> Result<std::collections::BTreeMap<FiringOutcome, u64>, Error> {
        let request = schedule.get(&["ledger"]).query("counts", true).query("limit", 1);
        let ledger: Ledger = self.json(request.query_opt("from", from)).await?;
        Ok(ledger.counts.unwrap_or_default())
    }

    /// Makes up for a past range of a schedule.
    ///
    /// # Errors
    /// As every request.
    pub async fn start_backfill(
        &self,
        schedule: &ScheduleRef,
        range: &StartBackfill,
    ) -> Result<Backfill, Error> {
        self.json(schedule.post(&["backfills"]).json(range)).await
    }

    /// What a backfill would start; nothing is stored.
    ///
    /// # Errors
    /// As every request.
    pub async fn plan_backfill(
        &self,
        schedule: &ScheduleRef,
        range: &StartBackfill,
    ) -> Result<BackfillPlan, Error> {
        self.json(schedule.post(&["backfills"]).query("dry_run", true).json(range).repeatable()).await
    }

    /// One page of backfills, newest first.
    ///
    /// # Errors
    /// As every request.
    pub async fn backfills_page(
        &self,
        schedule: Option<ScheduleId>,
        namespace: Option<&str>,
        page: &Page,
    ) -> Result<List<Backfill>, Error> {
        let request = Request::get(["backfills"]).query_opt("schedule_id", schedule);
        self.json(request.query_opt("namespace", namespace).page(page)).await
    }

    /// All backfills, newest first; of one schedule, if one is named.
    pub fn backfills(&self, schedule: Option<ScheduleId>, namespace: Option<String>) -> Items<Backfill> {
        let (client, namespace) = (self.clone(), std::sync::Arc::new(namespace));
        page::all(move |page| {
            let (client, namespace) = (client.clone(), namespace.clone());
            async move { client.backfills_page(schedule, namespace.as_deref(), &page).await }
        })
    }

    /// One backfill.
    ///
    /// # Errors
    /// As every request.
    pub async fn backfill(&self, id: BackfillId) -> Result<Backfill, Error> {
        self.json(Request::get(["backfills", &id.to_string()])).await
    }

    /// Starts no further run of a backfill; with `cancel_runs`, those that are not over are cancelled.
    ///
    /// # Errors
    /// As every request.
    pub async fn cancel_backfill(&self, id: BackfillId, cancel_runs: bool) -> Result<Backfill, Error> {
        let request = Request::post(["backfills", &id.to_string(), "cancel"]);
        self.json(request.json(&CancelBackfill { cancel_runs })).await
    }
}
