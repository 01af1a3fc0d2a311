//! Whatever is refused, by whatever layer, is a problem document.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::json;

use super::{World, job};

fn shown(body: &serde_json::Value) -> String {
    let mut body = body.clone();
    body["instance"] = json!("[request id]");
    serde_json::to_string_pretty(&body).unwrap()
}

#[tokio::test]
async fn refusals_of_every_layer_have_one_form() {
    let world = World::new().await;
    let id = world.submit(json!({})).await;
    let raw = |method, path: &str, content_type: &str, body: &str| {
        world
            .request(method, path)
            .header("content-type", content_type)
            .body(Body::from(body.to_owned()))
            .unwrap()
    };
    let long = format!("/api/v1/jobs?name={}", "x".repeat(9_000));
    for (request, expected) in [
        (raw(Method::GET, "/nowhere", "", ""), "404 not_found"),
        (raw(Method::GET, "/api/v1/nowhere", "", ""), "404 not_found"),
        (raw(Method::PUT, "/api/v1/jobs", "", ""), "405 method_not_allowed"),
        (raw(Method::GET, "/api/v1/jobs/x", "", ""), "400 invalid_parameter"),
        (raw(Method::GET, "/api/v1/jobs/%ff", "", ""), "400 invalid_parameter"),
        (raw(Method::GET, "/api/v1/jobs/job_01k9zq3m6c0000000000000000", "", ""), "404 job_not_found"),
        (
            raw(Method::GET, "/api/v1/executions/exe_01k9zq3m6c0000000000000000", "", ""),
            "404 execution_not_found",
        ),
        (raw(Method::GET, "/api/v1/jobs?limit=0", "", ""), "400 invalid_parameter"),
        (raw(Method::GET, "/api/v1/jobs?nonsense=1", "", ""), "400 invalid_parameter"),
        (raw(Method::GET, &long, "", ""), "414 uri_too_long"),
        (raw(Method::POST, "/api/v1/jobs", "text/plain", "{}"), "415 unsupported_media_type"),
        (raw(Method::POST, "/api/v1/jobs", "application/json", "{"), "400 malformed_body"),
        (raw(Method::POST, "/api/v1/jobs", "application/json", "{}"), "422 invalid_spec"),
        (raw(Method::POST, "/api/v1/jobs", "application/yaml", "a: [\n"), "400 malformed_body"),
        (
            raw(Method::POST, &format!("/api/v1/jobs/{id}/cancel"), "application/json", "[]"),
            "422 invalid_spec",
        ),
        (
            raw(Method::PATCH, &format!("/api/v1/jobs/{id}"), "application/yaml", "a: b"),
            "415 unsupported_media_type",
        ),
    ] {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let answer = world.send(request).await;
        assert_eq!(answer.code(), expected, "{method} {uri}");
        assert_eq!(answer.json()["instance"], answer.header("x-request-id"), "{method} {uri}");
        let code = answer.json()["code"].as_str().unwrap().to_owned();
        assert_eq!(answer.json()["type"], format!("/docs/problems#{code}"));
    }
}

#[tokio::test]
async fn a_method_that_is_not_taken_is_told_which_are() {
    let world = World::new().await;
    let answer = world.send(world.request(Method::PUT, "/api/v1/jobs").body(Body::empty()).unwrap()).await;
    let mut allowed: Vec<_> = answer.header("allow").split(',').map(str::trim).collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
}

#[tokio::test]
async fn the_bodies_of_refusals_read_well() {
    let world = World::new().await;
    insta::assert_snapshot!("not_found", shown(&world.get("/api/v1/jbos").await.json()));
    insta::assert_snapshot!("invalid_parameter", shown(&world.get("/api/v1/jobs?status=done").await.json()));
    insta::assert_snapshot!("invalid_id", shown(&world.get("/api/v1/jobs/42").await.json()));
    let body = job(json!({"nmae": "x"}));
    insta::assert_snapshot!("unknown_field", shown(&world.post("/api/v1/jobs", body).await.json()));
    let body = job(json!({"name": "a b", "priority": 101}));
    insta::assert_snapshot!("invalid_spec", shown(&world.post("/api/v1/jobs", body).await.json()));
}

/// A body that announces more than may be, or that is larger than it announced.
#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let world = World::new().await;
    let huge = "x".repeat(model::limits::BATCH_BODY_BYTES_MAX + 1);
    let request = world.request(Method::POST, "/api/v1/jobs").header("content-type", "application/json");
    assert_eq!(world.send(request.body(Body::from(huge)).unwrap()).await.code(), "413 body_too_large");
    let single = job(json!({"labels": {"k": "x".repeat(model::limits::BODY_BYTES_MAX)}}));
    assert_eq!(world.post("/api/v1/jobs", single).await.code(), "413 body_too_large");
}

/// DNS rebinding: a page of somebody else's cannot use a browser on this machine.
#[tokio::test]
async fn a_request_under_a_foreign_name_is_refused() {
    let world = World::new().await;
    let request = Request::builder().uri("/").header("host", "evil.example").body(Body::empty()).unwrap();
    assert_eq!(world.send(request).await.code(), "403 host_refused");
}

#[tokio::test]
async fn answers_carry_the_headers_that_keep_browsers_from_mischief() {
    let world = World::new().await;
    for path in ["/", "/docs", "/api/v1/jobs", "/api/v1/nowhere"] {
        let answer = world.get(path).await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        let policy = answer.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{path}"
        );
        assert!(!answer.headers.contains_key("access-control-allow-origin"), "{path}");
    }
}

#[tokio::test]
async fn a_request_id_goes_through() {
    let world = World::new().await;
    let request = world
        .request(Method::GET, "/api/v1/me")
        .header("x-request-id", "mine-1")
        .body(Body::empty())
        .unwrap();
    assert_eq!(world.send(request).await.header("x-request-id"), "mine-1");
    assert!(world.get("/api/v1/me").await.header("x-request-id").starts_with("req_"));
}

#[tokio::test]
async fn a_stopping_server_refuses_work_by_name_and_still_answers_for_itself() {
    let world = World::new().await;
    let id = world.submit(json!({})).await;
    world.stop().await;
    let answer = world.post("/api/v1/jobs", job(json!({}))).await;
    assert_eq!(answer.code(), "503 stopping");
    assert!(!answer.header("retry-after").is_empty());
    assert_eq!(world.get("/readyz").await.code(), "503 stopping");
    assert_eq!(world.get("/livez").await.status, StatusCode::OK);
    assert_eq!(world.get(&format!("/api/v1/jobs/{id}")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn too_many_requests_at_a_time_are_told_when_to_come_back() {
    let world = World::new().await;
    let stuck = || world.request(Method::POST, "/api/v1/jobs").header("content-type", "application/json");
    let never = || Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    let mut held = Vec::new();
    for _ in 0..super::super::REQUESTS_MAX {
        let mut request = Box::pin(world.send(stuck().body(never()).unwrap()));
        assert!(futures::poll!(&mut request).is_pending());
        held.push(request);
    }
    let answer = world.get("/api/v1/me").await;
    assert_eq!(answer.code(), "429 busy");
    assert_eq!(answer.header("retry-after"), "1");
    drop(held);
    assert_eq!(world.get("/api/v1/me").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_handler_that_panics_costs_its_own_request_alone() {
    let world = World::new().await;
    let api = super::super::Api::new(world.services.clone());
    let broken = axum::Router::new()
        .route("/broken", axum::routing::get(async || -> &'static str { panic!("a defect of {}", "ours") }))
        .layer(axum::middleware::from_fn_with_state(api, super::super::edge::edge));
    for _ in 0..2 {
        let request = world.request(Method::GET, "/broken").body(Body::empty()).unwrap();
        let response = tower::ServiceExt::oneshot(broken.clone(), request).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["code"], "internal");
        assert!(!problem.to_string().contains("ours"), "{problem}");
    }
}

#[tokio::test]
async fn requests_are_counted_by_route_and_never_by_what_a_client_sent() {
    let world = World::new().await;
    let id = world.submit(json!({})).await;
    world.get(&format!("/api/v1/jobs/{id}")).await;
    world.get("/made/up").await;
    let metrics = world.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"));
    let text = metrics.text();
    assert!(
        text.contains(r#"belfry_http_requests_total{method="GET",route="/api/v1/jobs/{id}",status="200"} 1"#),
        "{text}"
    );
    assert!(
        text.contains(r#"belfry_http_requests_total{method="GET",route="none",status="404"} 1"#),
        "{text}"
    );
    assert!(!text.contains(&id) && !text.contains("made/up"));
}
