//! Search in a log: the lines that match a text or a regular expression, each with its number and the lines around it.
//!
//! Frames are searched in the order of the log, with bounded memory. Most bytes are looked at only by the search for
//! the pattern and by the search for line ends, both vectorized: the lines of a frame that are complete form one
//! region, in which the pattern finds the next matching line. A line may consist of several frames, with frames of
//! other streams between them, so the incomplete last line of each stream is kept.
//!
//! Lines are numbered by their ends, from 1, as everywhere in the API. Escape sequences, such as colours, are no part of a
//! line: neither searched nor returned. A line with escape sequences also loses its control characters, its bytes that are
//! not UTF-8, and what follows a sequence without an end.
//!
//! # Cost
//! One pass over the bytes for the pattern, and one for the line ends. Lines with escape sequences are copied byte by byte
//! first. [`PERMITS`] bounds the cores and the memory that
//! searches use; each chunk needs a permit of its own, so that several searches share them. A continued search reads
//! the log from a point shortly before its last hit.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Instant;

use model::Timestamp;
use model::api::{LogHit, LogLine};
use proto::logframe::{self, Stream};
use regex::bytes::{Regex, RegexBuilder};
use tokio::sync::Semaphore;

use super::decode::StreamFilter;

/// Bytes of a log that are searched at a time.
pub(super) const CHUNK: usize = 4 * 1024 * 1024;
/// Longest pattern, in bytes.
pub(super) const PATTERN_LEN_MAX: usize = 1_000;
/// Number of chunks that are in memory and searched at the same time.
pub(super) static PERMITS: Semaphore = Semaphore::const_new(2);
/// Number of searches that may wait for a permit.
pub(super) static PLACES: Semaphore = Semaphore::const_new(32);

/// Part of a line that is searched; the rest of a longer line is skipped.
const LINE_SEARCHED_MAX: usize = 1024 * 1024;
/// Part of a line that is returned.
const LINE_SHOWN_MAX: usize = 4 * 1024;
/// Bytes of returned lines after which a page ends.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Limit of the memory for a compiled pattern, in bytes.
const COMPILED_MAX: usize = 256 * 1024;

/// Compiles a pattern for [`Search`].
///
/// # Errors
/// What is wrong with the pattern.
pub(super) fn pattern(text: &str, is_regex: bool, ignore_case: bool) -> Result<Regex, String> {
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    if text.len() > PATTERN_LEN_MAX {
        return Err(format!("has {} bytes: expected at most {PATTERN_LEN_MAX}", text.len()));
    }
    if is_regex && ["\\A", "\\z"].iter().any(|anchor| text.contains(anchor)) {
        return Err("has `\\A` or `\\z`: each line is searched alone, so use `^` or `$`".to_owned());
    }
    let escaped = if is_regex { text.to_owned() } else { regex::escape(text) };
    let built = RegexBuilder::new(&escaped)
        .case_insensitive(ignore_case)
        .multi_line(true)
        .crlf(true)
        .size_limit(COMPILED_MAX)
        .dfa_size_limit(COMPILED_MAX)
        .build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => {
            format!("is too large: it compiles to more than {limit} bytes")
        }
        // The message has several lines; the last one says what is wrong.
        error => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default().trim();
            format!("is not a regular expression: {}", last.strip_prefix("error: ").unwrap_or(last))
        }
    })
}

/// Position in a log at which a search continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Position {
    /// Offset of a frame before which all lines are complete.
    offset: u64,
    /// Number of lines before the offset.
    lines: u64,
    /// Lines up to this one have been returned, or need not be returned.
    found: u64,
}

impl Position {
    /// The beginning of a log, of which the lines from `line` on are wanted.
    pub(super) fn from_line(line: u64) -> Self {
        Self { found: line.saturating_sub(1), ..Self::default() }
    }

    pub(super) fn offset(self) -> u64 {
        self.offset
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.offset, self.lines, self.found)
    }
}

impl std::str::FromStr for Position {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let numbers: Result<Vec<u64>, _> = text.split('.').map(str::parse).collect();
        match numbers.map_err(|_| ())?.as_slice() {
            &[offset, lines, found] => Ok(Self { offset, lines, found }),
            _ => Err(()),
        }
    }
}

/// What a search looks for.
#[derive(Debug, Clone)]
pub(super) struct Query {
    pub(super) pattern: Regex,
    pub(super) streams: StreamFilter,
    /// Number of lines to return before and after each hit.
    pub(super) context: usize,
    /// Maximum number of hits.
    pub(super) limit: usize,
}

/// A search that is under way.
#[derive(Debug)]
pub(super) struct Search {
    query: Query,
    /// Number of complete lines so far.
    lines: u64,
    /// Lines up to this one are not returned.
    found: u64,
    /// The incomplete last line of each stream.
    open: [OpenLine; 3],
    /// The last lines, as many as the context needs.
    recent: VecDeque<LogLine>,
    hits: Vec<LogHit>,
    /// Number of hits that have all their following lines.
    settled: usize,
    bytes: usize,
    /// Positions at which no line was incomplete, the oldest first. A continued search starts at the first one, so that
    /// it has lines for the context of its first hit.
    starts: VecDeque<Position>,
}

/// Incomplete line of a stream.
#[derive(Debug)]
struct OpenLine {
    stream: Stream,
    unix_micros: i64,
    data: Vec<u8>,
}

impl Search {
    /// Starts a search at `position`.
    pub(super) fn new(query: Query, position: Position) -> Self {
        let open = [Stream::Stdout, Stream::Stderr, Stream::Notice];
        Self {
            query,
            lines: position.lines,
            found: position.found,
            open: open.map(|stream| OpenLine { stream, unix_micros: 0, data: Vec::new() }),
            recent: VecDeque::new(),
            hits: Vec::new(),
            settled: 0,
            bytes: 0,
            starts: VecDeque::from([position]),
        }
    }

    /// Searches whole frames that begin at `offset`, until the page is full or the time is over. Returns whether the
    /// frames after them need not be searched.
    pub(super) fn feed(&mut self, frames: &[u8], offset: u64, deadline: Instant) -> bool {
        let mut at = 0;
        // `objects` has validated the frames; invalid bytes end the search of the chunk.
        while let Ok(Some((frame, next))) = logframe::read(frames, at) {
            if self.is_full() || Instant::now() > deadline {
                return true;
            }
            if self.query.streams.has(frame.stream) {
                self.frame(frame.stream, frame.unix_micros, frame.data);
            }
            at = next;
            if self.open.iter().all(|open| open.data.is_empty()) {
                self.add_start(offset + at as u64);
            }
        }
        self.is_full()
    }

    /// Adds a position at which no line is incomplete, and drops those that are too old to be needed.
    fn add_start(&mut self, offset: u64) {
        self.starts.push_back(Position { offset, lines: self.lines, found: 0 });
        // The last hit may be this far before the last line, and its successor needs lines before it.
        let needed = self.lines.saturating_sub(2 * self.query.context as u64 + 1);
        while self.starts.get(1).is_some_and(|second| second.lines <= needed) {
            self.starts.pop_front();
        }
    }

    /// Searches the incomplete last lines. Call it at the end of the log.
    pub(super) fn finish(&mut self) {
        for index in 0..self.open.len() {
            let OpenLine { stream, unix_micros, ref mut data } = self.open[index];
            let data = std::mem::take(data);
            if !data.is_empty() && !self.is_full() {
                self.line(stream, unix_micros, &without_escapes(&data));
            }
        }
    }

    /// Returns the hits, the position at which the search continues, and the number of lines that it has searched.
    pub(super) fn into_hits(self) -> (Vec<LogHit>, Position, u64) {
        // Without room, lines after the last hit were read for its context only.
        let found = match self.has_room() {
            true => self.lines.max(self.found),
            false => self.hits.last().map_or(self.found, |hit| hit.line.number),
        };
        let start = self.starts.front().copied().unwrap_or_default();
        (self.hits, Position { found, ..start }, self.lines)
    }

    /// Whether the page can take another hit. If not, lines after the last hit are still to be searched.
    pub(super) fn has_room(&self) -> bool {
        self.hits.len() < self.query.limit && self.bytes < PAGE_BYTES_MAX
    }

    fn is_full(&self) -> bool {
        !self.has_room() && self.settled == self.hits.len()
    }

    fn frame(&mut self, stream: Stream, unix_micros: i64, mut data: &[u8]) {
        let Some(index) = self.open.iter().position(|open| open.stream == stream) else { return };
        if !self.open[index].data.is_empty() {
            let end = memchr::memchr(b'\n', data);
            self.open[index].push(unix_micros, &data[..end.unwrap_or(data.len())]);
            let Some(end) = end else { return };
            let line = std::mem::take(&mut self.open[index].data);
            self.line(stream, unix_micros, &without_escapes(&line));
            data = &data[end + 1..];
        }
        let whole = memchr::memrchr(b'\n', data).map_or(0, |last| last + 1);
        self.region(stream, unix_micros, &without_escapes(&data[..whole]));
        self.open[index].push(unix_micros, &data[whole..]);
    }

    /// Searches complete lines.
    fn region(&mut self, stream: Stream, unix_micros: i64, lines: &[u8]) {
        let (mut at, mut one_by_one) = (0, false);
        while at < lines.len() {
            // The context of the last hits needs every line.
            let found = match one_by_one || self.settled < self.hits.len() {
                true => Some((at, at)),
                false if self.is_full() => return,
                false => self.query.pattern.find_at(lines, at).map(|found| (found.start(), found.end())),
            };
            // The start of a line after the last line end is no line.
            let Some((found, until)) = found.filter(|(found, _)| *found < lines.len()) else { break };
            let start = memchr::memrchr(b'\n', &lines[at..found]).map_or(at, |last| at + last + 1);
            self.skip(stream, unix_micros, &lines[at..start]);
            let end = memchr::memchr(b'\n', &lines[start..]).map_or(lines.len(), |end| start + end);
            // A pattern that matches line ends may match many lines from each of them, so it gets each line alone.
            one_by_one |= until > end;
            self.line(stream, unix_micros, &lines[start..end]);
            at = end + 1;
        }
        self.skip(stream, unix_micros, lines.get(at..).unwrap_or_default());
    }

    /// Counts complete lines that do not match.
    fn skip(&mut self, stream: Stream, unix_micros: i64, lines: &[u8]) {
        let count = memchr::memchr_iter(b'\n', lines).count() as u64;
        let last = self.lines + count;
        if self.query.context > 0 && count > 0 {
            let mut newest = Vec::new();
            for text in lines[..lines.len() - 1].rsplit(|byte| *byte == b'\n').take(self.query.context) {
                newest.push(log_line(last - newest.len() as u64, stream, unix_micros, text, 0));
            }
            newest.into_iter().rev().for_each(|line| self.remember(line));
        }
        self.lines = last;
    }

    /// Handles one line without its end.
    fn line(&mut self, stream: Stream, unix_micros: i64, text: &[u8]) {
        self.lines += 1;
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let searched = &text[..text.len().min(LINE_SEARCHED_MAX)];
        // The region's match may have begun here and ended in another line, so the line is searched alone.
        let found = match self.has_room() && self.lines > self.found {
            true => self.query.pattern.find(searched).map(|found| found.start()),
            false => None,
        };
        if found.is_none() && self.query.context == 0 {
            return;
        }
        let line = log_line(self.lines, stream, unix_micros, text, found.unwrap_or(0));
        for hit in &mut self.hits[self.settled..] {
            self.bytes += line.text.len();
            hit.after.push(line.clone());
        }
        let context = self.query.context;
        self.settled += self.hits[self.settled..].iter().filter(|hit| hit.after.len() >= context).count();
        if found.is_some() {
            let before: Vec<_> = self.recent.iter().cloned().collect();
            self.bytes += line.text.len() + before.iter().map(|line| line.text.len()).sum::<usize>();
            self.hits.push(LogHit { line: line.clone(), before, after: Vec::new() });
            self.settled += usize::from(context == 0);
        }
        self.remember(line);
    }

    fn remember(&mut self, line: LogLine) {
        if self.query.context == 0 {
            return;
        }
        if self.recent.len() == self.query.context {
            self.recent.pop_front();
        }
        self.recent.push_back(line);
    }
}

/// Returns lines without escape sequences. A sequence without an end does not extend into the next line.
fn without_escapes(lines: &[u8]) -> Cow<'_, [u8]> {
    const ESCAPE: u8 = 0x1b;
    if memchr::memchr(ESCAPE, lines).is_none() {
        return Cow::Borrowed(lines);
    }
    let mut plain = Vec::with_capacity(lines.len());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let (text, end) = line.split_at(line.strip_suffix(b"\n").map_or(line.len(), <[u8]>::len));
        match memchr::memchr(ESCAPE, text) {
            Some(_) => anstream::adapter::strip_bytes(text).for_each(|part| plain.extend_from_slice(part)),
            None => plain.extend_from_slice(text),
        }
        plain.extend_from_slice(end);
    }
    Cow::Owned(plain)
}

impl OpenLine {
    fn push(&mut self, unix_micros: i64, data: &[u8]) {
        self.unix_micros = unix_micros;
        // One byte more than is searched, which shows that the line is longer.
        let room = (LINE_SEARCHED_MAX + 1).saturating_sub(self.data.len());
        self.data.extend_from_slice(&data[..data.len().min(room)]);
    }
}

/// Returns a line, or the part of a long line around the byte `at`.
fn log_line(number: u64, stream: Stream, unix_micros: i64, text: &[u8], at: usize) -> LogLine {
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let start = match text.len() > LINE_SHOWN_MAX {
        true => at.saturating_sub(LINE_SHOWN_MAX / 4),
        false => 0,
    };
    let shown = &text[start..text.len().min(start + LINE_SHOWN_MAX)];
    LogLine {
        number,
        at: Timestamp::from_micros(unix_micros),
        stream: stream.as_str().to_owned(),
        text: String::from_utf8_lossy(shown).into_owned(),
        truncated: shown.len() < text.len(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame: its stream and its text.
    type Written<'a> = (Stream, &'a str);

    fn frames(written: &[Written<'_>]) -> Vec<Vec<u8>> {
        let frame = |(index, (stream, text)): (usize, &Written<'_>)| {
            let mut bytes = Vec::new();
            logframe::write(&mut bytes, *stream, index as i64, text.as_bytes());
            bytes
        };
        written.iter().enumerate().map(frame).collect()
    }

    fn query(text: &str, context: usize, limit: usize) -> Query {
        Query { pattern: pattern(text, true, false).unwrap(), streams: StreamFilter::All, context, limit }
    }

    /// Searches frames that arrive one by one. Returns the hits, the next position, and whether the page had no room.
    fn search(written: &[Written<'_>], query: Query, position: Position) -> (Vec<LogHit>, Position, bool) {
        let mut search = Search::new(query, position);
        let far = Instant::now() + std::time::Duration::from_secs(3_600);
        let (mut offset, mut full) = (0, false);
        for frame in frames(written) {
            if offset >= position.offset() && !full {
                full = search.feed(&frame, offset, far);
            }
            offset += frame.len() as u64;
        }
        if !full {
            search.finish();
        }
        let more = !search.has_room();
        let (hits, position, _) = search.into_hits();
        (hits, position, more)
    }

    fn shown(hits: &[LogHit]) -> Vec<String> {
        let line = |mark: char| move |line: &LogLine| format!("{}{mark}{}", line.number, line.text);
        let hit = |hit: &LogHit| {
            let before = hit.before.iter().map(line('-'));
            let after = hit.after.iter().map(line('-'));
            let all: Vec<_> = before.chain([line(':')(&hit.line)]).chain(after).collect();
            all.join(" ")
        };
        hits.iter().map(hit).collect()
    }

    #[test]
    fn hits_have_the_number_of_their_line_and_the_lines_around_them() {
        let text = "one\ntwo\nthree\nfour\nfive\n";
        for written in [
            &[(Stream::Stdout, text)][..],
            &[(Stream::Stdout, "one\ntw"), (Stream::Stdout, "o\nthree\nfo"), (Stream::Stdout, "ur\nfive\n")],
            &[(Stream::Stdout, "one\r\ntwo\nth"), (Stream::Stdout, "ree\nfour\n"), (Stream::Stdout, "five")],
        ] {
            let found =
                |text, context| shown(&search(written, query(text, context, 9), Position::default()).0);
            assert_eq!(found("t", 0), ["2:two", "3:three"], "{written:?}");
            assert_eq!(found("^f.*e$", 1), ["4-four 5:five"], "{written:?}");
            assert_eq!(found("^one$", 2), ["1:one 2-two 3-three"], "{written:?}");
            assert_eq!(found("t", 1), ["1-one 2:two 3-three", "2-two 3:three 4-four"], "{written:?}");
            assert!(found("six", 3).is_empty(), "{written:?}");
        }
    }

    #[test]
    fn colours_are_no_part_of_a_line() {
        let red = "\x1b[31mERR\x1b[0mOR: disk\n";
        for written in [
            &[(Stream::Stdout, "start\n\x1b[31mERR\x1b[0mOR: disk\nend\n")][..],
            &[(Stream::Stdout, "start\n"), (Stream::Stdout, &red[..3]), (Stream::Stdout, &red[3..])],
            // A link without an end hides nothing of the next line.
            &[(Stream::Stdout, "start\x1b]8;;https://a.example\nERROR: disk\nend\n")],
        ] {
            let found = |text| shown(&search(written, query(text, 0, 9), Position::default()).0);
            assert_eq!(found("ERROR"), ["2:ERROR: disk"], "{written:?}");
            assert_eq!(found("^start$"), ["1:start"], "{written:?}");
            assert!(found("31m").is_empty(), "{written:?}");
        }
    }

    #[test]
    fn lines_of_several_streams_are_numbered_by_their_ends() {
        use Stream::{Stderr, Stdout};
        let written = [(Stdout, "a-out"), (Stderr, "b-err\n"), (Stdout, "put\n"), (Stderr, "c-err\n")];
        let found = |query| shown(&search(&written, query, Position::default()).0);
        assert_eq!(found(query("err|output", 0, 9)), ["1:b-err", "2:a-output", "3:c-err"]);
        let errors = Query { streams: StreamFilter::Only(Stderr), ..query("err", 0, 9) };
        assert_eq!(found(errors), ["1:b-err", "2:c-err"]);
    }

    #[test]
    fn a_match_does_not_extend_over_a_line_end() {
        let written = [(Stream::Stdout, "a\nb\na b\n")];
        let found = |text| shown(&search(&written, query(text, 0, 9), Position::default()).0);
        assert_eq!(found(r"a\sb"), ["3:a b"]);
        assert_eq!(found(r"\n"), [""; 0]);
        assert_eq!(found("x*"), ["1:a", "2:b", "3:a b"]);
        assert_eq!(found("a[^;]*b"), ["3:a b"]);
        let written = [(Stream::Stdout, "abc\n"), (Stream::Stdout, "d\n\n"), (Stream::Stdout, "e\n")];
        let found = |text| shown(&search(&written, query(text, 0, 9), Position::default()).0);
        assert_eq!(found("^$"), ["3:"]);
        assert_eq!(found("^.$"), ["2:d", "4:e"]);
    }

    #[test]
    fn a_long_line_is_shown_around_its_match() {
        let text = format!("{}needle{}\n", "x".repeat(10_000), "y".repeat(10_000));
        let hits = search(&[(Stream::Stdout, &text)], query("needle", 0, 9), Position::default()).0;
        assert!(hits[0].line.text.contains("xneedley") && hits[0].line.truncated);
        assert_eq!(hits[0].line.text.len(), LINE_SHOWN_MAX);
    }

    #[test]
    fn a_text_is_no_expression_and_its_case_may_be_ignored() {
        let found = |text: &str, is_regex, ignore_case| {
            let query = Query { pattern: pattern(text, is_regex, ignore_case).unwrap(), ..query("x", 0, 9) };
            search(&[(Stream::Stdout, "a.b\nA.B\naxb\n")], query, Position::default()).0.len()
        };
        assert_eq!(found("a.b", false, false), 1);
        assert_eq!(found("a.b", false, true), 2);
        assert_eq!(found("a.b", true, true), 3);
        let wrong = |text: &str| pattern(text, true, false).unwrap_err();
        assert_eq!(wrong("a("), "is not a regular expression: unclosed group");
        assert_eq!(wrong(""), "is empty");
        assert!(wrong(r"\Aa").contains("use `^`"));
        assert!(wrong(r"(\w{100}){100}").starts_with("is too large"));
        assert!(wrong(&"x".repeat(1_001)).contains("1001 bytes"));
    }

    /// Reference implementation: the lines by their ends, then each of them alone.
    fn reference(written: &[Written<'_>], text: &str, context: usize) -> Vec<String> {
        let (mut lines, mut open) =
            (Vec::new(), [(Stream::Stdout, String::new()), (Stream::Stderr, String::new())]);
        for (stream, text) in written {
            let open = &mut open.iter_mut().find(|(known, _)| known == stream).unwrap().1;
            for c in text.chars() {
                if c == '\n' { lines.push(std::mem::take(open)) } else { open.push(c) }
            }
        }
        lines.extend(open.into_iter().map(|(_, text)| text).filter(|text| !text.is_empty()));
        let show = |index: usize, mark| format!("{}{mark}{}", index + 1, lines[index]);
        let hit = |index: usize| {
            let before = (index.saturating_sub(context)..index).map(|i| show(i, '-'));
            let after = (index + 1..lines.len().min(index + 1 + context)).map(|i| show(i, '-'));
            before.chain([show(index, ':')]).chain(after).collect::<Vec<_>>().join(" ")
        };
        (0..lines.len()).filter(|index| lines[*index].contains(text)).map(hit).collect()
    }

    proptest! {
        #[test]
        fn pages_of_hits_are_those_of_a_search_line_by_line(
            written in proptest::collection::vec((any::<bool>(), "[ab\n]{0,6}"), 0..12),
            context in 0usize..3,
            limit in 1usize..4,
        ) {
            let stream = |err| if err { Stream::Stderr } else { Stream::Stdout };
            let written: Vec<_> = written.iter().map(|(err, text)| (stream(*err), text.as_str())).collect();
            let expected = reference(&written, "ab", context);
            let all = search(&written, query("ab", context, 1_000), Position::default()).0;
            prop_assert_eq!(shown(&all), expected);
            let (mut found, mut position) = (Vec::new(), Position::default());
            loop {
                let (hits, next, more) = search(&written, query("ab", context, limit), position);
                prop_assert!(hits.len() <= limit);
                prop_assert!(!more || next != position, "no progress at {position}");
                found.extend(hits);
                if !more {
                    break;
                }
                position = next.to_string().parse().unwrap();
            }
            let lines = |hits: &[LogHit]| hits.iter().map(|hit| hit.line.clone()).collect::<Vec<_>>();
            prop_assert_eq!(lines(&found), lines(&all));
            let before = |hits: &[LogHit]| hits.iter().map(|hit| hit.before.clone()).collect::<Vec<_>>();
            prop_assert_eq!(before(&found), before(&all));
        }
    }
}
