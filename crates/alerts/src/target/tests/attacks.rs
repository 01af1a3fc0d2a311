//! Untrusted text in each kind: it never becomes a link, a mention, a tag or a part of a card.

use super::*;

/// Markup of all services at once.
const ATTACK: &str = "x\"}]</code></pre></a><b>&lt; <!channel> <@U1> <@all> <at id=all></at> @everyone @all \
    <https://evil.example|click> [click](https://evil.example) ![i](https://evil.example) [r]: https://evil.example \
    ```` ``` ` ~~~ <script>alert(1)</script> <img src=x onerror=y> \u{202e}\u{0}\r";

/// Message with markup in every text that a user controls.
fn attacked() -> Message {
    let lines = format!("{ATTACK}\n{ATTACK}\n```\n{ATTACK}");
    let attacked = |item: Item| Item {
        subject: ATTACK.to_owned(),
        summary: lines.clone(),
        detail: Some(lines.clone()),
        log: Some(lines.clone()),
        ..item
    };
    Message {
        rule: ATTACK.to_owned(),
        namespace: ATTACK.to_owned(),
        condition: ATTACK.to_owned(),
        description: Some(lines.clone()),
        runbook: Some("javascript:alert(1)".to_owned()),
        items: vec![attacked(item(7, "")), attacked(item(8, ""))],
        total: 2,
        firing: 2,
        open: 2,
        ..message()
    }
}

/// Returns all strings of a JSON value.
fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(strings).collect(),
        Value::Object(values) => values.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

/// Returns a text without its code: first blocks, then inline code.
fn without_code(text: &str) -> String {
    let outside = |text: &str, fence: &str| text.split(fence).step_by(2).collect::<Vec<_>>().join(" ");
    assert_eq!(text.matches("```").count() % 2, 0, "a code block is not closed: {text}");
    outside(&outside(text, "```"), "`")
}

/// Returns the tags of HTML, without their attributes, in order.
fn tags(html: &str) -> Vec<String> {
    let tag =
        |piece: &str| piece.split(['>', ' ']).next().unwrap_or_default().trim_start_matches('/').to_owned();
    html.split('<').skip(1).map(tag).collect()
}

#[track_caller]
fn assert_absent(text: &str, markups: &[&str]) {
    for markup in markups {
        assert!(!text.contains(markup), "`{markup}` in {text}");
    }
}

#[test]
fn slack_has_no_link_or_mention_of_a_user() {
    let body = body("slack", &attacked());
    for text in strings(&body) {
        let foreign = text.replace("<https://belfry.example.com/", "");
        assert_absent(&foreign, &["<"]);
        without_code(&text);
    }
    for block in body["attachments"][0]["blocks"].as_array().unwrap() {
        assert_eq!(block["text"]["verbatim"], true);
    }
}

#[test]
fn teams_shows_untrusted_text_only_in_runs_without_markup() {
    fn check(value: &Value, key: &str) {
        match value {
            Value::String(text) if text.contains("evil") => assert_eq!(key, "TextRun text"),
            Value::Array(values) => values.iter().for_each(|value| check(value, key)),
            Value::Object(values) => values.iter().for_each(|(name, value)| {
                let kind = values.get("type").and_then(Value::as_str).unwrap_or_default();
                assert_ne!(kind, "TextBlock");
                check(value, &format!("{kind} {name}"));
            }),
            _ => {}
        }
    }
    check(&body("teams", &attacked()), "");
}

#[test]
fn discord_has_no_link_or_mention_outside_of_code() {
    let body = body("discord", &attacked());
    assert_eq!(body["allowed_mentions"], serde_json::json!({"parse": []}));
    let embed = &body["embeds"][0];
    let escapes_gone = |text: &str| {
        let mut characters = text.chars();
        let mut kept = String::new();
        while let Some(c) = characters.next() {
            if c == '\\' {
                characters.next();
            } else {
                kept.push(c);
            }
        }
        kept
    };
    for text in [&embed["title"], &embed["description"]] {
        let text = text.as_str().unwrap();
        let outside = without_code(&escapes_gone(text)).replace("](https://belfry.example.com/", "");
        assert_absent(&outside, &["](", "<", "@", "://", "~", "*", "#"]);
    }
}

#[test]
fn telegram_has_only_its_own_tags() {
    let text = body("telegram", &attacked())["text"].as_str().unwrap().to_owned();
    for tag in tags(&text) {
        assert!(["b", "code", "pre", "a"].contains(&tag.as_str()), "{tag} in {text}");
    }
    for link in text.split("<a href=\"").skip(1) {
        assert!(link.starts_with("https://belfry.example.com/"), "{link}");
    }
    for tag in ["b", "code", "pre", "a"] {
        let opened = text.matches(&format!("<{tag}>")).count() + text.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, text.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    let outside: String = text.split("<pre>").flat_map(|piece| piece.split("</pre>").last()).collect();
    let outside: String = outside.split("<code>").flat_map(|piece| piece.split("</code>").last()).collect();
    assert_absent(&outside, &["@all", "@everyone", "://evil"]);
}

#[test]
fn dingtalk_and_wecom_have_no_link_tag_or_mention_of_a_user() {
    for (kind, pointer) in [("dingtalk", "/markdown/text"), ("wecom", "/markdown/content")] {
        let body = body(kind, &attacked());
        let text = body.pointer(pointer).unwrap().as_str().unwrap();
        let foreign = text.replace("](https://belfry.example.com/", "");
        assert_absent(&foreign, &["](", "]:", "<s", "<a", "<@", "</", "<!", "://", " @all", " @everyone"]);
        without_code(text);
    }
    let at = &body("dingtalk", &attacked())["at"];
    assert_eq!(*at, serde_json::json!({"atMobiles": [], "atUserIds": [], "isAtAll": false}));
}

#[test]
fn feishu_has_only_plain_text() {
    fn check(value: &Value) {
        match value {
            Value::Array(values) => values.iter().for_each(check),
            Value::Object(values) => {
                assert_ne!(values.get("tag"), Some(&Value::from("lark_md")));
                assert_ne!(values.get("tag"), Some(&Value::from("markdown")));
                if values.contains_key("content") {
                    assert_eq!(values["tag"], "plain_text");
                }
                values.values().for_each(check);
            }
            _ => {}
        }
    }
    check(&body("feishu", &attacked()));
}

#[test]
fn an_email_has_only_its_own_tags_and_one_line_as_subject() {
    let email = email(&attacked());
    assert!(!email.subject.chars().any(|c| c.is_control() || c == '\u{202e}'), "{}", email.subject);
    let known = ["!DOCTYPE", "html", "head", "meta", "body", "h2", "h3", "p", "pre", "strong", "a", "br"];
    for tag in tags(&email.html) {
        assert!(known.contains(&tag.as_str()), "{tag} in {}", email.html);
    }
    for link in email.html.split("href=\"").skip(1) {
        assert!(link.starts_with("https://belfry.example.com/"), "{link}");
    }
}

#[test]
fn services_without_markup_have_valid_json_and_no_link_of_a_user() {
    let message = attacked();
    assert_eq!(body("pagerduty", &message)["links"], serde_json::json!([]));
    assert_eq!(body("alertmanager", &message)[0]["annotations"].get("runbook_url"), None);
    assert_eq!(body("opsgenie", &message)["source"], "Belfry");
    assert_eq!(body("webhook", &message)["data"]["items"][0]["subject"], ATTACK);
    let source = body("webhook", &message)["source"].as_str().unwrap().to_owned();
    assert!(!source.contains([' ', '<', '"']), "{source}");
}

#[test]
fn a_runbook_that_is_a_url_cannot_break_out_of_its_link() {
    let runbook = "https://wiki.example/a)[b](c|d>e\"f'g`<h ";
    let message = Message { runbook: Some(runbook.to_owned()), ..message() };
    let encoded = "https://wiki.example/a%29%5Bb%5D%28c%7Cd%3Ee%22f%27g%60%3Ch";
    for target in targets().into_iter().filter(|target| !["webhook", "email"].contains(&target.kind())) {
        let body = String::from_utf8(request(target.kind(), &message).body).unwrap();
        if body.contains("wiki.example") {
            assert!(body.contains(encoded), "{body}");
        }
    }
    assert!(email(&message).html.contains(encoded));
}
