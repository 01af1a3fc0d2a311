//! Conversion of log frames to entries and to plain bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::Timestamp;
use model::api::LogEntry;
use proto::logframe::{self, Stream};

/// Streams that the client requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamFilter {
    /// All streams.
    All,
    /// One stream, without notices.
    Only(Stream),
}

impl StreamFilter {
    /// Returns whether the client requested the stream.
    pub(super) fn has(self, stream: Stream) -> bool {
        match self {
            Self::All => true,
            Self::Only(wanted) => wanted == stream,
        }
    }
}

/// Converts frames to entries.
///
/// A character whose bytes are in two frames is in the second entry. A reader that starts between the two gets U+FFFD,
/// as for any byte that is not UTF-8.
pub(super) struct Decoder {
    wanted: StreamFilter,
    /// The first bytes, at most three, of an incomplete character of each stream.
    open: [(Stream, Vec<u8>, i64); 3],
}

impl Decoder {
    pub(super) fn new(wanted: StreamFilter) -> Self {
        Self { wanted, open: [Stream::Stdout, Stream::Stderr, Stream::Notice].map(|s| (s, Vec::new(), 0)) }
    }

    /// Returns the entries of whole frames that begin at `offset`.
    pub(super) fn entries<'a>(
        &'a mut self,
        frames: &'a [u8],
        offset: u64,
    ) -> impl Iterator<Item = LogEntry> + 'a {
        let mut at = 0;
        std::iter::from_fn(move || {
            loop {
                // `objects` has validated the frames; invalid bytes end the reading here.
                let (frame, next) = logframe::read(frames, at).ok()??;
                at = next;
                if !self.wanted.has(frame.stream) {
                    continue;
                }
                let bytes = self.whole_characters(frame.stream, frame.unix_micros, frame.data);
                if !bytes.is_empty() {
                    return Some(entry(frame.stream, frame.unix_micros, bytes, offset + next as u64));
                }
            }
        })
    }

    /// Returns the bytes of incomplete characters at the end.
    pub(super) fn flush(&mut self, offset: u64) -> Vec<LogEntry> {
        let open = self.open.iter_mut().filter(|(_, bytes, _)| !bytes.is_empty());
        open.map(|(stream, bytes, at)| entry(*stream, *at, std::mem::take(bytes), offset)).collect()
    }

    fn whole_characters(&mut self, stream: Stream, at: i64, data: &[u8]) -> Vec<u8> {
        let Some((_, open, since)) = self.open.iter_mut().find(|(s, ..)| *s == stream) else {
            return data.to_owned();
        };
        let mut bytes = std::mem::take(open);
        bytes.extend_from_slice(data);
        let whole = bytes.len() - cut_off(&bytes);
        (*open, *since) = (bytes.split_off(whole), at);
        bytes
    }
}

fn entry(stream: Stream, unix_micros: i64, bytes: Vec<u8>, next_offset: u64) -> LogEntry {
    let (text, bytes) = match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let encoded = BASE64.encode(error.as_bytes());
            (String::from_utf8_lossy(error.as_bytes()).into_owned(), Some(encoded))
        }
    };
    let at = Timestamp::from_micros(unix_micros);
    LogEntry { next_offset, at, stream: stream.as_str().to_owned(), text, bytes }
}

/// Returns the bytes that the task wrote.
pub(super) fn raw_bytes(entry: LogEntry) -> Vec<u8> {
    let exact = entry.bytes.and_then(|bytes| BASE64.decode(bytes).ok());
    exact.unwrap_or_else(|| entry.text.into_bytes())
}

/// Returns the number of bytes at the end that belong to an incomplete character.
fn cut_off(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if length > back { back } else { 0 };
    }
    0
}

/// Returns the bytes of the requested streams as they were written.
pub(super) fn raw(frames: &[u8], wanted: StreamFilter) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(frames.len());
    let mut at = 0;
    while let Ok(Some((frame, next))) = logframe::read(frames, at) {
        if wanted.has(frame.stream) {
            bytes.extend_from_slice(frame.data);
        }
        at = next;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(parts: &[(Stream, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (i, (stream, data)) in parts.iter().enumerate() {
            logframe::write(&mut bytes, *stream, i as i64, data);
        }
        bytes
    }

    fn texts(wanted: StreamFilter, parts: &[(Stream, &[u8])]) -> Vec<String> {
        let mut decoder = Decoder::new(wanted);
        let frames = frames(parts);
        let mut entries: Vec<_> = decoder.entries(&frames, 0).collect();
        entries.extend(decoder.flush(frames.len() as u64));
        entries.into_iter().map(|e| format!("{}:{}", e.stream, e.text)).collect()
    }

    #[test]
    fn a_character_is_not_broken_by_the_end_of_a_frame() {
        let clock = "钟".as_bytes();
        for cut in 1..clock.len() {
            let parts = [
                (Stream::Stdout, &clock[..cut]),
                (Stream::Stderr, b"between".as_slice()),
                (Stream::Stdout, &clock[cut..]),
            ];
            assert_eq!(texts(StreamFilter::All, &parts), ["stderr:between", "stdout:钟"]);
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_marked_and_not_held_back() {
        assert_eq!(texts(StreamFilter::All, &[(Stream::Stdout, b"\xff\xfe")]), ["stdout:\u{fffd}\u{fffd}"]);
        assert_eq!(texts(StreamFilter::All, &[(Stream::Stdout, b"a\xe9")]), ["stdout:a", "stdout:\u{fffd}"]);
    }

    /// Output in another encoding, such as GBK, is preserved.
    #[test]
    fn bytes_that_are_not_utf8_are_kept_beside_the_text() {
        let bytes = frames(&[(Stream::Stdout, b"\xc4\xe3\xba\xc3\n"), (Stream::Stdout, b"ok\n")]);
        let mut decoder = Decoder::new(StreamFilter::All);
        let kept: Vec<_> = decoder.entries(&bytes, 0).map(|entry| entry.bytes).collect();
        assert_eq!(kept, [Some(BASE64.encode(b"\xc4\xe3\xba\xc3\n")), None]);
    }

    #[test]
    fn each_entry_has_the_offset_of_the_next() {
        let bytes = frames(&[(Stream::Stdout, b"one"), (Stream::Notice, b"two")]);
        let mut decoder = Decoder::new(StreamFilter::All);
        let next: Vec<_> = decoder.entries(&bytes, 100).map(|e| e.next_offset).collect();
        assert_eq!(next, [100 + 16, 100 + 32]);
    }

    #[test]
    fn one_stream_can_be_selected_without_notices() {
        let parts =
            [(Stream::Stdout, b"out".as_slice()), (Stream::Stderr, b"err"), (Stream::Notice, b"note")];
        assert_eq!(texts(StreamFilter::Only(Stream::Stderr), &parts), ["stderr:err"]);
        assert_eq!(raw(&frames(&parts), StreamFilter::Only(Stream::Stdout)), b"out");
        assert_eq!(raw(&frames(&parts), StreamFilter::All), b"outerrnote");
    }
}
