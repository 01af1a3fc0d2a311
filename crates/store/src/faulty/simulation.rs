//! A store on virtual time: each call takes the time that the simulation defines, and is executed at one moment of it.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration as Span;

use model::Duration;
use model::record::{Batch, Lease};

use super::Operation;
use crate::StoreError;

/// Behaviour of a store in a simulation.
pub trait Simulation: std::fmt::Debug + Send + Sync + 'static {
    /// Returns the delay of a call of `operation` on its way to the store, and the delay of its answer.
    fn delays(&self, operation: Operation) -> [Span; 2];

    /// Returns the time after which a call to an unreachable store fails; `None` if the store is reachable. A store
    /// that refuses connections fails at once; one whose answers are lost fails at the caller's timeout.
    fn outage(&self) -> Option<Span>;

    /// Called when a call reaches the store, which executes it now.
    fn reached(&self, operation: Operation);

    /// Called when a batch became durable.
    fn committed(&self, leases: &[Lease], batch: &Batch);

    /// Called when shards were acquired, or their leases renewed, for `ttl` from now.
    fn leased(&self, leases: &[Lease], ttl: Duration);
}

#[derive(Debug)]
pub(super) struct Simulated {
    pub(super) world: Box<dyn Simulation>,
    /// Runtime of the store's own threads, so that their races do not affect the runtime of the caller.
    pub(super) store_runtime: tokio::runtime::Handle,
}

impl Simulated {
    /// Waits for `delay`, and then while the store is unreachable. Returns whether the store is reachable again before
    /// the call fails.
    pub(super) async fn arrives(&self, delay: Span) -> bool {
        tokio::time::sleep(delay).await;
        let since = tokio::time::Instant::now();
        while let Some(longest) = self.world.outage() {
            if since.elapsed() >= longest {
                return false;
            }
            tokio::time::sleep(Span::from_millis(50)).await;
        }
        true
    }

    /// Executes the work at one moment of virtual time: the thread blocks meanwhile.
    pub(super) async fn at_once<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.world.reached(operation);
        let _aside = self.store_runtime.enter();
        block_on(work)
    }
}

/// Blocks this thread until the work is done.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    // Otherwise the runtime would make the work wait for the end of the task that waits here.
    let mut work = std::pin::pin!(tokio::task::unconstrained(work));
    loop {
        match work.as_mut().poll(&mut context) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}
