//! `belfry alert`: shows alerts, acts on them, and manages rules, channels and silences.

use client::{AlertFilter, Client, NotificationFilter};
use model::alert::ZonedCron;
use model::api::{AlertAct, AlertStatus, NewSilence};

use super::{Context, Namespace, apply, for_each_item};
use crate::args::alert::{
    AlertCommand, AlertListArgs, ChannelCommand, NotificationListArgs, RuleCommand, SilenceArgs,
    SilenceCommand, StatusChoice,
};
use crate::failure::{Exit, Failure};
use crate::output::text::escape;

pub(super) async fn run(context: &Context, command: AlertCommand) -> Result<(), Failure> {
    let command = match command {
        AlertCommand::Rule(RuleCommand::Apply(args)) => return apply::run_kind(context, args, "alert").await,
        AlertCommand::Channel(ChannelCommand::Apply(args)) => {
            return apply::run_kind(context, args, "channel").await;
        }
        command => command,
    };
    let (client, namespace) = context.connect()?;
    match command {
        AlertCommand::List(args) => list(context, &client, &namespace, args).await,
        AlertCommand::Get { id } => context.out.one(&client.alert(id).await?),
        AlertCommand::Ack(args) => {
            let act = AlertAct { comment: args.comment };
            let (_, result) = for_each_item(context.out, args.ids, async |id: u64| {
                let alert = client.acknowledge_alert(id, &act).await?;
                context.out.note(format!("acknowledged alert {id}: {}", escape(&alert.summary)));
                Ok(())
            })
            .await;
            result
        }
        AlertCommand::Resolve(args) => {
            let act = AlertAct { comment: args.comment };
            let (_, result) = for_each_item(context.out, args.ids, async |id: u64| {
                let alert = client.resolve_alert(id, &act).await?;
                context.out.note(format!("resolved alert {id}: {}", escape(&alert.summary)));
                Ok(())
            })
            .await;
            result
        }
        AlertCommand::Rule(command) => rule(context, &client, &namespace, command).await,
        AlertCommand::Channel(command) => channel(context, &client, &namespace, command).await,
        AlertCommand::Silence(command) => silence(context, &client, &namespace, command).await,
        AlertCommand::Notifications(args) => notifications(context, &client, &namespace, args).await,
    }
}

async fn list(
    context: &Context,
    client: &Client,
    namespace: &Namespace,
    args: AlertListArgs,
) -> Result<(), Failure> {
    let statuses = args.status.iter().flat_map(|choice| match choice {
        StatusChoice::All => AlertStatus::ALL.to_vec(),
        StatusChoice::One(status) => vec![*status],
    });
    let filter = AlertFilter {
        namespace: namespace.filter(),
        statuses: statuses.collect(),
        severities: args.severity,
        rule: args.rule,
        subject: args.subject,
        limit: args.limit,
    };
    let found = client.alerts(&filter).await?;
    context.out.list(&found.items, "alerts")?;
    if found.more {
        context.out.note("there are more: use `--limit`, `--rule` or `--subject`");
    }
    Ok(())
}

async fn rule(
    context: &Context,
    client: &Client,
    namespace: &Namespace,
    command: RuleCommand,
) -> Result<(), Failure> {
    match command {
        RuleCommand::Apply(_) => Ok(()),
        RuleCommand::List => {
            context.out.list(&client.alert_rules(namespace.filter().as_deref()).await?, "alert rules")
        }
        RuleCommand::Get { name } => context.out.one(&client.alert_rule(namespace.one()?, &name).await?),
        RuleCommand::Delete { names } => {
            let namespace = namespace.one()?;
            let (_, result) = for_each_item(context.out, names, async |name: String| {
                client.delete_alert_rule(namespace, &name).await?;
                context.out.note(format!("deleted alert rule {}", escape(&name)));
                Ok(())
            })
            .await;
            result
        }
    }
}

async fn channel(
    context: &Context,
    client: &Client,
    namespace: &Namespace,
    command: ChannelCommand,
) -> Result<(), Failure> {
    match command {
        ChannelCommand::Apply(_) => Ok(()),
        ChannelCommand::List => {
            context.out.list(&client.channels(namespace.filter().as_deref()).await?, "channels")
        }
        ChannelCommand::Get { name } => context.out.one(&client.channel(namespace.one()?, &name).await?),
        ChannelCommand::Test { name } => {
            let test = client.test_channel(namespace.one()?, &name).await?;
            match test.error {
                None => {
                    context.out.note(format!("channel {name} accepted the test notification"));
                    Ok(())
                }
                Some(error) => {
                    let detail = format!("channel `{name}` did not accept the test notification: {error}");
                    Err(Failure::message(Exit::Failed, detail))
                }
            }
        }
        ChannelCommand::Delete { names } => {
            let namespace = namespace.one()?;
            let (_, result) = for_each_item(context.out, names, async |name: String| {
                client.delete_channel(namespace, &name).await?;
                context.out.note(format!("deleted channel {}", escape(&name)));
                Ok(())
            })
            .await;
            result
        }
    }
}

async fn silence(
    context: &Context,
    client: &Client,
    namespace: &Namespace,
    command: SilenceCommand,
) -> Result<(), Failure> {
    match command {
        SilenceCommand::List => {
            context.out.list(&client.silences(namespace.filter().as_deref()).await?, "silences")
        }
        SilenceCommand::Create(args) => {
            let SilenceArgs { rule, subject, severity_max, duration, cron, zone, until, starts_at, reason } =
                args;
            let zone = zone.unwrap_or_else(|| model::timing::UTC.to_owned());
            let new = NewSilence {
                namespace: namespace.one()?.to_owned(),
                rule,
                subject,
                severity_max,
                starts_at,
                duration,
                recurrence: cron.map(|expression| ZonedCron { expression, zone }),
                ends_at: until,
                reason,
            };
            context.out.one(&client.create_silence(&new).await?)
        }
        SilenceCommand::End { ids } => {
            let (_, result) = for_each_item(context.out, ids, async |id: u64| {
                client.end_silence(id).await?;
                context.out.note(format!("ended silence {id}"));
                Ok(())
            })
            .await;
            result
        }
    }
}

async fn notifications(
    context: &Context,
    client: &Client,
    namespace: &Namespace,
    args: NotificationListArgs,
) -> Result<(), Failure> {
    let NotificationListArgs { status, channel, rule, limit } = args;
    let filter = NotificationFilter { namespace: namespace.filter(), status, channel, rule, limit };
    let found = client.notifications(&filter).await?;
    context.out.list(&found.items, "notifications")?;
    if found.more {
        context.out.note("there are more: use `--limit`, `--channel` or `--rule`");
    }
    Ok(())
}
