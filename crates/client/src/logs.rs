//! Logs: page by page, as they grow, or of a whole job over all of its executions.

use std::collections::VecDeque;

use futures::stream::{self, StreamExt};
use model::api::{Execution, LogEntry};
use model::{ExecutionId, ExecutionStatus, JobId};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::Items;
use crate::sse::EventSource;
use crate::watch::Watch;

/// Whose log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogSource {
    /// Of a job's execution by its number, or of its newest one.
    Job(JobId, Option<u32>),
    /// Of an execution.
    Execution(ExecutionId),
}

impl LogSource {
    fn request(self) -> Request {
        match self {
            Self::Job(id, number) => Request::get(["jobs".to_owned(), id.to_string(), "logs".to_owned()])
                .query_opt("execution", number),
            Self::Execution(id) => Request::get(["executions".to_owned(), id.to_string(), "logs".to_owned()]),
        }
    }
}

/// Which part of a log; the default is all of it, from its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogQuery {
    /// `stdout` or `stderr`; both where absent.
    pub stream: Option<String>,
    /// Where to begin: a `next_offset` from before.
    pub offset: Option<u64>,
    /// The most entries of a page.
    pub limit: Option<usize>,
    /// Only the last lines.
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

/// One page of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPage {
    /// In the order in which they were written.
    pub items: Vec<LogEntry>,
    /// Where the next page begins.
    pub next_offset: u64,
    /// Whether nothing comes any more.
    pub complete: bool,
}

/// What comes out of a log that is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogItem {
    /// The log of an execution begins.
    Begin {
        /// Which.
        execution: ExecutionId,
        /// Which try of its job it is; 0 where only the execution was named.
        number: u32,
    },
    /// Something was written.
    Entry(LogEntry),
    /// The execution ended, and its log with it.
    End(Option<ExecutionStatus>),
}

/// A log that is followed; see [`Client::follow_execution_logs`].
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

    /// What comes next. [`LogItem::End`] is the last; may be dropped and called again before it.
    ///
    /// # Errors
    /// If the server cannot be reached any more, or refuses.
    pub async fn next(&mut self) -> Result<LogItem, Error> {
        loop {
            let event = self.source.next().await?;
            match event.kind.as_str() {
                "log" => return self.parse(&event.data).map(LogItem::Entry),
                "end" => return Ok(LogItem::End(self.parse::<End>(&event.data)?.status)),
                // Of a later version.
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
    /// One page of a log.
    ///
    /// # Errors
    /// As every request.
    pub async fn logs(&self, source: LogSource, query: &LogQuery) -> Result<LogPage, Error> {
        self.json(query.apply(source.request())).await
    }

    /// All of a log that there is now, page by page.
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
                // A page that leads nowhere is the last one, whatever it says.
                over = page.complete || page.items.is_empty() || query.offset == Some(page.next_offset);
                query = LogQuery { offset: Some(page.next_offset), tail: None, ..query };
                items.extend(page.items);
            }
        })
        .boxed()
    }

    /// An execution's log as it grows, to its end; resumes by itself.
    pub fn follow_execution_logs(&self, execution: ExecutionId, query: &LogQuery) -> LogStream {
        LogStream::new(self, execution, query)
    }

    /// The logs of a job's executions as they grow, one after another, until the job has ended.
    ///
    /// Waits for the first execution where there is none, and goes over to the next after a retry.
    /// Each execution is a [`LogItem::Begin`], entries, and a [`LogItem::End`].
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

/// With which execution of a job following begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// With its first.
    First,
    /// With the newest that there is.
    Newest,
}

/// Follows a job from execution to execution.
struct Follow {
    client: Client,
    watch: Watch,
    begin: Begin,
    query: LogQuery,
    log: Option<LogStream>,
    /// Executions to follow, oldest first.
    next: VecDeque<Execution>,
    /// The highest number that was followed, or is to be.
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
                // Where to begin is said of the first log only; later ones are read as a whole.
                self.query = LogQuery { stream: self.query.stream.take(), ..LogQuery::default() };
                return Ok(Some(LogItem::Begin { execution: execution.id, number: execution.number }));
            }
            let Some(job) = self.watch.next().await? else { return Ok(None) };
            if job.executions > self.seen {
                self.look(job.id).await?;
            }
        }
    }

    /// Finds the executions that were not followed yet.
    async fn look(&mut self, job: JobId) -> Result<(), Error> {
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
