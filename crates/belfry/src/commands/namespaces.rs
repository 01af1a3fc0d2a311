//! `belfry namespace`: lists namespaces with their usage, and sets their quotas.

use client::{Client, Error};
use futures::TryStreamExt as _;
use model::api::Namespace;
use model::namespace::NamespaceSettings;
use model::spec::{Sandbox, SandboxLevel};

use super::{Context, for_each_item};
use crate::args::namespace::{NamespaceCommand, NamespaceSetArgs};
use crate::failure::Failure;

/// Maximum number of attempts to change a namespace when concurrent updates conflict.
const TRIES: usize = 5;

pub(super) async fn run(context: &Context, command: NamespaceCommand) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    match command {
        NamespaceCommand::List => {
            let namespaces: Vec<_> = client.namespaces().try_collect().await?;
            context.out.list(&namespaces, "namespaces")
        }
        NamespaceCommand::Get(args) => context.out.one(&client.namespace(&args.name).await?),
        NamespaceCommand::Set(args) => context.out.one(&set(&client, &args).await?),
        NamespaceCommand::Delete { names } => {
            let (_, result) = for_each_item(context.out, names, async |name: String| {
                client.delete_namespace(&name).await?;
                context.out.note(format!("deleted the settings of namespace {name}"));
                Ok(())
            })
            .await;
            result
        }
    }
}

/// Reads the settings, changes them, and writes them with their version. Retries after a version conflict.
async fn set(client: &Client, args: &NamespaceSetArgs) -> Result<Namespace, Failure> {
    let mut tries = 0;
    loop {
        let namespace = match client.namespace(&args.name).await {
            Err(error) if error.status() == Some(404) => None,
            namespace => Some(namespace?),
        };
        let version = namespace.as_ref().map_or(0, |known| known.version);
        let settings = changed(namespace.map(|known| known.settings).unwrap_or_default(), args)?;
        tries += 1;
        match client.set_namespace(&args.name, &settings, Some(version)).await {
            Err(Error::Problem(problem)) if problem.status == 412 && tries < TRIES => {}
            result => return Ok(result?),
        }
    }
}

fn changed(mut settings: NamespaceSettings, args: &NamespaceSetArgs) -> Result<NamespaceSettings, Failure> {
    let quota = &mut settings.quota;
    let nothing = args.cpu.is_none()
        && args.memory.is_none()
        && args.custom.is_empty()
        && args.running.is_none()
        && args.jobs.is_none()
        && args.max_priority_class.is_none()
        && args.sandbox.is_none()
        && args.sandbox_network.is_none()
        && args.note.is_none();
    if nothing {
        return Err(Failure::usage("nothing to change")
            .help(format!("set a limit, for example `belfry namespace set {} --cpu 8`", args.name)));
    }
    if let Some(cpu) = args.cpu {
        quota.cpu = cpu.0;
    }
    if let Some(memory) = args.memory {
        quota.memory = memory.0;
    }
    if let Some(running) = args.running {
        quota.running = running.0;
    }
    if let Some(jobs) = args.jobs {
        quota.jobs = jobs.0;
    }
    for (resource, limit) in &args.custom {
        match limit.0 {
            Some(limit) => drop(quota.custom.insert(resource.clone(), limit)),
            None => drop(quota.custom.remove(resource)),
        }
    }
    if let Some(class) = args.max_priority_class {
        settings.max_priority_class = class.0;
    }
    match args.sandbox {
        Some(SandboxLevel::None) => settings.sandbox = Sandbox::default(),
        Some(level) => settings.sandbox.level = level,
        None => {}
    }
    settings.sandbox.network = args.sandbox_network.or(settings.sandbox.network);
    if args.note.is_some() {
        settings.note = args.note.clone().filter(|note| !note.is_empty());
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use model::namespace::Quota;
    use model::spec::{PriorityClass, SandboxNetwork};
    use model::{Bytes, Millicores};

    use super::*;
    use crate::args::{Cli, Command};

    fn set(before: NamespaceSettings, line: &[&str]) -> Result<NamespaceSettings, String> {
        let line = ["belfry", "namespace", "set", "team"].iter().chain(line);
        let cli = Cli::try_parse_from(line).map_err(|e| e.to_string())?;
        let Command::Namespace(NamespaceCommand::Set(args)) = cli.command else { panic!("not a setting") };
        changed(before, &args).map_err(|f| f.render(false))
    }

    #[test]
    fn only_the_named_limits_change_and_none_removes_one() {
        let line =
            ["--cpu", "8", "--memory", "16GiB", "--resource", "gpu=2", "--running", "10", "--jobs", "1000"];
        let first = set(NamespaceSettings::default(), &line).unwrap();
        let expected = Quota {
            cpu: Some(Millicores(8_000)),
            memory: Some(Bytes(16 << 30)),
            custom: [("gpu".to_owned(), 2)].into(),
            running: Some(10),
            jobs: Some(1_000),
        };
        assert_eq!(first.quota, expected);
        let line = ["--memory", "none", "--resource", "gpu=none", "--max-priority-class", "normal"];
        let second = set(first, &line).unwrap();
        let expected = Quota { memory: None, custom: [].into(), ..expected };
        assert_eq!((&second.quota, second.max_priority_class), (&expected, Some(PriorityClass::Normal)));
        let third = set(second, &["--sandbox", "strict", "--sandbox-network", "loopback"]).unwrap();
        let strict = Sandbox { level: SandboxLevel::Strict, network: Some(SandboxNetwork::Loopback) };
        assert_eq!((&third.quota, third.sandbox), (&expected, strict));
        let fourth = set(third, &["--sandbox", "none"]).unwrap();
        assert_eq!((fourth.quota, fourth.sandbox), (expected, Sandbox::default()));
    }

    #[test]
    fn nothing_named_is_a_mistake() {
        assert!(set(NamespaceSettings::default(), &[]).unwrap_err().contains("nothing to change"));
        assert!(set(NamespaceSettings::default(), &["--cpu", "many"]).is_err());
    }
}
