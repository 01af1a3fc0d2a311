//! The side of the leader.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::sync::Arc;

use openraft::Snapshot;
use tokio::time::Instant;

use super::blocking;
use crate::machine::copies::{Copies, MachineCopy};
use crate::machine::{Belfry, Machine, MachineError, SnapshotData};
use crate::net::link::{CallError, Link};
use crate::net::message::{
    SNAPSHOT_CHUNK, SNAPSHOT_DONE, SNAPSHOT_OFFER, SnapshotChunk, SnapshotOffer, VoteRow,
};
use crate::net::{INSTALL_TIMEOUT, SNAPSHOT_TIMEOUT};
use crate::types::{NodeId, Vote};

/// Why a snapshot was not sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("cannot copy the machine for another server")]
    Copy(#[from] MachineError),
    #[error("cannot read the copy of the machine")]
    Read(#[from] io::Error),
    #[error("the log no longer has what follows the copy of the machine")]
    Outdated,
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Sends a copy to a node; returns the vote of the node after the installation.
pub(crate) async fn send<M: Machine>(
    (node, link): (NodeId, &Link),
    copies: &Arc<Copies>,
    snapshot: Snapshot<Belfry<M>>,
    vote: Vote,
) -> Result<Vote, SendError> {
    let copy = match *snapshot.snapshot {
        // May be newer than what openraft has selected, which it allows.
        SnapshotData::Live(machine) => copies.make(machine, snapshot.meta.last_log_id).await?,
        SnapshotData::Copied(copy) => copy,
        SnapshotData::File(_) => return Err(MachineError::new("a received copy is not sent again").into()),
    };
    tokio::select! {
        sent = send_copy((node, link), copies, &copy, vote) => sent,
        () = copy.outdated() => Err(SendError::Outdated),
    }
}

async fn send_copy(
    (node, link): (NodeId, &Link),
    copies: &Copies,
    copy: &MachineCopy,
    vote: Vote,
) -> Result<Vote, SendError> {
    let total = copy.summary.bytes;
    let offer = SnapshotOffer {
        vote: vote.into(),
        position: copy.state.applied.map(Into::into),
        bytes: total,
        sha256: copy.summary.sha256,
    };
    // The receiver reads what it has already.
    let mut offset: u64 = link.call(SNAPSHOT_OFFER, &offer, INSTALL_TIMEOUT).await?;
    let sending = copies.sending(node, offset, total);
    tracing::info!(to = ?link, bytes = total, from = offset, "sending a snapshot");
    let mut file = blocking(copy.path().to_owned(), move |path| {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        Ok(file)
    })
    .await?;
    let (mut pace, piece) = (copies.pace(), copies.piece_bytes());
    while offset < total {
        sending.reached(offset);
        let (returned, bytes) = blocking(file, move |mut file| {
            let mut bytes = Vec::new();
            (&mut file).take(piece).read_to_end(&mut bytes)?;
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
        copy.touch();
        tokio::time::sleep(pace.spend(length, Instant::now().into_std())).await;
    }
    sending.reached(total);
    let vote: VoteRow = link.call(SNAPSHOT_DONE, &VoteRow::from(vote), INSTALL_TIMEOUT).await?;
    copy.touch();
    Ok(vote.into())
}
