//! Accounts, roles, role bindings and tokens: their routes, and how fast a change of rights takes effect.
//!
//! The rules are tested in the crate `access`, and the isolation of namespaces in `tenants`.

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST};
use axum::http::{Method, Request, StatusCode};
use futures::StreamExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{Events, World, job, soon};

async fn created(world: &World, token: &str, body: Value) -> Value {
    let answer = world.send_as(token, Method::POST, "/api/v1/tokens", body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    assert_eq!(answer.header("cache-control"), "no-store");
    answer.json()
}

fn secret(created: &Value) -> String {
    created["secret"].as_str().unwrap().to_owned()
}

fn id(created: &Value) -> &str {
    created["token"]["id"].as_str().unwrap()
}

/// H2.
#[tokio::test]
async fn an_account_is_created_gets_roles_is_disabled_and_deleted() {
    let world = World::new().await;
    let ann = json!({"name": "ann@example.com", "kind": "user", "title": "安 Ann"});
    let answer = world.post("/api/v1/accounts", ann.clone()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    assert_eq!(answer.header("location"), "/api/v1/accounts/ann@example.com");
    assert_eq!((&answer.json()["title"], &answer.json()["created_by"]), (&json!("安 Ann"), &json!("ann")));
    assert_eq!(world.post("/api/v1/accounts", ann).await.code(), "409 account_exists");

    let bind = json!({"role": "operator", "account": "ann@example.com", "namespace": "team"});
    for _ in 0..2 {
        let bound = world.json(Method::PUT, "/api/v1/bindings", bind.clone(), &[]).await;
        assert_eq!(bound.status, StatusCode::OK, "{}", bound.text());
    }
    let path = "/api/v1/accounts/ann@example.com";
    assert_eq!(world.get(path).await.json()["roles"], json!([{"role": "operator", "namespace": "team"}]));
    let listed = world.get("/api/v1/accounts?text=安&namespace=team").await;
    assert_eq!(listed.column("name"), ["ann@example.com"]);
    let token = secret(&created(&world, &world.admin, json!({"account": "ann@example.com"})).await);
    let me = world.get_as(&token, "/api/v1/me").await.json();
    assert_eq!(
        (&me["name"], &me["kind"], &me["title"]),
        (&json!("ann@example.com"), &json!("user"), &json!("安 Ann"))
    );
    let right = json!({"resource": "jobs", "verb": "operate", "namespaces": ["team"]});
    assert!(me["rights"].as_array().unwrap().contains(&right), "{me}");

    let changed = world.json(Method::PATCH, path, json!({"disabled": true, "title": ""}), &[]).await;
    assert_eq!((&changed.json()["disabled"], &changed.json()["title"]), (&json!(true), &Value::Null));
    assert_eq!(world.get_as(&token, "/api/v1/me").await.code(), "401 unauthenticated");
    world.json(Method::PATCH, path, json!({"disabled": false}), &[]).await;
    assert_eq!(world.get_as(&token, "/api/v1/me").await.status, StatusCode::OK);

    assert_eq!(world.delete(path).await.status, StatusCode::NO_CONTENT);
    assert_eq!(world.get(path).await.code(), "404 account_not_found");
    assert_eq!(world.get_as(&token, "/api/v1/me").await.code(), "401 unauthenticated");
    assert_eq!(world.get("/api/v1/bindings").await.json()["items"], json!([]));
    assert_eq!(world.delete(path).await.code(), "404 account_not_found");
}

/// H2. The owner of a job is the account that submitted it.
#[tokio::test]
async fn a_developer_submits_in_its_namespace_and_owns_the_job() {
    let world = World::new().await;
    let token = world.account("dev", &[("developer", "team")]).await;
    let submitted =
        world.send_as(&token, Method::POST, "/api/v1/jobs", job(json!({"namespace": "team"}))).await;
    assert_eq!(submitted.status, StatusCode::CREATED, "{}", submitted.text());
    let path = format!("/api/v1/jobs/{}", submitted.json()["id"].as_str().unwrap());
    assert_eq!(world.get_as(&token, &path).await.json()["owner"], "dev");
    let cancelled = world.send_as(&token, Method::POST, &format!("{path}/cancel"), json!({})).await;
    assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.text());
    let denied = world.send_as(&token, Method::POST, "/api/v1/jobs", job(json!({}))).await;
    assert_eq!(denied.code(), "403 forbidden");
    let detail = denied.json()["detail"].as_str().unwrap().to_owned();
    insta::assert_snapshot!(detail, @"`dev` may not create jobs in namespace `default`: `dev` has no role there");
    let batch = json!({"jobs": [job(json!({"namespace": "team"})), job(json!({}))]});
    let denied = world.send_as(&token, Method::POST, "/api/v1/jobs", batch).await;
    assert_eq!(denied.code(), "403 forbidden");
    assert_eq!(world.get("/api/v1/jobs?namespace=team").await.column("status"), ["cancelled"]);
}

/// H2. A token is shown once, is limited by its role and namespaces, and ends when it is revoked.
#[tokio::test]
async fn a_token_is_limited_listed_without_its_secret_and_revoked() {
    let world = World::new().await;
    let own = world.account("dev", &[("developer", "team"), ("developer", "other")]).await;
    let asked = json!({"description": "CI", "role": "operator", "namespaces": ["team"], "expires_in": "24h"});
    let made = created(&world, &own, asked).await;
    let token = secret(&made);
    assert!(token.starts_with(&format!("bf_user_{}_", id(&made))), "{token}");
    let text = token.rsplit('_').next().unwrap();
    let listed = world.get_as(&own, "/api/v1/tokens").await;
    assert!(!listed.text().contains(text), "{}", listed.text());
    assert_eq!(listed.json()["items"][0], made["token"]);
    assert_eq!(made["token"]["status"], "active");

    assert_eq!(world.get_as(&token, "/api/v1/jobs?namespace=team").await.status, StatusCode::OK);
    assert_eq!(world.get_as(&token, "/api/v1/jobs?namespace=other").await.code(), "403 forbidden");
    let denied = world.send_as(&token, Method::POST, "/api/v1/jobs", job(json!({"namespace": "team"}))).await;
    let detail = denied.json()["detail"].as_str().unwrap().to_owned();
    insta::assert_snapshot!(detail, @"`dev` may not create jobs: the token is limited to the role `operator`");
    let wider = world.send_as(&token, Method::POST, "/api/v1/tokens", json!({"role": "developer"})).await;
    assert_eq!(wider.code(), "403 escalation");

    let path = format!("/api/v1/tokens/{}", id(&made));
    let stranger = world.account("stranger", &[("admin", "team")]).await;
    assert_eq!(world.get_as(&stranger, &path).await.code(), "404 token_not_found");
    let revoked = world.send_as(&stranger, Method::DELETE, &path, json!({})).await;
    assert_eq!(revoked.code(), "404 token_not_found");
    for _ in 0..2 {
        let revoked = world.send_as(&own, Method::DELETE, &path, json!({})).await;
        assert_eq!(revoked.status, StatusCode::NO_CONTENT, "{}", revoked.text());
    }
    assert_eq!(world.get_as(&token, "/api/v1/me").await.code(), "401 unauthenticated");
    assert_eq!(world.get_as(&own, "/api/v1/tokens?status=revoked").await.column("id"), [id(&made)]);
    assert_eq!(world.get_as(&own, "/api/v1/tokens?name=dev&kind=user").await.column("name"), ["dev"]);
}

#[tokio::test]
async fn tokens_of_accounts_expire_after_90_days_unless_the_request_says_otherwise() {
    let world = World::new().await;
    let own = world.account("dev", &[]).await;
    let day = |token: &Value| {
        let at = |field: &str| token["token"][field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        (at("expires_at").as_second() - at("created_at").as_second()) / 86_400
    };
    assert_eq!(day(&created(&world, &own, json!({})).await), 90);
    assert_eq!(day(&created(&world, &own, json!({"expires_in": "8784h"})).await), 366);
    let long = world.send_as(&own, Method::POST, "/api/v1/tokens", json!({"expires_in": "8785h"})).await;
    assert_eq!(long.code(), "422 invalid_spec");
    let worker = created(&world, &world.admin, json!({"kind": "worker", "name": "w1"})).await;
    assert_eq!((&worker["token"]["expires_at"], &worker["token"]["name"]), (&Value::Null, &json!("w1")));
    for (body, path) in [
        (json!({}), "account"),
        (json!({"kind": "admin", "account": "dev"}), "account"),
        (json!({"account": "dev", "name": "x"}), "name"),
        (json!({"account": "dev", "kind": "service"}), "kind"),
    ] {
        let refused = world.post("/api/v1/tokens", body).await;
        assert_eq!(refused.code(), "422 invalid_spec");
        assert_eq!(refused.json()["errors"][0]["path"], path);
    }
    assert_eq!(
        world.post("/api/v1/tokens", json!({"account": "none"})).await.code(),
        "404 account_not_found"
    );
}

/// H2. A custom role gives exactly its permissions, and a change applies at once.
#[tokio::test]
async fn a_custom_role_is_defined_changed_and_deleted() {
    let world = World::new().await;
    let role =
        |verbs: Value| json!({"description": "On call", "rules": [{"verbs": verbs, "resources": ["jobs"]}]});
    let put = |body: Value| world.json(Method::PUT, "/api/v1/roles/oncall", body, &[]);
    assert_eq!(put(role(json!(["read"]))).await.status, StatusCode::OK);
    let token = world.account("dev", &[("oncall", "team")]).await;
    let id = world.submit(json!({"namespace": "team", "run_at": "2036-01-01T00:00:00Z"})).await;
    let cancel = format!("/api/v1/jobs/{id}/cancel");
    assert_eq!(world.send_as(&token, Method::POST, &cancel, json!({})).await.code(), "403 forbidden");
    assert_eq!(world.get_as(&token, &format!("/api/v1/jobs/{id}")).await.status, StatusCode::OK);
    assert_eq!(world.get_as(&token, "/api/v1/runs").await.code(), "403 forbidden");
    assert_eq!(put(role(json!(["read", "operate"]))).await.status, StatusCode::OK);
    assert_eq!(world.send_as(&token, Method::POST, &cancel, json!({})).await.status, StatusCode::OK);

    let names = world.get_as(&token, "/api/v1/roles").await.column("name");
    assert_eq!(names, ["viewer", "operator", "developer", "admin", "oncall"]);
    assert_eq!(world.delete("/api/v1/roles/oncall").await.code(), "409 role_in_use");
    assert_eq!(world.delete("/api/v1/roles/viewer").await.code(), "409 role_built_in");
    let unbind = "/api/v1/bindings?role=oncall&account=dev&namespace=team";
    assert_eq!(world.delete(unbind).await.status, StatusCode::NO_CONTENT);
    assert_eq!(world.delete(unbind).await.code(), "404 binding_not_found");
    assert_eq!(world.get_as(&token, &format!("/api/v1/jobs/{id}")).await.code(), "403 forbidden");
    assert_eq!(world.delete("/api/v1/roles/oncall").await.status, StatusCode::NO_CONTENT);
    assert_eq!(world.get("/api/v1/roles/oncall").await.code(), "404 role_not_found");
}

/// H2. An administrator of a namespace gives roles there, and cannot give more than it has.
#[tokio::test]
async fn an_administrator_of_a_namespace_gives_roles_in_it_only() {
    let world = World::new().await;
    let lead = world.account("lead", &[("admin", "team")]).await;
    world.account("dev", &[]).await;
    let bind = |role: &str, namespace: &str| {
        let body = json!({"role": role, "account": "dev", "namespace": namespace});
        let (world, lead) = (&world, &lead);
        async move { world.send_as(lead, Method::PUT, "/api/v1/bindings", body).await }
    };
    assert_eq!(bind("developer", "team").await.status, StatusCode::OK);
    assert_eq!(bind("developer", "other").await.code(), "403 forbidden");
    assert_eq!(bind("viewer", "*").await.code(), "403 forbidden");
    let created =
        world.send_as(&lead, Method::POST, "/api/v1/accounts", json!({"name": "x", "kind": "user"}));
    assert_eq!(created.await.code(), "403 forbidden");
    let seen = world.get_as(&lead, "/api/v1/bindings").await;
    assert_eq!(seen.column("namespace"), ["team", "team"]);
    assert_eq!(world.get_as(&lead, "/api/v1/bindings?namespace=*").await.code(), "403 forbidden");
}

#[tokio::test]
async fn the_last_administrator_cannot_be_removed() {
    let world = World::new().await;
    let own =
        world.get("/api/v1/tokens?kind=admin").await.json()["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/tokens/{own}");
    assert_eq!(world.delete(&path).await.code(), "409 last_admin");
    let next = secret(&created(&world, &world.admin, json!({"kind": "admin", "name": "next"})).await);
    assert_eq!(world.delete(&path).await.status, StatusCode::NO_CONTENT);
    assert_eq!(world.get("/api/v1/me").await.code(), "401 unauthenticated");
    assert_eq!(world.get_as(&next, "/api/v1/me").await.status, StatusCode::OK);
}

/// H2. The answer to "may I" comes from the function that decides.
#[tokio::test]
async fn a_check_explains_a_denial() {
    let world = World::new().await;
    let token = world.account("dev", &[("viewer", "team")]).await;
    let check = |token: &str, query: &str| {
        let (world, token, path) = (&world, token.to_owned(), format!("/api/v1/access/check?{query}"));
        async move { world.get_as(&token, &path).await }
    };
    let allowed = check(&token, "verb=read&resource=logs&namespace=team").await;
    assert_eq!(allowed.json(), json!({"allowed": true}));
    let denied = check(&token, "verb=operate&resource=jobs&namespace=team").await.json();
    assert_eq!(denied["allowed"], false);
    insta::assert_snapshot!(
        denied["reason"].as_str().unwrap(),
        @"`dev` may not operate jobs in namespace `team`: the roles of `dev` there (`viewer`) do not include it"
    );
    let other = "verb=operate&resource=jobs&namespace=team&account=dev";
    assert_eq!(check(&world.admin, other).await.json(), denied);
    let stranger = world.account("stranger", &[]).await;
    assert_eq!(check(&stranger, other).await.code(), "403 forbidden");
    assert_eq!(
        check(&world.admin, "verb=read&resource=jobs&account=none").await.code(),
        "404 account_not_found"
    );
    assert_eq!(check(&token, "verb=fly&resource=jobs").await.code(), "400 invalid_parameter");
}

async fn stream_as(world: &World, token: &str, path: &str) -> Events {
    let request =
        Request::get(path).header(HOST, "localhost").header(AUTHORIZATION, format!("Bearer {token}"));
    let response = world.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    Events { body: response.into_body().into_data_stream().boxed(), buffer: String::new() }
}

/// H2. A stream has the events of the caller's namespaces, and those of the cluster.
#[tokio::test]
async fn a_stream_of_events_has_no_event_of_another_namespace() {
    let world = World::new().await;
    let token = world.account("dev", &[("viewer", "a"), ("viewer", "b")]).await;
    let mut events = stream_as(&world, &token, "/api/v1/events").await;
    for namespace in ["secret", "a", "secret", "b", "secret"] {
        world
            .submit(json!({"name": namespace, "namespace": namespace, "run_at": "2036-01-01T00:00:00Z"}))
            .await;
    }
    for expected in ["a", "b"] {
        assert_eq!(events.next().await.unwrap().data["namespace"], expected);
    }
    let mut old = stream_as(&world, &token, "/api/v1/events?since=0&type=job").await;
    for expected in ["a", "b"] {
        assert_eq!(old.next().await.unwrap().data["namespace"], expected);
    }
    assert_eq!(world.get_as(&token, "/api/v1/events?namespace=secret").await.code(), "403 forbidden");
}

/// H2. A role change or a revoked token takes effect on open streams at once.
#[tokio::test]
async fn open_streams_end_when_the_rights_of_their_reader_change() {
    let world = World::new().await;
    let token = world.account("dev", &[("viewer", "team")]).await;
    let other = world.account("other", &[("viewer", "team")]).await;
    let mut stays = stream_as(&world, &other, "/api/v1/events").await;
    let mut ends = stream_as(&world, &token, "/api/v1/events").await;
    let bind = json!({"role": "operator", "account": "dev", "namespace": "team"});
    world.json(Method::PUT, "/api/v1/bindings", bind, &[]).await;
    assert_eq!(soon("the end of the stream", ends.next()).await, None);
    let mut ends = stream_as(&world, &token, "/api/v1/events").await;
    world.json(Method::PATCH, "/api/v1/accounts/dev", json!({"disabled": true}), &[]).await;
    assert_eq!(soon("the end of the stream", ends.next()).await, None);
    world.submit(json!({"namespace": "team"})).await;
    assert!(stays.next().await.is_some());
}

/// H2. A browser session ends with its token.
#[tokio::test]
async fn a_session_ends_when_its_token_is_revoked() {
    let world = World::new().await;
    let own = world.account("dev", &[("viewer", "team")]).await;
    let made = created(&world, &own, json!({})).await;
    let session = world.send_as(&secret(&made), Method::POST, "/api/v1/session", json!({})).await;
    assert_eq!((session.status, &session.json()["name"]), (StatusCode::OK, &json!("dev")));
    let cookie = session.header("set-cookie").split(';').next().unwrap().to_owned();
    let me = || {
        let request = Request::get("/api/v1/me").header(HOST, "localhost:7070").header(COOKIE, &cookie);
        world.send(request.header("sec-fetch-site", "same-origin").body(Body::empty()).unwrap())
    };
    assert_eq!(me().await.json()["name"], "dev");
    world.delete(&format!("/api/v1/tokens/{}", id(&made))).await;
    assert_eq!(me().await.code(), "401 unauthenticated");
}
