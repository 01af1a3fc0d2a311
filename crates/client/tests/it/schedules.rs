//! Requests for schedules: URLs, query parameters and retries.

use client::{LedgerFilter, ScheduleFilter, ScheduleRef};
use futures::TryStreamExt;
use model::api::{StartBackfill, TriggerSchedule};
use model::firing::{FiringCause, FiringOutcome, ScheduleStatus};
use serde_json::json;

use crate::fake::{Fake, JOB};

const SCHEDULE: &str = "sch_01k9zq3m6c0000000000000000";

fn named(name: &str) -> ScheduleRef {
    ScheduleRef { name: name.into(), namespace: Some("pay".into()) }
}

fn triggered() -> serde_json::Value {
    json!({"schedule_id": SCHEDULE, "outcome": "fired", "job_id": JOB, "scheduled_for": "2026-11-21T08:00:00Z"})
}

#[tokio::test]
async fn a_trigger_is_repeated_with_its_first_key_until_it_is_answered() {
    let fake = Fake::default();
    fake.refuses(503, "outcome_unknown", None).drops_connection().answers(200, triggered());
    let client = fake.start().await;
    let how = TriggerSchedule { reason: Some("upgrade".into()), overlap: None };
    let answer = client.trigger_schedule(&named("nightly"), &how).await.unwrap();
    assert_eq!((answer.outcome, answer.job_id.unwrap().to_string()), (FiringOutcome::Fired, JOB.to_owned()));
    let asked = fake.requests();
    let keys: Vec<_> = asked.iter().map(|a| a.header("idempotency-key").map(str::to_owned)).collect();
    assert!(keys.len() == 3 && keys[0].is_some() && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert_eq!(asked[0].json(), json!({"reason": "upgrade"}));
}

/// A second backfill would run everything twice.
#[tokio::test]
async fn a_backfill_is_not_repeated_when_its_outcome_is_unknown() {
    let fake = Fake::default();
    fake.refuses(503, "outcome_unknown", None);
    let client = fake.start().await;
    let range = StartBackfill::new(model::Timestamp::default(), model::Timestamp::default());
    let error = client.start_backfill(&named("nightly"), &range).await.unwrap_err();
    assert_eq!((error.code(), fake.requests().len()), (Some("outcome_unknown"), 1));
}

#[tokio::test]
async fn a_name_is_sent_with_its_namespace_and_an_id_without() {
    let fake = Fake::default();
    for _ in 0..2 {
        fake.refuses(404, "schedule_not_found", None);
    }
    let client = fake.start().await;
    client.schedule(&named("a/b c")).await.unwrap_err();
    client.schedule(&ScheduleRef { name: SCHEDULE.into(), namespace: Some("pay".into()) }).await.unwrap_err();
    assert_eq!(
        fake.lines(),
        [
            "GET /api/v1/schedules/a%2Fb%20c?namespace=pay".to_owned(),
            format!("GET /api/v1/schedules/{SCHEDULE}")
        ]
    );
}

#[tokio::test]
async fn filters_become_parameters_and_pages_follow_each_other() {
    let fake = Fake::default();
    fake.answers(200, json!({"items": []}));
    let line = json!({
        "schedule_id": SCHEDULE, "generation": 1, "scheduled_for": "2026-11-21T08:00:00Z", "last": "2026-11-21T08:00:00Z",
        "count": 1, "exact": true, "outcome": "fired", "cause": "timer", "decided_at": "2026-11-21T08:00:00Z", "tzdb": "x",
    });
    fake.answers(200, json!({"items": [line], "next_cursor": "c"})).answers(200, json!({"items": [line]}));
    let client = fake.start().await;
    let filter = ScheduleFilter {
        status: Some(ScheduleStatus::Paused),
        text: Some("night".into()),
        labels: vec![("a".into(), "b".into())],
        specs: true,
        ..ScheduleFilter::default()
    };
    assert_eq!(client.schedules(filter).try_collect::<Vec<_>>().await.unwrap(), []);
    let filter = LedgerFilter {
        outcome: vec![FiringOutcome::Fired, FiringOutcome::SkippedLimit],
        cause: vec![FiringCause::CatchUp],
        ..LedgerFilter::default()
    };
    assert_eq!(client.ledger(named("n"), filter).try_collect::<Vec<_>>().await.unwrap().len(), 2);
    let lines = fake.lines();
    assert_eq!(lines[0], "GET /api/v1/schedules?status=paused&text=night&specs=true&label=a%3Db");
    assert_eq!(
        lines[1],
        "GET /api/v1/schedules/n/ledger?namespace=pay&outcome=fired%2Cskipped_limit&cause=catch_up"
    );
    assert_eq!(lines[2], format!("{}&cursor=c", lines[1]));
}
