//! The audit log: entries for every route, their contents, and what a caller sees of them.

use axum::body::Body;
use axum::http::header::AUTHORIZATION;
use axum::http::{Method, Request, StatusCode};
use model::audit::{Entry, Outcome};
use serde_json::{Value, json};
use store::Audit as _;
use tower::ServiceExt as _;

use super::tenants::{Tenant, request, routes};
use super::{World, job};
use crate::api::document;
use crate::auth::{IdentityKind, token};

/// Routes that create jobs, runs and pings in large numbers. These are their own record.
const SUBMISSIONS: [&str; 4] = ["submit_jobs", "start_run", "start_definition", "ping_monitor"];

impl World {
    /// Returns the entries after a sequence number, once all are written.
    async fn entries_after(&self, sequence: u64) -> Vec<Entry> {
        self.services.audit.close().await;
        let rows = self.store.audit_after(sequence, 10_000).await.unwrap();
        rows.iter().map(|row| serde_json::from_str(&row.body).unwrap()).collect()
    }

    async fn last_entry(&self) -> u64 {
        self.services.audit.close().await;
        self.store.audit_chain().await.unwrap().last.sequence
    }
}

/// Returns the name of the operation of a route.
fn operation(document: &Value, method: &Method, route: &str) -> String {
    document["paths"][route][method.as_str().to_lowercase()]["operationId"].as_str().unwrap().to_owned()
}

/// H3. A new route cannot be forgotten.
#[tokio::test]
async fn every_change_leaves_one_entry_and_every_read_none() {
    let world = World::new().await;
    let tenant = Tenant::fill(&world).await;
    let admin = world.account("root", &[("admin", "*")]).await;
    let document = serde_json::to_value(document()).unwrap();
    let (mut changes, mut wrong) = (0, Vec::new());
    for (method, route) in routes() {
        let (path, body, _) = request(&tenant, &method, &route);
        let before = world.last_entry().await;
        let answer = world.send_as(&admin, method.clone(), &path, body).await;
        let entries = world.entries_after(before).await;
        let action = operation(&document, &method, &route);
        let reads = method == Method::GET || ["preview_schedule", "plan_run"].contains(&action.as_str());
        let is_recorded = !reads && !SUBMISSIONS.contains(&action.as_str());
        let expected = usize::from(is_recorded);
        changes += expected;
        let is_complete = entries.iter().all(|entry| {
            let succeeded = answer.status.is_success() == (entry.outcome == Outcome::Allowed);
            let has_code = entry.code.as_deref()
                == (!answer.status.is_success())
                    .then(|| answer.json()["code"].as_str().unwrap().to_owned())
                    .as_deref();
            entry.action == action
                && entry.actor == "root"
                && entry.request_id.as_deref() == Some(answer.header("x-request-id"))
                && succeeded
                && has_code
        });
        if entries.len() != expected || !is_complete {
            wrong.push(format!("{method} {path}: {} {} {entries:?}", answer.status, answer.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(changes > 40, "{changes} changes");
    let report = world.get("/api/v1/audit/verify").await.json();
    assert_eq!((&report["valid"], &report["complete"]), (&json!(true), &json!(true)), "{report}");
}

/// H3. Denied requests of all kinds, reads too.
#[tokio::test]
async fn every_denied_request_leaves_an_entry() {
    let world = World::new().await;
    let tenant = Tenant::fill(&world).await;
    let unbound = world.account("noah", &[]).await;
    let (mut denied, mut wrong) = (0, Vec::new());
    for (method, route) in routes() {
        let (path, body, _) = request(&tenant, &method, &route);
        let before = world.last_entry().await;
        let answer = world.send_as(&unbound, method.clone(), &path, body).await;
        let entries = world.entries_after(before).await;
        if answer.status == StatusCode::FORBIDDEN {
            denied += 1;
            let outcome = entries.first().map(|entry| (entry.outcome, entry.actor.as_str()));
            if entries.len() != 1 || outcome != Some((Outcome::Denied, "noah")) {
                wrong.push(format!("{method} {path}: {entries:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(denied > 60, "{denied} denied requests");
}

/// H3. An entry tells who, from where, what and how, with the changed fields.
#[tokio::test]
async fn an_entry_of_a_changed_definition_has_the_changed_fields() {
    let world = World::new().await;
    let tess = world.account("tess", &[("developer", "finance")]).await;
    let put = async |cron: &str, secret: &str| {
        let body = json!({
            "name": "nightly", "namespace": "finance", "timing": {"rules": [{"cron": cron}]},
            "job": {"run": {"process": {"command": ["./report"], "env": {"DB_PASSWORD": secret}}}},
        });
        let request =
            Request::builder().method(Method::PUT).uri("/api/v1/schedules/nightly?namespace=finance");
        let request = request.header(AUTHORIZATION, format!("Bearer {tess}")).header("host", "localhost");
        let request = request.header("user-agent", "test/1").header("x-request-id", "req-7");
        let request = request.header("content-type", "application/json").body(Body::from(body.to_string()));
        world.send(request.unwrap()).await
    };
    assert_eq!(put("0 2 * * *", "hunter1").await.status, StatusCode::CREATED);
    assert_eq!(put("0 2 * * *", "hunter1").await.status, StatusCode::OK);
    assert_eq!(put("0 3 * * *", "hunter2").await.status, StatusCode::OK);
    let list = world.get("/api/v1/audit?actor=tess").await.json();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 3, "{list}");
    assert_eq!(items[1].get("changes"), None, "nothing was changed");
    let mut newest = items[0].clone();
    for (field, shown) in [("at", "TIME"), ("hash", "HASH"), ("token_id", "TOKEN")] {
        assert!(newest[field].is_string(), "{newest}");
        newest[field] = json!(shown);
    }
    insta::assert_json_snapshot!(newest, @r#"
    {
      "action": "put_schedule",
      "actor": "tess",
      "actor_kind": "user",
      "at": "TIME",
      "changes": [
        {
          "new": "(hidden)",
          "old": "(hidden)",
          "path": "job.run.process.env.DB_PASSWORD"
        },
        {
          "new": "\"0 3 * * *\"",
          "old": "\"0 2 * * *\"",
          "path": "timing.rules[0].cron"
        }
      ],
      "hash": "HASH",
      "namespace": "finance",
      "object": "nightly",
      "outcome": "allowed",
      "request_id": "req-7",
      "resource": "schedules",
      "sequence": 3,
      "server": "server",
      "token_id": "TOKEN",
      "user_agent": "test/1",
      "verb": "change"
    }
    "#);
    let all = world.get("/api/v1/audit?namespace=finance").await.text();
    assert!(!all.contains("hunter"), "{all}");
    let one = world.get(&format!("/api/v1/audit/{}", items[0]["sequence"])).await;
    assert_eq!(one.json(), items[0]);
}

/// H3. The log of changes of rights: who gave which right to whom.
#[tokio::test]
async fn entries_of_access_control_have_no_secret() {
    let world = World::new().await;
    let account = json!({"name": "ann", "kind": "user", "title": "Ann"});
    assert_eq!(world.post("/api/v1/accounts", account).await.status, StatusCode::CREATED);
    let binding = json!({"role": "developer", "account": "ann", "namespace": "finance"});
    assert_eq!(world.json(Method::PUT, "/api/v1/bindings", binding, &[]).await.status, StatusCode::OK);
    let created = world.post("/api/v1/tokens", json!({"account": "ann"})).await.json();
    let secret = created["secret"].as_str().unwrap();
    let hash: String =
        token::parse(secret).unwrap().hash().iter().map(|byte| format!("{byte:02x}")).collect();
    let deleted = world.delete("/api/v1/accounts/ann").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    let entries = world.entries_after(0).await;
    let lines: Vec<_> = entries
        .iter()
        .map(|entry| {
            let object = entry.object.as_deref().unwrap_or("-");
            let namespace = entry.namespace.as_deref().unwrap_or("-");
            let paths: Vec<_> = entry.changes.iter().map(|change| change.path.as_str()).collect();
            format!("{} {object} {namespace}: {}", entry.action, paths.join(" "))
        })
        .map(|line| line.replace(token::parse(secret).unwrap().id, "TOKEN"))
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    create_account ann -: created_at created_by disabled kind name title
    put_binding developer/ann/finance finance: account created_at created_by namespace role
    create_token TOKEN -: bearer.account created_at created_by expires_at id
    delete_account ann -: binding[developer/ann/finance].account binding[developer/ann/finance].created_at binding[developer/ann/finance].created_by binding[developer/ann/finance].namespace binding[developer/ann/finance].role token[TOKEN].revoked_at account[ann].created_at account[ann].created_by account[ann].disabled account[ann].kind account[ann].name account[ann].title
    "#);
    let text = serde_json::to_string(&entries).unwrap();
    let (_, random) = secret.rsplit_once('_').unwrap();
    assert!(!text.contains(random) && !text.contains(&hash) && !text.contains(&world.admin));
}

/// H3. Unknown tokens make no entries: anyone can invent them. Known ones do: they may have been stolen.
#[tokio::test]
async fn a_refused_token_leaves_an_entry_if_it_is_known() {
    let world = World::new().await;
    let token = world.account("tess", &[("viewer", "*")]).await;
    let parsed = token::parse(&token).unwrap().id.to_owned();
    let before = world.last_entry().await;
    let invented = token::generate(IdentityKind::User);
    for wrong in [&invented, "bf_user_x_y", &token::with_id(&invented, &parsed)] {
        assert_eq!(world.get_as(wrong, "/api/v1/jobs").await.status, StatusCode::UNAUTHORIZED);
    }
    let revoked = world.delete(&format!("/api/v1/tokens/{parsed}")).await;
    assert_eq!(revoked.status, StatusCode::NO_CONTENT);
    assert_eq!(world.get_as(&token, "/api/v1/jobs").await.status, StatusCode::UNAUTHORIZED);
    let entries = world.entries_after(before).await;
    let shown: Vec<_> = entries
        .iter()
        .map(|it| (it.action.as_str(), it.actor.as_str(), it.outcome, it.code.as_deref()))
        .collect();
    let denied = ("list_jobs", "tess", Outcome::Denied, Some("unauthenticated"));
    // The second denial is a repeat of the first one.
    assert_eq!(shown, [denied, ("revoke_token", "ann", Outcome::Allowed, None), denied]);
    assert_eq!(entries[2].repeats, Some(1));
}

/// E7. A client that is denied again and again cannot fill the store.
#[tokio::test]
async fn a_flood_of_denied_requests_makes_two_entries() {
    let world = World::new().await;
    let noah = world.account("noah", &[("developer", "home")]).await;
    let before = world.last_entry().await;
    let denied = async |namespace: &str| {
        let body = job(json!({"namespace": namespace}));
        let answer = world.send_as(&noah, Method::POST, "/api/v1/jobs", body).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
    };
    for _ in 0..200 {
        denied("finance").await;
    }
    denied("web").await;
    let entries = world.entries_after(before).await;
    let shown: Vec<_> = entries.iter().map(|it| (it.namespace.as_deref().unwrap(), it.repeats)).collect();
    assert_eq!(shown, [("finance", None), ("web", None), ("finance", Some(199))]);
}

/// H3. A parameter that the route ignores hides no change.
#[tokio::test]
async fn a_change_with_a_foreign_parameter_leaves_an_entry() {
    let world = World::new().await;
    let before = world.last_entry().await;
    let body = json!({"name": "ann", "kind": "user"});
    let answer = world.post("/api/v1/accounts?dry_run=true", body).await;
    let entries = world.entries_after(before).await;
    assert_eq!(entries.len(), 1, "{} {entries:?}", answer.status);
}

/// H2. An entry about several namespaces shows none of them what concerns the others.
#[tokio::test]
async fn a_change_of_several_namespaces_belongs_to_none() {
    let world = World::new().await;
    let before = world.last_entry().await;
    let schedule = |namespace: &str| {
        json!({"name": "nightly", "namespace": namespace, "timing": {"rules": [{"every": "1h"}]},
            "job": {"run": {"process": {"command": ["./report"]}}}})
    };
    for namespaces in [vec!["finance"], vec!["finance", "web", "finance"]] {
        let names = ["a", "b", "c"];
        let all = namespaces.iter().zip(names).map(|(namespace, name)| {
            let mut schedule = schedule(namespace);
            schedule["name"] = json!(format!("{name}{}", namespaces.len()));
            schedule
        });
        let answer =
            world.post("/api/v1/schedules/apply", json!({"schedules": all.collect::<Vec<_>>()})).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    let entries = world.entries_after(before).await;
    let namespaces: Vec<_> = entries.iter().map(|entry| entry.namespace.as_deref()).collect();
    assert_eq!(namespaces, [Some("finance"), None]);
}

/// H2. An object of another namespace does not exist for the caller. The attempt is denied nevertheless.
#[tokio::test]
async fn an_attempt_on_a_hidden_object_is_a_denied_one() {
    let world = World::new().await;
    let submitted = world.submit(json!({"namespace": "finance"})).await;
    let tess = world.account("tess", &[("developer", "web")]).await;
    let before = world.last_entry().await;
    let path = format!("/api/v1/jobs/{submitted}");
    let answer = world.send_as(&tess, Method::DELETE, &path, Value::Null).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.text());
    let entries = world.entries_after(before).await;
    let shown: Vec<_> = entries.iter().map(|it| (it.outcome, it.namespace.as_deref())).collect();
    assert_eq!(shown, [(Outcome::Denied, Some("finance"))]);
}

/// H3. A client cannot hide its change by closing the connection before the response.
#[tokio::test]
async fn a_client_that_disconnects_leaves_an_entry() {
    let world = World::new().await;
    let before = world.last_entry().await;
    let stall = world.store.stall(
        store::faulty::Operation::ChangeAccess,
        world.store.calls(store::faulty::Operation::ChangeAccess) + 1,
    );
    let body = json!({"name": "ann", "kind": "user"}).to_string();
    let request = world.request(Method::POST, "/api/v1/accounts").header("content-type", "application/json");
    let sent = world.router.clone().oneshot(request.body(Body::from(body)).unwrap());
    tokio::select! {
        _ = sent => panic!("the change must not be answered before the store"),
        () = stall.reached() => {}
    }
    stall.release();
    let entries = world.entries_after(before).await;
    let shown: Vec<_> = entries.iter().map(|it| (it.action.as_str(), it.outcome)).collect();
    assert_eq!(shown, [("create_account", Outcome::Unknown)]);
}

/// H3. With the setting, submissions leave entries too. A dry run never does.
#[tokio::test]
async fn submissions_are_recorded_on_request() {
    for (audit_submissions, expected) in [(false, 0), (true, 1)] {
        let world = World::with(|config| config.audit_submissions = audit_submissions).await;
        let before = world.last_entry().await;
        world.submit(json!({})).await;
        world.post("/api/v1/jobs?dry_run=true", job(json!({}))).await;
        assert_eq!(world.entries_after(before).await.len(), expected);
    }
}

/// H2. An administrator of a namespace sees the entries about its objects, page by page, and no others.
#[tokio::test]
async fn a_caller_sees_the_entries_of_its_namespaces() {
    let world = World::new().await;
    for (name, namespace) in
        [("a", "finance"), ("b", "web"), ("c", "finance"), ("d", "ops"), ("e", "finance")]
    {
        let path = format!("/api/v1/calendars/{name}?namespace={namespace}");
        let body = json!({"name": name, "namespace": namespace, "steps": [{"include": {"all": {}}}]});
        let put = world.json(Method::PUT, &path, body, &[]).await;
        assert_eq!(put.status, StatusCode::OK, "{}", put.text());
    }
    assert_eq!(world.delete("/api/v1/queues/nothing").await.status, StatusCode::NOT_FOUND);
    world.services.audit.close().await;
    let tess = world.account("tess", &[("admin", "finance"), ("admin", "web"), ("developer", "ops")]).await;
    let mut found = Vec::new();
    let mut path = "/api/v1/audit?limit=2&action=put_calendar".to_owned();
    loop {
        let page = world.get_as(&tess, &path).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.text());
        found.extend(page.column("object"));
        match page.json()["next_cursor"].as_str() {
            Some(cursor) => path = format!("/api/v1/audit?limit=2&action=put_calendar&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(found, ["e", "c", "b", "a"]);
    let all = world.get_as(&tess, "/api/v1/audit").await;
    assert_eq!(all.column("object"), ["e", "c", "b", "a"]);
    assert_eq!(world.get_as(&tess, "/api/v1/audit?namespace=ops").await.code(), "403 forbidden");
    assert_eq!(world.get_as(&tess, "/api/v1/audit/verify").await.code(), "403 forbidden");
    for (sequence, status) in [(1, 200), (2, 200), (4, 404), (6, 404), (99, 404)] {
        let answer = world.get_as(&tess, &format!("/api/v1/audit/{sequence}")).await;
        assert_eq!(answer.status.as_u16(), status, "{sequence}: {}", answer.text());
    }
    for (query, expected) in [
        ("resource=calendars&verb=change&namespace=web", vec!["b"]),
        ("object=c", vec!["c"]),
        ("outcome=failed", vec!["nothing"]),
        ("actor=nobody", vec![]),
        ("since=2020-01-01T00:00:00Z&until=2021-01-01T00:00:00Z", vec![]),
        ("since=2020-01-01T00:00:00Z&namespace=ops&action=put_calendar", vec!["d"]),
    ] {
        assert_eq!(world.get(&format!("/api/v1/audit?{query}")).await.column("object"), expected, "{query}");
    }
    let wrong = world.get("/api/v1/audit?outcome=ok").await;
    assert_eq!(wrong.code(), "400 invalid_parameter");
}

/// H3. The command line and other programs verify the same way.
#[tokio::test]
async fn a_changed_row_is_found_by_a_verification() {
    let world = World::new().await;
    for name in ["a", "b", "c"] {
        world.post("/api/v1/accounts", json!({"name": name, "kind": "user"})).await;
    }
    let valid = world.get("/api/v1/audit/verify").await.json();
    assert_eq!(
        (&valid["valid"], &valid["verified"], &valid["sequence"]),
        (&json!(true), &json!(3), &json!(3))
    );
    let path = |sequence: &Value, hash: &Value| {
        format!("/api/v1/audit/verify?sequence={sequence}&hash={}", hash.as_str().unwrap())
    };
    let again = world.get(&path(&valid["sequence"], &valid["hash"])).await.json();
    assert_eq!((&again["valid"], &again["verified"]), (&json!(true), &json!(0)));
    let other = world.get(&path(&json!(3), &json!("0".repeat(64)))).await.json();
    assert_eq!((&other["valid"], &other["complete"]), (&json!(false), &json!(true)), "{other}");
    for query in ["sequence=1", "hash=00", "sequence=1&hash=00"] {
        let wrong = world.get(&format!("/api/v1/audit/verify?{query}")).await;
        assert_eq!(wrong.code(), "400 invalid_parameter");
    }
    // Exported entries verify without the server.
    let exported = world.get("/api/v1/audit").await.json();
    let mut verifier = ::audit::Verifier::after(::audit::Link::default());
    for entry in exported["items"].as_array().unwrap().iter().rev() {
        verifier.check(&::audit::exported(entry).unwrap()).unwrap();
    }
    assert_eq!(json!(verifier.last().hash.to_string()), valid["hash"]);
    let database = rusqlite::Connection::open(world.services.config.store_path()).unwrap();
    for (damage, problem) in [
        ("UPDATE audit SET actor = 'eve' WHERE sequence = 2", "its column `actor` differs"),
        ("UPDATE audit SET body = replace(body, 'ann', 'eve') WHERE sequence = 2", "entry 2 was changed"),
        ("DELETE FROM audit WHERE sequence = 1", "entry 1 is missing"),
    ] {
        database.execute(damage, []).unwrap();
        let report = world.get("/api/v1/audit/verify").await.json();
        assert_eq!(report["valid"], json!(false), "{damage}");
        assert!(report["problem"].as_str().unwrap().contains(problem), "{damage}: {report}");
    }
}
