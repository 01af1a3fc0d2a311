//! Runtimes beside `process`: containers in a real engine, and HTTP requests to a real server.
//!
//! The container tests start their own engine, and say that they are skipped where none can run.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use client::{LogQuery, LogSource};
use harness::{ContainerEngine, Role, Site, until, within};
use model::api::Job;
use model::spec::{
    ContainerRun, Delivery, HttpRun, InputFile, OutputFile, PullPolicy, Run, SecretReference, Volume,
};
use model::{Bytes, JobId, JobSpec, JobStatus};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const SOON: Duration = Duration::from_secs(60);

/// Starts a server and a worker with containers; the directory is the volume `shared` of the worker.
async fn site_with(engine: &ContainerEngine, settings: &[(&str, &str)]) -> (Site, PathBuf) {
    let mut site = Site::server_only(settings).await;
    let shared = site.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
    let volumes = format!("shared={}", shared.display());
    let settings =
        [("BELFRY_WORKER__CONTAINER_ENGINE", engine.address()), ("BELFRY_WORKER__VOLUMES", volumes)];
    site.worker_settings.extend(settings.map(|(name, value)| (name.to_owned(), value)));
    site.add_worker().await;
    (site, shared)
}

fn container(script: &str) -> JobSpec {
    let run = ContainerRun { script: Some(script.to_owned()), ..image(ContainerEngine::IMAGE) };
    let mut spec = JobSpec::new(Run::Container(Box::new(run)));
    spec.volumes = vec![Volume { name: "shared".into() }];
    spec
}

fn image(image: &str) -> ContainerRun {
    ContainerRun { image: image.into(), pull: PullPolicy::Never, ..ContainerRun::default() }
}

async fn ended(site: &Site, spec: &JobSpec) -> Job {
    let job = site.submit(spec).await;
    site.until_job(job, "ended", |job| job.status.is_final()).await
}

/// Returns the id of the only execution of a job.
async fn job_execution(site: &Site, job: JobId) -> String {
    site.client().job_executions(job).await.unwrap().items[0].id.to_string()
}

fn error(job: &Job) -> &str {
    job.result.as_ref().and_then(|result| result.error.as_deref()).unwrap_or("none")
}

fn exit_code(job: &Job) -> Option<i32> {
    job.result.as_ref()?.exit_code
}

fn output(job: &Job) -> Option<serde_json::Value> {
    job.result.as_ref()?.output.clone()
}

async fn log_of(site: &Site, job: &Job) -> String {
    let page = site.client().logs(LogSource::Job(job.id, None), &LogQuery::default()).await.unwrap();
    page.items.iter().map(|line| format!("{}\n", line.text)).collect()
}

/// F1, F2. Results, logs, outputs, limits, volumes and stops are those of any job.
#[tokio::test]
async fn a_container_runs_like_a_process() {
    let Some(engine) = ContainerEngine::start().await else { return };
    let (site, shared) = site_with(&engine, &[]).await;

    let mut spec = container(
        "echo out; echo err >&2; echo \"{\\\"n\\\": 5}\" > $BELFRY_OUTPUT; id -u > $BELFRY_VOLUME_SHARED/user; cat $GREETING",
    );
    let Run::Container(run) = &mut spec.run else { unreachable!() };
    run.user = Some("app".into());
    run.env.insert("GREETING".into(), "/etc/passwd".into());
    let job = ended(&site, &spec).await;
    assert_eq!((job.status, exit_code(&job)), (JobStatus::Succeeded, Some(0)));
    assert_eq!(output(&job), Some(serde_json::json!({"n": 5})));
    assert_eq!(fs::read_to_string(shared.join("user")).unwrap(), "1000\n");
    let log = log_of(&site, &job).await;
    assert!(log.contains("out\n") && log.contains("err\n") && log.contains("app:x:1000"), "{log}");

    let mut produces = container("mkdir out; echo made > out/file");
    let Run::Container(run) = &mut produces.run else { unreachable!() };
    (run.user, run.working_directory) = (Some("app".into()), Some("/belfry".into()));
    produces.outputs = vec![OutputFile { artifact: "made".into(), path: "out/file".into(), optional: false }];
    let made = ended(&site, &produces).await;
    assert_eq!(made.status, JobStatus::Succeeded, "{:?}", made.result);
    let mut consumes = container("cat in/file; cat in/file > $BELFRY_VOLUME_SHARED/copy");
    let Run::Container(run) = &mut consumes.run else { unreachable!() };
    (run.user, run.working_directory) = (Some("1000".into()), Some("/belfry".into()));
    consumes.inputs = vec![InputFile { artifact: "made".into(), path: "in/file".into(), executable: false }];
    let consumed = ended(&site, &consumes).await;
    assert_eq!(consumed.status, JobStatus::Succeeded, "{:?}", consumed.result);
    assert_eq!(fs::read_to_string(shared.join("copy")).unwrap(), "made\n");

    let failed = ended(&site, &container("exit 3")).await;
    assert_eq!((failed.status, exit_code(&failed)), (JobStatus::Failed, Some(3)));

    let mut hog = container("dd if=/dev/zero of=/dev/null bs=200M count=1");
    hog.resources.limits.memory = Some(Bytes(32 << 20));
    let hog = ended(&site, &hog).await;
    assert_eq!(error(&hog), "out_of_memory");

    for (run, code) in [
        (
            ContainerRun { command: vec!["nosuch".into()], ..image(ContainerEngine::IMAGE) },
            "command_not_found",
        ),
        (image("nosuch:1"), "image_missing"),
    ] {
        let mut spec = JobSpec::new(Run::Container(Box::new(run)));
        spec.retry.max_start_retries = 0;
        let job = ended(&site, &spec).await;
        assert_eq!(error(&job), code, "{:?}", job.result);
        assert_eq!((job.start_failures, job.run_failures), (1, 0));
    }

    let stopped = site
        .submit(&container(
            "trap 'echo term; exit 7' TERM; touch $BELFRY_VOLUME_SHARED/up; while :; do sleep 0.1; done",
        ))
        .await;
    until("the task runs", SOON, async || shared.join("up").exists().then_some(())).await;
    site.client().cancel_job(stopped, None).await.unwrap();
    let stopped = site.until_status(stopped, JobStatus::Cancelled).await;
    assert!(log_of(&site, &stopped).await.contains("term"));
    assert_eq!(engine.containers(), [""; 0], "no container is left");
}

/// H2. Also a user of the image that the worker does not know reads the files.
#[tokio::test]
async fn a_container_gets_secrets_and_its_log_is_masked() {
    let Some(engine) = ContainerEngine::start().await else { return };
    let (site, _) = site_with(&engine, &[]).await;
    let file = site.path("password.txt");
    fs::write(&file, "correct-horse-battery\n").unwrap();
    let value = format!("password=@{}", file.display());
    site.belfry(&["secret", "put", "db", &value]).await.success();
    for user in [None, Some("app")] {
        let mut spec = container(
            "test \"$DB_PASSWORD\" = \"$(cat $BELFRY_SECRETS/password)\" && echo \"same: $DB_PASSWORD\"
             ! { echo x > $BELFRY_SECRETS/password; } 2> /dev/null",
        );
        let Run::Container(run) = &mut spec.run else { unreachable!() };
        run.user = user.map(str::to_owned);
        let reference = |env: Option<&str>, file: Option<&str>| SecretReference {
            secret: "db".into(),
            key: "password".into(),
            env: env.map(str::to_owned),
            file: file.map(str::to_owned),
        };
        spec.secrets = vec![reference(Some("DB_PASSWORD"), None), reference(None, Some("password"))];
        let job = ended(&site, &spec).await;
        let log = log_of(&site, &job).await;
        assert_eq!(job.status, JobStatus::Succeeded, "{user:?} {:?} {log}", job.result);
        assert!(log.contains("same: ******\n"), "{user:?} {log}");
    }
}

/// D7, D9. A container is frozen without a lease, continues with the next one, and dies with its supervisor.
#[tokio::test]
async fn a_container_runs_only_under_the_lease_of_its_worker() {
    let Some(engine) = ContainerEngine::start().await else { return };
    let (site, shared) = site_with(&engine, &[("BELFRY_SERVER__LEASE", "3s")]).await;
    let beats = || fs::read_to_string(shared.join("beats")).unwrap_or_default().len();
    // It has erased its environment, as many servers do, and claims to belong to another execution. And it would see another
    // execution at the same time.
    let mut spec = container(
        "exec env -i BELFRY_EXECUTION_ID=exe_01m8n2brac03fs5r68c0002000 sh -c 'cat /proc/self/environ > /volumes/shared/environment
         while ! mkdir /volumes/shared/only; do echo >> /volumes/shared/overlap; sleep 0.05; done
         while :; do echo -n . >> /volumes/shared/beats; sleep 0.05; done'",
    );
    spec.delivery = Delivery::ExactlyOnce;
    let job = site.submit(&spec).await;
    until("the task runs", SOON, async || (beats() > 2).then_some(())).await;
    let environment = fs::read_to_string(shared.join("environment")).unwrap();
    assert!(!environment.contains(&job_execution(&site, job).await), "{environment}");

    let paused = site.server.pid();
    paused.pause();
    until("the task is frozen", SOON, async || {
        let before = beats();
        (!within(Duration::from_millis(500), async || beats() > before).await).then_some(())
    })
    .await;
    paused.resume();
    let before = beats();
    until("the task continues", SOON, async || (beats() > before).then_some(())).await;

    let held = engine.containers();
    site.workers[0].find(Role::Supervisor).unwrap().kill();
    site.until_job(job, "runs again", |job| job.executions == 2).await;
    until("the next execution runs", SOON, async || shared.join("overlap").exists().then_some(())).await;
    let before = beats();
    assert!(!within(Duration::from_secs(1), async || beats() > before).await, "both executions run");
    until("the first container is removed", SOON, async || {
        (!engine.containers().contains(&held[0])).then_some(())
    })
    .await;
    site.client().cancel_job(job, None).await.unwrap();
    site.until_status(job, JobStatus::Cancelled).await;
}

/// D9. A killed shim ends its execution, and no container continues without it.
#[tokio::test]
async fn a_container_does_not_outlive_its_shim() {
    let Some(engine) = ContainerEngine::start().await else { return };
    let (site, shared) = site_with(&engine, &[]).await;
    let job = site.submit(&container("touch $BELFRY_VOLUME_SHARED/up; while :; do sleep 0.1; done")).await;
    until("the task runs", SOON, async || shared.join("up").exists().then_some(())).await;
    let shims = site.workers[0].tasks();
    assert_eq!(shims.len(), 1, "{shims:?}");
    shims[0].kill();
    let job = site.until_status(job, JobStatus::Failed).await;
    assert_eq!(error(&job), "signal");
    // The engine notices the death of the processes a moment later.
    until("its processes are dead", SOON, async || {
        engine.docker(&["ps", "--quiet"]).unwrap().is_empty().then_some(())
    })
    .await;
}

/// D7. The engine does not answer, and its shim is killed meanwhile: nothing of the job runs, also not later.
#[tokio::test]
async fn a_container_whose_shim_has_ended_runs_nothing() {
    let Some(engine) = ContainerEngine::start().await else { return };
    let (site, shared) = site_with(&engine, &[]).await;
    let paused = engine.pause().unwrap();
    let mut spec = container("touch $BELFRY_VOLUME_SHARED/ran");
    spec.retry.max_start_retries = 0;
    let job = site.submit(&spec).await;
    until("the shim waits for the engine", SOON, async || (site.workers[0].tasks().len() == 1).then_some(()))
        .await;
    site.workers[0].tasks()[0].kill();
    site.until_status(job, JobStatus::Failed).await;
    paused.resume();
    until("the engine answers", SOON, async || engine.docker(&["ps"]).map(drop)).await;
    assert!(!within(Duration::from_secs(2), async || shared.join("ran").exists()).await);
}

/// D7. An engine may start a container at any time after it was asked. The gate runs the program only when a living shim opens it.
#[tokio::test]
async fn a_container_with_a_closed_gate_runs_nothing() {
    let Some(engine) = ContainerEngine::start().await else { return };
    let (site, shared) = site_with(&engine, &[]).await;
    let job = site.submit(&container("touch $BELFRY_VOLUME_SHARED/up; while :; do sleep 0.1; done")).await;
    until("the task runs", SOON, async || shared.join("up").exists().then_some(())).await;
    let mounts = "{{range .Mounts}}{{if eq .Destination \"/.belfry\"}}{{.Source}}{{end}}{{end}}";
    let gate = engine.docker(&["inspect", "--format", mounts, &engine.containers()[0]]).unwrap();
    let gate = PathBuf::from(gate.trim());
    // The engine starts a second container with the same gate, which was opened once: for the first one only.
    let (mount, volume) =
        (format!("{}:/.belfry:ro", gate.display()), format!("{}:/shared", shared.display()));
    let image = ContainerEngine::IMAGE;
    let late = ["run", "--detach", "--name", "late", "-v", &mount, "-v", &volume, image];
    engine.docker(&[&late[..], &["/.belfry/gate", "touch", "/shared/ran"]].concat()).unwrap();
    assert!(
        !within(Duration::from_secs(2), async || shared.join("ran").exists()).await,
        "the gate is closed"
    );
    let state =
        || engine.docker(&["inspect", "--format", "{{.State.Status}} {{.State.ExitCode}}", "late"]).unwrap();
    assert!(state().starts_with("running"), "it waits while its shim lives: {}", state());
    site.workers[0].tasks()[0].kill();
    site.until_status(job, JobStatus::Failed).await;
    until("the gate exits with its shim", SOON, async || state().starts_with("exited 125").then_some(()))
        .await;
    assert!(!shared.join("ran").exists());
}

/// F2. A request has the identity of its execution, and the response decides the result and the outputs.
#[tokio::test]
async fn a_request_carries_its_identity_and_returns_outputs() {
    let site = Site::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/run", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 8_192];
        let len = stream.read(&mut request).await.unwrap();
        let body = r#"{"code": 0, "data": {"id": "r-7"}}"#;
        let answer =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&request[..len]).into_owned()
    });
    let spec = JobSpec::new(Run::Http(Box::new(HttpRun {
        url,
        body: Some(r#"{"job": "${BELFRY_JOB_NAME}"}"#.into()),
        success_if: Some("body.code == 0".into()),
        outputs: [("id".to_owned(), "body.data.id".to_owned())].into(),
        ..HttpRun::default()
    })));
    let job = ended(&site, &spec).await;
    assert_eq!(job.status, JobStatus::Succeeded, "{:?}", job.result);
    assert_eq!(output(&job), Some(serde_json::json!({"id": "r-7"})));
    let request = server.await.unwrap().to_lowercase();
    assert!(request.starts_with("post /run http/1.1"), "{request}");
    for line in [format!("belfry-job-id: {}", job.id), "belfry-attempt: 1".into(), r#"{"job": "job"}"#.into()]
    {
        assert!(request.contains(&line), "`{line}` is missing in {request}");
    }
}
