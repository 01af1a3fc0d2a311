//! A model of the store: rows, leases with epochs, and only behaviour that a real store has.
//!
//! Every call takes no virtual time here. Its duration, and whether its answer arrives, is modelled in
//! `calls`.
//!
//! - [`Store`]: leases, commits, the changelog for standbys, loads, and lost commits. `rows`: how a batch
//!   changes the rows.
//! - `forgets`, `load_of`: the deliberate bugs of the store.
//!
//! # Cost
//! In worlds that may lose commits, each commit keeps a copy of the live rows, at most 128 of them.

mod rows;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use engine::input::CarriedResults;
use leader::membership::Owner;
use model::changelog::{ChangelogPage, ChangelogPosition, LiveChange, LiveKey};
use model::firing::{BackfillState, BackfillStatus, ScheduleState, ScheduleStatus};
use model::id::Epoch;
use model::record::{Batch, Change, Lease, LiveRow};
use model::run::{RunHead, StepOrigin, WorkflowHead};
use model::service::{ServiceHead, ServiceState};
use model::{
    Duration, ExecutionId, Fence, JobId, JobStatus, RunId, RunStatus, ScheduleId, ServerId, ServiceId,
    ShardId, StepStatus, Timestamp, WorkerId, WorkflowId, WorkflowSpec,
};

use self::rows::Rows;
pub use self::rows::StoreRecorder;
use super::plan::{LEASE_MAX, Mutation};
use crate::history::Commit;

/// Ownership of a shard.
#[derive(Debug, Clone, Copy)]
struct Ownership {
    owner: usize,
    id: ServerId,
    epoch: Epoch,
    /// End of the lease, on the clock of the store.
    until: Timestamp,
    /// Whether the lease was not released.
    is_owned: bool,
}

impl Ownership {
    const FREE: Self = Self {
        owner: 0,
        id: ServerId::from_bits(0),
        epoch: Epoch(0),
        until: Timestamp::from_micros(0),
        is_owned: false,
    };
}

/// A commit was refused because another server owns the shards; nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fenced;

/// State of the modelled store.
#[derive(Debug)]
pub(crate) struct Store {
    rows: Rows,
    shards: Vec<Ownership>,
    /// The newest successful commit call of each server.
    newest: BTreeMap<usize, u64>,
    mutation: Option<Mutation>,
    /// Rows before the newest commits, oldest first; kept only in worlds that may lose commits.
    past: VecDeque<Rows>,
    keeps_past: bool,
    /// Whether commits were lost and their executions on workers are not reconciled yet.
    tail_lost: bool,
    torn: u32,
    /// Number of commits that still fit into the reserve of a full volume; `None` if the volume has space.
    reserve: Option<u32>,
    /// Number of faults that fill the volume now.
    fills: u32,
    /// Error of the store's clock in milliseconds; positive if the clock is ahead.
    clock_error: i64,
    /// Changed keys of the newest commits, oldest first; at most [`CHANGELOG_MAX`].
    changelog: VecDeque<(ChangelogPosition, Vec<LiveChange>)>,
}

/// Maximum number of commits in the changelog.
const CHANGELOG_MAX: usize = 2_048;
/// Number of commits in a page of the changelog.
const CHANGELOG_PAGE: usize = 64;
/// Maximum number of kept states: more than the commits of five seconds.
const PAST_MAX: usize = 128;

impl Store {
    pub(crate) fn new(shards: u16, mutation: Option<Mutation>, keeps_past: bool) -> Self {
        Self {
            rows: Rows::default(),
            shards: vec![Ownership::FREE; usize::from(shards)],
            newest: BTreeMap::new(),
            mutation,
            past: VecDeque::new(),
            keeps_past: keeps_past || mutation == Some(Mutation::StoreReadsOldRows),
            tail_lost: false,
            torn: 0,
            reserve: None,
            fills: 0,
            clock_error: 0,
            changelog: [(ChangelogPosition { commit: 0, epoch: Epoch(0) }, Vec::new())].into(),
        }
    }

    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Fills the volume; `reserve` more commits fit into the reserve.
    pub(crate) fn fill(&mut self, reserve: u32) {
        self.fills += 1;
        self.reserve = Some(self.reserve.map_or(reserve, |left| left.min(reserve)));
    }

    /// Frees space, unless another fault still fills the volume.
    pub(crate) fn free(&mut self) {
        self.fills -= 1;
        if self.fills == 0 {
            self.reserve = None;
        }
    }

    /// Whether the volume is full. A store with a reserve still takes some commits.
    pub(crate) fn is_full(&self) -> bool {
        self.reserve.is_some()
    }

    /// Uses the reserve for a commit. Returns whether there was space in it.
    pub(crate) fn use_reserve(&mut self) -> bool {
        match &mut self.reserve {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    /// Sets the clock of the store forward or back.
    pub(crate) fn step_clock(&mut self, millis: i64) {
        self.clock_error += millis;
    }

    /// Returns the time by the clock of the store.
    pub(crate) fn clock(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_micros(now.as_micros().saturating_add(self.clock_error.saturating_mul(1_000)))
    }

    /// Returns the latest end of a lease, in microseconds of the store's clock; `None` if no shard has an owner.
    pub(crate) fn lease_end(&self) -> Option<i64> {
        let owned = self.shards.iter().filter(|shard| shard.is_owned);
        owned.map(|shard| shard.until.as_micros()).max()
    }

    /// Acquires all shards, if each is free or its lease has ended.
    pub(crate) fn acquire(
        &mut self,
        owner: usize,
        id: ServerId,
        ttl: Duration,
        now: Timestamp,
    ) -> Option<Vec<Lease>> {
        let now = self.clock(now);
        for shard in &mut self.shards {
            shard.until = shard.until.min(now + LEASE_MAX);
        }
        if self.shards.iter().any(|shard| shard.is_owned && shard.until > now) {
            return None;
        }
        let grows = u64::from(!self.has(Mutation::StoreReusesEpochs));
        for shard in &mut self.shards {
            *shard = Ownership {
                owner,
                id,
                epoch: Epoch((shard.epoch.0 + grows).max(1)),
                until: now + ttl,
                is_owned: true,
            };
        }
        Some(self.leases())
    }

    fn leases(&self) -> Vec<Lease> {
        let leases = self.shards.iter().zip(0..);
        leases.map(|(shard, id)| Lease { shard: ShardId(id), epoch: shard.epoch }).collect()
    }

    /// Whether no other server has acquired these shards since.
    pub(crate) fn holds(&self, leases: &[Lease]) -> bool {
        leases.iter().all(|lease| self.shards[usize::from(lease.shard.0)].epoch == lease.epoch)
    }

    pub(crate) fn renew(&mut self, leases: &[Lease], ttl: Duration, now: Timestamp) -> Result<(), Fenced> {
        if !self.holds(leases) {
            return Err(Fenced);
        }
        let until = self.clock(now) + ttl;
        self.shards.iter_mut().for_each(|shard| shard.until = until);
        Ok(())
    }

    /// Releases the shards, if no other server has acquired them.
    pub(crate) fn release(&mut self, leases: &[Lease]) {
        if self.holds(leases) {
            self.shards.iter_mut().for_each(|shard| shard.is_owned = false);
        }
    }

    /// Returns the owner of the shards, if any.
    pub(crate) fn owner(&self, now: Timestamp) -> Option<usize> {
        let now = self.clock(now);
        self.shards.first().filter(|shard| shard.is_owned && shard.until > now).map(|shard| shard.owner)
    }

    /// Returns the owner as other servers see it.
    pub(crate) fn owner_seen(&self, now: Timestamp) -> Option<Owner> {
        let now = self.clock(now);
        let owned = self.shards.first().filter(|shard| shard.is_owned && shard.until > now)?;
        Some(Owner { id: owned.id, lease_left: owned.until.since(now) })
    }

    /// Whether a job was ever committed, as seen by a reader.
    pub(crate) fn has_job(&self, job: JobId) -> bool {
        let rows = match self.past.back() {
            Some(past) if self.has(Mutation::StoreReadsOldRows) => past,
            _ => &self.rows,
        };
        rows.jobs.contains_key(&job) || rows.ended.contains_key(&job)
    }

    /// Returns the final status of a job that has ended.
    pub(crate) fn end_of(&self, job: JobId) -> Option<JobStatus> {
        self.rows.ended.get(&job).copied()
    }

    /// Whether no job, run, service or backfill is live.
    pub(crate) fn is_quiet(&self) -> bool {
        let running = |(_, state): &(_, BackfillState)| state.status == BackfillStatus::Running;
        let rows = &self.rows;
        rows.jobs.is_empty()
            && rows.runs.is_empty()
            && rows.services.is_empty()
            && !rows.backfills.values().any(running)
    }

    /// Returns every service that is not being deleted.
    pub(crate) fn services(&self) -> Vec<(ServiceId, Arc<ServiceHead>, ServiceState)> {
        let live = self.rows.services.iter().filter(|(_, (_, state))| !state.deleting);
        live.map(|(&id, (head, state))| (id, Arc::clone(head), state.clone())).collect()
    }

    /// Returns every live replica of a service.
    pub(crate) fn replicas(&self) -> Vec<JobId> {
        let live = self.rows.jobs.iter().filter(|(_, (head, _))| head.replica.is_some());
        live.map(|(id, _)| *id).collect()
    }

    /// Returns every workflow with its generation.
    pub(crate) fn workflows(&self) -> Vec<(WorkflowId, Arc<WorkflowHead>, u64)> {
        let all = self.rows.workflows.iter();
        all.map(|(&id, (head, state))| (id, Arc::clone(head), state.generation)).collect()
    }

    /// Returns every run that has not ended.
    pub(crate) fn runs(&self) -> Vec<(RunId, Arc<WorkflowSpec>)> {
        let all = self.rows.runs.iter();
        all.map(|(&id, (head, _))| (id, Arc::clone(&head.definition.workflow))).collect()
    }

    /// Returns the runs that failed recently, and the state that a retry takes over from them.
    pub(crate) fn failed_runs(&self) -> Vec<(RunId, Arc<RunHead>, CarriedResults)> {
        self.rows.failed.iter().cloned().collect()
    }

    /// Returns every live execution of a step.
    pub(crate) fn executions_of_steps(&self) -> Vec<(ExecutionId, Fence, Arc<StepOrigin>)> {
        let all = self.rows.executions.values().filter_map(|record| {
            let (head, _) = self.rows.jobs.get(&record.job)?;
            Some((record.id, record.fence, Arc::clone(head.step.as_ref()?)))
        });
        all.collect()
    }

    /// Returns the content of the last checkpoint of the execution's job, if the execution is the current one.
    pub(crate) fn checkpoint(&self, execution: ExecutionId, fence: Fence) -> Option<u64> {
        let current = self.rows.executions.get(&execution).filter(|record| record.fence == fence)?;
        self.rows.checkpoints.get(&current.job).copied()
    }

    /// Returns every schedule that is not completed, and every worker.
    pub(crate) fn known(&self) -> (Vec<ScheduleId>, Vec<WorkerId>) {
        let goes_on = |(_, (_, state)): &(_, &(_, ScheduleState))| state.status != ScheduleStatus::Completed;
        let schedules = self.rows.schedules.iter().filter(goes_on).map(|(id, _)| *id);
        (schedules.collect(), self.rows.workers.keys().copied().collect())
    }

    /// Returns the live execution of the same job, and its worker.
    pub(crate) fn newest_like(&self, execution: ExecutionId) -> Option<(WorkerId, ExecutionId, Fence)> {
        let job = self.rows.jobs_of.get(&execution)?;
        let newest = self.rows.jobs.get(job)?.1.execution?;
        self.rows.executions.get(&newest).map(|record| (record.worker, record.id, record.fence))
    }

    /// Returns the engine time of the newest commit.
    pub(crate) fn now(&self) -> Timestamp {
        self.rows.now
    }

    /// Loses the newest commits. Epochs grow, because fences are made of them: messages under the old epochs have no
    /// effect.
    pub(crate) fn lose_tail(&mut self, commits: u32) -> u32 {
        let mut lost = 0;
        self.shards.iter_mut().for_each(|shard| shard.epoch.0 += 1);
        while lost < commits
            && let Some(rows) = self.past.pop_back()
        {
            self.rows = rows;
            lost += 1;
        }
        self.tail_lost |= lost > 0;
        self.changelog.retain(|(place, _)| place.commit <= self.rows.commits);
        lost
    }

    /// Returns the end of the changelog.
    pub(crate) fn changelog_end(&self) -> ChangelogPosition {
        self.changelog.back().map_or(ChangelogPosition { commit: 0, epoch: Epoch(0) }, |(place, _)| *place)
    }

    /// Returns the keys that commits changed after a position; `None` if the changelog no longer contains it.
    pub(crate) fn changelog_since(&self, place: ChangelogPosition) -> Option<ChangelogPage> {
        let after = self.changelog.iter().position(|(known, _)| *known == place)? + 1;
        let commits = self.changelog.range(after..).take(CHANGELOG_PAGE);
        let end = commits.clone().next_back().map_or(place, |(end, _)| *end);
        let touched = commits.flat_map(|(_, touched)| touched).copied().collect();
        Some(ChangelogPage { touched, end, whole: end == self.changelog_end(), now: self.rows.now })
    }

    /// Counts the jobs of each status.
    pub(crate) fn count_jobs(&self) -> BTreeMap<JobStatus, u64> {
        let mut counts = BTreeMap::new();
        for (_, state) in self.rows.jobs.values() {
            *counts.entry(state.status).or_default() += 1;
        }
        counts
    }

    /// Returns the rows of these keys, as [`load`](Self::load) does.
    pub(crate) fn live_rows(&self, keys: &[LiveKey]) -> Vec<LiveRow> {
        if keys.is_empty() {
            return Vec::new();
        }
        let keys: BTreeSet<_> = keys.iter().copied().collect();
        let mut rows = self.load_of(|key| keys.contains(&key));
        rows.retain(|row| LiveKey::of(row).is_some_and(|key| keys.contains(&key)));
        rows
    }

    /// Whether workers may hold executions that the store lost.
    pub(crate) fn tail_lost(&self) -> bool {
        self.tail_lost && !self.has(Mutation::LostCommitsAreIgnored)
    }

    /// Records that every worker has reported since commits were lost.
    pub(crate) fn tail_reconciled(&mut self, leases: &[Lease]) -> Result<(), Fenced> {
        if !self.holds(leases) {
            return Err(Fenced);
        }
        self.tail_lost = false;
        Ok(())
    }

    /// Whether the commit directly before this one succeeded, so that no earlier commit of the server is missing.
    pub(crate) fn may_commit_behind(&self, server: usize, before: u64) -> bool {
        self.newest.get(&server) == Some(&before) || self.has(Mutation::StoreContinuesAfterAFailure)
    }

    /// Records a successful commit call.
    pub(crate) fn done(&mut self, server: usize, call: u64) {
        self.newest.insert(server, call);
    }

    /// Returns how the statistics contradict the rows.
    pub(crate) fn statistics_difference(&self) -> Option<String> {
        self.rows.statistics_difference()
    }

    /// Commits a batch, and returns what the store recorder sees of it.
    pub(crate) fn commit(
        &mut self,
        server: usize,
        leases: &[Lease],
        batch: &Batch,
        decided_at: Timestamp,
    ) -> Result<Commit, Fenced> {
        if !self.holds(leases) && !self.has(Mutation::StoreIgnoresEpochs) {
            return Err(Fenced);
        }
        if self.keeps_past {
            self.past.push_back(self.rows.clone());
            if self.past.len() > PAST_MAX {
                self.past.pop_front();
            }
        }
        let mut changes = batch.changes.clone();
        let mut rows = Vec::with_capacity(changes.len());
        if self.has(Mutation::StoreCommitsPartsOfBatches) {
            self.torn += 1;
            if self.torn.is_multiple_of(7) {
                changes.truncate(changes.len() / 2);
            }
        }
        changes.retain(|change| !self.forgets(change));
        let touched = LiveChange::by(&changes);
        for change in changes {
            rows.extend(self.rows.apply(change, self.mutation));
        }
        batch.statistics.tallies.iter().for_each(|part| self.rows.tally.add(&part.tally));
        self.rows.now = self.rows.now.max(batch.now);
        let epoch = leases.first().map_or(Epoch(0), |lease| lease.epoch);
        self.rows.commits += 1;
        self.changelog.push_back((ChangelogPosition { commit: self.rows.commits, epoch }, touched));
        if self.changelog.len() > CHANGELOG_MAX {
            self.changelog.pop_front();
        }
        let server = u32::try_from(server).unwrap_or(u32::MAX);
        Ok(Commit { server, epoch, decided_at, now: batch.now, rows })
    }

    fn forgets(&mut self, change: &Change) -> bool {
        match (self.mutation, change) {
            (Some(Mutation::StoreForgetsNewJobs), Change::Job { new: true, .. }) => {
                self.torn += 1;
                self.torn.is_multiple_of(11)
            }
            (Some(Mutation::StoreForgetsCancels), Change::Job { state, .. }) => {
                state.status == JobStatus::Cancelled
            }
            (Some(Mutation::StoreForgetsKeys), Change::Key(_)) => true,
            (Some(Mutation::StoreForgetsEndsOfSteps), Change::Step(record)) => {
                record.state.status.is_final() && record.key.item.is_none()
            }
            (Some(Mutation::StoreForgetsElements), Change::ElementBatch(_)) => true,
            (Some(Mutation::StoreForgetsCheckpoints), Change::Checkpoint(_)) => {
                self.torn += 1;
                self.torn.is_multiple_of(2)
            }
            (Some(Mutation::StoreForgetsTheLedger), Change::Ledger(record)) => record.work.is_none(),
            _ => false,
        }
    }

    /// Returns all live rows, from which an engine is built.
    pub(crate) fn load(&self) -> Vec<LiveRow> {
        self.load_of(|_| true)
    }

    /// Returns the live rows without unwanted schedules and jobs.
    fn load_of(&self, wanted: impl Fn(LiveKey) -> bool) -> Vec<LiveRow> {
        let mut rows = self.rows.live(wanted);
        if self.mutation.is_none() {
            return rows;
        }
        if self.has(Mutation::LoadForgetsTriggers) {
            rows.iter_mut().for_each(forget_triggers);
        }
        if self.has(Mutation::LoadForgetsAttemptsOfRuns) {
            rows.iter_mut().for_each(forget_tries);
        }
        rows.retain(|row| {
            !matches!(
                (self.mutation, row),
                (Some(Mutation::LoadForgetsExecutions), LiveRow::Execution(_))
                    | (Some(Mutation::LoadForgetsQueues), LiveRow::Queue(_))
                    | (Some(Mutation::LoadForgetsWorkers), LiveRow::Worker(_))
                    | (Some(Mutation::LoadForgetsElements), LiveRow::ElementBatch(_))
            ) && !matches!(
                (self.mutation, row),
                (Some(Mutation::LoadForgetsSteps), LiveRow::Step(record))
                    if record.state.status == StepStatus::Succeeded
            ) && !matches!(
                (self.mutation, row),
                (Some(Mutation::LoadForgetsJobs), LiveRow::Job { state, .. })
                    if state.status == JobStatus::Retrying
            ) && !matches!(
                (self.mutation, row),
                (Some(Mutation::LoadForgetsRetryingRuns), LiveRow::Run { state, .. })
                    if state.status == RunStatus::Retrying
            )
        });
        rows
    }
}

fn forget_triggers(row: &mut LiveRow) {
    if let LiveRow::Workflow { head, state, .. } = row {
        Arc::make_mut(&mut head.spec).triggers.clear();
        state.triggers.clear();
    }
}

fn forget_tries(row: &mut LiveRow) {
    if let LiveRow::Run { state, .. } = row
        && state.status == RunStatus::Running
    {
        state.retry = None;
    }
}
