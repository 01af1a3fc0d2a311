//! Broken sessions, and killed agents and supervisors.
//!
//! A test closes the session, stops the answers of the fake server, or kills a process of the worker, and
//! then checks what the next session contains.
//!
//! # Invariants
//! - An unacknowledged end is reported again in the next session, also by the next agent and the next
//!   supervisor.
//! - An execution that has ended never starts again, however many have ended since.
//! - A worker leaves a server that does not answer its heartbeats.

use model::spec::Delivery;
use proto::v1::finished::How;
use proto::v1::server_message::Body as Say;
use proto::v1::{Assignment, StopBatch};
use rustix::process::Signal;

use crate::proxy::Proxy;
use crate::rig::{TestWorker, assignment, numbers, process_state, script, sh, signal, stop};
use crate::server::FakeServer;

pub(crate) async fn unacknowledged_reports_are_repeated_on_the_next_session() {
    let rig = TestWorker::new().await;
    rig.server.state().acknowledge = false;
    let (id, first) = rig.run("exit 5").await;
    rig.server.close_session();
    rig.server.state().reports.clear();
    assert_eq!(rig.server.finished(&id).await, first);
    let held = rig.server.state().hellos[1].executions.clone();
    assert_eq!((held.len(), held[0].execution_id.as_str(), held[0].running), (1, id.as_str(), false));
}

/// Executions with outputs and checkpoints that end while no agent is connected. The server acknowledges them only at
/// the end. Together they exceed the size of a frame.
pub(crate) async fn reports_beyond_the_message_size_are_all_received() {
    const COUNT: usize = 300;
    let mut rig = TestWorker::new().await;
    rig.server.state().acknowledge = false;
    let gate = rig.dir.path().join("gate");
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
    std::fs::set_permissions(&gate, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let text = format!(
        "read line < {}; printf '{{\"a\":\"%060000d\"}}' 0 | tee $BELFRY_CHECKPOINT > $BELFRY_OUTPUT",
        gate.display()
    );
    let orders: Vec<_> = (0..COUNT).map(|_| sh(&text)).collect();
    rig.server.assign(orders.clone()).await;
    for order in &orders {
        rig.server.started(&order.execution_id).await;
    }
    rig.kill_agent().await;
    let journal = rig.config.dir.join("journal");
    rig.server
        .wait_for("all ends in the journal", |_| {
            // Tasks that wait at the gate continue; others may reach it only now.
            let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
            rustix::fs::open(&gate, flags, rustix::fs::Mode::empty()).ok();
            (std::fs::metadata(&journal).unwrap().len() > COUNT as u64 * 120_000).then_some(())
        })
        .await;
    rig.start_agent();
    all_arrive(&rig, &orders).await;
    // They are sent again in the next session, and by the next supervisor.
    rig.server.close_session();
    rig.server.state().reports.clear();
    all_arrive(&rig, &orders).await;
    rig.server.state().acknowledge = true;
    signal(rig.supervisor(), Signal::KILL);
    rig.server.state().reports.clear();
    all_arrive(&rig, &orders).await;
    let are_acknowledged = |acknowledged: usize| (acknowledged >= COUNT).then_some(());
    rig.server.wait_for("the acknowledgements", |state| are_acknowledged(state.acknowledged.len())).await;
}

async fn all_arrive(rig: &TestWorker, orders: &[Assignment]) {
    for order in orders {
        let finished = rig.server.finished(&order.execution_id).await;
        assert_eq!(finished.output.len(), 60_008);
        assert_eq!(finished.checkpoint.map(|data| data.len()), Some(60_008));
    }
}

/// D7. A store that lost its last commits assigns executions again that ended before, however many have ended since.
pub(crate) async fn an_execution_is_not_started_again_after_ten_thousand_later_ends() {
    const ENDS: usize = 10_100;
    let rig = TestWorker::new().await;
    let starts = rig.shared("starts");
    let mut spec = script(&format!("echo 1 >> {}", starts.display()));
    spec.delivery = Delivery::AtMostOnce;
    let order = assignment(&spec);
    rig.server.assign(vec![order.clone()]).await;
    rig.server.finished(&order.execution_id).await;
    // An execution that is stopped before its assignment ends without a process.
    let stops: Vec<_> = (0..ENDS).map(|_| stop(&sh(""), 0)).collect();
    for stops in stops.chunks(1_000) {
        rig.server.send_message(Say::Stops(StopBatch { stops: stops.to_vec() })).await;
    }
    rig.server.wait_for("the ends", |state| (state.acknowledged.len() > ENDS).then_some(())).await;
    rig.is_refused(&order).await;
    signal(rig.supervisor(), Signal::KILL);
    rig.server.wait_for("another hello", |state| state.hellos.get(1).cloned()).await;
    rig.is_refused(&order).await;
    assert_eq!(numbers(&starts), [1]);
}

pub(crate) async fn a_second_agent_for_a_folder_is_refused() {
    let mut rig = TestWorker::new().await;
    rig.server.session().await;
    let config = worker::AgentConfig { lock_timeout: model::Duration::from_millis(50), ..rig.config.clone() };
    let error = worker::run_agent(config.clone(), std::future::pending()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("another agent (process {})", std::process::id())), "{text}");
    assert!(text.contains(&rig.config.dir.display().to_string()), "{text}");
    // The first agent continues, and the folder can be used again after it has exited.
    let (_, finished) = rig.run("exit 0").await;
    assert_eq!((finished.exit_code, rig.server.state().hellos.len()), (Some(0), 1));
    rig.kill_agent().await;
    worker::run_agent(config, std::future::ready(())).await.unwrap();
}

/// The tasks are frozen, and the server must be able to retry them elsewhere.
pub(crate) async fn a_session_is_closed_while_the_supervisor_is_stopped() {
    let rig =
        TestWorker::with(|config, _| config.supervisor_timeout = model::Duration::from_millis(500)).await;
    rig.server.session().await;
    signal(rig.supervisor(), Signal::STOP);
    rig.server.wait_for("the end of the session", |state| state.has_no_session().then_some(())).await;
    let beats = rig.server.state().beats.len();
    signal(rig.supervisor(), Signal::CONT);
    rig.server.session().await;
    rig.server.wait_for("heartbeats", |state| (state.beats.len() > beats + 3).then_some(())).await;
    let (_, finished) = rig.run("exit 0").await;
    assert_eq!(finished.exit_code, Some(0));
}

pub(crate) async fn a_task_and_its_report_outlive_the_agent() {
    let mut rig = TestWorker::new().await;
    let go = rig.shared("go");
    let order = sh(&format!("while ! [ -s {} ]; do sleep 0.01; done; exit 6", go.display()));
    rig.server.assign(vec![order.clone()]).await;
    let pid = rig.server.started(&order.execution_id).await;
    rig.kill_agent().await;
    std::fs::write(&go, "1").unwrap();
    rig.server.wait_for("its exit", |_| process_state(pid).is_none().then_some(())).await;
    rig.start_agent();
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!((finished.how(), finished.exit_code), (How::Exited, Some(6)));
}

pub(crate) async fn an_outcome_outlives_the_supervisor() {
    let rig = TestWorker::new().await;
    rig.server.state().acknowledge = false;
    let (id, first) = rig.run("echo '{\"a\":1}' > $BELFRY_OUTPUT; exit 7").await;
    signal(rig.supervisor(), Signal::KILL);
    rig.server.wait_for("another hello", |state| state.hellos.get(1).cloned()).await;
    rig.server.state().reports.clear();
    rig.server.close_session();
    let again = rig.server.finished(&id).await;
    assert_eq!(again, first);
}

pub(crate) async fn an_unknown_session_is_reopened() {
    let rig = TestWorker::new().await;
    let file = rig.shared("file");
    let order = sh(&format!("echo 1 >> {}; sleep 600", file.display()));
    rig.server.assign(vec![order.clone()]).await;
    rig.server.started(&order.execution_id).await;
    rig.server.state().lease_ms = Some(0);
    rig.server.wait_for("another hello", |state| state.hellos.get(1).cloned()).await;
    rig.server.state().lease_ms = Some(60_000);
    let held = rig
        .server
        .wait_for("a settled session", |state| state.hellos.last().map(|h| h.executions.clone()))
        .await;
    assert!(held[0].running && held[0].execution_id == order.execution_id);
    assert_eq!(numbers(&file), [1]);
}

/// D6. The connection works, so only the missing answers show that the server cannot lead.
pub(crate) async fn a_server_that_answers_no_heartbeat_is_left() {
    let rig = TestWorker::with(|_, state| state.welcome_lease_ms = 900).await;
    rig.server.wait_for("a heartbeat", |state| (!state.beats.is_empty()).then_some(())).await;
    rig.server.state().lease_ms = None;
    rig.server.wait_for("another hello", |state| state.hellos.get(1).cloned()).await;
}

/// D6. The session works, and only the heartbeat connection fails.
pub(crate) async fn a_server_without_heartbeat_connection_is_replaced_by_another() {
    let other = FakeServer::start().await;
    let mut proxy = None;
    let rig = TestWorker::with(|config, state| {
        state.welcome_lease_ms = 900;
        let way = Proxy::start(&config.servers[0]);
        config.servers = vec![way.url(), format!("http://{}", other.address)];
        proxy = Some(way);
    })
    .await;
    let proxy = proxy.unwrap();
    let order = sh("sleep 600");
    rig.server.assign(vec![order.clone()]).await;
    rig.server.started(&order.execution_id).await;
    let lane = rig.server.wait_for("a heartbeat", |state| state.beat_lane).await;
    let session = rig.server.state().session_lane;
    proxy.refuse();
    proxy.cut(lane);
    let hello = other.wait_for("a hello", |state| state.hellos.first().cloned()).await;
    assert_eq!((hello.executions.len(), hello.executions[0].running), (1, true));
    assert!(session.is_some_and(|session| session != lane), "session and heartbeats share a connection");
    rig.server.wait_for("the end of the session", |state| state.has_no_session().then_some(())).await;
}

pub(crate) async fn heartbeats_contain_health_and_token() {
    let rig = TestWorker::with(|config, _| config.container_engine = Some("none".into())).await;
    let order = sh("sleep 600");
    rig.server.assign(vec![order.clone()]).await;
    rig.server.started(&order.execution_id).await;
    let health = rig.server.wait_for("a heartbeat with the running task", |state| {
        state.beats.last()?.health.clone().filter(|health| health.running == 1)
    });
    let health = health.await;
    assert!(health.memory_available_bytes > 0 && health.disk_available_bytes > 0);
    assert_eq!(rig.server.state().tokens[0], "Bearer secret");
    let hello = rig.server.state().hellos[0].clone();
    assert!(hello.capacity.unwrap().memory_bytes > 0 && hello.worker_id.starts_with("wkr_"));
    assert_eq!(hello.capabilities.unwrap().runtimes, ["process", "http"]);
}

pub(crate) async fn a_supervisor_kills_its_tasks_on_shutdown_and_reports_it() {
    let rig = TestWorker::new().await;
    let order = sh("sleep 600");
    rig.server.assign(vec![order.clone()]).await;
    let pid = rig.server.started(&order.execution_id).await;
    signal(rig.supervisor(), Signal::TERM);
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::Interrupted);
    assert_eq!(finished.detail, "the worker's supervisor was stopped");
    assert!(process_state(pid).is_none());
}

pub(crate) async fn an_idle_supervisor_exits_without_an_agent() {
    let mut rig = TestWorker::with(|config, _| config.idle_exit = model::Duration::from_millis(200)).await;
    rig.server.session().await;
    let supervisor = rig.supervisor();
    rig.kill_agent().await;
    rig.server.wait_for("its exit", |_| process_state(supervisor).is_none().then_some(())).await;
}
