//! Rows of jobs and executions that a transaction has changed and not written yet.
//!
//! Within moments a job is added, starts and ends. A replica that applies these changes in one transaction writes only the
//! last state of each row: one insertion into the history, instead of an insertion, an update and a move. The rows are
//! the same as if each change had been written, and so is what breaks an invariant: a row that is added and ends would never
//! meet the live rows that forbid it, so it is compared with them when it is written. A comparison that is too strict costs a
//! repetition of the transaction, with each command alone.
//!
//! Code that reads or changes these tables in another way calls [`Pending::write`] before.

use std::borrow::Cow;
use std::collections::HashSet;

use indexmap::IndexMap;
use indexmap::map::Entry;
use model::{ExecutionId, JobId};
use rusqlite::OptionalExtension;

use crate::batch::Counters;
use crate::command::rows::{ExecutionColumns, JobColumns, JobHeadColumns, Key};
use crate::sqlite::error::Failure;
use crate::sqlite::statements::Statements;

/// Changed rows, in the order of their first changes.
#[derive(Default)]
pub(in crate::sqlite) struct Pending<'a> {
    jobs: IndexMap<Key, PendingJob<'a>>,
    executions: IndexMap<Key, PendingExecution<'a>>,
    /// Job and number of each of these executions.
    numbers: HashSet<(Key, u32)>,
    /// Of the commit that is read.
    counters: Counters,
    /// Of the commits that were read.
    counted: Counters,
    /// Engine time in Unix microseconds, and position of the next event.
    reached: Option<(i64, u64)>,
}

/// The last state of a changed job.
pub(super) struct PendingJob<'a> {
    /// Whether the store has a row of it.
    pub(super) stored: bool,
    pub(super) namespace: Cow<'a, str>,
    pub(super) state: JobColumns<'a>,
    /// Always for a new job.
    pub(super) head: Option<JobHeadColumns<'a>>,
}

/// The last state of a changed execution.
pub(super) struct PendingExecution<'a> {
    pub(super) row: ExecutionColumns<'a>,
    /// Those of its job, if it is new.
    pub(super) names: Option<JobNames<'a>>,
}

/// Namespace and name of a job.
pub(super) struct JobNames<'a> {
    pub(super) namespace: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
}

impl<'a> From<(&'a str, &'a str)> for JobNames<'a> {
    fn from((namespace, name): (&'a str, &'a str)) -> Self {
        Self { namespace: Cow::Borrowed(namespace), name: Cow::Borrowed(name) }
    }
}

impl<'a> Pending<'a> {
    pub(super) fn add_job(
        &mut self,
        id: Key,
        state: JobColumns<'a>,
        head: JobHeadColumns<'a>,
    ) -> Result<(), Failure> {
        let Entry::Vacant(place) = self.jobs.entry(id) else {
            return Err(exists_already(&id));
        };
        self.counters.add(head.namespace, state.status, 1);
        let namespace = Cow::Borrowed(head.namespace);
        place.insert(PendingJob { stored: false, namespace, state, head: Some(head) });
        Ok(())
    }

    pub(super) fn change_job(
        &mut self,
        id: Key,
        state: JobColumns<'a>,
        head: Option<JobHeadColumns<'a>>,
        statements: &mut Statements<'_>,
    ) -> Result<(), Failure> {
        let not_live = || Failure::Broken(format!("the changed job {} is not live", job_id(&id)));
        match self.jobs.entry(id) {
            Entry::Occupied(mut place) => {
                let job = place.get_mut();
                if job.state.ended {
                    return Err(not_live());
                }
                self.counters.add(&job.namespace, job.state.status, -1);
                if let Some(head) = head {
                    job.namespace = Cow::Borrowed(head.namespace);
                    job.head = Some(head);
                }
                job.state = state;
                self.counters.add(&job.namespace, job.state.status, 1);
            }
            Entry::Vacant(place) => {
                let mut rows = statements.job_look.query([id])?;
                let row = rows.next()?.ok_or_else(not_live)?;
                let before = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
                self.counters.add(before, row.get(0)?, -1);
                let namespace = match &head {
                    Some(head) => Cow::Borrowed(head.namespace),
                    None => Cow::Owned(before.to_owned()),
                };
                self.counters.add(&namespace, state.status, 1);
                place.insert(PendingJob { stored: true, namespace, state, head });
            }
        }
        Ok(())
    }

    pub(super) fn add_execution(
        &mut self,
        row: ExecutionColumns<'a>,
        names: Option<(&'a str, &'a str)>,
        statements: &mut Statements<'_>,
    ) -> Result<(), Failure> {
        let ExecutionColumns { id, job, number, fence, .. } = row;
        // Execution 1 is the first of its job; a second one with this number fails as a duplicate.
        if number > 1 {
            self.write_executions(statements)?;
            if statements.execution_rival.exists(rusqlite::params![job, number, fence])? {
                return Err(Failure::Broken(format!(
                    "the fence {fence} of execution {number} of the job {} does not increase with its number",
                    job_id(&job)
                )));
            }
        }
        let names = match names {
            Some(names) => Some(names.into()),
            None => self.names_of(&job, statements)?,
        };
        let names = names.ok_or_else(|| {
            let (execution, job) = (execution_id(&id), job_id(&job));
            Failure::Broken(format!(
                "the new execution {execution} belongs to the job {job}, which is not live"
            ))
        })?;
        if !self.numbers.insert((job, number)) {
            return Err(execution_exists_already(&id));
        }
        match self.executions.entry(id) {
            Entry::Vacant(place) => {
                place.insert(PendingExecution { row, names: Some(names) });
                Ok(())
            }
            Entry::Occupied(_) => Err(execution_exists_already(&id)),
        }
    }

    /// Returns the names of a live job.
    fn names_of(&self, job: &Key, statements: &mut Statements<'_>) -> Result<Option<JobNames<'a>>, Failure> {
        match self.jobs.get(job) {
            Some(pending) if pending.state.ended => Ok(None),
            Some(PendingJob { head: Some(head), .. }) => Ok(Some((head.namespace, head.name).into())),
            _ => {
                let names = statements.job_names.query_row([job], |row| {
                    Ok(JobNames { namespace: Cow::Owned(row.get(0)?), name: Cow::Owned(row.get(1)?) })
                });
                Ok(names.optional()?)
            }
        }
    }

    pub(super) fn change_execution(&mut self, row: ExecutionColumns<'a>) -> Result<(), Failure> {
        match self.executions.entry(row.id) {
            Entry::Vacant(place) => {
                self.numbers.insert((row.job, row.number));
                place.insert(PendingExecution { row, names: None });
            }
            Entry::Occupied(mut place) => {
                let before = &place.get().row;
                let same = |row: &ExecutionColumns<'_>| (row.job, row.number, row.fence);
                if before.ended || same(before) != same(&row) {
                    return Err(not_among_live(&row.id));
                }
                place.get_mut().row = row;
            }
        }
        Ok(())
    }

    /// Notes the end of a commit.
    pub(super) fn reach(&mut self, now: i64, next_event: u64) {
        self.counted.absorb(&mut self.counters);
        let now = self.reached.map_or(now, |(before, _)| before.max(now));
        self.reached = Some((now, next_event));
    }

    /// Writes all rows.
    pub(in crate::sqlite) fn write(&mut self, statements: &mut Statements<'_>) -> Result<(), Failure> {
        let Some((now, next_event)) = self.reached.take() else { return Ok(()) };
        self.write_executions(statements)?;
        for (id, job) in self.jobs.drain(..) {
            job.write(&id, statements)?;
        }
        super::write_counters(statements, std::mem::take(&mut self.counted).all())?;
        statements.advance.execute(rusqlite::params![now, next_event])?;
        Ok(())
    }

    fn write_executions(&mut self, statements: &mut Statements<'_>) -> Result<(), Failure> {
        self.numbers.clear();
        self.executions.drain(..).try_for_each(|(id, execution)| execution.write(&id, statements))
    }
}

pub(super) fn job_id(key: &Key) -> JobId {
    JobId::from_bits(u128::from_be_bytes(*key))
}

fn execution_id(key: &Key) -> ExecutionId {
    ExecutionId::from_bits(u128::from_be_bytes(*key))
}

pub(super) fn exists_already(job: &Key) -> Failure {
    Failure::Broken(format!("the new job {} exists already", job_id(job)))
}

pub(super) fn execution_exists_already(id: &Key) -> Failure {
    let id = execution_id(id);
    Failure::Broken(format!("the new execution {id} exists already, or another one has its number"))
}

pub(super) fn not_among_live(id: &Key) -> Failure {
    let id = execution_id(id);
    Failure::Broken(format!("the changed execution {id} is not among the live executions"))
}
