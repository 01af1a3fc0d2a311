//! A store on virtual time: each call takes as long as the simulation says, and is done at one instant of it.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration as Span;

use model::Duration;
use model::record::{Batch, Lease};

use super::Operation;
use crate::StoreError;

/// What a simulation makes of the calls of a store.
pub trait Simulation: std::fmt::Debug + Send + Sync + 'static {
    /// How long a call of `operation` is on its way to the store, and how long its answer back.
    fn delays(&self, operation: Operation) -> [Span; 2];

    /// How long a call waits for a store that is out of reach now before it fails; `None` if it can be reached. One that
    /// refuses fails at once; one whose answers are lost, only when the caller's patience ends.
    fn away(&self) -> Option<Span>;

    /// A call reaches the store, which does it now.
    fn reached(&self, operation: Operation);

    /// A batch became durable.
    fn committed(&self, leases: &[Lease], batch: &Batch);

    /// Shards were taken, or their leases renewed, for `ttl` from now.
    fn leased(&self, leases: &[Lease], ttl: Duration);
}

#[derive(Debug)]
pub(super) struct Simulated {
    pub(super) world: Box<dyn Simulation>,
    /// Where the store's own threads come from: their races must not show on the runtime of the caller.
    pub(super) aside: tokio::runtime::Handle,
}

impl Simulated {
    /// Waits for `delay`, and then while the store is out of reach. Returns whether it came back before the call fails.
    pub(super) async fn arrives(&self, delay: Span) -> bool {
        tokio::time::sleep(delay).await;
        let since = tokio::time::Instant::now();
        while let Some(longest) = self.world.away() {
            if since.elapsed() >= longest {
                return false;
            }
            tokio::time::sleep(Span::from_millis(50)).await;
        }
        true
    }

    /// Does the work at one instant of virtual time: the thread stands still meanwhile.
    pub(super) async fn at_once<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.world.reached(operation);
        let _aside = self.aside.enter();
        block_on(work)
    }
}

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
