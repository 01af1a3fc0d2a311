//! `belfry queue`: lists, configures, pauses and deletes queues.

use client::{Client, Error};
use futures::TryStreamExt as _;
use model::api::Queue;
use model::queue::QueueSettings;

use super::{Context, for_each_item};
use crate::args::more::{QueueCommand, QueueSetArgs};
use crate::failure::Failure;

/// Maximum number of attempts to change a queue when concurrent updates conflict.
const TRIES: usize = 5;

pub(super) async fn run(context: &Context, command: QueueCommand) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    match command {
        QueueCommand::List => {
            let queues: Vec<_> = client.queues().try_collect().await?;
            context.out.list(&queues, "queues")
        }
        QueueCommand::Get(args) => context.out.one(&client.queue(&args.name).await?),
        QueueCommand::Set(args) => context.out.one(&set(&client, &args).await?),
        QueueCommand::Pause(args) => {
            context.out.one(&client.pause_queue(&args.name, args.note.as_deref()).await?)
        }
        QueueCommand::Resume(args) => context.out.one(&client.resume_queue(&args.name).await?),
        QueueCommand::Delete { names } => {
            let (_, result) = for_each_item(context.out, names, async |name: String| {
                client.delete_queue(&name).await?;
                context.out.note(format!("deleted queue {name}"));
                Ok(())
            })
            .await;
            result
        }
    }
}

/// Reads the settings, changes them, and writes them with their version. Retries after a version conflict.
async fn set(client: &Client, args: &QueueSetArgs) -> Result<Queue, Failure> {
    let mut tries = 0;
    loop {
        let queue = match client.queue(&args.name).await {
            Err(error) if error.status() == Some(404) => None,
            queue => Some(queue?),
        };
        let version = queue.as_ref().map_or(0, |q| q.version);
        let settings = changed(queue.map(|q| q.settings).unwrap_or_default(), args)?;
        tries += 1;
        match client.set_queue(&args.name, &settings, Some(version)).await {
            Err(Error::Problem(problem)) if problem.status == 412 && tries < TRIES => {}
            result => return Ok(result?),
        }
    }
}

fn changed(mut settings: QueueSettings, args: &QueueSetArgs) -> Result<QueueSettings, Failure> {
    let before = settings.clone();
    if let Some(concurrency) = args.concurrency {
        settings.concurrency = concurrency.0;
    }
    if let Some(rate) = args.rate {
        settings.rate_per_second = rate.0;
    }
    if let Some(burst) = args.burst {
        settings.burst = burst.0;
    }
    settings.weight = args.weight.unwrap_or(settings.weight);
    settings.namespace_weights.extend(args.shares.iter().cloned());
    if args.note.is_some() {
        settings.note.clone_from(&args.note);
    }
    let nothing = args.concurrency.is_none()
        && args.rate.is_none()
        && args.burst.is_none()
        && args.weight.is_none()
        && args.shares.is_empty()
        && args.note.is_none();
    if nothing && settings == before {
        return Err(Failure::usage("nothing to change")
            .help(format!("set a field, for example `belfry queue set {} --concurrency 4`", args.name)));
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn set(before: QueueSettings, line: &[&str]) -> Result<QueueSettings, String> {
        let line = ["belfry", "queue", "set", "mail"].iter().chain(line);
        let cli = Cli::try_parse_from(line).map_err(|e| e.to_string())?;
        let Command::Queue(QueueCommand::Set(args)) = cli.command else { panic!("not a setting") };
        changed(before, &args).map_err(|f| f.render(false))
    }

    #[test]
    fn what_is_not_named_stays_and_none_takes_a_limit_away() {
        let before = QueueSettings {
            concurrency: Some(4),
            rate_per_second: Some(2.0),
            paused: true,
            note: Some("night".into()),
            ..QueueSettings::default()
        };
        let after = set(before.clone(), &["--rate", "none", "--weight", "3", "--share", "pay=4"]).unwrap();
        let expected = QueueSettings {
            rate_per_second: None,
            weight: 3,
            namespace_weights: [("pay".to_owned(), 4)].into(),
            ..before
        };
        assert_eq!(after, expected);
    }

    #[test]
    fn nothing_named_is_a_mistake() {
        assert!(set(QueueSettings::default(), &[]).unwrap_err().contains("nothing to change"));
        assert!(set(QueueSettings::default(), &["--concurrency", "many"]).is_err());
    }
}
