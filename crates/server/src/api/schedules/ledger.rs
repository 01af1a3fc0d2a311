//! The ledger of a schedule: the outcome of each scheduled time.

use std::str::FromStr;

use axum::extract::State;
use axum::{Extension, Json};
use futures::{StreamExt, TryStreamExt};
use model::api::{Ledger, LedgerEntry, LedgerReason};
use model::firing::{FiringCause, FiringOutcome, LedgerRecord, Work};
use model::{BackfillId, Timestamp};
use serde::Deserialize;
use store::query::{LedgerFilter, LedgerPosition, Page};
use utoipa_axum::routes;

use crate::api::extract::{Many, Params, Path};
use crate::api::problem::{ApiError, Code, excerpt};
use crate::api::routes::Routes;
use crate::api::{Api, page, rows};
use crate::auth::{Actor, Resource, Verb};

/// Number of jobs and runs looked up concurrently.
const LOOKUPS: usize = 16;

pub(super) fn routes(routes: &mut Routes) {
    let refusals = [Code::ScheduleNotFound, Code::InvalidCursor, Code::QueryTooSlow];
    routes.needs(Verb::Read, Resource::Schedules, &refusals, routes!(get_ledger));
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct LedgerParams {
    /// Namespace of the name [default: `default`]. Not needed with an id.
    namespace: Option<String>,
    /// Outcomes to list, separated by commas.
    #[param(value_type = Option<String>, example = "fired,fired_late")]
    outcome: Many<FiringOutcome>,
    /// Causes to list, separated by commas: `timer`, `catch_up`, `manual`, `backfill`, `retry`.
    #[param(value_type = Option<String>)]
    cause: Many<Cause>,
    /// Only lines of this backfill.
    backfill_id: Option<BackfillId>,
    /// Start of the range, inclusive.
    from: Option<Timestamp>,
    /// End of the range, exclusive.
    until: Option<Timestamp>,
    /// Maximum number of lines, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Number of scheduled times of each outcome, since `from`.
    counts: bool,
}

/// A cause as a query parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cause(FiringCause);

impl FromStr for Cause {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        use FiringCause::{Backfill, CatchUp, Manual, Retry, Timer};
        let found = [Timer, CatchUp, Manual, Backfill, Retry].into_iter().find(|c| c.to_string() == text);
        found.map(Self).ok_or_else(|| {
            let shown = excerpt(text);
            format!("`{shown}` is not a cause: expected `timer`, `catch_up`, `manual`, `backfill` or `retry`")
        })
    }
}

/// Show the ledger: the outcome of each scheduled time
///
/// Newest scheduled time first. Consecutive scheduled times with the same outcome and without a job share one line.
#[utoipa::path(get, path = "/api/v1/schedules/{name}/ledger", tag = "schedules",
    params(("name" = String, Path, description = "Name or id"), LedgerParams),
    responses((status = 200, description = "One page", body = Ledger))
)]
async fn get_ledger(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<LedgerParams>,
) -> Result<Json<Ledger>, ApiError> {
    let limit = page::limit(params.limit)?;
    // The ledger of a deleted schedule can still be read by its id. Its namespace is unknown.
    let id = match name.parse() {
        Ok(id) if actor.is_unrestricted() => id,
        _ => rows::schedule(&api, &actor, &name, params.namespace.as_deref()).await?.id,
    };
    let filter = LedgerFilter {
        schedule: Some(id),
        namespace: None,
        outcomes: params.outcome.0,
        causes: params.cause.0.into_iter().map(|Cause(cause)| cause).collect(),
        backfill: params.backfill_id,
        from: params.from,
        until: params.until,
    };
    let after = api.shared.cursors.read::<LedgerCursor>("ledger", &filter, params.cursor.as_deref())?;
    let page = Page { after: after.map(|LedgerCursor(place)| place), limit };
    let found = api.node.store().ledger(&filter, page).await?;
    let last = found.items.last().filter(|_| found.more);
    let next_cursor =
        last.map(|(place, _)| api.shared.cursors.make("ledger", &filter, &LedgerCursor(*place).to_string()));
    let counts = match params.counts {
        true => Some(api.node.store().ledger_counts(id, params.from).await?),
        false => None,
    };
    let items = futures::stream::iter(found.items.into_iter().map(|(_, record)| entry(&api, record)));
    let items = items.buffered(LOOKUPS).try_collect().await?;
    Ok(Json(Ledger { items, next_cursor, counts }))
}

async fn entry(api: &Api, record: LedgerRecord) -> Result<LedgerEntry, ApiError> {
    let store = api.node.store();
    let (job_status, run_status) = match record.work {
        Some(Work::Job(job)) => (store.job(job).await?.map(|row| row.state.status), None),
        Some(Work::Run(run)) => (None, store.run(run).await?.map(|row| row.state.status)),
        None => (None, None),
    };
    Ok(LedgerEntry { job_status, run_status, ..shown(record) })
}

fn shown(record: LedgerRecord) -> LedgerEntry {
    let reason = record.detail.as_deref();
    let reason = reason.and_then(|detail| LedgerReason::of(record.outcome, record.cause, detail));
    LedgerEntry {
        schedule_id: record.schedule,
        generation: record.generation,
        scheduled_for: record.first,
        last: record.last,
        count: record.count,
        exact: record.exact,
        outcome: record.outcome,
        cause: record.cause,
        backfill_id: record.backfill,
        job_id: record.work.and_then(Work::job),
        job_status: None,
        run_id: record.work.and_then(Work::run),
        run_status: None,
        decided_at: record.decided_at,
        detail: record.detail.map(Into::into),
        reason,
        tzdb: record.tzdb.to_string(),
    }
}

/// Position in the ledger, as the text of a cursor.
struct LedgerCursor(LedgerPosition);

impl std::fmt::Display for LedgerCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LedgerPosition { first_micros, schedule, generation, cause, backfill } = self.0;
        write!(f, "{first_micros}.{schedule:x}.{generation}.{cause}.{backfill:x}")
    }
}

impl FromStr for LedgerCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<_> = text.split('.').collect();
        let [first, schedule, generation, cause, backfill] = parts.as_slice() else { return Err(()) };
        Ok(Self(LedgerPosition {
            first_micros: first.parse().map_err(drop)?,
            schedule: u128::from_str_radix(schedule, 16).map_err(drop)?,
            generation: generation.parse().map_err(drop)?,
            cause: cause.parse().map_err(drop)?,
            backfill: u128::from_str_radix(backfill, 16).map_err(drop)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_position_round_trips() {
        let place =
            LedgerPosition { first_micros: -5, schedule: u128::MAX, generation: 7, cause: 3, backfill: 0 };
        assert_eq!(
            LedgerCursor(place).to_string().parse::<LedgerCursor>().map(|LedgerCursor(place)| place),
            Ok(place)
        );
        for text in ["", "1.2.3.4", "x.0.0.0.0", "1.0.0.999.0"] {
            assert!(text.parse::<LedgerCursor>().is_err(), "{text}");
        }
    }
}
