//! Sizes: a message of any size is below the limits of each service.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::clean::utf16_len;

/// Text of any size up to a maximum, often of characters that grow when they are escaped.
fn text(max: usize) -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<char>().prop_map(String::from),
        "[a-z0-9 ]{1,20}",
        prop::sample::select(vec![
            "&",
            "<",
            "\"",
            "'",
            "`",
            "\n",
            "\\",
            "@",
            "*",
            "失",
            "🔥",
            "```",
            "\u{1b}[31m"
        ])
        .prop_map(str::to_owned),
    ];
    // Repetition makes long texts cheap to generate.
    (vec(piece, 0..20), 1..=max).prop_map(|(pieces, max)| {
        let unit = pieces.concat();
        let repeated = unit.repeat(max / unit.len().max(1) + 1);
        repeated.chars().take(max).collect()
    })
}

fn any_item() -> impl Strategy<Value = Item> {
    (text(300), any::<(bool, u64, i64, i64)>(), option::of(text(6_000)), option::of(text(8_000)), 0..5_usize)
        .prop_map(|(subject, (resolved, number, opened, last), detail, log, kind)| Item {
            alert: number,
            kind: SubjectKind::ALL[kind],
            subject,
            resolved,
            count: number,
            opened_at: Timestamp::from_micros(opened),
            last_at: Timestamp::from_micros(last),
            resolved_at: resolved.then(|| Timestamp::from_micros(last)),
            summary: detail.clone().unwrap_or_default(),
            detail,
            log,
            job: Some(JobId::from_bits(1)),
            run: Some(RunId::from_bits(2)),
        })
}

fn any_message() -> impl Strategy<Value = Message> {
    let names = (text(300), text(300), prop_oneof![Just("job_failed".to_owned()), text(300)]);
    let long = (option::of(text(3_000)), option::of(text(3_000)), option::of(text(3_000)));
    let rest = (any::<(u64, u64, bool, bool)>(), 0..3_usize);
    (names, long, vec(any_item(), 1..=20), rest).prop_map(
        |(
            (namespace, rule, condition),
            (description, runbook, path),
            items,
            ((id, total, is_test, zh), severity),
        )| {
            Message {
                id,
                namespace,
                rule,
                condition,
                description,
                runbook: runbook.map(|path| format!("https://wiki.example/{path}")),
                severity: Severity::ALL[severity],
                language: if zh { Language::Chinese } else { Language::English },
                at: Timestamp::from_micros(0),
                items,
                total,
                firing: total % 3,
                open: total % 5,
                escalated_after: (total % 2 == 0).then_some(model::Duration::from_hours(24 * 7)),
                is_test,
                dashboard: path.map(|path| format!("https://belfry.example/{path}")),
            }
        },
    )
}

/// Checks the body of a request against the limits of its service.
fn assert_within_limits(kind: &str, request: &Request) {
    let json: Value = serde_json::from_slice(&request.body).expect("the body is JSON");
    let length = |pointer: &str| json.pointer(pointer).and_then(Value::as_str).map_or(0, utf16_len);
    let bytes = |pointer: &str| json.pointer(pointer).and_then(Value::as_str).map_or(0, str::len);
    match kind {
        "slack" => {
            assert!((1..=150).contains(&length("/blocks/0/text/text")));
            let blocks = json["attachments"][0]["blocks"].as_array().unwrap();
            assert!(blocks.len() <= 49);
            for block in blocks {
                let text = utf16_len(block["text"]["text"].as_str().unwrap());
                assert!((1..=3_000).contains(&text), "{text}");
            }
        }
        "teams" => assert!(request.body.len() <= 28 * 1_000),
        "discord" => {
            assert!((1..=256).contains(&length("/embeds/0/title")));
            assert!((1..=4_096).contains(&length("/embeds/0/description")));
        }
        "telegram" => assert!((1..=4_096).contains(&length("/text"))),
        "pagerduty" => {
            assert!((1..=1_024).contains(&length("/payload/summary")));
            assert!((1..=255).contains(&length("/dedup_key")));
            assert!(request.body.len() <= 512_000);
        }
        "opsgenie" => {
            assert!(request.url.contains("/close") || (1..=130).contains(&length("/message")));
            assert!(length("/description") <= 15_000);
            assert!(length("/alias") <= 512);
            assert!((0..3).all(|tag| length(&format!("/tags/{tag}")) <= 50));
        }
        "dingtalk" | "feishu" => assert!(request.body.len() <= 20_000),
        "wecom" => assert!((1..=4_096).contains(&bytes("/markdown/content"))),
        "webhook" | "alertmanager" => {}
        other => panic!("no limits of {other}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_message_of_any_size_is_within_the_limits_of_each_service(message in any_message()) {
        for target in targets() {
            match render(&target, &message, NOW) {
                Delivery::Http(request) => assert_within_limits(target.kind(), &request),
                Delivery::Email(email) => {
                    prop_assert!(!email.subject.is_empty());
                    prop_assert!(email.subject.chars().count() <= 200);
                    prop_assert!(!email.subject.chars().any(char::is_control));
                }
            }
        }
    }
}

/// Returns a message of 20 alerts with long logs, of 57 in all.
fn large() -> Message {
    let mut message = Message { items: (0..20).map(|n| item(n, &format!("job-{n}"))).collect(), ..message() };
    message.total = 57;
    for item in &mut message.items {
        item.log = Some("a line of the log\n".repeat(100));
    }
    message
}

#[test]
fn fewer_alerts_are_listed_before_the_title_is_cut_and_the_others_are_counted() {
    let text = body("wecom", &large())["markdown"]["content"].as_str().unwrap().to_owned();
    assert!(text.starts_with("### 🔴 Critical: 57 alerts of rule payroll-failures\n"), "{text}");
    let listed = text.matches("Job `job-").count();
    assert!((2..20).contains(&listed), "{listed}");
    assert!(text.contains(&format!("and {} more alerts", 57 - listed)), "{text}");
}

#[test]
fn a_log_that_is_too_long_keeps_its_end() {
    let mut message = message();
    message.items[0].log = Some(format!("{}the last line", "a line of the log\n".repeat(1_000)));
    for kind in ["telegram", "discord", "wecom", "dingtalk"] {
        let body = String::from_utf8(request(kind, &message).body).unwrap();
        assert!(body.contains("the last line"), "{body}");
        assert!(body.contains('…'), "{body}");
    }
}

#[test]
fn invalid_long_names_have_different_incident_keys() {
    let key = |rule: &str| {
        body("pagerduty", &Message { rule: rule.to_owned(), ..message() })["dedup_key"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (a, b) = (key(&format!("{}a", "x".repeat(300))), key(&format!("{}b", "x".repeat(300))));
    assert_ne!(a, b);
    assert_eq!(key("payroll"), "belfry/default/payroll");
}
