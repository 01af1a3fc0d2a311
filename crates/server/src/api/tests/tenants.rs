//! Tenants: what a caller with roles in some namespaces sees and changes, for every route.
//!
//! [`Tenant`] fills the namespace `finance` with an object of each kind. The tests go through all routes of the table, so
//! a new route cannot be forgotten: [`request`] panics for a path that it does not know.
//!
//! # Invariants
//! - For a caller without a role in `finance`, its objects do not exist: no response has a trace of them, and no request
//!   changes them.
//! - A viewer reads everything in `finance` and changes nothing.

use alerts::{AlertFilter, JobFacts};
use axum::http::{Method, StatusCode};
use model::record::{Event, EventKind};
use model::{JobId, JobStatus};
use serde_json::{Value, json};
use utoipa::openapi::HttpMethod;

use super::{Answer, ManualWorker, World};
use crate::api::gate::Access;
use crate::api::table;

/// Part of every name in the namespace.
const TRACE: &str = "payroll";

/// Objects of the namespace `finance`.
pub(super) struct Tenant {
    job: String,
    ended_job: String,
    schedule: String,
    workflow: String,
    service: String,
    execution: String,
    run: String,
    backfill: String,
    failure: String,
    alert: String,
    silence: String,
}

pub(super) fn process() -> Value {
    json!({"process": {"command": ["true"]}})
}

impl Tenant {
    pub(super) async fn fill(world: &World) -> Self {
        let mut worker = ManualWorker::join(world, 1).await;
        let named = |name: &str, rest: Value| {
            let mut object = json!({"name": format!("{TRACE}-{name}"), "namespace": "finance"});
            object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            object
        };
        let ended_job = world.submit(named("ended", json!({}))).await;
        let task = worker.start().await;
        worker.log(&task, 0, &[(proto::logframe::Stream::Stdout, b"payroll output\n")], true).await;
        worker.finish(&task, 1).await;
        world.until(&ended_job, "failed").await;
        let shown = world.get(&format!("/api/v1/jobs/{ended_job}")).await.json();
        let execution = shown["execution_id"].as_str().unwrap().to_owned();
        let job = world.submit(named("waiting", json!({"run_at": "2036-01-01T00:00:00Z"}))).await;
        let schedule = named(
            "schedule",
            json!({
                "timing": {"rules": [{"every": "1h"}], "start": "2026-01-01T00:00:00Z"},
                "job": {"run": process(), "run_at": null},
            }),
        );
        let created = world.post("/api/v1/schedules", schedule).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
        let schedule = created.json()["id"].as_str().unwrap().to_owned();
        let path = format!("/api/v1/schedules/{TRACE}-schedule/backfills?namespace=finance");
        let range = json!({"from": "2026-02-01T00:00:00Z", "until": "2026-02-01T02:00:00Z"});
        let backfill = world.post(&path, range).await;
        assert_eq!(backfill.status, StatusCode::CREATED, "{}", backfill.text());
        let backfill = backfill.json()["id"].as_str().unwrap().to_owned();
        let workflow =
            named("workflow", json!({"steps": [{"name": "pay", "wait": {"event": {"name": "paid"}}}]}));
        let path = format!("/api/v1/workflows/{TRACE}-workflow");
        let created = world.json(Method::PUT, &path, workflow, &[]).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
        let workflow = created.json()["id"].as_str().unwrap().to_owned();
        let started = world.post(&format!("{path}/start?namespace=finance"), json!({})).await;
        assert_eq!(started.status, StatusCode::CREATED, "{}", started.text());
        let run = started.json()["id"].as_str().unwrap().to_owned();
        let service = named("service", json!({"job": {"run": process()}}));
        let path = format!("/api/v1/services/{TRACE}-service");
        let created = world.json(Method::PUT, &path, service, &[]).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
        let service = created.json()["id"].as_str().unwrap().to_owned();
        let calendar = named("calendar", json!({"steps": [{"include": {"dates": ["2026-12-24"]}}]}));
        let path = format!("/api/v1/calendars/{TRACE}-calendar");
        let created = world.json(Method::PUT, &path, calendar, &[]).await;
        assert_eq!(created.status, StatusCode::OK, "{}", created.text());
        let path = format!("/api/v1/artifacts/{TRACE}-artifact?namespace=finance");
        let stored = world.json(Method::PUT, &path, json!("payroll bytes"), &[]).await;
        assert_eq!(stored.status, StatusCode::CREATED, "{}", stored.text());
        let groups = world.get("/api/v1/failures?namespace=finance").await.json();
        let failure = groups["items"][0]["id"].as_str().unwrap().to_owned();
        let channel = named("channel", json!({"to": {"slack": {"url": "https://example.com/payroll"}}}));
        let path = format!("/api/v1/channels/{TRACE}-channel");
        let created = world.json(Method::PUT, &path, channel, &[]).await;
        assert_eq!(created.status, StatusCode::OK, "{}", created.text());
        let rule = named("rule", json!({"when": {"job_failed": {}}}));
        let path = format!("/api/v1/alert-rules/{TRACE}-rule");
        let created = world.json(Method::PUT, &path, rule, &[]).await;
        assert_eq!(created.status, StatusCode::OK, "{}", created.text());
        let silence =
            json!({"namespace": "finance", "subject": "payroll*", "duration": "1h", "reason": "payroll"});
        let created = world.post("/api/v1/silences", silence).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
        let silence = created.json()["id"].to_string();
        let monitor = named("monitor", json!({"timing": {"every": "1d"}}));
        let path = format!("/api/v1/monitors/{TRACE}-monitor");
        let created = world.json(Method::PUT, &path, monitor, &[]).await;
        assert_eq!(created.status, StatusCode::OK, "{}", created.text());
        let secret = named("secret", json!({"values": {"payroll": "payroll-password"}}));
        let path = format!("/api/v1/secrets/{TRACE}-secret");
        let created = world.json(Method::PUT, &path, secret, &[]).await;
        assert_eq!(created.status, StatusCode::OK, "{}", created.text());
        let alert = open_alert(world, ended_job.parse().unwrap()).await;
        Self {
            job,
            ended_job,
            schedule,
            workflow,
            service,
            execution,
            run,
            backfill,
            failure,
            alert,
            silence,
        }
    }
}

/// Opens the alert of a failed job, as the loop that follows the feed does.
async fn open_alert(world: &World, job: JobId) -> String {
    let kind = EventKind::Job {
        job,
        from: Some(JobStatus::Running),
        to: JobStatus::Failed,
        cause: model::Cause::Submitted,
        execution: None,
        worker: None,
        schedule: None,
    };
    let facts = JobFacts { name: format!("{TRACE}-ended"), ..JobFacts::default() };
    let opened = world.services.alerts.change(|alerts, now| {
        let event = Event { at: now, namespace: Some("finance".into()), kind };
        alerts.observe(now, std::iter::once((1, &event)), &[(job, facts)].into());
        Ok(alerts.alerts(now, |_| true, &AlertFilter::default(), 1).items[0].id)
    });
    opened.await.unwrap().to_string()
}

/// How a caller without a role in the namespace is answered.
#[derive(Debug, PartialEq)]
pub(super) enum Expected {
    /// Refused: the object does not exist, or the right is missing.
    Refused,
    /// An empty list or a part of the cluster: a response without a trace of the namespace.
    WithoutTrace,
}

/// Returns the path and the body of a request that concerns an object of the namespace.
pub(super) fn request(tenant: &Tenant, method: &Method, route: &str) -> (String, Value, Expected) {
    use Expected::{Refused, WithoutTrace};
    let in_finance = "?namespace=finance";
    let name = |kind: &str| format!("{TRACE}-{kind}");
    let id = |id: &str| (route.replace("{id}", id), Refused);
    let named = |kind: &str| (format!("{}{in_finance}", route.replace("{name}", &name(kind))), Refused);
    let plain = |expected| (route.to_owned(), expected);
    let all = || (format!("{route}?namespace=*"), WithoutTrace);
    let object = |kind: &str, rest: Value| {
        let mut object = json!({"name": name(kind), "namespace": "finance"});
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    };
    let schedule =
        || object("schedule", json!({"timing": {"rules": [{"every": "2h"}]}, "job": {"run": process()}}));
    let service = || object("service", json!({"replicas": 2, "job": {"run": process()}}));
    let workflow = || object("workflow", json!({"steps": [{"name": "x", "job": {"run": process()}}]}));
    let is_get = method == Method::GET;
    let mut body = json!({});
    let (path, expected) = match route.strip_prefix("/api/v1").unwrap_or(route) {
        "/jobs" if is_get => all(),
        "/jobs" => {
            body = object("new", json!({"run": process()}));
            plain(Refused)
        }
        "/jobs/cancel" | "/jobs/retry" => {
            body = json!({"jobs": {"text": TRACE}});
            plain(WithoutTrace)
        }
        "/jobs/update" => {
            body = json!({"jobs": {"text": TRACE}, "patch": {"priority": 99}});
            plain(WithoutTrace)
        }
        "/jobs/{id}/retry" => id(&tenant.ended_job),
        "/jobs/{id}/logs/search" => {
            (format!("{}?text=output", route.replace("{id}", &tenant.ended_job)), Refused)
        }
        path if path.starts_with("/jobs/{id}/logs") => id(&tenant.ended_job),
        path if path.starts_with("/jobs/{id}") => id(&tenant.job),
        "/executions/{id}/logs/search" => {
            (format!("{}?text=output", route.replace("{id}", &tenant.execution)), Refused)
        }
        path if path.starts_with("/executions/{id}") => id(&tenant.execution),
        "/schedules" if !is_get => {
            body = schedule();
            plain(Refused)
        }
        "/schedules/apply" => {
            body = json!({"schedules": [schedule()]});
            plain(Refused)
        }
        "/schedules/preview" => {
            body = json!({"cron": "0 * * * *", "namespace": "finance"});
            plain(Refused)
        }
        "/schedules/{name}/backfills" => {
            body = json!({"from": "2026-03-01T00:00:00Z", "until": "2026-03-01T02:00:00Z"});
            named("schedule")
        }
        "/schedules/upcoming" => all(),
        path if path.starts_with("/schedules/{name}") => {
            if method == Method::PUT {
                body = schedule();
            }
            named("schedule")
        }
        path if path.starts_with("/backfills/{id}") => id(&tenant.backfill),
        "/services/targets" => all(),
        "/services/apply" => {
            body = json!({"services": [service()]});
            plain(Refused)
        }
        path if path.starts_with("/services/{name}") => {
            if method == Method::PUT {
                body = service();
            }
            if path.ends_with("/scale") {
                body = json!({"replicas": 3});
            }
            named("service")
        }
        "/workflows/apply" => {
            body = json!({"workflows": [workflow()]});
            plain(Refused)
        }
        path if path.starts_with("/workflows/{name}") => {
            if method == Method::PUT {
                body = workflow();
            }
            named("workflow")
        }
        "/runs" if !is_get => {
            body = json!({"definition": workflow()});
            plain(Refused)
        }
        path if path.starts_with("/runs/{id}") => {
            if path.ends_with("/mark") {
                body = json!({"status": "skipped"});
            }
            let path = route.replace("{id}", &tenant.run).replace("{step}", "pay").replace("{event}", "paid");
            (path, Refused)
        }
        "/calendars/import" => (format!("{route}{in_finance}&name=new"), Refused),
        path if path.starts_with("/calendars/{name}") => {
            if method == Method::PUT {
                body = object("calendar", json!({"steps": []}));
            }
            named("calendar")
        }
        path if path.starts_with("/artifacts/{name}") => named("artifact"),
        path if path.starts_with("/failures/{id}") => {
            body = json!({"state": "muted"});
            (format!("{}{in_finance}", route.replace("{id}", &tenant.failure)), Refused)
        }
        path if path.starts_with("/alerts/{id}") => id(&tenant.alert),
        path if path.starts_with("/silences/{id}") => id(&tenant.silence),
        "/silences" if !is_get => {
            body = json!({"namespace": "finance", "duration": "1h", "reason": "new"});
            plain(Refused)
        }
        path if path.starts_with("/alert-rules/{name}") => {
            if method == Method::PUT {
                body = object("rule", json!({"when": {"job_overdue": {}}}));
            }
            named("rule")
        }
        path if path.starts_with("/channels/{name}") => {
            if method == Method::PUT {
                body = object("channel", json!({"to": {"slack": {"url": "https://example.com/other"}}}));
            }
            named("channel")
        }
        path if path.starts_with("/monitors/{name}") => {
            if method == Method::PUT {
                body = object("monitor", json!({"timing": {"every": "2d"}}));
            }
            named("monitor")
        }
        path if path.starts_with("/secrets/{name}") => {
            if method == Method::PUT {
                body = object("secret", json!({"values": {"payroll": "other-password"}}));
            }
            named("secret")
        }
        "/stats/series" => (format!("{route}?namespace=finance"), Refused),
        "/stats/totals" => (format!("{route}?by=job"), WithoutTrace),
        "/executions" | "/schedules" | "/backfills" | "/services" | "/workflows" | "/runs" | "/calendars"
        | "/artifacts" | "/failures" | "/alerts" | "/alert-rules" | "/channels" | "/silences"
        | "/notifications" | "/monitors" | "/secrets" => all(),
        // The cluster itself: rights in a namespace suffice to read it.
        "/workers" | "/queues" | "/namespaces" | "/servers" | "/cluster/members" | "/me" | "/version"
        | "/roles" | "/tokens" | "/session"
            if is_get || method == Method::DELETE =>
        {
            plain(WithoutTrace)
        }
        "/session" => plain(WithoutTrace),
        // The own password: these accounts have none.
        "/me/totp" if method == Method::PUT => {
            body = json!({"setup": "v1.x.y", "code": "123456"});
            plain(WithoutTrace)
        }
        "/me/totp" | "/me/totp/disable" => {
            body = json!({"password": "correct horse battery"});
            plain(WithoutTrace)
        }
        "/me/password" => {
            body = json!({"current": "correct horse battery", "new": "four new random words"});
            plain(WithoutTrace)
        }
        "/tokens" => {
            body = json!({"account": "noah"});
            plain(WithoutTrace)
        }
        "/usage" => all(),
        "/access/check" => (format!("{route}?verb=read&resource=jobs"), WithoutTrace),
        "/workers/{id}" if is_get => (route.replace("{id}", "wkr_00000000010000000000000000"), WithoutTrace),
        path if path.starts_with("/workers/{id}") => id("wkr_00000000010000000000000000"),
        path if path.starts_with("/servers/{id}") => {
            (route.replace("{id}", "srv_00000000010000000000000000"), Refused)
        }
        "/cluster/members/{id}" => (route.replace("{id}", "0000000000000001"), Refused),
        "/queues/{name}" if is_get => (route.replace("{name}", "default"), WithoutTrace),
        path if path.starts_with("/queues/{name}") => (route.replace("{name}", "default"), Refused),
        // The namespace of the object; its quota belongs to the cluster.
        path if path.starts_with("/namespaces/{name}") => (route.replace("{name}", "finance"), Refused),
        "/roles/{name}" if is_get => (route.replace("{name}", "viewer"), WithoutTrace),
        path if path.starts_with("/roles/{name}") => {
            body = json!({"rules": [{"verbs": ["read"], "resources": ["jobs"]}]});
            (route.replace("{name}", "new"), Refused)
        }
        // An administrator of a namespace sees the accounts to which it can give roles.
        "/accounts" if is_get => plain(WithoutTrace),
        "/accounts" => {
            body = json!({"name": "new", "kind": "user"});
            plain(Refused)
        }
        "/bindings" if method == Method::PUT => {
            body = json!({"role": "viewer", "account": "tess", "namespace": "finance"});
            plain(Refused)
        }
        "/bindings" => (format!("{route}{in_finance}&role=viewer&account=tess"), Refused),
        // Each account may end its own sessions.
        "/accounts/{name}/sessions" => (route.replace("{name}", "zoe"), Refused),
        path if path.starts_with("/accounts/{name}") => (route.replace("{name}", "tess"), Refused),
        "/tokens/{id}" => (route.replace("{id}", "000000000000"), Refused),
        "/metrics" => plain(Refused),
        // The entries about the objects of the namespace.
        "/audit" => all(),
        "/audit/verify" => plain(Refused),
        "/audit/{sequence}" => (route.replace("{sequence}", "1"), Refused),
        path => panic!("{method} {path} has no request here: add one with an object of the namespace"),
    };
    (path, body, expected)
}

/// Returns the path, and for a schedule, a workflow or a service also the path with its id instead of its name. `PUT` takes names.
fn with_ids(tenant: &Tenant, method: &Method, path: &str) -> Vec<String> {
    let by_id = path
        .replace(&format!("/{TRACE}-schedule"), &format!("/{}", tenant.schedule))
        .replace(&format!("/{TRACE}-workflow"), &format!("/{}", tenant.workflow))
        .replace(&format!("/{TRACE}-service"), &format!("/{}", tenant.service))
        .replace("namespace=finance", "");
    let ids = [&tenant.schedule, &tenant.workflow, &tenant.service];
    let has_id = ids.iter().any(|id| by_id.contains(*id));
    let has_id = has_id && method != Method::PUT;
    std::iter::once(path.to_owned()).chain(has_id.then_some(by_id)).collect()
}

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

/// Returns all routes that need a token, except the endless stream of events.
pub(super) fn routes() -> Vec<(Method, String)> {
    let routes = table();
    let gated = routes.entries().filter(|(.., access)| *access != Access::Open);
    gated.map(|(verb, path, _)| (method(&verb), path)).filter(|(_, path)| path != "/api/v1/events").collect()
}

/// Returns everything in the namespace, to be compared.
async fn contents(world: &World, tenant: &Tenant) -> Vec<String> {
    let mut all = Vec::new();
    for path in [
        "/api/v1/jobs?namespace=finance".to_owned(),
        format!("/api/v1/jobs/{}", tenant.job),
        "/api/v1/schedules?namespace=finance&specs=true".to_owned(),
        "/api/v1/services?namespace=finance".to_owned(),
        "/api/v1/workflows?namespace=finance".to_owned(),
        "/api/v1/runs?namespace=finance".to_owned(),
        format!("/api/v1/runs/{}/steps", tenant.run),
        "/api/v1/calendars?namespace=finance".to_owned(),
        "/api/v1/artifacts?namespace=finance".to_owned(),
        "/api/v1/failures?namespace=finance".to_owned(),
        "/api/v1/alerts?namespace=finance".to_owned(),
        "/api/v1/alert-rules?namespace=finance".to_owned(),
        "/api/v1/channels?namespace=finance".to_owned(),
        "/api/v1/silences?namespace=finance".to_owned(),
        "/api/v1/monitors?namespace=finance".to_owned(),
        "/api/v1/secrets?namespace=finance".to_owned(),
        "/api/v1/accounts".to_owned(),
        "/api/v1/bindings".to_owned(),
        "/api/v1/roles".to_owned(),
    ] {
        let answer = world.get(&path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        all.push(answer.text());
    }
    all
}

fn is_refused(answer: &Answer) -> bool {
    matches!(answer.status, StatusCode::FORBIDDEN | StatusCode::NOT_FOUND)
}

/// H2. An administrator of another namespace, an account without any role, and a token that is limited to another
/// namespace.
#[tokio::test]
async fn no_route_reads_or_changes_another_namespace() {
    let world = World::new().await;
    let tenant = Tenant::fill(&world).await;
    let admin = world.account("tess", &[("admin", "other"), ("developer", "sandbox")]).await;
    let unbound = world.account("noah", &[]).await;
    let limited = json!({"kind": "admin", "name": "limited", "namespaces": ["other"]});
    let limited = world.post("/api/v1/tokens", limited).await;
    assert_eq!(limited.status, StatusCode::CREATED, "{}", limited.text());
    let limited = limited.json()["secret"].as_str().unwrap().to_owned();
    let before = contents(&world, &tenant).await;
    let (mut tried, mut leaks) = (0, Vec::new());
    for (method, route) in routes() {
        let (path, body, expected) = request(&tenant, &method, &route);
        if path.ends_with("/session") || path.contains("/me/") {
            continue;
        }
        let callers = [("admin of other", &admin), ("no role", &unbound), ("limited", &limited)];
        let requests = with_ids(&tenant, &method, &path)
            .into_iter()
            .flat_map(|path| callers.map(|it| (path.clone(), it)));
        for (path, (who, token)) in requests {
            tried += 1;
            let answer = world.send_as(token, method.clone(), &path, body.clone()).await;
            let sees_accounts =
                route.contains("/accounts/{name}") && who != "no role" && method == Method::GET;
            let is_expected = match expected {
                Expected::Refused if !sees_accounts => is_refused(&answer),
                _ => is_refused(&answer) || answer.status.is_success(),
            };
            // A refusal repeats the path of the request.
            let text = answer.text();
            let has_trace = [TRACE, &tenant.job, &tenant.ended_job].iter().any(|trace| text.contains(trace));
            if !is_expected || answer.status.is_success() && has_trace {
                leaks.push(format!("{who}: {method} {path}: {} {text}", answer.status));
            }
        }
    }
    assert!(leaks.is_empty(), "{}", leaks.join("\n"));
    assert!(tried > 200, "{tried} requests");
    // The token that `admin of other` created for itself is no change of the namespace.
    assert!(contents(&world, &tenant).await == before, "a request changed the namespace");
}

/// H2. The same objects exist for those who have a role in their namespace.
#[tokio::test]
async fn a_viewer_reads_every_object_of_the_namespace_and_changes_none() {
    let world = World::new().await;
    let tenant = Tenant::fill(&world).await;
    let viewer = world.account("vera", &[("viewer", "finance")]).await;
    let before = contents(&world, &tenant).await;
    let mut read = 0;
    for (method, route) in routes() {
        let (path, body, _) = request(&tenant, &method, &route);
        let is_open_to_all = path.ends_with("/session") || path.contains("/me/") || route.contains("/tokens");
        let is_preview = route.ends_with("/preview") || route.ends_with("/plan");
        if is_open_to_all {
            continue;
        }
        let answer = world.send_as(&viewer, method.clone(), &path, body).await;
        let shown = format!("{method} {path}: {} {}", answer.status, answer.text());
        let needs_more = ["/metrics", "/accounts", "/bindings", "/audit"].iter().any(|it| route.contains(it))
            || route.contains("/servers/{id}")
            || route.ends_with("/checkpoint");
        if needs_more {
            assert!(is_refused(&answer), "{shown}");
        } else if method == Method::GET || is_preview {
            read += 1;
            assert!(answer.status.is_success(), "{shown}");
        } else {
            assert!(is_refused(&answer), "{shown}");
        }
    }
    assert!(read > 40, "{read} routes were read");
    assert!(contents(&world, &tenant).await == before, "a request changed the namespace");
}

/// H2. Lists have all namespaces of the caller, in the order of one list, page by page.
#[tokio::test]
async fn a_list_has_all_namespaces_of_the_caller_in_one_order() {
    let world = World::new().await;
    let mut expected = Vec::new();
    for (index, namespace) in ["a", "b", "c", "a", "c", "b", "a", "c"].iter().enumerate() {
        let job =
            json!({"name": format!("j{index}"), "namespace": namespace, "run_at": "2036-01-01T00:00:00Z"});
        let id = world.submit(job).await;
        if *namespace != "c" {
            expected.insert(0, id);
        }
    }
    let token = world.account("tess", &[("viewer", "a"), ("developer", "b")]).await;
    let counted = world.get_as(&token, "/api/v1/jobs?count=true").await;
    assert_eq!((counted.column("id"), counted.header("x-total-count")), (expected.clone(), "5"));
    let mut found = Vec::new();
    let mut path = "/api/v1/jobs?limit=2".to_owned();
    loop {
        let page = world.get_as(&token, &path).await;
        found.extend(page.column("id"));
        match page.json()["next_cursor"].as_str() {
            Some(cursor) => path = format!("/api/v1/jobs?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(found, expected);
    let denied = world.get_as(&token, "/api/v1/jobs?namespace=c").await;
    assert_eq!(denied.code(), "403 forbidden");
    let developer_only =
        world.send_as(&token, Method::POST, "/api/v1/jobs", super::job(json!({"namespace": "a"})));
    assert_eq!(developer_only.await.code(), "403 forbidden");
    let allowed = world.send_as(&token, Method::POST, "/api/v1/jobs", super::job(json!({"namespace": "b"})));
    assert_eq!(allowed.await.status, StatusCode::CREATED);
}
