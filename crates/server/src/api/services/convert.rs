//! Conversion of rows of services and replicas to API types.

use model::api::{Replica, Service, ServiceRevision};
use model::record::Outcome;
use model::service::{Revision, ServiceSpec};
use store::query::{ReplicaRow, ServiceRow};

use crate::api::problem::ApiError;
use crate::endpoints::running;

/// Returns a service without its spec.
pub(super) fn service(row: &ServiceRow) -> Service {
    let (spec, state) = (&row.head.spec, &row.state);
    Service {
        id: row.id,
        name: spec.name.clone(),
        namespace: spec.namespace.clone(),
        owner: spec.owner.clone(),
        labels: spec.labels.clone(),
        description: spec.description.clone(),
        version: state.version,
        created_at: state.created_at,
        updated_at: state.updated_at,
        replicas: state.replicas,
        last_scaling: state.scaled.as_deref().cloned(),
        scaling_problem: state.scaling_problem.as_deref().map(str::to_owned),
        min_available: state.replicas.saturating_sub(spec.max_unavailable()),
        counts: state.counts,
        rollout: state.rollout.clone(),
        stable_revision: state.stable_revision,
        deleting: state.deleting,
        spec: None,
    }
}

/// Returns a service with its spec.
pub(super) fn with_spec(row: &ServiceRow) -> Service {
    Service { spec: Some(Box::new(ServiceSpec::clone(&row.head.spec))), ..service(row) }
}

pub(super) fn revision(revision: &Revision) -> Result<ServiceRevision, ApiError> {
    let spec = serde_json::from_str(&revision.body).map_err(|error| ApiError::internal(&error))?;
    Ok(ServiceRevision {
        number: revision.number,
        created_at: revision.created_at,
        cause: revision.cause,
        rollback_to: revision.rollback_to,
        completed: revision.completed,
        actor: Some(revision.actor.to_string()).filter(|actor| !actor.is_empty()),
        spec: Box::new(spec),
    })
}

pub(super) fn replica(row: &ReplicaRow) -> Replica {
    let (state, execution) = (&row.state, running(row));
    Replica {
        replica: row.replica.replica,
        job: row.job,
        revision: row.replica.revision,
        status: state.status,
        stopping: state.cancel_requested_at.is_some(),
        restarts: state.executions.saturating_sub(1),
        execution: execution.map(|record| record.id),
        worker: execution.map(|record| record.worker),
        started_at: execution.and_then(|record| record.started_at),
        health: execution.and_then(|record| record.health.as_deref().cloned()),
        last_exit: state.outcome.as_deref().and_then(told),
    }
}

/// Returns the result of an ended execution in one line.
fn told(outcome: &Outcome) -> Option<String> {
    let message = outcome.message.as_deref().map(str::to_owned);
    message.or_else(|| outcome.exit_code.map(|code| format!("exited with code {code}")))
}
