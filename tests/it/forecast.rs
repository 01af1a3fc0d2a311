//! Forecasts by the real binary for a real server, which is only read.

use std::fs;

use harness::Site;
use serde_json::Value;

const PLAN: &str = "\
version: 1
kind: queue
name: reports
spec: { concurrency: 1 }
---
version: 1
kind: schedule
name: report
spec:
  timing: { rules: [{ cron: \"0 * * * *\" }] }
  job:
    queue: reports
    run: { process: { command: [\"true\"] } }
---
version: 1
kind: schedule
name: digest
spec:
  timing: { rules: [{ cron: \"0 * * * *\" }] }
  job:
    queue: reports
    run: { process: { command: [\"true\"] } }
";

const RANGE: [&str; 6] = ["--from", "2027-01-04T00:00:00Z", "--for", "6h", "--time-zone", "UTC"];

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A plan is simulated on top of the state of a server; the server does not change.
#[tokio::test]
async fn a_plan_is_forecast_on_the_state_of_a_server_before_it_is_applied() {
    let site = Site::start().await;
    site.belfry(&["schedule", "create", "beat", "--every", "10m", "--", "true"]).await.success();
    site.belfry(&["schedule", "trigger", "beat", "--wait"]).await.success();
    fs::write(site.path("plan.yaml"), PLAN).unwrap();
    let file = site.path("plan.yaml").display().to_string();

    let told = site.belfry(&[&["forecast", "-o", "json"], &RANGE[..]].concat()).await.success();
    let now = json(&told);
    assert_eq!((&now["summary"]["firings"], &now["overloads"]), (&36.into(), &Value::Array(Vec::new())));
    assert_eq!(now["schedules"][0]["assumed"], false, "its past runs are known: {told}");
    assert_eq!(now["workers"].as_array().unwrap().len(), 1);

    let picture = site.path("plan.svg").display().to_string();
    let what_if = ["forecast", "-f", &file, "--run-time", "40m", "--svg", &picture, "-o", "json"];
    let tried = json(&site.belfry(&[&what_if, &RANGE[..]].concat()).await.success());
    assert_eq!(tried["as_it_is"], now["summary"]);
    assert_eq!(tried["summary"]["firings"], 36 + 9, "two runs together take longer than an hour: {tried:#}");
    let window = &tried["overloads"][0];
    assert_eq!(
        (&window["group"]["queue"], &window["why"][0]["cause"]),
        (&"reports".into(), &"queue_concurrency".into())
    );
    assert!(fs::read_to_string(&picture).unwrap().starts_with("<svg "));

    let offline = ["forecast", "--offline", "-f", &file, "--add-worker", "cpu=1,memory=1GiB", "-o", "json"];
    let offline = json(&site.belfry(&[&offline, &RANGE[..]].concat()).await.success());
    assert_eq!(offline["summary"]["firings"], 12);

    let schedules = json(&site.belfry(&["schedule", "list", "-o", "json"]).await.success());
    assert_eq!(schedules.as_array().unwrap().len(), 1, "nothing was applied: {schedules:#}");
    let away = site.belfry(&["forecast", "--without-worker", "nobody"]).await.exits(2);
    assert!(away.stderr.contains("worker `nobody` does not exist"), "{}", away.stderr);
}
