//! Definitions that are deleted while runs are started with them.

use model::run::{RunHead, RunStatus};
use model::workflow::{Definition, StepSpec};
use model::{JobSpec, RunId, WorkflowSpec};

use super::*;
use crate::{Commits as _, Housekeeping as _, Reads as _};

/// Store with an ended run of each of two definitions, and the server that starts another run of the first one.
struct Runs {
    subject: InDatabase,
    leases: Vec<Lease>,
    sampler: Sampler,
    ended: Vec<RunId>,
    head: Arc<RunHead>,
}

impl Runs {
    async fn new() -> Self {
        let subject = InDatabase::make().await;
        let leases = subject.acquire().await;
        let mut sampler = Sampler::new(9);
        let mut heads: Vec<_> = ["first", "second"]
            .map(|name| {
                let steps = vec![StepSpec::job("a", JobSpec::command(["true"]))];
                let definition = Definition::of(WorkflowSpec::new(name, steps));
                let body = definition.to_json().into();
                Arc::new(RunHead { body, definition: Arc::new(definition), ..sampler.run_head() })
            })
            .into();
        heads.sort_by_key(|head| crate::codec::definition_hash(&head.body));
        let head = Arc::clone(&heads[0]);
        let mut runs = Self { subject, leases, sampler, ended: Vec::new(), head };
        for head in heads {
            let (id, batch) = runs.start(&head, RunStatus::Succeeded);
            runs.subject.store.commit(&runs.leases, batch).await.unwrap();
            runs.ended.push(id);
        }
        runs
    }

    fn start(&mut self, head: &Arc<RunHead>, status: RunStatus) -> (RunId, Arc<Batch>) {
        let id = self.sampler.run_id(ShardId(1));
        let state = Box::new(self.sampler.run_state(status));
        let changes = vec![Change::Run { id, head: Some(Arc::clone(head)), state }];
        let events = vec![self.sampler.event()];
        (id, Arc::new(Batch { now: self.sampler.now(), changes, events, ..Batch::default() }))
    }

    /// Checks that the run can be read and loaded, and that the other definition is deleted.
    async fn assert_started(&self, id: RunId) {
        let run = self.subject.store.run(id).await.unwrap().unwrap();
        assert_eq!(run.head.body, self.head.body);
        let (sender, mut receiver) = tokio::sync::mpsc::channel(8);
        let loaded = self.subject.store.load(&self.leases, sender).await.unwrap();
        assert_eq!((loaded.rows, loaded.quarantined), (1, 0));
        assert!(receiver.recv().await.is_some());
        let definitions = self.subject.database.execute("SELECT count(*) FROM run_definitions");
        assert_eq!(definitions, [Some("1".to_owned())]);
    }
}

/// C1, G5. The last run of a definition is deleted between the start of another one and its commit.
#[tokio::test]
async fn a_definition_is_kept_for_a_run_that_is_starting() {
    let mut runs = Runs::new().await;
    let head = Arc::clone(&runs.head);
    let (id, batch) = runs.start(&head, RunStatus::Running);
    let database = Arc::clone(&runs.subject.database);
    let intruder = blocking_session(&database).await;
    // The positions of events are assigned last.
    intruder.batch_execute("BEGIN; SELECT 1 FROM meta FOR UPDATE").await.unwrap();
    let start = runs.subject.store.commit(&runs.leases, batch);
    let delete = async {
        until_waiting(&database, 1, WAITS_FOR_LOCK).await;
        let delete = runs.subject.store.delete_runs(&runs.ended);
        let both_wait = async {
            until_waiting(&database, 2, WAITS_FOR_LOCK).await;
            intruder.batch_execute("ROLLBACK").await.unwrap();
        };
        tokio::join!(delete, both_wait).0
    };
    let (started, deleted) = tokio::join!(start, delete);
    started.unwrap();
    deleted.unwrap();
    runs.assert_started(id).await;
}

/// C1, G5. In the opposite order.
#[tokio::test]
async fn a_starting_run_inserts_a_deleted_definition_again() {
    let mut runs = Runs::new().await;
    let head = Arc::clone(&runs.head);
    let (id, batch) = runs.start(&head, RunStatus::Running);
    let database = Arc::clone(&runs.subject.database);
    let intruder = blocking_session(&database).await;
    // The deletion has locked the first definition, and then waits for the second.
    let second = "BEGIN; SELECT 1 FROM run_definitions WHERE hash = (SELECT max(hash::TEXT)::UUID
        FROM run_definitions) FOR UPDATE";
    intruder.batch_execute(second).await.unwrap();
    let delete = runs.subject.store.delete_runs(&runs.ended);
    let start = async {
        until_waiting(&database, 1, WAITS_FOR_LOCK).await;
        let start = runs.subject.store.commit(&runs.leases, batch);
        let both_wait = async {
            until_waiting(&database, 2, WAITS_FOR_LOCK).await;
            intruder.batch_execute("ROLLBACK").await.unwrap();
        };
        tokio::join!(start, both_wait).0
    };
    let (deleted, started) = tokio::join!(delete, start);
    deleted.unwrap();
    started.unwrap();
    runs.assert_started(id).await;
}
