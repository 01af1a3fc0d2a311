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
//! In a [simulation](FaultyStore::simulated) each call takes as much virtual time as the test says, whatever
//! the store inside does on threads of its own. `methods` has the list of all calls.

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

/// How many calls of a broken operation go wrong before it is healed: more than any test makes.
const BROKEN_CALLS: u64 = 10_000;

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

    /// Tells the simulation, where there is one.
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
