//! Frames of a connection between two nodes.
//!
//! ```text
//!  offset  bytes
//!       0      4  length of what follows
//!       4      1  kind
//!       5      8  number of the request, which its answer repeats
//!      13         body
//! ```

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// Maximum length of a frame. The entries of a request have less than 1 MiB without the last one, which may be a part of a
/// group with 1 MiB more.
pub(crate) const FRAME_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Maximum length of a body.
pub(crate) const BODY_BYTES_MAX: usize = FRAME_BYTES_MAX - HEADER_BYTES;
const HEADER_BYTES: usize = 1 + 8;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 256 * 1024;

/// A request or an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) request: u64,
    pub(crate) body: Vec<u8>,
}

impl Frame {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let length = u32::try_from(HEADER_BYTES + self.body.len()).unwrap_or(u32::MAX);
        bytes.extend(length.to_le_bytes());
        bytes.push(self.kind);
        bytes.extend(self.request.to_le_bytes());
        bytes.extend(&self.body);
    }
}

/// Reads the next frame; `None` at the end of the stream.
///
/// # Errors
/// If the stream breaks, or for a length that is out of range.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Frame>> {
    read_up_to(FRAME_BYTES_MAX, stream).await
}

/// As [`read`], for a shorter maximum length.
pub(crate) async fn read_up_to(
    bytes_max: usize,
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<Frame>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    };
    let length = u32::from_le_bytes(length) as usize;
    if !(HEADER_BYTES..=bytes_max).contains(&length) {
        let problem = format!("a frame of {length} bytes; expected {HEADER_BYTES} to {bytes_max}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await?;
    let mut body = vec![0; length - HEADER_BYTES];
    stream.read_exact(&mut body).await?;
    let [kind, request @ ..] = header;
    Ok(Some(Frame { kind, request: u64::from_le_bytes(request), body }))
}

/// Writes one frame.
pub(crate) async fn write(stream: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> io::Result<()> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// Writes frames until all senders are dropped; what waits is written at once.
pub(crate) async fn write_all(
    mut stream: impl AsyncWrite + Unpin,
    mut frames: mpsc::Receiver<Frame>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    while let Some(frame) = frames.recv().await {
        frame.encode(&mut bytes);
        while bytes.len() < WRITE_BYTES
            && let Ok(frame) = frames.try_recv()
        {
            frame.encode(&mut bytes);
        }
        stream.write_all(&bytes).await?;
        stream.flush().await?;
        bytes.clear();
        bytes.shrink_to(WRITE_BYTES);
    }
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_are_read_back() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let frames = [
            Frame { kind: 1, request: 7, body: vec![9; 1000] },
            Frame { kind: 255, request: u64::MAX, body: Vec::new() },
        ];
        let (sender, receiver) = mpsc::channel(8);
        for frame in &frames {
            sender.send(frame.clone()).await.unwrap();
        }
        drop(sender);
        let writing = tokio::spawn(async move { write_all(&mut near, receiver).await });
        for frame in &frames {
            assert_eq!(read(&mut far).await.unwrap().as_ref(), Some(frame));
        }
        assert_eq!(read(&mut far).await.unwrap(), None);
        writing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_frame_that_is_too_long_or_cut_off_is_an_error() {
        let oversized = (FRAME_BYTES_MAX as u32 + 1).to_le_bytes();
        assert!(read(&mut &oversized[..]).await.is_err());
        assert!(read(&mut &[20, 0, 0, 0, 1][..]).await.is_err());
    }
}
