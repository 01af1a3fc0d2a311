//! Alerts, alert rules, channels, silences, notifications and monitors.
//!
//! The leader handles all of these requests, because it has the state; see [`crate::alerts`]. The rules are in the crate
//! `alerts`: the handlers parse, check rights, and pass changes on.
//!
//! - `inbox`: alerts: list, show, acknowledge, resolve; and notifications.
//! - `rules`: alert rules; `channels`: channels and their tests; `silences`: silences.
//! - `monitors`: monitors; `pings`: pings by ping URLs, without a token.

mod channels;
mod inbox;
mod monitors;
mod pings;
mod rules;
mod silences;

use alerts::Refusal;
use model::alert::ZonedCron;
use model::api::FieldError;
use serde::Deserialize;
use timetable::{Next, Timetable, Zones};

use super::page::{self, Selection};
use super::problem::{ApiError, Code, excerpt, field_error};
use super::routes::Routes;
use crate::alerts::AlertError;
use crate::auth::Actor;
use crate::clock::{Clock as _, SystemClock};

pub(super) fn routes(routes: &mut Routes) {
    inbox::routes(routes);
    rules::routes(routes);
    channels::routes(routes);
    silences::routes(routes);
    monitors::routes(routes);
    pings::routes(routes);
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListScope {
    /// Only objects of this namespace; `*` for all [default: all].
    namespace: Option<String>,
}

impl ListScope {
    fn selection(self, actor: &Actor) -> Result<Selection, ApiError> {
        Selection::of(actor, page::namespace(self.namespace).as_deref())
    }
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct Scope {
    /// Namespace of the name [default: `default`].
    namespace: Option<String>,
}

impl Scope {
    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(model::spec::DEFAULT)
    }
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct PutScope {
    /// Namespace of the name [default: the namespace of the spec].
    namespace: Option<String>,
    /// Only checks the request; changes nothing [default: false].
    dry_run: bool,
}

/// Checks that name and namespace of a spec are those of the address.
pub(super) fn check_address(
    spec: (&str, &mut String),
    name: &str,
    namespace: Option<String>,
) -> Result<(), ApiError> {
    let (found, found_namespace) = spec;
    let wrong = |field: &str, found: &str, expected: &str| {
        let wrong = format!(
            "`{}` is not the {field} in the address: expected `{}`",
            excerpt(found),
            excerpt(expected)
        );
        ApiError::invalid_fields(vec![field_error(field, &wrong)])
    };
    if found != name {
        return Err(wrong("name", found, name));
    }
    if let Some(namespace) = namespace {
        if *found_namespace != namespace && found_namespace != model::spec::DEFAULT {
            return Err(wrong("namespace", found_namespace, &namespace));
        }
        *found_namespace = namespace;
    }
    Ok(())
}

/// Returns what is wrong with a cron expression and its time zone, whose fields are below `path`.
fn cron_problems(cron: &ZonedCron, path: &str) -> Vec<FieldError> {
    match Timetable::of_cron(&cron.expression, &cron.zone, &Zones::bundled()) {
        Ok(times) if matches!(times.next(SystemClock.now()), Next::At(_)) => Vec::new(),
        Ok(_) => vec![field_error(&format!("{path}.expression"), "has no time in the future")],
        Err(problems) => {
            let located = problems.into_iter().map(|problem| {
                let field = if problem.path == "zone" { "zone" } else { "expression" };
                field_error(&format!("{path}.{field}"), &problem.message)
            });
            located.collect()
        }
    }
}

fn missing(code: Code, what: &str, namespace: &str, name: &str) -> ApiError {
    ApiError::new(code, format!("namespace `{}` has no {what} `{}`", excerpt(namespace), excerpt(name)))
}

impl From<AlertError> for ApiError {
    fn from(error: AlertError) -> Self {
        let refusal = match error {
            AlertError::Store(error) => return error.into(),
            AlertError::Busy | AlertError::TooManyPings => return Self::new(Code::Busy, error.to_string()),
            AlertError::Loading | AlertError::Superseded => {
                return Self::new(Code::Loading, error.to_string());
            }
            AlertError::Refused(refusal) => refusal,
        };
        let code = match &refusal {
            Refusal::NotFound { what: "alert", .. } => Code::AlertNotFound,
            Refusal::NotFound { what: "channel", .. } => Code::ChannelNotFound,
            Refusal::NotFound { what: "silence", .. } => Code::SilenceNotFound,
            Refusal::NotFound { what: "monitor", .. } => Code::MonitorNotFound,
            Refusal::NotFound { .. } => Code::AlertRuleNotFound,
            Refusal::Resolved { .. } => Code::AlertResolved,
            Refusal::Lasting { .. } => Code::AlertLasting,
            Refusal::ChannelInUse { .. } => Code::ChannelInUse,
            Refusal::Limit { .. } => Code::AlertLimit,
            Refusal::Outdated { .. } => Code::VersionMismatch,
            _ => return Self::internal(&refusal),
        };
        Self::new(code, refusal.to_string())
    }
}
