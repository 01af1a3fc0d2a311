//! Schedules, their ledgers, backfills and calendars.
//!
//! [`schedule`] is a schedule that fires every night, with changes as JSON; other modules use it as well. In
//! order: creation and validation, batches, triggers and overlap, pauses, previews, backfills, calendars.
//!
//! Firings themselves are tested in the engine, and the texts of validation in `model` and `timetable`. Here,
//! a response must name every wrong field at once, and a repeated request must have no second effect. Lists
//! are in `schedule_lists`.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Answer, ManualWorker, World, soon};

pub(super) const ONE: &str = "/api/v1/schedules/nightly";

/// Returns a schedule that fires every night, with changes.
pub(super) fn schedule(change: Value) -> Value {
    let mut schedule = json!({
        "name": "nightly",
        "timing": {"rules": [{"cron": "0 2 * * *"}], "zone": "Asia/Shanghai"},
        "job": {"run": {"process": {"command": ["true"]}}},
    });
    schedule.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    schedule
}

pub(super) async fn put(world: &World, change: Value) -> Answer {
    world.json(Method::PUT, ONE, schedule(change), &[]).await
}

fn paths(answer: &Answer) -> Vec<String> {
    let errors = answer.json()["errors"].as_array().unwrap().clone();
    errors.iter().map(|error| error["path"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_schedule_is_created_found_changed_and_deleted() {
    let world = World::new().await;
    let created = put(&world, json!({})).await;
    assert_eq!(
        (created.status, created.header("etag")),
        (StatusCode::CREATED, "\"1\""),
        "{}",
        created.text()
    );
    let id = created.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(created.header("location"), format!("/api/v1/schedules/{id}"));
    let shown = created.json();
    assert_eq!((&shown["when"], &shown["zone"]), (&json!("0 2 * * *"), &json!("Asia/Shanghai")));
    assert_eq!(shown["spec"]["job"]["name"], "nightly", "the job inherits fields of the schedule");
    assert!(shown["next_at"].is_string());

    let same = put(&world, json!({})).await;
    assert_eq!((same.status, same.header("etag")), (StatusCode::OK, "\"1\""));
    let changed = put(&world, json!({"overlap": {"policy": "allow_all"}})).await.json();
    assert_eq!((&changed["generation"], &changed["version"]), (&json!(2), &json!(2)));

    for path in [ONE.to_owned(), format!("/api/v1/schedules/{id}")] {
        assert_eq!(world.get(&path).await.json(), changed);
    }
    let list = world.get("/api/v1/schedules?status=active&text=NIGHT&count=true&namespace=*");
    assert_eq!(list.await.code(), "400 invalid_parameter");
    let wrong = world.get("/api/v1/schedules?status=disabled").await;
    assert!(
        wrong.text().contains("a status of a schedule: Belfry calls it `paused`; expected one of active")
    );
    let list = world.get("/api/v1/schedules?status=active&count=true").await;
    assert_eq!((list.column("name"), list.header("x-total-count")), (vec!["nightly".to_owned()], "1"));
    assert_eq!(list.json()["items"][0].get("spec"), None);
    for nothing in ["status=paused", "text=day", "owner=ann", "namespace=other", "label=a%3Db"] {
        let list = world.get(&format!("/api/v1/schedules?{nothing}")).await;
        assert_eq!(list.column("name"), Vec::<String>::new(), "{nothing}");
    }

    assert_eq!(world.delete(ONE).await.status, StatusCode::NO_CONTENT);
    assert_eq!(world.get(ONE).await.code(), "404 schedule_not_found");
    assert_eq!(world.delete(ONE).await.code(), "404 schedule_not_found");
    let ledger = world.get(&format!("/api/v1/schedules/{id}/ledger")).await;
    assert_eq!(ledger.status, StatusCode::OK, "the ledger outlives its schedule");
}

/// Lost updates are refused.
#[tokio::test]
async fn a_change_can_require_a_version() {
    let world = World::new().await;
    let put = async |headers: &[(&str, &str)], change: Value| {
        world.json(Method::PUT, ONE, schedule(change), headers).await
    };
    assert_eq!(put(&[("if-match", "\"1\"")], json!({})).await.code(), "412 version_mismatch");
    assert_eq!(put(&[("if-none-match", "*")], json!({})).await.status, StatusCode::CREATED);
    assert_eq!(put(&[("if-none-match", "*")], json!({})).await.code(), "412 version_mismatch");
    let changed = put(&[("if-match", "\"1\"")], json!({"owner": "ann"})).await;
    assert_eq!(changed.header("etag"), "\"2\"");
    assert_eq!(put(&[("if-match", "\"1\"")], json!({"owner": "bob"})).await.code(), "412 version_mismatch");
    let created = world.post("/api/v1/schedules", schedule(json!({}))).await;
    assert_eq!(created.code(), "409 schedule_exists");
    let stale = world.json(Method::POST, &format!("{ONE}/pause"), json!({}), &[("if-match", "\"1\"")]).await;
    assert_eq!(stale.code(), "412 version_mismatch");
}

/// All errors are reported at once: of the schedule, its timing and its job.
#[tokio::test]
async fn every_wrong_field_of_a_schedule_is_named() {
    let world = World::new().await;
    let wrong = put(
        &world,
        json!({
            "max_firings": 0,
            "timing": {"rules": [{"cron": "0 60 * * *"}, {"every": "1ms"}], "zone": "Asia/Shangai"},
            "job": {"run": {"process": {"command": ["true"]}}, "priority": 200, "run_at": "2030-01-01T00:00:00Z"},
        }),
    )
    .await;
    assert_eq!(wrong.code(), "422 invalid_spec");
    let mut found = paths(&wrong);
    found.sort();
    insta::assert_debug_snapshot!(found);
    let text = wrong.text();
    assert!(text.contains("Asia/Shanghai") && text.contains("at column 3"), "{text}");
    assert_eq!(put(&world, json!({"name": "daily"})).await.json()["errors"][0]["path"], "name");
    assert_eq!(world.get(ONE).await.code(), "404 schedule_not_found");
}

/// B1, B5. A schedule that never fires is accepted with a warning, when it is new or changed, and not afterwards.
#[tokio::test]
async fn a_schedule_that_never_fires_is_accepted_with_a_warning() {
    let world = World::new().await;
    let told = |answer: &Answer| match &answer.json()["warnings"] {
        Value::Array(all) => json!(all.iter().map(|one| one["message"].clone()).collect::<Vec<_>>()),
        none => none.clone(),
    };
    let never = json!({"timing": {"rules": [{"cron": "0 0 31 2 *"}]}});
    let created = put(&world, never.clone()).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    assert_eq!(told(&created), json!(["the schedule never fires: no time matches its rules"]));
    assert_eq!(told(&put(&world, never).await), Value::Null, "nothing changed");
    let past =
        put(&world, json!({"timing": {"rules": [{"every": "1h"}], "end": "2020-01-01T00:00:00Z"}})).await;
    assert_eq!(told(&past), json!(["the schedule never fires: its end (2020-01-01T00:00:00Z) has passed"]));
    assert_eq!(told(&put(&world, json!({})).await), Value::Null, "it fires");

    let calendar = json!({"name": "gone", "steps": [{"include": {"dates": ["2020-01-01"]}}]});
    let set = world.json(Method::PUT, "/api/v1/calendars/gone", calendar, &[]).await;
    assert_eq!(set.status, StatusCode::OK, "{}", set.text());
    let held =
        json!({"name": "held", "timing": {"rules": [{"cron": "@daily"}], "only": [{"calendar": "gone"}]}});
    let held = world.post("/api/v1/schedules", schedule(held)).await;
    let wanted = "the schedule never fires: its filters exclude every firing; the first is excluded by `only[0]: calendar gone`";
    assert_eq!(told(&held), json!([wanted]), "{}", held.text());
}

/// The same for each schedule of a batch, small or large, and of a dry run; schedules that fire have no warning.
#[tokio::test]
async fn a_batch_names_each_schedule_that_never_fires() {
    let world = World::new().await;
    let of = |i: usize| {
        let cron = if i % 60 == 7 { "0 0 31 2 *" } else { "@daily" };
        schedule(json!({"name": format!("s{i}"), "timing": {"rules": [{"cron": cron}]}}))
    };
    let apply = async |count: usize, query: &str| -> Vec<String> {
        let schedules: Vec<_> = (0..count).map(of).collect();
        let answer =
            world.post(&format!("/api/v1/schedules/apply{query}"), json!({"schedules": schedules})).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let all = answer.json()["schedules"].as_array().unwrap().clone();
        let warned = all.iter().filter(|one| !one["warnings"].is_null());
        warned.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(apply(130, "?dry_run=true").await, ["s7", "s67", "s127"]);
    assert_eq!(apply(10, "").await, ["s7"]);
    assert_eq!(apply(130, "").await, ["s67", "s127"], "only for new schedules");
    assert_eq!(apply(130, "").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_batch_is_applied_as_a_whole_or_not_at_all() {
    let world = World::new().await;
    let apply = async |schedules: Value, query: &str| {
        world.post(&format!("/api/v1/schedules/apply{query}"), json!({"schedules": schedules})).await
    };
    let two = json!([schedule(json!({})), schedule(json!({"name": "weekly"}))]);
    let changes = |answer: &Answer| -> Vec<String> {
        let all = answer.json()["schedules"].as_array().unwrap().clone();
        all.iter().map(|one| one["change"].as_str().unwrap().to_owned()).collect()
    };
    let dry = apply(two.clone(), "?dry_run=true").await;
    assert_eq!(changes(&dry), ["created", "created"]);
    assert_eq!(world.get("/api/v1/schedules").await.column("name"), Vec::<String>::new());

    let wrong = json!([schedule(json!({})), schedule(json!({"timing": {"rules": [{"cron": "x"}]}}))]);
    let refused = apply(wrong, "").await;
    assert_eq!(refused.code(), "422 invalid_spec");
    assert_eq!(paths(&refused), ["schedules[1].name", "schedules[1].timing.rules[0].cron"]);
    assert_eq!(world.get("/api/v1/schedules").await.column("name"), Vec::<String>::new());

    assert_eq!(changes(&apply(two.clone(), "").await), ["created", "created"]);
    let changed = json!([schedule(json!({})), schedule(json!({"name": "weekly", "owner": "ann"}))]);
    assert_eq!(changes(&apply(changed.clone(), "?dry_run=true").await), ["unchanged", "changed"]);
    assert_eq!(changes(&apply(changed, "").await), ["unchanged", "changed"]);
    assert_eq!(apply(json!([]), "").await.code(), "422 invalid_spec");
}

/// More schedules than the API compiles: the engine refuses the batch, and the response still lists all errors.
#[tokio::test]
async fn every_wrong_timing_of_a_large_batch_is_named() {
    let world = World::new().await;
    let of = |i: usize| {
        let cron = if i % 60 == 7 { "* * *" } else { "* * * * *" };
        schedule(json!({"name": format!("s{i}"), "timing": {"rules": [{"cron": cron}]}}))
    };
    let schedules: Vec<_> = (0..130).map(of).collect();
    let refused = world.post("/api/v1/schedules/apply", json!({"schedules": schedules})).await;
    assert_eq!(refused.code(), "422 invalid_spec");
    let expected = [
        "schedules[7].timing.rules[0].cron",
        "schedules[67].timing.rules[0].cron",
        "schedules[127].timing.rules[0].cron",
    ];
    assert_eq!(paths(&refused), expected);
}

/// B5, B6. The user and the reason of a trigger are recorded; a repeated request fires once.
#[tokio::test]
async fn a_trigger_creates_a_job_with_its_schedule() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    let id = put(&world, json!({"overlap": {"policy": "allow_all"}})).await.json()["id"].clone();
    let trigger = async |reason: &str| {
        let body = json!({"reason": reason});
        world.json(Method::POST, &format!("{ONE}/trigger"), body, &[("idempotency-key", "k")]).await
    };
    let first = trigger("upgrade").await;
    assert_eq!(first.status, StatusCode::OK, "{}", first.text());
    let job = first.json()["job_id"].as_str().unwrap().to_owned();
    assert_eq!(first.header("location"), format!("/api/v1/jobs/{job}"));
    assert_eq!(trigger("upgrade").await.json()["job_id"], job.as_str());
    assert_eq!(trigger("other").await.code(), "422 idempotency_key_reused");

    let task = hands.start().await;
    hands.finish(&task, 0).await;
    let ended = world.until(&job, "succeeded").await;
    assert_eq!((&ended["origin"]["schedule"], &ended["origin"]["cause"]), (&id, &json!("manual")));
    let of_schedule = world.get(&format!("/api/v1/jobs?schedule={}", id.as_str().unwrap())).await;
    assert_eq!(of_schedule.column("id"), std::slice::from_ref(&job));

    let again = world.post_nothing(&format!("/api/v1/jobs/{job}/retry")).await.json();
    let again = world.get(&format!("/api/v1/jobs/{}", again["id"].as_str().unwrap())).await.json();
    assert_eq!((&again["origin"]["schedule"], &again["origin"]["cause"]), (&id, &json!("retry")));

    let ledger = world.get(&format!("{ONE}/ledger?cause=manual&counts=true")).await.json();
    let line = &ledger["items"][0];
    assert_eq!(
        (&line["outcome"], &line["job_id"], &line["job_status"]),
        (&json!("fired"), &json!(job), &json!("succeeded"))
    );
    assert!(line["detail"].as_str().unwrap().contains("upgrade"), "{line}");
    assert_eq!(line["reason"], json!({"code": "requested", "value": line["detail"]}), "{line}");
    assert_eq!(ledger["counts"]["fired"], 1);
    let shown = world.get(ONE).await.json();
    assert_eq!((&shown["statistics"]["succeeded"], &shown["health"]["open_runs"]), (&json!(1), &json!(1)));
}

/// B4. The overlap policy applies to every cause of a run.
#[tokio::test]
async fn the_overlap_policy_applies_to_open_runs() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    put(&world, json!({})).await;
    let trigger = async |body: Value| world.post(&format!("{ONE}/trigger"), body).await.json();
    assert_eq!(trigger(json!({})).await["outcome"], "fired");
    hands.start().await;
    assert_eq!(trigger(json!({})).await["outcome"], "skipped_overlap");
    let skipped = world.get(&format!("{ONE}/ledger?outcome=skipped_overlap")).await.json();
    assert_eq!(skipped["items"][0]["reason"], json!({"code": "run_not_ended", "requested_by": "ann"}));
    assert_eq!(trigger(json!({"overlap": "allow_all"})).await["outcome"], "fired");
    assert_eq!(trigger(json!({"overlap": "buffer_one"})).await["outcome"], "buffered");
    let shown = world.get(ONE).await.json();
    assert_eq!(shown["buffered"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_pause_keeps_its_note_until_the_schedule_is_resumed() {
    let world = World::new().await;
    put(&world, json!({})).await;
    let paused = world.post(&format!("{ONE}/pause"), json!({"note": "night off"})).await;
    assert_eq!(paused.header("etag"), "\"2\"");
    let pause = &paused.json()["pause"];
    assert_eq!((&pause["by"], &pause["note"]), (&json!("ann"), &json!("night off")));
    assert_eq!((&paused.json()["status"], paused.json().get("next_at")), (&json!("paused"), None));
    let next = world.get(&format!("{ONE}/next?count=1")).await.json();
    assert_eq!(next["warnings"][0]["code"], "paused", "{next}");
    let resumed = world.post_nothing(&format!("{ONE}/resume")).await.json();
    assert_eq!((&resumed["status"], resumed.get("pause")), (&json!("active"), None));
}

/// B1. Days with a clock change are marked.
#[tokio::test]
async fn a_preview_has_marks_and_a_description() {
    let world = World::new().await;
    let look = async |draft: Value| world.post("/api/v1/schedules/preview", draft).await;
    let spring = look(
        json!({"cron": "30 2 * * *", "zone": "Europe/Berlin", "from": "2026-03-28T12:00:00Z", "count": 2}),
    )
    .await;
    insta::assert_json_snapshot!(spring.json(), {".tzdb" => "[tzdb]"});
    let never = look(json!({"cron": "0 0 30 2 *"})).await.json();
    assert_eq!(
        (&never["firings"], &never["warnings"][0]),
        (
            &json!([]),
            &json!({"code": "never_fires", "message": "the schedule never fires: no time matches its rules"})
        )
    );
    let later = json!({"timing": {"rules": [{"cron": "0 9 * * *"}], "only": [{"calendar": "belfry.cn-workdays"}]}, "from": "2200-01-01T00:00:00Z", "count": 1});
    let warning = look(later).await.json()["warnings"][0].clone();
    assert_eq!(
        (&warning["code"], &warning["params"]["calendar"]),
        (&json!("calendar_ends"), &json!("belfry.cn-workdays"))
    );
    let wrong = look(json!({"cron": "0 60 * * *"})).await;
    assert_eq!((wrong.code(), paths(&wrong)), ("422 invalid_spec".to_owned(), vec!["cron".to_owned()]));
    for (draft, path) in [
        (json!({}), ""),
        (json!({"cron": "* * * * *", "count": 0}), "count"),
        (json!({"timing": {"zone": "Mars/Olympus"}}), "timing.zone"),
        (json!({"timing": {}, "zone": "UTC"}), "zone"),
    ] {
        assert_eq!(paths(&look(draft.clone()).await), [path], "{draft}");
    }
}

#[tokio::test]
async fn the_firings_of_all_schedules_come_in_order() {
    let world = World::new().await;
    for (name, every) in [("often", "1h"), ("rarely", "5h")] {
        let spec = schedule(json!({"name": name, "timing": {"rules": [{"every": every}]}}));
        world.post("/api/v1/schedules", spec).await;
    }
    let upcoming = world.get("/api/v1/schedules/upcoming").await.json();
    let items = upcoming["items"].as_array().unwrap();
    assert!(items.is_sorted_by_key(|item| item["at"].as_str().unwrap().to_owned()), "{upcoming:#}");
    let of = |name: &str| items.iter().filter(|item| item["name"] == name).count();
    assert_eq!((of("often"), (4..=5).contains(&of("rarely"))), (24, true), "{upcoming:#}");
}

/// B5. A past range is backfilled; times with a run are not repeated.
#[tokio::test]
async fn a_backfill_runs_scheduled_times_without_a_run() {
    let world = World::new().await;
    let mut hands = ManualWorker::join(&world, 1).await;
    put(
        &world,
        json!({"timing": {
            "rules": [{"cron": "0 2 * * *"}], "exclude": [{"dates": ["2020-01-03"]}],
        }}),
    )
    .await;
    let backfills = format!("{ONE}/backfills");
    let range = json!({"from": "2020-01-01T00:00:00Z", "until": "2020-01-04T02:00:00Z"});
    let plan = world.post(&format!("{backfills}?dry_run=true"), range.clone()).await.json();
    assert_eq!(
        plan["scheduled_times"],
        json!(["2020-01-01T02:00:00Z", "2020-01-02T02:00:00Z", "2020-01-04T02:00:00Z"])
    );
    assert_eq!(
        (&plan["left_out"][0]["at"], &plan["left_out"][0]["reason"]),
        (&json!("2020-01-03T02:00:00Z"), &json!("excluded"))
    );

    let begun = world.post(&backfills, range.clone()).await;
    assert_eq!(begun.status, StatusCode::CREATED, "{}", begun.text());
    let one = begun.header("location").to_owned();
    let mut events = world.services.node.events();
    for exit_code in [0, 1, 0] {
        let task = hands.start().await;
        hands.finish(&task, exit_code).await;
    }
    let ended = soon("the end of the backfill", async {
        loop {
            let shown = world.get(&one).await.json();
            if shown["status"] == "completed" {
                return shown;
            }
            // A receiver that lags has missed events: the row is read again.
            let _event = events.recv().await;
        }
    })
    .await;
    assert_eq!((&ended["total"], &ended["succeeded"], &ended["failed"]), (&json!(3), &json!(2), &json!(1)));
    assert_eq!(world.get("/api/v1/backfills").await.column("id"), [one.rsplit('/').next().unwrap()]);
    let id = one.rsplit('/').next().unwrap();
    assert_eq!(world.get(&format!("/api/v1/jobs?backfill={id}")).await.column("id").len(), 3);
    assert_eq!(world.post_nothing(&format!("{one}/cancel")).await.code(), "409 backfill_ended");

    let again = world.post(&backfills, range.clone()).await;
    assert!(again.text().contains("no scheduled time of this range remains"), "{}", again.text());
    let mut failed = range;
    failed["reprocess"] = json!("failed");
    let plan = world.post(&format!("{backfills}?dry_run=true"), failed.clone()).await.json();
    assert_eq!(plan["scheduled_times"], json!(["2020-01-02T02:00:00Z"]));
    // A successful retry by hand counts like a successful run.
    let lost = world.get(&format!("/api/v1/jobs?backfill={id}&status=failed")).await.column("id").remove(0);
    let retried = world.post_nothing(&format!("/api/v1/jobs/{lost}/retry")).await;
    assert_eq!(retried.status, StatusCode::CREATED, "{}", retried.text());
    let task = hands.start().await;
    hands.finish(&task, 0).await;
    let retry = retried.json()["id"].as_str().unwrap().to_owned();
    world.until(&retry, "succeeded").await;
    let plan = world.post(&format!("{backfills}?dry_run=true"), failed.clone()).await.json();
    assert_eq!((plan["scheduled_times"].as_array().unwrap().len(), &plan["left_out_count"]), (0, &json!(4)));
    failed["reprocess"] = json!("all");
    let plan = world.post(&format!("{backfills}?dry_run=true"), failed).await.json();
    assert_eq!(plan["scheduled_times"].as_array().unwrap().len(), 3);
    for (wrong, path) in [
        (json!({"from": "2020-01-02T00:00:00Z", "until": "2020-01-01T00:00:00Z"}), "from"),
        (json!({"from": "2020-01-01T00:00:00Z", "until": "2999-01-01T00:00:00Z"}), "until"),
        (
            json!({"from": "2020-01-01T00:00:00Z", "until": "2020-01-02T00:00:00Z", "concurrency": 0}),
            "concurrency",
        ),
        (
            json!({"from": "2020-01-01T00:00:00Z", "until": "2020-01-02T00:00:00Z", "overlap": "skip"}),
            "overlap",
        ),
    ] {
        assert_eq!(paths(&world.post(&backfills, wrong).await), [path]);
    }
}

/// B5. A calendar cannot be deleted while a schedule or another calendar refers to it.
#[tokio::test]
async fn a_calendar_is_created_previewed_and_kept_while_in_use() {
    let world = World::new().await;
    let one = "/api/v1/calendars/our-holidays";
    let spec = json!({"name": "our-holidays", "steps": [
        {"include": {"calendar": "belfry.cn-holidays"}}, {"exclude": {"dates": ["2026-10-02..2026-10-05"]}},
    ]});
    let set = world.json(Method::PUT, one, spec.clone(), &[]).await;
    assert_eq!((set.status, set.header("etag")), (StatusCode::OK, "\"1\""), "{}", set.text());
    let days = world.get(&format!("{one}/days?from=2026-10-01&until=2026-10-07")).await.json();
    assert_eq!(days["days"], json!(["2026-10-01", "2026-10-06", "2026-10-07"]));
    assert_eq!(
        world.get("/api/v1/calendars").await.column("name")[..2],
        ["our-holidays", "belfry.cn-holidays"]
    );
    let circle = json!({"name": "our-holidays", "steps": [{"include": {"calendar": "our-holidays"}}]});
    assert_eq!(world.json(Method::PUT, one, circle, &[]).await.code(), "422 invalid_spec");

    let uses =
        json!({"timing": {"rules": [{"cron": "0 2 * * *"}], "exclude": [{"calendar": "our-holidays"}]}});
    assert_eq!(put(&world, uses).await.status, StatusCode::CREATED);
    let in_use = world.delete(one).await;
    assert_eq!(in_use.code(), "409 calendar_in_use");
    assert!(in_use.text().contains("nightly"), "{}", in_use.text());
    let unknown = put(
        &world,
        json!({"timing": {"rules": [{"cron": "0 2 * * *"}], "only": [{"calendar": "our-holiday"}]}}),
    )
    .await;
    assert!(unknown.text().contains("`our-holidays`"), "the nearest name is suggested: {}", unknown.text());
    world.delete(ONE).await;
    assert_eq!(world.delete(one).await.status, StatusCode::NO_CONTENT);
    assert_eq!(world.get(one).await.code(), "404 calendar_not_found");
    let built_in = world.get("/api/v1/calendars/belfry.cn-workdays").await.json();
    assert_eq!((&built_in["built_in"], built_in["known_until"].is_string()), (&json!(true), true));
    assert_eq!(built_in["description"].as_str().map(|text| text.ends_with('.')), Some(true));
    let kept = world.delete("/api/v1/calendars/belfry.cn-workdays").await;
    assert_eq!(kept.code(), "409 calendar_built_in");
    let backwards =
        world.get("/api/v1/calendars/belfry.cn-workdays/days?from=2026-10-07&until=2026-10-01").await;
    assert!(backwards.text().contains("`2026-10-01` is before `from`"), "{}", backwards.text());
    let stolen = json!({"name": "belfry.x", "steps": []});
    assert_eq!(
        world.json(Method::PUT, "/api/v1/calendars/belfry.x", stolen, &[]).await.code(),
        "422 invalid_spec"
    );
}

#[tokio::test]
async fn an_icalendar_import_reports_ignored_events() {
    let world = World::new().await;
    let text = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:New Year\r\nDTSTART;VALUE=DATE:20270101\r\nEND:VEVENT\r\n\
                BEGIN:VEVENT\r\nSUMMARY:Odd\r\nDTSTART:soon\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n";
    let import = async |query: &str, media_type: &str, text: &str| {
        let request = world.request(Method::POST, &format!("/api/v1/calendars/import{query}"));
        let request = request.header("content-type", media_type).body(text.to_owned().into()).unwrap();
        world.send(request).await
    };
    let read = import("", "text/calendar", text).await.json();
    assert_eq!(
        (&read["saved"], &read["spec"]["steps"]),
        (&json!(false), &json!([{"include": {"dates": ["2027-01-01"]}}]))
    );
    assert_eq!(read["ignored"].as_array().unwrap().len(), 1, "{read}");
    assert_eq!(import("?name=public", "text/calendar; charset=utf-8", text).await.json()["saved"], true);
    assert_eq!(world.get("/api/v1/calendars/public").await.json()["version"], 1);
    assert_eq!(import("", "application/json", text).await.code(), "415 unsupported_media_type");
    assert_eq!(import("", "text/calendar", "hello").await.code(), "422 invalid_spec");
}
