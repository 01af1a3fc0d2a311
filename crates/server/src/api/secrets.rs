//! Secrets: list, show, put, delete. Values go in, and never come out. The rules are in [`crate::secrets`].
//!
//! Every server answers these requests itself, as those of access control: the secrets are entries of its directory.

use std::collections::BTreeMap;

use access::Change;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use model::JobSpec;
use model::alert::{HIDDEN, SecretText};
use model::api::{FieldError, Secret, Secrets};
use model::limits::BODY_BYTES_MAX;
use model::secret::SecretSpec;
use model::validate;
use model::workflow::{Action, WorkflowSpec};
use serde::Deserialize;
use utoipa_axum::routes;

use super::Api;
use super::access::refused;
use super::extract::{Params, Path, RawBody};
use super::headers::{Precondition, etag};
use super::page::{self, Selection};
use super::problem::{ApiError, Code, excerpt, field_error};
use super::routes::Routes;
use super::rows::permit;
use crate::auth::{Actor, Resource, Verb};
use crate::secrets;

pub(super) fn routes(routes: &mut Routes) {
    let secrets = Resource::Secrets;
    routes.needs(Verb::Read, secrets, &[], routes!(list_secrets));
    routes.of_each_server();
    routes.needs(Verb::Read, secrets, &[Code::SecretNotFound], routes!(get_secret));
    routes.of_each_server();
    let put = [
        Code::VersionMismatch,
        Code::SecretLimit,
        Code::InvalidHeader,
        Code::InvalidSpec,
        Code::UnsupportedMediaType,
    ];
    routes.needs(Verb::Change, secrets, &put, routes!(put_secret));
    routes.of_each_server();
    let delete = [Code::SecretNotFound, Code::VersionMismatch, Code::InvalidHeader];
    routes.needs(Verb::Delete, secrets, &delete, routes!(delete_secret));
    routes.of_each_server();
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListScope {
    /// Only secrets of this namespace; `*` for all [default: all].
    namespace: Option<String>,
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

fn answer(secret: Secret) -> Response {
    ([(ETAG, etag(secret.version))], Json(secret)).into_response()
}

/// Returns what the API shows of a secret.
fn shown(secret: &access::Secret) -> Secret {
    let values = secret.values.keys().map(|key| (key.clone(), SecretText::new(HIDDEN)));
    Secret {
        spec: SecretSpec {
            name: secret.name.clone(),
            namespace: secret.namespace.clone(),
            description: secret.description.clone(),
            values: values.collect(),
        },
        version: secret.version,
        created_at: secret.created_at,
        updated_at: secret.updated_at,
        updated_by: secret.updated_by.clone(),
    }
}

/// List secrets, by namespace and name
///
/// Values are shown as `******`.
#[utoipa::path(get, path = "/api/v1/secrets", tag = "secrets", params(ListScope), responses(
    (status = 200, description = "All secrets, on one page", body = Secrets),
))]
async fn list_secrets(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(scope): Params<ListScope>,
) -> Result<Json<Secrets>, ApiError> {
    let selection = Selection::of(&actor, page::namespace(scope.namespace).as_deref())?;
    let items = api.access.read(|directory| {
        directory.secrets().filter(|secret| selection.contains(&secret.namespace)).map(shown).collect()
    });
    Ok(Json(Secrets { items }))
}

/// Show a secret
///
/// Values are shown as `******`.
#[utoipa::path(get, path = "/api/v1/secrets/{name}", tag = "secrets", params(("name" = String, Path), Scope), responses(
    (status = 200, description = "The secret", body = Secret, headers(
        ("ETag" = String, description = "Version of the resource"),
    )),
))]
async fn get_secret(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
) -> Result<Response, ApiError> {
    find(&api, &actor, &name, scope.namespace()).map(answer)
}

fn missing(namespace: &str, name: &str) -> ApiError {
    let detail = format!("namespace `{}` has no secret `{}`", excerpt(namespace), excerpt(name));
    ApiError::new(Code::SecretNotFound, detail)
}

fn find(api: &Api, actor: &Actor, name: &str, namespace: &str) -> Result<Secret, ApiError> {
    permit(actor, namespace, || missing(namespace, name))?;
    let found = api.access.read(|directory| directory.secret(namespace, name).map(|secret| shown(secret)));
    found.ok_or_else(|| missing(namespace, name))
}

/// Create or replace a secret
///
/// Values are stored encrypted. A value that is missing in the request is deleted; `******` keeps the stored one. Executions that
/// start later get the new values. Running executions keep the values of their start.
#[utoipa::path(put, path = "/api/v1/secrets/{name}", tag = "secrets",
    params(
        ("name" = String, Path), PutScope,
        ("If-Match" = Option<String>, Header, description = "Expected version; the request is refused if the resource has another version", example = "\"3\""),
        ("If-None-Match" = Option<String>, Header, description = "`*`: the request is refused if the resource exists", example = "*"),
    ),
    request_body(content(
        (SecretSpec = "application/json", example = json!({
            "name": "db",
            "values": {"password": "a-long-random-password"},
        })),
        (SecretSpec = "application/yaml"),
    )),
    responses((status = 200, description = "The updated secret; in a dry run its spec. Values are hidden", body = PutSecretAnswer, headers(
        ("ETag" = Option<String>, description = "Version of the resource"),
    )))
)]
async fn put_secret(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(params): Params<PutScope>,
    wanted: Precondition,
    body: RawBody<BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let mut spec: SecretSpec = body.format.parse(&body.bytes)?;
    super::alerts::check_address((&spec.name, &mut spec.namespace), &name, params.namespace)?;
    actor.check(&spec.namespace)?;
    validate::secret(&spec).map_err(|invalid| ApiError::invalid(&invalid))?;
    let namespace = spec.namespace.clone();
    let before = api.access.read(|directory| directory.secret(&namespace, &name).cloned());
    let keeps = spec.values.values().any(SecretText::is_hidden);
    let sealed = sealed_values(&api, &spec, before.as_deref())?;
    spec.hide_values();
    let current = before.as_ref().map_or(0, |before| before.version);
    let expected = wanted.expected(format!("secret `{name}`"), current)?;
    if params.dry_run {
        actor.note().is_read();
        return Ok(Json(spec).into_response());
    }
    // A kept value must still be the stored one, and an encrypted text is reused only if its value is unchanged.
    let expected = expected.or_else(|| before.as_ref().filter(|_| keeps).map(|before| before.version));
    let description = spec.description.clone();
    let values = sealed.clone();
    let change =
        Change::PutSecret { namespace: namespace.clone(), name: name.clone(), description, values, expected };
    let changed = api.access.change(actor.identity(), &change).await.map_err(refused)?;
    actor.note().object(&name);
    if changed.is_empty() {
        actor.note().is_read();
    } else {
        let old = before.as_deref().map(shown);
        actor.note().changed("", old.as_ref().map(|old| &old.spec), Some(&spec));
        for key in replaced(before.as_deref(), &sealed) {
            // The specs have hidden values, so they show no difference.
            actor.note().changed(&format!("values.{key}"), Some(&"stored"), Some(&"changed"));
        }
        tracing::info!(namespace, secret = name, by = %actor.name, "secret created or changed");
    }
    find(&api, &actor, &name, &namespace).map(answer)
}

/// Encrypts the values of a request. An unchanged value keeps its encrypted text, unless the server has a newer key.
fn sealed_values(
    api: &Api,
    spec: &SecretSpec,
    before: Option<&access::Secret>,
) -> Result<BTreeMap<String, String>, ApiError> {
    let sealer = api.alerts.sealer();
    let mut wrong = Vec::new();
    let mut sealed = BTreeMap::new();
    for (key, value) in &spec.values {
        let place = (spec.namespace.as_str(), spec.name.as_str(), key.as_str());
        let stored = before.and_then(|before| before.values.get(key));
        let opened = stored.and_then(|stored| secrets::open(sealer, place, stored).ok());
        let text = match (value.is_hidden(), &opened) {
            (false, _) => value.expose(),
            (true, Some(opened)) => opened,
            (true, None) => {
                let detail = "`******` keeps the stored value, but none is stored that can be decrypted: enter the value";
                wrong.push(field_error(&format!("values.{key}"), detail));
                continue;
            }
        };
        let kept = stored.filter(|stored| opened.as_deref() == Some(text) && sealer.is_current(stored));
        sealed.insert(key.clone(), kept.cloned().unwrap_or_else(|| secrets::seal(sealer, place, text)));
    }
    if wrong.is_empty() { Ok(sealed) } else { Err(ApiError::invalid_fields(wrong)) }
}

/// Returns the keys that existed before and have another encrypted value now.
fn replaced<'a>(
    before: Option<&'a access::Secret>,
    sealed: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = &'a String> {
    let before = before.into_iter().flat_map(|before| &before.values);
    before.filter(|(key, value)| sealed.get(*key).is_some_and(|now| now != *value)).map(|(key, _)| key)
}

/// A secret, or in a dry run its spec.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the document's view of what is answered")]
enum PutSecretAnswer {
    Secret(Box<Secret>),
    Spec(Box<SecretSpec>),
}

/// Delete a secret
///
/// Running executions keep its values. Executions that start later fail with the cause `secret_not_found`.
#[utoipa::path(delete, path = "/api/v1/secrets/{name}", tag = "secrets",
    params(
        ("name" = String, Path), Scope,
        ("If-Match" = Option<String>, Header, description = "Expected version; the request is refused if the resource has another version", example = "\"3\""),
    ),
    responses((status = 204, description = "Deleted"))
)]
async fn delete_secret(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(scope): Params<Scope>,
    wanted: Precondition,
) -> Result<StatusCode, ApiError> {
    let namespace = scope.namespace();
    let secret = find(&api, &actor, &name, namespace)?;
    let expected = wanted.expected(format!("secret `{name}`"), secret.version)?;
    let change = Change::DeleteSecret { namespace: namespace.to_owned(), name: name.clone(), expected };
    api.access.change(actor.identity(), &change).await.map_err(refused)?;
    actor.note().changed("", Some(&secret.spec), None);
    tracing::info!(namespace, secret = name, by = %actor.name, "secret deleted");
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the jobs of a workflow, each with the path of its spec below `at`.
pub(super) fn jobs_of<'a>(spec: &'a WorkflowSpec, at: &str) -> Vec<(String, &'a JobSpec)> {
    let sections = [("steps", &spec.steps), ("on_failure", &spec.on_failure), ("finally", &spec.finally)];
    let jobs = sections.into_iter().flat_map(|(section, steps)| {
        steps.iter().enumerate().filter_map(move |(i, step)| match &step.action {
            Action::Job(job) => Some((format!("{at}{section}[{i}].job."), job.as_ref())),
            _ => None,
        })
    });
    jobs.collect()
}

/// Refuses jobs that refer to secrets or keys that do not exist. Each job has the path of its spec in the request, such as
/// `job.`. Free for jobs without references.
///
/// # Errors
/// `invalid_spec` with every wrong reference.
pub(super) async fn check_references<'a>(
    api: &Api,
    jobs: impl Iterator<Item = (String, &'a JobSpec)>,
) -> Result<(), ApiError> {
    let jobs: Vec<_> = jobs.filter(|(_, job)| !job.secrets.is_empty()).collect();
    if jobs.is_empty() || wrong_references(api, &jobs).is_empty() {
        return Ok(());
    }
    // Another server may have created the secret just now.
    api.access.refresh().await?;
    let wrong = wrong_references(api, &jobs);
    if wrong.is_empty() { Ok(()) } else { Err(ApiError::invalid_fields(wrong)) }
}

fn wrong_references(api: &Api, jobs: &[(String, &JobSpec)]) -> Vec<FieldError> {
    api.access.read(|directory| {
        let of_job = |(at, job): &(String, &JobSpec)| {
            let wrong = secrets::missing(directory, &job.namespace, &job.secrets);
            wrong
                .into_iter()
                .map(|it| field_error(&format!("{at}{}", it.path), &it.message))
                .collect::<Vec<_>>()
        };
        jobs.iter().flat_map(of_job).collect()
    })
}
