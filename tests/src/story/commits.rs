//! Rebuilds the commits of a store from its final rows, in the order of its feed.
//!
//! The checker judges commits, but a real store has only final rows and a feed of events. [`CommitBuilder`]
//! replays the feed: each event is one transition of a job, and all decisions at one engine time become one
//! commit, with the rows as they were then. What no event reports, such as a cancellation of a running job,
//! is placed by the time in its row.
//!
//! Feed and rows are written by different code of the server. A transition that only one of them contains is
//! returned as a discrepancy.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use model::firing::{LedgerRecord, Work};
use model::id::Epoch;
use model::record::{Event as Told, EventKind, HistoryEntry, ScheduleEvent};
use model::worker::WorkerStatus;
use model::{Cause, ExecutionId, ExecutionStatus, Fence, JobId, JobStatus, ScheduleId, Timestamp};
use sim::history::{Commit, Event, ExecutionRow, JobRow, Row, ScheduleRow, What};

use super::Stored;

/// Position in the history of a job.
#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    steps: usize,
    status: Option<JobStatus>,
    executions: u32,
    run_failures: u32,
    start_failures: u32,
    losses: u32,
    overdue: bool,
    fence: Fence,
    cancelled: bool,
    /// The execution whose worker was lost, until it is replaced.
    unknown: Option<ExecutionId>,
}

/// Current state of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Now {
    New,
    Known(ExecutionStatus),
    /// Its lost worker returned with it, at this time.
    Returned {
        at: Timestamp,
    },
    /// Its final row is valid.
    AsItsRow,
}

struct CommitBuilder<'a> {
    stored: &'a Stored,
    reached: BTreeMap<JobId, Reached>,
    /// Ledger entries by the job that they name, until the job is recorded.
    lines: BTreeMap<JobId, &'a LedgerRecord>,
    /// Cancellations that are not recorded yet, newest first.
    cancels: Vec<(Timestamp, JobId)>,
    commits: Vec<(Timestamp, Commit)>,
    discrepancies: Vec<String>,
}

/// Returns the commits in order, each at the time when the feed delivered it, and the discrepancies between feed and
/// rows.
///
/// All decisions at the same engine time form one commit. A last commit at `end` contains everything that the feed
/// did not deliver any more, and the final state of schedules. Events of lost commits are skipped.
pub(super) fn commits(
    stored: &Stored,
    feed: &BTreeMap<u64, Timestamp>,
    losses: &[RangeInclusive<Timestamp>],
    end: Timestamp,
) -> (Vec<Event>, Vec<String>) {
    let mut cancels: Vec<_> =
        stored.jobs.iter().filter_map(|(&id, (row, _))| Some((row.state.cancel_requested_at?, id))).collect();
    cancels.sort_unstable_by(|a, b| b.cmp(a));
    let mut teller = CommitBuilder {
        stored,
        reached: BTreeMap::new(),
        lines: stored.ledger.iter().filter_map(|line| Some((line.work?.job()?, line))).collect(),
        cancels,
        commits: Vec::new(),
        discrepancies: Vec::new(),
    };
    teller.begin();
    for (seq, told) in &stored.events {
        let seen = feed.get(seq).copied().unwrap_or(end);
        teller.cancels_before(told.at, seen);
        let rows = teller.rows(told);
        teller.commit(told.at, seen, rows);
    }
    let is_lost = |at: &Timestamp| losses.iter().any(|lost| lost.contains(at));
    let mut gone = feed.iter().filter(|(seq, at)| !stored.events.contains_key(seq) && !is_lost(at));
    if let Some((seq, _)) = gone.next() {
        teller
            .discrepancies
            .push(format!("the feed delivered position {seq}, which the store does not contain"));
    }
    teller.finish(end);
    let event = |(at, commit)| Event { at, what: What::Commit(Box::new(commit)) };
    (teller.commits.into_iter().map(event).collect(), teller.discrepancies)
}

impl<'a> CommitBuilder<'a> {
    /// Adds rows that became durable at this engine time.
    fn commit(&mut self, now: Timestamp, seen: Timestamp, rows: Vec<Row>) {
        match self.commits.last_mut() {
            Some((at, commit)) if commit.now == now => {
                *at = seen;
                commit.rows.extend(rows);
            }
            // The checker detects engine time that runs backwards.
            _ => self.commits.push((seen, Commit { server: 0, epoch: Epoch(0), decided_at: now, now, rows })),
        }
    }

    /// Adds queues and workers, which were set up before the first job.
    fn begin(&mut self) {
        let Some((_, first)) = self.stored.events.first_key_value() else { return };
        let queues = self
            .stored
            .queues
            .iter()
            .map(|queue| Row::Queue { name: queue.name.clone(), settings: queue.settings.clone() });
        let workers = self.stored.workers.values().map(|worker| Row::Worker {
            worker: worker.id,
            status: WorkerStatus::Ready,
            admission: worker.admission,
            capacity: worker.capacity.clone(),
        });
        let rows = queues.chain(workers).collect();
        self.commit(first.at, Timestamp::from_micros(0), rows);
    }

    /// The cancellation of a running job has no event: the job is still running.
    fn cancels_before(&mut self, now: Timestamp, seen: Timestamp) {
        while let Some((at, job)) = self.cancels.pop_if(|(at, _)| *at < now) {
            let Some(reached) = self.reached.get_mut(&job) else { continue };
            let lives = reached.status.is_some_and(|status| !status.is_final());
            if lives && !std::mem::replace(&mut reached.cancelled, true) {
                let row = self.job_row(job, None);
                self.commit(at, seen, vec![row]);
            }
        }
    }

    fn rows(&mut self, told: &Told) -> Vec<Row> {
        match &told.kind {
            EventKind::Job { job, from, to, cause, execution, .. } => {
                self.step(told.at, *job, (*from, *to, *cause), *execution)
            }
            EventKind::Started { execution, .. } => {
                self.execution_row(*execution, Now::Known(ExecutionStatus::Running)).into_iter().collect()
            }
            EventKind::Overdue { job, .. } => {
                self.reached.entry(*job).or_default().overdue = true;
                Vec::new()
            }
            EventKind::Schedule { schedule, what: ScheduleEvent::Created, .. } => {
                self.schedule_row(*schedule, true).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Records the next transition of a job, with the state of its execution and its ledger entry.
    fn step(
        &mut self,
        at: Timestamp,
        job: JobId,
        step: (Option<JobStatus>, JobStatus, Cause),
        execution: Option<ExecutionId>,
    ) -> Vec<Row> {
        let Some((row, _)) = self.stored.jobs.get(&job) else {
            self.discrepancies.push(format!("the feed contains {job}, which the store does not"));
            return Vec::new();
        };
        let reached = self.reached.entry(job).or_default();
        let Some(entry) = row.state.history.get(reached.steps) else {
            self.discrepancies.push(format!("{job}: the feed contains {step:?}, its history does not"));
            return Vec::new();
        };
        if (entry.from, entry.to, entry.cause) != step || entry.at != at {
            self.discrepancies
                .push(format!("{job}: the feed has {step:?} at {at}, its history has {entry:?}"));
        }
        let (_, to, cause) = step;
        reached.steps += 1;
        reached.status = Some(to);
        // A cancellation at the same engine time as the end of the job is recorded with the end.
        reached.cancelled |= to.is_final() && row.state.cancel_requested_at.is_some();
        match cause {
            Cause::RunFailed | Cause::TimedOut => reached.run_failures += 1,
            Cause::StartFailed => reached.start_failures += 1,
            Cause::WorkerLost => reached.losses += 1,
            Cause::WorkerReturned => reached.losses = reached.losses.saturating_sub(1),
            Cause::Placed => reached.executions += 1,
            _ => {}
        }
        // No event reports that an execution with an unknown outcome was lost: another execution or the end of the
        // job replaced it.
        let is_settled = matches!(cause, Cause::Placed | Cause::WorkerReturned) || to.is_final();
        let unknown = if is_settled { reached.unknown.take() } else { None };
        let replaced = unknown.filter(|unknown| Some(*unknown) != execution);
        let now = match cause {
            Cause::Placed => Now::New,
            Cause::WorkerLost if !to.is_final() => {
                reached.unknown = execution;
                Now::Known(ExecutionStatus::Unknown)
            }
            Cause::WorkerReturned => Now::Returned { at },
            _ => Now::AsItsRow,
        };
        let mut rows = Vec::new();
        rows.extend(self.lines.remove(&job).map(|line| Row::Ledger(Box::new(line.clone()))));
        rows.extend(replaced.and_then(|id| self.execution_row(id, Now::AsItsRow)));
        if let Some(execution) = execution.and_then(|id| self.execution_row(id, now)) {
            if let (Now::New, Row::Execution(row)) = (now, &execution) {
                self.reached.entry(job).or_default().fence = row.fence;
            }
            rows.push(execution);
        }
        rows.push(self.job_row(job, Some(entry)));
        rows
    }

    /// Returns the current row of a job; its final row once the last transition is recorded.
    fn job_row(&self, job: JobId, step: Option<&HistoryEntry>) -> Row {
        let (row, spec) = &self.stored.jobs[&job];
        let reached = self.reached[&job];
        let state = &row.state;
        let last = reached.steps == state.history.len();
        let new = step.is_some() && reached.steps == 1;
        Row::Job(Box::new(JobRow {
            job,
            new,
            spec: new.then(|| Arc::clone(spec)),
            origin: row.origin.clone().filter(|_| new),
            step: row.step.clone().filter(|_| new),
            replica: row.replica.clone().filter(|_| new),
            status: if last { state.status } else { reached.status.unwrap_or(state.status) },
            version: reached.steps as u64,
            due_at: state.due_at,
            executions: if last { state.executions } else { reached.executions },
            run_failures: if last { state.run_failures } else { reached.run_failures },
            start_failures: if last { state.start_failures } else { reached.start_failures },
            losses: if last { state.losses } else { reached.losses },
            overdue: reached.overdue,
            fence: if last { state.fence } else { reached.fence },
            cancel_requested: reached.cancelled,
            steps: step.cloned().into_iter().collect(),
        }))
    }

    fn execution_row(&mut self, id: ExecutionId, now: Now) -> Option<Row> {
        let Some(record) = self.stored.executions.get(&id) else {
            self.discrepancies.push(format!("the feed contains {id}, which the store does not"));
            return None;
        };
        let status = match now {
            Now::New => ExecutionStatus::Assigned,
            Now::Known(status) => status,
            Now::Returned { at } if record.started_at.is_some_and(|started| started <= at) => {
                ExecutionStatus::Running
            }
            Now::Returned { .. } => ExecutionStatus::Assigned,
            Now::AsItsRow => record.status,
        };
        Some(Row::Execution(Box::new(ExecutionRow {
            execution: id,
            job: record.job,
            new: now == Now::New,
            number: record.number,
            fence: record.fence,
            worker: record.worker,
            status,
            assigned_at: record.assigned_at,
            started: status != ExecutionStatus::Assigned && record.started_at.is_some(),
            exit: record.outcome.as_ref().filter(|_| status.is_final()).and_then(|outcome| outcome.exit_code),
            preempted_by: None,
            started_at: record.started_at.filter(|_| status != ExecutionStatus::Assigned),
            health: None,
        })))
    }

    fn schedule_row(&self, id: ScheduleId, new: bool) -> Option<Row> {
        let (row, spec) = self.stored.schedules.get(&id)?;
        let state = &row.state;
        Some(Row::Schedule(Box::new(ScheduleRow {
            schedule: id,
            new,
            spec: new.then(|| Arc::clone(spec)),
            generation: state.generation,
            status: state.status,
            cursor: state.cursor,
            owed: state.owed.to_vec(),
            created_at: state.created_at,
        })))
    }

    /// Records the final state of everything, and every transition that the feed did not contain.
    fn finish(&mut self, end: Timestamp) {
        let stored = self.stored;
        for (&id, (row, _)) in &stored.jobs {
            let told = self.reached.get(&id).map_or(0, |reached| reached.steps);
            if told < row.state.history.len() {
                let entry = &row.state.history[told];
                self.discrepancies.push(format!("{id}: its history contains {entry:?}, the feed does not"));
            }
        }
        // A ledger entry may name a job that does not exist: the checker sees the entry anyway.
        let job_of = |line: &LedgerRecord| line.work.and_then(Work::job);
        let lines =
            stored.ledger.iter().filter(|line| job_of(line).is_none_or(|job| self.lines.contains_key(&job)));
        let mut rows: Vec<_> = lines.map(|line| Row::Ledger(Box::new(line.clone()))).collect();
        let unknown: Vec<_> = self.reached.values().filter_map(|reached| reached.unknown).collect();
        rows.extend(unknown.into_iter().filter_map(|id| self.execution_row(id, Now::AsItsRow)));
        let schedules: Vec<_> = stored.schedules.keys().copied().collect();
        rows.extend(schedules.into_iter().filter_map(|id| self.schedule_row(id, false)));
        let now = self.commits.last().map_or(end, |(_, commit)| commit.now);
        self.commits.push((end, Commit { server: 0, epoch: Epoch(0), decided_at: now, now, rows }));
    }
}
