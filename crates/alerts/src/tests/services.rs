//! Degraded services and failed rollouts.

use model::ServiceId;
use model::record::ServiceEvent;
use model::service::RolloutStatus;

use super::*;

fn web() -> ServiceId {
    ServiceId::from_bits(7)
}

fn available(t: &mut Scene, available: u32) {
    t.event(EventKind::Availability { service: web(), name: Arc::from("web"), available, replicas: 3 });
}

fn rollout(t: &mut Scene, revision: u64, status: RolloutStatus) {
    t.event(EventKind::Rollout { service: web(), name: Arc::from("web"), revision, status, paused: false });
    t.settle();
}

fn changed(t: &mut Scene, what: ServiceEvent) {
    t.event(EventKind::Service { service: web(), name: Arc::from("web"), what });
}

/// Lets time pass, with a sample of queues and workers every ten seconds, as on a server.
fn pass(t: &mut Scene, duration: Duration) {
    let end = t.now + duration;
    while t.now < end {
        t.pass(Duration::from_secs(10));
        if t.alerts.wants_samples() {
            t.alerts.sample(t.now, &Sample::default());
        }
        t.settle();
    }
}

fn degraded_for(longer_than: &str) -> Scene {
    Scene::new(&[json!({"when": {"service_degraded": {"longer_than": longer_than}}})])
}

#[test]
fn a_service_that_lacks_replicas_for_long_alerts_until_it_has_all() {
    let mut t = degraded_for("5m");
    available(&mut t, 3);
    available(&mut t, 2);
    pass(&mut t, minutes(4));
    available(&mut t, 1);
    assert_eq!(t.sent(), [""; 0]);
    pass(&mut t, minutes(2));
    assert_eq!(t.sent(), ["ops: web (1)"], "the time counts from the first lack");
    available(&mut t, 2);
    pass(&mut t, minutes(2));
    assert_eq!(t.sent(), [""; 0]);
    available(&mut t, 3);
    pass(&mut t, minutes(2));
    assert_eq!(t.sent(), ["ops: web (1) resolved"]);
}

#[test]
fn a_short_lack_of_replicas_alerts_nobody() {
    let mut t = degraded_for("5m");
    for _ in 0..10 {
        available(&mut t, 2);
        pass(&mut t, minutes(4));
        available(&mut t, 3);
        pass(&mut t, minutes(1));
    }
    assert_eq!(t.sent(), [""; 0]);
}

#[test]
fn the_alert_of_a_degraded_service_survives_a_takeover() {
    let mut t = degraded_for("5m");
    available(&mut t, 0);
    pass(&mut t, minutes(6));
    assert_eq!(t.sent(), ["ops: web (1)"]);
    t.restart();
    assert_eq!(t.alerts.namespaces_of_degraded(), [NS]);
    t.alerts.degraded(t.now, vec![(NS.to_owned(), "web".to_owned(), web())]);
    pass(&mut t, minutes(1));
    assert_eq!(t.sent(), [""; 0], "the alert stays");
    // It recovered while no server watched.
    t.restart();
    t.alerts.degraded(t.now, vec![]);
    pass(&mut t, minutes(2));
    assert_eq!(t.sent(), ["ops: web (1) resolved"]);
}

#[test]
fn a_deleted_service_is_not_degraded() {
    let mut t = degraded_for("1m");
    available(&mut t, 0);
    changed(&mut t, ServiceEvent::Deleting);
    pass(&mut t, minutes(5));
    assert_eq!(t.sent(), [""; 0]);
}

#[test]
fn a_failed_rollout_alerts_until_one_completes() {
    let mut t = Scene::new(&[
        json!({"when": {"rollout_failed": {}}}),
        json!({"name": "other", "when": {"rollout_failed": {}}, "match": {"name": "db"}}),
    ]);
    rollout(&mut t, 2, RolloutStatus::Progressing);
    assert_eq!(t.sent(), [""; 0]);
    rollout(&mut t, 2, RolloutStatus::Failed);
    assert_eq!(t.sent(), ["ops: web (1)"]);
    pass(&mut t, minutes(5));
    rollout(&mut t, 3, RolloutStatus::Progressing);
    assert_eq!(t.sent(), [""; 0]);
    rollout(&mut t, 3, RolloutStatus::Completed);
    t.pass(minutes(2));
    assert_eq!(t.sent(), ["ops: web (1) resolved"]);
}
