//! `belfry service`: creates, applies, lists, shows, scales, restarts, rolls back and deletes services.
//!
//! - `create`: builds a service from options.
//! - `rollout`: shows and controls rollouts, and waits for them.
//! - `logs`: merges the logs of all replicas.
//!
//! A command that changes a service shows the service after the change.
//!
//! # Invariants
//! - A service is named by its id, or by its name in the selected namespace. `*` is accepted for lists only.

mod create;
mod logs;
mod rollout;

use std::time::Duration as StdDuration;

use client::{Client, ServiceFilter, ServiceRef};
use model::ServiceId;
use model::api::{Service, ServiceRevision};
use model::service::ServiceSpec;

use super::apply::diff::unified_between;
use super::apply::optional;
use super::{Context, Namespace, apply, for_each_item, note_truncated, read_items};
use crate::args::service::{DeleteArgs, RevisionsArgs, ServiceCommand, ServiceGetArgs, ServiceListArgs};
use crate::args::spec::Pair;
use crate::failure::Failure;
use crate::output::services::{RevisionRow, ServiceDetails, ServiceOfNamespace};
use crate::output::text::{count, escape};
use crate::output::{Format, document, yaml};

/// Interval of reads of a service that is being deleted.
const DELETION_POLL_INTERVAL: StdDuration = StdDuration::from_millis(500);

pub(super) async fn run(context: &Context, command: ServiceCommand) -> Result<(), Failure> {
    match command {
        ServiceCommand::Create(args) => create::run(context, *args).await,
        ServiceCommand::Apply(args) => apply::run_kind(context, args, "service").await,
        ServiceCommand::List(args) => list(context, args).await,
        ServiceCommand::Get(args) => get(context, args).await,
        ServiceCommand::Scale(args) => {
            let (client, service) = connect(context, args.service)?;
            client.scale_service(&service, args.replicas, None).await?;
            show(context, &client, &service).await
        }
        ServiceCommand::Restart(args) => {
            let (client, service) = connect(context, args.service)?;
            let changed = client.restart_service(&service).await?;
            show(context, &client, &service).await?;
            rollout::wait_if_requested(context, &client, &service, changed.revision, &args.waiting).await
        }
        ServiceCommand::Rollback(args) => {
            let (client, service) = connect(context, args.service)?;
            let changed = client.rollback_service(&service, args.revision).await?;
            show(context, &client, &service).await?;
            rollout::wait_if_requested(context, &client, &service, changed.revision, &args.waiting).await
        }
        ServiceCommand::Rollout(command) => rollout::run(context, command).await,
        ServiceCommand::Replicas(args) => {
            let (client, service) = connect(context, args.service)?;
            context.out.list(&client.replicas(&service).await?, "replicas")
        }
        ServiceCommand::Endpoints(args) => {
            let (client, service) = connect(context, args.service)?;
            context.out.list(&client.endpoints(&service).await?, "endpoints")
        }
        ServiceCommand::Revisions(args) => revisions(context, args).await,
        ServiceCommand::Logs(args) => logs::run(context, args).await,
        ServiceCommand::Delete(args) => delete(context, args).await,
    }
}

fn named(namespace: &Namespace, names: Vec<String>) -> Result<Vec<ServiceRef>, Failure> {
    names.into_iter().map(|name| one(namespace, name)).collect()
}

fn one(namespace: &Namespace, name: String) -> Result<ServiceRef, Failure> {
    let namespace = match name.parse::<ServiceId>() {
        Ok(_) => None,
        Err(_) => Some(namespace.one()?.to_owned()),
    };
    Ok(ServiceRef { name, namespace })
}

fn connect(context: &Context, name: String) -> Result<(Client, ServiceRef), Failure> {
    let (client, namespace) = context.connect()?;
    let service = one(&namespace, name)?;
    Ok((client, service))
}

/// Returns the id of a service, for filters. `namespace` is that of a name; a name in all namespaces is an error.
pub(super) async fn id(client: &Client, namespace: Option<&str>, name: String) -> Result<ServiceId, Failure> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let Some(namespace) = namespace else {
        return Err(Failure::usage(format!("service `{}` is a name in one namespace", escape(&name)))
            .help("select the namespace with `--namespace NAME`, or use the ID of the service"));
    };
    let service = ServiceRef { name, namespace: Some(namespace.to_owned()) };
    Ok(client.service(&service).await?.id)
}

/// Shows a service after a change.
async fn show(context: &Context, client: &Client, service: &ServiceRef) -> Result<(), Failure> {
    context.out.row(&client.service(service).await?)
}

async fn list(context: &Context, args: ServiceListArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let filter = ServiceFilter {
        owner: args.owner,
        namespace: namespace.filter(),
        text: args.text,
        labels: args.labels.into_iter().map(|Pair(key, value)| (key, value)).collect(),
        specs: false,
    };
    let is_one_namespace = filter.namespace.is_some();
    let (found, more) = read_items(client.services(filter), &args.many).await?;
    if is_one_namespace {
        context.out.list(&found, "services")?;
    } else {
        let found: Vec<_> = found.into_iter().map(ServiceOfNamespace).collect();
        context.out.list(&found, "services")?;
    }
    note_truncated(context.out, more, &args.many);
    Ok(())
}

async fn get(context: &Context, args: ServiceGetArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let all = named(&namespace, args.services)?;
    if let ([one], false) = (all.as_slice(), args.definition) {
        let service = client.service(one).await?;
        let replicas = match context.out.look.format {
            Format::Table | Format::Wide => client.replicas(&service.id.into()).await?,
            _ => Vec::new(),
        };
        return context.out.one(&ServiceDetails { service, replicas });
    }
    let (found, result) = for_each_item(context.out, all, async |one| Ok(client.service(&one).await?)).await;
    if !args.definition {
        return context.out.list(&found, "services").and(result);
    }
    for (i, service) in found.iter().enumerate() {
        if i > 0 {
            context.out.data("---\n")?;
        }
        context.out.data(document(&context.out.look, "service", &current_spec(service))?)?;
    }
    result
}

/// Returns the spec of a service with its current number of replicas, unless the spec leaves the number open.
fn current_spec(service: &Service) -> Option<ServiceSpec> {
    let spec = service.spec.as_deref()?.clone();
    let replicas = spec.replicas.map(|_| service.replicas);
    Some(ServiceSpec { replicas, ..spec })
}

async fn revisions(context: &Context, args: RevisionsArgs) -> Result<(), Failure> {
    let (client, service) = connect(context, args.service)?;
    let service = client.service(&service).await?;
    let revisions = client.revisions(&service.id.into()).await?;
    if args.diff {
        return context.out.data(differences(&revisions, context.out.look.color)?);
    }
    let (rollout, stable) = (service.rollout, service.stable_revision);
    let row = |revision| RevisionRow { revision, rollout: rollout.clone(), stable };
    context.out.list(&revisions.into_iter().map(row).collect::<Vec<_>>(), "revisions")
}

/// Formats the changes from each revision to the next, newest first. `revisions` are in the order of the API.
fn differences(revisions: &[ServiceRevision], color: bool) -> Result<String, Failure> {
    let mut text = String::new();
    for pair in revisions.windows(2) {
        let [after, before] = pair else { continue };
        let title = |revision: &ServiceRevision| format!("revision {}", revision.number);
        let (old, new) = (yaml(&before.spec)?, yaml(&after.spec)?);
        let difference = unified_between(&title(before), &title(after), &old, &new, color);
        if difference.is_empty() {
            text.push_str(&format!("{} repeats the spec of {}\n", title(after), title(before)));
        }
        text.push_str(&difference);
    }
    Ok(text)
}

async fn delete(context: &Context, args: DeleteArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let all = named(&namespace, args.services)?;
    let (deleting, result) = for_each_item(context.out, all, async |service| {
        let before = client.service(&service).await?;
        client.delete_service(&before.id.into(), None).await?;
        let replicas = count(u64::from(before.counts.live + before.counts.stopping), "replica");
        context.out.note(format!("deleting service {}: stopping {replicas}", escape(&before.name)));
        Ok(before)
    })
    .await;
    if args.wait {
        context.if_interrupted("the deletion continues");
        for service in deleting {
            while optional(client.service(&service.id.into()).await)?.is_some() {
                tokio::time::sleep(DELETION_POLL_INTERVAL).await;
            }
            context.out.note(format!("deleted service {}", escape(&service.name)));
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn revision(number: u64, command: &str) -> ServiceRevision {
        serde_json::from_value(json!({
            "number": number, "created_at": "2026-11-21T08:00:00Z", "cause": "applied",
            "spec": {"name": "web", "job": {"run": {"process": {"command": [command]}}}},
        }))
        .unwrap()
    }

    #[test]
    fn revisions_are_compared_with_those_before_them() {
        let all = [revision(5, "new"), revision(4, "new"), revision(2, "old")];
        let text = differences(&all, false).unwrap();
        assert!(
            text.starts_with("revision 5 repeats the spec of revision 4\n--- revision 2\n+++ revision 4\n"),
            "{text}"
        );
        assert!(text.contains("\n-") && text.contains("old") && text.contains("new"), "{text}");
        assert_eq!(differences(&all[..1], false).unwrap(), "");
    }

    /// A definition can be applied without changing the number of replicas.
    #[test]
    fn a_definition_has_the_current_number_of_replicas_or_none() {
        let service = |replicas: Option<u32>| -> Service {
            serde_json::from_value(json!({
                "id": "svc_01k9zq3m6c0000000000000000", "name": "web", "namespace": "default", "version": 5,
                "created_at": "2026-11-20T08:00:00Z", "updated_at": "2026-11-21T08:00:00Z",
                "replicas": 5, "min_available": 5,
                "counts": {"live": 5, "running": 5, "available": 5, "updated": 5, "updated_available": 5, "stopping": 0},
                "rollout": {"revision": 1, "status": "completed", "started_at": "2026-11-21T08:09:00Z",
                    "progressed_at": "2026-11-21T08:09:30Z"},
                "spec": {"name": "web", "replicas": replicas, "job": {"run": {"process": {"command": ["x"]}}}},
            }))
            .unwrap()
        };
        let replicas = |stored| current_spec(&service(stored)).unwrap().replicas;
        assert_eq!((replicas(Some(3)), replicas(None)), (Some(5), None));
    }
}
