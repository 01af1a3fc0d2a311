//! Judgement of answers.

use model::Duration;

use super::super::{Refused, Retry, judge};
use super::*;

fn judged(kind: &str, status: u16, body: &str) -> Result<(), Refused> {
    judge(&target(kind), status, None, body.as_bytes())
}

#[track_caller]
fn refused(kind: &str, status: u16, body: &str) -> (Retry, String) {
    let refused = judged(kind, status, body).expect_err("the service refused");
    (refused.retry, refused.reason)
}

#[test]
fn a_status_of_success_is_accepted() {
    for kind in ["webhook", "slack", "teams", "discord", "pagerduty", "opsgenie", "alertmanager"] {
        for status in [200, 202, 204] {
            assert_eq!(judged(kind, status, ""), Ok(()), "{kind}");
        }
    }
}

#[test]
fn a_busy_service_gets_the_message_again_and_a_wrong_request_does_not() {
    for status in [408, 425, 429, 500, 502, 503, 504, 599] {
        assert_eq!(refused("webhook", status, "").0, Retry::Later, "{status}");
    }
    for status in [100, 301, 302, 307, 400, 401, 403, 404, 410, 413, 422, 600] {
        assert_eq!(refused("webhook", status, "").0, Retry::Never, "{status}");
    }
}

#[test]
fn a_requested_delay_is_kept_up_to_an_hour() {
    let after = |status, delay| {
        judge(&target("webhook"), status, Some(Duration::from_secs(delay)), b"").unwrap_err().retry
    };
    assert_eq!(after(429, 30), Retry::After(Duration::from_secs(30)));
    assert_eq!(after(503, 86_400), Retry::After(Duration::from_hours(1)));
    assert_eq!(after(503, 0), Retry::Later);
    assert_eq!(after(404, 30), Retry::Never);
}

#[test]
fn the_result_code_of_a_chat_service_counts_also_with_status_200() {
    assert_eq!(judged("dingtalk", 200, r#"{"errcode":0,"errmsg":"ok"}"#), Ok(()));
    assert_eq!(judged("wecom", 200, r#"{"errcode":0,"errmsg":"ok"}"#), Ok(()));
    assert_eq!(judged("feishu", 200, r#"{"code":0,"msg":"success","data":{}}"#), Ok(()));
    assert_eq!(judged("feishu", 200, r#"{"StatusCode":0,"StatusMessage":"success"}"#), Ok(()));
    assert_eq!(judged("telegram", 200, r#"{"ok":true,"result":{}}"#), Ok(()));

    for code in [130_101, 410_100, 660_026] {
        assert_eq!(refused("dingtalk", 200, &format!(r#"{{"errcode":{code}}}"#)).0, Retry::Later);
    }
    for code in [9_499, 11_232] {
        assert_eq!(refused("feishu", 200, &format!(r#"{{"code":{code}}}"#)).0, Retry::Later);
        assert_eq!(refused("feishu", 400, &format!(r#"{{"code":{code}}}"#)).0, Retry::Later);
    }
    assert_eq!(refused("wecom", 200, r#"{"errcode":45009}"#).0, Retry::Later);
    assert_eq!(
        refused("dingtalk", 200, r#"{"errcode":310000,"errmsg":"sign not match"}"#),
        (
            Retry::Never,
            r#"the service answered 200 OK with errcode 310000: {"errcode":310000,"errmsg":"sign not match"}"#
                .to_owned()
        )
    );
    assert_eq!(refused("feishu", 200, r#"{"code":19021,"msg":"sign match fail"}"#).0, Retry::Never);
    assert_eq!(refused("wecom", 200, r#"{"errcode":93000,"errmsg":"invalid webhook url"}"#).0, Retry::Never);
}

#[test]
fn an_answer_without_a_result_code_is_not_taken_for_success() {
    for kind in ["dingtalk", "feishu", "wecom", "telegram"] {
        let (retry, reason) = refused(kind, 200, "<html>Please log in</html>");
        assert_eq!(retry, Retry::Later);
        assert_eq!(reason, "the service answered 200 OK without a result code: <html>Please log in</html>");
        assert_eq!(refused(kind, 404, "not found").0, Retry::Never);
        assert_eq!(refused(kind, 502, "bad gateway").0, Retry::Later);
    }
}

#[test]
fn delays_in_the_body_are_read() {
    let telegram =
        r#"{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":35}}"#;
    assert_eq!(refused("telegram", 429, telegram).0, Retry::After(Duration::from_secs(35)));
    let chat = r#"{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}"#;
    assert_eq!(refused("telegram", 400, chat).0, Retry::Never);
    assert_eq!(refused("telegram", 200, chat).0, Retry::Never);
    assert_eq!(
        refused("discord", 429, r#"{"retry_after":0.65}"#).0,
        Retry::After(Duration::from_millis(650))
    );
    assert_eq!(refused("discord", 429, r#"{"retry_after":1e99}"#).0, Retry::After(Duration::from_hours(1)));
    assert_eq!(refused("discord", 429, r#"{"retry_after":-1}"#).0, Retry::Later);
}

#[test]
fn a_reason_is_one_short_line() {
    let (_, reason) = refused("webhook", 404, "no\r\nsuch\u{0} page");
    assert_eq!(reason, "the service answered 404 Not Found: no such page");
    let (_, reason) = refused("webhook", 418, "");
    assert_eq!(reason, "the service answered 418");
    let (_, reason) = refused("slack", 500, &"失败\n".repeat(1_000));
    assert_eq!(reason.chars().count(), 300);
    assert!(reason.ends_with('…'));
}

#[test]
fn a_reason_never_has_a_secret() {
    for target in targets() {
        let mut with_secrets = target.clone();
        let secrets: Vec<_> =
            with_secrets.secrets_mut().iter().map(|(_, secret)| secret.expose().to_owned()).collect();
        assert!(!secrets.is_empty());
        for secret in secrets {
            let token = secret.rsplit(['/', '=', ' ', ':']).next().unwrap().to_owned();
            for shown in [secret.clone(), token.clone(), secret.replace('/', "\\/")] {
                // Also where the limit of the length would cut the secret.
                for length in [0, 255, 270] {
                    let body = format!("{} {shown} {shown}", "x".repeat(length));
                    let reason = judge(&target, 400, None, body.as_bytes()).unwrap_err().reason;
                    assert!(!reason.contains("geheim"), "{reason}");
                    assert!(!reason.contains(&token), "{reason}");
                }
            }
        }
    }
}

#[test]
fn a_short_secret_is_hidden_too() {
    let headers = BTreeMap::from([("x-key".to_owned(), SecretText::new("a/b c"))]);
    let target = Target::Alertmanager { url: "http://alertmanager:9093".to_owned(), headers };
    let reason = judge(&target, 403, None, b"no such key: a/b c, a\\/b c").unwrap_err().reason;
    assert_eq!(reason, "the service answered 403 Forbidden: no such key: ******, ******");
}
