//! The writer thread: the only thread that changes the database.
//!
//! Operations arrive over a bounded channel. All waiting operations are written in one transaction (group commit: an
//! fsync costs as much as hundreds of rows). Each is answered separately, after the [`syncer`](super::syncer) has made
//! it durable.
//!
//! If a transaction fails, its operations are repeated one by one, so that a failed operation affects no other. Batches
//! are the exception: after a failed batch, further batches are refused until their owner has loaded its rows again, which
//! proves that it has received the failure.
//!
//! After a transaction, the WAL is checkpointed if it has grown enough; see [`wal_checkpoint`](super::wal_checkpoint).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use model::Timestamp;
use model::record::Lease;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::Clock;
use super::error::{Failure, FatalState, Phase};
use super::file::{Lock, SpaceReserve, SpaceUse};
use super::operation::{Answer, Operation};
use super::position::{Position, PositionFile, StoredPositions};
use super::replica;
use super::replica::applying::{self, Applier, Care};
use super::statements::Statements;
use super::syncer::{Answered, Durable, Syncer, Written};
use super::wal_checkpoint::WalCheckpointer;
use crate::command::{Answers, Command, Entry, Reply, Update};
use crate::query::ArtifactDeletion;
use crate::{Committed, StoreError};

/// Maximum number of queued operations; further callers wait.
const QUEUE_MAX: usize = 1024;
/// Maximum number of rows in a transaction of more than one operation.
const GROUP_ROWS_MAX: usize = 8_192;
/// Transactions of at most this number of rows are synced on the writer thread itself, which saves waking another
/// thread: during such a short transaction, hardly any other work could be written.
const SYNCED_HERE_ROWS_MAX: usize = 64;

struct Request {
    operation: Operation,
    reply: oneshot::Sender<Result<Answer, StoreError>>,
}

impl Request {
    fn is_batch(&self) -> bool {
        matches!(self.operation, Operation::Command(Command::Commit { .. }))
    }
}

/// Handle of the writer thread. The thread ends when the handle is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    trust: FatalState,
}

/// State that the writer thread owns.
pub(super) struct Ownership {
    pub(super) connection: Connection,
    pub(super) lock: Lock,
    pub(super) ballast: SpaceReserve,
    /// Position of the database, and start of its WAL.
    pub(super) reached: StoredPositions,
    /// Position of the next event; higher than in the database after an accepted loss.
    pub(super) next_event: u64,
    /// `None` for a replica: its log tells whether commits are missing.
    pub(super) mark: Option<PositionFile>,
    pub(super) durable: Durable,
    /// `Some` for a replica.
    pub(super) replica: Option<replica::Shared>,
    pub(super) clock: Clock,
}

impl Writer {
    pub(super) fn start(ownership: Ownership, trust: FatalState) -> Result<Self, StoreError> {
        let (requests, receiver) = mpsc::channel(QUEUE_MAX);
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        let of_thread = trust.clone();
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || run(ownership, of_thread, receiver, &ready))
            .map_err(|error| StoreError::Unavailable { source: error.into() })?;
        is_ready.recv().map_err(|error| StoreError::Unavailable { source: error.into() })??;
        Ok(Self { requests: Some(requests), thread: Some(thread), trust })
    }

    /// Executes an operation and waits until it is durable.
    pub(super) async fn call(&self, operation: impl Into<Operation>) -> Result<Answer, StoreError> {
        self.trust.check()?;
        let operation = operation.into();
        let (reply, answer) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or_else(stopped)?;
        requests.send(Request { operation, reply }).await.map_err(|_| stopped())?;
        // The thread took the operation and died before answering it.
        answer.await.map_err(|error| StoreError::OutcomeUnknown { source: error.into() })?
    }

    pub(super) async fn done(&self, operation: impl Into<Operation>) -> Result<(), StoreError> {
        self.call(operation).await.map(drop)
    }

    pub(super) async fn leases(&self, update: Update) -> Result<Vec<Lease>, StoreError> {
        match self.call(update).await? {
            Answer::Reply(Reply::Taken { leases, .. }) => Ok(leases),
            _ => Err(stopped()),
        }
    }

    pub(super) async fn committed(&self, command: Command) -> Result<Committed, StoreError> {
        match self.call(Operation::Command(command)).await? {
            Answer::Reply(Reply::Committed(committed)) => Ok(committed),
            _ => Err(stopped()),
        }
    }

    pub(super) async fn secret(&self, update: Update) -> Result<[u8; 32], StoreError> {
        match self.call(update).await? {
            Answer::Reply(Reply::Secret(secret)) => Ok(secret),
            _ => Err(stopped()),
        }
    }

    pub(super) async fn artifact(&self, update: Update) -> Result<ArtifactDeletion, StoreError> {
        match self.call(update).await? {
            Answer::Reply(Reply::Artifact(deletion)) => Ok(deletion),
            _ => Err(stopped()),
        }
    }

    /// Applies entries to a replica.
    pub(super) async fn entries(&self, entries: Vec<Entry>) -> Result<Answers, StoreError> {
        match self.call(Operation::Apply(entries)).await? {
            Answer::Applied(answers) => Ok(answers),
            Answer::Reply(_) => Err(stopped()),
        }
    }

    pub(super) async fn changed(&self, update: Update) -> Result<u64, StoreError> {
        match self.call(update).await? {
            Answer::Reply(Reply::Changed(count)) => Ok(count),
            _ => Err(stopped()),
        }
    }
}

fn changes_only_by_its_log() -> StoreError {
    StoreError::Unavailable { source: "a replica changes only by the entries of its log".into() }
}

fn stopped() -> StoreError {
    StoreError::Fatal { reason: "the writer thread has stopped".into() }
}

fn previous_batch_failed() -> StoreError {
    StoreError::Unavailable { source: "the previous batch failed".into() }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.requests = None;
        // All queued operations are still written; afterwards the next store can open the file.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    ownership: Ownership,
    trust: FatalState,
    mut requests: mpsc::Receiver<Request>,
    ready: &std::sync::mpsc::SyncSender<Result<(), StoreError>>,
) {
    let Ownership { mut connection, lock, ballast, reached, next_event, mark, durable, replica, clock } =
        ownership;
    let helpers = WalCheckpointer::new(&mut connection, trust.clone())
        .and_then(|checkpointer| Ok((checkpointer, Syncer::start(trust.clone(), durable.clone(), mark)?)));
    // The statements end before their connection.
    {
        let prepared = helpers.and_then(|helpers| {
            let replica = replica.map(|shared| Applier::new(&connection, shared)).transpose()?;
            Ok((helpers, Statements::prepare(&connection)?, replica))
        });
        match prepared {
            Ok(((checkpointer, syncer), statements, replica)) => {
                let _ = ready.send(Ok(()));
                let connection = &connection;
                Session {
                    connection,
                    statements,
                    trust,
                    ballast,
                    reached,
                    next_event,
                    halted: false,
                    durable,
                    syncer,
                    checkpointer,
                    replica,
                    clock,
                }
                .serve_all(&mut requests);
            }
            Err(failure) => {
                let _ = ready.send(Err(trust.judge(failure, Phase::Change)));
            }
        }
    }
    // Closing checkpoints the WAL; only then may the next owner start.
    drop(connection);
    drop(lock);
}

/// Returns the first request and those that are queued behind it, up to a limit. Entries of a log are alone; those that
/// end the group are returned as well.
fn take_group(first: Request, requests: &mut mpsc::Receiver<Request>) -> (Vec<Request>, Option<Request>) {
    if matches!(first.operation, Operation::Apply(_)) {
        return (vec![first], None);
    }
    let mut rows = first.operation.rows();
    let mut group = vec![first];
    while rows < GROUP_ROWS_MAX
        && let Ok(request) = requests.try_recv()
    {
        if matches!(request.operation, Operation::Apply(_)) {
            return (group, Some(request));
        }
        rows += request.operation.rows();
        group.push(request);
    }
    (group, None)
}

struct Session<'c> {
    connection: &'c Connection,
    statements: Statements<'c>,
    trust: FatalState,
    ballast: SpaceReserve,
    /// Position after the newest written transaction, and start of the WAL.
    reached: StoredPositions,
    next_event: u64,
    /// Whether a batch failed and its owner has not loaded its rows since. Further batches depend on the failed one.
    halted: bool,
    durable: Durable,
    syncer: Syncer,
    checkpointer: WalCheckpointer,
    replica: Option<Applier<'c>>,
    clock: Clock,
}

impl Session<'_> {
    fn serve_all(&mut self, requests: &mut mpsc::Receiver<Request>) {
        let mut next = None;
        while let Some(first) = next.take().or_else(|| requests.blocking_recv()) {
            let (group, behind) = take_group(first, requests);
            next = behind;
            if catch_unwind(AssertUnwindSafe(|| self.serve(group))).is_err() {
                self.trust.judge(Failure::Broken("the writer thread panicked".into()), Phase::Change);
                self.settle(Vec::new(), Vec::new());
            }
        }
    }

    fn serve(&mut self, group: Vec<Request>) {
        if let [Request { operation: Operation::Apply(entries), .. }] = &*group {
            let answer = self.apply_entries(entries).map(Answer::Applied);
            return self.settle(group, vec![answer]);
        }
        match self.transact(&group) {
            Ok(answers) => self.settle(group, answers),
            Err(error) if group.len() == 1 => self.fail(group, error),
            Err(_) => group.into_iter().for_each(|request| self.serve(vec![request])),
        }
    }

    fn fail(&mut self, group: Vec<Request>, error: StoreError) {
        self.halted |= group.iter().any(Request::is_batch);
        self.settle(group, vec![Err(error)]);
    }

    /// Passes an ended transaction to the syncer, which syncs it and answers its callers.
    fn settle(&mut self, group: Vec<Request>, answers: Vec<Result<Answer, StoreError>>) {
        let rows: usize = group.iter().map(|request| request.operation.rows()).sum();
        let committed = answers.iter().any(Result::is_ok);
        let is_sync = group.iter().any(|request| matches!(request.operation, Operation::Sync));
        let reply = |(request, answer): (Request, _)| Answered { to: request.reply, answer };
        let replies = group.into_iter().zip(answers).map(reply).collect();
        let must_be_durable = self.replica.is_none() || is_sync;
        let (place, reached) = (self.durable.visible(), self.reached);
        let written = Written { place, committed, must_be_durable, reached, replies };
        self.syncer.settle(written, rows <= SYNCED_HERE_ROWS_MAX || !must_be_durable);
        self.checkpointer.after_commit(self.connection);
    }

    /// Writes all requests in one transaction; uses the reserve if the volume is full.
    fn transact(&mut self, group: &[Request]) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        if let [Request { operation: Operation::Check(_), .. }] = group {
            self.restore_ballast()?;
        }
        let mut result = self.attempt(group);
        while matches!(result, Err(StoreError::Full)) && self.release_ballast(group) {
            result = self.attempt(group);
            if matches!(result, Err(StoreError::Full)) {
                // The checkpoint may use all released space. After a complete checkpoint the WAL restarts, and its file
                // has space again.
                self.checkpointer.checkpoint_all(self.connection);
                result = self.attempt(group);
            }
        }
        if self.ballast.is_low() {
            for answer in result.iter_mut().flatten() {
                if let Ok(Answer::Reply(Reply::Committed(committed))) = answer {
                    committed.space_low = true;
                }
            }
        }
        result
    }

    fn release_ballast(&mut self, group: &[Request]) -> bool {
        let adds_work = group.iter().any(|request| request.operation.adds_work());
        let was_low = self.ballast.is_low();
        let released =
            self.ballast.release(if adds_work { SpaceUse::NewWork } else { SpaceUse::RunningWork });
        if released && !was_low {
            tracing::warn!("the store's volume is full: using its reserve for running work");
        }
        released
    }

    fn restore_ballast(&mut self) -> Result<(), StoreError> {
        self.ballast.restore().map_err(|error| {
            tracing::debug!(%error, "cannot allocate the store's reserve");
            StoreError::Full
        })
    }

    /// Runs one transaction. A refused operation is answered within it; any other failure rolls it back.
    fn attempt(&mut self, group: &[Request]) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        self.trust.check()?;
        let before = Position { next_event: self.next_event, ..self.reached.newest };
        let (mut position, halted) = (before, self.halted);
        let result = self.write(group, &mut position);
        match result {
            Ok(answers) => {
                if self.checkpointer.wal_restarted() {
                    self.reached.base = self.reached.newest;
                }
                if position != before {
                    (self.reached.newest, self.next_event) = (position, position.next_event);
                }
                Ok(answers)
            }
            Err((failure, phase)) => {
                let error = self.trust.judge(failure, phase);
                self.halted = halted;
                self.roll_back();
                Err(error)
            }
        }
    }

    fn write(
        &mut self,
        group: &[Request],
        position: &mut Position,
    ) -> Result<Vec<Result<Answer, StoreError>>, (Failure, Phase)> {
        let during = |phase| move |error: rusqlite::Error| (Failure::from(error), phase);
        self.statements.begin.execute([]).map_err(during(Phase::Change))?;
        let mut answers = Vec::with_capacity(group.len());
        for request in group {
            if request.is_batch() && self.halted {
                answers.push(Err(previous_batch_failed()));
                continue;
            }
            if self.replica.is_some() && !matches!(request.operation, Operation::Sync | Operation::Check(_)) {
                answers.push(Err(changes_only_by_its_log()));
                continue;
            }
            self.halted &= !matches!(request.operation, Operation::Resume);
            let next_event = &mut position.next_event;
            let answer = request.operation.apply(self.connection, &mut self.statements, next_event);
            answers.push(match answer {
                Ok(answer) => {
                    match &request.operation {
                        Operation::Command(Command::Commit { batch, .. }) => {
                            position.now = position.now.max(batch.now.as_micros());
                        }
                        // The clock is never set forward.
                        Operation::Command(Command::Update(Update::ResetClock(to))) => {
                            position.now = position.now.min(to.as_micros());
                        }
                        _ => {}
                    }
                    Ok(Answer::Reply(answer))
                }
                Err(Failure::Fenced(shard)) => Err(StoreError::Fenced { shard }),
                Err(failure) => return Err((failure, Phase::Change)),
            });
        }
        self.durable.begin();
        self.statements.commit.execute([]).map_err(during(Phase::Commit))?;
        Ok(answers)
    }

    /// Applies entries of a log in one transaction. Uses the reserve if the volume is full.
    fn apply_entries(&mut self, entries: &[Entry]) -> Result<Answers, StoreError> {
        let mut result = self.attempt_entries(entries, Care::Quick);
        while matches!(result, Err(StoreError::Full)) && self.ballast.release(SpaceUse::RunningWork) {
            result = self.attempt_entries(entries, Care::Quick);
            if matches!(result, Err(StoreError::Full)) {
                self.checkpointer.checkpoint_all(self.connection);
                result = self.attempt_entries(entries, Care::Quick);
            }
        }
        result
    }

    fn attempt_entries(&mut self, entries: &[Entry], care: Care) -> Result<Answers, StoreError> {
        self.trust.check()?;
        let Some(mut replica) = self.replica.take() else {
            return Err(StoreError::Fatal { reason: "a store that is no replica was given a log".into() });
        };
        let mut position = Position { next_event: self.next_event, ..self.reached.newest };
        let result = self.write_entries(&mut replica, entries, care, &mut position);
        let answers = match result {
            Ok(applied) => {
                if self.checkpointer.wal_restarted() {
                    self.reached.base = self.reached.newest;
                }
                (self.reached.newest, self.next_event) = (position, position.next_event);
                Ok(replica.publish(applied, Timestamp::from_micros(position.now), (self.clock)()))
            }
            Err((failure, phase)) => {
                let is_of_command = care == Care::Quick && applying::is_of_command(&failure);
                let error = if is_of_command { None } else { Some(self.trust.judge(failure, phase)) };
                self.roll_back();
                Err(error)
            }
        };
        self.replica = Some(replica);
        match answers {
            Ok(answers) => Ok(answers),
            Err(Some(error)) => Err(error),
            Err(None) => self.attempt_entries(entries, Care::Single),
        }
    }

    fn write_entries(
        &mut self,
        replica: &mut Applier<'_>,
        entries: &[Entry],
        care: Care,
        position: &mut Position,
    ) -> Result<applying::Applied, (Failure, Phase)> {
        let during = |phase| move |error: rusqlite::Error| (Failure::from(error), phase);
        self.statements.begin.execute([]).map_err(during(Phase::Change))?;
        let applied = replica
            .apply(entries, care, self.connection, &mut self.statements, position)
            .map_err(|failure| (failure, Phase::Change))?;
        self.durable.begin();
        self.statements.commit.execute([]).map_err(during(Phase::Commit))?;
        Ok(applied)
    }

    fn roll_back(&mut self) {
        // Some errors have already rolled the transaction back.
        if self.connection.is_autocommit() {
            return;
        }
        if let Err(error) = self.statements.rollback.execute([]) {
            self.trust
                .judge(Failure::Broken(format!("cannot roll back a transaction: {error}")), Phase::Change);
        }
    }
}
