//! A server of a Raft cluster whose disk is lost is replaced, while the others work.
//!
//! The new server needs a copy of the whole store, because the log no longer has the first jobs. Measures how much slower jobs
//! go through the whole path meanwhile, and how long the copy takes. All servers share the cores of one machine, so the
//! receiver takes part of the time of the others: on machines of their own they lose less.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use harness::{Membership, Server, until};
use model::api::{ClusterMember, MemberRole};

use crate::environment::Store;
use crate::noop::Path;
use crate::report::{Figure, Goal};

/// Longest time until the new server has everything.
const LONG: Duration = Duration::from_secs(1_800);
/// Jobs of a comparison for each second.
const RATE: u64 = 10_000;

/// `history` is the number of jobs that have ended before.
pub(crate) async fn run(time: Duration, history: usize) -> anyhow::Result<Vec<Figure>> {
    let mut path = Path::shared(Store::Raft, 3).await?;
    path.pass(history as u64).await?;
    let client = path.server(0).client();
    let lost = path.take_last().context("there are three servers")?;
    let jobs = RATE * time.as_secs();
    let before = path.pass(jobs).await?;

    let mut new = replace(&path, lost).await?;
    let begun = Instant::now();
    new.spawn();
    let is_joined = Cell::new(false);
    let joining = async {
        let bytes = until("the new server gets a copy", LONG, async || {
            let copying = members(&client).await?.into_iter().find_map(|member| member.copying);
            copying.map(|copying| copying.total.0)
        })
        .await;
        until("the new server votes", LONG, async || {
            let all = members(&client).await?;
            let voters = all.iter().filter(|member| member.running && member.role != MemberRole::Learner);
            (voters.count() == 3).then_some(())
        })
        .await;
        is_joined.set(true);
        (bytes, begun.elapsed())
    };
    let working = async {
        let mut during = Vec::new();
        while !is_joined.get() {
            during.push(path.pass(jobs / 4).await?);
        }
        anyhow::Ok(during)
    };
    let ((bytes, took), during) = tokio::join!(joining, working);
    let during = during?;
    until("the new server has what was stored meanwhile", LONG, async || {
        let all = members(&client).await?;
        all.iter().all(|member| member.missing_entries < 1_000).then_some(())
    })
    .await;
    let complete = begun.elapsed();
    let (passed, seconds) = during
        .iter()
        .fold((0, 0.0), |(jobs, seconds), passed| (jobs + passed.jobs, seconds + passed.ended.as_secs_f64()));
    let rate = passed as f64 / seconds;
    Ok(vec![
        Figure::new("jobs through the whole path, before", before.rate(), "jobs/s", Goal::None),
        Figure::new("the same, while another server gets a copy", rate, "jobs/s", Goal::None),
        Figure::new("of the rate before", rate / before.rate(), "", Goal::AtLeast(0.9)),
        Figure::new("size of the copy", bytes as f64 / 1e6, "MB", Goal::None),
        Figure::new("until the new server votes", took.as_secs_f64(), "s", Goal::None),
        Figure::new("until it has everything", complete.as_secs_f64(), "s", Goal::None),
    ])
}

async fn members(client: &client::Client) -> Option<Vec<ClusterMember>> {
    client.cluster_members().await.ok()
}

/// Removes a server whose disk is lost from the cluster; returns a new one, which is not started.
async fn replace(path: &Path, mut lost: Server) -> anyhow::Result<Server> {
    let client = path.server(0).client();
    lost.kill().await;
    let address = lost.address().to_string();
    until("the lost server is removed", LONG, async || {
        let lost = members(&client).await?.into_iter().find(|member| member.address == address);
        match lost {
            Some(member) => {
                // Refused as long as it seems to run.
                let _ = client.remove_cluster_member(&member.id).await;
                None
            }
            None => Some(()),
        }
    })
    .await;
    let first = path.server(0);
    let data = lost.data().with_extension("new");
    let log = data.with_extension("log");
    let new = Server::new(&data, &log, &[("BELFRY_LOG", "warn")]);
    Ok(new.with_raft(Membership::Joins(first.address(), first.join_token())))
}
