//! Outputs: stored after an execution has succeeded, and before the success is reported.
//!
//! The journal already records that the process has succeeded, so an upload may be interrupted at any time:
//! the supervisor requests it again. A version that is stored twice has the same bytes and the same hash.
//!
//! [`Uploads`] has one task for each execution. `store_all` repeats an upload while the server is unreachable
//! or busy. If a file is missing, or the server refuses it, the outputs cannot be stored and the execution
//! fails. `put` streams one file and aborts the call if the file cannot be read to its end.
//!
//! # Invariants
//! - Only a regular file that the task itself owns is read: no link leads out of its folder (`open_output`).

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use model::JobSpec;
use model::spec::OutputFile;
use proto::v1::{Assignment, FileVersion, PutArtifactRequest};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::Shared;
use super::artifacts::{STALL_MAX, is_retryable};
use super::connect::{Backoff, Client};
use crate::link::{Request, Store, Stored};

const CHUNK: usize = 64 << 10;

/// Running uploads; aborted when the connection to the supervisor closes.
#[derive(Debug)]
pub(super) struct Uploads {
    shared: Shared,
    tasks: JoinSet<()>,
    /// Executions whose outputs are being stored; the supervisor may request the same execution again.
    in_progress: Arc<Mutex<HashSet<String>>>,
}

/// Why outputs cannot be stored, even by a retry.
struct Failure {
    error: &'static str,
    detail: String,
}

impl Uploads {
    pub(super) fn new(shared: Shared) -> Self {
        Self { shared, tasks: JoinSet::new(), in_progress: Arc::default() }
    }

    /// Starts to store the outputs of an execution.
    pub(super) fn begin(&mut self, store: Store) {
        while self.tasks.try_join_next().is_some() {}
        let Some(assignment) = store.assignment else { return };
        let id = assignment.execution_id.clone();
        let under_way = Arc::clone(&self.in_progress);
        if !under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone()) {
            return;
        }
        let shared = self.shared.clone();
        self.tasks.spawn(async move {
            let stored = match Box::pin(store_all(&shared, &assignment)).await {
                Ok(outputs) => Stored { outputs, ..Stored::default() },
                Err(Failure { error, detail }) => {
                    Stored { error: error.to_owned(), detail, ..Stored::default() }
                }
            };
            under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            shared.send_request(Request::Stored(Stored { execution_id: id, ..stored })).await;
        });
    }
}

/// Stores all outputs; returns their versions.
async fn store_all(shared: &Shared, assignment: &Assignment) -> Result<Vec<FileVersion>, Failure> {
    let spec: JobSpec = serde_json::from_slice(&assignment.spec).map_err(|error| Failure {
        error: "output_not_stored",
        detail: format!("cannot parse the job spec: {error}"),
    })?;
    let mut stored = Vec::with_capacity(spec.outputs.len());
    for output in &spec.outputs {
        let mut backoff = Backoff::default();
        loop {
            match store_one(shared, assignment, &spec.namespace, output).await {
                Ok(version) => {
                    stored.extend(version);
                    break;
                }
                Err(Attempt::Failed(failure)) => return Err(failure),
                Err(Attempt::Retry(status)) => {
                    tracing::warn!(
                        execution_id = assignment.execution_id, artifact = output.artifact, error = %status,
                        "output not stored yet; retrying"
                    );
                    backoff.wait().await;
                }
            }
        }
    }
    Ok(stored)
}

enum Attempt {
    Retry(Status),
    Failed(Failure),
}

async fn store_one(
    shared: &Shared,
    assignment: &Assignment,
    namespace: &str,
    output: &OutputFile,
) -> Result<Option<FileVersion>, Attempt> {
    let folder = shared.layout.executions().join(&assignment.execution_id);
    let file = match open_output(&folder, &output.path) {
        Ok(Some(file)) => file,
        Ok(None) if output.optional => return Ok(None),
        Ok(None) => {
            let detail = format!("output `{}` is missing", output.path);
            return Err(Attempt::Failed(Failure { error: "output_missing", detail }));
        }
        Err(error) => {
            let detail = format!("cannot read output `{}`: {error}", output.path);
            return Err(Attempt::Failed(Failure { error: "output_missing", detail }));
        }
    };
    let head = PutArtifactRequest {
        namespace: namespace.to_owned(),
        name: output.artifact.clone(),
        execution_id: assignment.execution_id.clone(),
        fence: assignment.fence,
        data: Bytes::new(),
    };
    let client = connected(shared).await?;
    match put(client, head, file).await {
        Ok(sha256) => {
            let (artifact, path) = (output.artifact.clone(), output.path.clone());
            Ok(Some(FileVersion { artifact, sha256, path }))
        }
        Err(status) if is_retryable(&status) => Err(Attempt::Retry(status)),
        Err(status) => {
            let detail = format!("cannot store output `{}`: {}", output.path, status.message());
            Err(Attempt::Failed(Failure { error: "output_not_stored", detail }))
        }
    }
}

/// Waits for a session and returns a client for its server.
async fn connected(shared: &Shared) -> Result<Client, Attempt> {
    let no_session = || Attempt::Retry(Status::unavailable("the worker has no session with a server"));
    let mut session = shared.session.subscribe();
    let server = session.wait_for(Option::is_some).await.map_err(|_| no_session())?;
    server.as_ref().map(super::connect::Server::connect_lazily).ok_or_else(no_session)
}

/// Stores a file; returns the hash of its content.
async fn put(mut client: Client, head: PutArtifactRequest, file: File) -> Result<String, Status> {
    let (sender, requests) = mpsc::channel(4);
    // While this sender is open, the server cannot consider the artifact complete. So if the file cannot be read to
    // its end, the call is aborted instead of completed.
    let mut open = Some(sender.clone());
    let taken = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&taken);
    let read = tokio::task::spawn_blocking(move || read_into(file, head, &sender, &counter));
    let reading = async {
        let failed =
            |error: &dyn std::fmt::Display| Status::internal(format!("cannot read the file: {error}"));
        let result = read.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error));
        if result.is_ok() {
            open.take();
        }
        result
    };
    let stored = async {
        let ((), answer) = tokio::try_join!(reading, client.put_artifact(ReceiverStream::new(requests)))?;
        Ok(answer.into_inner().sha256)
    };
    tokio::select! {
        stored = stored => stored,
        () = stalled(&taken) => {
            Err(Status::unavailable(format!("the server accepted no data for {STALL_MAX:?}")))
        }
    }
}

/// Returns once no chunk was accepted for [`STALL_MAX`].
async fn stalled(taken: &AtomicU64) {
    let mut before = u64::MAX;
    loop {
        let now = taken.load(Ordering::Relaxed);
        if now == before {
            return;
        }
        before = now;
        tokio::time::sleep(STALL_MAX).await;
    }
}

fn read_into(
    mut file: File,
    head: PutArtifactRequest,
    sender: &mpsc::Sender<PutArtifactRequest>,
    taken: &AtomicU64,
) -> io::Result<()> {
    let mut next = head;
    loop {
        let mut chunk = vec![0; CHUNK];
        let len = file.read(&mut chunk)?;
        chunk.truncate(len);
        next.data = Bytes::from(chunk);
        // The first message is sent even for an empty file. A closed channel means that the call has ended.
        if sender.blocking_send(std::mem::take(&mut next)).is_err() || len == 0 {
            return Ok(());
        }
        taken.fetch_add(1, Ordering::Relaxed);
    }
}

/// Opens a file that a task left in its folder; `None` if the file does not exist.
///
/// The task controls the folder, and the agent may read files that the task may not. So no symbolic link is followed.
/// The file must belong to the owner of the folder and must have no other hard link.
fn open_output(folder: &Path, path: &str) -> io::Result<Option<File>> {
    let dir = openat(CWD, folder, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = match openat2(&dir, path, flags, Mode::empty(), resolve) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => {
            return Err(io::Error::other("the path is or contains a symbolic link"));
        }
        Err(error) => return Err(error.into()),
    };
    let (metadata, owner) = (file.metadata()?, File::from(dir).metadata()?.uid());
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.uid() != owner || metadata.nlink() != 1 {
        return Err(io::Error::other("the file belongs to another user or has several hard links"));
    }
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_of_the_task_itself_is_taken_as_an_output() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("exec");
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        std::fs::write(folder.join("sub/good"), "good").unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), folder.join("link")).unwrap();
        std::os::unix::fs::symlink(dir.path(), folder.join("way")).unwrap();
        std::fs::hard_link(dir.path().join("secret"), folder.join("twin")).unwrap();

        assert!(open_output(&folder, "sub/good").unwrap().is_some());
        assert!(open_output(&folder, "none").unwrap().is_none());
        for bad in ["link", "way/secret", "twin", "../secret", "sub"] {
            assert!(open_output(&folder, bad).is_err(), "{bad}");
        }
    }
}
