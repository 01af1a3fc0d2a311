//! A full volume: a small file system in memory.

use std::fs;
use std::process::Command;

use model::record::{Batch, Change, Lease};
use model::{JobId, JobStatus, ShardId};

use super::*;
use crate::query::{JobFilter, Page};
use crate::suite::load;
use crate::suite::sample::Sampler;
use crate::{Commits as _, Housekeeping as _, Leases as _, Reads as _};
use crate::{Committed, StoreError};

/// File system in memory, unmounted at the end.
struct Volume(TempDir);

impl Volume {
    /// Returns `None` if this user may not mount.
    fn mount(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={size},mode=700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "belfry-test"])
            .arg(folder.path())
            .output()
            .is_ok_and(|output| output.status.success());
        if !mounted {
            println!("skipped: a file system cannot be mounted here");
        }
        mounted.then_some(Self(folder))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

struct Filler {
    store: SqliteStore,
    leases: Vec<Lease>,
    sampler: Sampler,
    done: Vec<JobId>,
    /// For each job in `done`, whether the store reported low space.
    low: Vec<bool>,
}

impl Filler {
    /// Commits a job of some 30 KiB.
    async fn submit(&mut self) -> Result<JobId, StoreError> {
        let id = self.sampler.job_id(ShardId(0));
        let mut spec = self.sampler.spec();
        let mut script = String::new();
        while script.len() < 30_000 {
            script.push_str(&self.sampler.number().to_string());
        }
        spec.labels.insert("script".into(), script);
        let head = Some(Arc::new(crate::suite::sample::head_of(spec)));
        let state = Box::new(self.sampler.state(JobStatus::Waiting));
        let changes = vec![Change::Job { id, new: true, head, state }];
        let batch = Batch { now: self.sampler.now(), changes, ..Batch::default() };
        match self.store.commit(&self.leases, Arc::new(batch)).await {
            Ok(committed) => {
                self.done.push(id);
                self.low.push(committed.space_low);
                Ok(id)
            }
            Err(error) => {
                // As the owner does, which drops its decisions.
                load(&self.store, &self.leases).await?;
                Err(error)
            }
        }
    }

    /// Commits the end of a job.
    async fn finish(&mut self, id: JobId) -> Result<Committed, StoreError> {
        let state = Box::new(self.sampler.state(JobStatus::Succeeded));
        let changes = vec![Change::Job { id, new: false, head: None, state }];
        let batch = Batch { now: self.sampler.now(), changes, ..Batch::default() };
        self.store.commit(&self.leases, Arc::new(batch)).await
    }

    async fn fill(&mut self) -> StoreError {
        for _ in 0..10_000 {
            if let Err(error) = self.submit().await {
                return error;
            }
        }
        panic!("the volume does not fill up");
    }

    async fn assert_readable(&self) {
        let mut found = Vec::new();
        let mut page = Page { after: None, limit: 100 };
        loop {
            let listed = self.store.jobs(&JobFilter::default(), page).await.unwrap();
            found.extend(listed.items.iter().map(|job| job.id));
            page.after = found.last().copied();
            if !listed.more {
                break;
            }
        }
        found.reverse();
        assert_eq!(found, self.done);
    }
}

/// F7. It refuses, reads, uses its reserve, and recovers without a restart.
#[tokio::test]
async fn a_full_volume_refuses_new_work_and_recovers() {
    // As in the product, the reserve is larger than the WAL that a checkpoint may have to copy.
    const RESERVE: u64 = 4 << 20;
    let Some(volume) = Volume::mount("15m") else { return };
    let elsewhere = volume.0.path().join("elsewhere");
    fs::write(&elsewhere, vec![1; 4 << 20]).unwrap();
    let path = volume.0.path().join("data/belfry.db");
    let options = Options { ballast_bytes: RESERVE, ..Options::default() };
    let store = SqliteStore::open(&path, options.clone()).unwrap();
    let ballast = path.with_extension("db.ballast");
    assert_eq!(fs::metadata(&ballast).unwrap().len(), RESERVE);
    let leases = store.acquire(&[ShardId(0)], "a", Duration::from_hours(1)).await.unwrap();
    let mut filler = Filler { store, leases, sampler: Sampler::new(61), done: Vec::new(), low: Vec::new() };

    let error = filler.fill().await;
    assert!(matches!(error, StoreError::Full), "{error:?}");
    assert_eq!(
        fs::metadata(&ballast).unwrap().len(),
        RESERVE / 4 * 3,
        "new work gets a quarter of the reserve"
    );
    let told = filler.low.iter().position(|&low| low).expect("the first to touch the reserve says so");
    assert!(filler.low[told..].iter().all(|&low| low), "and so does each one after it");
    filler.assert_readable().await;
    // The helper thread may still checkpoint the WAL; after the restart of the WAL there is a little more space.
    while filler.store.check().await.is_ok() {
        filler.fill().await;
    }
    let again = filler.fill().await;
    assert!(matches!(again, StoreError::Full), "{again:?}");
    // Running jobs can be recorded as ended, although new work was refused.
    let ended = filler.done[..40].to_vec();
    for id in ended {
        assert!(filler.finish(id).await.unwrap().space_low);
    }

    fs::remove_file(&elsewhere).unwrap();
    filler.submit().await.unwrap();
    filler.store.check().await.unwrap();
    assert_eq!(fs::metadata(&ballast).unwrap().len(), RESERVE, "the reserve was taken again");
    let last = *filler.done.last().unwrap();
    assert!(!filler.finish(last).await.unwrap().space_low);
    filler.assert_readable().await;

    let Filler { store, sampler, done, .. } = filler;
    drop(store);
    let store = SqliteStore::open(&path, options).unwrap();
    Filler { store, leases: Vec::new(), sampler, done, low: Vec::new() }.assert_readable().await;
}

/// F7. A clean stop removes the WAL and its index, and another program uses their space meanwhile.
#[tokio::test]
async fn a_store_that_was_stopped_cleanly_starts_on_a_volume_without_a_free_byte() {
    let Some(volume) = Volume::mount("12m") else { return };
    let path = volume.0.path().join("data/belfry.db");
    let options = Options { ballast_bytes: 4 << 20, ..Options::default() };
    let store = SqliteStore::open(&path, options.clone()).unwrap();
    let leases = store.acquire(&[ShardId(0)], "a", Duration::from_hours(1)).await.unwrap();
    let mut filler = Filler { store, leases, sampler: Sampler::new(63), done: Vec::new(), low: Vec::new() };
    let job = filler.submit().await.unwrap();
    let Filler { store, sampler, done, .. } = filler;
    drop(store);
    let mut elsewhere = fs::File::create(volume.0.path().join("elsewhere")).unwrap();
    while std::io::Write::write_all(&mut elsewhere, &[1; 512]).is_ok() {}

    let store = SqliteStore::open(&path, options).unwrap();
    let leases = store.acquire(&[ShardId(0)], "b", Duration::from_hours(1)).await.unwrap();
    let mut filler = Filler { store, leases, sampler, done, low: Vec::new() };
    filler.assert_readable().await;
    assert!(filler.finish(job).await.unwrap().space_low, "nothing new is to be taken");
}

/// F7. Only reads work, and a process that starts then can still read.
#[tokio::test]
async fn a_store_on_a_full_volume_can_be_opened_and_read() {
    let Some(volume) = Volume::mount("6m") else { return };
    let path = volume.0.path().join("data/belfry.db");
    let options = Options { ballast_bytes: 0, ..Options::default() };
    let store = SqliteStore::open(&path, options.clone()).unwrap();
    let leases = store.acquire(&[ShardId(0)], "a", Duration::from_hours(1)).await.unwrap();
    let mut filler = Filler { store, leases, sampler: Sampler::new(62), done: Vec::new(), low: Vec::new() };
    let error = filler.fill().await;
    assert!(matches!(error, StoreError::Full), "{error:?}");
    let Filler { store, sampler, done, .. } = filler;
    drop(store);
    let store = SqliteStore::open(&path, options).unwrap();
    Filler { store, leases: Vec::new(), sampler, done, low: Vec::new() }.assert_readable().await;
}
