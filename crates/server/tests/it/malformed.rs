//! Malformed messages, unauthenticated peers and revoked tokens. Each closes its own stream with a status, and affects nothing else.

use model::JobStatus;
use proto::v1::{self, WorkerMessage, worker_message::Body};
use serde_json::{Value, json};
use server::testing;
use store::Access as _;
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};

use crate::harness::{Server, job, soon, submit};

const WORKER: &str = "wkr_01k9zq3m6c0000000000000000";

fn hello() -> Body {
    Body::Hello(v1::Hello {
        worker_id: WORKER.into(),
        capacity: Some(v1::Capacity { slots: 1, ..v1::Capacity::default() }),
        ..v1::Hello::default()
    })
}

fn reports(report: v1::Report) -> Body {
    Body::Reports(v1::ReportBatch { reports: vec![report] })
}

/// Returns the final status of a session with these messages.
async fn verdict(server: &Server, bodies: Vec<Option<Body>>) -> Status {
    let mut client = testing::client(&server.url()).await.unwrap();
    let messages = bodies.into_iter().map(|body| WorkerMessage { body });
    // The stream stays open after the messages, like that of a worker.
    let messages = futures::stream::iter(messages.collect::<Vec<_>>()).chain(futures::stream::pending());
    let request = testing::with_token(messages, &server.worker_token());
    let mut replies = client.session(request).await.unwrap().into_inner();
    soon("the end of the session", async {
        loop {
            match replies.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the session ended without a status"),
                Err(status) => return status,
            }
        }
    })
    .await
}

/// Checks that another worker and its jobs still work.
async fn works(server: &Server) {
    let _worker = server.worker(server.fake()).await;
    let made = submit(server.node(), job(), None).await.unwrap();
    server.until_status(made.job, JobStatus::Succeeded).await;
}

#[tokio::test]
async fn malformed_messages_close_their_session_and_are_counted() {
    let server = Server::start().await;
    let no_id = v1::Report { execution_id: "exe_nonsense".into(), ..v1::Report::default() };
    let no_body =
        v1::Report { execution_id: "exe_01k9zq3m6c0000000000000000".into(), ..v1::Report::default() };
    let bad_hello = Body::Hello(v1::Hello { worker_id: "me".into(), ..v1::Hello::default() });
    let cases = [
        vec![None],
        vec![Some(Body::Reports(v1::ReportBatch::default()))],
        vec![Some(bad_hello)],
        vec![Some(hello()), Some(hello())],
        vec![Some(hello()), Some(reports(no_id))],
        vec![Some(hello()), Some(reports(no_body))],
    ];
    let count = cases.len();
    for bodies in cases {
        let status = verdict(&server, bodies.clone()).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{bodies:?}: {status}");
        assert!(status.message().starts_with("malformed "), "{status}");
    }
    let text = server.running.services.metrics.encode(
        &server.node().view(),
        true,
        server::metrics::Exposition::Text,
    );
    let line = format!("belfry_worker_streams_closed_total{{reason=\"malformed\"}} {count}\n");
    assert!(text.contains(&line), "{text}");
    works(&server).await;
}

#[tokio::test]
async fn a_message_of_any_size_is_refused_before_it_is_read() {
    let server = Server::start().await;
    let name = "x".repeat(32 << 20);
    let large = Body::Hello(v1::Hello { worker_id: WORKER.into(), name, ..v1::Hello::default() });
    let status = verdict(&server, vec![Some(large)]).await;
    assert!(matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted), "{status}");
    works(&server).await;
}

/// A report about an unknown execution is acknowledged, so that the worker can delete it.
#[tokio::test]
async fn a_report_about_an_unknown_execution_is_acknowledged() {
    let server = Server::start().await;
    let mut client = testing::client(&server.url()).await.unwrap();
    let unknown = testing::finished("exe_01k9zq3m6c0000000000000000", 5, v1::finished::How::Exited, Some(0));
    let messages = [Some(hello()), Some(reports(unknown))].map(|body| WorkerMessage { body });
    let messages = futures::stream::iter(messages).chain(futures::stream::pending());
    let request = testing::with_token(messages, &server.worker_token());
    let mut replies = client.session(request).await.unwrap().into_inner();
    let ack = soon("an acknowledgement", async {
        loop {
            let message = replies.message().await.unwrap().unwrap();
            if let Some(v1::server_message::Body::Acks(batch)) = message.body {
                return batch.acks[0].clone();
            }
        }
    })
    .await;
    assert!(ack.r#final, "{ack:?}");
    assert_eq!(server.count(JobStatus::Succeeded).await, 0);
}

#[tokio::test]
async fn malformed_heartbeats_close_their_stream() {
    let server = Server::start().await;
    let mut client = testing::client(&server.url()).await.unwrap();
    let beat = v1::Heartbeat { worker_id: "me".into(), ..v1::Heartbeat::default() };
    let beats = futures::stream::iter([beat]).chain(futures::stream::pending());
    let mut grants =
        client.heartbeat(testing::with_token(beats, &server.worker_token())).await.unwrap().into_inner();
    let status = soon("the end of the heartbeat stream", grants.message()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    // An unknown session is not an error: the grant makes the worker open a new one.
    let beat = v1::Heartbeat { worker_id: WORKER.into(), session: 1, seq: 8, health: None, usage: None };
    let beats = futures::stream::iter([beat]).chain(futures::stream::pending());
    let mut grants =
        client.heartbeat(testing::with_token(beats, &server.worker_token())).await.unwrap().into_inner();
    let grant = soon("a grant", grants.message()).await.unwrap().unwrap();
    assert_eq!((grant.seq, grant.lease_ms), (8, 0));
}

#[tokio::test]
async fn malformed_log_chunks_close_their_stream() {
    let server = Server::start().await;
    let mut client = testing::client(&server.url()).await.unwrap();
    let chunk =
        v1::LogChunk { worker_id: WORKER.into(), execution_id: "exe_?".into(), ..v1::LogChunk::default() };
    let chunks = futures::stream::iter([chunk]).chain(futures::stream::pending());
    let mut acks =
        client.logs(testing::with_token(chunks, &server.worker_token())).await.unwrap().into_inner();
    let status = soon("the end of the log stream", acks.message()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

/// F4.4: the gRPC service is for workers only.
#[tokio::test]
async fn a_session_requires_a_token() {
    let server = Server::start().await;
    let mut client = testing::client(&server.url()).await.unwrap();
    let empty = || futures::stream::empty::<WorkerMessage>();
    for token in ["", "bf_worker_x_y", "garbage"] {
        let refused = client.session(testing::with_token(empty(), token)).await.map(|_| ());
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated, "{token}");
    }
    let refused = client.session(tonic::Request::new(empty())).await.map(|_| ());
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
}

/// H2. Also if another server revoked the token: it writes to the same store.
#[tokio::test]
async fn the_streams_of_a_worker_end_when_its_token_is_revoked() {
    let server = Server::start().await;
    let token = server.worker_token();
    let mut client = testing::client(&server.url()).await.unwrap();
    let messages = futures::stream::iter([WorkerMessage { body: Some(hello()) }]);
    let messages = messages.chain(futures::stream::pending());
    let mut session = client.session(testing::with_token(messages, &token)).await.unwrap().into_inner();
    soon("a welcome", session.message()).await.unwrap();
    let silent = testing::with_token(futures::stream::pending::<v1::Heartbeat>(), &token);
    let mut grants = client.heartbeat(silent).await.unwrap().into_inner();
    let silent = testing::with_token(futures::stream::pending::<v1::LogChunk>(), &token);
    let mut acks = client.logs(silent).await.unwrap().into_inner();

    let entries = server.store.access(0).await.unwrap();
    let mut row = entries.rows.into_iter().find(|row| row.body.contains("{\"worker\":")).unwrap();
    let mut body: Value = serde_json::from_str(&row.body).unwrap();
    body["revoked_at"] = json!("2026-11-28T00:00:00Z");
    row.body = body.to_string();
    assert!(server.store.change_access(entries.version, entries.version + 1, &[row]).await.unwrap());

    let ends = async {
        let session = loop {
            if let Err(status) = session.message().await {
                break status;
            }
        };
        [session, grants.message().await.unwrap_err(), acks.message().await.unwrap_err()]
    };
    for status in soon("the end of the streams", ends).await {
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    }
    let refused = client.session(testing::with_token(futures::stream::empty(), &token)).await.map(|_| ());
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
}
