//! Concurrent tasks of one server that use the same log.

use tokio::task::JoinSet;

use super::*;
use crate::config::ServerConfig;

/// Returns logs of a server that shares its store.
fn shared_logs(data: &std::path::Path) -> Logs {
    let config = ServerConfig::new(data);
    Logs::open(config.live_logs_dir(), Backend::open(&config, None).unwrap(), true).unwrap()
}

fn frame(text: &str) -> Bytes {
    let mut frames = Vec::new();
    logframe::write(&mut frames, logframe::Stream::Stdout, 0, text.as_bytes());
    frames.into()
}

/// A reader without data examines the disk while the writer starts and completes the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_do_not_disturb_the_writer_of_a_log() {
    let data = tempfile::tempdir().unwrap();
    let logs = shared_logs(data.path());
    for bits in 1..400_u128 {
        let execution = ExecutionId::from_bits(bits << 80);
        let mut readers = JoinSet::new();
        for _ in 0..4 {
            let logs = logs.clone();
            readers.spawn(async move {
                let mut last = LogSize::default();
                while !last.complete {
                    let size = logs.size(execution).await.unwrap();
                    assert!(size.end >= last.end, "{last:?}, and later {size:?}");
                    last = size;
                    tokio::task::yield_now().await;
                }
            });
        }
        let (first, last) = (frame("first"), frame("last"));
        let whole = [&first[..], &last[..]].concat();
        let appended = logs.append(execution, LogWrite::new(0, first, false)).await.unwrap();
        let appended = logs.append(execution, LogWrite::new(appended.offset, last, true)).await.unwrap();
        assert_eq!(appended.kept, whole.len() as u64);
        while let Some(reader) = readers.join_next().await {
            reader.unwrap();
        }
        assert_eq!(logs.read(execution, 0, 1_000).await.unwrap().frames, whole);
    }
}
