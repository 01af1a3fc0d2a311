//! After which failures a standby cannot take over, and after which it can. The changelog says what a test lets it say.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use model::changelog::{LiveKey, Touched};
use model::id::Epoch;
use model::record::{HistoryEntry, JobHead, JobState};
use model::{Cause, Fence, JobId, JobSpec, ShardId};
use store::Loaded;
use store::changelog::Since;
use store::faulty::FaultyStore;
use store::sqlite::{Options, SqliteStore};

use super::*;
use crate::ServerConfig;
use crate::members::Members;
use crate::metrics::Metrics;

const BEGIN: Place = Place { commit: 7, epoch: Epoch(1) };

/// What it says first; afterwards that nothing happened.
type Answers = VecDeque<Result<Option<Since>, StoreError>>;

#[derive(Debug, Default)]
struct Told {
    rows: Vec<LiveRow>,
    damaged: u64,
    answers: Mutex<Answers>,
    reread: Vec<LiveRow>,
    unreadable: u64,
    preloads: AtomicUsize,
}

fn quiet() -> Since {
    Since { touched: Vec::new(), end: BEGIN, whole: true, now: Timestamp::default() }
}

fn away() -> StoreError {
    StoreError::Unavailable { source: "a test says so".into() }
}

#[async_trait]
impl Changelog for Told {
    async fn end(&self) -> Result<Place, StoreError> {
        Ok(BEGIN)
    }

    async fn since(&self, _place: Place) -> Result<Option<Since>, StoreError> {
        self.answers.lock().unwrap().pop_front().unwrap_or_else(|| Ok(Some(quiet())))
    }

    async fn preload(&self, rows: mpsc::Sender<Vec<LiveRow>>) -> Result<Loaded, StoreError> {
        self.preloads.fetch_add(1, Ordering::Relaxed);
        rows.send(self.rows.clone()).await.unwrap();
        let rows = self.rows.len() as u64 + self.damaged;
        Ok(Loaded { now: Timestamp::default(), rows, quarantined: self.damaged })
    }

    async fn live_rows(&self, _keys: &[LiveKey]) -> Result<Reread, StoreError> {
        Ok(Reread { rows: self.reread.clone(), unreadable: self.unreadable })
    }

    async fn trim(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

struct Scene {
    store: FaultyStore<SqliteStore>,
    config: NodeConfig,
    _folder: tempfile::TempDir,
}

impl Scene {
    /// Over a store without any job.
    fn of(told: Told) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = || SqliteStore::open(folder.path().join("db"), Options::default()).unwrap();
        let config = ServerConfig::new(folder.path());
        let store = FaultyStore::new(store()).with_changelog(told);
        let elsewhere = SqliteStore::open(folder.path().join("members"), Options::default()).unwrap();
        let members = Members::new(std::sync::Arc::new(elsewhere), &config, None);
        let config = NodeConfig::new(&config, members, Metrics::new());
        Self { store, config, _folder: folder }
    }

    async fn read(&self) -> Result<Standby, Lost> {
        Standby::read(&self.store, self.store.changelog().unwrap(), &self.config).await
    }

    /// Whether a standby that has read everything can take over.
    async fn takes_over(&self) -> bool {
        let leases = [Lease { shard: ShardId(0), epoch: Epoch(2) }];
        self.read().await.unwrap().take_over(&self.store, &leases).await.is_some()
    }

    async fn catches_up(&self) -> Result<(), Lost> {
        self.read().await?.catch_up(self.store.changelog().unwrap()).await
    }
}

fn job(id: u128) -> LiveRow {
    let spec = JobSpec::command(["true"]);
    let body = spec.compact_json().into();
    let head = JobHead { spec: std::sync::Arc::new(spec), body, retry_of: None, origin: None, step: None };
    let at = Timestamp::default();
    let waits = HistoryEntry {
        at,
        from: None,
        to: JobStatus::Waiting,
        cause: Cause::Submitted,
        execution: None,
        detail: None,
    };
    let state = JobState {
        status: JobStatus::Waiting,
        version: 1,
        updated_at: at,
        due_at: at,
        queued_at: Some(at),
        started_at: None,
        finished_at: None,
        executions: 0,
        run_failures: 0,
        start_failures: 0,
        fence: Fence::default(),
        execution: None,
        worker: None,
        cancel_requested_at: None,
        outcome: None,
        history: vec![waits],
        expires_at: None,
        started: Default::default(),
        checkpoint: None,
    };
    LiveRow::Job { id: JobId::from_bits(id), head, state: Box::new(state) }
}

fn touched(job: u128) -> Since {
    Since { touched: vec![Touched::Rows(LiveKey::Job(JobId::from_bits(job)))], ..quiet() }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_moment_costs_nothing() {
    // The first two are for the reading.
    let answers = [Ok(Some(quiet())), Ok(Some(quiet())), Err(away()), Err(away())];
    let told = Told { answers: Mutex::new(answers.into()), ..Told::default() };
    assert!(Scene::of(told).takes_over().await);
}

#[tokio::test(start_paused = true)]
async fn what_counts_other_jobs_than_the_store_does_not_decide() {
    assert!(!Scene::of(Told { rows: vec![job(1)], ..Told::default() }).takes_over().await);
    assert!(Scene::of(Told::default()).takes_over().await);
}

#[tokio::test(start_paused = true)]
async fn rows_that_cannot_be_read_are_not_left_out() {
    let told = Told { damaged: 2, ..Told::default() };
    assert!(matches!(Scene::of(told).read().await, Err(Lost::Damaged(2))));
    let answers = Mutex::new([Ok(Some(quiet())), Ok(Some(touched(1)))].into());
    let told = Told { rows: vec![job(1)], unreadable: 1, answers, ..Told::default() };
    assert!(matches!(Scene::of(told).catches_up().await, Err(Lost::Damaged(1))));
}

#[tokio::test(start_paused = true)]
async fn rows_that_go_on_contradicting_each_other_are_not_followed() {
    let LiveRow::Job { id, head, mut state } = job(1) else { unreachable!() };
    state.history.clear();
    let torn = LiveRow::Job { id, head, state };
    let told = Told { rows: vec![torn.clone()], reread: vec![torn], ..Told::default() };
    assert!(matches!(Scene::of(told).read().await, Err(Lost::Inconsistent(1))));
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_writes_no_changelog_is_not_followed_and_its_rows_are_not_read() {
    let told = Told { answers: Mutex::new([Ok(None)].into()), ..Told::default() };
    let scene = Scene::of(told);
    assert!(matches!(scene.read().await, Err(Lost::OutOfReach)));
}
