//! A full disk: new work is refused with a specific error, reads continue, and recovery needs no restart.
//!
//! The store, or the folder of a worker, lies on a small file system of its own, which the tests fill with
//! requests or with a file. They then let running jobs end, kill processes, free the space, and check that
//! every job has ended once and that no job lost a retry. Where such a file system cannot be mounted, the
//! tests print a notice and pass.
//!
//! A reserve of the store is for the ends of running jobs. So the tests also check that clients which submit
//! without pause cannot use it up.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use client::{Client, Timeouts};
use harness::{Role, Site, SmallDisk, until};
use model::{Bytes, JobSpec, JobStatus, Millicores};

/// Rule 6. New work is refused with a specific error, existing data can be read, and no restart is needed.
#[tokio::test]
async fn a_full_disk_refuses_new_jobs_serves_reads_and_recovers() {
    let disk = match SmallDisk::mount("96m") {
        Ok(disk) => disk,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let mut site = Site::over(&disk.path().join("data"), &[]).await;
    site.add_worker().await;
    let before = site.submit(&JobSpec::command(["true"])).await;
    site.until_status(before, JobStatus::Succeeded).await;
    let witness = site.witness();
    let running = site.submit(&waiting_job(&site)).await;
    until("the task runs", SOON, async || (witness.count("start") == 1).then_some(())).await;

    disk.fill();
    let client = impatient(&site);
    let refusal = until("a submission is refused", SOON, async || {
        let specs = vec![JobSpec::command(["true"]); 100];
        client.submit_all(&specs).await.err().filter(|e| e.code() == Some("storage_full"))
    })
    .await;
    assert_eq!(refusal.status(), Some(507));
    let message = refusal.to_string();
    assert!(message.contains("no space left"), "{message}");
    // Reads continue in the same process.
    assert_eq!(site.client().job(before).await.unwrap().status, JobStatus::Succeeded);
    let pid = site.server.pid();

    disk.clear();
    release_tasks(&site);
    let after = until("submissions are accepted again", SOON, async || {
        client.submit(&JobSpec::command(["true"])).await.ok()
    })
    .await;
    site.until_status(after.id, JobStatus::Succeeded).await;
    site.until_status(running, JobStatus::Succeeded).await;
    assert_eq!(site.server.pid(), pid, "the server recovered without a restart");
}

/// Timeout for a machine that is busy with other tests.
const SOON: Duration = Duration::from_mins(3);

/// A job that runs until [`release_tasks`] creates a file, however long the disk takes to fill.
fn waiting_job(site: &Site) -> JobSpec {
    let file = site.path("told");
    site.witness().job_that(&format!("while ! [ -e '{}' ]; do pause 0.1; done", file.display()))
}

/// Ends the jobs of [`waiting_job`].
fn release_tasks(site: &Site) {
    fs::write(site.path("told"), "").unwrap();
}

fn impatient(site: &Site) -> Client {
    let patience = Timeouts { retry_for: Duration::ZERO, ..Timeouts::default() };
    Client::with_patience(&site.server.url(), Some(&site.server.token().unwrap()), patience).unwrap()
}

/// Submits jobs of about 20 KB to a queue that starts nothing, until one is refused for lack of space.
async fn flood(client: &Client) {
    let mut spec = JobSpec::command(["true", &"x".repeat(20_000)]);
    spec.queue = "later".into();
    until("a submission is refused", SOON, async || {
        client.submit_all(&vec![spec.clone(); 20]).await.err().filter(|e| e.code() == Some("storage_full"))
    })
    .await;
}

/// Returns the number of times that the server has loaded its jobs.
fn loads(site: &Site) -> usize {
    fs::read_to_string(site.path("server.log")).unwrap().matches("shards loaded").count()
}

/// F7, rule 6. A client that submits continuously gets none of the space in which the ends of running jobs are
/// recorded, and does not make them lose their server.
#[tokio::test]
async fn running_jobs_end_on_a_full_disk_while_new_ones_are_refused() {
    let disk = match SmallDisk::mount("96m") {
        Ok(disk) => disk,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let mut site = Site::over(&disk.path().join("data"), &[]).await;
    site.add_worker().await;
    site.client().pause_queue("later", None).await.unwrap();
    let witness = site.witness();
    let mut spec = waiting_job(&site);
    spec.resources.cpu = Some(Millicores(10));
    spec.resources.memory = Some(Bytes(32 << 20));
    let mut running = Vec::new();
    for _ in 0..8 {
        running.push(site.submit(&spec).await);
    }
    until("the tasks run", SOON, async || (witness.count("start") == 8).then_some(())).await;
    disk.fill_but(8 << 20);
    let client = impatient(&site);
    flood(&client).await;
    release_tasks(&site);
    for &job in &running {
        site.until_status(job, JobStatus::Succeeded).await;
    }
    assert!(
        loads(&site) <= 2,
        "the jobs were loaded {} times: every load closes worker sessions",
        loads(&site)
    );
    assert_eq!(witness.count("start"), 8, "each job ran once");

    // A server that crashes now restarts, and serves reads.
    site.server.kill().await;
    site.server.spawn();
    let known = until("reads are served", SOON, async || impatient(&site).job(running[0]).await.ok()).await;
    assert_eq!(known.status, JobStatus::Succeeded);
    assert!(site.server.is_running());

    disk.clear();
    let after = until("submissions are accepted again", SOON, async || {
        client.submit(&JobSpec::command(["true"])).await.ok()
    })
    .await;
    site.until_status(after.id, JobStatus::Succeeded).await;
}

/// Returns the waiting reasons of a job if one of them is the full disk of a worker.
async fn trouble(site: &Site, job: model::JobId) -> Option<String> {
    let why = site.client().why(job).await.ok()?;
    Some(serde_json::to_string(&why.reasons).unwrap()).filter(|text| text.contains("disk almost full"))
}

/// Returns the number of times that a worker has connected.
fn sessions(site: &Site) -> usize {
    fs::read_to_string(site.path("server.log")).unwrap().matches("worker session opened").count()
}

/// F7. With the full disk of a worker, the ends of its running jobs are recorded, however long the disk stays full
/// and whatever process dies. No new job starts there, and no job loses a retry.
#[tokio::test]
async fn running_jobs_end_on_the_full_disk_of_their_worker_and_new_ones_wait() {
    let disk = match SmallDisk::mount("96m") {
        Ok(disk) => disk,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let mut site = Site::server_only(&[]).await;
    site.add_worker_on(disk.path()).await;
    let witness = site.witness();
    // The outputs are written to the journal, and do not fit into its existing pages.
    let (told, ready) = (site.path("told"), site.path("ready"));
    fs::create_dir(&ready).unwrap();
    fs::set_permissions(&ready, fs::Permissions::from_mode(0o777)).unwrap();
    let mut spec = witness.job_that(&format!(
        "printf '{{\"output\": \"%03000d\"}}' 0 > \"$BELFRY_OUTPUT\"; : > '{}'/$$; while ! [ -e '{}' ]; do sleep 0.2; done",
        ready.display(),
        told.display()
    ));
    spec.resources.cpu = Some(Millicores(10));
    spec.resources.memory = Some(Bytes(8 << 20));
    let tasks = 20;
    let mut running = Vec::new();
    for _ in 0..tasks {
        running.push(site.submit(&spec).await);
    }
    let is_ready = || fs::read_dir(&ready).unwrap().count() == tasks;
    until("the tasks run", SOON, async || is_ready().then_some(())).await;

    let filling = disk.keep_full();
    // Some of these reach the worker before the server knows that it is unhealthy.
    let mut waiting = Vec::new();
    for _ in 0..8 {
        waiting.push(site.submit(&JobSpec::command(["true"])).await);
    }
    until("the worker is unhealthy", SOON, async || trouble(&site, waiting[7]).await).await;
    release_tasks(&site);
    for &job in &running {
        site.until_status(job, JobStatus::Succeeded).await;
    }

    // A worker that crashes now restarts.
    let supervisor = site.workers[0].find(Role::Supervisor).expect("the supervisor is running");
    supervisor.kill();
    site.workers[0].kill_agent().await;
    site.workers[0].start_agent();
    until("the worker is connected again", SOON, async || (sessions(&site) == 2).then_some(())).await;
    assert_ne!(site.workers[0].find(Role::Supervisor), Some(supervisor));
    for &job in &waiting {
        let job = site.client().job(job).await.unwrap();
        assert!(!job.status.is_final(), "{} is {}", job.id, job.status);
    }

    drop(filling);
    disk.clear();
    for &job in &waiting {
        site.until_status(job, JobStatus::Succeeded).await;
    }
    assert_eq!(witness.count("start"), tasks, "each job ran once");
}
