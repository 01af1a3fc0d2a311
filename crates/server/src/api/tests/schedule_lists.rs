//! Lists of schedules and of their firings, as the dashboard requests them.

use serde_json::json;

use super::schedules::{ONE, put, schedule};
use super::{ManualWorker, World};

/// H1. The calendar page shows any week, and a schedule that fires every second does not hide the others.
#[tokio::test]
async fn upcoming_firings_are_limited_by_range_and_schedule() {
    let world = World::new().await;
    for (name, every) in [("often", "1s"), ("rarely", "5h")] {
        let spec = schedule(json!({"name": name, "timing": {"rules": [{"every": every}]}}));
        world.post("/api/v1/schedules", spec).await;
    }
    let span = "from=2090-01-01T00:00:00Z&until=2090-01-02T00:00:00Z";
    let upcoming = world.get(&format!("/api/v1/schedules/upcoming?{span}&limit_per_schedule=5")).await.json();
    let items = upcoming["items"].as_array().unwrap();
    let of = |name: &str| items.iter().filter(|item| item["name"] == name).count();
    assert_eq!((of("often"), (4..=5).contains(&of("rarely"))), (5, true), "{upcoming:#}");
    assert_eq!(items[0]["at"], "2090-01-01T00:00:00Z");
    assert_eq!(upcoming["until"], "2090-01-02T00:00:00Z");
    let often = items.iter().find(|item| item["name"] == "often").unwrap();
    assert_eq!(upcoming["truncated"], json!([often["schedule_id"]]), "`rarely` has no further firings");

    let first = world.get(&format!("/api/v1/schedules/upcoming?{span}")).await.json();
    assert_eq!((first["items"].as_array().unwrap().len(), first.get("truncated")), (1_000, None));
    let until = first["until"].as_str().unwrap();
    let next =
        world.get(&format!("/api/v1/schedules/upcoming?from={until}&limit_per_schedule=1")).await.json();
    assert_eq!(next["items"][0]["at"], first["until"], "it continues where the previous page ended");
    assert_eq!(
        world.get("/api/v1/schedules/upcoming?limit_per_schedule=0").await.code(),
        "400 invalid_parameter"
    );
}

/// H1. A list of all schedules has their specs and run durations, page by page.
#[tokio::test]
async fn a_list_has_specs_and_run_times_on_request() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    put(&world, json!({})).await;
    let ran = world.post(&format!("{ONE}/trigger"), json!({})).await.json();
    let task = hands.start().await;
    hands.finish(&task, 0).await;
    world.until(ran["job_id"].as_str().unwrap(), "succeeded").await;

    let bare = world.get("/api/v1/schedules").await.json();
    assert_eq!(bare["items"][0].get("spec"), None);
    let told = world.get("/api/v1/schedules?specs=true").await.json();
    let alone = world.get(ONE).await.json();
    assert_eq!(told["items"][0]["spec"], alone["spec"]);
    assert!(told["items"][0]["spec"]["timing"].is_object(), "{told:#}");
    for part in ["duration_p10", "duration_p50", "duration_p90", "duration_p95", "duration_p99"] {
        assert!(told["items"][0]["statistics"][part].is_string(), "{part}: {told:#}");
    }
}

/// H1. A page of schedules is one request: with late and stuck runs, and with the newest runs of each.
#[tokio::test]
async fn a_list_has_health_and_runs_on_request() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    put(&world, json!({})).await;
    let quiet = world.post("/api/v1/schedules", schedule(json!({"name": "quiet"}))).await.json();
    let ran = world.post(&format!("{ONE}/trigger"), json!({})).await.json();
    let task = hands.start().await;
    hands.finish(&task, 0).await;
    world.until(ran["job_id"].as_str().unwrap(), "succeeded").await;
    let open = world.post(&format!("{ONE}/trigger"), json!({})).await.json();
    hands.start().await;

    let bare = world.get("/api/v1/schedules").await.json();
    assert_eq!((bare["items"][1].get("health"), bare["items"][1].get("runs")), (None, None));
    let list = world.get("/api/v1/schedules?health=true&runs=5").await.json();
    let (quiet_shown, busy) = (&list["items"][0], &list["items"][1]);
    assert_eq!((&quiet_shown["runs"], &quiet_shown["health"]["open_runs"]), (&json!([]), &json!(0)));
    assert_eq!(busy["health"]["open_runs"], 1);
    let runs = busy["runs"].as_array().unwrap();
    let shown: Vec<_> = runs.iter().map(|run| (&run["job_id"], run["finished_at"].is_null())).collect();
    assert_eq!(shown, [(&open["job_id"], true), (&ran["job_id"], false)], "the newest first");

    let (quiet, busy) = (quiet["id"].as_str().unwrap(), busy["id"].as_str().unwrap());
    let gone = "sch_01k9zq3m6c0000000000000000";
    let named = world.get(&format!("/api/v1/schedules?id={busy},{gone},{quiet}&runs=1")).await.json();
    assert_eq!(
        named["items"].as_array().unwrap().iter().map(|item| &item["id"]).collect::<Vec<_>>(),
        [busy, quiet]
    );
    assert_eq!(named["items"][0]["runs"].as_array().unwrap().len(), 1);
    for wrong in [format!("id={busy}&status=active"), "runs=51".to_owned()] {
        let answer = world.get(&format!("/api/v1/schedules?{wrong}")).await;
        assert_eq!(answer.code(), "400 invalid_parameter", "{wrong}");
    }
}

/// H1. With any number of schedules, the next firings come first, page by page.
#[tokio::test]
async fn a_list_in_the_order_of_next_firings_continues_over_pages() {
    let world = World::new().await;
    for hours in [3, 1, 5, 2, 4] {
        let at = model::Timestamp::from_millis(4_000_000_000_000 + hours * 3_600_000);
        let spec = json!({"name": format!("in-{hours}h"), "timing": {"rules": [{"at": at}]}});
        world.post("/api/v1/schedules", schedule(spec)).await;
    }
    world.post("/api/v1/schedules", schedule(json!({"name": "by-hand", "timing": {}}))).await;
    let mut found = Vec::new();
    let mut path = "/api/v1/schedules?order=next&limit=2".to_owned();
    loop {
        let page = world.get(&path).await;
        found.extend(page.column("name"));
        let Some(cursor) = page.json()["next_cursor"].as_str().map(str::to_owned) else { break };
        path = format!("/api/v1/schedules?order=next&limit=2&cursor={cursor}");
    }
    assert_eq!(found, ["in-1h", "in-2h", "in-3h", "in-4h", "in-5h"]);
    let newest = world.get("/api/v1/schedules?limit=2").await.json();
    let foreign = newest["next_cursor"].as_str().unwrap();
    let mixed = world.get(&format!("/api/v1/schedules?order=next&cursor={foreign}")).await;
    assert_eq!(mixed.code(), "400 invalid_cursor", "a cursor is valid for one order only");
}

/// H1. The page of one schedule need not reload when other schedules run.
#[tokio::test]
async fn the_events_of_a_run_name_its_schedule() {
    let world = World::new().await;
    let id = put(&world, json!({})).await.json()["id"].clone();
    let mut events = world.stream("/api/v1/events?type=job", None).await;
    let run = world.post(&format!("{ONE}/trigger"), json!({})).await.json();
    let alone = world.submit(json!({})).await;
    let mut seen = std::collections::BTreeMap::new();
    while seen.len() < 2 {
        let event = events.next().await.unwrap().data;
        seen.insert(event["job_id"].as_str().unwrap().to_owned(), event.get("schedule_id").cloned());
    }
    assert_eq!(seen[run["job_id"].as_str().unwrap()], Some(id));
    assert_eq!(seen[&alone], None);
}
