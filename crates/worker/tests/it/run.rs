//! Starts of tasks, and the reports of their ends.
//!
//! In order: outcomes and repeated assignments, failures to start, what a task gets (environment, user,
//! folder, script, standard input), output values, and limits. A test assigns an execution through the fake
//! server, and compares the report and the log that arrive there.
//!
//! Tests of limits are skipped where the machine cannot enforce them; the worker reports the same to its
//! server as a missing capability.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use model::spec::{Hook, JobSpec, ProcessRun, Run, Sidecar, SidecarCheck};
use model::{Bytes, Duration};
use proto::logframe::Stream;
use proto::v1::finished::How;
use proto::v1::report::Body;
use proto::v1::{Assignment, Finished, Origin, StepElement, StepOrigin};

use crate::rig::{TestWorker, assignment, script, sh};

pub(crate) async fn a_task_runs_and_its_outcome_and_log_are_received() {
    let rig = TestWorker::new().await;
    let (id, finished) = rig.run("echo out; echo err >&2").await;
    assert_eq!((finished.how(), finished.exit_code), (How::Exited, Some(0)), "{finished:?}");
    assert!(finished.log_bytes > 0);
    assert!(finished.started_at_unix_ms > 0 && finished.finished_at_unix_ms >= finished.started_at_unix_ms);
    assert_eq!(rig.server.wait_for("the log", |s| s.log(&id, Stream::Stdout)).await, "out\n");
    assert_eq!(rig.server.state().log(&id, Stream::Stderr).unwrap(), "err\n");
}

/// E6.
pub(crate) async fn the_use_of_a_running_task_is_measured() {
    let rig = TestWorker::new().await;
    let order = sh("while :; do :; done & sleep 6; kill $!");
    rig.server.assign(vec![order.clone()]).await;
    let of_task = |batch: &proto::v1::UsageBatch| {
        batch.executions.iter().find(|it| it.execution_id == order.execution_id).cloned()
    };
    let usage = rig
        .server
        .wait_for("a measurement", |state| {
            state.beats.iter().filter_map(|beat| beat.usage.as_ref()).find_map(of_task)
        })
        .await;
    assert_eq!(usage.job_id, order.job_id);
    assert!(usage.cpu_millis > 100 && usage.memory_bytes > 1 << 20 && usage.processes == 3, "{usage:?}");
    let finished = rig.server.finished(&order.execution_id).await;
    let measured = finished.measured.unwrap();
    assert!(measured.measurements >= 1 && measured.cpu_max_millis >= usage.cpu_millis, "{measured:?}");
    assert!(measured.memory_p95_bytes >= usage.memory_bytes && finished.peak_memory_bytes > 1 << 20);
    rig.server
        .wait_for("no measurement any more", |state| {
            let last = state.beats.iter().rev().find_map(|beat| beat.usage.clone())?;
            last.executions.is_empty().then_some(())
        })
        .await;
}

fn hook(text: &str, timeout: Option<u64>) -> Hook {
    let command = ["sh", "-c", text].map(str::to_owned).to_vec();
    Hook { command, timeout: timeout.map(Duration::from_millis) }
}

/// A task with hooks: a command before and a command after its script.
fn with_hooks(pre_start: Vec<Hook>, text: &str, post_stop: Vec<Hook>) -> JobSpec {
    let process = ProcessRun { script: Some(text.to_owned()), pre_start, post_stop, ..ProcessRun::default() };
    JobSpec::new(Run::Process(process))
}

/// Stops a task with a long grace period; returns the report of its end.
async fn stop(rig: &TestWorker, order: &Assignment) -> Finished {
    let (execution_id, fence) = (order.execution_id.clone(), order.fence);
    let reason = "cancelled".into();
    rig.server.stop(proto::v1::Stop { execution_id, fence, grace_ms: 60_000, discard: false, reason }).await;
    rig.server.finished(&order.execution_id).await
}

/// F3.
pub(crate) async fn hooks_run_before_and_after_the_process() {
    let rig = TestWorker::new().await;
    let pre_start =
        vec![hook("echo one > state; echo first", None), hook("echo $BELFRY_JOB_NAME", Some(60_000))];
    let post_stop = vec![hook("echo after $BELFRY_EXIT_CODE; exit 9", None), hook("echo last", None)];
    let order = assignment(&with_hooks(pre_start, "cat state; exit 3", post_stop));
    rig.server.assign(vec![order.clone()]).await;
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!((finished.how(), finished.exit_code), (How::Exited, Some(3)), "{finished:?}");
    let name = serde_json::from_slice::<JobSpec>(&order.spec).unwrap().name;
    let expected = format!("first\n{name}\none\nafter 3\nlast\n");
    rig.server
        .wait_for("the log", |s| (s.log(&order.execution_id, Stream::Stdout)? == expected).then_some(()))
        .await;
    let problem = rig.server.state().log(&order.execution_id, Stream::Stderr).unwrap();
    assert_eq!(problem, "belfry: post_stop[0] `sh` exited with code 9\n");
}

/// F3.
pub(crate) async fn a_failed_hook_before_the_start_fails_the_task() {
    let rig = TestWorker::new().await;
    for (first, code, problem) in [
        (hook("exit 7", None), 7, "pre_start[0] `sh` exited with code 7"),
        (hook("sleep 600", Some(100)), 124, "it ran longer than its timeout"),
        (Hook { command: vec!["no-such".into()], timeout: None }, 127, "cannot execute `no-such`"),
    ] {
        let spec = with_hooks(
            vec![first, hook("echo second", None)],
            "echo process",
            vec![hook("echo after", None)],
        );
        let order = assignment(&spec);
        rig.server.assign(vec![order.clone()]).await;
        let finished = rig.server.finished(&order.execution_id).await;
        assert_eq!((finished.how(), finished.exit_code), (How::Exited, Some(code)), "{finished:?}");
        rig.server
            .wait_for("the log", |s| (s.log(&order.execution_id, Stream::Stdout)? == "after\n").then_some(()))
            .await;
        let log = rig.server.state().log(&order.execution_id, Stream::Stderr).unwrap();
        assert!(log.contains(problem), "{log}");
    }
}

/// F3.
pub(crate) async fn hooks_after_a_stop_run_within_the_grace_period() {
    let rig = TestWorker::new().await;
    let ready = rig.shared("ready");
    let text = format!("trap 'exit 5' TERM; echo 1 > {}; while :; do sleep 0.05; done", ready.display());
    let after = rig.shared("after");
    let post_stop = vec![hook(&format!("echo $BELFRY_EXIT_CODE > {}", after.display()), None)];
    let order = assignment(&with_hooks(Vec::new(), &text, post_stop));
    rig.server.assign(vec![order.clone()]).await;
    rig.server.wait_for("the task", |_| (crate::rig::numbers(&ready) == [1]).then_some(())).await;
    let finished = stop(&rig, &order).await;
    assert_eq!(finished.how(), How::Stopped, "{finished:?}");
    assert_eq!(std::fs::read_to_string(&after).unwrap(), "5\n");
}

fn sidecar(text: &str, ready: Option<&str>) -> Sidecar {
    let shell = |text: &str| ["sh", "-c", text].map(str::to_owned).to_vec();
    let ready = ready.map(|text| SidecarCheck::Command(shell(text)));
    let (ready_timeout, grace) = (Duration::from_secs(20), Duration::from_secs(20));
    Sidecar { name: "db".into(), command: shell(text), ready, ready_timeout, grace }
}

fn with_sidecar(sidecar: Sidecar, text: &str) -> JobSpec {
    let process = ProcessRun {
        script: Some(text.to_owned()),
        sidecars: vec![sidecar],
        pre_start: vec![hook("echo migrated $(cat data)", None)],
        post_stop: vec![hook("echo dumped $(cat data)", None)],
        ..ProcessRun::default()
    };
    JobSpec::new(Run::Process(process))
}

/// F3. The stop signal of the task does not reach the sidecar before the process has ended.
pub(crate) async fn a_sidecar_runs_as_long_as_the_process() {
    let rig = TestWorker::new().await;
    let ready = rig.shared("ready");
    let db = sidecar(
        "trap 'echo closed; rm data; exit 0' TERM; sleep 0.2; echo rows > data; while :; do sleep 0.05; done",
        Some("test -e data"),
    );
    let text = format!(
        "trap 'echo stopped $(cat data); exit 4' TERM; echo 1 > {}; while :; do sleep 0.05; done",
        ready.display()
    );
    let order = assignment(&with_sidecar(db, &text));
    rig.server.assign(vec![order.clone()]).await;
    rig.server.wait_for("the task", |_| (crate::rig::numbers(&ready) == [1]).then_some(())).await;
    let finished = stop(&rig, &order).await;
    assert_eq!((finished.how(), finished.exit_code), (How::Stopped, Some(4)), "{finished:?}");
    let expected = "migrated rows\nstopped rows\ndumped rows\nclosed\n";
    rig.server
        .wait_for("the log", |s| (s.log(&order.execution_id, Stream::Stdout)? == expected).then_some(()))
        .await;
}

/// F3.
pub(crate) async fn a_sidecar_that_is_not_ready_fails_the_task() {
    let rig = TestWorker::new().await;
    let slow = Sidecar { ready_timeout: Duration::from_millis(300), ..sidecar("sleep 600", Some("false")) };
    for (sidecar, problem) in [
        (slow, "belfry: sidecar `db` was not ready within 300ms\n"),
        (sidecar("exit 3", Some("false")), "belfry: sidecar `db` exited with code 3 before it was ready\n"),
    ] {
        let order = assignment(&with_sidecar(sidecar, "echo process"));
        rig.server.assign(vec![order.clone()]).await;
        let finished = rig.server.finished(&order.execution_id).await;
        assert_eq!((finished.how(), finished.exit_code), (How::Exited, Some(1)), "{finished:?}");
        rig.server.wait_for("the log", |s| s.log(&order.execution_id, Stream::Stdout)).await;
        let log = |stream| rig.server.state().log(&order.execution_id, stream).unwrap_or_default();
        assert!(!log(Stream::Stdout).contains("process") && log(Stream::Stdout).contains("dumped"));
        assert!(log(Stream::Stderr).starts_with(problem), "{}", log(Stream::Stderr));
    }
    // A sidecar that ends early does not end the task.
    let order = assignment(&with_sidecar(sidecar("echo rows > data; exit 5", None), "sleep 0.5"));
    rig.server.assign(vec![order.clone()]).await;
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.exit_code, Some(0), "{finished:?}");
}

pub(crate) async fn an_acknowledged_execution_and_its_folder_are_removed() {
    let rig = TestWorker::new().await;
    let (id, _) = rig.run("echo x > file").await;
    rig.server.wait_for("the acknowledgement", |state| state.acknowledged.contains(&id).then_some(())).await;
    rig.server.wait_for("an empty folder", |_| (rig.files_of_tasks() == 0).then_some(())).await;
    rig.server.close_session();
    let hello = rig.server.wait_for("another hello", |state| state.hellos.get(1).cloned()).await;
    assert_eq!(hello.executions, []);
}

pub(crate) async fn an_execution_that_is_assigned_again_does_not_run_again() {
    let rig = TestWorker::new().await;
    let count = rig.shared("count");
    rig.server.state().acknowledge = false;
    let order = sh(&format!("echo 1 >> {}", count.display()));
    rig.server.assign(vec![order.clone(), order.clone()]).await;
    rig.server.finished(&order.execution_id).await;
    // The report is repeated.
    rig.server.state().reports.clear();
    rig.server.assign(vec![order.clone()]).await;
    rig.server.finished(&order.execution_id).await;
    // Even after its end was acknowledged, the execution is refused.
    rig.server.state().acknowledge = true;
    rig.server.close_session();
    rig.server
        .wait_for("the acknowledgement", |state| {
            state.acknowledged.contains(&order.execution_id).then_some(())
        })
        .await;
    rig.server.close_session();
    rig.server
        .wait_for("a third session", |state| {
            state.hellos.get(2).filter(|hello| hello.executions.is_empty()).cloned()
        })
        .await;
    rig.server.state().reports.clear();
    rig.server.assign(vec![order.clone()]).await;
    let refused = |body: &Body| matches!(body, Body::Refused(refused) if refused.reason == "known");
    rig.server.wait_for("a refusal", |s| s.of(&order.execution_id).any(refused).then_some(())).await;
    // A server that has lost the end may request a stop, and repeats it until it is answered.
    rig.server.state().reports.clear();
    let (execution_id, fence) = (order.execution_id.clone(), order.fence);
    rig.server
        .stop(proto::v1::Stop { execution_id, fence, grace_ms: 0, discard: false, reason: "drained".into() })
        .await;
    rig.server.wait_for("the same", |s| s.of(&order.execution_id).any(refused).then_some(())).await;
    assert_eq!(crate::rig::numbers(&count), [1]);
}

pub(crate) async fn a_failed_task_reports_exit_code_or_signal() {
    let rig = TestWorker::new().await;
    let (_, finished) = rig.run("exit 3").await;
    assert_eq!((finished.how(), finished.exit_code), (How::Exited, Some(3)));
    assert_eq!(finished.detail, "exited with code 3");
    let (_, finished) = rig.run("kill -SEGV $$").await;
    assert_eq!((finished.exit_code, finished.signal), (None, Some(11)));
    assert_eq!(finished.detail, "killed by signal 11 (SIGSEGV)");
}

pub(crate) async fn a_start_failure_is_reported_with_its_reason() {
    let rig = TestWorker::new().await;
    let lost = ProcessRun {
        command: vec!["true".into()],
        working_directory: Some("/nowhere".into()),
        ..ProcessRun::default()
    };
    let cases = [
        (
            JobSpec::command(["no-such-command"]),
            "command_not_found",
            "`no-such-command` was not found in the PATH",
        ),
        (JobSpec::command(["/no/such/file"]), "command_not_found", "`/no/such/file` does not exist"),
        (JobSpec::command(["/etc/passwd"]), "permission_denied", "no permission to execute `/etc/passwd`"),
        (JobSpec::new(Run::Process(lost)), "working_directory", "`/nowhere`"),
    ];
    for (spec, code, detail) in cases {
        let order = assignment(&spec);
        rig.server.assign(vec![order.clone()]).await;
        let failed = rig.server.wait_for("a failure", |state| {
            state.of(&order.execution_id).find_map(|body| match body {
                Body::StartFailed(failed) => Some(failed.clone()),
                _ => None,
            })
        });
        let failed = failed.await;
        assert_eq!(failed.code, code);
        assert!(failed.detail.contains(detail), "{}", failed.detail);
    }
}

pub(crate) async fn a_task_gets_a_clean_environment_and_its_own_folder() {
    let rig = TestWorker::new().await;
    let mut spec = script("pwd; umask; ulimit -c; ls /proc/self/fd | wc -l; env");
    spec.name = "tidy".into();
    let Run::Process(process) = &mut spec.run else { unreachable!() };
    process.env = BTreeMap::from([("MINE".to_owned(), "yes".to_owned())]);
    let order = assignment(&spec);
    let id = &order.execution_id;
    rig.server.assign(vec![order.clone()]).await;
    rig.server.finished(id).await;
    let text = rig.server.wait_for("the log", |state| state.log(id, Stream::Stdout)).await;
    let mut lines = text.lines();
    let folder = lines.next().unwrap().to_owned();
    assert!(folder.starts_with(&rig.config.dir.join("exec").display().to_string()), "{folder}");
    assert_eq!(lines.next(), Some("0077"));
    assert_eq!(lines.next(), Some("0"), "no core dumps");
    assert_eq!(lines.next().map(str::trim), Some("4"), "three streams, and the folder that ls reads");
    let env: BTreeMap<_, _> = lines.filter_map(|line| line.split_once('=')).collect();
    let names: Vec<_> =
        env.keys().copied().filter(|name| !matches!(*name, "PWD" | "OLDPWD" | "SHLVL" | "_")).collect();
    let expected = [
        "BELFRY_ATTEMPT",
        "BELFRY_CHECKPOINT",
        "BELFRY_EXECUTION_ID",
        "BELFRY_FENCE",
        "BELFRY_JOB_ID",
        "BELFRY_JOB_NAME",
        "BELFRY_NAMESPACE",
        "BELFRY_OUTPUT",
        "BELFRY_SOCKET",
        "BELFRY_STOP_REASON",
        "HOME",
        "LANG",
        "MINE",
        "PATH",
        "TMPDIR",
    ];
    assert_eq!(names, expected);
    assert_eq!((env["HOME"], env["TMPDIR"]), (folder.as_str(), folder.as_str()));
    assert_eq!((env["BELFRY_JOB_NAME"], env["BELFRY_ATTEMPT"]), ("tidy", "1"));
    assert_eq!(
        (env["BELFRY_EXECUTION_ID"], env["BELFRY_FENCE"]),
        (id.as_str(), order.fence.to_string().as_str())
    );
}

/// B6. The task gets its scheduled time and interval.
pub(crate) async fn a_task_of_a_schedule_gets_its_scheduled_time() {
    let rig = TestWorker::new().await;
    let instant = |text: &str| text.parse::<model::Timestamp>().unwrap().as_micros();
    let mut order = assignment(&script("env | grep -E '^BELFRY_(SCHEDULE|INTERVAL|FIRING)' | sort"));
    order.origin = Some(Origin {
        schedule: "nightly".into(),
        scheduled_for_unix_us: instant("2026-11-21T18:00:00Z"),
        interval_start_unix_us: Some(instant("2026-11-20T18:00:00Z")),
        interval_end_unix_us: instant("2026-11-21T18:00:00Z"),
        cause: "catch_up".into(),
    });
    rig.server.assign(vec![order.clone()]).await;
    rig.server.finished(&order.execution_id).await;
    let text = rig.server.wait_for("the log", |state| state.log(&order.execution_id, Stream::Stdout)).await;
    let expected = [
        "BELFRY_FIRING_CAUSE=catch_up",
        "BELFRY_INTERVAL_END=2026-11-21T18:00:00Z",
        "BELFRY_INTERVAL_START=2026-11-20T18:00:00Z",
        "BELFRY_SCHEDULE=nightly",
        "BELFRY_SCHEDULED_FOR=2026-11-21T18:00:00Z",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

/// C2, C3. The task gets its step and element, with any characters in the value.
pub(crate) async fn a_task_of_a_workflow_gets_its_step_and_element() {
    let rig = TestWorker::new().await;
    let mut order =
        assignment(&script("env | grep -E '^BELFRY_(RUN|WORKFLOW|STEP|INDEX|TOTAL|ITEM)' | sort"));
    order.step = Some(Box::new(StepOrigin {
        run_id: "run_1".into(),
        workflow: "nightly".into(),
        step: "load".into(),
        element: Some(StepElement { index: 0, total: 2, value: "$(Beijing); \"x\"".into() }),
    }));
    rig.server.assign(vec![order.clone()]).await;
    rig.server.finished(&order.execution_id).await;
    let text = rig.server.wait_for("the log", |state| state.log(&order.execution_id, Stream::Stdout)).await;
    let expected = [
        "BELFRY_INDEX=0",
        "BELFRY_ITEM=$(Beijing); \"x\"",
        "BELFRY_RUN=run_1",
        "BELFRY_STEP=load",
        "BELFRY_TOTAL=2",
        "BELFRY_WORKFLOW=nightly",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

pub(crate) async fn tasks_of_a_root_worker_run_as_nobody_and_cannot_regain_root() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can run tasks as another user");
        return;
    }
    let rig = TestWorker::new().await;
    let (id, finished) = rig.run("id -un; id -Gn; grep -E '^(NoNewPrivs|CapEff|CapAmb)' /proc/self/status; touch file; while :; do sleep 0.01; [ -e go ] && exit; done & wait & sleep 0; touch go; wait").await;
    assert_eq!(finished.exit_code, Some(0), "{finished:?}");
    let text = rig.server.wait_for("the log", |state| state.log(&id, Stream::Stdout)).await;
    let lines: Vec<_> = text.lines().map(|line| line.replace('\t', " ")).collect();
    assert_eq!(lines[..2], ["nobody", "nogroup"]);
    assert!(lines.contains(&"NoNewPrivs: 1".to_owned()), "{lines:?}");
    assert!(lines.contains(&"CapEff: 0000000000000000".to_owned()), "{lines:?}");
    // The task cannot access the worker's files.
    let dir = rig.config.dir.display();
    let (id, _) = rig
        .run(&format!("cat {dir}/journal; ls {dir}; ls {dir}/exec; cat {dir}/supervisor.sock; true"))
        .await;
    assert_eq!(rig.server.wait_for("the log", |state| state.log(&id, Stream::Stdout)).await, "");
    assert_eq!(rig.config.dir.join("journal").metadata().unwrap().uid(), 0);
}

pub(crate) async fn a_script_runs_by_its_interpreter_and_reads_its_standard_input() {
    let rig = TestWorker::new().await;
    let process = ProcessRun {
        script: Some("s/belfry/tower/\n".into()),
        interpreter: vec!["sed".into(), "-f".into()],
        stdin: Some("the belfry\n".repeat(20_000)),
        ..ProcessRun::default()
    };
    let order = assignment(&JobSpec::new(Run::Process(process)));
    rig.server.assign(vec![order.clone()]).await;
    assert_eq!(rig.server.finished(&order.execution_id).await.exit_code, Some(0));
    let log = rig.server.wait_for("the log", |state| state.log(&order.execution_id, Stream::Stdout)).await;
    assert_eq!(log, "the tower\n".repeat(20_000));
}

pub(crate) async fn output_values_come_with_the_outcome() {
    let rig = TestWorker::new().await;
    let (_, finished) = rig.run(r#"echo '{"rows": 7}' > $BELFRY_OUTPUT"#).await;
    assert_eq!((finished.output.trim_ascii(), finished.error.as_str()), (&br#"{"rows": 7}"#[..], ""));
    let (_, finished) = rig.run(r#"echo '{"rows": 8}' > $BELFRY_OUTPUT; exit 1"#).await;
    assert_eq!((finished.exit_code, finished.output.trim_ascii()), (Some(1), &br#"{"rows": 8}"#[..]));
}

pub(crate) async fn invalid_output_values_fail_a_succeeded_task() {
    let rig = TestWorker::new().await;
    let cases = [
        ("echo '[1]' > $BELFRY_OUTPUT", "output_invalid"),
        ("echo '{' > $BELFRY_OUTPUT", "output_invalid"),
        ("ln -s /etc/hostname $BELFRY_OUTPUT", "output_invalid"),
        ("mkfifo $BELFRY_OUTPUT", "output_invalid"),
        ("mkdir $BELFRY_OUTPUT", "output_invalid"),
        ("head -c 70000 /dev/zero > $BELFRY_OUTPUT", "output_too_large"),
    ];
    for (script, error) in cases {
        let (_, finished) = rig.run(script).await;
        assert_eq!((finished.error.as_str(), finished.exit_code), (error, Some(0)), "{script}: {finished:?}");
        assert!(finished.detail.contains("$BELFRY_OUTPUT") && finished.output.is_empty(), "{finished:?}");
    }
}

pub(crate) async fn executions_beyond_the_slots_are_refused() {
    let rig = TestWorker::with(|config, _| config.capacity.slots = 2).await;
    let orders: Vec<_> = (0..3).map(|_| sh("sleep 600")).collect();
    rig.server.assign(orders.clone()).await;
    let refused = |body: &Body| matches!(body, Body::Refused(refused) if refused.reason == "no_room");
    rig.server.wait_for("a refusal", |s| s.of(&orders[2].execution_id).any(refused).then_some(())).await;
    rig.server.started(&orders[1].execution_id).await;
}

/// Before `exec` a child shares the supervisor's memory, which does not count as its own.
pub(crate) async fn the_peak_memory_excludes_the_supervisor() {
    let rig = TestWorker::new().await;
    let (_, small) = rig.run("sleep 2").await;
    assert!((1..6 << 20).contains(&small.peak_memory_bytes), "{small:?}");
    let (_, large) = rig.run("x=$(head -c 60000000 /dev/zero | tr '\\0' a); exit 0").await;
    assert!(large.peak_memory_bytes > 50_000_000, "{large:?}");
}

/// Returns whether the worker can enforce a limit; otherwise the test is skipped.
async fn can(rig: &TestWorker, what: &str, which: impl Fn(&proto::v1::Capabilities) -> bool) -> bool {
    let hello = rig.server.wait_for("a hello", |state| state.hellos.first().cloned()).await;
    let can = hello.capabilities.as_ref().is_some_and(which);
    if !can {
        eprintln!("skipped: no limit on {what} can be enforced here");
    }
    can
}

pub(crate) async fn a_task_that_exceeds_its_memory_limit_is_killed() {
    let rig = TestWorker::new().await;
    if !can(&rig, "memory", |c| c.memory_limit).await {
        return;
    }
    // The main process itself allocates, so that no shell survives.
    let order = assignment(&{
        let mut spec = JobSpec::command(["sh", "-c", "exec tail /dev/zero"]);
        spec.resources.limits.memory = Some(Bytes(32 << 20));
        spec
    });
    rig.server.assign(vec![order.clone()]).await;
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::OutOfMemory, "{finished:?}");
    assert_eq!(finished.detail, "used more memory than its limit of 32MiB");
    assert!(finished.peak_memory_bytes > 16 << 20 && finished.peak_memory_bytes <= 32 << 20);
}

pub(crate) async fn the_process_limit_is_enforced() {
    let rig = TestWorker::new().await;
    if !can(&rig, "processes", |c| c.pids_limit).await {
        return;
    }
    let mut spec = script("for i in 1 2 3 4 5 6 7 8 9; do sleep 600 & done; echo all");
    spec.resources.limits.pids = Some(5);
    let order = assignment(&spec);
    rig.server.assign(vec![order.clone()]).await;
    let finished = rig.server.finished(&order.execution_id).await;
    assert_ne!(finished.exit_code, Some(0), "{finished:?}");
    let log = rig.server.wait_for("the log", |state| state.log(&order.execution_id, Stream::Stderr)).await;
    assert!(log.to_lowercase().contains("fork"), "{log}");
}

pub(crate) async fn a_thousand_short_tasks_succeed() {
    let rig = TestWorker::new().await;
    let mut spec = JobSpec::command(["/bin/true"]);
    spec.timeout = Some(Duration::from_secs(600));
    let orders: Vec<_> = (0..1_000).map(|_| assignment(&spec)).collect();
    rig.server.assign(orders.clone()).await;
    for order in &orders {
        let finished = rig.server.finished(&order.execution_id).await;
        assert_eq!((finished.how(), finished.exit_code), (How::Exited, Some(0)), "{finished:?}");
    }
    rig.server
        .wait_for("idle", |state| state.beats.last()?.health.as_ref().filter(|h| h.running == 0).map(drop))
        .await;
}
