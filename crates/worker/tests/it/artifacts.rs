//! Inputs before the start, and outputs after the end.

use crashpoint::Point;
use model::JobSpec;
use model::spec::{InputFile, OutputFile};
use proto::logframe::Stream;
use proto::v1::Assignment;
use proto::v1::report::Body;
use rustix::process::Signal;
use sha2::{Digest, Sha256};

use crate::rig::{TestWorker, assignment, process_state, program_with, script, signal};

pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

fn input(artifact: &str, path: &str, executable: bool) -> InputFile {
    InputFile { artifact: artifact.into(), path: path.into(), executable }
}

fn output(artifact: &str, path: &str, optional: bool) -> OutputFile {
    OutputFile { artifact: artifact.into(), path: path.into(), optional }
}

fn storing(text: &str, outputs: Vec<OutputFile>) -> JobSpec {
    let mut spec = script(text);
    spec.outputs = outputs;
    spec
}

pub(crate) async fn inputs_are_staged_before_the_task_starts() {
    let rig = TestWorker::new().await;
    let (tool, data) = (b"#!/bin/sh\ncat data/in.txt\n".to_vec(), b"0123456789".repeat(1_000));
    let pinned = format!("data@sha256:{}", hex(&data));
    rig.server.state().artifacts.insert("tool".into(), (hex(&tool), tool));
    rig.server.state().artifacts.insert(pinned.clone(), (hex(&data), data.clone()));
    let mut spec = script("./bin/tool; echo changed > data/in.txt");
    spec.inputs = vec![input("tool", "bin/tool", true), input(&pinned, "data/in.txt", false)];
    // Run it twice: the second run gets the pinned input from the cache, unchanged by the first run.
    for _ in 0..2 {
        let order = assignment(&spec);
        rig.server.assign(vec![order.clone()]).await;
        let finished = rig.server.finished(&order.execution_id).await;
        assert_eq!(finished.exit_code, Some(0), "{finished:?}");
        let read = finished.files.expect("the report contains the inputs").inputs;
        let read: Vec<_> = read.iter().map(|v| (&*v.artifact, &*v.sha256, &*v.path)).collect();
        let (tool_hash, data_hash) = (hex(b"#!/bin/sh\ncat data/in.txt\n"), hex(&data));
        assert_eq!(read, [("tool", &*tool_hash, "bin/tool"), ("data", &*data_hash, "data/in.txt")]);
        let log =
            rig.server.wait_for("the log", |state| state.log(&order.execution_id, Stream::Stdout)).await;
        assert_eq!(log.as_bytes(), data);
        rig.server.state().artifacts.remove(&pinned);
    }
}

pub(crate) async fn an_input_that_does_not_match_its_hash_fails_the_start() {
    let rig = TestWorker::new().await;
    rig.server.state().artifacts.insert("bad".into(), (hex(b"other"), b"bytes".to_vec()));
    for (artifact, detail) in [("bad", "hash mismatch"), ("none", "no such artifact")] {
        let mut spec = script("true");
        spec.inputs = vec![input(artifact, "file", false)];
        let order = assignment(&spec);
        rig.server.assign(vec![order.clone()]).await;
        let failed = rig.server.wait_for("a failure", |state| {
            state.of(&order.execution_id).find_map(|body| match body {
                Body::StartFailed(failed) => Some(failed.clone()),
                _ => None,
            })
        });
        let failed = failed.await;
        assert_eq!(failed.code, "artifact_failed");
        assert!(failed.detail.contains(detail) && failed.detail.contains(artifact), "{}", failed.detail);
    }
}

pub(crate) async fn outputs_are_stored_before_success_is_reported() {
    let rig = TestWorker::new().await;
    let outputs = vec![output("report", "out/report", false), output("extra", "extra", true)];
    let order = assignment(&storing("mkdir out; seq 1 100000 > out/report", outputs));
    rig.server.assign(vec![order.clone()]).await;
    let stored = rig.server.wait_for("the end, with what was stored", |state| {
        state.finished(&order.execution_id).map(|finished| (finished, state.stored.clone()))
    });
    let (finished, stored) = stored.await;
    assert_eq!((finished.exit_code, finished.error.as_str()), (Some(0), ""), "{finished:?}");
    let expected: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(stored["report"], expected.as_bytes());
    assert!(!stored.contains_key("extra"));
    let told = finished.files.expect("the report contains the outputs").outputs;
    assert_eq!(told.iter().map(|v| (&*v.artifact, &*v.path)).collect::<Vec<_>>(), [("report", "out/report")]);
    assert_eq!(told[0].sha256, hex(expected.as_bytes()));
}

pub(crate) async fn a_missing_output_fails_a_succeeded_task() {
    let rig = TestWorker::new().await;
    for text in ["true", "ln -s /etc/hostname file"] {
        let order = assignment(&storing(text, vec![output("file", "file", false)]));
        rig.server.assign(vec![order.clone()]).await;
        let finished = rig.server.finished(&order.execution_id).await;
        assert_eq!(
            (finished.exit_code, finished.error.as_str()),
            (Some(0), "output_missing"),
            "{finished:?}"
        );
        assert!(finished.detail.contains("`file`"));
    }
    assert!(rig.server.state().stored.is_empty());
}

pub(crate) async fn outputs_are_stored_by_the_next_supervisor_after_a_crash() {
    let rig = TestWorker::new().await;
    rig.server.session().await;
    rig.server.state().closed = true;
    let order = assignment(&storing("echo kept > file", vec![output("file", "file", false)]));
    rig.server.assign(vec![order.clone()]).await;
    let pid = rig.server.started(&order.execution_id).await;
    rig.server.wait_for("its exit", |_| process_state(pid).is_none().then_some(())).await;
    // Wait until the end is in the journal; the output file is the last thing that the task leaves.
    until_recorded(&rig, &order, 2).await;
    signal(rig.supervisor(), Signal::KILL);
    rig.server.state().closed = false;
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!((finished.exit_code, finished.error.as_str()), (Some(0), ""), "{finished:?}");
    assert_eq!(rig.server.state().stored["file"], b"kept\n");
}

/// D7. The outputs were stored, and the journal does not record that yet.
pub(crate) async fn stored_outputs_survive_a_crash_before_the_end_is_recorded() {
    if !cfg!(debug_assertions) {
        return eprintln!("skipped: a release build has no crash points");
    }
    let rig = TestWorker::with(|config, _| {
        let dir = config.dir.parent().unwrap();
        let setting = format!("{}={}/crash", crashpoint::VARIABLE, dir.display());
        config.program = program_with(dir, &format!("export {setting}"));
    })
    .await;
    rig.server.session().await;
    // No output is stored yet.
    rig.server.state().closed = true;
    let outputs = vec![output("file", "file", false), output("extra", "extra", true)];
    let order = assignment(&storing("echo kept > file", outputs));
    rig.server.assign(vec![order.clone()]).await;
    rig.server.started(&order.execution_id).await;
    until_recorded(&rig, &order, 2).await;
    let supervisor = rig.supervisor();
    let (crash, next) = (rig.dir.path().join("crash"), rig.dir.path().join("next"));
    std::fs::write(&next, crashpoint::order(Point::JournalBeforeWrite, 1, 1)).unwrap();
    std::fs::rename(&next, &crash).unwrap();
    rig.server.state().closed = false;
    rig.server.wait_for("its exit", |_| process_state(supervisor).is_none().then_some(())).await;
    assert!(!crash.exists() && rig.server.state().stored.contains_key("file"));
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!((finished.exit_code, finished.error.as_str()), (Some(0), ""), "{finished:?}");
    rig.server.wait_for("an empty folder", |_| (rig.files_of_tasks() == 0).then_some(())).await;
}

/// Waits until the journal has this number of records of an execution.
async fn until_recorded(rig: &TestWorker, order: &Assignment, records: usize) {
    let (journal, id) = (rig.config.dir.join("journal"), order.execution_id.as_bytes());
    let count = || {
        let bytes = std::fs::read(&journal).unwrap();
        bytes.windows(id.len()).filter(|window| *window == id).count()
    };
    rig.server.wait_for("the journal", |_| (count() >= records).then_some(())).await;
}
