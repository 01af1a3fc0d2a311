//! Rules for checkpoints.

use model::checkpoint::CheckpointRecord;
use model::record::Change;
use model::{JobStatus, Timestamp};

use super::{Fixture, Job, Subject};
use crate::StoreError;

impl<S: Subject> Fixture<S> {
    /// Commits a checkpoint of the job; returns the expected record.
    async fn save(&mut self, job: &mut Job, new: bool) -> CheckpointRecord {
        let (known, record) = self.sampler.checkpoint_of(job.id);
        job.state.checkpoint = Some(Box::new(known));
        self.commit(vec![Change::Checkpoint(Box::new(record.clone())), job.change(new)]).await;
        record
    }
}

/// D4.
pub async fn the_last_checkpoint_of_a_job_is_kept_with_every_field<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(91).await;
    let mut jobs: Vec<_> = (0..12).map(|_| scene.job(JobStatus::Running)).collect();
    let mut expected = Vec::new();
    for job in &mut jobs {
        scene.save(job, true).await;
        expected.push(scene.save(job, false).await);
    }
    let without = scene.job(JobStatus::Running);
    scene.commit(vec![without.change(true)]).await;
    let scene = scene.reopen().await;
    for (job, expected) in jobs.iter().zip(expected) {
        assert_eq!(scene.store().checkpoint(job.id).await.unwrap(), Some(expected));
        assert_eq!(scene.store().job(job.id).await.unwrap().unwrap().state, job.state);
    }
    assert_eq!(scene.store().checkpoint(without.id).await.unwrap(), None);
    assert_eq!(scene.load().await.0.quarantined, 0);
}

/// D4, G3. It exists exactly as long as its job.
pub async fn a_checkpoint_is_deleted_with_its_job<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(92).await;
    let (mut ended, mut live) = (scene.job(JobStatus::Running), scene.job(JobStatus::Running));
    let of_ended = scene.save(&mut ended, true).await;
    let of_live = scene.save(&mut live, true).await;
    let mut over = ended.to(JobStatus::Failed, &mut scene.sampler);
    over.state.expires_at = Some(Timestamp::from_millis(100));
    scene.commit(vec![over.change(false)]).await;
    assert_eq!(scene.store().checkpoint(ended.id).await.unwrap(), Some(of_ended));
    // A live job is not deleted, even if a caller requests it.
    scene.store().delete_jobs(&[ended.id, live.id]).await.unwrap();
    assert_eq!(scene.store().checkpoint(ended.id).await.unwrap(), None);
    assert_eq!(scene.store().checkpoint(live.id).await.unwrap(), Some(of_live));
}

/// D4, G5.
pub async fn a_checkpoint_of_a_shard_without_a_lease_is_refused<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(93).await;
    let job = scene.job(JobStatus::Running);
    scene.commit(vec![job.change(true)]).await;
    let (_, record) = scene.sampler.checkpoint_of(job.id);
    let shard = job.id.shard();
    let leases: Vec<_> = scene.leases.iter().copied().filter(|lease| lease.shard != shard).collect();
    let batch = scene.batch(vec![Change::Checkpoint(Box::new(record))], Vec::new());
    let result = scene.store().commit(&leases, batch).await;
    assert!(matches!(result, Err(StoreError::Fenced { shard: found }) if found == shard), "{result:?}");
    assert_eq!(scene.store().checkpoint(job.id).await.unwrap(), None);
}
