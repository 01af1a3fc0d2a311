//! Preemption with real processes: the victim reads why it stops, saves a checkpoint, and continues from it later.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use client::{Page, WorkerFilter};
use harness::{Site, until};
use model::JobSpec;
use model::JobStatus;
use model::lifecycle::Cause;
use model::spec::{PriorityClass, ProcessRun, Run};

const SOON: Duration = Duration::from_secs(60);

/// E3, D4.
#[tokio::test]
async fn a_preempted_task_saves_a_checkpoint_and_continues_after_the_urgent_job() {
    let site = Site::start().await;
    let path = site.path("work");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let work = || fs::read_to_string(&path).unwrap();
    let file = path.display();
    let script = format!(
        "if [ -s \"$BELFRY_CHECKPOINT\" ]; then echo \"continues $(cat \"$BELFRY_CHECKPOINT\")\" >> {file}; exit 0; fi
        trap 'cat \"$BELFRY_STOP_REASON\" >> {file}; echo >> {file}; echo half > \"$BELFRY_CHECKPOINT\"; exit 0' TERM
        echo started >> {file}
        while true; do sleep 0.05; done"
    );
    let workers = site.client().workers_page(&WorkerFilter::default(), &Page::default()).await.unwrap();
    let whole = workers.items[0].capacity.cpu;
    let mut victim = JobSpec::new(Run::Process(ProcessRun { script: Some(script), ..ProcessRun::default() }));
    victim.priority_class = PriorityClass::Preemptible;
    victim.resources.cpu = Some(whole);
    let victim = site.submit(&victim).await;
    until("the victim runs", SOON, async || work().contains("started").then_some(())).await;

    let mut urgent = JobSpec::command(["sh", "-c", &format!("echo urgent >> {file}")]);
    urgent.priority_class = PriorityClass::High;
    urgent.resources.cpu = Some(whole);
    let urgent = site.submit(&urgent).await;
    site.until_status(urgent, JobStatus::Succeeded).await;
    let ended = site.until_status(victim, JobStatus::Succeeded).await;

    assert_eq!(work(), "started\npreempted\nurgent\ncontinues half\n");
    assert_eq!((ended.executions, ended.run_failures, ended.losses), (2, 0, 0));
    let events = site.client().job_events(victim).await.unwrap();
    let preempted = events.iter().find(|entry| entry.cause == Cause::Preempted).unwrap();
    assert_eq!(preempted.detail.as_deref(), Some(&*format!("preempted by {urgent}")));
}
