//! Sessions that break, agents and supervisors that are killed.

use proto::v1::finished::How;
use rustix::process::Signal;

use crate::rig::{Rig, numbers, process_state, sh, signal};

pub(crate) async fn unacknowledged_reports_are_repeated_on_the_next_session() {
    let rig = Rig::new().await;
    rig.server.state().acknowledge = false;
    let (id, first) = rig.run("exit 5").await;
    rig.server.hang_up();
    rig.server.state().reports.clear();
    assert_eq!(rig.server.finished(&id).await, first);
    let held = rig.server.state().hellos[1].held.clone();
    assert_eq!((held.len(), held[0].execution_id.as_str(), held[0].running), (1, id.as_str(), false));
}

pub(crate) async fn a_task_and_its_report_outlive_the_agent() {
    let mut rig = Rig::new().await;
    let go = rig.shared("go");
    let order = sh(&format!("while ! [ -s {} ]; do sleep 0.01; done; exit 6", go.display()));
    rig.server.assign(vec![order.clone()]).await;
    let pid = rig.server.started(&order.execution_id).await;
    rig.kill_agent().await;
    std::fs::write(&go, "1").unwrap();
    rig.server.until("its end", |_| process_state(pid).is_none().then_some(())).await;
    rig.start_agent();
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!((finished.how(), finished.exit_code), (How::Exited, Some(6)));
}

pub(crate) async fn an_outcome_outlives_the_supervisor() {
    let rig = Rig::new().await;
    rig.server.state().acknowledge = false;
    let (id, first) = rig.run("echo '{\"a\":1}' > $BELFRY_OUTPUT; exit 7").await;
    signal(rig.supervisor(), Signal::KILL);
    rig.server.until("another hello", |state| state.hellos.get(1).cloned()).await;
    rig.server.state().reports.clear();
    rig.server.hang_up();
    let again = rig.server.finished(&id).await;
    assert_eq!(again, first);
}

pub(crate) async fn an_unknown_session_is_opened_anew() {
    let rig = Rig::new().await;
    let file = rig.shared("file");
    let order = sh(&format!("echo 1 >> {}; sleep 600", file.display()));
    rig.server.assign(vec![order.clone()]).await;
    rig.server.started(&order.execution_id).await;
    rig.server.state().lease_ms = Some(0);
    rig.server.until("another hello", |state| state.hellos.get(1).cloned()).await;
    rig.server.state().lease_ms = Some(60_000);
    let held =
        rig.server.until("a settled session", |state| state.hellos.last().map(|h| h.held.clone())).await;
    assert!(held[0].running && held[0].execution_id == order.execution_id);
    assert_eq!(numbers(&file), [1]);
}

pub(crate) async fn heartbeats_tell_of_the_machine_and_show_the_token() {
    let rig = Rig::new().await;
    let order = sh("sleep 600");
    rig.server.assign(vec![order.clone()]).await;
    rig.server.started(&order.execution_id).await;
    let health = rig.server.until("a beat that tells of it", |state| {
        state.beats.last()?.health.clone().filter(|health| health.running == 1)
    });
    let health = health.await;
    assert!(health.memory_available_bytes > 0 && health.disk_available_bytes > 0);
    assert_eq!(rig.server.state().tokens[0], "Bearer secret");
    let hello = rig.server.state().hellos[0].clone();
    assert!(hello.capacity.unwrap().memory_bytes > 0 && hello.worker_id.starts_with("wkr_"));
    assert_eq!(hello.capabilities.unwrap().runtimes, ["process"]);
}

pub(crate) async fn a_supervisor_that_is_told_to_end_kills_its_tasks_and_says_so() {
    let rig = Rig::new().await;
    let order = sh("sleep 600");
    rig.server.assign(vec![order.clone()]).await;
    let pid = rig.server.started(&order.execution_id).await;
    signal(rig.supervisor(), Signal::TERM);
    let finished = rig.server.finished(&order.execution_id).await;
    assert_eq!(finished.how(), How::Interrupted);
    assert_eq!(finished.detail, "the worker's supervisor was stopped");
    assert!(process_state(pid).is_none());
}

pub(crate) async fn a_supervisor_with_nothing_to_do_ends_when_its_agent_is_gone() {
    let mut rig = Rig::with(|config, _| config.idle_exit = model::Duration::from_millis(200)).await;
    rig.server.session().await;
    let supervisor = rig.supervisor();
    rig.kill_agent().await;
    rig.server.until("its end", |_| process_state(supervisor).is_none().then_some(())).await;
}
