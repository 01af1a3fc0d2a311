//! Series and totals of statistics.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{ManualWorker, World};

/// Runs a job to its end.
async fn run(world: &World, hands: &mut ManualWorker, name: &str, queue: &str, exit_code: i32) {
    let id = world.submit(json!({"name": name, "queue": queue})).await;
    let task = hands.start().await;
    hands.finish(&task, exit_code).await;
    let status = if exit_code == 0 { "succeeded" } else { "failed" };
    world.until(&id, status).await;
}

fn counts(of: &Value) -> [Value; 4] {
    ["submitted", "started", "succeeded", "failed"].map(|name| of[name].clone())
}

/// H6. Every request sees what was acknowledged before, whether it is folded or not.
#[tokio::test]
async fn a_series_counts_every_job_of_its_subject() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = hands.id.to_string();
    for round in 1..=2u64 {
        run(&world, &mut hands, "import", "batch", 0).await;
        run(&world, &mut hands, "import", "batch", 1).await;
        run(&world, &mut hands, "mail", "default", 0).await;
        if round == 2 {
            while world.services.node.store().fold_statistics().await.unwrap() > 0 {}
        }
        for (query, expected) in [
            ("", [3, 3, 2, 1]),
            ("?namespace=default", [3, 3, 2, 1]),
            ("?queue=batch", [2, 2, 1, 1]),
            ("?job=import&step=10s", [2, 2, 1, 1]),
            ("?job=mail&step=1h", [1, 1, 1, 0]),
            ("?job=import&namespace=other", [0, 0, 0, 0]),
            // A submission belongs to no worker.
            (&format!("?worker_id={id}"), [0, 3, 2, 1]),
        ] {
            let shown = world.get(&format!("/api/v1/stats/series{query}")).await;
            assert_eq!(shown.status, StatusCode::OK, "{query}: {}", shown.text());
            let series = shown.json();
            let expected = expected.map(|count| json!(count * round));
            assert_eq!(counts(&series["total"]), expected, "{query} in round {round}");
            let points = series["points"].as_array().unwrap();
            let sum = |name: &str| points.iter().map(|point| point[name].as_u64().unwrap()).sum::<u64>();
            assert_eq!(json!(sum("submitted")), expected[0], "{query}");
        }
    }
    let all = world.get("/api/v1/stats/series").await.json();
    assert_eq!(all["total"]["failed_by_cause"], json!({"run_failed": 2}));
    assert_eq!(all["total"]["start_delay"]["count"], 6);
    assert_eq!(all["total"]["run_time"]["count"], 6);
}

/// H6. By name, with the most failures first, and the number of all subjects beside a limit.
#[tokio::test]
async fn totals_compare_the_subjects_of_a_kind() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    for (name, exit_code) in [("fine", 0), ("bad", 1), ("worse", 1), ("worse", 1)] {
        run(&world, &mut hands, name, "default", exit_code).await;
    }
    let names = |totals: &Value| {
        let items = totals["items"].as_array().unwrap().iter();
        items.map(|item| item["subject"]["job"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let totals = world.get("/api/v1/stats/totals?by=job").await.json();
    assert_eq!(names(&totals), ["worse", "bad", "fine"]);
    assert_eq!(counts(&totals["items"][0]), [2, 2, 0, 2].map(Value::from));
    assert_eq!(totals["items"][0]["subject"], json!({"namespace": "default", "job": "worse"}));
    let first = world.get("/api/v1/stats/totals?by=job&limit=1&order=name").await.json();
    assert_eq!((names(&first), &first["subjects"]), (vec!["bad".to_owned()], &json!(3)));
    let none = world.get("/api/v1/stats/totals?by=job&namespace=other").await.json();
    assert_eq!((names(&none), &none["subjects"]), (vec![], &json!(0)));
    let all = world.get("/api/v1/stats/totals?by=all").await.json();
    assert_eq!(all["items"][0]["subject"], json!({}));
    assert_eq!(all["items"][0]["submitted"], 4);
}

#[tokio::test]
async fn a_wrong_range_step_or_subject_is_refused_by_name() {
    let world = World::new().await;
    for (query, parameter) in [
        ("series?queue=a&job=b", "job"),
        ("series?queue=a&namespace=b", "namespace"),
        ("series?from=2026-11-02T00:00:00Z&until=2026-11-01T00:00:00Z", "from"),
        ("series?step=7s", "step"),
        ("series?step=1m&from=2020-01-01T00:00:00Z", "step"),
        ("series?from=2020-01-01T00:00:00Z&until=2020-01-02T00:00:00Z", "until"),
        ("series?from=9000-01-01T00:00:00Z&until=9000-01-02T00:00:00Z", "until"),
        ("totals?by=job&from=1970-01-01T00:00:00Z", "from"),
        ("totals?by=queue&namespace=default", "namespace"),
    ] {
        let refused = world.get(&format!("/api/v1/stats/{query}")).await;
        assert_eq!(refused.code(), "400 invalid_parameter", "{query}");
        assert_eq!(refused.json()["errors"][0]["path"], parameter, "{query}");
    }
    let always = "from=1970-01-01T00:00:00Z&until=9000-01-02T00:00:00Z";
    for query in ["series", "totals?by=all"] {
        let and = if query.contains('?') { '&' } else { '?' };
        let shown = world.get(&format!("/api/v1/stats/{query}{and}{always}")).await;
        assert_eq!(shown.status, StatusCode::OK, "{query}: {}", shown.text());
    }
    assert_eq!(world.get("/api/v1/stats/series?schedule=none").await.code(), "404 schedule_not_found");
}
