//! What the bodies that define named things have in common, of schedules and of workflows.

use model::api::FieldError;
use serde::Deserialize;

use super::problem::{ApiError, field_error};

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct PutParams {
    /// Namespace of the name. Default: the namespace in the body.
    pub(super) namespace: Option<String>,
    /// Whether to validate only: the response has the spec as it would be stored, and nothing is stored [default:
    /// false]
    pub(super) dry_run: bool,
}

impl PutParams {
    /// Puts what the address says into a spec.
    ///
    /// # Errors
    /// `invalid_spec` where the spec says something else.
    pub(super) fn settle(&self, address: &str, name: &str, namespace: &mut String) -> Result<(), ApiError> {
        let wrong = |path, detail| Err(ApiError::invalid_fields(vec![field_error(path, detail)]));
        if name != address {
            return wrong("name", "is not the name in the address");
        }
        if let Some(asked) = &self.namespace {
            if namespace != asked && namespace != model::spec::DEFAULT {
                return wrong("namespace", "is not the namespace in the address");
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

/// Whether paths begin with the place in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batch {
    /// They begin within the one spec.
    One,
    /// They begin with this field of the body and the place in it.
    Several(&'static str),
}

impl Batch {
    /// What stands before the paths of a spec.
    pub(super) fn path(self, index: usize) -> String {
        match self {
            Self::One => String::new(),
            Self::Several(field) => format!("{field}[{index}]."),
        }
    }

    /// What is wrong with a spec, as it is told.
    pub(super) fn located(self, index: usize, errors: &[FieldError]) -> impl Iterator<Item = FieldError> {
        let at = self.path(index);
        errors
            .iter()
            .map(move |error| field_error(format!("{at}{}", error.path).trim_end_matches('.'), &error.detail))
    }
}
