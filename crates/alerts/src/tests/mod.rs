//! Tests of the rules on virtual time.
//!
//! - `edge_cases`: rare orders of events, and bounds of memory.
//! - `escalation`: escalation of alerts.
//! - `monitors`: monitors and their pings.
//! - `properties`: invariants for any order of events, restarts and failed deliveries.
//! - `silences`: quiet hours and maintenance windows.
//! - `services`: degraded services and failed rollouts.

mod bounds;
mod edge_cases;
mod escalation;
mod monitors;
mod properties;
mod services;
mod silences;

use std::sync::Arc;

use model::alert::AlertRuleSpec;
use model::api::{AlertStatus, NewSilence, NotificationStatus};
use model::firing::FiringOutcome;
use model::record::{Event, EventKind, ScheduleEvent};
use model::worker::WorkerStatus;
use model::{Cause, Duration, ExecutionId, JobId, JobStatus, RunId, ScheduleId, Timestamp, WorkerId};
use serde_json::{Value, json};

use crate::target::{Refused, Retry};
use crate::*;

const NS: &str = "default";

/// A cluster that is only a feed, rows and channels.
struct Scene {
    alerts: Alerts,
    rows: std::collections::BTreeMap<(String, String), String>,
    now: Timestamp,
    position: u64,
    jobs: Facts,
    /// Delivered messages, as `CHANNEL: SUBJECT (COUNT) [resolved]`.
    delivered: Vec<String>,
    /// Whether channels accept messages.
    accepts: bool,
}

fn at(secs: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000) + Duration::from_secs(secs)
}

impl Scene {
    fn new(rules: &[Value]) -> Self {
        let mut scene = Self {
            alerts: Alerts::load([], at(0)).0,
            rows: std::collections::BTreeMap::new(),
            now: at(0),
            position: 0,
            jobs: Facts::new(),
            delivered: Vec::new(),
            accepts: true,
        };
        scene.alerts.begin_at(0);
        let to = json!({"name": "ops", "to": {"slack": {"url": "******"}}});
        scene.alerts.put_channel(at(0), "ann", serde_json::from_value(to).unwrap(), "sealed".into()).unwrap();
        for rule in rules {
            scene.rule(rule.clone());
        }
        scene.settle();
        scene
    }

    fn rule(&mut self, mut rule: Value) {
        let fields = rule.as_object_mut().unwrap();
        fields.entry("name").or_insert(json!("r"));
        fields.entry("notify").or_insert(json!(["ops"]));
        let spec: AlertRuleSpec = serde_json::from_value(rule).unwrap();
        model::validate::alert_rule(&spec).unwrap();
        self.alerts.put_rule(self.now, "ann", spec).unwrap();
    }

    fn job(&mut self, id: u128, name: &str) -> JobId {
        let job = JobId::from_bits(id);
        let facts = JobFacts {
            name: name.to_owned(),
            queue: "default".to_owned(),
            error: Some("exit code 1".to_owned()),
            ..JobFacts::default()
        };
        self.jobs.insert(job, facts);
        job
    }

    fn event(&mut self, kind: EventKind) {
        self.position += 1;
        let event = Event { at: self.now, namespace: Some(Arc::from(NS)), kind };
        let needed: Facts = self
            .alerts
            .needs(std::iter::once(&event))
            .into_iter()
            .filter_map(|job| Some((job, self.jobs.get(&job)?.clone())))
            .collect();
        self.alerts.observe(self.now, std::iter::once((self.position, &event)), &needed);
    }

    fn to(&mut self, job: JobId, to: JobStatus) {
        let kind = EventKind::Job {
            job,
            from: Some(JobStatus::Running),
            to,
            cause: Cause::Submitted,
            execution: None,
            worker: None,
            schedule: None,
        };
        self.event(kind);
    }

    /// Ends a job of a name, and lets everything else happen.
    fn ends(&mut self, id: u128, name: &str, to: JobStatus) {
        let job = self.job(id, name);
        self.to(job, to);
        self.settle();
    }

    fn started(&mut self, job: JobId) {
        let (execution, worker) = (ExecutionId::from_bits(1), WorkerId::from_bits(1));
        self.event(EventKind::Started { job, execution, worker });
    }

    /// Fires what is due, writes the rows, and delivers.
    fn settle(&mut self) {
        loop {
            let needed: Facts = self
                .alerts
                .needs_at(self.now)
                .into_iter()
                .filter_map(|job| Some((job, self.jobs.get(&job)?.clone())))
                .collect();
            self.alerts.advance(self.now, &needed);
            self.write();
            let due = self.alerts.due(self.now);
            if due.is_empty() {
                return;
            }
            for due in due {
                let attempt = if self.accepts {
                    let items = due.message.items.iter().map(|item| {
                        let resolved = if item.resolved { " resolved" } else { "" };
                        format!("{} ({}){resolved}", item.subject, item.count)
                    });
                    let shown = items.collect::<Vec<_>>().join(", ");
                    let more = due.message.total - due.message.items.len() as u64;
                    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
                    self.delivered.push(format!("{}: {shown}{more}", due.channel));
                    Attempt::Delivered
                } else {
                    Attempt::Refused(Refused { reason: "no answer".into(), retry: Retry::Later })
                };
                self.alerts.delivered(self.now, due.notification, attempt);
            }
        }
    }

    fn write(&mut self) {
        for row in self.alerts.take() {
            let key = (row.kind.to_owned(), row.key);
            match row.body {
                Some(body) => drop(self.rows.insert(key, body)),
                None => drop(self.rows.remove(&key)),
            }
        }
    }

    /// Loads the state from its rows, as another server does.
    fn restart(&mut self) {
        let rows = self.rows.iter().map(|((kind, key), body)| (kind.clone(), key.clone(), body.clone()));
        let (alerts, unreadable) = Alerts::load(rows, self.now);
        assert_eq!(unreadable, []);
        self.alerts = alerts;
    }

    /// Lets time pass, with all timers on the way.
    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(next) = self.alerts.wakeup().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    fn sent(&mut self) -> Vec<String> {
        std::mem::take(&mut self.delivered)
    }

    fn statuses(&self) -> Vec<(String, AlertStatus)> {
        let all = self.alerts.alerts(self.now, |_| true, &AlertFilter::default(), 100).items;
        all.into_iter().map(|alert| (alert.subject.name, alert.status)).collect()
    }
}

const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_secs(60);

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

fn hours(count: u64) -> Duration {
    Duration::from_hours(count)
}

/// H3.
#[test]
fn a_failed_job_is_notified_at_once_and_resolved_by_a_success_of_the_same_name() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.ends(1, "payroll", JobStatus::Failed);
    assert_eq!(t.sent(), ["ops: payroll (1)"]);
    t.pass(MINUTE);
    t.ends(2, "other", JobStatus::Succeeded);
    assert_eq!(t.sent(), [""; 0]);
    t.ends(3, "payroll", JobStatus::Succeeded);
    assert_eq!(t.sent(), ["ops: payroll (1) resolved"]);
    assert_eq!(t.statuses(), [("payroll".to_owned(), AlertStatus::Resolved)]);
}

#[test]
fn cancelled_jobs_and_other_namespaces_open_no_alert() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}, "namespace": "other", "notify": []})]);
    t.ends(1, "payroll", JobStatus::Failed);
    t.rule(json!({"when": {"job_failed": {}}}));
    t.ends(2, "payroll", JobStatus::Cancelled);
    assert_eq!((t.sent().len(), t.statuses().len()), (0, 0));
}

#[test]
fn a_rule_selects_by_name_owner_queue_and_labels() {
    let rule = json!({"when": {"job_failed": {}}, "match": {"name": "pay*", "owner": "ann", "labels": {"team": "hr"}}});
    let mut t = Scene::new(&[rule]);
    let labels: std::collections::BTreeMap<_, _> = [("team".to_owned(), "hr".to_owned())].into();
    for (id, name, owner, labelled) in [
        (1, "payroll", "ann", false),
        (2, "payroll", "bob", true),
        (3, "other", "ann", true),
        (4, "payday", "ann", true),
    ] {
        let job = t.job(id, name);
        let facts = t.jobs.get_mut(&job).unwrap();
        facts.owner = Some(owner.to_owned());
        facts.labels = if labelled { labels.clone() } else { Default::default() };
        t.to(job, JobStatus::Failed);
        t.settle();
    }
    assert_eq!(t.sent(), ["ops: payday (1)"]);
}

#[test]
fn failures_in_a_row_are_counted_across_restarts_and_ended_by_a_success() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {"in_a_row": 3}}})]);
    t.ends(1, "a", JobStatus::Failed);
    t.ends(2, "a", JobStatus::Failed);
    t.ends(3, "a", JobStatus::Succeeded);
    t.ends(4, "a", JobStatus::Failed);
    t.restart();
    t.ends(5, "a", JobStatus::Failed);
    assert_eq!(t.sent(), [""; 0]);
    t.restart();
    t.ends(6, "a", JobStatus::Expired);
    assert_eq!(t.sent(), ["ops: a (3)"]);
}

#[test]
fn a_rate_of_failures_opens_and_is_resolved_when_its_period_is_over() {
    let mut t = Scene::new(&[json!({"when": {"failure_rate": {"failures": 3, "within": "10m"}}})]);
    for id in 1..=2 {
        t.ends(id, "a", JobStatus::Failed);
        t.pass(minutes(6));
    }
    t.ends(3, "a", JobStatus::Failed);
    assert_eq!(t.sent(), [""; 0]);
    t.ends(4, "a", JobStatus::Failed);
    assert_eq!(t.sent(), ["ops: a (3)"]);
    t.ends(5, "a", JobStatus::Succeeded);
    assert_eq!(t.statuses(), [("a".to_owned(), AlertStatus::Firing)]);
    t.pass(minutes(11));
    assert_eq!(t.sent(), ["ops: a (3) resolved"]);
}

#[test]
fn many_failures_at_once_make_few_messages_that_name_their_number() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    for id in 0..100_000 {
        let job = t.job(id, &format!("job-{}", id % 5_000));
        t.to(job, JobStatus::Failed);
        if id % 1_000 == 0 {
            t.settle();
        }
    }
    t.pass(HOUR);
    let sent = t.sent();
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert_eq!(sent[0], "ops: job-0 (1)");
    assert!(sent[1].ends_with(", and 980 more"), "{}", sent[1]);
    let open = t.alerts.alerts(t.now, |_| true, &AlertFilter::default(), 10).open;
    assert_eq!(open, 1_001);
}

#[test]
fn a_failure_is_notified_again_only_after_the_interval_of_its_rule() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}, "repeat_every": "1h"})]);
    for id in 0..=12 {
        t.ends(id, "a", JobStatus::Failed);
        t.pass(minutes(10));
    }
    assert_eq!(t.sent(), ["ops: a (1)", "ops: a (7)", "ops: a (13)"]);
    // Nothing is repeated without a further failure.
    t.pass(hours(10));
    assert_eq!(t.sent(), [""; 0]);
}

#[test]
fn an_acknowledged_alert_is_not_repeated_and_still_resolved() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}, "repeat_every": "1h"})]);
    t.ends(1, "a", JobStatus::Failed);
    t.sent();
    let number = t.alerts.alerts(t.now, |_| true, &AlertFilter::default(), 1).items[0].id;
    t.alerts.acknowledge(number, "ann", Some("on it".into())).unwrap();
    t.pass(hours(2));
    t.ends(2, "a", JobStatus::Failed);
    assert_eq!(t.sent(), [""; 0]);
    t.ends(3, "a", JobStatus::Succeeded);
    assert_eq!(t.sent(), ["ops: a (2) resolved"]);
    let refused = t.alerts.acknowledge(number, "ann", None).unwrap_err();
    assert_eq!(refused, Refusal::Resolved { alert: number });
}

#[test]
fn a_resolved_alert_opens_again_as_a_new_one() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.ends(1, "a", JobStatus::Failed);
    t.pass(MINUTE);
    let number = t.alerts.alerts(t.now, |_| true, &AlertFilter::default(), 1).items[0].id;
    t.alerts.resolve_by_user(t.now, number, "ann", None).unwrap();
    t.pass(MINUTE);
    t.ends(2, "a", JobStatus::Failed);
    assert_eq!(t.sent(), ["ops: a (1)", "ops: a (1) resolved", "ops: a (1)"]);
    assert_eq!(t.statuses().len(), 2);
}

#[test]
fn a_short_failure_within_the_interval_of_messages_is_still_told() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.ends(1, "a", JobStatus::Failed);
    t.ends(2, "b", JobStatus::Failed);
    t.ends(3, "b", JobStatus::Succeeded);
    t.pass(MINUTE);
    assert_eq!(t.sent(), ["ops: a (1)", "ops: b (1) resolved"]);
}

#[test]
fn a_silence_holds_notifications_back_until_it_ends() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    let silence = |subject: &str| NewSilence {
        namespace: NS.into(),
        rule: None,
        subject: Some(subject.into()),
        starts_at: None,
        duration: HOUR,
        reason: "maintenance".into(),
        severity_max: None,
        recurrence: None,
        ends_at: None,
    };
    t.alerts.silence(t.now, "ann", silence("a*")).unwrap();
    t.ends(1, "a1", JobStatus::Failed);
    t.ends(2, "a2", JobStatus::Failed);
    t.ends(3, "b", JobStatus::Failed);
    assert_eq!(t.sent(), ["ops: b (1)"]);
    t.ends(4, "a1", JobStatus::Succeeded);
    t.restart();
    t.pass(minutes(30));
    assert_eq!(t.sent(), [""; 0]);
    t.pass(HOUR);
    assert_eq!(t.sent(), ["ops: a2 (1)"]);
}

/// Else an incident that was opened before the silence would stay open.
#[test]
fn the_end_of_an_alert_that_was_notified_before_a_silence_is_told_after_it() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.ends(1, "a", JobStatus::Failed);
    t.sent();
    let (namespace, reason) = (NS.into(), "maintenance".into());
    let silence = NewSilence {
        namespace,
        rule: None,
        subject: None,
        starts_at: None,
        duration: HOUR,
        reason,
        severity_max: None,
        recurrence: None,
        ends_at: None,
    };
    t.alerts.silence(t.now, "ann", silence).unwrap();
    t.ends(2, "a", JobStatus::Succeeded);
    t.pass(minutes(30));
    assert_eq!(t.sent(), [""; 0]);
    t.pass(HOUR);
    assert_eq!(t.sent(), ["ops: a (1) resolved"]);
}

#[test]
fn a_late_job_opens_an_alert_until_it_starts() {
    let mut t = Scene::new(&[json!({"when": {"job_late": {"after": "5m"}}})]);
    let (first, second) = (t.job(1, "a"), t.job(2, "a"));
    t.to(first, JobStatus::Waiting);
    t.pass(minutes(4));
    t.started(first);
    t.to(second, JobStatus::Waiting);
    t.pass(minutes(4));
    assert_eq!(t.sent(), [""; 0]);
    t.pass(MINUTE);
    assert_eq!(t.sent(), ["ops: a (1)"]);
    t.pass(MINUTE);
    t.started(second);
    t.settle();
    assert_eq!(t.sent(), ["ops: a (1) resolved"]);
}

#[test]
fn a_slow_execution_opens_an_alert_until_it_ends_and_its_retry_is_watched_anew() {
    let mut t = Scene::new(&[json!({"when": {"job_slow": {"after": "1h"}}, "repeat_every": "2h"})]);
    let job = t.job(1, "a");
    t.started(job);
    t.pass(minutes(50));
    t.to(job, JobStatus::Retrying);
    t.started(job);
    t.pass(minutes(50));
    assert_eq!(t.sent(), [""; 0]);
    t.pass(minutes(10));
    assert_eq!(t.sent(), ["ops: a (1)"]);
    t.pass(hours(5));
    assert_eq!(t.sent(), ["ops: a (1)", "ops: a (1)"]);
    t.to(job, JobStatus::Succeeded);
    t.settle();
    assert_eq!(t.sent(), ["ops: a (1) resolved"]);
}

/// D5.
#[test]
fn late_and_slow_jobs_are_watched_again_after_a_restart() {
    let rules = [
        json!({"name": "late", "when": {"job_late": {"after": "5m"}}}),
        json!({"name": "slow", "when": {"job_slow": {"after": "5m"}}}),
    ];
    let mut t = Scene::new(&rules);
    let (late, slow, ended) = (t.job(1, "late"), t.job(2, "slow"), t.job(3, "ended"));
    for job in [late, slow, ended] {
        t.to(job, JobStatus::Waiting);
    }
    t.pass(minutes(6));
    assert_eq!(t.sent(), ["ops: ended (1), slow (1), late (1)"]);
    let since = t.now;
    t.started(slow);
    t.settle();
    t.restart();
    let live = |id, phase, since| LiveJob { id, namespace: NS.into(), phase, since };
    let jobs = vec![live(late, Phase::Waiting, at(0)), live(slow, Phase::Running, since)];
    t.alerts.watch_live(t.now, jobs, true);
    t.settle();
    t.pass(MINUTE);
    assert_eq!(t.sent(), ["ops: slow (1) resolved", "ops: ended (1) resolved"]);
    t.pass(minutes(4));
    assert_eq!(t.sent(), ["ops: slow (1)"]);
}

#[test]
fn a_new_rule_finds_jobs_that_are_already_late() {
    let mut t = Scene::new(&[json!({"name": "first", "when": {"job_late": {"after": "1h"}}})]);
    let job = t.job(1, "a");
    t.to(job, JobStatus::Waiting);
    t.pass(minutes(10));
    t.rule(json!({"name": "second", "when": {"job_late": {"after": "5m"}}}));
    let live = LiveJob { id: job, namespace: NS.into(), phase: Phase::Waiting, since: at(0) };
    t.alerts.watch_live(t.now, vec![live], true);
    t.settle();
    assert_eq!(t.sent(), ["ops: a (1)"]);
}

#[test]
fn a_job_that_does_not_succeed_in_time_opens_an_alert() {
    let rule =
        json!({"when": {"no_success": {"within": "1d"}}, "match": {"name": "backup"}, "repeat_every": "12h"});
    let mut t = Scene::new(&[rule]);
    t.pass(hours(23));
    t.ends(1, "backup", JobStatus::Succeeded);
    t.restart();
    t.pass(hours(23));
    t.ends(2, "backup", JobStatus::Failed);
    t.ends(3, "other", JobStatus::Succeeded);
    assert_eq!(t.sent(), [""; 0]);
    t.pass(hours(2));
    assert_eq!(t.sent(), ["ops: backup (1)"]);
    t.restart();
    t.pass(hours(13));
    assert_eq!(t.sent(), ["ops: backup (1)"]);
    t.ends(4, "backup", JobStatus::Succeeded);
    assert_eq!(t.sent(), ["ops: backup (1) resolved"]);
    t.pass(hours(25));
    assert_eq!(t.sent(), ["ops: backup (1)"]);
}

#[test]
fn a_failed_run_is_notified_and_resolved_by_the_next_success_of_the_workflow() {
    let mut t = Scene::new(&[json!({"when": {"run_failed": {}}})]);
    let run = |t: &mut Scene, id, to| {
        let (from, cause) = (Some(model::RunStatus::Running), model::run::RunCause::StepFailed);
        t.event(EventKind::Run {
            run: RunId::from_bits(id),
            workflow: "etl".into(),
            from,
            to,
            cause,
            schedule: None,
        });
        t.settle();
    };
    run(&mut t, 1, model::RunStatus::Failed);
    t.pass(MINUTE);
    run(&mut t, 2, model::RunStatus::Succeeded);
    assert_eq!(t.sent(), ["ops: etl (1)", "ops: etl (1) resolved"]);
}

#[test]
fn schedules_alert_when_they_are_paused_or_skip_times() {
    let rules = [
        json!({"name": "paused", "when": {"schedule_paused": {}}}),
        json!({"name": "skipped", "when": {"firing_skipped": {}}}),
    ];
    let mut t = Scene::new(&rules);
    let (schedule, name): (_, Arc<str>) = (ScheduleId::from_bits(7), "nightly".into());
    let skip = |t: &mut Scene, outcome| {
        let (name, scheduled_for) = (Arc::clone(&name), t.now);
        t.event(EventKind::Skipped { schedule, name, scheduled_for, outcome });
    };
    let change =
        |t: &mut Scene, what| t.event(EventKind::Schedule { schedule, name: "nightly".into(), what });
    skip(&mut t, FiringOutcome::SkippedPause);
    t.settle();
    assert_eq!(t.sent(), [""; 0]);
    skip(&mut t, FiringOutcome::SkippedOverlap);
    change(&mut t, ScheduleEvent::Paused);
    t.settle();
    assert_eq!(t.sent(), ["ops: nightly (1)", "ops: nightly (1)"]);
    t.pass(MINUTE);
    change(&mut t, ScheduleEvent::Resumed);
    let kind = EventKind::Job {
        job: JobId::from_bits(9),
        from: None,
        to: JobStatus::Ready,
        cause: Cause::Submitted,
        execution: None,
        worker: None,
        schedule: Some(schedule),
    };
    t.event(kind);
    t.settle();
    assert_eq!(t.sent(), ["ops: nightly (1) resolved", "ops: nightly (1) resolved"]);
}

#[test]
fn queues_and_workers_alert_while_they_are_in_trouble() {
    let rules = [
        json!({"name": "delay", "when": {"queue_delay": {"longer_than": "5m"}}}),
        json!({"name": "lost", "when": {"worker_lost": {}}, "match": {"name": "w*"}}),
    ];
    let mut t = Scene::new(&rules);
    let sample = |oldest, status| Sample {
        queues: vec![("mail".into(), oldest)],
        workers: vec![
            ("wrk_1".into(), "w1".into(), status),
            ("wrk_2".into(), "x".into(), WorkerStatus::Lost),
        ],
    };
    let start = t.now;
    for _ in 0..40 {
        t.pass(Duration::from_secs(10));
        t.alerts.sample(t.now, &sample(start, WorkerStatus::Lost));
        t.settle();
    }
    assert_eq!(t.sent(), ["ops: w1 (1)", "ops: mail (1)"]);
    // Another server has taken over, and the worker may still connect.
    t.alerts.sample(t.now, &sample(start, WorkerStatus::Expected));
    t.pass(MINUTE);
    assert_eq!(t.sent(), [""; 0]);
    t.alerts.sample(t.now, &sample(t.now, WorkerStatus::Ready));
    t.settle();
    t.pass(MINUTE);
    assert_eq!(t.sent(), ["ops: mail (1) resolved", "ops: w1 (1) resolved"]);
}

#[test]
fn a_changed_rule_resolves_alerts_of_another_condition_and_keeps_those_of_the_same() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.ends(1, "a", JobStatus::Failed);
    t.rule(json!({"when": {"job_failed": {}}, "severity": "critical"}));
    assert_eq!(t.statuses()[0].1, AlertStatus::Firing);
    t.rule(json!({"when": {"job_failed": {"in_a_row": 2}}}));
    assert_eq!(t.statuses()[0].1, AlertStatus::Resolved);
    t.alerts.delete_rule(t.now, NS, "r").unwrap();
    t.ends(2, "a", JobStatus::Failed);
    assert_eq!(t.statuses().len(), 1);
    t.settle();
    let refused = t.alerts.delete_rule(t.now, NS, "r").unwrap_err();
    assert_eq!(refused.to_string(), "alert rule `r` does not exist");
}

#[test]
fn a_refused_delivery_is_repeated_for_a_day_and_then_fails() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.accepts = false;
    t.ends(1, "a", JobStatus::Failed);
    t.pass(HOUR);
    t.restart();
    t.pass(HOUR);
    let list = |t: &Scene| t.alerts.notifications(|_| true, &NotificationFilter::default(), 10).items;
    let waiting = list(&t);
    assert_eq!(
        (waiting[0].status, waiting[0].error.as_deref()),
        (NotificationStatus::Waiting, Some("no answer"))
    );
    assert!((20..40).contains(&waiting[0].attempts), "{}", waiting[0].attempts);
    let channel = t.alerts.channel_named(NS, "ops").unwrap();
    assert_eq!((channel.waiting, channel.error.as_deref()), (1, Some("no answer")));
    t.accepts = true;
    t.pass(minutes(5));
    assert_eq!(t.sent(), ["ops: a (1)"]);
    assert_eq!(list(&t)[0].status, NotificationStatus::Delivered);
    t.accepts = false;
    t.ends(2, "b", JobStatus::Failed);
    t.pass(hours(25));
    assert_eq!(list(&t)[0].status, NotificationStatus::Failed);
}

#[test]
fn a_channel_gets_at_most_its_limit_of_messages_per_minute() {
    let rules: Vec<_> =
        (0..200).map(|n| json!({"name": format!("r{n}"), "when": {"job_failed": {}}})).collect();
    let mut t = Scene::new(&rules);
    t.ends(1, "a", JobStatus::Failed);
    let limit = target::per_minute(&t.alerts.channel_named(NS, "ops").unwrap().spec.to) as usize;
    assert_eq!(t.sent().len(), limit);
    t.pass(Duration::from_secs(59));
    assert_eq!(t.sent().len(), 0);
    t.pass(minutes(10));
    assert_eq!(t.sent().len(), 200 - limit);
}

#[test]
fn a_channel_that_a_rule_notifies_cannot_be_deleted() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    let refused = t.alerts.delete_channel(t.now, NS, "ops").unwrap_err();
    assert_eq!(refused.to_string(), "channel `ops` is in use by `r`");
    t.rule(json!({"when": {"job_failed": {}}, "notify": ["missing"]}));
    t.alerts.delete_channel(t.now, NS, "ops").unwrap();
    t.ends(1, "a", JobStatus::Failed);
    assert_eq!(t.alerts.rule_named(NS, "r").unwrap().missing_channels, ["missing"]);
    let failed = &t.alerts.notifications(|_| true, &NotificationFilter::default(), 10).items[0];
    assert_eq!(
        (failed.status, failed.error.as_deref()),
        (NotificationStatus::Failed, Some("the channel does not exist"))
    );
}

#[test]
fn old_alerts_and_notifications_are_deleted() {
    let mut t = Scene::new(&[json!({"when": {"job_failed": {}}})]);
    t.ends(1, "a", JobStatus::Failed);
    // Stale after a week.
    t.pass(Duration::from_hours(24 * 8));
    assert_eq!(t.statuses(), [("a".to_owned(), AlertStatus::Resolved)]);
    assert_eq!(t.sent(), ["ops: a (1)"]);
    t.pass(Duration::from_hours(24 * 31));
    assert_eq!(t.statuses(), []);
    let kinds: Vec<_> = t.rows.keys().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["channel", "position", "rule"]);
}

#[test]
fn rows_of_a_newer_version_are_left_alone() {
    let rows = [
        ("rule", "default/a", "{}"),
        ("alert", "x", "{}"),
        ("comet", "1", "{}"),
        ("streak", "default/a", "{}"),
    ];
    let rows = rows.map(|(kind, key, body)| (kind.to_owned(), key.to_owned(), body.to_owned()));
    let (mut alerts, unreadable) = Alerts::load(rows, at(0));
    assert_eq!(unreadable.len(), 4);
    alerts.advance(at(0), &Facts::new());
    assert_eq!(alerts.take(), []);
}

/// Holds all notifications of the namespace back.
fn hold(t: &mut Scene, duration: Duration) {
    let (namespace, reason) = (NS.into(), "maintenance".into());
    let silence = NewSilence {
        namespace,
        rule: None,
        subject: None,
        starts_at: None,
        duration,
        reason,
        severity_max: None,
        recurrence: None,
        ends_at: None,
    };
    t.alerts.silence(t.now, "ann", silence).unwrap();
}
