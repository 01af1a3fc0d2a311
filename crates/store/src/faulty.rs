//! A store that fails on purpose, for the tests of those who use one.
//!
//! [`FaultyStore`] passes everything on to the store inside, but for the calls that a test chose: the
//! nth call of an operation fails before or after it was done, or stalls until the test lets go.
//!
//! ```ignore
//! let store = FaultyStore::new(inner);
//! store.inject(Operation::Commit, 3, Fault::After);     // done, and the answer is lost
//! let stall = store.stall(Operation::Commit, 5);
//! stall.reached().await;                                // the fifth commit waits …
//! stall.release();                                      // … until here
//! ```
//!
//! In a simulation ([`FaultyStore::simulated`]) each call takes as much virtual time as the test says, whatever
//! the store inside does on threads of its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use async_trait::async_trait;
use model::calendar::CalendarRecord;
use model::checkpoint::CheckpointRecord;
use model::firing::LedgerRecord;
use model::record::{Batch, Lease, LiveRow, QueueRecord, WorkerRecord};
use model::run::{ElementBatch, StepRecord, WorkflowHead};
use model::{
    BackfillId, Duration, ExecutionId, JobId, RunId, ScheduleId, ServerId, ShardId, Timestamp, WorkflowId,
};
use tokio::sync::{Notify, mpsc};

use crate::changelog::Changelog;
use crate::cluster::{Cluster, ServerRecord};
use crate::query::{
    Artifact, ArtifactDeletion, ArtifactFilter, BackfillRow, Counts, DeletionReason, EventPage,
    ExecutionFilter, ExecutionRow, JobFilter, JobRow, LedgerCounts, LedgerFilter, LedgerPlace, Page, Paged,
    Quarantined, RunFilter, RunRow, ScheduleCounts, ScheduleFilter, ScheduleRow, Token, WorkflowFilter,
    WorkflowRow,
};
use crate::{Committed, EventSeq, Loaded, Store, StoreError};

/// How many calls of a broken operation go wrong before it is healed: more than any test makes.
const BROKEN_CALLS: u64 = 10_000;

/// The methods of [`Store`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the method of its name")]
pub enum Operation {
    Acquire,
    Renew,
    Release,
    LostTails,
    TailsReconciled,
    Load,
    Commit,
    Job,
    Checkpoint,
    Jobs,
    Counts,
    Schedule,
    ScheduleNamed,
    Schedules,
    ScheduleCounts,
    Upcoming,
    Ledger,
    LedgerCounts,
    Backfill,
    Backfills,
    Calendars,
    Calendar,
    Workflow,
    WorkflowNamed,
    WorkflowVersion,
    Workflows,
    Run,
    Runs,
    RunSteps,
    RunItems,
    ElementBatches,
    Executions,
    Execution,
    Events,
    Workers,
    Queues,
    PutToken,
    Tokens,
    PutArtifact,
    Artifacts,
    DeleteArtifact,
    SupersededArtifacts,
    ExpiredJobs,
    DeleteJobs,
    ExpiredRuns,
    DeleteRuns,
    TrimEvents,
    TrimLedger,
    Quarantined,
    Announce,
    Cluster,
    SetDraining,
    Depart,
    Secret,
    Check,
}

/// What goes wrong with a call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Fault {
    /// Not done; [`StoreError::Unavailable`].
    Before,
    /// Done, and answered with [`StoreError::OutcomeUnknown`].
    After,
    /// Not done; [`StoreError::Full`].
    Full,
    /// Not done; [`StoreError::Fatal`], as for every call after it.
    Fatal,
    /// Not done; [`StoreError::Fenced`] for this shard.
    Fenced(ShardId),
    /// Done, once the test lets go of it.
    Stall(Arc<Stall>),
}

/// A call that waits.
#[derive(Debug, Default)]
pub struct Stall {
    reached: Notify,
    released: Notify,
}

impl Stall {
    /// Waits until the call is there, for one caller.
    pub async fn reached(&self) {
        self.reached.notified().await;
    }

    /// Lets the call go on; also one that is not there yet.
    pub fn release(&self) {
        self.released.notify_one();
    }

    async fn hold(&self) {
        self.reached.notify_one();
        self.released.notified().await;
    }
}

#[derive(Debug, Default)]
struct Plan {
    calls: HashMap<Operation, u64>,
    faults: HashMap<(Operation, u64), Fault>,
    fatal: bool,
}

/// What a simulation makes of the calls of a store.
pub trait Simulation: std::fmt::Debug + Send + Sync + 'static {
    /// How long a call of `operation` is on its way to the store, and how long its answer back.
    fn delays(&self, operation: Operation) -> [std::time::Duration; 2];

    /// How long a call waits for a store that is out of reach now before it fails; `None` if it can be reached. One that
    /// refuses fails at once; one whose answers are lost, only when the caller's patience ends.
    fn away(&self) -> Option<std::time::Duration>;

    /// A call reaches the store, which does it now.
    fn reached(&self, operation: Operation);

    /// A batch became durable.
    fn committed(&self, leases: &[Lease], batch: &Batch);

    /// Shards were taken, or their leases renewed, for `ttl` from now.
    fn leased(&self, leases: &[Lease], ttl: Duration);
}

/// A store around another that fails where it is told to.
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: Arc<S>,
    plan: Mutex<Plan>,
    /// Held by one commit after the other, in their order.
    turn: tokio::sync::Mutex<()>,
    waiting_commits: AtomicUsize,
    /// A commit failed, and nothing was loaded since.
    halted: AtomicBool,
    simulation: Option<Simulated>,
    changelog: Option<Box<dyn Changelog>>,
    /// Whether it says that other servers share it.
    shared: bool,
}

/// A store on virtual time.
#[derive(Debug)]
struct Simulated {
    world: Box<dyn Simulation>,
    /// Where the store's own threads come from: their races must not show on the runtime of the caller.
    aside: tokio::runtime::Handle,
}

impl<S: Store> FaultyStore<S> {
    /// Passes everything on until a fault is injected.
    pub fn new(inner: S) -> Self {
        Self::around(Arc::new(inner), None)
    }

    fn around(inner: Arc<S>, simulation: Option<Simulated>) -> Self {
        Self {
            inner,
            plan: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            waiting_commits: AtomicUsize::new(0),
            halted: AtomicBool::new(false),
            shared: simulation.is_some(),
            simulation,
            changelog: None,
        }
    }

    /// One whose changelog says what the test lets it say.
    #[must_use]
    pub fn with_changelog(mut self, changelog: impl Changelog + 'static) -> Self {
        self.changelog = Some(Box::new(changelog));
        self
    }

    /// One of which other servers could own shards, as of a database.
    #[must_use]
    pub fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// The same on virtual time: a call is done at one instant of it.
    ///
    /// The thread stands still meanwhile, so nothing else happens at that instant. Several may lead to one
    /// store, each with faults of its own. What the store does on other threads it does on those of `aside`.
    pub fn simulated(inner: Arc<S>, world: impl Simulation, aside: tokio::runtime::Handle) -> Self {
        Self::around(inner, Some(Simulated { world: Box::new(world), aside }))
    }

    /// The store inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Makes the `nth` call of `operation`, counted from 1 since the store was made, go wrong.
    pub fn inject(&self, operation: Operation, nth: u64, fault: Fault) {
        self.plan().faults.insert((operation, nth), fault);
    }

    /// Makes the next call of `operation` go wrong.
    pub fn inject_next(&self, operation: Operation, fault: Fault) {
        let next = self.calls(operation) + 1;
        self.inject(operation, next, fault);
    }

    /// Makes the `nth` call of `operation` wait.
    pub fn stall(&self, operation: Operation, nth: u64) -> Arc<Stall> {
        let stall = Arc::new(Stall::default());
        self.inject(operation, nth, Fault::Stall(Arc::clone(&stall)));
        stall
    }

    /// Makes every call of `operation` from now on go wrong, until [`heal`](Self::heal).
    pub fn break_down(&self, operation: Operation) {
        let next = self.calls(operation) + 1;
        for nth in next..next + BROKEN_CALLS {
            self.inject(operation, nth, Fault::Before);
        }
    }

    /// Lets calls of `operation` that begin from now on go well.
    pub fn heal(&self, operation: Operation) {
        self.plan().faults.retain(|(broken, _), _| *broken != operation);
    }

    /// How often `operation` was called, whatever came of it.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.plan().calls.get(&operation).copied().unwrap_or(0)
    }

    /// How many commits wait for the one before them.
    pub fn waiting_commits(&self) -> usize {
        self.waiting_commits.load(Ordering::Relaxed)
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_fault(&self, operation: Operation) -> Option<Fault> {
        let mut plan = self.plan();
        let calls = plan.calls.entry(operation).or_default();
        *calls += 1;
        let nth = *calls;
        let fault = plan.faults.remove(&(operation, nth));
        plan.fatal |= matches!(fault, Some(Fault::Fatal));
        if plan.fatal { Some(Fault::Fatal) } else { fault }
    }

    async fn call<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let Some(Simulated { world, aside }) = &self.simulation else {
            return self.attempt(operation, work).await;
        };
        let [there, back] = world.delays(operation);
        tokio::time::sleep(there).await;
        if !back_in_time(world.as_ref()).await {
            return Err(StoreError::Unavailable { source: INJECTED.into() });
        }
        let done = async {
            world.reached(operation);
            let _aside = aside.enter();
            block_on(work)
        };
        let result = self.attempt(operation, done).await;
        tokio::time::sleep(back).await;
        if !back_in_time(world.as_ref()).await {
            return Err(StoreError::OutcomeUnknown { source: INJECTED.into() });
        }
        result
    }

    async fn attempt<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        match self.next_fault(operation) {
            None => work.await,
            Some(Fault::Before) => Err(StoreError::Unavailable { source: INJECTED.into() }),
            Some(Fault::After) => {
                work.await?;
                Err(StoreError::OutcomeUnknown { source: INJECTED.into() })
            }
            Some(Fault::Full) => Err(StoreError::Full),
            Some(Fault::Fatal) => Err(StoreError::Fatal { reason: INJECTED.into() }),
            Some(Fault::Fenced(shard)) => Err(StoreError::Fenced { shard }),
            Some(Fault::Stall(stall)) => {
                stall.hold().await;
                work.await
            }
        }
    }
}

/// Waits while the store is out of reach. Returns whether it came back before the call fails.
async fn back_in_time(world: &dyn Simulation) -> bool {
    let since = tokio::time::Instant::now();
    while let Some(longest) = world.away() {
        if since.elapsed() >= longest {
            return false;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    true
}

/// Counts one among those that wait, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn among(all: &'a AtomicUsize) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(all)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

const INJECTED: &str = "a fault was injected";

/// Waits on this very thread, and takes nothing else up meanwhile.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    // Else the runtime would have it wait for the end of the task that waits here.
    let mut work = std::pin::pin!(tokio::task::unconstrained(work));
    loop {
        match work.as_mut().poll(&mut context) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[async_trait]
impl<S: Store> Store for FaultyStore<S> {
    fn shards(&self) -> u16 {
        self.inner.shards()
    }

    async fn acquire(
        &self,
        shards: &[ShardId],
        owner: &str,
        ttl: Duration,
    ) -> Result<Vec<Lease>, StoreError> {
        let taken = async {
            let leases = self.inner.acquire(shards, owner, ttl).await?;
            self.simulation.iter().for_each(|simulated| simulated.world.leased(&leases, ttl));
            Ok(leases)
        };
        self.call(Operation::Acquire, taken).await
    }

    async fn renew(&self, leases: &[Lease], ttl: Duration) -> Result<(), StoreError> {
        let renewed = async {
            self.inner.renew(leases, ttl).await?;
            self.simulation.iter().for_each(|simulated| simulated.world.leased(leases, ttl));
            Ok(())
        };
        self.call(Operation::Renew, renewed).await
    }

    fn former_owner(&self) -> Duration {
        self.inner.former_owner()
    }

    fn is_exclusive(&self) -> bool {
        !self.shared && self.inner.is_exclusive()
    }

    fn has_reserve(&self) -> bool {
        !self.shared && self.inner.has_reserve()
    }

    async fn release(&self, leases: &[Lease]) -> Result<(), StoreError> {
        self.call(Operation::Release, self.inner.release(leases)).await
    }

    async fn lost_tails(&self, leases: &[Lease]) -> Result<Vec<ShardId>, StoreError> {
        self.call(Operation::LostTails, self.inner.lost_tails(leases)).await
    }

    async fn tails_reconciled(&self, leases: &[Lease]) -> Result<(), StoreError> {
        self.call(Operation::TailsReconciled, self.inner.tails_reconciled(leases)).await
    }

    async fn clock(&self) -> Result<Option<Timestamp>, StoreError> {
        self.inner.clock().await
    }

    async fn reset_clock(&self, now: Timestamp) -> Result<(), StoreError> {
        self.inner.reset_clock(now).await
    }

    async fn note_restored(&self) -> Result<(), StoreError> {
        self.inner.note_restored().await
    }

    async fn load(&self, leases: &[Lease], rows: mpsc::Sender<Vec<LiveRow>>) -> Result<Loaded, StoreError> {
        let loaded = async {
            self.halted.store(false, Ordering::Relaxed);
            self.inner.load(leases, rows).await
        };
        self.call(Operation::Load, loaded).await
    }

    async fn commit(&self, leases: &[Lease], batch: Arc<Batch>) -> Result<Committed, StoreError> {
        let committed = async {
            let committed = self.inner.commit(leases, Arc::clone(&batch)).await?;
            self.simulation.iter().for_each(|simulated| simulated.world.committed(leases, &batch));
            Ok(committed)
        };
        let waiting = Waiting::among(&self.waiting_commits);
        let _turn = self.turn.lock().await;
        drop(waiting);
        if self.halted.load(Ordering::Relaxed) && !self.plan().fatal {
            return Err(StoreError::Unavailable { source: "a commit before this one failed".into() });
        }
        let result = self.call(Operation::Commit, committed).await;
        let may_be_repeated = matches!(result, Err(StoreError::Full)) && !self.has_reserve();
        self.halted.fetch_or(result.is_err() && !may_be_repeated, Ordering::Relaxed);
        result
    }

    fn commits_ahead(&self) -> usize {
        self.inner.commits_ahead()
    }

    /// Its methods are those of the store inside: no fault comes in their way.
    fn changelog(&self) -> Option<&dyn Changelog> {
        self.changelog.as_deref().or_else(|| self.inner.changelog())
    }

    async fn job(&self, id: JobId) -> Result<Option<JobRow>, StoreError> {
        self.call(Operation::Job, self.inner.job(id)).await
    }

    async fn checkpoint(&self, job: JobId) -> Result<Option<CheckpointRecord>, StoreError> {
        self.call(Operation::Checkpoint, self.inner.checkpoint(job)).await
    }

    async fn jobs(&self, filter: &JobFilter, page: Page<JobId>) -> Result<Paged<JobRow>, StoreError> {
        self.call(Operation::Jobs, self.inner.jobs(filter, page)).await
    }

    async fn counts(&self, namespace: Option<&str>) -> Result<Counts, StoreError> {
        self.call(Operation::Counts, self.inner.counts(namespace)).await
    }

    async fn schedule(&self, id: ScheduleId) -> Result<Option<ScheduleRow>, StoreError> {
        self.call(Operation::Schedule, self.inner.schedule(id)).await
    }

    async fn schedule_named(&self, namespace: &str, name: &str) -> Result<Option<ScheduleRow>, StoreError> {
        self.call(Operation::ScheduleNamed, self.inner.schedule_named(namespace, name)).await
    }

    async fn schedules(
        &self,
        filter: &ScheduleFilter,
        page: Page<ScheduleId>,
    ) -> Result<Paged<ScheduleRow>, StoreError> {
        self.call(Operation::Schedules, self.inner.schedules(filter, page)).await
    }

    async fn schedule_counts(&self, namespace: Option<&str>) -> Result<ScheduleCounts, StoreError> {
        self.call(Operation::ScheduleCounts, self.inner.schedule_counts(namespace)).await
    }

    async fn upcoming(
        &self,
        filter: &ScheduleFilter,
        after: Option<(Timestamp, ScheduleId)>,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, StoreError> {
        self.call(Operation::Upcoming, self.inner.upcoming(filter, after, limit)).await
    }

    async fn ledger(
        &self,
        filter: &LedgerFilter,
        page: Page<LedgerPlace>,
    ) -> Result<Paged<(LedgerPlace, LedgerRecord)>, StoreError> {
        self.call(Operation::Ledger, self.inner.ledger(filter, page)).await
    }

    async fn ledger_counts(
        &self,
        schedule: ScheduleId,
        since: Option<Timestamp>,
    ) -> Result<LedgerCounts, StoreError> {
        self.call(Operation::LedgerCounts, self.inner.ledger_counts(schedule, since)).await
    }

    async fn backfill(&self, id: BackfillId) -> Result<Option<BackfillRow>, StoreError> {
        self.call(Operation::Backfill, self.inner.backfill(id)).await
    }

    async fn backfills(
        &self,
        schedule: Option<ScheduleId>,
        namespace: Option<&str>,
        page: Page<BackfillId>,
    ) -> Result<Paged<BackfillRow>, StoreError> {
        self.call(Operation::Backfills, self.inner.backfills(schedule, namespace, page)).await
    }

    async fn calendars(&self, namespace: Option<&str>) -> Result<Vec<CalendarRecord>, StoreError> {
        self.call(Operation::Calendars, self.inner.calendars(namespace)).await
    }

    async fn calendar(&self, namespace: &str, name: &str) -> Result<Option<CalendarRecord>, StoreError> {
        self.call(Operation::Calendar, self.inner.calendar(namespace, name)).await
    }

    async fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, StoreError> {
        self.call(Operation::Workflow, self.inner.workflow(id)).await
    }

    async fn workflow_named(&self, namespace: &str, name: &str) -> Result<Option<WorkflowRow>, StoreError> {
        self.call(Operation::WorkflowNamed, self.inner.workflow_named(namespace, name)).await
    }

    async fn workflow_version(
        &self,
        id: WorkflowId,
        generation: u64,
    ) -> Result<Option<WorkflowHead>, StoreError> {
        self.call(Operation::WorkflowVersion, self.inner.workflow_version(id, generation)).await
    }

    async fn workflows(
        &self,
        filter: &WorkflowFilter,
        page: Page<WorkflowId>,
    ) -> Result<Paged<WorkflowRow>, StoreError> {
        self.call(Operation::Workflows, self.inner.workflows(filter, page)).await
    }

    async fn run(&self, id: RunId) -> Result<Option<RunRow>, StoreError> {
        self.call(Operation::Run, self.inner.run(id)).await
    }

    async fn runs(&self, filter: &RunFilter, page: Page<RunId>) -> Result<Paged<RunRow>, StoreError> {
        self.call(Operation::Runs, self.inner.runs(filter, page)).await
    }

    async fn run_steps(&self, run: RunId) -> Result<Vec<StepRecord>, StoreError> {
        self.call(Operation::RunSteps, self.inner.run_steps(run)).await
    }

    async fn run_items(
        &self,
        run: RunId,
        step: u32,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<StepRecord>, StoreError> {
        self.call(Operation::RunItems, self.inner.run_items(run, step, after, limit)).await
    }

    async fn element_batches(&self, run: RunId) -> Result<Vec<ElementBatch>, StoreError> {
        self.call(Operation::ElementBatches, self.inner.element_batches(run)).await
    }

    async fn executions(
        &self,
        filter: &ExecutionFilter,
        page: Page<ExecutionId>,
    ) -> Result<Paged<ExecutionRow>, StoreError> {
        self.call(Operation::Executions, self.inner.executions(filter, page)).await
    }

    async fn execution(&self, id: ExecutionId) -> Result<Option<ExecutionRow>, StoreError> {
        self.call(Operation::Execution, self.inner.execution(id)).await
    }

    async fn events(&self, after: EventSeq, limit: usize) -> Result<EventPage, StoreError> {
        self.call(Operation::Events, self.inner.events(after, limit)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.call(Operation::Workers, self.inner.workers()).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>, StoreError> {
        self.call(Operation::Queues, self.inner.queues()).await
    }

    async fn put_token(&self, token: &Token) -> Result<(), StoreError> {
        self.call(Operation::PutToken, self.inner.put_token(token)).await
    }

    async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        self.call(Operation::Tokens, self.inner.tokens()).await
    }

    async fn put_artifact(&self, artifact: &Artifact) -> Result<(), StoreError> {
        self.call(Operation::PutArtifact, self.inner.put_artifact(artifact)).await
    }

    async fn artifacts(&self, filter: &ArtifactFilter, limit: usize) -> Result<Vec<Artifact>, StoreError> {
        self.call(Operation::Artifacts, self.inner.artifacts(filter, limit)).await
    }

    async fn delete_artifact(
        &self,
        artifact: &Artifact,
        reason: DeletionReason,
    ) -> Result<ArtifactDeletion, StoreError> {
        self.call(Operation::DeleteArtifact, self.inner.delete_artifact(artifact, reason)).await
    }

    async fn superseded_artifacts(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Artifact>, StoreError> {
        self.call(Operation::SupersededArtifacts, self.inner.superseded_artifacts(before, limit)).await
    }

    async fn expired_jobs(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(JobId, Vec<ExecutionId>)>, StoreError> {
        self.call(Operation::ExpiredJobs, self.inner.expired_jobs(now, limit)).await
    }

    async fn delete_jobs(&self, jobs: &[JobId]) -> Result<(), StoreError> {
        self.call(Operation::DeleteJobs, self.inner.delete_jobs(jobs)).await
    }

    async fn expired_runs(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.call(Operation::ExpiredRuns, self.inner.expired_runs(now, limit)).await
    }

    async fn delete_runs(&self, runs: &[RunId]) -> Result<(), StoreError> {
        self.call(Operation::DeleteRuns, self.inner.delete_runs(runs)).await
    }

    async fn trim_events(&self, before: Timestamp) -> Result<(), StoreError> {
        self.call(Operation::TrimEvents, self.inner.trim_events(before)).await
    }

    async fn trim_ledger(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.call(Operation::TrimLedger, self.inner.trim_ledger(before, limit)).await
    }

    async fn quarantined(&self, limit: usize) -> Result<Vec<Quarantined>, StoreError> {
        self.call(Operation::Quarantined, self.inner.quarantined(limit)).await
    }

    async fn announce(
        &self,
        server: &ServerRecord,
        lag: Option<Duration>,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        self.call(Operation::Announce, self.inner.announce(server, lag, ttl)).await
    }

    async fn cluster(&self) -> Result<Cluster, StoreError> {
        self.call(Operation::Cluster, self.inner.cluster()).await
    }

    async fn set_draining(&self, server: ServerId, draining: bool) -> Result<bool, StoreError> {
        self.call(Operation::SetDraining, self.inner.set_draining(server, draining)).await
    }

    async fn depart(&self, server: ServerId) -> Result<(), StoreError> {
        self.call(Operation::Depart, self.inner.depart(server)).await
    }

    async fn secret(&self, name: &str, proposed: &[u8; 32]) -> Result<[u8; 32], StoreError> {
        self.call(Operation::Secret, self.inner.secret(name, proposed)).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.call(Operation::Check, self.inner.check()).await
    }
}
