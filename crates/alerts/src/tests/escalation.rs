//! Escalation of alerts that no user acknowledges.

use super::*;

fn add_channel(t: &mut Scene, name: &str) {
    let spec = json!({"name": name, "to": {"slack": {"url": "******"}}});
    t.alerts.put_channel(t.now, "ann", serde_json::from_value(spec).unwrap(), "sealed".into()).unwrap();
}

/// A scene whose rule escalates failed jobs to `boss` after 15 minutes.
fn scene() -> Scene {
    let mut t = Scene::new(&[]);
    add_channel(&mut t, "boss");
    t.rule(json!({"when": {"job_failed": {}}, "escalate": {"after": "15m", "notify": ["boss"]}}));
    t
}

fn number(t: &Scene) -> u64 {
    t.alerts.alerts(t.now, |_| true, &AlertFilter::default(), 1).items[0].id
}

/// H3.
#[test]
fn an_alert_that_no_user_acknowledges_is_escalated_once() {
    let mut t = scene();
    t.ends(1, "a", JobStatus::Failed);
    assert_eq!(t.sent(), ["ops: a (1)"]);
    t.pass(minutes(14));
    assert_eq!(t.sent(), [""; 0]);
    t.pass(minutes(1));
    assert_eq!(t.sent(), ["boss: a (1)"]);
    assert!(t.alerts.alert(t.now, number(&t)).unwrap().escalated_at.is_some());
    t.pass(hours(24));
    assert_eq!(t.sent(), [""; 0]);
    // Both hear of the end.
    t.ends(2, "a", JobStatus::Succeeded);
    assert_eq!(t.sent(), ["boss: a (1) resolved", "ops: a (1) resolved"]);
}

#[test]
fn an_escalated_alert_is_repeated_to_all_channels() {
    let mut t = scene();
    t.ends(1, "a", JobStatus::Failed);
    t.pass(hours(1));
    t.sent();
    t.pass(hours(4));
    t.ends(2, "a", JobStatus::Failed);
    assert_eq!(t.sent(), ["boss: a (2)", "ops: a (2)"]);
}

#[test]
fn an_acknowledged_or_resolved_alert_is_not_escalated() {
    let mut t = scene();
    t.ends(1, "a", JobStatus::Failed);
    let alert = number(&t);
    t.alerts.acknowledge(alert, "ann", None).unwrap();
    t.pass(hours(2));
    assert_eq!(t.sent(), ["ops: a (1)"]);
    t.ends(2, "a", JobStatus::Succeeded);
    t.ends(3, "b", JobStatus::Failed);
    t.pass(minutes(5));
    t.ends(4, "b", JobStatus::Succeeded);
    t.pass(hours(2));
    let sent = t.sent();
    assert!(sent.iter().all(|message| !message.starts_with("boss")), "{sent:?}");
}

/// D6.
#[test]
fn the_time_until_an_escalation_continues_after_a_restart() {
    let mut t = scene();
    t.ends(1, "a", JobStatus::Failed);
    t.sent();
    t.pass(minutes(10));
    t.restart();
    t.pass(minutes(4));
    assert_eq!(t.sent(), [""; 0]);
    t.now = t.now + minutes(1);
    t.restart();
    t.settle();
    assert_eq!(t.sent(), ["boss: a (1)"]);
    t.restart();
    t.pass(hours(1));
    assert_eq!(t.sent(), [""; 0]);
}

#[test]
fn a_silence_holds_an_escalation_back() {
    let mut t = scene();
    t.ends(1, "a", JobStatus::Failed);
    t.sent();
    let silence = json!({"duration": "1h", "reason": "r"});
    t.alerts.silence(t.now, "ann", serde_json::from_value(silence).unwrap()).unwrap();
    t.pass(minutes(59));
    assert_eq!(t.sent(), [""; 0]);
    t.pass(minutes(1));
    assert_eq!(t.sent(), ["boss: a (1)"]);
}

#[test]
fn a_rule_that_begins_to_escalate_escalates_its_open_alerts() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    add_channel(&mut t, "boss");
    t.ends(1, "a", JobStatus::Failed);
    t.pass(hours(1));
    t.sent();
    t.rule(json!({"when": {"job_failed": {}}, "escalate": {"after": "15m", "notify": ["boss"]}}));
    t.settle();
    assert_eq!(t.sent(), ["boss: a (1)"]);
    let refused = t.alerts.delete_channel(t.now, NS, "boss").unwrap_err();
    assert_eq!(refused.to_string(), "channel `boss` is in use by `r`");
}

#[test]
fn a_notification_that_escalates_says_so() {
    let mut t = scene();
    t.ends(1, "a", JobStatus::Failed);
    t.now = t.now + minutes(15);
    t.alerts.advance(t.now, &Facts::new());
    let due = t.alerts.due(t.now);
    let said: Vec<_> = due.iter().map(|due| (due.channel.as_str(), due.message.escalated_after)).collect();
    assert_eq!(said, [("boss", Some(minutes(15)))]);
}
