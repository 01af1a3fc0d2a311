//! A database on a full volume: a small file system in memory.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::suite::cluster::Settings;
use crate::{Commits as _, Housekeeping as _, Leases as _};

/// Mounted file system, unmounted at the end.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    /// Returns `None` if this user may not mount.
    fn of_user(folder: &'a Path, uid: u32) -> Option<Self> {
        let options = format!("size=64m,mode=700,uid={uid}");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "belfry-test"]).arg(folder).output();
        let mounted = mount.is_ok_and(|output| output.status.success());
        if !mounted {
            println!("skipped: a file system cannot be mounted here");
        }
        mounted.then_some(Self(folder))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// F7. An update of an existing row succeeds on a full volume. A check that relies on it would report that the store
/// accepts writes, until the next job arrives.
#[tokio::test]
async fn a_full_volume_is_full_until_a_table_can_grow() {
    let cluster = Cluster::start(&Settings::default());
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let user = fs::metadata(cluster.data()).unwrap().uid();
    let Some(_mounted) = Mounted::of_user(&disk, user) else { return };
    let (client, connection) = tokio_postgres::connect(&cluster.url("postgres"), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("CREATE TABLESPACE small LOCATION '{}'", disk.display())).await.unwrap();
    client.batch_execute("CREATE DATABASE small TABLESPACE small").await.unwrap();

    let store = PostgresStore::open(&cluster.url("small"), options()).await.unwrap();
    let leases = store.acquire(&SHARDS, "test", HOUR).await.unwrap();
    let filler = disk.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut file, &[0; 1 << 16]).is_ok() {}
    let mut sampler = Sampler::new(71);
    let refused = loop {
        match store.commit(&leases, batch(&mut sampler, SHARDS[0], 100).1).await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Full), "{refused:?}");
    for _ in 0..3 {
        let checked = store.check().await;
        assert!(matches!(checked, Err(StoreError::Full)), "{checked:?}");
    }

    fs::remove_file(&filler).unwrap();
    drop(file);
    store.check().await.unwrap();
    store.commit(&leases, batch(&mut sampler, SHARDS[0], 100).1).await.unwrap();
}
