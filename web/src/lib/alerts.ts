/** Alerts: filters of their lists, and sentences about alerts and rules. The forms are in `alertForms.ts`. */

import type { TFunction } from "i18next";

import type {
  Alert,
  AlertCondition,
  AlertMatch,
  AlertStatus,
  NotificationStatus,
  Severity,
  Silence,
  AlertSubjectKind,
} from "../api/schema";
import { isAllNamespaces } from "./namespaces";
import { formatDuration, parseDuration } from "./quantities";

export const ALERT_STATUSES = [
  "firing",
  "acknowledged",
  "resolved",
] as const satisfies readonly AlertStatus[];
/** The most severe first. */
export const SEVERITIES = ["critical", "warning", "info"] as const satisfies readonly Severity[];
export const NOTIFICATION_STATUSES = [
  "waiting",
  "delivered",
  "failed",
] as const satisfies readonly NotificationStatus[];

/** Returns the name of a variant: of a condition, or of the service of a channel. */
export function variantOf<T extends object>(variant: T): T extends T ? keyof T : never {
  return Object.keys(variant)[0] as T extends T ? keyof T : never;
}

export type ConditionKind = AlertCondition extends infer C ? (C extends C ? keyof C : never) : never;

interface ConditionFields {
  subject: AlertSubjectKind;
  /** Field with a number, and its value in a new rule. */
  count?: readonly [field: string, initial: number];
  /** Field with a duration, and its value in a new rule. */
  duration?: readonly [field: string, initial: string];
}

/** Conditions of rules, in the order of the docs, with their fields. */
export const CONDITIONS: Readonly<Record<ConditionKind, ConditionFields>> = {
  job_failed: { subject: "job", count: ["in_a_row", 1] },
  failure_rate: { subject: "job", count: ["failures", 3], duration: ["within", "1h"] },
  job_late: { subject: "job", duration: ["after", "15m"] },
  job_slow: { subject: "job", duration: ["after", "1h"] },
  job_overdue: { subject: "job" },
  no_success: { subject: "job", duration: ["within", "1d"] },
  run_failed: { subject: "workflow", count: ["in_a_row", 1] },
  firing_skipped: { subject: "schedule" },
  schedule_paused: { subject: "schedule" },
  service_degraded: { subject: "service", duration: ["longer_than", "5m"] },
  rollout_failed: { subject: "service" },
  worker_lost: { subject: "worker" },
  queue_delay: { subject: "queue", duration: ["longer_than", "15m"] },
  monitor_down: { subject: "monitor" },
};
export const CONDITION_KINDS = Object.keys(CONDITIONS) as ConditionKind[];

/** Filters of the list of alerts, in its address. */
export interface AlertsSearch {
  namespace?: string;
  /** Statuses, separated by commas; open alerts by default. */
  status?: string;
  severity?: string;
  /** Name of a rule. */
  rule?: string;
  /** Name of a job, workflow, schedule, service, worker, queue or monitor. */
  subject?: string;
}

const DEFAULT_STATUSES = "firing,acknowledged";

/** Returns the statuses that a list shows. */
export function alertStatusesOf({ status = DEFAULT_STATUSES }: AlertsSearch): AlertStatus[] {
  const words = status.split(",");
  const chosen = ALERT_STATUSES.filter((each) => words.includes(each));
  return chosen.length > 0 ? chosen : alertStatusesOf({});
}

/** Shows a status if it was hidden, else hides it. The default is not in the address, and a list of no status is it. */
export function withAlertStatus(search: AlertsSearch, toggled: AlertStatus): AlertsSearch {
  const shown = alertStatusesOf(search);
  const next = ALERT_STATUSES.filter((each) => (each === toggled) !== shown.includes(each)).join(",");
  return { ...search, status: next === "" || next === DEFAULT_STATUSES ? undefined : next };
}

/** Returns the parameters of the API. Unknown words of an address are left out. */
export function toAlertsQuery(search: AlertsSearch) {
  const { namespace, severity, rule, subject } = search;
  return {
    namespace: isAllNamespaces(namespace) ? undefined : namespace,
    status: alertStatusesOf(search).join(","),
    severity: SEVERITIES.find((each) => each === severity),
    rule,
    subject,
  };
}

/** Filters of the list of notifications; in its address, all but the alert. */
export interface NotificationsSearch {
  namespace?: string;
  status?: string;
  rule?: string;
  channel?: string;
  /** Number of an alert. */
  alert?: number;
}

export function toNotificationsQuery({ namespace, status, rule, channel, alert }: NotificationsSearch) {
  return {
    namespace: isAllNamespaces(namespace) ? undefined : namespace,
    status: NOTIFICATION_STATUSES.find((each) => each === status),
    rule,
    channel,
    alert,
  };
}

/** Conditions that the server observes: it resolves their alerts itself, and opens them again while they are met. */
const OBSERVED = [
  "job_late",
  "job_slow",
  "no_success",
  "schedule_paused",
  "service_degraded",
  "worker_lost",
  "queue_delay",
  "monitor_down",
];

/** Whether a user may resolve the alert by hand. */
export function mayResolve({ condition, subject }: Pick<Alert, "condition" | "subject">): boolean {
  return !OBSERVED.includes(condition) || subject.name === "";
}

export function isOpen({ status }: Pick<Alert, "status">): boolean {
  return status !== "resolved";
}

/**
 * Returns what the user of an alert did last; null if no user did anything. An acknowledged alert that recovers keeps the
 * user who acknowledged it.
 */
export function actOf({ status, actor, resolved_by: by }: Alert): "acknowledged" | "resolved" | null {
  if (!actor) return null;
  return status === "resolved" && by === "resolved_by_user" ? "resolved" : "acknowledged";
}

/** Formats a duration of the API. A text that is not a duration stays as it is. */
export function durationText(duration: string): string {
  const ms = parseDuration(duration);
  return ms === null ? duration : formatDuration(ms);
}

/** Returns a sentence about an alert; the server's summary for a condition of a newer server. */
export function alertSentence({ condition, count, summary }: Alert, t: TFunction): string {
  const known = CONDITION_KINDS.find((each) => each === condition);
  return known ? t(`alertSentence.${known}`, { count }) : summary;
}

/** Returns the name of the object of an alert; a word for all further objects of a rule. */
export function subjectName({ subject: { kind, name } }: Pick<Alert, "subject">, t: TFunction): string {
  return name === "" ? t(`alertSubject.further.${kind}`) : name;
}

/** Returns the condition of a rule as a sentence. */
export function conditionSentence(when: AlertCondition, t: TFunction): string {
  const kind = variantOf(when);
  const fields = (when as Record<string, Record<string, string | number> | undefined>)[kind] ?? {};
  const { count, duration } = CONDITIONS[kind] ?? {};
  const number = count && Number(fields[count[0]] ?? count[1]);
  if (kind === "job_failed" && number === 1) return t("ruleSentence.job_fails");
  if (kind === "run_failed" && number === 1) return t("ruleSentence.run_fails");
  return t(`ruleSentence.${kind}`, {
    count: number,
    duration: duration && durationText(String(fields[duration[0]] ?? "")),
  });
}

/** Returns the selection of a rule as `field=value` texts; none for all objects. */
export function selectionTexts(match: AlertMatch | undefined, t: TFunction): string[] {
  const { name, owner, queue, labels = {} } = match ?? {};
  return [
    name && `${t("alertRule.match.name")}${t("common.colon")}${name}`,
    owner && `${t("alertRule.match.owner")}${t("common.colon")}${owner}`,
    queue && `${t("alertRule.match.queue")}${t("common.colon")}${queue}`,
    ...Object.entries(labels).map(([key, value]) => (value === "" ? key : `${key}=${value}`)),
  ].filter((text) => typeof text === "string" && text !== "") as string[];
}

/** Returns whether a silence has started. */
export function isActive({ starts_at: start }: Pick<Silence, "starts_at">, now: number): boolean {
  return Date.parse(start) <= now;
}

/** Durations of silences to choose from. */
export const SILENCE_DURATIONS = ["1h", "4h", "1d", "7d"] as const;

/** Returns the command that creates a first rule from a file. */
export function sampleCommand(namespace: string | undefined): string {
  const lines = [
    "cat > alerts.yaml <<'EOF'",
    "version: 1",
    "kind: alert",
    "name: failed-jobs",
    ...(namespace === undefined || namespace === "default" ? [] : [`namespace: ${namespace}`]),
    "spec:",
    "  when: { job_failed: { in_a_row: 1 } }",
    "  severity: critical",
    "EOF",
    "belfry apply -f alerts.yaml",
  ];
  return lines.join("\n");
}
