//! Monitors and their pings.

use model::api::{MonitorStatus, NewPing, PingKind};

use super::*;

/// A scene with a rule about all monitors, and the monitor `backup`, which is pinged every hour with 10 minutes of grace.
fn scene() -> Scene {
    let mut t = Scene::new(&[json!({"when": {"monitor_down": {}}})]);
    put(&mut t, json!({}));
    t
}

fn spec(more: Value) -> model::alert::MonitorSpec {
    let mut spec = json!({"name": "backup", "timing": {"every": "1h"}, "grace": "10m"});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let spec = serde_json::from_value(spec).unwrap();
    model::validate::monitor(&spec).unwrap();
    spec
}

fn put(t: &mut Scene, more: Value) -> bool {
    let spec = spec(more);
    let token = PingToken { hash: format!("hash of {}", spec.name), sealed: "sealed".to_owned() };
    let changed = t.alerts.put_monitor(t.now, "ann", spec, token).unwrap();
    t.settle();
    changed
}

fn ping(t: &mut Scene, kind: PingKind) {
    send(t, NewPing { kind: Some(kind), ..NewPing::default() });
}

fn send(t: &mut Scene, ping: NewPing) {
    t.alerts.ping(t.now, NS, "backup", &ping).unwrap();
    t.settle();
}

fn status(t: &Scene) -> MonitorStatus {
    shown(t).status
}

fn shown(t: &Scene) -> model::api::Monitor {
    t.alerts.monitor_named(t.now, NS, "backup").unwrap()
}

/// Details of the open alerts.
fn details(t: &Scene) -> Vec<String> {
    let all = t.alerts.alerts(t.now, |_| true, &AlertFilter::default(), 100).items;
    let open = all.into_iter().filter(|alert| alert.status != AlertStatus::Resolved);
    open.map(|alert| alert.detail.unwrap_or_default()).collect()
}

/// H3.
#[test]
fn a_missing_ping_takes_a_monitor_down_after_the_grace_time_and_a_success_ends_that() {
    let mut t = scene();
    assert_eq!(status(&t), MonitorStatus::New);
    t.pass(hours(5));
    assert_eq!(
        (status(&t), t.sent().len()),
        (MonitorStatus::New, 0),
        "nothing is expected before the first ping"
    );
    ping(&mut t, PingKind::Success);
    assert_eq!(status(&t), MonitorStatus::Up);
    t.pass(hours(1) + MINUTE);
    assert_eq!((status(&t), t.sent().len()), (MonitorStatus::Late, 0));
    t.pass(minutes(10));
    assert_eq!((status(&t), t.sent()), (MonitorStatus::Down, vec!["ops: backup (1)".to_owned()]));
    assert_eq!(details(&t), ["no ping arrived: expected one at 2027-01-15 14:00:00 UTC"]);
    t.pass(hours(1));
    ping(&mut t, PingKind::Success);
    assert_eq!((status(&t), t.sent()), (MonitorStatus::Up, vec!["ops: backup (1) resolved".to_owned()]));
}

#[test]
fn a_late_ping_within_the_grace_time_sends_no_notification() {
    let mut t = scene();
    for _ in 0..10 {
        ping(&mut t, PingKind::Success);
        t.pass(hours(1) + minutes(9));
        assert_eq!(status(&t), MonitorStatus::Late);
    }
    assert_eq!(t.sent(), [""; 0]);
}

/// H3.
#[test]
fn a_reported_failure_takes_a_monitor_down_at_once() {
    let mut t = scene();
    ping(&mut t, PingKind::Success);
    send(&mut t, NewPing { exit_code: Some(3), message: Some("disk\u{1b}[31m full\n".into()), kind: None });
    assert_eq!((status(&t), t.sent()), (MonitorStatus::Down, vec!["ops: backup (1)".to_owned()]));
    assert_eq!(details(&t), ["the job ended with exit code 3: disk full"]);
    let since = shown(&t).down_since;
    // A further failure is counted, and keeps the beginning. It is no new message.
    t.pass(minutes(30));
    ping(&mut t, PingKind::Fail);
    assert_eq!((details(&t), shown(&t).down_since), (vec!["the job reported a failure".to_owned()], since));
    assert_eq!(t.sent(), [""; 0]);
    send(&mut t, NewPing { exit_code: Some(0), ..NewPing::default() });
    assert_eq!((status(&t), t.sent()), (MonitorStatus::Up, vec!["ops: backup (2) resolved".to_owned()]));
}

#[test]
fn a_monitor_that_stays_down_is_notified_again() {
    let mut t = scene();
    t.rule(json!({"when": {"monitor_down": {}}, "repeat_every": "1d"}));
    ping(&mut t, PingKind::Fail);
    t.pass(hours(60));
    assert_eq!(t.sent(), ["ops: backup (1)", "ops: backup (1)", "ops: backup (1)"]);
}

#[test]
fn a_started_job_must_end_within_its_longest_run_time() {
    let mut t = scene();
    put(&mut t, json!({"run_time_max": "3h"}));
    ping(&mut t, PingKind::Success);
    t.pass(minutes(50));
    ping(&mut t, PingKind::Start);
    t.pass(hours(2));
    assert_eq!(status(&t), MonitorStatus::Up, "the job runs, so no other ping is expected");
    ping(&mut t, PingKind::Success);
    assert_eq!(shown(&t).pings[0].run_time, Some(hours(2)));
    // A job that crashes after each start does not extend its time.
    for _ in 0..3 {
        ping(&mut t, PingKind::Start);
        t.pass(minutes(50));
    }
    assert_eq!(t.sent(), [""; 0]);
    t.pass(minutes(31));
    assert_eq!(t.sent(), ["ops: backup (1)"]);
    assert_eq!(details(&t), ["the job started at 2027-01-15 10:50:00 UTC and did not end within 3h"]);
    // Its start alone says nothing.
    ping(&mut t, PingKind::Start);
    assert_eq!(status(&t), MonitorStatus::Down);
}

#[test]
fn a_new_monitor_whose_job_starts_and_never_ends_is_down() {
    let mut t = scene();
    ping(&mut t, PingKind::Start);
    assert_eq!(status(&t), MonitorStatus::New);
    t.pass(minutes(11));
    assert_eq!((status(&t), t.sent().len()), (MonitorStatus::Down, 1));
}

/// Berlin changes its clock on 2027-03-28.
#[test]
fn the_times_of_a_cron_expression_follow_its_time_zone() {
    let mut t = scene();
    put(&mut t, json!({"timing": {"cron": {"expression": "0 3 * * *", "zone": "Europe/Berlin"}}}));
    ping(&mut t, PingKind::Success);
    let expected = |t: &Scene| shown(t).expected_at.unwrap().to_string();
    assert_eq!(expected(&t), "2027-01-16T02:00:00Z");
    t.pass(Duration::from_hours(24 * 100));
    ping(&mut t, PingKind::Success);
    assert_eq!(expected(&t), "2027-04-26T01:00:00Z");
}

/// D6. A takeover changes nothing, and takes no monitor down at once for pings that no server could receive.
#[test]
fn the_state_of_a_monitor_survives_restarts() {
    let mut t = scene();
    ping(&mut t, PingKind::Success);
    t.restart();
    assert_eq!(status(&t), MonitorStatus::Up);
    assert_eq!(t.alerts.monitor_of_token("hash of backup"), Some((NS, "backup")));
    t.now = t.now + hours(3);
    t.restart();
    t.settle();
    assert_eq!((status(&t), t.sent().len()), (MonitorStatus::Late, 0), "clients repeat their pings");
    t.pass(MINUTE);
    assert_eq!((status(&t), t.sent().len()), (MonitorStatus::Down, 1));
    assert_eq!(shown(&t).down_since.unwrap().to_string(), "2027-01-15T09:10:00Z");
    t.restart();
    t.settle();
    t.pass(hours(1));
    assert_eq!((status(&t), t.sent().len()), (MonitorStatus::Down, 0), "its alert is open and notified");
    ping(&mut t, PingKind::Success);
    assert_eq!(t.sent(), ["ops: backup (1) resolved"]);
}

#[test]
fn a_ping_after_a_takeover_is_in_time() {
    let mut t = scene();
    ping(&mut t, PingKind::Success);
    t.now = t.now + hours(2);
    t.restart();
    t.settle();
    t.pass(Duration::from_secs(20));
    ping(&mut t, PingKind::Success);
    t.pass(minutes(10));
    assert_eq!((status(&t), t.sent().len()), (MonitorStatus::Up, 0));
}

#[test]
fn a_paused_monitor_expects_nothing_and_begins_anew_when_it_is_resumed() {
    let mut t = scene();
    ping(&mut t, PingKind::Success);
    ping(&mut t, PingKind::Fail);
    assert_eq!(t.sent().len(), 1);
    t.pass(MINUTE);
    put(&mut t, json!({"paused": true}));
    assert_eq!((status(&t), t.sent()), (MonitorStatus::Paused, vec!["ops: backup (1) resolved".to_owned()]));
    ping(&mut t, PingKind::Fail);
    t.pass(hours(30));
    assert_eq!((status(&t), t.sent().len(), shown(&t).pings.len()), (MonitorStatus::Paused, 0, 3));
    put(&mut t, json!({}));
    assert_eq!(status(&t), MonitorStatus::Up);
    t.pass(minutes(69));
    assert_eq!(t.sent().len(), 0);
    t.pass(minutes(2));
    assert_eq!((status(&t), t.sent().len()), (MonitorStatus::Down, 1));
}

#[test]
fn a_longer_grace_time_ends_a_missing_ping_but_no_reported_failure() {
    let mut t = scene();
    ping(&mut t, PingKind::Success);
    t.pass(hours(2));
    assert_eq!(status(&t), MonitorStatus::Down);
    put(&mut t, json!({"grace": "2h"}));
    assert_eq!(status(&t), MonitorStatus::Up);
    ping(&mut t, PingKind::Fail);
    put(&mut t, json!({"grace": "3h"}));
    assert_eq!(status(&t), MonitorStatus::Down);
}

#[test]
fn a_rule_selects_monitors_by_name_owner_and_labels() {
    let mut t = Scene::new(&[
        json!({"name": "env", "when": {"monitor_down": {}}, "match": {"labels": {"env": "prod"}}}),
        json!({"name": "owner", "when": {"monitor_down": {}}, "match": {"name": "back*", "owner": "ann"}}),
    ]);
    put(&mut t, json!({"labels": {"env": "dev"}}));
    ping(&mut t, PingKind::Fail);
    assert_eq!(t.sent(), [""; 0]);
    // The monitor is down already when a rule begins to select it.
    put(&mut t, json!({"labels": {"env": "prod"}, "owner": "bob"}));
    assert_eq!((t.sent().len(), shown(&t).open_alerts), (1, 1));
    t.pass(MINUTE);
    put(&mut t, json!({"labels": {"env": "dev"}, "owner": "ann"}));
    assert_eq!(t.sent(), ["ops: backup (1) resolved", "ops: backup (1)"]);
    assert_eq!(shown(&t).open_alerts, 1);
}

#[test]
fn a_rule_is_also_about_monitors_that_are_already_down() {
    let mut t = Scene::new(&[]);
    put(&mut t, json!({}));
    ping(&mut t, PingKind::Fail);
    t.pass(hours(1));
    assert_eq!(t.sent(), [""; 0]);
    t.rule(json!({"when": {"monitor_down": {}}}));
    t.settle();
    assert_eq!(t.sent(), ["ops: backup (1)"]);
}

#[test]
fn the_alert_of_a_monitor_that_is_down_cannot_be_resolved_by_hand() {
    let mut t = scene();
    ping(&mut t, PingKind::Fail);
    let number = t.alerts.alerts(t.now, |_| true, &AlertFilter::default(), 1).items[0].id;
    let refused = t.alerts.resolve_by_user(t.now, number, "ann", None).unwrap_err();
    assert_eq!(refused, Refusal::Lasting { alert: number });
    t.pass(MINUTE);
    t.sent();
    t.alerts.delete_monitor(t.now, NS, "backup").unwrap();
    t.settle();
    assert_eq!(t.sent(), ["ops: backup (1) resolved"]);
    assert!(!t.rows.keys().any(|(kind, _)| kind.starts_with("monitor")));
    assert_eq!(t.alerts.monitor_of_token("hash of backup"), None);
    let missing = Refusal::NotFound { what: "monitor", name: "backup".to_owned() };
    assert_eq!(t.alerts.ping(t.now, NS, "backup", &NewPing::default()), Err(missing.clone()));
    assert_eq!(t.alerts.delete_monitor(t.now, NS, "backup"), Err(missing));
}

#[test]
fn a_monitor_keeps_its_ping_url_and_its_last_pings() {
    let mut t = scene();
    assert!(!put(&mut t, json!({})), "the same spec changes nothing");
    for second in 0..50 {
        t.pass(Duration::from_secs(1));
        let message = format!("{second} {}", "x".repeat(2_000));
        send(&mut t, NewPing { message: Some(message), ..NewPing::default() });
    }
    let token = PingToken { hash: "other".to_owned(), sealed: "other".to_owned() };
    t.alerts.put_monitor(t.now, "bob", spec(json!({"owner": "bob"})), token).unwrap();
    assert_eq!(t.alerts.sealed_token(NS, "backup"), Some("sealed"));
    assert_eq!(t.alerts.monitor_of_token("other"), None);
    let shown = shown(&t);
    assert_eq!((shown.pings.len(), shown.version, shown.updated_by.as_str()), (20, 2, "bob"));
    assert_eq!(shown.pings[0].message.as_ref().unwrap().chars().count(), 500);
    assert!(shown.pings[0].at > shown.pings[19].at);
    assert_eq!(t.alerts.monitors(t.now, |_| true)[0].pings.len(), 1);
    assert_eq!(t.alerts.monitors(t.now, |namespace| namespace != NS), []);
}

#[test]
fn a_namespace_has_a_bounded_number_of_monitors() {
    let mut t = Scene::new(&[]);
    for number in 0..model::limits::MONITORS_MAX {
        put(&mut t, json!({"name": format!("m{number}")}));
    }
    let token = PingToken { hash: "one".to_owned(), sealed: "more".to_owned() };
    let refused = t.alerts.put_monitor(t.now, "ann", spec(json!({"name": "more"})), token).unwrap_err();
    assert_eq!(refused.to_string(), "namespace `default` has 1000 monitors, which is the limit");
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Ping(PingKind),
        Pass { minutes: u64 },
        Restart,
        Paused(bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        let kind = prop_oneof![Just(PingKind::Success), Just(PingKind::Start), Just(PingKind::Fail)];
        prop_oneof![
            5 => kind.prop_map(Step::Ping),
            5 => (0..90u64).prop_map(|minutes| Step::Pass { minutes }),
            2 => Just(Step::Restart),
            1 => any::<bool>().prop_map(Step::Paused),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// H3, D6. For any order of pings and restarts: exactly a monitor that is down has an open alert, and a monitor
        /// without a success for its period, its grace time and the time after a load is down, unless it is new or
        /// paused.
        #[test]
        fn exactly_a_monitor_that_is_down_has_an_alert(steps in prop::collection::vec(step(), 1..60)) {
            let mut t = scene();
            let (mut success, mut paused) = (None, false);
            for step in steps {
                match step {
                    Step::Ping(kind) => {
                        ping(&mut t, kind);
                        if kind == PingKind::Success {
                            success = Some(t.now);
                        }
                    }
                    Step::Pass { minutes } => t.pass(super::super::minutes(minutes)),
                    Step::Restart => {
                        t.restart();
                        t.settle();
                    }
                    Step::Paused(next) => {
                        put(&mut t, json!({"paused": next}));
                        if paused && !next && success.is_some() {
                            success = Some(t.now);
                        }
                        paused = next;
                    }
                }
                let shown = shown(&t);
                prop_assert_eq!(shown.status == MonitorStatus::Down, !details(&t).is_empty());
                prop_assert_eq!(shown.status == MonitorStatus::Paused, paused);
                let bound = hours(1) + minutes(10) + MINUTE;
                // A start may have come shortly before the ping was expected.
                let is_silent = success.is_some_and(|at| t.now > at + bound + minutes(70));
                if is_silent && !paused && shown.started_at.is_none() && shown.down_at.is_none() {
                    prop_assert_eq!(shown.status, MonitorStatus::Down);
                }
                prop_assert!(shown.status == MonitorStatus::Down || shown.down_at.is_none_or(|at| at > t.now));
            }
        }
    }
}
