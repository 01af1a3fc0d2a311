//! Logs of executions: read page by page, or followed while they grow.
//!
//! - [`Client::logs`], [`Client::all_logs`]: the entries that exist now, one page or all.
//! - [`Client::follow_execution_logs`]: the log of one execution until it is complete.
//! - [`Client::follow_job_logs`]: the logs of all executions of a job, one after another, until the job has
//!   ended.
//!
//! A followed log reconnects after a lost connection and resumes at the offset of the last entry, so no entry
//! is lost or repeated. Offsets and tails apply to the first log that is followed; later logs are read from
//! their start.

use std::collections::VecDeque;

use futures::stream::{self, StreamExt};
use model::api::{Execution, LogEntry, LogSearch};
use model::{ExecutionId, ExecutionStatus, JobId};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::Items;
use crate::sse::EventSource;
use crate::watch::Watch;

/// Selection of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogSource {
    /// Log of the execution of a job with this number, from 1, or of its newest execution.
    Job(JobId, Option<u32>),
    /// Log of an execution.
    Execution(ExecutionId),
}

impl LogSource {
    fn request(self) -> Request {
        self.request_of(&["logs"])
    }

    fn request_of(self, path: &[&str]) -> Request {
        match self {
            Self::Job(id, number) => {
                Request::get([&["jobs", &id.to_string()], path].concat()).query_opt("execution", number)
            }
            Self::Execution(id) => Request::get([&["executions", &id.to_string()], path].concat()),
        }
    }
}

/// Selection of a part of a log. By default it selects the whole log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogQuery {
    /// Stream, `stdout` or `stderr`; `None` selects both.
    pub stream: Option<String>,
    /// Offset to start at: the `next_offset` of an earlier page or entry.
    pub offset: Option<u64>,
    /// Maximum number of entries of a page; `None` for the default of the server.
    pub limit: Option<usize>,
    /// Number of last lines to return, instead of starting at `offset`.
    pub tail: Option<usize>,
}

impl LogQuery {
    fn apply(&self, request: Request) -> Request {
        request
            .query_opt("stream", self.stream.as_ref())
            .query_opt("offset", self.offset)
            .query_opt("limit", self.limit)
            .query_opt("tail", self.tail)
    }
}

/// Page of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPage {
    /// Entries in the order in which the task wrote them.
    pub items: Vec<LogEntry>,
    /// Offset of the next page.
    pub next_offset: u64,
    /// Whether the log is complete: the execution has ended, and no entries follow.
    pub complete: bool,
}

/// Most hits of a page of a search: a large page, because the server reads again some of the log for each page.
const HITS_MAX: u32 = 1_000;

/// Search in a log, for a text or a regular expression.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogSearchQuery {
    /// Text that the lines contain; letter case is ignored. Either this or `regex` is required.
    pub text: Option<String>,
    /// Regular expression that matches a part of the lines.
    pub regex: Option<String>,
    /// Number of lines to return before and after each matching line, up to 20.
    pub context: usize,
    /// Stream, `stdout` or `stderr`; `None` selects both.
    pub stream: Option<String>,
}

impl LogSearchQuery {
    fn apply(&self, request: Request, cursor: Option<&String>) -> Request {
        request
            .query_opt("text", self.text.as_ref())
            .query_opt("regex", self.regex.as_ref())
            .query("context", self.context)
            .query_opt("stream", self.stream.as_ref())
            .query("limit", HITS_MAX)
            .query_opt("cursor", cursor)
    }
}

/// Item of a followed log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogItem {
    /// The log of an execution starts.
    Begin {
        /// Execution.
        execution: ExecutionId,
        /// Number of the execution within its job, from 1.
        number: u32,
    },
    /// The task wrote an entry.
    Entry(LogEntry),
    /// The log is complete. Contains the final status of the execution, if it is known.
    End(Option<ExecutionStatus>),
}

/// Log of an execution that is followed; see [`Client::follow_execution_logs`].
pub struct LogStream {
    client: Client,
    source: EventSource,
    execution: ExecutionId,
}

#[derive(Deserialize)]
struct End {
    status: Option<ExecutionStatus>,
}

impl LogStream {
    fn new(client: &Client, execution: ExecutionId, query: &LogQuery) -> Self {
        let request = query.apply(LogSource::Execution(execution).request()).query("follow", true);
        let source = EventSource::new(client.clone(), request, &["offset", "tail"]);
        Self { client: client.clone(), source, execution }
    }

    /// Returns the next item. [`LogItem::End`] is the last one.
    ///
    /// Cancel-safe: no entry is lost if the future is dropped. The first item is an entry, not [`LogItem::Begin`].
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `execution_not_found`.
    pub async fn next(&mut self) -> Result<LogItem, Error> {
        loop {
            let event = self.source.next().await?;
            match event.kind.as_str() {
                "log" => return self.parse(&event.data).map(LogItem::Entry),
                "end" => return Ok(LogItem::End(self.parse::<End>(&event.data)?.status)),
                // Event of a newer server.
                _ => {}
            }
        }
    }

    fn parse<'de, T: Deserialize<'de>>(&self, data: &'de str) -> Result<T, Error> {
        serde_json::from_str(data).map_err(|error| Error::Protocol {
            url: self.client.url().to_owned(),
            detail: format!("cannot parse an event in the log of {}: {error}", self.execution),
        })
    }
}

impl Client {
    /// Streams the matching lines of a log, in pages, in the order of the log.
    ///
    /// # Errors
    /// Items are [request errors](crate#request-errors), among them `execution_not_found`, and `invalid_parameter` for an
    /// invalid regular expression.
    pub fn search_logs(&self, source: LogSource, query: LogSearchQuery) -> Items<LogSearch> {
        enum Next {
            Page(Option<String>),
            Nothing,
        }
        let client = self.clone();
        stream::try_unfold(Next::Page(None), move |next| {
            let (client, query) = (client.clone(), query.clone());
            async move {
                let Next::Page(cursor) = next else { return Ok::<_, Error>(None) };
                let request = query.apply(source.request_of(&["logs", "search"]), cursor.as_ref());
                let page: LogSearch = client.json(request).await?;
                let next = page.next_cursor.clone();
                Ok(Some((page, next.map_or(Next::Nothing, |cursor| Next::Page(Some(cursor))))))
            }
        })
        .boxed()
    }

    /// Returns one page of a log.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `job_not_found` and `execution_not_found`.
    pub async fn logs(&self, source: LogSource, query: &LogQuery) -> Result<LogPage, Error> {
        self.json(query.apply(source.request())).await
    }

    /// Streams the entries of a log that exist now, over all pages.
    pub fn all_logs(&self, source: LogSource, query: LogQuery) -> Items<LogEntry> {
        let start = (self.clone(), query, VecDeque::new(), false);
        stream::try_unfold(start, move |(client, mut query, mut items, mut over)| async move {
            loop {
                if let Some(entry) = items.pop_front() {
                    return Ok(Some((entry, (client, query, items, over))));
                }
                if over {
                    return Ok(None);
                }
                let page = client.logs(source, &query).await?;
                // A page without progress is the last one, even if it is not marked as complete.
                over = page.complete || page.items.is_empty() || query.offset == Some(page.next_offset);
                query = LogQuery { offset: Some(page.next_offset), tail: None, ..query };
                items.extend(page.items);
            }
        })
        .boxed()
    }

    /// Follows the log of an execution until it is complete. Reconnects after a lost connection.
    pub fn follow_execution_logs(&self, execution: ExecutionId, query: &LogQuery) -> LogStream {
        LogStream::new(self, execution, query)
    }

    /// Follows the logs of the executions of a job, one after another, until the job has ended.
    ///
    /// Waits for the first execution, and continues with the next one after a retry. Each execution is a
    /// [`LogItem::Begin`], its entries, and a [`LogItem::End`].
    ///
    /// ```no_run
    /// # async fn example(belfry: client::Client, job: model::JobId) -> Result<(), client::Error> {
    /// use futures::TryStreamExt as _;
    ///
    /// let mut log = belfry.follow_job_logs(job, client::Begin::First, client::LogQuery::default());
    /// while let Some(item) = log.try_next().await? {
    ///     if let client::LogItem::Entry(entry) = item {
    ///         print!("{}", entry.text);
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn follow_job_logs(&self, job: JobId, begin: Begin, query: LogQuery) -> Items<LogItem> {
        let follow = Follow {
            watch: Watch::new(self.clone(), job),
            begin,
            query,
            client: self.clone(),
            log: None,
            next: VecDeque::new(),
            seen: 0,
        };
        stream::try_unfold(
            follow,
            |mut follow| async move { Ok(follow.next().await?.map(|item| (item, follow))) },
        )
        .boxed()
    }
}

/// First execution of a job that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// The first execution.
    First,
    /// The newest execution at the time of the call.
    Newest,
}

/// State of following all executions of a job.
struct Follow {
    client: Client,
    watch: Watch,
    begin: Begin,
    query: LogQuery,
    log: Option<LogStream>,
    /// Executions to follow, oldest first.
    next: VecDeque<Execution>,
    /// Highest number of an execution that was followed or is in `next`.
    seen: u32,
}

impl Follow {
    async fn next(&mut self) -> Result<Option<LogItem>, Error> {
        if let Some(log) = &mut self.log {
            let item = log.next().await?;
            if matches!(item, LogItem::End(_)) {
                self.log = None;
            }
            return Ok(Some(item));
        }
        loop {
            if let Some(execution) = self.next.pop_front() {
                self.log = Some(LogStream::new(&self.client, execution.id, &self.query));
                // Offset and tail apply to the first log only; later logs are read from their start.
                self.query = LogQuery { stream: self.query.stream.take(), ..LogQuery::default() };
                return Ok(Some(LogItem::Begin { execution: execution.id, number: execution.number }));
            }
            let Some(job) = self.watch.next().await? else { return Ok(None) };
            if job.executions > self.seen {
                self.find_executions(job.id).await?;
            }
        }
    }

    /// Finds executions that were not followed yet.
    async fn find_executions(&mut self, job: JobId) -> Result<(), Error> {
        let newest_first = self.client.job_executions(job).await?.items;
        let unseen = newest_first.into_iter().filter(|e| e.number > self.seen);
        let wanted = if self.seen == 0 && self.begin == Begin::Newest { 1 } else { usize::MAX };
        for execution in unseen.take(wanted) {
            self.next.push_front(execution);
        }
        self.seen = self.next.back().map_or(self.seen, |e| e.number);
        Ok(())
    }
}
