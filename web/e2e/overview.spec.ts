/** G2, H2, H6. The overview: items that need attention, active jobs, charts, and its traffic. */

import { expect, script, test, waitFor } from "./fixtures";
import type { JobBody, Server } from "./server";

const TIMEOUT = { timeout: 30_000 };
/** Limits of the data that the overview reads, as transferred: when it opens, and in a minute without changes. */
const FIRST_LOAD_MAX_BYTES = 100_000;
const IDLE_MS = 30_000;
const IDLE_MAX_BYTES = 25_000;

test("a paused queue comes before failures, and all items can be shown", async ({ page, server }) => {
  const ids: string[] = [];
  // Each exit code is a group.
  for (let i = 1; i <= 9; i += 1) ids.push(await server.submit(script("fails", `exit ${i}`)));
  for (const id of ids) await server.waitForStatus(id, "failed");
  await server.call("PUT", "/api/v1/queues/held", { paused: true });
  await server.submit(script("is-held", "true", { queue: "held" }));
  await page.goto("/");
  const items = page.getByRole("region", { name: "Needs attention" }).getByRole("listitem");
  await expect(items.first()).toContainText("Queue held is paused; 1 job waits", TIMEOUT);
  await expect(items).toHaveCount(8);
  // Other tests of this server leave failures, too.
  const all = page.getByRole("button", { name: /^Show all \d+$/ });
  const count = Number((await all.textContent())?.replace(/\D/g, ""));
  expect(count).toBeGreaterThanOrEqual(10);
  await all.click();
  await expect(items).toHaveCount(count);
  await page.getByRole("button", { name: "Show fewer" }).click();
  await expect(items).toHaveCount(8);
});

test("running jobs are listed before waiting jobs", async ({ page, server }) => {
  await server.call("PUT", "/api/v1/queues/held", { paused: true });
  const id = await server.submit(script("runs-long", "sleep 60"));
  await server.waitForStatus(id, "running");
  for (let i = 0; i < 9; i += 1) await server.submit(script("is-held", "true", { queue: "held" }));
  await page.goto("/");
  const listed = page.getByRole("region", { name: "In progress" }).getByRole("link");
  await expect(listed.filter({ hasText: "runs-long" })).toBeVisible();
  await expect(listed.filter({ hasText: "is-held" }).first()).toBeVisible();
  // Other tests of this server may leave jobs that run, too.
  const names = await listed.allTextContents();
  const first = (name: string) => names.findIndex((text) => text.includes(name));
  expect(first("runs-long")).toBeLessThan(first("is-held"));
  await server.call("POST", `/api/v1/jobs/${id}/cancel`, {});
  await server.waitForStatus(id, "cancelled");
});

/** Submits jobs in one request, and waits for their end. */
async function runAll(server: Server, jobs: JobBody[], status: string): Promise<void> {
  const { jobs: created } = await server.call<{ jobs: { id: string }[] }>("POST", "/api/v1/jobs", { jobs });
  for (const { id } of created) await server.waitForStatus(id, status);
}

const many = (count: number, job: JobBody) => Array.from({ length: count }, () => job);

test("failures are counted exactly by group, most failures first", async ({ page, server }) => {
  await runAll(server, many(11, script("loses-keys", "echo 'KeyError: amount' >&2; exit 7")), "failed");
  await runAll(server, many(12, script("loses-hosts", "echo 'Error: no host' >&2; exit 7")), "failed");
  await page.goto("/");
  const region = page.getByRole("region", { name: "Needs attention" });
  const keys = region.getByRole("listitem").filter({ hasText: "exited with code 7: KeyError: amount" });
  const hosts = region.getByRole("listitem").filter({ hasText: "exited with code 7: Error: no host" });
  await expect(keys).toContainText("11 failures in 24 h", TIMEOUT);
  await expect(hosts).toContainText("12 failures in 24 h");
  const texts = await region.getByRole("listitem").allTextContents();
  const position = (name: string) => texts.findIndex((text) => text.includes(name));
  expect(position("loses-hosts")).toBeLessThan(position("loses-keys"));
  // A further failure, also of another name, is counted without a reload.
  await runAll(server, [script("loses-more", "echo 'KeyError: amount' >&2; exit 7")], "failed");
  await expect(keys).toContainText("12 failures in 24 h", TIMEOUT);
  await expect(keys.getByRole("link", { name: "loses-more" })).toBeVisible();
  await expect(keys).toContainText("+1");
});

test("events refresh the charts with one small request", async ({ page, server }) => {
  await runAll(server, [script("was-there", "true")], "succeeded");
  let lists = 0;
  page.on("request", (request) => {
    const { pathname, searchParams } = new URL(request.url());
    if (pathname === "/api/v1/jobs" && Number(searchParams.get("limit")) > 100) lists += 1;
  });
  await page.goto("/");
  await expect(page.getByRole("status").filter({ hasText: "Live" })).toBeVisible();
  const chart = page.getByRole("img", { name: /ended in the last hour/ });
  await expect(chart).toBeVisible();
  const ended = async () => {
    const label = (await chart.getAttribute("aria-label")) ?? "";
    return Number(/[\d,]+/.exec(label)?.[0].replaceAll(",", ""));
  };
  await waitFor(10_000, "the chart to have the jobs", async () => (await ended()) > 0);
  const before = await ended();
  await runAll(server, many(3, script("comes-later", "true")), "succeeded");
  await waitFor(20_000, "the chart to be updated", async () => (await ended()) >= before + 3);
  expect(lists).toBe(0);
});

test("the range of the charts is part of the address", async ({ page, server }) => {
  await runAll(server, [script("was-there", "true")], "succeeded");
  await page.goto("/");
  const history = page.getByRole("region", { name: "History" });
  await history.getByText("7 days", { exact: true }).click();
  await expect(page).toHaveURL(/\?range=7d$/);
  const chart = history.getByRole("img", { name: /ended in the last 7 days/ });
  await expect(chart).toBeVisible();
  await page.reload();
  await expect(chart).toBeVisible();
  await expect(history.getByRole("heading", { name: "Jobs ended per 2 hours" })).toBeVisible();
  await history.getByText("1 hour", { exact: true }).click();
  await expect(page).toHaveURL(/\/$/);
});

test("a schedule, a worker and a queue have a history", async ({ page, server }) => {
  const id = await server.schedule("has-history", [{ cron: "0 0 1 1 *" }]);
  await server.trigger(id);
  const ended = () =>
    server.get<{ total: { succeeded: number } }>(`/api/v1/stats/series?schedule=${id}&step=1m`);
  await waitFor(30_000, "the run to have ended", async () => (await ended()).total.succeeded === 1);
  const history = page.getByRole("region", { name: "History" });
  await page.goto(`/schedules/${id}?range=24h`);
  await expect(history.getByRole("img", { name: "1 job ended in the last 24 hours" })).toBeVisible();
  await expect(history.getByRole("img", { name: /^Run time in the last 24 hours/ })).toBeVisible();
  const { items } = await server.get<{ items: Array<{ id: string }> }>("/api/v1/workers");
  await page.goto(`/workers/${items[0]?.id}`);
  await expect(history.getByRole("img", { name: /ended in the last hour/ })).toBeVisible();
  await expect(
    history.getByRole("img", { name: /^Maximum in the last hour: \d+ running jobs$/ }),
  ).toBeVisible();
  // A queue without jobs is listed if it has settings.
  await server.call("PUT", "/api/v1/queues/default", { note: "with a history" });
  await page.goto("/queues");
  await page.getByRole("button", { name: "History of default" }).click();
  await expect(history.getByRole("img", { name: /running jobs, \d+ waiting jobs$/ })).toBeVisible();
  await expect(page).toHaveURL(/\?history=default$/);
});

test("an idle overview causes little traffic", async ({ page, server }) => {
  test.setTimeout(180_000);
  const jobs = Array.from({ length: 300 }, (_, i) =>
    script(`idle-${i % 20}`, i % 30 === 0 ? "exit 1" : "true"),
  );
  await server.call("POST", "/api/v1/jobs", { jobs });
  const later = { run_at: new Date(Date.now() + 86_400_000).toISOString() };
  await server.call("POST", "/api/v1/jobs", { jobs: many(100, script("is-later", "true", later)) });
  const active = "/api/v1/jobs?status=waiting,running,retrying&queue=default&limit=1";
  const isIdle = async () => (await server.get<{ items: object[] }>(active)).items.length === 0;
  await waitFor(60_000, "all jobs to have ended", isIdle);

  const sizes: Array<Promise<number>> = [];
  page.on("requestfinished", (request) => {
    if (!/^\/(api|readyz)/.test(new URL(request.url()).pathname)) return;
    const size = request.sizes().then((size) => size.responseBodySize + size.responseHeadersSize);
    // The stream of events does not end.
    sizes.push(size.catch(() => 0));
  });
  const received = async () => (await Promise.all(sizes.splice(0))).reduce((sum, size) => sum + size, 0);
  await page.goto("/");
  await expect(
    page.getByRole("region", { name: "Needs attention" }).getByRole("listitem").first(),
  ).toBeVisible();
  await expect(page.getByRole("status").filter({ hasText: "Live" })).toBeVisible();
  // Data that was read before the feed opened is refetched once.
  await page.waitForTimeout(5_000);
  const first = await received();
  await page.waitForTimeout(IDLE_MS);
  const idle = await received();
  const figures = `first load ${first} bytes, then ${idle} bytes in ${IDLE_MS / 1_000} s`;
  test.info().annotations.push({ type: "figures", description: figures });
  process.stdout.write(`${figures}\n`);
  expect(first).toBeLessThan(FIRST_LOAD_MAX_BYTES);
  expect(idle).toBeLessThan(IDLE_MAX_BYTES);
});
