/** Quotas of namespaces: amounts as text, usage with its limit, and the form of the settings. */

import type { TFunction } from "i18next";

import type {
  Namespace,
  NamespaceSettings,
  PriorityClass,
  SandboxLevel,
  SandboxNetwork,
} from "../api/schema";
import { PRIORITY_CLASSES } from "./priorityClasses";
import { formatBytes, parseBytes, parseCpu } from "./quantities";

/** Limited resources with a column of their own, in its order. */
export const QUOTA_RESOURCES = ["jobs", "running", "cpu", "memory"] as const;
export type QuotaResource = (typeof QUOTA_RESOURCES)[number];

/** Class of a namespace that sets none: it allows every class. */
const DEFAULT_HIGHEST_CLASS: PriorityClass = PRIORITY_CLASSES[0];

/** Formats cores to the millicore: a rounded quota would contradict its usage. */
function formatCores(cores: number): string {
  return String(Math.round(cores * 1_000) / 1_000);
}

/** Returns an amount of a waiting reason: CPU in millicores, memory in bytes, or a number of a custom resource. */
export function quotaAmount(resource: string, amount: number, t: TFunction): string {
  if (resource === "cpu") return t("namespace.amountCpu", { cores: formatCores(amount / 1_000) });
  if (resource === "memory") return t("namespace.amountMemory", { bytes: formatBytes(amount) });
  return `${amount.toLocaleString()} ${resource}`;
}

/** Usage of a resource, and its limit, which is null if the resource is unlimited. */
export interface UsedAmount {
  used: string;
  limit: string | null;
}

export function usageOf({ usage, settings }: Namespace, resource: QuotaResource): UsedAmount {
  const format = (amount: string | number) => {
    if (resource === "cpu") return formatCores(parseCpu(amount));
    if (resource === "memory") return formatBytes(parseBytes(amount));
    return Number(amount).toLocaleString();
  };
  const limit = settings.quota?.[resource];
  return { used: format(usage[resource]), limit: limit == null ? null : format(limit) };
}

/** Returns the custom resources that are in use or limited, by name. */
export function customUsage({ usage, settings }: Namespace): Array<UsedAmount & { name: string }> {
  const limits = settings.quota?.custom ?? {};
  const names = new Set([...Object.keys(limits), ...Object.keys(usage.custom ?? {})]);
  return [...names]
    .sort((a, b) => a.localeCompare(b))
    .map((name) => ({
      name,
      used: (usage.custom?.[name] ?? 0).toLocaleString(),
      limit: limits[name]?.toLocaleString() ?? null,
    }));
}

export function highestClass({ max_priority_class: highest }: NamespaceSettings): PriorityClass {
  return highest ?? DEFAULT_HIGHEST_CLASS;
}

/** Settings of a namespace as form fields; an empty field is unlimited. */
export interface QuotaForm {
  cpu: string;
  memory: string;
  running: string;
  jobs: string;
  /** Custom resources, such as `gpu=2, license=5`. */
  custom: string;
  highest: PriorityClass;
  /** Minimum sandbox of processes. */
  sandbox: SandboxLevel;
  /** Most open network of sandboxes; null if jobs can have any. */
  network: SandboxNetwork | null;
  note: string;
}

export function formOf(settings: NamespaceSettings): QuotaForm {
  const { cpu, memory, running, jobs, custom = {} } = settings.quota ?? {};
  const text = (amount: string | number | null | undefined) => String(amount ?? "");
  return {
    cpu: text(cpu),
    memory: text(memory),
    running: text(running),
    jobs: text(jobs),
    custom: Object.entries(custom)
      .map(([name, amount]) => `${name}=${amount}`)
      .join(", "),
    highest: highestClass(settings),
    sandbox: settings.sandbox?.level ?? "none",
    network: settings.sandbox?.network ?? null,
    note: settings.note ?? "",
  };
}

/** Parses custom resources such as `gpu=2, license=5`; null if they are invalid. */
export function parseCustom(text: string): Record<string, number> | null {
  const parts = text.split(/[\s,;，、；]+/).filter((part) => part !== "");
  const pairs = parts.map((part) => /^([^=]+)=(\d+)$/.exec(part));
  if (pairs.includes(null)) return null;
  const custom = pairs.map((pair) => [pair?.[1] ?? "", Number(pair?.[2])] as const);
  const names = new Set(custom.map(([name]) => name));
  return names.size === custom.length ? Object.fromEntries(custom) : null;
}

/** Returns the settings of a form without defaults; null if the custom resources are invalid. */
export function settingsOf(form: QuotaForm): NamespaceSettings | null {
  const custom = parseCustom(form.custom);
  if (custom === null) return null;
  const amount = (text: string) => text.trim() || undefined;
  const number = (text: string) => (text.trim() === "" ? undefined : Number(text));
  return {
    quota: {
      cpu: amount(form.cpu),
      memory: amount(form.memory),
      running: number(form.running),
      jobs: number(form.jobs),
      custom,
    },
    // A network needs a sandbox.
    sandbox:
      form.sandbox === "none" ? undefined : { level: form.sandbox, network: form.network ?? undefined },
    max_priority_class: form.highest === DEFAULT_HIGHEST_CLASS ? undefined : form.highest,
    note: amount(form.note),
  };
}
