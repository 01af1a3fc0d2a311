//! A disk that is full: refuse by name, keep reading, heal by itself.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use client::{Client, Patience};
use harness::{Site, until};
use model::{JobSpec, JobStatus};

/// A small file system of its own; gone with its value.
struct SmallDisk {
    at: PathBuf,
    _folder: tempfile::TempDir,
}

impl SmallDisk {
    /// `None`, with the reason on stderr, where the rights to mount one are missing.
    fn mount(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("disk");
        fs::create_dir(&at).unwrap();
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "belfry-test"])
            .arg(&at)
            .output();
        match output {
            Ok(output) if output.status.success() => Some(Self { at, _folder: folder }),
            other => {
                eprintln!("skipped: a full disk needs the right to mount a tmpfs (root): {other:?}");
                None
            }
        }
    }

    /// Writes until not a byte is left, and says with which file.
    fn fill(&self) -> PathBuf {
        let path = self.at.join("filler");
        let mut file = File::create(&path).unwrap();
        for size in [1 << 20, 4096, 1] {
            let chunk = vec![0_u8; size];
            while file.write_all(&chunk).is_ok() {}
        }
        path
    }

    fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let status = Command::new("umount").arg("--lazy").arg(&self.at).status();
        assert!(status.is_ok_and(|s| s.success()), "the small disk stays mounted at {}", self.at.display());
    }
}

/// Rule 6. New work is refused by name, what is there can be read, and no restart is needed.
#[tokio::test]
async fn a_full_disk_refuses_new_jobs_by_name_keeps_reading_and_heals() {
    let Some(disk) = SmallDisk::mount("96m") else { return };
    let mut site = Site::over(&disk.path().join("data")).await;
    site.add_worker().await;
    let before = site.submit(&JobSpec::command(["true"])).await;
    site.until_status(before, JobStatus::Succeeded).await;
    let witness = site.witness();
    let running = site.submit(&witness.job(20)).await;
    until("the task runs", Duration::from_secs(30), async || (witness.count("start") == 1).then_some(()))
        .await;

    let filler = disk.fill();
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

    fs::remove_file(filler).unwrap();
    let after = until("submissions are taken again", Duration::from_secs(60), async || {
        client.submit(&JobSpec::command(["true"])).await.ok()
    })
    .await;
    site.until_status(after.id, JobStatus::Succeeded).await;
    site.until_status(running, JobStatus::Succeeded).await;
    assert_eq!(site.server.pid(), pid, "it healed without a restart");
}
