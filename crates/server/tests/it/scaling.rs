//! Services that are scaled by the metrics of another system.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::get as on_get;
use reqwest::Method;
use serde_json::{Value, json};
use server::networks::Networks;
use server::testing::Plan;
use tokio::net::TcpListener;

use crate::harness::{Server, call, get, soon};

/// A stand-in for Prometheus, whose answer the test sets.
#[derive(Clone)]
struct Prometheus {
    url: String,
    answer: Arc<Mutex<(u16, Value)>>,
    queries: Arc<Mutex<Vec<String>>>,
}

impl Prometheus {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let this = Self { url, answer: Arc::new(Mutex::new((200, Value::Null))), queries: Arc::default() };
        let app = Router::new().route("/api/v1/query", on_get(answer)).with_state(this.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        this
    }

    fn set(&self, status: u16, body: Value) {
        *self.answer.lock().unwrap() = (status, body);
    }

    fn set_value(&self, value: &str) {
        let result = json!([{"metric": {}, "value": [1_700_000_000.5, value]}]);
        self.set(200, json!({"status": "success", "data": {"resultType": "vector", "result": result}}));
    }
}

async fn answer(
    State(prometheus): State<Prometheus>,
    Query(parameters): Query<HashMap<String, String>>,
) -> (StatusCode, axum::Json<Value>) {
    prometheus.queries.lock().unwrap().push(parameters["query"].clone());
    let (status, body) = prometheus.answer.lock().unwrap().clone();
    (StatusCode::from_u16(status).unwrap(), axum::Json(body))
}

fn scaled(scaling: Value) -> Value {
    json!({
        "name": "web",
        "min_healthy": "0s",
        "scaling": scaling,
        "job": {
            "run": {"process": {"command": ["serve"]}},
            "resources": {"cpu": "10m", "memory": "1MiB"},
        },
    })
}

async fn create(server: &Server, service: Value) {
    let (status, answer) = call(server, Method::PUT, "services/web", &service).await;
    assert_eq!(status, 201, "{answer}");
}

fn by_query(url: &str) -> Value {
    let query = json!({"url": url, "query": "sum(load{job=\"web\"})", "per_replica": 2.5});
    json!({"min": 1, "max": 5, "metrics": [{"query": query}]})
}

/// Waits until the service has a value in a field.
async fn until_service(server: &Server, pointer: &str, expected: Value) -> Value {
    soon(&format!("{pointer} is {expected}"), async {
        loop {
            let service = get(server, "services/web").await;
            if service.pointer(pointer).unwrap_or(&Value::Null) == &expected {
                return service;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_service_has_the_replicas_that_its_query_asks_for() {
    let prometheus = Prometheus::start().await;
    prometheus.set_value("7.2");
    let server = Server::start_with(|config| config.private_networks = Networks::loopback()).await;
    let _worker = server.worker(server.fake().plan(|_| Plan::Run)).await;
    create(&server, scaled(by_query(&prometheus.url))).await;
    let service = until_service(&server, "/counts/available", json!(3)).await;
    assert_eq!(service["replicas"], 3, "7.2, 2.5 for each replica");
    let last = &service["last_scaling"];
    assert_eq!((&last["from"], &last["to"], &last["cause"]), (&json!(1), &json!(3), &json!("query")));
    assert_eq!(last["value"], 7.2);
    assert_eq!(prometheus.queries.lock().unwrap()[0], "sum(load{job=\"web\"})");

    let by_hand = call(&server, Method::POST, "services/web/scale", &json!({"replicas": 1})).await;
    assert_eq!((by_hand.0, &by_hand.1["code"]), (409, &json!("service_autoscaled")));
    server.shutdown().await;
}

/// The reason is stored with the service, so that it is shown without the log of the server.
#[tokio::test]
async fn a_query_that_fails_says_why() {
    let prometheus = Prometheus::start().await;
    prometheus.set(400, json!({"status": "error", "errorType": "bad_data", "error": "parse error"}));
    let server = Server::start_with(|config| config.private_networks = Networks::loopback()).await;
    create(&server, scaled(by_query(&prometheus.url))).await;
    let problem = "`scaling.metrics[0]`: 400 Bad Request: the query failed: parse error";
    let service = until_service(&server, "/scaling_problem", json!(problem)).await;
    assert_eq!(service["replicas"], 1);
    server.shutdown().await;
}

#[tokio::test]
async fn a_private_address_is_not_queried_by_default() {
    let prometheus = Prometheus::start().await;
    prometheus.set_value("1");
    let server = Server::start().await;
    create(&server, scaled(by_query(&prometheus.url))).await;
    let problem = "`scaling.metrics[0]`: `127.0.0.1` does not have a public address: an administrator can allow its \
                   network in `server.private_networks`";
    until_service(&server, "/scaling_problem", json!(problem)).await;
    assert_eq!(prometheus.queries.lock().unwrap().len(), 0);
    server.shutdown().await;
}

#[tokio::test]
async fn invalid_scaling_is_refused_with_the_path_of_each_field() {
    let server = Server::start().await;
    let schedules =
        json!([{"cron": "61 * * * *", "min": 1}, {"cron": "0 8 * * *", "zone": "Mars/Base", "min": 9}]);
    let query = json!({"url": "ftp://x", "query": "", "per_replica": 0});
    let scaling = json!({"min": 2, "max": 1, "schedules": schedules, "metrics": [{"query": query}]});
    let mut body = scaled(scaling);
    body["replicas"] = json!(3);
    let (status, refused) = call(&server, Method::PUT, "services/web", &body).await;
    assert_eq!(status, 422, "{refused}");
    let fields: Vec<&str> = refused["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["pointer"].as_str().unwrap())
        .collect();
    assert_eq!(
        fields,
        [
            "/scaling/max",
            "/scaling/schedules/1/min",
            "/scaling/metrics/0/query/url",
            "/scaling/metrics/0/query/query",
            "/scaling/metrics/0/query/per_replica",
            "/replicas",
            "/scaling/schedules/0/cron",
            "/scaling/schedules/1/zone",
        ]
    );
    server.shutdown().await;
}
