//! A store wrapper for fault injection, for tests.
//!
//! [`FaultyStore`] forwards all calls to the inner store, except those that a test chose: the nth call of an operation
//! fails before or after its execution, or stalls until the test releases it.
//!
//! ```ignore
//!  let store = FaultyStore::new(inner);
//!  store.inject(Operation::Commit, 3, Fault::After);     // executed, but the answer is lost
//!  let stall = store.stall(Operation::Commit, 5);
//!  stall.reached().await;                                // the fifth commit waits …
//!  stall.release();                                      // … until here
//! ```
//!
//! In a [simulation](FaultyStore::simulated) each call takes the virtual time that the test defines, whatever the inner
//! store does on its threads. `methods` lists all calls.

mod methods;
mod simulation;

pub use methods::Operation;
pub use simulation::Simulation;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use model::ShardId;
use tokio::sync::Notify;

use simulation::Simulated;

use crate::changelog::Changelog;
use crate::{Store, StoreError};

/// Number of calls of a broken operation that fail before it heals: more than any test makes.
const BROKEN_CALLS: u64 = 10_000;

/// Fault of a call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Fault {
    /// Not executed; [`StoreError::Unavailable`].
    Before,
    /// Executed, but answered with [`StoreError::OutcomeUnknown`].
    After,
    /// Not executed; [`StoreError::Full`].
    Full,
    /// Not executed; [`StoreError::Fatal`], also for every later call.
    Fatal,
    /// Not executed; [`StoreError::Fenced`] for this shard.
    Fenced(ShardId),
    /// Executed after the test releases it.
    Stall(Arc<Stall>),
}

/// Call that waits.
#[derive(Debug, Default)]
pub struct Stall {
    reached: Notify,
    released: Notify,
}

impl Stall {
    /// Waits until the call has arrived; for one caller.
    pub async fn reached(&self) {
        self.reached.notified().await;
    }

    /// Releases the call, also in advance.
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

/// Wrapper of a store with injected faults.
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: Arc<S>,
    plan: Mutex<Plan>,
    /// Held by one commit after the other, in order.
    turn: tokio::sync::Mutex<()>,
    waiting_commits: AtomicUsize,
    /// Whether a commit failed and no load came since.
    halted: AtomicBool,
    simulation: Option<Simulated>,
    changelog: Option<Box<dyn Changelog>>,
    /// Whether the store claims to be shared with other servers.
    shared: bool,
}

impl<S: Store> FaultyStore<S> {
    /// Creates a wrapper without faults.
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

    /// Replaces the changelog by one that the test controls.
    #[must_use]
    pub fn with_changelog(mut self, changelog: impl Changelog + 'static) -> Self {
        self.changelog = Some(Box::new(changelog));
        self
    }

    /// Makes the store claim that other servers could own shards, like a database.
    #[must_use]
    pub fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// Creates a wrapper on virtual time: each call is executed at one moment of it, while the thread blocks.
    ///
    /// Several wrappers may share one store, each with its own faults. The threads of the store run on `aside`.
    pub fn simulated(inner: Arc<S>, world: impl Simulation, aside: tokio::runtime::Handle) -> Self {
        Self::around(inner, Some(Simulated { world: Box::new(world), store_runtime: aside }))
    }

    /// Returns the inner store.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Makes the `nth` call of `operation`, counted from 1 since the wrapper was created, fail.
    pub fn inject(&self, operation: Operation, nth: u64, fault: Fault) {
        self.plan().faults.insert((operation, nth), fault);
    }

    /// Makes the next call of `operation` fail.
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

    /// Makes every call of `operation` fail from now on, until [`heal`](Self::heal).
    pub fn fail_all(&self, operation: Operation) {
        let next = self.calls(operation) + 1;
        for nth in next..next + BROKEN_CALLS {
            self.inject(operation, nth, Fault::Before);
        }
    }

    /// Makes calls of `operation` that start from now on succeed.
    pub fn heal(&self, operation: Operation) {
        self.plan().faults.retain(|(broken, _), _| *broken != operation);
    }

    /// Returns the number of calls of `operation`, with any result.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.plan().calls.get(&operation).copied().unwrap_or(0)
    }

    /// Returns the number of commits that wait for an earlier one.
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
        let Some(simulated) = &self.simulation else {
            return self.attempt(operation, work).await;
        };
        let [there, back] = simulated.world.delays(operation);
        if !simulated.arrives(there).await {
            return Err(StoreError::Unavailable { source: INJECTED.into() });
        }
        let result = self.attempt(operation, simulated.at_once(operation, work)).await;
        match simulated.arrives(back).await {
            true => result,
            false => Err(StoreError::OutcomeUnknown { source: INJECTED.into() }),
        }
    }

    /// Notifies the simulation, if there is one.
    fn tell_simulation(&self, tell: impl FnOnce(&dyn Simulation)) {
        if let Some(simulated) = &self.simulation {
            tell(simulated.world.as_ref());
        }
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

/// Counts a waiting commit until it is dropped.
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
