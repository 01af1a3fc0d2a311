//! Schedules and calendars as a user creates them, from flags and files, and the messages about them.

use std::fs;

use harness::Site;

const NEVER: &str = "\
version: 1
kind: schedule
name: never
spec:
  timing:
    rules: [{ cron: \"0 0 31 2 *\" }]
  job:
    run: { process: { command: [\"true\"] } }
";

const HELP: &str = "help: correct the rules and apply the schedule again; a schedule that is only triggered manually needs no rules\n";

/// B1. It is accepted, because files keep schedules whose time has passed, but the user gets a warning.
#[tokio::test]
async fn a_schedule_that_never_fires_causes_a_warning() {
    let site = Site::server_only(&[]).await;
    let told =
        format!("warning: schedule `never`: the schedule never fires: no time matches its rules\n{HELP}");
    let create = ["schedule", "create", "never", "--cron", "0 0 31 2 *", "--", "true"];
    let tried = site.belfry(&[&create[..5], &["--dry-run"], &create[5..]].concat()).await.exits(0);
    assert_eq!(tried.stderr, told);
    let created = site.belfry(&create).await.exits(0);
    assert_eq!(created.stderr, told);
    assert!(created.stdout.contains("completed"), "{}", created.stdout);

    site.belfry(&["schedule", "delete", "never"]).await.success();
    fs::write(site.path("never.yaml"), NEVER).unwrap();
    let differs = site.belfry(&["diff", "-f", &file(&site, "never.yaml")]).await.exits(1);
    assert_eq!(differs.stderr, told);
    let applied = site.belfry(&["apply", "-f", &file(&site, "never.yaml"), "-o", "json"]).await.exits(0);
    assert_eq!(applied.stderr, told);
    let applied: serde_json::Value = serde_json::from_str(&applied.stdout).unwrap();
    let warning = &applied[0]["warnings"][0];
    let message = "the schedule never fires: no time matches its rules";
    assert_eq!(*warning, serde_json::json!({"code": "never_fires", "message": message}));
    let again = site.belfry(&["apply", "-f", &file(&site, "never.yaml")]).await.exits(0);
    assert_eq!(again.stderr, "", "nothing changed");
    let quiet = site.belfry(&["-q", "schedule", "create", "other", "--at", "2020-01-01T00:00", "--", "true"]);
    assert_eq!(
        quiet.await.exits(0).stderr,
        "warning: schedule `other`: the schedule never fires: its time has passed\n",
        "a warning is not a note"
    );
}

fn file(site: &Site, name: &str) -> String {
    site.path(name).display().to_string()
}

/// The output of a dry run can be stored in a file and applied.
#[tokio::test]
async fn dry_run_output_can_be_stored_and_applied() {
    let site = Site::server_only(&[]).await;
    let script = "set -e
        belfry schedule create tidy --cron @weekly --start 2027-01-01T00:00:00Z -l team=pay --dry-run -- true > tidy.yaml
        belfry schedule create tidy --cron @weekly --start 2027-01-01T00:00:00Z -l team=pay -- true
        belfry diff -f tidy.yaml
        printf 'BEGIN:VCALENDAR\\nBEGIN:VEVENT\\nDTSTART;VALUE=DATE:20270101\\nEND:VEVENT\\nEND:VCALENDAR\\n' > new-year.ics
        belfry calendar import new-year.ics > new-year.yaml
        belfry calendar import new-year.ics -o json > new-year.json
        belfry apply -f new-year.yaml
        belfry diff -f new-year.yaml -f new-year.json
        belfry calendar days imported --from 2027-01-01 --until 2027-12-31";
    let shown = site.script(&site.path(""), script).await.success();
    assert!(shown.ends_with("\n2027-01-01\n"), "{shown}");
}

/// Files that cannot be applied have no difference to show.
#[tokio::test]
async fn a_difference_of_files_that_cannot_be_applied_is_refused() {
    let site = Site::server_only(&[]).await;
    fs::write(site.path("bad.yaml"), NEVER.replace("0 0 31 2 *", "0 61 * * *")).unwrap();
    let refused = site.belfry(&["diff", "-f", &file(&site, "bad.yaml")]).await.exits(2);
    assert!(refused.stdout.is_empty() && refused.stderr.contains("at column 3"), "{refused:?}");
}

/// A hint names commands, not REST requests.
#[tokio::test]
async fn errors_about_missing_objects_name_the_list_command() {
    let site = Site::server_only(&[]).await;
    for (line, command) in [
        ("schedule get nobody", "belfry schedule list"),
        ("calendar get nobody", "belfry calendar list"),
        ("backfill get bkf_01k9zq3m6c0000000000000000", "belfry backfill list"),
        ("worker get nobody", "belfry worker list"),
    ] {
        let refused = site.belfry(&line.split(' ').collect::<Vec<_>>()).await.exits(3);
        assert!(refused.stderr.contains(&format!("help: run `{command}`")), "{line}: {}", refused.stderr);
        assert!(!refused.stderr.contains("/api/"), "{line}: {}", refused.stderr);
    }
    let kept = site.belfry(&["calendar", "delete", "belfry.cn-workdays"]).await.exits(1);
    assert!(kept.stderr.contains("is built in"), "{}", kept.stderr);
}

/// B4. A firing that waits or was merged is no failure; but waiting for a job that does not exist is refused.
#[tokio::test]
async fn a_buffered_trigger_reports_that_it_waits() {
    let site = Site::start().await;
    site.belfry(&["schedule", "create", "slow", "--overlap", "buffer_one", "--", "sleep", "600"])
        .await
        .success();
    let trigger = async |more: &[&str]| site.belfry(&[&["schedule", "trigger", "slow"], more].concat()).await;
    let job = trigger(&[]).await.success();
    let buffered = trigger(&["-o", "json"]).await.exits(0);
    let answer: serde_json::Value = serde_json::from_str(&buffered.stdout).unwrap();
    assert_eq!(answer["outcome"], "buffered", "{answer}");
    assert_eq!(buffered.stderr, "the firing is buffered until earlier runs have ended\n");
    let coalesced = trigger(&[]).await.exits(0);
    assert_eq!(
        coalesced.stderr,
        "the firing was merged with a buffered firing that waits for earlier runs to end\n"
    );
    let waited = trigger(&["--wait"]).await.exits(1);
    assert!(waited.stderr.contains("cannot wait: the firing"), "{}", waited.stderr);
    site.belfry(&["schedule", "delete", "slow"]).await.success();
    site.belfry(&["job", "cancel", job.trim()]).await.success();
}

/// H1. A rule is described in the user's language automatically.
#[tokio::test]
async fn a_rule_is_described_in_the_language_of_the_environment() {
    let site = Site::server_only(&[]).await;
    let next =
        "belfry schedule next --cron '30 2 * * *' --zone Europe/Berlin --from 2027-03-28T00:00:00Z -n 1";
    let shown = site.script(&site.path(""), &format!("LC_ALL=zh_CN.UTF-8 {next}")).await.success();
    assert!(shown.starts_with("每天 02:30（Europe/Berlin）。\n"), "{shown}");
    assert!(shown.contains("顺延：时钟拨快，跳过了这一时刻；当天时钟有调整"), "{shown}");
    let shown = site.script(&site.path(""), &format!("LC_ALL=zh_CN.UTF-8 {next} --lang en")).await.success();
    assert!(shown.starts_with("At 02:30 every day, in Europe/Berlin.\n"), "{shown}");
}
