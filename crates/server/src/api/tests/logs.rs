//! Logs: in parts, as text, followed.
//!
//! [`ManualWorker`] writes frames to a log, and the tests read them through the three forms of the API: pages
//! of entries, plain text, and a stream of events.
//!
//! # Invariants
//! - An offset in a response is where the next request continues: nothing is missing and nothing is repeated,
//!   also in a stream that is resumed.
//! - A stream ends with the execution, and with the server.
//! - Text is returned byte for byte; bytes that are not UTF-8 are returned as well.

use proto::logframe::Stream::{Notice, Stderr, Stdout};
use serde_json::json;

use super::{ManualWorker, World};

#[tokio::test]
async fn a_log_is_read_in_pages_with_the_next_offset() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({})).await;
    let path = format!("/api/v1/jobs/{id}/logs");
    assert_eq!(world.get(&path).await.json(), json!({"items": [], "next_offset": 0, "complete": false}));
    let task = hands.start().await;
    let end = hands.log(&task, 0, &[(Stdout, b"one\n"), (Stderr, b"two\n"), (Notice, b"cut\n")], false).await;
    world.until(&id, "running").await;
    let first = world.get(&format!("{path}?limit=1")).await.json();
    assert_eq!(first["items"][0]["text"], "one\n");
    assert_eq!(first["items"][0]["stream"], "stdout");
    let rest = world.get(&format!("{path}?offset={}", first["next_offset"])).await.json();
    let streams: Vec<_> = rest["items"].as_array().unwrap().iter().map(|e| e["stream"].clone()).collect();
    assert_eq!(streams, ["stderr", "notice"]);
    assert_eq!((&rest["next_offset"], &rest["complete"]), (&json!(end), &json!(false)));
    let only = world.get(&format!("{path}?stream=stderr")).await.json();
    assert_eq!(only["items"].as_array().unwrap().len(), 1);
    hands.log(&task, end, &[], true).await;
    assert_eq!(world.get(&format!("{path}?offset={end}")).await.json()["complete"], true);
    assert_eq!(world.get(&format!("{path}?offset=3")).await.code(), "400 invalid_parameter");
}

#[tokio::test]
async fn a_log_is_returned_as_plain_text_byte_for_byte() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({})).await;
    let task = hands.start().await;
    hands.log(&task, 0, &[(Stdout, b"a\xff\n"), (Stderr, b"err\n"), (Stdout, b"b\n")], true).await;
    world.until(&id, "running").await;
    let path = format!("/api/v1/executions/{}/logs", task.execution);
    let text = world.get(&format!("{path}?format=text&stream=stdout")).await;
    assert_eq!(text.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(&text.body[..], b"a\xff\nb\n");
    let tail = world.get(&format!("{path}?format=text&tail=2")).await;
    assert_eq!(tail.text(), "err\nb\n");
    let tail = world.get(&format!("{path}?tail=1")).await.json();
    assert_eq!((&tail["items"][0]["text"], &tail["complete"]), (&json!("b\n"), &json!(true)));
}

#[tokio::test]
async fn a_log_is_read_from_a_line_and_lines_have_their_true_numbers() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({})).await;
    let task = hands.start().await;
    let chunks: [(_, &[u8]); 4] =
        [(Stdout, b"1\n2\n3\n"), (Stdout, b"fo"), (Stdout, b"ur\n5\n"), (Stdout, b"6")];
    hands.log(&task, 0, &chunks, true).await;
    world.until(&id, "running").await;
    let path = format!("/api/v1/jobs/{id}/logs");
    let whole = "1\n2\n3\nfour\n5\n6";
    for line in 1..=7 {
        let page = world.get(&format!("{path}?line={line}")).await.json();
        let items = page["items"].as_array().unwrap();
        let text: String = items.iter().map(|entry| entry["text"].as_str().unwrap()).collect();
        let expected = whole.split_inclusive('\n').skip(line - 1).collect::<String>();
        assert_eq!((text, &page["first_line"]), (expected, &json!(line.min(6))), "from line {line}");
    }
    let tail = world.get(&format!("{path}?tail=3")).await.json();
    assert_eq!((&tail["first_line"], &tail["items"][0]["text"]), (&json!(4), &json!("fo")));
}

#[tokio::test]
async fn an_execution_is_named_by_its_number() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({"retry": {"max_retries": 1, "backoff": {"initial": "1ms"}}})).await;
    for (exit_code, text) in [(1, b"first\n".as_slice()), (0, b"second\n")] {
        let task = hands.start().await;
        hands.log(&task, 0, &[(Stdout, text)], true).await;
        hands.finish(&task, exit_code).await;
    }
    world.until(&id, "succeeded").await;
    let path = format!("/api/v1/jobs/{id}/logs?format=text");
    assert_eq!(world.get(&path).await.text(), "second\n");
    assert_eq!(world.get(&format!("{path}&execution=1")).await.text(), "first\n");
    assert_eq!(world.get(&format!("{path}&execution=3")).await.code(), "404 execution_not_found");
}

#[tokio::test]
async fn a_followed_log_begins_with_the_first_execution_and_ends_with_it() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({"run_at": "2030-01-01T00:00:00Z"})).await;
    let mut events = world.stream(&format!("/api/v1/jobs/{id}/logs"), None).await;
    world.json(axum::http::Method::PATCH, &format!("/api/v1/jobs/{id}"), json!({"run_at": null}), &[]).await;
    let task = hands.start().await;
    let offset = hands.log(&task, 0, &[(Stdout, b"one\n")], false).await;
    let first = events.next().await.unwrap();
    assert_eq!((first.name.as_str(), &first.data["text"]), ("log", &json!("one\n")));
    assert_eq!(first.id, offset.to_string());
    hands.log(&task, offset, &[(Stdout, b"two\n")], true).await;
    assert_eq!(events.next().await.unwrap().data["text"], "two\n");
    hands.finish(&task, 7).await;
    let end = events.next().await.unwrap();
    assert_eq!((end.name.as_str(), &end.data), ("end", &json!({"status": "failed", "exit_code": 7})));
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn a_reconnecting_follower_gets_each_entry_once() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({})).await;
    let task = hands.start().await;
    hands.log(&task, 0, &[(Stdout, b"one\n"), (Stdout, b"two\n"), (Stdout, b"three\n")], true).await;
    hands.finish(&task, 0).await;
    world.until(&id, "succeeded").await;
    let path = format!("/api/v1/jobs/{id}/logs?follow=true");
    let first = world.stream(&path, None).await.next().await.unwrap();
    assert_eq!(first.data["text"], "one\n");
    let mut again = world.stream(&path, Some(&first.id)).await;
    assert_eq!(again.next().await.unwrap().data["text"], "two\n");
    let mut tail = world.stream(&format!("{path}&tail=1"), None).await;
    assert_eq!(tail.next().await.unwrap().data["text"], "three\n");
    assert_eq!(tail.next().await.unwrap().name, "end");
}

/// A stream resumes with an id that may belong to an earlier execution of the job.
#[tokio::test]
async fn an_id_of_another_log_starts_from_the_beginning() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({})).await;
    let task = hands.start().await;
    hands.log(&task, 0, &[(Stdout, b"one\n")], false).await;
    world.until(&id, "running").await;
    let path = format!("/api/v1/jobs/{id}/logs?follow=true");
    let mut events = world.stream(&path, Some("3")).await;
    assert_eq!(events.next().await.unwrap().data["text"], "one\n");
    assert_eq!(world.get(&format!("{path}&offset=3")).await.code(), "400 invalid_parameter");
}

/// A task without output sends no log, and the stream does not wait for one.
#[tokio::test]
async fn the_log_of_an_execution_that_wrote_nothing_is_complete_at_once() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({})).await;
    let task = hands.start().await;
    hands.finish(&task, 0).await;
    world.until(&id, "succeeded").await;
    let log = world.get(&format!("/api/v1/jobs/{id}/logs")).await.json();
    assert_eq!(log, json!({"items": [], "next_offset": 0, "complete": true}));
}

#[tokio::test]
async fn following_a_job_that_never_ran_ends_with_its_status() {
    let world = World::new().await;
    let id = world.submit(json!({})).await;
    let mut events = world.stream(&format!("/api/v1/jobs/{id}/logs?follow=true"), None).await;
    world.delete(&format!("/api/v1/jobs/{id}")).await;
    let end = events.next().await.unwrap();
    assert_eq!((end.name.as_str(), &end.data), ("end", &json!({"status": "cancelled"})));
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn a_followed_log_ends_when_the_server_stops() {
    let world = World::new().await;
    let id = world.submit(json!({})).await;
    let mut events = world.stream(&format!("/api/v1/jobs/{id}/logs?follow=true"), None).await;
    world.stop().await;
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn invalid_and_contradictory_parameters_are_refused() {
    let world = World::new().await;
    let id = world.submit(json!({})).await;
    for query in [
        "limit=0",
        "limit=10001",
        "tail=0",
        "tail=1&offset=5",
        "stream=both",
        "format=xml",
        "offset=-1",
        "line=0",
        "line=2&tail=1",
        "line=2&offset=5",
        "line=2&follow=true",
    ] {
        let answer = world.get(&format!("/api/v1/jobs/{id}/logs?{query}")).await;
        assert_eq!(answer.code(), "400 invalid_parameter", "{query}");
    }
}

/// Output in another encoding, such as GBK.
#[tokio::test]
async fn bytes_that_are_not_utf8_are_returned_beside_the_text() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({})).await;
    let task = hands.start().await;
    hands.log(&task, 0, &[(Stdout, b"a\xc4\xe3\n"), (Stdout, b"b\xff\n"), (Stdout, b"c\n")], true).await;
    world.until(&id, "running").await;
    let items = world.get(&format!("/api/v1/jobs/{id}/logs?tail=2")).await.json()["items"].clone();
    assert_eq!((&items[0]["text"], &items[0]["bytes"]), (&json!("b\u{fffd}\n"), &json!("Yv8K")));
    assert_eq!((&items[1]["text"], items[1].get("bytes")), (&json!("c\n"), None));
    let tail = world.get(&format!("/api/v1/jobs/{id}/logs?tail=2&format=text")).await;
    assert_eq!(&tail.body[..], b"b\xff\nc\n");
}

#[tokio::test]
async fn a_log_is_searched_by_text_and_expression_with_the_lines_around() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = world.submit(json!({})).await;
    let path = format!("/api/v1/jobs/{id}/logs/search");
    let nothing = world.get(&format!("{path}?text=x")).await.json();
    assert_eq!(nothing, json!({"items": [], "lines": 0, "complete": false}));
    let task = hands.start().await;
    let chunks: [(_, &[u8]); 4] = [
        (Stdout, b"start\nload 1\nERROR: disk"),
        (Stderr, b"warning\n"),
        (Stdout, b" full\nretry\nerror: gone\n"),
        (Stdout, b"no end"),
    ];
    hands.log(&task, 0, &chunks, true).await;
    world.until(&id, "running").await;
    let found = async |query: &str| {
        let page = world.get(&format!("{path}?{query}")).await.json();
        let items = page["items"].as_array().unwrap().iter();
        let lines = items.map(|hit| format!("{}:{}", hit["number"], hit["text"].as_str().unwrap()));
        lines.collect::<Vec<_>>()
    };
    assert_eq!(found("text=error").await, ["4:ERROR: disk full", "6:error: gone"]);
    assert_eq!(found("regex=%5Eerror").await, ["6:error: gone"]);
    assert_eq!(found("regex=END%7Cend").await, ["7:no end"]);
    assert_eq!(found("text=disk&stream=stdout").await, ["3:ERROR: disk full"]);
    assert_eq!(found("text=error&line=5").await, ["6:error: gone"]);
    let first = world.get(&format!("{path}?text=error&context=1&limit=1")).await.json();
    assert_eq!(first["items"][0]["before"][0]["text"], "warning");
    assert_eq!(first["items"][0]["before"][0]["stream"], "stderr");
    assert_eq!(first["items"][0]["after"][0]["number"], 5);
    let next = first["next_cursor"].as_str().unwrap();
    assert_eq!(found(&format!("text=error&context=1&cursor={next}")).await, ["6:error: gone"]);
    let last = world.get(&format!("{path}?text=error&cursor={next}")).await.json();
    assert_eq!((last.get("next_cursor"), &last["lines"], &last["complete"]), (None, &json!(7), &json!(true)));
    let by_execution = format!("/api/v1/executions/{}/logs/search?text=retry", task.execution);
    assert_eq!(world.get(&by_execution).await.json()["items"][0]["number"], 5);
    for (query, parameter) in [
        ("", "text"),
        ("text=a&regex=b", "text"),
        ("text=", "text"),
        ("regex=a(", "regex"),
        ("text=a&context=21", "context"),
        ("text=a&limit=1001", "limit"),
        ("text=a&line=0", "line"),
    ] {
        let refused = world.get(&format!("{path}?{query}")).await;
        assert_eq!(refused.code(), "400 invalid_parameter", "{query}");
        assert_eq!(refused.json()["errors"][0]["path"], parameter, "{query}");
    }
    for query in [format!("text=other&cursor={next}"), "text=error&cursor=x".to_owned()] {
        assert_eq!(world.get(&format!("{path}?{query}")).await.code(), "400 invalid_cursor", "{query}");
    }
}
