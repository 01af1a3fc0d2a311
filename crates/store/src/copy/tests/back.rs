//! Copies out of a database.

use super::*;
use crate::copy::copy_back;
use crate::{Commits as _, Leases as _};

impl Scene {
    /// Creates a database that servers have used and left.
    async fn database_left() -> Self {
        let scene = Self::filled().await;
        scene.copy(&mut |_| {}).await.unwrap();
        let store = scene.target().await.unwrap();
        let leases = store.acquire(&SHARDS, "server", HOUR).await.unwrap();
        let mut sampler = Sampler::new(78);
        for _ in 0..3 {
            let changes = vec![Change::Worker(Arc::new(sampler.worker()))];
            let events = (0..4).map(|_| sampler.event()).collect();
            let batch = Batch { now: sampler.now(), changes, events, ..Batch::default() };
            store.commit(&leases, Arc::new(batch)).await.unwrap();
        }
        store.release(&leases).await.unwrap();
        scene
    }

    fn back_at(&self) -> PathBuf {
        self.folder.path().join("back").join("belfry.db")
    }

    fn back(&self) -> Result<SqliteStore, StoreError> {
        let options = sqlite::Options { ballast_bytes: 0, ..Default::default() };
        SqliteStore::open(self.back_at(), options)
    }

    async fn copy_back(&self, observe: &mut (dyn FnMut(Progress) + Send)) -> Result<Report, CopyError> {
        let options = Options { target: target_options(), chunk_rows: 7 };
        copy_back(&self.database.url(), &self.back_at(), options, observe).await
    }

    /// Returns whether a file exists that a server could open as a store.
    fn is_anything_back(&self) -> bool {
        let there = std::fs::read_dir(self.back_at().parent().unwrap()).unwrap();
        there
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .any(|name| !name.ends_with(".lock"))
    }
}

/// G4, D7.
#[tokio::test]
async fn the_file_answers_every_query_like_the_database() {
    let scene = Scene::database_left().await;
    let mut told = Vec::new();
    let report = scene.copy_back(&mut |progress| told.push(progress)).await.unwrap();
    assert_eq!(report.tables.len(), TABLES.len());
    assert!(
        report.tables.iter().all(|table| table.is_same() && table.source.rows > 0),
        "{:?}",
        report.tables
    );
    let last = |phase| told.iter().rfind(|progress| progress.phase == phase).unwrap();
    for phase in [Phase::Copying, Phase::Verifying] {
        assert_eq!((last(phase).rows, last(phase).of), (report.copied, report.copied));
    }
    let (there, here) = (scene.target().await.unwrap(), scene.back().unwrap());
    assert_eq!(answers(&here).await, answers(&there).await);
}

/// Fences are derived from epochs, so the epochs of a server on the file continue those of the database.
#[tokio::test]
async fn epochs_continue_after_those_of_the_database() {
    let scene = Scene::database_left().await;
    scene.copy_back(&mut |_| {}).await.unwrap();
    let there = scene.target().await.unwrap().acquire(&SHARDS, "there", HOUR).await.unwrap();
    let here = scene.back().unwrap().acquire(&SHARDS, "here", HOUR).await.unwrap();
    let epochs = |leases: &[model::record::Lease]| leases.iter().map(|lease| lease.epoch).collect::<Vec<_>>();
    assert_eq!(epochs(&here), epochs(&there));
    assert_eq!(here.len(), SHARDS.len());
}

#[tokio::test]
async fn an_interrupted_copy_leaves_no_file_and_starts_again() {
    let scene = Scene::database_left().await;
    {
        let told = AtomicUsize::new(0);
        let mut observe = |_: Progress| {
            told.fetch_add(1, Ordering::Relaxed);
        };
        let mut copying = pin!(scene.copy_back(&mut observe));
        let end = std::future::poll_fn(|context| match copying.as_mut().poll(context) {
            Poll::Pending if told.load(Ordering::Relaxed) >= 9 => Poll::Ready(None),
            other => other.map(Some),
        });
        assert!(end.await.is_none(), "there are fewer than 9 pages");
    }
    assert!(!scene.is_anything_back());
    scene.copy_back(&mut |_| {}).await.unwrap();
    scene.back().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_in_use_is_refused() {
    let scene = Scene::database_left().await;
    let store = scene.target().await.unwrap();
    let leases = store.acquire(&SHARDS, "bob", HOUR).await.unwrap();
    let error = scene.copy_back(&mut |_| {}).await.unwrap_err();
    assert!(matches!(&error, CopyError::ServedSource { name } if name == "bob"), "{error:?}");
    store.release(&leases).await.unwrap();

    // A server that starts and stops during the copy.
    let (mut pending, runtime) = (Some(store), tokio::runtime::Handle::current());
    let mut observe = |_: Progress| {
        if let Some(store) = pending.take() {
            let runtime = runtime.clone();
            let passing = std::thread::spawn(move || {
                runtime.block_on(async {
                    let leases = store.acquire(&SHARDS, "passing", HOUR).await.unwrap();
                    store.release(&leases).await.unwrap();
                });
            });
            tokio::task::block_in_place(|| passing.join().unwrap());
        }
    };
    let error = scene.copy_back(&mut observe).await.unwrap_err();
    assert!(matches!(error, CopyError::Changed), "{error:?}");
    assert!(!scene.is_anything_back());
}

#[tokio::test]
async fn a_database_without_a_store_is_refused_and_left_alone() {
    let scene = Scene::new();
    let error = scene.copy_back(&mut |_| {}).await.unwrap_err();
    assert!(matches!(error, CopyError::EmptySource), "{error:?}");
    // If the tables were created, there would now be a store, although a new one.
    let error = scene.copy_back(&mut |_| {}).await.unwrap_err();
    assert!(matches!(error, CopyError::EmptySource), "{error:?}");
}

#[tokio::test]
async fn an_unfinished_copy_is_no_source() {
    let scene = Scene::filled().await;
    scene.copy_chunks(3).await;
    let error = scene.copy_back(&mut |_| {}).await.unwrap_err();
    assert!(matches!(error, CopyError::UnfinishedSource { .. }), "{error:?}");
}

#[tokio::test]
async fn a_folder_with_a_store_or_its_traces_is_refused_and_left_alone() {
    let scene = Scene::database_left().await;
    std::fs::create_dir(scene.back_at().parent().unwrap()).unwrap();
    for name in ["belfry.db", "belfry.db-wal", "belfry.db.position"] {
        let there = scene.back_at().with_file_name(name);
        std::fs::write(&there, "not ours").unwrap();
        let error = scene.copy_back(&mut |_| {}).await.unwrap_err();
        assert!(matches!(&error, CopyError::Exists { path } if *path == there), "{error:?}");
        assert_eq!(std::fs::read_to_string(&there).unwrap(), "not ours");
        std::fs::remove_file(&there).unwrap();
    }
    scene.copy_back(&mut |_| {}).await.unwrap();
}

/// D7.
#[tokio::test]
async fn the_hash_detects_a_difference_and_the_file_is_removed() {
    let scene = Scene::database_left().await;
    let mut pending = Some("UPDATE access SET body = 'mallory' WHERE key = 'a'");
    let mut observe = |progress: Progress| {
        if progress.phase == Phase::Verifying
            && let Some(tamper) = pending.take()
        {
            scene.database.execute(tamper);
        }
    };
    // The first table is copied by then; the changed one is not.
    let error = scene.copy_back(&mut observe).await.unwrap_err();
    assert!(matches!(error, CopyError::Differs { table: "access", .. }), "{error:?}");
    assert!(!scene.is_anything_back());
}
