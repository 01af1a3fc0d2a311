/** G3. English messages of the server about runs are translated. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { createInstance } from "i18next";
import { expect, test } from "vitest";

import type { RunHistoryEntry } from "../api/schema";
import english from "../i18n/en.json";
import chinese from "../i18n/zh-CN.json";
import {
  preemptingJob,
  transitionDetail,
  translateMessage,
  resultText,
  stepReasonText,
} from "./serverMessages";

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

test("a failed step is named, with its message", () => {
  expect(transitionDetail(entry("step_failed", "step `load`"), zh)).toBe("步骤 load");
  expect(transitionDetail(entry("fail_fast", "step `load` failed"), zh)).toBe("步骤 load");
  expect(transitionDetail(entry("step_failed", "step `load`: signal 9"), zh)).toBe("步骤 load：signal 9");
  expect(transitionDetail(entry("step_failed", "step `load`: 2 of 4 elements succeeded, 1 failed"), zh)).toBe(
    "步骤 load：4 个元素中成功 2 个，失败 1 个",
  );
  expect(transitionDetail(entry("step_failed", "step `load`: signal 9"), en)).toBe("step load: signal 9");
});

test("the detail of an end that triggered no run is translated", () => {
  expect(translateMessage("ended after 2h: expected at most 1h", zh)).toBe("2h 之后才结束：最多允许 1h");
  expect(translateMessage("workflow ledger ended more than 12h later", zh)).toBe(
    "工作流 ledger 晚了 12h 以上才结束",
  );
});

test("the reason why a metric has no value is translated", () => {
  const reason = "no replica is healthy and measured";
  expect(translateMessage(`\`scaling.metrics[1]\`: ${reason}`, zh)).toBe(
    "scaling.metrics[1]：没有健康且有测量结果的副本",
  );
  expect(translateMessage(reason, en)).toBe(reason);
});

test("notes of users are not translated", () => {
  expect(transitionDetail(entry("pause_requested", "paused by ann: disk full"), zh)).toBe("ann: disk full");
  expect(transitionDetail(entry("pause_requested", "paused by ann"), zh)).toBe("ann");
  expect(transitionDetail(entry("cancel_requested", "ann: paused by bob"), zh)).toBe("ann: paused by bob");
  expect(transitionDetail({ ...entry("started", ""), detail: null }, zh)).toBeNull();
});

test("the message of a result is translated", () => {
  for (const [message, chinese, english] of [
    ["exited with code 2", "退出码 2", "exited with code 2"],
    ["exited with code 2: disk full", "退出码 2：disk full", "exited with code 2: disk full"],
    ["killed by signal 9 (SIGKILL)", "被信号 9 (SIGKILL) 终止", "killed by signal 9 (SIGKILL)"],
    ["ran longer than its timeout of 1m30s", "超过 1m30s 的超时时间", "exceeded its timeout of 1m30s"],
    [
      "used more memory than its limit of 64MiB",
      "超过 64MiB 的内存上限",
      "exceeded its memory limit of 64MiB",
    ],
    ["the worker's supervisor was stopped", "执行器的监管进程被停止", "the worker's supervisor was stopped"],
    [
      "`./load` could not be executed: No such file",
      "无法执行 ./load：No such file",
      "cannot execute ./load: No such file",
    ],
    ["upstream job `job_1` ended as failed", "上游任务 job_1：失败", "upstream job job_1: Failed"],
    [
      "3 executions were lost, and `retry.max_lost` is 2: the worker's supervisor was stopped",
      "有 3 次执行失联或中断，次数上限是 2：执行器的监管进程被停止",
      "3 executions were lost or interrupted; the limit is 2: the worker's supervisor was stopped",
    ],
    [
      "the execution was lost, and `retry.max_lost` is 0: the worker sent no heartbeat within its lease",
      "有 1 次执行失联或中断，次数上限是 0：执行器在租约内没有心跳",
      "the execution was lost or interrupted; the limit is 0: the worker sent no heartbeat within its lease",
    ],
    ["the job did not end by 2026-11-21T08:00:00Z", "超过完成时限", "the completion deadline passed"],
    ["cancelled by ann: too slow", "由 ann: too slow 取消", "cancelled by ann: too slow"],
    ["preempted by job_1", "被任务 job_1 抢占", "preempted by job job_1"],
    [
      "liveness check failed 3 times: connection refused",
      "存活检查连续失败 3 次：connection refused",
      "liveness check failed 3 times: connection refused",
    ],
    [
      "startup check failed once: status 503",
      "启动检查连续失败 1 次：status 503",
      "startup check failed once: status 503",
    ],
    ["readiness check failed: status 503", "就绪检查失败：status 503", "readiness check failed: status 503"],
    [
      "revision 4 failed: no further replica of revision 4 became available within 10m",
      "版本 4 发布失败：版本 4 在 10m 内没有更多副本变为可用",
      "revision 4 failed: no further replica of revision 4 became available within 10m",
    ],
    [
      "cancelled by service web: scaled to 2 replicas",
      "服务 web：扩缩容到 2 个副本",
      "service web: scaled to 2 replicas",
    ],
    [
      "waited longer than the step's timeout of 5m; exited with code 2",
      "超过步骤 5m 的超时时间；退出码 2",
      "exceeded the step's timeout of 5m; exited with code 2",
    ],
    [
      "the response has status 500 Internal Server Error: expected 2xx",
      "响应的状态码是 500 Internal Server Error，预期是 2xx",
      "the response has status 500 Internal Server Error: expected 2xx",
    ],
    [
      "the response does not satisfy `run.http.success_if`: `body.code == 0` is false",
      "响应不满足 run.http.success_if：body.code == 0 不成立",
      "the response does not satisfy run.http.success_if: body.code == 0 is false",
    ],
    [
      "polling failed 10 times in a row: the response has status 503 Service Unavailable",
      "轮询连续失败 10 次：响应的状态码是 503 Service Unavailable",
      "polling failed 10 times in a row: the response has status 503 Service Unavailable",
    ],
    [
      "no complete response from `http://x.test` within 5m",
      "http://x.test 在 5m 内没有返回完整的响应",
      "no complete response from http://x.test within 5m",
    ],
    [
      "the worker does not have the image `web:1`, and `pull` is `never`",
      "执行器没有镜像 web:1，而 pull 设为 never",
      "the worker does not have the image web:1, and pull is never",
    ],
    [
      "cannot pull the image `web:1`: manifest unknown",
      "无法拉取镜像 web:1：manifest unknown",
      "cannot pull the image web:1: manifest unknown",
    ],
    [
      "cannot create the sandbox: cannot create its namespaces: Operation not permitted (os error 1); check that the kernel allows user namespaces to ordinary users (`user.max_user_namespaces`, `kernel.unprivileged_userns_clone`)",
      "无法创建沙箱：cannot create its namespaces: Operation not permitted (os error 1)；请检查内核是否允许普通用户使用用户命名空间（user.max_user_namespaces, kernel.unprivileged_userns_clone）",
      "cannot create the sandbox: cannot create its namespaces: Operation not permitted (os error 1); check that the kernel allows user namespaces to ordinary users (user.max_user_namespaces, kernel.unprivileged_userns_clone)",
    ],
    [
      "cannot create the sandbox: cannot show `/data`: No such file or directory (os error 2)",
      "无法创建沙箱：cannot show `/data`: No such file or directory (os error 2)",
      "cannot create the sandbox: cannot show `/data`: No such file or directory (os error 2)",
    ],
    [
      "`ports` cannot be combined with the network `none` of the sandbox: set `run.process.sandbox.network` to `host`, or omit `ports`",
      "ports 不能与沙箱的网络 none 同时使用：请把 run.process.sandbox.network 设为 host，或去掉 ports",
      "ports cannot be combined with the network none of the sandbox: set run.process.sandbox.network to host, or omit ports",
    ],
    [
      "`health.liveness` has a `command`, which would run outside the sandbox: use `http`, `tcp` or `grpc`",
      "health.liveness 使用 command，而命令会在沙箱之外运行：请改用 http、tcp 或 grpc",
      "health.liveness has a command, which would run outside the sandbox: use http, tcp or grpc",
    ],
  ] as const) {
    expect(translateMessage(message, zh)).toBe(chinese);
    expect(translateMessage(message, en)).toBe(english);
  }
  expect(translateMessage("disk quota", zh)).toBe("disk quota");
});

test("the transition of a preempted job names the job that preempted it", () => {
  expect(preemptingJob({ cause: "preempted", detail: "preempted by job_1" })).toBe("job_1");
  expect(preemptingJob({ cause: "preempted", detail: null })).toBeNull();
  expect(preemptingJob({ cause: "run_failed", detail: "preempted by job_1" }), "output of a task").toBeNull();
});

test("the reason of a refused execution is translated by its code", () => {
  const stopped = "stopped: the worker's supervisor was stopped before it started";
  expect(translateMessage(stopped, zh)).toBe("执行器的监管进程在执行开始之前被停止");
  const shutDown = "stopped: the worker's supervisor was stopped before the execution started";
  expect(translateMessage(shutDown, zh)).toBe("执行器的监管进程在执行开始之前被停止");
  expect(translateMessage("stopped: it was stopped before it started", zh)).toBe("执行在开始之前被停止");
  expect(translateMessage("no_room: all 4 slots of this worker are taken", zh)).toBe("执行器没有空闲槽位");
  expect(translateMessage("disk_full: the disk of this worker's folder is full", en)).toBe(
    "the worker's disk is full",
  );
  expect(translateMessage("no_rooms", en)).toBe("no_rooms");
});

test("a result has the text of its error code if its message is unknown", () => {
  const failed = { error: "working_directory", message: "/data: Permission denied" };
  expect(resultText(failed, zh, "zh-CN")).toBe("无法进入工作目录：/data: Permission denied");
  expect(resultText(failed, en, "en")).toBe("/data: Permission denied");
  expect(resultText({ error: "interrupted" }, zh, "zh-CN")).toBe("执行被中断");
  expect(resultText({ error: "exit_code", exit_code: 2, message: "exited with code 2" }, zh, "zh-CN")).toBe(
    "退出码 2",
  );
  expect(resultText({ error: "no_such_code", message: "why" }, zh, "zh-CN")).toBe("why");
  expect(resultText({ output: {} }, zh, "zh-CN")).toBeNull();
  expect(resultText(null, zh, "zh-CN")).toBeNull();
});

test("the reason of a step starts with its cause", () => {
  expect(stepReasonText({ cause: "condition_failed", message: "there is no field `x`" }, zh)).toBe(
    "条件无法求值：there is no field `x`",
  );
  expect(stepReasonText({ cause: "not_failed" }, zh)).toBe("运行实例没有失败");
  expect(translateMessage("there was no element", zh)).toBe("列表为空");
  expect(translateMessage("exited with code 3", zh)).toBe("退出码 3");
  expect(translateMessage("killed by signal 9 (SIGKILL)", zh)).toBe("被信号 9 (SIGKILL) 终止");
});

const CRATES = join(import.meta.dirname, "../../../crates");

/**
 * Source files in which the server and the workers write messages, with patterns to find them. Each message must
 * match a pattern in `serverMessages.ts`: a reworded or new message has no translation until one is added.
 */
const SOURCES: ReadonlyArray<[file: string, found: RegExp, count: number]> = [
  ["engine/src/jobs/unknown.rs", /let message = "([^"]+)"/g, 1],
  ["engine/src/jobs/finish.rs", /detail: Some\("([^"]+)"\)|format!\("([^"]+)"\)/g, 3],
  ["engine/src/jobs/deadline.rs", /let detail = format!\("([^"]+)"\)/g, 1],
  ["engine/src/jobs/upstream.rs", /format!\("(upstream job [^"]+)"\)/g, 1],
  ["engine/src/jobs/cancel.rs", /format!\("(cancelled by [^"]+)"\)/g, 1],
  ["engine/src/workflows/elements.rs", /"(\{succeeded\}[^"]+)"|StepDetails::message\("([^"]+)"\)/g, 2],
  ["engine/src/workflows/finish.rs", /let message = format!\("([^"]+)"\)/g, 1],
  [
    "worker/src/supervisor/task.rs",
    /How::\w+, "([^"]+)"|(?:=>|\|t\||OutOfMemory,) format!\("([^"]+)"|=> "(ended[^"]+)"/g,
    8,
  ],
  ["worker/src/supervisor/convert.rs", /detail: "([^"]+)"|"([^"]+)"\.clone_into\(&mut end\.detail\)/g, 2],
  ["worker/src/supervisor/start.rs", /\.then\(\|\| \{\s*format!\(\s*"([^"]+)"/g, 1],
  ["worker/src/agent/health.rs", /\.then_some\("([^"]+)"\)/g, 1],
  ["server/src/api/meta.rs", /Some\(format!\("([^"]+)"/g, 1],
  ["engine/src/clock.rs", /format!\(\s*"([^"]+)"/g, 2],
  ["engine/src/services/rollout.rs", /let reason = format!\("([^"]+)"/g, 2],
  ["engine/src/services/reconcile.rs", /format!\("((?:replica|service) [^"]+)"/g, 5],
  [
    "server/src/service_metrics.rs",
    /"(the (?:query|result|answer) (?:has|is|must)[^"]*)"|format!\(\s*"(the [^"]+)"/g,
    9,
  ],
  ["sandbox/src/error.rs", /#\[error\("([^"]+)"/g, 1],
  ["runtimes/src/process/sandboxed.rs", /format!\("((?:cannot enter|the first process)[^"]+)"/g, 2],
  ["model/src/validate/runtimes.rs", /"([^"]+ of the sandbox: [^"]+|[^"]+ outside the sandbox: [^"]+)"/g, 2],
  ["worker/src/agent/health_checks/state.rs", /format!\("([^"]+ check failed[^"]+)"/g, 2],
];

/** Example values for the placeholders of Rust's `format!`. */
const VALUES: Record<string, string> = {
  t: "1m30s",
  timeout: "5m",
  limit: "64MiB",
  more: "",
  verb: "waited",
  detail: "ann",
  upstream: "job_1",
  by: "job_1",
  status: "failed",
  times: "3 times",
};

test("every message that the server or a worker writes has a translation", () => {
  const problems: string[] = [];
  for (const [file, pattern, count] of SOURCES) {
    const source = readFileSync(join(CRATES, file), "utf8").replace(/\n#\[cfg\(test\)\][\s\S]*$/, "");
    const found = [...source.matchAll(pattern)].map((match) => match.slice(1).find(Boolean) ?? "");
    expect(found.length, `messages in crates/${file}: correct the pattern`).toBeGreaterThanOrEqual(count);
    for (const text of found) {
      const message = text
        .replace(/\\\n\s*/g, "")
        .replaceAll("({})", "(SIGKILL)")
        .replaceAll("{} check", "liveness check")
        // The path of the field is added later.
        .replace(/^(?=(?:cannot be combined with|has a `command`))/, "`ports` ")
        .replace(/\{(\w*)\}/g, (_, name: string) => VALUES[name] ?? "9");
      if (translateMessage(message, zh) !== message) continue;
      problems.push(
        `crates/${file}: “${message}” has no pattern in web/src/lib/serverMessages.ts: add one, with a text`,
      );
    }
  }
  expect(problems).toEqual([]);
});

test("details of a run have the known forms", () => {
  const source = readFileSync(join(CRATES, "engine/src/workflows/finish.rs"), "utf8");
  for (const text of ["step `{name}` {to}", "step `{name}`: {message}", "step `{name}`"]) {
    expect(source.includes(`"${text}"`), `crates/engine/src/workflows/finish.rs no longer says ${text}`).toBe(
      true,
    );
  }
  expect(readFileSync(join(CRATES, "model/src/firing.rs"), "utf8")).toContain('"paused by {}"');
});

/** Source files of the error codes of results and of refused executions, with patterns to find them. */
const CODES: ReadonlyArray<[file: string, found: RegExp, section: "result" | "declined"]> = [
  ["server/src/grpc/convert.rs", /How::\w+, Some\("(\w+)"\)|error: Some\("(\w+)"\.into/g, "result"],
  ["worker/src/supervisor/launcher.rs", /\(\s*"([a-z]\w+)",\s*(?:format!|")/g, "result"],
  ["worker/src/supervisor/start.rs", /failed\(\s*"(\w+)"/g, "result"],
  ["worker/src/supervisor/task.rs", /failed\(\s*"(\w+)"/g, "result"],
  ["worker/src/supervisor/finish.rs", /\(\s*"(\w+)",\s*(?:format!|")/g, "result"],
  ["worker/src/agent/outputs.rs", /error: "(\w+)"/g, "result"],
  ["worker/src/agent/artifacts.rs", /code: "(\w+)"/g, "result"],
  ["engine/src/jobs/finish.rs", /error: Some\("(\w+)"/g, "result"],
  ["engine/src/jobs/unknown.rs", /error: Some\("(\w+)"/g, "result"],
  ["supervisor/src/assign.rs", /refused\(\s*"(\w+)"/g, "declined"],
  ["supervisor/src/stop.rs", /refused\(\s*"(\w+)"/g, "declined"],
  ["supervisor/src/report.rs", /Self::refused\(\s*"(\w+)"/g, "declined"],
];

test("every error code of a result and of a refused execution has a text", () => {
  const missing: string[] = [];
  for (const [file, pattern, section] of CODES) {
    const source = readFileSync(join(CRATES, file), "utf8").replace(/\n#\[cfg\(test\)\][\s\S]*$/, "");
    const codes = [...source.matchAll(pattern)].map((match) => match.slice(1).find(Boolean) ?? "");
    expect(codes.length, `codes in crates/${file}: correct the pattern`).toBeGreaterThan(0);
    for (const code of codes) {
      if (!(code in chinese[section]))
        missing.push(`${section}.${code} (crates/${file}): add it to both languages`);
    }
  }
  expect(missing).toEqual([]);
});
