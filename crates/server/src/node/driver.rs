//! The thread that owns the engine.
//!
//! ```text
//! loop {
//!     take inputs ──> engine.handle
//!     if no commit is on its way, or much waits { engine.flush ──> commit, or release effects at once }
//!     wait for: the commit, an input, the engine's wakeup
//! }
//! ```
//!
//! While one batch is being committed the engine takes inputs for the next, so a batch is as large
//! as the store is slow (group commit without a timer). Under load the next ones are sent ahead, as many as the
//! store takes, so that it never waits for the engine. Whatever ends the ownership of the shards
//! (a failed commit, a defect) drops the engine with all that was not committed, answers everyone
//! who waits, closes the workers' sessions, and loads again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use engine::{Now, View};
use leader::LeadershipLease;
use model::Timestamp;
use model::record::Lease;
use store::{Store, StoreError};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;

use super::backoff::{Backoff, Cause};
use super::heir::{Heir, forget};
use super::leadership::LeadsUntil;
use super::ownership::{Owned, TakeError, acquire, in_time, take};
use super::reign::{End, Reign};
use super::suspects::Suspects;
use super::tickets::Tickets;
use super::{Beat, Clock, EventBatch, FromWorker, Readiness, Request, RequestError};
use crate::config::ServerConfig;
use crate::members::{Members, Standing};
use crate::metrics::Metrics;

/// How long a shutdown waits for the store to take the shards back.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of a node.
#[derive(Clone)]
pub struct NodeConfig {
    /// The engine's settings.
    pub engine: engine::Config,
    /// Which server this is: what its leases name.
    pub owner: String,
    /// What it may do with the shards.
    pub standing: watch::Receiver<Standing>,
    /// Where workers find the servers.
    pub members: Members,
    /// How long the ownership of a shard lasts without a renewal.
    pub lease: model::Duration,
    /// Whether it follows the rows while another server owns the shards.
    pub warm_standby: bool,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where batches are counted.
    pub metrics: Metrics,
}

impl NodeConfig {
    /// The settings of a server's node.
    pub fn new(config: &ServerConfig, members: Members, metrics: Metrics) -> Self {
        let mut engine = config.engine.clone();
        if engine.seed == 0 {
            engine.seed = rand::random();
        }
        Self {
            engine,
            owner: members.me().id.to_string(),
            standing: members.standing(),
            members,
            lease: config.shard_lease(),
            warm_standby: config.warm_standby,
            clock: super::clock::of_process(),
            metrics,
        }
    }
}

/// The node can go on no more; the process must exit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server cannot go on: {reason}")]
pub struct Fatal {
    /// What happened.
    pub reason: String,
}

/// The engine's thread before it runs.
pub struct Driver {
    pub(super) store: Arc<dyn Store>,
    pub(super) config: NodeConfig,
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) reports: mpsc::Receiver<FromWorker>,
    pub(super) beats: mpsc::Receiver<Beat>,
    pub(super) view: watch::Sender<Arc<View>>,
    pub(super) readiness: watch::Sender<Readiness>,
    pub(super) events: broadcast::Sender<Arc<EventBatch>>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) leads_until: LeadsUntil,
}

/// The engine's thread while it runs.
pub struct DriverHandle {
    ended: watch::Receiver<Option<Result<(), Fatal>>>,
}

impl DriverHandle {
    /// Waits until the thread has ended: after [`Node::stop`](super::Node::stop), or by a failure.
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

    /// Completes when the thread has ended by a failure, and never if it is stopped in order.
    pub async fn failed(&self) -> Fatal {
        match self.join().await {
            Err(fatal) => fatal,
            Ok(()) => std::future::pending().await,
        }
    }
}

impl Driver {
    /// Starts the thread, and watches its lease from the runtime of the caller.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn(self) -> std::io::Result<DriverHandle> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (ended_tx, ended) = watch::channel(None);
        self.watch_lease(ended.clone());
        std::thread::Builder::new().name("belfry-engine".into()).spawn(move || {
            let result = runtime.block_on(Life::new(self).run());
            ended_tx.send_replace(Some(result));
        })?;
        Ok(DriverHandle { ended })
    }

    /// Drives the engine on the runtime of the caller. A simulation needs it so: its clock ends where
    /// another thread begins.
    pub fn spawn_here(self) -> DriverHandle {
        let (ended_tx, ended) = watch::channel(None);
        self.watch_lease(ended.clone());
        tokio::spawn(async move {
            let result = Life::new(self).run().await;
            ended_tx.send_replace(Some(result));
        });
        DriverHandle { ended }
    }

    /// Watches the lease from the runtime of the caller until the driver has ended.
    fn watch_lease(&self, mut ended: watch::Receiver<Option<Result<(), Fatal>>>) {
        let watching = self.leads_until.clone().watch(self.readiness.clone());
        tokio::spawn(async move {
            tokio::select! {
                never = watching => match never {},
                _ = ended.wait_for(Option::is_some) => {}
            }
        });
    }
}

/// The thread's whole life, over any number of ownerships.
pub(super) struct Life {
    pub(super) driver: Driver,
    pub(super) suspects: Suspects,
    pub(super) tickets: Tickets,
    /// Whether the store had no space when it was last asked.
    pub(super) full: bool,
    backoff: Backoff,
    leases: Option<Arc<[Lease]>>,
    /// Until when no other server can own the shards of `leases`.
    pub(super) lease: LeadershipLease,
    /// Whether a commit may still be on its way under `leases`: only new epochs keep it out then.
    tainted: bool,
    /// What it has followed of another server's ownership.
    heir: Option<Heir>,
    /// The wall time that the newest engine confirmed at its end, with the steady time of that: a leap that it refused is
    /// refused by the next engine too.
    confirmed: Option<Now>,
}

impl Life {
    fn new(driver: Driver) -> Self {
        Self {
            lease: LeadershipLease::new(Timestamp::from_micros(0), driver.config.lease),
            driver,
            suspects: Suspects::default(),
            tickets: Tickets::default(),
            full: false,
            backoff: Backoff::default(),
            leases: None,
            tainted: false,
            heir: None,
            confirmed: None,
        }
    }

    async fn run(mut self) -> Result<(), Fatal> {
        loop {
            let end = match self.take_over().await {
                Ok(Some(owned)) => self.reign(owned).await,
                Ok(None) => End::Stopped,
                Err(error) => self.not_taken(error),
            };
            match end {
                End::Stopped => return self.stopped().await,
                End::Fatal(reason) => return self.failed(reason),
                End::HandedOver => self.release().await,
                End::Again { tainted, cause } => {
                    self.tainted |= tainted;
                    self.pause(cause).await;
                }
            }
        }
    }

    /// Takes and loads the shards, refusing meanwhile what comes in. `None` if it is time to stop.
    async fn take_over(&mut self) -> Result<Option<Owned>, TakeError> {
        let Self { driver, leases, lease, tainted, heir, full, confirmed, .. } = self;
        let Driver { store, config, requests, reports, beats, stop, readiness, .. } = driver;
        let taking = async {
            if let Some(held) = leases.as_ref().filter(|_| *tainted) {
                in_time(config, store.release(held)).await?;
                *leases = None;
            }
            let held = match leases {
                Some(held) => Arc::clone(held),
                None => {
                    let (taken, own) = acquire(store.as_ref(), config, readiness, heir).await?;
                    *lease = own;
                    Arc::clone(leases.insert(taken))
                }
            };
            *tainted = false;
            take(store.as_ref(), config, held, lease, heir, *full, *confirmed).await
        };
        tokio::select! {
            owned = taking => owned.map(Some),
            never = refuse_all(requests, reports, beats) => match never {},
            _ = stop.wait_for(|stop| *stop) => Ok(None),
        }
    }

    async fn reign(&mut self, owned: Owned) -> End {
        let since = Instant::now();
        let (end, engine) = Reign::new(self, owned).run().await;
        self.backoff.held(since.elapsed());
        let clocks = self.driver.config.clock.both();
        let confirmed = engine.confirmed(clocks).map(|wall| Now { wall, ..clocks });
        self.confirmed = confirmed.or(self.confirmed);
        // Whoever is next waits for the shards.
        forget(engine);
        end
    }

    fn not_taken(&mut self, error: TakeError) -> End {
        let tainted = !matches!(error, TakeError::Store(StoreError::Full));
        let cause = match error {
            TakeError::Store(
                StoreError::Unavailable { .. }
                | StoreError::OutcomeUnknown { .. }
                | StoreError::Fenced { .. },
            ) => Cause::Away,
            _ => Cause::Failed,
        };
        match error {
            TakeError::Store(StoreError::Fatal { reason }) => return End::Fatal(reason),
            TakeError::Store(error @ StoreError::TooNew { .. }) => return End::Fatal(error.to_string()),
            error => {
                tracing::warn!(error = %error, "cannot take the shards; trying again");
                let reason = error.to_string();
                self.driver.readiness.send_replace(Readiness::Loading { reason });
            }
        }
        End::Again { tainted, cause }
    }

    async fn pause(&mut self, cause: Cause) {
        self.driver.config.metrics.engine_reloaded();
        let pause = self.backoff.pause(cause);
        let Driver { requests, reports, beats, stop, .. } = &mut self.driver;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            never = refuse_all(requests, reports, beats) => match never {},
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn stopped(mut self) -> Result<(), Fatal> {
        self.driver.readiness.send_replace(Readiness::Stopping);
        self.release().await;
        Ok(())
    }

    /// Gives the shards back, so that another server need not wait for the end of their leases.
    async fn release(&mut self) {
        let Some(leases) = self.leases.take() else { return };
        match tokio::time::timeout(RELEASE_TIMEOUT, self.driver.store.release(&leases)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %error, "cannot give the shards back; their leases will run out")
            }
            Err(_elapsed) => {
                tracing::warn!("the store does not take the shards back; their leases will run out")
            }
        }
    }

    fn failed(self, reason: String) -> Result<(), Fatal> {
        tracing::error!(reason, "the store cannot be trusted any more; the process must exit");
        self.driver.readiness.send_replace(Readiness::Failed { reason: reason.clone() });
        Err(Fatal { reason })
    }
}

/// Answers and drops what comes in while there is no engine.
pub(super) async fn refuse_all(
    requests: &mut mpsc::Receiver<Request>,
    reports: &mut mpsc::Receiver<FromWorker>,
    beats: &mut mpsc::Receiver<Beat>,
) -> Infallible {
    loop {
        tokio::select! {
            Some(request) = requests.recv() => request.refuse(RequestError::Loading),
            // Dropping a join ends the session; the worker opens another.
            Some(_) = reports.recv() => {}
            Some(_) = beats.recv() => {}
            else => return std::future::pending().await,
        }
    }
}
