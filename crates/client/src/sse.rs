//! Server-sent events with automatic reconnection.
//!
//! [`Decoder`] implements the event stream format of the HTML standard. [`EventSource`] reconnects after a lost or idle
//! connection and sends `Last-Event-ID`, so that no event is lost or repeated. It fails only if the server rejects the
//! request, or cannot be reached for [`Timeouts::retry_for`](crate::Timeouts::retry_for).

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;

use crate::error::Error;
use crate::http::{Client, Request};

/// Maximum size of an event in bytes; a larger one is an error.
const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Delay before a reconnect, unless the server sends `retry`.
const REOPEN_AFTER: Duration = Duration::from_secs(2);
/// Maximum delay that a server can request with `retry`.
const REOPEN_AFTER_MAX: Duration = Duration::from_secs(30);

/// Event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SseEvent {
    /// Value of `event`; `message` if it is absent.
    pub(crate) kind: String,
    pub(crate) data: String,
}

/// Incremental decoder: takes bytes, produces events.
#[derive(Debug, Default)]
struct Decoder {
    line: Vec<u8>,
    kind: String,
    data: String,
    has_data: bool,
    id: Option<String>,
    retry: Option<Duration>,
    ready: std::collections::VecDeque<(SseEvent, Option<String>)>,
    after_cr: bool,
}

impl Decoder {
    /// Decodes bytes. Returns `false` if an event is larger than [`EVENT_BYTES_MAX`].
    fn feed(&mut self, bytes: &[u8]) -> bool {
        for &byte in bytes {
            match byte {
                b'\n' if std::mem::take(&mut self.after_cr) => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    self.line(&String::from_utf8_lossy(&line));
                }
                _ => {
                    self.after_cr = false;
                    self.line.push(byte);
                }
            }
            if self.line.len() + self.data.len() > EVENT_BYTES_MAX {
                return false;
            }
        }
        true
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.kind),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" => self.retry = value.parse().ok().map(Duration::from_millis),
            // A line that starts with a colon is a keep-alive; other fields are from a newer server.
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        let mut kind = std::mem::take(&mut self.kind);
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) || !kind.is_empty() {
            if kind.is_empty() {
                kind.push_str("message");
            }
            self.ready.push_back((SseEvent { kind, data }, self.id.clone()));
        }
    }
}

/// Stream of events that reconnects and resumes.
pub(crate) struct EventSource {
    client: Client,
    request: Request,
    /// Query parameters with the start position; `Last-Event-ID` replaces them after the first event.
    start: &'static [&'static str],
    response: Option<reqwest::Response>,
    decoder: Decoder,
    opened_before: bool,
}

impl EventSource {
    /// Creates a stream. The first [`EventSource::next`] or [`EventSource::connect`] sends the request.
    pub(crate) fn new(client: Client, request: Request, start: &'static [&'static str]) -> Self {
        let request = request.header("accept", "text/event-stream");
        Self { client, request, start, response: None, decoder: Decoder::default(), opened_before: false }
    }

    /// Returns the next event. Cancel-safe: no event is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<SseEvent, Error> {
        loop {
            if let Some((event, id)) = self.decoder.ready.pop_front() {
                self.delivered(id);
                return Ok(event);
            }
            self.connect().await?;
            self.read().await?;
        }
    }

    /// Connects, unless the stream is connected. Waits before a reconnect.
    pub(crate) async fn connect(&mut self) -> Result<(), Error> {
        if self.response.is_some() {
            return Ok(());
        }
        if self.opened_before {
            let pause = self.decoder.retry.unwrap_or(REOPEN_AFTER).min(REOPEN_AFTER_MAX);
            tokio::time::sleep(pause).await;
        }
        let response = self.client.open(&self.request).await?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            return Err(self
                .client
                .protocol(&self.request, format!("expected an event stream, found `{kind}`")));
        }
        self.opened_before = true;
        // An incomplete event of the old connection is dropped: the server sends it again.
        self.decoder =
            Decoder { retry: self.decoder.retry, id: self.decoder.id.take(), ..Decoder::default() };
        self.response = Some(response);
        Ok(())
    }

    async fn read(&mut self) -> Result<(), Error> {
        let Some(response) = &mut self.response else { return Ok(()) };
        match tokio::time::timeout(self.client.patience().idle, response.chunk()).await {
            Ok(Ok(Some(chunk))) => {
                if !self.decoder.feed(&chunk) {
                    let detail = format!("an event exceeds {EVENT_BYTES_MAX} bytes");
                    return Err(self.client.protocol(&self.request, detail));
                }
            }
            // Ended, lost or idle: `next` reconnects.
            Ok(Ok(None) | Err(_)) | Err(_) => self.response = None,
        }
        Ok(())
    }

    fn delivered(&mut self, id: Option<String>) {
        let Some(id) = id else { return };
        self.request.set_header("last-event-id", &id);
        for name in self.start {
            self.request.without_query(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: &[&str]) -> Vec<(String, String, Option<String>)> {
        let mut decoder = Decoder::default();
        for piece in pieces {
            assert!(decoder.feed(piece.as_bytes()));
        }
        decoder.ready.into_iter().map(|(e, id)| (e.kind, e.data, id)).collect()
    }

    fn event(kind: &str, data: &str, id: Option<&str>) -> (String, String, Option<String>) {
        (kind.into(), data.into(), id.map(str::to_owned))
    }

    #[test]
    fn events_are_read_from_chunks_of_any_size() {
        let whole = ": hi\nretry: 10\n\nevent: log\nid: 7\ndata: a\ndata: b\n\ndata:c\r\n\r\n";
        let expected = vec![event("log", "a\nb", Some("7")), event("message", "c", Some("7"))];
        assert_eq!(decode(&[whole]), expected);
        let pieces: Vec<String> = whole.chars().map(|c| c.to_string()).collect();
        assert_eq!(decode(&pieces.iter().map(String::as_str).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn an_event_without_data_still_counts_and_an_unfinished_one_does_not() {
        assert_eq!(decode(&["event: reset\n\ndata: half"]), [event("reset", "", None)]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut decoder = Decoder::default();
        let chunk = vec![b'x'; 1024 * 1024];
        assert!((0..16).any(|_| !decoder.feed(&chunk)));
    }
}
