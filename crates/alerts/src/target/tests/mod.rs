//! Tests of all kinds together.
//!
//! - `golden`: the body of each kind. `attacks`: untrusted text in each kind. `limits`: sizes of any message.
//! - `answers`: judgement of answers.

mod answers;
mod attacks;
mod golden;
mod limits;

use std::collections::BTreeMap;

use model::alert::{Language, SecretText, Severity, SubjectKind, Target};
use model::{JobId, RunId, Timestamp};
use serde_json::Value;

use super::{Delivery, Email, Request, render};
use crate::message::{Item, Message};

/// Time of the signatures.
const NOW: Timestamp = Timestamp::from_millis(1_795_874_700_500);

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Open alert of one job.
fn message() -> Message {
    Message {
        id: 42,
        namespace: "default".to_owned(),
        rule: "payroll-failures".to_owned(),
        condition: "job_failed".to_owned(),
        description: Some("Salaries are paid on the 28th.".to_owned()),
        runbook: Some("https://wiki.example.com/payroll".to_owned()),
        severity: Severity::Critical,
        language: Language::English,
        at: at("2026-11-28T14:03:05Z"),
        items: vec![item(7, "payroll")],
        total: 1,
        firing: 1,
        open: 1,
        escalated_after: None,
        is_test: false,
        dashboard: Some("https://belfry.example.com".to_owned()),
    }
}

/// Open and resolved alerts in Chinese, and more than the message lists.
fn summary() -> Message {
    let mut resolved = item(8, "invoices");
    resolved.resolved = true;
    resolved.resolved_at = Some(at("2026-11-28T14:03:04Z"));
    resolved.log = None;
    Message {
        severity: Severity::Warning,
        language: Language::Chinese,
        items: vec![item(7, "payroll"), resolved],
        total: 39,
        firing: 38,
        open: 38,
        ..message()
    }
}

/// Resolved alert of one job.
fn resolved() -> Message {
    let mut message = message();
    message.items[0].resolved = true;
    message.items[0].resolved_at = Some(at("2026-11-28T14:03:04Z"));
    (message.firing, message.open) = (0, 0);
    message
}

fn item(alert: u64, subject: &str) -> Item {
    Item {
        alert,
        kind: SubjectKind::Job,
        subject: subject.to_owned(),
        resolved: false,
        count: 3,
        opened_at: at("2026-11-28T14:00:00Z"),
        last_at: at("2026-11-28T14:03:00.250Z"),
        resolved_at: None,
        summary: "exit code 1 after 4 attempts".to_owned(),
        detail: Some("exit code 1".to_owned()),
        log: Some("connecting to db\nerror: timeout".to_owned()),
        job: Some(JobId::from_bits(1)),
        run: Some(RunId::from_bits(2)),
    }
}

/// Target of each kind, in the order of [`Target::KINDS`].
fn targets() -> Vec<Target> {
    let secret = |text: &str| SecretText::new(text);
    let headers = BTreeMap::from([("authorization".to_owned(), secret("Bearer geheimes-wort"))]);
    vec![
        Target::Webhook {
            url: "https://hooks.example.com/belfry".to_owned(),
            secret: Some(secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")),
            headers: headers.clone(),
        },
        Target::Slack { url: secret("https://hooks.slack.com/services/T00/B00/geheimnis-von-slack") },
        Target::Teams { url: secret("https://teams.example.com/workflows/1?sig=geheimnis-von-teams") },
        Target::Discord { url: secret("https://discord.com/api/webhooks/1/geheimnis-von-discord") },
        Target::Telegram {
            token: secret("123456:geheimnis-von-telegram"),
            chat: "-100123".to_owned(),
            url: None,
        },
        Target::Pagerduty { routing_key: secret("geheimnis-von-pagerduty"), url: None },
        Target::Opsgenie { api_key: secret("geheimnis-von-opsgenie"), url: None },
        Target::Alertmanager { url: "http://alertmanager:9093/".to_owned(), headers },
        Target::Dingtalk {
            url: secret("https://oapi.dingtalk.com/robot/send?access_token=geheimnis-von-dingtalk"),
            secret: Some(secret("SECgeheim")),
        },
        Target::Feishu {
            url: secret("https://open.feishu.cn/open-apis/bot/v2/hook/geheimnis-von-feishu"),
            secret: Some(secret("geheimer-schluessel")),
        },
        Target::Wecom {
            url: secret("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=geheimnis-von-wecom"),
        },
        Target::Email {
            to: vec!["ops@example.com".to_owned()],
            from: "Belfry <belfry@example.com>".to_owned(),
            server: "smtps://mail.example.com".to_owned(),
            username: None,
            password: Some(secret("geheimnis-von-email")),
        },
    ]
}

fn target(kind: &str) -> Target {
    targets().into_iter().find(|target| target.kind() == kind).unwrap()
}

fn request(kind: &str, message: &Message) -> Request {
    match render(&target(kind), message, NOW) {
        Delivery::Http(request) => request,
        Delivery::Email(_) => panic!("{kind} is an e-mail"),
    }
}

fn body(kind: &str, message: &Message) -> Value {
    serde_json::from_slice(&request(kind, message).body).unwrap()
}

fn email(message: &Message) -> Email {
    match render(&target("email"), message, NOW) {
        Delivery::Email(email) => email,
        Delivery::Http(_) => panic!("an e-mail is no request"),
    }
}

#[test]
fn every_kind_has_a_target_in_these_tests() {
    let kinds: Vec<_> = targets().iter().map(Target::kind).collect();
    assert_eq!(kinds, Target::KINDS);
}

#[test]
fn the_debug_output_of_a_request_has_no_secret() {
    for target in targets() {
        let shown = format!("{:?}", render(&target, &message(), NOW));
        assert!(!shown.contains("geheim"), "{shown}");
    }
}

#[test]
fn rates_are_below_the_published_limits() {
    let rates: Vec<_> = targets().iter().map(super::per_minute).collect();
    assert_eq!(rates, [60, 60, 60, 25, 15, 60, 60, 60, 15, 60, 15, 60]);
}
