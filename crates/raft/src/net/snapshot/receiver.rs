//! The side of the server that gets a copy.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use openraft::{Raft, Snapshot};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, Semaphore};

use crate::machine::snapshot_files::Folder;
use crate::machine::{AppliedState, Belfry, Machine, SnapshotData, snapshot_meta};
use crate::net::message::{Refusal, Refused, SnapshotChunk, SnapshotOffer, decode, encode};
use crate::types::{LogId, NodeId, Vote};

/// Time after which a transfer that was interrupted is given up, and its file is removed.
const GIVEN_UP_AFTER: Duration = Duration::from_hours(1);

/// A copy that is being received.
struct Incoming {
    from: NodeId,
    offer: SnapshotOffer,
    file: File,
    hasher: Sha256,
    written: u64,
}

/// What the file `offer` has.
#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct Offered {
    from: NodeId,
    bytes: u64,
    sha256: [u8; 32],
}

/// Receives the copies that other nodes send, one at a time.
pub(crate) struct Receiver {
    folder: Arc<Folder>,
    /// Locked by the thread that writes, also if its request was given up.
    incoming: Arc<Mutex<Option<Incoming>>>,
    /// One installation at a time: there is one marker.
    installing: Arc<Semaphore>,
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn refused(error: impl ToString) -> Refused {
    Refused::new(Refusal::Unavailable, error.to_string())
}

impl Receiver {
    pub(crate) fn new(folder: Arc<Folder>) -> Self {
        Self { folder, incoming: Arc::default(), installing: Arc::new(Semaphore::new(1)) }
    }

    /// Changes the incoming copy on a thread for files.
    async fn change<R: Send + 'static>(
        &self,
        change: impl FnOnce(&Folder, &mut Option<Incoming>) -> Result<R, Refused> + Send + 'static,
    ) -> Result<R, Refused> {
        let folder = Arc::clone(&self.folder);
        let mut incoming = Arc::clone(&self.incoming).lock_owned().await;
        let changed = tokio::task::spawn_blocking(move || change(&folder, &mut incoming)).await;
        changed.unwrap_or_else(|error| Err(refused(error)))
    }

    /// Begins to receive a copy, or continues with it; forgets another one. Returns how many bytes of it are here.
    pub(crate) async fn offer(&self, from: NodeId, offer: SnapshotOffer) -> Result<u64, Refused> {
        self.change(move |folder, incoming| {
            *incoming = None;
            let begun = begin(folder, from, offer).map_err(refused)?;
            Ok(incoming.insert(begun).written)
        })
        .await
    }

    /// Receives the next piece.
    pub(crate) async fn chunk(&self, from: NodeId, chunk: SnapshotChunk) -> Result<(), Refused> {
        self.change(move |_, slot| {
            let mut incoming = take(slot, from)?;
            if chunk.offset != incoming.written {
                let (found, expected) = (chunk.offset, incoming.written);
                let problem =
                    format!("expected the piece at offset {expected} of a snapshot, but got {found}");
                return Err(Refused::new(Refusal::Invalid, problem));
            }
            incoming.file.write_all(&chunk.bytes).map_err(refused)?;
            incoming.hasher.update(&chunk.bytes);
            incoming.written += chunk.bytes.len() as u64;
            *slot = Some(incoming);
            Ok(())
        })
        .await
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
        let installing = Arc::clone(&self.installing).acquire_owned().await.map_err(refused)?;
        let verifying = Arc::clone(machine);
        let verified = self.change(move |folder, slot| {
            let verified = verify(&*verifying, folder, take(slot, from)?);
            verified.map_err(|error| {
                // Nothing of it is used again.
                forget(folder);
                refused(error)
            })
        });
        let (path, state) = verified.await?;
        let (folder, raft) = (Arc::clone(&self.folder), raft.clone());
        // Continues if the sender gives up, because openraft does.
        let installed = tokio::spawn(async move {
            let _installing = installing;
            install(&folder, &raft, vote, (path, state), from).await
        });
        installed.await.unwrap_or_else(|error| Err(refused(error)))
    }

    /// Removes the file of a transfer that was interrupted long ago.
    pub(crate) async fn forget_interrupted(&self) {
        let forgotten = self.change(|folder, incoming| {
            let modified = fs::metadata(folder.incoming()).and_then(|file| file.modified());
            let age = modified.ok().and_then(|modified| SystemTime::now().duration_since(modified).ok());
            if age.is_some_and(|age| age > GIVEN_UP_AFTER) {
                *incoming = None;
                forget(folder);
            }
            Ok(())
        });
        // The next call tries it again.
        let _ = forgotten.await;
    }
}

fn take(incoming: &mut Option<Incoming>, from: NodeId) -> Result<Incoming, Refused> {
    let taken = incoming.take_if(|incoming| incoming.from == from);
    taken.ok_or_else(|| {
        Refused::new(
            Refusal::Invalid,
            "no snapshot was offered, its transfer failed, or another node sends one",
        )
    })
}

/// Removes the files of a transfer.
fn forget(folder: &Folder) {
    for path in [folder.offer(), folder.incoming()] {
        // A later transfer replaces what remains.
        let _ = fs::remove_file(path);
    }
}

/// Opens the file of a transfer: that of an interrupted one, if the same copy is offered again.
fn begin(folder: &Folder, from: NodeId, offer: SnapshotOffer) -> io::Result<Incoming> {
    let offered = Offered { from, bytes: offer.bytes, sha256: offer.sha256 };
    let (path, description) = (folder.incoming(), folder.offer());
    let is_known =
        fs::read(&description).is_ok_and(|found| decode(&found).is_ok_and(|found: Offered| found == offered));
    if is_known && let Ok(file) = OpenOptions::new().read(true).append(true).open(&path) {
        let (hasher, written) = hash(&file)?;
        if written <= offer.bytes {
            return Ok(Incoming { from, offer, file, hasher, written });
        }
    }
    // The description must never fit to other bytes.
    match fs::remove_file(&description) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = File::create(path)?;
    fs::write(description, encode(&offered))?;
    Ok(Incoming { from, offer, file, hasher: Sha256::new(), written: 0 })
}

/// Reads a file from its beginning.
fn hash(mut file: &File) -> io::Result<(Sha256, u64)> {
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((hasher, bytes));
        }
        hasher.update(&buffer[..read]);
        bytes += read as u64;
    }
}

/// Verifies a received copy, and notes durably that it is to be installed.
fn verify<M: Machine>(
    machine: &M,
    folder: &Folder,
    incoming: Incoming,
) -> io::Result<(PathBuf, AppliedState)> {
    let Incoming { offer, file, hasher, written, .. } = incoming;
    let invalid = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem.to_owned());
    if written != offer.bytes || hasher.finalize()[..] != offer.sha256 {
        return Err(invalid("a received snapshot differs from the one that was offered"));
    }
    file.sync_all()?;
    let path = folder.incoming();
    let state = machine.inspect(&path).map_err(io::Error::other)?;
    let Some(applied) = state.applied.filter(|applied| Some(*applied) == offer.position.map(LogId::from))
    else {
        return Err(invalid("a received snapshot has another position than was offered"));
    };
    let complete = folder.complete(applied.index);
    fs::rename(path, &complete)?;
    // What is left of it fits to no later file.
    let _ = fs::remove_file(folder.offer());
    folder.mark(&complete)?;
    Ok((complete, state))
}

async fn install<M: Machine>(
    folder: &Folder,
    raft: &Raft<Belfry<M>>,
    vote: Vote,
    (path, state): (PathBuf, AppliedState),
    from: NodeId,
) -> Result<Vote, Refused> {
    let meta = snapshot_meta(&state).map_err(refused)?;
    let snapshot = Snapshot { meta, snapshot: Box::new(SnapshotData::File(path.clone())) };
    let response = raft.install_full_snapshot(vote, snapshot).await;
    if path.exists() {
        // openraft did not need it, or did not accept the leader. After an error the node stops, and finishes the
        // installation at its next start.
        if response.is_ok() {
            folder.installed().map_err(refused)?;
            remove(&path)?;
        }
    } else {
        tracing::info!(%from, "a snapshot was installed");
    }
    response.map(|response| response.vote).map_err(|error| Refused::new(Refusal::Stopped, error.to_string()))
}

fn remove(path: &Path) -> Result<(), Refused> {
    fs::remove_file(path).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: NodeId = NodeId(1);

    /// Sets the age of the file of the transfer.
    fn age(folder: &Folder, age: Duration) {
        let file = OpenOptions::new().append(true).open(folder.incoming()).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    #[tokio::test]
    async fn a_transfer_that_was_interrupted_long_ago_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let folder = Arc::new(Folder::open(place.path().join("snapshots")).unwrap());
        let receiver = Receiver::new(Arc::clone(&folder));
        let offer =
            || SnapshotOffer { vote: Vote::default().into(), position: None, bytes: 100, sha256: [7; 32] };
        let chunk = |offset| SnapshotChunk { offset, bytes: vec![1; 10] };
        receiver.offer(SENDER, offer()).await.unwrap();
        receiver.chunk(SENDER, chunk(0)).await.unwrap();

        age(&folder, GIVEN_UP_AFTER - Duration::from_mins(1));
        receiver.forget_interrupted().await;
        assert_eq!(receiver.offer(SENDER, offer()).await.unwrap(), 10, "it continues before");

        age(&folder, GIVEN_UP_AFTER + Duration::from_mins(1));
        receiver.forget_interrupted().await;
        assert!(!folder.incoming().exists() && !folder.offer().exists());
        let refused = receiver.chunk(SENDER, chunk(10)).await.unwrap_err();
        assert!(refused.text.contains("no snapshot was offered"), "{refused:?}");
        assert_eq!(receiver.offer(SENDER, offer()).await.unwrap(), 0, "it begins again");
    }
}
