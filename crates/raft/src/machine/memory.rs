//! A machine in memory, for tests.
//!
//! It keeps the commands that it has applied, with their positions. It can wait before it applies, fail, write a snapshot
//! file and forget what was not synced, like a server after a power cut.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use store::pace::Pace;
use tokio::sync::watch;

use super::{AppliedState, Content, Entry, Group, Machine, MachineError};
use crate::codec::{Take, put_optional_log_id};
use crate::types::LogId;

/// Bytes from which on a group takes no further command.
const GROUP_BYTES: usize = 64 * 1024;

/// Encodes commands, which are bytes.
#[derive(Debug, Default)]
pub struct MemoryGroup(Vec<u8>);

impl Group for MemoryGroup {
    type Command = Vec<u8>;
    type Answer = u64;

    fn push(&mut self, command: Vec<u8>) -> Result<(), u64> {
        if command == b"refused" {
            return Err(u64::MAX);
        }
        if self.0.is_empty() {
            self.0.extend([1, 0]);
        }
        self.0.extend((command.len() as u32).to_le_bytes());
        self.0.extend(command);
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.0.len() >= GROUP_BYTES
    }

    fn finish(self) -> Vec<u8> {
        self.0
    }
}

fn commands(group: &[u8]) -> Result<Vec<Vec<u8>>, MachineError> {
    let invalid = || MachineError::new("a group cannot be decoded");
    let mut take = Take(group.get(2..).ok_or_else(invalid)?);
    let mut commands = Vec::new();
    while let Some(length) = take.u32() {
        let (command, rest) = take.0.split_at_checked(length as usize).ok_or_else(invalid)?;
        commands.push(command.to_vec());
        take.0 = rest;
    }
    Ok(commands)
}

/// State of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct State {
    applied: AppliedState,
    /// Commands with the index of their entry.
    commands: Vec<(u64, Vec<u8>)>,
    /// Index of the first entry of each leader.
    leaders: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct Copy {
    positions: Vec<u8>,
    membership: Vec<u8>,
    commands: Vec<(u64, Vec<u8>)>,
    leaders: Vec<u64>,
}

/// A machine in memory. A clone shares its state, which so outlives the node.
#[derive(Debug, Clone)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    durable: Arc<Mutex<State>>,
    /// False while entries wait.
    runs: Arc<watch::Sender<bool>>,
    fails: Arc<Mutex<Option<String>>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            state: Arc::default(),
            durable: Arc::default(),
            runs: Arc::new(watch::Sender::new(true)),
            fails: Arc::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// Returns the applied commands, each with the index of its entry.
    pub fn commands(&self) -> Vec<(u64, Vec<u8>)> {
        lock(&self.state).commands.clone()
    }

    /// Returns the index of the first entry of each leader.
    pub fn leaders(&self) -> Vec<u64> {
        lock(&self.state).leaders.clone()
    }

    /// Stops or continues the application of entries.
    pub fn run(&self, runs: bool) {
        self.runs.send_replace(runs);
    }

    /// Fails the next application.
    pub fn fail(&self, problem: &str) {
        *lock(&self.fails) = Some(problem.to_owned());
    }

    /// Forgets what was not synced.
    pub fn cut_power(&self) {
        let durable = lock(&self.durable).clone();
        *lock(&self.state) = durable;
    }
}

impl State {
    fn apply(&mut self, entry: &Entry) -> Result<Vec<u64>, MachineError> {
        let position = entry.position;
        if let Some(applied) = self.applied.applied.filter(|applied| applied.index >= position.index) {
            return Err(MachineError::new(format!("entry {position} comes after {applied}")));
        }
        if self.applied.applied.is_none_or(|applied| applied.leader_id != position.leader_id) {
            self.leaders.push(position.index);
        }
        self.applied.applied = Some(position);
        match &entry.content {
            Content::Blank => Ok(Vec::new()),
            Content::Membership(bytes) => {
                self.applied.membership_at = Some(position);
                self.applied.membership = Arc::clone(bytes);
                Ok(Vec::new())
            }
            Content::Group(bytes) => {
                let commands = commands(bytes)?;
                let before = self.commands.len() as u64;
                let count = commands.len() as u64;
                self.commands.extend(commands.into_iter().map(|command| (position.index, command)));
                Ok((before..before + count).collect())
            }
        }
    }
}

impl Machine for Memory {
    type Command = Vec<u8>;
    /// Number of commands that were applied before.
    type Answer = u64;
    type Group = MemoryGroup;

    fn state(&self) -> AppliedState {
        lock(&self.state).applied.clone()
    }

    async fn apply(&self, entries: Vec<Entry>) -> Result<Vec<Vec<u64>>, MachineError> {
        // The sender lives as long as `self`.
        let _ = self.runs.subscribe().wait_for(|runs| *runs).await;
        if let Some(problem) = lock(&self.fails).take() {
            return Err(MachineError::new(problem));
        }
        let mut state = lock(&self.state);
        entries.iter().map(|entry| state.apply(entry)).collect()
    }

    async fn sync(&self) -> Result<AppliedState, MachineError> {
        let state = lock(&self.state).clone();
        let applied = state.applied.clone();
        *lock(&self.durable) = state;
        Ok(applied)
    }

    async fn copy_to(&self, path: &Path, _: Pace) -> Result<AppliedState, MachineError> {
        let State { applied, commands, leaders } = lock(&self.state).clone();
        let mut positions = Vec::new();
        put_optional_log_id(applied.applied.as_ref(), &mut positions);
        put_optional_log_id(applied.membership_at.as_ref(), &mut positions);
        let copy = Copy { positions, membership: applied.membership.to_vec(), commands, leaders };
        let bytes =
            postcard::to_stdvec(&copy).map_err(|error| MachineError::caused("cannot encode", error))?;
        std::fs::write(path, bytes).map_err(|error| MachineError::caused("cannot write a copy", error))?;
        Ok(applied)
    }

    fn inspect(&self, path: &Path) -> Result<AppliedState, MachineError> {
        Ok(read(path)?.applied)
    }

    async fn install(&self, path: &Path) -> Result<AppliedState, MachineError> {
        let state = read(path)?;
        let applied = state.applied.clone();
        *lock(&self.durable) = state.clone();
        *lock(&self.state) = state;
        std::fs::remove_file(path).map_err(|error| MachineError::caused("cannot take a copy", error))?;
        Ok(applied)
    }

    fn encode_answer(answer: &u64, bytes: &mut Vec<u8>) {
        bytes.extend(answer.to_le_bytes());
    }

    fn decode_answer(bytes: &[u8]) -> Result<u64, MachineError> {
        Take(bytes).u64().ok_or_else(|| MachineError::new("an answer has less than 8 bytes"))
    }
}

fn read(path: &Path) -> Result<State, MachineError> {
    let bytes = std::fs::read(path).map_err(|error| MachineError::caused("cannot read a copy", error))?;
    let damaged = || MachineError::new("a copy is damaged");
    let copy: Copy = postcard::from_bytes(&bytes).map_err(|_| damaged())?;
    let mut take = Take(&copy.positions);
    let mut position =
        || -> Result<Option<LogId>, MachineError> { take.optional_log_id().ok_or_else(damaged) };
    let (applied, membership_at) = (position()?, position()?);
    let applied = AppliedState { applied, membership_at, membership: copy.membership.into() };
    Ok(State { applied, commands: copy.commands, leaders: copy.leaders })
}
