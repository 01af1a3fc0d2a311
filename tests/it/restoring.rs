//! Stores in an unexpected state: a restored backup, and damage. Executions that a backup does not contain are
//! stopped and reported, no executions overlap, and every loss is reported.

use std::fs;
use std::path::Path;
use std::time::Duration;

use harness::{Server, Site, until};
use model::spec::Delivery;
use model::{JobId, JobSpec, JobStatus};

/// Timeout for a machine that is busy with other tests.
const SOON: Duration = Duration::from_mins(3);
/// Queue of jobs without a queue in their spec.
const QUEUE: &str = "default";

fn once_at_a_time(mut spec: JobSpec) -> JobSpec {
    spec.delivery = Delivery::ExactlyOnce;
    spec
}

/// Copies a database as a backup or restore does: all of its files replace the existing ones.
fn copy_database(from: &Path, to: &Path) {
    for file in ["belfry.db", "belfry.db-wal", "belfry.db-shm"] {
        // The last two files may not exist.
        let _ = fs::remove_file(to.join(file));
        let copied = fs::copy(from.join(file), to.join(file));
        assert!(file != "belfry.db" || copied.is_ok(), "{copied:?}");
    }
}

/// Returns the fences and pids of the job's starts, in order.
fn starts(site: &Site, job: JobId) -> Vec<(u64, i32)> {
    let lines = site.witness().lines().into_iter();
    let starts = lines.filter(|line| line.kind == "start" && line.job == job.to_string());
    starts.map(|line| (line.fence, line.pid)).collect()
}

/// S24, D8.
#[tokio::test]
async fn executions_unknown_to_a_backup_are_stopped_reported_and_do_not_overlap() {
    let mut site = Site::start().await;
    let witness = site.witness();
    let (data, backup) = (site.server.data().to_owned(), site.path("backup"));
    fs::create_dir(&backup).unwrap();
    site.client().pause_queue(QUEUE, None).await.unwrap();
    let known = site.submit(&once_at_a_time(witness.job(600))).await;
    site.server.shut_down().await;
    copy_database(&data, &backup);

    site.server.restart().await;
    site.client().resume_queue(QUEUE).await.unwrap();
    let forgotten = site.submit(&once_at_a_time(witness.job(600))).await;
    let both = async || {
        let started = [known, forgotten].map(|job| starts(&site, job).len());
        (started == [1, 1]).then_some(())
    };
    until("both run", SOON, both).await;
    let before = site.workers[0].tasks();
    site.server.shut_down().await;
    copy_database(&backup, &data);
    let told = site.belfry(&["store", "restored", &data.display().to_string()]).await.exits(0).stderr;
    assert!(told.contains("is an earlier state"), "{told}");

    site.server.restart().await;
    site.client().resume_queue(QUEUE).await.unwrap();
    until("the known job runs again", SOON, async || (starts(&site, known).len() == 2).then_some(())).await;
    let starts = starts(&site, known);
    assert!(!before.iter().any(|task| task.0 == starts[0].1 && task.is_alive()), "two executions overlap");
    assert!(starts[1].0 > starts[0].0, "{starts:?}");
    let are_gone = || !before.iter().any(|task| task.is_alive());
    until("executions unknown to the backup are stopped", SOON, async || are_gone().then_some(())).await;
    site.until_status(known, JobStatus::Running).await;
    assert_eq!(site.client().job(forgotten).await.unwrap_err().status(), Some(404));
    for job in [known, forgotten] {
        let named = |line: &str| line.contains("the store has lost") && line.contains(&job.to_string());
        let is_named = || log_of(&site).lines().any(named);
        until(&format!("{job} is reported"), SOON, async || is_named().then_some(())).await;
    }
}

fn log_of(site: &Site) -> String {
    fs::read_to_string(site.path("server.log")).unwrap()
}

async fn submit_some(site: &Site, jobs: usize) {
    for _ in 0..jobs {
        site.submit(&JobSpec::command(["true"])).await;
    }
}

/// F9. The server refuses to start on a damaged log until the operator accepts the loss.
#[tokio::test]
async fn a_damaged_log_is_refused_until_the_loss_is_accepted() {
    let mut site = Site::server_only(&[]).await;
    let (data, token) = (site.server.data().to_owned(), site.server.token());
    let log = data.join("belfry.db-wal");
    submit_some(&site, 20).await;
    let half = fs::read(&log).unwrap();
    submit_some(&site, 20).await;
    site.server.kill().await;
    let mut bytes = fs::read(&log).unwrap();
    // The damage is placed where the log continued after the first half. The server also writes by itself, more the
    // longer the test takes, and the end of the log is followed by remains of an earlier log.
    let place = half.iter().zip(&bytes).position(|(before, after)| before != after).unwrap_or(half.len());
    bytes[place] ^= 1;
    fs::write(&log, &bytes).unwrap();
    assert_eq!(site.server.start_expecting_exit().await, Some(1));
    let told = log_of(&site);
    assert!(told.contains("has lost commits: it ends before event"), "{told}");
    assert!(told.contains("belfry store restored"), "{told}");
    assert_eq!(fs::read(&log).unwrap(), bytes, "the log was not changed");

    let store = data.display().to_string();
    let checked = site.belfry(&["store", "check", &store]).await.exits(1);
    assert!(checked.stdout.contains("commits are lost"), "{}", checked.stdout);
    site.belfry(&["store", "restored", &store]).await.exits(0);
    assert_eq!(fs::read(data.join("belfry.db-wal.damaged")).unwrap(), bytes);
    site.server.restart().await;
    assert_eq!(site.server.token(), token);
    let left = site.belfry(&["job", "list", "--output", "name", "--limit", "100"]).await.success();
    let jobs = left.lines().count();
    assert!((20..40).contains(&jobs), "{jobs} jobs are left");
}

/// F9. A new store would have new tokens, but the objects of the old one.
#[tokio::test]
async fn a_missing_store_is_not_recreated() {
    let mut site = Site::server_only(&[]).await;
    let (data, token) = (site.server.data().to_owned(), site.server.token());
    site.server.shut_down().await;
    for entry in fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("belfry.db")) {
            fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(site.server.start_expecting_exit().await, Some(1));
    let told = log_of(&site);
    assert!(told.contains("is missing or empty, but it existed"), "{told}");
    assert_eq!(site.server.token(), token);
}

/// H5, D8. From the backup of a running server to a server that runs on the backup.
#[tokio::test]
async fn a_restored_backup_is_refused_until_it_is_declared() {
    let mut site = Site::server_only(&[]).await;
    let known = site.submit(&JobSpec::command(["true"])).await;
    let (data, backup) = (site.server.data().to_owned(), site.path("backup.db"));
    let store = data.display().to_string();
    let made = site.belfry(&["store", "backup", &store, &backup.display().to_string()]).await.exits(0);
    assert!(made.stderr.contains("backed up and checked"), "{}", made.stderr);
    let checked = site.belfry(&["store", "check", &backup.display().to_string()]).await.exits(0);
    assert!(checked.stderr.contains("checked every page"), "{}", checked.stderr);
    let checked = site.belfry(&["store", "check", &store]).await.exits(0);
    assert!(checked.stderr.contains("a server is using the store"), "{}", checked.stderr);
    let forgotten = site.submit(&JobSpec::command(["true"])).await;
    site.server.shut_down().await;
    for file in ["belfry.db-wal", "belfry.db-shm"] {
        // The files may not exist.
        let _ = fs::remove_file(data.join(file));
    }
    fs::copy(&backup, data.join("belfry.db")).unwrap();
    assert_eq!(site.server.start_expecting_exit().await, Some(1));
    assert!(log_of(&site).contains("has lost commits"), "{}", log_of(&site));
    site.belfry(&["store", "restored", &store]).await.exits(0);
    site.server.restart().await;
    assert_eq!(site.client().job(known).await.unwrap().id, known);
    assert_eq!(site.client().job(forgotten).await.unwrap_err().status(), Some(404));
}

/// D8, H5. Two of three servers are lost for good, while a job runs that must not run twice. The third one continues in a new
/// cluster, with everything that was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_has_lost_its_majority_continues_from_one_server() {
    let (mut site, _proxies) = Site::with_raft(3, &[]).await;
    let witness = site.witness();
    site.add_worker().await;
    let ended = site.submit(&JobSpec::command(["true"])).await;
    site.until_status(ended, JobStatus::Succeeded).await;
    let running = site.submit(&once_at_a_time(witness.job(600))).await;
    until("the job runs", SOON, async || (starts(&site, running).len() == 1).then_some(())).await;
    let before = site.workers[0].tasks();
    let last = site.submit(&JobSpec::command(["true"])).await;
    for server in site.servers_mut() {
        server.kill().await;
    }

    let (folder, lost) = (site.server.raft_folder(), site.path("lost"));
    let member = folder.display().to_string();
    for command in ["restored", "reset-clock"] {
        let refused = site.belfry(&["store", command, &member]).await.exits(1).stderr;
        assert!(refused.contains("member of a Raft cluster"), "{command}: {refused}");
        assert!(refused.contains("belfry store backup"), "{command}: {refused}");
    }
    let backup = site.path("backup.db").display().to_string();
    site.belfry(&["store", "backup", &member, &backup]).await.exits(0);
    let refused = site.belfry(&["store", "backup", &member, &backup]).await.exits(1).stderr;
    assert!(refused.contains("never overwrites a file"), "{refused}");
    fs::rename(&folder, &lost).unwrap();
    site.server.create_cluster_from(lost);
    site.server.restart().await;

    let members = site.belfry(&["server", "members", "--output", "json"]).await.success();
    assert_eq!(members.matches("\"role\"").count(), 1, "{members}");
    site.until_status(ended, JobStatus::Succeeded).await;
    site.until_status(last, JobStatus::Succeeded).await;
    site.until_status(running, JobStatus::Running).await;
    let starts = starts(&site, running);
    let alive = before.iter().filter(|task| task.is_alive()).count();
    assert!(starts.len() == 1 || alive == 0, "two executions overlap: {starts:?}");

    // A backup of a member is an embedded store.
    let data = site.path("embedded");
    fs::create_dir(&data).unwrap();
    fs::rename(&backup, data.join("belfry.db")).unwrap();
    fs::copy(site.server.data().join("admin-token"), data.join("admin-token")).unwrap();
    let log = site.path("embedded.log");
    let embedded = Server::start(&data, &log, &[]).await;
    for job in [ended, running, last] {
        assert_eq!(embedded.client().job(job).await.unwrap().id, job);
    }
}
