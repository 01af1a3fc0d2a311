//! How a server gets objects that it has missed.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use model::ServerId;
use model::error_chain::Chain;
use object_store::path::Path as Key;
use store::cluster::ServerRecord;
use tokio::time::Instant;

use super::servers::ServerError;
use super::{Copies, FOLLOW_EVERY, checked_folder, checked_key, digest};
use crate::objects::ObjectError;

/// Interval at which two servers compare all objects.
const COMPARE_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Interval at which a long comparison is reported.
const REPORT_EVERY: Duration = Duration::from_secs(30);
/// Objects that are fetched at a time.
const FETCHES: usize = 4;

/// Why a round with another server ended early. The next one begins where it was.
#[derive(Debug, thiserror::Error)]
pub(super) enum RoundError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// Another server that this one follows.
#[derive(Clone, Copy)]
pub(super) struct Followed {
    /// Position of the next request for recent objects.
    next: u64,
    compared_at: Instant,
}

/// What a comparison has done.
#[derive(Default)]
struct Compared {
    fetched: u64,
    removed: u64,
}

impl Copies {
    /// Gets what this server has missed, until the future is dropped.
    pub(super) async fn catch_up(&self) {
        let mut followed: HashMap<ServerId, Followed> = HashMap::new();
        loop {
            let others = self.servers.now().others;
            followed.retain(|id, _| others.iter().any(|server| server.id == *id));
            super::lock(&self.lanes).retain(|id, _| others.iter().any(|server| server.id == *id));
            let mut troubles = Vec::new();
            for server in &others {
                match self.follow(server, followed.get(&server.id).copied()).await {
                    Ok(now) => {
                        followed.insert(server.id, now);
                    }
                    Err(RoundError::Server(ServerError::KeepsNone { .. })) => {}
                    Err(error) => {
                        tracing::debug!(server = server.name, error = %Chain(&error), "cannot get missing objects; retrying");
                        troubles.push(format!(
                            "cannot get missing objects of server `{}`: {}",
                            server.name,
                            Chain(&error)
                        ));
                    }
                }
            }
            self.note((!troubles.is_empty()).then(|| troubles.join("; ")));
            tokio::time::sleep(FOLLOW_EVERY).await;
        }
    }

    /// Notes why objects may be missing, and warns when that begins.
    fn note(&self, trouble: Option<String>) {
        let former = std::mem::replace(&mut *super::lock(&self.trouble), trouble.clone());
        if let (None, Some(trouble)) = (former, trouble) {
            tracing::warn!("{trouble}; retrying");
        }
    }

    /// Gets what this server lacks of another one. `known` is the result of the last call, if there was one.
    pub(super) async fn follow(
        &self,
        server: &ServerRecord,
        known: Option<Followed>,
    ) -> Result<Followed, RoundError> {
        let known = known.filter(|known| known.compared_at.elapsed() < COMPARE_EVERY);
        if let Some(known) = known {
            let recent = self.servers.recent(server, known.next).await?;
            if let Some(keys) = recent.keys {
                let keys: Vec<Key> = keys.iter().filter_map(|key| checked_key(key)).collect();
                self.fetch_missing(server, keys).await?;
                return Ok(Followed { next: recent.next, ..known });
            }
        }
        // What is stored during the comparison comes after this position.
        let next = self.servers.recent(server, u64::MAX).await?.next;
        let compared_at = Instant::now();
        let Compared { fetched, removed } = self.compare(server).await?;
        if fetched > 0 || removed > 0 {
            tracing::info!(
                server = server.name,
                fetched,
                removed,
                "compared the objects with another server"
            );
        }
        Ok(Followed { next, compared_at })
    }

    async fn compare(&self, server: &ServerRecord) -> Result<Compared, RoundError> {
        let theirs = self.servers.folders(server).await?;
        let mut folders = self.folders_here().await?;
        folders.extend(theirs.into_iter().filter_map(|folder| checked_folder(&folder)));
        let (mut done, mut reported_at) = (Compared::default(), Instant::now());
        for (number, folder) in folders.iter().enumerate() {
            self.compare_folder(server, folder, &mut done).await?;
            if reported_at.elapsed() >= REPORT_EVERY {
                reported_at = Instant::now();
                let (folders, fetched) = (folders.len(), done.fetched);
                tracing::info!(
                    server = server.name,
                    folder = number + 1,
                    folders,
                    fetched,
                    "comparing the objects with another server"
                );
            }
        }
        Ok(done)
    }

    async fn compare_folder(
        &self,
        server: &ServerRecord,
        folder: &str,
        done: &mut Compared,
    ) -> Result<(), RoundError> {
        let ours = self.names_here(folder).await?;
        let Some(theirs) = self.servers.names(server, folder, &digest(&ours)).await? else { return Ok(()) };
        let keys = |names: BTreeSet<&String>| -> Vec<Key> {
            names.into_iter().filter_map(|name| checked_key(&format!("{folder}/{name}"))).collect()
        };
        let mut missing = Vec::new();
        for key in keys(theirs.difference(&ours).collect()) {
            if self.is_needed(&key).await.map_err(ObjectError::from)? {
                missing.push(key);
            }
        }
        done.fetched += self.fetch_missing(server, missing).await?;
        for key in keys(ours.difference(&theirs).collect()) {
            if self.is_unneeded(&key).await? {
                self.remove_here(&key).await?;
                done.removed += 1;
            }
        }
        Ok(())
    }

    /// Fetches those of the objects that are not here. Returns their number.
    async fn fetch_missing(&self, server: &ServerRecord, keys: Vec<Key>) -> Result<u64, RoundError> {
        let fetch = async |key: Key| -> Result<u64, RoundError> {
            if self.size_here(&key).await?.is_some() {
                return Ok(0);
            }
            // It may have been deleted meanwhile.
            Ok(u64::from(self.fetch_slowly(server, &key).await?.is_some()))
        };
        let fetches = futures::stream::iter(keys).map(fetch).buffer_unordered(FETCHES);
        fetches.try_fold(0, async |sum, fetched| Ok(sum + fetched)).await
    }
}
