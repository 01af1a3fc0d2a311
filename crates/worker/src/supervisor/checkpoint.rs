//! Checkpoint files: what tasks write to `$BELFRY_CHECKPOINT`.
//!
//! A file is saved when its inode, size or modification time has changed. This is checked about once per second while
//! the task runs, and the agent uploads the file. At the end of the task the last file is sent with the report. So a
//! checkpoint that a task writes within the grace period of a stop is saved, whether or not an agent is connected. A
//! checkpoint that the server already has is not sent in the report; a duplicate would do no harm, because the server
//! detects it.
//!
//! A task may also save a checkpoint through its socket. The newer of the two counts, so a file written before that
//! is not saved. If a file cannot be saved, for example because it is too large, the refusal is reported in three
//! places: a file in the task's folder, a line in the log, and the detail of the execution's end.
//!
//! # Cost
//! One `stat` per second for each running task, and one read of its memory use in its first check. A task that writes no
//! checkpoint costs nothing else.

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
use crate::link::{Answer, CheckpointSaved, Save, Saved};
use crate::process::spawn::peak_memory;

/// Interval between checks, in milliseconds.
const CHECK_INTERVAL: BootMillis = 1_000;
/// Maximum number of files that one check sends; the others follow in the next check.
const SAVES_PER_CHECK: usize = 32;

/// Identity and state of a file: inode, size, and modification time in seconds and nanoseconds.
type Stamp = (u64, u64, i64, i64);

/// State of the checkpoint file of a task.
#[derive(Debug, Default)]
pub(super) struct CheckpointFile {
    /// The file that the server has, or has permanently refused.
    settled: Option<Stamp>,
    /// The file that the agent was last requested to save.
    asked: Option<Stamp>,
    /// Number of requests to the agent, which is also the number of the last one.
    requests: u64,
    /// Time of the last checkpoint that the task saved through its socket, and the file at that time. A file that is
    /// not newer is superseded.
    called: Option<((i64, i64), Option<Stamp>)>,
    /// Reason why the last file was refused.
    refusal: Option<String>,
}

/// A changed file.
enum FileChange {
    /// Content of the file, and its modification time.
    Save(Vec<u8>, (i64, i64)),
    /// The file is refused for this reason.
    Refused(String),
}

/// Current state of the file; `None` if it does not exist or is not a regular file.
fn stamp(folder: &Path) -> Option<Stamp> {
    let found = fs::symlink_metadata(folder.join(CHECKPOINT_FILE)).ok().filter(fs::Metadata::is_file)?;
    Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
}

/// Reads the file, up to the size limit.
fn read(folder: &Path) -> io::Result<Vec<u8>> {
    // The task controls the file: it may be a link to a file that only the supervisor can read, or a pipe.
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

impl CheckpointFile {
    /// Starts to follow the file of a task. With `given`, the existing file is the checkpoint that the server has
    /// provided.
    pub(super) fn from_start(folder: &Path, given: bool) -> Self {
        Self { settled: given.then(|| stamp(folder)).flatten(), ..Self::default() }
    }

    /// Returns the file if it has changed and the agent was not requested to save it yet.
    fn take_change(&mut self, folder: &Path) -> Option<FileChange> {
        let now = stamp(folder).filter(|now| self.is_new(now) && Some(*now) != self.asked)?;
        Some(self.take(folder, now))
    }

    /// Returns the file at the end of its task, if the server does not have it.
    fn last(&mut self, folder: &Path) -> Option<FileChange> {
        let now = stamp(folder).filter(|now| self.is_new(now))?;
        Some(self.take(folder, now))
    }

    fn is_new(&self, now: &Stamp) -> bool {
        // A comparison of times alone would drop every further file after the wall clock was set back.
        let is_later = |(at, file): ((i64, i64), Option<Stamp>)| (now.2, now.3) > at || file != Some(*now);
        Some(*now) != self.settled && self.called.is_none_or(is_later)
    }

    fn take(&mut self, folder: &Path, now: Stamp) -> FileChange {
        match read(folder) {
            Ok(bytes) => {
                self.asked = Some(now);
                self.requests += 1;
                self.refusal = None;
                FileChange::Save(bytes, (now.2, now.3))
            }
            Err(error) => {
                self.settled = Some(now);
                let refusal = format!("the checkpoint in $BELFRY_CHECKPOINT was not saved: {error}");
                self.refusal = Some(refusal.clone());
                FileChange::Refused(refusal)
            }
        }
    }

    /// Records that the task saved a checkpoint through its socket at `at`.
    fn called(&mut self, folder: &Path, at: (i64, i64)) {
        self.called = Some((at, stamp(folder)));
        // The agent may have dropped a pending file because of this checkpoint.
        self.asked = None;
        self.refusal = None;
    }
}

/// Writes a file with the reason for the refusal to the task's folder.
fn write_refusal(folder: &Path, word: &str, owner: Option<(u32, u32)>) -> io::Result<()> {
    let path = folder.join(REFUSED_FILE);
    // The task may have placed a link here to a file that only the supervisor can write.
    fs::remove_file(&path).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
    let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&path)?;
    if let Some((uid, gid)) = owner {
        fchown(&file, Some(uid), Some(gid))?;
    }
    writeln!(file, "{word}")
}

impl Supervisor {
    /// Schedules the next check of the checkpoint files.
    pub(super) fn schedule_checkpoint_check(&mut self) {
        if !std::mem::replace(&mut self.is_checkpoint_check_set, true) {
            self.poller.alarm(boot_millis() + CHECK_INTERVAL, Alarm::Checkpoints);
        }
    }

    /// Checks the file of every running task, and requests the agent to save the changed ones.
    pub(super) fn check_checkpoints(&mut self) {
        self.is_checkpoint_check_set = false;
        let (mut running, mut saves, mut refusals, mut left) =
            (false, Vec::new(), Vec::new(), SAVES_PER_CHECK);
        let takes = self.agent.as_ref().is_some_and(|agent| agent.synced && agent.has_room());
        for (id, task) in &mut self.tasks {
            running = true;
            let fence = task.order.assignment.fence;
            // The measurements of `usage` come too late for a short task.
            if task.exit.is_none() && task.early_peak_memory == 0 {
                task.early_peak_memory = peak_memory(task.pid).unwrap_or(0);
            }
            let Task { folder, checkpoint, exit: None, .. } = task else { continue };
            if !takes || left == 0 {
                continue;
            }
            match checkpoint.take_change(&folder.path) {
                Some(FileChange::Save(data, (unix_seconds, nanos))) => {
                    left -= 1;
                    let (execution_id, number) = (id.to_string(), checkpoint.requests);
                    let data = data.into();
                    saves.push(Save { execution_id, fence, number, data, unix_seconds, nanos });
                }
                Some(FileChange::Refused(refusal)) => refusals.push((*id, refusal)),
                None => {}
            }
        }
        for (id, refusal) in refusals {
            self.report_refusal(id, &refusal);
        }
        for save in saves {
            self.send_to_agent(Answer::Save(save));
        }
        if running {
            self.schedule_checkpoint_check();
        }
    }

    /// Reports a refusal to the task and in its log.
    fn report_refusal(&mut self, id: ExecutionId, refusal: &str) {
        tracing::warn!(execution_id = %id, reason = refusal, "checkpoint not saved");
        if let Some(log) = self.logs.get_mut(&id) {
            log.note(refusal);
            self.log_changed(id);
        }
        let owner = self.user.as_ref().map(|user| (user.uid, user.gid));
        let Some(task) = self.tasks.get(&id) else { return };
        if let Err(error) = write_refusal(&task.folder.path, refusal, owner) {
            tracing::debug!(execution_id = %id, %error, "cannot notify the task");
        }
    }

    /// Returns the checkpoint of an ended task that the server does not have, and the reason if the last file was
    /// refused.
    pub(super) fn last_checkpoint(&mut self, id: ExecutionId) -> (Option<Bytes>, Option<String>) {
        let Some(Task { checkpoint, folder, .. }) = self.tasks.get_mut(&id) else { return (None, None) };
        let data = match checkpoint.last(&folder.path) {
            Some(FileChange::Save(data, _)) => Some(data.into()),
            Some(FileChange::Refused(refusal)) => {
                self.report_refusal(id, &refusal);
                None
            }
            None => None,
        };
        (data, self.tasks.get_mut(&id).and_then(|task| task.checkpoint.refusal.take()))
    }

    /// Records that a task has saved a checkpoint through its socket.
    pub(super) fn saved_through_socket(&mut self, put: &CheckpointSaved) {
        let Ok(id) = put.execution_id.parse::<ExecutionId>() else { return };
        let Some(Task { folder, checkpoint, .. }) = self.tasks.get_mut(&id) else { return };
        checkpoint.called(&folder.path, (put.unix_seconds, put.nanos));
    }

    /// Records that the agent has saved the file of a request, or that the file was permanently refused.
    pub(super) fn saved(&mut self, saved: &Saved) {
        let Ok(id) = saved.execution_id.parse::<ExecutionId>() else { return };
        if let Some(task) = self.tasks.get_mut(&id) {
            let followed = &mut task.checkpoint;
            // If the file has changed since, a newer request is still pending.
            if followed.requests == saved.number && followed.asked.is_some() {
                followed.settled = followed.asked;
            }
        }
    }

    /// Repeats all pending requests to a new agent, which does not know those of the previous one.
    pub(super) fn repeat_saves(&mut self) {
        for task in self.tasks.values_mut() {
            task.checkpoint.asked = None;
        }
    }
}
