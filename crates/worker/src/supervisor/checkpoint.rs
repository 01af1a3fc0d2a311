//! What tasks write to `$BELFRY_CHECKPOINT`.
//!
//! A file is taken when it is another one than before, by its number, size and time of change: about once a
//! second while its task runs, through the agent, and once more at the end, with the report of it. So
//! what a task saves within the grace of a stop is saved, whether or not an agent is there. What the server
//! has is not told again by the report; if it is, the server notices that it is the same.
//!
//! A task may also save through its socket: the newer of the two counts, so a file from before that is not taken.
//! A file that cannot be taken, above all one that is too large, is told to all who may look: a file beside it for
//! the task, a line in the log, and the detail of the end for events and job.
//!
//! # Cost
//! One look at each running task's folder a second, and now and then one at its memory. A task that writes no such file
//! costs nothing else.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use bytes::Bytes;
use model::ExecutionId;
use model::limits::CHECKPOINT_BYTES_MAX;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

use super::Supervisor;
use super::poller::Alarm;
use super::task::Task;
use crate::clock::{BootMillis, boot_millis};
use crate::layout::{CHECKPOINT_FILE, REFUSED_FILE};
use crate::link::{Answer, Put, Save, Saved};
use crate::process::spawn::peak_memory;

/// Between two looks.
const LOOK_EVERY: BootMillis = 1_000;
/// The most that one look has saved; the others come with the next.
const SAVES_A_LOOK: usize = 32;
/// The memory of a task is looked at with one look in so many.
const SAMPLES: u32 = 8;

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
    /// When the task last saved through its socket, and the file then: one that is not newer is out of date.
    called: Option<((i64, i64), Option<Stamp>)>,
    /// Why the file was not taken, if the last one was not.
    refusal: Option<String>,
}

/// A file that is another one than before.
enum News {
    /// Its bytes, and when it was written.
    Save(Vec<u8>, (i64, i64)),
    /// It is not taken.
    Refused(String),
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
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::from(file).take(CHECKPOINT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > CHECKPOINT_BYTES_MAX {
        let most = model::Bytes(CHECKPOINT_BYTES_MAX as u64);
        return Err(io::Error::other(format!("larger than {most}")));
    }
    Ok(bytes)
}

impl Followed {
    /// What is in the folder before the task begins is what the server gave.
    pub(super) fn from_start(folder: &Path, given: bool) -> Self {
        Self { settled: given.then(|| stamp(folder)).flatten(), ..Self::default() }
    }

    /// The file, if it is to be saved and the agent was not asked to yet.
    fn news(&mut self, folder: &Path) -> Option<News> {
        let now = stamp(folder).filter(|now| self.is_new(now) && Some(*now) != self.asked)?;
        Some(self.take(folder, now))
    }

    /// The file, if the server does not have it, at the end of its task.
    fn last(&mut self, folder: &Path) -> Option<News> {
        let now = stamp(folder).filter(|now| self.is_new(now))?;
        Some(self.take(folder, now))
    }

    fn is_new(&self, now: &Stamp) -> bool {
        // Times alone would drop every further file after the wall clock was set back.
        let is_later = |(at, file): ((i64, i64), Option<Stamp>)| (now.2, now.3) > at || file != Some(*now);
        Some(*now) != self.settled && self.called.is_none_or(is_later)
    }

    fn take(&mut self, folder: &Path, now: Stamp) -> News {
        match read(folder) {
            Ok(bytes) => {
                self.asked = Some(now);
                self.asks += 1;
                self.refusal = None;
                News::Save(bytes, (now.2, now.3))
            }
            Err(error) => {
                self.settled = Some(now);
                let refusal = format!("the checkpoint in $BELFRY_CHECKPOINT was not saved: {error}");
                self.refusal = Some(refusal.clone());
                News::Refused(refusal)
            }
        }
    }

    /// The task saved through its socket at `at`.
    fn called(&mut self, folder: &Path, at: (i64, i64)) {
        self.called = Some((at, stamp(folder)));
        // What the agent was asked to save it may have given up for this.
        self.asked = None;
        self.refusal = None;
    }
}

/// Writes into the task's folder why its file is not saved.
fn leave_word(folder: &Path, word: &str, owner: Option<(u32, u32)>) -> io::Result<()> {
    let path = folder.join(REFUSED_FILE);
    // What lies there may be a link of the task to where we can write and it cannot.
    fs::remove_file(&path).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
    let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&path)?;
    if let Some((uid, gid)) = owner {
        fchown(&file, Some(uid), Some(gid))?;
    }
    writeln!(file, "{word}")
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
        self.looks = self.looks.wrapping_add(1);
        let looks = self.looks;
        let (mut running, mut saves, mut refusals, mut left) = (false, Vec::new(), Vec::new(), SAVES_A_LOOK);
        let takes = self.agent.as_ref().is_some_and(|agent| agent.synced && agent.has_room());
        for (id, task) in &mut self.tasks {
            running = true;
            let fence = task.order.assignment.fence;
            if task.exit.is_none()
                && (task.seen_memory == 0 || task.pid.cast_unsigned() % SAMPLES == looks % SAMPLES)
            {
                task.seen_memory = task.seen_memory.max(peak_memory(task.pid).unwrap_or(0));
            }
            let Task { folder, checkpoint, exit: None, .. } = task else { continue };
            if !takes || left == 0 {
                continue;
            }
            match checkpoint.news(&folder.path) {
                Some(News::Save(data, (unix_seconds, nanos))) => {
                    left -= 1;
                    let (execution_id, number) = (id.to_string(), checkpoint.asks);
                    let data = data.into();
                    saves.push(Save { execution_id, fence, number, data, unix_seconds, nanos });
                }
                Some(News::Refused(refusal)) => refusals.push((*id, refusal)),
                None => {}
            }
        }
        for (id, refusal) in refusals {
            self.tell_refusal(id, &refusal);
        }
        for save in saves {
            self.say(Answer::Save(save));
        }
        if running {
            self.follow_checkpoints();
        }
    }

    /// Tells the task, and whoever reads its log, that its file is not saved.
    fn tell_refusal(&mut self, id: ExecutionId, refusal: &str) {
        tracing::warn!(execution_id = %id, refusal, "checkpoint not saved");
        if let Some(log) = self.logs.get_mut(&id) {
            log.note(refusal);
            self.log_changed(id);
        }
        let owner = self.user.as_ref().map(|user| (user.uid, user.gid));
        let Some(task) = self.tasks.get(&id) else { return };
        if let Err(error) = leave_word(&task.folder.path, refusal, owner) {
            tracing::debug!(execution_id = %id, %error, "cannot notify the task");
        }
    }

    /// What the file of a task that has ended holds, if the server does not have it; and why it is not taken, if the
    /// last one was not.
    pub(super) fn last_checkpoint(&mut self, id: ExecutionId) -> (Option<Bytes>, Option<String>) {
        let Some(Task { checkpoint, folder, .. }) = self.tasks.get_mut(&id) else { return (None, None) };
        let data = match checkpoint.last(&folder.path) {
            Some(News::Save(data, _)) => Some(data.into()),
            Some(News::Refused(refusal)) => {
                self.tell_refusal(id, &refusal);
                None
            }
            None => None,
        };
        (data, self.tasks.get_mut(&id).and_then(|task| task.checkpoint.refusal.take()))
    }

    /// A task has saved a checkpoint through its socket.
    pub(super) fn saved_by_call(&mut self, put: &Put) {
        let Ok(id) = put.execution_id.parse::<ExecutionId>() else { return };
        let Some(Task { folder, checkpoint, .. }) = self.tasks.get_mut(&id) else { return };
        checkpoint.called(&folder.path, (put.unix_seconds, put.nanos));
    }

    /// The agent has saved what it was last asked to of an execution, or never can.
    pub(super) fn saved(&mut self, saved: &Saved) {
        let Ok(id) = saved.execution_id.parse::<ExecutionId>() else { return };
        if let Some(task) = self.tasks.get_mut(&id) {
            let followed = &mut task.checkpoint;
            // What was asked last has not been answered yet where the file changed meanwhile.
            if followed.asks == saved.number && followed.asked.is_some() {
                followed.settled = followed.asked;
            }
        }
    }

    /// A new agent knows nothing of what the one before was saving.
    pub(super) fn save_again(&mut self) {
        for task in self.tasks.values_mut() {
            task.checkpoint.asked = None;
        }
    }
}
