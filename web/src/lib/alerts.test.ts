/** Filters of alerts and rules, their sentences, and the texts of all conditions and statuses of the server. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

import i18next, { type TFunction } from "i18next";
import { beforeAll, expect, test } from "vitest";

import type { Alert } from "../api/schema";
import { EN } from "../i18n/texts";
import english from "../i18n/en.json";
import chinese from "../i18n/zh-CN.json";
import { CHANNEL_KINDS } from "./alertForms";
import {
  actOf,
  ALERT_STATUSES,
  alertSentence,
  alertStatusesOf,
  CONDITION_KINDS,
  conditionSentence,
  CONDITIONS,
  durationText,
  NOTIFICATION_STATUSES,
  sampleCommand,
  selectionTexts,
  SEVERITIES,
  subjectName,
  toAlertsQuery,
  toNotificationsQuery,
  variantOf,
  withAlertStatus,
} from "./alerts";

let t: TFunction;
let zh: TFunction;
beforeAll(async () => {
  const resources = { en: { translation: english }, "zh-CN": { translation: chinese } };
  const i18n = i18next.createInstance();
  await i18n.init({ lng: "en", resources, interpolation: { escapeValue: false } });
  t = i18n.getFixedT("en");
  zh = i18n.getFixedT("zh-CN");
});

const alert: Alert = {
  id: 7,
  namespace: "default",
  rule: "failed",
  condition: "job_failed",
  subject: { kind: "job", name: "etl" },
  severity: "warning",
  status: "firing",
  count: 1,
  summary: "job `etl` failed",
  opened_at: "2026-11-28T10:00:00Z",
  last_at: "2026-11-28T10:00:00Z",
};

test("a list shows open alerts by default, and keeps the default out of the address", () => {
  expect(alertStatusesOf({})).toEqual(["firing", "acknowledged"]);
  expect(alertStatusesOf({ status: "unknown" })).toEqual(["firing", "acknowledged"]);
  expect(alertStatusesOf({ status: "resolved,firing" })).toEqual(["firing", "resolved"]);
  expect(withAlertStatus({ rule: "a" }, "resolved")).toEqual({
    rule: "a",
    status: "firing,acknowledged,resolved",
  });
  expect(withAlertStatus({}, "acknowledged")).toEqual({ status: "firing" });
  expect(withAlertStatus({ status: "firing,acknowledged,resolved" }, "resolved").status).toBeUndefined();
  expect(withAlertStatus({ status: "resolved" }, "resolved").status).toBeUndefined();
});

test("unknown words of an address are not sent to the server", () => {
  expect(toAlertsQuery({ namespace: "*", severity: "loud", rule: "r", subject: "s" })).toEqual({
    status: "firing,acknowledged",
    rule: "r",
    subject: "s",
  });
  expect(toAlertsQuery({ namespace: "team", severity: "critical" })).toMatchObject({
    namespace: "team",
    severity: "critical",
  });
  expect(toNotificationsQuery({ status: "lost", channel: "ops" })).toEqual({ channel: "ops" });
});

test("an alert is a sentence in both languages", () => {
  expect(alertSentence(alert, t)).toBe("1 job failed");
  expect(alertSentence({ ...alert, count: 1_200 }, t)).toBe("1,200 jobs failed");
  expect(alertSentence({ ...alert, count: 1_200 }, zh)).toBe("1,200 个任务失败");
  expect(alertSentence({ ...alert, condition: "of_a_newer_server" }, t)).toBe(alert.summary);
  for (const condition of CONDITION_KINDS) {
    for (const translate of [t, zh]) {
      expect(alertSentence({ ...alert, condition, count: 3 }, translate)).not.toMatch(/alertSentence|\{\{/);
    }
  }
});

test("an acknowledged alert that recovers was not resolved by its user", () => {
  const acknowledged = { ...alert, status: "acknowledged", actor: "ann" } as const;
  expect(actOf(alert)).toBeNull();
  expect(actOf(acknowledged)).toBe("acknowledged");
  expect(actOf({ ...acknowledged, status: "resolved", resolved_by: "recovered" })).toBe("acknowledged");
  expect(actOf({ ...acknowledged, status: "resolved", resolved_by: "resolved_by_user" })).toBe("resolved");
  expect(actOf({ ...alert, status: "resolved", resolved_by: "recovered" })).toBeNull();
});

test("an alert about all further objects has no name", () => {
  expect(subjectName(alert, t)).toBe("etl");
  expect(subjectName({ subject: { kind: "queue", name: "" } }, t)).toBe("Further queues");
});

test("a condition is a sentence with its number and duration", () => {
  expect(conditionSentence({ job_failed: {} }, t)).toBe("A job fails");
  expect(conditionSentence({ job_failed: { in_a_row: 3 } }, t)).toBe("3 jobs of a name fail in a row");
  expect(conditionSentence({ failure_rate: { failures: 5, within: "90m" } }, t)).toBe(
    "5 jobs of a name fail within 1h 30m",
  );
  expect(conditionSentence({ queue_delay: { longer_than: "15m" } }, t)).toBe(
    "A job waits in a queue longer than 15m",
  );
  expect(conditionSentence({ no_success: { within: "1d" } }, zh)).toBe("任务超过 1d 没有成功");
  expect(conditionSentence({ worker_lost: {} }, t)).toBe("A worker is lost");
  expect(durationText("soon")).toBe("soon");
});

test("a selection names each field", () => {
  expect(selectionTexts(undefined, t)).toEqual([]);
  expect(selectionTexts({ name: "etl-*", labels: { team: "pay", gpu: "" } }, t)).toEqual([
    "Name: etl-*",
    "team=pay",
    "gpu",
  ]);
});

test("the sample names the namespace unless it is the default", () => {
  expect(sampleCommand("default")).not.toContain("namespace");
  expect(sampleCommand("team")).toContain("\nnamespace: team\n");
});

function source(path: string): string {
  return readFileSync(join(import.meta.dirname, "../../../crates/model/src", path), "utf8");
}

/** Returns the names of a constant list in Rust. */
function listed(text: string, constant: string): string[] {
  const [, body = ""] =
    new RegExp(`${constant}: \\[&'static str; \\d+\\] = \\[([^\\]]*)\\]`).exec(text) ?? [];
  return [...body.matchAll(/"(\w+)"/g)].map(([, name = ""]) => name);
}

/** Returns the words of an enumeration in Rust. */
function words(text: string, name: string): string[] {
  const [, body = ""] = new RegExp(`words! \\{ ${name},[^{]*\\{([^}]*)\\}`).exec(text) ?? [];
  return [...body.matchAll(/"([\w-]+)"/g)].map(([, word = ""]) => word);
}

test("the forms have every condition and every service of the server", () => {
  expect(CONDITION_KINDS).toEqual(listed(source("alert/mod.rs"), "NAMES"));
  expect(CHANNEL_KINDS).toEqual(listed(source("alert/channel.rs"), "KINDS"));
  expect(variantOf({ slack: { url: "" } })).toBe("slack");
});

test("the filters have every status and severity of the server, each with a text", () => {
  const [rules, api] = [source("alert/mod.rs"), source("api/alerts.rs")];
  const sorted = (names: readonly string[]) => [...names].sort();
  expect(sorted(ALERT_STATUSES)).toEqual(sorted(words(api, "AlertStatus")));
  expect(sorted(NOTIFICATION_STATUSES)).toEqual(sorted(words(api, "NotificationStatus")));
  expect(sorted(SEVERITIES)).toEqual(sorted(words(rules, "Severity")));
  const kinds = words(rules, "SubjectKind");
  expect(sorted([...new Set(Object.values(CONDITIONS).map(({ subject }) => subject))])).toEqual(
    sorted(kinds),
  );
  const keys = [
    ...ALERT_STATUSES.map((status) => `alertStatus.${status}`),
    ...NOTIFICATION_STATUSES.map((status) => `notificationStatus.${status}`),
    ...SEVERITIES.flatMap((severity) => [`severity.${severity}`, `severityHint.${severity}`]),
    ...kinds.flatMap((kind) => [`alertSubject.kind.${kind}`, `alertSubject.further.${kind}`]),
    ...CONDITION_KINDS.map((kind) => `alertCondition.${kind}`),
  ];
  expect(keys.filter((key) => !EN.has(key))).toEqual([]);
});
