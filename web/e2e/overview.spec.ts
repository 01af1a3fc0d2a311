/** G2, H2. The overview: what needs somebody, what runs, and what it costs to look at it. */

import { expect, script, test, until } from "./fixtures";

const ENDS = { timeout: 30_000 };

test("a paused queue stands before failures, and everything can be shown", async ({ page, server }) => {
  const ids: string[] = [];
  for (let i = 0; i < 9; i += 1) ids.push(await server.submit(script(`fails-${i}`, "exit 1")));
  for (const id of ids) await server.untilStatus(id, "failed");
  await server.call("PUT", "/api/v1/queues/held", { paused: true });
  await server.submit(script("is-held", "true", { queue: "held" }));
  await page.goto("/");
  const needs = page.getByRole("region", { name: "Needs attention" }).getByRole("listitem");
  await expect(needs.first()).toContainText("Queue held is paused; 1 job waits", ENDS);
  await expect(needs).toHaveCount(8);
  // Other tests of this server leave failures, too.
  const all = page.getByRole("button", { name: /^Show all \d+$/ });
  const count = Number((await all.textContent())?.replace(/\D/g, ""));
  expect(count).toBeGreaterThanOrEqual(10);
  await all.click();
  await expect(needs).toHaveCount(count);
  await page.getByRole("button", { name: "Show fewer" }).click();
  await expect(needs).toHaveCount(8);
});

test("what runs is listed before what waits", async ({ page, server }) => {
  await server.call("PUT", "/api/v1/queues/held", { paused: true });
  const id = await server.submit(script("runs-long", "sleep 60"));
  await server.untilStatus(id, "running");
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
  await server.untilStatus(id, "cancelled");
});

test("the charts go on by events, and their list is not read again for them", async ({ page, server }) => {
  const first = await server.submit(script("was-there", "true"));
  await server.untilStatus(first, "succeeded");
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
  await until(10_000, "the chart to have the jobs", async () => (await ended()) > 0);
  // What was read before the event stream was open is read once more: it may have changed in between.
  const atStart = reads;
  expect(atStart).toBeGreaterThanOrEqual(1);
  expect(atStart).toBeLessThanOrEqual(2);

  const before = await ended();
  for (let i = 0; i < 3; i += 1) await server.submit(script("comes-later", "true"));
  await until(20_000, "the chart to go on", async () => (await ended()) >= before + 3);
  expect(reads).toBe(atStart);
});
