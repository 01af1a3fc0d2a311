//! The leader of three servers is killed, again and again.
//!
//! `CHAOS_KILLS` says how often (`make chaos` sets it).

use harness::until;
use model::Timestamp;

use super::resumed::{self, Resumed};
use super::rows::Kept;
use super::{RECOVERY, Storm, from_env};

/// How often in `make test`.
const KILLS: u64 = 3;
const KILL: &str = "kill leader";

impl Storm {
    /// Kills it, and returns when.
    async fn kill_the_leader(&mut self) -> Timestamp {
        let client = self.scene.site.client();
        let leader = until("a server leads", RECOVERY, async || {
            let servers = client.servers().await.ok()?;
            servers.into_iter().find(|server| server.leads)?.url
        })
        .await;
        let since = self.load.recorder.now();
        self.load.recorder.fault(KILL, true);
        let mut servers = self.scene.site.servers_mut();
        let leader = servers.find(|server| server.url() == leader).expect("it is one of ours");
        leader.kill().await;
        drop(servers);
        self.load.recorder.fault(KILL, false);
        self.count(KILL);
        since
    }

    /// One after the other until all are there again: two that are left would not notice a third that stays away.
    async fn bring_back(&mut self) {
        self.scene.site.servers_mut().for_each(|server| server.ensure_running());
        let client = self.scene.site.client();
        until("three servers are there, and one leads", RECOVERY, async || {
            let servers = client.servers().await.ok()?;
            (servers.len() == 3 && servers.iter().any(|server| server.leads)).then_some(())
        })
        .await;
    }
}

/// D6. Another one leads within moments; nothing is lost and nothing is doubled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_again_and_again_costs_nothing_but_moments() {
    let kills = from_env("CHAOS_KILLS", KILLS);
    let mut storm = Storm::gather("leaders", 0, Kept::InPostgres).await;
    let mut times: Vec<Resumed> = Vec::new();
    for number in 0..kills {
        times.push(storm.resumes_after(number, Storm::kill_the_leader).await);
        storm.bring_back().await;
        storm.until_it_gets_on().await;
    }
    resumed::show("kills", "the leader was killed", &times);
    storm.judge().await;
}
