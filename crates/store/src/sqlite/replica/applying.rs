//! Applies the entries of a log on the writer thread.
//!
//! All entries of a request are applied in one transaction, together with their position. Jobs and executions that change
//! several times in it are written once. If a command of them breaks an invariant, the transaction is repeated with a
//! savepoint for each command, and only that command is refused. The result depends on the entries and the rows alone, so
//! it is the same on every replica.

use model::record::Lease;
use model::{ServerId, Timestamp};
use rusqlite::{Connection, ErrorCode, Statement, params};

use super::{AppliedState, Shared, position_bytes, stored_row};
use crate::StoreError;
use crate::changelog::AppliedCommit;
use crate::command::{
    Answers, Content, Entry, Item, LogPosition, Refused, Reply, SealedCommit, Update, items,
};
use crate::sqlite::commit::{self, Pending};
use crate::sqlite::error::Failure;
use crate::sqlite::operation;
use crate::sqlite::position::Position;
use crate::sqlite::statements::Statements;

/// How to apply commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sqlite) enum Care {
    /// The first command that breaks an invariant fails the transaction.
    Quick,
    /// A command that breaks an invariant is refused, and the others are applied.
    Single,
}

/// State of a replica that its writer thread owns.
pub(in crate::sqlite) struct Applier<'c> {
    statements: Own<'c>,
    state: AppliedState,
    /// Whether an earlier leader ended without releasing its shards.
    unreleased: bool,
    shared: Shared,
}

/// Statements on the tables that only a replica has.
struct Own<'c> {
    advance: Statement<'c>,
    membership: Statement<'c>,
    owned: Statement<'c>,
    void: Statement<'c>,
    refuse: Statement<'c>,
    drain: Statement<'c>,
    forget: Statement<'c>,
    savepoint: Statement<'c>,
    release: Statement<'c>,
    rollback: Statement<'c>,
}

impl<'c> Own<'c> {
    fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            advance: connection.prepare("UPDATE raft_state SET applied = ?1, unreleased = ?2")?,
            membership: connection.prepare("UPDATE raft_state SET membership_at = ?1, membership = ?2")?,
            owned: connection.prepare("SELECT 1 FROM shards WHERE owner IS NOT NULL")?,
            void: connection.prepare("UPDATE shards SET owner = NULL WHERE owner IS NOT NULL")?,
            refuse: connection.prepare("INSERT OR REPLACE INTO refused_commands VALUES (?1, ?2, ?3, ?4)")?,
            drain: connection.prepare("INSERT OR IGNORE INTO servers_draining VALUES (?1)")?,
            forget: connection.prepare("DELETE FROM servers_draining WHERE server = ?1")?,
            savepoint: connection.prepare("SAVEPOINT command")?,
            release: connection.prepare("RELEASE command")?,
            rollback: connection.prepare("ROLLBACK TO command")?,
        })
    }
}

/// What the entries of a transaction have changed so far. It counts only when the transaction is committed.
pub(in crate::sqlite) struct Applied {
    pub(in crate::sqlite) answers: Answers,
    state: AppliedState,
    unreleased: bool,
    commits: Vec<AppliedCommit>,
}

impl<'c> Applier<'c> {
    pub(in crate::sqlite) fn new(connection: &'c Connection, shared: Shared) -> Result<Self, Failure> {
        let (state, unreleased) = stored_row(connection)?
            .ok_or_else(|| Failure::Broken("the table `raft_state` has no row".into()))?;
        shared.applied.send_replace(state.clone());
        Ok(Self { statements: Own::prepare(connection)?, state, unreleased, shared })
    }

    /// Applies entries inside the transaction that the caller began.
    pub(in crate::sqlite) fn apply(
        &mut self,
        entries: &[Entry],
        care: Care,
        connection: &Connection,
        statements: &mut Statements<'_>,
        position: &mut Position,
    ) -> Result<Applied, Failure> {
        let mut applying = Applying {
            own: &mut self.statements,
            statements,
            connection,
            position,
            care,
            pending: Pending::default(),
            applied: Applied {
                answers: Vec::with_capacity(entries.len()),
                state: self.state.clone(),
                unreleased: self.unreleased,
                commits: Vec::new(),
            },
        };
        for entry in entries {
            applying.entry(entry)?;
        }
        applying.pending.write(applying.statements)?;
        let applied = applying.applied;
        if applied.state.membership_at != self.state.membership_at {
            let place = applied.state.membership_at.map(position_bytes);
            self.statements.membership.execute(params![place, &*applied.state.membership])?;
        }
        let place = applied.state.applied.map(position_bytes);
        self.statements.advance.execute(params![place, applied.unreleased])?;
        Ok(applied)
    }

    /// Publishes what a committed transaction has changed, and returns its answers.
    pub(in crate::sqlite) fn publish(
        &mut self,
        applied: Applied,
        engine_time: Timestamp,
        now: Timestamp,
    ) -> Answers {
        (self.state, self.unreleased) = (applied.state, applied.unreleased);
        self.shared.changelog.add(applied.commits, engine_time, now);
        self.shared.applied.send_replace(self.state.clone());
        applied.answers
    }
}

/// Returns whether a command is refused for this failure, instead of stopping the replica: the command breaks an
/// invariant, and does so on every replica.
pub(in crate::sqlite) fn is_of_command(failure: &Failure) -> bool {
    match failure {
        Failure::Broken(_) => true,
        Failure::Sqlite(error) => error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation),
        Failure::Fenced(_) | Failure::Store(_) => false,
    }
}

/// Entries of one transaction.
struct Applying<'a, 'c, 's, 'e> {
    own: &'a mut Own<'c>,
    statements: &'a mut Statements<'s>,
    connection: &'a Connection,
    position: &'a mut Position,
    care: Care,
    /// What the commits so far have not written.
    pending: Pending<'e>,
    applied: Applied,
}

impl<'e> Applying<'_, '_, '_, 'e> {
    fn entry(&mut self, entry: &'e Entry) -> Result<(), Failure> {
        if let Some(applied) = self.applied.state.applied.filter(|applied| *applied >= entry.position) {
            let reason = format!("entry {:?} of the log comes after {applied:?}", entry.position);
            return Err(Failure::Store(StoreError::Fatal { reason }));
        }
        let before = self.applied.state.applied.map(LogPosition::leader);
        if before != Some(entry.position.leader()) {
            self.applied.unreleased |= self.own.owned.exists([])?;
            self.own.void.execute([])?;
        }
        let mut answers = Vec::new();
        match &entry.content {
            Content::Blank => {}
            Content::Membership(bytes) => {
                self.applied.state.membership_at = Some(entry.position);
                self.applied.state.membership = bytes.clone();
            }
            Content::Group(group) => {
                for (number, item) in items(group).enumerate() {
                    let item = item.map_err(Failure::Store)?;
                    let answer = match self.care {
                        Care::Quick => self.item(&item)?,
                        Care::Single => self.item_alone(&item, entry.position, number, group)?,
                    };
                    answers.push(answer);
                }
            }
        }
        self.applied.answers.push(answers);
        self.applied.state.applied = Some(entry.position);
        Ok(())
    }

    /// Applies a command; refuses it if it breaks an invariant.
    fn item_alone(
        &mut self,
        item: &Item<'e>,
        at: LogPosition,
        number: usize,
        group: &[u8],
    ) -> Result<Result<Reply, Refused>, Failure> {
        let (position, commits) = (*self.position, self.applied.commits.len());
        self.own.savepoint.execute([])?;
        let answer = self.item(item);
        let answer = answer.and_then(|answer| self.pending.write(self.statements).map(|()| answer));
        let answer = match answer {
            Err(failure) if is_of_command(&failure) => {
                self.own.rollback.execute([])?;
                self.pending = Pending::default();
                *self.position = position;
                self.applied.commits.truncate(commits);
                let reason = match failure {
                    Failure::Broken(reason) => reason,
                    Failure::Sqlite(error) => error.to_string(),
                    other => return Err(other),
                };
                tracing::error!(index = at.index, number, error = reason, "refused a command of the log");
                self.own.refuse.execute(params![at.index, number, reason, group])?;
                // The memory of the caller differs from the rows, so its later batches must fail as well.
                if let Item::Commit(commit) = item {
                    release(self.statements, &commit.leases)?;
                }
                Err(Refused::Broken(reason))
            }
            answer => answer?,
        };
        self.own.release.execute([])?;
        Ok(answer)
    }

    fn item(&mut self, item: &Item<'e>) -> Result<Result<Reply, Refused>, Failure> {
        let answer = match item {
            Item::Commit(commit) => self.commit(commit),
            Item::Update(update) => self.update(update),
        };
        match answer {
            Ok(reply) => Ok(Ok(reply)),
            Err(Failure::Fenced(shard)) => Ok(Err(Refused::Fenced(shard))),
            Err(failure) => Err(failure),
        }
    }

    fn commit(&mut self, commit: &SealedCommit<'e>) -> Result<Reply, Failure> {
        let mut touched = Vec::new();
        let before = self.position.next_event;
        let (pending, next_event) = (&mut self.pending, &mut self.position.next_event);
        let committed = commit::commit_sealed(self.statements, commit, pending, next_event, |row| {
            touched.extend(row.live_change());
        })?;
        self.position.now = self.position.now.max(commit.now.as_micros());
        let touched = model::changelog::LiveChange::each_once(touched);
        if !touched.is_empty() || self.position.next_event != before {
            let epoch = commit.leases.iter().map(|lease| lease.epoch).max().unwrap_or_default();
            self.applied.commits.push(AppliedCommit { epoch, touched });
        }
        Ok(Reply::Committed(committed))
    }

    fn update(&mut self, update: &Update) -> Result<Reply, Failure> {
        self.pending.write(self.statements)?;
        match update {
            Update::SetDraining { server, draining } => self.set_draining(*server, *draining),
            Update::ResetClock(to) => {
                self.position.now = self.position.now.min(to.as_micros());
                operation::apply(update, self.connection, self.statements, &mut self.position.next_event)
            }
            _ => {
                let next_event = &mut self.position.next_event;
                let reply = operation::apply(update, self.connection, self.statements, next_event)?;
                Ok(match reply {
                    Reply::Taken { leases, was_owned } if !leases.is_empty() => {
                        let was_owned = was_owned | std::mem::take(&mut self.applied.unreleased);
                        Reply::Taken { leases, was_owned }
                    }
                    reply => reply,
                })
            }
        }
    }

    fn set_draining(&mut self, server: ServerId, draining: bool) -> Result<Reply, Failure> {
        let statement = if draining { &mut self.own.drain } else { &mut self.own.forget };
        statement.execute([server.to_bits().to_be_bytes()])?;
        Ok(Reply::Done)
    }
}

fn release(statements: &mut Statements<'_>, leases: &[Lease]) -> Result<(), Failure> {
    crate::sqlite::leases::release(statements, leases)
}

/// Returns how far the log was applied; `None` if the file is not a replica.
pub(super) fn stored_state(connection: &Connection) -> Result<Option<AppliedState>, Failure> {
    Ok(stored_row(connection)?.map(|(state, _)| state))
}
