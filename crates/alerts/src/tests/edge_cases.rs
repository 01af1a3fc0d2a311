//! Rare orders of events, and bounds of memory.

use super::*;

fn job_event(job: JobId, from: JobStatus, to: JobStatus, cause: Cause) -> EventKind {
    EventKind::Job { job, from: Some(from), to, cause, execution: None, worker: None, schedule: None }
}

fn live(id: JobId, phase: Phase, since: Timestamp) -> LiveJob {
    LiveJob { id, namespace: NS.into(), phase, since }
}

/// The timer of a job falls due between `needs_at` and `advance`, which reads the clock again.
#[test]
fn a_job_that_becomes_late_between_needs_at_and_advance_opens_its_alert() {
    let mut t = Scene::new(&[json!({"when": {"job_late": {"after": "5m"}}})]);
    let job = t.job(1, "a");
    t.to(job, JobStatus::Waiting);
    let before = at(300) - Duration::from_millis(1);
    assert!(t.alerts.needs_at(before).is_empty());
    t.alerts.advance(at(300), &Facts::new());
    t.now = at(300);
    t.settle();
    t.pass(HOUR);
    assert_eq!(t.sent(), ["ops: a (1)"]);
}

#[test]
fn timers_of_ended_jobs_are_disarmed() {
    let mut t = Scene::new(&[json!({"when": {"job_slow": {"after": "31d"}}})]);
    for id in 0..2_000 {
        let job = t.job(id, "a");
        t.started(job);
        t.to(job, JobStatus::Cancelled);
        t.now = t.now + Duration::from_millis(10);
    }
    t.settle();
    assert!(t.alerts.timers.len() < 20, "{} timers", t.alerts.timers.len());
}

#[test]
fn timers_of_a_rate_are_bounded() {
    let mut t = Scene::new(&[json!({"when": {"failure_rate": {"failures": 2, "within": "31d"}}})]);
    for id in 0..2_000 {
        t.ends(id, "a", JobStatus::Failed);
        t.now = t.now + Duration::from_millis(10);
    }
    assert!(t.alerts.timers.len() < 20, "{} timers", t.alerts.timers.len());
}

#[test]
fn timers_of_a_missing_success_are_bounded() {
    let mut t = Scene::new(&[json!({"when": {"no_success": {"within": "366d"}}, "match": {"name": "a"}})]);
    for id in 0..2_000 {
        t.ends(id, "a", JobStatus::Succeeded);
        t.now = t.now + Duration::from_millis(10);
    }
    assert!(t.alerts.timers.len() < 20, "{} timers", t.alerts.timers.len());
}

/// The purge is due before the end of the silence, and both fire in one late call.
#[test]
fn a_silence_that_ends_during_a_late_call_releases_its_alerts() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    let silence = NewSilence {
        namespace: NS.into(),
        rule: None,
        subject: None,
        starts_at: None,
        duration: Duration::from_secs(601),
        reason: "x".into(),
        severity_max: None,
        recurrence: None,
        ends_at: None,
    };
    t.alerts.silence(t.now, "ann", silence).unwrap();
    t.ends(1, "a", JobStatus::Failed);
    assert_eq!(t.sent(), [""; 0]);
    t.now = at(602);
    t.settle();
    t.pass(hours(3));
    assert_eq!(t.sent(), ["ops: a (1)"]);
}

#[test]
fn more_lost_workers_than_the_limit_do_not_flap() {
    let mut t = Scene::new(&[json!({"when": {"worker_lost": {}}})]);
    let workers = (0..1_002).map(|n| (format!("wrk_{n}"), format!("w{n:04}"), WorkerStatus::Lost)).collect();
    let sample = Sample { queues: vec![], workers };
    for _ in 0..30 {
        t.now = t.now + Duration::from_secs(10);
        t.alerts.sample(t.now, &sample);
        t.settle();
    }
    let filter = AlertFilter { statuses: [AlertStatus::Resolved].into(), ..AlertFilter::default() };
    assert_eq!(t.alerts.alerts(t.now, |_| true, &filter, 5_000).items.len(), 0);
}

#[test]
fn names_that_failed_once_long_ago_do_not_disable_streaks_of_others() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {"in_a_row": 2}}})]);
    for id in 0..10_000_u32 {
        let job = t.job(id.into(), &format!("import-{id}"));
        t.to(job, JobStatus::Failed);
    }
    t.settle();
    t.jobs.clear();
    t.pass(hours(24 * 60));
    t.ends(20_001, "payroll", JobStatus::Failed);
    t.ends(20_002, "payroll", JobStatus::Failed);
    assert_eq!(t.sent(), ["ops: payroll (2)"]);
}

#[test]
fn streaks_of_a_namespace_do_not_disable_no_success_of_another() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {"in_a_row": 2}}})]);
    for id in 0..10_000_u32 {
        let job = t.job(id.into(), &format!("import-{id}"));
        t.to(job, JobStatus::Failed);
    }
    t.settle();
    let rule =
        json!({"name": "other", "when": {"no_success": {"within": "1h"}}, "match": {"name": "backup"}});
    t.rule(rule);
    t.pass(hours(2));
    assert_eq!(t.sent(), ["ops: backup (1)"]);
}

#[test]
fn an_alert_whose_condition_is_still_met_cannot_be_resolved_by_hand() {
    let mut t = Scene::new(&[json!({"when": {"no_success": {"within": "1h"}}, "match": {"name": "backup"}})]);
    t.pass(hours(2));
    assert_eq!(t.sent(), ["ops: backup (1)"]);
    let number = t.alerts.alerts(t.now, |_| true, &AlertFilter::default(), 10).items[0].id;
    let refused = t.alerts.resolve_by_user(t.now, number, "ann", None).unwrap_err();
    assert_eq!(refused.to_string(), "cannot resolve alert 1: its condition is still met");
    t.ends(1, "backup", JobStatus::Succeeded);
    assert_eq!(t.sent(), ["ops: backup (1) resolved"]);
}

/// A checkpoint changes `updated_at` of a running job; then any rule is changed, and the live jobs are passed again.
#[test]
fn a_slow_alert_ends_with_its_job_after_the_live_jobs_were_passed_again() {
    let mut t = Scene::new(&[json!({"when": {"job_slow": {"after": "1h"}}})]);
    let job = t.job(1, "a");
    t.started(job);
    t.pass(hours(2));
    t.sent();
    t.alerts.watch_live(t.now, vec![live(job, Phase::Running, at(7_140))], true);
    t.settle();
    t.pass(minutes(2));
    t.to(job, JobStatus::Succeeded);
    t.settle();
    assert_eq!(t.sent(), ["ops: a (1) resolved"]);
}

#[test]
fn a_late_job_that_a_worker_refuses_stays_late() {
    let mut t = Scene::new(&[json!({"when": {"job_late": {"after": "5m"}}})]);
    let job = t.job(1, "a");
    t.to(job, JobStatus::Waiting);
    t.pass(minutes(10));
    assert_eq!(t.sent(), ["ops: a (1)"]);
    t.event(job_event(job, JobStatus::Waiting, JobStatus::Running, Cause::Placed));
    t.event(job_event(job, JobStatus::Running, JobStatus::Waiting, Cause::Refused));
    t.settle();
    assert_eq!(t.sent(), [""; 0], "the job never started");
}

#[test]
fn a_changed_waiting_job_stays_late() {
    let mut t = Scene::new(&[json!({"when": {"job_late": {"after": "5m"}}})]);
    let job = t.job(1, "a");
    t.to(job, JobStatus::Waiting);
    t.pass(minutes(4));
    for _ in 0..10 {
        t.event(job_event(job, JobStatus::Waiting, JobStatus::Running, Cause::Placed));
        t.event(job_event(job, JobStatus::Running, JobStatus::Waiting, Cause::Refused));
        t.pass(minutes(4));
    }
    assert_eq!(t.sent(), ["ops: a (1)"]);
}

/// `engine::jobs::unknown::resume_execution` emits no `Started`.
#[test]
fn an_execution_of_a_returned_worker_is_running_and_not_late() {
    let rules = [
        json!({"name": "late", "when": {"job_late": {"after": "5m"}}}),
        json!({"name": "slow", "when": {"job_slow": {"after": "1h"}}}),
    ];
    let mut t = Scene::new(&rules);
    let job = t.job(1, "a");
    t.to(job, JobStatus::Waiting);
    t.started(job);
    t.event(job_event(job, JobStatus::Running, JobStatus::Waiting, Cause::WorkerLost));
    t.pass(MINUTE);
    t.event(job_event(job, JobStatus::Waiting, JobStatus::Running, Cause::WorkerReturned));
    t.pass(minutes(10));
    assert_eq!(t.sent(), [""; 0], "the job runs");
    t.pass(hours(2));
    assert_eq!(t.sent(), ["ops: a (1)"], "the job is slow");
}

#[test]
fn a_channel_that_is_added_later_is_notified_of_a_state_that_lasts() {
    let rule = json!({"when": {"schedule_paused": {}}, "notify": []});
    let mut t = Scene::new(&[rule]);
    let schedule = ScheduleId::from_bits(7);
    t.event(EventKind::Schedule { schedule, name: "nightly".into(), what: ScheduleEvent::Paused });
    t.settle();
    t.pass(hours(10));
    t.rule(json!({"when": {"schedule_paused": {}}, "notify": ["ops"]}));
    t.settle();
    t.pass(hours(100));
    assert!(!t.sent().is_empty());
}

/// A user corrects the address while a delivery to the wrong one is in flight.
#[test]
fn a_notification_in_flight_to_a_replaced_target_is_sent_to_the_new_one() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    let job = t.job(1, "a");
    t.to(job, JobStatus::Failed);
    t.alerts.advance(t.now, &Facts::new());
    t.write();
    let due = t.alerts.due(t.now);
    let to = json!({"name": "ops", "to": {"slack": {"url": "******"}}});
    t.alerts.put_channel(t.now, "ann", serde_json::from_value(to).unwrap(), "new".into()).unwrap();
    let refused = Refused { reason: "404".into(), retry: Retry::Never };
    t.alerts.delivered(t.now, due[0].notification, Attempt::Refused(refused));
    t.settle();
    assert_eq!(t.sent(), ["ops: a (1)"]);
}

/// A rule that this server does not understand must not be evaluated in another way than its user wants.
#[test]
fn a_rule_with_a_field_of_a_newer_version_is_left_alone() {
    let body = r#"{"spec": {"name": "r", "when": {"job_failed": {"in_a_row": 1}}, "new_field": 1}, "version": 1,
        "updated_at": "2027-01-15T08:00:00Z", "updated_by": "ann", "new_field": 1}"#;
    let rows = |body: &str| [("rule".to_owned(), "default/r".to_owned(), body.to_owned())];
    let (mut alerts, unreadable) = Alerts::load(rows(body), at(0));
    assert!(unreadable[0].reason.starts_with("unknown field `new_field`"), "{unreadable:?}");
    assert_eq!(alerts.take(), []);
    let (alerts, unreadable) = Alerts::load(rows(&body.replace(", \"new_field\": 1},", "},")), at(0));
    assert_eq!((unreadable.len(), alerts.rules(|_| true).len()), (0, 1));
}

/// Fails a job of each of 1,000 other names, so that the counts of a rule have no place left.
fn fill_counts(t: &mut Scene) {
    for id in 0..1_000_u32 {
        let job = t.job((10 + id).into(), &format!("job-{id}"));
        t.to(job, JobStatus::Failed);
    }
}

/// Loads the rows as a server that cannot read one of them. Returns its body.
fn restart_without(t: &mut Scene, kind: &str, key: &str) -> String {
    let body = t.rows.insert((kind.to_owned(), key.to_owned()), "{}".to_owned()).unwrap();
    let rows = t.rows.iter().map(|((kind, key), body)| (kind.clone(), key.clone(), body.clone()));
    t.alerts = Alerts::load(rows, t.now).0;
    body
}

fn open(t: &Scene) -> usize {
    t.alerts.open.len()
}

fn put_channel(t: &mut Scene, name: &str) {
    let to = json!({"name": name, "to": {"slack": {"url": "******"}}});
    t.alerts.put_channel(t.now, "ann", serde_json::from_value(to).unwrap(), "sealed".into()).unwrap();
}

#[test]
fn what_began_and_ended_in_a_silence_is_not_told_after_it() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    hold(&mut t, HOUR);
    t.ends(1, "a", JobStatus::Failed);
    t.ends(2, "a", JobStatus::Succeeded);
    t.pass(hours(2));
    assert_eq!(t.sent(), [""; 0]);
}

/// Else a channel that heard of the first alert would never hear that the object is well again.
#[test]
fn the_end_of_an_alert_before_one_that_was_acknowledged_unheard_is_told() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.ends(1, "a", JobStatus::Failed);
    t.ends(2, "a", JobStatus::Succeeded);
    t.ends(3, "a", JobStatus::Failed);
    let newest = t.alerts.alerts(t.now, |_| true, &AlertFilter::default(), 1).items[0].id;
    t.alerts.acknowledge(newest, "ann", None).unwrap();
    t.pass(HOUR);
    t.ends(4, "a", JobStatus::Succeeded);
    t.pass(HOUR);
    assert_eq!(t.sent(), ["ops: a (1)", "ops: a (1) resolved"]);
}

#[test]
fn an_alert_about_a_rate_ends_also_if_the_rule_counts_many_names() {
    let mut t = Scene::new(&[json!({"when": {"failure_rate": {"failures": 2, "within": "1h"}}})]);
    t.ends(1, "a", JobStatus::Failed);
    t.ends(2, "a", JobStatus::Failed);
    assert_eq!(t.sent(), ["ops: a (2)"]);
    t.pass(MINUTE);
    fill_counts(&mut t);
    t.pass(hours(24));
    assert_eq!(t.sent(), ["ops: a (2) resolved"]);
}

#[test]
fn further_failures_of_an_open_alert_count_also_if_the_rule_counts_many_names() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {"in_a_row": 3}}, "repeat_every": "1h"})]);
    for id in 0..3 {
        t.ends(id, "a", JobStatus::Failed);
    }
    assert_eq!(t.sent(), ["ops: a (3)"]);
    t.pass(MINUTE);
    fill_counts(&mut t);
    t.pass(hours(2));
    t.ends(5_000, "a", JobStatus::Failed);
    assert_eq!(t.sent(), ["ops: a (4)"]);
}

/// Else an incident that was opened before the silence would stay open.
#[test]
fn a_rule_that_is_deleted_in_a_silence_tells_the_end_of_what_was_notified() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.ends(1, "a", JobStatus::Failed);
    t.sent();
    t.pass(MINUTE);
    hold(&mut t, HOUR);
    t.alerts.delete_rule(t.now, NS, "r").unwrap();
    t.pass(hours(2));
    assert_eq!(t.sent(), ["ops: a (1) resolved"]);
}

/// An older server leads for a moment, and cannot read the rule.
#[test]
fn a_rule_that_cannot_be_read_keeps_its_unsent_alerts() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.ends(1, "a", JobStatus::Failed);
    t.ends(2, "b", JobStatus::Failed);
    t.sent();
    let body = restart_without(&mut t, "rule", "default/r");
    t.pass(MINUTE);
    t.rows.insert(("rule".to_owned(), "default/r".to_owned()), body);
    t.restart();
    t.pass(MINUTE);
    assert_eq!(t.sent(), ["ops: b (1)"]);
}

#[test]
fn lost_workers_beyond_the_limit_stay_one_alert() {
    let mut t = Scene::new(&[json!({"when": {"worker_lost": {}}, "notify": []})]);
    let workers = (0..1_002).map(|n| (format!("wrk_{n}"), format!("w{n:04}"), WorkerStatus::Lost)).collect();
    let sample = Sample { queues: vec![], workers };
    for _ in 0..10 {
        t.pass(hours(24));
        t.alerts.sample(t.now, &sample);
        t.settle();
    }
    let filter = AlertFilter { statuses: [AlertStatus::Resolved].into(), ..AlertFilter::default() };
    assert_eq!(t.alerts.alerts(t.now, |_| true, &filter, 5_000).items.len(), 0);
}

/// Else it would last for a week, and no channel would hear of its end.
#[test]
fn the_alert_of_further_late_jobs_ends_after_a_restart() {
    let mut t = Scene::new(&[json!({"when": {"job_late": {"after": "5m"}}})]);
    for id in 0..1_001_u32 {
        let job = t.job(id.into(), &format!("job-{id:04}"));
        t.to(job, JobStatus::Waiting);
    }
    t.pass(minutes(6));
    t.restart();
    t.alerts.watch_live(t.now, vec![], true);
    t.pass(hours(2));
    assert_eq!(open(&t), 0);
}

#[test]
fn the_alert_of_further_paused_schedules_ends_when_none_is_paused() {
    let mut t = Scene::new(&[json!({"when": {"schedule_paused": {}}})]);
    let paused: Vec<_> =
        (0..1_001).map(|n| (NS.to_owned(), format!("s{n:04}"), format!("sch_{n}"))).collect();
    t.alerts.paused(t.now, &paused);
    t.settle();
    assert_eq!(open(&t), 1_001);
    t.alerts.paused(t.now, &[]);
    t.pass(HOUR);
    assert_eq!(open(&t), 0);
}

/// All servers can have restarted meanwhile: then no job is known to be late until the live jobs are passed again.
#[test]
fn a_late_job_that_no_live_job_holds_open_can_be_resolved_by_hand() {
    let mut t = Scene::new(&[json!({"when": {"job_late": {"after": "5m"}}})]);
    let job = t.job(1, "a");
    t.to(job, JobStatus::Waiting);
    t.pass(minutes(6));
    let number = t.alerts.alerts(t.now, |_| true, &AlertFilter::default(), 1).items[0].id;
    let refused = t.alerts.resolve_by_user(t.now, number, "ann", None);
    assert_eq!(refused, Err(Refusal::Lasting { alert: number }));
    t.restart();
    assert_eq!(t.alerts.resolve_by_user(t.now, number, "ann", None), Ok(()));
}

#[test]
fn a_channel_that_was_notified_of_an_alert_hears_of_its_end() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    put_channel(&mut t, "new");
    t.ends(1, "a", JobStatus::Failed);
    t.rule(json!({"when": {"job_failed": {}}, "notify": ["new"]}));
    t.pass(MINUTE);
    t.ends(2, "a", JobStatus::Succeeded);
    t.restart();
    t.pass(MINUTE);
    assert_eq!(t.sent(), ["ops: a (1)", "ops: a (1) resolved"]);
}

/// The service then loads the rows again.
#[test]
fn a_clock_that_was_set_back_does_not_hold_notifications_back() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.now = at(86_400);
    t.ends(1, "a", JobStatus::Failed);
    t.sent();
    t.now = at(0);
    t.restart();
    t.ends(2, "b", JobStatus::Failed);
    t.pass(minutes(2));
    assert_eq!(t.sent(), ["ops: b (1)"]);
}

#[test]
fn an_alert_is_not_taken_for_notified_while_its_rule_has_no_channel() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.ends(1, "a", JobStatus::Failed);
    t.ends(2, "b", JobStatus::Failed);
    t.sent();
    t.rule(json!({"when": {"job_failed": {}}, "notify": []}));
    t.pass(minutes(2));
    t.rule(json!({"when": {"job_failed": {}}}));
    t.pass(minutes(2));
    t.ends(3, "b", JobStatus::Failed);
    t.pass(minutes(2));
    assert_eq!(t.sent(), ["ops: b (2)"]);
}

/// A service is down for long, and its channel is deleted and created again while a delivery is in flight.
#[test]
fn a_channel_that_is_created_again_gets_one_message_at_a_time() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    let job = t.job(1, "a");
    t.to(job, JobStatus::Failed);
    t.alerts.advance(t.now, &Facts::new());
    t.write();
    let due = t.alerts.due(t.now);
    assert_eq!(due.len(), 1);
    t.rule(json!({"when": {"job_failed": {}}, "notify": []}));
    t.alerts.delete_channel(t.now, NS, "ops").unwrap();
    put_channel(&mut t, "ops");
    t.rule(json!({"when": {"job_failed": {}}}));
    t.now = t.now + MINUTE;
    t.settle();
    t.ends(2, "b", JobStatus::Failed);
    t.alerts.delivered(t.now, due[0].notification, Attempt::Delivered);
    t.pass(MINUTE);
    t.ends(3, "c", JobStatus::Failed);
    t.pass(MINUTE);
    assert_eq!(t.sent(), ["ops: b (1)", "ops: c (1)"]);
}

#[test]
fn notifications_to_a_channel_that_cannot_be_read_fail_after_a_day() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.accepts = false;
    t.ends(1, "a", JobStatus::Failed);
    restart_without(&mut t, "channel", "default/ops");
    t.pass(hours(48));
    let list = t.alerts.notifications(|_| true, &NotificationFilter::default(), 10).items;
    assert_eq!(list[0].status, NotificationStatus::Failed);
}

/// Else the incident of the rule would stay open: channels do not hear of the end of what they never heard of.
#[test]
fn an_incident_ends_with_the_last_alert_that_was_notified() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.ends(1, "a", JobStatus::Failed);
    let silence = NewSilence {
        namespace: NS.into(),
        rule: None,
        subject: Some("b".into()),
        starts_at: None,
        duration: HOUR,
        reason: "maintenance".into(),
        severity_max: None,
        recurrence: None,
        ends_at: None,
    };
    t.alerts.silence(t.now, "ann", silence).unwrap();
    t.ends(2, "b", JobStatus::Failed);
    t.pass(MINUTE);
    t.ends(3, "a", JobStatus::Succeeded);
    t.pass(MINUTE);
    t.ends(4, "b", JobStatus::Succeeded);
    t.restart();
    t.pass(hours(2));
    let newest = t.alerts.notifications.values().last().unwrap();
    assert_eq!((newest.firing, newest.open), (0, 0));
}

/// Else its incident would stay open: it does not hear of the end of the other alert.
#[test]
fn an_incident_at_a_new_channel_ends_with_the_last_alert_that_it_heard_of() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    put_channel(&mut t, "new");
    t.ends(1, "a", JobStatus::Failed);
    t.rule(json!({"when": {"job_failed": {}}, "notify": ["ops", "new"]}));
    t.pass(MINUTE);
    t.ends(2, "b", JobStatus::Failed);
    t.pass(MINUTE);
    t.ends(3, "b", JobStatus::Succeeded);
    t.pass(MINUTE);
    let open =
        |channel: &str| t.alerts.notifications.values().rfind(|it| it.channel == channel).unwrap().open;
    assert_eq!((open("ops"), open("new")), (1, 0));
}

#[test]
fn a_success_of_an_earlier_time_does_not_end_an_alert() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.now = at(100);
    t.ends(1, "a", JobStatus::Failed);
    t.now = at(50);
    t.ends(2, "a", JobStatus::Succeeded);
    assert_eq!(open(&t), 1);
    t.now = at(101);
    t.ends(3, "a", JobStatus::Succeeded);
    assert_eq!(open(&t), 0);
}

#[test]
fn a_new_rule_of_a_deleted_name_notifies_at_once() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.ends(1, "a", JobStatus::Failed);
    t.alerts.delete_rule(t.now, NS, "r").unwrap();
    t.settle();
    t.sent();
    t.now = t.now + Duration::from_secs(1);
    t.rule(json!({"when": {"job_failed": {}}}));
    t.ends(2, "b", JobStatus::Failed);
    assert_eq!(t.sent(), ["ops: b (1)"]);
}
