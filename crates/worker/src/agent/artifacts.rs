//! Inputs: downloaded before an execution starts.
//!
//! The agent downloads the inputs before it sends the start to the supervisor, so the execution is not in the journal
//! yet. If the agent exits here, nothing is lost: the server assigns the execution again. Files are stored in a cache
//! by hash, and the hash is verified during the download. They are then copied to a folder for the execution under
//! `stage/`, which the supervisor takes over with one rename.
//!
//! No task can access the stage, so a task cannot place a symbolic link there.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown, fchown};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use model::JobSpec;
use model::spec::InputFile;
use proto::v1::{
    Assignment, FileVersion, GetArtifactRequest, GetCheckpointRequest, JournaledExecution, StartFailed,
};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tonic::{Code, Status};

use super::Shared;
use super::connect::{Backoff, Client};
use crate::layout::{CHECKPOINT_FILE, Layout};
use crate::link::Owner;

/// Maximum number of artifacts that are downloaded at the same time.
const FETCHES: usize = 4;
/// Maximum number of download attempts before the start fails; the server may then retry on another worker.
pub(super) const ATTEMPTS_MAX: usize = 4;

/// Why an input could not be downloaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{}", .0.message())]
    Server(#[from] Status),
    #[error("hash mismatch: expected `{expected}` but got `{found}`")]
    Hash { expected: String, found: String },
    #[error("`{0}` is not a SHA-256 hash")]
    BadHash(String),
    #[error("the path is outside the directory of the execution")]
    Path,
    #[error("cannot write the file: {0}")]
    Io(#[from] io::Error),
}

/// Downloads artifacts for one session.
#[derive(Debug, Clone)]
pub(super) struct Artifacts {
    client: Client,
    layout: Layout,
    owner: Option<Owner>,
    cache_bytes_max: u64,
    permits: Arc<Semaphore>,
}

impl Artifacts {
    pub(super) fn new(shared: &Shared, client: Client) -> Self {
        Self {
            client,
            layout: shared.layout.clone(),
            owner: shared.owner,
            cache_bytes_max: shared.config.cache_bytes_max,
            permits: Arc::new(Semaphore::new(FETCHES)),
        }
    }

    /// Returns whether an execution has inputs, or a checkpoint to continue from.
    pub(super) fn are_needed(&self, assignment: &Assignment) -> bool {
        if assignment.checkpoint_version > 0 {
            return true;
        }
        // Parsing every spec here too would cost some microseconds per execution.
        let word = br#""inputs""#;
        assignment.spec.windows(word.len()).any(|bytes| bytes == word) && !inputs(assignment).0.is_empty()
    }

    /// Fills the folder of an execution; returns the versions of the artifacts in it.
    pub(super) async fn stage(&self, assignment: &Assignment) -> Result<Vec<FileVersion>, StartFailed> {
        let (inputs, namespace) = inputs(assignment);
        let dir = self.layout.stage().join(&assignment.execution_id);
        let failed = |what: &str, error: &FetchError| StartFailed {
            code: "artifact_failed".to_owned(),
            detail: format!("input `{what}`: {error}"),
        };
        make_stage(&dir).map_err(|error| failed(".", &error.into()))?;
        if assignment.checkpoint_version > 0 {
            self.stage_checkpoint(assignment, &dir).await.map_err(|error| StartFailed {
                code: "checkpoint_failed".to_owned(),
                detail: format!("checkpoint: {error}"),
            })?;
        }
        let mut versions = Vec::with_capacity(inputs.len());
        for input in inputs {
            let placed = async {
                let (sha256, cached) = self.fetch(&namespace, &input.artifact).await?;
                let (dir, owner, input) = (dir.clone(), self.owner, input.clone());
                tokio::task::spawn_blocking(move || copy_input(cached, &dir, &input, owner))
                    .await
                    .map_err(io::Error::other)??;
                Ok(sha256)
            };
            let sha256 = placed.await.map_err(|error| failed(&input.artifact, &error))?;
            let artifact = input.artifact.split('@').next().unwrap_or_default().to_owned();
            versions.push(FileVersion { artifact, sha256, path: input.path });
        }
        Ok(versions)
    }

    /// Downloads the last checkpoint of the job. If the store has lost it, the job starts without it.
    async fn stage_checkpoint(&self, assignment: &Assignment, dir: &Path) -> Result<(), FetchError> {
        let mut backoff = Backoff::default();
        let mut tries = 1;
        let found = loop {
            let Assignment { execution_id, fence, .. } = assignment;
            let request = GetCheckpointRequest { execution_id: execution_id.clone(), fence: *fence };
            match in_time(self.client.clone().get_checkpoint(request)).await {
                Ok(found) => break found.into_inner(),
                Err(status) if status.code() == Code::NotFound => return Ok(()),
                Err(status) if is_retryable(&status) && tries < ATTEMPTS_MAX => {
                    tries += 1;
                    backoff.wait().await;
                }
                Err(status) => return Err(status.into()),
            }
        };
        let path = dir.join(CHECKPOINT_FILE);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        if let Some(owner) = self.owner {
            fchown(&file, Some(owner.uid), Some(owner.gid))?;
        }
        Ok(file.write_all(&found.data)?)
    }

    /// Returns the hash of an artifact and its open file in the cache, and downloads it if necessary. The file stays
    /// readable if another fetch removes it from the cache.
    async fn fetch(&self, namespace: &str, reference: &str) -> Result<(String, File), FetchError> {
        if let Some((_, hash)) = reference.split_once("@sha256:") {
            let path = self.cached(hash)?;
            if let Some(file) = touch(&path) {
                return Ok((hash.to_owned(), file));
            }
        }
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await.map_err(io::Error::other)?;
        let mut backoff = Backoff::default();
        for _ in 1..ATTEMPTS_MAX {
            match self.download(namespace, reference).await {
                Err(FetchError::Server(status)) if is_retryable(&status) => backoff.wait().await,
                result => return result,
            }
        }
        self.download(namespace, reference).await
    }

    async fn download(&self, namespace: &str, reference: &str) -> Result<(String, File), FetchError> {
        let request = GetArtifactRequest { namespace: namespace.to_owned(), reference: reference.to_owned() };
        let mut chunks = in_time(self.client.clone().get_artifact(request)).await?.into_inner();
        let mut chunk = in_time(chunks.message())
            .await?
            .ok_or_else(|| Status::unavailable("the artifact stream ended early"))?;
        let expected = chunk.sha256.clone();
        let path = self.cached(&expected)?;
        if let Some(file) = touch(&path) {
            return Ok((expected, file));
        }
        let mut file = Partial::create(&self.layout)?;
        let mut hash = Sha256::new();
        loop {
            hash.update(&chunk.data);
            // Written to the page cache, so this rarely blocks.
            file.file.write_all(&chunk.data)?;
            match in_time(chunks.message()).await? {
                Some(next) => chunk = next,
                None => break,
            }
        }
        let found = hex(&hash.finalize());
        if found != expected {
            return Err(FetchError::Hash { expected, found });
        }
        let file = file.keep(&path)?;
        prune(&self.layout.cache(), self.cache_bytes_max, &path);
        Ok((found, file))
    }

    fn cached(&self, hash: &str) -> Result<PathBuf, FetchError> {
        let good = hash.len() == 64 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if good {
            Ok(self.layout.cache().join(format!("sha256-{hash}")))
        } else {
            Err(FetchError::BadHash(hash.chars().take(80).collect()))
        }
    }
}

/// Returns the inputs and namespace of a spec. For an invalid spec both are empty; the supervisor reports the error.
fn inputs(assignment: &Assignment) -> (Vec<InputFile>, String) {
    serde_json::from_slice::<JobSpec>(&assignment.spec)
        .map_or_else(|_| (Vec::new(), String::new()), |spec| (spec.inputs, spec.namespace))
}

/// Returns whether a retry may succeed.
pub(super) fn is_retryable(status: &Status) -> bool {
    !matches!(
        status.code(),
        Code::NotFound
            | Code::InvalidArgument
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::AlreadyExists
    )
}

/// Time without data after which a transfer is aborted, even if the connection is still alive.
pub(super) const STALL_MAX: Duration = Duration::from_secs(60);

/// Waits for an answer of the server for at most [`STALL_MAX`]. The timeout error may be retried.
pub(super) async fn in_time<T>(answer: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = |_| Err(Status::unavailable(format!("no data from the server for {STALL_MAX:?}")));
    tokio::time::timeout(STALL_MAX, answer).await.unwrap_or_else(late)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Opens a file of the cache; `None` if it is not there. Updates its modification time, which marks it as used.
fn touch(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    file.set_modified(SystemTime::now()).ok()?;
    Some(file)
}

/// Removes the files of interrupted downloads of an earlier agent or session.
pub(super) fn sweep(layout: &Layout, held: &[JournaledExecution]) {
    let entries = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries(layout.stage()) {
        // The supervisor may not have taken over this folder yet.
        if !held.iter().any(|held| entry.file_name() == held.execution_id.as_str()) {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
    for entry in
        entries(layout.cache()).filter(|e| e.file_name().as_encoded_bytes().starts_with(PARTIAL.as_bytes()))
    {
        fs::remove_file(entry.path()).ok();
    }
}

/// Prefix of the names of incomplete files in the cache.
const PARTIAL: &str = "partial-";

/// An incomplete file of the cache; removed on drop unless it is kept.
struct Partial {
    file: File,
    path: PathBuf,
    kept: bool,
}

impl Partial {
    fn create(layout: &Layout) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = layout.cache().join(format!("{PARTIAL}{}-{number}", std::process::id()));
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        Ok(Self { file, path, kept: false })
    }

    /// Moves the complete file to `path`, and returns it, open at its start.
    fn keep(mut self, path: &Path) -> io::Result<File> {
        // Durable before the rename: a partial file must never be used as the artifact.
        self.file.sync_data()?;
        let mut file = self.file.try_clone()?;
        file.rewind()?;
        fs::rename(&self.path, path)?;
        self.kept = true;
        Ok(file)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.kept {
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Creates an empty folder; removes one of an earlier attempt.
fn make_stage(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    DirBuilder::new().mode(0o700).create(dir)
}

/// Copies a cached file to its path in an execution's folder.
fn copy_input(
    mut cached: File,
    dir: &Path,
    input: &InputFile,
    owner: Option<Owner>,
) -> Result<(), FetchError> {
    let path = Path::new(&input.path);
    if path.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(FetchError::Path);
    }
    let mut folder = dir.to_owned();
    for part in path.parent().iter().flat_map(|parent| parent.components()) {
        folder.push(part);
        if DirBuilder::new().mode(0o700).create(&folder).is_ok()
            && let Some(owner) = owner
        {
            chown(&folder, Some(owner.uid), Some(owner.gid))?;
        }
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(dir.join(path))?;
    // Shares blocks with the cache if the file system supports it.
    io::copy(&mut cached, &mut file)?;
    if let Some(owner) = owner {
        fchown(&file, Some(owner.uid), Some(owner.gid))?;
    }
    file.set_permissions(fs::Permissions::from_mode(if input.executable { 0o700 } else { 0o600 }))?;
    Ok(())
}

/// Removes the least recently used files of the cache until the rest fits, but no incomplete ones. Folders of executions
/// have their own copies.
fn prune(cache: &Path, bytes_max: u64, keep: &Path) {
    let Ok(entries) = fs::read_dir(cache) else { return };
    let is_complete =
        |entry: &fs::DirEntry| !entry.file_name().as_encoded_bytes().starts_with(PARTIAL.as_bytes());
    let mut files: Vec<_> = entries
        .flatten()
        .filter(is_complete)
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        })
        .collect();
    files.sort();
    let mut total: u64 = files.iter().map(|(_, len, _)| len).sum();
    for (_, len, path) in files.into_iter().filter(|(_, _, path)| path != keep) {
        if total <= bytes_max {
            return;
        }
        if fs::remove_file(&path).is_ok() {
            total -= len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(path: &str, executable: bool) -> InputFile {
        InputFile { artifact: "a".into(), path: path.into(), executable }
    }

    #[test]
    fn an_input_is_copied_into_the_folder_with_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let cached = dir.path().join("cached");
        fs::write(&cached, "#!/bin/sh\n").unwrap();
        let stage = dir.path().join("stage");
        make_stage(&stage).unwrap();
        let cached = File::open(cached).unwrap();
        copy_input(cached, &stage, &input("bin/deep/run", true), None).unwrap();
        let placed = stage.join("bin/deep/run");
        assert_eq!(fs::read(&placed).unwrap(), b"#!/bin/sh\n");
        assert_eq!(placed.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn an_input_whose_path_leaves_the_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let cached = dir.path().join("cached");
        fs::write(&cached, "x").unwrap();
        for path in ["../x", "/etc/x", "a/../../x"] {
            let (cached, stage) = (File::open(&cached).unwrap(), dir.path().join("stage"));
            let error = copy_input(cached, &stage, &input(path, false), None).unwrap_err();
            assert!(matches!(error, FetchError::Path), "{path}: {error}");
        }
    }

    #[test]
    fn the_cache_removes_the_least_recently_used_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, age: u64| {
            let path = dir.path().join(name);
            fs::write(&path, [0; 100]).unwrap();
            let modified = SystemTime::now() - Duration::from_secs(age);
            File::open(&path).unwrap().set_modified(modified).unwrap();
            path
        };
        let (old, mid, new) = (file("old", 30), file("mid", 20), file("new", 10));
        prune(dir.path(), 250, &new);
        assert!(!old.exists() && mid.exists() && new.exists());
        prune(dir.path(), 0, &new);
        assert!(!mid.exists() && new.exists(), "what was just fetched stays");
    }

    /// B10. Another fetch may prune the cache between the fetch of an input and its copy.
    #[test]
    fn an_input_that_was_removed_from_the_cache_is_still_copied() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        fs::create_dir(layout.cache()).unwrap();
        let mut partial = Partial::create(&layout).unwrap();
        partial.file.write_all(b"data").unwrap();
        let path = layout.cache().join("sha256-0");
        let fetched = [partial.keep(&path).unwrap(), touch(&path).unwrap()];
        prune(&layout.cache(), 0, Path::new("another"));
        assert!(!path.exists());
        for (number, file) in fetched.into_iter().enumerate() {
            let stage = dir.path().join(format!("stage-{number}"));
            make_stage(&stage).unwrap();
            copy_input(file, &stage, &input("in", false), None).unwrap();
            assert_eq!(fs::read(stage.join("in")).unwrap(), b"data");
        }
    }

    #[test]
    fn the_cache_removes_no_file_that_is_being_downloaded() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        fs::create_dir(layout.cache()).unwrap();
        let mut partial = Partial::create(&layout).unwrap();
        partial.file.write_all(b"data").unwrap();
        prune(&layout.cache(), 0, Path::new("another"));
        let path = layout.cache().join("sha256-0");
        partial.keep(&path).unwrap();
        assert!(path.exists());
    }

    #[test]
    fn a_sweep_removes_interrupted_downloads_but_no_staged_folder_of_a_held_execution() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        for name in ["held", "left"] {
            fs::create_dir_all(layout.stage().join(name).join("deep")).unwrap();
        }
        fs::create_dir(layout.cache()).unwrap();
        fs::write(layout.cache().join("partial-1-1"), "x").unwrap();
        fs::write(layout.cache().join("sha256-0"), "x").unwrap();
        sweep(
            &layout,
            &[JournaledExecution {
                execution_id: "held".into(),
                fence: 1,
                running: true,
                ..JournaledExecution::default()
            }],
        );
        assert!(layout.stage().join("held").exists() && !layout.stage().join("left").exists());
        assert!(layout.cache().join("sha256-0").exists() && !layout.cache().join("partial-1-1").exists());
    }

    #[test]
    fn a_partial_file_is_removed_on_drop() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        fs::create_dir(layout.cache()).unwrap();
        drop(Partial::create(&layout).unwrap());
        assert_eq!(fs::read_dir(layout.cache()).unwrap().count(), 0);
    }
}
