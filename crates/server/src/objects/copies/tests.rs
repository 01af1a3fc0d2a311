//! Several servers in this process, whose requests are calls.

use async_trait::async_trait;
use model::{ServerId, Timestamp};
use store::Housekeeping as _;
use store::query::{Artifact, DeletionReason};
use store::sqlite::{Options, SqliteStore};

use super::servers::ServersNow;
use super::*;
use crate::objects::ByteStream;

const KEY: &str = "logs/1f/exe_00000000000000000000000001.log";
const SHA: &str = "1f000000000000000000000000000000000000000000000000000000000000aa";

/// Servers of a cluster with one store.
struct Site {
    folder: tempfile::TempDir,
    store: Arc<SqliteStore>,
    nodes: Arc<Mutex<Vec<Node>>>,
}

struct Node {
    record: ServerRecord,
    copies: Option<Arc<Copies>>,
}

/// The other servers, as one of them sees them.
struct Calls {
    me: usize,
    nodes: Arc<Mutex<Vec<Node>>>,
}

impl Calls {
    fn copies_of(&self, server: &ServerRecord) -> Result<Arc<Copies>, ServerError> {
        let nodes = lock(&self.nodes);
        let node = nodes.iter().find(|node| node.record.id == server.id);
        node.and_then(|node| node.copies.clone()).ok_or_else(|| failed("reach", server, "it is down"))
    }
}

fn ok<T>(result: Result<T, ObjectError>, server: &ServerRecord) -> Result<T, ServerError> {
    result.map_err(|error| failed("use", server, error))
}

#[async_trait]
impl Servers for Calls {
    fn now(&self) -> ServersNow {
        let nodes = lock(&self.nodes);
        let others = nodes.iter().enumerate().filter(|(number, _)| *number != self.me);
        ServersNow { others: others.map(|(_, node)| node.record.clone()).collect(), total: nodes.len() }
    }

    async fn put(&self, to: &ServerRecord, key: &Key, file: &Path) -> Result<(), ServerError> {
        let bytes = std::fs::read(file).map_err(|error| failed("read for", to, error))?;
        let (size, copies) = (bytes.len() as u64, self.copies_of(to)?);
        let bytes = futures::stream::iter([Ok::<_, io::Error>(Bytes::from(bytes))]);
        ok(copies.receive(key, Some(size), bytes).await, to)
    }

    async fn get(&self, from: &ServerRecord, key: &Key) -> Result<Option<ByteStream>, ServerError> {
        let path = self.copies_of(from)?.folder.path(key);
        let Ok(bytes) = std::fs::read(path) else { return Ok(None) };
        Ok(Some(futures::stream::iter([Ok(Bytes::from(bytes))]).boxed()))
    }

    async fn size(&self, at: &ServerRecord, key: &Key) -> Result<Option<u64>, ServerError> {
        ok(self.copies_of(at)?.size_here(key).await, at)
    }

    async fn delete(&self, at: &ServerRecord, keys: &[Key]) -> Result<(), ServerError> {
        ok(self.copies_of(at)?.delete_here(keys).await, at)
    }

    async fn recent(&self, at: &ServerRecord, after: u64) -> Result<RecentKeys, ServerError> {
        Ok(self.copies_of(at)?.recent_after(after))
    }

    async fn folders(&self, at: &ServerRecord) -> Result<BTreeSet<String>, ServerError> {
        ok(self.copies_of(at)?.folders_here().await, at)
    }

    async fn names(
        &self,
        at: &ServerRecord,
        folder: &str,
        known: &str,
    ) -> Result<Option<BTreeSet<String>>, ServerError> {
        let names = ok(self.copies_of(at)?.names_here(folder).await, at)?;
        Ok((digest(&names) != known).then_some(names))
    }
}

impl Site {
    fn new(servers: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { shards: 1, ballast_bytes: 0, ..Options::default() };
        let store = Arc::new(SqliteStore::open(folder.path().join("store.db"), options).unwrap());
        let site = Self { folder, store, nodes: Arc::default() };
        for number in 0..servers {
            let record = ServerRecord {
                id: ServerId::from_bits(number as u128 + 1),
                name: format!("server-{number}"),
                url: None,
                version: "1".into(),
                started_at: Timestamp::default(),
                fingerprint: None,
            };
            lock(&site.nodes).push(Node { record, copies: None });
            site.start(number);
        }
        site
    }

    /// Starts a server over the files that it has.
    fn start(&self, number: usize) {
        self.start_at_rate(number, raft::machine::COPY_RATE);
    }

    fn start_at_rate(&self, number: usize, bytes_per_second: NonZeroU64) {
        let calls = Arc::new(Calls { me: number, nodes: Arc::clone(&self.nodes) });
        let root = self.folder.path().join(number.to_string());
        let copies = Copies::open(root, calls, Arc::clone(&self.store) as _, bytes_per_second).unwrap();
        lock(&self.nodes)[number].copies = Some(Arc::new(copies));
    }

    fn stop(&self, number: usize) {
        lock(&self.nodes)[number].copies = None;
    }

    fn copies(&self, number: usize) -> Arc<Copies> {
        lock(&self.nodes)[number].copies.clone().unwrap()
    }

    fn record(&self, number: usize) -> ServerRecord {
        lock(&self.nodes)[number].record.clone()
    }

    async fn put(&self, number: usize, key: &Key) -> Result<(), ObjectError> {
        let file = self.folder.path().join("file");
        std::fs::write(&file, "bytes").unwrap();
        self.copies(number).put_file(key, &file).await
    }

    async fn has(&self, number: usize, key: &Key) -> bool {
        self.copies(number).size_here(key).await.unwrap().is_some()
    }

    async fn wait_for(&self, number: usize, key: &Key, expected: bool) {
        let reached = async {
            while self.has(number, key).await != expected {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), reached).await.expect("soon");
    }

    /// Writes the row of an artifact.
    async fn put_row(&self) -> Artifact {
        let artifact = Artifact {
            namespace: "default".into(),
            name: "report".into(),
            sha256: SHA.into(),
            size_bytes: 5,
            created_at: Timestamp::default(),
            created_by: "ann".into(),
        };
        self.store.put_artifact(&artifact).await.unwrap();
        artifact
    }

    /// Lets an object have been stored two hours ago.
    fn age(&self, number: usize, key: &Key) {
        let file = std::fs::File::options().append(true).open(self.copies(number).folder.path(key)).unwrap();
        file.set_modified(SystemTime::now() - 2 * YOUNG).unwrap();
    }
}

fn log() -> Key {
    checked_key(KEY).unwrap()
}

fn artifact() -> Key {
    checked_key(&format!("artifacts/default/{SHA}")).unwrap()
}

#[tokio::test]
async fn an_object_reaches_all_servers() {
    let site = Site::new(3);
    site.put(1, &log()).await.unwrap();
    for number in 0..3 {
        site.wait_for(number, &log(), true).await;
        assert_eq!(site.copies(number).size(&log()).await.unwrap(), Some(5));
    }
    // One server alone needs no other one.
    let alone = Site::new(1);
    alone.put(0, &log()).await.unwrap();
    assert!(alone.copies(0).bring(&log()).await.unwrap());
    assert!(!alone.copies(0).bring(&artifact()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_object_is_stored_when_a_majority_has_it() {
    let site = Site::new(3);
    site.stop(2);
    site.put(0, &log()).await.unwrap();
    site.stop(1);
    let begun = Instant::now();
    let error = site.put(0, &artifact()).await.unwrap_err();
    assert!(begun.elapsed() >= PUT_PATIENCE);
    assert!(
        matches!(error, ObjectError::TooFewCopies { copies: 1, needed: 2, source: Some(_), .. }),
        "{error:?}"
    );
    // It waits for a server that is restarted.
    let restart = async {
        tokio::time::sleep(PUT_PATIENCE / 2).await;
        site.start(1);
    };
    let key = artifact();
    tokio::join!(site.put(0, &key), restart).0.unwrap();
    assert!(site.has(1, &artifact()).await);
}

#[tokio::test]
async fn a_server_reads_what_only_another_one_has() {
    let site = Site::new(3);
    site.stop(2);
    site.put(0, &log()).await.unwrap();
    site.start(2);
    assert_eq!(site.copies(2).size(&log()).await.unwrap(), Some(5));
    assert!(!site.has(2, &log()).await);
    assert!(site.copies(2).bring(&log()).await.unwrap());
    assert!(site.has(2, &log()).await, "it is a file of this server now");
}

#[tokio::test]
async fn an_object_is_absent_only_if_no_majority_can_have_it() {
    let site = Site::new(3);
    site.stop(1);
    // Servers 0 and 2 do not have it.
    assert_eq!(site.copies(0).size(&log()).await.unwrap(), None);
    site.stop(2);
    let error = site.copies(0).bring(&log()).await.unwrap_err();
    assert!(matches!(error, ObjectError::Elsewhere { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_that_was_cut_off_gets_what_it_missed() {
    let site = Site::new(3);
    let (copies, first) = (site.copies(2), site.record(0));
    let followed = copies.follow(&first, None).await.unwrap();
    site.stop(2);
    site.put(0, &log()).await.unwrap();
    // It was not restarted: no comparison, and no row is read.
    lock(&site.nodes)[2].copies = Some(copies);
    let followed = site.copies(2).follow(&first, Some(followed)).await.unwrap();
    assert!(site.has(2, &log()).await);
    // It does not ask again for the same.
    site.copies(2).remove_here(&log()).await.unwrap();
    site.copies(2).follow(&first, Some(followed)).await.unwrap();
    assert!(!site.has(2, &log()).await);
}

#[tokio::test(start_paused = true)]
async fn missed_objects_are_fetched_at_the_configured_rate_and_requested_ones_at_once() {
    let site = Site::new(3);
    site.stop(2);
    for key in [log(), artifact()] {
        site.put(0, &key).await.unwrap();
    }
    site.put_row().await;
    // Each object has five bytes.
    site.start_at_rate(2, NonZeroU64::new(1).unwrap());
    let begun = Instant::now();
    assert!(site.copies(2).bring(&log()).await.unwrap());
    assert!(begun.elapsed() < Duration::from_secs(1));
    let begun = Instant::now();
    site.copies(2).follow(&site.record(0), None).await.unwrap();
    assert!(site.has(2, &artifact()).await);
    assert!(begun.elapsed() >= Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_started_server_gets_the_objects_that_rows_need() {
    let site = Site::new(2);
    site.put(0, &log()).await.unwrap();
    site.put(0, &artifact()).await.unwrap();
    site.put_row().await;
    site.stop(1);
    std::fs::remove_dir_all(site.folder.path().join("1")).unwrap();
    site.start(1);
    site.copies(1).follow(&site.record(0), None).await.unwrap();
    assert!(site.has(1, &artifact()).await);
    assert!(!site.has(1, &log()).await, "no execution has it");
}

#[tokio::test]
async fn a_comparison_removes_only_old_objects_that_no_row_needs() {
    let site = Site::new(2);
    for key in [log(), artifact()] {
        site.put(0, &key).await.unwrap();
        site.copies(1).remove_here(&key).await.unwrap();
    }
    let compare = async || {
        site.copies(0).follow(&site.record(1), None).await.unwrap();
        (site.has(0, &log()).await, site.has(0, &artifact()).await)
    };
    assert_eq!(compare().await, (true, true), "they are young");
    site.age(0, &log());
    site.age(0, &artifact());
    let row = site.put_row().await;
    assert_eq!(compare().await, (false, true), "the row needs the artifact");
    site.store.delete_artifact(&row, DeletionReason::Request).await.unwrap();
    assert_eq!(compare().await, (false, false));
}

#[tokio::test]
async fn a_deletion_reaches_the_others_unless_the_object_may_be_needed() {
    let site = Site::new(2);
    for key in [log(), artifact()] {
        site.put(0, &key).await.unwrap();
        site.wait_for(1, &key, true).await;
    }
    let running = site.copies(0);
    let running = tokio::spawn(async move { running.run().await });
    site.copies(0).delete(&artifact()).await.unwrap();
    site.copies(0).delete(&log()).await.unwrap();
    site.wait_for(1, &log(), false).await;
    assert!(site.has(1, &artifact()).await, "it was stored just now");
    assert!(!site.has(0, &artifact()).await);
    running.abort();
    site.age(1, &artifact());
    site.copies(1).delete_here(&[artifact()]).await.unwrap();
    assert!(!site.has(1, &artifact()).await);
}

/// A version is stored again while another server deletes it.
#[tokio::test]
async fn an_artifact_that_is_stored_again_stays() {
    let site = Site::new(2);
    site.put(0, &artifact()).await.unwrap();
    let followed = site.copies(1).follow(&site.record(0), None).await.unwrap();
    site.age(0, &artifact());
    assert!(site.copies(0).store_again(&artifact(), 5).await.unwrap());
    assert!(!site.copies(0).store_again(&artifact(), 6).await.unwrap(), "other bytes");
    // The other server has decided before the row was written.
    site.copies(1).delete(&artifact()).await.unwrap();
    site.copies(0).delete_here(&[artifact()]).await.unwrap();
    assert!(site.has(0, &artifact()).await);
    site.copies(1).follow(&site.record(0), Some(followed)).await.unwrap();
    assert!(site.has(1, &artifact()).await);
}

#[tokio::test]
async fn an_object_that_arrives_incompletely_is_not_stored() {
    let site = Site::new(1);
    let bytes = || futures::stream::iter([Ok::<_, io::Error>(Bytes::from("half"))]);
    let copies = site.copies(0);
    let error = copies.receive(&log(), Some(8), bytes()).await.unwrap_err();
    assert!(matches!(error, ObjectError::Interrupted { .. }), "{error:?}");
    let broken = bytes().chain(futures::stream::iter([Err(io::Error::other("cut"))]));
    copies.receive(&log(), None, broken).await.unwrap_err();
    assert!(!site.has(0, &log()).await);
    let left = std::fs::read_dir(site.folder.path().join("0/incoming")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn keys_of_other_servers_stay_in_the_folder() {
    assert!(checked_key(KEY).is_some());
    for bad in
        ["", "logs", "logs/x", "logs/../x", "../logs/x", "secrets/a/b", "logs/a/b/c", "logs/a/b#1", "logs//b"]
    {
        assert_eq!(checked_key(bad), None, "{bad}");
    }
    assert_eq!(checked_folder("logs/1f").as_deref(), Some("logs/1f"));
    assert_eq!(checked_folder("logs/../.."), None);
    assert_eq!(checked_folder("logs"), None);
}

#[test]
fn a_server_remembers_a_bounded_number_of_recent_objects() {
    let mut recent = Recent::default();
    assert_eq!(recent.after(0), RecentKeys { next: 0, keys: Some(Vec::new()) });
    assert_eq!(recent.after(7).keys, None, "a position of an earlier process");
    for _ in 0..RECENT_MAX + 3 {
        recent.add(&log());
    }
    assert_eq!(recent.after(2).keys, None);
    let page = recent.after(3);
    assert_eq!((page.next, page.keys.map(|keys| keys.len())), (3 + KEYS_MAX as u64, Some(KEYS_MAX)));
    assert_eq!(recent.after(u64::MAX), RecentKeys { next: RECENT_MAX as u64 + 3, keys: None });
}
