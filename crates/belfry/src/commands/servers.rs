//! `belfry server list|get|drain|undrain|members|remove`: lists and drains servers, and removes members.

use std::time::Duration;

use client::Client;
use model::ServerId;
use model::api::Server;

use super::Context;
use crate::args::serve::{MemberArgs, ServerCommand};
use crate::failure::{Exit, Failure};

/// Interval of polls during a drain.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout of the handover during a drain.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn run(context: &Context, command: ServerCommand) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    match command {
        ServerCommand::List => context.out.list(&client.servers().await?, "servers"),
        ServerCommand::Get(args) => {
            let id = find(&client, &args.server).await?;
            context.out.one(&client.server(id).await?)
        }
        ServerCommand::Drain(args) => {
            let id = find(&client, &args.server).await?;
            context.out.one(&drain(&client, id).await?)
        }
        ServerCommand::Undrain(args) => {
            let id = find(&client, &args.server).await?;
            context.out.one(&client.undrain_server(id).await?)
        }
        ServerCommand::Members => context.out.list(&client.cluster_members().await?, "members"),
        ServerCommand::Remove(args) => remove(context, &client, &args).await,
    }
}

/// Removes a member by its id, or by a name that only one member has.
async fn remove(context: &Context, client: &Client, args: &MemberArgs) -> Result<(), Failure> {
    let text = &args.member;
    let members = client.cluster_members().await?;
    let named: Vec<_> = members.iter().filter(|member| member.id == *text || member.name == *text).collect();
    let member = match named.as_slice() {
        [member] => member,
        [] => {
            return Err(Failure::message(Exit::NotFound, format!("the cluster has no member `{text}`"))
                .help("run `belfry server members` to list all members; only servers with `--store raft` have them"));
        }
        several => {
            let ids: Vec<_> = several.iter().map(|member| member.id.as_str()).collect();
            return Err(Failure::usage(format!("{} members have the name `{text}`", several.len()))
                .help(format!("use one of the IDs: {}", ids.join(", "))));
        }
    };
    client.remove_cluster_member(&member.id).await?;
    context.out.note(format!("removed member `{}` ({})", member.name, member.id));
    Ok(())
}

/// Drains a server, and waits until it owns no shards and another server is the leader.
async fn drain(client: &Client, id: ServerId) -> Result<Server, Failure> {
    let mut server = client.drain_server(id).await?;
    let deadline = tokio::time::Instant::now() + DRAIN_TIMEOUT;
    loop {
        if server.shards == 0 && client.servers().await?.iter().any(|other| other.leader) {
            return Ok(server);
        }
        if tokio::time::Instant::now() > deadline {
            let name = &server.name;
            let detail =
                format!("server `{name}` has not handed over its shards within {}s", DRAIN_TIMEOUT.as_secs());
            return Err(Failure::message(Exit::Failed, detail)
                .help("the drain continues: check the log of the server, and run `belfry server list`"));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        server = client.server(id).await?;
    }
}

/// Returns the id of the server with this id or name. Fails if several servers have the name.
async fn find(client: &Client, text: &str) -> Result<ServerId, Failure> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let mut servers = client.servers().await?;
    servers.retain(|server| server.name == text);
    match servers.as_slice() {
        [server] => Ok(server.id),
        [] => Err(Failure::message(Exit::NotFound, format!("server `{text}` does not exist"))
            .help("run `belfry server list` to list all servers")),
        several => {
            let ids: Vec<_> = several.iter().map(|server| server.id.to_string()).collect();
            Err(Failure::usage(format!("{} servers have the name `{text}`", several.len()))
                .help(format!("use one of the IDs: {}", ids.join(", "))))
        }
    }
}
