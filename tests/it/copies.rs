//! Logs and artifacts of a cluster without other storage: each server has a copy.

use std::path::Path;
use std::time::Duration;

use client::{Client, LogQuery, LogSource, Timeouts};
use futures::TryStreamExt as _;
use harness::{Server, Site, until};
use model::{JobId, JobSpec, JobStatus};
use store::suite::cluster::Cluster;

/// Maximum wait for anything, on a machine with other tests.
const SOON: Duration = Duration::from_secs(60);
/// A log of some bytes, and one that is sent in pieces.
const LINES: [u64; 2] = [3, 40_000];

fn client_of(server: &Server, token: &str) -> Client {
    client::install_crypto();
    let patience = Timeouts { retry_for: SOON, response_timeout: SOON, ..Timeouts::default() };
    Client::with_patience(&server.url(), Some(token), patience).unwrap()
}

/// Runs a job that prints lines.
async fn print(site: &Site, lines: u64) -> JobId {
    let job = site.submit(&JobSpec::command(["seq", &lines.to_string()])).await;
    site.until_status(job, JobStatus::Succeeded).await;
    job
}

/// Reads the whole log of a job; `None` while the server does not have it.
async fn read(client: &Client, job: JobId) -> Option<Vec<String>> {
    let entries = client.all_logs(LogSource::Job(job, None), LogQuery::default());
    let texts: Vec<String> = entries.map_ok(|entry| entry.text).try_collect().await.ok()?;
    let lines: Vec<_> = texts.concat().lines().map(str::to_owned).collect();
    (!lines.is_empty()).then_some(lines)
}

async fn until_read(client: &Client, job: JobId, lines: u64) {
    let expected: Vec<String> = (1..=lines).map(|line| line.to_string()).collect();
    until("the log can be read completely", SOON, async || {
        (read(client, job).await? == expected).then_some(())
    })
    .await;
}

/// Returns the number of complete logs in a data directory.
fn logs_in(data: &Path) -> usize {
    let folders = std::fs::read_dir(data.join("objects/logs")).into_iter().flatten().flatten();
    folders.map(|folder| std::fs::read_dir(folder.path()).map_or(0, Iterator::count)).sum()
}

/// Removes the data directory of the leader, and lets the others have its work.
async fn lose_the_leader(site: &mut Site) -> Vec<JobId> {
    site.add_worker_behind_proxies().await;
    let mut jobs = Vec::new();
    for lines in LINES {
        jobs.push(print(site, lines).await);
    }
    let token = site.server.token().unwrap();
    let folders: Vec<_> = site.servers().map(|server| server.data().to_owned()).collect();
    until("every server has both logs", SOON, async || {
        folders.iter().all(|folder| logs_in(folder) == LINES.len()).then_some(())
    })
    .await;
    site.server.kill().await;
    std::fs::remove_dir_all(&folders[0]).unwrap();
    for server in site.servers().skip(1) {
        for (job, lines) in jobs.iter().zip(LINES) {
            until_read(&client_of(server, &token), *job, lines).await;
        }
    }
    jobs
}

/// D6, A11. The disk of the leader is lost. A server that comes later, or was away, gets all logs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_survive_the_disk_of_a_raft_leader() {
    let (mut site, _roads) = Site::with_raft(3, &[]).await;
    let token = site.server.token().unwrap();
    let jobs = lose_the_leader(&mut site).await;
    // A copy is lost while its server is away.
    let second = site.servers_mut().nth(1).unwrap();
    let data = second.data().to_owned();
    second.kill().await;
    std::fs::remove_dir_all(data.join("objects")).unwrap();
    second.spawn();
    let second = site.servers().nth(1).unwrap();
    until("the server has its copies again", SOON, async || (logs_in(&data) == LINES.len()).then_some(()))
        .await;
    until_read(&client_of(second, &token), jobs[1], LINES[1]).await;
}

/// D6. As with the Raft store; the rows are in a database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_survive_the_disk_of_a_leader_with_a_database() {
    let database = Cluster::shared().database();
    let url = database.url();
    // The test database does not fsync.
    let settings = [("BELFRY_SERVER__STORE", url.as_str()), ("BELFRY_SERVER__STORE_ALLOW_UNSAFE", "true")];
    let mut site = Site::server_only(&settings).await;
    site.add_server(&settings).await;
    lose_the_leader(&mut site).await;
}
