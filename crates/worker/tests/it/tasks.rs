//! Requests of running tasks through their sockets, and checkpoint files.
//!
//! `waiting_task` starts a task that prints the path of its socket and waits; the test then speaks HTTP on
//! that socket in the name of the task. Checkpoints are also written to files by the tasks themselves.
//!
//! # Invariants
//! - A request is attributed to the execution whose socket it used, never to a later one.
//! - A slow or unanswered request delays no other task.
//! - The newest checkpoint counts, whichever way it took; the last one is sent with the end at the latest.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto::logframe::Stream;
use proto::v1::{Assignment, Checkpoint, GetEndpointsResponse};
use serde_json::json;
use tonic::Status;

use crate::rig::{TestWorker, process_state, sh};

/// Runs a task that prints the path of its socket and waits until `go` is not empty.
async fn waiting_task(rig: &TestWorker) -> (Assignment, PathBuf, PathBuf) {
    let (told, go) = (rig.shared("socket"), rig.shared("go"));
    let order = sh(&format!(
        "echo $BELFRY_SOCKET > {}; while ! [ -s {} ]; do sleep 0.01; done",
        told.display(),
        go.display()
    ));
    rig.server.assign(vec![order.clone()]).await;
    rig.server.started(&order.execution_id).await;
    let read = || std::fs::read_to_string(&told).ok().filter(|text| text.ends_with('\n'));
    let socket = rig.server.wait_for("the path of its socket", |_| read()).await;
    (order, socket.trim().into(), go)
}

/// Sends a request; [`answer`] reads the response.
fn ask(socket: &Path, request: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Returns the status and the whole text of a response.
async fn answer(mut stream: UnixStream) -> (u16, String) {
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        // A connection reset may follow the response to a request that was not read completely.
        stream.read_to_end(&mut bytes).ok();
        String::from_utf8(bytes).unwrap()
    });
    let text = read.await.unwrap();
    (text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default(), text)
}

async fn call(socket: &Path, request: &str) -> (u16, String) {
    answer(ask(socket, request)).await
}

fn put(body: &str, headers: &str) -> String {
    format!("PUT /checkpoint HTTP/1.1\r\nHost: task\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len())
}

const GET: &str = "GET /checkpoint HTTP/1.1\r\nHost: task\r\n\r\n";

pub(crate) async fn a_task_saves_and_reads_its_checkpoint_through_its_socket() {
    let rig = TestWorker::new().await;
    let (order, socket, _) = waiting_task(&rig).await;
    let (status, text) = call(&socket, GET).await;
    assert_eq!(status, 404, "{text}");
    let (status, text) =
        call(&socket, &put("page 7", "Content-Type: text/plain\r\nIf-Match: \"0\"\r\n")).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.ends_with("{\"version\":1}\n"), "{text}");
    let saved = rig.server.state().saved[0].clone();
    assert_eq!((saved.execution_id, saved.fence), (order.execution_id, order.fence));
    assert_eq!((&*saved.data, saved.content_type.as_str()), (b"page 7".as_slice(), "text/plain"));
    assert_eq!(saved.expected_version, Some(0));
    let (status, text) = call(&socket, GET).await;
    assert_eq!(status, 200);
    assert!(text.ends_with("\r\n\r\npage 7") && text.contains("etag: \"1\""), "{text}");
}

pub(crate) async fn a_task_has_a_socket_in_a_worker_folder_with_a_long_path() {
    let rig =
        TestWorker::with(|config, _| config.dir = config.dir.join("folder".repeat(20)).join("worker")).await;
    let (_, socket, _) = waiting_task(&rig).await;
    assert!(socket.as_os_str().len() < 108, "{}", socket.display());
    let link = socket.ancestors().find(|part| part.is_symlink()).unwrap().to_owned();
    assert_eq!(std::fs::read_link(&link).unwrap(), rig.config.dir);
    let (status, text) = call(&socket, &put("page 7", "")).await;
    assert_eq!(status, 200, "{text}");
    drop(rig);
    assert!(!link.is_symlink(), "the supervisor leaves {}", link.display());
}

pub(crate) async fn a_refused_request_returns_the_reason() {
    let rig = TestWorker::new().await;
    let (_, socket, _) = waiting_task(&rig).await;
    let (status, text) = call(&socket, "GET /what HTTP/1.1\r\nHost: task\r\n\r\n").await;
    assert!(status == 404 && text.contains("\"not_found\""), "{text}");
    let (status, text) = call(&socket, "POST /checkpoint HTTP/1.1\r\nHost: task\r\n\r\n").await;
    assert!(status == 405 && text.contains("does not support POST"), "{text}");
    let (status, text) = call(&socket, &put(&"x".repeat(65_537), "")).await;
    assert!(status == 413 && text.contains("65536"), "{text}");
    let refusals = [
        (Status::failed_precondition("x"), 409, "not_current"),
        (Status::aborted("x"), 412, "version_mismatch"),
        (Status::unavailable("x"), 503, "outcome_unknown"),
        (Status::unimplemented("x"), 501, "not_supported"),
    ];
    for (refusal, expected, code) in refusals {
        rig.server.state().refusal = Some(refusal);
        let (status, text) = call(&socket, &put("x", "")).await;
        assert!(status == expected && text.contains(code), "{text}");
    }
    assert!(rig.server.state().saved.is_empty());
}

fn post(query: &str, body: &str, headers: &str) -> String {
    let length = body.len();
    format!(
        "POST /elements?{query} HTTP/1.1\r\nHost: task\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
}

/// C4.
pub(crate) async fn a_task_adds_elements_and_a_repeated_batch_adds_nothing() {
    let rig = TestWorker::new().await;
    let (order, socket, _) = waiting_task(&rig).await;
    let list = post("batch=depth%201", r#"[{"page": 1}, "two"]"#, "");
    let (status, text) = call(&socket, &list).await;
    assert_eq!(status, 201, "{text}");
    let body = text.rsplit("\r\n\r\n").next().and_then(|body| serde_json::from_str(body).ok());
    let expected = json!({"step": "page", "first": 0, "count": 2, "total": 2, "added": true});
    assert_eq!(body, Some(expected));
    let sent = rig.server.state().added[0].clone();
    assert_eq!((sent.execution_id, sent.fence), (order.execution_id, order.fence));
    assert_eq!((sent.batch.as_str(), sent.step.as_str()), ("depth 1", ""));
    assert_eq!(sent.elements, [r#"{"page":1}"#, r#""two""#]);
    let (status, text) = call(&socket, &list).await;
    assert!(status == 200 && text.contains(r#""added":false"#), "{text}");
    let lines = post("step=page&batch=2", "3\n4\n", "Content-Type: application/x-ndjson\r\n");
    assert_eq!(call(&socket, &lines).await.0, 201);
    let sent = rig.server.state().added[1].clone();
    assert_eq!((sent.step.as_str(), sent.elements), ("page", vec!["3".into(), "4".into()]));
}

/// C4.
pub(crate) async fn elements_that_cannot_be_added_are_refused_with_the_reason() {
    let rig = TestWorker::new().await;
    let (_, socket, _) = waiting_task(&rig).await;
    let malformed = [
        (post("", "[1]", ""), 400, "`batch` is missing"),
        (post("batch=x", "{}", ""), 400, "not a JSON list"),
        (post("batch=x", "[]", ""), 400, "expected 1 to 1000"),
        (post("batch=x", &format!("[1, {:?}]", "x".repeat(1024)), ""), 400, "\"path\":\"[1]\""),
        (post("batch=x", &" ".repeat(1_088_001), ""), 413, "1088000"),
        ("GET /elements HTTP/1.1\r\nHost: task\r\n\r\n".into(), 405, "does not support GET"),
    ];
    for (request, expected, told) in malformed {
        let (status, text) = call(&socket, &request).await;
        assert!(status == expected && text.contains(told), "{text}");
    }
    let refusals = [
        (Status::failed_precondition("x"), 409, "not_current"),
        (Status::not_found("x"), 404, "elements_not_accepted"),
        (Status::aborted("x"), 409, "step_ended"),
        (Status::invalid_argument("x"), 400, "invalid_elements"),
        (Status::unavailable("x"), 503, "outcome_unknown"),
        (Status::unimplemented("x"), 501, "not_supported"),
    ];
    for (refusal, expected, code) in refusals {
        rig.server.state().refusal = Some(refusal);
        let (status, text) = call(&socket, &post("batch=x", "[1]", "")).await;
        assert!(status == expected && text.contains(code), "{text}");
    }
    assert!(rig.server.state().added.is_empty());
}

fn get_endpoints(target: &str, headers: &str) -> String {
    format!("GET /services/{target} HTTP/1.1\r\nHost: task\r\n{headers}\r\n")
}

/// F3.
pub(crate) async fn a_task_reads_the_endpoints_of_a_service() {
    let rig = TestWorker::new().await;
    let (order, socket, _) = waiting_task(&rig).await;
    let known = GetEndpointsResponse { version: "v1".into(), endpoints: r#"[{"port":80}]"#.into() };
    rig.server.state().endpoints = known;
    let (status, text) = call(&socket, &get_endpoints("db/endpoints", "")).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.ends_with("{\"items\":[{\"port\":80}]}\n") && text.contains("etag: \"v1\""), "{text}");

    let waiting = get_endpoints("db/endpoints?wait=20", "If-None-Match: \"v1\"\r\n");
    let (status, text) = call(&socket, &waiting).await;
    assert!(status == 304 && text.contains("etag: \"v1\""), "{text}");
    let asked = rig.server.state().asked_endpoints.clone();
    assert_eq!(asked[1].execution_id, order.execution_id);
    assert_eq!((asked[1].fence, asked[1].service.as_str()), (order.fence, "db"));
    assert_eq!((asked[1].known_version.as_str(), asked[1].wait_ms), ("v1", 20_000));
    assert_eq!((asked[0].known_version.as_str(), asked[0].wait_ms), ("", 0));
}

/// F3.
pub(crate) async fn endpoints_that_cannot_be_read_are_refused_with_the_reason() {
    let rig = TestWorker::new().await;
    let (_, socket, _) = waiting_task(&rig).await;
    for (request, expected, told) in [
        (get_endpoints("db/endpoints?wait=60", ""), 400, "from 0 to 30"),
        (get_endpoints("db", ""), 404, "not_found"),
        ("POST /services/db/endpoints HTTP/1.1\r\nHost: task\r\n\r\n".into(), 405, "does not support POST"),
    ] {
        let (status, text) = call(&socket, &request).await;
        assert!(status == expected && text.contains(told), "{text}");
    }
    for (refusal, expected, code) in [
        (Status::failed_precondition("x"), 409, "not_current"),
        (Status::permission_denied("x"), 403, "service_not_required"),
        (Status::unavailable("x"), 503, "outcome_unknown"),
        (Status::unimplemented("x"), 501, "not_supported"),
    ] {
        rig.server.state().refusal = Some(refusal);
        let (status, text) = call(&socket, &get_endpoints("db/endpoints", "")).await;
        assert!(status == expected && text.contains(code), "{text}");
    }
    assert!(rig.server.state().asked_endpoints.is_empty());
}

pub(crate) async fn a_task_request_waits_for_an_agent() {
    let mut rig = TestWorker::new().await;
    let (order, socket, _) = waiting_task(&rig).await;
    rig.kill_agent().await;
    let waiting = ask(&socket, &put("a", ""));
    rig.start_agent();
    let (status, text) = answer(waiting).await;
    assert_eq!(status, 200, "{text}");
    assert_eq!(rig.server.state().saved[0].execution_id, order.execution_id);
}

pub(crate) async fn a_task_repeats_a_request_after_the_agent_was_killed() {
    let mut rig = TestWorker::new().await;
    let (_, socket, _) = waiting_task(&rig).await;
    rig.server.state().stalled = true;
    let first = ask(&socket, &put("a", ""));
    rig.server.wait_for("the request", |state| (state.stalls > 0).then_some(())).await;
    rig.kill_agent().await;
    assert_eq!(answer(first).await, (0, String::new()));
    rig.server.state().stalled = false;
    rig.start_agent();
    assert_eq!(call(&socket, &put("a", "")).await.0, 200);
}

pub(crate) async fn a_slow_request_does_not_block_other_tasks() {
    let rig = TestWorker::new().await;
    let (_, socket, _) = waiting_task(&rig).await;
    let slow: Vec<_> = (0..32).map(|_| ask(&socket, "PUT /checkpoint HTTP/1.1\r\n")).collect();
    let (status, text) = call(&socket, &put("a", "")).await;
    assert!(status == 429 && text.contains("\"busy\""), "{text}");
    let (id, finished) = rig.run("true").await;
    assert_eq!(finished.exit_code, Some(0), "{id}");
    drop(slow);
    let mut answer = call(&socket, &put("a", "")).await;
    for _ in 0..10_000 {
        if answer.0 != 429 {
            break;
        }
        answer = call(&socket, &put("a", "")).await;
    }
    assert_eq!(answer.0, 200, "{}", answer.1);
}

pub(crate) async fn a_late_request_is_not_attributed_to_the_next_execution() {
    let mut rig = TestWorker::new().await;
    let (first, socket, go) = waiting_task(&rig).await;
    let pid = rig.server.started(&first.execution_id).await;
    rig.kill_agent().await;
    let late = ask(&socket, &put("of the first", ""));
    std::fs::write(&go, "1").unwrap();
    rig.server.wait_for("its exit", |_| process_state(pid).is_none().then_some(())).await;
    // The supervisor may have sent the connection before an agent was connected; the agent then gets the execution
    // with it.
    rig.start_agent();
    rig.server.finished(&first.execution_id).await;
    let (second, again, _) = waiting_task(&rig).await;
    assert_eq!(again, socket, "the same folder is reused");
    let mut late = late;
    let mut text = String::new();
    late.read_to_string(&mut text).ok();
    assert!(rig.server.state().saved.iter().all(|saved| saved.execution_id != second.execution_id), "{text}");
}

pub(crate) async fn a_checkpoint_file_is_saved_while_the_task_runs() {
    let rig = TestWorker::new().await;
    let go = rig.shared("go");
    let order = sh(&format!(
        "echo 1 > tmp; mv tmp $BELFRY_CHECKPOINT; while ! [ -s {} ]; do sleep 0.01; done",
        go.display()
    ));
    rig.server.assign(vec![order.clone()]).await;
    let saved = rig.server.wait_for("the checkpoint", |state| state.saved.first().cloned()).await;
    assert_eq!((saved.execution_id.as_str(), &*saved.data), (order.execution_id.as_str(), b"1\n".as_slice()));
    std::fs::write(&go, "1").unwrap();
    let finished = rig.server.finished(&order.execution_id).await;
    // Unless the task ended before the supervisor was notified of the saved checkpoint.
    assert!(finished.checkpoint.is_none_or(|data| &*data == b"1\n"));
}

pub(crate) async fn the_last_checkpoint_is_sent_with_the_end() {
    let rig = TestWorker::new().await;
    let (_, finished) = rig.run("echo 9 > tmp; mv tmp $BELFRY_CHECKPOINT; exit 3").await;
    assert_eq!(finished.checkpoint.as_deref(), Some(b"9\n".as_slice()));
    let (_, finished) = rig.run("exit 3").await;
    assert_eq!(finished.checkpoint, None, "a reused folder contains no file of the previous task");
    let (_, finished) = rig.run("ln -s /etc/passwd $BELFRY_CHECKPOINT").await;
    assert_eq!(finished.checkpoint, None);
}

/// To the task in a file, to readers of the log in a line, and to all others in the detail of the end.
pub(crate) async fn a_too_large_checkpoint_is_reported_to_task_log_and_server() {
    let rig = TestWorker::new().await;
    let (id, finished) = rig.run("head -c 65537 /dev/zero > $BELFRY_CHECKPOINT").await;
    let refusal = "the checkpoint in $BELFRY_CHECKPOINT was not saved: larger than 64KiB";
    assert_eq!((finished.checkpoint, finished.exit_code), (None, Some(0)));
    assert_eq!(finished.detail, refusal);
    let log = rig.server.wait_for("the log", |state| state.log(&id, Stream::Notice)).await;
    assert!(log.contains(refusal), "{log}");
    let (_, finished) = rig.run("head -c 65537 /dev/zero > $BELFRY_CHECKPOINT; exit 3").await;
    assert_eq!(finished.detail, format!("exited with code 3; {refusal}"));
    // While the task runs, it can react to the refusal.
    let (_, finished) = rig
        .run(
            "head -c 65537 /dev/zero > $BELFRY_CHECKPOINT
             while ! [ -s $BELFRY_CHECKPOINT.refused ]; do sleep 0.01; done
             cat $BELFRY_CHECKPOINT.refused
             echo better > tmp; mv tmp $BELFRY_CHECKPOINT",
        )
        .await;
    assert_eq!(
        (finished.detail.as_str(), finished.checkpoint.as_deref()),
        ("", Some(b"better\n".as_slice()))
    );
}

/// The newer of file and call counts.
pub(crate) async fn the_newer_of_checkpoint_file_and_request_is_saved() {
    let rig = TestWorker::new().await;
    let go = rig.shared("next");
    let told = rig.shared("told");
    let order = sh(&format!(
        "echo old > $BELFRY_CHECKPOINT.tmp; touch -d '1 minute ago' $BELFRY_CHECKPOINT.tmp
         mv $BELFRY_CHECKPOINT.tmp $BELFRY_CHECKPOINT; rm -f $BELFRY_CHECKPOINT.tmp
         echo $BELFRY_SOCKET > {}; while ! [ -s {} ]; do sleep 0.01; done",
        told.display(),
        go.display(),
    ));
    // The server refuses the file before the call.
    rig.server.state().refusal = Some(Status::unavailable("not yet"));
    rig.server.assign(vec![order.clone()]).await;
    let read = || std::fs::read_to_string(&told).ok().filter(|text| text.ends_with('\n'));
    let socket: PathBuf = rig.server.wait_for("the socket", |_| read()).await.trim().into();
    rig.server.wait_for("a file that is refused", |state| state.refusal.is_none().then_some(())).await;
    let (status, text) = call(&socket, &put("by call", "")).await;
    assert_eq!(status, 200, "{text}");
    std::fs::write(&go, "1").unwrap();
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.checkpoint, None, "the file is older than the call");
    let saved: Vec<_> = rig.server.state().saved.iter().map(|saved| saved.data.clone()).collect();
    assert_eq!(saved.last().map(|data| &**data), Some(b"by call".as_slice()), "{saved:?}");

    let (order, socket, go) = waiting_task(&rig).await;
    let (status, text) = call(&socket, &put("by call", "")).await;
    assert_eq!(status, 200, "{text}");
    std::fs::write(socket.with_file_name(".belfry-checkpoint"), "by file").unwrap();
    std::fs::write(&go, "1").unwrap();
    let finished = rig.server.finished(&order.execution_id).await;
    let saved = rig.server.state().saved.last().map(|saved| saved.data.clone());
    let last = finished.checkpoint.or(saved);
    assert_eq!(last.as_deref(), Some(b"by file".as_slice()));
}

pub(crate) async fn a_stopped_task_saves_a_checkpoint_within_its_grace_period() {
    let rig = TestWorker::new().await;
    let ready = rig.shared("ready");
    let order = sh(&format!(
        "trap 'cat $BELFRY_STOP_REASON > tmp; mv tmp $BELFRY_CHECKPOINT; exit 0' TERM; echo 1 > {}; while :; do sleep 0.01; done",
        ready.display()
    ));
    rig.server.assign(vec![order.clone()]).await;
    let is_ready = || std::fs::metadata(&ready).is_ok_and(|file| file.len() > 0).then_some(());
    rig.server.wait_for("the trap", |_| is_ready()).await;
    let Assignment { execution_id, fence, .. } = order.clone();
    rig.server
        .stop(proto::v1::Stop {
            execution_id,
            fence,
            grace_ms: 20_000,
            discard: false,
            reason: "drained".into(),
        })
        .await;
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.checkpoint.as_deref(), Some(b"drained".as_slice()));
}

pub(crate) async fn an_execution_gets_the_checkpoint_of_the_previous_one() {
    let rig = TestWorker::new().await;
    let checkpoint = Checkpoint { version: 4, data: "page 7".into(), content_type: "text/plain".into() };
    rig.server.state().checkpoint = Some(checkpoint);
    let out = rig.shared("out");
    let order = Assignment {
        checkpoint_version: 4,
        ..sh(&format!("cat $BELFRY_CHECKPOINT > {}; [ -O $BELFRY_CHECKPOINT ]", out.display()))
    };
    rig.server.assign(vec![order.clone()]).await;
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "page 7");
    assert_eq!((finished.exit_code, finished.checkpoint), (Some(0), None));
}

pub(crate) async fn a_lost_checkpoint_does_not_prevent_a_task_from_running() {
    let rig = TestWorker::new().await;
    let order = Assignment { checkpoint_version: 4, ..sh("! [ -e $BELFRY_CHECKPOINT ]") };
    rig.server.assign(vec![order.clone()]).await;
    assert_eq!(rig.server.finished(&order.execution_id).await.exit_code, Some(0));
}

pub(crate) async fn an_unsaved_checkpoint_file_is_sent_with_the_end() {
    let mut rig = TestWorker::new().await;
    let go = rig.shared("go");
    let order = sh(&format!(
        "while ! [ -s {} ]; do sleep 0.01; done; echo last > tmp; mv tmp $BELFRY_CHECKPOINT",
        go.display()
    ));
    rig.server.assign(vec![order.clone()]).await;
    let pid = rig.server.started(&order.execution_id).await;
    rig.kill_agent().await;
    std::fs::write(&go, "1").unwrap();
    rig.server.wait_for("its exit", |_| process_state(pid).is_none().then_some(())).await;
    rig.start_agent();
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.checkpoint.as_deref(), Some(b"last\n".as_slice()));
}
