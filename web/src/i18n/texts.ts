/** The two language files as flat lists of keys and texts, for the tests. */

import english from "./en.json";
import chinese from "./zh-CN.json";

/** The texts of a language file, by their dotted keys. */
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

/** A key without its plural form: English has `_one` and `_other`, Chinese has `_other` only. */
export function base(key: string): string {
  return key.replace(/_(one|other)$/, "");
}

/** The placeholders of a text, sorted, as they are written: `{{count, number}}`. */
export function placeholders(text: string): string[] {
  return [...text.matchAll(/\{\{[^}]*\}\}|<\/?\w+>/g)].map(([found]) => found).sort();
}

/** A text without its placeholders and tags. */
export function prose(text: string): string {
  return text.replace(/\{\{[^}]*\}\}|<\/?\w+>/g, " ");
}

/** What a test says about a text that breaks a rule. */
export function problem(file: "en" | "zh-CN", key: string, text: string, rule: string, proposal: string) {
  return `web/src/i18n/${file}.json: ${key}: “${text}”\n  rule: ${rule}\n  proposal: ${proposal}`;
}
