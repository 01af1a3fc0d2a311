/** Forms of alert rules and channels, and the specs that they produce. The server validates them. */

import type {
  AlertCondition,
  AlertMatch,
  AlertRuleSpec,
  ChannelSpec,
  Escalation,
  Language,
  Severity,
  Target,
} from "../api/schema";
import { CONDITIONS, type ConditionKind, variantOf } from "./alerts";
import { labelsOf } from "./monitors";

const DEFAULT_NAMESPACE = "default";
const DEFAULT_REPEAT = "4h";
const DEFAULT_ESCALATION = "30m";

/** An alert rule as in the form. */
export interface RuleForm {
  name: string;
  namespace: string;
  owner: string;
  description: string;
  kind: ConditionKind;
  /** Number of the condition, if it has one. */
  count: string | number;
  /** Duration of the condition, if it has one. */
  duration: string;
  matchName: string;
  matchOwner: string;
  matchQueue: string;
  /** Labels as `key=value`. */
  labels: string[];
  severity: Severity;
  notify: string[];
  /** Time until the escalation; empty for none. */
  escalateAfter: string;
  escalateTo: string[];
  repeat: string;
  notifyResolved: boolean;
  runbook: string;
  enabled: boolean;
}

export function newRuleForm(namespace: string): RuleForm {
  return ruleForm({ name: "", namespace, when: { job_failed: {} } });
}

export function ruleForm(spec: AlertRuleSpec): RuleForm {
  const kind = variantOf(spec.when);
  const fields = (spec.when as Record<string, Record<string, string | number>>)[kind] ?? {};
  const { count, duration } = CONDITIONS[kind];
  const { name, owner, queue, labels = {} } = spec.match ?? {};
  return {
    name: spec.name,
    namespace: spec.namespace ?? DEFAULT_NAMESPACE,
    owner: spec.owner ?? "",
    description: spec.description ?? "",
    kind,
    count: count ? (fields[count[0]] ?? count[1]) : "",
    duration: duration ? String(fields[duration[0]] ?? duration[1]) : "",
    matchName: name ?? "",
    matchOwner: owner ?? "",
    matchQueue: queue ?? "",
    labels: Object.entries(labels).map(([key, value]) => (value === "" ? key : `${key}=${value}`)),
    severity: spec.severity ?? "warning",
    notify: spec.notify ?? [],
    escalateAfter: spec.escalate?.after ?? "",
    escalateTo: spec.escalate?.notify ?? [],
    repeat: spec.repeat_every ?? DEFAULT_REPEAT,
    notifyResolved: spec.notify_resolved ?? true,
    runbook: spec.runbook ?? "",
    enabled: !spec.disabled,
  };
}

/** Changes the condition, with the values of a new rule. */
export function withCondition(form: RuleForm, kind: ConditionKind): RuleForm {
  const { count, duration } = CONDITIONS[kind];
  return { ...form, kind, count: count?.[1] ?? "", duration: duration?.[1] ?? "" };
}

/** Returns whether the condition concerns jobs, which have a queue. */
export function selectsJobs({ kind }: Pick<RuleForm, "kind">): boolean {
  return CONDITIONS[kind].subject === "job";
}

/** Returns whether the condition concerns objects that have an owner and labels: jobs and monitors. */
export function selectsOwned({ kind }: Pick<RuleForm, "kind">): boolean {
  return ["job", "monitor"].includes(CONDITIONS[kind].subject);
}

export function ruleSpec(form: RuleForm): AlertRuleSpec {
  return {
    name: form.name.trim(),
    namespace: form.namespace.trim(),
    owner: optional(form.owner),
    description: optional(form.description),
    when: condition(form),
    match: match(form),
    severity: form.severity,
    notify: form.notify,
    escalate: escalation(form),
    repeat_every: form.repeat.trim() || DEFAULT_REPEAT,
    notify_resolved: form.notifyResolved,
    runbook: optional(form.runbook),
    disabled: !form.enabled,
  };
}

/** Returns the escalation; absent without channels, and if no channel is notified before. */
function escalation({ notify: first, escalateAfter, escalateTo }: RuleForm): Escalation | undefined {
  const notify = escalateTo.filter((name) => !first.includes(name));
  if (first.length === 0 || notify.length === 0) return undefined;
  return { after: escalateAfter.trim() || DEFAULT_ESCALATION, notify };
}

function condition({ kind, count, duration }: RuleForm): AlertCondition {
  const fields = CONDITIONS[kind];
  const values = {
    ...(fields.count && { [fields.count[0]]: Number(count) }),
    ...(fields.duration && { [fields.duration[0]]: duration.trim() }),
  };
  return { [kind]: values } as unknown as AlertCondition;
}

/** Returns the selection; absent for all objects. Fields that the objects do not have are left out. */
function match(form: RuleForm): AlertMatch | undefined {
  const name = optional(form.matchName);
  const isOwned = selectsOwned(form);
  const owner = isOwned ? optional(form.matchOwner) : undefined;
  const queue = selectsJobs(form) ? optional(form.matchQueue) : undefined;
  const labels = isOwned ? labelsOf(form.labels) : {};
  const hasLabels = Object.keys(labels).length > 0;
  if (!name && !owner && !queue && !hasLabels) return undefined;
  return { name, owner, queue, ...(hasLabels && { labels }) };
}

function optional(text: string): string | undefined {
  return text.trim() || undefined;
}

/** Text that the API shows in place of a secret; it keeps the stored secret. */
export const HIDDEN = "******";

export type ChannelKind = Target extends infer T ? (T extends T ? keyof T : never) : never;

interface ChannelField {
  key: ChannelFieldKey;
  isSecret?: boolean;
  isOptional?: boolean;
  /** Example, or the default of an optional field. */
  example?: string;
}

export type ChannelFieldKey =
  | "url"
  | "secret"
  | "token"
  | "chat"
  | "routing_key"
  | "api_key"
  | "to"
  | "from"
  | "server"
  | "username"
  | "password";

const secretUrl = (example: string): ChannelField => ({ key: "url", isSecret: true, example });
const signature: ChannelField = { key: "secret", isSecret: true, isOptional: true };
const defaultUrl = (example: string): ChannelField => ({ key: "url", isOptional: true, example });

/** Services, in the order of the docs, with the fields of their forms. */
export const CHANNEL_FIELDS: Readonly<Record<ChannelKind, readonly ChannelField[]>> = {
  webhook: [{ key: "url", example: "https://example.com/belfry" }, signature],
  slack: [secretUrl("https://hooks.slack.com/services/…")],
  teams: [secretUrl("https://….logic.azure.com/…")],
  discord: [secretUrl("https://discord.com/api/webhooks/…")],
  telegram: [
    { key: "token", isSecret: true },
    { key: "chat", example: "-1001234567890" },
    defaultUrl("https://api.telegram.org"),
  ],
  pagerduty: [{ key: "routing_key", isSecret: true }, defaultUrl("https://events.pagerduty.com/v2/enqueue")],
  opsgenie: [{ key: "api_key", isSecret: true }, defaultUrl("https://api.opsgenie.com/v2/alerts")],
  alertmanager: [{ key: "url", example: "http://alertmanager:9093" }],
  dingtalk: [secretUrl("https://oapi.dingtalk.com/robot/send?access_token=…"), signature],
  feishu: [secretUrl("https://open.feishu.cn/open-apis/bot/v2/hook/…"), signature],
  wecom: [secretUrl("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=…")],
  email: [
    { key: "to", example: "ops@example.com, night@example.com" },
    { key: "from", example: "Belfry <belfry@example.com>" },
    { key: "server", example: "smtps://smtp.example.com" },
    { key: "username", isOptional: true },
    { key: "password", isSecret: true, isOptional: true },
  ],
};
export const CHANNEL_KINDS = Object.keys(CHANNEL_FIELDS) as ChannelKind[];

/** Returns whether requests to the service can have additional headers. */
export function hasHeaders(kind: ChannelKind): boolean {
  return kind === "webhook" || kind === "alertmanager";
}

export interface Header {
  name: string;
  value: string;
}

/** A channel as in the form. */
export interface ChannelForm {
  name: string;
  namespace: string;
  description: string;
  language: Language;
  kind: ChannelKind;
  values: Partial<Record<ChannelFieldKey, string>>;
  headers: Header[];
}

export function newChannelForm(namespace: string, language: Language): ChannelForm {
  return { name: "", namespace, description: "", language, kind: "webhook", values: {}, headers: [] };
}

export function channelForm(spec: ChannelSpec): ChannelForm {
  const kind = variantOf(spec.to);
  const fields = (spec.to as unknown as Record<ChannelKind, Record<string, unknown>>)[kind];
  const values = CHANNEL_FIELDS[kind].map(({ key }) => {
    const value = fields[key];
    return [key, Array.isArray(value) ? value.join(", ") : ((value ?? "") as string)] as const;
  });
  const headers = Object.entries((fields.headers ?? {}) as Record<string, string>);
  return {
    name: spec.name,
    namespace: spec.namespace ?? DEFAULT_NAMESPACE,
    description: spec.description ?? "",
    language: spec.language ?? "en",
    kind,
    values: Object.fromEntries(values),
    headers: headers.map(([name, value]) => ({ name, value })),
  };
}

export function channelSpec(form: ChannelForm): ChannelSpec {
  return {
    name: form.name.trim(),
    namespace: form.namespace.trim(),
    description: optional(form.description),
    language: form.language,
    to: target(form),
  };
}

function target({ kind, values, headers }: ChannelForm): Target {
  const fields: Record<string, unknown> = {};
  for (const { key, isOptional } of CHANNEL_FIELDS[kind]) {
    const value = (values[key] ?? "").trim();
    if (key === "to") fields[key] = recipients(value);
    else if (value !== "" || !isOptional) fields[key] = value;
  }
  const named = headers.filter(({ name }) => name.trim() !== "");
  if (hasHeaders(kind) && named.length > 0) {
    fields.headers = Object.fromEntries(named.map(({ name, value }) => [name.trim(), value.trim()]));
  }
  return { [kind]: fields } as unknown as Target;
}

function recipients(text: string): string[] {
  return text
    .split(/[,;，；\n]/)
    .map((each) => each.trim())
    .filter((each) => each !== "");
}

/** Fields with the address to which secrets are sent. */
const ADDRESSES: readonly ChannelFieldKey[] = ["url", "server"];

/**
 * Returns whether the address differs from the stored one. The server then refuses hidden secrets: else they could be
 * sent to any address.
 */
export function isMoved(form: ChannelForm, stored: ChannelForm | null): boolean {
  if (!stored) return false;
  if (form.kind !== stored.kind) return true;
  return CHANNEL_FIELDS[form.kind].some(
    ({ key, isSecret }) =>
      !isSecret &&
      ADDRESSES.includes(key) &&
      (form.values[key] ?? "").trim() !== (stored.values[key] ?? "").trim(),
  );
}
