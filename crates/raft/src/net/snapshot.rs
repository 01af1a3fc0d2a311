//! Sends and receives copies of a machine.
//!
//! The sender copies the machine into a file, offers it with its length and SHA-256, sends it in pieces, and asks for the
//! installation. The receiver verifies everything before openraft hears of it. A broken transfer begins again.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use openraft::{Raft, Snapshot};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::link::{CallError, Link};
use super::message::{
    Refusal, Refused, SNAPSHOT_CHUNK, SNAPSHOT_DONE, SNAPSHOT_OFFER, SnapshotChunk, SnapshotOffer, VoteRow,
};
use super::{INSTALL_TIMEOUT, SNAPSHOT_TIMEOUT};
use crate::machine::Belfry;
use crate::machine::snapshot::{Folder, summarize};
use crate::machine::{Machine, MachineError, SnapshotData, snapshot_meta};
use crate::types::{LogId, NodeId, Vote};

/// Bytes of a piece.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Why a snapshot was not sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("cannot copy the machine for another server")]
    Copy(#[from] MachineError),
    #[error("cannot read the copy of the machine")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Removes a file at the end, also of a cancelled transfer.
struct Temporary<'a>(&'a Path);

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // The next start removes what remains.
        let _ = fs::remove_file(self.0);
    }
}

/// Sends a copy; returns the vote of the receiver after the installation.
pub(crate) async fn send<M: Machine>(
    link: &Link,
    snapshot: SnapshotData<M>,
    path: &Path,
    vote: Vote,
) -> Result<Vote, SendError> {
    let _temporary = Temporary(path);
    let position = match snapshot {
        // May be newer than what openraft has selected, which it allows.
        SnapshotData::Live(machine) => machine.copy_to(path).await?.applied,
        SnapshotData::File(_) => return Err(MachineError::new("a received copy is not sent again").into()),
    };
    let (file, summary) = blocking(path.to_owned(), |path| {
        let summary = summarize(&path)?;
        Ok((File::open(&path)?, summary))
    })
    .await?;
    let offer = SnapshotOffer {
        vote: vote.into(),
        position: position.map(Into::into),
        bytes: summary.bytes,
        sha256: summary.sha256,
    };
    tracing::info!(to = ?link, bytes = summary.bytes, "sending a snapshot");
    let () = link.call(SNAPSHOT_OFFER, &offer, SNAPSHOT_TIMEOUT).await?;
    let (mut file, mut offset) = (file, 0);
    while offset < summary.bytes {
        let (returned, bytes) = blocking(file, |mut file| {
            let mut bytes = Vec::new();
            (&mut file).take(CHUNK_BYTES as u64).read_to_end(&mut bytes)?;
            Ok((file, bytes))
        })
        .await?;
        if bytes.is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        file = returned;
        let length = bytes.len() as u64;
        let () = link.call(SNAPSHOT_CHUNK, &SnapshotChunk { offset, bytes }, SNAPSHOT_TIMEOUT).await?;
        offset += length;
    }
    let vote: VoteRow = link.call(SNAPSHOT_DONE, &VoteRow::from(vote), INSTALL_TIMEOUT).await?;
    Ok(vote.into())
}

/// Runs file operations on a thread for them.
async fn blocking<T: Send + 'static, R: Send + 'static>(
    value: T,
    run: impl FnOnce(T) -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    tokio::task::spawn_blocking(move || run(value)).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// A copy that is being received.
struct Incoming {
    offer: SnapshotOffer,
    path: PathBuf,
    file: File,
    hasher: Sha256,
    written: u64,
}

/// Receives the copies that other nodes send.
pub(crate) struct Receiver {
    folder: Arc<Folder>,
    /// The copy of each node.
    incoming: Mutex<std::collections::HashMap<NodeId, Incoming>>,
    /// One installation at a time: there is one marker.
    installing: Semaphore,
}

fn refused(error: impl ToString) -> Refused {
    Refused::new(Refusal::Unavailable, error.to_string())
}

impl Receiver {
    pub(crate) fn new(folder: Arc<Folder>) -> Self {
        Self { folder, incoming: Mutex::default(), installing: Semaphore::new(1) }
    }

    fn take(&self, from: NodeId) -> Result<Incoming, Refused> {
        let taken = self.incoming.lock().unwrap_or_else(PoisonError::into_inner).remove(&from);
        taken.ok_or_else(|| Refused::new(Refusal::Invalid, "no snapshot was offered, or its transfer failed"))
    }

    fn put(&self, from: NodeId, incoming: Incoming) {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner).insert(from, incoming);
    }

    /// Begins to receive a copy; forgets an earlier one of the same node.
    pub(crate) async fn offer(&self, from: NodeId, offer: SnapshotOffer) -> Result<(), Refused> {
        let path = self.folder.incoming(from);
        let incoming = blocking(path, move |path| {
            let file = File::create(&path)?;
            Ok(Incoming { offer, path, file, hasher: Sha256::new(), written: 0 })
        });
        self.put(from, incoming.await.map_err(refused)?);
        Ok(())
    }

    /// Receives the next piece.
    pub(crate) async fn chunk(&self, from: NodeId, chunk: SnapshotChunk) -> Result<(), Refused> {
        let incoming = self.take(from)?;
        if chunk.offset != incoming.written {
            let (found, expected) = (chunk.offset, incoming.written);
            let problem = format!("expected the piece at offset {expected} of a snapshot, but got {found}");
            return Err(Refused::new(Refusal::Invalid, problem));
        }
        let written = blocking(incoming, move |mut incoming| {
            incoming.file.write_all(&chunk.bytes)?;
            incoming.hasher.update(&chunk.bytes);
            incoming.written += chunk.bytes.len() as u64;
            Ok(incoming)
        });
        self.put(from, written.await.map_err(refused)?);
        Ok(())
    }

    /// Verifies and installs a complete copy. Returns the vote of this node.
    pub(crate) async fn done<M: Machine>(
        &self,
        from: NodeId,
        vote: Vote,
        machine: &Arc<M>,
        raft: &Raft<Belfry<M>>,
    ) -> Result<Vote, Refused> {
        // The semaphore is never closed.
        let _installing = self.installing.acquire().await;
        let incoming = self.take(from)?;
        let (machine, folder) = (Arc::clone(machine), Arc::clone(&self.folder));
        let verified = blocking(incoming, move |incoming| verify(&*machine, &folder, incoming));
        let (path, state) = verified.await.map_err(refused)?;
        let meta = snapshot_meta(&state).map_err(refused)?;
        let snapshot = Snapshot { meta, snapshot: Box::new(SnapshotData::File(path.clone())) };
        let response = raft.install_full_snapshot(vote, snapshot).await;
        if path.exists() {
            // openraft did not need it, or did not accept the leader. After an error the node stops, and finishes the
            // installation at its next start.
            if response.is_ok() {
                self.folder.installed().map_err(refused)?;
                fs::remove_file(&path).map_err(refused)?;
            }
        } else {
            tracing::info!(%from, "a snapshot was installed");
        }
        response
            .map(|response| response.vote)
            .map_err(|error| Refused::new(Refusal::Stopped, error.to_string()))
    }
}

/// Verifies a received copy, and notes durably that it is to be installed.
fn verify<M: Machine>(
    machine: &M,
    folder: &Folder,
    incoming: Incoming,
) -> io::Result<(PathBuf, crate::machine::AppliedState)> {
    let Incoming { offer, path, file, hasher, written } = incoming;
    let invalid = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem.to_owned());
    if written != offer.bytes || hasher.finalize()[..] != offer.sha256 {
        return Err(invalid("a received snapshot differs from the one that was offered"));
    }
    file.sync_all()?;
    let state = machine.inspect(&path).map_err(io::Error::other)?;
    if state.applied != offer.position.map(LogId::from) || state.applied.is_none() {
        return Err(invalid("a received snapshot has another position than was offered"));
    }
    folder.mark(&path)?;
    Ok((path, state))
}
