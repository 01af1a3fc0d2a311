/** G3, H1. Both languages are complete and contain no unused texts. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test } from "vitest";

import { base, EN, placeholders, problem, ZH } from "./texts";

function sources(folder: string): string {
  return readdirSync(folder, { withFileTypes: true })
    .map((entry) => {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) return sources(path);
      return /\.tsx?$/.test(entry.name) && !entry.name.endsWith(".test.ts") ? readFileSync(path, "utf8") : "";
    })
    .join("\n");
}

const code = sources(join(import.meta.dirname, ".."));

test("both languages have the same keys", () => {
  const english = new Set([...EN.keys()].map(base));
  const chinese = new Set([...ZH.keys()].map(base));
  const missing = (file: string, keys: Set<string>, others: Set<string>) =>
    [...others]
      .filter((key) => !keys.has(key))
      .map((key) => `web/src/i18n/${file}.json lacks ${key}: add it`);
  expect([...missing("zh-CN", chinese, english), ...missing("en", english, chinese)]).toEqual([]);
  // English has two plural forms, Chinese one.
  const counted = [...EN].filter(([key, text]) => base(key) !== key && text.includes("{{count"));
  const halves = counted.map(([key]) => base(key)).filter((key) => !EN.has(`${key}_one`));
  expect(halves, "keys of en.json that lack the plural form `_one`: add it").toEqual([]);
  const others = counted.map(([key]) => `${base(key)}_other`).filter((key) => !EN.has(key) || !ZH.has(key));
  expect(others, "keys that en.json or zh-CN.json lacks: add the plural form `_other`").toEqual([]);
  const extra = [...ZH.keys()].filter(
    (key) => !EN.has(key) || (key.endsWith("_one") && ZH.has(`${base(key)}_other`)),
  );
  expect(extra, "keys of zh-CN.json that nothing uses: remove them").toEqual([]);
});

test("both languages have the same placeholders", () => {
  const problems: string[] = [];
  for (const [key, text] of ZH) {
    const english = EN.get(key) ?? "";
    if (placeholders(text).join() !== placeholders(english).join()) {
      const rule = "a text has the same placeholders and tags in both languages";
      const proposal = `use ${placeholders(english).join(", ") || "none"}, as in: ${english}`;
      problems.push(problem("zh-CN", key, text, rule, proposal));
    }
  }
  expect(problems).toEqual([]);
});

test("Chinese texts contain Chinese", () => {
  // Command-line words, abbreviations, and examples of input.
  const same = new Set(["team=pay", "default …", "failed、running …", "1h、24h、7d", "Cron", "CPU"]);
  for (const [key, text] of ZH) {
    const words = text.replace(/\{\{[^}]*\}\}/g, "");
    expect(same.has(text) || !/[a-z]/i.test(words) || /[\u4e00-\u9fff]/.test(words), `${key}: ${text}`).toBe(
      true,
    );
  }
});

test("every text is used, and every used text exists", () => {
  const fixed = [...code.matchAll(/\bt\(\s*"([\w.]+)"/g), ...code.matchAll(/i18nKey="([\w.]+)"/g)];
  const used = new Set(fixed.map((match) => match[1] ?? ""));
  // Composed keys: the parts before and after the variable part.
  const patterns = [...code.matchAll(/\bt\(\s*`([^`]+)`/g)].map((match) => {
    const words = (match[1] ?? "").split(/\$\{[^}]*\}/).map((word) => word.replaceAll(".", "\\."));
    return new RegExp(`^${words.join("[\\w]+")}$`);
  });
  const known = new Set([...EN.keys()].map(base));
  expect([...used].filter((key) => !known.has(key))).toEqual([]);
  const unused = [...known].filter((key) => !used.has(key) && !patterns.some((pattern) => pattern.test(key)));
  expect(unused).toEqual([]);
});

/** A schema of the API: an enumeration, or the variants of an object with a code each. */
interface Schema {
  enum?: string[];
  const?: string;
  oneOf?: Schema[];
  properties?: Record<string, Schema>;
}

const { components, paths } = JSON.parse(
  readFileSync(join(import.meta.dirname, "../../../docs/openapi.json"), "utf8"),
) as {
  components: { schemas: Record<string, Schema> };
  paths: Record<string, { get?: { parameters?: Array<{ name: string; schema: Schema }> } }>;
};

/** Returns the codes of an enumeration; for variants of an object, the value of the field that tells them apart. */
function codes(name: string): string[] {
  const schema = components.schemas[name];
  const own = ({ enum: values, const: value }: Schema) => values ?? (value === undefined ? [] : [value]);
  const ofVariant = (variant: Schema) => {
    const fields = Object.values(variant.properties ?? {}).map(own);
    return [...own(variant), ...fields.filter((values) => values.length === 1).flat()];
  };
  const found = schema ? [...own(schema), ...(schema.oneOf ?? []).flatMap(ofVariant)] : [];
  expect(found.length, name).toBeGreaterThan(0);
  return found;
}

test("every warning and reason code of the server has a text", () => {
  const missing = [
    ...codes("WarningCode").map((code) => `warning.${code}`),
    ...codes("DetailCode").map((code) => `reason.${code}`),
  ].filter((key) => !EN.has(key));
  expect(missing).toEqual([]);
});

test("every policy that can contradict the guarantee of a schedule has a text", () => {
  const source = join(import.meta.dirname, "../../../crates/model/src/schedule/guarantee.rs");
  const [, body = ""] = readFileSync(source, "utf8").split("pub fn contradictions");
  const found = [...body.matchAll(/add\([^;]*?,\s*"([\w.]+)",/g)].map(([, field = ""]) => field);
  expect(new Set(found).size, "correct the pattern").toBe(8);
  const keys = found.map((field) => `warning.contradicts_guarantee_${field.replaceAll(".", "_")}`);
  expect(keys.filter((key) => !EN.has(key))).toEqual([]);
});

/** Schemas with the sections of their texts. */
const SECTIONS: ReadonlyArray<[schema: string, ...sections: string[]]> = [
  ["JobStatus", "status"],
  ["FailureState", "failureState"],
  ["Cause", "cause"],
  ["ExecutionStatus", "execution"],
  ["Delivery", "delivery", "deliveryHint"],
  ["FinishAction", "finishAction"],
  ["PriorityClass", "priorityClass", "priorityClassHint"],
  ["PullPolicy", "pullPolicy"],
  ["SandboxLevel", "sandboxLevel", "sandboxLevelHint"],
  ["SandboxNetwork", "sandboxNetwork", "sandboxNetworkHint"],
  ["UpstreamCondition", "upstreamCondition"],
  ["Reason", "why"],
  ["FailedFilter", "unschedulable"],
  ["WorkerStatus", "workerStatus"],
  ["Admission", "admission"],
  ["ScheduleStatus", "scheduleStatus"],
  ["OverlapPolicy", "overlap", "overlapHint"],
  ["MissedPolicy", "missed", "missedHint"],
  ["Guarantee", "guarantee", "guaranteeHint"],
  ["FiringCause", "firingCause"],
  ["FiringOutcome", "outcome"],
  ["BackfillStatus", "backfillStatus"],
  ["BackfillOverlap", "backfillOverlap"],
  ["Reprocess", "reprocess"],
  ["LeftOutReason", "leftOut"],
  ["RunStatus", "runStatus"],
  ["RunCause", "runCause"],
  ["Section", "section"],
  ["StepKind", "stepKind"],
  ["StepStatus", "stepStatus"],
  ["StepCause", "stepCause"],
  ["StepReason", "stepWhy"],
  ["JoinRule", "join"],
  ["RequiredResult", "trigger.on"],
  ["TriggerRefusalReason", "triggerRefusal"],
  ["HealthStatus", "healthStatus"],
  ["RolloutStatus", "rolloutStatus"],
  ["RevisionCause", "revisionCause"],
  ["ScalingCause", "scalingCause"],
];

/** Codes without a text of their own: the page shows the running job, or the cause of the step, instead. */
const WITHOUT_TEXT = new Set(["why.running", "stepWhy.ended"]);

test("every status, cause and waiting reason of the API has a text", () => {
  // Some codes end as plural forms do: `buffer_one`.
  const known = new Set([...EN.keys()].flatMap((key) => [key, base(key)]));
  const needed = SECTIONS.flatMap(([schema, ...sections]) =>
    sections.flatMap((section) => codes(schema).map((code) => `${section}.${code}`)),
  );
  expect(needed.filter((key) => !known.has(key) && !WITHOUT_TEXT.has(key))).toEqual([]);
  expect([...WITHOUT_TEXT].filter((key) => known.has(key) || !needed.includes(key))).toEqual([]);
});

test.each([
  ["failure groups", "/api/v1/failures", "failureOrder"],
  ["executions by use", "/api/v1/usage", "usage"],
])("every order of %s has a text", (_, path, section) => {
  const parameters = paths[path]?.get?.parameters ?? [];
  const orders = parameters.find(({ name }) => name === "order")?.schema.enum ?? [];
  expect(orders.length).toBeGreaterThan(0);
  expect(orders.filter((order) => !EN.has(`${section}.${order}`))).toEqual([]);
});
