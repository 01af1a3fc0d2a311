//! Servers: list, show, drain; members of a Raft cluster: list, remove.
//!
//! Each server answers from the store, so requests about servers work even without a leader. Only the leader knows how far
//! the members are.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use model::api::{ClusterMember, CopyProgress, List, MemberRole, Server};
use model::{Bytes, ServerId, ShardId};
use raft::error::MembershipError;
use raft::node::{Member as Node, Status};
use raft::types::NodeId;
use store::cluster::{Cluster, Member};
use utoipa_axum::routes;

use super::Api;
use super::extract::Path;
use super::problem::{ApiError, Code};
use super::routes::Routes;
use crate::auth::{Actor, Resource, Verb};

pub(super) fn routes(routes: &mut Routes) {
    let servers = Resource::Server;
    routes.needs(Verb::Read, servers, &[], routes!(list_servers));
    routes.needs(Verb::Read, servers, &[Code::ServerNotFound], routes!(get_server));
    let refusals = [Code::ServerNotFound, Code::NoOtherServer];
    routes.needs(Verb::Operate, servers, &refusals, routes!(drain_server));
    routes.of_each_server();
    routes.needs(Verb::Operate, servers, &[Code::ServerNotFound], routes!(undrain_server));
    routes.of_each_server();
    routes.needs(Verb::Read, servers, &[], routes!(list_members));
    routes.of_leader();
    let refusals = [Code::MemberNotFound, Code::MemberNotRemovable];
    routes.needs(Verb::Operate, servers, &refusals, routes!(remove_member));
}

fn shown(api: &Api, cluster: &Cluster, member: &Member) -> Server {
    let id = member.server.id.to_string();
    let owned = cluster.shards.iter().filter(|row| row.owner.as_deref() == Some(&id));
    Server {
        id: member.server.id,
        name: member.server.name.clone(),
        url: member.server.url.clone(),
        version: member.server.version.clone(),
        started_at: member.server.started_at,
        leader: cluster.owner_of(ShardId(0)).is_some_and(|leader| leader.server.id == member.server.id),
        shards: u16::try_from(owned.clone().count()).unwrap_or(u16::MAX),
        epoch: owned.map(|row| row.epoch.0).max(),
        lag: member.lag,
        draining: member.draining,
        responder: member.server.id == api.members.me().id,
    }
}

/// Returns the current servers and shards.
async fn cluster(api: &Api) -> Result<Cluster, ApiError> {
    Ok(api.node.store().cluster().await?)
}

async fn one(api: &Api, id: ServerId) -> Result<Server, ApiError> {
    let cluster = cluster(api).await?;
    cluster.member(id).map(|member| shown(api, &cluster, member)).ok_or_else(|| not_found(id))
}

fn not_found(id: ServerId) -> ApiError {
    ApiError::new(Code::ServerNotFound, format!("server `{id}` does not exist"))
}

/// List the servers that share the store, oldest first
#[utoipa::path(get, path = "/api/v1/servers", tag = "servers", responses(
    (status = 200, description = "All servers", body = List<Server>),
))]
async fn list_servers(State(api): State<Api>) -> Result<Json<List<Server>>, ApiError> {
    let cluster = cluster(&api).await?;
    let items = cluster.members.iter().map(|member| shown(&api, &cluster, member)).collect();
    Ok(Json(List { items, next_cursor: None }))
}

/// Show a server
#[utoipa::path(get, path = "/api/v1/servers/{id}", tag = "servers", params(("id" = ServerId, Path)), responses(
    (status = 200, description = "The server", body = Server),
))]
async fn get_server(State(api): State<Api>, Path(id): Path<ServerId>) -> Result<Json<Server>, ApiError> {
    Ok(Json(one(&api, id).await?))
}

/// Drain a server
///
/// The server hands over leadership and does not lead, until you undo the drain or restart the server. It continues to
/// answer, and forwards requests that only the leader can handle.
#[utoipa::path(post, path = "/api/v1/servers/{id}/drain", tag = "servers", params(("id" = ServerId, Path)), responses(
    (status = 200, description = "The updated server; `shards` is 0 once the drain has finished", body = Server),
))]
async fn drain_server(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<ServerId>,
) -> Result<Json<Server>, ApiError> {
    let cluster = cluster(&api).await?;
    let member = cluster.member(id).ok_or_else(|| not_found(id))?;
    if !cluster.members.iter().any(|other| other.server.id != id && !other.draining) {
        let detail = format!("cannot drain server `{}`: no other server can take over", member.server.name);
        return Err(ApiError::new(Code::NoOtherServer, detail));
    }
    set(&api, &actor, id, true).await
}

/// Undo the drain of a server
#[utoipa::path(post, path = "/api/v1/servers/{id}/undrain", tag = "servers", params(("id" = ServerId, Path)), responses(
    (status = 200, description = "The updated server", body = Server),
))]
async fn undrain_server(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<ServerId>,
) -> Result<Json<Server>, ApiError> {
    set(&api, &actor, id, false).await
}

async fn set(api: &Api, actor: &Actor, id: ServerId, draining: bool) -> Result<Json<Server>, ApiError> {
    if !api.node.store().set_draining(id, draining).await? {
        return Err(not_found(id));
    }
    tracing::info!(server_id = %id, draining, by = %actor.name, "server drain changed");
    Ok(Json(one(api, id).await?))
}

fn shown_member(status: &Status, node: &Node) -> ClusterMember {
    let role = match node.is_voter {
        true if status.leader == Some(node.node) => MemberRole::Leader,
        true => MemberRole::Voter,
        false => MemberRole::Learner,
    };
    ClusterMember {
        id: node.node.to_string(),
        name: node.peer.name.clone(),
        address: node.peer.address.clone(),
        role,
        running: node.is_reachable(),
        last_contact: node.silent_for.map(model::Duration::from),
        missing_entries: node.missing_entries(status),
        copying: node
            .copying
            .map(|copying| CopyProgress { sent: Bytes(copying.sent), total: Bytes(copying.total) }),
    }
}

/// List the members of the cluster
///
/// Empty without the Raft store. A member whose server does not run is in the list until it is removed.
#[utoipa::path(get, path = "/api/v1/cluster/members", tag = "servers", responses(
    (status = 200, description = "All members, in the order of their names", body = List<ClusterMember>),
))]
async fn list_members(State(api): State<Api>) -> Json<List<ClusterMember>> {
    let status = api.raft_member.as_ref().map(|member| member.store().status());
    let members =
        status.iter().flat_map(|status| status.members.iter().map(|node| shown_member(status, node)));
    let mut items: Vec<_> = members.collect();
    items.sort_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
    Json(List { items, next_cursor: None })
}

/// Remove a member of the cluster
///
/// For a server that has ended for good, for example because its disk is lost. A member whose server runs is refused: stop
/// it first. The server must not be started again with its data folder.
#[utoipa::path(delete, path = "/api/v1/cluster/members/{id}", tag = "servers", params(
    ("id" = String, Path, description = "ID of the member"),
), responses((status = 204, description = "The member was removed")))]
async fn remove_member(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let not_found = || ApiError::new(Code::MemberNotFound, format!("the cluster has no member `{id}`"));
    let refused = |reason: &str| {
        ApiError::new(Code::MemberNotRemovable, format!("cannot remove member `{id}`: {reason}"))
    };
    let node = u64::from_str_radix(&id, 16).map(NodeId).map_err(|_| not_found())?;
    let member = api.raft_member.as_ref().ok_or_else(not_found)?;
    match member.store().remove(node).await {
        Ok(()) => {
            tracing::info!(member = %node, by = %actor.name, "removed a member of the cluster");
            Ok(StatusCode::NO_CONTENT)
        }
        Err(MembershipError::Unknown { .. }) => Err(not_found()),
        Err(MembershipError::Refused { reason }) => Err(refused(&reason)),
        Err(error @ MembershipError::InProgress) => Err(refused(&error.to_string())),
        Err(error @ MembershipError::NotLeader { .. }) => {
            Err(ApiError::new(Code::Loading, error.to_string()))
        }
        Err(error) => Err(ApiError::new(Code::OutcomeUnknown, error.to_string())),
    }
}
