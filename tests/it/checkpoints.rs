//! Checkpoints: the next execution of a job continues from the last one.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{Role, Site, belfry, until};
use model::spec::{ProcessRun, Run};
use model::{JobSpec, JobStatus};

const SOON: Duration = Duration::from_secs(60);

/// Counts to six, and records each number after saving it; waits at three until the worker is killed.
fn counting(work: &Path) -> JobSpec {
    let (program, work) = (belfry().display(), work.display());
    let script = format!(
        "n=$({program} task checkpoint get || echo 0)
        while [ $n -lt 6 ]; do
            n=$((n + 1))
            echo $n >> {work}
            echo $n | {program} task checkpoint set - --type text/plain
            if [ $n = 3 ] && [ $BELFRY_ATTEMPT = 1 ]; then echo saved >> {work}; sleep 600; fi
        done"
    );
    let mut spec = JobSpec::new(Run::Process(ProcessRun { script: Some(script), ..ProcessRun::default() }));
    spec.retry.max_retries = 3;
    spec.retry.backoff.initial = "100ms".parse().unwrap();
    spec
}

/// Creates a file that tasks of any user can write to.
fn shared(site: &Site) -> PathBuf {
    let path = site.path("work");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    path
}

/// C4, D4. Nothing is repeated or skipped, although the whole worker is killed.
#[tokio::test]
async fn a_job_resumes_from_its_last_checkpoint_after_its_worker_was_killed() {
    let mut site = Site::start().await;
    let file = shared(&site);
    let job = site.submit(&counting(&file)).await;
    let work = || fs::read_to_string(&file).unwrap();
    until("three numbers are saved", SOON, async || work().contains("saved").then_some(())).await;
    site.workers[0].find(Role::Supervisor).unwrap().kill();
    site.workers[0].kill_agent().await;
    site.workers[0].start_agent();

    let ended = site.until_status(job, JobStatus::Succeeded).await;
    assert_eq!(work(), "1\n2\n3\nsaved\n4\n5\n6\n");
    let known = ended.checkpoint.unwrap();
    assert_eq!((known.version, known.size_bytes, &*known.content_type), (6, 2, "text/plain"));
    assert_eq!(known.execution, ended.executions);
    assert_eq!(&*site.client().job_checkpoint(job).await.unwrap(), b"6\n");
    let shown = site.belfry(&["job", "get", &job.to_string()]).await.success();
    assert!(shown.contains("version 6"), "{shown}");
}

/// C4, D9. A server restart during a task only delays it.
#[tokio::test]
async fn checkpoints_survive_a_server_restart() {
    let mut site = Site::start().await;
    let file = shared(&site);
    let job = site.submit(&counting(&file)).await;
    let work = || fs::read_to_string(&file).unwrap();
    until("three numbers are saved", SOON, async || work().contains("saved").then_some(())).await;
    site.server.kill().await;
    site.server.restart().await;
    site.workers[0].find(Role::Supervisor).unwrap().kill();
    assert_eq!(site.until_status(job, JobStatus::Succeeded).await.checkpoint.unwrap().version, 6);
    assert_eq!(work(), "1\n2\n3\nsaved\n4\n5\n6\n");
}
