//! Secrets of jobs with real workers: values arrive in variables and files, and nowhere else.

use std::fs;
use std::path::Path;
use std::time::Duration;

use client::{LogQuery, LogSource};
use harness::{Site, until};
use model::api::Job;
use model::spec::{HttpRun, ProcessRun, Run, Sandbox, SandboxLevel, SecretReference, Sidecar};
use model::{JobSpec, JobStatus};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const SOON: Duration = Duration::from_secs(60);
const PASSWORD: &str = "correct-horse-battery";
const PEM: &str = "-----BEGIN KEY-----\nMIGHAgEAMBMGByqGSM49\nAgEGCCqGSM49AwEHBG0w\n-----END KEY-----\n";

/// Starts a site with the secret `db` in the namespace `default`.
async fn site() -> Site {
    let site = Site::start().await;
    put(&site, PASSWORD).await;
    site
}

async fn put(site: &Site, password: &str) {
    let (password_file, pem) = (site.path("password.txt"), site.path("key.pem"));
    fs::write(&password_file, format!("{password}\n")).unwrap();
    fs::write(&pem, PEM).unwrap();
    let values = [format!("password=@{}", password_file.display()), format!("key.pem=@{}", pem.display())];
    site.belfry(&["secret", "put", "db", &values[0], &values[1]]).await.success();
    fs::remove_file(password_file).unwrap();
    fs::remove_file(pem).unwrap();
}

fn variable(key: &str, name: &str) -> SecretReference {
    SecretReference { secret: "db".into(), key: key.into(), env: Some(name.into()), file: None }
}

fn file(key: &str, name: &str) -> SecretReference {
    SecretReference { secret: "db".into(), key: key.into(), env: None, file: Some(name.into()) }
}

fn script(text: &str) -> JobSpec {
    let process = ProcessRun { script: Some(text.to_owned()), ..ProcessRun::default() };
    let secrets = vec![variable("password", "DB_PASSWORD"), file("key.pem", "key.pem")];
    JobSpec { secrets, ..JobSpec::new(Run::Process(process)) }
}

async fn ended(site: &Site, spec: &JobSpec) -> Job {
    let job = site.submit(spec).await;
    site.until_job(job, "ended", |job| job.status.is_final()).await
}

async fn log_of(site: &Site, job: &Job) -> String {
    let page = site.client().logs(LogSource::Job(job.id, None), &LogQuery::default()).await.unwrap();
    page.items.iter().map(|line| format!("{}\n", line.text)).collect()
}

/// Returns the files below a folder that contain a text.
fn files_with(folder: &Path, text: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files_with(&path, text));
        } else if fs::read(&path).is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text)) {
            found.push(path.display().to_string());
        }
    }
    found
}

/// H2. The task has the values; the log, the result, the error, and all files of the server and the worker do not.
#[tokio::test]
async fn a_task_gets_its_secrets_and_nothing_else_has_them() {
    let site = site().await;
    let ok = ended(
        &site,
        &script(
            "test \"$DB_PASSWORD\" = \"$(printf 'correct-horse-%s' battery)\" || exit 3
             test \"$(wc -l < $BELFRY_SECRETS/key.pem)\" = 4 || exit 4
             stat -f -c %T $BELFRY_SECRETS/key.pem
             echo \"password is $DB_PASSWORD.\"; cat $BELFRY_SECRETS/key.pem
             printf 'b64 '; printf 'user:%s' \"$DB_PASSWORD\" | base64
             printf 'split correct-horse'; sleep 0.1; printf '%s\\n' -battery
             echo \"{\\\"url\\\": \\\"db://$DB_PASSWORD@host\\\"}\" > $BELFRY_OUTPUT",
        ),
    )
    .await;
    assert_eq!(ok.status, JobStatus::Succeeded, "{:?} {}", ok.result, log_of(&site, &ok).await);
    let log = log_of(&site, &ok).await;
    assert!(log.contains("password is ******.\n"), "{log}");
    assert!(log.replace('\n', "").contains("split ******"), "in two writes: {log}");
    assert!(log.contains("tmpfs"), "the file is in memory: {log}");
    assert!(!log.contains(PASSWORD) && !log.contains("MIGHAgEA") && !log.contains("BEGIN"), "{log}");
    assert_eq!(ok.result.unwrap().output, Some(serde_json::json!({"url": "db://******@host"})));

    let failed = ended(&site, &script("echo \"error: wrong password $DB_PASSWORD\" >&2; exit 1")).await;
    let message = failed.result.unwrap().message.unwrap_or_default();
    assert!(message.contains("wrong password ******") && !message.contains(PASSWORD), "{message}");

    let shown = site.belfry(&["job", "get", &ok.id.to_string(), "-o", "json"]).await.success();
    assert!(shown.contains("DB_PASSWORD") && !shown.contains(PASSWORD), "{shown}");
    let list = site.belfry(&["secret", "list", "-o", "json"]).await.success();
    assert!(list.contains("key.pem") && !list.contains(PASSWORD), "{list}");
    for text in [PASSWORD.as_bytes(), b"MIGHAgEAMBMGByqGSM49"] {
        assert_eq!(files_with(&site.path(""), text), [""; 0], "{:?}", String::from_utf8_lossy(text));
    }
    let execution = site.client().job_executions(ok.id).await.unwrap().items[0].id.to_string();
    until("the files of secrets are removed", SOON, async || {
        let folders = fs::read_dir("/dev/shm").unwrap().flatten();
        let ours = folders.filter(|folder| folder.file_name().to_string_lossy().starts_with("belfry-"));
        ours.into_iter().all(|folder| !folder.path().join(&execution).exists()).then_some(())
    })
    .await;
}

/// H2.
#[tokio::test]
async fn a_secret_of_another_namespace_or_a_deleted_one_cannot_be_used() {
    let site = site().await;
    let mut spec = script("true");
    spec.namespace = "other".into();
    let refused = site.client().submit(&spec).await.unwrap_err().to_string();
    assert!(refused.contains("secret `db` does not exist in namespace `other`"), "{refused}");

    site.belfry(&["queue", "pause", "default"]).await.success();
    let mut waiting = script("true");
    waiting.retry.max_start_retries = 0;
    let job = site.submit(&waiting).await;
    site.belfry(&["secret", "delete", "db"]).await.success();
    site.belfry(&["queue", "resume", "default"]).await.success();
    let job = site.until_job(job, "ended", |job| job.status.is_final()).await;
    let result = job.result.unwrap();
    assert_eq!((job.status, result.error.as_deref()), (JobStatus::Failed, Some("secret_not_found")));
    let message = result.message.unwrap_or_default();
    assert!(message.contains("secret `db` does not exist in namespace `default`"), "{message}");
}

/// H2. A retry gets the values of its own start, and a running task keeps those of its start.
#[tokio::test]
async fn a_retry_gets_the_new_value() {
    let site = site().await;
    let go = site.path("go");
    let mut spec = script(&format!(
        "if [ \"$BELFRY_ATTEMPT\" = 1 ]; then while [ ! -e {} ]; do sleep 0.05; done; exit 1; fi
         test \"$DB_PASSWORD\" = another-long-password; echo \"new: $DB_PASSWORD\"",
        go.display()
    ));
    spec.retry.max_retries = 1;
    spec.retry.backoff.initial = model::Duration::ZERO;
    let job = site.submit(&spec).await;
    site.until_status(job, JobStatus::Running).await;
    put(&site, "another-long-password").await;
    fs::write(go, "").unwrap();
    let job = site.until_job(job, "ended", |job| job.status.is_final()).await;
    assert_eq!(job.status, JobStatus::Succeeded, "{:?} {}", job.result, log_of(&site, &job).await);
    assert!(log_of(&site, &job).await.contains("new: ******"));
}

/// H2, F1, F2. Sidecars, sandboxes and requests have the same variables and files.
#[tokio::test]
async fn every_kind_of_task_gets_its_secrets() {
    let site = site().await;
    let check = "test \"$DB_PASSWORD\" = correct-horse-battery && grep -q MIGH $BELFRY_SECRETS/key.pem";
    let mut with_sidecar = script(&format!("{check} && echo $DB_PASSWORD"));
    let Run::Process(process) = &mut with_sidecar.run else { unreachable!() };
    let shell = |text: &str| vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()];
    process.sidecars = vec![Sidecar {
        command: shell(&format!("{check} && echo sidecar $DB_PASSWORD; sleep 1000")),
        ..serde_json::from_value(serde_json::json!({"name": "side", "command": ["x"]})).unwrap()
    }];
    let job = ended(&site, &with_sidecar).await;
    assert_eq!(job.status, JobStatus::Succeeded, "{:?} {}", job.result, log_of(&site, &job).await);
    assert!(!log_of(&site, &job).await.contains(PASSWORD));

    for level in [SandboxLevel::Basic, SandboxLevel::Strict] {
        let workers = site.client().workers_page(&Default::default(), &Default::default()).await.unwrap();
        if !workers.items[0].capabilities.sandbox_levels.contains(&level) {
            eprintln!("skipped: no sandboxes {level:?} on this machine");
            continue;
        }
        let read_only =
            "! chmod u+w $BELFRY_SECRETS/key.pem 2> /dev/null && ! touch $BELFRY_SECRETS/new 2> /dev/null";
        let mut sandboxed = script(&format!("{check} && {read_only} && echo $DB_PASSWORD"));
        let Run::Process(process) = &mut sandboxed.run else { unreachable!() };
        process.sandbox = Sandbox { level, ..Sandbox::default() };
        let job = ended(&site, &sandboxed).await;
        assert_eq!(
            job.status,
            JobStatus::Succeeded,
            "{level:?} {:?} {}",
            job.result,
            log_of(&site, &job).await
        );
    }

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let received = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        while !String::from_utf8_lossy(&bytes).ends_with("END") {
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
        }
        let text = String::from_utf8(bytes).unwrap();
        let answer = format!("got {}", text.lines().find(|line| line.contains("earer")).unwrap());
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
            answer.len()
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
        text
    });
    let http = HttpRun {
        url,
        headers: [("Authorization".to_owned(), "Bearer ${DB_PASSWORD}".to_owned())].into(),
        body: Some("password=${DB_PASSWORD} END".into()),
        ..HttpRun::default()
    };
    let request = JobSpec {
        secrets: vec![variable("password", "DB_PASSWORD")],
        ..JobSpec::new(Run::Http(Box::new(http)))
    };
    let job = ended(&site, &request).await;
    assert_eq!(job.status, JobStatus::Succeeded, "{:?}", job.result);
    let received = received.await.unwrap();
    assert!(
        received.contains("Bearer correct-horse-battery")
            && received.contains("password=correct-horse-battery END"),
        "{received}"
    );
    let log = log_of(&site, &job).await;
    assert!(!log.contains(PASSWORD), "{log}");
}
