//! Services: availability, numbers and rollouts of replicas (I24).

use std::collections::BTreeMap;

use model::service::{ReplicaOrigin, Rollout, RolloutStatus, UpdatePolicy};
use model::spec::{HealthStatus, PriorityClass};
use model::{ServiceId, ServiceSpec};

use super::*;
use crate::history::ServiceRow;

const SERVICE: ServiceId = ServiceId::from_bits(7 << 64);

fn spec(replicas: u32) -> ServiceSpec {
    ServiceSpec {
        name: "v0".into(),
        namespace: "default".into(),
        owner: None,
        labels: BTreeMap::new(),
        description: None,
        replicas: Some(replicas),
        per_worker: false,
        scaling: None,
        priority_class: PriorityClass::High,
        job: Box::new(JobSpec::command(["serve"])),
        restart_backoff: Default::default(),
        min_healthy: Duration::from_secs(5),
        update: UpdatePolicy::default(),
    }
}

fn service(replicas: u32, status: RolloutStatus, new: bool) -> ServiceRow {
    let rollout = Rollout {
        revision: 1,
        status,
        paused: false,
        promoted: false,
        started_at: second(1),
        progressed_at: second(1),
        reached: 0,
        ended_at: None,
        reason: None,
    };
    ServiceRow {
        service: SERVICE,
        new,
        spec: new.then(|| Arc::new(spec(replicas))),
        templates: BTreeMap::from([(1, 1)]),
        deleting: false,
        version: 1,
        replicas,
        rollout,
        stable_revision: (status == RolloutStatus::Completed).then_some(1),
    }
}

fn job(number: u32) -> JobId {
    JobId::from_bits(u128::from(100 + number) << 64)
}

/// The row of a replica that runs since second 2.
fn replica(number: u32, change: impl FnOnce(&mut JobRow)) -> Row {
    let story = Story::new();
    let origin = ReplicaOrigin { service: SERVICE, name: "v0".into(), revision: 1, replica: number };
    let entry =
        |from, to, cause| HistoryEntry { at: second(1), from, to, cause, execution: None, detail: None };
    let waits = JobStatus::Waiting;
    let mut row = JobRow {
        job: job(number),
        spec: Some(Arc::new(spec(1).replica_job())),
        replica: Some(Arc::new(origin)),
        version: 1,
        executions: 1,
        status: JobStatus::Running,
        steps: vec![
            entry(None, waits, Cause::ReplicaStarted),
            entry(Some(waits), JobStatus::Running, Cause::Placed),
        ],
        ..story.row
    };
    change(&mut row);
    Row::Job(Box::new(row))
}

/// A later row of the replica.
fn again(number: u32, change: impl FnOnce(&mut JobRow)) -> Row {
    replica(number, |row| {
        (row.new, row.spec, row.replica, row.version) = (false, None, None, 2);
        row.steps.clear();
        change(row);
    })
}

fn running(number: u32, new: bool, health: Option<(HealthStatus, Timestamp)>) -> Row {
    let mut row = match Story::new().execution_row(1, ExecutionStatus::Running, new) {
        Row::Execution(row) => row,
        _ => unreachable!(),
    };
    (row.execution, row.job) = (execution(100 + number), job(number));
    (row.started, row.started_at, row.health) = (true, Some(second(2)), health);
    Row::Execution(row)
}

fn row(row: ServiceRow) -> Row {
    Row::Service(Box::new(row))
}

/// A service with two replicas that run since second 2.
fn two_replicas() -> Story {
    let mut story = Story::new();
    story.commit(vec![
        row(service(2, RolloutStatus::Progressing, true)),
        replica(0, |_| {}),
        replica(1, |_| {}),
    ]);
    story.commit(vec![running(0, true, None), running(1, true, None)]);
    story
}

/// I24.
#[test]
fn an_available_replica_is_stopped_only_if_enough_others_are_available() {
    let stop = || again(0, |row| row.cancel_requested = true);
    let mut story = two_replicas();
    story.now = 5;
    story.commit(vec![stop()]).holds();
    let mut story = two_replicas();
    story.now = 10;
    story.commit(vec![stop()]).breaks(Invariant::I24);
    // After the service was scaled down.
    let mut story = two_replicas();
    story.now = 10;
    story.commit(vec![row(service(1, RolloutStatus::Progressing, false)), stop()]).holds();
    // After a user cancelled the job.
    let mut story = two_replicas();
    story.event(What::Asked { request: 1, ask: Ask::Cancel { job: job(0) } });
    story.now = 10;
    story.commit(vec![stop()]).holds();
}

/// I24.
#[test]
fn a_replica_ends_only_if_it_was_stopped() {
    let end = |status, cause| {
        again(0, |row| {
            row.status = status;
            let from = Some(JobStatus::Running);
            row.steps = vec![HistoryEntry {
                at: second(9),
                from,
                to: status,
                cause,
                execution: Some(1),
                detail: None,
            }];
        })
    };
    let mut story = two_replicas();
    story.commit(vec![end(JobStatus::Succeeded, Cause::Succeeded)]).breaks(Invariant::I24);
}

/// I24.
#[test]
fn replicas_have_different_numbers_and_stay_within_the_surge() {
    let new = |number, place| {
        replica(number, |row| {
            row.job = job(place);
            row.executions = 0;
            row.status = JobStatus::Waiting;
            row.steps.truncate(1);
        })
    };
    two_replicas().commit(vec![new(2, 2)]).holds();
    two_replicas().commit(vec![new(1, 2)]).breaks(Invariant::I24);
    two_replicas().commit(vec![new(2, 2), new(3, 3)]).breaks(Invariant::I24);
}

/// I24.
#[test]
fn a_rollout_changes_its_status_by_legal_steps() {
    use RolloutStatus::{AwaitingPromotion, Completed, Failed, Progressing};
    for (from, to, is_legal) in [
        (Progressing, Completed, true),
        (Progressing, AwaitingPromotion, true),
        (Failed, Progressing, true),
        (AwaitingPromotion, Failed, false),
        (Completed, Progressing, false),
    ] {
        let mut story = Story::new();
        story.commit(vec![row(service(0, from, true))]);
        story.commit(vec![row(service(0, to, false))]);
        if is_legal { story.holds() } else { story.breaks(Invariant::I24) }
    }
}

/// I24.
#[test]
fn a_service_is_as_desired_after_the_faults() {
    let due = |status: RolloutStatus, replicas: u32, at: i64| {
        let mut story = two_replicas();
        story.now = at;
        story.commit(vec![row(service(replicas, status, false))]);
        story.event(What::ServicesDue);
        story
    };
    due(RolloutStatus::Completed, 2, 10).holds();
    due(RolloutStatus::Failed, 2, 2).holds();
    due(RolloutStatus::Completed, 2, 4).breaks(Invariant::I24);
    due(RolloutStatus::Completed, 3, 10).breaks(Invariant::I24);
    due(RolloutStatus::Completed, 1, 10).breaks(Invariant::I24);
    due(RolloutStatus::Progressing, 2, 10).breaks(Invariant::I24);
}

/// I10.
#[test]
fn an_execution_never_becomes_starting_again() {
    let health = |status| running(0, false, Some((status, second(3))));
    let mut story = two_replicas();
    story.commit(vec![health(HealthStatus::Starting)]).commit(vec![health(HealthStatus::Healthy)]).holds();
    story.commit(vec![health(HealthStatus::Starting)]).breaks(Invariant::I10);
}
