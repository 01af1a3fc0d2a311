/** Forms of alert rules and channels produce the specs of the API. */

import { expect, test } from "vitest";

import type { AlertRuleSpec, Target } from "../api/schema";
import {
  CHANNEL_FIELDS,
  CHANNEL_KINDS,
  channelForm,
  channelSpec,
  HIDDEN,
  isMoved,
  newChannelForm,
  newRuleForm,
  ruleForm,
  ruleSpec,
  withCondition,
} from "./alertForms";
import { CONDITION_KINDS } from "./alerts";

/** Returns what is sent: without absent members. */
function sent(value: object): unknown {
  return JSON.parse(JSON.stringify(value));
}

test("an escalation needs channels, and others before them", () => {
  const form = { ...newRuleForm("default"), notify: ["ops"], escalateTo: ["ops", "boss"] };
  expect(ruleSpec(form).escalate).toEqual({ after: "30m", notify: ["boss"] });
  expect(ruleSpec({ ...form, escalateTo: ["ops"] }).escalate).toBeUndefined();
  expect(ruleSpec({ ...form, notify: [] }).escalate).toBeUndefined();
});

test("a new rule is about failed jobs", () => {
  expect(sent(ruleSpec({ ...newRuleForm("team"), name: " failed " }))).toEqual({
    name: "failed",
    namespace: "team",
    when: { job_failed: { in_a_row: 1 } },
    severity: "warning",
    notify: [],
    repeat_every: "4h",
    notify_resolved: true,
    disabled: false,
  });
});

test("a rule stays the same in the form", () => {
  const spec: AlertRuleSpec = {
    name: "nightly",
    namespace: "team",
    owner: "ann",
    description: "Nightly jobs",
    when: { failure_rate: { failures: 5, within: "2h" } },
    match: { name: "nightly-*", owner: "ann", queue: "big", labels: { team: "pay=1", gpu: "" } },
    severity: "critical",
    notify: ["ops", "chat"],
    escalate: { after: "15m", notify: ["boss"] },
    repeat_every: "30m",
    notify_resolved: false,
    runbook: "https://wiki.example.com/nightly",
    disabled: true,
  };
  expect(sent(ruleSpec(ruleForm(spec)))).toEqual(spec);
});

test("each condition has its fields, only jobs have a queue, and jobs and monitors an owner and labels", () => {
  const form = {
    ...newRuleForm("default"),
    matchName: "a*",
    matchOwner: "ann",
    labels: ["gpu"],
    matchQueue: "",
  };
  const specs = CONDITION_KINDS.map((kind) => ruleSpec(withCondition(form, kind)));
  expect(specs.map(({ when }) => when)).toEqual([
    { job_failed: { in_a_row: 1 } },
    { failure_rate: { failures: 3, within: "1h" } },
    { job_late: { after: "15m" } },
    { job_slow: { after: "1h" } },
    { job_overdue: {} },
    { no_success: { within: "1d" } },
    { run_failed: { in_a_row: 1 } },
    { firing_skipped: {} },
    { schedule_paused: {} },
    { service_degraded: { longer_than: "5m" } },
    { rollout_failed: {} },
    { worker_lost: {} },
    { queue_delay: { longer_than: "15m" } },
    { monitor_down: {} },
  ]);
  const [ofJobs, ofQueues, ofMonitors] = [specs[0], ...specs.slice(-2)].map((spec) =>
    sent(spec?.match ?? {}),
  );
  expect(ofMonitors).toEqual({ name: "a*", owner: "ann", labels: { gpu: "" } });
  expect(ofJobs).toEqual({ name: "a*", owner: "ann", labels: { gpu: "" } });
  expect(ofQueues).toEqual({ name: "a*" });
  expect(ruleSpec(newRuleForm("default")).match).toBeUndefined();
});

const TARGETS: Target[] = [
  {
    webhook: {
      url: "https://a.example",
      secret: HIDDEN,
      headers: { Authorization: HIDDEN, "X-Team": HIDDEN },
    },
  },
  { slack: { url: HIDDEN } },
  { telegram: { token: HIDDEN, chat: "-100" } },
  { alertmanager: { url: "http://alertmanager:9093" } },
  { dingtalk: { url: HIDDEN, secret: HIDDEN } },
  {
    email: {
      to: ["ops@example.com", "Ann <ann@example.com>"],
      from: "Belfry <belfry@example.com>",
      server: "smtps://smtp.example.com",
    },
  },
];

test("a channel stays the same in the form, with its hidden secrets", () => {
  for (const to of TARGETS) {
    const spec = { name: "ops", namespace: "team", language: "zh-CN" as const, to };
    expect(sent(channelSpec(channelForm(spec)))).toEqual(spec);
  }
});

test("required fields are sent even if they are empty, so that the server names them", () => {
  for (const kind of CHANNEL_KINDS) {
    const { to } = channelSpec({ ...newChannelForm("default", "en"), kind });
    const fields = Object.keys((to as unknown as Record<string, object>)[kind] ?? {});
    expect(fields, kind).toEqual(
      CHANNEL_FIELDS[kind].filter(({ isOptional }) => !isOptional).map(({ key }) => key),
    );
  }
});

test("recipients are separated by commas, semicolons or lines", () => {
  const form = { ...newChannelForm("default", "en"), kind: "email" as const };
  const { to } = channelSpec({ ...form, values: { to: "a@b.c, d@e.f；\n Ann <g@h.i>," } });
  expect(to).toMatchObject({ email: { to: ["a@b.c", "d@e.f", "Ann <g@h.i>"] } });
});

test("headers without a name are left out, and other services have none", () => {
  const form = {
    ...newChannelForm("default", "en"),
    values: { url: "https://a.example" },
    headers: [
      { name: " X-Team ", value: "pay" },
      { name: "", value: "x" },
    ],
  };
  expect(channelSpec(form).to).toEqual({
    webhook: { url: "https://a.example", headers: { "X-Team": "pay" } },
  });
  expect(channelSpec({ ...form, kind: "slack" }).to).toEqual({ slack: { url: "https://a.example" } });
});

test("secrets must be entered again when the address changes", () => {
  const stored = channelForm({ name: "ops", to: TARGETS[0]! });
  expect(isMoved(stored, null)).toBe(false);
  expect(isMoved({ ...stored, values: { ...stored.values, secret: "another" } }, stored)).toBe(false);
  expect(isMoved({ ...stored, values: { ...stored.values, url: "https://b.example" } }, stored)).toBe(true);
  expect(isMoved({ ...stored, kind: "alertmanager" }, stored)).toBe(true);
  const slack = channelForm({ name: "chat", to: TARGETS[1]! });
  expect(isMoved({ ...slack, values: { url: "https://hooks.slack.com/new" } }, slack)).toBe(false);
});
