/**
 * G2, H1. Long lists and floods of changes. `SCALE_JOBS=1000000 npm run e2e -- scale` shows it with a
 * million jobs; that takes some minutes, nearly all of them for submitting.
 */

import { expect, script, test } from "./fixtures";
import type { Server } from "./server";

const JOBS = Number(process.env.SCALE_JOBS ?? 10_000);
const BATCH = 500;

/** Jobs that wait for a day that does not come: rows, and an event each. */
async function seed(server: Server, count: number): Promise<void> {
  const later = { run_at: new Date(Date.now() + 30 * 86_400_000).toISOString() };
  for (let done = 0; done < count; done += BATCH) {
    const jobs = Array.from({ length: BATCH }, (_, i) => script(`row-${(done + i) % 40}`, "true", later));
    const response = await fetch(`${server.url}/api/v1/jobs`, {
      method: "POST",
      headers: { authorization: `Bearer ${server.token}`, "content-type": "application/json" },
      body: JSON.stringify({ jobs }),
    });
    if (!response.ok) throw new Error(await response.text());
  }
}

const median = (values: number[]) => values.sort((a, b) => a - b)[values.length >> 1] ?? 0;

test("a long list scrolls smoothly, with a handful of rows in the page", async ({ page, server }) => {
  test.setTimeout(60_000 + JOBS);
  await seed(server, JOBS);
  await page.goto("/jobs?status=ready");
  const rows = page.getByTestId("job-rows");
  await expect(rows.getByRole("row").first()).toBeVisible();
  const steps = await rows.evaluate(async (box) => {
    const took: number[] = [];
    for (let i = 0; i < 300; i += 1) {
      const from = performance.now();
      box.scrollTop += 240;
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      took.push(performance.now() - from);
    }
    return took;
  });
  expect(await rows.getByRole("row").count()).toBeLessThan(100);
  expect(await rows.evaluate((box) => box.scrollTop)).toBeGreaterThan(50_000);
  expect(median(steps)).toBeLessThan(100);
});

test("a flood of changes does not hang the page", async ({ page, server }) => {
  await page.goto("/jobs");
  await expect(page.getByTestId("job-rows").getByRole("row").first()).toBeVisible();
  await page.evaluate(() => {
    const gaps: number[] = [];
    let last = performance.now();
    const frame = () => {
      const now = performance.now();
      gaps.push(now - last);
      last = now;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
    Object.assign(globalThis, { gaps });
  });
  await seed(server, 10_000);
  await server.submit(script("after-the-flood", "true"));
  await expect(page.getByTestId("job-rows").getByText("after-the-flood")).toBeVisible();
  const gaps = await page.evaluate(() => (globalThis as unknown as { gaps: number[] }).gaps);
  expect(Math.max(...gaps)).toBeLessThan(1_000);
  expect(median(gaps)).toBeLessThan(100);
});
