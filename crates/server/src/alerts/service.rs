//! The state of the alerts on the leader, its writes, and changes by users.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use alerts::message::Message;
use alerts::target::Refused;
use alerts::{Alerts, PingToken, Refusal};
use model::Timestamp;
use model::api::NewPing;
use model::error_chain::Chain;
use store::{AlertChange, Store, StoreError};
use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::time::Instant;

use super::deliver::Sender;
use super::pings::{INTERVAL, PingQueue, PingedMonitor, WaitingPing};
use crate::clock::{Clock as _, SystemClock};
use crate::networks::Networks;
use crate::seal::{SealError, Sealer};

/// Longest time for which only the position in the feed is not written.
const POSITION_INTERVAL: Duration = Duration::from_secs(10);
/// Longest step from one version to the next; see [`store::Alerts::change_alerts`].
const STEP_MAX: u64 = 1 << 20;

/// Most tests of channels at a time.
const TESTS_MAX: usize = 4;
/// Longest time by which the wall clock may be behind the time of the core. Timers stand still meanwhile.
const CLOCK_BACK_MAX: model::Duration = model::Duration::from_secs(60);

/// Why a request about alerts was not fulfilled.
#[derive(Debug, thiserror::Error)]
pub enum AlertError {
    /// This server is not the leader, or has not loaded the rows yet.
    #[error("the server has not loaded the alerts yet")]
    Loading,
    /// The rules do not allow it. Nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too many tests of channels run.
    #[error("too many tests of channels are running")]
    Busy,
    /// Too many pings wait to be recorded.
    #[error("too many pings are waiting")]
    TooManyPings,
    /// Another server changed the rows: it is the leader now. Nothing was changed.
    #[error("another server evaluates the alerts now")]
    Superseded,
}

/// Alerts of a server. Only the leader has a state.
pub struct AlertService {
    store: Arc<dyn Store>,
    sealer: Sealer,
    sender: Sender,
    /// URL of the dashboard.
    pub(crate) public_url: Option<String>,
    current: Arc<Mutex<Option<Current>>>,
    /// Wakes the loop after a change.
    pub(crate) changed: Arc<Notify>,
    /// Notifications whose delivery has begun, also of earlier loads.
    pub(crate) in_flight: std::sync::Mutex<BTreeSet<u64>>,
    /// Places of tests of channels.
    tests: Semaphore,
    /// Pings that wait to be recorded.
    pings: PingQueue<AlertError>,
}

/// State of the leader.
struct Current {
    alerts: Alerts,
    version: u64,
    /// Number of the load, so that results of deliveries of an earlier one are ignored.
    load: u64,
    written_at: Instant,
    /// Newest time that was passed to the core.
    now: Timestamp,
}

/// Wakes the loop when it is dropped, unless it is disarmed.
struct NotifyOnDrop(Option<Arc<Notify>>);

impl NotifyOnDrop {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        if let Some(notify) = &self.0 {
            notify.notify_one();
        }
    }
}

impl Current {
    /// Returns the time, which never runs backwards.
    fn advance(&mut self) -> Timestamp {
        self.now = self.now.max(SystemClock.now());
        self.now
    }
}

impl AlertService {
    /// Creates the service, without a state.
    pub fn new(
        store: Arc<dyn Store>,
        sealer: Sealer,
        networks: Networks,
        public_url: Option<String>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            sealer,
            sender: Sender::new(networks),
            public_url,
            current: Arc::default(),
            changed: Arc::default(),
            in_flight: std::sync::Mutex::default(),
            tests: Semaphore::new(TESTS_MAX),
            pings: PingQueue::default(),
        })
    }

    /// Returns what encrypts secrets in the store.
    pub fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    /// Reads the state.
    ///
    /// # Errors
    /// [`AlertError::Loading`].
    pub async fn read<T>(&self, read: impl FnOnce(&Alerts, Timestamp) -> T) -> Result<T, AlertError> {
        let current = self.current.lock().await;
        let current = current.as_ref().ok_or(AlertError::Loading)?;
        Ok(read(&current.alerts, current.now.max(SystemClock.now())))
    }

    /// Makes a change of a user durable, and returns what `change` returned.
    ///
    /// # Errors
    /// [`AlertError`].
    pub async fn change<T>(
        &self,
        change: impl FnOnce(&mut Alerts, Timestamp) -> Result<T, Refusal>,
    ) -> Result<T, AlertError> {
        let changed = self.with(None, |alerts, now| change(alerts, now)).await;
        self.changed.notify_one();
        Ok(changed??)
    }

    /// Passes the state to the core and writes what changed. With `load`, only to the state of that load.
    ///
    /// The write continues if the future is dropped, as by a client that disconnects. If it fails, memory and store may
    /// differ: then there is no state, and the loop loads the rows again.
    pub(crate) async fn with<T>(
        &self,
        load: Option<u64>,
        act: impl FnOnce(&mut Alerts, Timestamp) -> T,
    ) -> Result<T, AlertError> {
        let mut slot = Arc::clone(&self.current).lock_owned().await;
        if slot.as_ref().is_none_or(|current| load.is_some_and(|load| current.load != load)) {
            return Err(AlertError::Loading);
        }
        let mut current = slot.take().ok_or(AlertError::Loading)?;
        // Wakes the loop if the state is lost.
        let lost = NotifyOnDrop(Some(Arc::clone(&self.changed)));
        if current.now > SystemClock.now() + CLOCK_BACK_MAX {
            tracing::warn!("the clock was set back; loading the alerts again");
            return Err(AlertError::Loading);
        }
        let now = current.advance();
        let result = act(&mut current.alerts, now);
        let is_due = current.written_at.elapsed() >= POSITION_INTERVAL;
        if !current.alerts.has_changes() && !is_due {
            *slot = Some(current);
            lost.disarm();
            return Ok(result);
        }
        let store = Arc::clone(&self.store);
        let written = tokio::spawn(async move {
            write(store.as_ref(), &mut current).await?;
            *slot = Some(current);
            lost.disarm();
            Ok(())
        });
        match written.await {
            Ok(written) => written.map(|()| result),
            // The write panicked, or the server stops: there is no state.
            Err(_lost) => Err(AlertError::Loading),
        }
    }

    /// Loads the rows as a new leader.
    pub(crate) async fn load(&self, load: u64) -> Result<(), StoreError> {
        let rows = self.store.alerts().await?;
        let version = rows.version;
        let rows = rows.rows.into_iter().map(|row| (row.kind, row.key, row.body));
        let now = SystemClock.now();
        let (alerts, unreadable) = Alerts::load(rows, now);
        for row in unreadable {
            tracing::error!(
                kind = row.kind,
                key = row.key,
                error = row.reason,
                "cannot read a row of alerts"
            );
        }
        self.check_keys(&alerts);
        let written_at = Instant::now();
        *self.current.lock().await = Some(Current { alerts, version, load, written_at, now });
        Ok(())
    }

    /// Logs channels whose secrets this server cannot decrypt, before a notification needs them.
    fn check_keys(&self, alerts: &Alerts) {
        for (namespace, channel, sealed) in alerts.sealed_targets() {
            if let Err(error) = self.open(namespace, channel, sealed) {
                tracing::error!(namespace, channel, error, "cannot decrypt the secrets of a channel");
            }
        }
    }

    /// Drops the state, because this server does not lead any more.
    pub(crate) async fn unload(&self) {
        *self.current.lock().await = None;
    }

    /// Sends a test message, and waits for the answer of the service. Returns why the service did not accept it.
    ///
    /// # Errors
    /// [`AlertError::Busy`].
    pub async fn test(
        &self,
        target: &model::alert::Target,
        message: &Message,
    ) -> Result<Option<String>, AlertError> {
        let _place = self.tests.try_acquire().map_err(|_| AlertError::Busy)?;
        Ok(self.send(target, message).await.err().map(|refused| refused.reason))
    }

    /// Sends a message, and waits for the answer of the service.
    ///
    /// # Errors
    /// Why the service did not accept it.
    pub(crate) async fn send(&self, target: &model::alert::Target, message: &Message) -> Result<(), Refused> {
        self.sender.send(target, message, SystemClock.now()).await
    }

    /// Encrypts the target of a channel.
    pub fn seal(&self, namespace: &str, name: &str, target: &model::alert::Target) -> String {
        let json = serde_json::to_string(target).expect("a target is plain data");
        self.sealer.seal(&context(namespace, name), &json)
    }

    /// Records a ping, and waits until it is durable.
    ///
    /// # Errors
    /// [`AlertError::Refused`], [`AlertError::TooManyPings`], or [`AlertError::Loading`], also if the write failed.
    pub async fn ping(&self, monitor: PingedMonitor, ping: NewPing) -> Result<(), AlertError> {
        let answered = self.pings.add(monitor, ping).ok_or(AlertError::TooManyPings)?;
        answered.await.unwrap_or(Err(AlertError::Loading))
    }

    /// Records pings in batches, until the future is dropped.
    pub(crate) async fn record_pings(self: Arc<Self>) {
        loop {
            let batch = self.pings.next_batch().await;
            self.record(batch).await;
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn record(&self, batch: Vec<WaitingPing<AlertError>>) {
        let recorded = self.change(|alerts, now| {
            Ok(batch.iter().map(|waiting| waiting.apply(alerts, now)).collect::<Vec<_>>())
        });
        match recorded.await {
            Ok(results) => {
                for (waiting, result) in batch.into_iter().zip(results) {
                    waiting.answer(result.map_err(AlertError::Refused));
                }
            }
            Err(error) => {
                if !matches!(error, AlertError::Loading) {
                    let pings = batch.len();
                    tracing::warn!(pings, error = %Chain(&error), "cannot record pings; clients must repeat them");
                }
                batch.into_iter().for_each(|waiting| waiting.answer(Err(AlertError::Loading)));
            }
        }
    }

    /// Encrypts the token of a ping URL, and hashes it.
    pub fn seal_token(&self, namespace: &str, name: &str, token: &str) -> PingToken {
        let sealed = self.sealer.seal(&token_context(namespace, name), token);
        PingToken { hash: hash_of_token(token), sealed }
    }

    /// Decrypts the token of a ping URL. `None` if the server has another key now, which the log says.
    pub fn open_token(&self, namespace: &str, name: &str, sealed: &str) -> Option<String> {
        let opened = self.sealer.open_text(&token_context(namespace, name), sealed);
        let failed = |error: &SealError| {
            tracing::error!(namespace, monitor = name, %error, "cannot decrypt the ping URL of a monitor");
        };
        opened.inspect_err(failed).ok()
    }

    /// Decrypts the target of a channel.
    ///
    /// # Errors
    /// A message for the operator.
    pub fn open(&self, namespace: &str, name: &str, sealed: &str) -> Result<model::alert::Target, String> {
        let opened = self.sealer.open_text(&context(namespace, name), sealed);
        let json = opened.map_err(|error| format!("{error}: {}", error.help()))?;
        serde_json::from_str(&json).map_err(|error| format!("the stored target cannot be read: {error}"))
    }
}

fn context(namespace: &str, name: &str) -> String {
    format!("channel/{namespace}/{name}")
}

fn token_context(namespace: &str, name: &str) -> String {
    format!("monitor/{namespace}/{name}")
}

/// Returns the hash by which the monitor of a ping URL is found.
pub(crate) fn hash_of_token(token: &str) -> String {
    crate::hash::sha256_hex(token.as_bytes())
}

async fn write(store: &dyn Store, current: &mut Current) -> Result<(), AlertError> {
    let rows = current.alerts.take();
    current.written_at = Instant::now();
    if rows.is_empty() {
        return Ok(());
    }
    let change = |row: alerts::Row| AlertChange { kind: row.kind.to_owned(), key: row.key, body: row.body };
    let changes: Vec<_> = rows.into_iter().map(change).collect();
    let next = current.version + rand::random_range(1..=STEP_MAX);
    match store.change_alerts(current.version, next, &changes).await? {
        true => current.version = next,
        false => return Err(AlertError::Superseded),
    }
    Ok(())
}
