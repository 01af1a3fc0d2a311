//! Replicas stay equal, keep the position of their log with their rows, and refuse what breaks an invariant.

use std::path::{Path, PathBuf};

use model::changelog::{LiveChange, LiveKey};
use model::record::{Batch, Change, ExecutionRecord, Lease};
use model::{ExecutionStatus, JobId, JobStatus, ServerId, ShardId};

use super::determinism::commands;
use super::failing_disk::{Disk, DiskCall};
use super::*;
use crate::changelog::Changelog as _;
use crate::command::{Command, Content, Entry, GroupBuilder, LogPosition, Refused, Reply, Update};
use crate::pace::Pace;
use crate::replica::{Replica, ReplicaOptions, read_applied};
use crate::sqlite;
use crate::suite::dump::dump;
use crate::suite::sample::Sampler;
use crate::{Commits as _, Leases as _, Reads as _, StoreError};

const SHARD: ShardId = ShardId(0);

/// A log that one server feeds to its replica.
struct OneServer {
    folder: TempDir,
    replica: Replica,
    next: LogPosition,
}

fn options() -> ReplicaOptions {
    let Options { shards, readers, query_limit, clock, .. } = Options::default();
    ReplicaOptions { shards, readers, query_limit, ballast_bytes: 0, clock }
}

impl OneServer {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let replica = Replica::open(&folder.path().join("state.db"), options()).unwrap();
        assert_eq!(replica.applied().borrow().applied, None);
        Self { folder, replica, next: LogPosition { term: 1, node: 7, index: 1 } }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state.db")
    }

    fn entry(&mut self, commands: &[Command]) -> Entry {
        let mut group = GroupBuilder::default();
        commands.iter().for_each(|command| group.push(command).unwrap());
        let position = self.next;
        self.next.index += 1;
        Entry { position, content: Content::Group(group.finish().into()) }
    }

    /// Applies commands as one entry.
    async fn apply(&mut self, commands: &[Command]) -> Vec<Result<Reply, Refused>> {
        let entry = self.entry(commands);
        self.replica.apply(vec![entry]).await.unwrap().remove(0)
    }

    async fn take(&mut self, shards: &[ShardId]) -> (Vec<Lease>, bool) {
        let (now, until) = (Timestamp::from_micros(1), Timestamp::from_micros(2));
        let take = Update::TakeShards { shards: shards.to_vec(), owner: "one".into(), now, until };
        match self.apply(&[take.into()]).await.remove(0) {
            Ok(Reply::Taken { leases, was_owned }) => (leases, was_owned),
            other => panic!("expected leases, found {other:?}"),
        }
    }

    fn change_leader(&mut self) {
        self.next.term += 1;
    }

    fn reopen(self) -> Self {
        let Self { folder, replica, next } = self;
        drop(replica);
        let replica = Replica::open(&folder.path().join("state.db"), options()).unwrap();
        Self { folder, replica, next }
    }
}

/// Takes the shard of a store that a server changes without a log, and returns its writer.
async fn taken(store: &OnDisk) -> &sqlite::writer::Writer {
    let (now, until) = (Timestamp::from_micros(1), Timestamp::from_micros(2));
    let take = Update::TakeShards { shards: vec![SHARD], owner: "one".into(), now, until };
    let writer = &store.store.as_ref().unwrap().writer;
    writer.leases(take).await.unwrap();
    writer
}

fn new_job(sampler: &mut Sampler) -> (JobId, Batch) {
    let id = sampler.job_id(SHARD);
    let (head, state) = (Some(sampler.head()), Box::new(sampler.state(JobStatus::Running)));
    let changes = vec![Change::Job { id, new: true, head, state }];
    (id, Batch { now: sampler.now(), changes, events: Vec::new(), statistics: Default::default() })
}

fn commit(leases: &[Lease], batch: Batch) -> Command {
    Command::commit(leases, Arc::new(batch))
}

async fn job_exists(replica: &Replica, id: JobId) -> bool {
    replica.store().await.unwrap().job(id).await.unwrap().is_some()
}

/// A store that its owner changes, and replicas that apply the same commands in entries of one and of several commands.
#[tokio::test]
async fn a_replica_has_the_same_rows_as_a_store() {
    for seed in 0..4 {
        let store = OnDisk::new();
        let (mut single, mut grouped) = (OneServer::new(), OneServer::new());
        let (now, until) = (Timestamp::from_micros(1), Timestamp::from_micros(2));
        let take = Update::TakeShards { shards: vec![SHARD], owner: "one".into(), now, until };
        let writer = &store.store.as_ref().unwrap().writer;
        let leases = writer.leases(take.clone()).await.unwrap();
        single.apply(&[take.clone().into()]).await;
        grouped.apply(&[take.into()]).await;
        let commands = commands(seed, &leases);
        let mut answers = Vec::new();
        for command in &commands {
            writer.call(super::super::operation::Operation::Command(command.clone())).await.unwrap();
            answers.extend(single.apply(std::slice::from_ref(command)).await);
        }
        let mut entries: Vec<_> = commands.chunks(7).map(|chunk| grouped.entry(chunk)).collect();
        let behind = entries.split_off(entries.len() / 2);
        let mut of_groups = grouped.replica.apply(entries).await.unwrap();
        of_groups.extend(grouped.replica.apply(behind).await.unwrap());
        assert_eq!(of_groups.concat(), answers);
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        let expected = dump(&store.path());
        assert!(expected.len() > 100);
        assert_eq!(dump(&single.path()), expected);
        assert_eq!(dump(&grouped.path()), expected);
    }
}

/// Commits of jobs that are added, change, run once or several times, and end, often within moments.
fn lives_of_jobs(sampler: &mut Sampler, leases: &[Lease]) -> Vec<Command> {
    struct Live {
        id: JobId,
        execution: Option<ExecutionRecord>,
    }
    let (mut live, mut ended, mut commands) = (Vec::<Live>::new(), Vec::new(), Vec::new());
    for round in 0..60 {
        // The batch has at most one change of each row.
        let mut changes = Vec::new();
        live.retain_mut(|job| {
            let now_ended = match (&mut job.execution, sampler.below(4)) {
                (_, 0) => return true,
                (Some(execution), 1 | 2) => {
                    let is_over = sampler.coin();
                    execution.status =
                        if is_over { ExecutionStatus::Failed } else { ExecutionStatus::Running };
                    let record = Box::new(execution.clone());
                    changes.push(Change::Execution { new: false, record });
                    if is_over {
                        let next = execution.number + 1;
                        // It is retried in the same batch, or has ended.
                        job.execution = None;
                        if sampler.coin() {
                            let next = sampler.execution(job.id, next, ExecutionStatus::Running);
                            changes.push(Change::Execution { new: true, record: Box::new(next.clone()) });
                            job.execution = Some(next);
                        }
                    }
                    job.execution.is_none()
                }
                (None, 1 | 2) => {
                    let first = sampler.execution(job.id, 1, ExecutionStatus::Running);
                    changes.push(Change::Execution { new: true, record: Box::new(first.clone()) });
                    job.execution = Some(first);
                    false
                }
                _ => false,
            };
            let status = if now_ended { sampler.final_status() } else { sampler.live_status() };
            let head = (sampler.below(4) == 0).then(|| sampler.head());
            changes.push(Change::Job {
                id: job.id,
                new: false,
                head,
                state: Box::new(sampler.state(status)),
            });
            if now_ended {
                ended.push(job.id);
            }
            !now_ended
        });
        for _ in 0..sampler.below(3) {
            let id = sampler.job_id(SHARD);
            let (head, status) = (Some(sampler.head()), sampler.live_status());
            changes.push(Change::Job { id, new: true, head, state: Box::new(sampler.state(status)) });
            live.push(Live { id, execution: None });
        }
        let batch = Batch { now: sampler.now(), changes, events: Vec::new(), statistics: Default::default() };
        commands.push(commit(leases, batch));
        if round % 16 == 15 {
            commands.push(Update::DeleteJobs(std::mem::take(&mut ended)).into());
        }
    }
    commands
}

/// A transaction writes the last state of a job, and the rows are those of a store that wrote each one.
#[tokio::test]
async fn jobs_that_change_several_times_in_a_transaction_are_written_as_by_a_store() {
    for seed in 0..16 {
        let (store, mut server) = (OnDisk::new(), OneServer::new());
        let (leases, _) = server.take(&[SHARD]).await;
        let writer = taken(&store).await;
        let mut sampler = Sampler::new(seed);
        let commands = lives_of_jobs(&mut sampler, &leases);
        for command in &commands {
            writer.call(super::super::operation::Operation::Command(command.clone())).await.unwrap();
        }
        let mut rest = &commands[..];
        while !rest.is_empty() {
            let count = rest.len().min(1 + sampler.below(40) as usize);
            let (first, behind) = rest.split_at(count);
            rest = behind;
            let entries = first.chunks(3).map(|chunk| server.entry(chunk)).collect();
            let answers = server.replica.apply(entries).await.unwrap().concat();
            assert!(answers.iter().all(Result::is_ok), "seed {seed}: {answers:?}");
        }
        let expected = dump(&store.path());
        assert!(expected.len() > 30, "found only {} rows", expected.len());
        assert_eq!(dump(&server.path()), expected, "seed {seed}");
    }
}

#[tokio::test]
async fn a_change_of_an_ended_or_unknown_row_is_refused() {
    let (mut server, mut sampler) = (OneServer::new(), Sampler::new(1));
    let batch = |sampler: &mut Sampler, changes: Vec<Change>| Batch {
        now: sampler.now(),
        changes,
        events: Vec::new(),
        statistics: Default::default(),
    };
    // In an earlier transaction, or in the same one.
    for is_written in [false, true] {
        let (id, new) = new_job(&mut sampler);
        let job = |sampler: &mut Sampler, new: bool, status: JobStatus| {
            let head = new.then(|| sampler.head());
            Change::Job { id, new, head, state: Box::new(sampler.state(status)) }
        };
        let mut execution = sampler.execution(id, 1, ExecutionStatus::Running);
        let started = Change::Execution { new: true, record: Box::new(execution.clone()) };
        execution.status = ExecutionStatus::Succeeded;
        let over = Change::Execution { new: false, record: Box::new(execution.clone()) };
        let end = vec![over.clone(), job(&mut sampler, false, JobStatus::Succeeded)];
        let of_another = ExecutionRecord { number: 2, ..execution };
        let wrong = [
            vec![Change::Execution { new: false, record: Box::new(of_another) }],
            vec![over],
            vec![job(&mut sampler, false, JobStatus::Running)],
        ];
        for (number, wrong) in wrong.into_iter().enumerate() {
            let (leases, _) = server.take(&[SHARD]).await;
            let before = vec![
                commit(&leases, new.clone()),
                commit(&leases, batch(&mut sampler, vec![started.clone()])),
                commit(&leases, batch(&mut sampler, end.clone())),
            ];
            let wrong = commit(&leases, batch(&mut sampler, wrong));
            let mut all: Vec<_> = before.into_iter().chain([wrong]).collect();
            if is_written {
                let last = all.split_off(3);
                server.apply(&all).await;
                all = last;
            }
            let answers = server.apply(&all).await;
            let last = answers.last().unwrap();
            assert!(matches!(last, Err(Refused::Broken(_))), "wrong change {number}: {answers:?}");
            server.apply(&[Update::DeleteJobs(vec![id]).into()]).await;
            assert!(!job_exists(&server.replica, id).await);
        }
    }
}

/// Commits of which some break an invariant, and updates between them: duplicates, other fences, changes of what has ended.
fn lives_with_errors(sampler: &mut Sampler, leases: &[Lease]) -> Vec<Command> {
    let jobs: Vec<_> = (0..3).map(|_| sampler.job_id(SHARD)).collect();
    let numbers = 1..=2_u32;
    let executions: Vec<_> = jobs
        .iter()
        .flat_map(|job| numbers.clone().map(|number| (*job, number)))
        .chain([(jobs[0], 1)])
        .map(|(job, number)| sampler.execution(job, number, ExecutionStatus::Running))
        .collect();
    let mut commands = Vec::new();
    for _ in 0..40 {
        // Often a row is added and ends at once.
        let (new, ends_at_once) = (sampler.below(3) > 0, sampler.coin());
        let mut push = |sampler: &mut Sampler, change: Change| {
            let (now, changes) = (sampler.now(), vec![change]);
            commands.push(commit(
                leases,
                Batch { now, changes, events: Vec::new(), statistics: Default::default() },
            ));
        };
        if sampler.coin() {
            let id = jobs[sampler.below(3) as usize];
            let head = (new || sampler.coin()).then(|| sampler.head());
            let status = if sampler.coin() { sampler.final_status() } else { sampler.live_status() };
            let state = Box::new(sampler.state(status));
            push(sampler, Change::Job { id, new, head, state });
            if ends_at_once {
                let state = Box::new(sampler.state(JobStatus::Succeeded));
                push(sampler, Change::Job { id, new: false, head: None, state });
            }
        } else {
            let mut record = executions[sampler.below(executions.len() as u64) as usize].clone();
            push(sampler, Change::Execution { new, record: Box::new(record.clone()) });
            if ends_at_once {
                record.status = ExecutionStatus::Succeeded;
                push(sampler, Change::Execution { new: false, record: Box::new(record) });
            }
        }
        match sampler.below(12) {
            0 => commands.push(Update::DeleteJobs(vec![jobs[sampler.below(3) as usize]]).into()),
            1 => commands.push(Update::ReleaseShards(leases.to_vec()).into()),
            _ => {}
        }
    }
    commands
}

/// Its row would never be among the live rows that forbid it.
#[tokio::test]
async fn a_duplicate_that_ends_in_the_same_transaction_is_refused() {
    let mut sampler = Sampler::new(1);
    let id = sampler.job_id(SHARD);
    let mut job = |new: bool, status: JobStatus| {
        let head = new.then(|| sampler.head());
        Change::Job { id, new, head, state: Box::new(sampler.state(status)) }
    };
    let (new, end) = (job(true, JobStatus::Running), job(false, JobStatus::Succeeded));
    let mut execution = |number: u32| sampler.execution(id, number, ExecutionStatus::Running);
    let (first, rival, second, third) = (execution(1), execution(1), execution(2), execution(2));
    let add = |record: &ExecutionRecord| Change::Execution { new: true, record: Box::new(record.clone()) };
    let change = |record: &ExecutionRecord, status: ExecutionStatus| {
        let record = ExecutionRecord { status, ..record.clone() };
        Change::Execution { new: false, record: Box::new(record) }
    };
    let over = |record: &ExecutionRecord| change(record, ExecutionStatus::Failed);
    // What is stored, what a transaction has, and which of it is refused.
    let cases = [
        (vec![new.clone()], vec![new.clone(), end], 0),
        (vec![new.clone(), add(&first)], vec![add(&first), over(&first)], 0),
        (vec![new.clone(), add(&first)], vec![add(&rival), over(&rival)], 0),
        (vec![new.clone(), add(&first), over(&first), add(&second)], vec![add(&third), over(&third)], 0),
        (
            vec![new, add(&first)],
            vec![change(&first, ExecutionStatus::Running), add(&rival), over(&first)],
            1,
        ),
    ];
    for (number, (stored, changes, refused)) in cases.into_iter().enumerate() {
        let (mut alone, mut together) = (OneServer::new(), OneServer::new());
        let (leases, _) = alone.take(&[SHARD]).await;
        together.take(&[SHARD]).await;
        let mut command = |change: &Change| {
            let (now, changes) = (sampler.now(), vec![change.clone()]);
            commit(&leases, Batch { now, changes, events: Vec::new(), statistics: Default::default() })
        };
        for change in &stored {
            let command = command(change);
            for server in [&mut alone, &mut together] {
                assert!(server.apply(std::slice::from_ref(&command)).await[0].is_ok(), "case {number}");
            }
        }
        let commands: Vec<_> = changes.iter().map(&mut command).collect();
        let mut answers = Vec::new();
        for command in &commands {
            answers.extend(alone.apply(std::slice::from_ref(command)).await);
        }
        let entries = commands.chunks(1).map(|command| together.entry(command)).collect();
        let found = together.replica.apply(entries).await.unwrap().concat();
        let is_broken = |answer: &Result<_, _>| matches!(answer, Err(Refused::Broken(_)));
        assert_eq!(answers.iter().position(is_broken), Some(refused), "case {number}: {answers:?}");
        assert_eq!(found, answers, "case {number}");
        assert_eq!(dump(&together.path()), dump(&alone.path()), "case {number}");
    }
}

/// Replicas apply the same entries in different transactions.
#[tokio::test]
async fn replicas_refuse_the_same_commands_whatever_their_transactions() {
    let mut refused = 0;
    for seed in 0..8 {
        let (mut single, mut grouped) = (OneServer::new(), OneServer::new());
        let mut sampler = Sampler::new(seed);
        // A refused commit fences the later ones.
        for round in 0..6 {
            let (leases, _) = single.take(&[SHARD]).await;
            assert_eq!(grouped.take(&[SHARD]).await.0, leases);
            let commands = lives_with_errors(&mut sampler, &leases);
            let size = 1 + sampler.below(3) as usize;
            let mut answers = Vec::new();
            for chunk in commands.chunks(size) {
                answers.extend(single.apply(chunk).await);
            }
            // Few in a transaction: if one breaks an invariant, all of them are applied alone.
            let mut entries: Vec<_> = commands.chunks(size).map(|chunk| grouped.entry(chunk)).collect();
            let mut found = Vec::new();
            while !entries.is_empty() {
                let behind = entries.split_off(entries.len().min(1 + sampler.below(3) as usize));
                found.extend(grouped.replica.apply(entries).await.unwrap().concat());
                entries = behind;
            }
            assert_eq!(found, answers, "seed {seed}, round {round}");
            refused += answers.iter().filter(|answer| matches!(answer, Err(Refused::Broken(_)))).count();
            for server in [&mut single, &mut grouped] {
                server.apply(&[Update::ReleaseShards(leases.clone()).into()]).await;
            }
        }
        assert_eq!(dump(&grouped.path()), dump(&single.path()), "seed {seed}");
    }
    assert!(refused > 10, "only {refused}");
}

#[tokio::test]
async fn every_kind_of_change_is_written_as_by_a_store() {
    for seed in 0..8 {
        let (store, mut server) = (OnDisk::new(), OneServer::new());
        let (leases, _) = server.take(&[SHARD]).await;
        let writer = taken(&store).await;
        for batch in crate::command::tests::batches_of_all_kinds(&mut Sampler::new(seed)) {
            let command = commit(&leases, batch);
            writer.call(super::super::operation::Operation::Command(command.clone())).await.unwrap();
            let answer = server.apply(&[command]).await.remove(0);
            assert!(answer.is_ok(), "{answer:?}");
        }
        assert_eq!(dump(&server.path()), dump(&store.path()));
    }
}

#[tokio::test]
async fn the_position_of_the_log_is_stored_with_the_rows() {
    let (mut server, mut sampler) = (OneServer::new(), Sampler::new(1));
    let (leases, _) = server.take(&[SHARD]).await;
    let (job, batch) = new_job(&mut sampler);
    server.apply(&[commit(&leases, batch)]).await;
    let membership = Content::Membership(Arc::from(*b"three servers"));
    let position = server.next;
    server.next.index += 1;
    server.replica.apply(vec![Entry { position, content: membership }]).await.unwrap();
    let before = server.replica.applied().borrow().clone();
    assert_eq!(before.applied, Some(position));
    assert_eq!(before.membership_at, Some(position));
    let server = server.reopen();
    assert_eq!(*server.replica.applied().borrow(), before);
    assert_eq!(&*before.membership, b"three servers");
    assert!(job_exists(&server.replica, job).await);
}

/// The others of the same entry are applied, and the engine of the refused one must load its rows again.
#[tokio::test]
async fn a_batch_that_breaks_an_invariant_is_refused_alone_and_fences_its_engine() {
    let (mut server, mut sampler) = (OneServer::new(), Sampler::new(1));
    let (leases, _) = server.take(&[SHARD]).await;
    let (first, batch) = new_job(&mut sampler);
    let (_, mut missing) = new_job(&mut sampler);
    for change in &mut missing.changes {
        if let Change::Job { new, .. } = change {
            *new = false;
        }
    }
    let (third, later) = new_job(&mut sampler);
    let secret = Update::PutSecret { name: "s".into(), proposed: [1; 32] };
    let commands = [commit(&leases, batch), commit(&leases, missing), commit(&leases, later), secret.into()];
    let answers = server.apply(&commands).await;
    assert!(matches!(answers[0], Ok(Reply::Committed(_))), "{answers:?}");
    assert!(matches!(&answers[1], Err(Refused::Broken(why)) if why.contains("is not live")), "{answers:?}");
    assert_eq!(answers[2], Err(Refused::Fenced(SHARD)));
    assert_eq!(answers[3], Ok(Reply::Secret([1; 32])));
    assert!(job_exists(&server.replica, first).await);
    assert!(!job_exists(&server.replica, third).await);
    let applied = server.replica.applied().borrow().applied;
    assert_eq!(applied, Some(LogPosition { index: server.next.index - 1, ..server.next }));
    let connection = rusqlite::Connection::open(server.path()).unwrap();
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let refused: (u64, u64) =
        connection.query_row("SELECT log_index, number FROM refused_commands", [], read).unwrap();
    assert_eq!(refused, (server.next.index - 1, 1));
}

#[tokio::test]
async fn an_entry_of_another_leader_voids_all_leases() {
    let (mut server, mut sampler) = (OneServer::new(), Sampler::new(1));
    let (leases, was_owned) = server.take(&[SHARD, ShardId(1)]).await;
    assert_eq!((leases.len(), was_owned), (2, false));
    server.change_leader();
    let position = server.next;
    server.next.index += 1;
    server.replica.apply(vec![Entry { position, content: Content::Blank }]).await.unwrap();
    let (job, batch) = new_job(&mut sampler);
    assert_eq!(server.apply(&[commit(&leases, batch)]).await, [Err(Refused::Fenced(SHARD))]);
    assert!(!job_exists(&server.replica, job).await);
    let mut server = server.reopen();
    let (taken, was_owned) = server.take(&[SHARD, ShardId(1)]).await;
    assert!(was_owned, "the earlier leader has not released its shards");
    assert!(taken.iter().zip(&leases).all(|(new, old)| new.epoch > old.epoch));
    server.apply(&[Update::ReleaseShards(taken).into()]).await;
    server.change_leader();
    assert!(!server.take(&[SHARD]).await.1, "the earlier leader has released its shards");
}

#[tokio::test]
async fn a_replica_syncs_only_on_request() {
    let (mut server, mut sampler) = (OneServer::new(), Sampler::new(1));
    let (leases, _) = server.take(&[SHARD]).await;
    let disk = Disk::below(server.folder.path());
    disk.record();
    for _ in 0..20 {
        let (_, batch) = new_job(&mut sampler);
        server.apply(&[commit(&leases, batch)]).await;
    }
    let syncs = |calls: Vec<DiskCall>| {
        calls.into_iter().filter(|call| matches!(call, DiskCall::Synced { .. })).count()
    };
    assert_eq!(syncs(disk.take()), 0);
    disk.record();
    let state = server.replica.sync().await.unwrap();
    assert_eq!(syncs(disk.take()), 1);
    assert_eq!(state, *server.replica.applied().borrow());
}

#[tokio::test]
async fn a_replica_changes_only_by_its_log() {
    let server = OneServer::new();
    let store = server.replica.store().await.unwrap();
    let leases = [Lease { shard: SHARD, epoch: model::id::Epoch(1) }];
    let (_, batch) = new_job(&mut Sampler::new(1));
    let refused = store.commit(&leases, Arc::new(batch)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    let refused = crate::Leases::mark_restored(&*store).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_copy_of_a_replica_continues_where_it_was_taken() {
    let (mut server, mut other, mut sampler) = (OneServer::new(), OneServer::new(), Sampler::new(1));
    let (leases, _) = server.take(&[SHARD]).await;
    let (before, batch) = new_job(&mut sampler);
    server.apply(&[commit(&leases, batch)]).await;
    let copy = server.folder.path().join("copy.db");
    let state = server.replica.copy_to(&copy, Pace::new(std::num::NonZeroU64::MAX)).await.unwrap();
    assert_eq!(state, *server.replica.applied().borrow());
    let (after, batch) = new_job(&mut sampler);
    let entry = server.entry(&[commit(&leases, batch)]);
    server.replica.apply(vec![entry.clone()]).await.unwrap();

    let place = other.replica.end().await.unwrap();
    assert_eq!(other.replica.install(&copy).await.unwrap(), state);
    assert!(!copy.exists());
    assert_eq!(other.replica.since(place).await.unwrap(), None, "a standby must read all rows again");
    assert!(job_exists(&other.replica, before).await && !job_exists(&other.replica, after).await);
    other.replica.apply(vec![entry]).await.unwrap();
    other.next = server.next;
    assert_eq!(dump(&other.path()), dump(&server.path()));
    assert_eq!(dump(&other.reopen().path()), dump(&server.path()));
}

fn damage(path: &Path, job: JobId) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let key = job.to_bits().to_be_bytes();
    assert_eq!(connection.execute("UPDATE jobs SET state = x'00' WHERE id = ?1", [key]).unwrap(), 1);
}

/// The row of a server with an intact one stays.
#[tokio::test]
async fn a_row_that_cannot_be_decoded_is_reported_and_moved_only_by_the_log() {
    let (mut server, mut intact, mut sampler) = (OneServer::new(), OneServer::new(), Sampler::new(1));
    let (leases, _) = server.take(&[SHARD]).await;
    intact.take(&[SHARD]).await;
    let (job, batch) = new_job(&mut sampler);
    let command = commit(&leases, batch);
    server.apply(std::slice::from_ref(&command)).await;
    intact.apply(&[command]).await;
    damage(&server.path(), job);
    let mut reports = server.replica.damage().await.unwrap();
    let (sender, mut receiver) = tokio::sync::mpsc::channel(16);
    let loaded = server.replica.load(&leases, sender).await.unwrap();
    assert_eq!(loaded.quarantined, 1);
    assert!(receiver.recv().await.is_none());
    let found = reports.recv().await.unwrap();
    let moved = server.replica.with_content(found).await.unwrap();
    assert_eq!(moved.len(), 1);
    let command: Command = Update::MoveToQuarantine { rows: moved, now: sampler.now() }.into();
    server.apply(std::slice::from_ref(&command)).await;
    intact.apply(&[command]).await;
    let quarantined = async |server: &OneServer| {
        let store = server.replica.store().await.unwrap();
        crate::Housekeeping::quarantined(&*store, 10).await.unwrap().len()
    };
    assert_eq!(quarantined(&server).await, 1);
    assert_eq!(quarantined(&intact).await, 0);
    assert!(job_exists(&intact.replica, job).await);
}

#[tokio::test]
async fn the_changelog_names_the_rows_of_each_commit() {
    let (mut server, mut sampler) = (OneServer::new(), Sampler::new(1));
    let (leases, _) = server.take(&[SHARD]).await;
    let place = server.replica.end().await.unwrap();
    let (job, batch) = new_job(&mut sampler);
    let now = batch.now;
    server.apply(&[commit(&leases, batch)]).await;
    let page = server.replica.since(place).await.unwrap().unwrap();
    let key = LiveKey::Job(job);
    assert_eq!(page.touched, [LiveChange::Rows(key)]);
    assert_eq!((page.now, page.whole, page.end.epoch), (now, true, leases[0].epoch));
    assert_eq!(server.replica.live_rows(&[key]).await.unwrap().rows.len(), 1);
    server.apply(&[Update::TrimEvents(now).into()]).await;
    assert_eq!(server.replica.end().await.unwrap(), page.end);
}

#[tokio::test]
async fn a_server_that_is_drained_is_noted_on_every_replica() {
    let mut server = OneServer::new();
    let id = ServerId::from_bits(5);
    for draining in [true, true, false] {
        server.apply(&[Update::SetDraining { server: id, draining }.into()]).await;
        let expected = if draining { vec![id] } else { Vec::new() };
        assert_eq!(server.replica.draining().await.unwrap(), expected);
    }
}

/// A change of one replica alone would make it differ from the others for ever.
#[tokio::test]
async fn only_its_member_opens_a_replica_and_a_backup_of_it_is_a_store() {
    let (mut server, mut sampler) = (OneServer::new(), Sampler::new(4));
    let (leases, _) = server.take(&[SHARD]).await;
    let (job, batch) = new_job(&mut sampler);
    server.apply(&[commit(&leases, batch)]).await[0].as_ref().unwrap();
    let backup = server.folder.path().join("backup");
    sqlite::backup(&server.path(), &backup).unwrap();
    let stopped = server.folder.path().join("stopped");
    let refused = sqlite::backup_stopped(&server.path(), &stopped).unwrap_err();
    assert!(matches!(refused, sqlite::BackupError::Store(StoreError::InUse { .. })), "{refused}");

    let OneServer { folder, replica, .. } = server;
    replica.close().await;
    let path = folder.path().join("state.db");
    let refused = SqliteStore::open(&path, Options::default()).unwrap_err();
    assert!(matches!(refused, StoreError::Replica { .. }), "{refused}");
    sqlite::backup_stopped(&path, &stopped).unwrap();
    let applied = |path: &Path| read_applied(path).ok().and_then(|state| state.applied);
    assert_eq!(applied(&stopped), applied(&path));
    assert!(applied(&path).is_some() && applied(&backup).is_none());

    let options = Options { ballast_bytes: 0, ..Options::default() };
    let store = SqliteStore::open(&backup, options).unwrap();
    assert!(store.job(job).await.unwrap().is_some());
    assert!(!store.acquire(&[SHARD], "another", Duration::from_secs(1)).await.unwrap().is_empty());
}
