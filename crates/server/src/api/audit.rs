//! The audit log: search, single entries, verification.
//!
//! A caller with the right to read the audit log in a namespace sees the entries about objects of this namespace. Other
//! entries, and the verification of the chain, need the right in the whole cluster.

use ::audit::{Hash, Link, Sealed, Verifier};
use axum::extract::State;
use axum::{Extension, Json};
use model::Timestamp;
use model::access::{Resource, Verb};
use model::api::{AuditEntry, AuditReport, List};
use model::audit::Outcome;
use serde::Deserialize;
use store::audit::{AuditChain, AuditFilter, AuditLink, AuditRow};
use store::query::Page;
use utoipa_axum::routes;

use super::extract::{self, Params, Path};
use super::page::{self, Selection};
use super::problem::{ApiError, Code};
use super::routes::Routes;
use super::{Api, rows};
use crate::auth::Actor;

/// Entries that a verification reads at a time.
const ENTRIES: usize = 500;
/// Entries that one request verifies: some seconds.
const ENTRIES_MAX: u64 = 50_000;

pub(super) fn routes(routes: &mut Routes) {
    let audit = Resource::Audit;
    let list_refusals = [Code::InvalidCursor, Code::QueryTooSlow];
    routes.needs(Verb::Read, audit, &list_refusals, routes!(list_audit_entries));
    routes.needs(Verb::Read, audit, &[Code::QueryTooSlow], routes!(verify_audit_log));
    routes.needs(Verb::Read, audit, &[Code::AuditEntryNotFound], routes!(get_audit_entry));
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct ListAuditParams {
    /// Only entries about objects of this namespace; `*` for all entries that you may see [default: *]
    namespace: Option<String>,
    /// Only entries of this caller: an account, or the name of an admin or worker token.
    actor: Option<String>,
    /// Only entries of this action, for example `cancel_job`.
    action: Option<String>,
    /// Only entries of actions that need this verb.
    #[serde(deserialize_with = "extract::word")]
    verb: Option<Verb>,
    /// Only entries about this kind of resource.
    #[serde(deserialize_with = "extract::word")]
    resource: Option<Resource>,
    /// Only entries about the object with this name or ID.
    object: Option<String>,
    /// Only entries with this outcome.
    #[serde(deserialize_with = "extract::word")]
    outcome: Option<Outcome>,
    /// Only entries at this time or later.
    since: Option<Timestamp>,
    /// Only entries before this time.
    until: Option<Timestamp>,
    /// Maximum number of items on the page, from 1 to 1000 [default: 50]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Search the audit log, newest entries first
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(ListAuditParams), responses(
    (status = 200, description = "One page", body = List<AuditEntry>),
))]
async fn list_audit_entries(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<ListAuditParams>,
) -> Result<Json<List<AuditEntry>>, ApiError> {
    let limit = page::limit(params.limit)?;
    let filter = AuditFilter {
        namespace: page::namespace(params.namespace),
        actor: params.actor,
        action: params.action,
        verb: params.verb.map(|verb| verb.as_str().to_owned()),
        resource: params.resource.map(|resource| resource.as_str().to_owned()),
        object: params.object,
        outcome: params.outcome.map(|outcome| outcome.as_str().to_owned()),
        since: params.since,
        until: params.until,
    };
    let selection = Selection::of(&actor, filter.namespace.as_deref())?;
    let cursors = &api.shared.cursors;
    let filtered = (&filter, &selection);
    let after = cursors.read::<u64>("audit", &filtered, params.cursor.as_deref())?;
    let page = Page { after, limit };
    let query = |namespace| {
        let (store, filter) = (api.node.store(), AuditFilter { namespace, ..filter.clone() });
        async move { store.audit(&filter, page).await }
    };
    let found = selection.page(limit, query, |row| row.link.sequence).await?;
    let last = found.items.last().filter(|_| found.more);
    let next_cursor = last.map(|row| cursors.make("audit", &filtered, &row.link.sequence.to_string()));
    let items = found.items.iter().map(shown).collect::<Result<_, _>>()?;
    Ok(Json(List { items, next_cursor }))
}

fn shown(row: &AuditRow) -> Result<AuditEntry, ApiError> {
    let sequence = row.link.sequence;
    let mut fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&row.body).map_err(|error| {
            tracing::error!(sequence, error = %error, "entry of the audit log cannot be read");
            let detail = format!("entry {sequence} of the audit log was damaged: run `belfry audit verify`");
            ApiError::new(Code::Internal, detail)
        })?;
    fields.insert("sequence".into(), sequence.into());
    fields.insert("hash".into(), Hash(row.link.hash).to_string().into());
    serde_json::from_value(fields.into()).map_err(|error| ApiError::internal(&error))
}

/// Show an entry of the audit log
#[utoipa::path(get, path = "/api/v1/audit/{sequence}", tag = "audit", params(("sequence" = u64, Path)), responses(
    (status = 200, description = "The entry", body = AuditEntry),
))]
async fn get_audit_entry(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(sequence): Path<u64>,
) -> Result<Json<AuditEntry>, ApiError> {
    let missing = || {
        let detail =
            format!("entry {sequence} of the audit log does not exist, or was deleted after its retention");
        ApiError::new(Code::AuditEntryNotFound, detail)
    };
    let found = api.node.store().audit_after(sequence.saturating_sub(1), 1).await?;
    let row = found.first().filter(|row| row.link.sequence == sequence).ok_or_else(missing)?;
    match &row.namespace {
        Some(namespace) => rows::permit(&actor, namespace, missing)?,
        None if !actor.is_unrestricted() => return Err(missing()),
        None => {}
    }
    shown(row).map(Json)
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct VerifyParams {
    /// Sequence number of the last entry that you have verified [default: verify from the oldest entry on]
    sequence: Option<u64>,
    /// Hash of this entry: the log is valid only if it still continues from there.
    hash: Option<String>,
}

/// Verify the audit log
///
/// Checks that no entry was changed, removed, inserted or moved since it was appended. One request verifies a limited
/// number of entries: continue with `sequence` and `hash` of the response until it is `complete`. Keep both elsewhere,
/// and begin with them the next time: this also detects a log that was replaced as a whole.
#[utoipa::path(get, path = "/api/v1/audit/verify", tag = "audit", params(VerifyParams), responses(
    (status = 200, description = "The result: a damaged log is no error of the request", body = AuditReport),
))]
async fn verify_audit_log(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Params(params): Params<VerifyParams>,
) -> Result<Json<AuditReport>, ApiError> {
    actor.check_cluster()?;
    let known = known(&params)?;
    let mut chain = api.node.store().audit_chain().await?;
    loop {
        let report = verify(&api, &chain, known).await?;
        let now = api.node.store().audit_chain().await?;
        // If retention deleted entries in the meantime, their absence means nothing.
        if report.valid || now.cut == chain.cut {
            return Ok(Json(report));
        }
        chain = now;
    }
}

fn known(params: &VerifyParams) -> Result<Option<Link>, ApiError> {
    match (params.sequence, &params.hash) {
        (None, None) => Ok(None),
        (Some(sequence), Some(hash)) => {
            let hash = hash.parse().map_err(|error| ApiError::parameter("hash", format!("{error}")))?;
            Ok(Some(Link { sequence, hash }))
        }
        (Some(_), None) => Err(ApiError::parameter("hash", "is missing: it belongs to `sequence`")),
        (None, Some(_)) => Err(ApiError::parameter("sequence", "is missing: it belongs to `hash`")),
    }
}

fn link(AuditLink { sequence, hash }: AuditLink) -> Link {
    Link { sequence, hash: Hash(hash) }
}

/// Verifies a part of the chain, up to the last entry that it had before.
async fn verify(api: &Api, chain: &AuditChain, known: Option<Link>) -> Result<AuditReport, ApiError> {
    let start = known.filter(|known| known.sequence >= chain.cut.sequence).unwrap_or(link(chain.cut));
    let mut verifier = Verifier::after(start);
    let problem = verify_entries(api, chain, &mut verifier).await?.err();
    // Otherwise a person with access to the database could write a new chain that begins after the known entry.
    let is_deleted = known.filter(|known| known.sequence < chain.cut.sequence);
    let problem = problem.or_else(|| {
        let known = is_deleted?.sequence;
        Some(format!(
            "entry {known} was deleted, as were all entries up to {}: nothing links it to the entries after them",
            chain.cut.sequence
        ))
    });
    let last = verifier.last();
    Ok(AuditReport {
        valid: problem.is_none(),
        complete: problem.is_some() || last.sequence >= chain.last.sequence,
        verified: verifier.verified(),
        deleted_until: chain.cut.sequence,
        sequence: last.sequence,
        hash: last.hash.to_string(),
        problem,
    })
}

/// Verifies at most [`ENTRIES_MAX`] entries. The inner error is the place and kind of a damage.
async fn verify_entries(
    api: &Api,
    chain: &AuditChain,
    verifier: &mut Verifier,
) -> Result<Result<(), String>, ApiError> {
    while verifier.last().sequence < chain.last.sequence {
        let rows = api.node.store().audit_after(verifier.last().sequence, ENTRIES).await?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            // Entries that were appended since are verified the next time.
            if row.link.sequence > chain.last.sequence {
                break;
            }
            let column = wrong_column(&row);
            let sealed = Sealed { link: link(row.link), body: row.body };
            if let Err(broken) = verifier.check(&sealed) {
                return Ok(Err(broken.to_string()));
            }
            if let Some(column) = column {
                let sequence = sealed.link.sequence;
                let problem =
                    format!("entry {sequence} was changed: its column `{column}` differs from its content");
                return Ok(Err(problem));
            }
        }
        if verifier.verified() >= ENTRIES_MAX {
            return Ok(Ok(()));
        }
        tokio::task::yield_now().await;
    }
    Ok(verifier.finish(link(chain.last)).map_err(|broken| broken.to_string()))
}

/// Returns the column of a row that differs from its body: a search would not find the entry.
fn wrong_column(row: &AuditRow) -> Option<&'static str> {
    let Ok(body) = serde_json::from_str::<serde_json::Value>(&row.body) else { return Some("body") };
    let text = |field: &str| body.get(field).and_then(serde_json::Value::as_str);
    let at = text("at").and_then(|at| at.parse::<Timestamp>().ok());
    [
        ("at", at == Some(row.at)),
        ("namespace", text("namespace") == row.namespace.as_deref()),
        ("actor", text("actor") == Some(&row.actor)),
        ("action", text("action") == Some(&row.action)),
        ("verb", text("verb") == Some(&row.verb)),
        ("resource", text("resource") == Some(&row.resource)),
        ("object", text("object") == row.object.as_deref()),
        ("outcome", text("outcome") == Some(&row.outcome)),
    ]
    .into_iter()
    .find_map(|(column, is_equal)| (!is_equal).then_some(column))
}
