/** G3. The texts of waiting reasons link to the jobs, workers and queues that they name. */

import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import i18next from "i18next";
import { createElement, type ReactNode } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { initReactI18next } from "react-i18next";
import { afterEach, expect, test, vi } from "vitest";

import type { Reason } from "../../api/schema";
import english from "../../i18n/en.json";
import chinese from "../../i18n/zh-CN.json";
import { WaitingReasons } from "./WaitingReasons";

vi.mock("@tanstack/react-router", () => ({
  Link: (props: { to: string; params?: { id: string }; children?: ReactNode }) =>
    createElement("a", { href: props.to.replace("$id", props.params?.id ?? "") }, props.children),
}));
vi.mock("../../api/queries", () => ({
  useWorkerName: () => (id: string) => id.replace("wkr_", "big-"),
  whyQuery: (id: string) => ({ queryKey: [id], queryFn: () => null }),
}));
vi.mock("./timeWithDistance", () => ({ useTimeWithDistance: () => (at: string) => at }));
vi.mock("../../lib/now", () => ({ useNow: () => 0 }));

await i18next.use(initReactI18next).init({
  lng: "en",
  resources: { en: { translation: english }, "zh-CN": { translation: chinese } },
  interpolation: { escapeValue: false },
});
afterEach(() => i18next.changeLanguage("en"));

/** Returns the text of a reason: links as in Markdown, with a space between paragraphs and items of lists. */
function textOf(reason: Reason): string {
  const client = new QueryClient();
  client.setQueryData(["job_1"], { job: "job_1", status: "waiting", reasons: [reason] });
  const page = createElement(WaitingReasons, { id: "job_1" });
  return renderToStaticMarkup(createElement(QueryClientProvider, { client }, page))
    .replace(/<a href="([^"]*)">(.*?)<\/a>/g, "[$2]($1)")
    .replace(/<\/(?:p|li)>/g, " ")
    .replace(/<[^>]+>/g, "")
    .trim();
}

test("a job that preempts others names them and their worker", async () => {
  const preempting = (victims: string[]) => textOf({ reason: "preempting", worker: "wkr_1", victims });
  expect(preempting(["job_2"])).toBe(
    "The job preempts a job of a lower priority class on worker [big-1](/workers/wkr_1), and starts when that job has " +
      "stopped: [job_2](/jobs/job_2)",
  );
  const many = preempting(Array.from({ length: 10 }, (_, i) => `job_${i}`));
  expect(many).toContain("The job preempts 10 jobs of a lower priority class");
  expect(many).toMatch(/\[job_7\]\(\/jobs\/job_7\) and 2 more$/);
  expect(preempting([])).toBe(
    "The job is about to start on worker [big-1](/workers/wkr_1), in the place of jobs that it preempted.",
  );
  await i18next.changeLanguage("zh-CN");
  expect(preempting(["job_2", "job_3"])).toBe(
    "任务正在抢占执行器 [big-1](/workers/wkr_1) 上 2 个优先级类别较低的任务，待其停止后启动： " +
      "[job_2](/jobs/job_2) [job_3](/jobs/job_3)",
  );
});

test("a preempted job names the job that preempts it", async () => {
  const preempted: Reason = { reason: "preempted", by: "job_2" };
  expect(textOf(preempted)).toBe(
    "Job [job_2](/jobs/job_2) of a higher priority class preempts the job. The job is being stopped, and starts again " +
      "later.",
  );
  await i18next.changeLanguage("zh-CN");
  expect(textOf(preempted)).toContain("任务 [job_2](/jobs/job_2) 正在抢占此任务");
});

test("a job that waited long names the worker whose capacity is reserved, and the latest time if it is known", async () => {
  const reserved = (until?: string) => textOf({ reason: "capacity_reserved", worker: "wkr_1", until });
  expect(reserved()).toBe(
    "The job waited long, so the next free capacity of worker [big-1](/workers/wkr_1) is reserved for the job. The job " +
      "starts when enough running jobs have ended.",
  );
  expect(reserved("08:00")).toMatch(/ have ended, at 08:00 at the latest\.$/);
  await i18next.changeLanguage("zh-CN");
  expect(reserved("08:00")).toContain("执行器 [big-1](/workers/wkr_1) 接下来空闲的资源已预留给它");
  expect(reserved("08:00")).toMatch(/最晚在 08:00。$/);
});

test("a worker whose capacity is reserved for a job names the job", async () => {
  const reason: Reason = {
    reason: "no_eligible_worker",
    more: 0,
    workers: [
      {
        worker: "wkr_1",
        name: "big",
        failed_filters: [{ filter: "cordoned" }, { filter: "reserved_for_job", job: "job_2" }],
      },
    ],
  };
  expect(textOf(reason)).toBe(
    "The only worker is not eligible: [big](/workers/wkr_1)cordoned; capacity is reserved for job [job_2](/jobs/job_2)",
  );
  await i18next.changeLanguage("zh-CN");
  expect(textOf(reason)).toContain("已停止调度；资源已预留给任务 [job_2](/jobs/job_2)");
});

test("services that are not available are named with their replicas", async () => {
  const reason: Reason = {
    reason: "required_services",
    services: [
      { service: "db", available: 1, min_available: 2 },
      { service: "cache", min_available: 1 },
    ],
  };
  expect(textOf(reason)).toBe(
    "The job waits for 2 services that it requires: db1 of 2 required replicas available cachedoes not exist",
  );
  await i18next.changeLanguage("zh-CN");
  expect(textOf(reason)).toContain("db需要 2 个可用副本，现有 1 个 cache服务不存在");
});

test("a paused queue is a link", () => {
  // `<link>` would be a void element, as in HTML: a tag of that name stays empty.
  expect(textOf({ reason: "queue_paused", queue: "mail" })).toBe("Queue [mail](/queues) is paused.");
});

test("a namespace that has used its quota is named, with amounts in their units and the note", async () => {
  const quota = (resource: string, used: number, needed: number, limit: number, note?: string) =>
    textOf({ reason: "namespace_quota", namespace: "team", resource, used, needed, limit, note });
  expect(quota("cpu", 7_500, 1_000, 8_000)).toBe(
    "The quota of namespace [team](/namespaces) is 8 CPU: its jobs use 7.5 CPU, and the job needs 1 CPU.",
  );
  expect(quota("memory", 15 * 2 ** 30, 2 * 2 ** 30, 16 * 2 ** 30)).toContain(
    "is 16 GiB of memory: its jobs use 15 GiB of memory, and the job needs 2 GiB of memory.",
  );
  expect(quota("gpu", 2, 1, 2, "free plan")).toMatch(
    /is 2 gpu: its jobs use 2 gpu, .* needs 1 gpu\.free plan$/,
  );
  expect(quota("running", 8, 1, 8)).toBe(
    "Namespace [team](/namespaces) has reached its quota of running jobs: 8 of 8 running.",
  );
  await i18next.changeLanguage("zh-CN");
  expect(quota("cpu", 7_500, 1_000, 8_000)).toBe(
    "命名空间 [team](/namespaces) 的配额是 8 核 CPU：其任务已使用 7.5 核 CPU，此任务需要 1 核 CPU。",
  );
  expect(quota("running", 8, 1, 8)).toContain("运行中 8 个，上限 8 个");
});

test("a worker that cannot create the sandbox of a job is named with the level", async () => {
  const filters = [{ filter: "sandbox", level: "strict" }, { filter: "declined" }] as const;
  const workers = [{ worker: "wkr_1", name: "big-1", failed_filters: [...filters] }];
  const reason: Reason = { reason: "no_eligible_worker", workers, more: 0 };
  expect(textOf(reason)).toBe(
    "The only worker is not eligible: [big-1](/workers/wkr_1)cannot create a sandbox of the level strict: its kernel " +
      "lacks a feature or forbids it; declined the job recently",
  );
  await i18next.changeLanguage("zh-CN");
  expect(textOf(reason)).toContain("无法创建 strict 级别的沙箱：内核缺少所需的功能，或禁止使用；");
});
