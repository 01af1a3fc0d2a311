//! A Raft cluster whose leader is cut off: the kernel drops packets between it and the other servers.
//!
//! ```text
//!   namespace          │ this machine
//!   server a, leader ──╳── server b, server c
//! ```
//!
//! The connections of the servers stay open meanwhile, and nothing tells either side that packets are lost. The tests are
//! skipped where the process may not create network namespaces.

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Timeouts};
use harness::network::{Branch, Cut};
use harness::{Membership, Server, until};
use model::JobSpec;

/// Maximum wait for anything, on a machine with other tests.
const SOON: Duration = Duration::from_secs(60);
/// Maximum time until a server that was cut off answers again. TCP alone would wait about as long as it was cut off.
const BACK: Duration = Duration::from_secs(20);

fn client_of(server: &Server, token: &str) -> Client {
    client::install_crypto();
    let patience = Timeouts { retry_for: SOON, response_timeout: SOON, ..Timeouts::default() };
    Client::with_patience(&server.url(), Some(token), patience).unwrap()
}

/// Drops packets as `cuts` say for a time. Nothing that was acknowledged is lost, and all servers agree afterwards.
async fn cut_off(cuts: &[Cut], lasts: Duration) {
    let branch = match Branch::make() {
        Ok(branch) => Arc::new(branch),
        Err(reason) => return eprintln!("skipped: no network namespaces: {reason}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let settings = [("BELFRY_SERVER__INSECURE", "true")];
    let server = |name: &str| {
        Server::new(&folder.path().join(name), &folder.path().join(format!("{name}.log")), &settings)
    };
    let mut first = server("a").with_raft(Membership::First);
    first.within(&branch);
    first.restart().await;
    let mut others = Vec::new();
    for (name, servers) in [("b", 2), ("c", 3)] {
        let joins = Membership::Joins(first.address(), first.join_token());
        let mut other = server(name).with_raft(joins);
        other.listen_at(branch.here());
        other.spawn();
        other.until_listed(&first, servers).await;
        others.push(other);
    }
    let token = first.token().unwrap();
    let [at_first, at_second, at_third] =
        [&first, &others[0], &others[1]].map(|server| client_of(server, &token));
    let before = at_first.submit(&JobSpec::command(["true"])).await.unwrap().id;

    for cut in cuts {
        branch.cut(*cut);
    }
    let since = tokio::time::Instant::now();
    // Any of the two accepts it, as soon as one of them leads.
    let during = at_second.submit(&JobSpec::command(["true"])).await.unwrap().id;
    assert_eq!(at_third.job(during).await.unwrap().id, during);
    assert_eq!(at_third.job(before).await.unwrap().id, before, "acknowledged by the leader that is cut off");
    tokio::time::sleep_until(since + lasts).await;
    for cut in cuts {
        branch.mend(*cut);
    }

    let back = tokio::time::timeout(BACK, at_first.job(during)).await;
    let back = back.expect("the server that was cut off answers soon").unwrap();
    assert_eq!(back.id, during);
    let after = at_first.submit(&JobSpec::command(["true"])).await.unwrap().id;
    for client in [&at_first, &at_second, &at_third] {
        for job in [before, during, after] {
            assert_eq!(client.job(job).await.unwrap().id, job);
        }
    }
    until("one server leads", SOON, async || {
        let servers = at_second.servers().await.ok()?;
        (servers.len() == 3 && servers.iter().filter(|server| server.leader).count() == 1).then_some(())
    })
    .await;
}

/// D5, D7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_for_long_is_replaced_and_comes_back() {
    cut_off(&[Cut::FromThere, Cut::ToThere], Duration::from_secs(25)).await;
}

/// D5, D7. The others hear nothing from the leader, which hears them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_packets_are_lost_is_replaced() {
    cut_off(&[Cut::FromThere], Duration::from_secs(6)).await;
}

/// D5, D7. The leader hears nothing from the others, which hear it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_gets_no_packets_is_replaced() {
    cut_off(&[Cut::ToThere], Duration::from_secs(6)).await;
}
