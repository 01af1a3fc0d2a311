//! Rules for elements that running tasks add to the steps of their runs.

use model::record::Change;
use model::run::{BatchKey, ElementBatch, RunStatus};

use super::workflows::Run;
use super::{Fixture, Subject};
use crate::StoreError;

impl<S: Subject> Fixture<S> {
    /// Returns a committed run, and batches to add to it.
    async fn run_and_batches(&mut self, places: &[(u32, u32)]) -> (Run, Vec<ElementBatch>) {
        let mut run = self.run(RunStatus::Running);
        run.batches.clear();
        self.commit(run.changes()).await;
        let key = |&(step, first): &(u32, u32)| BatchKey { run: run.id, step, first };
        let batches = places.iter().map(key).map(|key| self.sampler.element_batch(key)).collect();
        (run, batches)
    }

    async fn add(&mut self, batches: &[ElementBatch]) {
        for batch in batches {
            self.commit(vec![added(batch)]).await;
        }
    }
}

fn added(batch: &ElementBatch) -> Change {
    Change::ElementBatch(Box::new(batch.clone()))
}

/// C4. Ordered by step and first element, whatever the order of the commits; for live and ended runs, also after a
/// reopen.
pub async fn added_elements_are_read_completely_and_in_order<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(101).await;
    let places = [(1, 0), (1, 3), (1, 1_000), (2, 0), (2, 2), (10, 0), (9_999, 99_999)];
    for end in [None, Some(RunStatus::Failed)] {
        let (mut run, mut batches) = scene.run_and_batches(&places).await;
        let other = scene.run_and_batches(&places[..2]).await.1;
        batches.reverse();
        scene.add(&batches).await;
        scene.add(&other).await;
        if let Some(status) = end {
            run.state = scene.sampler.run_state(status);
            scene.commit(vec![run.change(false)]).await;
        }
        batches.reverse();
        assert_eq!(scene.store().element_batches(run.id).await.unwrap(), batches);
        scene = scene.reopen().await;
        assert_eq!(scene.store().element_batches(run.id).await.unwrap(), batches);
        assert_eq!(scene.store().element_batches(other[0].key.run).await.unwrap(), other);
    }
    let unknown = scene.run(RunStatus::Running).id;
    assert_eq!(scene.store().element_batches(unknown).await.unwrap(), []);
}

/// C4, D5. After the run and before its steps; not for a run that has ended.
pub async fn added_elements_are_loaded_while_their_run_is_live<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(102).await;
    let (mut run, batches) = scene.run_and_batches(&[(1, 0), (1, 3), (2, 0)]).await;
    assert_eq!(scene.live().await, run.rows());
    for batch in batches {
        scene.add(std::slice::from_ref(&batch)).await;
        run.batches.push(batch);
        assert_eq!(scene.live().await, run.rows());
    }
    let mut scene = scene.reopen().await;
    assert_eq!(scene.live().await, run.rows());
    run.state = scene.sampler.run_state(RunStatus::Succeeded);
    scene.commit(vec![run.change(false)]).await;
    assert_eq!(scene.live().await, []);
    assert_eq!(scene.store().element_batches(run.id).await.unwrap(), run.batches);
}

/// C4, D5. An engine that adds elements at a used position no longer has the record of them.
pub async fn elements_are_added_once_at_an_index<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(103).await;
    let (run, batches) = scene.run_and_batches(&[(1, 0), (1, 3)]).await;
    scene.add(&batches).await;
    let again = scene.sampler.element_batch(batches[1].key);
    let result = scene.try_commit(vec![added(&again)]).await;
    assert!(matches!(result, Err(StoreError::Fatal { .. })), "{result:?}");
    let scene = scene.reopen().await;
    assert_eq!(scene.store().element_batches(run.id).await.unwrap(), batches);
}

/// C4, G5.
pub async fn elements_of_a_shard_without_a_lease_are_refused<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(104).await;
    let (run, batches) = scene.run_and_batches(&[(1, 0)]).await;
    let shard = run.id.shard();
    let leases: Vec<_> = scene.leases.iter().copied().filter(|lease| lease.shard != shard).collect();
    let batch = scene.batch(vec![added(&batches[0])], Vec::new());
    let result = scene.store().commit(&leases, batch).await;
    assert!(matches!(result, Err(StoreError::Fenced { shard: found }) if found == shard), "{result:?}");
    assert_eq!(scene.store().element_batches(run.id).await.unwrap(), []);
}

/// C4, G3. Whatever the number of batches, for many small runs and a large one; those of other runs stay.
pub async fn added_elements_are_deleted_with_their_run<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(105).await;
    let (live, of_live) = scene.run_and_batches(&[(1, 0), (2, 0)]).await;
    scene.add(&of_live).await;
    let (mut deleted, mut kept) = (vec![live.id], Vec::new());
    for batches in [1_100].into_iter().chain((0..24).map(|n| n % 8)) {
        for goes in [true, false] {
            let mut run = scene.run(RunStatus::Failed);
            let sample = scene.sampler.element_batch(BatchKey { run: run.id, step: 1, first: 0 });
            let batch = |first| ElementBatch { key: BatchKey { first, ..sample.key }, ..sample.clone() };
            // Runs that stay need only a few batches.
            run.batches = (0..batches).take(if goes { 1_100 } else { 3 }).map(batch).collect();
            scene.commit(run.changes()).await;
            if goes { deleted.push(run.id) } else { kept.push(run) }
        }
    }
    scene.store().delete_runs(&deleted).await.unwrap();
    // A second call changes nothing.
    scene.store().delete_runs(&deleted).await.unwrap();
    let scene = scene.reopen().await;
    for gone in &deleted[1..] {
        assert_eq!(scene.store().element_batches(*gone).await.unwrap(), []);
        assert_eq!(scene.store().run_steps(*gone).await.unwrap(), []);
    }
    for run in kept {
        assert_eq!(scene.store().element_batches(run.id).await.unwrap(), run.batches);
    }
    assert_eq!(scene.store().element_batches(live.id).await.unwrap(), of_live);
}
