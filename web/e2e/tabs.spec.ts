/** G2. Many tabs of one browser, which opens at most six connections to a server over HTTP/1.1. */

import type { Page } from "@playwright/test";

import { expect, script, test, waitFor } from "./fixtures";
import { Proxy } from "./proxy";

const TABS = 8;
const LIVE = { hasText: "Live" };

/** Simulates that the page is hidden or visible. */
async function setVisible(page: Page, isShown: boolean): Promise<void> {
  await page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, !isShown);
}

test("eight tabs that follow a log are all live over three streams", async ({ page, server }) => {
  const proxy = await Proxy.start(server);
  const id = await server.submit(
    script("ticks", 'for i in $(seq 1 600); do echo "tick $i"; sleep 0.2; done'),
  );
  await server.waitForStatus(id, "running");
  const context = page.context();
  const tabs = [page, ...(await Promise.all(Array.from({ length: TABS - 1 }, () => context.newPage())))];
  for (const [i, tab] of tabs.entries()) {
    await tab.goto(`${proxy.url}/jobs/${id}`);
    await expect(tab.getByTestId("log"), `tab ${i + 1}`).toContainText("tick");
    await expect(tab.getByRole("status").filter(LIVE), `tab ${i + 1}`).toBeVisible();
  }
  expect(proxy.streams("/api/v1/events")).toBe(1);
  expect(proxy.streams("/logs")).toBeLessThanOrEqual(2);

  const seen = await tabs[TABS - 1]?.getByTestId("log").innerText();
  await expect(tabs[TABS - 1]!.getByTestId("log"), "the last tab goes on").not.toHaveText(seen ?? "");
  await server.call("POST", `/api/v1/jobs/${id}/cancel`, {});
  for (const [i, tab] of tabs.entries()) {
    await expect(tab.locator("header").getByText("Cancelled"), `tab ${i + 1}`).toBeVisible();
  }
  await waitFor(10_000, "the logs to be over", () => Promise.resolve(proxy.streams("/logs") === 0));
  for (const tab of tabs.slice(1)) await tab.close();
  await proxy.stop();
});

test("a hidden tab has no stream, and catches up when it is shown", async ({ page, server }) => {
  const proxy = await Proxy.start(server);
  const id = await server.submit(
    script("hidden", 'for i in $(seq 1 300); do echo "tick $i"; sleep 0.2; done'),
  );
  await server.waitForStatus(id, "running");
  await page.clock.install();
  await page.goto(`${proxy.url}/jobs/${id}`);
  await expect(page.getByTestId("log")).toContainText("tick");
  const open = () => proxy.streams("/");
  await waitFor(10_000, "both streams", () => Promise.resolve(open() === 2));

  await setVisible(page, false);
  await page.clock.fastForward(15_000);
  await waitFor(10_000, "no log", () => Promise.resolve(proxy.streams("/logs") === 0));
  await page.clock.fastForward(600_000);
  await waitFor(10_000, "no stream", () => Promise.resolve(open() === 0));
  await server.call("POST", `/api/v1/jobs/${id}/cancel`, {});
  await server.waitForStatus(id, "cancelled");
  await setVisible(page, true);
  await expect(page.locator("header").getByText("Cancelled")).toBeVisible();
  // Each line occurs once: the log resumed where it stopped.
  const numbers = await page.getByTestId("log").getByRole("log").innerText();
  const ticks = [...numbers.matchAll(/tick (\d+)/g)].map((match) => Number(match[1]));
  expect(ticks).toEqual([...ticks].sort((a, b) => a - b));
  expect(new Set(ticks).size).toBe(ticks.length);
  await proxy.stop();
});

test("a browser without shared workers reads its streams in the page", async ({ page, server }) => {
  await page.addInitScript(() => void Reflect.deleteProperty(globalThis, "SharedWorker"));
  const id = await server.submit(script("alone", "echo I am here; sleep 30"));
  await server.waitForStatus(id, "running");
  await page.goto(`/jobs/${id}`);
  await expect(page.getByTestId("log")).toContainText("I am here");
  await server.call("POST", `/api/v1/jobs/${id}/cancel`, {});
  await expect(page.locator("header").getByText("Cancelled")).toBeVisible();
});
