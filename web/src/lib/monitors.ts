/** Monitors: their timing as a text, their ping URLs, and forms that produce their specs. The server validates them. */

import type { TFunction } from "i18next";

import type { MonitorSpec, MonitorStatus, MonitorTiming, Ping } from "../api/schema";
import { durationText } from "./alerts";

const DEFAULT_NAMESPACE = "default";
const DEFAULT_GRACE = "5m";
const DEFAULT_ZONE = "UTC";

export const MONITOR_STATUSES = [
  "down",
  "late",
  "up",
  "new",
  "paused",
] as const satisfies readonly MonitorStatus[];

/** Returns the timing as a text, for example “every 1 d” or the cron expression with its time zone. */
export function timingText(timing: MonitorTiming, t: TFunction): string {
  if ("every" in timing) return t("monitor.every", { duration: durationText(timing.every) });
  const { expression, zone = DEFAULT_ZONE } = timing.cron;
  return `${expression} (${zone})`;
}

/** Completes a ping URL that is only a path, because the server does not know its public URL. */
export function completeUrl(url: string, origin: string): string {
  return url.startsWith("/") ? `${origin}${url}` : url;
}

/** Returns a line of a shell script that runs a job and reports its exit code. */
export function pingCommand(url: string): string {
  return `./job.sh; curl -fsS -m 10 --retry 5 ${url}/$?`;
}

/** Returns what a ping reported. */
export function pingText({ kind, exit_code: code }: Pick<Ping, "kind" | "exit_code">, t: TFunction): string {
  return kind === "fail" && code !== undefined ? t("ping.exitCode", { code }) : t(`ping.kind.${kind}`);
}

export type TimingKind = "every" | "cron";

/** A monitor as in the form. */
export interface MonitorForm {
  name: string;
  namespace: string;
  owner: string;
  description: string;
  /** Labels as `key=value`. */
  labels: string[];
  timing: TimingKind;
  every: string;
  expression: string;
  zone: string;
  grace: string;
  runTimeMax: string;
  enabled: boolean;
}

export function newMonitorForm(namespace: string, zone: string): MonitorForm {
  const form = monitorForm({ name: "", namespace, timing: { every: "1d" }, grace: "1h" });
  return { ...form, zone };
}

export function monitorForm(spec: MonitorSpec): MonitorForm {
  const { timing } = spec;
  const cron = "cron" in timing ? timing.cron : undefined;
  return {
    name: spec.name,
    namespace: spec.namespace ?? DEFAULT_NAMESPACE,
    owner: spec.owner ?? "",
    description: spec.description ?? "",
    labels: Object.entries(spec.labels ?? {}).map(([key, value]) => (value === "" ? key : `${key}=${value}`)),
    timing: cron ? "cron" : "every",
    every: "every" in timing ? timing.every : "1d",
    expression: cron?.expression ?? "30 2 * * *",
    zone: cron?.zone ?? DEFAULT_ZONE,
    grace: spec.grace ?? DEFAULT_GRACE,
    runTimeMax: spec.run_time_max ?? "",
    enabled: !spec.paused,
  };
}

export function monitorSpec(form: MonitorForm): MonitorSpec {
  const labels = labelsOf(form.labels);
  return {
    name: form.name.trim(),
    namespace: form.namespace.trim(),
    owner: optional(form.owner),
    description: optional(form.description),
    ...(Object.keys(labels).length > 0 && { labels }),
    timing:
      form.timing === "every"
        ? { every: form.every.trim() }
        : { cron: { expression: form.expression.trim(), zone: form.zone.trim() || DEFAULT_ZONE } },
    grace: form.grace.trim() || DEFAULT_GRACE,
    run_time_max: optional(form.runTimeMax),
    paused: !form.enabled,
  };
}

/** Returns labels of the form `key=value`. */
export function labelsOf(texts: readonly string[]): Record<string, string> {
  const pairs = texts.map((text) => {
    const [key = "", ...value] = text.split("=");
    return [key.trim(), value.join("=").trim()] as const;
  });
  return Object.fromEntries(pairs.filter(([key]) => key !== ""));
}

function optional(text: string): string | undefined {
  return text.trim() || undefined;
}
