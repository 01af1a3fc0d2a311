//! Commands keep their content through a log, and unknown or damaged ones are refused.

use std::sync::Arc;

use model::changelog::LiveChange;
use model::firing::BackfillStatus;
use model::record::{Batch, Change, KeyRecord, RunKeyRecord};
use model::run::{BatchKey, StepRecord};
use model::statistics::CommitStatistics;
use model::{ExecutionStatus, JobStatus, RunStatus, ServerId, ShardId, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::suite::sample::{Sampler, schedule_head_of, workflow_head_of};

const SHARD: ShardId = ShardId(0);

/// Returns two batches that together contain every kind of change: the first creates rows, the second changes and
/// removes them.
pub(crate) fn batches_of_all_kinds(sampler: &mut Sampler) -> [Batch; 2] {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    add_jobs(sampler, &mut first, &mut second);
    add_schedules(sampler, &mut first, &mut second);
    add_workflows(sampler, &mut first, &mut second);
    let (service, removed) = (sampler.service_id(SHARD), sampler.service_id(SHARD));
    for id in [service, removed] {
        let (head, state) = (Some(Arc::new(sampler.service_head())), Box::new(sampler.service_state()));
        first.push(Change::Service { id, new: true, head, state });
    }
    let state = Box::new(sampler.service_state());
    second.push(Change::Service { id: service, new: false, head: None, state });
    let (head, state) = (Some(Arc::new(sampler.service_head())), Box::new(sampler.service_state()));
    second.push(Change::Service { id: service, new: false, head, state });
    second.push(Change::RemoveService(removed));
    let worker = Arc::new(sampler.worker());
    first.extend([
        Change::Worker(Arc::clone(&worker)),
        Change::Queue(Arc::new(sampler.queue("q"))),
        Change::Namespace(Arc::new(sampler.namespace_record("n"))),
        Change::Calendar(Arc::new(sampler.calendar("n", "c"))),
    ]);
    second.extend([
        Change::RemoveWorker(worker.id),
        Change::RemoveQueue("q".into()),
        Change::RemoveNamespace("n".into()),
        Change::RemoveCalendar { namespace: "n".into(), name: "c".into() },
    ]);
    [first, second].map(|changes| {
        let events = (0..sampler.below(600)).map(|_| sampler.event()).collect();
        let worker = sampler.worker_id();
        let statistics =
            if sampler.coin() { sampler.statistics(worker) } else { CommitStatistics::default() };
        Batch { now: sampler.now(), changes, events, statistics }
    })
}

fn add_jobs(sampler: &mut Sampler, first: &mut Vec<Change>, second: &mut Vec<Change>) {
    for ends in [false, true] {
        let id = sampler.job_id(SHARD);
        let (head, state) = (Some(sampler.head()), Box::new(sampler.state(JobStatus::Running)));
        first.push(Change::Job { id, new: true, head, state });
        let execution = sampler.execution(id, 1, ExecutionStatus::Running);
        first.push(Change::Execution { new: true, record: Box::new(execution.clone()) });
        first.push(Change::Key(sampler.key(id)));
        first.push(Change::Checkpoint(Box::new(sampler.checkpoint_of(id).1)));
        let status = if ends { JobStatus::Succeeded } else { JobStatus::Running };
        let head = sampler.coin().then(|| sampler.head());
        let state = Box::new(sampler.state(status));
        second.push(Change::Job { id, new: false, head, state });
        let status = if ends { ExecutionStatus::Succeeded } else { ExecutionStatus::Running };
        let record = sampler.execution(id, 1, status);
        let ids = (execution.id, execution.fence);
        let record = model::record::ExecutionRecord { id: ids.0, fence: ids.1, ..record };
        second.push(Change::Execution { new: false, record: Box::new(record) });
    }
    second.push(Change::PurgeKeys { shard: SHARD, expired_before: sampler.now() });
}

fn add_schedules(sampler: &mut Sampler, first: &mut Vec<Change>, second: &mut Vec<Change>) {
    for is_removed in [false, true] {
        let id = sampler.schedule_id(SHARD);
        let mut spec = sampler.schedule_spec();
        spec.name = if is_removed { "removed" } else { "kept" }.into();
        let head = Arc::new(schedule_head_of(spec));
        let status = sampler.schedule_status();
        let state = Box::new(sampler.schedule_state(id, status));
        first.push(Change::Schedule { id, new: true, head: Some(Arc::clone(&head)), state });
        let job = sampler.job_id(SHARD);
        first.push(Change::Ledger(Box::new(sampler.line(id, Some(job)))));
        let backfill = sampler.backfill_id(SHARD);
        let backfill_head = Some(Arc::new(sampler.backfill_head(id)));
        let state = sampler.backfill_state(BackfillStatus::Running);
        first.push(Change::Backfill { id: backfill, head: backfill_head, state });
        second.push(Change::Ledger(Box::new(sampler.line(id, None))));
        if is_removed {
            second.push(Change::RemoveSchedule(id));
            continue;
        }
        let state = Box::new(sampler.schedule_state(id, status));
        let head = sampler.coin().then_some(head);
        second.push(Change::Schedule { id, new: false, head, state });
        let state = sampler.backfill_state(BackfillStatus::Running);
        second.push(Change::Backfill { id: backfill, head: None, state });
    }
}

fn add_workflows(sampler: &mut Sampler, first: &mut Vec<Change>, second: &mut Vec<Change>) {
    for is_removed in [false, true] {
        let id = sampler.workflow_id(SHARD);
        let mut spec = sampler.workflow_spec();
        spec.name = if is_removed { "removed" } else { "kept" }.into();
        let (head, state) = (Some(Arc::new(workflow_head_of(spec))), sampler.workflow_state());
        first.push(Change::Workflow { id, new: true, head, state: state.clone() });
        second.push(if is_removed {
            Change::RemoveWorkflow(id)
        } else {
            Change::Workflow { id, new: false, head: None, state }
        });
    }
    let run = sampler.run_id(SHARD);
    let head = Some(Arc::new(sampler.run_head()));
    let state = Box::new(sampler.run_state(RunStatus::Running));
    first.push(Change::Run { id: run, head, state });
    let key = sampler.step_key(run, 0);
    first.push(Change::Step(Box::new(StepRecord { key, state: sampler.step_state() })));
    let batch = sampler.element_batch(BatchKey { run, step: 1, first: 0 });
    first.push(Change::ElementBatch(Box::new(batch)));
    let job = sampler.job_id(SHARD);
    let KeyRecord { key: hash, body, expires_at, .. } = sampler.key(job);
    first.push(Change::RunKey(RunKeyRecord { key: hash, body, run, expires_at }));
    let state = Box::new(sampler.run_state(RunStatus::Running));
    second.push(Change::Run { id: run, head: None, state });
    second.push(Change::Step(Box::new(StepRecord { key, state: sampler.step_state() })));
}

fn leases() -> Vec<Lease> {
    vec![Lease { shard: SHARD, epoch: model::id::Epoch(3) }]
}

fn group_of(commands: &[Command]) -> Vec<u8> {
    let mut group = GroupBuilder::default();
    for command in commands {
        group.push(command).unwrap();
    }
    assert_eq!(group.count(), commands.len());
    group.finish()
}

fn sealed_rows(batch: &Batch) -> Vec<String> {
    let mut rows = Vec::new();
    seal::seal(&batch.changes, |row| {
        rows.push(format!("{row:?}"));
        Ok::<(), seal::MissingHead>(())
    })
    .unwrap();
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every kind of change, also its effect on the live rows.
    #[test]
    fn a_batch_has_the_same_rows_after_a_log(seed: u64) {
        for batch in batches_of_all_kinds(&mut Sampler::new(seed)) {
            let (batch, expected) = (Arc::new(batch.clone()), sealed_rows(&batch));
            let bytes = group_of(&[Command::commit(&leases(), Arc::clone(&batch))]);
            let all: Vec<_> = items(&bytes).map(Result::unwrap).collect();
            let [Item::Commit(commit)] = &*all else { panic!("found {all:?}") };
            prop_assert_eq!(&commit.leases, &leases());
            prop_assert_eq!(commit.now, batch.now);
            let (mut found, mut touched) = (Vec::new(), Vec::new());
            let end = commit
                .rows(|row| {
                    found.push(format!("{row:?}"));
                    touched.extend(row.live_change());
                    Ok::<(), crate::StoreError>(())
                })
                .unwrap();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(LiveChange::each_once(touched), LiveChange::by(&batch.changes));
            let count: u32 = end.events.iter().map(|events| events.count).sum();
            prop_assert_eq!(count as usize, batch.events.len());
            prop_assert_eq!(end.statistics.is_some(), !batch.statistics.is_empty());
        }
    }

    /// Never a panic, and never more than was written.
    #[test]
    fn a_damaged_group_is_refused_or_decoded(seed: u64, at: prop::sample::Index, bit in 0..8_u8) {
        let [batch, _] = batches_of_all_kinds(&mut Sampler::new(seed));
        let commit = Command::commit(&leases(), Arc::new(batch));
        let mut bytes = group_of(&[Update::MarkRestored.into(), commit]);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        for item in items(&bytes) {
            if let Ok(Item::Commit(commit)) = item {
                let _ = commit.rows(|_| Ok::<(), crate::StoreError>(()));
            }
        }
        bytes.truncate(at);
        prop_assert!(items(&bytes).count() <= 2);
    }
}

#[test]
fn the_rows_of_a_batch_are_of_every_kind() {
    let names = |batch: &Batch| {
        let name = |row: &String| row.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
        sealed_rows(batch).iter().map(name).collect::<Vec<_>>()
    };
    let batches = batches_of_all_kinds(&mut Sampler::new(1));
    let kinds: std::collections::BTreeSet<_> = batches.iter().flat_map(names).collect();
    let source = include_str!("rows.rs");
    let (_, variants) = source.split_once("pub(crate) enum RowChange<'a> {").unwrap();
    let (variants, _) = variants.split_once("\n}").unwrap();
    let is_variant = |line: &&str| line.starts_with("    ") && line.as_bytes()[4].is_ascii_uppercase();
    for variant in variants.lines().filter(|line| line.len() > 4).filter(is_variant) {
        let name = variant.trim().split([' ', '(']).next().unwrap();
        assert!(kinds.contains(name), "no batch contains a row of kind {name}");
    }
}

fn updates() -> Vec<Update> {
    let mut sampler = Sampler::new(5);
    let (at, job, run) = (Timestamp::from_micros(7), sampler.job_id(SHARD), sampler.run_id(SHARD));
    let access = || AccessRow { kind: "k".into(), key: "a".into(), body: "{}".into() };
    let artifact = || Artifact {
        namespace: "n".into(),
        name: "a".into(),
        sha256: "0".repeat(64),
        size_bytes: 1,
        created_at: at,
        created_by: "c".into(),
    };
    let link = AuditLink { sequence: 1, hash: [1; 32] };
    let audit = AuditRow {
        link,
        at,
        namespace: None,
        actor: "a".into(),
        action: "b".into(),
        verb: "c".into(),
        resource: "d".into(),
        object: Some("e".into()),
        outcome: "f".into(),
        body: "{}".into(),
    };
    let line = LedgerPosition { first_micros: 1, schedule: 2, generation: 3, cause: 4, backfill: u128::MAX };
    let unreadable = DamagedRow {
        table: Table::Jobs,
        key: vec![Cell::Blob(vec![1]), Cell::Text(vec![2]), Cell::Integer(-3), Cell::Null, Cell::Real(0.5)],
        reason: "it is torn".into(),
        content: Some([9; 32]),
    };
    let alert = AlertChange { kind: "k".into(), key: "a".into(), body: None };
    vec![
        Update::TakeShards { shards: vec![SHARD], owner: "o".into(), now: at, until: at },
        Update::ReleaseShards(leases()),
        Update::MarkReconciled(leases()),
        Update::MarkRestored,
        Update::ResetClock(at),
        Update::ChangeAccess { expected: 1, next: 2, rows: vec![access()] },
        Update::DeleteAccess(vec![access()]),
        Update::ChangeAlerts { expected: 1, next: 2, changes: vec![alert] },
        Update::AppendAudit { expected: link, rows: vec![audit] },
        Update::TrimAudit { before: at, limit: 5 },
        Update::PutArtifact(artifact()),
        Update::DeleteArtifact { artifact: artifact(), reason: DeletionReason::Retention },
        Update::PutSecret { name: "s".into(), proposed: [3; 32] },
        Update::DeleteJobs(vec![job]),
        Update::DeleteRuns(vec![run]),
        Update::DeleteSteps,
        Update::TrimEvents(at),
        Update::FoldStatistics(at),
        Update::TrimStatistics(at),
        Update::MarkFailures { namespace: "n".into(), id: 4, mark: Some(vec![1, 2]) },
        Update::TrimLedger { before: at, lines: vec![line], backfills: vec![sampler.backfill_id(SHARD)] },
        Update::MoveToQuarantine { rows: vec![unreadable], now: at },
        Update::SetDraining { server: ServerId::from_bits(6), draining: true },
    ]
}

/// The bytes of each kind of update are those of the first version that wrote it, so its number is its place here.
#[test]
fn every_update_is_decoded_unchanged_and_keeps_its_number() {
    for (number, update) in (0..).zip(updates()) {
        let bytes = group_of(&[update.clone().into()]);
        assert_eq!(bytes[7], number, "{update:?}");
        let all: Vec<_> = items(&bytes).map(Result::unwrap).collect();
        let [Item::Update(found)] = &*all else { panic!("found {all:?}") };
        assert_eq!(*found, update);
    }
}

#[test]
fn a_command_of_a_newer_version_is_refused_and_not_skipped() {
    let mut newer = group_of(&[Update::MarkRestored.into(), Update::DeleteSteps.into()]);
    newer[7] = 120;
    let first = items(&newer).next().unwrap();
    let message = first.unwrap_err().to_string();
    assert!(message.contains("a newer version of Belfry probably wrote it; run that version"), "{message}");
    let mut format = group_of(&[Update::MarkRestored.into()]);
    format[0] = 9;
    assert!(items(&format).next().unwrap().is_err());
}

#[test]
fn a_batch_that_cannot_be_proposed_leaves_the_group_as_it_was() {
    let [batch, _] = batches_of_all_kinds(&mut Sampler::new(2));
    let mut group = GroupBuilder::default();
    group.push(&Update::DeleteSteps.into()).unwrap();
    let before = group.clone();
    let foreign = Lease { shard: ShardId(9), epoch: model::id::Epoch(3) };
    let refused = group.push(&Command::commit(&[foreign], Arc::new(batch.clone())));
    assert!(matches!(refused, Err(crate::StoreError::Fenced { shard: SHARD })), "{refused:?}");
    let mut changes = batch.changes;
    let Some(Change::Job { head, .. }) = changes.first_mut() else { panic!("the first change is a job") };
    *head = None;
    let headless = Batch { changes, events: Vec::new(), ..batch };
    let refused = group.push(&Command::commit(&leases(), Arc::new(headless)));
    assert!(matches!(refused, Err(crate::StoreError::Fatal { .. })), "{refused:?}");
    assert_eq!(group, before);
}
