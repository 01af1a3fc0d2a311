//! Uploads of logs to the server.

use proto::logframe::Stream;
use proto::v1::finished::How;

use crate::rig::{TestWorker, sh};

pub(crate) async fn a_long_log_is_limited_and_reports_the_omitted_bytes() {
    let rig = TestWorker::new().await;
    let (id, finished) = rig.run("seq 1 12000000").await;
    assert_eq!(finished.how(), How::Exited);
    assert!(finished.log_bytes > 90_000_000, "{}", finished.log_bytes);
    let out = rig.server.wait_for("the log", |state| state.log(&id, Stream::Stdout)).await;
    let kept = rig.server.state().logs[&id].0.len() as u64;
    assert!(kept <= model::limits::LOG_BYTES_MAX + (2 << 20), "{kept}");
    assert!(kept > model::limits::LOG_BYTES_MAX - (2 << 20), "{kept}");
    assert!(out.starts_with("1\n2\n3\n") && out.ends_with("11999999\n12000000\n"));
    let notice = rig.server.state().log(&id, Stream::Notice).unwrap();
    assert!(notice.contains("MiB omitted here: a log keeps only its first and last 32 MiB"), "{notice}");
    // The worker's disk has no log files left.
    let spool = rig.config.dir.join("logs");
    rig.server
        .wait_for("an empty spool", |_| std::fs::read_dir(&spool).unwrap().next().is_none().then_some(()))
        .await;
}

pub(crate) async fn a_log_upload_resumes_at_the_acknowledged_offset() {
    let rig = TestWorker::new().await;
    let go = rig.shared("go");
    // More than the window, so some of it was acknowledged.
    rig.server.state().log_bytes_max = 6 << 20;
    let order = sh(&format!(
        "seq 1 2000000; while ! [ -s {} ]; do sleep 0.01; done; seq 2000001 2200000",
        go.display()
    ));
    rig.server.assign(vec![order.clone()]).await;
    rig.server.wait_for("a broken connection", |state| (state.log_bytes_max == 0).then_some(())).await;
    let before = rig.server.state().log_offsets.len();
    rig.server.state().log_bytes_max = usize::MAX;
    std::fs::write(&go, "1").unwrap();
    rig.server.finished(&order.execution_id).await;
    let out = rig.server.wait_for("the log", |state| state.log(&order.execution_id, Stream::Stdout)).await;
    assert!(out.lines().map(|line| line.parse::<u32>().unwrap()).eq(1..=2_200_000));
    assert!(rig.server.state().log_offsets[before] > 0, "the log was sent from the start again");
}

pub(crate) async fn heartbeats_and_reports_continue_during_a_flood_of_logs() {
    let rig = TestWorker::new().await;
    // A server that accepts no logs is the worst case.
    rig.server.state().log_acks = false;
    let floods: Vec<_> = (0..2).map(|_| sh("exec yes")).collect();
    rig.server.assign(floods.clone()).await;
    for flood in &floods {
        rig.server.started(&flood.execution_id).await;
    }
    rig.server.wait_for("a full window", |state| (state.log_offsets.len() > 15).then_some(())).await;
    let beats = rig.server.state().beats.len();
    for code in 1..=5 {
        let (_, finished) = rig.run(&format!("exit {code}")).await;
        assert_eq!(finished.exit_code, Some(code));
    }
    rig.server.wait_for("ten more heartbeats", |state| (state.beats.len() >= beats + 10).then_some(())).await;
    // Without acknowledgements at most the window is sent.
    let received: usize = rig.server.state().logs.values().map(|(log, _)| log.len()).sum();
    assert!(received <= 5 << 20, "{received}");
}
