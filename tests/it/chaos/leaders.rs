//! Kills the leader of three servers repeatedly.
//!
//! `CHAOS_KILLS` sets the number of kills (set by `make chaos`).

use harness::until;
use model::Timestamp;

use super::resumed::{self, Resumed};
use super::rows::StoreKind;
use super::{RECOVERY, Storm, from_env};

/// Default number of kills, for `make test`.
const KILLS: u64 = 2;
const KILL: &str = "kill leader";

impl Storm {
    /// Kills the leader, and returns the time.
    async fn kill_the_leader(&mut self) -> Timestamp {
        let client = self.scene.site.client();
        let leader = until("a server leads", RECOVERY, async || {
            let servers = client.servers().await.ok()?;
            servers.into_iter().find(|server| server.leader)?.url
        })
        .await;
        let since = self.load.recorder.now();
        self.load.recorder.fault(KILL, true);
        let mut servers = self.scene.site.servers_mut();
        let leader = servers.find(|server| server.advertised_url() == leader).expect("a server of this site");
        leader.kill().await;
        drop(servers);
        self.load.recorder.fault(KILL, false);
        self.count(KILL);
        since
    }

    /// Restarts servers one after the other until all are ready: two servers would not notice that a third stays
    /// down.
    async fn bring_back(&mut self) {
        self.scene.site.servers_mut().for_each(|server| server.ensure_running());
        let client = self.scene.site.client();
        until("three servers are present, and one leads", RECOVERY, async || {
            let servers = client.servers().await.ok()?;
            (servers.len() == 3 && servers.iter().any(|server| server.leader)).then_some(())
        })
        .await;
    }
}

/// Kills the leader repeatedly. Another server takes over within moments; nothing is lost or duplicated.
async fn kill_leaders(name: &'static str, kept: StoreKind) {
    let kills = from_env("CHAOS_KILLS", KILLS);
    let mut storm = Storm::start_storm(name, 0, kept).await;
    let mut times: Vec<Resumed> = Vec::new();
    for number in 0..kills {
        times.push(storm.resumes_after(number, Storm::kill_the_leader).await);
        storm.bring_back().await;
        storm.until_progress().await;
    }
    resumed::show("kills", "the leader was killed", &times);
    storm.judge().await;
}

/// D6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_resumes_within_moments_after_each_leader_kill() {
    kill_leaders("leaders", StoreKind::InPostgres).await;
}

/// D6, D8. Without a database beside them, the servers elect another leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_resumes_within_moments_after_each_kill_of_an_elected_leader() {
    kill_leaders("elected-leaders", StoreKind::InRaft).await;
}
