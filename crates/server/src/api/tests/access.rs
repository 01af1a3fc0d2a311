//! Access rules, for every route of the OpenAPI document.
//!
//! The first tests go through all routes of the document and of the table of rights, so a new route cannot be
//! forgotten: each refuses callers without the right, and only the routes in [`OPEN`] need no token.
//!
//! The rest covers the browser session of the dashboard. A cookie represents the token, so the tests play
//! requests that a page of another site makes a browser send: none may read a response or change anything.

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST};
use axum::http::{Method, Request, StatusCode};
use tower::ServiceExt;
use utoipa::openapi::HttpMethod;

use super::{Answer, World, job};
use crate::api::gate::Access;
use crate::api::{document, table};
use crate::auth::{AccessControl, IdentityKind};

/// Routes without authentication. A new entry needs a reason.
const OPEN: [&str; 17] = [
    "GET /healthz",
    "GET /livez",
    "GET /openapi.json",
    "GET /readyz",
    "GET /schemas/{name}",
    // A password or an invitation takes the place of the token: see `logins`.
    "POST /api/v1/login",
    "POST /api/v1/invitations/check",
    "POST /api/v1/invitations/accept",
    // A secret token in the URL is the right to ping one monitor.
    "GET /ping/{token}",
    "POST /ping/{token}",
    "GET /ping/{token}/{signal}",
    "POST /ping/{token}/{signal}",
    // The OpenID provider takes the place of the token: see `oidc`.
    "GET /api/v1/login/methods",
    "POST /api/v1/login/oidc",
    "GET /api/v1/login/oidc/cli",
    "GET /api/v1/login/oidc/callback",
    "POST /api/v1/login/oidc/exchange",
];

fn method(method: &HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
        _ => unreachable!("the table has no others"),
    }
}

/// Returns the path with valid parameters.
fn filled(path: &str, job: &str) -> String {
    let id = match path {
        path if path.contains("/workers/") => "wkr_01k9zq3m6c0000000000000000",
        path if path.contains("/executions/") => "exe_01k9zq3m6c0000000000000000",
        path if path.contains("/backfills/") => "bkf_01k9zq3m6c0000000000000000",
        _ => job,
    };
    path.replace("{id}", id).replace("{name}", "default")
}

async fn ask(world: &World, method: &Method, path: &str, token: Option<&str>) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header(HOST, "localhost");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, token);
    }
    world.send(request.header(CONTENT_TYPE, "application/json").body(Body::from("{}")).unwrap()).await
}

/// Every route × {no token, garbage, another scheme, a forged token, a worker's token} is refused, and nothing is
/// changed.
#[tokio::test]
async fn every_route_refuses_callers_without_the_right() {
    let world = World::new().await;
    let job_id = world.submit(job(serde_json::json!({"run_at": "2030-01-01T00:00:00Z"}))).await;
    let before = world.get(&format!("/api/v1/jobs/{job_id}")).await.json();
    let forged = format!("Bearer {}", crate::auth::token::generate(IdentityKind::Admin));
    let worker = format!("Bearer {}", world.worker);
    let basic = format!("Basic {}", world.admin);
    let mut gated = 0;
    for (http_method, path, access) in table().entries().collect::<Vec<_>>() {
        let (method, filled) = (method(&http_method), filled(&path, &job_id));
        let route = format!("{method} {path}");
        if access == Access::Open {
            assert!(OPEN.contains(&route.as_str()), "{route} is open to anyone");
            continue;
        }
        gated += 1;
        for token in [None, Some("Bearer"), Some("Bearer x"), Some(basic.as_str()), Some(forged.as_str())] {
            let answer = ask(&world, &method, &filled, token).await;
            assert_eq!(answer.code(), "401 unauthenticated", "{route} with {token:?}");
            assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"belfry\"");
        }
        assert_eq!(ask(&world, &method, &filled, Some(&worker)).await.code(), "403 forbidden", "{route}");
    }
    assert!(gated > 30, "{gated} routes were tried");
    assert_eq!(world.get(&format!("/api/v1/jobs/{job_id}")).await.json(), before);
    assert_eq!(world.get("/api/v1/jobs").await.column("id"), [job_id]);
    assert_eq!(world.get("/api/v1/artifacts").await.column("name"), Vec::<String>::new());
    assert_eq!(world.get("/api/v1/queues").await.column("name"), ["default"]);
    assert_eq!(world.get("/api/v1/schedules").await.column("name"), Vec::<String>::new());
}

#[test]
fn the_document_has_every_route_of_the_table_and_says_which_need_a_token() {
    let document = serde_json::to_value(document()).unwrap();
    let mut routes = 0;
    for (http_method, path, access) in table().entries() {
        routes += 1;
        let method = method(&http_method).to_string().to_lowercase();
        let operation = &document["paths"][&path][&method];
        assert!(operation.is_object(), "{method} {path}");
        let needed = operation["security"].as_array().unwrap_or_else(|| panic!("{method} {path}"));
        assert_eq!(needed.is_empty(), access == Access::Open, "{method} {path}");
        let responses = operation["responses"].as_object().unwrap();
        for status in ["401", "403"].into_iter().filter(|_| access != Access::Open) {
            assert!(responses.contains_key(status), "{method} {path} has no {status}");
        }
    }
    let documented: usize =
        document["paths"].as_object().unwrap().values().map(|item| item.as_object().unwrap().len()).sum();
    assert_eq!(routes, documented);
}

#[tokio::test]
async fn pages_and_probes_need_no_token_and_contain_no_data() {
    let world = World::new().await;
    world.submit(serde_json::json!({"name": "secret-name"})).await;
    for path in [
        "/",
        "/docs",
        "/docs/problems",
        "/docs/style.css",
        "/openapi.json",
        "/schemas/schedule.json",
        "/healthz",
        "/livez",
        "/readyz?verbose",
    ] {
        let answer = ask(&world, &Method::GET, path, None).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert!(!answer.text().contains("secret-name"), "{path}");
    }
}

#[tokio::test]
async fn a_new_token_is_valid_immediately() {
    let world = World::new().await;
    let text = world.admin_token("bob").await;
    let answer = ask(&world, &Method::GET, "/api/v1/me", Some(&format!("bearer {text}"))).await;
    let me = answer.json();
    assert_eq!((me["name"].as_str(), me["kind"].as_str()), (Some("bob"), Some("admin")));
}

/// Returns the request that a page of another site makes the browser send, with the header that the dashboard adds.
async fn with_cookie(world: &World, method: Method, path: &str, cookie: &str, site: &str) -> Answer {
    let headers = [("sec-fetch-site", site), ("x-belfry-csrf", "1")];
    with_headers(world, method, path, cookie, &headers).await
}

async fn with_headers(
    world: &World,
    method: Method,
    path: &str,
    cookie: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let request = Request::builder().method(method).uri(path).header(HOST, "localhost:7070");
    let request = request.header(COOKIE, format!("other=1; {cookie}"));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    world.send(request.body(Body::empty()).unwrap()).await
}

async fn sign_in(world: &World, body: serde_json::Value) -> (Answer, String) {
    let answer = world.post("/api/v1/session", body).await;
    let cookie = answer.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
    (answer, cookie)
}

/// H1. A browser sends its token once; a cookie that no script can read represents it afterwards.
#[tokio::test]
async fn a_session_is_accepted_from_pages_of_this_server_only() {
    let world = World::new().await;
    let (answer, cookie) = sign_in(&world, serde_json::json!({"remember": true})).await;
    let me = answer.json();
    assert_eq!((me["name"].as_str(), me["kind"].as_str()), (Some("ann"), Some("admin")));
    let attributes = answer.header("set-cookie").strip_prefix(&cookie).unwrap();
    assert_eq!(attributes, "; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000");
    assert!(cookie.starts_with("belfry_7070=") && !cookie.contains(&world.admin), "{cookie}");

    let me = with_cookie(&world, Method::GET, "/api/v1/me", &cookie, "same-origin").await;
    assert_eq!(me.json()["name"], "ann");
    let pause = "/api/v1/queues/default/pause";
    assert_eq!(with_cookie(&world, Method::POST, pause, &cookie, "same-origin").await.status, StatusCode::OK);
    for (method, path) in
        [(Method::POST, pause), (Method::GET, "/api/v1/jobs"), (Method::GET, "/api/v1/events")]
    {
        for site in ["cross-site", "same-site"] {
            let answer = with_cookie(&world, method.clone(), path, &cookie, site).await;
            assert_eq!(answer.code(), "403 cross_site", "{method} {path}");
        }
    }
    let forged = cookie.replace("belfry_7070=", "belfry_7070=x");
    let answer = with_cookie(&world, Method::GET, "/api/v1/me", &forged, "same-origin").await;
    assert_eq!(answer.code(), "401 unauthenticated");
}

/// H1. Forms, links and images of any page cannot change anything, because they cannot add a header. Reads need no
/// header, so that streams and downloads opened by the browser work.
#[tokio::test]
async fn a_session_changes_nothing_without_the_header_that_only_a_script_can_send() {
    let world = World::new().await;
    let (_, cookie) = sign_in(&world, serde_json::json!({})).await;
    let own = [("sec-fetch-site", "same-origin")];
    let mut changing = 0;
    for (http_method, path, access) in table().entries().collect::<Vec<_>>() {
        let (method, path) = (method(&http_method), filled(&path, "job_01k9zq3m6c0000000000000000"));
        if access == Access::Open || method.is_safe() {
            continue;
        }
        changing += 1;
        for headers in [&own[..], &[("origin", "http://localhost:7070")]] {
            let answer = with_headers(&world, method.clone(), &path, &cookie, headers).await;
            assert_eq!(answer.code(), "403 cross_site", "{method} {path}");
        }
    }
    assert!(changing > 20, "{changing} routes were tried");
    for path in ["/api/v1/me", "/api/v1/artifacts", "/api/v1/events?since=0"] {
        let request = Request::get(path).header(HOST, "localhost:7070").header(COOKIE, &cookie);
        let request = request.header("sec-fetch-site", "same-origin").body(Body::empty()).unwrap();
        // A stream has no end: only its headers are checked.
        let answer = world.router.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
    }
    let alone = [("x-belfry-csrf", "1")];
    let pause = "/api/v1/queues/default/pause";
    let answer = with_headers(&world, Method::POST, pause, &cookie, &alone).await;
    assert_eq!(answer.code(), "403 cross_site", "the header alone does not prove the origin");
}

#[tokio::test]
async fn a_session_cannot_be_made_from_a_session_and_ends_when_signed_out() {
    let world = World::new().await;
    let (answer, cookie) = sign_in(&world, serde_json::json!({})).await;
    assert!(!answer.header("set-cookie").contains("Max-Age"), "{}", answer.header("set-cookie"));
    let again = with_cookie(&world, Method::POST, "/api/v1/session", &cookie, "same-origin").await;
    assert_eq!(again.code(), "401 unauthenticated");
    let out = with_cookie(&world, Method::DELETE, "/api/v1/session", &cookie, "same-origin").await;
    assert_eq!(out.status, StatusCode::NO_CONTENT);
    assert!(
        out.header("set-cookie").starts_with("belfry_7070=; ")
            && out.header("set-cookie").contains("Max-Age=0")
    );
}

#[tokio::test]
async fn the_first_start_makes_one_admin_and_one_worker_token() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let store = std::sync::Arc::new(
        store::sqlite::SqliteStore::open(folder.path().join("x.db"), store::sqlite::Options::default())
            .unwrap(),
    );
    let access = AccessControl::load(store.clone()).await.unwrap();
    let first = crate::auth::first_start(&access, store.as_ref(), folder.path()).await.unwrap();
    let admin = first.admin_token.clone().unwrap();
    assert_eq!(std::fs::read_to_string(&first.admin_token_file).unwrap().trim(), admin);
    let worker = std::fs::read_to_string(&first.worker_token_file).unwrap();
    let again = AccessControl::load(store.clone()).await.unwrap();
    assert_eq!(again.authenticate(&admin).await.unwrap().unwrap().kind, IdentityKind::Admin);
    assert_eq!(again.authenticate(worker.trim()).await.unwrap().unwrap().kind, IdentityKind::Worker);
    let second = crate::auth::first_start(&again, store.as_ref(), folder.path()).await.unwrap();
    assert_eq!(second.admin_token, None);
    assert_eq!(std::fs::read_to_string(&first.worker_token_file).unwrap(), worker);
    drop(world);
}

/// A start must not undo that an operator revoked the admin tokens.
#[tokio::test]
async fn a_start_makes_no_admin_token_while_an_account_can_administrate_everything() {
    let world = World::new().await;
    world.account("ann", &[("admin", "*")]).await;
    let own = world.get("/api/v1/tokens?kind=admin").await.column("id").remove(0);
    assert_eq!(world.delete(&format!("/api/v1/tokens/{own}")).await.status, StatusCode::NO_CONTENT);
    let folder = tempfile::tempdir().unwrap();
    let first = || crate::auth::first_start(&world.services.access, world.store.as_ref(), folder.path());
    assert_eq!(first().await.unwrap().admin_token, None);
    let disable = ::access::Change::RevokeToken {
        id: world.services.access.read(|directory| {
            directory
                .tokens()
                .find(|it| it.bearer.name() == "ann" && it.revoked_at.is_none())
                .unwrap()
                .id
                .clone()
        }),
    };
    let refused = world.services.access.change(&crate::auth::Identity::admin("test"), &disable).await;
    assert!(refused.is_err(), "the last way to administrate everything cannot be removed");
}
