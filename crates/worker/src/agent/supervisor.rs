//! Finds or starts the supervisor of the worker folder, and connects to it.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::machine::{BoxedStream, Machine};
use crate::config::AgentConfig;
use crate::layout::Layout;
use crate::link::{
    AgentGreeting, Answer, LinkError, Request, SupervisorGreeting, ToAgent, ToSupervisor, VERSION, frame_len,
    write_frame,
};

/// Maximum time until a started supervisor listens or has exited; it may have to kill leftover processes first.
const START_MAX: Duration = Duration::from_secs(20);
const START_LOOK: Duration = Duration::from_millis(10);
const GREETING_MAX: Duration = Duration::from_secs(10);
/// Size in bytes beyond which the log of supervisors is truncated when a supervisor starts.
const LOG_MAX: u64 = 8 << 20;
/// Maximum number of messages in one write.
const WRITE_TOGETHER: usize = 64;

/// Why the agent cannot connect to a supervisor.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("cannot start the supervisor `{}`", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("the supervisor exited with {status}: see `{}` for the cause", log.display())]
    Ended { status: ExitStatus, log: PathBuf },
    #[error("the supervisor of the worker folder `{}` does not accept connections", .0.display())]
    Silent(PathBuf),
    #[error("the supervisor of the worker folder `{}` exited while the agent connected", .0.display())]
    Gone(PathBuf),
    #[error("cannot communicate with the supervisor")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// A connection to a supervisor, after the exchange of greetings.
pub(super) struct Link {
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    pub(super) greeting: SupervisorGreeting,
}

/// Connects to the supervisor of the folder; starts one if none is running.
pub(super) async fn reach(config: &AgentConfig) -> Result<UnixStream, ConnectError> {
    let layout = Layout::new(&config.dir);
    match UnixStream::connect(layout.socket()).await {
        Ok(socket) => Ok(socket),
        Err(_) => start(config, &layout).await,
    }
}

/// Connects to the machine's supervisor and exchanges greetings.
pub(super) async fn connect(config: &AgentConfig, machine: &dyn Machine) -> Result<Link, ConnectError> {
    let layout = Layout::new(&config.dir);
    let (reader, writer) = tokio::io::split(machine.supervisor(config).await?);
    let mut inbound = Inbound { reader: BufReader::with_capacity(256 << 10, reader), body: Vec::new() };
    let mut outbound = Outbound { writer };
    let greeting = AgentGreeting { version: VERSION, slots: config.capacity.slots };
    outbound.write(&[Request::Greeting(greeting).into()]).await?;
    let answer = timeout(GREETING_MAX, inbound.next())
        .await
        .map_err(|_| ConnectError::Silent(layout.dir.clone()))??;
    match answer {
        // All versions so far understand each other.
        Some(Answer::Greeting(greeting)) => Ok(Link { inbound, outbound, greeting }),
        Some(_) => Err(ConnectError::Silent(layout.dir)),
        None => Err(ConnectError::Gone(layout.dir)),
    }
}

/// Starts a supervisor that outlives the agent, and waits until it listens.
async fn start(config: &AgentConfig, layout: &Layout) -> Result<UnixStream, ConnectError> {
    let failed = |source| ConnectError::Start { program: config.program.clone(), source };
    std::fs::create_dir_all(&layout.dir).map_err(failed)?;
    let log = open_log(layout).map_err(failed)?;
    // The supervisor opens its own session, and is not killed when this handle is dropped.
    let mut child = Command::new(&config.program)
        .arg("supervisor")
        .args(config.supervisor().to_args())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(failed)?;
    let deadline = tokio::time::Instant::now() + START_MAX;
    while tokio::time::Instant::now() < deadline {
        if let Ok(socket) = UnixStream::connect(layout.socket()).await {
            // Reap the supervisor when it exits.
            tokio::spawn(async move { child.wait().await });
            return Ok(socket);
        }
        if let Some(status) = child.try_wait()? {
            return Err(ConnectError::Ended { status, log: layout.supervisor_log() });
        }
        tokio::time::sleep(START_LOOK).await;
    }
    Err(ConnectError::Silent(layout.dir.clone()))
}

fn open_log(layout: &Layout) -> io::Result<File> {
    let path = layout.supervisor_log();
    let file = File::options().create(true).append(true).open(&path)?;
    if file.metadata()?.len() > LOG_MAX {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Reads the messages of the supervisor.
pub(super) struct Inbound {
    reader: BufReader<ReadHalf<BoxedStream>>,
    body: Vec<u8>,
}

impl Inbound {
    /// Returns the next message; `None` when the connection has closed. Not cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Answer>, LinkError> {
        loop {
            let mut header = [0; 4];
            if self.reader.read_exact(&mut header).await.is_err() {
                return Ok(None);
            }
            self.body.resize(frame_len(header)?, 0);
            if self.reader.read_exact(&mut self.body).await.is_err() {
                return Ok(None);
            }
            // An unknown message of a newer supervisor is skipped.
            if let Some(answer) = ToAgent::decode(self.body.as_slice())?.body {
                return Ok(Some(answer));
            }
        }
    }
}

/// Writes the messages to the supervisor.
pub(super) struct Outbound {
    writer: WriteHalf<BoxedStream>,
}

impl Outbound {
    async fn write(&mut self, messages: &[ToSupervisor]) -> io::Result<()> {
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| write_frame(&mut bytes, message));
        self.writer.write_all(&bytes).await
    }

    /// Writes all messages of the queue until the connection closes.
    pub(super) async fn run(mut self, mut messages: mpsc::Receiver<ToSupervisor>) {
        let mut batch = Vec::new();
        while messages.recv_many(&mut batch, WRITE_TOGETHER).await > 0 {
            if self.write(&batch).await.is_err() {
                return;
            }
            batch.clear();
        }
    }
}
