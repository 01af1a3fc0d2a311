//! Progress of a command that waits: a spinner line on a terminal, a line for each change elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::JobStatus;
use model::api::Job;

use super::Output;
use super::text::escape;

/// Progress on standard error. On a terminal, one line that is redrawn; elsewhere, one line per change; with `--quiet`,
/// nothing. Dropping it removes the line.
#[derive(Debug)]
pub(crate) struct Progress {
    out: Output,
    bar: Option<ProgressBar>,
    last_text: Option<String>,
}

impl Progress {
    /// Creates the progress. On a terminal, the spinner starts at once.
    pub(crate) fn new(out: Output) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !out.quiet).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { out, bar, last_text: None }
    }

    /// Shows the status of a job. A repeated status and a final status are shown on a terminal only.
    pub(crate) fn job(&mut self, job: &Job) {
        let text = sentence(job);
        match &self.bar {
            Some(bar) => bar.set_message(text),
            // The caller reports the final status.
            None if !job.status.is_final() && self.last_text.as_ref() != Some(&text) => {
                self.out.note(&text);
                self.last_text = Some(text);
            }
            None => {}
        }
    }

    /// Runs a function that writes to the terminal, with the progress line hidden meanwhile.
    pub(crate) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Whether the progress is one line that is redrawn, so that frequent updates are cheap.
    pub(crate) fn is_redrawn(&self) -> bool {
        self.bar.is_some()
    }

    /// Shows a text: replaces the progress line on a terminal, and writes a line elsewhere.
    pub(crate) fn set_message(&self, text: impl Into<String>) {
        let text = text.into();
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => self.out.note(text),
        }
    }

    /// Writes a note above the progress line.
    pub(crate) fn hint(&self, text: impl AsRef<str>) {
        self.suspend(|| self.out.note(text));
    }

    /// Removes the progress line.
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
    let name = escape(&job.name);
    let id = job.id;
    match job.status {
        // A job with upstream jobs stays `ready` when its time is reached.
        JobStatus::Ready if job.due_at <= jiff::Timestamp::now().into() => {
            format!("{id} ({name}) is waiting for its upstream jobs")
        }
        JobStatus::Ready => format!("{id} ({name}) is scheduled for {}", job.due_at),
        JobStatus::Waiting => format!("{id} ({name}) is waiting in queue `{}`", escape(&job.queue)),
        JobStatus::Running => format!("{id} ({name}) is running"),
        JobStatus::Retrying => format!("{id} ({name}) failed; the next attempt starts at {}", job.due_at),
        ended => format!("{id} ({name}) {ended}"),
    }
}

/// Formats the final status of a job, with the message of its result unless it succeeded.
pub(crate) fn ended(job: &Job) -> String {
    let why =
        job.result.as_ref().and_then(|r| r.message.as_deref()).filter(|_| job.status != JobStatus::Succeeded);
    match why {
        Some(why) => format!("{} ({}) {}: {}", job.id, escape(&job.name), job.status, escape(why)),
        None => format!("{} ({}) {}", job.id, escape(&job.name), job.status),
    }
}
