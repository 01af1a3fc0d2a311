//! `belfry service logs`: the logs of all replicas, merged.
//!
//! Each line has the prefix `[replica N]`. With `-o json`, each entry is one line with the replica, its job and the
//! fields of a log entry. Notices of Belfry go to standard error, as in `belfry logs`.
//!
//! - [`print_stored`]: the stored logs, merged in the order of time.
//! - [`follow`]: one stream per replica, in the order of arrival. The list of replicas is read every second, and new
//!   replicas are added, until the service is deleted.
//! - [`LineWriter`]: joins the pieces of each line, and writes whole lines.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use client::{Begin, Client, Items, LogItem, LogQuery, LogSource, ServiceRef};
use futures::stream::{self, BoxStream, SelectAll, StreamExt as _, TryStreamExt as _};
use model::api::{LogEntry, Replica};
use model::{JobId, Timestamp};
use serde::Serialize;

use super::super::Context;
use super::super::apply::optional;
use super::connect;
use crate::args::service::ServiceLogsArgs;
use crate::failure::{Exit, Failure};
use crate::output::{Format, Output};

/// Interval of reads of the list of replicas.
const REPLICAS_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Number of buffered bytes after which stored logs are written.
const BUFFER: usize = 64 * 1024;
/// Maximum number of concurrent requests for the first entries of stored logs.
const REQUESTS_MAX: usize = 16;

/// Source of log entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    replica: u32,
    job: JobId,
}

pub(super) async fn run(context: &Context, args: ServiceLogsArgs) -> Result<(), Failure> {
    let (client, service) = connect(context, args.service.clone())?;
    let writer = LineWriter::new(context.out, args.timestamps, args.since);
    if args.follow {
        return follow(context, &client, &service, &args, writer).await;
    }
    let replicas = selected(client.replicas(&service).await?, args.replica);
    if replicas.is_empty() {
        return match args.replica {
            Some(number) => {
                let message = format!("service `{}` has no replica {number}", service.name);
                let help = format!("run `belfry service replicas {}` to list the replicas", service.name);
                Err(Failure::message(Exit::NotFound, message).help(help))
            }
            None => {
                context.out.note("no replicas");
                Ok(())
            }
        };
    }
    print_stored(&client, replicas, &args, writer).await
}

fn selected(mut replicas: Vec<Replica>, number: Option<u32>) -> Vec<Replica> {
    replicas.retain(|replica| number.is_none_or(|number| replica.replica == number));
    replicas
}

fn query(args: &ServiceLogsArgs) -> LogQuery {
    let stream = Some(args.stream.clone()).filter(|stream| stream != "all");
    LogQuery { stream, tail: args.tail, ..LogQuery::default() }
}

/// Entry of a stored log, and the number of its execution in the order in which they are read.
type Stored = (usize, LogEntry);

/// Next entry of the stored log of a replica, and the rest of the log.
type Head = (Stored, Items<Stored>);

/// Writes the stored logs of the replicas in the order of time.
async fn print_stored(
    client: &Client,
    replicas: Vec<Replica>,
    args: &ServiceLogsArgs,
    mut writer: LineWriter,
) -> Result<(), Failure> {
    let first = |replica: Replica| async move {
        let source = Source { replica: replica.replica, job: replica.job };
        let mut entries = stored(client, replica.job, args).await?;
        let head = next_stored(&mut entries).await?.map(|entry| (entry, entries));
        Ok::<_, Failure>((source, head))
    };
    let first = stream::iter(replicas).map(first).buffered(REQUESTS_MAX);
    let mut logs: Vec<(Source, Option<Head>)> = first.try_collect().await?;
    let at = |(i, (_, head)): (usize, &(Source, Option<Head>))| {
        let ((_, entry), _) = head.as_ref()?;
        Some(Reverse((entry.at, i)))
    };
    let mut order: BinaryHeap<_> = logs.iter().enumerate().filter_map(at).collect();
    while let Some(Reverse((_, i))) = order.pop() {
        let (source, head) = &mut logs[i];
        let Some(((execution, entry), mut rest)) = head.take() else { continue };
        writer.entry(*source, &entry)?;
        let next = next_stored(&mut rest).await?;
        if next.as_ref().is_none_or(|(next, _)| *next != execution) {
            writer.end(*source);
        }
        writer.flush_if(BUFFER)?;
        if let Some(next) = next {
            order.push(Reverse((next.1.at, i)));
            *head = Some((next, rest));
        }
    }
    writer.flush_if(0)
}

/// Returns the next entry. A log that does not exist, or no longer, has no entry.
async fn next_stored(entries: &mut Items<Stored>) -> Result<Option<Stored>, Failure> {
    Ok(optional(entries.try_next().await)?.flatten())
}

/// Returns the entries of the newest execution of a job, or of all executions with `--all`.
async fn stored(client: &Client, job: JobId, args: &ServiceLogsArgs) -> Result<Items<Stored>, Failure> {
    let query = query(args);
    if args.all {
        let executions = optional(client.job_executions(job).await)?.map(|list| list.items);
        let client = client.clone();
        let oldest_first = executions.unwrap_or_default().into_iter().rev();
        let logs = stream::iter(oldest_first).enumerate().flat_map(move |(i, execution)| {
            let entries = client.all_logs(LogSource::Execution(execution.id), query.clone());
            entries.map_ok(move |entry| (i, entry))
        });
        return Ok(logs.boxed());
    }
    let newest = LogSource::Job(job, None);
    let entries = if query.tail.is_none() {
        client.all_logs(newest, query)
    } else {
        let last = optional(client.logs(newest, &query).await)?.map(|page| page.items);
        stream::iter(last.unwrap_or_default().into_iter().map(Ok)).boxed()
    };
    Ok(entries.map_ok(|entry| (0, entry)).boxed())
}

/// Follows the logs of all replicas until the service is deleted.
async fn follow(
    context: &Context,
    client: &Client,
    service: &ServiceRef,
    args: &ServiceLogsArgs,
    mut writer: LineWriter,
) -> Result<(), Failure> {
    // The id: another service with this name is not followed.
    let service = ServiceRef::from(client.service(service).await?.id);
    let mut logs: SelectAll<BoxStream<'static, (Source, Result<LogItem, client::Error>)>> = SelectAll::new();
    let mut known = BTreeSet::new();
    let mut ticks = tokio::time::interval(REPLICAS_POLL_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut is_first, mut is_deleted) = (true, false);
    while !is_deleted || !logs.is_empty() {
        tokio::select! {
            _ = ticks.tick(), if !is_deleted => {
                let Some(replicas) = optional(client.replicas(&service).await)? else {
                    is_deleted = true;
                    continue;
                };
                for replica in selected(replicas, args.replica) {
                    if !known.insert(replica.job) {
                        continue;
                    }
                    let source = Source { replica: replica.replica, job: replica.job };
                    if !is_first {
                        context.out.note(format!("replica {} starts as {}", source.replica, source.job));
                    }
                    // A replica that appears later is followed from its start.
                    let (begin, query) = if args.all || !is_first {
                        (Begin::First, LogQuery { tail: None, ..query(args) })
                    } else {
                        (Begin::Newest, query(args))
                    };
                    let log = client.follow_job_logs(replica.job, begin, query);
                    logs.push(log.map(move |item| (source, item)).boxed());
                }
                is_first = false;
            }
            Some((source, item)) = logs.next(), if !logs.is_empty() => match item {
                Ok(LogItem::Begin { number, .. }) if number > 1 => {
                    context.out.note(format!("replica {}: execution {number} starts", source.replica));
                }
                Ok(LogItem::Begin { .. }) => {}
                Ok(LogItem::Entry(entry)) => {
                    writer.entry(source, &entry)?;
                    writer.flush_if(0)?;
                }
                Ok(LogItem::End(_)) => {
                    writer.end(source);
                    writer.flush_if(0)?;
                }
                // The log was deleted.
                Err(error) if error.status() == Some(404) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Log entry of a replica, for `-o json`.
#[derive(Serialize)]
struct ReplicaEntry<'a> {
    replica: u32,
    job_id: JobId,
    #[serde(flatten)]
    entry: &'a LogEntry,
}

/// Writes whole lines with the number of their replica.
struct LineWriter {
    out: Output,
    timestamps: bool,
    since: Option<Timestamp>,
    /// Bytes that are not written yet.
    buffer: Vec<u8>,
    /// Time and text of the lines that have no end yet.
    open: BTreeMap<Source, (Timestamp, String)>,
}

impl LineWriter {
    fn new(out: Output, timestamps: bool, since: Option<Timestamp>) -> Self {
        Self { out, timestamps, since, buffer: Vec::new(), open: BTreeMap::new() }
    }

    fn entry(&mut self, source: Source, entry: &LogEntry) -> Result<(), Failure> {
        if self.since.is_some_and(|since| entry.at < since) {
            return Ok(());
        }
        if self.out.look.format == Format::Json {
            let shown = ReplicaEntry { replica: source.replica, job_id: source.job, entry };
            serde_json::to_writer(&mut self.buffer, &shown).map_err(anyhow::Error::from)?;
            self.buffer.push(b'\n');
            return Ok(());
        }
        if entry.stream == "notice" {
            self.end(source);
            self.flush_if(0)?;
            let text = entry.text.trim_end();
            return self.out.error_data(format!("belfry: [replica {}] {text}\n", source.replica));
        }
        for piece in entry.text.split_inclusive('\n') {
            let (_, line) = self.open.entry(source).or_insert_with(|| (entry.at, String::new()));
            line.push_str(piece);
            if piece.ends_with('\n') {
                self.end(source);
            }
        }
        Ok(())
    }

    /// Ends the open line of a source, if there is one.
    fn end(&mut self, source: Source) {
        let Some((at, line)) = self.open.remove(&source) else { return };
        let line = line.strip_suffix('\n').unwrap_or(&line);
        let time = if self.timestamps { format!("{at} ") } else { String::new() };
        self.buffer.extend_from_slice(format!("[replica {}] {time}{line}\n", source.replica).as_bytes());
    }

    /// Writes the buffer if it has at least `size` bytes.
    fn flush_if(&mut self, size: usize) -> Result<(), Failure> {
        if self.buffer.is_empty() || self.buffer.len() < size {
            return Ok(());
        }
        self.out.data(std::mem::take(&mut self.buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: Format, timestamps: bool, entries: &[(u32, &str)]) -> String {
        let mut writer = LineWriter::new(Output::new(format, true, true), timestamps, None);
        let source = |replica: u32| Source { replica, job: JobId::from_bits(u128::from(replica) + 1) };
        for (i, (replica, text)) in entries.iter().enumerate() {
            let at =
                "2026-11-21T08:00:00Z".parse::<Timestamp>().unwrap() + model::Duration::from_secs(i as u64);
            let entry =
                LogEntry { next_offset: 1, at, stream: "stdout".into(), text: (*text).into(), bytes: None };
            writer.entry(source(*replica), &entry).unwrap();
        }
        entries.iter().for_each(|(replica, _)| writer.end(source(*replica)));
        String::from_utf8(writer.buffer).unwrap()
    }

    #[test]
    fn lines_of_replicas_are_not_mixed() {
        let entries = [(0, "a"), (1, "x\ny\n"), (0, "b\nc"), (1, "z")];
        insta::assert_snapshot!(written(Format::Table, false, &entries), @r"
        [replica 1] x
        [replica 1] y
        [replica 0] ab
        [replica 0] c
        [replica 1] z
        ");
    }

    #[test]
    fn a_line_has_the_time_of_its_first_piece() {
        assert_eq!(
            written(Format::Table, true, &[(0, "a"), (0, "b\n")]),
            "[replica 0] 2026-11-21T08:00:00Z ab\n"
        );
    }

    #[test]
    fn an_entry_in_json_has_its_replica() {
        let text = written(Format::Json, false, &[(2, "a\n")]);
        let entry: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((entry["replica"].as_u64(), entry["text"].as_str()), (Some(2), Some("a\n")));
    }
}
