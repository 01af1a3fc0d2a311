//! `make run-cluster`: three servers and two workers with one command, on a database or with the Raft store.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};
use std::{fs, process};

use client::{AuditFilter, Client, Page, Timeouts};
use harness::{Pid, belfry, repository, until};
use model::api::{CreateToken, CreatedToken, TokenKind};
use model::{JobSpec, JobStatus};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

const SOON: Duration = Duration::from_secs(60);
/// Offset of the database's port from the first server's port.
const DATABASE: u16 = 99;

/// Returns the first of three consecutive free ports, with a free port for the database.
fn free_ports() -> u16 {
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let all = |first: &u16| [*first, first + 1, first + 2, first + DATABASE].into_iter().all(is_free);
    // Other tests use ports above these.
    let begin = 10_000 + u16::try_from(process::id() % 8_000).unwrap();
    (begin..begin + 1_000).find(all).unwrap()
}

/// Stops the cluster, also after a failed test, whose folder is kept.
struct Running(Pid, Option<TempDir>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(folder) = self.1.take() {
            self.0.terminate();
            let _left = folder.keep();
        }
    }
}

/// D6. The leader may be killed, as the output suggests.
#[tokio::test]
async fn one_command_starts_a_cluster_that_survives_its_leader() {
    start_and_kill_the_leader("postgres").await;
}

/// D6, D8.
#[tokio::test]
async fn one_command_starts_a_cluster_without_a_database_that_survives_its_leader() {
    start_and_kill_the_leader("raft").await;
}

async fn start_and_kill_the_leader(store: &str) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (data, port) = (folder.path().join("data"), free_ports());
    let mut script = Command::new(repository().join("scripts/run-cluster.sh"))
        .args([belfry(), &data])
        .arg(port.to_string())
        .arg(store)
        .env_remove("BELFRY_SERVER__STORE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut running = Running(Pid(i32::try_from(script.id().unwrap()).unwrap()), Some(folder));
    let mut lines = BufReader::new(script.stdout.take().unwrap()).lines();
    let (mut shown, mut token) = (String::new(), None);
    let starting = tokio::time::timeout(2 * SOON, async {
        while let Some(line) = lines.next_line().await.unwrap() {
            shown.push_str(&line);
            shown.push('\n');
            let after = line.split_once("#token=").and_then(|(_, rest)| rest.split_whitespace().next());
            token = token.take().or(after.map(str::to_owned));
            if line.starts_with("Ctrl-C") {
                return;
            }
        }
    });
    starting.await.unwrap_or_else(|_| panic!("the cluster did not start in time:\n{shown}"));
    let token = token.unwrap_or_else(|| panic!("the script ended:\n{shown}"));

    client::install_crypto();
    let patience = Timeouts { retry_for: SOON, ..Timeouts::default() };
    let clients = [0, 1, 2].map(|number| {
        Client::with_patience(&format!("http://127.0.0.1:{}", port + number), Some(&token), patience).unwrap()
    });
    let servers = clients[0].servers().await.unwrap();
    assert_eq!(servers.len(), 3, "{shown}");
    a_token_is_valid_and_revoked_on_every_server(&clients, port).await;
    let leader = servers.iter().find(|server| server.leader).unwrap();
    let number = ["a", "b", "c"].iter().position(|name| *name == leader.name).unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let leader = pids.find(|pid: &i32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        command.contains(&format!("{}/server-{} ", data.display(), leader.name))
    });
    Pid(leader.unwrap()).kill();
    let other = &clients[(number + 1) % 3];
    let job = other.submit(&JobSpec::command(["true"])).await.unwrap();
    until("a job runs under another leader", SOON, async || {
        (other.job(job.id).await.ok()?.status == JobStatus::Succeeded).then_some(())
    })
    .await;
    until("the killed server has restarted", SOON, async || {
        (clients[number].servers().await.ok()?.len() == 3).then_some(())
    })
    .await;

    running.0.terminate();
    let ended = tokio::time::timeout(SOON, script.wait()).await.expect("the script ends after SIGTERM");
    assert!(ended.unwrap().success());
    let left = fs::read_to_string(data.join("database/postmaster.pid"));
    assert!(left.is_err(), "the database is still running");
    drop(running.1.take());
}

/// H2. A new token is accepted by every server at once, and a revoked one is refused by every server within a second.
async fn a_token_is_valid_and_revoked_on_every_server(clients: &[Client; 3], port: u16) {
    let new = CreateToken { kind: Some(TokenKind::Admin), name: Some("ci".into()), ..CreateToken::default() };
    let CreatedToken { secret, token } = clients[0].create_token(&new).await.unwrap();
    let others = [0, 1, 2]
        .map(|number| Client::new(&format!("http://127.0.0.1:{}", port + number), Some(&secret)).unwrap());
    for client in &others {
        assert_eq!(client.me().await.unwrap().name, "ci");
    }
    clients[2].revoke_token(&token.id).await.unwrap();
    let revoked_at = Instant::now();
    for client in &others {
        until("the server refuses the revoked token", SOON, async || {
            client.me().await.is_err().then_some(())
        })
        .await;
    }
    let took = revoked_at.elapsed();
    assert!(took < Duration::from_secs(2), "the servers refused the token after {took:?}");
    the_servers_append_to_one_audit_log(&clients[1]).await;
}

/// H3. Each server records the requests that it handled, in one chain.
async fn the_servers_append_to_one_audit_log(client: &Client) {
    let list = client.audit_page(&AuditFilter::default(), &Page::default()).await.unwrap();
    let made =
        |action: &str| list.items.iter().find(|it| it.entry.action == action).map(|it| &it.entry.server);
    let (created, revoked) = (made("create_token").unwrap(), made("revoke_token").unwrap());
    assert_ne!(created, revoked, "the requests were sent to different servers");
    let report = client.verify_audit(None).await.unwrap();
    assert!(report.valid && report.complete, "{report:?}");
    let after = Some((report.sequence, report.hash.as_str()));
    assert!(client.verify_audit(after).await.unwrap().valid);
}
