//! The body of each kind.

use super::*;

/// Compares with keys in a fixed order: `serde_json` has two orders, depending on its features.
macro_rules! assert_body {
    ($value:expr, @$expected:literal) => {
        insta::with_settings!({sort_maps => true}, { insta::assert_json_snapshot!($value, @$expected) })
    };
}

#[test]
fn a_webhook_is_a_cloud_event() {
    assert_body!(body("webhook", &message()), @r#"
    {
      "data": {
        "at": "2026-11-28T14:03:05Z",
        "condition": "job_failed",
        "dashboard": "https://belfry.example.com",
        "description": "Salaries are paid on the 28th.",
        "firing": 1,
        "id": 42,
        "is_resolved": false,
        "is_test": false,
        "items": [
          {
            "alert": 7,
            "count": 3,
            "detail": "exit code 1",
            "job": "job_00000000000000000000000001",
            "kind": "job",
            "last_at": "2026-11-28T14:03:00.25Z",
            "log": "connecting to db\nerror: timeout",
            "opened_at": "2026-11-28T14:00:00Z",
            "resolved": false,
            "resolved_at": null,
            "run": "run_00000000000000000000000002",
            "subject": "payroll",
            "summary": "exit code 1 after 4 attempts"
          }
        ],
        "language": "en",
        "namespace": "default",
        "open": 1,
        "rule": "payroll-failures",
        "runbook": "https://wiki.example.com/payroll",
        "severity": "critical",
        "title": "🔴 Critical: Job payroll failed (3 times)",
        "total": 1
      },
      "datacontenttype": "application/json",
      "id": "42",
      "source": "/belfry/default",
      "specversion": "1.0",
      "time": "2026-11-28T14:03:05Z",
      "type": "belfry.alert.firing"
    }
    "#);
}

#[test]
fn slack_has_a_header_and_an_attachment() {
    assert_body!(body("slack", &message()), @r##"
    {
      "attachments": [
        {
          "blocks": [
            {
              "text": {
                "text": "Namespace: `default` · Rule: `payroll-failures`\nSalaries are paid on the 28th.",
                "type": "mrkdwn",
                "verbatim": true
              },
              "type": "section"
            },
            {
              "text": {
                "text": "First: 2026-11-28 14:00:00 UTC · Last: 2026-11-28 14:03:00 UTC\n```\nexit code 1\n```\n```\nconnecting to db\nerror: timeout\n```\n<https://belfry.example.com/jobs/job_00000000000000000000000001|View job> · <https://belfry.example.com/runs/run_00000000000000000000000002|View run> · <https://belfry.example.com/alerts/7|View alert>",
                "type": "mrkdwn",
                "verbatim": true
              },
              "type": "section"
            },
            {
              "text": {
                "text": "<https://wiki.example.com/payroll|Runbook>",
                "type": "mrkdwn",
                "verbatim": true
              },
              "type": "section"
            }
          ],
          "color": "#d73a49",
          "fallback": "🔴 Critical: Job payroll failed (3 times)"
        }
      ],
      "blocks": [
        {
          "text": {
            "emoji": false,
            "text": "🔴 Critical: Job payroll failed (3 times)",
            "type": "plain_text"
          },
          "type": "header"
        }
      ],
      "text": "🔴 Critical: Job payroll failed (3 times)",
      "unfurl_links": false,
      "unfurl_media": false
    }
    "##);
}

#[test]
fn teams_has_an_adaptive_card() {
    assert_body!(body("teams", &message()), @r#"
    {
      "attachments": [
        {
          "content": {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "body": [
              {
                "bleed": true,
                "items": [
                  {
                    "inlines": [
                      {
                        "size": "Medium",
                        "text": "🔴 Critical: Job payroll failed (3 times)",
                        "type": "TextRun",
                        "weight": "Bolder"
                      }
                    ],
                    "type": "RichTextBlock"
                  }
                ],
                "style": "attention",
                "type": "Container"
              },
              {
                "inlines": [
                  {
                    "text": "Namespace: default",
                    "type": "TextRun"
                  }
                ],
                "type": "RichTextBlock"
              },
              {
                "inlines": [
                  {
                    "text": "Rule: payroll-failures",
                    "type": "TextRun"
                  }
                ],
                "type": "RichTextBlock"
              },
              {
                "inlines": [
                  {
                    "text": "Salaries are paid on the 28th.",
                    "type": "TextRun"
                  }
                ],
                "type": "RichTextBlock"
              },
              {
                "items": [
                  {
                    "inlines": [
                      {
                        "isSubtle": true,
                        "text": "First: 2026-11-28 14:00:00 UTC · Last: 2026-11-28 14:03:00 UTC",
                        "type": "TextRun"
                      }
                    ],
                    "type": "RichTextBlock"
                  },
                  {
                    "items": [
                      {
                        "inlines": [
                          {
                            "fontType": "Monospace",
                            "size": "Small",
                            "text": "exit code 1",
                            "type": "TextRun"
                          }
                        ],
                        "spacing": "None",
                        "type": "RichTextBlock"
                      }
                    ],
                    "style": "emphasis",
                    "type": "Container"
                  },
                  {
                    "items": [
                      {
                        "inlines": [
                          {
                            "fontType": "Monospace",
                            "size": "Small",
                            "text": "connecting to db",
                            "type": "TextRun"
                          }
                        ],
                        "spacing": "None",
                        "type": "RichTextBlock"
                      },
                      {
                        "inlines": [
                          {
                            "fontType": "Monospace",
                            "size": "Small",
                            "text": "error: timeout",
                            "type": "TextRun"
                          }
                        ],
                        "spacing": "None",
                        "type": "RichTextBlock"
                      }
                    ],
                    "style": "emphasis",
                    "type": "Container"
                  },
                  {
                    "actions": [
                      {
                        "title": "View job",
                        "type": "Action.OpenUrl",
                        "url": "https://belfry.example.com/jobs/job_00000000000000000000000001"
                      },
                      {
                        "title": "View run",
                        "type": "Action.OpenUrl",
                        "url": "https://belfry.example.com/runs/run_00000000000000000000000002"
                      },
                      {
                        "title": "View alert",
                        "type": "Action.OpenUrl",
                        "url": "https://belfry.example.com/alerts/7"
                      }
                    ],
                    "type": "ActionSet"
                  }
                ],
                "separator": true,
                "type": "Container"
              },
              {
                "actions": [
                  {
                    "title": "Runbook",
                    "type": "Action.OpenUrl",
                    "url": "https://wiki.example.com/payroll"
                  }
                ],
                "type": "ActionSet"
              }
            ],
            "msteams": {
              "width": "Full"
            },
            "type": "AdaptiveCard",
            "version": "1.4"
          },
          "contentType": "application/vnd.microsoft.card.adaptive",
          "contentUrl": null
        }
      ],
      "type": "message"
    }
    "#);
}

#[test]
fn discord_has_an_embed() {
    assert_body!(body("discord", &message()), @r#"
    {
      "allowed_mentions": {
        "parse": []
      },
      "embeds": [
        {
          "color": 14105161,
          "description": "Namespace: `default` · Rule: `payroll-failures`\nSalaries are paid on the 28th.\n\nFirst: 2026-11-28 14:00:00 UTC · Last: 2026-11-28 14:03:00 UTC\n```\nexit code 1\n```\n```\nconnecting to db\nerror: timeout\n```\n[View job](https://belfry.example.com/jobs/job_00000000000000000000000001) · [View run](https://belfry.example.com/runs/run_00000000000000000000000002) · [View alert](https://belfry.example.com/alerts/7)\n\n[Runbook](https://wiki.example.com/payroll)",
          "timestamp": "2026-11-28T14:03:05Z",
          "title": "🔴 Critical: Job payroll failed (3 times)"
        }
      ]
    }
    "#);
}

#[test]
fn telegram_has_a_message_in_html() {
    assert_body!(body("telegram", &message()), @r#"
    {
      "chat_id": "-100123",
      "link_preview_options": {
        "is_disabled": true
      },
      "parse_mode": "HTML",
      "text": "<b>🔴 Critical: Job </b><code>payroll</code><b> failed (3 times)</b>\nNamespace: <code>default</code> · Rule: <code>payroll-failures</code>\nSalaries are paid on the 28th.\n\nFirst: 2026-11-28 14:00:00 UTC · Last: 2026-11-28 14:03:00 UTC\n<pre>exit code 1</pre>\n<pre>connecting to db\nerror: timeout</pre>\n<a href=\"https://belfry.example.com/jobs/job_00000000000000000000000001\">View job</a> · <a href=\"https://belfry.example.com/runs/run_00000000000000000000000002\">View run</a> · <a href=\"https://belfry.example.com/alerts/7\">View alert</a>\n\n<a href=\"https://wiki.example.com/payroll\">Runbook</a>"
    }
    "#);
}

#[test]
fn pagerduty_has_an_event() {
    assert_body!(body("pagerduty", &message()), @r#"
    {
      "client": "Belfry",
      "client_url": "https://belfry.example.com",
      "dedup_key": "belfry/default/payroll-failures",
      "event_action": "trigger",
      "links": [
        {
          "href": "https://wiki.example.com/payroll",
          "text": "Runbook"
        }
      ],
      "payload": {
        "class": "job_failed",
        "custom_details": {
          "alerts": [
            {
              "count": 3,
              "error": "exit code 1",
              "kind": "job",
              "last_at": "2026-11-28T14:03:00.25Z",
              "log": "connecting to db\nerror: timeout",
              "opened_at": "2026-11-28T14:00:00Z",
              "resolved": false,
              "subject": "payroll",
              "summary": "exit code 1 after 4 attempts",
              "url": "https://belfry.example.com/alerts/7"
            }
          ],
          "description": "Salaries are paid on the 28th.",
          "left_out": null,
          "namespace": "default",
          "rule": "payroll-failures",
          "total": 1
        },
        "group": "default",
        "severity": "critical",
        "source": "belfry/default",
        "summary": "🔴 Critical: Job payroll failed (3 times)",
        "timestamp": "2026-11-28T14:03:05Z"
      },
      "routing_key": "geheimnis-von-pagerduty"
    }
    "#);
}

#[test]
fn opsgenie_has_an_alert() {
    assert_body!(body("opsgenie", &message()), @r#"
    {
      "alias": "belfry/default/payroll-failures",
      "description": "Namespace: default\nRule: payroll-failures\nSalaries are paid on the 28th.\n\nFirst: 2026-11-28 14:00:00 UTC · Last: 2026-11-28 14:03:00 UTC\nError:\n    exit code 1\nLog:\n    connecting to db\n    error: timeout\nView job: https://belfry.example.com/jobs/job_00000000000000000000000001\nView run: https://belfry.example.com/runs/run_00000000000000000000000002\nView alert: https://belfry.example.com/alerts/7\n\nRunbook: https://wiki.example.com/payroll",
      "details": {
        "condition": "job_failed",
        "namespace": "default",
        "rule": "payroll-failures"
      },
      "message": "🔴 Critical: Job payroll failed (3 times)",
      "priority": "P1",
      "source": "Belfry",
      "tags": [
        "belfry",
        "default",
        "payroll-failures"
      ]
    }
    "#);
}

#[test]
fn alertmanager_has_an_entry_for_each_alert() {
    assert_body!(body("alertmanager", &summary()), @r#"
    [
      {
        "annotations": {
          "description": "Salaries are paid on the 28th.\nexit code 1",
          "left_out": "另有 37 条告警未列出",
          "runbook_url": "https://wiki.example.com/payroll",
          "summary": "任务 payroll 执行失败（3 次）"
        },
        "endsAt": "2026-12-06T14:03:05Z",
        "generatorURL": "https://belfry.example.com/alerts/7",
        "labels": {
          "alertname": "payroll-failures",
          "condition": "job_failed",
          "namespace": "default",
          "severity": "warning",
          "subject": "payroll",
          "subject_kind": "job"
        },
        "startsAt": "2026-11-28T14:00:00Z"
      },
      {
        "annotations": {
          "description": "Salaries are paid on the 28th.\nexit code 1",
          "left_out": "另有 37 条告警未列出",
          "runbook_url": "https://wiki.example.com/payroll",
          "summary": "任务 invoices 执行失败（3 次）"
        },
        "endsAt": "2026-11-28T14:03:04Z",
        "generatorURL": "https://belfry.example.com/alerts/8",
        "labels": {
          "alertname": "payroll-failures",
          "condition": "job_failed",
          "namespace": "default",
          "severity": "warning",
          "subject": "invoices",
          "subject_kind": "job"
        },
        "startsAt": "2026-11-28T14:00:00Z"
      }
    ]
    "#);
}

#[test]
fn dingtalk_has_a_markdown_message() {
    assert_body!(body("dingtalk", &summary()), @r####"
    {
      "at": {
        "atMobiles": [],
        "atUserIds": [],
        "isAtAll": false
      },
      "markdown": {
        "text": "### 🟠 警告：告警规则 payroll-failures 触发 39 条告警\n\n命名空间：default\n\n告警规则：payroll-failures\n\n> Salaries are paid on the 28th.\n\n#### 🟠 任务 payroll 执行失败（3 次）\n\n首次发生：2026-11-28 14:00:00 UTC · 最近发生：2026-11-28 14:03:00 UTC\n\n```\nexit code 1\n```\n\n```\nconnecting to db\nerror: timeout\n```\n\n[查看任务](https://belfry.example.com/jobs/job_00000000000000000000000001) · [查看运行实例](https://belfry.example.com/runs/run_00000000000000000000000002) · [查看告警](https://belfry.example.com/alerts/7)\n\n#### ✅ 已解决：任务 invoices 执行失败（3 次）\n\n首次发生：2026-11-28 14:00:00 UTC · 最近发生：2026-11-28 14:03:00 UTC · 解决时间：2026-11-28 14:03:04 UTC\n\n```\nexit code 1\n```\n\n[查看任务](https://belfry.example.com/jobs/job_00000000000000000000000001) · [查看运行实例](https://belfry.example.com/runs/run_00000000000000000000000002) · [查看告警](https://belfry.example.com/alerts/8)\n\n另有 37 条告警未列出\n\n[处理手册](https://wiki.example.com/payroll) · [查看全部告警](https://belfry.example.com/alerts)",
        "title": "🟠 警告：告警规则 payroll-failures 触发 39 条告警"
      },
      "msgtype": "markdown"
    }
    "####);
}

#[test]
fn feishu_has_a_card() {
    assert_body!(body("feishu", &summary()), @r#"
    {
      "card": {
        "config": {
          "wide_screen_mode": true
        },
        "elements": [
          {
            "tag": "div",
            "text": {
              "content": "命名空间：default\n告警规则：payroll-failures\nSalaries are paid on the 28th.",
              "tag": "plain_text"
            }
          },
          {
            "tag": "hr"
          },
          {
            "tag": "div",
            "text": {
              "content": "🟠 任务 payroll 执行失败（3 次）\n首次发生：2026-11-28 14:00:00 UTC · 最近发生：2026-11-28 14:03:00 UTC",
              "tag": "plain_text"
            }
          },
          {
            "tag": "div",
            "text": {
              "content": "exit code 1",
              "tag": "plain_text"
            }
          },
          {
            "elements": [
              {
                "content": "connecting to db\nerror: timeout",
                "tag": "plain_text"
              }
            ],
            "tag": "note"
          },
          {
            "actions": [
              {
                "tag": "button",
                "text": {
                  "content": "查看任务",
                  "tag": "plain_text"
                },
                "type": "default",
                "url": "https://belfry.example.com/jobs/job_00000000000000000000000001"
              },
              {
                "tag": "button",
                "text": {
                  "content": "查看运行实例",
                  "tag": "plain_text"
                },
                "type": "default",
                "url": "https://belfry.example.com/runs/run_00000000000000000000000002"
              },
              {
                "tag": "button",
                "text": {
                  "content": "查看告警",
                  "tag": "plain_text"
                },
                "type": "default",
                "url": "https://belfry.example.com/alerts/7"
              }
            ],
            "tag": "action"
          },
          {
            "tag": "hr"
          },
          {
            "tag": "div",
            "text": {
              "content": "✅ 已解决：任务 invoices 执行失败（3 次）\n首次发生：2026-11-28 14:00:00 UTC · 最近发生：2026-11-28 14:03:00 UTC · 解决时间：2026-11-28 14:03:04 UTC",
              "tag": "plain_text"
            }
          },
          {
            "tag": "div",
            "text": {
              "content": "exit code 1",
              "tag": "plain_text"
            }
          },
          {
            "actions": [
              {
                "tag": "button",
                "text": {
                  "content": "查看任务",
                  "tag": "plain_text"
                },
                "type": "default",
                "url": "https://belfry.example.com/jobs/job_00000000000000000000000001"
              },
              {
                "tag": "button",
                "text": {
                  "content": "查看运行实例",
                  "tag": "plain_text"
                },
                "type": "default",
                "url": "https://belfry.example.com/runs/run_00000000000000000000000002"
              },
              {
                "tag": "button",
                "text": {
                  "content": "查看告警",
                  "tag": "plain_text"
                },
                "type": "default",
                "url": "https://belfry.example.com/alerts/8"
              }
            ],
            "tag": "action"
          },
          {
            "tag": "div",
            "text": {
              "content": "另有 37 条告警未列出",
              "tag": "plain_text"
            }
          },
          {
            "actions": [
              {
                "tag": "button",
                "text": {
                  "content": "处理手册",
                  "tag": "plain_text"
                },
                "type": "default",
                "url": "https://wiki.example.com/payroll"
              },
              {
                "tag": "button",
                "text": {
                  "content": "查看全部告警",
                  "tag": "plain_text"
                },
                "type": "default",
                "url": "https://belfry.example.com/alerts"
              }
            ],
            "tag": "action"
          }
        ],
        "header": {
          "template": "orange",
          "title": {
            "content": "🟠 警告：告警规则 payroll-failures 触发 39 条告警",
            "tag": "plain_text"
          }
        }
      },
      "msg_type": "interactive",
      "sign": "nckfMX9AgMWkofecrfkjxMcZgXnmv+w4xYBLA/zdlHc=",
      "timestamp": "1795874700"
    }
    "#);
}

#[test]
fn wecom_has_a_markdown_message() {
    assert_body!(body("wecom", &summary()), @r####"
    {
      "markdown": {
        "content": "### 🟠 警告：告警规则 payroll-failures 触发 39 条告警\n命名空间：default\n告警规则：payroll-failures\n> Salaries are paid on the 28th.\n\n🟠 任务 `payroll` 执行失败（3 次）\n首次发生：2026-11-28 14:00:00 UTC · 最近发生：2026-11-28 14:03:00 UTC\n> `exit code 1`\n> `connecting to db`\n> `error: timeout`\n[查看任务](https://belfry.example.com/jobs/job_00000000000000000000000001) · [查看运行实例](https://belfry.example.com/runs/run_00000000000000000000000002) · [查看告警](https://belfry.example.com/alerts/7)\n\n✅ 已解决：任务 `invoices` 执行失败（3 次）\n首次发生：2026-11-28 14:00:00 UTC · 最近发生：2026-11-28 14:03:00 UTC · 解决时间：2026-11-28 14:03:04 UTC\n> `exit code 1`\n[查看任务](https://belfry.example.com/jobs/job_00000000000000000000000001) · [查看运行实例](https://belfry.example.com/runs/run_00000000000000000000000002) · [查看告警](https://belfry.example.com/alerts/8)\n\n另有 37 条告警未列出\n\n[处理手册](https://wiki.example.com/payroll) · [查看全部告警](https://belfry.example.com/alerts)"
      },
      "msgtype": "markdown"
    }
    "####);
}

#[test]
fn an_email_has_a_subject_a_text_and_html() {
    let email = email(&summary());
    insta::assert_snapshot!(email.subject, @"🟠 警告：告警规则 payroll-failures 触发 39 条告警");
    insta::assert_snapshot!(email.text, @r#"
    🟠 警告：告警规则 payroll-failures 触发 39 条告警

    命名空间：default
    告警规则：payroll-failures
    Salaries are paid on the 28th.

    🟠 任务 payroll 执行失败（3 次）
    首次发生：2026-11-28 14:00:00 UTC · 最近发生：2026-11-28 14:03:00 UTC
    错误信息：
        exit code 1
    日志：
        connecting to db
        error: timeout
    查看任务：https://belfry.example.com/jobs/job_00000000000000000000000001
    查看运行实例：https://belfry.example.com/runs/run_00000000000000000000000002
    查看告警：https://belfry.example.com/alerts/7

    ✅ 已解决：任务 invoices 执行失败（3 次）
    首次发生：2026-11-28 14:00:00 UTC · 最近发生：2026-11-28 14:03:00 UTC · 解决时间：2026-11-28 14:03:04 UTC
    错误信息：
        exit code 1
    查看任务：https://belfry.example.com/jobs/job_00000000000000000000000001
    查看运行实例：https://belfry.example.com/runs/run_00000000000000000000000002
    查看告警：https://belfry.example.com/alerts/8

    另有 37 条告警未列出

    处理手册：https://wiki.example.com/payroll
    查看全部告警：https://belfry.example.com/alerts
    "#);
    insta::assert_snapshot!(email.html, @r#"
    <!DOCTYPE html>
    <html lang="zh-CN">
    <head>
    <meta charset="utf-8">
    <meta name="color-scheme" content="light dark">
    <meta name="supported-color-schemes" content="light dark">
    </head>
    <body style="font-family:system-ui,sans-serif;font-size:14px;line-height:1.5">
    <h2 style="margin:0 0 12px;padding-left:10px;border-left:4px solid #f08c00;font-size:18px">🟠 警告：告警规则 payroll-failures 触发 39 条告警</h2>
    <p style="margin:4px 0">命名空间：default</p>
    <p style="margin:4px 0">告警规则：payroll-failures</p>
    <p style="margin:4px 0">Salaries are paid on the 28th.</p>
    <h3 style="margin:16px 0 4px;font-size:15px">🟠 任务 <strong>payroll</strong> 执行失败（3 次）</h3>
    <p style="margin:4px 0">首次发生：2026-11-28 14:00:00 UTC · 最近发生：2026-11-28 14:03:00 UTC</p>
    <p style="margin:4px 0">错误信息：</p>
    <pre style="margin:4px 0;padding:8px;border:1px solid #999999;border-radius:4px;font-size:12px;white-space:pre-wrap">exit code 1</pre>
    <p style="margin:4px 0">日志：</p>
    <pre style="margin:4px 0;padding:8px;border:1px solid #999999;border-radius:4px;font-size:12px;white-space:pre-wrap">connecting to db
    error: timeout</pre>
    <p style="margin:4px 0"><a href="https://belfry.example.com/jobs/job_00000000000000000000000001">查看任务</a> · <a href="https://belfry.example.com/runs/run_00000000000000000000000002">查看运行实例</a> · <a href="https://belfry.example.com/alerts/7">查看告警</a></p>
    <h3 style="margin:16px 0 4px;font-size:15px">✅ 已解决：任务 <strong>invoices</strong> 执行失败（3 次）</h3>
    <p style="margin:4px 0">首次发生：2026-11-28 14:00:00 UTC · 最近发生：2026-11-28 14:03:00 UTC · 解决时间：2026-11-28 14:03:04 UTC</p>
    <p style="margin:4px 0">错误信息：</p>
    <pre style="margin:4px 0;padding:8px;border:1px solid #999999;border-radius:4px;font-size:12px;white-space:pre-wrap">exit code 1</pre>
    <p style="margin:4px 0"><a href="https://belfry.example.com/jobs/job_00000000000000000000000001">查看任务</a> · <a href="https://belfry.example.com/runs/run_00000000000000000000000002">查看运行实例</a> · <a href="https://belfry.example.com/alerts/8">查看告警</a></p>
    <p style="margin:4px 0">另有 37 条告警未列出</p>
    <p style="margin:4px 0"><a href="https://wiki.example.com/payroll">处理手册</a> · <a href="https://belfry.example.com/alerts">查看全部告警</a></p>
    </body>
    </html>
    "#);
}

#[test]
fn slack_lists_several_alerts_and_counts_the_others() {
    let body = body("slack", &summary());
    let texts: Vec<_> = body["attachments"][0]["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["text"]["text"].as_str().unwrap())
        .collect();
    insta::assert_snapshot!(texts.join("\n---\n"), @r#"
    命名空间：`default` · 告警规则：`payroll-failures`
    Salaries are paid on the 28th.
    ---
    🟠 任务 `payroll` 执行失败（3 次）
    首次发生：2026-11-28 14:00:00 UTC · 最近发生：2026-11-28 14:03:00 UTC
    ```
    exit code 1
    ```
    ```
    connecting to db
    error: timeout
    ```
    <https://belfry.example.com/jobs/job_00000000000000000000000001|查看任务> · <https://belfry.example.com/runs/run_00000000000000000000000002|查看运行实例> · <https://belfry.example.com/alerts/7|查看告警>
    ---
    ✅ 已解决：任务 `invoices` 执行失败（3 次）
    首次发生：2026-11-28 14:00:00 UTC · 最近发生：2026-11-28 14:03:00 UTC · 解决时间：2026-11-28 14:03:04 UTC
    ```
    exit code 1
    ```
    <https://belfry.example.com/jobs/job_00000000000000000000000001|查看任务> · <https://belfry.example.com/runs/run_00000000000000000000000002|查看运行实例> · <https://belfry.example.com/alerts/8|查看告警>
    ---
    另有 37 条告警未列出
    <https://wiki.example.com/payroll|处理手册> · <https://belfry.example.com/alerts|查看全部告警>
    "#);
}

#[test]
fn the_headers_of_a_webhook_have_its_signature_and_cannot_be_replaced() {
    let mut target = target("webhook");
    if let Target::Webhook { headers, .. } = &mut target {
        headers.insert("Webhook-Id".to_owned(), SecretText::new("other"));
    }
    let Delivery::Http(request) = render(&target, &message(), NOW) else { panic!("a webhook is a request") };
    let signature = super::super::sign::webhook(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "belfry-42",
        1_795_874_700,
        &request.body,
    );
    let expected = [
        ("content-type", "application/cloudevents+json"),
        ("webhook-id", "belfry-42"),
        ("webhook-timestamp", "1795874700"),
        ("webhook-signature", signature.as_str()),
        ("authorization", "Bearer geheimes-wort"),
    ];
    assert_eq!(request.headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn urls_have_what_each_service_requires() {
    let urls = |message: &Message| {
        let urls = targets().into_iter().filter(|target| target.kind() != "email");
        urls.map(|target| format!("{}\n", request(target.kind(), message).url)).collect::<String>()
    };
    insta::assert_snapshot!(urls(&resolved()), @r#"
    https://hooks.example.com/belfry
    https://hooks.slack.com/services/T00/B00/geheimnis-von-slack
    https://teams.example.com/workflows/1?sig=geheimnis-von-teams
    https://discord.com/api/webhooks/1/geheimnis-von-discord
    https://api.telegram.org/bot123456:geheimnis-von-telegram/sendMessage
    https://events.pagerduty.com/v2/enqueue
    https://api.opsgenie.com/v2/alerts/belfry%2Fdefault%2Fpayroll%2Dfailures/close?identifierType=alias
    http://alertmanager:9093/api/v2/alerts
    https://oapi.dingtalk.com/robot/send?access_token=geheimnis-von-dingtalk&timestamp=1795874700500&sign=Xwj6mJK4ulX%2Fpqq8begR%2BIKdMcJCPKxW0PiwbwBwh78%3D
    https://open.feishu.cn/open-apis/bot/v2/hook/geheimnis-von-feishu
    https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=geheimnis-von-wecom
    "#);
    assert_eq!(request("opsgenie", &message()).url, "https://api.opsgenie.com/v2/alerts");
    assert!(
        request("opsgenie", &message())
            .headers
            .contains(&("authorization".to_owned(), "GenieKey geheimnis-von-opsgenie".to_owned()))
    );
}

#[test]
fn a_resolved_message_says_so_at_every_service() {
    let message = resolved();
    assert_eq!(body("webhook", &message)["type"], "belfry.alert.resolved");
    assert_eq!(body("pagerduty", &message)["event_action"], "resolve");
    assert_eq!(body("opsgenie", &message)["note"], "✅ Resolved: Job payroll failed (3 times)");
    assert_eq!(body("alertmanager", &message)[0]["endsAt"], "2026-11-28T14:03:04Z");
    assert_eq!(body("feishu", &message)["card"]["header"]["template"], "green");
    assert_eq!(email(&message).subject, "✅ Resolved: Job payroll failed (3 times)");
}

#[test]
fn a_message_with_one_open_alert_resolves_no_incident() {
    let message = summary();
    assert_eq!(body("pagerduty", &message)["event_action"], "trigger");
    assert_eq!(body("webhook", &message)["type"], "belfry.alert.firing");
    assert_eq!(request("opsgenie", &message).url, "https://api.opsgenie.com/v2/alerts");
}

#[test]
fn a_test_is_marked_and_has_an_incident_of_its_own() {
    let message = Message { is_test: true, ..message() };
    assert_eq!(body("webhook", &message)["type"], "belfry.alert.test");
    assert_eq!(body("pagerduty", &message)["dedup_key"], "belfry/default/payroll-failures/test");
    let alert = &body("alertmanager", &message)[0];
    assert_eq!(
        (&alert["labels"]["test"], &alert["endsAt"]),
        (&"true".into(), &"2026-11-28T14:08:05Z".into())
    );
    let email = email(&message);
    assert_eq!(email.subject, "🔴 [Test] Critical: Job payroll failed (3 times)");
    assert!(email.text.contains("This is a test notification. No action is required."));
}

#[test]
fn without_a_dashboard_there_are_no_links_to_it() {
    let message = Message { dashboard: None, ..message() };
    for target in targets().into_iter().filter(|target| target.kind() != "email") {
        let body = String::from_utf8(request(target.kind(), &message).body).unwrap();
        assert!(!body.contains("belfry.example.com"), "{body}");
    }
    assert!(!email(&message).html.contains("belfry.example.com"));
}
