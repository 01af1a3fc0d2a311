//! Transfers messages between an agent and a simulated supervisor, over bytes in memory.

use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use crate::link::{Answer, Request, ToAgent, ToSupervisor, frame_len, write_frame};

/// Forwards the messages of an agent until the connection closes.
pub(super) async fn read(
    number: u64,
    mut from: ReadHalf<DuplexStream>,
    to: mpsc::UnboundedSender<(u64, Request)>,
) {
    let mut header = [0; 4];
    while from.read_exact(&mut header).await.is_ok() {
        let mut body = vec![0; frame_len(header).unwrap_or(0)];
        if from.read_exact(&mut body).await.is_err() {
            return;
        }
        let request = ToSupervisor::decode(body.as_slice()).ok().and_then(|message| message.body);
        if let Some(request) = request
            && to.send((number, request)).is_err()
        {
            return;
        }
    }
}

/// Sends messages to an agent until the connection closes.
pub(super) async fn write(mut to: WriteHalf<DuplexStream>, mut answers: mpsc::UnboundedReceiver<Answer>) {
    while let Some(answer) = answers.recv().await {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &ToAgent::from(answer));
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
