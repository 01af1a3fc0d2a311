//! Copies of objects on all servers of a cluster, so that no other storage is needed.
//!
//! ```text
//! put ──> file of this server ──┬──> other server      put returns when a majority has it
//!                               └──> other server
//! get ──> file of this server, or from another server, which makes it a file of this server
//! ```
//!
//! Every server has a copy of every object. There are three ways in which a server gets one:
//!
//! 1. The server that stores an object first sends it to the others. It is stored when a *majority* of the servers has it.
//! 2. Each server asks each other one every [`FOLLOW_EVERY`] for the objects that it has stored, and gets those that it missed.
//! 3. Two servers *compare* their objects when one of them has started, when one has missed too many, and once a day. A server
//!    gets an object only if a row needs it: an execution, or a version of an artifact.
//!
//! A server that misses a deletion has an object which no row needs. It is removed by the comparison, an hour after it was
//! stored. Artifacts of this age are also the only ones that a server deletes for another one: a younger one may be
//! about to get its row.
//!
//! # Invariants
//! - An object that was stored is on a majority, so it survives the loss of the other servers.
//! - An object is absent only if those servers that do not have it are enough to exclude a majority that has it.
//! - Nothing that a row needs is deleted because another server lacks it.
//!
//! # Cost
//! An object is sent once to each other server. An idle cluster costs one request of each pair of servers every five seconds.
//! A comparison reads the names of the objects, of one folder at a time, and sends them only if they differ.
//!
//! # Files
//! - `folder`: the files of this server; [`servers`]: requests to the others; `catch_up`: the second and third way.

mod catch_up;
mod folder;
pub(crate) mod servers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt as _};
use model::error_chain::Chain;
use model::{ExecutionId, ServerId};
use object_store::path::Path as Key;
use store::cluster::ServerRecord;
use store::pace::Pace;
use store::query::ArtifactFilter;
use store::{Store, StoreError};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use self::folder::Folder;
use self::servers::{RecentKeys, ServerError, Servers};
use super::{ObjectError, blocking, io as io_error};
use crate::hash::sha256_hex;

/// First parts of keys.
const KINDS: [&str; 2] = [LOGS, ARTIFACTS];
const LOGS: &str = "logs";
const ARTIFACTS: &str = "artifacts";
/// Longest wait for a majority of the servers.
const PUT_PATIENCE: Duration = Duration::from_secs(15);
const SEND_AGAIN: Duration = Duration::from_millis(500);
/// Interval at which a server asks the others for objects that it has missed.
const FOLLOW_EVERY: Duration = Duration::from_secs(5);
/// Age below which an object is kept although no row needs it yet.
const YOUNG: Duration = Duration::from_secs(3600);
/// Objects that a server remembers to have stored first.
const RECENT_MAX: usize = 100_000;
/// Most keys in one answer or request.
const KEYS_MAX: usize = 5_000;
/// Objects that are sent to a server at a time.
const SENDS: usize = 16;
/// Objects that are sent to a server or wait for it.
const SENDS_MAX: usize = 256;
/// Time in which deletions are gathered for one request.
const GATHER: Duration = Duration::from_millis(200);
/// Deletions that wait. Further ones are left to the comparison.
const DELETIONS_MAX: usize = 100_000;

/// Copies of objects on all servers.
pub(crate) struct Copies {
    folder: Folder,
    servers: Arc<dyn Servers>,
    store: Arc<dyn Store>,
    recent: Mutex<Recent>,
    lanes: Mutex<HashMap<ServerId, Arc<Lane>>>,
    deletions: Mutex<Vec<Key>>,
    deleted: Notify,
    /// Limits what this server gets from others, apart from what a user waits for.
    pace: Mutex<Pace>,
    /// Why this server may lack objects, according to the last round.
    trouble: Mutex<Option<String>>,
}

/// The last objects that this server has stored as the first one.
#[derive(Default)]
struct Recent {
    keys: VecDeque<String>,
    /// Position after the last one.
    end: u64,
}

impl Recent {
    fn add(&mut self, key: &Key) {
        if self.keys.len() >= RECENT_MAX {
            self.keys.pop_front();
        }
        self.keys.push_back(key.to_string());
        self.end += 1;
    }

    fn after(&self, position: u64) -> RecentKeys {
        let first = self.end - self.keys.len() as u64;
        if position < first || position > self.end {
            return RecentKeys { next: self.end, keys: None };
        }
        let skipped = usize::try_from(position - first).unwrap_or(usize::MAX);
        let keys: Vec<_> = self.keys.iter().skip(skipped).take(KEYS_MAX).cloned().collect();
        RecentKeys { next: position + keys.len() as u64, keys: Some(keys) }
    }
}

/// Objects on their way to a server. A slow one gets the rest when it asks for it.
struct Lane {
    admitted: Semaphore,
    sending: Semaphore,
}

impl Default for Lane {
    fn default() -> Self {
        Self { admitted: Semaphore::new(SENDS_MAX), sending: Semaphore::new(SENDS) }
    }
}

/// Search for an object on one server after the other.
struct Search {
    total: usize,
    /// Servers that do not have it, with this one.
    lacking: usize,
    failure: Option<ServerError>,
}

impl Search {
    fn among(total: usize) -> Self {
        Self { total: total.max(1), lacking: 1, failure: None }
    }

    /// Adds the answer of a server. Returns what was found.
    fn add<T>(&mut self, answer: Result<Option<T>, ServerError>) -> Option<T> {
        match answer {
            Ok(Some(found)) => return Some(found),
            Ok(None) => self.lacking += 1,
            Err(ServerError::KeepsNone { .. }) => self.total = (self.total - 1).max(1),
            Err(error) => self.failure = Some(error),
        }
        None
    }

    /// Ends a search that found nothing: the object does not exist, unless servers that were not asked may be the majority
    /// that has it.
    fn end(self, key: &Key) -> Result<(), ObjectError> {
        if self.lacking > self.total.saturating_sub(majority(self.total)) {
            return Ok(());
        }
        Err(ObjectError::Elsewhere { key: key.to_string(), source: self.failure.map(Into::into) })
    }
}

impl Copies {
    /// Opens the folder of this server's copies.
    ///
    /// # Errors
    /// [`ObjectError::Io`].
    pub(super) fn open(
        root: PathBuf,
        servers: Arc<dyn Servers>,
        store: Arc<dyn Store>,
        bytes_per_second: NonZeroU64,
    ) -> Result<Self, ObjectError> {
        let folder = Folder::open(root.clone()).map_err(io_error("open", root))?;
        Ok(Self {
            folder,
            servers,
            store,
            recent: Mutex::default(),
            lanes: Mutex::default(),
            deletions: Mutex::default(),
            deleted: Notify::new(),
            pace: Mutex::new(Pace::new(bytes_per_second)),
            trouble: Mutex::default(),
        })
    }

    /// Stores a file as an object on a majority of the servers. The others get it afterwards. Waits up to [`PUT_PATIENCE`] for
    /// servers that do not answer: one that was killed counts until its registration expires.
    ///
    /// # Errors
    /// [`ObjectError::TooFewCopies`] or [`ObjectError::Io`]; the call may be repeated.
    pub(super) async fn put_file(self: &Arc<Self>, key: &Key, file: &Path) -> Result<(), ObjectError> {
        let source = file.to_owned();
        self.on_files(key, "store", move |folder, key| folder.add(key, &source)).await?;
        lock(&self.recent).add(key);
        let give_up = Instant::now() + PUT_PATIENCE;
        loop {
            match self.send_to_majority(key).await {
                Err(ObjectError::TooFewCopies { .. }) if Instant::now() < give_up => {}
                sent => return sent,
            }
            tokio::time::sleep(SEND_AGAIN).await;
        }
    }

    async fn send_to_majority(self: &Arc<Self>, key: &Key) -> Result<(), ObjectError> {
        let now = self.servers.now();
        let mut total = now.total.max(1);
        let sends = now.others.into_iter().map(|server| self.spawn_send(server, key.clone()));
        let mut sends: FuturesUnordered<_> = sends.collect();
        let (mut copies, mut failure) = (1, None);
        while copies < majority(total) {
            match sends.next().await {
                Some(Ok(())) => copies += 1,
                Some(Err(ServerError::KeepsNone { .. })) => total = (total - 1).max(1),
                Some(Err(error)) => failure = Some(error),
                None => {
                    return Err(ObjectError::TooFewCopies {
                        key: key.to_string(),
                        copies,
                        needed: majority(total),
                        source: failure.map(Into::into),
                    });
                }
            }
        }
        Ok(())
    }

    /// Sends an object to a server in a task, which continues when the caller has enough copies.
    fn spawn_send(
        self: &Arc<Self>,
        server: ServerRecord,
        key: Key,
    ) -> impl Future<Output = Result<(), ServerError>> + use<> {
        let copies = Arc::clone(self);
        let name = server.name.clone();
        let sending = tokio::spawn(async move {
            let lane = copies.lane(server.id);
            let Ok(_admitted) = lane.admitted.try_acquire() else {
                return Err(failed("send an object to", &server, "too many objects wait for it"));
            };
            // The semaphore is never closed.
            let _place = lane.sending.acquire().await;
            let file = copies.folder.path(&key);
            let sent = copies.servers.put(&server, &key, &file).await;
            if let Err(error @ ServerError::Failed { .. }) = &sent {
                tracing::debug!(%key, error = %Chain(error), "the server gets the object later");
            }
            sent
        });
        async move {
            sending.await.unwrap_or_else(|error| {
                Err(ServerError::Failed { action: "send an object to", server: name, source: error.into() })
            })
        }
    }

    fn lane(&self, server: ServerId) -> Arc<Lane> {
        Arc::clone(lock(&self.lanes).entry(server).or_default())
    }

    /// Makes an object a file of this server, if another one has it. Returns whether this server has it now.
    ///
    /// # Errors
    /// [`ObjectError::Elsewhere`] if servers that may have it cannot be asked, or [`ObjectError::Io`].
    pub(super) async fn bring(&self, key: &Key) -> Result<bool, ObjectError> {
        if self.size_here(key).await?.is_some() {
            return Ok(true);
        }
        let now = self.servers.now();
        let mut search = Search::among(now.total);
        for server in &now.others {
            if search.add(self.fetch(server, key).await).is_some() {
                return Ok(true);
            }
        }
        search.end(key).map(|()| false)
    }

    /// Returns the size of an object in bytes; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`bring`](Self::bring).
    pub(super) async fn size(&self, key: &Key) -> Result<Option<u64>, ObjectError> {
        if let Some(size) = self.size_here(key).await? {
            return Ok(Some(size));
        }
        let now = self.servers.now();
        let mut search = Search::among(now.total);
        for server in &now.others {
            if let Some(size) = search.add(self.servers.size(server, key).await) {
                return Ok(Some(size));
            }
        }
        search.end(key).map(|()| None)
    }

    /// Makes an object of another server a file of this one, for a user who waits. `None` if the server does not have it.
    async fn fetch(&self, from: &ServerRecord, key: &Key) -> Result<Option<()>, ServerError> {
        let Some(bytes) = self.servers.get(from, key).await? else { return Ok(None) };
        self.take_over(from, key, bytes).await.map(Some)
    }

    /// The same, in the background.
    async fn fetch_slowly(&self, from: &ServerRecord, key: &Key) -> Result<Option<()>, ServerError> {
        let Some(bytes) = self.servers.get(from, key).await? else { return Ok(None) };
        let paced = bytes.then(async |chunk| {
            let length = chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
            let pause = lock(&self.pace).spend(length, Instant::now().into_std());
            tokio::time::sleep(pause).await;
            chunk
        });
        self.take_over(from, key, paced).await.map(Some)
    }

    async fn take_over(
        &self,
        from: &ServerRecord,
        key: &Key,
        bytes: impl Stream<Item = Result<Bytes, ObjectError>> + Send,
    ) -> Result<(), ServerError> {
        let received = self.receive(key, None, bytes).await;
        received.map_err(|error| failed("receive an object of", from, error))
    }

    /// Notes that an object is stored again, if this server has it with this size in bytes.
    ///
    /// # Errors
    /// [`ObjectError::Io`].
    pub(super) async fn store_again(&self, key: &Key, bytes: u64) -> Result<bool, ObjectError> {
        if self.size_here(key).await? != Some(bytes) {
            return Ok(false);
        }
        let is_here = self.on_files(key, "store", Folder::touch).await?;
        if is_here {
            // Another server may have deleted it just now.
            lock(&self.recent).add(key);
        }
        Ok(is_here)
    }

    /// Deletes an object here, and soon on the other servers.
    ///
    /// # Errors
    /// [`ObjectError::Io`].
    pub(super) async fn delete(&self, key: &Key) -> Result<(), ObjectError> {
        self.remove_here(key).await?;
        let mut deletions = lock(&self.deletions);
        if deletions.len() < DELETIONS_MAX {
            deletions.push(key.clone());
            self.deleted.notify_one();
        }
        Ok(())
    }

    /// Returns why this server may lack objects of other servers.
    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    /// Sends deletions to the other servers, and gets what this server has missed, until the future is dropped.
    pub(crate) async fn run(&self) {
        tokio::join!(self.send_deletions(), self.catch_up());
    }

    async fn send_deletions(&self) {
        loop {
            self.deleted.notified().await;
            tokio::time::sleep(GATHER).await;
            let keys = std::mem::take(&mut *lock(&self.deletions));
            let others = self.servers.now().others;
            for keys in keys.chunks(KEYS_MAX) {
                for server in &others {
                    if let Err(error) = self.servers.delete(server, keys).await {
                        tracing::debug!(error = %Chain(&error), "the server deletes objects when it compares them");
                    }
                }
            }
        }
    }

    // What other servers ask for.

    /// Returns the file of an object, and its size in bytes; `None` if it is not here.
    ///
    /// # Errors
    /// [`ObjectError::Io`].
    pub(crate) async fn open_file(&self, key: &Key) -> Result<Option<(tokio::fs::File, u64)>, ObjectError> {
        let opened = self.on_files(key, "open", |folder, key| match std::fs::File::open(folder.path(key)) {
            Ok(file) => file.metadata().map(|meta| Some((file, meta.len()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        });
        Ok(opened.await?.map(|(file, bytes)| (tokio::fs::File::from_std(file), bytes)))
    }

    /// Receives an object from another server. `size` in bytes is that of the whole object, if it is known.
    ///
    /// # Errors
    /// [`ObjectError::Interrupted`] or [`ObjectError::Io`]; then nothing is stored.
    pub(crate) async fn receive<E>(
        &self,
        key: &Key,
        size: Option<u64>,
        bytes: impl Stream<Item = Result<Bytes, E>> + Send,
    ) -> Result<(), ObjectError>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let incoming = self.folder.incoming();
        let path = incoming.path.clone();
        let interrupted = |source| ObjectError::Interrupted { name: key.to_string(), source };
        let mut file = tokio::fs::File::create_new(&path).await.map_err(io_error("create", &path))?;
        let (mut bytes, mut written) = (std::pin::pin!(bytes), 0);
        while let Some(part) = bytes.next().await {
            let part = part.map_err(|error| interrupted(error.into()))?;
            file.write_all(&part).await.map_err(io_error("write", &path))?;
            written += part.len() as u64;
        }
        if size.is_some_and(|size| size != written) {
            return Err(interrupted(format!("{written} bytes arrived").into()));
        }
        file.flush().await.map_err(io_error("write", &path))?;
        drop(file);
        self.on_files(key, "store", move |folder, key| folder.finish(key, &incoming)).await
    }

    /// Returns the size of this server's copy in bytes.
    ///
    /// # Errors
    /// [`ObjectError::Io`].
    pub(crate) async fn size_here(&self, key: &Key) -> Result<Option<u64>, ObjectError> {
        self.on_files(key, "find", Folder::size).await
    }

    /// Returns the objects that this server has stored as the first one, after a position.
    pub(crate) fn recent_after(&self, position: u64) -> RecentKeys {
        lock(&self.recent).after(position)
    }

    /// Returns the folders of this server's objects.
    ///
    /// # Errors
    /// [`ObjectError::Io`].
    pub(crate) async fn folders_here(&self) -> Result<BTreeSet<String>, ObjectError> {
        self.on_files(&Key::default(), "list", |folder, _| folder.folders()).await
    }

    /// Returns the names of the objects of a folder of this server.
    ///
    /// # Errors
    /// [`ObjectError::Io`].
    pub(crate) async fn names_here(&self, of: &str) -> Result<BTreeSet<String>, ObjectError> {
        let of = of.to_owned();
        self.on_files(&Key::default(), "list", move |folder, _| folder.names(&of)).await
    }

    /// Deletes objects that another server has deleted, except artifacts that may be needed.
    ///
    /// # Errors
    /// [`ObjectError::Io`], or [`ObjectError::Store`].
    pub(crate) async fn delete_here(&self, keys: &[Key]) -> Result<(), ObjectError> {
        for key in keys {
            // A log is deleted before its row, and never stored again.
            let is_log = key.parts().next().is_some_and(|kind| kind.as_ref() == LOGS);
            if is_log || self.is_unneeded(key).await? {
                self.remove_here(key).await?;
            }
        }
        Ok(())
    }

    async fn remove_here(&self, key: &Key) -> Result<(), ObjectError> {
        self.on_files(key, "delete", Folder::remove).await
    }

    /// Whether no row needs an object of this server, and it is so old that no row is about to.
    async fn is_unneeded(&self, key: &Key) -> Result<bool, ObjectError> {
        let Some(stored_at) = self.on_files(key, "find", Folder::stored_at).await? else { return Ok(false) };
        let age = SystemTime::now().duration_since(stored_at).unwrap_or_default();
        Ok(age >= YOUNG && !self.is_needed(key).await?)
    }

    /// Whether a row needs an object.
    async fn is_needed(&self, key: &Key) -> Result<bool, StoreError> {
        let parts: Vec<_> = key.parts().collect();
        match parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>()[..] {
            [LOGS, _, name] => {
                match name.strip_suffix(".log").and_then(|id| id.parse::<ExecutionId>().ok()) {
                    Some(execution) => Ok(self.store.execution(execution).await?.is_some()),
                    None => Ok(false),
                }
            }
            [ARTIFACTS, namespace, sha256] => {
                let filter = ArtifactFilter {
                    namespace: Some(namespace.to_owned()),
                    sha256: Some(sha256.to_owned()),
                    ..ArtifactFilter::default()
                };
                Ok(!self.store.artifacts(&filter, 1).await?.is_empty())
            }
            _ => Ok(false),
        }
    }

    /// Runs a file operation on a thread for them.
    async fn on_files<T: Send + 'static>(
        &self,
        key: &Key,
        action: &'static str,
        work: impl FnOnce(&Folder, &Key) -> io::Result<T> + Send + 'static,
    ) -> Result<T, ObjectError> {
        let (folder, key) = (self.folder.clone(), key.clone());
        blocking(move || {
            let path = folder.path(&key);
            work(&folder, &key).map_err(io_error(action, path))
        })
        .await
    }
}

/// Checks the key of an object from another server.
pub(crate) fn checked_key(text: &str) -> Option<Key> {
    let key = Key::parse(text).ok()?;
    let parts: Vec<_> = key.parts().collect();
    let is_known = parts.len() == 3 && parts.first().is_some_and(|kind| KINDS.contains(&kind.as_ref()));
    (is_known && !text.contains('#')).then_some(key)
}

/// Checks the name of a folder of objects from another server.
pub(crate) fn checked_folder(text: &str) -> Option<String> {
    checked_key(&format!("{text}/name")).map(|_| text.to_owned())
}

/// Returns a digest of the names of objects.
pub(crate) fn digest(names: &BTreeSet<String>) -> String {
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    sha256_hex(all.join("\0").as_bytes())
}

/// Returns the number of servers in a majority of `total`.
fn majority(total: usize) -> usize {
    total / 2 + 1
}

fn failed(
    action: &'static str,
    server: &ServerRecord,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> ServerError {
    ServerError::Failed { action, server: server.name.clone(), source: source.into() }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
