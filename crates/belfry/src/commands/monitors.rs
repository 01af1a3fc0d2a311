//! `belfry monitor` and `belfry ping`: manages monitors of jobs that Belfry does not run, and pings them.

use client::Client;
use model::api::{Monitor, NewPing, PingKind};

use super::{Context, apply, for_each_item};
use crate::args::monitor::{MonitorCommand, PingArgs};
use crate::failure::Failure;
use crate::output::text::escape;

pub(super) async fn run(context: &Context, command: MonitorCommand) -> Result<(), Failure> {
    if let MonitorCommand::Apply(args) = command {
        return apply::run_kind(context, args, "monitor").await;
    }
    let (client, namespace) = context.connect()?;
    match command {
        MonitorCommand::Apply(_) => Ok(()),
        MonitorCommand::List => {
            context.out.list(&client.monitors(namespace.filter().as_deref()).await?, "monitors")
        }
        MonitorCommand::Get { name } => {
            context.out.one(&with_url(&client, client.monitor(namespace.one()?, &name).await?))
        }
        MonitorCommand::Delete { names } => {
            let namespace = namespace.one()?;
            let (_, result) = for_each_item(context.out, names, async |name: String| {
                client.delete_monitor(namespace, &name).await?;
                context.out.note(format!("deleted monitor {}", escape(&name)));
                Ok(())
            })
            .await;
            result
        }
    }
}

/// Completes a ping URL that is only a path, because the server does not know its public URL.
fn with_url(client: &Client, mut monitor: Monitor) -> Monitor {
    if let Some(path) = monitor.ping_url.as_ref().filter(|url| url.starts_with('/')) {
        monitor.ping_url = Some(format!("{}{path}", client.url()));
    }
    monitor
}

pub(super) async fn ping(context: &Context, args: PingArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let PingArgs { name, start, fail, exit_code, message } = args;
    let kind = match (start, fail) {
        (true, _) => Some(PingKind::Start),
        (_, true) => Some(PingKind::Fail),
        (false, false) => None,
    };
    let ping = NewPing { kind, exit_code, message };
    client.ping_monitor(namespace.one()?, &name, &ping).await?;
    context.out.note(format!("pinged monitor {}: {}", escape(&name), ping.reports()));
    Ok(())
}
