//! Logs of executions: in pages, as plain text, or followed while they are written.
//!
//! - `decode`: frames to entries, and to plain bytes.
//! - `tail`: the last lines of a log.
//! - `follow`: a stream that ends with the execution.
//! - `search`: the lines that match a text or a regular expression.
//!
//! The leader handles all these requests, because growing logs are files of the leader.
//!
//! # Cost
//! A page reads about 4 MiB at most. `tail`, `line` and searches read the log from its beginning, with bounded memory.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use model::api::{LogEntry, LogSearch};
use model::record::ExecutionRecord;
use model::{ExecutionId, JobId};
use proto::logframe::Stream;
use serde::{Deserialize, Serialize};
use store::query::{ExecutionFilter, ExecutionRow, Page};
use utoipa::ToSchema;
use utoipa_axum::routes;

use self::decode::{Decoder, StreamFilter};
use self::search::{Position, Query, Search};
use self::tail::LastLines;
use super::extract::{Params, Path};
use super::headers::LastEventId;
use super::limits::Caller;
use super::problem::{ApiError, Chain, Code};
use super::routes::Routes;
use super::{Api, rows};
use crate::auth::{Actor, Resource, Verb};
use crate::clock::{Clock, SystemClock};
use crate::objects::ObjectError;

mod decode;
mod follow;
mod search;
mod tail;

/// Bytes of a log that are read at a time.
const CHUNK: usize = 256 * 1024;
/// Most entries of one response, and the default.
const ENTRIES_MAX: u32 = 10_000;
/// Most bytes of a log in one response, regardless of the number of entries.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Time after which the log of an ended execution counts as complete without the worker's confirmation.
const END_TIMEOUT: model::Duration = model::Duration::from_secs(10);
/// Most lines that a search returns before and after each hit.
const CONTEXT_MAX: u32 = 20;
/// Most hits of a page, and the default.
const HITS_MAX: u32 = 1_000;
const HITS: u32 = 100;
/// Time after which a search returns what it has found.
const SEARCH_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

pub(super) fn routes(routes: &mut Routes) {
    let refusals =
        [Code::JobNotFound, Code::ExecutionNotFound, Code::InvalidHeader, Code::Loading, Code::Stopping];
    routes.needs(Verb::Read, Resource::Logs, &refusals, routes!(read_job_logs));
    routes.of_leader();
    routes.needs(Verb::Read, Resource::Logs, &refusals[1..], routes!(read_execution_logs));
    routes.of_leader();
    let refusals = [Code::JobNotFound, Code::ExecutionNotFound, Code::InvalidCursor];
    routes.needs(Verb::Read, Resource::Logs, &refusals, routes!(search_job_logs));
    routes.of_leader();
    routes.needs(Verb::Read, Resource::Logs, &refusals[1..], routes!(search_execution_logs));
    routes.of_leader();
}

/// How a log is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Form {
    /// Entries with times.
    Json,
    /// Just what was written.
    Text,
}

/// Which of the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Streams {
    /// The standard output.
    Stdout,
    /// The standard error.
    Stderr,
    /// Both, and the notices of Belfry itself.
    #[default]
    All,
}

impl From<Streams> for StreamFilter {
    fn from(streams: Streams) -> Self {
        match streams {
            Streams::Stdout => Self::Only(Stream::Stdout),
            Streams::Stderr => Self::Only(Stream::Stderr),
            Streams::All => Self::All,
        }
    }
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct LogsParams {
    /// Stream to return: `stdout`, `stderr` or `all` [default: `all`].
    #[param(inline)]
    stream: Streams,
    /// Offset at which to start: 0, or `next_offset` of an earlier response [default: 0]
    offset: u64,
    /// Maximum number of entries. An entry has the output of one write of the task, up to 64 KiB.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<u32>,
    /// Number of lines to return from the end of the log. Cannot be used with `offset`.
    #[param(minimum = 1, maximum = 10000)]
    tail: Option<u32>,
    /// Line at which to start, from 1. Cannot be used with `offset` or `tail`, or in a stream.
    #[param(minimum = 1)]
    line: Option<u64>,
    /// Format of the response: `json`, or `text` for the output of the task alone [default: json]
    #[param(inline)]
    format: Option<Form>,
    /// Whether to return a stream of server-sent events, which ends when the execution has ended [default: false]
    follow: bool,
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct JobLogsParams {
    /// Number of the execution, from 1 [default: the newest execution].
    execution: Option<u32>,
    /// Stream to return: `stdout`, `stderr` or `all` [default: `all`].
    #[param(inline)]
    stream: Streams,
    /// Offset at which to start: 0, or `next_offset` of an earlier response [default: 0]
    offset: u64,
    /// Maximum number of entries. An entry has the output of one write of the task, up to 64 KiB.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<u32>,
    /// Number of lines to return from the end of the log. Cannot be used with `offset`.
    #[param(minimum = 1, maximum = 10000)]
    tail: Option<u32>,
    /// Line at which to start, from 1. Cannot be used with `offset` or `tail`, or in a stream.
    #[param(minimum = 1)]
    line: Option<u64>,
    /// Format of the response: `json`, or `text` for the output of the task alone [default: json]
    #[param(inline)]
    format: Option<Form>,
    /// Whether to return a stream of server-sent events, which ends when the execution has ended [default: false]
    follow: bool,
}

impl JobLogsParams {
    fn split(self) -> (Option<u32>, LogsParams) {
        let Self { execution, stream, offset, limit, tail, line, format, follow } = self;
        (execution, LogsParams { stream, offset, limit, tail, line, format, follow })
    }
}

/// A piece of a log.
#[derive(Serialize, ToSchema)]
struct LogPage {
    /// In the order of the log.
    items: Vec<LogEntry>,
    /// Offset of the next page (`?offset=`).
    next_offset: u64,
    /// Whether this is the end: nothing more will come.
    complete: bool,
    /// Number of the first line of `items`, counted from 1; only in answers to `tail` and `line`.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_line: Option<u64>,
}

/// Read the log of a job
///
/// Returns the log of the newest execution, or of the one that `execution` names. With `Accept: text/event-stream` or
/// `follow=true`, the response is a stream: each event named `log` has a LogEntry as data and its `next_offset` as id,
/// and the last event is named `end`. After a lost connection, a client sends the last id as `Last-Event-ID`. If the
/// job has no execution yet, the stream waits for the first one.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/logs", tag = "logs",
    params(
        ("id" = JobId, Path),
        JobLogsParams,
        ("Last-Event-ID" = Option<u64>, Header, description = "Offset at which a stream continues"),
    ),
    responses((status = 200, description = "Part of the log", content(
        (LogPage = "application/json"), (String = "text/plain"), (LogEntry = "text/event-stream"),
    ))),
)]
async fn read_job_logs(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<JobId>,
    Params(params): Params<JobLogsParams>,
    last: LastEventId,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (number, params) = params.split();
    let job = rows::job(&api, &actor, id).await?;
    let execution = match (number, job.state.execution) {
        (Some(number), _) => Some(numbered(&api, id, number).await?.record.id),
        (None, newest) => newest,
    };
    let answer = params.answer(&headers)?;
    match (execution, answer) {
        (None, Answer::Page) => {
            let complete = job.state.status.is_final();
            Ok(Json(LogPage { items: Vec::new(), next_offset: 0, complete, first_line: None })
                .into_response())
        }
        (None, Answer::Text) => Ok(text(Body::empty())),
        (None, Answer::Stream) => follow::job(&api, &actor, &caller, id, params.stream.into()),
        (Some(execution), answer) => read(&api, &actor, &caller, execution, params, answer, last).await,
    }
}

/// Read the log of an execution
///
/// Parameters and response are those of the log of a job.
#[utoipa::path(get, path = "/api/v1/executions/{id}/logs", tag = "logs",
    params(
        ("id" = ExecutionId, Path),
        LogsParams,
        ("Last-Event-ID" = Option<u64>, Header, description = "Offset at which a stream continues"),
    ),
    responses((status = 200, description = "Part of the log", content(
        (LogPage = "application/json"), (String = "text/plain"), (LogEntry = "text/event-stream"),
    ))),
)]
async fn read_execution_logs(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<ExecutionId>,
    Params(params): Params<LogsParams>,
    last: LastEventId,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    rows::execution(&api, &actor, id).await?;
    let answer = params.answer(&headers)?;
    read(&api, &actor, &caller, id, params, answer, last).await
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct SearchParams {
    /// Text that the lines contain. Letter case is ignored.
    #[param(min_length = 1, max_length = 1000)]
    text: Option<String>,
    /// Regular expression that matches a part of the lines, instead of `text`. `(?i)` at its start ignores letter case.
    #[param(min_length = 1, max_length = 1000)]
    regex: Option<String>,
    /// Number of lines to return before and after each matching line, from 0 to 20 [default: 0]
    #[param(minimum = 0, maximum = 20)]
    context: u32,
    /// Stream to search: `stdout`, `stderr` or `all` [default: `all`].
    #[param(inline)]
    stream: Streams,
    /// Line at which to start, from 1 [default: 1]
    #[param(minimum = 1)]
    line: Option<u64>,
    /// Maximum number of matching lines, from 1 to 1000 [default: 100]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl SearchParams {
    /// # Errors
    /// `invalid_parameter`
    fn query(&self) -> Result<Query, ApiError> {
        let (name, pattern) = match (&self.text, &self.regex) {
            (Some(text), None) => ("text", search::pattern(text, false, true)),
            (None, Some(regex)) => ("regex", search::pattern(regex, true, false)),
            _ => return Err(ApiError::parameter("text", "expected either `text` or `regex`")),
        };
        let limit = self.limit.unwrap_or(HITS);
        for (name, asked, range) in
            [("limit", limit, 1..=HITS_MAX), ("context", self.context, 0..=CONTEXT_MAX)]
        {
            if !range.contains(&asked) {
                let wrong =
                    format!("`{asked}` is out of range: expected {} to {}", range.start(), range.end());
                return Err(ApiError::parameter(name, wrong));
            }
        }
        if self.line == Some(0) {
            return Err(ApiError::parameter("line", "`0` is out of range: expected at least 1"));
        }
        Ok(Query {
            pattern: pattern.map_err(|wrong| ApiError::parameter(name, wrong))?,
            streams: self.stream.into(),
            context: self.context as usize,
            limit: limit as usize,
        })
    }
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct SearchJobParams {
    /// Number of the execution, from 1 [default: the newest execution].
    execution: Option<u32>,
    /// Text that the lines contain. Letter case is ignored.
    #[param(min_length = 1, max_length = 1000)]
    text: Option<String>,
    /// Regular expression that matches a part of the lines, instead of `text`. `(?i)` at its start ignores letter case.
    #[param(min_length = 1, max_length = 1000)]
    regex: Option<String>,
    /// Number of lines to return before and after each matching line, from 0 to 20 [default: 0]
    #[param(minimum = 0, maximum = 20)]
    context: u32,
    /// Stream to search: `stdout`, `stderr` or `all` [default: `all`].
    #[param(inline)]
    stream: Streams,
    /// Line at which to start, from 1 [default: 1]
    #[param(minimum = 1)]
    line: Option<u64>,
    /// Maximum number of matching lines, from 1 to 1000 [default: 100]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl SearchJobParams {
    fn split(self) -> (Option<u32>, SearchParams) {
        let Self { execution, text, regex, context, stream, line, limit, cursor } = self;
        (execution, SearchParams { text, regex, context, stream, line, limit, cursor })
    }
}

/// Search the log of a job
///
/// Searches the log of the newest execution, or of the one that `execution` names, line by line. The response has the
/// matching lines in the order of the log. A request searches for at most 10 seconds; if the log has more lines,
/// `next_cursor` continues.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/logs/search", tag = "logs",
    params(("id" = JobId, Path), SearchJobParams),
    responses((status = 200, description = "The matching lines", body = LogSearch)),
)]
async fn search_job_logs(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<JobId>,
    Params(params): Params<SearchJobParams>,
) -> Result<Json<LogSearch>, ApiError> {
    let (number, params) = params.split();
    let job = rows::job(&api, &actor, id).await?;
    let execution = match (number, job.state.execution) {
        (Some(number), _) => Some(numbered(&api, id, number).await?.record.id),
        (None, newest) => newest,
    };
    let query = params.query()?;
    match execution {
        Some(execution) => find(&api, &actor, execution, &params, query).await,
        None => {
            let complete = job.state.status.is_final();
            Ok(Json(LogSearch { items: Vec::new(), lines: 0, next_cursor: None, complete }))
        }
    }
}

/// Search the log of an execution
///
/// Parameters and response are those of the search in the log of a job.
#[utoipa::path(get, path = "/api/v1/executions/{id}/logs/search", tag = "logs",
    params(("id" = ExecutionId, Path), SearchParams),
    responses((status = 200, description = "The matching lines", body = LogSearch)),
)]
async fn search_execution_logs(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<ExecutionId>,
    Params(params): Params<SearchParams>,
) -> Result<Json<LogSearch>, ApiError> {
    rows::execution(&api, &actor, id).await?;
    let query = params.query()?;
    find(&api, &actor, id, &params, query).await
}

async fn find(
    api: &Api,
    actor: &Actor,
    execution: ExecutionId,
    params: &SearchParams,
    query: Query,
) -> Result<Json<LogSearch>, ApiError> {
    // A cursor belongs to the same search only; its page may have another size.
    let asked = (execution, &params.text, &params.regex, params.stream);
    let cursor = api.shared.cursors.read::<Position>("log-search", &asked, params.cursor.as_deref())?;
    let start = cursor.unwrap_or(Position::from_line(params.line.unwrap_or(1)));
    let _place = search::PLACES
        .try_acquire()
        .map_err(|_| ApiError::new(Code::Busy, "too many searches in logs are waiting"))?;
    let mut search = Search::new(query, start);
    let (mut offset, deadline) = (start.offset(), std::time::Instant::now() + SEARCH_TIMEOUT);
    let ended_at = loop {
        // Before the read, because a permit also bounds the memory of a chunk.
        let permit = search::PERMITS.acquire().await;
        let part = api.objects.logs.read(execution, offset, search::CHUNK).await?;
        if part.frames.is_empty() {
            search.finish();
            break search.has_room().then_some(offset);
        }
        offset = part.next;
        let searched = move || {
            let is_over = search.feed(&part.frames, part.from, deadline);
            // The search of a client that has left continues to here.
            drop(permit);
            (search, is_over)
        };
        let is_over;
        (search, is_over) =
            tokio::task::spawn_blocking(searched).await.map_err(|error| ApiError::internal(&error))?;
        if is_over {
            break None;
        }
    };
    let (items, next, lines) = search.into_hits();
    let (complete, next_cursor) = match ended_at {
        Some(offset) => (ended(api, actor, execution, offset).await?, None),
        None => (false, Some(api.shared.cursors.make("log-search", &asked, &next.to_string()))),
    };
    Ok(Json(LogSearch { items, lines, next_cursor, complete }))
}

/// Returns the execution of a job with this number.
async fn numbered(api: &Api, job: JobId, number: u32) -> Result<ExecutionRow, ApiError> {
    let filter = ExecutionFilter { job: Some(job), ..ExecutionFilter::default() };
    let mut after = None;
    loop {
        let limit = model::limits::PAGE_MAX;
        let found = api.node.store().executions(&filter, Page { after, limit }).await?;
        after = found.items.last().map(|row| row.record.id);
        if let Some(row) = found.items.into_iter().find(|row| row.record.number == number) {
            return Ok(row);
        }
        if !found.more {
            return Err(ApiError::new(
                Code::ExecutionNotFound,
                format!("job `{job}` has no execution {number}"),
            ));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Page,
    Text,
    Stream,
}

impl LogsParams {
    fn answer(&self, headers: &HeaderMap) -> Result<Answer, ApiError> {
        for (name, asked) in [("limit", self.limit), ("tail", self.tail)] {
            if let Some(count) = asked.filter(|count| !(1..=ENTRIES_MAX).contains(count)) {
                let wrong = format!("`{count}` is out of range: expected 1 to {ENTRIES_MAX}");
                return Err(ApiError::parameter(name, wrong));
            }
        }
        if self.tail.is_some() && self.offset > 0 {
            return Err(ApiError::parameter("tail", "cannot be used with `offset`"));
        }
        if self.line.is_some() && (self.tail.is_some() || self.offset > 0 || self.follow) {
            return Err(ApiError::parameter("line", "cannot be used with `offset`, `tail` or `follow`"));
        }
        if self.line == Some(0) {
            return Err(ApiError::parameter("line", "`0` is out of range: expected at least 1"));
        }
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let answer = match self.format {
            _ if self.follow || accept.starts_with("text/event-stream") => Answer::Stream,
            Some(Form::Text) => Answer::Text,
            Some(Form::Json) => Answer::Page,
            None if accept.starts_with("text/plain") => Answer::Text,
            None => Answer::Page,
        };
        if self.line.is_some() && !matches!(answer, Answer::Page) {
            return Err(ApiError::parameter("line", "can be used only with `format=json`"));
        }
        Ok(answer)
    }
}

async fn read(
    api: &Api,
    actor: &Actor,
    caller: &Caller,
    execution: ExecutionId,
    params: LogsParams,
    answer: Answer,
    LastEventId(last): LastEventId,
) -> Result<Response, ApiError> {
    let wanted = StreamFilter::from(params.stream);
    match (answer, params.tail.filter(|_| last.is_none())) {
        (Answer::Page, None) => match params.line {
            Some(line) => {
                let offset = skip_lines(api, execution, line, wanted).await?;
                part(api, actor, execution, offset, params.limit, wanted).await
            }
            None => part(api, actor, execution, Start::at(params.offset), params.limit, wanted).await,
        },
        (Answer::Page, Some(lines)) => {
            let (items, next_offset, first_line) = tail(api, execution, lines, wanted).await?;
            let complete = ended(api, actor, execution, next_offset).await?;
            Ok(Json(LogPage { items, next_offset, complete, first_line: Some(first_line) }).into_response())
        }
        (Answer::Text, None) => Ok(text(whole_text(api, execution, params.offset, wanted).await?)),
        (Answer::Text, Some(lines)) => {
            let (items, ..) = tail(api, execution, lines, wanted).await?;
            let bytes: Vec<u8> = items.into_iter().flat_map(decode::raw_bytes).collect();
            Ok(text(Body::from(bytes)))
        }
        (Answer::Stream, None) => {
            let offset = begin(api, execution, last, params.offset).await?;
            follow::execution(api, actor, caller, execution, offset, wanted, Vec::new())
        }
        (Answer::Stream, Some(lines)) => {
            let (items, offset, _) = tail(api, execution, lines, wanted).await?;
            follow::execution(api, actor, caller, execution, offset, wanted, items)
        }
    }
}

/// Returns the start offset of a stream. The id of an event may belong to the log of an earlier execution; an invalid
/// one starts from the beginning.
async fn begin(api: &Api, execution: ExecutionId, last: Option<u64>, asked: u64) -> Result<u64, ApiError> {
    let offset = last.unwrap_or(asked);
    match api.objects.logs.read(execution, offset, 1).await {
        Ok(_) => Ok(offset),
        Err(ObjectError::BadOffset { .. }) if last.is_some() => Ok(0),
        Err(error) => Err(error.into()),
    }
}

fn text(body: Body) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))], body).into_response()
}

/// Start position of a response.
struct Start {
    offset: u64,
    /// Lines to skip in the first entry.
    surplus: usize,
    /// Number of the first line after the skipped ones, if it is known.
    line: Option<u64>,
}

impl Start {
    fn at(offset: u64) -> Self {
        Self { offset, surplus: 0, line: None }
    }
}

/// Finds the entry in which line `line` begins, or the end of the log if it has fewer lines.
///
/// Reads the log from its beginning, as [`tail`] does, without storing it.
async fn skip_lines(
    api: &Api,
    execution: ExecutionId,
    line: u64,
    wanted: StreamFilter,
) -> Result<Start, ApiError> {
    let mut decoder = Decoder::new(wanted);
    let (mut offset, mut before) = (0, 0);
    loop {
        let part = api.objects.logs.read(execution, offset, CHUNK).await?;
        if part.frames.is_empty() {
            return Ok(Start { offset, surplus: 0, line: Some(before + 1) });
        }
        for entry in decoder.entries(&part.frames, part.from) {
            let here = tail::line_ends(&entry.text) as u64;
            if before + here + 1 >= line {
                // At most the lines of one entry.
                let surplus = usize::try_from(line - 1 - before).unwrap_or(usize::MAX);
                return Ok(Start { offset, surplus, line: Some(line) });
            }
            before += here;
            offset = entry.next_offset;
        }
        offset = part.next;
    }
}

async fn part(
    api: &Api,
    actor: &Actor,
    execution: ExecutionId,
    Start { offset, mut surplus, line: first_line }: Start,
    limit: Option<u32>,
    wanted: StreamFilter,
) -> Result<Response, ApiError> {
    let limit = limit.unwrap_or(ENTRIES_MAX) as usize;
    let (mut items, mut next_offset, mut bytes) = (Vec::new(), offset, 0);
    let mut decoder = Decoder::new(wanted);
    let mut complete = false;
    while items.len() < limit && bytes < ANSWER_BYTES_MAX {
        let part = api.objects.logs.read(execution, next_offset, CHUNK).await?;
        if part.frames.is_empty() {
            complete = part.complete || ended(api, actor, execution, next_offset).await?;
            items.extend(decoder.flush(next_offset));
            break;
        }
        bytes += part.frames.len();
        for mut entry in decoder.entries(&part.frames, part.from) {
            if items.len() == limit {
                break;
            }
            tail::cut(&mut entry, std::mem::take(&mut surplus));
            next_offset = entry.next_offset;
            if !entry.text.is_empty() {
                items.push(entry);
            }
        }
        if items.len() < limit {
            next_offset = part.next;
            complete = part.complete;
        }
        if complete {
            break;
        }
    }
    Ok(Json(LogPage { items, next_offset, complete, first_line }).into_response())
}

/// Returns whether the log ends at `offset`. Either the log is complete, or the execution has ended with this log size,
/// or it ended long ago, and its worker would have sent the rest.
async fn ended(api: &Api, actor: &Actor, execution: ExecutionId, offset: u64) -> Result<bool, ApiError> {
    let size = api.objects.logs.size(execution).await?;
    if offset < size.end || size.complete {
        return Ok(offset >= size.end);
    }
    let record = rows::execution(api, actor, execution).await?.record;
    let now = SystemClock.now();
    let long_ago = record.finished_at.is_some_and(|at| at + END_TIMEOUT < now);
    Ok(record.status.is_final() && (long_ago || has_no_more_output(&record, offset)))
}

/// Returns whether an ended execution is known to have written nothing after `offset`.
fn has_no_more_output(record: &ExecutionRecord, offset: u64) -> bool {
    match &record.usage {
        Some(usage) => offset >= usage.log_bytes,
        None => record.started_at.is_none(),
    }
}

/// Returns the last lines of a log, their end offset, and the number of the first line.
async fn tail(
    api: &Api,
    execution: ExecutionId,
    lines: u32,
    wanted: StreamFilter,
) -> Result<(Vec<LogEntry>, u64, u64), ApiError> {
    let mut last = LastLines::new(lines as usize);
    let mut decoder = Decoder::new(wanted);
    let mut offset = 0;
    loop {
        let part = api.objects.logs.read(execution, offset, CHUNK).await?;
        if part.frames.is_empty() {
            break;
        }
        decoder.entries(&part.frames, part.from).for_each(|entry| last.push(entry));
        offset = part.next;
    }
    decoder.flush(offset).into_iter().for_each(|entry| last.push(entry));
    let (items, first_line) = last.finish();
    Ok((items, offset, first_line))
}

/// Streams a log from `offset`, byte for byte.
async fn whole_text(
    api: &Api,
    execution: ExecutionId,
    offset: u64,
    wanted: StreamFilter,
) -> Result<Body, ApiError> {
    let logs = api.objects.logs.clone();
    // The first part is read before the response starts, so that its failure can still be reported.
    let first = logs.read(execution, offset, CHUNK).await?;
    let state = Some((logs, first));
    let pieces = futures::stream::try_unfold(state, move |state| async move {
        let Some((logs, part)) = state.filter(|(_, part)| !part.frames.is_empty()) else { return Ok(None) };
        let bytes = Bytes::from(decode::raw(&part.frames, wanted));
        let next = logs.read(execution, part.next, CHUNK).await?;
        Ok::<_, ObjectError>(Some((bytes, Some((logs, next)))))
    });
    Ok(Body::from_stream(pieces))
}

impl From<ObjectError> for ApiError {
    fn from(error: ObjectError) -> Self {
        if error.is_full() {
            return Self::new(
                Code::StorageFull,
                "cannot store the object: no space left on the server's volume",
            );
        }
        let code = match error {
            ObjectError::Store(error) => return error.into(),
            ObjectError::Interrupted { .. } => {
                return Self::new(Code::MalformedBody, Chain(&error).to_string()).hint(error.help());
            }
            ObjectError::BadOffset { .. } => {
                return Self::parameter("offset", error.to_string()).hint(error.help());
            }
            ObjectError::NoArtifact { .. } => Code::ArtifactNotFound,
            ObjectError::TooLarge { .. } => Code::BodyTooLarge,
            ObjectError::Missing { .. }
            | ObjectError::Backend { .. }
            | ObjectError::TooFewCopies { .. }
            | ObjectError::Elsewhere { .. } => {
                tracing::warn!(error = %Chain(&error), "cannot read or write an object");
                Code::StoreUnavailable
            }
            _ => return Self::internal(&error),
        };
        Self::new(code, error.to_string()).hint(error.help())
    }
}
