/** G3, H1. Both languages are complete, and say nothing that nobody asks for. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test } from "vitest";

import en from "./en.json";
import zh from "./zh-CN.json";

function leaves(tree: object, before = ""): Map<string, string> {
  const found = new Map<string, string>();
  for (const [key, value] of Object.entries(tree) as Array<[string, object | string]>) {
    const path = before + key;
    if (typeof value === "string") found.set(path, value);
    else for (const [inner, text] of leaves(value, `${path}.`)) found.set(inner, text);
  }
  return found;
}

/** A key without its plural form: languages differ in those. */
function base(key: string): string {
  return key.replace(/_(one|other)$/, "");
}

function sources(folder: string): string {
  return readdirSync(folder, { withFileTypes: true })
    .map((entry) => {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) return sources(path);
      return /\.tsx?$/.test(entry.name) && !entry.name.endsWith(".test.ts") ? readFileSync(path, "utf8") : "";
    })
    .join("\n");
}

const english = leaves(en);
const chinese = leaves(zh);
const code = sources(join(import.meta.dirname, ".."));

test("both languages have the same keys", () => {
  const keys = (of: Map<string, string>) => [...new Set([...of.keys()].map(base))].sort();
  expect(keys(chinese)).toEqual(keys(english));
});

test("both languages fill in the same values", () => {
  const values = (text: string) => [...text.matchAll(/\{\{(\w+)/g)].map((match) => match[1]).sort();
  for (const [key, text] of chinese) {
    const other = english.get(key) ?? english.get(`${base(key)}_other`) ?? "";
    // Where the plural form says how many in English, Chinese says the number.
    const without = (all: Array<string | undefined>) =>
      [...new Set(all)].filter((value) => value !== "count");
    expect(without(values(text)), key).toEqual(without(values(other)));
  }
});

test("Chinese is written in Chinese", () => {
  // Words of the system's own, and examples of what to type.
  const same = new Set(["Worker", "team=pay", "default …", "failed、running …", "1h、24h、7d", "Cron"]);
  for (const [key, text] of chinese) {
    const words = text.replace(/\{\{[^}]*\}\}|worker/g, "");
    expect(same.has(text) || !/[a-z]/i.test(words) || /[\u4e00-\u9fff]/.test(words), `${key}: ${text}`).toBe(
      true,
    );
  }
});

test("every text is used, and every text that is used is there", () => {
  const fixed = [...code.matchAll(/\bt\(\s*"([\w.]+)"/g), ...code.matchAll(/i18nKey="([\w.]+)"/g)];
  const used = new Set(fixed.map((match) => match[1] ?? ""));
  // Keys that are put together: what stands before and behind the part that varies.
  const patterns = [...code.matchAll(/\bt\(\s*`([^`]+)`/g)].map((match) => {
    const words = (match[1] ?? "").split(/\$\{[^}]*\}/).map((word) => word.replaceAll(".", "\\."));
    return new RegExp(`^${words.join("[\\w]+")}$`);
  });
  const known = new Set([...english.keys()].map(base));
  expect([...used].filter((key) => !known.has(key))).toEqual([]);
  const unused = [...known].filter((key) => !used.has(key) && !patterns.some((pattern) => pattern.test(key)));
  expect(unused).toEqual([]);
});

test("every code of the server that is shown has words", () => {
  const path = join(import.meta.dirname, "../../../docs/openapi.json");
  const { components } = JSON.parse(readFileSync(path, "utf8")) as {
    components: {
      schemas: Record<string, { enum?: string[]; oneOf?: Array<{ enum?: string[]; const?: string }> }>;
    };
  };
  const codes = (name: string) => {
    const schema = components.schemas[name];
    const found = schema?.enum ?? schema?.oneOf?.flatMap((one) => one.enum ?? one.const ?? []);
    expect(found, name).toBeDefined();
    return found ?? [];
  };
  const missing = [
    ...codes("WarningCode").map((code) => `warning.${code}`),
    ...codes("DetailCode").map((code) => `reason.${code}`),
  ].filter((key) => !english.has(key));
  expect(missing).toEqual([]);
});
