//! Shared parts of the requests that define schedules and workflows.

use std::sync::Arc;

use model::api::{ApplyChange, FieldError};
use serde::Deserialize;

use super::problem::{ApiError, excerpt, field_error};
use crate::auth::Actor;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct PutParams {
    /// Namespace of the name [default: the namespace in the body].
    pub(super) namespace: Option<String>,
    /// Whether to validate only: the response has the spec as it would be stored, and nothing is stored [default:
    /// false]
    pub(super) dry_run: bool,
}

impl PutParams {
    /// Applies name and namespace of the address to a spec.
    ///
    /// # Errors
    /// `invalid_spec` if the spec contradicts them.
    pub(super) fn settle(&self, address: &str, name: &str, namespace: &mut String) -> Result<(), ApiError> {
        let wrong = |path: &str, found: &str, expected: &str| {
            let detail = format!(
                "`{}` is not the {path} in the address: expected `{}`",
                excerpt(found),
                excerpt(expected)
            );
            Err(ApiError::invalid_fields(vec![field_error(path, &detail)]))
        };
        if name != address {
            return wrong("name", name, address);
        }
        if let Some(asked) = &self.namespace {
            if namespace != asked && namespace != model::spec::DEFAULT {
                return wrong("namespace", namespace.as_str(), asked);
            }
            namespace.clone_from(asked);
        }
        Ok(())
    }
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct DryRun {
    /// Whether to validate only: the response is that of the real request, and nothing is stored [default: false]
    pub(super) dry_run: bool,
}

/// Whether paths of errors include the position in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batch {
    /// A single spec: paths are relative to it.
    One,
    /// A batch: paths start with this field of the body and the index.
    Several(&'static str),
}

impl Batch {
    /// Returns the prefix of a spec's paths.
    pub(super) fn path(self, index: usize) -> String {
        match self {
            Self::One => String::new(),
            Self::Several(field) => format!("{field}[{index}]."),
        }
    }

    /// Returns the errors of a spec with their paths in the body.
    pub(super) fn located(self, index: usize, errors: &[FieldError]) -> impl Iterator<Item = FieldError> {
        let at = self.path(index);
        errors
            .iter()
            .map(move |error| field_error(format!("{at}{}", error.path).trim_end_matches('.'), &error.detail))
    }
}

/// Most definitions of one request whose fields are compared for the audit log: an entry has few.
pub(super) const COMPARED_MAX: usize = 20;

/// Definition that a request created or changed.
pub(super) struct AppliedDefinition<'a> {
    pub(super) name: &'a str,
    pub(super) change: ApplyChange,
    /// Spec before the change, as JSON.
    pub(super) old: Option<Arc<str>>,
    /// Spec after the change, as JSON.
    pub(super) new: &'a str,
}

/// Adds the changed fields to the entry of the audit log.
pub(super) fn note_applied(actor: &Actor, applied: &[AppliedDefinition<'_>]) {
    let changed = || applied.iter().filter(|applied| applied.change != ApplyChange::Unchanged);
    for applied in changed().take(COMPARED_MAX) {
        let prefix = if changed().nth(1).is_some() { applied.name } else { "" };
        let old = applied.old.as_deref().filter(|_| applied.change == ApplyChange::Changed);
        actor.note().changed_bodies(prefix, old, Some(applied.new));
    }
    match applied {
        [one] => actor.note().object(one.name),
        _ => actor.note().affected(changed().count()),
    }
}
