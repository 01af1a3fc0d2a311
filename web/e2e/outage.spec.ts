/** G2. Pages and editors whose code is not loaded yet, during an outage or after an upgrade. */

import type { Page } from "@playwright/test";

import { expect, test } from "./fixtures";

const ASSET = /\/assets\/QueuesPage-.*\.js$/;
const EDITOR = /\/assets\/Editor-.*\.js$/;

/** Disables preloading: the code of a page is requested when the page is opened. */
async function disablePreloading(page: Page): Promise<void> {
  await page.addInitScript(() => void Object.assign(globalThis, { requestIdleCallback: () => 0 }));
}

function openQueues(page: Page): Promise<void> {
  // Without hovering first, which would preload it.
  return page.getByRole("link", { name: "Queues", exact: true }).first().dispatchEvent("click");
}

test("a page opened during an outage shows an error inside the frame, and loads automatically afterwards", async ({
  page,
  server,
}) => {
  await disablePreloading(page);
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await server.stop();
  await expect(page.getByRole("alert").filter({ hasText: "reconnecting" })).toBeVisible();
  await openQueues(page);
  await expect(page.getByRole("heading", { name: "This page could not be loaded" })).toBeVisible();
  await expect(page.getByRole("navigation", { name: "Main" })).toBeVisible();
  await expect(page.getByRole("alert").filter({ hasText: "reconnecting" })).toBeVisible();
  await server.run();
  await expect(page.getByRole("heading", { name: "Queues", level: 1 })).toBeVisible({ timeout: 20_000 });
});

test("preloaded pages open during an outage", async ({ page, server }) => {
  const preloaded = page.waitForResponse(ASSET);
  await page.goto("/");
  await preloaded;
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await server.stop();
  await openQueues(page);
  await expect(page.getByRole("heading", { name: "Queues", level: 1 })).toBeVisible();
  await server.run();
});

test("after an upgrade the dashboard reloads once and shows the page", async ({ page }) => {
  await disablePreloading(page);
  let loads = 0;
  page.on("load", () => (loads += 1));
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  // The new build has other file names; the reloaded page knows them.
  await page.route(ASSET, (route) => (loads < 2 ? route.fulfill({ status: 404 }) : route.continue()));
  await openQueues(page);
  await expect(page.getByRole("heading", { name: "Queues", level: 1 })).toBeVisible();
  expect(loads).toBe(2);
});

test("a page whose code is never available shows an error and does not reload endlessly", async ({
  page,
}) => {
  await disablePreloading(page);
  let loads = 0;
  page.on("load", () => (loads += 1));
  await page.route(ASSET, (route) => route.fulfill({ status: 404 }));
  await page.goto("/queues");
  await expect(page.getByRole("heading", { name: "This page could not be loaded" })).toBeVisible();
  await expect.poll(() => loads).toBe(2);
  await expect(page.getByRole("heading", { name: "This page could not be loaded" })).toBeVisible();
  await page.getByRole("link", { name: "Overview" }).first().click();
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  expect(loads).toBe(2);
});

test("after an upgrade the dashboard reloads once and shows the editor of a form", async ({ page }) => {
  await disablePreloading(page);
  let loads = 0;
  page.on("load", () => (loads += 1));
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await page.route(EDITOR, (route) => (loads < 2 ? route.fulfill({ status: 404 }) : route.continue()));
  await page.locator("a[href='/submit']").first().dispatchEvent("click");
  await expect(page.locator(".cm-content")).toContainText("hello");
  expect(loads).toBe(2);
});

test("an editor whose code is missing shows an error in its place, and the form still works", async ({
  page,
}) => {
  await disablePreloading(page);
  let loads = 0;
  let isAvailable = false;
  page.on("load", () => (loads += 1));
  await page.route(EDITOR, (route) => (isAvailable ? route.continue() : route.fulfill({ status: 404 })));
  await page.goto("/submit");
  const problem = page.getByRole("alert").filter({ hasText: "could not be downloaded" });
  await expect(problem).toBeVisible();
  await expect.poll(() => loads).toBe(2);
  await expect(problem).toBeVisible();
  await page.getByTestId("name").fill("without-an-editor");
  await expect(page.getByRole("status").filter({ hasText: "The job is valid" })).toBeVisible();
  expect(loads).toBe(2);
  isAvailable = true;
  await page.getByRole("button", { name: "Reload the dashboard" }).click();
  await expect(page.locator(".cm-content")).toContainText("hello");
  expect(loads).toBe(3);
});

test("the code of the editor is preloaded while the browser is idle", async ({ page }) => {
  const preloaded = page.waitForResponse(EDITOR);
  await page.goto("/");
  await preloaded;
});
