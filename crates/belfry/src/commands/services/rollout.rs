//! `belfry service rollout`, and waiting for the rollout that a command has started (`--wait`).
//!
//! A rollout is polled every second until it has completed or failed. A newer revision continues the wait: the rollout of
//! a service is always that of its current revision. If the newer revision is an automatic rollback, the wait ends with
//! the rollback, and fails.
//!
//! # Invariants
//! - The exit code is 0 only if the rollout has completed without an automatic rollback, otherwise 1; 124 after a
//!   timeout.

use std::time::Duration as StdDuration;

use client::{Client, ServiceRef};
use model::Duration;
use model::api::{Service, ServiceRevision};
use model::service::{RevisionCause, RolloutStatus};

use super::super::Context;
use super::super::wait::within;
use super::{connect, show};
use crate::args::service::{RolloutCommand, RolloutStatusArgs, RolloutWaitArgs};
use crate::failure::{Exit, Failure};
use crate::output::Format;
use crate::output::progress::Progress;
use crate::output::services::progress as sentence;
use crate::output::text::escape;

/// Interval of reads of a rollout.
const POLL_INTERVAL: StdDuration = StdDuration::from_secs(1);

pub(super) async fn run(context: &Context, command: RolloutCommand) -> Result<(), Failure> {
    match command {
        RolloutCommand::Status(args) => status(context, args).await,
        RolloutCommand::Pause(args) => {
            let (client, service) = connect(context, args.service)?;
            client.pause_rollout(&service).await?;
            show(context, &client, &service).await
        }
        RolloutCommand::Resume(args) => {
            let (client, service) = connect(context, args.service)?;
            client.resume_rollout(&service).await?;
            show(context, &client, &service).await
        }
        RolloutCommand::Promote(args) => {
            let (client, service) = connect(context, args.service)?;
            client.promote_rollout(&service).await?;
            show(context, &client, &service).await
        }
    }
}

async fn status(context: &Context, args: RolloutStatusArgs) -> Result<(), Failure> {
    let (client, service) = connect(context, args.service)?;
    if args.watch {
        return wait(context, &client, &service, None, args.wait_timeout).await;
    }
    let service = client.service(&service).await?;
    match context.out.look.format {
        Format::Table => context.out.data(sentence(&service) + "\n"),
        _ => context.out.row(&service),
    }
}

/// Waits for the rollout of a revision that a command has created, if the user requests it.
pub(super) async fn wait_if_requested(
    context: &Context,
    client: &Client,
    service: &ServiceRef,
    revision: u64,
    waiting: &RolloutWaitArgs,
) -> Result<(), Failure> {
    if !waiting.wait {
        return Ok(());
    }
    wait(context, client, service, Some(revision), waiting.wait_timeout).await
}

/// Waits until the rollout of `revision`, or of the current revision, has completed; fails if it failed.
async fn wait(
    context: &Context,
    client: &Client,
    service: &ServiceRef,
    revision: Option<u64>,
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    let name = &service.name;
    context.if_interrupted(format!(
        "the rollout continues: run `belfry service rollout status {name}` to see it, or `belfry service rollback {name}` \
         to roll back"
    ));
    let help = format!("the rollout continues: run `belfry service replicas {name}` to see the replicas");
    let Ended { service, is_rollback } =
        within(timeout, &help, watch(context, client, service, revision)).await?;
    match context.out.look.format {
        Format::Table => context.out.note(sentence(&service)),
        _ if revision.is_none() => context.out.row(&service)?,
        // The command has shown the service.
        _ => {}
    }
    let failure = match (service.rollout.status, is_rollback) {
        (RolloutStatus::Completed, false) => return Ok(()),
        (RolloutStatus::Completed, true) => format!("service `{}` was rolled back", escape(&service.name)),
        _ => format!("the rollout of service `{}` failed", escape(&service.name)),
    };
    let name = escape(&service.name);
    Err(Failure::message(Exit::Failed, failure).help(format!(
        "run `belfry job list --service {name}` for the jobs of its replicas, and `belfry logs JOB` for their logs"
    )))
}

/// Service at the end of a rollout.
struct Ended {
    service: Service,
    /// Whether the rollout is an automatic rollback.
    is_rollback: bool,
}

async fn watch(
    context: &Context,
    client: &Client,
    service: &ServiceRef,
    revision: Option<u64>,
) -> Result<Ended, Failure> {
    let progress = Progress::new(context.out);
    let (mut current, mut is_rollback, mut is_hinted) = (None, false, false);
    let mut last = String::new();
    loop {
        let service = client.service(service).await?;
        let rollout = &service.rollout;
        // A standby may return an earlier revision.
        let is_earlier = revision.or(current).is_some_and(|known| rollout.revision < known);
        if !is_earlier {
            if current != Some(rollout.revision) {
                current = Some(rollout.revision);
                let revisions = client.revisions(&service.id.into()).await?;
                is_rollback = is_automatic_rollback(&revisions, rollout.revision);
            }
            if matches!(rollout.status, RolloutStatus::Completed | RolloutStatus::Failed) {
                progress.clear();
                return Ok(Ended { service, is_rollback });
            }
            let text = sentence(&service);
            if text != last {
                progress.set_message(&text);
                last = text;
            }
            if rollout.status == RolloutStatus::AwaitingPromotion && !std::mem::replace(&mut is_hinted, true)
            {
                let name = escape(&service.name);
                progress.hint(format!(
                    "the canaries are available: run `belfry service rollout promote {name}` or `belfry service rollback {name}`"
                ));
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns whether a revision undoes a failed rollout without a request of a user.
fn is_automatic_rollback(revisions: &[ServiceRevision], number: u64) -> bool {
    revisions.iter().any(|revision| {
        revision.number == number && revision.cause == RevisionCause::RolledBack && revision.actor.is_none()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollback_by_a_user_is_not_a_failure() {
        let revision = |number: u64, cause: &str, actor: Option<&str>| -> ServiceRevision {
            serde_json::from_value(json!({
                "number": number, "created_at": "2026-11-21T08:00:00Z", "cause": cause, "actor": actor,
                "spec": {"name": "web", "job": {"run": {"process": {"command": ["x"]}}}},
            }))
            .unwrap()
        };
        let all = [
            revision(4, "rolled_back", None),
            revision(3, "applied", Some("ann")),
            revision(2, "rolled_back", Some("ann")),
        ];
        let found: Vec<_> = (1..=4).filter(|number| is_automatic_rollback(&all, *number)).collect();
        assert_eq!(found, [4]);
    }
}
