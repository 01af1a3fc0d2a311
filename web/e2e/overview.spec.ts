/** G2, H2. The overview: items that need attention, active jobs, and its request cost. */

import { expect, script, test, waitFor } from "./fixtures";

const TIMEOUT = { timeout: 30_000 };

test("a paused queue comes before failures, and all items can be shown", async ({ page, server }) => {
  const ids: string[] = [];
  for (let i = 0; i < 9; i += 1) ids.push(await server.submit(script(`fails-${i}`, "exit 1")));
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

test("events update the charts without refetching their list", async ({ page, server }) => {
  const first = await server.submit(script("was-there", "true"));
  await server.waitForStatus(first, "succeeded");
  let reads = 0;
  page.on("request", (request) => {
    const { pathname, searchParams } = new URL(request.url());
    if (pathname === "/api/v1/jobs" && searchParams.get("limit") === "1000") reads += 1;
  });
  await page.goto("/");
  await expect(page.getByRole("status").filter({ hasText: "Live" })).toBeVisible();
  const chart = page.getByRole("img", { name: /ended in the last hour/ });
  await expect(chart).toBeVisible();
  const ended = async () => Number(/\d+/.exec((await chart.getAttribute("aria-label")) ?? "")?.[0]);
  await waitFor(10_000, "the chart to have the jobs", async () => (await ended()) > 0);
  // Data read before the feed opened is refetched once, because it may have changed in between.
  const atStart = reads;
  expect(atStart).toBeGreaterThanOrEqual(1);
  expect(atStart).toBeLessThanOrEqual(2);

  const before = await ended();
  for (let i = 0; i < 3; i += 1) await server.submit(script("comes-later", "true"));
  await waitFor(20_000, "the chart to be updated", async () => (await ended()) >= before + 3);
  expect(reads).toBe(atStart);
});
