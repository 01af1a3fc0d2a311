/** The two language files as flat lists of keys and texts, for the tests. */

import english from "./en.json";
import chinese from "./zh-CN.json";

/** Texts of a language file, by dotted key. */
export type Texts = ReadonlyMap<string, string>;

function leaves(tree: object, before = ""): Map<string, string> {
  const found = new Map<string, string>();
  for (const [key, value] of Object.entries(tree) as Array<[string, object | string]>) {
    const path = before + key;
    if (typeof value === "string") found.set(path, value);
    else for (const [inner, text] of leaves(value, `${path}.`)) found.set(inner, text);
  }
  return found;
}

export const EN: Texts = leaves(english);
export const ZH: Texts = leaves(chinese);

/** Returns a key without its plural form: English has `_one` and `_other`, Chinese only `_other`. */
export function base(key: string): string {
  return key.replace(/_(one|other)$/, "");
}

/** Returns the placeholders and tags of a text, sorted, as written: `{{count, number}}`. */
export function placeholders(text: string): string[] {
  return [...text.matchAll(/\{\{[^}]*\}\}|<\/?\w+>/g)].map(([found]) => found).sort();
}

/** Returns a text without placeholders and tags. */
export function prose(text: string): string {
  return text.replace(/\{\{[^}]*\}\}|<\/?\w+>/g, " ");
}

/** Returns the failure message of a text that breaks a rule. */
export function problem(file: "en" | "zh-CN", key: string, text: string, rule: string, proposal: string) {
  return `web/src/i18n/${file}.json: ${key}: “${text}”\n  rule: ${rule}\n  proposal: ${proposal}`;
}
