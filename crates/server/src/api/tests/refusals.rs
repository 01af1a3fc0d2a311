//! Every refusal, of any layer, is a problem document.
//!
//! In order: the form of refusals; limits on bodies, hosts and headers; limits on concurrent requests,
//! streams and rates; a stopping server and a leader that does not answer; a handler that panics; caching and
//! compression.
//!
//! The texts of refusals are compared in one snapshot, because users read them. Tests of limits start
//! requests that never finish, such as a body that does not arrive, and then check that other clients are not
//! affected.

use access::Bearer;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use futures::StreamExt as _;
use serde_json::{Value, json};
use store::faulty::Operation;
use tower::ServiceExt as _;

use super::{World, job, new_token};
use crate::auth::IdentityKind;
use crate::listener::Peer;

fn shown(body: &Value) -> String {
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
async fn a_refused_method_lists_the_allowed_ones() {
    let world = World::new().await;
    let answer = world.send(world.request(Method::PUT, "/api/v1/jobs").body(Body::empty()).unwrap()).await;
    let mut allowed: Vec<_> = answer.header("allow").split(',').map(str::trim).collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
}

#[tokio::test]
async fn the_bodies_of_refusals_match_their_snapshots() {
    let world = World::new().await;
    insta::assert_snapshot!("not_found", shown(&world.get("/api/v1/jbos").await.json()));
    insta::assert_snapshot!("invalid_parameter", shown(&world.get("/api/v1/jobs?status=done").await.json()));
    insta::assert_snapshot!("invalid_id", shown(&world.get("/api/v1/jobs/42").await.json()));
    let body = job(json!({"nmae": "x"}));
    insta::assert_snapshot!("unknown_field", shown(&world.post("/api/v1/jobs", body).await.json()));
    let body = job(json!({"name": "a b", "priority": 101}));
    insta::assert_snapshot!("invalid_spec", shown(&world.post("/api/v1/jobs", body).await.json()));
}

/// A body that announces more than the limit, or that is larger than announced.
#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let world = World::new().await;
    let huge = "x".repeat(model::limits::BATCH_BODY_BYTES_MAX + 1);
    let request = world.request(Method::POST, "/api/v1/jobs").header("content-type", "application/json");
    assert_eq!(world.send(request.body(Body::from(huge)).unwrap()).await.code(), "413 body_too_large");
    let single = job(json!({"labels": {"k": "x".repeat(model::limits::BODY_BYTES_MAX)}}));
    assert_eq!(world.post("/api/v1/jobs", single).await.code(), "413 body_too_large");
}

/// DNS rebinding: a page of another site cannot use a browser on this machine.
#[tokio::test]
async fn a_request_for_another_host_is_refused() {
    let world = World::new().await;
    let request = Request::builder().uri("/").header("host", "evil.example").body(Body::empty()).unwrap();
    assert_eq!(world.send(request).await.code(), "403 host_not_allowed");
}

#[tokio::test]
async fn responses_have_security_headers() {
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
async fn a_request_id_is_returned() {
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
async fn a_stopping_server_refuses_work_and_still_answers_reads_and_probes() {
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

/// A submission whose body never arrives.
fn stuck(world: &World) -> Request<Body> {
    let never = futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
    let request = world.request(Method::POST, "/api/v1/jobs").header("content-type", "application/json");
    request.body(Body::from_stream(never)).unwrap()
}

/// A client that sends bodies slowly delays neither other clients nor its own reads and changes.
#[tokio::test]
async fn slow_bodies_take_no_request_place() {
    let world = World::new().await;
    let held: Vec<_> =
        (0..2_048).map(|_| tokio::spawn(world.router.clone().oneshot(stuck(&world)))).collect();
    let places = async || {
        let text = world.get("/metrics").await.text();
        let line = text.lines().find(|line| line.starts_with("belfry_http_places{lane=\"bodies\"}"));
        line.and_then(|line| line.rsplit_once(' ')?.1.parse::<u32>().ok()).unwrap_or_default()
    };
    super::soon("the share to be used up", async {
        while places().await < 2_048 {
            tokio::task::yield_now().await
        }
    })
    .await;
    let answer = world.send(stuck(&world)).await;
    assert_eq!(answer.code(), "429 client_limit");
    assert_eq!(answer.header("retry-after"), "1");
    let detail = "the client has 2048 of at most 4096 slow request bodies and uploads: its share is used up";
    assert_eq!(answer.json()["detail"], detail);
    assert_eq!(world.get("/api/v1/me").await.status, StatusCode::OK);
    world.submit(json!({})).await;
    let metrics = world.get("/metrics").await.text();
    assert!(
        metrics.contains("belfry_http_limited_total{lane=\"bodies\",reason=\"client\"} 1\n"),
        "{metrics}"
    );
    held.iter().for_each(tokio::task::JoinHandle::abort);
    super::soon("the places to be given back", async {
        while places().await > 0 {
            tokio::task::yield_now().await
        }
    })
    .await;
}

/// A client at another address, and one with another token, still get their streams.
#[tokio::test]
async fn one_client_cannot_take_all_streams() {
    let world = World::with(|config| config.limits.streams = 8).await;
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(world.stream("/api/v1/events", None).await);
    }
    assert_eq!(world.get("/api/v1/events").await.code(), "429 client_limit");
    let at = |address: [u8; 4]| {
        let mut request = world.request(Method::GET, "/api/v1/events").body(Body::empty()).unwrap();
        request.extensions_mut().insert(Peer::Connection(address.into()));
        request
    };
    for _ in 0..2 {
        let answer = world.router.clone().oneshot(at([10, 0, 0, 1])).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        drop(answer);
    }
    let other = world.admin_token("bob").await;
    let request = Request::builder().uri("/api/v1/events").header("authorization", format!("Bearer {other}"));
    let answer = world.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    drop(open);
    world.stream("/api/v1/events", None).await;
}

/// E7. A client over its rate gets the delay before a retry; other clients continue.
#[tokio::test]
async fn a_client_over_its_job_rate_gets_a_retry_delay() {
    let world = World::with(|config| config.limits.client_job_rate = Some(2)).await;
    let batch = json!({"jobs": vec![job(json!({})); 10]});
    assert_eq!(world.post("/api/v1/jobs", batch).await.status, StatusCode::CREATED);
    let answer = world.post("/api/v1/jobs", job(json!({}))).await;
    assert_eq!(answer.code(), "429 client_limit");
    assert!(
        matches!(answer.header("retry-after"), "1" | "2" | "3" | "4" | "5"),
        "{}",
        answer.header("retry-after")
    );
    assert_eq!(answer.json()["detail"], "the client has reached its limit of 2 jobs per second");
    assert_eq!(world.post("/api/v1/jobs?dry_run=true", job(json!({}))).await.status, StatusCode::OK);
    assert_eq!(world.get("/api/v1/jobs").await.status, StatusCode::OK);
}

/// E7. A script of a person cannot flood the queues, also with several tokens. Dry runs and programs are not limited.
#[tokio::test]
async fn an_account_over_its_submission_rate_gets_a_retry_delay() {
    let world = World::with(|config| config.limits.submit_rate = std::num::NonZeroU32::new(10)).await;
    let token = world.account("noah", &[("developer", "*")]).await;
    let other = new_token(&world.services.access, Bearer::Account("noah".into()), IdentityKind::User).await;
    let submit = |token: &'static str, path: &'static str, jobs: usize| {
        world.send_as(token, Method::POST, path, json!({"jobs": vec![job(json!({})); jobs]}))
    };
    let (token, other): (&'static str, &'static str) = (token.leak(), other.leak());
    assert_eq!(submit(token, "/api/v1/jobs?dry_run=true", 50).await.status, StatusCode::OK);
    assert_eq!(submit(token, "/api/v1/jobs", 20).await.status, StatusCode::CREATED);
    let refused = submit(other, "/api/v1/jobs", 1).await;
    assert_eq!(refused.code(), "429 submit_rate");
    let wait: u64 = refused.header("retry-after").parse().unwrap();
    assert!((55..=61).contains(&wait), "20 jobs at 10 a minute, of which 10 at once: {wait}");
    assert!(refused.text().contains("account `noah` has reached its limit of 10 submitted jobs per minute"));
    assert_eq!(submit(token, "/api/v1/jobs?dry_run=true", 1).await.status, StatusCode::OK);
    let raised = world.json(Method::PATCH, "/api/v1/accounts/noah", json!({"submit_rate": "unlimited"}), &[]);
    let raised = raised.await.json();
    assert_eq!((&raised["submit_rate"], raised.get("jobs_per_minute")), (&json!("unlimited"), None));
    assert_eq!(submit(other, "/api/v1/jobs", 100).await.status, StatusCode::CREATED);
    let service = json!({"name": "ci", "kind": "service", "submit_rate": 7});
    let created = world.post("/api/v1/accounts", service).await.json();
    assert_eq!((&created["submit_rate"], &created["jobs_per_minute"]), (&json!(7), &json!(7)));
    let wrong = world.json(Method::PATCH, "/api/v1/accounts/ci", json!({"submit_rate": 0}), &[]).await;
    assert_eq!(wrong.code(), "422 invalid_spec");
}

/// E7. A few small requests cannot start an unlimited number of jobs.
#[tokio::test]
async fn a_run_counts_its_known_jobs() {
    let world = World::with(|config| config.limits.client_job_rate = Some(2)).await;
    let task = json!({"run": {"process": {"command": ["true"]}}});
    let each = |over: Value| json!([{"name": "each", "for_each": {"over": over}, "job": task}]);
    // Each client has its own rate.
    let send = async |client: u8, method: Method, path: &str, body: Value| {
        let request = world.request(method, path).header("content-type", "application/json");
        let mut request = request.body(Body::from(body.to_string())).unwrap();
        request.extensions_mut().insert(Peer::Connection([10, 0, 0, client].into()));
        world.send(request).await
    };
    let uses_up = async |client: u8, path: &str, body: Value| {
        let answer = send(client, Method::POST, path, body).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
        let next = send(client, Method::POST, "/api/v1/jobs", job(json!({}))).await;
        let wait: u64 = next.header("retry-after").parse().unwrap();
        assert!((40..=50).contains(&wait), "{path}: {wait}s for 100 jobs");
        answer.json()
    };
    let inline = json!({"definition": {"name": "intake", "steps": each(json!({"shards": 100}))}});
    uses_up(1, "/api/v1/runs", inline).await;

    let mut lists = json!({"name": "lists", "steps": each(json!({"list": "params.files"}))});
    lists["parameters"] = json!({"files": {"type": "array"}});
    let put = world.json(Method::PUT, "/api/v1/workflows/lists", lists, &[]).await;
    assert!(put.status.is_success(), "{}", put.text());
    let files = json!({"files": vec!["a"; 100]});
    let run = uses_up(2, "/api/v1/workflows/lists/start", json!({"parameters": files})).await;
    let run = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
    assert!(world.post_nothing(&format!("{run}/cancel")).await.status.is_success());
    uses_up(3, &format!("{run}/retry"), Value::Null).await;

    let schedule = json!({"name": "lists", "workflow": {"name": "lists", "parameters": files}});
    let put = world.json(Method::PUT, "/api/v1/schedules/lists", schedule, &[]).await;
    assert!(put.status.is_success(), "{}", put.text());
    uses_up(4, "/api/v1/schedules/lists/trigger", Value::Null).await;
}

/// E7. Many large concurrent bodies do not fill the memory.
#[tokio::test]
async fn bodies_beyond_the_memory_for_them_are_refused() {
    let world = World::with(|config| config.limits.body_bytes = 8 << 20).await;
    let (held, begun) = tokio::sync::oneshot::channel();
    let part = async move {
        held.send(()).ok();
        Ok::<_, std::io::Error>(vec![b' '; 4 << 20])
    };
    let slow = futures::stream::once(part).chain(futures::stream::pending());
    let request = world.request(Method::POST, "/api/v1/jobs").header("content-type", "application/json");
    let request = request.body(Body::from_stream(slow)).unwrap();
    let slow = tokio::spawn(world.router.clone().oneshot(request));
    super::soon("the first body", begun).await.unwrap();

    let answer = world.post("/api/v1/jobs", job(json!({}))).await;
    assert_eq!(answer.code(), "429 client_limit");
    let detail =
        "the client has 4194304 of at most 8388608 bytes of request bodies in memory: its share is used up";
    assert_eq!(answer.json()["detail"], detail);
    let metrics = world.get("/metrics").await.text();
    assert!(metrics.contains("belfry_http_places{lane=\"body_bytes\"} 4194304\n"), "{metrics}");
    slow.abort();
    assert!(slow.await.unwrap_err().is_cancelled());
    world.submit(json!({})).await;
}

/// H1. Metrics show the use of the lanes, even when these are full.
#[tokio::test]
async fn metrics_are_answered_while_all_places_of_reads_are_taken() {
    let world = World::with(|config| config.limits.requests = 1).await;
    let stall = world.store.stall(Operation::Counts, world.store.calls(Operation::Counts) + 1);
    let request = world.request(Method::GET, "/api/v1/jobs?count=true").body(Body::empty()).unwrap();
    let held = tokio::spawn(world.router.clone().oneshot(request));
    super::soon("the first read", stall.reached()).await;
    assert_eq!(world.get("/api/v1/me").await.code(), "429 busy");
    assert_eq!(world.get("/metrics").await.status, StatusCode::OK);
    stall.release();
    assert_eq!(held.await.unwrap().unwrap().status(), StatusCode::OK);
}

/// D5. Health checks need no token, and each check writes to the store.
#[tokio::test]
async fn concurrent_health_checks_share_one_store_check() {
    let world = World::new().await;
    let before = world.store.calls(Operation::Check);
    let asked = (0..100).map(|_| world.get("/readyz?verbose"));
    let answers = futures::future::join_all(asked).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK));
    assert_eq!(world.store.calls(Operation::Check) - before, 1);
}

/// D13. A leader that accepts connections but never responds.
#[tokio::test]
async fn a_forwarded_request_times_out() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let leader = store::cluster::ServerRecord {
        id: model::ServerId::from_bits(7 << 80),
        name: "silent".into(),
        url: Some(format!("http://{}", silent.local_addr().unwrap())),
        version: "1".into(),
        started_at: model::Timestamp::default(),
        fingerprint: None,
    };
    let world = World::new().await;
    let api = crate::api::Api::new(world.services.clone());
    for (method, expected) in [(Method::GET, "503 loading"), (Method::POST, "503 outcome_unknown")] {
        let request = world.request(method, "/api/v1/jobs").body(Body::from("{}")).unwrap();
        let patience = std::time::Duration::from_millis(20);
        let forwarded = crate::api::forward::to_within(&api, &leader, request, patience);
        let refused = super::soon("an end", forwarded).await.unwrap_err().into_problem(None);
        assert_eq!(format!("{} {}", refused.status, refused.code), expected);
    }
}

#[tokio::test]
async fn a_panicking_handler_fails_only_its_request() {
    let world = World::new().await;
    let api = crate::api::Api::new(world.services.clone());
    let broken = axum::Router::new()
        .route("/broken", axum::routing::get(async || -> &'static str { panic!("a defect of {}", "ours") }))
        .layer(axum::middleware::from_fn_with_state(api, crate::api::edge::edge));
    for _ in 0..2 {
        let request = world.request(Method::GET, "/broken").body(Body::empty()).unwrap();
        let response = tower::ServiceExt::oneshot(broken.clone(), request).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let problem: Value = serde_json::from_slice(&body).unwrap();
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
    assert_eq!(metrics.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
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

/// Dashboards repeatedly read lists of hundreds of kilobytes.
#[tokio::test]
async fn large_responses_are_compressed_on_request_and_streams_are_not() {
    let world = World::new().await;
    let asked = |path: &str, coding: &str| {
        let request = world.request(Method::GET, path).header("accept-encoding", coding);
        request.body(Body::empty()).unwrap()
    };
    let plain = world.get("/openapi.json").await;
    let packed = world.send(asked("/openapi.json", "gzip, br")).await;
    assert_eq!((plain.header("content-encoding"), packed.header("content-encoding")), ("", "gzip"));
    assert!(packed.body.len() * 5 < plain.body.len(), "{} of {}", packed.body.len(), plain.body.len());
    assert!(packed.header("vary").contains("accept-encoding"));
    assert_eq!(world.send(asked("/livez", "gzip")).await.header("content-encoding"), "");
    let stream = world.router.clone().oneshot(asked("/api/v1/events", "gzip")).await.unwrap();
    assert_eq!(stream.headers().get("content-encoding"), None);
    let refused = world.send(asked("/api/v1/jobs?limit=0", "gzip")).await;
    assert_eq!(refused.code(), "400 invalid_parameter");
}

#[tokio::test]
async fn an_answer_that_the_client_has_is_not_sent_again() {
    let world = World::new().await;
    let id = world.submit(json!({})).await;
    let asked = |path: &str, tag: &str| {
        world.request(Method::GET, path).header("if-none-match", tag).body(Body::empty()).unwrap()
    };
    // The version of a queue or job does not cover its counts and times.
    for path in [format!("/api/v1/jobs/{id}"), "/api/v1/queues/default".to_owned()] {
        let tag = world.get(&path).await.header("etag").to_owned();
        assert_eq!(world.send(asked(&path, &tag)).await.status, StatusCode::OK, "{path}");
    }
    world.send(world.request(Method::PUT, "/api/v1/artifacts/data").body(Body::from("bytes")).unwrap()).await;
    for path in ["/openapi.json".to_owned(), "/api/v1/artifacts/data".to_owned()] {
        let tag = world.get(&path).await.header("etag").to_owned();
        assert!(!tag.is_empty(), "{path}");
        for known in [tag.clone(), format!("\"other\", W/{tag}"), "*".to_owned()] {
            let answer = world.send(asked(&path, &known)).await;
            assert_eq!((answer.status, answer.body.len()), (StatusCode::NOT_MODIFIED, 0), "{path}");
            assert_eq!(answer.header("etag"), tag);
        }
        assert_eq!(world.send(asked(&path, "\"other\"")).await.status, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn a_malformed_last_event_id_is_refused() {
    let world = World::new().await;
    let id = world.submit(json!({})).await;
    for path in ["/api/v1/events".to_owned(), format!("/api/v1/jobs/{id}/logs")] {
        let request = world.request(Method::GET, &path).header("last-event-id", "{\"V8cU");
        assert_eq!(
            world.send(request.body(Body::empty()).unwrap()).await.code(),
            "400 invalid_header",
            "{path}"
        );
    }
}

#[tokio::test]
async fn an_unknown_event_type_is_refused_with_the_known_types() {
    let world = World::new().await;
    let detail = async |kind: &str| {
        let answer = world.get(&format!("/api/v1/events?type={kind}")).await;
        assert_eq!(answer.code(), "400 invalid_parameter", "{kind}");
        answer.json()["detail"].as_str().unwrap().to_owned()
    };
    insta::assert_snapshot!(detail("nosuch").await, @"type: `nosuch` is not an event type: expected one of backfill, calendar, execution, job, queue, rollout, run, schedule, service, step, worker, workflow");
    insta::assert_snapshot!(detail("job,worker.gone").await, @"type: `worker.gone` is not an event type: expected one of worker.expected, worker.lost, worker.ready");
    world.stream("/api/v1/events?type=job.failed,worker,step.late_worker", None).await;
}
