//! A backup that was brought back: what it does not know is stopped and named, and nothing runs beside itself.

use std::fs;
use std::path::Path;
use std::time::Duration;

use harness::{Site, until};
use model::spec::Delivery;
use model::{JobId, JobSpec, JobStatus};

const SOON: Duration = Duration::from_secs(60);
/// The queue of jobs that name none.
const QUEUE: &str = "default";

fn once_at_a_time(mut spec: JobSpec) -> JobSpec {
    spec.delivery = Delivery::ExactlyOnce;
    spec
}

/// As from or to a backup: all that belongs to the database, and nothing that was beside it before.
fn copy_database(from: &Path, to: &Path) {
    for file in ["belfry.db", "belfry.db-wal", "belfry.db-shm"] {
        // The last two need not be there.
        let _ = fs::remove_file(to.join(file));
        let copied = fs::copy(from.join(file), to.join(file));
        assert!(file != "belfry.db" || copied.is_ok(), "{copied:?}");
    }
}

/// The fences under which a job started, in the order of the starts.
fn fences(site: &Site, job: JobId) -> Vec<u64> {
    let lines = site.witness().lines().into_iter();
    lines.filter(|line| line.kind == "start" && line.job == job.to_string()).map(|line| line.fence).collect()
}

/// S24, D8.
#[tokio::test]
async fn what_a_restored_backup_does_not_know_is_stopped_and_named_and_nothing_runs_beside_itself() {
    let mut site = Site::start().await;
    let witness = site.witness();
    let (data, backup) = (site.server.data().to_owned(), site.path("backup"));
    fs::create_dir(&backup).unwrap();
    site.client().pause_queue(QUEUE, None).await.unwrap();
    let known = site.submit(&once_at_a_time(witness.job(600))).await;
    site.server.shut_down().await;
    copy_database(&data, &backup);

    site.server.start_again().await;
    site.client().resume_queue(QUEUE).await.unwrap();
    let forgotten = site.submit(&once_at_a_time(witness.job(600))).await;
    let both = async || {
        let started = [known, forgotten].map(|job| fences(&site, job).len());
        (started == [1, 1]).then_some(())
    };
    until("both run", SOON, both).await;
    let before = site.workers[0].tasks();
    site.server.shut_down().await;
    copy_database(&backup, &data);
    let told = site.belfry(&["store", "restored", &data.display().to_string()]).await.exits(0).stderr;
    assert!(told.contains("is an earlier state"), "{told}");

    site.server.start_again().await;
    site.client().resume_queue(QUEUE).await.unwrap();
    until("what was known runs again", SOON, async || (fences(&site, known).len() == 2).then_some(())).await;
    assert!(!before.iter().any(|task| task.is_alive()), "what the backup does not know goes on");
    let fences = fences(&site, known);
    assert!(fences[1] > fences[0], "{fences:?}");
    assert_eq!(site.client().job(known).await.unwrap().status, JobStatus::Running);
    assert_eq!(site.client().job(forgotten).await.unwrap_err().status(), Some(404));
    let log = fs::read_to_string(site.path("server.log")).unwrap();
    for job in [known, forgotten] {
        let named = |line: &str| line.contains("the store has forgotten") && line.contains(&job.to_string());
        assert!(log.lines().any(named), "{job} is not named");
    }
}
