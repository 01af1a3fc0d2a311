//! New servers join a cluster with its token, and no others do.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, FutureExt as _};

use super::super::joining::{Joined, ask};
use super::super::{JoinFailed, RaftStore};
use super::{Servers, Start, within};
use crate::net::BoxStream;
use crate::net::join::{Channel, JoinRequest, JoinToken, JoinTransport};
use crate::node::{Member, Role};
use crate::types::{NodeId, Peer};

const SECRET: [u8; 32] = [7; 32];

fn key(node: NodeId) -> [u8; 32] {
    [u8::try_from(node.0).unwrap(); 32]
}

fn address(node: NodeId) -> String {
    format!("server-{node}:1")
}

fn peer(node: NodeId) -> Peer {
    Peer { address: address(node), fingerprint: key(node), name: format!("server {}", node.0) }
}

fn request(node: NodeId) -> JoinRequest {
    JoinRequest { node, peer: peer(node), program: "test".into() }
}

/// Servers by their addresses.
type Addresses = HashMap<String, (NodeId, Arc<RaftStore>)>;

/// Connections to the servers of a test, from a server with this key.
#[derive(Clone)]
struct Doors {
    own_key: [u8; 32],
    servers: Arc<Mutex<Addresses>>,
}

impl JoinTransport for Doors {
    fn connect(&self, address: &str) -> BoxFuture<'_, io::Result<(BoxStream, Channel)>> {
        let found = self.servers.lock().unwrap().get(address).cloned();
        let own_key = self.own_key;
        async move {
            let (node, store) = found.ok_or(io::ErrorKind::ConnectionRefused)?;
            let (near, far) = tokio::io::duplex(16 * 1024);
            let ends = Channel { binding: [3; 32], own_key, other_key: key(node) };
            let other = Channel { own_key: ends.other_key, other_key: ends.own_key, ..ends };
            tokio::spawn(async move { store.serve_join(Box::new(far), &other).await });
            Ok((Box::new(near) as BoxStream, ends))
        }
        .boxed()
    }
}

fn doors(servers: &Servers, from: NodeId) -> Doors {
    let door = |at: usize| {
        let id = servers.servers[at].id;
        (address(id), (id, Arc::clone(servers.store(at))))
    };
    let all = servers.running().map(door).collect();
    Doors { own_key: key(from), servers: Arc::new(Mutex::new(all)) }
}

async fn token(servers: &Servers) -> JoinToken {
    within("the token is stored", servers.store(0).join_token(&SECRET)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_join_the_first_one_and_vote() {
    let mut servers = Servers::one_at(peer).await;
    let token = token(&servers).await;
    assert_eq!(token.cluster, super::CLUSTER);
    for _ in 0..2 {
        let id = NodeId(servers.servers.len() as u64 + 1);
        let (doors, request) = (doors(&servers, id), request(id));
        // The second one asks a follower first, which names the leader.
        let addresses: Vec<_> = servers.servers.iter().rev().map(|server| address(server.id)).collect();
        let joined = within("it is a member", ask(&doors, &addresses, &token, &request)).await.unwrap();
        let Joined { shards, is_voter, members } = joined;
        assert_eq!((shards, is_voter), (servers.store(0).shards, false));
        assert!(members.contains(&(id, peer(id))) && members.contains(&(NodeId(1), peer(NodeId(1)))));
        let at = servers.add(Start::Join).await;
        let store = Arc::clone(servers.store(at));
        within("it votes", store.become_voter(&doors, &addresses, &token, &request)).await.unwrap();
        assert_ne!(store.status().role, Role::Learner);
    }
    let members = servers.store(0).status().members;
    assert_eq!(members.iter().filter(|member| member.is_voter).count(), 3);
    // Again, as after a restart in the middle of it.
    let id = servers.servers[2].id;
    let again = ask(&doors(&servers, id), &[address(NodeId(1))], &token, &request(id)).await.unwrap();
    assert!(again.is_voter);
}

/// Three servers can be started at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_joins_while_another_one_begins_to_vote_waits() {
    let mut servers = Servers::one_at(peer).await;
    let (token, first) = (token(&servers).await, Arc::clone(servers.store(0)));
    let (second, third) = (NodeId(2), NodeId(3));
    first.add_learner(second, peer(second)).await.unwrap();
    let promoting = tokio::spawn({
        let first = Arc::clone(&first);
        async move { first.promote(second).await }
    });
    let begun = async {
        while !first.status().members.iter().any(|member| member.node == second && member.is_voter) {
            tokio::task::yield_now().await;
        }
    };
    within("the change has begun; it waits for the second server", begun).await;
    let (doors, request) = (doors(&servers, third), request(third));
    let joining = tokio::spawn(async move { ask(&doors, &[address(NodeId(1))], &token, &request).await });
    assert_eq!(servers.add(Start::Join).await, 1);
    let joined = within("the third server is a member", joining).await.unwrap();
    assert!(joined.is_ok(), "{joined:?}");
    promoting.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_the_secret_or_with_anothers_identity_is_refused() {
    let servers = Servers::one_at(peer).await;
    let token = token(&servers).await;
    let (new, first) = (NodeId(5), servers.servers[0].id);
    let doors = doors(&servers, new);
    let at = [address(first)];
    let guessed = JoinToken { secret: [8; 32], ..token.clone() };
    let failed = ask(&doors, &at, &guessed, &request(new)).await.unwrap_err();
    assert!(matches!(&failed, JoinFailed::Untrusted { reason, .. } if reason.contains("secret")), "{failed}");
    let refused = |node: NodeId, peer: Peer| {
        let (doors, token, at) = (doors.clone(), token.clone(), at.clone());
        async move {
            let request = JoinRequest { node, peer, program: "test".into() };
            match ask(&doors, &at, &token, &request).await {
                Err(JoinFailed::Refused { reason, .. }) => reason,
                other => panic!("it was not refused: {other:?}"),
            }
        }
    };
    let foreign_key = Peer { fingerprint: [99; 32], ..peer(new) };
    assert!(refused(new, foreign_key).await.contains("another key than it has proved"));
    assert!(refused(first, peer(new)).await.contains("its data folder was copied"));
    let same_address = Peer { address: address(first), ..peer(new) };
    assert!(refused(new, same_address).await.contains("the same address"));
    assert_eq!(servers.store(0).status().members.len(), 1, "nothing was changed");
    let nowhere = ask(&doors, &["server-x:1".into()], &token, &request(new)).await.unwrap_err();
    assert!(nowhere.to_string().contains("`server-x:1`"), "{nowhere}");
}

/// A running server would not know that it was removed, and a change needs a majority before and after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_removed_only_when_its_server_has_ended() {
    let mut servers = Servers::three().await;
    let ids: Vec<_> = servers.servers.iter().map(|server| server.id).collect();
    let refused =
        async |servers: &Servers, node| servers.store(0).remove(node).await.unwrap_err().to_string();
    let answers = async {
        while !servers.store(0).status().members.iter().all(Member::is_reachable) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within("all members answer", answers).await;
    assert!(refused(&servers, ids[2]).await.contains("still runs"));
    assert!(refused(&servers, NodeId(99)).await.contains("no member"));
    let follower = servers.store(1).remove(ids[2]).await.unwrap_err();
    assert!(follower.to_string().contains("does not lead"), "{follower}");
    let remove = async |servers: &Servers, node| {
        while let Err(error) = servers.store(0).remove(node).await {
            if !error.to_string().contains("still runs") {
                return Err(error.to_string());
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        Ok(())
    };
    servers.stop(2).await;
    within("it is removed", remove(&servers, ids[2])).await.unwrap();
    assert_eq!(servers.store(0).status().members.len(), 2);
    servers.stop(1).await;
    let alone = within("it is refused", remove(&servers, ids[1])).await.unwrap_err();
    assert!(alone.contains("only 1 of 2 voters"), "{alone}");
}
