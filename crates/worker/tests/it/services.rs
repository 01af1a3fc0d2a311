//! Ports and health checks of running tasks.
//!
//! The service under test is this test program ([`serve`]): an HTTP server on the port in `BELFRY_PORT_HTTP`. Its
//! answers are in a file that the test changes ([`Service::answer`]). A test waits for the health that the worker
//! sends to its server, and for the end of the execution.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU16, Ordering};

use model::Duration;
use model::spec::{CheckedPort, HealthCheck, HealthChecks, HttpCheck, JobSpec, Port, TcpCheck, Volume};
use proto::logframe::Stream;
use proto::v1::execution_health::Status;
use proto::v1::finished::How;
use proto::v1::report::Body;
use proto::v1::{Assignment, ExecutionHealth, Finished, ReplicaOrigin, StartFailed};
use worker::PortRange;

use crate::rig::{TestWorker, assignment, is_frozen, script, sh, stop};

/// Serves HTTP: `/ready` with the first status in the file, and other paths with the second one. A third number is the
/// time of an answer of `/ready` in milliseconds.
pub(crate) fn serve(file: &Path) -> ExitCode {
    let port = std::env::var("BELFRY_PORT_HTTP").unwrap().parse().unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    std::thread::scope(|scope| {
        for stream in listener.incoming() {
            scope.spawn(|| answer(stream.unwrap(), file).ok());
        }
    });
    ExitCode::FAILURE
}

fn answer(mut stream: TcpStream, file: &Path) -> std::io::Result<()> {
    let mut request = [0; 1024];
    let len = stream.read(&mut request)?;
    let is_ready = request[..len].starts_with(b"GET /ready ");
    let text = std::fs::read_to_string(file)?;
    let numbers: Vec<_> = text.split_ascii_whitespace().collect();
    let status = numbers[usize::from(!is_ready)];
    if is_ready && let Some(millis) = numbers.get(2) {
        std::thread::sleep(std::time::Duration::from_millis(millis.parse().unwrap()));
    }
    write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

/// A service with a readiness and a liveness check.
struct Service {
    order: Assignment,
    file: PathBuf,
}

impl Service {
    /// Starts a service with healthy answers.
    async fn start(rig: &TestWorker) -> Self {
        Self::start_with(rig, HealthCheck::new().timeout).await
    }

    /// Starts a service whose readiness check has this timeout.
    async fn start_with(rig: &TestWorker, timeout: Duration) -> Self {
        let file = rig.shared("answers");
        let program = std::env::current_exe().unwrap().display().to_string();
        let mut spec = JobSpec::command([program, "service".into(), file.display().to_string()]);
        spec.ports = vec![free("http")];
        spec.health = Some(Box::new(HealthChecks {
            readiness: Some(HealthCheck { timeout, ..http("/ready", 1) }),
            liveness: Some(http("/live", 3)),
            startup: Some(http("/live", 1_000)),
        }));
        let service = Self { order: assignment(&spec), file };
        service.answer("200 200");
        rig.server.assign(vec![service.order.clone()]).await;
        service
    }

    /// Sets the HTTP statuses for the readiness and the liveness check; see [`serve`].
    fn answer(&self, statuses: &str) {
        // The service must not read a part of it.
        let new = self.file.with_extension("new");
        std::fs::write(&new, statuses).unwrap();
        std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        std::fs::rename(&new, &self.file).unwrap();
    }

    /// Waits until the last health that the server has is `status`.
    async fn becomes(&self, rig: &TestWorker, status: Status) -> ExecutionHealth {
        becomes(rig, &self.order, status).await
    }
}

async fn becomes(rig: &TestWorker, order: &Assignment, status: Status) -> ExecutionHealth {
    let what = format!("the status {status:?}");
    let health = rig.server.wait_for(&what, |state| {
        state.health_of(&order.execution_id).last().filter(|health| health.status() == status).cloned()
    });
    let health = health.await;
    assert_eq!(health.fence, order.fence);
    health
}

fn free(name: &str) -> Port {
    Port { name: name.into(), port: None }
}

fn quick(failure_threshold: u32) -> HealthCheck {
    HealthCheck { interval: Duration::from_millis(20), failure_threshold, ..HealthCheck::new() }
}

fn http(path: &str, failure_threshold: u32) -> HealthCheck {
    let port = CheckedPort::Name("http".into());
    let check = HttpCheck { port, path: path.into(), headers: Default::default() };
    HealthCheck { http: Some(check), ..quick(failure_threshold) }
}

async fn start_failure(rig: &TestWorker, order: &Assignment) -> StartFailed {
    let failed = rig.server.wait_for("a failure", |state| {
        state.of(&order.execution_id).find_map(|body| match body {
            Body::StartFailed(failed) => Some(failed.clone()),
            _ => None,
        })
    });
    failed.await
}

/// Checks that the execution ended because of its health, and not as a success.
fn assert_unhealthy(finished: &Finished, detail: &str) {
    assert_eq!((finished.how(), finished.error.as_str()), (How::Exited, "unhealthy"), "{finished:?}");
    assert_eq!(finished.detail, detail);
}

pub(crate) async fn a_task_with_a_free_port_serves_and_its_health_is_reported() {
    let rig = TestWorker::new().await;
    let service = Service::start(&rig).await;
    let healthy = service.becomes(&rig, Status::Healthy).await;
    assert_eq!(healthy.detail, "");
    assert!((20_000..32_000).contains(&healthy.ports["http"]), "{healthy:?}");
    service.answer("503 200");
    let unhealthy = service.becomes(&rig, Status::Unhealthy).await;
    assert_eq!(unhealthy.detail, "readiness check failed: HTTP status 503");
    assert_eq!(unhealthy.ports, healthy.ports);
    service.answer("200 200");
    service.becomes(&rig, Status::Healthy).await;
    assert!(rig.server.state().finished(&service.order.execution_id).is_none());
    // The server has the report of the start first, and gets each health once.
    let state = rig.server.state();
    let health: Vec<_> = state.health_of(&service.order.execution_id).collect();
    assert!(health.windows(2).all(|pair| pair[0] != pair[1]), "{health:?}");
    assert!(state.health_before_start.is_empty(), "{:?}", state.health_before_start);
}

pub(crate) async fn a_failed_liveness_check_ends_the_task_as_unhealthy() {
    let rig = TestWorker::new().await;
    let service = Service::start(&rig).await;
    service.becomes(&rig, Status::Healthy).await;
    service.answer("200 500");
    let finished = rig.server.finished(&service.order.execution_id).await;
    assert_unhealthy(&finished, "liveness check failed 3 times: HTTP status 500");
    assert_eq!(finished.signal, Some(libc::SIGTERM), "it gets SIGTERM first");
}

pub(crate) async fn a_startup_check_that_never_succeeds_ends_the_task_as_unhealthy() {
    let rig = TestWorker::new().await;
    let mut spec = script("sleep 600");
    spec.ports = vec![free("db")];
    let tcp = Some(TcpCheck { port: CheckedPort::Name("db".into()) });
    // It would fail at once, but does not run before the startup check has succeeded.
    let liveness = Some(HealthCheck { command: vec!["false".into()], ..quick(1) });
    let startup = Some(HealthCheck { tcp, ..quick(3) });
    spec.health = Some(Box::new(HealthChecks { startup, liveness, readiness: None }));
    let order = assignment(&spec);
    rig.server.assign(vec![order.clone()]).await;
    let starting = becomes(&rig, &order, Status::Starting).await;
    let finished = rig.server.finished(&order.execution_id).await;
    let reason = format!("cannot connect to port {}: connection refused", starting.ports["db"]);
    assert_unhealthy(&finished, &format!("startup check failed 3 times: {reason}"));
}

pub(crate) async fn a_command_check_runs_beside_the_task_and_the_task_learns_why_it_ends() {
    let rig = TestWorker::new().await;
    let broken = rig.shared("broken");
    let mut spec = script(
        "trap 'cat $BELFRY_STOP_REASON; exit 0' TERM; echo $MINE > mark; while :; do sleep 0.01; done",
    );
    let model::spec::Run::Process(process) = &mut spec.run else { unreachable!() };
    process.env.insert("MINE".into(), "yes".into());
    // The command has the environment, the working directory and the user of the task.
    let ready = "[ \"$(cat mark)\" = \"$MINE\" ] && [ -O mark ] && [ -n \"$BELFRY_EXECUTION_ID\" ]";
    let live = format!("! [ -s {} ] || {{ echo broken >&2; exit 3; }}", broken.display());
    let command = |script: &str| ["sh", "-c", script].map(str::to_owned).to_vec();
    spec.health = Some(Box::new(HealthChecks {
        startup: None,
        readiness: Some(HealthCheck { command: command(ready), ..quick(1) }),
        liveness: Some(HealthCheck { command: command(&live), ..quick(1) }),
    }));
    let order = assignment(&spec);
    rig.server.assign(vec![order.clone()]).await;
    let healthy = becomes(&rig, &order, Status::Healthy).await;
    assert!(healthy.ports.is_empty());
    std::fs::write(&broken, "1").unwrap();
    let finished = rig.server.finished(&order.execution_id).await;
    assert_unhealthy(&finished, "liveness check failed once: exited with code 3: broken");
    assert_eq!(finished.exit_code, Some(0), "an exit code of 0 is not a success");
    let log = rig.server.wait_for("the log", |state| state.log(&order.execution_id, Stream::Stdout)).await;
    assert_eq!(log, "unhealthy");
}

pub(crate) async fn a_restarted_agent_continues_the_health_checks() {
    let mut rig = TestWorker::new().await;
    let service = Service::start(&rig).await;
    let first = service.becomes(&rig, Status::Healthy).await;
    // Its assignment reaches the supervisor after the status.
    rig.run("true").await;
    rig.kill_agent().await;
    rig.server.state().health.clear();
    rig.start_agent();
    let again = service.becomes(&rig, Status::Healthy).await;
    assert_eq!(again, first);
    let states = rig.server.state().health.clone();
    assert!(states.iter().all(|health| health.status() == Status::Healthy), "{states:?}");
    service.answer("503 200");
    service.becomes(&rig, Status::Unhealthy).await;
    rig.run("true").await;
    rig.kill_agent().await;
    rig.server.state().health.clear();
    rig.start_agent();
    let unhealthy = service.becomes(&rig, Status::Unhealthy).await;
    assert_eq!(unhealthy.detail, "readiness check failed: HTTP status 503");
    service.answer("503 500");
    let finished = rig.server.finished(&service.order.execution_id).await;
    assert_unhealthy(&finished, "liveness check failed 3 times: HTTP status 500");
}

pub(crate) async fn a_new_session_gets_the_health_of_all_tasks() {
    let rig = TestWorker::new().await;
    let mut spec = script("sleep 600");
    spec.ports = vec![free("http")];
    let orders = [assignment(&spec), assignment(&spec)];
    rig.server.assign(orders.to_vec()).await;
    let mut ports = Vec::new();
    for order in &orders {
        ports.push(becomes(&rig, order, Status::Healthy).await.ports["http"]);
    }
    assert_ne!(ports[0], ports[1]);
    // A task without ports and health checks has no health.
    let plain = sh("sleep 600");
    rig.server.assign(vec![plain.clone()]).await;
    rig.server.started(&plain.execution_id).await;
    rig.server.state().health.clear();
    rig.server.close_session();
    for (order, port) in orders.iter().zip(&ports) {
        assert_eq!(becomes(&rig, order, Status::Healthy).await.ports["http"], *port);
    }
    // An ended task is not part of the next session.
    rig.server.stop(stop(&orders[0], 0)).await;
    rig.server.finished(&orders[0].execution_id).await;
    rig.server.state().health.clear();
    rig.server.close_session();
    becomes(&rig, &orders[1], Status::Healthy).await;
    let state = rig.server.state();
    assert!(
        state.health.iter().all(|health| health.execution_id == orders[1].execution_id),
        "{:?}",
        state.health
    );
}

pub(crate) async fn failed_checks_of_a_frozen_task_do_not_count() {
    let rig = TestWorker::with(|_, state| state.lease_ms = Some(400)).await;
    let service = Service::start_with(&rig, Duration::from_millis(800)).await;
    // Nearly always a check waits for its answer, also at the freeze.
    service.answer("200 200 200");
    service.becomes(&rig, Status::Healthy).await;
    let pid = rig.server.started(&service.order.execution_id).await;
    rig.server.state().lease_ms = None;
    rig.server.wait_for("the freeze", |_| is_frozen(pid).then_some(())).await;
    let beats = rig.server.state().beats.len();
    // One second: the check that began before the freeze times out.
    rig.server.wait_for("20 heartbeats", |state| (state.beats.len() > beats + 20).then_some(())).await;
    rig.server.state().lease_ms = Some(60_000);
    rig.server.wait_for("the thaw", |_| (!is_frozen(pid)).then_some(())).await;
    // The next change shows that the checks run again.
    service.answer("503 200");
    service.becomes(&rig, Status::Unhealthy).await;
    let state = rig.server.state();
    assert!(state.finished(&service.order.execution_id).is_none());
    let details: Vec<_> = state.health.iter().map(|health| health.detail.as_str()).collect();
    assert!(!details.iter().any(|detail| detail.contains("no response")), "{details:?}");
}

/// Returns a port that is free at present, and that the system does not give to connections.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add((std::process::id() * 16) as u16);
        let port = 10_000 + offset % 10_000;
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return port;
        }
    }
}

pub(crate) async fn a_fixed_port_belongs_to_one_task_at_a_time() {
    let rig = TestWorker::new().await;
    let port = free_port();
    let with_port = |text: &str| {
        let mut spec = script(text);
        spec.ports = vec![Port { name: "http-api".into(), port: Some(port) }];
        assignment(&spec)
    };
    let (first, second) = (with_port("sleep 600"), with_port("true"));
    rig.server.assign(vec![first.clone()]).await;
    assert_eq!(becomes(&rig, &first, Status::Healthy).await.ports["http-api"], u32::from(port));
    rig.server.assign(vec![second.clone()]).await;
    let failed = start_failure(&rig, &second).await;
    assert_eq!(failed.code, "port_in_use");
    let owner = format!("execution `{}` of this worker has it", first.execution_id);
    assert_eq!(failed.detail, format!("port {port} (`http-api`) is not available: {owner}"));
    rig.server.stop(stop(&first, 0)).await;
    rig.server.finished(&first.execution_id).await;
    let third = with_port("echo $BELFRY_PORT_HTTP_API");
    rig.server.assign(vec![third.clone()]).await;
    let log = rig.server.wait_for("the log", |state| state.log(&third.execution_id, Stream::Stdout)).await;
    assert_eq!(log, format!("{port}\n"));
}

pub(crate) async fn a_start_fails_if_no_port_of_the_range_is_free() {
    let port = free_port();
    let rig = TestWorker::with(|config, _| config.port_range = PortRange::new(port, port).unwrap()).await;
    let mut spec = script("sleep 600");
    spec.ports = vec![free("http")];
    let (first, second) = (assignment(&spec), assignment(&spec));
    rig.server.assign(vec![first.clone()]).await;
    assert_eq!(becomes(&rig, &first, Status::Healthy).await.ports["http"], u32::from(port));
    rig.server.assign(vec![second.clone()]).await;
    let failed = start_failure(&rig, &second).await;
    assert_eq!(failed.code, "no_free_port");
    assert!(failed.detail.contains(&format!("{port}-{port}")), "{}", failed.detail);
}

fn with_volume(text: &str, name: &str) -> Assignment {
    let mut spec = script(text);
    spec.volumes = vec![Volume { name: name.into() }];
    assignment(&spec)
}

pub(crate) async fn a_task_finds_its_volumes_with_what_earlier_tasks_left() {
    let rig = TestWorker::with(|config, _| {
        let data = config.dir.with_file_name("data");
        std::fs::create_dir(&data).unwrap();
        std::fs::set_permissions(&data, Permissions::from_mode(0o777)).unwrap();
        config.volumes.insert("my-data".into(), data);
    })
    .await;
    for expected in ["one\n", "one\none\n"] {
        let order = with_volume("cd $BELFRY_VOLUME_MY_DATA && echo one >> lines && cat lines", "my-data");
        rig.server.assign(vec![order.clone()]).await;
        rig.server.finished(&order.execution_id).await;
        let log =
            rig.server.wait_for("the log", |state| state.log(&order.execution_id, Stream::Stdout)).await;
        assert_eq!(log, expected);
    }
    assert_eq!(rig.server.state().hellos[0].capabilities.clone().unwrap().volumes, ["my-data"]);
}

pub(crate) async fn a_start_fails_without_the_directory_of_a_volume() {
    let rig = TestWorker::with(|config, _| {
        config.volumes.insert("data".into(), config.dir.with_file_name("missing"));
    })
    .await;
    for (volume, told) in
        [("data", "missing` of volume `data`: No such file"), ("other", "no volume `other`")]
    {
        let order = with_volume("true", volume);
        rig.server.assign(vec![order.clone()]).await;
        let failed = start_failure(&rig, &order).await;
        assert_eq!(failed.code, "volume_missing");
        assert!(failed.detail.contains(told), "{}", failed.detail);
    }
}

pub(crate) async fn a_replica_gets_its_service_and_ports_in_its_environment() {
    let rig = TestWorker::new().await;
    let mut spec = script("env | grep -e BELFRY_SERVICE -e BELFRY_REPLICA -e BELFRY_PORT | sort");
    let port = free_port();
    spec.ports = vec![Port { name: "admin".into(), port: Some(port) }];
    let replica = Some(ReplicaOrigin { service: "web".into(), revision: 7, replica: 2 });
    let order = Assignment { replica, ..assignment(&spec) };
    rig.server.assign(vec![order.clone()]).await;
    rig.server.finished(&order.execution_id).await;
    let log = rig.server.wait_for("the log", |state| state.log(&order.execution_id, Stream::Stdout)).await;
    let expected = format!(
        "BELFRY_PORT_ADMIN={port}\nBELFRY_REPLICA=2\nBELFRY_SERVICE=web\nBELFRY_SERVICE_REVISION=7\n"
    );
    assert_eq!(log, expected);
}

pub(crate) async fn a_worker_reports_its_address() {
    let rig = TestWorker::new().await;
    let hello = rig.server.wait_for("a hello", |state| state.hellos.first().cloned()).await;
    assert_eq!(hello.address, "127.0.0.1", "the server of the test is on this machine");
    assert!(hello.capabilities.unwrap().health_checks);
    let rig = TestWorker::with(|config, _| config.address = Some("host.example".into())).await;
    let hello = rig.server.wait_for("a hello", |state| state.hellos.first().cloned()).await;
    assert_eq!(hello.address, "host.example");
}

/// Connects to the supervisor like an agent with this protocol version; returns the tags of the messages that come
/// before the answer to a ping.
fn tags_for_version(rig: &TestWorker, version: u8) -> Vec<u8> {
    let mut socket = UnixStream::connect(rig.config.dir.join("supervisor.sock")).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let mut send = |message: &[u8]| {
        let len = u32::try_from(message.len()).unwrap();
        socket.write_all(&[&len.to_le_bytes(), message].concat()).unwrap();
    };
    // A greeting with 9 slots, and a request of the holdings.
    send(&[0x0a, 4, 8, version, 16, 9]);
    send(&[0x12, 2, 8, 1]);
    let mut tags = Vec::new();
    loop {
        let mut len = [0; 4];
        socket.read_exact(&mut len).unwrap();
        let mut message = vec![0; u32::from_le_bytes(len) as usize];
        socket.read_exact(&mut message).unwrap();
        match message[0] >> 3 {
            // The holdings. A ping after them is answered after everything that follows them.
            2 => socket.write_all(&[4, 0, 0, 0, 0x5a, 2, 8, 1]).unwrap(),
            7 => return tags,
            tag => tags.push(tag),
        }
    }
}

pub(crate) async fn an_agent_of_an_older_release_gets_no_health_checks() {
    const WATCHED: u8 = 8;
    let mut rig = TestWorker::new().await;
    let mut spec = script("sleep 600");
    spec.ports = vec![free("http")];
    let order = assignment(&spec);
    rig.server.assign(vec![order.clone()]).await;
    becomes(&rig, &order, Status::Healthy).await;
    rig.kill_agent().await;
    let old = tags_for_version(&rig, 2);
    assert!(!old.contains(&WATCHED), "{old:?}");
    let new = tags_for_version(&rig, 3);
    assert!(new.contains(&WATCHED), "{new:?}");
}
