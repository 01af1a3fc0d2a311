//! A disk that is full: refuse by name, keep reading, heal by itself.

use std::time::Duration;

use client::{Client, Patience};
use harness::{Site, SmallDisk, until};
use model::{JobSpec, JobStatus};

/// Rule 6. New work is refused by name, what is there can be read, and no restart is needed.
#[tokio::test]
async fn a_full_disk_refuses_new_jobs_by_name_keeps_reading_and_heals() {
    let disk = match SmallDisk::mount("96m") {
        Ok(disk) => disk,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let mut site = Site::over(&disk.path().join("data"), &[]).await;
    site.add_worker().await;
    let before = site.submit(&JobSpec::command(["true"])).await;
    site.until_status(before, JobStatus::Succeeded).await;
    let witness = site.witness();
    let running = site.submit(&witness.job(20)).await;
    until("the task runs", Duration::from_secs(30), async || (witness.count("start") == 1).then_some(()))
        .await;

    disk.fill();
    let token = site.server.token().unwrap();
    let patience = Patience { retry_for: Duration::ZERO, ..Patience::default() };
    let client = Client::with_patience(&site.server.url(), Some(&token), patience).unwrap();
    let refusal = until("a submission is refused", Duration::from_secs(60), async || {
        let specs = vec![JobSpec::command(["true"]); 100];
        client.submit_all(&specs).await.err().filter(|e| e.code() == Some("storage_full"))
    })
    .await;
    assert_eq!(refusal.status(), Some(507));
    let message = refusal.to_string();
    assert!(message.contains("no space left"), "{message}");
    // Reads go on, and the process is the same.
    assert_eq!(site.client().job(before).await.unwrap().status, JobStatus::Succeeded);
    let pid = site.server.pid();

    disk.clear();
    let after = until("submissions are taken again", Duration::from_secs(60), async || {
        client.submit(&JobSpec::command(["true"])).await.ok()
    })
    .await;
    site.until_status(after.id, JobStatus::Succeeded).await;
    site.until_status(running, JobStatus::Succeeded).await;
    assert_eq!(site.server.pid(), pid, "it healed without a restart");
}
