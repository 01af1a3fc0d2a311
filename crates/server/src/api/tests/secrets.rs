//! Secrets: values go in and never come out, and references are checked.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Answer, World};

const PATH: &str = "/api/v1/secrets/db";
const VALUE: &str = "correct-horse-battery";

async fn put(world: &World, body: Value, headers: &[(&str, &str)]) -> Answer {
    world.json(Method::PUT, PATH, body, headers).await
}

async fn create(world: &World) -> Value {
    let spec = json!({"name": "db", "values": {"password": VALUE, "user": "belfry"}});
    let created = put(world, spec, &[]).await;
    assert_eq!(created.status, StatusCode::OK, "{}", created.text());
    created.json()
}

fn job(secrets: Value) -> Value {
    json!({"run": {"process": {"command": ["true"]}}, "secrets": secrets})
}

/// H2.
#[tokio::test]
async fn a_value_is_in_no_answer_no_audit_entry_and_no_row() {
    let world = World::new().await;
    let created = create(&world).await;
    assert_eq!(created["values"], json!({"password": "******", "user": "******"}));
    assert_eq!(created["version"], 1);
    let changed = put(&world, json!({"name": "db", "values": {"password": "another-password"}}), &[]).await;
    assert_eq!(changed.json()["version"], 2);
    let mut seen = vec![changed.text()];
    for path in [PATH, "/api/v1/secrets", "/api/v1/secrets?namespace=*", "/api/v1/audit?limit=100"] {
        let answer = world.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        seen.push(answer.text());
    }
    let wrong =
        put(&world, json!({"name": "db", "values": {"a b": VALUE, "c": format!("{VALUE}\0")}}), &[]).await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    seen.push(wrong.text());
    let malformed = put(&world, json!({"name": "db", "values": {"a": [VALUE]}}), &[]).await;
    assert!(malformed.status.is_client_error());
    seen.push(malformed.text());
    seen.extend(world.services.node.store().access(0).await.unwrap().rows.into_iter().map(|row| row.body));
    for text in &seen {
        assert!(!text.contains(VALUE) && !text.contains("another-password"), "{text}");
    }
    let audit = world.get("/api/v1/audit?limit=100").await.text();
    assert!(audit.contains("values.password") && audit.contains("put_secret"), "{audit}");
}

#[tokio::test]
async fn the_same_values_change_nothing_and_hidden_ones_are_kept() {
    let world = World::new().await;
    create(&world).await;
    assert_eq!(create(&world).await["version"], 1, "unchanged");
    let keep = json!({"name": "db", "values": {"password": "******", "user": "******"}});
    assert_eq!(put(&world, keep, &[]).await.json()["version"], 1, "all kept");
    let one = json!({"name": "db", "description": "the database", "values": {"password": "******"}});
    let changed = put(&world, one, &[]).await.json();
    assert_eq!((&changed["version"], &changed["values"]), (&json!(2), &json!({"password": "******"})));
    let unknown = put(&world, json!({"name": "db", "values": {"new": "******"}}), &[]).await;
    insta::assert_snapshot!(unknown.json()["errors"][0]["detail"].as_str().unwrap(), @"`******` keeps the stored value, but none is stored that can be decrypted: enter the value");
}

#[tokio::test]
async fn a_change_of_another_version_than_the_caller_has_seen_is_refused() {
    let world = World::new().await;
    let spec = |value: &str| json!({"name": "db", "values": {"password": value}});
    let absent = [("if-none-match", "*")];
    assert_eq!(put(&world, spec("one"), &absent).await.status, StatusCode::OK);
    let again = put(&world, spec("two"), &absent).await;
    assert_eq!(again.code(), "412 version_mismatch");
    assert_eq!(put(&world, spec("two"), &[("if-match", "\"1\"")]).await.json()["version"], 2);
    let deleted = world.json(Method::DELETE, PATH, json!({}), &[("if-match", "\"1\"")]).await;
    assert_eq!(deleted.status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(world.json(Method::DELETE, PATH, json!({}), &[]).await.status, StatusCode::NO_CONTENT);
    assert_eq!(world.get(PATH).await.code(), "404 secret_not_found");
    let dry_run = world.json(Method::PUT, "/api/v1/secrets/db?dry_run=true", spec("x"), &[]).await;
    assert_eq!(
        (dry_run.status, dry_run.json()["values"]["password"].clone()),
        (StatusCode::OK, json!("******"))
    );
    assert_eq!(world.get(PATH).await.status, StatusCode::NOT_FOUND, "a dry run changes nothing");
}

/// H2. A secret belongs to one namespace.
#[tokio::test]
async fn a_reference_to_a_missing_secret_is_refused_with_its_path() {
    let world = World::new().await;
    create(&world).await;
    let known = json!([{"secret": "db", "key": "password", "env": "A"}]);
    assert_eq!(world.post("/api/v1/jobs", job(known.clone())).await.status, StatusCode::CREATED);
    let wrong = json!([
        {"secret": "db", "key": "password", "env": "A"},
        {"secret": "nosuch", "key": "password", "env": "B"},
        {"secret": "db", "key": "nosuch", "env": "C"},
    ]);
    let mut elsewhere = job(known);
    elsewhere["namespace"] = json!("other");
    let workflow = json!({"name": "w", "steps": [{"name": "a", "job": job(wrong.clone())}]});
    let refused = [
        world.post("/api/v1/jobs", job(wrong.clone())).await,
        world.post("/api/v1/jobs?dry_run=true", job(wrong.clone())).await,
        world.post("/api/v1/jobs", json!({"jobs": [elsewhere]})).await,
        world
            .json(Method::PUT, "/api/v1/services/s", json!({"name": "s", "job": job(wrong.clone())}), &[])
            .await,
        world.json(Method::PUT, "/api/v1/workflows/w", workflow.clone(), &[]).await,
        world.post("/api/v1/runs", json!({"definition": workflow})).await,
        world
            .post(
                "/api/v1/schedules",
                json!({"name": "s", "timing": {"rules": [{"every": "1h"}]}, "job": job(wrong)}),
            )
            .await,
    ];
    let lines = refused.iter().flat_map(|answer| {
        let code = answer.code();
        let errors = answer.json()["errors"].as_array().unwrap().clone();
        errors.into_iter().map(move |error| format!("{code} {}: {}", error["path"], error["detail"]))
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r#"
    422 invalid_spec "secrets[1].secret": "secret `nosuch` does not exist in namespace `default`"
    422 invalid_spec "secrets[2].key": "secret `db` of namespace `default` has no key `nosuch`"
    422 invalid_spec "secrets[1].secret": "secret `nosuch` does not exist in namespace `default`"
    422 invalid_spec "secrets[2].key": "secret `db` of namespace `default` has no key `nosuch`"
    422 invalid_spec "jobs[0].secrets[0].secret": "secret `db` does not exist in namespace `other`"
    422 invalid_spec "job.secrets[1].secret": "secret `nosuch` does not exist in namespace `default`"
    422 invalid_spec "job.secrets[2].key": "secret `db` of namespace `default` has no key `nosuch`"
    422 invalid_spec "steps[0].job.secrets[1].secret": "secret `nosuch` does not exist in namespace `default`"
    422 invalid_spec "steps[0].job.secrets[2].key": "secret `db` of namespace `default` has no key `nosuch`"
    422 invalid_spec "definition.steps[0].job.secrets[1].secret": "secret `nosuch` does not exist in namespace `default`"
    422 invalid_spec "definition.steps[0].job.secrets[2].key": "secret `db` of namespace `default` has no key `nosuch`"
    422 invalid_spec "job.secrets[1].secret": "secret `nosuch` does not exist in namespace `default`"
    422 invalid_spec "job.secrets[2].key": "secret `db` of namespace `default` has no key `nosuch`"
    "#);
}
