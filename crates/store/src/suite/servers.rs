//! Rules for membership and shared secrets.

use model::{Duration, ServerId, Timestamp};

use super::{Fixture, SHARDS, Subject};
use crate::cluster::{Fingerprint, ServerRecord};

const MINUTE: Duration = Duration::from_secs(60);

fn server(number: u128, name: &str) -> ServerRecord {
    ServerRecord {
        id: ServerId::from_bits(number << 80),
        name: name.into(),
        url: (number > 1).then(|| "https://钟.example:7070".into()),
        version: "1.2.3".into(),
        started_at: Timestamp::from_millis(7),
        fingerprint: (number > 1).then_some(Fingerprint([0xfe; 32])),
    }
}

/// G5, D6.
pub async fn a_server_is_registered_until_its_ttl_expires<S: Subject>() {
    let subject = S::make().await;
    let store = subject.store();
    assert_eq!(store.cluster().await.unwrap().members, []);
    let (one, two) = (server(1, "one"), server(2, "two"));
    store.announce(&two, None, MINUTE).await.unwrap();
    store.announce(&one, None, MINUTE).await.unwrap();
    let found = store.cluster().await.unwrap().members;
    let servers: Vec<_> = found.iter().map(|member| member.server.clone()).collect();
    assert_eq!(servers, [one.clone(), two.clone()]);
    assert!(found.iter().all(|m| !m.draining && m.expires_in > Duration::ZERO && m.expires_in <= MINUTE));

    subject.advance(Duration::from_secs(40));
    let renamed = ServerRecord { name: "uno".into(), ..one };
    store.announce(&renamed, None, MINUTE).await.unwrap();
    subject.advance(Duration::from_secs(40));
    let found = store.cluster().await.unwrap().members;
    assert_eq!(found.into_iter().map(|member| member.server).collect::<Vec<_>>(), [renamed]);
}

/// G5.
pub async fn a_deregistered_server_disappears_immediately<S: Subject>() {
    let subject = S::make().await;
    let store = subject.store();
    store.announce(&server(1, "one"), None, MINUTE).await.unwrap();
    store.remove_member(server(1, "one").id).await.unwrap();
    store.remove_member(server(2, "never there").id).await.unwrap();
    assert_eq!(store.cluster().await.unwrap().members, []);
}

/// G5. The last announcement is valid.
pub async fn the_lag_of_a_server_is_listed<S: Subject>() {
    let subject = S::make().await;
    let store = subject.store();
    let one = server(1, "one");
    let lag = async || store.cluster().await.unwrap().member(one.id).unwrap().lag;
    store.announce(&one, None, MINUTE).await.unwrap();
    assert_eq!(lag().await, None);
    store.announce(&one, Some(Duration::from_millis(250)), MINUTE).await.unwrap();
    assert_eq!(lag().await, Some(Duration::from_millis(250)));
    store.announce(&one, None, MINUTE).await.unwrap();
    assert_eq!(lag().await, None);
}

/// D8. It outlives the next announcement, but not the registration.
pub async fn draining_lasts_until_it_is_revoked<S: Subject>() {
    let subject = S::make().await;
    let store = subject.store();
    let one = server(1, "one");
    assert!(!store.set_draining(one.id, true).await.unwrap(), "there is no such server");
    store.announce(&one, None, MINUTE).await.unwrap();
    assert!(store.set_draining(one.id, true).await.unwrap());
    store.announce(&one, None, MINUTE).await.unwrap();
    assert!(store.cluster().await.unwrap().member(one.id).unwrap().draining);
    assert!(store.set_draining(one.id, false).await.unwrap());
    assert!(!store.cluster().await.unwrap().member(one.id).unwrap().draining);
    store.set_draining(one.id, true).await.unwrap();
    subject.advance(MINUTE);
    assert!(!store.set_draining(one.id, true).await.unwrap(), "it is gone");
}

/// G5.
pub async fn the_owner_of_each_shard_is_listed<S: Subject>() {
    let subject = S::make().await;
    let store = subject.store();
    let one = server(1, "one");
    store.announce(&one, None, MINUTE + MINUTE).await.unwrap();
    let leases = store.acquire(&SHARDS[..2], &one.id.to_string(), MINUTE).await.unwrap();
    let cluster = store.cluster().await.unwrap();
    assert_eq!(cluster.shards.len(), usize::from(store.shards()));
    for lease in &leases {
        assert_eq!(cluster.owner_of(lease.shard).unwrap().server, one);
        let row = cluster.shards.iter().find(|row| row.shard == lease.shard).unwrap();
        assert_eq!((row.epoch, row.owner.clone()), (lease.epoch, Some(one.id.to_string())));
        assert!(row.expires_in > Duration::ZERO && row.expires_in <= MINUTE);
    }
    assert_eq!(cluster.owner_of(SHARDS[2]), None);

    store.release(&leases[..1]).await.unwrap();
    assert_eq!(store.cluster().await.unwrap().owner_of(SHARDS[0]), None);
    subject.advance(MINUTE);
    let cluster = store.cluster().await.unwrap();
    assert_eq!(cluster.owner_of(SHARDS[1]), None, "its lease ran out");
    assert_eq!(cluster.members.len(), 1);
}

/// H2. The first call decides.
pub async fn all_servers_read_the_same_secret<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    let store = scene.store();
    assert_eq!(store.secret("a", &[1; 32]).await.unwrap(), [1; 32]);
    assert_eq!(store.secret("a", &[2; 32]).await.unwrap(), [1; 32]);
    assert_eq!(store.secret("b", &[2; 32]).await.unwrap(), [2; 32]);
    assert_eq!(scene.reopen().await.store().secret("a", &[3; 32]).await.unwrap(), [1; 32]);
}
