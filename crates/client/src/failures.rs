//! Failure groups: list, show, set the state.

use model::Timestamp;
use model::api::{FailureGroup, FailureGroups, FailureOrder, SetFailureState};
use model::failures::FailureState;

use crate::error::Error;
use crate::http::{Client, Request};

/// Conditions for a list of failure groups, its order and its length. All conditions must match.
#[derive(Debug, Clone, Default)]
pub struct FailureFilter {
    /// Only groups of this namespace.
    pub namespace: Option<String>,
    /// Only groups with failures of this job name.
    pub name: Option<String>,
    /// Only groups in one of these states; empty for all.
    pub states: Vec<FailureState>,
    /// Only groups whose message or job names contain this text.
    pub text: Option<String>,
    /// Only groups with a failure at or after this time.
    pub since: Option<Timestamp>,
    /// Order of the groups.
    pub order: FailureOrder,
    /// Maximum number of groups.
    pub limit: Option<u32>,
}

impl Client {
    /// Returns failures, grouped by their signature.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn failure_groups(&self, filter: &FailureFilter) -> Result<FailureGroups, Error> {
        let states = filter.states.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let request = Request::get(["failures"])
            .query("order", filter.order)
            .query_opt("namespace", filter.namespace.as_deref())
            .query_opt("name", filter.name.as_deref())
            .query_opt("state", (!states.is_empty()).then_some(states))
            .query_opt("text", filter.text.as_deref())
            .query_opt("since", filter.since)
            .query_opt("limit", filter.limit);
        self.json(request).await
    }

    /// Returns a failure group.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `failure_group_not_found`.
    pub async fn failure_group(&self, namespace: &str, id: &str) -> Result<FailureGroup, Error> {
        self.json(Request::get(["failures", id]).query("namespace", namespace)).await
    }

    /// Sets the state of a failure group.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `failure_group_not_found`.
    pub async fn set_failure_state(
        &self,
        namespace: &str,
        id: &str,
        state: &SetFailureState,
    ) -> Result<FailureGroup, Error> {
        let request = Request::post(["failures", id, "state"]).query("namespace", namespace);
        self.json(request.json(state).repeatable()).await
    }
}
