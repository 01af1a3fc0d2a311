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
use server::objects::{LogLimit, LogSize, LogWrite, Logs, ObjectError};
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
    logs.append(id, LogWrite::new(0, one.clone(), false)).await.unwrap();
    soon("the first line", watch.changed()).await;
    let part = logs.read(id, 0, 1000).await.unwrap();
    assert_eq!((part.frames, part.complete), (one.clone(), false));

    let appended = logs.append(id, LogWrite::new(part.next, two.clone(), true)).await.unwrap();
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
    logs.append(id, LogWrite::new(0, one.clone(), false)).await.unwrap();
    assert_eq!(logs.append(id, LogWrite::new(0, one.clone(), false)).await.unwrap().new_bytes, 0);
    let gap = logs.append(id, LogWrite::new(10_000, one.clone(), false)).await.unwrap();
    assert_eq!(gap.offset, one.len() as u64, "resend from here");
    let overlap = logs.append(id, LogWrite::new(0, both.clone(), true)).await.unwrap();
    assert_eq!((overlap.offset, overlap.new_bytes), (both.len() as u64, (both.len() - one.len()) as u64));
    // The log is complete: nothing is appended any more.
    let late = logs.append(id, LogWrite::new(both.len() as u64, one, false)).await.unwrap();
    assert_eq!((late.offset, late.new_bytes), (both.len() as u64, 0));
    assert_eq!(logs.read(id, 0, 1000).await.unwrap().frames, both);
}

#[tokio::test]
async fn reading_from_within_a_frame_is_refused() {
    let server = Server::start().await;
    let logs = &server.running.services.objects.logs;
    let id = execution(3 << 80);
    logs.append(id, LogWrite::new(0, frames(&["one\n"]), false)).await.unwrap();
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
        assert!(matches!(
            logs.append(id, LogWrite::new(0, bytes, false)).await,
            Err(ObjectError::Malformed { .. })
        ));
    }
    assert_eq!(logs.size(id).await.unwrap(), LogSize::default());
}

/// A power failure tears the end of a file; the worker must resend it.
#[tokio::test]
async fn a_torn_end_is_cut_off_at_the_next_start() {
    let server = Server::start().await;
    let id = execution(5 << 80);
    let whole = frames(&["one\n", "two\n"]);
    server.running.services.objects.logs.append(id, LogWrite::new(0, whole.clone(), false)).await.unwrap();
    let folder = server.running.services.config.live_logs_dir();
    let dir = server.shutdown().await;
    let file = find(&folder, &format!("{id}.log"));
    let torn = std::fs::metadata(&file).unwrap().len() - 3;
    std::fs::File::options().write(true).open(&file).unwrap().set_len(torn).unwrap();

    let server = Server::start_in(dir, |_| {}).await;
    let logs = &server.running.services.objects.logs;
    let first = frames(&["one\n"]).len() as u64;
    assert_eq!(logs.size(id).await.unwrap(), LogSize { first: 0, end: first, complete: false });
    logs.append(id, LogWrite::new(0, whole.clone(), true)).await.unwrap();
    assert_eq!(logs.read(id, 0, 1000).await.unwrap().frames, whole);
}

fn find(folder: &std::path::Path, name: &str) -> std::path::PathBuf {
    let folders = std::fs::read_dir(folder).unwrap();
    let mut files = folders.flat_map(|f| std::fs::read_dir(f.unwrap().path()).unwrap());
    files.find(|f| f.as_ref().unwrap().file_name() == name).unwrap().unwrap().path()
}

/// Maximum size of the rotated logs of these tests.
const ROTATED_MAX: u64 = 1 << 20;
/// Size of a line of them in the log.
const LINE: u64 = (logframe::HEADER + 100) as u64;

fn numbered(numbers: std::ops::Range<u64>) -> Bytes {
    let lines: Vec<String> = numbers.map(|n| format!("{n:099}\n")).collect();
    frames(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Appends lines `from..to` of a rotated log, of which the worker still has those from `first` on.
async fn append_rotated(
    logs: &Logs,
    id: model::ExecutionId,
    from: u64,
    to: u64,
    first: u64,
    end: bool,
) -> u64 {
    let mut at = from;
    loop {
        let next = (at + 1_000).min(to);
        let limit = LogLimit::Rotated { max_bytes: ROTATED_MAX, first_offset: first * LINE };
        let new = LogWrite { limit, ..LogWrite::new(at * LINE, numbered(at..next), end && next == to) };
        let offset = logs.append(id, new).await.unwrap().offset;
        at = next;
        if at == to {
            return offset;
        }
    }
}

/// Reads a whole log; returns its notices and the numbers of its lines.
async fn read_numbers(logs: &Logs, id: model::ExecutionId, from: u64) -> (Vec<String>, Vec<u64>) {
    let (mut notices, mut numbers, mut offset) = (Vec::new(), Vec::new(), from);
    loop {
        let part = logs.read(id, offset, 100_000).await.unwrap();
        if part.frames.is_empty() {
            return (notices, numbers);
        }
        let (mut at, mut here) = (0, part.from);
        while let Some((frame, next)) = logframe::read(&part.frames, at).unwrap() {
            let text = String::from_utf8_lossy(frame.data).into_owned();
            match frame.stream {
                Stream::Notice => notices.push(text),
                _ => {
                    let number = text.trim().trim_start_matches('0').parse().unwrap_or(0);
                    assert_eq!(here, number * LINE, "the offset of line {number}");
                    numbers.push(number);
                }
            }
            here += (next - at) as u64;
            at = next;
        }
        assert_eq!(here, part.next);
        offset = part.next;
    }
}

fn numbers(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

/// F3. A replica writes for months. Its log keeps the newest lines, and offsets stay.
#[tokio::test]
async fn a_rotated_log_keeps_its_newest_lines() {
    let server = Server::start().await;
    let logs = &server.running.services.objects.logs;
    let id = execution(7 << 80);
    append_rotated(logs, id, 0, 5_000, 0, false).await;
    assert_eq!(read_numbers(logs, id, 0).await, (vec![], numbers(0..5_000)), "not too large yet");
    let end = append_rotated(logs, id, 5_000, 100_000, 0, false).await;
    assert_eq!(end, 100_000 * LINE);
    let size = logs.size(id).await.unwrap();
    assert_eq!((size.end, size.first % LINE), (end, 0));
    let kept = size.end - size.first;
    assert!((ROTATED_MAX / 2 - LINE..=ROTATED_MAX).contains(&kept), "{kept} bytes are kept");
    let first = size.first / LINE;
    let (notices, found) = read_numbers(logs, id, 0).await;
    assert_eq!(found, numbers(first..100_000));
    assert_eq!(notices.len(), 1);
    assert!(notices[0].contains("omitted here"), "{}", notices[0]);
    assert_eq!(read_numbers(logs, id, size.first).await, (vec![], found), "from the first kept line on");
    let file = find(&server.running.services.config.live_logs_dir(), &format!("{id}.log"));
    assert!(file.metadata().unwrap().len() <= ROTATED_MAX + 16);

    // A chunk that is sent again changes nothing.
    assert_eq!(append_rotated(logs, id, 99_000, 100_000, 0, false).await, end);
    let dir = server.shutdown().await;
    let server = Server::start_in(dir, |_| {}).await;
    let logs = &server.running.services.objects.logs;
    assert_eq!(logs.size(id).await.unwrap(), size);
    append_rotated(logs, id, 100_000, 100_001, 0, true).await;
    let size = logs.size(id).await.unwrap();
    assert!(size.complete);
    assert_eq!(read_numbers(logs, id, 0).await.1.last(), Some(&100_000));
    let dir = server.shutdown().await;
    let server = Server::start_in(dir, |_| {}).await;
    let logs = &server.running.services.objects.logs;
    assert_eq!(logs.size(id).await.unwrap(), size, "also after it has become an object");
    logs.delete(id).await.unwrap();
    assert_eq!(logs.size(id).await.unwrap(), LogSize::default());
}

/// D6. A new leader has nothing of the log, and the worker only its newest bytes.
#[tokio::test]
async fn a_rotated_log_continues_after_bytes_that_nobody_has() {
    let server = Server::start().await;
    let logs = &server.running.services.objects.logs;
    let id = execution(8 << 80);
    assert_eq!(append_rotated(logs, id, 0, 10, 0, false).await, 10 * LINE);
    let end = append_rotated(logs, id, 50, 51, 40, false).await;
    assert_eq!(end, 10 * LINE, "the worker has the lines from 40 on");
    let end = append_rotated(logs, id, 40, 60, 40, false).await;
    assert_eq!(end, 60 * LINE);
    let (notices, found) = read_numbers(logs, id, 0).await;
    assert_eq!((notices.len(), found), (1, numbers(40..60)));
    assert_eq!(logs.size(id).await.unwrap(), LogSize { first: 40 * LINE, end, complete: false });
}

/// A reader has opened the file, or knows the size, when the log is rotated.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_of_a_log_that_is_rotated_read_whole_lines() {
    let server = Server::start().await;
    let logs = server.running.services.objects.logs.clone();
    let id = execution(9 << 80);
    append_rotated(&logs, id, 0, 1, 0, false).await;
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let logs = logs.clone();
        readers.spawn(async move {
            let mut reads = 0;
            while !logs.size(id).await.unwrap().complete {
                let (_, found) = read_numbers(&logs, id, 0).await;
                assert!(found.is_sorted());
                reads += 1;
            }
            reads
        });
    }
    append_rotated(&logs, id, 1, 60_000, 0, true).await;
    while let Some(reads) = readers.join_next().await {
        assert!(reads.unwrap() > 0);
    }
}

/// A long log is read in several parts, each of whole frames.
#[tokio::test]
async fn long_logs_are_read_in_pieces_of_whole_frames() {
    let server = Server::start().await;
    let logs = &server.running.services.objects.logs;
    let id = execution(6 << 80);
    let line = "x".repeat(40_000);
    let log = frames(&[&line, &line, &line, &line, &line]);
    logs.append(id, LogWrite::new(0, log.clone(), true)).await.unwrap();
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
            max_bytes: 0,
            rotated: false,
            first_offset: 0,
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
    assert_eq!(server.running.services.objects.logs.size(task.execution_id()).await.unwrap().end, 0);
}
