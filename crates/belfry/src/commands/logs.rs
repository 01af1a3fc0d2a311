//! `belfry logs`, and the log of a job that was submitted with `--follow`.
//!
//! `belfry logs` writes both streams of a task to standard output, in the order of the log. `submit --follow` writes
//! them to standard output and standard error, as if the task ran locally. Notices of Belfry, such as omitted output,
//! go to standard error with the prefix `belfry:`. With `-o json` each entry is one line on standard output.
//!
//! If standard output is not a terminal and no timestamps are requested, the bytes of the task are written unchanged.
//! Otherwise, invalid UTF-8 is replaced, unless `--raw` is set.
//!
//! - [`run`]: `belfry logs` and `belfry job logs`: a stored log, or one that is followed.
//! - [`follow_until_ended`]: `submit --follow`: the log of all executions; fails with the exit code of the job.
//! - [`Writer`]: selects the stream of each entry, adds timestamps at the start of lines, and buffers.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use client::{Begin, Client, LogItem, LogQuery, LogSearchQuery, LogSource};
use futures::TryStreamExt as _;
use model::api::LogEntry;
use model::{Duration, ExecutionId, JobId, Timestamp};

use super::{Context, wait};
use crate::args::job::LogsArgs;
use crate::args::reference::Reference;
use crate::failure::{Exit, Failure};
use crate::output::{Format, Output};

/// Number of buffered bytes after which a stored log is written.
const BUFFER: usize = 64 * 1024;
/// Delay after which a note says that the job has not started.
const NOT_STARTED_NOTE_AFTER: Duration = Duration::from_secs(3);

pub(super) async fn run(context: &Context, args: LogsArgs) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let target = target(context, &client, &args).await?;
    if let Some(pattern) = &args.grep {
        return grep(context, &client, target, pattern, &args).await;
    }
    let query = LogQuery {
        stream: Some(args.stream.clone()).filter(|s| s != "all"),
        tail: args.tail,
        ..LogQuery::default()
    };
    let mut writer = Writer::new(context.out, StderrTarget::Stdout, args.timestamps);
    // A file or a pipe gets the bytes of the task; a terminal gets valid UTF-8.
    (writer.since, writer.until) = (args.since, args.until);
    writer.raw = args.raw || !args.timestamps && !std::io::stdout().is_terminal();
    if !args.follow {
        return print(&client, target, query, &mut writer).await;
    }
    match target {
        LogSource::Job(job, _) => {
            let mut items = client.follow_job_logs(job, Begin::Newest, query);
            while let Some(item) = items.try_next().await? {
                writer.item(context, &item)?;
            }
        }
        LogSource::Execution(execution) => {
            let mut log = client.follow_execution_logs(execution, &query);
            loop {
                let item = log.next().await?;
                writer.item(context, &item)?;
                if matches!(item, LogItem::End(_)) {
                    break;
                }
            }
        }
    }
    Ok(())
}

async fn target(context: &Context, client: &Client, args: &LogsArgs) -> Result<LogSource, Failure> {
    if args.target.starts_with(ExecutionId::PREFIX) {
        let id = args.target.parse().map_err(|e: model::id::ParseIdError| Failure::usage(e.to_string()))?;
        if args.execution.is_some() || args.previous {
            let option = if args.previous { "--previous" } else { "--execution" };
            return Err(Failure::usage(format!("`{option}` cannot be combined with an execution ID")));
        }
        return Ok(LogSource::Execution(id));
    }
    let job: Reference<JobId> =
        args.target.parse().map_err(|e: model::id::ParseIdError| Failure::usage(e.to_string()))?;
    let id = context.id(client, job)?;
    if !args.previous {
        return Ok(LogSource::Job(id, args.execution));
    }
    match client.job(id).await?.executions {
        number @ 2.. => Ok(LogSource::Job(id, Some(number - 1))),
        _ => Err(Failure::message(Exit::NotFound, format!("{id} has no previous execution"))),
    }
}

/// Returns whether a time is in the range that the user requested.
fn within(at: Timestamp, since: Option<Timestamp>, until: Option<Timestamp>) -> bool {
    since.is_none_or(|since| at >= since) && until.is_none_or(|until| at < until)
}

/// Writes the lines that match, with their numbers and the lines around them, like `grep -n`.
async fn grep(
    context: &Context,
    client: &Client,
    source: LogSource,
    pattern: &str,
    args: &LogsArgs,
) -> Result<(), Failure> {
    let query = LogSearchQuery {
        regex: Some(if args.ignore_case { format!("(?i){pattern}") } else { pattern.to_owned() }),
        context: args.context_lines,
        stream: Some(args.stream.clone()).filter(|s| s != "all"),
        ..LogSearchQuery::default()
    };
    let mut pages = client.search_logs(source, query);
    let (mut found, mut last) = (false, 0);
    // Lines that are not written yet: those after the last hit of a page may be hits of the next page.
    let mut lines = BTreeMap::new();
    while let Some(page) = pages.try_next().await? {
        let mut hits = page.items;
        hits.retain(|hit| within(hit.line.at, args.since, args.until));
        found |= !hits.is_empty();
        if context.out.look.format == Format::Json {
            let mut lines = Vec::new();
            for hit in &hits {
                serde_json::to_writer(&mut lines, hit).map_err(anyhow::Error::from)?;
                lines.push(b'\n');
            }
            context.out.data(lines)?;
            continue;
        }
        let complete_to = match page.next_cursor {
            Some(_) => hits.last().map_or(last, |hit| hit.line.number),
            None => u64::MAX,
        };
        // Lines around one hit may be around the next one, or be hits themselves.
        for hit in hits {
            for line in hit.before.into_iter().chain(hit.after) {
                lines.entry(line.number).or_insert((line, '-'));
            }
            lines.insert(hit.line.number, (hit.line, ':'));
        }
        let mut text = String::new();
        let kept = lines.split_off(&complete_to.saturating_add(1));
        for (number, (line, mark)) in std::mem::replace(&mut lines, kept) {
            if number <= last {
                continue;
            }
            if args.context_lines > 0 && last > 0 && number > last + 1 {
                text.push_str("--\n");
            }
            last = number;
            let time = if args.timestamps { format!("{} ", line.at) } else { String::new() };
            text.push_str(&format!("{number}{mark}{time}{}\n", line.text));
        }
        context.out.data(text)?;
    }
    if found { Ok(()) } else { Err(Failure::silent(Exit::Failed)) }
}

async fn print(
    client: &Client,
    source: LogSource,
    query: LogQuery,
    writer: &mut Writer,
) -> Result<(), Failure> {
    if query.tail.is_some() {
        for entry in client.logs(source, &query).await?.items {
            writer.entry(&entry)?;
        }
        return writer.flush();
    }
    let mut entries = client.all_logs(source, query);
    while let Some(entry) = entries.try_next().await? {
        writer.entry(&entry)?;
    }
    writer.flush()
}

/// Writes the log of a job until the job has ended; fails with the exit code of the job.
pub(super) async fn follow_until_ended(
    context: &Context,
    client: &Client,
    job: JobId,
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    context.if_interrupted(wait::continues(&[job]));
    let mut writer = Writer::new(context.out, StderrTarget::Stderr, false);
    let follow = async {
        let mut items = client.follow_job_logs(job, Begin::First, LogQuery::default());
        let mut first = Box::pin(items.try_next());
        let first = match tokio::time::timeout(NOT_STARTED_NOTE_AFTER.to_std(), &mut first).await {
            Ok(first) => first,
            Err(_) => {
                context
                    .out
                    .note(format!("the job has not started yet; run `belfry why {job}` for the reason"));
                first.await
            }
        };
        let mut item = first?;
        while let Some(next) = item {
            writer.item(context, &next)?;
            item = items.try_next().await?;
        }
        Ok(client.job(job).await?)
    };
    let ended = wait::within(timeout, wait::JOB_CONTINUES_HINT, follow).await?;
    context.out.note(crate::output::progress::ended(&ended));
    match wait::failed(&ended) {
        Some(exit) => Err(Failure::silent(exit)),
        None => Ok(()),
    }
}

/// Destination of the standard error of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StderrTarget {
    /// Standard output, in the order of the log.
    Stdout,
    /// Standard error, as if the task ran locally.
    Stderr,
}

/// Writes log entries to standard output and standard error.
struct Writer {
    out: Output,
    split: StderrTarget,
    timestamps: bool,
    /// Whether bytes that are not UTF-8 are written unchanged.
    raw: bool,
    /// Bytes that are not written yet; all for the same stream.
    buffer: Vec<u8>,
    to_stderr: bool,
    /// Whether the next entry starts a line; only then a timestamp is written.
    at_line_start: bool,
    /// Times between which entries are written.
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl Writer {
    fn new(out: Output, split: StderrTarget, timestamps: bool) -> Self {
        Self {
            out,
            split,
            timestamps,
            raw: false,
            buffer: Vec::new(),
            to_stderr: false,
            at_line_start: true,
            since: None,
            until: None,
        }
    }

    fn item(&mut self, context: &Context, item: &LogItem) -> Result<(), Failure> {
        match item {
            LogItem::Begin { number, .. } if *number > 1 => {
                context.out.note(format!("execution {number} starts"))
            }
            LogItem::Begin { .. } | LogItem::End(_) => {}
            LogItem::Entry(entry) => self.entry(entry)?,
        }
        self.flush()
    }

    fn entry(&mut self, entry: &LogEntry) -> Result<(), Failure> {
        if !within(entry.at, self.since, self.until) {
            return Ok(());
        }
        let notice = entry.stream == "notice";
        self.select_stream(notice || self.split == StderrTarget::Stderr && entry.stream == "stderr")?;
        if self.out.look.format == Format::Json {
            serde_json::to_writer(&mut self.buffer, entry).map_err(anyhow::Error::from)?;
            self.buffer.push(b'\n');
        } else if notice {
            self.buffer.extend_from_slice(format!("belfry: {}\n", entry.text.trim_end()).as_bytes());
        } else {
            self.text(entry);
        }
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    fn text(&mut self, entry: &LogEntry) {
        if let (true, Some(bytes)) = (self.raw, &entry.bytes)
            && let Ok(mut bytes) = BASE64.decode(bytes)
        {
            self.buffer.append(&mut bytes);
            return;
        }
        if !self.timestamps {
            self.buffer.extend_from_slice(entry.text.as_bytes());
            return;
        }
        for line in entry.text.split_inclusive('\n') {
            if self.at_line_start {
                self.buffer.extend_from_slice(format!("{} ", entry.at).as_bytes());
            }
            self.buffer.extend_from_slice(line.as_bytes());
            self.at_line_start = line.ends_with('\n');
        }
    }

    /// Selects the stream of the next bytes; flushes the buffer if the stream changes.
    fn select_stream(&mut self, to_stderr: bool) -> Result<(), Failure> {
        let to_stderr = to_stderr && self.out.look.format != Format::Json;
        if self.to_stderr != to_stderr {
            self.flush()?;
            self.to_stderr = to_stderr;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.buffer);
        if self.to_stderr { self.out.error_data(bytes) } else { self.out.data(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(
        split: StderrTarget,
        timestamps: bool,
        format: Format,
        entries: &[(&str, &str)],
    ) -> (String, bool) {
        let mut writer = Writer::new(Output::new(format, true, true), split, timestamps);
        for (stream, text) in entries {
            let at = "2026-11-21T08:00:00Z".parse().unwrap();
            let entry =
                LogEntry { next_offset: 1, at, stream: (*stream).into(), text: (*text).into(), bytes: None };
            writer.entry(&entry).unwrap();
        }
        (String::from_utf8(writer.buffer).unwrap(), writer.to_stderr)
    }

    #[test]
    fn pieces_of_a_line_are_put_together_as_they_were_written() {
        let (text, _) = written(
            StderrTarget::Stdout,
            false,
            Format::Table,
            &[("stdout", "a"), ("stderr", "b\n"), ("stdout", "c")],
        );
        assert_eq!(text, "ab\nc");
    }

    /// Output in another encoding, such as GBK, is not lost.
    #[test]
    fn raw_output_is_what_the_task_wrote_byte_for_byte() {
        let at = "2026-11-21T08:00:00Z".parse().unwrap();
        let bytes = Some(BASE64.encode(b"\xc4\xe3\n"));
        let text = "\u{fffd}\u{fffd}\n".to_owned();
        let entry = LogEntry { next_offset: 1, at, stream: "stdout".into(), text, bytes };
        for (raw, expected) in [(true, b"\xc4\xe3\n".as_slice()), (false, "\u{fffd}\u{fffd}\n".as_bytes())] {
            let mut writer = Writer::new(Output::new(Format::Table, true, true), StderrTarget::Stdout, false);
            writer.raw = raw;
            writer.entry(&entry).unwrap();
            assert_eq!(writer.buffer, expected);
        }
    }

    #[test]
    fn a_time_stands_at_the_beginning_of_each_line_and_nowhere_else() {
        let (text, _) = written(
            StderrTarget::Stdout,
            true,
            Format::Table,
            &[("stdout", "a"), ("stdout", "b\nc\n"), ("stdout", "d\n")],
        );
        let t = "2026-11-21T08:00:00Z";
        assert_eq!(text, format!("{t} ab\n{t} c\n{t} d\n"));
    }

    #[test]
    fn a_tasks_standard_error_and_our_notices_go_to_standard_error_when_it_is_followed() {
        assert_eq!(
            written(StderrTarget::Stderr, false, Format::Table, &[("stderr", "e\n")]),
            ("e\n".into(), true)
        );
        assert_eq!(
            written(StderrTarget::Stdout, false, Format::Table, &[("stderr", "e\n")]),
            ("e\n".into(), false)
        );
        let notice =
            written(StderrTarget::Stdout, false, Format::Table, &[("notice", "12 MiB omitted here")]);
        assert_eq!(notice, ("belfry: 12 MiB omitted here\n".into(), true));
    }

    #[test]
    fn programs_get_one_entry_on_each_line() {
        let (text, to_stderr) =
            written(StderrTarget::Stderr, false, Format::Json, &[("stderr", "a\n"), ("notice", "b")]);
        let entries: Vec<LogEntry> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((entries.len(), to_stderr), (2, false));
    }
}
