//! The task that hands entries to the machine.
//!
//! openraft's worker queues entries and continues; the task applies everything that waits in one call. The queue is bounded
//! by the bytes of the payloads: then `queue` waits, and with it openraft's worker.
//!
//! Under load, a follower applies entries in large calls: the machine then writes a row once that changes several times
//! within moments. It collects them for [`LINGER`], or until someone needs an entry applied: a read, or the node itself when
//! it leads. After a call of few bytes, a pause or a change of the leader, the next call does not wait.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::{Duration, Instant};

use super::parts::{Assembler, Queued};
use super::{AppliedState, Content, Entry, Machine, MachineError};
use crate::types::LogId;

/// Maximum bytes of payloads that wait for the machine.
const QUEUE_BYTES: usize = 256 * 1024 * 1024;
/// The queue counts bytes in units of this size, and every entry as at least one.
const UNIT_BYTES: usize = 4096;
/// Maximum entries that are taken from the queue at a time.
const ENTRIES_MAX: usize = 256;
/// Maximum time for which entries are collected.
const LINGER: Duration = Duration::from_millis(500);
/// Bytes of a call after which the next one collects entries.
const LINGERS_FROM: usize = 64 * 1024;
/// Bytes that are applied without further waiting.
const COLLECTED_MAX: usize = 16 * 1024 * 1024;

/// What a machine has applied. Shared by the tasks of a node.
#[derive(Debug)]
pub(crate) struct Progress {
    state: Mutex<AppliedState>,
    applied: watch::Sender<Option<LogId>>,
    stopped: watch::Sender<Option<Arc<MachineError>>>,
    space: Arc<Semaphore>,
    /// How many need entries applied.
    waiting: watch::Sender<usize>,
}

/// Someone who needs entries applied.
pub(crate) struct Hurry<'a>(&'a Progress);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|waiting| *waiting -= 1);
    }
}

impl Progress {
    fn new(state: AppliedState) -> Self {
        let (applied, stopped) = (watch::Sender::new(state.applied), watch::Sender::new(None));
        let space = Arc::new(Semaphore::new(QUEUE_BYTES / UNIT_BYTES));
        Self { state: Mutex::new(state), applied, stopped, space, waiting: watch::Sender::new(0) }
    }

    /// Applies entries without collecting them, until the answer is dropped.
    pub(crate) fn hurry(&self) -> Hurry<'_> {
        self.waiting.send_modify(|waiting| *waiting += 1);
        Hurry(self)
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
        let _hurry = self.hurry();
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

impl<A> Item<A> {
    /// Returns whether it may be the first entry of a leader, who takes the shards next. A membership is rare.
    fn is_of_new_leader(&self) -> bool {
        match self {
            Self::Entry(queued, _) => !matches!(queued.entry.content, Content::Group(_)),
            Self::Flush(_) | Self::Install(..) => false,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Entry(Queued { entry: Entry { content: Content::Group(bytes), .. }, .. }, _) => bytes.len(),
            _ => 0,
        }
    }
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
    let (mut buffer, mut lingers, mut ended_at) = (Vec::new(), false, Instant::now());
    while items.recv_many(&mut buffer, ENTRIES_MAX).await > 0 {
        if lingers && ended_at.elapsed() < LINGER {
            linger(&session.progress, &mut items, &mut buffer).await;
        }
        lingers = buffer.iter().map(Item::bytes).sum::<usize>() >= LINGERS_FROM
            && !buffer.iter().any(Item::is_of_new_leader);
        let served = session.serve(buffer.drain(..)).await;
        if let Err(error) = served {
            // Callers that wait get an error, because the senders are dropped.
            session.progress.stopped.send_replace(Some(Arc::new(error)));
            return;
        }
        ended_at = Instant::now();
    }
}

/// Collects entries until someone needs them applied.
async fn linger<A>(
    progress: &Progress,
    items: &mut mpsc::UnboundedReceiver<Item<A>>,
    buffer: &mut Vec<Item<A>>,
) {
    let (mut waiting, mut seen, mut bytes) = (progress.waiting.subscribe(), 0, 0);
    let mut over = std::pin::pin!(tokio::time::sleep(LINGER));
    loop {
        let new = &buffer[seen..];
        bytes += new.iter().map(Item::bytes).sum::<usize>();
        let is_urgent = |item: &Item<A>| !matches!(item, Item::Entry(..)) || item.is_of_new_leader();
        if bytes >= COLLECTED_MAX || !progress.has_space() || new.iter().any(is_urgent) {
            return;
        }
        seen = buffer.len();
        tokio::select! {
            biased;
            _ = waiting.wait_for(|waiting| *waiting > 0) => return,
            () = &mut over => return,
            count = items.recv_many(buffer, ENTRIES_MAX) => if count == 0 { return },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Group as _;
    use crate::machine::memory::{Memory, MemoryGroup};
    use crate::types::NodeId;

    const MOMENT: Duration = Duration::from_millis(1);

    struct Queue {
        applier: Applier<Memory>,
        last: u64,
    }

    impl Queue {
        fn new() -> Self {
            let (applier, task) = Applier::new(Arc::new(Memory::default()));
            tokio::spawn(task);
            Self { applier, last: 0 }
        }

        /// Queues an entry with a command of `bytes`.
        async fn add(&mut self, bytes: usize) {
            let mut group = MemoryGroup::default();
            group.push(vec![7; bytes]).unwrap();
            self.queue(Content::Group(group.finish().into()), bytes).await;
        }

        async fn queue(&mut self, content: Content, bytes: usize) {
            self.last += 1;
            let position = LogId::new(openraft::LeaderId::new(1, NodeId(1)), self.last);
            let (answers, _) = oneshot::channel();
            self.applier.queue(Queued { entry: Entry { position, content }, answers }, bytes).await.unwrap();
        }

        /// Returns after which time everything is applied.
        async fn applied_after(&self) -> Duration {
            let (begun, last) = (Instant::now(), self.last);
            let mut applied = self.applier.progress().applied();
            applied.wait_for(|applied| applied.is_some_and(|id| id.index >= last)).await.unwrap();
            begun.elapsed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn entries_are_collected_only_under_load() {
        let mut queue = Queue::new();
        for _ in 0..3 {
            queue.add(10).await;
            assert!(queue.applied_after().await < MOMENT);
        }
        queue.add(LINGERS_FROM).await;
        assert!(queue.applied_after().await < MOMENT);
        for _ in 0..3 {
            queue.add(10).await;
            tokio::time::sleep(LINGER / 4).await;
        }
        assert!(queue.applied_after().await >= LINGER / 4 - MOMENT);
        // The last call was small.
        queue.add(10).await;
        assert!(queue.applied_after().await < MOMENT);
        // Nothing came for a long time.
        queue.add(LINGERS_FROM).await;
        tokio::time::sleep(LINGER).await;
        queue.add(10).await;
        assert!(queue.applied_after().await < MOMENT);
    }

    /// A new leader begins with a blank entry, and then takes the shards.
    #[tokio::test(start_paused = true)]
    async fn entries_of_a_new_leader_are_not_collected() {
        let mut queue = Queue::new();
        queue.add(LINGERS_FROM).await;
        queue.applier.flush().await.unwrap();
        queue.add(LINGERS_FROM).await;
        queue.queue(Content::Blank, 0).await;
        assert!(queue.applied_after().await < MOMENT);
        queue.add(10).await;
        assert!(queue.applied_after().await < MOMENT);
    }

    #[tokio::test(start_paused = true)]
    async fn collected_entries_are_applied_when_someone_needs_them() {
        let mut queue = Queue::new();
        let applier = queue.applier.clone();
        for need in 0..3 {
            queue.add(LINGERS_FROM).await;
            applier.flush().await.unwrap();
            queue.add(LINGERS_FROM).await;
            tokio::time::sleep(MOMENT).await;
            assert!(applier.progress().applied().borrow().unwrap().index < queue.last);
            let begun = Instant::now();
            match need {
                0 => applier.progress().wait_until(queue.last).await.unwrap(),
                1 => applier.flush().await.unwrap(),
                _ => {
                    let _leads = applier.progress().hurry();
                    queue.applied_after().await;
                }
            }
            assert!(begun.elapsed() < MOMENT, "need {need}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_bytes_are_applied_without_waiting() {
        let mut queue = Queue::new();
        queue.add(LINGERS_FROM).await;
        queue.applier.flush().await.unwrap();
        let begun = Instant::now();
        for _ in 0..COLLECTED_MAX / LINGERS_FROM {
            queue.add(LINGERS_FROM).await;
        }
        queue.applied_after().await;
        assert!(begun.elapsed() < LINGER / 2, "{:?}", begun.elapsed());
    }
}
