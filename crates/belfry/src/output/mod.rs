//! Output of the commands: data on standard output, everything else on standard error.
//!
//! For users, every object has a table row, and most have a detailed view. For programs, JSON and YAML are the
//! objects of the API, unchanged. A command formats text here and writes it through [`Output`], so a closed pipe
//! (`belfry job list | head`) ends the command without an error.
//!
//! # Invariants
//! - Text that a user or a task controls passes [`text::escape`] before it reaches a terminal.
//! - Keys of JSON and YAML are those of the API; table headings may change, keys may not.
//! - A color never carries information that the text lacks.
//!
//! # Modules
//! - [`table`]: tables and detailed views. The objects implement [`table::Row`] and [`table::Detail`] in [`objects`]
//!   (jobs, executions, queues, artifacts), [`machines`] (servers, workers), [`schedules`], [`services`], [`workflows`], [`runs`]
//!   and [`running_elements`] (running elements).
//! - [`access`]: accounts, roles, role bindings, tokens, and the caller.
//! - [`added_elements`]: result of `belfry task add`.
//! - [`forecast`]: tables of `belfry forecast`.
//! - [`top`]: page of `belfry top`.
//! - [`why`] and [`step_why`]: waiting reasons of jobs and steps as text.
//! - [`time`] and [`text`]: formatting of times, durations and untrusted text.
//! - [`progress`]: progress line of a command that waits; [`screen`]: a text that is redrawn in place.

pub(crate) mod access;
pub(crate) mod added_elements;
mod alerts;
mod audit;
mod failures;
pub(crate) mod forecast;
pub(crate) mod machines;
mod monitors;
pub(crate) mod objects;
pub(crate) mod progress;
pub(crate) mod running_elements;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod screen;
mod secrets;
pub(crate) mod services;
mod statistics;
pub(crate) mod step_why;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod time;
pub(crate) mod top;
pub(crate) mod why;
pub(crate) mod workflows;

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use model::Timestamp;
use serde::Serialize;

use self::table::{Detail, Row};
use crate::failure::Failure;

/// Output format (`--output`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// A table with the most important columns; on a terminal, as narrow as the terminal.
    #[default]
    Table,
    /// A table with all columns and exact times, however wide.
    Wide,
    /// The objects of the API as JSON; a stream has one object per line.
    Json,
    /// The objects of the API as YAML; a stream has one document per object.
    Yaml,
    /// IDs or names only, one per line.
    Name,
}

/// Formatting options.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputOptions {
    pub(crate) format: Format,
    /// Whether standard output may contain colors.
    pub(crate) color: bool,
    /// Reference time of relative times such as `5s ago`.
    pub(crate) now: Timestamp,
    /// Width of the terminal that tables must fit, in columns; `None` if standard output is not a terminal.
    pub(crate) width: Option<usize>,
}

impl OutputOptions {
    /// Whether the format is [`Format::Wide`]: all columns and exact times.
    pub(crate) fn wide(&self) -> bool {
        self.format == Format::Wide
    }
}

/// Standard output and standard error of a command, with their formatting options.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) look: OutputOptions,
    /// Whether notes and hints are suppressed (`--quiet`); warnings and errors are not.
    pub(crate) quiet: bool,
    /// Whether standard error may contain colors.
    pub(crate) color_err: bool,
}

impl Output {
    /// Creates the output of this process. Colors are used only on a terminal, and never if `NO_COLOR` is set or `TERM`
    /// is `dumb`.
    pub(crate) fn new(format: Format, no_color: bool, quiet: bool) -> Self {
        let colors = !no_color
            && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
            && std::env::var_os("TERM").is_none_or(|v| v != "dumb");
        let look = OutputOptions {
            format,
            color: colors && std::io::stdout().is_terminal(),
            now: jiff::Timestamp::now().into(),
            width: terminal_width(),
        };
        Self { look, quiet, color_err: colors && std::io::stderr().is_terminal() }
    }

    /// Writes data to standard output and flushes it.
    pub(crate) fn data(&self, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes.as_ref())?;
        Ok(stdout.flush()?)
    }

    /// Writes to standard error: the standard error of a task, a notice in its log, or a rendered failure.
    pub(crate) fn error_data(&self, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
        Ok(std::io::stderr().lock().write_all(bytes.as_ref())?)
    }

    /// Writes a note to standard error, unless `quiet` is set.
    pub(crate) fn note(&self, line: impl AsRef<str>) {
        if !self.quiet {
            // A closed standard error is not a failure of the command.
            let _ = writeln!(std::io::stderr().lock(), "{}", line.as_ref());
        }
    }

    /// Writes a warning to standard error, also if `quiet` is set.
    pub(crate) fn warn(&self, line: impl AsRef<str>) {
        let (yellow, reset) = if self.color_err { ("\x1b[33m", "\x1b[0m") } else { ("", "") };
        let _ = writeln!(std::io::stderr().lock(), "{yellow}warning:{reset} {}", line.as_ref());
    }

    /// Writes a hint about a warning to standard error, unless `quiet` is set.
    pub(crate) fn help(&self, line: impl AsRef<str>) {
        if !self.quiet {
            let (cyan, reset) = if self.color_err { ("\x1b[36m", "\x1b[0m") } else { ("", "") };
            let _ = writeln!(std::io::stderr().lock(), "{cyan}help:{reset} {}", line.as_ref());
        }
    }

    /// Returns the formatting options with the current time and width: a response may be newer than the start of this
    /// process, and the user may have changed the size of the terminal.
    pub(crate) fn fresh_look(&self) -> OutputOptions {
        OutputOptions { now: jiff::Timestamp::now().into(), width: terminal_width(), ..self.look }
    }

    /// Writes one object: the detailed view, or the object as JSON or YAML.
    pub(crate) fn one<T: Detail>(&self, item: &T) -> Result<(), Failure> {
        self.data(one(&self.fresh_look(), item)?)
    }

    /// Writes a list. For an empty table, writes the note `no {what}` instead.
    pub(crate) fn list<T: Row>(&self, items: &[T], what: &str) -> Result<(), Failure> {
        if items.is_empty() && matches!(self.look.format, Format::Table | Format::Wide) {
            self.note(format!("no {what}"));
            return Ok(());
        }
        self.data(list(&self.fresh_look(), items)?)
    }

    /// Writes one object as a table with one row, or as a single JSON or YAML object.
    pub(crate) fn row<T: Row>(&self, item: &T) -> Result<(), Failure> {
        self.data(row(&self.fresh_look(), item)?)
    }

    /// Writes the waiting reasons of a job.
    pub(crate) fn why(&self, told: &model::why::Why) -> Result<(), Failure> {
        self.data(why::why(&self.fresh_look(), told)?)
    }

    /// Writes the result of `belfry task add`.
    pub(crate) fn added(&self, told: &added_elements::Added) -> Result<(), Failure> {
        self.data(added_elements::added(&self.look, told)?)
    }

    /// Writes a forecast, with times in `zone`.
    pub(crate) fn forecast(
        &self,
        told: &forecast::ForecastOutput,
        zone: &jiff::tz::TimeZone,
    ) -> Result<(), Failure> {
        self.data(forecast::forecast(&self.look, told, zone)?)
    }

    /// Writes one item of a stream. With `first`, writes the column headings first.
    pub(crate) fn item<T: Row>(&self, item: &T, first: bool) -> Result<(), Failure> {
        self.data(stream_item(&self.fresh_look(), item, first)?)
    }
}

/// Returns the width of the terminal on standard output; `None` if that is not a terminal, or has no size.
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Formats one object.
pub(crate) fn one<T: Detail>(look: &OutputOptions, item: &T) -> Result<String, Failure> {
    Ok(match look.format {
        Format::Table | Format::Wide => table::detail(look, item),
        Format::Json => json(item)?,
        Format::Yaml => yaml(item)?,
        Format::Name => item.name() + "\n",
    })
}

/// Formats a list.
pub(crate) fn list<T: Row>(look: &OutputOptions, items: &[T]) -> Result<String, Failure> {
    Ok(match look.format {
        Format::Table | Format::Wide => table::rows(look, items),
        Format::Json => json(&items)?,
        Format::Yaml => yaml(&items)?,
        Format::Name => items.iter().map(|item| item.name() + "\n").collect(),
    })
}

fn row<T: Row>(look: &OutputOptions, item: &T) -> Result<String, Failure> {
    match look.format {
        Format::Json => json(item),
        Format::Yaml => yaml(item),
        _ => list(look, std::slice::from_ref(item)),
    }
}

fn stream_item<T: Row>(look: &OutputOptions, item: &T, first: bool) -> Result<String, Failure> {
    Ok(match look.format {
        Format::Table | Format::Wide => table::line(look, item, first),
        Format::Json | Format::Yaml => stream_value(look, item)?,
        Format::Name => item.name() + "\n",
    })
}

/// Formats a value of a stream: a line of JSON, or a YAML document.
pub(crate) fn stream_value(look: &OutputOptions, value: &impl Serialize) -> Result<String, Failure> {
    Ok(match look.format {
        Format::Yaml => format!("---\n{}", yaml(value)?),
        _ => serde_json::to_string(value).map_err(anyhow::Error::from)? + "\n",
    })
}

/// Formats a value as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(value).map_err(anyhow::Error::from)? + "\n")
}

/// Formats a value as YAML for [`Format::Yaml`], and as JSON for every other format.
pub(crate) fn value(look: &OutputOptions, value: &impl Serialize) -> Result<String, Failure> {
    if look.format == Format::Yaml { yaml(value) } else { json(value) }
}

/// Formats a spec as a document for `belfry apply`: name, namespace, owner and labels at the top, all other fields
/// under `spec`.
pub(crate) fn document(look: &OutputOptions, kind: &str, spec: &impl Serialize) -> Result<String, Failure> {
    const ABOVE: [&str; 4] = ["name", "namespace", "owner", "labels"];
    if look.format == Format::Json {
        let spec = serde_json::to_value(spec).map_err(anyhow::Error::from)?;
        let mut document = serde_json::json!({"version": 1, "kind": kind, "spec": {}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            let above = ABOVE.contains(&key.as_str());
            let at = if above { &mut document } else { &mut document["spec"] };
            at[key] = value.clone();
        }
        return json(&document);
    }
    let (mut head, mut body) = (format!("version: 1\nkind: {kind}\n"), "spec:\n".to_owned());
    let mut above = false;
    for line in yaml(spec)?.lines() {
        // Only keys of the spec and dashes of its lists start in the first column.
        if !line.starts_with([' ', '-']) && !line.is_empty() {
            above = line.split_once(':').is_some_and(|(key, _)| ABOVE.contains(&key));
        }
        match above {
            true => head.extend([line, "\n"]),
            false => body.extend(["  ", line, "\n"]),
        }
    }
    Ok(head + &body)
}

/// Formats a value as YAML that parses to an equal value.
pub(crate) fn yaml(value: &impl Serialize) -> Result<String, Failure> {
    let mut text = serde_saphyr::to_string(value).map_err(anyhow::Error::from)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use model::{JobSpec, ScheduleSpec};

    use super::*;

    fn look(format: Format) -> OutputOptions {
        OutputOptions { format, color: false, now: Timestamp::default(), width: None }
    }

    /// With long names, and 30 characters for each ID.
    #[test]
    fn every_table_fits_80_columns() {
        use model::api;

        macro_rules! widths {
            ($($row:ty)*) => { [$((stringify!($row), table::narrowest::<$row>())),*] };
        }
        let widths = widths! {
            api::Job api::Execution objects::ExecutionOfJob api::JobEvent api::FeedEvent api::Queue api::Namespace api::Artifact
            api::SubmittedJob api::CancelledJob api::Server api::Worker api::WorkflowRun api::RunStep
            api::RunElement running_elements::RunningElement api::Schedule api::TriggeredSchedule
            api::UpcomingFiring api::LedgerEntry api::Backfill api::Calendar api::Workflow api::PlannedStep
            api::StatisticsTotal crate::settings::SettingRow api::Account api::Role api::Binding api::Token
            access::Caller api::AuditEntry api::Service services::ServiceOfNamespace api::Replica api::Endpoint
            services::RevisionRow
        };
        for (row, width) in widths {
            assert!(width <= 80, "{row}: {width}");
        }
    }

    /// A document is equal to its spec in each format, also if values look like keys of a document.
    #[test]
    fn a_spec_becomes_a_document_that_reads_back_as_the_same() {
        let mut job = JobSpec::command(["sh", "-c", "echo 'name: x'\n\nname: y\n- spec: z"]);
        job.labels.insert("spec".into(), "no".into());
        let mut spec = ScheduleSpec::new("nightly", model::timing::Timing::default(), job);
        spec.labels.insert("team".into(), "pay".into());
        spec.owner = Some("ann".into());
        spec.description = Some("name: first\nowner: second".into());
        let wanted = serde_json::to_value(&spec).unwrap();
        for format in [Format::Table, Format::Yaml, Format::Json] {
            let text = document(&look(format), "schedule", &spec).unwrap();
            let mut read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
            let above = read.as_object_mut().unwrap();
            let mut found = above.remove("spec").unwrap();
            assert_eq!(
                (above.remove("version"), above.remove("kind")),
                (Some(1.into()), Some("schedule".into()))
            );
            found.as_object_mut().unwrap().append(above);
            assert_eq!(found, wanted, "{text}");
        }
    }
}
