//! The format of an execution's log: a sequence of frames.
//!
//! ```text
//! stream: u8   1 = stdout, 2 = stderr, 3 = notice (from Belfry itself)
//! time:   i64  Unix microseconds on the worker's clock, little endian
//! len:    u32  little endian, at most MAX_FRAME
//! data:   len bytes, just as the task wrote them
//! ```
//!
//! An offset in a log always counts bytes of this framed form. A frame is written whole or not at
//! all; a reader that meets a torn last frame stops before it.

/// Bytes before the data of a frame.
pub const HEADER: usize = 13;
/// The most data bytes one frame carries.
pub const MAX_FRAME: usize = 64 * 1024;

/// Where a frame came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// The task's standard output.
    Stdout,
    /// The task's standard error.
    Stderr,
    /// A line by Belfry itself, such as "12 MiB omitted here".
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

    /// The name in the API and the CLI.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Notice => "notice",
        }
    }
}

/// One frame, borrowed from a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Where it came from.
    pub stream: Stream,
    /// When it was read from the task, in Unix microseconds.
    pub unix_micros: i64,
    /// At most [`MAX_FRAME`] bytes.
    pub data: &'a [u8],
}

/// Appends `data` as one or more frames.
pub fn write(out: &mut Vec<u8>, stream: Stream, unix_micros: i64, data: &[u8]) {
    for part in data.chunks(MAX_FRAME) {
        out.reserve(HEADER + part.len());
        out.push(stream.code());
        out.extend_from_slice(&unix_micros.to_le_bytes());
        // `part` is at most MAX_FRAME long, which fits a u32.
        out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        out.extend_from_slice(part);
    }
}

/// What is wrong with a log's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt {
    /// Offset of the bad frame within the buffer.
    pub at: usize,
}

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the log's frame at byte {} is malformed", self.at)
    }
}

impl std::error::Error for Corrupt {}

/// Reads the next whole frame of `buffer` from `at`.
///
/// Returns the frame and the offset behind it, or `None` where the rest is no whole frame yet.
///
/// # Errors
/// [`Corrupt`] if the bytes cannot be the start of a frame.
pub fn read(buffer: &[u8], at: usize) -> Result<Option<(Frame<'_>, usize)>, Corrupt> {
    let Some(header) = buffer.get(at..).and_then(|rest| rest.first_chunk::<HEADER>()) else {
        return Ok(None);
    };
    let [code, t0, t1, t2, t3, t4, t5, t6, t7, l0, l1, l2, l3] = *header;
    let stream = Stream::from_code(code).ok_or(Corrupt { at })?;
    let unix_micros = i64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if len > MAX_FRAME {
        return Err(Corrupt { at });
    }
    let start = at + HEADER;
    Ok(buffer.get(start..start + len).map(|data| (Frame { stream, unix_micros, data }, start + len)))
}

/// The length of the longest prefix of `buffer` that is whole frames.
///
/// # Errors
/// [`Corrupt`] as [`read`] has it.
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
    fn frames_come_back_as_they_were_written() {
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
    fn a_torn_last_frame_is_left_for_later() {
        let mut log = Vec::new();
        write(&mut log, Stream::Stdout, 0, b"one");
        let whole = log.len();
        write(&mut log, Stream::Stdout, 0, b"two");
        for cut in whole..log.len() {
            assert_eq!(whole_prefix(&log[..cut]), Ok(whole));
        }
    }

    #[test]
    fn bytes_that_are_no_frame_are_refused() {
        assert_eq!(read(&[9; HEADER], 0), Err(Corrupt { at: 0 }));
    }
}
