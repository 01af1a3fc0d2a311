//! Streams that reconnect and resume.

use client::{Begin, EventFilter, FeedItem, LogItem, LogQuery};
use futures::{StreamExt, TryStreamExt};
use model::{ExecutionStatus, JobStatus};
use serde_json::json;

use crate::fake::{EXECUTION, EXECUTION_2, Fake, JOB, executions, job};

/// `retry: 1` reduces the delay before a reconnect to 1 ms.
const LOG_HALF: &str = "retry: 1\n\nevent: log\nid: 20\ndata: {\"next_offset\":20,\"at\":\"2026-11-21T08:00:00Z\",\"stream\":\"stdout\",\"text\":\"one\\n\"}\n\nevent: log\nid: 40\ndata: {\"next";
const LOG_REST: &str = "event: log\nid: 40\ndata: {\"next_offset\":40,\"at\":\"2026-11-21T08:00:00Z\",\"stream\":\"stderr\",\"text\":\"two\\n\"}\n\nevent: end\ndata: {\"status\":\"failed\"}\n\n";
const LOG_WHOLE: &str = "event: log\nid: 9\ndata: {\"next_offset\":9,\"at\":\"2026-11-21T08:00:00Z\",\"stream\":\"stdout\",\"text\":\"again\\n\"}\n\nevent: end\ndata: {\"status\":\"succeeded\"}\n\n";

#[tokio::test]
async fn a_log_that_breaks_off_in_a_line_continues_after_the_last_complete_one() {
    let fake = Fake::default();
    fake.streams(LOG_HALF).refuses(503, "loading", Some(0)).streams(LOG_REST);
    let client = fake.start().await;
    let query = LogQuery { tail: Some(10), ..LogQuery::default() };
    let mut log = client.follow_execution_logs(EXECUTION.parse().unwrap(), &query);
    let mut texts = Vec::new();
    let status = loop {
        match log.next().await.unwrap() {
            LogItem::Begin { .. } => {}
            LogItem::Entry(entry) => texts.push(entry.text),
            LogItem::End(status) => break status,
        }
    };
    assert_eq!(texts, ["one\n", "two\n"]);
    assert_eq!(status, Some(ExecutionStatus::Failed));
    let asked = fake.requests();
    assert!(asked[0].line.contains("tail=10"), "{}", asked[0].line);
    assert_eq!(asked[0].header("last-event-id"), None);
    assert!(!asked[2].line.contains("tail"), "{}", asked[2].line);
    assert_eq!(asked[2].header("last-event-id"), Some("20"));
}

#[tokio::test]
async fn feed_resumes_or_reports_a_reset() {
    let fake = Fake::default();
    fake.streams(
        "retry: 1\n\nid: 7\ndata: {\"seq\":7,\"at\":\"2026-11-21T08:00:00Z\",\"type\":\"worker.ready\"}\n\n: beat\n\n",
    )
    .streams("event: reset\nid: 90\ndata: {}\n\nid: 91\ndata: {\"seq\":91,\"at\":\"2026-11-21T08:00:00Z\",\"type\":\"worker.lost\"}\n\n");
    let client = fake.start().await;
    let filter = EventFilter { since: Some(3), ..EventFilter::default() };
    let items: Vec<_> = client.events(&filter).take(3).try_collect().await.unwrap();
    let told: Vec<_> = items
        .iter()
        .map(|item| match item {
            FeedItem::Event(event) => event.kind.clone(),
            FeedItem::Reset => "reset".into(),
        })
        .collect();
    assert_eq!(told, ["worker.ready", "reset", "worker.lost"]);
    let asked = fake.requests();
    assert_eq!(asked[0].line, "GET /api/v1/events?since=3");
    assert_eq!(asked[1].line, "GET /api/v1/events");
    assert_eq!(asked[1].header("last-event-id"), Some("7"));
}

#[tokio::test]
async fn watch_ends_with_the_job_without_a_feed() {
    let fake = Fake::default();
    fake.refuses(404, "not_found", None)
        .answers(200, job(1, "waiting", 0))
        .answers(200, job(1, "waiting", 0))
        .answers(200, job(2, "running", 1))
        .answers(200, job(3, "succeeded", 1));
    let client = fake.start().await;
    let told: Vec<_> =
        client.watch(JOB.parse().unwrap()).map_ok(|job| job.status).try_collect().await.unwrap();
    assert_eq!(told, [JobStatus::Waiting, JobStatus::Running, JobStatus::Succeeded]);
}

async fn followed(fake: &Fake, begin: Begin) -> Vec<String> {
    let client = fake.start().await;
    let items = client.follow_job_logs(JOB.parse().unwrap(), begin, LogQuery::default());
    let told = items.map_ok(|item| match item {
        LogItem::Begin { execution, number } => format!("begin {number} {execution}"),
        LogItem::Entry(entry) => entry.text.trim().to_owned(),
        LogItem::End(status) => format!("end {}", status.map_or("?", ExecutionStatus::as_str)),
    });
    told.try_collect().await.unwrap()
}

#[tokio::test]
async fn the_log_of_a_job_continues_with_its_next_execution() {
    let fake = Fake::default();
    fake.streams(": open\n\n")
        .answers(200, job(2, "running", 1))
        .answers(200, executions(&[(1, EXECUTION)]))
        .streams(LOG_REST)
        .answers(200, job(5, "succeeded", 2))
        .answers(200, executions(&[(2, EXECUTION_2), (1, EXECUTION)]))
        .streams(LOG_WHOLE);
    assert_eq!(
        followed(&fake, Begin::Newest).await,
        [
            &format!("begin 1 {EXECUTION}"),
            "two",
            "end failed",
            &format!("begin 2 {EXECUTION_2}"),
            "again",
            "end succeeded"
        ]
    );
}

#[tokio::test]
async fn missed_executions_are_followed_only_from_the_first() {
    for (begin, numbers) in [(Begin::First, vec![1, 2]), (Begin::Newest, vec![2])] {
        let fake = Fake::default();
        fake.streams(": open\n\n")
            .answers(200, job(5, "succeeded", 2))
            .answers(200, executions(&[(2, EXECUTION_2), (1, EXECUTION)]))
            .streams(LOG_WHOLE)
            .streams(LOG_WHOLE);
        let told = followed(&fake, begin).await;
        let begun: Vec<_> =
            told.iter().filter(|t| t.starts_with("begin")).map(|t| t[6..7].parse::<i32>().unwrap()).collect();
        assert_eq!(begun, numbers, "{told:?}");
    }
}

#[tokio::test]
async fn a_stored_log_is_read_in_pages_and_ends_after_the_last_page() {
    let entry = |text: &str, next: u64| json!({"next_offset": next, "at": "2026-11-21T08:00:00Z", "stream": "stdout", "text": text});
    let fake = Fake::default();
    fake.answers(200, json!({"items": [entry("a", 10)], "next_offset": 10, "complete": false}))
        .answers(200, json!({"items": [entry("b", 20)], "next_offset": 20, "complete": false}))
        .answers(200, json!({"items": [], "next_offset": 20, "complete": false}));
    let client = fake.start().await;
    let source = client::LogSource::Job(JOB.parse().unwrap(), Some(2));
    let texts: Vec<_> =
        client.all_logs(source, LogQuery::default()).map_ok(|e| e.text).try_collect().await.unwrap();
    assert_eq!(texts, ["a", "b"]);
    assert!(fake.lines()[1].ends_with("/logs?execution=2&offset=10"), "{:?}", fake.lines());
}

#[tokio::test]
async fn a_response_that_is_not_an_event_stream_is_refused() {
    let fake = Fake::default();
    fake.answers(200, json!({}));
    let client = fake.start().await;
    let error = client.events(&EventFilter::default()).next().await.unwrap().unwrap_err();
    assert!(error.to_string().contains("expected an event stream"), "{error}");
}
