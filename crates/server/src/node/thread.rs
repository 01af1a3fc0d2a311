//! Start and end of the engine's thread. `shell` has its loop.

use tokio::sync::watch;

use super::driver::{Driver, Fatal};
use super::shell::Shell;

/// The engine's thread while it runs.
pub struct DriverHandle {
    ended: watch::Receiver<Option<Result<(), Fatal>>>,
}

impl DriverHandle {
    /// Waits until the thread has ended, after [`Node::stop`](super::Node::stop) or by a failure.
    ///
    /// # Errors
    /// [`Fatal`] if it ended by a failure.
    pub async fn join(&self) -> Result<(), Fatal> {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(())),
            Err(_closed) => Err(Fatal { reason: "the engine's thread died".into() }),
        }
    }

    /// Completes when the thread has failed; never completes after an orderly stop.
    pub async fn failed(&self) -> Fatal {
        match self.join().await {
            Err(fatal) => fatal,
            Ok(()) => std::future::pending().await,
        }
    }
}

impl Driver {
    /// Starts the thread, and watches its lease on the runtime of the caller.
    ///
    /// # Errors
    /// If the operating system cannot create a thread.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn(self) -> std::io::Result<DriverHandle> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (ended_tx, ended) = watch::channel(None);
        self.watch_lease(ended.clone());
        std::thread::Builder::new().name("belfry-engine".into()).spawn(move || {
            let result = runtime.block_on(Shell::new(self).run());
            ended_tx.send_replace(Some(result));
        })?;
        Ok(DriverHandle { ended })
    }

    /// Drives the engine on the runtime of the caller. A simulation needs this: its virtual clock applies to its own
    /// thread only.
    pub fn spawn_here(self) -> DriverHandle {
        let (ended_tx, ended) = watch::channel(None);
        self.watch_lease(ended.clone());
        tokio::spawn(async move {
            let result = Shell::new(self).run().await;
            ended_tx.send_replace(Some(result));
        });
        DriverHandle { ended }
    }

    /// Watches the lease on the runtime of the caller until the driver has ended.
    fn watch_lease(&self, mut ended: watch::Receiver<Option<Result<(), Fatal>>>) {
        let watching = self.lease_expiry.clone().watch(self.readiness.clone());
        tokio::spawn(async move {
            tokio::select! {
                never = watching => match never {},
                _ = ended.wait_for(Option::is_some) => {}
            }
        });
    }
}
