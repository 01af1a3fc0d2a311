//! Logs: stored as they arrive, read while they grow, resumed after an interruption.
//!
//! The tests speak for the worker. The first ones call the log store with chunks of frames at chosen offsets,
//! [`Lane`] is a log stream over gRPC, and one test damages a file before a restart.
//!
//! # Invariants
//! - A log is the same whatever was sent again: a repeated chunk changes nothing, a gap is reported with the
//!   offset to resend from.
//! - Only whole, valid frames are stored, and only from the worker that has the execution, under its fence.

use bytes::Bytes;
use model::JobStatus;
use proto::logframe::{self, Stream};
use proto::v1::{LogAck, LogChunk};
use server::objects::{LogSize, ObjectError};
use server::testing::{self, Plan, Task};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::harness::{Server, job, soon, submit};

pub(crate) fn frames(lines: &[&str]) -> Bytes {
    let mut log = Vec::new();
    for line in lines {
        logframe::write(&mut log, Stream::Stdout, 0, line.as_bytes());
    }
    log.into()
}

fn execution(bits: u128) -> model::ExecutionId {
    model::ExecutionId::from_bits(bits)
}

/// A3.
#[tokio::test]
async fn a_log_is_read_while_it_grows_and_after_it_is_complete() {
    let server = Server::start().await;
    let logs = &server.running.services.objects.logs;
    let id = execution(1 << 80);
    let (one, two) = (frames(&["one\n"]), frames(&["two\n", "three\n"]));
    let mut watch = logs.changed(id);
    assert_eq!(logs.read(id, 0, 1000).await.unwrap().frames, Bytes::new());
    logs.append(id, 0, one.clone(), false).await.unwrap();
    soon("the first line", watch.changed()).await;
    let part = logs.read(id, 0, 1000).await.unwrap();
    assert_eq!((part.frames, part.complete), (one.clone(), false));

    let appended = logs.append(id, part.next, two.clone(), true).await.unwrap();
    assert_eq!(appended.offset, (one.len() + two.len()) as u64);
    soon("the rest", watch.changed()).await;
    let rest = logs.read(id, part.next, 1000).await.unwrap();
    assert_eq!((rest.frames, rest.next, rest.complete), (two, appended.offset, true));
    let end = logs.read(id, rest.next, 1000).await.unwrap();
    assert_eq!((end.frames, end.complete), (Bytes::new(), true));
}

/// A worker may resend from any acknowledged offset.
#[tokio::test]
async fn a_repeated_chunk_changes_nothing_and_a_gap_is_reported() {
    let server = Server::start().await;
    let logs = &server.running.services.objects.logs;
    let id = execution(2 << 80);
    let (one, both) = (frames(&["one\n"]), frames(&["one\n", "two\n"]));
    logs.append(id, 0, one.clone(), false).await.unwrap();
    assert_eq!(logs.append(id, 0, one.clone(), false).await.unwrap().new_bytes, 0);
    let gap = logs.append(id, 10_000, one.clone(), false).await.unwrap();
    assert_eq!(gap.offset, one.len() as u64, "resend from here");
    let overlap = logs.append(id, 0, both.clone(), true).await.unwrap();
    assert_eq!((overlap.offset, overlap.new_bytes), (both.len() as u64, (both.len() - one.len()) as u64));
    // The log is complete: nothing is appended any more.
    let late = logs.append(id, both.len() as u64, one, false).await.unwrap();
    assert_eq!((late.offset, late.new_bytes), (both.len() as u64, 0));
    assert_eq!(logs.read(id, 0, 1000).await.unwrap().frames, both);
}

#[tokio::test]
async fn reading_from_within_a_frame_is_refused() {
    let server = Server::start().await;
    let logs = &server.running.services.objects.logs;
    let id = execution(3 << 80);
    logs.append(id, 0, frames(&["one\n"]), false).await.unwrap();
    for offset in [3, 10_000] {
        assert!(matches!(logs.read(id, offset, 1000).await, Err(ObjectError::BadOffset { .. })), "{offset}");
    }
}

#[tokio::test]
async fn malformed_frames_are_refused() {
    let server = Server::start().await;
    let logs = &server.running.services.objects.logs;
    let id = execution(4 << 80);
    let torn = frames(&["one\n"]).slice(..10);
    for bytes in [torn, Bytes::from_static(&[9; 40])] {
        assert!(matches!(logs.append(id, 0, bytes, false).await, Err(ObjectError::Malformed { .. })));
    }
    assert_eq!(logs.size(id).await.unwrap(), LogSize::default());
}

/// A power failure tears the end of a file; the worker must resend it.
#[tokio::test]
async fn a_torn_end_is_cut_off_at_the_next_start() {
    let server = Server::start().await;
    let id = execution(5 << 80);
    let whole = frames(&["one\n", "two\n"]);
    server.running.services.objects.logs.append(id, 0, whole.clone(), false).await.unwrap();
    let folder = server.running.services.config.live_logs_dir();
    let dir = server.shutdown().await;
    let file = find(&folder, &format!("{id}.log"));
    let torn = std::fs::metadata(&file).unwrap().len() - 3;
    std::fs::File::options().write(true).open(&file).unwrap().set_len(torn).unwrap();

    let server = Server::start_in(dir, |_| {}).await;
    let logs = &server.running.services.objects.logs;
    let first = frames(&["one\n"]).len() as u64;
    assert_eq!(logs.size(id).await.unwrap(), LogSize { bytes: first, complete: false });
    logs.append(id, 0, whole.clone(), true).await.unwrap();
    assert_eq!(logs.read(id, 0, 1000).await.unwrap().frames, whole);
}

fn find(folder: &std::path::Path, name: &str) -> std::path::PathBuf {
    let folders = std::fs::read_dir(folder).unwrap();
    let mut files = folders.flat_map(|f| std::fs::read_dir(f.unwrap().path()).unwrap());
    files.find(|f| f.as_ref().unwrap().file_name() == name).unwrap().unwrap().path()
}

/// A long log is read in several parts, each of whole frames.
#[tokio::test]
async fn long_logs_are_read_in_pieces_of_whole_frames() {
    let server = Server::start().await;
    let logs = &server.running.services.objects.logs;
    let id = execution(6 << 80);
    let line = "x".repeat(40_000);
    let log = frames(&[&line, &line, &line, &line, &line]);
    logs.append(id, 0, log.clone(), true).await.unwrap();
    let (mut read, mut next, mut parts) = (Vec::new(), 0, 0);
    loop {
        let part = logs.read(id, next, 70_000).await.unwrap();
        read.extend_from_slice(&part.frames);
        next = part.next;
        parts += 1;
        if part.complete {
            break;
        }
    }
    assert_eq!((read, parts), (log.to_vec(), 5));
}

/// A worker's log stream.
struct Lane {
    chunks: mpsc::Sender<LogChunk>,
    acks: tonic::Streaming<LogAck>,
    worker_id: String,
}

impl Lane {
    async fn open(server: &Server, worker_id: String) -> Self {
        let (chunks, outgoing) = mpsc::channel(16);
        let mut client = testing::client(&server.url()).await.unwrap();
        let request = testing::with_token(ReceiverStream::new(outgoing), &server.worker_token());
        let acks = client.logs(request).await.unwrap().into_inner();
        Self { chunks, acks, worker_id }
    }

    async fn send(&mut self, task: &Task, offset: u64, frames: Bytes, end: bool) -> LogAck {
        let chunk = LogChunk {
            worker_id: self.worker_id.clone(),
            execution_id: task.execution.clone(),
            fence: task.fence,
            offset,
            frames,
            end,
        };
        self.chunks.send(chunk).await.unwrap();
        soon("an acknowledgement", self.acks.message()).await.unwrap().unwrap()
    }
}

/// A3, D9. A worker sends a log, loses its connection, and resumes at the acknowledged offset.
#[tokio::test]
async fn a_worker_resumes_a_log_from_the_acknowledged_offset() {
    let server = Server::start().await;
    let worker = server.worker(server.fake().plan(|_| Plan::Run)).await;
    let made = submit(server.node(), job(), None).await.unwrap();
    let task = soon("the job to run", worker.next_running()).await;
    let (one, two) = (frames(&["one\n"]), frames(&["two\n"]));
    let mut lane = Lane::open(&server, worker.id().to_string()).await;
    let ack = lane.send(&task, 0, one.clone(), false).await;
    assert_eq!((ack.offset, ack.gone), (one.len() as u64, false));
    drop(lane);
    let mut lane = Lane::open(&server, worker.id().to_string()).await;
    let ack = lane.send(&task, ack.offset, two.clone(), true).await;
    assert_eq!(ack.offset, (one.len() + two.len()) as u64);
    worker.exit(&task, 0);
    server.until_status(made.job, JobStatus::Succeeded).await;
    let logs = &server.running.services.objects.logs;
    let part = logs.read(task.execution_id(), 0, 1000).await.unwrap();
    assert_eq!((part.frames, part.complete), ([one, two].concat().into(), true));
    let text = server.running.services.metrics.encode(
        &server.node().view(),
        true,
        server::metrics::Exposition::Text,
    );
    assert!(text.contains(&format!("belfry_log_bytes_total {}\n", ack.offset)), "{text}");
}

/// Guard by fence, never by id alone.
#[tokio::test]
async fn a_worker_cannot_write_the_log_of_another_worker() {
    let server = Server::start().await;
    let worker = server.worker(server.fake().plan(|_| Plan::Run)).await;
    submit(server.node(), job(), None).await.unwrap();
    let task = soon("the job to run", worker.next_running()).await;
    let mut stranger = Lane::open(&server, model::WorkerId::from_bits(9).to_string()).await;
    assert!(stranger.send(&task, 0, frames(&["lies\n"]), false).await.gone);
    let mut own = Lane::open(&server, worker.id().to_string()).await;
    let older = Task { fence: task.fence - 1, ..task.clone() };
    assert!(own.send(&older, 0, frames(&["old\n"]), false).await.gone);
    let unknown = Task { execution: execution(1).to_string(), ..task.clone() };
    assert!(own.send(&unknown, 0, frames(&["what\n"]), false).await.gone);
    assert_eq!(server.running.services.objects.logs.size(task.execution_id()).await.unwrap().bytes, 0);
}
