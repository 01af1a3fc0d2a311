/** H6, H1. Results by day: of job names, schedules and workflows. */

import type { Page } from "@playwright/test";

import { expect, script, test, waitFor } from "./fixtures";

const TIMEOUT = { timeout: 20_000 };

/** The day of a time in a zone, as in labels of the map. */
function dayLabel(at: number, zone: string): string {
  const options = { weekday: "short", year: "numeric", month: "short", day: "numeric" } as const;
  return new Date(at).toLocaleDateString("en-US", { ...options, timeZone: zone });
}

const cell = (page: Page, at: number, zone = "UTC") =>
  page.getByTestId("heat-map").getByRole("link", { name: new RegExp(`^${dayLabel(at, zone)}: `) });

async function choose(page: Page, zone: string): Promise<void> {
  await page.addInitScript((zone) => {
    localStorage.setItem("belfry.preferences", JSON.stringify({ language: "en", zone }));
  }, zone);
}

test("a day of a job name shows its results, and opens its jobs", async ({ page, server }) => {
  for (const text of ["exit 5", "true", "true"]) {
    await server.submit(script("by-day", text));
  }
  await waitFor(15_000, "the jobs to end", async () => {
    const { items } = await server.get<{ items: object[] }>(
      "/api/v1/jobs?name=by-day&status=succeeded,failed",
    );
    return items.length === 3;
  });
  await page.goto("/jobs/named/by-day");
  const today = cell(page, Date.now());
  await expect(today).toHaveAccessibleName(/: 3 jobs ended; succeeded 2; failed 1$/, TIMEOUT);
  await expect(page.getByTestId("heat-map").getByRole("link")).toHaveCount(365);
  await expect(cell(page, Date.now() - 86_400_000)).toHaveAccessibleName(/: 0 jobs ended$/);
  await today.hover();
  await expect(page.getByTestId("day-tip")).toContainText("failed 1");
  await today.click();
  await expect(page).toHaveURL(/\/jobs\?name=by-day&namespace=default&after=.+T00:00:00.000Z&before=.+/);
  await expect(page.getByTestId("job-rows").getByRole("row")).toHaveCount(3);
});

test("days are reached by the keyboard", async ({ page, server }) => {
  const id = await server.submit(script("by-key", "true"));
  await server.waitForStatus(id, "succeeded");
  await page.goto("/jobs/named/by-key");
  const today = cell(page, Date.now());
  await expect(today).toHaveAccessibleName(/: 1 job ended/, TIMEOUT);
  // One stop for all days.
  await expect(page.getByTestId("heat-map").locator("a[tabindex='0']")).toHaveCount(1);
  await today.focus();
  await page.keyboard.press("ArrowLeft");
  const before = cell(page, Date.now() - 7 * 86_400_000);
  await expect(before).toBeFocused();
  await expect(page.getByTestId("day-tip")).toContainText("0 jobs ended");
  await page.keyboard.press("ArrowRight");
  await expect(today).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByTestId("job-rows").getByRole("row")).toHaveCount(1);
});

test("days are those of the chosen zone, and one request reads a year", async ({ page, server }) => {
  const schedule = await server.schedule("by-zone", [{ cron: "30 2 * * *" }]);
  await server.trigger(schedule);
  await waitFor(15_000, "the job to end", async () => {
    const { items } = await server.get<{ items: object[] }>("/api/v1/jobs?name=by-zone&status=succeeded");
    return items.length === 1;
  });
  const zone = "Pacific/Kiritimati";
  await choose(page, zone);
  const starts = new Map<string, Set<string | null>>();
  page.on("request", (request) => {
    const { pathname, searchParams } = new URL(request.url());
    const step = searchParams.get("step") ?? "";
    if (pathname !== "/api/v1/stats/series" || !step.endsWith("h")) return;
    starts.set(step, (starts.get(step) ?? new Set()).add(searchParams.get("from")));
  });
  await page.goto(`/schedules/${schedule}`);
  const today = cell(page, Date.now(), zone);
  await expect(today).toHaveAccessibleName(/: 1 job ended/, TIMEOUT);
  // UTC+14: days start at 10:00. The newest days are read apart, because they change.
  expect([...starts.keys()].sort()).toEqual(["1h", "2h"]);
  expect(starts.get("2h")?.size).toBe(3);
  await expect(page.getByText("in the time zone Pacific/Kiritimati")).toBeVisible();
  await today.click();
  await expect(page).toHaveURL(
    new RegExp(`schedule=${schedule}&after=.+T10:00:00.000Z&before=.+T10:00:00.000Z`),
  );
  await expect(page.getByTestId("job-rows").getByRole("row")).toHaveCount(1);
});

test("a day of a workflow shows its runs, and opens them", async ({ page, server }) => {
  const steps = [{ name: "only", job: { run: { process: { script: "exit 1" } } } }];
  await server.call("PUT", "/api/v1/workflows/by-run", { name: "by-run", steps });
  for (let i = 0; i < 2; i += 1) await server.call("POST", "/api/v1/workflows/by-run/start", {});
  await waitFor(15_000, "the runs to fail", async () => {
    const { items } = await server.get<{ items: object[] }>("/api/v1/runs?workflow=by-run&status=failed");
    return items.length === 2;
  });
  await page.goto("/workflows/by-run?tab=days");
  const today = cell(page, Date.now());
  await expect(today).toHaveAccessibleName(/: 2 runs; failed 2$/);
  await today.click();
  await expect(page.getByTestId("run-rows").getByRole("row")).toHaveCount(2);
  // Runs of the day before: none.
  const { searchParams } = new URL(page.url());
  const after = searchParams.get("after") ?? "";
  const dayBefore = new Date(Date.parse(after) - 86_400_000).toISOString();
  await page.goto(`/runs?workflow=by-run&after=${dayBefore}&before=${after}`);
  await expect(page.getByText("No run matches")).toBeVisible();
  await page.getByRole("button", { name: "Remove the filter time of creation" }).click();
  await expect(page.getByTestId("run-rows").getByRole("row")).toHaveCount(2);
});

test("days before the newest runs are not shown as empty", async ({ page, server }) => {
  await server.call("PUT", "/api/v1/workflows/by-many", {
    name: "by-many",
    steps: [{ name: "only", job: { run: { process: { script: "true" } } } }],
  });
  await server.call("POST", "/api/v1/workflows/by-many/start", {});
  // As if the workflow had more runs than are counted.
  await page.route(/\/api\/v1\/runs\?workflow=.*limit=1000/, async (route) => {
    const response = await route.fetch();
    const list = (await response.json()) as object;
    await route.fulfill({ response, json: { ...list, next_cursor: "more" } });
  });
  await page.goto("/workflows/by-many?tab=days");
  await expect(cell(page, Date.now() - 86_400_000)).toHaveAccessibleName(/: not counted$/);
  await expect(page.getByText("Only the newest 1,000 runs are counted")).toBeVisible();
});
