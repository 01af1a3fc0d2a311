//! Recurring silences: quiet hours and maintenance windows.

use super::*;

/// Creates a silence every night from 22:00 to 07:00 in Berlin. The scene begins on 2027-01-15 at 09:00 there.
fn quiet_nights(t: &mut Scene, more: Value) -> u64 {
    let mut new = json!({
        "duration": "9h", "reason": "night",
        "recurrence": {"expression": "0 22 * * *", "zone": "Europe/Berlin"},
    });
    new.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let new: NewSilence = serde_json::from_value(new).unwrap();
    model::validate::silence(&new, t.now).unwrap();
    let id = t.alerts.silence(t.now, "ann", new).unwrap().id;
    t.settle();
    id
}

fn is_active(t: &Scene) -> bool {
    t.alerts.silences(t.now, |_| true)[0].active
}

/// H3.
#[test]
fn quiet_hours_hold_notifications_back_until_their_end() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    quiet_nights(&mut t, json!({}));
    t.ends(1, "day", JobStatus::Failed);
    assert_eq!((t.sent(), is_active(&t)), (vec!["ops: day (1)".to_owned()], false));
    // 23:00
    t.pass(hours(14));
    t.ends(2, "night", JobStatus::Failed);
    t.ends(3, "short", JobStatus::Failed);
    t.pass(hours(1));
    t.ends(4, "short", JobStatus::Succeeded);
    t.pass(hours(6));
    assert_eq!((t.sent(), is_active(&t)), (vec![], true));
    // 07:00
    t.pass(hours(1));
    assert_eq!((t.sent(), is_active(&t)), (vec!["ops: night (1)".to_owned()], false));
    t.ends(5, "morning", JobStatus::Failed);
    t.pass(MINUTE);
    assert_eq!(t.sent(), ["ops: morning (1)"]);
    // The next night.
    t.pass(hours(16));
    t.ends(6, "later", JobStatus::Failed);
    assert_eq!((t.sent(), is_active(&t)), (vec![], true));
}

#[test]
fn quiet_hours_let_severe_alerts_pass() {
    let mut t = Scene::new(&[
        json!({"name": "bad", "when": {"job_failed": {}}, "match": {"name": "bad"}, "severity": "critical"}),
        json!({"name": "other", "when": {"job_failed": {}}, "match": {"name": "other"}}),
    ]);
    quiet_nights(&mut t, json!({"severity_max": "warning"}));
    t.pass(hours(14));
    t.ends(1, "bad", JobStatus::Failed);
    t.ends(2, "other", JobStatus::Failed);
    assert_eq!(t.sent(), ["ops: bad (1)"]);
    let shown = |t: &Scene| {
        let all = t.alerts.alerts(t.now, |_| true, &AlertFilter::default(), 9).items;
        all.into_iter().filter(|alert| alert.silenced).map(|alert| alert.subject.name).collect::<Vec<_>>()
    };
    assert_eq!(shown(&t), ["other"], "the alert says that it is silenced");
    t.pass(hours(8));
    assert_eq!((t.sent(), shown(&t).len()), (vec!["ops: other (1)".to_owned()], 0));
}

/// D6.
#[test]
fn quiet_hours_survive_a_restart_in_the_middle_of_a_night() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    quiet_nights(&mut t, json!({}));
    assert!(t.rows.keys().any(|(kind, _)| kind == "recurring_silence"), "an older server must ignore it");
    t.pass(hours(14));
    t.ends(1, "a", JobStatus::Failed);
    t.restart();
    assert!(is_active(&t));
    t.settle();
    t.pass(hours(7));
    assert_eq!(t.sent(), [""; 0]);
    t.pass(hours(1));
    assert_eq!(t.sent(), ["ops: a (1)"]);
}

#[test]
fn a_recurring_silence_that_begins_within_a_period_is_active_at_once() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.pass(hours(14));
    let id = quiet_nights(&mut t, json!({}));
    assert!(is_active(&t));
    t.ends(1, "a", JobStatus::Failed);
    assert_eq!(t.sent(), [""; 0]);
    t.alerts.end_silence(t.now, id).unwrap();
    t.settle();
    assert_eq!(t.sent(), ["ops: a (1)"]);
}

#[test]
fn a_maintenance_window_ends_at_its_end_also_within_a_period() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    // 2027-01-15T23:00:00Z is 00:00 in Berlin.
    quiet_nights(&mut t, json!({"ends_at": "2027-01-15T23:00:00Z"}));
    t.pass(hours(14));
    t.ends(1, "a", JobStatus::Failed);
    t.pass(minutes(59));
    assert_eq!(t.sent(), [""; 0]);
    t.pass(minutes(1));
    assert_eq!(t.sent(), ["ops: a (1)"]);
    assert_eq!(t.alerts.silences(t.now, |_| true), []);
    t.pass(hours(24));
    t.ends(2, "b", JobStatus::Failed);
    assert_eq!(t.sent(), ["ops: b (1)"]);
}
