//! What is shown while a command waits.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::JobStatus;
use model::api::Job;

use super::Out;
use super::text::clean;

/// Tells people on standard error what is waited for: a line that moves on a terminal, a line for
/// each change elsewhere, nothing where quiet is wanted.
#[derive(Debug)]
pub(crate) struct Progress {
    out: Out,
    bar: Option<ProgressBar>,
    told: Option<String>,
}

impl Progress {
    /// Begins to wait.
    pub(crate) fn new(out: Out) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !out.quiet).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { out, bar, told: None }
    }

    /// Says where a job stands.
    pub(crate) fn job(&mut self, job: &Job) {
        let text = sentence(job);
        match &self.bar {
            Some(bar) => bar.set_message(text),
            // How it ended is told by whoever waited.
            None if !job.status.is_final() && self.told.as_ref() != Some(&text) => {
                self.out.note(&text);
                self.told = Some(text);
            }
            None => {}
        }
    }

    /// Does something that writes, out of the way of the line that moves.
    pub(crate) fn beside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Whether there is one line that moves, so that it may be said as often as it changes.
    pub(crate) fn moves(&self) -> bool {
        self.bar.is_some()
    }

    /// Says how far it is.
    pub(crate) fn say(&self, text: impl Into<String>) {
        let text = text.into();
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => self.out.note(text),
        }
    }

    /// Ends the wait and leaves nothing behind.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn sentence(job: &Job) -> String {
    let name = clean(&job.name);
    let id = job.id;
    match job.status {
        JobStatus::Ready => format!("{id} ({name}) waits until {}", job.due_at),
        JobStatus::Waiting => format!("{id} ({name}) waits in queue `{}`", clean(&job.queue)),
        JobStatus::Running => format!("{id} ({name}) is running"),
        JobStatus::Retrying => format!("{id} ({name}) failed and is tried again at {}", job.due_at),
        ended => format!("{id} ({name}) {ended}"),
    }
}

/// How a job ended, as a line for people.
pub(crate) fn ended(job: &Job) -> String {
    let why =
        job.result.as_ref().and_then(|r| r.message.as_deref()).filter(|_| job.status != JobStatus::Succeeded);
    match why {
        Some(why) => format!("{} ({}) {}: {}", job.id, clean(&job.name), job.status, clean(why)),
        None => format!("{} ({}) {}", job.id, clean(&job.name), job.status),
    }
}
