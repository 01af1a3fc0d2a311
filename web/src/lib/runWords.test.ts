/** G3. What the server says about runs in English is said in the user's own language. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { createInstance } from "i18next";
import { expect, test } from "vitest";

import type { RunHistoryEntry } from "../api/schema";
import english from "../i18n/en.json";
import chinese from "../i18n/zh-CN.json";
import { detailOf, messageOf, whyOf } from "./runWords";

const i18n = createInstance();
await i18n.init({
  resources: { en: { translation: english }, "zh-CN": { translation: chinese } },
  interpolation: { escapeValue: false },
});
const zh = i18n.getFixedT("zh-CN");
const en = i18n.getFixedT("en");

function entry(cause: RunHistoryEntry["cause"], detail: string): RunHistoryEntry {
  return { at: "2026-11-21T08:00:00Z", to: "failed", cause, detail };
}

test("a failed step is named, with what is known of it", () => {
  expect(detailOf(entry("step_failed", "step `load`"), zh)).toBe("步骤 load");
  expect(detailOf(entry("fail_fast", "step `load` failed"), zh)).toBe("步骤 load");
  expect(detailOf(entry("step_failed", "step `load`: signal 9"), zh)).toBe("步骤 load：signal 9");
  expect(detailOf(entry("step_failed", "step `load`: 2 of 4 elements succeeded, 1 failed"), zh)).toBe(
    "步骤 load：4 个元素中成功 2 个，失败 1 个",
  );
  expect(detailOf(entry("step_failed", "step `load`: signal 9"), en)).toBe("step load: signal 9");
});

test("what somebody said is left as it is", () => {
  expect(detailOf(entry("pause_requested", "paused by ann: disk full"), zh)).toBe("ann: disk full");
  expect(detailOf(entry("pause_requested", "paused by ann"), zh)).toBe("ann");
  expect(detailOf(entry("cancel_requested", "ann: paused by bob"), zh)).toBe("ann: paused by bob");
  expect(detailOf({ ...entry("started", ""), detail: null }, zh)).toBeNull();
});

test("the result of a job is said in the language of the user", () => {
  const told = (message: string) => [messageOf(message, zh), messageOf(message, en)];
  for (const [message, chinese] of [
    ["exited with code 2", "退出码 2"],
    ["killed by signal 9 (SIGKILL)", "被信号 9 (SIGKILL) 终止"],
    ["the worker sent no heartbeat within its lease", "执行器在租约内没有心跳"],
    ["ran longer than its timeout of 1m30s", "运行超过了时限 1m30s"],
    ["used more memory than its limit of 64MiB", "内存超过了上限 64MiB"],
    ["stopped by the server", "按服务端的要求停止"],
    ["the worker was disconnected from the servers for too long", "执行器长时间连不上服务端"],
    ["the worker's supervisor was stopped", "执行器的监管进程被停止"],
    ["`./load` could not be executed: No such file", "无法执行 ./load：No such file"],
  ] as const) {
    const [said, original] = told(message);
    expect(said).toBe(chinese);
    expect(original?.replaceAll("`", "")).toBe(message.replaceAll("`", ""));
  }
  expect(messageOf("disk quota", zh)).toBe("disk quota");
});

test("a step says its cause first", () => {
  expect(whyOf({ cause: "condition_failed", message: "there is no field `x`" }, zh)).toBe(
    "条件无法求值：there is no field `x`",
  );
  expect(whyOf({ cause: "not_failed" }, zh)).toBe("运行没有失败");
  expect(messageOf("the list is empty", zh)).toBe("列表为空");
  expect(messageOf("exited with code 3", zh)).toBe("退出码 3");
  expect(messageOf("killed by signal 9 (SIGKILL)", zh)).toBe("被信号 9 (SIGKILL) 终止");
});

const CRATES = join(import.meta.dirname, "../../../crates");

/** Texts of the server that are known here by their words, with where they are written. */
const SOURCES = {
  "engine/src/job/unknown.rs": ["the worker sent no heartbeat within its lease"],
  "engine/src/workflow/elements.rs": [
    "the list is empty",
    "{succeeded} of {total} elements succeeded, {failed} failed",
  ],
  "engine/src/workflow/finish.rs": ["step `{name}` {to}", "step `{name}`: {message}", "step `{name}`"],
  "worker/src/supervisor/task.rs": [
    "stopped by the server",
    "the worker was disconnected from the servers for too long",
    "the worker's supervisor was stopped",
    "ran longer than its timeout of {t}",
    "used more memory than its limit of {limit}",
    "exited with code {code}",
    "killed by signal {signal} ({})",
  ],
  "model/src/firing.rs": ["paused by {}"],
  "worker/src/supervisor/launcher.rs": ["`{program}` could not be executed: {system}"],
};

test("the texts that are known here are still the texts of the server", () => {
  const fill: Record<string, string> = {
    "{}": "SIGKILL",
    "{t}": "1m30s",
    "{limit}": "64MiB",
    "{to}": "failed",
    "{name}": "load",
  };
  for (const [file, texts] of Object.entries(SOURCES)) {
    const source = readFileSync(join(CRATES, file), "utf8");
    for (const text of texts) {
      expect(source.includes(`"${text}"`), `${file} says: ${text}`).toBe(true);
      // What the server makes of it has words of its own in Chinese.
      const made = text.replaceAll(/\{\w*\}/g, (name) => fill[name] ?? "9");
      const cause = made.startsWith("paused") ? "pause_requested" : "step_failed";
      const said = /^(step|paused) /.test(made) ? detailOf(entry(cause, made), zh) : messageOf(made, zh);
      expect(said, made).not.toBe(made);
    }
  }
});
