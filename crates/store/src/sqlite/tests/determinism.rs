//! The effect of a command depends on its arguments and the rows alone: replicas that apply the same commands are equal.

use futures::future::join_all;
use model::failures::{FailureCount, FailureGroupId};
use model::record::{Batch, Change, Lease};
use model::statistics::CommitStatistics;
use model::{Duration, ExecutionStatus, JobId, JobStatus, ShardId, Timestamp};

use super::super::operation::Operation;
use super::*;
use crate::command::{Command, StatisticsId, Update};
use crate::suite::dump::dump;
use crate::suite::sample::Sampler;

const STATEMENTS: &str = include_str!("../statements.rs");

/// Returns the part of the query that contains the end of `before`, without the queries in parentheses.
fn own_query(before: &str) -> String {
    let mut depth = 0;
    let mut kept = Vec::new();
    for character in before.chars().rev() {
        match character {
            ')' => depth += 1,
            '(' if depth == 0 => break,
            '(' => depth -= 1,
            _ if depth == 0 => kept.push(character),
            _ => {}
        }
    }
    kept.into_iter().rev().collect()
}

fn sql() -> impl Iterator<Item = &'static str> {
    STATEMENTS.split('"').skip(1).step_by(2)
}

#[test]
fn no_statement_limits_rows_without_an_order() {
    let (mut limits, mut wrong) = (0, Vec::new());
    for statement in sql() {
        for (at, _) in statement.match_indices("LIMIT") {
            limits += 1;
            if !own_query(&statement[..at]).contains("ORDER BY") {
                wrong.push(statement);
            }
        }
        for (_, window) in statement.match_indices(" OVER").map(|(at, _)| statement.split_at(at)) {
            if !window.split(')').next().is_some_and(|window| window.ends_with(", namespace, id")) {
                wrong.push(statement);
            }
        }
    }
    assert!(wrong.is_empty(), "the chosen rows depend on the order in which SQLite finds them: {wrong:#?}");
    assert!(limits > 8, "found only {limits}");
}

#[test]
fn no_statement_reads_a_clock_or_draws_a_number() {
    let foreign = ["random", "current_", "'now'", "unixepoch(", "strftime(", "rowid"];
    let uses = |sql: &&str| foreign.iter().any(|word| sql.to_lowercase().contains(word));
    assert_eq!(sql().filter(uses).collect::<Vec<_>>(), [""; 0]);
    assert!(sql().count() > 100);
}

#[test]
fn an_id_of_statistics_is_drawn_once() {
    let ids: std::collections::HashSet<[u8; 16]> = (0..1_000).map(|_| StatisticsId::draw().0).collect();
    assert_eq!(ids.len(), 1_000);
}

/// Commits and housekeeping, in the order in which they are applied. The same seed gives the same commands.
pub(super) fn commands(seed: u64, leases: &[Lease]) -> Vec<Command> {
    let mut sampler = Sampler::new(seed);
    let (mut commands, mut ended) = (Vec::new(), Vec::new());
    for round in 0..40_u8 {
        let (job, changes) = job(&mut sampler, &mut ended);
        let mut statistics = CommitStatistics::default();
        if sampler.coin() {
            let worker = sampler.worker_id();
            statistics = sampler.statistics(worker);
        }
        // All at the same time: only the order of the keys tells which group is older.
        let now = Timestamp::from_micros(1_795_000_000_000_000);
        statistics.failures =
            (0..sampler.below(4)).map(|_| sampler.failures()).collect::<Vec<FailureCount>>();
        let events = (0..sampler.below(3)).map(|_| sampler.event()).collect();
        let batch = Arc::new(Batch { now, changes, events, statistics });
        // In no order, like those of another process.
        let statistics = StatisticsId([round.wrapping_mul(77); 16]);
        commands.push(Command::Commit { leases: leases.to_vec(), batch, statistics });
        commands.extend(
            match sampler.below(6) {
                0 => Some(Update::FoldStatistics(now)),
                1 => Some(Update::TrimStatistics(now + Duration::from_hours(24 * 400))),
                2 => Some(Update::DeleteJobs(std::mem::take(&mut ended))),
                3 => Some(Update::TrimEvents(now + Duration::from_hours(1))),
                4 => Some(Update::PutArtifact(crate::query::Artifact {
                    namespace: "a".into(),
                    name: "b".into(),
                    sha256: format!("{:064x}", job.to_bits()),
                    size_bytes: 1,
                    created_at: now,
                    created_by: "c".into(),
                })),
                _ => Some(Update::mark_failures("a", FailureGroupId(1), None)),
            }
            .map(Command::Update),
        );
    }
    commands
}

/// Returns a new job that is live, or that has ended in the same batch, with an execution.
fn job(sampler: &mut Sampler, ended: &mut Vec<JobId>) -> (JobId, Vec<Change>) {
    let id = sampler.job_id(ShardId(0));
    let is_ended = sampler.coin();
    let status = if is_ended { sampler.final_status() } else { JobStatus::Running };
    let (head, state) = (sampler.head(), sampler.state(status));
    let status = if is_ended { ExecutionStatus::Succeeded } else { ExecutionStatus::Running };
    let execution = sampler.execution(id, 1, status);
    if is_ended {
        ended.push(id);
    }
    let changes = vec![
        Change::Job { id, new: true, head: Some(head), state: Box::new(state) },
        Change::Execution { new: true, record: Box::new(execution) },
        Change::Key(sampler.key(id)),
        Change::Worker(Arc::new(sampler.worker())),
        Change::Queue(Arc::new(sampler.queue("q"))),
    ];
    (id, changes)
}

/// One transaction for each command, and one for as many as wait.
#[tokio::test]
async fn the_same_commands_make_the_same_rows() {
    for seed in 0..4 {
        let (alone, together) = (OnDisk::new(), OnDisk::new());
        let mut answers = Vec::new();
        for (subject, in_turn) in [(&alone, true), (&together, false)] {
            let store = subject.store.as_ref().unwrap();
            let shards = vec![ShardId(0)];
            let (now, until) = (Timestamp::from_micros(1), Timestamp::from_micros(2));
            let acquire = Update::TakeShards { shards, owner: "one".into(), now, until };
            let leases = store.writer.leases(acquire).await.unwrap();
            let calls = commands(seed, &leases)
                .into_iter()
                .map(|command| store.writer.call(Operation::Command(command)));
            let found = if in_turn {
                let mut found = Vec::new();
                for call in calls {
                    found.push(call.await);
                }
                found
            } else {
                join_all(calls).await
            };
            answers.push(format!("{found:?}"));
        }
        assert_eq!(answers[0], answers[1]);
        assert!(!answers[0].contains("Err"), "{}", answers[0]);
        let (alone, together) = (dump(&alone.path()), dump(&together.path()));
        assert!(alone.len() > 100, "found only {} rows", alone.len());
        assert_eq!(alone, together);
    }
}
