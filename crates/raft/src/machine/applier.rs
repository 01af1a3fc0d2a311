//! The task that hands entries to the machine.
//!
//! openraft's worker queues entries and continues; the task applies everything that waits in one call. The queue is bounded
//! by the bytes of the payloads: then `queue` waits, and with it openraft's worker.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::parts::{Assembler, Queued};
use super::{AppliedState, Content, Entry, Machine, MachineError};
use crate::types::LogId;

/// Maximum bytes of payloads that wait for the machine.
const QUEUE_BYTES: usize = 256 * 1024 * 1024;
/// The queue counts bytes in units of this size, and every entry as at least one.
const UNIT_BYTES: usize = 4096;
/// Maximum entries in one call of the machine.
const ENTRIES_MAX: usize = 256;

/// What a machine has applied. Shared by the tasks of a node.
#[derive(Debug)]
pub(crate) struct Progress {
    state: Mutex<AppliedState>,
    applied: watch::Sender<Option<LogId>>,
    stopped: watch::Sender<Option<Arc<MachineError>>>,
    space: Arc<Semaphore>,
}

impl Progress {
    fn new(state: AppliedState) -> Self {
        let (applied, stopped) = (watch::Sender::new(state.applied), watch::Sender::new(None));
        let space = Arc::new(Semaphore::new(QUEUE_BYTES / UNIT_BYTES));
        Self { state: Mutex::new(state), applied, stopped, space }
    }

    /// Position of the last entry that the machine has applied completely.
    pub(crate) fn applied(&self) -> watch::Receiver<Option<LogId>> {
        self.applied.subscribe()
    }

    /// The error that stopped the machine.
    pub(crate) fn stopped(&self) -> watch::Receiver<Option<Arc<MachineError>>> {
        self.stopped.subscribe()
    }

    pub(crate) fn state(&self) -> AppliedState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the queue has space for further entries.
    pub(crate) fn has_space(&self) -> bool {
        self.space.available_permits() > 0
    }

    /// Waits until the queue has space.
    pub(crate) async fn wait_for_space(&self) {
        // The semaphore is never closed.
        drop(self.space.acquire().await);
    }

    /// Waits until the machine has applied an entry.
    ///
    /// # Errors
    /// If the machine stops before.
    pub(crate) async fn wait_until(&self, index: u64) -> Result<(), Arc<MachineError>> {
        let (mut applied, mut stopped) = (self.applied(), self.stopped());
        if applied.borrow().is_some_and(|applied| applied.index >= index) {
            return Ok(());
        }
        tokio::select! {
            // The sender lives as long as `self`.
            _ = applied.wait_for(|applied| applied.is_some_and(|applied| applied.index >= index)) => Ok(()),
            error = stopped.wait_for(Option::is_some) => Err(match error {
                Ok(error) => error.clone().unwrap_or_else(|| Arc::new(ended())),
                Err(_) => Arc::new(ended()),
            }),
        }
    }

    fn set(&self, state: AppliedState) {
        let applied = state.applied;
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.applied.send_replace(applied);
    }

    /// Returns the state after the application of entries.
    fn after(&self, entries: &[Entry]) -> AppliedState {
        let mut state = self.state();
        for entry in entries {
            state.applied = Some(entry.position);
            if let Content::Membership(bytes) = &entry.content {
                state.membership_at = Some(entry.position);
                state.membership = Arc::clone(bytes);
            }
        }
        state
    }
}

fn ended() -> MachineError {
    MachineError::new("the machine has stopped")
}

/// What the task does next.
enum Item<A> {
    Entry(Queued<A>, Option<OwnedSemaphorePermit>),
    /// Answers when everything before is applied.
    Flush(oneshot::Sender<()>),
    Install(std::path::PathBuf, oneshot::Sender<AppliedState>),
}

/// Queues entries for the machine. The task ends when all handles are dropped, or after an error.
pub(crate) struct Applier<M: Machine> {
    machine: Arc<M>,
    items: mpsc::UnboundedSender<Item<M::Answer>>,
    progress: Arc<Progress>,
}

impl<M: Machine> Clone for Applier<M> {
    fn clone(&self) -> Self {
        let (machine, progress) = (Arc::clone(&self.machine), Arc::clone(&self.progress));
        Self { machine, items: self.items.clone(), progress }
    }
}

impl<M: Machine> Applier<M> {
    /// Returns the queue of a machine, and the task that empties it.
    pub(crate) fn new(machine: Arc<M>) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let progress = Arc::new(Progress::new(machine.state()));
        let (items, received) = mpsc::unbounded_channel();
        let task = run(Arc::clone(&machine), received, Arc::clone(&progress));
        (Self { machine, items, progress }, task)
    }

    pub(crate) fn machine(&self) -> &Arc<M> {
        &self.machine
    }

    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Queues an entry; waits while the queue is full.
    pub(crate) async fn queue(&self, queued: Queued<M::Answer>, bytes: usize) -> Result<(), MachineError> {
        let units = u32::try_from(bytes / UNIT_BYTES + 1).unwrap_or(u32::MAX);
        let space = Arc::clone(&self.progress.space);
        let permit = space.acquire_many_owned(units).await.ok();
        self.items.send(Item::Entry(queued, permit)).map_err(|_| ended())
    }

    /// Waits until everything that is queued is applied.
    pub(crate) async fn flush(&self) -> Result<(), MachineError> {
        let (done, answer) = oneshot::channel();
        self.items.send(Item::Flush(done)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())
    }

    /// Replaces the state of the machine by a copy.
    pub(crate) async fn install(&self, path: std::path::PathBuf) -> Result<AppliedState, MachineError> {
        let (done, answer) = oneshot::channel();
        self.items.send(Item::Install(path, done)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())
    }
}

async fn run<M: Machine>(
    machine: Arc<M>,
    mut items: mpsc::UnboundedReceiver<Item<M::Answer>>,
    progress: Arc<Progress>,
) {
    let mut session = Session { machine, progress, assembler: Assembler::new(), ready: Vec::new() };
    let mut buffer = Vec::new();
    while items.recv_many(&mut buffer, ENTRIES_MAX).await > 0 {
        let served = session.serve(buffer.drain(..)).await;
        if let Err(error) = served {
            // Callers that wait get an error, because the senders are dropped.
            session.progress.stopped.send_replace(Some(Arc::new(error)));
            return;
        }
    }
}

struct Session<M: Machine> {
    machine: Arc<M>,
    progress: Arc<Progress>,
    assembler: Assembler<M::Answer>,
    ready: Vec<Queued<M::Answer>>,
}

impl<M: Machine> Session<M> {
    async fn serve(&mut self, items: impl Iterator<Item = Item<M::Answer>>) -> Result<(), MachineError> {
        // The permits are returned after the application, so that the queue counts what is being applied.
        let mut permits = Vec::new();
        for item in items {
            match item {
                Item::Entry(queued, permit) => {
                    self.assembler.push(queued, &mut self.ready)?;
                    permits.push(permit);
                }
                Item::Flush(done) => {
                    self.apply().await?;
                    let _ = done.send(());
                }
                Item::Install(path, done) => {
                    self.apply().await?;
                    self.assembler.clear();
                    let state = self.machine.install(&path).await?;
                    self.progress.set(state.clone());
                    let _ = done.send(state);
                }
            }
        }
        self.apply().await
    }

    async fn apply(&mut self) -> Result<(), MachineError> {
        if self.ready.is_empty() {
            return Ok(());
        }
        let (entries, waiting): (Vec<_>, Vec<_>) =
            self.ready.drain(..).map(|queued| (queued.entry, queued.answers)).unzip();
        let state = self.progress.after(&entries);
        let answers = self.machine.apply(entries).await?;
        if answers.len() != waiting.len() {
            let problem = format!("the machine answered {} of {} entries", answers.len(), waiting.len());
            return Err(MachineError::new(problem));
        }
        // Before the answers: a caller that gets one reads what it has written.
        self.progress.set(state);
        for (waiting, answers) in waiting.into_iter().zip(answers) {
            // Only the node that has proposed the entry waits for the answers.
            let _ = waiting.send(Ok(answers));
        }
        Ok(())
    }
}
