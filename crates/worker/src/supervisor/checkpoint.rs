//! What tasks write to `$BELFRY_CHECKPOINT`.
//!
//! A file is taken when it is another one than before, by its number, size and time of change: about once a
//! second while its task runs, through the agent, and once more at the end, with the report of it. So
//! what a task saves within the grace of a stop is saved, whether or not an agent is there. What the server
//! has is not told again by the report; if it is, the server notices that it is the same.
//!
//! # Cost
//! One look at each running task's folder a second. A task that writes no such file costs nothing else.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bytes::Bytes;
use model::ExecutionId;
use model::limits::CHECKPOINT_BYTES_MAX;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

use super::Supervisor;
use super::execution::Task;
use super::poller::Alarm;
use crate::clock::{BootMillis, boot_millis};
use crate::layout::CHECKPOINT_FILE;
use crate::link::{Answer, Save, Saved};

/// Between two looks.
const LOOK_EVERY: BootMillis = 1_000;
/// The most that one look has saved; the others come with the next.
const SAVES_A_LOOK: usize = 32;

/// Which file it is, in which state: number, size, and time of change in seconds and nanoseconds.
type Stamp = (u64, u64, i64, i64);

/// How far a task's file was followed.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// What the server has, or will never take.
    settled: Option<Stamp>,
    /// What the agent was last asked to save.
    asked: Option<Stamp>,
    /// How often it was asked; names what it was asked last.
    asks: u64,
}

/// The file as it lies there now; nothing if it does not, or is no file.
fn stamp(folder: &Path) -> Option<Stamp> {
    let found = fs::symlink_metadata(folder.join(CHECKPOINT_FILE)).ok().filter(fs::Metadata::is_file)?;
    Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
}

/// The bytes of the file.
fn read(folder: &Path) -> io::Result<Vec<u8>> {
    // The file is the task's: it may have become a link to where we can read and it cannot, or a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(CWD, folder.join(CHECKPOINT_FILE), flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    fs::File::from(file).take(CHECKPOINT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > CHECKPOINT_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {CHECKPOINT_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

impl Followed {
    /// What is in the folder before the task begins is what the server gave.
    pub(super) fn from_start(folder: &Path, given: bool) -> Self {
        Self { settled: given.then(|| stamp(folder)).flatten(), ..Self::default() }
    }

    /// The file, if it is to be saved and the agent was not asked to yet.
    fn news(&mut self, id: ExecutionId, folder: &Path) -> Option<Vec<u8>> {
        let now = stamp(folder).filter(|now| Some(*now) != self.settled && Some(*now) != self.asked)?;
        self.take(id, folder, now)
    }

    /// The file, if the server does not have it, at the end of its task.
    pub(super) fn last(&mut self, id: ExecutionId, folder: &Path) -> Option<Bytes> {
        let now = stamp(folder).filter(|now| Some(*now) != self.settled)?;
        self.take(id, folder, now).map(Bytes::from)
    }

    fn take(&mut self, id: ExecutionId, folder: &Path, now: Stamp) -> Option<Vec<u8>> {
        match read(folder) {
            Ok(bytes) => {
                self.asked = Some(now);
                self.asks += 1;
                Some(bytes)
            }
            Err(error) => {
                tracing::warn!(execution_id = %id, %error, "a checkpoint is not taken");
                self.settled = Some(now);
                None
            }
        }
    }
}

impl Supervisor {
    /// A task runs: its file is looked at from now on.
    pub(super) fn follow_checkpoints(&mut self) {
        if !std::mem::replace(&mut self.follows_checkpoints, true) {
            self.poller.alarm(boot_millis() + LOOK_EVERY, Alarm::Checkpoints);
        }
    }

    /// Looks at the file of every running task, and has the agent save those that are new.
    pub(super) fn check_checkpoints(&mut self) {
        self.follows_checkpoints = false;
        let (mut running, mut saves, mut left) = (false, Vec::new(), SAVES_A_LOOK);
        let takes = self.agent.as_ref().is_some_and(|agent| agent.synced && agent.has_room());
        for (id, execution) in &mut self.executions {
            let super::Phase::Running(task) = &mut execution.phase else { continue };
            running = true;
            let Task { folder: Some(folder), checkpoint, exit: None, .. } = &mut **task else { continue };
            if takes
                && left > 0
                && let Some(data) = checkpoint.news(*id, &folder.path)
            {
                left -= 1;
                let (execution_id, fence, number) = (id.to_string(), execution.fence.0, checkpoint.asks);
                saves.push(Save { execution_id, fence, number, data: data.into() });
            }
        }
        for save in saves {
            self.say(Answer::Save(save));
        }
        if running {
            self.follow_checkpoints();
        }
    }

    /// The agent has saved what it was last asked to of an execution, or never can.
    pub(super) fn saved(&mut self, saved: &Saved) {
        let Ok(id) = saved.execution_id.parse::<ExecutionId>() else { return };
        if let Some(task) = self.task_mut(id) {
            let followed = &mut task.checkpoint;
            // What was asked last has not been answered yet where the file changed meanwhile.
            if followed.asks == saved.number {
                followed.settled = followed.asked;
            }
        }
    }

    /// A new agent knows nothing of what the one before was saving.
    pub(super) fn save_again(&mut self) {
        for execution in self.executions.values_mut() {
            if let super::Phase::Running(task) = &mut execution.phase {
                task.checkpoint.asked = None;
            }
        }
    }
}
