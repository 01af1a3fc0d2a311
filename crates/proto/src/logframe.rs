//! Log format: the log of an execution is a sequence of frames.
//!
//! ```text
//! stream: u8   1 = stdout, 2 = stderr, 3 = notice (from Belfry itself)
//! time:   i64  Unix microseconds on the clock of the worker, little endian
//! len:    u32  little endian, at most MAX_FRAME
//! data:   len bytes, exactly as the task wrote them
//! ```
//!
//! Workers write frames, and servers store and decode them. Offsets in a log count bytes of this format, headers
//! included. The last frame of a log may be incomplete while the log grows; readers stop before an incomplete frame.

/// Size of a frame header, in bytes.
pub const HEADER: usize = 13;
/// Maximum size of the data of a frame, in bytes.
pub const MAX_FRAME: usize = 64 * 1024;

/// Source of the data of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output of the task.
    Stdout,
    /// Standard error of the task.
    Stderr,
    /// Notice from Belfry, for example "12 MiB omitted here".
    Notice,
}

impl Stream {
    fn code(self) -> u8 {
        match self {
            Self::Stdout => 1,
            Self::Stderr => 2,
            Self::Notice => 3,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Stdout),
            2 => Some(Self::Stderr),
            3 => Some(Self::Notice),
            _ => None,
        }
    }

    /// Returns the stable name in the API and the CLI.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Notice => "notice",
        }
    }
}

/// Decoded frame, borrowed from a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Source of the data.
    pub stream: Stream,
    /// Time at which the worker read the data from the task, in Unix microseconds.
    pub unix_micros: i64,
    /// Data of the frame; at most [`MAX_FRAME`] bytes.
    pub data: &'a [u8],
}

/// Appends `data` to `out` as frames of at most [`MAX_FRAME`] bytes. Empty data adds no frame.
pub fn write(out: &mut Vec<u8>, stream: Stream, unix_micros: i64, data: &[u8]) {
    for part in data.chunks(MAX_FRAME) {
        out.reserve(HEADER + part.len());
        out.push(stream.code());
        out.extend_from_slice(&unix_micros.to_le_bytes());
        // `part` has at most MAX_FRAME bytes, so its length fits into a u32.
        out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        out.extend_from_slice(part);
    }
}

/// Error: a log contains bytes that are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt {
    /// Offset of the invalid frame in the buffer.
    pub at: usize,
}

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the log frame at byte {} is malformed", self.at)
    }
}

impl std::error::Error for Corrupt {}

/// Reads the frame of `buffer` that starts at `at`.
///
/// Returns the frame and the offset of the next frame, or `None` if the frame is not complete yet.
///
/// # Errors
/// [`Corrupt`] if the bytes at `at` are not a valid header.
pub fn read(buffer: &[u8], at: usize) -> Result<Option<(Frame<'_>, usize)>, Corrupt> {
    let Some(header) = buffer.get(at..).and_then(|rest| rest.first_chunk::<HEADER>()) else {
        return Ok(None);
    };
    let (stream, unix_micros, len) = parse_header(header).ok_or(Corrupt { at })?;
    let start = at + HEADER;
    Ok(buffer.get(start..start + len).map(|data| (Frame { stream, unix_micros, data }, start + len)))
}

/// Returns the size of the data of a frame with this header; `None` if the header is invalid.
pub fn data_len(header: &[u8; HEADER]) -> Option<usize> {
    parse_header(header).map(|(.., len)| len)
}

fn parse_header(header: &[u8; HEADER]) -> Option<(Stream, i64, usize)> {
    let [code, t0, t1, t2, t3, t4, t5, t6, t7, l0, l1, l2, l3] = *header;
    let stream = Stream::from_code(code)?;
    let unix_micros = i64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    (len <= MAX_FRAME).then_some((stream, unix_micros, len))
}

/// Returns the length of the longest prefix of `buffer` that consists of complete frames, in bytes.
///
/// # Errors
/// [`Corrupt`] if a header is invalid, as in [`read`].
pub fn whole_prefix(buffer: &[u8]) -> Result<usize, Corrupt> {
    let mut at = 0;
    while let Some((_, next)) = read(buffer, at)? {
        at = next;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip() {
        let mut log = Vec::new();
        write(&mut log, Stream::Stdout, 7, b"hello\n");
        write(&mut log, Stream::Stderr, -1, &vec![b'x'; MAX_FRAME + 5]);
        let (first, at) = read(&log, 0).unwrap().unwrap();
        assert_eq!(first, Frame { stream: Stream::Stdout, unix_micros: 7, data: b"hello\n" });
        let (second, at) = read(&log, at).unwrap().unwrap();
        assert_eq!((second.stream, second.unix_micros, second.data.len()), (Stream::Stderr, -1, MAX_FRAME));
        let (third, at) = read(&log, at).unwrap().unwrap();
        assert_eq!(third.data, b"xxxxx");
        assert_eq!(read(&log, at), Ok(None));
    }

    #[test]
    fn an_incomplete_last_frame_is_not_read() {
        let mut log = Vec::new();
        write(&mut log, Stream::Stdout, 0, b"one");
        let whole = log.len();
        write(&mut log, Stream::Stdout, 0, b"two");
        for cut in whole..log.len() {
            assert_eq!(whole_prefix(&log[..cut]), Ok(whole));
        }
    }

    #[test]
    fn invalid_frames_are_rejected() {
        assert_eq!(read(&[9; HEADER], 0), Err(Corrupt { at: 0 }));
    }
}
